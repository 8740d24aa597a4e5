//! The checkpoint of a run, as it is stored.

use adjutant_core::AttemptNo;
use adjutant_core::checkpoint::{Checkpoint, CheckpointAuthor};
use serde::{Deserialize, Serialize};

/// A serialized checkpoint.
#[derive(Serialize, Deserialize)]
pub(in crate::store) struct CheckpointRow {
    /// The attempt that saved the checkpoint.
    attempt: u32,
    by_us: bool,
    blocker_type: Option<String>,
    details: String,
    completed_work: Option<String>,
    blocked_work: Option<String>,
    state: Option<String>,
    requirements: Option<String>,
    recovery: Option<String>,
    working_directory: Option<String>,
    changed_files: Vec<String>,
}

impl CheckpointRow {
    pub(in crate::store) fn of(checkpoint: &Checkpoint, attempt: AttemptNo) -> Self {
        let Checkpoint {
            made_by,
            blocker_type,
            details,
            completed_work,
            blocked_work,
            state,
            requirements,
            recovery,
            working_directory,
            changed_files,
        } = checkpoint.clone();
        let by_us = made_by == CheckpointAuthor::Adjutant;
        Self {
            attempt: attempt.0,
            by_us,
            blocker_type,
            details,
            completed_work,
            blocked_work,
            state,
            requirements,
            recovery,
            working_directory,
            changed_files,
        }
    }

    pub(in crate::store) fn decode(self) -> (Checkpoint, AttemptNo) {
        let Self {
            attempt,
            by_us,
            blocker_type,
            details,
            completed_work,
            blocked_work,
            state,
            requirements,
            recovery,
            working_directory,
            changed_files,
        } = self;
        let made_by = if by_us {
            CheckpointAuthor::Adjutant
        } else {
            CheckpointAuthor::Run
        };
        let checkpoint = Checkpoint {
            made_by,
            blocker_type,
            details,
            completed_work,
            blocked_work,
            state,
            requirements,
            recovery,
            working_directory,
            changed_files,
        };
        (checkpoint, AttemptNo(attempt))
    }
}
