//! `adj cancel`.

use crate::cli::args::CancelArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::text;
use crate::view::{Cancel, ErrorView, RunView};
use adjutant_core::RunStateKind;

/// Columns of a run's name, id or prefix as it was given, where it is repeated.
const NAME_COLUMNS_MAX: usize = 80;

/// Ends runs. Each is tried, in the order given; the first refusal is the command's failure.
pub async fn cancel(args: &CancelArgs, cx: &Context) -> CommandResult {
    let mut ended: Vec<RunView> = Vec::new();
    let mut refused: Vec<(String, ErrorView)> = Vec::new();
    for run in &args.runs {
        match cx.hub.call(&Cancel { run: run.clone(), reason: args.reason.clone() }).await {
            Ok(run) => {
                if !cx.out.json {
                    let word = if run.state == RunStateKind::Finished { "cancelled" } else { "cancelling" };
                    cx.out.print_line(&format!("{} {word} {}", cx.out.paint.apply(Style::Good, "✓"), text::line(&run.name)))?;
                }
                ended.push(run);
            }
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
    let Some((_, first)) = refused.first() else { return Ok(Exit::Done) };
    let exit = Exit::of(&first.code);
    match (cx.out.json, args.runs.len()) {
        (true, 1) => cx.out.print_error(first)?,
        (true, _) => cx.out.print_errors(&refused)?,
        (false, _) => {}
    }
    Err(Failure::Reported(exit))
}

/// Puts the run before what is said about it, where that does not name it.
fn name_run(run: &str, error: ErrorView) -> ErrorView {
    if run.is_empty() || error.message.contains(run) { error } else { ErrorView { message: format!("{run}: {}", error.message), ..error } }
}
