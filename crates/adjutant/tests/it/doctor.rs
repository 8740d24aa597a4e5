//! `adj doctor`: what commonly breaks, and its repair.

use crate::readme::path;
use crate::support::{Ran, TestHome};
use crate::terminal::Terminal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the user's home directory.
fn user(home: &TestHome) -> &Path {
    home.home.dir.parent().expect("a directory")
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn program(path: &Path, script: &str) {
    write(path, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

fn doctor(home: &TestHome, dir: &Path, args: &[&str]) -> Ran {
    let all: Vec<&str> = ["doctor"].iter().chain(args).copied().collect();
    let mut command = home.command(&all);
    command
        .env("PATH", format!("{}:{}", dir.display(), path()))
        .output()
        .expect("adj starts")
        .into()
}

fn bin(home: &TestHome) -> PathBuf {
    home.work().join("bin")
}

const STALE: &str =
    "{\"mcpServers\": {\"adjutant\": {\"command\": \"/gone/adj\", \"args\": [\"mcp\"]}}}";

#[test]
fn entries_of_clients_are_checked() {
    let home = TestHome::new();
    let user = user(&home);
    write(&user.join(".claude.json"), STALE);
    write(&user.join(".cursor/mcp.json"), "{ broken");
    let two = "{\"mcpServers\": {\"adjutant\": {\"command\": \"adj\", \"args\": [\"mcp\"]}, \"mine\": {\"command\": \"adj\", \"args\": [\"mcp\"]}}}";
    write(&user.join(".gemini/settings.json"), two);
    write(
        &user.join(".codex/config.toml"),
        "[mcp_servers.adjutant]\ncommand = \"adj\"\nargs = [\"mcp\"]\n",
    );
    let ran = doctor(&home, &bin(&home), &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for expected in [
        "✗ client       Claude Code: its entry starts /gone/adj, which does not exist",
        "fix: adj install claude",
        "✗ client       Cursor:",
        "✗ client       Gemini CLI:",
        "several entries",
        "! client       Codex: its entry starts another adj, or lacks a field such as the time limit",
        "free, logs use",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {ran:?}");
    }
    assert!(ran.err.contains("adj doctor --fix"), "{ran:?}");
    assert_eq!(
        fs::read_to_string(user.join(".claude.json")).expect("a file"),
        STALE,
        "nothing changed"
    );
}

#[test]
fn unconnected_clients_are_no_success() {
    let home = TestHome::new();
    for dir in [".cursor", ".codex"] {
        fs::create_dir(user(&home).join(dir)).expect("a directory");
    }
    let ran = doctor(&home, &bin(&home), &[]);
    assert!(
        ran.out.contains("! clients      not connected: ")
            && ran.out.contains("fix: adj install\n"),
        "{ran:?}"
    );
    // One that is connected is.
    let mut install = home.command(&["install", "codex", "--yes"]);
    assert!(
        install
            .env("PATH", path())
            .output()
            .expect("adj starts")
            .status
            .success()
    );
    let ran = doctor(&home, &bin(&home), &[]);
    assert!(
        ran.out
            .contains("✓ clients      connected: Codex; not connected: Cursor"),
        "{ran:?}"
    );
}

#[test]
fn fix_updates_entries_only_after_a_confirmation() {
    let home = TestHome::new();
    let file = user(&home).join(".claude.json");
    write(&file, STALE);
    let ran = doctor(&home, &bin(&home), &["--fix"]);
    assert!(ran.code == 2 && ran.err.contains("--yes"), "{ran:?}");
    let mut command = home.command(&["doctor", "--fix"]);
    command.env("PATH", path());
    let mut terminal = Terminal::of(command);
    terminal.shows("Update the entries of claude? [y/N]");
    terminal.types("n\r");
    terminal.shows("nothing changed");
    assert_eq!(terminal.ends(), Some(1));
    assert_eq!(fs::read_to_string(&file).expect("a file"), STALE);
    let ran = doctor(&home, &bin(&home), &["--fix", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("connected: Claude Code"), "{ran:?}");
    let fixed = fs::read_to_string(&file).expect("a file");
    assert!(
        fixed.contains("\"adj\"") && !fixed.contains("/gone/"),
        "{fixed}"
    );
    let ran = doctor(&home, &bin(&home), &["--fix", "--yes"]);
    assert!(
        ran.code == 0 && ran.err.contains("nothing that adj doctor --fix can repair"),
        "{ran:?}"
    );
}

#[test]
fn older_adj_in_front_on_the_path_is_reported() {
    let home = TestHome::new();
    program(&bin(&home).join("adj"), "echo adj 0.0.1");
    let ran = doctor(&home, &bin(&home), &[]);
    assert!(
        ran.code == 1
            && ran.out.contains("PATH finds the older 0.0.1 at")
            && ran.out.contains("first in PATH"),
        "{ran:?}"
    );
    program(&bin(&home).join("adj"), "echo something else");
    let ran = doctor(&home, &bin(&home), &[]);
    assert!(ran.code == 0 && ran.out.contains("! binary"), "{ran:?}");
}

#[test]
fn agent_without_a_sign_in_is_reported_with_the_command() {
    let home = TestHome::new();
    program(&bin(&home).join("codex"), "exit 0");
    let ran = doctor(&home, &bin(&home), &[]);
    assert!(
        ran.code == 0
            && ran.out.contains("codex: probably not signed in")
            && ran.out.contains("codex login"),
        "{ran:?}"
    );
    write(&user(&home).join(".codex/auth.json"), "{}");
    assert!(
        !doctor(&home, &bin(&home), &[])
            .out
            .contains("not signed in")
    );
}

#[test]
fn skill_of_another_version_is_reported_and_replaced() {
    let home = TestHome::new();
    assert_eq!(doctor_of(&home, &["install", "claude", "--yes"]).code, 0);
    let skill = user(&home).join(".claude/skills/adjutant/SKILL.md");
    let current = fs::read_to_string(&skill).expect("a file");
    write(&skill, OLD_SKILL);
    let ran = doctor(&home, &bin(&home), &[]);
    assert!(
        ran.code == 0
            && ran
                .out
                .contains("Claude Code: its skill is from another version of adj"),
        "{ran:?}"
    );
    assert_eq!(doctor(&home, &bin(&home), &["--fix", "--yes"]).code, 0);
    assert_eq!(fs::read_to_string(&skill).expect("a file"), current);
    // A skill that the user has removed or edited is not a problem.
    fs::remove_file(&skill).expect("removed");
    assert!(!doctor(&home, &bin(&home), &[]).out.contains("skill"));
}

/// A text with its checksum.
const OLD_SKILL: &str = "an older text\n\n<!-- Written by adj install, which replaces and removes only unchanged copies. Checksum: 94c03606437646a7 -->\n";

/// Runs another command in the same environment.
fn doctor_of(home: &TestHome, args: &[&str]) -> Ran {
    home.command(args)
        .env("PATH", format!("{}:{}", bin(home).display(), path()))
        .output()
        .expect("adj starts")
        .into()
}

#[test]
fn home_on_a_network_file_system_is_refused() {
    let home = TestHome::new();
    let on_network = |args: &[&str]| -> Ran {
        home.command(args)
            .env("ADJ_FAILPOINT", "network=on")
            .output()
            .expect("adj starts")
            .into()
    };
    let ran = on_network(&["ps"]);
    assert!(
        ran.code != 0
            && ran.err.contains("is on a network file system")
            && ran.err.contains("local disk"),
        "{ran:?}"
    );
    assert!(
        home.processes().is_empty(),
        "no hub starts: {:?}",
        home.processes()
    );
    let ran = on_network(&["doctor"]);
    assert!(
        ran.code == 1
            && ran.out.contains("✗ file system")
            && ran
                .out
                .contains("set ADJ_HOME to a directory on a local disk"),
        "{ran:?}"
    );
    assert!(!home.home.dir.join("adj.db").exists());
}

#[test]
fn launchers_are_checked() {
    let home = TestHome::new();
    let launcher = user(&home).join("tools/launch-gpu");
    let config = |launch: &str, listen: &str| {
        let text = format!(
            "{listen}[pools.gpu]\nrunners = true\nlaunch = {launch}\nlaunch_input = \"job.json\"\n[agents.echo]\nharness = \"echo\"\n"
        );
        fs::write(home.home.dir.join("config.toml"), text).expect("a file");
        let ran = doctor(&home, launcher.parent().expect("a directory"), &[]);
        ran.out
            .lines()
            .find(|line| line.contains("launcher"))
            .unwrap_or_else(|| panic!("{ran:?}"))
            .to_owned()
    };
    let path = format!("[\"{}\"]", launcher.display());
    assert!(
        config(&path, "").contains("✗ launcher     pool gpu: ")
            && config(&path, "").ends_with("is not a program that can be started")
    );
    assert!(
        config("[\"launch-gpu\"]", "")
            .ends_with("✗ launcher     pool gpu: launch-gpu is not on PATH")
    );
    program(&launcher, "cat");
    assert!(
        config(&path, "").contains("launch_input: "),
        "the file is missing"
    );
    fs::write(home.home.dir.join("job.json"), "{\"name\": \"{name}\"}").expect("a file");
    assert!(config("[\"launch-gpu\"]", "").contains("job.json has no {token}"));
    fs::write(home.home.dir.join("job.json"), "{\"token\": \"{token}\"}").expect("a file");
    assert!(
        config(&path, "")
            .ends_with("pool gpu: the hub does not listen, so a launched runner cannot join")
    );
    home.ok(&["stop"]);
    let good = config("[\"launch-gpu\"]", "listen = \"127.0.0.1:0\"\n");
    assert!(
        good.contains("✓ launcher     pool gpu: ")
            && good.ends_with("launch-gpu, at most 1 runner"),
        "{good}"
    );
}
