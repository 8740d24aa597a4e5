//! Dependencies: runs that start only after others have ended.

use crate::store::db::{Connection, params};
use crate::store::ids::run_id;
use crate::store::{Run, StoreError, Topic, Tx, append_event, run_by_id};
use adjutant_core::attention::Shortfall;
use adjutant_core::cascade::{Cause, Step};
use adjutant_core::pool::{AFTER_MAX, AfterEnd, AfterFailed, AfterState, after_end};
use adjutant_core::{Denied, EventKind, Principal, RunId, RunState};

/// A run that another one starts after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterRow {
    pub run: RunId,
    pub on: AfterEnd,
    pub state: AfterState,
}

/// Reads the runs that a run starts after, the oldest first.
///
/// # Errors
/// A failure of the store.
pub fn after_of(connection: &Connection, run: RunId) -> Result<Vec<AfterRow>, StoreError> {
    let rows: Vec<(String, String, String)> = connection
        .prepare_cached(
            "SELECT after_run, on_end, state FROM run_after WHERE run = ?1 ORDER BY after_run",
        )?
        .read_rows([run.to_string()])?;
    let read = |(after, on, state): (String, String, String)| match (
        AfterEnd::from_word(&on),
        AfterState::from_word(&state),
    ) {
        (Some(on), Some(state)) => Ok(AfterRow {
            run: run_id(&after)?,
            on,
            state,
        }),
        _ => Err(StoreError::Corrupt(format!(
            "run {run}: the runs that it starts after"
        ))),
    };
    rows.into_iter().map(read).collect()
}

/// Reads the runs that a retry of a run starts after: those of the run that have not failed, and
/// the newest retries of the failed ones.
///
/// # Errors
/// A failure of the store.
pub fn after_for_retry(
    connection: &Connection,
    of: RunId,
) -> Result<Vec<(RunId, AfterEnd)>, StoreError> {
    let mut after = Vec::new();
    for AfterRow { run, on, state: _ } in after_of(connection, of)?
        .into_iter()
        .filter(|row| row.on != AfterEnd::Ports)
    {
        let Some(newest) = newest_retry(connection, run)? else {
            continue;
        };
        let has_failed = newest.state.is_finished()
            && after_end(on, has_succeeded(&newest)) == AfterState::Failed;
        // The caller retries the run although a run that it waited for has failed.
        if !has_failed && after.iter().all(|(other, _)| *other != newest.id) {
            after.push((newest.id, on));
        }
    }
    Ok(after)
}

/// Reads the newest retry of a run, or of its newest retry, or the run itself. `None`: it was
/// removed.
fn newest_retry(connection: &Connection, run: RunId) -> Result<Option<Run>, StoreError> {
    let Some(mut newest) = run_by_id(connection, run)? else {
        return Ok(None);
    };
    while newest.state.is_finished() && !has_succeeded(&newest) {
        match retry_of(connection, &newest)? {
            Some(retry) => newest = retry,
            None => break,
        }
    }
    Ok(Some(newest))
}

/// Reads the newest run that retries or follows a run, or one that does. Returns the run itself if
/// there is none.
///
/// # Errors
/// A failure of the store.
pub fn newest_follower(connection: &Connection, run: Run) -> Result<Run, StoreError> {
    let mut newest = run;
    while let Some(next) = retry_of(connection, &newest)? {
        newest = next;
    }
    Ok(newest)
}

/// Reads the newest run that retries or follows a run. It is younger, so that a chain of them ends.
fn retry_of(connection: &Connection, run: &Run) -> Result<Option<Run>, StoreError> {
    let sql = "SELECT id FROM runs WHERE retry_of = ?1 AND no > (SELECT no FROM runs WHERE id = ?1) ORDER BY no DESC LIMIT 1";
    let retry: Option<String> = connection
        .prepare_cached(sql)?
        .find_row([run.id.to_string()])?;
    Ok(retry
        .map(|retry| run_by_id(connection, run_id(&retry)?))
        .transpose()?
        .flatten())
}

/// Returns whether a run has succeeded, and its report is not contradicted.
fn has_succeeded(run: &Run) -> bool {
    matches!(
        run.state,
        RunState::Finished(adjutant_core::Outcome::Succeeded)
    ) && !run.shortfall.is_some_and(Shortfall::fails)
}

