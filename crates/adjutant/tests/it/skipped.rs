//! The tests that cannot run here, listed by reason when all tests have ended.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, Once, PoisonError};

/// How many tests were skipped for each reason.
static SKIPPED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Counts a skipped test.
#[expect(
    unsafe_code,
    reason = "only the C library calls something when a test program ends"
)]
pub fn note(why: &str) {
    static LISTED_AT_EXIT: Once = Once::new();
    LISTED_AT_EXIT.call_once(|| {
        // SAFETY: the function stays loaded until the process has ended.
        assert_eq!(
            unsafe { libc::atexit(list) },
            0,
            "the skipped tests can be listed"
        );
    });
    *SKIPPED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(why.to_owned())
        .or_default() += 1;
}

/// Lists the reasons. It is called after the test harness, which captures the output of passing
/// tests.
extern "C" fn list() {
    let skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: String = skipped
        .iter()
        .map(|(why, tests)| {
            format!(
                "SKIPPED {tests} {}: {why}\n",
                if *tests == 1 { "test" } else { "tests" }
            )
        })
        .collect();
    // A panic must not leave this function, and nothing is left that could report a failure.
    drop(std::io::stderr().write_all(lines.as_bytes()));
}

#[test]
fn each_reason_is_listed_once_at_the_end() {
    let own = std::env::current_exe().expect("a test has a program");
    let mut tests = Command::new(own);
    tests
        .arg("vendors::bare")
        .env_remove("ADJ_CLIS")
        .env_remove("ADJ_REQUIRE_ALL");
    let ran = tests.output().expect("it starts");
    assert!(ran.status.success(), "{ran:?}");
    let err = String::from_utf8_lossy(&ran.stderr);
    let listed: Vec<&str> = err
        .lines()
        .filter(|line| line.starts_with("SKIPPED"))
        .collect();
    assert_eq!(
        listed,
        ["SKIPPED 4 tests: ADJ_CLIS names no directory with the vendors' CLIs; run .ci/clis"],
        "{err}"
    );
}
