//! The tools as data: one row each, in the order they are listed in. A row names its rule
//! ([`Action`]), its arguments, and the one function that it is.
//!
//! The two lists depend on the role alone, never on a connection or on state. Descriptions begin
//! with when to use the tool and end with what comes next. Budgets in tokens (o200k) over names,
//! descriptions and arguments, with the JSON that clients put around them: parent 1,800, worker 1,200.

use super::args::{Args, DECISIONS, Kind, Listing, Param, input_schema};
use super::caller::Caller;
use super::refusal::Refusal;
use super::reply::Reply;
use super::session::{Role, Session};
use super::{chats, parent, worker};
use adjutant_core::Action;
use futures::future::BoxFuture;
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// A tool's one function.
pub type Run = for<'a> fn(&'a Session, &'a Caller, Args) -> BoxFuture<'a, Result<Reply, Refusal>>;

/// What a client may assume about a tool when it decides whether to ask its user.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// Changes nothing.
    Reads,
    /// Repeating it with the same arguments adds nothing.
    WritesOnce,
    /// Each call adds something.
    Adds,
    /// May end something that was under way.
    Ends,
}

/// One tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolRow {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub params: &'static [Param],
    /// The rules that decide about it, see [`adjutant_core::principal::may`].
    pub actions: &'static [Action],
    pub effect: Effect,
    /// Kept loaded by clients that otherwise load tools on demand.
    pub core: bool,
    /// The fields of its structured result: name, JSON type (empty: any), and whether it is always
    /// there.
    pub output: &'static [(&'static str, &'static str, bool)],
    pub run: Run,
}

const RUN: Param = Param::new("run_id", Kind::Text).original("runId").also(&["subagent_id"]).about("Id or name");
const OWN_RUN: Param = Param::new("run_id", Kind::Text).original("runId").also(&["subagent_id"]).compat_only();
const MESSAGE_ID: Param = Param::new("message_id", Kind::Text).original("messageId");
const WAIT: Param = Param::new("wait_s", Kind::Integer);
const KEY: Param = Param::new("idempotency_key", Kind::Text);
const STATUS: Param = Param::new("status", Kind::Word(&["running", "success", "completed", "partial_success", "failed", "error"])).required();

const LABEL: Param = Param::new("agent_name", Kind::Text).original("agentName").compat_only();
const CHAT_ID: Param = Param::new("chat_id", Kind::Integer).original("chatId");

const START_CHAT: ToolRow = ToolRow {
    name: "start_chat",
    title: "Start a chat",
    about: "Opens a lasting conversation that others can join. An agent among the participants answers every message.",
    params: &[
        Param::new("title", Kind::Text).required(),
        Param::new("participants", Kind::Texts).about("Agents, runs, person, parent"),
        Param::new("template", Kind::Text).about("review, debugging, planning"),
        Param::new("branch_from", Kind::Text).about("Chat or message: 3, 3.17"),
        Param::new("private", Kind::Bool).compat_only(),
        LABEL,
    ],
    actions: &[Action::StartChat],
    effect: Effect::Adds,
    core: false,
    output: &[("chat_id", "integer", true), ("chatId", "integer", true), ("message", "string", true), ("next", "string", true)],
    run: |session, caller, args| Box::pin(chats::start_chat(session, caller, args)),
};

const LIST_CHATS: ToolRow = ToolRow {
    name: "list_chats",
    title: "List chats",
    about: "Use to find chats, what is unread, and the runs of your team; with query, what was said in chats, answers, reports.",
    params: &[
        Param::new("query", Kind::Text),
        Param::new("status", Kind::Word(&["active", "archived", "all"])),
        Param::new("limit", Kind::Integer).compat_only(),
        Param::new("wait_s", Kind::Integer).compat_only(),
        LABEL,
    ],
    actions: &[Action::ListChats],
    effect: Effect::Reads,
    core: false,
    output: &[("chats", "array", false), ("team", "array", false), ("hits", "array", false), ("next", "string", true)],
    run: |session, caller, args| Box::pin(chats::list_chats(session, caller, args)),
};

