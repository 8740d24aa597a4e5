//! Runs that need attention, and notifications of their owners.
//!
//! [`adjutant_core::attention`] decides what counts as a stop or an end. The SQL conditions here
//! are generated from it.

use super::records::run::list;
use super::runs::unfinished_with;
use super::{Page, Run, StoreError, Tx, last_seq};
use crate::store::db::{self, Connection, params};
use adjutant_core::attention::{RunPhase, Shortfall, run_phase};
use adjutant_core::{EventSeq, Principal, RunId, RunState, SteadyTime, StopReason};
use std::cmp::Reverse;
use std::sync::LazyLock;

/// The notified position of a run whose owner learns of its end in another way.
const NOTIFIED_ELSEWHERE: i64 = i64::MAX;

/// Returns the stop reasons whose phase is `wanted`, as an SQL list.
fn reasons(wanted: impl Fn(RunPhase) -> bool) -> String {
    let stands = |reason: &StopReason| {
        wanted(run_phase(
            RunState::Stopped {
                reason: *reason,
                until: SteadyTime(0),
            },
            false,
            false,
        ))
    };
    let words: Vec<String> = StopReason::ALL
        .iter()
        .filter(|reason| stands(reason))
        .map(|reason| format!("'{}'", reason.word()))
        .collect();
    words.join(", ")
}

/// The run is stopped and does not resume by itself. A stop without `end_seq` awaits the run's
/// requests.
static NEEDS_RESUME: LazyLock<String> = LazyLock::new(|| {
    let reasons = reasons(|phase| matches!(phase, RunPhase::Stopped(_)));
    format!("state = 'stopped' AND end_seq IS NOT NULL AND stop_reason IN ({reasons})")
});
/// The run is held: queued, and a run that it starts after has failed. A queued run has an
/// `end_seq` only then.
const IS_HELD: &str = "state = 'queued' AND end_seq IS NOT NULL";
/// The run is over for its waiters: finished, or paused on purpose.
static IS_OVER: LazyLock<String> = LazyLock::new(|| {
    let reasons = reasons(|phase| phase == RunPhase::Paused);
    format!(
        "(state = 'finished' OR state = 'stopped' AND end_seq IS NOT NULL AND stop_reason IN ({reasons}))"
    )
});
/// The stopped run is in progress: it awaits its requests, or resumes by itself.
static RESUMES: LazyLock<String> = LazyLock::new(|| {
    let reasons = reasons(|phase| phase == RunPhase::Underway);
    format!("(end_seq IS NULL OR stop_reason IN ({reasons}))")
});
/// The run did not end as its owner wanted.
static IS_BAD_END: &str =
    "state = 'finished' AND (outcome NOT IN ('succeeded', 'cancelled') OR shortfall IS NOT NULL)";
/// The run did not succeed, by the same rule as exit codes.
static HAS_FAILED: LazyLock<String> = LazyLock::new(|| {
    let words: Vec<String> = Shortfall::ALL
        .iter()
        .filter(|shortfall| shortfall.fails())
        .map(|shortfall| format!("'{}'", shortfall.word()))
        .collect();
    format!(
        "state = 'finished' AND (outcome NOT IN ('succeeded', 'cancelled') OR shortfall IN ({}))",
        words.join(", ")
    )
});

/// Returns the condition for runs that the caller `?1` may see. The person sees all runs.
fn is_seen_by(who: &Principal) -> &'static str {
    // SQLite rejects a bound parameter that the statement does not use.
    if *who == Principal::Person {
        "?1 = ?1"
    } else {
        "owner = ?1"
    }
}

