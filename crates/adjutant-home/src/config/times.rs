//! How long the hub waits for work and for runners, and keeps what has ended.

use super::file::FileConfig;
use super::values::UnusableValues;
use adjutant_core::{lease, limits};

const IDLE_EXIT_MS_DEFAULT: i64 = 30 * 60 * 1000;
const FINISHED_RETENTION_MS_DEFAULT: i64 = 30 * 24 * 60 * 60 * 1000;

/// The general times of a configuration.
#[derive(Debug, Clone)]
pub struct Times {
    /// The hub exits after this long without work. `None`: never.
    pub idle_exit_ms: Option<i64>,
    /// The lease of attempts on runners.
    pub runner_lease_ms: i64,
    pub expiry_ms: i64,
    pub stopped_retention_ms: i64,
    /// Finished runs are removed after this long. `None`: never.
    pub finished_retention_ms: Option<i64>,
}

/// Reads the times of a file. Invalid ones are reported.
pub(super) fn read(file: &FileConfig, unusable: &mut UnusableValues) -> Times {
    let runner_lease_ms = unusable.duration(
        "runner_lease",
        file.runner_lease.as_deref(),
        lease::LEASE_DEFAULT_MS,
    );
    if !(lease::LEASE_MIN_MS..=lease::LEASE_MAX_MS).contains(&runner_lease_ms) {
        unusable.report("runner_lease", "use 2s to 1d");
    }
    Times {
        idle_exit_ms: unusable.optional_duration(
            "idle_exit",
            file.idle_exit.as_deref(),
            IDLE_EXIT_MS_DEFAULT,
        ),
        runner_lease_ms,
        expiry_ms: unusable.duration("expiry", file.expiry.as_deref(), limits::EXPIRY_MS_DEFAULT),
        stopped_retention_ms: unusable.duration(
            "stopped_retention",
            file.stopped_retention.as_deref(),
            limits::STOPPED_RETENTION_MS_DEFAULT,
        ),
        finished_retention_ms: unusable.optional_duration(
            "finished_retention",
            file.finished_retention.as_deref(),
            FINISHED_RETENTION_MS_DEFAULT,
        ),
    }
}
