//! Moves the chats of a tree of runs to another owner.
//!
//! A chat that was started in the tree moves with its history, unless a run of another tree
//! participates. In it, the new owner replaces the old one. The runs of the tree leave all other
//! chats.

use crate::store::db::params;
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::chat::ChatId;
use adjutant_core::{Principal, RunId};

/// Returns the pair key of a unique chat (a board or direct chat) under another owner.
fn moved_pair(pair: &str, from: &str, to: &str) -> Option<String> {
    if let Some(root) = pair
        .strip_prefix("board|")
        .and_then(|rest| rest.strip_prefix(from))
    {
        return Some(format!("board|{to}{root}"));
    }
    let ends = pair.strip_prefix(from)?.strip_prefix("||")?;
    let other = ends
        .strip_prefix(&format!("{from}|"))
        .or_else(|| ends.strip_suffix(&format!("|{from}")));
    Some(match other {
        None => format!("{to}||{ends}"),
        Some(other) if other < to => format!("{to}||{other}|{to}"),
        Some(other) => format!("{to}||{to}|{other}"),
    })
}

impl Tx<'_> {
    /// Moves the chats of a tree of runs to another owner with the display name `name`.
    ///
    /// # Errors
    /// A failure of the store.
    pub(crate) fn adopt_chats(
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
        let chats: Vec<(i64, Option<String>)> = self
            .prepare(
                "SELECT id, pair FROM chats c WHERE root = ?1 AND owner = ?2 AND NOT EXISTS (SELECT 1 FROM chat_members m
                   JOIN runs r ON r.id = substr(m.who, 5) WHERE m.chat = c.id AND m.who LIKE 'run:%' AND m.joined_at IS NOT NULL AND r.root <> ?1)",
            )?
            .read_rows([&root, &from])?;
        for (chat, pair) in chats {
            let pair = pair.and_then(|pair| moved_pair(&pair, &from, &to));
            let is_taken = "SELECT 1 FROM chats WHERE pair = ?1";
            if let Some(pair) = &pair
                && self.prepare(is_taken)?.exists([pair])?
            {
                continue;
            }
            self.unindex_chat(ChatId(chat))?;
            self.prepare("UPDATE chats SET owner = ?2, pair = ?3 WHERE id = ?1")?
                .run(params![chat, to, pair])?;
            self.index_chat_again(ChatId(chat))?;
            self.prepare(
                "INSERT INTO chat_members (chat, who, name, joined_at, read_seq, mention_seq, said, seen_at)
                 SELECT chat, ?3, ?4, ?5, read_seq, mention_seq, 0, seen_at FROM chat_members WHERE chat = ?1 AND who = ?2 AND joined_at IS NOT NULL
                 ON CONFLICT (chat, who) DO UPDATE SET joined_at = coalesce(chat_members.joined_at, excluded.joined_at)",
            )?
            .run(params![chat, from, to, name, self.now().0])?;
            self.prepare("UPDATE chat_members SET joined_at = NULL, mention_seq = smaller(mention_seq, read_seq) WHERE chat = ?1 AND who = ?2")?
                .run(params![chat, from])?;
            self.notify(Topic::Chat(ChatId(chat)));
        }
        self.prepare(
            "UPDATE chat_members SET joined_at = NULL, mention_seq = smaller(mention_seq, read_seq)
             WHERE who IN (SELECT 'run:' || id FROM runs WHERE root = ?1) AND chat IN (SELECT id FROM chats WHERE owner <> ?2)",
        )?
        .run([&root, &to])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_names_the_new_owner_in_order() {
        let moved = |pair: &str| moved_pair(pair, "client:/a|b", "person");
        assert_eq!(
            moved("board|client:/a|b|R").as_deref(),
            Some("board|person|R")
        );
        assert_eq!(
            moved("client:/a|b||client:/a|b|run:R").as_deref(),
            Some("person||person|run:R")
        );
        assert_eq!(
            moved("client:/a|b||agent:x|run:R").as_deref(),
            Some("person||agent:x|run:R")
        );
        assert_eq!(
            moved_pair("person||person|run:R", "person", "client:z").as_deref(),
            Some("client:z||client:z|run:R")
        );
        assert_eq!(
            moved_pair("person||agent:x|person", "person", "client:z").as_deref(),
            Some("client:z||agent:x|client:z")
        );
    }
}
