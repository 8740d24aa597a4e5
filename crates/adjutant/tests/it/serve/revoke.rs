//! A revoked token loses its connections.

use super::{Site, read_head};
use serde_json::json;
use std::io::Read;
use std::time::{Duration, Instant};

const CLOSED_WITHIN: Duration = Duration::from_secs(1);

#[test]
fn revoked_token_loses_its_waits_and_streams() {
    let site = Site::new();
    let (token, kept) = (site.token("one", &[]), site.token("two", &["--client", "one"]));
    let (caller, other) = (site.caller(&token), site.caller(&kept));
    caller.dispatch(&site.home.work(), "job", "sleep 600");
    site.home.until("it runs", || (site.home.show("job")["state"] == "running").then_some(()));
    let wait = json!({"runs": ["job"], "wait_ms": 600_000}).to_string();
    let mut lost = vec![caller.open("POST", "/api/v1/wait", &[], &wait), caller.open("GET", "/api/v1/events", &[], "")];
    let mut kept = other.open("GET", "/api/v1/events", &[], "");
    for stream in [&mut lost[1], &mut kept] {
        assert_eq!(read_head(stream).0, 200);
    }
    site.home.ok(&["token", "revoke", "one"]);
    let revoked = Instant::now();
    for stream in &mut lost {
        // Ends when the connection is closed, long before the wait.
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
    assert!(revoked.elapsed() < CLOSED_WITHIN, "{:?}", revoked.elapsed());
    assert_eq!(caller.post("runs", &json!({})).status, 401);
    let again = site.home.adj(&["token", "revoke", "one"]);
    assert!(again.code != 0, "{again:?}");
    // The other token of the same client stays valid.
    other.call("cancel", &json!({"run": "job"}));
    let mut text = String::new();
    while !text.contains("run.finished") {
        let mut bytes = [0; 256];
        let read = kept.read(&mut bytes).expect("the stream goes on");
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    assert!(
        site.home.json(&["token", "list", "--all"])["tokens"].as_array().is_some_and(|all| all.iter().any(|token| token["revoked_at"].is_string()))
    );
}
