//! Recording the fence of a run.

use crate::store::db::params;
use crate::store::records::run::FenceState;
use crate::store::{StoreError, Tx};
use adjutant_core::RunId;

impl Tx<'_> {
    /// Records the fence of a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_fence(&mut self, run: RunId, fence: &FenceState) -> Result<(), StoreError> {
        let text =
            serde_json::to_string(fence).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("UPDATE runs SET fence = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), text])?;
        Ok(())
    }
}
