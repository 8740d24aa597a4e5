//! The configured parts of a workspace: a setup command, copied files, ports, shared caches.

use super::{git_output, name_user, succeeded, workspace};
use crate::changes::{git, repository};
use crate::support::{TestHome, is_root};
use adjutant_api::view::GetHub;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

/// Creates a repository like [`repository`], with these settings of workspaces.
fn configured(settings: &str) -> TestHome {
    let home = repository();
    configure(&home, settings);
    home
}

pub(super) fn configure(home: &TestHome, settings: &str) {
    let path = home.home.dir.join("config.toml");
    let text = fs::read_to_string(&path).expect("a configuration");
    let agents = text.split("[workspaces]").next().unwrap_or_default();
    fs::write(path, format!("{agents}[workspaces]\n{settings}")).expect("a configuration");
}

/// Runs a script in a clone to its end.
fn run(home: &TestHome, name: &str, script: &str, more: &[&str]) -> Value {
    let script: String = script.lines().map(|line| format!("do {line}\n")).collect();
    home.ok(&[
        &["run", "-d", "--clone", "-a", "sh", "-n", name],
        more,
        &[&script],
    ]
    .concat());
    home.finished(name)
}

fn in_refs(work: &Path, view: &Value) -> String {
    let refs = format!("refs/adjutant/{}", view["run_id"].as_str().expect("an id"));
    let all = git_output(work, &["for-each-ref", "--format=%(refname)", &refs]);
    all.lines()
        .map(|name| git_output(work, &["ls-tree", "-r", "--name-only", name]) + "\n")
        .collect()
}

#[test]
fn setup_runs_before_the_agent_at_the_top() {
    let home = configured(
        "setup = [\"sh\", \"-c\", \"pwd; echo ready > setup.txt; echo $ADJ_PORT_BASE\"]\n",
    );
    fs::create_dir(home.work().join("sub")).expect("a directory");
    let view = run(&home, "set-up", "cat ../setup.txt", &["-C", "sub"]);
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert!(home.log("set-up").contains("ready"));
    let setup = &view["workspace"]["setup"];
    assert_eq!(
        (&setup["passed"], &setup["exit_code"]),
        (&json!(true), &json!(0)),
        "{view}"
    );
    let lines: Vec<&str> = setup["output"].as_str().expect("output").lines().collect();
    assert_eq!(lines[0], workspace(&view).to_str().expect("UTF-8"));
    assert!(
        lines[1].parse::<u16>().is_ok_and(|port| port >= 20_000),
        "{lines:?}"
    );
    assert!(
        home.ok(&["show", "set-up"])
            .contains("setup.txt; echo $ADJ_PORT_BASE: passed in ")
    );
    // It ran before the first snapshot.
    assert_eq!(view["changed_files"], json!([]));
}

#[test]
fn failed_setup_ends_the_attempt_and_leaves_the_workspace() {
    let home = configured(
        "setup = [\"sh\", \"-c\", \"echo first; echo the reason >&2; touch made; exit 3\"]\n",
    );
    let view = run(&home, "failed", "true", &[]);
    assert_eq!(
        (&view["outcome"], &view["workspace"]["setup"]["passed"]),
        (&json!("spawn_failed"), &json!(false)),
        "{view}"
    );
    let reason = view["reason"].as_str().expect("a reason");
    // Output and errors have a pipe each, so their order is not known.
    let is_quoted = ["first\nthe reason", "the reason\nfirst"]
        .iter()
        .any(|both| reason.contains(&format!("failed with exit code 3: {both}")));
    assert!(
        reason.contains("the setup command sh -c ") && is_quoted,
        "{reason}"
    );
    assert!(workspace(&view).join("made").exists());
    let events = home.ok(&["events", "failed"]);
    assert!(events.contains("setup_failed"), "{events}");
    let shown = home.ok(&["show", "failed"]);
    assert!(
        shown.contains("ended with exit code 3") && shown.contains("the reason"),
        "{shown}"
    );
    configure(&home, "setup = [\"no-such-program\"]\n");
    let view = run(&home, "missing", "true", &[]);
    assert!(view["reason"].as_str().is_some_and(|reason| reason.contains("no-such-program is not found on the run's PATH")), "{view}");
}

