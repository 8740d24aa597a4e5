//! The account of one budget.

use super::{AMOUNT_MAX, BudgetKind, WARN_PERCENT};

/// One budget of a run: its limit, the used amount, and the amount transferred to budgets below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    pub limit: i64,
    pub used: i64,
    pub reserved: i64,
}

/// The error of a transfer that exceeds the amount left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLittleLeft {
    pub left: i64,
}

impl Account {
    /// Creates the account of a new budget.
    #[must_use]
    pub fn new(limit: i64) -> Self {
        Self {
            limit: limit.clamp(0, AMOUNT_MAX),
            used: 0,
            reserved: 0,
        }
    }

    /// Returns the amount that can still be used or transferred.
    #[must_use]
    pub fn left(&self) -> i64 {
        self.limit
            .saturating_sub(self.used)
            .saturating_sub(self.reserved)
            .max(0)
    }

    /// Returns whether anything is left, so that a request that draws on the account may begin.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left() > 0
    }

    /// Returns whether the used part has reached the threshold for a warning.
    #[must_use]
    pub fn is_nearly_used(&self) -> bool {
        self.used.saturating_mul(100) >= self.limit.saturating_mul(i64::from(WARN_PERCENT))
    }

    /// Returns the used part in percent, at most 65,535.
    #[must_use]
    pub fn percent(&self) -> u16 {
        let percent = self.used.saturating_mul(100) / self.limit.max(1);
        u16::try_from(percent).unwrap_or(u16::MAX)
    }

    /// Charges usage. Usage is known only afterwards, so it may exceed the limit.
    #[must_use]
    pub fn charge(self, amount: i64) -> Self {
        Self {
            used: self.used.saturating_add(amount.max(0)).min(AMOUNT_MAX),
            ..self
        }
    }

    /// Transfers an amount to a new account below this one.
    ///
    /// # Errors
    /// Less than the amount is left.
    pub fn transfer(self, amount: i64) -> Result<(Self, Self), TooLittleLeft> {
        let left = self.left();
        if amount <= 0 || amount > left {
            return Err(TooLittleLeft { left });
        }
        Ok((
            Self {
                reserved: self.reserved + amount,
                ..self
            },
            Self::new(amount),
        ))
    }

    /// Returns the amount that the account above reserves for this one: the limit, or more if more
    /// was used.
    #[must_use]
    pub fn claim(&self) -> i64 {
        self.used.saturating_add(self.reserved).max(self.limit)
    }

    /// Adjusts the reserved amount after a change of an account below. Usage beyond the limit of
    /// that account is reserved, too.
    #[must_use]
    pub fn adjust_reserved(self, before: Self, after: Self) -> Self {
        let reserved = self
            .reserved
            .saturating_sub(before.claim())
            .saturating_add(after.claim());
        Self {
            reserved: reserved.clamp(0, AMOUNT_MAX),
            ..self
        }
    }

    /// Releases the amount reserved for an account whose runs have ended, and charges their usage.
    #[must_use]
    pub fn reclaim(self, below: Self) -> Self {
        Self {
            reserved: self.reserved.saturating_sub(below.claim()).max(0),
            ..self
        }
        .charge(below.used)
    }

    /// Counts the whole rest as used, because the usage is unknown.
    #[must_use]
    pub fn exhaust(self) -> Self {
        self.charge(self.left())
    }

    /// Raises the limit. `None`: the result would exceed the maximum amount.
    #[must_use]
    pub fn raise(self, amount: i64) -> Option<Self> {
        let limit = self
            .limit
            .checked_add(amount.max(0))
            .filter(|limit| *limit <= AMOUNT_MAX)?;
        Some(Self { limit, ..self })
    }
}

/// Decides whether a request may begin that may use `wanted`, beside others that have reserved a
/// part of what is left. One request may always begin while anything is left, so a budget is
/// exceeded by at most one request, and by what requests use beyond their reservations.
#[must_use]
pub fn fits_beside(left: i64, reserved: u64, wanted: u64) -> bool {
    left > 0
        && (reserved == 0
            || i64::try_from(reserved.saturating_add(wanted)).is_ok_and(|all| all <= left))
}

/// Checks that each account on which a run draws has something left, so that a request may begin.
///
/// # Errors
/// The first kind that is used up.
pub fn check_left(
    accounts: impl IntoIterator<Item = (BudgetKind, Account)>,
) -> Result<(), BudgetKind> {
    accounts
        .into_iter()
        .find(|(_, account)| !account.has_left())
        .map_or(Ok(()), |(kind, _)| Err(kind))
}
