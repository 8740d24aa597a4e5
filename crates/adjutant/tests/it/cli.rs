//! The command line, as a person and a script see it.

use crate::support::{Ran, TestHome, kill};
use adjutant_api::view::Dispatch;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

impl TestHome {
    /// Runs `adj` and expects success.
    #[track_caller]
    fn fine(&self, args: &[&str]) -> Ran {
        let ran = self.adj(args);
        assert_eq!(ran.code, 0, "adj {args:?}: {ran:?}");
        ran
    }

    fn adj_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        typed_into(self.command(args), input)
    }

    /// Starts a scripted run with a generated name.
    #[track_caller]
    fn echo(&self, script: &str) -> String {
        let run = self.json(&["run", "-a", "echo", &format!("a task\n---\n{script}")]);
        run["name"].as_str().expect("a run has a name").to_owned()
    }

    /// Waits until the run asks a question, and returns its number.
    #[track_caller]
    fn asked_by(&self, run: &str) -> String {
        let ran = self.adj(&["--json", "wait", "--timeout", "30s", run]);
        assert_eq!(ran.code, 3, "{ran:?}");
        ran.data()["needs"][0]["number"]
            .as_str()
            .expect("a question has a number")
            .to_owned()
    }

    /// Waits until the run has ended, and returns it.
    #[track_caller]
    fn ended(&self, run: &str) -> Value {
        let ran = self.adj(&["--json", "wait", "--until", "all", "--timeout", "30s", run]);
        assert!(matches!(ran.code, 0 | 1 | 125), "{ran:?}");
        self.show(run)
    }
}

