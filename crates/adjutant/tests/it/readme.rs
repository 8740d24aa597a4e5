//! The README's commands, configuration and limits work as described.

use crate::processes::{self, Mark};
use crate::support::{Ran, TestHome};
use crate::terminal::Terminal;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const README: &str = include_str!("../../../../README.md");
const GUARANTEES: &str = include_str!("../../../../docs/guarantees.md");
const INSTALL: &str = include_str!("../../../../docs/install.md");
const WORKSPACES: &str = include_str!("../../../../docs/workspaces.md");
const ADJ: &str = env!("CARGO_BIN_EXE_adj");

/// The only target that the repository's checks build and run.
const BUILT_TARGET: &str = "x86_64-unknown-linux-gnu";

/// A release has packages only for targets that were built and tested, and the documents name no
/// other.
#[test]
fn release_has_only_targets_that_were_built() {
    let target =
        Regex::new(r"[a-z0-9_]+-(?:unknown-linux|apple|pc-windows)-?[a-z0-9]*").expect("a pattern");
    let release = [
        include_str!("../../../../.github/workflows/release.yml"),
        include_str!("../../../../packaging/build"),
    ];
    for text in release {
        let found: Vec<&str> = target.find_iter(text).map(|found| found.as_str()).collect();
        assert!(
            !found.is_empty() && found.iter().all(|found| *found == BUILT_TARGET),
            "{found:?}"
        );
        assert!(
            !text.to_lowercase().contains("macos") && !text.contains("Darwin"),
            "{text}"
        );
    }
    assert!(
        README.contains("compiles for macOS, but cannot run there yet")
            && INSTALL.contains("compiles for macOS,\nbut cannot run there yet")
    );
}

/// Returns the code blocks of a language in the section with a heading.
pub fn blocks(heading: &str, language: &str) -> Vec<&'static str> {
    let section = README
        .split_once(&format!("## {heading}\n"))
        .unwrap_or_else(|| panic!("no section {heading:?}"))
        .1;
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let start = format!("```{language}\n");
    section
        .split(start.as_str())
        .skip(1)
        .map(|block| block.split_once("```").expect("the block ends").0)
        .collect()
}

/// Returns the first code block of a language in the section with a heading.
pub fn block(heading: &str, language: &str) -> &'static str {
    blocks(heading, language)
        .first()
        .unwrap_or_else(|| panic!("no block in {heading:?}"))
}

/// Returns the entry for clients with a file of servers.
pub fn file_of_servers() -> &'static str {
    let start = README.find("{\"mcpServers\"").expect("an entry");
    README[start..].split('`').next().expect("the entry ends")
}

/// Returns the shell examples, each with its comment.
fn examples() -> Vec<(&'static str, &'static str)> {
    let lines = block("Use it from a shell", "sh").lines();
    lines
        .map(|line| {
            line.split_once(" #")
                .unwrap_or_else(|| panic!("no comment: {line}"))
        })
        .map(|(command, says)| (command.trim(), says.trim()))
        .collect()
}

fn example(start: &str) -> &'static str {
    let all = examples();
    all.iter()
        .find(|(command, _)| command.starts_with(start))
        .unwrap_or_else(|| panic!("no example {start:?}: {all:?}"))
        .0
}

/// Returns the alternative command in an example's comment.
fn alternative(start: &str) -> &'static str {
    let all = examples();
    let (_, says) = all
        .iter()
        .find(|(command, _)| command.starts_with(start))
        .unwrap_or_else(|| panic!("no example {start:?}"));
    says.split_once("or: ")
        .unwrap_or_else(|| panic!("{says}"))
        .1
}

/// Returns the `PATH` for examples.
pub fn path() -> String {
    format!(
        "{}:/usr/bin:/bin",
        Path::new(ADJ).parent().expect("a directory").display()
    )
}

