//! Lists of requests.

use super::row::{FROM, FROM_OPEN, FROM_OPEN_OF_RUN, list};
use crate::store::db::{self, Columns, Connection, Record, params, row};
use crate::store::records::request::escalated;
use crate::store::{Request, Run, StoreError};
use adjutant_core::{EventKind, Principal, RequestId, RequestNo, RunId, SteadyTime, limits};

/// Reads the open requests of all descendants of a run, oldest first.
fn requests_below(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    list(connection, &format!("{FROM_OPEN_OF_RUN} WHERE q.status = 'pending' AND NOT (r.state = 'stopping' AND r.stop_reason = 'cancelled') AND q.run IN (
             WITH RECURSIVE below (id) AS (SELECT id FROM runs WHERE parent = ?1 UNION SELECT r.id FROM runs r JOIN below b ON r.parent = b.id)
             SELECT id FROM below) ORDER BY q.no LIMIT ?2"), params![run.to_string(), limit])
}

/// Reads the open approvals of all runs of a tree, oldest first.
pub(in crate::store) fn open_approvals_of_tree(
    connection: &Connection,
    root: RunId,
) -> Result<Vec<Request>, StoreError> {
    list(
        connection,
        &format!(
            "{FROM_OPEN} WHERE q.status = 'pending' AND q.kind = 'approval' AND r.root = ?1 ORDER BY q.no"
        ),
        [root.to_string()],
    )
}

row! {
    /// An open request, as escalation sees it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WaitingRequest as q, named "request Q{}: to whom it was escalated" {
        pub no: RequestNo,
        pub id: RequestId,
        pub waits_since: SteadyTime,
        /// The people to whom it was escalated.
        pub escalated: Vec<String> as names_of_escalated,
    }
}

fn names_of_escalated(columns: &mut Columns<'_>) -> db::Result<Vec<String>> {
    let people = escalated(columns)?;
    Ok(people.into_iter().map(|(name, _)| name).collect())
}

/// Reads the oldest `limit` open requests of all runs after `after`.
///
/// # Errors
/// A failure of the store.
pub fn waiting_requests(
    connection: &Connection,
    after: RequestNo,
    limit: u32,
) -> Result<Vec<WaitingRequest>, StoreError> {
    let sql = WaitingRequest::select(&format!(
        "{FROM_OPEN} WHERE q.status = 'pending' AND q.no > ?1 ORDER BY q.no LIMIT ?2"
    ));
    Ok(connection
        .prepare_cached(&sql)?
        .read_rows(params![after.0, limit])?)
}

/// Reads the newest `limit` approvals of all runs, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn newest_approvals(connection: &Connection, limit: u32) -> Result<Vec<Request>, StoreError> {
    let mut newest: Vec<Request> = list(
        connection,
        &format!("{FROM} WHERE q.kind = 'approval' ORDER BY q.no DESC LIMIT ?1"),
        [limit],
    )?;
    newest.reverse();
    Ok(newest)
}

/// Reads up to `limit` requests of one run, oldest first; only open ones unless `all`.
///
/// # Errors
/// A failure of the store.
pub fn requests_of(
    connection: &Connection,
    run: RunId,
    all: bool,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    let from = if all { FROM } else { FROM_OPEN_OF_RUN };
    let open = if all { "" } else { "AND q.status = 'pending'" };
    list(
        connection,
        &format!("{from} WHERE q.run = ?1 {open} ORDER BY q.no LIMIT ?2"),
        params![run.to_string(), limit],
    )
}

/// Reads the newest `limit` settled requests of a run, or (`all`) requests in any state, oldest
/// first.
///
/// # Errors
/// A failure of the store.
pub fn newest_of(
    connection: &Connection,
    run: RunId,
    all: bool,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    let settled = if all { "" } else { "AND q.status <> 'pending'" };
    let mut newest: Vec<Request> = list(
        connection,
        &format!("{FROM} WHERE q.run = ?1 {settled} ORDER BY q.no DESC LIMIT ?2"),
        params![run.to_string(), limit],
    )?;
    newest.reverse();
    Ok(newest)
}

/// Reads up to `limit` requests of a run that were answered but not yet read, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn unread_of(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    list(
        connection,
        &format!("{FROM} WHERE q.run = ?1 AND q.status = 'answered' ORDER BY q.no LIMIT ?2"),
        params![run.to_string(), limit],
    )
}

