//! What an administrator of PostgreSQL does: hubs wait and go on, and no call and no run fails
//! because of it.

use super::Group;
use crate::postgres::{set_read_only, until_logged};
use crate::support::kill;

/// Checks that the hubs are still these processes.
fn assert_none_has_ended(group: &Group, pids: [u32; 2]) {
    for (home, pid) in group.hubs.iter().zip(pids) {
        let hub = home.until("the hub answers", || {
            home.call(&adjutant_api::view::GetHub {}, "").ok()
        });
        assert_eq!(
            hub.pid,
            pid,
            "a hub has ended: {}",
            std::fs::read_to_string(home.home.hub_log()).unwrap_or_default()
        );
    }
}

#[test]
fn read_only_server_is_waited_for() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let pids = [0, 1].map(|n| group.hub(n).pid);
    first.ok(&["chat", "start", "plans"]);
    set_read_only(&group.server, true);
    std::thread::scope(|scope| {
        let posting = [first, second]
            .map(|home| scope.spawn(|| home.adj(&["chat", "post", "1", "from one of them"])));
        until_logged(first, "the server is read-only");
        assert!(
            posting.iter().all(|posting| !posting.is_finished()),
            "nothing can be acknowledged"
        );
        set_read_only(&group.server, false);
        for posting in posting {
            let posted = posting.join().expect("adj ends");
            assert_eq!(posted.code, 0, "{posted:?}");
        }
    });
    assert_eq!(super::texts(second).len(), 2);
    assert_none_has_ended(&group, pids);
    let log = std::fs::read_to_string(first.home.hub_log()).expect("a log");
    assert!(log.matches("the server is read-only").count() < 5, "{log}");
}

/// The server becomes read-only between winning the lock and beginning to lead.
#[test]
fn hub_that_cannot_begin_to_lead_goes_on() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    first.ok(&["chat", "start", "plans"]);
    let (leader, standby) = (group.hub(0).pid, group.hub(1).pid);
    set_read_only(&group.server, true);
    kill(leader);
    until_logged(second, "this hub cannot begin to lead");
    set_read_only(&group.server, false);
    second.ok(&["chat", "post", "1", "by the second"]);
    group.until_leads(1);
    assert_eq!(group.hub(1).pid, standby, "it has not ended");
}

#[test]
fn timeouts_of_a_role_end_no_hub() {
    let Some(group) = Group::without_hubs("") else {
        return;
    };
    let mut settings = vec![
        "statement_timeout",
        "lock_timeout",
        "idle_session_timeout",
        "idle_in_transaction_session_timeout",
    ];
    if group.server.sql(
        "postgres",
        "SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'",
    ) == "1"
    {
        settings.push("transaction_timeout");
    }
    for setting in settings {
        group.server.sql(
            "postgres",
            &format!("ALTER ROLE adj SET {setting} = '150ms'"),
        );
    }
    group.hubs[0].ok(&["ps"]);
    group.until_standby(1);
    let pids = [0, 1].map(|n| group.hub(n).pid);
    group.hubs[1].ok(&["chat", "start", "plans"]);
    // A statement that takes longer than the role's timeout: it waits for a lock.
    let locking = "BEGIN; LOCK chat_messages IN EXCLUSIVE MODE; SELECT pg_sleep(0.5); COMMIT";
    std::thread::scope(|scope| {
        let mut lock = group.server.psql("hub");
        let locked = scope.spawn(move || {
            lock.args(["-c", "SET statement_timeout = 0", "-c", locking])
                .output()
        });
        let held = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 'chat_messages' AND l.mode = 'ExclusiveLock'";
        group.hubs[0].until("the table is locked", || {
            (locked.is_finished() || group.server.sql("hub", held) != "0").then_some(())
        });
        group.hubs[1].ok(&["chat", "post", "1", "in spite of it"]);
        locked.join().expect("psql ends").expect("psql starts");
    });
    assert_eq!(super::texts(&group.hubs[0]), ["in spite of it"]);
    assert_none_has_ended(&group, pids);
}

#[test]
fn cancelled_and_terminated_statements_are_done_again() {
    let Some(group) = Group::new() else { return };
    let [first, second] = &group.hubs;
    let pids = [0, 1].map(|n| group.hub(n).pid);
    first.ok(&["chat", "start", "plans"]);
    let mut posts = 0;
    for storm in ["pg_cancel_backend", "pg_terminate_backend"] {
        let all = format!(
            "SELECT count({storm}(pid)) FROM pg_stat_activity WHERE datname = 'hub' AND pid <> pg_backend_pid()"
        );
        for home in [first, second, first, second] {
            std::thread::scope(|scope| {
                let posting = scope.spawn(|| home.adj(&["chat", "post", "1", "in the storm"]));
                let listing = scope.spawn(|| home.adj(&["--json", "ps", "-a"]));
                for _ in 0..3 {
                    group.server.sql("hub", &all);
                }
                for called in [posting, listing] {
                    let called = called.join().expect("adj ends");
                    assert_eq!(called.code, 0, "{storm}: {called:?}");
                }
            });
            posts += 1;
        }
    }
    assert_eq!(super::texts(second).len(), posts, "each once");
    assert_none_has_ended(&group, pids);
}

/// An administrator ends the session that writes. The standby hub has the lock at once, and the
/// calls of the leader are repeated there.
#[test]
fn calls_of_a_leader_whose_session_is_ended_reach_the_next() {
    let Some(group) = Group::new() else { return };
    let pids = [0, 1].map(|n| group.hub(n).pid);
    group.hubs[0].ok(&["chat", "start", "plans"]);
    let holder = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    for round in 0..4 {
        let (leader, standby) = (round % 2, 1 - round % 2);
        group.until_standby(standby);
        assert_eq!(group.server.sql("hub", holder), "1");
        let posted = group.hubs[leader].adj(&["chat", "post", "1", "after the end of the session"]);
        assert_eq!(
            posted.code,
            0,
            "{posted:?}\n{}",
            std::fs::read_to_string(group.hubs[leader].home.hub_log()).unwrap_or_default()
        );
        group.until_leads(standby);
    }
    assert_eq!(super::texts(&group.hubs[1]).len(), 4, "each once");
    assert_none_has_ended(&group, pids);
}

/// A standby hub that comes before the store has tables passes calls as soon as there is a leader.
#[test]
fn hubs_that_start_together_on_an_empty_database_pass_calls_at_once() {
    let Some(group) = Group::without_hubs("") else {
        return;
    };
    std::thread::scope(|scope| {
        let calls: Vec<_> = group
            .hubs
            .iter()
            .map(|home| scope.spawn(|| home.adj(&["ps"])))
            .collect();
        for call in calls {
            let called = call.join().expect("adj ends");
            assert_eq!(called.code, 0, "{called:?}");
        }
    });
    for home in &group.hubs {
        home.ok(&["ps"]);
    }
}
