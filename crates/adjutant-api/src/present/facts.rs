//! The labelled facts of a run, in sections. The terminal shows all of them, one below the other;
//! MCP shows a run's warnings and summary in one line, and details by section.

use super::{limit_text, not_kept, resources_line, tree_line};
use crate::text;
use crate::view::{
    AfterView, CommandView, FenceView, InterruptedUndoView, NotCopiedView, OverlapView, PortsView,
    RunConflictView, RunOverlapView, RunView, SnapshotView, SubagentView, Word, WorkspaceView,
};
use adjutant_core::RunStateKind;
use adjutant_core::pool::{AfterEnd, AfterState, QueueReason};
use adjutant_core::result::EndReason;
use adjutant_core::units::duration;
use std::borrow::Cow;
use std::time::Duration;

/// The number of characters of a commit id that are shown.
const COMMIT_CHARS: usize = 12;
/// Maximum number of commits and of snapshots that are shown, the newest.
const COMMITS_SHOWN_MAX: usize = 8;
const SNAPSHOTS_SHOWN_MAX: usize = 8;

/// How an interface writes what depends on its reader.
pub trait Reader {
    /// Formats a past time.
    fn ago(&self, time: &str) -> String {
        time.to_owned()
    }

    /// Formats an expected time.
    fn about(&self, time: &str) -> String {
        format!("about {time}")
    }

    /// Returns what a principal is called.
    fn principal<'a>(&self, principal: &'a str) -> &'a str {
        principal
    }

    /// Returns how to read the log of a run.
    fn log_command(&self, run: &RunView) -> String;
}

/// Where a fact is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// A line about the run names it anyhow: its agent, its status, the reason.
    Heading,
    /// The person or the parent may have to act.
    Warning,
    /// Says how far the run is.
    Summary,
    Detail,
    /// Only of interest to those who look for a fault.
    Internal,
}

/// A labelled fact. Facts with the same label follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<'a> {
    pub label: &'static str,
    pub rank: Rank,
    /// Words of Adjutant, with names.
    pub text: Cow<'a, str>,
    /// What the agent or its dispatcher wrote, and names of files. It follows the text.
    pub said: Cow<'a, str>,
    /// Words of Adjutant after it.
    pub note: Cow<'a, str>,
}

impl Fact<'_> {
    /// Formats the fact in one line. The interface sanitizes the words of Adjutant, and quotes those
    /// of others.
    #[must_use]
    pub fn line(&self, words: impl Fn(&str) -> String, said: impl Fn(&str) -> String) -> String {
        let part = |part: &str, show: &dyn Fn(&str) -> String| {
            Some(part).filter(|part| !part.is_empty()).map(show)
        };
        let parts = [
            part(&self.text, &words),
            part(&self.said, &said),
            part(&self.note, &words),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join(" ")
    }
}

/// Returns the facts of a run that have a value.
#[must_use]
pub fn run_facts<'a>(run: &'a RunView, reader: &dyn Reader) -> [Vec<Fact<'a>>; 10] {
    [
        state(run),
        queue(run, reader),
        workspace(run),
        settings(run),
        relations(run, reader),
        progress(run, reader),
        changes(run),
        snapshots(run, reader),
        usage(run),
        processes(run, reader),
    ]
    .map(|facts| facts.0)
}

#[derive(Default)]
struct Facts<'a>(Vec<Fact<'a>>);

impl<'a> Facts<'a> {
    fn add(
        &mut self,
        rank: Rank,
        label: &'static str,
        texts: impl IntoIterator<Item: Into<Cow<'a, str>>>,
    ) {
        let texts = texts.into_iter().map(|text| (text, ""));
        self.pairs(rank, label, texts);
    }

    /// Adds what others wrote.
    fn quote(
        &mut self,
        rank: Rank,
        label: &'static str,
        said: impl IntoIterator<Item: Into<Cow<'a, str>>>,
    ) {
        let said = said.into_iter().map(|said| ("", said));
        self.pairs(rank, label, said);
    }

    fn pairs<T: Into<Cow<'a, str>>, S: Into<Cow<'a, str>>>(
        &mut self,
        rank: Rank,
        label: &'static str,
        pairs: impl IntoIterator<Item = (T, S)>,
    ) {
        let facts = pairs.into_iter().map(|(text, said)| Fact {
            label,
            rank,
            text: text.into(),
            said: said.into(),
            note: "".into(),
        });
        self.0
            .extend(facts.filter(|fact| !(fact.text.is_empty() && fact.said.is_empty())));
    }

