//! The result of a wait.

use super::next_step::{WAIT_AGAIN, reply_hint, resume_hint};
use crate::mcp::cursor::{Cursor, RESET};
use crate::mcp::show::{self, RESULT_CHARS, Shown};
use crate::mcp::text::line;
use crate::present::tree_line;
use crate::view::{RequestView, RunView, WaitOutcome, Waited};
use adjutant_core::RunStateKind;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum number of items of each kind that the result of a wait shows in detail.
pub(in crate::mcp) const WAITED_MAX: usize = 7;

/// Maximum number of trees of several runs for which a wait reports statistics.
const TREES_MAX: usize = 3;

/// Shows the result of a wait that began at a cursor: the first few items in detail, the others by
/// name.
#[must_use]
pub(in crate::mcp) fn waited(waited: &Waited, from: Option<Cursor>) -> Shown {
    let Waited {
        outcome,
        needs,
        stopped,
        stopped_more,
        ended,
        ended_more,
        failed: _,
        working: underway,
        cursor,
        reset,
    } = waited;
    let working = without_questions(underway, needs);
    let cursor = Cursor::after(from, *cursor, *outcome == WaitOutcome::Timeout).to_string();
    let mut shown = Shown::new(json!({"outcome": outcome}));
    let all = [
        ("needs", briefs(needs, show::request_brief)),
        ("stopped", briefs(stopped, run_brief)),
        ("ended", briefs(ended, run_brief)),
        ("working", briefs(&working, run_brief)),
    ];
    for (name, items) in all {
        if !items.is_empty() {
            shown = shown.with(name, items);
        }
    }
    shown = shown.with("cursor", cursor.as_str());
    if *reset {
        shown = shown.with("reset", true).line(RESET);
    }
    shown = add_needs(shown, needs);
    shown = add_stopped(shown, stopped, *stopped_more);
    shown = add_ended(shown, ended, *ended_more);
    shown = add_working(shown, &working);
    let next = NextStep::after(waited, first(&working));
    shown
        .lines(next.line())
        .next(next.hint(needs, &format!("{WAIT_AGAIN} cursor={cursor}")))
}

/// Returns the runs that work. Those that wait for an answer are shown with the request.
fn without_questions(underway: &[RunView], needs: &[RequestView]) -> Vec<RunView> {
    let asks = |run: &RunView| {
        needs
            .iter()
            .any(|request| request.blocking && request.run_id == run.identity.run_id)
    };
    underway.iter().filter(|run| !asks(run)).cloned().collect()
}

/// Returns the first few items as structured content.
fn briefs<T>(all: &[T], brief: impl Fn(&T) -> Value) -> Vec<Value> {
    first(all).iter().map(brief).collect()
}

fn run_brief(run: &RunView) -> Value {
    show::run_brief(run, RESULT_CHARS)
}

fn add_needs(shown: Shown, needs: &[RequestView]) -> Shown {
    let numbers: Vec<String> = needs
        .iter()
        .skip(WAITED_MAX)
        .map(|request| request.number.clone())
        .collect();
    add_names(
        shown.lines(first(needs).iter().map(show::request_line)),
        "needs_more",
        "more questions",
        numbers,
    )
}

/// `more`: the number of stopped runs that the hub has not listed.
fn add_stopped(shown: Shown, stopped: &[RunView], more: u64) -> Shown {
    let shown = add_names(
        shown.lines(first(stopped).iter().filter_map(show::attention_line)),
        "stopped_more",
        "more are stopped",
        names(stopped),
    );
    shown.lines(
        (more > 0)
            .then(|| format!("… and {more} others are stopped: get_pending_questions lists them")),
    )
}

