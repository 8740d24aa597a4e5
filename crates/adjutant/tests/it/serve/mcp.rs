//! `/mcp`: the tools of a parent over Streamable HTTP, in both generations of the protocol.

use super::{Caller, Reply, Site};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

pub(super) fn modern(caller: &Caller, method: &str, params: Value) -> Reply {
    super::reply(&mut open_modern(caller, method, params, json!({})))
}

/// Sends a request of a client with these capabilities, and returns its connection.
pub(super) fn open_modern(
    caller: &Caller,
    method: &str,
    mut params: Value,
    capabilities: Value,
) -> BufReader<TcpStream> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let name = ["name", "uri", "taskId"]
        .iter()
        .find_map(|name| params[name].as_str())
        .unwrap_or_default()
        .to_owned();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("mcp-name", &name),
    ];
    caller.open("POST", "/mcp", &headers, &body)
}

fn legacy(caller: &Caller, method: &str, params: Value) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    caller.send(
        "POST",
        "/mcp",
        &[
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-06-18"),
        ],
        &body,
    )
}

/// Returns the result in a reply, which is a body in JSON or the only message of a stream.
pub(super) fn result(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    let line = reply
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .find(|data| !data.is_empty())
        .unwrap_or(&reply.body);
    let message: Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    assert!(message["error"].is_null(), "{message}");
    message["result"].clone()
}

fn tool(caller: &Caller, is_modern: bool, name: &str, arguments: Value) -> Value {
    let send = if is_modern { modern } else { legacy };
    result(&send(
        caller,
        "tools/call",
        json!({"name": name, "arguments": arguments}),
    ))
}

#[test]
fn both_generations_drive_a_run_to_its_end() {
    let site = Site::new();
    let work = site.home.work();
    let token = site.token("parent", &["--client", work.to_str().expect("UTF-8")]);
    let caller = site.caller(&token);
    let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    assert_eq!(
        result(&legacy(&caller, "initialize", about))["serverInfo"]["name"],
        "adjutant"
    );
    let lists = [modern, legacy].map(|send| result(&send(&caller, "tools/list", json!({}))));
    assert!(
        lists.iter().all(|list| list["tools"]
            .as_array()
            .is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "run_subagent"))),
        "{lists:?}"
    );
    for (is_modern, name) in [(true, "new"), (false, "old")] {
        let prompt = "---\nask \"Which colour?\"\nsay done";
        let started = tool(
            &caller,
            is_modern,
            "run_subagent",
            json!({"agent": "echo", "name": name, "prompt": prompt}),
        );
        assert!(started["isError"] != true, "{started}");
        let waited = tool(
            &caller,
            is_modern,
            "wait_for_subagents",
            json!({"run_ids": [name], "wait_s": 20}),
        );
        assert!(waited.to_string().contains("Which colour?"), "{waited}");
        let answered = tool(
            &caller,
            is_modern,
            "reply_subagent",
            json!({"run_id": name, "answer": "green"}),
        );
        assert!(answered["isError"] != true, "{answered}");
        assert_eq!(site.home.finished(name)["outcome"], "succeeded");
        assert_eq!(site.home.show(name)["cwd"], work.to_str().expect("UTF-8"));
    }
}

#[test]
fn only_clients_have_tools() {
    let site = Site::new();
    let list = |caller: &Caller| modern(caller, "tools/list", json!({}));
    for (name, args) in [
        ("person", &["--role", "person"][..]),
        ("reader", &["--role", "read-only", "--client", "x"]),
    ] {
        let reply = list(&site.caller(&site.token(name, args)));
        assert!(
            reply.status == 403 && reply.body.contains("role client"),
            "{name}: {reply:?}"
        );
    }
    assert_eq!(list(&site.caller("adj_wrong")).status, 401);
    let client = site.caller(&site.token("client", &[]));
    assert_eq!(list(&client).status, 200);
    for headers in [
        [("host", "evil.example")],
        [("origin", "https://evil.example")],
    ] {
        assert_eq!(
            client.send("POST", "/mcp", &headers, "{}").status,
            403,
            "{headers:?}"
        );
    }
    // No OAuth: clients look for it before they have a token.
    assert_eq!(
        client
            .send(
                "GET",
                "/.well-known/oauth-protected-resource",
                &[("authorization", "")],
                ""
            )
            .status,
        404
    );
    let refused = tool(
        &client,
        true,
        "run_subagent",
        json!({"agent": "echo", "prompt": "say hi"}),
    );
    assert!(
        refused["isError"] == true && refused.to_string().contains("cwd"),
        "it has no project directory: {refused}"
    );
    let foreign = site.token("other", &[]);
    client.dispatch(&site.home.work(), "mine", "say hi");
    site.home.finished("mine");
    let look = |caller: &Caller, run: &str| {
        tool(
            caller,
            true,
            "check_subagent_status",
            json!({"run_id": run}),
        )
        .to_string()
    };
    let other = site.caller(&foreign);
    assert_eq!(
        look(&other, "mine").replace("mine", "X"),
        look(&other, "nine").replace("nine", "X")
    );
}