    fn note(&mut self, note: impl Into<Cow<'a, str>>) {
        if let Some(last) = self.0.last_mut() {
            last.note = note.into();
        }
    }
}

fn state(run: &RunView) -> Facts<'_> {
    let mut facts = Facts::default();
    facts.add(Rank::Detail, "id", [run.identity.run_id.as_str()]);
    facts.add(Rank::Heading, "status", [run.condition.status.as_str()]);
    // The heading names a limit.
    let reason = run.condition.reason.as_deref();
    let reason = reason.filter(|_| limit_text(run).is_none());
    facts.add(Rank::Heading, "reason", reason);
    // The facts above say the other reasons. A paused run has not ended.
    let has_ended = run.condition.state == RunStateKind::Finished;
    let is_shown = |reason: &EndReason| match reason {
        EndReason::Completed | EndReason::Error | EndReason::Cancelled => false,
        EndReason::Partial => has_ended,
        _ => true,
    };
    let end = run.condition.end_reason.as_ref().and_then(Word::known);
    let end = end.filter(is_shown).map(EndReason::word);
    facts.add(Rank::Detail, "ended by", end);
    facts.add(Rank::Detail, "note", run.condition.note.as_deref());
    facts.quote(Rank::Detail, "task", [run.identity.task.as_str()]);
    let agent = format!("{}, attempt {}", run.identity.agent, run.identity.attempt);
    facts.add(Rank::Heading, "agent", [agent]);
    facts.add(Rank::Detail, "chosen", run.identity.agent_why.as_deref());
    facts
}

fn queue<'a>(run: &'a RunView, reader: &dyn Reader) -> Facts<'a> {
    let mut facts = Facts::default();
    let priority = run.terms.priority.as_ref();
    let priority = priority.map_or_else(String::new, |priority| format!(", {priority}"));
    let (rank, place) = match (run.in_queue.queue_place, run.in_queue.queue_ahead_min) {
        (Some(place), _) => (Rank::Summary, format!(", place {place} in its queue")),
        (None, Some(ahead)) => (
            Rank::Summary,
            format!(", at least {ahead} runs before it in its queue"),
        ),
        (None, None) => (Rank::Detail, String::new()),
    };
    facts.add(
        rank,
        "pool",
        [format!("{}{priority}{place}", run.terms.pool)],
    );
    let after: Vec<String> = run.in_queue.after.iter().map(after_line).collect();
    facts.add(Rank::Detail, "after", [after.join(", ")]);
    if let Some(queue) = &run.in_queue.queue {
        let is_turn = queue.waiting_for == QueueReason::Turn;
        let rank = if is_turn { Rank::Detail } else { Rank::Summary };
        facts.add(rank, "waits", [queue.why.as_str()]);
        let starts = queue.starts_about.as_deref();
        facts.add(Rank::Detail, "starts", starts.map(|at| reader.about(at)));
    }
    facts
}

/// Names a run after which this one starts, with its state.
fn after_line(after: &AfterView) -> String {
    let any = match after.on.known() {
        Some(AfterEnd::Any) => " (any end)",
        Some(AfterEnd::Ports) => " (its ports)",
        Some(AfterEnd::Success) | None => "",
    };
    let state = match after.state.known() {
        Some(AfterState::Met) => ": done",
        Some(AfterState::Failed) => ": failed",
        Some(AfterState::Open) | None => "",
    };
    format!("{}{any}{state}", after.name)
}

fn workspace(run: &RunView) -> Facts<'_> {
    let mut facts = Facts::default();
    facts.quote(Rank::Detail, "directory", [run.place.cwd.as_str()]);
    if let Some(workspace) = &run.place.workspace {
        facts.quote(Rank::Detail, "workspace", [workspace_line(workspace)]);
        let setup = workspace.setup.as_ref().map(setup_line);
        facts.quote(Rank::Detail, "setup", setup);
        facts.quote(Rank::Detail, "copied", [copied_line(workspace)]);
        if !workspace.empty_submodules.is_empty() {
            let empty = workspace.empty_submodules.join(", ");
            facts.pairs(Rank::Detail, "submodules", [("empty:", empty)]);
            facts.note("(have the setup command fetch them: git submodule update --init)");
        }
        let caches = workspace.caches.iter();
        let caches = caches.map(|(variable, dir)| format!("{variable}={dir}"));
        facts.add(Rank::Detail, "caches", caches);
    }
    let ports = run.place.ports.map(|PortsView { base, count }| {
        format!("{base} to {}", base.saturating_add(count).saturating_sub(1))
    });
    facts.add(Rank::Detail, "ports", ports);
    facts
}

