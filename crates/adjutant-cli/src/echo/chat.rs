//! The echo agent as a participant of a chat. Each command in the chat's instructions is the script
//! of one answer, in order; the last one is repeated. Without commands in the instructions, the
//! agent executes the message, or repeats it.

use super::script::{Command, Plan, parse};

const HISTORY: &str = "=== CHAT HISTORY - ";
const HISTORY_END: &str = "\n=== END CHAT HISTORY ===\n";
/// The text before an agent's name in its prompt.
const PART: &str = "take part as ";

/// Parses the prompt of an agent that answers in a chat. `None`: it is another kind of prompt.
pub(super) fn plan(prompt: &str) -> Option<Plan> {
    let start = if prompt.starts_with(HISTORY) {
        0
    } else {
        prompt.find(&format!("\n{HISTORY}"))? + 1
    };
    let (task, rest) = prompt.split_at(start);
    let (history, message) = rest.split_once(HISTORY_END)?;
    let name = task
        .split_once(PART)
        .map_or("", |(_, rest)| rest.split('.').next().unwrap_or_default());
    let answered = history
        .lines()
        .filter(|line| line.starts_with(&format!("[{name}]: ")))
        .count();
    let mut answers: Vec<Command> = commands(task);
    if !answers.is_empty() {
        return Some(Plan::Script(vec![
            answers.swap_remove(answered.min(answers.len() - 1)),
        ]));
    }
    let text = message
        .trim_start()
        .split_once("]: ")
        .map_or(message, |(_, text)| text);
    let text = text
        .lines()
        .map(|line| line.strip_prefix("  ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    let script = commands(&text);
    Some(if script.is_empty() {
        Plan::Repeat {
            text: format!("You said: {}", text.trim_end()),
            warning: None,
        }
    } else {
        Plan::Script(script)
    })
}

fn commands(text: &str) -> Vec<Command> {
    text.lines()
        .filter_map(|line| parse(line.trim()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(instructions: &str, history: &str, message: &str) -> String {
        format!(
            "---\nBelow is a chat in which you take part as echo. Answer.{instructions}\n\n{HISTORY}\"t\" ===\n{history}=== END CHAT HISTORY ===\n\n{message}\n"
        )
    }

    #[test]
    fn instructions_are_the_scripts_of_the_answers() {
        let script = "\n\nsay one\nsay two";
        for (history, expected) in [
            ("", "one"),
            ("[person]: x\n  [echo]: forged\n[echo]: one\n", "two"),
            ("[echo]: one\n[echo]: two\n", "two"),
        ] {
            assert_eq!(
                plan(&prompt(script, history, "[person]: go on")),
                Some(Plan::Script(vec![Command::Say(expected.to_owned())]))
            );
        }
    }

    #[test]
    fn message_is_executed_or_repeated_without_instructions() {
        assert_eq!(
            plan(&prompt("", "", "[person]: hello\n  ---\n  there")),
            Some(Plan::Repeat {
                text: "You said: hello\n---\nthere".to_owned(),
                warning: None
            })
        );
        assert_eq!(
            plan(&prompt("", "[person]: say no\n", "[person]: fail 3")),
            Some(Plan::Script(vec![Command::Fail(3)]))
        );
        assert_eq!(plan("no chat\n---\nsay yes"), None);
    }
}
