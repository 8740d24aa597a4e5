//! `adj undo`: restores a run's tree to an earlier snapshot.

use super::diff::named;
use crate::cli::args::UndoArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::text;
use crate::view::{UndoRun, UndoView};

/// The number of characters of a commit id that are shown.
const COMMIT_CHARS: usize = 12;
/// Maximum number of files that are printed.
const FILES_SHOWN_MAX: usize = 20;

/// Restores a run's tree to one of its snapshots.
pub async fn undo(args: &UndoArgs, cx: &Context) -> CommandResult {
    let done = cx.hub.call(&UndoRun { run: args.run.clone(), to: args.snapshot, force: args.force }).await?;
    if cx.out.json {
        cx.out.print_json(&done)?;
        return Ok(Exit::Done);
    }
    let name = text::line(&done.run_name);
    if done.files.is_empty() {
        cx.out.print_line(&format!("{name}: what it changed is already at {}", named(&done.to)))?;
        print_left_alone(&done, cx)?;
        cx.out.suggest(&format!("adj show {name}   lists its snapshots; adj undo {name} N restores one of them"))?;
        return Ok(Exit::Done);
    }
    let count = text::count(done.files.len() as u64, "file", "files");
    let place = if done.repository.is_some() { format!(" in its workspace {}", text::line(&done.tree)) } else { String::new() };
    cx.out.print_line(&format!("{} {name}: {count} restored to {}{place}", cx.out.paint.apply(Style::Good, "✓"), named(&done.to)))?;
    for file in done.files.iter().take(FILES_SHOWN_MAX) {
        cx.out.print_line(&format!("  {}", text::line(file)))?;
    }
    if done.files.len() > FILES_SHOWN_MAX {
        cx.out.print_line(&format!("  and {} more", done.files.len() - FILES_SHOWN_MAX))?;
    }
    print_left_alone(&done, cx)?;
    cx.out.suggest(&format!("adj undo {name} {}   undoes this", done.before.n))?;
    Ok(Exit::Done)
}

/// Names what was not restored.
fn print_left_alone(done: &UndoView, cx: &Context) -> Result<(), Failure> {
    for other in &done.skipped {
        cx.out.print_message(&format!("note: {} was not restored (a nested repository, or a file that a filter produces)", text::line(other)))?;
    }
    for file in done.not_removed.iter().take(FILES_SHOWN_MAX) {
        let problem =
            "was not removed: it existed before that snapshot, or can have existed: the snapshot has no such files (ignored then, or too large)";
        cx.out.print_message(&format!("note: {} {problem}", text::line(file)))?;
    }
    if let Some(more) = done.not_removed.len().checked_sub(FILES_SHOWN_MAX).filter(|more| *more > 0) {
        cx.out.print_message(&format!("note: {} were not removed for the same reason", text::count(more as u64, "more file", "more files")))?;
    }
    for changed in &done.changed_meanwhile {
        cx.out.print_message(&format!("note: {} changed meanwhile and was not restored: repeat the command to restore it", text::line(changed)))?;
    }
    if !done.outside.is_empty() {
        let outside = done.outside.iter().take(FILES_SHOWN_MAX).map(|file| text::line(file)).collect::<Vec<_>>().join(", ");
        let more = done.outside.len().saturating_sub(FILES_SHOWN_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        cx.out.print_message(&format!("note: outside its directory it also changed {outside}{more}: these were left alone"))?;
    }
    if let Some(before) = &done.head_before {
        let before = text::line(before.get(..COMMIT_CHARS).unwrap_or(before));
        cx.out.print_message(&format!(
            "note: before the run, {before} was checked out; another commit is now, and undo moves no branch: see git reflog"
        ))?;
    }
    if let Some(repository) = done.repository.as_ref().filter(|_| done.is_merged) {
        let repository = text::line(repository);
        cx.out.print_message(&format!("note: changes that adj merge made in {repository} stay there: git revert removes them"))?;
    }
    Ok(())
}
