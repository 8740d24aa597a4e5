//! Checks whether a hub is running and responds.

use super::Client;
use super::connection::{Connection, Request};
use super::failure::{hub_pid, unresponsive_hub_error};
use crate::config::Home;
use crate::process::tree;
use crate::sock;
use crate::view::{Call, ErrorView, GetHub};
use hyper::body::Bytes;
use std::time::Duration;

/// How long a hub may take to reply when its presence is checked.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a hub may take to reply before it is reported as unresponsive.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a hub does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Responds,
    /// It refuses or closes the connection.
    Closes,
    /// It keeps the connection open without a reply.
    IsSilent,
}

impl Client {
    /// Returns whether a hub responds. Never starts one.
    pub async fn is_hub_responding(home: &Home) -> bool {
        Self::answers(home, PRESENCE_TIMEOUT).await == Presence::Responds
    }

    /// Waits until the home's hub accepts connections. Never starts one.
    pub async fn until_hub_listens(home: &Home) {
        super::start::wait_for_hub(home).await;
    }

    /// Returns the error for a hub that accepts connections and does not respond. `None`: it responds, or there is
    /// none.
    pub async fn unresponsive_hub(home: &Home) -> Option<ErrorView> {
        if Self::answers(home, REPORT_TIMEOUT).await == Presence::Responds || sock::connect(&home.socket()).await.is_err() {
            return None;
        }
        hub_pid(home).map(|pid| unresponsive_hub_error(home, pid))
    }

    /// Like [`Self::unresponsive_hub`], for a hub that has already been silent for a while. A hub that closes its connections is not
    /// reported: it exits, and another one follows, or it begins to lead.
    pub(super) async fn confirm_unresponsive(home: &Home) -> Option<ErrorView> {
        if Self::answers(home, PRESENCE_TIMEOUT).await != Presence::IsSilent {
            return None;
        }
        let pid = hub_pid(home).filter(|pid| !tree::is_dying(*pid));
        pid.map(|pid| unresponsive_hub_error(home, pid))
    }

    async fn answers(home: &Home, limit: Duration) -> Presence {
        let look = async {
            let Ok(mut connection) = Connection::open(&home.socket()).await else { return Presence::Closes };
            let request = Request::post(&format!("/api/v1/{}", GetHub::NAME), Bytes::from_static(b"{}"));
            if connection.is_answered(request).await { Presence::Responds } else { Presence::Closes }
        };
        tokio::time::timeout(limit, look).await.unwrap_or(Presence::IsSilent)
    }
}
