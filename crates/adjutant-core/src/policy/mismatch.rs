//! Why a policy does not decide about a request.

use super::{CommandPattern, HostPattern, PathPattern, PolicyDecision, Wildcard};

/// Why a policy does not decide about a request: the first condition that does not hold, in this
/// order. A later one is nearer to a decision.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Mismatch {
    #[error("it is for other agents ({0})")]
    Agent(String),
    #[error("it is for other permissions ({0})")]
    Profile(String),
    #[error("it is for another stated risk ({0})")]
    Risk(String),
    #[error("it is for other tools ({0})")]
    Tool(String),
    #[error("the request describes its action only as text")]
    OnlyText,
    #[error("the request states no command; its text is not compared")]
    NoCommand,
    #[error("the request has a command, and the policy has no command")]
    CommandBeside,
    #[error("the command is another one")]
    OtherCommand,
    #[error("the command is not a single simple one")]
    NotSimple,
    #[error("the request names no file")]
    NoPath,
    #[error("the request names a file, and the policy has no path")]
    PathBeside,
    #[error("the file is another one")]
    OtherPath,
    #[error("the request names no address")]
    NoHost,
    #[error("the request names an address, and the policy has no host")]
    HostBeside,
    #[error("the address is another one")]
    OtherHost,
    #[error("the request has parts that Adjutant does not know")]
    Incomplete,
    #[error("the directory of the command is not certain, or not below the run's")]
    Directory,
    /// Words of the run beside the command.
    #[error(
        "the request's text can ask for more than its command: add tool = \"request_approval\" to the policy"
    )]
    OwnWords,
    #[error("it is not certain that the command is the denied one, so it is asked")]
    Uncertain,
    #[error("the request offers options to choose from")]
    Options,
}

/// A policy that does not decide about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedPolicy<'a> {
    pub policy: &'a super::Policy,
    /// Why. `None`: it covers the request, and another policy has precedence.
    pub why: Option<Mismatch>,
}

/// Lists the policies that do not decide about a request, in their order, with the reasons.
pub fn passed_policies<'a>(
    policies: impl Iterator<Item = &'a super::Policy>,
    asked: &super::ApprovalQuery<'_>,
    decides: Option<&super::PolicyName>,
    has_options: bool,
) -> Vec<PassedPolicy<'a>> {
    let passed = policies.filter(|policy| Some(&policy.name) != decides);
    passed
        .map(|policy| {
            let is_barred = has_options && policy.decision == PolicyDecision::Allow;
            PassedPolicy {
                policy,
                why: policy
                    .mismatch(asked)
                    .or(is_barred.then_some(Mismatch::Options)),
            }
        })
        .collect()
}

pub(super) fn listed(patterns: &[Wildcard]) -> String {
    patterns
        .iter()
        .map(Wildcard::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The part of a request that a kind of condition compares.
pub(super) struct Compared<'a, P> {
    pub patterns: &'a [P],
    pub is_stated: bool,
    pub is_covered: bool,
}

impl Compared<'_, CommandPattern> {
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        self.compare([
            Mismatch::NoCommand,
            Mismatch::CommandBeside,
            Mismatch::OtherCommand,
        ])
    }
}

impl Compared<'_, PathPattern> {
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        self.compare([Mismatch::NoPath, Mismatch::PathBeside, Mismatch::OtherPath])
    }
}

impl Compared<'_, HostPattern> {
    pub(super) fn check(&self) -> Result<(), Mismatch> {
        self.compare([Mismatch::NoHost, Mismatch::HostBeside, Mismatch::OtherHost])
    }
}

impl<P> Compared<'_, P> {
    /// Everything that the request states must be covered, and every condition must have something
    /// to cover.
    fn compare(&self, [missing, beside, other]: [Mismatch; 3]) -> Result<(), Mismatch> {
        match (self.patterns.is_empty(), self.is_stated) {
            (true, false) => Ok(()),
            (false, false) => Err(missing),
            (true, true) => Err(beside),
            (false, true) => {
                if self.is_covered {
                    Ok(())
                } else {
                    Err(other)
                }
            }
        }
    }
}
