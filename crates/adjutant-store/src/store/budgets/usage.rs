//! Usage that agents and the gate report as totals. Only their growth is charged.

use super::charge;
use super::unknown::count_unknown;
use crate::store::db::{Connection, params};
use crate::store::records::run::Usage;
use crate::store::{Run, StoreError, Tx};
use adjutant_core::budget::{AMOUNT_MAX, Price, STATED_COST_MICROS_MAX, Tokens, UNSTATED_TOKENS};
use adjutant_core::cascade::Step;
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
    /// Requests without reported usage, and the minimum cost charged for them if their model has a
    /// price.
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
        .find_row(params![run.to_string(), n.0])?;
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
        .read_row([run.to_string()])?;
    text.map(|text| {
        serde_json::from_str(&text)
            .map_err(|error| StoreError::Corrupt(format!("the usage of run {run}: {error}")))
    })
    .transpose()
}

/// Returns the tokens of a statement, without those of the cache in its input. `None`: it cannot be
/// true.
fn plausible_tokens(stated: &Usage) -> Option<Tokens> {
    let input = if stated.cached_in_input {
        stated.input_tokens.saturating_sub(stated.cached_tokens)
    } else {
        stated.input_tokens
    };
    let tokens = Tokens {
        input,
        cached: stated.cached_tokens,
        cache_write: 0,
        output: stated.output_tokens,
    };
    let is_absurd = tokens.is_absurd()
        || stated
            .cost_micros
            .is_some_and(|micros| micros > STATED_COST_MICROS_MAX);
    (!is_absurd).then_some(tokens)
}

/// What an agent states about the usage of a run's attempt, or of its session.
struct Statement<'a> {
    attempt: AttemptNo,
    /// The session of the run.
    session: Option<&'a str>,
    usage: &'a Usage,
    /// Those of the usage.
    tokens: Tokens,
}

impl Statement<'_> {
    /// Returns the totals to store, and how much they exceed the last ones.
    fn growth_since(&self, known: &TotalsRow, price: Option<Price>) -> (TotalsRow, Growth) {
        let Usage {
            cost_micros,
            of_session,
            cost_of_session,
            cached_in_input,
            ..
        } = *self.usage;
        let before = if self.continues(known, of_session) {
            Tokens {
                input: known.input,
                cached: known.cached,
                cache_write: 0,
                output: known.output,
            }
        } else {
            Tokens::default()
        };
        let (cost_before, unpriced_before) = if self.continues(known, cost_of_session) {
            (known.cost_micros, known.unpriced)
        } else {
            (0, 0)
        };
        let grown = self.tokens.since(&before);
        let totals = self.tokens.max(&before);
        let mut growth = Growth {
            tokens: grown,
            shown_input: grown.input,
            is_cost_stated: cost_micros.is_some(),
            ..Growth::default()
        };
        if cached_in_input {
            growth.shown_input = grown.input.saturating_add(grown.cached);
        }
        let mut row = TotalsRow {
            attempt: self.attempt.0,
            session: self.session.map(ToOwned::to_owned),
            input: totals.input,
            cached: totals.cached,
            output: totals.output,
            cost_micros: cost_before,
            unpriced: unpriced_before,
        };
        match (cost_micros, price) {
            // The reported cost covers all tokens so far.
            (Some(stated), _) => {
                growth.cost_micros = signed(stated.saturating_sub(cost_before));
                growth.unpriced = -signed(unpriced_before);
                (row.cost_micros, row.unpriced) = (stated.max(cost_before), 0);
            }
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
        (row, growth)
    }

    /// Returns whether totals of the session, or else of the attempt, continue the known ones.
    fn continues(&self, known: &TotalsRow, is_of_session: bool) -> bool {
        if is_of_session {
            known.attempt > 0 && known.session.as_deref() == self.session
        } else {
            known.attempt == self.attempt.0
        }
    }
}

/// Returns the totals of a model, new ones if there is room for another model.
fn entry_of<'a>(known: &'a mut Vec<ModelTotals>, model: &str) -> Option<&'a mut ModelTotals> {
    let at = match known.iter().position(|known| known.model == model) {
        Some(at) => at,
        None if known.len() >= MODELS_MAX => return None,
        None => {
            known.push(ModelTotals {
                model: model.to_owned(),
                ..ModelTotals::default()
            });
            known.len() - 1
        }
    };
    known.get_mut(at)
}

impl ModelTotals {
    /// Totals only grow.
    fn raise_to(&mut self, stated: &Self) {
        self.tokens = stated.tokens.max(&self.tokens);
        self.requests = stated.requests.max(self.requests);
        self.unknown_requests = stated.unknown_requests.max(self.unknown_requests);
    }
}

