//! Reading a run's log through the hub: from its own home, or through the runner that has the log.

use super::{OpError, Ops, lookup};
use crate::logs::page::{RunLog, has_moved, is_plausible, since_of};
use crate::logs::watch::Watch;
use crate::store::{Run, Subscription, Topic, attempt_row, run_by_id, runner_name};
use crate::view::{LogPage, ReadLogs};
use adjutant_core::{Action, AttemptNo, Denied, Principal};
use std::time::Duration;
use tokio::time::Instant;

/// The longest wait for output at a runner, after which the hub asks again.
const RUNNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long a runner may take to answer, in addition to the wait.
const RUNNER_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

impl Ops {
    /// Reads a part of a run's log, optionally waiting for output.
    ///
    /// # Errors
    /// Unknown or foreign, or the file cannot be read.
    pub async fn logs(&self, who: &Principal, call: &ReadLogs) -> Result<LogPage, OpError> {
        let run = self.store.read(|connection| lookup::run(connection, who, Action::Logs, &call.run))?;
        page(self, &run, call).await
    }
}

/// Reads one page, waiting for output if there is none yet.
async fn page(ops: &Ops, run: &Run, call: &ReadLogs) -> Result<LogPage, OpError> {
    let deadline = super::end_of_wait(call.wait_ms);
    let subscription = ops.store().wake_ups().subscribe(vec![Topic::Run(run.id)]);
    since_of(call).ok_or_else(|| Denied::invalid("since", "use a time such as 2026-11-21T04:00:00Z"))?;
    let mut watch: Option<Watch> = None;
    loop {
        let log = current(ops, run)?;
        if let Some(host) = host_of(ops, run, log.attempt)? {
            let Some(page) = page_of_runner(ops, &host, run, &log, call, (deadline, &subscription)).await? else { continue };
            return Ok(LogPage { name: run.name.clone(), ..page });
        }
        // Watch before reading, so that output written after the read is noticed.
        if let Some(watch) = &mut watch {
            log.watch(call, watch);
        }
        let (reading, wanted) = (log.clone(), call.clone());
        let page = tokio::task::spawn_blocking(move || reading.page(&wanted))
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
            .map_err(|error| OpError::Io(error.to_string()))?;
        if has_moved(&page, call) || log.ended || Instant::now() >= deadline {
            return Ok(LogPage { name: run.name.clone(), ..page });
        }
        let Some(watch) = &watch else {
            watch = Some(Watch::new());
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => {}
            () = subscription.wait() => {}
            () = watch.changed() => {}
        }
    }
}

/// Returns the log of a run as it is now. A resumed run has a new attempt.
fn current(ops: &Ops, run: &Run) -> Result<RunLog, OpError> {
    let now = ops.store().read(|connection| run_by_id(connection, run.id))?;
    let ended = now.as_ref().is_none_or(|run| run.end_seq.is_some() && !run.is_held());
    let attempt = now.as_ref().unwrap_or(run).attempt.0.max(1);
    Ok(RunLog { home: ops.home().dir.clone(), run_id: run.id.to_string(), attempt, ended })
}

/// Returns the runner that has an attempt. `None`: the hub's own machine.
fn host_of(ops: &Ops, run: &Run, attempt: u32) -> Result<Option<String>, OpError> {
    Ok(ops.store().read(|connection| attempt_row(connection, run.id, AttemptNo(attempt)))?.and_then(|row| row.host))
}

/// Reads a page through the runner that has the log. `None`: there is nothing new yet, or the run has changed.
async fn page_of_runner(
    ops: &Ops,
    host: &str,
    run: &Run,
    log: &RunLog,
    call: &ReadLogs,
    (deadline, subscription): (Instant, &Subscription),
) -> Result<Option<LogPage>, OpError> {
    let wait = if log.ended { Duration::ZERO } else { deadline.saturating_duration_since(Instant::now()).min(RUNNER_WAIT_MAX) };
    let wanted = ReadLogs { wait_ms: u64::try_from(wait.as_millis()).unwrap_or(0), ..call.clone() };
    let attempt = format!("{}/{}", log.run_id, log.attempt);
    let arrivals = ops.runners.arrivals();
    let arrival = arrivals.notified();
    tokio::pin!(arrival);
    arrival.as_mut().enable();
    let Some(mut answer) = ops.ask_runner_for_log(host, attempt, wanted, log.ended)? else {
        if log.ended || Instant::now() >= deadline {
            return Ok(Some(page_elsewhere(host, log, call, "is not connected")));
        }
        tokio::select! {
            () = arrival => {}
            () = subscription.wait() => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
        return Ok(None);
    };
    let waited = Instant::now() + wait;
    loop {
        tokio::select! {
            answered = &mut answer => return match answered {
                Ok(Ok(page)) if !is_plausible(&page, call) => {
                    Err(OpError::Io(format!("the runner {} has sent a page that does not fit the call", runner_name(host))))
                }
                Ok(Ok(page)) if has_moved(&page, call) || log.ended || Instant::now() >= deadline => {
                    // Only the text and the positions are the runner's to tell.
                    Ok(Some(LogPage { run_id: log.run_id.clone(), path: String::new(), paths: Vec::new(), ended: log.ended && page.next >= page.total, ..page }))
                }
                Ok(Ok(_)) => {
                    // It has waited for output itself, unless it is faulty.
                    tokio::select! {
                        () = subscription.wait() => {}
                        () = tokio::time::sleep_until(waited) => {}
                    }
                    Ok(None)
                }
                Ok(Err(problem)) => Err(OpError::Io(format!("the runner {}: {problem}", runner_name(host)))),
                // Its session has ended.
                Err(_) => Ok(None),
            },
            () = subscription.wait() => {
                let now = current(ops, run)?;
                if (now.ended, now.attempt) != (log.ended, log.attempt) {
                    return Ok(None);
                }
            }
            () = tokio::time::sleep_until(waited + RUNNER_ANSWERS_WITHIN) => return Ok(Some(page_elsewhere(host, log, call, "does not answer"))),
        }
    }
}

/// Returns a page that says where the log is. A caller that follows the log keeps its position.
fn page_elsewhere(host: &str, log: &RunLog, call: &ReadLogs, why: &str) -> LogPage {
    let path = log.path(call);
    let file = path.file_name().unwrap_or_default().display();
    let at = call.after.unwrap_or(0);
    LogPage {
        run_id: log.run_id.clone(),
        ended: log.ended,
        text: format!("the runner {} {why}; the log is in its home: logs/{file}\n", runner_name(host)),
        from: at,
        next: at,
        total: at,
        times: call.times.then(Vec::new),
        ..LogPage::default()
    }
}
