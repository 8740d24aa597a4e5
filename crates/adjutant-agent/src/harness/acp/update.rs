//! Updates of an ACP agent while it works: tool calls and mode changes.

use super::call::Call;
use super::permission::PendingPermission;
use super::{Acp, CALLS_KEPT_MAX, Stage, UNSUPPORTED, modes};
use crate::harness::step::{ChangedCall, Step};
use adjutant_core::Permissions;
use serde_json::Value;

impl Acp {
    /// Applies an update, and checks whether a call still is the one that was requested or allowed.
    pub(super) fn apply_update(&mut self, update: &Value) -> Vec<Step> {
        if let Some(mode) = self.unasking_mode_of(update) {
            let cancel = self.cancel().map(Step::Write);
            let failed = self.fail(format!(
                "{UNSUPPORTED}: it changed to {mode:?}, which works without asking"
            ));
            return cancel.into_iter().chain(failed).collect();
        }
        let Some(call_id) = update["toolCallId"].as_str() else {
            self.report(update);
            return Vec::new();
        };
        let call = self.report(update);
        let is_changed = |asked: &PendingPermission| {
            asked.call_id.as_deref() == Some(call_id) && asked.call.is_displayed_differently(&call)
        };
        let changed: Vec<String> = self
            .permissions
            .iter()
            .filter(|(_, asked)| is_changed(asked))
            .map(|(id, _)| id.clone())
            .collect();
        let mut steps: Vec<Step> = changed
            .into_iter()
            .flat_map(|id| self.replace_permission(&id, &call))
            .collect();
        let is_own_tool = self.is_own_call(&call);
        if let Some(allowed) = self
            .allowed
            .iter_mut()
            .find(|allowed| allowed.call_id == call_id)
            && if allowed.is_own_tool {
                !is_own_tool
            } else {
                allowed.call.has_different_effect(&call, &self.start.cwd)
            }
        {
            let tool = allowed.call.name();
            steps.push(Step::Changed(ChangedCall {
                tool,
                allowed: allowed.call.shown(),
                now: call.shown(),
            }));
            (allowed.call, allowed.is_own_tool) = (call, false);
        }
        if matches!(update["status"].as_str(), Some("completed" | "failed")) {
            self.allowed.retain(|allowed| allowed.call_id != call_id);
        }
        steps
    }

    /// Returns the mode that the agent changed to by itself, if that mode never asks and the
    /// profile does not permit it. The mode that the preset names is always permitted: its profile
    /// is tested with it.
    fn unasking_mode_of(&self, update: &Value) -> Option<String> {
        if self.stage != Stage::Prompt || self.start.permissions == Permissions::Full {
            return None;
        }
        let mode = match update["sessionUpdate"].as_str()? {
            "current_mode_update" => update["currentModeId"]
                .as_str()
                .filter(|id| modes::never_asks(&self.settings, id))?
                .to_owned(),
            "config_option_update" => {
                modes::mode_that_never_asks(&modes::settings(update))?.to_owned()
            }
            _ => return None,
        };
        (self.start.mode.as_deref() != Some(mode.as_str())).then_some(mode)
    }

    /// Merges a message about a tool call, and returns the merged call.
    pub(super) fn report(&mut self, incoming: &Value) -> Call {
        let Some(id) = incoming["toolCallId"].as_str() else {
            let mut call = Call::default();
            call.merge(incoming);
            self.record_command("", &call);
            return call;
        };
        if !self.calls.contains_key(id) {
            self.calls_in_order.push_back(id.to_owned());
            if self.calls_in_order.len() > CALLS_KEPT_MAX
                && let Some(oldest) = self.calls_in_order.pop_front()
            {
                self.calls.remove(&oldest);
            }
        }
        let call = self.calls.entry(id.to_owned()).or_default();
        call.merge(incoming);
        let mut call = call.clone();
        if self.start.input_in_content {
            call.use_content_as_input();
        }
        self.record_command(id, &call);
        call
    }

    /// Records where a command may leave the agent's shell.
    fn record_command(&mut self, id: &str, call: &Call) {
        if let Some(command) = call.input["command"].as_str() {
            self.shell.record(id, command, &self.start.cwd);
        }
    }
}
