//! Habits of the command line: options of `adj run`, and what follows a run on a terminal.

use crate::support::{Ran, TestHome};
use crate::terminal::Terminal;
use rustix::process::{Signal, kill_process};
use std::os::unix::fs::PermissionsExt;

/// An agent that records its arguments and a variable, one line for each attempt.
const RECORDER: &str = "#!/bin/sh\nprompt=$(cat)\nid=$(printf '%s' \"$prompt\" | grep -oE '[0-9a-f]{8}-[0-9a-f-]{27}' | head -n 1)\n\
    printf '%s|%s|%s\\n' \"$*\" \"$CANARY\" \"$CONFIGURED_KEY\" >> ../attempts\n\
    case \"$prompt\" in *\"BLOCKER RESOLVED\"*) echo resumed ;; *please-block*)\n\
    printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: blocker\\ndetails: no disk\\n[/STOP_WORK]\\n' \"$id\" ;; esac\n";

fn recorder() -> TestHome {
    let home = TestHome::new();
    let program = home.work().join("../recorder");
    std::fs::write(&program, RECORDER).expect("the script can be written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("it can be made executable");
    let config = format!(
        "[agents.rec]\nharness = \"plain\"\ncommand = [{:?}, \"--first\"]\nargs = [\"--second\"]\nenv = {{ CONFIGURED_KEY = \"of the file\" }}\n",
        program.display().to_string()
    );
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    home
}

/// Returns what the recorder received, one entry for each attempt.
fn attempts(home: &TestHome) -> Vec<String> {
    std::fs::read_to_string(home.work().join("../attempts"))
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn interrupt(terminal: &Terminal) {
    kill_process(terminal.pid(), Signal::INT).expect("it can be interrupted");
}

#[test]
fn interrupting_logs_twice_leaves_the_run_alone() {
    let home = TestHome::new();
    home.start("waits", "say one\nask \"Which?\"");
    home.until_status("waits", "waiting_parent_reply");
    let mut terminal = Terminal::sized(&home, &["logs", "-f", "waits"], 24, 80);
    for shown in ["one", "type the answer to Q1"] {
        terminal.shows(shown);
    }
    interrupt(&terminal);
    interrupt(&terminal);
    terminal.shows("waits continues");
    assert_eq!(terminal.ends(), Some(130));
    assert_eq!(home.show("waits")["state"], "running");
}

#[test]
fn second_interrupt_cancels_what_run_started() {
    let home = TestHome::new();
    let mut terminal = Terminal::sized(
        &home,
        &["run", "-a", "echo", "-n", "hangs", "say one\nhang"],
        24,
        80,
    );
    terminal.shows("one");
    interrupt(&terminal);
    terminal.shows("Press Ctrl-C again within 2s to cancel it");
    interrupt(&terminal);
    terminal.shows("cancelling hangs");
    assert_eq!(terminal.ends(), Some(130));
    assert_eq!(home.finished("hangs")["outcome"], "cancelled");
}

#[test]
fn arguments_and_variables_last_for_every_attempt() {
    let home = recorder();
    let run = [
        "run",
        "-d",
        "-a",
        "rec",
        "-n",
        "one",
        "--env",
        "CANARY=canary-one two",
        "--env",
        "CONFIGURED_KEY",
        "please-block",
        "--",
        "--third",
        "a b",
    ];
    let ran: Ran = home
        .command(&run)
        .env("CONFIGURED_KEY", "canary-passed")
        .output()
        .expect("adj starts")
        .into();
    assert_eq!(ran.code, 0, "{ran:?}");
    home.until_status("one", "stopped");
    // A hub that is started later finds them.
    home.ok(&["stop"]);
    home.ok(&["resume", "one", "it is back"]);
    home.finished("one");
    home.ok(&["retry", "one", "-d", "just end"]);
    home.until("the retry has ended", || {
        (attempts(&home).len() == 3).then_some(())
    });
    let each = "--first --second --third a b|canary-one two|canary-passed";
    assert_eq!(attempts(&home), [each; 3]);
    let shown = home.ok(&["show", "one"]);
    assert!(
        shown.contains("--third \"a b\"") && shown.contains("CANARY, CONFIGURED_KEY"),
        "{shown}"
    );
    let everything = [
        &["show", "one", "--json"][..],
        &["events", "--json"],
        &["ps", "-a", "--json"],
        &["logs", "one"],
    ]
    .map(|args| home.ok(args))
    .concat();
    assert!(!everything.contains("canary"), "{everything}");
}

#[test]
fn variables_are_in_one_file_as_long_as_the_run() {
    let home = recorder();
    home.ok(&[
        "run",
        "-w",
        "-a",
        "rec",
        "-n",
        "one",
        "--env",
        "CANARY=canary-kept",
        "end",
    ]);
    let files = || {
        std::fs::read_dir(home.home.credentials_dir())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    };
    home.until("only the file with the variables is left", || {
        (files().len() == 1).then_some(())
    });
    let file = files().remove(0);
    assert_eq!(
        std::fs::metadata(&file)
            .expect("a file")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    home.ok(&["stop"]);
    let database = std::fs::read(home.home.database()).expect("the database");
    assert!(!database.windows(11).any(|window| window == b"canary-kept"));
    home.ok(&["rm", "one"]);
    home.until("the file is removed with the run", || {
        files().is_empty().then_some(())
    });
}

#[test]
fn unusable_options_of_run_start_nothing() {
    let home = recorder();
    let echo = ["run", "-d", "-a", "echo"];
    for (args, code, why) in [
        (&["--model", "m", "hi"][..], 2, "agent echo takes no model"),
        (&["hi", "--", "--x"], 2, "agent echo takes no arguments"),
        (&["--env", "=x", "hi"], 2, "--env without a name"),
        (
            &["--env", "NOT_SET_ANYWHERE", "hi"],
            2,
            "NOT_SET_ANYWHERE is not set in your environment",
        ),
        (&["--env", "ADJ_HOME=/x", "hi"], 2, "ADJ_HOME is adj's own"),
    ] {
        let ran = home.adj(&[&echo[..], args].concat());
        assert!(
            ran.code == code && ran.err.contains(why),
            "{args:?}: {ran:?}"
        );
    }
    let two = home.adj(&["run", "-d", "-a", "rec,echo", "hi", "--", "--x"]);
    assert!(
        two.code == 2 && two.err.contains("name one agent"),
        "{two:?}"
    );
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(0));
}

#[test]
fn words_after_two_hyphens_are_the_task_if_there_is_none() {
    let home = TestHome::new();
    home.ok(&[
        "run", "-w", "-a", "echo", "-n", "one", "--", "say", "--hello",
    ]);
    assert!(home.log("one").contains("--hello"));
}

#[test]
fn retry_and_resume_follow_on_a_terminal() {
    let home = TestHome::new();
    let mut terminal = Terminal::sized(
        &home,
        &[
            "run",
            "-a",
            "echo",
            "-n",
            "first",
            "say before\nask \"Which?\"\nsay after",
        ],
        24,
        80,
    );
    terminal.shows("type the answer to Q1");
    terminal.types("this\n");
    assert!(terminal.rest().contains("after"));
    let mut terminal = Terminal::sized(&home, &["retry", "first"], 24, 80);
    for shown in ["Ctrl-C detaches", "before", "type the answer to Q2"] {
        terminal.shows(shown);
    }
    terminal.types("that\n");
    terminal.shows("after");
    assert_eq!(terminal.ends(), Some(0));

    home.start("stuck", "say earlier\ntool stop_work {\"stop_reason\":\"blocker\",\"details\":\"no disk\"}\nhang\nresume-here\nsay later");
    home.until_status("stuck", "stopped");
    let shown = Terminal::sized(&home, &["resume", "stuck", "there is one"], 24, 80).rest();
    assert!(
        shown.contains("later") && shown.contains("✓") && !shown.contains("earlier"),
        "{shown}"
    );
    // Without a terminal, they only start it, unless they wait.
    let ran = home.adj(&["retry", "-w", "first", "say again"]);
    assert!(ran.code == 0 && ran.out.contains("again"), "{ran:?}");
    assert_eq!(home.adj(&["retry", "first", "say again"]).code, 0);
}

#[test]
fn logs_of_several_runs_name_the_run_of_each_line() {
    let home = TestHome::new();
    home.start("first", "say one\nsay two");
    home.start("other-run", "say three\nask \"Which?\"\nsay four");
    home.finished("first");
    home.until_status("other-run", "waiting_parent_reply");
    home.until_log("other-run", "three");
    let all = home.ok(&["logs", "first", "other-run", "first"]);
    assert_eq!(
        all.lines().map(str::trim_end).collect::<Vec<_>>(),
        ["first     | one", "first     | two", "other-run | three"],
        "{all:?}"
    );
    assert_eq!(
        home.ok(&["logs", "-n", "1", "first", "other-run"]),
        "first     | two\nother-run | three\n"
    );
    assert_eq!(
        home.ok(&["logs", "--grep", "tw", "first", "other-run"]),
        "first     | two\n"
    );
    let unknown = home.adj(&["logs", "first", "nobody"]);
    assert!(
        unknown.code == 5 && unknown.out.is_empty() && unknown.err.contains("no such run: nobody"),
        "{unknown:?}"
    );
    // Followed until all have ended; coloured on a terminal.
    let mut terminal = Terminal::sized(&home, &["logs", "-f", "first", "other-run"], 24, 80);
    terminal.shows("\u{1b}[33mfirst\u{1b}[0m     | one");
    terminal.shows("\u{1b}[32mother-run\u{1b}[0m | three");
    home.ok(&["reply", "other-run", "this"]);
    terminal.shows("other-run\u{1b}[0m | four");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn interrupting_logs_of_several_runs_leaves_them_alone() {
    let home = TestHome::new();
    for name in ["one", "two"] {
        home.start(name, "say here\nhang");
        home.until_log(name, "here");
    }
    let mut terminal = Terminal::sized(&home, &["logs", "-f", "one", "two"], 24, 80);
    terminal.shows("two");
    interrupt(&terminal);
    assert_eq!(terminal.ends(), Some(130));
    assert_eq!(
        (&home.show("one")["state"], &home.show("two")["state"]),
        (&"running".into(), &"running".into())
    );
}

#[test]
fn pause_and_deny_say_and_take_what_others_do() {
    let home = TestHome::new();
    home.start("one", "approve \"push\"\nhang");
    home.until_status("one", "waiting_parent_reply");
    home.ok(&["deny", "Q1", "-m", "not on a Friday"]);
    assert_eq!(
        home.inbox(&["--all"])[0]["answer"],
        "denied: not on a Friday"
    );
    home.ok(&["pause", "one"]);
    home.until_status("one", "stopped");
    let again = home.adj(&["pause", "one"]);
    assert!(
        again.code == 7
            && again.err.contains("one is already paused")
            && again.err.contains("hint: adj resume one"),
        "{again:?}"
    );
}

#[test]
fn plain_program_without_identity_gets_only_the_task() {
    let home = TestHome::with_config(
        "[agents.bare]\nharness = \"plain\"\ncommand = [\"cat\"]\nidentity = \"none\"\n[agents.told]\nharness = \"plain\"\ncommand = [\"cat\"]\n",
    );
    home.ok(&[
        "run",
        "-w",
        "-a",
        "bare",
        "-n",
        "one",
        "--criteria",
        "none",
        "fn main() {}",
    ]);
    assert_eq!(home.show("one")["result"], "fn main() {}");
    let again = home.ok(&["retry", "-d", "one"]);
    assert_eq!(home.finished(again.trim())["result"], "fn main() {}");
    home.ok(&["run", "-w", "-a", "told", "-n", "two", "fn main() {}"]);
    assert!(
        home.log("two").starts_with("## EXECUTION CONTEXT"),
        "{}",
        home.log("two")
    );
    for (harness, word, why) in [
        ("claude", "none", "harness = \"plain\""),
        ("plain", "some", "use \"statement\" or \"none\""),
    ] {
        let config = format!(
            "[agents.x]\nharness = \"{harness}\"\ncommand = [\"cat\"]\nidentity = \"{word}\"\n"
        );
        std::fs::write(home.home.dir.join("config.toml"), config)
            .expect("the configuration can be written");
        let refused = home.adj(&["config", "show"]);
        assert!(
            refused.code == 2
                && refused.err.contains("agents.x.identity")
                && refused.err.contains(why),
            "{refused:?}"
        );
    }
}

#[test]
fn line_without_a_question_is_answered_by_a_note() {
    let home = TestHome::new();
    let mut terminal = Terminal::sized(
        &home,
        &["run", "-a", "echo", "-n", "one", "say first\nhang"],
        24,
        80,
    );
    terminal.shows("first");
    terminal.types("rm -rf target\n");
    terminal.shows("no question is open; use adj send to message the run");
    home.ok(&["cancel", "one"]);
    terminal.rest();
}

#[test]
fn runs_of_a_crowded_directory_are_counted() {
    let home = TestHome::new();
    for n in 1..=5 {
        home.start(&format!("run-{n}"), "hang");
    }
    let ran = home.adj(&["run", "-d", "-a", "echo", "say x"]);
    assert!(
        ran.err.contains("and 2 more (in a git repository"),
        "{ran:?}"
    );
}

#[test]
fn logs_raw_prints_what_the_cli_wrote() {
    let config = r#"
[presets.talker]
title = "Talker"
driver = "jsonl"
command = ["/bin/sh", "-c", "echo '{\"type\":\"say\",\"text\":\"good morning\"}'; echo '{\"type\":\"end\"}'"]
can = {}
about = { vendor = "nobody", install = "none", sign_in = "none" }
[presets.talker.permissions.full]
about = "everything"
[presets.talker.stream]
end_is_stated = true
rules = [{ when = { type = "say" }, text = "text" }, { when = { type = "end" }, end = "success" }]
[agents.talker]
harness = "talker"
permissions = "full"
"#;
    let home = TestHome::with_config(config);
    home.ok(&["run", "-d", "-a", "talker", "-n", "tom", "say it"]);
    let followed = home.ok(&["logs", "-f", "--raw", "tom"]);
    home.finished("tom");
    let all = "{\"type\":\"say\",\"text\":\"good morning\"}\n{\"type\":\"end\"}\n";
    assert_eq!(
        (
            followed.as_str(),
            home.ok(&["logs", "--raw", "tom"]).as_str()
        ),
        (all, all)
    );
    assert_eq!(
        home.ok(&["logs", "--raw", "--grep", "end", "tom"]),
        "{\"type\":\"end\"}\n"
    );
    assert_eq!(home.ok(&["logs", "tom"]), "good morning\n");
    assert!(
        home.json(&["logs", "--raw", "tom"])["path"]
            .as_str()
            .is_some_and(|path| path.ends_with(".jsonl"))
    );
    // The output of echo is its text.
    home.ok(&["run", "-w", "-a", "echo", "-n", "eve", "say hello"]);
    assert_eq!(home.ok(&["logs", "--raw", "eve"]), "");
}

/// Replaces the recorded times of a run's output: from a position on, a number of seconds after
/// 2026-03-01T10:00:00Z.
fn set_times(home: &TestHome, run: &str, records: &[(u64, i64)]) -> std::path::PathBuf {
    let path = home
        .home
        .logs_dir()
        .join(format!("{}.times", home.run_id(run)));
    let start: jiff::Timestamp = "2026-03-01T10:00:00Z".parse().expect("a time");
    let bytes = records.iter().flat_map(|(position, seconds)| {
        [
            position.to_le_bytes(),
            (start.as_millisecond() + seconds * 1000).to_le_bytes(),
        ]
        .concat()
    });
    std::fs::write(&path, bytes.collect::<Vec<u8>>()).expect("it can be replaced");
    path
}

#[test]
fn log_lines_have_the_time_at_which_they_were_written() {
    let home = TestHome::new();
    let begin = jiff::Timestamp::now();
    home.ok(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "one",
        "say first\nsay second",
    ]);
    let end = jiff::Timestamp::now();
    let shown = home.ok(&["logs", "-t", "one"]);
    assert_eq!(
        shown.lines().map(|line| &line[21..]).collect::<Vec<_>>(),
        ["first", "second"],
        "{shown}"
    );
    for line in shown.lines() {
        let time: jiff::Timestamp = line[..20].parse().expect("a time");
        assert!(
            time.as_second() >= begin.as_second() && time <= end,
            "{begin} {line} {end}"
        );
    }
    assert_eq!(
        home.ok(&["logs", "--since", "10m", "one"]),
        "first\nsecond\n"
    );
    assert_eq!(home.ok(&["logs", "--since", "2099-01-01", "one"]), "");
    let raw = home.adj(&["logs", "--raw", "one"]);
    assert!(
        raw.out.is_empty() && raw.err.contains("no raw output"),
        "{raw:?}"
    );
    let negative = home.adj(&["logs", "--since", "-5m", "one"]);
    assert!(
        negative.code == 2 && negative.err.contains("neither a duration"),
        "{negative:?}"
    );
    let wrong = home.adj(&["logs", "--since", "lately", "one"]);
    assert!(
        wrong.code == 2
            && wrong
                .err
                .contains("\"lately\" is neither a duration such as 10m nor a time"),
        "{wrong:?}"
    );
}

#[test]
fn logs_since_a_time_leave_out_what_is_older() {
    let home = TestHome::new();
    home.ok(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "one",
        "say first\nsay second\nsay third",
    ]);
    home.ok(&["run", "-w", "-a", "echo", "-n", "two", "say other"]);
    set_times(&home, "one", &[(0, 0), (6, 60), (13, 3600)]);
    set_times(&home, "two", &[(0, 90)]);
    assert_eq!(
        home.ok(&["logs", "-t", "one"]),
        "2026-03-01T10:00:00Z first\n2026-03-01T10:01:00Z second\n2026-03-01T11:00:00Z third\n"
    );
    let since =
        |time: &str, more: &[&str]| home.ok(&[&["logs", "--since", time][..], more].concat());
    assert_eq!(since("2026-03-01T10:00:01Z", &["one"]), "second\nthird\n");
    assert_eq!(
        since("2026-03-01T10:01:00Z", &["-f", "one"]),
        "second\nthird\n"
    );
    assert_eq!(
        since("2026-03-01T10:00:01Z", &["-n", "1", "one"]),
        "third\n"
    );
    assert_eq!(
        since("2026-03-01T10:01:01Z", &["-n", "5", "-t", "one"]),
        "2026-03-01T11:00:00Z third\n"
    );
    assert_eq!(
        since("2026-03-01T10:00:01Z", &["--grep", "s", "-t", "one"]),
        "2026-03-01T10:01:00Z second\n"
    );
    assert_eq!(
        since("2026-03-01T10:01:30Z", &["-t", "one", "two"]),
        "one | 2026-03-01T11:00:00Z third\ntwo | 2026-03-01T10:01:30Z other\n"
    );
    let times = |args: &[&str]| home.json(args)["times"].clone();
    let expected = serde_json::json!([
        { "line": 0, "time": "2026-03-01T10:00:00.000Z" },
        { "line": 1, "time": "2026-03-01T10:01:00.000Z" },
        { "line": 2, "time": "2026-03-01T11:00:00.000Z" },
    ]);
    assert_eq!(times(&["logs", "-t", "one"]), expected);
    assert_eq!(
        times(&["logs", "-t", "-n", "1", "one"]),
        serde_json::json!([{ "line": 0, "time": "2026-03-01T11:00:00.000Z" }])
    );
    assert_eq!(times(&["logs", "one"]), serde_json::Value::Null);
    let terminal = Terminal::sized(&home, &["logs", "-t", "-f", "one"], 24, 80).rest();
    assert!(
        terminal.contains("\u{1b}[2m2026-03-01 10:01:00\u{1b}[0m second"),
        "{terminal}"
    );
}

#[test]
fn logs_can_be_read_without_usable_times() {
    let home = TestHome::new();
    home.ok(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "one",
        "say first\nsay second",
    ]);
    let path = set_times(&home, "one", &[(0, 0), (6, 60)]);
    let torn = std::fs::read(&path).expect("the times")[..20].to_vec();
    std::fs::write(&path, torn).expect("it can be torn");
    assert_eq!(
        home.ok(&["logs", "-t", "one"]),
        "2026-03-01T10:00:00Z first\n2026-03-01T10:00:00Z second\n"
    );
    let plant: [(&str, &dyn Fn()); 4] = [
        ("a missing file", &|| {}),
        ("a file that is too large", &|| {
            std::fs::File::create(&path)
                .and_then(|file| file.set_len(1 << 40))
                .expect("a file")
        }),
        ("a link", &|| {
            std::os::unix::fs::symlink("/dev/zero", &path).expect("a link")
        }),
        ("a directory", &|| {
            std::fs::create_dir(&path).expect("a directory")
        }),
    ];
    for (what, plant) in plant {
        std::fs::remove_file(&path).expect("the last one");
        plant();
        let ran = home.adj(&["logs", "-t", "one"]);
        assert_eq!(
            ran.out
                .lines()
                .map(|line| line.split_whitespace().collect())
                .collect::<Vec<Vec<_>>>(),
            [["-", "first"], ["-", "second"]],
            "{what}: {ran:?}"
        );
        assert_eq!(
            ran.err
                .matches("the times of some output of one are not known")
                .count(),
            1,
            "{what}: {ran:?}"
        );
        let ran = home.adj(&["logs", "--since", "1m", "one"]);
        assert!(
            ran.out == "first\nsecond\n" && ran.err.contains("is printed whatever its time"),
            "{what}: {ran:?}"
        );
        if !path.exists() {
            std::fs::write(&path, "").expect("a file");
        }
    }
}
