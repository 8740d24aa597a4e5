//! Other hubs: how they are reached and which tokens they have, the chats shared with them, and
//! copies of their chats.

mod followed;
mod outbox;
mod shares;

pub use followed::{
    Followed, FollowedPage, RemoteEntry, followed_chat, followed_chats, followed_remote,
    has_followed,
};
pub(in crate::store) use followed::{is_current, set_position};
pub(in crate::store) use outbox::take_posted;
pub use outbox::{
    OutgoingPost, OutgoingState, next_post, posts_of, unfinished_posts, waiting_posts,
};
pub(in crate::store) use shares::note_peer_post;
pub use shares::{Share, own_key, share_for, shared_with, shares_of};

use super::{StoreError, Topic, Tx};
use crate::store::db::{self, Connection, Record, params, row, select};
use adjutant_core::{PeerName, Time};
use shares::note_shared;

row! {
    /// One other hub.
    #[derive(Debug, Clone)]
    pub struct Peer, named "peer {}" {
        pub id: i64,
        pub name: PeerName,
        /// The token of this hub that the peer presents.
        pub token: Option<i64>,
        /// How this hub reaches the peer.
        pub remote: Option<RemoteHub> [RemoteRow] as RemoteRow::decode,
        /// Nothing is exchanged with it.
        pub blocked: bool,
        pub added_at: Time,
    }
}

/// How a hub is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteHub {
    pub url: String,
    /// The fingerprints of the trusted public keys, with commas between them. `None`: the
    /// certificate is verified with the installed authorities.
    pub fingerprint: Option<String>,
    /// The name of the file with the token that this hub presents.
    pub secret: String,
}

row! {
    /// The columns of how a hub is reached.
    struct RemoteRow {
        url: Option<String>,
        fingerprint: Option<String>,
        secret: Option<String>,
    }
}

impl RemoteRow {
    fn decode(self) -> db::Result<Option<RemoteHub>> {
        let Self {
            url,
            fingerprint,
            secret,
        } = self;
        Ok(url.zip(secret).map(|(url, secret)| RemoteHub {
            url,
            fingerprint,
            secret,
        }))
    }
}

fn one(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Option<Peer>, StoreError> {
    Ok(connection
        .prepare_cached(&Peer::select(&format!("FROM peers {rest}")))?
        .find_row(values)?)
}

/// Reads all peers, by name.
///
/// # Errors
/// A failure of the store.
pub fn peers(connection: &Connection) -> Result<Vec<Peer>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Peer, "FROM peers ORDER BY name"))?
        .read_rows([])?)
}

/// Reads the peer with a name.
///
/// # Errors
/// A failure of the store.
pub fn peer_by_name(connection: &Connection, name: &str) -> Result<Option<Peer>, StoreError> {
    one(connection, "WHERE name = ?1", [name])
}

/// Reads the peer with an id.
///
/// # Errors
/// A failure of the store.
pub fn peer_by_id(connection: &Connection, id: i64) -> Result<Option<Peer>, StoreError> {
    one(connection, "WHERE id = ?1", [id])
}

/// Reads the peer that presents a token of this hub.
///
/// # Errors
/// A failure of the store.
pub fn peer_by_token(connection: &Connection, token: i64) -> Result<Option<Peer>, StoreError> {
    one(connection, "WHERE token = ?1", [token])
}

impl Tx<'_> {
    /// Adds a peer without a connection in either direction, or finds the one with this name.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_peer(&mut self, name: &PeerName) -> Result<Peer, StoreError> {
        self.prepare(
            "INSERT INTO peers (name, added_at) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        )?
        .run(params![name.as_str(), self.now().0])?;
        self.notify(Topic::Peers);
        peer_by_name(self.connection(), name.as_str())?
            .ok_or_else(|| StoreError::Corrupt(format!("peer {name} is not there")))
    }

    /// Sets the token that a peer presents.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_peer_token(&mut self, peer: i64, token: Option<i64>) -> Result<(), StoreError> {
        self.prepare("UPDATE peers SET token = ?2 WHERE id = ?1")?
            .run(params![peer, token])?;
        self.notify(Topic::Peers);
        Ok(())
    }

    /// Sets how this hub reaches a peer.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_peer_remote(&mut self, peer: i64, remote: &RemoteHub) -> Result<(), StoreError> {
        let RemoteHub {
            url,
            fingerprint,
            secret,
        } = remote;
        self.prepare("UPDATE peers SET url = ?2, fingerprint = ?3, secret = ?4 WHERE id = ?1")?
            .run(params![peer, url, fingerprint, secret])?;
        self.notify(Topic::Peers);
        Ok(())
    }

    /// Blocks or unblocks a peer.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn block_peer(&mut self, peer: i64, blocked: bool) -> Result<(), StoreError> {
        self.prepare("UPDATE peers SET blocked = ?2 WHERE id = ?1")?
            .run(params![peer, blocked])?;
        self.notify(Topic::Peers);
        Ok(())
    }

    /// Removes a peer with its shares, and ends the copies of its chats, which stay. Its token is
    /// revoked separately.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn remove_peer(&mut self, peer: &Peer) -> Result<(), StoreError> {
        for followed in followed_chats(self.connection())?
            .iter()
            .filter(|followed| followed.peer == Some(peer.id))
        {
            self.end_followed(
                followed.chat,
                &format!("the peer {} was removed", peer.name),
            )?;
        }
        let shared: Vec<i64> = self
            .prepare("SELECT chat FROM chat_shares WHERE peer = ?1")?
            .read_rows([peer.id])?;
        self.prepare("DELETE FROM peers WHERE id = ?1")?
            .run([peer.id])?;
        for chat in shared {
            note_shared(self, chat)?;
        }
        self.notify(Topic::Peers);
        Ok(())
    }
}
