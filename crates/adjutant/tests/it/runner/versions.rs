//! Versions of agents' programs on the machine of a runner.

use super::Pair;

/// Installs a Claude Code on the runner's machine that reports this version, and otherwise that it
/// is done.
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
