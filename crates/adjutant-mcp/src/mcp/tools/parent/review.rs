//! Showing a run's changes.

use crate::mcp::caller::McpCaller;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::Shown;
use crate::mcp::text::{barred_whole, line};
use crate::view::{DiffRun, DiffView, IncludedView};
use adjutant_core::shorten;
use serde::Deserialize;
use serde_json::json;

/// Maximum size of a page of a difference, in bytes.
const PAGE_BYTES_MAX: usize = 12_000;

/// The arguments of `review_changes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ReviewChangesArgs {
    run_id: String,
    action: ReviewAction,
    path: Option<String>,
    page: Option<u64>,
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReviewAction {
    Stat,
    Diff,
}

pub(in crate::mcp) async fn review_changes(
    session: &McpSession,
    _caller: &McpCaller,
    args: ReviewChangesArgs,
) -> ToolResult {
    let ReviewChangesArgs {
        run_id,
        action,
        path,
        page,
    } = args;
    diff(session, run_id, action == ReviewAction::Stat, path, page).await
}

async fn diff(
    session: &McpSession,
    run: String,
    stat: bool,
    path: Option<String>,
    page: Option<u64>,
) -> ToolResult {
    let call = DiffRun {
        run,
        stat,
        paths: path.iter().cloned().collect(),
        ..DiffRun::default()
    };
    let diff = session.client().call(&call).await?;
    let pages = pages(&diff.text);
    let page = page.unwrap_or(1).max(1);
    let Some(text) = usize::try_from(page - 1).ok().and_then(|n| pages.get(n)) else {
        return Err(ToolRefusal::invalid(
            format!("there are {} pages", pages.len()),
            "ask for one of them",
        ));
    };
    let path = path
        .map(|path| format!(" path={}", line(&path, 400)))
        .unwrap_or_default();
    let (name, is_last) = (line(&diff.run_name, 60), page as usize == pages.len());
    let shown = Shown::new(json!({
        "run_id": diff.run_id,
        "name": diff.run_name,
        "text": text,
        "page": page,
        "pages": pages.len(),
    }))
    .line(match diff.from.n {
        0 => format!("what a merge of {name} brings, as of snapshot {}, page {page} of {}", diff.to.n, pages.len()),
        from => format!("changes of {name} between snapshots {from} and {}, page {page} of {}", diff.to.n, pages.len()),
    })
    .lines(included_lines(&diff))
    .lines(diff.text.is_empty().then(|| "nothing has changed".to_owned()))
    .lines((is_last && !diff.to.left_out.is_empty()).then(|| {
        let files = diff.to.left_out.iter().map(|file| line(file, 200)).collect::<Vec<_>>().join(", ");
        format!("not in the snapshot: {files}")
    }))
    .lines(
        (!diff.merge_order.is_empty())
            .then(|| format!("it conflicts with a sibling; merge in the order {}", line(&diff.merge_order.join(", "), 600))),
    )
    .lines((!diff.committed_copies.is_empty()).then(|| {
        let files = diff.committed_copies.iter().map(|file| line(file, 200)).collect::<Vec<_>>().join(", ");
        format!("its commits are kept and merged without files that were copied into its workspace and can be secrets: {files}")
    }))
    .lines((diff.is_cut && is_last).then(|| "the rest is too long: pass path".to_owned()))
    .quotation(barred_whole(text));
    reply(shown.next(match is_last {
        false => format!("review_changes run_id={name} action={}{path} page={} for more", if stat { "stat" } else { "diff" }, page + 1),
        true if stat => {
            format!("review_changes run_id={name} action=diff, with path for one file; merge_changes action=merge merges a run in a clone")
        }
        true => "that is all of it".to_owned(),
    }))
}

/// Describes what the difference includes besides the work of the run's own agent, and what it
/// lacks.
fn included_lines(diff: &DiffView) -> Vec<String> {
    let IncludedView {
        with_setup,
        with_runs,
        with_edits,
    } = &diff.includes;
    let mut lines = Vec::new();
    lines.extend(with_setup.then(|| "it includes what the setup command changed".to_owned()));
    lines.extend((!with_runs.is_empty()).then(|| {
        format!(
            "it includes the work of {}",
            line(&with_runs.join(", "), 400)
        )
    }));
    lines.extend(
        with_edits.then(|| "it includes edits made while no agent worked there".to_owned()),
    );
    lines.extend(diff.merged.map(|merged| match merged == diff.to.n {
        true => "all of it is merged already".to_owned(),
        false => format!("it is merged up to snapshot {merged}"),
    }));
    lines.extend(diff.workspace_of.as_ref().map(|owner| {
        format!(
            "it worked in the workspace of {}: merge that run",
            line(owner, 60)
        )
    }));
    lines.extend(diff.missing.as_ref().map(|missing| {
        format!(
            "its workspace {} is missing: later work there is not kept",
            line(missing, 400)
        )
    }));
    lines
}

/// Splits a text at line ends into pages; a longer line is split, too. There is at least one page.
fn pages(text: &str) -> Vec<&str> {
    let mut pages = Vec::new();
    let mut rest = text;
    while rest.len() > PAGE_BYTES_MAX {
        let fits = shorten::head(rest, PAGE_BYTES_MAX);
        let end = fits.rfind('\n').map_or(fits.len(), |at| at + 1);
        let (page, behind) = rest.split_at(end);
        pages.push(page);
        rest = behind;
    }
    pages.push(rest);
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_everything_and_a_limit() {
        let line = "é".repeat(100) + "\n";
        for text in [
            String::new(),
            line.clone(),
            line.repeat(1_000),
            "é".repeat(PAGE_BYTES_MAX),
        ] {
            let pages = pages(&text);
            assert_eq!(pages.concat(), text);
            assert!(!pages.is_empty() && pages.iter().all(|page| page.len() <= PAGE_BYTES_MAX));
        }
    }
}
