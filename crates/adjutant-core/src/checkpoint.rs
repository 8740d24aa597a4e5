//! Checkpoints: the saved state of a stopped run, from which a later attempt continues, and the choices after an
//! error.

use crate::words;
use crate::{RunState, StopReason};

/// Characters of the run's last output in a checkpoint by Adjutant.
const LAST_WORDS_CHARS_MAX: usize = 2_000;

/// Who wrote a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointAuthor {
    /// The run itself.
    #[default]
    Run,
    /// Adjutant, from the known facts, because the run left none.
    Adjutant,
}

words!(CheckpointAuthor { Run = "run", Adjutant = "adjutant" });

/// The saved state of a stopped run, from which a later attempt continues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checkpoint {
    pub made_by: CheckpointAuthor,
    /// `missing_info`, `external_dependency`, `error`, `resource_limit`, or what the run wrote.
    pub blocker_type: Option<String>,
    pub details: String,
    pub completed_work: Option<String>,
    pub blocked_work: Option<String>,
    pub state: Option<String>,
    pub requirements: Option<String>,
    pub recovery: Option<String>,
    /// The run's directory, and the changes that git reported there at the end.
    pub working_directory: Option<String>,
    pub changed_files: Vec<String>,
}

/// The known facts about a run that left no checkpoint.
#[derive(Debug, Clone, Default)]
pub struct RunSnapshot<'a> {
    pub name: &'a str,
    pub active_ms: i64,
    pub percent: Option<u8>,
    pub progress: Option<&'a str>,
    pub summary: Option<&'a str>,
    /// The end of its output.
    pub last_words: Option<&'a str>,
    /// The limit that stopped it. `None`: its time limit.
    pub stopped_by: Option<StopReason>,
    /// The measured value and the limit, if they are known.
    pub measured: Option<&'a str>,
}

/// Returns a checkpoint for a run that used up its time, or that another limit stopped, and that left none.
#[must_use]
pub fn checkpoint_at_time_limit(known: &RunSnapshot<'_>) -> Checkpoint {
    let RunSnapshot { name, active_ms, percent, progress, summary, last_words, stopped_by, measured } = known;
    let progress = match (percent, progress) {
        (Some(percent), Some(note)) => Some(format!("{percent} %: {note}")),
        (Some(percent), None) => Some(format!("{percent} %")),
        (None, note) => note.map(str::to_owned),
    };
    let done: Vec<String> =
        [progress.map(|text| format!("Last progress: {text}")), summary.map(|text| format!("Reported: {text}"))].into_iter().flatten().collect();
    let (details, requirements) = match stopped_by {
        Some(StopReason::MemoryLimit) => (
            format!("It left no checkpoint: {}", measured.unwrap_or("its processes exceeded the agent's memory limit")),
            Some("Raise `memory` of its agent, shrink the task, or delegate the rest".to_owned()),
        ),
        Some(StopReason::Budget) => (
            "The budget that it draws on was used up, and it left no checkpoint".to_owned(),
            Some(format!("Raise the budget (adj budget {name} --add), which resumes it, or cancel it")),
        ),
        Some(StopReason::MemoryPressure) => ("The machine ran short of memory, and it left no checkpoint".to_owned(), None),
        _ => (
            format!("It used up its time limit ({} s) and left no checkpoint", active_ms / 1000),
            Some("Give it the same time again (resume), shrink the task, or delegate the rest".to_owned()),
        ),
    };
    let last_output = last_words.map(str::trim).filter(|text| !text.is_empty());
    Checkpoint {
        made_by: CheckpointAuthor::Adjutant,
        blocker_type: Some("resource_limit".to_owned()),
        details,
        completed_work: Some(done.join("\n")).filter(|text| !text.is_empty()),
        state: last_output.map(|text| format!("The end of its output:\n{}", tail(text))),
        requirements,
        ..Checkpoint::default()
    }
}

fn tail(text: &str) -> String {
    let skip = text.chars().count().saturating_sub(LAST_WORDS_CHARS_MAX);
    text.chars().skip(skip).collect()
}

