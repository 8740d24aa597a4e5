//! Whether a hub is there, and whether it answers.

use super::Client;
use super::connection::{Connection, Request};
use super::failure::{hub_pid, unresponsive_hub_error};
use crate::config::Home;
use crate::process::tree;
use crate::sock;
use crate::view::{Call, ErrorView, GetHub};
use hyper::body::Bytes;
use std::time::Duration;

/// How long a hub may take to reply when only its presence is checked.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The same where its silence is reported.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// Tells whether a hub answers at all, without starting one.
    pub async fn is_hub_responding(home: &Home) -> bool {
        Self::answers(home, PRESENCE_TIMEOUT).await
    }

    /// Returns what is to be said about a hub that takes connections and answers none. `None`: it
    /// answers, or there is none.
    pub async fn unresponsive_hub(home: &Home) -> Option<ErrorView> {
        if Self::answers(home, REPORT_TIMEOUT).await || sock::connect(&home.socket()).await.is_err() {
            return None;
        }
        hub_pid(home).map(|pid| unresponsive_hub_error(home, pid))
    }

    /// The same where nothing came for some time already. One that is ending is none: the next one comes.
    pub(super) async fn confirm_unresponsive(home: &Home) -> Option<ErrorView> {
        if Self::answers(home, PRESENCE_TIMEOUT).await {
            return None;
        }
        let pid = hub_pid(home).filter(|pid| !tree::is_dying(*pid));
        pid.map(|pid| unresponsive_hub_error(home, pid))
    }

    async fn answers(home: &Home, limit: Duration) -> bool {
        let look = async {
            let Ok(mut connection) = Connection::open(&home.socket()).await else { return false };
            connection.is_answered(Request::post(&format!("/api/v1/{}", GetHub::NAME), Bytes::from_static(b"{}"))).await
        };
        matches!(tokio::time::timeout(limit, look).await, Ok(true))
    }
}
