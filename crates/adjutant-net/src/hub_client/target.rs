//! The servers that a client can call.

use crate::config::Home;
use crate::process::Lock;
use crate::view::ErrorView;
use adjutant_core::ClientName;
use futures::future::BoxFuture;
use hyper::body::Bytes;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Makes a call: its path, body and idempotency key.
type MakeCall =
    dyn Fn(&str, Bytes, Option<&str>) -> BoxFuture<'static, Result<Bytes, ErrorView>> + Send + Sync;

/// The calls of the hub within its own process, for one principal.
#[derive(Clone)]
pub struct InProcess(Arc<MakeCall>);

impl InProcess {
    pub fn new(
        make: impl Fn(&str, Bytes, Option<&str>) -> BoxFuture<'static, Result<Bytes, ErrorView>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }

    pub(super) async fn call(
        &self,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<Bytes, ErrorView> {
        (self.0)(path, body, key).await
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

/// The server of a client, and what to do if it is not running.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// The hub, started if it is not running.
    Hub {
        home: Home,
        client: Option<ClientName>,
    },
    /// The hub, if it is running. It is never started.
    RunningHub { home: Home },
    /// A supervisor's socket. If it is gone, the run has ended.
    Worker {
        socket: PathBuf,
        token: Option<String>,
    },
    /// The hub, for a supervisor, which waits for it without a limit while its lock is there.
    Supervisor {
        home: Home,
        attempt: String,
        token: String,
        lock: Arc<Lock>,
    },
    /// The hub of this process.
    InProcess(InProcess),
}

impl Target {
    pub(super) fn socket(&self) -> PathBuf {
        match self {
            Self::Hub { home, .. } | Self::RunningHub { home } | Self::Supervisor { home, .. } => {
                home.socket()
            }
            Self::Worker { socket, .. } => socket.clone(),
            Self::InProcess(_) => unreachable!("calls in process use no socket"),
        }
    }
}