/// Lets a run (`?1`) wait for another one.
const ADD_AFTER: &str =
    "INSERT INTO run_after (run, after_run, on_end, state) VALUES (?1, ?2, ?3, ?4)
  ON CONFLICT (run, after_run) DO UPDATE SET on_end = ?3, state = ?4";

impl Tx<'_> {
    /// Lets a queued run start only after a live run has released its ports. Returns whether there
    /// is one.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn wait_for_ports(&mut self, run: &Run, count: u16) -> Result<bool, StoreError> {
        let Some(holder) = port_holder(self, run)? else {
            return Ok(false);
        };
        self.prepare(ADD_AFTER)?.run([
            run.id.to_string().as_str(),
            &holder,
            AfterEnd::Ports.word(),
            AfterState::Open.word(),
        ])?;
        count_open_after(self, run.id)?;
        let holder = self.run(run_id(&holder)?)?;
        note_queue_change(
            self,
            run,
            "hub",
            &format!(
                "no {count} ports in a row are free: it starts after {}",
                holder.name
            ),
        )?;
        Ok(true)
    }

    /// Returns whether a live run has ports for which a run may wait.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn has_port_holder(&self, run: &Run) -> Result<bool, StoreError> {
        Ok(port_holder(self, run)?.is_some())
    }

    /// Lets a queued run start although runs that it waits for have failed. Returns whether there
    /// were any.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn release_held(&mut self, run: &Run, by: &Principal) -> Result<bool, StoreError> {
        let released = self
            .prepare("UPDATE run_after SET state = 'met' WHERE run = ?1 AND state = 'failed'")?
            .execute([run.id.to_string()])?;
        if released == 0 {
            return Ok(false);
        }
        count_open_after(self, run.id)?;
        note_queue_change(
            self,
            run,
            &by.to_string(),
            "starts although a run that it waited for has failed",
        )?;
        Ok(true)
    }

    /// Makes all dependents of a run wait for its retry. Called before the run ends, so that
    /// nothing is cancelled.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn wait_for_retry(&mut self, of: &Run, retry: RunId) -> Result<(), StoreError> {
        let waiting: Vec<String> = self
            .prepare(
                "SELECT a.run FROM run_after a JOIN runs r ON r.id = a.run
                 WHERE a.after_run = ?1 AND a.on_end <> ?2 AND a.state <> 'met' AND r.state <> 'finished'",
            )?
            .read_rows([of.id.to_string().as_str(), AfterEnd::Ports.word()])?;
        for run in waiting {
            self.prepare("UPDATE run_after SET after_run = ?3, state = 'open' WHERE run = ?1 AND after_run = ?2")?.run([
                run.as_str(),
                &of.id.to_string(),
                &retry.to_string(),
            ])?;
            let run = count_open_after(self, run_id(&run)?)?;
            note_queue_change(
                self,
                &run,
                "hub",
                &format!("waits for the retry of {}", of.name),
            )?;
        }
        Ok(())
    }
}

/// Lets a queued run start only after others.
///
/// # Errors
/// Too many, a cycle, or a needed run that has failed already.
pub(in crate::store) fn start_after(
    tx: &mut Tx<'_>,
    run: &Run,
    after: &[(RunId, AfterEnd)],
    failed: AfterFailed,
) -> Result<Run, StoreError> {
    if after.len() > AFTER_MAX {
        return Err(Denied::Limit {
            what: "runs that one run waits for",
            limit: AFTER_MAX as u64,
        }
        .into());
    }
    for (other, on) in after {
        let other = tx.run(*other)?;
        if waits_for(tx, other.id, run.id)? {
            return Err(Denied::invalid(
                "after",
                format!(
                    "{} waits for {}, so neither would start",
                    other.name, run.name
                ),
            )
            .into());
        }
        let state = if other.state.is_finished() {
            after_end(*on, has_succeeded(&other))
        } else {
            AfterState::Open
        };
        if state == AfterState::Failed && failed == AfterFailed::Cancel {
            let problem = format!(
                "{} did not succeed; to start after any end use {}:any",
                other.name, other.name
            );
            return Err(Denied::invalid("after", problem).into());
        }
        tx.prepare(ADD_AFTER)?.run(params![
            run.id.to_string(),
            other.id.to_string(),
            on.word(),
            state.word()
        ])?;
    }
    tx.prepare("UPDATE runs SET after_failed = ?2 WHERE id = ?1")?
        .run(params![run.id.to_string(), failed.word()])?;
    count_open_after(tx, run.id)
}

