//! Reads the used part of the vendor's quota, and the time until which it accepts no further
//! request, from the headers of a response.

use adjutant_core::rate_limit::QuotaWindow;
use adjutant_core::{Time, estimate};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Minimum limit that is reported. For a shorter one, the CLI's own retries suffice.
const CLOSED_MS_MIN: i64 = 5_000;
/// Maximum plausible limit.
const CLOSED_MS_MAX: i64 = 8 * 24 * 60 * 60 * 1000;

/// The rate limits for which vendors send remaining and reset headers with a common name pattern.
const WINDOWS: [(&str, &str); 7] = [
    (
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ),
    (
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ),
    (
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
    ),
    (
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
    ),
    (
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    ),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
];

/// Maximum plausible length of a window, and latest plausible reset.
const WINDOW_MINUTES_MAX: u32 = 62 * 24 * 60;

/// Returns the rolling windows of a subscription (Anthropic, Codex) that a response reports.
pub(super) fn windows(headers: &HeaderMap, now: Time) -> Vec<QuotaWindow> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let anthropic = [("5h", 5 * 60), ("7d", 7 * 24 * 60)]
        .into_iter()
        .filter_map(|(name, minutes)| {
            let used = header(&format!("anthropic-ratelimit-unified-{name}-utilization"))?
                .parse::<f64>()
                .ok()?
                * 100.0;
            window(
                minutes,
                used,
                time(
                    header(&format!("anthropic-ratelimit-unified-{name}-reset"))?,
                    now,
                )?,
                now,
            )
        });
    let codex = ["x-codex-primary", "x-codex-secondary"]
        .into_iter()
        .filter_map(|name| {
            let used = header(&format!("{name}-used-percent"))?.parse().ok()?;
            let minutes = header(&format!("{name}-window-minutes"))?.parse().ok()?;
            let reset = header(&format!("{name}-reset-at"))
                .or_else(|| header(&format!("{name}-reset-after-seconds")))?;
            window(minutes, used, time(reset, now)?, now)
        });
    anthropic.chain(codex).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn window(minutes: u32, used_percent: f64, resets_at: Time, now: Time) -> Option<QuotaWindow> {
    let is_plausible = (1..=WINDOW_MINUTES_MAX).contains(&minutes)
        && used_percent >= 0.0
        && (1..=i64::from(WINDOW_MINUTES_MAX) * 60_000).contains(&resets_at.0.checked_sub(now.0)?);
    is_plausible.then(|| QuotaWindow {
        minutes,
        used_percent: used_percent.min(100.0).round() as u8,
        resets_at,
    })
}

/// Returns the time until which the vendor accepts no further request. `None`: it accepts requests,
/// or this is unknown.
pub(super) fn closed_until(status: StatusCode, headers: &HeaderMap, now: Time) -> Option<Time> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let reset = |name: &str| time(header(name)?, now);
    // A used up subscription.
    let is_rejected = header("anthropic-ratelimit-unified-status") == Some("rejected");
    let subscription = is_rejected
        .then(|| reset("anthropic-ratelimit-unified-reset"))
        .flatten();
    let codex = ["x-codex-primary", "x-codex-secondary"]
        .iter()
        .filter_map(|window| {
            let is_used_up = header(&format!("{window}-used-percent"))?
                .parse::<f64>()
                .is_ok_and(|percent| percent >= 100.0);
            is_used_up
                .then(|| reset(&format!("{window}-reset-at")))
                .flatten()
        });
    let refused = || {
        (status == StatusCode::TOO_MANY_REQUESTS)
            .then(|| reset("retry-after"))
            .flatten()
    };
    let exhausted = || {
        let is_empty = |name: &str| header(name).is_some_and(|rest| rest == "0");
        WINDOWS
            .iter()
            .filter(|(remaining, _)| is_empty(remaining))
            .filter_map(|(_, name)| reset(name))
            .max()
    };
    let until = subscription
        .or_else(|| codex.max())
        .or_else(refused)
        .or_else(exhausted)?;
    (CLOSED_MS_MIN..=CLOSED_MS_MAX)
        .contains(&until.0.checked_sub(now.0)?)
        .then_some(until)
}

/// Reads a time: seconds from now or since the epoch, a duration such as `6m0s`, an RFC 3339 or an
/// HTTP date.
fn time(text: &str, now: Time) -> Option<Time> {
    /// Larger numbers of seconds are times, not durations.
    const EPOCH_S_MIN: f64 = 1e9;
    if let Ok(seconds) = text.parse::<f64>() {
        let ms = milliseconds(seconds)?;
        return Some(if seconds >= EPOCH_S_MIN {
            Time(ms)
        } else {
            now.plus_ms(ms)
        });
    }
    // An estimate of an agent may also begin with a word or a sign.
    if text.starts_with(|c: char| c.is_ascii_digit())
        && let Some(ms) = estimate::duration_ms(text)
    {
        return Some(now.plus_ms(ms));
    }
    let stamp = text
        .parse::<Timestamp>()
        .ok()
        .or_else(|| rfc2822::DateTimeParser::new().parse_timestamp(text).ok())?;
    Some(Time(stamp.as_millisecond()))
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn milliseconds(seconds: f64) -> Option<i64> {
    if (0.0..1e12).contains(&seconds) {
        Some((seconds * 1000.0) as i64)
    } else {
        None
    }
}
