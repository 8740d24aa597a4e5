//! One attempt with a started agent: selects events and applies each to completion, until all processes of the attempt
//! have ended and its last fact is recorded.

mod drain;
mod finish;
mod input;
mod model;
mod resources;
mod statements;
mod stop;

use crate::client::{AgentActivity, Client};
use crate::clock;
use crate::failpoint::failpoint;
use crate::harness::dialogue::Dialogue;
use crate::link::{AttemptDir, CommandEvidence, FactKind, Order, Orders, VerdictText};
use crate::supervisor::clock::ActiveClock;
use crate::supervisor::closing::{AcceptTime, Closer, HUB_MAX};
use crate::supervisor::end::{self, Ending};
use crate::supervisor::gate::AttemptGate;
use crate::supervisor::journal::Journal;
use crate::supervisor::logfile::{self, LogFile};
use crate::supervisor::output::{OutputEvent, Pump};
use crate::supervisor::permits::{Outcome, Permits};
use crate::supervisor::side_command::StopCause;
use crate::supervisor::stall::{SilenceLimits, Stall};
use crate::supervisor::stop::{Stop, until};
use crate::supervisor::worker::{ProcessesState, Worker};
use adjutant_core::condition::Retries;
use adjutant_core::{Time, limits};
use finish::{FINISH_KILL, Finish};
use resources::Measuring;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Maximum number of unrecorded signals. Beyond it, reading waits.
const SIGNALS_AHEAD_MAX: usize = 16;
/// Maximum number of queued lines of Adjutant for the log.
const NOTES_AHEAD_MAX: usize = 64;
/// Minimum interval between facts about output.
const OUTPUT_FACT_EVERY: Duration = Duration::from_secs(1);

/// A running attempt.
#[derive(Debug)]
pub struct Attempt {
    grace: Duration,
    clock: ActiveClock,
    journal: Journal,
    worker: Worker,
    orders: watch::Receiver<Orders>,
    delivered: mpsc::UnboundedReceiver<String>,
    /// Messages that were written to the agent's input.
    given: BTreeSet<String>,
    /// The guard's lifeline, which closes when the guard exits. `None`: the guard has exited.
    guard: Option<pipe::Receiver>,
    stop: Stop,
    reported_bytes: u64,
    report_after: Instant,
    /// The number of signals so far.
    signals: u32,
    /// The number of lines with a marker that are no signals.
    mentions: u32,
    client: Client,
    dialogue: Option<Dialogue>,
    permissions: String,
    cwd: PathBuf,
    permits: Permits,
    /// Lines of Adjutant for the log.
    notes: mpsc::Sender<String>,
    /// The error that the dialogue reported, if the work failed.
    failed: Option<String>,
    finish: Finish,
    ending: Ending,
    activity: Arc<AgentActivity>,
    stall: Stall,
    /// Whether its configuration has the agent ended when it stays silent after its report, and whether that has begun.
    ends_after_report: bool,
    is_ended_after_report: bool,
    retries: Retries,
    measuring: Measuring,
    /// The unrecorded fact about the CLI's own sub-agents, and when it may be recorded.
    subagents: Option<FactKind>,
    state_subagents_at: Instant,
    /// The unrecorded fact about usage, and when it may be recorded.
    usage: Option<FactKind>,
    state_usage_at: Instant,
    /// The number of denied writes that its output has reported, the last unrecorded one, and when it may be recorded.
    denied_writes: u64,
    denied_write: Option<String>,
    state_denied_writes_at: Instant,
    /// The start of the times of `retries`.
    began: Instant,
    /// The run waits for a decision.
    waiting: bool,
    /// The gate to its model, if it has one.
    gate: Option<AttemptGate>,
}

