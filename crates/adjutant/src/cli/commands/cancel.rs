//! `adj cancel`.

use crate::cli::args::CancelArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::text;
use crate::view::{Cancel, ErrorView, RunView};
use adjutant_core::RunStateKind;

/// Widest run name, id or prefix that is repeated in an error.
const NAME_COLUMNS_MAX: usize = 80;

/// Cancels runs in the order given. The first refusal determines the exit code.
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

/// Adds the run to an error message that does not name it.
fn name_run(run: &str, error: ErrorView) -> ErrorView {
    if run.is_empty() || error.message.contains(run) { error } else { ErrorView { message: format!("{run}: {}", error.message), ..error } }
}
