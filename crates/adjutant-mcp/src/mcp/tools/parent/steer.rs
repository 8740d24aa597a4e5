//! Sending a message to a run, pausing, resuming, cancelling and retrying it.

use super::next_step::WAIT_AGAIN;
use crate::config;
use crate::mcp::caller::McpCaller;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::{self, RESULT_CHARS_LISTED, Shown};
use crate::mcp::text::line;
use crate::view::{Cancel, Delivery, MessageView, Pause, Resume, Retry, RunView, SendToRun, Word};
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
    session: &McpSession,
    _caller: &McpCaller,
    args: SteerSubagentArgs,
) -> ToolResult {
    check(&args)?;
    let SteerSubagentArgs {
        run_id: run,
        action,
        text,
        choice,
        next_step,
        budget,
    } = args;
    let client = session.client();
    let shown = match action {
        SteerAction::Message => {
            let Some(text) = text else {
                return Err(ToolRefusal::invalid(
                    "there is no message",
                    "pass it in text",
                ));
            };
            describe_message(&client.call(&SendToRun { run, text }).await?)
        }
        SteerAction::Stop => describe_stop(&client.call(&Pause { run }).await?),
        SteerAction::Resume => {
            let call = Resume {
                run,
                resolution: text,
                next_step,
                choice,
                budget,
                env: config::dispatch_env(),
            };
            let run = client.call(&call).await?;
            describe_steering(&run, action)
                .line(show::run_line(&run))
                .next(WAIT_AGAIN)
        }
        SteerAction::Cancel => {
            let run = client.call(&Cancel { run, reason: text }).await?;
            describe_steering(&run, action)
                .line(ending_line(&run, "being cancelled"))
                .next(format!("{WAIT_AGAIN} shows its end"))
        }
        SteerAction::Retry => {
            let call = Retry {
                run,
                prompt: text,
                env: config::dispatch_env(),
            };
            let run = client.call(&call).await?;
            describe_steering(&run, action)
                .line(format!("started {}", show::run_line(&run)))
                .next(WAIT_AGAIN)
        }
    };
    reply(shown)
}

/// Refuses arguments that belong to another action.
fn check(args: &SteerSubagentArgs) -> Result<(), ToolRefusal> {
    let of_resume = [
        ("next_step", args.next_step.is_some()),
        ("budget", args.budget.is_some()),
    ];
    for (name, is_given) in of_resume {
        if is_given && args.action != SteerAction::Resume {
            return Err(ToolRefusal::invalid(
                format!("{name} belongs to action=resume"),
                format!("omit {name}, or pass action=resume"),
            ));
        }
    }
    Ok(())
}

fn describe_message(message: &MessageView) -> Shown {
    let shown = Shown::new(json!({
        "run_id": message.run_id,
        "name": message.run_name,
        "action": SteerAction::Message.word(),
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
    shown.line(sent).next(WAIT_AGAIN)
}

fn describe_stop(run: &RunView) -> Shown {
    let resume = "steer_subagent action=resume continues it";
    describe_steering(run, SteerAction::Stop)
        .line(ending_line(run, "stopping"))
        .next(match is_stopping(run) {
            true => format!("{WAIT_AGAIN} shows when it has stopped; then {resume}"),
            false => resume.to_owned(),
        })
}

fn is_stopping(run: &RunView) -> bool {
    run.condition.state == RunStateKind::Stopping
}

/// Describes a run whose processes may still have to end.
fn ending_line(run: &RunView, what: &str) -> String {
    if is_stopping(run) {
        format!(
            "{} ({}) is {what}",
            line(&run.identity.name, 60),
            line(&run.identity.agent, 60)
        )
    } else {
        show::run_line(run)
    }
}

fn describe_steering(run: &RunView, action: SteerAction) -> Shown {
    Shown::new(show::run_brief(run, RESULT_CHARS_LISTED)).with("action", action.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_resume_are_refused_with_other_actions() {
        let checked = |value: serde_json::Value| {
            check(&serde_json::from_value(value).expect("arguments"))
                .map_err(|refusal| refusal.message)
        };
        assert_eq!(
            checked(json!({"run_id": "r", "action": "resume", "budget": "5", "next_step": "x"})),
            Ok(())
        );
        assert_eq!(
            checked(json!({"run_id": "r", "action": "stop", "budget": "5"})),
            Err("budget belongs to action=resume".to_owned())
        );
        assert_eq!(
            checked(json!({"run_id": "r", "action": "retry", "next_step": "x", "budget": "5"})),
            Err("next_step belongs to action=resume".to_owned())
        );
    }
}
