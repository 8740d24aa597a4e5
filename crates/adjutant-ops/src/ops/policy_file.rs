//! The policies of the configuration file, and whether they count. The store has the policies in
//! effect; those of a file that changed while runs were live count only when the person has trusted
//! them.

use crate::config::PolicySet;
use crate::ops::settings::Settings;
use crate::store::{
    Connection, StoreError, Tx, has_live_runs, policies_in_effect, source_in_effect,
};
use adjutant_core::policy::{
    ApprovalQuery, Conditions, FilePolicies, Observation, Policy, PolicyDecision, PolicyName,
    deciding, deciding_with_change, observe,
};
use std::path::Path;

/// The policy that replaces stored ones that cannot be read.
const UNUSABLE: &str = "config.unusable";

/// The policies that answer requests now.
#[derive(Debug, Clone)]
pub(super) struct InEffect {
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
pub(super) struct PolicyFile(Settings);

impl PolicyFile {
    pub(super) fn of(settings: &Settings) -> Self {
        Self(settings.clone())
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
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
}

fn compared(file: Option<&PolicySet>, digest: &str) -> FilePolicies {
    match file {
        None => FilePolicies::Unknown,
        Some(file) if file.digest() == digest => FilePolicies::Same,
        Some(_) => FilePolicies::Other,
    }
}
