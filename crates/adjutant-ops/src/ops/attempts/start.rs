//! Claims queued runs for the places that have a free slot, and prepares their launches.

use crate::config::{Config, Home};
use crate::ops::attempt_id::AttemptId;
use crate::ops::attempts::claim::{Claim, ClaimedRun, claim_run};
use crate::ops::attempts::launch::LaunchPlanner;
use crate::ops::attempts::unstarted::record_not_started;
use crate::ops::attempts::{Launch, hash};
use crate::ops::policy_file::PolicyFile;
use crate::ops::pools::HubPools;
use crate::ops::settings::Settings;
use crate::ops::workspaces::Workspaces;
use crate::ops::{OpError, Ops};
use crate::store::{StartTarget, Store};
use std::sync::Arc;

/// Starts queued runs.
#[derive(Debug, Clone)]
pub struct Starter {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    pools: HubPools,
    launches: LaunchPlanner,
}

impl Starter {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
            pools: HubPools::of(ops),
            launches: LaunchPlanner::new(
                ops.store.clone(),
                Arc::clone(&ops.home),
                ops.settings.clone(),
                Workspaces::of(ops),
            ),
        }
    }

    /// Claims the queued run that starts next in a place, if its pool has a free slot. Recorded
    /// when it returns.
    ///
    /// # Errors
    /// A failure of the store or of the configuration.
    pub async fn claim_next(&self, start_place: &StartTarget) -> Result<Option<Launch>, OpError> {
        loop {
            match self
                .claim_each(std::slice::from_ref(start_place))
                .await?
                .pop()
            {
                None => return Ok(None),
                Some((_, Ok(None))) => {}
                Some((_, launch)) => return launch,
            }
        }
    }

    /// Claims one run for each of several places, as far as there are any, in one transaction. A
    /// place may be named several times. Returns for each claimed run the number of its place and
    /// its launch. `None`: it could not be started, which is recorded; another one may.
    ///
    /// # Errors
    /// A failure of the store. The error of one launch is recorded, too.
    pub async fn claim_each(
        &self,
        places: &[StartTarget],
    ) -> Result<Vec<(usize, Result<Option<Launch>, OpError>)>, OpError> {
        let config = self.settings.config_or_builtin();
        let (retention, settings, home) = (
            self.settings.retention(),
            self.pools.configured(&config),
            self.home.clone(),
        );
        let (of_agents, policies) = (Arc::clone(&config), PolicyFile::of(&self.settings));
        // Most wake-ups find nothing that could start. They need no transaction.
        if !self
            .store
            .read(|connection| settings.has_queued_for(connection, places))?
        {
            return Ok(Vec::new());
        }
        let wanted: Vec<(StartTarget, String)> = places
            .iter()
            .map(|place| (place.clone(), crate::hub_client::random_hex::<32>()))
            .collect();
        let claimed = self
            .store
            .write(move |tx| {
                policies.observe(tx)?;
                let is_here = wanted.iter().any(|(place, _)| *place == StartTarget::Here);
                let (pools, mut used) = settings.for_starts(tx.connection(), is_here)?;
                let (mut claimed, mut without) = (Vec::new(), Vec::new());
                let mut wanted = wanted.into_iter().enumerate().peekable();
                while let Some((number, (start_place, token))) = wanted.next() {
                    if without.contains(&start_place) {
                        continue;
                    }
                    let next_place = wanted.peek().map(|(_, (place, _))| place);
                    let claim = Claim {
                        config: &of_agents,
                        home: &home,
                        retention,
                        token_hash: &hash(&token),
                        start_place: &start_place,
                        next_place,
                    };
                    match claim_run(tx, &pools, &mut used, &claim)? {
                        Some(run) => claimed.push((
                            number,
                            run,
                            token,
                            start_place
                                .host()
                                .and_then(|host| u64::try_from(host.lease_ms).ok()),
                        )),
                        None => without.push(start_place),
                    }
                }
                if !claimed.is_empty() {
                    policies.observe(tx)?;
                }
                Ok(claimed)
            })
            .await?;
        let launches = claimed.into_iter().map(|(number, run, token, lease_ms)| {
            let config = Arc::clone(&config);
            async move { (number, self.launch_of(run, &config, token, lease_ms).await) }
        });
        Ok(futures::future::join_all(launches).await)
    }

    /// Returns the launch of a claimed run. `None`: it cannot be launched, which is recorded.
    async fn launch_of(
        &self,
        claimed: ClaimedRun,
        config: &Config,
        token: String,
        lease_ms: Option<u64>,
    ) -> Result<Option<Launch>, OpError> {
        let id = AttemptId {
            run: claimed.run.id,
            n: claimed.run.attempt,
        };
        let launch = self
            .launches
            .prepare(id, claimed, config, token, lease_ms)
            .await;
        if let Err(error) = &launch {
            record_not_started(&self.store, &self.settings, id, error).await;
        }
        launch
    }
}
