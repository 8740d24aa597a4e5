//! `adj diff`: shows a run's changes.

use crate::cli::args::DiffArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::pager;
use crate::cli::style::Style;
use crate::text;
use crate::view::{DiffRun, SnapshotView};

/// Prints the difference between two snapshots of a run.
pub async fn diff(args: &DiffArgs, cx: &Context) -> CommandResult {
    let (from, to) = args.range.unwrap_or_default();
    let call = DiffRun { run: args.run.clone(), from, to, paths: args.paths.clone(), stat: args.stat, words: args.word_diff };
    let diff = cx.hub.call(&call).await?;
    if cx.out.json {
        cx.out.print_json(&diff)?;
        return Ok(Exit::Done);
    }
    let painted: String = diff.text.lines().map(|line| format!("{}\n", paint(&text::block(line), cx))).collect();
    pager::print(&painted, !args.no_pager, cx).await?;
    if diff.is_cut {
        cx.out.print_message("note: the difference is longer than 8 MiB and was cut: name paths after --")?;
    }
    for snapshot in [&diff.from, &diff.to] {
        if !snapshot.left_out.is_empty() {
            let files = snapshot.left_out.iter().map(|file| text::line(file)).collect::<Vec<_>>().join(", ");
            cx.out.print_message(&format!("note: {} does not have {files}", named(snapshot)))?;
        }
    }
    if !diff.committed_copies.is_empty() {
        let files = diff.committed_copies.iter().map(|file| text::line(file)).collect::<Vec<_>>().join(", ");
        let name = text::line(&diff.run_name);
        cx.out.print_message(&format!(
            "warning: commits of {name} have {files}, which its workspace was only given and which can be secrets: \
             merge its files only, with adj merge {name} --squash"
        ))?;
    }
    if diff.text.is_empty() {
        cx.out.print_message(&format!("no changes between {} and {}", named(&diff.from), named(&diff.to)))?;
        return Ok(Exit::Done);
    }
    let name = text::line(&diff.run_name);
    cx.out.suggest(&format!("adj undo {name} {}   restores {}", diff.from.n, named(&diff.from)))?;
    Ok(Exit::Done)
}

/// Names a snapshot in a sentence.
pub fn named(snapshot: &SnapshotView) -> String {
    let cause = snapshot.cause.as_ref().and_then(|cause| cause.known()).map(|cause| format!(" ({})", cause.label()));
    format!("snapshot {}{}", snapshot.n, cause.unwrap_or_default())
}

fn paint(line: &str, cx: &Context) -> String {
    let is_heading = ["diff ", "index ", "--- ", "+++ ", "new file", "deleted file"].iter().any(|start| line.starts_with(start));
    let style = match line.as_bytes().first() {
        _ if is_heading => Style::Strong,
        Some(b'+') => Style::Good,
        Some(b'-') => Style::Bad,
        Some(b'@') => Style::Dim,
        _ => return line.to_owned(),
    };
    cx.out.paint.apply(style, line)
}
