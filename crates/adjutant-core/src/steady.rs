//! The clock for deadlines. It follows the time since boot, which is independent of changes of the
//! wall clock. Time while the machine was off is added later, once the wall clock has proved
//! steady, and only up to a limit.
//!
//! ```text
//!            same boot: advance by the boot clock; a wall clock that moves otherwise is a jump
//!  Reading ──┤
//!            another boot: advance by nothing, and remember what the wall clock should show;
//!                          after GRACE_MS without a jump: advance by what it shows beyond that, at most AWAY_MS_MAX
//! ```

use crate::Time;

/// An instant for deadlines. It equals the wall clock if that has never jumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SteadyTime(pub i64);

impl SteadyTime {
    /// Returns this instant moved by `ms` milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this instant, never negative.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// For display.
    pub wall: Time,
    /// For deadlines.
    pub steady: SteadyTime,
}

/// How long a jump is shown to people: 1 hour.
pub(crate) const JUMP_SHOWN_MS: i64 = 60 * 60 * 1000;
/// How long the wall clock has to run without a jump before the time that the machine was off
/// counts: 15 minutes.
pub(crate) const GRACE_MS: i64 = 15 * 60 * 1000;
/// Maximum time that one boot adds: 3 days. It is less than any retention, so that a wrong clock
/// alone removes nothing.
pub(crate) const AWAY_MS_MAX: i64 = 3 * 24 * 60 * 60 * 1000;
/// Smallest deviation of the wall clock from the boot clock that counts as a jump, not as an
/// adjustment: 5 s.
pub(crate) const JUMP_MS_MIN: i64 = 5 * 1000;

/// A reading of the machine's clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub wall: Time,
    /// Milliseconds since boot, including suspend.
    pub since_boot_ms: i64,
    /// The id of the boot.
    pub boot: String,
}

/// A jump of the wall clock: it was set while the machine ran, or showed an unlikely time after a
/// boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    pub by_ms: i64,
    pub noticed_at: SteadyTime,
}

/// A boot whose preceding off-time is not counted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// The time that the wall clock would show if the machine had not been off.
    pub expected: Time,
    /// How long the wall clock has run without a jump since.
    pub calm_ms: i64,
}

/// The clock, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyClock {
    pub now: SteadyTime,
    /// The reading that corresponds to `now`.
    pub seen: Reading,
    pub away: Option<Away>,
    /// How far the wall clock was ahead after its last jump, or the last boot. Displayed deadlines
    /// use it, so that they stay the same until the next jump.
    pub ahead_ms: i64,
    /// The last detected jump.
    pub jump: Option<Jump>,
}

impl SteadyClock {
    /// Creates the clock of a new store.
    #[must_use]
    pub fn new(seen: Reading) -> Self {
        Self {
            now: SteadyTime(seen.wall.0),
            seen,
            away: None,
            ahead_ms: 0,
            jump: None,
        }
    }

    /// Creates the clock of a store that has used the wall clock so far and was last written at
    /// `last`.
    #[must_use]
    pub fn after_wall_clock(last: Time, seen: Reading) -> Self {
        let last = Time(last.0.min(seen.wall.0));
        let ahead_ms = seen.wall.ms_since(last);
        Self {
            now: SteadyTime(last.0),
            away: Some(Away {
                expected: last,
                calm_ms: 0,
            }),
            seen,
            ahead_ms,
            jump: None,
        }
    }

    /// Returns the steady time at a reading of the same boot, without advancing the clock.
    #[must_use]
    pub fn at(&self, reading: &Reading) -> SteadyTime {
        self.now.plus_ms(self.elapsed_ms(reading).unwrap_or(0))
    }

    /// Returns the wall-clock time of a steady time, if the wall clock is not set until then.
    #[must_use]
    pub fn shown(&self, at: SteadyTime) -> Time {
        Time(at.0).plus_ms(self.ahead_ms)
    }

