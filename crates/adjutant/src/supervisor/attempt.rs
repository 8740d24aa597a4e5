//! One attempt whose agent was started: an event is selected, then applied to its end, until the
//! agent and everything that it started are gone and its last fact is stated.

use super::approve;
use super::clock::ActiveClock;
use super::closing::{Closer, HUB_MAX};
use super::end::{self, Ending};
use super::journal::Journal;
use super::logfile::{self, LogFile};
use super::output::{Heard, Pump};
use super::permits::{Outcome, Permits};
use super::reader::Told;
use super::stall::Stall;
use super::stop::{Stop, until};
use super::worker::{Line, Seen, Worker};
use crate::client::{Client, Pulse};
use crate::failpoint::failpoint;
use crate::harness::dialogue::Dialogue;
use crate::harness::step::{Changed, Decision, Step};
use crate::link::{AttemptDir, FactKind, FoundText, Order, Orders, SubagentsText};
use crate::signal::Found;
use crate::text;
use crate::view::{MessageView, SubagentView};
use adjutant_core::StopReason;
use adjutant_core::condition::{Retries, Retrying};
use adjutant_core::subagent::Subagent;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long output may stay open after the agent has ended, before it is cut off.
const DRAIN_MAX: Duration = Duration::from_millis(200);
/// So often has reading its turn before output counts as left open.
const TURNS: u32 = 3;
/// So many signals may wait to be stated before reading waits for them.
const SIGNALS_AHEAD_MAX: usize = 16;
/// So many lines of ours may wait to be written to the log.
const NOTES_AHEAD_MAX: usize = 64;
/// So much of a call that changed stands in the log, in bytes.
const NOTED_BYTES_MAX: usize = 2 * 1024;
/// Most signals of one attempt that count.
const SIGNALS_MAX: u32 = 2_000;
/// At most one fact about output in this time.
const OUTPUT_FACT_EVERY: Duration = Duration::from_secs(1);
/// At most one fact about the CLI's own sub-agents in this time.
const SUBAGENTS_FACT_EVERY: Duration = Duration::from_secs(2);
/// How long an agent that has said its last word may take to end by itself, before it is asked to,
/// and then until it is killed.
const FINISH_MAX: Duration = Duration::from_millis(1500);
const FINISH_KILL: Duration = Duration::from_secs(3);

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
    /// Lines of ours for the log.
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
    /// What the times of `retries` count from.
    began: Instant,
    /// Somebody else has to decide something first.
    waiting: bool,
}

/// How far an agent has come that has said its last word and should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Working,
    /// Its input has ended.
    Closed {
        ask_at: Instant,
    },
    /// It was asked to end.
    Asked {
        kill_at: Instant,
    },
}

impl Finish {
    fn due(self) -> Option<Instant> {
        match self {
            Self::Working => None,
            Self::Closed { ask_at } => Some(ask_at),
            Self::Asked { kill_at } => Some(kill_at),
        }
    }
}

/// What an attempt is begun with, beside the agent itself.
#[derive(Debug)]
pub struct Begun {
    pub journal: Journal,
    pub worker: Worker,
    pub orders: watch::Receiver<Orders>,
    /// Names messages that the agent was given.
    pub delivered: mpsc::UnboundedReceiver<String>,
    /// The guard's lifeline.
    pub guard: Option<pipe::Receiver>,
    pub client: Client,
    pub dialogue: Option<Dialogue>,
    /// Tells when the agent called us last, and is told of its output.
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
    OutputCame(u64),
    Heard(Heard),
    Decided(String, Outcome),
    FinishDue,
    StallDue,
    RetriesDue,
    SubagentsDue,
    Felt,
}

