//! Showing long output in the user's pager.

use super::argv;
use super::out::{Failure, Out};
use crate::config::text_variable;
use crate::process::foreground;
use crate::text;

/// The pager if none is set: it ends by itself when the text fits on the screen.
const DEFAULT: &str = "less -FRX";
/// The variables that name a pager; the first one that is set counts.
const VARIABLES: [&str; 3] = ["ADJ_PAGER", "GIT_PAGER", "PAGER"];

/// Returns the height of the terminal.
pub(super) fn rows() -> Option<usize> {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_row))
        .filter(|rows| *rows > 0)
}

/// Prints text: through the pager on a terminal, directly elsewhere or if the pager cannot be
/// started.
pub(super) async fn print(text: &str, is_wanted: bool, out: &Out) -> Result<(), Failure> {
    if is_wanted && out.terminal && !text.is_empty() {
        let named = VARIABLES
            .iter()
            .find_map(|name| text_variable(name))
            .unwrap_or_else(|| DEFAULT.to_owned());
        let words = argv::split(&named).unwrap_or_default();
        match words.split_first() {
            // As for git, cat means none.
            Some((program, _)) if program == "cat" => {}
            Some((program, args)) => {
                match foreground::attached_with_input(program, args, text.as_bytes()).await {
                    Ok(()) => return Ok(()),
                    Err(error) => out.print_message(&format!(
                        "note: the pager {} cannot be started: {error}",
                        text::line(program)
                    ))?,
                }
            }
            None => out.print_message(&format!(
                "note: the pager command {} is not valid",
                text::line(&named)
            ))?,
        }
    }
    out.print_data(text)
}
