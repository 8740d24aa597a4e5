//! Delivering messages and reading chats. A message can carry a chat entry, and each counts as read
//! with the other.

use crate::store::chats::advance_read_cursor;
use crate::store::messages::{mark_delivered, messages_with_entries, set_message_read};
use crate::store::{Run, StoreError, Tx, append_event, entry_by_id};
use adjutant_core::chat::{ChatId, Participant};
use adjutant_core::{EventKind, Principal, RunId};

impl Tx<'_> {
    /// Advances a participant's read cursor over the entries `first` to `seq`, unless unread
    /// entries of other authors precede them. It never moves back.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn read_chat(
        &mut self,
        chat: ChatId,
        who: &Participant,
        name: &str,
        first: i64,
        seq: i64,
    ) -> Result<(), StoreError> {
        if let Participant::Principal(Principal::Run(run)) = who {
            self.deliver_entries(*run, chat, first, seq)?;
        }
        advance_read_cursor(self, chat, who, name, first, seq)
    }

    /// Marks queued messages as delivered; repeating the call has no effect. A chat entry that a
    /// message carries then counts as read.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn deliver_messages(
        &mut self,
        run: &Run,
        ids: &[String],
        how: &'static str,
    ) -> Result<(), StoreError> {
        for id in ids {
            let Some(entry) = mark_delivered(self, run.id, id, how)? else {
                continue;
            };
            if let Some(entry) = entry
                .map(|entry| entry_by_id(self.connection(), entry))
                .transpose()?
                .flatten()
            {
                let reader = Participant::Principal(Principal::Run(run.id));
                self.read_chat(entry.chat, &reader, &run.name, entry.seq, entry.seq)?;
            }
            let seq = append_event(
                self,
                EventKind::MessageDelivered,
                run.id,
                &run.owner.to_string(),
                None,
                "supervisor",
                how,
            )?;
            self.touch(run.id, seq)?;
        }
        Ok(())
    }

    /// Marks messages as delivered if the run has read their entries in the chat.
    fn deliver_entries(
        &mut self,
        run: RunId,
        chat: ChatId,
        first: i64,
        last: i64,
    ) -> Result<(), StoreError> {
        let ids = messages_with_entries(self.connection(), run, chat, first, last)?;
        if ids.is_empty() {
            return Ok(());
        }
        let run = self.run(run)?;
        self.deliver_messages(&run, &ids, "tool_result")?;
        for id in ids {
            set_message_read(self, &id)?;
        }
        Ok(())
    }
}
