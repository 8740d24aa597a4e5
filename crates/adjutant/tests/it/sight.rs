//! The tests can see the processes that they look for, as any user.

use crate::support::{TestHome, kill, lock_pid};
use adjutant_os::process::Lock;
use std::panic::{AssertUnwindSafe, catch_unwind};

const ADJ: &str = env!("CARGO_BIN_EXE_adj");

/// An agent that leaves an orphan with another name, in another session and directory, with an
/// empty environment.
const HIDES: &str = "containment = \"subreaper\"\n[agents.hider]\nharness = \"plain\"\n\
    command = [\"/bin/bash\", \"-c\", \"(cd / && setsid env -i bash -c 'exec -a hidden sleep 600' > /dev/null 2>&1 < /dev/null &); echo ready; sleep 600\"]\n";

#[test]
fn hiding_orphan_is_attributed_to_its_run() {
    let home = TestHome::with_config(HIDES);
    home.start_agent("hider", "hider", "go");
    home.until_log("hider", "ready");
    let (id, dir) = (home.run_id("hider"), home.attempt_dir("hider"));
    let is_hidden = |processes: Vec<(u32, String)>| {
        processes.iter().any(|(_, line)| line.starts_with("hidden"))
    };
    home.until("it is seen below its supervisor", || {
        is_hidden(home.processes_of(&id)).then_some(())
    });
    home.ok(&["stop"]);
    let (guard, supervisor) = (
        lock_pid(&dir.guard_lock()),
        lock_pid(&dir.supervisor_lock()),
    );
    kill(guard);
    kill(supervisor);
    home.until("both are gone", || {
        (!TestHome::is_alive(guard) && !TestHome::is_alive(supervisor)).then_some(())
    });
    assert!(is_hidden(home.processes_of(&id)), "{:?}", home.processes());
}

#[test]
fn hub_guard_and_supervisor_are_found_and_attributed() {
    let home = TestHome::new();
    home.start("asker", "ask \"Go on?\"");
    home.start("other", "ask \"Go on?\"");
    for run in ["asker", "other"] {
        home.until_status(run, "waiting_parent_reply");
    }
    let (id, dir) = (home.run_id("asker"), home.attempt_dir("asker"));
    let all: Vec<u32> = home.processes().into_iter().map(|(pid, _)| pid).collect();
    let of_run: Vec<u32> = home
        .processes_of(&id)
        .into_iter()
        .map(|(pid, _)| pid)
        .collect();
    for pid in [
        lock_pid(&dir.guard_lock()),
        lock_pid(&dir.supervisor_lock()),
    ] {
        assert!(
            all.contains(&pid) && of_run.contains(&pid),
            "{pid}: {:?}",
            home.processes()
        );
    }
    let other = lock_pid(&home.attempt_dir("other").supervisor_lock());
    for pid in [home.hub_pid(), other] {
        assert!(
            all.contains(&pid) && !of_run.contains(&pid),
            "{pid}: {:?}",
            home.processes()
        );
    }
}

#[test]
fn lock_holder_that_cannot_be_seen_fails_the_test() {
    let home = TestHome::new();
    let lock = Lock::try_take(&home.home.dir, &home.home.hub_lock())
        .expect("the lock can be opened")
        .expect("the lock is free");
    lock.write_pid(rustix::process::getpid())
        .expect("the lock can be written");
    let looked = catch_unwind(AssertUnwindSafe(|| home.processes()));
    drop(lock);
    let message = looked.expect_err("the holder of the lock is not found");
    assert!(
        message
            .downcast_ref::<String>()
            .is_some_and(|text| text.contains("was not found"))
    );
}

#[test]
fn hub_sweeps_a_hiding_orphan_of_its_run() {
    let home = TestHome::with_config(HIDES);
    home.start_agent("hider", "hider", "go");
    home.until_log("hider", "ready");
    let (id, dir) = (home.run_id("hider"), home.attempt_dir("hider"));
    home.until("the orphan is there", || {
        home.processes_of(&id)
            .iter()
            .any(|(_, line)| line.starts_with("hidden"))
            .then_some(())
    });
    kill(lock_pid(&dir.guard_lock()));
    kill(lock_pid(&dir.supervisor_lock()));
    home.until("nothing of the run is left", || {
        home.processes_of(&id).is_empty().then_some(())
    });
    assert_eq!(
        home.until_status("hider", "stopped")["reason"],
        "supervisor_lost"
    );
}

#[test]
fn hiding_orphan_is_not_the_person() {
    let home = TestHome::new();
    let go = home.work().join("go");
    let call = format!(
        "until [ -e {} ]; do sleep 0.01; done; ADJ_HOME={} {ADJ} reply victim yes",
        go.display(),
        home.home.dir.display()
    );
    let hide = format!(
        "(cd / && setsid env -i /bin/bash -c '{call}' > {}/said 2>&1 < /dev/null &); echo ready; sleep 600",
        home.work().display()
    );
    let config = format!(
        "containment = \"subreaper\"\n[agents.hider]\nharness = \"plain\"\ncommand = [\"/bin/bash\", \"-c\", {hide:?}]\n"
    );
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    home.start("victim", "ask \"Shall I?\"\ndone");
    home.until_status("victim", "waiting_parent_reply");
    home.start_agent("hider", "hider", "go");
    home.until_log("hider", "ready");
    let (id, dir) = (home.run_id("hider"), home.attempt_dir("hider"));
    home.ok(&["stop"]);
    kill(lock_pid(&dir.guard_lock()));
    kill(lock_pid(&dir.supervisor_lock()));
    // Its call starts the hub that sweeps it, so it is either swept first or refused.
    std::fs::write(&go, "").expect("a file");
    home.until("nothing of the run is left", || {
        home.processes_of(&id).is_empty().then_some(())
    });
    let said = std::fs::read_to_string(home.work().join("said")).unwrap_or_default();
    assert_eq!(
        home.show("victim")["status"],
        "waiting_parent_reply",
        "{said}"
    );
}
