//! The sessions of runners, in memory: a hub that starts knows none, so every runner joins again.
//!
//! Every call of a runner renews its lease. A host is `<token>/<id of the runner's home>`.

use crate::protocol::{LogRead, Order, PostLog};
use crate::store::runner_name;
use crate::view::{LogPage, ReadLogs, RunView, Word};
use adjutant_core::lease::Lease;
use adjutant_core::pool::{PoolTarget, QueueReason};
use adjutant_core::pressure::MachineLoad;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// A session of a runner, which may have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerSession {
    pub host: String,
    id: String,
}

#[cfg(test)]
impl RunnerSession {
    /// Returns a session that was not begun.
    pub(super) fn of_host(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            id: String::new(),
        }
    }
}

/// A runner that has joined and waits for attempts.
#[derive(Debug, Clone)]
pub(super) struct WaitingRunner {
    pub session: RunnerSession,
    pub pools: BTreeSet<String>,
    pub slots: u64,
    pub load: MachineLoad,
}

#[derive(Debug)]
struct Host {
    /// When its last call arrived.
    contact: Instant,
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    id: String,
    pools: BTreeSet<String>,
    slots: u64,
    lease: Lease,
    /// The load of its machine when it last began to wait.
    load: MachineLoad,
    /// Why no run was started there at the last check.
    held: Option<QueueReason>,
    /// Why its home cannot be written, as it has said last.
    unwritable: Option<String>,
    /// How many calls wait for attempts, and how many of these would take one.
    polls: u32,
    takers: u32,
    /// Whether it would take another attempt, as it has said last.
    takes: bool,
    /// Orders that the runner has not confirmed.
    offers: Vec<(String, Order)>,
    /// Parts of logs that were not sent to the runner yet.
    reads: Vec<LogRead>,
    /// Removed runs of which the runner was notified in this session, and those that it does not
    /// know yet.
    notified: BTreeSet<String>,
    removed: Vec<String>,
    /// Who waits for which part.
    readers: BTreeMap<u64, oneshot::Sender<LogAnswer>>,
    last_read: u64,
    /// Notified when an order, a read or a removed run is added, or the session ends.
    changed: Arc<Notify>,
}

/// A part of a log, or why the runner cannot read it.
pub(in crate::ops) type LogAnswer = Result<LogPage, LogUnreadable>;

/// Why a runner cannot read a part of a log, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::ops) struct LogUnreadable(String);

/// Maximum number of parts of logs that a runner is asked for at a time.
pub(in crate::ops) const READS_MAX: usize = 64;

/// How many bytes of prompts one reply may contain, unless a single order has more. The runner
/// waits seconds for a reply.
const PROMPTS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many runners whose homes cannot be written are named.
const UNWRITABLE_SHOWN_MAX: usize = 3;

/// What a runner is asked for part of a log.
#[derive(Debug)]
pub(in crate::ops) enum LogAsked {
    Waiting(oneshot::Receiver<LogAnswer>),
    TooMany,
    /// The runner has no session.
    NotConnected,
}

/// The hosts that are known.
#[derive(Debug, Clone)]
pub(in crate::ops) struct Sessions {
    began: Instant,
    hosts: Arc<Mutex<BTreeMap<String, Host>>>,
    joined: Arc<Notify>,
    /// Notifies all who wait for a certain runner that one has joined.
    arrivals: Arc<Notify>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            hosts: Arc::default(),
            joined: Arc::default(),
            arrivals: Arc::default(),
        }
    }
}

