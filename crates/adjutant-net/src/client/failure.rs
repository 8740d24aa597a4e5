//! Failures of calls.

use super::Client;
use crate::config::{Home, HomeError};
use crate::process::lock;
use crate::view::{ErrorView, codes};
use std::io;
use std::path::PathBuf;

/// Why one try of a call failed.
pub(super) enum CallFailure {
    /// The request could not be sent, or the connection broke: repeat the call.
    Connection(String),
    /// The request was sent and no reply arrived in time. The server may be exiting with its socket open.
    NoReply(String),
    /// The server replied with an error.
    Refused(ErrorView),
    /// The caller runs below a supervisor and has to use the supervisor's socket.
    Redirected(PathBuf),
}

pub(super) fn internal(error: &dyn std::fmt::Display) -> ErrorView {
    ErrorView {
        code: codes::INTERNAL.to_owned(),
        message: error.to_string(),
        hint: None,
    }
}

/// Returns the error for a hub that could not be started.
pub(super) fn hub_start_error(home: &Home, error: &io::Error) -> ErrorView {
    if let Some(error) = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<HomeError>())
    {
        let hint = match error {
            HomeError::PartlyRemoved { .. } => "adj uninstall --home completes it",
            HomeError::Network { .. } => "set ADJ_HOME to a directory on a local disk",
            _ => "set ADJ_HOME to an empty directory of your own, or to an existing home",
        };
        let hint = hint.to_owned();
        return ErrorView {
            code: codes::UNREACHABLE.to_owned(),
            message: error.to_string(),
            hint: Some(hint),
        };
    }
    unreachable_hub_error(home, &error.to_string())
}

pub(super) fn unreachable_hub_error(home: &Home, message: &str) -> ErrorView {
    if let Ok(Some(pid)) = lock::holder_pid(&home.dir, &home.hub_lock()) {
        tracing::debug!(%message, "the hub does not answer");
        return unresponsive_hub_error(home, pid);
    }
    ErrorView {
        code: codes::UNREACHABLE.to_owned(),
        message: format!(
            "the hub of {} cannot be reached: {message}",
            home.dir.display()
        ),
        hint: Some(if home.hub_log().exists() {
            format!("see {} or run: adj doctor", home.hub_log().display())
        } else {
            "set ADJ_HOME to a directory that you can write to, or run: adj doctor".to_owned()
        }),
    }
}

/// Returns the error for a call that has failed again and again. A hub that answers others is not to be replaced.
pub(super) async fn failed_call_error(home: &Home, message: &str) -> ErrorView {
    if let Some(hanging) = Client::unresponsive_hub(home).await {
        return hanging;
    }
    match hub_pid(home) {
        Some(pid) if Client::is_hub_busy(home, Some(pid)).await => ErrorView {
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

/// Returns the process that holds the hub's lock.
pub(super) fn hub_pid(home: &Home) -> Option<rustix::process::Pid> {
    lock::holder_pid(&home.dir, &home.hub_lock()).unwrap_or_else(|error| {
        tracing::warn!(%error, "the hub's lock cannot be read");
        None
    })
}

/// Returns the error for a hub that is alive and does not respond.
pub(super) fn unresponsive_hub_error(home: &Home, pid: rustix::process::Pid) -> ErrorView {
    let pid = pid.as_raw_nonzero();
    ErrorView {
        code: codes::UNREACHABLE.to_owned(),
        message: format!(
            "the hub of {} (pid {pid}) does not answer",
            home.dir.display()
        ),
        hint: Some(format!(
            "it may be stopped, or its disk may not respond; to replace it: kill -9 {pid} (nothing acknowledged is lost, and runs continue); its log: {}",
            home.hub_log().display()
        )),
    }
}
