//! When the agent has ended: a look at what it left behind. The hub says what is wanted (it knows
//! what the run has reported); what is seen is stated as a fact before the last one.

use super::run_tree::{Changes, RunTree};
use super::side_command::{self, SideCommand};
use super::{deliverable, worker};
use crate::client::Client;
use crate::link::{AcceptanceEvidence, AttemptEvidence, Closing, FactKind, GetClosing, Order, Orders};
use crate::process::containment::Failed;
use adjutant_core::Exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How long the hub is waited for; without its word nothing is looked at.
pub const HUB_MAX: Duration = Duration::from_secs(10);
/// How long the acceptance command of a run without a limit of its own may take.
const ACCEPT_MAX: Duration = Duration::from_secs(10 * 60);
/// The end of its output that is kept.
const ACCEPT_OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// Looks at what an attempt left behind.
#[derive(Debug)]
pub struct Closer<'a> {
    pub order: &'a Order,
    pub client: Client,
    /// The run has called us, so that it may have reported something.
    pub has_called: Arc<AtomicBool>,
    /// The run's tree. `None`: no repository is known there.
    pub tree: Option<RunTree>,
}

impl Closer<'_> {
    /// Tells whether there can be anything to look at: the run has spoken, was stopped, is measured by a
    /// command, or works in a repository.
    #[must_use]
    pub fn may_look(&self, stopped: bool, signals: u32) -> bool {
        stopped || signals > 0 || !self.order.accept.is_empty() || self.tree.is_some() || self.has_called.load(Ordering::Relaxed)
    }

    /// Asks the hub what is to be looked at. Every fact was taken before.
    pub async fn wanted(&self) -> Option<Closing> {
        match self.client.send_json::<Closing>("/link/closing", &GetClosing {}, None).await {
            Ok(closing) => Some(closing).filter(|closing| *closing != Closing::default()),
            Err(error) => {
                tracing::warn!(%error, "nobody says what is to be looked at");
                None
            }
        }
    }

    /// Keeps the tree as the attempt leaves it. Returns what changed in it, and what is to be stated of the snapshot.
    pub async fn changes(&self) -> (Option<Changes>, Vec<FactKind>) {
        match &self.tree {
            Some(tree) => tree.at_end().await,
            None => (None, Vec::new()),
        }
    }

    /// Looks: first what the agent itself left, then what the acceptance command makes of it.
    /// `changes` is what changed in the run's directory.
    pub async fn look(
        &self,
        closing: &Closing,
        changes: Option<Changes>,
        time_left: Option<Duration>,
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
            && let Some(Changes { files, cut, since_start, commits }) = changes
        {
            evidence.commits = commits;
            (evidence.changed, evidence.changed_cut, evidence.changed_since_start) = (Some(files), cut, since_start);
        }
        if closing.accept && !self.order.accept.is_empty() {
            evidence.acceptance = Some(self.accept(time_left, orders).await);
        }
        evidence
    }

    async fn accept(&self, time_left: Option<Duration>, orders: &mut watch::Receiver<Orders>) -> AcceptanceEvidence {
        let not_known = |why: String| AcceptanceEvidence { not_known: Some(why), ..AcceptanceEvidence::default() };
        let command = &self.order.accept;
        let path = self.order.env.get("PATH").map_or("", String::as_str);
        let Some(program) = side_command::find(&command[0], path, &self.order.cwd) else {
            return not_known(format!("{} is not found on the run's PATH", command[0]));
        };
        let side_command = SideCommand {
            program,
            argv: command.iter().map(Into::into).collect(),
            env: worker::environment(self.order),
            limit: time_left.unwrap_or(ACCEPT_MAX),
            output_bytes_max: ACCEPT_OUTPUT_BYTES_MAX,
        };
        match side_command::run(self.order, side_command, Some(orders)).await {
            Ok(result) => {
                let (exit_code, signal) = match result.exit {
                    Some(Exit::Code(code)) => (Some(code), None),
                    Some(Exit::Signal(signal)) => (None, Some(signal)),
                    None => (None, None),
                };
                let from = result.output.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
                AcceptanceEvidence {
                    exit_code,
                    signal,
                    stopped: result.stopped.map(str::to_owned),
                    not_known: None,
                    output: String::from_utf8_lossy(&result.output[from..]).into_owned(),
                    took_ms: u64::try_from(result.took.as_millis()).unwrap_or(u64::MAX),
                }
            }
            Err(Failed::Fence(why)) => not_known(format!("{} was not started, because the fence cannot be had: {why}", command[0])),
            Err(Failed::Worker(error) | Failed::Containment(error)) => not_known(format!("{} could not be started: {error}", command[0])),
        }
    }
}
