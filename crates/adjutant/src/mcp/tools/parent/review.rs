//! Showing, merging and discarding a run's changes.

use super::next_step::WAIT_AGAIN;
use crate::config;
use crate::mcp::caller::Caller;
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::Session;
use crate::mcp::show::{self, Shown};
use crate::mcp::text::{barred_whole, line};
use crate::view::{ConflictView, DiffRun, DiffView, DiscardRun, IncludedView, MergeRun, MergeView, Word};
use adjutant_core::merge::{ConflictKind, MergeMode, MergeOutcome};
use serde::Deserialize;
use serde_json::json;

/// Maximum size of a page of a difference, in bytes.
const PAGE_BYTES_MAX: usize = 12_000;
/// Maximum number of conflicting files that are listed.
const CONFLICTS_MAX: usize = 30;
/// Maximum size of the shown conflicting lines, in bytes.
const HUNKS_BYTES_MAX: usize = 8_000;
/// Maximum number of merged files that are listed.
const FILES_MAX: usize = 50;

/// The arguments of `review_changes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ReviewChangesArgs {
    run_id: String,
    action: ReviewAction,
    path: Option<String>,
    page: Option<u64>,
    mode: Option<Word<MergeMode>>,
    agent: Option<String>,
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReviewAction {
    Stat,
    Diff,
    Merge,
    Discard,
}

pub(in crate::mcp) async fn review_changes(session: &Session, _caller: &Caller, args: ReviewChangesArgs) -> ToolResult {
    let ReviewChangesArgs { run_id: run, action, path, page, mode, agent } = args;
    if !matches!(action, ReviewAction::Stat | ReviewAction::Diff) && (path.is_some() || page.is_some()) {
        return Err(Refusal::invalid("path and page belong to stat and diff", "omit them: a merge or a discard is of the whole run"));
    }
    if action != ReviewAction::Merge && (agent.is_some() || mode.is_some()) {
        return Err(Refusal::invalid("agent and mode belong to action=merge", "leave them out, or pass action=merge"));
    }
    match action {
        ReviewAction::Stat | ReviewAction::Diff => diff(session, run, action == ReviewAction::Stat, path, page).await,
        ReviewAction::Merge => {
            let env = if agent.is_some() { config::dispatch_env() } else { std::collections::BTreeMap::new() };
            let merged = session.client().call(&MergeRun { run, mode, resolve_with: agent, env, ..MergeRun::default() }).await?;
            reply(merge_shown(&merged))
        }
        ReviewAction::Discard => {
            let discarded = session.client().call(&DiscardRun { run, force: false }).await?;
            let kept = discarded.kept.as_ref().map(|kept| format!("; its files are kept as snapshot {}", kept.n)).unwrap_or_default();
            let name = line(&discarded.run_name, 60);
            let outcome = if discarded.was_discarded { "is already removed".to_owned() } else { format!("is removed{kept}") };
            let shown = Shown::new(json!({"run_id": discarded.run_id, "name": discarded.run_name, "outcome": "discarded"}));
            reply(shown.line(format!("the workspace of {name} {outcome}")).next(WAIT_AGAIN))
        }
    }
}

async fn diff(session: &Session, run: String, stat: bool, path: Option<String>, page: Option<u64>) -> ToolResult {
    let call = DiffRun { run, stat, paths: path.iter().cloned().collect(), ..DiffRun::default() };
    let diff = session.client().call(&call).await?;
    let pages = pages(&diff.text);
    let page = page.unwrap_or(1).max(1);
    let Some(text) = usize::try_from(page - 1).ok().and_then(|n| pages.get(n)) else {
        return Err(Refusal::invalid(format!("there are {} pages", pages.len()), "ask for one of them"));
    };
    let path = path.map(|path| format!(" path={}", line(&path, 400))).unwrap_or_default();
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
        format!("its commits contain {files}, copied into the workspace, which can be secrets: they are not merged, and adj merge --squash leaves them out")
    }))
    .lines((diff.is_cut && is_last).then(|| "the rest is too long: pass path".to_owned()))
    .quotation(barred_whole(text));
    reply(shown.next(match is_last {
        false => format!("review_changes run_id={name} action={}{path} page={} for more", if stat { "stat" } else { "diff" }, page + 1),
        true if stat => format!("review_changes run_id={name} action=diff, with path for one file; action=merge merges a run in a clone"),
        true => "that is all of it".to_owned(),
    }))
}

/// Describes what the difference includes besides the work of the run's own agent, and what it lacks.
fn included_lines(diff: &DiffView) -> Vec<String> {
    let IncludedView { with_setup, with_runs, with_edits } = &diff.includes;
    let mut lines = Vec::new();
    lines.extend(with_setup.then(|| "it includes what the setup command changed".to_owned()));
    lines.extend((!with_runs.is_empty()).then(|| format!("it includes the work of {}", line(&with_runs.join(", "), 400))));
    lines.extend(with_edits.then(|| "it includes edits made while no agent worked there".to_owned()));
    lines.extend(diff.merged.map(|merged| match merged == diff.to.n {
        true => "all of it is merged already".to_owned(),
        false => format!("it is merged up to snapshot {merged}"),
    }));
    lines.extend(diff.workspace_of.as_ref().map(|owner| format!("it worked in the workspace of {}: merge that run", line(owner, 60))));
    lines.extend(diff.missing.as_ref().map(|missing| format!("its workspace {} is missing: later work there is not kept", line(missing, 400))));
    lines
}

