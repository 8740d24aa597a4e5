//! Unit tests of signals' fields.

use super::*;
use crate::RunId;
use crate::Time;

fn own() -> RunId {
    RunId::new(Time(1), [1; 10])
}

fn fields(pairs: &[(&str, &str)]) -> Field {
    let id = ("agent_id".to_owned(), Field::Text(own().to_string()));
    Field::Map([id].into_iter().chain(pairs.iter().map(|(name, value)| ((*name).to_owned(), Field::Text((*value).to_owned())))).collect())
}

#[test]
fn only_a_block_with_the_runs_own_id_counts() {
    let mine = fields(&[("percent", "40")]);
    assert_eq!(read(SignalKind::Progress, &mine, own()), Ok(Signal::Progress { percent: Some(40), note: None, eta: None }));
    let other = RunId::new(Time(2), [2; 10]);
    assert_eq!(read(SignalKind::Progress, &mine, other), Err(SignalError::Foreign { given: own().to_string(), own: other }));
    let named = |id: String| Field::Map(vec![("agent_id".to_owned(), Field::Text(id)), ("note".to_owned(), Field::Text("x".to_owned()))]);
    assert!(read(SignalKind::Progress, &named(format!("{}/2", own())), own()).is_ok(), "as ADJ_RUN names it");
    for id in [format!("{}/", own()), format!("{}/x", own()), format!("{other}/1"), "/1".to_owned()] {
        assert!(read(SignalKind::Progress, &named(id.clone()), own()).is_err(), "{id}");
    }
    let nobody = Field::Map(vec![("percent".to_owned(), Field::Text("40".to_owned()))]);
    assert_eq!(read(SignalKind::Progress, &nobody, own()), Err(SignalError::Missing("agent_id")));
}

#[test]
fn each_kind_needs_its_fields() {
    let cases = [
        (SignalKind::Clarification, &[][..], SignalError::Missing("questions")),
        (SignalKind::Stop, &[("stop_reason", "blocker")], SignalError::Missing("details")),
        (SignalKind::Stop, &[("stop_reason", "tired"), ("details", "x")], SignalError::Unusable { field: "stop_reason", given: "tired".to_owned() }),
        (SignalKind::Delegation, &[("priority", "P1")], SignalError::Missing("new_task_description")),
        (SignalKind::Completion, &[("status", "success")], SignalError::Missing("summary")),
        (SignalKind::Completion, &[("status", "done"), ("summary", "x")], SignalError::Unusable { field: "status", given: "done".to_owned() }),
        (SignalKind::Progress, &[("percent", "140")], SignalError::Unusable { field: "percent", given: "140".to_owned() }),
        (SignalKind::Approval, &[("risk", "low")], SignalError::Missing("action")),
        (
            SignalKind::Progress,
            &[("percent", "1"), ("timestamp", "yesterday")],
            SignalError::Unusable { field: "timestamp", given: "yesterday".to_owned() },
        ),
    ];
    for (kind, pairs, expected) in cases {
        assert_eq!(read(kind, &fields(pairs), own()), Err(expected), "{kind:?}");
    }
}

#[test]
fn timestamps_are_iso_8601() {
    for good in ["2026-01-11", "2026-01-11T08:45:00-05:00", "2026-01-11T08:45Z", "2026-01-11 08:45:00.123+0200", "2026-01-11T08:45:00"] {
        assert!(is_iso_8601(good), "{good}");
    }
    for bad in ["", "11.01.2026", "2026-01-11T", "2026-1-1", "2026-01-11T08:45:00 PST", "now"] {
        assert!(!is_iso_8601(bad), "{bad}");
    }
}
