//! Reading chats. No query here scans a whole chat.

use super::{Chat, ChatEntry, ChatLink, Member, Revision};
use crate::store::StoreError;
use crate::store::db::{self, Connection, OptionalExtension, Row, params};
use adjutant_core::chat::{Budget, ChatId, ChatKind, EntryKind, Participant, Scope, Viewer};
use adjutant_core::limits::UNREAD_COUNTED_MAX;
use adjutant_core::{Principal, RunId, Time};

const CHAT: &str = "SELECT id, kind, title, owner, root, private, template, instructions, window_chars, turns_max, branch_of, branch_seq, archived,
  started_by, started_name, started_at, last_at, last_seq, said, branch_said, imported, window_tokens, importing IS NOT NULL, linked FROM chats c";
const ENTRY: &str = "SELECT id, chat, seq, kind, author, name, label, text, at, reply_to, hops, pinned, revision, edited_at, key FROM chat_messages";

/// Entries after a message among which a reply is looked for.
const SEARCHED_ENTRIES_MAX: i64 = 1_000;

fn read_chat(row: &Row<'_>) -> db::Result<Result<Chat, StoreError>> {
    let id: i64 = row.get(0)?;
    let (kind, owner, root, started_by): (String, String, Option<String>, String) =
        (row.get(1)?, row.get(3)?, row.get(4)?, row.get(13)?);
    let branch: (Option<i64>, Option<i64>) = (row.get(10)?, row.get(11)?);
    let root = root.map(|root| RunId::parse(&root)).transpose();
    let (Some(kind), Some(owner), Ok(root), Some(started_by)) = (
        ChatKind::from_word(&kind),
        Principal::parse(&owner),
        root,
        Participant::parse(&started_by),
    ) else {
        return Ok(Err(StoreError::Corrupt(format!("chat {id}"))));
    };
    Ok(Ok(Chat {
        id: ChatId(id),
        kind,
        title: row.get(2)?,
        scope: Scope { owner, root },
        private: row.get(5)?,
        template: row.get(6)?,
        instructions: row.get(7)?,
        window: match row.get::<Option<i64>>(21)? {
            Some(tokens) => Budget::Tokens(u64::try_from(tokens).unwrap_or(0)),
            None => Budget::Chars(u64::try_from(row.get::<i64>(8)?).unwrap_or(0)),
        },
        turns_max: row.get(9)?,
        branch_of: branch
            .0
            .zip(branch.1)
            .map(|(chat, seq)| (ChatId(chat), seq)),
        archived: row.get(12)?,
        started_by,
        started_name: row.get(14)?,
        started_at: Time(row.get(15)?),
        last_at: Time(row.get(16)?),
        last_seq: row.get(17)?,
        said: row.get(18)?,
        branch_said: row.get(19)?,
        imported: row.get(20)?,
        importing: row.get(22)?,
        link: row
            .get::<Option<String>>(23)?
            .as_deref()
            .and_then(ChatLink::from_word),
    }))
}

pub(in crate::store) fn read_entry(row: &Row<'_>) -> db::Result<Result<ChatEntry, StoreError>> {
    let id: i64 = row.get(0)?;
    let (kind, author): (String, String) = (row.get(3)?, row.get(4)?);
    let (Some(kind), Some(author)) = (EntryKind::from_word(&kind), Participant::parse(&author))
    else {
        return Ok(Err(StoreError::Corrupt(format!("entry {id} of a chat"))));
    };
    Ok(Ok(ChatEntry {
        id,
        chat: ChatId(row.get(1)?),
        seq: row.get(2)?,
        kind,
        author,
        name: row.get(5)?,
        label: row.get(6)?,
        text: row.get(7)?,
        at: Time(row.get(8)?),
        reply_to: row.get(9)?,
        hops: row.get(10)?,
        pinned: row.get(11)?,
        revision: row.get(12)?,
        edited_at: row.get::<Option<i64>>(13)?.map(Time),
        key: row.get(14)?,
    }))
}

