//! Authentication. The connection identifies the caller: by where its process runs, and by the
//! token that it presents. A caller outside of all runs says whether it is a client, and which.

use super::Hub;
use super::connections::Line;
use crate::attempt_processes::place::{self, Place};
use crate::hub_client::{SUPERVISOR_HEADER, decode_name, encode_name};
use crate::ops::{AttemptId, OpError, http_status, is_supervisor_of};
use crate::process::caller::CallerProcess;
use crate::protocol::{AttemptDir, headers};
use crate::view::{ErrorView, codes};
use adjutant_core::{ClientName, Principal};
use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The identity of the process at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct CallerConnection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    peer: io::Result<CallerProcess>,
    /// Determined at the first call, and valid for the life of the connection.
    place: OnceLock<Place>,
    /// The attempt and the token that its supervisor has presented. Both the token and the
    /// connection last as long as the supervisor.
    shown: OnceLock<(AttemptId, String)>,
    line: Arc<Line>,
}

impl CallerConnection {
    pub(super) fn new(peer: io::Result<CallerProcess>, line: Arc<Line>) -> Self {
        Self(Arc::new(Inner {
            peer,
            place: OnceLock::new(),
            shown: OnceLock::new(),
            line,
        }))
    }

    pub(super) fn line(&self) -> &Arc<Line> {
        &self.0.line
    }

    /// Returns whether `token` belongs to the attempt.
    fn is_genuine(&self, hub: &Hub, attempt: AttemptId, token: &str) -> Result<bool, OpError> {
        if self
            .0
            .shown
            .get()
            .is_some_and(|(of, shown)| *of == attempt && shown == token)
        {
            return Ok(true);
        }
        let genuine = is_supervisor_of(hub.ops.store(), attempt, token)?;
        if genuine {
            self.0.shown.get_or_init(|| (attempt, token.to_owned()));
        }
        Ok(genuine)
    }

    /// Returns where the caller runs. A failure is not cached; the next call tries again.
    fn place(&self, home: &Path) -> Result<Place, PlaceError<'_>> {
        if let Some(place) = self.0.place.get() {
            return Ok(place.clone());
        }
        let peer = self.0.peer.as_ref().map_err(PlaceError::Peer)?;
        if !peer.is_same_user() {
            return Err(PlaceError::OtherUser);
        }
        let place = place::of_caller(peer, home).map_err(PlaceError::Place)?;
        Ok(self.0.place.get_or_init(|| place).clone())
    }
}

/// Why it is unknown where a caller runs.
#[derive(Debug, thiserror::Error)]
enum PlaceError<'a> {
    /// Its process could not be determined when the connection was opened.
    #[error("{0}")]
    Peer(&'a io::Error),
    #[error("the caller is another user")]
    OtherUser,
    #[error(transparent)]
    Place(io::Error),
}

impl PlaceError<'_> {
    fn response(&self) -> Box<Response> {
        refusal_response(codes::NOT_ALLOWED, &self.to_string(), None)
    }
}

/// The caller of a call.
#[derive(Debug, Clone)]
pub(super) struct Auth {
    pub(super) who: Principal,
    /// The attempt, if the caller is its supervisor.
    pub(super) attempt: Option<AttemptId>,
}

fn refusal_response(code: &str, message: &str, hint: Option<&str>) -> Box<Response> {
    let view = ErrorView {
        code: code.to_owned(),
        message: message.to_owned(),
        hint: hint.map(ToOwned::to_owned),
    };
    let status =
        StatusCode::from_u16(http_status(code)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Box::new((status, Json(view)).into_response())
}

/// Reports a failed lookup as such, not as a refusal of the caller.
fn error_response(error: &OpError) -> Box<Response> {
    let ErrorView {
        code,
        message,
        hint,
    } = error.view();
    refusal_response(&code, &message, hint.as_deref())
}

/// Identifies a caller that is not a process of a run.
pub(super) fn outside(given: &HeaderMap) -> Result<Principal, Box<Response>> {
    let text = |name: &str| given.get(name).and_then(|value| value.to_str().ok());
    if text(headers::ATTEMPT).is_some() {
        return Err(refusal_response(
            codes::NOT_ALLOWED,
            "only a supervisor can act for an attempt",
            Some("a worker's token is valid only at its own supervisor"),
        ));
    }
    match text(headers::CLIENT) {
        Some(name) => match decode_name(name).and_then(|name| ClientName::parse(&name).ok()) {
            Some(name) => Ok(Principal::Client(name)),
            None => Err(refusal_response(
                codes::INVALID,
                "the client's name is unusable",
                None,
            )),
        },
        None => Ok(Principal::Person),
    }
}

/// Identifies a caller of a standby hub. Such a hub has no runs: those that share a store start
/// them on runners.
pub(super) fn authenticate_outside(
    home: &Path,
    connection: &CallerConnection,
    given: &HeaderMap,
) -> Result<Principal, Box<Response>> {
    match connection.place(home).map_err(|error| error.response())? {
        Place::Outside => outside(given),
        Place::Supervisor { .. } | Place::Attempt { .. } => Err(refusal_response(
            codes::CLOSING,
            "the hub of this run is a standby hub, which has no runs",
            None,
        )),
    }
}

/// Identifies the caller.
pub(super) fn authenticate(
    hub: &Hub,
    connection: &CallerConnection,
    given: &HeaderMap,
) -> Result<Auth, Box<Response>> {
    let place = connection
        .place(&hub.ops.home().dir)
        .map_err(|error| error.response())?;
    let text = |name: &str| given.get(name).and_then(|value| value.to_str().ok());
    match place {
        Place::Outside => outside(given).map(|who| Auth { who, attempt: None }),
        Place::Supervisor { run_id, attempt } => {
            let claimed = text(headers::ATTEMPT).and_then(AttemptId::parse);
            let token = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
            let lives_under = AttemptId::parse(&format!("{run_id}/{attempt}"));
            let (Some(claimed), Some(token)) = (claimed, token) else {
                return Err(refusal_response(
                    codes::NOT_ALLOWED,
                    "a supervisor must present its attempt and its token",
                    None,
                ));
            };
            let shown = if lives_under == Some(claimed) {
                connection.is_genuine(hub, claimed, token)
            } else {
                Ok(false)
            };
            if !shown.map_err(|error| error_response(&error))? {
                return Err(refusal_response(
                    codes::NOT_ALLOWED,
                    "not the supervisor of that attempt",
                    None,
                ));
            }
            Ok(Auth {
                who: Principal::Run(claimed.run),
                attempt: Some(claimed),
            })
        }
        Place::Attempt { run_id, attempt } => {
            let socket = AttemptDir::new(&hub.ops.home().dir, &run_id, attempt).socket();
            let hint = format!("call {} instead", socket.display());
            let mut response = refusal_response(
                codes::USE_SUPERVISOR,
                "this process is part of a run: call its supervisor",
                Some(&hint),
            );
            if let Ok(value) = HeaderValue::from_str(&encode_name(&socket.display().to_string())) {
                response.headers_mut().insert(SUPERVISOR_HEADER, value);
            }
            Err(response)
        }
    }
}
