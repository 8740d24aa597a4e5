//! Chats in the contract.

use super::{Call, Word};
use adjutant_core::chat::{ChatKind, EntryKind, FileEntry, FileHead, FileMember, FileRevision};
use adjutant_core::limits::UNREAD_COUNTED_MAX;
use adjutant_core::run::RunStatus;
use adjutant_core::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Starts a chat. It is open to its owner and all runs of that owner, or, when private, to the
/// participants only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartChat {
    pub title: String,
    /// Agents, runs, `person`, `parent`, `client:<name>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub participants: Vec<String>,
    #[serde(default)]
    pub private: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Instructions to the agents that answer in it, besides the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Goes on from a point of another chat: `3` (its end) or `3.17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<String>,
}
call!(StartChat = "chat-start", writes true -> ChatView);

/// Which chats a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatFilter {
    Active,
    Archived,
    All,
}

words!(ChatFilter { Active = "active", Archived = "archived", All = "all" });

/// Whether a chat is archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatStatus {
    Active,
    Archived,
}

words!(ChatStatus { Active = "active", Archived = "archived" });

/// What a participant does in a chat at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It waits for news.
    Reading,
    Answering,
    /// Its answer is queued.
    Queued,
}

words!(Activity { Reading = "reading", Answering = "answering", Queued = "queued" });

/// Lists chats that the caller may see, the one with the newest entry first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListChats {
    /// The active ones when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Word<ChatFilter>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Waits until something unread is for the caller.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_ms: u64,
}
call!(ListChats = "chats", writes false -> ChatList);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatList {
    pub chats: Vec<ChatView>,
    /// There are more than were asked for.
    #[serde(default)]
    pub more: bool,
    /// For a run: the other runs of its owner that have not finished, those at work first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub team: Vec<TeammateView>,
    /// There are more of them.
    #[serde(default)]
    pub team_more: bool,
}

/// A run as its siblings see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TeammateView {
    pub run_id: String,
    pub name: String,
    pub agent: String,
    pub status: Word<RunStatus>,
    /// The beginning of its task.
    pub task: String,
}

/// Lists the chats in which something that the caller has not read is for them: a message that names
/// them, a direct message, a flag.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListMentions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
call!(ListMentions = "mentions", writes false -> Mentions);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Mentions {
    pub mentions: Vec<MentionView>,
    /// There are more than were asked for.
    #[serde(default)]
    pub more: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MentionView {
    pub chat_id: i64,
    pub title: String,
    pub kind: Word<ChatKind>,
    /// What the caller has not read of the chat, up to 1,000.
    pub unread: i64,
    /// The newest one that is for them.
    pub message: ChatEntryView,
}

/// Writes a number of unread messages for a reader. Where counting ended, there may be more.
#[must_use]
pub fn unread_text(unread: i64) -> String {
    if unread < UNREAD_COUNTED_MAX { unread.to_string() } else { format!("{UNREAD_COUNTED_MAX}+") }
}

/// Reads a chat, waiting for something new where there is nothing. Reading moves the reader's
/// cursor over what was shown, where nothing unread lies before it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowChat {
    pub chat_id: i64,
    /// The oldest entries after this one. Left out: the newest ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Brings along what was edited or pinned after this change, [`ChatPage::changes`] of an earlier
    /// page. Left out: what is during the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<i64>,
    /// Without `after`: waits for an entry that the reader has not read.
    #[serde(default)]
    pub wait_ms: u64,
    /// Reads without moving the cursor.
    #[serde(default)]
    pub peek: bool,
}
call!(ShowChat = "chat", writes false -> ChatPage);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatPage {
    pub chat: ChatView,
    /// Oldest first.
    pub messages: Vec<ChatEntryView>,
    /// Earlier entries that were edited or pinned, as they are now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChatEntryView>,
    /// Pass as `after` to go on.
    pub cursor: i64,
    /// Pass as `changes` to go on.
    #[serde(default)]
    pub changes: i64,
    /// Entries after the cursor.
    pub more: i64,
    /// Entries before these that the reader has not read, up to 1,000. As long as there are any, what
    /// comes behind them does not count as read.
    #[serde(default)]
    pub unread_before: i64,
    /// How far the reader had read: pass as `after` to see what is unread.
    #[serde(default)]
    pub read_to: i64,
}

/// Posts a message to a chat or a participant (a direct chat), or edits or pins one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Say {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    /// Whom it is for: agents, runs, `person`, `parent`, `client:<name>`; without a chat, exactly
    /// one, `board` (the owner's, shared by all its runs), or `root-board` (that of the calling run's tree).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// May be left out where an entry is only pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// An entry's number (`17`), or `3.17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit_of: Option<String>,
    /// Keeps the entry in every window; false takes it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<bool>,
    /// A display label (`agentName` in the original protocol); it decides about nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The board's entry to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The revision that the board's entry must have, 0 for none yet: the first is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u32>,
    /// Lets the configured default responder answer where nobody else does.
    #[serde(default)]
    pub default_responder: bool,
    /// Where an answering run works: absolute. A run's is its own.
    #[serde(default)]
    pub cwd: String,
    /// Variables for the answering run; a run's are not taken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
