//! The connection: handshakes of both protocol generations, ids, unreadable messages, its end.

use super::session::MODERN;
use super::{PATIENCE, Session, names, text};
use crate::support::TestHome;
use crate::terminal::Terminal;
use adjutant_os::process::Lock;
use serde_json::json;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Creates a home whose hub accepts connections and never answers.
fn silent_home() -> (TempDir, (UnixListener, Lock)) {
    let home = tempfile::tempdir().expect("a directory");
    let hub = UnixListener::bind(home.path().join("adj.sock")).expect("a socket");
    let lock = Lock::try_take(home.path(), &home.path().join("hub.lock"))
        .expect("a lock")
        .expect("it is free");
    (home, (hub, lock))
}

const PARENT_TOOLS: [&str; 15] = [
    "run_subagent",
    "wait_for_subagents",
    "check_subagent_status",
    "get_subagent_logs",
    "get_pending_questions",
    "reply_subagent",
    "steer_subagent",
    "review_changes",
    "merge_changes",
    "update_subagent_status",
    "list_coding_agents",
    "start_chat",
    "list_chats",
    "show_chat",
    "send_chat_message",
];

#[test]
fn batches_are_accepted_in_2025_03_26_only() {
    let (home, _hub) = silent_home();
    for (version, is_accepted) in [("2025-03-26", true), ("2025-06-18", false)] {
        let mut session = Session::start(home.path(), home.path(), &[]);
        let about = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        assert_eq!(
            session.request("initialize", about)["result"]["protocolVersion"],
            version
        );
        let message = |id: u64, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        session.write(&json!([note, message(91, "ping"), {"jsonrpc": "2.0", "id": 92, "method": 7}, message(93, "tools/list")]));
        if is_accepted {
            assert_eq!(session.reply(91)["result"], json!({}));
            assert_eq!(session.reply(92)["error"]["code"], -32600);
            assert_eq!(names(&session.reply(93)), PARENT_TOOLS);
        } else {
            // The reply names no request, because the batch has no id.
            session.write(&message(94, "ping"));
            session.reply(94);
            assert!(
                session
                    .aside
                    .iter()
                    .any(|reply| reply["id"].is_null() && reply["error"]["code"] == -32600),
                "{:?}",
                session.aside
            );
        }
    }
}

#[test]
fn both_protocol_generations_work_without_a_hub() {
    let (home, _hub) = silent_home();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut session = Session::start(home.path(), home.path(), &[]);
        let about = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let hello = session.request("initialize", about);
        assert_eq!(hello["result"]["protocolVersion"], version);
        assert_eq!(hello["result"]["serverInfo"]["name"], "adjutant");
        let capabilities =
            json!({"completions": {}, "resources": {"subscribe": true}, "tools": {}});
        assert_eq!(
            hello["result"]["capabilities"], capabilities,
            "Tasks belong to the modern era"
        );
        let list = session.request("tools/list", json!({}));
        assert_eq!(names(&list), PARENT_TOOLS);
        assert!(
            list["result"]["ttlMs"].is_null() && list["result"]["resultType"].is_null(),
            "a legacy shape: {list}"
        );
        assert_eq!(
            session.request("prompts/list", json!({}))["error"]["code"],
            -32601
        );
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            assert_eq!(
                session.request(method, json!({"taskId": "x"}))["error"]["code"],
                -32601,
                "{method} is of the modern era"
            );
            assert_eq!(
                session.request(method, json!({}))["error"]["code"],
                -32601,
                "{method}"
            );
        }
        assert_eq!(
            session.request("tools/list", json!({"cursor": "bogus"}))["error"]["code"],
            -32602
        );
    }
    let mut session = Session::open(home.path(), home.path(), &["--role", "worker"], true);
    let discovered = session.request("server/discover", json!({}));
    assert!(
        discovered["result"]["supportedVersions"]
            .as_array()
            .expect("versions")
            .contains(&json!(MODERN))
    );
    let list = session.request("tools/list", json!({}));
    let listed: Vec<_> =
        adjutant_mcp::mcp::catalog::list(adjutant_mcp::mcp::Role::Worker, false, &[])
            .into_iter()
            .map(|tool| tool.name)
            .collect();
    assert_eq!(names(&list), listed);
    assert!(
        !names(&list).contains(&"check_subagent_status"),
        "it can be called, and is not listed"
    );
    assert_eq!(list["result"]["cacheScope"], "private");
    assert_eq!(
        list["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "adjutant"
    );
    assert_eq!(
        session.request("resources/list", json!({}))["error"]["code"],
        -32601
    );
    let mut future = Session::start(home.path(), home.path(), &[]);
    let meta = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {}}});
    assert_eq!(future.request("tools/list", meta)["error"]["code"], -32022);
}

