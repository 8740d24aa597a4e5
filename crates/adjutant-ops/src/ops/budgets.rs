//! Budgets: their configured amounts, the usage that attempts report, and their display.

use crate::clock;
use crate::config::{Config, Prices};
use crate::ops::terms::Terms;
use crate::preset::Preset;
use crate::protocol::ModelUsage;
use crate::store::{
    BudgetRow, Connection, ModelTotals, Run, StoreError, Tx, budgets_of, is_usage_awaited,
    is_usage_stated, raise_budgets, run_by_id, run_input, stated_budgets, unfinished_runs_below,
};
use crate::view::BudgetView;
use adjutant_core::budget::{Price, Tokens, UNSTATED_TOKENS, Unmetered};
use adjutant_core::{AgentName, AgentSpec, Budget, BudgetKind, Denied, PoolName, Principal, RunId};

/// The reason why the usage of a live run is unknown.
const NOT_STATED_YET: &str = "not stated yet";

/// Returns the budget of a new run: the requested amounts, and the configured ones for other kinds.
/// A client cannot exceed the amounts that the user has configured.
pub(in crate::ops) fn budget_for(
    config: &Config,
    who: &Principal,
    agent: &AgentSpec,
    pool: &PoolName,
    stated: &Budget,
) -> Result<Budget, Denied> {
    let configured = config.budget_of(&agent.name, pool);
    if *who != Principal::Person
        && let Some((kind, most)) = stated.exceeds(&configured)
    {
        let problem = format!(
            "the user's configuration allows {} of {} at most",
            kind.text(most),
            kind.word()
        );
        return Err(Denied::invalid("budget", problem));
    }
    let budget = stated.or(configured);
    if budget.is_hard
        && let Some((kind, why)) = unmetered(config, agent)
            .into_iter()
            .find(|(kind, _)| budget.amount(*kind).is_some())
    {
        return Err(Denied::invalid(
            "budget",
            format!(
                "it is hard, but the {} of {} cannot be measured: {why}",
                kind.word(),
                agent.name
            ),
        ));
    }
    Ok(budget)
}

/// Parses a requested budget.
pub(in crate::ops) fn stated_budget(
    field: &'static str,
    text: Option<&str>,
) -> Result<Budget, Denied> {
    text.map_or(Ok(Budget::default()), |text| {
        Budget::parse(text).map_err(|problem| Denied::invalid(field, problem.to_string()))
    })
}

/// Lists the kinds of usage that an agent does not report, each with the reason.
pub(in crate::ops) fn unmetered(config: &Config, agent: &AgentSpec) -> Vec<Unmetered> {
    let preset = Preset::from_text(&agent.preset);
    let is_known = preset
        .as_ref()
        .is_some_and(|preset| preset.can.usage && !preset.stream.usage_of_last_call);
    let states_cost = preset.as_ref().is_some_and(Preset::states_cost);
    let has_price = config.prices.of_agent(agent.name.as_str()).is_some();
    let has_gate = config.gate_of(&agent.name).is_some();
    let why = |kind: BudgetKind| match kind {
        BudgetKind::Time => None,
        BudgetKind::Tokens if has_gate => None,
        // The called models are known only when the gate counts them.
        BudgetKind::Cost if has_gate && (has_price || !config.prices.is_empty()) => None,
        BudgetKind::Cost if has_gate => {
            Some("its model has no price ([prices] in the configuration)")
        }
        _ if !is_known => Some("its CLI does not report all usage"),
        BudgetKind::Tokens => None,
        BudgetKind::Cost if states_cost || has_price => None,
        BudgetKind::Cost => Some(
            "its CLI does not report a cost, and the agent has no price (priced_as and [prices] in the configuration)",
        ),
    };
    BudgetKind::ALL
        .into_iter()
        .filter_map(|kind| Some((kind, why(kind)?)))
        .collect()
}

/// Refuses to make a budget hard if a run that draws on it does not report its usage.
pub(in crate::ops) fn check_metered(
    tx: &Tx<'_>,
    config: &Config,
    holder: RunId,
    add: &Budget,
) -> Result<(), StoreError> {
    if !add.is_hard {
        return Ok(());
    }
    for id in unfinished_runs_below(tx.connection(), holder)? {
        let agent = run_input(tx.connection(), id)?.agent;
        if let Some((kind, why)) = unmetered(config, &agent)
            .into_iter()
            .find(|(kind, _)| add.amount(*kind).is_some())
        {
            let problem = format!(
                "it is hard, but the {} of {} (agent {}) cannot be measured: {why}",
                kind.word(),
                tx.run(id)?.name,
                agent.name
            );
            return Err(Denied::invalid("add", problem).into());
        }
    }
    Ok(())
}

