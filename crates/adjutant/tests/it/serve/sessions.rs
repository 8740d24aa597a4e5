//! Sessions of MCP clients that begin with `initialize`.

use super::mcp::{modern, result};
use super::{Caller, Reply, Site, hub_with, port_of, read_head};
use crate::support::TestHome;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;

const VERSION: &str = "2025-11-25";
const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// A client with a session.
pub(super) struct Client {
    caller: Caller,
    session: String,
    version: &'static str,
}

impl Client {
    pub(super) fn new(caller: &Caller, capabilities: Value) -> Self {
        Self::of_version(caller, capabilities, VERSION)
    }

    fn of_version(caller: &Caller, capabilities: Value, version: &'static str) -> Self {
        let about = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "claude-code", "version": "1"}});
        let reply = post(caller, &[ACCEPT], &request(1, "initialize", about));
        assert_eq!(result(&reply)["protocolVersion"], version, "{reply:?}");
        let session = reply
            .head
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "))
            .expect("a session")
            .to_owned();
        let client = Self {
            caller: caller.clone(),
            session,
            version,
        };
        assert_eq!(
            client
                .post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .status,
            202
        );
        client
    }

    fn headers(&self) -> [(&str, &str); 3] {
        [
            ACCEPT,
            ("mcp-session-id", &self.session),
            ("mcp-protocol-version", self.version),
        ]
    }

    fn post(&self, body: &Value) -> Reply {
        post(&self.caller, &self.headers(), body)
    }

    pub(super) fn ask(&self, method: &str, params: Value) -> Value {
        result(&self.post(&request(7, method, params)))
    }

    /// Opens the stream of a call with a progress token.
    pub(super) fn call(&self, name: &str, arguments: Value) -> Events {
        let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "t"}});
        Events::of(self.caller.open(
            "POST",
            "/mcp",
            &self.headers(),
            &request(9, "tools/call", params).to_string(),
        ))
    }

    /// Opens a stream with `GET`.
    pub(super) fn stream(&self, after: Option<&str>) -> Events {
        let mut headers = self.headers().to_vec();
        headers.extend(after.map(|id| ("last-event-id", id)));
        Events::of(self.caller.open("GET", "/mcp", &headers, ""))
    }

    fn delete(&self) -> u16 {
        self.caller
            .send("DELETE", "/mcp", &self.headers(), "")
            .status
    }

    fn exists(&self) -> bool {
        let status = self.post(&request(2, "ping", json!({}))).status;
        assert!([200, 404].contains(&status), "{status}");
        status == 200
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn post(caller: &Caller, headers: &[(&str, &str)], body: &Value) -> Reply {
    caller.send("POST", "/mcp", headers, &body.to_string())
}

/// The events of a stream.
pub(super) struct Events {
    pub(super) stream: BufReader<TcpStream>,
    /// The id of the newest event.
    id: String,
}

impl Events {
    pub(super) fn of(mut stream: BufReader<TcpStream>) -> Self {
        assert_eq!(read_head(&mut stream).0, 200);
        Self {
            stream,
            id: String::new(),
        }
    }

    /// Returns the next event with a message that `is_it`. `None`: the stream has ended.
    pub(super) fn find(&mut self, is_it: impl Fn(&Value) -> bool) -> Option<Value> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line).expect("an event") == 0 {
                return None;
            }
            if let Some(id) = line.strip_prefix("id:") {
                id.trim().clone_into(&mut self.id);
            }
            let data = line
                .strip_prefix("data:")
                .map(str::trim)
                .filter(|data| !data.is_empty());
            if let Some(message) = data
                .map(|data| serde_json::from_str::<Value>(data).expect("a message"))
                .filter(|message| is_it(message))
            {
                return Some(message);
            }
        }
    }

    pub(super) fn method(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method)
            .unwrap_or_else(|| panic!("the stream ended before {method}"))
    }

    pub(super) fn reply(&mut self) -> Value {
        self.find(|message| !message["result"].is_null())
            .expect("a reply")["result"]
            .clone()
    }
}

fn asking(site: &Site, caller: &Caller) {
    caller.dispatch(&site.home.work(), "job", "---\nask \"Ready?\"\ndone ok");
    site.home.until("it asks", || {
        (site.home.show("job")["pending_total"] == 1).then_some(())
    });
}

