//! Listing the policies in effect, checking which would answer a command, and trying others on
//! recorded approvals.

use crate::config::{self, PolicySet};
use crate::ops::policy_changes::change_of;
use crate::ops::policy_file::PolicyFile;
use crate::ops::repository_policies::{policies_of_directory, policies_of_new_run};
use crate::ops::requests::{deciding_policy, passed_by};
use crate::ops::settings::Settings;
use crate::ops::{OpError, lookup, render};
use crate::store::{Store, answers_by_rules, newest_approvals, permissions_of, run_by_id};
use crate::view::{
    CheckPolicies, ListPolicies, PassedPolicyView, PolicyCheck, PolicyList, PolicyTrial,
    RepositoryPoliciesView, TriedApproval, TryPolicies, Word,
};
use adjutant_core::policy::{
    ApprovalQuery, Operation, PassedPolicy, Policy, PolicyDecision, passed_policies,
};
use adjutant_core::{Action, AgentName, Denied, Permissions, Principal, Subject, limits};
use std::path::Path;

/// Default and maximum number of approvals to examine.
const TRIED_DEFAULT: u32 = 100;
const TRIED_MAX: u32 = 10_000;
/// Maximum number of policies that are named for a tried approval, besides the deciding one.
const PASSED_MAX: usize = 3;
/// Who asks in a check of the policies, and with which tool, unless it says so.
const AGENT_DEFAULT: &str = "claude";
const TOOL_DEFAULT: &str = "Bash";

/// Lists the policies in effect.
///
/// # Errors
/// The caller is not the person.
pub fn list_policies(
    store: &Store,
    settings: &Settings,
    who: &Principal,
    call: &ListPolicies,
) -> Result<PolicyList, OpError> {
    lookup::check(who, Action::ManageHub)?;
    let answers = store.read(answers_by_rules)?;
    let view = |policy: &Policy| render::policy(policy, &answers);
    let file = PolicyFile::of(settings);
    let (in_effect, change) = store
        .read(|connection| Ok((file.in_effect(connection)?, change_of(&file, connection)?)))?;
    let repository = match &call.directory {
        None => None,
        Some(directory) if !Path::new(directory).is_absolute() => {
            return Err(Denied::invalid("directory", "is not absolute").into());
        }
        Some(directory) => policies_of_directory(store, directory)?,
    };
    let repository = repository.map(|(found, policies)| RepositoryPoliciesView {
        policies: policies.iter().map(view).collect(),
        ..found
    });
    Ok(PolicyList {
        repository,
        policies: in_effect.policies.iter().map(view).collect(),
        problem: settings.problem(),
        change,
    })
}

/// Applies the policies of a file to the newest recorded approvals, without effect.
///
/// # Errors
/// The caller is not the person, or the file is invalid.
pub fn try_policies(
    store: &Store,
    who: &Principal,
    call: &TryPolicies,
) -> Result<PolicyTrial, OpError> {
    lookup::check(who, Action::ManageHub)?;
    if call.text.len() > limits::PROMPT_BYTES_MAX {
        return Err(Denied::invalid("text", "is too long for a configuration").into());
    }
    let policies = config::policies_of(call.file.as_deref().unwrap_or("the file"), &call.text)
        .map_err(|problem| Denied::invalid("policies", problem.to_string()))?;
    let limit = call.limit.unwrap_or(TRIED_DEFAULT).clamp(1, TRIED_MAX);
    let approvals = store.read(|connection| {
        let mut tried = Vec::new();
        for request in newest_approvals(connection, limit)? {
            let Some(run) = run_by_id(connection, request.run)? else {
                continue;
            };
            let profile = permissions_of(connection, run.id)?.map(|(profile, _)| profile);
            let policy = profile.and_then(|profile| {
                deciding_policy(
                    policies.policies(),
                    &run.agent,
                    profile,
                    &request.subject,
                    &request.options,
                )
            });
            let what = match &request.subject {
                Subject::Approval { operation, .. } if operation.has_content() => {
                    operation.summary()
                }
                _ => request.question.clone(),
            };
            let passed = profile.map(|profile| {
                passed_by(
                    policies.policies(),
                    &run.agent,
                    profile,
                    &request,
                    policy.map(|policy| &policy.name),
                )
            });
            let recorded = render::request(&request);
            tried.push(TriedApproval {
                number: recorded.number,
                run_name: recorded.run_name,
                agent: run.agent.clone(),
                what,
                asked_at: recorded.times.asked_at,
                policy: policy.map(|policy| policy.name.to_string()),
                decision: policy.map(|policy| Word::Known(policy.decision)),
                recorded: recorded.reply.answer,
                recorded_by: recorded.reply.answered_by,
                passed: passed_views(passed.unwrap_or_default(), PASSED_MAX),
            });
        }
        Ok(tried)
    })?;
    let answers = |tried: &&TriedApproval| {
        tried
            .decision
            .as_ref()
            .is_some_and(|decision| *decision != PolicyDecision::Ask)
    };
    Ok(PolicyTrial {
        answered: approvals.iter().filter(answers).count() as u64,
        approvals,
    })
}

