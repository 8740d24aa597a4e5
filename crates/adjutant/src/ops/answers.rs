//! Asking, answering and reading answers.

use super::delegations::Child;
use super::{Caller, OpError, Ops, pick, render};
use crate::clock;
use crate::config::Home;
use crate::store::{
    Bells, Connection, Key, NewRequest, Request, RequestsOf, Run, StoreError, Topic, Tx, is_key_used, messages_by_id, queued_messages, request_by_id,
    requests_page, requests_together, run_by_id,
};
use crate::view::{
    AnswerOne, AnswerRequests, Answered, Ask, AskTogether, ChangesView, ClarificationView, DecisionWord, ListRequests, MessageView, ReadRequest,
    ReadTogether, RequestList, RequestView, WithdrawRequest,
};
use adjutant_core::signal::{Clarification, Priority, SignalKind, Source};
use adjutant_core::{
    Action, Changes, Decision, Denied, Matter, Principal, PromptVia, RequestEvent, RequestId, RequestNo, RequestState, RunId, SteadyTime, chosen,
    limits,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Requests that are listed when the caller says no number.
const LIST_DEFAULT: u32 = 100;
/// Most requests that are listed at once.
const LIST_MAX: u32 = 1000;
/// Most questions asked together in one call.
const TOGETHER_MAX: usize = 20;
/// Most answers in one call.
const ANSWERS_MAX: usize = 100;

/// What goes along with a run's own calls.
const MESSAGES: &str = "messages";

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
    bounded("question_id", ask.question_id.as_deref().unwrap_or(""), limits::OPTION_BYTES_MAX)?;
    checked_clarification(ask.clarification.as_ref())?;
    checked_options(&ask.options)?;
    checked_expiry(ask.expires_s, 1)
}

