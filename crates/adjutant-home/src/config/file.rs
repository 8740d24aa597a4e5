//! The format of the configuration file.

use super::values::UnusableValues;
use super::{
    Containment, chats, escalation, gate, http, notify, policies, pools, pressure, prices,
    webhooks, workspaces,
};
use crate::preset::Preset;
use adjutant_core::rate_limit::RetryPolicy;
use adjutant_core::tree::TreeLimits;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

const LIVE_RUNS_MAX_DEFAULT: u64 = 16;
const LOG_BYTES_MAX_DEFAULT: u64 = 64 * 1024 * 1024;
const LOG_BYTES_MIN: u64 = 64 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileConfig {
    pub(super) live_runs_max: Option<u64>,
    pub(super) idle_exit: Option<String>,
    pub(super) listen: Option<String>,
    #[serde(default)]
    pub(super) listen_without_tls: bool,
    pub(super) public_url: Option<String>,
    #[serde(default)]
    pub(super) tls: http::FileTls,
    pub(super) store: Option<String>,
    #[serde(default)]
    pub(super) store_shared: bool,
    pub(super) log_store: Option<String>,
    pub(super) log_store_credentials: Option<PathBuf>,
    pub(super) runner_lease: Option<String>,
    pub(super) expiry: Option<String>,
    pub(super) stopped_retention: Option<String>,
    pub(super) finished_retention: Option<String>,
    pub(super) log_bytes_max: Option<u64>,
    #[serde(default)]
    pub(super) containment: Containment,
    pub(super) fence: Option<String>,
    #[serde(default)]
    pub(super) fence_write: Vec<String>,
    #[serde(default)]
    pub(super) refuse_shared_directory: bool,
    #[serde(default)]
    pub(super) delegation: FileDelegation,
    #[serde(default)]
    pub(super) rate_limits: FileRateLimits,
    #[serde(default)]
    pub(super) pressure: pressure::FilePressure,
    pub(super) default_agent: Option<String>,
    pub(super) budget: Option<String>,
    #[serde(default)]
    pub(super) prices: prices::FilePrices,
    #[serde(default)]
    pub(super) agents: BTreeMap<String, FileAgent>,
    #[serde(default)]
    pub(super) pools: BTreeMap<String, pools::FilePool>,
    #[serde(default)]
    pub(super) chats: chats::FileChats,
    #[serde(default)]
    pub(super) webhooks: Vec<webhooks::FileWebhook>,
    #[serde(default)]
    pub(super) notify: notify::FileNotify,
    #[serde(default)]
    pub(super) policies: Vec<policies::FilePolicy>,
    #[serde(default)]
    pub(super) escalation: escalation::FileEscalation,
    #[serde(default)]
    pub(super) workspaces: workspaces::FileWorkspaces,
    #[serde(default)]
    pub(super) presets: BTreeMap<String, Preset>,
}

impl FileConfig {
    /// Returns the maximum number of live runs. Zero is reported.
    pub(super) fn live_runs_max(&self, unusable: &mut UnusableValues) -> u64 {
        let max = self.live_runs_max.unwrap_or(LIVE_RUNS_MAX_DEFAULT);
        if max == 0 {
            unusable.report("live_runs_max", "at least 1");
        }
        max
    }

    /// Returns the maximum size of a log. One that is too small is reported.
    pub(super) fn log_bytes_max(&self, unusable: &mut UnusableValues) -> u64 {
        let max = self.log_bytes_max.unwrap_or(LOG_BYTES_MAX_DEFAULT);
        if max < LOG_BYTES_MIN {
            unusable.report("log_bytes_max", format!("at least {LOG_BYTES_MIN}"));
        }
        max
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileDelegation {
    pub(super) depth_max: Option<u64>,
    pub(super) children_max: Option<u64>,
    pub(super) live_max: Option<u64>,
    pub(super) total_max: Option<u64>,
}

impl FileDelegation {
    pub(super) fn limits(&self) -> TreeLimits {
        let Self {
            depth_max,
            children_max,
            live_max,
            total_max,
        } = *self;
        let built_in = TreeLimits::default();
        TreeLimits {
            depth_max: depth_max.unwrap_or(built_in.depth_max),
            children_max: children_max.unwrap_or(built_in.children_max),
            live_max: live_max.unwrap_or(built_in.live_max),
            total_max: total_max.unwrap_or(built_in.total_max),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileRateLimits {
    pub(super) times_max: Option<u32>,
    pub(super) pause: Option<String>,
    pub(super) pause_max: Option<String>,
}

impl FileRateLimits {
    /// Completes the values with the built-in ones. Invalid ones are reported.
    pub(super) fn policy(&self, unusable: &mut UnusableValues) -> RetryPolicy {
        let built_in = RetryPolicy::default();
        RetryPolicy {
            times_max: self.times_max.unwrap_or(built_in.times_max),
            pause_ms: unusable.duration(
                "rate_limits.pause",
                self.pause.as_deref(),
                built_in.pause_ms,
            ),
            pause_ms_max: unusable.duration(
                "rate_limits.pause_max",
                self.pause_max.as_deref(),
                built_in.pause_ms_max,
            ),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileAgent {
    /// May be missing if the entry has the name of a preset.
    pub(super) harness: Option<String>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) args: Vec<String>,
    pub(super) prompt: Option<String>,
    pub(super) identity: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) env_pass: Vec<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) permissions: Option<String>,
    #[serde(default)]
    pub(super) trust_repo: bool,
    pub(super) auto_resume: Option<bool>,
    pub(super) isolation: Option<String>,
    pub(super) pool: Option<String>,
    pub(super) timeout: Option<String>,
    pub(super) patience: Option<String>,
    pub(super) stall: Option<String>,
    pub(super) memory: Option<String>,
    pub(super) grace: Option<String>,
    pub(super) report_grace: Option<String>,
    #[serde(default)]
    pub(super) end_after_report: bool,
    pub(super) fence: Option<String>,
    #[serde(default)]
    pub(super) fence_write: Vec<String>,
    pub(super) gate: Option<bool>,
    pub(super) base_url: Option<String>,
    pub(super) key: Option<gate::FileKey>,
    pub(super) budget: Option<String>,
    pub(super) priced_as: Option<String>,
}
