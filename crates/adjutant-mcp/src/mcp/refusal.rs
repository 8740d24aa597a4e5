//! A refusal as a model sees it: a tool result marked as an error, which says what is wrong and how
//! to proceed. Protocol errors are reserved for malformed calls.

use super::text;
use crate::view::{ErrorView, codes};
use rmcp::model::{CallToolResult, ContentBlock};

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRefusal {
    /// One of [`codes`].
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
}

impl ToolRefusal {
    /// Creates a refusal of invalid arguments.
    #[must_use]
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code: codes::INVALID.into(),
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// Creates a refusal with a code.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// Converts the refusal to a tool result. It has no structured content, because clients
    /// validate that against the tool's output schema even for errors.
    #[must_use]
    pub(crate) fn into_result(self) -> CallToolResult {
        let Self {
            code,
            message,
            hint,
        } = self;
        let mut lines = format!(
            "error[{}]: {}",
            text::line(&code, 40),
            text::line(&message, 2_000)
        );
        if let Some(hint) = hint {
            lines.push_str("\nnext: ");
            lines.push_str(&text::line(&hint, 2_000));
        }
        CallToolResult::error(vec![ContentBlock::text(lines)])
    }
}

/// Hints with shell commands, and their equivalents with tools.
const TOOL_HINTS: [(&str, &str); 6] = [
    ("list chats: adj chat ls", "list_chats names yours"),
    (
        "name an agent (adj agents), one of your runs, or person",
        "name an agent (list_coding_agents), one of your runs, or person",
    ),
    (
        "read the chat: adj chat show",
        "show_chat shows its messages",
    ),
    (
        "answer it: adj reply",
        "a question takes an answer: reply_subagent with answer",
    ),
    (
        "decide it: adj approve or adj deny",
        "reply_subagent with decision approve, or deny and a reason",
    ),
    (
        "read it again, then decide: adj inbox",
        "read it again (get_pending_questions), then decide",
    ),
];

/// The beginnings of hints with a shell command for a run, and their equivalents with tools.
const HINTS_OF_A_RUN: [(&str, &str); 4] = [
    (
        "repeat this when it has stopped: adj wait ",
        "wait_for_subagents returns when it has stopped; then repeat this",
    ),
    (
        "resume it: adj resume ",
        "steer_subagent with action resume or cancel",
    ),
    (
        "it needs no resume; to tell it something: adj send ",
        "it needs no resume; send_chat_message to=NAME tells it something",
    ),
    (
        "cancel it: adj cancel ",
        "steer_subagent with action cancel, then repeat this",
    ),
];

/// The end of a message of a merge, which names shell commands.
const SHELL_REVIEW: &str = "see adj diff, and adj undo to take them back";

/// Replaces a hint that names only shell commands, which a model may not be able to run, by one
/// that names tools.
fn in_tools(code: &str, hint: String) -> String {
    if let Some((_, tools)) = TOOL_HINTS.iter().find(|(shell, _)| *shell == hint) {
        return (*tools).to_owned();
    }
    if let Some((_, tools)) = HINTS_OF_A_RUN
        .iter()
        .find(|(shell, _)| hint.starts_with(shell))
    {
        return (*tools).to_owned();
    }
    if let Some(hint) = merge_in_tools(&hint) {
        return hint;
    }
    let names_a_tool = hint.contains('_');
    if names_a_tool || !hint.contains("adj ") {
        return hint;
    }
    let hint = match code {
        codes::NOT_FOUND => {
            "check the id: check_subagent_status and get_pending_questions list yours; a run sees only its own"
        }
        codes::AGENT_NOT_FOUND => "list_coding_agents names the agents, and says which are found",
        codes::RUN_FINISHED => {
            "a finished run never changes; steer_subagent with action retry starts its task again as a new run"
        }
        _ => return hint,
    };
    hint.to_owned()
}

/// Replaces `adj merge RUN --squash` and the like by the tool's modes.
fn merge_in_tools(hint: &str) -> Option<String> {
    let (before, command) = hint.split_once("adj merge ")?;
    let (run, flags) = command.split_once(' ')?;
    let modes = flags
        .replace("--rebase", "mode=rebase")
        .replace("--squash", "mode=squash");
    (modes != flags).then(|| format!("{before}merge_changes run_id={run} action=merge {modes}"))
}

impl From<ErrorView> for ToolRefusal {
    fn from(error: ErrorView) -> Self {
        let ErrorView {
            code,
            message,
            hint,
        } = error;
        let hint = hint.map(|hint| in_tools(&code, hint));
        let message = message.replace(SHELL_REVIEW, "review_changes action=diff shows them");
        Self {
            code,
            message,
            hint,
        }
    }
}