fn count(
    connection: &Connection,
    condition: &str,
    values: impl db::Params,
) -> Result<u64, StoreError> {
    let sql = format!("SELECT count(*) FROM runs {condition}");
    let count: i64 = connection.prepare_cached(&sql)?.read_row(values)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Reads up to `limit` stopped runs that do not resume by themselves and held runs, longest stopped
/// first.
///
/// # Errors
/// A failure of the store.
pub fn stopped_runs(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Page, StoreError> {
    let caller = who.to_string();
    let (mut runs, mut all) = (Vec::new(), 0);
    for (index, needs) in [
        ("runs_stopped", NEEDS_RESUME.as_str()),
        ("runs_held", IS_HELD),
    ] {
        let condition = format!("INDEXED BY {index} WHERE {needs} AND {}", is_seen_by(who));
        let found = list(
            connection,
            &format!("{condition} ORDER BY end_seq LIMIT ?2"),
            params![caller, limit],
        )?;
        all += if found.len() < limit as usize {
            found.len() as u64
        } else {
            count(connection, &condition, [&caller])?
        };
        runs.extend(found);
    }
    runs.sort_by_key(|run| run.end_seq);
    runs.truncate(limit as usize);
    let more = all.saturating_sub(runs.len() as u64);
    Ok(Page { runs, more })
}

/// Reads up to `limit` running runs that have been silent for too long since their reports, the
/// longest first.
///
/// # Errors
/// A failure of the store.
pub fn silent_after_report(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let condition = format!(
        "INDEXED BY runs_live WHERE state IN ('starting', 'running', 'stopping') AND state = 'running' AND report_seq IS NOT NULL
         AND stalled_at IS NOT NULL AND blocking_pending = 0
         AND holding = 0 AND {} ORDER BY stalled_at LIMIT ?2",
        is_seen_by(who)
    );
    list(connection, &condition, params![who.to_string(), limit])
}

/// Reads the stopped and held runs below a run that do not resume by themselves, longest stopped
/// first.
///
/// # Errors
/// A failure of the store.
pub fn stopped_below(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let has_children: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs WHERE parent = ?1)")?
        .read_row([run.to_string()])?;
    if !has_children {
        return Ok(Vec::new());
    }
    let below = "WITH RECURSIVE below (id) AS (SELECT id FROM runs WHERE parent = ?1 UNION SELECT r.id FROM runs r JOIN below b ON r.parent = b.id)
         SELECT id FROM below";
    list(
        connection,
        &format!(
            "WHERE ({} OR {IS_HELD}) AND id IN ({below}) ORDER BY end_seq LIMIT ?2",
            *NEEDS_RESUME
        ),
        params![run.to_string(), limit],
    )
}

/// Reads up to `limit` of the caller's own runs that ended badly without the caller being notified,
/// oldest first.
///
/// # Errors
/// A failure of the store.
pub fn unnotified_bad_ends(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Page, StoreError> {
    let condition = format!(
        "INDEXED BY runs_unnotified WHERE owner = ?1 AND end_seq > notified_seq AND {IS_BAD_END}"
    );
    let caller = who.to_string();
    let runs = list(
        connection,
        &format!("{condition} ORDER BY end_seq LIMIT ?2"),
        params![caller, limit],
    )?;
    let more = if runs.len() < limit as usize {
        0
    } else {
        count(connection, &condition, [&caller])?.saturating_sub(runs.len() as u64)
    };
    Ok(Page { runs, more })
}

/// Reads up to `limit` ended runs that are new to the caller: its own runs that it was not notified
/// of, and visible runs that ended after `after`. Oldest end first.
///
/// # Errors
/// A failure of the store.
pub fn unknown_ends(
    connection: &Connection,
    who: &Principal,
    after: EventSeq,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let caller = who.to_string();
    let own = format!(
        "INDEXED BY runs_unnotified WHERE owner = ?1 AND end_seq > notified_seq AND {} ORDER BY end_seq LIMIT ?2",
        *IS_OVER
    );
    let mut found = list(connection, &own, params![caller, limit])?;
    let since = format!(
        "INDEXED BY runs_ends WHERE end_seq > ?2 AND {} AND {} ORDER BY end_seq LIMIT ?3",
        is_seen_by(who),
        *IS_OVER
    );
    found.extend(list(connection, &since, params![caller, after.0, limit])?);
    found.sort_by_key(|run| run.end_seq);
    found.dedup_by_key(|run| run.id);
    found.truncate(limit as usize);
    Ok(found)
}

/// Counts the runs that [`unknown_ends`] would read beyond a position, and returns the first of
/// them that failed.
///
/// # Errors
/// A failure of the store.
pub fn unknown_ends_beyond(
    connection: &Connection,
    who: &Principal,
    after: EventSeq,
    beyond: EventSeq,
) -> Result<(u64, Option<Run>), StoreError> {
    let condition = format!(
        "INDEXED BY runs_ends WHERE end_seq > ?3 AND {} AND (owner = ?1 AND end_seq > notified_seq OR {} AND end_seq > ?2)",
        *IS_OVER,
        is_seen_by(who)
    );
    let caller = who.to_string();
    let more = count(connection, &condition, params![caller, after.0, beyond.0])?;
    let failed = list(
        connection,
        &format!("{condition} AND {} ORDER BY end_seq LIMIT 1", *HAS_FAILED),
        params![caller, after.0, beyond.0],
    )?
    .pop();
    Ok((more, failed))
}

/// Reads up to `limit` runs that are in progress, newest first. Queued runs are left out first,
/// then stopped ones.
///
/// # Errors
/// A failure of the store.
pub fn underway_runs(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let owner = (*who != Principal::Person).then_some(who);
    let mut runs = unfinished_with(
        connection,
        owner,
        &RESUMES,
        &format!("NOT ({IS_HELD})"),
        limit,
    )?;
    runs.sort_by_key(|run| Reverse(run.no));
    Ok(runs)
}

/// Returns whether [`Tx::set_notified`] or, with `all_until`, [`Tx::set_all_notified`] can change
/// something, now or when the call is repeated: a position beyond the history covers later stops
/// and ends.
///
/// # Errors
/// A failure of the store.
pub fn can_set_notified(
    connection: &Connection,
    owner: &Principal,
    runs: &[(RunId, EventSeq)],
    all_until: Option<EventSeq>,
) -> Result<bool, StoreError> {
    let last = last_seq(connection)?;
    if runs
        .iter()
        .map(|(_, until)| *until)
        .chain(all_until)
        .any(|until| until > last)
    {
        return Ok(true);
    }
    let owner = owner.to_string();
    for (run, until) in runs {
        let is_new: bool = connection
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND owner = ?2 AND coalesce(end_seq, report_seq) > notified_seq
                 AND coalesce(end_seq, report_seq) <= ?3)",
            )?
            .read_row(params![run.to_string(), owner, until.0])?;
        if is_new {
            return Ok(true);
        }
    }
    let Some(until) = all_until else {
        return Ok(false);
    };
    let any = "SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_unnotified WHERE owner = ?1 AND end_seq > notified_seq AND end_seq <= ?2)";
    Ok(connection
        .prepare_cached(any)?
        .read_row(params![owner, until.0])?)
}

