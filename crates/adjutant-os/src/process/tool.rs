//! Runs a trusted tool of the system, such as git, to its end, with limits of time and output. It
//! is killed with its process group at its time limit, or when the caller stops waiting.

use super::{Child, Signal, Spawn, StdioTarget, system, watch};
use adjutant_core::units::duration;
use rustix::fs::Mode;
use rustix::process::kill_process_group;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

/// How much of the end of standard error is kept, in bytes.
const ERRORS_BYTES_MAX: usize = 4 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// How long an abandoned tool may take to exit before it is killed.
const GRACE: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// One call of a tool.
#[derive(Debug)]
pub struct Tool<'a> {
    /// An absolute path.
    pub program: &'a Path,
    pub args: Vec<OsString>,
    /// The whole environment of the tool.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: &'a Path,
    /// Written to its standard input, which is closed after it.
    pub input: Vec<u8>,
    /// Its standard input, instead of that.
    pub input_file: Option<File>,
    /// Its standard output, none of which is kept then.
    pub output_file: Option<File>,
    pub limit: Duration,
    /// How much of the beginning of standard output is kept, in bytes. The rest is read and
    /// dropped.
    pub output_bytes_max: usize,
    /// Only a single-threaded process may set one.
    pub umask: Option<Mode>,
}

/// The result of a tool that exited.
#[derive(Debug)]
pub struct Output {
    /// `None`: a signal ended it.
    pub exit_code: Option<i32>,
    pub output: Vec<u8>,
    /// There was more output.
    pub is_cut: bool,
    /// The end of its standard error.
    pub errors: String,
}

