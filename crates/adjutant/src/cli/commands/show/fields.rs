//! The labelled fields of a run.

use super::lines::{
    after_line, arguments_line, committed_copies, conflict_line, copied_line, left_out_text,
    overlap_line, pool_line, setup_line, start_text, subagent_line, submodules_line,
    workspace_line,
};
use crate::cli::commands::diff::named;
use crate::cli::context::Context;
use crate::cli::details::{INDENT, person, relative_time};
use crate::cli::run_state;
use crate::cli::style::Style;
use crate::present::{not_kept, resources_line, tree_line};
use crate::text;
use crate::view::{FenceView, InterruptedUndoView, PortsView, RunView, Word};
use adjutant_core::RunStateKind;
use adjutant_core::result::EndReason;

/// The column where the values begin.
const LABEL_COLUMNS: usize = 15;

/// Maximum number of commits that are shown, the newest.
const COMMITS_SHOWN_MAX: usize = 8;

/// Maximum number of snapshots that are shown, the newest.
const SNAPSHOTS_SHOWN_MAX: usize = 8;

/// Returns the fields of a run that have a value, one below the other.
pub(super) fn run_fields(run: &RunView, verbose: bool, cx: &Context) -> String {
    let mut fields = Fields {
        cx,
        columns: cx
            .out
            .columns
            .map_or(usize::MAX, |columns| columns.saturating_sub(LABEL_COLUMNS)),
        text: String::new(),
    };
    fields.add_state(run);
    fields.add_queue(run);
    fields.add_workspace(run);
    fields.add_settings(run);
    fields.add_relations(run);
    fields.add_progress(run);
    fields.add_changes(run);
    fields.add_snapshots(run);
    fields.add_usage(run);
    fields.add_processes(run, verbose);
    fields.text
}

struct Fields<'a> {
    cx: &'a Context,
    /// The width of a value.
    columns: usize,
    text: String,
}

