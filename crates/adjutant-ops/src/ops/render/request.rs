//! Requests.

use crate::clock::{self, rfc3339};
use crate::config::Config;
use crate::store::{Connection, Group, Request, StoreError, counts, run_by_id, tree_size};
use crate::view::{
    ChangesView, ClarificationView, DelegatedView, DelegationView, EscalatedView, GroupView,
    OperationView, RequestContentView, RequestTimesView, RequestView, RoomView, Word,
};
use adjutant_core::signal::{Clarification, Delegation};
use adjutant_core::tree::TreeSize;
use adjutant_core::{Changes, Decision, RequestState, RequestStateKind, RunId, Subject};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Long enough to resist collisions.
const CONTENT_HASH_BYTES: usize = 16;

/// Shows several requests. The clarification of a group is shown with its first request only.
pub(in crate::ops) fn requests(all: &[Request]) -> Vec<RequestView> {
    let mut shown = HashSet::new();
    let view = |one: &Request| {
        let mut view = request(one);
        let is_first = shown.insert(one.group.map_or(one.no, |group| group.first));
        view.content.clarification = view.content.clarification.filter(|_| is_first);
        view
    };
    all.iter().map(view).collect()
}

pub(in crate::ops) fn request(request: &Request) -> RequestView {
    let (child, child_name) = request
        .child
        .clone()
        .map(|(id, name)| (id.to_string(), name))
        .unzip();
    let mut view = RequestView {
        content: RequestContentView {
            question: request.question.clone(),
            question_id: request.own_id.clone(),
            context: request.context.clone(),
            clarification: request.clarification.as_ref().map(clarification),
            options: request.options.clone(),
            default: request.default.clone(),
            content_hash: content_hash(request),
            ..RequestContentView::default()
        },
        delegated: DelegatedView {
            child,
            child_name,
            child_result: request.outcome.clone(),
            held: request.held,
            ..DelegatedView::default()
        },
        times: RequestTimesView {
            patience_ms: u64::try_from(request.patience_ms).unwrap_or(0),
            ..RequestTimesView::default()
        },
        message_id: request.id.to_string(),
        number: request.no.to_string(),
        run_id: request.run.to_string(),
        run_name: request.run_name.clone(),
        kind: request.subject.kind().into(),
        blocking: request.blocking,
        group: request.group.map(|Group { first, place, size }| GroupView {
            first: first.to_string(),
            place,
            size,
        }),
        escalated: request
            .escalated
            .iter()
            .map(|(to, at)| EscalatedView {
                to: to.clone(),
                at: rfc3339(*at),
            })
            .collect(),
        ..RequestView::default()
    };
    add_subject(&mut view, request);
    add_answer(&mut view, request);
    add_times(&mut view, request);
    view
}

/// What the approval or the delegation is for.
fn add_subject(view: &mut RequestView, request: &Request) {
    match &request.subject {
        Subject::Question => {}
        Subject::Approval {
            preview,
            risk,
            operation,
        } => {
            view.content.preview = preview.clone();
            view.content.risk = risk.clone();
            view.content.operation = Some(OperationView::from((**operation).clone()));
        }
        Subject::Delegation(asked) => {
            let changes = match request.state.answer().map(|answer| &answer.decision) {
                Some(Decision::Approved { changes, .. }) => changes.clone(),
                _ => Changes::default(),
            };
            view.delegated.delegation = Some(delegation(asked, &changes));
        }
    }
}

/// What was answered, and by whom.
fn add_answer(view: &mut RequestView, request: &Request) {
    view.status = request.state.kind().into();
    view.message_status = request.state.message_status().into();
    let Some(answer) = request.state.answer() else {
        return;
    };
    view.reply.decision = answer.decision.kind().map(Word::Known);
    view.reply.reason = match &answer.decision {
        Decision::Text(_) => None,
        Decision::Approved { note, .. } => note.clone(),
        Decision::Denied { reason } => Some(reason.clone()),
    };
    view.reply.answer = Some(answer.decision.to_text());
    view.reply.answered_by = Some(answer.by.to_string());
    view.times.answered_at = Some(rfc3339(answer.at));
}

fn add_times(view: &mut RequestView, request: &Request) {
    view.times.asked_at = rfc3339(request.asked_at);
    view.times.expires_at = rfc3339(clock::expected_wall_time(request.expires_at));
    match &request.state {
        RequestState::Retrieved { at, .. } => view.times.retrieved_at = Some(rfc3339(*at)),
        RequestState::Expired { at } | RequestState::Withdrawn { at } => {
            view.times.ended_at = Some(rfc3339(*at));
        }
        RequestState::Pending | RequestState::Answered(_) => {}
    }
}