#[test]
fn session_of_another_token_is_unknown() {
    let mut site = Site::new();
    let (token, other) = (site.token("one", &[]), site.token("other", &[]));
    let client = Client::new(&site.caller(&token), json!({}));
    assert!(client.ask("tools/list", json!({}))["tools"].is_array() && client.exists());
    let with = |caller: &Caller, id: &str| {
        let client = Client {
            caller: caller.clone(),
            session: id.to_owned(),
            version: VERSION,
        };
        let posted = client.post(&request(1, "tools/list", json!({})));
        let mut headers = client.headers().to_vec();
        let got = caller.send("GET", "/mcp", &headers, "");
        headers.push(("last-event-id", "0/0"));
        let resumed = caller.send("GET", "/mcp", &headers, "");
        let deleted = caller.send("DELETE", "/mcp", &client.headers(), "");
        [posted, got, resumed, deleted]
            .map(|reply| (reply.status, without_date(&reply.head), reply.body))
    };
    let stranger = site.caller(&other);
    let unknown = with(&stranger, "6e6e6e6e-0000-4000-8000-000000000000");
    assert_eq!(with(&stranger, &client.session), unknown);
    assert_eq!(
        [unknown[0].0, unknown[1].0, unknown[2].0],
        [404, 404, 404],
        "{unknown:?}"
    );
    assert!(client.exists(), "another token has ended nothing");
    // Requests without the session stand for themselves.
    let alone = post(
        &client.caller,
        &[ACCEPT, ("mcp-protocol-version", VERSION)],
        &request(1, "tools/list", json!({})),
    );
    assert!(result(&alone)["tools"].is_array());
    assert!(result(&modern(&client.caller, "tools/list", json!({})))["tools"].is_array());
    assert_eq!(client.caller.send("GET", "/mcp", &[ACCEPT], "").status, 405);

    assert_eq!((client.delete(), client.exists()), (204, false));
    let client = Client::new(&client.caller, json!({}));
    site.kill_hub();
    site.revive();
    let client = Client {
        caller: site.caller(&token),
        ..client
    };
    assert!(!client.exists(), "a session ends with its hub");
    assert!(Client::new(&client.caller, json!({})).exists());
}

