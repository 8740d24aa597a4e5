//! `adj adopt`: reassigns runs to another client.

use crate::cli::args::AdoptArgs;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, fail_hint};
use crate::cli::style::Style;
use crate::text;
use crate::view::Adopt;

/// Reassigns runs to another client.
pub(crate) async fn adopt(args: &AdoptArgs, cx: &Context) -> CommandResult {
    if args
        .client
        .as_ref()
        .is_some_and(|client| client.trim().is_empty())
    {
        return Err(fail_hint(
            cli_codes::USAGE,
            "--client is empty",
            "name a client, or omit --client to take over the runs yourself",
        ));
    }
    let moved = cx
        .hub
        .call(&Adopt {
            runs: args.runs.clone(),
            client: args.client.clone().unwrap_or_default(),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json_list(&moved.runs, moved.more, &[])?;
        return Ok(Exit::Done);
    }
    for run in &moved.runs {
        cx.out.print_line(&format!(
            "{} {} is now assigned to {}",
            cx.out.paint.apply(Style::Good, "✓"),
            text::line(&run.identity.name),
            text::line(&run.identity.owner)
        ))?;
    }
    Ok(Exit::Done)
}
