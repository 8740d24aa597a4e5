//! Reading a run's log through the hub: from its own home, or through the runner that has the log.

use super::error::LogProblem;
use super::runner_sessions::{LogAsked, READS_MAX};
use super::{OpError, Ops, lookup};
use crate::logs::RunFiles;
use crate::logs::kept::AttemptLogs;
use crate::logs::page::{RunLog, has_moved, is_plausible, since_of};
use crate::logs::stored::{StoredAttempt, Unreadable};
use crate::store::{Run, Subscription, Topic, hosts_of, run_by_id, runner_name};
use crate::view::{LogPage, MissingLog, ReadLogs};
use adjutant_core::{Action, Denied, Principal};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest wait for output at a runner, after which the hub asks again.
const RUNNER_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long a runner may take to answer, in addition to the wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a runner that is not connected may take to return. After a start of the hub, no runner
/// is connected for a moment.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a part of a run's log, optionally waiting for output.
///
/// # Errors
/// Unknown or foreign, the file cannot be read, or the runner that has it is unreachable.
pub async fn read_logs(ops: &Ops, who: &Principal, call: &ReadLogs) -> Result<LogPage, OpError> {
    let run = ops
        .store
        .read(|connection| lookup::run(connection, who, Action::Logs, &call.run))?;
    page(ops, &run, call).await
}

/// Reads one page, waiting for output if there is none yet.
async fn page(ops: &Ops, run: &Run, call: &ReadLogs) -> Result<LogPage, OpError> {
    let reading = Reading {
        ops,
        run,
        call,
        deadline: super::end_of_wait(call.wait_ms),
        returns_until: Instant::now() + RETURN_TIMEOUT,
    };
    let subscription = ops.store().wake_ups().subscribe(vec![Topic::Run(run.id)]);
    since_of(call)
        .ok_or_else(|| Denied::invalid("since", "use a time such as 2026-11-21T04:00:00Z"))?;
    loop {
        let now = current(ops, run)?;
        let places = Places::of(ops, run, now.attempt).await?;
        let files = RunFiles {
            stored: places.stored,
            ..now.files
        };
        let log = RunLog {
            files,
            first: places.first,
            ..now
        };
        let page = match &places.newest {
            Some(host) => reading.through_runner(host, &log, &subscription).await?,
            None => log
                .next_page(call, reading.deadline, subscription.wait())
                .await
                .map_err(|error| unreadable(run, error))?,
        };
        // The files may have been moved while they were read.
        if has_stored_more(&log)? {
            continue;
        }
        if let Some(page) = page {
            return Ok(LogPage {
                name: run.name.clone(),
                missing: places.missing,
                ..page
            });
        }
    }
}

/// Returns the log of a run as it is now. A resumed run has a new attempt.
fn current(ops: &Ops, run: &Run) -> Result<RunLog, OpError> {
    let now = ops
        .store()
        .read(|connection| run_by_id(connection, run.id))?;
    let ended = now
        .as_ref()
        .is_none_or(|run| run.end_seq.is_some() && !run.is_held());
    let attempt = now.as_ref().unwrap_or(run).attempt.0.max(1);
    Ok(RunLog {
        files: RunFiles::in_home(&ops.home().dir, &run.id.to_string()),
        first: 1,
        attempt,
        ended,
    })
}

