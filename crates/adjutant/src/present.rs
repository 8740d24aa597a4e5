//! The displayed parts of a checkpoint, a clarification, a delegation and a report, in order, each with its name in
//! the contract and its label for people. Each interface formats them itself.

use crate::view::{CheckpointView, ClarificationView, DelegationView, ReportView};
use adjutant_core::checkpoint::CheckpointAuthor;

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
        part("resume_requirements", "needs", resume_requirements.as_deref()),
        part("error_recovery", "recovery", error_recovery.as_deref()),
        part("working_directory", "directory", working_directory.as_deref()),
        part("made_by", "made by", (*made_by == CheckpointAuthor::Adjutant).then_some(made_by.as_str())),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the parts of a clarification, without its questions.
pub fn clarification_parts(clarification: &ClarificationView) -> impl Iterator<Item = Part<'_>> {
    let ClarificationView { reason, blocked_at, can_resume_with, current_state } = clarification;
    let parts = [
        part("reason", "reason", reason.as_deref()),
        part("blocked_at", "blocked at", blocked_at.as_deref()),
        part("can_resume_with", "needs", can_resume_with.as_deref()),
        part("current_state", "state", current_state.as_deref()),
    ];
    parts.into_iter().flatten()
}

/// Returns the parts of a delegation, without its task, its priority and whether the run waits for it.
pub fn delegation_parts(delegation: &DelegationView) -> impl Iterator<Item = Part<'_>> {
    let DelegationView { agent, cwd, independence: _, priority: _, reason, context_required, coordination, estimated_duration, changes: _, room: _ } =
        delegation;
    let parts = [
        part("agent", "agent", agent.as_deref()),
        part("directory", "directory", cwd.as_deref()),
        part("reason", "reason", reason.as_deref()),
        part("context", "context", context_required.as_deref()),
        part("coordination", "coordination", coordination.as_deref()),
        part("takes", "estimate", estimated_duration.as_deref()),
    ];
    parts.into_iter().flatten()
}

/// Returns the claims of a report, without its deliverables.
pub fn report_claims(report: &ReportView) -> impl Iterator<Item = Part<'_>> {
    let parts = [
        part("summary", "summary", Some(&report.summary)),
        part("metrics_achieved", "metrics", report.metrics_achieved.as_deref()),
        part("issues_encountered", "issues", report.issues_encountered.as_deref()),
        part("recommendations", "recommendations", report.recommendations.as_deref()),
        part("total_duration", "duration", report.total_duration.as_deref()),
    ];
    parts.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_ordered_and_missing_ones_omitted() {
        let checkpoint = CheckpointView { details: "d".to_owned(), state_snapshot: Some("s".to_owned()), ..CheckpointView::default() };
        let shown: Vec<_> = checkpoint_parts(&checkpoint).into_iter().map(|part| (part.name, part.label, part.text)).collect();
        assert_eq!(shown, [("details", "details", "d"), ("state_snapshot", "state", "s")]);
        let clarification = ClarificationView { can_resume_with: Some("npm".to_owned()), ..ClarificationView::default() };
        assert_eq!(clarification_parts(&clarification).map(|part| (part.name, part.label)).collect::<Vec<_>>(), [("can_resume_with", "needs")]);
    }
}
