//! Requests: asking, answering, reading, expiring.

use super::subject::{self, DecisionRow};
use super::{Run, StoreError, Topic, Tx, append_event, has_queued_messages, run_by_id};
use adjutant_core::request::{RequestTerms, apply};
use adjutant_core::run::{Blocking, Retention, resumes_now};
use adjutant_core::signal::Clarification;
use adjutant_core::{
    Answer, AnsweredBy, AttemptNo, Denied, EventKind, EventSeq, Principal, RequestEvent, RequestId, RequestNo, RequestState, RunEvent, RunId,
    SteadyTime, Subject, Time, limits,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// One request as the store has it.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: RequestId,
    pub no: RequestNo,
    pub run: RunId,
    pub run_name: String,
    /// Of the run: who may answer.
    pub owner: Principal,
    pub subject: Subject,
    /// The question, the action, or the task.
    pub question: String,
    /// What the asker itself calls a question.
    pub own_id: Option<String>,
    pub context: Option<String>,
    /// What the asker said along with all the questions that it asked together.
    pub clarification: Option<Clarification>,
    pub options: Vec<String>,
    /// Of a question: the answer that counts at the deadline.
    pub default: Option<String>,
    pub blocking: bool,
    /// It was asked by a block in the run's output, so no call of the run waits for the answer.
    pub by_block: bool,
    pub group: Option<Group>,
    /// The attempt that received the answer with its prompt.
    pub told: Option<AttemptNo>,
    /// The run that a delegation started, with its name.
    pub child: Option<(RunId, String)>,
    /// How that run ended, in words.
    pub outcome: Option<String>,
    /// The asker is held until that run ends.
    pub held: bool,
    pub patience_ms: i64,
    pub state: RequestState,
    pub asked_at: Time,
    pub expires_at: SteadyTime,
}

/// The place of a request among those that were asked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Of them; stands for all.
    pub first: RequestNo,
    /// From 1.
    pub place: u32,
    pub size: u32,
}

/// What a run asks.
#[derive(Debug, Clone)]
pub struct NewRequest {
    pub id: RequestId,
    pub subject: Subject,
    pub question: String,
    pub own_id: Option<String>,
    pub context: Option<String>,
    /// Of several that are asked together only the first has it.
    pub clarification: Option<Clarification>,
    pub options: Vec<String>,
    /// Of a question: the answer that counts at the deadline.
    pub default: Option<String>,
    pub blocking: bool,
    pub by_block: bool,
    pub patience_ms: i64,
    pub expires_at: SteadyTime,
}

const COLUMNS: &str = "SELECT q.no, q.id, q.run, r.name, r.owner, q.question, q.context, q.options, q.fallback, q.blocking, q.patience_ms, q.status,
  q.answer, q.answered_by, q.asked_at, q.expires_at, q.answered_at, q.retrieved_at, q.ended_at, q.by_block,
  q.matter, q.verdict, q.changes, q.told, q.child, q.held, q.group_no, q.child_name, q.outcome,
  (SELECT count(*) FROM requests g WHERE g.group_no = q.group_no AND g.no <= q.no),
  (SELECT count(*) FROM requests g WHERE g.group_no = q.group_no),
  q.own_id, (SELECT f.clarification FROM requests f WHERE f.no = coalesce(q.group_no, q.no))";
const FROM: &str = "FROM requests q JOIN runs r ON r.id = q.run";
// The planner takes these for no better than all requests of a run, or of an owner's runs; there may
// be any number of settled ones.
const FROM_OPEN_OF_RUN: &str = "FROM requests q INDEXED BY requests_pending CROSS JOIN runs r ON r.id = q.run";
const FROM_OPEN: &str = "FROM requests q INDEXED BY requests_inbox CROSS JOIN runs r ON r.id = q.run";

