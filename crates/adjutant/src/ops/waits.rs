//! Waiting for runs and reading the history: "events after this position that match", pushed.

use super::{Caller, OpError, Ops, pick, render};
use crate::store::{
    Connection, Request, Run, StoreError, Topic, ended_after, events_after, last_seq, measure_of, open_below, open_requests, requests_of, run_by_id,
    runs_newest,
};
use crate::view::{EventPage, ReadEvents, RunView, Wait, WaitUntil, Waited};
use adjutant_core::{Action, Denied, EventSeq, Outcome, Principal, RunId, RunState, StopReason};
use tokio::time::Instant;

/// Most runs that one wait can name.
const RUNS_MAX: usize = 200;
/// Most open requests, ended and working runs that one wait brings back.
const SHOWN_MAX: u32 = 100;
/// Events in one page when the caller says no number.
const EVENTS_DEFAULT: u32 = 200;
const EVENTS_MAX: u32 = 5_000;

/// What one look at the runs of a wait shows.
struct Look {
    /// One of those at work has gone silent since, or is past its estimate.
    silent: bool,
    needs: Vec<Request>,
    ended: Vec<Run>,
    working: Vec<Run>,
    /// Without names, ends are brought back in parts: there may be more after this one.
    more_after: Option<EventSeq>,
    cursor: EventSeq,
}

impl Look {
    fn outcome(&self, until: WaitUntil, named: bool) -> Option<&'static str> {
        // Nothing goes on until somebody answers: waiting longer would be waiting for ever.
        // A run that waits for what it has delegated is stuck with it.
        let asked_below = self.needs.iter().any(|request| request.blocking);
        let is_stuck = |run: &Run| (run.blocking_pending > 0 || run.holding > 0 && asked_below) && !is_stopping(run);
        let stuck = !self.working.is_empty() && self.working.iter().all(is_stuck);
        let nothing_left = self.working.is_empty();
        match until {
            WaitUntil::Attention if !self.needs.is_empty() || !self.ended.is_empty() || self.silent => Some("event"),
            WaitUntil::Any if !self.ended.is_empty() || stuck => Some("event"),
            WaitUntil::All if (nothing_left && (named || !self.ended.is_empty())) || stuck => Some("event"),
            _ if nothing_left && self.needs.is_empty() => Some("idle"),
            _ => None,
        }
    }
}

/// Its requests need nobody any more. Those of a run that stops to go on later do.
fn is_stopping(run: &Run) -> bool {
    run.state == RunState::Stopping(StopReason::Cancelled)
}

