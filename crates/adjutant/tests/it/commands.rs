//! Commands as a person types them: several runs, unusual values, directories and colours.

use crate::mcp::{Session, text};
use crate::processes::Mark;
use crate::support::{Ran, TestHome};
use serde_json::{Value, json};
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a command for which file permissions apply, even if root runs the tests.
fn without_privileges(command: &Command) -> Command {
    if !rustix::process::geteuid().is_root() {
        let mut same = Command::new(command.get_program());
        same.args(command.get_args());
        return with_surroundings(same, command);
    }
    let mut dropped = Command::new("/usr/bin/setpriv");
    dropped
        .args([
            "--bounding-set=-dac_override,-dac_read_search",
            "--inh-caps=-all",
            "--",
        ])
        .arg(command.get_program())
        .args(command.get_args());
    with_surroundings(dropped, command)
}

fn with_surroundings(mut command: Command, like: &Command) -> Command {
    command
        .env_clear()
        .envs(
            like.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(std::process::Stdio::null());
    command.current_dir(like.get_current_dir().expect("tests name a directory"));
    let home = like
        .get_envs()
        .find_map(|(name, value)| value.filter(|_| name == "ADJ_HOME"));
    Mark::of(Path::new(home.expect("a home"))).put_on(&mut command);
    command
}

fn ran(command: &mut Command) -> Ran {
    command.output().expect("adj can be started").into()
}

#[test]
fn cancel_names_each_run_it_refuses() {
    let home = TestHome::new();
    for name in ["e1", "e2"] {
        home.start(name, "done");
        home.finished(name);
    }
    home.start("live", "hang");
    let text = home.adj(&["cancel", "e1", "live", "nobody", "e2"]);
    assert_eq!(text.code, 7, "{text:?}");
    assert!(
        text.out.contains("live") && !text.out.contains("e1"),
        "{text:?}"
    );
    let places: Vec<usize> = ["e1 has finished", "nobody", "e2 has finished"]
        .iter()
        .map(|part| {
            text.err
                .find(part)
                .unwrap_or_else(|| panic!("{part}: {text:?}"))
        })
        .collect();
    assert!(places.is_sorted(), "in the order given: {text:?}");
    let machine = home.adj(&["--json", "cancel", "e1", "nobody", "e2"]);
    assert_eq!(
        (
            machine.code,
            machine.out.as_str(),
            machine.err.lines().count()
        ),
        (7, "", 1),
        "{machine:?}"
    );
    let line: Value = serde_json::from_str(&machine.err).expect("JSON");
    let named: Vec<_> = line["errors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|error| (error["run"].clone(), error["code"].clone()))
        .collect();
    assert_eq!(
        named,
        [
            (json!("e1"), json!("run_finished")),
            (json!("nobody"), json!("not_found")),
            (json!("e2"), json!("run_finished"))
        ]
    );
    assert_eq!(line["error"]["code"], "run_finished", "{line}");
}

#[test]
fn errors_name_the_run_and_a_command_to_copy() {
    let home = TestHome::new();
    home.start("ended", "done");
    home.finished("ended");
    home.start("busy", "hang");
    home.until_status("busy", "running");
    let refused = |args: &[&str], code: i32, parts: &[&str]| {
        let ran = home.adj(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        for part in parts {
            assert!(ran.err.contains(part), "{args:?} lacks {part:?}: {ran:?}");
        }
    };
    let id = home.run_id("ended");
    let retry = "hint: to run its task again: adj retry ended\n";
    for args in [
        ["reply", "ended", "yes"].as_slice(),
        &["send", "ended", "hello"],
        &["pause", "ended"],
        &["resume", "ended"],
        &["resume", &id],
        &["budget", "ended", "--add", "time=1m"],
        &["cancel", "ended"],
    ] {
        refused(args, 7, &["ended has finished (succeeded)", retry]);
    }
    refused(
        &["resume", "busy"],
        7,
        &[
            "busy is running and cannot be resumed",
            "adj send busy TEXT",
        ],
    );
    refused(
        &["retry", "busy"],
        7,
        &["busy is running and cannot be retried", "adj cancel busy"],
    );
    refused(
        &["rm", "busy"],
        7,
        &["busy is running and cannot be removed", "adj cancel busy"],
    );
    home.ok(&["pause", "busy"]);
    home.until_status("busy", "stopped");
    refused(
        &["pause", "busy"],
        7,
        &["busy is already paused", "adj resume busy"],
    );
}

#[test]
fn names_that_are_almost_right_are_suggested() {
    let home = TestHome::new();
    for name in ["goodbye", "e1"] {
        home.start(name, "done");
        home.finished(name);
    }
    for (given, meant) in [
        ("goodbey", "goodbye"),
        ("godbye", "goodbye"),
        ("Goodbye", "goodbye"),
        ("@lst", "@last"),
        ("@LAST", "@last"),
    ] {
        for command in ["show", "logs", "diff", "wait"] {
            let ran = home.adj(&[command, given]);
            assert!(
                ran.code == 5
                    && ran
                        .err
                        .contains(&format!("no such run: {given}; did you mean {meant}?")),
                "{command} {given}: {ran:?}"
            );
        }
    }
    for given in ["e2", "hello", "@", "x"] {
        let ran = home.adj(&["show", given]);
        assert!(
            ran.code == 5 && !ran.err.contains("did you mean"),
            "{given}: {ran:?}"
        );
    }
    assert!(
        home.adj(&["show", "goodb"]).code == 0,
        "a prefix still names its run"
    );
    // The names of a person's runs are no business of a client.
    let mut client = Session::open(&home.home.dir, &home.work(), &[], true);
    let refused = client.tool("check_subagent_status", json!({"run_id": "goodbey"}));
    assert!(
        text(&refused).contains("no such run: goodbey")
            && !refused.to_string().contains("did you mean"),
        "{refused}"
    );
}

#[test]
fn number_of_a_request_is_explained_where_a_run_is_expected() {
    let home = TestHome::new();
    home.start("asker", "ask \"which?\"");
    home.until_status("asker", "waiting_parent_reply");
    let number = home.inbox(&[])[0]["number"]
        .as_str()
        .expect("a number")
        .to_owned();
    for command in ["show", "logs", "cancel"] {
        let ran = home.adj(&[command, &number]);
        assert!(
            ran.code == 5
                && ran.err.contains(&format!(
                    "{number} is the number of a request: adj next {number}"
                )),
            "{command}: {ran:?}"
        );
    }
    let denied = home.adj(&["approve", "asker"]);
    assert!(
        denied.code == 2
            && denied
                .err
                .contains(&format!("{number} of asker: a question cannot be approved")),
        "{denied:?}"
    );
    assert!(
        denied.err.contains(&format!("adj reply {number} \"…\"")),
        "{denied:?}"
    );
    home.ok(&["cancel", "asker"]);
    home.finished("asker");
    let late = home.adj(&["reply", &number, "too late"]);
    assert!(
        late.code == 7
            && late
                .err
                .contains(&format!("{number} of asker: the question was withdrawn")),
        "{late:?}"
    );
}

#[test]
fn failed_acceptance_suggests_a_command_that_shows_it() {
    let home = TestHome::new();
    let wait = home.adj(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "unmet",
        "--accept",
        "sh -c \"echo why; exit 3\"",
        "say z",
    ]);
    assert_eq!(wait.code, 1, "{wait:?}");
    assert!(
        wait.err.contains("✗ not accepted")
            && wait.err.contains("exit code 3")
            && wait.out.is_empty(),
        "{wait:?}"
    );
    assert!(wait.err.contains("next: adj show unmet"), "{wait:?}");
    let view = home.show("unmet");
    assert_eq!(
        (&view["status"], &view["outcome"], &view["exit_code"]),
        (&json!("error"), &json!("succeeded"), &json!(0))
    );
    let shown = home.ok(&["show", "unmet"]);
    assert!(
        shown.contains("exit code 3")
            && shown.contains("why")
            && shown.contains("0 (of the agent)"),
        "{shown}"
    );
    assert!(!shown.contains("success"), "{shown}");
    let machine = home.adj(&["--json", "wait", "unmet"]);
    assert!(
        machine.code == 1 && machine.err.contains("not accepted"),
        "{machine:?}"
    );
    let missing = home.adj(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "typo",
        "--accept",
        "no-such-tool x",
        "say z",
    ]);
    assert!(
        missing.code == 1
            && missing.err.contains("could not run")
            && missing.err.contains("no-such-tool"),
        "{missing:?}"
    );
    let piped = home.adj(&["run", "-a", "echo", "--accept", "ls | wc -l", "say z"]);
    assert!(piped.code == 2 && piped.err.contains("sh -c"), "{piped:?}");
}

#[test]
fn directory_that_cannot_be_entered_is_refused_before_the_start() {
    let home = TestHome::new();
    let closed = home.work().join("closed");
    std::fs::create_dir(&closed).expect("a directory");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o600)).expect("its mode");
    let refused =
        ran(&mut without_privileges(&home.command(&[
            "--json", "run", "-a", "echo", "-C", "closed", "done",
        ])));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.err.contains("cannot be entered") && refused.err.contains("closed"),
        "{refused:?}"
    );
    // If the directory becomes inaccessible before the start, the error says so.
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("its mode");
    std::fs::write(home.home.dir.join("config.toml"), "live_runs_max = 1\n")
        .expect("the configuration can be written");
    home.start("first", "ask \"go on?\"\ndone");
    home.until_status("first", "waiting_parent_reply");
    let queued = home.adj(&[
        "run", "-d", "-a", "echo", "-n", "second", "-C", "closed", "done",
    ]);
    assert_eq!(queued.code, 0, "{queued:?}");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o600)).expect("its mode");
    home.ok(&["reply", "first", "yes"]);
    let view = home.finished("second");
    let reason = view["reason"].as_str().unwrap_or_default();
    assert!(
        view["outcome"] == "spawn_failed"
            && reason.contains("cannot be entered")
            && !reason.contains("chmod +x"),
        "{view}"
    );
    let waited = home.adj(&["wait", "second"]);
    assert!(
        waited.code == 125
            && waited.err.contains("cannot be entered")
            && waited.err.contains("adj show second"),
        "{waited:?}"
    );
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("its mode");
}

