//! Policies: configured rules that answer requests for approval.
//!
//! A policy answers only what is asked; the run's profile decides what that is. Deny beats ask, and
//! ask beats allow, regardless of the order of the policies. To allow, a policy must cover
//! everything that the operation does with certainty; to deny or to ask, it is enough that the
//! operation may be covered. Everything else is asked.

mod command;
mod command_words;
mod directory;
mod grant;
mod host;
mod mismatch;
mod operation;
mod path;
mod programs;
mod watch;
mod wildcard;

use command::Occurrence;
pub use command::{CommandPattern, CommandPatternError};
pub use command_words::simple_command;
pub use directory::directory_changes;
pub use grant::{GrantNo, GrantState, GrantTerms, use_grant};
pub use host::{HostPattern, HostPatternError};
use mismatch::Compared;
pub use mismatch::{Mismatch, PassedPolicy, passed_policies};
pub use operation::{
    Operation, OperationPart, REQUEST_APPROVAL, StatedPath, approval_parts, parts_line,
};
pub use path::{PathPattern, PathPatternError, absolute};
pub use watch::{FilePolicies, Observation, deciding_with_change, observe};
pub use wildcard::Wildcard;

use crate::limits::NAME_BYTES_MAX;
use crate::{Decision, Permissions, words};
use std::fmt;

/// What a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyDecision {
    /// Approve the request.
    Allow,
    /// Leave the request to the parent or the person, even if another policy would allow it.
    Ask,
    /// Deny the request.
    Deny,
}

words!(PolicyDecision { Allow = "allow", Ask = "ask", Deny = "deny" });

/// The name of a policy: 1 to 50 of `[a-zA-Z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName(String);

/// Why a text cannot name a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a policy's name: use 1 to {NAME_BYTES_MAX} letters, digits, dots, _ and -")]
pub struct PolicyNameError;

impl PolicyName {
    /// Parses a policy's name.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, PolicyNameError> {
        let is_valid = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(PolicyNameError)
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The conditions of a policy. All kinds that are given must hold, each by one of its alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    pub agents: Vec<Wildcard>,
    pub tools: Vec<Wildcard>,
    pub profiles: Vec<Permissions>,
    /// The risk that the run itself states.
    pub risks: Vec<Wildcard>,
    pub paths: Vec<PathPattern>,
    pub commands: Vec<CommandPattern>,
    pub hosts: Vec<HostPattern>,
}

impl Conditions {
    /// Returns whether there is no condition, so that every request is covered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the conditions restrict what the operation does.
    fn restrict_content(&self) -> bool {
        !self.paths.is_empty() || !self.commands.is_empty() || !self.hosts.is_empty()
    }
}

/// A configured policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub name: PolicyName,
    pub decision: PolicyDecision,
    pub conditions: Conditions,
    /// Why, for the run that is denied.
    pub reason: Option<String>,
}

/// A request for approval, as policies see it.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalQuery<'a> {
    pub agent: &'a str,
    pub profile: Permissions,
    pub risk: Option<&'a str>,
    pub operation: &'a Operation,
}

impl ApprovalQuery<'_> {
    /// Returns the run's directory. If it is not known, no path is below it.
    fn directory(&self) -> &str {
        self.operation.run_directory.as_deref().unwrap_or("\0")
    }
}

/// Returns the policy that decides about a request, if any: the first that denies, else the first
/// that asks, else the first that allows. A request that a policy may deny, which is not certain,
/// is asked.
#[must_use]
pub fn deciding<'a>(
    policies: impl Iterator<Item = &'a Policy> + Clone,
    asked: &ApprovalQuery<'_>,
) -> Option<&'a Policy> {
    let first = |decision| {
        policies
            .clone()
            .find(|policy| policy.decision == decision && policy.covers(asked))
    };
    let is_perhaps_denied = || {
        policies.clone().any(|policy| {
            policy.decision == PolicyDecision::Deny
                && policy.conditions.may_hold(asked) == Occurrence::Possible
        })
    };
    let restricts = first(PolicyDecision::Deny).or_else(|| first(PolicyDecision::Ask));
    restricts.or_else(|| {
        if is_perhaps_denied() {
            None
        } else {
            first(PolicyDecision::Allow)
        }
    })
}

impl Policy {
    /// Returns whether the policy decides about a request.
    #[must_use]
    pub fn covers(&self, asked: &ApprovalQuery<'_>) -> bool {
        self.mismatch(asked).is_none()
    }

