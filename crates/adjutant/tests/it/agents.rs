//! `adj agents`: what it reports about installed programs, and `adj agents test`.

use crate::mcp::{Session, text};
use crate::support::{Ran, TestHome};
use adjutant_api::preset;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Creates a program from a shell script.
fn program(path: &Path, script: &str) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("the script can be written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .expect("it can be made executable");
}

struct Here {
    home: TestHome,
    bin: PathBuf,
}

impl Here {
    fn new() -> Self {
        let home = TestHome::new();
        let bin = home.work().join("../bin");
        Self { home, bin }
    }

    fn adj(&self, args: &[&str]) -> Ran {
        let path = format!("{}:/usr/bin:/bin", self.bin.display());
        self.home
            .command(args)
            .env("PATH", path)
            .env("A_SECRET", "x")
            .env("OPENAI_API_KEY", "y")
            .output()
            .expect("adj starts")
            .into()
    }

    fn agent(&self, name: &str) -> Value {
        self.adj(&["--json", "agents", name]).data()
    }

    fn lines(&self, file: &str) -> usize {
        std::fs::read_to_string(self.bin.join(file)).map_or(0, |text| text.lines().count())
    }
}

#[test]
fn version_is_asked_once_for_each_state_of_the_program() {
    let here = Here::new();
    let (asked, env) = (here.bin.join("asked"), here.bin.join("env"));
    let script = |version: &str| {
        let script = format!(
            "echo \"$*\" >> {}\nenv | cut -d= -f1 > {}\npwd >> {1}\necho 'tool {version} (x)'",
            asked.display(),
            env.display()
        );
        program(&here.bin.join("claude"), &script);
    };
    script("9.9.9");
    let agent = here.agent("claude");
    assert_eq!(agent["version"], "9.9.9", "{agent}");
    let tried = preset::builtin("claude")
        .and_then(|preset| preset.about.tested_versions())
        .expect("it was tried");
    assert_eq!(
        agent["version_note"],
        format!("newer than the tested versions ({tried})"),
        "{agent}"
    );
    assert_eq!(
        std::fs::read_to_string(&asked).expect("it was asked"),
        "--version\n"
    );
    // The program gets its own environment, without other vendors' keys and other variables of the
    // dispatcher, and not the caller's directory.
    let names = std::fs::read_to_string(&env).expect("the program recorded its environment");
    assert!(
        names.lines().any(|name| name == "DISABLE_AUTOUPDATER")
            && names.lines().any(|name| name == "/"),
        "{names}"
    );
    assert!(
        !names.contains("A_SECRET")
            && !names.contains("OPENAI_API_KEY")
            && !names.contains("TOKEN"),
        "{names}"
    );
    here.agent("claude");
    here.home.ok(&["stop"]);
    here.agent("claude");
    assert_eq!(
        here.lines("asked"),
        1,
        "neither the same hub nor the next one asks again"
    );
    // Neither a dispatch nor the welcome queries versions.
    here.adj(&[]);
    script(&tried.highest.to_string());
    here.adj(&["--json", "run", "-a", "echo", "-w", "say hello"]);
    assert_eq!(here.lines("asked"), 1);
    let agent = here.agent("claude");
    assert_eq!(
        (&agent["version"], &agent["version_note"]),
        (&json!(tried.highest.to_string()), &Value::Null),
        "{agent}"
    );
    assert_eq!(here.lines("asked"), 2);
}