fn checked_clarification(said: Option<&ClarificationView>) -> Result<(), Denied> {
    let Some(ClarificationView { reason, blocked_at, can_resume_with, current_state }) = said else { return Ok(()) };
    for (field, text) in [("reason", reason), ("blocked_at", blocked_at), ("can_resume_with", can_resume_with), ("current_state", current_state)] {
        bounded(field, text.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    }
    Ok(())
}

pub(super) fn checked_options(options: &[String]) -> Result<(), Denied> {
    if options.len() > limits::OPTIONS_MAX {
        return Err(Denied::invalid("options", format!("{} are too many, the limit is {}", options.len(), limits::OPTIONS_MAX)));
    }
    for option in options {
        if option.is_empty() {
            return Err(Denied::invalid("options", "one of them is empty"));
        }
        bounded("options", option, limits::OPTION_BYTES_MAX)?;
    }
    Ok(())
}

/// Refuses a deadline that is nearer than `min_s` seconds, or too far.
pub(super) fn checked_expiry(expires_s: Option<u64>, min_s: i64) -> Result<(), Denied> {
    if let Some(expires_s) = expires_s
        && !(min_s..=limits::EXPIRY_MS_MAX / 1000).contains(&i64::try_from(expires_s).unwrap_or(i64::MAX))
    {
        return Err(Denied::invalid("expires_s", format!("use {min_s} to {}", limits::EXPIRY_MS_MAX / 1000)));
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
        let expiry_ms = self.expiry_ms(ask.expires_s);
        let open = move |tx: &mut Tx<'_>, who: &Principal| {
            let run = pick::run(tx.connection(), who, Action::Ask, "")?;
            let new = new_question(&run, id, ask, tx.steady().plus_ms(expiry_ms));
            tx.as_signal(Some(SignalKind::Clarification), Source::Tool, |tx| tx.ask(&run, &new))
        };
        let as_asked = |tx: &mut Tx<'_>, id: String| Ok(Request { state: RequestState::Pending, ..asked(tx, &id)? });
        let Caller { who, key } = caller.clone();
        let request = self.write_with_receipt(caller, open, |request| request.id.to_string(), as_asked).await?;
        let messages = self.messages_for(&who, key.as_ref()).await?;
        Ok(RequestView { messages, ..render::request(&request) })
    }

    /// Opens several questions of the calling run as one group. Durable when it returns.
    ///
    /// # Errors
    /// As for one; then none is asked.
    pub async fn ask_together(&self, caller: Caller, call: AskTogether) -> Result<RequestList, OpError> {
        Self::check(&caller.who, Action::Ask)?;
        if call.questions.is_empty() || call.questions.len() > TOGETHER_MAX {
            return Err(Denied::invalid("questions", format!("give 1 to {TOGETHER_MAX}")).into());
        }
        checked_clarification(call.clarification.as_ref())?;
        let mut asks = Vec::with_capacity(call.questions.len());
        let mut said = call.clarification;
        for mut ask in call.questions {
            ask.clarification = said.take();
            checked(&ask)?;
            let id = RequestId::new(clock::now(), super::runs::random());
            asks.push((id, self.expiry_ms(ask.expires_s), ask));
        }
        let open = move |tx: &mut Tx<'_>, who: &Principal| {
            let run = pick::run(tx.connection(), who, Action::Ask, "")?;
            let news: Vec<_> = asks.into_iter().map(|(id, expiry_ms, ask)| new_question(&run, id, ask, tx.steady().plus_ms(expiry_ms))).collect();
            tx.may_refuse_late()?;
            tx.as_signal(Some(SignalKind::Clarification), Source::Tool, |tx| tx.ask_together(&run, &news))
        };
        let receipt = |requests: &Vec<Request>| requests.iter().map(|request| request.id.to_string()).collect::<Vec<_>>();
        let as_asked = |tx: &mut Tx<'_>, ids: Vec<String>| {
            ids.iter().map(|id| Ok(Request { state: RequestState::Pending, ..asked(tx, id)? })).collect::<Result<Vec<_>, StoreError>>()
        };
        let Caller { who, key } = caller.clone();
        let requests = self.write_with_receipt(caller, open, receipt, as_asked).await?;
        let mut requests = render::requests(&requests);
        if let Some(first) = requests.first_mut() {
            first.messages = self.messages_for(&who, key.as_ref()).await?;
        }
        Ok(RequestList { requests, more: 0 })
    }

    /// Reads a group of the calling run's questions, waiting until none that blocks is open or the
    /// wait is over. Only then its answers are marked retrieved, so whoever dies waiting has lost none.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn read_together(&self, caller: Caller, call: ReadTogether) -> Result<RequestList, OpError> {
        let Caller { who, key } = caller;
        Self::check(&who, Action::Ask)?;
        let key = key.map(|key| key.beside(MESSAGES));
        let deadline = super::end_of_wait(call.wait_ms);
        let look = |connection: &Connection| requests_together(connection, &pick::request(connection, &who, Action::ReadAnswer, &call.message_id)?);
        let topics = self.store.read(look)?.iter().map(|request| Topic::Request(request.id)).collect();
        let listener = self.store.bells().listen(topics);
        while self.store.read(look)?.iter().any(|request| request.blocking && !request.is_ready()) {
            if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                break;
            }
        }
        let ids: Vec<RequestId> = self.store.read(look)?.iter().map(|request| request.id).collect();
        let views = self
            .store
            .write(move |tx| {
                let mut views = Vec::with_capacity(ids.len());
                for id in ids {
                    let request = take(tx, &who, id)?;
                    let messages = if views.is_empty() { take_messages(tx, request.run, key.as_ref())? } else { Vec::new() };
                    views.push(RequestView { messages, ..render::request(&request) });
                }
                Ok(views)
            })
            .await?;
        Ok(RequestList { requests: views, more: 0 })
    }

    /// How long a request stays open.
    pub(super) fn expiry_ms(&self, wanted_s: Option<u64>) -> i64 {
        match wanted_s {
            Some(seconds) => i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000),
            None => self.config().map_or(limits::EXPIRY_MS_DEFAULT, |config| config.expiry_ms),
        }
    }

    /// The shortest deadline, in seconds, that a run may set for a decision about an approval or a
    /// delegation.
    pub(super) fn decision_expiry_s_min(&self) -> i64 {
        (self.expiry_ms(None).min(limits::DECISION_EXPIRY_MS_MIN) / 1000).max(1)
    }

    /// Reads one request, waiting until it is settled or the wait is over. The asker's read of an
    /// answer marks it retrieved.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn read_request(&self, caller: Caller, call: ReadRequest) -> Result<RequestView, OpError> {
        let Caller { who, key } = caller;
        let deadline = super::end_of_wait(call.wait_ms);
        let look = |connection: &Connection| pick::request(connection, &who, Action::ReadAnswer, &call.message_id);
        // An id names its bell; a short number has to be looked up first.
        let id = match RequestId::parse(&call.message_id) {
            Ok(id) => id,
            Err(_) => self.store.read(look)?.id,
        };
        if let Principal::Run(run) = who {
            return self.read_own(run, key, id, deadline).await;
        }
        let listener = self.store.bells().listen(vec![Topic::Request(id)]);
        loop {
            let request = self.store.read(look)?;
            if request.state.is_settled() || Instant::now() >= deadline {
                let mut views = [render::request(&request)];
                self.store.read(|connection| super::delegations::add_room(connection, &self.config_or_builtin(), &mut views))?;
                let [view] = views;
                return Ok(view);
            }
            if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                continue;
            }
        }
    }

    /// Takes back an open request of the calling run.
    ///
    /// # Errors
    /// It is not the run's, or settled.
    pub async fn withdraw_request(&self, caller: Caller, call: WithdrawRequest) -> Result<RequestView, OpError> {
        let withdraw = move |tx: &mut Tx<'_>, who: &Principal| {
            let request = pick::request(tx.connection(), who, Action::Ask, &call.message_id)?;
            Ok(render::request(&tx.settle(&request, RequestEvent::Withdraw)?))
        };
        self.write(caller, withdraw).await
    }

    /// Reads a request for its asker. Whoever answers while the asker waits here marks the answer as
    /// retrieved in the same transaction.
    async fn read_own(&self, run: RunId, key: Option<Key>, id: RequestId, deadline: Instant) -> Result<RequestView, OpError> {
        let who = Principal::Run(run);
        let key = key.map(|key| key.beside(MESSAGES));
        let waits = Instant::now() < deadline;
        let listener = waits.then(|| self.store.bells().listen(vec![Topic::Answer(run, id)]));
        let look = |connection: &Connection| {
            let request = pick::request(connection, &who, Action::ReadAnswer, &id.to_string())?;
            let nothing_along = has_none(connection, request.run, key.as_ref())?;
            Ok((request, nothing_along))
        };
        let (mut request, mut nothing_along) = self.store.read(look)?;
        if let Some(listener) = listener {
            // With a delegation that it waits for, the asker has its answer when the other run has ended.
            while !request.is_ready() {
                if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                    // An answer that is being committed may count on this wait: it is taken along.
                    drop(listener);
                    return self.take_answer(who, key, id).await;
                }
                (request, nothing_along) = self.store.read(look)?;
            }
        }
        let is_news = match request.state {
            RequestState::Answered(_) => !request.held,
            RequestState::Expired { .. } => request.told.is_none(),
            RequestState::Pending | RequestState::Retrieved { .. } | RequestState::Withdrawn { .. } => false,
        };
        if is_news || !nothing_along {
            return self.take_answer(who, key, id).await;
        }
        Ok(render::request(&request))
    }

    /// Reads a request for its asker, in one transaction: an answer is marked retrieved, and what
    /// the run was told meanwhile comes along.
    async fn take_answer(&self, who: Principal, key: Option<Key>, id: RequestId) -> Result<RequestView, OpError> {
        let (request, messages) = self
            .store
            .write(move |tx| {
                let request = take(tx, &who, id)?;
                let messages = take_messages(tx, request.run, key.as_ref())?;
                Ok((request, messages))
            })
            .await?;
        Ok(RequestView { messages, ..render::request(&request) })
    }

    /// Hands a run the messages that nobody could give its process, with one of its own calls.
    /// The call repeated under its key gets the same ones: its reply may have been lost.
    pub(super) async fn hand_messages(&self, run: RunId, key: Option<&Key>) -> Result<Vec<MessageView>, OpError> {
        let key = key.map(|key| key.beside(MESSAGES));
        if self.store.read(|connection| has_none(connection, run, key.as_ref()))? {
            return Ok(Vec::new());
        }
        Ok(self.store.write(move |tx| take_messages(tx, run, key.as_ref())).await?)
    }

    /// The same for whoever calls; only a run has messages.
    pub(super) async fn messages_for(&self, who: &Principal, key: Option<&Key>) -> Result<Vec<MessageView>, OpError> {
        match who {
            Principal::Run(run) => self.hand_messages(*run, key).await,
            Principal::Person | Principal::Client(_) => Ok(Vec::new()),
        }
    }

    /// Lists requests that the caller may answer, oldest first.
    ///
    /// # Errors
    /// The run is unknown or foreign.
    pub fn list_requests(&self, who: &Principal, call: &ListRequests) -> Result<RequestList, OpError> {
        Self::check(who, Action::ListRequests)?;
        let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        let (found, more) = self.store.read(|connection| match &call.run {
            Some(run) => {
                let run = pick::run(connection, who, Action::See, run)?;
                requests_page(connection, RequestsOf::Run(run.id), call.all, RequestNo(0), limit)
            }
            None => requests_page(connection, RequestsOf::Answerer(who), call.all, RequestNo(0), limit),
        })?;
        let mut requests = render::requests(&found);
        self.store.read(|connection| super::delegations::add_room(connection, &self.config_or_builtin(), &mut requests))?;
        Ok(RequestList { requests, more })
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
        let several = call.answers.len() > 1;
        let mut answers = Vec::with_capacity(call.answers.len());
        for one in call.answers {
            let which = if several { one.message_id.clone().or_else(|| one.run.clone()) } else { None };
            let given = self.given(&caller.who, one).map_err(|error| match error {
                OpError::Store(why) => one_of(which.as_deref(), why).into(),
                error => error,
            })?;
            answers.push((which, given));
        }
        let retention = self.retention();
        let bells = Arc::clone(self.store.bells());
        let settle = move |tx: &mut Tx<'_>, who: &Principal| {
            if several {
                tx.may_refuse_late()?;
            }
            let mut requests = Vec::with_capacity(answers.len());
            for (which, given) in answers {
                let request = given.settle(tx, who, &bells, &requests).map_err(|why| one_of(which.as_deref(), why))?;
                tx.hand_over(&request, retention)?;
                requests.push(request);
            }
            Ok(requests)
        };
        let receipt = |requests: &Vec<Request>| requests.iter().map(|request| request.id.to_string()).collect::<Vec<_>>();
        let again = |tx: &mut Tx<'_>, ids: Vec<String>| ids.iter().map(|id| Ok(as_answered(asked(tx, id)?))).collect::<Result<Vec<_>, StoreError>>();
        let requests = self.write_with_receipt(caller, settle, receipt, again).await?;
        Ok(self.store.read(|connection| told(connection, &self.home, &requests))?)
    }

    /// Reads one answer, as far as that needs no transaction.
    fn given(&self, who: &Principal, one: AnswerOne) -> Result<Given, OpError> {
        let decision = decision(&one)?;
        let child = self.child_of(who, &one, &decision)?;
        Ok(Given { decision, child, one })
    }
}

