//! What a fenced run can write and read, and how it is shown.

use super::{SHELL, assert_said, attempt, fenced, start, text};
use crate::support::TestHome;
use adjutant_api::view::ReadEvents;
use adjutant_core::EventKind;
use serde_json::json;

#[test]
fn fenced_run_writes_only_its_workspace_and_temporary_files() {
    let home = TestHome::with_config(SHELL);
    let outside = home.work().parent().expect("a directory").join("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::write(outside.join("readable"), "x").expect("a file");
    let at = text(&outside);
    let script = [
        attempt("inside", "echo x > in.txt && mkdir -p a/b && rm -r a"),
        attempt("outside", &format!("echo x > {at}/new")),
        attempt("existing outside", &format!("echo y >> {at}/readable")),
        attempt("read outside", &format!("cat {at}/readable")),
        attempt("root", "touch /new || touch /usr/new || touch /etc/new"),
        attempt(
            "temporary",
            "echo x > /tmp/mine && echo x > /var/tmp/mine && cat /tmp/mine && echo x > ${TMPDIR:-/tmp}/y",
        ),
        attempt("shared memory", "echo x > /dev/shm/mine"),
        attempt("null", "echo x > /dev/null && head -c 3 /dev/urandom"),
        attempt("terminal", "script -qec 'echo x' /dev/null"),
        attempt("child", &format!("setsid sh -c 'echo x > {at}/child'")),
        attempt("child inside", "setsid sh -c 'echo x > child.txt'"),
    ];
    let (view, log) = fenced(&home, "tries", &script.concat());
    assert_said(
        &log,
        &[
            ("inside", true),
            ("outside", false),
            ("existing outside", false),
            ("read outside", true),
            ("root", false),
            ("temporary", true),
            ("shared memory", true),
            ("null", true),
            ("terminal", true),
            ("child", false),
            ("child inside", true),
        ],
    );
    assert_eq!(
        std::fs::read_to_string(home.work().join("in.txt")).expect("it was written"),
        "x\n"
    );
    assert_eq!(
        std::fs::read_to_string(outside.join("readable")).expect("it is there"),
        "x"
    );
    assert!(
        !std::path::Path::new("/tmp/mine").exists(),
        "its temporary files are its own"
    );
    let expected = json!({ "asked": "workspace", "enforced": "mount_namespace", "writable": [text(&home.work().canonicalize().expect("there"))] });
    assert_eq!(view["fence"], expected, "{view}");
    assert_eq!(view["containment"], "pid_namespace");
    let shown = home.ok(&["show", "tries"]);
    assert!(
        shown.contains("fence        workspace, enforced by a mount namespace: can write only "),
        "{shown}"
    );
    let left = home.attempt_dir("tries").fence();
    home.until("its temporary files are gone", || {
        (!left.exists()).then_some(())
    });
}

#[test]
fn home_is_hidden_except_for_the_runs_own_files() {
    let home = TestHome::with_config(SHELL);
    home.start("other", "ask \"Wait?\"");
    home.until_status("other", "waiting_parent_reply");
    let token = text(&home.attempt_dir("other").worker_access());
    let at = text(&home.home.dir);
    let script = [
        attempt("store", &format!("cat {at}/adj.db")),
        attempt("settings", &format!("cat {at}/config.toml")),
        attempt("credentials", &format!("ls {at}/credentials")),
        attempt("another token", &format!("cat {token}")),
        attempt("own token", "cat $ADJ_WORKER"),
        attempt("own facts", "cat $(dirname $ADJ_WORKER)/facts.jsonl"),
        attempt("new file", &format!("echo x > {at}/new")),
        attempt(
            "exchanged token",
            "echo x > $ADJ_WORKER || rm $ADJ_WORKER || mv $ADJ_WORKER /tmp",
        ),
    ];
    let (_, log) = fenced(&home, "reads", &script.concat());
    let expected = [
        ("store", false),
        ("settings", false),
        ("credentials", false),
        ("another token", false),
        ("own token", true),
        ("own facts", false),
        ("new file", false),
        ("exchanged token", false),
    ];
    assert_said(&log, &expected);
}

#[test]
fn fenced_run_asks_and_reports_through_its_supervisor() {
    let home = TestHome::new();
    home.ok(&[
        "run",
        "--detach",
        "-a",
        "echo",
        "-n",
        "asks",
        "--fence",
        "workspace",
        "ask \"Which?\"\nwrite said.txt done\ndone",
    ]);
    home.until_status("asks", "waiting_parent_reply");
    home.ok(&["reply", "asks", "red"]);
    let view = home.finished("asks");
    assert_eq!(
        (&view["outcome"], &view["fence"]["enforced"]),
        (&json!("succeeded"), &json!("mount_namespace")),
        "{view}"
    );
    assert!(home.work().join("said.txt").exists());
}

#[test]
fn adj_in_a_fenced_shell_reaches_the_supervisor() {
    let home = TestHome::with_config(SHELL);
    let adj = env!("CARGO_BIN_EXE_adj");
    let (view, log) = fenced(
        &home,
        "calls",
        &format!("{adj} show calls && echo shown\n{adj} run -a echo x || echo refused"),
    );
    assert!(
        log.contains("calls") && log.contains("shown") && log.contains("refused"),
        "{view}\n{log}"
    );
}

#[test]
fn directory_around_the_users_home_and_a_worktree_are_refused() {
    let home = TestHome::with_config(SHELL);
    let user_home = text(home.work().parent().expect("a directory"));
    let refused = home.adj(&[
        "run",
        "-a",
        "sh",
        "--fence",
        "workspace",
        "-C",
        &user_home,
        "do true",
    ]);
    assert!(
        refused.code == 2 && refused.err.contains("contains your home directory"),
        "{refused:?}"
    );
    let refused = home.adj(&[
        "run",
        "-a",
        "sh",
        "--fence",
        "workspace",
        "--isolation",
        "worktree",
        "do true",
    ]);
    assert!(
        refused.code == 2 && refused.err.contains("isolation = \"clone\""),
        "{refused:?}"
    );
}

#[test]
fn acceptance_command_runs_behind_the_fence() {
    let home = TestHome::with_config(SHELL);
    let outside = home
        .work()
        .parent()
        .expect("a directory")
        .join("outside.txt");
    let accept = format!(
        "sh -c 'echo x > inside.txt; echo x > {}; test -s inside.txt'",
        text(&outside)
    );
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "accepted",
        "--fence",
        "workspace",
        "--accept",
        &accept,
        "do true",
    ]);
    let view = home.finished("accepted");
    assert_eq!(view["acceptance"]["passed"], true, "{view}");
    assert!(!outside.exists());
}

