//! What a peer reaches on this hub: the chats that are shared with it. Each call checks in its own
//! transaction that the peer is not blocked and the chat is shared. Anything else is unknown to the
//! peer, whether it exists or not.

use crate::failpoint::failpoint;
use crate::ops::OpError;
use crate::ops::chats::storable;
use crate::protocol::peer::{
    KEY_BYTES_MAX, PostOutcome, PostShared, ReadShared, SharedChat, SharedEntry, SharedList,
    SharedPage, WAIT_MS_MAX,
};
use crate::store::{
    Chat, ChatEntry, Connection, NewEntry, Peer, Store, StoreError, Topic, changes_of, chat_by_id,
    entries_after, entries_changed, entry_by_seq, own_key, peer_by_token, peer_speakers, share_for,
    shared_with,
};
use adjutant_core::chat::{ChatId, EntryKind, Participant, checked_message};
use adjutant_core::peer::{PeerParticipant, SPEAKERS_MAX, Speaker};
use adjutant_core::{Denied, Principal};
use tokio::time::Instant;

/// Maximum number of chats in a list.
const CHATS_MAX: u32 = 1_000;
/// Maximum number of entries and of changed entries in a page.
const PAGE_ENTRIES: usize = 200;
const PAGE_CHANGED: u32 = 20;
/// Entries that are read at once: their texts can be long.
const ENTRIES_AT_ONCE: u32 = 8;
/// Maximum text in a page, in bytes; a single larger entry is still sent.
const PAGE_BYTES_MAX: usize = 512 * 1024;

/// Lists the chats that are shared with the peer that presents a token.
///
/// # Errors
/// A failure of the store.
pub fn shared_chats(store: &Store, token: i64) -> Result<SharedList, OpError> {
    Ok(store.read(|connection| {
        let Some(peer) = peer_by_token(connection, token)?.filter(|peer| !peer.blocked) else {
            return Ok(SharedList::default());
        };
        let mut chats = Vec::new();
        for (id, read_only) in shared_with(connection, peer.id, CHATS_MAX)? {
            if let Some(chat) = chat_by_id(connection, id)? {
                chats.push(SharedChat {
                    chat: id.0,
                    title: chat.title,
                    read_only,
                    archived: chat.archived,
                    last_seq: chat.last_seq,
                });
            }
        }
        Ok::<_, StoreError>(SharedList { chats })
    })?)
}

/// Reads entries of a shared chat, waiting for new ones if there are none. The wait ends at
/// once when the sharing ends.
///
/// # Errors
/// The chat is not shared with the peer.
pub async fn shared_entries(
    store: &Store,
    token: i64,
    call: ReadShared,
) -> Result<SharedPage, OpError> {
    let deadline = crate::ops::end_of_wait(call.wait_ms.min(WAIT_MS_MAX));
    let subscription = store
        .wake_ups()
        .subscribe(vec![Topic::Chat(ChatId(call.chat)), Topic::Peers]);
    loop {
        let page = store.read(|connection| page(connection, token, &call))?;
        let has_changed = page.diverged || !page.entries.is_empty() || page.changes > call.changes;
        if has_changed || Instant::now() >= deadline {
            return Ok(page);
        }
        // At the deadline, the next page is the reply.
        tokio::time::timeout_at(deadline, subscription.wait())
            .await
            .ok();
    }
}