impl Growth {
    /// Adds what a model's totals exceed the earlier ones by. Requests without reported usage cost
    /// at least a minimum.
    fn add_model(&mut self, earlier: &ModelTotals, stated: &ModelTotals, price: Option<Price>) {
        let capped = |sum: i64, more: i64| sum.saturating_add(more).min(AMOUNT_MAX);
        let grown = stated.tokens.since(&earlier.tokens);
        self.tokens = self.tokens.plus(&grown);
        match price {
            Some(price) => self.cost_micros = capped(self.cost_micros, price.cost_micros(&grown)),
            None => self.unpriced = capped(self.unpriced, grown.charged()),
        }
        let unstated = stated
            .unknown_requests
            .saturating_sub(earlier.unknown_requests);
        self.unstated = self.unstated.saturating_add(unstated);
        let floor = Tokens {
            input: unstated.saturating_mul(UNSTATED_TOKENS),
            ..Tokens::default()
        };
        let floor_cost = price.map_or(0, |price| price.cost_micros(&floor));
        self.floor_cost_micros = capped(self.floor_cost_micros, floor_cost);
    }
}

/// Records the totals that a run's agent reports, and charges their growth. Uses `price` if the
/// agent reports no cost. Ignores implausible, smaller and repeated totals, and those of an
/// agent with a gate. `is_over`: the run has ended by itself, and is not to be stopped.
pub(in crate::store) fn record_usage(
    tx: &mut Tx<'_>,
    run: &Run,
    stated: &Usage,
    price: Option<Price>,
    is_over: bool,
) -> Result<(), StoreError> {
    let Some(tokens) = plausible_tokens(stated) else {
        tracing::warn!(run = %run.id, ?stated, "a statement of usage that cannot be true has no effect");
        return Ok(());
    };
    if gate_usage_of(tx.connection(), run.id, run.attempt)?.is_some() {
        return Ok(());
    }
    let known = known_totals(tx, run, stated.cached_in_input)?;
    let statement = Statement {
        attempt: run.attempt,
        session: run.session.as_deref(),
        usage: stated,
        tokens,
    };
    let (row, growth) = statement.growth_since(&known, price);
    tx.prepare("UPDATE runs SET usage_totals = ?2 WHERE id = ?1")?
        .run(params![run.id.to_string(), json(&row)?])?;
    add_growth(tx, run.id, &growth, is_over.then_some(run.id))
}

/// Sets the last reported totals of a run to those of the run whose session it continues.
pub(in crate::store) fn continue_usage(
    tx: &mut Tx<'_>,
    run: RunId,
    of: RunId,
) -> Result<(), StoreError> {
    let Some(totals) = totals_of(tx.connection(), of)? else {
        return Ok(());
    };
    let row = TotalsRow {
        attempt: EARLIER_RUN,
        ..totals
    };
    tx.prepare("UPDATE runs SET usage_totals = ?2 WHERE id = ?1")?
        .run(params![run.to_string(), json(&row)?])?;
    Ok(())
}

