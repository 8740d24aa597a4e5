//! Tool calls of agents that describe one call in several messages. A call gets one line in the
//! log, written once its input is known, and another line only if its name or input changes.

use crate::rules::CallState;
use std::collections::VecDeque;

/// Maximum number of unfinished calls that are kept. The oldest are dropped first.
const CALLS_MAX: usize = 64;

#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    input: String,
    /// The line already written to the log.
    written: Option<String>,
}

impl Call {
    fn line(&self) -> String {
        format!("{} {}", self.name, self.input)
            .trim_end()
            .to_owned()
    }
}

/// The unfinished calls.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<Call>);

impl Calls {
    /// Records a message about a call. Returns the line to write to the log, if any.
    pub(super) fn update(
        &mut self,
        id: &str,
        name: &str,
        input: &str,
        state: CallState,
    ) -> Option<String> {
        let at = match self.0.iter().position(|call| call.id == id) {
            Some(at) => at,
            // An end without a name belongs to a call that was dropped or never started.
            None if state == CallState::Ended && name.is_empty() => return None,
            None => {
                if self.0.len() == CALLS_MAX {
                    self.0.pop_front();
                }
                self.0.push_back(Call {
                    id: id.to_owned(),
                    name: String::new(),
                    input: String::new(),
                    written: None,
                });
                self.0.len() - 1
            }
        };
        let call = &mut self.0[at];
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        if !matches!(input.trim(), "" | "{}" | "[]" | "null") {
            input.clone_into(&mut call.input);
        }
        let line = call.line();
        let is_due = match state {
            CallState::Pending => call.written.is_some(),
            // The input may arrive with the next message.
            CallState::Running => !call.input.is_empty(),
            CallState::Ended => true,
        };
        let changed_line = (is_due && call.written.as_deref() != Some(&line)).then(|| line.clone());
        if state == CallState::Ended {
            self.0.remove(at);
        } else if changed_line.is_some() {
            call.written = Some(line);
        }
        changed_line
    }

    /// Returns the lines of calls that have none yet. Called before other output is written.
    pub(super) fn flush(&mut self) -> Vec<String> {
        let unwritten = self.0.iter_mut().filter(|call| call.written.is_none());
        unwritten
            .map(|call| {
                let line = call.line();
                call.written = Some(line.clone());
                line
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CallState::{Ended, Pending, Running};

    fn lines(messages: &[(&str, &str, &str, CallState)]) -> Vec<String> {
        let mut calls = Calls::default();
        messages
            .iter()
            .filter_map(|(id, name, input, state)| calls.update(id, name, input, *state))
            .collect()
    }

    #[test]
    fn call_has_one_line_with_its_real_input() {
        // The messages of opencode, Qwen Code and Kimi Code.
        let opencode = [
            ("a", "bash", "{\"cwd\":\"/w\"}", Pending),
            ("a", "bash", "{\"command\":\"ls\"}", Running),
            ("a", "lists", "{\"command\":\"ls\"}", Ended),
        ];
        assert_eq!(lines(&opencode), ["bash {\"command\":\"ls\"}"]);
        assert_eq!(
            lines(&[
                ("a", "Shell", "{}", Running),
                ("a", "", "{\"command\":\"ls\"}", Running),
                ("a", "", "", Ended)
            ]),
            ["Shell {\"command\":\"ls\"}"]
        );
        assert_eq!(
            lines(&[("a", "Bash", "", Pending), ("a", "Bash", "", Ended)]),
            ["Bash"],
            "a call without input"
        );
        assert_eq!(lines(&[("b", "", "", Ended)]), Vec::<String>::new());
    }

    #[test]
    fn changed_call_gets_another_line() {
        assert_eq!(
            lines(&[
                ("a", "sh", "1", Running),
                ("a", "", "1", Running),
                ("a", "", "2", Pending),
                ("a", "", "2", Ended)
            ]),
            ["sh 1", "sh 2"]
        );
    }

    #[test]
    fn calls_are_bounded_and_flush_writes_all() {
        let mut calls = Calls::default();
        assert_eq!(calls.update("a", "sh", "1", Pending), None);
        assert_eq!(
            (calls.flush(), calls.flush()),
            (vec!["sh 1".to_owned()], Vec::new())
        );
        assert_eq!(
            calls.update("a", "", "", Ended),
            None,
            "its line is already written"
        );
        for n in 0..CALLS_MAX * 2 {
            calls.update(&n.to_string(), "x", "", Pending);
        }
        assert_eq!(calls.0.len(), CALLS_MAX);
    }
}