/// Adds a post of a peer to a shared chat, once for each key.
///
/// # Errors
/// The chat is not shared with the peer; or a failure of the store. A post that can never be
/// accepted is an outcome.
pub async fn post_shared(
    store: &Store,
    token: i64,
    call: PostShared,
) -> Result<PostOutcome, OpError> {
    failpoint!("peer.before_post");
    if call.key.is_empty()
        || call.key.len() > KEY_BYTES_MAX
        || !call.key.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(Denied::invalid(
            "key",
            format!("use 1 to {KEY_BYTES_MAX} visible ASCII characters"),
        )
        .into());
    }
    let posted = store.write(move |tx| {
        let (peer, chat, read_only) = shared(tx.connection(), token, call.chat)?;
        if let Some(entry) = tx.posted_by_peer(&peer.name, &call.key)? {
            let is_same = entry.chat == chat.id;
            return Ok(if is_same {
                Ok(entry.seq)
            } else {
                Err("the key was used in another chat".to_owned())
            });
        }
        let entry = match new_entry(tx.connection(), &peer, &chat, read_only, &call) {
            Ok(entry) => entry,
            Err(StoreError::Denied(denied)) => return Ok(Err(denied.to_string())),
            Err(error) => return Err(error),
        };
        let who = entry.author.to_string();
        let (speakers, is_known) = peer_speakers(tx.connection(), chat.id, &peer.name, &who)?;
        if !is_known && speakers >= SPEAKERS_MAX {
            let limit = Denied::Limit {
                what: "participants of one hub in a chat",
                limit: SPEAKERS_MAX,
            };
            return Ok(Err(limit.to_string()));
        }
        Ok(Ok(tx
            .add_peer_post(chat.id, &peer.name, &call.key, &entry)?
            .seq))
    });
    let posted = posted.await?;
    failpoint!("peer.after_post");
    Ok(match posted {
        Ok(seq) => PostOutcome {
            seq: Some(seq),
            refused: None,
        },
        Err(refused) => PostOutcome {
            seq: None,
            refused: Some(refused),
        },
    })
}

/// Finds a chat that is shared with the peer that presents a token, and whether only for reading.
fn shared(
    connection: &Connection,
    token: i64,
    chat: i64,
) -> Result<(Peer, Chat, bool), StoreError> {
    let not_found = || StoreError::from(Denied::not_found("chat", &chat.to_string()));
    let peer = peer_by_token(connection, token)?
        .filter(|peer| !peer.blocked)
        .ok_or_else(not_found)?;
    let read_only = share_for(connection, ChatId(chat), peer.id)?.ok_or_else(not_found)?;
    let chat = chat_by_id(connection, ChatId(chat))?.ok_or_else(not_found)?;
    Ok((peer, chat, read_only))
}

fn new_entry(
    connection: &Connection,
    peer: &Peer,
    chat: &Chat,
    read_only: bool,
    call: &PostShared,
) -> Result<NewEntry, StoreError> {
    if read_only {
        return Err(Denied::conflict("chat", "it is shared with this hub for reading only").into());
    }
    if chat.archived {
        return Err(Denied::conflict("chat", "it is archived").into());
    }
    let speaker = Speaker::parse_own(&call.participant)?;
    checked_message(&call.text)?;
    if let Some(seq) = call.reply_to {
        entry_by_seq(connection, chat.id, seq)?
            .ok_or_else(|| Denied::not_found("message", &format!("{}.{seq}", chat.id)))?;
    }
    let author = PeerParticipant {
        peer: peer.name.clone(),
        speaker,
    };
    Ok(NewEntry {
        kind: EntryKind::Message,
        name: author.to_string(),
        author: Participant::Peer(author),
        label: None,
        text: storable(&call.text),
        reply_to: call.reply_to,
        hops: 0,
        pinned: false,
        key: None,
    })
}

