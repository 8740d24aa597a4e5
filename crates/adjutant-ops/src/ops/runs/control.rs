//! Cancelling and pausing runs, sending them messages, moving them to another client.

use crate::clock;
use crate::config::Home;
use crate::ops::caller::name_of;
use crate::ops::checks::check_size;
use crate::ops::credentials::{credentials_for, resolve_credentials};
use crate::ops::runs::resume::resume_stopped;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, Ops, ledger, lookup, random, render};
use crate::store::Store;
use crate::view::{Adopt, Cancel, CommentedView, MessageView, Pause, RunList, RunView, SendToRun};
use adjutant_core::{
    Action, ClientName, Denied, Principal, RequestId, RunEvent, RunId, RunState, StopReason, limits,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Cancels and pauses runs, sends them messages, and moves them.
#[derive(Debug, Clone)]
pub struct RunControl {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
}

impl RunControl {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
        }
    }

    /// Cancels a run.
    ///
    /// # Errors
    /// Unknown, foreign or finished.
    pub async fn cancel(&self, caller: Caller, call: Cancel) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Cancel)?;
        check_size(
            "reason",
            call.reason.as_deref().unwrap_or(""),
            limits::TEXT_BYTES_MAX,
        )?;
        let (home, retention) = (self.home.clone(), self.settings.retention());
        caller
            .write_using_reserved_space(&self.store, move |tx, who| {
                let run = lookup::run(tx.connection(), who, Action::Cancel, &call.run)?;
                if let Some(reason) = &call.reason {
                    tx.set_detail(run.id, reason)?;
                }
                let text = call.reason.as_deref().unwrap_or("");
                let run = tx.advance(
                    &run,
                    RunEvent::StopAsked(StopReason::Cancelled),
                    retention,
                    &who.to_string(),
                    text,
                )?;
                tx.cancel_below(run.id, retention, &who.to_string())?;
                render::run(tx.connection(), &home, &run)
            })
            .await
    }

    /// Stops a run's attempt so that it can be resumed later.
    ///
    /// # Errors
    /// Unknown, foreign, finished or stopped already.
    pub async fn pause(&self, caller: Caller, call: Pause) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Pause)?;
        let (home, retention) = (self.home.clone(), self.settings.retention());
        caller
            .write_using_reserved_space(&self.store, move |tx, who| {
                let run = lookup::run(tx.connection(), who, Action::Pause, &call.run)?;
                let run = tx.advance(
                    &run,
                    RunEvent::StopAsked(StopReason::Paused),
                    retention,
                    &who.to_string(),
                    "",
                )?;
                render::run(tx.connection(), &home, &run)
            })
            .await
    }

    /// Queues comments for a run that has not finished, and resumes it if it is stopped and waits
    /// for no answer.
    pub(in crate::ops) async fn send_comments(
        &self,
        caller: Caller,
        run: RunId,
        text: String,
        env: BTreeMap<String, String>,
    ) -> Result<CommentedView, OpError> {
        check_size("text", &text, limits::TEXT_BYTES_MAX)?;
        let is_resumable = |state: RunState| matches!(state, RunState::Stopped { reason, .. } if reason != StopReason::Parked);
        let found = self.store.read(|connection| {
            lookup::run(connection, &caller.who, Action::Message, &run.to_string())
        })?;
        let kept = match is_resumable(found.state) {
            true => Some(
                credentials_for(
                    &self.store,
                    &self.settings,
                    &caller.who,
                    Action::Resume,
                    &run.to_string(),
                    env,
                )
                .await?,
            ),
            false => None,
        };
        let credentials = kept
            .as_ref()
            .and_then(|kept| kept.id().map(ToOwned::to_owned));
        let (id, retention, has_credentials) = (
            RequestId::new(clock::now(), random()),
            self.settings.retention(),
            kept.is_some(),
        );
        let sent = caller
            .write(&self.store, move |tx, who| {
                let run = lookup::run(tx.connection(), who, Action::Message, &run.to_string())?;
                if let RunState::Finished(outcome) = run.state {
                    return Err(Denied::RunFinished {
                        run: run.name.clone(),
                        outcome,
                    }
                    .into());
                }
                let message = tx.send_message(&run, who, id, &text)?;
                let is_resumed = has_credentials && is_resumable(run.state);
                if is_resumed {
                    resume_stopped(
                        tx,
                        &tx.run(run.id)?,
                        who,
                        retention,
                        credentials.as_deref(),
                        "comments on its changes",
                    )?;
                }
                Ok(CommentedView {
                    message: render::message(&message, &run.name),
                    is_resumed,
                    follow_up: None,
                })
            })
            .await;
        if let Some(kept) = kept {
            resolve_credentials(&self.store, kept).await;
        }
        sent
    }

    /// Queues a message for a run that has not finished.
    ///
    /// # Errors
    /// Unknown, foreign, finished, or the text is unusable.
    pub async fn send(&self, caller: Caller, call: SendToRun) -> Result<MessageView, OpError> {
        lookup::check(&caller.who, Action::Message)?;
        if call.text.trim().is_empty() {
            return Err(Denied::invalid("text", "is empty").into());
        }
        check_size("text", &call.text, limits::TEXT_BYTES_MAX)?;
        let id = RequestId::new(clock::now(), random());
        caller
            .write(&self.store, move |tx, who| {
                let run = lookup::run(tx.connection(), who, Action::Message, &call.run)?;
                if let RunState::Finished(outcome) = run.state {
                    return Err(Denied::RunFinished {
                        run: run.name.clone(),
                        outcome,
                    }
                    .into());
                }
                let message = tx.send_message(&run, who, id, &call.text)?;
                Ok(render::message(&message, &run.name))
            })
            .await
    }

    /// Reassigns runs and their descendants to another client or to the person.
    ///
    /// # Errors
    /// Unknown run, or an unusable client name.
    pub async fn adopt(&self, caller: Caller, call: Adopt) -> Result<RunList, OpError> {
        lookup::check(&caller.who, Action::Adopt)?;
        let owner = if call.client.is_empty() {
            Principal::Person
        } else {
            Principal::Client(ClientName::parse(&call.client)?)
        };
        if call.runs.is_empty() {
            return Err(Denied::invalid("runs", "name at least one").into());
        }
        let home = self.home.clone();
        caller
            .write(&self.store, move |tx, who| {
                let mut list = RunList::default();
                for given in &call.runs {
                    let run = lookup::run(tx.connection(), who, Action::Adopt, given)?;
                    let root = if run.root == run.id {
                        run
                    } else {
                        tx.run(run.root)?
                    };
                    let root = tx.adopt(&root, &owner, &name_of(&owner), who)?;
                    ledger::compare_adopted(tx, &root)?;
                    list.runs.push(render::run(tx.connection(), &home, &root)?);
                }
                Ok(list)
            })
            .await
    }
}
