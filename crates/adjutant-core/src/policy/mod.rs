//! Policies: configured rules that answer requests for approval.
//!
//! A policy answers only what is asked; the run's profile decides what that is. Deny beats ask, and ask beats allow,
//! regardless of the order of the policies. To allow, a policy must cover everything that the operation does with certainty;
//! to deny or to ask, it is enough that the operation may be covered. Everything else is asked.

mod command;
mod grant;
mod host;
mod operation;
mod path;
mod wildcard;

pub use command::{CommandPattern, directory_changes, simple_command};
pub use grant::{GrantNo, GrantState, GrantTerms, use_grant};
pub use host::HostPattern;
pub use operation::{Operation, OperationPart, REQUEST_APPROVAL, StatedPath, approval_parts, parts_line};
pub use path::{PathPattern, absolute};
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
        let is_valid =
            (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if is_valid { Ok(Self(text.to_owned())) } else { Err(PolicyNameError) }
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

/// Returns the policy that decides about a request, if any: the first that denies, else the first that asks, else the
/// first that allows.
#[must_use]
pub fn deciding<'a>(policies: impl Iterator<Item = &'a Policy> + Clone, asked: &ApprovalQuery<'_>) -> Option<&'a Policy> {
    [PolicyDecision::Deny, PolicyDecision::Ask, PolicyDecision::Allow]
        .into_iter()
        .find_map(|decision| policies.clone().find(|policy| policy.decision == decision && policy.covers(asked)))
}

impl Policy {
    /// Returns whether the policy decides about a request.
    #[must_use]
    pub fn covers(&self, asked: &ApprovalQuery<'_>) -> bool {
        match self.decision {
            PolicyDecision::Allow => self.conditions.certainly_hold(asked),
            PolicyDecision::Ask | PolicyDecision::Deny => self.conditions.may_hold(asked),
        }
    }

    /// Returns the decision on a request that the policy covers. `None`: the request is asked.
    #[must_use]
    pub fn answer(&self) -> Option<Decision> {
        match self.decision {
            PolicyDecision::Allow => Some(Decision::approved()),
            PolicyDecision::Ask => None,
            PolicyDecision::Deny => {
                let reason = self.reason.clone().unwrap_or_else(|| format!("policy {} does not allow it", self.name));
                Some(Decision::Denied { reason })
            }
        }
    }
}

impl Conditions {
    fn certainly_hold(&self, asked: &ApprovalQuery<'_>) -> bool {
        let Self { agents, tools, profiles, risks, paths, commands, hosts } = self;
        let Operation { tool, command, paths: stated, urls, directory, possible_directories, run_directory: _, is_complete, digest: _ } =
            asked.operation;
        let is_caller = (agents.is_empty() || agents.iter().any(|agent| agent.matches(asked.agent)))
            && (tools.is_empty() || tools.iter().any(|pattern| pattern.matches(tool)))
            && (profiles.is_empty() || profiles.contains(&asked.profile))
            && (risks.is_empty() || asked.risk.is_some_and(|risk| risks.iter().any(|pattern| pattern.matches(risk))));
        if !is_caller || !self.restrict_content() {
            return is_caller;
        }
        // The text of a request can ask for more than the command that the run states with it.
        let is_for_own_words = tools.iter().any(|pattern| pattern.is_literal() && pattern.matches(tool));
        // What is not stated cannot be covered.
        if !is_complete || !possible_directories.is_empty() || tool == REQUEST_APPROVAL && !is_for_own_words {
            return false;
        }
        let command_fits = match command {
            None => commands.is_empty(),
            Some(text) => simple_command(text).is_some_and(|words| {
                let fits = |pattern: &&CommandPattern| pattern.matches(&words);
                commands.iter().find(fits).is_some_and(|pattern| is_directory_certain(pattern, directory.as_ref(), asked.directory()))
            }),
        };
        let is_real =
            |path: &StatedPath| path.real.as_deref().is_some_and(|real| paths.iter().any(|pattern| pattern.matches(real, asked.directory())));
        command_fits
            && stated.is_empty() == paths.is_empty()
            && stated.iter().all(is_real)
            && urls.is_empty() == hosts.is_empty()
            && urls.iter().all(|url| hosts.iter().any(|pattern| pattern.matches(url)))
    }

    fn may_hold(&self, asked: &ApprovalQuery<'_>) -> bool {
        let Self { agents, tools, profiles, risks, paths, commands, hosts } = self;
        let Operation { tool, command, paths: stated, urls, directory, possible_directories, run_directory: _, is_complete: _, digest: _ } =
            asked.operation;
        let words = command.as_deref().map(command::possible_words).unwrap_or_default();
        let within = directory.as_ref().map_or(asked.directory(), |directory| directory.stated.as_str());
        let may_name = |pattern: &PathPattern, path: &str| {
            // Relative patterns are meant from the run's directory, relative words from that of the command.
            let mut directories = std::iter::once(within).chain(possible_directories.iter().map(String::as_str));
            directories.any(|directory| pattern.may_match(&absolute(path, directory), asked.directory()))
        };
        let names_path = |pattern: &PathPattern| {
            stated.iter().any(|path| may_name(pattern, &path.stated) || path.real.as_deref().is_some_and(|real| may_name(pattern, real)))
                || words.iter().any(|word| may_name(pattern, word) || word.split_once('=').is_some_and(|(_, value)| may_name(pattern, value)))
        };
        let names_host = |pattern: &HostPattern| urls.iter().chain(&words).any(|text| pattern.may_match(text));
        (agents.is_empty() || agents.iter().any(|agent| agent.matches(asked.agent)))
            && (tools.is_empty() || tools.iter().any(|pattern| pattern.matches_any_case(tool)))
            && (profiles.is_empty() || profiles.contains(&asked.profile))
            && (risks.is_empty() || asked.risk.is_some_and(|risk| risks.iter().any(|pattern| pattern.matches_any_case(risk))))
            && (paths.is_empty() || paths.iter().any(names_path))
            && (commands.is_empty() || command.as_deref().is_some_and(|text| commands.iter().any(|pattern| pattern.may_occur_in(text))))
            && (hosts.is_empty() || hosts.iter().any(names_host))
    }
}

/// Returns whether a command runs in the run's directory or below, and exactly there if its program is relative.
fn is_directory_certain(pattern: &CommandPattern, directory: Option<&StatedPath>, run_directory: &str) -> bool {
    let Some(directory) = directory else { return true };
    let Some(real) = directory.real.as_deref() else { return false };
    let is_below = || real.strip_prefix(run_directory.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'));
    real == run_directory || is_below() && !pattern.depends_on_directory()
}

#[cfg(test)]
mod tests;