#[test]
fn unsupported_fence_refuses_the_run_unless_best_effort() {
    let home = TestHome::with_config(&format!("containment = \"subreaper\"\n{SHELL}"));
    let refused = home.adj(&[
        "run",
        "-a",
        "sh",
        "--fence",
        "workspace",
        "do touch ran.txt",
    ]);
    assert!(
        refused.code == 2
            && refused.err.contains("error[no_fence]")
            && refused.err.contains("PID namespace"),
        "{refused:?}"
    );
    assert_eq!(
        home.json(&["ps", "-a"]),
        json!([]),
        "nothing was dispatched"
    );
    start(&home, "lenient", "touch ran.txt", "best-effort");
    let view = home.finished("lenient");
    assert_eq!(
        (&view["outcome"], &view["fence"]["enforced"]),
        (&json!("succeeded"), &json!("landlock")),
        "{view}"
    );
    assert!(
        view["fence"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("subreaper")),
        "{view}"
    );
    let user_home = text(home.work().parent().expect("a directory"));
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "around",
        "--fence",
        "best-effort",
        "-C",
        &user_home,
        "do true",
    ]);
    let view = home.finished("around");
    assert_eq!(
        (&view["outcome"], &view["fence"]["enforced"]),
        (&json!("succeeded"), &json!("none")),
        "{view}"
    );
    let shown = home.ok(&["show", "around"]);
    assert!(
        shown.contains("fence        NONE, although best-effort was requested: "),
        "{shown}"
    );
    let refused = home.adj(&["run", "-a", "sh", "--fence", "high", "x"]);
    assert!(
        refused.code == 2 && refused.err.contains("none, workspace, best-effort"),
        "{refused:?}"
    );
}

#[test]
fn configuration_sets_the_fence_and_writable_paths() {
    let config = format!(
        "fence = \"workspace\"\n{SHELL}fence_write = [\"~/cache\"]\n[agents.free]\nharness = \"echo\"\nfence = \"none\"\n"
    );
    let home = TestHome::with_config(&config);
    let cache = home.work().parent().expect("a directory").join("cache");
    std::fs::create_dir(&cache).expect("a directory");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "configured",
        "do echo x > ~/cache/new; echo x > ~/other",
    ]);
    let view = home.finished("configured");
    assert_eq!(view["fence"]["asked"], "workspace", "{view}");
    assert!(cache.join("new").exists() && !cache.with_file_name("other").exists());
    home.start_agent("free", "unfenced", "say x");
    assert_eq!(home.finished("unfenced")["fence"], json!(null));
}

