//! Each real CLI, driven by `adj`, as a user sees it.

use super::Cli;
use super::case::Case;
use crate::model::{Seen, Turn};
use adjutant_api::view::ReadEvents;
use adjutant_core::EventKind;
use serde_json::{Value, json};

/// A command that leaves a process behind in its own session, as agents' shells do.
const LEAVE_ONE_BEHIND: &str = "setsid sleep 600 >/dev/null 2>&1 & echo started";

/// A command that counts neither as reading nor as editing in the CLIs.
const FORBIDDEN: &str = "python3 -c \"open('forbidden.txt', 'w')\"";

/// One test for each named scenario of one CLI.
macro_rules! some {
    ($cli:ident as $name:ident: $($scenario:ident),* $(,)?) => {
        mod $name {
            use crate::vendors::Cli;

            $(
                #[test]
                fn $scenario() {
                    super::scenario::$scenario(Cli::$cli);
                }
            )*
        }
    };
}

/// One test for each scenario of every CLI, and for the further scenarios named. A start of a CLI
/// takes seconds, so a scenario is a conversation with all that can happen in one.
macro_rules! all {
    ($cli:ident as $name:ident $(, $more:ident)*) => {
        some!($cli as $name:
            works_in_contact_with_its_parent,
            resumes_after_each_end_and_is_cancelled,
            fails_without_a_valid_key,
            $($more),*
        );
    };
}

all!(
    Claude as claude,
    leaves_out_what_a_hostile_directory_says,
    stops_at_a_rate_limit,
    resumes_after_its_limit
);
all!(
    Codex as codex,
    leaves_out_what_a_hostile_directory_says,
    stops_at_a_rate_limit,
    resumes_after_its_limit
);
all!(Gemini as gemini, leaves_out_what_a_hostile_directory_says);
all!(Goose as goose, leaves_out_what_a_hostile_directory_says);
all!(
    Kilo as kilo,
    leaves_out_what_a_hostile_directory_says,
    writes_beside_its_directory_when_allowed
);
all!(
    Cline as cline,
    leaves_out_what_a_hostile_directory_says,
    writes_beside_its_directory_when_allowed
);
all!(
    Opencode as opencode,
    leaves_out_what_a_hostile_directory_says,
    counts_its_usage_once_when_resumed,
    writes_beside_its_directory_when_allowed
);
all!(
    Qwen as qwen,
    leaves_out_what_a_hostile_directory_says,
    counts_its_usage_once_when_resumed
);
all!(
    Copilot as copilot,
    leaves_out_what_a_hostile_directory_says,
    counts_its_usage_once_when_resumed
);
all!(Kimi as kimi, leaves_out_what_a_hostile_directory_says);
all!(Pi as pi, leaves_out_what_a_hostile_directory_says);
all!(Droid as droid);

/// Tools that kimi runs without asking.
const UNASKED_TOOLS_OF_KIMI: [&str; 4] = ["FetchURL", "WebSearch", "Agent", "AgentSwarm"];

/// A case in which kimi starts a sub-agent.
fn kimi_with_a_sub_agent() -> Option<Case> {
    let agent = Turn::call(
        "Agent",
        json!({ "description": "try", "prompt": "run it", "subagent_type": "coder" }),
    );
    Case::new(
        Cli::Kimi,
        [agent, Turn::say("So be it."), Turn::say("So be it.")],
    )
}

/// A policy that covers a CLI's own permission request answers it; one that does not leaves it to
/// the parent.
fn is_answered_by_a_policy(cli: Cli, tool: &str) {
    let turns = [
        Turn::asking_shell("touch allowed.txt"),
        Turn::asking_shell("touch allowed.txt; touch other.txt"),
        Turn::asking_shell(FORBIDDEN),
    ];
    let Some(case) = Case::new(
        cli,
        turns
            .into_iter()
            .chain([Turn::say("Done.")])
            .collect::<Vec<_>>(),
    ) else {
        return;
    };
    let rules = format!(
        "[[policies]]\nname = \"touch\"\ndecision = \"allow\"\ntool = \"{tool}\"\ncommand = \"touch *.txt\"\n\
         [[policies]]\nname = \"no-python\"\ndecision = \"deny\"\ncommand = \"python3\"\nreason = \"not in this house\"\n"
    );
    std::fs::write(case.home.home.dir.join("config.toml"), rules).expect("the home can be written");
    case.starts("read");
    let view = case.becomes("waiting_parent_reply");
    assert!(
        view["pending"].to_string().contains("other.txt"),
        "{view}\n{}",
        case.story()
    );
    assert_eq!(
        (case.made("allowed.txt").as_deref(), case.made("other.txt")),
        (Some(""), None),
        "{}",
        case.story()
    );
    case.says(&["deny", "job", "not this one"]);
    case.succeeds("Done.");
    assert_eq!(case.made("forbidden.txt"), None);
    let all = case.home.inbox(&["--all"]);
    let by: Vec<&str> = all
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|request| request["answered_by"].as_str())
        .collect();
    assert_eq!(
        by,
        ["policy touch", "person", "policy no-python"],
        "{all}\n{}",
        case.story()
    );
}

