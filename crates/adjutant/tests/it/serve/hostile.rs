//! Hostile callers: foreign ids, slow and endless bodies, and thousands of idle connections.

use super::mcp::modern;
use super::{Reply, Site};
use crate::support::is_root;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

/// How long a body may take, and some time for a machine under load.
const BODY_TAKES_MAX: Duration = Duration::from_secs(30 + 30);
const UNKNOWN: &str = "01999999-0000-7000-8000-000000000000";

/// Returns what a caller can see of a reply, without the id that it has sent.
fn seen(reply: &Reply, id: &str) -> (u16, String, String) {
    let head: Vec<&str> = reply
        .head
        .lines()
        .filter(|line| !line.starts_with("date:"))
        .collect();
    (reply.status, head.join("\n"), reply.body.replace(id, "ID"))
}

/// Makes the arguments of a call for the id of a run.
type BodyOf = fn(&str) -> Value;

#[test]
fn foreign_ids_look_like_unknown_ones() {
    let site = Site::new();
    let (one, other) = (
        site.caller(&site.token("one", &[])),
        site.caller(&site.token("other", &[])),
    );
    one.dispatch(&site.home.work(), "job", "---\nask \"Ready?\"\ndone ok");
    site.home.until("it asks", || {
        (site.home.show("job")["pending_total"] == 1).then_some(())
    });
    let run = site.home.run_id("job");
    let asked = one.call("requests", &json!({}))["requests"][0]["message_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let chat = one.call("chat-start", &json!({"title": "Mine"}))["chat_id"]
        .as_i64()
        .expect("an id");
    let task = one.call(
        "task-start",
        &json!({"wait": {"runs": ["job"], "until": "all"}, "ttl_ms": 60_000}),
    )["task_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let calls: [(&str, BodyOf); 17] = [
        ("run", |id| json!({"run": id})),
        ("logs", |id| json!({"run": id})),
        ("result", |id| json!({"run": id})),
        ("diff", |id| json!({"run": id})),
        ("cancel", |id| json!({"run": id})),
        ("pause", |id| json!({"run": id})),
        ("resume", |id| json!({"run": id})),
        ("retry", |id| json!({"run": id})),
        ("follow-up", |id| json!({"run": id, "prompt": "say hi"})),
        ("send", |id| json!({"run": id, "text": "hi"})),
        ("budget", |id| json!({"run": id})),
        ("merge", |id| json!({"run": id})),
        ("discard", |id| json!({"run": id})),
        ("undo", |id| json!({"run": id})),
        ("events", |id| json!({"run": id})),
        ("requests", |id| json!({"run": id})),
        ("wait", |id| json!({"runs": [id], "wait_ms": 1})),
    ];
    for (name, body) in calls {
        for id in [run.as_str(), "job"] {
            let unknown = if id == "job" { "nix" } else { UNKNOWN };
            let [foreign, none] = [id, unknown].map(|id| seen(&other.post(name, &body(id)), id));
            assert!(
                foreign.0 == 404 && foreign == none,
                "{name}: {foreign:?} {none:?}"
            );
        }
    }
    let answer = |id: &str| json!({"answers": [{"message_id": id, "answer": "yes"}]});
    let pairs: [(&str, Value, Value, String, String); 5] = [
        (
            "request",
            json!({"message_id": asked}),
            json!({"message_id": UNKNOWN}),
            asked.clone(),
            UNKNOWN.to_owned(),
        ),
        (
            "answer",
            answer(&asked),
            answer(UNKNOWN),
            asked.clone(),
            UNKNOWN.to_owned(),
        ),
        (
            "chat",
            json!({"chat_id": chat}),
            json!({"chat_id": 9}),
            chat.to_string(),
            "9".to_owned(),
        ),
        (
            "say",
            json!({"chat_id": chat, "message": "hi"}),
            json!({"chat_id": 9, "message": "hi"}),
            chat.to_string(),
            "9".to_owned(),
        ),
        (
            "task",
            json!({"task_id": task}),
            json!({"task_id": "0".repeat(task.len())}),
            task.clone(),
            "0".repeat(task.len()),
        ),
    ];
    for (name, mine, none, id, unknown) in pairs {
        let (foreign, none) = (
            seen(&other.post(name, &mine), &id),
            seen(&other.post(name, &none), &unknown),
        );
        assert!(
            foreign.0 == 404 && foreign == none,
            "{name}: {foreign:?} {none:?}"
        );
    }
    for (path, id, unknown) in [
        ("/api/v1/events?run=", "job", "nix"),
        ("/api/v1/events?run=", run.as_str(), UNKNOWN),
    ] {
        let [foreign, none] =
            [id, unknown].map(|id| seen(&other.send("GET", &format!("{path}{id}"), &[], ""), id));
        assert!(foreign.0 == 404 && foreign == none, "{foreign:?} {none:?}");
    }
    // MCP answers with what a tool found, so its status is that of a call.
    let tool = |name: &str, arguments: Value| {
        modern(
            &other,
            "tools/call",
            json!({"name": name, "arguments": arguments}),
        )
    };
    let tools: [(&str, BodyOf); 5] = [
        ("check_subagent_status", |id| json!({"run_id": id})),
        ("get_subagent_logs", |id| json!({"run_id": id})),
        (
            "reply_subagent",
            |id| json!({"run_id": id, "answer": "yes"}),
        ),
        (
            "steer_subagent",
            |id| json!({"run_id": id, "action": "cancel"}),
        ),
        (
            "review_changes",
            |id| json!({"run_id": id, "action": "stat"}),
        ),
    ];
    for (name, arguments) in tools {
        let [foreign, none] = ["job", "nix"].map(|id| seen(&tool(name, arguments(id)), id));
        assert_eq!(foreign, none, "{name}");
    }
    for (scheme, mine, unknown) in [
        ("run", "job", "nix"),
        ("log", "job", "nix"),
        ("chat", chat.to_string().as_str(), "9"),
    ] {
        let [foreign, none] = [mine, unknown].map(|id| {
            let uri = format!("{scheme}://{id}");
            seen(&modern(&other, "resources/read", json!({"uri": uri})), &uri)
        });
        assert_eq!(foreign, none, "{scheme}");
    }
    // Nothing has changed.
    assert_eq!(one.call("run", &json!({"run": "job"}))["pending_total"], 1);
    one.call("answer", &answer(&asked));
    assert_eq!(site.home.finished("job")["outcome"], "succeeded");
}

#[test]
fn body_of_one_byte_a_second_is_cut_off() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    std::thread::scope(|scope| {
        for path in ["/api/v1/dispatch", "/mcp", "/sign-in"] {
            let mut stream = caller.open(
                "POST",
                path,
                &[
                    ("content-length", "100000"),
                    ("accept", "application/json, text/event-stream"),
                ],
                "{",
            );
            scope.spawn(move || {
                let start = Instant::now();
                stream
                    .get_ref()
                    .set_read_timeout(Some(Duration::from_secs(1)))
                    .expect("a limit");
                loop {
                    assert!(
                        start.elapsed() < BODY_TAKES_MAX,
                        "{path}: the connection is still open"
                    );
                    if stream.get_mut().write_all(b" ").is_err() {
                        return;
                    }
                    // Waits a second for the end, unless there is one.
                    match stream.read(&mut [0; 4096]) {
                        Ok(0) => return,
                        Err(error)
                            if matches!(
                                error.kind(),
                                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                            ) => {}
                        Ok(_) => {}
                        Err(_) => return,
                    }
                }
            });
        }
        caller.call("runs", &json!({}));
    });
    caller.call("runs", &json!({}));
}

