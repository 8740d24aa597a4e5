//! Failures of calls.

use super::name::decode_name;
use crate::config::{Home, HomeError};
use crate::process::lock;
use crate::view::{ErrorView, codes};
use http::StatusCode;
use hyper::body::Bytes;
use std::io;
use std::path::PathBuf;

/// Why one try of a call failed.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The request could not be sent, or the connection broke: repeat the call.
    Connection(String),
    /// The request was sent and no reply arrived in time. The server may be exiting with its socket
    /// open.
    NoReply(String),
    /// The server replied with an error.
    Refused(ErrorView),
    /// The caller runs below a supervisor and has to use the supervisor's socket.
    Redirected(PathBuf),
}

/// Returns the body of a success, else why the hub has refused the call.
pub(super) fn outcome(status: StatusCode, body: Bytes) -> Result<Bytes, CallFailure> {
    if status.is_success() {
        return Ok(body);
    }
    let refusal = serde_json::from_slice::<ErrorView>(&body).unwrap_or_else(|_| {
        let head = String::from_utf8_lossy(&body[..body.len().min(200)]);
        internal(&format!("the hub answered {status}: {head}"))
    });
    match refusal.code.as_str() {
        codes::CLOSING => Err(CallFailure::Connection(refusal.message)),
        _ => Err(CallFailure::Refused(refusal)),
    }
}

/// Returns the failure of a call that belongs to the supervisor with this socket, as its header
/// has it.
pub(super) fn redirection(socket: &str) -> CallFailure {
    match decode_name(socket) {
        Some(socket) => CallFailure::Redirected(PathBuf::from(socket)),
        None => CallFailure::Refused(internal(&"the hub named no usable supervisor")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closing_hub_is_called_again() {
        let reply = |status: StatusCode, body: &str| {
            outcome(status, Bytes::copy_from_slice(body.as_bytes()))
        };
        assert!(reply(StatusCode::OK, "x").is_ok_and(|body| body == "x"));
        let error = |code: &str| format!("{{\"code\": {code:?}, \"message\": \"m\"}}");
        let busy = StatusCode::SERVICE_UNAVAILABLE;
        assert!(matches!(
            reply(busy, &error(codes::CLOSING)),
            Err(CallFailure::Connection(message)) if message == "m"
        ));
        assert!(matches!(
            reply(busy, &error(codes::STORAGE)),
            Err(CallFailure::Refused(refusal)) if refusal.code == codes::STORAGE
        ));
        let long = "x".repeat(300);
        let expected = format!("the hub answered 502 Bad Gateway: {}", "x".repeat(200));
        assert!(matches!(
            reply(StatusCode::BAD_GATEWAY, &long),
            Err(CallFailure::Refused(refusal))
                if refusal.code == codes::INTERNAL && refusal.message == expected
        ));
    }
}