    /// Returns whether advancing to a reading would change more than the elapsed time.
    #[must_use]
    pub fn is_change(&self, reading: &Reading) -> bool {
        let mut next = self.clone();
        next.advance(reading.clone()).is_some() || next.away.is_some() != self.away.is_some()
    }

    /// Returns the last jump, as long as it is shown to people.
    #[must_use]
    pub fn recent_jump(&self, now: SteadyTime) -> Option<Jump> {
        self.jump
            .filter(|jump| now.ms_since(jump.noticed_at) < JUMP_SHOWN_MS)
    }

    /// Returns the elapsed time. `None`: the machine was rebooted since, or the boot clock is
    /// another one.
    fn elapsed_ms(&self, reading: &Reading) -> Option<i64> {
        let elapsed_ms = reading.since_boot_ms.checked_sub(self.seen.since_boot_ms)?;
        (self.seen.boot == reading.boot && elapsed_ms >= 0).then_some(elapsed_ms)
    }

    /// Advances the clock to a reading. Returns a detected jump.
    pub fn advance(&mut self, reading: Reading) -> Option<Jump> {
        let jump = match self.elapsed_ms(&reading) {
            Some(elapsed_ms) => self.run(&reading, elapsed_ms),
            None => self.start(&reading),
        };
        self.seen = reading;
        self.jump = jump.or(self.jump);
        jump
    }

    fn run(&mut self, reading: &Reading, elapsed_ms: i64) -> Option<Jump> {
        self.now = self.now.plus_ms(elapsed_ms);
        let moved_ms = reading
            .wall
            .0
            .saturating_sub(self.seen.wall.0)
            .saturating_sub(elapsed_ms);
        let noticed_at = self.now;
        let jump = (moved_ms.saturating_abs() >= JUMP_MS_MIN).then_some(Jump {
            by_ms: moved_ms,
            noticed_at,
        });
        self.ahead_ms = self
            .ahead_ms
            .saturating_add(jump.map_or(0, |jump| jump.by_ms));
        let Some(away) = &mut self.away else {
            return jump;
        };
        away.expected = away.expected.plus_ms(elapsed_ms);
        away.calm_ms = if jump.is_some() {
            0
        } else {
            away.calm_ms.saturating_add(elapsed_ms)
        };
        if away.calm_ms < GRACE_MS {
            return jump;
        }
        let off_ms = reading.wall.0.saturating_sub(away.expected.0).max(0);
        let added_ms = off_ms.min(AWAY_MS_MAX);
        self.now = self.now.plus_ms(added_ms);
        self.ahead_ms = self.ahead_ms.saturating_sub(added_ms);
        self.away = None;
        let too_long = off_ms > AWAY_MS_MAX;
        jump.or_else(|| {
            too_long.then_some(Jump {
                by_ms: off_ms - AWAY_MS_MAX,
                noticed_at: self.now,
            })
        })
    }

