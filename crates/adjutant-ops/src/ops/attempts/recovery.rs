//! Recovering attempts whose processes have ended.

use crate::config::Home;
use crate::leftovers::{self, LeftFacts};
use crate::ops::OpError;
use crate::ops::attempt_id::AttemptId;
use crate::ops::attempts::FRUITLESS_ATTEMPTS_MAX;
use crate::ops::attempts::end::create_checkpoint_of;
use crate::ops::attempts::evidence::store_evidence;
use crate::ops::attempts::facts::{apply_fact, apply_facts};
use crate::ops::attempts::unstarted::{not_placed, not_spawned, refused_as_too_old};
use crate::ops::budgets::note_stopped;
use crate::ops::results::note_loss;
use crate::ops::settings::Settings;
use crate::ops::terms::Terms;
use crate::ops::trees::Trees;
use crate::protocol::{AttemptEvidence, CommandEvidence, FactKind, Remains};
use crate::store::{
    Run, Store, StoreError, Tx, acceptance_of, announce_usage_stated, attempt_row, budgets_of,
    failed_starts, has_budgets, is_usage_stated, report_of, run_by_id,
};
use adjutant_core::{RunEvent, RunState, StopReason, Time};

/// How many lost attempts are read together: a transaction on a server keeps the replies of 64
/// reads, and these make five each.
const READ_TOGETHER_MAX: usize = 12;

/// What was lost with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Loss {
    Supervisor,
    /// The runner, whose lease has expired.
    Host,
}

/// Records the end of an attempt whose processes have ended, by applying the facts that its
/// supervisor wrote but could not deliver. Without a final fact the run is lost, or queued
/// again if its agent never started. `was_seen`: this hub has seen it alive, so it has been
/// active until now.
///
/// # Errors
/// A failure of the store, or of the disk.
pub async fn recover_attempt(
    store: &Store,
    home: &Home,
    settings: &Settings,
    trees: &Trees,
    id: AttemptId,
    was_seen: bool,
) -> Result<(), OpError> {
    let facts_problem = apply_remaining_facts(store, home, settings, id).await?;
    if id.is_settled(store)? {
        return Ok(());
    }
    let mut changes = None;
    if let Some(run) = store
        .read(|connection| run_by_id(connection, id.run))?
        .filter(|run| run.state != RunState::Queued)
    {
        changes = trees.snapshot_after_loss(&run).await;
    }
    let dir = id.dir(home);
    let failed =
        |error: std::io::Error| OpError::Io(format!("{}: {error}", id.dir(home).0.display()));
    let remains = on_disk(move || {
        leftovers::collect(&dir, &id.run.to_string(), id.n.0, facts_problem, was_seen)
    })
    .await
    .map_err(failed)?;
    end_lost_attempt(store, settings, id, remains, changes, Loss::Supervisor).await
}

/// Returns whether the store knows an attempt.
///
/// # Errors
/// A failure of the store.
pub fn knows_attempt(store: &Store, id: AttemptId) -> Result<bool, OpError> {
    Ok(store
        .read(|connection| attempt_row(connection, id.run, id.n))?
        .is_some())
}

/// Applies the facts in a supervisor's file. Returns the file's problem, if any.
async fn apply_remaining_facts(
    store: &Store,
    home: &Home,
    settings: &Settings,
    id: AttemptId,
) -> Result<Option<String>, OpError> {
    let path = id.dir(home).facts();
    let failed = |error: std::io::Error| OpError::Io(format!("{}: {error}", path.display()));
    let dir = id.dir(home);
    let mut left = on_disk(move || LeftFacts::open(&dir))
        .await
        .map_err(failed)?;
    loop {
        let known = store
            .read(|connection| attempt_row(connection, id.run, id.n))?
            .map_or(0, |row| row.fact);
        let (read, batch) = on_disk(move || left.next_batch(known).map(|batch| (left, batch)))
            .await
            .map_err(failed)?;
        left = read;
        if batch.is_empty() && left.is_at_end() {
            return Ok(left.problem);
        }
        if !batch.is_empty() {
            apply_facts(store, settings, id, batch).await?;
        }
    }
}

