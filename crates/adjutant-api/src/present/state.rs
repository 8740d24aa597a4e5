//! The state of a run in words.

use crate::text;
use crate::view::{AttentionView, ReportedView, RequestView, RunView, Word};
use adjutant_core::attention::Need;
use adjutant_core::pool::QueueReason;
use adjutant_core::run::RunStatus;
use adjutant_core::units::duration;
use adjutant_core::{Cause, OutcomeKind, RunStateKind, StopReason};
use std::time::Duration;

/// A request shows the time until its deadline instead of its age from this time on, in seconds.
const DEADLINE_SHOWN_S: i64 = 60 * 60;

/// How a state is to be seen. There is always a sign or a word too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Dim,
    Good,
    Bad,
    Attention,
}

/// The place of a run in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    NeedsYou,
    Troubled,
    Live,
    Queued,
    Ended,
}

/// The state of a run in a few words.
#[derive(Debug, Clone)]
pub struct StateLabel {
    pub sign: &'static str,
    pub words: String,
    pub tone: Tone,
    pub place: Place,
}

impl StateLabel {
    /// Returns the sign and the words.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} {}", self.sign, self.words)
            .trim_start()
            .to_owned()
    }
}

fn label(sign: &'static str, words: impl Into<String>, tone: Tone, place: Place) -> StateLabel {
    let words = words.into().trim_end().to_owned();
    StateLabel {
        sign,
        words,
        tone,
        place,
    }
}

/// Returns the state of a run in a few words. `since`: returns the seconds since a time, if it is
/// to be shown.
#[must_use]
pub fn state_label(run: &RunView, since: &dyn Fn(&str) -> Option<i64>) -> StateLabel {
    if let Some(oldest) = run.requests.pending.first() {
        let words = request_words(oldest, run.requests.pending.len() - 1, since);
        return label("?", words, Tone::Attention, Place::NeedsYou);
    }
    let because = |word: &str| {
        run.reason_without_stderr()
            .map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}"))
    };
    match run.condition.state.known() {
        Some(RunStateKind::Queued) if run.is_held() => {
            label("■", HELD, Tone::Attention, Place::NeedsYou)
        }
        Some(RunStateKind::Queued) => label("…", queue_words(run), Tone::Dim, Place::Queued),
        Some(RunStateKind::Starting) => label("●", "starting", Tone::Good, Place::Live),
        Some(RunStateKind::Running) => running(run, since),
        Some(RunStateKind::Stopping) => label("■", "stopping", Tone::Dim, Place::Live),
        Some(RunStateKind::Stopped) => match &run.condition.attention {
            Some(AttentionView { why, .. }) => {
                let words = format!("stopped: {}", stop_label(why));
                label("■", words, Tone::Attention, Place::NeedsYou)
            }
            None => label("■", because("stopped"), Tone::Attention, Place::Troubled),
        },
        Some(RunStateKind::Finished) => {
            let (sign, words, tone) = match run.condition.outcome.as_ref().and_then(Word::known) {
                Some(OutcomeKind::Succeeded) if !run.has_succeeded() => {
                    ("✗", "not accepted".to_owned(), Tone::Bad)
                }
                Some(OutcomeKind::Succeeded)
                    if run.condition.status == RunStatus::PartialSuccess =>
                {
                    ("✓", "partly done".to_owned(), Tone::Attention)
                }
                Some(OutcomeKind::Succeeded) => ("✓", "done".to_owned(), Tone::Good),
                Some(OutcomeKind::Cancelled) => ("×", "cancelled".to_owned(), Tone::Dim),
                Some(OutcomeKind::SpawnFailed) => ("✗", "not started".to_owned(), Tone::Bad),
                Some(OutcomeKind::Lost) => ("✗", "lost".to_owned(), Tone::Bad),
                Some(OutcomeKind::Failed) | None => {
                    let cause = run
                        .condition
                        .cause
                        .as_ref()
                        .and_then(Word::known)
                        .map(cause_label);
                    let words = cause.map_or_else(|| because("failed"), str::to_owned);
                    ("✗", words, Tone::Bad)
                }
            };
            label(sign, words, tone, Place::Ended)
        }
        None => label("", run.condition.state.as_str(), Tone::Plain, Place::Live),
    }
}

fn request_words(oldest: &RequestView, more: usize, since: &dyn Fn(&str) -> Option<i64>) -> String {
    let left = since(&oldest.times.expires_at).map(|since| -since);
    let waits = match left.filter(|left| (0..=DEADLINE_SHOWN_S).contains(left)) {
        Some(left) => format!("{} left", duration::left(left)),
        None => age(&oldest.times.asked_at, since),
    };
    let wants = oldest.shown_kind().asks_shortly();
    let others = if more > 0 {
        format!(" +{more}")
    } else {
        String::new()
    };
    let with = oldest.escalated.last();
    let with = with.map_or_else(String::new, |last| format!(" → {}", text::line(&last.to)));
    format!("{wants} {}{others} {waits}{with}", oldest.number)
}

fn age(time: &str, since: &dyn Fn(&str) -> Option<i64>) -> String {
    since(time).map(duration::age).unwrap_or_default()
}

