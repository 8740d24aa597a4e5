//! Logs of ended attempts while the leader changes.

use super::Group;
use super::runs::Runner;

/// Runs an agent on a runner. The first hub, which leads, receives its log and is killed.
fn with_killed_hub(group: &Group) -> Runner {
    let [first, second] = &group.hubs;
    let runner = Runner::start(group);
    second.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "far",
        "say hello\ndone yes\n",
    ]);
    assert_eq!(second.finished("far")["outcome"], "succeeded");
    let logs = adjutant_home::logs::kept::AttemptLogs {
        home: first.home.dir.clone(),
        run_id: second.run_id("far"),
        attempt: 1,
    };
    first.until("the first hub has the log", || {
        logs.are_kept().expect("a record").then_some(())
    });
    group.kill_leader();
    group.until_leads(1);
    runner
}

#[test]
fn next_leader_reads_a_log_through_the_runner() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let runner = with_killed_hub(&group);
    assert!(second.log("far").contains("hello"));
    drop(runner);
    let refused = second.adj(&["logs", "far"]);
    assert!(
        refused.code == 6
            && refused
                .err
                .contains("the hub that was the leader then may have it"),
        "{refused:?}"
    );
    // The first hub has it, when it leads.
    group.until_standby(0);
    second.ok(&["stop"]);
    group.until_leads(0);
    assert!(first.log("far").contains("hello"));
}

#[test]
fn standby_hub_moves_the_logs_that_it_has_received() {
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
    let aside = store.path().with_extension("aside");
    std::fs::rename(store.path(), &aside).expect("the directory is moved");
    drop(with_killed_hub(&group));
    std::fs::rename(&aside, store.path()).expect("the directory is back");
    let refused = second.adj(&["logs", "far"]);
    assert!(refused.code == 6, "only the first hub has it: {refused:?}");
    group.until_standby(0);
    crate::log_store::until_moved(first, "far", 1);
    assert!(second.log("far").contains("hello"));
    let id = second.run_id("far");
    second.ok(&["rm", "far"]);
    assert!(!store.path().join(id).exists());
}
