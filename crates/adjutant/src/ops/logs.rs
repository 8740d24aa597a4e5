//! Reading a run's log through the hub: from its own home, or through the runner that has the log.

use super::error::LogProblem;
use super::runners::{LogAsked, READS_MAX};
use super::{OpError, Ops, lookup};
use crate::logs::page::{RunLog, has_moved, is_plausible, since_of};
use crate::store::{Run, Subscription, Topic, attempt_row, run_by_id, runner_name};
use crate::view::{LogPage, ReadLogs};
use adjutant_core::{Action, AttemptNo, Denied, Principal};
use std::time::Duration;
use tokio::time::Instant;

/// The longest wait for output at a runner, after which the hub asks again.
const RUNNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long a runner may take to answer, in addition to the wait.
const RUNNER_ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// How long a runner that is not connected may take to return. After a start of the hub, no runner is connected for a moment.
const RUNNER_RETURNS_WITHIN: Duration = Duration::from_secs(5);

impl Ops {
    /// Reads a part of a run's log, optionally waiting for output.
    ///
    /// # Errors
    /// Unknown or foreign, the file cannot be read, or the runner that has it is away.
    pub async fn logs(&self, who: &Principal, call: &ReadLogs) -> Result<LogPage, OpError> {
        let run = self.store.read(|connection| lookup::run(connection, who, Action::Logs, &call.run))?;
        page(self, &run, call).await
    }
}

/// Reads one page, waiting for output if there is none yet.
async fn page(ops: &Ops, run: &Run, call: &ReadLogs) -> Result<LogPage, OpError> {
    let reading = Reading { ops, run, call, deadline: super::end_of_wait(call.wait_ms), returns_until: Instant::now() + RUNNER_RETURNS_WITHIN };
    let subscription = ops.store().wake_ups().subscribe(vec![Topic::Run(run.id)]);
    since_of(call).ok_or_else(|| Denied::invalid("since", "use a time such as 2026-11-21T04:00:00Z"))?;
    loop {
        let log = current(ops, run)?;
        let page = match host_of(ops, run, log.attempt)? {
            Some(host) => reading.through_runner(&host, &log, &subscription).await?,
            None => log.next_page(call, reading.deadline, subscription.wait()).await.map_err(|error| OpError::Io(error.to_string()))?,
        };
        if let Some(page) = page {
            return Ok(LogPage { name: run.name.clone(), ..page });
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

/// A call that reads a log.
struct Reading<'a> {
    ops: &'a Ops,
    run: &'a Run,
    call: &'a ReadLogs,
    deadline: Instant,
    /// Until when a runner that is not connected may return, even if the call does not wait.
    returns_until: Instant,
}

impl Reading<'_> {
    /// Reads a page through the runner that has the log. `None`: there is nothing new yet, or the run has changed.
    async fn through_runner(&self, host: &str, log: &RunLog, subscription: &Subscription) -> Result<Option<LogPage>, OpError> {
        let Self { ops, run, call, deadline, returns_until } = *self;
        let wait = if log.ended { Duration::ZERO } else { deadline.saturating_duration_since(Instant::now()).min(RUNNER_WAIT_MAX) };
        let wanted = ReadLogs { wait_ms: u64::try_from(wait.as_millis()).unwrap_or(0), ..call.clone() };
        let attempt = format!("{}/{}", log.run_id, log.attempt);
        let arrivals = ops.runners.arrivals();
        let arrival = arrivals.notified();
        tokio::pin!(arrival);
        arrival.as_mut().enable();
        let mut answer = match ops.runners.ask_for_log(host, attempt, wanted, log.ended) {
            LogAsked::Waiting(answer) => answer,
            LogAsked::TooMany => return Err(self.problem(host, log, LogProblem::TooManyReads(READS_MAX))),
            LogAsked::Away => {
                let returns_until = deadline.max(returns_until);
                if Instant::now() >= returns_until {
                    return self.without(host, log, LogProblem::NotConnected);
                }
                tokio::select! {
                    () = arrival => {}
                    () = subscription.wait() => {}
                    () = tokio::time::sleep_until(returns_until) => {}
                }
                return Ok(None);
            }
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
                () = tokio::time::sleep_until(waited + RUNNER_ANSWERS_WITHIN) => return self.without(host, log, LogProblem::NoAnswer),
            }
        }
    }

    /// Returns the result of a call whose runner is away. A caller that follows the log of a live run gets no output and continues.
    fn without(&self, host: &str, log: &RunLog, problem: LogProblem) -> Result<Option<LogPage>, OpError> {
        match self.call.after {
            Some(at) if self.call.wait_ms > 0 && !log.ended => {
                let times = self.call.times.then(Vec::new);
                Ok(Some(LogPage { run_id: log.run_id.clone(), from: at, next: at, total: at, times, ..LogPage::default() }))
            }
            _ => Err(self.problem(host, log, problem)),
        }
    }

    fn problem(&self, host: &str, log: &RunLog, problem: LogProblem) -> OpError {
        let file = log.path(self.call).file_name().unwrap_or_default().display().to_string();
        OpError::LogOnRunner { run: self.run.name.clone(), runner: runner_name(host).to_owned(), file, problem }
    }
}
