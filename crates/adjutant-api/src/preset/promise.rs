//! The promises of the permission profiles: the possible outcomes of each action without an
//! approval. The agents' pages show them, and the tests check them for every CLI.

use super::Preset;
use adjutant_core::{Permissions, words};
use serde::{Deserialize, Serialize};

/// An action that an agent may try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    ShellRead,
    ShellWrite,
    ShellWriteOutside,
    WriteInside,
    WriteOutside,
    WriteTemporary,
    WriteThroughLink,
    Fetch,
    /// A search that the service of the CLI's vendor or model performs.
    WebSearch,
    OwnTool,
}

words!(Action {
    ShellRead = "shell_read",
    ShellWrite = "shell_write",
    ShellWriteOutside = "shell_write_outside",
    WriteInside = "write_inside",
    WriteOutside = "write_outside",
    WriteTemporary = "write_temporary",
    WriteThroughLink = "write_through_link",
    Fetch = "fetch",
    WebSearch = "web_search",
    OwnTool = "own_tool",
});

impl Action {
    /// Returns a description for people.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::ShellRead => "run a command that reads",
            Self::ShellWrite => "run a command that writes",
            Self::ShellWriteOutside => "run a command that writes outside the directory",
            Self::WriteInside => "write a file in the directory",
            Self::WriteOutside => "write a file outside the directory",
            Self::WriteTemporary => "write a file below `/tmp`",
            Self::WriteThroughLink => "write through a link that leads outside",
            Self::Fetch => "fetch a page from the network",
            Self::WebSearch => "search the web",
            Self::OwnTool => "call a tool of Adjutant",
        }
    }

    /// Returns the outcomes that a profile promises for any CLI.
    fn promised(self, profile: Permissions) -> &'static [ActionOutcome] {
        match (self, profile) {
            (Self::OwnTool, _)
            | (_, Permissions::Full)
            | (Self::WriteInside, Permissions::Edit) => &[ActionOutcome::Done],
            (Self::ShellRead, _) => &[ActionOutcome::Done, ActionOutcome::Asked],
            (_, Permissions::Read | Permissions::Edit) => &[ActionOutcome::Asked],
        }
    }
}

/// The outcome of an action without an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionOutcome {
    /// The action is done without a request.
    Done,
    /// An approval is requested, and nothing is done without it.
    Asked,
    /// The action is not done, without a request.
    Refused,
}

impl ActionOutcome {
    /// Returns the word for people.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Asked => "needs approval",
            Self::Refused => "refused",
        }
    }
}

/// An action for which a CLI differs from a profile's general promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    pub act: Action,
    pub fates: Vec<ActionOutcome>,
    pub why: String,
}

/// The promise of a preset's profile for one action.
#[derive(Debug, Clone, Copy)]
pub struct Promise<'a> {
    pub fates: &'a [ActionOutcome],
    /// Why it differs from the profile's general promise.
    pub why: Option<&'a str>,
}

impl Preset {
    /// Returns whether the preset has a row in the matrix: it is tested, and has tools. aider has
    /// none: it only edits files, in the one profile that it supports.
    #[must_use]
    pub fn has_row(&self) -> bool {
        self.can.tools && self.about.tested_versions().is_some()
    }

    /// Returns the promise of a profile for an action, or `None` if the profile is not supported.
    #[must_use]
    pub fn promised(&self, profile: Permissions, act: Action) -> Option<Promise<'_>> {
        let own = self.permissions.of(profile.word());
        if own.unsupported.is_some() {
            return None;
        }
        let exception = own.exceptions.iter().find(|exception| exception.act == act);
        Some(exception.map_or(
            Promise {
                fates: act.promised(profile),
                why: None,
            },
            |Exception { fates, why, .. }| Promise {
                fates,
                why: Some(why),
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;

    #[test]
    fn exceptions_never_allow_writes_outside_the_directory() {
        let of = |preset: &'static Preset| {
            let profiles = [
                (Permissions::Read, &preset.permissions.read),
                (Permissions::Edit, &preset.permissions.edit),
            ];
            profiles.into_iter().flat_map(move |(profile, own)| {
                own.exceptions
                    .iter()
                    .map(move |exception| (&preset.name, profile, exception))
            })
        };
        for (name, profile, Exception { act, fates, why }) in all().iter().flat_map(of) {
            let is_harmless = match act {
                Action::ShellRead | Action::OwnTool => true,
                Action::ShellWrite | Action::WriteInside => profile == Permissions::Edit,
                // The profile's description mentions it.
                Action::Fetch | Action::WebSearch => true,
                Action::ShellWriteOutside
                | Action::WriteOutside
                | Action::WriteTemporary
                | Action::WriteThroughLink => false,
            };
            assert!(
                is_harmless || !fates.contains(&ActionOutcome::Done),
                "{name} {profile:?} {act:?}"
            );
            assert!(
                !fates.is_empty() && !why.is_empty(),
                "{name} {profile:?} {act:?}"
            );
        }
    }
}
