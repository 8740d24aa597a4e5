//! Compares the acknowledged writes with the store.

use super::delivery::{Ended, delivery_problems};
use super::ledger::{Ledger, Shared, lock};
use super::plan::{Kind, TOKENS};
use crate::lab::{Lab, Result};
use adjutant_api::view::{
    GetRun, ListRequests, ListRuns, ReadRequest, RequestView, Resume, RunView, Word,
};
use adjutant_core::budget::UNSTATED_TOKENS;
use adjutant_core::{DecisionKind, OutcomeKind, RequestKind, RunStateKind};
use adjutant_net::hub_client::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Checks all runs, stops the hub and looks for remaining processes.
pub async fn check(lab: &Lab, ledger: &Shared, journal: &Path) -> Result<Vec<String>> {
    lab.start_hub()?;
    let client = lab.client();
    let Ledger {
        dispatched,
        answered,
        decided,
        resumed,
        ..
    } = {
        let ledger = lock(ledger);
        let (dispatched, answered) = (ledger.dispatched.clone(), ledger.answered.clone());
        Ledger {
            dispatched,
            answered,
            decided: ledger.decided.clone(),
            resumed: ledger.resumed.clone(),
            ..Ledger::default()
        }
    };
    let mut problems = Vec::new();
    let acknowledged: BTreeSet<&String> = dispatched.values().map(|one| &one.run).collect();
    if acknowledged.len() != dispatched.len() {
        problems.push("two keys refer to the same run".to_string());
    }
    // Without a journal, no attempt has started.
    let text = match std::fs::read_to_string(journal) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            problems.push(format!("the journal cannot be read: {error}"));
            String::new()
        }
        read => read.unwrap_or_default(),
    };
    let journal = Journal::read(&text, &mut problems);

    let mut stored: BTreeMap<String, RunView> = BTreeMap::new();
    let mut ends: BTreeMap<(Kind, String), usize> = BTreeMap::new();
    for (key, one) in &dispatched {
        let Ok(view) = client
            .call(&GetRun {
                run: one.run.clone(),
                ..GetRun::default()
            })
            .await
        else {
            problems.push(format!("{} was acknowledged and is lost", one.run));
            continue;
        };
        problems.extend(
            wrong_state(&view, &lock(ledger)).map(|problem| problem + &logs_of(lab, &view)),
        );
        let again = client.call_with_key(&one.order, key).await;
        if again.as_ref().map(|view| &view.identity.run_id) != Ok(&one.run) {
            problems.push(format!(
                "{key} repeated gave {:?} and not {}",
                again.map(|view| view.identity.run_id),
                one.run
            ));
        }
        let requests = client
            .call(&ListRequests {
                run: Some(one.run.clone()),
                all: true,
                limit: None,
            })
            .await?
            .requests;
        let children = children(&client, &view, &requests, &mut problems).await?;
        let resolution = resumed
            .get(&one.run)
            .map(|(_, resolution)| resolution.as_str());
        let after = journal
            .after
            .get(one.run.as_str())
            .copied()
            .unwrap_or_default();
        let ended = Ended {
            key,
            plan: one.plan,
            view: &view,
            requests: &requests,
            child: children.first(),
            after,
            resolution,
        };
        let wrong = if lock(ledger).resumed_twice.contains(&one.run) {
            Vec::new()
        } else {
            delivery_problems(&ended)?
        };
        problems.extend(
            wrong
                .into_iter()
                .map(|problem| format!("{} ({:?}): {problem}", one.run, one.plan)),
        );
        let end = view
            .condition
            .outcome
            .as_ref()
            .map_or_else(|| view.condition.state.to_string(), Word::to_string);
        *ends.entry((one.plan.kind, end)).or_default() += 1;
        problems.extend(budget_problem(&view, &children));
        for child in children {
            problems.extend(
                wrong_state(&child, &lock(ledger)).map(|problem| problem + &logs_of(lab, &child)),
            );
            stored.insert(child.identity.run_id.clone(), child);
        }
        stored.insert(one.run.clone(), view);
    }
    let runs = client
        .call(&ListRuns {
            all: true,
            limit: Some(1),
            before: None,
        })
        .await?;
    let listed = runs.runs.len() as u64 + runs.more;
    if listed != stored.len() as u64 {
        problems.push(format!(
            "{listed} runs are stored, {} were acknowledged or delegated",
            stored.len()
        ));
    }
    let expected = answered.iter().map(|(id, answer)| (id, Some(answer)));
    // An accepted denial revokes the approval.
    let ruled = decided.iter().map(|(id, all)| {
        (
            id,
            all.iter()
                .find(|one| !one.approved)
                .or(all.first())
                .map(|one| &one.text),
        )
    });
    for (id, answer) in expected.chain(ruled) {
        match client
            .call(&ReadRequest {
                message_id: id.clone(),
                wait_ms: 0,
            })
            .await
        {
            Ok(request) if answer.is_none() || request.reply.answer.as_ref() == answer => {}
            Ok(request) => problems.push(format!(
                "{id} was answered {answer:?} and has {:?} ({})",
                request.reply.answer, request.status
            )),
            Err(error) => {
                problems.push(format!("{id} was answered and is {}: {error}", error.code))
            }
        }
    }
    for (run, (key, resolution)) in &resumed {
        let again = client
            .call_with_key(
                &Resume {
                    run: run.clone(),
                    resolution: Some(resolution.clone()),
                    ..Resume::default()
                },
                key,
            )
            .await;
        let now = client
            .call(&GetRun {
                run: run.clone(),
                ..GetRun::default()
            })
            .await?;
        let before = stored.get(run);
        if again.as_ref().map(|view| &view.identity.run_id) != Ok(run)
            || before.is_none_or(|before| {
                (before.identity.attempt, &before.condition.state)
                    != (now.identity.attempt, &now.condition.state)
            })
        {
            problems.push(format!(
                "{run} was {before:?}, resumed again under its key ({again:?}) it is {now:?}"
            ));
        }
    }
    println!("  {}", tally(&ends));
    let revocations = decided.values().filter(|all| all.len() == 2).count();
    let started = stored.len() - dispatched.len();
    println!(
        "  accepted: {} answers, {} resumes, {} decisions ({revocations} revoked), {started} runs delegated",
        answered.len(),
        resumed.len(),
        decided.values().filter(|all| !all.is_empty()).count()
    );
    let mut left = lab.close().await?;
    left.extend(strays(&stored));
    if !left.is_empty() {
        problems.push(format!("not removed one second after the end: {left:?}"));
    }
    let mut all = std::mem::take(&mut lock(ledger).problems);
    all.extend(problems);
    Ok(all)
}

