//! Updates of an ACP agent while it works: tool calls and mode changes.

use super::permission::PendingPermission;
use super::{Acp, Stage, UNSUPPORTED, modes};
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
}
