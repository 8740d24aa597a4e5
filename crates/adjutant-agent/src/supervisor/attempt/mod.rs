//! One attempt with a started agent: selects events and applies each to completion, until all
//! processes of the attempt have ended and its last fact is recorded.

mod drain;
mod evidence;
mod finish;
mod guard;
mod input;
mod model;
mod output_events;
mod reading;
mod reported_output;
mod resources;
mod silence;
mod statements;
mod steps;
mod stop;
mod throttled;

use crate::failpoint::failpoint;
use crate::harness::dialogue::Dialogue;
use crate::hub_client::{AgentActivity, Client};
use crate::protocol::{FactKind, Order, Orders};
use crate::supervisor::clock::ActiveClock;
use crate::supervisor::closing::{Closer, HUB_MAX};
use crate::supervisor::end::{self, Ending};
use crate::supervisor::gate::AttemptGate;
use crate::supervisor::journal::Journal;
use crate::supervisor::log_writer::LogWriter;
use crate::supervisor::output::{OutputEvent, Pump};
use crate::supervisor::permits::{PermitOutcome, Permits};
use crate::supervisor::stop::{Stop, until};
use crate::supervisor::worker::{ProcessesState, Worker};
use finish::Finish;
use guard::guard_exit;
use reading::Reading;
use reported_output::ReportedOutput;
use resources::Measuring;
use silence::Silence;
use statements::Statements;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

/// A running attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    grace: Duration,
    clock: ActiveClock,
    journal: Journal,
    worker: Worker,
    orders: watch::Receiver<Orders>,
    delivered: mpsc::UnboundedReceiver<String>,
    /// Messages that were written to the agent's input.
    given: BTreeSet<String>,
    /// The guard's lifeline, which closes when the guard exits. `None`: the guard has exited, or
    /// cannot be watched.
    guard: Option<pipe::Receiver>,
    stop: Stop,
    reported_output: ReportedOutput,
    statements: Statements,
    dialogue: Option<Dialogue>,
    permits: Permits,
    /// Lines of Adjutant for the log.
    notes: mpsc::Sender<String>,
    /// The error that the dialogue reported, if the work failed.
    failed: Option<String>,
    finish: Finish,
    ending: Ending,
    silence: Silence,
    measuring: Measuring,
    /// The gate to its model, if it has one.
    gate: Option<AttemptGate>,
}

/// The resources of a starting attempt, other than the agent.
#[derive(Debug)]
pub(crate) struct AttemptParts {
    pub journal: Journal,
    pub worker: Worker,
    pub orders: watch::Receiver<Orders>,
    /// Receives the ids of messages that the agent has received.
    pub delivered: mpsc::UnboundedReceiver<String>,
    /// The guard's lifeline.
    pub guard: Option<pipe::Receiver>,
    pub client: Client,
    pub dialogue: Option<Dialogue>,
    /// The time of the agent's last output or call.
    pub activity: Arc<AgentActivity>,
    /// The gate to its model, if it has one.
    pub gate: Option<AttemptGate>,
}

/// An event of an attempt.
#[derive(Debug)]
enum Event {
    Processes(ProcessesState),
    Orders(Orders),
    Delivered(String),
    GuardLost,
    GuardUnwatched(io::Error),
    LimitReached,
    StopStepDue,
    OutputGrew(u64),
    Output(OutputEvent),
    Decided(String, PermitOutcome),
    FinishDue,
    StallDue,
    RetryingDue,
    FactsDue,
    MeasurementDue(u64),
    AgentActive,
    QuotaReported(FactKind),
}

