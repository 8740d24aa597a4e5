//! Other hubs: making them known, blocking and removing them.
//!
//! The token that this hub presents to a peer is in a file of the home, never in the database or in
//! a reply.

mod copies;
mod outgoing;
mod secrets;
mod shared;

pub use copies::Copies;
pub use copies::FollowStep;
pub use outgoing::SendStep;
pub use outgoing::send_next_post;
pub use shared::post_shared;
pub use shared::shared_chats;
pub use shared::shared_entries;

use super::chats::{FollowedStates, followed_view, share_views};
use super::{Caller, OpError, is_hash, lookup};
use crate::clock::rfc3339;
use crate::config::Home;
use crate::peer::{PeerError, PeerHub, checked_url};
use crate::protocol::peer::ListShared;
use crate::store::{
    ChatLink, Connection, NewToken, Peer, RemoteHub, Store, StoreError, chat_by_id, followed_chats,
    is_token_valid, peer_by_name, peers, shared_with, token_by_name,
};
use crate::view::{
    AddPeer, BlockPeer, ChatShares, GetPeer, InvitePeer, ListPeers, PeerChatView, PeerDetails,
    PeerFollowedView, PeerList, PeerView, RemovePeer, ShareChat,
};
use adjutant_core::chat::{ChatId, ChatKind};
use adjutant_core::peer::PEERS_MAX;
use adjutant_core::quote::quote_line;
use adjutant_core::token::{PEER_PREFIX, TokenIdentity, TokenRole};
use adjutant_core::{Action, Denied, Fingerprint, PeerName, Principal};
use secrets::PeerSecrets;
use std::sync::Arc;

/// Longest token of a peer, in bytes.
const TOKEN_BYTES_MAX: usize = 200;
/// Maximum number of chats of a peer in a list.
const CHATS_SHOWN_MAX: usize = 1_000;
/// Longest title of a chat of a peer in a list, in characters.
const TITLE_CHARS_MAX: usize = 200;

/// The hubs that this one knows.
#[derive(Debug, Clone)]
pub struct Peers {
    store: Store,
    secrets: PeerSecrets,
    followed: FollowedStates,
}

impl Peers {
    pub(super) fn new(store: Store, home: Arc<Home>, followed: FollowedStates) -> Self {
        Self {
            secrets: PeerSecrets::new(store.clone(), home),
            store,
            followed,
        }
    }

    /// Removes the files with tokens of peers that were removed or have another token.
    pub async fn sweep_secrets(&self) {
        self.secrets.change().await.sweep().await;
    }