impl Sessions {
    fn hosts(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session, which ends the one before. `None`: a runner is waiting for attempts in
    /// that one.
    pub(super) fn begin(
        &self,
        host: &str,
        id: String,
        pools: BTreeSet<String>,
        slots: u64,
        lease: Lease,
        now: Instant,
    ) -> Option<()> {
        let mut hosts = self.hosts();
        let before = hosts
            .get_mut(host)
            .and_then(|host| host.session.take_if(|session| session.polls == 0));
        if before.is_none() && hosts.get(host).is_some_and(|host| host.session.is_some()) {
            return None;
        }
        let session = Session {
            id,
            pools,
            slots,
            lease,
            load: MachineLoad::default(),
            held: None,
            unwritable: None,
            polls: 0,
            takers: 0,
            takes: true,
            offers: Vec::new(),
            reads: Vec::new(),
            notified: BTreeSet::new(),
            removed: Vec::new(),
            readers: BTreeMap::new(),
            last_read: 0,
            changed: Arc::default(),
        };
        hosts.insert(
            host.to_owned(),
            Host {
                contact: now,
                session: Some(session),
            },
        );
        drop(hosts);
        self.joined.notify_one();
        self.arrivals.notify_waiters();
        Some(())
    }

    /// Returns the session of a runner that makes a call, and renews its lease. `None`: it has
    /// ended.
    pub(super) fn contact(&self, host: &str, id: &str, now: Instant) -> Option<RunnerSession> {
        let mut hosts = self.hosts();
        let known = hosts.get_mut(host)?;
        known.session.as_ref().filter(|session| session.id == id)?;
        known.contact = known.contact.max(now);
        Some(RunnerSession {
            host: host.to_owned(),
            id: id.to_owned(),
        })
    }

    /// Begins to wait for attempts. `taken` are those whose orders have arrived. `takes`: it would
    /// take another one. `load`: that of its machine.
    pub(super) fn poll(
        &self,
        session: &RunnerSession,
        taken: &[String],
        takes: bool,
        load: MachineLoad,
    ) -> Option<Poll> {
        let mut hosts = self.hosts();
        let found = of(&mut hosts, session)?;
        found.offers.retain(|(attempt, _)| !taken.contains(attempt));
        found.load = load;
        found.takes = takes;
        found.polls += 1;
        found.takers += u32::from(takes);
        Some(Poll {
            sessions: self.clone(),
            session: session.clone(),
            takes,
            changed: Arc::clone(&found.changed),
            lease: found.lease,
        })
    }

    /// Returns the unconfirmed orders, as many as one reply may contain. `None`: the session has
    /// ended.
    pub(super) fn offers(&self, session: &RunnerSession) -> Option<Vec<Order>> {
        let (mut hosts, mut bytes) = (self.hosts(), 0);
        let unconfirmed = of(&mut hosts, session)?
            .offers
            .iter()
            .map(|(_, order)| order);
        let fits = |order: &&Order| {
            let is_first = bytes == 0;
            bytes +=
                order.prompt.len() + order.new_session_prompt.as_ref().map_or(0, String::len) + 1;
            is_first || bytes <= PROMPTS_BYTES_MAX
        };
        Some(unconfirmed.take_while(fits).cloned().collect())
    }

    /// Adds to why a queued run has not started which runners cannot write to their homes.
    pub(super) fn add_unwritable(&self, view: &mut RunView) {
        let Some(queue) = view
            .in_queue
            .queue
            .as_mut()
            .filter(|queue| queue.waiting_for == Word::Known(QueueReason::RunnerStorage))
        else {
            return;
        };
        let unwritable = self.unwritable(&view.terms.pool);
        for (host, why) in unwritable.iter().take(UNWRITABLE_SHOWN_MAX) {
            queue
                .why
                .push_str(&format!("; {}: {why}", runner_name(host)));
        }
    }

    /// Ends a session at the request of its runner, unless there are orders that it has not
    /// confirmed. Returns whether it has ended.
    pub(super) fn leave(&self, session: &RunnerSession) -> bool {
        let mut hosts = self.hosts();
        if of(&mut hosts, session).is_none_or(|found| !found.offers.is_empty()) {
            return false;
        }
        hosts.get_mut(&session.host).map(Host::end).is_some()
    }

    /// Adds orders. Returns whether the session lasts.
    pub(super) fn offer(
        &self,
        session: &RunnerSession,
        orders: impl IntoIterator<Item = (String, Order)>,
    ) -> bool {
        let mut hosts = self.hosts();
        let Some(found) = of(&mut hosts, session) else {
            return false;
        };
        found.offers.extend(orders);
        found.changed.notify_one();
        true
    }

    /// Notified whenever a runner joins.
    pub(in crate::ops) fn arrivals(&self) -> Arc<Notify> {
        Arc::clone(&self.arrivals)
    }

    /// Returns whether a runner is connected.
    pub(in crate::ops) fn is_connected(&self, host: &str) -> bool {
        self.hosts()
            .get(host)
            .is_some_and(|host| host.session.is_some())
    }

    /// Asks a runner for a part of a log.
    pub(in crate::ops) fn ask_for_log(
        &self,
        host: &str,
        attempt: String,
        first: u32,
        call: ReadLogs,
        ended: bool,
    ) -> LogAsked {
        let mut hosts = self.hosts();
        let Some(session) = hosts.get_mut(host).and_then(|host| host.session.as_mut()) else {
            return LogAsked::NotConnected;
        };
        session.readers.retain(|_, reader| !reader.is_closed());
        let Session { reads, readers, .. } = session;
        reads.retain(|read| readers.contains_key(&read.number));
        if readers.len() >= READS_MAX {
            return LogAsked::TooMany;
        }
        session.last_read += 1;
        let (reader, answer) = oneshot::channel();
        session.readers.insert(session.last_read, reader);
        session.reads.push(LogRead {
            number: session.last_read,
            attempt,
            first,
            ended,
            call,
        });
        session.changed.notify_one();
        LogAsked::Waiting(answer)
    }

    /// Takes the parts of logs that a runner is to send. A lost reply loses them: their readers do
    /// not wait for long.
    pub(super) fn take_reads(&self, session: &RunnerSession) -> Vec<LogRead> {
        of(&mut self.hosts(), session)
            .map(|session| std::mem::take(&mut session.reads))
            .unwrap_or_default()
    }

    /// Adds removed runs to be sent to a runner, each once in its session.
    pub(super) fn add_removed(&self, host: &str, runs: Vec<String>) {
        let mut hosts = self.hosts();
        let Some(session) = hosts.get_mut(host).and_then(|host| host.session.as_mut()) else {
            return;
        };
        // What the runner has confirmed is not listed any more.
        session.notified.retain(|run| runs.contains(run));
        session.removed.extend(
            runs.into_iter()
                .filter(|run| session.notified.insert(run.clone())),
        );
        if !session.removed.is_empty() {
            session.changed.notify_one();
        }
    }

    /// Records the removed runs that were sent to a runner when it joined.
    pub(super) fn note_notified(&self, host: &str, runs: &[String]) {
        if let Some(session) = self
            .hosts()
            .get_mut(host)
            .and_then(|host| host.session.as_mut())
        {
            session.notified.extend(runs.iter().cloned());
        }
    }

    /// Takes the removed runs that are to be sent to a runner. What is lost with a reply is sent
    /// when it joins again.
    pub(super) fn take_removed(&self, session: &RunnerSession) -> Vec<String> {
        of(&mut self.hosts(), session)
            .map(|session| std::mem::take(&mut session.removed))
            .unwrap_or_default()
    }

    /// Passes a part of a log to its reader. Returns whether there is still one.
    pub(super) fn answer_read(&self, session: &RunnerSession, answer: PostLog) -> bool {
        let reader = of(&mut self.hosts(), session)
            .and_then(|session| session.readers.remove(&answer.number));
        let part = answer.page.ok_or(LogUnreadable(answer.problem));
        reader.is_some_and(|reader| reader.send(part).is_ok())
    }

    /// Returns the runners that wait for attempts and have confirmed all their orders.
    pub(super) fn waiting(&self) -> Vec<WaitingRunner> {
        let hosts = self.hosts();
        let waiting = hosts.iter().filter_map(|(host, known)| {
            let Session {
                id,
                pools,
                slots,
                load,
                ..
            } = known.session.as_ref().filter(|session| {
                session.takes && session.takers > 0 && session.offers.is_empty()
            })?;
            let session = RunnerSession {
                host: host.clone(),
                id: id.clone(),
            };
            Some(WaitingRunner {
                session,
                pools: pools.clone(),
                slots: *slots,
                load: *load,
            })
        });
        waiting.collect()
    }

    /// Records why the load of a runner's machine delays starts there. `None`: it does not.
    pub(super) fn note_held(&self, session: &RunnerSession, held: Option<QueueReason>) {
        if let Some(found) = of(&mut self.hosts(), session) {
            found.held = held;
        }
    }

    /// Records why the home of a runner cannot be written. `None`: it can be. Returns whether this
    /// has begun or ended.
    pub(super) fn note_unwritable(&self, session: &RunnerSession, why: Option<&String>) -> bool {
        let mut hosts = self.hosts();
        let Some(found) = of(&mut hosts, session) else {
            return false;
        };
        let before = std::mem::replace(&mut found.unwritable, why.cloned());
        before.is_some() != why.is_some()
    }

    /// Returns the runners of a pool whose homes cannot be written, and why.
    fn unwritable(&self, pool: &str) -> Vec<(String, String)> {
        let hosts = self.hosts();
        let serving = hosts
            .iter()
            .filter_map(|(name, host)| Some((name, host.session.as_ref()?)));
        let of_pool = serving.filter(|(_, session)| session.pools.contains(pool));
        of_pool
            .filter_map(|(name, session)| Some((name.clone(), session.unwritable.clone()?)))
            .collect()
    }

    /// Returns the pools that runners serve, and whether at least one of these can take a run.
    pub(in crate::ops) fn served_pools(&self) -> BTreeMap<String, PoolTarget> {
        let mut served = BTreeMap::new();
        for session in self
            .hosts()
            .values()
            .filter_map(|host| host.session.as_ref())
        {
            for pool in &session.pools {
                let place = served.entry(pool.clone()).or_insert(PoolTarget::NoRunner);
                if *place != PoolTarget::Runners {
                    let held = session
                        .unwritable
                        .as_ref()
                        .map(|_| QueueReason::RunnerStorage)
                        .or(session.held);
                    *place = held.map_or(PoolTarget::Runners, PoolTarget::RunnersHeld);
                }
            }
        }
        served
    }

    /// Returns the hosts that have a session.
    pub(super) fn connected(&self) -> Vec<String> {
        self.hosts()
            .iter()
            .filter(|(_, host)| host.session.is_some())
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Counts the free slots of the runners that serve a pool. `live`: the attempts of a host.
    pub(super) fn free_slots(&self, pool: &str, live: impl Fn(&str) -> u64) -> u64 {
        let hosts = self.hosts();
        let serving = hosts
            .iter()
            .filter_map(|(name, host)| Some((name, host.session.as_ref()?)));
        let able = serving.filter(|(_, session)| {
            session.takes && session.held.is_none() && session.pools.contains(pool)
        });
        able.map(|(name, session)| session.slots.saturating_sub(live(name)))
            .sum()
    }

    /// Returns when this hub began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Returns when a lease of a host expires. Of a host that this hub does not know, it began with
    /// the hub.
    pub(super) fn expiry(&self, host: &str, lease: Lease) -> Instant {
        self.hosts()
            .get(host)
            .map_or(self.began, |host| host.contact)
            + lease.whole()
    }

    /// Ends the session of a host if its lease has expired, so that no further call counts. Returns
    /// whether it has.
    pub(super) fn end_expired(&self, host: &str, lease: Lease, now: Instant) -> bool {
        let mut hosts = self.hosts();
        let Some(known) = hosts.get_mut(host) else {
            return self.began + lease.whole() <= now;
        };
        if known.contact + lease.whole() > now {
            return false;
        }
        known.end();
        true
    }

    /// Ends the sessions of silent hosts, and forgets hosts without a session and attempts. Returns
    /// when the next session expires.
    pub(super) fn forget_silent(
        &self,
        with_attempts: &BTreeSet<String>,
        now: Instant,
    ) -> Option<Instant> {
        let mut hosts = self.hosts();
        for known in hosts.values_mut() {
            if known
                .session
                .as_ref()
                .is_some_and(|session| known.contact + session.lease.whole() <= now)
            {
                known.end();
            }
        }
        hosts.retain(|name, known| known.session.is_some() || with_attempts.contains(name));
        hosts
            .values()
            .filter_map(|known| Some(known.contact + known.session.as_ref()?.lease.whole()))
            .min()
    }

    /// Waits until a runner joins.
    pub(super) async fn joined(&self) {
        self.joined.notified().await;
    }
}

impl Host {
    fn end(&mut self) {
        if let Some(session) = self.session.take() {
            session.changed.notify_one();
        }
    }
}

fn of<'a>(
    hosts: &'a mut BTreeMap<String, Host>,
    session: &RunnerSession,
) -> Option<&'a mut Session> {
    hosts
        .get_mut(&session.host)?
        .session
        .as_mut()
        .filter(|found| found.id == session.id)
}

