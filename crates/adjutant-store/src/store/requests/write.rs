//! Creating, answering, reading and expiring requests.

use super::listing::requests_of;
use super::lookup::request_by_id;
use super::row::write_escalated;
use crate::store::db::params;
use crate::store::runs::{notify_ancestors, supersede_report};
use crate::store::subject::{self, DecisionRow};
use crate::store::{Group, Request, Run, StoreError, Topic, Tx, append_event, run_by_id};
use adjutant_core::cascade::{Step, effects_of_request};
use adjutant_core::signal::Clarification;
use adjutant_core::{
    AttemptNo, Denied, EventKind, EventSeq, Principal, RequestEvent, RequestId, RequestNo,
    RequestState, RunId, RunState, SteadyTime, Subject, Time, limits,
};

/// The data of a new request.
#[derive(Debug, Clone)]
pub struct NewRequest {
    pub id: RequestId,
    pub subject: Subject,
    pub question: String,
    pub own_id: Option<String>,
    pub context: Option<String>,
    /// In a group, only the first question has it.
    pub clarification: Option<Clarification>,
    pub options: Vec<String>,
    /// For a question: the answer if none arrives before the deadline.
    pub default: Option<String>,
    pub blocking: bool,
    pub by_block: bool,
    pub patience_ms: i64,
    pub expires_at: SteadyTime,
}

/// Returns the event that records one step of a request: its kind, its author and its text.
fn event_of(
    request: &Request,
    from: &RequestState,
    to: &RequestState,
) -> Result<(EventKind, String, String), StoreError> {
    Ok(match to {
        RequestState::Answered(answer) => {
            let kind = if *from == RequestState::Pending {
                EventKind::RequestAnswered
            } else {
                EventKind::RequestRevoked
            };
            (
                kind,
                answer.by.to_string(),
                crate::store::events::first_line(&answer.decision.to_text()),
            )
        }
        RequestState::Retrieved { .. } => (
            EventKind::RequestRetrieved,
            Principal::Run(request.run).to_string(),
            String::new(),
        ),
        RequestState::Expired { .. } => {
            (EventKind::RequestExpired, "hub".to_owned(), String::new())
        }
        RequestState::Withdrawn { .. } => {
            (EventKind::RequestWithdrawn, "hub".to_owned(), String::new())
        }
        RequestState::Pending => {
            return Err(StoreError::Corrupt(format!(
                "request {} became pending again",
                request.no
            )));
        }
    })
}

/// Returns the text of the event of a new request. That of an approval names everything that it
/// allows.
fn asked_text(new: &NewRequest) -> String {
    let text = crate::store::events::first_line(&new.question);
    match new.subject {
        Subject::Approval { .. } => new
            .subject
            .line(&text)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
        Subject::Question | Subject::Delegation(_) => text,
    }
}

/// Refuses a request of a run that is not live or has too many open ones.
fn check_can_ask(run: &Run) -> Result<(), Denied> {
    match run.state {
        state if state.is_live() && run.pending < limits::OPEN_REQUESTS_MAX as i64 => Ok(()),
        state if state.is_live() => Err(Denied::Limit {
            what: "open requests of one run",
            limit: limits::OPEN_REQUESTS_MAX as u64,
        }),
        RunState::Finished(outcome) => Err(Denied::RunFinished {
            run: run.name.clone(),
            outcome,
        }),
        state => Err(Denied::WrongState {
            run: run.name.clone(),
            state: state.word(),
            wanted: "asking",
        }),
    }
}

impl NewRequest {
    /// Returns the request as it is stored.
    fn as_asked(&self, no: RequestNo, run: &Run, at: Time) -> Request {
        Request {
            id: self.id,
            no,
            run: run.id,
            run_name: run.name.clone(),
            owner: run.owner.clone(),
            subject: self.subject.clone(),
            question: self.question.clone(),
            own_id: self.own_id.clone(),
            context: self.context.clone(),
            clarification: self.clarification.clone(),
            options: self.options.clone(),
            default: self.default.clone(),
            blocking: self.blocking,
            by_block: self.by_block,
            group: None,
            delivered_to: None,
            child: None,
            outcome: None,
            held: false,
            patience_ms: self.patience_ms,
            state: RequestState::Pending,
            asked_at: at,
            expires_at: self.expires_at,
            escalated: Vec::new(),
        }
    }
}

