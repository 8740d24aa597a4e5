//! The reports of an ACP agent about its tool calls.

use super::call::Call;
use super::{Acp, CALLS_KEPT_MAX};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// The merged reports of the newest tool calls.
#[derive(Debug, Default)]
pub(super) struct ReportedCalls {
    by_id: BTreeMap<String, Call>,
    /// The ids, the oldest first.
    in_order: VecDeque<String>,
}

impl ReportedCalls {
    /// Merges a message about the call with this id, and returns the merged call.
    fn merge(&mut self, id: &str, incoming: &Value) -> Call {
        if !self.by_id.contains_key(id) {
            self.in_order.push_back(id.to_owned());
            if self.in_order.len() > CALLS_KEPT_MAX
                && let Some(oldest) = self.in_order.pop_front()
            {
                self.by_id.remove(&oldest);
            }
        }
        let call = self.by_id.entry(id.to_owned()).or_default();
        call.merge(incoming);
        call.clone()
    }
}

impl Acp {
    /// Merges a message about a tool call, and returns the merged call.
    pub(super) fn report(&mut self, incoming: &Value) -> Call {
        let Some(id) = incoming["toolCallId"].as_str() else {
            let mut call = Call::default();
            call.merge(incoming);
            self.record_command("", &call);
            return call;
        };
        let mut call = self.calls.merge(id, incoming);
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reports_of_old_calls_are_dropped() {
        let mut calls = ReportedCalls::default();
        for n in 0..CALLS_KEPT_MAX * 2 {
            let id = n.to_string();
            calls.merge(&id, &json!({"toolCallId": id, "title": "x"}));
        }
        assert_eq!(
            (calls.by_id.len(), calls.in_order.len()),
            (CALLS_KEPT_MAX, CALLS_KEPT_MAX)
        );
    }
}
