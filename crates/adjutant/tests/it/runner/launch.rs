//! Runners that the hub launches on demand, here on the same machine.

use crate::support::{TestHome, kill};
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// A hub whose pool launches runners, and the home of these.
pub(super) struct Launching {
    pub hub: TestHome,
    pub there: TestHome,
}

/// Returns a command in the configuration's syntax.
pub(super) fn list(argv: &[&str]) -> String {
    serde_json::to_string(argv).expect("a list")
}

impl Launching {
    /// `argv`: the command, which gets the home of the runners. `more`: further settings of the
    /// pool.
    pub fn new(argv: impl FnOnce(&TestHome) -> Vec<String>, more: &str) -> Self {
        Self::with_failpoint(argv, more, None)
    }

    fn with_failpoint(
        argv: impl FnOnce(&TestHome) -> Vec<String>,
        more: &str,
        failpoint: Option<&str>,
    ) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port")
            .port();
        let there = TestHome::new();
        let argv = argv(&there);
        let argv = list(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        let config = format!(
            "listen = \"127.0.0.1:{port}\"\nrunner_lease = \"30s\"\n[pools.gpu]\nslots = 4\nrunners = true\nlaunch = {argv}\n{more}\n"
        );
        let made = Self {
            hub: TestHome::with_config(&config),
            there,
        };
        if let Some(name) = failpoint {
            // The first command starts the hub, which keeps the variable.
            let mut command = made.hub.command(&["ps"]);
            command.env(
                "ADJ_FAILPOINT",
                format!("{name}={}", made.reached(name).display()),
            );
            assert!(command.status().expect("adj starts").success());
        }
        made
    }

    fn reached(&self, failpoint: &str) -> PathBuf {
        self.hub.work().join(failpoint)
    }

    pub fn start(&self, name: &str, script: &str) {
        self.hub.ok(&[
            "run",
            "--detach",
            "--agent",
            "echo",
            "--pool",
            "gpu",
            "--name",
            name,
            &format!("{script}\n"),
        ]);
    }

    /// Returns the names of the tokens in use.
    pub fn tokens(&self) -> Vec<String> {
        let list = self.hub.json(&["token", "list"]);
        let tokens = list["tokens"].as_array().expect("a list").iter();
        tokens
            .map(|token| token["name"].as_str().expect("a name").to_owned())
            .collect()
    }

    fn launch(&self) -> Value {
        let pools = self.hub.json(&["pools"]);
        let pools = pools["pools"].as_array().expect("a list").clone();
        pools
            .into_iter()
            .find(|pool| pool["name"] == "gpu")
            .expect("the pool")["launch"]
            .clone()
    }

    pub fn until_no_token(&self) {
        self.hub
            .until("the token of the launched runner is revoked", || {
                self.tokens().is_empty().then_some(())
            });
    }

    fn kill_hub(&self) {
        let pid = self.hub.hub_pid();
        kill(pid);
        self.hub.until("the hub is dead", || {
            (!TestHome::is_alive(pid)).then_some(())
        });
    }

    fn launches(&self) -> usize {
        std::fs::read_to_string(self.there.work().join("launches"))
            .unwrap_or_default()
            .lines()
            .count()
    }
}

