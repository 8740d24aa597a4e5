//! The machine resources that an attempt's processes use: measurements, which of them become facts,
//! and the totals of a run.

use std::time::Duration;

/// The first measurement follows the start by this long, the others at growing distances.
pub const FIRST_AFTER: Duration = Duration::from_secs(1);
/// The longest time between two measurements.
pub(crate) const MEASURE_EVERY_MAX: Duration = Duration::from_secs(10);
/// Ordinary changes are stated at most once in this time; a new peak of memory is stated at once.
const STATE_EVERY_MS: i64 = 30_000;
/// A peak of memory counts as a new one if it exceeds the stated one by a tenth and by this much.
const PEAK_STEP_BYTES: u64 = 1024 * 1024;
/// A change of CPU use is worth a fact from this many percentage points on.
const CPU_STEP_PERCENT: u32 = 20;

/// The sum over the live processes of an attempt, as the kernel reports it at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measurement {
    pub processes: u32,
    /// Private memory of all of them, plus the largest shared part of one.
    pub memory_bytes: u64,
    /// CPU time of live processes and of the ended ones that they waited for.
    pub cpu_ms: u64,
    /// Bytes that they wrote to disk. `None`: the kernel does not report it.
    pub written_bytes: Option<u64>,
    /// Length of the output so far.
    pub output_bytes: u64,
}

/// The known resource use of an attempt, or of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUse {
    pub processes: u32,
    pub processes_peak: u32,
    pub memory_bytes: u64,
    pub memory_peak_bytes: u64,
    /// CPU time so far, which never decreases.
    pub cpu_ms: u64,
    /// CPU use since the previous measurement, in percent of one core.
    pub cpu_percent: u32,
    pub written_bytes: Option<u64>,
    /// Output since the previous measurement, in bytes per second.
    pub output_bytes_per_s: u64,
}

impl ResourceUse {
    /// Adds what earlier attempts of the same run used: times and volumes are added, peaks are the
    /// higher ones.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            processes_peak: self.processes_peak.max(earlier.processes_peak),
            memory_peak_bytes: self.memory_peak_bytes.max(earlier.memory_peak_bytes),
            cpu_ms: self.cpu_ms.saturating_add(earlier.cpu_ms),
            written_bytes: match (self.written_bytes, earlier.written_bytes) {
                (Some(now), Some(before)) => Some(now.saturating_add(before)),
                (known, other) => known.or(other),
            },
            ..self
        }
    }
}

/// Accumulates measurements. Times are milliseconds since the start of the attempt.
#[derive(Debug, Default)]
pub struct Meter {
    known: ResourceUse,
    measured_at_ms: i64,
    output_bytes: u64,
    stated: Option<(ResourceUse, i64)>,
    measurements: u32,
}

impl Meter {
    /// Returns the time from the newest measurement to the next one: 1 s, doubling up to 10 s.
    #[must_use]
    pub fn next_after(&self) -> Duration {
        FIRST_AFTER
            .saturating_mul(1_u32.checked_shl(self.measurements).unwrap_or(u32::MAX))
            .min(MEASURE_EVERY_MAX)
    }

    /// Adds a measurement. Returns the new figures if they are worth a fact.
    pub fn measure(&mut self, found: Measurement, at_ms: i64) -> Option<ResourceUse> {
        let Measurement {
            processes,
            memory_bytes,
            cpu_ms,
            written_bytes,
            output_bytes,
        } = found;
        let elapsed_ms = u64::try_from(at_ms.saturating_sub(self.measured_at_ms))
            .unwrap_or(0)
            .max(1);
        // The CPU time of a process is lost if its parent does not wait for it.
        let cpu_total = cpu_ms.max(self.known.cpu_ms);
        let per_s = |amount: u64, times: u64| amount.saturating_mul(times) / elapsed_ms;
        self.known = ResourceUse {
            processes,
            processes_peak: self.known.processes_peak.max(processes),
            memory_bytes,
            memory_peak_bytes: self.known.memory_peak_bytes.max(memory_bytes),
            cpu_percent: u32::try_from(per_s(cpu_total - self.known.cpu_ms, 100))
                .unwrap_or(u32::MAX),
            cpu_ms: cpu_total,
            written_bytes: written_bytes.max(self.known.written_bytes),
            output_bytes_per_s: per_s(output_bytes.saturating_sub(self.output_bytes), 1_000),
        };
        self.measured_at_ms = at_ms;
        self.output_bytes = output_bytes;
        self.measurements = self.measurements.saturating_add(1);
        let is_due = self.stated.is_none_or(|(stated, stated_at)| {
            is_worth_a_fact(&stated, &self.known, at_ms.saturating_sub(stated_at))
        });
        is_due.then(|| {
            self.stated = Some((self.known, at_ms));
            self.known
        })
    }

    /// Returns the use of an attempt whose processes have all ended. `cpu_ms` and `written_bytes`
    /// are what the kernel accounted for all of them, `largest_bytes` is the peak of the largest
    /// one.
    #[must_use]
    pub fn finish(&self, cpu_ms: u64, written_bytes: u64, largest_bytes: u64) -> ResourceUse {
        ResourceUse {
            processes: 0,
            processes_peak: self.known.processes_peak.max(1),
            memory_bytes: 0,
            memory_peak_bytes: self.known.memory_peak_bytes.max(largest_bytes),
            cpu_ms: cpu_ms.max(self.known.cpu_ms),
            cpu_percent: 0,
            written_bytes: Some(written_bytes).max(self.known.written_bytes),
            output_bytes_per_s: 0,
        }
    }
}

