//! The demo's tasks: five scripts for the echo agent with their expected outcomes. One posts in the
//! chat.

/// One task of the demo.
#[derive(Debug)]
pub(crate) struct DemoTask {
    pub name: &'static str,
    pub task: &'static str,
    pub script: &'static str,
    /// The expected outcome.
    pub outcome: &'static str,
}

pub(crate) const STREAMS: &str = "porter";
pub(super) const ASKS: &str = "limiter";
pub(crate) const CHOOSES: &str = "chooser";
pub(crate) const FAILS: &str = "builder";
pub(crate) const HANGS: &str = "sleeper";

/// The answer of the second process if the person does not answer.
pub(super) const ANSWER: &str = "per API key";

pub(super) const TASKS: [DemoTask; 5] = [
    DemoTask {
        name: STREAMS,
        task: "Port the parser tests",
        script: "say Porting the parser tests, one file after the other.\nprogress 10 reading the old tests\nsleep 1.2\nprogress 35 lexer.rs\ntool send_message {\"chat_id\": 1, \"message\": \"@reviewer lexer.rs has two tests of one name.\"}\nsleep 1.2\nprogress 60 parser.rs\nsleep 1.2\nprogress 85 errors.rs\nsleep 1\nprogress 100 all green\ntool send_message {\"chat_id\": 1, \"message\": \"@person all ported, under their old names.\"}\ndone 42 tests ported, all green",
        outcome: "succeeded",
    },
    DemoTask {
        name: ASKS,
        task: "Rate limit /v1/upload",
        script: "say src/limits.rs knows both users and keys; the tests cover neither.\nsleep 0.3\nask \"Should the limit be per user or per API key?\"\nsay Thank you. Doing it that way.\nsleep 0.5\ndone the limit is in place",
        outcome: "succeeded",
    },
    DemoTask {
        name: CHOOSES,
        task: "Pick a cache for the sessions",
        script: "sleep 0.8\nask \"Which cache?\" [options: in memory|Redis|none]\nsleep 0.5\ndone sessions are cached",
        outcome: "succeeded",
    },
    DemoTask {
        name: FAILS,
        task: "Build the docs",
        script: "say Building the docs.\nsleep 0.6\nsay The theme is missing.\nfail 3",
        outcome: "failed",
    },
    DemoTask {
        name: HANGS,
        task: "Wait for a review that never comes",
        script: "say Waiting for a review.\nhang",
        outcome: "cancelled",
    },
];

/// The prompt that retries the failed task.
pub(crate) const RETRY_PROMPT: &str = "Build the docs, with the built-in theme\n---\nsay Building the docs with the built-in theme.\nsleep 0.6\ndone docs built";
/// The expected outcome of the retry and of the runs that answer in the chat.
pub(crate) const EXTRA_OUTCOME: &str = "succeeded";

impl DemoTask {
    /// Returns the prompt: the task, then its script with sleeps multiplied by `pace`.
    pub(super) fn prompt(&self, pace: u32) -> String {
        let slower = |line: &str| match line
            .strip_prefix("sleep ")
            .and_then(|seconds| seconds.parse::<f64>().ok())
        {
            Some(seconds) => format!("sleep {}", seconds * f64::from(pace)),
            None => line.to_owned(),
        };
        let script: Vec<String> = self.script.lines().map(slower).collect();
        format!("{}\n---\n{}", self.task, script.join("\n"))
    }
}
