//! Reading boards, merged.

use super::caller::ChatCaller;
use crate::clock::rfc3339;
use crate::ops::{OpError, lookup};
use crate::store::{Chat, ChatEntry, Store, StoreError, board_entries, boards};
use crate::view::{Board, BoardEntryView, ReadBoard};
use adjutant_core::chat::shown_name;
use adjutant_core::{Action, Principal};

/// Default number of entries.
const ENTRIES_DEFAULT: u32 = 50;
const ENTRIES_MAX: u32 = 1_000;
/// Maximum number of boards that are merged, those with the newest entries.
const BOARDS_MAX: u32 = 100;

/// Reads the boards that the caller, or one of its runs, may see: the entries that were added
/// or changed last.
///
/// # Errors
/// The run is unknown or foreign.
pub fn read_board(store: &Store, who: &Principal, call: &ReadBoard) -> Result<Board, OpError> {
    lookup::check(who, Action::ReadChat)?;
    let limit = call.limit.unwrap_or(ENTRIES_DEFAULT).clamp(1, ENTRIES_MAX);
    Ok(store.read(|connection| {
        let viewer = match &call.run {
            Some(run) => Principal::Run(lookup::run(connection, who, Action::See, run)?.id),
            None => who.clone(),
        };
        let viewer = ChatCaller::of(connection, &viewer)?.viewer;
        let mut all = Vec::new();
        for board in boards(connection, &viewer, BOARDS_MAX)? {
            let entries = board_entries(connection, board.id, limit + 1)?;
            all.extend(entries.into_iter().map(|entry| (board.clone(), entry)));
        }
        let written_at = |entry: &ChatEntry| entry.edited_at.unwrap_or(entry.at);
        all.sort_by_key(|(board, entry)| (written_at(entry), board.id, entry.seq));
        let more = all.len() > limit as usize;
        let newest = all.split_off(all.len().saturating_sub(limit as usize));
        Ok::<_, StoreError>(Board {
            entries: newest
                .iter()
                .map(|(board, entry)| entry_view(board, entry))
                .collect(),
            more,
        })
    })?)
}

fn entry_view(board: &Chat, entry: &ChatEntry) -> BoardEntryView {
    BoardEntryView {
        message_id: format!("{}.{}", entry.chat, entry.seq),
        chat_id: entry.chat.0,
        board: board.title.clone(),
        key: entry.key.clone(),
        version: entry.revision + 1,
        from: entry.author.to_string(),
        name: shown_name(&entry.author, &entry.name, entry.label.as_deref()),
        at: rfc3339(entry.edited_at.unwrap_or(entry.at)),
        value: serde_json::from_slice(entry.text.as_bytes())
            .unwrap_or_else(|_| entry.text.clone().into()),
    }
}
