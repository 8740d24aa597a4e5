//! Packs with the objects that another repository lacks.

use super::is_object_id;
use crate::git::call::Call;
use crate::git::{GitError, Scratch};
use std::fs::File;
use std::time::Duration;

/// Timeout for making or reading a pack.
pub(super) const PACK_MAX: Duration = Duration::from_secs(20 * 60);
/// Maximum number of known commits that are considered.
const KNOWN_MAX: usize = 2_000;

/// Writes a pack with the wanted commits and everything that they need and the known commits do not
/// contain, for a repository that has the known commits. Unknown commits are ignored. Writes
/// nothing if nothing is needed.
///
/// # Errors
/// git failed, a wanted commit is missing, or the pack would be larger than `bytes_max`.
pub async fn write_pack(
    scratch: &Scratch,
    wanted: &[String],
    known: &[String],
    to: File,
    bytes_max: u64,
) -> Result<(), GitError> {
    pack(
        |args| scratch.tree_less_call(args, true),
        wanted,
        known,
        Some("--thin"),
        to,
        bytes_max,
    )
    .await
    .map(drop)
}

/// Adds the objects of a pack from a trusted source to a repository. The file is read from its
/// current position.
///
/// # Errors
/// git failed, or the pack is damaged.
pub async fn read_pack(scratch: &Scratch, from: File) -> Result<(), GitError> {
    scratch
        .tree_less_call(&["index-pack", "--stdin", "--fix-thin"], true)
        .input_file(from)
        .limit(PACK_MAX)
        .output()
        .await
        .map(drop)
}

/// Writes a pack by means of these calls. Returns whether there is one.
pub(in crate::git) async fn pack<'a>(
    call: impl Fn(&[&str]) -> Call<'a>,
    wanted: &[String],
    known: &[String],
    thin: Option<&str>,
    to: File,
    bytes_max: u64,
) -> Result<bool, GitError> {
    let known = commits_among(&call, known).await?;
    let mut revisions: String = wanted.iter().map(|commit| format!("{commit}\n")).collect();
    revisions.extend(known.iter().map(|commit| format!("^{commit}\n")));
    let measured = call(&["rev-list", "--objects", "--disk-usage", "--stdin"])
        .input(revisions.clone().into_bytes())
        .limit(PACK_MAX)
        .line()
        .await?;
    let bytes: u64 = measured.parse().unwrap_or(0);
    if bytes == 0 {
        return Ok(false);
    }
    if bytes > bytes_max {
        return Err(GitError::TooLarge { bytes, bytes_max });
    }
    let args: Vec<&str> = [
        "pack-objects",
        "--revs",
        "--stdout",
        "--quiet",
        "--delta-base-offset",
    ]
    .into_iter()
    .chain(thin)
    .collect();
    call(&args)
        .input(revisions.into_bytes())
        .output_file(to)
        .limit(PACK_MAX)
        .output()
        .await?;
    Ok(true)
}

/// Returns those of the ids that are commits.
pub(super) async fn commits_among<'a>(
    call: &impl Fn(&[&str]) -> Call<'a>,
    ids: &[String],
) -> Result<Vec<String>, GitError> {
    let asked: String = ids
        .iter()
        .filter(|id| is_object_id(id))
        .take(KNOWN_MAX)
        .map(|id| format!("{id}\n"))
        .collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let found = call(&["cat-file", "--batch-check=%(objecttype) %(objectname)"])
        .input(asked.into_bytes())
        .output()
        .await?;
    Ok(String::from_utf8_lossy(&found)
        .lines()
        .filter_map(|line| line.strip_prefix("commit ").map(str::to_owned))
        .collect())
}
