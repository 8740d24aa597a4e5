//! Budgets of runs.

use super::word::Word;
use adjutant_core::BudgetKind;
use serde::{Deserialize, Serialize};

/// A budget on which a run draws. Amounts are milliseconds of active time, tokens, or millionths of
/// a dollar.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BudgetView {
    pub kind: Word<BudgetKind>,
    /// The run whose budget it is: this one, or one above it.
    pub of: String,
    pub amount: u64,
    /// What its runs have used, as far as it is known. `None`: nothing is known. Of a hard budget,
    /// usage that nobody states counts as all that was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// The part that budgets of runs below have.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserved: u64,
    pub left: u64,
    pub used_percent: u16,
    /// 80 % or more of it is used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nearly_used: bool,
    /// Whether a run is refused or stopped whose usage cannot be known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard: bool,
    /// Why `used` is not all that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

impl BudgetView {
    /// Returns an amount of this kind, as an example.
    #[must_use]
    pub fn example(&self) -> &'static str {
        self.kind.known().unwrap_or(BudgetKind::Cost).example()
    }

    /// Formats an amount of this kind.
    #[must_use]
    pub fn amount_text(&self, amount: u64) -> String {
        match self.kind.known() {
            Some(kind) => kind.text(i64::try_from(amount).unwrap_or(i64::MAX)),
            None => amount.to_string(),
        }
    }

    /// Formats the used amount. An unknown amount is not 0.
    #[must_use]
    pub fn used_text(&self) -> String {
        let Some(used) = self.used else {
            return "unknown".to_owned();
        };
        let least = if self.unknown.is_some() {
            "at least "
        } else {
            ""
        };
        format!(
            "{least}{} ({} %)",
            self.amount_text(used),
            self.used_percent
        )
    }
}

impl std::fmt::Display for BudgetView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} of {}",
            self.kind,
            self.used_text(),
            self.amount_text(self.amount)
        )?;
        if self.reserved > 0 {
            write!(f, ", {} reserved below", self.amount_text(self.reserved))?;
        }
        if self.hard {
            f.write_str(", hard")?;
        }
        self.unknown
            .as_ref()
            .map_or(Ok(()), |why| write!(f, "; not all is known: {why}"))
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Raises the budgets on which a run draws, and resumes the runs that they stopped. Without `add`,
/// only shows them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeBudget {
    pub run: String,
    /// Such as `cost=5,tokens=2M,time=1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add: Option<String>,
}
