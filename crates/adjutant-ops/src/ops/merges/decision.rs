//! What a merge comes to, decided before anything is made.

use super::facts::{MergeFacts, branch_name};
use super::message::{History, message};
use super::target::Target;
use crate::git::{self, MergeInput, MergeRefusal};
use crate::ops::OpError;
use crate::ops::workspaces::{MergeBase, workspace_base};
use crate::store::{
    Merge, Store, StoreError, Workspace, later_runs_in, merges_of, resolved_by, run_by_id,
};
use crate::view::MergeRun;
use adjutant_core::merge::MergeMode;

/// Maximum number of later runs in a workspace that are read.
const LATER_RUNS_MAX: u32 = 50;

/// What a merge comes to.
pub(super) enum MergeDecision {
    /// The run's current changes were merged before, or the branch was created from them.
    AlreadyMerged {
        commit: String,
        /// The files that were changed in the user's branch.
        files: Vec<String>,
    },
    /// The run was to resolve the conflicts of this one, and has changed nothing.
    ResolvesNothing(String),
    /// The commits are to be made.
    Make {
        input: Box<MergeInput>,
        /// Why the run's own commits become one.
        one_commit: Option<&'static str>,
    },
}

/// What the changes of a run count from.
#[derive(Debug, Clone)]
enum Origin {
    Base(MergeBase),
    /// There are no changes: this merge has merged them.
    Merged(Merge),
}

impl Origin {
    /// Returns what counts in a mode. `None` is found if several bases are possible. A branch has
    /// the run's own commits, regardless of what they count from.
    fn in_mode(
        mode: MergeMode,
        found: Option<Self>,
        of_workspace: impl FnOnce() -> MergeBase,
    ) -> Result<Self, MergeRefusal> {
        match found {
            Some(Self::Base(base)) => Ok(Self::Base(base)),
            Some(Self::Merged(_)) | None if mode == MergeMode::Branch => {
                Ok(Self::Base(of_workspace()))
            }
            Some(Self::Merged(merge)) => Ok(Self::Merged(merge)),
            None => Err(MergeRefusal::CrissCross),
        }
    }
}

/// Decides what a merge comes to, or refuses it. Changes nothing of the user.
pub(super) async fn decide_merge(
    store: &Store,
    facts: &MergeFacts,
    call: &MergeRun,
) -> Result<MergeDecision, OpError> {
    let MergeFacts {
        target,
        mode,
        scratch,
        ..
    } = facts;
    let (mode, repo) = (*mode, scratch.repo());
    if let Some(branch) = &call.branch {
        if let Some(commit) = existing_branch(store, facts, branch).await? {
            let files = Vec::new();
            return Ok(MergeDecision::AlreadyMerged { commit, files });
        }
        repo.checked_branch(branch).await?;
    }
    let own_head = repo.own_head(target.run.id).await?;
    let found = find_origin(store, facts, own_head.as_deref()).await?;
    let base = match Origin::in_mode(mode, found, || workspace_base(&target.workspace))
        .map_err(git::GitError::from)?
    {
        Origin::Base(base) => base,
        Origin::Merged(merge) => {
            return Ok(MergeDecision::AlreadyMerged {
                files: scratch.changed_paths(&merge.before, &merge.after).await?,
                commit: merge.after,
            });
        }
    };
    if mode == MergeMode::Merge && base.is_public {
        refuse_other_base(facts).await?;
    }
    let history = history_of(store, target)?;
    if let Some(resolved) = history
        .resolves
        .as_ref()
        .filter(|_| mode != MergeMode::Branch)
        && !resolves_conflicts(facts, &base.commit).await?
    {
        return Ok(MergeDecision::ResolvesNothing(resolved.name.clone()));
    }
    let one_commit = one_commit(facts, &base, own_head.as_deref()).await?;
    refuse_copies(facts, own_head.as_ref()).await?;
    let input = merge_input(facts, &history, base, own_head, call.no_ff).await?;
    Ok(MergeDecision::Make {
        input: Box::new(input),
        one_commit,
    })
}