call!(Say = "say", writes true -> PostedMessage);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PostedMessage {
    pub chat_id: i64,
    pub title: String,
    pub message: ChatEntryView,
    /// Agents that answer it.
    #[serde(default)]
    pub answering: Vec<String>,
    /// What else is to be known, for people.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Reads what agents answered to a message, waiting until all have.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAnswers {
    pub chat_id: i64,
    /// The message's number in the chat.
    pub seq: i64,
    /// Only this one, as [`Answers`] names it; `seq` is left at 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadAnswers = "answers", writes false -> Answers);

/// Ends the runs that answer a message; only who sent it does.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelAnswers {
    pub chat_id: i64,
    pub seq: i64,
}
call!(CancelAnswers = "answers-cancel", writes true -> Answers);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answers {
    /// Answers and failures, in order.
    pub answers: Vec<ChatEntryView>,
    /// Agents that have not answered yet.
    #[serde(default)]
    pub waiting: Vec<String>,
    /// Of a summary: what to ask for with [`ReadAnswers::turn`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
}

/// Archives a chat, or restores it. Runs cannot.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveChat {
    pub chat_id: i64,
    pub archived: bool,
    /// Where the run works that summarises it, if the configuration wants one: absolute.
    #[serde(default)]
    pub cwd: String,
    /// Variables for that run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
call!(ArchiveChat = "chat-archive", writes true -> ChatView);

/// Everything about a chat but its entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatView {
    pub chat_id: i64,
    pub kind: Word<ChatKind>,
    pub title: String,
    pub status: Word<ChatStatus>,
    pub private: bool,
    /// `person` or `client:<name>`.
    pub owner: String,
    /// The root run, when a run started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    pub started_by: String,
    pub started_at: String,
    pub last_at: String,
    /// The number of the newest entry.
    pub last_seq: i64,
    pub participant_count: u64,
    /// What the caller has not read, up to 1,000.
    pub unread: i64,
    /// Something unread names the caller.
    pub mentioned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// `3.17`: it goes on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_of: Option<String>,
    /// Its entries say what a file says that they were.
    #[serde(default)]
    pub imported: bool,
    /// Chats that go on from here; where the chat is looked at alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<i64>,
    /// Where the chat is looked at alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub participants: Vec<ParticipantView>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ParticipantView {
    /// `person`, `client:<name>`, `run:<id>` or `agent:<name>`.
    pub who: String,
    /// As it is shown: nobody is shown as another.
    pub name: String,
    pub messages: i64,
    pub read_to: i64,
    /// Empty: nothing.
    pub presence: Word<Activity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_at: Option<String>,
}

/// One entry of a chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatEntryView {
    /// `3.17`.
    pub message_id: String,
    pub chat_id: i64,
    pub seq: i64,
    pub kind: Word<EntryKind>,
    /// Who wrote it, from the connection: `person`, `client:<name>`, `run:<id>`, `agent:<name>`, `hub`.
    pub from: String,
    /// As it is shown: nobody is shown as another.
    pub name: String,
    /// What the writer calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub text: String,
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<i64>,
    #[serde(default)]
    pub pinned: bool,
    /// How often it was edited.
    #[serde(default)]
    pub revision: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Reads a chat with everything that is kept of it, part by part.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportChat {
    pub chat_id: i64,
    #[serde(default)]
    pub after: i64,
}
call!(ExportChat = "chat-export", writes false -> ChatExport);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatExport {
    /// With the first part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CarriedChat>,
    pub entries: Vec<CarriedEntry>,
    /// Pass as `after` for the next part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// Makes a chat of what was exported: the head first, then the entries in order. Only a person
/// does, and the chat says that it is from a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportChat {
    /// The chat that an earlier part made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CarriedChat>,
    #[serde(default)]
    pub entries: Vec<CarriedEntry>,
    /// More parts follow: the chat is there with the last one.
    #[serde(default)]
    pub more: bool,
}
call!(ImportChat = "chat-import", writes true -> ChatView);

