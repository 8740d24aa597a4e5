//! Waiting for runs and reading the event history. Waiters are notified of events; nothing polls.

use super::settings::Settings;
use super::stats::tree_stats;
use super::{Caller, OpError, Ops, lookup, render};
use crate::clock;
use crate::config::Home;
use crate::store::{
    Connection, Request, RequestsOf, Run, Store, StoreError, Topic, events_after, last_seq,
    open_below, position_in_events, requests_of, requests_page, run_by_id, stopped_below,
    stopped_runs, underway_runs, unknown_ends, unknown_ends_beyond,
};
use crate::view::{EventPage, ReadEvents, RequestView, Wait, WaitOutcome, WaitUntil, Waited};
use adjutant_core::attention::RunPhase;
use adjutant_core::{
    Action, Denied, EventSeq, Principal, RequestNo, RunId, RunState, StopReason, Time,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of runs that one wait can name.
const RUNS_MAX: usize = 200;
/// Maximum number of open requests, ended runs and working runs in the result of a wait.
const SHOWN_MAX: u32 = 100;
/// How long the reply about a report waits for the end of its process, which mostly follows at
/// once, in milliseconds.
const REPORT_SETTLES_MS: i64 = 2_000;
/// Default number of events in a page.
const EVENTS_DEFAULT: u32 = 200;
const EVENTS_MAX: u32 = 5_000;

/// The state of the runs of a wait at one moment.
#[derive(Default)]
struct WaitSnapshot {
    needs: Vec<Request>,
    stopped: Vec<Run>,
    stopped_more: u64,
    ended: Vec<Run>,
    working: Vec<Run>,
    /// A working run has gone silent, started retrying, passed its estimate, hit a rate limit or
    /// nearly used up its budget since then.
    is_noticed: bool,
    /// When the earliest of the working runs that have reported since then did so.
    reported_at: Option<Time>,
    /// A run has stopped since then.
    has_stop: bool,
    cursor: EventSeq,
}

impl WaitSnapshot {
    /// Returns when a report ends a wait for attention. Its process mostly ends at once, so that
    /// one result shows both. `known`: the time that the wait has chosen before, so that a changed
    /// wall clock postpones it once at most.
    fn report_counts_at(&self, until: WaitUntil, known: Option<Instant>) -> Option<Instant> {
        let reported_at = self.reported_at.filter(|_| until == WaitUntil::Attention)?;
        let left_ms = REPORT_SETTLES_MS
            .saturating_sub(clock::now().ms_since(reported_at))
            .clamp(0, REPORT_SETTLES_MS);
        Some(
            known.unwrap_or_else(|| Instant::now() + Duration::from_millis(left_ms.unsigned_abs())),
        )
    }

    /// Returns how the wait ends, if it does. `counts_reports`: reports end it. `is_asked`: a
    /// person is being asked about this request, so that it ends no wait.
    fn outcome(
        &self,
        until: WaitUntil,
        named: bool,
        counts_reports: bool,
        is_asked: impl Fn(&Request) -> bool,
    ) -> Option<WaitOutcome> {
        let (asked, needs): (Vec<&Request>, Vec<&Request>) =
            self.needs.iter().partition(|request| is_asked(request));
        // Stuck: no run can continue until a person or a client acts. A run that waits for a
        // stopped child is stuck too.
        let needs_below = needs.iter().any(|request| request.blocking) || !self.stopped.is_empty();
        let asks = |run: &Run| {
            asked
                .iter()
                .filter(|request| request.run == run.id && request.blocking)
                .count()
        };
        let waits_for_others =
            |run: &Run| usize::try_from(run.blocking_pending).unwrap_or(0) > asks(run);
        let is_stuck = |run: &Run| {
            (waits_for_others(run) || run.holding > 0 && needs_below) && !is_stopping(run)
        };
        let stuck = !self.working.is_empty() && self.working.iter().all(is_stuck);
        let nothing_left = self.working.is_empty();
        let stands_still = nothing_left && !self.stopped.is_empty();
        let has_event = self.has_stop || !self.ended.is_empty();
        let has_notice = self.is_noticed || counts_reports && self.reported_at.is_some();
        match until {
            WaitUntil::Attention
                if !needs.is_empty() || has_notice || has_event || stands_still =>
            {
                Some(WaitOutcome::Event)
            }
            WaitUntil::Any if has_event || stands_still || stuck => Some(WaitOutcome::Event),
            WaitUntil::All if (nothing_left && (named || has_event || stands_still)) || stuck => {
                Some(WaitOutcome::Event)
            }
            _ if nothing_left && self.needs.is_empty() => Some(WaitOutcome::Idle),
            _ => None,
        }
    }
}

/// Returns whether a run is being cancelled, so that its requests need no answer. The requests of a
/// run that is being paused still do.
fn is_stopping(run: &Run) -> bool {
    run.state == RunState::Stopping(StopReason::Cancelled)
}

fn named_runs(
    connection: &Connection,
    who: &Principal,
    call: &Wait,
) -> Result<Vec<Run>, StoreError> {
    call.runs
        .iter()
        .map(|given| lookup::run(connection, who, Action::See, given))
        .collect()
}

/// A wait in progress.
struct Waiting<'a, F> {
    waits: &'a Waits,
    who: &'a Principal,
    call: &'a Wait,
    /// Those of the named runs.
    ids: Vec<RunId>,
    /// Whether a person is being asked about a request.
    is_asked: F,
    /// `None`: nothing has been read yet.
    scope: Option<WaitScope>,
    /// When a report ends the wait.
    report_counts_at: Option<Instant>,
}

