//! The verdicts of an agent test, computed from its observations. Pure.

use super::script::Kind;
use crate::view::{CanView, UsageView};
use adjutant_core::OutcomeKind;
use adjutant_core::signal::Source;
use serde::Serialize;

/// The observations of the work run.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkRun {
    pub run: String,
    /// The source of its progress report: `tool` or `block`.
    pub progress_by: Option<Source>,
    pub asked: bool,
    /// The first or the second word is in its result.
    pub first_word: bool,
    pub second_word: bool,
    pub stopped: bool,
    /// The vendor's session before and after the stop.
    pub sessions: (Option<String>, Option<String>),
    /// Approval requests; nothing in the task needs one.
    pub approvals: u32,
    pub outcome: Option<OutcomeKind>,
    pub reason: Option<String>,
    pub reported: bool,
    pub usage: Option<UsageView>,
    /// The step that did not happen in time.
    pub timed_out_waiting_to: Option<&'static str>,
}

/// The observations of the cancelled run.
#[derive(Debug, Clone, Default)]
pub(crate) struct CancelRun {
    pub run: String,
    pub asked: bool,
    /// Approval requests for the given command, and others.
    pub approvals: u32,
    pub other_approvals: u32,
    /// A process of its own was running when it was cancelled.
    pub had_child: bool,
    /// The given command has run.
    pub ran_command: bool,
    /// Its profile need not permit commands.
    pub may_run_nothing: bool,
    pub outcome: Option<OutcomeKind>,
    pub reason: Option<String>,
    /// Processes that were left afterwards.
    pub left: Vec<String>,
    pub timed_out_waiting_to: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Pass,
    Fail,
    NotApplicable,
}

/// One check and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub check: &'static str,
    pub verdict: Verdict,
    pub reason: String,
}

fn check(check: &'static str, verdict: Verdict, reason: impl Into<String>) -> Check {
    Check {
        check,
        verdict,
        reason: reason.into(),
    }
}

fn passes(
    name: &'static str,
    is_so: bool,
    good: impl Into<String>,
    bad: impl Into<String>,
) -> Check {
    if is_so {
        check(name, Verdict::Pass, good)
    } else {
        check(name, Verdict::Fail, bad)
    }
}

/// Judges the observations. `cancelled` is `None` if that run was not started.
pub(crate) fn judge(
    kind: Kind,
    can: Option<CanView>,
    worked: &WorkRun,
    cancelled: Option<&CancelRun>,
) -> Vec<Check> {
    let Some(cancelled) = cancelled else {
        return judge_work(kind, can, worked);
    };
    let mut checks = judge_work(kind, can, worked);
    checks.push(command(kind, cancelled));
    checks.push(approvals(can, worked, cancelled));
    checks.push(cancel(cancelled));
    checks
}

/// Describes why a run did not get further.
fn stuck_reason(
    outcome: Option<OutcomeKind>,
    reason: Option<&str>,
    timed_out_waiting_to: Option<&str>,
) -> String {
    match (timed_out_waiting_to, outcome, reason) {
        (Some(what), _, _) => format!("it did not {what} in time"),
        (None, Some(outcome), Some(reason)) => format!("its run {}: {reason}", outcome.word()),
        (None, Some(outcome), None) => format!("its run {} before that", outcome.word()),
        (None, None, _) => "the run did not follow the test".to_owned(),
    }
}

fn judge_work(kind: Kind, can: Option<CanView>, worked: &WorkRun) -> Vec<Check> {
    let why = stuck_reason(
        worked.outcome,
        worked.reason.as_deref(),
        worked.timed_out_waiting_to,
    );
    let mut checks = vec![our_tools(kind, worked, &why)];
    if kind == Kind::Blocks {
        checks.push(passes(
            "blocks",
            worked.progress_by.is_some(),
            "reported progress in a block",
            format!("no progress block: {why}"),
        ));
    }
    checks.push(question(worked, &why));
    checks.push(resume(kind, can, worked, &why));
    checks.push(passes(
        "report",
        has_succeeded(worked) && worked.reported,
        "ended with a success report",
        format!("no success report: {why}"),
    ));
    checks.push(usage(can, worked));
    checks
}

