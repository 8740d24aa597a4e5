//! Runs a program for a short question, such as its version, or a short dialogue. Time and output
//! are limited, and its descendants are killed with it.

use super::{Child, Signal, Spawn, StdioTarget, system, tree, watch};
use adjutant_core::units::duration;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

/// A program and its arguments.
#[derive(Debug)]
pub struct Probe {
    /// An absolute path.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// The whole environment of the program.
    pub env: Vec<(OsString, OsString)>,
    pub limit: Duration,
    pub output_bytes_max: usize,
}

/// The output of a program.
#[derive(Debug)]
pub struct ProbeOutput {
    /// `None`: a signal ended it.
    pub exit_code: Option<i32>,
    /// The beginning of its standard output.
    pub output: Vec<u8>,
}

/// How long the output may stay open after the program has ended.
const DRAIN_MAX: Duration = Duration::from_millis(200);

/// Starts the program in `/`, without input, and waits for its end. Kills it at its time limit, or
/// if its output is too long.
///
/// # Errors
/// It cannot be started; `TimedOut`: it took too long.
pub async fn ask(probe: Probe) -> io::Result<ProbeOutput> {
    let (theirs, mut ours) = pipe::pipe()?;
    let theirs = theirs.into_blocking_fd()?;
    let started = Started::start(
        &probe,
        Path::new("/"),
        StdioTarget::Null,
        StdioTarget::Fd(theirs.as_fd()),
        StdioTarget::Null,
    )?;
    drop(theirs);
    let mut output = Vec::new();
    let ended = tokio::time::timeout(
        probe.limit,
        read_output(
            &started.child.pidfd,
            &mut ours,
            &mut output,
            probe.output_bytes_max,
        ),
    )
    .await;
    let exit_code = started.end().await?;
    match ended {
        Ok(read_output) => read_output?,
        Err(_) => return Err(timed_out(probe.limit)),
    }
    Ok(ProbeOutput { exit_code, output })
}

/// The reply to a line of a program in a dialogue.
#[derive(Debug)]
pub enum ProbeReply {
    /// Write this to its input.
    Write(Vec<u8>),
    Listen,
    /// End the dialogue.
    Enough,
}

/// The result of a dialogue with a program.
#[derive(Debug)]
pub struct Conversation {
    /// The last reply was [`ProbeReply::Enough`].
    pub is_enough: bool,
    /// Its exit code, if it exited before the dialogue was complete.
    pub exit_code: Option<i32>,
    /// The beginning of its standard error.
    pub stderr_end: Vec<u8>,
}

/// How much of standard error is kept, in bytes.
const STDERR_BYTES_MAX: usize = 4 * 1024;

/// Starts the program in a directory, writes `opening` to its input, and passes each line of its
/// output to `on_line`, until the dialogue is complete, the program has exited, its time limit is
/// reached, or its output is too long. Then kills it.
///
/// # Errors
/// It cannot be started; `TimedOut`: it took too long; `FileTooLarge`: its output is too long.
pub async fn converse(
    probe: Probe,
    cwd: &Path,
    opening: Vec<u8>,
    on_line: &mut dyn FnMut(&str) -> ProbeReply,
) -> io::Result<Conversation> {
    let (their_input, our_input) = std::io::pipe()?;
    let (their_output, our_output) = std::io::pipe().map(|(ours, theirs)| (theirs, ours))?;
    let (their_errors, our_errors) = std::io::pipe().map(|(ours, theirs)| (theirs, ours))?;
    let feeds = [
        their_input.as_fd(),
        their_output.as_fd(),
        their_errors.as_fd(),
    ]
    .map(StdioTarget::Fd);
    let [input, output, errors] = feeds;
    let started = Started::start(&probe, cwd, input, output, errors)?;
    drop((their_input, their_output, their_errors));
    let mut pipes = Pipes {
        input: pipe::Sender::from_owned_fd(our_input.into())?,
        output: pipe::Receiver::from_owned_fd(our_output.into())?,
        errors: pipe::Receiver::from_owned_fd(our_errors.into())?,
        stderr_end: Vec::new(),
    };
    let spoken = tokio::time::timeout(
        probe.limit,
        pipes.exchange(opening, probe.output_bytes_max, on_line),
    )
    .await;
    let has_ended = matches!(spoken, Ok(Ok(false)));
    if has_ended {
        pipes.drain_errors().await;
        // It has closed its output, so it probably exits soon.
        if tokio::time::timeout(DRAIN_MAX, watch::ended(started.child.pidfd.try_clone()?))
            .await
            .is_err()
        {
            tracing::debug!("a program closed its output during a dialogue and continues");
        }
    }
    let exit_code = started.end().await?.filter(|_| has_ended);
    let is_enough = match spoken {
        Ok(spoken) => spoken?,
        Err(_) => return Err(timed_out(probe.limit)),
    };
    Ok(Conversation {
        is_enough,
        exit_code,
        stderr_end: pipes.stderr_end,
    })
}