#[test]
fn setup_is_stopped_with_all_its_processes_at_its_timeout() {
    let home = configured(
        "setup = [\"sh\", \"-c\", \"echo $$ > pid; (trap '' TERM; sleep 1000) & echo begun; wait\"]\nsetup_timeout = \"1s\"\n",
    );
    let path = home.home.dir.join("config.toml");
    let text = fs::read_to_string(&path)
        .expect("a configuration")
        .replace("[agents.sh]\n", "[agents.sh]\ngrace = \"100ms\"\n");
    fs::write(path, text).expect("a configuration");
    let view = run(&home, "slow", "true", &[]);
    let reason = view["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("was stopped after 1s (setup_timeout): begun"),
        "{view}"
    );
    assert_eq!(
        home.processes_of(view["run_id"].as_str().expect("an id")),
        Vec::new()
    );
}

#[test]
fn pause_and_cancel_stop_a_setup() {
    for (order, state) in [("pause", "stopped"), ("cancel", "finished")] {
        let home = configured(
            "setup = [\"sh\", \"-c\", \"echo begun >> begun; test -e go || exec sleep 1000\"]\n",
        );
        home.ok(&[
            "run",
            "-d",
            "--clone",
            "-a",
            "sh",
            "-n",
            "waits",
            "do cat begun",
        ]);
        let begun = workspace(&home.show("waits")).join("begun");
        home.until("the setup has begun", || begun.exists().then_some(()));
        assert_eq!(home.show("waits")["state"], "starting");
        home.ok(&[order, "waits"]);
        home.until("it stops", || {
            (home.show("waits")["state"] == state).then_some(())
        });
        if order == "pause" {
            fs::write(begun.with_file_name("go"), "").expect("a file");
            home.ok(&["resume", "waits"]);
            succeeded(&home, "waits");
            assert!(
                home.log("waits").contains("begun\nbegun"),
                "{}",
                home.log("waits")
            );
        } else {
            assert_eq!(home.show("waits")["outcome"], "cancelled");
        }
    }
}

#[test]
fn setup_runs_once_for_all_attempts() {
    let home = configured("setup = [\"sh\", \"-c\", \"echo again >> count\"]\n");
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "asks",
        "ask \"go on?\"\nsay done",
    ]);
    let view = home.until_status("asks", "waiting_parent_reply");
    home.ok(&["pause", "asks"]);
    home.until("it is stopped", || {
        (home.show("asks")["state"] == "stopped").then_some(())
    });
    home.ok(&["resume", "asks"]);
    home.until("it asks again", || {
        (home.show("asks")["attempt"] == 2).then_some(())
    });
    home.until_status("asks", "waiting_parent_reply");
    assert_eq!(
        fs::read_to_string(workspace(&view).join("count")).expect("a file"),
        "again\n"
    );
    assert_eq!(home.show("asks")["workspace"]["setup"]["passed"], true);
    home.ok(&["cancel", "asks"]);
}

#[test]
fn killed_setup_runs_again() {
    let home = configured("setup = [\"sh\", \"-c\", \"echo again >> count\"]\ncopy = [\".env\"]\n");
    fs::write(home.work().join(".env"), "SECRET=1\n").expect("a file");
    let fired = home.work().parent().expect("a parent").join("fired");
    let mut hub = home.command(&["__hub"]);
    hub.env(
        "ADJ_FAILPOINT",
        format!("workspace.after_setup={}", fired.display()),
    )
    .stdout(Stdio::null())
    .stderr(Stdio::null());
    let mut hub = hub.spawn().expect("a hub");
    home.until("the hub takes calls", || home.call(&GetHub {}, "").ok());
    let view = run(&home, "killed", "cat count .env", &[]);
    assert!(fired.exists());
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2)),
        "{view}"
    );
    assert!(
        home.log("killed").contains("again\nagain\nSECRET=1"),
        "{}",
        home.log("killed")
    );
    assert_eq!(view["workspace"]["copied"], json!([".env"]));
    home.ok(&["stop"]);
    hub.wait().expect("it ends");
}

