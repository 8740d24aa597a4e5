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
use crate::ops::pools::HubPools;
use crate::ops::runner_launches::{Launches, PoolLaunches, is_of_runner, note_next};
use crate::ops::runner_sessions::Sessions;
use crate::ops::settings::Settings;
use crate::ops::{OpError, Ops, fresh_token, token_hash};
use crate::store::{
    NewToken, Store, Token, Topic, hosted_attempts, launch_candidates, token_by_name, tokens,
};
use adjutant_core::PoolName;
use adjutant_core::launch::{Demand, launched_name, launched_pool};
use adjutant_core::token::{TokenIdentity, TokenRole};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// How long a hub that starts waits for the runners of its predecessor, which try to join every
/// five seconds.
const SETTLE: Duration = Duration::from_secs(7);

/// A runner to launch. Its token is stored.
#[derive(Debug)]
pub struct RunnerLaunch {
    /// Its name, which is that of the token.
    pub name: String,
    pub pool: String,
    pub token: String,
    pub launcher: Launcher,
}

impl RunnerLaunch {
    #[must_use]
    pub fn values<'a>(&'a self, url: &'a str) -> LaunchValues<'a> {
        LaunchValues {
            name: &self.name,
            pool: &self.pool,
            url,
        }
    }
}

/// What to do about launched runners.
#[derive(Debug, Default)]
pub struct LaunchRound {
    pub launches: Vec<RunnerLaunch>,
    /// Runners that have ended. Their commands are not needed any more.
    pub ended: Vec<String>,
    /// When the next round is due.
    pub next: Option<Instant>,
}

/// Launches runners, one round after the other.
#[derive(Debug, Clone)]
pub struct LaunchRounds {
    store: Store,
    settings: Settings,
    pools: HubPools,
    sessions: Sessions,
    launches: Launches,
}

impl LaunchRounds {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
            pools: HubPools::of(ops),
            sessions: ops.sessions.clone(),
            launches: ops.launches.clone(),
        }
    }

    /// Returns the names of the launched runners with a valid token.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn launched_runners(&self) -> Result<BTreeSet<String>, OpError> {
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
    pub async fn round(&self) -> Result<LaunchRound, OpError> {
        let config = self.settings.config_or_builtin();
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
            &self.sessions,
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
        let settled = self.sessions.began() + SETTLE;
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
        let settings = self.pools.configured(config);
        let name = pool.as_str();
        let waiting = self.store.read(|connection| {
            launch_candidates(connection, &settings.in_effect(connection)?, name)
        })?;
        let hosted = self.store.read(hosted_attempts)?;
        let free = self.sessions.free_slots(name, |host| {
            hosted.iter().filter(|attempt| attempt.host == host).count() as u64
        });
        let PoolLaunches {
            starting,
            launched,
            not_before,
        } = self.launches.of_pool(name);
        let launches = Demand {
            waiting,
            free,
            starting,
            launched,
            launched_max: launcher.max,
        }
        .launches();
        match not_before.filter(|at| *at > Instant::now()) {
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
        self.launches.note_launched(&name, &pool);
        Ok(Some(RunnerLaunch {
            name,
            pool,
            token,
            launcher: launcher.clone(),
        }))
    }

    /// Records that the command of a launched runner has failed. That matters only if the runner
    /// has not joined.
    pub fn note_failed(&self, name: &str, problem: String) {
        self.launches.note_failed(name, problem);
        self.store.wake_ups().notify([&Topic::Queue]);
    }
}
