//! One connection for many calls at the same time (HTTP/2), which a task drives.

use super::error::CallError;
use super::reply::{Body, HubReply, read_reply};
use crate::connection_tasks::ConnectionTasks;
use crate::http_client::AnyStream;
use futures::FutureExt;
use http::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::sync::Arc;

/// Number of calls that are sent before the hub has said how many it accepts at the same time.
const FIRST_CALLS_MAX: usize = 100;

/// An open connection. Dropping the last clone closes it.
#[derive(Clone)]
pub(super) struct SharedConnection {
    sender: SendRequest<Body>,
    /// Ends the connection when it is dropped.
    tasks: Arc<ConnectionTasks>,
}

impl SharedConnection {
    pub(super) async fn open(stream: AnyStream) -> Result<Self, CallError> {
        let tasks = Arc::new(ConnectionTasks::default());
        let mut builder = http2::Builder::new(tasks.spawner());
        builder.initial_max_send_streams(FIRST_CALLS_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tasks.spawn(connection.map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, "the connection to the hub broke");
            }
        }));
        Ok(Self { sender, tasks })
    }

    /// Returns whether the connection can no longer be used for a call.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tasks, &other.tasks)
    }

    /// Makes a call.
    pub(super) async fn call(&mut self, request: Request<Body>) -> Result<HubReply, CallError> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        read_reply(response, None).await
    }
}