#[test]
fn copied_files_reach_the_workspace_and_no_commit() {
    let home = configured(
        "copy = [\".env\", \"conf/[x] #1.toml\", \"one.txt\", \"missing\", \"tool.sh\"]\n",
    );
    let work = home.work();
    fs::create_dir(work.join("conf")).expect("a directory");
    fs::write(work.join(".env"), "SECRET=1\n").expect("a file");
    fs::write(work.join("conf/[x] #1.toml"), "secret = 2\n").expect("a file");
    fs::write(work.join("tool.sh"), "#!/bin/sh\necho secret 3\n").expect("a file");
    fs::set_permissions(work.join("tool.sh"), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(work.join("one.txt"), "changed by the user\n").expect("a file");
    let script = "cat .env conf/*.toml one.txt\n./tool.sh\necho more >> .env\necho new > new.txt\n\
                  git add -A\ngit -c user.name=t -c user.email=t@t commit -qm all\ngit stash -q -u || true";
    let view = run(&home, "copies", script, &["--with-changes"]);
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        home.log("copies")
    );
    let log = home.log("copies");
    assert!(
        log.contains("SECRET=1\nsecret = 2\nchanged by the user\nsecret 3"),
        "{log}"
    );
    let (given, missing) = (
        &view["workspace"]["copied"],
        &view["workspace"]["not_copied"],
    );
    assert_eq!(
        given,
        &json!([".env", "conf/[x] #1.toml", "tool.sh"]),
        "{view}"
    );
    let expected = json!([{"path": "one.txt", "why": "the workspace has it already"}, {"path": "missing", "why": "it is not in the repository"}]);
    assert_eq!(missing, &expected);
    let mode = fs::metadata(workspace(&view).join(".env"))
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let all = in_refs(&work, &view);
    assert!(
        all.contains("new.txt")
            && !all.contains(".env")
            && !all.contains("conf/")
            && !all.contains("tool.sh"),
        "{all}"
    );
    assert!(home.ok(&["show", "copies"]).contains(
        "copied       .env, conf/[x] #1.toml, tool.sh; not one.txt (the workspace has it already)"
    ));
    name_user(&work);
    home.ok(&["merge", "copies", "--branch", "merged"]);
    assert!(!git_output(&work, &["ls-tree", "-r", "--name-only", "merged"]).contains(".env"));
}

#[test]
fn only_ignored_files_are_copied_to_a_worktree() {
    let home = configured("copy = [\".env\", \"open.txt\"]\n");
    let work = home.work();
    fs::write(work.join(".gitignore"), ".env\n").expect("a file");
    git(&work, &["add", ".gitignore"]);
    git(&work, &["commit", "-qm", "ignore"]);
    for name in [".env", "open.txt"] {
        fs::write(work.join(name), "secret\n").expect("a file");
    }
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "tree",
        "do cat .env; test ! -e open.txt",
    ]);
    let view = succeeded(&home, "tree");
    assert_eq!(view["workspace"]["copied"], json!([".env"]));
    assert!(
        view["workspace"]["not_copied"][0]["why"]
            .as_str()
            .is_some_and(|why| why.contains("git does not ignore it")),
        "{view}"
    );
    assert!(!in_refs(&work, &view).contains(".env"));
}

#[test]
fn files_that_a_gitignore_includes_are_not_copied_to_a_clone() {
    let home = configured("copy = [\".env\", \".env.local\", \"sub/key\"]\n");
    let work = home.work();
    fs::create_dir(work.join("sub")).expect("a directory");
    fs::write(work.join(".gitignore"), ".env*\n!.env.*\n").expect("a file");
    fs::write(work.join("sub/.gitignore"), "!key\n").expect("a file");
    git(&work, &["add", ".gitignore", "sub/.gitignore"]);
    git(&work, &["commit", "-qm", "ignore"]);
    for name in [".env", ".env.local", "sub/key"] {
        fs::write(work.join(name), "secret\n").expect("a file");
    }
    let script = "cat .env\ntest ! -e .env.local\ntest ! -e sub/key\necho new > new.txt\n\
                  git add -A\ngit -c user.name=t -c user.email=t@t commit -qm all";
    let view = run(&home, "clone", script, &[]);
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        home.log("clone")
    );
    assert_eq!(view["workspace"]["copied"], json!([".env"]));
    let not_copied = view["workspace"]["not_copied"].as_array().expect("files");
    assert_eq!(
        not_copied
            .iter()
            .map(|file| &file["path"])
            .collect::<Vec<_>>(),
        [".env.local", "sub/key"]
    );
    let shown = home.ok(&["show", "clone"]);
    assert!(
        shown.contains("not .env.local (git does not ignore it, so the agent could commit it: "),
        "{shown}"
    );
    let all = in_refs(&work, &view);
    assert!(
        all.contains("new.txt") && !all.contains(".env") && !all.contains("sub/key"),
        "{all}"
    );
}

