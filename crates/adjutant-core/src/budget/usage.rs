//! Usage that agents and gates report, and its cost.

use super::AMOUNT_MAX;

/// Maximum number of tokens of one kind that is accepted in one report of usage.
pub(crate) const STATED_TOKENS_MAX: u64 = 1_000_000_000_000;
/// Maximum cost that is accepted in one report, in millionths of a dollar.
pub const STATED_COST_MICROS_MAX: u64 = 1_000_000_000_000;
/// The charge for a request or attempt without reported usage, in tokens. Less than coding agents
/// use for one request.
pub const UNSTATED_TOKENS: u64 = 1_000;

/// Token counters that an agent or the gate reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Input tokens that were neither read from the cache nor written to it.
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
}

impl Tokens {
    /// Returns whether the numbers are implausible.
    #[must_use]
    pub fn is_absurd(&self) -> bool {
        [self.input, self.cached, self.cache_write, self.output]
            .into_iter()
            .any(|count| count > STATED_TOKENS_MAX)
    }

    /// Returns the tokens that count against a budget. Cache reads do not count.
    #[must_use]
    pub fn charged(&self) -> i64 {
        let sum = self
            .input
            .saturating_add(self.cache_write)
            .saturating_add(self.output);
        i64::try_from(sum).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX)
    }

    /// Returns the growth of these totals since earlier ones. A smaller total counts as no growth.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            input: self.input.saturating_sub(earlier.input),
            cached: self.cached.saturating_sub(earlier.cached),
            cache_write: self.cache_write.saturating_sub(earlier.cache_write),
            output: self.output.saturating_sub(earlier.output),
        }
    }

    /// Returns the larger total of each counter.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        Self {
            input: self.input.max(other.input),
            cached: self.cached.max(other.cached),
            cache_write: self.cache_write.max(other.cache_write),
            output: self.output.max(other.output),
        }
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// The price of one model, in billionths of a dollar per token (the price in dollars for a million
/// tokens, times 1,000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
}

impl Price {
    /// Returns the cost of tokens in millionths of a dollar, rounded up.
    #[must_use]
    pub fn cost_micros(&self, tokens: &Tokens) -> i64 {
        let part = |count: u64, price: u64| u128::from(count).saturating_mul(u128::from(price));
        let sum = part(tokens.input, self.input)
            .saturating_add(part(tokens.cached, self.cached))
            .saturating_add(part(tokens.cache_write, self.cache_write))
            .saturating_add(part(tokens.output, self.output));
        i64::try_from(sum.div_ceil(1_000))
            .unwrap_or(AMOUNT_MAX)
            .min(AMOUNT_MAX)
    }
}

/// Converts a reported cost in dollars. `None`: the cost is implausible.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the bounds are checked before"
)]
pub fn micros_of(dollars: f64) -> Option<u64> {
    let micros = (dollars * 1_000_000.0).round();
    (micros >= 0.0 && micros <= STATED_COST_MICROS_MAX as f64).then_some(micros as u64)
}