#[test]
fn help_for_mcp_is_the_help_of_mcp() {
    let home = TestHome::new();
    let own = home.ok(&["mcp", "--help"]);
    assert_eq!(home.ok(&["help", "mcp"]), own);
    assert!(
        own.contains("--role") && own.contains("--max-wait"),
        "{own}"
    );
}

#[test]
fn numbers_are_refused_in_plain_words() {
    let home = TestHome::new();
    for (args, words) in [
        (
            &["ps", "-n", "abc"][..],
            "\"abc\" is not a number from 1 to",
        ),
        (&["ps", "-n", "0"], "\"0\" is not a number from 1 to"),
        (
            &["logs", "-n", "many", "x"],
            "\"many\" is not a number from 1 to",
        ),
        (&["chat", "show", "six"], "is not the number of a chat"),
    ] {
        let refused = home.adj(args);
        assert!(
            refused.code == 2
                && refused.err.contains(words)
                && !refused.err.contains("invalid digit"),
            "{args:?}: {refused:?}"
        );
    }
}

#[test]
fn colour_variables_are_honoured() {
    let home = TestHome::new();
    home.start("painted", "hang");
    let is_painted = |variables: &[(&str, &str)]| {
        let ran = ran(home.command(&["ps"]).envs(variables.iter().copied()));
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.contains('\u{1b}')
    };
    assert!(
        is_painted(&[("FORCE_COLOR", "1")])
            && is_painted(&[("FORCE_COLOR", "1"), ("CLICOLOR", "0")])
    );
    assert!(
        !is_painted(&[("FORCE_COLOR", "0"), ("CLICOLOR_FORCE", "1")])
            && !is_painted(&[("NO_COLOR", "1"), ("FORCE_COLOR", "1")])
    );
    home.ok(&["cancel", "painted"]);
}