#[test]
fn files_behind_links_are_not_copied() {
    let home = configured("copy = [\"linked\"]\n");
    let (work, outside) = (
        home.work(),
        home.work().parent().expect("a parent").to_owned(),
    );
    fs::write(outside.join("secret"), "secret\n").expect("a file");
    symlink(outside.join("secret"), work.join("linked")).expect("a link");
    let view = run(&home, "link", "true", &[]);
    assert_eq!(view["outcome"], "spawn_failed", "{view}");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("linked cannot be copied")
                && reason.contains("symbolic link")),
        "{view}"
    );
    // A directory that is a link out of the repository, and a file that is too large.
    configure(&home, "copy = [\"dir/secret\"]\n");
    symlink(&outside, work.join("dir")).expect("a link");
    assert_eq!(run(&home, "dir", "true", &[])["outcome"], "spawn_failed");
    configure(&home, "copy = [\"large\"]\n");
    fs::File::create(work.join("large"))
        .and_then(|file| file.set_len(17 * 1024 * 1024))
        .expect("a sparse file");
    let view = run(&home, "large", "true", &[]);
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("too much to copy")),
        "{view}"
    );
}

#[test]
fn live_runs_never_share_ports() {
    let home = configured("ports = 3\n");
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "first",
        "ask \"go on?\"\nsay done",
    ]);
    let first = home.until_status("first", "waiting_parent_reply");
    let base = first["ports"]["base"].as_u64().expect("ports");
    assert_eq!(first["ports"]["count"], 3);
    assert!(
        home.ok(&["show", "first"])
            .contains(&format!("ports        {base} to {}", base + 2))
    );
    // Another program listens on the next port.
    let next = u16::try_from(base + 4).expect("a port");
    let listener = TcpListener::bind(("127.0.0.1", next));
    let view = run(&home, "second", "echo $ADJ_PORT_BASE $ADJ_PORT_COUNT", &[]);
    let taken = listener.is_err() || home.log("second").contains(&format!("{} 3", base + 5));
    assert!(
        taken && view["ports"].is_null(),
        "{view}\n{}",
        home.log("second")
    );
    home.ok(&["reply", "first", "yes"]);
    assert!(home.finished("first")["ports"].is_null());
    run(&home, "third", "echo $ADJ_PORT_BASE", &[]);
    assert!(
        home.log("third").contains(&base.to_string()),
        "{}",
        home.log("third")
    );
    configure(&home, "ports = 0\n");
    run(&home, "none", "echo none: ${ADJ_PORT_BASE-none}", &[]);
    assert!(home.log("none").contains("none: none"));
}

#[test]
fn run_without_free_ports_waits_for_another() {
    let home = configured("ports = 1000\n");
    let path = home.home.dir.join("config.toml");
    let text = fs::read_to_string(&path).expect("a configuration");
    fs::write(&path, format!("live_runs_max = 40\n{text}")).expect("a configuration");
    // There are 12 ranges; other programs may have some of the ports.
    let mut live = Vec::new();
    let (waiting, view) = (0..14)
        .find_map(|n| {
            let name = format!("run-{n}");
            home.ok(&[
                "run",
                "-d",
                "--clone",
                "-a",
                "echo",
                "-n",
                &name,
                "ask \"go on?\"\nsay done",
            ]);
            let view = home.until("it runs or waits", || {
                Some(home.show(&name)).filter(|view| {
                    view["status"] == "waiting_parent_reply"
                        || view["queue"]["waiting_for"] == "ports"
                })
            });
            if view["queue"].is_null() {
                live.push(name);
                return None;
            }
            Some((name, view))
        })
        .expect("the ports are used up");
    let holder = view["after"][0]["name"].as_str().expect("a run").to_owned();
    assert!(
        live.contains(&holder) && view["after"][0]["on"] == "ports" && view["state"] == "queued",
        "{view}"
    );
    assert!(
        view["queue"]["why"]
            .as_str()
            .is_some_and(|why| why.contains(&format!(
                "consecutive ports are free: it starts after {holder}"
            ))),
        "{view}"
    );
    assert!(home.ok(&["ps"]).contains("queued: no free ports"));
    home.ok(&["reply", &holder, "yes"]);
    let view = home.until_status(&waiting, "waiting_parent_reply");
    assert_eq!(view["ports"]["count"], 1000, "{view}");
    for name in live
        .iter()
        .filter(|name| **name != holder)
        .chain([&waiting])
    {
        home.ok(&["cancel", name]);
    }
}

