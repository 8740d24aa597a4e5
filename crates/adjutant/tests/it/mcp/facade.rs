//! `adj mcp --facade codex`: the tools of the removed `codex mcp-server`.

use super::{Session, text};
use crate::support::TestHome;
use serde_json::{Value, json};
use std::fs;

fn open(home: &TestHome, args: &[&str]) -> Session {
    Session::open(
        &home.home.dir,
        &home.work(),
        &[&["--facade", "codex", "--agent", "echo"], args].concat(),
        false,
    )
}

/// Returns the thread and the content of a result, which are also its text.
fn said(result: &Value) -> (String, String) {
    let part = |name: &str| {
        result["structuredContent"][name]
            .as_str()
            .unwrap_or_else(|| panic!("{name}: {result}"))
            .to_owned()
    };
    assert_eq!(text(result), part("content"));
    (part("threadId"), part("content"))
}

#[test]
fn facade_lists_the_tools_of_the_removed_server() {
    let home = TestHome::new();
    let mut session = open(&home, &[]);
    let listed = session.request("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> = listed
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["codex", "codex-reply"]);
    let fields = |tool: &Value| {
        tool["inputSchema"]["properties"].as_object().map(|all| {
            all.keys()
                .cloned()
                .collect::<std::collections::BTreeSet<_>>()
        })
    };
    let expected = [
        "approval-policy",
        "base-instructions",
        "compact-prompt",
        "config",
        "cwd",
        "developer-instructions",
        "model",
        "profile",
        "prompt",
        "sandbox",
    ];
    assert_eq!(fields(&listed[0]), Some(expected.map(str::to_owned).into()));
    assert_eq!(
        fields(&listed[1]),
        Some(
            ["conversationId", "prompt", "threadId"]
                .map(str::to_owned)
                .into()
        )
    );
    for tool in listed.as_array().expect("tools") {
        assert_eq!(
            (
                &tool["inputSchema"]["required"],
                &tool["outputSchema"]["required"]
            ),
            (&json!(["prompt"]), &json!(["threadId", "content"]))
        );
    }
    let unknown = session.request(
        "tools/call",
        json!({"name": "run_subagent", "arguments": {}}),
    );
    assert!(
        unknown["error"]["message"]
            .as_str()
            .is_some_and(|message| message.contains("use codex or codex-reply")),
        "{unknown}"
    );
}

#[test]
fn thread_is_continued_by_the_runs_that_follow() {
    let home = TestHome::new();
    fs::create_dir(home.work().join("below")).expect("a directory");
    let mut session = open(&home, &[]);
    let first = session
        .tool("codex", json!({"prompt": "---\nwrite a.txt x\nsay first", "cwd": "below", "sandbox": "workspace-write", "approval-policy": "never"}));
    let (thread, content) = said(&first);
    assert_eq!(
        (content.as_str(), first["isError"] == true),
        ("first", false),
        "{first}"
    );
    assert!(home.work().join("below/a.txt").exists());
    let run = home.show(&thread);
    assert_eq!(
        (&run["agent"], &run["permissions"], &run["run_id"]),
        (&json!("echo"), &json!("edit"), &json!(thread)),
        "{run}"
    );
    for (field, word) in [("threadId", "second"), ("conversationId", "third")] {
        let next = session.tool(
            "codex-reply",
            json!({field: thread, "prompt": format!("---\nsay {word}")}),
        );
        assert_eq!(said(&next), (thread.clone(), word.to_owned()), "{next}");
    }
    // Each follows the newest, in the same directory.
    let all = home.json(&["ps", "-a"]);
    let of = |n: usize, field: &str| all[n][field].clone();
    assert_eq!(
        (of(0, "retry_of"), of(1, "retry_of")),
        (of(1, "run_id"), json!(thread)),
        "{all}"
    );
    assert_eq!(of(0, "cwd"), run["cwd"]);
    // A process that knows nothing continues the thread, too.
    let mut other = open(&home, &[]);
    assert_eq!(
        said(&other.tool(
            "codex-reply",
            json!({"threadId": thread, "prompt": "---\nsay fourth"})
        ))
        .1,
        "fourth"
    );
    assert_eq!(
        said(&other.tool("codex-reply", json!({"threadId": thread, "prompt": ""}))).1,
        "fourth",
        "an empty prompt only waits"
    );
}

