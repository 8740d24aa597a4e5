//! Reports are verified by evidence: files, git, the acceptance command.

use crate::support::{TestHome, kill};
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the agent's last step: a report with these fields.
fn report(fields: &Value) -> String {
    format!("tool update_subagent_status {fields}")
}

fn start(home: &TestHome, name: &str, accept: Option<&str>, script: &str) {
    let script = format!("{script}\n");
    let mut args = vec!["run", "--detach", "--agent", "echo", "--name", name];
    args.extend(accept.iter().flat_map(|accept| ["--accept", accept]));
    args.push(&script);
    home.ok(&args);
}

fn finding<'a>(view: &'a Value, field: &str) -> &'a Value {
    let found = view["report"]["checked"]
        .as_array()
        .and_then(|all| all.iter().find(|finding| finding["field"] == field));
    found.unwrap_or_else(|| panic!("no finding on {field} in {view}"))
}

fn script_file(home: &TestHome, name: &str, text: &str) -> PathBuf {
    let path = home.work().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a script");
    path
}

#[test]
fn report_with_files_and_passing_command_is_verified() {
    let home = TestHome::new();
    let fields = json!({"status": "success", "summary": "made it", "deliverables": ["A.md", "out/b.txt (the numbers)"], "metrics_achieved": "all", "next_steps": "rest"});
    let script = format!(
        "write A.md abc\nadj --version\nwrite out/b.txt x\n{}",
        report(&fields)
    );
    std::fs::create_dir(home.work().join("out")).expect("a directory");
    start(&home, "made", Some("grep -ce 'a *bc' A.md"), &script);
    let view = home.finished("made");
    assert_eq!(view["outcome"], "succeeded");
    let report = &view["report"];
    assert_eq!(
        (
            &report["status"],
            &report["verdict"],
            &report["recommendations"]
        ),
        (&json!("success"), &json!("verified"), &json!("rest")),
        "{view}"
    );
    let files = report["files"].as_array().expect("files");
    assert_eq!(
        (&files[0]["path"], &files[0]["bytes"], &files[0]["verdict"]),
        (&json!("A.md"), &json!(4), &json!("verified"))
    );
    assert_eq!(
        files[0]["sha256"],
        "edeaaff3f1774ad2888673770c6d64097e391bc362d7d6fb34982ddf0efd18cb"
    );
    assert_eq!(files[1]["path"], "out/b.txt");
    let acceptance = &view["acceptance"];
    assert_eq!(
        (
            &acceptance["passed"],
            &acceptance["exit_code"],
            &acceptance["output"]
        ),
        (&json!(true), &json!(0), &json!("1\n")),
        "{acceptance}"
    );
    for (field, verdict) in [
        ("status", "verified"),
        ("deliverables", "verified"),
        ("metrics_achieved", "verified"),
        ("summary", "unverified"),
    ] {
        assert_eq!(finding(&view, field)["verdict"], verdict, "{field}");
    }
    let shown = home.ok(&["show", "made"]);
    assert!(
        shown.contains("report: success, verified")
            && shown.contains("acceptance: grep -ce a *bc A.md: passed"),
        "{shown}"
    );
    let meta = home
        .home
        .logs_dir()
        .join(format!("{}.meta.json", home.run_id("made")));
    home.until("the rendered copy has the report", || {
        let meta: Value = serde_json::from_slice(&std::fs::read(&meta).ok()?).ok()?;
        (meta["completion_report"]["status"] == "success"
            && meta["completion_report"]["verdict"] == "verified")
            .then_some(())
    });
}

#[test]
fn missing_or_outside_deliverables_are_reported() {
    let home = TestHome::new();
    std::fs::write(
        home.work().parent().expect("a parent").join("secret.md"),
        "x",
    )
    .expect("a file");
    symlink("../secret.md", home.work().join("link.md")).expect("a link");
    let fields = json!({"status": "success", "summary": "made it", "deliverables": ["gone.md", "../secret.md", "link.md", "/etc/passwd"]});
    start(
        &home,
        "false",
        Some("sh -c 'echo no; echo why >&2; exit 3'"),
        &report(&fields),
    );
    let view = home.finished("false");
    assert_eq!(
        (&view["outcome"], &view["status"]),
        (&json!("succeeded"), &json!("error")),
        "the process decides about the outcome"
    );
    assert_eq!(view["report"]["verdict"], "contradicted");
    let reasons: Vec<&str> = view["report"]["files"]
        .as_array()
        .expect("files")
        .iter()
        .filter_map(|file| file["reason"].as_str())
        .collect();
    let outside = "outside the run's directory, not checked";
    assert_eq!(reasons, ["not there", outside, outside, outside]);
    assert!(
        view["report"]["files"]
            .as_array()
            .expect("files")
            .iter()
            .all(|file| file["sha256"].is_null())
    );
    let acceptance = &view["acceptance"];
    assert_eq!(
        (&acceptance["passed"], &acceptance["exit_code"]),
        (&json!(false), &json!(3))
    );
    assert!(
        acceptance["output"]
            .as_str()
            .is_some_and(|output| output.contains("no\n") && output.contains("why\n")),
        "{acceptance}"
    );
    assert_eq!(
        home.adj(&["wait", "false"]).code,
        1,
        "a waiter learns that it was not accepted"
    );
}