fn has_succeeded(worked: &WorkRun) -> bool {
    worked.outcome == Some(OutcomeKind::Succeeded)
}

fn our_tools(kind: Kind, worked: &WorkRun, why: &str) -> Check {
    match kind {
        Kind::Blocks => check(
            "our tools",
            Verdict::NotApplicable,
            "not available to it; it uses blocks in its output",
        ),
        Kind::Tools | Kind::Echo => passes(
            "our tools",
            worked.progress_by == Some(Source::Tool),
            "reported progress with a tool",
            format!("no progress reported with a tool: {why}"),
        ),
    }
}

fn question(worked: &WorkRun, why: &str) -> Check {
    let name = "question";
    match (worked.asked, worked.first_word) {
        (true, true) => check(name, Verdict::Pass, "asked and used the answer"),
        (true, false) => check(
            name,
            Verdict::Fail,
            format!("asked, but the answer is not in its result: {why}"),
        ),
        (false, _) => check(name, Verdict::Fail, format!("did not ask: {why}")),
    }
}

/// Judges whether the run stopped when asked to, and then used the resolution.
fn resume(kind: Kind, can: Option<CanView>, worked: &WorkRun, why: &str) -> Check {
    let name = "resume";
    match (worked.stopped, worked.second_word) {
        (false, _) if !worked.asked => check(name, Verdict::NotApplicable, "not reached"),
        (false, _) => check(
            name,
            Verdict::Fail,
            format!("did not stop when asked to: {why}"),
        ),
        (true, false) => check(
            name,
            Verdict::Fail,
            format!("stopped, but the resolution is not in its result: {why}"),
        ),
        (true, true) => check(name, Verdict::Pass, how_resumed(kind, can, worked)),
    }
}

fn how_resumed(kind: Kind, can: Option<CanView>, worked: &WorkRun) -> String {
    let is_own = worked.sessions.0.is_some() && worked.sessions.0 == worked.sessions.1;
    let how = if is_own {
        "in its own session"
    } else {
        "in a new session with its checkpoint"
    };
    let is_less = can.is_some_and(|can| can.resume) && !is_own && kind != Kind::Echo;
    if is_less {
        format!("resumed, but not in its own session: {how}")
    } else {
        format!("stopped and resumed {how}")
    }
}

fn usage(can: Option<CanView>, worked: &WorkRun) -> Check {
    let name = "usage";
    match (can.map(|can| can.usage), worked.usage) {
        (_, Some(usage)) if usage.input_tokens + usage.output_tokens > 0 => {
            check(name, Verdict::Pass, usage.to_string())
        }
        (Some(true), _) if has_succeeded(worked) => {
            check(name, Verdict::Fail, "no tokens reported")
        }
        (Some(true), _) => check(name, Verdict::NotApplicable, "not reached"),
        (_, _) => check(name, Verdict::NotApplicable, "does not report usage"),
    }
}

/// Judges whether the given command has run. An agent without a shell tool is no agent for code,
/// but one that only prints text may have none.
fn command(kind: Kind, cancelled: &CancelRun) -> Check {
    let name = "command";
    if cancelled.ran_command {
        return check(name, Verdict::Pass, "ran the command");
    }
    let why = match (cancelled.approvals, cancelled.other_approvals) {
        (0, 0) => "neither a process nor output of it was found",
        (0, _) => "it asked for approval of something else, which was denied",
        (_, _) => "it was approved, but neither a process nor output of it was found",
    };
    match kind {
        Kind::Blocks => check(
            name,
            Verdict::NotApplicable,
            "ran no command; it may have no tool for that",
        ),
        Kind::Tools if cancelled.may_run_nothing => check(
            name,
            Verdict::NotApplicable,
            "ran no command, with profile read",
        ),
        Kind::Tools | Kind::Echo => check(
            name,
            Verdict::Fail,
            format!("did not run the command: {why}"),
        ),
    }
}

