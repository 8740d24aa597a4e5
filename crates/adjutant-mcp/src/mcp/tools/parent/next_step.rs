//! Suggesting the next call.

use crate::mcp::text::line;
use crate::present::{ResumeStep, resume_step};
use crate::view::{RequestView, RunView};
use adjutant_core::RequestKind;

pub(in crate::mcp) const WAIT_AGAIN: &str = "wait_for_subagents";

pub(in crate::mcp) fn resume_hint(run: &RunView) -> String {
    let name = line(&run.identity.name, 60);
    match resume_step(run) {
        ResumeStep::Retry(failed) => format!(
            "retry {} (steer_subagent action=retry), or steer_subagent action=resume|cancel run_id={name}",
            line(failed, 60)
        ),
        ResumeStep::Raise(budget) => format!(
            "ask your user, then steer_subagent action=resume run_id={name} budget={}",
            budget.example()
        ),
        ResumeStep::Choose(words) => format!(
            "steer_subagent action=resume run_id={name} choice={words} (text: what it needs to know)"
        ),
        ResumeStep::Tell => format!(
            "steer_subagent action=resume run_id={name} with what it needs to continue in text, and next_step"
        ),
    }
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
