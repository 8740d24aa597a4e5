//! The database is replaced by an earlier dump of itself: hubs, callers and runners learn of it,
//! and no run stays live without an agent.

use super::runs::Runner;
use super::{Group, texts};
use crate::postgres::set_back;
use crate::support::{TestHome, kill};
use adjutant_api::view::{ReadEvents, Wait};
use serde_json::Value;

impl Group {
    fn kill_both(&self) {
        let pids = [0, 1].map(|n| self.hub(n).pid);
        pids.into_iter().for_each(kill);
        self.hubs[0].until("both are dead", || {
            pids.iter()
                .all(|pid| !TestHome::is_alive(*pid))
                .then_some(())
        });
    }
}

fn cursor(home: &TestHome) -> i64 {
    home.call(&Wait::default(), "").expect("a position").cursor
}

/// Waits until a hub says that its database was set back, where a person looks.
fn until_said(home: &TestHome) {
    let says = |args: &[&str]| home.adj(args).out.contains("was set back");
    home.until("doctor says so", || says(&["doctor"]).then_some(()));
    home.until("the inbox says so", || {
        let inbox = home.adj(&["inbox"]);
        (inbox.out.clone() + &inbox.err)
            .contains("was set back")
            .then_some(())
    });
}

/// Starts a run on a runner.
fn start(home: &TestHome, name: &str, script: &str) {
    home.ok(&["run", "--detach", "--agent", "echo", "--name", name, script]);
}

fn questions(home: &TestHome) -> Vec<String> {
    home.inbox(&[])
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|request| request["number"].as_str().map(ToOwned::to_owned))
        .collect()
}

#[test]
fn database_that_is_set_back_begins_an_era() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let _runner = Runner::start(&group);
    first.ok(&["chat", "start", "plans"]);
    second.ok(&["chat", "post", "1", "kept"]);
    start(first, "early", "ask \"Kept?\"\ndone yes");
    first.until("it asks", || (questions(first) == ["Q1"]).then_some(()));
    let kept = cursor(first);
    let dump = group.server.dump("hub");
    second.ok(&["chat", "post", "1", "lost"]);
    start(first, "late", "ask \"Lost?\"\ndone yes");
    first.until("it asks", || {
        (questions(first) == ["Q1", "Q2"]).then_some(())
    });
    let lost = cursor(first);
    let pids = [0, 1].map(|n| group.hub(n).pid);
    set_back(&group.server, "hub", &dump);
    for home in [first, second] {
        until_said(home);
    }
    let logs =
        [first, second].map(|home| std::fs::read_to_string(home.home.hub_log()).expect("a log"));
    assert_eq!(
        [0, 1].map(|n| group.hub(n).pid),
        pids,
        "no hub has ended: {logs:#?}"
    );
    for log in logs {
        assert!(
            log.matches("with a new era").count() <= 2
                && log.matches("the database was set back, for").count() <= 1,
            "{log}"
        );
    }
    // Positions and numbers of what is lost are named as such.
    let read = |after| {
        second
            .call(
                &ReadEvents {
                    after,
                    ..ReadEvents::default()
                },
                "",
            )
            .expect("events")
    };
    assert!(read(lost).reset && !read(kept).reset && !read(read(lost).cursor).reset);
    let waited = second
        .call(
            &Wait {
                after: Some(lost),
                ..Wait::default()
            },
            "",
        )
        .expect("a reply");
    assert!(waited.reset);
    let reply = second.adj(&["reply", "Q2", "yes"]);
    assert!(
        reply.code != 0
            && reply
                .err
                .contains("lost when the database of the hub was set back"),
        "{reply:?}"
    );
    assert_eq!(texts(second), ["kept"]);
    let shown = first.json(&["chat", "show", "1", "--after", "2"]);
    assert_eq!(shown["reset"], true, "{shown}");
    let shown = second.adj(&["chat", "show", "1", "--after", "2"]);
    assert!(
        (shown.out.clone() + &shown.err).contains("messages that you have seen are lost"),
        "{shown:?}"
    );
    // Everything goes on, with numbers that nobody has seen.
    second.ok(&["chat", "post", "1", "new"]);
    let chat = first.json(&["chat", "show", "1", "--after", "1"]);
    let seq = chat["messages"][0]["seq"]
        .as_i64()
        .unwrap_or_else(|| panic!("{chat}"));
    assert!(
        seq > 5_000 && chat["messages"][0]["text"] == "new" && chat["reset"] == Value::Null,
        "{chat}"
    );
    second.ok(&["reply", "Q1", "yes"]);
    assert_eq!(first.finished("early")["outcome"], "succeeded");
    start(first, "next", "ask \"New?\"\ndone yes");
    first.until("it asks", || (questions(first) == ["Q10001"]).then_some(()));
    second.ok(&["reply", "Q10001", "yes"]);
    assert_eq!(first.finished("next")["outcome"], "succeeded");
    assert!(cursor(first) > lost);
}

