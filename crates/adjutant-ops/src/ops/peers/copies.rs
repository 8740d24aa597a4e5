//! Copies of chats of peers: starting and ending them, and continuing them with the entries that
//! arrive.

use super::{Peers, known};
use crate::clock;
use crate::config::Config;
use crate::failpoint::failpoint;
use crate::ops::chats::{ChatCaller, Presence, shown_chat, storable};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, Ops, lookup};
use crate::peer::{PeerError, PeerHub};
use crate::protocol::peer::{KEY_BYTES_MAX, ReadShared, SharedEntry, SharedPage};
use crate::store::{
    Connection, Followed, FollowedPage, NewChat, Peer, RemoteEntry, Store, StoreError, Tx,
    chat_by_id, followed_chat, followed_chats, followed_remote, has_followed, peer_by_id,
    peer_by_name,
};
use crate::view::{ChatView, FollowChat, UnfollowChat};
use adjutant_core::chat::{
    ChatId, ChatKind, EntryKind, MESSAGE_BYTES_MAX, Participant, Scope, checked_title,
};
use adjutant_core::peer::{FOLLOWED_MAX, FOLLOWED_OF_PEER_MAX, PeerParticipant, Speaker};
use adjutant_core::{Action, ClientName, Denied, Principal, Time};

/// Maximum number of entries that are accepted in one page.
const PAGE_ENTRIES_MAX: usize = 1_000;
/// Longest text of an entry that is accepted, in bytes.
const TEXT_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 64 * 1024;

/// The result of one step of continuing a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowStep {
    /// The copy has new entries or changes; the next step can follow at once.
    Continued,
    /// The peer had nothing new.
    Nothing,
    /// The copy is no longer updated.
    Ended,
}

/// A copy to start.
struct NewCopy {
    title: String,
    owner: Principal,
    /// The number of the chat at the peer.
    remote: i64,
}

fn start_copy(
    tx: &mut Tx<'_>,
    config: &Config,
    peer: &Peer,
    copy: NewCopy,
) -> Result<ChatId, StoreError> {
    let NewCopy {
        title,
        owner,
        remote,
    } = copy;
    let starter = PeerParticipant {
        peer: peer.name.clone(),
        speaker: Speaker::of_name("hub"),
    };
    let chat = tx.start_chat(&NewChat {
        kind: ChatKind::Chat,
        title,
        scope: Scope { owner, root: None },
        private: false,
        pair: None,
        template: None,
        instructions: None,
        window: config.chats.window,
        turns_max: config.chats.turns_max,
        branch_of: None,
        started_name: starter.to_string(),
        started_by: Participant::Peer(starter),
    })?;
    tx.follow_chat(chat.id, peer.id, &peer.name, remote)?;
    Ok(chat.id)
}

/// Refuses a copy beyond the limits for all peers and for this one.
fn check_can_follow(connection: &Connection, peer: i64) -> Result<(), StoreError> {
    let followed = followed_chats(connection)?;
    let of_peer = followed
        .iter()
        .filter(|followed| followed.peer == Some(peer))
        .count();
    let (what, limit) = if followed.len() >= FOLLOWED_MAX {
        ("followed chats", FOLLOWED_MAX)
    } else if of_peer >= FOLLOWED_OF_PEER_MAX {
        ("followed chats of one hub", FOLLOWED_OF_PEER_MAX)
    } else {
        return Ok(());
    };
    Err(Denied::Limit {
        what,
        limit: limit as u64,
    }
    .into())
}

/// The copies of peers' chats.
#[derive(Debug, Clone)]
pub struct Copies {
    store: Store,
    settings: Settings,
    peers: Peers,
    presence: Presence,
}

