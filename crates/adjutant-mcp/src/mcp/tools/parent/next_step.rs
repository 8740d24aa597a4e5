//! Suggesting the next call.

use crate::mcp::text::line;
use crate::view::{RequestView, RunView};
use adjutant_core::pool::AfterState;
use adjutant_core::{RequestKind, RunStateKind};

pub(in crate::mcp) const WAIT_AGAIN: &str = "wait_for_subagents";

/// Returns whether a run is stopped or held until it is resumed.
pub(in crate::mcp) fn is_stopped(run: &RunView) -> bool {
    run.is_held() || run.state == RunStateKind::Stopped && !run.resumes_by_itself
}

pub(in crate::mcp) fn resume_hint(run: &RunView) -> String {
    if run.is_held() {
        let failed = run
            .after
            .iter()
            .find(|after| after.state == AfterState::Failed)
            .map_or("the failed run", |after| &after.name);
        let name = line(&run.name, 60);
        return format!(
            "retry {} (steer_subagent action=retry), or steer_subagent action=resume|cancel run_id={name}",
            line(failed, 60)
        );
    }
    if let Some(budget) = run.budgets.iter().find(|budget| budget.left == 0) {
        return format!(
            "ask your user, then steer_subagent action=resume run_id={} budget={}",
            line(&run.name, 60),
            budget.example()
        );
    }
    if !run.choices.is_empty() {
        let words: Vec<String> = run
            .choices
            .iter()
            .map(|choice| line(choice.choice.as_str(), 20))
            .collect();
        return format!(
            "steer_subagent action=resume run_id={} choice={} (text: what it needs to know)",
            line(&run.name, 60),
            words.join("|")
        );
    }
    format!(
        "steer_subagent action=resume run_id={} with what it needs to continue in text, and next_step",
        line(&run.name, 60)
    )
}

pub(in crate::mcp) fn reply_hint(needs: &[RequestView]) -> String {
    let numbers: Vec<String> = needs
        .iter()
        .take(5)
        .map(|request| line(&request.number, 24))
        .collect();
    match numbers.as_slice() {
        [one] if needs[0].kind != RequestKind::Question => {
            format!("reply_subagent message_id={one} decision=approve, or deny with reason")
        }
        [one] => format!("reply_subagent message_id={one}"),
        several => format!("reply_subagent with answers for {}", several.join(", ")),
    }
}
