//! The gate of the attempt: asks the hub before each request to the model, reports usage, and
//! reports when the agent does not use it.

use crate::gate::{Denial, Gate, GateEvent, ModelUse, OpenRequest};
use crate::harness::GateAccess;
use crate::hub_client::{Client, random_hex};
use crate::protocol::{
    AskBudget, BudgetLeft, FactKind, GateRequest, ModelUsage, Order, QuotaWindowText,
};
use crate::view::codes;
use adjutant_core::Time;
use adjutant_core::rate_limit::QuotaWindow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Minimum interval between statements while responses stream.
const STATE_EVERY: Duration = Duration::from_secs(1);
/// The pause before the hub is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Reports that wait to become facts.
const REPORTS_AHEAD_MAX: usize = 16;

/// What the vendor has reported about the agent's quota.
#[derive(Debug)]
enum Report {
    Limit(Time),
    Windows(Vec<QuotaWindow>),
}

/// The open gate of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptGate {
    gate: Arc<Gate>,
    reports: mpsc::Receiver<Report>,
    /// The last limit that became a fact.
    limit: Option<Time>,
    /// Likewise.
    windows: Vec<QuotaWindow>,
    /// Tokens that the agent's session had used before, if its stream counts the whole session.
    used_before: Option<u64>,
    is_ignored_stated: bool,
}

/// Opens the gate that the order names, and serves it in `tasks`.
///
/// # Errors
/// There is no port, or the order's address or key cannot be used.
pub(super) async fn open(
    order: &Order,
    client: &Client,
    tasks: &mut JoinSet<()>,
) -> io::Result<Option<AttemptGate>> {
    let Some(ordered) = &order.gate else {
        return Ok(None);
    };
    let base_url = ordered.base_url.parse().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the base URL of the model's API is not valid",
        )
    })?;
    let (gate, listener, events) = Gate::open(
        &base_url,
        &ordered.key.0,
        format!("adj-{}", random_hex::<24>()),
    )
    .await?;
    let gate = Arc::new(gate);
    let (reported, reports) = mpsc::channel(REPORTS_AHEAD_MAX);
    tasks.spawn(listener.serve());
    tasks.spawn(handle_events(
        client.clone(),
        Arc::clone(&gate),
        events,
        reported,
    ));
    Ok(Some(AttemptGate {
        gate,
        reports,
        limit: None,
        windows: Vec::new(),
        used_before: order.session.is_none().then_some(0),
        is_ignored_stated: false,
    }))
}

impl AttemptGate {
    /// Returns the agent's access to its model.
    pub(super) fn access(&self) -> GateAccess<'_> {
        GateAccess {
            url: &self.gate.url,
            token: &self.gate.token,
        }
    }

    /// Waits for the next new report about the quota, and returns it as a fact. Cancel safe.
    pub(crate) async fn next_report(&mut self) -> Option<FactKind> {
        loop {
            match self.reports.recv().await? {
                // Each refused response repeats the same time, within a second.
                Report::Limit(until)
                    if self.limit.is_none_or(|known| until.ms_since(known) > 1_000) =>
                {
                    self.limit = Some(until);
                    return Some(FactKind::UsageLimitReported { until_ms: until.0 });
                }
                Report::Windows(windows) if QuotaWindow::has_change(&self.windows, &windows) => {
                    let text = |window: &QuotaWindow| {
                        let QuotaWindow {
                            minutes,
                            used_percent,
                            resets_at,
                        } = *window;
                        QuotaWindowText {
                            minutes,
                            used_percent,
                            resets_at_ms: resets_at.0,
                        }
                    };
                    let fact = FactKind::QuotaWindows {
                        windows: windows.iter().map(text).collect(),
                    };
                    self.windows = windows;
                    return Some(fact);
                }
                Report::Limit(_) | Report::Windows(_) => {}
            }
        }
    }

    /// Returns the last reported limit.
    pub(super) fn limit(&self) -> Option<Time> {
        self.limit
    }

    /// Returns the fact that the agent does not use its gate, once: it has used its model according
    /// to its stream, and no model has answered through the gate. `is_of_session`: the stream
    /// counts what the whole session has used.
    pub(crate) fn bypass_fact(&mut self, tokens: u64, is_of_session: bool) -> Option<FactKind> {
        let before = if is_of_session {
            *self.used_before.get_or_insert(tokens)
        } else {
            0
        };
        if tokens <= before || self.is_ignored_stated || self.gate.has_been_used() {
            return None;
        }
        self.is_ignored_stated = true;
        let why = "it reports usage, but no model has answered through the gate: its own settings name another address".to_owned();
        Some(FactKind::GateIgnored { why })
    }

    /// Closes the agent's connections, and ends its requests to the model.
    pub(super) async fn close(&self) {
        self.gate.close().await;
    }

    /// Returns the fact about usage. `None`: nothing was used.
    pub(super) fn used(&self) -> Option<FactKind> {
        let used = model_usage(&self.gate);
        (!used.is_empty()).then_some(FactKind::GateUsage { used })
    }
}