#[test]
fn endless_body_is_refused_and_not_kept() {
    const MEGABYTE: usize = 1024 * 1024;
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    let chunk = format!("{MEGABYTE:x}\r\n{}\r\n", " ".repeat(MEGABYTE));
    for path in ["/api/v1/dispatch", "/mcp", "/sign-in"] {
        let headers = [
            ("content-length", ""),
            ("transfer-encoding", "chunked"),
            ("content-type", "application/json"),
        ];
        let mut stream = caller.open("POST", path, &headers, "");
        let sent = (0..100)
            .take_while(|_| stream.get_mut().write_all(chunk.as_bytes()).is_ok())
            .count();
        assert!(sent < 100, "{path}: the hub has read everything");
        let mut answer = Vec::new();
        // The connection may be reset before the refusal is read.
        let _end = stream.read_to_end(&mut answer);
        assert!(
            !answer.starts_with(b"HTTP/1.1 2"),
            "{path}: {}",
            String::from_utf8_lossy(&answer)
        );
        caller.call("runs", &json!({}));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.home.hub_pid()))
        .expect("the hub lives");
    let peak_kb = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix(" kB")?
                .parse::<usize>()
                .ok()
        })
        .expect("a peak");
    assert!(peak_kb < 200 * 1024, "{peak_kb} kB");
}