#[test]
fn closed_connection_ends_its_wait() {
    let site = Site::new();
    let caller = site.caller(&site.token("client", &[]));
    caller.dispatch(&site.home.work(), "job", "sleep 600");
    site.home.until("it runs", || {
        (site.home.show("job")["state"] == "running").then_some(())
    });
    let open = || {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait_for_subagents", "arguments": {"wait_s": 40}}});
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-06-18"),
        ];
        let mut stream = caller.open("POST", "/mcp", &headers, &body.to_string());
        // The headers come before the result.
        assert_eq!(super::read_head(&mut stream).0, 200);
        stream
    };
    // The hub's own user cannot inspect it; root can.
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", site.home.hub_pid()))
            .ok()
            .map(Iterator::count)
    };
    let waiting: Vec<_> = (0..8).map(|_| open()).collect();
    let while_waiting = descriptors();
    drop(waiting);
    if let Some(while_waiting) = while_waiting {
        site.home.until("the connections are closed", || {
            (descriptors()? + 8 <= while_waiting).then_some(())
        });
    }
    caller.call("cancel", &json!({"run": "job"}));
}

#[test]
fn end_is_confirmed_by_its_connection_or_its_cursor() {
    let site = Site::new();
    let caller = site.caller(&site.token("client", &[]));
    caller.dispatch(&site.home.work(), "job", "say hi");
    site.home.finished("job");
    // Each call has its own connection.
    let wait = |arguments: Value| {
        tool(&caller, true, "wait_for_subagents", arguments)["structuredContent"].clone()
    };
    let first = wait(json!({"wait_s": 1}));
    assert_eq!(first["ended"][0]["name"], "job", "{first}");
    let again = wait(json!({"wait_s": 1}));
    assert_eq!(
        again["ended"][0]["name"], "job",
        "a call on another connection proves nothing: {again}"
    );
    let last = wait(json!({"wait_s": 1, "cursor": again["cursor"]}));
    assert!(
        last["ended"].is_null() && last["outcome"] == "idle",
        "{last}"
    );

    caller.dispatch(&site.home.work(), "next", "say hi");
    site.home.finished("next");
    let message = |arguments: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait_for_subagents", "arguments": arguments}}).to_string()
    };
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the hub listens");
    let mut on_one_connection = || {
        let body = message(json!({"wait_s": 1}));
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {}\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: 2025-06-18\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            site.port,
            caller.token,
            body.len()
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .expect("sent");
        let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
        let (status, head) = super::read_head(&mut reader);
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
            .expect("a reply in JSON");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        result(&Reply {
            status,
            head,
            body: String::from_utf8(body).expect("text"),
        })["structuredContent"]
            .clone()
    };
    assert_eq!(on_one_connection()["ended"][0]["name"], "next");
    assert_eq!(
        on_one_connection()["outcome"],
        "idle",
        "the second call proves that the first was received"
    );
}

#[test]
fn task_survives_the_hub() {
    let mut site = Site::new();
    let token = site.token("client", &[]);
    site.caller(&token)
        .dispatch(&site.home.work(), "job", "---\nask \"Ready?\"\ndone ok");
    site.home.until("it asks", || {
        (site.home.show("job")["pending_total"] == 1).then_some(())
    });
    site.caller(&token)
        .dispatch(&site.home.work(), "hanging", "hang");
    let send = |site: &Site, token: &str, method: &str, params: Value| {
        let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        super::reply(&mut open_modern(&site.caller(token), method, params, tasks))
    };
    let wait = |run: &str| json!({"name": "wait_for_subagents", "arguments": {"run_ids": [run]}});
    // A condition that is met needs no Task.
    let met = result(&send(&site, &token, "tools/call", wait("job")));
    assert!(
        met["taskId"].is_null() && met["structuredContent"]["needs"][0]["question"] == "Ready?",
        "{met}"
    );
    let created = result(&send(&site, &token, "tools/call", wait("hanging")));
    assert_eq!(
        (&created["resultType"], &created["status"]),
        (&json!("task"), &json!("working")),
        "{created}"
    );
    let task = json!({"taskId": created["taskId"]});
    site.kill_hub();
    site.revive();
    assert_eq!(
        result(&send(&site, &token, "tasks/get", task.clone()))["status"],
        "working"
    );
    let other = site.token("other", &[]);
    assert_eq!(
        send(&site, &other, "tasks/get", task.clone()).json()["error"]["code"],
        -32602,
        "it is another client's"
    );
    let undeclared = modern(&site.caller(&token), "tasks/get", task.clone());
    assert_eq!(
        (undeclared.status, &undeclared.json()["error"]["code"]),
        (400, &json!(-32021))
    );
    site.home.ok(&["cancel", "hanging"]);
    site.home.finished("hanging");
    let ended = result(&send(&site, &token, "tasks/get", task.clone()));
    assert_eq!(
        (
            &ended["status"],
            &ended["result"]["structuredContent"]["ended"][0]["name"]
        ),
        (&json!("completed"), &json!("hanging")),
        "{ended}"
    );
    assert_eq!(
        result(&send(&site, &token, "tasks/cancel", task))["resultType"],
        "complete"
    );
}