/// The first line of an exported chat. Times are milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedChat {
    /// 1.
    pub format: u32,
    pub chat_id: i64,
    pub kind: String,
    pub title: String,
    pub private: bool,
    pub template: Option<String>,
    pub instructions: Option<String>,
    pub window_chars: u64,
    /// Where the window is counted in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
    pub turns_max: u32,
    pub archived: bool,
    pub started_by: String,
    pub started_name: String,
    pub started_at: i64,
    pub last_at: i64,
    pub members: Vec<CarriedMember>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedMember {
    pub who: String,
    pub name: String,
    pub joined_at: Option<i64>,
    pub read_seq: i64,
    pub mention_seq: i64,
    pub said: i64,
    pub seen_at: Option<i64>,
}

impl CarriedChat {
    /// Returns what has to be checked of it.
    #[must_use]
    pub fn parts(&self) -> FileHead<'_> {
        FileHead {
            title: &self.title,
            template: self.template.as_deref(),
            instructions: self.instructions.as_deref(),
            started_by: &self.started_by,
            started_name: &self.started_name,
            started_at: self.started_at,
            last_at: self.last_at,
            members: self
                .members
                .iter()
                .map(|member| FileMember {
                    who: &member.who,
                    name: &member.name,
                    times: [member.joined_at, member.seen_at],
                    counts: [member.read_seq, member.mention_seq, member.said],
                })
                .collect(),
        }
    }
}

/// A further line of an exported chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedEntry {
    pub seq: i64,
    pub kind: String,
    pub author: String,
    pub name: String,
    pub label: Option<String>,
    pub text: String,
    pub at: i64,
    pub reply_to: Option<i64>,
    pub hops: u32,
    pub pinned: bool,
    pub key: Option<String>,
    pub edited_at: Option<i64>,
    /// What it said before, oldest first.
    pub revisions: Vec<CarriedRevision>,
}

impl CarriedEntry {
    /// Returns what has to be checked of it.
    #[must_use]
    pub fn parts(&self) -> FileEntry<'_> {
        FileEntry {
            seq: self.seq,
            kind: &self.kind,
            author: &self.author,
            name: &self.name,
            label: self.label.as_deref(),
            text: &self.text,
            at: self.at,
            reply_to: self.reply_to,
            key: self.key.as_deref(),
            edited_at: self.edited_at,
            revisions: self.revisions.iter().map(|old| FileRevision { author: &old.author, name: &old.name, text: &old.text, at: old.at }).collect(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedRevision {
    pub author: String,
    pub name: String,
    pub text: String,
    pub at: i64,
}

/// Figures about a chat, or about all that there are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetChatStats {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
}
call!(GetChatStats = "chat-stats", writes false -> ChatStats);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatStats {
    pub chats: i64,
    pub entries: i64,
    pub messages: i64,
    pub participants: i64,
    /// Of one chat, from its start to its newest entry; of several, the mean.
    pub duration_s: i64,
    pub messages_per_chat: f64,
    /// Of the newest 10,000 messages that agents had to answer.
    pub answered: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub open: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_p50: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_p95: Option<i64>,
    /// Calls about chats since the hub was started, how many of them failed by no fault of the
    /// caller, and how many were refused.
    pub calls: u64,
    pub calls_failed: u64,
    pub calls_refused: u64,
    /// Since the hub was started.
    pub up_s: u64,
}

/// Has the configured agent (or another) summarise a chat; its words become an entry.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummariseChat {
    pub chat_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Where its run works: absolute.
    #[serde(default)]
    pub cwd: String,
    /// Variables for that run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
call!(SummariseChat = "chat-summarise", writes true -> Answers);
