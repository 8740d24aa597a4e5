//! The fence of a run on a runner.

use super::Pair;
use super::repositories::with_repository;
use crate::fence::{assert_said, attempt, text};
use crate::support::TestHome;

/// Runs a script behind a fence on the runner. Returns its log.
fn fenced(pair: &Pair, name: &str, script: &str) -> String {
    let prompt: String = script.lines().map(|line| format!("do {line}\n")).collect();
    pair.hub.ok(&[
        "run",
        "--detach",
        "--agent",
        "sh",
        "--pool",
        "gpu",
        "--name",
        name,
        "--fence",
        "workspace",
        &prompt,
    ]);
    let view = pair.hub.finished(name);
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        pair.runner_log()
    );
    assert_eq!(
        (&view["fence"]["asked"], &view["fence"]["enforced"]),
        (&"workspace".into(), &"mount_namespace".into()),
        "{view}"
    );
    pair.hub.ok(&["logs", name])
}

#[test]
fn fence_on_a_runner_hides_its_secrets_and_protects_its_files() {
    let pair = with_repository(Pair::new("60s"));
    let outside = TestHome::new();
    let (home, token) = (text(&pair.there.home.dir), text(&pair.token_file()));
    let script = [
        attempt("inside", "echo 2 > one.txt && echo x > /tmp/mine"),
        attempt(
            "outside",
            &format!("echo x > {}/new", text(&outside.work())),
        ),
        attempt("home", &format!("echo x > {home}/new")),
        attempt(
            "identity",
            &format!("cat {}", text(&pair.there.home.runner_identity())),
        ),
        attempt("token", &format!("cat {token}")),
        attempt("system", "cat /etc/passwd"),
    ];
    let log = fenced(&pair, "tries", &script.concat());
    let expected = [
        ("inside", true),
        ("outside", false),
        ("home", false),
        ("identity", false),
        ("token", false),
        ("system", true),
    ];
    assert_said(&log, &expected);
    assert!(!outside.work().join("new").exists() && !pair.there.home.dir.join("new").exists());
    // The work is that of the run, as without a fence.
    pair.hub.ok(&["merge", "tries"]);
    assert_eq!(
        std::fs::read_to_string(pair.hub.work().join("one.txt")).expect("a file"),
        "2\n"
    );
}