#[test]
fn unknown_version_is_downgraded() {
    let (home, _hub) = silent_home();
    for (asked, answered) in [("2099-01-01", "2025-11-25"), ("2026-07-28", "2025-11-25")] {
        let mut session = Session::start(home.path(), home.path(), &[]);
        let about = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        assert_eq!(
            session.request("initialize", about)["result"]["protocolVersion"],
            answered
        );
        assert_eq!(
            names(&session.request("tools/list", json!({}))),
            PARENT_TOOLS
        );
    }
    let mut modern = Session::open(home.path(), home.path(), &[], true);
    let versions =
        modern.request("server/discover", json!({}))["result"]["supportedVersions"].clone();
    assert_eq!(
        versions,
        json!([
            "2024-11-05",
            "2025-03-26",
            "2025-06-18",
            "2025-11-25",
            "2026-07-28"
        ])
    );
}

#[test]
fn ids_are_returned_unchanged() {
    let (home, _hub) = silent_home();
    for modern in [false, true] {
        let mut session = Session::open(home.path(), home.path(), &[], modern);
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
        let meta = if modern { meta } else { "" };
        for id in [
            "1.5",
            "9223372036854775808",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "1e400",
            "\"a\"",
            "7",
        ] {
            session.write_raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\",\"params\":{{{meta}}}}}\n").as_bytes());
            let line = session.lines.recv_timeout(PATIENCE).expect("an answer");
            assert!(
                line.contains(&format!("\"id\":{id},")) && line.contains("run_subagent"),
                "{id}: {line:.200}"
            );
            session.write_raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"no/such\",\"params\":{{{meta}}}}}\n").as_bytes());
            let line = session.lines.recv_timeout(PATIENCE).expect("an answer");
            assert!(
                line.contains(&format!("\"id\":{id},")) && line.contains("-32601"),
                "{id}: {line:.200}"
            );
        }
        let call = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"tools/call\",\"params\":{{\"name\":\"wait_for_subagents\"{}{meta}}}}}\n",
            if modern { "," } else { "" }
        );
        session.write_raw(call.as_bytes());
        session.write_raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1.5}}\n");
        assert_eq!(
            names(&session.request("tools/list", json!({}))),
            PARENT_TOOLS
        );
        assert!(
            session.aside.is_empty(),
            "a cancelled call was answered: {:?}",
            session.aside
        );
    }
}