/// The pipes of a program in a dialogue.
struct Pipes {
    input: pipe::Sender,
    output: pipe::Receiver,
    errors: pipe::Receiver,
    stderr_end: Vec<u8>,
}

impl Pipes {
    /// Reads the rest of its standard error, for a limited time.
    async fn drain_errors(&mut self) {
        let mut bytes = [0; 1024];
        while self.stderr_end.len() < STDERR_BYTES_MAX
            && let Ok(Ok(read @ 1..)) =
                tokio::time::timeout(DRAIN_MAX, self.errors.read(&mut bytes)).await
        {
            let wanted = read.min(STDERR_BYTES_MAX - self.stderr_end.len());
            self.stderr_end.extend_from_slice(&bytes[..wanted]);
        }
    }

    /// Returns whether the dialogue was completed before the output ended.
    async fn exchange(
        &mut self,
        opening: Vec<u8>,
        bytes_max: usize,
        on_line: &mut dyn FnMut(&str) -> ProbeReply,
    ) -> io::Result<bool> {
        let Self {
            input,
            output,
            errors,
            stderr_end,
        } = self;
        let mut to_write = opening;
        let (mut stdout_bytes, mut stderr_bytes) = ([0; 4096], [0; 1024]);
        let (mut line, mut bytes) = (Vec::new(), 0);
        let (mut takes_input, mut complains) = (true, true);
        loop {
            let read = tokio::select! {
                written = input.write(&to_write), if takes_input && !to_write.is_empty() => {
                    match written {
                        Ok(count) => drop(to_write.drain(..count)),
                        // Its input is closed; its output still counts.
                        Err(_) => takes_input = false,
                    }
                    continue;
                }
                read = errors.read(&mut stderr_bytes), if complains => {
                    let read = read?;
                    complains = read > 0;
                    let wanted = read.min(STDERR_BYTES_MAX - stderr_end.len());
                    stderr_end.extend_from_slice(&stderr_bytes[..wanted]);
                    continue;
                }
                read = output.read(&mut stdout_bytes) => read?,
            };
            if read == 0 {
                return Ok(false);
            }
            bytes += read;
            if bytes > bytes_max {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("its output is longer than {bytes_max} bytes"),
                ));
            }
            for byte in &stdout_bytes[..read] {
                if *byte != b'\n' {
                    line.push(*byte);
                    continue;
                }
                match on_line(&String::from_utf8_lossy(&std::mem::take(&mut line))) {
                    ProbeReply::Write(bytes) => to_write.extend(bytes),
                    ProbeReply::Listen => {}
                    ProbeReply::Enough => return Ok(true),
                }
            }
        }
    }
}

fn timed_out(limit: Duration) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("it took longer than {}", duration::of(limit)),
    )
}

/// A started program, and the mark that identifies its descendants.
struct Started {
    child: Child,
    mark: String,
    program: PathBuf,
}

impl Started {
    fn start(
        probe: &Probe,
        cwd: &Path,
        stdin: StdioTarget<'_>,
        stdout: StdioTarget<'_>,
        stderr: StdioTarget<'_>,
    ) -> io::Result<Self> {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let mark = format!(
            "probe-{}/{}",
            rustix::process::getpid().as_raw_nonzero(),
            ASKED.fetch_add(1, Ordering::Relaxed)
        );
        let mut env = probe.env.clone();
        env.push((OsString::from(tree::MARKER), OsString::from(&mark)));
        let mut argv = vec![probe.program.clone().into_os_string()];
        argv.extend(probe.args.iter().map(OsString::from));
        let child = Spawn {
            program: &probe.program,
            argv,
            env,
            cwd,
            stdin,
            stdout,
            stderr,
            inherit: Vec::new(),
            umask: None,
        }
        .start()?;
        Ok(Self {
            child,
            mark,
            program: probe.program.clone(),
        })
    }

