//! `adj top` in a build without the feature `top`.

use crate::cli::context::Context;
use crate::cli::out::{CommandResult, fail_hint};
use crate::view::codes;

/// Refuses the command.
///
/// # Errors
/// Always: this program has no board.
#[expect(clippy::unused_async, reason = "as with the feature")]
pub(crate) async fn top(_: &Context) -> CommandResult {
    Err(fail_hint(
        codes::INVALID,
        "this adj was built without the board in a terminal",
        "install adj with its default features, or open the dashboard: adj ui",
    ))
}