#[test]
fn caches_are_shared_by_the_workspaces_of_a_repository() {
    let home =
        configured("[workspaces.caches]\nBUILD_CACHE = \"build\"\nOTHER = \"~/other-cache\"\n");
    let view = run(
        &home,
        "writes",
        "echo from writes > $BUILD_CACHE/file\nls -d $OTHER",
        &[],
    );
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        home.log("writes")
    );
    let dir = view["workspace"]["caches"]["BUILD_CACHE"]
        .as_str()
        .expect("a directory")
        .to_owned();
    assert!(
        Path::new(&dir).starts_with(home.home.caches_dir()) && dir.ends_with("/build"),
        "{dir}"
    );
    run(&home, "reads", "cat $BUILD_CACHE/file", &[]);
    assert!(home.log("reads").contains("from writes"));
    assert!(
        home.ok(&["show", "reads"])
            .contains(&format!("BUILD_CACHE={dir}"))
    );
}

#[test]
fn fenced_setup_writes_only_its_runs_files() {
    if !is_root("a fence in this test needs root") {
        return;
    }
    let home = configured(
        "setup = [\"sh\", \"-c\", \"pwd > where; touch $BUILD_CACHE/made; touch \\\"$HOME/escaped\\\" || echo denied\"]\n[workspaces.caches]\nBUILD_CACHE = \"build\"\n",
    );
    fs::create_dir(home.work().join("sub")).expect("a directory");
    let view = run(
        &home,
        "fenced",
        "cat ../where\nls $BUILD_CACHE\ntouch $BUILD_CACHE/second",
        &["--fence", "workspace", "-C", "sub"],
    );
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        home.log("fenced")
    );
    assert!(
        view["workspace"]["setup"]["output"]
            .as_str()
            .is_some_and(|output| output.contains("denied")),
        "{view}"
    );
    let log = home.log("fenced");
    assert!(
        log.contains(workspace(&view).to_str().expect("UTF-8")) && log.contains("made"),
        "{log}"
    );
    let cache = Path::new(
        view["workspace"]["caches"]["BUILD_CACHE"]
            .as_str()
            .expect("a directory"),
    )
    .to_owned();
    assert!(cache.join("second").exists());
}

#[test]
fn default_isolation_applies_if_none_is_set() {
    let home = configured("isolation = \"clone\"\n");
    let work = home.work();
    let isolation = |name: &str, more: &[&str]| {
        home.ok(&[&["run", "-d", "-n", name], more, &["say x"]].concat());
        home.finished(name)["workspace"]["isolation"].clone()
    };
    assert_eq!(isolation("general", &["-a", "echo"]), "clone");
    assert_eq!(
        isolation("said", &["-a", "echo", "--isolation", "none"]),
        Value::Null
    );
    configure(
        &home,
        &format!(
            "isolation = \"clone\"\n[[workspaces.repositories]]\npath = \"{}\"\nisolation = \"none\"\n",
            work.display()
        ),
    );
    assert_eq!(isolation("repository", &["-a", "echo"]), Value::Null);
    configure(
        &home,
        "isolation = \"clone\"\n[agents.here]\nharness = \"echo\"\nisolation = \"none\"\n[agents.tree]\nharness = \"echo\"\nisolation = \"worktree\"\n",
    );
    assert_eq!(
        (
            isolation("stated", &["-a", "here"]),
            isolation("tree", &["-a", "tree"])
        ),
        (Value::Null, json!("worktree"))
    );
    // Without a repository, the run is refused instead of ignoring the setting.
    let plain = work.parent().expect("a parent").join("plain");
    fs::create_dir(&plain).expect("a directory");
    let refused = home.adj(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-C",
        plain.to_str().expect("UTF-8"),
        "say x",
    ]);
    assert!(
        refused.code != 0
            && refused
                .err
                .contains("the configuration says isolation = \"clone\"")
            && refused.err.contains("--isolation none"),
        "{refused:?}"
    );
}

#[test]
fn settings_in_the_repository_are_ignored() {
    let home = repository();
    fs::write(
        home.work().join("config.toml"),
        "[workspaces]\nsetup = [\"touch\", \"obeyed\"]\nisolation = \"clone\"\n",
    )
    .expect("a file");
    fs::create_dir(home.work().join(".adjutant")).expect("a directory");
    fs::copy(
        home.work().join("config.toml"),
        home.work().join(".adjutant/config.toml"),
    )
    .expect("a file");
    let view = run(&home, "plain", "test ! -e obeyed", &["--with-changes"]);
    assert!(
        view["workspace"]["setup"].is_null() && view["outcome"] == "succeeded",
        "{view}"
    );
}

