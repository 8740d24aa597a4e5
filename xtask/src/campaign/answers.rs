//! Answers all questions and decides all requests of the campaign's runs.

use super::ledger::{Decided, Shared, lock};
use super::plan::Decisions;
use crate::lab::Lab;
use adjutant_api::view::{
    AnswerOne, AnswerRequests, DecisionWord, ErrorView, ListRequests, RequestView, codes,
};
use adjutant_core::RequestKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Expected refusals, caused by a concurrent decision or by the end of a run.
const TOO_LATE: [&str; 5] = [
    codes::ALREADY_ANSWERED,
    codes::USED,
    codes::WITHDRAWN,
    codes::RUN_FINISHED,
    codes::CONFLICT,
];

/// Settles every open request with two concurrent calls, until `ends` is signalled.
pub async fn answer_all(lab: Arc<Lab>, ledger: Shared, ends: watch::Receiver<bool>) {
    let client = lab.client();
    let mut number = 0_u64;
    while !*ends.borrow() {
        let listed = lab
            .persist(
                &client,
                &ListRequests {
                    limit: Some(1_000),
                    ..ListRequests::default()
                },
                "look",
            )
            .await;
        for request in listed.map(|list| list.requests).unwrap_or_default() {
            // The ledger contains the decision only after the dispatch is acknowledged.
            let Some(decisions) = lock(&ledger).decisions(&request.run_id) else {
                continue;
            };
            number += 1;
            if request.kind == RequestKind::Question {
                answer(&lab, &ledger, &request, number).await;
            } else {
                decide(&lab, &ledger, &request, decisions, number).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Makes two concurrent calls, each with its own key. Returns the indexes of the accepted ones.
async fn rivals(lab: &Arc<Lab>, ledger: &Shared, ones: [AnswerOne; 2], number: u64) -> Vec<usize> {
    let mut tries = JoinSet::new();
    for (at, one) in ones.into_iter().enumerate() {
        let (lab, key) = (lab.clone(), format!("answer-{number}-{at}"));
        tries.spawn(async move { (at, one.message_id.clone(), put(&lab, one, &key).await) });
    }
    let mut accepted = Vec::new();
    while let Some(Ok((at, id, result))) = tries.join_next().await {
        match result {
            Ok(()) => accepted.push(at),
            Err(error) if TOO_LATE.contains(&error.code.as_str()) => {}
            Err(error) => lock(ledger)
                .problems
                .push(format!("answer {id:?}: {}: {error}", error.code)),
        }
    }
    accepted.sort_unstable();
    accepted
}

async fn put(lab: &Lab, one: AnswerOne, key: &str) -> Result<(), ErrorView> {
    lab.persist(&lab.client(), &AnswerRequests { answers: vec![one] }, key)
        .await
        .map(drop)
}

/// Answers a question. At most one answer may be accepted.
async fn answer(lab: &Arc<Lab>, ledger: &Shared, request: &RequestView, number: u64) {
    let text = |rival: usize| format!("re: {} by {rival}", request.content.question);
    let one = |rival| AnswerOne {
        message_id: Some(request.message_id.clone()),
        answer: text(rival),
        ..AnswerOne::default()
    };
    let accepted = rivals(lab, ledger, [one(0), one(1)], number).await;
    let mut ledger = lock(ledger);
    if accepted.len() > 1 {
        ledger
            .problems
            .push(format!("{}: two answers were accepted", request.message_id));
    }
    if let Some(rival) = accepted.first()
        && let Some(before) = ledger
            .answered
            .insert(request.message_id.clone(), text(*rival))
    {
        ledger.problems.push(format!(
            "{}: answered again, before that {before:?}",
            request.message_id
        ));
    }
}

/// Decides an approval or a delegation. At most one decision may be accepted; an approval may then
/// be revoked.
async fn decide(
    lab: &Arc<Lab>,
    ledger: &Shared,
    request: &RequestView,
    decisions: Decisions,
    number: u64,
) {
    let words = [
        Some(format!("first of {number}")),
        Some(format!("second of {number}")),
    ];
    let one = |at: usize, approves: bool| AnswerOne {
        message_id: Some(request.message_id.clone()),
        decision: Some(if approves {
            DecisionWord::Approve
        } else {
            DecisionWord::Deny
        }),
        reason: words[at].clone(),
        content_hash: Some(request.content.content_hash.clone()),
        ..AnswerOne::default()
    };
    let approves = match decisions {
        Decisions::Approve => [true, true],
        Decisions::Deny => [false, false],
        Decisions::Race | Decisions::Revoke => [true, false],
    };
    let ones = [one(0, approves[0]), one(1, approves[1])];
    let accepted = if decisions == Decisions::Revoke {
        let mut accepted = Vec::new();
        for (at, one) in ones.into_iter().enumerate() {
            match put(lab, one, &format!("decide-{number}-{at}")).await {
                Ok(()) => accepted.push(at),
                Err(error) if TOO_LATE.contains(&error.code.as_str()) => {}
                Err(error) => lock(ledger).problems.push(format!(
                    "decide {}: {}: {error}",
                    request.message_id, error.code
                )),
            }
        }
        accepted
    } else {
        rivals(lab, ledger, ones, number).await
    };
    let mut ledger = lock(ledger);
    let new: Vec<Decided> = accepted
        .into_iter()
        .map(|at| {
            let word = if approves[at] { "approved" } else { "denied" };
            Decided {
                approved: approves[at],
                text: format!("{word}: {}", words[at].as_deref().unwrap_or_default()),
            }
        })
        .collect();
    let all = ledger
        .decided
        .entry(request.message_id.clone())
        .or_default();
    all.extend(new);
    let yes = all.iter().filter(|one| one.approved).count();
    let may_both = request.kind == RequestKind::Approval;
    if yes > 1 || all.len() - yes > 1 || (all.len() > 1 && !may_both) {
        let problem = format!(
            "{} ({}): accepted were {all:?}",
            request.message_id, request.kind
        );
        ledger.problems.push(problem);
    }
    if decisions == Decisions::Revoke
        && ledger
            .decided
            .get(&request.message_id)
            .is_some_and(|all| all.len() != 2)
    {
        let problem = format!(
            "{}: an unread approval could not be revoked",
            request.message_id
        );
        ledger.problems.push(problem);
    }
}
