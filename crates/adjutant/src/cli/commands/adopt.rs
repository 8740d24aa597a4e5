//! `adj adopt`: reassigns runs to another client.

use crate::cli::args::AdoptArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::Adopt;

/// Reassigns runs to another client.
pub async fn adopt(args: &AdoptArgs, cx: &Context) -> CommandResult {
    let moved = cx.hub.call(&Adopt { runs: args.runs.clone(), client: args.client.clone().unwrap_or_default() }).await?;
    if cx.out.json {
        cx.out.print_json_list(&moved.runs, moved.more, &[])?;
        return Ok(Exit::Done);
    }
    for run in &moved.runs {
        cx.out.print_line(&format!(
            "{} {} is now assigned to {}",
            cx.out.paint.apply(Style::Good, "✓"),
            text::line(&run.name),
            text::line(&run.owner)
        ))?;
    }
    Ok(Exit::Done)
}