fn running(run: &RunView, since: &dyn Fn(&str) -> Option<i64>) -> StateLabel {
    let reports = run.condition.reported.as_ref().map(ReportedView::line);
    if let Some(retrying) = &run.condition.retrying {
        let word = retry_label(retrying.cause.known());
        let words = format!("{word} {}", age(&retrying.since, since));
        return label("◌", words, Tone::Attention, Place::Troubled);
    }
    if let Some(silent) = &run.condition.silent_since {
        let silent = age(silent, since);
        let (words, place) = match reports {
            Some(reports) => (format!("{reports}, still alive {silent}"), Place::NeedsYou),
            None => (format!("silent {silent}"), Place::Troubled),
        };
        return label("◌", words, Tone::Attention, place);
    }
    if run.condition.overdue_since.is_some() {
        return label("●", "overdue", Tone::Attention, Place::Live);
    }
    let most = run.cost.budgets.iter().filter(|budget| budget.nearly_used);
    if let Some(most) = most.max_by_key(|budget| budget.used_percent) {
        let words = format!("budget {} %", most.used_percent);
        return label("●", words, Tone::Attention, Place::Live);
    }
    let words = reports.unwrap_or_else(|| match run.working_subagents() {
        0 => "working".to_owned(),
        number => format!(
            "working, {}",
            text::count(number, "sub-agent", "sub-agents")
        ),
    });
    label("●", words, Tone::Good, Place::Live)
}

/// A queued run that is held.
const HELD: &str = "held: other run failed";

fn queue_words(run: &RunView) -> String {
    let queue = run.in_queue.queue.as_ref();
    let waits = queue.and_then(|queue| queue.waiting_for.known());
    match (
        waits.and_then(queue_label),
        run.in_queue.queue_place,
        run.in_queue.queue_ahead_min,
    ) {
        (Some(waits), _, _) => waits.to_owned(),
        (None, Some(place), _) => format!("queued ({})", ordinal(place)),
        (None, None, Some(ahead)) => format!("queued ({ahead}+ ahead)"),
        (None, None, None) => "queued".to_owned(),
    }
}

/// Returns the label of a queued run that waits for more than its turn.
fn queue_label(reason: QueueReason) -> Option<&'static str> {
    match reason {
        QueueReason::Turn | QueueReason::Slot | QueueReason::LiveLimit => None,
        QueueReason::PoolPaused => Some("queued: pool paused"),
        QueueReason::PoolRemoved => Some("queued: no such pool"),
        QueueReason::NoRunner => Some("queued: no runner"),
        QueueReason::After => Some("queued: after others"),
        QueueReason::AfterFailed => Some(HELD),
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
        Cause::NotSignedIn => "not signed in",
        Cause::ModelUnavailable => "model not available",
        Cause::RateLimited => "rate limited",
        Cause::Overloaded => "service overloaded",
        Cause::Network => "network error",
        Cause::NoCredit => "no credit left",
        Cause::ContextExhausted => "context full",
        Cause::TooOld => "wrong version",
        Cause::SessionLost => "session lost",
        Cause::NotPermitted => "not permitted",
        Cause::LimitReached => "agent's limit reached",
        Cause::Refused => "refused by its model",
        Cause::NoWord => "ended without result",
        Cause::Agent => "agent error",
    }
}

/// Returns the label of a failure that is being retried.
fn retry_label(cause: Option<Cause>) -> &'static str {
    match cause {
        None | Some(Cause::Agent) => "retrying",
        Some(cause) => cause_label(cause),
    }
}

/// Returns the label of a stop.
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
#[must_use]
pub fn limit_text(run: &RunView) -> Option<String> {
    let attention = run
        .condition
        .attention
        .as_ref()
        .filter(|_| run.condition.state == RunStateKind::Stopped)?;
    match attention.why.known()? {
        Need::Resume(StopReason::ResourceLimit) => {
            let active = duration::of(Duration::from_millis(run.times.active_ms));
            Some(format!("time limit ({active}) used up"))
        }
        Need::Resume(StopReason::MemoryLimit) => Some("memory limit reached".to_owned()),
        Need::Resume(StopReason::Budget) => Some("budget used up".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{RequestTimesView, RequestView, RunConditionView, RunInQueueView};

    #[test]
    fn cause_labels_fit_a_cell() {
        for cause in Cause::ALL {
            let shown = format!("✗ {}", cause_label(cause));
            assert!(text::width_max(&shown) <= 24, "{shown}");
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
            condition: RunConditionView {
                state: RunStateKind::Queued.into(),
                ..RunConditionView::default()
            },
            in_queue: RunInQueueView {
                queue_ahead_min: Some(1_000),
                ..RunInQueueView::default()
            },
            ..RunView::default()
        };
        let shown = state_label(&run, &|_| None).text();
        assert_eq!(
            (shown.as_str(), text::width_max(&shown) <= 24),
            ("… queued (1000+ ahead)", true)
        );
    }

    #[test]
    fn runs_that_need_you_come_first() {
        // The deadlines and times of the test, in seconds.
        let since = |time: &str| time.parse().ok();
        let mut run = RunView {
            condition: RunConditionView {
                state: RunStateKind::Running.into(),
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        let working = state_label(&run, &since);
        run.requests.pending = vec![RequestView {
            number: "Q3".to_owned(),
            ..RequestView::default()
        }];
        let asking = state_label(&run, &since);
        assert!(asking.place < working.place && asking.text() == "? asks Q3");
        let times = |asked_at: &str, expires_at: &str| RequestView {
            times: RequestTimesView {
                asked_at: asked_at.to_owned(),
                expires_at: expires_at.to_owned(),
                ..RequestTimesView::default()
            },
            number: "Q3".to_owned(),
            ..RequestView::default()
        };
        run.requests.pending = vec![times("180", "-16")];
        assert_eq!(state_label(&run, &since).text(), "? asks Q3 16s left");
        run.requests.pending = vec![times("180", "-72000")];
        assert_eq!(state_label(&run, &since).text(), "? asks Q3 3m");
    }
}