/// Returns whether a change since the last statement, `since_ms` ago, is worth another one.
fn is_worth_a_fact(stated: &ResourceUse, now: &ResourceUse, since_ms: i64) -> bool {
    let grown = now
        .memory_peak_bytes
        .saturating_sub(stated.memory_peak_bytes);
    if grown > PEAK_STEP_BYTES && grown > stated.memory_peak_bytes / 10 {
        return true;
    }
    let differs = |a: u64, b: u64| a.abs_diff(b) > a.max(b) / 5;
    since_ms >= STATE_EVERY_MS
        && (now.processes != stated.processes
            || differs(now.memory_bytes, stated.memory_bytes)
            || now.cpu_percent.abs_diff(stated.cpu_percent) >= CPU_STEP_PERCENT
            || differs(now.cpu_ms, stated.cpu_ms)
            || differs(
                now.written_bytes.unwrap_or(0),
                stated.written_bytes.unwrap_or(0),
            )
            || differs(now.output_bytes_per_s, stated.output_bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1024 * 1024;

    fn found(memory_mb: u64, cpu_ms: u64, output_bytes: u64) -> Measurement {
        Measurement {
            processes: 2,
            memory_bytes: memory_mb * MB,
            cpu_ms,
            written_bytes: Some(0),
            output_bytes,
        }
    }

    #[test]
    fn rates_cover_the_time_since_the_previous_measurement() {
        let mut meter = Meter::default();
        let first = meter
            .measure(found(10, 500, 4_000), 1_000)
            .expect("the first one is stated");
        assert_eq!(
            (first.cpu_percent, first.output_bytes_per_s, first.cpu_ms),
            (50, 4_000, 500)
        );
        let second = meter
            .measure(found(50, 3_500, 4_500), 3_000)
            .expect("a new peak");
        assert_eq!(
            (
                second.cpu_percent,
                second.output_bytes_per_s,
                second.memory_peak_bytes
            ),
            (150, 250, 50 * MB)
        );
    }

    #[test]
    fn steady_use_is_reported_once_and_changes_every_30_s() {
        let mut meter = Meter::default();
        assert!(meter.measure(found(100, 0, 0), 1_000).is_some());
        assert_eq!(
            meter.measure(found(101, 0, 0), 3_000),
            None,
            "no new peak by a tenth"
        );
        assert_eq!(
            meter.measure(found(20, 0, 0), 7_000),
            None,
            "less, and too early"
        );
        let stated = meter
            .measure(found(20, 0, 0), 31_000)
            .expect("less, for half a minute");
        assert_eq!(
            (stated.memory_bytes, stated.memory_peak_bytes),
            (20 * MB, 101 * MB)
        );
        assert_eq!(
            meter.measure(found(20, 0, 0), 91_000),
            None,
            "nothing has changed"
        );
    }

    #[test]
    fn distances_double_up_to_ten_seconds() {
        let mut meter = Meter::default();
        let mut waits = Vec::new();
        for n in 0..6 {
            waits.push(meter.next_after().as_secs());
            meter.measure(found(1, 0, 0), n * 1_000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn attempts_add_up_and_peaks_are_the_highest() {
        let first = ResourceUse {
            cpu_ms: 10,
            memory_peak_bytes: 7,
            processes_peak: 3,
            written_bytes: None,
            ..ResourceUse::default()
        };
        let second = ResourceUse {
            cpu_ms: 5,
            memory_peak_bytes: 9,
            processes: 1,
            processes_peak: 1,
            written_bytes: Some(4),
            ..ResourceUse::default()
        };
        let both = ResourceUse {
            cpu_ms: 15,
            memory_peak_bytes: 9,
            processes: 1,
            processes_peak: 3,
            written_bytes: Some(4),
            ..ResourceUse::default()
        };
        assert_eq!(second.after(&first), both);
    }

    proptest! {
        #[test]
        fn totals_and_peaks_never_decrease(all in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u64>(), any::<Option<u64>>(), any::<u64>(), any::<i64>()), 1..20)) {
            let mut meter = Meter::default();
            let mut before = ResourceUse::default();
            for (processes, memory_bytes, cpu_ms, written_bytes, output_bytes, at_ms) in all {
                meter.measure(Measurement { processes, memory_bytes, cpu_ms, written_bytes, output_bytes }, at_ms);
                let now = meter.known;
                prop_assert!(now.cpu_ms >= before.cpu_ms && now.memory_peak_bytes >= before.memory_peak_bytes.max(memory_bytes));
                prop_assert!(now.processes_peak >= before.processes_peak && now.written_bytes >= before.written_bytes);
                before = now;
            }
            let end = meter.finish(0, 0, 0);
            prop_assert!(end.cpu_ms == before.cpu_ms && end.memory_peak_bytes == before.memory_peak_bytes);
        }
    }
}
