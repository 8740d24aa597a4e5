//! Blocks that a run printed and that cannot be read: the run is notified once, then it needs a
//! person or client.

use crate::signal::FoundSignal;
use crate::store::{Run, StoreError, Tx, run_input, signals_since, turn_of_run, unreadable_blocks};
use adjutant_core::signal::{
    RECORDED_MAX, SignalKind, UnreadableBlock, UnreadableEnd, end_of, first_open, is_notified,
    is_repeated, notice_text, problem,
};
use adjutant_core::{EventSeq, RequestId, hex};
use sha2::{Digest, Sha256};

/// The sender of the notice to a run.
const SENDER: &str = "adjutant";

/// Records a block that cannot be read, and notifies its run. `is_own`: the block names the run;
/// otherwise none.
pub(super) fn note_unreadable(
    tx: &mut Tx<'_>,
    run: &Run,
    kind: Option<SignalKind>,
    found: &FoundSignal,
    why: &str,
    is_own: bool,
) -> Result<(), StoreError> {
    let text = text_of(found);
    let tag = kind.map_or("JSON signal", SignalKind::tag);
    let input = run_input(tx.connection(), run.id)?;
    // A program without the statement does not know what a block is, and neither asks nor reports
    // in a chat.
    let knows_blocks = input.agent.has_identity && turn_of_run(tx.connection(), run.id)?.is_none();
    tx.malformed_signal(run, &format!("{tag}: {why}"))?;
    if run.state.is_finished()
        || kind == Some(SignalKind::Progress)
        || !is_own && !knows_blocks
        || is_quoted_from(text, &input.prompt)
    {
        return Ok(());
    }
    let digest = digest_of(tag, text);
    let known = unreadable_blocks(tx.connection(), run.id)?;
    if known.len() >= RECORDED_MAX || is_repeated(&known, &digest) {
        return Ok(());
    }
    let mut message = None;
    if knows_blocks && is_notified(&known, &digest) {
        let id = RequestId::new(tx.now(), crate::ops::random());
        message = Some(
            tx.send_text(
                run,
                SENDER,
                id,
                &notice_text(kind, why, &block_lines(tag, found), run.id),
            )?
            .id,
        );
    }
    tx.add_unreadable_block(run, kind, why, &digest, message.as_deref())
}

/// Returns what the run's unreadable blocks lead to at the end of an attempt, and a description of
/// the first of them.
pub(super) fn unreadable_end(
    tx: &Tx<'_>,
    run: &Run,
) -> Result<Option<(UnreadableEnd, String)>, StoreError> {
    // A run with such a block has an ignored signal.
    if run.ignored == 0 {
        return Ok(None);
    }
    let blocks: Vec<UnreadableBlock> = unreadable_blocks(tx.connection(), run.id)?;
    let Some(first) = blocks.first() else {
        return Ok(None);
    };
    let signals = signals_since(tx.connection(), run.id, first.seq.max(EventSeq(0)))?;
    let end = end_of(&blocks, &signals);
    Ok(end.zip(first_open(&blocks, &signals).map(problem)))
}

fn text_of(found: &FoundSignal) -> &str {
    match found {
        FoundSignal::Block { text, .. }
        | FoundSignal::Json { text }
        | FoundSignal::Oversized { text, .. }
        | FoundSignal::Mention { line: text, .. } => text,
    }
}

/// Returns the block as it was printed, with its markers.
fn block_lines(tag: &str, found: &FoundSignal) -> String {
    match found {
        FoundSignal::Block {
            text,
            is_closed: true,
            ..
        } => format!("[{tag}]\n{text}[/{tag}]"),
        FoundSignal::Block { text, .. } | FoundSignal::Oversized { text, .. } => {
            format!("[{tag}]\n{text}")
        }
        FoundSignal::Json { text } | FoundSignal::Mention { line: text, .. } => text.clone(),
    }
}

/// Returns whether a text is a part of a prompt: some programs print theirs.
fn is_quoted_from(text: &str, prompt: &str) -> bool {
    let plain = |text: &str| {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    };
    let text = plain(text);
    !text.is_empty() && plain(prompt).contains(&text)
}

/// Returns a hash of a block, however it is indented.
pub(super) fn digest_of(tag: &str, text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(tag);
    for line in text.lines() {
        hash.update(b"\n");
        hash.update(line.trim());
    }
    hex(&hash.finalize()[..16])
}
