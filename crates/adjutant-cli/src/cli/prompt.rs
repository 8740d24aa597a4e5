//! Reading lines from the terminal. A line answers what was on the screen when it was typed.

use super::exit::cli_codes;
use super::out::{Failure, fail};
use super::symbols;
use crate::view::codes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::QueueSelector;
use std::io::{BufRead, Stdin, Write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Longest line in bytes. The kernel's limit for a line typed on a terminal is 4,096 bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes read at once. A terminal returns one line at most.
const READ_BYTES: usize = 4096;

/// The lines typed on the terminal, read from the first prompt on. They are read where they are
/// used, not ahead by a thread: a line that was typed before a prompt is still in the terminal's
/// queue, which the prompt empties.
#[derive(Debug, Default)]
pub(crate) enum TerminalLines {
    /// Nothing was prompted for yet.
    #[default]
    Unread,
    Open {
        terminal: AsyncFd<Stdin>,
        /// The beginning of a line.
        line: Vec<u8>,
    },
    Ended,
}

impl TerminalLines {
    /// Discards what was typed so far and reads from now on.
    #[expect(
        deprecated,
        reason = "standard input stays open for as long as the process, which is what the replacement asks its caller to promise"
    )]
    pub(super) fn restart(&mut self) {
        discard_typed_input();
        match self {
            Self::Unread => {
                *self = match AsyncFd::with_interest(std::io::stdin(), Interest::READABLE) {
                    Ok(terminal) => Self::Open {
                        terminal,
                        line: Vec::new(),
                    },
                    Err(error) => {
                        tracing::warn!(%error, "cannot read the terminal");
                        Self::Ended
                    }
                }
            }
            Self::Open { line, .. } => line.clear(),
            Self::Ended => {}
        }
    }

    /// Waits for the next line; never returns after the end of input.
    pub(crate) async fn next_line_or_pend(&mut self) -> String {
        match self.next_line().await {
            Ok(Some(line)) => return line,
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot read the terminal"),
        }
        std::future::pending().await
    }

    /// Waits for the next line; `None` at the end of input.
    ///
    /// # Errors
    /// The terminal cannot be read, or the line is not UTF-8.
    pub(super) async fn next_line(&mut self) -> std::io::Result<Option<String>> {
        let Self::Open { terminal, line } = self else {
            return Ok(None);
        };
        let read = read_line(terminal, line).await;
        if !matches!(read, Ok(Some(_))) {
            *self = Self::Ended;
        }
        read
    }
}

/// Reads until a line is complete; `None` at the end of input. Can be cancelled.
async fn read_line(
    terminal: &AsyncFd<Stdin>,
    line: &mut Vec<u8>,
) -> std::io::Result<Option<String>> {
    loop {
        let mut ready = terminal.readable().await?;
        // Another process may have read the input, or a prompt discarded it.
        if !has_input(terminal.get_ref())? {
            ready.clear_ready();
            continue;
        }
        let mut bytes = [0; READ_BYTES];
        let count = match rustix::io::read(terminal.get_ref(), &mut bytes) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            // The terminal was closed.
            Err(rustix::io::Errno::IO) => 0,
            Err(error) => return Err(error.into()),
        };
        if count == 0 && line.is_empty() {
            return Ok(None);
        }
        line.extend_from_slice(&bytes[..count]);
        if count > 0 && !line.ends_with(b"\n") && line.len() < LINE_BYTES_MAX {
            continue;
        }
        let text = String::from_utf8(std::mem::take(line))
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
        return Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()));
    }
}

fn has_input(terminal: &Stdin) -> std::io::Result<bool> {
    match poll(
        &mut [PollFd::new(terminal, PollFlags::IN)],
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    ) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Discards typed input that was not read yet.
pub(crate) fn discard_typed_input() {
    // Fails when standard input is not a terminal; then there is nothing to discard.
    if let Err(error) = rustix::termios::tcflush(std::io::stdin(), QueueSelector::IFlush) {
        tracing::debug!(%error, "standard input is not a terminal");
    }
}

/// Prints a prompt and reads one line typed after it; `None` at the end of input.
pub(super) fn ask(prompt: &str) -> Result<Option<String>, Failure> {
    let mut err = std::io::stderr().lock();
    discard_typed_input();
    write!(err, "{}", symbols::shown(prompt, None)).and_then(|()| err.flush())?;
    let mut line = String::new();
    let read = std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(unreadable)?;
    if read == 0 {
        writeln!(err)?;
        return Ok(None);
    }
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}

/// The answer to a question whose details can be shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreed {
    Yes,
    No,
    /// Show what would change, then ask again.
    ShowDetails,
}

/// Asks a question whose details can be shown. Anything but a yes is a no.
pub(crate) fn ask_with_details(question: &str) -> Result<Agreed, Failure> {
    loop {
        let answer = ask(&format!("{question} [y/N/d] "))?;
        return Ok(match answer.as_deref().map(str::trim) {
            Some("y" | "Y" | "yes") => Agreed::Yes,
            Some("d" | "D" | "diff" | "details") => Agreed::ShowDetails,
            Some("?") => {
                let mut err = std::io::stderr().lock();
                writeln!(
                    err,
                    "y changes the files, d shows the changes first, n or Enter changes nothing"
                )?;
                continue;
            }
            _ => Agreed::No,
        });
    }
}

/// Returns the error for a line that cannot be read.
pub(super) fn unreadable(error: std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::InvalidData => fail(codes::INVALID, "the input is not valid UTF-8"),
        _ => fail(cli_codes::IO, format!("cannot read the terminal: {error}")),
    }
}
