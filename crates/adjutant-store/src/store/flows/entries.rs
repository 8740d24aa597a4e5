//! Posting and revising chat entries. The index of the search and the outbox of the webhooks follow.

use crate::store::chats::{
    entry_of, insert_entry, keep_revision, note_author, note_change, remove_revisions, set_text,
};
use crate::store::ledger::announced_entries;
use crate::store::peers::note_peer_post;
use crate::store::search::{index_again, note_entry, unindex_entry};
use crate::store::webhooks::add_deliveries_of_entry;
use crate::store::{ChatEntry, NewEntry, Run, StoreError, Topic, Tx, entry_by_id};
use adjutant_core::chat::{ChatId, Participant, REMOVED_ANNOUNCEMENT};
use adjutant_core::{PeerName, Time};

impl Tx<'_> {
    /// Adds an entry and notifies the chat's waiters. The author becomes a participant, except an
    /// agent that only summarised or failed to answer.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_entry(&mut self, chat: ChatId, new: &NewEntry) -> Result<ChatEntry, StoreError> {
        self.add_entry_of(chat, new, self.now())
    }

    /// Like [`Tx::add_entry`], for an entry that was written at an earlier time.
    pub(super) fn add_entry_of(
        &mut self,
        chat: ChatId,
        new: &NewEntry,
        at: Time,
    ) -> Result<ChatEntry, StoreError> {
        let (seq, id) = insert_entry(self, chat, new, at)?;
        note_entry(self, id, at)?;
        add_deliveries_of_entry(self, id)?;
        note_author(self, chat, new, seq)?;
        self.notify(Topic::Chat(chat));
        self.notify(Topic::Outbox);
        entry_of(self.connection(), chat, seq)
    }

    /// Adds an entry that a peer posts under a key.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_peer_post(
        &mut self,
        chat: ChatId,
        peer: &PeerName,
        key: &str,
        entry: &NewEntry,
    ) -> Result<ChatEntry, StoreError> {
        let added = self.add_entry(chat, entry)?;
        note_peer_post(self, peer, key, added.id)?;
        Ok(added)
    }

    /// Replaces an entry's text and keeps the old version. `by` becomes the author of a board
    /// entry.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn revise_entry(
        &mut self,
        entry: &ChatEntry,
        text: &str,
        by: Option<(&Participant, &str)>,
    ) -> Result<ChatEntry, StoreError> {
        keep_revision(self, entry)?;
        unindex_entry(self, entry.id)?;
        set_text(self, entry, text, by)?;
        index_again(self, entry.id)?;
        note_change(self, entry)?;
        entry_of(self.connection(), entry.chat, entry.seq)
    }

    /// Removes a run's announcements from the boards. The entries stay without their text, because
    /// entries are numbered.
    pub(super) fn remove_from_boards(&mut self, run: &Run) -> Result<(), StoreError> {
        for id in announced_entries(self.connection(), run)? {
            if let Some(entry) = entry_by_id(self.connection(), id)? {
                self.revise_entry(&entry, REMOVED_ANNOUNCEMENT, None)?;
                remove_revisions(self, id)?;
            }
        }
        Ok(())
    }
}
