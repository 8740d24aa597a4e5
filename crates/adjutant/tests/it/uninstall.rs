//! `adj update --check` and `adj uninstall`.

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

fn command(home: &TestHome, args: &[&str]) -> Command {
    let mut command = home.command(args);
    command.env("PATH", path());
    command
}

fn adj(home: &TestHome, args: &[&str]) -> Ran {
    command(home, args).output().expect("adj starts").into()
}

fn fine(home: &TestHome, args: &[&str]) -> Ran {
    let ran = adj(home, args);
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    ran
}

/// Creates another `adj`, and returns the `PATH` in which it is the first.
fn with_other_adj(home: &TestHome, says: &str) -> String {
    let other = home.work().join("bin/adj");
    fs::create_dir_all(other.parent().expect("a directory")).expect("a directory");
    fs::write(&other, format!("#!/bin/sh\necho {says}\n")).expect("a program");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("executable");
    format!(
        "{}:{}",
        other.parent().expect("a directory").display(),
        path()
    )
}

/// A user with two clients connected, a completion and a configuration outside the home.
fn installed(home: &TestHome) -> PathBuf {
    fine(home, &["install", "claude", "codex", "--yes"]);
    fs::write(
        user(home).join(".bashrc"),
        "# mine\nsource <(adj completions bash)\n",
    )
    .expect("a file");
    let claude = user(home).join(".claude.json");
    assert!(claude.exists() && user(home).join(".claude/skills/adjutant/SKILL.md").exists());
    claude
}

#[test]
fn update_check_names_the_installation_and_its_command() {
    let home = TestHome::new();
    let ran = fine(&home, &["update", "--check"]);
    for expected in [
        "✓ program  adj ",
        "✓ hub      not running",
        "this one",
        "To update it",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {ran:?}");
    }
    assert!(ran.err.contains("contacts no server"), "{ran:?}");
    assert!(
        home.processes().is_empty(),
        "no hub is needed: {:?}",
        home.processes()
    );
    home.ok(&["ps"]);
    let view = fine(&home, &["--json", "update", "--check"]).data();
    assert_eq!(
        (&view["hub"], &view["version"]),
        (
            &env!("CARGO_PKG_VERSION").into(),
            &env!("CARGO_PKG_VERSION").into()
        ),
        "{view}"
    );
    // The tests run a build of a clone, or one whose build directory is elsewhere.
    let is_known = matches!(view["installed_by"].as_str(), Some("clone" | "file"));
    assert!(
        is_known && view["consistent"] == true && view["update"][0].is_string(),
        "{view}"
    );
    // Without the option it says the same, and updates nothing.
    let bare = fine(&home, &["update"]);
    assert!(
        bare.out.contains("To update it") && bare.out == fine(&home, &["update", "--check"]).out,
        "{bare:?}"
    );
}

#[test]
fn update_check_fails_if_another_version_is_used() {
    let home = TestHome::new();
    let path = with_other_adj(&home, "adj 0.0.9");
    let ran: Ran = command(&home, &["update", "--check"])
        .env("PATH", &path)
        .output()
        .expect("adj starts")
        .into();
    assert!(
        ran.code == 1 && ran.out.contains("the first, is the older 0.0.9"),
        "{ran:?}"
    );
    let ran: Ran = command(&home, &["--json", "update", "--check"])
        .env("PATH", &path)
        .output()
        .expect("adj starts")
        .into();
    assert_eq!(
        (
            &ran.data()["on_path"][0]["version"],
            &ran.data()["consistent"]
        ),
        (&"0.0.9".into(), &false.into()),
        "{ran:?}"
    );
    // A program of this name that is not adj.
    let path = with_other_adj(&home, "hello");
    let ran: Ran = command(&home, &["update", "--check"])
        .env("PATH", path)
        .output()
        .expect("adj starts")
        .into();
    assert!(
        ran.code == 1 && ran.out.contains("is another program"),
        "{ran:?}"
    );
}

