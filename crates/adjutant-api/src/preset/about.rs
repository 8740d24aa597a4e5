//! Documentation of a CLI, and its capabilities.

use super::{TestedVersions, Version};
use serde::{Deserialize, Serialize};

/// The features that Adjutant supports with the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// The agent can call Adjutant's tools.
    #[serde(default)]
    pub tools: bool,
    /// A new attempt continues the CLI's own session.
    #[serde(default)]
    pub resume: bool,
    /// The agent accepts messages while it works.
    #[serde(default)]
    pub live: bool,
    /// Actions that the profile does not permit become approval requests.
    #[serde(default)]
    pub approvals: bool,
    #[serde(default)]
    pub usage: bool,
}

/// Documentation of a CLI, for its page and `adj agents`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    #[serde(default)]
    pub vendor: String,
    #[serde(default)]
    pub install: String,
    #[serde(default)]
    pub sign_in: String,
    /// Files of which at least one exists after a sign-in; they are never read. `~/` is the home,
    /// `$NAME/` the directory named by a variable. If such a variable is set, files in the home do
    /// not count.
    #[serde(default)]
    pub sign_in_files: Vec<String>,
    /// Variables that replace a sign-in if one of them is set.
    #[serde(default)]
    pub sign_in_env: Vec<String>,
    #[serde(default)]
    pub version_args: Vec<String>,
    /// The tested versions: `1.2.3`, or the lowest and the highest, `1.2.3 to 1.4.0`. Empty: the
    /// preset is written from the CLI's documentation only.
    #[serde(default)]
    pub versions_tried: String,
    /// The oldest version that is started, if there is a reason to refuse older ones.
    #[serde(default)]
    pub version_min: Option<VersionMin>,
    /// How the agent gets Adjutant's tools.
    #[serde(default)]
    pub tools: String,
    /// Files and directories of a repository that can make the CLI start programs or change its
    /// permissions.
    #[serde(default)]
    pub directory_files: Vec<String>,
    /// `directory_files` are ignored unless the directory is trusted.
    #[serde(default)]
    pub kept_out: bool,
    /// Which of them are ignored, and how.
    #[serde(default)]
    pub directory: String,
    /// How a stopped run resumes.
    #[serde(default)]
    pub resumes: String,
    #[serde(default)]
    pub notes: Vec<String>,
    /// Known limitations.
    #[serde(default)]
    pub limits: Vec<String>,
}

/// The oldest version that is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionMin {
    pub version: String,
    /// The problem of older versions, for people.
    pub why: String,
}

impl VersionMin {
    /// Returns why a version is not started, or `None` if it is recent enough.
    #[must_use]
    pub fn problem(&self, version: &Version) -> Option<String> {
        let Self {
            version: least,
            why,
        } = self;
        let is_older = Version::find(least).is_some_and(|least| *version < least);
        is_older.then(|| format!("too old to be started, {least} is needed: {why}"))
    }

    /// Returns the sentence for the CLI's list of limits.
    #[must_use]
    pub(crate) fn to_limit(&self) -> String {
        let Self { version, why } = self;
        format!("A version before {version} is not started: {why}.")
    }
}

impl About {
    /// Returns the tested versions, or `None` if no version was tested.
    #[must_use]
    pub fn tested_versions(&self) -> Option<TestedVersions> {
        TestedVersions::parse(&self.versions_tried)
    }

    /// Returns everything that does not work, including versions that are not started.
    pub fn all_limits(&self) -> impl Iterator<Item = String> {
        self.version_min
            .iter()
            .map(VersionMin::to_limit)
            .chain(self.limits.iter().cloned())
    }
}