    fn start(&mut self, reading: &Reading) -> Option<Jump> {
        // Off-time before an earlier boot that is not counted yet still counts later.
        let expected = self.away.map_or(self.seen.wall, |away| away.expected);
        self.away = Some(Away {
            expected,
            calm_ms: 0,
        });
        self.ahead_ms = reading.wall.0.saturating_sub(self.now.0);
        let back_ms = reading.wall.0.saturating_sub(expected.0);
        (back_ms <= -JUMP_MS_MIN).then_some(Jump {
            by_ms: back_ms,
            noticed_at: self.now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE_MS: i64 = 60 * 1000;
    const HOUR_MS: i64 = 60 * MINUTE_MS;
    const DAY_MS: i64 = 24 * HOUR_MS;
    const YEAR_MS: i64 = 365 * DAY_MS;
    const BEGIN: i64 = 1_763_000_000_000;

    /// A simulated machine: the true time, the error of its wall clock, and its boots.
    struct Machine {
        time_ms: i64,
        wrong_ms: i64,
        booted_ms: i64,
        boots: u32,
        clock: SteadyClock,
    }

    impl Machine {
        fn new() -> Self {
            let seen = Reading {
                wall: Time(BEGIN),
                since_boot_ms: 0,
                boot: "0".to_owned(),
            };
            Self {
                time_ms: BEGIN,
                wrong_ms: 0,
                booted_ms: BEGIN,
                boots: 0,
                clock: SteadyClock::new(seen),
            }
        }

        fn reading(&self) -> Reading {
            Reading {
                wall: Time(self.time_ms + self.wrong_ms),
                since_boot_ms: self.time_ms - self.booted_ms,
                boot: self.boots.to_string(),
            }
        }

        fn advance(&mut self) -> Option<Jump> {
            self.clock.advance(self.reading())
        }

        /// Runs the machine for a time, with a reading every minute.
        fn run(&mut self, ms: i64) {
            for _ in 0..ms / MINUTE_MS {
                self.time_ms += MINUTE_MS;
                self.advance();
            }
        }

        fn off(&mut self, ms: i64) {
            self.time_ms += ms;
            self.booted_ms = self.time_ms;
            self.boots += 1;
        }

        fn steady_ms(&self) -> i64 {
            self.clock.now.0 - BEGIN
        }
    }

    proptest! {
        #[test]
        fn clock_is_monotone_and_bounded_within_a_boot(
            steps in proptest::collection::vec((0_i64..3 * DAY_MS, -YEAR_MS..YEAR_MS, any::<bool>()), 1..30)
        ) {
            let mut machine = Machine::new();
            for (elapsed_ms, wrong_ms, restarts) in steps {
                if restarts {
                    machine.off(elapsed_ms);
                } else {
                    machine.time_ms += elapsed_ms;
                }
                machine.wrong_ms = wrong_ms;
                let (before, was_away) = (machine.clock.now, machine.clock.away.is_some());
                let advance_ms = machine.clock.at(&machine.reading()).ms_since(before);
                machine.advance();
                let shown = machine.clock.shown(machine.clock.now);
                prop_assert!((shown.0 - machine.reading().wall.0).abs() < JUMP_MS_MIN * 30, "now is displayed as on the wall clock");
                let advanced_ms = machine.clock.now.0 - before.0;
                prop_assert!(advanced_ms >= advance_ms && advance_ms >= 0);
                match (restarts, was_away) {
                    (true, _) => prop_assert_eq!(advanced_ms, 0, "a boot alone adds nothing"),
                    (false, false) => prop_assert_eq!(advanced_ms, elapsed_ms),
                    (false, true) => prop_assert!(advanced_ms <= elapsed_ms + AWAY_MS_MAX),
                }
            }
        }

        #[test]
        fn jumps_within_a_boot_have_no_effect(jumps in proptest::collection::vec(-YEAR_MS..YEAR_MS, 1..20)) {
            let mut machine = Machine::new();
            for (n, wrong_ms) in (1..).zip(jumps) {
                let moved_ms = wrong_ms - machine.wrong_ms;
                machine.wrong_ms = wrong_ms;
                machine.time_ms += MINUTE_MS;
                let jump = machine.advance().map(|jump| jump.by_ms);
                prop_assert_eq!(jump, (moved_ms.abs() >= JUMP_MS_MIN).then_some(moved_ms));
                prop_assert_eq!(machine.steady_ms(), n * MINUTE_MS);
            }
        }

        #[test]
        fn wrong_clock_at_boot_has_no_effect_once_corrected(wrong_ms in -YEAR_MS..YEAR_MS, minutes in 0_i64..14) {
            let mut machine = Machine::new();
            machine.off(HOUR_MS);
            machine.wrong_ms = wrong_ms;
            machine.advance();
            machine.run(minutes * MINUTE_MS);
            prop_assert_eq!(machine.steady_ms(), minutes * MINUTE_MS, "nothing is due at once");
            machine.wrong_ms = 0;
            machine.run(2 * GRACE_MS);
            prop_assert_eq!(machine.steady_ms(), minutes * MINUTE_MS + 2 * GRACE_MS + HOUR_MS, "the true time counts in the end");
        }
    }

    #[test]
    fn suspend_counts_at_once_and_off_time_later() {
        let mut machine = Machine::new();
        machine.time_ms += 3 * DAY_MS;
        assert_eq!(
            (machine.advance(), machine.steady_ms()),
            (None, 3 * DAY_MS),
            "asleep"
        );
        machine.off(2 * DAY_MS);
        machine.advance();
        machine.run(GRACE_MS - MINUTE_MS);
        assert_eq!(machine.steady_ms(), 3 * DAY_MS + GRACE_MS - MINUTE_MS);
        machine.run(MINUTE_MS);
        assert_eq!(machine.steady_ms(), 5 * DAY_MS + GRACE_MS);
    }

    #[test]
    fn one_boot_adds_at_most_three_days() {
        let mut machine = Machine::new();
        machine.off(8 * DAY_MS);
        machine.advance();
        machine.run(GRACE_MS);
        assert_eq!(machine.steady_ms(), AWAY_MS_MAX + GRACE_MS);
        assert_eq!(machine.clock.jump.map(|jump| jump.by_ms), Some(5 * DAY_MS));
    }

    #[test]
    fn machine_that_is_off_each_night_reaches_every_deadline() {
        let mut machine = Machine::new();
        for _ in 0..30 {
            machine.run(8 * HOUR_MS);
            machine.off(16 * HOUR_MS);
            machine.advance();
        }
        machine.run(GRACE_MS);
        assert_eq!(machine.steady_ms(), 30 * DAY_MS + GRACE_MS);
        // Even if it runs for a whole grace period only the last time.
        for _ in 0..3 {
            machine.off(20 * HOUR_MS);
            machine.advance();
            machine.run(5 * MINUTE_MS);
        }
        machine.run(GRACE_MS);
        assert_eq!(
            machine.steady_ms(),
            30 * DAY_MS + 60 * HOUR_MS + 2 * GRACE_MS + 15 * MINUTE_MS
        );
    }

    #[test]
    fn clock_without_a_battery_is_set_after_boot() {
        let mut machine = Machine::new();
        machine.run(HOUR_MS);
        machine.off(10 * HOUR_MS);
        machine.wrong_ms = -machine.time_ms;
        assert!(
            machine.advance().is_some_and(|jump| jump.by_ms < -YEAR_MS),
            "the jump is detected"
        );
        machine.run(MINUTE_MS);
        machine.wrong_ms = 0;
        machine.run(GRACE_MS + MINUTE_MS);
        assert_eq!(machine.steady_ms(), 11 * HOUR_MS + GRACE_MS + 2 * MINUTE_MS);
    }

    #[test]
    fn boot_clock_that_goes_back_counts_as_a_boot() {
        let mut machine = Machine::new();
        machine.run(HOUR_MS);
        machine.booted_ms = machine.time_ms;
        machine.advance();
        assert_eq!(
            (machine.steady_ms(), machine.clock.away.is_some()),
            (HOUR_MS, true),
            "restored from a snapshot"
        );
    }

    #[test]
    fn old_store_starts_at_its_last_entry() {
        let seen = |wall| Reading {
            wall: Time(wall),
            since_boot_ms: 0,
            boot: "0".to_owned(),
        };
        let clock = SteadyClock::after_wall_clock(Time(BEGIN), seen(BEGIN + DAY_MS));
        assert_eq!(
            (clock.now, clock.away.map(|away| away.expected)),
            (SteadyTime(BEGIN), Some(Time(BEGIN)))
        );
        let clock = SteadyClock::after_wall_clock(Time(BEGIN + YEAR_MS), seen(BEGIN));
        assert_eq!(clock.now, SteadyTime(BEGIN), "its last entry may be wrong");
    }
}
