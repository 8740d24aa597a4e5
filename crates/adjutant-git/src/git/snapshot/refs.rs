//! The refs of a run's snapshots: the only record of them.

use super::Snapshot;
use crate::git::{GitError, Repo, own_refs};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, RunId};

/// Maximum number of a snapshot. A ref with a larger number was not created by Adjutant.
const N_MAX: u32 = 1_000_000;

pub(super) const CAUSE: &str = "Adjutant-Cause";
pub(super) const ATTEMPT: &str = "Adjutant-Attempt";
pub(super) const LEFT_OUT: &str = "Adjutant-Left-Out";
pub(super) const BYTES: &str = "Adjutant-Bytes";
pub(super) const AT_MS: &str = "Adjutant-At-Ms";

/// Lists the snapshots of a run, the oldest first.
///
/// # Errors
/// git failed.
pub async fn snapshots(repo: &Repo, run: RunId) -> Result<Vec<Snapshot>, GitError> {
    // No field is empty, so two NULs always end an entry.
    let format = "--format=%(refname)%00%(objectname)%00s%(symref)%00t%(tree)%00d%(committerdate:unix)%00m%(contents)%00%00";
    let below = format!("refs/adjutant/{run}/");
    let output = repo
        .of_refs(&["for-each-ref", format, &below])
        .output()
        .await?;
    let text = String::from_utf8_lossy(&output);
    let mut found: Vec<Snapshot> = text
        .split("\0\0")
        .filter_map(|entry| read_entry(&below, entry.trim_start_matches('\n')))
        .collect();
    found.sort_by_key(|snapshot| snapshot.n);
    Ok(found)
}

/// Reads one entry. `None`: it is not a snapshot of Adjutant.
fn read_entry(below: &str, entry: &str) -> Option<Snapshot> {
    let mut fields = entry.splitn(6, '\0');
    let n = fields
        .next()?
        .strip_prefix(below)?
        .parse()
        .ok()
        .filter(|n| (1..=N_MAX).contains(n))?;
    let commit = fields.next()?.to_owned();
    // Adjutant creates no symbolic refs.
    fields.next().filter(|symref| *symref == "s")?;
    let tree = fields.next()?.strip_prefix('t')?.to_owned();
    let at = fields.next()?.strip_prefix('d')?.parse::<i64>().ok()?;
    let message = fields.next()?.strip_prefix('m')?;
    let of = |name: &str| {
        message
            .lines()
            .filter_map(move |line| {
                line.strip_prefix(name)?
                    .strip_prefix(": ")
                    .map(str::to_owned)
            })
            .collect::<Vec<_>>()
    };
    let cause = of(CAUSE)
        .first()
        .and_then(|word| SnapshotCause::from_word(word));
    let attempt = of(ATTEMPT)
        .first()
        .and_then(|n| n.parse().ok())
        .map(AttemptNo);
    // The date of a commit has no fractions.
    let exact = of(AT_MS)
        .first()
        .and_then(|at_ms| at_ms.parse::<i64>().ok())
        .filter(|at_ms| at_ms.div_euclid(1000) == at);
    let at_ms = exact.unwrap_or(at.saturating_mul(1000));
    let tree = Some(tree).filter(|tree| !tree.is_empty())?;
    Some(Snapshot {
        n,
        commit,
        tree,
        at_ms,
        cause,
        attempt,
        left_out: of(LEFT_OUT),
        bytes: of(BYTES).pop().filter(|bytes| is_object(bytes)),
    })
}

/// Returns whether a text is a full object id. It is not trusted, because a program that can write
/// refs can write the message of a snapshot.
fn is_object(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Creates the snapshot ref of a commit with the first free number.
pub(super) async fn name_commit(
    repo: &Repo,
    run: RunId,
    first: u32,
    commit: &str,
    tries: u32,
) -> Result<u32, GitError> {
    let mut refused = None;
    let short_wait = [("core.filesRefLockTimeout".to_owned(), "100".to_owned())];
    for n in (first..).take(tries as usize) {
        let call = repo.of_refs(&[
            "update-ref",
            "--no-deref",
            &format!("refs/adjutant/{run}/{n}"),
            commit,
            &repo.zero(),
        ]);
        match call.settings(&short_wait).output().await {
            Ok(_) => {
                return repo
                    .sync_refs([format!("refs/adjutant/{run}/{n}").as_str()])
                    .map(|()| n);
            }
            // The number is taken, or a killed call left its lock.
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| GitError::Failed {
        command: "update-ref".to_owned(),
        why: "no number is free".to_owned(),
    }))
}

/// Removes all refs of a run. git's next garbage collection removes their commits.
///
/// # Errors
/// git failed.
pub async fn remove_all(repo: &Repo, run: RunId) -> Result<(), GitError> {
    let listed = repo
        .of_refs(&[
            "for-each-ref",
            "--format=%(refname) %(objectname) %(symref)",
            &format!("refs/adjutant/{run}/"),
        ])
        .output()
        .await?;
    let listed = String::from_utf8_lossy(&listed);
    // The line of a symbolic ref ends with its target. Adjutant creates no symbolic refs.
    let own = listed.lines().filter_map(|line| line.strip_suffix(' '));
    let input: String = own
        .map(|name_and_object| format!("delete {name_and_object}\n"))
        .collect();
    if input.is_empty() {
        return Ok(());
    }
    for name_and_object in input.lines() {
        if let Some(name) = name_and_object.split(' ').nth(1) {
            own_refs::remove_left_lock(repo, name);
        }
    }
    repo.of_refs(&["update-ref", "--no-deref", "--stdin"])
        .input(input.into_bytes())
        .output()
        .await
        .map(drop)
}
