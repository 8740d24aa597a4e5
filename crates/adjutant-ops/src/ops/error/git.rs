//! Codes and hints for errors of git and refusals of merges.

use crate::git::{GitError, MergeRefusal};
use crate::view::codes;

pub(super) fn of_git(error: &GitError) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match error {
        GitError::Missing => (codes::INVALID, hint("install git 2.38 or newer")),
        GitError::Bare(_) => (
            codes::INVALID,
            hint("use a clone of it that has a work tree"),
        ),
        GitError::NoWorkTree { dir, work_trees } => {
            let used = work_trees.first().map_or_else(
                || "git worktree add".to_owned(),
                |tree| format!("adj run -C {}", tree.display()),
            );
            (
                codes::INVALID,
                Some(format!(
                    "work in one of them, for example: {used} (in {}: git worktree list)",
                    dir.display()
                )),
            )
        }
        GitError::NoWorkspace(_) => (codes::CONFLICT, hint("its work so far: adj diff RUN")),
        GitError::RepositoryGone { run, .. } => {
            let hint = format!(
                "move it back, then repeat the command; to remove the workspace without a snapshot: adj discard {run} --force"
            );
            (codes::CONFLICT, Some(hint))
        }
        GitError::DirectoryGone(_) => (
            codes::CONFLICT,
            hint(
                "move it back, then repeat the command: its repository has the snapshots of the run",
            ),
        ),
        GitError::NoCommit(_) => (
            codes::INVALID,
            hint("a workspace is made from a commit: git commit"),
        ),
        GitError::NoBase { .. } => (codes::CONFLICT, hint("start the run again: adj retry")),
        GitError::NotARepository(_) => (
            codes::INVALID,
            hint("snapshots and workspaces need a git repository: git init"),
        ),
        GitError::ForeignGitDirectory(_) => (
            codes::CONFLICT,
            hint("copy its commits yourself; adj discard --force keeps only its files"),
        ),
        GitError::UnreadableCommits { .. } => (
            codes::CONFLICT,
            hint(
                "nothing was changed; only its files: adj merge RUN --squash, or adj discard RUN --force",
            ),
        ),
        GitError::NotCopied { .. } => (
            codes::CONFLICT,
            hint("correct the file, or copy in [workspaces] of the configuration"),
        ),
        GitError::TooLarge { .. } | GitError::NotAccepted(_) => (codes::CONFLICT, None),
        GitError::Unusable { .. } => (codes::CONFLICT, None),
        GitError::Failed { .. } | GitError::Slow { .. } => (
            codes::CONFLICT,
            hint("nothing was changed; see also: adj doctor"),
        ),
        GitError::Refused(refusal) => of_refusal(refusal),
        GitError::PartlyApplied { .. } => (
            codes::STORAGE,
            hint("do not commit yet: remove the cause, then repeat the command"),
        ),
        GitError::File { .. } => (
            codes::STORAGE,
            hint("repeat the command once the cause is fixed: it continues where it stopped"),
        ),
    }
}

fn of_refusal(refusal: &MergeRefusal) -> (&'static str, Option<String>) {
    let (code, hint) = match refusal {
        MergeRefusal::Dirty(_) => (
            codes::CONFLICT,
            "nothing was changed; commit or stash them first: git stash",
        ),
        MergeRefusal::InTheWay(_) => (codes::CONFLICT, "nothing was changed; move them away first"),
        MergeRefusal::Filtered(_) => (
            codes::CONFLICT,
            "nothing was changed; make a branch and merge it with git: adj merge RUN --branch NAME",
        ),
        MergeRefusal::Copies(_) => (
            codes::CONFLICT,
            "nothing was changed; merge its files without its commits: adj merge RUN --squash",
        ),
        MergeRefusal::Sparse(_) => (
            codes::CONFLICT,
            "nothing was changed; widen it first: git sparse-checkout add DIR",
        ),
        MergeRefusal::Submodules(_) | MergeRefusal::Names(_) => (
            codes::CONFLICT,
            "nothing was changed; make a branch and merge it with git: adj merge RUN --branch NAME",
        ),
        MergeRefusal::SubmoduleCommits(_) => (
            codes::CONFLICT,
            "nothing was changed; check them out or fetch in them (git submodule update --init, git -C PATH fetch), then merge again",
        ),
        MergeRefusal::UnderWay(_) => (
            codes::CONFLICT,
            "nothing was changed; finish or abort it first: git status",
        ),
        MergeRefusal::Locked(_) => (
            codes::CONFLICT,
            "nothing was changed; wait for it to end, or remove the file if none runs",
        ),
        MergeRefusal::Changed(_) => (codes::CONFLICT, "nothing was changed; repeat the command"),
        MergeRefusal::LeftAlone(_) => (
            codes::CONFLICT,
            "the files that you saved are as you saved them, all others as before; commit or stash yours, then repeat the command",
        ),
        MergeRefusal::SplitIndex => (
            codes::CONFLICT,
            "nothing was changed; join it first: git update-index --no-split-index",
        ),
        MergeRefusal::NoIdentity(_) => (
            codes::INVALID,
            "set them: git config --global user.name NAME, and user.email ADDRESS",
        ),
        MergeRefusal::BranchName(_) => (codes::INVALID, "choose another name"),
        MergeRefusal::BranchTaken(_) => {
            (codes::CONFLICT, "nothing was changed; choose another name")
        }
        MergeRefusal::ChangedSince(_) | MergeRefusal::ChangedBeside { .. } => (
            codes::CONFLICT,
            "nothing was changed; to restore them nevertheless: --force, which can be undone",
        ),
        MergeRefusal::OtherBase(_) => (
            codes::CONFLICT,
            "nothing was changed; only the run's own changes: adj merge RUN --rebase (its commits) or --squash (one commit)",
        ),
        MergeRefusal::CrissCross => (
            codes::CONFLICT,
            "nothing was changed; make a branch and merge it with git: adj merge RUN --branch NAME, then git merge NAME",
        ),
        MergeRefusal::Markers(_) => (
            codes::CONFLICT,
            "nothing was changed; resolve them: adj open RUN, or adj comment RUN FILE:LINE TEXT; as they are: adj merge RUN --branch NAME",
        ),
        MergeRefusal::MergeCommit | MergeRefusal::TooManyCommits(_) => (
            codes::CONFLICT,
            "nothing was changed; merge it in another way: adj merge RUN --squash",
        ),
    };
    (code, Some(hint.to_owned()))
}