#[test]
fn uninstall_shows_everything_and_changes_nothing_without_a_confirmation() {
    let home = TestHome::new();
    let claude = installed(&home);
    home.ok(&["ps"]);
    let ran = fine(&home, &["uninstall", "--dry-run"]);
    for expected in [
        "Claude Code: ",
        ".claude/skills/adjutant/SKILL.md",
        "Codex: ",
        "kept without --home",
        "0 live runs",
        ".bashrc, line 2",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {ran:?}");
    }
    let ran = adj(&home, &["uninstall"]);
    assert!(
        ran.code == 2 && ran.err.contains("--yes") && ran.err.contains("disconnect 2 clients"),
        "{ran:?}"
    );
    let mut terminal = Terminal::of(command(&home, &["uninstall", "--home"]));
    terminal.shows("Disconnect 2 clients and remove the home with all runs and logs? [y/N]");
    terminal.types("\n");
    terminal.shows("nothing changed");
    assert_eq!(terminal.ends(), Some(0));
    assert!(claude.exists() && home.home.dir.join("adj.db").exists());
}

#[test]
fn uninstall_disconnects_the_clients_and_keeps_the_home() {
    let home = TestHome::new();
    let claude = installed(&home);
    home.ok(&["ps"]);
    let ran = fine(&home, &["uninstall", "--yes"]);
    assert!(
        ran.out.contains("Claude Code disconnected") && ran.out.contains("Codex disconnected"),
        "{ran:?}"
    );
    assert!(
        !claude.exists()
            && !user(&home).join(".claude/skills/adjutant").exists()
            && !user(&home).join(".agents/skills/adjutant").exists()
    );
    assert!(home.home.dir.join("adj.db").exists());
    let view = fine(&home, &["--json", "uninstall", "--yes"]).data();
    assert_eq!(
        (&view["clients"], &view["removed"]),
        (&serde_json::json!([]), &false.into()),
        "{view}"
    );
    assert_eq!(view["completions"][0]["line"], 2, "{view}");
    assert!(
        view["program"]["remove"]
            .as_str()
            .is_some_and(|command| command.starts_with("rm ")),
        "{view}"
    );
}

