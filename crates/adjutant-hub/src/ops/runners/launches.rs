//! Runners that the hub launches when runs of a pool wait for one.
//!
//! A launched runner is a token of role runner whose name has the pool and a number. The token is
//! stored before its command starts, so a hub that dies launches no runner twice: another hub
//! counts the token until its runner joins, or has had the time to.
//!
//! ```text
//!  token ─ command ─ joins ─ works ─ idle ─ leaves ─> token revoked
//!            └ fails, or never joins ───────────────> token revoked, pause
//! ```

use crate::config::{Config, LaunchValues, Launcher};
use crate::ops::runner_sessions::Sessions;
use crate::ops::{OpError, Ops, fresh_token, token_hash};
use crate::store::{
    HostedAttempt, NewToken, Token, Topic, hosted_attempts, launch_candidates, token_by_name,
    tokens,
};
use crate::view::{LaunchView, RunView, Word};
use adjutant_core::PoolName;
use adjutant_core::launch::{
    Demand, LaunchedFacts, LaunchedState, launched_name, launched_pool, launched_state, pause_after,
};
use adjutant_core::lease::Lease;
use adjutant_core::pool::QueueReason;
use adjutant_core::token::{TokenIdentity, TokenRole};
use adjutant_core::units::duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a hub that starts waits for the runners of its predecessor, which try to join every
/// five seconds.
const SETTLE: Duration = Duration::from_secs(7);

/// A runner to launch. Its token is stored.
#[derive(Debug)]
pub(crate) struct RunnerLaunch {
    /// Its name, which is that of the token.
    pub name: String,
    pub pool: String,
    pub token: String,
    pub launcher: Launcher,
}

impl RunnerLaunch {
    #[must_use]
    pub(crate) fn values<'a>(&'a self, url: &'a str) -> LaunchValues<'a> {
        LaunchValues {
            name: &self.name,
            pool: &self.pool,
            url,
        }
    }
}

/// What to do about launched runners.
#[derive(Debug, Default)]
pub(crate) struct LaunchRound {
    pub launches: Vec<RunnerLaunch>,
    /// Runners that have ended. Their commands are not needed any more.
    pub ended: Vec<String>,
    /// When the next round is due.
    pub next: Option<Instant>,
}

