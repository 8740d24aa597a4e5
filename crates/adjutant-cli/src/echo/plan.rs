//! Parses the echo agent's prompt into its plan.

use super::chat;
use super::script::{Command, Plan, ScriptError, mistake, parse};

/// In the prompt of a later attempt, the text before everything that happened since.
const RESUMED: &str = adjutant_core::resume::INTRODUCTION;
/// The line of a script after which a later attempt continues.
const RESUME_HERE: &str = "resume-here";

/// The heading before a delegated task, whose lines are indented by `INDENT`.
const YOUR_TASK: &str = "## YOUR TASK";
const INDENT: &str = "    ";

/// Parses a prompt. The script is the text after the last line `---` or after the heading of a
/// delegated task, with one command per line. Without either, it is all lines that are commands;
/// `chat` handles answers in a chat. A later attempt prints what it receives, and continues after
/// the line `resume-here`, or from the beginning.
pub(super) fn plan(prompt: &str) -> Result<Plan, ScriptError> {
    let Some((before, received)) = prompt.split_once(&format!("\n{RESUMED}")) else {
        return first_plan(prompt);
    };
    let lines: Vec<&str> = before.lines().collect();
    // A delegated task is indented.
    let rest = lines
        .iter()
        .position(|line| line.trim() == RESUME_HERE)
        .map(|at| format!("---\n{}", lines[at + 1..].join("\n")));
    let received = Command::Say(format!("{RESUMED}{received}"));
    Ok(match first_plan(rest.as_deref().unwrap_or(before))? {
        Plan::Repeat { text, .. } => Plan::Script(vec![received, Command::Say(text)]),
        Plan::Script(commands) => Plan::Script([received].into_iter().chain(commands).collect()),
    })
}

fn first_plan(prompt: &str) -> Result<Plan, ScriptError> {
    if let Some(plan) = chat::plan(prompt) {
        return Ok(plan);
    }
    let lines: Vec<&str> = prompt.lines().collect();
    let marked = lines
        .iter()
        .rposition(|line| matches!(line.trim(), "---" | YOUR_TASK));
    let body = &lines[marked.map_or(0, |at| at + 1)..];
    let is_filled =
        |line: &&str| !line.is_empty() && !line.starts_with('#') && *line != RESUME_HERE;
    let filled: Vec<&str> = body
        .iter()
        .map(|line| line.trim())
        .filter(is_filled)
        .collect();
    let parsed: Vec<Result<Command, ScriptError>> = filled.iter().map(|line| parse(line)).collect();
    if !parsed.iter().any(Result::is_ok) {
        let indented = marked.is_some_and(|at| lines[at].trim() == YOUR_TASK);
        let lines: Vec<&str> = body
            .iter()
            .map(|line| {
                line.strip_prefix(INDENT)
                    .filter(|_| indented)
                    .unwrap_or(line)
            })
            .collect();
        let warning = filled.first().and_then(|line| mistake(line));
        return Ok(Plan::Repeat {
            text: lines.join("\n").trim().to_string(),
            warning,
        });
    }
    if marked.is_some() {
        return parsed
            .into_iter()
            .collect::<Result<_, _>>()
            .map(Plan::Script);
    }
    Ok(Plan::Script(parsed.into_iter().flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(text: &str) -> Plan {
        Plan::Repeat {
            text: text.to_string(),
            warning: None,
        }
    }

    #[test]
    fn script_follows_the_last_rule() {
        for (rule, indent) in [
            ("---", ""),
            (
                "---\nRun brave-otter delegated this task to you.\n\n## YOUR TASK\n",
                INDENT,
            ),
        ] {
            let prompt =
                format!("You are a run.\nsay no\n{rule}\n{indent}say yes\n{indent}fail 3\n");
            assert_eq!(
                plan(&prompt),
                Ok(Plan::Script(vec![
                    Command::Say("yes".to_string()),
                    Command::Fail(3)
                ]))
            );
        }
        assert_eq!(
            plan("x\n## YOUR TASK\n\n    Look\n      at it\n"),
            Ok(repeated("Look\n  at it"))
        );
        assert!(plan("---\nsay yes\nsing\n").is_err());
    }

    #[test]
    fn prompt_without_a_command_is_repeated() {
        assert_eq!(plan("---\nFix the bug.\n"), Ok(repeated("Fix the bug.")));
        assert_eq!(plan(""), Ok(repeated("")));
        assert_eq!(
            plan("Please:\nsay hello\nThank you"),
            Ok(Plan::Script(vec![Command::Say("hello".to_string())]))
        );
    }
}