impl Attempt {
    /// Takes over an agent that was just started.
    #[must_use]
    pub fn new(order: &Order, begun: Begun) -> Self {
        let Begun { journal, worker, orders, delivered, guard, client, dialogue, pulse } = begun;
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
        let (heard, mut signals) = mpsc::channel(SIGNALS_AHEAD_MAX);
        let (notes, noted) = mpsc::channel(NOTES_AHEAD_MAX);
        self.notes = notes;
        pumping.spawn(pump.run(sender, heard, noted, Arc::clone(&self.pulse), cut.clone()));
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
        while let Some(heard) = signals.recv().await {
            self.hear(heard);
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
        if let Some(answer) = output.as_mut().and_then(|output| output.answer.take()) {
            let dir = AttemptDir::new(&closer.order.home, &closer.order.run_id, closer.order.attempt);
            if let Err(error) = super::write_private(&dir, &dir.answer(), self.ending.answer(&answer)) {
                tracing::warn!(%error, "the whole answer cannot be kept; its end is in the result");
            }
        }
        self.state_subagents();
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

    /// Looks at what the agent has left behind, where somebody wants to know. `end` is how it ended.
    async fn look(&mut self, closer: &Closer<'_>, end: &FactKind) -> bool {
        if !closer.may_look(self.stop != Stop::Not, self.signals) {
            return false;
        }
        let taken = self.journal.taken();
        let asked = async {
            taken.await;
            closer.wanted().await
        };
        let Ok(Some(closing)) = tokio::time::timeout(HUB_MAX, asked).await else { return false };
        // From here on the agent's end counts, whatever becomes of us.
        self.journal.state(FactKind::AgentEnded { end: Box::new(end.clone()) });
        self.worker.let_go();
        let left = self.clock.limit_at().map(|at| at.saturating_duration_since(Instant::now()));
        let saw = closer.look(&closing, left, &mut self.orders).await;
        self.journal.state(FactKind::EvidenceCollected(saw));
        true
    }

    /// Waits for the next event. Dropping it loses nothing.
    async fn select(&mut self, bytes: &mut watch::Receiver<u64>, signals: &mut mpsc::Receiver<Heard>) -> Event {
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
            Some(heard) = signals.recv() => Event::Heard(heard),
            Some((id, outcome)) = self.permits.next() => Event::Decided(id, outcome),
            () = until(self.finish.due()) => Event::FinishDue,
            () = until(self.stall.due()) => Event::StallDue,
            () = until(retries_due) => Event::RetriesDue,
            () = until(subagents_due) => Event::SubagentsDue,
            () = self.pulse.felt(), if self.stall.is_stalled() => Event::Felt,
            () = at_end(self.guard.as_ref()) => Event::GuardLost,
            () = output_came => Event::OutputCame(*bytes.borrow_and_update()),
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
            Event::Heard(heard) => self.hear(heard),
            Event::Decided(id, Outcome::Decision(decision)) => self.tell_decision(&id, &decision),
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
            Event::Felt => {
                if self.stall.hear(self.pulse.silent_since(), Instant::now()) {
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
            Event::OutputCame(total_bytes) => {
                self.journal.state(FactKind::Output { total_bytes });
                self.reported_bytes = total_bytes;
                self.report_after = Instant::now() + OUTPUT_FACT_EVERY;
            }
        }
        ControlFlow::Continue(())
    }

    /// States that the agent has gone silent, unless that is not its fault.
    fn look_for_stall(&mut self) {
        let is_its_turn = !self.waiting && self.stop == Stop::Not;
        let silent_since = self.pulse.silent_since().filter(|_| is_its_turn);
        if let Some(silent) = self.stall.look(silent_since, Instant::now()) {
            if self.dialogue.as_ref().is_some_and(Dialogue::is_opening) {
                let why = format!("it has not begun a session and has been silent for {} s: does it speak ACP?", silent.as_secs());
                self.take_step(Step::Failed(why));
            }
            tracing::info!(?silent, "the agent has gone silent");
            self.journal.state(FactKind::Stalled { silent_ms: i64::try_from(silent.as_millis()).unwrap_or(i64::MAX) });
        }
    }

    fn retries_due(&self) -> Option<Instant> {
        let due_ms = self.retries.due_ms().filter(|_| !self.stop.is_asked())?;
        Some(self.began + Duration::from_millis(u64::try_from(due_ms).unwrap_or(0)))
    }

    /// States what is known of the CLI's own sub-agents.
    fn state_subagents(&mut self) {
        if let Some(fact) = self.subagents.take() {
            self.journal.state(fact);
            self.state_subagents_at = Instant::now() + SUBAGENTS_FACT_EVERY;
        }
    }

    fn began_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// States that the CLI repeats what keeps failing.
    fn state_retries(&mut self) {
        if let Some(Retrying { cause, for_ms, tries, words }) = self.retries.look(self.began_ms()) {
            tracing::info!(cause = cause.word(), tries, "the agent's CLI retries");
            self.journal.state(FactKind::Retrying { cause: cause.word().to_owned(), words, tries, for_ms });
        }
    }

    /// Waits until the output has ended, for a moment. Tells whether it has.
    async fn drained(&mut self, bytes: &mut watch::Receiver<u64>, signals: &mut mpsc::Receiver<Heard>) -> bool {
        let mut over = tokio::time::Instant::now() + DRAIN_MAX;
        loop {
            tokio::select! {
                // Reading waits for signals to be stated, which may take longer than the moment.
                Some(heard) = signals.recv() => {
                    self.hear(heard);
                    if self.signals <= SIGNALS_MAX {
                        over = tokio::time::Instant::now() + DRAIN_MAX;
                    }
                }
                more = bytes.changed() => if more.is_err() { return true },
                () = tokio::time::sleep_until(over) => break,
            }
        }
        // On a machine that is busy, the moment may have passed before reading had its turn.
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            if bytes.has_changed().is_err() {
                return true;
            }
        }
        false
    }

    /// States a signal, as long as there are not absurdly many: what floods is kept in the log only.
    fn state_signal(&mut self, found: Found) {
        self.signals += 1;
        if self.signals <= SIGNALS_MAX {
            self.journal.state(FactKind::Signal { found: text_of(found) });
        } else if self.signals == SIGNALS_MAX + 1 {
            tracing::warn!(SIGNALS_MAX, "too many signals: the rest of them have no effect");
        }
    }

    fn follow(&mut self, orders: Orders) {
        let now = Instant::now();
        self.clock.set_waiting(orders.waiting, now);
        if std::mem::replace(&mut self.waiting, orders.waiting) {
            // From here on it is its turn again.
            self.pulse.beat();
        }
        self.deliver(&orders.messages);
        let Some(reason) = orders.stop else { return };
        let is_announced = StopReason::from_word(&reason).is_some_and(StopReason::is_announced);
        match (self.stop, is_announced) {
            (Stop::Not, true) => {
                tracing::info!(reason, "the agent announced that it stops");
                self.stop = Stop::Announced { until: now + self.grace };
            }
            (Stop::Not | Stop::Announced { .. }, false) => {
                tracing::info!(reason, "the attempt is being stopped");
                self.begin_stop(now);
            }
            _ => {}
        }
    }

    fn begin_stop(&mut self, now: Instant) {
        self.permits.stop();
        let cancel = self.dialogue.as_mut().and_then(Dialogue::cancel);
        self.stop = Stop::begin(&self.worker, cancel, self.grace, now);
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Signal(found) => self.state_signal(found),
            Heard::Told(Told::Session(session)) => self.journal.state(FactKind::Session { session }),
            Heard::Told(Told::Retry { words, cause }) => {
                let cause = cause.unwrap_or_else(|| self.ending.cause_of(&words));
                self.retries.note_failed_try(cause, &words, self.began_ms());
            }
            Heard::Told(Told::Subagents(all, more)) => {
                let text = |Subagent { id: _, kind, about, state, tokens }| SubagentView { kind, about, state, tokens };
                self.subagents = Some(FactKind::Subagents(SubagentsText { all: all.into_iter().map(text).collect(), more }));
            }
            Heard::Told(Told::Progress) => {
                if self.retries.note_progress() {
                    self.journal.state(FactKind::Recovered {});
                }
            }
            Heard::Told(Told::Words) => {
                if let Some(dialogue) = &mut self.dialogue {
                    dialogue.note_model_words();
                }
            }
            Heard::Told(Told::Line(line)) => {
                let steps = self.dialogue.as_mut().map(|dialogue| dialogue.receive(&line)).unwrap_or_default();
                steps.into_iter().for_each(|step| self.take_step(step));
            }
        }
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Write(bytes) => self.write(bytes),
            Step::Delivered(message_id) => self.journal.state(FactKind::Delivered { message_id }),
            Step::Permission(permission) => match approve::at_once(&permission, &self.permissions, &self.cwd) {
                Some(decision) => {
                    self.permits.withdraw(&permission.id);
                    self.tell_decision(&permission.id, &decision);
                }
                None => self.permits.ask(self.client.clone(), permission),
            },
            Step::Elicit(elicitation) => self.permits.elicit(self.client.clone(), elicitation),
            Step::Withdraw(id) => {
                self.permits.withdraw(&id);
            }
            Step::Changed(changed) => {
                let Changed { tool, allowed, now } = &changed;
                let short = |text: &str| text::head(text, NOTED_BYTES_MAX).to_owned();
                self.note(&format!("! changed after approval: {tool} {} (approved: {})", short(now), short(allowed)));
                self.permits.tell_changed(self.client.clone(), changed);
            }
            Step::Note(note) => self.note(&note),
            Step::Failed(why) => {
                self.failed.get_or_insert(why);
                self.close();
            }
            Step::Close => self.close(),
        }
    }

