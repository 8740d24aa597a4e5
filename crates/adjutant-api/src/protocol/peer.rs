//! The messages between hubs: `POST /peer/v1/<name>` with the token of a peer. Changes only add,
//! because the versions of both ends may differ.

use serde::{Deserialize, Serialize};

/// Maximum size of a message, in bytes: a post of the maximum length, in JSON with every character
/// escaped.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest wait for entries, in milliseconds.
pub const WAIT_MS_MAX: u64 = 50_000;
/// Maximum number of bytes of a key, and of a mark.
pub const KEY_BYTES_MAX: usize = 100;

/// A message with its path and its reply.
pub trait PeerCall: Serialize {
    const PATH: &'static str;
    type Reply: for<'a> Deserialize<'a>;

    /// How long the peer may wait before it replies, in milliseconds.
    fn wait_ms(&self) -> u64 {
        0
    }
}

/// Lists the chats that are shared with the caller.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ListShared {}

impl PeerCall for ListShared {
    const PATH: &'static str = "/peer/v1/chats";
    type Reply = SharedList;
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SharedList {
    pub chats: Vec<SharedChat>,
}

/// A chat that is shared with the caller.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SharedChat {
    pub chat: i64,
    pub title: String,
    pub read_only: bool,
    pub archived: bool,
    /// The number of the newest entry.
    pub last_seq: i64,
}

/// Reads the entries after a position. Waits if there are none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ReadShared {
    pub chat: i64,
    /// The number of the last entry that the caller has.
    pub after: i64,
    /// The mark of that entry, from the page with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// The last change of entries that the caller has.
    #[serde(default)]
    pub changes: i64,
    #[serde(default)]
    pub wait_ms: u64,
}

impl PeerCall for ReadShared {
    const PATH: &'static str = "/peer/v1/entries";
    type Reply = SharedPage;

    fn wait_ms(&self) -> u64 {
        self.wait_ms
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SharedPage {
    /// The chat does not continue what the caller has, for instance after it was restored from a
    /// backup. The page is empty.
    #[serde(default)]
    pub diverged: bool,
    /// Oldest first, without gaps.
    pub entries: Vec<SharedEntry>,
    /// Earlier entries that were edited or pinned, as they are now.
    #[serde(default)]
    pub changed: Vec<SharedEntry>,
    /// The last change that the page includes.
    pub changes: i64,
    /// Identifies the last entry of the page, or that of the caller if the page is empty.
    #[serde(default)]
    pub mark: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SharedEntry {
    pub seq: i64,
    pub kind: String,
    /// A participant of the hub, or `peer/name` for one of its peers.
    pub author: String,
    pub text: String,
    /// In milliseconds since 1970.
    pub at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<i64>,
    #[serde(default)]
    pub pinned: bool,
    /// The key of the caller's own post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Posts to a chat, once for each key.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PostShared {
    pub chat: i64,
    pub key: String,
    /// The name of the participant on the caller's hub.
    pub participant: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<i64>,
}

impl PeerCall for PostShared {
    const PATH: &'static str = "/peer/v1/post";
    type Reply = PostOutcome;
}

/// The outcome of a post. A post without an outcome is sent again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PostOutcome {
    /// The number of the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// Why the post will never be accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}