/// Describes the error if a budget was lost or duplicated. All runs of the tree must have ended,
/// and each attempt is charged at most once.
fn budget_problem(view: &RunView, children: &[RunView]) -> Option<String> {
    let budget = view.cost.budgets.first()?;
    let all_ended = view.condition.state == RunStateKind::Finished
        && children
            .iter()
            .all(|child| child.condition.state == RunStateKind::Finished);
    let attempts: u64 = children
        .iter()
        .map(|child| u64::from(child.identity.attempt))
        .sum::<u64>()
        + u64::from(view.identity.attempt);
    let used = budget.used.unwrap_or(0);
    let is_whole =
        budget.amount == TOKENS && budget.left == TOKENS - used.min(TOKENS) && budget.reserved == 0;
    let is_charged = used.is_multiple_of(UNSTATED_TOKENS) && used <= attempts * UNSTATED_TOKENS;
    (all_ended && !(is_whole && is_charged)).then(|| {
        format!(
            "{} has ended after {attempts} attempts with the budget {budget}",
            view.identity.run_id
        )
    })
}

/// The parsed journal that the agents write.
struct Journal<'a> {
    /// The number of times that each run continued after its stop.
    after: BTreeMap<&'a str, usize>,
}

impl<'a> Journal<'a> {
    /// Parses lines of the form `<run> <attempt> <pid> <time> <word>`.
    fn read(text: &'a str, problems: &mut Vec<String>) -> Self {
        let (mut started, mut after) = (BTreeSet::new(), BTreeMap::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                [run, attempt, _, _, "attempt"] => {
                    if !started.insert((*run, *attempt)) {
                        problems.push(format!("attempt {attempt} of {run} was started twice"));
                    }
                }
                [run, _, _, _, "after"] => *after.entry(*run).or_default() += 1,
                _ => problems.push(format!("the journal has a line {line:?}")),
            }
        }
        Self { after }
    }
}

