//! How long requests stay open.

use crate::ops::Ops;
use adjutant_core::limits;

impl Ops {
    /// Returns how long a request stays open.
    pub(in crate::ops) fn expiry_ms(&self, wanted_s: Option<u64>) -> i64 {
        match wanted_s {
            Some(seconds) => i64::try_from(seconds)
                .unwrap_or(i64::MAX)
                .saturating_mul(1000),
            None => self
                .config()
                .map_or(limits::EXPIRY_MS_DEFAULT, |config| config.times.expiry_ms),
        }
    }

    /// Returns the shortest expiry, in seconds, that a run may set for an approval or a delegation.
    pub(super) fn decision_expiry_s_min(&self) -> i64 {
        (self.expiry_ms(None).min(limits::DECISION_EXPIRY_MS_MIN) / 1000).max(1)
    }
}