fn read(row: &Row<'_>) -> rusqlite::Result<Result<Request, StoreError>> {
    struct Raw {
        id: String,
        run: String,
        owner: String,
        options: String,
        status: String,
        answer: Option<String>,
        by: Option<String>,
        default: Option<String>,
        subject: Option<String>,
        verdict: Option<String>,
        changes: Option<String>,
        child: Option<(String, String)>,
        clarification: Option<String>,
    }
    let raw = Raw {
        id: row.get(1)?,
        run: row.get(2)?,
        owner: row.get(4)?,
        options: row.get(7)?,
        status: row.get(11)?,
        answer: row.get(12)?,
        by: row.get(13)?,
        default: row.get(8)?,
        subject: row.get(20)?,
        verdict: row.get(21)?,
        changes: row.get(22)?,
        child: row.get::<_, Option<String>>(24)?.zip(row.get::<_, Option<String>>(27)?),
        clarification: row.get(32)?,
    };
    let own_id = row.get(31)?;
    let no = RequestNo(row.get(0)?);
    let time = |index| row.get::<_, Option<i64>>(index).map(|ms| ms.map(Time));
    let (answered_at, retrieved_at, ended_at) = (time(16)?, time(17)?, time(18)?);
    let (run_name, question, context): (_, String, _) = (row.get(3)?, row.get(5)?, row.get(6)?);
    let (blocking, patience_ms, by_block) = (row.get(9)?, row.get(10)?, row.get(19)?);
    let outcome = row.get(28)?;
    let (told, held) = (row.get::<_, Option<u32>>(23)?.map(AttemptNo), row.get(25)?);
    let (place, size) = (row.get(29)?, row.get(30)?);
    let group = row.get::<_, Option<i64>>(26)?.map(|first| Group { first: RequestNo(first), place, size });
    let (asked_at, expires_at) = (Time(row.get(14)?), SteadyTime(row.get(15)?));
    let decode = || {
        let answer = match (raw.answer, raw.by, answered_at) {
            (Some(answer), Some(by), Some(at)) => {
                let by = if by == "default" { AnsweredBy::Default } else { AnsweredBy::Principal(Principal::parse(&by)?) };
                let decision = DecisionRow { answer, verdict: raw.verdict, changes: raw.changes }.decode()?;
                Some(Answer { decision, by, at })
            }
            _ => None,
        };
        let state = match (raw.status.as_str(), answer, retrieved_at, ended_at) {
            ("pending", None, None, None) => RequestState::Pending,
            ("answered", Some(answer), None, None) => RequestState::Answered(answer),
            ("retrieved", Some(answer), Some(at), None) => RequestState::Retrieved { answer, at },
            ("expired", None, None, Some(at)) => RequestState::Expired { at },
            ("withdrawn", None, None, Some(at)) => RequestState::Withdrawn { at },
            _ => return None,
        };
        let subject = subject::read(&question, raw.subject.as_deref())?;
        // Versions before 0.2 kept a default for approvals, too. It does not count.
        let default = raw.default.filter(|_| subject == Subject::Question);
        let clarification = match raw.clarification {
            None => None,
            Some(written) => Some(subject::read_clarification(&written)?),
        };
        let child = match raw.child {
            None => None,
            Some((child, name)) => Some((RunId::parse(&child).ok()?, name)),
        };
        Some(Request {
            id: RequestId::parse(&raw.id).ok()?,
            no,
            run: RunId::parse(&raw.run).ok()?,
            run_name,
            owner: Principal::parse(&raw.owner)?,
            subject,
            question,
            own_id,
            context,
            clarification,
            options: serde_json::from_str(&raw.options).ok()?,
            default,
            blocking,
            by_block,
            group,
            told,
            child,
            outcome,
            held,
            patience_ms,
            state,
            asked_at,
            expires_at,
        })
    };
    Ok(decode().ok_or_else(|| StoreError::Corrupt(format!("request {no}"))))
}

fn one(connection: &Connection, condition: &str, value: &dyn rusqlite::ToSql) -> Result<Option<Request>, StoreError> {
    connection.prepare_cached(&format!("{COLUMNS} {FROM} WHERE {condition}"))?.query_row([value], read).optional()?.transpose()
}

/// Reads one request by its id.
///
/// # Errors
/// A failure of the store.
pub fn request_by_id(connection: &Connection, id: RequestId) -> Result<Option<Request>, StoreError> {
    one(connection, "q.id = ?1", &id.to_string())
}

