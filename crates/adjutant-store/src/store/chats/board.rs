//! Boards: entries by key, with versions.

use super::read::{chats, entries};
use crate::store::StoreError;
use crate::store::db::{Connection, params};
use crate::store::records::chat::{Chat, ChatEntry};
use adjutant_core::Principal;
use adjutant_core::chat::{
    BOARD_ENTRIES_MAX, ChatId, LEDGER_KEY_PREFIX, REMOVED_ANNOUNCEMENT, Viewer,
};

/// Lists the boards that a viewer may see, the one with the newest entry first.
///
/// # Errors
/// A failure of the store.
pub fn boards(
    connection: &Connection,
    viewer: &Viewer,
    limit: u32,
) -> Result<Vec<Chat>, StoreError> {
    const ORDER: &str = "ORDER BY last_at DESC, id DESC LIMIT";
    match &viewer.who {
        Principal::Person => chats(
            connection,
            &format!("WHERE kind = 'board' AND importing IS NULL {ORDER} ?1"),
            [limit],
        ),
        Principal::Client(_) | Principal::Run(_) => chats(
            connection,
            &format!(
                "WHERE kind = 'board' AND importing IS NULL AND owner = ?1 AND (root IS NULL OR CAST(?2 AS TEXT) IS NULL OR root = ?2) {ORDER} ?3"
            ),
            params![
                viewer.scope.owner.to_string(),
                viewer.scope.root.map(|root| root.to_string()),
                limit
            ],
        ),
    }
}

/// Counts the entries of a board towards its limit. The removed announcements of a board that is
/// far from it are counted too.
///
/// # Errors
/// A failure of the store.
pub fn board_size(connection: &Connection, board: &Chat) -> Result<i64, StoreError> {
    if board.last_seq < BOARD_ENTRIES_MAX / 2 {
        return Ok(board.last_seq);
    }
    let sql = format!(
        "SELECT count(*) FROM chat_messages WHERE chat = ?1 AND substr(key, 1, {}) = '{LEDGER_KEY_PREFIX}' AND text = '{REMOVED_ANNOUNCEMENT}'",
        LEDGER_KEY_PREFIX.len()
    );
    let removed: i64 = connection.prepare_cached(&sql)?.read_row([board.id.0])?;
    Ok(board.last_seq - removed)
}

/// Reads the entries of a board that were added or changed last, at least `limit` of them if there
/// are as many.
///
/// # Errors
/// A failure of the store.
pub fn board_entries(
    connection: &Connection,
    board: ChatId,
    limit: u32,
) -> Result<Vec<ChatEntry>, StoreError> {
    let kind = format!(
        "kind = 'message' AND NOT (substr(coalesce(key, ''), 1, {}) = '{LEDGER_KEY_PREFIX}' AND text = '{REMOVED_ANNOUNCEMENT}')",
        LEDGER_KEY_PREFIX.len()
    );
    let mut all = entries(
        connection,
        &format!("WHERE chat = ?1 AND {kind} ORDER BY seq DESC LIMIT ?2"),
        params![board.0, limit],
    )?;
    let changed =
        format!("WHERE chat = ?1 AND changed > 0 AND {kind} ORDER BY changed DESC LIMIT ?2");
    for entry in entries(connection, &changed, params![board.0, limit])? {
        if all.iter().all(|known| known.id != entry.id) {
            all.push(entry);
        }
    }
    Ok(all)
}
