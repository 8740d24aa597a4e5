//! `adj config`: printing and changing the configuration file.

use crate::support::{Ran, TestHome};
use crate::terminal::Terminal;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const BEFORE: &str = "# mine\nlive_runs_max = 3   # three\n\n[agents.lint] # l\nharness = \"plain\"\ncommand = [\"/bin/true\"]\n";

fn file(home: &TestHome) -> PathBuf {
    home.home.dir.join("config.toml")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Makes a program that changes its last argument as an editor does.
fn editor(home: &TestHome, script: &str) -> String {
    let path = home.work().join("editor");
    fs::write(&path, format!("#!/bin/sh\nset -e\n{script}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path.display().to_string()
}

fn edited(home: &TestHome, script: &str) -> Ran {
    let editor = editor(home, script);
    home.command(&["config", "edit"])
        .env("EDITOR", editor)
        .env("TMPDIR", home.work())
        .output()
        .expect("adj starts")
        .into()
}

/// Returns the copies that editors have left.
fn copies(home: &TestHome) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.work())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path());
    entries
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect()
}

#[test]
fn path_is_one_line_for_an_editor() {
    let home = TestHome::new();
    assert_eq!(
        home.ok(&["config", "path"]),
        format!("{}\n", file(&home).display())
    );
    fs::remove_file(file(&home)).expect("removed");
    let ran = home.adj(&["config", "path"]);
    assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    assert!(ran.err.contains("does not exist"), "{ran:?}");
}

#[test]
fn set_changes_one_setting_and_get_prints_it() {
    let home = TestHome::with_config(BEFORE);
    fs::set_permissions(file(&home), fs::Permissions::from_mode(0o640)).expect("a mode");
    home.ok(&["config", "set", "live_runs_max", "5"]);
    home.ok(&["config", "set", "agents.lint.timeout", "45m"]);
    assert_eq!(
        read(&file(&home)),
        format!("{}timeout = \"45m\"\n", BEFORE.replace("= 3 ", "= 5 "))
    );
    assert_eq!(
        fs::metadata(file(&home))
            .expect("a file")
            .permissions()
            .mode()
            & 0o777,
        0o640
    );
    for (key, value) in [
        ("live_runs_max", "5"),
        ("agents.lint.timeout", "45m"),
        ("agents.lint.command", "[\"/bin/true\"]"),
    ] {
        assert_eq!(
            home.ok(&["config", "get", key]),
            format!("{value}\n"),
            "{key}"
        );
    }
    assert_eq!(
        home.json(&["config", "get", "agents.lint.timeout"])["value"],
        "45m"
    );
    assert_eq!(
        home.json(&["config", "get", "live_runs_max"])["value"],
        5,
        "a number stays one"
    );
    assert_eq!(
        home.json(&["config", "get", "agents.lint.command"])["value"],
        serde_json::json!(["/bin/true"])
    );
    let unset = home.adj(&["config", "get", "expiry"]);
    assert_eq!(unset.code, 5, "{unset:?}");
    assert!(
        unset.err.contains("expiry is not set") && unset.err.contains("24h"),
        "{unset:?}"
    );
    assert!(
        home.processes().is_empty(),
        "no hub is needed: {:?}",
        home.processes()
    );
}

