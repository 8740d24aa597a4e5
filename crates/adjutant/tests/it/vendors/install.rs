//! `adj install`, with the lists of servers and skills of the real CLIs.

use super::connect::UNKNOWN_MODEL;
use super::user::{environment, own_environment, settle};
use super::{Cli, Turnstile};
use crate::model::{Model, Turn};
use crate::readme::{path, typed};
use crate::support::{Ran, TestHome};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct User {
    cli: Cli,
    clis: Turnstile,
    model: Model,
    home: TestHome,
}

impl User {
    fn run(&self, line: &str) -> Ran {
        let mut command = typed(&self.home, line);
        command
            .envs(environment(&self.clis, &self.model))
            .envs(own_environment(self.cli, &self.model));
        command.env("TMPDIR", self.home.home.dir.parent().expect("a directory"));
        command
            .env("PATH", format!("{}:{}", self.clis.bin.display(), path()))
            .env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        let ran: Ran = command.output().expect("a shell").into();
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
        ran
    }

    fn lists(&self) -> String {
        let line = match self.cli {
            Cli::Goose => "goose info -v".to_owned(),
            cli => format!("{} mcp list", cli.name()),
        };
        let listed = self.run(&line);
        listed.out + &listed.err
    }

    /// Returns the CLI's list of skills. `None`: it prints none without a model.
    fn skills(&self) -> Option<String> {
        let line = match self.cli {
            Cli::Gemini => "gemini skills list",
            Cli::Goose => "goose skills list",
            Cli::Opencode => "opencode debug skill",
            Cli::Copilot => "copilot skill list",
            _ => return None,
        };
        let listed = self.run(line);
        Some(listed.out + &listed.err)
    }
}

impl User {
    fn new(cli: Cli) -> Option<Self> {
        Some(Self::with(cli, Turnstile::enter()?))
    }

    fn with(cli: Cli, clis: Turnstile) -> Self {
        let model = Model::plays(Vec::<Turn>::new());
        let home = TestHome::new();
        settle(home.home.dir.parent().expect("a directory"), &model);
        Self {
            cli,
            clis,
            model,
            home,
        }
    }

    /// Plays these turns to `codex exec`, and returns the result of each.
    fn results(&self, turns: Vec<Turn>) -> Vec<String> {
        let calls = turns.len();
        self.model
            .add_turns(turns.into_iter().chain([Turn::say("That is all.")]));
        self.run(&format!(
            "echo 'do what the model says' | codex exec -c model={UNKNOWN_MODEL} -"
        ));
        let seen = self.model.seen();
        assert!(seen.len() > calls, "{seen:#?}");
        seen.iter()
            .skip(1)
            .take(calls)
            .map(|seen| seen.last_result().to_owned())
            .collect()
    }
}

/// Kimi Code sends no progress token, so without the limits of its entry it would wait in calls of
/// 45 s.
#[test]
fn kimi_waits_in_one_call_with_the_installed_entry() {
    const SILENCE: Duration = Duration::from_secs(55);
    let Some(clis) = Turnstile::beside() else {
        return;
    };
    let user = User::with(Cli::Kimi, clis);
    user.run("adj install kimi --yes --skill no");
    user.model.add_turns([
        Turn::call("run_subagent", json!({ "agent": "echo", "name": "quiet", "prompt": format!("---\nsleep {}\ndone at last", SILENCE.as_secs()) })),
        Turn::call("wait_for_subagents", json!({})),
        Turn::say("That is all."),
    ]);
    let began = Instant::now();
    user.run("kimi -p 'do what the model says'");
    let seen = user.model.seen();
    assert!(
        seen.len() == 3 && seen[2].last_result().contains("at last"),
        "{seen:#?}"
    );
    assert!(began.elapsed() >= SILENCE);
}