impl Ops {
    /// Waits until something about the runs needs the caller, or the time is over.
    ///
    /// # Errors
    /// A run is unknown or foreign.
    pub async fn wait(&self, who: &Principal, call: &Wait) -> Result<Waited, OpError> {
        Self::check(who, Action::Wait)?;
        if call.runs.len() > RUNS_MAX {
            return Err(Denied::invalid("runs", format!("at most {RUNS_MAX}")).into());
        }
        let deadline = super::end_of_wait(call.wait_ms);
        // An id names its bell; anything else has to be looked up first.
        let ids: Option<Vec<RunId>> = call.runs.iter().map(|given| RunId::parse(given).ok()).collect();
        let picked = |connection: &Connection| {
            call.runs.iter().map(|given| Ok(pick::run(connection, who, Action::See, given)?.id)).collect::<Result<Vec<_>, StoreError>>()
        };
        let ids = match ids {
            Some(ids) => ids,
            None => self.store.read(picked)?,
        };
        let topics = match who {
            _ if !ids.is_empty() => ids.iter().map(|run| Topic::Run(*run)).collect(),
            Principal::Person => vec![Topic::All],
            who => vec![Topic::Owner(who.to_string())],
        };
        let listener = self.store.bells().listen(topics);
        let mut began = None;
        loop {
            let is_over = Instant::now() >= deadline;
            let waited = self.store.read(|connection| {
                // Who may not see them learns nothing from the wait.
                let began = match began {
                    Some(began) => began,
                    None => {
                        picked(connection)?;
                        *began.insert(last_seq(connection)?)
                    }
                };
                let look = look(connection, who, &ids, call.after.map(EventSeq), began)?;
                match look.outcome(call.until, !ids.is_empty()) {
                    None if !is_over => Ok(None),
                    outcome => self.waited(connection, who, &look, outcome.unwrap_or("timeout")).map(Some),
                }
            })?;
            if let Some(waited) = waited {
                return Ok(waited);
            }
            if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                continue;
            }
        }
    }

    /// Counts the runs that ended after a position, and finds the first that did not succeed.
    fn ended_beyond(&self, connection: &Connection, who: &Principal, mut after: Option<EventSeq>) -> Result<(u64, Option<RunView>), StoreError> {
        let owner = if *who == Principal::Person { None } else { Some(who) };
        let (mut count, mut failed) = (0, None);
        while let Some(from) = after {
            let part = ended_after(connection, owner, from, SHOWN_MAX)?;
            count += part.len() as u64;
            for run in &part {
                if failed.is_some() {
                    break;
                }
                // Only an acceptance command can still say no.
                let is_clear = run.state == RunState::Finished(Outcome::Succeeded) && measure_of(connection, run.id)?.1.is_empty();
                if !is_clear {
                    failed = Some(render::run(connection, &self.home, run)?).filter(|run| !run.has_succeeded());
                }
            }
            after = part.last().and_then(|run| run.end_seq);
        }
        Ok((count, failed))
    }

    fn waited(&self, connection: &Connection, who: &Principal, look: &Look, outcome: &str) -> Result<Waited, StoreError> {
        let (ended_more, failed) = self.ended_beyond(connection, who, look.more_after)?;
        let full = |runs: &[Run]| runs.iter().map(|run| render::run(connection, &self.home, run)).collect::<Result<Vec<_>, _>>();
        Ok(Waited {
            outcome: outcome.to_owned(),
            needs: look.needs.iter().map(render::request).collect(),
            ended: full(&look.ended)?,
            ended_more,
            failed: failed.map(Box::new),
            working: look.working.iter().take(SHOWN_MAX as usize).map(|run| render::brief(&self.home, run)).collect(),
            cursor: look.cursor.0,
        })
    }

    /// Reads the history after a position, waiting for more when there is none.
    ///
    /// # Errors
    /// The run is unknown or foreign.
    pub async fn events(&self, caller: &Caller, call: &ReadEvents) -> Result<EventPage, OpError> {
        let who = &caller.who;
        Self::check(who, Action::Events)?;
        let limit = call.limit.unwrap_or(EVENTS_DEFAULT).clamp(1, EVENTS_MAX);
        let run = match &call.run {
            Some(run) => Some(self.store.read(|connection| pick::run(connection, who, Action::See, run))?.id),
            None => None,
        };
        let topic = match (run, who) {
            (Some(run), _) => Topic::Run(run),
            (None, Principal::Person) => Topic::All,
            (None, who) => Topic::Owner(who.to_string()),
        };
        let listener = self.store.bells().listen(vec![topic]);
        let deadline = super::end_of_wait(call.wait_ms);
        loop {
            let (events, last) =
                self.store.read(|connection| Ok((events_after(connection, who, run, EventSeq(call.after), limit)?, last_seq(connection)?)))?;
            if !events.is_empty() || Instant::now() >= deadline {
                let cursor =
                    if events.len() < limit as usize { last.0.max(call.after) } else { events.last().map_or(call.after, |event| event.seq.0) };
                return Ok(EventPage { events: events.iter().map(render::event).collect(), cursor });
            }
            if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                continue;
            }
        }
    }
}

/// Looks at the runs of a wait: these, or all of `who`'s.
fn look(connection: &Connection, who: &Principal, runs: &[RunId], after: Option<EventSeq>, began: EventSeq) -> Result<Look, StoreError> {
    let owner = if *who == Principal::Person { None } else { Some(who) };
    // Told once: who waits on without a cursor is told of what happens from then on.
    let has_gone_silent = |run: &Run| run.noticed_seq() > Some(after.unwrap_or(began));
    let cursor = last_seq(connection)?;
    if runs.is_empty() {
        let ended = ended_after(connection, owner, after.unwrap_or(began), SHOWN_MAX)?;
        let unfinished = runs_newest(connection, owner, false, 2 * SHOWN_MAX)?.runs;
        let working: Vec<Run> = unfinished.into_iter().filter(|run| !matches!(run.state, RunState::Stopped { .. })).collect();
        let silent = working.iter().any(has_gone_silent);
        let more_after = ended.last().filter(|_| ended.len() == SHOWN_MAX as usize).and_then(|run| run.end_seq);
        return Ok(Look { silent, needs: open_requests(connection, who, false, SHOWN_MAX)?, ended, working, more_after, cursor });
    }
    let mut look = Look { silent: false, needs: Vec::new(), ended: Vec::new(), working: Vec::new(), more_after: None, cursor };
    for id in runs {
        // A run that was cleaned away meanwhile has ended, and was seen to.
        let Some(run) = run_by_id(connection, *id)? else { continue };
        if run.pending > 0 && !is_stopping(&run) && look.needs.len() < SHOWN_MAX as usize {
            look.needs.extend(requests_of(connection, run.id, false, SHOWN_MAX)?);
        }
        // What was delegated below it is answered where its own questions are.
        look.needs.extend(open_below(connection, run.id, SHOWN_MAX)?);
        match run.end_seq {
            Some(end) if after.is_none_or(|after| end > after) => look.ended.push(run),
            Some(_) => {}
            None => {
                look.silent |= has_gone_silent(&run);
                look.working.push(run);
            }
        }
    }
    look.needs.sort_by_key(|request| request.no);
    look.needs.dedup_by_key(|request| request.no);
    look.needs.truncate(SHOWN_MAX as usize);
    look.ended.sort_by_key(|run| run.end_seq);
    Ok(look)
}