#[test]
fn configuration_of_workspaces_is_shown_and_checked() {
    let home = configured(
        "setup = [\"npm\", \"ci\"]\nports = 5\n[[workspaces.repositories]]\npath = \"/srv/app\"\nsetup = []\ncaches = { X = \"x\" }\n",
    );
    let shown = home.ok(&["config", "show"]);
    for expected in [
        "[workspaces]",
        "setup = [\"npm\",\"ci\"]",
        "setup_timeout = \"10m\"",
        "ports = 5",
        "[[workspaces.repositories]]",
        "path = \"/srv/app\"",
        "caches = { X = \"x\" }",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in {shown}");
    }
    assert_eq!(
        home.json(&["config", "show"])["workspaces"]["repositories"][0]["setup"],
        json!([])
    );
    configure(
        &home,
        "setup = [\"npm ci\"]\nports = 100000\ncopy = [\"/etc/passwd\"]\nprots = 1\n",
    );
    let refused = home.adj(&["run", "-d", "--clone", "-a", "echo", "say x"]);
    assert!(
        refused.code != 0 && refused.err.contains("workspaces.prots: unknown key"),
        "{refused:?}"
    );
    configure(
        &home,
        "setup = [\"npm ci\"]\nports = 100000\ncopy = [\"/etc/passwd\"]\n",
    );
    let refused = home.adj(&["run", "-d", "--clone", "-a", "echo", "say x"]);
    for expected in [
        "workspaces.setup: \"npm ci\" is not a program",
        "workspaces.ports: at most 1000",
        "workspaces.copy: \"/etc/passwd\": use a path relative",
    ] {
        assert!(
            refused.err.contains(expected),
            "{expected:?} is not in {refused:?}"
        );
    }
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(0));
}

/// Lists what the refs of the user's repository contain of copied files: their paths, and texts
/// with `SECRET`.
fn copies_in_refs(work: &Path) -> Vec<String> {
    let objects = git_output(
        work,
        &["rev-list", "--objects", "--single-worktree", "--all"],
    );
    let is_copy = |path: &str| [".env", "conf dir/key [1]"].contains(&path);
    let mut found: Vec<String> = objects
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, path)| is_copy(path))
        .map(|it| it.1.to_owned())
        .collect();
    for line in objects.lines() {
        let id = line.split(' ').next().expect("an id");
        if git_output(work, &["cat-file", "-t", id]) == "blob"
            && git_output(work, &["cat-file", "blob", id]).contains("SECRET")
        {
            found.push(line.to_owned());
        }
    }
    found
}

/// Creates a repository whose workspaces get a copy of two files with secrets.
fn with_secrets() -> TestHome {
    let home = configured("copy = [\".env\", \"conf dir/key [1]\"]\n");
    let work = home.work();
    name_user(&work);
    fs::create_dir(work.join("conf dir")).expect("a directory");
    for file in [".env", "conf dir/key [1]"] {
        fs::write(work.join(file), format!("SECRET of {file}\n")).expect("a file");
    }
    fs::write(work.join(".git/info/exclude"), ".env\nkey*\n").expect("a file");
    home
}

const IDENTITY: &str = "git config user.name a; git config user.email a@a";