/// The resources of a starting attempt, other than the agent.
#[derive(Debug)]
pub struct AttemptParts {
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

/// The agent's exit as the supervisor saw it. What follows (the sweep, the evidence, an unreachable hub) takes none of the run's time.
#[derive(Debug)]
struct AgentExit {
    at: Time,
    active_ms: i64,
    time_left: Option<Duration>,
    /// No stop had begun.
    by_itself: bool,
}

/// An event of an attempt.
#[derive(Debug)]
enum Event {
    Processes(ProcessesState),
    Orders(Orders),
    Delivered(String),
    GuardLost,
    LimitReached,
    StopStepDue,
    OutputGrew(u64),
    Output(OutputEvent),
    Decided(String, Outcome),
    FinishDue,
    StallDue,
    RetriesDue,
    SubagentsDue,
    UsageDue,
    MeasurementDue(u64),
    AgentActive,
    QuotaReported(FactKind),
}

impl Attempt {
    /// Creates the attempt of an agent that was just started.
    #[must_use]
    pub fn new(order: &Order, parts: AttemptParts) -> Self {
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
        Self {
            grace: Duration::from_millis(u64::try_from(order.grace_ms).unwrap_or(0)),
            clock: ActiveClock::start(Instant::now(), order.timeout_ms, order.active_ms_before),
            journal,
            worker,
            orders,
            delivered,
            given: BTreeSet::new(),
            guard,
            stop: Stop::Not,
            reported_bytes: 0,
            report_after: Instant::now(),
            signals: 0,
            mentions: 0,
            client,
            dialogue,
            permissions: order.permissions.clone(),
            cwd: order.cwd.clone(),
            permits: Permits::default(),
            notes: mpsc::channel(1).0,
            failed: None,
            finish: Finish::Working,
            ending: Ending::of(order),
            activity,
            stall: Stall::watch(
                SilenceLimits::of_ms(order.stall_ms, order.report_grace_ms),
                Instant::now(),
            ),
            ends_after_report: order.ends_after_report,
            is_ended_after_report: false,
            retries: Retries::default(),
            measuring: Measuring::start(order.memory_bytes_max, Instant::now()),
            subagents: None,
            state_subagents_at: Instant::now(),
            usage: None,
            state_usage_at: Instant::now(),
            denied_writes: 0,
            denied_write: None,
            state_denied_writes_at: Instant::now(),
            began: Instant::now(),
            waiting: false,
            gate,
        }
    }

    /// Runs until no process of the attempt is left, and records its last fact. Returns the logs that could not be
    /// finished because of the disk.
    pub async fn run(mut self, pump: Pump, closer: &Closer<'_>) -> (Journal, Vec<LogFile>) {
        let (sender, mut bytes) = watch::channel(0);
        let cut = CancellationToken::new();
        let mut pumping = JoinSet::new();
        let (output_events, mut signals) = mpsc::channel(SIGNALS_AHEAD_MAX);
        let (notes, noted) = mpsc::channel(NOTES_AHEAD_MAX);
        self.notes = notes;
        pumping.spawn(pump.run(
            sender,
            output_events,
            noted,
            Arc::clone(&self.activity),
            cut.clone(),
        ));
        loop {
            let event = self.select(&mut bytes, &mut signals).await;
            if self.apply(event).is_break() {
                break;
            }
        }
        let exit = AgentExit {
            at: clock::now(),
            active_ms: self.clock.active_ms(Instant::now()),
            time_left: self.clock.left(Instant::now()),
            by_itself: !self.stop.is_asked(),
        };
        // If the agent exited by itself, processes that still hold the output get a moment to finish it.
        let left_open = !self.stop.is_asked() && !self.drain(&mut bytes, &mut signals).await;
        let swept = self.worker.sweep().await;
        self.drain(&mut bytes, &mut signals).await;
        cut.cancel();
        // The pump ends when everything is read and reported.
        while let Some(event) = signals.recv().await {
            self.apply_output(event);
        }
        let mut output = match pumping.join_next().await {
            Some(Ok(output)) => Some(output),
            Some(Err(error)) => {
                tracing::error!(%error, "the task that reads the output has failed");
                None
            }
            None => None,
        };
        while let Ok(message_id) = self.delivered.try_recv() {
            self.journal.state(FactKind::Delivered { message_id });
        }
        let mut logs = output
            .as_mut()
            .map(|output| std::mem::take(&mut output.logs))
            .unwrap_or_default();
        logfile::finish(&mut logs);
        if let Some(output) = &mut output {
            self.ending.extract_answer(&mut output.result);
            if output.result.len() > limits::RESULT_SHOWN_BYTES_MAX {
                let dir = AttemptDir::new(
                    &closer.order.home,
                    &closer.order.run_id,
                    closer.order.attempt,
                );
                if let Err(error) = super::write_private(&dir, &dir.answer(), &output.result) {
                    tracing::error!(%error, "the whole result cannot be stored; its end is in the last fact, and the log has all of it");
                }
            }
        }
        self.report_subagents();
        self.report_denied_writes();
        self.report_resource_use();
        if tokio::time::timeout(HUB_MAX, self.permits.settle())
            .await
            .is_err()
        {
            tracing::warn!("the hub has not received that a request was withdrawn");
        }
        failpoint!("supervisor.before_ended");
        let ended = end::ProcessEnd {
            exit: self.worker.seen.borrow().exit,
            swept,
            left_open,
            active_ms: exit.active_ms,
            by_itself: exit.by_itself,
            is_ended_after_report: self.is_ended_after_report
                && matches!(self.finish, Finish::Asked { .. }),
            lacks_tools: closer.lacks_tools(),
        };
        let mut last = end::end_fact(ended, output, self.failed.take(), &self.ending);
        self.report_model_use(&mut last).await;
        let mut ended_at = exit.at;
        if let Some(acceptance) = self.collect_evidence(closer, &last, &exit).await
            && let FactKind::Ended {
                active_ms,
                by_itself,
                ..
            } = &mut last
        {
            // The acceptance command uses the run's time, and a stop during it is a stop of the attempt.
            *active_ms =
                active_ms.saturating_add(i64::try_from(acceptance.took_ms).unwrap_or(i64::MAX));
            *by_itself &= acceptance.stopped.as_deref() != Some(StopCause::ByOrder.text());
            ended_at = clock::now();
        }
        // A stopped run releases its slot at once; its next attempt syncs.
        if self.stop == Stop::Not {
            closer.wait_for_sync().await;
        }
        self.journal.state_at(ended_at, last);
        failpoint!("supervisor.after_ended");
        (self.journal, logs)
    }

