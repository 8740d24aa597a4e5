//! Reads the machine's clocks (no other module does) and formats times for people. Displayed times
//! use the wall clock; deadlines use the steady clock (see `adjutant_core::steady`), which the
//! hub's store keeps.

use crate::failpoint;
use adjutant_core::steady::{Jump, Reading, SteadyClock};
use adjutant_core::units::duration;
use adjutant_core::{Moment, SteadyTime, Time};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// Returns the wall-clock time.
#[must_use]
pub fn now() -> Time {
    Time(
        wall()
            .0
            .saturating_add(failpoint::clock().map_or(0, |set| set.wall_ms)),
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one place that reads the wall clock"
)]
fn wall() -> Time {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The steady clock of this process' store. Without one, deadlines use the wall clock.
static STEADY: Mutex<Option<SteadyClock>> = Mutex::new(None);

fn with_steady<T>(work: impl FnOnce(&mut Option<SteadyClock>) -> T) -> T {
    work(&mut STEADY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads the machine's clocks.
#[must_use]
pub fn reading() -> Reading {
    let set = failpoint::clock();
    let (boot_ms, boot) = set.map_or((0, None), |set| (set.boot_ms, Some(set.boot)));
    Reading {
        wall: now(),
        since_boot_ms: since_boot_ms().saturating_add(boot_ms),
        boot: boot.map_or_else(|| BOOT.clone(), |boot| format!("{}+{boot}", *BOOT)),
    }
}

/// Identifies the current boot and the time namespace, which has its own boot clock. If unreadable,
/// each process counts as a boot.
static BOOT: LazyLock<String> = LazyLock::new(|| {
    let id =
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned());
    let namespace = std::fs::read_link("/proc/self/ns/time")
        .map_or_else(|_| String::new(), |link| link.display().to_string());
    match id {
        Ok(id) if !id.is_empty() => format!("{id} {namespace}"),
        _ => {
            let mut random = [0; 16];
            getrandom::fill(&mut random).expect("the kernel gives random bytes");
            format!("unknown {:032x}", u128::from_ne_bytes(random))
        }
    }
});

#[cfg(target_os = "linux")]
fn since_boot_ms() -> i64 {
    // This clock also advances during suspend.
    milliseconds(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

#[cfg(not(target_os = "linux"))]
fn since_boot_ms() -> i64 {
    milliseconds(rustix::time::clock_gettime(
        rustix::time::ClockId::Monotonic,
    ))
}

fn milliseconds(time: rustix::time::Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(1000)
        .saturating_add(time.tv_nsec / 1_000_000)
}

/// Returns the steady time, by which deadlines count.
#[must_use]
pub fn steady() -> SteadyTime {
    moment().steady
}

/// Reads both clocks at once.
#[must_use]
pub fn moment() -> Moment {
    with_steady(|clock| {
        let reading = reading();
        let steady = clock
            .as_ref()
            .map_or(SteadyTime(reading.wall.0), |clock| clock.at(&reading));
        Moment {
            wall: reading.wall,
            steady,
        }
    })
}

/// Returns how long it is until a deadline.
#[must_use]
pub fn until(due: SteadyTime) -> Duration {
    Duration::from_millis(u64::try_from(due.ms_since(steady())).unwrap_or(0))
}

/// Returns the wall-clock time of a steady time, if the wall clock is not set until then.
#[must_use]
pub fn expected_wall_time(at: SteadyTime) -> Time {
    with_steady(|clock| clock.as_ref().map_or(Time(at.0), |clock| clock.shown(at)))
}

/// Starts to use a store's clock.
pub fn start(clock: SteadyClock) {
    with_steady(|kept| *kept = Some(clock));
}

/// Advances the steady clock to the current readings. Returns the clock to store, and a detected
/// jump of the wall clock.
#[must_use]
pub fn advance() -> Option<(SteadyClock, Option<Jump>)> {
    with_steady(|clock| {
        let clock = clock.as_mut()?;
        let jump = clock.advance(reading());
        Some((clock.clone(), jump))
    })
}

/// Returns whether the clock should be advanced and stored now, because more than time has changed.
#[must_use]
pub fn has_changed() -> bool {
    with_steady(|clock| {
        clock
            .as_ref()
            .is_some_and(|clock| clock.is_change(&reading()))
    })
}

/// Returns a warning if the wall clock was set recently.
#[must_use]
pub fn warning() -> Option<String> {
    let clock = with_steady(|clock| clock.clone())?;
    let reading = reading();
    let jump = clock.recent_jump(clock.at(&reading))?;
    Some(format!(
        "the machine's clock was set {}: deadlines do not follow it",
        jump_text(jump)
    ))
}

/// Describes by how much the wall clock was set.
#[must_use]
pub fn jump_text(jump: Jump) -> String {
    let way = if jump.by_ms < 0 { "back" } else { "ahead" };
    let seconds = jump.by_ms.unsigned_abs().saturating_add(500) / 1_000;
    format!("{way} by {}", duration::of(Duration::from_secs(seconds)))
}

/// Formats a time as RFC 3339 in UTC with milliseconds, for instance `2026-11-21T01:02:03.004Z`.
#[must_use]
pub fn rfc3339(time: Time) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(stamp) => format!("{stamp:.3}"),
        Err(_) => format!("{} ms", time.0),
    }
}

/// Formats a time for a message to a person, to the minute: `2026-11-21 01:02 UTC`.
#[must_use]
pub fn to_the_minute(time: Time) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(stamp) => stamp.strftime("%F %H:%M UTC").to_string(),
        Err(_) => rfc3339(time),
    }
}

/// Parses the result of [`rfc3339`].
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Time> {
    text.parse::<jiff::Timestamp>()
        .ok()
        .map(|stamp| Time(stamp.as_millisecond()))
}

/// Returns the time of the day in a zone, in milliseconds. `None`: the machine's.
#[must_use]
pub fn ms_of_day(name: Option<&str>) -> i64 {
    let Ok(stamp) = jiff::Timestamp::from_millisecond(now().0) else {
        return 0;
    };
    let time = stamp.to_zoned(zone(name)).time();
    let minutes = i64::from(time.hour()) * 60 + i64::from(time.minute());
    (minutes * 60 + i64::from(time.second())) * 1000 + i64::from(time.millisecond())
}

/// Returns the zone that a `TZ` variable names, or the machine's zone.
#[must_use]
pub fn zone(name: Option<&str>) -> jiff::tz::TimeZone {
    name.and_then(|name| jiff::tz::TimeZone::get(name.trim_start_matches(':')).ok())
        .unwrap_or_else(jiff::tz::TimeZone::system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip() {
        let time = Time(1_763_686_923_004);
        assert_eq!(rfc3339(time), "2025-11-21T01:02:03.004Z");
        assert_eq!(parse_rfc3339(&rfc3339(time)), Some(time));
    }
}