/// Returns the command for a line typed by a person.
pub fn typed(home: &TestHome, line: &str) -> Command {
    let mut command = home.command(&[]);
    let variables: Vec<_> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    command = Command::new("/bin/sh");
    command.args(["-c", line]).env_clear().envs(
        variables
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .env("PATH", path())
        .current_dir(home.work())
        .stdin(std::process::Stdio::null());
    Mark::of(&home.home.dir).put_on(&mut command);
    command
}

fn ran(home: &TestHome, line: &str) -> Ran {
    typed(home, line).output().expect("a shell").into()
}

fn fine(home: &TestHome, line: &str) -> Ran {
    let ran = ran(home, line);
    assert_eq!(ran.code, 0, "{line}: {ran:?}");
    ran
}

/// Creates the requests that the examples use: Q1 of the first example's run, Q2 of brave-otter.
fn as_in_the_examples() -> TestHome {
    let home = TestHome::new();
    fine(&home, example("adj run"));
    home.until("the first asks", || {
        (home.inbox(&[])[0]["number"] == "Q1").then_some(())
    });
    home.start("brave-otter", "tool request_approval {\"action\":\"push\",\"preview\":\"git push\",\"risk\":\"low\",\"wait_s\":60}\nsay pushed");
    home.until("the second asks", || {
        home.inbox(&[])
            .as_array()
            .is_some_and(|all| all.len() == 2)
            .then_some(())
    });
    home
}

#[test]
fn mcp_help_has_the_connect_lines() {
    let home = TestHome::new();
    let help = fine(&home, "adj mcp --help").out;
    for line in block("Connect your agent", "sh").lines() {
        let line = line
            .split("  # ")
            .next()
            .and_then(|line| line.split(" && ").next())
            .expect("a command")
            .trim();
        assert!(
            help.lines()
                .any(|of_help| of_help.trim_start().starts_with(line)),
            "{line}: {help}"
        );
    }
    assert!(help.contains(file_of_servers()), "{help}");
}

#[test]
fn shell_examples_do_what_their_comments_say() {
    let home = as_in_the_examples();
    let shown = fine(&home, example("adj ps")).out;
    assert!(
        shown.contains("Q1") && shown.contains("Q2"),
        "what needs attention: {shown}"
    );
    let waited = ran(&home, example("adj wait"));
    assert_eq!(waited.code, 3, "both wait for an answer: {waited:?}");
    let mut terminal = Terminal::of(typed(&home, example("adj next")));
    terminal.shows("Which colour?");
    // Input typed before the prompt is discarded.
    terminal.shows("> ");
    terminal.types("2\n");
    home.until("the oldest question is answered", || {
        let all = home.inbox(&["--all"]);
        all.as_array()?
            .iter()
            .any(|request| request["number"] == "Q1" && request["answer"] == "green")
            .then_some(())
    });
    drop(terminal);
    fine(&home, example("adj approve"));
    assert!(
        fine(&home, example("adj logs")).out.contains("pushed"),
        "it follows to the end"
    );
    fine(&home, example("adj wait"));
    let shown = fine(&home, example("adj show")).out;
    assert!(
        shown.contains("brave-otter") && shown.contains("done"),
        "{shown}"
    );
    assert!(fine(&home, "adj ps -a").out.contains("done"), "who is done");
}

#[test]
fn commented_alternatives_work() {
    let home = as_in_the_examples();
    fine(&home, alternative("adj next"));
    fine(&home, alternative("adj approve"));
    let all = home.inbox(&["--all"]);
    let answers: BTreeMap<&str, &Value> = all
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| Some((one["number"].as_str()?, one)))
        .collect();
    assert_eq!(answers["Q1"]["answer"], "green", "{all}");
    assert_eq!(answers["Q2"]["decision"], "denied", "{all}");
    assert!(
        answers["Q2"].to_string().contains("not on a Friday"),
        "{all}"
    );
}

#[test]
fn first_example_is_answered_in_its_own_terminal() {
    let home = TestHome::new();
    let mut terminal = Terminal::of(typed(&home, example("adj run")));
    terminal.shows("type the answer to Q1");
    terminal.types("1\n");
    terminal.shows("answer: red");
    assert_eq!(terminal.ends(), Some(0));
}

/// Placeholders in examples.
const PLACES: [&str; 7] = ["AGENT", "WORDS", "NAME", "FILE:LINE", "FILE", "RUN", "…"];