/// Describes a run's workspace in one line.
fn workspace_line(workspace: &WorkspaceView) -> String {
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
        short_commit(base)
    )
}

/// Describes a workspace's setup command in one line.
fn setup_line(setup: &CommandView) -> String {
    setup.problem().unwrap_or_else(|| {
        format!(
            "{}: passed in {}",
            setup.command.join(" "),
            duration::of(Duration::from_millis(setup.took_ms))
        )
    })
}

/// Names the files that were copied into a workspace, and those that were not.
fn copied_line(workspace: &WorkspaceView) -> String {
    let not_copied: Vec<String> = workspace
        .not_copied
        .iter()
        .map(|NotCopiedView { path, why }| format!("{path} ({why})"))
        .collect();
    let not_copied = (!not_copied.is_empty()).then(|| format!("not {}", not_copied.join(", ")));
    let copied = Some(workspace.copied.join(", ")).filter(|copied| !copied.is_empty());
    let parts: Vec<String> = copied.into_iter().chain(not_copied).collect();
    parts.join("; ")
}

fn settings(run: &RunView) -> Facts<'_> {
    let mut facts = Facts::default();
    let not_enforced = if run.terms.permissions_not_enforced {
        " (not enforced: the agent is a plain program)"
    } else {
        ""
    };
    let permissions = run.terms.permissions.as_ref();
    let permissions = permissions.map(|profile| format!("{profile}{not_enforced}"));
    facts.add(Rank::Detail, "permissions", permissions);
    facts.add(Rank::Detail, "model", run.terms.model.as_deref());
    facts.quote(Rank::Detail, "arguments", [arguments_line(&run.terms.args)]);
    facts.quote(Rank::Detail, "variables", [run.terms.set_env.join(", ")]);
    // The problem of a file names what is in it.
    let policies = run.terms.policies_not_in_effect.iter();
    facts.quote(Rank::Detail, "policies", policies.map(String::as_str));
    facts
}

/// Quotes the arguments that contain spaces or quotes.
fn arguments_line(args: &[String]) -> String {
    let shown = |arg: &String| match arg.is_empty()
        || arg.contains(|c: char| c.is_whitespace() || "'\"".contains(c))
    {
        true => format!("{arg:?}"),
        false => arg.clone(),
    };
    args.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn relations<'a>(run: &'a RunView, reader: &dyn Reader) -> Facts<'a> {
    let mut facts = Facts::default();
    let more = if run.place.shares_directory_more {
        " and more"
    } else {
        ""
    };
    let others = format!("{}{more}", run.place.shares_directory_with.join(", "));
    facts.add(Rank::Detail, "also here", [others]);
    facts.add(
        Rank::Detail,
        "started by",
        [reader.principal(&run.identity.owner)],
    );
    let parent = run
        .identity
        .parent_name
        .as_deref()
        .or(run.identity.parent.as_deref());
    facts.add(Rank::Detail, "child of", parent);
    facts.add(Rank::Detail, "children", [run.identity.children.join(", ")]);
    let subagents = run.activity.subagents.iter().map(subagent_line);
    facts.quote(Rank::Detail, "sub-agents", subagents);
    let more =
        (run.activity.subagents_more > 0).then(|| format!("{} more", run.activity.subagents_more));
    facts.add(Rank::Detail, "sub-agents", more);
    facts.add(Rank::Detail, "retry of", run.identity.retry_of.as_deref());
    facts
}

/// Describes a sub-agent of the CLI in one line.
fn subagent_line(subagent: &SubagentView) -> String {
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
    let tokens = tokens.map(|tokens| text::count(tokens, "token", "tokens"));
    let parts = [Some(name), state.clone(), tokens].into_iter().flatten();
    parts.collect::<Vec<_>>().join(", ")
}