#[test]
fn invalid_change_leaves_the_file_unchanged() {
    let home = TestHome::with_config(BEFORE);
    for (key, value, why) in [
        ("live_runs_max", "many", "use a whole number"),
        ("live_runs_max", "0", "at least 1"),
        ("live_runs_max", "1\nexpiry = \"1h\"", "use a whole number"),
        ("expiry", "soon", "expiry"),
        ("containment", "magic", "magic"),
        ("default_agent", "nobody", "nobody"),
        ("refuse_shared_directory", "yes", "true or false"),
        ("colour", "1", "no setting"),
        ("webhooks.url", "x", "adj config edit"),
        ("agents.lint", "{ harness = \"echo\" }", "adj config edit"),
        ("fence_write", "[1]", "fence_write"),
    ] {
        let ran = home.adj(&["config", "set", key, value]);
        assert_eq!(ran.code, 2, "{key} {value}: {ran:?}");
        assert!(ran.err.contains(why), "{key} {value}: {ran:?}");
        assert_eq!(read(&file(&home)), BEFORE, "{key} {value}");
    }
    // A file that is broken already is reported with its line.
    fs::write(file(&home), "a = = 1\n").expect("a file");
    let ran = home.adj(&["config", "set", "expiry", "1h"]);
    assert!(ran.code == 2 && ran.err.contains("line 1"), "{ran:?}");
    assert_eq!(read(&file(&home)), "a = = 1\n");
}