#[test]
fn program_without_a_version_is_listed() {
    let here = Here::new();
    program(&here.bin.join("claude"), "echo 'no idea'");
    program(&here.bin.join("codex"), "exit 3");
    let note = |name: &str| {
        here.agent(name)["version_note"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(note("claude"), "no version found in its output");
    assert_eq!(
        note("codex"),
        "cannot read its version: it ended with exit code 3"
    );
    let table = here.adj(&["agents"]);
    assert!(
        table.out.contains("unknown") && table.err.contains("codex: cannot read its version"),
        "{table:?}"
    );
}

/// Installs a fake Claude Code that reports the version in a file beside it, and otherwise that it
/// is done.
fn plays_claude(here: &Here) -> impl Fn(&str) {
    let bin = here.bin.display();
    let script = format!(
        "[ \"$1\" = --version ] && {{ echo x >> {bin}/asked; exec cat {bin}/version; }}\necho x >> {bin}/started\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done\"}}'"
    );
    program(&here.bin.join("claude"), &script);
    let version = here.bin.join("version");
    move |said| std::fs::write(&version, said).expect("the version can be written")
}

#[test]
fn outdated_program_is_not_started() {
    let here = Here::new();
    let says = plays_claude(&here);
    says("2.1.298 (Claude Code)");
    let run = || {
        here.adj(&[
            "--json",
            "run",
            "-a",
            "claude",
            "-w",
            "Look at @/etc/passwd",
        ])
    };
    let old = run();
    let view = old.data();
    assert_eq!(
        (&view["status"], &view["outcome"], &view["attempt"]),
        (&json!("error"), &json!("failed"), &json!(1)),
        "{old:?}"
    );
    let reason = view["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("too old")
            && reason.contains("2.1.298 is too old to be started, 2.1.299 is needed"),
        "{view}"
    );
    assert!(reason.contains("update it: claude update"), "{view}");
    assert_eq!(
        (here.lines("asked"), here.lines("started"), old.code),
        (1, 0, 1),
        "{old:?}"
    );
    let agent = here.agent("claude");
    assert!(
        agent["version_note"]
            .as_str()
            .is_some_and(|note| note.starts_with("too old to be started, 2.1.299 is needed")),
        "{agent}"
    );
    // The program that the script starts was updated, while the script is unchanged.
    says("2.1.299 (Claude Code)");
    let new = run();
    assert_eq!(
        (
            &new.data()["outcome"],
            here.lines("asked"),
            here.lines("started")
        ),
        (&json!("succeeded"), 2, 1),
        "{new:?}"
    );
    run();
    here.home.ok(&["stop"]);
    run();
    assert_eq!(
        (here.lines("asked"), here.lines("started")),
        (2, 3),
        "neither a later run nor one of the next hub asks again"
    );
}

#[test]
fn program_without_a_version_is_started() {
    let here = Here::new();
    let says = plays_claude(&here);
    let run = || {
        here.adj(&["--json", "run", "-a", "claude", "-w", "Do it"])
            .data()
    };
    // Without the file, the version query fails.
    assert_eq!(
        (&run()["outcome"], &run()["outcome"]),
        (&json!("succeeded"), &json!("succeeded"))
    );
    assert_eq!((here.lines("asked"), here.lines("started")), (1, 2));
    says("a fine one");
    here.agent("claude");
    assert_eq!(
        (
            &run()["outcome"],
            here.lines("asked"),
            here.lines("started")
        ),
        (&json!("succeeded"), 2, 3)
    );
}

/// Installs a fake Claude Code that is rate limited as many times as a file beside it has lines.
fn plays_limited(here: &Here, times: usize) {
    let bin = here.bin.display();
    let script = format!(
        "[ \"$1\" = --version ] && exec echo 2.1.329\nif [ -s {bin}/limits ]; then sed -i 1d {bin}/limits; error=true said='API Error: 429 slow down'\n\
         else error=false said=done; fi\necho x >> {bin}/started\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":'$error',\"result\":\"'$said'\"}}'"
    );
    program(&here.bin.join("claude"), &script);
    std::fs::write(here.bin.join("limits"), "x\n".repeat(times)).expect("a file");
}

fn config(here: &Here, text: &str) {
    std::fs::write(here.home.home.dir.join("config.toml"), text)
        .expect("the configuration can be written");
}

#[test]
fn run_resumes_after_rate_limits_up_to_a_maximum() {
    let here = Here::new();
    plays_limited(&here, 5);
    config(&here, "[rate_limits]\ntimes_max = 2\npause = \"10ms\"\n");
    here.adj(&["run", "--detach", "-a", "claude", "-n", "limited", "Do it"]);
    let view = here.home.finished("limited");
    assert_eq!(
        (&view["outcome"], &view["attempt"], here.lines("started")),
        (&json!("failed"), &json!(3), 3),
        "{view}"
    );
    let reason = view["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("rate limited")
            && reason.contains("429 slow down")
            && reason.contains("it resumed 2 times after rate limits"),
        "{view}"
    );
    // Two rate limits are left, which is the number of allowed retries.
    here.adj(&["run", "--detach", "-a", "claude", "-n", "patient", "Do it"]);
    let view = here.home.finished("patient");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(3)),
        "{view}"
    );
}

