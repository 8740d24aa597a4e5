//! Delegations: starting the child run, and informing the requester of its end.

use super::handover::settled_text;
use super::ids::run_id;
use super::requests::{request_by_child, requests_below};
use super::{NewRun, Request, Run, StoreError, Topic, Tx, append_event, report_of, run_by_id};
use crate::store::db::{Connection, params};
use adjutant_core::run::Retention;
use adjutant_core::signal::Independence;
use adjutant_core::tree::TreeSize;
use adjutant_core::{EventKind, Principal, RunEvent, RunId, StopReason, Subject};

/// Maximum size of a child's result as its requester receives it, in bytes. The child's log has all of it.
const RESULT_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of generations that are traversed, whatever the configuration allows.
const GENERATIONS_MAX: usize = 1_000;

/// Measures the tree around a run.
///
/// # Errors
/// A failure of the store.
pub fn tree_size(connection: &Connection, run: &Run) -> Result<TreeSize, StoreError> {
    let count = |sql: &str, id: RunId| -> Result<u64, StoreError> {
        let count: i64 = connection
            .prepare_cached(sql)?
            .query_row([id.to_string()], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    let mut depth = 1;
    let mut above = run.parent;
    while let Some(parent) = above {
        depth += 1;
        above = run_by_id(connection, parent)?.and_then(|run| run.parent);
    }
    Ok(TreeSize {
        depth,
        children: count("SELECT count(*) FROM runs WHERE parent = ?1", run.id)?,
        live: count(
            "SELECT count(*) FROM runs WHERE root = ?1 AND state IN ('queued', 'starting', 'running', 'stopping')",
            run.root,
        )?,
        total: count("SELECT count(*) FROM runs WHERE root = ?1", run.root)?,
    })
}

/// Reads the ids of a run's children, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn children_of(connection: &Connection, run: RunId) -> Result<Vec<RunId>, StoreError> {
    let ids: Vec<String> = connection
        .prepare_cached("SELECT id FROM runs WHERE parent = ?1 ORDER BY no LIMIT 1000")?
        .query_map([run.to_string()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    ids.iter().map(|id| run_id(id)).collect()
}

/// Reads the ids of runs that answer in the chats of a root and that no run of its tree asked.
fn unrequested_answering_runs(
    connection: &Connection,
    root: RunId,
) -> Result<Vec<RunId>, StoreError> {
    let sql = "SELECT r.id FROM runs r JOIN chat_turns t ON t.run = r.id AND t.state = 'running'
         WHERE r.root = ?1 AND r.id <> ?1 AND r.parent IS NULL";
    let ids: Vec<String> = connection
        .prepare_cached(sql)?
        .query_map([root.to_string()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    ids.iter().map(|id| run_id(id)).collect()
}

/// Reads the open requests of everything below a run, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn open_below(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    let has_children: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs WHERE parent = ?1)")?
        .query_row([run.to_string()], |row| row.get(0))?;
    if has_children {
        requests_below(connection, run, limit)
    } else {
        Ok(Vec::new())
    }
}

impl Tx<'_> {
    /// Records that a run will be held by its delegation. Called before the request is settled, because a stopped
    /// run would otherwise resume at once.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn hold(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare(
            "UPDATE runs SET holding = holding + 1, active_ms = active_ms + larger(0, ?2 - coalesce(active_since, ?2)), active_since = NULL WHERE id = ?1",
        )?
        .run(params![run.to_string(), self.steady().0])?;
        Ok(())
    }

    /// Starts the child run of an approved delegation. `held`: the requester waits for it (see [`Tx::hold`]).
    /// Returns the updated request.
    ///
    /// # Errors
    /// The new run is rejected.
    pub fn start_delegated(
        &mut self,
        request: &Request,
        new: &NewRun,
        held: bool,
    ) -> Result<Request, StoreError> {
        let child = self.dispatch(new)?;
        self.prepare("UPDATE requests SET child = ?2, child_name = ?3, held = ?4 WHERE id = ?1")?
            .run(params![
                request.id.to_string(),
                child.id.to_string(),
                child.name,
                held
            ])?;
        Ok(Request {
            child: Some((child.id, child.name)),
            held,
            ..request.clone()
        })
    }

    /// Informs the requester of a delegated run of its end.
    pub(super) fn child_ended(
        &mut self,
        child: &Run,
        retention: Retention,
    ) -> Result<(), StoreError> {
        let Some(request) = request_by_child(self.connection(), child.id)? else {
            return Ok(());
        };
        let (report, _) = report_of(self.connection(), child.id)?;
        let details = report.map(|report| report.details());
        let last = child
            .summary
            .as_deref()
            .or(child.reconstructed.as_deref())
            .or(child.result.as_deref());
        let words = [last, details.as_deref()]
            .into_iter()
            .flatten()
            .map(str::trim)
            .filter(|words| !words.is_empty())
            .collect::<Vec<_>>()
            .join("\n");
        let adjutant_core::RunState::Finished(outcome) = child.state else {
            return Ok(());
        };
        let mut result = outcome.to_string();
        if !words.is_empty() {
            let end = (0..=RESULT_BYTES_MAX.min(words.len()))
                .rev()
                .find(|end| words.is_char_boundary(*end))
                .unwrap_or(0);
            result = format!("{result}: {}", &words[..end]);
            if end < words.len() {
                result.push_str(&format!("… ({} more bytes in its log)", words.len() - end));
            }
        }
        self.prepare("UPDATE requests SET outcome = ?2, held = 0 WHERE id = ?1")?
            .run(params![request.id.to_string(), result])?;
        let text = format!(
            "{} {}: {}",
            request.no,
            child.name,
            super::events::first_line(&result)
        );
        let by = Principal::Run(child.id).to_string();
        let seq = append_event(
            self,
            EventKind::DelegationEnded,
            request.run,
            &request.owner.to_string(),
            Some(request.id),
            &by,
            &text,
        )?;
        self.touch(request.run, seq)?;
        self.notify(Topic::Request(request.id));
        self.notify(Topic::Answer(request.run, request.id));
        let was_held = request.held;
        let request = Request {
            held: false,
            outcome: Some(result),
            ..request
        };
        if was_held {
            self.prepare(
                "UPDATE runs SET holding = holding - 1,
                 active_since = CASE WHEN state IN ('running', 'stopping') AND blocking_pending = 0 AND holding = 1 THEN ?2 END WHERE id = ?1",
            )?
            .run(params![request.run.to_string(), self.steady().0])?;
            self.schedule_estimate_check(request.run)?;
            self.notify(Topic::Queue);
            self.deliver_outcome(&request, retention)?;
            return self.resume_settled(request.run, true);
        }
        let requester = self.run(request.run)?;
        let goes_on = matches!(&request.subject, Subject::Delegation(delegation) if delegation.independence == Independence::Parallel);
        if goes_on && !requester.state.is_finished() {
            self.send_message(
                &requester,
                &Principal::Run(child.id),
                super::handover::message_id(self.now()),
                &settled_text(&request),
            )?;
        }
        Ok(())
    }

    /// Cancels all descendants of a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn cancel_below(
        &mut self,
        run: RunId,
        retention: Retention,
        by: &str,
    ) -> Result<(), StoreError> {
        let mut below = children_of(self.connection(), run)?;
        below.extend(unrequested_answering_runs(self.connection(), run)?);
        for _ in 0..GENERATIONS_MAX {
            let mut next = Vec::new();
            for id in below {
                let child = self.run(id)?;
                if !child.state.is_finished() {
                    self.advance(
                        &child,
                        RunEvent::StopAsked(StopReason::Cancelled),
                        retention,
                        by,
                        "with the run that it was delegated by",
                    )?;
                }
                next.extend(children_of(self.connection(), id)?);
            }
            if next.is_empty() {
                break;
            }
            below = next;
        }
        Ok(())
    }

    /// Wakes the waiters of the runs above this one.
    pub(super) fn notify_ancestors(&mut self, run: &Run) -> Result<(), StoreError> {
        let mut above = run.parent;
        while let Some(parent) = above {
            self.notify(Topic::Run(parent));
            above = run_by_id(self.connection(), parent)?.and_then(|run| run.parent);
        }
        Ok(())
    }
}
