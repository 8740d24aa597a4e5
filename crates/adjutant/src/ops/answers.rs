//! Asking, answering and reading answers.

use super::{Caller, OpError, Ops, pick, render};
use crate::clock;
use crate::store::{NewRequest, Request, Run, StoreError, Topic, Tx, open_requests, queued_messages, requests_of};
use crate::view::{AnswerOne, AnswerRequests, Answered, Ask, ListRequests, MessageView, ReadRequest, RequestList, RequestView};
use adjutant_core::run::Retention;
use adjutant_core::signal::{SignalKind, Source};
use adjutant_core::{Action, Denied, Principal, PromptVia, RequestEvent, RequestId, RequestState, RunEvent, RunState, StopReason, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Requests that are listed when the caller says no number.
const LIST_DEFAULT: u32 = 100;
/// Most requests that are listed at once.
const LIST_MAX: u32 = 1000;
/// Most answers in one call.
const ANSWERS_MAX: usize = 100;

/// Refuses a text that is too long.
pub(super) fn bounded(field: &'static str, text: &str, bytes_max: usize) -> Result<(), Denied> {
    if text.len() > bytes_max {
        return Err(Denied::invalid(field, format!("{} bytes are too many, the limit is {bytes_max}", text.len())));
    }
    Ok(())
}

fn checked(ask: &Ask) -> Result<(), Denied> {
    if ask.question.trim().is_empty() {
        return Err(Denied::invalid("question", "is empty: say what you need to know"));
    }
    bounded("question", &ask.question, limits::TEXT_BYTES_MAX)?;
    bounded("context", ask.context.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    bounded("default", ask.default.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    if ask.options.len() > limits::OPTIONS_MAX {
        return Err(Denied::invalid("options", format!("{} are too many, the limit is {}", ask.options.len(), limits::OPTIONS_MAX)));
    }
    for option in &ask.options {
        if option.is_empty() {
            return Err(Denied::invalid("options", "one of them is empty"));
        }
        bounded("options", option, limits::OPTION_BYTES_MAX)?;
    }
    if let Some(expires_s) = ask.expires_s
        && !(1..=limits::EXPIRY_MS_MAX / 1000).contains(&i64::try_from(expires_s).unwrap_or(i64::MAX))
    {
        return Err(Denied::invalid("expires_s", format!("use 1 to {}", limits::EXPIRY_MS_MAX / 1000)));
    }
    Ok(())
}

impl Ops {
    /// Opens a question of the calling run. Durable when it returns.
    ///
    /// # Errors
    /// The caller is no run, the run is not live, or a field is unusable.
    pub async fn ask(&self, caller: Caller, ask: Ask) -> Result<RequestView, OpError> {
        Self::check(&caller.who, Action::Ask)?;
        checked(&ask)?;
        let id = RequestId::new(clock::now(), super::runs::random());
        let expiry_ms = match ask.expires_s {
            Some(seconds) => i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000),
            None => self.config().map_or(limits::EXPIRY_MS_DEFAULT, |config| config.expiry_ms),
        };
        self.write(caller, move |tx, who| {
            let run = pick::run(tx.connection(), who, Action::Ask, "")?;
            let new = NewRequest {
                id,
                question: ask.question,
                context: ask.context,
                options: ask.options,
                default: ask.default,
                blocking: ask.blocking,
                by_block: false,
                patience_ms: run.patience_ms,
                expires_at: tx.now().plus_ms(expiry_ms),
            };
            Ok(render::request(&tx.as_signal(Some(SignalKind::Clarification), Source::Tool, |tx| tx.ask(&run, &new))?))
        })
        .await
    }

    /// Reads one request, waiting until it is settled or the wait is over. The asker's read of an
    /// answer marks it retrieved.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn read_request(&self, caller: Caller, call: ReadRequest) -> Result<RequestView, OpError> {
        let who = &caller.who;
        let (request, run) = self.store.read(|connection| pick::request(connection, who, Action::ReadAnswer, &call.message_id))?;
        let deadline = Instant::now() + Duration::from_millis(call.wait_ms);
        let listener = self.store.bells().listen(vec![Topic::Request(request.id)]);
        let settled = loop {
            let (request, _) = self.store.read(|connection| pick::request(connection, who, Action::ReadAnswer, &request.id.to_string()))?;
            if request.state.is_settled() || Instant::now() >= deadline {
                break request;
            }
            if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                continue;
            }
        };
        let is_asker = *who == Principal::Run(settled.run);
        let mut view = match (&settled.state, is_asker) {
            (RequestState::Answered(_), true) => {
                let id = settled.id;
                let retrieved = self.store.write(move |tx| {
                    let current = crate::store::request_by_id(tx.connection(), id)?.ok_or_else(|| Denied::not_found("question", &id.to_string()))?;
                    tx.settle(&current, RequestEvent::Retrieve)
                });
                render::request(&retrieved.await?)
            }
            _ => render::request(&settled),
        };
        if is_asker {
            view.messages = self.hand_messages(&run).await?;
        }
        Ok(view)
    }

    /// Hands a run the messages that nobody could give its process, with one of its own calls.
    pub(super) async fn hand_messages(&self, run: &Run) -> Result<Vec<MessageView>, OpError> {
        if run.prompt_via == PromptVia::Stream {
            return Ok(Vec::new());
        }
        let queued = self.store.read(|connection| queued_messages(connection, run.id))?;
        if queued.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<_> = queued.iter().map(|message| message.id.clone()).collect();
        let of = run.clone();
        self.store.write(move |tx| tx.deliver_messages(&of, &ids, "tool_result")).await?;
        Ok(queued.iter().map(|message| render::message(message, &run.name)).collect())
    }

    /// Lists requests that the caller may answer, oldest first.
    ///
    /// # Errors
    /// The run is unknown or foreign.
    pub fn list_requests(&self, who: &Principal, call: &ListRequests) -> Result<RequestList, OpError> {
        Self::check(who, Action::ListRequests)?;
        let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        let found = self.store.read(|connection| match &call.run {
            Some(run) => {
                let run = pick::run(connection, who, Action::See, run)?;
                requests_of(connection, run.id, call.all, limit + 1)
            }
            None => open_requests(connection, who, call.all, limit + 1),
        })?;
        let more = u64::from(found.len() > limit as usize);
        Ok(RequestList { requests: found.iter().take(limit as usize).map(render::request).collect(), more })
    }

    /// Answers requests: all of them, or none when one is refused.
    ///
    /// # Errors
    /// Unknown, foreign, settled already, ambiguous, or the caller's own.
    pub async fn answer(&self, caller: Caller, call: AnswerRequests) -> Result<Answered, OpError> {
        Self::check(&caller.who, Action::Answer)?;
        if call.answers.is_empty() || call.answers.len() > ANSWERS_MAX {
            return Err(Denied::invalid("answers", format!("give 1 to {ANSWERS_MAX}")).into());
        }
        for one in &call.answers {
            bounded("answer", &one.answer, limits::TEXT_BYTES_MAX)?;
        }
        let (home, retention) = (self.home.clone(), self.retention());
        self.write(caller, move |tx, who| {
            let mut answered = Answered::default();
            let mut runs: BTreeMap<String, Run> = BTreeMap::new();
            for AnswerOne { run, message_id, answer } in call.answers {
                let (request, of) = match (message_id, run) {
                    (Some(id), within) => {
                        let (request, of) = pick::request(tx.connection(), who, Action::Answer, &id)?;
                        if let Some(within) = within
                            && pick::run(tx.connection(), who, Action::Answer, &within)?.id != of.id
                        {
                            return Err(Denied::not_found("question", &id).into());
                        }
                        (request, of)
                    }
                    (None, Some(run)) => {
                        let run = pick::run(tx.connection(), who, Action::Answer, &run)?;
                        (pick::only_request(tx.connection(), &run)?, run)
                    }
                    (None, None) => return Err(Denied::invalid("message_id", "say which question, or which run").into()),
                };
                let request = tx.settle(&request, RequestEvent::Answer { by: who.clone(), text: answer })?;
                hand_over(tx, &request, retention)?;
                answered.requests.push(render::request(&request));
                runs.insert(of.name.clone(), of);
            }
            for run in runs.into_values() {
                let run = tx.run(run.id)?;
                answered.runs.push(render::run(tx.connection(), &home, &run)?);
            }
            Ok::<_, StoreError>(answered)
        })
        .await
    }
}

/// Gets the answer to a question that a block asked to its run: onto the input of a process that
/// takes one; else the process is stopped, and begun anew with the answer.
fn hand_over(tx: &mut Tx<'_>, request: &Request, retention: Retention) -> Result<(), StoreError> {
    let run = tx.run(request.run)?;
    if !request.by_block || !request.blocking || run.blocking_pending > 0 || run.state != RunState::Running {
        return Ok(());
    }
    if run.prompt_via == PromptVia::Stream {
        let answer = request.state.answer().map_or("", |answer| answer.text.as_str());
        let text = format!("{}: {}\n{answer}", request.no, request.question);
        let id = RequestId::new(tx.now(), super::runs::random());
        tx.send_message(&run, &Principal::Person, id, &text)?;
        tx.settle(request, RequestEvent::Retrieve)?;
        return Ok(());
    }
    tx.advance(&run, RunEvent::StopAsked(StopReason::Parked), retention, "hub", "to begin anew with the answer").map(|_| ())
}
