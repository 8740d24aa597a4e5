//! Programs that are started to be waited for: `git --version`, or this binary again.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

/// This binary, also when its file was replaced meanwhile.
const SELF_EXE: &str = "/proc/self/exe";

/// Runs a program to its end and returns what it printed; it gets no input, and is killed when it
/// takes longer than `limit`.
///
/// # Errors
/// It cannot be started, or takes too long.
pub async fn output(program: &Path, args: &[&OsStr], env: &[(OsString, OsString)], limit: Duration) -> io::Result<Output> {
    let mut command = command(program);
    command.args(args).envs(env.iter().cloned()).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(limit, command.output()).await {
        Ok(output) => output,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} took longer than {} s", program.display(), limit.as_secs()))),
    }
}

/// Runs this binary to its end as a second process, as a person at another terminal would.
///
/// # Errors
/// It cannot be started, or takes too long.
pub async fn own_output(args: &[&OsStr], env: &[(OsString, OsString)], limit: Duration) -> io::Result<Output> {
    output(Path::new(SELF_EXE), args, env, limit).await
}

/// Runs this binary on the caller's terminal and waits for its end.
///
/// # Errors
/// It cannot be started or waited for.
pub async fn own_attached(args: &[&OsStr], env: &[(OsString, OsString)]) -> io::Result<ExitStatus> {
    command(Path::new(SELF_EXE)).args(args).envs(env.iter().cloned()).kill_on_drop(true).status().await
}

#[expect(clippy::disallowed_methods, reason = "this module spawns; such a program belongs to the user's terminal and stays in its session")]
fn command(program: &Path) -> tokio::process::Command {
    tokio::process::Command::new(program)
}
