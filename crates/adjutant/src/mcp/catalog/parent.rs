//! The tools of a parent.

use super::chats::LIST_CHATS;
use super::chats::SEND_MESSAGE;
use super::chats::SHOW_CHAT;
use super::chats::START_CHAT;
use super::params::KEY;
use super::params::MESSAGE_ID;
use super::params::RUN;
use super::params::STATUS;
use super::params::WAIT;
use super::row::Effect;
use super::row::{ToolRow, handler};
use crate::mcp::args::{DECISIONS, Kind, Param};
use crate::mcp::tools::parent;
use adjutant_core::Action;

/// The tools of a parent.
pub const PARENT: [ToolRow; 13] = [
    ToolRow {
        name: "run_subagent",
        title: "Start a sub-agent",
        about: "Use to hand a task to another coding agent, which works in the background. It sees nothing of this conversation, so the prompt must stand alone. Start all independent tasks first, then call wait_for_subagents.",
        params: &[
            Param::new("agent", Kind::Text).required().about("From list_coding_agents"),
            Param::new("prompt", Kind::Text).original("input").required(),
            Param::new("cwd", Kind::Text).about("Default: this project"),
            Param::new("name", Kind::Text).about("Of the run"),
            Param::new("timeout_s", Kind::Count).about("Limit on active time"),
            Param::new("permissions", Kind::Word(&["read", "edit", "full"])).about("What it may do unasked"),
            Param::new("isolation", Kind::Word(&["none", "clone", "worktree"])).about("clone: own copy of the repository"),
            Param::new("criteria", Kind::Text).about("What success means"),
            Param::new("accept", Kind::Texts).about("Command (argv) that checks the work"),
            WAIT.about("For its first question or end; default 0"),
            KEY.compat_only(),
        ],
        actions: &[Action::Dispatch],
        effect: Effect::Adds,
        core: true,
        output: &[
            ("run_id", "string", true),
            ("name", "string", true),
            ("status", "string", true),
            ("pending", "array", false),
            ("hint", "string", false),
            ("next", "string", true),
        ],
        handler: handler!(parent::run_subagent, parent::RunSubagentArgs),
    },
    ToolRow {
        name: "wait_for_subagents",
        title: "Wait for sub-agents",
        about: "Use after starting runs, instead of polling: returns when a run asks something, goes silent, stops or finishes. Without run_ids it covers all live runs. Answer questions with reply_subagent, then call this again with its cursor.",
        params: &[
            Param::new("run_ids", Kind::Texts).also(&["runIds", "run_id", "runId", "runs"]),
            Param::new("until", Kind::Word(&["attention", "any", "all"])).about("attention (default): a question, an end, silence"),
            Param::new("cursor", Kind::Text).about("From the last wait"),
            WAIT,
        ],
        actions: &[Action::Wait],
        effect: Effect::Reads,
        core: true,
        output: &[
            ("outcome", "string", true),
            ("needs", "array", false),
            ("stopped", "array", false),
            ("ended", "array", false),
            ("working", "array", false),
            ("cursor", "string", true),
            ("next", "string", true),
        ],
        handler: handler!(parent::wait_for_subagents, parent::WaitForSubagentsArgs),
    },
    ToolRow {
        name: "check_subagent_status",
        title: "Look at sub-agents",
        about: "Use for the details of one run: state, result, times, open questions. Without run_id: a line for each run. To wait call wait_for_subagents.",
        params: &[
            RUN,
            Param::new("history", Kind::Bool).compat_only().about("Its events, oldest first: signals, requests, stops"),
            Param::new("events_after", Kind::Integer).compat_only().about("Its events after this position"),
        ],
        actions: &[Action::See, Action::ListRuns, Action::Events],
        effect: Effect::Reads,
        core: false,
        output: &[
            ("run_id", "string", false),
            ("status", "string", false),
            ("pending", "array", false),
            ("runs", "array", false),
            ("next", "string", true),
        ],
        handler: handler!(parent::check_subagent_status, parent::CheckSubagentStatusArgs),
    },
    ToolRow {
        name: "get_subagent_logs",
        title: "Read a sub-agent's log",
        about: "Use to see what a run's agent said: the last part, or what follows `after` (the `next_after` returned before).",
        params: &[
            RUN.required(),
            Param::new("after", Kind::Count),
            Param::new("grep", Kind::Text).about("Only lines with this text"),
            Param::new("max_chars", Kind::Count),
        ],
        actions: &[Action::Logs],
        effect: Effect::Reads,
        core: false,
        output: &[
            ("run_id", "string", true),
            ("text", "string", true),
            ("from", "integer", true),
            ("next_after", "integer", true),
            ("total", "integer", true),
            ("ended", "boolean", true),
            ("next", "string", true),
        ],
        handler: handler!(parent::get_subagent_logs, parent::GetSubagentLogsArgs),
    },
    ToolRow {
        name: "get_pending_questions",
        title: "List open questions",
        about: "Use to see what needs you: questions and approvals, oldest first, stopped runs, messages. With message_id: that one in full. Answer with reply_subagent.",
        params: &[RUN, MESSAGE_ID, Param::new("after", Kind::Text).compat_only()],
        actions: &[Action::ListRequests, Action::ReadAnswer],
        effect: Effect::Reads,
        core: false,
        output: &[
            ("questions", "array", true),
            ("runs", "array", false),
            ("mentions", "array", false),
            ("more", "integer", false),
            ("next", "string", true),
        ],
        handler: handler!(parent::get_pending_questions, parent::GetPendingQuestionsArgs),
    },
    ToolRow {
        name: "reply_subagent",
        title: "Answer a sub-agent",
        about: "Use to answer a question, or decide an approval or delegation, at once: the run is waiting. Each takes one answer. Then call wait_for_subagents again.",
        params: &[
            RUN,
            MESSAGE_ID.about("Such as Q12; not needed if run_id has one open question"),
            Param::new("answer", Kind::Text).also(&["message"]),
            Param::new("decision", Kind::Word(DECISIONS)),
            Param::new("reason", Kind::Text).about("Needed to deny"),
            Param::new("changes", Kind::Changes).about("Approve a delegation with another prompt, agent, cwd or priority"),
            Param::new("answers", Kind::Answers).about("Several: {message_id, answer or decision, reason}"),
        ],
        actions: &[Action::Answer],
        effect: Effect::WritesOnce,
        core: true,
        output: &[
            ("success", "boolean", true),
            ("message", "string", true),
            ("requests", "array", true),
            ("runs", "array", true),
            ("next", "string", true),
        ],
        handler: handler!(parent::reply_subagent, parent::ReplySubagentArgs),
    },
    ToolRow {
        name: "steer_subagent",
        title: "Steer a sub-agent",
        about: "Use to change a run's course: message tells its agent something, stop halts it, resume goes on (text: how its blocker was resolved), cancel ends it, retry runs an ended one again. Then call wait_for_subagents.",
        params: &[
            RUN.required(),
            Param::new("action", Kind::Word(&["message", "stop", "resume", "cancel", "retry"])).required(),
            Param::new("text", Kind::Text).also(&["message", "reason", "prompt"]).about("Message, resolution, reason or new prompt"),
            Param::new("choice", Kind::Word(&["skip", "retry", "delegate", "reduce"])).about("Resume after an error"),
            Param::new("next_step", Kind::Text),
        ],
        actions: &[Action::Message, Action::Pause, Action::Resume, Action::Cancel, Action::Retry],
        effect: Effect::Ends,
        core: false,
        output: &[("run_id", "string", true), ("name", "string", true), ("action", "string", true), ("next", "string", true)],
        handler: handler!(parent::steer_subagent, parent::SteerSubagentArgs),
    },
    ToolRow {
        name: "update_subagent_status",
        title: "Annotate a sub-agent",
        about: "Use to record your verdict on a run after checking its work: a remark, which never ends or revives it.",
        params: &[RUN.required(), STATUS, Param::new("summary", Kind::Text)],
        actions: &[Action::Annotate],
        effect: Effect::WritesOnce,
        core: false,
        output: &[("run_id", "string", true), ("status", "string", true), ("next", "string", true)],
        handler: handler!(parent::update_subagent_status, parent::UpdateSubagentStatusArgs),
    },
    ToolRow {
        name: "list_coding_agents",
        title: "List coding agents",
        about: "Use before the first run_subagent to see which agents there are and what each is for.",
        params: &[],
        actions: &[Action::ListAgents],
        effect: Effect::Reads,
        core: true,
        output: &[("agents", "array", true), ("versions_pending", "array", false), ("warnings", "array", false), ("next", "string", true)],
        handler: handler!(parent::list_agents, parent::ListCodingAgentsArgs),
    },
    START_CHAT,
    LIST_CHATS,
    SHOW_CHAT,
    SEND_MESSAGE,
];