#[test]
fn claude_is_answered_by_a_policy() {
    is_answered_by_a_policy(Cli::Claude, "Bash");
}

#[test]
fn codex_is_answered_by_a_policy() {
    is_answered_by_a_policy(Cli::Codex, "command");
}

#[test]
fn kimi_has_no_tool_that_skips_approval() {
    for permissions in ["read", "edit"] {
        let Some(case) = kimi_with_a_sub_agent() else {
            return;
        };
        let config = case
            .home
            .home
            .dir
            .with_file_name(".kimi-code")
            .join("config.toml");
        let before = std::fs::read_to_string(&config).expect("it was written")
            + "[tools]\ndisabled = [\"Grep\"]\n";
        std::fs::write(&config, &before).expect("the home can be written");
        case.starts(permissions);
        let view = case.ends();
        // This is the scripted model's answer if there is no such tool.
        assert!(
            view["result"]
                .as_str()
                .is_some_and(|result| result.starts_with("no tool for Agent is offered")),
            "{view}\n{}",
            case.story()
        );
        let seen = case.asked(1);
        let offered: Vec<&String> = seen[0]
            .tools
            .iter()
            .filter(|tool| UNASKED_TOOLS_OF_KIMI.contains(&tool.as_str()) || *tool == "Grep")
            .collect();
        assert!(
            offered.is_empty() && seen[0].tools.iter().any(|tool| tool == "Read"),
            "{:?}",
            seen[0].tools
        );
        assert_eq!(
            std::fs::read_to_string(&config).ok(),
            Some(before),
            "the user's configuration stays"
        );
        let copy = case.home.attempt_dir("job").temporary();
        case.home.until(
            "the copy of the configuration, with its keys, is removed",
            || (!copy.exists()).then_some(()),
        );
    }
}

/// Shows that the settings have an effect, so that the test above could fail.
#[test]
fn kimi_in_full_starts_sub_agents() {
    let Some(case) = kimi_with_a_sub_agent() else {
        return;
    };
    case.starts("full");
    case.succeeds("So be it.");
    let seen = case.asked(3);
    assert!(
        UNASKED_TOOLS_OF_KIMI
            .iter()
            .any(|tool| seen[0].tools.iter().any(|offered| offered == tool)),
        "{:?}",
        seen[0].tools
    );
}

#[test]
fn kimi_whose_configuration_is_broken_is_not_started() {
    let Some(case) = Case::new(Cli::Kimi, []) else {
        return;
    };
    std::fs::write(
        case.home
            .home
            .dir
            .with_file_name(".kimi-code")
            .join("config.toml"),
        "api_key = secret\n",
    )
    .expect("the home can be written");
    case.starts("read");
    let view = case.ends();
    assert_eq!(view["outcome"], "spawn_failed", "{view}");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("config.toml: string values")
                && !reason.contains("secret")),
        "{view}"
    );
    case.asked(0);
}

/// Kimi expands `~` to the user's home.
#[test]
fn kimi_needs_approval_for_a_file_in_the_home_directory() {
    let Some(case) = Case::new(
        Cli::Kimi,
        [Turn::write("~/at-home.txt", "x\n"), Turn::say("So be it.")],
    ) else {
        return;
    };
    case.starts("edit");
    let asked = case.denies_everything();
    assert!(
        matches!(&asked[..], [request] if request.contains("~/at-home.txt")),
        "{asked:?}\n{}",
        case.story()
    );
    case.succeeds("So be it.");
}