/// Says how the policies in effect would answer a request to run a command, without effect.
///
/// # Errors
/// The caller is not the person, or the directory does not exist.
pub fn check_policies(
    store: &Store,
    settings: &Settings,
    who: &Principal,
    call: CheckPolicies,
) -> Result<PolicyCheck, OpError> {
    lookup::check(who, Action::ManageHub)?;
    let PolicyQuestion {
        agent,
        profile,
        directory,
        operation,
    } = PolicyQuestion::of(settings, call)?;
    let asked = ApprovalQuery {
        agent: &agent,
        profile,
        risk: None,
        operation: &operation,
    };
    let in_effect = store.read(|connection| PolicyFile::of(settings).in_effect(connection))?;
    let repository =
        policies_of_directory(store, &directory)?.and_then(|(repository, _)| repository.why_not());
    let further = policies_of_new_run(store, &directory)?;
    let decides = in_effect.deciding(&further, &asked);
    let all = in_effect
        .policies
        .iter()
        .chain(in_effect.change.iter().flat_map(PolicySet::policies))
        .chain(&further);
    let passed = passed_policies(
        all,
        &asked,
        decides.as_ref().map(|policy| &policy.name),
        false,
    );
    Ok(PolicyCheck {
        tool: operation.tool.clone(),
        permissions: profile.into(),
        decision: decides.as_ref().map(|policy| policy.decision.into()),
        policy: decides.as_ref().map(|policy| policy.name.to_string()),
        passed: passed_views(passed, usize::MAX),
        repository,
        has_waiting_change: in_effect.change.is_some(),
        agent,
    })
}

/// The request that policies are asked about.
struct PolicyQuestion {
    agent: String,
    profile: Permissions,
    /// As given.
    directory: String,
    operation: Operation,
}

impl PolicyQuestion {
    fn of(settings: &Settings, call: CheckPolicies) -> Result<Self, OpError> {
        let CheckPolicies {
            command,
            directory,
            agent,
            tool,
            permissions,
        } = call;
        if command.len() > limits::PROMPT_BYTES_MAX {
            return Err(Denied::invalid("command", "is too long").into());
        }
        if !Path::new(&directory).is_absolute() {
            return Err(Denied::invalid("directory", "is not absolute").into());
        }
        let real = Path::new(&directory)
            .canonicalize()
            .map_err(|error| Denied::invalid("directory", format!("{directory}: {error}")))?;
        let config = settings.config()?;
        let agent = agent
            .or_else(|| config.default_agent.clone())
            .unwrap_or_else(|| AGENT_DEFAULT.to_owned());
        let of_agent = AgentName::parse(&agent)
            .ok()
            .and_then(|name| config.agents.get(&name))
            .map(|entry| entry.spec.permissions);
        let profile = match permissions {
            Some(word) => word
                .known()
                .ok_or_else(|| Denied::invalid("permissions", "use read, edit or full"))?,
            None => of_agent.ok_or_else(|| {
                Denied::invalid(
                    "agent",
                    format!("{agent} is not in the configuration: name its permissions"),
                )
            })?,
        };
        let operation = Operation {
            tool: tool.unwrap_or_else(|| TOOL_DEFAULT.to_owned()),
            command: Some(command),
            run_directory: Some(real.display().to_string()),
            is_complete: true,
            ..Operation::default()
        };
        Ok(Self {
            agent,
            profile,
            directory,
            operation,
        })
    }
}

/// Describes policies that do not decide, the nearest first.
fn passed_views(mut passed: Vec<PassedPolicy<'_>>, max: usize) -> Vec<PassedPolicyView> {
    // One that covers the request is nearest.
    passed.sort_by(|one, other| {
        one.why
            .is_some()
            .cmp(&other.why.is_some())
            .then_with(|| other.why.cmp(&one.why))
    });
    let view = |PassedPolicy { policy, why }: PassedPolicy<'_>| PassedPolicyView {
        policy: policy.name.to_string(),
        decision: policy.decision.into(),
        why: why.map_or_else(
            || "it covers the request, and another policy has precedence".to_owned(),
            |why| why.to_string(),
        ),
    };
    passed.into_iter().take(max).map(view).collect()
}