/// Records the end of an attempt without a final fact.
pub(in crate::ops) async fn end_lost_attempt(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    remains: Remains,
    changes: Option<AttemptEvidence>,
    loss: Loss,
) -> Result<(), OpError> {
    let Remains {
        never_started,
        problem,
        last_output,
        active_until_ms,
        refusal,
        is_too_old,
        is_unwritable,
    } = remains;
    if let Some(refusal) = refusal {
        if is_unwritable {
            return not_placed(store, settings, id, refusal).await;
        }
        if is_too_old {
            return refused_as_too_old(store, settings, id, refusal).await;
        }
        return not_spawned(store, settings, id, refusal).await;
    }
    let terms = Terms::of(settings);
    let remains = KnownRemains {
        never_started,
        problem,
        last_output,
        active_until_ms,
        changes,
    };
    let recorded = store.write(move |tx| {
        EndedAttempt::announce(tx, id);
        let has_budgets = has_budgets(tx.connection())?;
        let Some(attempt) = EndedAttempt::live(tx, id, has_budgets)? else {
            return Ok(());
        };
        end_attempt(tx, &attempt, &remains, loss, &terms)?;
        terms.policies.observe(tx)
    });
    Ok(recorded.await?)
}

/// Records in one transaction that attempts are lost with their runners. Returns those that
/// were live.
///
/// # Errors
/// A failure of the store. Nothing has changed then.
pub(in crate::ops) async fn lose_with_runners(
    store: &Store,
    settings: &Settings,
    ids: Vec<AttemptId>,
) -> Result<Vec<AttemptId>, OpError> {
    let terms = Terms::of(settings);
    let lost = store.write(move |tx| {
        let mut lost = Vec::new();
        for ids in ids.chunks(READ_TOGETHER_MAX) {
            lost.extend(lose_together(tx, ids, &terms)?);
        }
        terms.policies.observe(tx)?;
        Ok(lost)
    });
    Ok(lost.await?)
}

/// Records that attempts are lost with their runners. Those whose loss affects no other run are
/// read and written together, because a server then answers in few round trips. The others follow,
/// one after the other.
fn lose_together(
    tx: &mut Tx<'_>,
    ids: &[AttemptId],
    terms: &Terms,
) -> Result<Vec<AttemptId>, StoreError> {
    for id in ids {
        EndedAttempt::announce(tx, *id);
    }
    let has_budgets = has_budgets(tx.connection())?;
    let (mut lost, mut together, mut others) = (
        Vec::with_capacity(ids.len()),
        Vec::with_capacity(ids.len()),
        Vec::new(),
    );
    for id in ids {
        let Some(attempt) = EndedAttempt::live(tx, *id, has_budgets)? else {
            continue;
        };
        lost.push(*id);
        if attempt.affects_no_other_run() {
            together.push(attempt);
        } else {
            others.push(*id);
        }
    }
    let (mut ends, remains) = (Vec::with_capacity(together.len()), KnownRemains::default());
    for attempt in &together {
        ends.extend(
            record_end(tx, attempt, &remains, Loss::Host, terms)?
                .map(|event| (attempt.run.id, event)),
        );
    }
    tx.advance_all(&ends, terms.retention, "hub")?;
    for id in others {
        if let Some(attempt) = EndedAttempt::live(tx, id, has_budgets)? {
            end_attempt(tx, &attempt, &remains, Loss::Host, terms)?;
        }
    }
    Ok(lost)
}

/// What is known of an attempt without a final fact, besides the store.
#[derive(Debug, Default)]
struct KnownRemains {
    never_started: bool,
    problem: Option<String>,
    last_output: String,
    active_until_ms: Option<i64>,
    changes: Option<AttemptEvidence>,
}

/// A live attempt whose end is to be recorded, as it is stored before anything is written.
struct EndedAttempt {
    id: AttemptId,
    run: Run,
    /// How its agent ended, and when.
    agent_end: Option<(String, Option<Time>)>,
    is_usage_stated: bool,
    draws_on_budget: bool,
}

impl EndedAttempt {
    /// Reads an attempt that is still the newest one and live. `has_budgets`: whether any run has a
    /// budget.
    fn live(tx: &Tx<'_>, id: AttemptId, has_budgets: bool) -> Result<Option<Self>, StoreError> {
        let Some(run) = run_by_id(tx.connection(), id.run)?
            .filter(|run| run.attempt == id.n && run.state.is_live())
        else {
            return Ok(None);
        };
        let row = attempt_row(tx.connection(), id.run, id.n)?;
        let agent_end = row.and_then(|row| Some((row.agent_end?, row.agent_end_at)));
        let is_usage_stated = is_usage_stated(tx.connection(), &run)?;
        let draws_on_budget =
            has_budgets && !budgets_of(tx.connection(), id.run, tx.steady())?.is_empty();
        Ok(Some(Self {
            id,
            run,
            agent_end,
            is_usage_stated,
            draws_on_budget,
        }))
    }

    /// Returns whether the run stops without an effect on other runs: it does not finish, and draws
    /// on no budget.
    fn affects_no_other_run(&self) -> bool {
        matches!(self.run.state, RunState::Starting | RunState::Running)
            && self.agent_end.is_none()
            && !self.draws_on_budget
    }

