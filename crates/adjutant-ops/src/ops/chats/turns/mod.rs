//! Agents that answer in chats. One ordinary run answers a turn: it is queued in the transaction
//! that records it with the turn, and its answer is posted in the transaction that ends the turn.
//! So each turn is answered and posted exactly once, even across restarts.

mod post;
mod start;
mod window;

use crate::ops::OpError;
use crate::ops::chats::turns::post::post_answers;
use crate::ops::chats::turns::start::begin_turns;
use crate::ops::results::Results;
use crate::ops::settings::Settings;
use crate::store::Store;

/// Posts the answers of runs that have ended, and starts the next turns.
///
/// # Errors
/// A failure of the store; completed steps are kept.
pub async fn run_turns(
    store: &Store,
    settings: &Settings,
    results: &Results,
) -> Result<(), OpError> {
    loop {
        // A turn that fails delays no other.
        let (posted, begun) = (
            post_answers(store, settings, results).await,
            begin_turns(store, settings).await,
        );
        if !posted? && !begun? {
            return Ok(());
        }
    }
}