/// Says of a refusal which of several answers it is about, where there are several.
fn one_of(which: Option<&str>, error: StoreError) -> StoreError {
    match (error, which) {
        (StoreError::Denied(why), Some(which)) => Denied::one_of(which, why).into(),
        (error, _) => error,
    }
}

/// One answer that is to be given, with the run that it would start.
#[derive(Debug)]
struct Given {
    decision: Decision,
    child: Option<Child>,
    one: AnswerOne,
}

impl Given {
    /// Answers the request that is meant. `before`: those that the same call has answered.
    fn settle(self, tx: &mut Tx<'_>, who: &Principal, bells: &Bells, before: &[Request]) -> Result<Request, StoreError> {
        let Self { decision, child, one: AnswerOne { run, message_id, content_hash, .. } } = self;
        let request = match (message_id, run) {
            (Some(id), within) => {
                let request = pick::request(tx.connection(), who, Action::Answer, &id)?;
                if let Some(within) = within
                    && pick::run(tx.connection(), who, Action::Answer, &within)?.id != request.run
                {
                    return Err(Denied::not_found("question", &id).into());
                }
                request
            }
            (None, Some(run)) => pick::only_request(tx.connection(), &pick::run(tx.connection(), who, Action::Answer, &run)?)?,
            (None, None) => return Err(Denied::invalid("message_id", "say which question, or which run").into()),
        };
        if before.iter().any(|answered| answered.id == request.id) {
            return Err(Denied::invalid("answers", format!("{} is answered twice: give one answer for each", request.no)).into());
        }
        if content_hash.is_some_and(|shown| shown != render::content_hash(&request)) {
            return Err(Denied::NotAsShown.into());
        }
        // Whoever comes too late is told so, whatever they said.
        let decision = if request.state == RequestState::Pending { meant(&request, decision)? } else { decision };
        if request.by_block {
            tx.may_refuse_late()?;
        }
        let given = RequestEvent::Answer { by: who.clone(), decision: decision.clone() };
        Ok(match &request.matter {
            Matter::Delegation(_) => {
                tx.may_refuse_late()?;
                super::delegations::decide(tx, who, &request, decision, child)?
            }
            // An approval can be taken back until it was read, so nothing else reads it.
            Matter::Question if bells.hangs(&Topic::Answer(request.run, request.id)) => as_answered(tx.settle_and_retrieve(&request, given)?),
            Matter::Question | Matter::Approval { .. } => tx.settle(&request, given)?,
        })
    }
}

