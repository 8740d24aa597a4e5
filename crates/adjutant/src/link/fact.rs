//! The facts that a supervisor states about its attempt.

use super::evidence::{AttemptEvidence, FenceText, PreparationText};
use super::usage::{ModelUsage, QuotaWindowText, UsageText};
use crate::view::{ResourcesView, SubagentView};
use serde::{Deserialize, Serialize};

/// One numbered statement of a supervisor about its attempt.
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
    /// The agent's process is there.
    Started {
        pid: u32,
        guard_pid: u32,
        containment: String,
        /// The fence, where one was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<FenceText>,
    },
    /// What the attempt's workspace was given, beside the files of git.
    WorkspacePrepared(PreparationText),
    /// It could not be started. `code` is one of [`crate::view::codes`].
    SpawnFailed { code: String, message: String },
    /// Output has come since the last such fact (at most one each second; never synced by itself).
    Output { total_bytes: u64 },
    /// A message was given to the running process.
    Delivered { message_id: String },
    /// The vendor's session that the agent works in: a later attempt can go on in it.
    Session { session: String },
    /// Something in the agent's own words looks like a signal.
    Signal { found: FoundText },
    /// The guard died; the supervisor goes on without it.
    GuardLost {},
    /// The active time (of all attempts together) is used up; the supervisor is stopping the attempt.
    LimitReached { active_ms: i64 },
    /// The processes use more memory than they may; the supervisor is stopping the attempt.
    MemoryLimitReached { memory_bytes: u64 },
    /// It has written nothing and called nobody for so long.
    Stalled { silent_ms: i64 },
    /// A sign of life after that.
    #[serde(rename = "stirred")]
    ActiveAgain {},
    /// Its output has reported writes that the fence denied: so many, and the last line that did.
    WriteDenied { times: u64, line: String },
    /// Its CLI repeats a call to its model that has kept failing for so long. `cause` is the stable word of a
    /// [`adjutant_core::Cause`], `words` are the CLI's own.
    Retrying { cause: String, words: String, tries: u32, for_ms: i64 },
    /// Progress after that.
    Recovered {},
    /// The sub-agents that its CLI has started by itself, as far as they are known, and how many more there were.
    Subagents(SubagentsText),
    /// What the attempt's processes use of the machine.
    Resources(ResourcesView),
    /// What the agent's stream says that was used so far: totals, as `usage` of the last fact.
    Usage(UsageText),
    /// What the gate to the model has counted so far. From then on the stream's usage does not count.
    GateUsage { used: Vec<ModelUsage> },
    /// The agent calls its model without the gate.
    GateIgnored { why: String },
    /// The vendor accepts no further request of the agent before this time, in milliseconds since the epoch.
    UsageLimitReported { until_ms: i64 },
    /// How much of the agent's quota is used, as its vendor has stated it.
    QuotaWindows { windows: Vec<QuotaWindowText> },
    /// The agent has ended a turn and continues with another one.
    TurnEnded {},
    /// A snapshot of the run's tree was taken. `cause` is the stable word of a [`adjutant_core::snapshot::SnapshotCause`].
    SnapshotTaken { snapshot: u32, cause: String },
    /// A snapshot of the run's tree could not be taken.
    SnapshotFailed { why: String },
    /// The agent has ended, and what it left behind is about to be looked at. Should the supervisor die
    /// over that, `end` (an `Ended`) is how the attempt ended.
    AgentEnded { end: Box<FactKind> },
    /// What was found of what it left behind.
    #[serde(rename = "looked")]
    EvidenceCollected(AttemptEvidence),
    /// The agent's process has ended and everything it started is gone. Always the last fact.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
        /// Killed because they were still there.
        swept: u32,
        /// A descendant kept the output open and was cut off.
        output_left_open: bool,
        /// Active time of all attempts together.
        active_ms: i64,
        /// The agent's last message: the last 16 KiB of it at most, whole characters.
        result: String,
        /// Length of the whole message, which the `answer` file has where that is more. 0: nobody said it.
        #[serde(default)]
        result_bytes: u64,
        /// Why the message is no result, and what was said before it. `None`: it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<GapText>,
        output_bytes: u64,
        /// What the agent's stream said about its end. `None`: it has none, the exit status counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<VerdictText>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<UsageText>,
    },
}

/// Why a last message is no result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapText {
    /// `empty`, `cut` or `pointer`.
    pub word: String,
    /// Substantial messages before it, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

/// The sub-agents of a CLI's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubagentsText {
    pub all: Vec<SubagentView>,
    /// There were more than those.
    #[serde(default)]
    pub more: u64,
}

/// What an agent's stream said about its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictText {
    /// The stable word of a cause. `None`: it succeeded.
    pub cause: Option<String>,
    /// What went wrong and what to do about it, for people.
    #[serde(default)]
    pub message: String,
    /// When it can go on, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at_ms: Option<i64>,
}

/// What a scanner found, as it stood there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum FoundText {
    Block {
        tag: String,
        text: String,
    },
    Json {
        text: String,
    },
    /// It began and did not end well.
    Broken {
        tag: String,
        text: String,
        why: String,
    },
}
