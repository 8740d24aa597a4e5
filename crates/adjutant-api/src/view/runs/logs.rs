//! Reading a run's log.

use serde::{Deserialize, Serialize};

/// Reads a run's log: the agent's output as readable text.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadLogs {
    pub run: String,
    /// The byte position in the whole output at which to begin. Default: the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Only lines that contain this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grep: Option<String>,
    /// Reads what the agent's CLI wrote (for most, JSON lines) instead of the text in it. Empty for
    /// agents whose output is text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub raw: bool,
    /// Also returns when the lines were written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub times: bool,
    /// Only output that was written from this time on (RFC 3339). Output without times is included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Waits up to this long if there is nothing to return.
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogPage {
    pub run_id: String,
    pub name: String,
    pub text: String,
    /// The position of `text` in the whole output.
    pub from: u64,
    /// Pass as `after` to read what follows.
    pub next: u64,
    /// Length of the whole output so far.
    pub total: u64,
    /// Bytes within this page that were dropped because the log's cap was reached.
    pub omitted: u64,
    /// When the lines of `text` were written, if wanted: each time applies from its line on, until
    /// the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Vec<LogTime>>,
    /// The log is complete: no more output will be added.
    pub ended: bool,
    /// The log of the newest attempt.
    pub path: String,
    /// The logs of all attempts, oldest first: together they are the whole output.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Earlier attempts whose output is left out, because it is only on a runner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingLog>,
}

/// An attempt whose output the hub does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingLog {
    pub attempt: u32,
    pub runner: String,
}

impl std::fmt::Display for MissingLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the output of attempt {} is left out: it is on the runner {}",
            self.attempt, self.runner
        )
    }
}

/// When the lines of a page were written, to the second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogTime {
    /// The number of the line in `text`, from 0.
    pub line: u64,
    /// None: it is not known.
    pub time: Option<String>,
}
