//! `adj merge`: merges an isolated run's changes into the user's repository.

use crate::cli::args::MergeArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::config::dispatch_env;
use crate::present::short_commit;
use crate::text;
use crate::view::{ConflictView, MergeRun, MergeView, Word};
use adjutant_core::merge::{ConflictKind, MergeMode, MergeOutcome};

/// Maximum number of files that are printed.
const FILES_SHOWN_MAX: usize = 20;

/// Merges a run's changes. A conflict changes nothing and has a separate exit code.
pub(crate) async fn merge(args: &MergeArgs, cx: &Context) -> CommandResult {
    let MergeArgs {
        squash,
        rebase,
        branch,
        no_commit,
        no_ff,
        resolve_with,
        run,
    } = args;
    let mode = match (squash, rebase, branch, no_commit) {
        (true, ..) => MergeMode::Squash,
        (_, true, ..) => MergeMode::Rebase,
        (_, _, Some(_), _) => MergeMode::Branch,
        (.., true) => MergeMode::Stage,
        _ => MergeMode::Merge,
    };
    let env = if resolve_with.is_some() {
        dispatch_env()
    } else {
        std::collections::BTreeMap::new()
    };
    let call = MergeRun {
        run: run.clone(),
        mode: Some(mode.into()),
        branch: branch.clone(),
        no_ff: *no_ff,
        resolve_with: resolve_with.clone(),
        env,
    };
    let merged = cx.hub.call(&call).await?;
    let is_unresolved =
        merged.outcome == MergeOutcome::Conflicts || merged.resolved_nothing_of.is_some();
    let exit = if is_unresolved {
        Exit::Conflict
    } else {
        Exit::Done
    };
    if cx.out.json {
        cx.out.print_json(&merged)?;
        return Ok(exit);
    }
    print(&merged, cx)?;
    print_notes(&merged, cx)?;
    print_not_merged(&merged, cx)?;
    Ok(exit)
}

/// Says what the merge does not show: an incomplete run, commits that are merged as one, and
/// commits on other branches.
fn print_notes(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    let name = text::line(&merged.run_name);
    if let Some(incomplete) = &merged.incomplete {
        cx.out.print_message(&format!(
            "note: {name} {}: its work may be incomplete",
            text::line(incomplete)
        ))?;
    }
    if let Some(why) = merged
        .one_commit
        .as_ref()
        .filter(|_| merged.outcome == MergeOutcome::Merged)
    {
        cx.out.print_message(&format!(
            "note: the commits of {name} are merged as one, because it {}",
            text::line(why)
        ))?;
    }
    if !merged.committed_copies.is_empty() {
        let files = merged
            .committed_copies
            .iter()
            .map(|file| text::line(file))
            .collect::<Vec<_>>()
            .join(", ");
        cx.out.print_message(&format!(
            "note: the commits of {name} are merged without files that were copied into its workspace and can be secrets: {files}"
        ))?;
    }
    if merged.unsigned {
        let before = merged.before.as_deref().map(text::line).unwrap_or_default();
        let before = short_commit(&before);
        let how = match merged.mode.known() {
            Some(MergeMode::Branch) => {
                "git rebase --exec 'git commit --amend --no-edit -S' signs those of the branch"
                    .to_owned()
            }
            _ => format!(
                "git rebase --rebase-merges --exec 'git commit --amend --no-edit -S' {before} signs them"
            ),
        };
        cx.out.print_message(&format!(
            "note: your git signs commits (commit.gpgsign), and these are not signed: {how}; or adj merge {name} --no-commit"
        ))?;
    }
    for submodule in &merged.submodules {
        let (path, commit) = (
            text::line(&submodule.path),
            text::line(short_commit(&submodule.commit)),
        );
        cx.out.print_message(&format!("note: commit {commit} of {path} was added to your {path}; to check it out: git submodule update {path}"))?;
    }
    if merged.is_unguarded {
        cx.out.print_message(super::undo::UNGUARDED)?;
    }
    for git_ref in &merged.other_branches {
        let git_ref = text::line(git_ref);
        let branch = git_ref
            .rsplit('/')
            .next()
            .unwrap_or(&git_ref)
            .replace("%2F", "/");
        cx.out.print_message(&format!("note: {name} also committed on its branch {branch}, which is not merged: git merge {git_ref}"))?;
    }
    Ok(())
}

/// Names the changed files that are not merged, and where they are.
fn print_not_merged(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    if merged.not_merged.is_empty() {
        return Ok(());
    }
    let files = merged
        .not_merged
        .iter()
        .map(|file| text::line(file))
        .collect::<Vec<_>>()
        .join(", ");
    let place = match &merged.workspace {
        Some(workspace) => format!("copy from {}", text::line(workspace)),
        None => "the workspace that contained them was removed".to_owned(),
    };
    cx.out.print_message(&format!(
        "note: not merged, because no snapshot can contain it: {files}; {place}"
    ))
}

fn print(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    match merged.outcome.known() {
        Some(MergeOutcome::Merged) => print_merged(merged, cx),
        Some(MergeOutcome::AlreadyMerged) => print_already_merged(merged, cx),
        Some(MergeOutcome::Conflicts) => {
            print_conflicts(merged, cx)?;
            suggest_resolutions(merged, cx)
        }
        Some(MergeOutcome::Resolving) => {
            print_conflicts(merged, cx)?;
            print_resolving(merged, cx)
        }
        _ => print_nothing_to_merge(merged, cx),
    }
}

