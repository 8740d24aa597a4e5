//! Creates the commits of a merge of a run's changes. Changes nothing in the user's work tree,
//! index or branches.

use super::new_commit::{Identity, NewCommit};
use super::refusal::MergeRefusal;
use super::{Conflict, GitError, Head, MergeCall, MergePurpose, MergeResult, Repo, Scratch};
use adjutant_core::RunId;
use adjutant_core::merge::MergeMode;

/// Maximum number of commits to rebase.
const REBASED_MAX: usize = 500;

/// The inputs of a merge.
#[derive(Debug, Clone)]
pub struct MergeInput {
    /// The checked-out commit and branch of the user's repository.
    pub head: Head,
    /// The commit with which the run's changes are compared.
    pub base: String,
    /// Whether the base may be a parent of the run's commits. Otherwise it is a snapshot, which
    /// must stay hidden.
    pub is_base_public: bool,
    /// The snapshot of the run's tree to merge.
    pub snapshot: String,
    /// The commit that the agent has checked out, if it has made commits.
    pub own_head: Option<String>,
    pub mode: MergeMode,
    /// Creates a merge commit even if a fast-forward is possible.
    pub no_ff: bool,
    /// The committer.
    pub who: Identity,
    /// The message of a commit with the run's changes: a subject, a blank line, text and trailers.
    pub message: String,
    /// The message of a merge commit.
    pub merge_message: String,
    pub run_name: String,
}

/// The result of building a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltMerge {
    /// The run has changed nothing.
    Nothing,
    /// The new commit, or the new tree if the mode makes no commit. No ref names it yet.
    Commit(String),
    /// No commit was made. `commit`: the subject of the run's commit that cannot be rebased.
    Conflicts {
        commit: Option<String>,
        files: Vec<Conflict>,
    },
}

impl MergeInput {
    /// Creates the commits of the merge.
    ///
    /// # Errors
    /// A [`MergeRefusal`], a commit is missing, or git failed.
    pub async fn make(&self, scratch: &Scratch) -> Result<BuiltMerge, GitError> {
        let Some(tip) = self.tip(scratch).await? else {
            return Ok(BuiltMerge::Nothing);
        };
        let head = self.head.commit.as_str();
        match self.mode {
            MergeMode::Branch if self.is_base_public => Ok(BuiltMerge::Commit(tip)),
            MergeMode::Merge
                if self.is_base_public && scratch.is_ancestor(head, &tip).await? && !self.no_ff =>
            {
                Ok(BuiltMerge::Commit(tip))
            }
            // Commits of another branch on which the run is based are not the run's.
            MergeMode::Rebase
                if self.is_base_public
                    && scratch.is_ancestor(head, &tip).await?
                    && scratch.is_ancestor(&self.base, head).await? =>
            {
                Ok(BuiltMerge::Commit(tip))
            }
            MergeMode::Rebase if self.is_base_public => self.rebase(scratch, &tip).await,
            MergeMode::Merge if self.is_base_public => {
                let tree = match self.merge_trees(scratch, &self.base, head, &tip).await? {
                    Ok(tree) => tree,
                    Err(files) => {
                        return Ok(BuiltMerge::Conflicts {
                            commit: None,
                            files,
                        });
                    }
                };
                if tree == scratch.tree_of(head).await? {
                    return Ok(BuiltMerge::Nothing);
                }
                Ok(BuiltMerge::Commit(
                    self.commit(scratch, &tree, &[head, &tip], &self.merge_message)
                        .await?,
                ))
            }
            MergeMode::Merge
            | MergeMode::Rebase
            | MergeMode::Branch
            | MergeMode::Squash
            | MergeMode::Stage => {
                let tree = match self.merge_trees(scratch, &self.base, head, &tip).await? {
                    Ok(tree) => tree,
                    Err(files) => {
                        return Ok(BuiltMerge::Conflicts {
                            commit: None,
                            files,
                        });
                    }
                };
                // The user's branch already contains these changes.
                if tree == scratch.tree_of(head).await? {
                    return Ok(BuiltMerge::Nothing);
                }
                if self.mode == MergeMode::Stage {
                    return Ok(BuiltMerge::Commit(tree));
                }
                Ok(BuiltMerge::Commit(
                    self.commit(scratch, &tree, &[head], &self.message).await?,
                ))
            }
        }
    }