/// Runs a tool to its end.
///
/// # Errors
/// It cannot be started; `TimedOut`: it took longer than its limit and was killed.
pub async fn run(tool: Tool<'_>) -> io::Result<Output> {
    let (program, limit) = (tool.program, tool.limit);
    let (mut output, mut errors) = (
        Head {
            bytes: Vec::new(),
            max: tool.output_bytes_max,
            is_cut: false,
        },
        Vec::new(),
    );
    // The pipes are declared last, so that they close before a tool is killed.
    let (mut running, pipes) = start(tool)?;
    let Pipes {
        input,
        mut stdin,
        mut stdout,
        mut stderr,
    } = pipes;
    let talk = async {
        let write = async {
            // If the tool needed the rest of its input, its exit code says so.
            if let Err(error) = stdin.write_all(&input).await {
                tracing::debug!(%error, "a tool did not read its whole input");
            }
            drop(stdin);
            Ok(())
        };
        tokio::try_join!(
            write,
            read_head(&mut stdout, &mut output),
            read_tail(&mut stderr, &mut errors)
        )?;
        running.ended().await
    };
    match tokio::time::timeout(limit, talk).await {
        Ok(exit_code) => Ok(Output {
            exit_code: exit_code?,
            output: output.bytes,
            is_cut: output.is_cut,
            errors: String::from_utf8_lossy(&errors).into_owned(),
        }),
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

/// The ends of a tool's pipes, and what to write.
struct Pipes {
    input: Vec<u8>,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

fn start(tool: Tool<'_>) -> io::Result<(Running, Pipes)> {
    let Tool {
        program,
        args,
        env,
        cwd,
        input,
        input_file,
        output_file,
        limit: _,
        output_bytes_max: _,
        umask,
    } = tool;
    let (their_input, our_input) = io::pipe()?;
    let (our_output, their_output) = io::pipe()?;
    let (our_errors, their_errors) = io::pipe()?;
    let argv = std::iter::once(program.as_os_str().to_owned())
        .chain(args)
        .collect();
    let spawn = Spawn {
        program,
        argv,
        env,
        cwd,
        stdin: StdioTarget::Fd(input_file.as_ref().map_or(their_input.as_fd(), AsFd::as_fd)),
        stdout: StdioTarget::Fd(
            output_file
                .as_ref()
                .map_or(their_output.as_fd(), AsFd::as_fd),
        ),
        stderr: StdioTarget::Fd(their_errors.as_fd()),
        inherit: Vec::new(),
        umask,
    };
    let running = Running {
        child: Some(spawn.start()?),
    };
    drop((their_input, their_output, their_errors));
    let pipes = Pipes {
        input,
        stdin: pipe::Sender::from_owned_fd(our_input.into())?,
        stdout: pipe::Receiver::from_owned_fd(our_output.into())?,
        stderr: pipe::Receiver::from_owned_fd(our_errors.into())?,
    };
    Ok((running, pipes))
}

/// A started tool. Dropping it kills the processes that still run.
struct Running {
    child: Option<Child>,
}

impl Running {
    /// Waits for the end and reaps. `None`: a signal ended it.
    async fn ended(&mut self) -> io::Result<Option<i32>> {
        let Some(child) = &self.child else {
            return Ok(None);
        };
        watch::ended(child.pidfd.try_clone()?).await?;
        let status = system::reap_process(&child.pidfd)?;
        self.child = None;
        Ok(status.and_then(|status| status.exit_status()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = &self.child else { return };
        // It leads a session and is not reaped, so no other process has its pid. Git removes its
        // locks on TERM.
        for signal in [Signal::TERM, Signal::KILL] {
            if let Err(error) = kill_process_group(child.pid, signal) {
                tracing::debug!(%error, "an abandoned tool has already exited");
            }
            let mut ended = [rustix::event::PollFd::new(
                &child.pidfd,
                rustix::event::PollFlags::IN,
            )];
            if let Err(error) = rustix::event::poll(&mut ended, Some(&GRACE)) {
                tracing::debug!(%error, "the end of a tool cannot be awaited");
            }
        }
        if let Err(error) = child.wait_blocking() {
            tracing::warn!(%error, "a killed tool cannot be reaped");
        }
    }
}

struct Head {
    bytes: Vec<u8>,
    max: usize,
    is_cut: bool,
}

async fn read_head(pipe: &mut pipe::Receiver, head: &mut Head) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = pipe.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let room = head.max.saturating_sub(head.bytes.len());
        head.is_cut |= read > room;
        head.bytes.extend_from_slice(&buffer[..read.min(room)]);
    }
}

async fn read_tail(pipe: &mut pipe::Receiver, tail: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        let read = pipe.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        tail.extend_from_slice(&buffer[..read]);
        let excess = tail.len().saturating_sub(ERRORS_BYTES_MAX);
        tail.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(
        script: &str,
        input: &[u8],
        limit: Duration,
        output_bytes_max: usize,
    ) -> io::Result<Output> {
        let tool = Tool {
            program: Path::new("/bin/sh"),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: Path::new("/"),
            input: input.to_vec(),
            input_file: None,
            output_file: None,
            limit,
            output_bytes_max,
            umask: None,
        };
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(run(tool))
    }

    #[test]
    fn tool_reads_its_input_and_keeps_its_output() {
        let input = vec![b'x'; 300_000];
        let ran = shell(
            "cat; echo oops >&2; exit 3",
            &input,
            Duration::from_secs(30),
            1_000_000,
        )
        .expect("it runs");
        assert_eq!(
            (
                ran.exit_code,
                ran.output.len(),
                ran.is_cut,
                ran.errors.as_str()
            ),
            (Some(3), 300_000, false, "oops\n")
        );
        let cut = shell("cat", &input, Duration::from_secs(30), 1_000).expect("it runs");
        assert_eq!(
            (cut.exit_code, cut.output.len(), cut.is_cut),
            (Some(0), 1_000, true)
        );
    }

    #[test]
    fn slow_tool_is_killed_with_its_children() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let script = format!("sleep 600 & echo $! > {}; wait", file.path().display());
        let error =
            shell(&script, b"", Duration::from_millis(500), 10).expect_err("it does not end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let text = std::fs::read_to_string(file.path()).expect("a pid");
        let pid = text
            .trim()
            .parse()
            .ok()
            .and_then(super::super::Pid::from_raw)
            .expect("a pid");
        if let Ok(pidfd) = system::open_process(pid) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let end =
                async { tokio::time::timeout(Duration::from_secs(30), watch::ended(pidfd)).await };
            runtime
                .block_on(end)
                .expect("it ends")
                .expect("it can be watched");
        }
    }
}
