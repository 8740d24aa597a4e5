//! The attempts of a run.

use crate::store::db::{Connection, params, row, select};
use crate::store::ids::unsigned;
use crate::store::records::run::Run;
use crate::store::{StoreError, Tx, append_event};
use adjutant_core::result::ResultGap;
use adjutant_core::units::duration;
use adjutant_core::{AttemptNo, EventKind, Exit, RunId, RunState, StopReason, Time};
use std::collections::BTreeMap;

row! {
    /// One attempt.
    #[derive(Debug, Clone)]
    pub struct AttemptRow, named "an attempt of run {}" {
        pub run: RunId,
        pub n: AttemptNo,
        pub token_hash: Vec<u8>,
        pub claimed_at: Time,
        pub started_at: Option<Time>,
        pub ended_at: Option<Time>,
        /// The number of the last applied fact.
        pub fact: u64 as unsigned,
        /// How the agent ended, while its supervisor is still collecting evidence.
        pub agent_end: Option<String>,
        /// When the agent ended.
        pub agent_end_at: Option<Time>,
        /// The runner that has it. `None`: the hub's own machine.
        pub host: Option<String>,
        /// When its lease expired. Facts and calls of the attempt are refused since then.
        pub lost_at: Option<Time>,
    }
}

/// The runner of an attempt, and how long it may be cut off from the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLease<'a> {
    pub host: &'a str,
    pub lease_ms: i64,
}

row! {
    /// A live attempt on a runner.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HostedAttempt {
        pub run: RunId = "runs.id",
        pub n: AttemptNo = "runs.attempt",
        pub host: String = "attempts.host",
        pub lease_ms: i64 = "coalesce(attempts.lease_ms, 0)",
    }
}

/// Returns the name of a runner: its host without the identity of its home.
#[must_use]
pub fn runner_name(host: &str) -> &str {
    host.split_once('/').map_or(host, |(name, _)| name)
}

/// The exit of an attempt's process, and its leftover processes.
#[derive(Debug, Clone)]
pub struct EndRow {
    pub exit: Exit,
    pub swept: u32,
    pub output_left_open: bool,
    pub active_ms: i64,
    /// The agent exited before a stop of it began.
    pub by_itself: bool,
    pub result: String,
    pub result_bytes: u64,
}

/// Reads one attempt.
///
/// # Errors
/// A failure of the store.
pub fn attempt_row(
    connection: &Connection,
    run: RunId,
    n: AttemptNo,
) -> Result<Option<AttemptRow>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            AttemptRow,
            "FROM attempts WHERE run = ?1 AND n = ?2"
        ))?
        .find_row(params![run.to_string(), n.0])?)
}

/// Returns the runner that has the last attempt of a run. `None`: the hub's own machine, or no
/// attempt.
///
/// # Errors
/// A failure of the store.
pub fn current_host(connection: &Connection, run: RunId) -> Result<Option<String>, StoreError> {
    let sql =
        "SELECT host FROM attempts WHERE run = ?1 AND n = (SELECT attempt FROM runs WHERE id = ?1)";
    Ok(connection
        .prepare_cached(sql)?
        .find_row([run.to_string()])?
        .flatten())
}

