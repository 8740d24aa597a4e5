//! What the hub wants from the attempt: a level that is asked for again and again, so that nothing
//! is lost when either end is restarted.

use crate::client::Client;
use crate::link::{GetOrders, Orders};
use std::time::Duration;
use tokio::sync::watch;

/// How long the hub may keep one question for orders.
const WAIT_MS: u64 = 10 * 60 * 1000;
/// How long to wait after the hub refused the question.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Follows the orders until nobody wants to know them any more.
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
                tracing::warn!(message, "the hub gives no orders");
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

async fn ask(client: &Client, known: i64) -> Result<Orders, String> {
    client.send_json("/link/orders", &GetOrders { known, wait_ms: WAIT_MS }, None).await.map_err(|error| error.to_string())
}
