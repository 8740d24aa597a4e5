//! What this hub knows about the runners that it launches, in memory: which ones have joined, have
//! worked or have ended, and why launches of a pool fail. The store has their tokens.

use crate::config::{Config, Launcher};
use crate::ops::runner_sessions::Sessions;
use crate::store::{HostedAttempt, Token};
use crate::view::{LaunchView, RunView, Word};
use adjutant_core::PoolName;
use adjutant_core::launch::{
    LaunchedFacts, LaunchedState, launched_pool, launched_state, pause_after,
};
use adjutant_core::lease::Lease;
use adjutant_core::pool::QueueReason;
use adjutant_core::token::TokenRole;
use adjutant_core::units::duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What this hub knows about launched runners, beside the store.
#[derive(Debug, Clone, Default)]
pub(super) struct Launches(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By the name of the runner.
    runners: BTreeMap<String, KnownRunner>,
    pools: BTreeMap<String, KnownPool>,
}

#[derive(Debug, Default)]
struct KnownRunner {
    /// When this hub launched it. `None`: another one did.
    launched: Option<Instant>,
    /// It had joined an earlier hub.
    was_known: bool,
    /// It has joined this hub.
    has_joined: bool,
    has_worked: bool,
    /// It has left, or its command has failed.
    has_ended: bool,
    /// Why its command has failed.
    problem: Option<String>,
}

#[derive(Debug, Default)]
struct KnownPool {
    /// How many launched runners in a row got no work.
    useless: u32,
    not_before: Option<Instant>,
    /// Why the last launch failed.
    problem: Option<String>,
    starting: u64,
    launched: u64,
}

/// The launched runners of a pool.
#[derive(Debug, Default)]
pub(super) struct PoolLaunches {
    /// Those that have not joined yet.
    pub starting: u64,
    pub launched: u64,
    /// When the next one may be launched, after failures.
    pub not_before: Option<Instant>,
}

impl Launches {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a runner has joined.
    pub(super) fn note_joined(&self, token: &str) {
        if let Some(runner) = self.known().runners.get_mut(token) {
            (runner.has_joined, runner.has_ended) = (true, false);
        }
    }

    /// Records that a runner has left.
    pub(super) fn note_left(&self, host: &str) {
        if let Some(runner) = self.known().runners.get_mut(token_of(host)) {
            runner.has_ended = true;
        }
    }

    /// Records that a runner of a pool is launched.
    pub(super) fn note_launched(&self, name: &str, pool: &str) {
        let mut known = self.known();
        known.runners.insert(
            name.to_owned(),
            KnownRunner {
                launched: Some(Instant::now()),
                ..KnownRunner::default()
            },
        );
        let of_pool = known.pools.entry(pool.to_owned()).or_default();
        of_pool.starting += 1;
        of_pool.launched += 1;
    }

    /// Records that the command of a launched runner has failed. That matters only if the runner
    /// has not joined.
    pub(super) fn note_failed(&self, name: &str, problem: String) {
        let mut known = self.known();
        if let Some(runner) = known
            .runners
            .get_mut(name)
            .filter(|runner| !runner.has_joined)
        {
            runner.has_ended = true;
            runner.problem = Some(problem);
        }
    }

    /// Returns the launched runners of a pool.
    pub(super) fn of_pool(&self, pool: &str) -> PoolLaunches {
        let known = self.known();
        known
            .pools
            .get(pool)
            .map_or_else(PoolLaunches::default, |pool| PoolLaunches {
                starting: pool.starting,
                launched: pool.launched,
                not_before: pool.not_before,
            })
    }

    /// Describes the launches of a pool. `None`: it has no launcher.
    pub(super) fn view(&self, config: &Config, pool: &str) -> Option<LaunchView> {
        let launcher = config
            .pools
            .get(&PoolName::parse(pool).ok()?)?
            .launcher
            .as_ref()?;
        Some(self.view_of(pool, launcher, Instant::now()))
    }

    /// Adds to why a queued run has not started what the hub does about its missing runner.
    pub(super) fn add_to(&self, config: &Config, view: &mut RunView) {
        let Some(queue) = view.in_queue.queue.as_mut().filter(|queue| {
            matches!(
                queue.waiting_for,
                Word::Known(QueueReason::NoRunner | QueueReason::Turn)
            )
        }) else {
            return;
        };
        if let Some(launch) = self.view(config, &view.terms.pool) {
            queue.why = format!("{}; {}", queue.why, launch.text());
            queue.next_step = None;
        }
    }

    fn view_of(&self, pool: &str, launcher: &Launcher, now: Instant) -> LaunchView {
        let known = self.known();
        let pool = known.pools.get(pool);
        let pause = pool
            .and_then(|pool| pool.not_before)
            .and_then(|at| at.checked_duration_since(now));
        LaunchView {
            max: launcher.max,
            launched: pool.map_or(0, |pool| pool.launched),
            starting: pool.map_or(0, |pool| pool.starting),
            problem: pool.and_then(|pool| pool.problem.clone()),
            next_in_s: pause.map(|pause| pause.as_secs() + 1),
        }
    }
}

/// Returns the name of the token of a host.
fn token_of(host: &str) -> &str {
    host.split_once('/').map_or(host, |(token, _)| token)
}