fn typed_into(mut command: Command, input: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("adj can be started");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that refuses its input early does not read all of it.
    if let Err(error) = stdin.write_all(input) {
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
    drop(stdin);
    child.wait_with_output().expect("adj ends").into()
}

impl Ran {
    /// The code of the one error line of a `--json` failure.
    #[track_caller]
    fn error_code(&self) -> String {
        assert_eq!(self.err.lines().count(), 1, "exactly one line: {self:?}");
        let line: Value =
            serde_json::from_str(&self.err).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        line["error"]["code"]
            .as_str()
            .expect("an error has a code")
            .to_owned()
    }
}

#[track_caller]
fn refused(ran: &Ran, code: &str, exit: i32) {
    assert_eq!(
        (ran.error_code().as_str(), ran.code),
        (code, exit),
        "{ran:?}"
    );
    assert!(ran.out.is_empty(), "{ran:?}");
}

#[test]
fn unusable_configuration_is_reported_by_every_command() {
    let home = TestHome::new();
    home.ok(&["run", "-a", "echo", "-n", "before", "say hello"]);
    let config = home.home.dir.join("config.toml");
    std::fs::write(&config, "live_runs_max = 4\nliev_runs = 5\n")
        .expect("the configuration can be written");
    let warned = |ran: &Ran| {
        ran.err
            .lines()
            .filter(|line| line.starts_with("warning: ") && line.contains("config.toml: line 2"))
            .count()
    };
    for args in [&["ps", "-a"][..], &["show", "before"], &["inbox"]] {
        let ran = home.adj(args);
        assert_eq!(
            (ran.code, warned(&ran), ran.out.contains("warning")),
            (0, 1, false),
            "{args:?}: {ran:?}"
        );
    }
    let machine = home.adj(&["--json", "ps", "-a"]);
    assert!(
        machine.err.is_empty()
            && machine
                .data()
                .as_array()
                .is_some_and(|runs| runs.len() == 1),
        "{machine:?}"
    );
    // A command that fails because of it reports it once, as its error.
    let refused = home.adj(&["run", "-a", "echo", "say more"]);
    assert!(
        refused.code != 0 && refused.err.matches("line 2").count() == 1 && warned(&refused) == 0,
        "{refused:?}"
    );
    std::fs::write(&config, "live_runs_max = 4\n").expect("the configuration can be written");
    let ran = home.adj(&["ps", "-a"]);
    assert!(ran.code == 0 && !ran.err.contains("warning"), "{ran:?}");
}

#[test]
fn help_needs_no_home_and_no_hub() {
    let home = TestHome::new();
    for args in [
        vec!["--help"],
        vec!["--version"],
        vec!["help"],
        vec!["help", "run"],
        vec!["help", "exit-codes"],
        vec!["completions", "bash"],
    ] {
        let ran = home.fine(&args);
        assert!(!ran.out.is_empty() && ran.err.is_empty(), "{args:?}");
    }
    assert!(!home.home.database().exists(), "nothing was made");
}

#[test]
fn exit_codes_match_the_documentation() {
    let home = TestHome::new();
    let table = home.json(&["help", "exit-codes"]);
    let text = home.fine(&["help", "exit-codes"]).out;
    for row in table.as_array().expect("a table") {
        let line = format!(
            "{:>5}  {}",
            row["exit"].as_u64().expect("a number"),
            row["meaning"].as_str().expect("text")
        );
        assert!(text.lines().any(|l| l == line), "{line}");
    }
}

#[test]
fn wrong_usage_is_refused_before_anything_is_touched() {
    let home = TestHome::new();
    for args in [
        vec!["--json", "rn"],
        vec!["--json", "run"],
        vec!["--json", "run", "--bogus", "x"],
        vec!["--json", "wait", "--timeout", "soon"],
        vec!["--json", "next"],
    ] {
        refused(&home.adj(&args), "usage", 2);
    }
    assert!(!home.home.database().exists(), "nothing was made");
}

#[test]
fn run_is_started_awaited_and_read() {
    let home = TestHome::new();
    let ran = home.fine(&[
        "run",
        "-a",
        "echo",
        "-n",
        "brave-otter",
        "say hello\ndone all is well",
    ]);
    assert_eq!(ran.out, "brave-otter\n");
    assert!(
        ran.err.contains("next: adj wait brave-otter"),
        "{}",
        ran.err
    );
    home.fine(&["wait", "brave-otter"]);
    let logs = home.fine(&["logs", "brave-otter"]);
    assert!(logs.out.contains("hello"), "{}", logs.out);
    let ps = home.fine(&["ps", "-a"]);
    assert!(
        ps.out.contains("brave-otter") && ps.out.contains("✓ done"),
        "{}",
        ps.out
    );
    assert_eq!(home.fine(&["ps", "-a", "-q"]).out, "brave-otter\n");
    let shown = home.json(&["show", "brave-otter"]);
    assert_eq!(
        (&shown["state"], &shown["outcome"]),
        (&"finished".into(), &"succeeded".into())
    );
}

#[test]
fn question_is_answered_by_the_number_of_an_option() {
    let home = TestHome::new();
    let run = home.echo("ask \"Which one?\" [options: red|green]\ndone");
    let number = home.asked_by(&run);
    let inbox = home.fine(&["inbox"]);
    assert!(
        inbox.out.contains(&number)
            && inbox.out.contains("Which one?")
            && inbox.out.contains("2) green"),
        "{}",
        inbox.out
    );
    let answered = home.json(&["reply", &number, "2"]);
    assert_eq!(answered["requests"][0]["answer"], "green");
    assert_eq!(home.ended(&run)["outcome"], "succeeded");
    refused(
        &home.adj(&["--json", "reply", &number, "1"]),
        "already_answered",
        7,
    );
    let again = home.adj(&["reply", &number, "1"]);
    assert!(
        again.err.contains(&format!(
            "{number} was already answered: option 2, \"green\" (you, "
        )),
        "{}",
        again.err
    );
    let unfitting = home.adj(&["approve", &number]);
    assert!(
        unfitting.err.contains(&format!("adj reply {number} "))
            && !unfitting.err.contains("reply_subagent"),
        "{}",
        unfitting.err
    );
}

#[test]
fn answer_is_read_from_standard_input() {
    let home = TestHome::new();
    let run = home.echo("ask \"Why?\"\ndone");
    home.asked_by(&run);
    let id = home.show(&run)["run_id"]
        .as_str()
        .expect("a run has an id")
        .to_owned();
    let answered = home
        .adj_with_input(&["--json", "reply", &id, "-"], b"because\nof this\n")
        .data();
    assert_eq!(answered["requests"][0]["answer"], "because\nof this");
    home.ended(&run);
}

#[test]
fn wait_reports_by_its_exit_code() {
    let home = TestHome::new();
    let failing = home.echo("fail 3");
    let failed = home.adj(&["--json", "wait", &failing]);
    refused_with_data(&failed, "run_failed", 1);
    let asking = home.echo("ask \"Well?\"");
    let needs = home.adj(&["--json", "wait", &asking]);
    refused_with_data(&needs, "needs_input", 3);
    let stuck = home.adj(&["--json", "wait", "--until", "all", &asking]);
    refused_with_data(&stuck, "needs_input", 3);
    let hanging = home.echo("hang");
    let late = home.adj(&[
        "--json",
        "wait",
        "--until",
        "all",
        "--timeout",
        "1s",
        &asking,
        &hanging,
    ]);
    refused_with_data(&late, "timed_out", 124);
    home.fine(&["cancel", &asking, &hanging]);
    for run in [asking, hanging] {
        assert_eq!(home.ended(&run)["outcome"], "cancelled");
    }
}

/// Asserts that a wait with a special exit code still prints its data.
#[track_caller]
fn refused_with_data(ran: &Ran, code: &str, exit: i32) {
    assert_eq!(
        (ran.error_code().as_str(), ran.code),
        (code, exit),
        "{ran:?}"
    );
    assert!(ran.data().is_object(), "{ran:?}");
}

#[test]
fn failed_run_is_retried_as_a_new_one() {
    let home = TestHome::new();
    let run = home.echo("fail 3");
    assert_eq!(home.ended(&run)["exit_code"], 3);
    let again = home.json(&["retry", &run, "done better"]);
    assert_eq!(again["retry_of"], home.json(&["show", &run])["run_id"]);
    assert_eq!(
        home.ended(again["name"].as_str().expect("a name"))["outcome"],
        "succeeded"
    );
}

#[test]
fn unknown_and_invalid_ids_are_refused_alike() {
    let home = TestHome::new();
    home.echo("done");
    let long = "x".repeat(4096);
    for id in [
        "../../etc/passwd",
        "nobody",
        "",
        "Q99",
        "01999999-9999-7999-8999-999999999999",
        "a b",
        "ü",
        &long,
        "\u{202e}x",
        "-",
    ] {
        for command in ["show", "logs", "retry", "cancel"] {
            let ran = home.adj(&["--json", command, "--", id]);
            refused(&ran, "not_found", 5);
            assert!(
                ran.err.len() < 1_000,
                "what is repeated is short: {}",
                ran.err.len()
            );
        }
        let ran = home.adj(&["--json", "reply", "--", id, "x"]);
        refused(&ran, "not_found", 5);
    }
}

#[test]
fn ambiguous_prefix_lists_the_matches() {
    let home = TestHome::new();
    for name in ["twin-a", "twin-b"] {
        home.fine(&["run", "-a", "echo", "-n", name, "done"]);
    }
    let ran = home.adj(&["--json", "show", "twin"]);
    refused(&ran, "ambiguous", 5);
    assert!(
        ran.err.contains("twin-a") && ran.err.contains("twin-b"),
        "{}",
        ran.err
    );
}

#[test]
fn invalid_dispatch_starts_nothing() {
    let home = TestHome::with_config(
        "[agents.ghost]\nharness = \"plain\"\ncommand = [\"no-such-program-anywhere\"]\n\
         [agents.stone]\nharness = \"plain\"\ncommand = [\"/etc/passwd\"]\n",
    );
    let file = home.work().join("file");
    std::fs::write(&file, "x").expect("a file");
    let file = file.to_str().expect("UTF-8").to_owned();
    refused(
        &home.adj(&["--json", "run", "-a", "nobody", "x"]),
        "agent_not_found",
        127,
    );
    refused(
        &home.adj(&["--json", "run", "-a", "ghost", "x"]),
        "agent_not_found",
        127,
    );
    refused(
        &home.adj(&["--json", "run", "-a", "stone", "x"]),
        "agent_not_executable",
        126,
    );
    refused(
        &home.adj(&["--json", "run", "-a", "echo", "-C", "/no/such/dir", "x"]),
        "invalid",
        2,
    );
    refused(
        &home.adj(&["--json", "run", "-a", "echo", "-C", &file, "x"]),
        "invalid",
        2,
    );
    refused(
        &home.adj(&["--json", "run", "-a", "echo", "-n", "Bad Name", "x"]),
        "invalid",
        2,
    );
    refused(
        &home.adj(&["--json", "run", "-a", "echo", ""]),
        "invalid",
        2,
    );
    refused(
        &home.adj_with_input(&["--json", "run", "-a", "echo", "-"], b"\xff\xfe"),
        "invalid",
        2,
    );
    let huge = vec![b'x'; 10 * 1024 * 1024];
    refused(
        &home.adj_with_input(&["--json", "run", "-a", "echo", "-"], &huge),
        "invalid",
        2,
    );
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(0));
}