fn new_question(run: &Run, id: RequestId, ask: Ask, expires_at: SteadyTime) -> NewRequest {
    NewRequest {
        id,
        matter: Matter::Question,
        question: ask.question,
        own_id: ask.question_id.filter(|id| !id.trim().is_empty()),
        context: ask.context,
        clarification: ask.clarification.map(said).filter(|said| !said.is_empty()),
        options: ask.options,
        default: ask.default,
        blocking: ask.blocking,
        by_block: false,
        patience_ms: run.patience_ms,
        expires_at,
    }
}

fn said(view: ClarificationView) -> Clarification {
    let ClarificationView { reason, blocked_at, can_resume_with, current_state } = view;
    let filled = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    Clarification { reason: filled(reason), blocked_at: filled(blocked_at), resume_with: filled(can_resume_with), state: filled(current_state) }
}

/// Takes what became of a request, for its asker.
fn take(tx: &mut Tx<'_>, who: &Principal, id: RequestId) -> Result<Request, StoreError> {
    let request = pick::request(tx.connection(), who, Action::ReadAnswer, &id.to_string())?;
    match request.state {
        RequestState::Answered(_) if !request.held => tx.settle(&request, RequestEvent::Retrieve),
        RequestState::Expired { .. } if request.told.is_none() => {
            let attempt = tx.run(request.run)?.attempt;
            tx.tell(&request, attempt)?;
            Ok(request)
        }
        _ => Ok(request),
    }
}

