//! One attempt whose agent was started: an event is selected, then applied to its end, until the
//! agent and everything that it started are gone and its last fact is stated.

mod drain;
mod finish;
mod input;
mod statements;
mod stop;

use crate::client::{Client, Pulse};
use crate::failpoint::failpoint;
use crate::harness::dialogue::Dialogue;
use crate::link::{AttemptDir, FactKind, Order, Orders};
use crate::supervisor::clock::ActiveClock;
use crate::supervisor::closing::{Closer, HUB_MAX};
use crate::supervisor::end::{self, Ending};
use crate::supervisor::journal::Journal;
use crate::supervisor::logfile::{self, LogFile};
use crate::supervisor::output::{OutputEvent, Pump};
use crate::supervisor::permits::{Outcome, Permits};
use crate::supervisor::stall::Stall;
use crate::supervisor::stop::{Stop, until};
use crate::supervisor::worker::{Seen, Worker};
use adjutant_core::condition::Retries;
use adjutant_core::limits;
use finish::{FINISH_KILL, Finish};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// So many signals may wait to be stated before reading waits for them.
const SIGNALS_AHEAD_MAX: usize = 16;
/// So many lines of Adjutant may wait to be written to the log.
const NOTES_AHEAD_MAX: usize = 64;
/// At most one fact about output in this time.
const OUTPUT_FACT_EVERY: Duration = Duration::from_secs(1);

/// An attempt under way.
#[derive(Debug)]
pub struct Attempt {
    grace: Duration,
    clock: ActiveClock,
    journal: Journal,
    worker: Worker,
    orders: watch::Receiver<Orders>,
    delivered: mpsc::UnboundedReceiver<String>,
    /// Messages that were put on the agent's input already.
    given: BTreeSet<String>,
    /// The guard's lifeline: at its end when the guard is gone. `None`: it is gone.
    guard: Option<pipe::Receiver>,
    stop: Stop,
    reported_bytes: u64,
    report_after: Instant,
    /// How many signals were found.
    signals: u32,
    client: Client,
    dialogue: Option<Dialogue>,
    permissions: String,
    cwd: PathBuf,
    permits: Permits,
    /// Lines of Adjutant for the log.
    notes: mpsc::Sender<String>,
    /// What the dialogue said about the end of the work, should it have failed.
    failed: Option<String>,
    finish: Finish,
    ending: Ending,
    pulse: Arc<Pulse>,
    stall: Stall,
    retries: Retries,
    /// What is known of the CLI's own sub-agents and not stated yet, and when it may be.
    subagents: Option<FactKind>,
    state_subagents_at: Instant,
    /// How many denied writes its output has reported, the last one where it is not stated, and when it may be.
    denied_writes: u64,
    denied_write: Option<String>,
    state_denied_writes_at: Instant,
    /// What the times of `retries` count from.
    began: Instant,
    /// The run waits for a decision.
    waiting: bool,
}

/// What an attempt is begun with, beside the agent itself.
#[derive(Debug)]
pub struct AttemptParts {
    pub journal: Journal,
    pub worker: Worker,
    pub orders: watch::Receiver<Orders>,
    /// Names messages that the agent was given.
    pub delivered: mpsc::UnboundedReceiver<String>,
    /// The guard's lifeline.
    pub guard: Option<pipe::Receiver>,
    pub client: Client,
    pub dialogue: Option<Dialogue>,
    /// When the agent wrote or called last.
    pub pulse: Arc<Pulse>,
}

/// What can happen to it.
#[derive(Debug)]
enum Event {
    Processes(Seen),
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
    AgentActive,
}