#[test]
fn oversized_answer_changes_nothing() {
    let home = TestHome::new();
    let run = home.echo("ask \"Well?\"\ndone");
    let number = home.asked_by(&run);
    let huge = vec![b'x'; 2 * 1024 * 1024];
    refused(
        &home.adj_with_input(&["--json", "reply", &number, "-"], &huge),
        "invalid",
        2,
    );
    refused(&home.adj(&["--json", "reply", &number, ""]), "usage", 2);
    assert_eq!(home.json(&["inbox"])[0]["status"], "pending");
    home.fine(&["reply", &number, "yes"]);
    assert_eq!(home.ended(&run)["outcome"], "succeeded");
}

#[test]
fn ended_run_rejects_cancel_and_messages() {
    let home = TestHome::new();
    let run = home.echo("done");
    home.ended(&run);
    refused(&home.adj(&["--json", "cancel", &run]), "run_finished", 7);
    refused(
        &home.adj(&["--json", "send", &run, "hello"]),
        "run_finished",
        7,
    );
}

#[test]
fn agent_text_cannot_forge_lines_or_control_the_terminal() {
    let home = TestHome::new();
    let prompt = "task\u{1b}[31m\u{202e}evil\n---\nsay \\e[2J\\e]0;owned\\ahi\nask \"a?\\nerror[x]: forged\\e[1A\"\ndone";
    let name = home.json(&["run", "-a", "echo", prompt])["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    home.asked_by(&name);
    for args in [
        vec!["ps"],
        vec!["inbox"],
        vec!["show", &name],
        vec!["logs", &name],
        vec!["events"],
        vec!["wait", &name],
    ] {
        let ran = home.adj(&args);
        for text in [&ran.out, &ran.err] {
            assert!(
                !text.contains(['\u{1b}', '\u{202e}', '\u{7}']),
                "{args:?}: {text:?}"
            );
            assert!(
                !text.lines().any(|line| line.starts_with("error[x]")),
                "{args:?}: {text}"
            );
        }
    }
    home.fine(&["cancel", &name]);
}

#[test]
fn colours_follow_the_flag_and_the_environment() {
    let home = TestHome::new();
    home.echo("done");
    let has_colour = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = home.command(args);
        command.envs(env.iter().copied());
        Ran::from(command.output().expect("adj can be started"))
            .out
            .contains('\u{1b}')
    };
    assert!(!has_colour(&["ps", "-a"], &[]), "a pipe gets none");
    assert!(has_colour(
        &["--color", "always", "ps", "-a"],
        &[("NO_COLOR", "1")]
    ));
    assert!(has_colour(&["ps", "-a"], &[("CLICOLOR_FORCE", "1")]));
    assert!(!has_colour(
        &["ps", "-a"],
        &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]
    ));
}