impl Attempt {
    /// Creates the attempt of an agent that was just started.
    #[must_use]
    pub(super) fn new(order: &Order, parts: AttemptParts) -> Self {
        let AttemptParts {
            journal,
            worker,
            orders,
            delivered,
            guard,
            client,
            dialogue,
            activity,
            gate,
        } = parts;
        let now = Instant::now();
        Self {
            grace: Duration::from_millis(u64::try_from(order.grace_ms).unwrap_or(0)),
            clock: ActiveClock::start(now, order.timeout_ms, order.active_ms_before),
            journal,
            worker,
            orders,
            delivered,
            given: BTreeSet::new(),
            guard,
            stop: Stop::Not,
            reported_output: ReportedOutput::begin(now),
            statements: Statements::begin(now),
            dialogue,
            permits: Permits::new(client, order.permissions.clone(), order.cwd.clone()),
            notes: mpsc::channel(1).0,
            failed: None,
            finish: Finish::default(),
            ending: Ending::of(order),
            silence: Silence::watch(order, activity, now),
            measuring: Measuring::start(order.memory_bytes_max, now),
            gate,
        }
    }

    /// Runs until no process of the attempt is left, and records its last fact. Returns the logs
    /// that could not be finished because of the disk.
    pub(super) async fn run(
        mut self,
        pump: Pump,
        closer: &Closer<'_>,
    ) -> (Journal, Vec<LogWriter>) {
        let (mut reading, notes) = Reading::begin(pump, self.silence.activity());
        self.notes = notes;
        loop {
            let event = self.select(&mut reading).await;
            if self.apply(event).is_break() {
                break;
            }
        }
        let exit = self.agent_exit();
        // If the agent exited by itself, processes that still hold the output get a moment to
        // finish it.
        let left_open = !self.stop.is_asked() && !self.drain(&mut reading).await;
        let swept = self.worker.sweep().await;
        self.drain(&mut reading).await;
        let mut output = self.finish_reading(reading).await;
        let logs = self.finish_output(output.as_mut(), closer);
        self.journal
            .record_all(self.statements.take_last(Instant::now()));
        self.report_resource_use();
        self.withdraw_requests().await;
        failpoint!("supervisor.before_ended");
        let ended = end::ProcessEnd {
            exit: self.worker.seen.borrow().exit,
            swept,
            left_open,
            active_ms: exit.active_ms,
            by_itself: exit.by_itself,
            is_ended_after_report: self.finish.is_ended_after_report(),
            lacks_tools: closer.lacks_tools(),
        };
        let mut last = end::end_fact(ended, output, self.failed.take(), &self.ending);
        self.report_model_use(&mut last).await;
        let ended_at = self.conclude(closer, &mut last, &exit).await;
        // A stopped run releases its slot at once; its next attempt syncs.
        if self.stop == Stop::Not {
            closer.wait_for_sync().await;
        }
        self.journal.record_at(ended_at, last);
        failpoint!("supervisor.after_ended");
        (self.journal, logs)
    }

    /// Waits until the hub knows which requests are withdrawn. This is before the last fact,
    /// because the hub accepts no withdrawal after the end.
    async fn withdraw_requests(&mut self) {
        if tokio::time::timeout(HUB_MAX, self.permits.settle())
            .await
            .is_err()
        {
            tracing::warn!("the hub has not received that a request was withdrawn");
        }
    }

    /// Waits for the next event. Cancel safe.
    async fn select(&mut self, reading: &mut Reading) -> Event {
        let Reading { bytes, events, .. } = reading;
        let limit_at = if self.stop.is_asked() {
            None
        } else {
            self.clock.limit_at()
        };
        let retrying_due = self.statements.retrying_due();
        let retrying_due = retrying_due.filter(|_| !self.stop.is_asked());
        let output_bytes = *bytes.borrow();
        let (taken, reported, after) = (
            self.journal.received_by_hub(),
            self.reported_output.bytes(),
            self.reported_output.next_at(),
        );
        let output_came = async {
            taken.await;
            match bytes.wait_for(|bytes| *bytes > reported).await {
                Ok(_) => {}
                // All output was read; its length is in the last fact.
                Err(_) => std::future::pending().await,
            }
            tokio::time::sleep_until(after.into()).await;
        };
        // In this order: an agent that writes all the time must not delay its own end, an order or
        // a step of a stop.
        tokio::select! {
            biased;
            Ok(()) = self.worker.seen.changed() => Event::Processes(*self.worker.seen.borrow_and_update()),
            Ok(()) = self.orders.changed() => Event::Orders(self.orders.borrow_and_update().clone()),
            () = until(self.stop.due()) => Event::StopStepDue,
            () = until(limit_at) => Event::LimitReached,
            Some(message_id) = self.delivered.recv() => Event::Delivered(message_id),
            Some(event) = events.recv() => Event::Output(event),
            Some((id, outcome)) = self.permits.next() => Event::Decided(id, outcome),
            () = until(self.finish.due()) => Event::FinishDue,
            () = until(self.silence.due()) => Event::StallDue,
            () = until(retrying_due) => Event::RetryingDue,
            () = until(self.statements.due()) => Event::FactsDue,
            () = until(Some(self.measuring.due)) => Event::MeasurementDue(output_bytes),
            () = self.silence.next_sign() => Event::AgentActive,
            exited = guard_exit(self.guard.as_ref()) => match exited {
                Ok(()) => Event::GuardLost,
                Err(error) => Event::GuardUnwatched(error),
            },
            Some(fact) = next_report(self.gate.as_mut()) => Event::QuotaReported(fact),
            () = output_came => Event::OutputGrew(*bytes.borrow_and_update()),
        }
    }

