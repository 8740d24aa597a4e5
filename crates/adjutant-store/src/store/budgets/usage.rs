//! Usage that agents and the gate report as totals. Only their growth is charged.

use crate::store::db::{Connection, OptionalExtension, params};
use crate::store::runs::Usage;
use crate::store::{Run, StoreError, Tx};
use adjutant_core::budget::{AMOUNT_MAX, Price, STATED_COST_MICROS_MAX, Tokens, UNSTATED_TOKENS};
use adjutant_core::run::Retention;
use adjutant_core::{AttemptNo, BudgetKind, RunId};
use serde::{Deserialize, Serialize};

/// Totals of one model in an attempt, as the gate counted them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelTotals {
    pub model: String,
    pub requests: u64,
    pub tokens: Tokens,
    /// Requests with unknown usage.
    pub unknown_requests: u64,
}

/// The stored form of [`ModelTotals`].
#[derive(Debug, Serialize, Deserialize)]
struct ModelRow {
    model: String,
    requests: u64,
    input: u64,
    cached: u64,
    cache_write: u64,
    output: u64,
    unknown: u64,
}

impl ModelRow {
    fn of(totals: &ModelTotals) -> Self {
        let ModelTotals {
            model,
            requests,
            tokens:
                Tokens {
                    input,
                    cached,
                    cache_write,
                    output,
                },
            unknown_requests: unknown,
        } = totals.clone();
        Self {
            model,
            requests,
            input,
            cached,
            cache_write,
            output,
            unknown,
        }
    }

    fn decode(self) -> ModelTotals {
        let Self {
            model,
            requests,
            input,
            cached,
            cache_write,
            output,
            unknown,
        } = self;
        ModelTotals {
            model,
            requests,
            tokens: Tokens {
                input,
                cached,
                cache_write,
                output,
            },
            unknown_requests: unknown,
        }
    }
}

/// The last reported totals.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct TotalsRow {
    attempt: u32,
    session: Option<String>,
    input: u64,
    cached: u64,
    output: u64,
    /// The charged cost, reported or computed.
    cost_micros: u64,
    /// Tokens with unknown cost.
    unpriced: u64,
}

/// The usage of a run since the last report.
#[derive(Debug, Default)]
struct Growth {
    tokens: Tokens,
    /// The displayed usage. For some agents, `input` includes cached tokens.
    shown_input: u64,
    cost_micros: i64,
    is_priced: bool,
    /// Tokens whose cost is not known. Negative: it became known.
    unpriced: i64,
    is_cost_stated: bool,
    /// Requests without reported usage, and the minimum cost charged for them if their model has a price.
    unstated: u64,
    floor_cost_micros: i64,
}

/// Maximum number of models of one attempt, and the maximum length of a name in bytes.
const MODELS_MAX: usize = 64;
const MODEL_BYTES_MAX: usize = 200;

/// The attempt of totals that an earlier run reported. No attempt has this number.
const EARLIER_RUN: u32 = u32::MAX;

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX)
}

fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Reads the usage that an attempt's gate has counted. `None`: the gate has reported none.
///
/// # Errors
/// A failure of the store.
pub fn gate_usage_of(
    connection: &Connection,
    run: RunId,
    n: AttemptNo,
) -> Result<Option<Vec<ModelTotals>>, StoreError> {
    let text: Option<Option<String>> = connection
        .prepare_cached("SELECT gate_usage FROM attempts WHERE run = ?1 AND n = ?2")?
        .query_row(params![run.to_string(), n.0], |row| row.get(0))
        .optional()?;
    let Some(text) = text.flatten() else {
        return Ok(None);
    };
    let rows: Vec<ModelRow> = serde_json::from_str(&text)
        .map_err(|error| StoreError::Corrupt(format!("the gate's usage of run {run}: {error}")))?;
    Ok(Some(rows.into_iter().map(ModelRow::decode).collect()))
}