#[test]
fn commands_survive_a_killed_hub() {
    let home = TestHome::new();
    let run = home.echo("ask \"Well?\"\ndone");
    let number = home.asked_by(&run);
    kill(home.hub_pid());
    assert_eq!(home.json(&["inbox"])[0]["number"], number.as_str());
    home.fine(&["reply", &number, "yes"]);
    assert_eq!(home.ended(&run)["outcome"], "succeeded");
}

#[test]
fn stopping_starts_no_hub_and_ends_a_running_one() {
    let home = TestHome::new();
    assert!(home.fine(&["stop"]).err.contains("no hub"));
    assert!(home.processes().is_empty());
    home.fine(&["ps"]);
    assert!(home.fine(&["stop"]).out.contains("hub stopped"));
    assert!(home.fine(&["stop"]).err.contains("no hub"));
}

#[test]
fn second_hub_is_refused() {
    let home = TestHome::new();
    home.fine(&["ps"]);
    let pid = home.hub_pid();
    refused(&home.adj(&["--json", "serve"]), "conflict", 7);
    assert_eq!(home.hub_pid(), pid);
}

#[test]
fn unusable_home_is_an_error() {
    let home = TestHome::new();
    let file = home.work().join("file");
    std::fs::write(&file, "x").expect("a file");
    for dir in ["/proc/nowhere", file.to_str().expect("UTF-8")] {
        for args in [["--json", "ps"], ["--json", "inbox"]] {
            let mut command = home.command(&args);
            command.env("ADJ_HOME", dir);
            refused(
                &Ran::from(command.output().expect("adj can be started")),
                "unreachable",
                6,
            );
        }
    }
}

