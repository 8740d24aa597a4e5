//! Waits that must end soon after what they wait for has happened, whatever fails meanwhile.

use super::calls::{Hubs, call, call_within};
use super::ledger::{Shared, lock};
use crate::random::Random;
use adjutant_api::view::{GetRun, ReadRequest, RunView, Wait, WaitUntil, Waited};
use adjutant_core::{RequestStateKind, RunStateKind};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The length of a wait, which is never reached while a wait ends as it must.
const WAIT_MS: u64 = 60_000;
/// How long a hub may take to reply, in addition.
const REPLY_LIMIT: Duration = Duration::from_secs(15);
/// How long after its cause a wait may end. Longer than any fault, and than a standby hub needs to
/// pass a call to the next leader.
const LATE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Waits until a run needs something or has ended.
pub async fn for_run(
    hubs: &Hubs,
    ledger: &Shared,
    random: &mut Random,
    run: &str,
) -> Result<Waited, String> {
    let wait = Wait {
        runs: vec![run.to_owned()],
        until: WaitUntil::Attention,
        wait_ms: WAIT_MS,
        ..Wait::default()
    };
    let mut looks = Random::new(random.below(u64::MAX));
    let waited = tokio::select! {
        waited = call_within(hubs, random, &wait, "wait", Duration::from_millis(WAIT_MS) + REPLY_LIMIT) => waited,
        problem = overdue(hubs, &mut looks, run) => return Err(problem),
    };
    lock(ledger).waits += 1;
    waited.map_err(|error| format!("the wait for {run}: {}: {error}", error.code))
}

/// Polls a run, and returns when it has needed the same for so long that a wait for it should have
/// ended.
async fn overdue(hubs: &Hubs, random: &mut Random, run: &str) -> String {
    let mut since: Option<(Instant, String)> = None;
    loop {
        let view = call(
            hubs,
            random,
            &GetRun {
                run: run.to_owned(),
                ..GetRun::default()
            },
            "look",
        )
        .await;
        since = match (view.as_ref().ok().and_then(need), since) {
            (Some(need), Some((began, before))) if need == before => Some((began, before)),
            (Some(need), _) => Some((Instant::now(), need)),
            // If the run could not be read, its need may have changed.
            (None, _) => None,
        };
        if let Some((began, need)) = &since
            && began.elapsed() > LATE
        {
            return format!("a wait for {run} has not ended {LATE:?} after this: {need}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns the need of a run that ends a wait.
fn need(view: &RunView) -> Option<String> {
    let is_over = view.condition.state == RunStateKind::Finished
        || view.condition.state == RunStateKind::Stopped;
    let pending: Vec<&str> = view
        .requests
        .pending
        .iter()
        .map(|request| request.message_id.as_str())
        .collect();
    (is_over || !pending.is_empty()).then(|| {
        format!(
            "attempt {} is {}, open requests: {pending:?}",
            view.identity.attempt, view.condition.state
        )
    })
}

/// Waits for the answer of a request. `None`: it was closed without one.
pub async fn for_answer(
    hubs: Hubs,
    mut random: Random,
    request: String,
) -> Result<Option<String>, String> {
    loop {
        let key = format!("await-{request}-{}", random.below(u64::MAX));
        let read = ReadRequest {
            message_id: request.clone(),
            wait_ms: WAIT_MS,
        };
        let read = call_within(
            &hubs,
            &mut random,
            &read,
            &key,
            Duration::from_millis(WAIT_MS) + REPLY_LIMIT,
        )
        .await;
        match read {
            Ok(view) if view.reply.answer.is_some() => return Ok(view.reply.answer.clone()),
            Ok(view) if view.status != RequestStateKind::Pending => return Ok(None),
            Ok(_) => {}
            Err(error) => {
                return Err(format!(
                    "the wait for the answer of {request}: {}: {error}",
                    error.code
                ));
            }
        }
    }
}

/// Checks that a wait for an answer ends, with the accepted answer if there is one.
pub async fn ended(
    ledger: &Shared,
    mut reader: JoinHandle<Result<Option<String>, String>>,
    request: &str,
    accepted: Option<String>,
) -> Result<(), String> {
    let Ok(joined) = tokio::time::timeout(LATE, &mut reader).await else {
        reader.abort();
        return Err(format!(
            "the wait for the answer of {request} has not ended after {LATE:?}"
        ));
    };
    let read = joined.map_err(|error| error.to_string())??;
    if accepted.is_some() && read != accepted {
        return Err(format!(
            "{request} was answered {accepted:?}, and its wait ended with {read:?}"
        ));
    }
    lock(ledger).waits += 1;
    Ok(())
}
