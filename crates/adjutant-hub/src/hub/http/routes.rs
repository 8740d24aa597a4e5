//! The table of the paths over TCP, with what each needs. Nothing else is served there.
//!
//! [`Serve`] says what is checked before the function of a route runs, and gives it what the check
//! has found, so that no route can be served without its check. For a token of another role, a path
//! looks like one that is not in the table; only `/hub`, whose token is checked first, does not.

use super::asked::{Answer, Asked};
use super::{Http, answer, contract, dashboard, events, hubs, mcp, openapi, peers, runners};
use crate::ops::{LINK_PATH, RunnerSession, TokenAccess};
use crate::protocol::RUNNER_RELAY;
use crate::protocol::peer::{ListShared, PeerCall, PostShared, ReadShared};
use adjutant_core::Principal;
use adjutant_core::token::{CallEffect, TokenRole};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;

/// What a route needs, and the function that serves it.
#[derive(Clone, Copy)]
pub(super) enum Serve {
    /// Nothing: the reply contains no data.
    Open(fn(&Parts) -> Response),
    /// A code, of a sign-in or a link, from a process outside of all runs. The function checks both,
    /// the code first: a wrong one costs no lookup of the process.
    WithCode(fn(Asked) -> Answer),
    /// The token of another hub with the same store.
    ToHub(fn(Asked) -> Answer),
    /// The token of a page that has signed in.
    ToPage(fn(Asked, TokenAccess) -> Answer),
    /// A token of the role runner.
    ToRunner(fn(Asked, TokenAccess) -> Answer),
    /// The same, and the session in which the runner has joined.
    InSession(fn(Asked, TokenAccess, RunnerSession) -> Answer),
    /// A token of the role peer.
    ToPeer(fn(Asked, TokenAccess) -> Answer),
    /// A token whose bearer acts as the person or a client.
    ToCaller(fn(Asked, TokenAccess, Principal) -> Answer),
}

impl Serve {
    /// Returns whether a token is one for this route.
    pub(super) fn is_for(self, access: &TokenAccess) -> bool {
        match self {
            Self::Open(_) | Self::WithCode(_) | Self::ToHub(_) => false,
            Self::ToPage(_) => access.is_browser,
            Self::ToRunner(_) | Self::InSession(_) => access.identity.role() == TokenRole::Runner,
            Self::ToPeer(_) => access.identity.role() == TokenRole::Peer,
            Self::ToCaller(_) => access.identity.principal().is_some(),
        }
    }

    /// Returns whether the route has no token, so that it exists only with its methods: for another
    /// one, the path is as unknown as any.
    fn is_without_token(self) -> bool {
        matches!(self, Self::Open(_) | Self::WithCode(_))
    }
}

/// The paths of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Is(&'static str),
    /// This path, a slash and more.
    Below(&'static str),
    /// A file of the dashboard.
    File,
    /// A link to a request, which exists only with a public URL.
    Link,
    /// A call of the contract that is served over HTTP.
    Call,
}

/// One row.
pub(super) struct Route {
    path: Path,
    /// As in the header `Allow`. [`ANY`]: the function decides.
    pub(super) methods: &'static str,
    pub(super) serve: Serve,
}

const ANY: &str = "*";

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent)
        .is_some_and(|rest| rest.starts_with('/'))
}

impl Route {
    fn has(&self, http: &Http, path: &str) -> bool {
        match self.path {
            Path::Is(own) => own == path,
            Path::Below(parent) => is_below(path, parent),
            Path::File => dashboard::has_file(path),
            Path::Link => http.names.has_public_url() && path.starts_with(LINK_PATH),
            Path::Call => http
                .calls
                .find(path)
                .is_some_and(|call| call.effect != CallEffect::LocalOnly),
        }
    }

    /// Returns whether the route is for a method.
    pub(super) fn allows(&self, method: &Method) -> bool {
        self.methods == ANY || self.methods.split(", ").any(|own| own == method.as_str())
    }
}

/// The path of the event stream; `POST` is the call of that name.
const EVENTS: &str = "/api/v1/events";

