//! Orders: the hub's instructions for an attempt.

use crate::ops::attempt_id::AttemptId;
use crate::ops::{OpError, render};
use crate::protocol::Orders;
use crate::store::{Store, Topic, queued_messages, run_by_id};
use adjutant_core::{PromptVia, RunState, StopReason};
use futures::FutureExt;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::time::Instant;

/// Delay before clock changes are sent to a supervisor, so that a question answered at once costs
/// nothing.
const CLOCK_DELAY: Duration = Duration::from_millis(100);
/// Maximum of that delay, while questions are asked and answered in quick succession.
const CLOCK_DELAY_MAX: Duration = Duration::from_secs(1);

/// Returns an attempt's orders as soon as they differ from the known version.
///
/// # Errors
/// A failure of the store.
pub async fn await_orders(
    store: &Store,
    id: AttemptId,
    known: i64,
    wait_ms: u64,
) -> Result<Orders, OpError> {
    let deadline = crate::ops::end_of_wait(wait_ms);
    let pressing = store.wake_ups().subscribe(vec![Topic::Orders(id.run)]);
    let anything = store.wake_ups().subscribe(vec![Topic::Run(id.run)]);
    let mut settled = false;
    loop {
        let orders = current_orders(store, id)?;
        let is_known = orders.version == known;
        let has_changed = !is_known && (settled || !differs_in_clock_only(&orders, known)?);
        if has_changed || Instant::now() >= deadline {
            return Ok(orders);
        }
        if is_known {
            tokio::select! {
                biased;
                () = pressing.wait() => {
                    settled = false;
                    continue;
                }
                () = tokio::time::sleep_until(deadline) => continue,
                () = anything.wait() => {}
            }
        }
        // Only the clock has changed, and may change again soon.
        let latest = deadline.min(Instant::now() + CLOCK_DELAY_MAX);
        settled = loop {
            let look_again = latest.min(Instant::now() + CLOCK_DELAY);
            if tokio::time::timeout_at(look_again, pressing.wait())
                .await
                .is_ok()
            {
                break false;
            }
            if look_again == latest || anything.wait().now_or_never().is_none() {
                break true;
            }
        };
    }
}

fn current_orders(store: &Store, id: AttemptId) -> Result<Orders, OpError> {
    let mut orders = store.read(|connection| {
        let run = run_by_id(connection, id.run)?;
        let Some(run) = run.filter(|run| run.attempt == id.n) else {
            return Ok(Orders {
                stop: Some(StopReason::Cancelled.word().to_owned()),
                ..Orders::default()
            });
        };
        let stop = match run.state {
            RunState::Stopping(reason) | RunState::Stopped { reason, .. } => {
                Some(reason.word().to_owned())
            }
            RunState::Finished(_) => Some(StopReason::Cancelled.word().to_owned()),
            RunState::Queued | RunState::Starting | RunState::Running => None,
        };
        let messages = if run.prompt_via == PromptVia::Stream {
            queued_messages(connection, run.id)?
        } else {
            Vec::new()
        };
        let messages = messages
            .iter()
            .map(|message| render::message(message, &run.name))
            .collect();
        let reported = run.standing_report().map(|report| report.seq.0);
        Ok(Orders {
            version: 0,
            stop,
            waiting: run.is_waiting(),
            reported,
            messages,
        })
    })?;
    orders.version = version(&orders)?;
    Ok(orders)
}

/// Returns a hash of the orders.
fn version(orders: &Orders) -> Result<i64, OpError> {
    let json = serde_json::to_vec(&Orders {
        version: 0,
        ..orders.clone()
    })
    .map_err(|error| OpError::Io(error.to_string()))?;
    let digest: [u8; 32] = Sha256::digest(&json).into();
    let [a, b, c, d, e, f, ..] = digest;
    Ok(1 + i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// Returns whether orders differ from the known version only in whether the clock runs.
fn differs_in_clock_only(orders: &Orders, known: i64) -> Result<bool, OpError> {
    Ok(version(&Orders {
        waiting: !orders.waiting,
        ..orders.clone()
    })? == known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clock_orders_can_be_deferred() {
        let known = Orders {
            waiting: false,
            ..Orders::default()
        };
        let known_version = version(&known).expect("a version");
        let asked = Orders {
            waiting: true,
            ..known.clone()
        };
        assert!(differs_in_clock_only(&asked, known_version).expect("comparable"));
        assert!(!differs_in_clock_only(&known, known_version).expect("comparable"));
        let stopped = Orders {
            stop: Some("cancelled".to_owned()),
            ..asked.clone()
        };
        assert!(!differs_in_clock_only(&stopped, known_version).expect("comparable"));
        assert!(
            !differs_in_clock_only(&asked, 0).expect("comparable"),
            "nothing is known yet"
        );
    }
}
