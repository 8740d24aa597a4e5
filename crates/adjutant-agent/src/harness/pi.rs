//! pi's RPC mode, with Adjutant's extension: the extension offers Adjutant's tools to pi, and
//! requests permission here before a tool changes something.
//!
//! ```text
//!  get_state ─ (extension loaded) ─ prompt ─ (prompt that steers)* ─ agent_settled ─ close
//! ```

use super::operation;
use super::step::{Decision, Permission, Step, line, named_within};
use crate::view::MessageView;
use adjutant_core::policy::Operation;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The extension's source.
pub(crate) const EXTENSION: &str = include_str!("pi.extension.mjs");

/// The ids of commands. A message is sent under its own id.
const STATE: &str = "state";
const PROMPT: &str = "prompt";

/// The parameters of a session.
#[derive(Debug, Clone)]
pub struct SessionStart {
    pub cwd: PathBuf,
    /// Resume a session.
    pub resumes: bool,
    /// The prompt for a new session, if the one to resume is missing.
    pub new_session_prompt: Option<String>,
}

/// A message for the agent.
#[derive(Debug)]
struct QueuedMessage {
    text: String,
    sent: Delivery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// Not sent yet, or rejected.
    NotSent,
    Written,
    Taken,
}

#[derive(Debug)]
pub struct Pi {
    start: SessionStart,
    prompt: String,
    /// The extension has reported that it is loaded.
    has_extension: bool,
    /// pi has accepted the prompt.
    is_prompted: bool,
    /// Messages that pi has not read yet, by their ids.
    unread: BTreeMap<String, QueuedMessage>,
    /// Ids of the open dialogs of Adjutant's extension.
    pending: BTreeSet<String>,
}

impl Pi {
    #[must_use]
    pub fn new(start: SessionStart) -> Self {
        Self {
            start,
            prompt: String::new(),
            has_extension: false,
            is_prompted: false,
            unread: BTreeMap::new(),
            pending: BTreeSet::new(),
        }
    }

    /// pi reads commands once all extensions have started, so the reply shows whether Adjutant's
    /// has.
    pub(super) fn opening(&mut self, prompt: &str) -> Vec<u8> {
        prompt.clone_into(&mut self.prompt);
        line(&json!({ "id": STATE, "type": "get_state" }))
    }

    pub(super) fn receive(&mut self, incoming: &Value) -> Vec<Step> {
        match incoming["type"].as_str() {
            Some("extension_ui_request") => self.extension(incoming),
            Some("response") => self.handle_reply(incoming),
            Some("message_end") => self.confirm_delivery(&incoming["message"]),
            Some("agent_settled") => self.finish_turn(),
            _ => Vec::new(),
        }
    }

    fn extension(&mut self, incoming: &Value) -> Vec<Step> {
        let Some(id) = incoming["id"].as_str() else {
            return Vec::new();
        };
        match incoming["method"].as_str() {
            Some("setStatus") => {
                self.has_extension |=
                    incoming["statusKey"] == "adjutant" && incoming["statusText"] == "ready";
                Vec::new()
            }
            Some("input" | "select" | "confirm" | "editor") => {
                match self.permission(id, incoming) {
                    Some(permission) => {
                        self.pending.insert(id.to_owned());
                        vec![Step::Permission(permission)]
                    }
                    // A dialog of another extension: there is no person to answer it.
                    None => vec![Step::Write(line(
                        &json!({ "type": "extension_ui_response", "id": id, "cancelled": true }),
                    ))],
                }
            }
            _ => Vec::new(),
        }
    }

    fn permission(&self, id: &str, incoming: &Value) -> Option<Permission> {
        let asked: Value = serde_json::from_str(
            incoming["title"]
                .as_str()
                .filter(|_| incoming["method"] == "input")?,
        )
        .ok()?;
        let tool = asked["tool"]
            .as_str()
            .filter(|_| asked["adjutant"] == "permission")?
            .to_owned();
        let input = &asked["input"];
        let operation = Box::new(self.operation(&tool, input));
        Some(Permission {
            id: id.to_owned(),
            edits: self.edits(&tool, input),
            is_own_tool: false,
            tool,
            input: input.to_string(),
            operation,
        })
    }

