//! The state that the tools of one connection share: the connection to the hub, the role, and what
//! the client was shown. It may be lost with the process without harm.

use super::caps::CallCap;
use super::labels::LabelCursors;
use super::refusal::ToolRefusal;
use super::text::quoted;
use crate::hub_client::Client;
use crate::view::{ConfirmNotified, GetRun, ListRuns, MessageView, RequestView, codes};
use adjutant_core::Denied;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// How long determining the role may take before a worker is assumed.
const ROLE_WAIT: Duration = Duration::from_secs(5);
/// Maximum number of requests whose first check, or whose decline, is remembered. The oldest is
/// dropped first.
const CHECKS_MAX: usize = 1_024;
/// Maximum number of results that wait for their confirmation. The oldest is dropped first.
const SHOWN_MAX: usize = 256;

/// The role whose tools are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An agent that delegates tasks.
    Parent,
    /// An agent that works on a delegated task.
    Worker,
}

impl Role {
    /// Returns the other role.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Parent => Self::Worker,
            Self::Worker => Self::Parent,
        }
    }
}

/// The tools of another server, with supervised runs behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facade {
    /// The agent whose runs it starts.
    pub agent: String,
}

/// How a server is set up.
#[derive(Debug)]
pub struct Setup {
    pub client: Client,
    /// `None`: a worker if the hub identifies this process as part of a run, else a parent.
    pub role: Option<Role>,
    /// Also lists the aliases, and the original protocol's names of arguments and results.
    pub compat: bool,
    /// Serves these tools instead of a parent's.
    pub facade: Option<Facade>,
    pub cap: CallCap,
    /// The default working directory of a parent's runs.
    pub directory: PathBuf,
    /// Cancelled when the connection's input has ended.
    pub input_ended: CancellationToken,
}

/// The number of a connection over HTTP. The server that receives it passes it on with the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionNumber(pub u64);

/// Marks a request over HTTP that belongs to a session of the protocol: the server can send
/// requests and later messages to the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct InSession;

/// A result that showed stops and ends. The next call on its connection, or one that passes its
/// cursor, proves that the client received it.
#[derive(Debug)]
struct ShownResult {
    /// `None`: standard input and output.
    connection: Option<ConnectionNumber>,
    cursor: Option<i64>,
    confirmation: ConfirmNotified,
}

/// The session of one connection (stdio) or endpoint (HTTP). Cheap to clone.
#[derive(Debug, Clone)]
pub struct McpSession(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    setup: Setup,
    role: OnceCell<Role>,
    /// When each request was first checked for an answer, by id. A lock instead of an owner task,
    /// because calls share nothing else and hold it for a few instructions.
    checks: Mutex<HashMap<String, Instant>>,
    /// The requests about which the client's person does not want to be asked, the oldest first.
    declined: Mutex<VecDeque<String>>,
    /// The last change of each chat that was shown.
    changes: Mutex<HashMap<i64, i64>>,
    /// How far the client's agents, which share the connection, have read.
    labels: Mutex<LabelCursors>,
    /// The id and name of a worker's run, once queried from the hub.
    own_names: OnceCell<[String; 2]>,
    /// Stops and ends in earlier results that are not confirmed yet, the oldest first.
    shown: Mutex<VecDeque<ShownResult>>,
}