/// Reads the last reported totals. If gates have counted all usage so far, only its sum is
/// known.
fn known_totals(tx: &Tx<'_>, run: &Run, cached_in_input: bool) -> Result<TotalsRow, StoreError> {
    match (totals_of(tx.connection(), run.id)?, run.usage) {
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

/// Records the totals that the gate has counted for an attempt, and charges their growth.
/// `prices` has one entry for each total; `None`: no price is configured.
pub(in crate::store) fn record_gate_usage(
    tx: &mut Tx<'_>,
    run: &Run,
    stated: &[ModelTotals],
    prices: &[Option<Price>],
) -> Result<(), StoreError> {
    let before = gate_usage_of(tx.connection(), run.id, run.attempt)?;
    let mut known = before.clone().unwrap_or_default();
    let mut growth = Growth::default();
    for (stated, price) in stated.iter().zip(prices) {
        if stated.tokens.is_absurd() || stated.model.len() > MODEL_BYTES_MAX {
            tracing::warn!(run = %run.id, ?stated, "a statement of usage that cannot be true has no effect");
            continue;
        }
        if let Some(earlier) = entry_of(&mut known, &stated.model) {
            growth.add_model(earlier, stated, *price);
            earlier.raise_to(stated);
        }
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
    tx.prepare("UPDATE attempts SET gate_usage = ?3 WHERE run = ?1 AND n = ?2")?
        .run(params![run.id.to_string(), run.attempt.0, json(&rows)?])?;
    add_growth(tx, run.id, &growth, None)?;
    name_unknown_usage(tx, run.id, &growth);
    Ok(())
}

/// Names the run to stop, if it has a hard budget that the gate cannot enforce.
fn name_unknown_usage(tx: &mut Tx<'_>, run: RunId, growth: &Growth) {
    if growth.unpriced > 0 {
        tx.then(Step::StopIfUnknown {
            run,
            kind: BudgetKind::Cost,
            why: "the cost of its model is not known ([prices] in the configuration)".into(),
        });
    }
    if growth.unstated > 0 {
        for kind in [BudgetKind::Tokens, BudgetKind::Cost] {
            tx.then(Step::StopIfUnknown {
                run,
                kind,
                why: "a response of its model states no usage".into(),
            });
        }
    }
}

fn add_growth(
    tx: &mut Tx<'_>,
    run: RunId,
    growth: &Growth,
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
    tx.prepare(
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
    count_unknown(tx, run, BudgetKind::Tokens, signed(*unstated), 0)?;
    count_unknown(tx, run, BudgetKind::Cost, signed(*unstated), *unpriced)?;
    let floor = signed(unstated.saturating_mul(UNSTATED_TOKENS));
    charge(
        tx,
        run,
        BudgetKind::Tokens,
        tokens.charged().saturating_add(floor),
        except,
    )?;
    charge(
        tx,
        run,
        BudgetKind::Cost,
        cost_micros.saturating_add(*floor_cost_micros),
        except,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATED: Usage = Usage {
        input_tokens: 100,
        cached_tokens: 40,
        output_tokens: 10,
        cost_micros: None,
        of_session: true,
        cost_of_session: true,
        cached_in_input: false,
    };

    fn known(attempt: u32) -> TotalsRow {
        TotalsRow {
            attempt,
            session: Some("s".to_owned()),
            input: 60,
            cached: 40,
            output: 4,
            cost_micros: 500,
            unpriced: 30,
        }
    }

    fn growth(usage: &Usage, session: Option<&str>, known: &TotalsRow) -> (TotalsRow, Growth) {
        let tokens = plausible_tokens(usage).expect("plausible");
        let statement = Statement {
            attempt: AttemptNo(2),
            session,
            usage,
            tokens,
        };
        statement.growth_since(known, None)
    }

    #[test]
    fn totals_of_a_session_continue_in_the_next_attempt() {
        let (row, grown) = growth(&STATED, Some("s"), &known(1));
        assert_eq!((grown.tokens.input, grown.tokens.output), (40, 6));
        assert_eq!((row.attempt, row.input, row.cached), (2, 100, 40));
        // Another session begins at nothing.
        let (_, grown) = growth(&STATED, Some("other"), &known(1));
        assert_eq!(grown.tokens.input, 100);
        // So do totals of an attempt.
        let of_attempt = Usage {
            of_session: false,
            ..STATED
        };
        let (_, grown) = growth(&of_attempt, Some("s"), &known(1));
        assert_eq!(grown.tokens.input, 100);
    }

    #[test]
    fn smaller_totals_have_no_effect() {
        let smaller = Usage {
            input_tokens: 10,
            cached_tokens: 0,
            output_tokens: 0,
            ..STATED
        };
        let (row, grown) = growth(&smaller, Some("s"), &known(2));
        assert_eq!(grown.tokens, Tokens::default());
        assert_eq!((row.input, row.cached, row.output), (60, 40, 4));
    }

    #[test]
    fn stated_cost_covers_tokens_without_a_price() {
        let with_cost = Usage {
            cost_micros: Some(800),
            ..STATED
        };
        let (row, grown) = growth(&with_cost, Some("s"), &known(2));
        assert_eq!((grown.cost_micros, grown.unpriced), (300, -30));
        assert_eq!((row.cost_micros, row.unpriced), (800, 0));
        let (row, grown) = growth(&STATED, Some("s"), &known(2));
        assert_eq!(grown.cost_micros, 0);
        assert!(grown.unpriced > 0 && row.unpriced > 30);
    }

    #[test]
    fn implausible_statement_has_no_tokens() {
        let absurd = Usage {
            cost_micros: Some(STATED_COST_MICROS_MAX + 1),
            ..STATED
        };
        assert_eq!(plausible_tokens(&absurd), None);
        let cached = Usage {
            cached_in_input: true,
            ..STATED
        };
        assert_eq!(
            plausible_tokens(&cached).map(|tokens| (tokens.input, tokens.cached)),
            Some((60, 40))
        );
    }

    #[test]
    fn models_beyond_the_limit_are_not_counted() {
        let mut totals = Vec::new();
        for n in 0..MODELS_MAX {
            assert!(entry_of(&mut totals, &n.to_string()).is_some());
        }
        assert!(entry_of(&mut totals, "another").is_none());
        assert!(entry_of(&mut totals, "0").is_some());
    }
}
