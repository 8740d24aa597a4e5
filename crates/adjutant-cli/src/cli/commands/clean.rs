//! `adj clean` and `adj rm`: remove finished runs.

use crate::cli::args::{CleanArgs, RmArgs};
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail_hint};
use crate::cli::prompt::ask;
use crate::text;
use crate::view::{Clean, Cleaned, KeptRun};

/// Maximum number of removed runs that are listed.
const NAMES_SHOWN_MAX: usize = 20;

/// Removes finished runs, after asking.
pub(crate) async fn clean(args: &CleanArgs, cx: &Context) -> CommandResult {
    let older_than_s = args.older_than.as_secs();
    let would = cx
        .hub
        .call(&Clean {
            older_than_s,
            runs: Vec::new(),
            dry_run: true,
            force: args.force,
        })
        .await?;
    if args.dry_run || (would.runs.is_empty() && would.caches.is_empty()) {
        return print_cleaned(&would, args.dry_run, cx);
    }
    // Caches that no run uses can be made again.
    let needs_consent = !would.runs.is_empty();
    let count = text::count(would.runs.len() as u64, "finished run", "finished runs");
    if needs_consent && !args.yes {
        if !cx.out.interactive {
            return Err(fail_hint(
                cli_codes::USAGE,
                format!("this removes {count} and all their files"),
                "confirm with --yes, or preview with --dry-run",
            ));
        }
        let answer = ask(&format!("Remove {count} and all their files? [y/N] "))?;
        if !answer.is_some_and(|a| matches!(a.trim(), "y" | "Y" | "yes")) {
            cx.out.print_message("nothing removed")?;
            return Ok(Exit::Done);
        }
    }
    print_cleaned(
        &cx.hub
            .call(&Clean {
                older_than_s,
                runs: Vec::new(),
                dry_run: false,
                force: args.force,
            })
            .await?,
        false,
        cx,
    )
}

/// Removes the named runs. Those that stay determine the exit code.
pub(crate) async fn remove(args: &RmArgs, cx: &Context) -> CommandResult {
    let RmArgs {
        dry_run,
        force,
        runs,
    } = args;
    let cleaned = cx
        .hub
        .call(&Clean {
            older_than_s: 0,
            runs: runs.clone(),
            dry_run: *dry_run,
            force: *force,
        })
        .await?;
    print_cleaned(&cleaned, *dry_run, cx)?;
    if cleaned.kept.is_empty() {
        Ok(Exit::Done)
    } else {
        Err(Failure::Reported(Exit::Conflict))
    }
}

fn print_cleaned(cleaned: &Cleaned, dry_run: bool, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(cleaned)?;
        return Ok(Exit::Done);
    }
    print_kept(cleaned, cx)?;
    if cleaned.runs.is_empty() && cleaned.caches.is_empty() {
        cx.out.print_message("nothing to remove")?;
        return Ok(Exit::Done);
    }
    let removed = if dry_run { "would remove" } else { "removed" };
    if !cleaned.runs.is_empty() {
        cx.out.print_line(&format!(
            "{removed} {}",
            text::count(cleaned.runs.len() as u64, "run", "runs")
        ))?;
    }
    // A preview names every run, so that it can be checked.
    let shown_max = if dry_run { usize::MAX } else { NAMES_SHOWN_MAX };
    for run in cleaned.runs.iter().take(shown_max) {
        cx.out.print_line(&format!("  {}", text::line(run)))?;
    }
    if cleaned.runs.len() > shown_max {
        cx.out.print_line(&format!(
            "  … {} more",
            cleaned.runs.len() - NAMES_SHOWN_MAX
        ))?;
    }
    for caches in cleaned.caches.iter().take(NAMES_SHOWN_MAX) {
        cx.out.print_line(&format!(
            "{removed} the shared caches {}",
            text::line(caches)
        ))?;
    }
    Ok(Exit::Done)
}

/// Prints the runs that stay, with the reason.
fn print_kept(cleaned: &Cleaned, cx: &Context) -> Result<(), Failure> {
    if cleaned.kept.is_empty() {
        return Ok(());
    }
    for KeptRun { run, reason } in cleaned.kept.iter().take(NAMES_SHOWN_MAX) {
        cx.out
            .print_message(&format!("kept {}: {}", text::line(run), text::line(reason)))?;
    }
    if cleaned.kept.len() > NAMES_SHOWN_MAX {
        cx.out.print_message(&format!(
            "kept {} more",
            cleaned.kept.len() - NAMES_SHOWN_MAX
        ))?;
    }
    cx.out
        .suggest("adj merge RUN   or   adj discard RUN   or   add --force")
}