/// Returns whether logs were moved to the log store that were to be read from the home.
fn has_stored_more(log: &RunLog) -> Result<bool, OpError> {
    let RunFiles {
        home,
        run_id,
        stored,
    } = &log.files;
    for attempt in (1..=log.attempt).filter(|attempt| !stored.contains_key(attempt)) {
        let logs = AttemptLogs {
            home: home.clone(),
            run_id: run_id.clone(),
            attempt,
        };
        if logs.moved().map_err(of_disk)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the problem of a log that cannot be read.
fn unreadable(run: &Run, error: std::io::Error) -> OpError {
    let of_store = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Unreadable>());
    match of_store {
        Some(problem) => OpError::LogStore {
            run: run.name.clone(),
            problem: problem.to_string(),
        },
        None => of_disk(error),
    }
}

fn of_disk(error: std::io::Error) -> OpError {
    OpError::Io(error.to_string())
}

/// Where the logs of a run's attempts are.
struct Places {
    /// The attempts whose logs are in the log store.
    stored: BTreeMap<u32, Arc<StoredAttempt>>,
    /// The runner with the log of the newest attempt. `None`: the hub has it.
    newest: Option<String>,
    /// The first of the attempts up to the newest one that were all on that runner.
    first: u32,
    /// Earlier attempts whose logs are only on other runners.
    missing: Vec<MissingLog>,
}

impl Places {
    async fn of(ops: &Ops, run: &Run, newest: u32) -> Result<Self, OpError> {
        let hosts = ops
            .store()
            .read(|connection| hosts_of(connection, run.id))?;
        let host_of = |n: u32| {
            hosts
                .iter()
                .find(|(attempt, _)| attempt.0 == n)
                .map(|(_, host)| host)
        };
        let (mut stored, mut unkept) = (BTreeMap::new(), Vec::new());
        for attempt in 1..=newest {
            let (logs, host) = (
                AttemptLogs {
                    home: ops.home().dir.clone(),
                    run_id: run.id.to_string(),
                    attempt,
                },
                host_of(attempt),
            );
            if let Some(found) = ops
                .log_store
                .stored(run, &logs, host.map(String::as_str), &ops.sessions)
                .await?
            {
                stored.insert(attempt, found);
            } else if let Some(host) = host
                && !logs.are_kept().map_err(of_disk)?
            {
                unkept.push((attempt, host));
            }
        }
        let host = unkept
            .last()
            .filter(|(attempt, _)| *attempt == newest)
            .map(|(_, host)| (*host).clone());
        let is_elsewhere = |n: &u32| host.is_some() && host_of(*n) != host.as_ref();
        let first = (1..=newest)
            .rev()
            .take_while(|n| !is_elsewhere(n))
            .last()
            .unwrap_or(newest);
        let is_missing = |(attempt, _): &&(u32, &String)| host.is_none() || *attempt < first;
        let missing = unkept
            .iter()
            .filter(is_missing)
            .map(|(attempt, host)| MissingLog {
                attempt: *attempt,
                runner: runner_name(host).to_owned(),
            });
        Ok(Self {
            stored,
            missing: missing.collect(),
            newest: host,
            first,
        })
    }
}

/// A call that reads a log.
#[derive(Clone, Copy)]
struct Reading<'a> {
    ops: &'a Ops,
    run: &'a Run,
    call: &'a ReadLogs,
    deadline: Instant,
    /// Until when a runner that is not connected may return, even if the call does not wait.
    returns_until: Instant,
}

