//! Errors of the gate, in the form of the API that the agent has called, so that its CLI shows them.

use super::body::GateBody;
use super::endpoint::Api;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

/// An error of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    WrongHost,
    WrongToken,
    /// The endpoint is not one that the gate carries.
    NotCarried,
    /// The request may not begin, for this reason.
    MayNotBegin(String),
    /// The API could not be reached, or has not answered properly.
    Upstream(String),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::WrongHost => StatusCode::FORBIDDEN,
            Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::NotCarried => StatusCode::NOT_FOUND,
            // No CLI repeats a request that was bad.
            Self::MayNotBegin(_) => StatusCode::BAD_REQUEST,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::WrongHost => "Adjutant's gate: wrong host".to_owned(),
            Self::WrongToken => "Adjutant's gate: the token of the run's attempt is required".to_owned(),
            Self::NotCarried => "Adjutant's gate passes on requests to models only, not to this endpoint".to_owned(),
            Self::MayNotBegin(why) => format!("Adjutant refused this request: {why}"),
            Self::Upstream(why) => format!("Adjutant's gate: {why}"),
        }
    }

    /// Returns the response in an API's form.
    pub(super) fn response(&self, api: Api) -> Response<GateBody> {
        let (status, message) = (self.status(), self.message());
        let body = match api {
            Api::Anthropic => json!({ "type": "error", "error": { "type": self.anthropic_type(), "message": message } }),
            Api::OpenAi => json!({ "error": { "message": message, "type": self.openai_type(), "code": self.openai_code(), "param": null } }),
            Api::Gemini => json!({ "error": { "code": status.as_u16(), "message": message, "status": self.gemini_status() } }),
        };
        let mut response = Response::new(GateBody::whole(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self, Self::WrongHost | Self::WrongToken) {
            // Not the agent: it holds no connection.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if status.is_client_error() {
            // Understood by the SDKs of Anthropic and OpenAI.
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }

    fn anthropic_type(&self) -> &'static str {
        match self {
            Self::WrongHost => "permission_error",
            Self::WrongToken => "authentication_error",
            Self::NotCarried => "not_found_error",
            Self::MayNotBegin(_) => "invalid_request_error",
            Self::Upstream(_) => "api_error",
        }
    }

    fn openai_type(&self) -> &'static str {
        if let Self::Upstream(_) = self { "server_error" } else { "invalid_request_error" }
    }

    fn openai_code(&self) -> &'static str {
        match self {
            Self::WrongHost => "wrong_host",
            Self::WrongToken => "invalid_api_key",
            Self::NotCarried => "not_found",
            Self::MayNotBegin(_) => "refused_by_adjutant",
            Self::Upstream(_) => "bad_gateway",
        }
    }

    fn gemini_status(&self) -> &'static str {
        match self {
            Self::WrongHost => "PERMISSION_DENIED",
            Self::WrongToken => "UNAUTHENTICATED",
            Self::NotCarried => "NOT_FOUND",
            Self::MayNotBegin(_) => "FAILED_PRECONDITION",
            Self::Upstream(_) => "UNAVAILABLE",
        }
    }
}
