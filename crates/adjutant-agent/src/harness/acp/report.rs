//! The reports of an ACP agent about its tool calls.

use super::call::Call;
use super::{Acp, CALLS_KEPT_MAX};
use serde_json::Value;

impl Acp {
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
