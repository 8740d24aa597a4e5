//! The load of the machine: decides whether a run may start, and whether a run must be paused
//! before the kernel kills a process.

use crate::SteadyTime;
use crate::pool::QueueReason;

/// Minimum free memory. Below it, a run is paused.
const FREE_BYTES_MIN: u64 = 128 * 1024 * 1024;
/// The time constant of the kernel's `avg10`.
const AVERAGE_MS: f64 = 10_000.0;
/// The interval at which the kernel updates its averages, and the minimum and maximum intervals for
/// reading the load while something waits for it.
const AVERAGE_UPDATE_MS: i64 = 2_000;
const RECHECK_MS_MIN: u64 = AVERAGE_UPDATE_MS.unsigned_abs();
const RECHECK_MS_MAX: u64 = 60_000;
/// The interval for reading the free memory while a start waits for it. The kernel does not
/// announce freed memory.
const RECHECK_FREE_MS: u64 = 10_000;

/// A share of time in hundredths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Share(pub u32);

impl Share {
    /// Creates a share from whole percent.
    #[must_use]
    pub fn percent(percent: u32) -> Self {
        Self(percent.saturating_mul(100))
    }

    /// Returns the share in whole percent.
    #[must_use]
    pub fn as_percent(self) -> u32 {
        self.0 / 100
    }

    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.')?;
        let part = (part.len() == 2)
            .then(|| part.parse::<u32>().ok())
            .flatten()?;
        whole
            .parse::<u32>()
            .ok()?
            .checked_mul(100)?
            .checked_add(part)
            .map(Self)
    }
}

/// The shares of the last ten seconds in which tasks waited for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stall {
    /// At least one task waited.
    pub some: Share,
    /// All tasks that were not idle waited.
    pub full: Share,
}

impl Stall {
    /// Parses a file of `/proc/pressure`. `None`: the text has another format.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let share = |kind: &str| {
            let line = text
                .lines()
                .find(|line| line.split_ascii_whitespace().next() == Some(kind))?;
            Share::parse(
                line.split_ascii_whitespace()
                    .find_map(|word| word.strip_prefix("avg10="))?,
            )
        };
        // Older kernels report no `full` line for the CPU.
        Some(Self {
            some: share("some")?,
            full: share("full").unwrap_or_default(),
        })
    }
}

/// Returns the memory that can be used without swapping, from `/proc/meminfo`.
#[must_use]
pub fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// The load of the machine. `None`: the kernel does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineLoad {
    pub memory: Option<Stall>,
    pub cpu: Option<Stall>,
    pub free_bytes: Option<u64>,
}

/// The configured limits. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PressureLimits {
    /// Above this share of `some`, no run starts.
    pub memory: Option<Share>,
    pub cpu: Option<Share>,
    /// Above this share of `full` for memory, the newest run is paused.
    pub pause: Option<Share>,
}

/// The load of the machine, and the limits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Admission {
    pub limits: PressureLimits,
    pub load: MachineLoad,
}

impl Admission {
    /// Returns the pressure that delays all starts. `used`: the number of occupied slots; if it is
    /// 0, a run may always start.
    #[must_use]
    pub fn hold(&self, used: u64) -> Option<QueueReason> {
        let is_above = |stall: Option<Stall>, limit: Option<Share>| {
            stall
                .zip(limit)
                .is_some_and(|(stall, limit)| stall.some > limit)
        };
        match self {
            _ if used == 0 => None,
            Self { limits, load } if is_above(load.memory, limits.memory) => {
                Some(QueueReason::MemoryPressure)
            }
            Self { limits, load } if is_above(load.cpu, limits.cpu) => {
                Some(QueueReason::CpuPressure)
            }
            Self { .. } => None,
        }
    }

    /// Returns whether starts depend on the free memory.
    #[must_use]
    pub fn watches_memory(&self) -> bool {
        self.limits.memory.is_some() && self.load.free_bytes.is_some()
    }