fn model_usage(gate: &Gate) -> Vec<ModelUsage> {
    let of = |used: ModelUse| {
        let ModelUse {
            model,
            requests,
            unknown_requests,
            tokens,
        } = used;
        ModelUsage {
            model,
            requests,
            input_tokens: tokens.input,
            cached_tokens: tokens.cached,
            cache_write_tokens: tokens.cache_write,
            output_tokens: tokens.output,
            unknown_requests,
        }
    };
    gate.used().into_iter().map(of).collect()
}

/// Handles the questions and reports of the gate until it is dropped.
async fn handle_events(
    client: Client,
    gate: Arc<Gate>,
    mut events: mpsc::Receiver<GateEvent>,
    reports: mpsc::Sender<Report>,
) {
    let report = |report| {
        if let Err(error) = reports.try_send(report) {
            tracing::debug!(%error, "a report about the quota waits for the next response that states it");
        }
    };
    let mut changes = gate.changes();
    let mut calls = JoinSet::new();
    let (mut ended, mut state_at) = (0, None);
    let is_stating = Arc::new(AtomicBool::new(false));
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(GateEvent::RequestBegins { no, reply }) => {
                    calls.spawn(ask(client.clone(), Arc::clone(&gate), no, reply));
                }
                Some(GateEvent::LimitReported(until)) => report(Report::Limit(until)),
                Some(GateEvent::WindowsReported(windows)) => report(Report::Windows(windows)),
                None => return,
            },
            Ok(()) = changes.changed() => {
                let now = *changes.borrow_and_update();
                // The next request is answered sooner if the hub already has the usage of the last
                // one.
                if now.ended > ended {
                    ended = now.ended;
                    state_at = Some(Instant::now());
                } else {
                    state_at.get_or_insert_with(|| Instant::now() + STATE_EVERY);
                }
            }
            () = at(state_at), if state_at.is_some() && !is_stating.load(Ordering::Relaxed) => {
                state_at = None;
                is_stating.store(true, Ordering::Relaxed);
                calls.spawn(state(client.clone(), Arc::clone(&gate), Arc::clone(&is_stating)));
            }
            Some(done) = calls.join_next() => if let Err(error) = done {
                tracing::error!(%error, "a call of the gate has failed");
            },
        }
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Reports the usage.
async fn state(client: Client, gate: Arc<Gate>, is_stating: Arc<AtomicBool>) {
    if let Err(error) = call(&client, &gate, None).await {
        tracing::info!(%error, "the hub has not accepted the usage; the next report contains it");
    }
    is_stating.store(false, Ordering::Relaxed);
}

/// Asks whether a request may begin, until a hub has answered or the agent has cancelled it.
async fn ask(
    client: Client,
    gate: Arc<Gate>,
    no: u64,
    mut reply: oneshot::Sender<Result<(), Denial>>,
) {
    let answered = async {
        loop {
            match call(&client, &gate, Some(no)).await {
                Ok(left) if left.may_begin => return Ok(()),
                // The hub has waited for one of the requests under way.
                Ok(left) if left.waits => {}
                Ok(left) => {
                    return Err(left.refusal.map_or(Denial::BudgetUsedUp, Denial::ByHub));
                }
                Err(error) if !is_transient(&error.code) => {
                    return Err(Denial::ByHub(error.message));
                }
                Err(error) => {
                    tracing::warn!(%error, "a request to the model waits for the hub");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    };
    let decision = tokio::select! {
        decision = answered => decision,
        () = reply.closed() => return,
    };
    if reply.send(decision).is_err() {
        tracing::debug!("the agent has cancelled a request to its model");
    }
}

/// Returns whether the hub may answer the same question later. Meanwhile the request waits: an
/// error would end the turn.
fn is_transient(code: &str) -> bool {
    [
        codes::UNREACHABLE,
        codes::CLOSING,
        codes::STORAGE,
        codes::STORAGE_FULL,
        codes::INTERNAL,
    ]
    .contains(&code)
}

async fn call(
    client: &Client,
    gate: &Gate,
    begins_no: Option<u64>,
) -> Result<BudgetLeft, crate::view::ErrorView> {
    // In this order: a request that has ended is in the usage.
    let (next_no, open) = gate.open_requests();
    let requests = open
        .into_iter()
        .map(
            |OpenRequest {
                 no,
                 tokens,
                 has_begun,
             }| GateRequest {
                no,
                tokens,
                has_begun,
            },
        )
        .collect();
    let ask = AskBudget {
        used: model_usage(gate),
        begins: begins_no.is_some(),
        begins_no,
        requests,
        next_no,
    };
    client.send_json("/link/budget", &ask, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_the_hub_are_transient() {
        for code in [
            codes::UNREACHABLE,
            codes::STORAGE,
            codes::STORAGE_FULL,
            codes::INTERNAL,
            codes::CLOSING,
        ] {
            assert!(is_transient(code), "{code}");
        }
        // A hub without the question must not open the gate.
        for code in [codes::NOT_FOUND, codes::INVALID] {
            assert!(!is_transient(code), "{code}");
        }
    }
}
