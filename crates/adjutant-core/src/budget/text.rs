//! Amounts of budgets as text.

use super::BudgetKind;
use crate::units::{duration, money, tokens};

impl BudgetKind {
    /// Formats an amount for people.
    #[must_use]
    pub fn text(self, amount: i64) -> String {
        match self {
            Self::Time => duration::text(amount),
            Self::Tokens => tokens::text(amount),
            Self::Cost => money::text(amount),
        }
    }

    /// Returns an amount by which a person may raise a budget, as an example.
    #[must_use]
    pub const fn example(self) -> &'static str {
        match self {
            Self::Tokens => "tokens=1M",
            Self::Time => "time=30m",
            Self::Cost => "cost=5",
        }
    }
}