pub(super) fn chats(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<Chat>, StoreError> {
    connection
        .prepare_cached(&format!("{CHAT} {rest}"))?
        .query_map(values, read_chat)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

pub(super) fn entries(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<ChatEntry>, StoreError> {
    connection
        .prepare_cached(&format!("{ENTRY} {rest}"))?
        .query_map(values, read_entry)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Reads one chat.
///
/// # Errors
/// A failure of the store.
pub fn chat_by_id(connection: &Connection, id: ChatId) -> Result<Option<Chat>, StoreError> {
    Ok(chats(connection, "WHERE id = ?1", [id.0])?.pop())
}

/// Finds the chat with a pair key.
///
/// # Errors
/// A failure of the store.
pub fn chat_by_pair(connection: &Connection, pair: &str) -> Result<Option<Chat>, StoreError> {
    Ok(chats(connection, "WHERE pair = ?1", [pair])?.pop())
}

/// Reads up to `limit` chats that a participant may see, newest entry first. `archived` selects archived chats,
/// active chats, or (`None`) all.
///
/// # Errors
/// A failure of the store.
pub fn chats_newest(
    connection: &Connection,
    viewer: &Viewer,
    archived: Option<bool>,
    limit: u32,
) -> Result<Vec<Chat>, StoreError> {
    let state = match archived {
        Some(true) => "importing IS NULL AND archived = 1",
        Some(false) => "importing IS NULL AND archived = 0",
        None => "importing IS NULL AND archived IN (0, 1)",
    };
    const MINE: &str = "EXISTS (SELECT 1 FROM chat_members m WHERE m.chat = c.id AND m.who = ?1 AND m.joined_at IS NOT NULL)";
    let order = "ORDER BY last_at DESC, id DESC LIMIT";
    let who = viewer.who.to_string();
    match &viewer.who {
        Principal::Person => chats(connection, &format!("WHERE {state} {order} ?1"), [limit]),
        Principal::Client(_) => chats(
            connection,
            &format!("WHERE {state} AND ((owner = ?1 AND private = 0) OR {MINE}) {order} ?2"),
            params![who, limit],
        ),
        Principal::Run(_) => chats(
            connection,
            &format!(
                "WHERE {state} AND owner = ?2 AND (kind <> 'board' OR root IS NULL OR root = ?3) AND (private = 0 OR {MINE}) {order} ?4"
            ),
            params![
                who,
                viewer.scope.owner.to_string(),
                viewer.scope.root.map(|root| root.to_string()),
                limit
            ],
        ),
    }
}

/// Returns the newest chats of other owners in which a principal participates.
///
/// # Errors
/// A failure of the store.
pub fn chats_of_others(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Vec<ChatId>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT m.chat FROM chat_members m JOIN chats c ON c.id = m.chat
             WHERE m.who = ?1 AND m.joined_at IS NOT NULL AND c.owner <> ?1 ORDER BY m.chat DESC LIMIT ?2",
        )?
        .query_map(params![who.to_string(), limit], |row| Ok(ChatId(row.get(0)?)))?
        .collect::<Result<_, _>>()?)
}

/// Reads the chats that branched from one.
///
/// # Errors
/// A failure of the store.
pub fn branches_of(connection: &Connection, chat: ChatId) -> Result<Vec<Chat>, StoreError> {
    chats(
        connection,
        "WHERE branch_of = ?1 ORDER BY id LIMIT 100",
        [chat.0],
    )
}

/// Reads the oldest entries after a position.
///
/// # Errors
/// A failure of the store.
pub fn entries_after(
    connection: &Connection,
    chat: ChatId,
    after: i64,
    limit: u32,
) -> Result<Vec<ChatEntry>, StoreError> {
    entries(
        connection,
        "WHERE chat = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        params![chat.0, after, limit],
    )
}

/// Reads the newest entries before a position, newest first.
///
/// # Errors
/// A failure of the store.
pub fn entries_before(
    connection: &Connection,
    chat: ChatId,
    before: i64,
    limit: u32,
) -> Result<Vec<ChatEntry>, StoreError> {
    entries(
        connection,
        "WHERE chat = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
        params![chat.0, before, limit],
    )
}

/// Reads the newest entries, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn entries_last(
    connection: &Connection,
    chat: ChatId,
    limit: u32,
) -> Result<Vec<ChatEntry>, StoreError> {
    let mut newest = entries_before(connection, chat, i64::MAX, limit)?;
    newest.reverse();
    Ok(newest)
}

/// Reads the entries that were changed after change number `after`, in the order of their changes, and the number
/// of the last change included.
///
/// # Errors
/// A failure of the store.
pub fn entries_changed(
    connection: &Connection,
    chat: ChatId,
    after: i64,
    limit: u32,
) -> Result<(Vec<ChatEntry>, i64), StoreError> {
    let changed: Vec<(i64, i64)> = connection
        .prepare_cached("SELECT seq, changed FROM chat_messages WHERE chat = ?1 AND changed > 0 AND changed > ?2 ORDER BY changed LIMIT ?3")?
        .query_map(params![chat.0, after, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let last = changed.last().map_or(after, |(_, change)| *change);
    let entries = changed
        .into_iter()
        .map(|(seq, _)| entry_by_seq(connection, chat, seq))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((entries.into_iter().flatten().collect(), last))
}

/// Returns the number of the newest change of a chat's entries.
///
/// # Errors
/// A failure of the store.
pub fn changes_of(connection: &Connection, chat: ChatId) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT changes FROM chats WHERE id = ?1")?
        .query_row([chat.0], |row| row.get(0))?)
}

/// Reads one entry.
///
/// # Errors
/// A failure of the store.
pub fn entry_by_seq(
    connection: &Connection,
    chat: ChatId,
    seq: i64,
) -> Result<Option<ChatEntry>, StoreError> {
    Ok(entries(
        connection,
        "WHERE chat = ?1 AND seq = ?2",
        params![chat.0, seq],
    )?
    .pop())
}

/// Reads the entry with an id.
///
/// # Errors
/// A failure of the store.
pub fn entry_by_id(connection: &Connection, id: i64) -> Result<Option<ChatEntry>, StoreError> {
    Ok(entries(connection, "WHERE id = ?1", [id])?.pop())
}

/// Reads the board entry with a key.
///
/// # Errors
/// A failure of the store.
pub fn entry_by_key(
    connection: &Connection,
    chat: ChatId,
    key: &str,
) -> Result<Option<ChatEntry>, StoreError> {
    Ok(entries(
        connection,
        "WHERE chat = ?1 AND key = ?2",
        params![chat.0, key],
    )?
    .pop())
}

/// Reads a run's reply to an entry: its first message after it that names the entry, or none.
///
/// # Errors
/// A failure of the store.
pub fn reply_of(
    connection: &Connection,
    chat: ChatId,
    seq: i64,
    run: RunId,
) -> Result<Option<ChatEntry>, StoreError> {
    let rest = "WHERE chat = ?1 AND seq > ?2 AND seq <= ?2 + ?4 AND author = ?3 AND kind = 'message' AND (reply_to IS NULL OR reply_to = ?2)
         ORDER BY reply_to IS NULL, seq LIMIT 1";
    Ok(entries(
        connection,
        rest,
        params![
            chat.0,
            seq,
            Principal::Run(run).to_string(),
            SEARCHED_ENTRIES_MAX
        ],
    )?
    .pop())
}

/// Reads pinned entries, newest first.
///
/// # Errors
/// A failure of the store.
pub fn pinned_entries(
    connection: &Connection,
    chat: ChatId,
    limit: u32,
) -> Result<Vec<ChatEntry>, StoreError> {
    entries(
        connection,
        "WHERE chat = ?1 AND pinned = 1 ORDER BY seq DESC LIMIT ?2",
        params![chat.0, limit],
    )
}

/// Reads the newest summary of a chat before an entry.
///
/// # Errors
/// A failure of the store.
pub fn newest_summary(
    connection: &Connection,
    chat: ChatId,
    before: i64,
) -> Result<Option<ChatEntry>, StoreError> {
    let sql = "WHERE chat = ?1 AND seq < ?2 AND kind = 'summary' AND (SELECT summary_seq FROM chats WHERE id = ?1) IS NOT NULL ORDER BY seq DESC LIMIT 1";
    Ok(entries(connection, sql, params![chat.0, before])?.pop())
}

/// Reads the earlier versions of an entry, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn revisions_of(connection: &Connection, entry: i64) -> Result<Vec<Revision>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT revision, author, name, text, at FROM chat_revisions WHERE message = ?1 ORDER BY revision")?
        .query_map([entry], |row| {
            Ok(Revision { revision: row.get(0)?, author: row.get(1)?, name: row.get(2)?, text: row.get(3)?, at: Time(row.get(4)?) })
        })?
        .collect::<Result<_, _>>()?)
}

