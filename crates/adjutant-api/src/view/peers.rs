//! Other hubs, and chats shared with them or followed from them. Only the person manages them, on
//! the hub's socket.

use serde::{Deserialize, Serialize};

/// Makes a peer known that may connect to this hub with a token, which the caller has made and the
/// hub never sees. A second invitation replaces the token.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InvitePeer {
    pub name: String,
    /// The SHA-256 of the token, in hexadecimal.
    pub sha256: String,
}

/// Makes a peer known to which this hub can connect, or changes how it connects.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AddPeer {
    pub name: String,
    pub url: String,
    /// The token that the peer has issued for this hub.
    pub token: String,
    /// The SHA-256 of the public key of the peer's certificate, in hexadecimal, or several with
    /// commas between them. Default: the certificate is verified with the installed authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Accepts http to another machine, which sends everything in plain text.
    #[serde(default)]
    pub plain: bool,
}

/// Lists the peers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListPeers {}

/// Shows a peer, and asks it which chats it shares with this hub.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GetPeer {
    pub name: String,
}

/// Blocks or unblocks a peer. While it is blocked, nothing is exchanged with it, and posts wait.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockPeer {
    pub name: String,
    pub blocked: bool,
}

/// Removes a peer. Its token is revoked, and copies of its chats are no longer updated.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RemovePeer {
    pub name: String,
}

/// Shares a chat with a peer, or ends that.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShareChat {
    pub chat_id: i64,
    pub peer: String,
    #[serde(default)]
    pub read_only: bool,
    pub shared: bool,
}

/// Starts a copy of a peer's chat, which arrives in the background, or finds the one that exists.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FollowChat {
    pub peer: String,
    /// The chat's number on the peer.
    pub chat: i64,
    /// The client whose runs see the copy. Default: the person's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// Ends a copy of a peer's chat. It stays as it is; posts that wait are refused.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnfollowChat {
    pub chat_id: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerList {
    pub peers: Vec<PeerView>,
}

/// A peer, without secrets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerView {
    pub name: String,
    /// Where this hub connects to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// It has a token of this hub.
    pub may_connect: bool,
    pub blocked: bool,
    /// The number of chats of this hub that are shared with it.
    pub shared: u64,
    /// The number of its chats that this hub follows.
    pub followed: u64,
    pub added_at: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerDetails {
    pub peer: PeerView,
    /// The chats that it shares with this hub.
    #[serde(default)]
    pub chats: Vec<PeerChatView>,
    /// The copies of its chats.
    #[serde(default)]
    pub followed: Vec<PeerFollowedView>,
    /// Why it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A chat of a peer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerChatView {
    /// Its number on the peer.
    pub chat: i64,
    pub title: String,
    pub read_only: bool,
    pub messages: i64,
}

/// The copy of a peer's chat.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerFollowedView {
    pub chat_id: i64,
    pub peer: String,
    /// The chat's number on the peer.
    pub chat: i64,
    /// The number of posts that wait to be delivered.
    pub waiting: u64,
    /// Why nothing arrives now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The copy is no longer updated.
    pub ended: bool,
}

/// A post to a followed chat that is not an entry of it yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutgoingView {
    pub id: String,
    pub from: String,
    pub name: String,
    pub text: String,
    pub at: String,
    /// `waiting`, `delivered` or `refused`.
    pub state: String,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChatShares {
    pub chat_id: i64,
    pub title: String,
    pub shares: Vec<ShareView>,
}

/// A peer that may follow a chat.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareView {
    pub peer: String,
    pub read_only: bool,
}
