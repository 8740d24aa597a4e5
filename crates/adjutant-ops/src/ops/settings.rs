//! The settings: the configuration as last read, and the last valid one.

use crate::config::{Config, ConfigError, Home, Stamp};
use crate::store::{Topic, WakeUps};
use adjutant_core::limits;
use adjutant_core::run::Retention;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The settings of one home. Clones share what was read.
#[derive(Debug, Clone)]
pub struct Settings {
    home: Arc<Home>,
    /// The path of the configuration, which never changes while the process runs.
    path: Arc<Path>,
    wake_ups: Arc<WakeUps>,
    read: Arc<Mutex<Read>>,
}

#[derive(Debug, Default)]
struct Read {
    /// The configuration as last read; read again when its file changes.
    last: Option<ReadConfig>,
    /// The last valid configuration, which stays in effect while the file is invalid.
    last_valid: Option<Arc<Config>>,
}

/// A configuration as read, or why it cannot be used, with the state of its file.
#[derive(Debug, Clone)]
struct ReadConfig {
    stamp: Option<Stamp>,
    config: Result<Arc<Config>, ConfigError>,
}

impl Settings {
    pub(super) fn new(home: Arc<Home>, wake_ups: Arc<WakeUps>) -> Self {
        Self {
            path: Config::path(&home).into(),
            home,
            wake_ups,
            read: Arc::default(),
        }
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the configuration.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current configuration.
    ///
    /// # Errors
    /// The configuration is invalid; the message says where.
    pub fn config(&self) -> Result<Arc<Config>, ConfigError> {
        // Taken before reading: a concurrent change then makes the stamp older, never newer.
        let stamp = Stamp::of(&self.path);
        let mut read = self.read();
        let now = match read.last.take().filter(|last| last.stamp == stamp) {
            Some(last) => last,
            None => {
                // Other pools may start other runs.
                self.wake_ups.notify([&Topic::Queue]);
                ReadConfig {
                    stamp,
                    config: Config::load(&self.home).map(Arc::new),
                }
            }
        };
        if !matches!(now.config, Err(ConfigError::Shortage { .. })) {
            read.last = Some(now.clone());
        }
        if let Ok(config) = &now.config {
            read.last_valid = Some(Arc::clone(config));
        }
        now.config
    }

    /// Reads the configuration, or falls back to the last valid one, if none to the built-in
    /// values: a syntax error must not stop live runs or lift a policy.
    pub(super) fn config_or_builtin(&self) -> Arc<Config> {
        self.config().unwrap_or_else(|error| {
            tracing::warn!(%error, "the configuration is not usable");
            let last = self.read().last_valid.clone();
            last.unwrap_or_else(|| Arc::new(Config::builtin(&self.home)))
        })
    }

    /// Returns the problem of the configuration, if any.
    pub fn problem(&self) -> Option<String> {
        self.config().err().map(|error| error.to_string())
    }

    /// Returns how long stopped runs are kept.
    pub(super) fn retention(&self) -> Retention {
        Retention {
            stopped_ms: self.config_or_builtin().times.stopped_retention_ms,
        }
    }

    /// Returns how long a request stays open.
    pub(super) fn expiry_ms(&self, wanted_s: Option<u64>) -> i64 {
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

    /// Returns whether open requests are escalated.
    pub fn has_escalation(&self) -> bool {
        !self.config_or_builtin().escalation.is_empty()
    }

    /// Returns whether a pool launches runners.
    pub fn has_launchers(&self) -> bool {
        self.config_or_builtin()
            .pools
            .values()
            .any(|pool| pool.launcher.is_some())
    }
}