#[test]
fn commits_come_home_without_copied_files() {
    let home = with_secrets();
    let work = home.work();
    let both = json!([".env", "conf dir/key [1]"]);
    let one = json!([".env"]);
    let cases = [
        (
            "adds",
            "git add -f .env adds.txt; git commit -qm mine",
            &one,
        ),
        // The history contains it.
        (
            "removes",
            "git add -f .env removes.txt; git commit -qm mine; git rm -q --cached .env; git commit -qm clean",
            &one,
        ),
        (
            "edits",
            "echo more SECRET >> .env; git add -f .env 'conf dir' edits.txt; git commit -qm mine; echo 2 > x; git add x; git commit -qm two",
            &both,
        ),
        (
            "only",
            "git add only.txt; git commit -qm mine; git add -f .env; git commit -qm secret",
            &one,
        ),
        (
            "side",
            "git checkout -qb side; git add -f .env; git commit -qm aside; git checkout -q -; git add side.txt; git commit -qm mine",
            &one,
        ),
        (
            "joins",
            "git checkout -qb x; git add -f .env; git commit -qm x; git checkout -q -; git add joins.txt; git commit -qm y; git merge -q x -m mine",
            &one,
        ),
        (
            "stashes",
            "git add stashes.txt; git commit -qm mine; git stash -qa",
            &both,
        ),
        (
            "resets",
            "git add -f .env; git commit -qm lost; git reset -q --hard HEAD^; echo resets > resets.txt; git add resets.txt; git commit -qm mine",
            &one,
        ),
    ];
    for (name, script, found) in cases {
        let view = run(
            &home,
            name,
            &format!("{IDENTITY}\ntest -e .env; echo {name} > {name}.txt; {script}"),
            &[],
        );
        assert_eq!(view["outcome"], "succeeded", "{view}");
        assert_eq!(copies_in_refs(&work), Vec::<String>::new(), "{name}");
        let named = found
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        let problem = format!(
            "its commits are kept without files that were copied into its workspace and can be secrets: {named}"
        );
        assert_eq!(
            (
                &home.json(&["show", name])["committed_copies"],
                &view["snapshot_problem"]
            ),
            (found, &json!(problem)),
            "{name}"
        );
        let waited = home.adj(&["wait", name]);
        assert!(waited.err.contains(&problem), "{waited:?}");
        let diff = home.adj(&["diff", name]);
        assert!(
            diff.err.contains(&format!(
                "the commits of {name} are kept and merged without"
            )) && diff.err.contains(&named),
            "{diff:?}"
        );
        let merged = home.adj(&["merge", name]);
        assert!(
            merged.code == 0
                && merged.err.contains(&format!("are merged without files that were copied into its workspace and can be secrets: {named}")),
            "{name}: {merged:?}"
        );
        assert!(
            git_output(&work, &["log", "--format=%an %s", "-4"]).contains("a mine"),
            "{name}"
        );
        assert_eq!(
            fs::read_to_string(work.join(format!("{name}.txt"))).expect("a file"),
            format!("{name}\n")
        );
        home.ok(&["discard", name]);
        assert_eq!(copies_in_refs(&work), Vec::<String>::new(), "{name}");
        git_output(&work, &["fsck", "--strict", "--connectivity-only"]);
    }
    assert_eq!(
        fs::read_to_string(work.join(".env")).expect("a file"),
        "SECRET of .env\n"
    );
    // The objects are nowhere either, so that nothing can name them later.
    let blob = git_output(&work, &["hash-object", ".env"]);
    let known = std::process::Command::new("git")
        .current_dir(&work)
        .args(["cat-file", "-e", &blob])
        .output()
        .expect("git");
    assert!(!known.status.success());
    home.ok(&["clean", "-y", "--older-than", "0s"]);
    let left = git_output(
        &work,
        &["for-each-ref", "--format=%(refname)", "refs/adjutant"],
    );
    assert_eq!(left, "", "nothing is kept as work that was not merged");
}

