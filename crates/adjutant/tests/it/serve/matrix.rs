//! Every route with every kind of token, host and origin. A call without a row fails the test.

use super::{Caller, Reply, Site};
use adjutant_core::token::CallEffect::{self, Changes, LocalOnly, Reads};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Each call, its effect, and whether a client may make it.
pub(super) const CALLS: &[(&str, CallEffect)] = &[
    ("adopt", Changes),
    ("agents", Reads),
    ("answer", Changes),
    ("answers", Reads),
    ("answers-cancel", Changes),
    ("ask", LocalOnly),
    ("ask-together", LocalOnly),
    ("ask-wait", LocalOnly),
    ("attention", Reads),
    ("board", Reads),
    ("budget", Changes),
    ("cancel", Changes),
    ("chat", Reads),
    ("chat-archive", Changes),
    ("chat-export", Reads),
    ("chat-follow", LocalOnly),
    ("chat-import", Changes),
    ("chat-share", LocalOnly),
    ("chat-start", Changes),
    ("chat-stats", Reads),
    ("chat-summarise", Changes),
    ("chat-unfollow", LocalOnly),
    ("chats", Reads),
    ("check-log-store", LocalOnly),
    ("clean", Changes),
    ("comment", Changes),
    ("dashboard", LocalOnly),
    ("delegate", LocalOnly),
    ("diff", Reads),
    ("discard", Changes),
    ("dispatch", Changes),
    ("events", Reads),
    ("follow-up", Changes),
    ("grant-revoke", Changes),
    ("grants", Reads),
    ("hand-over", LocalOnly),
    ("hub", Reads),
    ("logs", Reads),
    ("mentions", Reads),
    ("merge", Changes),
    ("notified", Changes),
    ("pause", Changes),
    ("peer", LocalOnly),
    ("peer-add", LocalOnly),
    ("peer-block", LocalOnly),
    ("peer-invite", LocalOnly),
    ("peer-remove", LocalOnly),
    ("peers", LocalOnly),
    ("policies", Reads),
    ("policies-check", Reads),
    ("policies-trust", Changes),
    ("policies-trust-change", Changes),
    ("policies-try", Reads),
    ("pool-change", Changes),
    ("pools", Reads),
    ("request", Reads),
    ("request-approval", LocalOnly),
    ("request-together", LocalOnly),
    ("requests", Reads),
    ("result", Reads),
    ("resume", Changes),
    ("retry", Changes),
    ("run", Reads),
    ("runs", Reads),
    ("say", Changes),
    ("search", Reads),
    ("send", Changes),
    ("stats", Reads),
    ("status", Changes),
    ("stop", LocalOnly),
    ("stop-work", LocalOnly),
    ("task", Reads),
    ("task-cancel", Changes),
    ("task-start", Changes),
    ("task-update", Changes),
    ("token-create", LocalOnly),
    ("token-revoke", LocalOnly),
    ("tokens", LocalOnly),
    ("undo", Changes),
    ("wait", Reads),
    ("webhooks", Reads),
    ("webhooks-retry", Changes),
    ("withdraw-request", LocalOnly),
];

/// Paths of calls that exist only on the socket, and paths that do not exist.
const ABSENT: &[&str] = &[
    "/",
    "/api",
    "/api/v1",
    "/api/v1/",
    "/api/v1/nothing",
    "/api/v2/runs",
    "/link/facts",
    "/link/orders",
    "/link/closing",
    "/link/budget",
    "/peer/v1/chats",
    "/peer/v1/entries",
    "/peer/v1/post",
];

/// The outcome of the access checks, as a reply shows it.
#[derive(Debug, PartialEq)]
enum Access {
    NoToken,
    OtherHost,
    OtherSite,
    OnlyReads,
    NoRoute,
    /// The call was made, even if it returned an error.
    Made,
}

