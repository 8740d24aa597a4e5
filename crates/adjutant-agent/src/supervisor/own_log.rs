//! The own log of the agent's CLI. Only its lines about failed tries are used, and none are stored.

use super::cli_log::CliLog;
use super::log_lines::Lines;
use crate::harness::LogSource;
use crate::process::make_named_pipe;
use std::io;
use tokio::net::unix::pipe;

/// A log that is being read.
#[derive(Debug)]
pub(crate) enum OwnLog {
    /// A named pipe that the CLI takes for a file, and the incomplete line.
    Pipe(pipe::Receiver, Lines),
    Files(CliLog),
}

impl OwnLog {
    /// Prepares to read a log, before the agent starts. A session is the one that the agent
    /// resumes.
    ///
    /// `None`: files cannot be watched, which is logged.
    ///
    /// # Errors
    /// The pipe cannot be made: the CLI would write a file.
    pub(super) fn open(source: &LogSource, session: Option<&str>) -> io::Result<Option<Self>> {
        match source {
            LogSource::Pipe(path) => Ok(Some(Self::Pipe(make_named_pipe(path)?, Lines::default()))),
            LogSource::Files { base, pattern } => {
                match CliLog::new(base.clone(), pattern, session) {
                    Ok(files) => Ok(Some(Self::Files(files))),
                    Err(error) => {
                        tracing::warn!(%error, "the log of the agent's CLI cannot be watched: its retries are not reported");
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Waits until there is something to read.
    pub(super) async fn readable(&self) {
        match self {
            Self::Pipe(pipe, _) => {
                // An error is reported by the read.
                let _ = pipe.readable().await;
            }
            Self::Files(files) => files.changed().await,
        }
    }

    /// Reads once, and passes on the lines that are complete.
    ///
    /// # Errors
    /// Nothing more can be read.
    pub(super) fn read(&mut self, buffer: &mut [u8], each: &mut dyn FnMut(&str)) -> io::Result<()> {
        match self {
            Self::Pipe(pipe, lines) => match pipe.try_read(buffer) {
                Ok(read) => {
                    lines.push(&buffer[..read], each);
                    Ok(())
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) =>
                {
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Self::Files(files) => {
                files.read(buffer, each);
                Ok(())
            }
        }
    }

    /// Returns the session, as far as it matters for the log.
    pub(super) fn session(&self) -> Option<&str> {
        match self {
            Self::Pipe(..) => None,
            Self::Files(files) => files.session(),
        }
    }

    /// Sets the session, which may be part of the log's name.
    pub(super) fn set_session(&mut self, session: &str) {
        if let Self::Files(files) = self {
            files.set_session(session);
        }
    }

    /// Searches for the files again if none is open yet. The CLI may create them after it has
    /// reported its session.
    pub(crate) fn find_first(&mut self) {
        if let Self::Files(files) = self {
            files.find_first();
        }
    }
}