/// What does not contain a copied file keeps its id, so that a merge can fast-forward and git knows
/// it again.
#[test]
fn commits_without_copied_files_are_not_rewritten() {
    let home = with_secrets();
    let script = format!(
        "{IDENTITY}\ncp .env.sample env.txt; mkdir .env.d; echo x > .env.d/x; echo y > env; git add .; git commit -qm mine"
    );
    fs::write(home.work().join(".env.sample"), "").expect("a file");
    git(&home.work(), &["add", ".env.sample"]);
    git(&home.work(), &["commit", "-qm", "sample"]);
    let view = run(&home, "clean", &script, &[]);
    let own = git_output(&workspace(&view), &["rev-parse", "HEAD"]);
    assert_eq!(
        (&view["committed_copies"], &view["snapshot_problem"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(home.json(&["merge", "clean"])["commit"], json!(own));
}

/// Later attempts and follow-up runs work on top of commits that were rewritten before.
#[test]
fn rewritten_commits_stay_the_same() {
    let home = with_secrets();
    let work = home.work();
    let script = format!("{IDENTITY}\necho 1 > 1.txt; git add -f .env 1.txt; git commit -qm first");
    let view = run(&home, "first", &script, &[]);
    let head = format!(
        "refs/adjutant/{}/head",
        view["run_id"].as_str().expect("an id")
    );
    let kept = git_output(&work, &["rev-parse", &head]);
    let top = workspace(&view);
    assert_ne!(git_output(&top, &["rev-parse", "HEAD"]), kept);
    assert_eq!(
        git_output(&work, &["log", "-1", "--format=%an %s", &head]),
        "a first"
    );
    fs::write(top.join("2.txt"), "2\n").expect("a file");
    git(&top, &["add", "2.txt"]);
    git(&top, &["commit", "-qm", "second"]);
    home.ok(&["merge", "first", "--branch", "kept"]);
    assert_eq!(
        git_output(&work, &["log", "--format=%s", "-2", "kept"]),
        "second\nfirst"
    );
    assert_eq!(git_output(&work, &["rev-parse", "kept^"]), kept);
    let refs = git_output(
        &work,
        &[
            "for-each-ref",
            "--format=%(refname)",
            &format!("refs/adjutant/{}", view["run_id"].as_str().expect("an id")),
        ],
    );
    assert!(!refs.contains("reflog"), "{refs}");
    assert_eq!(copies_in_refs(&work), Vec::<String>::new());
    // It goes on from its own commits, and merges those that came home.
    assert_eq!(
        home.json(&["merge", "first"])["files"],
        json!(["1.txt", "2.txt"])
    );
    git(
        &top,
        &["fetch", "-q", work.to_str().expect("UTF-8"), "HEAD"],
    );
    git(&top, &["merge", "-q", "-m", "pulled", "FETCH_HEAD"]);
    fs::write(top.join("3.txt"), "3\n").expect("a file");
    git(&top, &["add", "3.txt"]);
    git(&top, &["commit", "-qm", "third"]);
    assert_eq!(home.json(&["merge", "first"])["files"], json!(["3.txt"]));
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    assert_eq!(copies_in_refs(&work), Vec::<String>::new());
    git_output(&work, &["fsck", "--strict"]);
    // The agent's workspace is its own: nothing there is changed.
    assert_eq!(git_output(&top, &["show", "HEAD:.env"]), "SECRET of .env");
}

/// A work tree shares the objects of the user's repository, but no ref of Adjutant names them.
#[test]
fn commits_of_a_work_tree_are_kept_without_copied_files() {
    let home = with_secrets();
    let work = home.work();
    let script = "echo 1 > 1.txt; git add -f .env 1.txt; git -c user.name=a -c user.email=a@a commit -qm mine";
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "tree",
        &format!("do {script}"),
    ]);
    let view = home.finished("tree");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert_eq!(copies_in_refs(&work), Vec::<String>::new());
    home.ok(&["merge", "tree"]);
    assert_eq!(
        git_output(&work, &["log", "-1", "--format=%s %an"]),
        "mine a"
    );
    assert_eq!(copies_in_refs(&work), Vec::<String>::new());
    // A branch that the agent makes there is a branch of the user's: the commit is in it, and is
    // not merged.
    let script = "git checkout -qb own; echo 2 > 2.txt; git add -f .env 2.txt; git -c user.name=a -c user.email=a@a commit -qm mine";
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "branches",
        &format!("do {script}"),
    ]);
    home.finished("branches");
    let refused = home.adj(&["merge", "branches"]);
    assert!(
        refused.code == 7
            && refused.err.contains("can be secrets: .env")
            && refused.err.contains("--squash"),
        "{refused:?}"
    );
    home.ok(&["merge", "branches", "--squash"]);
    assert_eq!(
        git_output(
            &work,
            &[
                "ls-tree",
                "-r",
                "--name-only",
                "HEAD",
                "--",
                ".env",
                "2.txt"
            ]
        ),
        "2.txt"
    );
}

/// Nothing is kept rather than a part, and the workspace stays.
#[test]
fn too_many_commits_with_copied_files_stay_in_the_workspace() {
    let home = with_secrets();
    let script = format!(
        "{IDENTITY}\ngit add -f .env; git commit -qm first; n=0; while [ $n -lt 500 ]; do git commit -q --allow-empty -m $n; n=$((n+1)); done"
    );
    let view = run(&home, "many", &script, &[]);
    let why = "more than 500 of them contain copied files";
    assert!(
        view["snapshot_problem"]
            .as_str()
            .is_some_and(
                |problem| problem.contains("only in its workspace") && problem.contains(why)
            ),
        "{view}"
    );
    for refused in [home.adj(&["merge", "many"]), home.adj(&["discard", "many"])] {
        assert!(
            refused.code == 7
                && refused.err.contains(why)
                && refused.err.contains("adj discard many --force"),
            "{refused:?}"
        );
    }
    let cleaned = home.adj(&["clean", "-y", "--older-than", "0s"]);
    assert!(workspace(&view).exists(), "{cleaned:?}");
    // Fewer commits come home.
    git(
        &workspace(&view),
        &[
            "reset",
            "-q",
            "--soft",
            view["workspace"]["base"].as_str().expect("a base"),
        ],
    );
    git(
        &workspace(&view),
        &["commit", "-q", "--allow-empty", "-m", "all"],
    );
    git(
        &workspace(&view),
        &["reflog", "expire", "--expire=now", "--all"],
    );
    home.ok(&["merge", "many", "--squash"]);
    home.ok(&["discard", "many"]);
    assert_eq!(copies_in_refs(&home.work()), Vec::<String>::new());
}
