//! `adj approve` and `adj deny`.

use super::run::directory;
use crate::cli::answering::{named, say_answered};
use crate::cli::args::{ApproveArgs, DenyArgs};
use crate::cli::context::{Context, read_text, text_argument};
use crate::cli::exit::{Exit, words};
use crate::cli::out::{Ended, fail, fail_hint};
use crate::text;
use crate::view::{AnswerOne, AnswerRequests, ChangesView, DecisionWord};

/// Approves an approval or a delegation.
pub async fn approve(args: &ApproveArgs, cx: &Context) -> Ended {
    let prompt = match &args.prompt_file {
        None => None,
        Some(path) => {
            let file = std::fs::File::open(path).map_err(|e| fail(words::IO, format!("{}: {e}", path.display())))?;
            Some(read_text(file, "the prompt", &path.display().to_string())?)
        }
    };
    let cwd = match &args.cwd {
        None => None,
        Some(dir) => Some(directory(Some(dir))?),
    };
    let changes = ChangesView { prompt, agent: args.agent.clone(), cwd, priority: args.priority.clone() };
    let changes = Some(changes).filter(|changes| *changes != ChangesView::default());
    let answer = AnswerOne { decision: Some(DecisionWord::Approve), reason: args.note.clone(), changes, ..named(&args.to, cx).await? };
    send(answer, cx).await
}

/// Denies one, or takes an approval back that was not used yet.
pub async fn deny(args: &DenyArgs, cx: &Context) -> Ended {
    let reason = text_argument(&args.reason, "the reason")?.trim().to_owned();
    if reason.is_empty() {
        return Err(fail_hint(words::USAGE, "the reason is empty", format!("adj deny {} \"…\"", text::line(&args.to))));
    }
    let answer = AnswerOne { decision: Some(DecisionWord::Deny), reason: Some(reason), ..named(&args.to, cx).await? };
    send(answer, cx).await
}

async fn send(answer: AnswerOne, cx: &Context) -> Ended {
    let answered = cx.hub.call(&AnswerRequests { answers: vec![answer] }).await?;
    if cx.out.json {
        cx.out.data(&answered)?;
    } else {
        say_answered(&answered, cx)?;
    }
    Ok(Exit::Done)
}
