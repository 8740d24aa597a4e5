//! The hub's state, and administrative calls that runs cannot make.

use serde::{Deserialize, Serialize};

/// Reassigns runs and their descendants to another client, for a parent that reconnects under a new
/// name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    pub runs: Vec<String>,
    /// The name of the new client. Empty: the person.
    #[serde(default)]
    pub client: String,
}

/// Removes finished runs and their files.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Clean {
    /// Removes only runs that ended at least this long ago.
    #[serde(default)]
    pub older_than_s: u64,
    /// Removes only these runs, which have ended. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    #[serde(default)]
    pub dry_run: bool,
    /// Also runs whose work in a workspace was neither merged nor discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cleaned {
    pub runs: Vec<String>,
    pub dry_run: bool,
    /// Runs that are old enough and stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptRun>,
    /// Shared caches of repositories that no run is left of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<String>,
}

/// A run that is not removed, because its work would be lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptRun {
    pub run: String,
    pub reason: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GetHub {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HubView {
    pub version: String,
    pub pid: u32,
    pub home: String,
    pub started_at: String,
    pub live_runs: u64,
    pub queued_runs: u64,
    pub live_runs_max: u64,
    pub pending_requests: u64,
    pub sqlite_version: String,
    /// Where the state is kept: `SQLite` or `PostgreSQL`.
    #[serde(default)]
    pub store: String,
    /// Current problems, for instance a full disk.
    #[serde(default)]
    pub problems: Vec<String>,
    /// A note if the machine's clock was recently changed, and by how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// The base address at which the hub serves HTTP, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The base address for callers on other machines, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_url: Option<String>,
    /// The SHA-256 of the public key of the hub's certificate, in hexadecimal, if it serves TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Present only for the person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<WebhookView>,
    /// The leader, if this hub is a standby hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderView>,
    /// When the database of the store was last set back, if it ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_back: Option<Box<SetBackView>>,
    /// Why a standby hub cannot use the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_problem: Option<String>,
}

/// The database of a store was set back: it lacked what had been confirmed, and an era began, in
/// which numbers continue above those that had been given out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetBackView {
    /// When it was noticed.
    pub at: String,
    /// The number of the era.
    pub era: i64,
    /// The last event that the database had.
    pub last_event: i64,
}

impl SetBackView {
    /// Says what has happened, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self {
            at,
            era,
            last_event,
        } = self;
        format!(
            "the database of the hub was set back (noticed {at}): what was confirmed after event {last_event} and is missing in it is lost; \
             numbers continue above those that were given out (era {era})"
        )
    }
}

/// The leader of the hubs that share a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeaderView {
    /// The name of its machine.
    pub name: String,
    /// The base address at which it serves HTTP, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The SHA-256 of the public key of its certificate, in hexadecimal, if it serves TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Lists the configured webhooks. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListWebhooks {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebhookList {
    pub webhooks: Vec<WebhookView>,
}

/// Retries failed webhook deliveries now, including abandoned ones. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryWebhooks {
    /// The address of one webhook, or a prefix of it. Default: all webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebhooksRetried {
    /// The number of deliveries that are retried.
    pub deliveries: u64,
}

/// The state of one webhook.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebhookView {
    /// The beginning of the webhook's address.
    pub place: String,
    /// The events that it receives.
    #[serde(default)]
    pub events: Vec<String>,
    pub waiting: i64,
    /// Deliveries that failed too often and are no longer retried.
    pub parked: i64,
    /// Deliveries that were dropped because too many were waiting.
    pub dropped: i64,
    /// When the first waiting delivery is retried, if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<String>,
    /// The most recent problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl WebhookView {
    /// Returns how many deliveries wait, have failed or were dropped, as text.
    #[must_use]
    pub fn deliveries_text(&self) -> String {
        let mut shown = format!("{} waiting", self.waiting);
        for (count, what) in [
            (self.parked, "failed permanently"),
            (self.dropped, "dropped, too many were waiting"),
        ] {
            if count > 0 {
                shown.push_str(&format!(", {count} {what}"));
            }
        }
        shown
    }
}

/// Checks that the log store of this hub can be used: stores, lists, reads and deletes a small
/// object. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckLogStore {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogStoreCheck {
    /// The address of the log store, if the hub has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Stops the hub. Runs continue; the next command starts a hub.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StopHub {}

/// Replaces the hub with another binary: the hub stops accepting calls, releases the home and
/// executes `exe`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    pub exe: String,
    pub version: String,
}
