//! The commands to suggest for requests and runs that need the person.

use crate::present::{ResumeStep, RunNeed, resume_step, run_need};
use crate::text;
use crate::view::{AttentionList, RequestView, RunView};
use adjutant_core::{RequestKind, RunStateKind};

/// Returns the command that answers a request.
pub(crate) fn answer_command(request: &RequestView) -> String {
    let number = text::line(&request.number);
    match request.kind.known() {
        Some(RequestKind::Question) => format!("adj reply {number} \"…\""),
        _ => format!("adj approve {number}   or   adj deny {number} \"…\""),
    }
}

/// Returns the commands that resume or cancel a stopped run.
pub(crate) fn resume_command(run: &RunView) -> String {
    let name = text::line(&run.identity.name);
    let resume = match resume_step(run) {
        ResumeStep::Retry(failed) => {
            format!("adj retry {}   or   adj resume {name}", text::line(failed))
        }
        ResumeStep::Raise(used_up) => format!("adj budget {name} --add {}", used_up.example()),
        ResumeStep::Choose(words) => format!("adj resume {name} --choice {words}"),
        ResumeStep::Tell => format!("adj resume {name} \"…\""),
    };
    format!("{resume}   or   adj cancel {name}")
}

/// Returns the commands for a run whose process lives on after its report.
pub(crate) fn alive_command(run: &RunView) -> String {
    let name = text::line(&run.identity.name);
    format!("adj logs {name}   or   adj cancel {name}")
}

/// Returns the commands to suggest for a run.
pub(crate) fn run_command(run: &RunView) -> String {
    let name = text::line(&run.identity.name);
    let has_changed = run
        .changes
        .changed_files
        .as_ref()
        .is_some_and(|files| !files.is_empty());
    match (
        run.requests.pending.first(),
        queue_step(run),
        run.condition.state.known(),
    ) {
        (Some(request), ..) => answer_command(request),
        (None, Some(step), _) => step,
        (None, None, Some(RunStateKind::Stopped)) => resume_command(run),
        (None, None, Some(RunStateKind::Finished)) if has_changed => {
            format!("adj diff {name}   or   adj logs {name}")
        }
        (None, None, Some(RunStateKind::Finished)) => {
            format!("adj logs {name}   or   adj retry {name}")
        }
        _ => format!("adj logs -f {name}"),
    }
}

/// Returns the command that lets a queued run start, if there is one.
pub(crate) fn queue_step(run: &RunView) -> Option<String> {
    Some(text::line(
        run.in_queue.queue.as_ref()?.next_step.as_deref()?,
    ))
}

/// Counts what needs the person, each kind apart.
pub(crate) fn needs_text(list: &AttentionList) -> String {
    let AttentionList {
        requests,
        runs,
        mentions,
        requests_more,
        runs_more,
        mentions_more: _,
        policy_change,
        set_back: _,
    } = list;
    let kinds = [
        (requests.len() as u64 + requests_more, "request", "requests"),
        (runs.len() as u64 + runs_more, "run", "runs"),
        (
            mentions.len() as u64,
            "chat with a message",
            "chats with messages",
        ),
        (
            u64::from(policy_change.is_some()),
            "change of the policies",
            "changes of the policies",
        ),
    ];
    let shown: Vec<String> = kinds
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| text::count(count, one, many))
        .collect();
    shown.join(", ")
}

/// Returns the command for the first thing that needs the person.
pub(crate) fn first_command(list: &AttentionList) -> Option<String> {
    if let Some(request) = list.requests.first() {
        return Some(answer_command(request));
    }
    if let Some(run) = list.runs.first() {
        return Some(match run_need(run) {
            RunNeed::Resume => resume_command(run),
            RunNeed::EndOrWait => alive_command(run),
            RunNeed::Undo(undo) => text::line(&undo.complete_with),
            RunNeed::Notice => format!("adj show {}", text::line(&run.identity.name)),
        });
    }
    if list.policy_change.is_some() {
        return Some("adj policy".to_owned());
    }
    list.mentions
        .first()
        .map(|mention| format!("adj chat show {}", mention.chat_id))
}
