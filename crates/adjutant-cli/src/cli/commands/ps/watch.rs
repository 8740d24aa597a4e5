//! `adj ps --watch`: the list again at each change.

use super::{Listing, read};
use crate::cli::args::PsArgs;
use crate::cli::columns;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail};
use crate::cli::style::Paint;
use crate::cli::waiting::next_change;
use crate::text;
use crate::view::Wait;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

/// Changes within this time are printed together.
const TOGETHER: Duration = Duration::from_millis(60);
/// After a read, the pause is this many times its duration, so that a busy hub is not slowed down.
const PAUSE_FACTOR: u32 = 9;
/// How often ages on a terminal are printed again.
const TICK: Duration = Duration::from_secs(1);
/// Rows of a terminal whose height is unknown.
const ROWS_DEFAULT: usize = 24;

/// Prints the list at each change, until Ctrl-C.
pub(super) async fn watch(args: &PsArgs, cx: &Context) -> CommandResult {
    let taken =
        |kind| signal(kind).map_err(|e| fail(cli_codes::IO, format!("cannot take signals: {e}")));
    let (mut interrupts, mut resizes) = (
        taken(SignalKind::interrupt())?,
        taken(SignalKind::window_change())?,
    );
    let printing = async {
        let mut after = cx.hub.call(&Wait::default()).await?.cursor;
        let mut shown = Shown::default();
        loop {
            let began = Instant::now();
            let listing = read(args, cx).await?;
            shown.print(&listing, cx)?;
            let next_read = Instant::now() + (began.elapsed() * PAUSE_FACTOR).max(TOGETHER);
            let mut changed = Box::pin(next_change(after, cx));
            after = loop {
                tokio::select! {
                    biased;
                    cursor = &mut changed => break cursor?,
                    _ = resizes.recv(), if cx.out.terminal => shown.start_over()?,
                    () = sleep(TICK), if cx.out.terminal => {}
                }
                shown.print(&listing, cx)?;
            };
            sleep_until(next_read).await;
        }
    };
    tokio::select! {
        biased;
        _ = interrupts.recv() => Err(Failure::Reported(Exit::Interrupted)),
        failed = printing => failed,
    }
}

/// What was printed last.
#[derive(Default)]
struct Shown {
    block: Option<String>,
}

impl Shown {
    /// Prints the list if it differs from the last one: on a terminal over it, else below an empty
    /// line.
    fn print(&mut self, listing: &Listing<'_>, cx: &Context) -> Result<(), Failure> {
        if cx.out.json {
            let block = serde_json::to_string(&listing.list)
                .map_err(|e| fail(cli_codes::IO, format!("cannot write JSON: {e}")))?;
            if self.block.replace(block.clone()) != Some(block) {
                listing.print(cx)?;
            }
            return Ok(());
        }
        if cx.out.terminal {
            return self.print_over(listing, cx);
        }
        let block = listing.table(&cx.out) + &listing.messages(&cx.out).join("\n");
        if self.block.as_ref() == Some(&block) {
            return Ok(());
        }
        if self.block.replace(block).is_some() {
            cx.out.print_line("")?;
        }
        listing.print(cx)
    }

    fn print_over(&mut self, listing: &Listing<'_>, cx: &Context) -> Result<(), Failure> {
        let rows = rustix::termios::tcgetwinsize(std::io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_row))
            .filter(|rows| *rows > 0);
        let block = block(
            listing,
            &Out {
                columns: Some(columns()),
                ..cx.out.clone()
            },
            rows.unwrap_or(ROWS_DEFAULT),
        );
        if self.block.as_ref() == Some(&block) {
            return Ok(());
        }
        let before = self
            .block
            .as_ref()
            .map_or(0, |before| before.lines().count());
        let up = if before > 0 {
            format!("\u{1b}[{before}A")
        } else {
            String::new()
        };
        cx.out.print_text(&format!("{up}\r\u{1b}[J{block}"))?;
        self.block = Some(block);
        Ok(())
    }

    /// Clears the screen, because the terminal wraps the lines in its new width.
    fn start_over(&mut self) -> Result<(), Failure> {
        self.block = None;
        use std::io::Write;
        Ok(std::io::stdout().lock().write_all(b"\x1b[H\x1b[2J")?)
    }
}

/// Returns the list as lines that fit on the screen.
fn block(listing: &Listing<'_>, out: &Out, rows: usize) -> String {
    let room = rows.saturating_sub(1).max(1);
    // Colour codes would be cut.
    let plain = Out {
        paint_err: Paint::OFF,
        ..out.clone()
    };
    let width = out.columns.unwrap_or(usize::MAX);
    let messages: Vec<String> = listing
        .messages(&plain)
        .iter()
        .map(|line| text::cut(line, width))
        .collect();
    let table = listing.table(out);
    let lines: Vec<&str> = table.lines().collect();
    let kept = lines.len().min(room.saturating_sub(messages.len()));
    let mut shown: Vec<String> = lines[..kept]
        .iter()
        .map(|line| (*line).to_owned())
        .collect();
    if kept < lines.len()
        && let Some(last) = shown.last_mut()
    {
        *last = text::cut(&format!("… {} more", lines.len() - kept + 1), width);
    }
    shown.extend(messages);
    shown.truncate(room);
    shown
        .iter()
        .fold(String::new(), |block, line| block + line + "\n")
}