/// Without a terminal, Codex refuses the calls for which it would ask its user.
#[test]
fn codex_without_a_terminal_reviews_merges_and_steers() {
    let Some(user) = User::new(Cli::Codex) else {
        return;
    };
    user.run("git init -q -b main . && git config user.name U && git config user.email u@example.org && git commit -q --allow-empty -m first");
    user.run("adj install codex --yes --skill no");
    let start = |name: &str, script: &str, isolation: &str| {
        Turn::call(
            "run_subagent",
            json!({ "agent": "echo", "name": name, "prompt": format!("---\n{script}"), "isolation": isolation, "wait_s": 5 }),
        )
    };
    let of = |tool: &str, run: &str, action: &str| {
        Turn::call(
            tool,
            json!({ "run_id": run, "action": action, "text": "x" }),
        )
    };
    let review = |action: &str| {
        Turn::call(
            "review_changes",
            json!({ "run_id": "writer", "action": action }),
        )
    };
    let merge = |action: &str| {
        Turn::call(
            "merge_changes",
            json!({ "run_id": "writer", "action": action }),
        )
    };
    let turns = [
        (start("writer", "write made.txt amber", "clone"), "success"),
        (review("stat"), "made.txt"),
        (review("diff"), "+amber"),
        (merge("merge"), "merged"),
        (merge("discard"), "discarded"),
        (start("idle", "hang", "none"), "idle"),
        (of("steer_subagent", "idle", "message"), "message"),
        (of("steer_subagent", "idle", "stop"), "idle"),
        (
            Turn::call(
                "wait_for_subagents",
                json!({ "run_ids": ["idle"], "wait_s": 30 }),
            ),
            "stopped",
        ),
        (of("steer_subagent", "idle", "resume"), "idle"),
        (of("steer_subagent", "idle", "cancel"), "idle"),
    ];
    let (turns, expected): (Vec<Turn>, Vec<&str>) = turns.into_iter().unzip();
    let results = user.results(turns);
    for (n, (result, expected)) in results.iter().zip(expected).enumerate() {
        assert!(
            result.contains(expected)
                && !result.contains("requires approval")
                && !result.contains("error["),
            "call {n}: {result}\n{results:#?}"
        );
    }
    assert_eq!(
        std::fs::read_to_string(user.home.work().join("made.txt"))
            .ok()
            .map(|text| text.trim().to_owned())
            .as_deref(),
        Some("amber"),
        "{results:#?}"
    );
}

/// Connected by hand, it still reads, steers and stops; a merge needs an approval that nobody can
/// give there.
#[test]
fn codex_connected_by_hand_reviews_and_steers() {
    let Some(user) = User::new(Cli::Codex) else {
        return;
    };
    user.run("git init -q -b main . && git config user.name U && git config user.email u@example.org && git commit -q --allow-empty -m first");
    user.run("codex mcp add adjutant -- adj mcp");
    let prompt = json!({ "agent": "echo", "name": "writer", "prompt": "---\nwrite made.txt amber", "isolation": "clone", "wait_s": 5 });
    let results = user.results(vec![
        Turn::call("run_subagent", prompt),
        Turn::call(
            "review_changes",
            json!({ "run_id": "writer", "action": "diff" }),
        ),
        Turn::call(
            "merge_changes",
            json!({ "run_id": "writer", "action": "merge" }),
        ),
        Turn::call(
            "steer_subagent",
            json!({ "run_id": "writer", "action": "cancel" }),
        ),
    ]);
    assert!(results[1].contains("+amber"), "{results:#?}");
    assert!(
        results[2].contains("approval") && !user.home.work().join("made.txt").exists(),
        "{results:#?}"
    );
    assert!(results[3].contains("run_finished"), "{results:#?}");
}

/// Connects a CLI, expects the server and the skill in its own lists, and disconnects it.
fn installs(cli: Cli, file: &str) {
    let Some(user) = User::new(cli) else { return };
    let file: PathBuf = user.home.home.dir.with_file_name(file);
    // It writes its file when it starts for the first time.
    assert!(!user.lists().contains("adjutant"), "{cli:?}");
    let before = std::fs::read_to_string(&file).ok();
    let id = cli.name();
    user.run(&format!("adj install {id} --yes"));
    let listed = user.lists();
    assert!(listed.contains("adjutant"), "{listed}");
    if let Some(skills) = user.skills() {
        assert!(
            skills.contains("adjutant") && !skills.contains("Skill conflict"),
            "{cli:?}: {skills}"
        );
    }
    user.run(&format!("adj install {id} --undo --yes"));
    assert_eq!(std::fs::read_to_string(&file).ok(), before, "{cli:?}");
    assert!(!user.lists().contains("adjutant"), "{cli:?}");
    assert!(
        user.skills()
            .is_none_or(|skills| !skills.contains("adjutant")),
        "{cli:?}"
    );
}

#[test]
fn claude_lists_the_installed_server() {
    installs(Cli::Claude, ".claude.json");
}

#[test]
fn codex_lists_the_installed_server() {
    installs(Cli::Codex, ".codex/config.toml");
}

#[test]
fn gemini_lists_the_installed_server() {
    installs(Cli::Gemini, ".gemini/settings.json");
}

#[test]
fn opencode_lists_the_installed_server() {
    installs(Cli::Opencode, ".config/opencode/opencode.json");
}

#[test]
fn goose_lists_the_installed_server() {
    installs(Cli::Goose, ".config/goose/config.yaml");
}

#[test]
fn qwen_lists_the_installed_server() {
    installs(Cli::Qwen, ".qwen/settings.json");
}

#[test]
fn copilot_lists_the_installed_server() {
    installs(Cli::Copilot, ".copilot/mcp-config.json");
}
