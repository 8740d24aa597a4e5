//! Evidence that a supervisor collects: about the workspace and the fence of an attempt, and about
//! its end.

use serde::{Deserialize, Serialize};

/// What a workspace contains in addition to the files of git.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PreparationText {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copied: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_copied: Vec<NotCopiedText>,
    /// Submodules whose directories are empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub empty_submodules: Vec<String>,
    /// The result of the setup command. `None`: there is none, or it has not run to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<CommandEvidence>,
}

/// A configured file that was not copied into a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCopiedText {
    pub path: String,
    pub why: String,
}

/// The fence of an attempt, as tested from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceText {
    /// `mount_namespace`, `landlock` or `none`.
    pub enforced: String,
    /// What it does not enforce compared with a whole fence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Why there is no fence, or a weaker one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The directories that the run can write to, in addition to its own temporary files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
}

/// The evidence collected after an attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptEvidence {
    /// One for each path that the report names. `None`: not examined.
    #[serde(default)]
    pub files: Option<Vec<FileEvidence>>,
    /// The changed files in the run's directory, as git reports them. `None`: no repository, or not
    /// examined.
    #[serde(default)]
    pub changed: Option<Vec<String>>,
    /// More files than these have changed.
    #[serde(default)]
    pub changed_cut: bool,
    /// Commits made in the work tree since the attempt's start, the newest first: a short id and
    /// the subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<String>,
    /// `changed` lists changes since the attempt's start; otherwise, all differences from the last
    /// commit.
    #[serde(default)]
    pub changed_since_start: bool,
    #[serde(default)]
    pub acceptance: Option<CommandEvidence>,
}

/// The state of one path that a report names.
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

/// The result of a command other than the agent, such as the acceptance command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandEvidence {
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    /// Why it was stopped.
    #[serde(default)]
    pub stopped: Option<String>,
    /// Why its result is unknown.
    #[serde(default)]
    pub not_known: Option<String>,
    /// The end of its output: at most 16 KiB, in whole characters.
    #[serde(default)]
    pub output: String,
    #[serde(default)]
    pub took_ms: u64,
}
