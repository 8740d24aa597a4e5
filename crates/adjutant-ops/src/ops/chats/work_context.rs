//! Working directory and environment of answering runs.

use crate::config::Home;
use crate::ops::OpError;
use crate::ops::chats::caller::ChatCaller;
use crate::store::{DispatchEnv, KeptCredentials, Store};
use adjutant_core::Principal;
use std::collections::BTreeMap;
use std::path::Path;

/// The working directory and environment of an answering run.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkContext {
    pub cwd: String,
    pub env: DispatchEnv,
}

/// Returns where a run that answers this would work: for a run's message, in that run's
/// directory. Settle the credentials after the turn is recorded or refused.
pub(super) fn work_context(
    store: &Store,
    home: &Home,
    who: &Principal,
    cwd: &str,
    env: &BTreeMap<String, String>,
) -> Result<(WorkContext, KeptCredentials), OpError> {
    let fallback = || Ok::<_, OpError>(home.dir.display().to_string());
    match who {
        Principal::Run(_) => {
            let run = store
                .read(|connection| ChatCaller::of(connection, who))?
                .run;
            let kept = store.stage_credentials(BTreeMap::new())?;
            Ok((
                WorkContext {
                    cwd: run.map_or_else(fallback, |run| Ok(run.cwd))?,
                    env: kept.env.clone(),
                },
                kept,
            ))
        }
        Principal::Person | Principal::Client(_) => {
            crate::ops::checks::checked_env(env)?;
            let cwd = match who {
                _ if !cwd.is_empty() => crate::ops::checks::checked_cwd(cwd)?,
                Principal::Client(client) if Path::new(client.as_str()).is_dir() => {
                    crate::ops::checks::checked_cwd(client.as_str())?
                }
                _ => fallback()?,
            };
            let kept = store.stage_credentials(env.clone())?;
            Ok((
                WorkContext {
                    cwd,
                    env: kept.env.clone(),
                },
                kept,
            ))
        }
    }
}
