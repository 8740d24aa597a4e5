//! Carries the refs of a run and their objects between the user's repository and a runner's copy of
//! it.
//!
//! ```text
//!  hub     base, changes, snapshots, the agent's commits ──> runner: replaces the refs of the run, drops no commit
//!  runner  snapshots, the agent's commits                ──> hub: adds to the refs of the run, nothing else
//! ```
//! What a runner sends is checked in a directory of its own before the user's repository gets any
//! of it.

mod accept;
mod cache;
mod pack;

pub use accept::{KeptAs, accept_work};
pub use cache::{CarriedSettings, make_cache};
pub(super) use pack::pack;
pub use pack::{read_pack, write_pack};

use super::{GitError, Repo, snapshots};
use adjutant_core::RunId;
use std::collections::{BTreeMap, BTreeSet};

/// The refs of a run, with their names below `refs/adjutant/<run id>/`, and the commits that they
/// name.
pub type RunRefs = BTreeMap<String, String>;

/// Lists the refs of a run that are carried.
///
/// # Errors
/// git failed.
pub async fn carried_refs(repo: &Repo, run: RunId) -> Result<RunRefs, GitError> {
    let below = format!("refs/adjutant/{run}/");
    let listed = repo
        .of_refs(&[
            "for-each-ref",
            "--format=%(objectname) %(refname) %(symref)",
            &below,
        ])
        .output()
        .await?;
    let carried = |line: &str| {
        // The line of a symbolic ref ends with its target. Adjutant creates no symbolic refs.
        let (commit, name) = line.strip_suffix(' ')?.split_once(' ')?;
        let name = name
            .strip_prefix(&below)
            .filter(|name| *name != "now" && !name.starts_with("resolved/"))?;
        Some((name.to_owned(), commit.to_owned()))
    };
    Ok(String::from_utf8_lossy(&listed)
        .lines()
        .filter_map(carried)
        .collect())
}

/// Replaces the refs of a run in a copy of the repository. What only the copy has stays named by
/// its commit, so that it can be sent later. `kept` is named outside of the run too, so that the
/// next run needs less.
///
/// # Errors
/// git failed.
pub async fn replace_refs(
    repo: &Repo,
    run: RunId,
    refs: &RunRefs,
    kept: Option<&str>,
) -> Result<(), GitError> {
    let known = carried_refs(repo, run).await?;
    let theirs: BTreeSet<&String> = refs.values().collect();
    let mut wanted = refs.clone();
    for commit in known.values().filter(|commit| !theirs.contains(commit)) {
        wanted.insert(format!("reflog/{commit}"), commit.clone());
    }
    let below = format!("refs/adjutant/{run}");
    let mut input: String = known
        .keys()
        .filter(|name| !wanted.contains_key(*name))
        .map(|name| format!("delete {below}/{name}\n"))
        .collect();
    for (name, commit) in wanted
        .iter()
        .filter(|(name, commit)| known.get(*name) != Some(*commit))
    {
        input.push_str(&format!("update {below}/{name} {commit}\n"));
    }
    input.extend(kept.map(|commit| format!("update {KEPT} {commit}\n")));
    repo.of_refs(&["update-ref", "--no-deref", "--stdin"])
        .input(input.into_bytes())
        .output()
        .await
        .map(drop)
}

/// The ref of the newest base in a copy of the repository.
const KEPT: &str = "refs/adjutant/kept";

/// Lists commits that a repository has, the newest first, at most `max`.
///
/// # Errors
/// git failed.
pub async fn known_commits(repo: &Repo, max: usize) -> Result<Vec<String>, GitError> {
    let count = format!("--count={max}");
    let listed = repo
        .of_refs(&[
            "for-each-ref",
            "--format=%(objectname)",
            "--sort=-committerdate",
            &count,
            "refs/adjutant",
        ])
        .output()
        .await?;
    let mut commits: Vec<String> = String::from_utf8_lossy(&listed)
        .lines()
        .map(str::to_owned)
        .collect();
    commits.sort_unstable();
    commits.dedup();
    Ok(commits)
}

/// The last known state of a run, from which its workspace is made on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continued {
    /// The commit of the newest snapshot, which has the files.
    pub snapshot: String,
    /// The commit that the agent had checked out, if it has made it.
    pub head: Option<String>,
    /// The agent's other branches and their commits.
    pub branches: Vec<(String, String)>,
    pub stash: Option<String>,
}

/// Finds the last known state of a run. `None`: there is no snapshot.
///
/// # Errors
/// git failed.
pub async fn continued_state(repo: &Repo, run: RunId) -> Result<Option<Continued>, GitError> {
    let Some(last) = snapshots(repo, run).await?.pop() else {
        return Ok(None);
    };
    let refs = carried_refs(repo, run).await?;
    let branch = |(name, commit): (&String, &String)| {
        let name = name.strip_prefix("heads/")?;
        Some((name.replace("%2F", "/").replace("%25", "%"), commit.clone()))
    };
    Ok(Some(Continued {
        snapshot: last.commit,
        head: refs.get("head").cloned(),
        branches: refs.iter().filter_map(branch).collect(),
        stash: refs.get("stash").cloned(),
    }))
}

/// Returns whether a text is a full object id.
fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64)
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::{commit_on, in_repository};

    #[test]
    fn commits_that_only_the_copy_has_stay_named() {
        in_repository(async |here| {
            let run = RunId::new(adjutant_core::Time(1), [1; 10]);
            let base = commit_on(here, &[], &[("a", b"old\n")]).await;
            let one = commit_on(here, &[&base], &[("a", b"one\n")]).await;
            let two = commit_on(here, &[&base], &[("a", b"two\n")]).await;
            let other = commit_on(here, &[&base], &[("a", b"other\n")]).await;
            let refs = |all: &[(&str, &String)]| -> RunRefs {
                all.iter()
                    .map(|(name, commit)| ((*name).to_owned(), (*commit).clone()))
                    .collect()
            };
            replace_refs(
                here.repo(),
                run,
                &refs(&[("base", &base), ("1", &one), ("2", &two), ("heads/x", &one)]),
                None,
            )
            .await
            .expect("replaced");
            // The hub has another second snapshot, and neither the branch nor the local one.
            let theirs = refs(&[("base", &base), ("1", &one), ("2", &other)]);
            for _ in 0..2 {
                replace_refs(here.repo(), run, &theirs, None)
                    .await
                    .expect("replaced");
                let mut expected = theirs.clone();
                expected.insert(format!("reflog/{two}"), two.clone());
                assert_eq!(
                    carried_refs(here.repo(), run).await.expect("refs"),
                    expected
                );
            }
        });
    }
}