#[test]
fn output_without_a_final_newline_ends_its_line() {
    let home = TestHome::with_config(
        "[agents.raw]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"cat >/dev/null; printf hello\"]\n",
    );
    home.start_agent("raw", "open", "go");
    home.finished("open");
    for args in [
        &["logs", "open"][..],
        &["logs", "-f", "open"],
        &["logs", "-n", "5", "open"],
    ] {
        assert_eq!(home.ok(args), "hello\n", "{args:?}");
    }
}

#[test]
fn numbers_agree_with_their_nouns() {
    let home = TestHome::new();
    home.start("alone", "hang");
    home.until_status("alone", "running");
    let waited = home.adj(&["wait", "--timeout", "10ms", "alone"]);
    assert!(
        waited.code == 124 && waited.err.contains("timed out: 1 working"),
        "{waited:?}"
    );
    let stopped = home.ok(&["stop"]);
    assert!(stopped.contains("1 run continues"), "{stopped}");
    home.ok(&["cancel", "alone"]);
}

#[test]
fn doctor_works_without_a_home() {
    let home = TestHome::new();
    let ran = ran(home
        .command(&["doctor"])
        .env_remove("HOME")
        .env_remove("ADJ_HOME"));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.out.contains("✗ home") && ran.out.contains("set HOME") && ran.out.contains("git"),
        "{ran:?}"
    );
}

