//! Applying a merge whose commits exist to the user's repository.

use super::facts::{MergeFacts, branch_name};
use super::journal::{MergeJournal, update_of};
use super::target::Target;
use crate::failpoint::failpoint;
use crate::git::{
    self, BroughtCommit, Head, Identity, PreparedUpdate, RecoveryOutcome, Scratch, SubmoduleSource,
};
use crate::ops::{Caller, OpError};
use crate::store::{Merge, merges_of};
use crate::view::{MergeView, SubmoduleView};
use adjutant_core::Principal;
use adjutant_core::merge::{MergeMode, MergeOutcome};
use std::path::Path;
use tokio::sync::OwnedMutexGuard;

/// A merge whose commits exist.
pub(super) struct PreparedMerge {
    target: Target,
    scratch: Scratch,
    head: Head,
    mode: MergeMode,
    /// The branch to create.
    branch: Option<String>,
    who: Identity,
    snapshot: u32,
    after: String,
}

/// The change of the user's repository.
enum Change {
    /// The tree, the index and the checked-out branch are updated.
    Update(Box<PreparedUpdate>),
    /// A branch is created.
    Branch,
}

impl PreparedMerge {
    pub(super) fn of(
        facts: MergeFacts,
        branch: Option<String>,
        who: Identity,
        after: String,
    ) -> Self {
        let MergeFacts {
            target,
            scratch,
            head,
            mode,
            snapshot,
            ..
        } = facts;
        Self {
            target,
            scratch,
            head,
            mode,
            branch,
            who,
            snapshot: snapshot.n,
            after,
        }
    }

    /// Returns the ref that the merge moves or creates. `None`: only the tree and the index change.
    async fn git_ref(&self) -> Result<Option<String>, git::GitError> {
        Ok(match (&self.branch, self.mode) {
            (Some(branch), _) => Some(self.scratch.repo().checked_branch(branch).await?),
            (None, MergeMode::Stage) => None,
            (None, _) => Some(
                self.head
                    .branch
                    .clone()
                    .unwrap_or_else(|| "HEAD".to_owned()),
            ),
        })
    }

    /// Returns the record of the merge, without its number.
    async fn record(&self, by: &Principal) -> Result<Merge, git::GitError> {
        Ok(Merge {
            run: self.target.run.id,
            n: 0,
            mode: self.mode,
            repository: self.target.workspace.repository.clone(),
            git_ref: self.git_ref().await?,
            before: self.head.commit.clone(),
            after: self.after.clone(),
            snapshot: self.snapshot,
            user_name: self.who.name.clone(),
            user_email: self.who.email.clone(),
            reason: format!("adj merge {}", self.target.run.name),
            by: by.clone(),
        })
    }

    /// Returns whether the user signs commits, and this one is not signed.
    async fn is_unsigned(&self) -> Result<bool, git::GitError> {
        Ok(self.mode != MergeMode::Stage && self.scratch.repo().signs_commits().await?)
    }

    /// Checks the change of the user's repository, and adds the commits of nested repositories.
    async fn prepare(
        self,
        merge: &Merge,
        home: &Path,
        view: &mut MergeView,
    ) -> Result<Change, git::GitError> {
        let source = submodule_source(&self.target, home);
        if self.branch.is_some() {
            add_submodule_commits(&self.scratch, &source, merge, view).await?;
            return Ok(Change::Branch);
        }
        // The number names the update's files, which the preparation does not make.
        let update = update_of(merge);
        let prepared = PreparedUpdate::prepare(self.scratch, self.head, update).await?;
        add_submodule_commits(prepared.scratch(), &source, merge, view).await?;
        Ok(Change::Update(Box::new(prepared)))
    }
}

impl Change {
    /// Returns the files that change in the user's tree.
    fn files(&self) -> Vec<String> {
        match self {
            Self::Update(prepared) => prepared.files(),
            Self::Branch => Vec::new(),
        }
    }
}

