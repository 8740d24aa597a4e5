//! Runners: the processes that start attempts on other machines. They call the hub; nothing
//! connects to them.
//!
//! A runner speaks only for attempts that the hub has placed on it. Which these are is in the
//! store; a call names one of them. If a runner makes no call for the lease of an attempt, the
//! attempt is lost, and what it reports later is refused. Its agent has ended by then, because the
//! supervisor ends it earlier (see `adjutant_core::lease`).

mod facts;
mod launches;
mod logs;
mod losses;
mod repository;

pub use facts::apply_supervisor_facts;
pub use launches::LaunchRounds;
pub use launches::RunnerLaunch;
pub use logs::HostedLogs;
pub(crate) use repository::HostedRepositories;

use crate::config::{Config, PoolEntry};
use crate::ops::attempts::{Loss, apply_facts, end_lost_attempt, is_token_of, record_not_started};
use crate::ops::runner_launches::Launches;
use crate::ops::runner_sessions::{RunnerSession, Sessions, WaitingRunner};
use crate::ops::settings::Settings;
use crate::ops::{AttemptId, Launch, OpError, Ops, end_of_wait};
use crate::protocol::{
    FactsStored, GetRunnerWork, JoinRunner, LeasedAttempt, PostEnded, PostLeftFacts, PostLog,
    PostRemoved, RunnerJoined, RunnerWork,
};
use crate::store::{
    AttemptRow, Connection, Held, HostedAttempt, MemoryNeeds, StartTarget, Store, StoreError,
    Topic, attempt_row, ends_with_runtime, hosted_attempts, left_on_runner, live_by_host,
    runner_name,
};
use adjutant_core::lease::Lease;
use adjutant_core::pool::{SLOTS_MAX, is_label_part};
use adjutant_core::pressure::Admission;
use adjutant_core::{Denied, PoolName, shorten};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Length of the identity of a runner's home.
const HOME_ID_BYTES: std::ops::RangeInclusive<usize> = 16..=64;
/// How many pools a runner may name.
const POOLS_MAX: usize = 64;
/// How many labels a runner may have.
const LABELS_MAX: usize = 32;

/// How many removed runs are sent to a runner at once.
const REMOVED_MAX: u32 = 1_000;

/// How many orders a runner receives at most at a time. It may be cut off before it takes them.
const ORDERS_MAX: u64 = 4;

/// A runner with free slots.
#[derive(Debug, Clone)]
pub struct RunnerTarget {
    pub place: StartTarget,
    /// How many runs may be started there now.
    pub free: u64,
    session: RunnerSession,
}

fn check_identity(home_id: &str, slots: u64) -> Result<(), Denied> {
    if !HOME_ID_BYTES.contains(&home_id.len())
        || !home_id.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return Err(Denied::invalid(
            "home_id",
            "use 16 to 64 hexadecimal digits",
        ));
    }
    if !(1..=SLOTS_MAX).contains(&slots) {
        return Err(Denied::invalid("slots", format!("use 1 to {SLOTS_MAX}")));
    }
    Ok(())
}

/// Checks how many pools a runner names, and its labels.
fn check_offer(pools: &[String], labels: &BTreeMap<String, String>) -> Result<(), Denied> {
    if pools.len() > POOLS_MAX {
        return Err(Denied::invalid(
            "pools",
            format!("name at most {POOLS_MAX}"),
        ));
    }
    let are_labels = labels
        .iter()
        .all(|(name, value)| is_label_part(name) && is_label_part(value));
    if labels.len() > LABELS_MAX || !are_labels {
        let problem =
            format!("use at most {LABELS_MAX}, each NAME=VALUE of letters, digits and . _ - /");
        return Err(Denied::invalid("labels", problem));
    }
    Ok(())
}

/// The runners: their sessions, and what they are given.
#[derive(Debug, Clone)]
pub struct Runners {
    store: Store,
    settings: Settings,
    sessions: Sessions,
    launches: Launches,
}