    /// Kills the program and its descendants. Returns its exit code. `None`: a signal ended it.
    async fn end(self) -> io::Result<Option<i32>> {
        let Self {
            child,
            mark,
            program,
        } = self;
        tree::kill(child.pid);
        // It is an unreaped child, so no other process has its pid.
        if let Err(error) = system::send_signal(&child.pidfd, Signal::KILL) {
            tracing::debug!(%error, "a probed program has already exited");
        }
        watch::ended(child.pidfd.try_clone()?).await?;
        let status = system::reap_process(&child.pidfd)?;
        let left = tokio::task::spawn_blocking(move || tree::kill_marked(&mark))
            .await
            .map_err(io::Error::other)?;
        if left > 0 {
            tracing::info!(program = %program.display(), left, "a probed program left processes");
        }
        Ok(status.and_then(|status| status.exit_status()))
    }
}

/// Reads until the output is complete, or the program has exited and its output was read.
async fn read_output(
    pidfd: &std::os::fd::OwnedFd,
    pipe: &mut pipe::Receiver,
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<()> {
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
    // Its output is closed or sufficient, so only its exit remains.
    if !has_ended && output.len() < bytes_max {
        ended.await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> io::Result<ProbeOutput> {
        let probe = Probe {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            limit,
            output_bytes_max: 100,
        };
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(ask(probe))
    }

    #[test]
    fn probe_reads_only_the_output_it_needs() {
        let output = shell(
            "echo 1.2.3; echo noise >&2; exit 4",
            Duration::from_secs(30),
        )
        .expect("it can be asked");
        assert_eq!(
            (output.exit_code, output.output.as_slice()),
            (Some(4), b"1.2.3\n".as_slice())
        );
        let output = shell("while :; do echo 0123456789; done", Duration::from_secs(30))
            .expect("it can be asked");
        assert_eq!(output.output.len(), 100);
    }

    #[test]
    fn slow_program_is_killed() {
        let error = shell("sleep 600", Duration::from_millis(200)).expect_err("it does not end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn probe_ends_the_children_of_its_program() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let at = file.path().display();
        // Too much output ends it, once the other process exists.
        let script = format!(
            "setsid sh -c 'echo $$ > {at}; exec sleep 600' & until [ -s {at} ]; do :; done; while :; do echo flood; done"
        );
        shell(&script, Duration::from_secs(60)).expect("it can be asked");
        let text = std::fs::read_to_string(file.path()).expect("a pid");
        let pid = text
            .trim()
            .parse()
            .ok()
            .and_then(super::super::Pid::from_raw)
            .expect("a pid");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        // It was killed; its pid may be free already.
        if let Ok(pidfd) = system::open_process(pid) {
            let end =
                async { tokio::time::timeout(Duration::from_secs(30), watch::ended(pidfd)).await };
            runtime
                .block_on(end)
                .expect("it ends")
                .expect("it can be watched");
        }
    }

    fn spoken(
        script: &str,
        limit: Duration,
        on_line: &mut dyn FnMut(&str) -> ProbeReply,
    ) -> io::Result<Conversation> {
        let probe = Probe {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            limit,
            output_bytes_max: 10_000,
        };
        let speak = converse(probe, Path::new("/tmp"), b"first\n".to_vec(), on_line);
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(speak)
    }

    #[test]
    fn conversation_continues_until_complete() {
        let mut lines = Vec::new();
        let script =
            "read a; echo \"got $a\"; read b; echo \"got $b in $PWD\"; echo oops >&2; sleep 600";
        let output = spoken(script, Duration::from_secs(30), &mut |line| {
            lines.push(line.to_owned());
            if lines.len() == 1 {
                ProbeReply::Write(b"second\n".to_vec())
            } else {
                ProbeReply::Enough
            }
        });
        assert!(output.is_ok_and(|output| output.is_enough && output.exit_code.is_none()));
        assert_eq!(lines, ["got first", "got second in /tmp"]);
        let ended = spoken("echo why >&2; exit 3", Duration::from_secs(30), &mut |_| {
            ProbeReply::Listen
        })
        .expect("it was started");
        assert_eq!(
            (
                ended.is_enough,
                ended.exit_code,
                ended.stderr_end.as_slice()
            ),
            (false, Some(3), b"why\n".as_slice())
        );
        let error = spoken("sleep 600", Duration::from_millis(200), &mut |_| {
            ProbeReply::Listen
        })
        .expect_err("it says nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = spoken(
            "while :; do echo flood; done",
            Duration::from_secs(30),
            &mut |_| ProbeReply::Listen,
        )
        .expect_err("it says too much");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn unstartable_program_is_an_error() {
        let probe = Probe {
            program: PathBuf::from("/no/such/program"),
            args: Vec::new(),
            env: Vec::new(),
            limit: Duration::from_secs(1),
            output_bytes_max: 1,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        assert_eq!(
            runtime
                .block_on(ask(probe))
                .map(|_| ())
                .expect_err("it is not there")
                .kind(),
            io::ErrorKind::NotFound
        );
    }
}
