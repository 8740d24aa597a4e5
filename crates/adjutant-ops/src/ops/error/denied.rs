//! Codes and hints for refusals.

use crate::view::codes;
use adjutant_core::{Denied, RequestKind, RequestNo};

/// Returns the code of a refusal.
pub(super) fn code_of(denied: &Denied) -> &'static str {
    match denied {
        Denied::NotFound { .. }
        | Denied::Misspelled { .. }
        | Denied::Lost { .. }
        | Denied::NoOpenRequest { .. } => codes::NOT_FOUND,
        Denied::Ambiguous { .. } => codes::AMBIGUOUS,
        Denied::OneOf { why, .. } => code_of(why),
        Denied::NotAllowed { .. } | Denied::OwnQuestion => codes::NOT_ALLOWED,
        Denied::AnsweredBy(_) => codes::ALREADY_ANSWERED,
        Denied::Expired => codes::EXPIRED,
        Denied::Withdrawn => codes::WITHDRAWN,
        Denied::Unfitting { .. } => codes::UNFITTING,
        Denied::Used => codes::USED,
        Denied::RunFinished { .. } => codes::RUN_FINISHED,
        Denied::KeyReused => codes::KEY_REUSED,
        Denied::Limit { .. } | Denied::Budget { .. } => codes::LIMIT,
        Denied::NotAsShown
        | Denied::WrongState { .. }
        | Denied::DirectoryInUse { .. }
        | Denied::Conflict { .. } => codes::CONFLICT,
        Denied::Invalid { .. } => codes::INVALID,
    }
}

/// Returns what the caller can do about a refusal.
pub(super) fn hint_of(denied: &Denied) -> Option<String> {
    let hint = |text: &str| Some(text.to_owned());
    match denied {
        Denied::NotFound { what, given } => hint_for_missing(what, given),
        Denied::Misspelled { .. } => hint("list runs: adj ps -a"),
        Denied::Lost { .. } | Denied::NoOpenRequest { .. } => hint("list open requests: adj inbox"),
        Denied::Ambiguous { .. } => hint("name one of them in full"),
        Denied::OneOf { why, .. } => hint_of(why),
        Denied::AnsweredBy(_) => hint("nothing was changed"),
        Denied::Expired => hint("the run continued without an answer"),
        Denied::Withdrawn => hint("its run has ended or has changed what it asks: adj inbox"),
        Denied::Unfitting { kind, .. } => hint(match kind {
            RequestKind::Question => "answer it: adj reply",
            RequestKind::Approval | RequestKind::Delegation => "decide it: adj approve or adj deny",
        }),
        Denied::Used => hint("the run has already used it; pause or cancel the run to stop it"),
        Denied::NotAsShown => hint("read it again, then decide: adj inbox"),
        Denied::OwnQuestion => hint("only the parent or a person can answer"),
        Denied::RunFinished { run, .. } => Some(format!("to run its task again: adj retry {run}")),
        Denied::WrongState { run, state, wanted } => hint_for_state(run, state, wanted),
        Denied::KeyReused => hint("use a new key for a different call"),
        Denied::Budget { of, .. } => of.as_ref().map(|(run, kind)| {
            format!(
                "see: adj budget {run}; raise it: adj budget {run} --add {}",
                kind.example()
            )
        }),
        Denied::DirectoryInUse { run } => {
            Some(format!("adj wait {run}   or   another directory: -C DIR"))
        }
        Denied::NotAllowed { .. }
        | Denied::Limit { .. }
        | Denied::Conflict { .. }
        | Denied::Invalid { .. } => None,
    }
}

/// Returns where to find what was not found.
fn hint_for_missing(what: &str, given: &str) -> Option<String> {
    let hint = match what {
        "run" if RequestNo::parse(given).is_ok() => {
            return Some(format!(
                "{given} is the number of a request: adj next {given}"
            ));
        }
        "run" => "list runs: adj ps -a",
        "chat" => "list chats: adj chat ls",
        "participant" => "name an agent (adj agents), one of your runs, or person",
        "message" => "read the chat: adj chat show",
        "grant" => "list grants: adj grants --all",
        "peer" => "list other hubs: adj peer list",
        "chat of this peer" => "list the chats that it shares: adj peer show",
        "followed chat" => "list the chats of other hubs: adj peer show",
        "token" => "list tokens: adj token list",
        "question" | "request" => "list open requests: adj inbox",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns what to do about a run whose state does not allow a call.
fn hint_for_state(run: &str, state: &str, wanted: &str) -> Option<String> {
    match (state, wanted) {
        ("stopped", "stopped") => Some(format!(
            "resume it: adj resume {run}, or cancel it: adj cancel {run}"
        )),
        ("stopping", _) => Some(format!("repeat this when it has stopped: adj wait {run}")),
        ("queued" | "starting" | "running", "resumed") => Some(format!(
            "it needs no resume; to tell it something: adj send {run} TEXT"
        )),
        _ if wanted.ends_with("cancel it first") => Some(format!("cancel it: adj cancel {run}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_request_given_as_a_run_leads_to_the_request() {
        let hint = |given: &str| hint_of(&Denied::not_found("run", given));
        assert_eq!(
            hint("q3").as_deref(),
            Some("q3 is the number of a request: adj next q3")
        );
        assert_eq!(hint("q-3x").as_deref(), Some("list runs: adj ps -a"));
    }

    #[test]
    fn one_of_several_has_the_code_and_the_hint_of_its_refusal() {
        let one = Denied::one_of("q1", Denied::Expired);
        assert_eq!(code_of(&one), codes::EXPIRED);
        assert_eq!(hint_of(&one), hint_of(&Denied::Expired));
    }

    #[test]
    fn hint_for_a_state_says_how_to_leave_it() {
        let hint = |state: &'static str, wanted: &'static str| {
            hint_for_state("r1", state, wanted).unwrap_or_default()
        };
        assert!(hint("stopped", "stopped").starts_with("resume it: adj resume r1"));
        assert!(hint("running", "resumed").starts_with("it needs no resume"));
        assert!(hint("stopping", "resumed").ends_with("adj wait r1"));
        assert_eq!(hint("finished", "paused"), "");
    }
}