    /// Announces the reads of [`Self::live`] and [`record_end`].
    fn announce(tx: &Tx<'_>, id: AttemptId) {
        tx.connection()
            .announce(|connection| run_by_id(connection, id.run));
        tx.connection()
            .announce(|connection| attempt_row(connection, id.run, id.n));
        announce_usage_stated(tx.connection(), id.run, id.n);
        tx.connection()
            .announce(|connection| report_of(connection, id.run));
    }
}

/// Ends an attempt without a final fact.
fn end_attempt(
    tx: &mut Tx<'_>,
    attempt: &EndedAttempt,
    remains: &KnownRemains,
    loss: Loss,
    terms: &Terms,
) -> Result<(), StoreError> {
    if let Some(event) = record_end(tx, attempt, remains, loss, terms)? {
        tx.advance(&attempt.run, event, terms.retention, "hub", "")?;
    }
    Ok(())
}

/// Records what an attempt without a final fact leaves. Returns the event of its run, or `None` if
/// the end of its agent was recorded.
fn record_end(
    tx: &mut Tx<'_>,
    attempt: &EndedAttempt,
    remains: &KnownRemains,
    loss: Loss,
    terms: &Terms,
) -> Result<Option<RunEvent>, StoreError> {
    let EndedAttempt {
        id,
        run,
        agent_end,
        is_usage_stated,
        draws_on_budget,
    } = attempt;
    let KnownRemains {
        never_started,
        problem,
        last_output,
        active_until_ms,
        changes,
    } = remains;
    let id = *id;
    if loss == Loss::Host {
        tx.set_lost(id.run, id.n)?;
    }
    if let Some((end, at)) = agent_end {
        let end = serde_json::from_slice(end.as_bytes())
            .map_err(|error| StoreError::Corrupt(format!("attempt {id}: {error}")))?;
        tx.dated(at.unwrap_or(tx.now()), |tx| {
            end_with_agent_end(tx, id, end, terms)
        })?;
        return Ok(None);
    }
    if *never_started {
        return record_never_started(tx, id).map(Some);
    }
    if let Some(problem) = problem {
        tracing::warn!(attempt = %id, problem, "its files were modified by another process");
        tx.set_detail(run.id, problem)?;
    }
    if let Some(changes) = changes {
        store_evidence(tx, run, changes)?;
    }
    note_loss(tx, run, last_output)?;
    if run.checkpoint_attempt != Some(id.n)
        && run.state != RunState::Stopping(StopReason::Cancelled)
    {
        let reason = if loss == Loss::Host {
            StopReason::HostLost
        } else {
            StopReason::SupervisorLost
        };
        create_checkpoint_of(tx, run, reason, Some(last_output))?;
    }
    tx.add_active_time(
        run.id,
        active_until_ms.map_or(tx.steady(), |at| tx.steady_at(Time(at))),
    )?;
    if *draws_on_budget {
        note_stopped(tx, run, *is_usage_stated, terms)?;
    }
    Ok(Some(match loss {
        Loss::Supervisor => RunEvent::SupervisorLost,
        Loss::Host => RunEvent::HostLost,
    }))
}

/// Records that the agent of an attempt was never started. Returns the event of its run: it is
/// queued again, a few times.
fn record_never_started(tx: &mut Tx<'_>, id: AttemptId) -> Result<RunEvent, StoreError> {
    tx.mark_unstarted(id.run, id.n)?;
    if failed_starts(tx.connection(), id.run)? < FRUITLESS_ATTEMPTS_MAX {
        return Ok(RunEvent::NotStarted);
    }
    tx.set_detail(
        id.run,
        "its supervisor exited before starting the agent, repeatedly",
    )?;
    Ok(RunEvent::SpawnFailed)
}

/// Records the end of an attempt whose supervisor died while collecting evidence after the agent's
/// end: the agent's end counts, and missing evidence is unknown.
fn end_with_agent_end(
    tx: &mut Tx<'_>,
    id: AttemptId,
    end: FactKind,
    terms: &Terms,
) -> Result<(), StoreError> {
    let (_, evidence) = report_of(tx.connection(), id.run)?;
    let (_, accept) = acceptance_of(tx.connection(), id.run)?;
    if evidence.is_none() && !accept.is_empty() {
        let not_known = CommandEvidence {
            not_known: Some("its supervisor died while it ran".to_owned()),
            ..CommandEvidence::default()
        };
        let run = tx.run(id.run)?;
        store_evidence(
            tx,
            &run,
            &AttemptEvidence {
                acceptance: Some(not_known),
                ..AttemptEvidence::default()
            },
        )?;
    }
    apply_fact(tx, id, end, terms)
}

/// Runs file operations on a blocking thread.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
