//! What keys make the program do, and the actions that wait because they can be undone.

use crate::cli::answering::asked_with_risk;
use crate::cli::exit::Exit;
use crate::text;
use crate::view::{AnswerOne, DecisionWord, MentionView, MergeView, RequestView};
use adjutant_core::merge::{MergeMode, MergeOutcome};
use std::time::Duration;
use tokio::time::Instant;

/// How long an action can be undone before it is sent.
pub(crate) const UNDO: Duration = Duration::from_secs(5);

/// Longest part of a label that says what is approved.
const ASKED_COLUMNS_MAX: usize = 200;

/// What a key makes the program do.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Answer {
        answer: Box<AnswerOne>,
        about: Box<RequestView>,
    },
    Act {
        action: Action,
        run_id: String,
        name: String,
    },
    Merge {
        run_id: String,
        name: String,
        mode: MergeMode,
        /// The new branch in mode `branch`.
        branch: Option<String>,
    },
    Post {
        text: String,
        about: Box<MentionView>,
    },
    /// Confirms that the person has seen the end of a run.
    Seen {
        run_id: String,
        name: String,
        cursor: i64,
    },
    OpenLog {
        run_id: String,
    },
    CloseLog,
    Quit(Exit),
}

/// An action on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Pause,
    Resume,
    Retry,
    Cancel,
    Discard,
}

impl Action {
    /// Returns the verb of the label, and what is said once it is done.
    pub(super) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Pause => ("Pause", "pausing"),
            Self::Resume => ("Resume", "resumed"),
            Self::Retry => ("Retry", "started a retry of"),
            Self::Cancel => ("Cancel", "cancelled"),
            Self::Discard => ("Discard the workspace of", "discarded the workspace of"),
        }
    }
}

/// An action that is sent when it is due, unless it is undone.
#[derive(Debug)]
pub(super) struct Later {
    pub label: String,
    /// The id of the request or run.
    pub about: String,
    pub command: Command,
    pub due: Instant,
}

impl Later {
    /// Returns the action with the time at which it is sent.
    ///
    /// # Errors
    /// The command, if it is sent at once: it can be undone otherwise, or has no effect on a run.
    pub(super) fn new(command: Command, now: Instant) -> Result<Self, Box<Command>> {
        let (label, about) = match &command {
            Command::Answer { answer, about } => {
                let label = match answer.decision {
                    // A small screen shows nowhere else what is approved.
                    Some(DecisionWord::Approve) => {
                        let what = text::cut(&asked_with_risk(about), ASKED_COLUMNS_MAX);
                        let changed = if answer.changes.is_some() {
                            " with changes"
                        } else {
                            ""
                        };
                        format!(
                            "Approve {} of {}{changed} ({what})",
                            about.number, about.run_name
                        )
                    }
                    Some(DecisionWord::Deny) => {
                        format!("Deny {} of {}", about.number, about.run_name)
                    }
                    None => return Err(Box::new(command)),
                };
                (label, &about.message_id)
            }
            Command::Act {
                action: Action::Pause,
                ..
            } => return Err(Box::new(command)),
            Command::Act {
                action,
                run_id,
                name,
            } => (format!("{} {name}", action.words().0), run_id),
            Command::Merge { run_id, name, .. } => (format!("Merge {name}"), run_id),
            Command::Post { .. }
            | Command::Seen { .. }
            | Command::OpenLog { .. }
            | Command::CloseLog
            | Command::Quit(_) => {
                return Err(Box::new(command));
            }
        };
        Ok(Self {
            label: text::line(&label),
            about: about.clone(),
            due: now + UNDO,
            command,
        })
    }
}

/// Why nothing was merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MergeRefusal {
    #[error("{name} was not merged: it conflicts in {}", paths.join(", "))]
    Conflicts { name: String, paths: Vec<String> },
    #[error("{name} resolved nothing: the conflicts of {other} are still there")]
    ResolvedNothing { name: String, other: String },
}

/// Describes the result of a merge.
///
/// # Errors
/// Nothing was merged because of conflicts, or because conflicts are still there.
pub(crate) fn merge_result(name: &str, merged: &MergeView) -> Result<String, MergeRefusal> {
    let into = merged
        .branch
        .as_ref()
        .map(|branch| format!(" into {branch}"))
        .unwrap_or_default();
    match merged.outcome.known() {
        Some(MergeOutcome::Conflicts) => Err(MergeRefusal::Conflicts {
            name: name.to_owned(),
            paths: merged
                .conflicts
                .iter()
                .map(|conflict| conflict.path.clone())
                .collect(),
        }),
        Some(MergeOutcome::Merged) => Ok(format!("merged {name}{into}")),
        Some(MergeOutcome::AlreadyMerged) => Ok(format!("{name} was already merged{into}")),
        _ => match &merged.resolved_nothing_of {
            Some(other) => Err(MergeRefusal::ResolvedNothing {
                name: name.to_owned(),
                other: other.clone(),
            }),
            None => Ok(format!("nothing to merge from {name}{into}")),
        },
    }
}
