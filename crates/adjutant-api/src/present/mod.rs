//! What the interfaces show of a run, decided once: its labelled facts, and the parts of a
//! checkpoint, a clarification, a delegation and a report, in order, each with its name in the
//! contract and its label for people. Each interface only lays them out.

mod facts;
mod state;
mod steps;

pub use facts::{
    Fact, Rank, Reader, conflict_line, overlap_line, run_facts, short_commit, snapshot_name,
};
pub use state::{Place, StateLabel, Tone, limit_text, state_label};
pub use steps::{ResumeStep, RunNeed, choice_words, resume_step, run_need};

use crate::text;
use crate::view::{
    CheckpointView, ClarificationView, CommandView, DelegationView, ReportView, RequestView,
    ResourcesView, TreeStatsView,
};
use adjutant_core::checkpoint::CheckpointAuthor;
use adjutant_core::policy::{Operation, OperationPart, approval_parts, parts_line};
use adjutant_core::units::{duration, money, size};
use adjutant_core::{RequestKind, shorten};
use std::borrow::Cow;
use std::time::Duration;

/// A displayed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The field's name in the contract.
    pub name: &'static str,
    /// The label for people.
    pub label: &'static str,
    pub text: &'a str,
}

fn part<'a>(name: &'static str, label: &'static str, text: Option<&'a str>) -> Option<Part<'a>> {
    text.map(|text| Part { name, label, text })
}

/// Returns the parts of a checkpoint, without its changed files.
#[must_use]
pub fn checkpoint_parts(checkpoint: &CheckpointView) -> Vec<Part<'_>> {
    let CheckpointView {
        made_by,
        blocker_type,
        details,
        completed_work,
        blocked_work,
        state_snapshot,
        resume_requirements,
        error_recovery,
        working_directory,
        changed_files: _,
    } = checkpoint;
    let parts = [
        part("blocker_type", "blocker", blocker_type.as_deref()),
        part("details", "details", Some(details)),
        part("completed_work", "completed", completed_work.as_deref()),
        part("blocked_work", "blocked", blocked_work.as_deref()),
        part("state_snapshot", "state", state_snapshot.as_deref()),
        part(
            "resume_requirements",
            "needs",
            resume_requirements.as_deref(),
        ),
        part("error_recovery", "recovery", error_recovery.as_deref()),
        part(
            "working_directory",
            "directory",
            working_directory.as_deref(),
        ),
        part(
            "made_by",
            "made by",
            (*made_by == CheckpointAuthor::Adjutant).then_some(made_by.as_str()),
        ),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the parts of a clarification, without its questions.
pub fn clarification_parts(clarification: &ClarificationView) -> impl Iterator<Item = Part<'_>> {
    let ClarificationView {
        reason,
        blocked_at,
        can_resume_with,
        current_state,
    } = clarification;
    let parts = [
        part("reason", "reason", reason.as_deref()),
        part("blocked_at", "blocked at", blocked_at.as_deref()),
        part("can_resume_with", "needs", can_resume_with.as_deref()),
        part("current_state", "state", current_state.as_deref()),
    ];
    parts.into_iter().flatten()
}

/// Returns the parts of a delegation, without its task, its priority and whether the run waits for
/// it.
pub fn delegation_parts(delegation: &DelegationView) -> impl Iterator<Item = Part<'_>> {
    let DelegationView {
        agent,
        cwd,
        independence: _,
        priority: _,
        reason,
        context_required,
        coordination,
        estimated_duration,
        budget,
        changes: _,
        room: _,
    } = delegation;
    let parts = [
        part("agent", "agent", agent.as_deref()),
        part("directory", "directory", cwd.as_deref()),
        part("reason", "reason", reason.as_deref()),
        part("context", "context", context_required.as_deref()),
        part("coordination", "coordination", coordination.as_deref()),
        part("takes", "estimate", estimated_duration.as_deref()),
        part("budget", "budget", budget.as_deref()),
    ];
    parts.into_iter().flatten()
}

/// A request as the person and parents see it: its text, and everything else that a decision
/// allows. Interfaces show requests only through this, so that none omits a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedFor<'a> {
    pub text: &'a str,
    /// Command, files, addresses, directories and preview of an approval; agent, directory and
    /// budget of a delegation.
    pub parts: Vec<OperationPart>,
}