    fn operation(&self, tool: &str, input: &Value) -> Operation {
        let path = input["path"].as_str();
        match tool {
            "bash" => operation::shell(tool, input, &self.start.cwd, &[]),
            "edit" | "write" | "read" => {
                let is_complete = path.is_some_and(is_literal)
                    && operation::states_only_files(input, |name| name == "path");
                operation::on_files(tool, input, &self.start.cwd, path, is_complete)
            }
            _ => operation::opaque(tool, input),
        }
    }

    /// Returns the file that an editing tool changes, if by its name it is below the run's
    /// directory.
    fn edits(&self, tool: &str, input: &Value) -> Vec<PathBuf> {
        let file = input["path"]
            .as_str()
            .filter(|path| matches!(tool, "edit" | "write") && is_literal(path));
        file.and_then(|file| named_within(&self.start.cwd, Path::new(file)))
            .into_iter()
            .collect()
    }

    fn handle_reply(&mut self, incoming: &Value) -> Vec<Step> {
        let why = || {
            incoming["error"]
                .as_str()
                .unwrap_or("pi refused a command")
                .to_owned()
        };
        match incoming["id"].as_str() {
            Some(STATE | PROMPT) if incoming["success"] != true => vec![Step::Failed(why())],
            Some(STATE) if !self.has_extension => {
                vec![Step::Failed("pi has not started Adjutant's extension, without which it would ask for no approval".to_owned())]
            }
            Some(STATE) => {
                let is_gone = self.start.resumes && incoming["data"]["messageCount"] == 0;
                let prompt = self
                    .start
                    .new_session_prompt
                    .take()
                    .filter(|_| is_gone)
                    .unwrap_or_else(|| std::mem::take(&mut self.prompt));
                vec![Step::Write(line(
                    &json!({ "id": PROMPT, "type": "prompt", "message": prompt }),
                ))]
            }
            Some(PROMPT) => {
                self.is_prompted = true;
                // pi is working now, so it reads each of them in this turn.
                self.unread
                    .iter_mut()
                    .map(|(id, given)| Step::Write(given.steer(id)))
                    .collect()
            }
            Some(id) => {
                if let Some(given) = self.unread.get_mut(id) {
                    given.sent = if incoming["success"] == true {
                        Delivery::Taken
                    } else {
                        Delivery::NotSent
                    };
                }
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Confirms a message: pi repeats it when the model receives it.
    fn confirm_delivery(&mut self, message: &Value) -> Vec<Step> {
        let text = message["content"]
            .as_str()
            .or_else(|| message["content"][0]["text"].as_str());
        let read = self
            .unread
            .iter()
            .find(|(_, given)| text == Some(&given.text))
            .map(|(id, _)| id.clone());
        let Some(id) = read else { return Vec::new() };
        self.unread.remove(&id);
        vec![Step::Delivered(id)]
    }

    /// Starts another turn for a message that pi has not accepted, or closes the input. A message
    /// that pi accepted and did not read is delivered in another way.
    fn finish_turn(&mut self) -> Vec<Step> {
        self.unread.retain(|_, given| given.sent != Delivery::Taken);
        if self.unread.is_empty() {
            return vec![Step::Close];
        }
        let again = self
            .unread
            .iter_mut()
            .find(|(_, given)| given.sent == Delivery::NotSent);
        std::iter::once(Step::TurnEnded)
            .chain(again.map(|(id, given)| Step::Write(given.steer(id))))
            .collect()
    }

    pub(super) fn message(&mut self, message: &MessageView) -> Vec<u8> {
        // The text before it keeps it from being read as a command.
        let mut given = QueuedMessage {
            text: format!("A message from {}:\n{}", message.from, message.text),
            sent: Delivery::NotSent,
        };
        let bytes = if self.is_prompted {
            given.steer(&message.message_id)
        } else {
            Vec::new()
        };
        self.unread.insert(message.message_id.clone(), given);
        bytes
    }

    pub(super) fn cancel(&mut self) -> Vec<u8> {
        self.unread.clear();
        let mut bytes = line(&json!({ "type": "clear_queue" }));
        bytes.extend(line(&json!({ "type": "abort" })));
        bytes
    }

    pub(super) fn decide(&mut self, id: &str, decision: &Decision) -> Option<Vec<u8>> {
        let value = match decision {
            Decision::Allow => json!({ "allow": true }),
            Decision::Deny(why) => json!({ "deny": why }),
        };
        let response =
            json!({ "type": "extension_ui_response", "id": id, "value": value.to_string() });
        self.pending.remove(id).then(|| line(&response))
    }
}

impl QueuedMessage {
    /// Returns the command that sends the message: into the current turn, or as a new prompt if
    /// there is none.
    fn steer(&mut self, id: &str) -> Vec<u8> {
        self.sent = Delivery::Written;
        line(
            &json!({ "id": id, "type": "prompt", "message": self.text, "streamingBehavior": "steer" }),
        )
    }
}

/// Returns whether pi uses a path unchanged. It expands `~`, file URLs and a leading `@`, and
/// replaces wide spaces.
fn is_literal(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with(['~', '@'])
        && !path.starts_with("file:")
        && !path
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() && c != ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pi(resumes: bool) -> Pi {
        let mut pi = Pi::new(SessionStart {
            cwd: PathBuf::from("/w"),
            resumes,
            new_session_prompt: resumes.then(|| "the whole task".to_owned()),
        });
        let opening = written(&[Step::Write(pi.opening("/quit @/etc/passwd"))]);
        assert_eq!(opening[0]["type"], "get_state");
        pi
    }

    /// Returns a client whose prompt is running.
    fn working() -> Pi {
        let mut pi = pi(false);
        assert_eq!(pi.receive(&ready()), []);
        let prompt = written(&pi.receive(&state(0)));
        assert_eq!(
            (&prompt[0]["type"], &prompt[0]["message"]),
            (&json!("prompt"), &json!("/quit @/etc/passwd"))
        );
        assert_eq!(pi.receive(&accepted("prompt", true)), []);
        pi
    }

    fn ready() -> Value {
        json!({"type": "extension_ui_request", "id": "s", "method": "setStatus", "statusKey": "adjutant", "statusText": "ready"})
    }

    fn state(messages: u32) -> Value {
        json!({"id": "state", "type": "response", "command": "get_state", "success": true, "data": {"messageCount": messages}})
    }

    fn accepted(id: &str, success: bool) -> Value {
        json!({"id": id, "type": "response", "command": "prompt", "success": success, "error": "compaction is in progress"})
    }

    fn message(id: &str, text: &str) -> MessageView {
        MessageView {
            message_id: id.to_owned(),
            from: "person".to_owned(),
            text: text.to_owned(),
            ..MessageView::default()
        }
    }

    fn settled() -> Value {
        json!({"type": "agent_settled"})
    }

    fn asks(title: &str) -> Value {
        json!({"type": "extension_ui_request", "id": "d1", "method": "input", "title": title})
    }

    /// Returns the commands that the steps write.
    fn written(steps: &[Step]) -> Vec<Value> {
        let bytes = steps.iter().map(|step| {
            if let Step::Write(bytes) = step {
                bytes.as_slice()
            } else {
                panic!("{steps:?}")
            }
        });
        let text = bytes
            .map(|bytes| std::str::from_utf8(bytes).expect("text"))
            .collect::<String>();
        text.lines()
            .map(|line| serde_json::from_str(line).expect("one JSON object"))
            .collect()
    }

    #[test]
    fn prompt_requires_the_extension() {
        working();
        assert!(
            matches!(&pi(false).receive(&state(0))[..], [Step::Failed(why)] if why.contains("extension"))
        );
        let mut other = pi(false);
        let status = json!({"type": "extension_ui_request", "id": "s", "method": "setStatus", "statusKey": "other", "statusText": "ready"});
        other.receive(&status);
        assert!(matches!(&other.receive(&state(0))[..], [Step::Failed(_)]));
    }

    #[test]
    fn lost_session_restarts_with_the_whole_task() {
        for (messages, prompt) in [(0, "the whole task"), (3, "/quit @/etc/passwd")] {
            let mut pi = pi(true);
            pi.receive(&ready());
            assert_eq!(written(&pi.receive(&state(messages)))[0]["message"], prompt);
        }
    }

    #[test]
    fn permission_request_is_decided_once() {
        let mut pi = working();
        let asked =
            asks(r#"{"adjutant":"permission","tool":"bash","input":{"command":"rm -rf /"}}"#);
        let expected = Permission {
            id: "d1".to_owned(),
            tool: "bash".to_owned(),
            input: r#"{"command":"rm -rf /"}"#.to_owned(),
            is_own_tool: false,
            edits: Vec::new(),
            operation: Box::new(operation::shell(
                "bash",
                &json!({"command": "rm -rf /"}),
                Path::new("/w"),
                &[],
            )),
        };
        assert_eq!(pi.receive(&asked), [Step::Permission(expected)]);
        let answer = written(&[Step::Write(
            pi.decide("d1", &Decision::Deny("no".to_owned()))
                .expect("the request is pending"),
        )]);
        assert_eq!(
            answer[0],
            json!({"type": "extension_ui_response", "id": "d1", "value": r#"{"deny":"no"}"#})
        );
        assert_eq!(pi.decide("d1", &Decision::Allow), None);
    }

    #[test]
    fn dialogs_of_other_extensions_are_cancelled() {
        for title in [
            "Delete everything?",
            r#"{"tool":"bash","input":{}}"#,
            r#"{"adjutant":"permission"}"#,
        ] {
            assert_eq!(
                written(&working().receive(&asks(title)))[0]["cancelled"],
                true,
                "{title}"
            );
        }
        let confirm = json!({"type": "extension_ui_request", "id": "d1", "method": "confirm", "title": r#"{"adjutant":"permission","tool":"bash"}"#});
        assert_eq!(written(&working().receive(&confirm))[0]["cancelled"], true);
    }

    #[test]
    fn edit_names_a_literal_path_in_the_directory() {
        let pi = working();
        assert!(
            pi.operation("write", &json!({"path": "a", "content": "x"}))
                .is_complete
        );
        assert!(
            !pi.operation("write", &json!({"path": "a", "content": "x", "then": "y"}))
                .is_complete,
            "an unknown field"
        );
        let edits =
            |tool: &str, path: &str| pi.edits(tool, &json!({ "path": path, "content": "x" }));
        assert_eq!(edits("write", "a b.txt"), [PathBuf::from("/w/a b.txt")]);
        assert_eq!(
            edits("edit", "/w/src/a.txt"),
            [PathBuf::from("/w/src/a.txt")]
        );
        for path in [
            "~/x",
            "~",
            "@/etc/x",
            "@a",
            "file:///etc/x",
            "/w/a\u{a0}b",
            "../x",
            "/w/../x",
            "/etc/passwd",
            "a\nb",
            "",
        ] {
            assert!(edits("write", path).is_empty(), "{path}");
        }
        assert!(
            edits("bash", "a.txt").is_empty()
                && pi.edits("write", &json!({ "path": ["a"] })).is_empty()
        );
    }

    #[test]
    fn repeated_message_counts_as_delivered() {
        let mut pi = working();
        let given: Value =
            serde_json::from_slice(&pi.message(&message("m1", "/exit"))).expect("one command");
        assert_eq!(
            (&given["streamingBehavior"], &given["message"]),
            (&json!("steer"), &json!("A message from person:\n/exit"))
        );
        assert_eq!(
            pi.receive(&settled()),
            [Step::TurnEnded],
            "another turn follows"
        );
        pi.receive(&accepted("m1", true));
        let read = json!({"type": "message_end", "message": {"role": "user", "content": [{"type": "text", "text": "A message from person:\n/exit"}]}});
        assert_eq!(pi.receive(&read), [Step::Delivered("m1".to_owned())]);
        assert_eq!(pi.receive(&settled()), [Step::Close]);
    }

    #[test]
    fn message_before_the_prompt_follows_it() {
        let mut pi = pi(false);
        assert!(pi.message(&message("m1", "wait")).is_empty());
        pi.receive(&ready());
        assert_eq!(written(&pi.receive(&state(0)))[0]["id"], "prompt");
        assert_eq!(
            written(&pi.receive(&accepted("prompt", true)))[0]["id"],
            "m1"
        );
    }

    #[test]
    fn rejected_message_is_sent_again() {
        let mut pi = working();
        pi.message(&message("m1", "wait"));
        assert_eq!(pi.receive(&accepted("m1", false)), []);
        let steps = pi.receive(&settled());
        assert_eq!(
            (&steps[0], &written(&steps[1..])[0]["id"]),
            (&Step::TurnEnded, &json!("m1"))
        );
        pi.cancel();
        assert_eq!(pi.receive(&settled()), [Step::Close]);
    }

    #[test]
    fn unread_accepted_message_does_not_block_the_end() {
        let mut pi = working();
        pi.message(&message("m1", "wait"));
        pi.receive(&accepted("m1", true));
        assert_eq!(pi.receive(&settled()), [Step::Close]);
    }

    #[test]
    fn refused_prompt_fails() {
        assert_eq!(
            working().receive(&accepted("prompt", false)),
            [Step::Failed("compaction is in progress".to_owned())]
        );
    }
}
