//! The state of the hub, as its callers see it.

use super::Shared;
use crate::config::Config;
use crate::ops::{OpError, Webhooks, set_back};
use crate::store::{Counts, StoreError, counts};
use crate::view::{HubView, WebhookView};
use std::sync::Arc;
use std::time::Duration;

/// How long reading the state of a hub from a server may take.
const STORE_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// What the state of a hub has from its store.
#[derive(Default)]
struct Stored {
    counts: Counts,
    webhooks: Vec<WebhookView>,
    /// The server of the store does not answer, so that the rest is unknown.
    is_away: bool,
}

/// Reads the store, for a limited time if it is on a server: callers check with this call whether
/// the hub itself responds.
async fn stored(hub: &Shared, with_webhooks: bool) -> Result<Stored, OpError> {
    let (of, store) = (Arc::clone(hub), hub.ops.store().clone());
    let is_on_server = store.is_on_server();
    let read = move || -> Result<Stored, OpError> {
        let webhooks = if with_webhooks {
            Webhooks::of(&of.ops).views()?
        } else {
            Vec::new()
        };
        Ok(Stored {
            counts: store.read(counts)?,
            webhooks,
            is_away: false,
        })
    };
    if !is_on_server {
        return read();
    }
    match tokio::time::timeout(STORE_READ_TIMEOUT, tokio::task::spawn_blocking(read)).await {
        Ok(read) => read.map_err(|_| StoreError::Closed)?,
        Err(_) => Ok(Stored {
            is_away: true,
            ..Stored::default()
        }),
    }
}

/// Returns the state of the hub.
pub(super) async fn hub_view(hub: &Shared, with_webhooks: bool) -> Result<HubView, OpError> {
    let Stored {
        counts,
        webhooks,
        is_away,
    } = stored(hub, with_webhooks).await?;
    let config = hub.ops.settings.config();
    let (live_runs_max, mut problems) = match &config {
        Ok(config) => (hub.ops.machine.live_runs_max(config), Vec::new()),
        Err(error) => (
            hub.ops
                .machine
                .live_runs_max(&Config::builtin(hub.ops.home())),
            vec![error.to_string()],
        ),
    };
    problems.extend(hub.ops.log_store.problem());
    problems.extend(is_away.then(|| "PostgreSQL does not answer; calls wait for it".to_owned()));
    let url = match hub.listening.state() {
        Some(Ok(opened)) => Some(opened.url),
        // The configuration may have been corrected since, and want no HTTP.
        Some(Err(problem))
            if config.is_err() || config.is_ok_and(|config| config.listen.is_some()) =>
        {
            problems.push(problem.to_string());
            None
        }
        Some(Err(_)) | None => None,
    };
    let remote_url = hub
        .listening
        .announced_url()
        .filter(|remote| url.as_ref().is_some_and(|url| url != remote));
    let fingerprint = hub.listening.tls().map(|tls| tls.fingerprint());
    Ok(HubView {
        version: hub.version.clone(),
        pid: std::process::id(),
        home: hub.ops.home().dir.display().to_string(),
        started_at: crate::clock::rfc3339(hub.started_at),
        live_runs: counts.live,
        queued_runs: hub.ops.store().queued_runs(),
        live_runs_max,
        pending_requests: counts.pending_requests,
        sqlite_version: crate::store::sqlite_version().to_owned(),
        store: hub.ops.store().engine_name().to_owned(),
        problems,
        clock: crate::clock::warning(),
        url,
        remote_url,
        fingerprint,
        webhooks,
        leader: None,
        set_back: set_back(hub.ops.store()).map(Box::new),
        store_problem: None,
    })
}