impl Launches {
    /// Checks the launched runners. Returns the tokens of those that have ended, and the names of
    /// those whose tokens were revoked by hand.
    pub(super) fn check_launched(
        &self,
        config: &Config,
        of_runners: &[Token],
        hosted: &[HostedAttempt],
        sessions: &Sessions,
        next: &mut Option<Instant>,
    ) -> (Vec<Token>, Vec<String>) {
        let check = LaunchCheck::new(config, hosted, sessions);
        let mut known = self.known();
        let Known { runners, pools } = &mut *known;
        pools
            .values_mut()
            .for_each(|pool| (pool.starting, pool.launched) = (0, 0));
        let mut ended = Vec::new();
        let mut named = BTreeSet::new();
        for token in of_runners {
            let Some(pool) = launched_pool(&token.name) else {
                continue;
            };
            named.insert(token.name.clone());
            let runner = runners
                .entry(token.name.clone())
                .or_insert_with(|| KnownRunner {
                    was_known: token.used_at.is_some(),
                    ..KnownRunner::default()
                });
            let of_pool = pools.entry(pool.to_owned()).or_default();
            let facts = check.facts(token, pool, runner);
            runner.has_worked |= facts.has_attempts;
            if runner.has_worked {
                of_pool.forget_failures();
            }
            match launched_state(&facts) {
                LaunchedState::Starting(left) => {
                    of_pool.starting += 1;
                    note_next(next, Some(check.now + left));
                }
                LaunchedState::CutOff(left) => note_next(next, left.map(|left| check.now + left)),
                LaunchedState::Connected => {}
                LaunchedState::Ended => {
                    if !runner.has_worked {
                        let problem = problem_of(&token.name, runner, facts.join_within);
                        of_pool.note_useless(check.now, problem);
                    }
                    ended.push(token.clone());
                    continue;
                }
            }
            of_pool.launched += 1;
        }
        let revoked = runners
            .keys()
            .filter(|name| !named.contains(*name))
            .cloned()
            .collect();
        runners.retain(|name, _| {
            named.contains(name) && !ended.iter().any(|token| token.name == *name)
        });
        (ended, revoked)
    }
}

impl KnownPool {
    /// A runner of the pool works, so that launches succeed.
    fn forget_failures(&mut self) {
        *self = Self {
            starting: self.starting,
            launched: self.launched,
            ..Self::default()
        };
    }

    /// A runner has ended without a run, so that the next launch waits longer.
    fn note_useless(&mut self, now: Instant, problem: String) {
        self.useless = self.useless.saturating_add(1);
        self.not_before = Some(now + pause_after(self.useless));
        self.problem = Some(problem);
    }
}

/// What is known about all launched runners at one moment.
struct LaunchCheck<'a> {
    config: &'a Config,
    now: Instant,
    /// Since when runners can have joined this hub.
    began: Instant,
    lease: Lease,
    /// The tokens of the runners that have attempts.
    busy: BTreeSet<&'a str>,
    /// The tokens of those that are connected.
    connected: BTreeSet<String>,
}

impl<'a> LaunchCheck<'a> {
    fn new(config: &'a Config, hosted: &'a [HostedAttempt], sessions: &Sessions) -> Self {
        Self {
            config,
            now: Instant::now(),
            began: sessions.began(),
            lease: Lease::from_ms(u64::try_from(config.times.runner_lease_ms).unwrap_or(0)),
            busy: hosted
                .iter()
                .map(|attempt| token_of(&attempt.host))
                .collect(),
            connected: sessions
                .connected()
                .iter()
                .map(|host| token_of(host).to_owned())
                .collect(),
        }
    }

    fn facts(&self, token: &Token, pool: &str, runner: &KnownRunner) -> LaunchedFacts {
        let launcher = PoolName::parse(pool)
            .ok()
            .and_then(|name| self.config.pools.get(&name)?.launcher.as_ref());
        let join_within = launcher
            .map_or(adjutant_core::launch::JOIN_TIMEOUT_DEFAULT_MS, |launcher| {
                launcher.join_within_ms
            });
        let launched = runner.launched.unwrap_or(self.began);
        LaunchedFacts {
            is_connected: self.connected.contains(&token.name),
            has_attempts: self.busy.contains(token.name.as_str()),
            has_joined: runner.has_joined || runner.was_known,
            has_ended: runner.has_ended,
            since: self.now.saturating_duration_since(launched),
            join_within: Duration::from_millis(u64::try_from(join_within).unwrap_or(0)),
            known_within: (!runner.has_joined).then(|| self.lease.whole()),
        }
    }
}

/// Describes why the launch of a runner failed.
fn problem_of(name: &str, runner: &KnownRunner, join_within: Duration) -> String {
    match &runner.problem {
        Some(problem) => problem.clone(),
        None if runner.has_joined => format!("{name} joined, and ended without a run"),
        None => format!("{name} has not joined within {}", duration::of(join_within)),
    }
}

/// Returns whether a token is a valid one of a runner.
pub(super) fn is_of_runner(token: &Token) -> bool {
    token.revoked_at.is_none() && token.identity.role() == TokenRole::Runner
}

/// Moves the time of the next round forward to `at`.
pub(super) fn note_next(next: &mut Option<Instant>, at: Option<Instant>) {
    *next = [*next, at].into_iter().flatten().min();
}