/// Returns whether reported totals exceed the known ones.
#[must_use]
pub fn has_grown(known: &[ModelTotals], stated: &[ModelTotals]) -> bool {
    stated.iter().any(
        |stated| match known.iter().find(|known| known.model == stated.model) {
            None => true,
            Some(known) => {
                stated.tokens.since(&known.tokens) != Tokens::default()
                    || stated.requests > known.requests
                    || stated.unknown_requests > known.unknown_requests
            }
        },
    )
}

/// Returns whether any usage of an attempt was reported.
///
/// # Errors
/// A failure of the store.
pub fn is_usage_stated(connection: &Connection, run: &Run) -> Result<bool, StoreError> {
    if gate_usage_of(connection, run.id, run.attempt)?.is_some() {
        return Ok(true);
    }
    let totals = totals_of(connection, run.id)?;
    Ok(totals.is_some_and(|totals| totals.attempt == run.attempt.0))
}

/// Announces the reads of [`is_usage_stated`].
pub fn announce_usage_stated(connection: &Connection, run: RunId, n: AttemptNo) {
    connection.announce(|connection| gate_usage_of(connection, run, n));
    connection.announce(|connection| totals_of(connection, run));
}

fn totals_of(connection: &Connection, run: RunId) -> Result<Option<TotalsRow>, StoreError> {
    let text: Option<String> = connection
        .prepare_cached("SELECT usage_totals FROM runs WHERE id = ?1")?
        .query_row([run.to_string()], |row| row.get(0))?;
    text.map(|text| {
        serde_json::from_str(&text)
            .map_err(|error| StoreError::Corrupt(format!("the usage of run {run}: {error}")))
    })
    .transpose()
}