    /// Returns the run's last commit: the agent's, or a new one on top of it with uncommitted
    /// changes. `None`: the run has changed nothing.
    async fn tip(&self, scratch: &Scratch) -> Result<Option<String>, GitError> {
        let wanted = scratch.tree_of(&self.snapshot).await?;
        let mut last = self.base.clone();
        if let Some(own) = &self.own_head
            && scratch.is_ancestor(&self.base, own).await?
        {
            last.clone_from(own);
        }
        if scratch.tree_of(&last).await? == wanted {
            return Ok(Some(last).filter(|last| *last != self.base));
        }
        Ok(Some(
            self.commit(scratch, &wanted, &[&last], &self.message)
                .await?,
        ))
    }

    /// Rebases the run's commits, one at a time.
    async fn rebase(&self, scratch: &Scratch, tip: &str) -> Result<BuiltMerge, GitError> {
        let limit = format!("--max-count={}", REBASED_MAX + 1);
        let call = scratch.call(&[
            "rev-list",
            "--reverse",
            "--topo-order",
            "--parents",
            &limit,
            tip,
        ]);
        let listed = call
            .arg(format!("^{}", self.base))
            .arg(format!("^{}", self.head.commit))
            .line()
            .await?;
        let commits: Vec<&str> = listed.lines().collect();
        if commits.len() > REBASED_MAX {
            return Err(MergeRefusal::TooManyCommits(REBASED_MAX).into());
        }
        let mut onto = self.head.commit.clone();
        for commit in commits {
            let [commit, parent] = commit.split(' ').collect::<Vec<_>>()[..] else {
                return Err(MergeRefusal::MergeCommit.into());
            };
            let text = scratch.commit_text(commit).await?;
            let tree = match self.merge_trees(scratch, parent, &onto, commit).await? {
                Ok(tree) => tree,
                Err(files) => {
                    let subject = String::from_utf8_lossy(&text.message)
                        .lines()
                        .next()
                        .unwrap_or_default()
                        .to_owned();
                    return Ok(BuiltMerge::Conflicts {
                        commit: Some(subject),
                        files,
                    });
                }
            };
            // The change is already applied.
            if tree == scratch.tree_of(&onto).await? {
                continue;
            }
            let new = NewCommit {
                tree: &tree,
                parents: &[&onto],
                message: &text.message,
                committer: &self.who,
                author: Some((&text.author, &text.date)),
            };
            onto = scratch.commit(&new).await?;
        }
        Ok(if onto == self.head.commit {
            BuiltMerge::Nothing
        } else {
            BuiltMerge::Commit(onto)
        })
    }

    /// Merges, and returns the tree. Writes objects to the repository only if there is no conflict.
    async fn merge_trees(
        &self,
        scratch: &Scratch,
        base: &str,
        ours: &str,
        theirs: &str,
    ) -> Result<Result<String, Vec<Conflict>>, GitError> {
        let call = |purpose| MergeCall {
            base,
            ours,
            theirs,
            ours_label: "yours",
            theirs_label: &self.run_name,
            purpose,
        };
        if let MergeResult::Conflicts(files) = scratch.merge(&call(MergePurpose::Explain)).await? {
            return Ok(Err(files));
        }
        Ok(match scratch.merge(&call(MergePurpose::Keep)).await? {
            MergeResult::Clean { tree } => Ok(tree),
            MergeResult::Conflicts(files) => Err(files),
        })
    }

    async fn commit(
        &self,
        scratch: &Scratch,
        tree: &str,
        parents: &[&str],
        message: &str,
    ) -> Result<String, GitError> {
        scratch
            .commit(&NewCommit {
                tree,
                parents,
                message: message.as_bytes(),
                committer: &self.who,
                author: None,
            })
            .await
    }
}

