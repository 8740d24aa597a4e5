//! Merging and discarding a run's changes.

use super::next_step::WAIT_AGAIN;
use crate::config;
use crate::mcp::caller::McpCaller;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::{self, Shown};
use crate::mcp::text::{barred_whole, line};
use crate::view::{ConflictView, DiscardRun, MergeRun, MergeView, Word};
use adjutant_core::merge::{ConflictKind, MergeMode, MergeOutcome};
use serde::Deserialize;
use serde_json::json;

/// Maximum number of conflicting files that are listed.
const CONFLICTS_MAX: usize = 30;
/// Maximum size of the shown conflicting lines, in bytes.
const HUNKS_BYTES_MAX: usize = 8_000;
/// Maximum number of merged files that are listed.
const FILES_MAX: usize = 50;

/// The arguments of `merge_changes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct MergeChangesArgs {
    run_id: String,
    action: MergeAction,
    mode: Option<Word<MergeMode>>,
    agent: Option<String>,
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MergeAction {
    Merge,
    Discard,
}

pub(in crate::mcp) async fn merge_changes(
    session: &McpSession,
    _caller: &McpCaller,
    args: MergeChangesArgs,
) -> ToolResult {
    let MergeChangesArgs {
        run_id: run,
        action,
        mode,
        agent,
    } = args;
    match action {
        MergeAction::Merge => {
            let env = if agent.is_some() {
                config::dispatch_env()
            } else {
                std::collections::BTreeMap::new()
            };
            let merged = session
                .client()
                .call(&MergeRun {
                    run,
                    mode,
                    resolve_with: agent,
                    env,
                    ..MergeRun::default()
                })
                .await?;
            reply(merge_shown(&merged))
        }
        MergeAction::Discard if agent.is_some() || mode.is_some() => Err(ToolRefusal::invalid(
            "agent and mode belong to action=merge",
            "omit them, or pass action=merge",
        )),
        MergeAction::Discard => {
            let discarded = session
                .client()
                .call(&DiscardRun { run, force: false })
                .await?;
            let kept = discarded
                .kept
                .as_ref()
                .map(|kept| format!("; its files are kept as snapshot {}", kept.n))
                .unwrap_or_default();
            let name = line(&discarded.run_name, 60);
            let outcome = if discarded.was_discarded {
                "is already removed".to_owned()
            } else {
                format!("is removed{kept}")
            };
            let shown = Shown::new(
                json!({"run_id": discarded.run_id, "name": discarded.run_name, "outcome": "discarded"}),
            );
            reply(
                shown
                    .line(format!("the workspace of {name} {outcome}"))
                    .next(WAIT_AGAIN),
            )
        }
    }
}

fn merge_shown(merged: &MergeView) -> Shown {
    let name = line(&merged.run_name, 60);
    let into = merged.branch.as_ref().map_or_else(
        || "the checked-out commit".to_owned(),
        |branch| line(branch, 100),
    );
    let shown = merge_data(merged).lines(notes(merged, &name));
    let commit = merged.commit.as_deref().unwrap_or_default();
    match merged.outcome.known() {
        Some(MergeOutcome::Merged) => shown
            .line(format!(
                "{name} is merged into {into} as {commit}; files: {}: {}",
                merged.files.len(),
                listed(
                    merged
                        .files
                        .iter()
                        .take(FILES_MAX)
                        .map(|file| line(file, 200))
                )
            ))
            .next("merge_changes action=discard removes its workspace"),
        Some(MergeOutcome::AlreadyMerged) => shown
            .line(format!("{name} was merged into {into} before, as {commit}"))
            .next(WAIT_AGAIN),
        Some(MergeOutcome::Conflicts | MergeOutcome::Resolving) => {
            add_conflicts(shown, merged, &name, &into)
        }
        _ => add_nothing_merged(shown, merged, &name, &into),
    }
}

/// Returns a merge as structured content.
fn merge_data(merged: &MergeView) -> Shown {
    let files: Vec<&String> = merged.files.iter().take(FILES_MAX).collect();
    let conflicts: Vec<_> = merged
        .conflicts
        .iter()
        .take(CONFLICTS_MAX)
        .map(|conflict| json!({"path": conflict.path, "kind": conflict.kind}))
        .collect();
    Shown::new(json!({
        "run_id": merged.run_id,
        "name": merged.run_name,
        "outcome": merged.outcome,
        "commit": merged.commit,
        "files": files,
        "conflicts": conflicts,
    }))
}