impl Runners {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
            sessions: ops.sessions.clone(),
            launches: ops.launches.clone(),
        }
    }

    /// Begins a session of a runner. `token` is the name of its token.
    ///
    /// # Errors
    /// A pool is not one for runners, or another runner waits for attempts under this identity.
    pub fn join(&self, token: &str, call: JoinRunner) -> Result<RunnerJoined, OpError> {
        let JoinRunner {
            home_id,
            pools,
            labels,
            slots,
            version: _,
            confirmed,
        } = call;
        check_identity(&home_id, slots)?;
        check_offer(&pools, &labels)?;
        // Before the session begins: the hub may start again.
        if let Some(statement) = confirmed {
            self.store.compare_statement(&statement)?;
        }
        let config = self.settings.config_or_builtin();
        let pools = served_pools(&config, pools, &labels)?;
        let lease_ms = u64::try_from(config.times.runner_lease_ms).unwrap_or(0);
        let (host, id) = (
            format!("{token}/{home_id}"),
            crate::hub_client::random_hex::<16>(),
        );
        let begun = self.sessions.begin(
            &host,
            id.clone(),
            pools.iter().cloned().collect::<BTreeSet<_>>(),
            slots,
            Lease::from_ms(lease_ms),
            Instant::now(),
        );
        if begun.is_none() {
            return Err(Denied::conflict(
                "runner",
                "another process is connected as this runner; a copied home needs another token or no runner.json",
            )
            .into());
        }
        self.launches.note_joined(token);
        let (hosted, removed) = self.store.read(|connection| {
            Ok::<_, StoreError>((
                hosted_attempts(connection)?,
                left_on_runner(connection, &host, REMOVED_MAX)?,
            ))
        })?;
        let attempts = hosted.into_iter().filter(|attempt| attempt.host == host);
        self.sessions.note_notified(&host, &removed);
        let leased = |attempt: HostedAttempt| LeasedAttempt {
            attempt: AttemptId {
                run: attempt.run,
                n: attempt.n,
            }
            .to_string(),
            lease_ms: u64::try_from(attempt.lease_ms).unwrap_or(0),
        };
        Ok(RunnerJoined {
            session: id,
            name: token.to_owned(),
            lease_ms,
            pools,
            removed,
            attempts: attempts.map(leased).collect(),
        })
    }

    /// Returns the session of a runner that makes a call, and renews its lease. `None`: it has
    /// ended, and the runner must join again.
    #[must_use]
    pub fn session(&self, token: &str, home_id: &str, id: &str) -> Option<RunnerSession> {
        self.sessions
            .contact(&format!("{token}/{home_id}"), id, Instant::now())
    }

    /// Waits until there are orders for a runner. `None`: its session has ended.
    pub async fn work(&self, session: &RunnerSession, call: &GetRunnerWork) -> Option<RunnerWork> {
        let poll = self.sessions.poll(
            session,
            &call.taken,
            !call.drains && !call.leaves && call.unwritable.is_none(),
            call.load.into(),
        )?;
        if self
            .sessions
            .note_unwritable(session, call.unwritable.as_ref())
        {
            let host = runner_name(&session.host);
            match &call.unwritable {
                Some(why) => tracing::warn!(
                    host,
                    why,
                    "a runner takes no attempts until its home can be written"
                ),
                None => tracing::info!(host, "the home of a runner can be written again"),
            }
        }
        if call.leaves && self.sessions.leave(session) {
            tracing::info!(host = runner_name(&session.host), "a runner has left");
            self.launches.note_left(&session.host);
            self.store.wake_ups().notify([&Topic::Queue]);
            return Some(RunnerWork {
                orders: Vec::new(),
                reads: Vec::new(),
                removed: Vec::new(),
                left: true,
                fingerprint: None,
                confirmed: None,
            });
        }
        // From now on the scheduler counts it.
        self.store.wake_ups().notify([&Topic::Queue]);
        let wait_max = u64::try_from(poll.lease.wait_max().as_millis()).unwrap_or(0);
        let deadline = end_of_wait(call.wait_ms.min(wait_max));
        loop {
            let (orders, reads, removed) = (
                self.sessions.offers(session)?,
                self.sessions.take_reads(session),
                self.sessions.take_removed(session),
            );
            if !orders.is_empty()
                || !reads.is_empty()
                || !removed.is_empty()
                || Instant::now() >= deadline
            {
                let confirmed = self.store.statement_for_runner();
                return Some(RunnerWork {
                    orders,
                    reads,
                    removed,
                    left: false,
                    fingerprint: None,
                    confirmed,
                });
            }
            ends_with_runtime().await;
            tokio::select! {
                () = poll.changed.notified() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
    }

    /// Passes a part of a log to the call that wants it.
    ///
    /// # Errors
    /// No call waits for such a part from this runner.
    pub fn accept_log_part(&self, session: &RunnerSession, part: PostLog) -> Result<(), OpError> {
        let number = part.number;
        if self.sessions.answer_read(session, part) {
            Ok(())
        } else {
            Err(Denied::not_found("read of a log", &number.to_string()).into())
        }
    }

    /// Records that a runner has removed the files of runs.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn confirm_removed(
        &self,
        session: &RunnerSession,
        call: PostRemoved,
    ) -> Result<(), OpError> {
        let host = session.host.clone();
        let next = self.store.write(move |tx| {
            tx.forget_left_on_runner(&host, &call.runs)?;
            left_on_runner(tx.connection(), &host, REMOVED_MAX)
        });
        self.sessions.add_removed(&session.host, next.await?);
        Ok(())
    }

    /// Returns the runners that wait for attempts, have free slots, and whose machines have room
    /// for a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn places(&self) -> Result<Vec<RunnerTarget>, OpError> {
        let waiting = self.sessions.waiting();
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let config = self.settings.config_or_builtin();
        let lease_ms = config.times.runner_lease_ms;
        let admission = |load| Admission {
            limits: config.pressure,
            load,
        };
        let watches_memory = waiting
            .iter()
            .any(|runner| admission(runner.load).watches_memory());
        let (live, needs) = self.store.read(|connection| {
            let needs = if watches_memory {
                MemoryNeeds::read(connection)?
            } else {
                MemoryNeeds::default()
            };
            Ok::<_, StoreError>((live_by_host(connection)?, needs))
        })?;
        let live = |host: &str| live.get(host).copied().unwrap_or(0);
        let mut places = Vec::new();
        for runner in waiting {
            let WaitingRunner {
                session,
                pools,
                slots,
                load,
            } = runner;
            let live = live(&session.host);
            let free = slots.saturating_sub(live).min(ORDERS_MAX);
            if free == 0 {
                continue;
            }
            let held = Held::of(admission(load), live, &needs, Some(&session.host));
            // A loaded machine is measured again after each start.
            let free = if Held::has_room(admission(load), live, &needs, &session.host, free) {
                free
            } else {
                1
            };
            self.sessions.note_held(&session, held.all);
            if held.all.is_none() {
                places.push(RunnerTarget {
                    place: StartTarget::Runner {
                        host: session.host.clone(),
                        pools,
                        lease_ms,
                        held,
                    },
                    free,
                    session,
                });
            }
        }
        Ok(places)
    }

    /// Offers claimed attempts to their runner. If the runner's session has ended, the runs return
    /// to the queue.
    pub async fn offer_launches(&self, place: &RunnerTarget, launches: Vec<Launch>) {
        let ids: Vec<AttemptId> = launches.iter().map(|launch| launch.id).collect();
        if self.sessions.offer(
            &place.session,
            launches
                .into_iter()
                .map(|launch| (launch.id.to_string(), launch.order)),
        ) {
            return;
        }
        // The orders have not left the hub.
        for id in ids {
            record_not_started(
                &self.store,
                &self.settings,
                id,
                &Denied::conflict("runner", "it has left").into(),
            )
            .await;
        }
    }

    /// Applies the remaining facts of an attempt without processes.
    ///
    /// # Errors
    /// The attempt is not on this runner, or its lease has expired.
    pub async fn apply_left_facts(
        &self,
        session: &RunnerSession,
        call: PostLeftFacts,
    ) -> Result<FactsStored, OpError> {
        let id = check_hosted(&self.store, session, &call.attempt)?;
        Ok(FactsStored {
            cursor: apply_facts(&self.store, &self.settings, id, call.facts).await?,
        })
    }

    /// Records the end of an attempt without processes whose facts have been applied.
    ///
    /// # Errors
    /// The attempt is not on this runner, or its lease has expired.
    pub async fn end_hosted(
        &self,
        session: &RunnerSession,
        call: PostEnded,
    ) -> Result<(), OpError> {
        let id = check_hosted(&self.store, session, &call.attempt)?;
        if id.is_settled(&self.store)? {
            return Ok(());
        }
        end_lost_attempt(
            &self.store,
            &self.settings,
            id,
            call.remains,
            None,
            Loss::Supervisor,
        )
        .await
    }

    /// Waits until a runner joins, after which leases can expire.
    pub async fn joined(&self) {
        self.sessions.joined().await;
    }
}