impl<F: Fn(&Request) -> bool> Waiting<'_, F> {
    /// Reads the runs. `None`: the wait continues.
    fn look(
        &mut self,
        connection: &Connection,
        is_over: bool,
    ) -> Result<Option<(Waited, Vec<RequestView>)>, StoreError> {
        let mut runs = Vec::new();
        if self.scope.is_none() {
            // A caller without access learns nothing from the wait.
            runs = named_runs(connection, self.who, self.call)?;
        }
        let scope = match &self.scope {
            Some(scope) => scope,
            None => {
                let scope = self.begin(connection)?;
                &*self.scope.insert(scope)
            }
        };
        let snapshot = if scope.ids.is_empty() {
            snapshot_all(connection, self.who, scope)?
        } else {
            snapshot_named(connection, self.who, scope, runs)?
        };
        let until = self.call.until;
        self.report_counts_at = snapshot.report_counts_at(until, self.report_counts_at);
        let counts_reports =
            is_over || self.report_counts_at.is_some_and(|at| Instant::now() >= at);
        let names_runs = !scope.ids.is_empty();
        let outcome = snapshot.outcome(until, names_runs, counts_reports, &self.is_asked);
        if outcome.is_none() && !is_over && !snapshot.needs.iter().any(&self.is_asked) {
            return Ok(None);
        }
        let asked: Vec<Request> = snapshot
            .needs
            .iter()
            .filter(|request| (self.is_asked)(request))
            .cloned()
            .collect();
        let waited = self.waits.waited(
            connection,
            self.who,
            scope,
            &snapshot,
            outcome.unwrap_or(WaitOutcome::Timeout),
        )?;
        Ok(Some((waited, render::requests(&asked))))
    }

    fn begin(&self, connection: &Connection) -> Result<WaitScope, StoreError> {
        let began = last_seq(connection)?;
        let given = self
            .call
            .after
            .map(|after| position_in_events(connection, self.waits.store.eras(), after))
            .transpose()?;
        Ok(WaitScope {
            ids: self.ids.clone(),
            given: given.map(|given| EventSeq(given.after)),
            after: given.map_or(began, |given| EventSeq(given.after)),
            is_reset: given.is_some_and(|given| given.is_reset),
            new_reports: self.call.new_reports,
        })
    }
}

/// Waits for runs and events.
#[derive(Debug, Clone)]
pub struct Waits {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
}