fn progress<'a>(run: &'a RunView, reader: &dyn Reader) -> Facts<'a> {
    let mut facts = Facts::default();
    let ago = |time: &str| reader.ago(time);
    facts.add(Rank::Detail, "created", [ago(&run.times.created_at)]);
    facts.add(
        Rank::Detail,
        "started",
        run.times.started_at.as_deref().map(ago),
    );
    facts.add(
        Rank::Detail,
        "ended",
        run.times.ended_at.as_deref().map(ago),
    );
    let whose = if run.results.acceptance.is_some() {
        " (of the agent)"
    } else {
        ""
    };
    let code = run.condition.exit_code.map(|code| format!("{code}{whose}"));
    let rank = match run.condition.exit_code {
        Some(code) if code != 0 && run.condition.state != RunStateKind::Queued => Rank::Summary,
        _ => Rank::Detail,
    };
    facts.add(rank, "exit code", code);
    let rank = match run.condition.outcome {
        None => Rank::Summary,
        Some(_) => Rank::Detail,
    };
    let percent = run.activity.percent.map(|percent| format!("{percent}%"));
    let progress = run.activity.progress.as_deref().unwrap_or_default();
    facts.pairs(rank, "progress", [(percent.unwrap_or_default(), progress)]);
    facts.quote(rank, "eta", run.activity.eta.as_deref());
    let overdue = run.condition.overdue_since.as_deref();
    let overdue = overdue.map(|since| format!("longer than estimated, since {}", ago(since)));
    facts.add(Rank::Summary, "overdue", overdue);
    facts.quote(Rank::Detail, "criteria", run.terms.criteria.as_deref());
    let summary = run
        .results
        .summary
        .as_deref()
        .filter(|_| run.results.report.is_none());
    facts.quote(Rank::Detail, "summary", summary);
    facts
}

fn changes(run: &RunView) -> Facts<'_> {
    let mut facts = Facts::default();
    if let Some(files) = run
        .changes
        .changed_files
        .as_ref()
        .filter(|files| !files.is_empty())
    {
        let more = if run.changes.changed_files_more {
            ", …"
        } else {
            ""
        };
        let files = format!("{}{more}", files.join(", "));
        facts.quote(Rank::Detail, "changed", [files]);
        if run.changes.changed_before_too {
            facts.note("(all uncommitted files; changes from before the run are not known)");
        } else if !run.changes.changed_beside.is_empty() {
            facts.note(format!(
                "(during the run; {} also worked in this directory)",
                run.changes.changed_beside.join(", ")
            ));
        }
    }
    let conflicts = run.changes.conflicts.iter().map(conflict);
    facts.pairs(Rank::Warning, "conflicts", conflicts);
    if let Some(announced) = &run.changes.announced {
        let interfaces = announced.interfaces.iter();
        let interfaces = interfaces.map(|name| format!("interface {name}"));
        let all: Vec<String> = announced.paths.iter().cloned().chain(interfaces).collect();
        facts.quote(Rank::Detail, "announced", [all.join(", ")]);
    }
    let overlaps = run.changes.overlaps.iter().map(overlap);
    facts.pairs(Rank::Warning, "overlaps", overlaps);
    if !run.changes.unannounced_files.is_empty() {
        let files = run.changes.unannounced_files.join(", ");
        let pair = ("changed, but not announced:", files);
        facts.pairs(Rank::Warning, "unannounced", [pair]);
    }
    facts.add(
        Rank::Summary,
        "merge order",
        [run.changes.merge_order.join(", ")],
    );
    facts
}

fn overlap(overlap: &RunOverlapView) -> (String, String) {
    let item = |item: &OverlapView| {
        if item.own == item.other {
            item.own.clone()
        } else {
            format!("{} ({})", item.own, item.other)
        }
    };
    let items: Vec<String> = overlap.items.iter().map(item).collect();
    (format!("with {}:", overlap.run_name), items.join(", "))
}

/// Describes an overlap with what another run has announced in one line.
#[must_use]
pub fn overlap_line(of: &RunOverlapView) -> String {
    let (with, items) = overlap(of);
    format!("{with} {items}")
}

fn conflict(conflict: &RunConflictView) -> (String, String) {
    let files: Vec<String> = conflict
        .files
        .iter()
        .map(|file| format!("{} ({})", file.path, file.kind))
        .collect();
    (format!("with {}:", conflict.run_name), files.join(", "))
}