#[test]
fn doctor_fixes_do_not_lead_to_doctor() {
    let home = TestHome::new();
    let ran = ran(home.command(&["doctor"]).env("ADJ_HOME", "/proc/nowhere"));
    assert!(ran.code == 1 && ran.out.contains("✗ hub"), "{ran:?}");
    assert!(
        !ran.out.contains("adj doctor") && !ran.err.contains("adj doctor"),
        "{ran:?}"
    );
}

#[test]
fn unreadable_configuration_has_its_own_hint() {
    let home = TestHome::new();
    let config = home.home.dir.join("config.toml");
    std::fs::set_permissions(&config, Permissions::from_mode(0o000)).expect("its mode");
    let ran = ran(&mut without_privileges(&home.command(&["doctor"])));
    assert!(ran.code == 1 && ran.out.contains("✗ config"), "{ran:?}");
    assert!(
        ran.out.contains("readable; no run can start") && !ran.out.contains("fix that line"),
        "{ran:?}"
    );
}

#[test]
fn program_without_execute_permission_is_not_missing() {
    let home = TestHome::new();
    let program = home.work().join("tool");
    std::fs::write(&program, "#!/bin/sh\n").expect("a file");
    let config = format!(
        "[agents.tool]\nharness = \"plain\"\ncommand = [{:?}]\n",
        program.display().to_string()
    );
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    let listed = home.ok(&["agents"]);
    assert!(
        listed.contains("✗ not executable") && !listed.contains("missing"),
        "{listed}"
    );
    let agents = home.json(&["agents"]);
    let tool = agents
        .as_array()
        .expect("a list")
        .iter()
        .find(|agent| agent["name"] == "tool")
        .expect("it is listed")
        .clone();
    assert_eq!(tool["problem_code"], "agent_not_executable");
}

/// Programs that print several lines, on one or both streams, and end with different codes.
const PRINTERS: [(&str, &str, i32, &str); 4] = [
    (
        "whole",
        "printf '# Review\\n\\n- one\\n- two\\n\\nVerdict: fix it\\n'",
        0,
        "# Review\n\n- one\n- two\n\nVerdict: fix it\n",
    ),
    ("unended", "printf 'a\\nb'", 0, "a\nb\n"),
    ("noisy", "echo progress >&2; echo result", 0, "result\n"),
    ("failed", "echo half of it; exit 3", 1, ""),
];

