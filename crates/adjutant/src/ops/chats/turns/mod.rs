//! Agents that answer. A turn is answered by one ordinary run: it is queued in the transaction that
//! notes it with the turn, and what came of it is posted in the transaction that ends the turn. So
//! each happens once, however often this is begun anew.

mod post;
mod start;
mod window;

use crate::ops::{OpError, Ops};

impl Ops {
    /// Posts the answers of runs that have ended, and starts the next turns.
    ///
    /// # Errors
    /// A failure of the store; completed steps are kept.
    pub async fn run_turns(&self) -> Result<(), OpError> {
        loop {
            // A turn that fails delays no other.
            let (posted, begun) = (self.post_answers().await, self.begin_turns().await);
            if !posted? && !begun? {
                return Ok(());
            }
        }
    }
}