    /// Puts a line of ours into the log.
    fn note(&self, note: &str) {
        if let Err(error) = self.notes.try_send(text::line(note)) {
            tracing::warn!(%error, note, "a line of ours is not in the log");
        }
    }

    fn tell_decision(&mut self, id: &str, decision: &Decision) {
        if let Some(bytes) = self.dialogue.as_mut().and_then(|dialogue| dialogue.decide(id, decision)) {
            self.write(bytes);
        }
    }

    /// Puts a line on the agent's input.
    fn write(&mut self, bytes: Vec<u8>) {
        let Some(lines) = &self.worker.lines else { return };
        if let Err(error) = lines.try_send(Line { bytes, message_id: None }) {
            tracing::warn!(%error, "the agent does not read what it asked for");
        }
    }

    /// The work is over: the agent is expected to end.
    fn close(&mut self) {
        self.worker.close_input();
        if self.finish == Finish::Working {
            self.finish = Finish::Closed { ask_at: Instant::now() + FINISH_MAX };
        }
    }

    /// Puts messages on the agent's input, each once. An agent that does not read there gets them
    /// with its next tool call, from the hub.
    fn deliver(&mut self, messages: &[MessageView]) {
        let (Some(lines), Some(dialogue)) = (&self.worker.lines, &mut self.dialogue) else { return };
        self.given.retain(|given| messages.iter().any(|message| message.message_id == *given));
        for message in messages {
            if self.given.contains(&message.message_id) {
                continue;
            }
            let Some((bytes, is_delivered_so)) = dialogue.message(message) else { return };
            let line = Line { bytes, message_id: is_delivered_so.then(|| message.message_id.clone()) };
            match lines.try_send(line) {
                Ok(()) => {
                    self.given.insert(message.message_id.clone());
                }
                Err(error) => tracing::info!(%error, message = message.message_id, "a message stays queued"),
            }
        }
    }
}

fn text_of(found: Found) -> FoundText {
    match found {
        Found::Block { kind, text } => FoundText::Block { tag: kind.tag().to_owned(), text },
        Found::Json { text } => FoundText::Json { text },
        Found::Broken { kind, text, why } => FoundText::Broken { tag: kind.tag().to_owned(), text, why: why.to_string() },
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
