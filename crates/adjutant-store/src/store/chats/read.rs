//! Reading chats. No query here scans a whole chat.

use crate::store::StoreError;
use crate::store::db::{self, Connection, Record, params, select};
use crate::store::records::chat::{Chat, ChatEntry, Member, Revision};
use adjutant_core::chat::{ChatId, Participant, Viewer};
use adjutant_core::limits::UNREAD_COUNTED_MAX;
use adjutant_core::{PeerName, Principal, RunId};

/// Entries after a message among which a reply is looked for.
const SEARCHED_ENTRIES_MAX: i64 = 1_000;

pub(super) fn chats(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<Chat>, StoreError> {
    Ok(connection
        .prepare_cached(&Chat::select(&format!("FROM chats c {rest}")))?
        .read_rows(values)?)
}

pub(super) fn entries(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<ChatEntry>, StoreError> {
    Ok(connection
        .prepare_cached(&ChatEntry::select(&format!("FROM chat_messages m {rest}")))?
        .read_rows(values)?)
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

/// Reads up to `limit` chats that a participant may see, newest entry first. `archived` selects
/// archived chats, active chats, or (`None`) all.
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
pub(crate) fn chats_of_others(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Vec<ChatId>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT m.chat FROM chat_members m JOIN chats c ON c.id = m.chat
             WHERE m.who = ?1 AND m.joined_at IS NOT NULL AND c.owner <> ?1 ORDER BY m.chat DESC LIMIT ?2",
        )?
        .read_rows(params![who.to_string(), limit])?)
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

/// Reads the entries that were changed after change number `after`, in the order of their changes,
/// and the number of the last change included.
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
        .read_rows(params![chat.0, after, limit])?;
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
        .read_row([chat.0])?)
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
pub(crate) fn revisions_of(
    connection: &Connection,
    entry: i64,
) -> Result<Vec<Revision>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            Revision,
            "FROM chat_revisions WHERE message = ?1 ORDER BY revision"
        ))?
        .read_rows([entry])?)
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
    let count: i64 = connection.prepare_cached(count)?.read_row([chat.0])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

fn members_where(
    connection: &Connection,
    chat: ChatId,
    which: &str,
) -> Result<Vec<Member>, StoreError> {
    Ok(connection
        .prepare_cached(&Member::select(&format!(
            "FROM chat_members WHERE chat = ?1 {which} ORDER BY joined_at IS NULL, joined_at, who LIMIT 1000"
        )))?
        .read_rows([chat.0])?)
}

/// Finds the author with this name or serialized id in any chat, or in any chat of one owner. Also
/// finds removed runs and agents that are no longer declared. If there are several, the most
/// recent.
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
        .find_row(params![given, owner.map(ToString::to_string)])?;
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
    Ok(connection
        .prepare_cached(select!(
            Member,
            "FROM chat_members WHERE chat = ?1 AND who = ?2"
        ))?
        .find_row(params![chat.0, who])?)
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
        .read_row(params![chat.0, read_seq, before, who, UNREAD_COUNTED_MAX])?)
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
        .read_row(params![chat.0, read_seq, who, UNREAD_COUNTED_MAX])?)
}

/// Returns the number of participants of a peer in a chat, and whether `who` is one of them.
///
/// # Errors
/// A failure of the store.
pub fn peer_speakers(
    connection: &Connection,
    chat: ChatId,
    peer: &PeerName,
    who: &str,
) -> Result<(u64, bool), StoreError> {
    // A range over the primary key: everything that begins with `peer:<name>/`.
    let (first, end) = (format!("peer:{peer}/"), format!("peer:{peer}0"));
    let count: i64 = connection
        .prepare_cached(
            "SELECT count(*) FROM chat_members WHERE chat = ?1 AND who >= ?2 AND who < ?3",
        )?
        .read_row(params![chat.0, first, end])?;
    let is_known = connection
        .prepare_cached("SELECT 1 FROM chat_members WHERE chat = ?1 AND who = ?2")?
        .exists(params![chat.0, who])?;
    Ok((u64::try_from(count).unwrap_or(0), is_known))
}
