//! The workspace that stays writable inside a fence, as recorded when the run is dispatched.

use crate::git;
use crate::store::FenceState;
use adjutant_core::Fence;
use std::path::Path;

/// Returns the directory that stays writable inside the fence of a run in the user's own files:
/// that of its requester if the run works there, else the repository. It is stored with the run, so
/// that no agent can extend it.
pub(super) fn fence_workspace(
    fence: Fence,
    cwd: &Path,
    requester: Option<&FenceState>,
) -> Option<String> {
    if fence == Fence::None {
        return None;
    }
    let of_requester = requester
        .and_then(|known| known.workspace.as_deref())
        .filter(|top| cwd.starts_with(top));
    let top = of_requester
        .map(Path::new)
        .or_else(|| git::nearest_repository(cwd))
        .unwrap_or(cwd);
    top.to_str().map(ToOwned::to_owned)
}
