//! The hub's orders for the attempt. They are a state that is read repeatedly, so nothing is lost when either process
//! restarts.

use crate::client::Client;
use crate::link::{GetOrders, Orders};
use std::time::Duration;
use tokio::sync::watch;

/// How long the hub may hold one call for orders, in milliseconds.
const WAIT_MS: u64 = 10 * 60 * 1000;
/// The pause after the hub refused such a call.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Follows the orders until all receivers are dropped.
pub async fn follow(client: Client, orders: watch::Sender<Orders>) {
    let mut known = 0;
    while !orders.is_closed() {
        match ask(&client, known).await {
            Ok(now) => {
                if now.version != known {
                    known = now.version;
                    orders.send_replace(now);
                }
            }
            Err(message) => {
                tracing::warn!(message, "the orders cannot be read from the hub");
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

async fn ask(client: &Client, known: i64) -> Result<Orders, String> {
    client.send_json("/link/orders", &GetOrders { known, wait_ms: WAIT_MS }, None).await.map_err(|error| error.to_string())
}