#[test]
fn question_is_answered_and_a_failure_is_an_error() {
    let home = TestHome::new();
    let mut session = open(&home, &["--max-wait", "60"]);
    let arguments = json!({"prompt": "---\nask \"Which colour?\"\nsay painted"});
    let asked = session.request(
        "tools/call",
        json!({"name": "codex", "arguments": arguments, "_meta": {"progressToken": 1}}),
    )["result"]
        .clone();
    assert_eq!(
        session.notification("notifications/progress")["params"]["progress"],
        1.0
    );
    assert!(
        session
            .aside
            .iter()
            .all(|other| other["params"]["progress"] != 1.0),
        "progress increases: {:?}",
        session.aside
    );
    let (thread, content) = said(&asked);
    assert!(content.starts_with("Which colour?"), "{asked}");
    let painted = session.tool("codex-reply", json!({"threadId": thread, "prompt": "blue"}));
    assert_eq!(said(&painted), (thread, "answer: blue\npainted".to_owned()));
    let failed = session.tool("codex", json!({"prompt": "---\nsay broken\nfail 3"}));
    let (thread, content) = said(&failed);
    assert!(
        failed["isError"] == true
            && content.contains("ended without success")
            && content.ends_with("broken"),
        "{failed}"
    );
    assert_eq!(
        said(&session.tool(
            "codex-reply",
            json!({"threadId": thread, "prompt": "---\nsay repaired"})
        ))
        .1,
        "repaired"
    );
}

/// What `codex mcp-server` asked the client by elicitation, the user decides.
#[test]
fn approval_waits_for_the_user() {
    let home = TestHome::new();
    let mut session = open(&home, &["--max-wait", "1"]);
    let waiting = session.tool(
        "codex",
        json!({"prompt": "---\napprove \"publish\"\nsay published"}),
    );
    let (thread, content) = said(&waiting);
    assert!(
        content.contains("The session still works. It waits for an approval: adj inbox"),
        "{waiting}"
    );
    home.ok(&["approve", "Q1"]);
    home.finished(&thread);
    let (_, content) =
        said(&session.tool("codex-reply", json!({"threadId": thread, "prompt": ""})));
    assert!(content.ends_with("published"), "{content}");
}

#[test]
fn what_cannot_be_mapped_is_refused_and_starts_nothing() {
    let home = TestHome::new();
    let mut session = open(&home, &[]);
    let prompt = "---\nsay x";
    let cases = [
        (
            json!({"prompt": prompt, "model": "gpt"}),
            "agent echo takes no model",
        ),
        (
            json!({"prompt": prompt, "profile": "p"}),
            "profile cannot be set",
        ),
        (
            json!({"prompt": prompt, "config": {"a": 1}}),
            "config cannot be set",
        ),
        (
            json!({"prompt": prompt, "base-instructions": "x"}),
            "base-instructions cannot be set",
        ),
        (
            json!({"prompt": prompt, "developer-instructions": "x"}),
            "developer-instructions cannot be set",
        ),
        (
            json!({"prompt": prompt, "compact-prompt": "x"}),
            "compact-prompt cannot be set",
        ),
        (
            json!({"prompt": prompt, "sandbox": "none"}),
            "workspace-write",
        ),
        (
            json!({"prompt": prompt, "approval-policy": "always"}),
            "on-request",
        ),
        (json!({"prompt": prompt, "cwd": "missing"}), "missing"),
        (json!({"prompt": prompt, "colour": "blue"}), "colour"),
        (json!({}), "prompt"),
    ];
    for (arguments, expected) in cases {
        let refused = session.tool("codex", arguments.clone());
        assert!(
            refused["isError"] == true && text(&refused).contains(expected),
            "{arguments}: {refused}"
        );
    }
    for (arguments, expected) in [
        (json!({"prompt": "x"}), "threadId is missing"),
        (json!({"prompt": "x", "threadId": "unknown"}), "unknown"),
    ] {
        let refused = session.tool("codex-reply", arguments.clone());
        assert!(
            refused["isError"] == true && text(&refused).contains(expected),
            "{arguments}: {refused}"
        );
    }
    assert_eq!(home.json(&["ps", "-a"]), json!([]));
    // A removed directory cannot be continued in.
    fs::create_dir(home.work().join("gone")).expect("a directory");
    let (thread, _) = said(&session.tool("codex", json!({"prompt": prompt, "cwd": "gone"})));
    fs::remove_dir(home.work().join("gone")).expect("it is empty");
    let refused = session.tool("codex-reply", json!({"threadId": thread, "prompt": prompt}));
    assert!(
        text(&refused).contains("is removed: start another run"),
        "{refused}"
    );
}
