//! Budgets: what a run and the runs below it may use, as active time, tokens and money.
//!
//! A run with a budget of a kind has an [`Account`] of it. A run without one draws on the nearest account above it. A
//! budget of a run below another one is transferred from that one's account and returns when the run and everything
//! below it has ended; the used amount is then charged there.

use crate::words;
use std::fmt;

/// Largest amount, in milliseconds, tokens or millionths of a dollar: sums of two stay far below `i64::MAX`.
pub const AMOUNT_MAX: i64 = 1_000_000_000_000_000;
/// Maximum number of tokens of one kind that is accepted in one report of usage.
pub const STATED_TOKENS_MAX: u64 = 1_000_000_000_000;
/// Maximum cost that is accepted in one report, in millionths of a dollar.
pub const STATED_COST_MICROS_MAX: u64 = 1_000_000_000_000;
/// The used part at which a budget is reported as nearly used up, in percent.
pub const WARN_PERCENT: u8 = 80;

/// What a budget limits.
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

impl BudgetKind {
    /// Formats an amount for people.
    #[must_use]
    pub fn text(self, amount: i64) -> String {
        match self {
            Self::Time => time_text(amount),
            Self::Tokens => tokens_text(amount),
            Self::Cost => cost_text(amount),
        }
    }
}

/// The stated budget of a run. A kind that is absent has no limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub time_ms: Option<i64>,
    pub tokens: Option<i64>,
    pub cost_micros: Option<i64>,
    /// Whether the run is refused or stopped where its usage cannot be known.
    pub is_hard: bool,
}

impl Budget {
    /// Parses `cost=5,tokens=2M,time=1h30m,hard`: dollars, tokens, active time.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut budget = Self::default();
        for part in text.split(',').map(str::trim) {
            if part == "hard" {
                budget.is_hard = true;
                continue;
            }
            let wrong = || format!("{:?} is not a budget: write cost=5, tokens=2M or time=1h30m, several with commas", excerpt(part));
            let (word, value) = part.split_once('=').ok_or_else(wrong)?;
            let kind = BudgetKind::from_word(word.trim()).ok_or_else(wrong)?;
            let read = match kind {
                BudgetKind::Time => parse_time(value.trim()),
                BudgetKind::Tokens => parse_scaled(value.trim(), true, 1),
                BudgetKind::Cost => parse_scaled(value.trim().trim_start_matches('$'), false, 1_000_000),
            };
            let amount = read.filter(|amount| (1..=AMOUNT_MAX).contains(amount)).ok_or_else(wrong)?;
            if budget.amount(kind).is_some() {
                return Err(format!("{} is stated twice", kind.word()));
            }
            *budget.slot(kind) = Some(amount);
        }
        if budget.is_empty() {
            return Err("hard needs a budget with it: cost=5, tokens=2M or time=1h30m".to_owned());
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

    /// Lowers the amount of a kind that it limits to this one.
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

    /// Returns whether it limits nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        BudgetKind::ALL.into_iter().all(|kind| self.amount(kind).is_none())
    }

    /// Lists what it limits.
    pub fn amounts(&self) -> impl Iterator<Item = (BudgetKind, i64)> + use<> {
        let budget = *self;
        BudgetKind::ALL.into_iter().filter_map(move |kind| Some((kind, budget.amount(kind)?)))
    }

    /// Returns this budget, with the amounts of another for the kinds that it does not limit.
    #[must_use]
    pub fn or(self, general: Self) -> Self {
        let mut both = self;
        for (kind, amount) in general.amounts() {
            both.slot(kind).get_or_insert(amount);
        }
        both.is_hard |= general.is_hard;
        both
    }