    /// Returns whether too little memory is free for a run that is expected to use `expected` bytes
    /// if live runs are expected to use `reserved` more bytes than now.
    #[must_use]
    pub fn is_short_of_memory(&self, used: u64, expected: u64, reserved: u64) -> bool {
        used > 0
            && self.limits.memory.is_some()
            && self
                .load
                .free_bytes
                .is_some_and(|free| free.saturating_sub(reserved) < expected)
    }

    /// Returns whether a run must be paused. `used` as for [`Self::hold`]; the last run is never
    /// paused.
    #[must_use]
    pub fn needs_pause(&self, used: u64) -> bool {
        let Some(limit) = self.limits.pause else {
            return false;
        };
        used > 1
            && (self.load.memory.is_some_and(|stall| stall.full > limit)
                || self
                    .load
                    .free_bytes
                    .is_some_and(|free| free < FREE_BYTES_MIN))
    }

    /// Returns whether paused runs may continue: the pressure is at most half of the limit for
    /// pauses.
    #[must_use]
    pub fn has_passed(&self, used: u64) -> bool {
        let is_calm = self.limits.pause.is_none_or(|limit| {
            self.load
                .memory
                .is_none_or(|stall| stall.full.0 <= limit.0 / 2)
        });
        used == 0
            || is_calm
                && self
                    .load
                    .free_bytes
                    .is_none_or(|free| free >= 2 * FREE_BYTES_MIN)
    }

    /// Returns the minimum time until the average falls below the limit for pauses. Free memory
    /// recovers immediately.
    fn recovery_ms(&self) -> i64 {
        let over = self
            .load
            .memory
            .map(|stall| stall.full)
            .zip(self.limits.pause)
            .filter(|(full, limit)| full > limit);
        let ms = over.map_or(0, |(full, limit)| decay_ms(full, limit));
        i64::try_from(ms).unwrap_or(i64::MAX).max(AVERAGE_UPDATE_MS)
    }

    /// Returns the time until the next reading while a start or a paused run waits for it, in
    /// milliseconds: the earliest time at which the kernel's average can have fallen to the limit.
    #[must_use]
    pub fn recheck_ms(&self) -> u64 {
        let Self { limits, load } = self;
        let half = |limit: Share| Share(limit.0 / 2);
        let over = [
            load.memory.map(|stall| stall.some).zip(limits.memory),
            load.cpu.map(|stall| stall.some).zip(limits.cpu),
            load.memory
                .map(|stall| stall.full)
                .zip(limits.pause.map(half)),
        ];
        let over = over
            .into_iter()
            .flatten()
            .filter(|(found, limit)| found > limit);
        let falls_ms = over.map(|(found, limit)| decay_ms(found, limit)).max();
        falls_ms
            .unwrap_or(RECHECK_FREE_MS)
            .clamp(RECHECK_MS_MIN, RECHECK_MS_MAX)
    }
}

/// The action after a reading of the machine's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relief {
    /// Pause the newest run.
    Pause,
    /// Resume the oldest paused run.
    Resume,
}

/// The actions so far. The kernel's averages show the effect of a pause or a resume only later, so
/// the next action waits until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReliefHistory {
    is_pausing: bool,
    next_pause: Option<SteadyTime>,
    next_resume: Option<SteadyTime>,
}

impl ReliefHistory {
    /// Returns whether a pause was decided and has not been observed yet.
    #[must_use]
    pub fn is_pausing(&self) -> bool {
        self.is_pausing
    }

    /// Decides the action after a reading. `used` as for [`Admission::hold`]; `is_stopping`: a run
    /// is still being paused; `has_paused`: a paused run waits.
    pub fn next(
        &mut self,
        admission: &Admission,
        used: u64,
        is_stopping: bool,
        has_paused: bool,
        now: SteadyTime,
    ) -> Option<Relief> {
        if is_stopping {
            self.is_pausing = true;
            return None;
        }
        if std::mem::take(&mut self.is_pausing) {
            self.next_pause = Some(now.plus_ms(admission.recovery_ms()));
        }
        let is_due = |at: Option<SteadyTime>| at.is_none_or(|at| now >= at);
        if admission.needs_pause(used) {
            self.is_pausing = is_due(self.next_pause);
            return self.is_pausing.then_some(Relief::Pause);
        }
        let resumes = has_paused && admission.has_passed(used) && is_due(self.next_resume);
        if resumes {
            self.next_resume = Some(now.plus_ms(AVERAGE_UPDATE_MS));
        }
        resumes.then_some(Relief::Resume)
    }