#[test]
fn rate_limited_run_resumed_by_hand_counts_from_zero() {
    let here = Here::new();
    plays_limited(&here, 2);
    config(
        &here,
        "[rate_limits]\ntimes_max = 1\npause = \"1h\"\npause_max = \"1h\"\n",
    );
    here.adj(&["run", "--detach", "-a", "claude", "-n", "limited", "Do it"]);
    for attempt in 1..=2 {
        let view = here
            .home
            .until(&format!("attempt {attempt} is stopped"), || {
                let view = here.home.show("limited");
                (view["status"] == "stopped" && view["attempt"] == attempt).then_some(view)
            });
        assert!(view["resumes_at"].is_string(), "{view}");
        let reason = view["reason"].as_str().unwrap_or_default();
        assert!(
            reason.starts_with("rate_limited, resumes at") && reason.contains("429 slow down"),
            "{view}"
        );
        here.home.ok(&["resume", "limited"]);
    }
    assert_eq!(here.home.finished("limited")["outcome"], "succeeded");
}

#[test]
fn overloaded_service_stops_the_run_for_that_reason() {
    let here = Here::new();
    let play = |said: &str| {
        plays_limited(&here, 1);
        let path = here.bin.join("claude");
        let script = std::fs::read_to_string(&path).expect("a script");
        program(
            &path,
            script
                .trim_start_matches("#!/bin/sh\n")
                .replace("429 slow down", said)
                .as_str(),
        );
    };
    // The overload counts, whatever else the message mentions.
    play("529 Overloaded. This is a server-side issue; see the rate limit page");
    config(&here, "[rate_limits]\npause = \"1h\"\npause_max = \"1h\"\n");
    here.adj(&["run", "--detach", "-a", "claude", "-n", "busy", "Do it"]);
    let view = here.home.until("it is stopped", || {
        let view = here.home.show("busy");
        (view["status"] == "stopped").then_some(view)
    });
    let reason = view["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("overloaded, resumes at")
            && view["resumes_at"].is_string()
            && view["end_reason"] == "overloaded",
        "{view}"
    );
    let listed = here.adj(&["ps"]);
    assert!(!listed.out.contains("rate"), "{listed:?}");
    // It resumes by hand, and by itself.
    here.home.ok(&["resume", "busy"]);
    assert_eq!(here.home.finished("busy")["outcome"], "succeeded");
    play("500 Internal Server Error");
    config(&here, "[rate_limits]\npause = \"10ms\"\n");
    here.adj(&["run", "--detach", "-a", "claude", "-n", "brief", "Do it"]);
    let view = here.home.finished("brief");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2)),
        "{view}"
    );
}

#[test]
fn sign_in_is_found_by_a_file_or_variable() {
    let here = Here::new();
    for name in ["claude", "codex", "cursor-agent"] {
        program(&here.bin.join(name), "echo 1.2.3");
    }
    let sign_in = |name: &str| here.agent(name)["sign_in"].clone();
    assert_eq!(
        (&sign_in("codex")["found"], &sign_in("codex")["by"]),
        (&json!(true), &json!("OPENAI_API_KEY"))
    );
    assert_eq!(sign_in("claude")["found"], false);
    let told = here.adj(&["agents"]);
    assert!(
        told.err
            .contains("claude: probably not signed in: run claude once"),
        "{told:?}"
    );
    assert!(
        told.err
            .contains("cursor-agent: supported from its documentation"),
        "{told:?}"
    );
    let credentials = here.home.work().join("../.claude/.credentials.json");
    // A directory in place of the file exists but cannot be read.
    std::fs::create_dir_all(&credentials).expect("a directory");
    assert_eq!(sign_in("claude")["found"], true);
    let told = here.adj(&["agents", "claude"]);
    assert!(
        told.out.contains("found ")
            && told.out.contains(".credentials.json")
            && told.out.contains("our tools"),
        "{told:?}"
    );
}