fn port_holder(tx: &Tx<'_>, run: &Run) -> Result<Option<String>, StoreError> {
    // The waiting runs are spread over the live ones, so that few are retried at a time. The
    // run's ancestors are excluded, because they may wait for it.
    let sql =
        "WITH RECURSIVE above (id) AS (SELECT ?1 UNION SELECT r.parent FROM runs r JOIN above ON r.id = above.id WHERE r.parent IS NOT NULL)
        SELECT id FROM runs INDEXED BY runs_live WHERE state IN ('starting', 'running', 'stopping') AND port_base IS NOT NULL
        AND id NOT IN (SELECT id FROM above)
        ORDER BY (SELECT count(*) FROM run_after WHERE after_run = runs.id AND state = 'open'), no LIMIT 1";
    Ok(tx.prepare(sql)?.find_row([run.id.to_string()])?)
}

/// Returns whether a run waits for another, also through others.
fn waits_for(tx: &Tx<'_>, run: RunId, other: RunId) -> Result<bool, StoreError> {
    // No run waits for a new run, so the usual case costs one seek.
    let sql = "SELECT EXISTS (SELECT 1 FROM run_after WHERE after_run = ?2) AND EXISTS (
         WITH RECURSIVE waited (id) AS (SELECT ?1 UNION SELECT after_run FROM run_after JOIN waited ON run = id WHERE state <> 'met')
         SELECT 1 FROM waited WHERE id = ?2)";
    Ok(tx
        .prepare(sql)?
        .read_row([run.to_string(), other.to_string()])?)
}

/// Counts what a run waits for, and records whether it is held: since its newest event, if it
/// was not held before. Returns the run.
fn count_open_after(tx: &mut Tx<'_>, run: RunId) -> Result<Run, StoreError> {
    let before = tx.run(run)?;
    tx.note_queued(&before, before.state, -1);
    tx.prepare(
        "UPDATE runs SET after_open = (SELECT count(*) FROM run_after WHERE run = ?1 AND state <> 'met'),
         end_seq = CASE WHEN state <> 'queued' THEN end_seq
                        WHEN EXISTS (SELECT 1 FROM run_after WHERE run = ?1 AND state = 'failed') THEN coalesce(end_seq, last_seq) END
         WHERE id = ?1",
    )?
    .run([run.to_string()])?;
    let run = tx.run(run)?;
    tx.note_queued(&run, run.state, 1);
    Ok(run)
}

/// Lets runs start that waited for the ports of a run that is no longer live.
///
/// # Errors
/// A failure of the store.
pub(in crate::store) fn wake_port_waiters(tx: &mut Tx<'_>, holder: &Run) -> Result<(), StoreError> {
    let waiting: Vec<String> = tx
        .prepare("UPDATE run_after SET state = 'met' WHERE after_run = ?1 AND on_end = ?2 AND state = 'open' RETURNING run")?
        .read_rows([holder.id.to_string().as_str(), AfterEnd::Ports.word()])?;
    for run in waiting {
        let run = count_open_after(tx, run_id(&run)?)?;
        if !run.state.is_finished() {
            note_queue_change(
                tx,
                &run,
                "hub",
                &format!("{} no longer needs its ports", holder.name),
            )?;
        }
    }
    Ok(())
}

/// Reads the runs that are to start after an ended run. Empty: it has not finished.
pub(in crate::store) fn open_dependents(
    tx: &Tx<'_>,
    ended: RunId,
) -> Result<Vec<RunId>, StoreError> {
    let waiting: Vec<String> = tx
        .prepare("SELECT run FROM run_after WHERE after_run = ?1 AND state = 'open'")?
        .read_rows([ended.to_string()])?;
    if waiting.is_empty() || !tx.run(ended)?.state.is_finished() {
        return Ok(Vec::new());
    }
    waiting.iter().map(|run| run_id(run)).collect()
}

