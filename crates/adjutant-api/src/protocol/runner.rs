//! The calls of a runner to the hub, all with a token of role runner. All but the first name the
//! session in a header.

use super::calls::FactsStored;
use super::fact::Fact;
use super::order::Order;
use crate::view::{ErrorView, LogPage, ReadLogs};
use adjutant_core::pressure::{MachineLoad, Share, Stall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The headers with a runner's session and the identity of its home.
pub const RUNNER_SESSION: &str = "adj-runner-session";
pub const RUNNER_HOME: &str = "adj-runner-home";
/// The header of a reply to a runner without a valid session: it must join (again).
pub const RUNNER_MUST_JOIN: &str = "adj-runner-must-join";
/// The header with the token of the attempt whose call a runner relays.
pub const ATTEMPT_TOKEN: &str = "adj-attempt-token";
/// The prefix of the paths of relayed calls.
pub const RUNNER_RELAY: &str = "/runner/relay";

/// `POST /runner/join`: begins a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRunner {
    /// The identity of the runner's home, which it has made.
    pub home_id: String,
    /// The pools that it serves. Empty: every pool for runners with labels, if the runner has them
    /// all.
    pub pools: Vec<String>,
    /// What the runner says of its machine, by name.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// How many attempts it takes at a time.
    pub slots: u64,
    #[serde(default)]
    pub version: String,
    /// What a hub of the store has given to it last, as in [`RunnerWork`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerJoined {
    pub session: String,
    /// The name of the runner, which is that of its token.
    pub name: String,
    pub lease_ms: u64,
    /// The pools that it serves.
    pub pools: Vec<String>,
    /// Runs that were removed at the hub. The runner removes their files and confirms it with
    /// `/runner/removed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// The live attempts that the hub has placed there. The runner ends all others, and reports the
    /// end of each of these with `/runner/ended`.
    pub attempts: Vec<LeasedAttempt>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedAttempt {
    /// `<run-id>/<attempt>`.
    pub attempt: String,
    pub lease_ms: u64,
}

/// `POST /runner/work`: waits for attempts to start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetRunnerWork {
    /// The attempts whose orders have arrived. Others are sent again.
    #[serde(default)]
    pub taken: Vec<String>,
    /// The runner is ending and takes no further attempt.
    #[serde(default)]
    pub drains: bool,
    /// The runner has no attempts and ends, unless there are orders for it.
    #[serde(default)]
    pub leaves: bool,
    /// The load of its machine.
    #[serde(default)]
    pub load: RunnerLoad,
    /// Why the runner's home cannot be written. The runner takes no attempts until it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritable: Option<String>,
    pub wait_ms: u64,
}

/// The load of a runner's machine. `None`: its kernel does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerLoad {
    /// How much of the last ten seconds at least one task waited for memory, in hundredths of a
    /// percent.
    #[serde(default)]
    pub memory: Option<u32>,
    #[serde(default)]
    pub cpu: Option<u32>,
    #[serde(default)]
    pub free_bytes: Option<u64>,
}

impl From<MachineLoad> for RunnerLoad {
    fn from(load: MachineLoad) -> Self {
        let some = |stall: Option<Stall>| stall.map(|stall| stall.some.0);
        Self {
            memory: some(load.memory),
            cpu: some(load.cpu),
            free_bytes: load.free_bytes,
        }
    }
}

impl From<RunnerLoad> for MachineLoad {
    fn from(load: RunnerLoad) -> Self {
        let stall = |some: Option<u32>| {
            some.map(|some| Stall {
                some: Share(some),
                ..Stall::default()
            })
        };
        Self {
            memory: stall(load.memory),
            cpu: stall(load.cpu),
            free_bytes: load.free_bytes,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunnerWork {
    pub orders: Vec<Order>,
    /// Parts of logs that the hub wants, each once. The runner sends them with `/runner/log`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<LogRead>,
    /// Runs that were removed at the hub, as in [`RunnerJoined`], each once in a session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// The session has ended as the runner has asked: no order is or will be for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
    /// The fingerprint of the hub's certificate for new connections, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// What the store has confirmed, in a form that only its hubs read. The runner keeps it, and
    /// shows it when it joins: a database that was set back is noticed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<String>,
}

/// `POST /runner/removed`: the runner has no files of these runs any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostRemoved {
    pub runs: Vec<String>,
}

/// A part of a log that the hub wants.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LogRead {
    /// Its number in the session.
    pub number: u64,
    /// `<run-id>/<attempt>`, the newest attempt.
    pub attempt: String,
    /// The first attempt whose output is wanted.
    pub first: u32,
    /// The run has ended.
    pub ended: bool,
    pub call: ReadLogs,
}

/// `POST /runner/log`: sends a part of a log.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PostLog {
    pub number: u64,
    /// `None`: see `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<LogPage>,
    #[serde(default)]
    pub problem: String,
}

/// A file of an attempt's logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFileName {
    /// The readable log.
    Text,
    TextTimes,
    TextMap,
    /// A part of it that starts at this position and was not merged.
    TextSegment(u64),
    /// What the agent's CLI wrote.
    Raw,
    RawTimes,
    RawMap,
    RawSegment(u64),
    /// The agent's last message.
    Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFileDigest {
    pub name: LogFileName,
    pub bytes: u64,
    /// The hash of its bytes, in hexadecimal digits.
    pub sha256: String,
}