impl Tx<'_> {
    /// Records the totals that a run's agent reports, and charges their growth. Uses `price` if the agent reports no cost. Ignores
    /// implausible, smaller and repeated totals, and those of an agent with a gate. Does not stop a run that has ended by itself
    /// (`is_over`).
    ///
    /// # Errors
    /// A failure of the store.
    pub fn state_usage(
        &mut self,
        run: &Run,
        stated: &Usage,
        price: Option<Price>,
        is_over: bool,
        retention: Retention,
    ) -> Result<(), StoreError> {
        let Usage {
            input_tokens,
            cached_tokens,
            output_tokens,
            cost_micros,
            of_session,
            cost_of_session,
            cached_in_input,
        } = *stated;
        let input = if cached_in_input {
            input_tokens.saturating_sub(cached_tokens)
        } else {
            input_tokens
        };
        let tokens = Tokens {
            input,
            cached: cached_tokens,
            cache_write: 0,
            output: output_tokens,
        };
        if tokens.is_absurd() || cost_micros.is_some_and(|micros| micros > STATED_COST_MICROS_MAX) {
            tracing::warn!(run = %run.id, ?stated, "a statement of usage that cannot be true has no effect");
            return Ok(());
        }
        if gate_usage_of(self.connection(), run.id, run.attempt)?.is_some() {
            return Ok(());
        }
        let known = self.known_totals(run, cached_in_input)?;
        let same_session = known.attempt > 0 && known.session == run.session;
        let counts = |is_of_session: bool| {
            if is_of_session {
                same_session
            } else {
                known.attempt == run.attempt.0
            }
        };
        let before = if counts(of_session) {
            Tokens {
                input: known.input,
                cached: known.cached,
                cache_write: 0,
                output: known.output,
            }
        } else {
            Tokens::default()
        };
        let (cost_before, unpriced_before) = if counts(cost_of_session) {
            (known.cost_micros, known.unpriced)
        } else {
            (0, 0)
        };
        let grown = tokens.since(&before);
        let mut growth = Growth {
            tokens: grown,
            shown_input: grown.input,
            is_cost_stated: cost_micros.is_some(),
            ..Growth::default()
        };
        if cached_in_input {
            growth.shown_input = grown.input.saturating_add(grown.cached);
        }
        let totals = tokens.max(&before);
        let mut row = TotalsRow {
            attempt: run.attempt.0,
            session: run.session.clone(),
            input: totals.input,
            cached: totals.cached,
            output: totals.output,
            cost_micros: cost_before,
            unpriced: unpriced_before,
        };
        match (cost_micros, price) {
            (Some(stated), _) => {
                growth.cost_micros = signed(stated.saturating_sub(cost_before));
                growth.unpriced = -signed(unpriced_before);
                (row.cost_micros, row.unpriced) = (stated.max(cost_before), 0);
            }
            // The reported cost covers all tokens so far.
            (None, Some(price)) => {
                growth.cost_micros = price.cost_micros(&grown);
                growth.is_priced = growth.cost_micros > 0;
                row.cost_micros = row
                    .cost_micros
                    .saturating_add(growth.cost_micros.unsigned_abs());
            }
            (None, None) => {
                growth.unpriced = grown.charged();
                row.unpriced = row.unpriced.saturating_add(growth.unpriced.unsigned_abs());
            }
        }
        self.prepare("UPDATE runs SET usage_totals = ?2 WHERE id = ?1")?
            .run(params![run.id.to_string(), json(&row)?])?;
        self.add_growth(run.id, &growth, retention, is_over.then_some(run.id))
    }

    /// Sets the last reported totals of a run to those of the run whose session it continues.
    pub(in crate::store) fn continue_usage(
        &mut self,
        run: RunId,
        of: RunId,
    ) -> Result<(), StoreError> {
        let Some(totals) = totals_of(self.connection(), of)? else {
            return Ok(());
        };
        let row = TotalsRow {
            attempt: EARLIER_RUN,
            ..totals
        };
        self.prepare("UPDATE runs SET usage_totals = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), json(&row)?])?;
        Ok(())
    }

    /// Reads the last reported totals. Older versions stored only their sum.
    fn known_totals(&self, run: &Run, cached_in_input: bool) -> Result<TotalsRow, StoreError> {
        match (totals_of(self.connection(), run.id)?, run.usage) {
            (Some(totals), _) => Ok(totals),
            (None, None) => Ok(TotalsRow::default()),
            (
                None,
                Some(Usage {
                    input_tokens,
                    cached_tokens: cached,
                    output_tokens: output,
                    cost_micros,
                    ..
                }),
            ) => Ok(TotalsRow {
                attempt: run.attempt.0.saturating_sub(1).max(1),
                session: run.session.clone(),
                input: if cached_in_input {
                    input_tokens.saturating_sub(cached)
                } else {
                    input_tokens
                },
                cached,
                output,
                cost_micros: cost_micros.unwrap_or(0),
                unpriced: 0,
            }),
        }
    }

    /// Records the totals that the gate has counted for an attempt, and charges their growth. `prices` has one entry for each total;
    /// `None`: no price is configured.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn state_gate_usage(
        &mut self,
        run: &Run,
        stated: &[ModelTotals],
        prices: &[Option<Price>],
        retention: Retention,
    ) -> Result<(), StoreError> {
        let before = gate_usage_of(self.connection(), run.id, run.attempt)?;
        let mut known = before.clone().unwrap_or_default();
        let mut growth = Growth::default();
        for (stated, price) in stated.iter().zip(prices) {
            if stated.tokens.is_absurd() || stated.model.len() > MODEL_BYTES_MAX {
                tracing::warn!(run = %run.id, ?stated, "a statement of usage that cannot be true has no effect");
                continue;
            }
            let at = match known.iter().position(|known| known.model == stated.model) {
                Some(at) => at,
                None if known.len() >= MODELS_MAX => continue,
                None => {
                    known.push(ModelTotals {
                        model: stated.model.clone(),
                        ..ModelTotals::default()
                    });
                    known.len() - 1
                }
            };
            let earlier = &mut known[at];
            let grown = stated.tokens.since(&earlier.tokens);
            growth.tokens = growth.tokens.plus(&grown);
            match price {
                Some(price) => {
                    growth.cost_micros = growth
                        .cost_micros
                        .saturating_add(price.cost_micros(&grown))
                        .min(AMOUNT_MAX)
                }
                None => {
                    growth.unpriced = growth
                        .unpriced
                        .saturating_add(grown.charged())
                        .min(AMOUNT_MAX)
                }
            }
            let unstated = stated
                .unknown_requests
                .saturating_sub(earlier.unknown_requests);
            growth.unstated = growth.unstated.saturating_add(unstated);
            let floor = Tokens {
                input: unstated.saturating_mul(UNSTATED_TOKENS),
                ..Tokens::default()
            };
            let floor_cost = price.map_or(0, |price| price.cost_micros(&floor));
            growth.floor_cost_micros = growth
                .floor_cost_micros
                .saturating_add(floor_cost)
                .min(AMOUNT_MAX);
            earlier.tokens = stated.tokens.max(&earlier.tokens);
            earlier.requests = stated.requests.max(earlier.requests);
            earlier.unknown_requests = stated.unknown_requests.max(earlier.unknown_requests);
        }
        if before.as_ref() == Some(&known) {
            return Ok(());
        }
        growth.shown_input = growth
            .tokens
            .input
            .saturating_add(growth.tokens.cache_write);
        growth.is_priced = growth.cost_micros > 0;
        let rows: Vec<ModelRow> = known.iter().map(ModelRow::of).collect();
        self.prepare("UPDATE attempts SET gate_usage = ?3 WHERE run = ?1 AND n = ?2")?
            .run(params![run.id.to_string(), run.attempt.0, json(&rows)?])?;
        self.add_growth(run.id, &growth, retention, None)?;
        if growth.unpriced > 0 {
            self.stop_if_unknown(
                run.id,
                BudgetKind::Cost,
                "the cost of its model is not known ([prices] in the configuration)",
                retention,
            )?;
        }
        if growth.unstated > 0 {
            for kind in [BudgetKind::Tokens, BudgetKind::Cost] {
                self.stop_if_unknown(
                    run.id,
                    kind,
                    "a response of its model states no usage",
                    retention,
                )?;
            }
        }
        Ok(())
    }

    fn add_growth(
        &mut self,
        run: RunId,
        growth: &Growth,
        retention: Retention,
        except: Option<RunId>,
    ) -> Result<(), StoreError> {
        let Growth {
            tokens,
            shown_input,
            cost_micros,
            is_priced,
            unpriced,
            is_cost_stated,
            unstated,
            floor_cost_micros,
        } = growth;
        let is_cost_known = *is_cost_stated || *is_priced;
        self.prepare(
            "UPDATE runs SET input_tokens = smaller(coalesce(input_tokens, 0) + ?2, ?8), cached_tokens = smaller(coalesce(cached_tokens, 0) + ?3, ?8),
             output_tokens = smaller(coalesce(output_tokens, 0) + ?4, ?8),
             cost_micros = CASE WHEN ?5 = 1 THEN smaller(coalesce(cost_micros, 0) + ?6, ?8) ELSE cost_micros END,
             unpriced_tokens = larger(0, smaller(unpriced_tokens + ?7, ?8)), is_priced = larger(is_priced, ?9) WHERE id = ?1",
        )?
        .run(params![
            run.to_string(),
            signed(*shown_input),
            signed(tokens.cached),
            signed(tokens.output),
            is_cost_known,
            cost_micros,
            unpriced,
            AMOUNT_MAX,
            is_priced
        ])?;
        self.count_unknown(run, BudgetKind::Tokens, signed(*unstated), 0)?;
        self.count_unknown(run, BudgetKind::Cost, signed(*unstated), *unpriced)?;
        let floor = signed(unstated.saturating_mul(UNSTATED_TOKENS));
        self.charge(
            run,
            BudgetKind::Tokens,
            tokens.charged().saturating_add(floor),
            retention,
            except,
        )?;
        self.charge(
            run,
            BudgetKind::Cost,
            cost_micros.saturating_add(*floor_cost_micros),
            retention,
            except,
        )
    }
}