#[test]
fn task_requires_input_over_http() {
    let site = Site::with("[escalation]\nafter = \"100ms\"\n");
    let token = site.token("client", &[]);
    let send = |method: &str, params: Value| {
        let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {"form": {}}});
        result(&super::reply(&mut open_modern(
            &site.caller(&token),
            method,
            params,
            capabilities,
        )))
    };
    site.caller(&token)
        .dispatch(&site.home.work(), "hangs", "hang");
    let created = send(
        "tools/call",
        json!({"name": "wait_for_subagents", "arguments": {"until": "all"}}),
    );
    let id = &created["taskId"];
    assert!(id.is_string(), "{created}");
    site.caller(&token)
        .dispatch(&site.home.work(), "asks", "ask \"Which one?\"\ndone");
    site.home.until("it is escalated", || {
        site.home
            .ok(&["events", "asks"])
            .contains("request.escalated")
            .then_some(())
    });
    let asked = send("tasks/get", json!({"taskId": id}));
    assert_eq!(asked["status"], "input_required", "{asked}");
    let key = asked["inputRequests"]
        .as_object()
        .and_then(|inputs| inputs.keys().next())
        .expect("an input");
    let answer = json!({"taskId": id, "inputResponses": {key: {"action": "accept", "content": {"answer": "this"}}}});
    assert_eq!(send("tasks/update", answer)["resultType"], "complete");
    assert_eq!(site.home.finished("asks")["outcome"], "succeeded");
    assert_eq!(
        send("tasks/get", json!({"taskId": id}))["status"],
        "working"
    );
    assert_eq!(site.home.inbox(&["--all"])[0]["answer"], "this");
}

#[test]
fn resources_are_read_and_watched() {
    let site = Site::new();
    let caller = site.caller(&site.token("client", &[]));
    caller.dispatch(&site.home.work(), "job", "---\nask \"Ready?\"\ndone ok");
    site.home.until("it asks", || {
        (site.home.show("job")["pending_total"] == 1).then_some(())
    });
    for send in [modern, legacy] {
        let read = result(&send(
            &caller,
            "resources/read",
            json!({"uri": "run://job"}),
        ));
        assert!(
            read["contents"][0]["text"]
                .as_str()
                .is_some_and(|text| text.contains("Ready?")),
            "{read}"
        );
    }
    let other = site.caller(&site.token("other", &[]));
    assert_eq!(
        modern(&other, "resources/read", json!({"uri": "run://job"})).json()["error"]["code"],
        -32602
    );

    let params = json!({"notifications": {"resourceSubscriptions": ["run://job"]}});
    let mut stream = open_modern(&caller, "subscriptions/listen", params, json!({}));
    assert_eq!(super::read_head(&mut stream).0, 200);
    let mut until = |method: &str| {
        let mut line = String::new();
        while !line.contains(method) {
            line.clear();
            assert!(
                stream.read_line(&mut line).expect("an event") > 0,
                "the stream ended before {method}"
            );
        }
        line
    };
    assert!(until("notifications/subscriptions/acknowledged").contains("run://job"));
    site.home.ok(&["reply", "Q1", "yes"]);
    assert!(until("notifications/resources/updated").contains("run://job"));

    // Without its session, an older client cannot subscribe.
    assert_eq!(
        legacy(&caller, "resources/subscribe", json!({"uri": "run://job"})).json()["error"]["code"],
        -32601
    );
}

#[test]
fn fixtures_of_the_conformance_suite_are_hidden() {
    let call = json!({"name": "test_simple_text", "arguments": {}});
    let site = Site::new();
    let caller = site.caller(&site.token("client", &[]));
    let list = result(&modern(&caller, "tools/list", json!({}))).to_string();
    assert!(
        !list.contains("test_") && !list.contains("slow_compute"),
        "{list}"
    );
    assert_eq!(
        modern(&caller, "tools/call", call.clone()).json()["error"]["code"],
        -32602
    );
    assert_eq!(
        modern(&caller, "prompts/list", json!({})).json()["error"]["code"],
        -32601
    );
    assert_eq!(
        modern(
            &caller,
            "resources/read",
            json!({"uri": "test://static-text"})
        )
        .json()["error"]["code"],
        -32602
    );
}