impl Scratch {
    /// Returns the newest commit of a branch that an agent has merged, by a pull or a rebase for
    /// example: its changes are not the agent's. `None`: it has merged nothing after `base`.
    ///
    /// # Errors
    /// [`MergeRefusal::CrissCross`]: there are several such commits. Or git failed.
    pub async fn taken_in(
        &self,
        branch: &str,
        own_head: &str,
        base: &str,
    ) -> Result<Option<String>, GitError> {
        let found = self
            .call(&["merge-base", "--all", branch, own_head])
            .run()
            .await?;
        let found = String::from_utf8_lossy(&found.output).into_owned();
        let mut taken_in = Vec::new();
        for commit in found.lines() {
            if commit != base && self.is_ancestor(base, commit).await? {
                taken_in.push(commit);
            }
        }
        match taken_in[..] {
            [] => Ok(None),
            [commit] if found.lines().count() == 1 => Ok(Some(commit.to_owned())),
            // An older base would count what both have merged as changes of both, and restore what
            // one of them has removed since.
            _ => Err(MergeRefusal::CrissCross.into()),
        }
    }
}

impl Repo {
    /// Returns the commit that the agent of an isolated run has checked out, if it has made
    /// commits.
    ///
    /// # Errors
    /// git failed.
    pub async fn own_head(&self, run: RunId) -> Result<Option<String>, GitError> {
        self.commit_of(&format!("refs/adjutant/{run}/head")).await
    }

    /// Returns whether a ref names a commit or one of its descendants.
    ///
    /// # Errors
    /// git failed.
    pub async fn has_commit(&self, git_ref: &str, commit: &str) -> Result<bool, GitError> {
        if self.commit_of(git_ref).await?.is_none() || self.commit_of(commit).await?.is_none() {
            return Ok(false);
        }
        let ran = self
            .of_refs(&["merge-base", "--is-ancestor", commit, git_ref])
            .run()
            .await?;
        Ok(ran.exit_code == Some(0))
    }

    /// Returns whether a branch, a tag or HEAD contains a commit.
    ///
    /// # Errors
    /// git failed.
    pub async fn is_in_a_branch(&self, commit: &str) -> Result<bool, GitError> {
        if self.commit_of(commit).await?.is_none() {
            return Ok(false);
        }
        let args = [
            "for-each-ref",
            "--count=1",
            "--format=x",
            "--contains",
            commit,
            "refs/heads",
            "refs/remotes",
            "refs/tags",
        ];
        Ok(!self.of_refs(&args).output().await?.is_empty()
            || self.has_commit("HEAD", commit).await?)
    }

    /// Creates a branch that does not exist yet.
    ///
    /// # Errors
    /// [`MergeRefusal::BranchName`], [`MergeRefusal::BranchTaken`], or git failed.
    pub async fn make_branch(
        &self,
        name: &str,
        commit: &str,
        who: &Identity,
        reason: &str,
    ) -> Result<(), GitError> {
        let git_ref = self.checked_branch(name).await?;
        let call = self.of_refs(&[
            "update-ref",
            "--create-reflog",
            "-m",
            reason,
            "--end-of-options",
            &git_ref,
            commit,
            &self.zero(),
        ]);
        match who.as_committer(call).output().await {
            Err(_) if self.commit_of(&git_ref).await?.is_some() => {
                Err(MergeRefusal::BranchTaken(name.to_owned()).into())
            }
            made => made.and_then(|_| self.sync_ref(&git_ref)),
        }
    }

    /// Returns the ref of a new branch.
    ///
    /// # Errors
    /// [`MergeRefusal::BranchName`], [`MergeRefusal::BranchTaken`], or git failed.
    pub async fn checked_branch(&self, name: &str) -> Result<String, GitError> {
        let git_ref = format!("refs/heads/{name}");
        let ran = self.of_refs(&["check-ref-format", &git_ref]).run().await?;
        if ran.exit_code != Some(0) || name.starts_with('-') || name == "HEAD" {
            return Err(MergeRefusal::BranchName(name.to_owned()).into());
        }
        if self.commit_of(&git_ref).await?.is_some() {
            return Err(MergeRefusal::BranchTaken(name.to_owned()).into());
        }
        Ok(git_ref)
    }
}
