//! Chats that are linked with other hubs: posts to copies of their chats, and what is shown of
//! sharing and copies.

use super::caller::ChatCaller;
use super::entry::entry_no;
use crate::clock::rfc3339;
use crate::ops::random;
use crate::store::{
    Chat, Connection, Followed, OutgoingPost, StoreError, Tx, entry_by_seq, followed_chat,
    posts_of, shares_of, unfinished_posts, waiting_posts,
};
use crate::view::{ChatEntryView, OutgoingView, PeerFollowedView, PostedMessage, ShareView};
use adjutant_core::chat::{ChatId, EntryKind, shown_name};
use adjutant_core::peer::WAITING_POSTS_MAX;
use adjutant_core::{Denied, hex};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of posts that are shown with a chat.
const SHOWN_MAX: u32 = 100;

/// The problems of the connections to peers, by chat. Only for display: the next hub finds them
/// again.
#[derive(Debug, Clone, Default)]
pub struct FollowedStates(Arc<Mutex<BTreeMap<i64, String>>>);

impl FollowedStates {
    /// Sets or clears the problem of a chat. Returns whether it had one.
    pub fn set(&self, chat: ChatId, problem: Option<String>) -> bool {
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => problems.insert(chat.0, problem),
            None => problems.remove(&chat.0),
        }
        .is_some()
    }

    /// Returns the problem of a chat.
    pub(in crate::ops) fn problem(&self, chat: ChatId) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&chat.0)
            .cloned()
    }
}

/// A message for a followed chat.
#[derive(Debug)]
pub(super) struct NewPost {
    pub text: Option<String>,
    pub reply_to: Option<String>,
    /// It edits or pins a message.
    pub edits: bool,
    /// It names recipients, or a key.
    pub is_addressed: bool,
}

/// Returns a text that both engines store: PostgreSQL stores no NUL.
pub(in crate::ops) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Refuses what a followed chat does not take. Returns the text, and the message that it answers.
fn check_post(followed: &Followed, post: NewPost) -> Result<(String, Option<String>), Denied> {
    let NewPost {
        text,
        reply_to,
        edits,
        is_addressed,
    } = post;
    let refused = |problem: String| Err(Denied::conflict("chat_id", problem));
    if let Some(ended) = &followed.ended {
        return refused(format!(
            "this copy of a chat on {} is no longer updated: {ended}",
            followed.peer_name
        ));
    }
    if edits {
        return refused(format!(
            "messages of a followed chat are edited and pinned only on its hub, {}",
            followed.peer_name
        ));
    }
    if is_addressed {
        return Err(Denied::invalid(
            "to",
            "a followed chat has no recipients on this hub and no keys: post without them",
        ));
    }
    match text {
        Some(text) => Ok((text, reply_to)),
        None => Err(Denied::invalid("message", "is missing")),
    }
}

/// Adds a message to a followed chat to the posts that wait.
pub(super) fn queue_post(
    tx: &mut Tx<'_>,
    caller: &ChatCaller,
    chat: &Chat,
    post: NewPost,
) -> Result<PostedMessage, StoreError> {
    let followed = followed_chat(tx.connection(), chat.id)?
        .ok_or_else(|| StoreError::Corrupt(format!("followed chat {}", chat.id)))?;
    let (text, reply_to) = check_post(&followed, post)?;
    let reply_to = reply_to
        .map(|given| entry_no("reply_to", Some(chat.id.0), &given))
        .transpose()?
        .map(|(_, seq)| seq);
    if let Some(seq) = reply_to {
        entry_by_seq(tx.connection(), chat.id, seq)?
            .ok_or_else(|| Denied::not_found("message", &format!("{}.{seq}", chat.id)))?;
    }
    let text = storable(&text);
    if unfinished_posts(tx.connection(), chat.id)? >= WAITING_POSTS_MAX {
        return Err(Denied::Limit {
            what: "posts that wait for another hub",
            limit: WAITING_POSTS_MAX,
        }
        .into());
    }
    let post_key = hex(random::<16>());
    let author = caller.participant();
    let no = tx.add_outgoing(chat.id, &post_key, (&author, &caller.name), &text, reply_to)?;
    let message = ChatEntryView {
        message_id: format!("{}.waiting-{no}", chat.id),
        chat_id: chat.id.0,
        kind: EntryKind::Message.into(),
        from: author.to_string(),
        name: shown_name(&author, &caller.name, None),
        text,
        at: rfc3339(tx.now()),
        reply_to,
        ..ChatEntryView::default()
    };
    let notes = vec![format!("waiting to be delivered to {}", followed.peer_name)];
    Ok(PostedMessage {
        chat_id: chat.id.0,
        title: chat.title.clone(),
        message,
        notes,
        ..PostedMessage::default()
    })
}

/// Shows the posts of a chat that are not entries yet, and those that were refused.
pub(super) fn outgoing_of(
    connection: &Connection,
    chat: ChatId,
) -> Result<Vec<OutgoingView>, StoreError> {
    let shown = posts_of(connection, chat, SHOWN_MAX)?
        .into_iter()
        .map(|post| {
            let OutgoingPost {
                no,
                key: _,
                chat,
                author,
                name,
                text,
                reply_to: _,
                at,
                state,
                problem,
            } = post;
            OutgoingView {
                id: format!("{chat}.waiting-{no}"),
                from: author.to_string(),
                name: shown_name(&author, &name, None),
                text,
                at: rfc3339(at),
                state: state.word().to_owned(),
                problem,
            }
        });
    Ok(shown.collect())
}

/// Shows the copy that a chat is, if it is one.
pub(super) fn followed_of(
    connection: &Connection,
    chat: ChatId,
) -> Result<Option<PeerFollowedView>, StoreError> {
    followed_chat(connection, chat)?
        .map(|followed| followed_view(connection, &followed))
        .transpose()
}

/// Shows the copy of a chat.
pub(in crate::ops) fn followed_view(
    connection: &Connection,
    followed: &Followed,
) -> Result<PeerFollowedView, StoreError> {
    let Followed {
        chat,
        peer: _,
        peer_name,
        remote,
        mark: _,
        changes: _,
        ended,
    } = followed;
    Ok(PeerFollowedView {
        chat_id: chat.0,
        peer: peer_name.to_string(),
        chat: *remote,
        waiting: waiting_posts(connection, *chat)?,
        problem: ended.clone(),
        ended: ended.is_some(),
    })
}

/// Shows the peers that may follow a chat.
pub(in crate::ops) fn share_views(
    connection: &Connection,
    chat: ChatId,
) -> Result<Vec<ShareView>, StoreError> {
    let shares = shares_of(connection, chat)?.into_iter();
    Ok(shares
        .map(|share| ShareView {
            peer: share.name.to_string(),
            read_only: share.read_only,
        })
        .collect())
}
