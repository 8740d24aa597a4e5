//! The commands to suggest for requests and runs that need the person.

use crate::text;
use crate::view::{AttentionList, RequestView, RunView};
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
    if let Some(failed) = run.after.iter().find(|after| run.is_held() && after.state == AfterState::Failed) {
        return format!("adj retry {}   or   adj resume {name}   or   adj cancel {name}", text::line(&failed.name));
    }
    if let Some(used_up) = run.budgets.iter().find(|budget| budget.left == 0) {
        return format!("adj budget {name} --add {}   or   adj cancel {name}", used_up.example());
    }
    match run.choices.as_slice() {
        [] => format!("adj resume {name} \"…\"   or   adj cancel {name}"),
        choices => {
            let words: Vec<String> = choices.iter().map(|choice| text::line(choice.choice.as_str())).collect();
            format!("adj resume {name} --choice {}   or   adj cancel {name}", words.join("|"))
        }
    }
}

/// Returns the command for the first thing that needs the person.
pub fn first_command(list: &AttentionList) -> Option<String> {
    if let Some(request) = list.requests.first() {
        return Some(answer_command(request));
    }
    if let Some(run) = list.runs.first() {
        let is_stop = run.attention.as_ref().is_some_and(|attention| attention.is_stop());
        return Some(match &run.undo_interrupted {
            _ if is_stop => resume_command(run),
            Some(undo) => text::line(&undo.complete_with),
            None => format!("adj show {}", text::line(&run.name)),
        });
    }
    list.mentions.first().map(|mention| format!("adj chat show {}", mention.chat_id))
}
