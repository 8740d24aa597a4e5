//! Copies of chats of peers. An entry has the number that it has in the peer's chat, so the number
//! of the last entry is the position after which the copy continues. A page of entries and the new
//! position are one transaction.

use super::outbox::refuse_waiting;
use crate::store::db::{Connection, Record, params, row, select};
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::chat::{ChatId, EntryKind};
use adjutant_core::peer::Speaker;
use adjutant_core::{PeerName, Time};

row! {
    /// The copy of a chat.
    #[derive(Debug, Clone)]
    pub struct Followed, named "followed chat {}" {
        pub chat: ChatId,
        /// `None`: the peer was removed.
        pub peer: Option<i64>,
        pub peer_name: PeerName,
        /// The chat's number on the peer.
        pub remote: i64,
        /// Identifies the last entry, as the peer has stated.
        pub mark: Option<String>,
        /// The last change of entries that the copy has.
        pub changes: i64,
        /// Why the copy is no longer updated.
        pub ended: Option<String>,
    }
}

/// Reads the copy of a chat.
///
/// # Errors
/// A failure of the store.
pub fn followed_chat(
    connection: &Connection,
    chat: ChatId,
) -> Result<Option<Followed>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Followed, "FROM followed_chats WHERE chat = ?1"))?
        .find_row([chat.0])?)
}

/// Reads the copies that are continued, also those of blocked peers.
///
/// # Errors
/// A failure of the store.
pub fn followed_chats(connection: &Connection) -> Result<Vec<Followed>, StoreError> {
    let sql = Followed::select("FROM followed_chats WHERE ended IS NULL ORDER BY chat");
    Ok(connection.prepare_cached(&sql)?.read_rows([])?)
}

/// Finds the copy of a peer's chat that is continued.
///
/// # Errors
/// A failure of the store.
pub fn followed_remote(
    connection: &Connection,
    peer: i64,
    remote: i64,
) -> Result<Option<Followed>, StoreError> {
    let sql =
        Followed::select("FROM followed_chats WHERE peer = ?1 AND remote = ?2 AND ended IS NULL");
    Ok(connection
        .prepare_cached(&sql)?
        .find_row(params![peer, remote])?)
}

/// Returns whether a chat of a peer that is not blocked is followed.
///
/// # Errors
/// A failure of the store.
pub fn has_followed(connection: &Connection) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM followed_chats f JOIN peers p ON p.id = f.peer WHERE f.ended IS NULL AND p.blocked = 0)";
    Ok(connection.prepare_cached(sql)?.read_row([])?)
}

/// An entry as the peer states it, after all checks.
#[derive(Debug, Clone)]
pub struct RemoteEntry {
    pub seq: i64,
    pub kind: EntryKind,
    pub author: Speaker,
    pub text: String,
    pub at: Time,
    pub reply_to: Option<i64>,
    pub pinned: bool,
    /// The key under which this hub posted it.
    pub key: Option<String>,
}

/// Entries that continue a copy.
#[derive(Debug, Clone)]
pub struct FollowedPage {
    pub entries: Vec<RemoteEntry>,
    /// Earlier entries that were edited or pinned.
    pub changed: Vec<RemoteEntry>,
    pub changes: i64,
    /// Identifies the last entry.
    pub mark: Option<String>,
}

/// Returns whether a copy is continued and was not changed since it was read, with `after` as its
/// last entry.
pub(in crate::store) fn is_current(
    connection: &Connection,
    followed: &Followed,
    after: i64,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM followed_chats f JOIN peers p ON p.id = f.peer JOIN chats c ON c.id = f.chat
             WHERE f.chat = ?1 AND f.ended IS NULL AND p.blocked = 0 AND c.last_seq = ?2 AND f.changes = ?3";
    Ok(connection
        .prepare_cached(sql)?
        .exists(params![followed.chat.0, after, followed.changes])?)
}

/// Records the position after which a copy continues.
pub(in crate::store) fn set_position(
    tx: &mut Tx<'_>,
    chat: ChatId,
    mark: Option<&str>,
    changes: i64,
) -> Result<(), StoreError> {
    tx.prepare(
        "UPDATE followed_chats SET mark = coalesce(?2, mark), changes = ?3 WHERE chat = ?1",
    )?
    .run(params![chat.0, mark, changes])?;
    Ok(())
}

impl Tx<'_> {
    /// Makes a new chat the copy of a peer's chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn follow_chat(
        &mut self,
        chat: ChatId,
        peer: i64,
        name: &PeerName,
        remote: i64,
    ) -> Result<(), StoreError> {
        self.prepare(
            "INSERT INTO followed_chats (chat, peer, peer_name, remote) VALUES (?1, ?2, ?3, ?4)",
        )?
        .run(params![chat.0, peer, name.as_str(), remote])?;
        self.prepare("UPDATE chats SET linked = 'followed' WHERE id = ?1")?
            .run([chat.0])?;
        self.notify(Topic::Peers);
        Ok(())
    }

    /// Ends a copy, which stays as it is. Posts that wait are refused.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn end_followed(&mut self, chat: ChatId, problem: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE followed_chats SET ended = ?2 WHERE chat = ?1 AND ended IS NULL")?
            .run(params![chat.0, problem])?;
        refuse_waiting(self, chat, problem)?;
        self.notify(Topic::Peers);
        Ok(())
    }
}
