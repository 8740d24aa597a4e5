//! Budgets as text: parsing and formatting amounts.

use super::BudgetKind;

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

/// Parses digits with at most one point, times `unit`; with a suffix `k`, `M` or `G` if allowed.
pub(super) fn parse_scaled(text: &str, has_suffix: bool, unit: i64) -> Option<i64> {
    let (digits, scale) = match text.char_indices().last()? {
        (at, 'k' | 'K') if has_suffix => (&text[..at], 1_000),
        (at, 'm' | 'M') if has_suffix => (&text[..at], 1_000_000),
        (at, 'g' | 'G') if has_suffix => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let scale: i64 = unit.checked_mul(scale)?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if !is_number(whole)
        || !is_number(part)
        || whole.is_empty() && part.is_empty()
        || digits.ends_with('.')
        || part.len() > 9
    {
        return None;
    }
    let whole: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
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

const TIME_UNITS: [(&str, i64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses `90s`, `45m` or `1h30m`.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let (mut rest, mut total) = (text, 0_i64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let (_, unit) = TIME_UNITS
            .into_iter()
            .find(|(word, _)| *word == &rest[..letters])?;
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    Some(total)
}

pub(super) fn exact_time(ms: i64) -> String {
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

pub(super) fn exact_cost(micros: i64) -> String {
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
        format!(
            "{}{suffix}",
            text.trim_end_matches('0').trim_end_matches('.')
        )
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
    if micros > 0 && micros < 10_000 {
        format!("${}", exact_cost(micros))
    } else {
        format!("${:.2}", micros as f64 / 1_000_000.0)
    }
}

pub(super) fn excerpt(part: &str) -> String {
    part.chars().take(60).collect()
}
