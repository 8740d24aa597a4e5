//! Budgets: limits on the active time, tokens and money that a run and the runs below it use.
//!
//! A run with a budget of a kind has an [`Account`] of it. A run without one draws on the nearest
//! account above it. A budget of a run below another one is transferred from that one's account and
//! returns when the run and everything below it has ended; the used amount is then charged there.

mod account;
#[cfg(test)]
mod tests;
mod text;
mod usage;

pub use account::{Account, TooLittleLeft, check_left, fits_beside};
pub use usage::{Price, STATED_COST_MICROS_MAX, Tokens, UNSTATED_TOKENS, micros_of};

use crate::units::{duration, money, tokens};
use crate::{shorten, words};
use std::fmt;

/// Maximum amount, in milliseconds, tokens or millionths of a dollar. The sum of two is far below
/// `i64::MAX`.
pub const AMOUNT_MAX: i64 = 1_000_000_000_000_000;
/// Maximum number of characters of an invalid part in its refusal.
const PART_CHARS_MAX: usize = 60;
/// The used part from which a budget counts as nearly used up, in percent.
pub const WARN_PERCENT: u8 = 80;

/// The resource that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BudgetKind {
    /// Active time, in milliseconds.
    Time,
    /// Input without cache reads, and output.
    Tokens,
    /// Money, in millionths of a dollar.
    Cost,
}

words!(BudgetKind { Time = "time", Tokens = "tokens", Cost = "cost" });

/// A kind of usage that an agent does not report, and the reason.
pub type Unmetered = (BudgetKind, &'static str);

/// The requested budget of a run. An absent kind has no limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub time_ms: Option<i64>,
    pub tokens: Option<i64>,
    pub cost_micros: Option<i64>,
    /// Whether the run is refused or stopped if its usage is unknown.
    pub is_hard: bool,
}

/// Why a text is not a budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("{0:?} is not a budget: write cost=5, tokens=2M or time=1h30m, several with commas")]
    Malformed(String),
    #[error("{} is stated twice", .0.word())]
    Twice(BudgetKind),
    #[error("hard needs a budget with it: cost=5, tokens=2M or time=1h30m")]
    OnlyHard,
}

impl Budget {
    /// Parses `cost=5,tokens=2M,time=1h30m,hard`: dollars, tokens, active time.
    ///
    /// # Errors
    /// The text is not a budget.
    pub fn parse(text: &str) -> Result<Self, BudgetError> {
        let mut budget = Self::default();
        for part in text.split(',').map(str::trim) {
            if part == "hard" {
                budget.is_hard = true;
                continue;
            }
            let wrong =
                || BudgetError::Malformed(shorten::to_chars(part, PART_CHARS_MAX).into_owned());
            let (word, value) = part.split_once('=').ok_or_else(wrong)?;
            let kind = BudgetKind::from_word(word.trim()).ok_or_else(wrong)?;
            let read = match kind {
                BudgetKind::Time => duration::parse(value).ok(),
                BudgetKind::Tokens => tokens::parse(value.trim()),
                BudgetKind::Cost => money::parse(value.trim()),
            };
            let amount = read
                .filter(|amount| (1..=AMOUNT_MAX).contains(amount))
                .ok_or_else(wrong)?;
            if budget.amount(kind).is_some() {
                return Err(BudgetError::Twice(kind));
            }
            *budget.slot(kind) = Some(amount);
        }
        if budget.is_empty() {
            return Err(BudgetError::OnlyHard);
        }
        Ok(budget)
    }

    /// Returns the amount of a kind.
    #[must_use]
    pub fn amount(&self, kind: BudgetKind) -> Option<i64> {
        match kind {
            BudgetKind::Time => self.time_ms,
            BudgetKind::Tokens => self.tokens,
            BudgetKind::Cost => self.cost_micros,
        }
    }

    fn slot(&mut self, kind: BudgetKind) -> &mut Option<i64> {
        match kind {
            BudgetKind::Time => &mut self.time_ms,
            BudgetKind::Tokens => &mut self.tokens,
            BudgetKind::Cost => &mut self.cost_micros,
        }
    }

    /// Lowers the amount of a kind to at most `most`, if the kind is limited.
    pub fn limit(&mut self, kind: BudgetKind, most: i64) {
        let slot = self.slot(kind);
        *slot = slot.map(|amount| amount.min(most));
    }

    /// Sets the amount of a kind.
    #[must_use]
    pub fn with(mut self, kind: BudgetKind, amount: i64) -> Self {
        *self.slot(kind) = Some(amount);
        self
    }

    /// Returns whether the budget limits nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        BudgetKind::ALL
            .into_iter()
            .all(|kind| self.amount(kind).is_none())
    }

    /// Lists the limited kinds with their amounts.
    pub fn amounts(&self) -> impl Iterator<Item = (BudgetKind, i64)> + use<> {
        let budget = *self;
        BudgetKind::ALL
            .into_iter()
            .filter_map(move |kind| Some((kind, budget.amount(kind)?)))
    }

    /// Returns this budget, with the amounts of `general` for the kinds that it does not limit.
    #[must_use]
    pub fn or(self, general: Self) -> Self {
        let mut both = self;
        for (kind, amount) in general.amounts() {
            both.slot(kind).get_or_insert(amount);
        }
        both.is_hard |= general.is_hard;
        both
    }

    /// Returns the first kind in which this budget exceeds another one, with the other's amount.
    #[must_use]
    pub fn exceeds(&self, other: &Self) -> Option<(BudgetKind, i64)> {
        other
            .amounts()
            .find(|(kind, amount)| self.amount(*kind).is_some_and(|own| own > *amount))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.amounts().map(|(kind, amount)| match kind {
            BudgetKind::Time => format!("time={}", duration::exact(amount)),
            BudgetKind::Tokens => format!("tokens={amount}"),
            BudgetKind::Cost => format!("cost={}", money::exact(amount)),
        });
        let parts: Vec<String> = parts
            .chain(self.is_hard.then(|| "hard".to_owned()))
            .collect();
        f.write_str(&parts.join(","))
    }
}
