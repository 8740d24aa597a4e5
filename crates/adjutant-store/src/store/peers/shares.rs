//! Which peers may follow a chat of this hub, and what they have posted.

use crate::store::db::{Connection, params, row, select};
use crate::store::{ChatEntry, StoreError, Topic, Tx, entry_by_id};
use adjutant_core::PeerName;
use adjutant_core::chat::ChatId;

row! {
    /// One peer that may follow a chat.
    #[derive(Debug, Clone)]
    pub struct Share as s, named "peer {}" {
        pub peer: i64,
        pub name: PeerName = "p.name",
        pub read_only: bool,
    }
}

/// Reads the peers that may follow a chat, by name.
///
/// # Errors
/// A failure of the store.
pub fn shares_of(connection: &Connection, chat: ChatId) -> Result<Vec<Share>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            Share,
            "FROM chat_shares s JOIN peers p ON p.id = s.peer WHERE s.chat = ?1 ORDER BY p.name"
        ))?
        .read_rows([chat.0])?)
}

/// Returns whether a chat is shared with a peer: `Some(true)` if only for reading.
///
/// # Errors
/// A failure of the store.
pub fn share_for(
    connection: &Connection,
    chat: ChatId,
    peer: i64,
) -> Result<Option<bool>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT read_only FROM chat_shares WHERE chat = ?1 AND peer = ?2")?
        .find_row(params![chat.0, peer])?)
}

/// Returns up to `limit` chats that are shared with a peer, newest first, and whether only for
/// reading.
///
/// # Errors
/// A failure of the store.
pub fn shared_with(
    connection: &Connection,
    peer: i64,
    limit: u32,
) -> Result<Vec<(ChatId, bool)>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT chat, read_only FROM chat_shares WHERE peer = ?1 ORDER BY chat DESC LIMIT ?2",
        )?
        .read_rows(params![peer, limit])?)
}

/// Returns the key under which a peer posted an entry. `None`: it did not post it.
///
/// # Errors
/// A failure of the store.
pub fn own_key(
    connection: &Connection,
    peer: &PeerName,
    entry: i64,
) -> Result<Option<String>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT key FROM peer_posts WHERE message = ?1 AND peer = ?2")?
        .find_row(params![entry, peer.as_str()])?)
}

/// Records under which key a peer posted an entry.
pub(in crate::store) fn note_peer_post(
    tx: &mut Tx<'_>,
    peer: &PeerName,
    key: &str,
    entry: i64,
) -> Result<(), StoreError> {
    tx.prepare("INSERT INTO peer_posts (peer, key, message) VALUES (?1, ?2, ?3)")?
        .run(params![peer.as_str(), key, entry])?;
    Ok(())
}

impl Tx<'_> {
    /// Shares a chat with a peer.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn share_chat(
        &mut self,
        chat: ChatId,
        peer: i64,
        read_only: bool,
    ) -> Result<(), StoreError> {
        self.prepare(
            "INSERT INTO chat_shares (chat, peer, read_only) VALUES (?1, ?2, ?3) ON CONFLICT (chat, peer) DO UPDATE SET read_only = excluded.read_only",
        )?
        .run(params![chat.0, peer, read_only])?;
        note_shared(self, chat.0)?;
        self.notify(Topic::Peers);
        Ok(())
    }

    /// Ends the sharing of a chat with a peer.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn unshare_chat(&mut self, chat: ChatId, peer: i64) -> Result<(), StoreError> {
        self.prepare("DELETE FROM chat_shares WHERE chat = ?1 AND peer = ?2")?
            .run(params![chat.0, peer])?;
        note_shared(self, chat.0)?;
        self.notify(Topic::Peers);
        Ok(())
    }

    /// Returns the entry that a peer posted under a key.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn posted_by_peer(
        &self,
        peer: &PeerName,
        key: &str,
    ) -> Result<Option<ChatEntry>, StoreError> {
        let message: Option<i64> = self
            .prepare("SELECT message FROM peer_posts WHERE peer = ?1 AND key = ?2")?
            .find_row(params![peer.as_str(), key])?;
        message.map_or(Ok(None), |message| entry_by_id(self.connection(), message))
    }
}

/// Records at a chat whether it is shared.
pub(super) fn note_shared(tx: &Tx<'_>, chat: i64) -> Result<(), StoreError> {
    tx.prepare(
        "UPDATE chats SET linked = CASE WHEN EXISTS (SELECT 1 FROM chat_shares WHERE chat = ?1) THEN 'shared' END
         WHERE id = ?1 AND (linked IS NULL OR linked = 'shared')",
    )?
    .run([chat])?;
    Ok(())
}