#[test]
fn uninitialized_connection_gets_a_hint() {
    let (home, _hub) = silent_home();
    let mut session = Session::start(home.path(), home.path(), &[]);
    let about = json!({"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    for (method, params, code, says) in [
        ("tools/list", json!({}), -32602, "call initialize first"),
        (
            "initialize",
            json!({"protocolVersion": 20_250_618, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
            -32602,
            "protocolVersion (a string",
        ),
        (
            "initialize",
            about.clone(),
            -32602,
            "protocolVersion (a string",
        ),
        (
            "initialize",
            json!({"_meta": {"io.modelcontextprotocol/protocolVersion": MODERN}}),
            -32601,
            "no handshake",
        ),
        (
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}, "_meta": {"io.modelcontextprotocol/protocolVersion": MODERN}}),
            -32601,
            "no handshake",
        ),
    ] {
        let refused = session.request(method, params);
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(
            refused["error"]["code"] == code && message.contains(says),
            "{method}: {refused}"
        );
        assert!(!message.contains("missing or has malformed"), "{refused}");
    }
    let mut whole = about;
    whole["protocolVersion"] = json!("2025-06-18");
    assert_eq!(
        session.request("initialize", whole)["result"]["protocolVersion"],
        "2025-06-18"
    );
    let mut modern = Session::open(home.path(), home.path(), &[], true);
    assert_eq!(
        names(&modern.request("tools/list", json!({}))),
        PARENT_TOOLS
    );
    assert_eq!(
        modern.request("initialize", json!({}))["error"]["code"],
        -32601
    );
}

#[test]
fn unreadable_message_gets_an_error_with_its_protocols_id() {
    let (home, _hub) = silent_home();
    for modern in [false, true] {
        let mut session = Session::open(home.path(), home.path(), &[], modern);
        session.request("tools/list", json!({}));
        for broken in [
            "{\"jsonrpc\": ",
            "[]",
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        ] {
            session.write_raw(format!("{broken}\n").as_bytes());
            let line = session.lines.recv_timeout(PATIENCE).expect("an answer");
            assert_eq!(
                (line.contains("\"id\":null"), line.contains("\"id\"")),
                (!modern, !modern),
                "{broken}: {line}"
            );
        }
    }
}

#[test]
fn call_with_an_id_is_answered_under_it() {
    let (home, _hub) = silent_home();
    for modern in [false, true] {
        let mut session = Session::open(home.path(), home.path(), &[], modern);
        session.request("tools/list", json!({}));
        for (line, code) in [
            (
                r#"{"jsonrpc":"2.0","id":701,"method":"tools/list","params":{"a":NaN}}"#,
                -32700,
            ),
            (
                r#"{"jsonrpc":"2.0","id":701,"method":"tools/call","params":{"name":"run_subagent","arguments":{"prompt":"a","prompt":"b"}}}"#,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":701,"method":"tools/call","params":{"name":"run_subagent","arguments":"text"}}"#,
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":701,"method":"tools/call","params":{"name":"run_subagent","arguments":{"#,
                -32700,
            ),
        ] {
            session.write_raw(format!("{line}\n").as_bytes());
            assert_eq!(session.reply(701)["error"]["code"], code, "{line}");
        }
    }
}

#[test]
fn cut_emoji_and_arguments_in_a_string_start_a_run() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let call = |id: u64, arguments: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"run_subagent\",\"arguments\":{arguments}}}}}\n"
        )
    };
    session.write_raw(
        call(
            801,
            r#"{"agent":"echo","name":"half","prompt":"say half \ud83d end"}"#,
        )
        .as_bytes(),
    );
    assert_eq!(session.reply(801)["result"]["isError"], false);
    session.write_raw(
        call(
            802,
            r#""{\"agent\":\"echo\",\"name\":\"text\",\"prompt\":\"say in a string\"}""#,
        )
        .as_bytes(),
    );
    assert_eq!(session.reply(802)["result"]["isError"], false);
    assert_eq!(home.finished("half")["result"], "half \u{fffd} end");
    assert_eq!(home.finished("text")["result"], "in a string");
}

