//! The commands to suggest for requests and runs that need the person.

use crate::text;
use crate::view::{AttentionKind, AttentionList, RequestView, RunView};
use adjutant_core::RequestKind;
use adjutant_core::pool::AfterState;

/// Returns the command that answers a request.
pub fn answer_command(request: &RequestView) -> String {
    let number = text::line(&request.number);
    match request.kind.known() {
        Some(RequestKind::Question) => format!("adj reply {number} \"…\""),
        _ => format!("adj approve {number}   or   adj deny {number} \"…\""),
    }
}

/// Returns the commands that resume or cancel a stopped run.
pub fn resume_command(run: &RunView) -> String {
    let name = text::line(&run.name);
    if let Some(failed) = run
        .after
        .iter()
        .find(|after| run.is_held() && after.state == AfterState::Failed)
    {
        return format!(
            "adj retry {}   or   adj resume {name}   or   adj cancel {name}",
            text::line(&failed.name)
        );
    }
    if let Some(used_up) = run.budgets.iter().find(|budget| budget.left == 0) {
        return format!(
            "adj budget {name} --add {}   or   adj cancel {name}",
            used_up.example()
        );
    }
    match run.choices.as_slice() {
        [] => format!("adj resume {name} \"…\"   or   adj cancel {name}"),
        choices => {
            let words: Vec<String> = choices
                .iter()
                .map(|choice| text::line(choice.choice.as_str()))
                .collect();
            format!(
                "adj resume {name} --choice {}   or   adj cancel {name}",
                words.join("|")
            )
        }
    }
}

/// Counts what needs the person, each kind apart.
pub fn needs_text(list: &AttentionList) -> String {
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
pub fn first_command(list: &AttentionList) -> Option<String> {
    if let Some(request) = list.requests.first() {
        return Some(answer_command(request));
    }
    if let Some(run) = list.runs.first() {
        let is_stop = run
            .attention
            .as_ref()
            .is_some_and(|attention| attention.is_stop());
        return Some(match &run.undo_interrupted {
            _ if is_stop => resume_command(run),
            _ if run
                .attention
                .as_ref()
                .is_some_and(|attention| attention.kind == AttentionKind::Alive) =>
            {
                let name = text::line(&run.name);
                format!("adj logs {name}   or   adj cancel {name}")
            }
            Some(undo) => text::line(&undo.complete_with),
            None => format!("adj show {}", text::line(&run.name)),
        });
    }
    if list.policy_change.is_some() {
        return Some("adj policy".to_owned());
    }
    list.mentions
        .first()
        .map(|mention| format!("adj chat show {}", mention.chat_id))
}