#[test]
fn log_output_for_agents_is_its_end_with_a_hint() {
    let home = TestHome::new();
    let run = home.echo(
        &(1..=100)
            .map(|n| format!("say line {n}\n"))
            .collect::<String>(),
    );
    home.ended(&run);
    let mut command = home.command(&["logs", &run]);
    command.env("CLAUDECODE", "1");
    let ran = Ran::from(command.output().expect("adj can be started"));
    assert_eq!(ran.out.lines().count(), 25, "{ran:?}");
    assert!(
        ran.out.contains("line 100") && ran.err.contains("adj logs -n 250"),
        "{ran:?}"
    );
    assert_eq!(home.fine(&["logs", &run]).out.lines().count(), 100);
    assert_eq!(
        home.fine(&["logs", "-n", "2", &run]).out,
        "line 99\nline 100\n"
    );
    assert_eq!(
        home.fine(&["logs", "--grep", "line 7", &run])
            .out
            .lines()
            .count(),
        11
    );
}

#[test]
fn clean_asks_for_confirmation() {
    let home = TestHome::new();
    let run = home.echo("done");
    home.ended(&run);
    refused(
        &home.adj(&["--json", "clean", "--older-than", "0s"]),
        "usage",
        2,
    );
    assert!(
        home.fine(&["clean", "--older-than", "0s", "--dry-run"])
            .out
            .contains("would remove 1")
    );
    assert!(
        home.fine(&["clean", "--older-than", "0s", "--yes"])
            .out
            .contains("removed 1")
    );
    refused(&home.adj(&["--json", "show", &run]), "not_found", 5);
}

#[test]
fn broken_configuration_is_reported_and_the_rest_works() {
    let home = TestHome::new();
    let run = home.echo("ask \"Well?\"\ndone");
    let number = home.asked_by(&run);
    std::fs::write(home.home.dir.join("config.toml"), "colour = 1\n")
        .expect("the configuration can be written");
    let ran = home.adj(&["--json", "run", "-a", "echo", "x"]);
    assert!(ran.code != 0 && ran.err.contains("config.toml"), "{ran:?}");
    let doctor = home.adj(&["doctor"]);
    assert_eq!(
        (doctor.code, doctor.out.matches('✗').count()),
        (1, 1),
        "only the configuration is broken: {doctor:?}"
    );
    assert!(
        doctor.out.contains("✗ config") && !doctor.out.contains("at most 0"),
        "{doctor:?}"
    );
    // From a shell with another configuration, the hub's configuration is reported as broken.
    let elsewhere = home
        .command(&["doctor"])
        .env("ADJ_CONFIG", home.work().join("none.toml"))
        .output()
        .expect("adj can be started");
    let told = String::from_utf8_lossy(&elsewhere.stdout);
    assert!(
        elsewhere.status.code() == Some(1)
            && told.contains("✓ config")
            && told.contains("✗ hub")
            && told.contains("unknown key"),
        "{told}"
    );
    home.fine(&["reply", &number, "yes"]);
    assert_eq!(home.ended(&run)["outcome"], "succeeded");
}

#[test]
fn home_path_of_200_bytes_works() {
    let home = TestHome::with_path_of(200);
    assert!(
        home.fine(&["run", "-a", "echo", "-w", "done far away"])
            .out
            .contains("far away")
    );
    home.fine(&["stop"]);
}