/// Raises the budgets on which a run draws. Returns the runs whose budgets have changed.
pub(in crate::ops) fn raise(
    tx: &mut Tx<'_>,
    who: &Principal,
    config: &Config,
    run: &Run,
    add: &Budget,
) -> Result<Vec<RunId>, StoreError> {
    tx.may_refuse_late()?;
    let holders = raise_budgets(tx, run, add, &who.to_string())?;
    for holder in &holders {
        if *who != Principal::Person {
            check_raised(tx, config, *holder, add)?;
        }
        check_metered(tx, config, *holder, add)?;
    }
    Ok(holders)
}

/// Refuses to raise a budget beyond the amount that the user has configured. Checks only the kinds
/// in `add`.
fn check_raised(
    tx: &Tx<'_>,
    config: &Config,
    holder: RunId,
    add: &Budget,
) -> Result<(), StoreError> {
    let configured = configured_for(config, &tx.run(holder)?);
    for row in budgets_of(tx.connection(), holder, tx.steady())?
        .iter()
        .filter(|row| row.run == holder && add.amount(row.kind).is_some())
    {
        if let Some(most) = configured
            .amount(row.kind)
            .filter(|most| row.account.limit > *most)
        {
            let problem = format!(
                "the user's configuration allows {} of {} at most: a person can raise it",
                row.kind.text(most),
                row.kind.word()
            );
            return Err(Denied::invalid("add", problem).into());
        }
    }
    Ok(())
}

/// Returns the budget that the user has configured for a run's agent and pool.
fn configured_for(config: &Config, run: &Run) -> Budget {
    match (AgentName::parse(&run.agent), PoolName::parse(&run.pool)) {
        (Ok(agent), Ok(pool)) => config.budget_of(&agent, &pool),
        _ => Budget::default(),
    }
}

/// Returns the budget of a retried run: that of the earlier run, limited to the amounts left above
/// it. A client cannot exceed the configured amounts. A root run gets the configured amounts for
/// kinds that the earlier run did not limit.
pub(in crate::ops) fn budget_again(
    tx: &Tx<'_>,
    config: &Config,
    who: &Principal,
    old: &Run,
) -> Result<Budget, StoreError> {
    let mut budget = stated_budgets(tx.connection(), old.id)?;
    let configured = configured_for(config, old);
    if *who != Principal::Person {
        configured
            .amounts()
            .for_each(|(kind, most)| budget.limit(kind, most));
    }
    let Some(parent) = old.parent else {
        return Ok(budget.or(configured));
    };
    for above in budgets_of(tx.connection(), parent, tx.steady())? {
        budget.limit(above.kind, above.account.left());
    }
    Ok(budget)
}

/// Charges an attempt whose turn or agent has ended without a usage report. Under a hard budget,
/// the whole rest counts as used. Does not stop a run that has ended by itself.
pub(in crate::ops) fn note_unstated(
    tx: &mut Tx<'_>,
    run: &Run,
    end: UsageEnd,
    terms: &Terms,
) -> Result<(), StoreError> {
    let is_stated = is_usage_stated(tx.connection(), run)?;
    if end == UsageEnd::Stopped {
        return note_stopped(tx, run, is_stated, terms);
    }
    let is_gated = run_input(tx.connection(), run.id)?.agent.gate.is_some();
    let except = (end != UsageEnd::Turn).then_some(run.id);
    if !is_stated && end != UsageEnd::Turn {
        tx.charge_unstated(
            run.id,
            1,
            terms.prices.of_agent(&run.agent),
            except,
            terms.retention,
        )?;
    }
    // A gate reports its counts when a response ends.
    if end == UsageEnd::Turn && is_gated {
        return Ok(());
    }
    if !is_stated {
        let why = format!("{} does not report its usage", run.agent);
        for kind in [BudgetKind::Tokens, BudgetKind::Cost] {
            tx.use_up_hard(run.id, kind, &why, except, terms.retention)?;
        }
    } else if !is_gated && tx.run(run.id)?.unpriced_tokens > 0 {
        let why = format!("{} does not report its cost", run.agent);
        tx.use_up_hard(run.id, BudgetKind::Cost, &why, except, terms.retention)?;
    }
    Ok(())
}

/// Charges an attempt that was stopped or failed, unless it has stated its usage.
pub(in crate::ops) fn note_stopped(
    tx: &mut Tx<'_>,
    run: &Run,
    is_stated: bool,
    terms: &Terms,
) -> Result<(), StoreError> {
    if is_stated {
        return Ok(());
    }
    tx.charge_unstated(
        run.id,
        1,
        terms.prices.of_agent(&run.agent),
        Some(run.id),
        terms.retention,
    )
}