    /// Makes a peer known that may connect to this hub. A second invitation replaces the first
    /// one's token.
    ///
    /// # Errors
    /// The caller is not the person, or a value is invalid.
    pub async fn invite(&self, caller: Caller, call: InvitePeer) -> Result<PeerView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let InvitePeer { name, sha256 } = call;
        let name = PeerName::parse(&name)?;
        if !is_hash(&sha256) {
            return Err(Denied::invalid(
                "sha256",
                "use the SHA-256 of the token, in lower-case hexadecimal",
            )
            .into());
        }
        caller.write(&self.store, move |tx, _| {
            check_number(tx.connection(), &name)?;
            let peer = tx.add_peer(&name)?;
            if let Some(token) = peer.token {
                tx.revoke_token(token)?;
            }
            let token_name = format!("{PEER_PREFIX}{name}");
            if token_by_name(tx.connection(), &token_name)?.is_some() {
                return Err(
                    Denied::conflict("token", format!("{token_name} exists; revoke it first (adj token revoke), or choose another name")).into()
                );
            }
            tx.add_token(&NewToken { name: token_name.clone(), hash: sha256, identity: TokenIdentity::new(TokenRole::Peer, None)? })?;
            let token = token_by_name(tx.connection(), &token_name)?.ok_or_else(|| StoreError::Corrupt("the new token is not there".to_owned()))?;
            tx.set_peer_token(peer.id, Some(token.id))?;
            view(tx.connection(), &Peer { token: Some(token.id), ..peer })
        })
        .await
    }

    /// Makes a peer known to which this hub can connect.
    ///
    /// # Errors
    /// The caller is not the person, or a value is invalid.
    pub async fn add(&self, caller: Caller, call: AddPeer) -> Result<PeerView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let AddPeer {
            name,
            url,
            token,
            fingerprint,
            plain,
        } = call;
        let name = PeerName::parse(&name)?;
        let url = checked_url(&url, plain)
            .map_err(|problem| Denied::invalid("url", problem.to_string()))?
            .to_string()
            .trim_end_matches('/')
            .to_owned();
        let fingerprint = fingerprint
            .map(|given| Fingerprint::parse_list(&given))
            .transpose()?
            .map(|all| {
                let all: Vec<&str> = all.iter().map(Fingerprint::as_str).collect();
                all.join(",")
            });
        if fingerprint.is_some() && !url.starts_with("https://") {
            return Err(
                Denied::invalid("fingerprint", "only an https address has a certificate").into(),
            );
        }
        if !(1..=TOKEN_BYTES_MAX).contains(&token.len())
            || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(Denied::invalid(
                "token",
                "use the token that adj peer invite printed on the other hub",
            )
            .into());
        }
        let secrets = self.secrets.change().await;
        let secret = secrets.write(token).await?;
        let remote = RemoteHub {
            url,
            fingerprint,
            secret,
        };
        let added = caller.write(&self.store, move |tx, _| {
            check_number(tx.connection(), &name)?;
            let peer = tx.add_peer(&name)?;
            tx.set_peer_remote(peer.id, &remote)?;
            view(
                tx.connection(),
                &Peer {
                    remote: Some(remote),
                    ..peer
                },
            )
        });
        let added = added.await;
        secrets.sweep().await;
        added
    }

    /// Lists the peers.
    ///
    /// # Errors
    /// The caller is not the person.
    pub fn list(&self, who: &Principal, _: &ListPeers) -> Result<PeerList, OpError> {
        lookup::check(who, Action::ManageHub)?;
        Ok(self.store.read(|connection| {
            let peers = peers(connection)?
                .iter()
                .map(|peer| view(connection, peer))
                .collect::<Result<_, _>>()?;
            Ok::<_, StoreError>(PeerList { peers })
        })?)
    }

    /// Shows a peer, and asks it which chats it shares with this hub.
    ///
    /// # Errors
    /// The caller is not the person, or there is no such peer.
    pub async fn get(&self, who: &Principal, call: &GetPeer) -> Result<PeerDetails, OpError> {
        lookup::check(who, Action::ManageHub)?;
        let (peer, mut details) = self.store.read(|connection| {
            let peer = known(connection, &call.name)?;
            let mut details = PeerDetails {
                peer: view(connection, &peer)?,
                ..PeerDetails::default()
            };
            for followed in followed_chats(connection)?
                .iter()
                .filter(|followed| followed.peer == Some(peer.id))
            {
                let view = followed_view(connection, followed)?;
                let problem = view
                    .problem
                    .clone()
                    .or_else(|| self.followed.problem(followed.chat));
                details.followed.push(PeerFollowedView { problem, ..view });
            }
            Ok::<_, StoreError>((peer, details))
        })?;
        if peer.remote.is_none() || peer.blocked {
            return Ok(details);
        }
        match self.chats_of(&peer).await {
            Ok(chats) => details.chats = chats,
            Err(error) => details.problem = Some(error.to_string()),
        }
        Ok(details)
    }

    /// Asks a peer which chats it shares with this hub.
    async fn chats_of(&self, peer: &Peer) -> Result<Vec<PeerChatView>, PeerError> {
        let list = self
            .hub_of(peer)
            .await?
            .call(&ListShared {})
            .await
            .map_err(|error| match error {
                PeerError::NotShared => PeerError::Failed(
                    "404: is there another server, or a path, in its address?".to_owned(),
                ),
                error => error,
            })?;
        let shown = list
            .chats
            .into_iter()
            .take(CHATS_SHOWN_MAX)
            .map(|chat| PeerChatView {
                chat: chat.chat,
                title: quote_line(&chat.title, TITLE_CHARS_MAX),
                read_only: chat.read_only,
                messages: chat.last_seq,
            });
        Ok(shown.collect())
    }

    /// Prepares calls of a peer.
    async fn hub_of(&self, peer: &Peer) -> Result<PeerHub, PeerError> {
        let Some(remote) = peer.remote.clone() else {
            return Err(PeerError::Unreachable(format!(
                "no address is known for {}: adj peer add {} URL",
                peer.name, peer.name
            )));
        };
        let token = self
            .secrets
            .read(&remote.secret)
            .await
            .map_err(|error| PeerError::Unreachable(error.to_string()))?;
        let made = tokio::task::spawn_blocking(move || {
            PeerHub::new(&remote.url, remote.fingerprint.as_deref(), token)
        })
        .await;
        made.map_err(|error| PeerError::Unreachable(error.to_string()))?
    }

    /// Blocks or unblocks a peer. While it is blocked, nothing is exchanged with it; posts wait.
    ///
    /// # Errors
    /// The caller is not the person, or there is no such peer.
    pub async fn block(&self, caller: Caller, call: BlockPeer) -> Result<PeerView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        caller
            .write(&self.store, move |tx, _| {
                let peer = known(tx.connection(), &call.name)?;
                tx.block_peer(peer.id, call.blocked)?;
                view(
                    tx.connection(),
                    &Peer {
                        blocked: call.blocked,
                        ..peer
                    },
                )
            })
            .await
    }

    /// Removes a peer: its token is revoked, nothing is shared with it any more, and the copies of
    /// its chats are no longer updated.
    ///
    /// # Errors
    /// The caller is not the person, or there is no such peer.
    pub async fn remove(&self, caller: Caller, call: RemovePeer) -> Result<PeerView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let removed = caller
            .write(&self.store, move |tx, _| {
                let peer = known(tx.connection(), &call.name)?;
                let shown = view(tx.connection(), &peer)?;
                if let Some(token) = peer.token {
                    tx.revoke_token(token)?;
                }
                tx.remove_peer(&peer)?;
                Ok(shown)
            })
            .await?;
        self.sweep_secrets().await;
        Ok(removed)
    }

    /// Shares a chat with a peer, or ends that.
    ///
    /// # Errors
    /// The caller is not the person, the chat or peer is unknown, or the chat cannot be shared.
    pub async fn share(&self, caller: Caller, call: ShareChat) -> Result<ChatShares, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        caller
            .write(&self.store, move |tx, _| {
                let ShareChat {
                    chat_id,
                    peer,
                    read_only,
                    shared,
                } = call;
                let peer = known(tx.connection(), &peer)?;
                let chat =
                    chat_by_id(tx.connection(), ChatId(chat_id))?.filter(|chat| !chat.importing);
                let chat = chat.ok_or_else(|| Denied::not_found("chat", &chat_id.to_string()))?;
                if chat.link == Some(ChatLink::Followed) {
                    return Err(Denied::conflict(
                        "chat_id",
                        "it is a copy of another hub's chat; only that hub can share it",
                    )
                    .into());
                }
                if chat.kind != ChatKind::Chat {
                    return Err(Denied::invalid(
                        "chat_id",
                        "boards and direct chats cannot be shared",
                    )
                    .into());
                }
                if shared {
                    tx.share_chat(chat.id, peer.id, read_only)?
                } else {
                    tx.unshare_chat(chat.id, peer.id)?
                }
                Ok(ChatShares {
                    chat_id,
                    title: chat.title,
                    shares: share_views(tx.connection(), chat.id)?,
                })
            })
            .await
    }
}

