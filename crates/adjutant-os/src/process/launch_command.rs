//! A command that starts a runner elsewhere. Some end at once; others, such as `ssh`, run as long
//! as the runner. Unlike a tool, it outlives this process. Its processes are marked in their
//! environment, so that a later hub finds them ([`super::LeftLaunch`]).

use super::start::unlinked_file;
use super::{Child, Signal, Spawn, StdioTarget, left_launch, system, watch};
use rustix::process::kill_process_group;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// How much of the end of its output is kept, in bytes.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// How long its output may stay open after its end.
const OUTPUT_END_MAX: Duration = Duration::from_secs(1);
/// How long it may take to exit before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// A started command. Dropping it ends nothing.
#[derive(Debug)]
pub struct LaunchCommand {
    child: Child,
    output: pipe::Receiver,
    /// The end of what it has written to standard output and standard error.
    tail: Vec<u8>,
}

impl LaunchCommand {
    /// Starts a program in a new session. Its standard input is a file without a name with this
    /// content, so that it can read all of it even if this process dies. `home`: for that file,
    /// where there is none in memory. `name`: that of the runner.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        home: &Path,
        name: &str,
        program: &Path,
        argv: &[String],
        mut env: Vec<(OsString, OsString)>,
        input: &[u8],
    ) -> io::Result<Self> {
        let their_input = unlinked_file(home, home, input)?;
        env.push(left_launch::mark(home, name));
        let (our_output, their_output) = io::pipe()?;
        let spawn = Spawn {
            program,
            argv: argv.iter().map(OsString::from).collect(),
            env,
            cwd: Path::new("/"),
            stdin: StdioTarget::Fd(their_input.as_fd()),
            stdout: StdioTarget::Fd(their_output.as_fd()),
            stderr: StdioTarget::Fd(their_output.as_fd()),
            inherit: Vec::new(),
            umask: None,
        };
        let child = spawn.start()?;
        Ok(Self {
            child,
            output: pipe::Receiver::from_owned_fd(our_output.into())?,
            tail: Vec::new(),
        })
    }

    /// Waits for its end and reaps it. Returns its exit code; `None`: a signal ended it.
    ///
    /// # Errors
    /// It cannot be watched.
    pub async fn ended(&mut self) -> io::Result<Option<i32>> {
        let Self {
            child,
            output,
            tail,
        } = self;
        let reading = read_tail(output, tail);
        tokio::pin!(reading);
        let ended = watch::ended(child.pidfd.try_clone()?);
        tokio::pin!(ended);
        let is_read = tokio::select! {
            ended = &mut ended => {
                ended?;
                false
            }
            () = &mut reading => true,
        };
        if is_read {
            ended.await?;
        } else if tokio::time::timeout(OUTPUT_END_MAX, reading).await.is_err() {
            tracing::debug!("a program has ended, and its output is still open");
        }
        let status = system::reap_process(&child.pidfd)?;
        Ok(status.and_then(|status| status.exit_status()))
    }

    /// Ends its process group and reaps it.
    pub async fn end(mut self) {
        // It leads a session and is not reaped, so no other process has its pid.
        for signal in [Signal::TERM, Signal::KILL] {
            if let Err(error) = kill_process_group(self.child.pid, signal) {
                tracing::debug!(%error, "a program has already exited");
            }
            match tokio::time::timeout(GRACE, self.ended()).await {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => {
                    return tracing::warn!(%error, "the end of a program cannot be awaited");
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the end of its output.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.tail).into_owned()
    }
}

async fn read_tail(pipe: &mut pipe::Receiver, tail: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    loop {
        match pipe.read(&mut buffer).await {
            Ok(0) => return,
            Ok(read) => tail.extend_from_slice(&buffer[..read]),
            Err(error) => return tracing::debug!(%error, "the output of a program cannot be read"),
        }
        let excess = tail.len().saturating_sub(OUTPUT_BYTES_MAX);
        tail.drain(..excess);
    }
}