fn clarification(stated: &Clarification) -> ClarificationView {
    let Clarification {
        reason,
        blocked_at,
        resume_with,
        state,
    } = stated.clone();
    ClarificationView {
        reason,
        blocked_at,
        can_resume_with: resume_with,
        current_state: state,
    }
}

fn delegation(asked: &Delegation, changes: &Changes) -> DelegationView {
    let Delegation {
        task: _,
        agent,
        directory,
        reason,
        independence,
        priority,
        context_required,
        coordination,
        estimate,
        budget,
    } = asked.clone();
    let changed = (!changes.is_empty()).then(|| ChangesView {
        prompt: changes.prompt.clone(),
        agent: changes.agent.clone(),
        cwd: changes.directory.clone(),
        priority: changes.priority.map(Word::Known),
    });
    DelegationView {
        agent,
        cwd: directory,
        independence: independence.into(),
        priority: priority.into(),
        reason,
        context_required,
        coordination,
        estimated_duration: estimate,
        budget: (!budget.is_empty()).then(|| budget.to_string()),
        changes: changed,
        room: None,
    }
}

/// Returns a hash of everything that a decision about a request covers.
pub(in crate::ops) fn content_hash(request: &Request) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: Option<&str>| {
        let text = text.unwrap_or_default();
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    part(Some(&request.id.to_string()));
    part(Some(&request.question));
    part(request.context.as_deref());
    request.options.iter().for_each(|option| part(Some(option)));
    // What is absent is not hashed.
    if let Some(id) = &request.own_id {
        part(Some(id));
    }
    if let Some(Clarification {
        reason,
        blocked_at,
        resume_with,
        state,
    }) = &request.clarification
    {
        [reason, blocked_at, resume_with, state]
            .into_iter()
            .for_each(|text| part(text.as_deref()));
    }
    match &request.subject {
        Subject::Question => {}
        Subject::Approval {
            preview,
            risk,
            operation,
        } => {
            part(preview.as_deref());
            part(risk.as_deref());
            part(operation.digest.as_deref());
        }
        Subject::Delegation(asked) => {
            let Delegation {
                task: _,
                agent,
                directory,
                reason,
                independence,
                priority,
                context_required,
                coordination,
                estimate,
                budget,
            } = asked;
            for text in [
                agent,
                directory,
                reason,
                context_required,
                coordination,
                estimate,
            ] {
                part(text.as_deref());
            }
            part(Some(independence.word()));
            part(Some(priority.word()));
            if !budget.is_empty() {
                part(Some(&budget.to_string()));
            }
        }
    }
    let digest: [u8; 32] = hash.finalize().into();
    digest
        .iter()
        .take(CONTENT_HASH_BYTES)
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Maximum number of open delegations that are shown with current usage.
const WITH_ROOM_MAX: usize = 50;

/// Adds the current usage of the tree's limits to open delegations.
/// `queued`: the number of queued runs.
pub(in crate::ops) fn add_room(
    connection: &Connection,
    config: &Config,
    queued: u64,
    views: &mut [RequestView],
) -> Result<(), StoreError> {
    let mut counted = None;
    for view in views
        .iter_mut()
        .filter(|view| {
            view.status == RequestStateKind::Pending && view.delegated.delegation.is_some()
        })
        .take(WITH_ROOM_MAX)
    {
        let (Some(delegation), Ok(run)) =
            (&mut view.delegated.delegation, RunId::parse(&view.run_id))
        else {
            continue;
        };
        let Some(run) = run_by_id(connection, run)? else {
            continue;
        };
        let counts = match counted {
            Some(counts) => counts,
            None => *counted.insert(counts(connection)?),
        };
        let (
            TreeSize {
                depth,
                children,
                live,
                total,
            },
            limits,
        ) = (tree_size(connection, &run)?, config.tree);
        delegation.room = Some(RoomView {
            live: counts.live.saturating_sub(counts.lent),
            live_max: config.live_runs_max,
            queued,
            depth: depth + 1,
            depth_max: limits.depth_max,
            children,
            children_max: limits.children_max,
            tree_live: live,
            tree_live_max: limits.live_max,
            tree_total: total,
            tree_total_max: limits.total_max,
        });
    }
    Ok(())
}