/// Returns what a request asks for.
#[must_use]
pub fn asked_for(request: &RequestView) -> AskedFor<'_> {
    let parts = match (request.kind.known(), &request.delegated.delegation) {
        (Some(RequestKind::Question), _) => Vec::new(),
        (_, Some(delegation)) => {
            let allowed = delegation_parts(delegation)
                .filter(|part| ["agent", "directory", "budget"].contains(&part.name));
            allowed
                .map(|Part { name, label, text }| OperationPart {
                    name,
                    label,
                    text: text.to_owned(),
                })
                .collect()
        }
        (_, None) => approval_parts(
            request
                .content
                .operation
                .clone()
                .map(Operation::from)
                .as_ref(),
            request.content.preview.as_deref(),
        ),
    };
    AskedFor {
        text: &request.content.question,
        parts,
    }
}

/// Returns what an approval allows, without its preview. Interfaces show the preview and the parts of
/// a delegation apart.
#[must_use]
pub fn operation_parts(request: &RequestView) -> Vec<OperationPart> {
    let mut parts = asked_for(request).parts;
    parts.retain(|part| part.name != "preview" && request.delegated.delegation.is_none());
    parts
}

impl AskedFor<'_> {
    /// Formats the request in one line. Of an approval or a delegation, long parts are cut, with a
    /// mark.
    #[must_use]
    pub fn line(&self) -> String {
        if self.parts.is_empty() {
            self.text.to_owned()
        } else {
            parts_line(self.text, &self.parts)
        }
    }

    /// Returns a line for each part, of which at most `chars_max` characters are shown, and whether
    /// all is shown.
    #[must_use]
    pub fn part_lines(&self, chars_max: usize, parts_max: usize) -> (Vec<String>, bool) {
        let mut is_whole = true;
        let mut lines = Vec::new();
        for (n, OperationPart { name, label, text }) in self.parts.iter().enumerate() {
            // Many files never hide an address.
            if self.parts[..n]
                .iter()
                .filter(|other| other.name == *name)
                .count()
                >= parts_max
            {
                is_whole = false;
                continue;
            }
            is_whole &= text.chars().count() <= chars_max;
            lines.push(format!("{label}: {}", shorten::counted(text, chars_max)));
        }
        let more = self.parts.len() - lines.len();
        if more > 0 {
            lines.push(format!("… {more} more"));
        }
        (lines, is_whole)
    }
}

/// Returns the claims of a report, without its deliverables.
pub fn report_claims(report: &ReportView) -> impl Iterator<Item = Part<'_>> {
    let parts = [
        part("summary", "summary", Some(&report.summary)),
        part(
            "metrics_achieved",
            "metrics",
            report.metrics_achieved.as_deref(),
        ),
        part(
            "issues_encountered",
            "issues",
            report.issues_encountered.as_deref(),
        ),
        part(
            "recommendations",
            "recommendations",
            report.recommendations.as_deref(),
        ),
        part(
            "total_duration",
            "duration",
            report.total_duration.as_deref(),
        ),
    ];
    parts.into_iter().flatten()
}

/// Returns what a report claims in a field, which its evidence was checked for.
#[must_use]
pub fn claim<'a>(report: &'a ReportView, field: &str) -> Option<Cow<'a, str>> {
    if field == "deliverables" {
        return Some(report.deliverables.join("\n").into());
    }
    let part = report_claims(report).find(|part| part.name == field)?;
    Some(part.text.into())
}

/// Describes the result of an acceptance command in one line.
#[must_use]
pub fn acceptance_line(acceptance: &CommandView) -> String {
    match acceptance.problem() {
        Some(problem) => format!("failed: {problem}"),
        None => format!("{}: passed", acceptance.command.join(" ")),
    }
}

/// Describes in one line what a run's processes use.
#[must_use]
pub(crate) fn resources_line(of: &ResourcesView) -> String {
    let mut parts = Vec::new();
    if of.processes > 0 {
        parts.push(text::count(of.processes.into(), "process", "processes"));
        parts.push(format!(
            "{} of memory (peak {})",
            size::text(of.memory_bytes),
            size::text(of.memory_peak_bytes)
        ));
        parts.push(format!("{} % of a core", of.cpu_percent));
    } else {
        parts.push(format!("memory peak {}", size::text(of.memory_peak_bytes)));
    }
    parts.push(format!(
        "{} CPU time",
        duration::of(Duration::from_millis(of.cpu_ms))
    ));
    if let Some(written) = of.written_bytes.filter(|written| *written > 0) {
        parts.push(format!("{} written", size::text(written)));
    }
    if of.output_bytes_per_s > 0 {
        parts.push(format!("{}/s of output", size::text(of.output_bytes_per_s)));
    }
    parts.join(", ")
}

