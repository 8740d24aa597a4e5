//! A connection between hubs that dies without a word: a machine that vanishes closes nothing.

use super::Pair;
use crate::support::{is_root, skip};
use std::process::Command;
use std::time::{Duration, Instant};

/// Set in the network namespace of the test.
const INSIDE: &str = "ADJ_TEST_IN_NAMESPACE";
/// Far below the 70 seconds after which a call without a reply fails, and far above the silence of
/// a connection.
const NOTICED_MAX: Duration = Duration::from_secs(50);

#[test]
fn followed_chat_notices_a_connection_that_is_silently_gone() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if !is_root("a network namespace is created") {
        return;
    }
    if !["unshare", "ip"]
        .into_iter()
        .all(|program| Command::new(program).arg("--help").output().is_ok())
    {
        return skip("unshare or ip is not installed");
    }
    let name = "peers::silence::followed_chat_notices_a_connection_that_is_silently_gone";
    let program = std::env::current_exe().expect("a test program");
    let done = Command::new("unshare")
        .arg("--net")
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("it starts");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

fn set_loopback(state: &str) {
    let done = Command::new("ip")
        .args(["link", "set", "lo", state])
        .output()
        .expect("ip starts");
    assert!(done.status.success(), "{done:?}");
}

fn inside() {
    set_loopback("up");
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "shall we start?"]);
    // From now on, the lab waits for the next entry, for up to 50 seconds.
    Pair::until_said(&pair.lab, &[("peer:office/person", "shall we start?")]);
    set_loopback("down");
    let began = Instant::now();
    pair.lab.until("the loss is noticed", || {
        pair.lab.json(&["chat", "show", "1"])["chat"]["followed"]["problem"]
            .as_str()
            .map(ToOwned::to_owned)
    });
    let noticed = began.elapsed();
    assert!(noticed < NOTICED_MAX, "{noticed:?}");
    set_loopback("up");
    pair.office.ok(&["chat", "post", "1", "here again"]);
    Pair::until_said(
        &pair.lab,
        &[
            ("peer:office/person", "shall we start?"),
            ("peer:office/person", "here again"),
        ],
    );
}
