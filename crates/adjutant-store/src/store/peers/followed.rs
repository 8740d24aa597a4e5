//! Copies of chats of peers. An entry has the number that it has in the peer's chat, so the number
//! of the last entry is the position after which the copy continues. A page of entries and the new
//! position are one transaction.

use crate::store::db::{Connection, Record, params, row, select};
use crate::store::{NewEntry, StoreError, Topic, Tx, entry_by_seq};
use adjutant_core::chat::{ChatId, EntryKind, Participant, follows};
use adjutant_core::peer::{PeerParticipant, Speaker};
use adjutant_core::{Denied, PeerName, Time};

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
        self.refuse_waiting(chat, problem)?;
        self.notify(Topic::Peers);
        Ok(())
    }

    /// Continues a copy with a page that was read after entry `after`. Returns `false` if the copy
    /// was changed meanwhile, for instance ended; then nothing is done.
    ///
    /// # Errors
    /// The entries are not the next ones; or a failure of the store.
    pub fn continue_followed(
        &mut self,
        followed: &Followed,
        after: i64,
        page: &FollowedPage,
    ) -> Result<bool, StoreError> {
        let chat = followed.chat;
        let is_current = "SELECT 1 FROM followed_chats f JOIN peers p ON p.id = f.peer JOIN chats c ON c.id = f.chat
             WHERE f.chat = ?1 AND f.ended IS NULL AND p.blocked = 0 AND c.last_seq = ?2 AND f.changes = ?3";
        if !self
            .prepare(is_current)?
            .exists(params![chat.0, after, followed.changes])?
        {
            return Ok(false);
        }
        let mut last = after;
        for entry in &page.entries {
            if !follows(last, entry.seq) {
                return Err(Denied::invalid(
                    "entries",
                    format!("entry {} is not the next one, {}", entry.seq, last + 1),
                )
                .into());
            }
            if entry.seq > last + 1 {
                // The other hub left numbers out, because its database was set back.
                self.prepare("UPDATE chats SET last_seq = ?2 WHERE id = ?1")?
                    .run(params![chat.0, entry.seq - 1])?;
            }
            last = entry.seq;
            self.copy_entry(followed, entry)?;
        }
        for entry in &page.changed {
            self.change_copied(chat, after, entry)?;
        }
        let changes = page.changes.max(followed.changes);
        if changes != followed.changes || !page.entries.is_empty() {
            self.prepare(
                "UPDATE followed_chats SET mark = coalesce(?2, mark), changes = ?3 WHERE chat = ?1",
            )?
            .run(params![chat.0, page.mark, changes])?;
        }
        Ok(true)
    }

    fn copy_entry(&mut self, followed: &Followed, entry: &RemoteEntry) -> Result<(), StoreError> {
        let RemoteEntry {
            seq: _,
            kind,
            author,
            text,
            at,
            reply_to,
            pinned,
            key,
        } = entry;
        // An entry counts as posted here only with the text that was posted.
        let own = match key {
            Some(key) => self.take_posted(followed.chat, key, text)?,
            None => None,
        };
        let (author, name) = match own {
            Some(post) => (post.author, post.name),
            None => {
                let name = author.as_str().to_owned();
                (
                    Participant::Peer(PeerParticipant {
                        peer: followed.peer_name.clone(),
                        speaker: author.clone(),
                    }),
                    name,
                )
            }
        };
        let new = NewEntry {
            kind: *kind,
            author,
            name,
            label: None,
            text: text.clone(),
            reply_to: *reply_to,
            hops: 0,
            pinned: *pinned,
            key: None,
        };
        // The clock of the peer may be wrong; a time in the future is.
        self.add_entry_of(followed.chat, &new, (*at).min(self.now()))?;
        Ok(())
    }

    fn change_copied(
        &mut self,
        chat: ChatId,
        last: i64,
        changed: &RemoteEntry,
    ) -> Result<(), StoreError> {
        if changed.seq > last {
            return Err(Denied::invalid(
                "changed",
                format!("entry {} is not an earlier one", changed.seq),
            )
            .into());
        }
        let Some(mut entry) = entry_by_seq(self.connection(), chat, changed.seq)? else {
            return Ok(());
        };
        if entry.text != changed.text {
            entry = self.revise_entry(&entry, &changed.text, None)?;
        }
        if entry.pinned != changed.pinned {
            self.pin_entry(&entry, changed.pinned)?;
        }
        Ok(())
    }
}
