//! Programs that the caller waits for: `git --version`, or another process of this binary.

use super::system;
use adjutant_core::units::duration;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{SignalKind, signal};

/// Path of this binary, valid even if its file was replaced.
const SELF_EXE: &str = "/proc/self/exe";

/// Runs a program without input to its end, and returns its output. Kills it if it takes longer
/// than `limit`.
///
/// # Errors
/// It cannot be started, or takes too long.
pub async fn output(
    program: &Path,
    args: &[&OsStr],
    env: &[(OsString, OsString)],
    limit: Duration,
) -> io::Result<Output> {
    let mut command = command(program);
    command
        .args(args)
        .envs(env.iter().cloned())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    match tokio::time::timeout(limit, command.output()).await {
        Ok(output) => output,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "{} took longer than {}",
                program.display(),
                duration::of(limit)
            ),
        )),
    }
}

/// Runs this binary to its end as a second process, as a person at another terminal would.
///
/// # Errors
/// It cannot be started, or takes too long.
pub async fn own_output(
    args: &[&OsStr],
    env: &[(OsString, OsString)],
    limit: Duration,
) -> io::Result<Output> {
    system::require_process_descriptors()?;
    output(Path::new(SELF_EXE), args, env, limit).await
}

/// Runs this binary on the caller's terminal and waits for its end.
///
/// # Errors
/// It cannot be started or waited for.
pub async fn own_attached(args: &[&OsStr], env: &[(OsString, OsString)]) -> io::Result<ExitStatus> {
    system::require_process_descriptors()?;
    command(Path::new(SELF_EXE))
        .args(args)
        .envs(env.iter().cloned())
        .kill_on_drop(true)
        .status()
        .await
}

/// Runs a program of the user on the caller's terminal, in a directory, and waits for its end.
///
/// # Errors
/// It cannot be started or waited for.
pub async fn run_attached(program: &str, args: &[String], dir: &Path) -> io::Result<ExitStatus> {
    let _interrupts = signal(SignalKind::interrupt())?;
    command(Path::new(program))
        .args(args)
        .current_dir(dir)
        .status()
        .await
}

/// Runs a program of the user on the caller's terminal, with text on its standard input, and waits
/// for its end. It may end before it has read everything, as a pager does.
///
/// # Errors
/// It cannot be started or waited for.
pub async fn attached_with_input(program: &str, args: &[String], input: &[u8]) -> io::Result<()> {
    // The program handles Ctrl-C.
    let _interrupts = signal(SignalKind::interrupt())?;
    let mut child = command(Path::new(program))
        .args(args)
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take()
        && let Err(error) = stdin.write_all(input).await
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        tracing::debug!(%error, "a pager did not read everything");
    }
    child.wait().await.map(drop)
}

/// Starts a program of the user's desktop without waiting for it. It may outlive the caller.
///
/// # Errors
/// It cannot be started.
pub fn start_detached(program: &str, args: &[String]) -> io::Result<()> {
    command(Path::new(program))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module spawns; such a program belongs to the user's terminal and stays in its session"
)]
fn command(program: &Path) -> tokio::process::Command {
    tokio::process::Command::new(program)
}
