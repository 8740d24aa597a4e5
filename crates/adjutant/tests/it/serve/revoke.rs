//! A revoked token loses its connections.

use super::mcp::open_modern;
use super::sessions::{Client, Events};
use super::{Caller, Site, read_head};
use serde_json::{Value, json};
use std::io::{self, Read};
use std::time::{Duration, Instant};

const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Reads until the connection is closed.
fn read_to_close(stream: &mut impl Read) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
    rest
}

#[test]
fn revoked_token_loses_its_waits_and_streams() {
    let site = Site::new();
    let (token, kept) = (
        site.token("one", &[]),
        site.token("two", &["--client", "one"]),
    );
    let (caller, other) = (site.caller(&token), site.caller(&kept));
    caller.dispatch(&site.home.work(), "job", "sleep 600");
    site.home.until("it runs", || {
        (site.home.show("job")["state"] == "running").then_some(())
    });
    let wait = json!({"runs": ["job"], "wait_ms": 600_000}).to_string();
    let mut lost = vec![
        caller.open("POST", "/api/v1/wait", &[], &wait),
        caller.open("GET", "/api/v1/events", &[], ""),
    ];
    let mut kept = other.open("GET", "/api/v1/events", &[], "");
    for stream in [&mut lost[1], &mut kept] {
        assert_eq!(read_head(stream).0, 200);
    }
    site.home.ok(&["token", "revoke", "one"]);
    let revoked = Instant::now();
    for stream in &mut lost {
        // Long before the wait.
        read_to_close(stream);
    }
    assert!(revoked.elapsed() < CLOSE_MAX, "{:?}", revoked.elapsed());
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
        site.home.json(&["token", "list", "--all"])["tokens"]
            .as_array()
            .is_some_and(|all| all.iter().any(|token| token["revoked_at"].is_string()))
    );
}

/// What a token has open of MCP, in both generations of the protocol.
struct Open {
    /// A call and the stream of a session.
    call: Events,
    stream: Events,
    /// A call and the changes that a client without a session has asked for.
    modern: [Events; 2],
}

impl Open {
    fn new(caller: &Caller) -> Self {
        let wait = json!({"run_ids": ["job"], "wait_s": 600});
        let client = Client::new(caller, json!({}));
        client.ask("resources/subscribe", json!({"uri": "run://job"}));
        let stream = client.stream(None);
        let mut call = client.call("wait_for_subagents", wait.clone());
        call.method("notifications/progress");
        let params = json!({"name": "wait_for_subagents", "arguments": wait});
        let listened = json!({"notifications": {"resourceSubscriptions": ["run://job"]}});
        let modern = [("tools/call", params), ("subscriptions/listen", listened)];
        // The head of a call comes before its result.
        let mut modern = modern
            .map(|(method, params)| Events::of(open_modern(caller, method, params, json!({}))));
        modern[1].method("notifications/subscriptions/acknowledged");
        Self {
            call,
            stream,
            modern,
        }
    }
}

#[test]
fn revoked_token_loses_its_sessions_of_mcp() {
    let site = Site::new();
    let (token, kept) = (
        site.token("one", &[]),
        site.token("two", &["--client", "one"]),
    );
    let (caller, other) = (site.caller(&token), site.caller(&kept));
    caller.dispatch(&site.home.work(), "job", "hang");
    site.home.until("it runs", || {
        (site.home.show("job")["state"] == "running").then_some(())
    });
    let (mut lost, mut kept) = (Open::new(&caller), Open::new(&other));
    site.home.ok(&["token", "revoke", "one"]);
    let revoked = Instant::now();
    let [modern, listened] = &mut lost.modern;
    for (name, events) in [
        ("call", &mut lost.call),
        ("stream", &mut lost.stream),
        ("modern call", modern),
        ("listened", listened),
    ] {
        let rest = String::from_utf8_lossy(&read_to_close(&mut events.stream)).into_owned();
        assert!(
            revoked.elapsed() < CLOSE_MAX,
            "{name}: {:?}",
            revoked.elapsed()
        );
        assert!(!rest.contains("structuredContent"), "{name}: {rest}");
    }
    // Those of the other token go on, although it is of the same client.
    other.call("cancel", &json!({"run": "job"}));
    let ended = |result: &Value| {
        assert_eq!(
            result["structuredContent"]["ended"][0]["name"], "job",
            "{result}"
        )
    };
    ended(&kept.call.reply());
    let [modern, listened] = &mut kept.modern;
    for events in [&mut kept.stream, listened] {
        assert_eq!(
            events.method("notifications/resources/updated")["params"]["uri"],
            "run://job"
        );
    }
    let mut reply = String::new();
    modern.stream.read_to_string(&mut reply).expect("a reply");
    assert!(
        reply.contains("structuredContent") && reply.contains("\"job\""),
        "{reply}"
    );
}