/// Reads a request that a receipt names. It can have gone with its run.
fn asked(tx: &Tx<'_>, id: &str) -> Result<Request, StoreError> {
    let found = RequestId::parse(id).ok().map(|id| request_by_id(tx.connection(), id)).transpose()?.flatten();
    found.ok_or_else(|| Denied::not_found("question", id).into())
}

/// Returns a request as it was when it was answered, whether or not the answer was read since.
fn as_answered(request: Request) -> Request {
    let state = match request.state {
        RequestState::Retrieved { answer, .. } => RequestState::Answered(answer),
        state => state,
    };
    Request { state, ..request }
}

/// Shows answered requests, and the runs concerned as they are now.
fn told(connection: &Connection, home: &Home, requests: &[Request]) -> Result<Answered, StoreError> {
    let concerned: BTreeMap<&str, RunId> = requests.iter().map(|request| (request.run_name.as_str(), request.run)).collect();
    let mut runs = Vec::with_capacity(concerned.len());
    for run in concerned.into_values() {
        if let Some(run) = run_by_id(connection, run)? {
            runs.push(render::run(connection, home, &run)?);
        }
    }
    Ok(Answered { requests: render::requests(requests), runs })
}

/// Tells whether a run's call has no messages to bring along, and brought none before.
fn has_none(connection: &Connection, run: RunId, key: Option<&Key>) -> Result<bool, StoreError> {
    if !queued_messages(connection, run)?.is_empty() {
        return Ok(false);
    }
    Ok(!key.map_or(Ok(false), |key| is_key_used(connection, &Principal::Run(run), key))?)
}