/// The turn or attempt that ended without a usage report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum UsageEnd {
    /// A turn; the agent continues.
    Turn,
    /// The attempt, because its agent exited by itself.
    Attempt,
    /// The attempt, because it was stopped or failed.
    Stopped,
}

pub(in crate::ops) fn totals(used: Vec<ModelUsage>) -> Vec<ModelTotals> {
    let of = |usage: ModelUsage| {
        let ModelUsage {
            model,
            requests,
            input_tokens,
            cached_tokens,
            cache_write_tokens,
            output_tokens,
            unknown_requests,
        } = usage;
        let tokens = Tokens {
            input: input_tokens,
            cached: cached_tokens,
            cache_write: cache_write_tokens,
            output: output_tokens,
        };
        ModelTotals {
            model,
            requests,
            tokens,
            unknown_requests,
        }
    };
    used.into_iter().map(of).collect()
}

pub(in crate::ops) fn record_totals(
    tx: &mut Tx<'_>,
    run: &Run,
    used: &[ModelTotals],
    terms: &Terms,
) -> Result<(), StoreError> {
    let prices: Vec<_> = used
        .iter()
        .map(|of| price(&terms.prices, &of.model, run))
        .collect();
    tx.state_gate_usage(run, used, &prices, terms.retention)
}

fn price(prices: &Prices, model: &str, run: &Run) -> Option<Price> {
    prices
        .of_model(model)
        .or_else(|| prices.of_agent(&run.agent))
}

/// Records the usage that the gate has counted for a run. The usage of a finished run does not
/// change.
pub(in crate::ops) fn state_gate_usage(
    tx: &mut Tx<'_>,
    run: &Run,
    used: Vec<ModelUsage>,
    terms: &Terms,
) -> Result<(), StoreError> {
    if run.state.is_finished() {
        Ok(())
    } else {
        record_totals(tx, run, &totals(used), terms)
    }
}

/// Records that the agent of a run calls its model without the gate, and stops the run if its
/// budget is hard.
pub(in crate::ops) fn note_ignored_gate(
    tx: &mut Tx<'_>,
    run: &Run,
    why: &str,
    terms: &Terms,
) -> Result<(), StoreError> {
    let ignored = format!("its agent ignores its gate: {why}");
    tx.add_note(run, &ignored)?;
    for kind in [BudgetKind::Tokens, BudgetKind::Cost] {
        tx.stop_if_unknown(run.id, kind, why, terms.retention)?;
    }
    Ok(())
}

/// Returns the views of the budgets on which a run draws.
pub(in crate::ops) fn views(
    connection: &Connection,
    run: &Run,
) -> Result<Vec<BudgetView>, StoreError> {
    let rows = budgets_of(connection, run.id, clock::steady())?;
    let mut views = Vec::new();
    for row in rows {
        let BudgetRow {
            run: holder,
            kind,
            account,
            lender: _,
            is_hard,
            is_warned: _,
            unstated: _,
            unpriced: _,
        } = row;
        let of = if holder == run.id {
            run.name.clone()
        } else {
            run_by_id(connection, holder)?
                .map(|run| run.name)
                .unwrap_or_default()
        };
        let unknown = unknown_part(connection, &row)?;
        views.push(BudgetView {
            kind: kind.into(),
            of,
            amount: account.limit.unsigned_abs(),
            used: (account.used > 0 || unknown.is_none()).then(|| account.used.unsigned_abs()),
            reserved: account.reserved.unsigned_abs(),
            left: account.left().unsigned_abs(),
            used_percent: account.percent(),
            nearly_used: account.is_nearly_used(),
            hard: is_hard,
            unknown,
        });
    }
    Ok(views)
}

/// Returns the reason why the known usage is incomplete.
fn unknown_part(connection: &Connection, row: &BudgetRow) -> Result<Option<String>, StoreError> {
    if row.kind == BudgetKind::Time {
        return Ok(None);
    }
    if row.unstated > 0 {
        let what = if row.unstated == 1 {
            "1 attempt or request".to_owned()
        } else {
            format!("{} attempts or requests", row.unstated)
        };
        let floor = match row.kind {
            BudgetKind::Tokens => format!(
                ", counted as {} tokens each",
                row.kind.text(UNSTATED_TOKENS.cast_signed())
            ),
            BudgetKind::Cost | BudgetKind::Time => String::new(),
        };
        return Ok(Some(format!("{what} reported no usage{floor}")));
    }
    if row.kind == BudgetKind::Cost && row.unpriced > 0 {
        return Ok(Some(format!(
            "the cost of {} tokens is unknown",
            BudgetKind::Tokens.text(row.unpriced)
        )));
    }
    Ok(is_usage_awaited(connection, row.run, row.kind)?.then(|| NOT_STATED_YET.to_owned()))
}