/// Splits a text at line ends into pages; a longer line is split, too. There is at least one page.
fn pages(text: &str) -> Vec<&str> {
    let mut pages = Vec::new();
    let mut rest = text;
    while rest.len() > PAGE_BYTES_MAX {
        let limit = (0..=PAGE_BYTES_MAX).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(PAGE_BYTES_MAX);
        let end = rest[..limit].rfind('\n').map_or(limit, |at| at + 1);
        let (page, behind) = rest.split_at(end);
        pages.push(page);
        rest = behind;
    }
    pages.push(rest);
    pages
}

fn merge_shown(merged: &MergeView) -> Shown {
    let name = line(&merged.run_name, 60);
    let into = merged.branch.as_ref().map_or_else(|| "the checked-out commit".to_owned(), |branch| line(branch, 100));
    let files: Vec<&String> = merged.files.iter().take(FILES_MAX).collect();
    let conflicts: Vec<_> =
        merged.conflicts.iter().take(CONFLICTS_MAX).map(|conflict| json!({"path": conflict.path, "kind": conflict.kind})).collect();
    let shown = Shown::new(json!({
        "run_id": merged.run_id,
        "name": merged.run_name,
        "outcome": merged.outcome,
        "commit": merged.commit,
        "files": files,
        "conflicts": conflicts,
    }));
    let shown =
        shown.lines(not_merged(merged)).lines(merged.incomplete.as_ref().map(|why| format!("{name} {}: its work may be incomplete", line(why, 100))));
    let branches = merged.other_branches.iter().map(|git_ref| line(git_ref, 200)).collect::<Vec<_>>().join(", ");
    let shown = shown.lines((!branches.is_empty()).then(|| format!("{name} also committed elsewhere, which is not merged: {branches}")));
    let commit = merged.commit.as_deref().unwrap_or_default();
    match merged.outcome.known() {
        Some(MergeOutcome::Merged) => {
            let listed = files.iter().map(|file| line(file, 200)).collect::<Vec<_>>().join(", ");
            let shown = shown.line(format!("{name} is merged into {into} as {commit}; files: {}: {listed}", merged.files.len()));
            shown.next("action=discard removes its workspace")
        }
        Some(MergeOutcome::AlreadyMerged) => shown.line(format!("{name} was merged into {into} before, as {commit}")).next(WAIT_AGAIN),
        Some(MergeOutcome::Conflicts | MergeOutcome::Resolving) => {
            let given = merged.with_changes.then(|| "the run started with uncommitted changes of the user, which a merge does not bring".to_owned());
            let shown = shown.line(format!("{name} conflicts with {into}; nothing was changed")).lines(given);
            let shown = shown.lines(conflict_lines(merged)).quotation(hunks(merged));
            match &merged.resolving {
                Some(run) => {
                    let next = format!("when {} has ended: review_changes run_id={} action=merge", line(&run.name, 60), line(&run.name, 60));
                    shown.with("resolving", json!(run.name)).line(format!("started to resolve them: {}", show::run_line(run))).next(next)
                }
                None => shown.next(format!("review_changes run_id={name} action=merge agent=… has an agent resolve them in a new run")),
            }
        }
        _ => shown.line(format!("{into} already has all changes of {name}")).next(WAIT_AGAIN),
    }
}

/// Lists the changed files that no snapshot has, and where they are.
fn not_merged(merged: &MergeView) -> Option<String> {
    let place = merged.workspace.as_ref().map_or_else(|| "removed with its workspace".to_owned(), |path| format!("still in {}", line(path, 400)));
    let files = merged.not_merged.iter().take(FILES_MAX).map(|file| line(file, 200)).collect::<Vec<_>>().join(", ");
    (!files.is_empty()).then(|| format!("NOT merged, because no snapshot can contain it: {files}; {place}"))
}

fn conflict_lines(merged: &MergeView) -> Vec<String> {
    let one = |conflict: &ConflictView| {
        let kind = conflict.kind.known().map_or(ConflictKind::Other.label(), ConflictKind::label);
        format!("- {}: {kind}", line(&conflict.path, 200))
    };
    let more = merged.conflicts.len().saturating_sub(CONFLICTS_MAX);
    let mut lines: Vec<String> = merged.conflicts.iter().take(CONFLICTS_MAX).map(one).collect();
    lines.extend((more > 0).then(|| format!("- and {more} more")));
    lines
}

fn hunks(merged: &MergeView) -> String {
    let mut text = String::new();
    for conflict in &merged.conflicts {
        let Some(hunks) = &conflict.hunks else { continue };
        if text.len() + hunks.len() > HUNKS_BYTES_MAX {
            break;
        }
        text.push_str(&format!("{}\n{hunks}", conflict.path));
    }
    barred_whole(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_everything_and_a_limit() {
        let line = "é".repeat(100) + "\n";
        for text in [String::new(), line.clone(), line.repeat(1_000), "é".repeat(PAGE_BYTES_MAX)] {
            let pages = pages(&text);
            assert_eq!(pages.concat(), text);
            assert!(!pages.is_empty() && pages.iter().all(|page| page.len() <= PAGE_BYTES_MAX));
        }
    }
}
