//! `adj undo`: restores a run's tree to an earlier snapshot.

use crate::cli::args::UndoArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::present::{short_commit, snapshot_name};
use crate::text;
use crate::view::{DiffRun, UndoRun, UndoView};

/// Maximum number of files that are printed.
const FILES_SHOWN_MAX: usize = 20;

/// Says that the file system has offered less protection than others.
pub(super) const UNGUARDED: &str = "note: this file system cannot exchange two files, so a save at the moment at which a file was replaced can have been overwritten";

/// Restores a run's tree to one of its snapshots.
pub(crate) async fn undo(args: &UndoArgs, cx: &Context) -> CommandResult {
    let done = cx
        .hub
        .call(&UndoRun {
            run: args.run.clone(),
            to: args.snapshot,
            force: args.force,
        })
        .await?;
    // A file that was not restored is not what the command promises.
    let is_partial = !done.changed_meanwhile.is_empty() || !done.in_use.is_empty();
    let exit = if is_partial || !done.skipped.is_empty() {
        Exit::Conflict
    } else {
        Exit::Done
    };
    if cx.out.json {
        cx.out.print_json(&done)?;
        return Ok(exit);
    }
    UndoReport {
        args,
        cx,
        done: &done,
        name: text::line(&done.run_name),
        is_partial,
    }
    .print()
    .await?;
    Ok(exit)
}

/// What an undo has done, for people.
struct UndoReport<'a> {
    args: &'a UndoArgs,
    cx: &'a Context,
    done: &'a UndoView,
    name: String,
    /// Files that should have been restored were not.
    is_partial: bool,
}

impl UndoReport<'_> {
    async fn print(&self) -> Result<(), Failure> {
        if !self.done.files.is_empty() {
            self.restored()
        } else if self.is_partial {
            self.nothing_restored()
        } else if changed_nothing(self.args, self.cx).await {
            self.nothing_changed()
        } else {
            self.already_restored()
        }
    }

    fn nothing_restored(&self) -> Result<(), Failure> {
        let Self { cx, name, .. } = self;
        cx.out.print_line(&format!(
            "{} {name}: nothing was restored",
            cx.out.paint.apply(Style::Bad, "✗")
        ))?;
        print_left_alone(self.done, cx)?;
        self.suggest_again()
    }

    fn nothing_changed(&self) -> Result<(), Failure> {
        self.cx
            .out
            .print_line(&format!("{} changed nothing", self.name))?;
        print_left_alone(self.done, self.cx)
    }

    fn already_restored(&self) -> Result<(), Failure> {
        let Self { cx, name, done, .. } = self;
        cx.out.print_line(&format!(
            "{name}: what it changed is already at {}",
            snapshot_name(&done.to)
        ))?;
        print_left_alone(done, cx)?;
        cx.out.suggest(&format!(
            "adj show {name}   lists its snapshots; adj undo {name} N restores one of them"
        ))
    }

    fn restored(&self) -> Result<(), Failure> {
        let Self { cx, name, done, .. } = self;
        let count = text::count(done.files.len() as u64, "file", "files");
        let place = if done.repository.is_some() {
            format!(" in its workspace {}", text::line(&done.tree))
        } else {
            String::new()
        };
        let (mark, but) = if self.is_partial {
            (cx.out.paint.apply(Style::Bad, "✗"), ", not all files")
        } else {
            (cx.out.paint.apply(Style::Good, "✓"), "")
        };
        cx.out.print_line(&format!(
            "{mark} {name}: {count} restored to {}{place}{but}",
            snapshot_name(&done.to)
        ))?;
        for file in done.files.iter().take(FILES_SHOWN_MAX) {
            cx.out.print_line(&format!("  {}", text::line(file)))?;
        }
        if done.files.len() > FILES_SHOWN_MAX {
            cx.out.print_line(&format!(
                "  and {} more",
                done.files.len() - FILES_SHOWN_MAX
            ))?;
        }
        print_left_alone(done, cx)?;
        if self.is_partial {
            self.suggest_again()?;
        }
        cx.out
            .suggest(&format!("adj undo {name} {}   undoes this", done.before.n))
    }

    fn suggest_again(&self) -> Result<(), Failure> {
        // What was saved has changed since the run.
        let force = if self.args.force || !self.done.changed_meanwhile.is_empty() {
            " --force"
        } else {
            ""
        };
        self.cx.out.suggest(&format!(
            "adj undo {} {}{force}   restores the files that were left alone",
            self.name, self.done.to.n
        ))
    }
}

/// Returns whether the run's own work is empty. A difference that cannot be read is not known to be
/// empty.
async fn changed_nothing(args: &UndoArgs, cx: &Context) -> bool {
    let own_work = DiffRun {
        run: args.run.clone(),
        stat: true,
        kept: true,
        ..DiffRun::default()
    };
    args.snapshot.is_none()
        && cx
            .hub
            .call(&own_work)
            .await
            .is_ok_and(|diff| diff.text.is_empty())
}

/// Names what was not restored.
fn print_left_alone(done: &UndoView, cx: &Context) -> Result<(), Failure> {
    for other in &done.skipped {
        cx.out.print_message(&format!(
            "note: {} was not restored: it is a nested repository, or a filter (such as Git LFS) produces it and no snapshot has its content",
            text::line(other)
        ))?;
    }
    for file in done.not_removed.iter().take(FILES_SHOWN_MAX) {
        let problem = "was not removed: it existed before that snapshot, or can have existed: the snapshot has no such files (ignored then, or too large)";
        cx.out
            .print_message(&format!("note: {} {problem}", text::line(file)))?;
    }
    if let Some(more) = done
        .not_removed
        .len()
        .checked_sub(FILES_SHOWN_MAX)
        .filter(|more| *more > 0)
    {
        cx.out.print_message(&format!(
            "note: {} were not removed for the same reason",
            text::count(more as u64, "more file", "more files")
        ))?;
    }
    for changed in &done.changed_meanwhile {
        cx.out.print_message(&format!(
            "{}: changed during the undo, and is as you saved it",
            text::line(changed)
        ))?;
    }
    for open in &done.in_use {
        cx.out.print_message(&format!(
            "{}: a program has it open for writing, so it was not restored: close it there",
            text::line(open)
        ))?;
    }
    for kept in &done.kept_beside {
        cx.out.print_message(&format!(
            "{}: an earlier save of a file that was saved twice during the undo",
            text::line(kept)
        ))?;
    }
    if done.is_unguarded {
        cx.out.print_message(UNGUARDED)?;
    }
    if !done.outside.is_empty() {
        let outside = done
            .outside
            .iter()
            .take(FILES_SHOWN_MAX)
            .map(|file| text::line(file))
            .collect::<Vec<_>>()
            .join(", ");
        let more = done.outside.len().saturating_sub(FILES_SHOWN_MAX);
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        cx.out.print_message(&format!(
            "note: outside its directory it also changed {outside}{more}: these were left alone"
        ))?;
    }
    if let Some(before) = &done.head_before {
        let before = text::line(short_commit(before));
        cx.out.print_message(&format!(
            "note: before the run, {before} was checked out; another commit is now, and undo moves no branch: see git reflog"
        ))?;
    }
    if let Some(repository) = done.repository.as_ref().filter(|_| done.is_merged) {
        let repository = text::line(repository);
        cx.out.print_message(&format!(
            "note: changes that adj merge made in {repository} stay there: git revert removes them"
        ))?;
    }
    Ok(())
}
