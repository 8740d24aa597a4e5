//! Unit tests of signals' fields.

use super::read::is_iso_8601;
use super::*;
use crate::{RunId, Time};

fn id() -> RunId {
    RunId::new(Time(1), [1; 10])
}

fn own() -> Own<'static> {
    Own {
        id: id(),
        name: "fond-mouse",
    }
}

fn fields(pairs: &[(&str, &str)]) -> Field {
    let id = ("agent_id".to_owned(), Field::Text(id().to_string()));
    Field::Map(
        [id].into_iter()
            .chain(
                pairs
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), Field::Text((*value).to_owned()))),
            )
            .collect(),
    )
}

#[test]
fn only_a_block_with_the_runs_own_id_counts() {
    let mine = fields(&[("percent", "40")]);
    assert_eq!(
        read(SignalKind::Progress, &mine, own()),
        Ok(Signal::Progress {
            percent: Some(40),
            note: None,
            eta: None
        })
    );
    let other = RunId::new(Time(2), [2; 10]);
    let foreign = Err(SignalError::Foreign {
        given: id().to_string(),
        own: other,
    });
    assert_eq!(
        read(
            SignalKind::Progress,
            &mine,
            Own {
                id: other,
                name: "calm-newt"
            }
        ),
        foreign
    );
    let named = |id: String| {
        Field::Map(vec![
            ("agent_id".to_owned(), Field::Text(id)),
            ("note".to_owned(), Field::Text("x".to_owned())),
        ])
    };
    for mine in [
        format!("{}/2", id()),
        id().to_string().to_uppercase(),
        format!("`{}`", id()),
        "fond-mouse".to_owned(),
        "Fond-Mouse".to_owned(),
    ] {
        assert!(
            read(SignalKind::Progress, &named(mine.clone()), own()).is_ok(),
            "{mine}"
        );
    }
    for id in [
        format!("{}/", id()),
        format!("{}/x", id()),
        format!("{other}/1"),
        "/1".to_owned(),
        "calm-newt".to_owned(),
        "fond".to_owned(),
    ] {
        assert!(
            read(SignalKind::Progress, &named(id.clone()), own()).is_err(),
            "{id}"
        );
    }
    let nobody = Field::Map(vec![("percent".to_owned(), Field::Text("40".to_owned()))]);
    assert_eq!(
        read(SignalKind::Progress, &nobody, own()),
        Err(SignalError::Missing("agent_id"))
    );
}

#[test]
fn each_kind_needs_its_fields() {
    let unusable = |field, given: &str, wanted| SignalError::Unusable {
        field,
        given: given.to_owned(),
        wanted,
    };
    let cases = [
        (
            SignalKind::Clarification,
            &[][..],
            SignalError::Missing("questions"),
        ),
        (
            SignalKind::Stop,
            &[("stop_reason", "blocker")],
            SignalError::Missing("details"),
        ),
        (
            SignalKind::Stop,
            &[("stop_reason", "tired"), ("details", "x")],
            unusable("stop_reason", "tired", "blocker, error or completion"),
        ),
        (
            SignalKind::Delegation,
            &[("priority", "P1")],
            SignalError::Missing("new_task_description"),
        ),
        (
            SignalKind::Delegation,
            &[("new_task_description", "x"), ("priority", "high")],
            unusable("priority", "high", "P0, P1 or P2"),
        ),
        (
            SignalKind::Completion,
            &[("status", "success")],
            SignalError::Missing("summary"),
        ),
        (
            SignalKind::Completion,
            &[("status", "done"), ("summary", "x")],
            unusable("status", "done", "success, partial_success or failed"),
        ),
        (
            SignalKind::Progress,
            &[("eta", "10 min")],
            SignalError::Missing("percent"),
        ),
        (
            SignalKind::Approval,
            &[("risk", "low")],
            SignalError::Missing("action"),
        ),
    ];
    for (kind, pairs, expected) in cases {
        assert_eq!(read(kind, &fields(pairs), own()), Err(expected), "{kind:?}");
    }
}

#[test]
fn words_are_read_in_any_case() {
    let claim = |status| match read(
        SignalKind::Completion,
        &fields(&[("status", status), ("summary", "x")]),
        own(),
    ) {
        Ok(Signal::Completion { claim, .. }) => Some(claim),
        _ => None,
    };
    use crate::report::Claim;
    for (status, expected) in [
        ("Success", Some(Claim::Success)),
        ("COMPLETED", Some(Claim::Completed)),
        ("partial success", Some(Claim::Partial)),
        ("Partial-Success (2 of 3)", Some(Claim::Partial)),
        ("error", Some(Claim::Failed)),
        ("failed: 3 of 10 tests", Some(Claim::Failed)),
        ("✅ success", Some(Claim::Success)),
        // A success with reservations is none.
        ("success, but the tests fail", None),
        ("completed with errors", None),
        ("success|partial_success|failed", None),
        ("not a success", None),
    ] {
        assert_eq!(claim(status), expected, "{status}");
    }
    let cause = |reason| match read(
        SignalKind::Stop,
        &fields(&[("stop_reason", reason), ("details", "x")]),
        own(),
    ) {
        Ok(Signal::Stop { cause, .. }) => Some(cause),
        _ => None,
    };
    assert_eq!(cause("Blocker - no network"), Some(StopCause::Blocker));
    assert_eq!(
        (
            cause("Completion"),
            cause("completion of the first part is blocked")
        ),
        (Some(StopCause::Completion), None)
    );
}

#[test]
fn progress_without_a_number_is_a_note() {
    for (percent, expected) in [
        ("~40 %", (Some(40), None)),
        ("half", (None, Some("half"))),
        ("140", (None, Some("140"))),
        ("+4", (Some(4), None)),
    ] {
        let Ok(Signal::Progress {
            percent: number,
            note,
            ..
        }) = read(
            SignalKind::Progress,
            &fields(&[("percent", percent)]),
            own(),
        )
        else {
            panic!("{percent}")
        };
        assert_eq!((number, note.as_deref()), expected, "{percent}");
    }
}

#[test]
fn timestamps_are_iso_8601() {
    for good in [
        "2026-01-11",
        "2026-01-11T08:45:00-05:00",
        "2026-01-11T08:45Z",
        "2026-01-11 08:45:00.123+0200",
        "2026-01-11T08:45:00",
    ] {
        assert!(is_iso_8601(good), "{good}");
    }
    for bad in [
        "",
        "11.01.2026",
        "2026-01-11T",
        "2026-1-1",
        "2026-01-11T08:45:00 PST",
        "now",
    ] {
        assert!(!is_iso_8601(bad), "{bad}");
    }
}
