//! Permission requests of an ACP agent, and the responses to them.

use super::call::Call;
use super::{Acp, AllowedCall, CALLS_KEPT_MAX};
use crate::harness::operation;
use crate::harness::step::{Decision, Permission, Step, line, named_within};
use adjutant_core::Permissions;
use adjutant_core::policy::Operation;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// How often a call may change while its permission request is pending.
pub(super) const CHANGES_MAX: u32 = 8;

/// A permission request without a response.
#[derive(Debug, Clone)]
pub(super) struct PendingPermission {
    /// The id as received.
    pub(super) id: Value,
    pub(super) options: Value,
    /// The call is one of Adjutant's tools.
    pub(super) is_own_tool: bool,
    pub(super) call_id: Option<String>,
    /// The call as it was shown.
    pub(super) call: Call,
    /// How often the call has changed since the request.
    pub(super) changes: u32,
}

impl Acp {
    /// Handles a `session/request_permission` request.
    pub(super) fn ask_permission(&mut self, id: &Value, params: &Value) -> Vec<Step> {
        let (call, options) = (&params["toolCall"], &params["options"]);
        if self.permissions.remove(&id.to_string()).is_some() {
            // A decision could not be assigned to one of them.
            let refused = line(
                &json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": { "outcome": "cancelled" } } }),
            );
            let note = "! two permission requests with one id: both are refused".to_owned();
            return vec![
                Step::Withdraw(id.to_string()),
                Step::Note(note),
                Step::Write(refused.repeat(2)),
            ];
        }
        let call_id = call["toolCallId"].as_str().map(str::to_owned);
        // The decision also covers earlier reports of the call.
        let call = self.report(call);
        let tool = call.name();
        let is_own_tool = self.is_own_call(&call);
        let (edits, operation) = (
            self.edits(&call),
            Box::new(self.operation(&call, call_id.as_deref())),
        );
        let asked = PendingPermission {
            id: id.clone(),
            options: options.clone(),
            is_own_tool,
            call_id,
            call: call.clone(),
            changes: 0,
        };
        self.permissions.insert(id.to_string(), asked);
        if !self.is_whole(&call, is_own_tool) || is_choice(options) {
            let why = if is_choice(options) {
                "ask your parent with ask_parent"
            } else {
                "only the beginning of it was shown: do it yourself, without a sub-agent"
            };
            return self
                .decide(&id.to_string(), &Decision::Deny(why.to_owned()))
                .map(Step::Write)
                .into_iter()
                .collect();
        }
        vec![Step::Permission(Permission {
            id: id.to_string(),
            tool,
            input: call.shown(),
            is_own_tool,
            edits,
            operation,
        })]
    }

    /// Replaces a pending request whose call has changed.
    pub(super) fn replace_permission(&mut self, id: &str, call: &Call) -> Vec<Step> {
        let is_own_tool = self.is_own_call(call);
        let call_id = self
            .permissions
            .get(id)
            .and_then(|asked| asked.call_id.clone());
        let (edits, operation) = (
            self.edits(call),
            Box::new(self.operation(call, call_id.as_deref())),
        );
        let is_whole = self.is_whole(call, is_own_tool);
        let Some(asked) = self.permissions.get_mut(id) else {
            return Vec::new();
        };
        asked.changes += 1;
        if asked.changes > CHANGES_MAX || !is_whole {
            let note = format!(
                "! {} changed too often, or without showing its input, while it waited for approval: refused",
                call.name()
            );
            let refused = self.decide(id, &Decision::Deny(String::new()));
            return [Step::Withdraw(id.to_owned()), Step::Note(note)]
                .into_iter()
                .chain(refused.map(Step::Write))
                .collect();
        }
        asked.call.clone_from(call);
        asked.is_own_tool = is_own_tool;
        vec![Step::Permission(Permission {
            id: id.to_owned(),
            tool: call.name(),
            input: call.shown(),
            is_own_tool,
            edits,
            operation,
        })]
    }

    /// Returns whether a reported call is one of Adjutant's tools.
    pub(super) fn is_own_call(&self, call: &Call) -> bool {
        if call.changes_something() {
            return false;
        }
        let own_tools = &self.start.own_tools;
        if !self.start.input_in_titles {
            return own_tools.is_call(&call.kind, &call.titles, &call.meta, &call.input);
        }
        let name = |title: &String| {
            title
                .split_once(": ")
                .map_or(title.as_str(), |(name, _)| name)
                .to_owned()
        };
        own_tools.is_call(
            &call.kind,
            &call.titles.iter().map(name).collect::<Vec<_>>(),
            &call.meta,
            &call.input,
        )
    }

    /// Returns whether the call is fully known, including its input.
    fn is_whole(&self, call: &Call, is_own_tool: bool) -> bool {
        is_own_tool || !self.start.input_in_content || !call.input.is_null()
    }

    /// Returns the files of an edit, if all of them are named and, by their names, below the run's
    /// directory.
    fn edits(&self, call: &Call) -> Vec<PathBuf> {
        let has_edit_title = || {
            !call.titles.is_empty()
                && call.titles.iter().all(|title| {
                    self.start
                        .edit_titles
                        .iter()
                        .any(|beginning| title.starts_with(beginning.as_str()))
                })
        };
        let says_so = call.kind == "edit" || call.kind == "other" && has_edit_title();
        let files: Option<Vec<PathBuf>> = named_files(call)
            .iter()
            .map(|file| named_within(&self.start.cwd, Path::new(file.as_str()?)))
            .collect();
        files.filter(|_| says_so).unwrap_or_default()
    }

