//! Answers approvals by policies and grants, in the transaction that asks or grants.

use crate::files;
use crate::ops::policy_file::PolicyFile;
use crate::ops::repository_policies;
use crate::store::{NewGrant, NewRequest, Request, Run, StoreError, Tx, permissions_of};
use crate::view::OperationView;
use adjutant_core::policy::{
    ApprovalQuery, GrantTerms, Mismatch, Operation, PassedPolicy, Policy, PolicyDecision,
    PolicyName, REQUEST_APPROVAL, StatedPath, deciding, passed_policies,
};
use adjutant_core::{
    Decision, Denied, EventKind, Permissions, Principal, RequestEvent, RequestState, Rule, Subject,
    hex,
};
use sha2::{Digest, Sha256};
use std::path::Path;

fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(hash.finalize())
}

/// Returns the operation of an approval that a run asks for by itself. What it is about is the
/// run's own statement; where its paths lead is not.
pub(in crate::ops) fn stated_operation(
    cwd: &str,
    action: &str,
    preview: Option<&str>,
    stated: Option<OperationView>,
) -> Operation {
    let resolved = |StatedPath { stated, .. }: StatedPath| {
        let path = Path::new(cwd).join(&stated);
        // Some programs expand it.
        let real = if stated.is_empty() || stated.starts_with('~') {
            None
        } else {
            files::real_path(&path)
        };
        StatedPath {
            stated: path.display().to_string(),
            real,
        }
    };
    let Operation {
        paths, directory, ..
    } = stated.clone().map(Operation::from).unwrap_or_default();
    Operation {
        tool: REQUEST_APPROVAL.to_owned(),
        paths: paths.into_iter().map(resolved).collect(),
        directory: directory.map(resolved),
        run_directory: Some(cwd.to_owned()),
        digest: Some(hash([action, preview.unwrap_or_default()])),
        ..stated.map(Operation::from).unwrap_or_default()
    }
}

/// Returns a hash of what identifies the operation of an approval. `None`: it is not fully known,
/// or needs a choice.
fn identity(subject: &Subject, options: &[String]) -> Option<String> {
    let Subject::Approval { operation, .. } = subject else {
        return None;
    };
    let parts = operation.identity().filter(|_| options.is_empty())?;
    Some(hash(parts.iter().map(String::as_str)))
}

/// Returns the policy that decides about an approval, if any.
pub(in crate::ops) fn deciding_policy<'a>(
    policies: &'a [Policy],
    agent: &str,
    profile: Permissions,
    subject: &Subject,
    options: &[String],
) -> Option<&'a Policy> {
    with_query(agent, profile, subject, |asked| {
        deciding(policies.iter(), asked)
    })
    .filter(|policy| can_answer(policy, options))
}

/// Lists the policies that do not decide about an approval.
pub(in crate::ops) fn passed_by<'a>(
    policies: &'a [Policy],
    agent: &str,
    profile: Permissions,
    request: &Request,
    decides: Option<&PolicyName>,
) -> Vec<PassedPolicy<'a>> {
    let has_options = !request.options.is_empty();
    let passed = with_query(agent, profile, &request.subject, |asked| {
        Some(passed_policies(
            policies.iter(),
            asked,
            decides,
            has_options,
        ))
    });
    passed.unwrap_or_else(|| {
        policies
            .iter()
            .map(|policy| PassedPolicy {
                policy,
                why: Some(Mismatch::OnlyText),
            })
            .collect()
    })
}