const SHOW_CHAT: ToolRow = ToolRow {
    name: "show_chat",
    title: "Read a chat",
    about: "Use to read a chat's newest messages, or those after one; with wait_s it waits for news.",
    params: &[CHAT_ID.required(), Param::new("after", Kind::Text), Param::new("limit", Kind::Integer).compat_only(), WAIT, LABEL],
    actions: &[Action::ReadChat],
    effect: Effect::WritesOnce,
    core: false,
    output: &[("chat_id", "integer", true), ("messages", "array", true), ("cursor", "integer", true), ("next", "string", true)],
    run: |session, caller, args| Box::pin(chats::show_chat(session, caller, args)),
};

const SEND_MESSAGE: ToolRow = ToolRow {
    name: "send_chat_message",
    title: "Send a message",
    about: "Use to say something in a chat, or to one agent, run, person or the parent; @name addresses somebody. Returns the answers of agents that answer it.",
    params: &[
        CHAT_ID,
        Param::new("to", Kind::Texts).about("Whom it is for; or board: notes by key"),
        Param::new("message", Kind::Text).also(&["prompt"]),
        Param::new("reply_to", Kind::Text),
        Param::new("edit_of", Kind::Text).about("Number of a message of yours"),
        Param::new("pin", Kind::Bool),
        Param::new("key", Kind::Text),
        Param::new("expect", Kind::Integer).about("Version that key must be at"),
        Param::new("archive", Kind::Bool).compat_only().about("Puts the chat away, or takes it back; for parents"),
        WAIT,
        KEY.compat_only(),
        LABEL,
        Param::new("include_history", Kind::Bool).original("includeHistory").compat_only().about("Always true"),
        Param::new("model", Kind::Text).compat_only().about("Not taken: the agent's configuration says it"),
    ],
    actions: &[Action::Say],
    effect: Effect::Adds,
    core: false,
    output: &[
        ("chat_id", "integer", true),
        ("message_id", "string", true),
        ("seq", "integer", true),
        ("status", "string", true),
        ("response", "string", false),
        ("next", "string", true),
    ],
    run: |session, caller, args| Box::pin(chats::send_message(session, caller, args)),
};

/// The chats as a worker's list has them: it is told less about them, and can do the same.
const START_CHAT_OF_WORKER: ToolRow = ToolRow {
    about: "Opens a lasting conversation. An agent among the participants answers every message.",
    params: &[
        Param::new("title", Kind::Text).required(),
        Param::new("participants", Kind::Texts),
        Param::new("template", Kind::Text).compat_only(),
        Param::new("branch_from", Kind::Text).compat_only(),
        Param::new("private", Kind::Bool).compat_only(),
        LABEL,
    ],
    ..START_CHAT
};

const LIST_CHATS_OF_WORKER: ToolRow = ToolRow {
    about: "Finds chats, unread messages, and the runs of your team; query searches what was said.",
    params: &[
        Param::new("query", Kind::Text),
        Param::new("status", Kind::Word(&["active", "archived", "all"])).compat_only(),
        Param::new("limit", Kind::Integer).compat_only(),
        Param::new("wait_s", Kind::Integer).compat_only(),
        LABEL,
    ],
    ..LIST_CHATS
};

const SHOW_CHAT_OF_WORKER: ToolRow = ToolRow { about: "Reads a chat's newest messages, or those after one; wait_s waits for news.", ..SHOW_CHAT };