impl Attempt {
    /// Takes over an agent that was just started.
    #[must_use]
    pub fn new(order: &Order, parts: AttemptParts) -> Self {
        let AttemptParts { journal, worker, orders, delivered, guard, client, dialogue, pulse } = parts;
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
            client,
            dialogue,
            permissions: order.permissions.clone(),
            cwd: order.cwd.clone(),
            permits: Permits::default(),
            notes: mpsc::channel(1).0,
            failed: None,
            finish: Finish::Working,
            ending: Ending::of(order),
            pulse,
            stall: Stall::watch(order.stall_ms, Instant::now()),
            retries: Retries::default(),
            subagents: None,
            state_subagents_at: Instant::now(),
            denied_writes: 0,
            denied_write: None,
            state_denied_writes_at: Instant::now(),
            began: Instant::now(),
            waiting: false,
        }
    }

    /// Goes on until nothing of the attempt is left, and states its last fact. Returns the logs that the
    /// disk did not let it finish.
    pub async fn run(mut self, pump: Pump, closer: &Closer<'_>) -> (Journal, Vec<LogFile>) {
        let (sender, mut bytes) = watch::channel(0);
        let cut = CancellationToken::new();
        let mut pumping = JoinSet::new();
        let (output_events, mut signals) = mpsc::channel(SIGNALS_AHEAD_MAX);
        let (notes, noted) = mpsc::channel(NOTES_AHEAD_MAX);
        self.notes = notes;
        pumping.spawn(pump.run(sender, output_events, noted, Arc::clone(&self.pulse), cut.clone()));
        loop {
            let event = self.select(&mut bytes, &mut signals).await;
            if self.apply(event).is_break() {
                break;
            }
        }
        let active_ms = self.clock.active_ms(Instant::now());
        // Who still holds the output after an end that nobody ordered gets a moment to finish it.
        let left_open = !self.stop.is_asked() && !self.drained(&mut bytes, &mut signals).await;
        let swept = self.worker.sweep().await;
        self.drained(&mut bytes, &mut signals).await;
        cut.cancel();
        // The pump ends when everything is read and handed out.
        while let Some(event) = signals.recv().await {
            self.apply_output(event);
        }
        let mut output = match pumping.join_next().await {
            Some(Ok(output)) => Some(output),
            Some(Err(error)) => {
                tracing::error!(%error, "the output was lost");
                None
            }
            None => None,
        };
        while let Ok(message_id) = self.delivered.try_recv() {
            self.journal.state(FactKind::Delivered { message_id });
        }
        let mut logs = output.as_mut().map(|output| std::mem::take(&mut output.logs)).unwrap_or_default();
        logfile::finish(&mut logs);
        if let Some(output) = &mut output {
            self.ending.keep_answer(&mut output.result);
            if output.result.len() > limits::RESULT_SHOWN_BYTES_MAX {
                let dir = AttemptDir::new(&closer.order.home, &closer.order.run_id, closer.order.attempt);
                if let Err(error) = super::write_private(&dir, &dir.answer(), &output.result) {
                    tracing::error!(%error, "the whole result cannot be kept; its end is in the last fact, all of it in the log");
                }
            }
        }
        self.state_subagents();
        self.state_denied_writes();
        failpoint!("supervisor.before_ended");
        let exit = self.worker.seen.borrow().exit;
        let mut last = end::ended(exit, swept, left_open, active_ms, output, self.failed.take(), &self.ending);
        if self.look(closer, &last).await
            && let FactKind::Ended { active_ms, .. } = &mut last
        {
            // The acceptance command works on the run's time.
            *active_ms = self.clock.active_ms(Instant::now());
        }
        self.journal.state(last);
        failpoint!("supervisor.after_ended");
        (self.journal, logs)
    }

    /// Collects evidence about the agent's work, where the hub wants it. `end` is how it ended.
    async fn look(&mut self, closer: &Closer<'_>, end: &FactKind) -> bool {
        if !closer.may_look(self.stop != Stop::Not, self.signals) {
            return false;
        }
        // From here on the agent's end counts, even if the supervisor dies.
        self.journal.state(FactKind::AgentEnded { end: Box::new(end.clone()) });
        self.worker.let_go();
        let taken = self.journal.taken();
        let asked = async {
            taken.await;
            closer.wanted().await
        };
        // The tree is kept whether or not the hub is there.
        let (asked, (changes, facts)) = tokio::join!(tokio::time::timeout(HUB_MAX, asked), closer.changes());
        facts.into_iter().for_each(|fact| self.journal.state(fact));
        let Ok(Some(closing)) = asked else { return false };
        let left = self.clock.limit_at().map(|at| at.saturating_duration_since(Instant::now()));
        let evidence = closer.look(&closing, changes, left, &mut self.orders).await;
        self.journal.state(FactKind::EvidenceCollected(evidence));
        true
    }

    /// Waits for the next event. Dropping it loses nothing.
    async fn select(&mut self, bytes: &mut watch::Receiver<u64>, signals: &mut mpsc::Receiver<OutputEvent>) -> Event {
        let limit_at = if self.stop.is_asked() { None } else { self.clock.limit_at() };
        let retries_due = self.retries_due();
        let subagents_due = self.subagents.as_ref().map(|_| self.state_subagents_at);
        let (taken, reported, after) = (self.journal.taken(), self.reported_bytes, self.report_after);
        let output_came = async {
            taken.await;
            match bytes.wait_for(|bytes| *bytes > reported).await {
                Ok(_) => {}
                // All of it was read; its length comes with the last fact.
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
            () = self.pulse.next_sign(), if self.stall.is_stalled() => Event::AgentActive,
            () = at_end(self.guard.as_ref()) => Event::GuardLost,
            () = output_came => Event::OutputGrew(*bytes.borrow_and_update()),
        }
    }

    /// Applies an event. Breaks when it is time to sweep.
    fn apply(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            // An end by itself is followed by a sweep at once; a stop gives everything its grace.
            Event::Processes(seen) if seen.none_left || (seen.exit.is_some() && !self.stop.is_asked()) => return ControlFlow::Break(()),
            Event::Processes(_) => {}
            Event::Orders(orders) => self.follow(orders),
            Event::Delivered(message_id) => self.journal.state(FactKind::Delivered { message_id }),
            Event::Output(event) => self.apply_output(event),
            Event::Decided(id, Outcome::Decision(decision)) => self.write_decision(&id, &decision),
            Event::Decided(id, Outcome::Answers(answers)) => {
                let steps = self.dialogue.as_mut().map(|dialogue| dialogue.answer(&id, answers.as_deref())).unwrap_or_default();
                steps.into_iter().for_each(|step| self.take_step(step));
            }
            Event::FinishDue => match self.finish {
                Finish::Closed { .. } => {
                    self.worker.ask_to_end();
                    self.finish = Finish::Asked { kill_at: Instant::now() + FINISH_KILL };
                }
                Finish::Working | Finish::Asked { .. } => return ControlFlow::Break(()),
            },
            Event::StallDue => self.look_for_stall(),
            Event::RetriesDue => self.state_retries(),
            Event::SubagentsDue => self.state_subagents(),
            Event::AgentActive => {
                if self.stall.note_sign(self.pulse.silent_since(), Instant::now()) {
                    self.journal.state(FactKind::ActiveAgain {});
                }
            }
            Event::GuardLost => {
                self.guard = None;
                self.journal.state(FactKind::GuardLost {});
            }
            Event::LimitReached => {
                let now = Instant::now();
                self.journal.state(FactKind::LimitReached { active_ms: self.clock.active_ms(now) });
                self.begin_stop(now);
            }
            Event::StopStepDue if matches!(self.stop, Stop::Announced { .. }) => self.begin_stop(Instant::now()),
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

/// Returns when the other end of a pipe on which nothing is written is closed.
async fn at_end(pipe: Option<&pipe::Receiver>) {
    match pipe {
        Some(pipe) => match pipe.readable().await {
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "the guard cannot be watched"),
        },
        None => std::future::pending().await,
    }
}
