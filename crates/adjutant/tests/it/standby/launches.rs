//! Launches of runners that are under way while the leader changes.

use super::Group;
use crate::support::TestHome;
use std::process::Stdio;

#[test]
fn launch_under_way_is_neither_lost_nor_doubled_when_the_leader_changes() {
    for failpoint in ["launch.before_command", "launch.after_command"] {
        let there = TestHome::new();
        let work = there.work();
        let script = format!(
            "echo \"$0\" >> {0}/launches; exec env ADJ_HOME={1} ADJ_FAILPOINT=pressure=/dev/null {2} runner $(cat {0}/join) \
             --token-file - --pool gpu --slots 2 --idle-exit 5s 2>> {0}/runner.log",
            work.display(),
            there.home.dir.display(),
            env!("CARGO_BIN_EXE_adj")
        );
        let launch = serde_json::to_string(&["/bin/sh", "-c", &script, "{name}"]).expect("a list");
        let pool = format!(
            "[pools.gpu]\nslots = 4\nrunners = true\nlaunch_max = 2\nlaunch_timeout = \"10s\"\nlaunch = {launch}\n"
        );
        let Some(group) = Group::without_hubs(&pool) else {
            return;
        };
        let [first, second] = &group.hubs;
        std::fs::write(
            work.join("join"),
            group
                .urls
                .iter()
                .map(|url| format!("--join {url} "))
                .collect::<String>(),
        )
        .expect("written");
        let fired = work.join("fired");
        let mut hub = first.command(&["__hub"]);
        hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", fired.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut hub = hub.spawn().expect("a hub");
        group.until_leads(0);
        group.until_standby(1);
        second.ok(&[
            "run",
            "--detach",
            "--agent",
            "echo",
            "--pool",
            "gpu",
            "--name",
            "one",
            "done yes\n",
        ]);
        assert!(
            !hub.wait().expect("it dies").success() && fired.exists(),
            "{failpoint}"
        );
        group.until_leads(1);
        let view = second.finished("one");
        assert_eq!(
            (&view["outcome"], &view["attempt"]),
            (&"succeeded".into(), &1.into()),
            "{failpoint}: {view}"
        );
        let launches = std::fs::read_to_string(work.join("launches")).expect("a launch");
        let logs = [
            work.join("runner.log"),
            first.home.hub_log(),
            second.home.hub_log(),
        ]
        .map(|log| std::fs::read_to_string(log).unwrap_or_default());
        assert_eq!(
            launches.lines().count(),
            1,
            "{failpoint}: {}",
            logs.join("\n")
        );
        let tokens = || {
            second.json(&["token", "list"])["tokens"]
                .as_array()
                .expect("a list")
                .len()
        };
        second.until("the token of the launched runner is revoked", || {
            (tokens() == 0).then_some(())
        });
    }
}
