//! Parts of a run, each in one line.

use crate::cli::age::{seconds_since, short};
use crate::cli::context::{Context, now};
use crate::text;
use crate::view::{
    AfterView, CommandView, NotCopiedView, OverlapView, RunConflictView, RunOverlapView, RunView,
    SnapshotView, SubagentView, WorkspaceView,
};
use adjutant_core::pool::{AfterEnd, AfterState};

/// The number of characters of a commit id that are shown.
const COMMIT_CHARS: usize = 12;

/// Describes the pool of a run, with its place while it is queued.
pub(super) fn pool_line(run: &RunView) -> String {
    let priority = run
        .priority
        .as_ref()
        .map(|priority| format!(", {priority}"))
        .unwrap_or_default();
    let place = match (run.queue_place, run.queue_ahead_min) {
        (Some(place), _) => format!(", place {place} in its queue"),
        (None, Some(ahead)) => format!(", at least {ahead} runs before it in its queue"),
        (None, None) => String::new(),
    };
    format!("{}{priority}{place}", run.pool)
}

/// Describes when a queued run is likely to start.
pub(super) fn start_text(at: &str, cx: &Context) -> String {
    match seconds_since(at, now()).filter(|_| cx.out.terminal) {
        Some(seconds) => format!("in about {}", short(-seconds)),
        None => format!("about {at}"),
    }
}

/// Names a run after which this one starts, with its state.
pub(super) fn after_line(after: &AfterView) -> String {
    let any = match after.on.known() {
        Some(AfterEnd::Any) => " (any end)",
        Some(AfterEnd::Ports) => " (its ports)",
        Some(AfterEnd::Success) | None => "",
    };
    match after.state.known() {
        Some(AfterState::Met) => format!("{}{any}: done", after.name),
        Some(AfterState::Failed) => format!("{}{any}: failed", after.name),
        Some(AfterState::Open) | None => format!("{}{any}", after.name),
    }
}

/// Describes an overlap with what another run has announced in one line.
pub fn overlap_line(overlap: &RunOverlapView) -> String {
    let item = |item: &OverlapView| {
        if item.own == item.other {
            item.own.clone()
        } else {
            format!("{} ({})", item.own, item.other)
        }
    };
    format!(
        "with {}: {}",
        overlap.run_name,
        overlap
            .items
            .iter()
            .map(item)
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// Describes a conflict with another run in one line.
pub fn conflict_line(conflict: &RunConflictView) -> String {
    let files: Vec<String> = conflict
        .files
        .iter()
        .map(|file| format!("{} ({})", file.path, file.kind))
        .collect();
    format!("with {}: {}", conflict.run_name, files.join(", "))
}

/// Names what a snapshot does not contain.
pub(super) fn left_out_text(snapshot: &SnapshotView) -> String {
    if snapshot.left_out.is_empty() {
        String::new()
    } else {
        format!(", without {}", snapshot.left_out.join(", "))
    }
}

/// Warns of copied files in the commits of a run.
pub(super) fn committed_copies(run: &RunView) -> Option<String> {
    let files = (!run.committed_copies.is_empty()).then(|| run.committed_copies.join(", "))?;
    Some(format!(
        "{files} in its commits, which are kept and merged without files that can be secrets"
    ))
}

/// Describes a run's workspace in one line.
pub(super) fn workspace_line(workspace: &WorkspaceView) -> String {
    let WorkspaceView {
        isolation,
        state,
        path,
        repository,
        base,
        branch,
        behind,
        changes,
        ..
    } = workspace;
    let with = if changes.is_some() {
        " with uncommitted changes"
    } else {
        ""
    };
    let behind = behind
        .filter(|count| *count > 0)
        .map(|count| format!(" ({} behind now)", text::count(count, "commit", "commits")))
        .unwrap_or_default();
    let at = branch
        .as_ref()
        .map_or_else(|| "at".to_owned(), |branch| format!("branch {branch} at"));
    format!(
        "{isolation} of {repository}, {at} {}{behind}{with}, {state}: {path}",
        base.get(..COMMIT_CHARS).unwrap_or(base)
    )
}

/// Describes a workspace's setup command in one line.
pub(super) fn setup_line(setup: &CommandView) -> String {
    let (seconds, tenths) = (setup.took_ms / 1000, setup.took_ms % 1000 / 100);
    setup.problem().unwrap_or_else(|| {
        format!(
            "{}: passed in {seconds}.{tenths} s",
            setup.command.join(" ")
        )
    })
}

/// Names the submodules that are not there.
pub(super) fn submodules_line(workspace: &WorkspaceView) -> Option<String> {
    let empty = &workspace.empty_submodules;
    (!empty.is_empty()).then(|| {
        format!(
            "empty: {}; have the setup command fetch them: git submodule update --init",
            empty.join(", ")
        )
    })
}

/// Quotes the arguments that contain spaces or quotes.
pub(super) fn arguments_line(args: &[String]) -> String {
    let shown = |arg: &String| match arg.is_empty()
        || arg.contains(|c: char| c.is_whitespace() || "'\"".contains(c))
    {
        true => format!("{arg:?}"),
        false => arg.clone(),
    };
    args.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Names the files that were copied into a workspace, and those that were not.
pub(super) fn copied_line(workspace: &WorkspaceView) -> String {
    let not_copied: Vec<String> = workspace
        .not_copied
        .iter()
        .map(|NotCopiedView { path, why }| format!("{path} ({why})"))
        .collect();
    match (workspace.copied.is_empty(), not_copied.is_empty()) {
        (_, true) => workspace.copied.join(", "),
        (true, false) => format!("not {}", not_copied.join(", ")),
        (false, false) => format!(
            "{}; not {}",
            workspace.copied.join(", "),
            not_copied.join(", ")
        ),
    }
}

/// Describes a sub-agent of the CLI in one line.
pub(super) fn subagent_line(subagent: &SubagentView) -> String {
    let SubagentView {
        kind,
        about,
        state,
        tokens,
    } = subagent;
    let name = match (about, kind) {
        (Some(about), Some(kind)) => format!("{about} ({kind})"),
        (Some(name), None) | (None, Some(name)) => name.clone(),
        (None, None) => "unnamed".to_owned(),
    };
    let tokens = tokens.map(|tokens| format!("{tokens} tokens"));
    [Some(name), state.clone(), tokens]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}
