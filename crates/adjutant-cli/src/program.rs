//! Starts the hub and the supervisor, each with its MCP server.

use crate::harness::{OwnTools, ServedTool};
use crate::hub::{self, McpServer};
use crate::hub_client::Client;
use crate::mcp::catalog::ToolRow;
use crate::mcp::{self, ConnectionNumber, Param, ParentEndpoint, Role};
use crate::supervisor::{self, WorkerTools};
use axum::body::Bytes;
use axum::http::request::Parts;
use axum::response::Response;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the hub of the environment's home until it is asked to end, or has been idle for long
/// enough.
#[must_use]
pub fn hub(args: &[OsString]) -> ExitCode {
    hub::main(args, new_mcp_server)
}

/// Runs the supervisor of an attempt.
#[must_use]
pub fn supervisor(args: &[OsString]) -> ExitCode {
    supervisor::main(
        args,
        WorkerTools {
            own: own_tools,
            router: mcp::http_router,
        },
    )
}

/// The tools of a parent, for the requests of one token.
struct ParentServer(ParentEndpoint);

impl McpServer for ParentServer {
    fn answer(&self, connection: u64, mut head: Parts, body: Bytes) -> BoxFuture<'_, Response> {
        head.extensions.insert(ConnectionNumber(connection));
        self.0.answer(head, body).boxed()
    }

    fn close_idle_sessions(&self) -> BoxFuture<'_, ()> {
        self.0.close_idle_sessions().boxed()
    }
}

fn new_mcp_server(client: Client, directory: Option<PathBuf>) -> Arc<dyn McpServer> {
    #[cfg(debug_assertions)]
    if crate::failpoint::has_conformance_fixtures() {
        return Arc::new(ParentServer(mcp::conformance_endpoint(client, directory)));
    }
    Arc::new(ParentServer(mcp::parent_endpoint(client, directory)))
}

/// Returns the names of a run's tools, in every accepted spelling.
fn own_tools() -> OwnTools {
    let spellings = |param: &Param| {
        std::iter::once(param.name)
            .chain(param.also.iter().copied())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let served = |row: &ToolRow| ServedTool {
        name: row.name.to_owned(),
        title: row.title.to_owned(),
        arguments: row.params.iter().flat_map(spellings).collect(),
    };
    OwnTools(
        mcp::catalog::tools(Role::Worker)
            .iter()
            .map(served)
            .collect(),
    )
}
