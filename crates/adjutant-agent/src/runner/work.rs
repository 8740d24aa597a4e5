//! The work of a runner: joining the hub, and starting what it orders.

use super::attempts::{Attempts, Watched};
use super::error::RunnerError;
use super::logs::LogReads;
use super::note::RunnerNote;
use super::removals::Removals;
use super::storage::{Hold, Storage};
use super::uplink::{CallFailure, HubSession, PAUSE, Uplink};
use crate::process::pressure;
use crate::protocol::{GetRunnerWork, JoinRunner, RunnerJoined, RunnerWork};
use crate::trace::RepeatedFailures;
use crate::view::codes;
use adjutant_core::lease::Lease;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest pause between attempts to join.
const JOIN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The stage of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Serves,
    /// It takes no further attempt.
    Drains,
    /// It ends when it has no attempts and the hub agrees.
    Leaves,
}

/// What a runner tells the hub about further attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Availability {
    /// It takes none.
    drains: bool,
    /// It has none and wants to end.
    leaves: bool,
}

impl Availability {
    /// `is_held`: its home cannot be written. `is_idle`: it has no attempts.
    fn of(stage: Stage, is_held: bool, is_idle: bool) -> Self {
        Self {
            drains: stage != Stage::Serves || is_held,
            leaves: stage == Stage::Leaves && is_idle,
        }
    }
}

/// How a session with the hub ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionEnd {
    /// The runner has left.
    Left,
    MustJoin,
}

/// The parts of a runner that serve the hub's orders.
pub(super) struct Work {
    pub uplink: Arc<Uplink>,
    pub attempts: Attempts,
    pub reads: LogReads,
    pub removals: Removals,
    pub storage: Arc<Storage>,
    pub call: JoinRunner,
    pub note: RunnerNote,
    pub stage: watch::Receiver<Stage>,
}

impl Work {
    /// Joins the hub and starts what it orders. Returns when the runner has left, or if the first
    /// join is refused.
    pub(super) async fn run(mut self) -> Result<(), RunnerError> {
        let watched = self.attempts.watched();
        let mut holds = self.storage.holds();
        let mut has_joined = false;
        loop {
            self.call.confirmed = self.note.last();
            let joined = join(&self.uplink, &self.call, has_joined).await?;
            if !std::mem::replace(&mut has_joined, true) {
                self.announce(&joined.reply);
            }
            let lease = self.begin_session(joined).await;
            if self.serve_session(lease, &watched, &mut holds).await == SessionEnd::Left {
                return Ok(());
            }
        }
    }

    fn announce(&self, joined: &RunnerJoined) {
        print(&format!(
            "runner {} of {} for pool {} ({} slots); Ctrl-C ends it, and its attempts continue for the lease",
            joined.name,
            self.uplink.address(),
            joined.pools.join(", "),
            self.call.slots
        ));
    }

    /// Ends what the hub does not name, and watches what it names.
    async fn begin_session(&mut self, joined: Joined) -> Lease {
        let RunnerJoined {
            session,
            name: _,
            lease_ms,
            pools: _,
            removed,
            attempts: named,
        } = joined.reply;
        tracing::info!(attempts = named.len(), "joined");
        self.attempts.adopt(&named).await;
        let lease = Lease::from_ms(lease_ms);
        let session = HubSession { id: session, lease };
        self.uplink.begin_session(session, joined.sent);
        self.attempts.uploads().begin_all().await;
        self.attempts.repositories().look_for_unsent();
        self.removals.begin(removed);
        lease
    }