    /// Collects evidence about the agent's work, if the hub requests it. `end` is the agent's end. Returns the result of the
    /// acceptance command, if it was run.
    async fn collect_evidence(
        &mut self,
        closer: &Closer<'_>,
        end: &FactKind,
        exit: &AgentExit,
    ) -> Option<CommandEvidence> {
        if !closer.may_inspect(self.stop != Stop::Not, self.signals) {
            return None;
        }
        // From here on the agent's end counts, even if the supervisor dies.
        self.journal.state_at(
            exit.at,
            FactKind::AgentEnded {
                end: Box::new(end.clone()),
            },
        );
        self.worker.stop_reaping();
        let taken = self.journal.received_by_hub();
        let asked = async {
            taken.await;
            closer.fetch_closing(exit.by_itself).await
        };
        // The snapshot is taken even if no hub is running.
        let (asked, (changes, facts)) =
            tokio::join!(tokio::time::timeout(HUB_MAX, asked), closer.changes());
        facts.into_iter().for_each(|fact| self.journal.state(fact));
        let Ok(Some(closing)) = asked else {
            return None;
        };
        let has_succeeded = matches!(
            end,
            FactKind::Ended {
                exit_code: Some(0),
                verdict: Some(VerdictText { cause: None, .. }),
                ..
            }
        );
        let accept = (!self.stop.is_asked() || has_succeeded).then_some(AcceptTime(exit.time_left));
        let evidence = closer
            .inspect(&closing, changes, accept, &mut self.orders)
            .await;
        let acceptance = evidence.acceptance.clone();
        self.journal.state(FactKind::EvidenceCollected(evidence));
        acceptance
    }

