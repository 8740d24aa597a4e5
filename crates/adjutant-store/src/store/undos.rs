//! Undos that change a tree: the record from which a crash in between is reported.

use super::events::append as append_event;
use super::records::run::list;
use super::{Run, StoreError, Tx};
use crate::store::db::{Connection, Record, params, row, select};
use adjutant_core::{EventKind, Principal, RunId};

row! {
    /// An undo of a run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Undo, named "an undo of run {}" {
        pub run: RunId = "run_id",
        /// The number of the snapshot that is restored.
        pub to: u32 = "to_snapshot",
        /// The number of the snapshot that was taken before.
        pub before: u32 = "before_snapshot",
        /// It also restores files that have changed since the run.
        pub is_forced: bool,
    }
}

impl Undo {
    /// Returns the command that completes the undo of a run with this name.
    #[must_use]
    pub fn completing_command(&self, name: &str) -> String {
        let force = if self.is_forced { " --force" } else { "" };
        format!("adj undo {name} {}{force}", self.to)
    }
}

/// Reads the undo of a run that was interrupted. `None`: its last undo is complete, or still works.
///
/// # Errors
/// A failure of the store.
pub fn interrupted_undo(connection: &Connection, run: RunId) -> Result<Option<Undo>, StoreError> {
    let sql = Undo::select("FROM undos WHERE run_id = ?1 AND is_interrupted = 1");
    Ok(connection
        .prepare_cached(&sql)?
        .find_row([run.to_string()])?)
}

/// Lists undos that have not ended, and are not recorded as interrupted.
///
/// # Errors
/// A failure of the store.
pub fn undos_under_way(connection: &Connection) -> Result<Vec<Undo>, StoreError> {
    let mut statement =
        connection.prepare_cached(select!(Undo, "FROM undos WHERE is_interrupted = 0"))?;
    Ok(statement.read_rows([])?)
}

/// Reads up to `limit` runs with an interrupted undo, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn runs_with_interrupted_undo(
    connection: &Connection,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    list(
        connection,
        "WHERE id IN (SELECT run_id FROM undos WHERE is_interrupted = 1) ORDER BY no LIMIT ?1",
        params![limit],
    )
}

impl Tx<'_> {
    /// Records an undo before it changes anything. `text` describes it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn start_undo(
        &mut self,
        undo: &Undo,
        by: &Principal,
        text: &str,
    ) -> Result<(), StoreError> {
        let Undo {
            run,
            to,
            before,
            is_forced,
        } = undo;
        self.prepare(
            "INSERT INTO undos (run_id, to_snapshot, before_snapshot, is_forced) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (run_id) DO UPDATE SET to_snapshot = ?2, before_snapshot = ?3, is_forced = ?4, is_interrupted = 0",
        )?
        .run(params![run.to_string(), to, before, is_forced])?;
        let run = self.run(*run)?;
        append_undo_event(self, EventKind::RunUndone, &run, &by.to_string(), text)
    }

    /// Records that the undo of a run is complete.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn finish_undo(&mut self, run: RunId) -> Result<(), StoreError> {
        let was_interrupted = interrupted_undo(self.connection(), run)?;
        forget_undo(self, run)?;
        // A repeated call has completed it.
        match was_interrupted {
            Some(Undo { to, .. }) => {
                let run = self.run(run)?;
                append_undo_event(
                    self,
                    EventKind::RunUndone,
                    &run,
                    "hub",
                    &format!("completes the interrupted undo to snapshot {to}"),
                )
            }
            None => Ok(()),
        }
    }

    /// Records that undos that have not ended were interrupted: the one of a run, or all of a hub
    /// that is gone.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn note_interrupted_undos(&mut self, of: Option<RunId>) -> Result<(), StoreError> {
        let undos: Vec<Undo> = {
            let mut statement = self.prepare(select!(
                Undo,
                "FROM undos WHERE is_interrupted = 0 AND (CAST(?1 AS TEXT) IS NULL OR run_id = ?1)"
            ))?;
            statement.read_rows([of.map(|run| run.to_string())])?
        };
        for undo in undos {
            self.prepare("UPDATE undos SET is_interrupted = 1 WHERE run_id = ?1")?
                .run([undo.run.to_string()])?;
            let run = self.run(undo.run)?;
            let text = format!(
                "some files may not be restored to snapshot {}; to complete it: {}",
                undo.to,
                undo.completing_command(&run.name)
            );
            append_undo_event(self, EventKind::RunUndoInterrupted, &run, "hub", &text)?;
        }
        Ok(())
    }
}

/// Removes the record of a run's undo, for example with its workspace.
///
/// # Errors
/// A failure of the store.
pub(in crate::store) fn forget_undo(tx: &mut Tx<'_>, run: RunId) -> Result<(), StoreError> {
    tx.prepare("DELETE FROM undos WHERE run_id = ?1")?
        .run([run.to_string()])?;
    Ok(())
}

fn append_undo_event(
    tx: &mut Tx<'_>,
    kind: EventKind,
    run: &Run,
    by: &str,
    text: &str,
) -> Result<(), StoreError> {
    let seq = append_event(tx, kind, run.id, &run.owner.to_string(), None, by, text)?;
    tx.touch(run.id, seq)
}
