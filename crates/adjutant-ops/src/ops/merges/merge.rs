//! Merging a run's changes into the repository that its workspace was made from.

use super::apply::PreparedMerge;
use super::decision::{MergeDecision, decide_merge};
use super::facts::merge_facts;
use super::journal::MergeJournal;
use super::resolve::Resolver;
use super::target::target;
use crate::git::{self, BuiltMerge};
use crate::ops::trees::Trees;
use crate::ops::{Caller, OpError, Ops};
use crate::store::{Run, Store, interrupted_undo};
use crate::view::{ConflictView, MergeRun, MergeView};
use adjutant_core::merge::{MergeMode, MergeOutcome};
use adjutant_core::{Action, Denied};

/// Merges the changes of runs.
#[derive(Debug, Clone)]
pub struct MergeCall {
    store: Store,
    trees: Trees,
    journal: MergeJournal,
    resolver: Resolver,
}

impl MergeCall {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            trees: ops.trees.clone(),
            journal: MergeJournal::of(ops),
            resolver: Resolver::of(ops),
        }
    }

    /// Merges an isolated run's changes into the user's repository, in one step.
    ///
    /// # Errors
    /// Unknown or foreign; live; not isolated; something is in the way ([`git::MergeRefusal`]); git
    /// failed. Nothing is changed then.
    pub async fn merge(&self, caller: Caller, call: MergeRun) -> Result<MergeView, OpError> {
        let run = call.run.clone();
        self.merge_run(caller, call)
            .await
            .map_err(|error| error.of_run(&run))
    }

    async fn merge_run(&self, caller: Caller, call: MergeRun) -> Result<MergeView, OpError> {
        let mode = stated_mode(&call)?;
        let only = self.trees.lock().await;
        if let Some(earlier) = caller.stored_reply(&self.store)? {
            return Ok(earlier);
        }
        let target = target(
            &self.store,
            &caller.who,
            Action::Merge,
            &call.run,
            "merged; pause it, or wait for its end",
        )?;
        refuse_interrupted_undo(&self.store, &target.run)?;
        self.journal
            .recover_all(Some(&target.workspace.repository))
            .await;
        let facts = merge_facts(&self.store, &self.trees, target, mode).await?;
        let mut view = facts.view(call.branch.as_deref());
        let input = match decide_merge(&self.store, &facts, &call).await? {
            MergeDecision::Make { input, one_commit } => {
                view.one_commit = one_commit.map(str::to_owned);
                input
            }
            MergeDecision::AlreadyMerged { commit, files } => {
                view.outcome = MergeOutcome::AlreadyMerged.into();
                (view.commit, view.files) = (Some(commit), files);
                return caller.store_reply(&self.store, view).await;
            }
            MergeDecision::ResolvesNothing(resolved) => {
                view.resolved_nothing_of = Some(resolved);
                return caller.store_reply(&self.store, view).await;
            }
        };
        match input.make(&facts.scratch).await? {
            BuiltMerge::Nothing => caller.store_reply(&self.store, view).await,
            BuiltMerge::Conflicts { commit, files } => {
                let changes = match &call.resolve_with {
                    Some(_) => facts.changes_from(&input.base).await?,
                    None => String::new(),
                };
                view.outcome = MergeOutcome::Conflicts.into();
                view.conflicts = files.into_iter().map(conflict_view).collect();
                view.conflicting_commit = commit;
                let target = facts.into_target();
                drop(only);
                if let Some(agent) = &call.resolve_with {
                    let step = caller.of_step("resolve");
                    view = self
                        .resolver
                        .resolve(step, &target, &changes, agent, call.env, view)
                        .await?;
                }
                caller.store_reply(&self.store, view).await
            }
            BuiltMerge::Commit(after) => {
                let prepared = PreparedMerge::of(facts, call.branch, input.who, after);
                self.journal.apply(only, caller, prepared, view).await
            }
        }
    }
}

/// Refuses the workspace of a run that has files of two snapshots.
fn refuse_interrupted_undo(store: &Store, run: &Run) -> Result<(), OpError> {
    let Some(undo) = store.read(|connection| interrupted_undo(connection, run.id))? else {
        return Ok(());
    };
    let complete = undo.completing_command(&run.name);
    let problem = format!(
        "an undo of {} was interrupted, so its workspace has files of two snapshots: {complete} completes it",
        run.name
    );
    Err(Denied::conflict("workspace", problem).into())
}

/// Returns the mode that a call states. Only the mode `branch` has a branch.
fn stated_mode(call: &MergeRun) -> Result<MergeMode, Denied> {
    let mode = match &call.mode {
        Some(mode) => mode
            .known()
            .ok_or_else(|| Denied::invalid("mode", "use merge, squash, rebase, branch or stage"))?,
        None => MergeMode::Merge,
    };
    if (mode == MergeMode::Branch) != call.branch.is_some() {
        return Err(Denied::invalid(
            "branch",
            "belongs to the mode branch, which requires it",
        ));
    }
    Ok(mode)
}

fn conflict_view(conflict: git::Conflict) -> ConflictView {
    let git::Conflict {
        path,
        kind,
        hunks,
        is_cut,
    } = conflict;
    ConflictView {
        path: String::from_utf8_lossy(&path).into_owned(),
        kind: kind.into(),
        hunks,
        is_cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Word;

    fn call(mode: Option<Word<MergeMode>>, branch: Option<&str>) -> MergeRun {
        MergeRun {
            mode,
            branch: branch.map(str::to_owned),
            ..MergeRun::default()
        }
    }

    #[test]
    fn mode_and_branch_of_a_merge_belong_together() {
        let of = |mode: MergeMode, branch| stated_mode(&call(Some(mode.into()), branch));
        assert_eq!(stated_mode(&call(None, None)), Ok(MergeMode::Merge));
        assert_eq!(of(MergeMode::Stage, None), Ok(MergeMode::Stage));
        assert_eq!(of(MergeMode::Branch, Some("new")), Ok(MergeMode::Branch));
        assert!(of(MergeMode::Branch, None).is_err());
        assert!(of(MergeMode::Squash, Some("new")).is_err());
        assert!(stated_mode(&call(None, Some("new"))).is_err());
        let unknown = stated_mode(&call(Some(Word::Unknown("octopus".to_owned())), None));
        let problem = unknown.expect_err("refused").to_string();
        assert!(problem.contains("use merge, squash"), "{problem}");
    }
}
