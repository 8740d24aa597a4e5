//! Changes of the policies in the configuration file. A run without a fence can write the file, so
//! what changes while runs are live counts only when the person has trusted it; until then, it only
//! restricts.

use crate::config::PolicySet;
use crate::ops::policy_file::{InEffect, PolicyFile};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup, render};
use crate::store::{Connection, Store, StoreError, answers_by_rules, has_live_runs};
use crate::view::{ChangedPolicy, PolicyChangeView, TrustPolicyChange};
use adjutant_core::policy::{Policy, PolicyDecision};
use adjutant_core::{Action, Denied, Principal};

/// Length of the text that identifies a change, in characters of its hash.
const CHANGE_CHARS: usize = 16;

/// Returns the change of the policies that waits for the person's trust. Nobody else sees it.
pub(super) fn policy_change(
    settings: &Settings,
    connection: &Connection,
    who: &Principal,
) -> Result<Option<PolicyChangeView>, StoreError> {
    if *who == Principal::Person {
        change_of(&PolicyFile::of(settings), connection)
    } else {
        Ok(None)
    }
}

/// Describes the change that waits for the person's trust, if one does.
pub(super) fn change_of(
    file: &PolicyFile,
    connection: &Connection,
) -> Result<Option<PolicyChangeView>, StoreError> {
    let InEffect {
        policies,
        change: Some(change),
    } = file.in_effect(connection)?
    else {
        return Ok(None);
    };
    let answers = answers_by_rules(connection)?;
    let entry = |policy: &Policy, is_added: bool| ChangedPolicy {
        policy: render::policy(policy, &answers),
        is_added,
        permits: is_added == (policy.decision == PolicyDecision::Allow),
    };
    let removed = policies
        .iter()
        .filter(|policy| !change.policies().contains(policy))
        .map(|policy| entry(policy, false));
    let added = change
        .policies()
        .iter()
        .filter(|policy| !policies.contains(policy))
        .map(|policy| entry(policy, true));
    Ok(Some(PolicyChangeView {
        change: change_id(&change),
        file: file.path().display().to_string(),
        policies: removed.chain(added).collect(),
    }))
}

/// Returns what identifies a change: its content, so that the person trusts what was shown and
/// nothing later.
fn change_id(change: &PolicySet) -> String {
    change.digest().chars().take(CHANGE_CHARS).collect()
}

/// Trusts a change of the configuration's policies: it is in effect from now on.
///
/// # Errors
/// The caller is not the person, no change waits, or another one does.
pub async fn trust_policy_change(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    call: TrustPolicyChange,
) -> Result<PolicyChangeView, OpError> {
    lookup::check(&caller.who, Action::ManageHub)?;
    let file = PolicyFile::of(settings);
    caller
        .write(store, move |tx, _| {
            let view = change_of(&file, tx.connection())?;
            // Compared with a reading of its own, so that what is recorded is what was named.
            let change = file
                .in_effect(tx.connection())?
                .change
                .filter(|change| change_id(change) == call.change);
            let (Some(view), Some(change)) =
                (view.filter(|view| view.change == call.change), change)
            else {
                let problem = format!(
                    "{:?} is not the change of the policies that waits now: adj policy shows it",
                    call.change
                );
                return Err(Denied::conflict("change", problem).into());
            };
            let has_live_runs = has_live_runs(tx.connection())?;
            tx.set_policies_in_effect(&change, has_live_runs)?;
            Ok(view)
        })
        .await
}