const SEND_MESSAGE_OF_WORKER: ToolRow = ToolRow {
    about: "Says something in a chat, or to one agent, run, person or your parent; returns the answers of agents.",
    params: &[
        CHAT_ID,
        Param::new("to", Kind::Texts).about("Names; or board: notes by key"),
        Param::new("message", Kind::Text).also(&["prompt"]),
        Param::new("reply_to", Kind::Text).compat_only(),
        Param::new("edit_of", Kind::Text).compat_only().about("Number of a message of yours"),
        Param::new("pin", Kind::Bool).compat_only(),
        Param::new("key", Kind::Text),
        Param::new("expect", Kind::Integer).about("Version that key must be at"),
        Param::new("archive", Kind::Bool).compat_only().about("Puts the chat away, or takes it back; for parents"),
        WAIT,
        KEY.compat_only(),
        LABEL,
        Param::new("include_history", Kind::Bool).original("includeHistory").compat_only().about("Always true"),
        Param::new("model", Kind::Text).compat_only().about("Not taken: the agent's configuration says it"),
    ],
    ..SEND_MESSAGE
};

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
            Param::new("timeout_s", Kind::Integer).about("Limit on active time"),
            Param::new("permissions", Kind::Word(&["read", "edit", "full"])).about("What it may do unasked"),
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
        run: |session, caller, args| Box::pin(parent::run_subagent(session, caller, args)),
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
        run: |session, caller, args| Box::pin(parent::wait_for_subagents(session, caller, args)),
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
        run: |session, caller, args| Box::pin(parent::check_subagent_status(session, caller, args)),
    },
    ToolRow {
        name: "get_subagent_logs",
        title: "Read a sub-agent's log",
        about: "Use to see what a run's agent said: the last part, or what follows `after` (the `next_after` returned before).",
        params: &[
            RUN.required(),
            Param::new("after", Kind::Integer),
            Param::new("grep", Kind::Text).about("Only lines with this text"),
            Param::new("max_chars", Kind::Integer),
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
        run: |session, caller, args| Box::pin(parent::get_subagent_logs(session, caller, args)),
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
        run: |session, caller, args| Box::pin(parent::get_pending_questions(session, caller, args)),
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
        run: |session, caller, args| Box::pin(parent::reply_subagent(session, caller, args)),
    },
    ToolRow {
        name: "steer_subagent",
        title: "Steer a sub-agent",
        about: "Use to change a run's course: message tells its agent something, stop halts it, resume goes on (text: how its blocker was resolved), cancel ends it, retry starts an ended one anew. Then call wait_for_subagents.",
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
        run: |session, caller, args| Box::pin(parent::steer_subagent(session, caller, args)),
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
        run: |session, caller, args| Box::pin(parent::update_subagent_status(session, caller, args)),
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
        run: |session, caller, args| Box::pin(parent::list_agents(session, caller, args)),
    },
    START_CHAT,
    LIST_CHATS,
    SHOW_CHAT,
    SEND_MESSAGE,
];

