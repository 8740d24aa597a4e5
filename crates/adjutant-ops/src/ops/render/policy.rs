//! Describing policies.

use crate::clock::rfc3339;
use crate::view::PolicyView;
use adjutant_core::policy::{Conditions, Policy};
use adjutant_core::{AnsweredBy, Rule, Time};
use std::collections::BTreeMap;

/// Describes a policy. `answers`: those of all rules.
pub(in crate::ops) fn policy(policy: &Policy, answers: &[(AnsweredBy, u64, Time)]) -> PolicyView {
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
}

fn conditions(conditions: &Conditions) -> BTreeMap<String, Vec<String>> {
    let Conditions {
        agents,
        tools,
        profiles,
        risks,
        paths,
        commands,
        hosts,
    } = conditions;
    fn texts<T>(items: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
        items.iter().map(text).collect()
    }
    let all = [
        ("agent", texts(agents, |agent| agent.as_str().to_owned())),
        ("tool", texts(tools, |tool| tool.as_str().to_owned())),
        (
            "profile",
            texts(profiles, |profile| profile.word().to_owned()),
        ),
        ("risk", texts(risks, |risk| risk.as_str().to_owned())),
        ("path", texts(paths, ToString::to_string)),
        ("command", texts(commands, ToString::to_string)),
        ("host", texts(hosts, ToString::to_string)),
    ];
    all.into_iter()
        .filter(|(_, texts)| !texts.is_empty())
        .map(|(key, texts)| (key.to_owned(), texts))
        .collect()
}
