//! What runs have announced that they will change or provide, and the pairs of runs whose
//! announcements overlap.

use super::conflicts::pair;
use super::ids::run_id;
use super::records::run::Run;
use super::{StoreError, Topic, Tx, append_event};
use crate::store::db::{Connection, params};
use adjutant_core::chat::LEDGER_KEY_PREFIX;
use adjutant_core::conflict::{PairChange, pair_change};
use adjutant_core::ledger::{AnnouncedKind, Announcement, Overlap};
use adjutant_core::{EventKind, Principal, RunId};
use serde::{Deserialize, Serialize};

/// Maximum number of runs whose announcements are compared with those of one, the newest.
const OTHERS_MAX: u32 = 100;

/// What a run has announced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announced {
    pub items: Vec<Announcement>,
    /// The top of the tree that the run changes.
    pub top: String,
}

/// A run whose announcements overlap with those of another one.
#[derive(Debug, Clone)]
pub struct OverlappingRun {
    pub run: RunId,
    pub name: String,
    /// `first` is what the run asked about has announced.
    pub items: Vec<Overlap>,
}

#[derive(Serialize, Deserialize)]
struct ItemRow {
    kind: String,
    first: String,
    second: String,
}

/// Reads what a run has announced.
///
/// # Errors
/// A failure of the store.
pub fn announced_by(connection: &Connection, run: RunId) -> Result<Announced, StoreError> {
    let rows: Vec<(String, String, String, String)> = connection
        .prepare_cached("SELECT kind, what, place, top FROM announcements WHERE run = ?1 ORDER BY kind DESC, what")?
        .read_rows([run.to_string()])?;
    let mut announced = Announced::default();
    for (kind, what, place, top) in rows {
        let kind = AnnouncedKind::from_word(&kind)
            .ok_or_else(|| StoreError::Corrupt(format!("an announcement of run {run}: {kind}")))?;
        announced.items.push(Announcement { kind, what, place });
        announced.top = top;
    }
    Ok(announced)
}

/// Lists the other unfinished runs of an owner that have announced something.
///
/// # Errors
/// A failure of the store.
pub fn other_announcing_runs(
    connection: &Connection,
    owner: &Principal,
    run: RunId,
) -> Result<Vec<RunId>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT r.id FROM runs r WHERE r.owner = ?1 AND r.state <> 'finished' AND r.id <> ?2
             AND EXISTS (SELECT 1 FROM announcements a WHERE a.run = r.id) ORDER BY r.no DESC LIMIT ?3",
        )?
        .read_rows(params![owner.to_string(), run.to_string(), OTHERS_MAX])?)
}

/// Lists the unfinished runs of a tree that have announced something.
///
/// # Errors
/// A failure of the store.
pub fn announcing_in(connection: &Connection, root: RunId) -> Result<Vec<RunId>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT r.id FROM runs r WHERE r.root = ?1 AND r.state <> 'finished' AND EXISTS (SELECT 1 FROM announcements a WHERE a.run = r.id)
             ORDER BY r.no DESC LIMIT ?2",
        )?
        .read_rows(params![root.to_string(), OTHERS_MAX])?)
}

/// Lists the unfinished runs whose announcements overlap with those of an unfinished run.
///
/// # Errors
/// A failure of the store.
pub fn overlaps_of(connection: &Connection, run: RunId) -> Result<Vec<OverlappingRun>, StoreError> {
    let rows: Vec<(String, String, String, bool)> = connection
        .prepare_cached(
            "SELECT r.id, r.name, o.items, o.first = ?1 FROM \"overlaps\" o JOIN runs r ON r.id = CASE o.first WHEN ?1 THEN o.second ELSE o.first END
             JOIN runs own ON own.id = ?1
             WHERE (o.first = ?1 OR o.second = ?1) AND o.items <> '[]' AND r.state <> 'finished' AND own.state <> 'finished'
             AND r.owner = own.owner ORDER BY r.no",
        )?
        .read_rows([run.to_string()])?;
    let read = |(id, name, items, is_first): (String, String, String, bool)| {
        let items = read_items(&items)?;
        let turned = |item: Overlap| Overlap {
            kind: item.kind,
            first: item.second,
            second: item.first,
        };
        let items = if is_first {
            items
        } else {
            items.into_iter().map(turned).collect()
        };
        Ok(OverlappingRun {
            run: run_id(&id)?,
            name,
            items,
        })
    };
    rows.into_iter().map(read).collect()
}