/// What this hub knows about launched runners, beside the store.
#[derive(Debug, Clone, Default)]
pub(in crate::ops) struct Launches(Arc<Mutex<Known>>);

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

    /// Describes the launches of a pool.
    fn view(&self, pool: &str, launcher: &Launcher, now: Instant) -> LaunchView {
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

impl Ops {
    /// Describes the launches of a pool. `None`: it has no launcher.
    pub(in crate::ops) fn launch_view(&self, config: &Config, pool: &str) -> Option<LaunchView> {
        let launcher = config
            .pools
            .get(&PoolName::parse(pool).ok()?)?
            .launcher
            .as_ref()?;
        Some(self.launches.view(pool, launcher, Instant::now()))
    }

    /// Adds to why a queued run has not started what the hub does about its missing runner.
    pub(in crate::ops) fn add_launch(&self, config: &Config, view: &mut RunView) {
        let Some(queue) = view.queue.as_mut().filter(|queue| {
            matches!(
                queue.waiting_for,
                Word::Known(QueueReason::NoRunner | QueueReason::Turn)
            )
        }) else {
            return;
        };
        if let Some(launch) = self.launch_view(config, &view.pool) {
            queue.why = format!("{}; {}", queue.why, launch.text());
            queue.next_step = None;
        }
    }

    /// Returns whether a pool launches runners.
    #[must_use]
    pub(crate) fn has_launchers(&self) -> bool {
        self.config_or_builtin()
            .pools
            .values()
            .any(|pool| pool.launcher.is_some())
    }

    /// Returns the names of the launched runners with a valid token.
    ///
    /// # Errors
    /// A failure of the store.
    pub(crate) fn launched_runners(&self) -> Result<BTreeSet<String>, OpError> {
        let names = self
            .store
            .read(tokens)?
            .into_iter()
            .filter(is_of_runner)
            .map(|token| token.name);
        Ok(names.filter(|name| launched_pool(name).is_some()).collect())
    }

    /// Revokes the tokens of launched runners that have ended, and stores those of the runners to
    /// launch now.
    ///
    /// # Errors
    /// A failure of the store.
    pub(crate) async fn launch_round(&self) -> Result<LaunchRound, OpError> {
        let config = self.config_or_builtin();
        let mut round = LaunchRound::default();
        let has_launcher = config.pools.values().any(|pool| pool.launcher.is_some());
        let of_runners: Vec<Token> = self
            .store
            .read(tokens)?
            .into_iter()
            .filter(is_of_runner)
            .collect();
        if !has_launcher
            && of_runners
                .iter()
                .all(|token| launched_pool(&token.name).is_none())
        {
            return Ok(round);
        }
        let hosted = self.store.read(hosted_attempts)?;
        let (ended, revoked) = self.launches.check_launched(
            &config,
            &of_runners,
            &hosted,
            &self.runners,
            &mut round.next,
        );
        round.ended = revoked;
        for token in ended {
            self.store
                .write(move |tx| tx.revoke_token(token.id))
                .await?;
            round.ended.push(token.name);
        }
        // Runners of the hub before join again.
        let settled = self.runners.began() + SETTLE;
        if Instant::now() < settled && of_runners.iter().any(|token| token.used_at.is_some()) {
            note_next(&mut round.next, Some(settled));
            return Ok(round);
        }
        for (pool, entry) in &config.pools {
            let Some(launcher) = &entry.launcher else {
                continue;
            };
            for _ in 0..self.launches_now(&config, pool, launcher, &mut round.next)? {
                let Some(launch) = self.store_launch(pool, launcher).await? else {
                    break;
                };
                note_next(
                    &mut round.next,
                    Some(
                        Instant::now()
                            + Duration::from_millis(
                                u64::try_from(launcher.join_within_ms).unwrap_or(0),
                            ),
                    ),
                );
                round.launches.push(launch);
            }
        }
        Ok(round)
    }

    /// Returns how many runners of a pool to launch now.
    fn launches_now(
        &self,
        config: &Config,
        pool: &PoolName,
        launcher: &Launcher,
        next: &mut Option<Instant>,
    ) -> Result<u64, OpError> {
        let settings = self.pool_settings(config);
        let name = pool.as_str();
        let waiting = self.store.read(|connection| {
            launch_candidates(connection, &settings.in_effect(connection)?, name)
        })?;
        let hosted = self.store.read(hosted_attempts)?;
        let free = self.runners.free_slots(name, |host| {
            hosted.iter().filter(|attempt| attempt.host == host).count() as u64
        });
        let known = self.launches.known();
        let found = known.pools.get(name);
        let (starting, launched) = found.map_or((0, 0), |pool| (pool.starting, pool.launched));
        let launches = Demand {
            waiting,
            free,
            starting,
            launched,
            launched_max: launcher.max,
        }
        .launches();
        match found
            .and_then(|pool| pool.not_before)
            .filter(|at| *at > Instant::now())
        {
            Some(at) if launches > 0 => {
                note_next(next, Some(at));
                Ok(0)
            }
            _ => Ok(launches),
        }
    }

    /// Stores the token of a runner that is to be launched. `None`: there are as many as there may
    /// be.
    async fn store_launch(
        &self,
        pool: &PoolName,
        launcher: &Launcher,
    ) -> Result<Option<RunnerLaunch>, OpError> {
        let (token, identity) = (fresh_token(), TokenIdentity::new(TokenRole::Runner, None)?);
        let (hash, pool, max) = (token_hash(&token), pool.to_string(), launcher.max);
        let of_pool = pool.clone();
        let stored = self
            .store
            .write(move |tx| {
                for n in 1..=max {
                    let name = launched_name(&of_pool, n);
                    if token_by_name(tx.connection(), &name)?.is_none() {
                        tx.add_token(&NewToken {
                            name: name.clone(),
                            hash,
                            identity,
                        })?;
                        return Ok(Some(name));
                    }
                }
                Ok(None)
            })
            .await?;
        let Some(name) = stored else { return Ok(None) };
        let mut known = self.launches.known();
        known.runners.insert(
            name.clone(),
            KnownRunner {
                launched: Some(Instant::now()),
                ..KnownRunner::default()
            },
        );
        let of_pool = known.pools.entry(pool.clone()).or_default();
        of_pool.starting += 1;
        of_pool.launched += 1;
        Ok(Some(RunnerLaunch {
            name,
            pool,
            token,
            launcher: launcher.clone(),
        }))
    }

    /// Records that the command of a launched runner has failed. That matters only if the runner
    /// has not joined.
    pub(crate) fn note_launch_failed(&self, name: &str, problem: String) {
        let mut known = self.launches.known();
        if let Some(runner) = known
            .runners
            .get_mut(name)
            .filter(|runner| !runner.has_joined)
        {
            runner.has_ended = true;
            runner.problem = Some(problem);
        }
        drop(known);
        self.store.wake_ups().notify([&Topic::Queue]);
    }
}

impl Launches {
    /// Checks the launched runners. Returns the tokens of those that have ended, and the names of
    /// those whose tokens were revoked by hand.
    fn check_launched(
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
            lease: Lease::from_ms(u64::try_from(config.runner_lease_ms).unwrap_or(0)),
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

fn is_of_runner(token: &Token) -> bool {
    token.revoked_at.is_none() && token.identity.role() == TokenRole::Runner
}

fn note_next(next: &mut Option<Instant>, at: Option<Instant>) {
    *next = [*next, at].into_iter().flatten().min();
}
