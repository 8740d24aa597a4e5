//! Reading lines from the terminal. A line answers what was on the screen when it was typed.

use super::exit::cli_codes;
use super::out::{Failure, fail};
use crate::view::codes;
use rustix::termios::QueueSelector;
use std::io::{BufRead, Write};
use tokio::sync::mpsc;

/// Maximum number of lines that are buffered.
const LINES_MAX: usize = 16;

/// The lines typed on the terminal, read from the first prompt on.
#[derive(Debug, Default)]
pub enum TerminalLines {
    /// Nothing was prompted for yet.
    #[default]
    Unread,
    Read(mpsc::Receiver<std::io::Result<String>>),
    CommandResult,
}

impl TerminalLines {
    /// Discards what was typed so far and reads from now on.
    pub fn restart(&mut self) {
        discard_typed_input();
        match self {
            Self::Unread => *self = Self::Read(read_lines()),
            Self::Read(lines) => while lines.try_recv().is_ok() {},
            Self::CommandResult => {}
        }
    }

    /// Waits for the next line; never returns after the end of input.
    pub async fn next_line_or_pend(&mut self) -> String {
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
    pub async fn next_line(&mut self) -> std::io::Result<Option<String>> {
        let Self::Read(lines) = self else { return Ok(None) };
        match lines.recv().await {
            Some(Ok(line)) => Ok(Some(line)),
            ended => {
                *self = Self::CommandResult;
                ended.transpose()
            }
        }
    }
}

/// Discards typed input that was not read yet.
pub fn discard_typed_input() {
    // Fails when standard input is not a terminal; then there is nothing to discard.
    if let Err(error) = rustix::termios::tcflush(std::io::stdin(), QueueSelector::IFlush) {
        tracing::debug!(%error, "standard input is not a terminal");
    }
}

/// Reads lines on a separate thread: a read cannot be cancelled, and the process exits without waiting
/// for it.
fn read_lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let is_over = line.is_err();
            if sender.blocking_send(line).is_err() || is_over {
                return;
            }
        }
    });
    lines
}

/// Prints a prompt and reads one line typed after it; `None` at the end of input.
pub fn ask(prompt: &str) -> Result<Option<String>, Failure> {
    let mut err = std::io::stderr().lock();
    discard_typed_input();
    write!(err, "{prompt}").and_then(|()| err.flush())?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => fail(codes::INVALID, "the input is not valid UTF-8"),
        _ => fail(cli_codes::IO, format!("cannot read the terminal: {e}")),
    })?;
    if read == 0 {
        writeln!(err)?;
        return Ok(None);
    }
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}