impl Copies {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
            peers: ops.peers.clone(),
            presence: ops.presence.clone(),
        }
    }

    /// Starts a copy of a peer's chat, or finds the one that exists.
    ///
    /// # Errors
    /// The caller is not the person, the peer is unknown or cannot be reached, or does not share
    /// the chat.
    pub async fn follow(&self, caller: Caller, call: FollowChat) -> Result<ChatView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        // A repeated call does not need the peer.
        if let Some(earlier) = caller.stored_reply(&self.store)? {
            return Ok(earlier);
        }
        let FollowChat {
            peer,
            chat: remote,
            client,
        } = call;
        let owner = client
            .map(|client| ClientName::parse(&client))
            .transpose()?
            .map_or(Principal::Person, Principal::Client);
        let peer = self.store.read(|connection| known(connection, &peer))?;
        if peer.blocked {
            return Err(Denied::conflict(
                "peer",
                format!("{} is blocked: adj peer unblock {}", peer.name, peer.name),
            )
            .into());
        }
        let chats = self
            .peers
            .chats_of(&peer)
            .await
            .map_err(|error| OpError::Peer {
                name: peer.name.to_string(),
                error,
            })?;
        let Some(found) = chats.into_iter().find(|chat| chat.chat == remote) else {
            return Err(Denied::not_found("chat of this peer", &remote.to_string()).into());
        };
        let title = checked_title(&found.title)
            .unwrap_or_else(|_| format!("chat {remote} of {}", peer.name));
        let (config, presence) = (self.settings.config()?, self.presence.clone());
        caller
            .write(&self.store, move |tx, who| {
                // The peer may have been removed meanwhile.
                let peer = peer_by_name(tx.connection(), peer.name.as_str())?
                    .filter(|now| now.id == peer.id)
                    .ok_or_else(|| Denied::not_found("peer", peer.name.as_str()))?;
                let id = match followed_remote(tx.connection(), peer.id, remote)? {
                    Some(followed) => followed.chat,
                    None => {
                        check_can_follow(tx.connection(), peer.id)?;
                        start_copy(
                            tx,
                            &config,
                            &peer,
                            NewCopy {
                                title,
                                owner,
                                remote,
                            },
                        )?
                    }
                };
                let chat = tx.chat(id)?;
                shown_chat(
                    tx.connection(),
                    &ChatCaller::of(tx.connection(), who)?,
                    &presence,
                    &chat,
                )
            })
            .await
    }

    /// Ends a copy of a peer's chat. It stays as it is; posts that wait are refused.
    ///
    /// # Errors
    /// The caller is not the person, or the chat is no such copy.
    pub async fn unfollow(&self, caller: Caller, call: UnfollowChat) -> Result<ChatView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let presence = self.presence.clone();
        caller
            .write(&self.store, move |tx, who| {
                let id = ChatId(call.chat_id);
                let followed = followed_chat(tx.connection(), id)?
                    .ok_or_else(|| Denied::not_found("followed chat", &call.chat_id.to_string()))?;
                if followed.ended.is_none() {
                    tx.end_followed(id, "you ended it (adj chat unfollow)")?;
                }
                let chat = tx.chat(id)?;
                shown_chat(
                    tx.connection(),
                    &ChatCaller::of(tx.connection(), who)?,
                    &presence,
                    &chat,
                )
            })
            .await
    }

    /// Returns the chats to follow now: copies that are continued, of peers that are not blocked.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn to_follow(&self) -> Result<Vec<ChatId>, OpError> {
        Ok(self.store.read(|connection| {
            let mut chats = Vec::new();
            for followed in followed_chats(connection)? {
                let peer = followed
                    .peer
                    .map(|peer| peer_by_id(connection, peer))
                    .transpose()?
                    .flatten();
                if peer.is_some_and(|peer| !peer.blocked) {
                    chats.push(followed.chat);
                }
            }
            Ok::<_, StoreError>(chats)
        })?)
    }

    /// Returns whether any chat is followed.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn are_any(&self) -> Result<bool, OpError> {
        Ok(self.store.read(has_followed)?)
    }

    /// Prepares calls of the hub that a followed chat is on. `None`: the chat is not followed now.
    ///
    /// # Errors
    /// A failure of the store, or the peer's address, token or certificate cannot be used.
    pub async fn hub_of_chat(
        &self,
        chat: ChatId,
    ) -> Result<Option<Result<PeerHub, PeerError>>, OpError> {
        let peer = self.store.read(|connection| {
            match followed_chat(connection, chat)?.filter(|followed| followed.ended.is_none()) {
                Some(Followed {
                    peer: Some(peer), ..
                }) => peer_by_id(connection, peer),
                Some(_) | None => Ok(None),
            }
        })?;
        match peer.filter(|peer| !peer.blocked) {
            Some(peer) => Ok(Some(self.peers.hub_of(&peer).await)),
            None => Ok(None),
        }
    }

    /// Reads what the peer has after the copy, and adds it. Waits for it up to `wait_ms`.
    ///
    /// # Errors
    /// The inner error: the call failed. The outer one: a failure of the store.
    pub async fn continue_copy(
        &self,
        hub: &PeerHub,
        chat: ChatId,
        wait_ms: u64,
    ) -> Result<Result<FollowStep, PeerError>, OpError> {
        let found = self.store.read(|connection| {
            let followed =
                followed_chat(connection, chat)?.filter(|followed| followed.ended.is_none());
            Ok::<_, StoreError>(followed.zip(chat_by_id(connection, chat)?))
        })?;
        let Some((followed, copy)) = found else {
            return Ok(Ok(FollowStep::Ended));
        };
        let after = copy.last_seq;
        let read = ReadShared {
            chat: followed.remote,
            after,
            mark: followed.mark.clone(),
            changes: followed.changes,
            wait_ms,
        };
        let page = match hub.call(&read).await {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        if page.diverged {
            let problem = format!(
                "the chat on {} no longer continues this copy, for instance because that hub was restored from a backup; follow it again for a new copy",
                followed.peer_name
            );
            self.store
                .write(move |tx| tx.end_followed(chat, &problem))
                .await?;
            return Ok(Ok(FollowStep::Ended));
        }
        let page = match checked_page(page) {
            Ok(page) => page,
            Err(denied) => return Ok(Err(PeerError::Unusable(denied.to_string()))),
        };
        // `false` is a copy that was changed meanwhile; the next step finds its state.
        let has_entries = !page.entries.is_empty();
        let step = if has_entries || !page.changed.is_empty() {
            FollowStep::Continued
        } else {
            FollowStep::Nothing
        };
        if has_entries {
            failpoint!("peer.before_copy");
        }
        let continued = self
            .store
            .write(move |tx| tx.continue_followed(&followed, after, &page))
            .await;
        if has_entries {
            failpoint!("peer.after_copy");
        }
        match continued {
            Ok(_) => Ok(Ok(step)),
            Err(StoreError::Denied(denied)) => Ok(Err(PeerError::Unusable(denied.to_string()))),
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks everything that a peer states. A page is accepted as a whole or not at all.
fn checked_page(page: SharedPage) -> Result<FollowedPage, Denied> {
    let SharedPage {
        diverged: _,
        entries,
        changed,
        changes,
        mark,
    } = page;
    if entries.len() > PAGE_ENTRIES_MAX || changed.len() > PAGE_ENTRIES_MAX {
        return Err(Denied::Limit {
            what: "entries in a page",
            limit: PAGE_ENTRIES_MAX as u64,
        });
    }
    if mark.as_ref().is_some_and(|mark| {
        mark.len() > KEY_BYTES_MAX || !mark.bytes().all(|byte| byte.is_ascii_graphic())
    }) {
        return Err(Denied::invalid(
            "mark",
            format!("use at most {KEY_BYTES_MAX} visible ASCII characters"),
        ));
    }
    if !entries.is_empty() && mark.is_none() {
        return Err(Denied::invalid("mark", "is missing"));
    }
    if changes < 0 {
        return Err(Denied::invalid("changes", "is below 0"));
    }
    let checked = |entries: Vec<SharedEntry>| {
        entries
            .into_iter()
            .map(checked_entry)
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(FollowedPage {
        entries: checked(entries)?,
        changed: checked(changed)?,
        changes,
        mark,
    })
}

fn checked_entry(entry: SharedEntry) -> Result<RemoteEntry, Denied> {
    let SharedEntry {
        seq,
        kind,
        author,
        text,
        at_ms,
        reply_to,
        pinned,
        key,
    } = entry;
    let kind = EntryKind::from_word(&kind).ok_or_else(|| Denied::invalid("kind", "is unknown"))?;
    // Entries that are not messages can be empty, or longer by what the hub adds.
    if text.len() > TEXT_BYTES_MAX || (kind == EntryKind::Message && text.is_empty()) {
        return Err(Denied::invalid(
            "text",
            format!(
                "has {} bytes: at most {TEXT_BYTES_MAX}, and not none in a message",
                text.len()
            ),
        ));
    }
    if reply_to.is_some_and(|to| to < 1 || to >= seq) {
        return Err(Denied::invalid("reply_to", "is not an earlier entry"));
    }
    let text = storable(&text);
    let at = Time(at_ms.clamp(0, clock::now().0));
    let key = key.filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic()));
    Ok(RemoteEntry {
        seq,
        kind,
        author: Speaker::parse(&author)?,
        text,
        at,
        reply_to,
        pinned,
        key,
    })
}
