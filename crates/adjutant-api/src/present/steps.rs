//! What a run needs, and how it goes on.

use crate::text;
use crate::view::{AttentionKind, BudgetView, InterruptedUndoView, RunView};
use adjutant_core::pool::AfterState;

/// What a run needs of the person.
#[derive(Debug, Clone, Copy)]
pub enum RunNeed<'a> {
    /// To be resumed or cancelled.
    Resume,
    /// To be cancelled or waited for: its process lives on after its report.
    EndOrWait,
    /// To have its undo completed.
    Undo(&'a InterruptedUndoView),
    /// Its end to be noticed.
    Notice,
}

/// Returns what a run needs that needs the person.
#[must_use]
pub fn run_need(run: &RunView) -> RunNeed<'_> {
    let attention = run.condition.attention.as_ref();
    match (attention, &run.changes.undo_interrupted) {
        (Some(attention), _) if attention.is_stop() => RunNeed::Resume,
        (Some(attention), _) if attention.kind == AttentionKind::Alive => RunNeed::EndOrWait,
        (_, Some(undo)) => RunNeed::Undo(undo),
        (_, None) => RunNeed::Notice,
    }
}

/// What resumes a stopped or held run.
#[derive(Debug, Clone)]
pub enum ResumeStep<'a> {
    /// A retry of the run that has failed, or a resume without it.
    Retry(&'a str),
    /// More of a budget that is used up.
    Raise(&'a BudgetView),
    /// One of these choices.
    Choose(String),
    /// What the run needs to know.
    Tell,
}

/// Returns what resumes a stopped or held run.
#[must_use]
pub fn resume_step(run: &RunView) -> ResumeStep<'_> {
    let is_cause = |state| run.is_held() && state == AfterState::Failed;
    let mut after = run.in_queue.after.iter();
    if let Some(failed) = after.find(|after| after.state.known().is_some_and(is_cause)) {
        return ResumeStep::Retry(&failed.name);
    }
    match run.cost.budgets.iter().find(|budget| budget.left == 0) {
        Some(used_up) => ResumeStep::Raise(used_up),
        None if run.condition.choices.is_empty() => ResumeStep::Tell,
        None => ResumeStep::Choose(choice_words(run)),
    }
}

/// Returns the words of a run's choices.
#[must_use]
pub fn choice_words(run: &RunView) -> String {
    let words = run
        .condition
        .choices
        .iter()
        .map(|choice| text::line(choice.choice.as_str()));
    words.collect::<Vec<_>>().join("|")
}