/// Returns the command that starts a runner on this machine.
pub(super) fn runner(there: &TestHome, idle_exit: &str) -> Vec<String> {
    let home = format!("ADJ_HOME={}", there.home.dir.display());
    let adj = env!("CARGO_BIN_EXE_adj");
    // It gets none of the hub's variables.
    [
        "env",
        &home,
        "ADJ_FAILPOINT=pressure=/dev/null",
        adj,
        "runner",
        "--join",
        "{url}",
        "--token-file",
        "-",
        "--pool",
        "{pool}",
        "--slots",
        "2",
        "--idle-exit",
        idle_exit,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Returns a command that notes each launch and then executes a script.
fn noting(there: &TestHome, script: &str) -> Vec<String> {
    let script = format!(
        "echo \"$0\" >> {}/launches; {script}",
        there.work().display()
    );
    ["/bin/sh", "-c", &script, "{name}"]
        .map(str::to_owned)
        .to_vec()
}

fn is_executed_by(path: &Path, argv: &[String]) -> String {
    let script = argv
        .iter()
        .map(|arg| format!("'{arg}'"))
        .collect::<Vec<_>>()
        .join(" ");
    format!("exec {script} 2>> {}", path.display())
}

#[test]
fn runner_is_launched_when_a_run_waits_and_ends_when_idle() {
    let pair = Launching::new(|there| runner(there, "1s"), "");
    assert!(pair.tokens().is_empty(), "nothing waits");
    pair.start("one", "done yes");
    pair.start("two", "done yes");
    for name in ["one", "two"] {
        assert_eq!(pair.hub.finished(name)["outcome"], "succeeded");
    }
    pair.until_no_token();
    let all = pair.hub.json(&["token", "list", "--all"]);
    assert_eq!(
        all["tokens"].as_array().map(Vec::len),
        Some(1),
        "one runner has two slots: {all}"
    );
    assert_eq!(
        (
            all["tokens"][0]["name"].as_str(),
            all["tokens"][0]["role"].as_str()
        ),
        (Some("launched-gpu-1"), Some("runner"))
    );
    pair.hub.until("its command has ended", || {
        (!std::fs::read_to_string(pair.hub.home.hub_log())
            .ok()?
            .contains("is killed"))
        .then_some(())
    });
    pair.start("three", "done yes");
    assert_eq!(
        pair.hub.finished("three")["outcome"],
        "succeeded",
        "the next one is launched"
    );
}

#[test]
fn no_more_runners_are_launched_than_may_be() {
    let pair = Launching::new(|there| noting(there, "exec sleep 600"), "launch_max = 2");
    for n in 0..4 {
        pair.start(&format!("r{n}"), "done yes");
    }
    pair.hub
        .until("two are launched", || (pair.launches() == 2).then_some(()));
    pair.start("r4", "done yes");
    let shown = pair.hub.show("r0");
    assert!(
        shown["queue"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("2 runners are being launched")),
        "{shown}"
    );
    assert_eq!(pair.tokens(), ["launched-gpu-2", "launched-gpu-1"]);
    assert_eq!(pair.launches(), 2);
}

#[test]
fn failed_launch_is_shown_and_repeated_after_a_pause() {
    let pair = Launching::new(
        |there| {
            noting(
                there,
                "cat > /dev/null; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo no such machine >&2; exit 7",
            )
        },
        "",
    );
    pair.start("one", "done yes");
    let why = pair.hub.until("the failure is shown", || {
        let shown = pair.hub.show("one")["queue"]["why"].as_str()?.to_owned();
        shown.contains("the last launch failed").then_some(shown)
    });
    assert!(
        why.contains("/bin/sh ended with exit code 7") && why.len() < 600,
        "{why}"
    );
    let launch = pair.launch();
    assert!(
        launch["next_in_s"]
            .as_u64()
            .is_some_and(|next| (1..=5).contains(&next)),
        "{launch}"
    );
    assert!(
        pair.tokens().is_empty(),
        "a runner that did not come keeps no token"
    );
    assert_eq!(pair.launches(), 1, "no storm");
    pair.hub
        .until("it is repeated", || (pair.launches() == 2).then_some(()));
    pair.hub.until("the pause grows", || {
        (pair.launch()["next_in_s"].as_u64()? > 5).then_some(())
    });
}

#[test]
fn command_of_a_runner_that_does_not_join_in_time_is_ended() {
    let pair = Launching::new(
        |there| {
            noting(
                there,
                "sleep 600 & echo $! > $ADJ_PIDS; wait"
                    .replace("$ADJ_PIDS", &there.work().join("pid").display().to_string())
                    .as_str(),
            )
        },
        "launch_timeout = \"1s\"",
    );
    pair.start("one", "done yes");
    let problem = pair.hub.until("the launch has failed", || {
        pair.launch()["problem"].as_str().map(str::to_owned)
    });
    assert_eq!(problem, "launched-gpu-1 has not joined within 1s");
    let pid = std::fs::read_to_string(pair.there.work().join("pid"))
        .expect("a pid")
        .trim()
        .parse()
        .expect("a number");
    pair.hub.until("its command is ended", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
}

#[test]
fn next_hub_ends_the_command_of_a_runner_that_does_not_join() {
    let pair = Launching::new(
        |there| {
            noting(
                there,
                &format!(
                    "sleep 600 & echo $! > {0}/pid.new; mv {0}/pid.new {0}/pid; wait",
                    there.work().display()
                ),
            )
        },
        "launch_timeout = \"3s\"",
    );
    pair.start("one", "done yes");
    let read_pid = || {
        std::fs::read_to_string(pair.there.work().join("pid"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let pid: u32 = pair.hub.until("the command works", read_pid);
    pair.kill_hub();
    assert!(TestHome::is_alive(pid));
    pair.hub.ok(&["ps"]);
    pair.hub.until("its command is ended", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
    let log = || std::fs::read_to_string(pair.hub.home.hub_log()).expect("a log");
    pair.hub.until("it is logged", || {
        log()
            .contains("the command of an earlier launch still ran")
            .then_some(())
    });
}

#[test]
fn missing_program_is_reported() {
    let pair = Launching::new(
        |_| vec!["no-such-cloud".to_owned(), "{name}".to_owned()],
        "",
    );
    pair.start("one", "done yes");
    let problem = pair.hub.until("it is reported", || {
        pair.launch()["problem"].as_str().map(str::to_owned)
    });
    assert_eq!(problem, "no-such-cloud is not on the hub's PATH");
}

#[test]
fn killed_hub_launches_no_runner_twice() {
    // After the first one, the next hub waits in vain for the time that a launch may take.
    for (failpoint, timeout) in [
        ("launch.before_command", "12s"),
        ("launch.after_command", "60s"),
    ] {
        let argv = |there: &TestHome| {
            let log = there.work().join("runner.log");
            // A runner that gets no order in this time ends, and another one is launched.
            noting(there, &is_executed_by(&log, &runner(there, "5s")))
        };
        let pair = Launching::with_failpoint(
            argv,
            &format!("launch_timeout = {timeout:?}"),
            Some(failpoint),
        );
        pair.start("one", "done yes");
        pair.hub.until("the hub dies", || {
            pair.reached(failpoint).exists().then_some(())
        });
        // The next command starts another hub, which counts the token.
        pair.hub.ok(&["ps"]);
        let finished = pair.hub.finished("one");
        assert_eq!(finished["outcome"], "succeeded", "{failpoint}");
        assert_eq!(pair.launches(), 1, "{failpoint}");
        pair.until_no_token();
    }
}

#[test]
fn launched_runner_outlives_its_hub() {
    let pair = Launching::new(
        |there| {
            noting(
                there,
                &is_executed_by(&there.work().join("runner.log"), &runner(there, "5s")),
            )
        },
        "",
    );
    pair.start("one", "ask \"Go on?\"\ndone yes");
    pair.hub.until_status("one", "waiting_parent_reply");
    pair.kill_hub();
    pair.hub.ok(&["ps"]);
    pair.hub.ok(&["reply", "one", "yes"]);
    assert_eq!(pair.hub.finished("one")["outcome"], "succeeded");
    pair.start("two", "done yes");
    assert_eq!(pair.hub.finished("two")["outcome"], "succeeded");
    assert_eq!(
        (pair.launches(), pair.tokens()),
        (1, vec!["launched-gpu-1".to_owned()]),
        "the runner was used again"
    );
    pair.until_no_token();
}

#[test]
fn unusable_launchers_are_refused() {
    let home = TestHome::with_config(
        "[pools.gpu]\nrunners = true\nlaunch = [\"ssh\", \"{host}\", \"{token}\"]\n[pools.here]\nlaunch = [\"x\"]\n",
    );
    let checked = home.adj(&["config", "show"]);
    assert!(checked.code != 0, "{checked:?}");
    for expected in [
        "pools.gpu.launch: unknown placeholder {host}: use {name}, {pool}, {url}",
        "pools.here.launch: needs runners = true",
    ] {
        assert!(checked.err.contains(expected), "{checked:?}");
    }
    let refused = TestHome::new().adj(&["token", "new", "launched-gpu-1", "--role", "runner"]);
    assert!(
        refused.code != 0 && refused.err.contains("names that begin with launched-"),
        "{refused:?}"
    );
}