fn approvals(can: Option<CanView>, worked: &WorkRun, cancelled: &CancelRun) -> Check {
    let unasked = worked.approvals + cancelled.other_approvals;
    match can.map(|can| can.approvals) {
        _ if cancelled.approvals > 0 => check(
            "approvals",
            Verdict::Pass,
            "asked for approval of a command and ran it when approved",
        ),
        Some(false) => check(
            "approvals",
            Verdict::NotApplicable,
            "cannot ask for approval",
        ),
        _ if unasked > 0 => check(
            "approvals",
            Verdict::NotApplicable,
            "asked for approval of something else, which was denied",
        ),
        _ if cancelled.ran_command => check(
            "approvals",
            Verdict::NotApplicable,
            "not exercised: the command ran without approval",
        ),
        _ => check(
            "approvals",
            Verdict::NotApplicable,
            "not exercised: nothing needed approval",
        ),
    }
}

fn cancel(cancelled: &CancelRun) -> Check {
    let why = stuck_reason(
        cancelled.outcome,
        cancelled.reason.as_deref(),
        cancelled.timed_out_waiting_to,
    );
    let name = "cancel";
    if !cancelled.left.is_empty() {
        return check(
            name,
            Verdict::Fail,
            format!("left behind: {}", cancelled.left.join(", ")),
        );
    }
    match (cancelled.asked, cancelled.outcome, cancelled.had_child) {
        (true, Some(OutcomeKind::Cancelled), true) => check(
            name,
            Verdict::Pass,
            "ended, with the process that it had started in its own session",
        ),
        (true, Some(OutcomeKind::Cancelled), false) => check(
            name,
            Verdict::Pass,
            "ended with nothing left; not checked with a child process: none was running",
        ),
        (true, _, _) => check(name, Verdict::Fail, format!("was not ended: {why}")),
        (false, _, _) => check(name, Verdict::Fail, format!("not reached: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CanView = CanView {
        tools: true,
        resume: true,
        live: true,
        approvals: true,
        usage: true,
    };

    fn good() -> (WorkRun, CancelRun) {
        let worked = WorkRun {
            progress_by: Some(Source::Tool),
            asked: true,
            first_word: true,
            second_word: true,
            stopped: true,
            sessions: (Some("s".to_owned()), Some("s".to_owned())),
            outcome: Some(OutcomeKind::Succeeded),
            reported: true,
            usage: Some(UsageView {
                input_tokens: 1,
                ..UsageView::default()
            }),
            ..WorkRun::default()
        };
        let cancelled = CancelRun {
            asked: true,
            approvals: 1,
            had_child: true,
            ran_command: true,
            outcome: Some(OutcomeKind::Cancelled),
            ..CancelRun::default()
        };
        (worked, cancelled)
    }

    fn failed(kind: Kind, worked: &WorkRun, cancelled: Option<&CancelRun>) -> Vec<&'static str> {
        judge(kind, Some(ALL), worked, cancelled)
            .into_iter()
            .filter(|check| check.verdict == Verdict::Fail)
            .map(|check| check.check)
            .collect()
    }

    #[test]
    fn complete_agent_passes() {
        let (worked, cancelled) = good();
        let checks = judge(Kind::Tools, Some(ALL), &worked, Some(&cancelled));
        assert!(
            checks.iter().all(|check| check.verdict == Verdict::Pass),
            "{checks:?}"
        );
        assert!(
            checks
                .iter()
                .any(|check| check.reason.contains("own session")),
            "{checks:?}"
        );
    }

    #[test]
    fn each_missing_observation_fails_its_check() {
        let (worked, cancelled) = good();
        let work = |change: fn(&mut WorkRun)| {
            let mut worked = worked.clone();
            change(&mut worked);
            failed(Kind::Tools, &worked, Some(&cancelled))
        };
        assert_eq!(work(|w| w.progress_by = Some(Source::Block)), ["our tools"]);
        assert_eq!(work(|w| w.first_word = false), ["question"]);
        assert_eq!(work(|w| w.second_word = false), ["resume"]);
        assert_eq!(work(|w| w.stopped = false), ["resume"]);
        assert_eq!(work(|w| w.reported = false), ["report"]);
        assert_eq!(work(|w| w.usage = None), ["usage"]);
        let cancel = |change: fn(&mut CancelRun)| {
            let mut cancelled = cancelled.clone();
            change(&mut cancelled);
            failed(Kind::Tools, &worked, Some(&cancelled))
        };
        assert_eq!(
            cancel(|c| c.left = vec!["sleep 3600".to_owned()]),
            ["cancel"]
        );
        assert_eq!(
            cancel(|c| c.outcome = Some(OutcomeKind::Failed)),
            ["cancel"]
        );
        assert_eq!(cancel(|c| c.asked = false), ["cancel"]);
        assert_eq!(cancel(|c| c.ran_command = false), ["command"]);
    }

    #[test]
    fn new_session_is_named_where_its_own_was_promised() {
        let (worked, _) = good();
        let new = WorkRun {
            sessions: (Some("s".to_owned()), Some("t".to_owned())),
            ..worked
        };
        let reason = |kind, can| {
            let check = resume(kind, can, &new, "");
            assert_eq!(check.verdict, Verdict::Pass);
            check.reason
        };
        let cannot = CanView {
            resume: false,
            ..ALL
        };
        assert!(reason(Kind::Tools, Some(ALL)).starts_with("resumed, but not in its own"));
        for (kind, can) in [
            (Kind::Echo, Some(ALL)),
            (Kind::Tools, Some(cannot)),
            (Kind::Tools, None),
        ] {
            assert_eq!(
                reason(kind, can),
                "stopped and resumed in a new session with its checkpoint"
            );
        }
    }

    #[test]
    fn command_that_did_not_run_is_no_pass() {
        let (worked, good) = good();
        // Without approval and child, like Codex in its sandbox.
        let quiet = CancelRun {
            approvals: 0,
            had_child: false,
            ..good
        };
        let of = |kind, cancelled: &CancelRun| {
            let checks = judge(kind, Some(ALL), &worked, Some(cancelled));
            let found = checks
                .into_iter()
                .find(|check| check.check == "command")
                .expect("it is judged");
            (found.verdict, found.reason)
        };
        assert_eq!(of(Kind::Tools, &quiet).0, Verdict::Pass);
        let broken = CancelRun {
            ran_command: false,
            ..quiet
        };
        assert_eq!(of(Kind::Tools, &broken).0, Verdict::Fail);
        let denied = CancelRun {
            other_approvals: 1,
            ..broken.clone()
        };
        assert!(of(Kind::Tools, &denied).1.contains("something else"));
        let approved = CancelRun {
            approvals: 1,
            ..broken.clone()
        };
        assert!(of(Kind::Tools, &approved).1.contains("it was approved"));
        assert_eq!(
            of(
                Kind::Tools,
                &CancelRun {
                    may_run_nothing: true,
                    ..broken.clone()
                }
            )
            .0,
            Verdict::NotApplicable
        );
        assert_eq!(of(Kind::Blocks, &broken).0, Verdict::NotApplicable);
        assert_eq!(of(Kind::Echo, &broken).0, Verdict::Fail);
    }

    #[test]
    fn missing_abilities_are_not_applicable() {
        let (worked, cancelled) = good();
        let cannot = CanView {
            approvals: false,
            usage: false,
            ..ALL
        };
        let seen = CancelRun {
            approvals: 0,
            ..cancelled
        };
        let checks = judge(
            Kind::Blocks,
            Some(cannot),
            &WorkRun {
                usage: None,
                ..worked
            },
            Some(&seen),
        );
        let skipped: Vec<_> = checks
            .iter()
            .filter(|check| check.verdict == Verdict::NotApplicable)
            .map(|check| check.check)
            .collect();
        assert_eq!(skipped, ["our tools", "usage", "approvals"]);
        let dead = WorkRun {
            outcome: Some(OutcomeKind::Failed),
            reason: Some("the agent is not signed in".to_owned()),
            ..WorkRun::default()
        };
        let checks = judge(Kind::Tools, Some(ALL), &dead, None);
        assert!(checks[0].reason.contains("not signed in"), "{checks:?}");
        assert_eq!(
            failed(Kind::Tools, &dead, None),
            ["our tools", "question", "report"]
        );
    }
}