#[test]
fn commit_works_and_the_repository_is_the_workspace() {
    let home = crate::changes::repository();
    std::fs::create_dir(home.work().join("below")).expect("a directory");
    let script = "cd ..; echo 2 > one.txt; git -c user.name=x -c user.email=x@y commit -qam inside && echo committed";
    let mut command = home.command(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "commits",
        "--fence",
        "workspace",
        "-C",
        "below",
        &format!("do {script}"),
    ]);
    command.env("PATH", std::env::var_os("PATH").expect("a PATH"));
    assert!(command.output().expect("adj runs").status.success());
    let view = home.finished("commits");
    assert!(
        home.log("commits").contains("committed"),
        "{view}\n{}",
        home.log("commits")
    );
    assert_eq!(
        view["fence"]["writable"],
        json!([text(&home.work().canonicalize().expect("there"))]),
        "{view}"
    );
}

#[test]
fn clone_is_the_workspace_and_the_repository_is_read_only() {
    let home = crate::changes::repository();
    let work = text(&home.work());
    let script = [
        attempt(
            "commit",
            "echo 2 > one.txt && git -c user.name=x -c user.email=x@y commit -qam inside",
        ),
        attempt(
            "repository",
            &format!("echo x > {work}/new || echo x > {work}/.git/hooks/post-commit"),
        ),
        attempt(
            "reads repository",
            &format!("cat {work}/one.txt && git log -1 --format=%T"),
        ),
        attempt("other workspaces", "echo x > ../new || echo x > ../../new"),
    ];
    let prompt: String = script
        .concat()
        .lines()
        .map(|line| format!("do {line}\n"))
        .collect();
    let mut command = home.command(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "cloned",
        "--clone",
        "--fence",
        "workspace",
        &prompt,
    ]);
    let ran = command
        .env("PATH", std::env::var_os("PATH").expect("a PATH"))
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
    let view = home.finished("cloned");
    let log = home.log("cloned");
    assert_said(
        &log,
        &[
            ("commit", true),
            ("repository", false),
            ("reads repository", true),
            ("other workspaces", false),
        ],
    );
    assert_eq!(
        view["fence"]["writable"].as_array().map(Vec::len),
        Some(1),
        "{view}"
    );
    assert!(!home.work().join("new").exists());
    assert_eq!(view["changed_files"], json!(["one.txt"]), "{view}");
}

#[test]
fn denied_write_is_an_event_and_shown() {
    let home = TestHome::with_config(SHELL);
    let (view, _) = fenced(&home, "denied", "touch /usr/new\ntouch /etc/new\ntrue");
    let fence = &view["fence"];
    assert_eq!(fence["denied_writes"], 2, "{view}");
    assert!(
        fence["denied_write"]
            .as_str()
            .is_some_and(|line| line.contains("/etc/new")),
        "{view}"
    );
    let events = home
        .call(&ReadEvents::default(), "")
        .expect("events")
        .events;
    let told: Vec<&str> = events
        .iter()
        .filter(|event| event.kind == EventKind::RunWriteDenied)
        .map(|event| event.text.as_str())
        .collect();
    assert_eq!(
        told.len(),
        2,
        "the first at once, the rest together: {told:?}"
    );
    assert!(
        told[0].starts_with("its output reports a write that the fence denied: ")
            && told[0].contains("/usr/new"),
        "{told:?}"
    );
    assert!(
        home.ok(&["show", "denied"])
            .contains("its output reports 2 writes that the fence denied, the last: ")
    );
}

#[test]
fn child_of_a_fenced_run_is_fenced() {
    let home = crate::changes::repository();
    let script = "delegate \"---\\nwrite one.txt child\\ndone fine\" [blocks]\nsay after";
    let mut command = home.command(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "audit",
        "--clone",
        "--fence",
        "workspace",
        script,
    ]);
    let ran = command
        .env("PATH", std::env::var_os("PATH").expect("a PATH"))
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
    home.adj(&["wait", "audit"]);
    home.ok(&["approve", "audit"]);
    assert_eq!(
        home.finished("audit")["outcome"],
        "succeeded",
        "{}",
        home.log("audit")
    );
    let child = home.show("audit")["children"][0]
        .as_str()
        .expect("a child")
        .to_owned();
    let view = home.finished(&child);
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert_eq!(
        (&view["fence"]["asked"], &view["fence"]["enforced"]),
        (&json!("workspace"), &json!("mount_namespace")),
        "{view}"
    );
}