#[test]
fn models_get_a_short_list_of_agents() {
    let home = TestHome::new();
    let script = home.work().join("../reviewer");
    program(&script, "echo 2.1.329");
    let config = format!(
        "[agents.reviewer]\nharness = \"claude\"\ncommand = [{:?}]\ndescription = \"Reviews\"\nenv = {{ ANTHROPIC_API_KEY = \"k\" }}\n\
         [agents.guest]\nharness = \"cursor-agent\"\ncommand = [{0:?}]\ndescription = \"Guesses\"\nenv = {{ HOME = \"/\" }}\n",
        script.display().to_string()
    );
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let first = session.tool("list_coding_agents", json!({}));
    assert!(text(&first).contains("reviewer: Reviews"), "{first}");
    let result = home.until("the versions are known", || {
        let result = session.tool("list_coding_agents", json!({}));
        result["structuredContent"]["versions_pending"]
            .is_null()
            .then_some(result)
    });
    let lines: Vec<&str> = text(&result).lines().collect();
    assert!(lines.contains(&"reviewer: Reviews 2.1.329"), "{lines:?}");
    assert_eq!(
        lines.last(),
        Some(&"next: run_subagent agent=reviewer prompt=…"),
        "one that is signed in"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("guest: Guesses 2.1.329 [")
                && line.ends_with("never tried; permissions: only full]")),
        "{lines:?}"
    );
    let agents = result["structuredContent"]["agents"]
        .as_array()
        .expect("a list")
        .clone();
    let reviewer = agents
        .iter()
        .find(|agent| agent["name"] == "reviewer")
        .expect("it is listed");
    assert_eq!(
        (&reviewer["version"], &reviewer["signed_in"]),
        (&json!("2.1.329"), &json!(true))
    );
    let guest = agents
        .iter()
        .find(|agent| agent["name"] == "guest")
        .expect("it is listed");
    assert_eq!(
        (
            &guest["tried"],
            &guest["signed_in"],
            guest["sign_in"].is_string()
        ),
        (&json!(false), &json!(false), true),
        "{guest}"
    );
    // The tool's former name is accepted.
    assert_eq!(session.tool("list_agents", json!({})), result);
    std::fs::remove_file(home.home.dir.join("config.toml")).expect("it is there");
    let nobody = session.done("list_coding_agents", json!({}));
    assert_eq!(
        nobody["next"], "run_subagent with the name of a suitable agent",
        "none is signed in: {nobody}"
    );
}

/// Creates programs that are slow to report their versions.
fn slow_programs(here: &Here) {
    for name in [
        "claude", "codex", "gemini", "goose", "opencode", "qwen", "copilot", "pi", "aider", "amp",
        "droid", "crush",
    ] {
        let script = format!(
            "echo x >> {}/asked\nread -r _ < {0}/gate\necho {name} 1.2.3",
            here.bin.display()
        );
        program(&here.bin.join(name), &script);
    }
    let made = Command::new("mkfifo")
        .arg(here.bin.join("gate"))
        .status()
        .expect("mkfifo runs");
    assert!(made.success());
}

#[test]
fn agent_list_marks_unknown_versions_without_waiting() {
    let here = Here::new();
    slow_programs(&here);
    // Starts the hub, so that its start does not count.
    here.adj(&["ps"]);
    let list = || {
        let began = Instant::now();
        let list = here.adj(&["--json", "agents"]).data();
        let took = began.elapsed();
        println!("adj agents took {took:?}");
        (list, took)
    };
    let (cold, took) = list();
    let found: Vec<&Value> = cold
        .as_array()
        .expect("a list")
        .iter()
        .filter(|agent| agent["found"] == true && agent["harness"] != "echo")
        .collect();
    assert_eq!(found.len(), 12, "{cold}");
    // No program has reported its version yet: all wait for the gate.
    assert!(
        found
            .iter()
            .all(|agent| agent["version_pending"] == true && agent["version"].is_null()),
        "{cold}"
    );
    assert!(took < Duration::from_secs(2), "{took:?}");
    let table = here.adj(&["agents"]);
    assert!(
        table.out.contains("checking")
            && table.err.contains("versions not known yet: ")
            && table.err.contains("adj agents NAME"),
        "{table:?}"
    );
    // Kept open to the end, so that no reader finds it closed.
    let mut gate = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(here.bin.join("gate"))
        .expect("the gate opens");
    gate.write_all("x\n".repeat(100).as_bytes())
        .expect("the gate is written");
    let warm = here.home.until("all versions are known", || {
        let (list, _) = list();
        list.as_array()?
            .iter()
            .all(|agent| agent["version_pending"].is_null())
            .then_some(list)
    });
    assert!(
        warm.as_array()
            .expect("a list")
            .iter()
            .filter(|agent| agent["version"] == "1.2.3")
            .count()
            == 12,
        "{warm}"
    );
    assert_eq!(here.lines("asked"), 12, "each was asked once");
    let (_, took) = list();
    assert!(took < Duration::from_secs(2), "{took:?}");
    drop(gate);
}