impl Tx<'_> {
    /// Opens a request of a live run.
    ///
    /// # Errors
    /// `RunFinished` or `WrongState` if the run is not live, `Limit` if it has too many open
    /// requests.
    pub fn ask(&mut self, run: &Run, new: &NewRequest) -> Result<Request, StoreError> {
        check_can_ask(run)?;
        supersede_report(self, run)?;
        self.wake_by(new.expires_at);
        let no = insert_request(self, run, new)?;
        self.notify(Topic::Asked);
        notify_ancestors(self, run)?;
        let seq = append_event(
            self,
            EventKind::RequestAsked,
            run.id,
            &run.owner.to_string(),
            Some(new.id),
            &Principal::Run(run.id).to_string(),
            &format!("{no} {}", asked_text(new)),
        )?;
        self.prepare(
            "UPDATE runs SET pending = pending + 1, blocking_pending = blocking_pending + ?2, last_seq = ?3, updated_at = ?4,
             active_ms = active_ms + CASE WHEN ?2 = 1 THEN larger(0, ?5 - coalesce(active_since, ?5)) ELSE 0 END,
             active_since = CASE WHEN ?2 = 1 THEN NULL ELSE active_since END WHERE id = ?1",
        )?
        .run(params![run.id.to_string(), new.blocking, seq.0, self.now().0, self.steady().0])?;
        Ok(new.as_asked(no, run, self.now()))
    }

    /// Opens several requests of a live run as one group. Either all are opened or none.
    ///
    /// # Errors
    /// As for [`Tx::ask`].
    pub fn ask_together(
        &mut self,
        run: &Run,
        requests: &[NewRequest],
    ) -> Result<Vec<Request>, StoreError> {
        let (count, max) = (
            i64::try_from(requests.len()).unwrap_or(i64::MAX),
            limits::OPEN_REQUESTS_MAX as i64,
        );
        if run.pending.saturating_add(count) > max {
            return Err(Denied::Limit {
                what: "open requests of one run",
                limit: limits::OPEN_REQUESTS_MAX as u64,
            }
            .into());
        }
        let mut asked = Vec::with_capacity(requests.len());
        for new in requests {
            let run = self.run(run.id)?;
            asked.push(self.ask(&run, new)?);
        }
        let (Some(first), size, true) = (
            asked.first().map(|first| first.no),
            u32::try_from(asked.len()).unwrap_or(u32::MAX),
            asked.len() > 1,
        ) else {
            return Ok(asked);
        };
        for (place, request) in (1..).zip(&mut asked) {
            self.prepare("UPDATE requests SET group_no = ?2 WHERE no = ?1")?
                .run(params![request.no.0, first.0])?;
            request.group = Some(Group { first, place, size });
        }
        Ok(asked)
    }

    /// Records that an attempt received the outcome of a request, which then counts as used.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn record_receipt(
        &mut self,
        request: &Request,
        attempt: AttemptNo,
    ) -> Result<(), StoreError> {
        self.prepare("UPDATE requests SET told = ?2 WHERE id = ?1")?
            .run(params![request.id.to_string(), attempt.0])?;
        Ok(())
    }

    /// Records that an open request was escalated to a person, once. Returns the request, or `None`
    /// if it is not open any more.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn escalate(&mut self, id: RequestId, name: &str) -> Result<Option<Request>, StoreError> {
        let open = request_by_id(self.connection(), id)?
            .filter(|request| request.state == RequestState::Pending);
        let Some(mut request) = open else {
            return Ok(None);
        };
        if request.escalated.iter().any(|(known, _)| known == name) {
            return Ok(Some(request));
        }
        request.escalated.push((name.to_owned(), self.now()));
        let written = write_escalated(&request.escalated)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("UPDATE requests SET escalated = ?2 WHERE id = ?1")?
            .run(params![id.to_string(), written])?;
        let (owner, text) = (
            request.owner.to_string(),
            format!(
                "{} to {}",
                request.no,
                crate::store::events::first_line(name)
            ),
        );
        let seq = append_event(
            self,
            EventKind::RequestEscalated,
            request.run,
            &owner,
            Some(id),
            "hub",
            &text,
        )?;
        self.prepare("UPDATE runs SET last_seq = ?2, updated_at = ?3 WHERE id = ?1")?
            .run(params![request.run.to_string(), seq.0, self.now().0])?;
        Ok(Some(request))
    }

    /// Reads the asking run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn asker(&self, request: &Request) -> Result<Run, StoreError> {
        run_by_id(self.connection(), request.run)?
            .ok_or_else(|| StoreError::Corrupt(format!("request {} of no run", request.no)))
    }
}