impl MergeJournal {
    /// Applies a prepared merge to the user's repository. A caller that hangs up does not interrupt
    /// it.
    pub(super) async fn apply(
        &self,
        only: OwnedMutexGuard<()>,
        caller: Caller,
        prepared: PreparedMerge,
        mut view: MergeView,
    ) -> Result<MergeView, OpError> {
        let merge = prepared.record(&caller.who).await?;
        view.unsigned = prepared.is_unsigned().await?;
        let change = prepared.prepare(&merge, &self.home.dir, &mut view).await?;
        failpoint!("merge.before_journal");
        let merge = self.store.write(move |tx| tx.start_merge(&merge)).await?;
        view.files = change.files();
        view.commit = Some(merge.after.clone()).filter(|_| merge.mode != MergeMode::Stage);
        view.outcome = MergeOutcome::Merged.into();
        let (journal, runtime) = (self.clone(), tokio::runtime::Handle::current());
        let work = async move {
            view.is_unguarded = journal.carry_out(&merge, change).await?.is_unguarded;
            failpoint!("merge.after_end");
            caller.store_reply(&journal.store, view).await
        };
        let work = move || {
            let _only = only;
            runtime.block_on(work)
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
    }

    /// Makes the change of a recorded merge, and records its end.
    async fn carry_out(&self, merge: &Merge, change: Change) -> Result<git::Applied, OpError> {
        let changed = match change {
            Change::Update(prepared) => prepared.with_name(update_of(merge)).apply().await,
            Change::Branch => make_branch(merge).await.map(|()| git::Applied::default()),
        };
        match changed {
            Ok(applied) => {
                self.record_end(merge, RecoveryOutcome::Finished).await?;
                Ok(applied)
            }
            // The journal is needed to restore the rest.
            Err(error @ git::GitError::PartlyApplied { .. }) => Err(error.into()),
            Err(error) => self.settle_failure(merge, error).await,
        }
    }

    /// Completes or reverts a merge whose change has failed. It is completed if the branch has
    /// moved before the failure, because others can have seen that.
    async fn settle_failure(
        &self,
        merge: &Merge,
        error: git::GitError,
    ) -> Result<git::Applied, OpError> {
        self.recover_all(Some(&merge.repository)).await;
        let completed = self
            .store
            .read(|connection| merges_of(connection, merge.run))?;
        if completed.iter().any(|completed| completed.n == merge.n) {
            tracing::warn!(%error, run = %merge.run, "a merge has failed after its branch had moved, and was completed");
            return Ok(git::Applied::default());
        }
        Err(error.into())
    }
}

/// Creates the branch of a merge.
async fn make_branch(merge: &Merge) -> Result<(), git::GitError> {
    let top = Path::new(&merge.repository);
    let repo = git::Repo::find(&git::Git::find(&crate::config::git_env(None), top)?, top).await?;
    let name = merge.git_ref.as_deref().map_or("", branch_name);
    let who = update_of(merge).who;
    repo.make_branch(name, &merge.after, &who, &merge.reason)
        .await
}

/// Returns where the commits of nested repositories to which a run's changes point are.
fn submodule_source(target: &Target, home: &Path) -> SubmoduleSource {
    let path = Path::new(&target.workspace.path);
    SubmoduleSource {
        run: target.run.id,
        workspace: path.exists().then(|| path.to_owned()),
        home: home.to_owned(),
    }
}

/// Adds the commits to which a merge moves nested repositories to the user's, before anything of
/// the merge happens.
async fn add_submodule_commits(
    scratch: &Scratch,
    source: &SubmoduleSource,
    merge: &Merge,
    view: &mut MergeView,
) -> Result<(), git::GitError> {
    let brought =
        git::bring_submodule_commits(scratch, source, &merge.before, &merge.after).await?;
    view.not_merged
        .retain(|file| !brought.iter().any(|commit| *file == commit.left_out()));
    view.submodules = brought
        .into_iter()
        .map(|BroughtCommit { path, commit }| SubmoduleView { path, commit })
        .collect();
    if view.not_merged.is_empty() {
        view.workspace = None;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Ops;
    use crate::store::testing::fixture::{Fixture, fixture};
    use crate::store::{Run, merges_under_way};

    /// The tree without entries, which git knows without an object.
    const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    const BRANCH: &str = "refs/heads/main";

    /// A repository with a merge that is recorded and has failed.
    struct FailedMerge {
        fixture: Fixture,
        ops: Ops,
        merge: Merge,
        _dir: tempfile::TempDir,
    }

    impl FailedMerge {
        /// Sets up a merge of a run. `has_moved`: it failed after the branch had moved.
        async fn new(has_moved: bool) -> Self {
            let (fixture, dir) = (fixture(), tempfile::tempdir().expect("a directory"));
            let ops = Ops::new(fixture.store.clone(), fixture.home.clone(), 100, None);
            let git_dir = dir.path().join(".git");
            for below in ["objects", "refs/heads"] {
                std::fs::create_dir_all(git_dir.join(below)).expect("a repository");
            }
            std::fs::write(git_dir.join("HEAD"), format!("ref: {BRANCH}\n")).expect("HEAD");
            let run = fixture.dispatch(&Principal::Person, None).await;
            let repository = dir.path().display().to_string();
            let scratch = ops
                .trees
                .user_scratch(&run.id.to_string(), &repository)
                .await
                .expect("a scratch directory");
            let before = scratch.wrap_tree(EMPTY_TREE, &[]).await.expect("a commit");
            let after = scratch
                .wrap_tree(EMPTY_TREE, &[&before])
                .await
                .expect("a commit");
            let now = if has_moved { &after } else { &before };
            std::fs::write(git_dir.join(BRANCH), format!("{now}\n")).expect("a branch");
            let new = new_merge(&run, repository, before, after);
            let merge = fixture.store.write(move |tx| tx.start_merge(&new)).await;
            Self {
                fixture,
                ops,
                merge: merge.expect("a record"),
                _dir: dir,
            }
        }

        async fn settle(&self) -> Result<git::Applied, OpError> {
            let error = git::GitError::File {
                path: "index.lock".into(),
                error: std::io::Error::other("no disk"),
            };
            let settled = MergeJournal::of(&self.ops)
                .settle_failure(&self.merge, error)
                .await;
            let under_way = self.fixture.store.read(merges_under_way).expect("merges");
            assert_eq!(under_way, [], "nothing is left to recover");
            settled
        }
    }

    fn new_merge(run: &Run, repository: String, before: String, after: String) -> Merge {
        Merge {
            run: run.id,
            n: 0,
            mode: MergeMode::Merge,
            repository,
            git_ref: Some(BRANCH.to_owned()),
            before,
            after,
            snapshot: 1,
            user_name: "A".to_owned(),
            user_email: "a@example.com".to_owned(),
            reason: "a test".to_owned(),
            by: Principal::Person,
        }
    }

    #[tokio::test]
    async fn merge_that_fails_after_its_branch_moved_succeeds() {
        let failed = FailedMerge::new(true).await;
        failed.settle().await.expect("it is completed");
        let kinds = failed.fixture.kinds(failed.merge.run);
        assert!(kinds.contains(&"run.merged"), "{kinds:?}");
    }

    #[tokio::test]
    async fn merge_that_fails_before_its_branch_moves_is_reverted() {
        let failed = FailedMerge::new(false).await;
        let error = failed.settle().await.expect_err("it has failed");
        assert!(error.to_string().contains("no disk"), "{error}");
        let kinds = failed.fixture.kinds(failed.merge.run);
        assert!(!kinds.contains(&"run.merged"), "{kinds:?}");
    }
}