fn read_member(row: &Row<'_>) -> db::Result<Result<Member, StoreError>> {
    let who: String = row.get(0)?;
    let Some(parsed) = Participant::parse(&who) else {
        return Ok(Err(StoreError::Corrupt(format!("participant {who}"))));
    };
    Ok(Ok(Member {
        who: parsed,
        name: row.get(1)?,
        joined_at: row.get::<Option<i64>>(2)?.map(Time),
        read_seq: row.get(3)?,
        mention_seq: row.get(4)?,
        said: row.get(5)?,
        seen_at: row.get::<Option<i64>>(6)?.map(Time),
    }))
}

/// Reads the participants of a chat in the order of joining.
///
/// # Errors
/// A failure of the store.
pub fn members(connection: &Connection, chat: ChatId) -> Result<Vec<Member>, StoreError> {
    members_where(connection, chat, "")
}

/// Reads the agents that participate in a chat or have read it, in the order of joining.
///
/// # Errors
/// A failure of the store.
pub fn agents_in(connection: &Connection, chat: ChatId) -> Result<Vec<Member>, StoreError> {
    // A range over the primary key: everything that begins with `agent:`.
    members_where(connection, chat, "AND who >= 'agent:' AND who < 'agent;'")
}

/// Returns the number of participants of a chat.
///
/// # Errors
/// A failure of the store.
pub fn participant_count(connection: &Connection, chat: ChatId) -> Result<u64, StoreError> {
    let count = "SELECT count(*) FROM chat_members WHERE chat = ?1 AND joined_at IS NOT NULL";
    let count: i64 = connection
        .prepare_cached(count)?
        .query_row([chat.0], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

fn members_where(
    connection: &Connection,
    chat: ChatId,
    which: &str,
) -> Result<Vec<Member>, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT who, name, joined_at, read_seq, mention_seq, said, seen_at FROM chat_members WHERE chat = ?1 {which}
             ORDER BY joined_at IS NULL, joined_at, who LIMIT 1000"
        ))?
        .query_map([chat.0], read_member)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Finds the author with this name or serialized id in any chat, or in any chat of one owner. Also finds removed
