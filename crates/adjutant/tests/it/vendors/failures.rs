//! A run never succeeds if its model cannot be used, with each real CLI.

use super::Cli;
use super::case::Case;
use crate::model::Turn;
use Expected::{Fails, IsSilent, Pauses, Retries};
use adjutant_api::view::{ReadEvents, Wait, WaitUntil};

/// The expected outcome.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// The run fails for this cause.
    Fails(&'static str),
    /// The run stops for this reason, and resumes automatically later.
    Pauses(&'static str),
    /// The CLI retries the call for longer than ten seconds, which is reported with this cause.
    Retries(&'static str),
    /// The CLI retries the call for longer than that, and reports nothing.
    IsSilent,
}

const UNAUTHORIZED: Turn = Turn::Unauthorized;
const NO_CREDIT: Turn = Turn::NoCredit;
const LIMITED: Turn = Turn::RateLimited { after_s: 60 };
const OVERLOADED: Turn = Turn::Overloaded;
const RESET: Turn = Turn::Reset;
const TOO_LONG: Turn = Turn::TooLong;

/// One test for each CLI and turn of the model.
macro_rules! table {
    ($($cli:ident $name:ident: $($turn:ident $test:ident $expected:expr),* ;)*) => {$(
        mod $name {
            use super::*;

            $(
                #[test]
                fn $test() {
                    drive(Cli::$cli, |_| $turn, $expected);
                }
            )*
        }
    )*};
}

table! {
    Claude claude: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Fails("no_credit"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Pauses("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Codex codex: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Fails("no_credit"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Retries("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Gemini gemini: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Pauses("rate_limited"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Retries("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Goose goose: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Fails("no_credit"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Pauses("overloaded"), RESET reset Fails("network"), TOO_LONG too_long Fails("context_exhausted");
    Opencode opencode: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Retries("rate_limited"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Retries("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Qwen qwen: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Retries("rate_limited"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Retries("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Copilot copilot: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Retries("rate_limited"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Pauses("overloaded"), RESET reset Fails("network"), TOO_LONG too_long Fails("context_exhausted");
    Kimi kimi: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Fails("no_credit"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Retries("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Pi pi: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Fails("no_credit"), LIMITED limited Retries("rate_limited"),
        OVERLOADED overloaded Retries("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Aider aider: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Retries("no_credit"), LIMITED limited IsSilent,
        OVERLOADED overloaded Retries("overloaded"), RESET reset Retries("network"), TOO_LONG too_long Fails("context_exhausted");
    Droid droid: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Fails("no_credit"), LIMITED limited Pauses("rate_limited"),
        OVERLOADED overloaded Retries("overloaded"), RESET reset Fails("network"), TOO_LONG too_long Fails("context_exhausted");
    Cline cline: UNAUTHORIZED unauthorized Fails("not_signed_in"), NO_CREDIT no_credit Fails("no_credit"), LIMITED limited IsSilent,
        OVERLOADED overloaded Pauses("overloaded"), RESET reset IsSilent, TOO_LONG too_long Fails("context_exhausted");
}

/// Drives a CLI whose model always takes this turn, and checks the outcome.
fn drive(cli: Cli, turn: fn(&crate::model::Seen) -> Turn, expected: Expected) {
    let Some(case) = Case::new(cli, [Turn::Computed(turn)]) else {
        return;
    };
    let case = case.that_retries();
    case.starts(cli.writing());
    match expected {
        Fails(cause) => {
            let view = case.ends();
            assert_eq!(
                (&view["outcome"], &view["cause"]),
                (&"failed".into(), &cause.into()),
                "{view}\n{}",
                case.story()
            );
        }
        Pauses(cause) => {
            let view = case.becomes("stopped");
            assert!(
                view["reason"]
                    .as_str()
                    .is_some_and(|reason| reason.starts_with(cause)),
                "{view}\n{}",
                case.story()
            );
        }
        Retries(cause) => {
            let view = case.retries();
            assert_eq!(view["retrying"]["cause"], cause, "{view}\n{}", case.story());
            let listed = case.says(&["ps"]);
            assert!(listed.contains("◌"), "{listed}");
            case.cancels();
        }
        IsSilent => {
            // Longer than it takes until retries are reported.
            case.model.until_asked(1);
            let wait = Wait {
                runs: vec!["job".to_owned()],
                until: WaitUntil::All,
                wait_ms: 12_000,
                ..Wait::default()
            };
            let waited = case.home.call(&wait, "").expect("it waits");
            let view = case.view();
            assert_eq!(
                (waited.outcome.as_str(), &view["state"]),
                ("timeout", &"running".into()),
                "{view}\n{}",
                case.story()
            );
            assert!(
                view["retrying"].is_null(),
                "retries are reported without evidence: {view}\n{}",
                case.story()
            );
            case.cancels();
        }
    }
    assert_ne!(case.view()["outcome"], "succeeded");
}

/// Kimi ends such a turn like a successful one.
#[test]
fn kimi_whose_model_fails_after_a_call_does_not_succeed() {
    let Some(case) = Case::new(
        Cli::Kimi,
        [Turn::shell("echo seen"), Turn::Computed(|_| Turn::NoCredit)],
    ) else {
        return;
    };
    case.starts("full");
    let view = case.ends();
    assert_eq!(
        (&view["outcome"], &view["cause"]),
        (&"failed".into(), &"no_credit".into()),
        "{view}\n{}",
        case.story()
    );
}

#[test]
fn claude_succeeds_after_retries() {
    let mut turns = vec![Turn::Reset; 5];
    turns.push(Turn::say("The line is back."));
    let Some(case) = Case::new(Cli::Claude, turns) else {
        return;
    };
    let case = case.that_retries();
    case.starts("edit");
    let view = case.retries();
    assert_eq!(view["retrying"]["cause"], "network", "{view}");
    let view = case.succeeds("The line is back.");
    assert!(view["retrying"].is_null(), "{view}");
    assert!(
        case.home.log("job").contains("! unknown ×5\n"),
        "one line of the log: {}",
        case.story()
    );
    let events = case
        .home
        .call(
            &ReadEvents {
                run: Some("job".to_owned()),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("it reads")
        .events;
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event.kind.as_str())
        .filter(|kind| matches!(*kind, "run.retrying" | "run.recovered"))
        .collect();
    assert_eq!(kinds, ["run.retrying", "run.recovered"]);
}