/// Returns what a merge lacks or did besides, whatever its outcome.
fn notes(merged: &MergeView, name: &str) -> impl Iterator<Item = String> {
    let incomplete = merged
        .incomplete
        .as_ref()
        .map(|why| format!("{name} {}: its work may be incomplete", line(why, 100)));
    let copies = listed(merged.committed_copies.iter().map(|file| line(file, 200)));
    let copies = (!copies.is_empty()).then(|| {
        format!("its commits are merged without files that were copied into its workspace and can be secrets: {copies}")
    });
    let branches = listed(merged.other_branches.iter().map(|of| line(of, 200)));
    let branches = (!branches.is_empty())
        .then(|| format!("{name} also committed elsewhere, which is not merged: {branches}"));
    let unsigned = merged.unsigned.then(|| {
        "the new commits are not signed, although the user's git signs commits (commit.gpgsign)"
            .to_owned()
    });
    let submodules = listed(
        merged
            .submodules
            .iter()
            .map(|one| format!("{} {}", line(&one.path, 200), line(&one.commit, 64))),
    );
    let submodules = (!submodules.is_empty())
        .then(|| format!("commits added to the user's submodules: {submodules}"));
    [
        not_merged(merged),
        incomplete,
        copies,
        branches,
        unsigned,
        submodules,
    ]
    .into_iter()
    .flatten()
}

fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

fn add_conflicts(shown: Shown, merged: &MergeView, name: &str, into: &str) -> Shown {
    let given = merged.with_changes.then(|| {
        "the run started with uncommitted changes of the user, which a merge does not bring"
            .to_owned()
    });
    let shown = shown
        .line(format!("{name} conflicts with {into}; nothing was changed"))
        .lines(given)
        .lines(conflict_lines(merged))
        .quotation(hunks(merged));
    match &merged.resolving {
        Some(run) => {
            let resolver = line(&run.identity.name, 60);
            shown
                .with("resolving", json!(run.identity.name))
                .line(format!("started to resolve them: {}", show::run_line(run)))
                .next(format!(
                    "when {resolver} has ended: merge_changes run_id={resolver} action=merge"
                ))
        }
        None => shown.next(format!(
            "merge_changes run_id={name} action=merge agent=… has an agent resolve them in a new run"
        )),
    }
}

fn add_nothing_merged(shown: Shown, merged: &MergeView, name: &str, into: &str) -> Shown {
    let conflicts_of = merged.resolved_nothing_of.as_deref();
    match conflicts_of.map(|other| line(other, 60)) {
        Some(other) => shown
            .line(format!(
                "{name} resolved nothing: the conflicts of {other} are still there"
            ))
            .next(format!(
                "merge_changes run_id={other} action=merge agent=… has another agent resolve them"
            )),
        None => shown
            .line(format!("{into} already has all changes of {name}"))
            .next(WAIT_AGAIN),
    }
}

/// Lists the changed files that no snapshot has, and where they are.
fn not_merged(merged: &MergeView) -> Option<String> {
    let place = merged.workspace.as_ref().map_or_else(
        || "removed with its workspace".to_owned(),
        |path| format!("still in {}", line(path, 400)),
    );
    let files = merged
        .not_merged
        .iter()
        .take(FILES_MAX)
        .map(|file| line(file, 200))
        .collect::<Vec<_>>()
        .join(", ");
    (!files.is_empty())
        .then(|| format!("NOT merged, because no snapshot can contain it: {files}; {place}"))
}

fn conflict_lines(merged: &MergeView) -> Vec<String> {
    let one = |conflict: &ConflictView| {
        let kind = conflict
            .kind
            .known()
            .map_or(ConflictKind::Other.label(), ConflictKind::label);
        format!("- {}: {kind}", line(&conflict.path, 200))
    };
    let more = merged.conflicts.len().saturating_sub(CONFLICTS_MAX);
    let mut lines: Vec<String> = merged
        .conflicts
        .iter()
        .take(CONFLICTS_MAX)
        .map(one)
        .collect();
    lines.extend((more > 0).then(|| format!("- and {more} more")));
    lines
}

fn hunks(merged: &MergeView) -> String {
    let mut text = String::new();
    for conflict in &merged.conflicts {
        let Some(hunks) = &conflict.hunks else {
            continue;
        };
        if text.len() + hunks.len() > HUNKS_BYTES_MAX {
            break;
        }
        text.push_str(&format!("{}\n{hunks}", conflict.path));
    }
    barred_whole(&text)
}