#[test]
fn uninstall_removes_the_home_after_the_last_run() {
    let home = TestHome::new();
    installed(&home);
    home.start("ann", "ask \"Which one?\"\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let ran = adj(&home, &["uninstall", "--home", "--yes"]);
    for more in [&[][..], &["--home"]] {
        let shown = fine(&home, &[&["uninstall", "--dry-run"], more].concat());
        assert!(
            shown.out.contains("1 live run")
                && shown
                    .err
                    .contains("1 run is live or queued: nothing is removed before"),
            "{shown:?}"
        );
    }
    assert!(
        ran.code == 7
            && ran
                .err
                .contains("1 run is live or queued; nothing was removed")
            && ran.err.contains("adj cancel --all"),
        "{ran:?}"
    );
    assert!(user(&home).join(".claude.json").exists() && home.home.dir.join("adj.db").exists());
    home.ok(&["cancel", "ann"]);
    home.finished("ann");
    fs::remove_file(home.home.dir.join("config.toml")).expect("removed");
    let view = fine(&home, &["--json", "uninstall", "--home", "--yes"]).data();
    assert_eq!(
        (&view["home"]["removed"], &view["removed"]),
        (&true.into(), &true.into()),
        "{view}"
    );
    assert!(
        view["home"]["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0),
        "{view}"
    );
    assert!(!home.home.dir.exists() && !user(&home).join(".claude.json").exists());
    // A second time: there is no home, and none is created.
    let ran = fine(&home, &["uninstall", "--home", "--yes"]);
    assert!(
        ran.out.contains("does not exist")
            && ran.err.contains("nothing to remove")
            && !home.home.dir.exists(),
        "{ran:?}"
    );
}

#[test]
fn files_that_adj_did_not_make_stay_in_the_home() {
    let home = TestHome::with_config("expiry = \"1h\"\n");
    home.start("one", "say hello");
    home.finished("one");
    let (config, secret) = (
        home.home.dir.join("config.toml"),
        home.home.dir.join("secrets/webhook"),
    );
    fs::create_dir(secret.parent().expect("a directory")).expect("a directory");
    fs::write(&secret, "s").expect("a file");
    // Directories without write permission, such as those of a module cache.
    let sealed = home.home.workspaces_dir().join("sealed/mod");
    fs::create_dir_all(&sealed).expect("directories");
    fs::write(sealed.join("file"), "x").expect("a file");
    fs::set_permissions(&sealed, fs::Permissions::from_mode(0o555)).expect("a mode");
    let ran = fine(&home, &["uninstall", "--home", "--dry-run"]);
    let kept = ran
        .out
        .split("remove them by hand")
        .nth(1)
        .expect("a list")
        .to_owned();
    assert!(
        kept.contains("config.toml") && kept.contains("secrets"),
        "{ran:?}"
    );
    let ran = fine(&home, &["uninstall", "--home", "--yes"]);
    assert!(
        ran.out.contains("except the files that adj did not make"),
        "{ran:?}"
    );
    let mut left: Vec<_> = fs::read_dir(&home.home.dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["config.toml", "secrets"]);
    assert!(config.exists() && secret.exists());
}

#[test]
fn interrupted_removal_of_the_home_is_completed() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    home.ok(&["stop"]);
    fs::remove_file(home.home.dir.join("config.toml")).expect("removed");
    fs::create_dir(home.home.dir.join("removed")).expect("a directory");
    fs::rename(home.home.database(), home.home.dir.join("removed/adj.db")).expect("moved");
    let ran = adj(&home, &["ps"]);
    assert!(
        ran.code != 0
            && ran.err.contains("was interrupted")
            && ran.err.contains("adj uninstall --home completes it"),
        "{ran:?}"
    );
    fine(&home, &["uninstall", "--home", "--yes"]);
    assert!(!home.home.dir.exists());
}

#[test]
fn run_started_during_the_question_keeps_the_home() {
    let home = TestHome::new();
    let claude = installed(&home);
    home.ok(&["ps"]);
    let mut terminal = Terminal::of(command(&home, &["uninstall", "--home"]));
    terminal.shows("[y/N]");
    home.start("late", "ask \"Which one?\"\ndone");
    home.until_status("late", "waiting_parent_reply");
    terminal.types("y\n");
    terminal.shows("1 run is live or queued; nothing was removed");
    assert_eq!(terminal.ends(), Some(7));
    assert!(claude.exists() && home.home.database().exists());
    home.ok(&["reply", "late", "yes"]);
    assert_eq!(home.finished("late")["outcome"], "succeeded");
}

#[test]
fn client_whose_file_is_broken_keeps_its_skill() {
    let home = TestHome::new();
    let claude = installed(&home);
    home.ok(&["ps"]);
    fs::write(&claude, "{ broken").expect("a file");
    let ran = fine(&home, &["uninstall", "--yes"]);
    assert!(
        ran.out.contains("(kept)") && ran.out.contains("Codex disconnected"),
        "{ran:?}"
    );
    assert!(
        user(&home)
            .join(".claude/skills/adjutant/SKILL.md")
            .exists()
    );
}

#[test]
fn clients_are_disconnected_with_an_unusable_home() {
    let home = TestHome::new();
    installed(&home);
    home.ok(&["ps"]);
    home.ok(&["stop"]);
    fs::write(home.home.database(), "no database").expect("a file");
    for name in ["adj.db-wal", "adj.db-shm"] {
        fs::remove_file(home.home.dir.join(name)).unwrap_or_default();
    }
    assert_ne!(adj(&home, &["uninstall", "--home", "--yes"]).code, 0);
    let ran = fine(&home, &["uninstall", "--yes"]);
    assert!(ran.out.contains("Claude Code disconnected"), "{ran:?}");
    assert!(home.home.database().exists());
}

#[test]
fn entry_under_another_name_is_named_and_kept() {
    let home = TestHome::new();
    let text = "{\"mcpServers\": {\"hub\": {\"command\": \"adj\", \"args\": [\"mcp\"]}}}";
    fs::write(user(&home).join(".claude.json"), text).expect("a file");
    let ran = fine(&home, &["uninstall", "--yes"]);
    assert!(
        ran.out
            .contains("has an entry under another name: remove it by hand (kept)"),
        "{ran:?}"
    );
    assert_eq!(
        fs::read_to_string(user(&home).join(".claude.json")).expect("a file"),
        text
    );
}
