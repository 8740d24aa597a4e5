//! Pairs of isolated runs whose trees were compared, and the files in which they conflict.

use super::ids::run_id;
use super::records::run::Run;
use super::{StoreError, Topic, Tx, append_event};
use crate::store::db::{Connection, Record, params, row};
use adjutant_core::conflict::{PairChange, pair_change};
use adjutant_core::merge::ConflictKind;
use adjutant_core::{EventKind, EventSeq, RunId};
use serde::{Deserialize, Serialize};

/// Workspaces that are still to be merged.
const IS_OPEN: &str = "state IN ('planned', 'starting', 'ready')";

/// A file in which two runs conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictFile {
    pub path: String,
    pub kind: ConflictKind,
}

#[derive(Serialize, Deserialize)]
struct FileRow {
    path: String,
    kind: String,
}

/// A run that conflicts with another one.
#[derive(Debug, Clone)]
pub struct ConflictingRun {
    pub run: RunId,
    pub name: String,
    pub files: Vec<ConflictFile>,
}

row! {
    /// A run whose tree can be compared.
    #[derive(Debug, Clone)]
    pub struct Sibling {
        pub run: RunId = "r.id",
        pub name: String = "r.name",
        /// The commit that its workspace was made from.
        pub base: String = "w.base",
        /// The commit of the user's uncommitted changes that it started with.
        pub changes: Option<String> = "w.changes",
    }
}

/// Two runs in the order in which they are stored.
#[must_use]
pub fn pair(one: RunId, other: RunId) -> (RunId, RunId) {
    if one.to_string() <= other.to_string() {
        (one, other)
    } else {
        (other, one)
    }
}

/// Lists the isolated runs that are to be merged into the same repository as a run, by the same
/// owner and parent, that run included, oldest first. If there are more than `max`, unfinished runs
/// and then the newest are listed.
///
/// # Errors
/// A failure of the store.
pub fn siblings_of(
    connection: &Connection,
    run: RunId,
    max: u32,
) -> Result<Vec<Sibling>, StoreError> {
    let mut found: Vec<(Sibling, i64)> = connection
        .prepare_cached(&format!(
            "{}, r.no FROM workspaces m JOIN runs o ON o.id = m.run_id
             JOIN workspaces w ON w.repository = m.repository AND w.{IS_OPEN}
             JOIN runs r ON r.id = w.run_id AND r.owner = o.owner AND r.parent IS NOT DISTINCT FROM o.parent
             WHERE m.run_id = ?1 AND m.{IS_OPEN} ORDER BY r.id = ?1 DESC, r.state <> 'finished' DESC, r.no DESC LIMIT ?2",
            Sibling::SELECT
        ))?
        .read_rows(params![run.to_string(), max])?;
    found.sort_unstable_by_key(|(_, no)| *no);
    Ok(found.into_iter().map(|(sibling, _)| sibling).collect())
}

/// Reads the commits of a pair that were compared last.
///
/// # Errors
/// A failure of the store.
pub fn compared(
    connection: &Connection,
    (first, second): (RunId, RunId),
) -> Result<Option<(String, String)>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT first_commit, second_commit FROM conflicts WHERE first = ?1 AND second = ?2",
        )?
        .find_row(params![first.to_string(), second.to_string()])?)
}

