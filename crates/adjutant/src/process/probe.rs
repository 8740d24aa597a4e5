//! Asking a program something short, such as its version: bounded in time and output, and everything
//! that it starts ends with it.

use super::{Feed, Signal, Spawn, tree, watch};
use rustix::process::{WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// A program and what it is asked.
#[derive(Debug)]
pub struct Probe {
    /// Absolute.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    pub limit: Duration,
    pub output_bytes_max: usize,
}

/// What it said.
#[derive(Debug)]
pub struct Said {
    /// `None`: a signal ended it.
    pub exit_code: Option<i32>,
    /// The beginning of its standard output.
    pub output: Vec<u8>,
}

/// How long the output may stay open after the end.
const DRAIN_MAX: Duration = Duration::from_millis(200);

/// Starts the program in `/`, without input, and waits for its end. It is killed when its time is over,
/// or when it says more than is wanted.
///
/// # Errors
/// It cannot be started; `TimedOut`: it took too long.
pub async fn ask(probe: Probe) -> io::Result<Said> {
    // Whatever it starts carries this mark, and is found by it.
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let mark = format!("probe-{}", rustix::process::getpid().as_raw_nonzero());
    let n = ASKED.fetch_add(1, Ordering::Relaxed);
    let mut env = probe.env;
    env.push((OsString::from(tree::MARKER), OsString::from(format!("{mark}/{n}"))));
    let mut argv = vec![probe.program.clone().into_os_string()];
    argv.extend(probe.args.iter().map(OsString::from));
    let (theirs, mut ours) = pipe::pipe()?;
    let theirs = theirs.into_blocking_fd()?;
    let child = Spawn {
        program: &probe.program,
        argv,
        env,
        cwd: Path::new("/"),
        stdin: Feed::Null,
        stdout: Feed::Fd(theirs.as_fd()),
        stderr: Feed::Null,
        inherit: Vec::new(),
        umask: None,
    }
    .start()?;
    drop(theirs);
    let mut output = Vec::new();
    let ended = tokio::time::timeout(probe.limit, heard(&child.pidfd, &mut ours, &mut output, probe.output_bytes_max)).await;
    let pid = child.pid;
    tree::kill(pid);
    // It is ours and not reaped, so nobody else can have its number.
    if let Err(error) = rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL) {
        tracing::debug!(%error, "a program that was asked something has ended already");
    }
    watch::ended(child.pidfd.try_clone()?).await?;
    let status = rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    let left = tokio::task::spawn_blocking(move || tree::marked(&mark, n)).await.map_err(io::Error::other)?;
    if left > 0 {
        tracing::info!(program = %probe.program.display(), left, "a program that was asked something had left processes behind");
    }
    match ended {
        Ok(heard) => heard?,
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it took longer than {} s", probe.limit.as_secs()))),
    }
    Ok(Said { exit_code: status.and_then(|status| status.exit_status()), output })
}

/// Reads until there is enough, or the program has ended and what it wrote is there.
async fn heard(pidfd: &std::os::fd::OwnedFd, pipe: &mut pipe::Receiver, output: &mut Vec<u8>, bytes_max: usize) -> io::Result<()> {
    let mut ended = std::pin::pin!(watch::ended(pidfd.try_clone()?));
    let mut has_ended = false;
    let mut buffer = [0; 4096];
    while output.len() < bytes_max {
        let read = tokio::select! {
            biased;
            read = pipe.read(&mut buffer) => read?,
            end = &mut ended, if !has_ended => {
                end?;
                has_ended = true;
                continue;
            }
            () = tokio::time::sleep(DRAIN_MAX), if has_ended => return Ok(()),
        };
        if read == 0 {
            break;
        }
        output.extend_from_slice(&buffer[..read.min(bytes_max - output.len())]);
    }
    // With its output closed, or enough of it said, its end is what is left to wait for.
    if !has_ended && output.len() < bytes_max {
        ended.await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> io::Result<Said> {
        let probe = Probe {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            limit,
            output_bytes_max: 100,
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ask(probe))
    }

    #[test]
    fn it_hears_what_is_said_and_no_more_than_it_wants() {
        let said = shell("echo 1.2.3; echo noise >&2; exit 4", Duration::from_secs(30)).expect("it can be asked");
        assert_eq!((said.exit_code, said.output.as_slice()), (Some(4), b"1.2.3\n".as_slice()));
        let said = shell("while :; do echo 0123456789; done", Duration::from_secs(30)).expect("it can be asked");
        assert_eq!(said.output.len(), 100);
    }

    #[test]
    fn what_takes_too_long_is_ended() {
        let error = shell("sleep 600", Duration::from_millis(200)).expect_err("it does not end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn what_it_has_started_ends_with_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let at = file.path().display();
        // The flood ends it, once the other one is there.
        let script = format!("setsid sh -c 'echo $$ > {at}; exec sleep 600' & until [ -s {at} ]; do :; done; while :; do echo flood; done");
        shell(&script, Duration::from_secs(60)).expect("it can be asked");
        let text = std::fs::read_to_string(file.path()).expect("a pid");
        let pid = text.trim().parse().ok().and_then(super::super::Pid::from_raw).expect("a pid");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // It was killed; its number may be gone already.
        if let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            let end = async { tokio::time::timeout(Duration::from_secs(30), watch::ended(pidfd)).await };
            runtime.block_on(end).expect("it ends").expect("it can be watched");
        }
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let probe = Probe {
            program: PathBuf::from("/no/such/program"),
            args: Vec::new(),
            env: Vec::new(),
            limit: Duration::from_secs(1),
            output_bytes_max: 1,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        assert_eq!(runtime.block_on(ask(probe)).map(|_| ()).expect_err("it is not there").kind(), io::ErrorKind::NotFound);
    }
}
