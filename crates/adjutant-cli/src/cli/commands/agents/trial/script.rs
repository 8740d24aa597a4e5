//! The prompts of `adj agents test`.

/// The kind of agent that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A model with Adjutant's tools.
    Tools,
    /// A model that prints signal blocks.
    Blocks,
    /// The echo agent, whose prompt is a program.
    Echo,
}

/// The first question.
pub(super) const QUESTION: &str = "Which word?";
/// The note of its first progress report.
pub(super) const NOTE: &str = "adjutant-test";
/// The process that it should leave running.
pub(crate) const LEFT_BEHIND: &str = "sleep 3600";

/// The command that leaves it running in its own session. It returns once that session exists: some
/// agents kill the command's process group as soon as the command ends.
pub(crate) const COMMAND: &str = "setsid -w sh -c 'sleep 3600 >/dev/null 2>&1 & echo started'";

/// Returns whether a line of the log is the output of the command.
pub(crate) fn is_command_output(line: &str) -> bool {
    let line = line.trim();
    line.strip_prefix("← ").unwrap_or(line) == "started"
}

/// Returns the task that exercises progress, a question, a stop, resuming and the report.
pub(super) fn work(kind: Kind) -> String {
    let steps = match kind {
        Kind::Echo => {
            return format!(
                "progress 10 {NOTE}\nask \"{QUESTION}\"\n\
                 tool stop_work {{\"stop_reason\": \"blocker\", \"details\": \"waits for the second word\"}}\nfail 0\n\
                 resume-here\nreport success the words came\n"
            );
        }
        Kind::Tools => [
            format!("Call update_subagent_status with status \"running\", percent 10 and summary \"{NOTE}\"."),
            format!("Call ask_parent with the question \"{QUESTION}\" and wait for the answer: it is a word, the first word."),
            "Call stop_work with stop_reason \"blocker\", details \"waits for the second word\" and state_snapshot \"the first word is\" and that word. \
             Then end your turn."
                .to_owned(),
            "You are started again, and given a second word. Call update_subagent_status with status \"success\" and as summary the first word, a \
             blank, and the second word."
                .to_owned(),
        ],
        Kind::Blocks => [
            format!("Print a PROGRESS block with percent 10 and note \"{NOTE}\"."),
            format!("Print a CLARIFICATION_NEEDED block with the question \"{QUESTION}\" and end. You are started again with the answer: it is a word, the first word."),
            "When you have the first word and not yet a second one, print a STOP_WORK block with stop_reason \"blocker\", details \"waits for the \
             second word\" and state_snapshot \"the first word is\" and that word, and end."
                .to_owned(),
            "You are started again, and given a second word. Print a COMPLETION_REPORT block with status \"success\" and as summary the first word, a \
             blank, and the second word."
                .to_owned(),
        ],
    };
    test_prompt(&steps, "Then say both words as your last answer, and end.")
}

/// Returns the task that is cancelled.
pub(super) fn cancelled(kind: Kind) -> String {
    let leave = format!(
        "If you have a tool that runs shell commands, run exactly this with it, once:\n{}\n\
         It stays in the background, that is meant so. If you have no such tool, or may not, skip this step.",
        COMMAND
    );
    let ask = match kind {
        Kind::Echo => return format!("spawn setsid\nask \"{READY}\"\n"),
        Kind::Tools => {
            format!("Call ask_parent with the question \"{READY}\" and wait for the answer.")
        }
        Kind::Blocks => {
            format!("Print a CLARIFICATION_NEEDED block with the question \"{READY}\".")
        }
    };
    test_prompt(&[leave, ask], "Then end.")
}

const READY: &str = "Ready?";

fn test_prompt(steps: &[String], end: &str) -> String {
    let steps: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(n, step)| format!("{}. {step}", n + 1))
        .collect();
    format!(
        "This is a short test of how you are connected with your parent. Do exactly these steps in this order, and nothing else: look at no files, \
         write none, do not explain anything.\n{}\n{end}\n",
        steps.join("\n")
    )
}

/// Returns the resolution for its stop.
pub(super) fn resolution(word: &str) -> String {
    format!("The second word is {word}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_command_is_recognized() {
        assert!(is_command_output("← started") && is_command_output("started"));
        let call = format!("→ Bash {COMMAND}");
        for line in [
            call.as_str(),
            COMMAND,
            "← bwrap: execvp codex-linux-sandbox: No such file or directory",
            "the run is started",
            "",
        ] {
            assert!(!is_command_output(line), "{line}");
        }
    }
}