/// Returns where the changes are merged into.
fn target(merged: &MergeView) -> String {
    merged.branch.as_ref().map_or_else(
        || "the checked-out commit".to_owned(),
        |branch| text::line(branch),
    )
}

/// Returns the new commit, shortened.
fn commit(merged: &MergeView) -> String {
    merged
        .commit
        .as_ref()
        .map(|commit| text::line(short_commit(commit)))
        .unwrap_or_default()
}

fn count_files(merged: &MergeView) -> String {
    text::count(merged.files.len() as u64, "file", "files")
}

fn print_merged(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    let done = cx.out.paint.apply(Style::Good, "✓");
    let (name, into) = (text::line(&merged.run_name), target(merged));
    let (count, commit) = (count_files(merged), commit(merged));
    let (result, next) = match merged.mode.known() {
        Some(MergeMode::Branch) => (
            format!("{name}: branch {into} created at {commit}"),
            format!("git merge {into}   merges it"),
        ),
        Some(MergeMode::Stage) => (
            format!("{name}: {count} changed and staged, nothing committed"),
            "git commit   commits it".to_owned(),
        ),
        _ => (
            format!("{name}: merged into {into}, {count} changed, now at {commit}"),
            format!("adj discard {name}   removes its workspace"),
        ),
    };
    cx.out.print_line(&format!("{done} {result}"))?;
    print_files(merged, cx)?;
    cx.out.suggest(&next)
}

fn print_already_merged(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    let (name, into) = (text::line(&merged.run_name), target(merged));
    let files = if merged.files.is_empty() {
        String::new()
    } else {
        format!(", {} changed", count_files(merged))
    };
    cx.out.print_line(&format!(
        "{name}: already merged into {into} as {}{files}; nothing has changed since",
        commit(merged)
    ))?;
    print_files(merged, cx)
}

fn suggest_resolutions(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    let name = text::line(&merged.run_name);
    if merged.with_changes {
        cx.out.suggest("git commit   commits your changes: the run started with them, and a merge does not include them")?;
    }
    cx.out.suggest(&format!(
        "adj merge {name} --resolve-with AGENT   an agent resolves them in a new run"
    ))?;
    cx.out.suggest(&format!(
        "adj merge {name} --branch NAME   makes a branch that you merge with git"
    ))
}

/// Names the run that resolves the conflicts.
fn print_resolving(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    let Some(run) = &merged.resolving else {
        return Ok(());
    };
    let resolving = text::line(&run.identity.name);
    cx.out.print_line(&format!(
        "{} {resolving} ({}) was started to resolve them",
        cx.out.paint.apply(Style::Good, "✓"),
        text::line(&run.identity.agent)
    ))?;
    cx.out.suggest(&format!(
        "adj wait {resolving} && adj merge {resolving}   merges the changes of both"
    ))
}

fn print_nothing_to_merge(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    let name = text::line(&merged.run_name);
    let Some(other) = merged.resolved_nothing_of.as_deref().map(text::line) else {
        let into = target(merged);
        return cx
            .out
            .print_line(&format!("{into} already has all changes of {name}"));
    };
    cx.out.print_line(&format!(
        "{} {name} resolved nothing: the conflicts of {other} are still there",
        cx.out.paint.apply(Style::Bad, "✗")
    ))?;
    cx.out.suggest(&format!(
        "adj merge {other} --resolve-with AGENT   starts another run"
    ))
}

fn print_files(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    for file in merged.files.iter().take(FILES_SHOWN_MAX) {
        cx.out.print_line(&format!("  {}", text::line(file)))?;
    }
    if merged.files.len() > FILES_SHOWN_MAX {
        cx.out.print_line(&format!(
            "  and {} more",
            merged.files.len() - FILES_SHOWN_MAX
        ))?;
    }
    Ok(())
}

fn print_conflicts(merged: &MergeView, cx: &Context) -> Result<(), Failure> {
    let out = &cx.out;
    let name = text::line(&merged.run_name);
    let into = merged
        .branch
        .as_ref()
        .filter(|_| merged.mode != MergeMode::Branch)
        .map_or_else(|| "your commit".to_owned(), |branch| text::line(branch));
    let count = text::count(merged.conflicts.len() as u64, "file", "files");
    let at = merged
        .conflicting_commit
        .as_ref()
        .map(|subject| format!(" at its commit \"{}\"", text::line(subject)))
        .unwrap_or_default();
    out.print_line(&format!(
        "{} {name} conflicts with {into} in {count}{at}; nothing was changed",
        out.paint.apply(Style::Bad, "✗")
    ))?;
    for conflict in merged.conflicts.iter().take(FILES_SHOWN_MAX) {
        let ConflictView {
            path,
            kind,
            hunks,
            is_cut,
        } = conflict;
        out.print_line(&format!("  {}: {}", text::line(path), label(kind)))?;
        if let Some(hunks) = hunks {
            out.print_text(&out.indent("    ", hunks))?;
        }
        if *is_cut {
            out.print_line("    (more)")?;
        }
    }
    if merged.conflicts.len() > FILES_SHOWN_MAX {
        out.print_line(&format!(
            "  and {} more",
            merged.conflicts.len() - FILES_SHOWN_MAX
        ))?;
    }
    Ok(())
}

fn label(kind: &Word<ConflictKind>) -> String {
    kind.known()
        .map_or_else(|| text::line(kind.as_str()), |kind| kind.label().to_owned())
}