/// Reads the delegation that started a run.
pub(super) fn request_by_child(connection: &Connection, child: RunId) -> Result<Option<Request>, StoreError> {
    one(connection, "q.child = ?1", &child.to_string())
}

/// Reads the open requests of every run below one, oldest first.
pub(super) fn requests_below(connection: &Connection, run: RunId, limit: u32) -> Result<Vec<Request>, StoreError> {
    connection
        .prepare_cached(&format!(
            "{COLUMNS} {FROM_OPEN_OF_RUN} WHERE q.status = 'pending' AND NOT (r.state = 'stopping' AND r.stop_reason = 'cancelled') AND q.run IN (
             WITH RECURSIVE below (id) AS (SELECT id FROM runs WHERE parent = ?1 UNION SELECT r.id FROM runs r JOIN below b ON r.parent = b.id)
             SELECT id FROM below) ORDER BY q.no LIMIT ?2"
        ))?
        .query_map(params![run.to_string(), limit], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Reads one request by its short number.
///
/// # Errors
/// A failure of the store.
pub fn request_by_no(connection: &Connection, no: RequestNo) -> Result<Option<Request>, StoreError> {
    one(connection, "q.no = ?1", &no.0)
}

/// Reads a request of a run and those that were asked together with it, in order.
///
/// # Errors
/// A failure of the store.
pub fn requests_together(connection: &Connection, request: &Request) -> Result<Vec<Request>, StoreError> {
    let Some(group) = request.group else { return Ok(vec![request.clone()]) };
    connection
        .prepare_cached(&format!("{COLUMNS} {FROM} WHERE q.group_no = ?1 ORDER BY q.no"))?
        .query_map([group.first.0], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Reads up to `limit` requests of one run, oldest first; only open ones unless `all`.
///
/// # Errors
/// A failure of the store.
pub fn requests_of(connection: &Connection, run: RunId, all: bool, limit: u32) -> Result<Vec<Request>, StoreError> {
    let from = if all { FROM } else { FROM_OPEN_OF_RUN };
    let open = if all { "" } else { "AND q.status = 'pending'" };
    connection
        .prepare_cached(&format!("{COLUMNS} {from} WHERE q.run = ?1 {open} ORDER BY q.no LIMIT ?2"))?
        .query_map(params![run.to_string(), limit], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Reads the newest `limit` requests of a run that are settled, or (`all`) whatever their state, oldest
/// first.
///
/// # Errors
/// A failure of the store.
pub fn newest_of(connection: &Connection, run: RunId, all: bool, limit: u32) -> Result<Vec<Request>, StoreError> {
    let settled = if all { "" } else { "AND q.status <> 'pending'" };
    let mut newest: Vec<Request> = connection
        .prepare_cached(&format!("{COLUMNS} {FROM} WHERE q.run = ?1 {settled} ORDER BY q.no DESC LIMIT ?2"))?
        .query_map(params![run.to_string(), limit], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect::<Result<_, _>>()?;
    newest.reverse();
    Ok(newest)
}

/// Reads up to `limit` requests of a run that were answered and not read yet, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn unread_of(connection: &Connection, run: RunId, limit: u32) -> Result<Vec<Request>, StoreError> {
    connection
        .prepare_cached(&format!("{COLUMNS} {FROM} WHERE q.run = ?1 AND q.status = 'answered' ORDER BY q.no LIMIT ?2"))?
        .query_map(params![run.to_string(), limit], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Reads what a new attempt is to be told: everything settled that no attempt which came to life
/// has got. An answer that was read counts as got; so does the end of a request that was told.
///
/// # Errors
/// A failure of the store.
pub fn undelivered_of(connection: &Connection, run: RunId, limit: u32) -> Result<Vec<Request>, StoreError> {
    connection
        .prepare_cached(&format!(
            "{COLUMNS} {FROM} WHERE q.run = ?1 AND q.held = 0 AND (q.status = 'answered' OR q.status IN ('expired', 'withdrawn') AND NOT EXISTS (
             SELECT 1 FROM attempts a WHERE a.run = q.run AND a.n = q.told AND a.started_at IS NOT NULL)) ORDER BY q.no LIMIT ?2"
        ))?
        .query_map(params![run.to_string(), limit], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Tells whether a run that has announced its stop has a blocking request that was settled since, or
/// whose answer has not been delivered.
pub(super) fn is_settled_beside_stop(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM requests WHERE run = ?1 AND blocking = 1 AND held = 0 AND status = 'answered')
        OR EXISTS (SELECT 1 FROM events e JOIN requests q ON q.id = e.request
          WHERE e.run = ?1 AND q.blocking = 1 AND e.kind IN (?3, ?4, ?5, ?6)
          AND e.seq > (SELECT seq FROM events WHERE run = ?1 AND kind = ?2 ORDER BY seq DESC LIMIT 1))";
    let words = params![
        run.to_string(),
        EventKind::RunStopping.word(),
        EventKind::RequestAnswered.word(),
        EventKind::RequestExpired.word(),
        EventKind::RequestWithdrawn.word(),
        EventKind::DelegationEnded.word()
    ];
    Ok(connection.prepare_cached(sql)?.query_row(words, |row| row.get(0))?)
}

/// Reads up to `limit` requests of a run that nothing has come of yet: delegations whose run is at
/// work, where a new attempt is not told of the approval anyway (see [`untold_of`]), then what nobody
/// has decided, what it waits for first. Returns also how many more there are.
///
/// # Errors
/// A failure of the store.
pub fn unsettled_of(connection: &Connection, run: &Run, limit: usize) -> Result<(Vec<Request>, usize), StoreError> {
    let at_work = format!(
        "{COLUMNS} FROM runs c CROSS JOIN requests q ON q.child = c.id CROSS JOIN runs r ON r.id = q.run
         WHERE c.parent = ?1 AND q.run = ?1 AND q.outcome IS NULL AND (q.held = 1 OR q.status = 'retrieved') ORDER BY q.no LIMIT ?2"
    );
    let undecided = format!("{COLUMNS} {FROM_OPEN_OF_RUN} WHERE q.run = ?1 AND q.status = 'pending' ORDER BY q.blocking DESC, q.no LIMIT ?2");
    let id = run.id.to_string();
    let list = |sql: &str, limit: usize| -> Result<Vec<Request>, StoreError> {
        let rows: Vec<_> = connection.prepare_cached(sql)?.query_map(params![id, limit as i64], read)?.collect::<Result<_, _>>()?;
        rows.into_iter().collect()
    };
    let mut found = list(&at_work, limits::OPEN_REQUESTS_MAX)?;
    let all = found.len() + usize::try_from(run.pending).unwrap_or(0);
    found.truncate(limit);
    found.extend(list(&undecided, limit - found.len())?);
    let more = all - found.len();
    Ok((found, more))
}

/// Whose requests a page holds.
#[derive(Debug, Clone, Copy)]
pub enum RequestsOf<'a> {
    Run(RunId),
    /// Those that a principal may answer.
    Answerer(&'a Principal),
}

/// Reads up to `limit` requests after one, oldest first, only open ones unless `all`; and how many more there
/// are.
///
/// # Errors
/// A failure of the store.
pub fn requests_page(
    connection: &Connection,
    of: RequestsOf<'_>,
    all: bool,
    after: RequestNo,
    limit: u32,
) -> Result<(Vec<Request>, u64), StoreError> {
    // A parameter that is not used would be refused.
    let (whose, from_open, condition) = match of {
        RequestsOf::Run(run) => (run.to_string(), FROM_OPEN_OF_RUN, "q.run = ?1"),
        RequestsOf::Answerer(Principal::Run(_)) => return Ok((Vec::new(), 0)),
        RequestsOf::Answerer(who @ Principal::Person) => (who.to_string(), FROM_OPEN, "?1 = ?1"),
        RequestsOf::Answerer(who @ Principal::Client(_)) => (who.to_string(), FROM_OPEN, "r.owner = ?1"),
    };
    let (from, open) = if all { (FROM, "1") } else { (from_open, "q.status = 'pending'") };
    let rest = format!("{from} WHERE {open} AND {condition} AND q.no > ?2");
    let found: Vec<Request> = connection
        .prepare_cached(&format!("{COLUMNS} {rest} ORDER BY q.no LIMIT ?3"))?
        .query_map(params![whose, after.0, limit], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect::<Result<_, _>>()?;
    let more = match found.last() {
        Some(last) if found.len() == limit as usize => {
            let more: i64 = connection.prepare_cached(&format!("SELECT count(*) {rest}"))?.query_row(params![whose, last.no.0], |row| row.get(0))?;
            u64::try_from(more).unwrap_or(0)
        }
        _ => 0,
    };
    Ok((found, more))
}

impl Request {
    fn terms(&self) -> RequestTerms {
        RequestTerms {
            asker: self.run,
            kind: self.subject.kind(),
            expires_at: self.expires_at,
            default: self.default.clone(),
            told: self.told.is_some(),
            held: self.held,
        }
    }

    /// Tells whether there is something that the asker can go on with.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.is_settled() && !self.held
    }
}

/// How one step of a request is told in the history: as what, by whom, and with what text.
fn event_of(request: &Request, from: &RequestState, to: &RequestState) -> Result<(EventKind, String, String), StoreError> {
    Ok(match to {
        RequestState::Answered(answer) => {
            let kind = if *from == RequestState::Pending { EventKind::RequestAnswered } else { EventKind::RequestVetoed };
            (kind, answer.by.to_string(), super::events::first_line(&answer.decision.to_text()))
        }
        RequestState::Retrieved { .. } => (EventKind::RequestRetrieved, Principal::Run(request.run).to_string(), String::new()),
        RequestState::Expired { .. } => (EventKind::RequestExpired, "hub".to_owned(), String::new()),
        RequestState::Withdrawn { .. } => (EventKind::RequestWithdrawn, "hub".to_owned(), String::new()),
        RequestState::Pending => return Err(StoreError::Corrupt(format!("request {} became pending again", request.no))),
    })
}

impl Tx<'_> {
    /// Opens a request of a live run.
    ///
    /// # Errors
    /// `RunFinished` or `WrongState` when the run is not live, `Limit` when it has too many open.
    pub fn ask(&mut self, run: &Run, new: &NewRequest) -> Result<Request, StoreError> {
        match run.state {
            state if state.is_live() => {}
            adjutant_core::RunState::Finished(outcome) => return Err(Denied::RunFinished(outcome).into()),
            state => return Err(Denied::WrongState { state: state.word(), wanted: "asking" }.into()),
        }
        if run.pending >= limits::OPEN_REQUESTS_MAX as i64 {
            return Err(Denied::Limit { what: "open requests of one run", limit: limits::OPEN_REQUESTS_MAX as u64 }.into());
        }
        self.wake_by(new.expires_at);
        let corrupt = |error: serde_json::Error| StoreError::Corrupt(error.to_string());
        let options = serde_json::to_string(&new.options).map_err(corrupt)?;
        self.prepare(
            "INSERT INTO requests (id, run, kind, question, context, options, fallback, blocking, patience_ms, asked_at, expires_at, by_block, matter,
             own_id, clarification) VALUES (?1, ?2, ?12, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?13, ?14, ?15)",
        )?
        .execute(params![
            new.id.to_string(),
            run.id.to_string(),
            new.question,
            new.context,
            options,
            new.default,
            new.blocking,
            new.patience_ms,
            self.now().0,
            new.expires_at.0,
            new.by_block,
            new.subject.kind().word(),
            subject::write(&new.subject).map_err(corrupt)?,
            new.own_id,
            new.clarification.as_ref().map(subject::write_clarification).transpose().map_err(corrupt)?
        ])?;
        let no = RequestNo(self.connection().last_insert_rowid());
        self.notify_ancestors(run)?;
        let seq = append_event(
            self,
            EventKind::RequestAsked,
            run.id,
            &run.owner.to_string(),
            Some(new.id),
            &Principal::Run(run.id).to_string(),
            &format!("{no} {}", super::events::first_line(&new.question)),
        )?;
        self.prepare(
            "UPDATE runs SET pending = pending + 1, blocking_pending = blocking_pending + ?2, last_seq = ?3, updated_at = ?4,
             active_ms = active_ms + iif(?2, max(0, ?5 - coalesce(active_since, ?5)), 0), active_since = iif(?2, NULL, active_since) WHERE id = ?1",
        )?
        .execute(params![run.id.to_string(), new.blocking, seq.0, self.now().0, self.steady().0])?;
        Ok(Request {
            id: new.id,
            no,
            run: run.id,
            run_name: run.name.clone(),
            owner: run.owner.clone(),
            subject: new.subject.clone(),
            question: new.question.clone(),
            own_id: new.own_id.clone(),
            context: new.context.clone(),
            clarification: new.clarification.clone(),
            options: new.options.clone(),
            default: new.default.clone(),
            blocking: new.blocking,
            by_block: new.by_block,
            group: None,
            told: None,
            child: None,
            outcome: None,
            held: false,
            patience_ms: new.patience_ms,
            state: RequestState::Pending,
            asked_at: self.now(),
            expires_at: new.expires_at,
        })
    }

    /// Opens several requests of a live run as one group: all of them or none.
    ///
    /// # Errors
    /// As for one.
    pub fn ask_together(&mut self, run: &Run, news: &[NewRequest]) -> Result<Vec<Request>, StoreError> {
        let (count, max) = (i64::try_from(news.len()).unwrap_or(i64::MAX), limits::OPEN_REQUESTS_MAX as i64);
        if run.pending.saturating_add(count) > max {
            return Err(Denied::Limit { what: "open requests of one run", limit: limits::OPEN_REQUESTS_MAX as u64 }.into());
        }
        let mut asked = Vec::with_capacity(news.len());
        for new in news {
            let run = self.run(run.id)?;
            asked.push(self.ask(&run, new)?);
        }
        let (Some(first), size, true) = (asked.first().map(|first| first.no), u32::try_from(asked.len()).unwrap_or(u32::MAX), asked.len() > 1) else {
            return Ok(asked);
        };
        for (place, request) in (1..).zip(&mut asked) {
            self.prepare("UPDATE requests SET group_no = ?2 WHERE no = ?1")?.execute(params![request.no.0, first.0])?;
            request.group = Some(Group { first, place, size });
        }
        Ok(asked)
    }

    /// Lets something happen to a request and records it. Returns the request as it is then.
    ///
    /// # Errors
    /// What the rules refuse.
    pub fn settle(&mut self, request: &Request, event: RequestEvent) -> Result<Request, StoreError> {
        let next = apply(&request.state, &request.terms(), event, self.moment())?;
        self.apply_states(request, &[next])
    }

    /// The same, where the asker waits for it: what is answered is retrieved at once, and given to the call that
    /// waits. Both are in the history.
    ///
    /// # Errors
    /// What the rules refuse.
    pub fn settle_and_retrieve(&mut self, request: &Request, event: RequestEvent) -> Result<Request, StoreError> {
        let answered = apply(&request.state, &request.terms(), event, self.moment())?;
        let retrieved = apply(&answered, &request.terms(), RequestEvent::Retrieve, self.moment())?;
        let settled = self.apply_states(request, &[answered, retrieved])?;
        // Messages go with the answer; a call that has some to take looks for itself.
        if !has_queued_messages(self.connection(), request.run)? {
            self.deliver_settled(&settled);
        }
        Ok(settled)
    }

    /// Records the states that a request goes through now.
    fn apply_states(&mut self, request: &Request, states: &[RequestState]) -> Result<Request, StoreError> {
        let mut before = &request.state;
        let mut steps = Vec::with_capacity(states.len());
        for state in states {
            if state != before {
                steps.push((before, state));
                before = state;
            }
        }
        let Some((_, last)) = steps.last().copied() else { return Ok(request.clone()) };
        let answer = last.answer();
        let row = answer.map(|answer| DecisionRow::of(&answer.decision)).transpose().map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let retrieved_at = if let RequestState::Retrieved { at, .. } = last { Some(at.0) } else { None };
        let ended_at = if let RequestState::Expired { at } | RequestState::Withdrawn { at } = last { Some(at.0) } else { None };
        let changed = self
            .prepare(
                "UPDATE requests SET status = ?2, answer = ?3, answered_by = ?4, answered_at = ?5, retrieved_at = ?6, ended_at = ?7, verdict = ?9, changes = ?10
                 WHERE id = ?1 AND status = ?8 AND (status = 'pending' OR status = 'answered' AND ?2 IN ('answered', 'retrieved'))",
            )?
            .execute(params![
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
        if changed != 1 {
            return Err(StoreError::Corrupt(format!("request {} changed within its transaction", request.no)));
        }
        let (owner, mut seq, mut unread) = (request.owner.to_string(), EventSeq(0), 0);
        for (from, to) in &steps {
            let (kind, by, text) = event_of(request, from, to)?;
            let text = format!("{} {text}", request.no);
            seq = append_event(self, kind, request.run, &owner, Some(request.id), &by, text.trim_end())?;
            unread += match (from, to) {
                (RequestState::Pending, RequestState::Answered(_)) => 1,
                (RequestState::Answered(_), RequestState::Retrieved { .. }) => -1,
                _ => 0,
            };
        }
        let was_pending = i64::from(request.state == RequestState::Pending);
        let was_blocking = i64::from(request.blocking && was_pending == 1);
        self.prepare(
            "UPDATE runs SET pending = pending - ?2, blocking_pending = blocking_pending - ?3, unread = unread + ?4, last_seq = ?5, updated_at = ?6,
             active_since = CASE WHEN state IN ('running', 'stopping') AND blocking_pending = ?3 AND holding = 0 THEN coalesce(active_since, ?7) END
             WHERE id = ?1",
        )?
        .execute(params![request.run.to_string(), was_pending, was_blocking, unread, seq.0, self.now().0, self.steady().0])?;
        self.notify(Topic::Request(request.id));
        self.notify(Topic::Answer(request.run, request.id));
        if was_blocking == 1 {
            self.look_by_estimate(request.run)?;
            self.resume_settled(request.run, true)?;
        }
        Ok(Request { state: last.clone(), ..request.clone() })
    }

    /// Records that an attempt received the result of a request: from here on it counts as used.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn tell(&mut self, request: &Request, attempt: AttemptNo) -> Result<(), StoreError> {
        self.prepare("UPDATE requests SET told = ?2 WHERE id = ?1")?.execute(params![request.id.to_string(), attempt.0])?;
        Ok(())
    }

    /// Resumes a stopped run that waits for its blocking requests when none of them is open any more.
    /// `settled`: see [`Blocking`].
    pub(super) fn resume_settled(&mut self, run: RunId, settled: bool) -> Result<(), StoreError> {
        let stopped: bool = self
            .prepare("SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND state = 'stopped' AND blocking_pending = 0 AND holding = 0)")?
            .query_row([run.to_string()], |row| row.get(0))?;
        if !stopped {
            return Ok(());
        }
        let run = self.run(run)?;
        if resumes_now(run.state, Blocking { open: run.is_waiting(), settled }) {
            self.advance(&run, RunEvent::Resumed, Retention { stopped_ms: 0 }, "hub", "its questions are settled")?;
        }
        Ok(())
    }

    /// Withdraws the open requests of a run that has ended; `all`, or those that make no sense
    /// without it.
    pub(super) fn withdraw_requests(&mut self, run: RunId, all: bool) -> Result<(), StoreError> {
        for request in requests_of(self.connection(), run, false, limits::OPEN_REQUESTS_MAX as u32)? {
            if all || !request.subject.outlives_its_run() {
                self.settle(&request, RequestEvent::Withdraw)?;
            }
        }
        Ok(())
    }

    /// Settles every request whose deadline has come, and returns them as they are then.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn settle_due(&mut self) -> Result<Vec<Request>, StoreError> {
        let due: Vec<_> = self
            .prepare(&format!("{COLUMNS} {FROM_OPEN} WHERE q.status = 'pending' AND q.expires_at <= ?1 ORDER BY q.expires_at LIMIT 500"))?
            .query_map([self.steady().0], read)?
            .collect::<Result<Vec<_>, _>>()?;
        due.into_iter().map(|request| self.settle(&request?, RequestEvent::Deadline)).collect()
    }

    /// Reads the run that asked.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn asker(&self, request: &Request) -> Result<Run, StoreError> {
        run_by_id(self.connection(), request.run)?.ok_or_else(|| StoreError::Corrupt(format!("request {} of no run", request.no)))
    }
}
