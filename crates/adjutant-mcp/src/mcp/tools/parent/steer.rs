//! Sending a message to a run, pausing, resuming, cancelling and retrying it.

use super::next_step::WAIT_AGAIN;
use crate::config;
use crate::mcp::caller::Caller;
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::Session;
use crate::mcp::show::{self, RESULT_CHARS_LISTED, Shown};
use crate::mcp::text::line;
use crate::view::{Cancel, Delivery, Pause, Resume, Retry, RunView, SendToRun, Word};
use adjutant_core::checkpoint::Choice;
use adjutant_core::{RunStateKind, words};
use serde::Deserialize;
use serde_json::json;

/// The arguments of `steer_subagent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct SteerSubagentArgs {
    run_id: String,
    action: SteerAction,
    text: Option<String>,
    choice: Option<Word<Choice>>,
    next_step: Option<String>,
    budget: Option<String>,
}

/// The action on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SteerAction {
    Message,
    Stop,
    Resume,
    Cancel,
    Retry,
}

words!(SteerAction { Message = "message", Stop = "stop", Resume = "resume", Cancel = "cancel", Retry = "retry" });

pub(in crate::mcp) async fn steer_subagent(
    session: &Session,
    _caller: &Caller,
    args: SteerSubagentArgs,
) -> ToolResult {
    let SteerSubagentArgs {
        run_id: run,
        action,
        text,
        choice,
        next_step,
        budget,
    } = args;
    if action != SteerAction::Resume && next_step.is_some() {
        return Err(Refusal::invalid(
            "next_step belongs to action=resume",
            "omit next_step, or pass action=resume",
        ));
    }
    if action != SteerAction::Resume && budget.is_some() {
        return Err(Refusal::invalid(
            "budget belongs to action=resume",
            "omit budget, or pass action=resume",
        ));
    }
    match action {
        SteerAction::Message => {
            let Some(text) = text else {
                return Err(Refusal::invalid("there is no message", "pass it in text"));
            };
            let message = session.client().call(&SendToRun { run, text }).await?;
            let shown = Shown::new(json!({
                "run_id": message.run_id,
                "name": message.run_name,
                "action": action.word(),
                "message_id": message.message_id,
                "delivery": message.delivery,
            }));
            let how = match message.delivery.known() {
                Some(Delivery::Live) => "in the agent's input",
                Some(Delivery::ToolResult) => "delivered with its next tool call",
                _ => "delivered when it accepts input",
            };
            let sent = format!(
                "message for {}: {} ({how})",
                line(&message.run_name, 60),
                line(message.delivery.as_str(), 40)
            );
            reply(shown.line(sent).next(WAIT_AGAIN))
        }
        SteerAction::Stop => {
            let run = session.client().call(&Pause { run }).await?;
            reply(describe_steering(&run, action).line(ending_line(&run, "stopping")).next(match is_stopping(&run) {
                true => format!("{WAIT_AGAIN} shows when it has stopped; then steer_subagent action=resume continues it"),
                false => "steer_subagent action=resume continues it".to_owned(),
            }))
        }
        SteerAction::Resume => {
            let run = session
                .client()
                .call(&Resume {
                    run,
                    resolution: text,
                    next_step,
                    choice,
                    budget,
                    env: config::dispatch_env(),
                })
                .await?;
            reply(
                describe_steering(&run, action)
                    .line(show::run_line(&run))
                    .next(WAIT_AGAIN),
            )
        }
        SteerAction::Cancel => {
            let run = session.client().call(&Cancel { run, reason: text }).await?;
            reply(
                describe_steering(&run, action)
                    .line(ending_line(&run, "being cancelled"))
                    .next(format!("{WAIT_AGAIN} shows its end")),
            )
        }
        SteerAction::Retry => {
            let run = session
                .client()
                .call(&Retry {
                    run,
                    prompt: text,
                    env: config::dispatch_env(),
                })
                .await?;
            reply(
                describe_steering(&run, action)
                    .line(format!("started {}", show::run_line(&run)))
                    .next(WAIT_AGAIN),
            )
        }
    }
}

fn is_stopping(run: &RunView) -> bool {
    run.state == RunStateKind::Stopping
}

/// Describes a run whose processes may still have to end.
fn ending_line(run: &RunView, what: &str) -> String {
    if is_stopping(run) {
        format!(
            "{} ({}) is {what}",
            line(&run.name, 60),
            line(&run.agent, 60)
        )
    } else {
        show::run_line(run)
    }
}

fn describe_steering(run: &RunView, action: SteerAction) -> Shown {
    Shown::new(show::run_brief(run, RESULT_CHARS_LISTED)).with("action", action.word())
}