/// The tools of a worker.
pub const WORKER: [ToolRow; 11] = [
    ToolRow {
        name: "ask_parent",
        title: "Ask the parent",
        about: "Use when you need a decision or a fact that only your parent has. Returns the answer; if pending, call check_answer with its message_id.",
        params: &[
            Param::new("question", Kind::Text),
            Param::new("questions", Kind::Questions).about("{question, options}"),
            Param::new("context", Kind::Text),
            Param::new("options", Kind::Texts),
            Param::new("default", Kind::Text).about("Counts if no answer comes"),
            Param::new("expires_s", Kind::Integer).compat_only(),
            Param::new("blocking", Kind::Bool).about("false: go on meanwhile"),
            Param::new("question_id", Kind::Text).compat_only().about("What you call it"),
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
        run: |session, caller, args| Box::pin(worker::ask_parent(session, caller, args)),
    },
    ToolRow {
        name: "request_approval",
        title: "Ask for approval",
        about: "Use before anything destructive, costly or outward. Go on only when approved, with exactly what you showed; if pending, call check_answer.",
        params: &[
            Param::new("action", Kind::Text).required(),
            Param::new("preview", Kind::Text).about("Command, diff, text"),
            Param::new("risk", Kind::Text),
            Param::new("context", Kind::Text).compat_only(),
            Param::new("blocking", Kind::Bool).compat_only(),
            Param::new("options", Kind::Texts).compat_only(),
            Param::new("default", Kind::Word(DECISIONS)).compat_only(),
            Param::new("expires_s", Kind::Integer).compat_only(),
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
        run: |session, caller, args| Box::pin(worker::request_approval(session, caller, args)),
    },
    ToolRow {
        name: "delegate_work",
        title: "Delegate",
        about: "Use to hand a separate task to another agent, if your parent approves; with blocks_current_work it waits for the result. If pending, call check_answer.",
        params: &[
            Param::new("new_task_description", Kind::Text).also(&["task", "prompt"]).required().about("Must stand alone"),
            Param::new("independence", Kind::Word(&["can_proceed_parallel", "blocks_current_work", "optional"])),
            Param::new("context_required", Kind::Text),
            Param::new("coordination", Kind::Text).compat_only(),
            Param::new("reason", Kind::Text).original("delegation_reason"),
            Param::new("agent", Kind::Text),
            Param::new("directory", Kind::Text).also(&["cwd"]),
            Param::new("priority", Kind::Word(&["P0", "P1", "P2"])),
            Param::new("estimated_duration", Kind::Text).compat_only(),
            Param::new("expires_s", Kind::Integer).compat_only(),
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
        run: |session, caller, args| Box::pin(worker::delegate_work(session, caller, args)),
    },
    ToolRow {
        name: "check_answer",
        title: "Get an answer",
        about: "Waits for the answer to an earlier question or request. If it stalls, go on with your best assumption or check again later.",
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
        run: |session, caller, args| Box::pin(worker::check_answer(session, caller, args)),
    },
    ToolRow {
        name: "check_subagent_status",
        title: "Look at this run",
        about: "Use to look at your own run: state, limits, your open questions. To get an answer call check_answer.",
        params: &[OWN_RUN],
        actions: &[Action::See],
        effect: Effect::Reads,
        core: false,
        output: &[("run_id", "string", true), ("status", "string", true), ("pending", "array", true), ("next", "string", true)],
        run: |session, caller, args| Box::pin(worker::check_subagent_status(session, caller, args)),
    },
    ToolRow {
        name: "stop_work",
        title: "Stop",
        about: "Use when you cannot go on: leaves a checkpoint, from which you are started again. Then end your turn.",
        params: &[
            Param::new("stop_reason", Kind::Word(&["blocker", "error", "completion"])).required(),
            Param::new("details", Kind::Text).required(),
            Param::new("blocker_type", Kind::Text),
            Param::new("completed_work", Kind::Text).also(&["completed"]),
            Param::new("blocked_work", Kind::Text).also(&["blocked"]),
            Param::new("state_snapshot", Kind::Text).also(&["state"]),
            Param::new("resume_requirements", Kind::Text).also(&["requirements"]),
            Param::new("error_recovery", Kind::Text).also(&["recovery"]),
            OWN_RUN,
        ],
        actions: &[Action::Report],
        effect: Effect::Ends,
        core: true,
        output: &[("run_id", "string", true), ("status", "string", true), ("next", "string", true)],
        run: |session, caller, args| Box::pin(worker::stop_work(session, caller, args)),
    },
    ToolRow {
        name: "update_subagent_status",
        title: "Report",
        about: "Use to report progress (running, with percent, eta, summary) and at the end your result, with summary and deliverables. It is checked. Then end your turn.",
        params: &[
            STATUS,
            Param::new("summary", Kind::Text).also(&["note"]),
            Param::new("percent", Kind::Integer),
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
        output: &[("run_id", "string", true), ("status", "string", true), ("next", "string", true)],
        run: |session, caller, args| Box::pin(worker::update_subagent_status(session, caller, args)),
    },
    START_CHAT_OF_WORKER,
    LIST_CHATS_OF_WORKER,
    SHOW_CHAT_OF_WORKER,
    SEND_MESSAGE_OF_WORKER,
];

/// Tools that a role can call always, listed only under `--compat`: a worker's other tools bring
/// along whatever a look at itself would show.
pub const UNLISTED: [(Role, &str); 1] = [(Role::Worker, "check_subagent_status")];

/// Other names that tools go by: accepted always, listed under `--compat`.
pub const ALIASES: [(&str, &str); 12] = [
    ("check_status", "check_subagent_status"),
    ("check_message_status", "check_answer"),
    ("get_logs", "get_subagent_logs"),
    ("update_status", "update_subagent_status"),
    ("start-chat", "start_chat"),
    ("list-chats", "list_chats"),
    ("show-chat", "show_chat"),
    ("send-message", "send_chat_message"),
    ("ask_gemini", "send_chat_message"),
    ("ask-gemini", "send_chat_message"),
    // Their names until clients had tools of these names themselves.
    ("list_agents", "list_coding_agents"),
    ("send_message", "send_chat_message"),
];

/// Arguments that the original protocol spells in another way for one tool, by the tool's listed name.
const SPELLED_APART: [(&str, &[(&str, &str)]); 4] = [
    ("check_answer", &[("message_id", "message_id")]),
    ("get_pending_questions", &[("run_id", "run_id")]),
    ("ask_gemini", &[("message", "prompt")]),
    ("ask-gemini", &[("message", "prompt")]),
];

/// Arguments that the original protocol requires, by the tool's listed name. Calls without them are accepted.
const ORIGINALLY_REQUIRED: [(&str, &[&str]); 6] = [
    ("ask_parent", &["question"]),
    ("check_message_status", &["run_id", "message_id"]),
    ("check_status", &["run_id"]),
    ("send-message", &["chat_id", "agent_name", "message"]),
    ("ask_gemini", &["message"]),
    ("ask-gemini", &["message"]),
];

/// `run_subagent_<agent>` starts a run of that agent.
pub const RUN_PREFIX: &str = "run_subagent_";

/// Returns the tools of a role.
#[must_use]
pub fn tools(role: Role) -> &'static [ToolRow] {
    match role {
        Role::Parent => &PARENT,
        Role::Worker => &WORKER,
    }
}

/// Tells whether a tool is one of the chats'.
#[must_use]
pub fn is_of_chats(row: &ToolRow) -> bool {
    [START_CHAT, LIST_CHATS, SHOW_CHAT, SEND_MESSAGE].iter().any(|tool| tool.name == row.name)
}

/// Finds a tool by its own name or another that it goes by.
#[must_use]
pub fn find(role: Role, name: &str) -> Option<&'static ToolRow> {
    let own = |name: &str| tools(role).iter().find(|row| row.name == name);
    let alias = || ALIASES.iter().find(|(alias, _)| *alias == name).and_then(|(_, name)| own(name));
    let by_agent = || name.strip_prefix(RUN_PREFIX).filter(|agent| !agent.is_empty()).and_then(|_| own("run_subagent"));
    own(name).or_else(alias).or_else(by_agent)
}

/// Writes the list of a role. Under `compat`, arguments go by their other names and the aliases
/// follow, those of the given agents included.
#[must_use]
pub fn list(role: Role, compat: bool, agents: &[(String, String)]) -> Vec<Tool> {
    let mut list: Vec<Tool> =
        tools(role).iter().filter(|row| compat || !UNLISTED.contains(&(role, row.name))).map(|row| row.listed(row.name, row.about, compat)).collect();
    if !compat {
        return list;
    }
    for (alias, name) in ALIASES {
        if let Some(row) = tools(role).iter().find(|row| row.name == name) {
            list.push(row.listed(alias, &format!("Another name of {name}."), compat));
        }
    }
    if let Some(row) = tools(role).iter().find(|row| row.name == "run_subagent") {
        for (agent, description) in agents {
            let about = format!("Starts the agent {agent} in the background: {}. Then call wait_for_subagents.", super::text::line(description, 150));
            list.push(row.listed_for_agent(agent, &about));
        }
    }
    list
}

impl ToolRow {
    fn listed(&self, name: &str, about: &str, compat: bool) -> Tool {
        if !compat {
            return self.described(name, about, input_schema(self.params, Listing::Own, &[]));
        }
        let apart = SPELLED_APART.iter().find(|(tool, _)| *tool == name).map_or(&[][..], |(_, names)| names);
        let required = ORIGINALLY_REQUIRED.iter().find(|(tool, _)| *tool == name).map_or(&[][..], |(_, names)| names);
        self.described(name, about, input_schema(self.params, Listing::Original(apart), required))
    }

    fn listed_for_agent(&self, agent: &str, about: &str) -> Tool {
        let params: Vec<Param> = self.params.iter().filter(|param| param.name != "agent").copied().collect();
        self.described(&format!("{RUN_PREFIX}{agent}"), about, input_schema(&params, Listing::Original(&[]), &[]))
    }

    fn described(&self, name: &str, about: &str, input: JsonObject) -> Tool {
        let tool = Tool::new(name.to_owned(), about.to_owned(), input)
            .with_title(self.title)
            .with_raw_output_schema(Arc::new(self.output_schema()))
            .with_annotations(self.annotations());
        if !self.core {
            return tool;
        }
        let mut meta = MetaObject::new();
        meta.insert("anthropic/alwaysLoad".into(), Value::Bool(true));
        tool.with_meta(meta)
    }

    fn annotations(&self) -> ToolAnnotations {
        let (reads, ends, once) = match self.effect {
            Effect::Reads => (true, false, true),
            Effect::WritesOnce => (false, false, true),
            Effect::Adds => (false, false, false),
            Effect::Ends => (false, true, false),
        };
        ToolAnnotations::with_title(self.title).read_only(reads).destructive(ends).idempotent(once).open_world(false)
    }

    fn output_schema(&self) -> JsonObject {
        let mut properties = JsonObject::new();
        let mut required = Vec::new();
        for (name, kind, always) in self.output {
            properties.insert((*name).to_owned(), if kind.is_empty() { json!({}) } else { json!({ "type": kind }) });
            if *always {
                required.push(*name);
            }
        }
        let mut schema = JsonObject::new();
        schema.insert("type".into(), json!("object"));
        schema.insert("properties".into(), Value::Object(properties));
        schema.insert("required".into(), json!(required));
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::caps;
    use adjutant_core::principal::{Verdict, may};
    use adjutant_core::{ClientName, Principal, Relation, RunId, Time};

    const ROLES: [(Role, usize, usize); 2] = [(Role::Parent, 1_800, 14), (Role::Worker, 1_200, 10)];

    /// As a client without additions of its own sends them; `tests/it/vendors/offered.rs` counts what real ones send.
    #[test]
    fn the_lists_keep_to_their_budgets() {
        let bpe = tiktoken_rs::o200k_base().expect("the encoding is part of the crate");
        for (role, tokens_max, tools_max) in ROLES {
            let list = list(role, false, &[]);
            assert!(list.len() <= tools_max);
            let sent: Vec<Value> = list
                .iter()
                .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema_as_json_value()}))
                .collect();
            let visible = json!(sent).to_string();
            let tokens = bpe.encode_ordinary(&visible).len();
            println!("{role:?}: {} tools, {tokens} of {tokens_max} tokens", list.len());
            assert!(tokens <= tokens_max, "{role:?}: {tokens} tokens");
        }
    }

    #[test]
    fn every_tool_is_described_and_hinted_in_plain_terms() {
        for (role, ..) in ROLES {
            for tool in list(role, true, &[("echo".into(), "A scripted agent".into())]) {
                let about = tool.description.as_deref().unwrap_or_default();
                assert!((20..=300).contains(&about.chars().count()), "{}: {} characters", tool.name, about.chars().count());
                assert!(tool.name.len() <= 64 && tool.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-'), "{}", tool.name);
                let hints = tool.annotations.clone().expect("annotated");
                let all = [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint];
                assert!(all.iter().all(Option::is_some) && tool.title.is_some() && tool.output_schema.is_some(), "{}", tool.name);
                let schema = tool.schema_as_json_value().to_string();
                for word in ["anyOf", "oneOf", "$ref", "null", "\"format\"", "$schema"] {
                    assert!(!schema.contains(word), "{}: {word}", tool.name);
                }
            }
        }
    }

    #[test]
    fn each_list_is_always_the_same_and_holds_nothing_that_its_role_may_never_do() {
        let who = [
            (Role::Parent, Principal::Client(ClientName::parse("/work/a").expect("a name")), Relation::Owner),
            (Role::Worker, Principal::Run(RunId::new(Time(1), [1; 10])), Relation::Itself),
        ];
        for (role, principal, relation) in who {
            assert_eq!(list(role, false, &[]), list(role, false, &[]));
            for row in tools(role) {
                assert!(!row.actions.is_empty(), "{} has no rule", row.name);
                for action in row.actions {
                    assert_eq!(may(&principal, *action, relation), Verdict::Yes, "{}: {action:?}", row.name);
                }
            }
        }
    }

    #[test]
    fn tools_of_the_first_steps_are_always_loaded() {
        let loaded = |role| -> Vec<String> {
            let is_loaded = |tool: &Tool| tool.meta.as_ref().is_some_and(|meta| meta.get("anthropic/alwaysLoad") == Some(&json!(true)));
            list(role, false, &[]).into_iter().filter(is_loaded).map(|tool| tool.name.into_owned()).collect()
        };
        assert_eq!(loaded(Role::Parent), ["run_subagent", "wait_for_subagents", "reply_subagent", "list_coding_agents"]);
        assert!(loaded(Role::Worker).contains(&"ask_parent".to_owned()));
    }

    #[test]
    fn other_names_lead_to_the_same_tools() {
        for (role, old, new) in [
            (Role::Parent, "list_agents", "list_coding_agents"),
            (Role::Parent, "send_message", "send_chat_message"),
            (Role::Worker, "send_message", "send_chat_message"),
        ] {
            assert_eq!(find(role, old).map(|row| row.name), Some(new));
            assert!(list(role, false, &[]).iter().all(|tool| tool.name != old), "{old} is listed");
        }
        assert_eq!(find(Role::Worker, "check_message_status").map(|row| row.name), Some("check_answer"));
        assert_eq!(find(Role::Parent, "run_subagent_constructor").map(|row| row.name), Some("run_subagent"));
        assert_eq!(find(Role::Parent, "run_subagent_").map(|row| row.name), None);
        assert_eq!(find(Role::Worker, "run_subagent_echo").map(|row| row.name), None);
        assert_eq!(find(Role::Worker, "reply_subagent").map(|row| row.name), None);
        let names: Vec<_> = list(Role::Parent, true, &[("echo".into(), String::new())]).into_iter().map(|tool| tool.name.into_owned()).collect();
        for name in ["check_status", "get_logs", "update_status", "run_subagent_echo"] {
            assert!(names.iter().any(|listed| listed == name), "{name}");
        }
        assert!(caps::UNKNOWN < caps::OWN_WORKER);
    }

    /// The arguments of the original tools as their protocol writes them, and which it requires.
    const ORIGINAL: [(Role, &str, &[&str], &[&str]); 21] = [
        (Role::Parent, "run_subagent_claude", &["input"], &["input"]),
        (Role::Parent, "check_subagent_status", &["runId"], &[]),
        (Role::Parent, "check_status", &["runId"], &["runId"]),
        (Role::Parent, "get_subagent_logs", &["runId"], &["runId"]),
        (Role::Parent, "get_logs", &["runId"], &["runId"]),
        (Role::Parent, "update_subagent_status", &["runId", "status", "summary"], &["runId", "status"]),
        (Role::Parent, "update_status", &["runId", "status", "summary"], &["runId", "status"]),
        (Role::Parent, "reply_subagent", &["runId", "messageId", "answer"], &[]),
        (Role::Parent, "get_pending_questions", &["run_id"], &[]),
        (Role::Parent, "start-chat", &["title"], &["title"]),
        (Role::Parent, "list-chats", &[], &[]),
        (Role::Parent, "show-chat", &["chatId"], &["chatId"]),
        (Role::Parent, "send-message", &["chatId", "agentName", "message"], &["chatId", "agentName", "message"]),
        (Role::Parent, "ask_gemini", &["chatId", "agentName", "prompt"], &["prompt"]),
        (Role::Worker, "ask_parent", &["runId", "question"], &["question"]),
        (Role::Worker, "check_message_status", &["runId", "messageId"], &["runId", "messageId"]),
        (Role::Worker, "check_answer", &["message_id"], &["message_id"]),
        (Role::Worker, "send-message", &["chatId", "agentName", "message"], &["chatId", "agentName", "message"]),
        (
            Role::Worker,
            "update_subagent_status",
            &["status", "summary", "deliverables", "metrics_achieved", "issues_encountered", "recommendations", "total_duration"],
            &["status"],
        ),
        (
            Role::Worker,
            "stop_work",
            &["stop_reason", "details", "blocker_type", "completed_work", "blocked_work", "state_snapshot", "resume_requirements", "error_recovery"],
            &["stop_reason", "details"],
        ),
        (
            Role::Worker,
            "delegate_work",
            &["new_task_description", "delegation_reason", "independence", "context_required", "estimated_duration", "priority", "coordination"],
            &["new_task_description"],
        ),
    ];

    #[test]
    fn compat_lists_the_original_names_and_what_is_required() {
        for (role, name, args, required) in ORIGINAL {
            let list = list(role, true, &[("claude".into(), String::new())]);
            let tool = list.iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("{role:?}: no {name}"));
            let schema = tool.schema_as_json_value();
            let listed: Vec<&String> = schema["properties"].as_object().expect("properties").keys().collect();
            for arg in args {
                assert!(listed.iter().any(|listed| listed == arg), "{role:?} {name}: no {arg} in {listed:?}");
            }
            let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            for arg in required {
                assert!(needed.contains(arg), "{role:?} {name}: {arg} is not required, only {needed:?}");
            }
            // A client that goes by the list is understood.
            let row = find(role, name).expect("a tool");
            let given = schema["properties"].as_object().expect("properties").iter().map(|(name, schema)| {
                let value = match schema["type"].as_str() {
                    Some("integer") => json!(1),
                    Some("boolean") => json!(true),
                    Some("array") => json!([]),
                    Some("object") => json!({}),
                    _ => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("x")),
                };
                (name.clone(), value)
            });
            let mut given: JsonObject = given.collect();
            given.insert("agent".to_owned(), json!("claude"));
            let given = given.into_iter().filter(|(name, _)| name != "agent" || row.params.iter().any(|param| param.name == "agent")).collect();
            assert!(Args::read(row.params, Some(given)).is_ok(), "{role:?} {name}");
        }
    }

    #[test]
    fn the_identity_statement_is_within_its_budget() {
        use adjutant_core::identity::{Acceptance, ParentChannel, with_statement};
        let bpe = tiktoken_rs::o200k_base().expect("the encoding is part of the crate");
        let run = adjutant_core::RunId::new(adjutant_core::Time(1_763_686_923_004), *b"0123456789");
        for voice in [ParentChannel::Tools, ParentChannel::Blocks, ParentChannel::Chat] {
            let statement = with_statement(run, "brave-otter", &["calm-newt".to_owned()], voice, &Acceptance::default(), "");
            let tokens = bpe.encode_ordinary(&statement).len();
            assert!(tokens < 350, "{voice:?}: {tokens}");
        }
    }
}
