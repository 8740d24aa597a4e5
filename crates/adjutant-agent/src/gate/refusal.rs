//! Errors of the gate, in the format of the API that the agent has called, so that its CLI shows
//! them.

use super::admission::NotAdmitted;
use super::body::GateBody;
use super::endpoint::Api;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

/// Why a request to a model is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error(
        "the usage of a background response (\"background\": true) cannot be counted: request a streamed response, or one that is waited for"
    )]
    Background,
    #[error(
        "its body is compressed, so the gate cannot check it for \"background\": send it uncompressed"
    )]
    Encoded,
    #[error("the run is ending")]
    RunEnds,
    #[error("its budget is used up")]
    BudgetUsedUp,
    /// The hub refuses it, for this reason.
    #[error("{0}")]
    ByHub(String),
}

/// An error of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GateRefusal {
    WrongHost,
    WrongToken,
    /// The gate does not forward requests to this endpoint.
    UnsupportedEndpoint,
    Denied(Denial),
    /// The API cannot be reached, or its response is invalid.
    Upstream(String),
}

impl From<NotAdmitted> for GateRefusal {
    fn from(reason: NotAdmitted) -> Self {
        match reason {
            NotAdmitted::WrongHost => Self::WrongHost,
            NotAdmitted::WrongToken => Self::WrongToken,
        }
    }
}

impl GateRefusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::WrongHost => StatusCode::FORBIDDEN,
            Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::UnsupportedEndpoint => StatusCode::NOT_FOUND,
            // No CLI retries after this status.
            Self::Denied(_) => StatusCode::BAD_REQUEST,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::WrongHost => "Adjutant's gate: wrong host".to_owned(),
            Self::WrongToken => {
                "Adjutant's gate: the token of the run's attempt is required".to_owned()
            }
            Self::UnsupportedEndpoint => {
                "Adjutant's gate forwards requests to models only, not to this endpoint".to_owned()
            }
            Self::Denied(why) => format!("Adjutant refused this request: {why}"),
            Self::Upstream(why) => format!("Adjutant's gate: {why}"),
        }
    }

    /// Returns the response in an API's format.
    pub(super) fn response(&self, api: Api) -> Response<GateBody> {
        let (status, message) = (self.status(), self.message());
        let body = match api {
            Api::Anthropic => {
                json!({ "type": "error", "error": { "type": self.anthropic_type(), "message": message } })
            }
            Api::OpenAi => {
                json!({ "error": { "message": message, "type": self.openai_type(), "code": self.openai_code(), "param": null } })
            }
            Api::Gemini => {
                json!({ "error": { "code": status.as_u16(), "message": message, "status": self.gemini_status() } })
            }
        };
        let mut response = Response::new(GateBody::whole(body.to_string()));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self, Self::WrongHost | Self::WrongToken) {
            // Never sent to the agent: the connection is closed.
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if status.is_client_error() {
            // Understood by the SDKs of Anthropic and OpenAI.
            response
                .headers_mut()
                .insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }

    fn anthropic_type(&self) -> &'static str {
        match self {
            Self::WrongHost => "permission_error",
            Self::WrongToken => "authentication_error",
            Self::UnsupportedEndpoint => "not_found_error",
            Self::Denied(_) => "invalid_request_error",
            Self::Upstream(_) => "api_error",
        }
    }

    fn openai_type(&self) -> &'static str {
        if let Self::Upstream(_) = self {
            "server_error"
        } else {
            "invalid_request_error"
        }
    }

    fn openai_code(&self) -> &'static str {
        match self {
            Self::WrongHost => "wrong_host",
            Self::WrongToken => "invalid_api_key",
            Self::UnsupportedEndpoint => "not_found",
            Self::Denied(_) => "refused_by_adjutant",
            Self::Upstream(_) => "bad_gateway",
        }
    }

    fn gemini_status(&self) -> &'static str {
        match self {
            Self::WrongHost => "PERMISSION_DENIED",
            Self::WrongToken => "UNAUTHENTICATED",
            Self::UnsupportedEndpoint => "NOT_FOUND",
            Self::Denied(_) => "FAILED_PRECONDITION",
            Self::Upstream(_) => "UNAVAILABLE",
        }
    }
}
