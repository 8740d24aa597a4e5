//! What a run's processes use of the machine.

use crate::support::TestHome;

/// The block that the heavy agent keeps in memory.
const BLOCK: u64 = 64 << 20;
const HEAVY: &str = "[agents.heavy]\nharness = \"plain\"\ncommand = [\"sh\", \"-c\", \"dd if=/dev/zero bs=64M count=2 2>/dev/null | (cat gate; cat >/dev/null)\"]\n";

#[test]
fn resource_use_is_shown_during_and_after_a_run() {
    let home = TestHome::with_config(HEAVY);
    let gate = home.work().join("gate");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &gate,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    home.start_agent("heavy", "job", "work");
    let live = home.until("it is measured", || {
        home.show("job")
            .get("resources")
            .filter(|found| found["processes"] != 0)
            .cloned()
    });
    assert!(
        live["memory_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes >= BLOCK),
        "{live}"
    );
    assert!(
        live["processes"].as_u64().is_some_and(|number| number >= 3),
        "{live}"
    );
    let shown = home.ok(&["show", "job"]);
    assert!(
        shown.contains(" of memory (peak ") && shown.contains(" CPU time"),
        "{shown}"
    );

    std::fs::write(&gate, "go on\n").expect("the agent reads");
    let ended = home.finished("job")["resources"].clone();
    assert_eq!(
        (
            &ended["processes"],
            &ended["memory_bytes"],
            &ended["cpu_percent"]
        ),
        (&0.into(), &0.into(), &0.into()),
        "{ended}"
    );
    assert!(
        ended["memory_peak_bytes"].as_u64() >= live["memory_bytes"].as_u64(),
        "{ended}, before: {live}"
    );
    assert!(
        ended["cpu_ms"].as_u64() > Some(0) && ended["cpu_ms"].as_u64() >= live["cpu_ms"].as_u64(),
        "{ended}, before: {live}"
    );
    assert!(
        home.ok(&["show", "job"]).contains("memory peak "),
        "the peak remains"
    );
}

#[test]
fn attempts_add_up() {
    let home = TestHome::new();
    home.start(
        "job",
        "tool stop_work {\"stop_reason\": \"blocker\", \"blocker_type\": \"missing_info\", \"details\": \"later\"}\nfail 0\nresume-here\ndone fine",
    );
    let first = home.until_status("job", "stopped")["resources"].clone();
    assert!(first["cpu_ms"].as_u64() > Some(0), "{first}");
    home.ok(&["resume", "job", "go on"]);
    let both = home.finished("job")["resources"].clone();
    assert!(
        both["cpu_ms"].as_u64() > first["cpu_ms"].as_u64(),
        "{both}, before: {first}"
    );
    assert!(
        both["memory_peak_bytes"].as_u64() >= first["memory_peak_bytes"].as_u64(),
        "{both}, before: {first}"
    );
}

#[test]
fn run_above_its_memory_limit_is_stopped_with_a_checkpoint() {
    let home = TestHome::with_config(&format!("{HEAVY}memory = \"48MB\"\n"));
    let gate = home.work().join("gate");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &gate,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    assert!(home.ok(&["config", "show"]).contains("memory = \"48MB\"\n"));
    home.start_agent("heavy", "job", "work");
    let stopped = home.until_status("job", "stopped");
    assert!(
        stopped["reason"]
            .as_str()
            .is_some_and(|reason| reason.starts_with("memory_limit")),
        "{stopped}"
    );
    assert_eq!(
        (&stopped["end_reason"], &stopped["attention"]["kind"]),
        (&"limit".into(), &"stopped".into()),
        "{stopped}"
    );
    let why = stopped["attention"]["details"].as_str().unwrap_or_default();
    let used = why
        .strip_prefix("It left no checkpoint: its processes used ")
        .and_then(|rest| rest.strip_suffix(" MB of memory, above the agent's limit of 48MB"));
    assert!(
        used.and_then(|used| used.parse().ok())
            .is_some_and(|used: u64| used > 48),
        "{stopped}"
    );
    assert!(home.ok(&["ps"]).contains("memory limit"));
    home.ok(&["cancel", "job"]);
}

#[test]
fn unusable_amount_of_memory_is_refused() {
    let home = TestHome::with_config(
        "[agents.heavy]\nharness = \"plain\"\ncommand = [\"true\"]\nmemory = \"lots\"\n",
    );
    let refused = home.adj(&["run", "-a", "heavy", "work"]);
    assert!(
        refused.code == 2
            && refused.err.contains("memory")
            && refused.err.contains("write 512MB, 4GB or 2GiB"),
        "{refused:?}"
    );
}