/// Returns the items of a text that is only a list, in one line. `None`: it is not a list of
/// several items.
#[must_use]
pub fn list_in_one_line(text: &str) -> Option<String> {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let items: Option<Vec<&str>> = lines
        .iter()
        .map(|line| {
            line.strip_prefix("- ")
                .or(line.strip_prefix("* "))
                .map(str::trim)
        })
        .collect();
    items
        .filter(|items| items.len() > 1)
        .map(|items| items.join("; "))
}

/// Says that a run's snapshots do not have all files, in the words of all interfaces.
#[must_use]
pub fn not_kept(why: &str) -> String {
    format!("not all files are kept, so adj undo cannot restore them: {why}")
}

/// Formats the sum of costs that are known: in US dollars, or `unknown`.
#[must_use]
pub fn cost(known_micros: Option<u64>, unknown_runs: u64) -> String {
    let of = |known: u64| money::text(i64::try_from(known).unwrap_or(i64::MAX));
    match (known_micros, unknown_runs) {
        (None, _) => "unknown".to_owned(),
        (Some(known), 0) => of(known),
        (Some(known), unknown) => format!(
            "{} and {}",
            of(known),
            text::count(unknown, "unknown", "unknown")
        ),
    }
}

/// Describes what a tree of runs took, in one line.
#[must_use]
pub fn tree_line(of: &TreeStatsView) -> String {
    let TreeStatsView {
        runs,
        elapsed_ms,
        sequential_ms,
        cost_micros,
        cost_unknown_runs,
    } = of;
    let cost = cost(*cost_micros, *cost_unknown_runs);
    let elapsed = duration::of(Duration::from_millis(*elapsed_ms));
    if *runs == 1 {
        return format!("took {elapsed}, cost {cost}");
    }
    let sequential = duration::of(Duration::from_millis(*sequential_ms));
    format!(
        "{} took {elapsed} (one agent in sequence: about {sequential}), cost {cost}",
        text::count(*runs, "run", "runs")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_short() {
        let costs = [
            cost(None, 2),
            cost(Some(0), 0),
            cost(Some(310_000), 0),
            cost(Some(1_250), 1),
        ];
        assert_eq!(costs, ["unknown", "$0", "$0.31", "$0.00125 and 1 unknown"]);
    }

    #[test]
    fn list_becomes_one_line() {
        assert_eq!(
            list_in_one_line("- a: 1\n- b\n").as_deref(),
            Some("a: 1; b")
        );
        assert_eq!(
            (
                list_in_one_line("text\n- a\n- b"),
                list_in_one_line("- a"),
                list_in_one_line("")
            ),
            (None, None, None)
        );
    }

    #[test]
    fn tree_is_compared_with_one_agent_in_sequence() {
        let tree = TreeStatsView {
            runs: 3,
            elapsed_ms: 250_000,
            sequential_ms: 540_000,
            cost_micros: None,
            cost_unknown_runs: 3,
        };
        assert_eq!(
            tree_line(&tree),
            "3 runs took 4m10s (one agent in sequence: about 9m), cost unknown"
        );
        assert_eq!(
            tree_line(&TreeStatsView { runs: 1, ..tree }),
            "took 4m10s, cost unknown"
        );
    }

    #[test]
    fn parts_are_ordered_and_missing_ones_omitted() {
        let checkpoint = CheckpointView {
            details: "d".to_owned(),
            state_snapshot: Some("s".to_owned()),
            ..CheckpointView::default()
        };
        let shown: Vec<_> = checkpoint_parts(&checkpoint)
            .into_iter()
            .map(|part| (part.name, part.label, part.text))
            .collect();
        assert_eq!(
            shown,
            [
                ("details", "details", "d"),
                ("state_snapshot", "state", "s")
            ]
        );
        let clarification = ClarificationView {
            can_resume_with: Some("npm".to_owned()),
            ..ClarificationView::default()
        };
        assert_eq!(
            clarification_parts(&clarification)
                .map(|part| (part.name, part.label))
                .collect::<Vec<_>>(),
            [("can_resume_with", "needs")]
        );
    }
}
