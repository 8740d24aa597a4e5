//! Hubs and runners of different versions: each works with the one before, which `.ci/before` builds.

use super::Pair;
use super::repositories::with_repository;
use crate::support::skip;
use std::path::PathBuf;

/// Returns the binary of the version before. `None`: it was not built here.
fn before() -> Option<PathBuf> {
    let before = std::env::var_os("ADJ_BEFORE").map(PathBuf::from);
    if before.is_none() {
        skip("ADJ_BEFORE names no earlier adj; run .ci/before");
    }
    before
}

/// Runs one agent that asks, and one that changes a file, on the runner.
fn assert_works(pair: &Pair) {
    pair.start(
        "asks",
        "say the first line\nask \"Go on?\"\nsay the second line\ndone yes",
    );
    pair.until_status("asks", "waiting_parent_reply");
    assert!(pair.hub.ok(&["logs", "asks"]).contains("the first line"));
    pair.hub.ok(&["reply", "asks", "yes"]);
    let view = pair.hub.finished("asks");
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        pair.runner_log()
    );
    assert!(pair.hub.ok(&["logs", "asks"]).contains("the second line"));
    pair.hub.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "--pool",
        "gpu",
        "-n",
        "makes",
        "do echo 2 > one.txt",
    ]);
    let view = pair.hub.finished("makes");
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        pair.runner_log()
    );
    pair.hub.ok(&["merge", "makes"]);
    assert_eq!(
        std::fs::read_to_string(pair.hub.work().join("one.txt")).expect("a file"),
        "2\n"
    );
    pair.hub.ok(&["rm", "makes"]);
}

/// Ends the runner as a user does, and waits for it.
fn drain(mut pair: Pair) {
    pair.signal_runner(rustix::process::Signal::TERM);
    let status = pair
        .runner
        .take()
        .expect("a runner")
        .wait()
        .expect("it ends");
    assert!(status.success(), "{status}: {}", pair.runner_log());
}

#[test]
fn runner_before_works_with_this_hub() {
    let Some(before) = before() else { return };
    for pair in [Pair::without_runner("60s"), Pair::with_tls("60s", None)] {
        let mut pair = with_repository(pair);
        pair.there.program.clone_from(&before);
        pair.start_runner();
        assert_works(&pair);
        drain(pair);
    }
}

#[test]
fn hub_before_works_with_this_runner() {
    let Some(before) = before() else { return };
    for has_tls in [false, true] {
        let mut pair = with_repository(Pair::of_hub("60s", "", Some(before.clone()), has_tls));
        pair.start_runner();
        assert_works(&pair);
        drain(pair);
    }
}

#[test]
fn run_on_a_runner_continues_while_its_hub_is_updated_and_then_its_runner() {
    let Some(before) = before() else { return };
    let mut pair = with_repository(Pair::with_tls("60s", Some(before.clone())));
    let now = std::mem::replace(&mut pair.there.program, before);
    pair.start_runner();
    pair.start(
        "long",
        "say begun\nask \"First?\"\nask \"Second?\"\nsay ended\ndone yes",
    );
    pair.until_status("long", "waiting_parent_reply");
    pair.kill_hub();
    pair.hub.program.clone_from(&now);
    pair.revive_hub();
    pair.hub.ok(&["reply", "long", "yes"]);
    pair.until("it asks again", || {
        pair.hub.inbox(&[])[0]["question"]
            .as_str()
            .filter(|question| *question == "Second?")
            .map(drop)
    });
    pair.kill_runner();
    pair.there.program = now;
    pair.start_runner();
    pair.hub.ok(&["reply", "long", "yes"]);
    let view = pair.hub.finished("long");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&"succeeded".into(), &1.into()),
        "{view}\n{}",
        pair.runner_log()
    );
    assert!(pair.hub.ok(&["logs", "long"]).contains("ended"));
    assert_works(&pair);
    drain(pair);
}

/// Installs a Claude Code on the runner's machine that reports this version, and otherwise that it is done.
fn install_claude(pair: &Pair, version: &str) -> std::path::PathBuf {
    let bin = pair.there.work().join("bin");
    std::fs::create_dir_all(&bin).expect("a directory");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo '{version} (Claude Code)'\necho x >> {}/started\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done\"}}'\n",
        bin.display()
    );
    let program = bin.join("claude");
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("executable");
    bin
}

#[test]
fn outdated_program_on_a_runner_is_not_started() {
    let mut pair = Pair::without_runner("60s");
    let bin = install_claude(&pair, "2.1.298");
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").expect("a PATH")
    );
    pair.start_runner_with(|command| {
        command.env("PATH", path);
    });
    let run = |name: &str, agents: &str| {
        // The hub's machine has no such program.
        pair.hub.ok(&[
            "run",
            "-d",
            "-a",
            agents,
            "--pool",
            "gpu",
            "-n",
            name,
            "say hello",
        ]);
        pair.hub.finished(name)
    };
    let view = run("old", "claude");
    assert_eq!(
        (&view["status"], &view["outcome"]),
        (&"error".into(), &"failed".into()),
        "{view}"
    );
    let reason = view["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("too old")
            && reason.contains("2.1.298 is too old to be started, 2.1.299 is needed"),
        "{view}"
    );
    assert!(
        reason.contains("update it: claude update") && !bin.join("started").exists(),
        "{view}"
    );
    // The next agent of the run takes over.
    let view = run("other", "claude,echo");
    assert_eq!(
        (&view["outcome"], &view["agent"]),
        (&"succeeded".into(), &"echo".into()),
        "{view}"
    );
    install_claude(&pair, "2.1.299");
    let view = run("new", "claude");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert!(bin.join("started").exists());
}
