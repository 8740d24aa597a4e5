//! The identity statement: what every prompt begins with, so that a run knows what it is, whom it
//! serves and how to reach its parent.

use crate::RunId;

/// Stands between the statement and the task.
pub const SEPARATOR: &str = "---";

/// Puts the identity statement before a task. `others` are the names of live runs in the same
/// directory.
#[must_use]
pub fn with_statement(run: RunId, name: &str, others: &[String], task: &str) -> String {
    let shared =
        if others.is_empty() { String::new() } else { format!("- Also at work in this directory: {}. Keep to your own files.\n", others.join(", ")) };
    format!(
        "## EXECUTION CONTEXT: BACKGROUND SUBAGENT\n\
         You are run {name} (id {run}), a background sub-agent. Nobody watches your terminal: you cannot talk to the user, show a menu or wait at a prompt. \
         Everything goes through your parent.\n\
         - Something you need is missing, or several readings are equally likely: call the tool whose name ends in ask_parent. It returns when the answer is there. \
         If it says `pending`, call check_answer with the message_id. Do not ask what you can find out yourself.\n\
         - Tell how far you are with update_subagent_status (status running), and report at the end (status success or error, with a summary).\n\
         - You may not answer questions or start other agents.\n\
         {shared}\
         {SEPARATOR}\n{task}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    #[test]
    fn the_statement_is_short_and_the_task_is_unchanged() {
        let prompt = with_statement(RunId::new(Time(1), [1; 10]), "brave-otter", &["calm-newt".to_owned()], "Do\n---\nthis");
        assert!(prompt.contains("calm-newt"));
        let (statement, task) = prompt.split_once("\n---\n").expect("the separator is there");
        assert_eq!(task, "Do\n---\nthis");
        assert!(statement.len() < 1_400, "about 350 tokens: {}", statement.len());
    }
}
