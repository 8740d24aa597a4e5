//! Blocks of runs that could not be read.

use crate::store::db::{Connection, params};
use crate::store::records::run::Run;
use crate::store::{StoreError, Tx};
use adjutant_core::signal::{Notice, SignalKind, UnreadableBlock};
use adjutant_core::{EventKind, EventSeq, RunId};

/// Reads the unreadable blocks of a run, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn unreadable_blocks(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<UnreadableBlock>, StoreError> {
    type Row = (i64, String, String, String, bool, bool, bool, Option<i64>);
    let rows: Vec<Row> = connection
        .prepare_cached(
            "SELECT b.seq, b.kind, b.why, b.digest, b.settled = 1, b.message IS NOT NULL, coalesce(m.delivery, 'queued') = 'queued',
             (SELECT min(e.seq) FROM events e WHERE e.run = b.run AND e.seq > b.seq AND e.kind = ?2)
             FROM unreadable_blocks b LEFT JOIN messages m ON m.id = b.message WHERE b.run = ?1 ORDER BY b.seq",
        )?
        .read_rows([run.to_string().as_str(), EventKind::MessageDelivered.word()])?;
    let read = |(seq, kind, why, digest, is_settled, has_message, is_queued, delivered): Row| {
        let notice = match (has_message, is_queued) {
            (false, _) => Notice::Impossible,
            (true, true) => Notice::Queued,
            (true, false) => Notice::Received(EventSeq(delivered.unwrap_or(seq))),
        };
        UnreadableBlock {
            seq: EventSeq(seq),
            kind: SignalKind::from_tag(&kind),
            why,
            digest,
            notice,
            is_settled,
        }
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Reads the kinds and positions of a run's signals after a position that took effect.
///
/// # Errors
/// A failure of the store.
pub fn signals_since(
    connection: &Connection,
    run: RunId,
    after: EventSeq,
) -> Result<Vec<(SignalKind, EventSeq)>, StoreError> {
    let rows: Vec<(String, i64)> = connection
        .prepare_cached("SELECT signal, seq FROM events WHERE run = ?1 AND seq > ?2 AND signal IS NOT NULL AND kind <> ?3 ORDER BY seq")?
        .read_rows(params![run.to_string(), after.0, EventKind::SignalMalformed.word()])?;
    Ok(rows
        .into_iter()
        .filter_map(|(kind, seq)| SignalKind::from_tag(&kind).map(|kind| (kind, EventSeq(seq))))
        .collect())
}

impl Tx<'_> {
    /// Records a block that could not be read, at the run's newest event. `message`: the notice to
    /// the run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_unreadable_block(
        &mut self,
        run: &Run,
        kind: Option<SignalKind>,
        why: &str,
        digest: &str,
        message: Option<&str>,
    ) -> Result<(), StoreError> {
        let seq = self.run(run.id)?.last_seq;
        self.prepare("INSERT INTO unreadable_blocks (run, seq, kind, why, digest, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.run(params![
            run.id.to_string(),
            seq.0,
            kind.map_or("", SignalKind::tag),
            why,
            digest,
            message
        ])?;
        Ok(())
    }

    /// Records that a person or client has looked at the unreadable blocks of a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn settle_unreadable_blocks(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare("UPDATE unreadable_blocks SET settled = 1 WHERE run = ?1")?
            .run([run.to_string()])?;
        Ok(())
    }
}