/// Checks that a runner relays a call of a supervisor of its own.
///
/// # Errors
/// The attempt is not on this runner, the token is not that of the attempt, or its lease has
/// expired.
pub fn check_relayed(
    store: &Store,
    session: &RunnerSession,
    attempt: &str,
    token: &str,
) -> Result<AttemptId, OpError> {
    Ok(store.read(|connection| supervised_attempt(connection, session, attempt, token))?)
}

/// Finds an attempt that is on a runner.
fn check_hosted(
    store: &Store,
    session: &RunnerSession,
    attempt: &str,
) -> Result<AttemptId, OpError> {
    Ok(store
        .read(|connection| hosted_attempt(connection, session, attempt))?
        .0)
}

/// Reads an attempt that is or was on a runner.
fn find_placed(
    store: &Store,
    session: &RunnerSession,
    attempt: &str,
) -> Result<(AttemptId, AttemptRow), OpError> {
    Ok(store.read(|connection| placed_attempt(connection, session, attempt))?)
}

/// Sends connected runners the removed runs whose files they may have. The others receive them
/// when they join.
///
/// # Errors
/// A failure of the store.
pub(in crate::ops) fn send_removed(store: &Store, runners: &Sessions) -> Result<(), OpError> {
    for host in runners.connected() {
        let removed = store.read(|connection| left_on_runner(connection, &host, REMOVED_MAX))?;
        runners.add_removed(&host, removed);
    }
    Ok(())
}

