//! `adj diff`: shows a run's changes.

use crate::cli::args::DiffArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::pager;
use crate::cli::style::Style;
use crate::present::snapshot_name;
use crate::text;
use crate::view::{DiffRun, DiffView, IncludedView};

/// Prints the difference between two snapshots of a run.
pub(crate) async fn diff(args: &DiffArgs, cx: &Context) -> CommandResult {
    let (from, to) = args.range.unwrap_or_default();
    let call = DiffRun {
        run: args.run.clone(),
        from,
        to,
        paths: args.paths.clone(),
        stat: args.stat,
        words: args.word_diff,
        kept: false,
    };
    let diff = cx.hub.call(&call).await?;
    if cx.out.json {
        cx.out.print_json(&diff)?;
        return Ok(Exit::Done);
    }
    let painted: String = diff
        .text
        .lines()
        .map(|line| format!("{}\n", paint(&text::block(line), cx)))
        .collect();
    pager::print(&painted, !args.no_pager, &cx.out).await?;
    if diff.is_cut {
        cx.out.print_message(
            "note: the difference is longer than 8 MiB and was cut: name paths after --",
        )?;
    }
    for snapshot in [&diff.from, &diff.to] {
        if !snapshot.left_out.is_empty() {
            let files = snapshot
                .left_out
                .iter()
                .map(|file| text::line(file))
                .collect::<Vec<_>>()
                .join(", ");
            cx.out.print_message(&format!(
                "note: {} does not contain {files}",
                snapshot_name(snapshot)
            ))?;
        }
    }
    print_included(&diff, cx)?;
    let name = text::line(&diff.run_name);
    if !diff.committed_copies.is_empty() {
        let files = diff
            .committed_copies
            .iter()
            .map(|file| text::line(file))
            .collect::<Vec<_>>()
            .join(", ");
        cx.out.print_message(&format!(
            "note: the commits of {name} are kept and merged without files that were copied into its workspace and can be secrets: {files}"
        ))?;
    }
    if diff.text.is_empty() {
        cx.out.print_message(&format!(
            "no changes between {} and {}",
            snapshot_name(&diff.from),
            snapshot_name(&diff.to)
        ))?;
        return Ok(Exit::Done);
    }
    let is_merged = diff.merged == Some(diff.to.n);
    if diff.from.n == 0 && is_merged {
        return Ok(Exit::Done);
    }
    if diff.from.n == 0 {
        cx.out.suggest(&format!(
            "adj merge {name}   merges these changes into your branch"
        ))?;
    } else {
        cx.out.suggest(&format!(
            "adj undo {name} {}   restores {}",
            diff.from.n,
            snapshot_name(&diff.from)
        ))?;
    }
    Ok(Exit::Done)
}

/// Says what the difference contains in addition to the work of the run's own agent, and what is
/// missing.
fn print_included(diff: &DiffView, cx: &Context) -> Result<(), Failure> {
    let IncludedView {
        with_setup,
        with_runs,
        with_edits,
    } = &diff.includes;
    let name = text::line(&diff.run_name);
    if *with_setup {
        cx.out.print_message(
            "note: includes what the setup command changed before the agent started",
        )?;
    }
    for run in with_runs {
        let run = text::line(run);
        cx.out.print_message(&format!("note: includes the work of {run}, which followed it in its workspace: adj diff {run} shows only that"))?;
    }
    if *with_edits {
        let place = if diff.from.n == 0 {
            "in its workspace while no agent worked there"
        } else {
            "between its attempts, by you or others"
        };
        cx.out
            .print_message(&format!("note: includes edits that were made {place}"))?;
    }
    if *with_setup || *with_edits || !with_runs.is_empty() {
        cx.out.print_message(&format!("note: single steps: adj show {name} lists its snapshots, adj diff {name} N..M compares two"))?;
    }
    if let Some(merged) = diff.merged {
        match merged == diff.to.n {
            true => cx.out.print_message("note: all of this is merged already")?,
            false => cx.out.print_message(&format!("note: merged already up to snapshot {merged}: adj diff {name} {merged}.. shows the rest"))?,
        }
    }
    if let Some(owner) = &diff.workspace_of {
        let owner = text::line(owner);
        cx.out.print_message(&format!("note: {name} worked in the workspace of {owner}: adj diff {owner} shows what adj merge {owner} merges"))?;
    }
    if let Some(missing) = &diff.missing {
        let missing = text::line(missing);
        cx.out.print_message(&format!(
            "note: the workspace {missing} is missing: what was done there after {} is not kept",
            snapshot_name(&diff.to)
        ))?;
    }
    Ok(())
}

fn paint(line: &str, cx: &Context) -> String {
    let is_heading = [
        "diff ",
        "index ",
        "--- ",
        "+++ ",
        "new file",
        "deleted file",
    ]
    .iter()
    .any(|start| line.starts_with(start));
    let style = match line.as_bytes().first() {
        _ if is_heading => Style::Strong,
        Some(b'+') => Style::Good,
        Some(b'-') => Style::Bad,
        Some(b'@') => Style::Dim,
        _ => return line.to_owned(),
    };
    cx.out.paint.apply(style, line)
}