#[test]
fn broken_line_affects_no_other_message() {
    let (home, _hub) = silent_home();
    let mut session = Session::start(home.path(), home.path(), &[]);
    session.write(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}),
    );
    session.write_raw(b"{\"jsonrpc\": \n\xff\xfe\x00garbage\n[]\n\"x\"\n{}\n");
    session.write(&json!({"jsonrpc": "2.0", "id": 90, "result": {}}));
    let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let hello = session.request("initialize", about);
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    let told = |session: &Session| {
        session
            .aside
            .iter()
            .map(|message| message["error"]["code"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&session), [-32700, -32700, -32600, -32600, -32600]);
    session.write_raw(b"{\"jsonrpc\": \"2.0\", \"id\": 5, \"meth\n");
    session.write_raw(b"{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": [\"ping\"]}\n");
    assert_eq!(session.reply(5)["error"]["code"], -32600);
    assert_eq!(told(&session).len(), 6);
    session.write(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    );
    assert_eq!(
        session.request("tools/call", json!({"arguments": {}}))["error"]["code"],
        -32602
    );
    assert_eq!(
        session.request("tools/call", json!({"name": "run_subagents"}))["error"]["code"],
        -32602
    );
    assert_eq!(
        session.request("no/such", json!({}))["error"]["code"],
        -32601
    );
    let refused = session.tool("run_subagent", json!({"agent": "echo", "promt": "x"}));
    assert_eq!(refused["isError"], true);
    assert!(
        text(&refused).contains("did you mean `prompt`") && refused["structuredContent"].is_null(),
        "{refused}"
    );
    assert_eq!(
        names(&session.request("tools/list", json!({}))),
        PARENT_TOOLS
    );
}

#[test]
fn wait_reports_progress_and_ends_when_cancelled() {
    let (home, _hub) = silent_home();
    for modern in [false, true] {
        let mut session = Session::open(home.path(), home.path(), &[], modern);
        let waiting = session.send(
            "tools/call",
            json!({"name": "wait_for_subagents", "arguments": {}, "_meta": {"progressToken": "t"}}),
        );
        let progress = session.notification("notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "t");
        session.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}}));
        assert_eq!(
            names(&session.request("tools/list", json!({}))),
            PARENT_TOOLS
        );
        assert!(
            session.aside.iter().all(|message| message["id"] != waiting),
            "a cancelled call was answered"
        );
    }
}

#[test]
fn server_exits_at_the_end_of_its_input() {
    let (home, _hub) = silent_home();
    let mut session = Session::open(home.path(), home.path(), &[], false);
    let waiting =
        json!({"name": "wait_for_subagents", "arguments": {}, "_meta": {"progressToken": 1}});
    session.send("tools/call", waiting);
    session.notification("notifications/progress");
    let (status, took) = session.close();
    assert!(
        status.success() && took < Duration::from_secs(10),
        "{status} after {took:?}"
    );
    let (status, took) = Session::start(home.path(), home.path(), &[]).close();
    assert!(
        status.success() && took < Duration::from_secs(10),
        "{status} after {took:?}"
    );
}

#[test]
fn wrong_arguments_of_the_command_are_refused() {
    let home = tempfile::tempdir().expect("a directory");
    for (args, says) in [
        (&["--rolle", "x"][..], "--rolle"),
        (&["--role", "boss"], "boss"),
        (&["--token-file", "/no/such/file"], "/no/such/file"),
        (&["--client", "a\nb"], "client"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_adj"))
            .arg("mcp")
            .args(args)
            .env("ADJ_HOME", home.path())
            .output()
            .expect("adj runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && told.contains(says) && output.stdout.is_empty(),
            "{args:?}: {told}"
        );
    }
}

#[test]
fn person_at_a_terminal_reads_what_it_is_for() {
    let home = TestHome::new();
    let mut terminal = Terminal::of(home.command(&["mcp"]));
    terminal.shows("serves MCP clients");
    terminal.shows("connect a client: adj install");
    terminal.types("\x04");
    assert_eq!(terminal.ends(), Some(0));
    assert!(
        home.processes().is_empty(),
        "no hub is needed: {:?}",
        home.processes()
    );
}

#[test]
fn client_on_pipes_gets_no_notice() {
    let home = TestHome::new();
    let ran = home.adj(&["mcp"]);
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "", ""),
        "{ran:?}"
    );
}