/// Reads the other runs that the commits of a merge name.
fn history_of(store: &Store, target: &Target) -> Result<History, OpError> {
    Ok(store.read(|connection| {
        let resolves = resolved_by(connection, target.run.id)?
            .map(|run| run_by_id(connection, run))
            .transpose()?
            .flatten();
        let is_merged = merges_of(connection, target.run.id)?
            .iter()
            .any(|merge| !matches!(merge.mode, MergeMode::Branch | MergeMode::Stage));
        let follow_up = match is_merged {
            true => later_runs_in(
                connection,
                &target.workspace.path,
                target.run.id,
                LATER_RUNS_MAX,
            )?
            .pop(),
            false => None,
        };
        Ok::<_, StoreError>(History {
            resolves,
            follow_up,
        })
    })?)
}

/// Finds what the run's changes count from: the base of its workspace, what was merged before,
/// or what it has merged of the user's branch since. `None`: it has merged several commits of
/// that branch, none of which is the newest.
async fn find_origin(
    store: &Store,
    facts: &MergeFacts,
    own_head: Option<&str>,
) -> Result<Option<Origin>, OpError> {
    let MergeFacts {
        target,
        scratch,
        head,
        snapshot: newest,
        ..
    } = facts;
    let merged = store.read(|connection| merges_of(connection, target.run.id))?;
    let all = git::snapshots(scratch.repo(), target.run.id).await?;
    let mut from = (
        workspace_base(&target.workspace),
        target.workspace.base.clone(),
    );
    for merge in merged
        .into_iter()
        .filter(|merge| !matches!(merge.mode, MergeMode::Branch | MergeMode::Stage))
    {
        // A merge that the user has reset does not count.
        if !scratch
            .repo()
            .has_commit(&head.commit, &merge.after)
            .await?
        {
            continue;
        }
        let Some(snapshot) = all.iter().find(|snapshot| snapshot.n == merge.snapshot) else {
            continue;
        };
        if snapshot.tree == newest.tree {
            return Ok(Some(Origin::Merged(merge)));
        }
        from = (
            MergeBase {
                commit: snapshot.commit.clone(),
                is_public: false,
            },
            merge.after,
        );
        break;
    }
    let (from, known) = from;
    let Some(own_head) = own_head.filter(|_| target.workspace.changes.is_none()) else {
        return Ok(Some(Origin::Base(from)));
    };
    match scratch.taken_in(&head.commit, own_head, &known).await {
        Ok(None) => Ok(Some(Origin::Base(from))),
        Ok(Some(commit)) => Ok(Some(Origin::Base(MergeBase {
            commit,
            is_public: true,
        }))),
        Err(git::GitError::Refused(MergeRefusal::CrissCross)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the commit of a branch that was already created from the run's current changes, for
/// example by a call whose reply was lost. `None`: there is no such branch, or it was moved.
async fn existing_branch(
    store: &Store,
    facts: &MergeFacts,
    branch: &str,
) -> Result<Option<String>, OpError> {
    let MergeFacts {
        target,
        scratch,
        snapshot: newest,
        ..
    } = facts;
    let git_ref = format!("refs/heads/{branch}");
    let merges = store.read(|connection| merges_of(connection, target.run.id))?;
    let made = |merge: &&Merge| {
        merge.mode == MergeMode::Branch && merge.git_ref.as_deref() == Some(&git_ref)
    };
    let Some(merge) = merges.iter().find(made) else {
        return Ok(None);
    };
    let all = git::snapshots(scratch.repo(), target.run.id).await?;
    let is_whole = all
        .iter()
        .any(|snapshot| snapshot.n == merge.snapshot && snapshot.tree == newest.tree);
    let is_there = scratch.repo().commit_of(&git_ref).await?.as_ref() == Some(&merge.after);
    Ok((is_whole && is_there).then(|| merge.after.clone()))
}

/// Refuses a merge that would also bring commits that the run started from and the user's branch
/// lacks, for example those of another branch.
async fn refuse_other_base(facts: &MergeFacts) -> Result<(), git::GitError> {
    let Workspace { base, branch, .. } = &facts.target.workspace;
    let head = &facts.head;
    let commits = facts.scratch.commits(&head.commit, base).await?;
    let into = head
        .branch
        .as_deref()
        .map_or("the checked-out commit", branch_name);
    match other_base(&commits, branch.as_deref(), into) {
        Some(problem) => Err(MergeRefusal::OtherBase(problem).into()),
        None => Ok(()),
    }
}

/// Describes the commits, newest first, that a merge would also bring into the user's branch.
/// `branch`: the one that the run started from. `None`: there are none.
fn other_base(commits: &[String], branch: Option<&str>, into: &str) -> Option<String> {
    let newest = commits.first()?;
    let count = match commits.len() {
        1 => "1 commit".to_owned(),
        count => format!("{count} commits, the newest"),
    };
    Some(match branch {
        Some(branch) if branch == into => {
            format!(
                "an earlier state of {branch}, which was amended, rebased or reset since: a merge would restore {count}: {newest}"
            )
        }
        Some(branch) => {
            format!("branch {branch} with {count} that {into} does not have: {newest}")
        }
        None => {
            format!("a commit that {into} does not have: a merge would bring {count}: {newest}")
        }
    })
}

/// Returns whether a run has resolved the conflicts that it was to resolve. Empty commits do not
/// count as a resolution. Refuses remaining conflict markers.
async fn resolves_conflicts(facts: &MergeFacts, base: &str) -> Result<bool, git::GitError> {
    let MergeFacts {
        scratch, snapshot, ..
    } = facts;
    if scratch.tree_of(&snapshot.commit).await? == scratch.tree_of(base).await? {
        return Ok(false);
    }
    let markers = scratch
        .added_conflict_markers(base, &snapshot.commit)
        .await?;
    MergeRefusal::files(
        MergeRefusal::Markers,
        markers
            .into_iter()
            .map(|(path, line)| format!("{path} (line {line})")),
    )?;
    Ok(true)
}

/// Returns why the commits that the agent has made become one commit. `None`: there are none, or
/// they stay.
async fn one_commit(
    facts: &MergeFacts,
    base: &MergeBase,
    own_head: Option<&str>,
) -> Result<Option<&'static str>, git::GitError> {
    let has_changes = facts.target.workspace.changes.is_some();
    let (Some(own_head), Some(why)) = (own_head, hidden_base(facts.mode, base, has_changes)) else {
        return Ok(None);
    };
    let repo = facts.scratch.repo();
    let is_merged = repo.has_commit(&facts.head.commit, own_head).await?;
    Ok((!is_merged).then_some(why))
}

/// Returns why the commits of a run cannot be merged as they are: their base stays hidden.
/// `has_changes`: the run started with uncommitted changes of the user. `None`: they can, or the
/// mode does not merge them.
fn hidden_base(mode: MergeMode, base: &MergeBase, has_changes: bool) -> Option<&'static str> {
    if base.is_public || !matches!(mode, MergeMode::Merge | MergeMode::Rebase) {
        return None;
    }
    Some(if has_changes {
        "started with uncommitted changes of yours"
    } else {
        "was merged before"
    })
}

/// Refuses commits of the run with files that were copied into its workspace.
async fn refuse_copies(facts: &MergeFacts, own_head: Option<&String>) -> Result<(), git::GitError> {
    let brings_commits = matches!(
        facts.mode,
        MergeMode::Merge | MergeMode::Rebase | MergeMode::Branch
    );
    let Some(own_head) = own_head.filter(|_| brings_commits) else {
        return Ok(());
    };
    let Workspace { spec, base, .. } = &facts.target.workspace;
    let copies = facts
        .scratch
        .committed_copies(&spec.copy, base, std::slice::from_ref(own_head))
        .await?;
    Ok(MergeRefusal::files(MergeRefusal::Copies, copies)?)
}

/// Returns what the commits of a merge are made of.
async fn merge_input(
    facts: &MergeFacts,
    history: &History,
    base: MergeBase,
    own_head: Option<String>,
    no_ff: bool,
) -> Result<MergeInput, git::GitError> {
    let MergeFacts {
        target,
        mode,
        scratch,
        head,
        snapshot,
        ..
    } = facts;
    let name = &target.run.name;
    Ok(MergeInput {
        head: head.clone(),
        base: base.commit,
        is_base_public: base.is_public,
        snapshot: snapshot.commit.clone(),
        own_head,
        mode: *mode,
        no_ff,
        who: scratch.repo().identity().await?,
        message: message(&target.run, history, ""),
        merge_message: message(&target.run, history, &format!("Merge run {name}: ")),
        run_name: name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::{Principal, RunId, Time};

    fn base(commit: &str, is_public: bool) -> MergeBase {
        MergeBase {
            commit: commit.to_owned(),
            is_public,
        }
    }

    fn merged() -> Merge {
        Merge {
            run: RunId::new(Time(1), [1; 10]),
            n: 1,
            mode: MergeMode::Merge,
            repository: "/r".to_owned(),
            git_ref: None,
            before: "b".to_owned(),
            after: "a".to_owned(),
            snapshot: 3,
            user_name: String::new(),
            user_email: String::new(),
            reason: String::new(),
            by: Principal::Person,
        }
    }

    fn in_mode(mode: MergeMode, found: Option<Origin>) -> Result<Origin, MergeRefusal> {
        Origin::in_mode(mode, found, || base("of workspace", true))
    }

    #[test]
    fn merged_changes_are_not_merged_again() {
        for mode in [MergeMode::Merge, MergeMode::Squash, MergeMode::Stage] {
            let found = in_mode(mode, Some(Origin::Merged(merged())));
            assert!(matches!(found, Ok(Origin::Merged(_))), "{mode:?}");
        }
    }

    #[test]
    fn branch_has_the_commits_of_the_run_whatever_was_merged() {
        for found in [Some(Origin::Merged(merged())), None] {
            let found = in_mode(MergeMode::Branch, found);
            assert!(
                matches!(&found, Ok(Origin::Base(base)) if base.commit == "of workspace"),
                "{found:?}"
            );
        }
        let found = in_mode(MergeMode::Branch, Some(Origin::Base(base("newer", false))));
        assert!(
            matches!(&found, Ok(Origin::Base(base)) if base.commit == "newer" && !base.is_public),
            "{found:?}"
        );
    }

    #[test]
    fn several_possible_bases_are_refused() {
        for mode in [MergeMode::Merge, MergeMode::Rebase, MergeMode::Squash] {
            let refused = in_mode(mode, None);
            assert!(matches!(refused, Err(MergeRefusal::CrissCross)), "{mode:?}");
        }
    }

    #[test]
    fn commits_on_a_hidden_base_become_one() {
        let hidden = base("c", false);
        assert_eq!(
            hidden_base(MergeMode::Merge, &hidden, true),
            Some("started with uncommitted changes of yours")
        );
        assert_eq!(
            hidden_base(MergeMode::Rebase, &hidden, false),
            Some("was merged before")
        );
        assert_eq!(hidden_base(MergeMode::Squash, &hidden, true), None);
        assert_eq!(hidden_base(MergeMode::Merge, &base("c", true), false), None);
    }

    #[test]
    fn other_base_names_what_a_merge_would_bring() {
        let commits: Vec<String> = ["abc Two", "def One"].map(str::to_owned).into();
        assert_eq!(other_base(&[], Some("topic"), "main"), None);
        assert_eq!(
            other_base(&commits[..1], Some("topic"), "main").as_deref(),
            Some("branch topic with 1 commit that main does not have: abc Two")
        );
        assert_eq!(
            other_base(&commits, Some("main"), "main").as_deref(),
            Some(
                "an earlier state of main, which was amended, rebased or reset since: a merge would restore 2 commits, the newest: abc Two"
            )
        );
        assert_eq!(
            other_base(&commits, None, "main").as_deref(),
            Some(
                "a commit that main does not have: a merge would bring 2 commits, the newest: abc Two"
            )
        );
    }
}