/// Describes a conflict with another run in one line.
#[must_use]
pub fn conflict_line(of: &RunConflictView) -> String {
    let (with, files) = conflict(of);
    format!("{with} {files}")
}

fn snapshots<'a>(run: &'a RunView, reader: &dyn Reader) -> Facts<'a> {
    let mut facts = Facts::default();
    let not_kept = run.changes.snapshot_problem.as_deref().map(not_kept);
    facts.add(Rank::Warning, "not kept", not_kept);
    facts.add(Rank::Detail, "gone", run.changes.gone.as_deref());
    let undo = run
        .changes
        .undo_interrupted
        .as_ref()
        .map(InterruptedUndoView::line);
    facts.add(Rank::Warning, "undo", undo);
    let first_shown = run
        .changes
        .snapshots
        .len()
        .saturating_sub(SNAPSHOTS_SHOWN_MAX);
    let shown = run.changes.snapshots.iter().enumerate().skip(first_shown);
    let shown = shown.map(|(at, snapshot)| {
        let earlier = if at == first_shown && at > 0 {
            format!(" (earlier: 1 to {at})")
        } else {
            String::new()
        };
        let left_out = if snapshot.left_out.is_empty() {
            String::new()
        } else {
            format!(", without {}", snapshot.left_out.join(", "))
        };
        let (name, at) = (snapshot_name(snapshot), reader.ago(&snapshot.at));
        format!("{name}, {at}{left_out}{earlier}")
    });
    facts.quote(Rank::Detail, "snapshots", shown);
    let copies =
        (!run.changes.committed_copies.is_empty()).then(|| run.changes.committed_copies.join(", "));
    if let Some(files) = copies {
        facts.quote(Rank::Detail, "copied files", [files]);
        facts.note("in its commits, which are kept and merged without files that can be secrets");
    }
    let commits = run.changes.commits.iter().take(COMMITS_SHOWN_MAX);
    facts.quote(Rank::Detail, "commits", commits.map(String::as_str));
    let more = run.changes.commits.len().saturating_sub(COMMITS_SHOWN_MAX);
    let more = (more > 0).then(|| format!("… and {more} more"));
    facts.add(Rank::Detail, "commits", more);
    facts
}

/// Shortens the id of a commit.
#[must_use]
pub fn short_commit(commit: &str) -> &str {
    commit.get(..COMMIT_CHARS).unwrap_or(commit)
}

/// Names a snapshot in a sentence.
#[must_use]
pub fn snapshot_name(snapshot: &SnapshotView) -> String {
    if snapshot.n == 0 {
        let commit = text::line(short_commit(&snapshot.commit));
        return format!("its base {commit}");
    }
    let cause = snapshot.cause.as_ref().and_then(Word::known);
    let cause = cause.map(|cause| format!(" ({})", cause.label()));
    format!("snapshot {}{}", snapshot.n, cause.unwrap_or_default())
}

fn usage(run: &RunView) -> Facts<'_> {
    let mut facts = Facts::default();
    facts.quote(
        Rank::Detail,
        "annotation",
        run.condition.annotation.as_deref(),
    );
    let ignored = run.activity.ignored_signals.as_ref().map(|ignored| {
        let signals = text::count(ignored.count, "signal", "signals");
        let last = ignored.last.as_str();
        (format!("{signals} without effect; last:"), last)
    });
    facts.pairs(Rank::Detail, "ignored", ignored);
    facts.add(Rank::Detail, "tree", run.cost.tree.as_ref().map(tree_line));
    let resources = run.processes.resources.as_ref().map(resources_line);
    facts.add(Rank::Detail, "resources", resources);
    let usage = run.cost.usage.as_ref().map(ToString::to_string);
    facts.add(Rank::Detail, "usage", usage);
    for budget in &run.cost.budgets {
        let of = if budget.of == run.identity.name {
            String::new()
        } else {
            format!(" (budget of {})", budget.of)
        };
        let is_warning = budget.nearly_used && run.condition.outcome.is_none();
        let rank = if is_warning {
            Rank::Warning
        } else {
            Rank::Detail
        };
        facts.add(rank, "budget", [format!("{budget}{of}")]);
    }
    facts
}

