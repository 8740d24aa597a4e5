//! What is done about a run's blocks that cannot be read: the run is notified once, as a compiler
//! reports an error, so that it can fix its block. If it does not, it needs a person or client:
//! such a run never counts as a success.

use super::kind::SignalKind;
use crate::id::EventSeq;
use crate::{RunId, shorten};

/// How many blocks of one run it is notified of. Each can cost an attempt.
pub(crate) const NOTIFIED_MAX: usize = 3;
/// How many unreadable blocks of one run are recorded.
pub const RECORDED_MAX: usize = 20;
/// How much of a block is quoted to its run: lines, and bytes of each.
const QUOTED_LINES_MAX: usize = 40;
const QUOTED_LINE_CHARS_MAX: usize = 200;

/// A block that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableBlock {
    /// The event that recorded it.
    pub seq: EventSeq,
    /// `None`: an object in the JSON form that does not name its kind.
    pub kind: Option<SignalKind>,
    pub why: String,
    /// A hash of its text.
    pub digest: String,
    pub notice: Notice,
    /// A person or client has resumed the run since.
    pub is_settled: bool,
}

/// Whether a run knows that its block cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// It cannot be notified, or was notified of this block before.
    Impossible,
    /// The message is queued.
    Queued,
    /// It has received the message, at this position of the history.
    Received(EventSeq),
}

/// What the end of an attempt with unreadable blocks leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableEnd {
    /// The run continues with a message about its block.
    Notify,
    /// The run stops until a person or client has looked at its output.
    NeedsAttention,
}

/// Returns whether a run is notified of a block. `known`: its unreadable blocks so far.
#[must_use]
pub fn is_notified(known: &[UnreadableBlock], digest: &str) -> bool {
    let notified = known
        .iter()
        .filter(|block| block.notice != Notice::Impossible)
        .count();
    notified < NOTIFIED_MAX && known.iter().all(|block| block.digest != digest)
}

/// Returns whether a block repeats one of which the run is not notified yet, as a CLI does that
/// prints its last message again.
#[must_use]
pub fn is_repeated(known: &[UnreadableBlock], digest: &str) -> bool {
    known
        .iter()
        .any(|block| block.digest == digest && block.notice == Notice::Queued)
}

/// Returns what the end of an attempt leads to. `signals`: the signals of the run that took effect,
/// with their positions.
#[must_use]
pub fn end_of(
    blocks: &[UnreadableBlock],
    signals: &[(SignalKind, EventSeq)],
) -> Option<UnreadableEnd> {
    let open = || blocks.iter().filter(|block| !is_fixed(block, signals));
    if open().any(|block| block.notice == Notice::Queued) {
        return Some(UnreadableEnd::Notify);
    }
    open().next().map(|_| UnreadableEnd::NeedsAttention)
}

/// Returns the first block that is not fixed.
#[must_use]
pub fn first_open<'a>(
    blocks: &'a [UnreadableBlock],
    signals: &[(SignalKind, EventSeq)],
) -> Option<&'a UnreadableBlock> {
    blocks.iter().find(|block| !is_fixed(block, signals))
}

/// Returns whether a later signal makes up for a block. A report or a stop replaces an earlier one.
/// A request does not replace another one; but what a run states after the notice is its answer.
fn is_fixed(block: &UnreadableBlock, signals: &[(SignalKind, EventSeq)]) -> bool {
    let replaces = |kind: SignalKind| {
        matches!(kind, SignalKind::Completion | SignalKind::Stop) && block.kind == Some(kind)
    };
    let answers =
        |seq: EventSeq| matches!(block.notice, Notice::Received(notified) if seq > notified);
    let fixes = |(kind, seq): &(SignalKind, EventSeq)| {
        replaces(*kind) && *seq > block.seq || *kind != SignalKind::Progress && answers(*seq)
    };
    block.is_settled || signals.iter().any(fixes)
}

/// Returns the message to a run about its block.
#[must_use]
pub fn notice_text(kind: Option<SignalKind>, why: &str, text: &str, run: RunId) -> String {
    let tag = kind.map_or("a signal in the JSON form", SignalKind::tag);
    // A quotation, so that a CLI that prints its prompt does not print the block again.
    let quoted = text
        .lines()
        .take(QUOTED_LINES_MAX)
        .map(|line| format!("> {}\n", shorten::to_chars(line, QUOTED_LINE_CHARS_MAX)));
    let more = if text.lines().count() > QUOTED_LINES_MAX {
        "> …\n"
    } else {
        ""
    };
    format!(
        "A block that you printed cannot be read, so it has no effect ({tag}: {why}). The block:\n\n{}{more}\n\
         Print it again, corrected: the line [{}] alone, then one field on each line, beginning with agent_id: {run}, then the line [/{}] alone. \
         Write a value that contains `: `, `#` or several lines below `|`, indented. \
         {} If it was no signal of yours, print a COMPLETION_REPORT with status and summary.",
        quoted.collect::<String>(),
        kind.map_or("TYPE", SignalKind::tag),
        kind.map_or("TYPE", SignalKind::tag),
        kind.map_or("", SignalKind::needed)
    )
}

