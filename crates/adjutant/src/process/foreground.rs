//! Programs that are started to be waited for: `git --version`, or this binary again.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

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

/// Runs this binary to its end with an input and without an environment, and returns what it printed.
///
/// # Errors
/// It cannot be started, fails, or takes too long.
pub async fn own_filtered(args: &[&OsStr], input: Vec<u8>, limit: Duration) -> io::Result<Vec<u8>> {
    let mut command = command(Path::new(SELF_EXE));
    command.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let filtered = async {
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or_else(|| io::Error::other("no standard input"))?;
        let fed = async {
            stdin.write_all(&input).await?;
            stdin.shutdown().await?;
            drop(stdin);
            Ok::<_, io::Error>(())
        };
        let (fed, output) = tokio::join!(fed, child.wait_with_output());
        let output = output?;
        if !output.status.success() {
            return Err(io::Error::other(format!("it ended with {}", output.status)));
        }
        fed.map(|()| output.stdout)
    };
    tokio::time::timeout(limit, filtered).await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long")))
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
