//! Deciding: `approve`, `deny`, and what a typed line means for a request of each kind.

use super::args::{ApproveArgs, DenyArgs};
use super::attend;
use super::attend::named;
use super::context::{Context, read_text, text_argument};
use super::exit::{Exit, words};
use super::out::{Ended, fail, fail_hint};
use crate::text;
use crate::view::{AnswerOne, AnswerRequests, AttentionList, ChangesView, DecisionWord, RequestView, RunView};

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
        Some(dir) => Some(super::start::directory(Some(dir))?),
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
        attend::say_answered(&answered, cx)?;
    }
    Ok(Exit::Done)
}

/// Says how a request is dealt with on the command line.
pub fn way(request: &RequestView) -> String {
    let number = text::line(&request.number);
    match request.kind.as_str() {
        "question" => format!("adj reply {number} \"…\""),
        _ => format!("adj approve {number}   or   adj deny {number} \"…\""),
    }
}

/// Says how a stopped run is dealt with on the command line.
pub fn way_on(run: &RunView) -> String {
    let name = text::line(&run.name);
    match run.choices.as_slice() {
        [] => format!("adj resume {name} \"…\"   or   adj cancel {name}"),
        choices => {
            let words: Vec<String> = choices.iter().map(|choice| text::line(&choice.choice)).collect();
            format!("adj resume {name} --choice {}   or   adj cancel {name}", words.join("|"))
        }
    }
}

/// Says how the first of what needs the person is dealt with on the command line.
pub fn way_of_first(list: &AttentionList) -> Option<String> {
    if let Some(request) = list.requests.first() {
        return Some(way(request));
    }
    if let Some(run) = list.runs.first() {
        let is_stop = run.attention.as_ref().is_some_and(|attention| attention.is_stop());
        return Some(if is_stop { way_on(run) } else { format!("adj show {}", text::line(&run.name)) });
    }
    list.mentions.first().map(|mention| format!("adj chat show {}", mention.chat_id))
}

/// Reads what was typed under a request that was shown, or says what can be typed.
pub fn typed(request: &RequestView, line: &str) -> Result<AnswerOne, &'static str> {
    let message_id = Some(request.message_id.clone());
    if request.kind == "question" {
        return Ok(AnswerOne { message_id, answer: line.to_owned(), ..AnswerOne::default() });
    }
    let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let rest = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    // Decided is what stands on the screen.
    let content_hash = Some(request.content_hash.clone());
    let (decision, reason) = match (word.to_ascii_lowercase().as_str(), rest) {
        ("y" | "yes" | "approve", note) => (DecisionWord::Approve, note),
        ("n" | "no" | "deny", Some(reason)) => (DecisionWord::Deny, Some(reason)),
        _ => return Err("type y, or n and why"),
    };
    Ok(AnswerOne { message_id, decision: Some(decision), reason, content_hash, ..AnswerOne::default() })
}

/// Columns of what is decided, where it is repeated behind a long preview.
const MATTER_COLUMNS_MAX: usize = 60;

/// Returns what is asked behind a request that was shown. It repeats what is decided, since a long preview
/// has moved that out of sight.
pub fn prompt(request: &RequestView) -> String {
    match request.kind.as_str() {
        "question" => format!("answer {} > ", text::line(&request.number)),
        _ => format!("{} [y]es / [n]o, reason > ", matter(request)),
    }
}

/// Names an approval or a delegation with its matter and its risk, as a question.
pub fn matter(request: &RequestView) -> String {
    let what = text::cut(&text::line(&request.question), MATTER_COLUMNS_MAX);
    let risk = request.risk.as_deref().map(|risk| format!(", risk {}", text::cut(&text::line(risk), MATTER_COLUMNS_MAX))).unwrap_or_default();
    format!("Approve {} ({what}{risk})?", text::line(&request.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_or_a_reasoned_no_decides() {
        let request = RequestView { kind: "approval".to_owned(), options: vec!["once".to_owned(), "always".to_owned()], ..RequestView::default() };
        let read = |line| typed(&request, line).map(|answer| (answer.decision, answer.reason));
        assert_eq!(read("y"), Ok((Some(DecisionWord::Approve), None)));
        assert_eq!(read("yes 2"), Ok((Some(DecisionWord::Approve), Some("2".to_owned()))));
        assert_eq!(read("n too late"), Ok((Some(DecisionWord::Deny), Some("too late".to_owned()))));
        for unclear in ["n", "maybe", "ok", "1"] {
            assert!(read(unclear).is_err(), "{unclear}");
        }
        let question = RequestView { kind: "question".to_owned(), ..RequestView::default() };
        assert_eq!(typed(&question, "n").map(|answer| answer.answer), Ok("n".to_owned()));
    }
}
