//! The fence of a run: what was asked for, and what its supervisor found to hold.

use crate::store::{StoreError, Tx};
use adjutant_core::{Fence, RunId};
use rusqlite::params;
use serde::{Deserialize, Serialize};

/// The fence of a run that asked for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceState {
    /// The stable word of a [`Fence`].
    pub asked: String,
    /// What holds for the newest attempt: `mount_namespace` or `none`. `None`: no attempt has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the newest attempt can write, beside temporary files of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
}

impl FenceState {
    /// Returns the state of a run that has not started. `None`: it asks for no fence.
    #[must_use]
    pub fn asked(fence: Fence) -> Option<Self> {
        (fence != Fence::None).then(|| Self { asked: fence.word().to_owned(), enforced: None, why: None, writable: Vec::new() })
    }
}

impl Tx<'_> {
    /// Notes the fence of a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_fence(&mut self, run: RunId, fence: &FenceState) -> Result<(), StoreError> {
        let text = serde_json::to_string(fence).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("UPDATE runs SET fence = ?2 WHERE id = ?1")?.execute(params![run.to_string(), text])?;
        Ok(())
    }
}
