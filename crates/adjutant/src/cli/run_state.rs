//! How a run's state is shown: a glyph, a word and a colour.

use super::age;
use super::exit::Exit;
use super::style::Style;
use crate::text;
use crate::view::{AttentionView, ReportedView, RunView, Word};
use adjutant_core::attention::Need;
use adjutant_core::pool::QueueReason;
use adjutant_core::run::RunStatus;
use adjutant_core::{Cause, OutcomeKind, RequestKind, RunStateKind, StopReason};
use jiff::Timestamp;

/// A request shows the time until its deadline instead of its age from this time on, in seconds.
const DEADLINE_SHOWN_S: i64 = 60 * 60;

/// The state of a run in a few words.
#[derive(Debug)]
pub struct StateLabel {
    pub text: String,
    pub style: Style,
    /// The place in a list: runs that need the person first, then live ones, then ended ones.
    pub rank: u8,
}

/// Returns the state of a run in a few words.
pub fn label(run: &RunView, now: Timestamp) -> StateLabel {
    let build = |text: String, style, rank| StateLabel { text, style, rank };
    if let Some(oldest) = run.pending.first() {
        let left = age::seconds_since(&oldest.expires_at, now)
            .map(|since| -since)
            .filter(|left| (0..=DEADLINE_SHOWN_S).contains(left));
        let waits = match left {
            Some(left) => format!("{} left", age::left(left)),
            None => age::seconds_since(&oldest.asked_at, now)
                .map(age::short)
                .unwrap_or_default(),
        };
        let more = run.pending.len() - 1;
        let others = if more > 0 {
            format!(" +{more}")
        } else {
            String::new()
        };
        let wants = match oldest.kind.known() {
            Some(RequestKind::Approval) => "approve",
            Some(RequestKind::Delegation) => "delegate",
            _ => "asks",
        };
        let with = oldest
            .escalated
            .last()
            .map_or_else(String::new, |last| format!(" → {}", text::line(&last.to)));
        return build(
            format!("? {wants} {}{others} {waits}{with}", oldest.number)
                .trim_end()
                .to_owned(),
            Style::Attention,
            0,
        );
    }
    let because = |word: &str| {
        run.reason_without_stderr()
            .map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}"))
    };
    match (&run.state, run.outcome.as_ref().and_then(Word::known)) {
        (Word::Known(RunStateKind::Queued), _) if run.is_held() => {
            build("■ held: other run failed".to_owned(), Style::Attention, 0)
        }
        (Word::Known(RunStateKind::Queued), _) => {
            let waits = run
                .queue
                .as_ref()
                .and_then(|queue| queue.waiting_for.known())
                .and_then(queue_label);
            let text = match (waits, run.queue_place, run.queue_ahead_min) {
                (Some(waits), _, _) => format!("… {waits}"),
                (None, Some(place), _) => format!("… queued ({})", ordinal(place)),
                (None, None, Some(ahead)) => format!("… queued ({ahead}+ ahead)"),
                (None, None, None) => "… queued".to_owned(),
            };
            build(text, Style::Dim, 3)
        }
        (Word::Known(RunStateKind::Starting), _) => build("● starting".to_owned(), Style::Good, 2),
        (Word::Known(RunStateKind::Running), _) if run.retrying.is_some() => {
            let (word, since) = run.retrying.as_ref().map_or(("", ""), |retrying| {
                (retry_label(retrying.cause.known()), retrying.since.as_str())
            });
            let lasts = age::seconds_since(since, now)
                .map(age::short)
                .unwrap_or_default();
            build(
                format!("◌ {word} {lasts}").trim_end().to_owned(),
                Style::Attention,
                1,
            )
        }
        (Word::Known(RunStateKind::Running), _) if run.silent_since.is_some() => {
            let silent = run
                .silent_since
                .as_deref()
                .and_then(|since| age::seconds_since(since, now))
                .map(age::short)
                .unwrap_or_default();
            if let Some(reported) = &run.reported {
                return build(
                    format!("◌ {}, still alive {silent}", reported.line())
                        .trim_end()
                        .to_owned(),
                    Style::Attention,
                    0,
                );
            }
            build(
                format!("◌ silent {silent}").trim_end().to_owned(),
                Style::Attention,
                1,
            )
        }
        (Word::Known(RunStateKind::Running), _) if run.overdue_since.is_some() => {
            build("● overdue".to_owned(), Style::Attention, 2)
        }
        (Word::Known(RunStateKind::Running), _) if budget_label(run).is_some() => build(
            format!("● {}", budget_label(run).unwrap_or_default()),
            Style::Attention,
            2,
        ),
        (Word::Known(RunStateKind::Running), _) if run.reported.is_some() => build(
            format!(
                "● {}",
                run.reported
                    .as_ref()
                    .map(ReportedView::line)
                    .unwrap_or_default()
            ),
            Style::Good,
            2,
        ),
        (Word::Known(RunStateKind::Running), _) => {
            match run.subagents.iter().filter(|one| one.is_running()).count() {
                0 => build("● working".to_owned(), Style::Good, 2),
                number => build(
                    format!(
                        "● working, {}",
                        text::count(number as u64, "sub-agent", "sub-agents")
                    ),
                    Style::Good,
                    2,
                ),
            }
        }
        (Word::Known(RunStateKind::Stopping), _) => build("■ stopping".to_owned(), Style::Dim, 2),
        (Word::Known(RunStateKind::Stopped), _) => match &run.attention {
            Some(attention) => build(
                format!("■ stopped: {}", stop_label(&attention.why)),
                Style::Attention,
                0,
            ),
            None => build(because("■ stopped"), Style::Attention, 1),
        },
        (Word::Known(RunStateKind::Finished), Some(OutcomeKind::Succeeded))
            if !run.has_succeeded() =>
        {
            build("✗ not accepted".to_owned(), Style::Bad, 4)
        }
        (Word::Known(RunStateKind::Finished), Some(OutcomeKind::Succeeded))
            if run.status == RunStatus::PartialSuccess =>
        {
            build("✓ partly done".to_owned(), Style::Attention, 4)
        }
        (Word::Known(RunStateKind::Finished), Some(OutcomeKind::Succeeded)) => {
            build("✓ done".to_owned(), Style::Good, 4)
        }
        (Word::Known(RunStateKind::Finished), Some(OutcomeKind::Cancelled)) => {
            build("× cancelled".to_owned(), Style::Dim, 4)
        }
        (Word::Known(RunStateKind::Finished), Some(OutcomeKind::SpawnFailed)) => {
            build("✗ not started".to_owned(), Style::Bad, 4)
        }
        (Word::Known(RunStateKind::Finished), Some(OutcomeKind::Lost)) => {
            build("✗ lost".to_owned(), Style::Bad, 4)
        }
        (Word::Known(RunStateKind::Finished), _) => build(
            run.cause
                .as_ref()
                .and_then(Word::known)
                .map(cause_label)
                .map_or_else(|| because("✗ failed"), str::to_owned),
            Style::Bad,
            4,
        ),
        (Word::Unknown(other), _) => build(other.clone(), Style::Plain, 2),
    }
}