/// Returns the description of a run's unreadable block, for the person or client that has to look.
#[must_use]
pub fn problem(block: &UnreadableBlock) -> String {
    let what = match block.kind {
        Some(SignalKind::Clarification) => "it asked a question",
        Some(SignalKind::Stop) => "it stopped",
        Some(SignalKind::Delegation) => "it proposed a delegation",
        Some(SignalKind::Completion) => "it reported its end",
        Some(SignalKind::Approval) => "it asked for approval",
        Some(SignalKind::Progress) | None => "it signalled something",
    };
    let tag = block.kind.map_or("JSON signal", SignalKind::tag);
    format!(
        "{what}, but the block cannot be read ({tag}: {})",
        block.why
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use proptest::prelude::*;

    fn block(seq: i64, kind: SignalKind, notice: Notice) -> UnreadableBlock {
        UnreadableBlock {
            seq: EventSeq(seq),
            kind: Some(kind),
            why: "x".to_owned(),
            digest: seq.to_string(),
            notice,
            is_settled: false,
        }
    }

    #[test]
    fn run_is_notified_once_and_then_needs_attention() {
        let queued = block(5, SignalKind::Stop, Notice::Queued);
        let notified = block(5, SignalKind::Stop, Notice::Received(EventSeq(7)));
        assert_eq!(end_of(&[], &[]), None);
        assert_eq!(
            end_of(std::slice::from_ref(&queued), &[]),
            Some(UnreadableEnd::Notify)
        );
        assert_eq!(
            end_of(std::slice::from_ref(&notified), &[]),
            Some(UnreadableEnd::NeedsAttention)
        );
        assert_eq!(
            end_of(&[notified.clone(), queued.clone()], &[]),
            Some(UnreadableEnd::Notify)
        );
        let settled = UnreadableBlock {
            is_settled: true,
            ..notified.clone()
        };
        assert_eq!(end_of(&[settled], &[]), None);
        assert!(
            is_notified(&[], "a")
                && !is_notified(std::slice::from_ref(&notified), "5")
                && is_notified(&[notified], "6")
        );
        assert!(is_repeated(&[queued], "5"));
        let many: Vec<_> = (0..3)
            .map(|n| block(n, SignalKind::Stop, Notice::Received(EventSeq(9))))
            .collect();
        assert!(!is_notified(&many, "new"), "at most {NOTIFIED_MAX}");
    }

    #[test]
    fn later_signals_fix_a_block() {
        use SignalKind::{Clarification, Completion, Progress, Stop};
        let of = |kind, notice, signals: &[(SignalKind, i64)]| {
            let signals: Vec<_> = signals
                .iter()
                .map(|(kind, seq)| (*kind, EventSeq(*seq)))
                .collect();
            end_of(&[block(5, kind, notice)], &signals)
        };
        let notified = Notice::Received(EventSeq(7));
        assert_eq!(
            of(Completion, Notice::Queued, &[(Completion, 6)]),
            None,
            "a report replaces an earlier one"
        );
        assert_eq!(
            of(Completion, Notice::Queued, &[(Completion, 4)]),
            Some(UnreadableEnd::Notify)
        );
        assert_eq!(
            of(
                Clarification,
                Notice::Queued,
                &[(Clarification, 6), (Completion, 6)]
            ),
            Some(UnreadableEnd::Notify),
            "the question is lost"
        );
        assert_eq!(of(Clarification, notified, &[(Completion, 8)]), None);
        assert_eq!(
            of(Stop, notified, &[(Completion, 6)]),
            Some(UnreadableEnd::NeedsAttention),
            "the notice came later"
        );
        assert_eq!(
            of(Stop, notified, &[(Progress, 8)]),
            Some(UnreadableEnd::NeedsAttention)
        );
    }

    proptest! {
        #[test]
        fn message_begins_no_block(text in "(\\[/?(PROGRESS|STOP_WORK)\\]|a: b|\n| |#|>|`){0,40}") {
            let notified = notice_text(Some(SignalKind::Stop), "details is missing", &text, RunId::new(Time(1), [1; 10]));
            prop_assert!(notified.lines().all(|line| super::super::opening(line).is_none()), "{}", notified);
        }
    }
}