fn without_date(head: &str) -> String {
    head.lines()
        .filter(|line| !line.starts_with("date:"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn newer_session_replaces_the_one_unused_for_longest() {
    const SESSIONS_MAX: usize = 16;
    let site = Site::new();
    let (one, other) = (
        site.caller(&site.token("one", &[])),
        site.caller(&site.token("other", &[])),
    );
    let kept = Client::new(&other, json!({}));
    let clients: Vec<Client> = (0..SESSIONS_MAX)
        .map(|_| Client::new(&one, json!({})))
        .collect();
    // A session with a stream is in use, and so is one with a newer request.
    let _stream = clients[0].stream(None);
    assert!(clients[1].exists());
    let newest = Client::new(&one, json!({}));
    let left: Vec<usize> = (0..SESSIONS_MAX)
        .filter(|index| clients[*index].exists())
        .collect();
    assert_eq!(
        left,
        (0..SESSIONS_MAX)
            .filter(|index| *index != 2)
            .collect::<Vec<_>>()
    );
    assert!(newest.exists() && kept.exists());
}

#[test]
fn broken_call_is_resumed_with_its_last_event() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    asking(&site, &caller);
    caller.call(
        "answer",
        &json!({"answers": [{"message_id": "Q1", "answer": "wait"}]}),
    );
    site.home.finished("job");
    caller.dispatch(&site.home.work(), "long", "hang");
    let client = Client::new(&caller, json!({}));
    let mut call = client.call("wait_for_subagents", json!({"run_ids": ["long"]}));
    let progress = call.method("notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "t", "{progress}");
    let id = call.id.clone();
    assert!(!id.is_empty());
    drop(call);
    let other = Client {
        caller: site.caller(&site.token("other", &[])),
        session: client.session.clone(),
        version: VERSION,
    };
    let mut headers = other.headers().to_vec();
    headers.push(("last-event-id", &id));
    assert_eq!(other.caller.send("GET", "/mcp", &headers, "").status, 404);
    let mut resumed = client.stream(Some(&id));
    site.home.ok(&["cancel", "long"]);
    assert_eq!(
        resumed.reply()["structuredContent"]["ended"][0]["name"],
        "long"
    );
}

#[test]
fn subscription_reports_changes_on_the_stream_of_the_session() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    asking(&site, &caller);
    let client = Client::new(&caller, json!({}));
    client.ask("resources/subscribe", json!({"uri": "run://job"}));
    let foreign = Client::new(&site.caller(&site.token("other", &[])), json!({}));
    let subscribe = |run: &str| {
        let reply = foreign.post(&request(
            1,
            "resources/subscribe",
            json!({"uri": format!("run://{run}")}),
        ));
        let error = reply
            .body
            .lines()
            .find(|line| line.contains("error"))
            .expect("an error");
        error.replace(run, "RUN")
    };
    assert_eq!(subscribe("job"), subscribe("nix"));
    let mut stream = client.stream(None);
    site.home.ok(&["reply", "Q1", "yes"]);
    assert_eq!(
        stream.method("notifications/resources/updated")["params"]["uri"],
        "run://job"
    );
    client.ask("resources/unsubscribe", json!({"uri": "run://job"}));
    // Revoking the token ends the stream.
    site.home.ok(&["token", "revoke", "one"]);
    assert!(stream.find(|_| false).is_none());
}

#[test]
fn person_of_an_older_client_answers_over_http() {
    for version in ["2025-06-18", VERSION] {
        let home =
            TestHome::with_config("listen = \"127.0.0.1:0\"\n[escalation]\nafter = \"100ms\"\n");
        let site = Site {
            port: super::port_of(&home),
            home,
        };
        let caller = site.caller(&site.token("one", &[]));
        asking(&site, &caller);
        site.home.until("it is escalated", || {
            site.home
                .ok(&["events", "job"])
                .contains("request.escalated")
                .then_some(())
        });
        let client = Client::of_version(&caller, json!({"elicitation": {}}), version);
        let mut call = client.call("wait_for_subagents", json!({"run_ids": ["job"]}));
        let asked = call.method("elicitation/create");
        assert!(
            asked["params"]["message"]
                .as_str()
                .is_some_and(|text| text.contains("Ready?")),
            "{asked}"
        );
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"answer": "yes"}}});
        assert_eq!(client.post(&answer).status, 202);
        assert_eq!(call.reply()["structuredContent"]["ended"][0]["name"], "job");
        assert_eq!(site.home.inbox(&["--all"])[0]["answer"], "yes");
    }
}

#[test]
fn sessions_with_many_broken_calls_are_closed() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    caller.dispatch(&site.home.work(), "long", "hang");
    let client = Client::new(&caller, json!({}));
    site.home.until("the session is closed", || {
        let mut call = client
            .caller
            .open("POST", "/mcp", &client.headers(), &wait_for("long"));
        (read_head(&mut call).0 == 404).then_some(())
    });
    assert!(!client.exists() && Client::new(&caller, json!({})).exists());
    site.home.ok(&["cancel", "long"]);
}

#[test]
fn unused_session_ends_but_not_during_a_call() {
    let home = TestHome::with_config("listen = \"127.0.0.1:0\"\n");
    let token = home.json(&["token", "new", "one"])["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    home.ok(&["stop"]);
    let mut hub = hub_with(&home, "unused=300");
    let caller = Caller {
        port: port_of(&home),
        token,
    };
    caller.dispatch(&home.work(), "long", "hang");
    let (unused, calling) = (
        Client::new(&caller, json!({})),
        Client::new(&caller, json!({})),
    );
    let mut call = calling.call("wait_for_subagents", json!({"run_ids": ["long"]}));
    call.method("notifications/progress");
    // Several times as long as a session may be unused.
    caller.dispatch(&home.work(), "pause", "sleep 1");
    home.finished("pause");
    assert!(!unused.exists());
    home.ok(&["cancel", "long"]);
    assert_eq!(
        call.reply()["structuredContent"]["ended"][0]["name"],
        "long"
    );
    drop(call);
    home.ok(&["stop"]);
    hub.wait().expect("it ends");
}

fn wait_for(run: &str) -> String {
    request(
        9,
        "tools/call",
        json!({"name": "wait_for_subagents", "arguments": {"run_ids": [run]}}),
    )
    .to_string()
}
