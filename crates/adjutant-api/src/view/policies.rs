//! Policies and grants: the rules that answer approvals, and their answers.

use super::Word;
use adjutant_core::policy::PolicyDecision;
use adjutant_core::{Permissions, words};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Lists the policies in effect, and how often each has answered. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListPolicies {
    /// An absolute directory: also lists the policies of its repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyList {
    pub policies: Vec<PolicyView>,
    /// Why the file cannot be used; the policies of the last valid file apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The policies of the repository of the directory, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryPoliciesView>,
    /// A change of the configuration's policies that waits for the person's trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<PolicyChangeView>,
}

/// A change of the configuration's policies while runs were live. Until the person trusts it, it
/// only restricts: a request is allowed only if the policies in effect and the changed ones allow
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyChangeView {
    /// Identifies the change, for `policies-trust-change`.
    pub change: String,
    /// The configuration file.
    pub file: String,
    /// The policies that were removed, then those that were added. A policy that was edited is in
    /// both.
    pub policies: Vec<ChangedPolicy>,
}

impl PolicyChangeView {
    /// Describes the change in one line, and what to do.
    #[must_use]
    pub fn summary(&self) -> String {
        let permits = self
            .policies
            .iter()
            .filter(|changed| changed.permits)
            .count();
        let what = match permits {
            0 => "they permit nothing more".to_owned(),
            1 => "1 of the changes permits more".to_owned(),
            count => format!("{count} of the changes permit more"),
        };
        format!(
            "the policies of {} changed while runs were live ({what}), and count only when you trust them",
            self.file
        )
    }
}

/// A policy that was added or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangedPolicy {
    pub policy: PolicyView,
    /// It was added, else removed.
    pub is_added: bool,
    /// With this change, more is permitted: it has no effect before it is trusted.
    pub permits: bool,
}

/// Trusts a change of the configuration's policies, which then is in effect. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TrustPolicyChange {
    /// The change, as [`PolicyChangeView::change`] names it. Another one is refused.
    pub change: String,
}

/// Whether the policies of a repository are in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryPoliciesState {
    /// All of them: the person has trusted them, or none allows anything.
    InEffect,
    /// They deny and ask, but allow nothing: the person has not trusted them.
    NotTrusted,
    /// They deny and ask, but allow nothing: they have changed since the person trusted them.
    Changed,
    /// The file cannot be used, so everything is asked.
    Unusable,
    /// They are those of another directory than the run's, so they deny and ask, but allow nothing.
    Elsewhere,
}

words!(RepositoryPoliciesState {
    InEffect = "in_effect",
    NotTrusted = "not_trusted",
    Changed = "changed",
    Unusable = "unusable",
    Elsewhere = "elsewhere"
});

/// The policies of a repository (`.adjutant.toml`), and whether they are in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RepositoryPoliciesView {
    /// The directory of the file.
    pub directory: String,
    pub state: Word<RepositoryPoliciesState>,
    /// Why the file cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyView>,
}

impl RepositoryPoliciesView {
    /// Describes why the policies are not all in effect, and what to do. `None`: they are.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        let Self {
            directory, problem, ..
        } = self;
        let file = format!("{}/.adjutant.toml", directory.trim_end_matches('/'));
        let trust =
            format!("so what they allow is asked: review them, then adj policy trust {directory}");
        Some(match self.state.known()? {
            RepositoryPoliciesState::InEffect => return None,
            RepositoryPoliciesState::NotTrusted => {
                format!("the policies of {file} are not trusted, {trust}")
            }
            RepositoryPoliciesState::Changed => {
                format!("the policies of {file} have changed since they were trusted, {trust}")
            }
            RepositoryPoliciesState::Unusable => {
                format!(
                    "the policies of {file} cannot be used, so everything is asked: {}",
                    problem.as_deref().unwrap_or_default()
                )
            }
            RepositoryPoliciesState::Elsewhere => format!(
                "the policies of {file} are those of another directory, so they allow nothing here"
            ),
        })
    }
}

/// A policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyView {
    pub name: String,
    pub decision: Word<PolicyDecision>,
    /// The alternatives of each condition, by its key.
    pub conditions: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many stored approvals it has answered.
    pub answers: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answered_at: Option<String>,
}

/// Applies the policies of a file to recorded approvals, without effect. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TryPolicies {
    /// The text of the file, a configuration with `[[policies]]`.
    pub text: String,
    /// The name of the file, for errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// How many of the newest approvals. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// The decisions of the tried policies.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyTrial {
    /// The examined approvals, oldest first.
    pub approvals: Vec<TriedApproval>,
    /// How many of them would have been answered.
    pub answered: u64,
}

/// One recorded approval, and what the policies would have decided.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TriedApproval {
    /// `Q12`.
    pub number: String,
    pub run_name: String,
    pub agent: String,
    /// The request, in one line.
    pub what: String,
    pub asked_at: String,
    /// The policy that decides, and its decision. Absent: none covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Word<PolicyDecision>>,
    /// The recorded decision as text, and its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_by: Option<String>,
    /// The policies that came nearest and do not decide, at most 3, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<PassedPolicyView>,
}

/// A policy that does not decide about a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PassedPolicyView {
    pub policy: String,
    pub decision: Word<PolicyDecision>,
    /// Why not.
    pub why: String,
}

/// Says how the policies in effect would answer a request to run a command, without effect. Only
/// for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckPolicies {
    /// The command line.
    pub command: String,
    /// The absolute directory of the run. The command runs there, and policies of its repository
    /// apply.
    pub directory: String,
    /// The agent that asks. Default: the default agent, else `claude`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The agent's tool. Default: `Bash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The permissions of the run. Default: those of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Word<Permissions>>,
}

/// The answer that a request would get, and the policies that would not decide.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyCheck {
    pub agent: String,
    pub tool: String,
    pub permissions: Word<Permissions>,
    /// Absent: the request would be asked, because no policy decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Word<PolicyDecision>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// All other policies, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<PassedPolicyView>,
    /// Why policies of the repository are not all in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Whether a change of the policies waits for the person's trust: a request is allowed only if
    /// it and the policies in effect allow it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_waiting_change: bool,
}

/// Trusts the policies of a repository in their current state: they also allow then. Only for the
/// person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TrustPolicies {
    /// The absolute directory of the file.
    pub directory: String,
    /// The text of the file.
    pub text: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrustedPolicies {
    pub directory: String,
    pub policies: u64,
    /// How many of them allow.
    pub allowing: u64,
}

/// Lists grants: the caller's own, for the person all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListGrants {
    /// Also ended grants.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrantList {
    pub grants: Vec<GrantView>,
}

/// Revokes a grant. Requests that it has approved stay approved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeGrant {
    /// `G3`.
    pub grant: String,
}

/// Whether a grant answers requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantStateKind {
    Active,
    Expired,
    UsedUp,
    Revoked,
    /// Its tree has ended.
    Over,
}

words!(GrantStateKind { Active = "active", Expired = "expired", UsedUp = "used_up", Revoked = "revoked", Over = "over" });

/// An approval that also answers the same operation again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GrantView {
    /// `G3`.
    pub number: String,
    pub state: Word<GrantStateKind>,
    /// What is granted, in one line.
    pub what: String,
    /// The topmost run of the tree in which it answers.
    pub root: String,
    pub root_name: String,
    /// The approval by which it was given.
    pub request: String,
    pub granted_by: String,
    pub granted_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// How often it has answered, and how often it may.
    pub uses: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_max: Option<u64>,
    /// The newest requests that it has answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}
