//! Grants: approvals that also answer the same operation again within a tree of runs.

use super::ids::{unsigned, unsigned_if_any};
use super::{Request, Run, StoreError, Tx, append_event};
use crate::store::db::{Connection, Record, params, row};
use adjutant_core::policy::{GrantNo, GrantState, GrantTerms, use_grant};
use adjutant_core::{
    AnsweredBy, EventKind, Principal, RequestId, RequestNo, RunId, SteadyTime, Time,
};

/// One stored grant.
#[derive(Debug, Clone)]
pub struct Grant {
    pub no: GrantNo,
    /// The topmost run of the tree.
    pub root: RunId,
    pub root_name: String,
    /// What is granted, in one line.
    pub what: String,
    /// The approval by which it was given.
    pub request: RequestNo,
    pub granted_by: Principal,
    pub granted_at: Time,
    pub terms: GrantTerms,
    pub state: GrantState,
    /// When it was revoked, and by which principal.
    pub revoked: Option<(Time, Principal)>,
    /// The newest requests that it has answered, oldest first.
    pub answered: Vec<RequestNo>,
}

row! {
    /// A grant without the requests that it has answered.
    struct GrantRow as g, named "grant G{}" {
        no: GrantNo,
        root: RunId,
        root_name: String = "r.name",
        what: String,
        request: RequestNo,
        granted_by: Principal,
        granted_at: Time,
        expires_at: Option<SteadyTime>,
        uses_max: Option<u64> as unsigned_if_any,
        uses: u64 as unsigned,
        revoked_at: Option<Time>,
        revoked_by: Option<Principal>,
        is_tree_over: bool = "r.state = 'finished'",
    }
}

impl GrantRow {
    fn grant(self, answered: Vec<RequestNo>) -> Grant {
        let Self {
            no,
            root,
            root_name,
            what,
            request,
            granted_by,
            granted_at,
            expires_at,
            uses_max,
            uses,
            revoked_at,
            revoked_by,
            is_tree_over,
        } = self;
        let revoked = revoked_at.zip(revoked_by);
        Grant {
            no,
            root,
            root_name,
            what,
            request,
            granted_by,
            granted_at,
            terms: GrantTerms {
                expires_at,
                uses_max,
            },
            state: GrantState {
                uses,
                is_revoked: revoked.is_some(),
                is_tree_over,
            },
            revoked,
            answered,
        }
    }
}

/// The data of a new grant.
#[derive(Debug, Clone)]
pub struct NewGrant {
    pub root: RunId,
    /// A hash of what identifies the operation.
    pub identity: String,
    pub what: String,
    pub request: RequestNo,
    pub by: Principal,
    pub terms: GrantTerms,
}

/// How many of the requests that a grant has answered are read.
const ANSWERED_MAX: usize = 20;

const FROM: &str = "FROM grants g JOIN runs r ON r.id = g.root";

/// Reads the newest `limit` grants that a principal may see, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn grants(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Vec<Grant>, StoreError> {
    // SQLite rejects a bound parameter that the statement does not use.
    let whose = match who {
        Principal::Person => "?1 = ?1",
        Principal::Client(_) => "r.owner = ?1",
        Principal::Run(_) => return Ok(Vec::new()),
    };
    let found: Vec<GrantRow> = connection
        .prepare_cached(&GrantRow::select(&format!(
            "{FROM} WHERE {whose} ORDER BY g.no DESC LIMIT ?2"
        )))?
        .read_rows(params![who.to_string(), limit])?;
    let with_answered = |row: GrantRow| {
        let answered = answered_requests(connection, row.no)?;
        Ok(row.grant(answered))
    };
    found.into_iter().rev().map(with_answered).collect()
}

/// Reads one grant.
///
/// # Errors
/// A failure of the store.
pub fn grant_by_no(connection: &Connection, no: GrantNo) -> Result<Option<Grant>, StoreError> {
    let found: Option<GrantRow> = connection
        .prepare_cached(&GrantRow::select(&format!("{FROM} WHERE g.no = ?1")))?
        .find_row([no.0])?;
    found
        .map(|row| Ok(row.grant(answered_requests(connection, no)?)))
        .transpose()
}

fn answered_requests(connection: &Connection, no: GrantNo) -> Result<Vec<RequestNo>, StoreError> {
    let mut newest: Vec<RequestNo> = connection
        .prepare_cached("SELECT q.no FROM grant_uses u JOIN requests q ON q.id = u.request WHERE u.grant_no = ?1 ORDER BY q.no DESC LIMIT ?2")?
        .read_rows(params![no.0, ANSWERED_MAX as i64])?;
    newest.reverse();
    Ok(newest)
}