    /// Returns the call as policies see it. Its tool is its kind, which the agent chooses, not its
    /// title, which can contain a model's text.
    fn operation(&self, call: &Call, id: Option<&str>) -> Operation {
        let kind = if call.kind.is_empty() {
            "other"
        } else {
            call.kind.as_str()
        };
        let whole = json!([call.titles.last(), call.input, call.content, call.locations]);
        let operation = match kind {
            "execute" => {
                let shell = operation::shell(
                    kind,
                    &call.input,
                    &self.start.cwd,
                    &["is_background", "run_in_background", "background"],
                );
                let changes_files = call
                    .content
                    .as_array()
                    .is_some_and(|parts| parts.iter().any(|part| part["type"] == "diff"));
                // Some agents keep one shell for all commands.
                self.shell.applied(
                    id,
                    Operation {
                        is_complete: shell.is_complete && !changes_files,
                        ..shell
                    },
                )
            }
            "fetch" => operation::fetch(kind, &call.input),
            "edit" | "read" | "delete" => {
                let files = named_files(call);
                let is_complete = files.iter().all(Value::is_string) && states_only_files(call);
                operation::on_files(
                    kind,
                    &whole,
                    &self.start.cwd,
                    files.iter().filter_map(Value::as_str),
                    is_complete,
                )
            }
            _ => operation::opaque(kind, &whole),
        };
        // A command whose input is not known is identified by what is shown of it.
        let is_shown_only = operation.command.is_none() && kind == "execute";
        let digest = if is_shown_only {
            Some(operation::digest(kind, &whole, &[]))
        } else {
            operation.digest
        };
        Operation {
            digest,
            ..operation
        }
    }

    pub(in crate::harness) fn decide(&mut self, id: &str, decision: &Decision) -> Option<Vec<u8>> {
        let PendingPermission {
            id,
            options,
            is_own_tool,
            call_id,
            call,
            changes: _,
        } = self.permissions.remove(id)?;
        if let (Decision::Allow, Some(call_id), false) = (
            decision,
            call_id,
            self.start.permissions == Permissions::Full,
        ) {
            // A further approval of a call covers what it states now.
            self.allowed.retain(|allowed| allowed.call_id != call_id);
            if self.allowed.len() == CALLS_KEPT_MAX {
                self.allowed.pop_front();
            }
            self.allowed.push_back(AllowedCall {
                call_id,
                call,
                is_own_tool,
            });
        }
        if let Decision::Deny(why) = decision {
            self.denied = Some(why.clone());
        }
        let wanted: &[&str] = match decision {
            // An option that also allows later calls covers more than the shown call.
            Decision::Allow if !is_own_tool && self.start.permissions != Permissions::Full => {
                &["allow_once"]
            }
            Decision::Allow => &["allow_once", "allow_always"],
            Decision::Deny(_) => &["reject_once", "reject_always"],
        };
        let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
        let chosen = wanted
            .iter()
            .find_map(|kind| options.iter().find(|option| option["kind"] == *kind));
        let outcome = match chosen {
            Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
            None => {
                let refused = options.iter().find(|option| {
                    matches!(
                        option["kind"].as_str(),
                        Some("reject_once" | "reject_always")
                    )
                });
                refused.map_or_else(
                    || json!({ "outcome": "cancelled" }),
                    |option| json!({ "outcome": "selected", "optionId": option["optionId"] }),
                )
            }
        };
        Some(line(
            &json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } }),
        ))
    }
}

/// Returns every value of a call that names a file.
fn named_files(call: &Call) -> Vec<Value> {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let located = items(&call.locations)
        .into_iter()
        .map(|location| location["path"].clone());
    let diffs = items(&call.content)
        .into_iter()
        .filter(|part| part["type"] == "diff")
        .map(|part| part["path"].clone());
    let fields = call.input.as_object().cloned().unwrap_or_default();
    let given = fields
        .into_iter()
        .filter(|(name, value)| names_file(name) && !value.is_null())
        .map(|(_, value)| value);
    located.chain(diffs).chain(given).collect()
}

/// Returns whether a field of an input names a file: `path`, `file_path`, `filePath`,
/// `absolute_path`, `target_file`, …
fn names_file(name: &str) -> bool {
    name.to_ascii_lowercase().contains("path") || name.to_ascii_lowercase().contains("file")
}

/// Returns whether everything that the agent states about a call is known to name files or their
/// content.
fn states_only_files(call: &Call) -> bool {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let is_known = |part: &Value| match part["type"].as_str() {
        Some("diff") => operation::have_only(
            std::iter::once(part),
            &["type", "path", "oldText", "newText", "_meta"],
        ),
        Some("content") => true,
        _ => false,
    };
    (call.input.is_null() || operation::states_only_files(&call.input, names_file))
        && items(&call.content).iter().all(is_known)
        && operation::have_only(items(&call.locations).iter(), &["path", "line", "_meta"])
}

/// Returns whether the options are answers to a question, so that an approval would choose one of
/// them.
fn is_choice(options: &Value) -> bool {
    options.as_array().is_some_and(|options| {
        options
            .iter()
            .filter(|option| option["kind"] == "allow_once")
            .count()
            > 1
    })
}
