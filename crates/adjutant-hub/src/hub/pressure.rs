//! Watches the load of the machine: the kernel reports when tasks wait for memory, and supervisors
//! state what their runs use.

use super::Hub;
use crate::ops::PressureRelief;
use crate::process::pressure::{self, MemoryTrigger};
use crate::store::{Topic, ends_with_runtime};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

/// The delay before retrying to record an action about the load.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Pauses and resumes runs as the load of the machine requires, and lets starts continue that
/// waited for it.
pub(super) async fn watch(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::Load]);
    let mut trigger = MemoryTrigger::register()
        .inspect_err(|error| tracing::debug!(%error, "the kernel does not report memory pressure; it is read when runs report what they use"))
        .ok();
    let mut relief = PressureRelief::new(&hub.ops);
    loop {
        hub.ops.machine.note_load(pressure::load());
        let nap = relief.step().await.unwrap_or_else(|error| {
            tracing::error!(%error, "decisions about the load of the machine cannot be recorded yet");
            Some(RETRY_AFTER)
        });
        ends_with_runtime().await;
        let reported = async {
            match &trigger {
                Some(trigger) => trigger.wait().await,
                None => pending().await,
            }
        };
        let slept = async {
            match nap {
                Some(nap) => tokio::time::sleep(nap).await,
                None => pending().await,
            }
        };
        let ended = tokio::select! {
            () = subscription.wait() => None,
            reported = reported => reported.err(),
            () = slept => None,
        };
        if let Some(error) = ended {
            tracing::warn!(%error, "the kernel no longer reports memory pressure");
            trigger = None;
        }
    }
}