/// How to continue a run that an error or a limit stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Skip,
    Retry,
    Delegate,
    Reduce,
}

words!(Choice { Skip = "skip", Retry = "retry", Delegate = "delegate", Reduce = "reduce" });

impl Choice {
    /// Describes the choice for the person or parent who decides.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Skip => "skip the failed part and continue with the rest",
            Self::Retry => "the cause is fixed: retry the failed part from the checkpoint",
            Self::Delegate => "delegate the rest to another agent",
            Self::Reduce => "reduce the scope and finish",
        }
    }

    /// Returns the instruction for the run.
    #[must_use]
    pub fn order(self) -> &'static str {
        match self {
            Self::Skip => "Skip the failed part and continue with the rest. Say in your report what you skipped.",
            Self::Retry => "The cause of the failure is fixed. Resume from the checkpoint and retry the failed part.",
            Self::Delegate => "Delegate the rest to another agent (DELEGATE_WORK), and finish with its result.",
            Self::Reduce => "Reduce the scope: finish what matters most, and say in your report what you left out.",
        }
    }
}

/// Returns the choices for a run. There are some only if an error or a limit stopped it.
#[must_use]
pub fn choices(state: RunState, checkpoint: Option<&Checkpoint>) -> &'static [Choice] {
    const ALL: &[Choice] = &Choice::ALL;
    let by_word =
        checkpoint.and_then(|checkpoint| checkpoint.blocker_type.as_deref()).is_some_and(|word| word == "error" || word == "resource_limit");
    match state {
        RunState::Stopped { reason: StopReason::Error | StopReason::ResourceLimit | StopReason::MemoryLimit, .. } => ALL,
        RunState::Stopped { reason: StopReason::Blocker, .. } if by_word => ALL,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SteadyTime;

    #[test]
    fn checkpoint_by_adjutant_has_the_known_facts() {
        let known = RunSnapshot {
            active_ms: 61_000,
            percent: Some(40),
            progress: Some("half of src"),
            last_words: Some("reading b.rs\n"),
            ..RunSnapshot::default()
        };
        let made = checkpoint_at_time_limit(&known);
        assert_eq!(made.made_by, CheckpointAuthor::Adjutant);
        assert_eq!(made.completed_work.as_deref(), Some("Last progress: 40 %: half of src"));
        assert_eq!(made.state.as_deref(), Some("The end of its output:\nreading b.rs"));
        assert!(made.details.contains("61 s"));
        let long = "ä".repeat(10_000);
        let made = checkpoint_at_time_limit(&RunSnapshot { last_words: Some(&long), ..RunSnapshot::default() });
        assert!(made.state.is_some_and(|state| state.chars().count() < 2_100));
        assert_eq!(checkpoint_at_time_limit(&RunSnapshot::default()).completed_work, None);
        for reason in [StopReason::MemoryLimit, StopReason::MemoryPressure] {
            let made = checkpoint_at_time_limit(&RunSnapshot { stopped_by: Some(reason), ..known.clone() });
            assert!(made.details.contains("memory") && !made.details.contains("time limit"), "{made:?}");
        }
    }

    #[test]
    fn only_an_error_or_a_limit_offers_choices() {
        let stopped = |reason| RunState::Stopped { reason, until: SteadyTime(1) };
        assert_eq!(choices(stopped(StopReason::Error), None).len(), 4);
        assert_eq!(choices(stopped(StopReason::ResourceLimit), None).len(), 4);
        assert!(choices(stopped(StopReason::Blocker), None).is_empty());
        let limit = Checkpoint { blocker_type: Some("resource_limit".to_owned()), ..Checkpoint::default() };
        assert_eq!(choices(stopped(StopReason::Blocker), Some(&limit)).len(), 4);
        assert!(choices(RunState::Running, Some(&limit)).is_empty());
        for choice in Choice::ALL {
            assert_eq!(Choice::from_word(choice.word()), Some(choice));
        }
    }
}
