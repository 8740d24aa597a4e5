//! Sending posts to chats of peers: in order, one at a time for each chat.

use super::shared::speaker_of;
use crate::failpoint::failpoint;
use crate::ops::OpError;
use crate::peer::{PeerError, PeerHub};
use crate::protocol::peer::{PostOutcome, PostShared};
use crate::store::{Store, StoreError, followed_chat, next_post};
use adjutant_core::chat::ChatId;
use adjutant_core::quote::quote_line;

/// Longest reason of a peer that is kept, in characters.
const REASON_CHARS_MAX: usize = 300;

/// The result of one step of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStep {
    /// A post was accepted or refused.
    Sent,
    /// No post waits.
    Nothing,
}

/// Sends the next post of a chat.
///
/// # Errors
/// The inner error: there is no outcome, so the post waits. The outer one: a failure of the
/// store.
pub async fn send_next_post(
    store: &Store,
    hub: &PeerHub,
    chat: ChatId,
) -> Result<Result<SendStep, PeerError>, OpError> {
    let next = store.read(|connection| {
        let followed = followed_chat(connection, chat)?.filter(|followed| followed.ended.is_none());
        Ok::<_, StoreError>(followed.zip(next_post(connection, chat)?))
    })?;
    let Some((followed, post)) = next else {
        return Ok(Ok(SendStep::Nothing));
    };
    let call = PostShared {
        chat: followed.remote,
        key: post.key.clone(),
        participant: speaker_of(&post.author, &post.name),
        text: post.text.clone(),
        reply_to: post.reply_to,
    };
    let outcome = match hub.call(&call).await {
        Ok(outcome) => outcome,
        Err(error) => return Ok(Err(error)),
    };
    failpoint!("peer.before_delivered");
    match outcome {
        PostOutcome {
            refused: Some(reason),
            ..
        } => {
            let reason = format!(
                "{}: {}",
                followed.peer_name,
                quote_line(&reason, REASON_CHARS_MAX)
            );
            store
                .write(move |tx| tx.post_refused(&post, &reason))
                .await?;
        }
        PostOutcome {
            seq: Some(_),
            refused: None,
        } => store.write(move |tx| tx.post_delivered(&post)).await?,
        PostOutcome {
            seq: None,
            refused: None,
        } => {
            return Ok(Err(PeerError::Unusable(
                "it has no outcome of a post".to_owned(),
            )));
        }
    }
    Ok(Ok(SendStep::Sent))
}
