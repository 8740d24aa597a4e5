//! `adj approve` and `adj deny`.

use super::run::resolve_directory;
use crate::cli::answering::{answer_to, print_answered, send_answers};
use crate::cli::args::{ApproveArgs, DenyArgs};
use crate::cli::context::{Context, read_text, words_argument};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, fail, fail_hint};
use crate::text;
use crate::view::{AnswerOne, ChangesView, DecisionWord, Word};

/// Approves an approval or a delegation.
pub(crate) async fn approve(args: &ApproveArgs, cx: &Context) -> CommandResult {
    let prompt = match &args.prompt_file {
        None => None,
        Some(path) => {
            let file = std::fs::File::open(path)
                .map_err(|e| fail(cli_codes::IO, format!("{}: {e}", path.display())))?;
            Some(read_text(file, "the prompt", &path.display().to_string())?)
        }
    };
    let cwd = match &args.cwd {
        None => None,
        Some(dir) => Some(resolve_directory(Some(dir))?),
    };
    let changes = ChangesView {
        prompt,
        agent: args.agent.clone(),
        cwd,
        priority: args.priority.as_deref().map(Word::read),
    };
    let changes = Some(changes).filter(|changes| *changes != ChangesView::default());
    let (same, for_s, uses) = (
        args.same,
        args.for_time.map(|time| time.as_secs().max(1)),
        args.uses.map(u64::from),
    );
    let decision = Some(DecisionWord::Approve);
    let answer = AnswerOne {
        decision,
        reason: args.note.clone(),
        changes,
        same,
        for_s,
        uses,
        ..answer_to(&args.to, cx).await?
    };
    send_decision(answer, cx).await
}

/// Denies a request, or revokes an approval that has not been used.
pub(crate) async fn deny(args: &DenyArgs, cx: &Context) -> CommandResult {
    let reason = words_argument(
        args.message.iter().chain(&args.reason).chain(&args.more),
        "the reason",
    )?
    .unwrap_or_default()
    .trim()
    .to_owned();
    if reason.is_empty() {
        return Err(fail_hint(
            cli_codes::USAGE,
            "the reason is empty",
            format!("adj deny {} \"…\"", text::line(&args.to)),
        ));
    }
    let answer = AnswerOne {
        decision: Some(DecisionWord::Deny),
        reason: Some(reason),
        ..answer_to(&args.to, cx).await?
    };
    send_decision(answer, cx).await
}

async fn send_decision(answer: AnswerOne, cx: &Context) -> CommandResult {
    let answered = send_answers(vec![answer], cx).await?;
    if cx.out.json {
        cx.out.print_json(&answered)?;
    } else {
        print_answered(&answered, cx)?;
    }
    Ok(Exit::Done)
}