fn page(connection: &Connection, token: i64, call: &ReadShared) -> Result<SharedPage, StoreError> {
    let (peer, chat, _) = shared(connection, token, call.chat)?;
    let newest_change = changes_of(connection, chat.id)?;
    let last = if call.after > 0 {
        entry_by_seq(connection, chat.id, call.after)?
    } else {
        None
    };
    let is_continued = call.after == 0
        || last
            .as_ref()
            .is_some_and(|last| call.mark.as_ref() == Some(&mark_of(last)));
    if !is_continued || call.changes > newest_change || call.after < 0 {
        return Ok(SharedPage {
            diverged: true,
            ..SharedPage::default()
        });
    }
    // The changes first: what changes meanwhile is then in the entries, or in the next page.
    let (changed, changes) = if call.after == 0 {
        // The first page has all entries as they are now; changes of later pages' entries are in
        // these pages.
        (Vec::new(), newest_change)
    } else {
        changed_entries(connection, &chat, call)?
    };
    let entries = next_entries(connection, &chat, call.after, &changed)?;
    let mark = entries.last().or(last.as_ref()).map(mark_of);
    let send = |entries: Vec<ChatEntry>| {
        entries
            .into_iter()
            .map(|entry| shared_entry(connection, &peer, entry))
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(SharedPage {
        diverged: false,
        entries: send(entries)?,
        changed: send(changed)?,
        changes,
        mark,
    })
}

/// Returns the changed entries that the caller has, and the last change that they include.
fn changed_entries(
    connection: &Connection,
    chat: &Chat,
    call: &ReadShared,
) -> Result<(Vec<ChatEntry>, i64), StoreError> {
    // One at a time, so that the page and its last change stay within the limit of bytes.
    let (mut changed, mut last, mut bytes) = (Vec::new(), call.changes, 0);
    for _ in 0..PAGE_CHANGED {
        let (found, change) = entries_changed(connection, chat.id, last, 1)?;
        let Some(entry) = found.into_iter().next() else {
            break;
        };
        bytes += entry.text.len();
        if bytes > PAGE_BYTES_MAX && !changed.is_empty() {
            break;
        }
        last = change;
        if entry.seq <= call.after {
            changed.push(entry);
        }
    }
    Ok((changed, last))
}

/// Identifies an entry: a chat that was restored from a backup has another entry with this number,
/// or none.
fn mark_of(entry: &ChatEntry) -> String {
    format!("{}.{}", entry.seq, entry.at.0)
}

/// Returns the next entries, with the changed ones within the limit of bytes: at least one entry if
/// nothing has changed.
fn next_entries(
    connection: &Connection,
    chat: &Chat,
    after: i64,
    changed: &[ChatEntry],
) -> Result<Vec<ChatEntry>, StoreError> {
    let (mut entries, mut after) = (Vec::new(), after);
    let mut bytes: usize = changed.iter().map(|entry| entry.text.len()).sum();
    while entries.len() < PAGE_ENTRIES {
        let found = entries_after(connection, chat.id, after, ENTRIES_AT_ONCE)?;
        if found.is_empty() {
            break;
        }
        for entry in found {
            bytes += entry.text.len();
            if bytes > PAGE_BYTES_MAX && !(entries.is_empty() && changed.is_empty()) {
                return Ok(entries);
            }
            after = entry.seq;
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn shared_entry(
    connection: &Connection,
    peer: &Peer,
    entry: ChatEntry,
) -> Result<SharedEntry, StoreError> {
    let is_own = matches!(&entry.author, Participant::Peer(author) if author.peer == peer.name);
    let key = if is_own {
        own_key(connection, &peer.name, entry.id)?
    } else {
        None
    };
    Ok(SharedEntry {
        seq: entry.seq,
        kind: entry.kind.word().to_owned(),
        author: speaker_of(&entry.author, &entry.name),
        text: entry.text,
        at_ms: entry.at.0,
        reply_to: entry.reply_to,
        pinned: entry.pinned,
        key,
    })
}

/// Returns the name of a participant for other hubs. Names that a client or a run can have do not
/// occur as those of others.
pub(super) fn speaker_of(who: &Participant, name: &str) -> String {
    let named = |name: &str| Speaker::of_name(name).as_str().to_owned();
    match who {
        Participant::Principal(Principal::Person) => "person".to_owned(),
        Participant::Principal(Principal::Client(_)) => named(&format!("client.{name}")),
        Participant::Principal(Principal::Run(_)) => named(&format!("run.{name}")),
        // No other participant can have the bare name of an agent.
        Participant::Agent(agent) if matches!(agent.as_str(), "person" | "hub") => {
            named(&format!("agent.{agent}"))
        }
        Participant::Agent(agent) => named(agent.as_str()),
        Participant::Hub => "hub".to_owned(),
        Participant::Peer(remote) => remote.to_string(),
        Participant::FromFile(_) => named(&format!("file.{name}")),
    }
}
