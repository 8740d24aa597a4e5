//! Moving chats to another owner.

use crate::store::db::{Connection, params};
use crate::store::{StoreError, Tx};
use adjutant_core::chat::ChatId;

/// Returns the pair key of a unique chat (a board or direct chat) under another owner.
pub(in crate::store) fn moved_pair(pair: &str, from: &str, to: &str) -> Option<String> {
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

/// Reads the chats of a tree that move to another owner, each with its pair key.
pub(in crate::store) fn chats_of_tree(
    connection: &Connection,
    root: &str,
    owner: &str,
) -> Result<Vec<(ChatId, Option<String>)>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT id, pair FROM chats c WHERE root = ?1 AND owner = ?2 AND NOT EXISTS (SELECT 1 FROM chat_members m
               JOIN runs r ON r.id = substr(m.who, 5) WHERE m.chat = c.id AND m.who LIKE 'run:%' AND m.joined_at IS NOT NULL AND r.root <> ?1)",
        )?
        .read_rows([root, owner])?)
}

/// Returns whether there is a chat with a pair key.
pub(in crate::store) fn is_pair_taken(
    connection: &Connection,
    pair: &str,
) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM chats WHERE pair = ?1")?
        .exists([pair])?)
}

/// Sets the owner of a chat, and its pair key.
pub(in crate::store) fn set_owner(
    tx: &mut Tx<'_>,
    chat: ChatId,
    owner: &str,
    pair: Option<&str>,
) -> Result<(), StoreError> {
    tx.prepare("UPDATE chats SET owner = ?2, pair = ?3 WHERE id = ?1")?
        .run(params![chat.0, owner, pair])?;
    Ok(())
}

/// Replaces a participant of a chat by another one, who has read what the first has read.
pub(in crate::store) fn replace_member(
    tx: &mut Tx<'_>,
    chat: ChatId,
    from: &str,
    to: &str,
    name: &str,
) -> Result<(), StoreError> {
    tx.prepare(
        "INSERT INTO chat_members (chat, who, name, joined_at, read_seq, mention_seq, said, seen_at)
         SELECT chat, ?3, ?4, ?5, read_seq, mention_seq, 0, seen_at FROM chat_members WHERE chat = ?1 AND who = ?2 AND joined_at IS NOT NULL
         ON CONFLICT (chat, who) DO UPDATE SET joined_at = coalesce(chat_members.joined_at, excluded.joined_at)",
    )?
    .run(params![chat.0, from, to, name, tx.now().0])?;
    tx.prepare("UPDATE chat_members SET joined_at = NULL, mention_seq = smaller(mention_seq, read_seq) WHERE chat = ?1 AND who = ?2")?
        .run(params![chat.0, from])?;
    Ok(())
}

/// Removes the runs of a tree from the chats of other owners.
pub(in crate::store) fn leave_chats_of_others(
    tx: &mut Tx<'_>,
    root: &str,
    owner: &str,
) -> Result<(), StoreError> {
    tx.prepare(
        "UPDATE chat_members SET joined_at = NULL, mention_seq = smaller(mention_seq, read_seq)
         WHERE who IN (SELECT 'run:' || id FROM runs WHERE root = ?1) AND chat IN (SELECT id FROM chats WHERE owner <> ?2)",
    )?
    .run([root, owner])?;
    Ok(())
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
