//! Continuing the copies of chats of peers: a page of entries and the new position are one
//! transaction.

use crate::store::chats::skip_to;
use crate::store::peers::{is_current, set_position, take_posted};
use crate::store::{Followed, FollowedPage, NewEntry, RemoteEntry, StoreError, Tx, entry_by_seq};
use adjutant_core::Denied;
use adjutant_core::chat::{ChatId, Participant, follows};
use adjutant_core::peer::PeerParticipant;

impl Tx<'_> {
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
        if !is_current(self.connection(), followed, after)? {
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
                skip_to(self, chat, entry.seq - 1)?;
            }
            last = entry.seq;
            self.copy_entry(followed, entry)?;
        }
        for entry in &page.changed {
            self.change_copied(chat, after, entry)?;
        }
        let changes = page.changes.max(followed.changes);
        if changes != followed.changes || !page.entries.is_empty() {
            set_position(self, chat, page.mark.as_deref(), changes)?;
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
            Some(key) => take_posted(self, followed.chat, key, text)?,
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
