//! The work of runs whose repository is on the machine of one hub.

use super::Group;
use super::runs::Runner;
use crate::changes::git;
use serde_json::Value;

#[test]
fn work_arrives_when_the_hub_with_the_repository_leads_again() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let work = first.work();
    git(&work, &["init", "-q"]);
    for (name, value) in [("user.name", "User"), ("user.email", "user@example.org")] {
        git(&work, &["config", name, value]);
    }
    std::fs::write(work.join("one.txt"), "1\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "first"]);
    let runner = Runner::start_with(&group, |command| {
        command.env("ADJ_FAILPOINT", "unsent=1500");
    });
    let go = runner.home.work().join("go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a fifo");
    let script = format!(
        "write first.txt x\nsay ready\njournal {} go\nwrite second.txt x\ndone yes\n",
        go.display()
    );
    first.ok(&[
        "run", "--detach", "--agent", "echo", "--name", "far", &script,
    ]);
    first.until("it works", || {
        first
            .adj(&["logs", "far"])
            .out
            .contains("ready")
            .then_some(())
    });
    group.kill_leader();
    group.until_leads(1);
    // The repository is not on the machine of the second hub.
    let (git_dir, away) = (work.join(".git"), work.join(".git-away"));
    std::fs::rename(&git_dir, &away).expect("moved");
    std::fs::read_to_string(&go).expect("the agent writes");
    let problem = || {
        second.show("far")["snapshot_problem"]
            .as_str()
            .filter(|problem| problem.contains("is gone"))
            .map(ToOwned::to_owned)
    };
    second.until("the reason is shown", problem);
    let view = second.finished("far");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&Value::from("succeeded"), &Value::from(1)),
        "it ends without its work: {view}"
    );
    group.until_standby(0);
    second.ok(&["stop"]);
    group.until_leads(0);
    std::fs::rename(&away, &git_dir).expect("moved back");
    first.until("the work is there", || {
        let diff = first.adj(&["diff", "far"]).out;
        (diff.contains("first.txt") && diff.contains("second.txt")).then_some(())
    });
}