/// Describes that a run was started, or why it is queued.
pub fn start_text(run: &RunView) -> String {
    let name = text::line(&run.name);
    match run
        .queue
        .as_ref()
        .filter(|_| run.state == RunStateKind::Queued)
    {
        Some(queue) if run.is_held() => format!(
            "{name} held: {}",
            text::line(queue.why.trim_start_matches("held because "))
        ),
        Some(queue) => format!("{name} queued: {}", text::line(&queue.why)),
        None => format!("{name} started with {}", text::line(&run.agent)),
    }
}

/// Returns the command that lets a queued run start, if there is one.
pub fn queue_step(run: &RunView) -> Option<String> {
    Some(text::line(run.queue.as_ref()?.next_step.as_deref()?))
}

/// Returns the label of a queued run that waits for more than its turn.
fn queue_label(reason: QueueReason) -> Option<&'static str> {
    match reason {
        QueueReason::Turn | QueueReason::Slot | QueueReason::LiveLimit => None,
        QueueReason::PoolPaused => Some("queued: pool paused"),
        QueueReason::PoolRemoved => Some("queued: no such pool"),
        QueueReason::NoRunner => Some("queued: no runner"),
        QueueReason::After => Some("queued: after others"),
        QueueReason::AfterFailed => Some("held: other run failed"),
        QueueReason::Quota => Some("queued: usage limit"),
        QueueReason::MemoryPressure => Some("queued: for memory"),
        QueueReason::CpuPressure => Some("queued: for a CPU"),
        QueueReason::FreeMemory => Some("queued: for memory"),
        QueueReason::RunnerStorage => Some("queued: runner disk full"),
        QueueReason::Ports => Some("queued: no free ports"),
    }
}