#[test]
fn interrupted_demo_leaves_nothing() {
    let home = TestHome::new();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        let mut command = home.command(&["--json", "demo", "--no-input"]);
        let mut demo = command
            .env("TMPDIR", home.work())
            .stdout(Stdio::null())
            .spawn()
            .expect("adj can be started");
        let hub_is_there = || {
            std::fs::read_dir(home.work())
                .ok()?
                .flatten()
                .any(|entry| entry.path().join("hub.lock").exists())
                .then_some(())
        };
        home.until("its hub is there", hub_is_there);
        let pid = rustix::process::Pid::from_raw(demo.id().cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("the signal is sent");
        assert_eq!(demo.wait().expect("it ends").code(), Some(130));
        assert_eq!(
            std::fs::read_dir(home.work())
                .expect("the directory")
                .count(),
            0,
            "its home is removed"
        );
    }
}

#[test]
fn demo_shows_everything_and_leaves_nothing() {
    let home = TestHome::new();
    // In a repository of the user's.
    let repository = home.work().with_file_name("mine");
    std::fs::create_dir(&repository).expect("a directory");
    crate::changes::git(&repository, &["init", "-q"]);
    crate::changes::git(
        &repository,
        &["commit", "-q", "--allow-empty", "-m", "first"],
    );
    let mut command = home.command(&["--json", "demo", "--no-input"]);
    command.env("TMPDIR", home.work()).current_dir(&repository);
    let ran = Ran::from(command.output().expect("adj can be started"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let data = ran.data();
    assert_eq!(data["runs"].as_array().map(Vec::len), Some(8));
    let mut spoke: Vec<&str> = data["chat"]
        .as_array()
        .expect("a chat")
        .iter()
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    spoke.sort_unstable();
    assert_eq!(
        spoke,
        ["person", "reviewer", "reviewer", "run porter", "run porter"]
    );
    assert_eq!(
        (&data["hubs_killed"], &data["answers"]),
        (&1.into(), &2.into())
    );
    assert!(data["elapsed_ms"].as_u64().is_some_and(|ms| ms < 30_000));
    assert_eq!(
        std::fs::read_dir(home.work())
            .expect("the directory")
            .count(),
        0,
        "its home is removed"
    );
    assert!(
        !home.home.database().exists(),
        "the user's home was not touched"
    );
    let refs = std::process::Command::new("git")
        .arg("for-each-ref")
        .arg("refs/adjutant")
        .current_dir(&repository)
        .output()
        .expect("git");
    assert!(refs.status.success() && refs.stdout.is_empty(), "{refs:?}");
}

/// A script that holds a lock, or reads a pipe to its end, would otherwise wait for the hub.
#[test]
#[expect(
    unsafe_code,
    reason = "between fork and exec only system calls are made"
)]
fn hub_keeps_no_descriptor_of_the_command_that_starts_it() {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
    use std::os::fd::IntoRawFd;
    use std::os::unix::process::CommandExt;

    let home = TestHome::new();
    let path = home.work().join("lock");
    std::fs::write(&path, "").expect("a file");
    let mut command = home.command(&["run", "--detach", "-a", "echo", "hang"]);
    let held = path.clone();
    let hold = move || {
        // Not close-on-exec: the command inherits it.
        let lock = open(&held, OFlags::RDWR, Mode::empty())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let _ = lock.into_raw_fd();
        Ok(())
    };
    // SAFETY: the closure only opens and locks a file.
    unsafe { command.pre_exec(hold) };
    assert!(command.status().expect("adj starts").success());
    let lock = std::fs::File::open(&path).expect("the file");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("no process holds the lock");
}

#[test]
fn text_of_several_words_needs_no_quotes() {
    let home = TestHome::new();
    assert_eq!(
        home.ok(&["run", "-w", "-a", "echo", "say", "hello", "world"]),
        "hello world\n"
    );
    home.start("ann", "hang");
    assert_eq!(
        home.json(&["send", "ann", "look", "at", "this"])["text"],
        "look at this"
    );
    home.ok(&["cancel", "ann"]);
    home.start("bob", "approve \"delete it\"\ndone");
    home.until_status("bob", "waiting_parent_reply");
    assert!(
        home.ok(&["deny", "bob", "not", "on", "a", "Friday"])
            .contains("not on a Friday")
    );
    home.finished("bob");
    let retried = home.ok(&["retry", "bob", "say", "again"]);
    assert_eq!(home.finished(retried.trim())["result"], "again");
}

