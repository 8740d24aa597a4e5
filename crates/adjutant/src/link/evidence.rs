//! What a supervisor finds out about the place and the end of an attempt.

use serde::{Deserialize, Serialize};

/// What a workspace was given, beside the files of git.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PreparationText {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copied: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_copied: Vec<NotCopiedText>,
    /// The result of the setup command. `None`: there is none, or it has not run to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<CommandEvidence>,
}

/// A configured file that a workspace was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCopiedText {
    pub path: String,
    pub why: String,
}

/// The fence of an attempt, as it was tested from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceText {
    /// `mount_namespace`, `landlock` or `none`.
    pub enforced: String,
    /// What it does not enforce of a whole fence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Why there is none, or a lesser one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the run can write, beside temporary files of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
}

/// What was seen of what an attempt left behind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptEvidence {
    /// One for each path that the report names. `None`: nobody has looked.
    #[serde(default)]
    pub files: Option<Vec<FileEvidence>>,
    /// What changed in the run's directory, by git. `None`: no repository, or nobody has looked.
    #[serde(default)]
    pub changed: Option<Vec<String>>,
    /// There are more than those.
    #[serde(default)]
    pub changed_cut: bool,
    /// Commits that were made in the work tree since the attempt's start, the newest first: a short id and the subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<String>,
    /// They changed since the attempt's start. Otherwise they are all that differs from what is committed.
    #[serde(default)]
    pub changed_since_start: bool,
    #[serde(default)]
    pub acceptance: Option<CommandEvidence>,
}

/// What was found at one path that a report names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileEvidence {
    pub path: String,
    /// `file`, `directory`, `missing`, `outside` or `unreadable`.
    pub seen: String,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub sha256: Option<String>,
    #[serde(default)]
    pub problem: Option<String>,
}

/// The result of a command that runs beside the agent, such as the acceptance command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandEvidence {
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    /// Why it was stopped.
    #[serde(default)]
    pub stopped: Option<String>,
    /// Why nobody knows what it came to.
    #[serde(default)]
    pub not_known: Option<String>,
    /// The end of what it wrote: at most 16 KiB, whole characters.
    #[serde(default)]
    pub output: String,
    #[serde(default)]
    pub took_ms: u64,
}