/// Takes a run's messages for one of its own calls, where its process reads none. `key` is that of
/// the messages beside the call.
fn take_messages(tx: &mut Tx<'_>, run: RunId, key: Option<&Key>) -> Result<Vec<MessageView>, StoreError> {
    if has_none(tx.connection(), run, key)? {
        return Ok(Vec::new());
    }
    let run = tx.run(run)?;
    if run.prompt_via == PromptVia::Stream {
        return Ok(Vec::new());
    }
    let take = |tx: &mut Tx<'_>| {
        let ids: Vec<_> = queued_messages(tx.connection(), run.id)?.into_iter().map(|message| message.id).collect();
        tx.deliver_messages(&run, &ids, "tool_result")?;
        Ok(ids)
    };
    let ids = tx.once(&Principal::Run(run.id), key, take)?;
    Ok(messages_by_id(tx.connection(), &ids)?.iter().map(|message| render::message(message, &run.name)).collect())
}

/// Reads numbers as the options that they stand for.
fn meant(request: &Request, decision: Decision) -> Result<Decision, Denied> {
    Ok(match decision {
        Decision::Text(text) => Decision::Text(chosen("answer", &request.options, &text)?),
        Decision::Approved { note: Some(note), changes } => Decision::Approved { note: Some(chosen("reason", &request.options, &note)?), changes },
        other @ (Decision::Approved { note: None, .. } | Decision::Denied { .. }) => other,
    })
}

/// Reads what somebody decides.
fn decision(one: &AnswerOne) -> Result<Decision, Denied> {
    bounded("answer", &one.answer, limits::TEXT_BYTES_MAX)?;
    let reason = one.reason.clone().or_else(|| Some(one.answer.clone())).filter(|text| !text.trim().is_empty());
    bounded("reason", reason.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    let unchanged = one.changes.as_ref().is_none_or(|changes| *changes == ChangesView::default());
    match one.decision {
        None if one.reason.is_some() => Err(Denied::invalid("decision", "is missing: a reason belongs to approve or deny")),
        None | Some(DecisionWord::Deny) if !unchanged => Err(Denied::invalid("changes", "belong to decision approve")),
        None if one.answer.trim().is_empty() => Err(Denied::invalid("answer", "is empty: a question can be answered once only")),
        None => Ok(Decision::Text(one.answer.clone())),
        Some(DecisionWord::Deny) => Ok(Decision::Denied { reason: reason.unwrap_or_default() }),
        Some(DecisionWord::Approve) => {
            let ChangesView { prompt, agent, cwd, priority } = one.changes.clone().unwrap_or_default();
            let priority = match priority {
                None => None,
                Some(word) => Some(Priority::from_word(&word).ok_or_else(|| Denied::invalid("priority", "use P0, P1 or P2"))?),
            };
            Ok(Decision::Approved { note: reason, changes: Changes { prompt, agent, directory: cwd, priority } })
        }
    }
}
