//! Wall-clock instants as values. The core never reads a clock; `now` is an argument.

/// A wall-clock instant in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Returns this instant moved forward by `ms` milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Clamps this instant to a range. If the range is empty, returns `latest`.
    #[must_use]
    pub fn between(self, earliest: Self, latest: Self) -> Self {
        self.max(earliest).min(latest)
    }

    /// Returns the milliseconds from `earlier` to this instant, or 0 if the wall clock was set back
    /// in between.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}