impl Waits {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
        }
    }

    /// Waits until something about the runs needs the caller, or the wait times out.
    ///
    /// # Errors
    /// A run is unknown or foreign.
    pub async fn wait(&self, who: &Principal, call: &Wait) -> Result<Waited, OpError> {
        Ok(self.wait_unless(who, call, |_| false).await?.0)
    }

    /// Waits like [`Waits::wait`], but not because of requests about which a person is being asked.
    /// Returns these as well, at once: then the outcome is `timeout`.
    ///
    /// # Errors
    /// A run is unknown or foreign.
    pub(super) async fn wait_unless(
        &self,
        who: &Principal,
        call: &Wait,
        is_asked: impl Fn(&Request) -> bool,
    ) -> Result<(Waited, Vec<RequestView>), OpError> {
        lookup::check(who, Action::Wait)?;
        if call.runs.len() > RUNS_MAX {
            return Err(Denied::invalid("runs", format!("at most {RUNS_MAX}")).into());
        }
        let deadline = super::end_of_wait(call.wait_ms);
        let ids = self.ids_of(who, call)?;
        let topics = match who {
            _ if !ids.is_empty() => ids.iter().map(|run| Topic::Run(*run)).collect(),
            Principal::Person => vec![Topic::All],
            who => vec![Topic::Owner(who.to_string())],
        };
        let subscription = self.store.wake_ups().subscribe(topics);
        let mut waiting = Waiting {
            waits: self,
            who,
            call,
            ids,
            is_asked,
            scope: None,
            report_counts_at: None,
        };
        loop {
            let is_over = Instant::now() >= deadline;
            let waited = self
                .store
                .read(|connection| waiting.look(connection, is_over))?;
            if let Some(waited) = waited {
                return Ok(waited);
            }
            let look_again = waiting
                .report_counts_at
                .map_or(deadline, |at| deadline.min(at));
            if tokio::time::timeout_at(look_again, subscription.wait())
                .await
                .is_err()
            {
                continue;
            }
        }
    }

    /// Returns the ids of the named runs. An id gives its topic directly; anything else is looked
    /// up first.
    fn ids_of(&self, who: &Principal, call: &Wait) -> Result<Vec<RunId>, OpError> {
        let ids: Option<Vec<RunId>> = call
            .runs
            .iter()
            .map(|given| RunId::parse(given).ok())
            .collect();
        Ok(match ids {
            Some(ids) => ids,
            None => self
                .store
                .read(|connection| named_runs(connection, who, call))?
                .iter()
                .map(|run| run.id)
                .collect(),
        })
    }

    fn waited(
        &self,
        connection: &Connection,
        who: &Principal,
        span: &WaitScope,
        snapshot: &WaitSnapshot,
        outcome: WaitOutcome,
    ) -> Result<Waited, StoreError> {
        let (ended_more, failed) = match snapshot.ended.last().and_then(|run| run.end_seq) {
            Some(last) if span.ids.is_empty() && snapshot.ended.len() == SHOWN_MAX as usize => {
                unknown_ends_beyond(connection, who, span.after, last)?
            }
            _ => (0, None),
        };
        let mut needs = render::requests(&snapshot.needs);
        render::add_room(
            connection,
            &self.settings.config_or_builtin(),
            self.store.queued_runs(),
            &mut needs,
        )?;
        let working = |run: &Run| {
            let mut view = render::brief(&self.home, run);
            super::conflicts::add_conflicts(connection, run, &mut view)?;
            super::ledger::add_overlaps(connection, run, &mut view)?;
            Ok::<_, StoreError>(view)
        };
        let full = |runs: &[Run]| {
            runs.iter()
                .map(|run| render::run(connection, &self.home, run))
                .collect::<Result<Vec<_>, _>>()
        };
        let ended = |run: &Run| {
            let mut view = render::run(connection, &self.home, run)?;
            view.cost.tree = tree_stats(connection, run)?;
            Ok::<_, StoreError>(view)
        };
        Ok(Waited {
            outcome: outcome.into(),
            needs,
            stopped: full(&snapshot.stopped)?,
            stopped_more: snapshot.stopped_more,
            ended: snapshot.ended.iter().map(ended).collect::<Result<_, _>>()?,
            ended_more,
            failed: failed
                .map(|run| render::run(connection, &self.home, &run))
                .transpose()?
                .map(Box::new),
            working: snapshot
                .working
                .iter()
                .take(SHOWN_MAX as usize)
                .map(working)
                .collect::<Result<_, _>>()?,
            cursor: snapshot.cursor.0,
            reset: span.is_reset,
        })
    }

    /// Returns the newest position of the history.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn last_event(&self) -> Result<i64, OpError> {
        Ok(self.store.read(last_seq)?.0)
    }

    /// Returns whether the history has a position: it is neither beyond the end nor one that the
    /// database has lost.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn has_event_position(&self, position: i64) -> Result<bool, OpError> {
        Ok(!self
            .store
            .read(|connection| position_in_events(connection, self.store.eras(), position))?
            .is_reset)
    }

    /// Reads events after a position, optionally waiting for new ones.
    ///
    /// # Errors
    /// The run is unknown or foreign.
    pub async fn events(&self, caller: &Caller, call: &ReadEvents) -> Result<EventPage, OpError> {
        let who = &caller.who;
        lookup::check(who, Action::Events)?;
        let limit = call.limit.unwrap_or(EVENTS_DEFAULT).clamp(1, EVENTS_MAX);
        let run = match &call.run {
            Some(run) => Some(
                self.store
                    .read(|connection| lookup::run(connection, who, Action::See, run))?
                    .id,
            ),
            None => None,
        };
        let topic = match (run, who) {
            (Some(run), _) => Topic::Run(run),
            (None, Principal::Person) => Topic::All,
            (None, who) => Topic::Owner(who.to_string()),
        };
        let subscription = self.store.wake_ups().subscribe(vec![topic]);
        let deadline = super::end_of_wait(call.wait_ms);
        let position = self
            .store
            .read(|connection| position_in_events(connection, self.store.eras(), call.after))?;
        loop {
            let (events, last) = self.store.read(|connection| {
                Ok((
                    events_after(connection, who, run, EventSeq(position.after), limit)?,
                    last_seq(connection)?,
                ))
            })?;
            if !events.is_empty() || position.is_reset || Instant::now() >= deadline {
                let cursor = if events.len() < limit as usize {
                    last.0
                } else {
                    events.last().map_or(position.after, |event| event.seq.0)
                };
                return Ok(EventPage {
                    events: events.iter().map(render::event).collect(),
                    cursor,
                    reset: position.is_reset,
                });
            }
            if tokio::time::timeout_at(deadline, subscription.wait())
                .await
                .is_err()
            {
                continue;
            }
        }
    }
}