/// Formats a place in the queue: 1st, 2nd, 3rd, 11th.
fn ordinal(place: u64) -> String {
    let suffix = match (place % 10, place % 100) {
        (1, 1) | (1, 21..) => "st",
        (2, 2) | (2, 22..) => "nd",
        (3, 3) | (3, 23..) => "rd",
        _ => "th",
    };
    format!("{place}{suffix}")
}

/// Returns the label of a known cause of failure. The run's reason has the agent's message.
fn cause_label(cause: Cause) -> &'static str {
    match cause {
        Cause::NotSignedIn => "✗ not signed in",
        Cause::ModelUnavailable => "✗ model not available",
        Cause::RateLimited => "✗ rate limited",
        Cause::Overloaded => "✗ service overloaded",
        Cause::Network => "✗ network error",
        Cause::NoCredit => "✗ no credit left",
        Cause::ContextExhausted => "✗ context full",
        Cause::TooOld => "✗ wrong version",
        Cause::SessionLost => "✗ session lost",
        Cause::NotPermitted => "✗ not permitted",
        Cause::LimitReached => "✗ agent's limit reached",
        Cause::Refused => "✗ refused by its model",
        Cause::NoWord => "✗ ended without result",
        Cause::Agent => "✗ agent error",
    }
}

/// Returns the label of a failure that is being retried.
fn retry_label(cause: Option<Cause>) -> &'static str {
    match cause {
        None | Some(Cause::Agent) => "retrying",
        Some(cause) => cause_label(cause).trim_start_matches("✗ "),
    }
}

/// Returns how much of a run's budget is used, if it is nearly used up.
fn budget_label(run: &RunView) -> Option<String> {
    let most = run
        .budgets
        .iter()
        .filter(|budget| budget.nearly_used)
        .max_by_key(|budget| budget.used_percent)?;
    Some(format!("budget {} %", most.used_percent))
}

fn stop_label(why: &Word<Need>) -> &str {
    match why.known() {
        Some(Need::Resume(StopReason::ResourceLimit)) => "time limit",
        Some(Need::Resume(StopReason::MemoryLimit)) => "memory limit",
        Some(Need::Resume(StopReason::Budget)) => "over budget",
        Some(Need::Resume(StopReason::SupervisorLost)) => "supervisor lost",
        Some(Need::Resume(StopReason::HostLost)) => "host lost",
        Some(Need::Resume(StopReason::UnreadableBlock)) => "invalid block",
        _ => why.as_str(),
    }
}

/// Describes the limit at which a run has stopped.
pub fn limit_text(run: &RunView) -> Option<String> {
    let attention = run
        .attention
        .as_ref()
        .filter(|_| run.state == RunStateKind::Stopped)?;
    match attention.why.known()? {
        Need::Resume(StopReason::ResourceLimit) => {
            let active_s = i64::try_from(run.active_ms / 1000).unwrap_or(i64::MAX);
            Some(format!("time limit ({}) used up", age::short(active_s)))
        }
        Need::Resume(StopReason::MemoryLimit) => Some("memory limit reached".to_owned()),
        Need::Resume(StopReason::Budget) => Some("budget used up".to_owned()),
        _ => None,
    }
}