impl Reading<'_> {
    /// Reads a page through the runner that has the end of the log, from its first attempt on.
    /// `None`: there is nothing new yet, or the run has changed.
    async fn through_runner(
        &self,
        host: &str,
        log: &RunLog,
        subscription: &Subscription,
    ) -> Result<Option<LogPage>, OpError> {
        // The positions continue those of the attempts that the hub has.
        let (before, start) = match log.first - 1 {
            0 => (0, None),
            attempt => {
                self.in_home(&RunLog {
                    first: 1,
                    attempt,
                    ended: true,
                    ..log.clone()
                })
                .await?
            }
        };
        if start.is_some() {
            return Ok(start);
        }
        let from = |after: u64| after.saturating_sub(before);
        let call = &ReadLogs {
            after: self
                .call
                .after
                .map(from)
                .or((self.call.grep.is_some() && before > 0).then_some(0)),
            ..self.call.clone()
        };
        let page = Reading { call, ..*self }
            .at_runner(host, log, subscription)
            .await?;
        Ok(page.map(|page| LogPage {
            from: page.from + before,
            next: page.next + before,
            total: page.total + before,
            ..page
        }))
    }

    /// Returns the length of the log in the home, and a page of it if the call begins there.
    async fn in_home(&self, log: &RunLog) -> Result<(u64, Option<LogPage>), OpError> {
        let (log, call, files) = (log.clone(), self.call.clone(), log.files.clone());
        let read = move || {
            let after = call.after.or(call.grep.is_some().then_some(0));
            let page = log.page(&ReadLogs {
                after: after.or(Some(u64::MAX >> 12)),
                ..call
            })?;
            let is_part = after.is_some_and(|after| after < page.total);
            // At least a byte follows, on the runner.
            let more = LogPage {
                ended: false,
                total: page.total + 1,
                ..page.clone()
            };
            Ok::<_, std::io::Error>((page.total, is_part.then_some(more)))
        };
        let _admitted = files.admit_reader().await;
        let read = tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?;
        read.map_err(|error| unreadable(self.run, error))
    }

    /// Asks the runner for a page. `None`: there is nothing new yet, or the run has changed.
    async fn at_runner(
        &self,
        host: &str,
        log: &RunLog,
        subscription: &Subscription,
    ) -> Result<Option<LogPage>, OpError> {
        let wait = self.wait_at_runner(log);
        let wanted = ReadLogs {
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(0),
            ..self.call.clone()
        };
        let attempt = format!("{}/{}", log.files.run_id, log.attempt);
        let runners = &self.ops.sessions;
        let arrivals = runners.arrivals();
        let arrival = arrivals.notified();
        tokio::pin!(arrival);
        arrival.as_mut().enable();
        let mut answer = match runners.ask_for_log(host, attempt, log.first, wanted, log.ended) {
            LogAsked::Waiting(answer) => answer,
            LogAsked::TooMany => {
                return Err(self.problem(host, log, LogProblem::TooManyReads(READS_MAX)));
            }
            LogAsked::NotConnected => {
                let returns_until = self.deadline.max(self.returns_until);
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
        let answered = loop {
            tokio::select! {
                answered = &mut answer => break answered,
                () = subscription.wait() => {
                    let now = current(self.ops, self.run)?;
                    if (now.ended, now.attempt) != (log.ended, log.attempt) {
                        return Ok(None);
                    }
                }
                () = tokio::time::sleep_until(waited + ANSWER_TIMEOUT) => return self.without(host, log, LogProblem::NoAnswer),
            }
        };
        // Its session has ended.
        let Ok(page) = answered else { return Ok(None) };
        let page = page.map_err(|problem| {
            OpError::Io(format!("the runner {}: {problem}", runner_name(host)))
        })?;
        if let Some(page) = self.new_page(host, log, page)? {
            return Ok(Some(page));
        }
        // It has waited for output itself, unless it is faulty.
        tokio::select! {
            () = subscription.wait() => {}
            () = tokio::time::sleep_until(waited) => {}
        }
        Ok(None)
    }

    /// Returns how long the runner may wait for output.
    fn wait_at_runner(&self, log: &RunLog) -> Duration {
        if log.ended {
            return Duration::ZERO;
        }
        self.deadline
            .saturating_duration_since(Instant::now())
            .min(RUNNER_WAIT_MAX)
    }

    /// Checks a page of a runner. `None`: there is nothing new in it, and the call can wait.
    fn new_page(
        &self,
        host: &str,
        log: &RunLog,
        page: LogPage,
    ) -> Result<Option<LogPage>, OpError> {
        if !is_plausible(&page, self.call) {
            return Err(OpError::Io(format!(
                "the runner {} has sent a page that does not fit the call",
                runner_name(host)
            )));
        }
        let is_new = has_moved(&page, self.call) || log.ended || Instant::now() >= self.deadline;
        Ok(is_new.then(|| of_runner(log, page)))
    }

    /// Returns the result of a call whose runner is unreachable. A caller that follows the log of a
    /// live run gets no output and continues.
    fn without(
        &self,
        host: &str,
        log: &RunLog,
        problem: LogProblem,
    ) -> Result<Option<LogPage>, OpError> {
        match self.call.after {
            Some(at) if self.call.wait_ms > 0 && !log.ended => {
                let times = self.call.times.then(Vec::new);
                Ok(Some(LogPage {
                    run_id: log.files.run_id.clone(),
                    from: at,
                    next: at,
                    total: at,
                    times,
                    ..LogPage::default()
                }))
            }
            _ => Err(self.problem(host, log, problem)),
        }
    }

    fn problem(&self, host: &str, log: &RunLog, problem: LogProblem) -> OpError {
        let file = log
            .path(self.call)
            .file_name()
            .unwrap_or_default()
            .display()
            .to_string();
        let is_shared = self.ops.store().is_shared();
        OpError::LogOnRunner {
            run: self.run.name.clone(),
            runner: runner_name(host).to_owned(),
            file,
            problem,
            is_shared,
        }
    }
}

/// Returns a page of a runner as the hub shows it: only the text and the positions are the runner's
/// to tell.
fn of_runner(log: &RunLog, page: LogPage) -> LogPage {
    LogPage {
        run_id: log.files.run_id.clone(),
        path: String::new(),
        paths: Vec::new(),
        missing: Vec::new(),
        ended: log.ended && page.next >= page.total,
        ..page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn runner_tells_only_text_and_positions() {
        let log = |ended| RunLog {
            files: RunFiles::in_home(Path::new("/home"), "run"),
            first: 1,
            attempt: 1,
            ended,
        };
        let page = LogPage {
            run_id: "another".to_owned(),
            path: "/etc/passwd".to_owned(),
            text: "hello".to_owned(),
            next: 5,
            total: 5,
            ended: true,
            ..LogPage::default()
        };
        let shown = of_runner(&log(true), page.clone());
        assert_eq!((shown.run_id.as_str(), shown.path.as_str()), ("run", ""));
        assert_eq!((shown.text.as_str(), shown.next), ("hello", 5));
        assert!(shown.ended);
        assert!(
            !of_runner(&log(false), page.clone()).ended,
            "the run continues"
        );
        let more = LogPage { total: 9, ..page };
        assert!(!of_runner(&log(true), more).ended, "more follows");
    }
}