/// Evaluates a request as policies see it. `None`: no policy can decide about it.
fn with_query<T>(
    agent: &str,
    profile: Permissions,
    subject: &Subject,
    evaluate: impl FnOnce(&ApprovalQuery<'_>) -> Option<T>,
) -> Option<T> {
    let Subject::Approval {
        operation, risk, ..
    } = subject
    else {
        return None;
    };
    evaluate(&ApprovalQuery {
        agent,
        profile,
        risk: risk.as_deref(),
        operation,
    })
}

/// Returns whether a policy can answer a request with these options: an approval that offers some
/// needs a choice.
fn can_answer(policy: &Policy, options: &[String]) -> bool {
    policy.decision != PolicyDecision::Allow || options.is_empty()
}

/// Opens an approval, and answers it at once if a policy (of `policies` or of the run's repository)
/// or a grant decides about it. A grant beats a policy that asks or allows: it was given later, for
/// exactly this.
pub(in crate::ops) fn ask_approval(
    tx: &mut Tx<'_>,
    run: &Run,
    new: &NewRequest,
    policies: &PolicyFile,
) -> Result<Request, StoreError> {
    let in_effect = policies.in_effect(tx.connection())?;
    let of_repository = repository_policies::policies_for(tx.connection(), run.id)?;
    let policy = match permissions_of(tx.connection(), run.id)? {
        Some((profile, _)) => with_query(&run.agent, profile, &new.subject, |asked| {
            in_effect.deciding(&of_repository, asked)
        })
        .filter(|policy| can_answer(policy, &new.options)),
        None => None,
    };
    let before = tx.outbox_end()?;
    let request = tx.ask(run, new)?;
    let answered = answer_by_rule(tx, run, new, &request, policy.as_ref())?;
    if answered.state != RequestState::Pending {
        // A webhook for people has nothing to report.
        tx.drop_deliveries_after(before, EventKind::RequestAsked)?;
    }
    Ok(answered)
}

/// Answers a new approval by a policy or a grant, if one does.
fn answer_by_rule(
    tx: &mut Tx<'_>,
    run: &Run,
    new: &NewRequest,
    request: &Request,
    policy: Option<&Policy>,
) -> Result<Request, StoreError> {
    if policy.is_none_or(|policy| policy.decision != PolicyDecision::Deny)
        && let Some(identity) = identity(&new.subject, &new.options)
        && let Some(no) = tx.use_grant_for(run.root, &identity, request.id)?
    {
        return tx.advance_request(
            request,
            RequestEvent::Apply {
                rule: Rule::Grant(no),
                decision: Decision::approved(),
            },
        );
    }
    match policy.and_then(|policy| Some((Rule::Policy(policy.name.clone()), policy.answer()?))) {
        Some((rule, decision)) => {
            tx.advance_request(request, RequestEvent::Apply { rule, decision })
        }
        None => Ok(request.clone()),
    }
}

/// Grants the operation of an approved request in its tree, and answers the open requests for the
/// same operation. Returns those.
pub(super) fn grant_same(
    tx: &mut Tx<'_>,
    who: &Principal,
    request: &Request,
    terms: GrantTerms,
) -> Result<Vec<Request>, StoreError> {
    let granted = identity(&request.subject, &request.options).ok_or_else(|| {
        let problem = format!("{} does not describe its whole operation, or offers options, so it cannot be granted: approve it once", request.no);
        Denied::invalid("same", problem)
    })?;
    let top = tx.run(tx.run(request.run)?.root)?;
    if top.state.is_finished() {
        let problem = format!(
            "{}, the topmost run of its tree, has ended, and grants end with it: approve {} once",
            top.name, request.no
        );
        return Err(Denied::conflict("same", problem).into());
    }
    let root = top.id;
    let what = match &request.subject {
        Subject::Approval { operation, .. } if operation.has_content() => operation.summary(),
        _ => request.question.clone(),
    };
    tx.add_grant(&NewGrant {
        root,
        identity: granted.clone(),
        what,
        request: request.no,
        by: who.clone(),
        terms,
    })?;
    let mut answered = Vec::new();
    for open in tx.open_approvals_of_tree(root)? {
        if open.state != RequestState::Pending
            || open.expires_at <= tx.steady()
            || identity(&open.subject, &open.options).as_ref() != Some(&granted)
        {
            continue;
        }
        let Some(no) = tx.use_grant_for(root, &granted, open.id)? else {
            break;
        };
        answered.push(tx.advance_request(
            &open,
            RequestEvent::Apply {
                rule: Rule::Grant(no),
                decision: Decision::approved(),
            },
        )?);
    }
    Ok(answered)
}