/// `POST /runner/log-files`: names the logs of an attempt that has ended, which the hub is to keep.
/// If the hub has all of their bytes, they are complete. May be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostLogFiles {
    pub attempt: String,
    pub files: Vec<LogFileDigest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFilesStored {
    /// The hub has everything.
    pub is_complete: bool,
    /// How many bytes of each file the hub has.
    pub bytes: Vec<u64>,
}

/// The first line of the body of `POST /runner/log-bytes`, which adds the bytes behind it to a
/// named file. May be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBytes {
    pub attempt: String,
    pub file: LogFileName,
    /// The position of the bytes. The hub writes them only at the end of what it has.
    pub at: u64,
}

/// How many bytes of the file the hub has. They are on its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBytesStored {
    pub bytes: u64,
}

/// How many calls of supervisors one call can deliver.
pub const SUPERVISOR_CALLS_MAX: usize = 128;

/// `POST /runner/supervisor-facts`: delivers up to [`SUPERVISOR_CALLS_MAX`] calls of supervisors to
/// `/link/facts`. May be repeated.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PostSupervisorFacts {
    pub calls: Vec<SupervisorCall>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SupervisorCall {
    pub attempt: String,
    /// The token that the supervisor has presented.
    pub token: String,
    /// Its arguments, a [`super::PostFacts`], as they are. The runner may be older than the
    /// supervisor.
    pub arguments: serde_json::Value,
}

/// The answers, in the order of the calls.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SupervisorFactsAnswers {
    pub answers: Vec<SupervisorFactsAnswer>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupervisorFactsAnswer {
    Stored(FactsStored),
    Refused(ErrorView),
}

/// `POST /runner/facts`: delivers facts of an attempt without processes. May be repeated.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PostLeftFacts {
    pub attempt: String,
    pub facts: Vec<Fact>,
}

/// `POST /runner/ended`: reports that no process of an attempt is left, after its facts. May be
/// repeated.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PostEnded {
    pub attempt: String,
    pub remains: Remains,
}

/// What is known about an attempt without processes, besides its facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// Its agent was not started, and never will be.
    pub never_started: bool,
    /// What is wrong with its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The end of its output.
    #[serde(default)]
    pub last_output: String,
    /// When it was active last, in milliseconds since the epoch. `None`: until now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_until_ms: Option<i64>,
    /// Why its guard was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The refusal is that the agent's program is too old.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_too_old: bool,
    /// The refusal is that the runner's home cannot be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unwritable: bool,
}

/// `POST /runner/repository`: fetches the repository that a run works in. The reply is a bundle: a
/// line with a [`RepositoryBundle`], then a git pack with the objects that the runner lacks, if
/// any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetRepository {
    pub attempt: String,
    /// Commits that the runner's copy has with everything that they need.
    #[serde(default)]
    pub known: Vec<String>,
}

/// The first line of the bundle with a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryBundle {
    /// The refs of the run, with their names below `refs/adjutant/<run-id>/`, and their commits.
    pub refs: BTreeMap<String, String>,
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// Settings of git that are data.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// Ignore patterns of the user and the repository.
    #[serde(default)]
    pub patterns: String,
    /// The commits at which a shallow history ends.
    #[serde(default)]
    pub shallow: Vec<String>,
}

/// `POST /runner/refs`: returns the refs of the run of an attempt, as far as the runner must send
/// the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetRunRefs {
    pub attempt: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRefsReply {
    pub refs: BTreeMap<String, String>,
}

/// The first line of the body of `POST /runner/snapshots`, which stores what a run has made: a line
/// of JSON, then a git pack, if the hub lacks objects. The attempt is in the header
/// [`super::headers::ATTEMPT`]. May be repeated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsBundle {
    /// All refs of the run at the runner.
    pub refs: BTreeMap<String, String>,
    /// Why the runner cannot send them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The content type of a bundle.
pub const BUNDLE_TYPE: &str = "application/x-adjutant-bundle";
/// Largest bundle with a repository, and with the work of a run, in bytes.
pub const REPOSITORY_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;
pub const WORK_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Largest first line of a bundle, in bytes.
pub const BUNDLE_LINE_BYTES_MAX: u64 = 32 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_and_runner_read_messages_of_a_later_version() {
        let joins = "{\"home_id\":\"0f\",\"pools\":[\"gpu\"],\"slots\":1,\"version\":\"9.0.0\",\"later\":{\"a\":1}}";
        let joins: JoinRunner = serde_json::from_str(joins).expect("a call");
        assert_eq!((joins.version.as_str(), joins.slots), ("9.0.0", 1));
        let joined = "{\"session\":\"s\",\"name\":\"gpu1\",\"lease_ms\":1,\"pools\":[\"gpu\"],\"attempts\":[{\"attempt\":\"r/1\",\"lease_ms\":1,\"later\":1}],\"later\":1}";
        let joined: RunnerJoined = serde_json::from_str(joined).expect("a reply");
        assert_eq!(joined.attempts[0].attempt, "r/1");
    }
}
