//! Listing the policies in effect, and trying others on recorded approvals.

use crate::clock::rfc3339;
use crate::config;
use crate::ops::requests::deciding_policy;
use crate::ops::{OpError, Ops, render};
use crate::store::{answers_by_rules, newest_approvals, permissions_of, run_by_id};
use crate::view::{ListPolicies, PolicyList, PolicyTrial, PolicyView, RepositoryPoliciesView, TriedApproval, TryPolicies, Word};
use adjutant_core::policy::{Conditions, Policy};
use adjutant_core::{Action, AnsweredBy, Denied, Principal, Rule, Subject, limits};
use std::collections::BTreeMap;
use std::path::Path;

/// Default and maximum number of approvals to examine.
const TRIED_DEFAULT: u32 = 100;
const TRIED_MAX: u32 = 10_000;

impl Ops {
    /// Lists the policies in effect.
    ///
    /// # Errors
    /// The caller is not the person.
    pub fn list_policies(&self, who: &Principal, call: &ListPolicies) -> Result<PolicyList, OpError> {
        Self::check(who, Action::ManageHub)?;
        let answers = self.store.read(answers_by_rules)?;
        let view = |policy: &Policy| {
            let is_own = |by: &AnsweredBy| *by == AnsweredBy::Rule(Rule::Policy(policy.name.clone()));
            let counted = answers.iter().find(|(by, ..)| is_own(by));
            PolicyView {
                name: policy.name.to_string(),
                decision: policy.decision.into(),
                conditions: conditions(&policy.conditions),
                reason: policy.reason.clone(),
                answers: counted.map_or(0, |(_, count, _)| *count),
                last_answered_at: counted.map(|(.., at)| rfc3339(*at)),
            }
        };
        let repository = match &call.directory {
            None => None,
            Some(directory) if !Path::new(directory).is_absolute() => return Err(Denied::invalid("directory", "is not absolute").into()),
            Some(directory) => self.policies_of_directory(directory)?,
        };
        let repository = repository.map(|(found, policies)| RepositoryPoliciesView { policies: policies.iter().map(view).collect(), ..found });
        Ok(PolicyList { repository, policies: self.config_or_builtin().policies.iter().map(view).collect(), problem: self.config_problem() })
    }

    /// Applies the policies of a file to the newest recorded approvals, without effect.
    ///
    /// # Errors
    /// The caller is not the person, or the file is invalid.
    pub fn try_policies(&self, who: &Principal, call: &TryPolicies) -> Result<PolicyTrial, OpError> {
        Self::check(who, Action::ManageHub)?;
        if call.text.len() > limits::PROMPT_BYTES_MAX {
            return Err(Denied::invalid("text", "is too long for a configuration").into());
        }
        let policies =
            config::policies_of(call.file.as_deref().unwrap_or("the file"), &call.text).map_err(|problem| Denied::invalid("policies", problem))?;
        let limit = call.limit.unwrap_or(TRIED_DEFAULT).clamp(1, TRIED_MAX);
        let approvals = self.store.read(|connection| {
            let mut tried = Vec::new();
            for request in newest_approvals(connection, limit)? {
                let Some(run) = run_by_id(connection, request.run)? else { continue };
                let profile = permissions_of(connection, run.id)?.map(|(profile, _)| profile);
                let policy = profile.and_then(|profile| deciding_policy(&policies, &run.agent, profile, &request.subject, &request.options));
                let what = match &request.subject {
                    Subject::Approval { operation: Some(operation), .. } if operation.has_content() => operation.summary(),
                    _ => request.question.clone(),
                };
                let recorded = render::request(&request);
                tried.push(TriedApproval {
                    number: recorded.number,
                    run_name: recorded.run_name,
                    agent: run.agent.clone(),
                    what,
                    asked_at: recorded.asked_at,
                    policy: policy.map(|policy| policy.name.to_string()),
                    decision: policy.map(|policy| Word::Known(policy.decision)),
                    recorded: recorded.answer,
                    recorded_by: recorded.answered_by,
                });
            }
            Ok(tried)
        })?;
        let answers =
            |tried: &&TriedApproval| tried.decision.as_ref().is_some_and(|decision| *decision != adjutant_core::policy::PolicyDecision::Ask);
        Ok(PolicyTrial { answered: approvals.iter().filter(answers).count() as u64, approvals })
    }
}

fn conditions(conditions: &Conditions) -> BTreeMap<String, Vec<String>> {
    let Conditions { agents, tools, profiles, risks, paths, commands, hosts } = conditions;
    fn texts<T>(items: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
        items.iter().map(text).collect()
    }
    let all = [
        ("agent", texts(agents, |agent| agent.as_str().to_owned())),
        ("tool", texts(tools, |tool| tool.as_str().to_owned())),
        ("profile", texts(profiles, |profile| profile.word().to_owned())),
        ("risk", texts(risks, |risk| risk.as_str().to_owned())),
        ("path", texts(paths, ToString::to_string)),
        ("command", texts(commands, ToString::to_string)),
        ("host", texts(hosts, ToString::to_string)),
    ];
    all.into_iter().filter(|(_, texts)| !texts.is_empty()).map(|(key, texts)| (key.to_owned(), texts)).collect()
}
