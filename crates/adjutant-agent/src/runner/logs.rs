//! Sends the hub the parts of logs that it wants.

use super::places::place;
use super::uplink::Uplink;
use crate::config::Home;
use crate::logs::RunFiles;
use crate::logs::page::RunLog;
use crate::protocol::{LogRead, PostLog};
use crate::view::LogPage;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of parts that are read at a time. The hub asks for fewer.
const READS_MAX: usize = 128;
/// The longest wait for output. The hub does not wait for longer.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The parts that are being read.
pub(super) struct LogReads {
    home: Home,
    uplink: Arc<Uplink>,
    tasks: JoinSet<()>,
}

impl LogReads {
    pub(super) fn new(home: Home, uplink: Arc<Uplink>) -> Self {
        Self {
            home,
            uplink,
            tasks: JoinSet::new(),
        }
    }

    /// Begins to read parts, and to send each when it is there.
    pub(super) fn begin(&mut self, reads: Vec<LogRead>) {
        while self.tasks.try_join_next().is_some() {}
        for read in reads {
            if self.tasks.len() >= READS_MAX {
                tracing::warn!(attempt = read.attempt, "too many logs are read at a time");
                continue;
            }
            let (home, uplink) = (self.home.clone(), Arc::clone(&self.uplink));
            self.tasks.spawn(async move {
                let number = read.number;
                let part = match next_page(&home, read).await {
                    Ok(page) => PostLog {
                        number,
                        page: Some(page),
                        problem: String::new(),
                    },
                    Err(error) => PostLog {
                        number,
                        page: None,
                        problem: error.to_string(),
                    },
                };
                // Its reader asks again.
                if let Err(failure) = uplink
                    .call::<()>("/runner/log", &part, Duration::ZERO)
                    .await
                {
                    tracing::debug!(%failure, "a part of a log cannot be sent");
                }
            });
        }
    }
}

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("this is not an attempt")]
    NoAttempt,
    #[error("it has no page")]
    NoPage,
    #[error(transparent)]
    Log(#[from] io::Error),
}

/// Reads a page, waiting for output if there is none yet.
async fn next_page(home: &Home, read: LogRead) -> Result<LogPage, ReadError> {
    let LogRead {
        number: _,
        attempt,
        first,
        ended,
        call,
    } = read;
    let deadline = Instant::now() + Duration::from_millis(call.wait_ms).min(WAIT_MAX);
    let (_, run_id, attempt) = place(home, &attempt).ok_or(ReadError::NoAttempt)?;
    let log = RunLog {
        files: RunFiles::in_home(&home.dir, &run_id),
        first: first.max(1),
        attempt,
        ended,
    };
    log.next_page(&call, deadline, std::future::pending())
        .await?
        .ok_or(ReadError::NoPage)
}