fn verdicts(ran: &Ran) -> Vec<(String, String)> {
    let data = ran.data();
    let word = |check: &Value, name: &str| check[name].as_str().expect("a text").to_owned();
    data["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .map(|check| (word(check, "check"), word(check, "verdict")))
        .collect()
}

#[test]
fn echo_passes_its_test_and_leaves_no_run() {
    let home = TestHome::new();
    let ran = home.adj(&["--json", "agents", "test", "echo"]);
    let expected = [
        ("our tools", "pass"),
        ("question", "pass"),
        ("resume", "pass"),
        ("report", "pass"),
        ("usage", "not_applicable"),
        ("command", "pass"),
        ("approvals", "not_applicable"),
        ("cancel", "pass"),
    ];
    let found = verdicts(&ran);
    let found: Vec<_> = found
        .iter()
        .map(|(check, verdict)| (check.as_str(), verdict.as_str()))
        .collect();
    assert_eq!(
        (found.as_slice(), ran.code),
        (expected.as_slice(), 0),
        "{ran:?}"
    );
    assert!(ran.out.contains("in its own session"), "{ran:?}");
    assert_eq!(home.json(&["ps"]).as_array().map(Vec::len), Some(0));
    // People see the same verdicts with details.
    let told = home.adj(&["agents", "test", "echo"]);
    assert!(
        told.code == 0
            && told.out.contains("✓ question")
            && told.err.contains("echo: all checks passed"),
        "{told:?}"
    );
}

/// An agent that follows its prompt by printing signal blocks.
const SPEAKS_IN_BLOCKS: &str = r#"
prompt=$(cat)
id=$(printf '%s\n' "$prompt" | sed -n 's/.*(id \([0-9a-f-]*\)).*/\1/p' | head -n 1)
word() { printf '%s\n' "$prompt" | grep -o "$1-[0-9a-f]\{8\}" | head -n 1; }
block() { printf '[%s]\nagent_id: %s\n%s\n[/%s]\n' "$1" "$id" "$2" "$1"; }
ask() { block CLARIFICATION_NEEDED "reason: the test
questions:
  - text: $1"; }
case "$prompt" in
*Ready*) ask 'Ready?'; exit ;;
esac
first=$(word amber); second=$(word birch)
if [ -n "$second" ]; then
    block COMPLETION_REPORT "status: success
summary: $first $second"
    echo "$first $second"
elif [ -n "$first" ]; then
    block STOP_WORK "stop_reason: blocker
details: waits for the second word
state_snapshot: the first word is $first"
else
    block PROGRESS "percent: 10
note: adjutant-test"
    ask 'Which word?'
fi
"#;

#[test]
fn agent_without_tools_is_tested_by_its_text() {
    let home = TestHome::new();
    let script = home.work().join("../speaks");
    program(&script, SPEAKS_IN_BLOCKS);
    let config = format!(
        "[agents.speaker]\nharness = \"plain\"\ncommand = [{:?}]\n",
        script.display().to_string()
    );
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    let ran = home.adj(&["--json", "agents", "test", "speaker"]);
    let found = verdicts(&ran);
    let of = |name: &str| {
        found
            .iter()
            .find(|(check, _)| check == name)
            .map(|(_, verdict)| verdict.as_str())
    };
    for check in ["blocks", "question", "resume", "report", "cancel"] {
        assert_eq!(of(check), Some("pass"), "{check}: {ran:?}");
    }
    assert_eq!(
        (of("our tools"), ran.code),
        (Some("not_applicable"), 0),
        "{ran:?}"
    );
}

#[test]
fn idle_agent_fails_its_test() {
    let home =
        TestHome::with_config("[agents.deaf]\nharness = \"plain\"\ncommand = [\"/bin/true\"]\n");
    let ran = home.adj(&["--json", "agents", "test", "deaf"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let failed: Vec<String> = verdicts(&ran)
        .into_iter()
        .filter(|(_, verdict)| verdict == "fail")
        .map(|(check, _)| check)
        .collect();
    assert_eq!(failed, ["blocks", "question", "report"], "{ran:?}");
    for name in ["nobody", "no such name"] {
        assert_eq!(home.adj(&["--json", "agents", "test", name]).code, 127);
    }
}

#[test]
fn interrupted_test_leaves_nothing() {
    let home = TestHome::with_config(
        "[agents.slow]\nharness = \"plain\"\ncommand = [\"/bin/sleep\", \"1000\"]\n",
    );
    for signal in [Signal::HUP, Signal::TERM] {
        let mut command = home.command(&["--json", "agents", "test", "slow", "--yes"]);
        let mut test = command
            .env("TMPDIR", home.work())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("adj can be started");
        let run = home.until("its run works", || {
            home.json(&["ps"])[0]["run_id"]
                .as_str()
                .map(ToOwned::to_owned)
        });
        let pid = Pid::from_raw(test.id().cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("it is there");
        assert_eq!(test.wait().expect("it ends").code(), Some(130));
        assert_eq!(home.finished(&run)["outcome"], "cancelled");
        assert_eq!(
            std::fs::read_dir(home.work()).expect("a directory").count(),
            0,
            "its directory is gone"
        );
    }
}
