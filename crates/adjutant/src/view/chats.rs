//! Chats: conversations between the person, clients, runs and agents.

use super::{Call, Word};
use adjutant_core::chat::{ChatKind, EntryKind, FileEntry, FileHead, FileMember, FileRevision, Receipt};
use adjutant_core::limits::UNREAD_COUNTED_MAX;
use adjutant_core::run::RunStatus;
use adjutant_core::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Starts a chat. It is open to its owner and all of the owner's runs. A private chat is open to its participants
/// only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartChat {
    pub title: String,
    /// Agents, runs, `person`, `parent` or `client:<name>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub participants: Vec<String>,
    #[serde(default)]
    pub private: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Instructions for the agents that answer in the chat, in addition to its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Branches from another chat: `3` (at its end) or `3.17` (after that entry).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<String>,
}
call!(StartChat = "chat-start", writes true -> ChatView);

/// Which chats to list.
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

/// What a participant is currently doing in a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The participant waits for new entries.
    Reading,
    Answering,
    /// The participant's answer is queued.
    Queued,
}

words!(Activity { Reading = "reading", Answering = "answering", Queued = "queued" });

/// Lists the chats that the caller may see, most recent entry first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListChats {
    /// Default: active chats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Word<ChatFilter>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Waits up to this long until there is an unread message for the caller.
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
    /// If the caller is a run: its owner's other unfinished runs, live ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub team: Vec<TeammateView>,
    /// There are more runs than `team` has.
    #[serde(default)]
    pub team_more: bool,
}

/// What a run sees of another run of the same owner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TeammateView {
    pub run_id: String,
    pub name: String,
    pub agent: String,
    pub status: Word<RunStatus>,
    /// The beginning of the run's task.
    pub task: String,
}

/// Lists chats with unread messages for the caller: a message that mentions it, a direct message, or a flag.
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
    /// The number of unread entries in the chat, counted up to 1,000.
    pub unread: i64,
    /// The newest unread message for the caller.
    pub message: ChatEntryView,
}

/// Formats a number of unread entries, with a `+` if counting stopped at the maximum.
#[must_use]
pub fn unread_text(unread: i64) -> String {
    if unread < UNREAD_COUNTED_MAX { unread.to_string() } else { format!("{UNREAD_COUNTED_MAX}+") }
}

/// Reads a chat, optionally waiting for new entries. The reader's cursor advances over the entries shown unless
/// unread entries precede them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowChat {
    pub chat_id: i64,
    /// Returns the oldest entries after this one. Default: the newest entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Also returns earlier entries that were edited or pinned since an earlier page: its [`ChatPage::changes`].
    /// Default: only changes made during the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<i64>,
    /// Waits up to this long for a new entry: one after `after`, else one that the reader has not read.
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
    /// Pass as `after` to read the next entries.
    pub cursor: i64,
    /// Pass as `changes` to read later edits and pins.
    #[serde(default)]
    pub changes: i64,
    /// The number of entries after `cursor`.
    pub more: i64,
    /// The number of unread entries before these, counted up to 1,000. While there are any, later entries do not
    /// count as read.
    #[serde(default)]
    pub unread_before: i64,
    /// The last entry that the reader had read. Pass as `after` to see the unread ones.
    #[serde(default)]
    pub read_to: i64,
}

/// Posts a message to a chat or directly to a participant, or edits or pins a message.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Say {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    /// The recipients: agents, runs, `person`, `parent` or `client:<name>`. Without `chat_id` exactly one
    /// recipient, or `board` (the owner's board, shared by all its runs), `root-board` (the board of the calling
    /// run's tree) or `ledger` (announces what the calling run will change or provide).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Optional if the call only pins an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// An entry's number (`17`), or `3.17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit_of: Option<String>,
    /// Whether the entry is pinned. Agents always see pinned entries, however old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<bool>,
    /// A display label (`agentName` in the original protocol). It grants nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The run whose tree's board `root-board` is, if the caller is no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board_of: Option<String>,
    /// The key of the board entry to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The revision that the board entry must have: 0 if it must not exist yet, 1 for its first revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u32>,
    /// Lets the configured default responder answer if no other agent is addressed.
    #[serde(default)]
    pub default_responder: bool,
    /// The working directory of an answering run, absolute. A calling run's own directory is used instead.
    #[serde(default)]
    pub cwd: String,
    /// Environment variables for an answering run. A calling run's own are used instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
call!(Say = "say", writes true -> PostedMessage);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PostedMessage {
    pub chat_id: i64,
    pub title: String,
    pub message: ChatEntryView,
    /// The agents that will answer.
    #[serde(default)]
    pub answering: Vec<String>,
    /// Notes for people.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The runs to which the message was addressed, and how far it has come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptView>,
}

/// How far a message to a run has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiptView {
    pub run_id: String,
    pub run_name: String,
    pub receipt: Word<Receipt>,
    pub at: String,
}

/// Reads the agents' answers to a message, optionally waiting until all have answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAnswers {
    pub chat_id: i64,
    /// The message's number in the chat.
    pub seq: i64,
    /// Reads only the answer of this turn, from [`Answers::turn`]. `seq` is then 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
    /// Also reads the replies of the runs to which the message was sent. A wait for them ends when a message arrives for
    /// the caller, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replies: bool,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadAnswers = "answers", writes false -> Answers);

