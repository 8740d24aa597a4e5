//! The fence of a run, as it is stored: the requested one, and what its supervisor found to be
//! enforced.

use adjutant_core::Fence;
use serde::{Deserialize, Serialize};

/// The fence of a run that asked for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceState {
    /// The stable word of a [`Fence`].
    pub asked: String,
    /// The workspace of a run in the user's own files, as it was found at the dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// What is enforced for the newest attempt: `mount_namespace`, `landlock` or `none`. `None`: no
    /// attempt has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<String>,
    /// What it does not enforce of a whole fence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Why no fence or a lesser one is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The directories that the newest attempt can write to, in addition to its own temporary
    /// files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
    /// The denied writes that the output of the newest attempt reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<DeniedWritesRow>,
}

/// Denied writes, as the output reports them: how many, and the last line that does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedWritesRow {
    pub times: u64,
    pub line: String,
    /// The event of which the parent was notified, and how many there were then.
    pub notified_seq: i64,
    pub notified_times: u64,
}

impl FenceState {
    /// Returns the state of a run that has not started. `None`: it requests no fence.
    #[must_use]
    pub fn asked(fence: Fence, workspace: Option<&str>) -> Option<Self> {
        (fence != Fence::None).then(|| Self {
            asked: fence.word().to_owned(),
            workspace: workspace.map(ToOwned::to_owned),
            enforced: None,
            gaps: Vec::new(),
            why: None,
            writable: Vec::new(),
            denied: None,
        })
    }
}
