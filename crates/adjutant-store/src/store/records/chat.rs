//! One chat, its participants and its entries, with the columns that they are read from.

use crate::store::db::{self, Columns, row};
use crate::store::ids::{unsigned, unsigned_if_any};
use adjutant_core::chat::{Audience, Budget, ChatId, ChatKind, EntryKind, Participant, Scope};
use adjutant_core::{Principal, RunId, Time, words};

/// The relation of a chat to other hubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatLink {
    /// Peers may follow it.
    Shared,
    /// It is a copy of a peer's chat.
    Followed,
}

words!(ChatLink { Shared = "shared", Followed = "followed" });

row! {
    /// One chat.
    #[derive(Debug, Clone)]
    pub struct Chat as c, named "chat {}" {
        pub id: ChatId,
        pub kind: ChatKind,
        pub title: String,
        pub scope: Scope [ScopeRow] as ScopeRow::decode,
        pub private: bool,
        pub template: Option<String>,
        pub instructions: Option<String>,
        pub window: Budget [WindowRow] as WindowRow::decode,
        pub turns_max: u32,
        /// The chat that this one branched from, and the last entry that both share.
        pub branch_of: Option<(ChatId, i64)> [BranchRow] as BranchRow::decode,
        /// The number of conversation entries inherited from that chat.
        pub branch_said: i64,
        pub archived: bool,
        /// The chat was imported from a file; its entries are not verified.
        pub imported: bool,
        /// The import is not complete, so the chat is hidden.
        pub importing: bool = "c.importing IS NOT NULL",
        pub started_by: Participant,
        pub started_name: String,
        pub started_at: Time,
        pub last_at: Time,
        pub last_seq: i64,
        /// The number of entries that are part of the conversation.
        pub said: i64,
        pub link: Option<ChatLink> = "c.linked" as link,
    }
}

row! {
    /// The columns of a scope.
    struct ScopeRow as c {
        owner: Principal,
        root: Option<RunId>,
    }
}

impl ScopeRow {
    fn decode(self) -> db::Result<Scope> {
        let Self { owner, root } = self;
        Ok(Scope { owner, root })
    }
}

row! {
    /// The columns of how much of a chat an agent reads.
    struct WindowRow as c {
        window_chars: u64 as unsigned,
        window_tokens: Option<u64> as unsigned_if_any,
    }
}

impl WindowRow {
    fn decode(self) -> db::Result<Budget> {
        Ok(match self.window_tokens {
            Some(tokens) => Budget::Tokens(tokens),
            None => Budget::Chars(self.window_chars),
        })
    }
}

row! {
    /// The columns of where a chat branched from another one.
    struct BranchRow as c {
        branch_of: Option<ChatId>,
        branch_seq: Option<i64>,
    }
}

impl BranchRow {
    fn decode(self) -> db::Result<Option<(ChatId, i64)>> {
        Ok(self.branch_of.zip(self.branch_seq))
    }
}

fn link(columns: &mut Columns<'_>) -> db::Result<Option<ChatLink>> {
    let word: Option<String> = columns.value()?;
    Ok(word.as_deref().and_then(ChatLink::from_word))
}

impl Chat {
    /// Returns whether this is a copy of a peer's chat, which only the peer adds entries to.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.link == Some(ChatLink::Followed)
    }

    /// Returns to whom the chat is open.
    #[must_use]
    pub fn audience(&self) -> Audience {
        Audience::of(self.kind, &self.scope, self.private)
    }
}

row! {
    /// A participant of a chat.
    #[derive(Debug, Clone)]
    pub struct Member, named "participant {}" {
        pub who: Participant,
        pub name: String,
        /// `None`: the participant has only read.
        pub joined_at: Option<Time>,
        pub read_seq: i64,
        pub mention_seq: i64,
        pub said: i64,
        pub seen_at: Option<Time>,
    }
}

row! {
    /// One entry of a chat.
    #[derive(Debug, Clone)]
    pub struct ChatEntry as m, named "entry {} of a chat" {
        pub id: i64,
        pub chat: ChatId,
        pub seq: i64,
        pub kind: EntryKind,
        pub author: Participant,
        pub name: String,
        pub label: Option<String>,
        pub text: String,
        pub at: Time,
        pub reply_to: Option<i64>,
        pub hops: u32,
        pub pinned: bool,
        pub revision: u32,
        pub edited_at: Option<Time>,
        pub key: Option<String>,
    }
}

row! {
    /// An earlier version of an entry.
    #[derive(Debug, Clone)]
    pub struct Revision {
        pub revision: u32,
        pub author: String,
        pub name: String,
        pub text: String,
        pub at: Time,
    }
}