    /// Returns why the policy does not decide about a request. `None`: it does.
    #[must_use]
    pub(crate) fn mismatch(&self, asked: &ApprovalQuery<'_>) -> Option<Mismatch> {
        match self.decision {
            PolicyDecision::Allow => self.conditions.check_certain(asked).err(),
            PolicyDecision::Ask => self.conditions.check_possible(asked).err(),
            PolicyDecision::Deny => match self.conditions.check_possible(asked) {
                Ok(Occurrence::Certain) => None,
                Ok(Occurrence::Possible | Occurrence::None) => Some(Mismatch::Uncertain),
                Err(mismatch) => Some(mismatch),
            },
        }
    }

    /// Returns the decision on a request that the policy covers. `None`: the request is asked.
    #[must_use]
    pub fn answer(&self) -> Option<Decision> {
        match self.decision {
            PolicyDecision::Allow => Some(Decision::approved()),
            PolicyDecision::Ask => None,
            PolicyDecision::Deny => {
                let reason = self
                    .reason
                    .clone()
                    .unwrap_or_else(|| format!("policy {} does not allow it", self.name));
                Some(Decision::Denied { reason })
            }
        }
    }
}

impl Conditions {
    /// Checks that the conditions certainly cover everything that the operation does.
    fn check_certain(&self, asked: &ApprovalQuery<'_>) -> Result<(), Mismatch> {
        let Self {
            agents: _,
            tools,
            profiles: _,
            risks: _,
            paths,
            commands,
            hosts,
        } = self;
        let Operation {
            tool,
            command,
            paths: stated,
            urls,
            directory,
            possible_directories,
            run_directory: _,
            is_complete,
            digest: _,
        } = asked.operation;
        self.check_caller(asked, Wildcard::matches)?;
        if !self.restrict_content() {
            return Ok(());
        }
        let fitting = check_command(commands, command.as_deref())?;
        check_paths(paths, stated, asked.directory())?;
        check_hosts(hosts, urls)?;
        // What is not stated cannot be covered.
        if !is_complete {
            return Err(Mismatch::Incomplete);
        }
        let is_certain = |pattern: &CommandPattern| {
            is_directory_certain(pattern, directory.as_ref(), asked.directory())
        };
        if !possible_directories.is_empty() || !fitting.is_none_or(is_certain) {
            return Err(Mismatch::Directory);
        }
        // The text of a request can ask for more than the command that the run states with it.
        let is_for_own_words = tools
            .iter()
            .any(|pattern| pattern.is_literal() && pattern.matches(tool));
        if tool == REQUEST_APPROVAL && !is_for_own_words {
            Err(Mismatch::OwnWords)
        } else {
            Ok(())
        }
    }

    /// Checks who asks, with which tool and risk. `matches`: compares a pattern of a tool or a
    /// risk.
    fn check_caller(
        &self,
        asked: &ApprovalQuery<'_>,
        matches: fn(&Wildcard, &str) -> bool,
    ) -> Result<(), Mismatch> {
        let Self {
            agents,
            tools,
            profiles,
            risks,
            paths: _,
            commands: _,
            hosts: _,
        } = self;
        if !agents.is_empty() && !agents.iter().any(|agent| agent.matches(asked.agent)) {
            return Err(Mismatch::Agent(mismatch::listed(agents)));
        }
        if !profiles.is_empty() && !profiles.contains(&asked.profile) {
            return Err(Mismatch::Profile(
                profiles
                    .iter()
                    .map(|profile| profile.word())
                    .collect::<Vec<_>>()
                    .join(", "),
            ));
        }
        if !risks.is_empty()
            && !asked
                .risk
                .is_some_and(|risk| risks.iter().any(|pattern| matches(pattern, risk)))
        {
            return Err(Mismatch::Risk(mismatch::listed(risks)));
        }
        if !tools.is_empty()
            && !tools
                .iter()
                .any(|pattern| matches(pattern, &asked.operation.tool))
        {
            return Err(Mismatch::Tool(mismatch::listed(tools)));
        }
        Ok(())
    }

    fn may_hold(&self, asked: &ApprovalQuery<'_>) -> Occurrence {
        self.check_possible(asked).unwrap_or(Occurrence::None)
    }

