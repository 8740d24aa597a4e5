//! The stored credentials of dispatchers: stored for a run's next attempt, and released.

use crate::ops::checks::checked_env;
use crate::ops::profiles::check_again;
use crate::ops::settings::Settings;
use crate::ops::{OpError, lookup, programs};
use crate::store::{KeptCredentials, Store, StoreError, run_input};
use adjutant_core::{Action, Principal};
use std::collections::BTreeMap;

/// Stores the credentials for a run's next attempt, after checking that its agent still
/// supports the run's profile. An unknown run has none; it is refused later.
pub(super) async fn credentials_for(
    store: &Store,
    settings: &Settings,
    who: &Principal,
    action: Action,
    run: &str,
    env: BTreeMap<String, String>,
) -> Result<KeptCredentials, OpError> {
    checked_env(&env)?;
    let agent = store.read(
        |connection| match lookup::run(connection, who, action, run) {
            Ok(run) => Ok(Some(run_input(connection, run.id)?.agent)),
            Err(StoreError::Denied(_)) => Ok(None),
            Err(error) => Err(error),
        },
    )?;
    if let Some(agent) = &agent {
        check_again(&settings.config_or_builtin(), agent)?;
    }
    let own = agent.map_or_else(BTreeMap::new, |agent| programs::stored_env(&agent, env));
    Ok(store.save_credentials(own).await?)
}

/// Releases stored credentials that nothing refers to. The next sweep repeats what fails.
pub(super) async fn resolve_credentials(store: &Store, kept: KeptCredentials) {
    if let Err(error) = store.resolve_credentials(kept).await {
        tracing::warn!(%error, "stored credentials cannot be released yet");
    }
}
