//! Delivers the entries of the outbox: in order for each webhook, and independently for different
//! webhooks, so that a slow receiver delays no other.
//!
//! An entry is removed after the receiver has accepted it. If the hub dies in between, the entry is
//! delivered again with the same id.

use super::Hub;
use crate::config::Webhook;
use crate::ops::{OpError, Webhooks};
use crate::store::Topic;
use crate::{clock, webhook};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often the configuration is checked for changed webhooks.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// The delay before a failed read or write of the outbox is retried.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Delivers to the currently configured webhooks.
pub(super) async fn deliver(hub: Arc<Hub>) {
    let mut known: Vec<Webhook> = Vec::new();
    let mut deliveries = JoinSet::new();
    let mut is_first = true;
    loop {
        let is_other = is_first
            || hub
                .ops
                .settings
                .config()
                .is_ok_and(|config| config.webhooks != known);
        if is_other {
            match Webhooks::of(&hub.ops).subscribe().await {
                Ok(hooks) => {
                    is_first = false;
                    deliveries.shutdown().await;
                    for hook in &hooks {
                        deliveries.spawn(deliver_to(Arc::clone(&hub), hook.clone()).boxed());
                    }
                    known = hooks;
                }
                Err(error) => tracing::warn!(%error, "the webhooks stay as they were"),
            }
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

async fn deliver_to(hub: Arc<Hub>, hook: Webhook) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::Outbox]);
    loop {
        match next(&hub, &hook).await {
            Ok(Next::Done) => {}
            // A notification may arrive earlier.
            Ok(Next::Wait(time)) => {
                tokio::time::timeout(time.min(CHECK_EVERY), subscription.wait())
                    .await
                    .ok();
            }
            Ok(Next::Nothing) => subscription.wait().await,
            Err(error) => {
                tracing::error!(%error, "the outbox cannot be processed yet");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

enum Next {
    Done,
    Wait(Duration),
    Nothing,
}

async fn next(hub: &Hub, hook: &Webhook) -> Result<Next, OpError> {
    let Some((delivery, not_before)) = Webhooks::of(&hub.ops).next_delivery(hook)? else {
        return Ok(Next::Nothing);
    };
    let wait = clock::until(not_before);
    if !wait.is_zero() {
        return Ok(Next::Wait(wait));
    }
    let problem = match Webhooks::of(&hub.ops).outgoing(hook, &delivery)? {
        Some(outgoing) => webhook::deliver(hook, &outgoing)
            .await
            .err()
            .map(|problem| problem.to_string()),
        None => None,
    };
    if let Some(problem) = &problem {
        tracing::warn!(
            event = delivery.kind,
            id = delivery.id,
            problem,
            "a webhook was not delivered"
        );
    }
    Webhooks::of(&hub.ops)
        .note_delivery(hook, &delivery, problem)
        .await?;
    Ok(Next::Done)
}