/// Returns the children of a run: one for each approved delegation.
async fn children(
    client: &Client,
    view: &RunView,
    requests: &[RequestView],
    problems: &mut Vec<String>,
) -> Result<Vec<RunView>> {
    let mut found = Vec::new();
    for name in &view.identity.children {
        found.push(
            client
                .call(&GetRun {
                    run: name.clone(),
                    ..GetRun::default()
                })
                .await?,
        );
    }
    let approved: Vec<&str> = requests
        .iter()
        .filter(|request| {
            request.kind == RequestKind::Delegation
                && request.reply.decision == Some(DecisionKind::Approved.into())
        })
        .map(|request| request.delegated.child.as_deref().unwrap_or("none"))
        .collect();
    let there: Vec<&str> = found
        .iter()
        .map(|child| child.identity.run_id.as_str())
        .collect();
    if approved != there
        || found
            .iter()
            .any(|child| child.identity.parent.as_deref() != Some(view.identity.run_id.as_str()))
    {
        problems.push(format!(
            "{} has the children {there:?}, approved were {approved:?}",
            view.identity.run_id
        ));
    }
    Ok(found)
}

/// Finds processes that have the id of one of the runs in their arguments.
fn strays(runs: &BTreeMap<String, RunView>) -> Vec<String> {
    let line = |pid| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
    };
    let all = crate::lab::pids()
        .into_iter()
        .filter_map(|pid| Some((pid, line(pid).ok()?)));
    all.filter(|(_, line)| line.split(' ').any(|word| runs.contains_key(word)))
        .map(|(pid, line)| format!("{pid}: {line}"))
        .collect()
}

/// Counts the outcomes of each kind of run.
fn tally(ends: &BTreeMap<(Kind, String), usize>) -> String {
    let of = |kind: Kind| {
        let mine: Vec<_> = ends.iter().filter(|((of, _), _)| *of == kind).collect();
        let parts: Vec<String> = mine
            .iter()
            .map(|((_, end), count)| format!("{end} {count}"))
            .collect();
        format!(
            "{} {} ({})",
            kind.word(),
            mine.iter().map(|(_, count)| **count).sum::<usize>(),
            parts.join(", ")
        )
    };
    format!("runs: {}", Kind::ALL.map(of).join("; "))
}

/// Returns the log lines of the supervisors and the hub about a run, because its home will be
/// removed.
fn logs_of(lab: &Lab, view: &RunView) -> String {
    let mut out = String::new();
    for attempt in 1..=view.identity.attempt {
        let dir = lab.attempt_dir(&view.identity.run_id, attempt);
        for file in [dir.0.join("supervisor.log"), dir.facts()] {
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| error.to_string());
            out.push_str(&format!("\n--- {}\n{text}", file.display()));
        }
    }
    let hub = std::fs::read_to_string(lab.home.hub_log()).unwrap_or_default();
    let about = hub.lines().filter(|line| {
        line.contains(&view.identity.run_id) || line.contains("ready") || line.contains("ERROR")
    });
    format!(
        "{out}\n--- hub.log\n{}",
        about.collect::<Vec<_>>().join("\n")
    )
}

/// Returns why the final state of a run is wrong, given the actions on it.
pub fn wrong_state(view: &RunView, ledger: &Ledger) -> Option<String> {
    let hit = ledger.supervisor_killed.contains(&view.identity.run_id);
    let cancelled = ledger.cancelled.contains(&view.identity.run_id);
    let right = match (
        view.condition.state.known(),
        view.condition.outcome.as_ref().and_then(Word::known),
    ) {
        (Some(RunStateKind::Finished), Some(OutcomeKind::Succeeded)) => !cancelled,
        (Some(RunStateKind::Finished), Some(OutcomeKind::Cancelled)) => cancelled,
        (Some(RunStateKind::Finished), Some(OutcomeKind::Lost)) => hit,
        (Some(RunStateKind::Stopped), None) => {
            hit && view.condition.reason.as_deref() == Some("supervisor_lost")
        }
        // Each attempt was killed before the agent could start.
        (Some(RunStateKind::Finished), Some(OutcomeKind::SpawnFailed)) => {
            hit || ledger.guard_killed.contains(&view.identity.run_id)
        }
        _ => false,
    };
    (!right).then(|| {
        let guard = ledger.guard_killed.contains(&view.identity.run_id);
        format!(
            "{} {} is {} {:?} ({:?}); supervisor killed: {hit}, guard killed: {guard}, cancelled: {cancelled}",
            view.identity.run_id,
            view.identity.name,
            view.condition.state,
            view.condition.outcome.as_ref().map(Word::as_str),
            view.condition.reason
        )
    })
}