fn foreign_attempt() -> Denied {
    Denied::NotAllowed {
        who: "a runner",
        action: "act for an attempt of another machine",
    }
}

/// Reads an attempt that is or was on a runner.
fn placed_attempt(
    connection: &Connection,
    session: &RunnerSession,
    attempt: &str,
) -> Result<(AttemptId, AttemptRow), StoreError> {
    let id =
        AttemptId::parse(attempt).ok_or_else(|| Denied::invalid("attempt", "use RUN-ID/NUMBER"))?;
    let row = attempt_row(connection, id.run, id.n)?;
    Ok((
        id,
        row.filter(|row| row.host.as_deref() == Some(session.host.as_str()))
            .ok_or_else(foreign_attempt)?,
    ))
}

/// Reads an attempt that is on a runner.
fn hosted_attempt(
    connection: &Connection,
    session: &RunnerSession,
    attempt: &str,
) -> Result<(AttemptId, AttemptRow), StoreError> {
    let (id, row) = placed_attempt(connection, session, attempt)?;
    if row.lost_at.is_some() {
        return Err(Denied::conflict("attempt", format!("the lease of {id} has expired")).into());
    }
    Ok((id, row))
}

/// Checks that an attempt is on a runner, and that its supervisor has presented the right token.
fn supervised_attempt(
    connection: &Connection,
    session: &RunnerSession,
    attempt: &str,
    token: &str,
) -> Result<AttemptId, StoreError> {
    let (id, row) = hosted_attempt(connection, session, attempt)?;
    if is_token_of(&row, token) {
        Ok(id)
    } else {
        Err(foreign_attempt().into())
    }
}

/// Returns the pools that a runner serves: those that it names, or all with labels if it has these.
fn served_pools(
    config: &Config,
    named: Vec<String>,
    labels: &BTreeMap<String, String>,
) -> Result<Vec<String>, Denied> {
    let missing = |pool: &PoolEntry| {
        pool.labels
            .iter()
            .find(|(name, value)| labels.get(*name) != Some(*value))
            .map(|(name, value)| format!("{name}={value}"))
    };
    if named.is_empty() {
        let fits = |pool: &PoolEntry| {
            pool.on_runners && !pool.labels.is_empty() && missing(pool).is_none()
        };
        let found: Vec<String> = config
            .pools
            .iter()
            .filter(|(_, pool)| fits(pool))
            .map(|(name, _)| name.to_string())
            .collect();
        let problem = "no pool for runners needs only labels that this runner has: set labels in its [pools.NAME], or name pools with --pool";
        return if found.is_empty() {
            Err(Denied::invalid("labels", problem))
        } else {
            Ok(found)
        };
    }
    for name in &named {
        let pool = PoolName::parse(name)
            .ok()
            .and_then(|name| config.pools.get(&name))
            .filter(|pool| pool.on_runners);
        let Some(pool) = pool else {
            let name = shorten::to_chars(name, 80);
            return Err(Denied::invalid(
                "pools",
                format!(
                    "the hub has no pool {name} for runners: set runners = true in its [pools.{name}]"
                ),
            ));
        };
        if let Some(label) = missing(pool) {
            return Err(Denied::invalid(
                "labels",
                format!("pool {name} needs {label}: start the runner with --label {label}"),
            ));
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_slots_of_a_runner_are_checked() {
        let id = "0123456789abcdef";
        assert_eq!(check_identity(id, 1), Ok(()));
        assert!(
            check_identity(&id[1..], 1).is_err() && check_identity("not-hexadecimal-", 1).is_err()
        );
        assert!(check_identity(id, 0).is_err() && check_identity(id, SLOTS_MAX + 1).is_err());
    }

    #[test]
    fn labels_are_words_and_not_too_many() {
        let check = |labels: &[(&str, &str)]| {
            let labels = labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            check_offer(&[], &labels).is_ok()
        };
        assert!(check(&[("gpu", "a100"), ("zone", "eu/1")]));
        assert!(!check(&[("gpu", "a 100")]) && !check(&[("", "x")]));
        let many = (0..=LABELS_MAX).map(|n| (format!("l{n}"), "x".to_owned()));
        assert!(check_offer(&[], &many.collect()).is_err());
    }
}