fn insert_request(tx: &Tx<'_>, run: &Run, new: &NewRequest) -> Result<RequestNo, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::Corrupt(error.to_string());
    let options = serde_json::to_string(&new.options).map_err(corrupt)?;
    let no = tx.prepare(
        "INSERT INTO requests (id, run, kind, question, context, options, fallback, blocking, patience_ms, asked_at, expires_at, by_block, matter,
         own_id, clarification, waits_since) VALUES (?1, ?2, ?12, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?13, ?14, ?15, ?16)",
    )?
    .insert("no", params![
        new.id.to_string(),
        run.id.to_string(),
        new.question,
        new.context,
        options,
        new.default,
        new.blocking,
        new.patience_ms,
        tx.now().0,
        new.expires_at.0,
        new.by_block,
        new.subject.kind().word(),
        subject::write(&new.subject).map_err(corrupt)?,
        new.own_id,
        new.clarification.as_ref().map(subject::write_clarification).transpose().map_err(corrupt)?,
        tx.steady().0
    ])?;
    Ok(RequestNo(no))
}

/// Records the states through which a request passes. What follows for its run is named.
/// Returns the updated request.
pub(in crate::store) fn write_states(
    tx: &mut Tx<'_>,
    request: &Request,
    states: &[RequestState],
) -> Result<Request, StoreError> {
    let mut before = &request.state;
    let mut steps = Vec::with_capacity(states.len());
    for state in states {
        if state != before {
            steps.push((before, state));
            before = state;
        }
    }
    let Some((_, last)) = steps.last().copied() else {
        return Ok(request.clone());
    };
    update_state(tx, request, last)?;
    let was_pending = i64::from(request.state == RequestState::Pending);
    let was_blocking = i64::from(request.blocking && was_pending == 1);
    let (owner, mut seq, mut unread) = (request.owner.to_string(), EventSeq(0), 0);
    for (from, to) in &steps {
        let (kind, by, text) = event_of(request, from, to)?;
        let text = format!("{} {text}", request.no);
        seq = append_event(
            tx,
            kind,
            request.run,
            &owner,
            Some(request.id),
            &by,
            text.trim_end(),
        )?;
        unread += match (from, to) {
            (RequestState::Pending, RequestState::Answered(_)) => 1,
            (RequestState::Answered(_), RequestState::Retrieved { .. }) => -1,
            _ => 0,
        };
    }
    tx.prepare(
        "UPDATE runs SET pending = pending - ?2, blocking_pending = blocking_pending - ?3, unread = unread + ?4, last_seq = ?5, updated_at = ?6,
         active_since = CASE WHEN state IN ('running', 'stopping') AND blocking_pending = ?3 AND holding = 0 THEN coalesce(active_since, ?7) END
         WHERE id = ?1",
    )?
    .run(params![request.run.to_string(), was_pending, was_blocking, unread, seq.0, tx.now().0, tx.steady().0])?;
    tx.notify(Topic::Request(request.id));
    tx.notify(Topic::Answer(request.run, request.id));
    for effect in effects_of_request(request.blocking, &request.state, last) {
        let run = request.run;
        tx.then(Step::Effect { run, effect });
    }
    Ok(Request {
        state: last.clone(),
        ..request.clone()
    })
}

/// Stores the last state of a request. Fails if the request has changed since it was read.
fn update_state(tx: &Tx<'_>, request: &Request, last: &RequestState) -> Result<(), StoreError> {
    let answer = last.answer();
    let row = answer
        .map(|answer| DecisionRow::of(&answer.decision))
        .transpose()
        .map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let retrieved_at = if let RequestState::Retrieved { at, .. } = last {
        Some(at.0)
    } else {
        None
    };
    let ended_at = if let RequestState::Expired { at } | RequestState::Withdrawn { at } = last {
        Some(at.0)
    } else {
        None
    };
    tx
        .prepare(
            "UPDATE requests SET status = ?2, answer = ?3, answered_by = ?4, answered_at = ?5, retrieved_at = ?6, ended_at = ?7, verdict = ?9, changes = ?10
             WHERE id = ?1 AND status = ?8 AND (status = 'pending' OR status = 'answered' AND ?2 IN ('answered', 'retrieved'))",
        )?
        .run_on_one(params![
            request.id.to_string(),
            last.word(),
            row.as_ref().map(|row| row.answer.as_str()),
            answer.map(|a| a.by.to_string()),
            answer.map(|a| a.at.0),
            retrieved_at,
            ended_at,
            request.state.word(),
            row.as_ref().and_then(|row| row.verdict.as_deref()),
            row.as_ref().and_then(|row| row.changes.as_deref())
        ])?;
    Ok(())
}

/// Withdraws the open requests of an ended run: `all`, or only those that are useless without
/// the run.
pub(in crate::store) fn withdraw_requests(
    tx: &mut Tx<'_>,
    run: RunId,
    all: bool,
) -> Result<(), StoreError> {
    for request in requests_of(
        tx.connection(),
        run,
        false,
        limits::OPEN_REQUESTS_MAX as u32,
    )? {
        if all || !request.subject.outlives_its_run() {
            tx.then(Step::Settle {
                request: request.id,
                event: RequestEvent::Withdraw,
            });
        }
    }
    Ok(())
}
