//! Importing the entries of chats, and removing those of abandoned imports. The index of the search
//! follows.

use crate::store::chats::{
    abandoned_import, entries_to_remove, insert_imported, insert_revisions, remove_chat,
    remove_entry, shorten_import,
};
use crate::store::search::{note_entry, unindex_entry};
use crate::store::{Imported, StoreError, Tx};
use adjutant_core::SteadyTime;
use adjutant_core::chat::ChatId;

impl Tx<'_> {
    /// Adds an entry to an imported chat, unchanged.
    ///
    /// # Errors
    /// The entry is not the next one.
    pub fn import_entry(&mut self, chat: ChatId, imported: &Imported) -> Result<(), StoreError> {
        let Imported { entry, revisions } = imported;
        let id = insert_imported(self, chat, entry)?;
        note_entry(self, id, entry.at)?;
        insert_revisions(self, id, revisions)
    }

    /// Removes some entries of an abandoned import, one without progress since `before`. Returns
    /// whether there may be more to remove.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_imports(&mut self, before: SteadyTime) -> Result<bool, StoreError> {
        let Some(chat) = abandoned_import(self.connection(), before)? else {
            return Ok(false);
        };
        let newest = entries_to_remove(self.connection(), chat)?;
        for (id, _) in &newest {
            unindex_entry(self, *id)?;
            remove_entry(self, *id)?;
        }
        match newest.last() {
            Some((_, seq)) => shorten_import(self, chat, *seq)?,
            None => remove_chat(self, chat)?,
        }
        Ok(true)
    }
}