    /// Waits for the next event. Cancel safe.
    async fn select(
        &mut self,
        bytes: &mut watch::Receiver<u64>,
        signals: &mut mpsc::Receiver<OutputEvent>,
    ) -> Event {
        let limit_at = if self.stop.is_asked() {
            None
        } else {
            self.clock.limit_at()
        };
        let retries_due = self.retries_due();
        let output_bytes = *bytes.borrow();
        let subagents_due = self.subagents.as_ref().map(|_| self.state_subagents_at);
        let usage_due = self.usage.as_ref().map(|_| self.state_usage_at);
        let (taken, reported, after) = (
            self.journal.received_by_hub(),
            self.reported_bytes,
            self.report_after,
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
        tokio::select! {
            biased;
            Ok(()) = self.worker.seen.changed() => Event::Processes(*self.worker.seen.borrow_and_update()),
            Ok(()) = self.orders.changed() => Event::Orders(self.orders.borrow_and_update().clone()),
            () = until(self.stop.due()) => Event::StopStepDue,
            () = until(limit_at) => Event::LimitReached,
            Some(message_id) = self.delivered.recv() => Event::Delivered(message_id),
            Some(event) = signals.recv() => Event::Output(event),
            Some((id, outcome)) = self.permits.next() => Event::Decided(id, outcome),
            () = until(self.finish.due()) => Event::FinishDue,
            () = until(self.stall.due()) => Event::StallDue,
            () = until(retries_due) => Event::RetriesDue,
            () = until(subagents_due) => Event::SubagentsDue,
            () = until(usage_due) => Event::UsageDue,
            () = until(Some(self.measuring.due)) => Event::MeasurementDue(output_bytes),
            () = self.activity.next_activity(), if self.stall.is_stalled() => Event::AgentActive,
            () = at_end(self.guard.as_ref()) => Event::GuardLost,
            Some(fact) = next_report(self.gate.as_mut()) => Event::QuotaReported(fact),
            () = output_came => Event::OutputGrew(*bytes.borrow_and_update()),
        }
    }

    /// Applies an event. Breaks when the sweep is due.
    fn apply(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            // If the agent exits by itself, the sweep follows at once; in a stop, all processes get the grace period.
            Event::Processes(seen)
                if seen.none_left || (seen.exit.is_some() && !self.stop.is_asked()) =>
            {
                return ControlFlow::Break(());
            }
            Event::Processes(_) => {}
            Event::Orders(orders) => self.follow(orders),
            Event::Delivered(message_id) => self.journal.state(FactKind::Delivered { message_id }),
            Event::Output(event) => self.apply_output(event),
            Event::Decided(id, Outcome::Decision(decision)) => self.write_decision(&id, &decision),
            Event::Decided(id, Outcome::Answers(answers)) => {
                let steps = self
                    .dialogue
                    .as_mut()
                    .map(|dialogue| dialogue.answer(&id, answers.as_deref()))
                    .unwrap_or_default();
                steps.into_iter().for_each(|step| self.perform_step(step));
            }
            Event::FinishDue => match self.finish {
                Finish::Closed { .. } => {
                    self.worker.ask_to_end();
                    self.finish = Finish::Asked {
                        kill_at: Instant::now() + FINISH_KILL,
                    };
                }
                Finish::Working | Finish::Asked { .. } => return ControlFlow::Break(()),
            },
            Event::StallDue => self.check_for_stall(),
            Event::RetriesDue => self.report_retries(),
            Event::SubagentsDue => self.report_subagents(),
            Event::UsageDue => self.state_usage(),
            Event::MeasurementDue(output_bytes) => self.measure(output_bytes),
            Event::AgentActive => {
                if self
                    .stall
                    .note_sign(self.activity.silent_since(), Instant::now())
                {
                    self.journal.state(FactKind::ActiveAgain {});
                }
            }
            Event::QuotaReported(fact) => self.journal.state(fact),
            Event::GuardLost => {
                self.guard = None;
                self.journal.state(FactKind::GuardLost {});
            }
            Event::LimitReached => {
                let now = Instant::now();
                self.journal.state(FactKind::LimitReached {
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
                self.journal.state(FactKind::Output { total_bytes });
                self.reported_bytes = total_bytes;
                self.report_after = Instant::now() + OUTPUT_FACT_EVERY;
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

/// Waits until the other end of a pipe that carries no data is closed.
async fn at_end(pipe: Option<&pipe::Receiver>) {
    match pipe {
        Some(pipe) => match pipe.readable().await {
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "the guard cannot be watched"),
        },
        None => std::future::pending().await,
    }
}