    /// Applies an event. Breaks when the sweep is due.
    fn apply(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            // If the agent exits by itself, the sweep follows at once; in a stop, all processes get
            // the grace period.
            Event::Processes(seen)
                if seen.none_left || (seen.exit.is_some() && !self.stop.is_asked()) =>
            {
                return ControlFlow::Break(());
            }
            Event::Processes(_) => {}
            Event::Orders(orders) => self.follow(orders),
            Event::Delivered(message_id) => self.journal.record(FactKind::Delivered { message_id }),
            Event::Output(event) => self.apply_output(event),
            Event::Decided(id, PermitOutcome::Decision(decision)) => {
                self.write_decision(&id, &decision)
            }
            Event::Decided(id, PermitOutcome::Answers(answers)) => {
                let steps = self
                    .dialogue
                    .as_mut()
                    .map(|dialogue| dialogue.answer(&id, answers.as_deref()))
                    .unwrap_or_default();
                steps.into_iter().for_each(|step| self.perform_step(step));
            }
            Event::FinishDue => {
                if !self.ask_to_exit() {
                    return ControlFlow::Break(());
                }
            }
            Event::StallDue => self.check_for_stall(),
            Event::RetryingDue => {
                let fact = self.statements.take_retrying(Instant::now());
                self.journal.record_all(fact);
            }
            Event::FactsDue => {
                let facts = self.statements.take_due(Instant::now());
                self.journal.record_all(facts);
            }
            Event::MeasurementDue(output_bytes) => self.measure(output_bytes),
            Event::AgentActive => {
                if self.silence.note_sign(Instant::now()) {
                    self.journal.record(FactKind::ActiveAgain {});
                }
            }
            Event::QuotaReported(fact) => self.journal.record(fact),
            Event::GuardLost => {
                self.guard = None;
                self.journal.record(FactKind::GuardLost {});
            }
            Event::GuardUnwatched(error) => {
                tracing::error!(%error, "the guard cannot be watched: its exit will not be noticed");
                self.guard = None;
            }
            Event::LimitReached => {
                let now = Instant::now();
                self.journal.record(FactKind::LimitReached {
                    active_ms: self.clock.active_ms(now),
                });
                self.begin_stop(now);
            }
            Event::StopStepDue if matches!(self.stop, Stop::Announced { .. }) => {
                self.begin_stop(Instant::now())
            }
            Event::StopStepDue => match self.stop.next(&self.worker) {
                Some(next) => self.stop = next,
                None => return ControlFlow::Break(()),
            },
            Event::OutputGrew(total_bytes) => {
                let fact = self.reported_output.report(total_bytes, Instant::now());
                self.journal.record(fact);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Waits until the gate reports something about the vendor's quota.
async fn next_report(gate: Option<&mut AttemptGate>) -> Option<FactKind> {
    match gate {
        Some(gate) => gate.next_report().await,
        None => std::future::pending().await,
    }
}
