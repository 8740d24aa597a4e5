//! Agents that answer. A turn is answered by one ordinary run: it is queued in the transaction that
//! notes it with the turn, and what came of it is posted in the transaction that ends the turn. So
//! each happens once, however often this is begun anew.

mod post;
mod start;
mod window;

pub use window::UncountedEntry;

use crate::ops::{OpError, Ops};
use crate::store::Tx;

impl Ops {
    /// Posts what the runs that have ended came to, and starts those that are next. Returns what has
    /// to be counted before the others can start.
    ///
    /// # Errors
    /// A failure of the store; what was done so far stays done.
    pub async fn run_turns(&self) -> Result<Vec<UncountedEntry>, OpError> {
        loop {
            // What goes wrong with one turn holds up no other.
            let (posted, begun) = (self.post_answers().await, self.begin_turns().await);
            let (posted, (begun, uncounted)) = (posted?, begun?);
            if !posted && !begun {
                return Ok(uncounted);
            }
        }
    }

    /// Keeps how many tokens entries have.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn note_tokens(&self, counted: Vec<(UncountedEntry, u64)>) -> Result<(), OpError> {
        let note = move |tx: &mut Tx<'_>| counted.iter().try_for_each(|(entry, tokens)| tx.note_tokens(entry.entry, entry.revision, *tokens));
        Ok(self.store.write(note).await?)
    }
}