#[test]
fn ten_thousand_idle_connections_block_no_other_caller() {
    const CONNECTIONS: usize = 10_000;
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    let wanted = u64::try_from(CONNECTIONS).expect("small") + 1_000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = rustix::process::Rlimit {
            current: limit
                .maximum
                .map(|maximum| maximum.min(wanted))
                .or(Some(wanted)),
            ..limit
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)
            .expect("the limit can be raised to its maximum");
        if raised.current.is_some_and(|current| current < wanted) {
            return crate::support::skip("ten thousand open files are not allowed here");
        }
    }
    let pid = site.home.hub_pid();
    // The hub's own user cannot inspect it; root can.
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .ok()
            .map(Iterator::count)
    };
    let mut idle = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the hub listens");
        if number % 2 == 0 {
            // Half a head. The hub may have closed the connection.
            let _sent = stream.write_all(b"POST /api/v1/runs HTTP/1.1\r\nhost: ");
        }
        idle.push(stream);
        // The queue of the listener never overflows, which would delay the test by seconds.
        if number % 250 == 0 {
            caller.call("runs", &json!({}));
        }
    }
    caller.call("runs", &json!({}));
    site.home.ok(&["ps"]);
    if let Some(open) = descriptors() {
        assert!(open < 3_000, "{open} descriptors");
    }
    assert_eq!(site.home.hub_pid(), pid);
    drop(idle);
    caller.call("runs", &json!({}));
}

/// Calls `/sign-in` with the code, or a call with the token, as another user.
const STRANGER: &str = r#"
exec 3<>"/dev/tcp/127.0.0.1/$PORT" && printf '%s' "$REQUEST" >&3 && cat <&3
"#;

#[test]
fn browser_of_another_user_is_refused() {
    if !is_root("another user cannot be impersonated") {
        return;
    }
    let site = Site::new();
    let page = site.home.ok(&["ui"]);
    let code = page
        .trim()
        .rsplit("#code=")
        .next()
        .expect("a code")
        .to_owned();
    let as_nobody = |request: String| {
        let mut command = std::process::Command::new("/bin/bash");
        command
            .args(["-c", STRANGER])
            .env("PORT", site.port.to_string())
            .env("REQUEST", request)
            .current_dir("/")
            .uid(65_534)
            .gid(65_534);
        String::from_utf8(command.output().expect("bash").stdout).expect("text")
    };
    let request = |path: &str, token: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            site.port,
            body.len()
        )
    };
    let body = json!({"code": code}).to_string();
    let refused = as_nobody(request("/sign-in", "", &body));
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    // The code still works for its own user, and the token only for that one.
    let own = site.caller("");
    let signed_in = own.send("POST", "/sign-in", &[("authorization", "")], &body);
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
    let token = signed_in.json()["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    let refused = as_nobody(request("/api/v1/runs", &token, "{}"));
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    site.caller(&token).call("runs", &json!({}));
}