/// Cancels the runs that are answering a message. Only the sender of the message may.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelAnswers {
    pub chat_id: i64,
    pub seq: i64,
}
call!(CancelAnswers = "answers-cancel", writes true -> Answers);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answers {
    /// Answers and failures, oldest first.
    pub answers: Vec<ChatEntryView>,
    /// Agents that have not answered yet.
    #[serde(default)]
    pub waiting: Vec<String>,
    /// For a summary: pass as [`ReadAnswers::turn`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
    /// With [`ReadAnswers::replies`]: the receipts of the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptView>,
    /// With [`ReadAnswers::replies`]: messages are queued for the calling run, which end its wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_messages: bool,
}

/// Archives or restores a chat. Not available to runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveChat {
    pub chat_id: i64,
    pub archived: bool,
    /// The working directory of the summarising run, absolute, if the configuration asks for a summary.
    #[serde(default)]
    pub cwd: String,
    /// Environment variables for that run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
call!(ArchiveChat = "chat-archive", writes true -> ChatView);

/// A chat without its entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatView {
    pub chat_id: i64,
    pub kind: Word<ChatKind>,
    pub title: String,
    pub status: Word<ChatStatus>,
    pub private: bool,
    /// `person` or `client:<name>`.
    pub owner: String,
    /// The root run of the run that started the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    pub started_by: String,
    pub started_at: String,
    pub last_at: String,
    /// The number of the newest entry.
    pub last_seq: i64,
    pub participant_count: u64,
    /// The number of entries that the caller has not read, counted up to 1,000.
    pub unread: i64,
    /// An unread entry mentions the caller.
    pub mentioned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The entry that the chat branched from, `3.17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_of: Option<String>,
    /// The chat was imported from a file; its entries are not verified.
    #[serde(default)]
    pub imported: bool,
    /// Chats that branched from this one. Only in replies about a single chat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<i64>,
    /// Only in replies about a single chat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub participants: Vec<ParticipantView>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ParticipantView {
    /// `person`, `client:<name>`, `run:<id>` or `agent:<name>`.
    pub who: String,
    /// The display name. No participant is shown under another's name.
    pub name: String,
    pub messages: i64,
    pub read_to: i64,
    /// Empty if the participant is not active.
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
    /// The author, identified by its connection: `person`, `client:<name>`, `run:<id>`, `agent:<name>` or `hub`.
    pub from: String,
    /// The display name. No participant is shown under another's name.
    pub name: String,
    /// The name that the author gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub text: String,
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<i64>,
    #[serde(default)]
    pub pinned: bool,
    /// The number of edits.
    #[serde(default)]
    pub revision: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The runs to which the entry was sent, and how far it has come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptView>,
}

/// Reads the boards that the caller may see, merged: the entries that were added or changed last, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBoard {
    /// Reads only the boards that this run sees: its owner's and its tree's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
call!(ReadBoard = "board", writes false -> Board);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Board {
    pub entries: Vec<BoardEntryView>,
    /// There are older entries.
    #[serde(default)]
    pub more: bool,
}

/// One entry of a board.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BoardEntryView {
    /// `3.17`.
    pub message_id: String,
    pub chat_id: i64,
    /// The board's title.
    pub board: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Pass as `expect` to change the entry.
    pub version: u32,
    /// The author of this version.
    pub from: String,
    pub name: String,
    /// When this version was written.
    pub at: String,
    /// The entry as JSON; a text that is no JSON is a string.
    pub value: serde_json::Value,
}

/// Reads everything stored about a chat, in parts.
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
    /// Only in the first part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CarriedChat>,
    pub entries: Vec<CarriedEntry>,
    /// Pass as `after` for the next part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// Creates a chat from an export: first the head, then the entries in order. Only the person may import, and the
/// chat is marked as imported.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportChat {
    /// The chat that the first part created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CarriedChat>,
    #[serde(default)]
    pub entries: Vec<CarriedEntry>,
    /// More parts follow. The chat becomes visible with the last one.
    #[serde(default)]
    pub more: bool,
}
call!(ImportChat = "chat-import", writes true -> ChatView);

/// The first line of an exported chat. Times are in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedChat {
    /// The version of the format: 1.
    pub format: u32,
    pub chat_id: i64,
    pub kind: String,
    pub title: String,
    pub private: bool,
    pub template: Option<String>,
    pub instructions: Option<String>,
    pub window_chars: u64,
    /// Present if the window is measured in tokens.
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
    /// Returns the fields that must be validated.
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

/// Each further line of an exported chat.
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
    /// Earlier versions of the entry, oldest first.
    pub revisions: Vec<CarriedRevision>,
}

impl CarriedEntry {
    /// Returns the fields that must be validated.
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

/// Returns statistics of one chat, or of all chats.
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
    /// Time from a chat's start to its newest entry; the mean if there are several chats.
    pub duration_s: i64,
    pub messages_per_chat: f64,
    /// Counts among the newest 10,000 turns of agents.
    pub answered: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub open: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_p50: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_p95: Option<i64>,
    /// Calls about chats since the hub started, how many of them failed through no fault of the caller, and how
    /// many were refused.
    pub calls: u64,
    pub calls_failed: u64,
    pub calls_refused: u64,
    /// Seconds since the hub started.
    pub up_s: u64,
}

/// Asks the configured agent, or another, to summarise a chat. The summary becomes an entry.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummariseChat {
    pub chat_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The working directory of the agent's run, absolute.
    #[serde(default)]
    pub cwd: String,
    /// Environment variables for that run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
call!(SummariseChat = "chat-summarise", writes true -> Answers);