    /// Asks for orders and starts them, until the session ends.
    async fn serve_session(
        &mut self,
        lease: Lease,
        watched: &Watched,
        holds: &mut watch::Receiver<Option<Hold>>,
    ) -> SessionEnd {
        let mut taken = Vec::new();
        let (mut refused_pause, mut failures) = (PAUSE, RepeatedFailures::default());
        loop {
            let stage = *self.stage.borrow_and_update();
            let hold = holds.borrow_and_update().clone();
            let is_idle = watched.leases().is_empty();
            let availability = Availability::of(stage, hold.is_some(), is_idle);
            let wait = lease.wait_max();
            let call = self.work_call(&taken, availability, hold.as_ref(), wait);
            let answer = tokio::select! {
                answer = self.uplink.call::<RunnerWork>("/runner/work", &call, wait) => answer,
                // The next call says so. Orders of an unread reply are sent again.
                Ok(()) = self.stage.changed() => continue,
                Ok(()) = holds.changed() => continue,
                () = watched.none_left(), if stage == Stage::Leaves && !is_idle => continue,
            };
            match answer {
                Ok(RunnerWork { left: true, .. }) => return SessionEnd::Left,
                Ok(work) => {
                    refused_pause = PAUSE;
                    failures.clear();
                    hold.iter()
                        .for_each(|hold| self.storage.set_announced(hold));
                    taken = self.begin(work);
                }
                Err(CallFailure::MustJoin) => return SessionEnd::MustJoin,
                // The hub has revoked it because this runner has left; the reply is lost.
                Err(CallFailure::TokenRefused(_)) if availability.leaves => {
                    return SessionEnd::Left;
                }
                Err(failure) => {
                    if let Some(times) = failures.note(&failure.to_string(), Instant::now().into())
                    {
                        tracing::warn!(%failure, times, "the hub cannot be asked for attempts");
                    }
                    // Only a person can change that a token is refused, so it is not worth many
                    // calls.
                    let is_refused = matches!(failure, CallFailure::TokenRefused(_));
                    tokio::time::sleep(if is_refused { refused_pause } else { PAUSE }).await;
                    if is_refused {
                        refused_pause = (refused_pause * 2).min(JOIN_PAUSE_MAX);
                    }
                }
            }
        }
    }

    /// Returns the call that asks for orders. `taken`: the attempts that the last one has brought.
    fn work_call(
        &self,
        taken: &[String],
        availability: Availability,
        hold: Option<&Hold>,
        wait: Duration,
    ) -> GetRunnerWork {
        // Failures are reported only after the hub knows the hold.
        let is_unknown = hold.is_some_and(|hold| self.storage.is_unknown_to_hub(hold));
        let wait_ms = if is_unknown {
            0
        } else {
            u64::try_from(wait.as_millis()).unwrap_or(0)
        };
        let Availability { drains, leaves } = availability;
        GetRunnerWork {
            taken: taken.to_vec(),
            drains,
            leaves,
            load: pressure::load().into(),
            unwritable: hold.map(|hold| hold.why.clone()),
            wait_ms,
        }
    }

    /// Begins what the hub wants. Returns the attempts among it.
    fn begin(&mut self, work: RunnerWork) -> Vec<String> {
        let RunnerWork {
            orders,
            reads,
            removed,
            left: _,
            fingerprint,
            confirmed,
        } = work;
        self.uplink.check_fingerprint(fingerprint.as_deref());
        self.note.keep(confirmed);
        self.reads.begin(reads);
        self.removals.begin(removed);
        let mut taken = Vec::new();
        for order in orders {
            taken.push(format!("{}/{}", order.run_id, order.attempt));
            self.attempts.launch(order);
        }
        taken
    }
}

/// Writes a line for the person who has started the runner.
pub(super) fn print(line: &str) {
    if let Err(error) = std::io::stderr().write_all(format!("{line}\n").as_bytes()) {
        tracing::debug!(%error, "a message cannot be written");
    }
}

struct Joined {
    reply: RunnerJoined,
    sent: Instant,
}

/// Joins, as often as it takes. A refusal of the first join is an error of the person who starts
/// the runner.
async fn join(uplink: &Uplink, call: &JoinRunner, has_joined: bool) -> Result<Joined, RunnerError> {
    let (mut pause, mut failures) = (PAUSE, RepeatedFailures::default());
    loop {
        let sent = Instant::now();
        let problem = match uplink
            .call_without_session::<RunnerJoined>("/runner/join", call)
            .await
        {
            Ok(reply) => return Ok(Joined { reply, sent }),
            Err(CallFailure::TokenRefused(why)) if !has_joined => {
                return Err(RunnerError::TokenRefused(why));
            }
            Err(CallFailure::Refused(error)) if !has_joined && error.code == codes::INVALID => {
                return Err(RunnerError::Refused(error.message));
            }
            Err(failure) => failure,
        };
        let problem = format!(
            "the hub at {} cannot be joined yet: {problem}",
            uplink.address()
        );
        if let Some(times) = failures.note(&problem, sent.into()) {
            tracing::warn!(times, "{problem}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(JOIN_PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_leaves_only_when_idle_and_takes_nothing_while_it_cannot_write() {
        let of = |stage, is_held, is_idle| {
            let Availability { drains, leaves } = Availability::of(stage, is_held, is_idle);
            (drains, leaves)
        };
        assert_eq!(of(Stage::Serves, false, true), (false, false));
        assert_eq!(of(Stage::Serves, true, true), (true, false));
        assert_eq!(of(Stage::Drains, false, true), (true, false));
        assert_eq!(of(Stage::Leaves, false, false), (true, false));
        assert_eq!(of(Stage::Leaves, true, true), (true, true));
    }
}
