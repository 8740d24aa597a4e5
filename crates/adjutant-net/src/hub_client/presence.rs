//! Checks whether a hub is running and responds.

use super::connection::{HubConnection, Request};
use super::failure::{hub_pid, unreachable_hub_error, unresponsive_hub_error};
use crate::config::Home;
use crate::process::tree;
use crate::sock;
use crate::view::{Call, ErrorView, GetHub, codes};
use hyper::body::Bytes;
use rustix::process::Pid;
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

/// The CPU time of a hub before it was asked. A hub that uses the CPU is slow, and must not be
/// reported as hung.
struct Worked {
    pid: Option<Pid>,
    ticks: Option<u64>,
}

impl Worked {
    fn of(home: &Home) -> Self {
        let pid = hub_pid(home);
        Self {
            pid,
            ticks: pid.and_then(tree::cpu_ticks),
        }
    }

    /// Returns the hub if it has not used the CPU since.
    fn silent_hub(&self) -> Option<Pid> {
        self.pid.filter(|pid| tree::cpu_ticks(*pid) == self.ticks)
    }
}

/// Returns whether a hub responds. Never starts one.
pub(super) async fn is_hub_responding(home: &Home) -> bool {
    answers(home, PRESENCE_TIMEOUT).await == Presence::Responds
}

/// Returns the error for a hub that accepts connections and does not respond. `None`: it
/// responds, or there is none.
pub async fn unresponsive_hub(home: &Home) -> Option<ErrorView> {
    let worked = Worked::of(home);
    if answers(home, REPORT_TIMEOUT).await == Presence::Responds
        || sock::connect(&home.socket()).await.is_err()
    {
        return None;
    }
    worked
        .silent_hub()
        .map(|pid| unresponsive_hub_error(home, pid))
}

/// Like [`unresponsive_hub`], for a hub that has already been silent for a while. A hub
/// that closes its connections is not reported: it exits, and another one follows, or it begins
/// to lead.
pub(super) async fn confirm_unresponsive(home: &Home) -> Option<ErrorView> {
    let worked = Worked::of(home);
    if answers(home, PRESENCE_TIMEOUT).await != Presence::IsSilent {
        return None;
    }
    let pid = worked.silent_hub().filter(|pid| !tree::is_dying(*pid));
    pid.map(|pid| unresponsive_hub_error(home, pid))
}

/// Returns whether `server`, at the other end of a connection that is silent, is the home's hub
/// and answers others: it is busy with the call of this connection.
pub(super) async fn is_hub_busy(home: &Home, server: Option<Pid>) -> bool {
    server.is_some()
        && hub_pid(home) == server
        && answers(home, REPORT_TIMEOUT).await == Presence::Responds
}

/// Returns the error for a call that has failed again and again. A hub that answers others is not
/// to be replaced.
pub(super) async fn failed_call_error(home: &Home, message: &str) -> ErrorView {
    if let Some(hanging) = unresponsive_hub(home).await {
        return hanging;
    }
    match hub_pid(home) {
        Some(pid) if is_hub_busy(home, Some(pid)).await => ErrorView {
            code: codes::UNREACHABLE.to_owned(),
            message: format!(
                "the hub of {} answers other calls, but not this one: {message}",
                home.dir.display()
            ),
            hint: Some(format!(
                "it is busy with it, or the machine is: repeat the command later; its log: {}",
                home.hub_log().display()
            )),
        },
        _ => unreachable_hub_error(home, message),
    }
}

async fn answers(home: &Home, limit: Duration) -> Presence {
    let look = async {
        let Ok(mut connection) = HubConnection::open(&home.socket()).await else {
            return Presence::Closes;
        };
        let request = Request::post(
            &format!("/api/v1/{}", GetHub::NAME),
            Bytes::from_static(b"{}"),
        );
        if connection.exchange(request).await.is_ok() {
            Presence::Responds
        } else {
            Presence::Closes
        }
    };
    tokio::time::timeout(limit, look)
        .await
        .unwrap_or(Presence::IsSilent)
}
