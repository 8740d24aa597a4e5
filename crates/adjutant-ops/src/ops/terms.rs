//! The settings for runs that a transaction applies.

use crate::config::Prices;
use crate::ops::policy_file::PolicyFile;
use crate::ops::settings::Settings;
use adjutant_core::rate_limit::RetryPolicy;
use adjutant_core::run::Retention;
use std::sync::Arc;

/// Settings for runs, read when a transaction begins.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub retention: Retention,
    /// How long a request without an expiry stays open.
    pub expiry_ms: i64,
    pub rate_limits: RetryPolicy,
    pub policies: PolicyFile,
    pub prices: Arc<Prices>,
}

impl Terms {
    /// Reads the current settings for runs.
    pub(super) fn of(settings: &Settings) -> Self {
        let config = settings.config_or_builtin();
        Self {
            retention: settings.retention(),
            expiry_ms: settings.expiry_ms(None),
            rate_limits: config.rate_limits,
            policies: PolicyFile::of(settings),
            prices: Arc::clone(&config.prices),
        }
    }
}
