//! The tools of a worker.

use super::chats::{
    LIST_CHATS_OF_WORKER, SEND_MESSAGE_OF_WORKER, SHOW_CHAT_OF_WORKER, START_CHAT_OF_WORKER,
};
use super::params::{KEY, MESSAGE_ID, OWN_RUN, STATUS, WAIT};
use super::row::{Effect, ToolRow, handler};
use crate::mcp::args::{DECISIONS, Kind, Param};
use crate::mcp::tools::worker;
use adjutant_core::Action;

/// The tools of a worker.
pub(crate) const WORKER: [ToolRow; 11] = [
    ToolRow {
        name: "ask_parent",
        title: "Ask the parent",
        about: "Use when you need a decision or a fact that only your parent has. Returns the answer; if pending, call check_answer with its message_id.",
        params: &[
            Param::new("question", Kind::Text),
            Param::new("questions", Kind::Questions).about("{question, options}"),
            Param::new("context", Kind::Text),
            Param::new("options", Kind::Texts),
            Param::new("default", Kind::Text).about("Used if no answer comes"),
            Param::new("expires_s", Kind::Count).compat_only(),
            Param::new("blocking", Kind::Bool).about("false: continue meanwhile"),
            Param::new("question_id", Kind::Text)
                .compat_only()
                .about("Your own id for it"),
            Param::new("reason", Kind::Text).compat_only(),
            Param::new("blocked_at", Kind::Text).compat_only(),
            Param::new("can_resume_with", Kind::Text).compat_only(),
            Param::new("current_state", Kind::Text).compat_only(),
            WAIT,
            KEY.compat_only(),
            OWN_RUN,
        ],
        actions: &[Action::Ask],
        effect: Effect::Adds,
        core: true,
        output: &[
            ("message_id", "string", true),
            ("messageId", "string", true),
            ("status", "string", true),
            ("answer", "string", false),
            ("answers", "array", false),
            ("instructions", "string", false),
            ("next", "string", true),
        ],
        handler: handler!(worker::ask_parent, worker::AskParentArgs),
    },
    ToolRow {
        name: "request_approval",
        title: "Ask for approval",
        about: "Use before any destructive, costly or external action. Continue only when approved, with exactly what you showed; if pending, call check_answer.",
        params: &[
            Param::new("action", Kind::Text).required(),
            Param::new("preview", Kind::Text).about("Command, diff, text"),
            Param::new("risk", Kind::Text),
            Param::new("command", Kind::Text)
                .about("The command line, for policies")
                .compat_only(),
            Param::new("url", Kind::Text)
                .about("The address, for policies")
                .compat_only(),
            Param::new("paths", Kind::Texts)
                .about("The files, for policies")
                .compat_only(),
            Param::new("context", Kind::Text).compat_only(),
            Param::new("blocking", Kind::Bool).compat_only(),
            Param::new("options", Kind::Texts).compat_only(),
            Param::new("default", Kind::Word(DECISIONS)).compat_only(),
            Param::new("expires_s", Kind::Count).compat_only(),
            WAIT.compat_only(),
            KEY.compat_only(),
            OWN_RUN,
        ],
        actions: &[Action::Ask],
        effect: Effect::Adds,
        core: true,
        output: &[
            ("message_id", "string", true),
            ("messageId", "string", true),
            ("status", "string", true),
            ("decision", "string", false),
            ("reason", "string", false),
            ("instructions", "string", false),
            ("next", "string", true),
        ],
        handler: handler!(worker::request_approval, worker::RequestApprovalArgs),
    },
    ToolRow {
        name: "delegate_work",
        title: "Delegate",
        about: "Use to delegate a separate task to another agent, if your parent approves; with blocks_current_work it waits for the result. If pending, call check_answer.",
        params: &[
            Param::new("new_task_description", Kind::Text)
                .also(&["task", "prompt"])
                .required()
                .about("Must stand alone"),
            Param::new(
                "independence",
                Kind::Word(&["can_proceed_parallel", "blocks_current_work", "optional"]),
            ),
            Param::new("context_required", Kind::Text),
            Param::new("coordination", Kind::Text).compat_only(),
            Param::new("reason", Kind::Text).original("delegation_reason"),
            Param::new("agent", Kind::Text),
            Param::new("directory", Kind::Text).also(&["cwd"]),
            Param::new("priority", Kind::Word(&["P0", "P1", "P2"])),
            Param::new("estimated_duration", Kind::Text).compat_only(),
            Param::new("budget", Kind::Text)
                .about("Transferred from your budget: cost=1,tokens=500k,time=20m")
                .compat_only(),
            Param::new("expires_s", Kind::Count).compat_only(),
            WAIT.compat_only(),
            KEY.compat_only(),
            OWN_RUN,
        ],
        actions: &[Action::Ask],
        effect: Effect::Adds,
        core: true,
        output: &[
            ("message_id", "string", true),
            ("messageId", "string", true),
            ("status", "string", true),
            ("decision", "string", false),
            ("reason", "string", false),
            ("child", "string", false),
            ("child_name", "string", false),
            ("child_result", "string", false),
            ("instructions", "string", false),
            ("next", "string", true),
        ],
        handler: handler!(worker::delegate_work, worker::DelegateWorkArgs),
    },
    ToolRow {
        name: "check_answer",
        title: "Get an answer",
        about: "Waits for the answer to an earlier question or request. If it stalls, continue with your best assumption or check again later.",
        params: &[MESSAGE_ID.required(), WAIT, OWN_RUN],
        actions: &[Action::ReadAnswer],
        effect: Effect::WritesOnce,
        core: true,
        output: &[
            ("message_id", "string", true),
            ("question", "string", true),
            ("answer", "", true),
            ("status", "string", true),
            ("has_answer", "boolean", true),
            ("hasAnswer", "boolean", true),
            ("next", "string", true),
        ],
        handler: handler!(worker::check_answer, worker::CheckAnswerArgs),
    },
    ToolRow {
        name: "check_subagent_status",
        title: "Look at this run",
        about: "Use to look at your own run: state, limits, your open questions. To get an answer call check_answer.",
        params: &[OWN_RUN],
        actions: &[Action::See],
        effect: Effect::Reads,
        core: false,
        output: &[
            ("run_id", "string", true),
            ("status", "string", true),
            ("pending", "array", true),
            ("next", "string", true),
        ],
        handler: handler!(
            worker::check_subagent_status,
            worker::CheckSubagentStatusArgs
        ),
    },
    ToolRow {
        name: "stop_work",
        title: "Stop",
        about: "Use when you cannot continue: saves a checkpoint from which you are resumed. Then end your turn.",
        params: &[
            Param::new("stop_reason", Kind::Word(&["blocker", "error"]))
                .compat_words(&["completion"])
                .required(),
            Param::new("details", Kind::Text).required(),
            Param::new("blocker_type", Kind::Text).compat_only(),
            Param::new("completed_work", Kind::Text)
                .also(&["completed"])
                .compat_only(),
            Param::new("blocked_work", Kind::Text)
                .also(&["blocked"])
                .compat_only(),
            Param::new("state_snapshot", Kind::Text)
                .also(&["state"])
                .about("What you need to go on"),
            Param::new("resume_requirements", Kind::Text)
                .also(&["requirements"])
                .about("What has to happen first"),
            Param::new("error_recovery", Kind::Text)
                .also(&["recovery"])
                .compat_only(),
            OWN_RUN,
        ],
        actions: &[Action::Report],
        // It saves a checkpoint and the run can be resumed, so nothing is destroyed.
        effect: Effect::Adds,
        core: true,
        output: &[
            ("run_id", "string", true),
            ("status", "string", true),
            ("next", "string", true),
        ],
        handler: handler!(worker::stop_work, worker::StopWorkArgs),
    },
    ToolRow {
        name: "update_subagent_status",
        title: "Report",
        about: "Use to report progress (running, with percent, eta, summary) and at the end your result, with summary and deliverables. It is checked. Then end your turn.",
        params: &[
            STATUS,
            Param::new("summary", Kind::Text).also(&["note"]),
            Param::new("percent", Kind::Count),
            Param::new("eta", Kind::Text),
            Param::new("deliverables", Kind::Texts),
            Param::new("metrics_achieved", Kind::Text).also(&["tests"]),
            Param::new("issues_encountered", Kind::Text),
            Param::new("recommendations", Kind::Text).also(&["next_steps"]),
            Param::new("total_duration", Kind::Text).compat_only(),
            OWN_RUN,
        ],
        actions: &[Action::Report],
        effect: Effect::WritesOnce,
        core: true,
        output: &[
            ("run_id", "string", true),
            ("status", "string", true),
            ("next", "string", true),
        ],
        handler: handler!(
            worker::update_subagent_status,
            worker::UpdateSubagentStatusArgs
        ),
    },
    START_CHAT_OF_WORKER,
    LIST_CHATS_OF_WORKER,
    SHOW_CHAT_OF_WORKER,
    SEND_MESSAGE_OF_WORKER,
];
