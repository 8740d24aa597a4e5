//! What a person types on the terminal, a line at a time. It counts for what was shown before it was
//! typed, and for nothing else.

use super::exit::cli_codes;
use super::out::{Failure, fail};
use crate::view::codes;
use rustix::termios::QueueSelector;
use std::io::{BufRead, Write};
use tokio::sync::mpsc;

/// Most lines that are kept for whoever takes them.
const LINES_MAX: usize = 16;

/// The lines of the terminal, from the first question on.
#[derive(Debug, Default)]
pub enum TerminalLines {
    /// Nobody was asked anything yet.
    #[default]
    Unread,
    Read(mpsc::Receiver<std::io::Result<String>>),
    CommandResult,
}

impl TerminalLines {
    /// Forgets what was typed so far, and takes what comes from now on.
    pub fn restart(&mut self) {
        discard_typed_input();
        match self {
            Self::Unread => *self = Self::Read(read_lines()),
            Self::Read(lines) => while lines.try_recv().is_ok() {},
            Self::CommandResult => {}
        }
    }

    /// Waits for the next line; for ever, once the terminal's input has ended.
    pub async fn next_line_or_pend(&mut self) -> String {
        match self.next_line().await {
            Ok(Some(line)) => return line,
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the terminal cannot be read"),
        }
        std::future::pending().await
    }

    /// Waits for the next line; `None` at the end of the terminal's input.
    ///
    /// # Errors
    /// The terminal cannot be read, or what was typed is not UTF-8.
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

/// Forgets what the terminal has taken and nobody has read.
pub fn discard_typed_input() {
    // It fails where standard input is no terminal, and there nobody types.
    if let Err(error) = rustix::termios::tcflush(std::io::stdin(), QueueSelector::IFlush) {
        tracing::debug!(%error, "standard input is no terminal");
    }
}

/// Reads the terminal's lines on a thread of its own: a read cannot be cancelled, and the process
/// ends without waiting for it.
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

/// Asks for one line on the terminal, typed after this was shown; `None` at the end of input.
pub fn ask(prompt: &str) -> Result<Option<String>, Failure> {
    let mut err = std::io::stderr().lock();
    discard_typed_input();
    write!(err, "{prompt}").and_then(|()| err.flush())?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => fail(codes::INVALID, "what was typed is not UTF-8"),
        _ => fail(cli_codes::IO, format!("cannot read the terminal: {e}")),
    })?;
    if read == 0 {
        writeln!(err)?;
        return Ok(None);
    }
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}