/// Returns how often each rule has answered, and when last.
///
/// # Errors
/// A failure of the store.
pub fn answers_by_rules(
    connection: &Connection,
) -> Result<Vec<(AnsweredBy, u64, Time)>, StoreError> {
    let rows: Vec<(String, i64, Time)> = connection
        .prepare_cached("SELECT answered_by, count(*), max(answered_at) FROM requests WHERE kind = 'approval' AND substr(answered_by, 1, 7) = 'policy ' GROUP BY answered_by")?
        .read_rows([])?;
    let parsed = rows.into_iter().map(|(by, count, at)| {
        let by = AnsweredBy::parse(&by)
            .ok_or_else(|| StoreError::Corrupt(format!("answered by {by}")))?;
        Ok((by, u64::try_from(count).unwrap_or(0), at))
    });
    parsed.collect()
}

impl Tx<'_> {
    /// Stores a grant and records it in the history of the root.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_grant(&mut self, new: &NewGrant) -> Result<GrantNo, StoreError> {
        let NewGrant {
            root,
            identity,
            what,
            request,
            by,
            terms,
        } = new;
        let root = self.run(*root)?;
        let no = self.prepare(
            "INSERT INTO grants (root, identity, what, request, granted_by, granted_at, expires_at, uses_max) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .insert("no", params![
            root.id.to_string(),
            identity,
            what,
            request.0,
            by.to_string(),
            self.now().0,
            terms.expires_at.map(|at| at.0),
            terms.uses_max.map(|max| i64::try_from(max).unwrap_or(i64::MAX))
        ])?;
        let no = GrantNo(no);
        record_grant(
            self,
            EventKind::GrantGiven,
            &root,
            by,
            &format!("{no} {}", super::events::first_line(what)),
        )?;
        Ok(no)
    }

    /// Uses a grant of a tree for an operation, if one answers it now. The caller answers the
    /// request in the same transaction.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn use_grant_for(
        &mut self,
        root: RunId,
        identity: &str,
        request: RequestId,
    ) -> Result<Option<GrantNo>, StoreError> {
        let found: Vec<GrantRow> = self
            .prepare(&GrantRow::select(&format!("{FROM} WHERE g.root = ?1 AND g.identity = ?2 AND g.revoked_at IS NULL ORDER BY g.no")))?
            .read_rows(params![root.to_string(), identity])?;
        for row in found {
            let Grant {
                no, state, terms, ..
            } = row.grant(Vec::new());
            let Ok(used) = use_grant(state, terms, self.steady()) else {
                continue;
            };
            let changed = self.prepare("UPDATE grants SET uses = ?2 WHERE no = ?1 AND uses = ?3 AND revoked_at IS NULL")?.execute(params![
                no.0,
                i64::try_from(used.uses).unwrap_or(i64::MAX),
                i64::try_from(state.uses).unwrap_or(i64::MAX)
            ])?;
            if changed != 1 {
                return Err(StoreError::Corrupt(format!(
                    "grant {no} changed within its transaction"
                )));
            }
            self.prepare("INSERT INTO grant_uses (grant_no, request) VALUES (?1, ?2)")?
                .run(params![no.0, request.to_string()])?;
            return Ok(Some(no));
        }
        Ok(None)
    }

    /// Revokes a grant. Returns whether this call revoked it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn revoke_grant(&mut self, grant: &Grant, by: &Principal) -> Result<bool, StoreError> {
        let changed = self.prepare("UPDATE grants SET revoked_at = ?2, revoked_by = ?3 WHERE no = ?1 AND revoked_at IS NULL")?.execute(params![
            grant.no.0,
            self.now().0,
            by.to_string()
        ])?;
        if changed == 1 {
            let root = self.run(grant.root)?;
            record_grant(
                self,
                EventKind::GrantRevoked,
                &root,
                by,
                &grant.no.to_string(),
            )?;
        }
        Ok(changed == 1)
    }

    /// Reads the open approvals of a tree, oldest first.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn open_approvals_of_tree(&self, root: RunId) -> Result<Vec<Request>, StoreError> {
        super::requests::open_approvals_of_tree(self.connection(), root)
    }
}

fn record_grant(
    tx: &mut Tx<'_>,
    kind: EventKind,
    root: &Run,
    by: &Principal,
    text: &str,
) -> Result<(), StoreError> {
    let seq = append_event(
        tx,
        kind,
        root.id,
        &root.owner.to_string(),
        None,
        &by.to_string(),
        text,
    )?;
    tx.prepare("UPDATE runs SET last_seq = ?2, updated_at = ?3 WHERE id = ?1")?
        .run(params![root.id.to_string(), seq.0, tx.now().0])?;
    Ok(())
}
