//! The attempt's numbered facts: written to disk, then sent to the hub, each once and in order.
//!
//! A fact is appended to `facts.jsonl` and synced before it is sent, if the disk has space. If no
//! supervisor is alive, the hub reads that file. Facts about output are not synced, and none is
//! created while an earlier one is unsent, so a hub that does not run for days costs nothing.

use crate::hub_client::Client;
use crate::protocol::{AttemptDir, Fact, FactKind, FactsStored, PostFacts};
use crate::trace::RepeatedFailures;
use crate::view::ErrorView;
use crate::{clock, files};
use adjutant_core::Time;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Maximum number of facts in one call.
const FACTS_MAX: usize = 256;
/// How long to wait after the hub refused facts.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// How much of the unsent facts is read from the file at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// The number of the last fact, for a report to a new hub.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded(Arc<AtomicU64>);

impl Recorded {
    pub(super) fn last(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Writes facts to the file.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Length of the file up to the last whole fact.
    bytes: u64,
    last: u64,
    recorded: Recorded,
    /// Facts that could not be written yet.
    unwritten: VecDeque<Fact>,
    to_hub: mpsc::UnboundedSender<Fact>,
    taken: watch::Receiver<u64>,
}

/// Sends facts to the hub.
#[derive(Debug)]
pub(crate) struct Uploader {
    /// The journal's own file, even if its path was replaced.
    file: File,
    client: Client,
    facts: mpsc::UnboundedReceiver<Fact>,
    taken: watch::Sender<u64>,
}

/// Creates an attempt's journal.
///
/// # Errors
/// The file cannot be created.
pub(super) fn open(
    dir: &AttemptDir,
    client: Client,
    recorded: Recorded,
) -> io::Result<(Journal, Uploader)> {
    let path = dir.facts();
    // The file of an attempt that never started has no facts.
    let file = files::replace(dir.home(), &path)?;
    let written = file.try_clone()?;
    let (to_hub, facts) = mpsc::unbounded_channel();
    let (sender, taken) = watch::channel(0);
    let journal = Journal {
        file,
        path,
        bytes: 0,
        last: 0,
        recorded,
        unwritten: VecDeque::new(),
        to_hub,
        taken,
    };
    Ok((
        journal,
        Uploader {
            file: written,
            client,
            facts,
            taken: sender,
        },
    ))
}

impl Journal {
    /// Records a fact.
    pub(super) fn record(&mut self, what: FactKind) {
        self.record_at(clock::now(), what);
    }

    /// Records facts, if there are any.
    pub(super) fn record_all(&mut self, facts: impl IntoIterator<Item = FactKind>) {
        facts.into_iter().for_each(|fact| self.record(fact));
    }

    /// Records a fact about something that happened earlier.
    pub(crate) fn record_at(&mut self, at: Time, what: FactKind) {
        self.last += 1;
        self.recorded.0.store(self.last, Ordering::Release);
        let fact = Fact {
            n: self.last,
            at_ms: at.0,
            what,
        };
        self.unwritten.push_back(fact.clone());
        if let Err(error) = self.write() {
            // The hub receives the fact although the disk is full, because both number facts alike.
            tracing::error!(%error, path = %self.path.display(), "a fact cannot be written yet");
        }
        if self.to_hub.send(fact).is_err() {
            tracing::error!("the task that sends facts to the hub has ended");
        }
    }

    /// Waits until the hub has all facts so far.
    pub(crate) fn received_by_hub(&self) -> impl Future<Output = ()> + use<> {
        let (mut taken, last) = (self.taken.clone(), self.last);
        async move {
            if taken.wait_for(|taken| *taken >= last).await.is_err() {
                // The uploader has ended, so no more facts are sent.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Writes the facts that are not on disk yet. Returns whether all facts are on disk now.
    pub(crate) fn is_on_disk(&mut self) -> bool {
        if self.unwritten.is_empty() {
            return true;
        }
        match self.write() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "a fact still cannot be written");
                false
            }
        }
    }

    /// Writes the facts that are not on disk yet.
    fn write(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut sync = false;
        for fact in &self.unwritten {
            serde_json::to_writer(&mut bytes, fact)?;
            bytes.push(b'\n');
            sync |= !matches!(fact.what, FactKind::Output { .. });
        }
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| if sync { self.file.sync_data() } else { Ok(()) });
        match written {
            Ok(()) => {
                self.bytes += bytes.len() as u64;
                self.unwritten.clear();
                Ok(())
            }
            Err(error) => {
                // An incomplete line must not remain.
                self.file.set_len(self.bytes)?;
                io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.bytes))?;
                Err(error)
            }
        }
    }
}

impl Uploader {
    /// Sends facts until the journal is dropped and the hub has all of them.
    pub(super) async fn run(mut self) {
        let mut waiting: VecDeque<Fact> = VecDeque::new();
        let mut refusals = RepeatedFailures::default();
        loop {
            if waiting.is_empty() {
                match self.facts.recv().await {
                    Some(fact) => waiting.push_back(fact),
                    None => return,
                }
            }
            while let Ok(fact) = self.facts.try_recv() {
                waiting.push_back(fact);
            }
            match self.post(&waiting).await {
                Ok(cursor) => {
                    refusals.clear();
                    if !self.advance(&mut waiting, cursor) {
                        tokio::time::sleep(REFUSED_PAUSE).await;
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    if let Some(times) = refusals.note(&message, Instant::now()) {
                        tracing::warn!(message, times, "the hub refuses facts");
                    }
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    async fn post(&self, waiting: &VecDeque<Fact>) -> Result<u64, ErrorView> {
        let facts = waiting.iter().take(FACTS_MAX).cloned().collect();
        let taken: FactsStored = self
            .client
            .send_json("/link/facts", &PostFacts { facts }, None)
            .await?;
        Ok(taken.cursor)
    }

    /// Drops the facts that the hub has, and reads the ones that it lacks. Returns whether these
    /// are known.
    fn advance(&self, waiting: &mut VecDeque<Fact>, cursor: u64) -> bool {
        let mut is_known = true;
        if waiting.front().is_some_and(|first| first.n > cursor + 1) {
            let first = waiting.front().map_or(u64::MAX, |fact| fact.n);
            match read(&self.file, cursor, first) {
                Ok(missing) => {
                    for fact in missing.into_iter().rev() {
                        waiting.push_front(fact);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "the facts cannot be read");
                    is_known = false;
                }
            }
        }
        while waiting.front().is_some_and(|first| first.n <= cursor) {
            waiting.pop_front();
        }
        self.taken.send_replace(cursor);
        is_known
    }
}

/// Reads the facts between two numbers, without an incomplete line at the end.
///
/// # Errors
/// The file cannot be read, or contains something else.
fn read(file: &File, after: u64, before: u64) -> io::Result<Vec<Fact>> {
    let (mut found, mut line, mut at) = (Vec::new(), Vec::new(), 0);
    let mut chunk = vec![0; READ_BYTES];
    loop {
        let read = file.read_at(&mut chunk, at)?;
        if read == 0 {
            return Ok(found);
        }
        at += read as u64;
        for piece in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") {
                let fact: Fact = serde_json::from_slice(&line)?;
                line.clear();
                if fact.n >= before {
                    return Ok(found);
                }
                if fact.n > after {
                    found.push(fact);
                }
            }
        }
    }
}

/// Reads all facts of an attempt.
///
/// # Errors
/// The file exists but cannot be read, or contains something else.
pub fn read_all(dir: &AttemptDir) -> io::Result<Vec<Fact>> {
    match files::open(dir.home(), &dir.facts()) {
        Ok(file) => read(&file, 0, u64::MAX),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
