//! Runs of hubs that share a store: they start on runners, and continue while the leader changes.

use super::Group;
use crate::support::{TestHome, kill};
use adjutant_api::view::ReadResult;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A runner that knows both hubs.
pub(super) struct Runner {
    pub home: TestHome,
    process: Child,
}

impl Runner {
    pub fn start(group: &Group) -> Self {
        Self::start_with(group, |_| {})
    }

    pub fn start_with(group: &Group, change: impl FnOnce(&mut Command)) -> Self {
        let home = TestHome::new();
        let token = group.hubs[0].json(&["token", "new", "machine", "--role", "runner"]);
        let file = home.work().join("token");
        std::fs::write(&file, token["token"].as_str().expect("a token")).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("private");
        let file = file.display().to_string();
        // The first address is that of the hub that does not lead.
        let args = [
            "runner",
            "--join",
            &group.urls[1],
            "--join",
            &group.urls[0],
            "--token-file",
            &file,
            "--slots",
            "2",
        ];
        let mut command: Command = home.command(&args);
        change(&mut command);
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("a runner");
        Self { home, process }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        kill(self.process.id());
        self.process.wait().expect("it ends");
    }
}

#[test]
fn run_on_a_runner_continues_while_the_leader_changes() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let runner = Runner::start(&group);
    second.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "far",
        "ask \"Which?\"\nask \"And now?\"\ndone yes\n",
    ]);
    second.until_status("far", "waiting_parent_reply");
    let leads = group.hub(0).pid;
    kill(leads);
    first.until("the hub is dead", || {
        (!TestHome::is_alive(leads)).then_some(())
    });
    second.ok(&["reply", "far", "this"]);
    second.until("the second question is open", || {
        (second.inbox(&[])[0]["question"] == "And now?").then_some(())
    });
    group.until_leads(1);
    // And back.
    group.until_standby(0);
    second.ok(&["stop"]);
    first.ok(&["reply", "far", "that"]);
    let view = first.finished("far");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&serde_json::json!("succeeded"), &serde_json::json!(1)),
        "{view}"
    );
    assert_eq!(
        first.inbox(&["--all"]).as_array().map(Vec::len),
        Some(2),
        "no question was asked twice"
    );
    let log = std::fs::read_to_string(
        runner
            .home
            .home
            .logs_dir()
            .join(format!("{}.1.log", first.run_id("far"))),
    )
    .unwrap_or_default();
    assert!(
        log.is_empty() || log.matches("answer: ").count() == 2,
        "{log}"
    );
}

#[test]
fn wait_continues_when_the_leader_is_killed() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let _runner = Runner::start(&group);
    second.ok(&[
        "run", "--detach", "--agent", "echo", "--name", "far", "hang\n",
    ]);
    second.until_status("far", "running");
    let waiting = second
        .command(&["wait", "far"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("adj starts");
    let failover_max = group.failover_max();
    let leads = group.hub(0).pid;
    kill(leads);
    first.until("the hub is dead", || {
        (!TestHome::is_alive(leads)).then_some(())
    });
    let began = Instant::now();
    second.ok(&["cancel", "far"]);
    assert!(began.elapsed() < failover_max, "{:?}", began.elapsed());
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(
        waited.status.code() == Some(1)
            && String::from_utf8_lossy(&waited.stdout).contains("cancelled"),
        "{waited:?}"
    );
    group.until_leads(1);
    // The killed one is a standby hub when it is started again.
    group.until_standby(0);
}

#[test]
fn variables_and_credentials_stay_where_they_are() {
    let Some(group) = Group::new() else { return };
    let home = &group.hubs[0];
    let run = [
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "secret",
        "print-env\ndone yes\n",
    ];
    let refused = home.adj(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--env",
        "A=b",
        "done yes\n",
    ]);
    assert!(
        refused.code != 0 && refused.err.contains("environment of the runner"),
        "{refused:?}"
    );
    let sent = home
        .command(&run)
        .env("ANTHROPIC_API_KEY", "canary-key")
        .output()
        .expect("adj starts");
    assert!(sent.status.success(), "{sent:?}");
    let kept = std::fs::read_dir(home.home.credentials_dir())
        .map(|entries| entries.count())
        .unwrap_or_default();
    assert_eq!(kept, 0, "no file with credentials");
    let dump = group.server.sql(
        "hub",
        "SELECT count(*) FROM run_inputs WHERE spec LIKE '%canary-key%'",
    );
    assert_eq!(dump, "0");
}

#[test]
fn next_leader_reads_logs_that_the_first_has_moved() {
    let store = tempfile::Builder::new()
        .prefix("adj-logs-")
        .tempdir()
        .expect("a directory");
    let Some(group) = Group::without_hubs(&crate::log_store::setting(store.path())) else {
        return;
    };
    let [first, second] = &group.hubs;
    first.ok(&["ps"]);
    group.until_standby(1);
    let runner = Runner::start(&group);
    second.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "far",
        "say hello\nline 20000\ndone yes\n",
    ]);
    assert_eq!(second.finished("far")["outcome"], "succeeded");
    crate::log_store::until_moved(first, "far", 1);
    drop(runner);
    let (log, leads) = (second.log("far"), group.hub(0).pid);
    kill(leads);
    first.until("the hub is dead", || {
        (!TestHome::is_alive(leads)).then_some(())
    });
    assert!(log.contains("hello") && second.log("far") == log, "{log}");
    group.until_leads(1);
    let result = second
        .call(
            &ReadResult {
                run: "far".to_owned(),
            },
            "",
        )
        .expect("a result");
    assert!(
        !result.is_cut && result.result.len() >= 20_000,
        "{} bytes",
        result.result.len()
    );
    let id = second.run_id("far");
    second.ok(&["rm", "far"]);
    assert!(!store.path().join(id).exists());
}
