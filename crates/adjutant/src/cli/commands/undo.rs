//! `adj undo`: restores a run's tree to an earlier snapshot.

use super::diff::named;
use crate::cli::args::UndoArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::UndoRun;

/// Maximum number of files that are printed.
const FILES_SHOWN_MAX: usize = 20;

/// Restores a run's tree to one of its snapshots.
pub async fn undo(args: &UndoArgs, cx: &Context) -> CommandResult {
    let done = cx.hub.call(&UndoRun { run: args.run.clone(), to: args.snapshot }).await?;
    if cx.out.json {
        cx.out.print_json(&done)?;
        return Ok(Exit::Done);
    }
    let name = text::line(&done.run_name);
    if done.files.is_empty() {
        cx.out.print_line(&format!("{name}: the tree is already at {}", named(&done.to)))?;
        return Ok(Exit::Done);
    }
    let count = text::count(done.files.len() as u64, "file", "files");
    cx.out.print_line(&format!("{} {name}: {count} restored to {}", cx.out.paint.apply(Style::Good, "✓"), named(&done.to)))?;
    for file in done.files.iter().take(FILES_SHOWN_MAX) {
        cx.out.print_line(&format!("  {}", text::line(file)))?;
    }
    if done.files.len() > FILES_SHOWN_MAX {
        cx.out.print_line(&format!("  and {} more", done.files.len() - FILES_SHOWN_MAX))?;
    }
    for other in &done.skipped {
        cx.out.print_message(&format!("note: {} was not restored (a nested repository, or a file that a filter produces)", text::line(other)))?;
    }
    for changed in &done.changed_meanwhile {
        cx.out.print_message(&format!("note: {} changed meanwhile and was not restored: repeat the command to restore it", text::line(changed)))?;
    }
    cx.out.suggest(&format!("adj undo {name} {}   undoes this", done.before.n))?;
    Ok(Exit::Done)
}