#[test]
fn documented_commands_exist() {
    let home = TestHome::new();
    let pattern = Regex::new("`(adj [^`]+)`").expect("a pattern");
    let commands: Vec<&str> = [README, GUARANTEES, WORKSPACES]
        .into_iter()
        .flat_map(|page| pattern.captures_iter(page))
        .map(|found| found.get(1).expect("one").as_str())
        .collect();
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands {
        if command.ends_with(" …") {
            continue;
        }
        let mut line = command.split_whitespace().collect::<Vec<_>>().join(" ");
        PLACES
            .iter()
            .for_each(|place| line = line.replace(place, "x"));
        // With `--help`, everything before it is parsed and nothing is executed.
        let line = match line.split_once(" -- ") {
            Some((command, words)) => format!("{command} --help -- {words}"),
            None if line.starts_with("adj help ") || line.ends_with("--help") => line,
            None => format!("{line} --help"),
        };
        let ran = fine(&home, &line);
        assert!(!ran.out.is_empty(), "{line}: {ran:?}");
    }
    assert!(
        home.processes().is_empty(),
        "nothing was started: {:?}",
        home.processes()
    );
}

#[test]
fn example_agent_is_accepted_and_is_the_default() {
    let home = TestHome::with_config(block("Your own agents", "toml"));
    let bin = home.work().join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    let program = bin.join("my-agent");
    std::fs::write(&program, "#!/bin/sh\necho \"$# $1\"; cat\n").expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("a program");
    let line = format!(
        "PATH=$PATH:{} adj run --detach --name reviewed 'look at this'",
        bin.display()
    );
    fine(&home, &line);
    assert_eq!(home.finished("reviewed")["agent"], "reviewer");
    let log = home.log("reviewed");
    assert!(
        log.starts_with("1 --batch\n") && log.contains("look at this"),
        "{log}"
    );
    assert!(home.ok(&["agents"]).contains("Reviews a change"));
}

#[test]
fn documented_limits_are_the_defaults() {
    let home = TestHome::new();
    let config = home.json(&["config", "show"]);
    for (says, field, value) in [
        (
            "A log holds 64 MB (`log_bytes_max`)",
            "log_bytes_max",
            64 * 1024 * 1024,
        ),
        (
            "exits after half an hour without work",
            "idle_exit_ms",
            30 * 60 * 1000,
        ),
        (
            "Finished runs are removed after a month",
            "finished_retention_ms",
            30 * 24 * 60 * 60 * 1000_i64,
        ),
    ] {
        assert!(
            README.contains(says) || GUARANTEES.contains(says),
            "no page contains {says:?}"
        );
        assert_eq!(config[field], json!(value), "{field}");
    }
}

#[test]
fn finished_runs_are_removed_after_their_time() {
    let home = TestHome::with_config("finished_retention = \"1s\"\n");
    home.start("old", "say hello");
    let id = home.finished("old")["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let log = home.home.logs_dir().join(format!("{id}.log"));
    assert!(log.exists());
    home.until("a hub that starts later removes it", || {
        home.ok(&["stop"]);
        home.json(&["ps", "-a"])
            .as_array()
            .is_some_and(Vec::is_empty)
            .then_some(())
    });
    home.until("its files are gone", || {
        (!log.exists() && !home.home.runs_dir().join(&id).exists()).then_some(())
    });
}

#[test]
fn every_reading_command_answers_in_json() {
    let home = TestHome::new();
    home.start("one", "say hello");
    home.finished("one");
    home.ok(&["chat", "start", "a title"]);
    for line in [
        "ps",
        "inbox",
        "show one",
        "logs one",
        "agents",
        "doctor",
        "config show",
        "config path",
        "search hello",
        "chat ls",
        "chat show 1",
        "wait one",
    ] {
        let args: Vec<&str> = ["--json"].into_iter().chain(line.split(' ')).collect();
        let ran = home.adj(&args);
        let reply: Value = serde_json::from_str(ran.out.trim_end())
            .unwrap_or_else(|error| panic!("{line}: {error}: {ran:?}"));
        assert!(
            reply["schema"] == 1 && !reply["data"].is_null(),
            "{line}: {ran:?}"
        );
    }
    for line in [
        "show nobody",
        "logs nobody",
        "reply Q9 yes",
        "cancel nobody",
        "chat show 99",
        "no-such-command",
    ] {
        let args: Vec<&str> = ["--json"].into_iter().chain(line.split(' ')).collect();
        let ran = home.adj(&args);
        let last = ran.err.trim_end().lines().last().unwrap_or_default();
        let error: Value =
            serde_json::from_str(last).unwrap_or_else(|error| panic!("{line}: {error}: {ran:?}"));
        assert!(
            ran.code != 0 && ran.out.is_empty() && error["error"]["code"].is_string(),
            "{line}: {ran:?}"
        );
    }
}

#[test]
fn home_is_open_to_its_user_only() {
    let home = TestHome::new();
    let dir = home.work().join("fresh");
    let mut command = home.command(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "one",
        "say hello\n",
    ]);
    command.env("ADJ_HOME", &dir);
    assert!(command.output().expect("adj runs").status.success());
    let mut open = vec![dir.clone()];
    while let Some(path) = open.pop() {
        // A file may be removed meanwhile.
        let Ok(meta) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        assert!(
            meta.is_symlink() || meta.permissions().mode() & 0o077 == 0,
            "{}: {:o}",
            path.display(),
            meta.permissions().mode()
        );
        if meta.is_dir() {
            open.extend(
                std::fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path()),
            );
        }
    }
    let mut command = home.command(&["stop"]);
    assert!(
        command
            .env("ADJ_HOME", &dir)
            .output()
            .expect("adj runs")
            .status
            .success()
    );
}

