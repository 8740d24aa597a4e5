//! The directories of attempts below the runner's home.

use crate::config::Home;
use crate::protocol::AttemptDir;
use std::io;
use std::path::Path;

/// An attempt, as `<run-id>/<attempt>`.
pub(super) type Key = String;

/// Returns the directory of an attempt, its run and its number.
pub(super) fn place(home: &Home, key: &str) -> Option<(AttemptDir, String, u32)> {
    let (run_id, attempt) = key.split_once('/')?;
    let attempt = attempt.parse().ok()?;
    // An id of the hub, which must not lead elsewhere.
    let is_plain = !run_id.is_empty()
        && run_id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    is_plain.then(|| {
        (
            AttemptDir::new(&home.dir, run_id, attempt),
            run_id.to_owned(),
            attempt,
        )
    })
}

/// Lists what is below the directories of runs: attempts and other things.
pub(super) fn all(home: &Home) -> impl Iterator<Item = Key> {
    let runs = home.runs_dir();
    entries(&runs).into_iter().flat_map(move |run| {
        entries(&runs.join(&run))
            .into_iter()
            .map(move |attempt| format!("{run}/{attempt}"))
    })
}

/// Lists the names in a directory. A failure is logged: the attempts that are not listed count as
/// unknown.
fn entries(dir: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(dir).and_then(|entries| {
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    });
    listed.unwrap_or_else(|error: io::Error| {
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            tracing::error!(%error, dir = %dir.display(), "the attempts in a directory cannot be listed");
        }
        Vec::new()
    })
}