#[test]
fn report_block_is_verified_too() {
    let home = TestHome::with_config(
        "[agents.scribe]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"cat > p; id=$(sed -n 's/.*(id \\\\([0-9a-f-]*\\\\)).*/\\\\1/p' p | head -n 1); printf '[COMPLETION_REPORT]\\\\nagent_id: %s\\\\nstatus: partial_success\\\\nsummary: half\\\\ndeliverables: |\\\\n  Files:\\\\n  - p (the prompt)\\\\n  - not/there.md\\\\n[/COMPLETION_REPORT]\\\\n' $id; exit 4\"]\n",
    );
    home.start_agent("scribe", "partly", "go");
    let view = home.finished("partly");
    assert_eq!(
        (
            &view["outcome"],
            &view["report"]["status"],
            &view["report"]["verdict"]
        ),
        (
            &json!("failed"),
            &json!("partial_success"),
            &json!("contradicted")
        ),
        "{view}"
    );
    assert_eq!(
        finding(&view, "status")["reason"],
        "its process ended with exit 4"
    );
    assert_eq!(
        finding(&view, "deliverables")["reason"],
        "missing: not/there.md"
    );
}

fn git(dir: &Path, args: &[&str]) {
    let identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "init.defaultBranch=main",
    ];
    let done = Command::new("git")
        .args(identity)
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
}

#[test]
fn changed_files_come_from_git_without_running_filters() {
    let home = TestHome::new();
    let work = home.work();
    let trap = script_file(&home, "trap.sh", "touch \"$(dirname \"$0\")/sprung\"; cat");
    std::fs::write(work.join("kept.txt"), "1\n").expect("a file");
    std::fs::write(work.join(".gitattributes"), "*.txt filter=tra=p\n").expect("a file");
    git(&work, &["init", "-q"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "x"]);
    let trap = trap.display().to_string();
    for (name, value) in [
        ("filter.tra=p.clean", trap.as_str()),
        ("filter.tra=p.required", "true"),
        ("core.fsmonitor", trap.as_str()),
        ("core.pager", trap.as_str()),
    ] {
        git(&work, &["config", name, value]);
    }
    std::fs::create_dir_all(work.join(".git/hooks")).expect("hooks");
    symlink(&trap, work.join(".git/hooks/post-index-change")).expect("a hook");
    let script = format!(
        "write kept.txt 22\nwrite new.md x\n{}\n",
        report(&json!({"status": "success", "summary": "changed"}))
    );
    let mut command = home.command(&[
        "run", "--detach", "--agent", "echo", "--name", "changes", &script,
    ]);
    command.env("PATH", std::env::var_os("PATH").expect("a PATH"));
    assert!(command.output().expect("adj runs").status.success());
    let view = home.finished("changes");
    assert_eq!(
        view["changed_files"],
        json!(["kept.txt", "new.md"]),
        "{view}"
    );
    assert!(
        !work.join("sprung").exists(),
        "the repository's own program was run"
    );
}