    /// Returns the first kind in which it allows more than another one, with that one's amount.
    #[must_use]
    pub fn exceeds(&self, other: &Self) -> Option<(BudgetKind, i64)> {
        other.amounts().find(|(kind, amount)| self.amount(*kind).is_some_and(|own| own > *amount))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.amounts().map(|(kind, amount)| match kind {
            BudgetKind::Time => format!("time={}", exact_time(amount)),
            BudgetKind::Tokens => format!("tokens={amount}"),
            BudgetKind::Cost => format!("cost={}", exact_cost(amount)),
        });
        let parts: Vec<String> = parts.chain(self.is_hard.then(|| "hard".to_owned())).collect();
        f.write_str(&parts.join(","))
    }
}

/// One budget of a run: its limit, the used amount, and the amount transferred to budgets below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    pub limit: i64,
    pub used: i64,
    pub reserved: i64,
}

/// Why nothing was transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLittleLeft {
    pub left: i64,
}

impl Account {
    /// Creates the account of a new budget.
    #[must_use]
    pub fn new(limit: i64) -> Self {
        Self { limit: limit.clamp(0, AMOUNT_MAX), used: 0, reserved: 0 }
    }

    /// Returns what may still be used or transferred.
    #[must_use]
    pub fn left(&self) -> i64 {
        self.limit.saturating_sub(self.used).saturating_sub(self.reserved).max(0)
    }

    /// Returns whether anything is left: whether a request that draws on it may begin.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.left() > 0
    }

    /// Returns whether so much of it was used that its owner is warned.
    #[must_use]
    pub fn is_nearly_used(&self) -> bool {
        self.used.saturating_mul(100) >= self.limit.saturating_mul(i64::from(WARN_PERCENT))
    }

    /// Returns the used part in percent, at most 999.
    #[must_use]
    pub fn percent(&self) -> u16 {
        let percent = self.used.saturating_mul(100) / self.limit.max(1);
        u16::try_from(percent.min(999)).unwrap_or(0)
    }

    /// Charges usage. It is known only afterwards, so it may exceed the limit.
    #[must_use]
    pub fn charge(self, amount: i64) -> Self {
        Self { used: self.used.saturating_add(amount.max(0)).min(AMOUNT_MAX), ..self }
    }

    /// Transfers an amount to a new account below this one.
    ///
    /// # Errors
    /// Less is left.
    pub fn transfer(self, amount: i64) -> Result<(Self, Self), TooLittleLeft> {
        let left = self.left();
        if amount <= 0 || amount > left {
            return Err(TooLittleLeft { left });
        }
        Ok((Self { reserved: self.reserved + amount, ..self }, Self::new(amount)))
    }

    /// Returns a transferred account whose runs have ended, and charges their usage.
    #[must_use]
    pub fn take_back(self, below: Self) -> Self {
        Self { reserved: self.reserved.saturating_sub(below.limit).max(0), ..self }.charge(below.used)
    }

    /// Raises the limit. `None`: beyond the largest amount.
    #[must_use]
    pub fn raise(self, amount: i64) -> Option<Self> {
        let limit = self.limit.checked_add(amount.max(0)).filter(|limit| *limit <= AMOUNT_MAX)?;
        Some(Self { limit, ..self })
    }
}

/// Decides whether a request may begin, from all accounts on which its run draws.
///
/// # Errors
/// The first kind of which nothing is left.
pub fn check_left(accounts: impl IntoIterator<Item = (BudgetKind, Account)>) -> Result<(), BudgetKind> {
    accounts.into_iter().find(|(_, account)| !account.has_left()).map_or(Ok(()), |(kind, _)| Err(kind))
}

/// Counters of tokens as an agent or the gate states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Input tokens that were neither read from the cache nor written to it.
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
}

impl Tokens {
    /// Returns whether no vendor can mean these numbers.
    #[must_use]
    pub fn is_absurd(&self) -> bool {
        [self.input, self.cached, self.cache_write, self.output].into_iter().any(|count| count > STATED_TOKENS_MAX)
    }

    /// Returns the tokens that count against a budget: without cache reads.
    #[must_use]
    pub fn charged(&self) -> i64 {
        let sum = self.input.saturating_add(self.cache_write).saturating_add(self.output);
        i64::try_from(sum).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX)
    }

    /// Returns what these totals add to earlier ones. A smaller total adds nothing.
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