/// What a wait covers.
struct WaitScope {
    /// The named runs. `None`: all that the caller may see.
    ids: Vec<RunId>,
    /// The position that the caller gave.
    given: Option<EventSeq>,
    /// That position, or the one at which the wait began.
    after: EventSeq,
    /// The database was set back behind the position that the caller gave.
    is_reset: bool,
    /// Reports that the caller has not confirmed count, whatever the position.
    new_reports: bool,
}

impl WaitScope {
    /// Returns when a run reported that still works, if that is new to the caller.
    fn new_report(&self, run: &Run, who: &Principal) -> Option<Time> {
        let report = run.standing_report()?;
        let is_unconfirmed = self.new_reports && run.owner == *who && !report.is_owner_notified;
        (is_unconfirmed || report.seq > self.after).then_some(report.at)
    }

    /// Returns whether a run in progress became silent, retried, exceeded its estimate, was denied
    /// to write or hit a rate limit after the wait's position. Each is reported once: a wait
    /// without a cursor reports only what happens from then on.
    fn is_noticed(&self, run: &Run) -> bool {
        let is_limited = matches!(run.state, RunState::Stopped { reason, .. } if reason.waits_for_model())
            && run.end_seq > Some(self.after);
        is_limited || run.noticed_seq() > Some(self.after)
    }