fn known(connection: &Connection, name: &str) -> Result<Peer, StoreError> {
    peer_by_name(connection, name)?.ok_or_else(|| Denied::not_found("peer", name).into())
}

fn check_number(connection: &Connection, name: &PeerName) -> Result<(), StoreError> {
    let known = peers(connection)?;
    if known.len() >= PEERS_MAX && known.iter().all(|peer| peer.name != *name) {
        return Err(Denied::Limit {
            what: "peers",
            limit: PEERS_MAX as u64,
        }
        .into());
    }
    Ok(())
}

fn view(connection: &Connection, peer: &Peer) -> Result<PeerView, StoreError> {
    let Peer {
        id,
        name,
        token,
        remote,
        blocked,
        added_at,
    } = peer;
    let followed = followed_chats(connection)?
        .iter()
        .filter(|followed| followed.peer == Some(*id))
        .count();
    let shared = shared_with(connection, *id, u32::MAX)?.len();
    Ok(PeerView {
        name: name.to_string(),
        url: remote.as_ref().map(|remote| remote.url.clone()),
        fingerprint: remote
            .as_ref()
            .and_then(|remote| remote.fingerprint.clone()),
        may_connect: token.map_or(Ok(false), |token| is_token_valid(connection, token))?,
        blocked: *blocked,
        shared: shared as u64,
        followed: followed as u64,
        added_at: rfc3339(*added_at),
    })
}