/// Lists the runs that conflict with a run, as long as neither is merged.
///
/// # Errors
/// A failure of the store.
pub fn conflicts_of(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<ConflictingRun>, StoreError> {
    let rows: Vec<(String, String, String)> = connection
        .prepare_cached(&format!(
            "SELECT r.id, r.name, c.files FROM conflicts c JOIN runs r ON r.id = CASE c.first WHEN ?1 THEN c.second ELSE c.first END
             WHERE (c.first = ?1 OR c.second = ?1) AND c.files <> '[]'
             AND (SELECT count(*) FROM workspaces WHERE run_id IN (c.first, c.second) AND {IS_OPEN}) = 2 ORDER BY r.no"
        ))?
        .read_rows([run.to_string()])?;
    rows.into_iter()
        .map(|(id, name, files)| {
            Ok(ConflictingRun {
                run: run_id(&id)?,
                name,
                files: read_files(&files)?,
            })
        })
        .collect()
}

/// Returns how many files a run had changed when its tree was compared last.
///
/// # Errors
/// A failure of the store.
pub fn changed_count(connection: &Connection, run: RunId) -> Result<u64, StoreError> {
    let found: Option<i64> = connection
        .prepare_cached("SELECT max(CASE first WHEN ?1 THEN first_files ELSE second_files END) FROM conflicts WHERE first = ?1 OR second = ?1")?
        .read_row([run.to_string()])?;
    Ok(u64::try_from(found.unwrap_or(0)).unwrap_or(0))
}

fn read_files(text: &str) -> Result<Vec<ConflictFile>, StoreError> {
    let rows: Vec<FileRow> = serde_json::from_slice(text.as_bytes())
        .map_err(|error| StoreError::Corrupt(format!("a conflict: {error}")))?;
    Ok(rows
        .into_iter()
        .map(|FileRow { path, kind }| ConflictFile {
            path,
            kind: ConflictKind::from_word(&kind).unwrap_or(ConflictKind::Other),
        })
        .collect())
}

/// The result of comparing the trees of two runs.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub pair: (RunId, RunId),
    pub commits: (String, String),
    /// How many files each has changed.
    pub changed: (u64, u64),
    pub files: Vec<ConflictFile>,
}

impl Tx<'_> {
    /// Stores the result of a comparison caused by a change of the tree of `run`. The first
    /// conflict of a pair is an event of `run`, and so is its end.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_compared(&mut self, run: RunId, comparison: &Comparison) -> Result<(), StoreError> {
        let Comparison {
            pair: (first, second),
            commits,
            changed,
            files,
        } = comparison;
        let known: Option<String> = self
            .prepare("SELECT files FROM conflicts WHERE first = ?1 AND second = ?2")?
            .find_row(params![first.to_string(), second.to_string()])?;
        let rows: Vec<FileRow> = files
            .iter()
            .map(|file| FileRow {
                path: file.path.clone(),
                kind: file.kind.word().to_owned(),
            })
            .collect();
        let text =
            serde_json::to_string(&rows).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.prepare(
            "INSERT INTO conflicts (first, second, first_commit, second_commit, first_files, second_files, files) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (first, second) DO UPDATE SET first_commit = ?3, second_commit = ?4, first_files = ?5, second_files = ?6, files = ?7",
        )?
        .run(params![first.to_string(), second.to_string(), commits.0, commits.1, count(changed.0), count(changed.1), text])?;
        let other = self.run(if *first == run { *second } else { *first })?;
        let run = self.run(run)?;
        match pair_change(known.is_some_and(|known| known != "[]"), !files.is_empty()) {
            PairChange::Unchanged => Ok(()),
            PairChange::Settled => {
                let text = format!("no conflict with {} any more", other.name);
                let seq = append_event(
                    self,
                    EventKind::RunConflictSettled,
                    run.id,
                    &run.owner.to_string(),
                    None,
                    "hub",
                    &text,
                )?;
                self.touch(run.id, seq)
            }
            PairChange::Conflict => notify_of_conflict(self, &run, &other, files),
        }
    }
}

fn notify_of_conflict(
    tx: &mut Tx<'_>,
    run: &Run,
    other: &Run,
    files: &[ConflictFile],
) -> Result<(), StoreError> {
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let text = super::events::first_line(&format!("with {}: {}", other.name, names.join(", ")));
    let seq: EventSeq = append_event(
        tx,
        EventKind::RunConflict,
        run.id,
        &run.owner.to_string(),
        None,
        "hub",
        &text,
    )?;
    tx.touch(run.id, seq)?;
    tx.prepare("UPDATE runs SET conflict_seq = ?3 WHERE id IN (?1, ?2)")?
        .run(params![run.id.to_string(), other.id.to_string(), seq.0])?;
    if run.state.is_finished() {
        // An owner that has been notified of the end is notified again, with the conflict.
        tx.prepare("UPDATE runs SET end_seq = ?2 WHERE id = ?1")?
            .run(params![run.id.to_string(), seq.0])?;
    }
    tx.notify(Topic::Run(other.id));
    Ok(())
}