/// The price of one model, in thousandths of a millionth of a dollar for each token: dollars for a million tokens, by 1,000.
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
        i64::try_from(sum.div_ceil(1_000)).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX)
    }
}

/// Converts a stated cost in dollars. `None`: not a cost that any vendor can mean.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "the bounds are checked before")]
pub fn micros_of(dollars: f64) -> Option<u64> {
    let micros = (dollars * 1_000_000.0).round();
    (micros >= 0.0 && micros <= STATED_COST_MICROS_MAX as f64).then_some(micros as u64)
}

/// Parses digits with at most one point, times `unit`; with a suffix `k`, `M` or `G` if allowed.
fn parse_scaled(text: &str, has_suffix: bool, unit: i64) -> Option<i64> {
    let (digits, scale) = match text.char_indices().last()? {
        (at, 'k' | 'K') if has_suffix => (&text[..at], 1_000),
        (at, 'm' | 'M') if has_suffix => (&text[..at], 1_000_000),
        (at, 'g' | 'G') if has_suffix => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let scale: i64 = unit.checked_mul(scale)?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || whole.is_empty() && part.is_empty() || digits.ends_with('.') || part.len() > 9 {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut amount = whole.checked_mul(scale)?;
    if !part.is_empty() {
        let tens = 10_i64.pow(u32::try_from(part.len()).ok()?);
        let of_part = part.parse::<i64>().ok()?.checked_mul(scale)?;
        if of_part % tens != 0 {
            return None;
        }
        amount = amount.checked_add(of_part / tens)?;
    }
    Some(amount)
}

const TIME_UNITS: [(&str, i64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses `90s`, `45m` or `1h30m`.
fn parse_time(text: &str) -> Option<i64> {
    let (mut rest, mut total) = (text, 0_i64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (_, unit) = TIME_UNITS.into_iter().find(|(word, _)| *word == &rest[..letters])?;
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    Some(total)
}

fn exact_time(ms: i64) -> String {
    let mut rest = ms;
    let mut text = String::new();
    for (word, unit) in TIME_UNITS {
        if rest >= unit {
            text.push_str(&format!("{}{word}", rest / unit));
            rest %= unit;
        }
    }
    text
}

fn exact_cost(micros: i64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn time_text(ms: i64) -> String {
    match ms {
        ..1_000 => format!("{ms}ms"),
        1_000..600_000 => exact_time(ms / 1_000 * 1_000),
        _ => exact_time(ms / 60_000 * 60_000),
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn tokens_text(tokens: i64) -> String {
    let scaled = |by: i64, suffix: &str| {
        let text = format!("{:.2}", tokens as f64 / by as f64);
        format!("{}{suffix}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match tokens {
        ..1_000 => tokens.to_string(),
        1_000..1_000_000 => scaled(1_000, "k"),
        1_000_000..1_000_000_000 => scaled(1_000_000, "M"),
        _ => scaled(1_000_000_000, "G"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "cents are shown")]
fn cost_text(micros: i64) -> String {
    if micros > 0 && micros < 10_000 { format!("${}", exact_cost(micros)) } else { format!("${:.2}", micros as f64 / 1_000_000.0) }
}

fn excerpt(part: &str) -> String {
    part.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn budgets_are_parsed() {
        let all = Budget { time_ms: Some(5_400_000), tokens: Some(2_000_000), cost_micros: Some(5_000_000), is_hard: true };
        assert_eq!(Budget::parse("cost=5, tokens=2M,time=1h30m,hard"), Ok(all));
        assert_eq!(Budget::parse("cost=$0.25").map(|budget| budget.cost_micros), Ok(Some(250_000)));
        assert_eq!(Budget::parse("tokens=1.5k").map(|budget| budget.tokens), Ok(Some(1_500)));
        assert_eq!(Budget::parse("time=90s").map(|budget| budget.time_ms), Ok(Some(90_000)));
        for wrong in [
            "",
            "hard",
            "5",
            "cost",
            "cost=",
            "cost=0",
            "cost=-1",
            "cost=NaN",
            "cost=inf",
            "cost=1e3",
            "cost=5M",
            "cost=.",
            "cost=1.",
            "cost=0.0000001",
            "cost=99999999999999999999",
            "cost=1,cost=2",
            "tokens=1.5",
            "tokens=-3",
            "tokens=M",
            "tokens=9999999G",
            "time=5",
            "time=0s",
            "time=1y",
            "time=99999999999999d",
            "euros=5",
            "cost=5,,tokens=1",
        ] {
            assert!(Budget::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_shown_for_people() {
        for (kind, amount, text) in [
            (BudgetKind::Cost, 5_000_000, "$5.00"),
            (BudgetKind::Cost, 1_234, "$0.001234"),
            (BudgetKind::Tokens, 2_000_000, "2M"),
            (BudgetKind::Tokens, 1_540, "1.54k"),
            (BudgetKind::Tokens, 7, "7"),
            (BudgetKind::Time, 5_400_000, "1h30m"),
            (BudgetKind::Time, 90_500, "1m30s"),
            (BudgetKind::Time, 20, "20ms"),
        ] {
            assert_eq!(kind.text(amount), text);
        }
    }

    #[test]
    fn missing_amounts_come_from_the_general_budget() {
        let parse = |text| Budget::parse(text).expect("valid");
        assert_eq!(parse("cost=1").or(parse("cost=5,time=1h")), parse("cost=1,time=1h"));
        assert_eq!(Budget::default().or(parse("cost=5,hard")), parse("cost=5,hard"));
        assert_eq!(parse("cost=6").exceeds(&parse("cost=5,time=1h")), Some((BudgetKind::Cost, 5_000_000)));
        assert_eq!(parse("cost=5,tokens=9M").exceeds(&parse("cost=5,time=1h")), None);
    }

    #[test]
    fn unusable_costs_are_refused() {
        assert_eq!(micros_of(0.25), Some(250_000));
        for wrong in [-0.01, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30] {
            assert_eq!(micros_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn one_of_many_takes_the_last_unit() {
        let mut account = Account { limit: 10, used: 6, reserved: 3 };
        let winners = (0..64).filter(|_| account.transfer(1).map(|(rest, _)| account = rest).is_ok()).count();
        assert_eq!((winners, account.left()), (1, 0));
    }

    /// A step of a tree of accounts.
    #[derive(Debug, Clone)]
    enum Step {
        Charge(usize, i64),
        Transfer(usize, i64),
        TakeBack(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let amount = prop_oneof![-5_i64..2_000, Just(i64::MAX), Just(i64::MIN), Just(AMOUNT_MAX)];
        let step = (0_usize..8, amount, 0_u8..3).prop_map(|(at, amount, kind)| match kind {
            0 => Step::Charge(at, amount.min(2_000)),
            1 => Step::Transfer(at, amount),
            _ => Step::TakeBack(at),
        });
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn transfers_conserve_the_sum(limit in 1_i64..5_000, steps in steps()) {
            // Each account with its lender, while it is open.
            let mut tree = vec![(Account::new(limit), None::<usize>, true)];
            let mut charged = 0;
            for step in steps {
                match step {
                    Step::Charge(at, amount) => {
                        if let Some((account, _, true)) = tree.get(at).copied() {
                            tree[at].0 = account.charge(amount);
                            charged += amount.max(0);
                        }
                    }
                    Step::Transfer(at, amount) => {
                        let Some((account, _, true)) = tree.get(at).copied() else { continue };
                        match account.transfer(amount) {
                            Ok((rest, below)) => {
                                prop_assert!(amount <= account.left(), "no more than it has");
                                tree[at].0 = rest;
                                tree.push((below, Some(at), true));
                            }
                            Err(TooLittleLeft { left }) => prop_assert!(amount <= 0 || amount > left),
                        }
                    }
                    Step::TakeBack(at) => {
                        let is_lender = tree.iter().any(|(_, lender, is_open)| *is_open && *lender == Some(at));
                        let Some((account, Some(lender), true)) = tree.get(at).copied() else { continue };
                        if !is_lender {
                            tree[lender].0 = tree[lender].0.take_back(account);
                            tree[at].2 = false;
                        }
                    }
                }
                let open: Vec<_> = tree.iter().filter(|(_, _, is_open)| *is_open).collect();
                let used: i64 = open.iter().map(|(account, ..)| account.used).sum();
                prop_assert_eq!(used, charged, "all usage is charged once");
                let lent: i64 = open.iter().filter(|(_, lender, _)| lender.is_some()).map(|(account, ..)| account.limit).sum();
                let reserved: i64 = open.iter().map(|(account, ..)| account.reserved).sum();
                prop_assert_eq!(reserved, lent, "every reserved unit is in one account below");
                for (account, ..) in &open {
                    prop_assert!(account.left() >= 0 && account.left() <= account.limit);
                    prop_assert!(account.used > account.limit - account.reserved || account.left() == account.limit - account.used - account.reserved);
                }
            }
        }

        #[test]
        fn accounts_never_overflow(limit in any::<i64>(), amounts in proptest::collection::vec(any::<i64>(), 0..20)) {
            let mut account = Account::new(limit);
            for amount in amounts {
                account = account.charge(amount);
                if let Ok((rest, below)) = account.transfer(amount) {
                    account = rest.take_back(below.charge(amount));
                }
                account = account.raise(amount).unwrap_or(account);
                prop_assert!((0..=AMOUNT_MAX).contains(&account.limit) && (0..=AMOUNT_MAX).contains(&account.used));
                prop_assert!(account.percent() <= 999 && (account.left() > 0) == account.has_left());
                prop_assert_eq!(check_left([(BudgetKind::Cost, account)]).is_ok(), account.has_left());
            }
        }

        #[test]
        fn budget_text_round_trips(time in 1..AMOUNT_MAX, tokens in 1..AMOUNT_MAX, cost in 1..AMOUNT_MAX, is_hard in any::<bool>()) {
            let budget = Budget { time_ms: Some(time), tokens: Some(tokens), cost_micros: Some(cost), is_hard };
            prop_assert_eq!(Budget::parse(&budget.to_string()), Ok(budget));
        }

        #[test]
        fn repeated_and_smaller_totals_add_nothing(a in any::<[u64; 4]>(), b in any::<[u64; 4]>()) {
            let of = |[input, cached, cache_write, output]: [u64; 4]| Tokens { input, cached, cache_write, output };
            let (a, b) = (of(a), of(b));
            let known = a.max(&b);
            prop_assert_eq!(a.since(&known), Tokens::default());
            prop_assert_eq!(known.since(&known).charged(), 0);
            prop_assert!(known.charged() <= AMOUNT_MAX && known.charged() >= a.charged());
            let price = Price { input: u64::MAX, cached: 1, cache_write: 1, output: u64::MAX };
            prop_assert!((0..=AMOUNT_MAX).contains(&price.cost_micros(&known)));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
            if let Ok(budget) = Budget::parse(&text) {
                prop_assert!(budget.amounts().all(|(_, amount)| (1..=AMOUNT_MAX).contains(&amount)));
            }
        }
    }

    #[test]
    fn price_is_rounded_up() {
        let price = Price { input: 3_000, cached: 300, cache_write: 3_750, output: 15_000 };
        assert_eq!(price.cost_micros(&Tokens { input: 1_000_000, ..Tokens::default() }), 3_000_000);
        assert_eq!(price.cost_micros(&Tokens { cached: 1, ..Tokens::default() }), 1);
    }
}