#[test]
fn droid_without_a_login_is_not_signed_in() {
    let Some(case) = Case::new(Cli::Droid, [Turn::say("never asked")]).map(Case::of_nobody) else {
        return;
    };
    case.starts("full");
    let view = case.ends();
    assert_eq!(
        (&view["outcome"], case.asked(0).len()),
        (&json!("failed"), 0),
        "{view}"
    );
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("not signed in")),
        "{view}\n{}",
        case.story()
    );
}

#[test]
fn amp_reports_why_it_does_not_start() {
    for (key, expected) in [
        (None, "not signed in"),
        (Some("test-key"), "cannot be reached"),
    ] {
        let Some(case) = Case::new(Cli::Amp, []) else {
            return;
        };
        let case = case.with("AMP_URL", "http://127.0.0.1:1/");
        let case = if let Some(key) = key {
            case.with("AMP_API_KEY", key)
        } else {
            case
        };
        case.starts("full");
        let view = case.ends();
        assert_eq!(view["outcome"], "failed", "{view}");
        let reason = view["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains(expected) && reason.contains("exit code 1"),
            "{view}\n{}",
            case.story()
        );
    }
}

#[test]
fn conversation_that_is_too_long_is_reported() {
    for cli in [Cli::Claude, Cli::Codex] {
        let Some(case) = Case::new(cli, [Turn::TooLong]) else {
            return;
        };
        case.starts("edit");
        let view = case.ends();
        assert_eq!(view["outcome"], "failed", "{view}\n{}", case.story());
        assert!(
            view["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("context")),
            "{view}\n{}",
            case.story()
        );
    }
}

#[test]
fn trust_lasts_until_the_configuration_changes() {
    let Some(case) = Case::new(
        Cli::Claude,
        [Turn::say("It is trusted."), Turn::say("It is left out.")],
    ) else {
        return;
    };
    let started = case.plant_hostile_files();
    let config = "[agents.trusting]\nharness = \"claude\"\ntrust_repo = true\n";
    std::fs::write(case.home.home.dir.join("config.toml"), config)
        .expect("the home can be written");
    let dispatch = |more: &[&str]| {
        case.ran(
            &[
                &["run", "--detach", "--name", "job", "-a", "trusting"],
                more,
                &["go"],
            ]
            .concat(),
        )
    };
    let refused = dispatch(&[]);
    assert!(
        refused.code != 0
            && refused.err.contains("--trust-repo")
            && refused.err.contains(".claude/settings.json"),
        "{refused:?}"
    );
    assert_eq!(dispatch(&["--trust-repo"]).code, 0);
    let view = case.succeeds("It is trusted.");
    assert!(
        view["note"]
            .as_str()
            .is_some_and(|note| note.contains("sha256")),
        "{view}"
    );
    assert!(case.says(&["show", "job"]).contains("trusted with sha256"));
    let told = std::fs::read_to_string(&started).unwrap_or_default();
    assert!(
        told.contains("hook of claude"),
        "trusted configuration is used: {told:?}\n{}",
        case.story()
    );
    // The trust applies to an unchanged directory only.
    assert_eq!(
        case.ran(&["run", "--detach", "--name", "again", "-a", "trusting", "go"])
            .code,
        0
    );
    case.says(&["wait", "again"]);
    std::fs::write(case.home.work().join(".mcp.json"), "{}").expect("written");
    let refused = case.ran(&["run", "--detach", "--name", "third", "-a", "trusting", "go"]);
    assert!(
        refused.code != 0 && refused.err.contains("in its current state"),
        "{refused:?}"
    );
}

mod scenario {
    use super::*;

    /// In a directory whose files permit everything, the parent answers and writes, the hub dies,
    /// and approvals are denied, granted and left undecided.
    pub fn works_in_contact_with_its_parent(cli: Cli) {
        let mut conversation = Conversation::of(cli);
        let Some(case) = conversation.begins() else {
            return;
        };
        case.plant_hostile_files();
        case.starts(conversation.permissions());
        case.until_asked("Which colour?");
        case.says(&["send", "job", "mind the skirting board"]);
        case.replies("blue");
        case.until_asked("Go on?");
        case.kills_the_hub();
        case.replies("yes, go on");
        if cli.asks_for_commands() {
            decides_its_commands(&case, &conversation);
        }
        if cli.asks_for_edits() {
            case.until_asked("paint.txt");
            case.says(&["approve", "job"]);
        }
        let view = case.ends();
        assert_eq!(
            (&view["outcome"], &view["attempt"]),
            (&json!("succeeded"), &json!(1)),
            "{view}\n{}",
            case.story()
        );
        conversation.was_received(&case);
        conversation.was_decided(&case);
        conversation.was_reported(&case, &view);
    }

    /// A denied, an approved and an undecided command.
    fn decides_its_commands(case: &Case, conversation: &Conversation) {
        let pending = case.until_asked("forbidden.txt")["pending"].to_string();
        assert!(
            pending.contains("and so on, the end"),
            "the whole command is shown: {pending}"
        );
        case.says(&["deny", "job", "not in this house"]);
        case.until_asked("allowed.txt");
        // For the requests from now on.
        std::fs::write(case.home.home.dir.join("config.toml"), "expiry = \"2s\"\n")
            .expect("the home can be written");
        case.says(&["approve", "job"]);
        case.until_asked("undecided.txt");
        // Some CLIs describe the call twice, and ask again with the second description: both expire.
        // The agent asks the next one at once, which must not.
        case.model.holds_answers(true);
        case.model.until_asked(conversation.requests_until(5));
        std::fs::write(case.home.home.dir.join("config.toml"), "")
            .expect("the home can be written");
        case.model.holds_answers(false);
    }

    /// What the model says in `works_in_contact_with_its_parent`.
    struct Conversation {
        cli: Cli,
        turns: Vec<Turn>,
    }

    impl Conversation {
        fn of(cli: Cli) -> Self {
            // Kimi shows the first 50 characters of a command in its title.
            let long = format!("{FORBIDDEN} # {}the end", "and so on, ".repeat(30));
            let writes =
                |name: &str| Turn::asking_shell(&format!("python3 -c \"open('{name}', 'w')\""));
            let mut turns = Vec::new();
            if cli.retries_when_limited() {
                turns.push(Turn::RateLimited { after_s: 1 });
            }
            turns.extend([
                Turn::call("ask_parent", json!({ "question": "Which colour?" })),
                Turn::call(
                    "update_subagent_status",
                    json!({ "status": "running", "percent": 50 }),
                ),
                Turn::call("ask_parent", json!({ "question": "Go on?" })),
            ]);
            if cli.asks_for_commands() {
                turns.extend([
                    Turn::asking_shell(&long),
                    writes("allowed.txt"),
                    writes("undecided.txt"),
                ]);
            }
            turns.extend([
                Turn::write("paint.txt", "blue\n"),
                Turn::call(
                    "update_subagent_status",
                    json!({ "status": "success", "summary": "painted it blue" }),
                ),
                Turn::say("The paint is blue."),
            ]);
            Self { cli, turns }
        }

        fn begins(&mut self) -> Option<Case> {
            Case::new(self.cli, self.turns.clone())
        }

        /// `edit`, in which it asks for commands, where it has that.
        fn permissions(&self) -> &'static str {
            if self.cli.asks_for_commands() {
                "edit"
            } else {
                "full"
            }
        }

        /// The request of the model that has the result of a turn: of the first question, and what
        /// follows it by so many turns.
        fn after(&self, case: &Case, turns: usize) -> Seen {
            let seen = case.asked(self.turns.len());
            seen[self.requests_until(turns) - 1].clone()
        }

        /// How many requests the model has received with that of `after`.
        fn requests_until(&self, turns: usize) -> usize {
            usize::from(self.cli.retries_when_limited()) + turns + 2
        }

        /// The answers are results of the calls, and the message arrived once.
        fn was_received(&self, case: &Case) {
            assert!(
                self.after(case, 0).last_result().contains("blue"),
                "{}",
                case.story()
            );
            assert!(
                self.after(case, 2).last_result().contains("yes, go on"),
                "{}",
                case.story()
            );
            let body = self.after(case, 2).body.to_string();
            // Some CLIs show the model both the text and the structured result of a tool.
            let times_max = if matches!(self.cli, Cli::Kimi | Cli::Copilot | Cli::Qwen | Cli::Cline)
            {
                2
            } else {
                1
            };
            assert!(
                (1..=times_max).contains(&body.matches("mind the skirting board").count()),
                "once: {}",
                case.story()
            );
            // The receipt names the channel of the delivery.
            let way = if matches!(self.cli, Cli::Claude | Cli::Codex | Cli::Pi) {
                "live"
            } else {
                "tool_result"
            };
            let events = case
                .home
                .call(
                    &ReadEvents {
                        run: Some("job".to_owned()),
                        ..ReadEvents::default()
                    },
                    "",
                )
                .expect("it reads")
                .events;
            let delivered: Vec<&str> = events
                .iter()
                .filter(|event| event.kind == EventKind::MessageDelivered)
                .map(|event| event.text.as_str())
                .collect();
            assert!(
                matches!(delivered[..], [text] if text.contains(way)),
                "{delivered:?}"
            );
        }

        /// Only what was approved was done, and nothing else was asked about it.
        fn was_decided(&self, case: &Case) {
            let all = case.home.inbox(&["--all"]);
            // Some CLIs describe a call twice, and the second description replaces the first.
            let asked = |kind| {
                all.as_array()
                    .into_iter()
                    .flatten()
                    .filter(|one| one["kind"] == kind && one["status"] != "withdrawn")
                    .count()
            };
            let expected = if self.cli.asks_for_commands() { 3 } else { 0 }
                + usize::from(self.cli.asks_for_edits());
            assert_eq!(asked("approval"), expected, "{all}\n{}", case.story());
            // Anything unusual about an approved call would be a question that nobody has to
            // answer.
            assert_eq!(
                all.as_array()
                    .into_iter()
                    .flatten()
                    .filter(|one| one["kind"] == "question")
                    .count(),
                2,
                "{all}\n{}",
                case.story()
            );
            assert_eq!(
                (case.made("forbidden.txt"), case.made("undecided.txt")),
                (None, None),
                "{}",
                case.story()
            );
            if !self.cli.asks_for_commands() {
                return;
            }
            assert_eq!(
                case.made("allowed.txt").as_deref(),
                Some(""),
                "{}",
                case.story()
            );
            for turn in [3, 5] {
                assert!(
                    !self.after(case, turn).last_result().is_empty(),
                    "the model gets the result"
                );
            }
            if matches!(
                self.cli,
                Cli::Claude
                    | Cli::Codex
                    | Cli::Pi
                    | Cli::Opencode
                    | Cli::Kilo
                    | Cli::Qwen
                    | Cli::Copilot
            ) {
                assert!(
                    self.after(case, 3)
                        .body
                        .to_string()
                        .contains("not in this house"),
                    "and the reason: {}",
                    case.story()
                );
            }
            case.has_no_alarm();
        }

        fn was_reported(&self, case: &Case, view: &Value) {
            assert_eq!(
                view["summary"],
                "painted it blue",
                "{view}\n{}",
                case.story()
            );
            // Cline writes no newline at the end.
            let expected = if self.cli == Cli::Cline {
                "blue"
            } else {
                "blue\n"
            };
            assert_eq!(
                case.made("paint.txt").as_deref(),
                Some(expected),
                "{}",
                case.story()
            );
            assert!(
                case.home.log("job").contains("The paint is blue."),
                "{}",
                case.story()
            );
            // The CLI's own remark about the file precedes the text.
            if self.cli == Cli::Copilot {
                assert_eq!(view["result"], "The paint is blue.", "{view}");
            }
            if !self.cli.tells_usage() {
                assert!(
                    view.get("usage").is_none_or(Value::is_null),
                    "no usage is invented: {view}"
                );
                return;
            }
            let is_last = view["usage"]["of_last_call"] == true;
            let calls = if is_last {
                1
            } else {
                self.turns.len() - usize::from(self.cli.retries_when_limited())
            };
            let of_calls = (&json!(100 * calls), &json!(10 * calls));
            let counted = (
                &view["usage"]["input_tokens"],
                &view["usage"]["output_tokens"],
            );
            // Codex also searches for tools, which counts.
            assert!(
                counted == of_calls
                    || self.cli == Cli::Codex && counted.0.as_u64() > of_calls.0.as_u64(),
                "{view}"
            );
            let shown = case.home.ok(&["show", "job"]);
            assert_eq!(shown.contains("(last model call only)"), is_last, "{view}");
            assert!(shown.contains(" tokens in, "), "{view}");
        }
    }

    /// Paused, killed with its supervisor and without its session, it goes on; then it is
    /// cancelled. Nothing that it started is left.
    pub fn resumes_after_each_end_and_is_cancelled(cli: Cli) {
        let turns = [
            Turn::call("ask_parent", json!({ "question": "Which colour?" })),
            Turn::write("first.txt", "one\n"),
            Turn::hang("I am about to"),
        ];
        let Some(case) = Case::new(cli, turns) else {
            return;
        };
        case.starts("full");
        case.until_asked("Which colour?");
        case.replies("the blue one");
        case.model.until_asked(3);
        case.says(&["pause", "job"]);
        case.becomes("stopped");
        case.model.until_left(1);

        case.model
            .add_turns([Turn::shell(LEAVE_ONE_BEHIND), Turn::hang("I am about to")]);
        case.says(&["resume", "job", "finish it"]);
        case.model.until_asked(5);
        let seen = case.model.seen();
        assert!(
            seen[3].body.to_string().contains("finish it"),
            "{}",
            case.story()
        );
        if cli != Cli::Gemini {
            assert_eq!(
                seen[3].results.len(),
                2,
                "it remembers the answer and the written file: {}",
                case.story()
            );
        }
        case.kills_the_supervisor();
        case.model.until_left(2);
        case.nothing_is_left();
        let view = case.becomes("stopped");
        assert!(
            view["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("supervisor")),
            "{view}"
        );

        case.forgets_sessions();
        case.model
            .add_turns([Turn::shell(LEAVE_ONE_BEHIND), Turn::hang("I am about to")]);
        case.says(&["resume", "job", "mind the edges"]);
        case.model.until_asked(7);
        let seen = case.model.seen();
        assert!(
            seen[5].results.is_empty(),
            "the new session has no history: {}",
            case.story()
        );
        let prompt = seen[5].body.to_string();
        for text in ["do what the model says", "mind the edges", "the blue one"] {
            assert!(
                prompt.contains(text),
                "its prompt repeats everything: {}",
                case.story()
            );
        }
        case.cancels();
        let view = case.ends();
        assert_eq!(
            (&view["outcome"], &view["attempt"]),
            (&json!("cancelled"), &json!(3)),
            "{view}\n{}",
            case.story()
        );
        case.model.until_left(3);
        case.nothing_is_left();
    }

    /// Some CLIs describe such a call several times, each time in other words.
    pub fn writes_beside_its_directory_when_allowed(cli: Cli) {
        let Some(case) = Case::new(cli, []) else {
            return;
        };
        let beside = case.home.work().with_file_name("beside.txt");
        let write = Turn::Write {
            path: beside.display().to_string(),
            content: "there".to_owned(),
        };
        case.model.add_turns([write, Turn::say("It is there.")]);
        case.starts("edit");
        let asked = case.approves_everything();
        case.succeeds("It is there.");
        assert_eq!(
            std::fs::read_to_string(&beside).as_deref().ok(),
            Some("there"),
            "{}",
            case.story()
        );
        assert!(
            (1..=3).contains(&asked.len()) && asked.iter().all(|kind| kind == "approval"),
            "{asked:?}\n{}",
            case.story()
        );
        case.has_no_alarm();
    }

    /// Their vendors report the time.
    pub fn resumes_after_its_limit(cli: Cli) {
        let Some(case) = Case::new(cli, [Turn::UsedUp { for_s: 3 }, Turn::say("Now it works.")])
        else {
            return;
        };
        let case = case.of_a_subscriber();
        case.starts("edit");
        // On a loaded machine, the limit is over before the stop is seen.
        case.resumes_by_itself();
        let view = case.succeeds("Now it works.");
        let checkpoint = (
            &view["checkpoint"]["made_by"],
            &view["checkpoint"]["details"],
        );
        assert_eq!(
            checkpoint,
            (&json!("adjutant"), &json!("Its model was rate-limited")),
            "{view}\n{}",
            case.story()
        );
        assert_eq!(view["attempt"], 2, "{view}");
    }

    /// Usage of the whole session must not be added again in a resumed attempt.
    pub fn counts_its_usage_once_when_resumed(cli: Cli) {
        let stop = Turn::call(
            "stop_work",
            json!({ "stop_reason": "blocker", "details": "no paint" }),
        );
        let Some(case) = Case::new(cli, [stop, Turn::say("I wait for paint.")]) else {
            return;
        };
        case.starts("full");
        let stopped = case.becomes("stopped");
        let before = stopped["usage"]["input_tokens"].as_u64().unwrap_or(0);
        let calls = case.model.seen().len() as u64;
        case.model.add_turns([Turn::say("It is done now.")]);
        case.says(&["resume", "job", "here it is"]);
        let view = case.succeeds("It is done now.");
        let all = case.model.seen().len() as u64;
        let told = view["usage"]["input_tokens"].as_u64().unwrap_or(0);
        assert!(
            all > calls && told > before,
            "{calls} calls told {before}, {all} calls {told}: {view}"
        );
        assert!(
            told <= 100 * all,
            "{all} calls told {told}, {calls} of them {before}: {view}"
        );
        if !matches!(cli, Cli::Opencode | Cli::Kilo) {
            assert_eq!(
                (before, told),
                (100 * calls, 100 * all),
                "{view}\n{}",
                case.story()
            );
        }
    }

    pub fn leaves_out_what_a_hostile_directory_says(cli: Cli) {
        let Some(case) = Case::new(cli, [Turn::say("Nothing happened.")]) else {
            return;
        };
        let started = case.plant_hostile_files();
        case.starts("edit");
        let view = case.succeeds("Nothing happened.");
        assert!(
            !started.exists(),
            "{:?}\n{}",
            std::fs::read_to_string(&started),
            case.story()
        );
        match cli {
            Cli::Claude | Cli::Codex | Cli::Goose | Cli::Pi | Cli::Kimi => {
                assert!(view.get("note").is_none(), "{view}")
            }
            // Gemini's hooks cannot be disabled; there are none here.
            Cli::Gemini => assert!(
                view["note"]
                    .as_str()
                    .is_some_and(|note| note.contains(".gemini/settings.json")),
                "{view}"
            ),
            Cli::Opencode | Cli::Kilo | Cli::Qwen | Cli::Copilot => {
                assert!(view.get("note").is_none(), "{view}")
            }
            Cli::Cline | Cli::Aider | Cli::Droid | Cli::Amp => {}
        }
        // Kimi and Copilot use the configuration of a directory that is trusted in their own
        // settings. Cline has none that it ignores.
        if matches!(cli, Cli::Goose | Cli::Kimi | Cli::Copilot | Cli::Cline) {
            return;
        }
        // A trusted directory's configuration is used, so the test above could fail.
        case.model.add_turns([Turn::say("It was trusted.")]);
        let ran = case.ran(&[
            "run",
            "--detach",
            "--agent",
            cli.name(),
            "--name",
            "trusting",
            "--trust-repo",
            "go",
        ]);
        assert_eq!(ran.code, 0, "{ran:?}");
        case.says(&["wait", "trusting"]);
        assert!(
            started.exists(),
            "{}\n{}",
            case.home.show("trusting"),
            case.story()
        );
    }

    /// These do not retry by themselves, and report no time.
    pub fn stops_at_a_rate_limit(cli: Cli) {
        let Some(case) = Case::new(
            cli,
            [Turn::RateLimited { after_s: 1 }, Turn::say("Now it works.")],
        ) else {
            return;
        };
        case.starts(cli.writing());
        let view = case.becomes("stopped");
        assert!(
            view["reason"]
                .as_str()
                .is_some_and(|reason| reason.starts_with("rate_limited")),
            "{view}\n{}",
            case.story()
        );
        assert!(view["resumes_at"].is_string(), "{view}");
        case.says(&["resume", "job"]);
        case.succeeds("Now it works.");
    }

    pub fn fails_without_a_valid_key(cli: Cli) {
        let Some(case) = Case::new(
            cli,
            [Turn::Unauthorized, Turn::Unauthorized, Turn::Unauthorized],
        ) else {
            return;
        };
        case.starts(cli.writing());
        let view = case.ends();
        assert_eq!(view["outcome"], "failed", "{view}\n{}", case.story());
        assert!(
            view["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("not signed in")),
            "{view}\n{}",
            case.story()
        );
    }
}
