//! The facts that a supervisor reports about its attempt.

use super::evidence::{AttemptEvidence, FenceText, PreparationText};
use super::usage::{ModelUsage, QuotaWindowText, UsageText};
use crate::view::{ResourcesView, SubagentView};
use serde::{Deserialize, Serialize};

/// One numbered fact about an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// From 1, without gaps within the attempt.
    pub n: u64,
    /// Wall clock, milliseconds since the epoch.
    pub at_ms: i64,
    #[serde(flatten)]
    pub what: FactKind,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum FactKind {
    /// The agent's process was started.
    Started {
        pid: u32,
        guard_pid: u32,
        containment: String,
        /// The fence, if one was requested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<FenceText>,
    },
    /// The attempt's workspace was prepared.
    WorkspacePrepared(PreparationText),
    /// The agent could not be started. `code` is one of [`crate::view::codes`].
    SpawnFailed { code: String, message: String },
    /// The agent has written output since the last such fact. At most one each second; not synced
    /// by itself.
    Output { total_bytes: u64 },
    /// A message was delivered to the running process.
    Delivered { message_id: String },
    /// The vendor's session of the agent, in which a later attempt can continue.
    Session { session: String },
    /// The agent's text contains a possible signal.
    Signal { found: FoundText },
    /// The guard has died. The supervisor continues without it.
    GuardLost {},
    /// The active time of all attempts has reached the limit, so the supervisor stops the attempt.
    LimitReached { active_ms: i64 },
    /// The processes use more memory than allowed, so the supervisor stops the attempt.
    MemoryLimitReached { memory_bytes: u64 },
    /// The hub has answered no call for so long that the lease of the attempt ends, so the
    /// supervisor stops the attempt.
    HubLost {},
    /// The agent has written no output and made no call for this long.
    Stalled { silent_ms: i64 },
    /// The agent has written output or made a call again.
    #[serde(rename = "stirred")]
    ActiveAgain {},
    /// The output reports writes that the fence denied: their number, and the last line that
    /// reports one.
    WriteDenied { times: u64, line: String },
    /// The CLI retries a call to its model that has been failing for this long. `cause` is the
    /// stable word of a [`adjutant_core::Cause`], `words` is the CLI's own message.
    Retrying {
        cause: String,
        words: String,
        tries: u32,
        for_ms: i64,
    },
    /// The agent has made progress after retries.
    Recovered {},
    /// The known sub-agents that the CLI has started by itself.
    Subagents(SubagentsText),
    /// The resource use of the attempt's processes.
    Resources(ResourcesView),
    /// The usage so far that the agent's stream states: totals, like `usage` of the last fact.
    Usage(UsageText),
    /// The usage that the gate has counted so far. From then on, the stream's usage is ignored.
    GateUsage { used: Vec<ModelUsage> },
    /// The agent calls its model without the gate.
    GateIgnored { why: String },
    /// The vendor accepts no request of the agent before this time, in milliseconds since the
    /// epoch.
    UsageLimitReported { until_ms: i64 },
    /// How much of the agent's quota is used, as its vendor has stated it.
    QuotaWindows { windows: Vec<QuotaWindowText> },
    /// The agent has ended a turn and continues with another one.
    TurnEnded {},
    /// A snapshot of the run's tree was taken. `cause` is the stable word of a
    /// [`adjutant_core::snapshot::SnapshotCause`].
    SnapshotTaken { snapshot: u32, cause: String },
    /// A snapshot of the run's tree could not be taken.
    SnapshotFailed { why: String },
    /// The agent has ended, and evidence is being collected. If the supervisor dies meanwhile,
    /// `end` (an `Ended`) is the attempt's end.
    AgentEnded { end: Box<FactKind> },
    /// The collected evidence.
    #[serde(rename = "looked")]
    EvidenceCollected(AttemptEvidence),
    /// The agent and all processes that it started have ended. Always the last fact.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
        /// The number of processes that outlived the agent and were killed.
        swept: u32,
        /// A descendant kept the output open, which was then closed.
        output_left_open: bool,
        /// Active time of all attempts together, until the agent's exit. Includes the acceptance
        /// command.
        active_ms: i64,
        /// The agent exited before a stop of it began.
        #[serde(default)]
        by_itself: bool,
        /// The agent's last message, or its last 16 KiB in whole characters.
        result: String,
        /// Length of the whole message. If it is longer than `result`, the `answer` file contains
        /// it. 0: unknown.
        #[serde(default)]
        result_bytes: u64,
        /// Why the message is not a result, and the messages before it. `None`: it is a result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<GapText>,
        output_bytes: u64,
        /// The last line of standard error of a program without a structured stream that failed.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        error_line: String,
        /// The verdict of the agent's stream. `None`: there is no structured stream, so the exit
        /// status counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<VerdictText>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<UsageText>,
        /// The agent was to use Adjutant's tools and has never connected to them. An older
        /// supervisor does not say so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lacks_tools: bool,
    },
}

/// Why a last message is not a result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapText {
    /// `empty`, `cut` or `pointer`.
    pub word: String,
    /// Substantial messages before it, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

/// A CLI's own sub-agents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubagentsText {
    pub all: Vec<SubagentView>,
    /// The number of further ones.
    #[serde(default)]
    pub more: u64,
}

/// The outcome that an agent's stream states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictText {
    /// The stable word of a cause. `None`: success.
    pub cause: Option<String>,
    /// What went wrong and what to do about it, for people.
    #[serde(default)]
    pub message: String,
    /// When the run can resume, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at_ms: Option<i64>,
}

/// A possible signal, as the scanner found it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum FoundText {
    Block {
        tag: String,
        text: String,
        /// Its closing line is missing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unclosed: bool,
    },
    Json {
        text: String,
    },
    /// The beginning of a block that is too large.
    Oversized {
        tag: String,
        text: String,
    },
    /// A line that contains a marker and is not a block.
    Mention {
        tag: String,
        line: String,
    },
}
