//! Changes of the policies in the configuration file. A run without a fence can write the file, so
//! what changes while runs are live counts only when the person has trusted it; until then, it only
//! restricts. The store has the policies in effect.

use crate::config::PolicySet;
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::{
    Connection, StoreError, Tx, answers_by_rules, has_live_runs, policies_in_effect,
    source_in_effect,
};
use crate::view::{ChangedPolicy, PolicyChangeView, TrustPolicyChange};
use adjutant_core::policy::{
    ApprovalQuery, Conditions, FilePolicies, Observation, Policy, PolicyDecision, PolicyName,
    deciding, deciding_with_change, observe,
};
use adjutant_core::{Action, Denied, Principal};

/// Length of the text that identifies a change, in characters of its hash.
const CHANGE_CHARS: usize = 16;
/// The policy that replaces stored ones that cannot be read.
const UNUSABLE: &str = "config.unusable";

/// The policies that answer requests now.
#[derive(Debug, Clone)]
pub(in crate::ops) struct InEffect {
    pub policies: Vec<Policy>,
    /// Those of the file, if they wait for the person's trust.
    pub change: Option<PolicySet>,
}

impl InEffect {
    /// Returns the policy that decides about a request, with further policies that apply to it.
    pub(super) fn deciding(&self, further: &[Policy], asked: &ApprovalQuery<'_>) -> Option<Policy> {
        let with_further =
            |policies: &[Policy]| policies.iter().chain(further).cloned().collect::<Vec<_>>();
        let now = with_further(&self.policies);
        let Some(change) = &self.change else {
            return deciding(now.iter(), asked).cloned();
        };
        // A run can have written the reasons, and a denied run reads them.
        let change = change
            .policies()
            .iter()
            .map(|policy| Policy {
                reason: None,
                ..policy.clone()
            })
            .collect::<Vec<_>>();
        deciding_with_change(&now, &with_further(&change), asked).cloned()
    }
}

/// Reads the policies of the configuration file, when a transaction needs them: an earlier reading
/// may be of before a run's change.
#[derive(Debug, Clone)]
pub(in crate::ops) struct PolicyFile(Ops);

impl PolicyFile {
    pub(super) fn of(ops: &Ops) -> Self {
        Self(ops.clone())
    }

    /// Returns the policies of the file. `None`: it cannot be used.
    fn read(&self) -> Option<PolicySet> {
        self.0.config().ok().map(|config| config.policies.clone())
    }

    /// Records whether the file's policies count: before and after runs become live, and after one
    /// has ended.
    pub(super) fn observe(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let (file, has_live_runs) = (self.read(), has_live_runs(tx.connection())?);
        let Some(stored) = policies_in_effect(tx.connection())? else {
            // A hub that has started nothing leaves the store empty.
            return if has_live_runs {
                tx.set_policies_in_effect(&file.unwrap_or_default(), true)
            } else {
                Ok(())
            };
        };
        let Observation {
            accepts,
            is_guarded,
        } = observe(
            compared(file.as_ref(), &stored.digest),
            stored.is_guarded,
            has_live_runs,
        );
        match file {
            Some(file) if accepts => tx.set_policies_in_effect(&file, is_guarded),
            _ if is_guarded != stored.is_guarded => tx.set_policies_guarded(is_guarded),
            _ => Ok(()),
        }
    }

    /// Returns the policies that answer requests now.
    pub(super) fn in_effect(&self, connection: &Connection) -> Result<InEffect, StoreError> {
        let file = self.read();
        let counting = |file: Option<PolicySet>| InEffect {
            policies: file.unwrap_or_default().policies().to_vec(),
            change: None,
        };
        let Some(stored) = policies_in_effect(connection)? else {
            return Ok(counting(file));
        };
        let state = compared(file.as_ref(), &stored.digest);
        if state == FilePolicies::Same
            || observe(state, stored.is_guarded, has_live_runs(connection)?).accepts
        {
            return Ok(counting(file));
        }
        let source = source_in_effect(connection)?.unwrap_or_default();
        let policies = PolicySet::from_source(&source).map_or_else(
            |problem| {
                tracing::warn!(
                    %problem,
                    "the stored policies cannot be read: everything is asked"
                );
                let name = PolicyName::parse(UNUSABLE).expect("a valid name");
                vec![Policy {
                    name,
                    decision: PolicyDecision::Ask,
                    conditions: Conditions::default(),
                    reason: None,
                }]
            },
            |set| set.policies().to_vec(),
        );
        Ok(InEffect {
            policies,
            change: file,
        })
    }

    /// Describes the change that waits for the person's trust, if one does.
    pub(super) fn change(
        &self,
        connection: &Connection,
    ) -> Result<Option<PolicyChangeView>, StoreError> {
        let InEffect {
            policies,
            change: Some(change),
        } = self.in_effect(connection)?
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
            file: self.0.config_path.display().to_string(),
            policies: removed.chain(added).collect(),
        }))
    }
}

fn compared(file: Option<&PolicySet>, digest: &str) -> FilePolicies {
    match file {
        None => FilePolicies::Unknown,
        Some(file) if file.digest() == digest => FilePolicies::Same,
        Some(_) => FilePolicies::Other,
    }
}

/// Returns what identifies a change: its content, so that the person trusts what was shown and
/// nothing later.
fn change_id(change: &PolicySet) -> String {
    change.digest().chars().take(CHANGE_CHARS).collect()
}

impl Ops {
    /// Returns the change of the policies that waits for the person's trust. Nobody else sees it.
    pub(in crate::ops) fn policy_change(
        &self,
        connection: &Connection,
        who: &Principal,
    ) -> Result<Option<PolicyChangeView>, StoreError> {
        if *who == Principal::Person {
            PolicyFile::of(self).change(connection)
        } else {
            Ok(None)
        }
    }

    /// Trusts a change of the configuration's policies: it is in effect from now on.
    ///
    /// # Errors
    /// The caller is not the person, no change waits, or another one does.
    pub(crate) async fn trust_policy_change(
        &self,
        caller: Caller,
        call: TrustPolicyChange,
    ) -> Result<PolicyChangeView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let file = PolicyFile::of(self);
        caller.write(&self.store, move |tx, _| {
            let view = file.change(tx.connection())?;
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
}
