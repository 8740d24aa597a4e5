//! Drives each run of the campaign to its end.

use super::ledger::{Dispatched, Shared, lock};
use super::plan::{Kind, Plan, TOKENS, details, state};
use crate::lab::Lab;
use crate::random::Random;
use adjutant_api::view::{Cancel, ErrorView, GetRun, ReadEvents, Resume, RunView, codes};
use adjutant_core::{EventKind, RunStateKind};
use adjutant_net::hub_client::Client;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout for a run, counted from the last kill of a hub. A run that has not ended by then counts
/// as hanging.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Returns whether only the driver can continue the run.
pub fn is_over(view: &RunView) -> bool {
    view.condition.state == RunStateKind::Finished
        || (view.condition.state == RunStateKind::Stopped
            && view.condition.reason.as_deref() == Some("supervisor_lost"))
}

/// Dispatches a run and drives it to its end.
pub async fn one_run(
    lab: &Lab,
    ledger: &Shared,
    journal: &Path,
    key: &str,
    plan: Plan,
    random: &mut Random,
) {
    if let Err(problem) = drive(lab, ledger, journal, key, plan, random).await {
        lock(ledger)
            .problems
            .push(format!("{key} ({plan:?}): {problem}"));
    }
}

async fn drive(
    lab: &Lab,
    ledger: &Shared,
    journal: &Path,
    key: &str,
    plan: Plan,
    random: &mut Random,
) -> Result<(), String> {
    let client = lab.client();
    let mut order = lab.order(plan.agent(), plan.script(journal, key));
    if matches!(plan.kind, Kind::Delegate | Kind::StopDelegate) {
        order.budget = Some(format!("tokens={TOKENS}"));
    }
    let run = lab
        .persist(&client, &order, key)
        .await
        .map_err(describe_error)?
        .identity
        .run_id;
    lock(ledger).dispatched.insert(
        key.to_string(),
        Dispatched {
            run: run.clone(),
            order,
            plan,
        },
    );
    let start = Instant::now();
    let cancel_after = Duration::from_millis(200 + random.below(800));
    loop {
        let view = lab
            .persist(
                &client,
                &GetRun {
                    run: run.clone(),
                    ..GetRun::default()
                },
                "look",
            )
            .await
            .map_err(describe_error)?;
        let children_over = record_children(lab, &client, ledger, &view).await?;
        if is_over(&view) && children_over {
            return Ok(());
        }
        if lock(ledger).undisturbed(start) > RUN_LIMIT {
            let log = lab.end_of_hub_log();
            return Err(format!(
                "{run} is still {} ({:?}) after {RUN_LIMIT:?}. The end of the hub's log:\n{log}",
                view.condition.state, view.condition.reason
            ));
        }
        if plan.kind == Kind::Cancel
            && start.elapsed() > cancel_after
            && !lock(ledger).cancelled.contains(&run)
        {
            cancel(lab, &client, ledger, &run).await?;
        }
        if plan.kind == Kind::Stop
            && view.condition.state == RunStateKind::Stopped
            && view.condition.reason.as_deref() == Some("blocker")
        {
            resume(lab, &client, ledger, key, &view).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn describe_error(error: ErrorView) -> String {
    format!("{}: {error}", error.code)
}

async fn cancel(lab: &Lab, client: &Client, ledger: &Shared, run: &str) -> Result<(), String> {
    match lab
        .persist(
            client,
            &Cancel {
                run: run.to_string(),
                reason: None,
            },
            &format!("cancel-{run}"),
        )
        .await
    {
        Ok(_) => {
            lock(ledger).cancelled.insert(run.to_string());
            Ok(())
        }
        Err(error) if error.code == codes::RUN_FINISHED || error.code == codes::CONFLICT => Ok(()),
        Err(error) => Err(format!("cancel {run}: {}", describe_error(error))),
    }
}

/// Resumes a stopped run with two concurrent calls, of which exactly one may be accepted for each
/// stop.
async fn resume(
    lab: &Lab,
    client: &Client,
    ledger: &Shared,
    key: &str,
    view: &RunView,
) -> Result<(), String> {
    let left = view.activity.checkpoint.as_ref().map(|left| {
        (
            left.details.as_str(),
            left.state_snapshot.as_deref(),
            left.made_by.as_str(),
        )
    });
    if left != Some((details(key).as_str(), Some(state(key).as_str()), "run")) {
        return Err(format!(
            "{} stopped and left {left:?}",
            view.identity.run_id
        ));
    }
    if let Some((_, resolution)) = lock(ledger).resumed.get(&view.identity.run_id) {
        return Err(format!(
            "{} was resumed with {resolution:?} and is stopped again",
            view.identity.run_id
        ));
    }
    let one = async |rival: u32| {
        let (key, resolution) = (
            format!("{key}-resume-{rival}"),
            format!("{key} resolved by {rival}"),
        );
        let call = Resume {
            run: view.identity.run_id.clone(),
            resolution: Some(resolution.clone()),
            ..Resume::default()
        };
        (
            key.clone(),
            resolution,
            lab.persist(client, &call, &key).await,
        )
    };
    let (first, second) = tokio::join!(one(0), one(1));
    let mut accepted = Vec::new();
    for (key, resolution, result) in [first, second] {
        match result {
            Ok(_) => accepted.push((key, resolution)),
            Err(error) if [codes::CONFLICT, codes::RUN_FINISHED].contains(&error.code.as_str()) => {
            }
            Err(error) => {
                return Err(format!(
                    "resume {}: {}",
                    view.identity.run_id,
                    describe_error(error)
                ));
            }
        }
    }
    if accepted.len() == 2 {
        let page = lab
            .persist(
                client,
                &ReadEvents {
                    run: Some(view.identity.run_id.clone()),
                    ..ReadEvents::default()
                },
                "events",
            )
            .await
            .map_err(describe_error)?;
        if page
            .events
            .iter()
            .filter(|event| event.kind == EventKind::RunStopped)
            .count()
            > 1
        {
            // The first call took effect, and the supervisor was killed before the second call
            // arrived.
            lock(ledger)
                .resumed_twice
                .insert(view.identity.run_id.clone());
            accepted.pop();
        }
    }
    let [accepted] = accepted.as_slice() else {
        return Err(format!(
            "{} was resumed by {accepted:?}",
            view.identity.run_id
        ));
    };
    lock(ledger)
        .resumed
        .insert(view.identity.run_id.clone(), accepted.clone());
    Ok(())
}

/// Records the children of a run, and cancels those that lost their supervisor, because the run
/// waits for them. Returns whether all have ended.
async fn record_children(
    lab: &Lab,
    client: &Client,
    ledger: &Shared,
    view: &RunView,
) -> Result<bool, String> {
    let mut over = true;
    for name in &view.identity.children {
        let child = lab
            .persist(
                client,
                &GetRun {
                    run: name.clone(),
                    ..GetRun::default()
                },
                "look",
            )
            .await
            .map_err(describe_error)?;
        lock(ledger).children.insert(child.identity.run_id.clone());
        if child.condition.state == RunStateKind::Stopped {
            cancel(lab, client, ledger, &child.identity.run_id).await?;
        }
        over &= child.condition.state == RunStateKind::Finished;
    }
    Ok(over)
}

/// Waits for the end of late child runs, whose delegation was approved after their parent had
/// ended.
pub async fn late_children(lab: &Lab, ledger: &Shared) -> Result<(), String> {
    let client = lab.client();
    let delegating: Vec<String> = lock(ledger)
        .dispatched
        .values()
        .filter(|one| matches!(one.plan.kind, Kind::Delegate | Kind::StopDelegate))
        .map(|one| one.run.clone())
        .collect();
    let start = Instant::now();
    for run in delegating {
        loop {
            let view = lab
                .persist(
                    &client,
                    &GetRun {
                        run: run.clone(),
                        ..GetRun::default()
                    },
                    "look",
                )
                .await
                .map_err(describe_error)?;
            if record_children(lab, &client, ledger, &view).await? {
                break;
            }
            if lock(ledger).undisturbed(start) > RUN_LIMIT {
                return Err(format!(
                    "a child run of {run} has not ended after {RUN_LIMIT:?}"
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}