    /// Returns whether a stop is new to the caller.
    fn has_stopped(&self, run: &Run, who: Option<&Principal>) -> bool {
        let is_unknown = who.is_some_and(|who| run.owner == *who) && !run.is_owner_notified;
        let since = if self.ids.is_empty() {
            Some(self.after)
        } else {
            self.given
        };
        is_unknown || since.is_none_or(|since| run.end_seq > Some(since))
    }
}

/// Takes a snapshot of all runs that the caller may see.
fn snapshot_all(
    connection: &Connection,
    who: &Principal,
    span: &WaitScope,
) -> Result<WaitSnapshot, StoreError> {
    let cursor = last_seq(connection)?;
    let ended = unknown_ends(connection, who, span.after, SHOWN_MAX)?;
    let working = underway_runs(connection, who, 2 * SHOWN_MAX)?;
    let stopped = stopped_runs(connection, who, SHOWN_MAX)?;
    let is_noticed = working.iter().any(|run| span.is_noticed(run));
    let reported_at = working
        .iter()
        .filter_map(|run| span.new_report(run, who))
        .min();
    let has_stop = stopped
        .runs
        .iter()
        .any(|run| span.has_stopped(run, Some(who)));
    let (needs, _) = requests_page(
        connection,
        RequestsOf::Answerer(who),
        false,
        RequestNo(0),
        SHOWN_MAX,
    )?;
    Ok(WaitSnapshot {
        needs,
        stopped: stopped.runs,
        stopped_more: stopped.more,
        ended,
        working,
        is_noticed,
        reported_at,
        has_stop,
        cursor,
    })
}

/// Takes a snapshot of the named runs. `runs`: these, if they were read in the same transaction.
fn snapshot_named(
    connection: &Connection,
    who: &Principal,
    span: &WaitScope,
    mut runs: Vec<Run>,
) -> Result<WaitSnapshot, StoreError> {
    let mut snapshot = WaitSnapshot {
        cursor: last_seq(connection)?,
        ..WaitSnapshot::default()
    };
    if runs.is_empty() {
        // A run that was cleaned meanwhile has ended and was handled.
        runs = span
            .ids
            .iter()
            .filter_map(|id| run_by_id(connection, *id).transpose())
            .collect::<Result<_, _>>()?;
    }
    for run in runs {
        if run.pending > 0 && !is_stopping(&run) && snapshot.needs.len() < SHOWN_MAX as usize {
            snapshot
                .needs
                .extend(requests_of(connection, run.id, false, SHOWN_MAX)?);
        }
        // Requests of its descendants count for the run.
        snapshot
            .needs
            .extend(open_below(connection, run.id, SHOWN_MAX)?);
        if !run.state.is_finished() {
            snapshot
                .stopped
                .extend(stopped_below(connection, run.id, SHOWN_MAX)?);
        }
        match run.phase() {
            RunPhase::Underway => snapshot.working.push(run),
            RunPhase::Stopped(_) | RunPhase::Held => snapshot.stopped.push(run),
            RunPhase::Paused | RunPhase::Finished => {
                if span.given.is_none_or(|after| run.end_seq > Some(after)) {
                    snapshot.ended.push(run);
                }
            }
        }
    }
    snapshot.needs.sort_by_key(|request| request.no);
    snapshot.needs.dedup_by_key(|request| request.no);
    snapshot.needs.truncate(SHOWN_MAX as usize);
    snapshot.stopped.sort_by_key(|run| run.end_seq);
    snapshot.stopped.dedup_by_key(|run| run.id);
    snapshot.is_noticed = snapshot.working.iter().any(|run| span.is_noticed(run));
    snapshot.reported_at = snapshot
        .working
        .iter()
        .filter_map(|run| span.new_report(run, who))
        .min();
    snapshot.has_stop = snapshot
        .stopped
        .iter()
        .any(|run| span.has_stopped(run, None));
    snapshot.ended.sort_by_key(|run| run.end_seq);
    Ok(snapshot)
}