/// A restore drops the database first, and creates it again later.
#[test]
fn hubs_wait_for_a_database_that_is_missing() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    first.ok(&["chat", "start", "plans"]);
    second.ok(&["chat", "post", "1", "kept"]);
    let dump = group.server.dump("hub");
    let pids = [0, 1].map(|n| group.hub(n).pid);
    group.server.restore("earlier", &dump);
    group
        .server
        .sql("postgres", "DROP DATABASE hub WITH (FORCE)");
    // The first one is no longer the leader then.
    for home in [first, second] {
        home.until("it finds no database", || {
            std::fs::read_to_string(home.home.hub_log())
                .is_ok_and(|log| log.contains("cannot wait for leadership problem=\"database"))
                .then_some(())
        });
    }
    let problem = group.hub(1).store_problem;
    assert!(
        problem
            .as_ref()
            .is_some_and(|problem| problem.contains("does not exist")),
        "{problem:?}"
    );
    group
        .server
        .sql("postgres", "ALTER DATABASE earlier RENAME TO hub");
    second.ok(&["chat", "post", "1", "new"]);
    assert_eq!(texts(first), ["kept", "new"]);
    assert_eq!([0, 1].map(|n| group.hub(n).pid), pids, "no hub has ended");
}

/// All hubs are killed before the database is set back, so nobody remembers anything but in the
/// homes.
#[test]
fn database_that_is_set_back_while_no_hub_runs_is_noticed() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    first.ok(&["chat", "start", "plans"]);
    let dump = group.server.dump("hub");
    second.ok(&["chat", "post", "1", "lost"]);
    // The second hub knows it from the leader.
    second.until("it is noted", || {
        let note = |home: &TestHome| {
            std::fs::read(home.home.confirmed())
                .map(|bytes| String::from_utf8_lossy(&bytes).contains("\"chat_messages\":1"))
        };
        (note(first).unwrap_or(false) && note(second).unwrap_or(false)).then_some(())
    });
    group.kill_both();
    set_back(&group.server, "hub", &dump);
    second.ok(&["ps"]);
    until_said(second);
    second.ok(&["chat", "post", "1", "new"]);
    assert_eq!(texts(second), ["new"]);
    // The first one comes back to a store of the new era.
    first.ok(&["ps"]);
    assert_eq!(texts(first), ["new"]);
    let view = group.hub(0).set_back.expect("it was set back");
    assert_eq!(view.era, 1, "it is noticed once");
}

/// Only a runner knows: the hubs' homes are new.
#[test]
fn runner_tells_new_hubs_of_what_is_lost() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let runner = Runner::start(&group);
    start(
        first,
        "zombie",
        "say ready\nask \"Go on?\"\nsay over\ndone yes",
    );
    first.until("it asks", || (questions(first) == ["Q1"]).then_some(()));
    let dump = group.server.dump("hub");
    first.ok(&["reply", "Q1", "yes"]);
    assert_eq!(first.finished("zombie")["outcome"], "succeeded");
    // The runner learns it with the reply to its next call for work.
    start(first, "more", "done yes");
    first.finished("more");
    let note = runner.home.home.confirmed();
    let last = std::fs::read_to_string(&note).unwrap_or_default();
    first.until("the runner knows it", || {
        std::fs::read_to_string(&note)
            .ok()
            .filter(|text| !text.is_empty() && *text != last)
    });
    group.kill_both();
    for home in [first, second] {
        std::fs::remove_file(home.home.confirmed()).expect("removed");
    }
    set_back(&group.server, "hub", &dump);
    first.ok(&["ps"]);
    until_said(first);
    // The run that has ended is live again in the database. Its runner says that its attempt is
    // over, so it can be cancelled.
    first.until_status("zombie", "stopped");
    first.ok(&["cancel", "zombie"]);
    assert_eq!(first.finished("zombie")["outcome"], "cancelled");
    start(first, "after", "ask \"New?\"\ndone yes");
    first.until("it asks", || {
        questions(first)
            .contains(&"Q10001".to_owned())
            .then_some(())
    });
    first.ok(&["reply", "Q10001", "yes"]);
    assert_eq!(first.finished("after")["outcome"], "succeeded");
}