/// Records what the end of a run means for one that was to start after it. If that is to be
/// cancelled, this is named.
pub(in crate::store) fn depend(tx: &mut Tx<'_>, run: RunId, on: RunId) -> Result<(), StoreError> {
    let ended = tx.run(on)?;
    let RunState::Finished(outcome) = ended.state else {
        return Ok(());
    };
    let on_end: Option<String> = tx
        .prepare("SELECT on_end FROM run_after WHERE run = ?1 AND after_run = ?2")?
        .find_row([run.to_string(), on.to_string()])?;
    let Some(on_end) = on_end else { return Ok(()) };
    let on_end = AfterEnd::from_word(&on_end)
        .ok_or_else(|| StoreError::Corrupt(format!("run {run}: the runs that it starts after")))?;
    let state = after_end(on_end, has_succeeded(&ended));
    tx.prepare("UPDATE run_after SET state = ?3 WHERE run = ?1 AND after_run = ?2")?
        .run([
            run.to_string().as_str(),
            &ended.id.to_string(),
            state.word(),
        ])?;
    let was_held = tx.run(run)?.is_held();
    let run = count_open_after(tx, run)?;
    if run.state.is_finished() {
        return Ok(());
    }
    let what = match ended.shortfall {
        Some(shortfall) => format!("{} ended: {}", ended.name, shortfall.word()),
        None => format!("{} ended: {outcome}", ended.name),
    };
    match (state, run.after_failed) {
        (AfterState::Failed, AfterFailed::Cancel) => {
            let why = format!("dependency {} failed", ended.name);
            tx.set_detail(run.id, &why)?;
            tx.then(Step::Cancel {
                run: run.id,
                cause: Cause::hub(why),
            });
            tx.then(Step::CancelBelow {
                run: run.id,
                by: "hub".to_owned(),
            });
            Ok(())
        }
        (AfterState::Failed, AfterFailed::Hold) => {
            let kind = if was_held {
                EventKind::RunQueueChanged
            } else {
                EventKind::RunHeld
            };
            append_queue_event(tx, kind, &run, "hub", &format!("held: {what}"))?;
            // Wakes a waiter that has seen everything before this event.
            tx.prepare("UPDATE runs SET end_seq = last_seq WHERE id = ?1 AND state = 'queued'")?
                .run([run.id.to_string()])
                .map(drop)
                .map_err(StoreError::from)
        }
        (AfterState::Met | AfterState::Open, _) => {
            let rest = if run.after_open == 0 {
                String::new()
            } else {
                format!("; waits for {} more", run.after_open)
            };
            note_queue_change(tx, &run, "hub", &format!("{what}{rest}"))
        }
    }
}

/// Records a change of how a queued run waits.
pub(in crate::store) fn note_queue_change(
    tx: &mut Tx<'_>,
    run: &Run,
    by: &str,
    text: &str,
) -> Result<(), StoreError> {
    append_queue_event(tx, EventKind::RunQueueChanged, run, by, text)
}

fn append_queue_event(
    tx: &mut Tx<'_>,
    kind: EventKind,
    run: &Run,
    by: &str,
    text: &str,
) -> Result<(), StoreError> {
    let seq = append_event(tx, kind, run.id, &run.owner.to_string(), None, by, text)?;
    tx.touch(run.id, seq)?;
    tx.notify(Topic::Queue);
    Ok(())
}

/// A run that another one waits for, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitedRun {
    pub name: String,
    pub on: AfterEnd,
    pub state: AfterState,
}

/// Reads the runs that a run waits for.
///
/// # Errors
/// A failure of the store.
pub fn waited_runs(connection: &Connection, run: RunId) -> Result<Vec<WaitedRun>, StoreError> {
    let mut names = Vec::new();
    for row in after_of(connection, run)?
        .into_iter()
        .filter(|row| row.state != AfterState::Met)
    {
        let name =
            run_by_id(connection, row.run)?.map_or_else(|| row.run.to_string(), |run| run.name);
        names.push(WaitedRun {
            name,
            on: row.on,
            state: row.state,
        });
    }
    Ok(names)
}
