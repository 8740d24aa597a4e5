//! Permissions and answers for which an agent waits. Each is requested once, and withdrawn and
//! requested again when its call changes. An approval of an earlier version allows nothing.

use super::approve;
use crate::harness::step::{ChangedCall, Decision, Elicitation, Permission};
use crate::hub_client::Client;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(crate) struct Permits {
    /// Takes the requests to the run's parent.
    client: Client,
    /// The run's profile.
    permissions: String,
    /// The run's directory.
    cwd: PathBuf,
    /// By the dialogue's id.
    open: BTreeMap<String, OpenPermit>,
    deciding: JoinSet<DecidedPermit>,
    /// Cancelled when a withdrawal, or a report to the parent, is over.
    settling: Vec<CancellationToken>,
    /// The number of requests so far.
    count: u64,
}

#[derive(Debug)]
struct OpenPermit {
    number: u64,
    withdrawn: CancellationToken,
    /// Cancelled when the request can no longer be answered.
    over: CancellationToken,
}

#[derive(Debug)]
struct DecidedPermit {
    id: String,
    number: u64,
    outcome: Option<PermitOutcome>,
}

/// The outcome of a request of the agent.
#[derive(Debug)]
pub(crate) enum PermitOutcome {
    Decision(Decision),
    /// The answers to its questions, in their order. `None`: there is no answer.
    Answers(Option<Vec<String>>),
}

impl Permits {
    pub(super) fn new(client: Client, permissions: String, cwd: PathBuf) -> Self {
        Self {
            client,
            permissions,
            cwd,
            open: BTreeMap::new(),
            deciding: JoinSet::new(),
            settling: Vec::new(),
            count: 0,
        }
    }

    /// Decides what needs no approval. `None`: it has to be requested.
    pub(super) fn decide_at_once(&self, permission: &Permission) -> Option<Decision> {
        approve::at_once(permission, &self.permissions, &self.cwd)
    }

    /// Requests a permission. An open request with the same id is withdrawn first.
    pub(super) fn ask(&mut self, permission: Permission) {
        let id = permission.id.clone();
        let (client, cwd) = (self.client.clone(), self.cwd.clone());
        self.open(id, move |withdrawn| async move {
            approve::ask(client, permission, &cwd, withdrawn)
                .await
                .map(PermitOutcome::Decision)
        });
    }

    /// Asks questions. An open request with the same id is withdrawn first.
    pub(super) fn elicit(&mut self, elicitation: Elicitation) {
        let Elicitation { id, questions } = elicitation;
        let client = self.client.clone();
        self.open(id, move |withdrawn| async move {
            approve::elicit(client, questions, withdrawn)
                .await
                .map(PermitOutcome::Answers)
        });
    }

    fn open<F: Future<Output = Option<PermitOutcome>> + Send + 'static>(
        &mut self,
        id: String,
        ask: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) {
        let before = self.withdraw(&id);
        self.count += 1;
        let number = self.count;
        let (withdrawn, over) = (CancellationToken::new(), CancellationToken::new());
        self.open.insert(
            id.clone(),
            OpenPermit {
                number,
                withdrawn: withdrawn.clone(),
                over: over.clone(),
            },
        );
        self.deciding.spawn(async move {
            let _over = over.drop_guard();
            if let Some(before) = before {
                before.cancelled().await;
            }
            let outcome = ask(withdrawn).await;
            DecidedPermit {
                id,
                number,
                outcome,
            }
        });
    }

    /// Withdraws an open request. The returned token is cancelled when the request can no longer be
    /// answered.
    pub(super) fn withdraw(&mut self, id: &str) -> Option<CancellationToken> {
        let OpenPermit {
            withdrawn, over, ..
        } = self.open.remove(id)?;
        withdrawn.cancel();
        self.settle_later(over.clone());
        Some(over)
    }

    fn settle_later(&mut self, over: CancellationToken) {
        self.settling.retain(|over| !over.is_cancelled());
        self.settling.push(over);
    }

    /// Waits until the hub has every withdrawal and report: one that comes after the agent's end is
    /// not accepted.
    pub(super) async fn settle(&mut self) {
        for over in self.settling.drain(..) {
            over.cancelled().await;
        }
    }

    /// Reports to the parent that a call changed after it was allowed.
    pub(crate) fn report_change(&mut self, changed: ChangedCall) {
        let client = self.client.clone();
        let over = CancellationToken::new();
        self.settle_later(over.clone());
        self.deciding.spawn(async move {
            let _over = over.drop_guard();
            approve::report_change(client, changed).await;
            DecidedPermit {
                id: String::new(),
                number: 0,
                outcome: None,
            }
        });
    }

    /// Waits for the next decision about an open request. `None`: no request is open. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<(String, PermitOutcome)> {
        loop {
            let DecidedPermit {
                id,
                number,
                outcome,
            } = match self.deciding.join_next().await? {
                Ok(decided) => decided,
                Err(error) => {
                    tracing::debug!(%error, "the request of a permission was aborted");
                    continue;
                }
            };
            if let Some(outcome) = outcome
                && self.open.get(&id).is_some_and(|open| open.number == number)
            {
                self.open.remove(&id);
                return Some((id, outcome));
            }
        }
    }

    /// Aborts all requests.
    pub(super) fn stop(&mut self) {
        self.open.clear();
        self.deciding.abort_all();
    }
}
