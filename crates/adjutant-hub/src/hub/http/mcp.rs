//! `/mcp`: the tools of a parent, for tokens with a client. The tools make their calls in this
//! process, as that client.

use super::asked::{Answer, Asked};
use super::{Http, problem};
use crate::hub::Shared;
use crate::hub::auth::Auth;
use crate::hub::router::read_body;
use crate::hub_client::{Client, InProcess};
use crate::ops::{TokenAccess, Tokens};
use crate::protocol::headers;
use crate::view::{ErrorView, codes};
use adjutant_core::token::TokenRole;
use adjutant_core::{ClientName, Principal};
use axum::body::{Bytes, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// An MCP server for one token. The program gives it to the hub, which contains none.
pub trait McpServer: Send + Sync {
    /// Answers a request, which has arrived on the connection of this number.
    fn answer(&self, connection: u64, head: Parts, body: Bytes) -> BoxFuture<'_, Response>;

    /// Closes the sessions that have been unused for an hour.
    fn close_idle_sessions(&self) -> BoxFuture<'_, ()>;
}

/// Makes a server whose tools make their calls with a client. The path is the directory in which
/// its runs work; without one, each run names its own.
pub(crate) type NewMcpServer = fn(Client, Option<PathBuf>) -> Arc<dyn McpServer>;

/// The server of each used token. A server has the sessions of its client, and remembers what it
/// has shown to it; losing it is harmless.
#[derive(Default)]
pub(super) struct Servers(Mutex<HashMap<i64, Arc<dyn McpServer>>>);

impl Servers {
    fn of(&self, http: &Http, token: i64, client: &ClientName) -> Arc<dyn McpServer> {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers
            .entry(token)
            .or_insert_with(|| server(http, client))
            .clone()
    }

    /// Drops the servers of revoked tokens, which ends their sessions with their calls and
    /// subscriptions. The number of valid tokens is limited, so that of servers is too.
    pub(super) fn drop_revoked(&self, hub: &Shared) {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|token, _| {
            Tokens::of(&hub.ops)
                .is_in_use(*token)
                .unwrap_or_else(|error| {
                    tracing::error!(%error, "cannot check a token, whose sessions end");
                    false
                })
        });
    }

    /// Closes the sessions that have been unused for too long.
    pub(super) async fn close_idle_sessions(&self) {
        let servers: Vec<Arc<dyn McpServer>> = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        for server in servers {
            server.close_idle_sessions().await;
        }
    }
}

/// Answers a request to `/mcp`.
pub(super) fn handle(asked: Asked, access: TokenAccess) -> Answer {
    Box::pin(async move {
        let Some(client) = access
            .identity
            .client()
            .filter(|_| access.identity.role() == TokenRole::Client)
        else {
            return problem::refusal(
                StatusCode::FORBIDDEN,
                codes::NOT_ALLOWED,
                "MCP is for tokens of the role client",
                "adj token new NAME --client PROJECT makes one",
            );
        };
        let Ok(body) = read_body(asked.body).await else {
            return problem::too_large();
        };
        let server = asked.http.servers.of(&asked.http, access.id, client);
        server.answer(asked.caller.number, asked.head, body).await
    })
}

fn server(http: &Http, client: &ClientName) -> Arc<dyn McpServer> {
    let (hub, calls, who) = (
        http.hub.clone(),
        Arc::clone(&http.calls),
        Principal::Client(client.clone()),
    );
    let in_process = InProcess::new(move |path, body, key| {
        let (hub, calls, auth) = (
            hub.clone(),
            Arc::clone(&calls),
            Auth {
                who: who.clone(),
                attempt: None,
            },
        );
        let (path, key) = (path.to_owned(), key.map(str::to_owned));
        Box::pin(async move {
            let mut given = HeaderMap::new();
            if let Some(key) = key {
                given.insert(
                    headers::KEY,
                    HeaderValue::from_str(&key).map_err(|_| internal("the key is not a header"))?,
                );
            }
            let call = calls
                .find(&path)
                .ok_or_else(|| internal("there is no such call"))?;
            let reply = (call.serve)(hub, auth, &given, &body).await;
            let is_success = reply.status().is_success();
            let bytes: Bytes = to_bytes(reply.into_body(), usize::MAX)
                .await
                .map_err(|error| internal(&error.to_string()))?;
            if is_success {
                Ok(bytes)
            } else {
                Err(serde_json::from_slice(&bytes)
                    .unwrap_or_else(|_| internal("the error is unreadable")))
            }
        })
    });
    // A client that is a project works there.
    let directory = Some(Path::new(client.as_str()))
        .filter(|path| path.is_absolute() && path.is_dir())
        .map(Path::to_owned);
    (http.hub.new_mcp_server)(Client::in_process(in_process), directory)
}

fn internal(message: &str) -> ErrorView {
    ErrorView {
        code: codes::INTERNAL.to_owned(),
        message: message.to_owned(),
        hint: None,
    }
}