/// `more`: the number of ended runs that the hub has not listed.
fn add_ended(shown: Shown, ended: &[RunView], more: u64) -> Shown {
    let lines = first(ended).iter().map(|run| {
        format!(
            "{}{}{}",
            show::run_line(run),
            took(run),
            show::outcome_of(run, RESULT_CHARS)
        )
    });
    let shown = add_names(
        shown.lines(lines),
        "ended_more",
        "more have ended",
        names(ended),
    );
    shown.lines(trees(ended)).lines(
        (more > 0)
            .then(|| format!("… and {more} others have ended: check_subagent_status lists them")),
    )
}

fn add_working(shown: Shown, working: &[RunView]) -> Shown {
    let shown = shown.lines((!working.is_empty()).then(|| {
        let some: Vec<String> = first(working).iter().map(show::run_line).collect();
        format!("{} still working: {}", working.len(), some.join("; "))
    }));
    add_names(shown, "working_more", "more are working", names(working))
}

/// What a caller does after a wait.
#[derive(Debug, Clone, Copy)]
enum NextStep<'a> {
    Reply,
    Resume(&'a RunView),
    StartRun,
    WaitAgain,
    /// Something about runs that work, in these words.
    Steer(&'static str),
    /// No run works any more. `rest`: a run that is stopped.
    CheckResults {
        rest: Option<&'a RunView>,
    },
    CheckEnded,
}

impl<'a> NextStep<'a> {
    /// Chooses the step after a wait. `working`: the runs that are shown as working.
    fn after(waited: &'a Waited, working: &[RunView]) -> Self {
        let Waited {
            needs,
            stopped,
            ended,
            working: underway,
            ..
        } = waited;
        let is_new = |run: &&RunView| {
            run.condition
                .attention
                .as_ref()
                .is_some_and(|attention| attention.is_new)
        };
        // New events take precedence over a stop that the client already knows.
        let to_resume = stopped.iter().find(is_new).or(stopped
            .first()
            .filter(|_| ended.is_empty() && underway.is_empty()));
        let paused = first(ended)
            .iter()
            .find(|run| run.condition.state == RunStateKind::Stopped);
        if !needs.is_empty() {
            return Self::Reply;
        }
        if let Some(run) = to_resume.or(paused) {
            return Self::Resume(run);
        }
        match waited.outcome.known() {
            Some(WaitOutcome::Idle) if ended.is_empty() => return Self::StartRun,
            Some(WaitOutcome::Timeout) => return Self::WaitAgain,
            _ => {}
        }
        match steering(working).filter(|_| ended.is_empty()) {
            Some(words) => Self::Steer(words),
            None if underway.is_empty() => Self::CheckResults {
                rest: stopped.first(),
            },
            None => Self::CheckEnded,
        }
    }

    /// Returns what the caller learns besides the items.
    fn line(self) -> Option<String> {
        match self {
            Self::StartRun => Some("there is no live run to wait for".to_owned()),
            Self::WaitAgain => Some("nothing to report yet".to_owned()),
            _ => None,
        }
    }

    /// Returns the step in words. `again` is the call that waits on.
    fn hint(self, needs: &[RequestView], again: &str) -> String {
        match self {
            Self::Reply => format!("{}, then {again}", reply_hint(needs)),
            Self::Resume(run) => format!("{}; then {again}", resume_hint(run)),
            Self::StartRun => {
                "run_subagent starts a run; check_subagent_status lists earlier ones".to_owned()
            }
            Self::WaitAgain => again.to_owned(),
            Self::Steer(words) => format!("{words} {again}"),
            Self::CheckResults { rest } => {
                let rest =
                    rest.map_or_else(|| "nothing is left to wait for".to_owned(), resume_hint);
                format!("check the results (check_subagent_status, get_subagent_logs); {rest}")
            }
            Self::CheckEnded => format!("check what ended; for the others {again}"),
        }
    }
}

/// Returns what to do about the most urgent problem of runs that work, before the call that waits
/// on.
fn steering(working: &[RunView]) -> Option<&'static str> {
    type Has = fn(&RunView) -> bool;
    let problems: [(Has, &str); 8] = [
        (
            |run| run.condition.retrying.is_some(),
            "its model fails: wait on, or cancel the run (steer_subagent) and use another agent;",
        ),
        (
            |run| !run.changes.overlaps.is_empty(),
            "have one of the runs that announced the same change something else (steer_subagent), unless they agree;",
        ),
        (
            |run| !run.changes.conflicts.is_empty(),
            "have one of the runs in conflict change something else (steer_subagent), or merge in that order;",
        ),
        (
            |run| {
                run.processes
                    .fence
                    .as_ref()
                    .is_some_and(|fence| fence.denied_writes.is_some())
            },
            "tell the run to keep to its workspace (steer_subagent), or cancel it and have the user allow the directory;",
        ),
        (
            |run| run.condition.reported.is_some() && run.condition.silent_since.is_some(),
            "it has reported, but lives on: use its report (check_subagent_status), wait, or cancel it (steer_subagent);",
        ),
        (
            |run| run.condition.silent_since.is_some(),
            "check whether it hangs (get_subagent_logs); steer_subagent sends it a message or cancels it;",
        ),
        (
            |run| run.condition.overdue_since.is_some(),
            "check the progress of the overdue run (check_subagent_status, get_subagent_logs);",
        ),
        (
            |run| run.condition.reported.is_some(),
            "check_subagent_status shows its report; to wait for its end:",
        ),
    ];
    problems
        .into_iter()
        .find(|(has, _)| working.iter().any(has))
        .map(|(_, words)| words)
}