fn access(reply: &Reply) -> Access {
    let problem: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or_default();
    if reply.status >= 400 {
        assert!(
            reply
                .head
                .contains("content-type: application/problem+json"),
            "{reply:?}"
        );
        assert_eq!(
            (problem["status"].as_u64(), &problem["type"]),
            (Some(u64::from(reply.status)), &json!("about:blank")),
            "{reply:?}"
        );
        assert!(
            problem["title"].is_string()
                && problem["code"].is_string()
                && problem["detail"].is_string(),
            "{reply:?}"
        );
    }
    assert!(!reply.head.contains("access-control-"), "{reply:?}");
    match reply.status {
        401 => {
            assert!(reply.head.contains("www-authenticate: bearer"), "{reply:?}");
            Access::NoToken
        }
        403 if detail.contains("another host") => Access::OtherHost,
        403 if detail.contains("another site") => Access::OtherSite,
        403 if detail.contains("only read") => Access::OnlyReads,
        404 if detail.contains("over HTTP") => Access::NoRoute,
        500.. => panic!("{reply:?}"),
        _ => Access::Made,
    }
}

/// A body that a call refuses or that changes nothing.
fn body(name: &str) -> String {
    match name {
        "chat" => json!({"chat_id": 99, "peek": true}).to_string(),
        "diff" => json!({"run": "nothing", "kept": true}).to_string(),
        _ => "{}".to_owned(),
    }
}

#[test]
fn every_route_has_a_row_and_follows_it() {
    let rows: BTreeMap<&str, CallEffect> = CALLS.iter().copied().collect();
    let stated: BTreeMap<&str, CallEffect> = adjutant_api::view::CALLS.iter().copied().collect();
    assert_eq!(stated, rows);

    let site = Site::new();
    let revoked = site.token("revoked", &["--role", "person"]);
    site.home.ok(&["token", "revoke", "revoked"]);
    let tokens = [
        ("none", None),
        ("wrong", Some(format!("adj_{}", "x".repeat(43)))),
        ("revoked", Some(revoked)),
        (
            "read-only",
            Some(site.token("reader", &["--role", "read-only"])),
        ),
        (
            "read-only of a client",
            Some(site.token(
                "client-reader",
                &["--role", "read-only", "--client", "/work/a"],
            )),
        ),
        ("client", Some(site.token("client", &[]))),
        ("person", Some(site.token("person", &["--role", "person"]))),
    ];
    let evil = [("host", "evil.example"), ("origin", "https://evil.example")];
    for (token_name, token) in &tokens {
        let caller = site.caller(token.as_deref().unwrap_or_default());
        let without: &[(&str, &str)] = if token.is_none() {
            &[("authorization", "")]
        } else {
            &[]
        };
        let send = |path: &str, headers: &[(&str, &str)], body: &str| {
            let reply = caller.send("POST", path, &[headers, without].concat(), body);
            access(&reply)
        };
        for (name, effect) in CALLS {
            let path = format!("/api/v1/{name}");
            let expected = match (*token_name, effect) {
                ("none" | "wrong" | "revoked", _) => Access::NoToken,
                (_, LocalOnly) => Access::NoRoute,
                ("read-only" | "read-only of a client", Changes) => Access::OnlyReads,
                _ => Access::Made,
            };
            assert_eq!(
                send(&path, &[], &body(name)),
                expected,
                "{name} with {token_name}"
            );
            assert_eq!(
                send(&path, &evil[..1], &body(name)),
                Access::OtherHost,
                "{name} with {token_name}"
            );
            assert_eq!(
                send(&path, &evil[1..], &body(name)),
                Access::OtherSite,
                "{name} with {token_name}"
            );
            assert_eq!(
                send(&path, &evil, &body(name)),
                Access::OtherHost,
                "{name} with {token_name}"
            );
        }
        for path in ABSENT {
            let expected = if ["none", "wrong", "revoked"].contains(token_name) {
                Access::NoToken
            } else {
                Access::NoRoute
            };
            assert_eq!(send(path, &[], "{}"), expected, "{path} with {token_name}");
        }
    }
    let own = site.home.json(&["token", "list"]);
    assert_eq!(
        own["tokens"].as_array().map(Vec::len),
        Some(4),
        "no call has changed the tokens"
    );
}