    /// Returns the time until the next reading while a start or a paused run waits for it, in
    /// milliseconds.
    #[must_use]
    pub fn recheck_ms(&self, admission: &Admission, now: SteadyTime) -> u64 {
        let waits = [self.next_pause, self.next_resume]
            .into_iter()
            .flatten()
            .filter(|at| *at > now);
        waits
            .map(|at| at.ms_since(now).unsigned_abs())
            .min()
            .unwrap_or(u64::MAX)
            .min(admission.recheck_ms())
    }
}

/// Returns the time that the average takes to decay exponentially from one share to another when no
/// task waits any more.
fn decay_ms(from: Share, to: Share) -> u64 {
    let ms = (f64::from(from.0) / f64::from(to.0.max(1))).ln() * AVERAGE_MS;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the logarithm of a ratio above 1, times ten seconds"
    )]
    let ms = ms.max(0.0) as u64;
    ms
}

/// Returns the memory that runs of an agent are expected to use after the last one had the peak
/// `now`. Rises to a higher peak immediately, and falls slowly.
#[must_use]
pub fn expected_peak(before: Option<u64>, now: u64) -> u64 {
    before.map_or(now, |before| now.max(before - before / 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1024 * 1024;

    fn admission(some: u32, full: u32, free_mb: u64) -> Admission {
        let memory = Some(Stall {
            some: Share::percent(some),
            full: Share::percent(full),
        });
        let limits = PressureLimits {
            memory: Some(Share::percent(40)),
            cpu: None,
            pause: Some(Share::percent(20)),
        };
        Admission {
            limits,
            load: MachineLoad {
                memory,
                cpu: memory,
                free_bytes: Some(free_mb * MB),
            },
        }
    }

    #[test]
    fn kernel_files_are_parsed() {
        let text = "some avg10=6.06 avg60=3.98 avg300=6.70 total=51324398645\nfull avg10=0.45 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(
            Stall::parse(text),
            Some(Stall {
                some: Share(606),
                full: Share(45)
            })
        );
        assert_eq!(
            Stall::parse("some avg10=100.00 avg60=0.00\n"),
            Some(Stall {
                some: Share::percent(100),
                full: Share(0)
            })
        );
        for text in [
            "",
            "some",
            "some avg10=x",
            "some avg10=1",
            "full avg10=1.00",
        ] {
            assert_eq!(Stall::parse(text), None, "{text}");
        }
        assert_eq!(
            available_bytes("MemTotal: 9 kB\nMemAvailable:   20 kB\n"),
            Some(20 * 1024)
        );
        assert_eq!(available_bytes("MemAvailable: lots"), None);
    }

    #[test]
    fn pressure_above_the_limit_holds_starts() {
        assert_eq!(
            admission(41, 0, 999).hold(1),
            Some(QueueReason::MemoryPressure)
        );
        assert_eq!(admission(40, 0, 999).hold(1), None);
        let cpu = Admission {
            limits: PressureLimits {
                cpu: Some(Share::percent(10)),
                ..PressureLimits::default()
            },
            ..admission(41, 0, 999)
        };
        assert_eq!(cpu.hold(1), Some(QueueReason::CpuPressure));
        assert_eq!(
            Admission {
                load: MachineLoad::default(),
                ..cpu
            }
            .hold(1),
            None,
            "what is unknown holds nothing back"
        );
    }

    #[test]
    fn expected_memory_of_live_runs_is_reserved() {
        let free = admission(0, 0, 500);
        assert!(
            !free.is_short_of_memory(1, 500 * MB, 0) && free.is_short_of_memory(1, 500 * MB, 1)
        );
        assert!(
            !free.is_short_of_memory(0, 900 * MB, 0),
            "alone, any run may start"
        );
    }

    #[test]
    fn newest_run_is_paused_only_if_others_are_live() {
        assert!(admission(0, 21, 999).needs_pause(2) && admission(0, 0, 100).needs_pause(2));
        assert!(!admission(0, 21, 999).needs_pause(1) && !admission(0, 20, 999).needs_pause(2));
        assert!(
            !admission(0, 11, 999).has_passed(1)
                && admission(0, 10, 999).has_passed(1)
                && !admission(0, 0, 200).has_passed(1)
        );
    }

    #[test]
    fn one_spike_pauses_one_run_at_a_time() {
        let mut history = ReliefHistory::default();
        // All tasks waited for memory for a moment, then none; the average falls slowly.
        let full_at = |ms: i64| (60.0 * (-ms as f64 / AVERAGE_MS).exp()) as u32;
        let (mut live, mut paused, mut stopping_until) = (6_u64, 0_u64, None);
        for ms in (0..60_000).step_by(100) {
            if stopping_until.is_some_and(|at| ms >= at) {
                (stopping_until, live, paused) = (None, live - 1, paused + 1);
            }
            let full = full_at(ms);
            match history.next(
                &admission(full, full, 9_999),
                live,
                stopping_until.is_some(),
                paused > 0,
                SteadyTime(ms),
            ) {
                Some(Relief::Pause) => stopping_until = Some(ms + 300),
                Some(Relief::Resume) => (live, paused) = (live + 1, paused - 1),
                None => {}
            }
            assert!(live + 1 >= 6, "one run is enough: {ms}");
        }
        assert_eq!((live, paused), (6, 0));
    }

    #[test]
    fn runs_are_paused_and_resumed_one_by_one() {
        let mut history = ReliefHistory::default();
        let (short, calm) = (admission(0, 0, 1), admission(0, 0, 9_999));
        let mut at =
            |ms, load, stopping, paused| history.next(load, 3, stopping, paused, SteadyTime(ms));
        assert_eq!(at(0, &short, false, false), Some(Relief::Pause));
        assert_eq!(
            (
                at(10, &short, true, false),
                at(20, &short, false, true),
                at(2_019, &short, false, true)
            ),
            (None, None, None)
        );
        assert_eq!(at(2_020, &short, false, true), Some(Relief::Pause));
        assert_eq!(at(2_030, &short, true, true), None);
        assert_eq!(at(3_000, &calm, false, true), Some(Relief::Resume));
        assert_eq!(
            (at(3_001, &calm, false, true), at(4_999, &calm, false, true)),
            (None, None)
        );
        assert_eq!(at(5_000, &calm, false, true), Some(Relief::Resume));
        assert_eq!(history.recheck_ms(&calm, SteadyTime(6_000)), 1_000);
        assert_eq!(
            history.recheck_ms(&calm, SteadyTime(7_000)),
            RECHECK_FREE_MS
        );
    }

    #[test]
    fn load_is_read_again_when_the_average_can_have_fallen() {
        assert_eq!(admission(80, 0, 999).recheck_ms(), 6_931);
        assert_eq!(admission(41, 0, 999).recheck_ms(), RECHECK_MS_MIN);
        assert_eq!(admission(0, 0, 1).recheck_ms(), RECHECK_FREE_MS);
    }

    proptest! {
        #[test]
        fn run_without_others_always_starts(some in 0_u32..=100, full in 0_u32..=100, free in any::<u32>(), expected: u64, reserved: u64) {
            let found = admission(some, full, free.into());
            prop_assert!(found.hold(0).is_none() && !found.is_short_of_memory(0, expected, reserved) && !found.needs_pause(0) && found.has_passed(0));
        }

        #[test]
        fn past_pressure_pauses_no_run(some in 0_u32..=100, full in 0_u32..=100, free in 0_u64..2_000, used in 1_u64..9) {
            let found = admission(some, full, free);
            prop_assert!(!(found.has_passed(used) && found.needs_pause(used)));
            prop_assert!((RECHECK_MS_MIN..=RECHECK_MS_MAX).contains(&found.recheck_ms()));
        }

        #[test]
        fn expected_peak_is_never_below_the_newest(before: Option<u64>, now: u64) {
            let expected = expected_peak(before, now);
            prop_assert!(expected >= now && expected <= now.max(before.unwrap_or(0)));
        }
    }
}
