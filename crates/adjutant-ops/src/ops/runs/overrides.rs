//! What a dispatcher sets for one run in addition to its agent's configuration: the model,
//! arguments and variables.

use crate::ops::OpError;
use crate::ops::checks::checked_env;
use crate::preset::Preset;
use crate::view::Dispatch;
use adjutant_core::agent::AgentOverrides;
use adjutant_core::{AgentSpec, Denied, HarnessKind, Principal};

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 200;
/// Maximum number of arguments, and their total length in bytes.
const ARGS_MAX: usize = 200;
const ARGS_BYTES_MAX: usize = 32 * 1024;

/// Checks that a caller may set arguments and variables, and that they can be passed to a program.
/// Arguments can override the run's profile, so only a person may give them.
pub(super) fn check_overrides(who: &Principal, call: &Dispatch) -> Result<(), OpError> {
    if *who != Principal::Person && !(call.args.is_empty() && call.set_env.is_empty()) {
        return Err(Denied::NotAllowed {
            who: "a client",
            action: "set an agent's arguments or variables",
        }
        .into());
    }
    if call.args.len() > ARGS_MAX
        || call.args.iter().map(String::len).sum::<usize>() > ARGS_BYTES_MAX
    {
        return Err(Denied::invalid(
            "args",
            format!("use at most {ARGS_MAX} arguments, {ARGS_BYTES_MAX} bytes in total"),
        )
        .into());
    }
    if call.args.iter().any(|arg| arg.contains('\0')) {
        return Err(
            Denied::invalid("args", "contains a NUL byte, which an argument cannot hold").into(),
        );
    }
    if let Some(name) = call.set_env.keys().find(|name| name.starts_with("ADJ_")) {
        return Err(Denied::invalid(
            "set_env",
            format!("{name} is adj's own and cannot be set for an agent"),
        )
        .into());
    }
    Ok(checked_env(&call.set_env)?)
}

/// Returns what a dispatch sets for this agent.
///
/// # Errors
/// The agent takes no model or no arguments.
pub(super) fn overrides_for(agent: &AgentSpec, call: &Dispatch) -> Result<AgentOverrides, OpError> {
    let name = &agent.name;
    if let Some(model) = &call.model {
        let is_name = !model.starts_with('-')
            && !model.is_empty()
            && model.len() <= MODEL_BYTES_MAX
            && !model.contains(|c: char| c.is_control() || c == ' ');
        if !is_name {
            return Err(Denied::invalid(
                "model",
                format!("is not a name of a model: at most {MODEL_BYTES_MAX} bytes without spaces, not beginning with -"),
            )
            .into());
        }
        if Preset::from_text(&agent.preset).is_none_or(|preset| preset.model.is_none()) {
            let why = format!(
                "agent {name} takes no model on its command line: name the model in its own configuration, or pass its arguments after --"
            );
            return Err(Denied::invalid("model", why).into());
        }
    }
    if agent.harness == HarnessKind::Echo && !call.args.is_empty() {
        return Err(Denied::invalid(
            "args",
            format!("agent {name} takes no arguments: its task is its script"),
        )
        .into());
    }
    Ok(AgentOverrides {
        model: call.model.clone(),
        args: call.args.clone(),
        env: call.set_env.keys().cloned().collect(),
    })
}