fn read_items(text: &str) -> Result<Vec<Overlap>, StoreError> {
    let corrupt = |why: String| StoreError::Corrupt(format!("an overlap: {why}"));
    let rows: Vec<ItemRow> =
        serde_json::from_slice(text.as_bytes()).map_err(|error| corrupt(error.to_string()))?;
    let read = |ItemRow {
                    kind,
                    first,
                    second,
                }| {
        let kind = AnnouncedKind::from_word(&kind).ok_or_else(|| corrupt(kind))?;
        Ok(Overlap {
            kind,
            first,
            second,
        })
    };
    rows.into_iter().map(read).collect()
}

/// Lists the ids of the entries by which a run has announced something on boards.
pub(super) fn announced_entries(
    connection: &Connection,
    run: &Run,
) -> Result<Vec<i64>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT m.id FROM chats c JOIN chat_messages m ON m.chat = c.id AND m.key = ?2
             WHERE c.owner = ?3 AND c.kind = 'board' AND m.author = ?1
             UNION SELECT m.id FROM chat_members w JOIN chats c ON c.id = w.chat JOIN chat_messages m ON m.chat = c.id AND m.key = ?2
             WHERE w.who = ?1 AND c.kind = 'board' AND m.author = ?1",
        )?
        .read_rows(params![Principal::Run(run.id).to_string(), format!("{LEDGER_KEY_PREFIX}{}", run.name), run.owner.to_string()])?)
}

/// What is new about the overlap of two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlapChange {
    /// The first overlap of the pair: the other run gets a message.
    First,
    /// No message is due.
    None,
}

impl Tx<'_> {
    /// Replaces what a run has announced.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_announced(&mut self, run: RunId, announced: &Announced) -> Result<(), StoreError> {
        self.prepare("DELETE FROM announcements WHERE run = ?1")?
            .run([run.to_string()])?;
        for Announcement { kind, what, place } in &announced.items {
            self.prepare("INSERT INTO announcements (run, kind, what, place, top, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING")?
                .run(params![run.to_string(), kind.word(), what, place, announced.top, self.now().0])?;
        }
        Ok(())
    }

    /// Stores the overlaps of two runs' announcements. The begin and the end of an overlap are
    /// events of `run`. In `items`, `first` is what `run` has announced.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_overlap(
        &mut self,
        run: &Run,
        other: &Run,
        items: &[Overlap],
    ) -> Result<OverlapChange, StoreError> {
        let (first, second) = pair(run.id, other.id);
        let known: Option<String> = self
            .prepare("SELECT items FROM \"overlaps\" WHERE first = ?1 AND second = ?2")?
            .find_row(params![first.to_string(), second.to_string()])?;
        if known.is_none() && items.is_empty() {
            return Ok(OverlapChange::None);
        }
        let row = |item: &Overlap| {
            let (one, two) = (item.first.clone(), item.second.clone());
            let (one, two) = if first == run.id {
                (one, two)
            } else {
                (two, one)
            };
            ItemRow {
                kind: item.kind.word().to_owned(),
                first: one,
                second: two,
            }
        };
        let text = serde_json::to_string(&items.iter().map(row).collect::<Vec<_>>())
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("INSERT INTO \"overlaps\" (first, second, items) VALUES (?1, ?2, ?3) ON CONFLICT (first, second) DO UPDATE SET items = ?3")?
            .run(params![first.to_string(), second.to_string(), text])?;
        let (kind, text) = match pair_change(
            known.as_deref().is_some_and(|known| known != "[]"),
            !items.is_empty(),
        ) {
            PairChange::Unchanged => return Ok(OverlapChange::None),
            PairChange::Settled => (
                EventKind::RunOverlapSettled,
                format!("no overlap with {} any more", other.name),
            ),
            PairChange::Conflict => {
                let what: Vec<&str> = items.iter().map(|item| item.first.as_str()).collect();
                (
                    EventKind::RunOverlap,
                    format!("with {}: {}", other.name, what.join(", ")),
                )
            }
        };
        let seq = append_event(
            self,
            kind,
            run.id,
            &run.owner.to_string(),
            None,
            "hub",
            &super::events::first_line(&text),
        )?;
        self.touch(run.id, seq)?;
        if kind == EventKind::RunOverlap {
            let update = "UPDATE runs SET overlap_seq = ?3 WHERE id IN (?1, ?2)";
            self.prepare(update)?
                .run(params![run.id.to_string(), other.id.to_string(), seq.0])?;
        }
        self.notify(Topic::Run(other.id));
        Ok(if known.is_none() {
            OverlapChange::First
        } else {
            OverlapChange::None
        })
    }
}
