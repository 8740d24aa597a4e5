//! What people want to know about a CLI, and what it can do here.

use super::{TestedVersions, Version};
use serde::{Deserialize, Serialize};

/// What it can do here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// It has our tools.
    #[serde(default)]
    pub tools: bool,
    /// It goes on in its own session.
    #[serde(default)]
    pub resume: bool,
    /// It takes messages while it works.
    #[serde(default)]
    pub live: bool,
    /// What it may not do by itself becomes an approval request.
    #[serde(default)]
    pub approvals: bool,
    #[serde(default)]
    pub usage: bool,
}

/// What people want to know about it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    #[serde(default)]
    pub vendor: String,
    #[serde(default)]
    pub install: String,
    #[serde(default)]
    pub sign_in: String,
    /// Files of which one exists after a sign-in; never read. `~/` is the home, `$NAME/`
    /// a directory that a variable names: those count, and those of the home do not, where it is set.
    #[serde(default)]
    pub sign_in_files: Vec<String>,
    /// Variables of which one is set instead.
    #[serde(default)]
    pub sign_in_env: Vec<String>,
    #[serde(default)]
    pub version_args: Vec<String>,
    /// The versions that were tried: `1.2.3`, or the lowest and the highest, `1.2.3 to 1.4.0`. Empty:
    /// all of this is from its documentation only.
    #[serde(default)]
    pub versions_tried: String,
    /// It is not started in an older version, where there is a reason.
    #[serde(default)]
    pub version_min: Option<VersionMin>,
    /// How our tools get in.
    #[serde(default)]
    pub tools: String,
    /// Where a directory can say something about agents that makes them start programs or changes
    /// what they may do: files, and directories with everything in them.
    #[serde(default)]
    pub directory_files: Vec<String>,
    /// That is left out of an attempt that does not trust it.
    #[serde(default)]
    pub kept_out: bool,
    /// What of it is kept out, and how.
    #[serde(default)]
    pub directory: String,
    /// How it goes on after a stop.
    #[serde(default)]
    pub resumes: String,
    #[serde(default)]
    pub notes: Vec<String>,
    /// What does not work, or not as one would think.
    #[serde(default)]
    pub limits: Vec<String>,
}

/// The oldest version that is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionMin {
    pub version: String,
    /// What an older one does, for people.
    pub why: String,
}

impl VersionMin {
    /// Says why a version is not started. `None`: it is.
    #[must_use]
    pub fn problem(&self, version: &Version) -> Option<String> {
        let Self { version: least, why } = self;
        let is_older = Version::find(least).is_some_and(|least| *version < least);
        is_older.then(|| format!("too old to be started, {least} is needed: {why}"))
    }

    /// Says the same of all older versions.
    #[must_use]
    pub fn to_limit(&self) -> String {
        let Self { version, why } = self;
        format!("A version before {version} is not started: {why}.")
    }
}

impl About {
    /// The versions that were tried. `None`: none was.
    #[must_use]
    pub fn tested_versions(&self) -> Option<TestedVersions> {
        TestedVersions::parse(&self.versions_tried)
    }

    /// What does not work, or not as one would think, versions that are not started included.
    pub fn all_limits(&self) -> impl Iterator<Item = String> {
        self.version_min.iter().map(VersionMin::to_limit).chain(self.limits.iter().cloned())
    }
}
