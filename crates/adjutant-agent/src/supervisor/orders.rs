//! The hub's orders for the attempt. They are a state that is read repeatedly, so nothing is lost
//! when either process restarts.

use crate::hub_client::Client;
use crate::process::Lock;
use crate::protocol::{GetOrders, Orders, Standing};
use crate::supervisor::journal::Recorded;
use crate::trace::RepeatedFailures;
use adjutant_core::StopReason;
use adjutant_core::lease::Lease;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the hub may hold one call for orders.
const WAIT: Duration = Duration::from_secs(10 * 60);
/// The pause after the hub refused such a call.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Follows the orders until all receivers are dropped. When the lease of the attempt ends, or a
/// call fails after the lock of the supervisor was removed, as with the home, the order is to stop,
/// and stays so: nobody else can end the attempt.
pub(super) async fn follow(
    client: Client,
    orders: watch::Sender<Orders>,
    recorded: Recorded,
    lease: Option<Lease>,
    lock: Arc<Lock>,
) {
    let wait = lease.map_or(WAIT, |lease| lease.wait_max().min(WAIT));
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let mut contact = Instant::now();
    let (mut known, mut failures) = (0, RepeatedFailures::default());
    while !orders.is_closed() {
        let sent = Instant::now();
        // Composed again for each hub, which uses it to determine whether it has everything.
        let standing = Standing {
            facts: recorded.last(),
            writes: client.open_writes(),
        };
        let call = GetOrders {
            known,
            wait_ms,
            standing: Some(standing),
        };
        let asked = client.send_json_once::<Orders>("/link/orders", &call);
        match until_lease_ends(lease, contact, asked).await {
            None => {
                tracing::warn!("the lease of the attempt ends: the agent is being stopped");
                return stop(&orders).await;
            }
            Some(Ok(None)) => failures.clear(),
            Some(Ok(Some(now))) => {
                contact = sent;
                failures.clear();
                if now.version != known {
                    known = now.version;
                    orders.send_replace(now);
                }
            }
            // No hub can find the attempt any more; that of a new home at this path refuses it.
            Some(Err(error)) if lock.is_removed() => {
                tracing::warn!(%error, "the lock of the attempt was removed: the agent is being stopped");
                return stop(&orders).await;
            }
            Some(Err(error)) => {
                if let Some(times) = failures.note(&error.to_string(), sent.into()) {
                    tracing::warn!(%error, times, "the orders cannot be read from the hub");
                }
                if until_lease_ends(lease, contact, tokio::time::sleep(REFUSED_PAUSE))
                    .await
                    .is_none()
                {
                    tracing::debug!("the lease ends");
                }
            }
        }
    }
}

/// Orders a stop, and keeps it.
async fn stop(orders: &watch::Sender<Orders>) {
    orders.send_modify(|orders| orders.stop = Some(StopReason::HostLost.word().to_owned()));
    orders.closed().await;
}

/// Waits until the hub confirms that the attempt may start: its order may have taken longer than
/// the lease. Returns `false` if the attempt is to stop instead.
pub(super) async fn is_confirmed(orders: &watch::Receiver<Orders>) -> bool {
    let mut orders = orders.clone();
    let known = orders
        .wait_for(|orders| orders.version != 0 || orders.stop.is_some())
        .await;
    known.is_ok_and(|orders| orders.stop.is_none())
}

/// Waits for `done`. `None`: the lease has ended before.
async fn until_lease_ends<T>(
    lease: Option<Lease>,
    contact: Instant,
    done: impl Future<Output = T>,
) -> Option<T> {
    match lease {
        None => Some(done.await),
        Some(lease) => tokio::time::timeout_at(contact + lease.end_begins(), done)
            .await
            .ok(),
    }
}
