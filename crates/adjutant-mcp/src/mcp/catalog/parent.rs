//! The tools of a parent.

use super::chats::{LIST_CHATS, SEND_MESSAGE, SHOW_CHAT, START_CHAT};
use super::params::{KEY, MESSAGE_ID, RUN, VERDICT, WAIT};
use super::row::{Effect, ToolRow, handler};
use crate::mcp::args::{DECISIONS, Kind, Param};
use crate::mcp::tools::parent;
use adjutant_core::Action;

/// The tools of a parent.
pub const PARENT: [ToolRow; 15] = [
    ToolRow {
        name: "run_subagent",
        title: "Start a sub-agent",
        about: "Use to delegate a task to another coding agent in the background; do small or tightly coupled steps yourself. It sees nothing of this conversation: the prompt must stand alone. Start all independent tasks, then call wait_for_subagents.",
        params: &[
            Param::new("agent", Kind::Names)
                .required()
                .about("From list_coding_agents"),
            Param::new("prompt", Kind::Text)
                .original("input")
                .also(&["task", "message", "instructions"])
                .required(),
            Param::new("cwd", Kind::Text).about("Default: this project"),
            Param::new("name", Kind::Text).about("Unique: a-z, 0-9, -"),
            Param::new("model", Kind::Text),
            Param::new("timeout_s", Kind::Count).about("Of work; then it stops"),
            Param::new("permissions", Kind::Word(&["read", "edit", "full"])).about(
                "read: changes nothing; edit (default): files in cwd; full: anything, unasked",
            ),
            Param::new("isolation", Kind::Word(&["none", "clone", "worktree"]))
                .about("clone, worktree: own copy, merged by merge_changes"),
            Param::new("fence", Kind::Word(&["workspace", "best-effort"])).compat_only(),
            Param::new("no_auto_resume", Kind::Bool)
                .about("Stay stopped after a usage limit")
                .compat_only(),
            Param::new("criteria", Kind::Text).about("What counts as done"),
            Param::new("accept", Kind::Texts).about("Checks its end: [\"cargo\",\"test\"]"),
            Param::new("pool", Kind::Text)
                .about("The run needs one of its slots; with agent \"\", it chooses the agent")
                .compat_only(),
            Param::new("priority", Kind::Word(&["P0", "P1", "P2"])).compat_only(),
            Param::new("after", Kind::Texts)
                .about("Start after these runs succeed; NAME:any: after any end")
                .compat_only(),
            Param::new("after_failed", Kind::Word(&["cancel", "hold"]))
                .about("If one of them fails")
                .compat_only(),
            Param::new("budget", Kind::Text)
                .about("For the run and all runs below it: cost=5,tokens=2M,time=1h")
                .compat_only(),
            WAIT.about("Default 0"),
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
        about: "Use after starting runs, instead of polling: returns when a run asks, reports, goes silent, stops or ends. Default: all live runs. Answer questions with reply_subagent, then call again with its cursor.",
        params: &[
            Param::new("run_ids", Kind::Texts).also(&["runIds", "run_id", "runId", "runs"]),
            Param::new("until", Kind::Word(&["attention", "any", "all"]))
                .about("attention (default): needs you; any, all: ends"),
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
        about: "Use for the details of one run: state, result, open questions. Without run_id: a line for each.",
        params: &[
            RUN,
            Param::new("history", Kind::Bool)
                .compat_only()
                .about("Its events, oldest first: signals, requests, stops"),
            Param::new("events_after", Kind::Integer)
                .compat_only()
                .about("Its events after this position"),
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
        handler: handler!(
            parent::check_subagent_status,
            parent::CheckSubagentStatusArgs
        ),
    },
    ToolRow {
        name: "get_subagent_logs",
        title: "Read a sub-agent's log",
        about: "Use to read what a run's agent said: the last part, or what follows `after` (an earlier `next_after`).",
        params: &[
            RUN.required(),
            Param::new("after", Kind::Count),
            Param::new("grep", Kind::Text)
                .about("Only lines with this text")
                .compat_only(),
            Param::new("max_chars", Kind::Count).compat_only(),
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
        about: "Use to see what needs you: questions and approvals, oldest first, stopped runs, messages. Answer with reply_subagent.",
        params: &[
            RUN,
            MESSAGE_ID,
            Param::new("after", Kind::Text).compat_only(),
        ],
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
        handler: handler!(
            parent::get_pending_questions,
            parent::GetPendingQuestionsArgs
        ),
    },
    ToolRow {
        name: "reply_subagent",
        title: "Answer a sub-agent",
        about: "Use at once to answer a question, or decide an approval or delegation: the run is waiting. Then call wait_for_subagents again.",
        params: &[
            RUN,
            MESSAGE_ID.about("Such as Q12; not needed if run_id has one open question"),
            Param::new("answer", Kind::Text).also(&["message"]),
            Param::new("decision", Kind::Word(DECISIONS)),
            Param::new("reason", Kind::Text).about("Needed to deny"),
            Param::new("changes", Kind::Changes)
                .about("Approve a delegation with another prompt, agent, cwd or priority"),
            Param::new("answers", Kind::Answers)
                .about("Several: {message_id, answer or decision, reason}"),
            Param::new("same", Kind::Bool)
                .about("Also approve the same operation again")
                .compat_only(),
            Param::new("for_s", Kind::Count)
                .about("With same: for this long")
                .compat_only(),
            Param::new("uses", Kind::Count)
                .about("With same: this many times")
                .compat_only(),
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
        about: "Use to change a run's course: message informs its agent, stop pauses it, resume continues it, cancel ends it, retry runs it again. Then call wait_for_subagents.",
        params: &[
            RUN.required(),
            Param::new(
                "action",
                Kind::Word(&["message", "stop", "resume", "cancel", "retry"]),
            )
            .required(),
            Param::new("text", Kind::Text)
                .also(&["message", "reason", "prompt"])
                .about("The message, reason, resolution or new prompt"),
            Param::new(
                "choice",
                Kind::Word(&["skip", "retry", "delegate", "reduce"]),
            )
            .about("After an error: skip or repeat the step, delegate, do less"),
            Param::new("next_step", Kind::Text).compat_only(),
            Param::new("budget", Kind::Text)
                .about("With resume: raise it by cost=5,tokens=2M,time=1h")
                .compat_only(),
        ],
        actions: &[
            Action::Message,
            Action::Pause,
            Action::Resume,
            Action::Cancel,
            Action::Retry,
        ],
        // It ends at most a run of the caller's, whose files and log stay.
        effect: Effect::Adds,
        core: false,
        output: &[
            ("run_id", "string", true),
            ("name", "string", true),
            ("action", "string", true),
            ("next", "string", true),
        ],
        handler: handler!(parent::steer_subagent, parent::SteerSubagentArgs),
    },
    ToolRow {
        name: "review_changes",
        title: "Review changes",
        about: "Use to read what a run changed, before you use or merge it: the list of files (stat) or the diff.",
        params: &[
            RUN.required(),
            Param::new("action", Kind::Word(&["stat", "diff"])).required(),
            Param::new("path", Kind::Text),
            Param::new("page", Kind::Count),
        ],
        actions: &[Action::Review],
        effect: Effect::Reads,
        core: false,
        output: &[
            ("run_id", "string", true),
            ("name", "string", true),
            ("text", "string", true),
            ("next", "string", true),
        ],
        handler: handler!(parent::review_changes, parent::ReviewChangesArgs),
    },
    ToolRow {
        name: "merge_changes",
        title: "Merge or discard changes",
        about: "Use after review_changes to merge the work of an isolated run into the repository, or to remove its workspace.",
        params: &[
            RUN.required(),
            Param::new("action", Kind::Word(&["merge", "discard"])).required(),
            Param::new("mode", Kind::Word(&["merge", "squash", "rebase"])).compat_only(),
            Param::new("agent", Kind::Text).about("Resolves merge conflicts"),
        ],
        actions: &[Action::Merge, Action::Discard],
        effect: Effect::Removes,
        core: false,
        output: &[
            ("run_id", "string", true),
            ("name", "string", true),
            ("outcome", "string", true),
            ("conflicts", "array", false),
            ("next", "string", true),
        ],
        handler: handler!(parent::merge_changes, parent::MergeChangesArgs),
    },
    ToolRow {
        name: "update_subagent_status",
        title: "Record your verdict",
        about: "Use to record your verdict on a run after checking its work.",
        params: &[RUN.required(), VERDICT, Param::new("summary", Kind::Text)],
        actions: &[Action::Annotate],
        effect: Effect::WritesOnce,
        core: false,
        output: &[
            ("run_id", "string", true),
            ("status", "string", true),
            ("next", "string", true),
        ],
        handler: handler!(
            parent::update_subagent_status,
            parent::UpdateSubagentStatusArgs
        ),
    },
    ToolRow {
        name: "list_coding_agents",
        title: "List coding agents",
        about: "Use before the first run_subagent to see which agents there are and what each is for.",
        params: &[],
        actions: &[Action::ListAgents],
        effect: Effect::Reads,
        core: true,
        output: &[
            ("agents", "array", true),
            ("versions_pending", "array", false),
            ("warnings", "array", false),
            ("next", "string", true),
        ],
        handler: handler!(parent::list_agents, parent::ListCodingAgentsArgs),
    },
    START_CHAT,
    LIST_CHATS,
    SHOW_CHAT,
    SEND_MESSAGE,
];