impl Tx<'_> {
    /// Records that the owner of these runs was notified of their stops and ends, or of the reports
    /// of live ones, each up to a position. Runs of other owners are ignored. Returns how many runs
    /// changed.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_notified(
        &mut self,
        owner: &Principal,
        runs: &[(RunId, EventSeq)],
    ) -> Result<u64, StoreError> {
        let mut changed = 0;
        for (run, until) in runs {
            changed += self
                .prepare(
                    "UPDATE runs SET notified_seq = coalesce(end_seq, report_seq) WHERE id = ?1 AND owner = ?2
                     AND coalesce(end_seq, report_seq) > notified_seq AND coalesce(end_seq, report_seq) <= ?3",
                )?
                .execute(params![run.to_string(), owner.to_string(), until.0])?;
        }
        Ok(changed as u64)
    }

    /// Records that an owner was notified of all stops and ends up to a position. Returns how many
    /// runs changed.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_all_notified(
        &mut self,
        owner: &Principal,
        until: EventSeq,
    ) -> Result<u64, StoreError> {
        let changed = self
            .prepare(
                "UPDATE runs INDEXED BY runs_unnotified SET notified_seq = end_seq WHERE owner = ?1 AND end_seq > notified_seq AND end_seq <= ?2",
            )?
            .execute(params![owner.to_string(), until.0])?;
        Ok(changed as u64)
    }

    /// Records that the owner learns of a run's end by other means than lists and waits.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn notify_elsewhere(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET notified_seq = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), NOTIFIED_ELSEWHERE])?;
        Ok(())
    }

    /// Records how a successful run fell short of its dispatcher's requirements.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_shortfall(&mut self, run: RunId, shortfall: Shortfall) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET shortfall = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), shortfall.word()])?;
        Ok(())
    }
}