impl McpSession {
    /// Creates a session.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let role = OnceCell::new_with(setup.role);
        Self(Arc::new(Inner {
            setup,
            role,
            checks: Mutex::default(),
            declined: Mutex::default(),
            changes: Mutex::default(),
            labels: Mutex::default(),
            own_names: OnceCell::new(),
            shown: Mutex::default(),
        }))
    }

    /// Returns the client of the hub.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.setup.client
    }

    /// Returns the other server whose tools are served.
    #[must_use]
    pub fn facade(&self) -> Option<&Facade> {
        self.0.setup.facade.as_ref()
    }

    /// Returns whether the client's person declined to answer a request.
    pub(super) fn was_declined(&self, message_id: &str) -> bool {
        self.0
            .declined
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(|declined| declined == message_id)
    }

    /// Returns the ids of those requests that the client's person declined to answer.
    pub(super) fn declined_of(&self, requests: &[RequestView]) -> Vec<String> {
        requests
            .iter()
            .filter(|request| self.was_declined(&request.message_id))
            .map(|request| request.message_id.clone())
            .collect()
    }

    /// Records that the client's person declined to answer a request.
    pub(super) fn note_declined(&self, message_id: &str) {
        let mut declined = self
            .0
            .declined
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if declined.len() >= CHECKS_MAX {
            declined.pop_front();
        }
        declined.push_back(message_id.to_owned());
    }

    /// Returns the last change of a chat that was shown.
    pub(super) fn changes_shown(&self, chat: i64) -> Option<i64> {
        self.0
            .changes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&chat)
            .copied()
    }

    /// Records the last change of a chat that was shown.
    pub(super) fn note_changes(&self, chat: i64, changes: i64) {
        self.0
            .changes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(chat, changes);
    }

    /// Returns how far the labels of the client have read.
    pub(super) fn labels(&self) -> MutexGuard<'_, LabelCursors> {
        self.0.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the stops and ends that the result of the current call shows, and its cursor. If the
    /// client never proves that it received them, it is notified again.
    pub(super) fn note_shown(
        &self,
        connection: Option<ConnectionNumber>,
        cursor: Option<i64>,
        confirmation: ConfirmNotified,
    ) {
        if !confirmation.is_empty() {
            let mut shown = self.shown();
            if shown.len() >= SHOWN_MAX {
                shown.pop_front();
            }
            shown.push_back(ShownResult {
                connection,
                cursor,
                confirmation,
            });
        }
    }

    /// Confirms to the hub what earlier results on this connection showed: its next call has
    /// arrived.
    pub(super) async fn confirm_shown(&self, connection: Option<ConnectionNumber>) {
        self.confirm(|shown| shown.connection == connection).await;
    }

    /// Confirms what the result with this cursor showed, whichever connection it was sent on.
    pub(super) async fn confirm_cursor(&self, cursor: i64) {
        self.confirm(|shown| shown.cursor == Some(cursor)).await;
    }

    async fn confirm(&self, is_received: impl Fn(&ShownResult) -> bool) {
        let received: VecDeque<ShownResult> = {
            let mut shown = self.shown();
            let (received, left) = shown.drain(..).partition(is_received);
            *shown = left;
            received
        };
        for shown in received {
            if let Err(error) = self.client().call(&shown.confirmation).await {
                tracing::warn!(%error, "cannot confirm what the client was shown");
                self.shown().push_back(shown);
            }
        }
    }

    fn shown(&self) -> MutexGuard<'_, VecDeque<ShownResult>> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cap(&self) -> CallCap {
        self.0.setup.cap
    }

    pub(super) fn compat(&self) -> bool {
        self.0.setup.compat
    }

    /// Returns the directory as a string.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub(super) fn directory_text(&self) -> Result<String, ToolRefusal> {
        let directory = self.directory();
        let refused = || {
            let shown = quoted(&directory.to_string_lossy(), 200);
            ToolRefusal::invalid(
                format!("{shown} is not UTF-8"),
                "start adj mcp in a directory with a UTF-8 name",
            )
        };
        directory.to_str().map(str::to_owned).ok_or_else(refused)
    }

    pub(super) fn directory(&self) -> &PathBuf {
        &self.0.setup.directory
    }

    pub(super) fn input_ended(&self) -> &CancellationToken {
        &self.0.setup.input_ended
    }

    /// Returns the role, asking the hub if it is not known yet.
    pub(super) async fn role(&self) -> Role {
        *self.0.role.get_or_init(|| self.resolve_role()).await
    }

    /// Determines the role from the hub: a parent may list runs, a run may not. If the hub does not
    /// answer in time, the role is worker, which has fewer tools.
    async fn resolve_role(&self) -> Role {
        let look = ListRuns {
            all: false,
            limit: Some(1),
            before: None,
        };
        match tokio::time::timeout(ROLE_WAIT, self.client().call(&look)).await {
            Ok(Ok(_)) => Role::Parent,
            Ok(Err(_)) | Err(_) => Role::Worker,
        }
    }

    /// Returns the role, or parent if it is not known yet.
    pub(super) fn known_role(&self) -> Role {
        self.0.role.get().copied().unwrap_or(Role::Parent)
    }

    /// Returns when a request was first checked for an answer. A first check is recorded now.
    pub(super) fn first_check(&self, message_id: &str) -> Instant {
        let mut checks = self.checks();
        if checks.len() >= CHECKS_MAX && !checks.contains_key(message_id) {
            let oldest = checks
                .iter()
                .min_by_key(|(_, at)| **at)
                .map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                checks.remove(&oldest);
            }
        }
        *checks
            .entry(message_id.to_owned())
            .or_insert_with(Instant::now)
    }

    /// Forgets the first check, so that the next one starts a new wait.
    pub(super) fn forget_check(&self, message_id: &str) {
        self.checks().remove(message_id);
    }

    fn checks(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the run that a worker names is its own. Returns messages that this check
    /// delivered, which must be part of the result.
    pub(super) async fn check_own_run(
        &self,
        run: Option<&str>,
    ) -> Result<Vec<MessageView>, ToolRefusal> {
        let Some(run) = run else {
            return Ok(Vec::new());
        };
        let mut messages = Vec::new();
        if self.0.own_names.get().is_none() {
            let own = self.client().call(&GetRun::default()).await?;
            messages = own.requests.messages;
            // A concurrent call has set the same.
            self.0
                .own_names
                .get_or_init(|| async { [own.identity.run_id, own.identity.name] })
                .await;
        }
        if self
            .0
            .own_names
            .get()
            .is_some_and(|own| own.iter().any(|name| name == run))
        {
            return Ok(messages);
        }
        let message = Denied::not_found("run", run).to_string();
        Err(ToolRefusal::new(
            codes::NOT_FOUND,
            message,
            "omit run_id: a run can only act for itself",
        ))
    }
}