#[test]
fn run_with_wait_prints_the_whole_result_on_stdout() {
    let config = "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\"]\nargs = [\"-c\"]\nprompt = \"arg\"\nidentity = \"none\"\n";
    let home = TestHome::with_config(config);
    for (name, script, code, out) in PRINTERS {
        let ran = home.adj(&["run", "-w", "-a", "sh", "-n", name, script]);
        assert_eq!((ran.code, ran.out.as_str()), (code, out), "{name}: {ran:?}");
        assert!(
            ran.err.contains(&format!("{name}  "))
                && ran
                    .err
                    .contains(if code == 0 { "✓ done" } else { "✗ failed" }),
            "{ran:?}"
        );
    }
    // A result of several messages, a report, a question, a stop, and what has no result.
    let ran = home.adj(&["run", "-w", "-a", "echo", "say # Review\nsay - a"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, home.ok(&["show", "@last", "--result"]).as_str()),
        "{ran:?}"
    );
    let ran = home.adj(&["run", "-w", "-a", "echo", "ask \"red or blue?\""]);
    assert!(
        ran.code == 3 && ran.out.is_empty() && ran.err.contains("red or blue?"),
        "{ran:?}"
    );
    let ran = home.adj(&["run", "-w", "-a", "missing", "x"]);
    assert!(ran.code != 0 && ran.out.is_empty(), "{ran:?}");
    // JSON is unchanged.
    let ran = home.adj(&["--json", "run", "-w", "-a", "echo", "say hello"]);
    assert_eq!(ran.data()["result"], "hello", "{ran:?}");
}

#[test]
fn piped_input_alone_is_the_task() {
    let home = TestHome::with_config(CAT);
    let (pipe, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"sum up\n1 2 3\n").expect("written");
    drop(writer);
    let ran_it = ran(home
        .command(&["run", "-w", "-a", "cat", "-n", "piped"])
        .stdin(OwnedFd::from(pipe)));
    assert!(
        ran_it.code == 0
            && ran_it.out.ends_with("sum up\n1 2 3\n")
            && !ran_it.out.contains("Standard input"),
        "{ran_it:?}"
    );
    for stdin in [
        Stdio::null(),
        File::open("/dev/null").expect("it opens").into(),
    ] {
        let refused = ran(home.command(&["run", "-w", "-a", "cat"]).stdin(stdin));
        assert!(
            refused.code == 2 && refused.err.contains("no task given"),
            "{refused:?}"
        );
    }
}

const CAT: &str = "[agents.cat]\nharness = \"plain\"\ncommand = [\"/bin/cat\"]\n";

/// Runs the agent that repeats its prompt, with this standard input.
fn run_cat(home: &TestHome, name: &str, stdin: Stdio, prompt: &str) -> Ran {
    ran(home
        .command(&["run", "-w", "-a", "cat", "-n", name, prompt])
        .stdin(stdin))
}