/// Every route. The first one that has a path counts.
const ROUTES: &[Route] = &[
    // Clients look for OAuth metadata here. A 401 would make them repeat the search.
    route(
        Path::Below("/.well-known"),
        ANY,
        Serve::Open(dashboard::no_metadata),
    ),
    route(Path::File, "GET, HEAD", Serve::Open(dashboard::file)),
    route(
        Path::Is("/sign-in"),
        "POST",
        Serve::WithCode(dashboard::sign_in),
    ),
    route(Path::Link, ANY, Serve::WithCode(answer::follow)),
    route(
        Path::Is("/sign-in/tab"),
        "POST",
        Serve::ToPage(dashboard::permit_tab),
    ),
    route(
        Path::Is("/sign-out"),
        "POST",
        Serve::ToPage(dashboard::sign_out),
    ),
    route(
        Path::Is(EVENTS),
        "GET, POST",
        Serve::ToCaller(|asked, access, who| {
            if asked.head.method == Method::GET {
                events::stream(asked, who)
            } else {
                contract::call(asked, access, who)
            }
        }),
    ),
    route(
        Path::Is(openapi::PATH),
        "GET",
        Serve::ToCaller(|_, _, _| openapi::description()),
    ),
    route(
        Path::Is("/mcp"),
        ANY,
        Serve::ToCaller(|asked, access, _| mcp::handle(asked, access)),
    ),
    route(Path::Call, "POST", Serve::ToCaller(contract::call)),
    // A standby hub passes on the calls of its own callers.
    route(Path::Below("/hub"), ANY, Serve::ToHub(hubs::serve)),
    of_peers(ListShared::PATH, peers::list),
    of_peers(ReadShared::PATH, peers::read_entries),
    of_peers(PostShared::PATH, peers::post),
    route(
        Path::Is("/runner/join"),
        "POST",
        Serve::ToRunner(runners::join),
    ),
    in_session("/runner/work", runners::work),
    in_session("/runner/facts", runners::left_facts),
    in_session("/runner/supervisor-facts", runners::supervisor_facts),
    in_session("/runner/ended", runners::ended),
    in_session("/runner/repository", runners::repository),
    in_session("/runner/refs", runners::refs),
    in_session("/runner/snapshots", runners::accept_work),
    in_session("/runner/log", runners::log_part),
    in_session("/runner/log-files", runners::log_files),
    in_session("/runner/log-bytes", runners::log_bytes),
    in_session("/runner/removed", runners::removed),
    // The calls of supervisors and workers on that machine.
    route(
        Path::Below(RUNNER_RELAY),
        "POST",
        Serve::InSession(runners::relay),
    ),
];

const fn route(path: Path, methods: &'static str, serve: Serve) -> Route {
    Route {
        path,
        methods,
        serve,
    }
}

const fn of_peers(path: &'static str, serve: fn(Asked, TokenAccess) -> Answer) -> Route {
    route(Path::Is(path), "POST", Serve::ToPeer(serve))
}

const fn in_session(
    path: &'static str,
    serve: fn(Asked, TokenAccess, RunnerSession) -> Answer,
) -> Route {
    route(Path::Is(path), "POST", Serve::InSession(serve))
}

/// Returns the route of a request.
pub(super) fn find(http: &Http, head: &Parts) -> Option<&'static Route> {
    ROUTES
        .iter()
        .find(|route| route.has(http, head.uri.path()))
        .filter(|route| !route.serve.is_without_token() || route.allows(&head.method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_hides_another() {
        for (at, route) in ROUTES.iter().enumerate() {
            let (Path::Is(own) | Path::Below(own)) = route.path else {
                continue;
            };
            for earlier in &ROUTES[..at] {
                let hides = match earlier.path {
                    Path::Is(other) => own == other,
                    Path::Below(other) => own == other || is_below(own, other),
                    Path::File => dashboard::has_file(own),
                    Path::Link => own.starts_with(LINK_PATH),
                    Path::Call => false,
                };
                assert!(!hides, "{own} is hidden by {:?}", earlier.path);
            }
        }
    }

    #[test]
    fn only_files_and_codes_need_no_token() {
        let without: Vec<Path> = ROUTES
            .iter()
            .filter(|route| route.serve.is_without_token())
            .map(|route| route.path)
            .collect();
        let known = [
            Path::Below("/.well-known"),
            Path::File,
            Path::Is("/sign-in"),
            Path::Link,
        ];
        assert_eq!(without, known);
    }
}