fn processes<'a>(run: &'a RunView, reader: &dyn Reader) -> Facts<'a> {
    let mut facts = Facts::default();
    facts.quote(Rank::Detail, "session", run.identity.session.as_deref());
    let containment = run.processes.containment.as_deref();
    facts.add(Rank::Internal, "contained by", containment);
    let fence = run.processes.fence.as_ref();
    facts.add(Rank::Detail, "fence", fence.map(ToString::to_string));
    facts.pairs(Rank::Warning, "denied", fence.and_then(FenceView::denied));
    let swept = run.processes.swept.filter(|n| *n > 0).map(|n| {
        text::count(
            n.into(),
            "leftover process ended",
            "leftover processes ended",
        )
    });
    facts.add(Rank::Detail, "swept", swept);
    let left_open = "truncated: a leftover process kept it open";
    let left_open = run.processes.output_left_open.then_some(left_open);
    facts.add(Rank::Detail, "output", left_open);
    facts.quote(
        Rank::Detail,
        "log",
        run.place.log_paths.iter().map(String::as_str),
    );
    let elsewhere = run.place.log_runner.as_ref();
    let elsewhere =
        elsewhere.map(|runner| format!("on the runner {runner}: {}", reader.log_command(run)));
    facts.add(Rank::Detail, "log", elsewhere);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{
        BudgetView, ConflictFileView, QueueView, RunActivityView, RunChangesView, RunCostView,
        RunInQueueView,
    };

    struct Plain;

    impl Reader for Plain {
        fn log_command(&self, run: &RunView) -> String {
            run.identity.name.clone()
        }
    }

    fn shown(run: &RunView, rank: Rank) -> Vec<String> {
        let facts = run_facts(run, &Plain);
        let facts = facts.iter().flatten().filter(|fact| fact.rank == rank);
        let quoted = |said: &str| format!("{said:?}");
        facts
            .map(|fact| format!("{} {}", fact.label, fact.line(str::to_owned, quoted)))
            .collect()
    }

    #[test]
    fn words_of_others_are_apart_from_those_of_adjutant() {
        let run = RunView {
            activity: RunActivityView {
                percent: Some(50),
                progress: Some("half".to_owned()),
                ..RunActivityView::default()
            },
            changes: RunChangesView {
                changed_files: Some(vec!["a".to_owned(), "b".to_owned()]),
                changed_before_too: true,
                conflicts: vec![RunConflictView {
                    run_name: "fox".to_owned(),
                    files: vec![ConflictFileView {
                        path: "a".to_owned(),
                        kind: Word::read("both"),
                    }],
                    ..RunConflictView::default()
                }],
                ..RunChangesView::default()
            },
            ..RunView::default()
        };
        assert_eq!(shown(&run, Rank::Summary), ["progress 50% \"half\""]);
        assert_eq!(
            shown(&run, Rank::Warning),
            ["conflicts with fox: \"a (both)\""]
        );
        let details = shown(&run, Rank::Detail).join("\n");
        let changed =
            "changed \"a, b\" (all uncommitted files; changes from before the run are not known)";
        assert!(details.contains(changed), "{details}");
    }

    #[test]
    fn wait_for_a_turn_and_an_unused_budget_are_details() {
        let waits = |waiting_for: QueueReason, nearly_used| RunView {
            in_queue: RunInQueueView {
                queue: Some(QueueView {
                    waiting_for: waiting_for.into(),
                    why: "why".to_owned(),
                    ..QueueView::default()
                }),
                ..RunInQueueView::default()
            },
            cost: RunCostView {
                budgets: vec![BudgetView {
                    nearly_used,
                    ..BudgetView::default()
                }],
                ..RunCostView::default()
            },
            ..RunView::default()
        };
        let ranks = |run: &RunView| {
            let facts = run_facts(run, &Plain);
            let facts = facts.iter().flatten();
            let facts = facts.filter(|fact| ["waits", "budget"].contains(&fact.label));
            facts.map(|fact| fact.rank).collect::<Vec<_>>()
        };
        let turn = ranks(&waits(QueueReason::Turn, false));
        assert_eq!(turn, [Rank::Detail, Rank::Detail]);
        let paused = ranks(&waits(QueueReason::PoolPaused, true));
        assert_eq!(paused, [Rank::Summary, Rank::Warning]);
    }
}