    /// Returns how certain it is that the conditions hold, or why they cannot.
    fn check_possible(&self, asked: &ApprovalQuery<'_>) -> Result<Occurrence, Mismatch> {
        let Self {
            agents: _,
            tools: _,
            profiles: _,
            risks: _,
            paths,
            commands,
            hosts,
        } = self;
        let Operation {
            tool: _,
            command,
            paths: stated,
            urls,
            directory,
            possible_directories,
            run_directory: _,
            is_complete: _,
            digest: _,
        } = asked.operation;
        let words = command
            .as_deref()
            .map(command_words::possible_words)
            .unwrap_or_default();
        let within = directory
            .as_ref()
            .map_or(asked.directory(), |directory| directory.stated.as_str());
        let may_name = |pattern: &PathPattern, path: &str| {
            // Relative patterns are meant from the run's directory, relative words from that of the
            // command.
            let mut directories =
                std::iter::once(within).chain(possible_directories.iter().map(String::as_str));
            directories
                .any(|directory| pattern.may_match(&absolute(path, directory), asked.directory()))
        };
        let names_path = |pattern: &PathPattern| {
            stated.iter().any(|path| {
                may_name(pattern, &path.stated)
                    || path
                        .real
                        .as_deref()
                        .is_some_and(|real| may_name(pattern, real))
            }) || words.iter().any(|word| {
                may_name(pattern, word)
                    || word
                        .split_once('=')
                        .is_some_and(|(_, value)| may_name(pattern, value))
            })
        };
        let names_host = |pattern: &HostPattern| {
            urls.iter()
                .chain(&words)
                .any(|text| pattern.may_match(text))
        };
        self.check_caller(asked, Wildcard::matches_any_case)?;
        let occurrence = match command.as_deref() {
            _ if commands.is_empty() => Occurrence::Certain,
            None => return Err(Mismatch::NoCommand),
            Some(text) => commands
                .iter()
                .map(|pattern| pattern.occurrence(text))
                .max()
                .unwrap_or(Occurrence::None),
        };
        if occurrence == Occurrence::None {
            return Err(Mismatch::OtherCommand);
        }
        if !paths.is_empty() && !paths.iter().any(names_path) {
            return Err(Mismatch::OtherPath);
        }
        if !hosts.is_empty() && !hosts.iter().any(names_host) {
            return Err(Mismatch::OtherHost);
        }
        Ok(occurrence)
    }
}

/// Returns the pattern that certainly allows a command.
fn check_command<'a>(
    patterns: &'a [CommandPattern],
    command: Option<&str>,
) -> Result<Option<&'a CommandPattern>, Mismatch> {
    let words = command.map(simple_command);
    let fitting = words
        .iter()
        .flatten()
        .find_map(|words| patterns.iter().find(|pattern| pattern.allows(words)));
    let is_denied_form = || {
        patterns
            .iter()
            .any(|pattern| command.is_some_and(|text| pattern.occurrence(text) != Occurrence::None))
    };
    if !patterns.is_empty() && words == Some(None) && is_denied_form() {
        return Err(Mismatch::NotSimple);
    }
    Compared {
        patterns,
        is_stated: command.is_some(),
        is_covered: fitting.is_some(),
    }
    .check()?;
    Ok(fitting)
}

/// Checks that the real path of each stated one is covered.
fn check_paths(
    patterns: &[PathPattern],
    stated: &[StatedPath],
    run_directory: &str,
) -> Result<(), Mismatch> {
    let is_real = |path: &StatedPath| {
        path.real.as_deref().is_some_and(|real| {
            patterns
                .iter()
                .any(|pattern| pattern.matches(real, run_directory))
        })
    };
    Compared {
        patterns,
        is_stated: !stated.is_empty(),
        is_covered: stated.iter().all(is_real),
    }
    .check()
}

fn check_hosts(patterns: &[HostPattern], urls: &[String]) -> Result<(), Mismatch> {
    let is_host = |url: &String| patterns.iter().any(|pattern| pattern.matches(url));
    Compared {
        patterns,
        is_stated: !urls.is_empty(),
        is_covered: urls.iter().all(is_host),
    }
    .check()
}

/// Returns whether a command runs in the run's directory or below, and exactly there if its program
/// is relative.
fn is_directory_certain(
    pattern: &CommandPattern,
    directory: Option<&StatedPath>,
    run_directory: &str,
) -> bool {
    let Some(directory) = directory else {
        return true;
    };
    let Some(real) = directory.real.as_deref() else {
        return false;
    };
    let is_below = || {
        real.strip_prefix(run_directory.trim_end_matches('/'))
            .is_some_and(|rest| rest.starts_with('/'))
    };
    real == run_directory || is_below() && !pattern.depends_on_directory()
}

#[cfg(test)]
mod tests;
