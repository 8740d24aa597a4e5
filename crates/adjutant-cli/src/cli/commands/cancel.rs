//! `adj cancel`.

use crate::cli::args::CancelArgs;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail_hint};
use crate::cli::prompt::ask;
use crate::cli::style::Style;
use crate::text;
use crate::view::{Cancel, ErrorView, ListRuns, RunView, codes};
use adjutant_core::RunStateKind;
use std::collections::HashSet;

/// Widest run name, id or prefix that is repeated in an error.
const NAME_COLUMNS_MAX: usize = 80;
/// Maximum number of runs that the question names.
const NAMES_SHOWN_MAX: usize = 10;
/// Number of runs that one call lists.
const PAGE_RUNS: u32 = 1_000;

/// Cancels runs in the order given. The first refusal determines the exit code.
pub(crate) async fn cancel(args: &CancelArgs, cx: &Context) -> CommandResult {
    let mut ended: Vec<RunView> = Vec::new();
    let mut refused: Vec<(String, ErrorView)> = Vec::new();
    let runs = if args.all {
        confirmed_live(args, cx).await?
    } else {
        args.runs.clone()
    };
    if runs.is_empty() && !cx.out.json {
        cx.out.print_message("nothing cancelled")?;
    }
    for run in &runs {
        match cx
            .hub
            .call(&Cancel {
                run: run.clone(),
                reason: args.reason.clone(),
            })
            .await
        {
            Ok(run) => {
                if !cx.out.json {
                    let word = if run.condition.state == RunStateKind::Finished {
                        "cancelled"
                    } else {
                        "cancelling"
                    };
                    cx.out.print_line(&format!(
                        "{} {word} {}",
                        cx.out.paint.apply(Style::Good, "✓"),
                        text::line(&run.identity.name)
                    ))?;
                }
                if cx.out.json {
                    ended.push(run);
                }
            }
            // It was listed before it ended.
            Err(error) if args.all && error.code == codes::RUN_FINISHED => {}
            Err(error) => {
                let run = text::cut(run, NAME_COLUMNS_MAX);
                let error = name_run(&run, error);
                if !cx.out.json {
                    cx.out.print_error(&error)?;
                }
                refused.push((run, error));
            }
        }
    }
    if cx.out.json && (refused.is_empty() || !ended.is_empty()) {
        cx.out.print_json_list(&ended, 0, &[])?;
    }
    let Some((_, first)) = refused.first() else {
        return Ok(Exit::Done);
    };
    let exit = Exit::of(&first.code);
    match (cx.out.json, runs.len()) {
        (true, 1) => cx.out.print_error(first)?,
        (true, _) => cx.out.print_errors(&refused)?,
        (false, _) => {}
    }
    Err(Failure::Reported(exit))
}

/// A run that has not ended.
struct Unfinished {
    id: String,
    name: String,
    parent: Option<String>,
}

/// Returns the ids of all runs that have not ended and that no other one cancels with itself, after
/// asking. Empty: there are none, or the answer was no.
async fn confirmed_live(args: &CancelArgs, cx: &Context) -> Result<Vec<String>, Failure> {
    let live = all_unfinished(cx).await?;
    if live.is_empty() || args.yes {
        return Ok(roots(&live));
    }
    let names = live
        .iter()
        .take(NAMES_SHOWN_MAX)
        .map(|run| text::line(&run.name))
        .collect::<Vec<_>>()
        .join(", ");
    let more = live.len().saturating_sub(NAMES_SHOWN_MAX);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    let count = text::count(live.len() as u64, "run", "runs");
    if !cx.out.interactive {
        return Err(fail_hint(
            cli_codes::USAGE,
            format!("this cancels {count}: {names}{more}"),
            "confirm with --yes",
        ));
    }
    let answer = ask(&format!("Cancel {count} ({names}{more})? [y/N] "))?;
    Ok(
        if answer.is_some_and(|a| matches!(a.trim(), "y" | "Y" | "yes")) {
            roots(&live)
        } else {
            Vec::new()
        },
    )
}

/// Lists all runs that have not ended, newest first: queued ones do not start because older ones
/// end.
async fn all_unfinished(cx: &Context) -> Result<Vec<Unfinished>, Failure> {
    let mut all: Vec<Unfinished> = Vec::new();
    loop {
        let before = all.last().map_or_else(String::new, |run| run.id.clone());
        let page = cx
            .hub
            .call(&ListRuns {
                all: false,
                limit: Some(PAGE_RUNS),
                before: Some(before),
            })
            .await?;
        let is_last = page.more == 0;
        all.extend(page.runs.into_iter().map(|run| Unfinished {
            id: run.identity.run_id,
            name: run.identity.name,
            parent: run.identity.parent,
        }));
        if is_last {
            return Ok(all);
        }
    }
}

/// Returns the ids of the runs whose parents are not among them: cancelling a run cancels those
/// below it.
fn roots(live: &[Unfinished]) -> Vec<String> {
    let ids: HashSet<&str> = live.iter().map(|run| run.id.as_str()).collect();
    let is_below = |run: &&Unfinished| {
        run.parent
            .as_deref()
            .is_some_and(|parent| ids.contains(parent))
    };
    live.iter()
        .filter(|run| !is_below(run))
        .map(|run| run.id.clone())
        .collect()
}

/// Adds the run to an error message that does not name it.
fn name_run(run: &str, error: ErrorView) -> ErrorView {
    if run.is_empty() || error.message.contains(run) {
        error
    } else {
        ErrorView {
            message: format!("{run}: {}", error.message),
            ..error
        }
    }
}