#[test]
fn piped_input_is_added_to_the_prompt() {
    let home = TestHome::with_config(CAT);
    let (mut theirs, ours) = UnixStream::pair().expect("a pair");
    theirs.write_all(b"from a socket").expect("written");
    drop(theirs);
    assert_eq!(
        run_cat(&home, "socket", OwnedFd::from(ours).into(), "look at this").code,
        0
    );
    assert!(
        home.log("socket")
            .contains("look at this\n\nStandard input (13 bytes):\n\n```\nfrom a socket\n```\n"),
        "{}",
        home.log("socket")
    );
    let file = home.work().join("diff");
    std::fs::write(&file, "a\n````\nnot the end\n").expect("a file");
    let reviewed = run_cat(
        &home,
        "from-file",
        File::open(&file).expect("it opens").into(),
        "review",
    );
    assert_eq!(reviewed.code, 0, "{reviewed:?}");
    assert!(
        home.log("from-file")
            .contains("`````\na\n````\nnot the end\n`````\n"),
        "the fence is longer than any in it: {}",
        home.log("from-file")
    );
    let mut child = home
        .command(&["run", "-d", "-a", "cat", "-n", "pipe", "sum up"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("adj starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"1 2 3\n")
        .expect("written");
    assert!(child.wait().expect("it ends").success());
    home.finished("pipe");
    assert!(
        home.log("pipe")
            .contains("sum up\n\nStandard input (6 bytes):\n\n```\n1 2 3\n```\n"),
        "{}",
        home.log("pipe")
    );
    // Without input, nothing is appended.
    assert_eq!(run_cat(&home, "nothing", Stdio::null(), "alone").code, 0);
    let (empty, end) = std::io::pipe().expect("a pipe");
    drop(end);
    assert_eq!(
        run_cat(&home, "empty", OwnedFd::from(empty).into(), "alone").code,
        0
    );
    for name in ["nothing", "empty"] {
        assert!(
            !home.log(name).contains("Standard input"),
            "{}",
            home.log(name)
        );
    }
    // Input that is the whole prompt is not changed.
    let whole = run_cat(
        &home,
        "whole",
        File::open(&file).expect("it opens").into(),
        "-",
    );
    assert!(
        whole.code == 0 && !home.log("whole").contains("Standard input"),
        "{}",
        home.log("whole")
    );
}

#[test]
fn input_that_cannot_be_added_is_refused() {
    let home = TestHome::with_config(CAT);
    let (bytes, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"\xff\xfe").expect("written");
    drop(writer);
    let refused = run_cat(&home, "bytes", OwnedFd::from(bytes).into(), "look");
    assert!(
        refused.code == 2 && refused.err.contains("not UTF-8"),
        "{refused:?}"
    );
    let refused = run_cat(
        &home,
        "dir",
        File::open(home.work()).expect("it opens").into(),
        "look",
    );
    assert!(
        refused.code == 1 && refused.err.contains("cannot read the input"),
        "{refused:?}"
    );
    assert!(
        home.json(&["ps", "-a"])
            .as_array()
            .is_some_and(Vec::is_empty),
        "nothing was started"
    );
}

#[test]
fn input_that_never_ends_does_not_hang_a_run() {
    let home = TestHome::with_config(CAT);
    let (pipe, keep_pipe) = std::io::pipe().expect("a pipe");
    let refused = run_cat(&home, "pipe", OwnedFd::from(pipe).into(), "look");
    assert!(
        refused.code == 2
            && refused.err.contains("nothing arrived")
            && refused.err.contains("</dev/null"),
        "{refused:?}"
    );
    let (socket, keep_socket) = UnixStream::pair().expect("a pair");
    assert_eq!(
        run_cat(&home, "socket", OwnedFd::from(socket).into(), "look").code,
        0
    );
    drop((keep_pipe, keep_socket));
}

#[test]
fn queued_run_takes_its_directory() {
    let home = TestHome::with_config("refuse_shared_directory = true\nlive_runs_max = 1\n");
    std::fs::create_dir(home.work().join("elsewhere")).expect("a directory");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "first",
        "-C",
        "elsewhere",
        "hang",
    ]);
    home.until_status("first", "running");
    home.ok(&["run", "-d", "-a", "echo", "-n", "second", "hang"]);
    assert_eq!(home.show("second")["state"], "queued");
    let refused = home.adj(&["--json", "run", "-d", "-a", "echo", "-n", "third", "hang"]);
    assert!(
        refused.code == 7 && refused.err.contains("second is working in this directory"),
        "{refused:?}"
    );
    assert!(
        refused.err.contains("adj wait second"),
        "the hint names the run: {refused:?}"
    );
    home.ok(&["cancel", "second"]);
    home.ok(&["run", "-d", "-a", "echo", "-n", "fourth", "hang"]);
    let retried = home.adj(&["--json", "retry", "second"]);
    assert!(
        retried.code == 7 && retried.err.contains("fourth is working"),
        "{retried:?}"
    );
    home.ok(&["cancel", "first", "fourth"]);
}

#[test]
fn pools_are_shown_with_their_launchers() {
    let pools = "[pools.gpu]\nslots = 2\nagents = [\"echo\"]\nrunners = true\nbudget = \"cost=5\"\nlabels = { \"rack/row\" = \"a1\", gpu = \"a100\" }\n\
                 launch = [\"ssh\", \"gpu1.example.org\"]\nlaunch_timeout = \"90s\"\n";
    let home = TestHome::with_config(&format!(
        "{pools}[agents.echo]\nharness = \"echo\"\npool = \"gpu\"\n"
    ));
    let shown = home.ok(&["config", "show"]);
    let (_, gpu) = shown.split_once("[pools.gpu]").expect("the pool is shown");
    let lines = [
        "slots = 2",
        "agents = [\"echo\"]",
        "keep_slot = true",
        "budget = \"cost=5\"",
        "labels = { gpu = \"a100\", \"rack/row\" = \"a1\" }",
        "launch = [\"ssh\",\"gpu1.example.org\"]",
        "launch_max = 1",
        "launch_timeout = \"1m30s\"",
        "pool = \"gpu\"",
    ];
    for line in lines {
        assert!(gpu.lines().any(|shown| shown == line), "{line} in {gpu}");
    }
    assert!(shown.contains("[pools.default]"), "{shown}");
    let machine = home.json(&["config", "show"]);
    assert_eq!(
        (
            &machine["pools"]["gpu"]["runners"],
            &machine["pools"]["gpu"]["launch_max"]
        ),
        (&json!(true), &json!(1)),
        "{machine}"
    );
}

#[test]
fn whole_configuration_is_shown() {
    let home = TestHome::with_config(
        "expiry = \"90m\"\n[agents.mine]\nharness = \"plain\"\ncommand = [\"/bin/cat\"]\nargs = [\"-u\"]\nenv = { API_KEY = \"hunter2\" }\n\
         permissions = \"read\"\ntimeout = \"45m\"\npatience = \"3s\"\nstall = \"never\"\ngrace = \"1500ms\"\n\
         [[webhooks]]\nurl = \"https://example.org/hooks/T0P5ECRET\"\nsecret_file = \"key\"\n",
    );
    let shown = home.ok(&["config", "show"]);
    let (_, mine) = shown
        .split_once("[agents.mine]")
        .expect("the agent is shown");
    let lines = [
        "harness = \"plain\"",
        "args = [\"-u\"]",
        "env = { \"API_KEY\" = \"…\" }",
        "permissions = \"read\"",
        "trust_repo = false",
        "timeout = \"45m\"",
        "patience = \"3s\"",
        "stall = \"never\"",
        "grace = \"1s500ms\"",
        "allow_private = false",
        "url = \"https://example.org/…\"",
    ];
    for line in lines {
        assert!(mine.lines().any(|shown| shown == line), "{line} in {mine}");
    }
    assert!(shown.contains("expiry = \"1h30m\""), "{shown}");
    let one = home.ok(&["agents", "mine"]);
    for (field, value) in [
        ("patience", "3s"),
        ("grace", "1s500ms"),
        ("timeout", "45m"),
        ("permissions", "read"),
        ("stall", "never"),
    ] {
        assert!(
            one.lines()
                .any(|line| line.starts_with(field) && line.contains(value)),
            "{field}: {one}"
        );
    }
    let machine = home.adj(&["--json", "config", "show"]);
    let agents = machine.data()["agents"].clone();
    let mine = agents
        .as_array()
        .expect("a list")
        .iter()
        .find(|agent| agent["name"] == "mine")
        .expect("it is there")
        .clone();
    assert_eq!(
        (&mine["patience_ms"], &mine["stall_ms"], &mine["env_names"]),
        (&json!(3000), &Value::Null, &json!(["API_KEY"]))
    );
    for text in [&shown, &one, &machine.out] {
        assert!(
            !text.contains("hunter2") && !text.contains("T0P5ECRET"),
            "{text}"
        );
    }
}

#[test]
fn echo_receives_the_message_that_its_script_expects() {
    let home = TestHome::new();
    home.start("ear", "say ready\nexpect-message\ndone received it");
    home.until_log("ear", "ready");
    home.ok(&["send", "ear", "are you there?"]);
    home.finished("ear");
    assert!(
        home.log("ear").contains("message: are you there?"),
        "{}",
        home.log("ear")
    );
}

#[test]
fn echo_with_read_permissions_writes_no_file() {
    let home = TestHome::new();
    for (name, permissions, script) in [
        ("w", "read", "write a.txt x\ndone ok"),
        ("j", "read", "journal b.txt x\ndone ok"),
        ("e", "edit", "write c.txt x\ndone ok"),
    ] {
        home.ok(&[
            "run",
            "--detach",
            "-a",
            "echo",
            "-n",
            name,
            "--permissions",
            permissions,
            script,
        ]);
        let ended = home.finished(name);
        let is_written = ["a.txt", "b.txt", "c.txt"]
            .iter()
            .any(|file| home.work().join(file).exists());
        assert_eq!(
            (ended["outcome"] == "succeeded", is_written),
            (permissions == "edit", permissions == "edit"),
            "{name}: {ended}"
        );
        assert_eq!(
            home.log(name)
                .contains("the permissions of this run are read"),
            permissions == "read",
            "{}",
            home.log(name)
        );
    }
}
