//! Attempts as the hub drives them: claiming, launching, applying facts, sending orders.

mod budget;
mod claim;
mod end;
mod evidence;
mod facts;
mod fallback;
mod final_report;
mod gate;
mod launch;
mod orders;
mod recovery;
mod reservations;
mod resumption;
mod signals;
mod start;
mod started;
mod unreadable;
mod unstarted;

use crate::ops::OpError;
use crate::ops::attempt_id::AttemptId;
use crate::protocol::{AttemptDir, Order};
use crate::store::{
    AttemptRow, Run, Store, StoreError, Tx, attempt_row, hosted_attempts, live_runs, run_by_id,
};
pub(crate) use budget::Gates;
pub use evidence::closing_of;
pub use facts::apply_facts;
pub use orders::await_orders;
pub use recovery::knows_attempt;
pub use recovery::recover_attempt;
pub(in crate::ops) use recovery::{Loss, end_lost_attempt, lose_with_runners};
use sha2::{Digest, Sha256};
pub use start::Starter;
pub use unstarted::not_spawned;
pub(in crate::ops) use unstarted::record_not_started;
pub use unstarted::refused_as_too_old;

/// A run fails after this many attempts that never started: far more than crashed hubs can explain.
const FRUITLESS_ATTEMPTS_MAX: u32 = 20;

/// A recorded attempt that is ready to launch.
#[derive(Debug)]
pub struct Launch {
    pub id: AttemptId,
    pub dir: AttemptDir,
    pub order: Order,
}

pub(in crate::ops) fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Returns whether `token` is the one that an attempt's supervisor was given. Comparing hashes
/// leaks nothing about it through timing.
pub(in crate::ops) fn is_token_of(row: &AttemptRow, token: &str) -> bool {
    row.token_hash == hash(token)
}

/// Returns whether `token` is the one that an attempt's supervisor was given.
///
/// # Errors
/// A failure of the store.
pub fn is_supervisor_of(store: &Store, id: AttemptId, token: &str) -> Result<bool, OpError> {
    let row = store.read(|connection| attempt_row(connection, id.run, id.n))?;
    Ok(row.is_some_and(|row| is_token_of(&row, token)))
}

/// Lists the attempts on the hub's own machine that may be alive.
///
/// # Errors
/// A failure of the store.
pub fn live_attempts(store: &Store) -> Result<Vec<AttemptId>, OpError> {
    let (live, hosted) = store.read(|connection| {
        Ok::<_, StoreError>((live_runs(connection)?, hosted_attempts(connection)?))
    })?;
    let is_here = |run: &Run| hosted.iter().all(|hosted| hosted.run != run.id);
    Ok(live
        .into_iter()
        .filter(is_here)
        .map(|run| AttemptId {
            run: run.id,
            n: run.attempt,
        })
        .collect())
}

/// Runs `work` on the run of an attempt if the attempt is still the newest one and live.
async fn current(
    store: &Store,
    id: AttemptId,
    work: impl FnOnce(&mut Tx<'_>, &Run) -> Result<(), StoreError> + Send + 'static,
) -> Result<(), OpError> {
    Ok(store
        .write(move |tx| {
            let Some(run) = run_by_id(tx.connection(), id.run)? else {
                return Ok(());
            };
            if run.attempt == id.n && run.state.is_live() {
                work(tx, &run)
            } else {
                Ok(())
            }
        })
        .await?)
}
