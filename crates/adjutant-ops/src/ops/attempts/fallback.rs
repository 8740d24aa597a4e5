//! Moves a run to another of its agents if its own one cannot work or has reached its usage limit.

use crate::ops::attempt_id::AttemptId;
use crate::store::{
    AlternativeAgent, Run, StoreError, Tx, UsageLimitRow, has_requests, queued_with_alternatives,
    report_of, untried_agents, usage_limits,
};
use adjutant_core::balance::WorkDone;
use adjutant_core::checkpoint::CheckpointAuthor;
use adjutant_core::run::Retention;
use adjutant_core::{RunEvent, RunState};

/// Maximum number of queued runs that are moved when their agent reaches its limit.
const MOVED_MAX: u32 = 500;

/// Moves a run to its next agent if the failure is the agent's, another agent is allowed and
/// nothing was done. Returns whether it was moved.
pub(super) fn fall_back(
    tx: &mut Tx<'_>,
    run: &Run,
    id: AttemptId,
    problem: &str,
    retention: Retention,
) -> Result<bool, StoreError> {
    if !matches!(run.state, RunState::Starting | RunState::Running)
        || !work_done(tx, run)?.is_none()
    {
        return Ok(false);
    }
    let Some(next) = next_agent(tx, run, |agent| agent.after_failure)? else {
        return Ok(false);
    };
    tx.mark_unstarted(run.id, id.n)?;
    let first = problem.lines().next().unwrap_or("").trim();
    let why = format!(
        "{}: replaces {}, which could not work: {first}",
        next.agent, run.agent
    );
    let queued = tx.advance(
        run,
        RunEvent::FellBack,
        retention,
        "hub",
        &format!("{} could not work: {first}", run.agent),
    )?;
    tx.switch_agent(&queued, &next.agent, &why, "hub")?;
    Ok(true)
}

/// Moves the queued runs of an agent that has reached its usage limit to other agents, where they
/// have some.
pub(super) fn move_from_limited(tx: &mut Tx<'_>, agent: &str) -> Result<(), StoreError> {
    for id in queued_with_alternatives(tx.connection(), agent, MOVED_MAX)? {
        let run = tx.run(id)?;
        let limits = usage_limits(tx.connection())?;
        let Some(next) = next_agent(tx, &run, |next| !is_limited(&limits, &next.agent, tx))? else {
            continue;
        };
        let why = format!("{}: {agent} has reached its usage limit", next.agent);
        tx.switch_agent(&run, &next.agent, &why, "hub")?;
    }
    Ok(())
}

/// Returns the next agent of a run that may take over; one without a usage limit if there is one.
fn next_agent(
    tx: &Tx<'_>,
    run: &Run,
    may: impl Fn(&AlternativeAgent) -> bool,
) -> Result<Option<AlternativeAgent>, StoreError> {
    let limits = usage_limits(tx.connection())?;
    let mut untried: Vec<AlternativeAgent> = untried_agents(tx.connection(), run.id)?
        .into_iter()
        .filter(|agent| may(agent))
        .collect();
    untried.sort_by_key(|agent| is_limited(&limits, &agent.agent, tx));
    Ok(untried.into_iter().next())
}

fn is_limited(limits: &[UsageLimitRow], agent: &str, tx: &Tx<'_>) -> bool {
    limits
        .iter()
        .any(|row| row.agent == agent && row.limit.is_closed(tx.steady()))
}

/// Returns what a run has done so far.
fn work_done(tx: &Tx<'_>, run: &Run) -> Result<WorkDone, StoreError> {
    let (report, evidence) = report_of(tx.connection(), run.id)?;
    let evidence = crate::ops::evidence::parse_evidence(evidence, run.id)?;
    let has_stated = run.percent.is_some()
        || run.progress.is_some()
        || run.summary.is_some()
        || run.claim.is_some()
        || run
            .checkpoint
            .as_ref()
            .is_some_and(|left| left.made_by == CheckpointAuthor::Run);
    Ok(WorkDone {
        output_tokens: run.usage.map_or(0, |usage| usage.output_tokens),
        has_stated: has_stated || report.is_some() || has_requests(tx.connection(), run.id)?,
        has_changed: evidence.is_some_and(|evidence| {
            evidence.changed_since_start && evidence.changed.is_some_and(|files| !files.is_empty())
        }),
    })
}
