//! `adj init`: agents, clients, one question.

use crate::readme::path;
use crate::support::{Ran, TestHome};
use crate::terminal::Terminal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the user's home directory.
fn user(home: &TestHome) -> &Path {
    home.home.dir.parent().expect("a directory")
}

/// A machine with two agents, of which one is signed in, and two clients, of which one cannot be
/// read.
fn machine() -> TestHome {
    let home = TestHome::new();
    for program in ["claude", "codex"] {
        let file = bin(&home).join(program);
        fs::create_dir_all(bin(&home)).expect("a directory");
        fs::write(&file, "#!/bin/sh\necho never started >&2\nexit 9\n").expect("a program");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    write(&user(&home).join(".codex/auth.json"), "{}");
    write(&user(&home).join(".cursor/mcp.json"), "{ broken");
    home
}

fn bin(home: &TestHome) -> PathBuf {
    home.work().join("bin")
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn command(home: &TestHome, args: &[&str]) -> Command {
    let mut command = home.command(args);
    command.env("PATH", format!("{}:{}", bin(home).display(), path()));
    command
}

fn init(home: &TestHome, args: &[&str]) -> Ran {
    let ran: Ran = command(home, args).output().expect("adj starts").into();
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran
}

fn config(home: &TestHome) -> String {
    fs::read_to_string(home.home.dir.join("config.toml")).expect("a file")
}

#[test]
fn without_an_answer_nothing_changes() {
    let home = machine();
    let ran = init(&home, &["init"]);
    for expected in [
        "! claude",
        "not signed in",
        "✓ codex",
        "signed in",
        "! Claude Code",
        "! Codex",
        "not connected",
        "✗ Cursor",
        "cannot be edited",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {ran:?}");
    }
    for expected in [
        "adj init --yes would: connect Claude Code, Codex; use codex as default agent",
        "adj install --dry-run",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {ran:?}");
    }
    assert!(
        !user(&home).join(".claude.json").exists()
            && !user(&home).join(".codex/config.toml").exists()
    );
    assert_eq!(config(&home), "");
    assert!(
        home.processes().is_empty(),
        "no hub is needed: {:?}",
        home.processes()
    );
    let view = init(&home, &["--json", "init"]).data();
    assert_eq!(
        view["proposed"],
        serde_json::json!({ "connect": ["claude", "codex"], "default_agent": "codex" }),
        "{view}"
    );
}

#[test]
fn yes_connects_the_clients_and_sets_the_default_agent() {
    let home = machine();
    let ran = init(&home, &["init", "--yes"]);
    assert!(
        ran.out.contains("Claude Code connected") && ran.out.contains("Codex connected"),
        "{ran:?}"
    );
    assert!(
        fs::read_to_string(user(&home).join(".claude.json"))
            .expect("a file")
            .contains("adjutant")
    );
    assert_eq!(config(&home), "default_agent = \"codex\"\n");
    let ran = init(&home, &["init", "--yes"]);
    assert!(
        ran.err.contains("nothing to set up") && ran.out.contains("✓ Codex"),
        "{ran:?}"
    );
    assert_eq!(config(&home), "default_agent = \"codex\"\n");
    assert_eq!(
        fs::read_to_string(user(&home).join(".cursor/mcp.json")).expect("a file"),
        "{ broken"
    );
}

#[test]
fn terminal_shows_the_changes_and_asks_once() {
    let home = machine();
    let mut asks = command(&home, &["init"]);
    asks.env("ADJ_PAGER", "cat");
    let mut terminal = Terminal::of(asks);
    terminal.shows("Claude Code               ~/.claude.json  +");
    terminal.shows("Codex                     ~/.codex/config.toml  +");
    terminal.shows("Connect Claude Code, Codex and use codex as default agent? [y/N/d]");
    terminal.types("?\r");
    terminal.shows("y changes the files, d shows the changes first, n or Enter changes nothing");
    terminal.shows("[y/N/d]");
    terminal.types("d\r");
    terminal.shows("\"adjutant\"");
    terminal.shows("[y/N/d]");
    terminal.types("\r");
    terminal.shows("nothing changed");
    assert_eq!(terminal.ends(), Some(0));
    assert!(!user(&home).join(".claude.json").exists() && config(&home).is_empty());
    let mut terminal = Terminal::of(command(&home, &["init"]));
    terminal.shows("[y/N/d]");
    terminal.types("y\r");
    terminal.shows("Codex connected");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(config(&home), "default_agent = \"codex\"\n");
}

#[test]
fn machine_without_agents_needs_one_installed() {
    let home = TestHome::new();
    let ran = init(&home, &["init"]);
    assert!(
        ran.err.contains("install a coding agent") && ran.out.contains("none found"),
        "{ran:?}"
    );
}
