//! Follows chats of peers, and sends the posts to them. Each followed chat has one task that
//! receives and one that sends, so that a slow peer delays no other. All that matters is in the
//! store: a task can be cut off at any point.

use super::Hub;
use super::calls::{Calls, on};
use crate::ops::{Copies, FollowStep, OpError, SendStep, send_next_post};
use crate::peer::{PeerError, PeerHub};
use crate::protocol::peer::WAIT_MS_MAX;
use crate::store::{Subscription, Topic};
use crate::view::{
    AddPeer, BlockPeer, FollowChat, GetPeer, InvitePeer, ListPeers, RemovePeer, ShareChat,
    UnfollowChat,
};
use adjutant_core::chat::ChatId;
use futures::FutureExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet};

/// The delay after a failure, which doubles up to the maximum.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(20);

/// Adds the calls about peers.
pub(super) fn routes(mut router: Calls) -> Calls {
    router = on(router, |hub, caller, call: InvitePeer| async move {
        hub.ops.peers.invite(caller, call).await
    });
    router = on(router, |hub, caller, call: AddPeer| async move {
        hub.ops.peers.add(caller, call).await
    });
    router = on(router, |hub, caller, call: ListPeers| async move {
        hub.ops.peers.list(&caller.who, &call)
    });
    router = on(router, |hub, caller, call: GetPeer| async move {
        hub.ops.peers.get(&caller.who, &call).await
    });
    router = on(router, |hub, caller, call: BlockPeer| async move {
        hub.ops.peers.block(caller, call).await
    });
    router = on(router, |hub, caller, call: RemovePeer| async move {
        hub.ops.peers.remove(caller, call).await
    });
    router = on(router, |hub, caller, call: ShareChat| async move {
        hub.ops.peers.share(caller, call).await
    });
    router = on(router, |hub, caller, call: FollowChat| async move {
        Copies::of(&hub.ops).follow(caller, call).await
    });
    on(router, |hub, caller, call: UnfollowChat| async move {
        Copies::of(&hub.ops).unfollow(caller, call).await
    })
}

/// Keeps the tasks for the chats that are followed now.
pub(super) async fn follow(hub: Arc<Hub>) {
    let changes = hub.ops.store().wake_ups().subscribe(vec![Topic::Peers]);
    hub.ops.peers.sweep_secrets().await;
    let mut tasks = JoinSet::new();
    let mut running: HashMap<ChatId, [AbortHandle; 2]> = HashMap::new();
    loop {
        match Copies::of(&hub.ops).to_follow() {
            Ok(wanted) => {
                running.retain(|chat, handles| {
                    let is_kept =
                        wanted.contains(chat) && handles.iter().all(|handle| !handle.is_finished());
                    if !is_kept {
                        handles.iter().for_each(AbortHandle::abort);
                    }
                    is_kept
                });
                for chat in wanted {
                    running.entry(chat).or_insert_with(|| {
                        [
                            tasks.spawn(receive(Arc::clone(&hub), chat).boxed()),
                            tasks.spawn(send(Arc::clone(&hub), chat).boxed()),
                        ]
                    });
                }
            }
            Err(error) => {
                tracing::error!(%error, "the followed chats cannot be read yet");
                tokio::time::sleep(RETRY_MAX).await;
                continue;
            }
        }
        tokio::select! {
            () = changes.wait() => {}
            Some(ended) = tasks.join_next() => if let Err(error) = ended && !error.is_cancelled() {
                tracing::error!(%error, "a followed chat failed");
                tokio::time::sleep(RETRY_MIN).await;
            }
        }
    }
}

/// The delay before the next retry.
struct Retry(Duration);

impl Retry {
    fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(RETRY_MAX);
        now
    }
}

async fn receive(hub: Arc<Hub>, chat: ChatId) {
    let changes = hub.ops.store().wake_ups().subscribe(vec![Topic::Peers]);
    let (copies, mut retry) = (Copies::of(&hub.ops), Retry(RETRY_MIN));
    // The first reply comes at once, so that a peer that is reachable again is known to be.
    let mut wait_ms = 0;
    loop {
        let Some(peer) = peer_of(&hub, chat).await else {
            return;
        };
        let problem = match peer {
            Ok(peer) => loop {
                let begun = Instant::now();
                // A change of the peer, such as another token, ends the wait.
                let step = tokio::select! {
                    step = copies.continue_copy(&peer, chat, wait_ms) => step,
                    () = changes.wait() => break None,
                };
                match step {
                    Ok(Ok(step @ (FollowStep::Continued | FollowStep::Nothing))) => {
                        if hub.ops.followed.set(chat, None) {
                            // The peer is reachable again.
                            hub.ops.store().wake_ups().notify([&Topic::Outgoing(chat)]);
                        }
                        let is_early = step == FollowStep::Nothing
                            && wait_ms > 0
                            && begun.elapsed() < RETRY_MAX;
                        wait_ms = WAIT_MS_MAX;
                        if is_early {
                            // The peer does not wait.
                            pause(retry.next(), &changes).await;
                        } else {
                            retry = Retry(RETRY_MIN);
                        }
                    }
                    Ok(Ok(FollowStep::Ended)) => {
                        hub.ops.followed.set(chat, None);
                        return;
                    }
                    Ok(Err(error)) => break Some(error.to_string()),
                    Err(error) => break Some(store_failed(&error)),
                }
            },
            Err(error) => Some(error.to_string()),
        };
        let Some(problem) = problem else { continue };
        tracing::debug!(chat = chat.0, problem, "a followed chat waits");
        hub.ops.followed.set(chat, Some(problem));
        wait_ms = 0;
        if pause(retry.next(), &changes).await {
            retry = Retry(RETRY_MIN);
        }
    }
}

async fn send(hub: Arc<Hub>, chat: ChatId) {
    let posts = hub
        .ops
        .store()
        .wake_ups()
        .subscribe(vec![Topic::Outgoing(chat), Topic::Peers]);
    let mut retry = Retry(RETRY_MIN);
    loop {
        let Some(peer) = peer_of(&hub, chat).await else {
            return;
        };
        if let Ok(peer) = peer {
            loop {
                match send_next_post(hub.ops.store(), &peer, chat).await {
                    Ok(Ok(SendStep::Sent)) => retry = Retry(RETRY_MIN),
                    Ok(Ok(SendStep::Nothing)) => {
                        posts.wait().await;
                        // The peer may have another address or token.
                        break;
                    }
                    Ok(Err(error)) => {
                        tracing::debug!(chat = chat.0, %error, "a post to a peer waits");
                        pause(retry.next(), &posts).await;
                        break;
                    }
                    Err(error) => {
                        store_failed(&error);
                        pause(retry.next(), &posts).await;
                        break;
                    }
                }
            }
        } else {
            pause(retry.next(), &posts).await;
        }
    }
}

/// Waits before a retry, or until something has changed. Returns whether something has.
async fn pause(time: Duration, changes: &Subscription) -> bool {
    tokio::time::timeout(time, changes.wait()).await.is_ok()
}

/// Prepares calls for a followed chat. `None`: it is not followed now.
async fn peer_of(hub: &Hub, chat: ChatId) -> Option<Result<PeerHub, PeerError>> {
    match Copies::of(&hub.ops).hub_of_chat(chat).await {
        Ok(peer) => peer,
        Err(error) => Some(Err(PeerError::Unreachable(store_failed(&error)))),
    }
}

fn store_failed(error: &OpError) -> String {
    tracing::error!(%error, "a followed chat cannot be processed yet");
    error.to_string()
}