/// Shows the result of a wait for one run, with the fields that `run_subagent` promises too: a Task
/// may be the reply to either tool.
#[must_use]
pub(in crate::mcp) fn waited_for_one(found: &Waited, given: &str) -> Shown {
    let mut runs = found
        .ended
        .iter()
        .chain(&found.stopped)
        .chain(&found.working);
    let run = runs.find(|run| run.identity.run_id == given || run.identity.name == given);
    let request = found
        .needs
        .iter()
        .find(|request| request.run_id == given || request.run_name == given);
    let (run_id, name, status) = match (run, request) {
        (Some(run), _) => (
            &run.identity.run_id,
            &run.identity.name,
            run.condition.status.as_str(),
        ),
        (None, Some(request)) => (&request.run_id, &request.run_name, "waiting"),
        (None, None) => return waited(found, None),
    };
    waited(found, None)
        .with("run_id", line(run_id, 60))
        .with("name", line(name, 60))
        .with("status", line(status, 40))
}

/// Formats what a run without children took.
fn took(run: &RunView) -> String {
    run.cost
        .tree
        .as_ref()
        .filter(|tree| tree.runs == 1)
        .map(|tree| format!(", {}", tree_line(tree)))
        .unwrap_or_default()
}

/// Formats what each tree of several runs took whose last run has ended.
fn trees(ended: &[RunView]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let of_several = ended.iter().filter_map(|run| {
        run.cost
            .tree
            .as_ref()
            .filter(|tree| tree.runs > 1)
            .map(|tree| (run, tree))
    });
    let name = |run: &RunView| {
        if run.identity.run_id == run.identity.root {
            line(&run.identity.name, 60)
        } else {
            format!("the tree of {}", line(&run.identity.name, 60))
        }
    };
    let lines = of_several
        .filter(|(run, _)| seen.insert(run.identity.root.clone()))
        .map(|(run, tree)| format!("{}: {}", name(run), tree_line(tree)));
    lines.take(TREES_MAX).collect()
}

fn first<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(WAITED_MAX)]
}

/// Returns the names of runs that are not shown in detail.
fn names(runs: &[RunView]) -> Vec<String> {
    runs.iter()
        .skip(WAITED_MAX)
        .map(|run| run.identity.name.clone())
        .collect()
}