#[test]
fn description_has_each_call_and_no_other() {
    let site = Site::new();
    let reader = site.caller(&site.token("reader", &["--role", "read-only"]));
    let reply = reader.send("GET", "/api/v1/openapi.json", &[], "");
    assert!(
        reply.status == 200 && reply.head.contains("content-type: application/json"),
        "{reply:?}"
    );
    let description = reply.json();
    assert_eq!(description["openapi"], "3.1.0");
    let described: BTreeMap<&str, &str> = description["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .filter_map(|(path, methods)| {
            Some((
                path.strip_prefix("/api/v1/")?,
                methods["post"]["x-effect"].as_str()?,
            ))
        })
        .collect();
    let expected = CALLS.iter().filter(|(_, effect)| *effect != LocalOnly);
    assert_eq!(
        described,
        expected
            .map(|(name, effect)| (
                *name,
                if *effect == Changes {
                    "changes"
                } else {
                    "reads"
                }
            ))
            .collect()
    );
    assert!(
        description["paths"]["/api/v1/events"]["get"].is_object()
            && description["paths"]["/api/v1/openapi.json"]["get"].is_object()
    );
    assert_eq!(
        reader
            .send("GET", "/api/v1/openapi.json", &[("authorization", "")], "")
            .status,
        401
    );
}

#[test]
fn methods_and_content_types_are_exact() {
    let site = Site::new();
    let caller = site.caller(&site.token("person", &["--role", "person"]));
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"] {
        let reply = caller.send(method, "/api/v1/runs", &[], "");
        assert!(
            reply.status == 405 && reply.head.contains("allow: post"),
            "{method}: {reply:?}"
        );
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        assert_eq!(
            caller
                .send("POST", "/api/v1/runs", &[("content-type", kind)], "{}")
                .status,
            415,
            "{kind}"
        );
    }
    assert_eq!(
        caller
            .send(
                "POST",
                "/api/v1/runs",
                &[("content-type", "application/json; charset=utf-8")],
                "{}"
            )
            .status,
        200
    );
    assert_eq!(
        caller
            .send("POST", "/api/v1/runs", &[("content-type", "")], "")
            .status,
        200,
        "no body"
    );
    let reply = caller.send("POST", "/api/v1/runs", &[], "{\"alll\": true}");
    assert!(
        reply.status == 422 && reply.json()["code"] == "invalid",
        "{reply:?}"
    );
    for body in ["[]", " [null, null]", "null", "\"x\"", "7", "{", "x"] {
        let reply = caller.send("POST", "/api/v1/runs", &[], body);
        assert!(
            reply.status == 422 && reply.json()["code"] == "invalid",
            "{body}: {reply:?}"
        );
    }
    for authorization in ["Basic eDp5", "Bearer", "Bearer ", "bearer-x y"] {
        assert_eq!(
            caller
                .send(
                    "POST",
                    "/api/v1/runs",
                    &[("authorization", authorization)],
                    "{}"
                )
                .status,
            401,
            "{authorization}"
        );
    }
}

#[test]
fn reader_leaves_read_positions_and_clients_see_only_their_own() {
    let site = Site::new();
    let (one, other) = (
        site.caller(&site.token("one", &[])),
        site.caller(&site.token("other", &[])),
    );
    let reader = site.caller(&site.token("reader", &["--role", "read-only"]));
    let run = one.dispatch(&site.home.work(), "mine", "say hi")["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    site.home.finished("mine");
    let shown = reader.call("run", &json!({"run": run}));
    assert_eq!(
        (&shown["name"], &shown["outcome"]),
        (&json!("mine"), &json!("succeeded"))
    );
    let see = |caller: &Caller, run: &str| caller.post("run", &json!({"run": run}));
    let (foreign, unknown) = (
        see(&other, &run),
        see(&other, "01999999-0000-7000-8000-000000000000"),
    );
    assert_eq!((foreign.status, unknown.status), (404, 404));
    assert_eq!(
        foreign.body.replace(&run, "X"),
        unknown
            .body
            .replace("01999999-0000-7000-8000-000000000000", "X")
    );
    assert_eq!(other.call("runs", &json!({"all": true}))["runs"], json!([]));
    let moving = reader.post("chat", &json!({"chat_id": 1}));
    assert!(
        moving.status == 403 && moving.body.contains("peek"),
        "{moving:?}"
    );
    // The hub would run programs that it finds there.
    let searching = reader.post(
        "agents",
        &json!({"versions": true, "env": {"PATH": "/tmp"}}),
    );
    assert!(
        searching.status == 403 && searching.body.contains("env"),
        "{searching:?}"
    );
    assert_eq!(
        reader
            .post("agents", &json!([{"PATH": "/tmp"}, true]))
            .status,
        403
    );
    reader.call("agents", &json!({"versions": true}));
}
