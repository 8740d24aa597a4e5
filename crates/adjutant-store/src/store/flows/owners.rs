//! Changes of who owns runs, and removing them.

use crate::store::chats::{
    chats_of_tree, is_pair_taken, leave_chats_of_others, moved_pair, replace_member, set_owner,
};
use crate::store::db::params;
use crate::store::search::{index_chat_again, unindex_chat};
use crate::store::{Run, StoreError, Topic, Tx, append_event};
use adjutant_core::{Denied, EventKind, Principal, RunId};

impl Tx<'_> {
    /// Moves a tree of runs and its chats to another owner, who has the display name `name` in the
    /// chats.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn adopt(
        &mut self,
        root: &Run,
        owner: &Principal,
        name: &str,
        by: &Principal,
    ) -> Result<Run, StoreError> {
        let text = format!("from {} to {owner}", root.owner);
        self.prepare("UPDATE runs SET owner = ?2 WHERE root = ?1")?
            .run(params![root.root.to_string(), owner.to_string()])?;
        self.adopt_chats(root.root, &root.owner, owner, name)?;
        let seq = append_event(
            self,
            EventKind::RunAdopted,
            root.id,
            &owner.to_string(),
            None,
            &by.to_string(),
            &text,
        )?;
        self.notify(Topic::Owner(root.owner.to_string()));
        self.touch(root.id, seq)?;
        self.run(root.id)
    }

    /// Removes a finished run and everything about it.
    ///
    /// # Errors
    /// The run has not finished.
    pub fn remove(&mut self, run: &Run) -> Result<(), StoreError> {
        if !run.state.is_finished() {
            return Err(Denied::WrongState {
                run: run.name.clone(),
                state: run.state.word(),
                wanted: "removed",
            }
            .into());
        }
        self.remove_from_boards(run)?;
        self.prepare("DELETE FROM runs WHERE id = ?1")?
            .run([run.id.to_string()])?;
        // The file with its variables is no longer needed.
        self.notify(Topic::Turns);
        Ok(())
    }

    /// Moves the chats of a tree of runs to another owner with the display name `name`.
    ///
    /// A chat that was started in the tree moves with its history, unless a run of another tree
    /// participates. In it, the new owner replaces the old one. The runs of the tree leave all
    /// other chats.
    fn adopt_chats(
        &mut self,
        root: RunId,
        from: &Principal,
        to: &Principal,
        name: &str,
    ) -> Result<(), StoreError> {
        if from == to {
            return Ok(());
        }
        let (root, from, to) = (root.to_string(), from.to_string(), to.to_string());
        for (chat, pair) in chats_of_tree(self.connection(), &root, &from)? {
            let pair = pair.and_then(|pair| moved_pair(&pair, &from, &to));
            if let Some(pair) = &pair
                && is_pair_taken(self.connection(), pair)?
            {
                continue;
            }
            unindex_chat(self, chat)?;
            set_owner(self, chat, &to, pair.as_deref())?;
            index_chat_again(self, chat)?;
            replace_member(self, chat, &from, &to, name)?;
            self.notify(Topic::Chat(chat));
        }
        leave_chats_of_others(self, &root, &to)
    }
}