/// Describes why a run needs the person. `None`: it does not.
pub fn need_text(run: &RunView) -> Option<String> {
    let undo = run.undo_interrupted.as_ref().map(|undo| {
        format!(
            "an undo of it was interrupted: {} completes it",
            undo.complete_with
        )
    });
    let needs: Vec<String> = run
        .attention
        .as_ref()
        .map(attention_text)
        .into_iter()
        .chain(undo)
        .collect();
    (!needs.is_empty()).then(|| needs.join("; "))
}

/// Describes why a run needs the person, and its requirements.
pub fn attention_text(attention: &AttentionView) -> String {
    match &attention.needs {
        Some(needs) => format!("{}; needs: {needs}", attention.details),
        None => attention.details.clone(),
    }
}

/// Returns whether the run has ended, or stays stopped or held until it is resumed or cancelled.
pub fn is_over(run: &RunView) -> bool {
    run.is_held()
        || run.state == RunStateKind::Finished
        || run.state == RunStateKind::Stopped && !run.resumes_by_itself
}

/// Returns the exit code of a command that waited for this run.
pub fn exit_of(run: &RunView) -> Exit {
    match (
        run.state.known(),
        run.outcome.as_ref().and_then(Word::known),
    ) {
        (Some(RunStateKind::Finished), Some(OutcomeKind::Succeeded)) if run.has_succeeded() => {
            Exit::Done
        }
        (Some(RunStateKind::Finished), Some(OutcomeKind::SpawnFailed)) => Exit::NotStarted,
        (Some(RunStateKind::Finished), _) => Exit::Failed,
        (Some(RunStateKind::Stopped), _) if !run.resumes_by_itself => Exit::NeedsInput,
        _ if run.is_held() => Exit::NeedsInput,
        _ if !run.pending.is_empty() => Exit::NeedsInput,
        _ => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::RequestView;

    #[test]
    fn cause_labels_fit_a_cell() {
        for cause in Cause::ALL {
            let shown = cause_label(cause);
            assert!(crate::text::width_max(shown) <= 24, "{shown}");
        }
    }

    #[test]
    fn queue_places_are_ordinals() {
        let shown: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 22, 111, 101]
            .into_iter()
            .map(ordinal)
            .collect();
        assert_eq!(
            shown,
            [
                "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "111th",
                "101st"
            ]
        );
    }

    #[test]
    fn uncounted_queue_places_fit_a_cell() {
        let run = RunView {
            state: RunStateKind::Queued.into(),
            queue_ahead_min: Some(1_000),
            ..RunView::default()
        };
        let shown = label(&run, Timestamp::UNIX_EPOCH).text;
        assert_eq!(
            (shown.as_str(), crate::text::width_max(&shown) <= 24),
            ("… queued (1000+ ahead)", true)
        );
    }

    #[test]
    fn runs_that_need_you_come_first() {
        let now = Timestamp::UNIX_EPOCH;
        let mut run = RunView {
            state: RunStateKind::Running.into(),
            ..RunView::default()
        };
        let working = label(&run, now);
        run.pending = vec![RequestView {
            number: "Q3".to_owned(),
            ..RequestView::default()
        }];
        let asking = label(&run, now);
        assert!(asking.rank < working.rank && asking.text == "? asks Q3");
        let times = |asked_at: &str, expires_at: &str| RequestView {
            number: "Q3".to_owned(),
            asked_at: asked_at.to_owned(),
            expires_at: expires_at.to_owned(),
            ..RequestView::default()
        };
        run.pending = vec![times("1969-12-31T23:57:00Z", "1970-01-01T00:00:16Z")];
        assert_eq!(label(&run, now).text, "? asks Q3 16s left");
        run.pending = vec![times("1969-12-31T23:57:00Z", "1970-01-01T20:00:00Z")];
        assert_eq!(label(&run, now).text, "? asks Q3 3m");
    }
}