#[test]
fn link_stays_and_missing_file_is_created() {
    let home = TestHome::new();
    fs::remove_file(file(&home)).expect("removed");
    home.ok(&["config", "set", "default_agent", "echo"]);
    assert_eq!(read(&file(&home)), "default_agent = \"echo\"\n");
    assert_eq!(
        fs::metadata(file(&home))
            .expect("a file")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    let real = home.work().join("real");
    fs::rename(file(&home), &real).expect("moved");
    symlink(&real, file(&home)).expect("a link");
    home.ok(&["config", "set", "expiry", "2h"]);
    assert!(file(&home).is_symlink());
    assert_eq!(read(&real), "default_agent = \"echo\"\nexpiry = \"2h\"\n");
}

#[test]
fn edit_replaces_the_file_only_with_a_valid_one() {
    let home = TestHome::with_config(BEFORE);
    let ran = edited(
        &home,
        "grep -q '# three' \"$1\"; echo 'expiry = \"2h\"' > \"$1\"",
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(read(&file(&home)), "expiry = \"2h\"\n");
    let ran = edited(&home, "true");
    assert!(
        ran.code == 0 && ran.err.contains("nothing changed"),
        "{ran:?}"
    );
    assert!(copies(&home).is_empty());
    // Invalid: the file stays, and what was typed is kept.
    let ran = edited(&home, "echo 'expiry = \"soon\"' > \"$1\"");
    assert!(
        ran.code == 2 && ran.err.contains("line 1: expiry"),
        "{ran:?}"
    );
    assert_eq!(read(&file(&home)), "expiry = \"2h\"\n");
    let kept = copies(&home);
    assert_eq!(kept.len(), 1);
    assert!(ran.err.contains(&kept[0].display().to_string()), "{ran:?}");
    assert_eq!(
        fs::metadata(&kept[0]).expect("a file").permissions().mode() & 0o777,
        0o600
    );
    // Changed by another program meanwhile: not overwritten.
    let ran = edited(
        &home,
        &format!(
            "echo 'expiry = \"3h\"' > \"$1\"; echo '# other' > {}",
            file(&home).display()
        ),
    );
    assert!(
        ran.code == 1 && ran.err.contains("was changed meanwhile"),
        "{ran:?}"
    );
    assert_eq!(read(&file(&home)), "# other\n");
    let ran = edited(&home, "exit 1");
    assert!(
        ran.code == 1 && ran.err.contains("nothing was changed"),
        "{ran:?}"
    );
    let ran = home.adj(&["config", "edit"]);
    assert!(
        ran.code == 2 && ran.err.contains("no editor is set"),
        "{ran:?}"
    );
}

#[test]
fn edit_offers_to_correct_an_invalid_file() {
    let home = TestHome::with_config(BEFORE);
    let editor = editor(
        &home,
        "if grep -q soon \"$1\"; then echo 'expiry = \"2h\"' > \"$1\"; else echo 'expiry = \"soon\"' > \"$1\"; fi",
    );
    let mut command = home.command(&["config", "edit"]);
    command
        .env("VISUAL", editor)
        .env("EDITOR", "/no/such/editor")
        .env("TMPDIR", home.work());
    let mut terminal = Terminal::of(command);
    terminal.shows("line 1: expiry");
    terminal.shows("Edit it again?");
    terminal.types("\r");
    terminal.shows("is replaced");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(read(&file(&home)), "expiry = \"2h\"\n");
    assert!(copies(&home).is_empty());
}

#[test]
fn schema_lists_the_settings() {
    let home = TestHome::new();
    let schema: serde_json::Value =
        serde_json::from_str(&home.ok(&["config", "schema"])).expect("JSON");
    let properties = schema["properties"].as_object().expect("properties");
    assert!(
        properties.contains_key("live_runs_max") && schema["additionalProperties"] == false,
        "{schema}"
    );
}

/// The documented example: an entry that is named after a built-in agent needs no harness.
#[test]
fn entry_named_after_a_preset_inherits_it() {
    let home = TestHome::new();
    let agent = |name: &str| {
        home.json(&["agents"])
            .as_array()
            .expect("a list")
            .iter()
            .find(|agent| agent["name"] == name)
            .expect("an agent")
            .clone()
    };
    let before = ["claude", "echo"].map(agent);
    for (key, value) in [
        ("agents.claude.timeout", "30m"),
        ("agents.claude.args", "[\"--model\", \"opus\"]"),
        ("agents.echo.timeout", "9m"),
    ] {
        home.ok(&["config", "set", key, value]);
    }
    for (name, before) in ["claude", "echo"].into_iter().zip(before) {
        let now = agent(name);
        for field in ["harness", "description", "versions_tried", "can"] {
            assert_eq!(now[field], before[field], "{name}: {field}");
        }
        assert_ne!(now["source"], before["source"], "{name}");
    }
    assert_eq!(
        home.ok(&["config", "get", "agents.claude.timeout"]),
        "30m\n"
    );
    assert_eq!(
        home.ok(&["run", "-w", "-a", "echo", "say hello"]),
        "hello\n"
    );
    // A preset of the file is inherited too, and other names need a harness.
    let own = "[presets.mine]\ntitle = \"Mine\"\ndriver = \"plain\"\ncommand = [\"/bin/cat\"]\n[agents.mine]\ntimeout = \"1m\"\n";
    fs::write(file(&home), own).expect("written");
    assert_eq!(agent("mine")["description"], "Mine");
    fs::write(file(&home), own.replace("[agents.mine]", "[agents.other]")).expect("written");
    let refused = home.adj(&["agents"]);
    assert!(
        refused.err.contains("agents.other.harness: missing"),
        "{refused:?}"
    );
}

#[test]
fn unset_removes_one_setting() {
    let home = TestHome::with_config(BEFORE);
    home.ok(&["config", "set", "agents.lint.timeout", "45m"]);
    home.ok(&["config", "unset", "agents.lint.timeout"]);
    assert_eq!(read(&file(&home)), BEFORE);
    assert_eq!(
        home.json(&["config", "unset", "live_runs_max"])["key"],
        "live_runs_max"
    );
    let after = read(&file(&home));
    assert!(
        after.contains("[agents.lint] # l") && !after.contains("live_runs_max"),
        "{after}"
    );
    for (key, code, why) in [
        ("expiry", 5, "expiry is not set"),
        ("agents.other.timeout", 5, "is not set"),
        ("colour", 2, "no setting"),
        // Without it, the agent is not valid.
        ("agents.lint.harness", 2, "harness"),
        ("webhooks.url", 2, "adj config edit"),
    ] {
        let ran = home.adj(&["config", "unset", key]);
        assert!(ran.code == code && ran.err.contains(why), "{key}: {ran:?}");
        assert_eq!(read(&file(&home)), after, "{key}");
    }
    // Lists of tables are changed by hand.
    let hooks =
        format!("{BEFORE}\n[[webhooks]]\nurl = \"https://example.org/\"\nsecret_file = \"s\"\n");
    fs::write(file(&home), &hooks).expect("a file");
    let ran = home.adj(&["config", "set", "webhooks", "[]"]);
    assert!(
        ran.code == 2
            && ran.err.contains("webhooks is a list of tables in the file")
            && ran.err.contains("adj config edit"),
        "{ran:?}"
    );
    assert_eq!(read(&file(&home)), hooks);
}

/// Eight mistakes, each in a line of its own.
const MISTAKES: [&str; 8] = [
    "live_runs_max = \"many\"",
    "defualt_agent = \"echo\"",
    "idle_exit = 5",
    "[agents.a]",
    "harness = \"plian\"",
    "[agents.b]",
    "harness = \"plain\"\ntimeout = \"soon\"",
    "[[webhooks]]\nurl = 3\n[pools.gpu]\nsize = -1",
];

#[test]
fn each_problem_of_a_file_is_a_line_and_stored_items_are_still_shown() {
    let home = TestHome::new();
    home.ok(&["run", "-w", "-a", "echo", "say x"]);
    std::fs::write(file(&home), MISTAKES.join("\n")).expect("written");
    let problems = |text: &str| {
        text.lines()
            .map(str::trim)
            .filter(|line| line.starts_with("line "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let warned = home.adj(&[]);
    assert!(
        warned.code == 0 && warned.err.contains("nothing needs you"),
        "{warned:?}"
    );
    let lines = problems(&warned.err);
    assert!(
        lines.len() >= 6
            && lines
                .iter()
                .any(|line| line.contains("did you mean default_agent?")),
        "{warned:?}"
    );
    let refused = home.adj(&["run", "-a", "echo", "say y"]);
    assert!(
        refused.code != 0 && problems(&refused.err) == lines,
        "{refused:?}"
    );
    let doctor = home.adj(&["doctor"]);
    assert_eq!(problems(&doctor.out), lines, "each once: {doctor:?}");
    assert!(
        !doctor.out.contains("does not listen")
            && doctor
                .out
                .contains("fix: correct these lines: adj config edit"),
        "{doctor:?}"
    );
    // What waits is in the store, so it is shown.
    std::fs::write(file(&home), "").expect("written");
    home.start("ann", "ask \"Which?\"");
    home.until_status("ann", "waiting_parent_reply");
    std::fs::write(file(&home), MISTAKES.join("\n")).expect("written");
    let inbox = home.adj(&[]);
    assert!(
        inbox.code == 0 && inbox.out.contains("Which?") && problems(&inbox.err) == lines,
        "{inbox:?}"
    );
}

#[test]
fn built_in_agents_are_named_and_not_spelled_out() {
    let home = TestHome::with_config("[agents.claude]\ntimeout = \"30m\"\n");
    let shown = home.ok(&["config"]);
    assert!(
        shown.lines().count() < 120,
        "{} lines",
        shown.lines().count()
    );
    assert!(
        shown.contains("[agents.claude]") && shown.contains("timeout = \"30m\""),
        "{shown}"
    );
    let line = shown
        .lines()
        .find(|line| line.starts_with("# built-in agents with their defaults: "))
        .expect("a line");
    assert!(
        line.contains("codex") && !line.contains("claude") && !shown.contains("[agents.codex]"),
        "{line}"
    );
    assert!(
        home.ok(&["agents", "codex"]).contains("patience"),
        "adj agents NAME shows one"
    );
    assert!(
        home.json(&["config"])["agents"]
            .as_array()
            .is_some_and(|all| all.len() > 10),
        "JSON has all"
    );
}

#[test]
fn one_problem_stays_in_one_line() {
    let home = TestHome::with_config("live_runs_max = \"many\"\n");
    let refused = home.adj(&["run", "-a", "echo", "say y"]);
    let error = refused
        .err
        .lines()
        .find(|line| line.starts_with("error["))
        .expect("an error");
    assert!(
        error.contains("config.toml: line 1: live_runs_max: "),
        "{refused:?}"
    );
    assert!(
        home.adj(&["doctor"])
            .out
            .contains("fix: correct that line: adj config edit")
    );
}