/// Reads the settled requests that a new attempt's prompt must report: those that no started
/// attempt has received. A request whose answer was read, or whose end was reported, counts as
/// received.
///
/// # Errors
/// A failure of the store.
pub fn undelivered_of(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    list(connection, &format!("{FROM} WHERE q.run = ?1 AND q.held = 0 AND (q.status = 'answered' OR q.status IN ('expired', 'withdrawn') AND NOT EXISTS (
             SELECT 1 FROM attempts a WHERE a.run = q.run AND a.n = q.told AND a.started_at IS NOT NULL)) ORDER BY q.no LIMIT ?2"), params![run.to_string(), limit])
}

/// Returns whether a run that announced its stop has a blocking request that was settled since or
/// whose answer was not delivered.
pub(in crate::store) fn has_settled_since_stop(
    connection: &Connection,
    run: RunId,
) -> Result<bool, StoreError> {
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
    Ok(connection.prepare_cached(sql)?.read_row(words)?)
}

/// Reads up to `limit` requests of a run without an outcome: first delegations whose child has not
/// ended, unless a new attempt's prompt reports the approval (see [`undelivered_of`]), then
/// undecided requests, blocking ones first. Also returns the number of further requests.
///
/// # Errors
/// A failure of the store.
pub fn unsettled_of(
    connection: &Connection,
    run: &Run,
    limit: usize,
) -> Result<(Vec<Request>, usize), StoreError> {
    let at_work = "FROM runs c CROSS JOIN requests q ON q.child = c.id CROSS JOIN runs r ON r.id = q.run
         WHERE c.parent = ?1 AND q.run = ?1 AND q.outcome IS NULL AND (q.held = 1 OR q.status = 'retrieved') ORDER BY q.no LIMIT ?2";
    let undecided = format!(
        "{FROM_OPEN_OF_RUN} WHERE q.run = ?1 AND q.status = 'pending' ORDER BY q.blocking DESC, q.no LIMIT ?2"
    );
    let id = run.id.to_string();
    let list = |rest: &str, limit: usize| list(connection, rest, params![id, limit as i64]);
    let mut found = list(at_work, limits::OPEN_REQUESTS_MAX)?;
    let all = found.len() + usize::try_from(run.pending).unwrap_or(0);
    found.truncate(limit);
    found.extend(list(&undecided, limit - found.len())?);
    let more = all - found.len();
    Ok((found, more))
}

/// Which requests to list.
#[derive(Debug, Clone, Copy)]
pub enum RequestsOf<'a> {
    Run(RunId),
    /// The requests that a principal may answer.
    Answerer(&'a Principal),
}

/// Reads up to `limit` requests after one, oldest first, only open ones unless `all`. Also returns
/// the number of further requests.
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
    // SQLite rejects a bound parameter that the statement does not use.
    let (whose, from_open, condition) = match of {
        RequestsOf::Run(run) => (run.to_string(), FROM_OPEN_OF_RUN, "q.run = ?1"),
        RequestsOf::Answerer(Principal::Run(_)) => return Ok((Vec::new(), 0)),
        RequestsOf::Answerer(who @ Principal::Person) => (who.to_string(), FROM_OPEN, "?1 = ?1"),
        RequestsOf::Answerer(who @ Principal::Client(_)) => {
            (who.to_string(), FROM_OPEN, "r.owner = ?1")
        }
    };
    let (from, open) = if all {
        (FROM, "TRUE")
    } else {
        (from_open, "q.status = 'pending'")
    };
    let rest = format!("{from} WHERE {open} AND {condition} AND q.no > ?2");
    let found: Vec<Request> = list(
        connection,
        &format!("{rest} ORDER BY q.no LIMIT ?3"),
        params![whose, after.0, limit],
    )?;
    let more = match found.last() {
        Some(last) if found.len() == limit as usize => {
            let more: i64 = connection
                .prepare_cached(&format!("SELECT count(*) {rest}"))?
                .read_row(params![whose, last.no.0])?;
            u64::try_from(more).unwrap_or(0)
        }
        _ => 0,
    };
    Ok((found, more))
}

/// Reads the pending requests whose deadline has passed, those of the earliest first.
///
/// # Errors
/// A failure of the store.
pub(in crate::store) fn due_requests(
    connection: &Connection,
    now: SteadyTime,
) -> Result<Vec<Request>, StoreError> {
    list(
        connection,
        &format!(
            "{FROM_OPEN} WHERE q.status = 'pending' AND q.expires_at <= ?1 ORDER BY q.expires_at LIMIT 500"
        ),
        [now.0],
    )
}

/// Reads the open requests of everything below a run, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn open_below(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    let has_children: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs WHERE parent = ?1)")?
        .read_row([run.to_string()])?;
    if has_children {
        requests_below(connection, run, limit)
    } else {
        Ok(Vec::new())
    }
}
