//! Amounts as text: durations, money, sizes and tokens.
//!
//! For each unit, `parse` reads what people write, `exact` writes an amount so that `parse` returns
//! the same, and `text` rounds it for people. Other Rust code formats no amounts.

pub mod duration;
pub mod money;
pub mod size;
pub mod tokens;

/// Parses digits with at most one point, times `unit`. `None`: the text has other characters, or
/// the amount is no whole number or too large.
fn parse_decimal(text: &str, unit: i64) -> Option<i64> {
    const DECIMALS_MAX: usize = 9;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if !is_number(whole)
        || !is_number(part)
        || whole.is_empty() && part.is_empty()
        || text.ends_with('.')
        || part.len() > DECIMALS_MAX
    {
        return None;
    }
    let read = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<i64>().ok(),
    };
    let tens = 10_i64.pow(u32::try_from(part.len()).ok()?);
    let of_part = read(part)?.checked_mul(unit)?;
    if of_part % tens != 0 {
        return None;
    }
    read(whole)?.checked_mul(unit)?.checked_add(of_part / tens)
}
