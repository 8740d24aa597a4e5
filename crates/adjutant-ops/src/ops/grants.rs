//! Grants: approvals that also answer the same operation again. Giving, listing and revoking them.

use crate::clock;
use crate::clock::rfc3339;
use crate::ops::{Caller, OpError, lookup};
use crate::store::{Grant, Store, StoreError, grant_by_no, grants};
use crate::view::{GrantList, GrantStateKind, GrantView, ListGrants, RevokeGrant};
use adjutant_core::policy::{GrantNo, GrantState, GrantTerms};
use adjutant_core::{Action, Denied, Principal};

/// Maximum number of grants in a list.
const LIST_MAX: u32 = 1_000;

/// Lists grants: the caller's own, for the person all.
///
/// # Errors
/// The caller is a run.
pub fn list_grants(
    store: &Store,
    who: &Principal,
    call: &ListGrants,
) -> Result<GrantList, OpError> {
    lookup::check(who, Action::ListRequests)?;
    let found = store.read(|connection| grants(connection, who, LIST_MAX))?;
    let is_listed = |grant: &GrantView| call.all || grant.state == GrantStateKind::Active;
    Ok(GrantList {
        grants: found.iter().map(view).filter(is_listed).collect(),
    })
}

/// Revokes a grant.
///
/// # Errors
/// It is unknown, foreign or already revoked.
pub async fn revoke_grant(
    store: &Store,
    caller: Caller,
    call: RevokeGrant,
) -> Result<GrantView, OpError> {
    lookup::check(&caller.who, Action::Answer)?;
    caller
        .write(store, move |tx, who| {
            let not_found = || StoreError::from(Denied::not_found("grant", &call.grant));
            let no = GrantNo::parse(&call.grant).map_err(|_| not_found())?;
            let grant = grant_by_no(tx.connection(), no)?.ok_or_else(not_found)?;
            lookup::run(
                tx.connection(),
                who,
                Action::Answer,
                &grant.root.to_string(),
            )
            .map_err(|_| not_found())?;
            if !tx.revoke_grant(&grant, who)? {
                return Err(Denied::conflict("grant", format!("{no} is already revoked")).into());
            }
            let grant = grant_by_no(tx.connection(), no)?.ok_or_else(not_found)?;
            Ok(view(&grant))
        })
        .await
}

fn view(grant: &Grant) -> GrantView {
    let Grant {
        no,
        root,
        root_name,
        what,
        request,
        granted_by,
        granted_at,
        terms,
        state,
        revoked,
        answered,
    } = grant;
    let (revoked_at, revoked_by) = revoked
        .clone()
        .map(|(at, by)| (rfc3339(at), by.to_string()))
        .unzip();
    GrantView {
        number: no.to_string(),
        state: state_kind(*state, *terms).into(),
        what: what.clone(),
        root: root.to_string(),
        root_name: root_name.clone(),
        request: request.to_string(),
        granted_by: granted_by.to_string(),
        granted_at: rfc3339(*granted_at),
        expires_at: terms
            .expires_at
            .map(|at| rfc3339(clock::expected_wall_time(at))),
        uses: state.uses,
        uses_max: terms.uses_max,
        answered: answered.iter().map(ToString::to_string).collect(),
        revoked_at,
        revoked_by,
    }
}

fn state_kind(state: GrantState, terms: GrantTerms) -> GrantStateKind {
    if state.is_revoked {
        GrantStateKind::Revoked
    } else if terms.expires_at.is_some_and(|at| clock::steady() >= at) {
        GrantStateKind::Expired
    } else if terms.uses_max.is_some_and(|max| state.uses >= max) {
        GrantStateKind::UsedUp
    } else if state.is_tree_over {
        GrantStateKind::Over
    } else {
        GrantStateKind::Active
    }
}
