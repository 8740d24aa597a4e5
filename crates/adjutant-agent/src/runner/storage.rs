//! Whether the home of this runner has room for another attempt.
//!
//! If an attempt cannot start because the home cannot be written, the runner takes no further
//! attempts (a hold). The hub knows of the hold before it learns that the attempt has failed, so it
//! places the run elsewhere or queues it. The hold ends when a file can be written again.
//!
//! ```text
//!  an attempt fails ─ hold ─ the hub knows ─ the failure is reported ─ (pause, or an attempt ends; try to write)* ─ release
//! ```

use crate::config::Home;
use crate::{files, spool};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How much must fit into the home.
const ROOM_BYTES: usize = 1024 * 1024;
/// The pause before the first check.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause between checks.
const CHECK_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest pause before the first check: an attempt may need more room than a check, so each
/// failure doubles the pause.
const HOLD_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// Why this runner takes no attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    number: u64,
    pub why: String,
}

pub(super) struct Storage {
    home: Home,
    hold: watch::Sender<Option<Hold>>,
    /// The number of the newest hold that the hub knows.
    announced: watch::Sender<u64>,
    pauses: Mutex<Pauses>,
    /// Notified when an attempt has ended, which may make room.
    attempt_ended: Notify,
}

impl Storage {
    pub(super) fn new(home: Home) -> Self {
        Self {
            home,
            hold: watch::Sender::new(None),
            announced: watch::Sender::new(0),
            pauses: Mutex::default(),
            attempt_ended: Notify::new(),
        }
    }

    pub(super) fn holds(&self) -> watch::Receiver<Option<Hold>> {
        self.hold.subscribe()
    }

    /// Returns whether the hub has not replied to a call that states the hold.
    pub(crate) fn is_unknown_to_hub(&self, hold: &Hold) -> bool {
        *self.announced.borrow() < hold.number
    }

    /// Records that the hub knows a hold.
    pub(super) fn set_announced(&self, hold: &Hold) {
        self.announced.send_if_modified(|known| {
            std::mem::replace(known, hold.number.max(*known)) < hold.number
        });
    }

    /// Begins a hold unless there is one. Returns when the hub knows it.
    pub(super) async fn hold(&self, why: &str) {
        let mut number = 0;
        self.hold.send_if_modified(|hold| {
            let is_new = hold.is_none();
            let known = hold.get_or_insert_with(|| {
                let number = self.pauses().begin(Instant::now());
                Hold {
                    number,
                    why: why.to_owned(),
                }
            });
            number = known.number;
            is_new
        });
        let mut announced = self.announced.subscribe();
        if *announced.borrow() < number {
            tracing::warn!(
                why,
                "this runner takes no attempts until its home can be written"
            );
        }
        if announced.wait_for(|known| *known >= number).await.is_err() {
            tracing::debug!("the runner ends");
        }
    }

    /// Returns whether an error, or the state of the home, means that the home cannot be written.
    pub(super) async fn is_cause(&self, error: &io::Error) -> bool {
        files::is_unwritable(error) || self.check().await.is_err()
    }

    /// As [`Self::is_cause`], for the message of a program such as git.
    pub(crate) async fn is_cause_of(&self, message: &str) -> bool {
        files::names_full_disk(message) || self.check().await.is_err()
    }

    /// Returns why the home cannot be written now.
    pub(super) async fn problem(&self) -> Option<String> {
        self.check()
            .await
            .err()
            .map(|error| format!("{} cannot be written: {error}", self.home.dir.display()))
    }

    /// Tries to write a file.
    async fn check(&self) -> io::Result<()> {
        let home = self.home.clone();
        let wrote = tokio::task::spawn_blocking(move || {
            let mut file = spool::create(&home.dir, &home.runs_dir())?;
            file.write_all(&vec![0; ROOM_BYTES])?;
            // A file system that allocates blocks late reports a full disk only now.
            file.sync_data()
        });
        wrote.await.map_err(io::Error::other)?
    }

    /// An attempt has ended.
    pub(crate) fn note_end(&self) {
        self.attempt_ended.notify_waiters();
    }

    /// Ends each hold once the home can be written.
    pub(crate) async fn end_holds(self: Arc<Self>) {
        let mut holds = self.holds();
        while holds.wait_for(Option::is_some).await.is_ok() {
            let mut pause = self.pauses().before_check;
            tokio::time::sleep(pause).await;
            while let Err(error) = self.check().await {
                tracing::debug!(%error, "the home still cannot be written");
                pause = (pause * 2).min(CHECK_PAUSE_MAX);
                tokio::select! {
                    () = self.attempt_ended.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
            // Before the release: a hold that begins at once takes its pause from this time.
            self.pauses().end(Instant::now());
            tracing::info!("this runner takes attempts again");
            self.hold.send_replace(None);
        }
    }

    fn pauses(&self) -> std::sync::MutexGuard<'_, Pauses> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pauses of the holds of a runner.
#[derive(Debug, Default)]
struct Pauses {
    /// How many holds there were.
    holds: u64,
    before_check: Duration,
    ended_at: Option<Instant>,
}

impl Pauses {
    /// Begins a hold. Returns its number.
    fn begin(&mut self, now: Instant) -> u64 {
        // A hold soon after the one before: attempts need more room than a check.
        let is_repeated = self
            .ended_at
            .is_some_and(|at| now.saturating_duration_since(at) < HOLD_PAUSE_MAX);
        self.before_check = if is_repeated {
            (self.before_check * 2).min(HOLD_PAUSE_MAX)
        } else {
            PAUSE_MIN
        };
        self.holds += 1;
        self.holds
    }

    fn end(&mut self, now: Instant) {
        self.ended_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pause_doubles_with_each_hold_and_starts_again_after_a_long_time() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        let mut seen = Vec::new();
        for number in 1..=12 {
            assert_eq!(pauses.begin(now), number);
            seen.push(pauses.before_check.as_secs());
            now += pauses.before_check;
            pauses.end(now);
            now += Duration::from_secs(1);
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        pauses.begin(now + HOLD_PAUSE_MAX);
        assert_eq!(pauses.before_check, PAUSE_MIN);
    }

    #[tokio::test]
    async fn hold_returns_when_the_hub_knows_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let storage = Storage::new(Home {
            dir: dir.path().to_owned(),
        });
        let mut holds = storage.holds();
        let announcing = async {
            let hold = holds
                .wait_for(Option::is_some)
                .await
                .expect("it lasts")
                .clone()
                .expect("a hold");
            assert!(storage.is_unknown_to_hub(&hold));
            storage.set_announced(&hold);
            hold
        };
        let ((), hold) = tokio::join!(storage.hold("full"), announcing);
        assert!(!storage.is_unknown_to_hub(&hold));
        // A further failure waits for nothing.
        storage.hold("still full").await;
        storage.check().await.expect("this disk has room");
    }
}
