//! Subscriptions to resources. A change is pushed; what changed is not sent: the client reads the
//! resource.

use super::refusal::{not_found, refused};
use super::target::Target;
use super::watch::Watch;
use crate::hub_client::Client;
use futures::future::join_all;
use rmcp::model::{ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{Peer, SubscriptionContext, SubscriptionSink};
use rmcp::{ErrorData, RoleServer};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Most subscriptions of a connection.
const WATCHES_MAX: usize = 32;
/// Longest address of a subscription.
const URI_BYTES_MAX: usize = 1_024;
/// Changes within this time of the last one are reported together.
const PAUSE: Duration = Duration::from_secs(1);

/// Where changes are reported.
enum Reports {
    Peer(Peer<RoleServer>),
    Sink(SubscriptionSink),
}

impl Reports {
    /// Reports a change. Returns whether the client still receives reports.
    async fn send(&self, uri: &str) -> bool {
        match self {
            Self::Peer(peer) => peer
                .notify_resource_updated(ResourceUpdatedNotificationParam::new(uri))
                .await
                .is_ok(),
            Self::Sink(sink) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    }
}

/// Reports changes until none can follow, or until the client receives no reports.
async fn report(mut watch: Watch, uri: String, reports: Reports) {
    loop {
        match watch.changed().await {
            Ok(can_follow) => {
                if !reports.send(&uri).await || !can_follow {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                tracing::debug!(%error, "a subscription ends");
                return;
            }
        }
    }
}

/// Returns the part of a filter that is accepted: a bounded number of addresses of resources.
pub(crate) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let is_known = |uri: &&String| uri.len() <= URI_BYTES_MAX && Target::parse(uri).is_some();
    let uris = requested.resource_subscriptions.as_ref();
    let mut accepted = SubscriptionFilter::new();
    accepted.resource_subscriptions = uris.map(|uris| {
        uris.iter()
            .filter(is_known)
            .take(WATCHES_MAX)
            .cloned()
            .collect()
    });
    accepted
}

/// Reports changes of the accepted resources until the client ends the subscription. A resource
/// that it may not see never changes.
pub(crate) async fn listen(
    client: &Client,
    input_ended: &CancellationToken,
    context: &SubscriptionContext,
) {
    let uris = context
        .accepted()
        .resource_subscriptions
        .clone()
        .unwrap_or_default();
    let reports = join_all(uris.into_iter().map(|uri| async move {
        let Some(target) = Target::parse(&uri) else { return };
        match Watch::start(client.clone(), target).await {
            Ok(watch) => report(watch, uri, Reports::Sink(context.sink().clone())).await,
            Err(error) => tracing::warn!(%error, uri, "a resource cannot be watched: its subscription reports nothing"),
        }
    }));
    let forever = async {
        reports.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = forever => {}
        () = context.cancelled() => {}
        () = input_ended.cancelled() => {}
    }
}

/// The subscriptions of a connection that was initialized.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    by_uri: HashMap<String, AbortHandle>,
    /// Ends all tasks when the connection ends.
    running: JoinSet<()>,
}

impl Subscriptions {
    /// Adds a subscription. A second one of the same resource changes nothing.
    pub(crate) async fn add(
        &self,
        client: Client,
        uri: String,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let target = Target::parse(&uri)
            .filter(|_| uri.len() <= URI_BYTES_MAX)
            .ok_or_else(|| not_found(&uri))?;
        let watch = Watch::start(client, target)
            .await
            .map_err(|error| refused(&uri, &error))?;
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.running.try_join_next().is_some() {}
        tasks.by_uri.retain(|_, task| !task.is_finished());
        if tasks.by_uri.contains_key(&uri) {
            return Ok(());
        }
        if tasks.by_uri.len() >= WATCHES_MAX {
            return Err(ErrorData::invalid_params(
                format!(
                    "a connection has at most {WATCHES_MAX} subscriptions: unsubscribe from one first"
                ),
                None,
            ));
        }
        let task = tasks
            .running
            .spawn(report(watch, uri.clone(), Reports::Peer(peer)));
        tasks.by_uri.insert(uri, task);
        Ok(())
    }

    /// Removes a subscription, if there is one.
    pub(crate) fn remove(&self, uri: &str) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = tasks.by_uri.remove(uri) {
            task.abort();
        }
    }
}