impl Fields<'_> {
    /// Adds a field, unless it has no value.
    fn add(&mut self, label: &str, value: Option<&str>) {
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return;
        };
        let value =
            text::wrap(&text::line(value), self.columns).join(&format!("\n{:<LABEL_COLUMNS$}", ""));
        let label = self.cx.out.paint.apply(Style::Dim, &format!("{label:<12}"));
        self.text.push_str(&format!("{INDENT}{label} {value}\n"));
    }

    /// Adds a field with several values, each on a line of its own.
    fn add_list(&mut self, label: &str, values: impl IntoIterator<Item = String>) {
        for (n, value) in values.into_iter().enumerate() {
            self.add(if n == 0 { label } else { "" }, Some(&value));
        }
    }

    /// Adds a time, on a terminal as its age.
    fn add_time(&mut self, label: &str, time: Option<&str>) {
        let time = time.map(|time| self.ago(time));
        self.add(label, time.as_deref());
    }

    fn ago(&self, time: &str) -> String {
        if self.cx.out.terminal {
            format!("{} ago", self.cx.time(time))
        } else {
            time.to_owned()
        }
    }

    fn add_state(&mut self, run: &RunView) {
        self.add("id", Some(&run.run_id));
        self.add("status", Some(run.status.as_str()));
        // The heading names a limit.
        self.add(
            "reason",
            run.reason
                .as_deref()
                .filter(|_| run_state::limit_text(run).is_none()),
        );
        // The lines above say the other reasons. A paused run has not ended.
        let has_ended = run.state == RunStateKind::Finished;
        let is_shown = |reason: &EndReason| match reason {
            EndReason::Completed | EndReason::Error | EndReason::Cancelled => false,
            EndReason::Partial => has_ended,
            _ => true,
        };
        self.add(
            "ended by",
            run.end_reason
                .as_ref()
                .and_then(Word::known)
                .filter(is_shown)
                .map(EndReason::word),
        );
        self.add("note", run.note.as_deref());
        self.add("task", Some(&run.task));
        self.add(
            "agent",
            Some(&format!("{}, attempt {}", run.agent, run.attempt)),
        );
        self.add("chosen", run.agent_why.as_deref());
    }

    fn add_queue(&mut self, run: &RunView) {
        self.add("pool", Some(&pool_line(run)));
        self.add(
            "after",
            Some(
                &run.after
                    .iter()
                    .map(after_line)
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        );
        self.add("waits", run.queue.as_ref().map(|queue| queue.why.as_str()));
        let starts = run
            .queue
            .as_ref()
            .and_then(|queue| queue.starts_about.as_deref())
            .map(|at| start_text(at, self.cx));
        self.add("starts", starts.as_deref());
    }

    fn add_workspace(&mut self, run: &RunView) {
        self.add("directory", Some(&run.cwd));
        if let Some(workspace) = &run.workspace {
            self.add("workspace", Some(&workspace_line(workspace)));
            self.add("setup", workspace.setup.as_ref().map(setup_line).as_deref());
            self.add("copied", Some(&copied_line(workspace)));
            self.add("submodules", submodules_line(workspace).as_deref());
            self.add_list(
                "caches",
                workspace
                    .caches
                    .iter()
                    .map(|(variable, dir)| format!("{variable}={dir}")),
            );
        }
        let ports = run.ports.map(|PortsView { base, count }| {
            format!("{base} to {}", base.saturating_add(count).saturating_sub(1))
        });
        self.add("ports", ports.as_deref());
    }

    fn add_settings(&mut self, run: &RunView) {
        let not_enforced = if run.permissions_not_enforced {
            " (not enforced: the agent is a plain program)"
        } else {
            ""
        };
        self.add(
            "permissions",
            run.permissions
                .as_ref()
                .map(|profile| format!("{profile}{not_enforced}"))
                .as_deref(),
        );
        self.add("model", run.model.as_deref());
        self.add("arguments", Some(&arguments_line(&run.args)));
        self.add("variables", Some(&run.set_env.join(", ")));
        for why in &run.policies_not_in_effect {
            self.add("policies", Some(why));
        }
    }

    fn add_relations(&mut self, run: &RunView) {
        let more = if run.shares_directory_more {
            " and more"
        } else {
            ""
        };
        self.add(
            "also here",
            Some(&format!("{}{more}", run.shares_directory_with.join(", "))),
        );
        self.add("started by", Some(person(&run.owner)));
        self.add(
            "child of",
            run.parent_name.as_deref().or(run.parent.as_deref()),
        );
        self.add("children", Some(&run.children.join(", ")));
        for subagent in &run.subagents {
            self.add("sub-agent", Some(&subagent_line(subagent)));
        }
        if run.subagents_more > 0 {
            self.add("sub-agents", Some(&format!("{} more", run.subagents_more)));
        }
        self.add("retry of", run.retry_of.as_deref());
    }

    fn add_progress(&mut self, run: &RunView) {
        self.add_time("created", Some(&run.created_at));
        self.add_time("started", run.started_at.as_deref());
        self.add_time("ended", run.ended_at.as_deref());
        let whose = if run.acceptance.is_some() {
            " (of the agent)"
        } else {
            ""
        };
        self.add(
            "exit code",
            run.exit_code
                .map(|code| format!("{code}{whose}"))
                .as_deref(),
        );
        let percent = run
            .percent
            .map(|percent| format!("{percent}%"))
            .unwrap_or_default();
        self.add(
            "progress",
            Some(format!("{percent} {}", run.progress.as_deref().unwrap_or("")).trim()),
        );
        self.add("eta", run.eta.as_deref());
        let overdue = run
            .overdue_since
            .as_deref()
            .map(|since| format!("longer than estimated, since {}", self.ago(since)));
        self.add("overdue", overdue.as_deref());
        self.add("criteria", run.criteria.as_deref());
        self.add(
            "summary",
            run.summary.as_deref().filter(|_| run.report.is_none()),
        );
    }

    fn add_changes(&mut self, run: &RunView) {
        let more = if run.changed_files_more { ", …" } else { "" };
        let whose = match (run.changed_before_too, run.changed_beside.as_slice()) {
            (true, _) => {
                " (all uncommitted files; changes from before the run are not known)".to_owned()
            }
            (false, []) => String::new(),
            (false, others) => format!(
                " (during the run; {} also worked in this directory)",
                others.join(", ")
            ),
        };
        let changed = run.changed_files.as_ref().filter(|files| !files.is_empty());
        self.add(
            "changed",
            changed
                .map(|files| format!("{}{more}{whose}", files.join(", ")))
                .as_deref(),
        );
        self.add_list("conflicts", run.conflicts.iter().map(conflict_line));
        if let Some(announced) = &run.announced {
            let interfaces = announced
                .interfaces
                .iter()
                .map(|name| format!("interface {name}"));
            let all: Vec<String> = announced.paths.iter().cloned().chain(interfaces).collect();
            self.add("announced", Some(&all.join(", ")));
        }
        self.add_list("overlaps", run.overlaps.iter().map(overlap_line));
        let unannounced = (!run.unannounced_files.is_empty()).then(|| {
            format!(
                "changed, but not announced: {}",
                run.unannounced_files.join(", ")
            )
        });
        self.add("unannounced", unannounced.as_deref());
        self.add("merge order", Some(&run.merge_order.join(", ")));
    }

    fn add_snapshots(&mut self, run: &RunView) {
        self.add(
            "not kept",
            run.snapshot_problem.as_deref().map(not_kept).as_deref(),
        );
        self.add("gone", run.gone.as_deref());
        self.add(
            "undo",
            run.undo_interrupted
                .as_ref()
                .map(InterruptedUndoView::line)
                .as_deref(),
        );
        let first_shown = run.snapshots.len().saturating_sub(SNAPSHOTS_SHOWN_MAX);
        let cx = self.cx;
        self.add_list(
            "snapshots",
            run.snapshots
                .iter()
                .enumerate()
                .skip(first_shown)
                .map(|(at, snapshot)| {
                    let earlier = if at == first_shown && at > 0 {
                        format!(" (earlier: 1 to {at})")
                    } else {
                        String::new()
                    };
                    format!(
                        "{}, {}{}{earlier}",
                        named(snapshot),
                        relative_time(&snapshot.at, cx),
                        left_out_text(snapshot)
                    )
                }),
        );
        self.add("copied files", committed_copies(run).as_deref());
        self.add_list(
            "commits",
            run.commits.iter().take(COMMITS_SHOWN_MAX).cloned(),
        );
        if run.commits.len() > COMMITS_SHOWN_MAX {
            self.add(
                "",
                Some(&format!(
                    "… and {} more",
                    run.commits.len() - COMMITS_SHOWN_MAX
                )),
            );
        }
    }

    fn add_usage(&mut self, run: &RunView) {
        self.add("annotation", run.annotation.as_deref());
        let ignored = run.ignored_signals.as_ref();
        let ignored = ignored.map(|ignored| {
            format!(
                "{} without effect; last: {}",
                text::count(ignored.count, "signal", "signals"),
                ignored.last
            )
        });
        self.add("ignored", ignored.as_deref());
        self.add("tree", run.tree.as_ref().map(tree_line).as_deref());
        self.add(
            "resources",
            run.resources.as_ref().map(resources_line).as_deref(),
        );
        self.add(
            "usage",
            run.usage.as_ref().map(ToString::to_string).as_deref(),
        );
        self.add_list(
            "budget",
            run.budgets.iter().map(|budget| {
                let of = if budget.of == run.name {
                    String::new()
                } else {
                    format!(" (budget of {})", budget.of)
                };
                format!("{budget}{of}")
            }),
        );
    }

    fn add_processes(&mut self, run: &RunView, verbose: bool) {
        self.add("session", run.session.as_deref());
        self.add(
            "contained by",
            run.containment.as_deref().filter(|_| verbose),
        );
        self.add(
            "fence",
            run.fence.as_ref().map(ToString::to_string).as_deref(),
        );
        self.add(
            "denied",
            run.fence
                .as_ref()
                .and_then(FenceView::denied_line)
                .as_deref(),
        );
        let swept = run.swept.filter(|n| *n > 0).map(|n| {
            text::count(
                n.into(),
                "leftover process ended",
                "leftover processes ended",
            )
        });
        self.add("swept", swept.as_deref());
        self.add(
            "output",
            run.output_left_open
                .then_some("truncated: a leftover process kept it open"),
        );
        let elsewhere = run
            .log_runner
            .as_ref()
            .map(|runner| format!("on the runner {runner}: adj logs {}", run.name));
        self.add_list("log", run.log_paths.iter().cloned().chain(elsewhere));
    }
}