/// Lists the live attempts on runners.
///
/// # Errors
/// A failure of the store.
pub fn hosted_attempts(connection: &Connection) -> Result<Vec<HostedAttempt>, StoreError> {
    Ok(connection
        .prepare_cached(select!(HostedAttempt, "FROM runs JOIN attempts ON attempts.run = runs.id AND attempts.n = runs.attempt
             WHERE runs.state IN ('starting', 'running', 'stopping') AND attempts.host IS NOT NULL ORDER BY runs.no"))?
        .read_rows([])?)
}

/// Counts the live attempts of each runner.
///
/// # Errors
/// A failure of the store.
pub fn live_by_host(connection: &Connection) -> Result<BTreeMap<String, u64>, StoreError> {
    let sql = "SELECT attempts.host, count(*) FROM runs JOIN attempts ON attempts.run = runs.id AND attempts.n = runs.attempt
        WHERE runs.state IN ('starting', 'running', 'stopping') AND attempts.host IS NOT NULL GROUP BY attempts.host";
    let rows: Vec<(String, i64)> = connection.prepare_cached(sql)?.read_rows([])?;
    let counts = rows
        .into_iter()
        .map(|(host, count)| (host, u64::try_from(count).unwrap_or(0)));
    Ok(counts.collect())
}

/// Lists the attempts of a run that were on runners, oldest first, and their hosts.
///
/// # Errors
/// A failure of the store.
pub fn hosts_of(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<(AttemptNo, String)>, StoreError> {
    let sql = "SELECT n, host FROM attempts WHERE run = ?1 AND host IS NOT NULL ORDER BY n";
    Ok(connection
        .prepare_cached(sql)?
        .read_rows([run.to_string()])?)
}

/// Returns the runner of the last attempt of a run whose agent started, before this attempt if one
/// is named. `None`: there is no such attempt. `Some(None)`: it was on the hub's own machine.
///
/// # Errors
/// A failure of the store.
pub fn last_host(
    connection: &Connection,
    run: RunId,
    before: Option<AttemptNo>,
) -> Result<Option<Option<String>>, StoreError> {
    let sql = "SELECT host FROM attempts WHERE run = ?1 AND n < ?2 AND started_at IS NOT NULL ORDER BY n DESC LIMIT 1";
    let before = before.map_or(i64::from(u32::MAX), |before| i64::from(before.0));
    Ok(connection
        .prepare_cached(sql)?
        .find_row::<Option<String>>(params![run.to_string(), before])?)
}

/// Counts the attempts of a run whose agent never started.
///
/// # Errors
/// A failure of the store.
pub fn fruitless_attempts(connection: &Connection, run: RunId) -> Result<u32, StoreError> {
    let sql = "SELECT count(*) FROM attempts WHERE run = ?1 AND started_at IS NULL AND ended_at IS NOT NULL";
    Ok(connection
        .prepare_cached(sql)?
        .read_row([run.to_string()])?)
}

/// The beginning of the text of the event that queues a run again whose runner cannot write to its
/// home.
pub const RUNNER_UNWRITABLE: &str = "its runner cannot write to its home";

/// Counts the attempts of a run whose agent did not start, without those whose runner could not
/// write to its home.
///
/// # Errors
/// A failure of the store.
pub fn failed_starts(connection: &Connection, run: RunId) -> Result<u32, StoreError> {
    let sql = "SELECT count(*) FROM events WHERE run = ?1 AND kind = ?2 AND text LIKE ?3";
    let words = params![
        run.to_string(),
        EventKind::RunQueued.word(),
        format!("{RUNNER_UNWRITABLE}%")
    ];
    let unwritable: u32 = connection.prepare_cached(sql)?.read_row(words)?;
    Ok(fruitless_attempts(connection, run)?.saturating_sub(unwritable))
}

/// Returns whether the agent of any attempt between two attempts of a run started.
///
/// # Errors
/// A failure of the store.
pub fn is_attempt_between(
    connection: &Connection,
    run: RunId,
    first: AttemptNo,
    last: AttemptNo,
) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM attempts WHERE run = ?1 AND n > ?2 AND n < ?3 AND started_at IS NOT NULL)";
    Ok(connection
        .prepare_cached(sql)?
        .read_row(params![run.to_string(), first.0, last.0])?)
}

/// Counts how often its model's service, limited or overloaded, stopped a run since it was
/// dispatched or last resumed by a caller.
///
/// # Errors
/// A failure of the store.
pub fn times_limited(connection: &Connection, run: RunId) -> Result<u32, StoreError> {
    let sql = "SELECT count(*) FROM events WHERE run = ?1 AND kind = ?2 AND text IN (?3, ?4)
        AND seq > coalesce((SELECT max(seq) FROM events WHERE run = ?1 AND kind = ?5 AND by <> 'hub'), 0)";
    let (limited, overloaded) = (
        StopReason::RateLimited.word(),
        StopReason::Overloaded.word(),
    );
    let words = params![
        run.to_string(),
        EventKind::RunStopped.word(),
        limited,
        overloaded,
        EventKind::RunQueued.word()
    ];
    Ok(connection.prepare_cached(sql)?.read_row(words)?)
}

impl Tx<'_> {
    /// Records that the agent of an attempt never started.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn mark_unstarted(&mut self, run: RunId, n: AttemptNo) -> Result<(), StoreError> {
        self.prepare(
            "UPDATE attempts SET started_at = NULL, ended_at = ?3 WHERE run = ?1 AND n = ?2",
        )?
        .run(params![run.to_string(), n.0, self.now().0])?;
        Ok(())
    }

    /// Records that the lease of an attempt has expired.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_lost(&mut self, run: RunId, n: AttemptNo) -> Result<(), StoreError> {
        self.prepare("UPDATE attempts SET lost_at = ?3 WHERE run = ?1 AND n = ?2")?
            .run(params![run.to_string(), n.0, self.now().0])?;
        Ok(())
    }

    /// Records how an attempt's processes are contained.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_containment(
        &mut self,
        run: RunId,
        n: AttemptNo,
        level: &str,
    ) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET containment = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), level])?;
        self.prepare("UPDATE attempts SET started_at = ?3 WHERE run = ?1 AND n = ?2")?
            .run(params![run.to_string(), n.0, self.happened_at().0])?;
        Ok(())
    }

    /// Records the exit of an attempt's process, and its leftover processes. The stated active time
    /// replaces the counted one, but is not less for a run that a used up budget has stopped: the
    /// budget would have a few milliseconds left again.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_end(&mut self, run: RunId, n: AttemptNo, end: &EndRow) -> Result<(), StoreError> {
        let EndRow {
            exit,
            swept,
            output_left_open,
            active_ms,
            by_itself,
            result,
            result_bytes,
        } = end;
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(*code), None),
            Exit::Signal(signal) => (None, Some(*signal)),
        };
        self.prepare(
            "UPDATE runs SET exit_code = ?2, exit_signal = ?3, swept = ?4, output_left_open = ?5,
             active_ms = CASE WHEN state = 'stopping' AND stop_reason = 'budget' AND ?9 = 0 THEN larger(active_ms, ?6) ELSE ?6 END, active_since = NULL, result = ?7,
             result_bytes = ?8 WHERE id = ?1",
        )?
        .run(params![run.to_string(), code, signal, swept, output_left_open, active_ms, result, result_bytes.cast_signed(), by_itself])?;
        self.prepare("UPDATE attempts SET ended_at = ?3 WHERE run = ?1 AND n = ?2")?
            .run(params![run.to_string(), n.0, self.happened_at().0])?;
        Ok(())
    }

    /// Records why a run's last message is not a result, and the reconstructed result.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_result_gap(
        &mut self,
        run: RunId,
        gap: Option<ResultGap>,
        reconstructed: Option<&str>,
    ) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET result_gap = ?2, reconstructed = ?3 WHERE id = ?1")?
            .run(params![
                run.to_string(),
                gap.map(ResultGap::word),
                reconstructed
            ])?;
        Ok(())
    }

    /// Records how an attempt's agent ended, in case the supervisor reports nothing more.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_agent_end(&mut self, run: RunId, n: AttemptNo, end: &str) -> Result<(), StoreError> {
        self.prepare(
            "UPDATE attempts SET agent_end = ?3, agent_end_at = ?4 WHERE run = ?1 AND n = ?2",
        )?
        .run(params![run.to_string(), n.0, end, self.happened_at().0])?;
        Ok(())
    }

    /// Records a note for the user on a run's attempt.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_note(&mut self, run: RunId, note: Option<&str>) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET note = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), note])?;
        Ok(())
    }

    /// Adds to the note about a run, unless it has this text.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_note(&mut self, run: &Run, note: &str) -> Result<(), StoreError> {
        match &run.note {
            Some(earlier) if earlier.contains(note) => Ok(()),
            Some(earlier) => self.set_note(run.id, Some(&format!("{earlier}; {note}"))),
            None => self.set_note(run.id, Some(note)),
        }
    }

    /// Records for how long a live run has been silent, or (`None`) that it is no longer silent.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_stalled(
        &mut self,
        run: &Run,
        silent_ms: Option<i64>,
        by: &str,
    ) -> Result<(), StoreError> {
        if run.state != RunState::Running {
            return Ok(());
        }
        let (kind, text) = match silent_ms {
            Some(ms) if run.standing_report().is_some() => (
                EventKind::RunStalled,
                format!(
                    "still alive, silent for {} after its report",
                    duration::text(ms)
                ),
            ),
            Some(ms) => (
                EventKind::RunStalled,
                format!("no output and no call for {}", duration::text(ms)),
            ),
            None => (EventKind::RunActiveAgain, "active again".to_owned()),
        };
        let seq = append_event(self, kind, run.id, &run.owner.to_string(), None, by, &text)?;
        self.prepare("UPDATE runs SET stalled_at = ?2, stall_seq = ?3 WHERE id = ?1")?
            .run(params![
                run.id.to_string(),
                silent_ms.map(|ms| self.now().plus_ms(ms.saturating_neg()).0),
                silent_ms.map(|_| seq.0)
            ])?;
        self.touch(run.id, seq)
    }

    /// Records the id of a run's vendor session.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_session(&mut self, run: RunId, session: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET session = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), session])?;
        Ok(())
    }

    /// Advances an attempt's fact cursor, in the same transaction as the effects of the facts.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_fact(&mut self, run: RunId, n: AttemptNo, fact: u64) -> Result<(), StoreError> {
        let fact = i64::try_from(fact).unwrap_or(i64::MAX);
        self.prepare("UPDATE attempts SET fact = ?3 WHERE run = ?1 AND n = ?2 AND fact < ?3")?
            .run(params![run.to_string(), n.0, fact])?;
        Ok(())
    }
}
