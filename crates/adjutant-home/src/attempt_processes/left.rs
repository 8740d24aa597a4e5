//! The processes that an attempt or a run has left.

use super::mark;
use super::place::is_guard_or_supervisor;
use crate::process::{Pid, limit, properties, tree};
use crate::protocol::AttemptDir;
use std::fs;
use std::path::Path;

/// Kills the processes of an attempt whose guard and supervisor are both dead: all processes with
/// the attempt's mark in their environment, or its value as a limit. Guard and supervisor, which
/// may have neither, are killed too if they are alive without their locks. Returns the number of
/// killed processes.
#[must_use]
pub fn kill_stragglers(dir: &AttemptDir, run_id: &str, attempt: u32) -> u32 {
    let value = mark::limit(dir);
    let text = mark::text(run_id, attempt);
    tree::kill_where(|pid| {
        tree::has_mark(pid, &text) || has_limit(pid, &[value]) || is_guard_or_supervisor(pid, dir)
    })
}

fn has_limit(pid: Pid, values: &[u64]) -> bool {
    limit::of_process(pid).is_ok_and(|found| found.is_some_and(|found| values.contains(&found)))
}

/// Returns the processes of a run with their command lines: those with the mark of one of its
/// attempts, and those whose working directory is the run's directory or below it.
#[must_use]
pub fn of_run(home: &Path, run_id: &str, dir: &Path) -> Vec<(Pid, String)> {
    let prefix = format!("{run_id}/").into_bytes();
    let is_marked = |pid: Pid| {
        properties::environment(pid).is_ok_and(|env| {
            env.is_some_and(|env| mark::in_environment(&env).any(|it| it.starts_with(&prefix)))
        })
    };
    let attempts = fs::read_dir(home.join("runs").join(run_id))
        .into_iter()
        .flatten()
        .flatten();
    let values: Vec<u64> = attempts
        .map(|attempt| mark::limit(&AttemptDir(attempt.path())))
        .collect();
    let works_there =
        |pid: Pid| properties::working_dir(pid).is_some_and(|cwd| cwd.starts_with(dir));
    let lives = |pid: Pid| tree::status(pid).is_some_and(|status| !status.is_zombie);
    let found = tree::all().into_iter().filter(|pid| {
        (is_marked(*pid) || has_limit(*pid, &values) || works_there(*pid)) && lives(*pid)
    });
    found.map(|pid| (pid, command_line(pid))).collect()
}

fn command_line(pid: Pid) -> String {
    let bytes = properties::command_line(pid)
        .unwrap_or_default()
        .unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .trim_end_matches('\0')
        .replace('\0', " ")
}
