//! What an undo refuses, and how it names files.

use super::OpError;
use super::trees::find_snapshot;
use crate::git::{MergeRefusal, PreparedUndo, Snapshot};
use crate::store::Run;
use crate::user_files::{Cause, LeftAlone};
use crate::view::{UndoRun, UndoView};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Denied, RunState};
use std::collections::BTreeSet;
use std::path::Path;

/// Maximum number of runs or files that an error names.
const NAMED_MAX: usize = 5;

/// The runs that have worked beside another one, each with the files that it has changed.
pub(super) struct ChangedBeside(pub(super) Vec<(String, BTreeSet<Vec<u8>>)>);

impl ChangedBeside {
    /// Returns the files of all runs.
    pub(super) fn files(&self) -> BTreeSet<Vec<u8>> {
        self.0
            .iter()
            .flat_map(|(_, files)| files)
            .cloned()
            .collect()
    }

    /// Returns the runs that have changed one of these files.
    fn runs_of(self, files: &[String]) -> Vec<String> {
        let has_one = |changed: &BTreeSet<Vec<u8>>| {
            files.iter().any(|file| changed.contains(file.as_bytes()))
        };
        self.0
            .into_iter()
            .filter(|(_, changed)| has_one(changed))
            .map(|(name, _)| name)
            .collect()
    }
}

/// Refuses a run that works, or is about to.
pub(super) fn refuse_unended(run: &Run) -> Result<(), Denied> {
    if run.state.is_live() || run.state == RunState::Queued {
        return Err(Denied::WrongState {
            run: run.name.clone(),
            state: run.state.word(),
            wanted: "undone; pause or cancel it first",
        });
    }
    Ok(())
}

/// Returns the snapshot that a call restores: the one that it names, else the first one, if that
/// was taken before the run changed anything.
pub(super) fn snapshot_to_restore<'a>(
    run: &Run,
    all: &'a [Snapshot],
    call: &UndoRun,
) -> Result<&'a Snapshot, OpError> {
    let first = all.first();
    if call.to.is_none()
        && !call.force
        && let Some(first) = first.filter(|first| !is_start(first))
    {
        let problem = format!(
            "the state before {} could not be kept: name a snapshot (adj show lists them), or restore {} with --force",
            run.name, first.n
        );
        return Err(Denied::invalid("snapshot", problem).into());
    }
    find_snapshot(run, all, call.to, first)
}

/// Returns whether a snapshot may be of the state before the run. An older one does not say.
fn is_start(first: &Snapshot) -> bool {
    first
        .cause
        .is_none_or(|cause| cause == SnapshotCause::Start)
}

/// Refuses to restore files that others have changed, after the run or beside it.
pub(super) fn refuse_changed(
    prepared: &PreparedUndo,
    beside: ChangedBeside,
) -> Result<(), MergeRefusal> {
    let PreparedUndo {
        changed_since,
        changed_beside,
        ..
    } = prepared;
    if !changed_since.is_empty() {
        return Err(MergeRefusal::ChangedSince(name_files(
            changed_since.clone(),
        )));
    }
    if !changed_beside.is_empty() {
        return Err(MergeRefusal::ChangedBeside {
            runs: name_files(beside.runs_of(changed_beside)),
            files: name_files(changed_beside.clone()),
        });
    }
    Ok(())
}

/// Adds the files that were left alone, because a program has changed them or has them open.
pub(super) fn with_left_alone(mut view: UndoView, files: Vec<(String, LeftAlone)>) -> UndoView {
    for (file, LeftAlone { cause, kept_as }) in files {
        if let Some(name) = kept_as {
            view.kept_beside.push(
                Path::new(&file)
                    .with_file_name(name)
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        match cause {
            Cause::Changed => view.changed_meanwhile.push(file),
            Cause::InUse => view.in_use.push(file),
        }
    }
    view
}

/// Refuses while other runs work in or around the directory. A run that waits for an answer does
/// not.
pub(super) fn refuse_others(names: &[String]) -> Result<(), Denied> {
    if names.is_empty() {
        return Ok(());
    }
    let names = names
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    Err(Denied::conflict(
        "run",
        format!(
            "{names} works in or around the same directory: wait for it, or pause it; --force does not wait"
        ),
    ))
}

/// Names the files that others have changed.
fn name_files(mut files: Vec<String>) -> String {
    let more = files.len().saturating_sub(2 * NAMED_MAX);
    files.truncate(2 * NAMED_MAX);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    format!("{}{more}", files.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[&str]) -> BTreeSet<Vec<u8>> {
        all.iter().map(|file| file.as_bytes().to_vec()).collect()
    }

    fn snapshot(cause: Option<SnapshotCause>) -> Snapshot {
        Snapshot {
            n: 1,
            commit: String::new(),
            tree: String::new(),
            at_ms: 0,
            cause,
            attempt: None,
            left_out: Vec::new(),
            bytes: None,
        }
    }

    #[test]
    fn runs_beside_are_named_if_they_changed_a_file() {
        let beside = ChangedBeside(vec![
            ("amy".to_owned(), files(&["a", "b"])),
            ("bob".to_owned(), files(&["c"])),
        ]);
        assert_eq!(beside.files(), files(&["a", "b", "c"]));
        assert_eq!(beside.runs_of(&["b".to_owned()]), ["amy"]);
    }

    #[test]
    fn only_a_snapshot_of_the_start_is_the_default() {
        assert!(is_start(&snapshot(Some(SnapshotCause::Start))));
        assert!(is_start(&snapshot(None)), "of an older version");
        assert!(!is_start(&snapshot(Some(SnapshotCause::Turn))));
    }

    #[test]
    fn other_runs_in_the_directory_are_named() {
        assert!(refuse_others(&[]).is_ok());
        let names = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
        let problem = refuse_others(&names).expect_err("refused").to_string();
        assert!(problem.contains("a, b, c, d, e works in"), "{problem}");
    }

    #[test]
    fn many_files_are_counted() {
        let all: Vec<String> = (0..12).map(|n| n.to_string()).collect();
        assert_eq!(name_files(all), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
        assert_eq!(name_files(vec!["a".to_owned()]), "a");
    }
}
