//! Inspects an attempt after its agent has ended. The hub says what to inspect, because it knows
//! what the run has reported; the findings are a fact before the last one.

use super::run_tree::{Changes, RunTree};
use super::side_command::{self, SideCommand};
use super::{deliverable, worker};
use crate::hub_client::Client;
use crate::process::Lock;
use crate::process::containment::StartError;
use crate::protocol::{
    AttemptEvidence, Closing, CommandEvidence, FactKind, GetClosing, Order, Orders,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long to wait for the hub. Without its reply nothing is inspected.
pub(crate) const HUB_MAX: Duration = Duration::from_secs(10);
/// How long the end of an attempt waits for the files of its workspace to be on disk.
const SYNC_MAX: Duration = Duration::from_secs(60);
/// How long the acceptance command of a run without a limit of its own may take.
const ACCEPT_MAX: Duration = Duration::from_secs(10 * 60);
/// How much of the end of its output is kept, in bytes.
const ACCEPT_OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// How long the acceptance command may take by the time limit of its run, if it has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcceptTime(pub Option<Duration>);

/// Inspects an attempt after its agent has ended.
#[derive(Debug)]
pub(crate) struct Closer<'a> {
    pub order: &'a Order,
    pub client: Client,
    /// The run has connected, so it may have reported something.
    pub has_connected: Arc<AtomicBool>,
    /// The run's tree. `None`: it works in no repository.
    pub tree: Option<RunTree>,
    /// Cancelled once the files of its workspace are on disk, or that has failed.
    pub synced: CancellationToken,
    /// The lock of this supervisor. Once it is removed, no hub says what to inspect.
    pub lock: &'a Lock,
}

impl Closer<'_> {
    /// Returns whether there can be anything to inspect: the run has connected, was stopped, has an
    /// acceptance command, or works in a repository.
    #[must_use]
    pub(crate) fn may_inspect(&self, stopped: bool, signals: u32) -> bool {
        let may_have_acted = stopped || signals > 0 || self.has_connected.load(Ordering::Relaxed);
        !self.lock.is_removed()
            && (may_have_acted || !self.order.accept.is_empty() || self.tree.is_some())
    }

    /// Returns whether the agent was to use Adjutant's tools and has never connected to them.
    #[must_use]
    pub(super) fn lacks_tools(&self) -> bool {
        let serves_tools = self.order.has_tools
            && self
                .order
                .preset
                .as_ref()
                .is_some_and(|preset| preset.can.tools);
        serves_tools && !self.has_connected.load(Ordering::Relaxed)
    }

    /// Asks the hub what to inspect, after it has received all facts.
    pub(crate) async fn fetch_closing(&self, by_itself: bool) -> Option<Closing> {
        match self
            .client
            .send_json::<Closing>("/link/closing", &GetClosing { by_itself }, None)
            .await
        {
            Ok(closing) => Some(closing).filter(|closing| *closing != Closing::default()),
            Err(error) => {
                tracing::warn!(%error, "the hub does not say what to inspect");
                None
            }
        }
    }

    /// Takes a snapshot of the tree at the end of the attempt. Returns the changes, and the facts
    /// about the snapshot.
    pub(super) async fn changes(&self) -> (Option<Changes>, Vec<FactKind>) {
        match &self.tree {
            Some(tree) => tree.at_end().await,
            None => (None, Vec::new()),
        }
    }

    /// Waits for the files of the workspace to be on disk: a workspace that no attempt has synced
    /// counts as torn after a restart of the machine.
    pub(crate) async fn wait_for_sync(&self) {
        if tokio::time::timeout(SYNC_MAX, self.synced.cancelled())
            .await
            .is_err()
        {
            tracing::warn!("the files of the workspace are not on disk yet: the disk is slow");
        }
    }

    /// Inspects first the files that the agent reported, then runs the acceptance command.
    /// `changes` are the changes in the run's directory. `accept`: the agent has ended its work by
    /// itself.
    pub(super) async fn inspect(
        &self,
        closing: &Closing,
        changes: Option<Changes>,
        accept: Option<AcceptTime>,
        orders: &mut watch::Receiver<Orders>,
    ) -> AttemptEvidence {
        let mut evidence = AttemptEvidence::default();
        if let Some(paths) = &closing.files {
            let mut files = Vec::new();
            let mut budget = deliverable::HASHED_BYTES_TOTAL_MAX;
            for path in paths {
                files.push(deliverable::examine(&self.order.cwd, path, &mut budget).await);
            }
            evidence.files = Some(files);
        }
        if closing.changed
            && let Some(Changes {
                files,
                cut,
                since_start,
                commits,
            }) = changes
        {
            evidence.commits = commits;
            (
                evidence.changed,
                evidence.changed_cut,
                evidence.changed_since_start,
            ) = (Some(files), cut, since_start);
        }
        if let Some(AcceptTime(time_left)) =
            accept.filter(|_| closing.accept && !self.order.accept.is_empty())
        {
            evidence.acceptance = Some(self.accept(time_left, orders).await);
        }
        evidence
    }

    async fn accept(
        &self,
        time_left: Option<Duration>,
        orders: &mut watch::Receiver<Orders>,
    ) -> CommandEvidence {
        let not_known = |why: String| CommandEvidence {
            not_known: Some(why),
            ..CommandEvidence::default()
        };
        let command = &self.order.accept;
        let path = self.order.env.get("PATH").map_or("", String::as_str);
        let Some(program) = side_command::find(&command[0], path, &self.order.cwd) else {
            return not_known(format!("{} is not found on the run's PATH", command[0]));
        };
        let side_command = SideCommand {
            program,
            argv: command.iter().map(Into::into).collect(),
            env: worker::environment(self.order),
            cwd: self.order.cwd.clone(),
            limit: time_left.unwrap_or(ACCEPT_MAX),
            output_bytes_max: ACCEPT_OUTPUT_BYTES_MAX,
            outlasts_budget: true,
        };
        match side_command::run(self.order, side_command, Some(orders)).await {
            Ok(result) => result.evidence(),
            Err(StartError::Fence(why)) => not_known(format!(
                "{} was not started, because the fence cannot be enforced: {why}",
                command[0]
            )),
            Err(StartError::Worker(error) | StartError::Containment(error)) => {
                not_known(format!("{} could not be started: {error}", command[0]))
            }
        }
    }
}