#[test]
fn acceptance_command_obeys_limits_and_is_swept() {
    let home = TestHome::new();
    let hangs = script_file(
        &home,
        "hangs.sh",
        "echo begun; setsid sleep 600 & sleep 600",
    );
    let script = report(&json!({"status": "success", "summary": "x"}));
    let accept = hangs.display().to_string();
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "late",
        "--timeout",
        "8s",
        "--accept",
        &accept,
        &format!("{script}\n"),
    ]);
    let view = home.finished("late");
    assert_eq!(
        (
            &view["outcome"],
            &view["acceptance"]["passed"],
            &view["acceptance"]["output"]
        ),
        (&json!("succeeded"), &json!(false), &json!("begun\n")),
        "{view}"
    );
    assert_eq!(view["acceptance"]["reason"], "its time was used up");
    assert_eq!(view["report"]["verdict"], "contradicted");
    home.until("nothing is left of the command", || {
        (!home
            .processes()
            .iter()
            .any(|(_, what)| what.contains("hangs.sh") || what.contains("600")))
        .then_some(())
    });

    start(&home, "cancelled", Some(&accept), &script);
    home.until("the command runs", || {
        home.processes()
            .iter()
            .any(|(_, what)| what.contains("hangs.sh"))
            .then_some(())
    });
    assert_eq!(home.show("cancelled")["state"], "running");
    home.ok(&["cancel", "cancelled"]);
    assert_eq!(home.finished("cancelled")["outcome"], "cancelled");

    start(&home, "absent", Some("no-such-program --at all"), &script);
    let view = home.finished("absent");
    assert_eq!(
        (&view["acceptance"]["passed"], &view["report"]["verdict"]),
        (&Value::Null, &json!("unverified")),
        "{view}"
    );
    assert_eq!(
        home.adj(&["wait", "absent"]).code,
        1,
        "what could not be checked has not passed"
    );
    assert!(home.ok(&["ps", "-a"]).contains("not accepted"));
}

#[test]
fn killed_acceptance_command_keeps_the_agents_exit() {
    for containment in ["auto", "subreaper"] {
        let home = TestHome::with_config(&format!("containment = \"{containment}\"\n"));
        let hangs = script_file(&home, "hangs.sh", "setsid sleep 600 & sleep 600");
        let accept = hangs.display().to_string();
        start(
            &home,
            "orphan",
            Some(&accept),
            &report(&json!({"status": "success", "summary": "x"})),
        );
        home.until("the command runs", || {
            home.processes()
                .iter()
                .any(|(_, what)| what.contains("hangs.sh"))
                .then_some(())
        });
        let lock = home.attempt_dir("orphan").supervisor_lock();
        let pid = std::fs::read_to_string(lock)
            .expect("a lock")
            .trim()
            .parse()
            .expect("a pid");
        kill(pid);
        let view = home.finished("orphan");
        assert_eq!(
            (&view["outcome"], &view["acceptance"]["passed"]),
            (&json!("succeeded"), &Value::Null),
            "{containment}: {view}"
        );
        assert!(
            view["acceptance"]["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("supervisor died")),
            "{view}"
        );
        home.until("nothing is left of it", || {
            (!home
                .processes()
                .iter()
                .any(|(_, what)| what.contains("hangs.sh")))
            .then_some(())
        });
    }
}

#[test]
fn resumed_run_learns_of_its_changed_files() {
    let home = TestHome::new();
    git(&home.work(), &["init", "-q"]);
    let stop = json!({"stop_reason": "blocker", "details": "no network"});
    let script = format!("write half.md x\ntool stop_work {stop}\nfail 0\nresume-here\nsay on\n");
    let mut command = home.command(&[
        "run", "--detach", "--agent", "echo", "--name", "stops", "--accept", "true", &script,
    ]);
    command.env("PATH", std::env::var_os("PATH").expect("a PATH"));
    assert!(command.output().expect("adj runs").status.success());
    let view = home.until_status("stops", "stopped");
    assert_eq!(
        view["checkpoint"]["changed_files"],
        json!(["half.md"]),
        "{view}"
    );
    assert!(
        view["acceptance"].is_null(),
        "what has not ended is not accepted"
    );
    home.ok(&["resume", "stops", "the network is back"]);
    let view = home.finished("stops");
    assert_eq!(
        (&view["outcome"], &view["acceptance"]["passed"]),
        (&json!("succeeded"), &json!(true))
    );
    assert!(home.log("stops").contains("Changed files: half.md"));
}

#[test]
fn acceptance_command_is_an_argv() {
    let home = TestHome::new();
    assert_ne!(
        home.adj(&[
            "run", "--detach", "--agent", "echo", "--accept", "sh 'open", "say x\n"
        ])
        .code,
        0
    );
    start(
        &home,
        "literal",
        Some("test '$HOME' = \"\\$HOME\""),
        "say x",
    );
    assert_eq!(
        home.finished("literal")["acceptance"]["passed"],
        false,
        "nothing is expanded and no backslash is taken away"
    );
}
