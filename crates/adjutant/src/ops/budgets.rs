//! Budgets: what the configuration says, what attempts state, how they are shown.

use crate::clock;
use crate::config::{Config, Prices};
use crate::link::ModelUsage;
use crate::ops::Terms;
use crate::preset::Preset;
use crate::store::{BudgetRow, Connection, ModelTotals, Run, StoreError, Tx, budgets_of, run_by_id, usage_gaps};
use crate::view::BudgetView;
use adjutant_core::budget::{Price, Tokens};
use adjutant_core::{AgentSpec, Budget, BudgetKind, Denied, PoolName, Principal, RunId};

/// Returns the budget of a new run: the stated one, and for other kinds the configured one. A client cannot have more than
/// the user has configured.
pub(in crate::ops) fn budget_for(config: &Config, who: &Principal, agent: &AgentSpec, pool: &PoolName, stated: &Budget) -> Result<Budget, Denied> {
    let configured = config.budget_of(&agent.name, pool);
    if *who != Principal::Person
        && let Some((kind, most)) = stated.exceeds(&configured)
    {
        let problem = format!("the user's configuration allows {} of {} at most", kind.text(most), kind.word());
        return Err(Denied::invalid("budget", problem));
    }
    let budget = stated.or(configured);
    if budget.is_hard
        && let Some((kind, why)) = unknown_usage(config, agent, &budget).into_iter().next()
    {
        return Err(Denied::invalid("budget", format!("it is hard, but the {} of {} cannot be measured: {why}", kind.word(), agent.name)));
    }
    Ok(budget)
}

/// Parses a stated budget.
pub(in crate::ops) fn stated_budget(field: &'static str, text: Option<&str>) -> Result<Budget, Denied> {
    text.map_or(Ok(Budget::default()), |text| Budget::parse(text).map_err(|problem| Denied::invalid(field, problem)))
}

/// Lists the kinds of a budget whose usage an agent does not report, each with the reason.
pub(in crate::ops) fn unknown_usage(config: &Config, agent: &AgentSpec, budget: &Budget) -> Vec<(BudgetKind, &'static str)> {
    let preset = Preset::from_text(&agent.preset);
    let is_known = preset.as_ref().is_some_and(|preset| preset.can.usage && !preset.stream.usage_of_last_call);
    let states_cost = preset.as_ref().is_some_and(Preset::states_cost);
    let has_price = config.prices.of_agent(agent.name.as_str()).is_some();
    let has_gate = config.gate_of(&agent.name).is_some();
    let why = |kind: BudgetKind| match kind {
        BudgetKind::Time => None,
        BudgetKind::Tokens if has_gate => None,
        // Which of the models it calls is known only then.
        BudgetKind::Cost if has_gate && (has_price || !config.prices.is_empty()) => None,
        BudgetKind::Cost if has_gate => Some("its model has no price ([prices] in the configuration)"),
        _ if !is_known => Some("its CLI does not report all usage"),
        BudgetKind::Tokens => None,
        BudgetKind::Cost if states_cost || has_price => None,
        BudgetKind::Cost => Some("its CLI does not report a cost, and the agent has no price (priced_as and [prices] in the configuration)"),
    };
    budget.amounts().filter_map(|(kind, _)| Some((kind, why(kind)?))).collect()
}

pub(in crate::ops) fn totals(used: Vec<ModelUsage>) -> Vec<ModelTotals> {
    let of = |usage: ModelUsage| {
        let ModelUsage { model, requests, input_tokens, cached_tokens, cache_write_tokens, output_tokens, unknown_requests } = usage;
        let tokens = Tokens { input: input_tokens, cached: cached_tokens, cache_write: cache_write_tokens, output: output_tokens };
        ModelTotals { model, requests, tokens, unknown_requests }
    };
    used.into_iter().map(of).collect()
}

pub(in crate::ops) fn record_totals(tx: &mut Tx<'_>, run: &Run, used: &[ModelTotals], terms: &Terms) -> Result<(), StoreError> {
    let prices: Vec<_> = used.iter().map(|of| price(&terms.prices, &of.model, run)).collect();
    tx.state_gate_usage(run, used, &prices, terms.retention)
}

fn price(prices: &Prices, model: &str, run: &Run) -> Option<Price> {
    prices.of_model(model).or_else(|| prices.of_agent(&run.agent))
}

/// Records the usage that the gate has counted for a run. The usage of a finished run does not change.
pub(in crate::ops) fn state_gate_usage(tx: &mut Tx<'_>, run: &Run, used: Vec<ModelUsage>, terms: &Terms) -> Result<(), StoreError> {
    if run.state.is_finished() { Ok(()) } else { record_totals(tx, run, &totals(used), terms) }
}

/// Records that the agent of a run calls its model without the gate, and stops the run if its budget is hard.
pub(in crate::ops) fn note_ignored_gate(tx: &mut Tx<'_>, run: &Run, why: &str, terms: &Terms) -> Result<(), StoreError> {
    let ignored = format!("its agent ignores its gate: {why}");
    let note = match &run.note {
        Some(earlier) if !earlier.contains(&ignored) => format!("{earlier}; {ignored}"),
        _ => ignored,
    };
    tx.set_note(run.id, Some(&note))?;
    for kind in [BudgetKind::Tokens, BudgetKind::Cost] {
        tx.stop_if_unknown(run.id, kind, why, terms.retention)?;
    }
    Ok(())
}

/// Returns the budgets on which a run draws, as they are shown.
pub(in crate::ops) fn views(connection: &Connection, run: &Run) -> Result<Vec<BudgetView>, StoreError> {
    let rows = budgets_of(connection, run.id, clock::steady())?;
    let mut views = Vec::new();
    for row in rows {
        let BudgetRow { run: holder, kind, account, lender: _, is_hard, is_warned: _ } = row;
        let of = if holder == run.id { run.name.clone() } else { run_by_id(connection, holder)?.map(|run| run.name).unwrap_or_default() };
        views.push(BudgetView {
            kind: kind.into(),
            of,
            amount: account.limit.unsigned_abs(),
            used: account.used.unsigned_abs(),
            reserved: account.reserved.unsigned_abs(),
            left: account.left().unsigned_abs(),
            used_percent: account.percent(),
            nearly_used: account.is_nearly_used(),
            hard: is_hard,
            unknown: unknown_part(connection, holder, kind)?,
        });
    }
    Ok(views)
}

/// Returns why the known usage is not all.
fn unknown_part(connection: &Connection, holder: RunId, kind: BudgetKind) -> Result<Option<String>, StoreError> {
    let seen = usage_gaps(connection, holder, kind)?;
    Ok(match kind {
        BudgetKind::Time => None,
        BudgetKind::Tokens if seen.unreported > 0 => Some(runs_text(seen.unreported, "reports no usage", "report no usage")),
        BudgetKind::Cost if seen.unreported > 0 => Some(runs_text(seen.unreported, "reports no usage", "report no usage")),
        BudgetKind::Cost if seen.unpriced > 0 => Some(format!("the cost of {} tokens is unknown", BudgetKind::Tokens.text(seen.unpriced))),
        BudgetKind::Tokens | BudgetKind::Cost => None,
    })
}

fn runs_text(runs: i64, one: &str, more: &str) -> String {
    if runs == 1 { format!("1 run {one}") } else { format!("{runs} runs {more}") }
}
