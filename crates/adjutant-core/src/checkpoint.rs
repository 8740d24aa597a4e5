//! Checkpoints: the saved state of a stopped run, from which a later attempt continues, and the
//! choices after an error.

use crate::signal::without_blocks;
use crate::units::duration;
use crate::{RunState, StopReason, words};

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

impl Checkpoint {
    /// Returns whether it says why the run stopped: the run itself does, and so does one for a
    /// limit.
    #[must_use]
    pub fn explains_stop(&self) -> bool {
        self.made_by == CheckpointAuthor::Run || self.blocker_type.is_some()
    }
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
    /// Why its attempt ended. `None`: its time limit.
    pub stopped_by: Option<StopReason>,
    /// The measured value and the limit, if they are known.
    pub measured: Option<&'a str>,
    /// The checkpoint of an earlier attempt.
    pub earlier: Option<&'a Checkpoint>,
}

/// Returns a checkpoint for a run whose attempt was interrupted, and that left none itself.
#[must_use]
pub fn reconstruct(known: &RunSnapshot<'_>) -> Checkpoint {
    let RunSnapshot {
        name: _,
        active_ms: _,
        percent,
        progress,
        summary,
        last_words,
        stopped_by,
        measured: _,
        earlier,
    } = known;
    let progress = match (percent, progress) {
        (Some(percent), Some(note)) => Some(format!("{percent} %: {note}")),
        (Some(percent), None) => Some(format!("{percent} %")),
        (None, note) => note.map(str::to_owned),
    };
    // Progress and report are of the whole run; what a run has written itself is kept with them,
    // although it is older.
    let written = earlier
        .and_then(|earlier| own_part(earlier.completed_work.as_deref()?, &[PROGRESS, REPORTED]));
    let done: Vec<String> = [
        written,
        progress.map(|text| format!("{PROGRESS}{text}")),
        summary.map(|text| format!("{REPORTED}{text}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let last_output = last_words
        .map(without_blocks)
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty());
    let state = [
        earlier.and_then(|earlier| own_part(earlier.state.as_deref()?, &[OUTPUT])),
        last_output.map(|text| format!("{OUTPUT}\n{}", tail(&text))),
    ];
    let state: Vec<String> = state.into_iter().flatten().collect();
    let (details, requirements) = reason(known);
    let is_limit = matches!(
        stopped_by,
        None | Some(
            StopReason::ResourceLimit
                | StopReason::MemoryLimit
                | StopReason::MemoryPressure
                | StopReason::Budget
        )
    );
    Checkpoint {
        made_by: CheckpointAuthor::Adjutant,
        blocker_type: is_limit.then(|| "resource_limit".to_owned()),
        details,
        completed_work: Some(done.join("\n")).filter(|text| !text.is_empty()),
        blocked_work: earlier.and_then(|earlier| earlier.blocked_work.clone()),
        state: Some(state.join("\n")).filter(|text| !text.is_empty()),
        requirements,
        ..Checkpoint::default()
    }
}

/// The labels of the parts that Adjutant adds.
const PROGRESS: &str = "Last progress: ";
const REPORTED: &str = "Reported: ";
const OUTPUT: &str = "The end of its output:";
const WRITTEN: &str = "Written before your last attempt: ";

/// Returns the part of an earlier checkpoint that the run has written itself: what precedes the
/// labels of Adjutant.
fn own_part(text: &str, labels: &[&str]) -> Option<String> {
    let end = labels
        .iter()
        .filter_map(|label| text.find(label))
        .min()
        .unwrap_or(text.len());
    let own = text[..end].trim();
    (!own.is_empty()).then(|| format!("{WRITTEN}{}", own.strip_prefix(WRITTEN).unwrap_or(own)))
}

/// Returns why a run was interrupted, and what it needs.
fn reason(known: &RunSnapshot<'_>) -> (String, Option<String>) {
    let RunSnapshot {
        name,
        active_ms,
        measured,
        stopped_by,
        ..
    } = known;
    match stopped_by {
        Some(StopReason::MemoryLimit) => (
            format!(
                "It left no checkpoint: {}",
                measured.unwrap_or("its processes exceeded the agent's memory limit")
            ),
            Some("Raise `memory` of its agent, shrink the task, or delegate the rest".to_owned()),
        ),
        Some(StopReason::Budget) => (
            "The budget that it draws on was used up, and it left no checkpoint".to_owned(),
            Some(format!(
                "Raise the budget (adj budget {name} --add), which resumes it, or cancel it"
            )),
        ),
        Some(StopReason::MemoryPressure) => (
            "The machine ran short of memory, and it left no checkpoint".to_owned(),
            None,
        ),
        None | Some(StopReason::ResourceLimit) => (
            format!(
                "It used up its time limit ({}) and left no checkpoint",
                duration::text(*active_ms)
            ),
            Some(
                "Give it the same time again (resume), shrink the task, or delegate the rest"
                    .to_owned(),
            ),
        ),
        Some(StopReason::SupervisorLost) => (
            "Its supervisor was lost; its last actions are unknown".to_owned(),
            None,
        ),
        Some(StopReason::HostLost) => (
            "Its runner was cut off; its last actions are unknown".to_owned(),
            None,
        ),
        Some(StopReason::RateLimited) => ("Its model was rate-limited".to_owned(), None),
        Some(StopReason::Overloaded) => (
            "The service of its model failed or was overloaded".to_owned(),
            None,
        ),
        Some(StopReason::Parked) => ("It ended with a request open".to_owned(), None),
        Some(StopReason::Paused) => ("It was paused".to_owned(), None),
        Some(StopReason::UnreadableBlock) => {
            ("It printed a block that cannot be read".to_owned(), None)
        }
        Some(StopReason::Blocker | StopReason::Error | StopReason::Cancelled) => {
            ("It was stopped".to_owned(), None)
        }
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
            Self::Skip => {
                "Skip the failed part and continue with the rest. Say in your report what you skipped."
            }
            Self::Retry => {
                "The cause of the failure is fixed. Resume from the checkpoint and retry the failed part."
            }
            Self::Delegate => {
                "Delegate the rest to another agent (DELEGATE_WORK), and finish with its result."
            }
            Self::Reduce => {
                "Reduce the scope: finish what matters most, and say in your report what you left out."
            }
        }
    }
}

/// Returns the choices for a run. There are some only if an error or a limit stopped it.
#[must_use]
pub fn choices(state: RunState, checkpoint: Option<&Checkpoint>) -> &'static [Choice] {
    const ALL: &[Choice] = &Choice::ALL;
    let by_word = checkpoint
        .and_then(|checkpoint| checkpoint.blocker_type.as_deref())
        .is_some_and(|word| word == "error" || word == "resource_limit");
    match state {
        RunState::Stopped {
            reason: StopReason::Error | StopReason::ResourceLimit | StopReason::MemoryLimit,
            ..
        } => ALL,
        RunState::Stopped {
            reason: StopReason::Blocker,
            ..
        } if by_word => ALL,
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
        let made = reconstruct(&known);
        assert_eq!(made.made_by, CheckpointAuthor::Adjutant);
        assert_eq!(
            made.completed_work.as_deref(),
            Some("Last progress: 40 %: half of src")
        );
        assert_eq!(
            made.state.as_deref(),
            Some("The end of its output:\nreading b.rs")
        );
        assert!(made.details.contains("1m1s"));
        let long = "ä".repeat(10_000);
        let made = reconstruct(&RunSnapshot {
            last_words: Some(&long),
            ..RunSnapshot::default()
        });
        assert!(
            made.state
                .is_some_and(|state| state.chars().count() < 2_100)
        );
        assert_eq!(reconstruct(&RunSnapshot::default()).completed_work, None);
        for reason in [StopReason::MemoryLimit, StopReason::MemoryPressure] {
            let made = reconstruct(&RunSnapshot {
                stopped_by: Some(reason),
                ..known.clone()
            });
            assert!(
                made.details.contains("memory") && !made.details.contains("time limit"),
                "{made:?}"
            );
        }
    }

    #[test]
    fn interruption_keeps_what_the_run_wrote_before() {
        let own = Checkpoint {
            completed_work: Some("46 files".to_owned()),
            blocked_work: Some("the audit".to_owned()),
            state: Some("47/120".to_owned()),
            ..Checkpoint::default()
        };
        let output =
            "reading b.rs\n[PROGRESS]\nagent_id: x\npercent: 60\n[/PROGRESS]\nFound 3 issues\n";
        for reason in StopReason::ALL {
            let known = RunSnapshot {
                percent: Some(60),
                last_words: Some(output),
                stopped_by: Some(reason),
                earlier: Some(&own),
                ..RunSnapshot::default()
            };
            let made = reconstruct(&known);
            assert_eq!(
                made.completed_work.as_deref(),
                Some("Written before your last attempt: 46 files\nLast progress: 60 %")
            );
            assert_eq!(
                made.state.as_deref(),
                Some(
                    "Written before your last attempt: 47/120\nThe end of its output:\nreading b.rs\nFound 3 issues"
                ),
                "a block in a prompt could be printed again"
            );
            assert_eq!(made.blocked_work.as_deref(), Some("the audit"));
            let again = reconstruct(&RunSnapshot {
                earlier: Some(&made),
                ..known
            });
            assert_eq!(
                (&again.completed_work, &again.state),
                (&made.completed_work, &made.state),
                "the next interruption adds nothing"
            );
        }
    }

    #[test]
    fn only_an_error_or_a_limit_offers_choices() {
        let stopped = |reason| RunState::Stopped {
            reason,
            until: SteadyTime(1),
        };
        assert_eq!(choices(stopped(StopReason::Error), None).len(), 4);
        assert_eq!(choices(stopped(StopReason::ResourceLimit), None).len(), 4);
        assert!(choices(stopped(StopReason::Blocker), None).is_empty());
        let limit = Checkpoint {
            blocker_type: Some("resource_limit".to_owned()),
            ..Checkpoint::default()
        };
        assert_eq!(choices(stopped(StopReason::Blocker), Some(&limit)).len(), 4);
        assert!(choices(RunState::Running, Some(&limit)).is_empty());
        for choice in Choice::ALL {
            assert_eq!(Choice::from_word(choice.word()), Some(choice));
        }
    }
}
