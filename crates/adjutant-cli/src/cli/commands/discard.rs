//! `adj discard`: removes a run's workspace.

use crate::cli::args::DiscardArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::text;
use crate::view::{DiscardRun, GetRun};
use adjutant_core::WorkspaceState;

/// Removes the workspace of a run, after a snapshot.
pub(crate) async fn discard(args: &DiscardArgs, cx: &Context) -> CommandResult {
    let before = cx
        .hub
        .call(&GetRun {
            run: args.run.clone(),
            ..GetRun::default()
        })
        .await?;
    let is_merged = before
        .place
        .workspace
        .is_some_and(|workspace| workspace.state == WorkspaceState::Merged);
    let done = cx
        .hub
        .call(&DiscardRun {
            run: args.run.clone(),
            force: args.force,
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&done)?;
        return Ok(Exit::Done);
    }
    let name = text::line(&done.run_name);
    if done.was_discarded {
        cx.out
            .print_line(&format!("{name}: its workspace is already removed"))?;
        return Ok(Exit::Done);
    }
    let kept = done
        .kept
        .as_ref()
        .map(|kept| format!("; its files are kept as snapshot {}", kept.n))
        .unwrap_or_default();
    cx.out.print_line(&format!(
        "{} {name}: workspace removed{kept}",
        cx.out.paint.apply(Style::Good, "✓")
    ))?;
    if is_merged {
        return Ok(Exit::Done);
    }
    cx.out.suggest(&format!(
        "adj merge {name} --branch NAME   makes a branch of its changes"
    ))?;
    Ok(Exit::Done)
}