/// runs and agents that are no longer declared. If there are several, the most recent.
///
/// # Errors
/// A failure of the store.
pub fn past_author(
    connection: &Connection,
    owner: Option<&Principal>,
    given: &str,
) -> Result<Option<Participant>, StoreError> {
    let who: Option<String> = connection
        .prepare_cached(
            "SELECT m.who FROM chat_members m JOIN chats c ON c.id = m.chat
             WHERE (m.name = ?1 OR m.who IN (?1, 'agent:' || ?1, 'run:' || ?1)) AND m.said > 0 AND c.importing IS NULL AND (CAST(?2 AS TEXT) IS NULL OR c.owner = ?2) ORDER BY m.chat DESC LIMIT 1",
        )?
        .query_row(params![given, owner.map(ToString::to_string)], |row| row.get(0))
        .optional()?;
    Ok(who.and_then(|who| Participant::parse(&who)))
}

/// Reads one participant.
///
/// # Errors
/// A failure of the store.
pub fn member(
    connection: &Connection,
    chat: ChatId,
    who: &str,
) -> Result<Option<Member>, StoreError> {
    connection
        .prepare_cached("SELECT who, name, joined_at, read_seq, mention_seq, said, seen_at FROM chat_members WHERE chat = ?1 AND who = ?2")?
        .query_row(params![chat.0, who], read_member)
        .optional()?
        .transpose()
}

/// Counts the entries before one that a participant has not read and did not write, up to 1,000.
///
/// # Errors
/// A failure of the store.
pub fn unread_before(
    connection: &Connection,
    chat: ChatId,
    who: &str,
    before: i64,
) -> Result<i64, StoreError> {
    let read_seq = member(connection, chat, who)?.map_or(0, |member| member.read_seq);
    Ok(connection
        .prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM chat_messages WHERE chat = ?1 AND seq > ?2 AND seq < ?3 AND author <> ?4 LIMIT ?5) AS entries",
        )?
        .query_row(params![chat.0, read_seq, before, who, UNREAD_COUNTED_MAX], |row| row.get(0))?)
}

/// Counts the entries that a participant has not read and did not write, up to 1,000.
///
/// # Errors
/// A failure of the store.
pub fn unread(
    connection: &Connection,
    chat: ChatId,
    who: &str,
    read_seq: i64,
) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM chat_messages WHERE chat = ?1 AND seq > ?2 AND author <> ?3 LIMIT ?4) AS entries")?
        .query_row(params![chat.0, read_seq, who, UNREAD_COUNTED_MAX], |row| row.get(0))?)
}
