//! Agents that answer in chats. One ordinary run answers a turn: it is queued in the transaction
//! that records it with the turn, and its answer is posted in the transaction that ends the turn.
//! So each turn is answered and posted exactly once, even across restarts.

mod post;
mod start;
mod window;

use crate::ops::{OpError, Ops};

impl Ops {
    /// Posts the answers of runs that have ended, and starts the next turns.
    ///
    /// # Errors
    /// A failure of the store; completed steps are kept.
    pub(crate) async fn run_turns(&self) -> Result<(), OpError> {
        loop {
            // A turn that fails delays no other.
            let (posted, begun) = (self.post_answers().await, self.begin_turns().await);
            if !posted? && !begun? {
                return Ok(());
            }
        }
    }
}