/// Returns how often the threads of a process have been woken.
fn wakings(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap_or_else(|error| panic!("{pid}: {error}"));
    let of = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status
            .lines()
            .find_map(|line| {
                line.strip_prefix("voluntary_ctxt_switches:")?
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .unwrap_or(0)
    };
    threads.flatten().map(of).sum()
}

#[test]
fn no_process_wakes_up_while_all_wait() {
    let home = TestHome::new();
    home.start("asker", "ask \"Go on?\"");
    home.until_status("asker", "waiting_parent_reply");
    home.start("worker", "say ready\nhang");
    home.until_log("worker", "ready");
    let mut waiting = home
        .command(&["wait", "worker", "--until", "all"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("adj runs");
    let all: Vec<u32> = home.processes().into_iter().map(|(pid, _)| pid).collect();
    assert!(
        all.len() >= 8,
        "hub, waiter, and guard, supervisor and agent twice: {:?}",
        home.processes()
    );
    // Polling at any usual interval would show in this time. Work left over from the start or a
    // call ends first.
    let quiet = Duration::from_millis(1500);
    home.until("a time in which nothing wakes up", || {
        let count = || {
            all.iter()
                .filter(|pid| TestHome::is_alive(**pid))
                .map(|pid| wakings(*pid))
                .sum::<u64>()
        };
        let before = count();
        std::thread::sleep(quiet);
        (count() <= before + 2).then_some(())
    });
    assert!(processes::process(waiting.id()).is_some(), "it still waits");
    waiting.kill().expect("it is ended");
    waiting.wait().expect("it has ended");
}

#[test]
fn two_runs_in_one_repository_are_merged_as_shown() {
    // The agent that resolves a conflict: both lines stay.
    let script = "commit=$(sed -n 's/.*: git cherry-pick --no-commit \\([0-9a-f]*\\)$/\\1/p' | head -1); \
                  git cherry-pick --no-commit $commit; sed -i '/^[<=>]\\{7\\}/d' notes.txt";
    let config = format!(
        "[agents.claude]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", {}]\n",
        json!(script)
    );
    let home = TestHome::with_config(&config);
    for line in [
        "git init -q -b main",
        "git config user.name U",
        "git config user.email u@u",
        "git commit -q --allow-empty -m first",
    ] {
        fine(&home, line);
    }
    for line in block("Two agents in one repository", "sh").lines() {
        let command = line.split(" #").next().expect("a command").trim();
        fine(&home, command);
    }
    let notes = std::fs::read_to_string(home.work().join("notes.txt")).expect("a file");
    assert!(
        notes.contains("Hello") && notes.contains("Goodbye") && !notes.contains("<<<<"),
        "{notes}"
    );
    assert_eq!(fine(&home, "git status --porcelain").out, "");
    assert_eq!(home.show("goodbye")["workspace"]["state"], "merged");
}
