//! The identity statement at the start of every prompt: who the run is, whom it works for and how
//! to reach its parent.

use crate::RunId;
use crate::quote::{quote_block, quote_line};

/// How a run reaches its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentChannel {
    /// By Adjutant's tools.
    Tools,
    /// By signal blocks in its output, without Adjutant's tools.
    Blocks,
    /// It answers in a chat: its last message is posted there.
    Chat,
}

/// How the success of a run is measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Acceptance<'a> {
    /// The success criteria.
    pub criteria: Option<&'a str>,
    /// The acceptance command. Empty: none.
    pub accept: &'a [String],
}

impl Acceptance<'_> {
    /// Formats the criteria for the run's prompt.
    fn to_text(self) -> String {
        let mut text = String::new();
        if let Some(criteria) = self.criteria {
            text.push_str(&format!("## SUCCESS CRITERIA\n{}\n", quote_block(criteria)));
        }
        if !self.accept.is_empty() {
            let command = quote_line(&self.accept.join(" "), usize::MAX);
            text.push_str(&format!("When you end, this command runs in your directory and must exit with 0: {command}\n"));
        }
        text
    }
}

/// The line between the statement and the task.
pub const SEPARATOR: &str = "---";

/// Maximum number of characters of a run's name.
const NAME_CHARS_MAX: usize = 60;

/// Prepends the identity statement to a task. `others` are the names of live runs in the same
/// directory. The task is the dispatcher's prompt, unchanged.
#[must_use]
pub fn with_statement(
    run: RunId,
    name: &str,
    others: &[String],
    channel: ParentChannel,
    acceptance: &Acceptance<'_>,
    task: &str,
) -> String {
    let how = match channel {
        ParentChannel::Tools => {
            "- Something you need is missing, or several readings are equally likely: call the tool whose name ends in ask_parent (search for it where tools are not all listed). It returns with the answer. \
             If it says `pending`, call check_answer with the message_id. Do not ask what you can find out yourself.\n\
             - You cannot continue: call stop_work with what is done, what is not, and what you need. Then end.\n\
             - list_chats shows who else works for your parent; send_chat_message to=NAME reaches one of them.\n\
             - Report progress with update_subagent_status (status running), and report at the end \
             (status success, partial_success or failed, with summary and deliverables).\n"
                .to_owned()
        }
        ParentChannel::Blocks => format!(
            "- To reach your parent, print a block: a line [TYPE], YAML with agent_id: {run} and the fields named here, a line [/TYPE]. \
             Write a value that contains `: `, `#`, `@` or several lines below `|`, indented.\n\
             - To ask: CLARIFICATION_NEEDED with reason, and questions (a list, each with text, and options if there are some). Then end: you are resumed with the answer. \
             Do not ask what you can find out yourself.\n\
             - When you cannot continue: STOP_WORK with stop_reason (blocker or error), details, completed_work, blocked_work, state_snapshot. Then end.\n\
             - PROGRESS with percent and note on the way; at the end COMPLETION_REPORT with status (success, partial_success or failed), summary, deliverables.\n"
        ),
        ParentChannel::Chat => "- You answer in a chat: what you say is posted there as your message. Do not ask in any other way.\n".to_owned(),
    };
    let ask_and_delegate = match channel {
        ParentChannel::Tools => {
            " Ask for approval with request_approval; delegate a task with delegate_work."
        }
        ParentChannel::Blocks => {
            " Ask for approval with APPROVAL_NEEDED (action, preview, risk); delegate a task with DELEGATE_WORK (new_task_description)."
        }
        ParentChannel::Chat => "",
    };
    let acceptance = acceptance.to_text();
    let name = quote_line(name, NAME_CHARS_MAX);
    let others: Vec<String> = others
        .iter()
        .map(|other| quote_line(other, NAME_CHARS_MAX))
        .collect();
    let shared = if others.is_empty() {
        String::new()
    } else {
        format!(
            "- Also working in this directory: {}. Change only your own files.\n",
            others.join(", ")
        )
    };
    format!(
        "## EXECUTION CONTEXT: BACKGROUND SUBAGENT\n\
         You are run {name} (id {run}), a background sub-agent. Nobody watches your terminal: you cannot talk to the user, show a menu or wait at a prompt. \
         Everything goes through your parent.\n\
         {how}\
         - You may not answer questions or start other agents.{ask_and_delegate}\n\
         {shared}\
         {acceptance}\
         {SEPARATOR}\n{task}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::quote::{INDENT, hostile_text};

    #[test]
    fn statement_is_short_and_the_task_unchanged() {
        for channel in [
            ParentChannel::Tools,
            ParentChannel::Blocks,
            ParentChannel::Chat,
        ] {
            let prompt = with_statement(
                RunId::new(Time(1), [1; 10]),
                "brave-otter",
                &["calm-newt".to_owned()],
                channel,
                &Acceptance::default(),
                "Do\n---\nthis",
            );
            assert!(prompt.contains("calm-newt"));
            let (statement, task) = prompt
                .split_once("\n---\n")
                .expect("the separator is there");
            assert_eq!(task, "Do\n---\nthis");
            assert!(statement.len() < 1_600, "{}", statement.len());
        }
    }
    #[test]
    fn success_criteria_precede_the_task() {
        let accept = ["cargo".to_owned(), "test".to_owned()];
        let acceptance = Acceptance {
            criteria: Some("All tests pass\n"),
            accept: &accept,
        };
        let prompt = with_statement(
            RunId::new(Time(1), [1; 10]),
            "brave-otter",
            &[],
            ParentChannel::Tools,
            &acceptance,
            "Do",
        );
        let expected = "## SUCCESS CRITERIA\n    All tests pass\nWhen you end, this command runs in your directory and must exit with 0: cargo test\n---\nDo";
        assert!(prompt.ends_with(expected), "{prompt}");
    }

    proptest::proptest! {
        #[test]
        fn names_and_criteria_add_no_unquoted_line(
            name in hostile_text(), other in hostile_text(), criteria in hostile_text(), word in hostile_text()
        ) {
            for channel in [ParentChannel::Tools, ParentChannel::Blocks, ParentChannel::Chat] {
                let accept = [word.clone()];
                let acceptance = Acceptance { criteria: Some(&criteria), accept: &accept };
                let prompt = with_statement(RunId::new(Time(1), [1; 10]), &name, std::slice::from_ref(&other), channel, &acceptance, "Do");
                let plain = Acceptance { criteria: Some("x"), accept: &["y".to_owned()] };
                let plain = with_statement(RunId::new(Time(1), [1; 10]), "a", &["b".to_owned()], channel, &plain, "Do");
                let begins = |prompt: &str| {
                    let ours = prompt.lines().filter(|line| !line.is_empty() && !line.starts_with(INDENT));
                    ours.map(|line| line.chars().take(8).collect::<String>()).collect::<Vec<_>>()
                };
                proptest::prop_assert_eq!(begins(&prompt), begins(&plain));
                proptest::prop_assert_eq!(prompt.split_once("\n---\n").map(|(_, task)| task), Some("Do"));
            }
        }
    }
}