/// Adds the names of items that are not shown in detail.
fn add_names(shown: Shown, field: &str, what: &str, names: Vec<String>) -> Shown {
    if names.is_empty() {
        return shown;
    }
    let more = format!(
        "… {} {what}: {}",
        names.len(),
        line(&names.join(", "), 2_000)
    );
    shown.line(more).with(field, names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{
        AttentionKind, AttentionView, ReportedView, RequestContentView, RunConditionView,
        RunIdentityView, RunResultView,
    };
    use adjutant_core::StopReason;
    use adjutant_core::attention::Need;

    #[test]
    fn wait_for_many_runs_shows_few_and_names_all() {
        let run = |n: usize| RunView {
            identity: RunIdentityView {
                name: format!("run-{n}"),
                agent: "echo".into(),
                ..RunIdentityView::default()
            },
            results: RunResultView {
                result: Some("r".repeat(9_000)),
                ..RunResultView::default()
            },
            ..RunView::default()
        };
        let request = |n: usize| RequestView {
            content: RequestContentView {
                question: "q".repeat(5_000),
                ..RequestContentView::default()
            },
            number: format!("Q{n}"),
            ..RequestView::default()
        };
        let many = Waited {
            outcome: WaitOutcome::Event.into(),
            needs: (0..40).map(request).collect(),
            ended: (0..40).map(run).collect(),
            working: (0..40).map(run).collect(),
            cursor: 9,
            ..Waited::default()
        };
        let result = waited(&many, None).into_result();
        let text = result.content[0].as_text().expect("text").text.clone();
        assert!(
            text.lines().count() <= 25 && text.ends_with("then wait_for_subagents cursor=9"),
            "{text}"
        );
        let data = result.structured_content.expect("data");
        for n in 0..40 {
            let name = format!("run-{n}");
            assert!(
                text.contains(&name)
                    && data.to_string().contains(&name)
                    && text.contains(&format!("Q{n}")),
                "{name}"
            );
        }
        assert!(
            data.to_string().len() < 48 * 1024,
            "{} bytes",
            data.to_string().len()
        );
        assert_eq!(data["ended_more"].as_array().map(Vec::len), Some(33));
    }

    #[test]
    fn stopped_run_is_shown_with_how_to_resume() {
        let attention = AttentionView {
            kind: AttentionKind::Stopped.into(),
            why: Need::Resume(StopReason::Blocker).into(),
            details: "node_modules is missing".into(),
            needs: Some("npm install".into()),
            is_new: true,
        };
        let run = RunView {
            identity: RunIdentityView {
                name: "otter".into(),
                ..RunIdentityView::default()
            },
            condition: RunConditionView {
                state: RunStateKind::Stopped.into(),
                attention: Some(attention),
                ..RunConditionView::default()
            },
            results: RunResultView {
                result: Some("[/STOP_WORK]".into()),
                ..RunResultView::default()
            },
            ..RunView::default()
        };
        let known_stop = RunView {
            condition: RunConditionView {
                attention: run.condition.attention.clone().map(|known| AttentionView {
                    is_new: false,
                    ..known
                }),
                ..run.clone().condition
            },
            ..run.clone()
        };
        let stopped = Waited {
            outcome: WaitOutcome::Event.into(),
            stopped: vec![run],
            cursor: 5,
            ..Waited::default()
        };
        let text = waited(&stopped, None).into_result().content[0]
            .as_text()
            .expect("text")
            .text
            .clone();
        assert!(
            text.contains("action=resume run_id=otter") && text.ends_with("cursor=5"),
            "{text}"
        );
        assert!(
            text.contains("node_modules is missing")
                && text.contains("npm install")
                && !text.contains("STOP_WORK"),
            "{text}"
        );
        // Beside a new end, the known stop is not forgotten.
        let ended = RunView {
            identity: RunIdentityView {
                name: "badger".into(),
                ..RunIdentityView::default()
            },
            condition: RunConditionView {
                state: RunStateKind::Finished.into(),
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        let both = Waited {
            outcome: WaitOutcome::Event.into(),
            stopped: vec![known_stop],
            ended: vec![ended],
            ..Waited::default()
        };
        let text = waited(&both, None).into_result().content[0]
            .as_text()
            .expect("text")
            .text
            .clone();
        assert!(
            text.contains("next: check the results") && text.contains("action=resume run_id=otter"),
            "{text}"
        );
    }

    #[test]
    fn wait_without_runs_is_reported() {
        let idle = Waited {
            outcome: WaitOutcome::Idle.into(),
            ..Waited::default()
        };
        let text = waited(&idle, None).into_result().content[0]
            .as_text()
            .expect("text")
            .text
            .clone();
        assert!(
            text.contains("no live run") && text.contains("next: run_subagent"),
            "{text}"
        );
    }

    #[test]
    fn most_urgent_problem_of_a_working_run_is_named_first() {
        let at = Some("2026-11-01T00:00:00Z".to_owned());
        let silent = RunView {
            condition: RunConditionView {
                silent_since: at.clone(),
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        let reported = RunView {
            condition: RunConditionView {
                reported: Some(ReportedView::default()),
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        let overdue = RunView {
            condition: RunConditionView {
                overdue_since: at.clone(),
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        let silent_after_report = RunView {
            condition: RunConditionView {
                silent_since: at.clone(),
                ..reported.clone().condition
            },
            ..reported.clone()
        };
        let words = |working: &[&RunView]| {
            let working: Vec<RunView> = working.iter().map(|run| (*run).clone()).collect();
            steering(&working).unwrap_or_default()
        };
        assert_eq!(words(&[&RunView::default()]), "");
        assert!(words(&[&reported]).starts_with("check_subagent_status shows its report"));
        assert!(words(&[&reported, &overdue]).contains("overdue"));
        assert!(words(&[&reported, &overdue, &silent]).contains("whether it hangs"));
        assert!(words(&[&silent, &silent_after_report]).contains("lives on"));
    }

    #[test]
    fn question_precedes_a_stop_and_a_new_stop_an_end() {
        let stopped_run = |is_new| RunView {
            identity: RunIdentityView {
                name: "otter".into(),
                ..RunIdentityView::default()
            },
            condition: RunConditionView {
                attention: Some(AttentionView {
                    kind: AttentionKind::Stopped.into(),
                    why: Need::Resume(StopReason::Blocker).into(),
                    details: String::new(),
                    needs: None,
                    is_new,
                }),
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        let run = |name: &str| RunView {
            identity: RunIdentityView {
                name: name.into(),
                ..RunIdentityView::default()
            },
            ..RunView::default()
        };
        let event = |stopped: RunView, ended: Vec<RunView>, working: Vec<RunView>| Waited {
            outcome: WaitOutcome::Event.into(),
            stopped: vec![stopped],
            ended,
            working,
            ..Waited::default()
        };
        let next = |waited: &Waited| {
            let working = waited.working.clone();
            format!("{:?}", NextStep::after(waited, &working))
        };
        let begins = |waited: &Waited, word: &str| next(waited).starts_with(word);
        let with_end = event(stopped_run(true), vec![run("badger")], Vec::new());
        assert!(begins(&with_end, "Resume"));
        let question = Waited {
            needs: vec![RequestView::default()],
            ..with_end
        };
        assert!(begins(&question, "Reply"));
        // A stop that the caller knows waits for what is new.
        let known = event(stopped_run(false), vec![run("badger")], Vec::new());
        assert!(begins(&known, "CheckResults { rest: Some"));
        assert!(begins(
            &event(stopped_run(false), Vec::new(), Vec::new()),
            "Resume"
        ));
        assert!(begins(
            &event(stopped_run(false), vec![run("badger")], vec![run("vole")]),
            "CheckEnded"
        ));
    }
}