/// A call that waits for attempts.
#[derive(Debug)]
pub(super) struct Poll {
    sessions: Sessions,
    session: RunnerSession,
    takes: bool,
    pub changed: Arc<Notify>,
    pub lease: Lease,
}

impl Drop for Poll {
    fn drop(&mut self) {
        if let Some(found) = of(&mut self.sessions.hosts(), &self.session) {
            found.polls -= 1;
            found.takers -= u32::from(self.takes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn order(attempt: u32) -> Order {
        let order = serde_json::json!({
            "home": "/", "run_id": "r", "run_name": "r", "attempt": attempt, "agent": "echo", "harness": "echo", "argv": [], "prompt_via": "stdin",
            "prompt": "", "cwd": "/", "env": {}, "timeout_ms": null, "active_ms_before": 0, "patience_ms": 0, "grace_ms": 0, "log_bytes_max": 0,
            "token": "", "containment": "auto",
        });
        serde_json::from_value(order).expect("an order")
    }

    fn begin(sessions: &Sessions, id: &str) -> Option<RunnerSession> {
        let now = Instant::now();
        sessions.begin(
            "a/1",
            id.to_owned(),
            ["gpu".to_owned()].into(),
            2,
            Lease::from_ms(10_000),
            now,
        )?;
        sessions.contact("a/1", id, now)
    }

    #[tokio::test]
    async fn order_is_offered_until_it_is_confirmed() {
        let sessions = Sessions::default();
        let session = begin(&sessions, "one").expect("a session");
        let numbers = || {
            sessions
                .offers(&session)
                .expect("it lasts")
                .iter()
                .map(|order| order.attempt)
                .collect::<Vec<_>>()
        };
        assert!(sessions.offer(&session, [1, 2].map(|n| (format!("r/{n}"), order(n)))));
        drop(
            sessions
                .poll(&session, &[], true, MachineLoad::default())
                .expect("a poll"),
        );
        assert_eq!(
            (numbers(), numbers()),
            (vec![1, 2], vec![1, 2]),
            "a reply may be lost"
        );
        drop(
            sessions
                .poll(&session, &["r/1".to_owned()], true, MachineLoad::default())
                .expect("a poll"),
        );
        assert_eq!(numbers(), [2]);
    }

    #[tokio::test]
    async fn runner_receives_no_further_orders_before_it_has_confirmed_all() {
        let sessions = Sessions::default();
        let session = begin(&sessions, "one").expect("a session");
        let poll = |taken: &[&str]| {
            let taken: Vec<String> = taken.iter().map(|attempt| (*attempt).to_owned()).collect();
            sessions
                .poll(&session, &taken, true, MachineLoad::default())
                .expect("a poll")
        };
        let _first = poll(&[]);
        assert!(
            sessions.waiting().len() == 1
                && sessions.offer(&session, [1, 2].map(|n| (format!("r/{n}"), order(n))))
        );
        assert!(sessions.waiting().is_empty());
        let _second = poll(&["r/1"]);
        assert!(sessions.waiting().is_empty(), "one is not confirmed");
        let _third = poll(&["r/2"]);
        assert_eq!(sessions.waiting().len(), 1);
    }

    #[tokio::test]
    async fn long_prompts_are_sent_with_several_replies() {
        let sessions = Sessions::default();
        let session = begin(&sessions, "one").expect("a session");
        let long = |n| Order {
            prompt: "x".repeat(PROMPTS_BYTES_MAX),
            ..order(n)
        };
        assert!(sessions.offer(
            &session,
            [
                ("r/1".to_owned(), long(1)),
                ("r/2".to_owned(), order(2)),
                ("r/3".to_owned(), order(3))
            ]
        ));
        let numbers = || {
            sessions
                .offers(&session)
                .expect("it lasts")
                .iter()
                .map(|order| order.attempt)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(), [1]);
        drop(
            sessions
                .poll(&session, &["r/1".to_owned()], true, MachineLoad::default())
                .expect("a poll"),
        );
        assert_eq!(numbers(), [2, 3]);
    }

    #[tokio::test]
    async fn runner_leaves_only_if_no_order_is_for_it() {
        let sessions = Sessions::default();
        let session = begin(&sessions, "one").expect("a session");
        let waiting = sessions
            .poll(&session, &[], true, MachineLoad::default())
            .expect("a poll");
        assert!(sessions.offer(&session, [("r/1".to_owned(), order(1))]));
        assert!(!sessions.leave(&session), "it has not taken the order");
        drop(
            sessions
                .poll(&session, &["r/1".to_owned()], false, MachineLoad::default())
                .expect("a poll"),
        );
        assert!(sessions.leave(&session) && !sessions.leave(&session));
        assert!(
            !sessions.offer(&session, [("r/2".to_owned(), order(2))]),
            "the run returns to the queue"
        );
        assert!(
            sessions.offers(&session).is_none(),
            "a call that still waits ends"
        );
        drop(waiting);
        begin(&sessions, "two").expect("it may return");
    }

    #[tokio::test]
    async fn session_ends_with_the_next_one_but_not_while_its_runner_waits() {
        let sessions = Sessions::default();
        let first = begin(&sessions, "one").expect("a session");
        assert!(
            sessions.waiting().is_empty(),
            "it does not wait for attempts yet"
        );
        let poll = sessions
            .poll(&first, &[], true, MachineLoad::default())
            .expect("a poll");
        assert_eq!(sessions.waiting().len(), 1);
        assert_eq!(begin(&sessions, "two"), None);
        drop(poll);
        let draining = sessions
            .poll(&first, &[], false, MachineLoad::default())
            .expect("a poll");
        assert!(sessions.waiting().is_empty(), "it takes no further attempt");
        drop(draining);
        begin(&sessions, "two").expect("a session");
        assert!(
            sessions.contact("a/1", "one", Instant::now()).is_none()
                && !sessions.offer(&first, [("r/1".to_owned(), order(1))])
        );
    }

    #[test]
    fn part_of_a_log_is_asked_for_once_and_taken_only_from_its_runner() {
        let sessions = Sessions::default();
        let session = begin(&sessions, "one").expect("a session");
        let ask = || sessions.ask_for_log("a/1", "r/1".to_owned(), 1, ReadLogs::default(), false);
        let LogAsked::Waiting(mut answer) = ask() else {
            panic!("it has a session")
        };
        let reads = sessions.take_reads(&session);
        assert_eq!((reads.len(), sessions.take_reads(&session).len()), (1, 0));
        let part = PostLog {
            number: reads[0].number,
            page: Some(LogPage::default()),
            problem: String::new(),
        };
        for other in ["another", "one"] {
            assert!(!sessions.answer_read(
                &RunnerSession {
                    host: "b/1".to_owned(),
                    id: other.to_owned()
                },
                part.clone()
            ));
        }
        assert!(answer.try_recv().is_err(), "another runner cannot answer");
        assert!(sessions.answer_read(&session, part));
        assert!(answer.try_recv().is_ok_and(|page| page.is_ok()));
        // A reader that has gone frees its place, and is not asked for.
        drop(ask());
        let waiting: Vec<_> = (0..READS_MAX).map(|_| ask()).collect();
        assert!(
            waiting
                .iter()
                .all(|asked| matches!(asked, LogAsked::Waiting(_)))
                && matches!(ask(), LogAsked::TooMany)
        );
        assert_eq!(sessions.take_reads(&session).len(), READS_MAX);
        assert!(matches!(
            sessions.ask_for_log("c/1", "r/1".to_owned(), 1, ReadLogs::default(), false),
            LogAsked::NotConnected
        ));
    }

    #[test]
    fn pool_is_held_if_all_its_runners_are() {
        let sessions = Sessions::default();
        let begin = |host: &str, pools: &[&str]| {
            let (now, pools) = (
                Instant::now(),
                pools.iter().map(|pool| (*pool).to_owned()).collect(),
            );
            sessions
                .begin(
                    host,
                    "one".to_owned(),
                    pools,
                    1,
                    Lease::from_ms(10_000),
                    now,
                )
                .expect("begun");
            sessions.contact(host, "one", now).expect("a session")
        };
        let (a, b) = (begin("a/1", &["gpu", "big"]), begin("b/1", &["gpu"]));
        let places = || sessions.served_pools().into_values().collect::<Vec<_>>();
        let held = PoolTarget::RunnersHeld(QueueReason::MemoryPressure);
        assert_eq!(places(), [PoolTarget::Runners, PoolTarget::Runners]);
        sessions.note_held(&a, Some(QueueReason::MemoryPressure));
        assert_eq!(places(), [held, PoolTarget::Runners], "big, gpu");
        sessions.note_held(&b, Some(QueueReason::MemoryPressure));
        assert_eq!(places(), [held, held]);
        sessions.note_held(&a, None);
        assert_eq!(places(), [PoolTarget::Runners, PoolTarget::Runners]);
    }

    #[test]
    fn lease_is_renewed_by_each_call_and_expires_without() {
        let (sessions, lease) = (Sessions::default(), Lease::from_ms(10_000));
        begin(&sessions, "one").expect("a session");
        let at = |s: u64| Instant::now() + Duration::from_secs(s);
        sessions.contact("a/1", "one", at(8)).expect("it lasts");
        assert!(
            !sessions.end_expired("a/1", lease, at(17))
                && sessions.served_pools().contains_key("gpu")
        );
        assert!(sessions.end_expired("a/1", lease, at(19)));
        assert!(
            sessions.contact("a/1", "one", at(20)).is_none() && sessions.served_pools().is_empty()
        );
        // Attempts with a longer lease keep the time of the last call.
        let longer = Lease::from_ms(20_000);
        assert!(
            !sessions.end_expired("a/1", longer, at(27))
                && sessions.end_expired("a/1", longer, at(29))
        );
        assert!(
            !sessions.end_expired("unknown/1", longer, at(19)),
            "the hub gives an unknown runner a whole lease"
        );
        sessions.forget_silent(&BTreeSet::new(), at(30));
        assert!(sessions.hosts().is_empty());
    }
}