#[test]
fn removed_run_frees_its_name() {
    let home = TestHome::new();
    for name in ["one", "two", "kept"] {
        home.start(name, "say x");
        home.finished(name);
    }
    home.start("live", "hang");
    home.until_status("live", "running");
    let refused = home.adj(&["rm", "one", "live"]);
    assert!(
        refused.code != 0 && refused.err.contains("cancel it first"),
        "{refused:?}"
    );
    assert_eq!(home.adj(&["rm", "nobody"]).code, 5);
    assert_eq!(home.adj(&["rm"]).code, 2);
    assert!(
        home.ok(&["rm", "one", "--dry-run"])
            .contains("would remove 1 run")
    );
    assert_eq!(
        home.show("one")["state"],
        "finished",
        "a refused call and a preview change nothing"
    );
    assert!(
        home.ok(&["rm", "one", "two", "one"])
            .contains("removed 2 runs")
    );
    assert_eq!(home.adj(&["show", "one"]).code, 5);
    assert_eq!(home.show("kept")["state"], "finished");
    home.start("one", "say again");
    assert_eq!(home.finished("one")["result"], "again");
    home.ok(&["cancel", "live"]);
}

#[test]
fn all_live_runs_can_be_cancelled() {
    let home = TestHome::new();
    for name in ["a", "b"] {
        home.start(name, "hang");
        home.until_status(name, "running");
    }
    home.start("ended", "say x");
    home.finished("ended");
    let unconfirmed = home.adj(&["cancel", "--all"]);
    assert!(
        unconfirmed.code == 2
            && unconfirmed.err.contains("this cancels 2 runs: ")
            && unconfirmed.err.contains("--yes"),
        "{unconfirmed:?}"
    );
    assert_eq!(home.show("a")["state"], "running");
    assert_eq!(home.adj(&["cancel", "--all", "a"]).code, 2);
    home.ok(&["cancel", "--all", "--yes"]);
    for name in ["a", "b"] {
        assert_eq!(home.finished(name)["outcome"], "cancelled");
    }
    assert_eq!(home.show("ended")["outcome"], "succeeded");
    assert!(
        home.adj(&["cancel", "--all", "--yes"])
            .err
            .contains("nothing cancelled")
    );
}

#[test]
fn more_runs_than_one_call_lists_can_be_cancelled() {
    // A call lists at most a thousand.
    const RUNS: usize = 1_050;
    let home = TestHome::with_config("[pools.gpu]\nrunners = true\n");
    home.start("ended", "say x");
    home.finished("ended");
    let cwd = home.work().display().to_string();
    let queued = Dispatch {
        agent: "echo".into(),
        prompt: "say x\n".into(),
        pool: Some("gpu".into()),
        cwd,
        ..Dispatch::default()
    };
    for n in 0..RUNS {
        home.call(&queued, &n.to_string()).expect("queued");
    }
    let unconfirmed = home.adj(&["cancel", "--all"]);
    assert!(
        unconfirmed
            .err
            .contains(&format!("this cancels {RUNS} runs: ")),
        "{unconfirmed:?}"
    );
    let cancelled = home.ok(&["cancel", "--all", "--yes"]);
    assert_eq!(cancelled.lines().count(), RUNS);
    assert!(home.adj(&["ps", "-q"]).out.is_empty());
}

#[test]
fn adj_alone_shows_what_needs_the_person() {
    let home = TestHome::new();
    assert!(home.ok(&[]).contains("adj demo"));
    home.start("ann", "ask \"Which colour?\"\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let shown = home.ok(&[]);
    assert!(
        shown.contains("Q1") && shown.contains("Which colour?") && !shown.contains("adj demo"),
        "{shown}"
    );
    home.ok(&["cancel", "ann"]);
}

#[test]
fn topics_are_listed_and_printed() {
    let home = TestHome::new();
    let topics = home.ok(&["help", "topics"]);
    for topic in [
        "configuration",
        "environment",
        "echo",
        "exit-codes",
        "workspaces",
    ] {
        assert!(topics.contains(&format!("  {topic} ")), "{topics}");
        assert!(home.ok(&["help", topic]).lines().count() > 3, "{topic}");
    }
    assert!(home.ok(&["help", "environment"]).contains("ADJ_HOME"));
    let unknown = home.adj(&["help", "weather"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("adj help topics"),
        "{unknown:?}"
    );
    assert!(!home.home.database().exists(), "nothing was made");
}
