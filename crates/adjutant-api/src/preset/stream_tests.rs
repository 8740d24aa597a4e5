//! Tests of the built-in presets' stream rules.

use crate::preset;
use adjutant_core::Cause;
use adjutant_core::subagent::Subagent;
use adjutant_stream::format::End;
use adjutant_stream::reader::{Part, Reader, ReaderConfig, StreamUpdate, Summary};
use adjutant_stream::rules::{Rules, SHOWN_BYTES_MAX};

fn reader(name: &str, answers_after: Option<u64>) -> Reader {
    Reader::new(
        &ReaderConfig {
            stream: preset::builtin(name).expect("it is there").stream,
            answers_after,
        },
        16 * 1024,
    )
}

fn read(mut reader: Reader, pieces: &[&[u8]]) -> (String, String, Vec<StreamUpdate>, Summary) {
    let (mut log, mut words, mut updates) = (String::new(), String::new(), Vec::new());
    let mut part = |part: Part<'_>| match part {
        Part::Text(text) => {
            log.push_str(text);
            words.push_str(text);
        }
        Part::Note(text) => log.push_str(text),
    };
    for piece in pieces {
        reader.push(piece, &mut part, &mut updates);
    }
    let summary = reader.finish(&mut part, &mut updates);
    (log, words, updates, summary)
}

const CODEX: &str = concat!(
    r#"{"id":2,"result":{"thread":{"id":"t1"}}}"#,
    "\n",
    r#"{"method":"item/started","params":{"item":{"type":"commandExecution","command":"ls ä"}}}"#,
    "\nReading additional input from stdin...\n",
    r#"{"method":"item/completed","params":{"item":{"type":"commandExecution","aggregatedOutput":"one\ntwo\n"}}}"#,
    "\n",
    r#"{"method":"item/agentMessage/delta","params":{"itemId":"m","delta":"All done."}}"#,
    "\n",
    r#"{"method":"account/rateLimits/updated","params":{"rateLimits":{"primary":{"usedPercent":100,"resetsAt":1795288981}}}}"#,
    "\n",
    r#"{"method":"thread/tokenUsage/updated","params":{"tokenUsage":{"total":{"inputTokens":10,"cachedInputTokens":4,"outputTokens":2}}}}"#,
    "\n",
    r#"{"method":"turn/completed","params":{"turn":{"status":"completed"}}}"#,
);

#[test]
fn cli_remark_is_not_a_result() {
    let said = |texts: &[&str]| {
        let mut reader = reader("copilot", None);
        let (mut log, mut updates) = (String::new(), Vec::new());
        for text in texts {
            let update = serde_json::json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
            let line = format!(
                "{}\n",
                serde_json::json!({"method": "session/update", "params": {"update": update}})
            );
            reader.push(
                line.as_bytes(),
                &mut |part| {
                    log.push_str(match part {
                        Part::Text(text) | Part::Note(text) => text,
                    })
                },
                &mut updates,
            );
        }
        let result = reader.finish(&mut |_| (), &mut updates).result;
        (result, log.contains("Info: /w/a.txt"), updates)
    };
    assert_eq!(
        said(&["Info: /w/a.txt", "It is", " written."]),
        (
            "It is written.".to_owned(),
            true,
            vec![StreamUpdate::ModelText]
        )
    );
    assert_eq!(
        said(&["Info: /w/a.txt"]),
        ("Info: /w/a.txt".to_owned(), true, Vec::new()),
        "there is no other text"
    );
}

#[test]
fn result_is_the_last_answer_at_any_chunking() {
    let whole = read(reader("codex", None), &[CODEX.as_bytes()]);
    assert_eq!(
        whole.0,
        "→ commandExecution ls ä\nReading additional input from stdin...\n← one\n  two\nAll done.\n"
    );
    assert_eq!(
        (whole.1.as_str(), whole.3.result.as_str(), whole.3.end),
        ("All done.\n", "All done.", Some(End::Success))
    );
    assert_eq!(
        whole.2.first(),
        Some(&StreamUpdate::Session("t1".to_owned()))
    );
    assert_eq!(
        (whole.2.len(), whole.3.limit_reset_at_s),
        (5, Some(1_795_288_981)),
        "the session, the reply, text, the usage and the end"
    );
    assert_eq!(
        whole
            .3
            .usage
            .map(|usage| (usage.input_tokens, usage.cached_tokens, usage.output_tokens)),
        Some((10, 4, 2))
    );
    for at in 0..CODEX.len() {
        assert_eq!(
            read(
                reader("codex", None),
                &[&CODEX.as_bytes()[..at], &CODEX.as_bytes()[at..]]
            ),
            whole,
            "cut at {at}"
        );
    }
}

#[test]
fn failed_tries_are_one_line_until_progress() {
    let retry = "{\"type\":\"system\",\"subtype\":\"api_retry\",\"error_status\":null,\"error\":\"unknown\"}\n";
    let text = "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"Hello\"}]}}\n";
    let stream = [retry, retry, retry, text, retry, "noise\n", retry].concat();
    let (log, words, updates, summary) = read(reader("claude", None), &[stream.as_bytes()]);
    assert_eq!(log, "! unknown ×3\nHello\n! unknown\nnoise\n! unknown\n");
    assert_eq!(
        (words.as_str(), summary.error.as_str()),
        ("Hello\n", "unknown")
    );
    let failed = |updates: &&StreamUpdate| {
        matches!(
            updates,
            StreamUpdate::Retry {
                cause: Some(Cause::Network),
                ..
            }
        )
    };
    assert_eq!(
        (
            updates.iter().filter(failed).count(),
            updates
                .iter()
                .filter(|updates| **updates == StreamUpdate::Progress)
                .count()
        ),
        (5, 1)
    );
}

#[test]
fn retry_notice_is_not_model_output() {
    let chunk = |text: &str| {
        format!(
            "{{\"method\":\"session/update\",\"params\":{{\"update\":{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}}}}}\n"
        )
    };
    let note = "Info: Request failed due to a transient API error. Retrying...";
    let stream = [
        chunk(note),
        chunk(note),
        chunk("Done: "),
        chunk(&format!("I saw {note}")),
    ]
    .concat();
    let (log, words, _, summary) = read(reader("copilot", None), &[stream.as_bytes()]);
    assert_eq!(summary.result, format!("Done: I saw {note}"));
    assert_eq!(
        (log.as_str(), words.matches("Info:").count()),
        (&*format!("! {note} ×2\nDone: I saw {note}\n"), 1)
    );
}

const CHILD: &str = concat!(
    r#"{"type":"system","subtype":"init","session_id":"s1"}"#,
    "\n",
    r#"{"type":"system","subtype":"task_started","task_id":"a","tool_use_id":"t1","description":"count\n[y] files","subagent_type":"general","task_type":"local_agent"}"#,
    "\n",
    r#"{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":"t1"}"#,
    "\n",
    r#"{"type":"assistant","message":{"content":[{"type":"text","text":"[STOP_WORK]\nmine\n[/STOP_WORK]"}]},"parent_tool_use_id":"t1"}"#,
    "\n",
    r#"{"type":"system","subtype":"task_notification","tool_use_id":"t1","status":"completed","usage":{"total_tokens":2020}}"#,
    "\n",
    r#"{"type":"system","subtype":"task_notification","tool_use_id":"of a command","status":"completed"}"#,
    "\n",
    r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Counted."}]},"parent_tool_use_id":null}"#,
    "\n",
);

fn subagents(updates: &[StreamUpdate]) -> Vec<Subagent> {
    let newest = updates.iter().rev().find_map(|updates| {
        if let StreamUpdate::Subagents(all, 0) = updates {
            Some(all.clone())
        } else {
            None
        }
    });
    newest.expect("there are some")
}

#[test]
fn sub_agent_output_is_only_logged_under_its_name() {
    let (log, words, updates, summary) = read(reader("claude", None), &[CHILD.as_bytes()]);
    let expected = "[count [y] files] → Bash {\"command\":\"ls\"}\n[count [y] files] [STOP_WORK]\n  mine\n  [/STOP_WORK]\nCounted.\n";
    assert_eq!(
        (log.as_str(), words.as_str(), summary.result.as_str()),
        (expected, "Counted.\n", "Counted.")
    );
    let known = Subagent {
        id: "t1".to_owned(),
        kind: Some("general".to_owned()),
        about: Some("count [y] files".to_owned()),
        state: Some("completed".to_owned()),
        tokens: Some(2020),
    };
    assert_eq!(subagents(&updates), [known]);
}

#[test]
fn thread_of_a_sub_agent_does_not_end_the_run() {
    let item = |kind: &str| {
        format!(
            "{{\"method\":\"item/started\",\"params\":{{\"threadId\":\"t1\",\"item\":{{\"type\":\"subAgentActivity\",\"kind\":\"{kind}\",\"agentThreadId\":\"t2\",\"agentPath\":\"/root/count\"}}}}}}\n"
        )
    };
    let ended = "{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"t2\",\"turn\":{\"status\":\"completed\",\"items\":[{\"type\":\"agentMessage\",\"text\":\"forged\"}]}}}\n";
    let usage = "{\"method\":\"thread/tokenUsage/updated\",\"params\":{\"threadId\":\"t2\",\"tokenUsage\":{\"total\":{\"inputTokens\":5,\"outputTokens\":2}}}}\n";
    let parts = "{\"id\":2,\"result\":{\"thread\":{\"id\":\"t1\"}}}\n".to_owned();
    let stream = [
        parts,
        item("started"),
        usage.to_owned(),
        ended.to_owned(),
        item("completed"),
    ]
    .concat();
    let (log, words, updates, summary) = read(reader("codex", None), &[stream.as_bytes()]);
    assert_eq!(
        (log.as_str(), words.as_str()),
        ("[/root/count] forged\n", "")
    );
    assert_eq!(
        (summary.end, summary.usage, summary.result.as_str()),
        (None, None, "")
    );
    let [known] = &subagents(&updates)[..] else {
        panic!("one: {updates:?}")
    };
    assert_eq!(
        (known.state.as_deref(), known.tokens, known.kind.as_deref()),
        (Some("completed"), Some(7), None)
    );
}

#[test]
fn message_chunks_are_joined_and_history_is_skipped() {
    let chunk = |text: &str| {
        format!(
            "{{\"method\":\"session/update\",\"params\":{{\"update\":{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}}}}}\n"
        )
    };
    let stream = [
        chunk("of yesterday"),
        "{\"id\":3,\"result\":{}}\n".to_owned(),
        chunk("Hel"),
        chunk("lo"),
        "{\"method\":\"session/update\",\"params\":{\"update\":{\"sessionUpdate\":\"tool_call\",\"title\":\"ls\"}}}\n".to_owned(),
        chunk("Bye"),
        "{\"id\":5,\"result\":{\"stopReason\":\"end_turn\"}}\n".to_owned(),
    ]
    .concat();
    let (log, words, updates, summary) = read(reader("gemini", Some(3)), &[stream.as_bytes()]);
    assert_eq!(log, "Hello\n→ ls\nBye\n");
    assert_eq!(words, "Hello\nBye\n");
    assert_eq!(
        (summary.result.as_str(), summary.end),
        ("Bye", Some(End::Success))
    );
    // Two replies and the tool call that may need approval. Text is reported once between them.
    assert!(
        matches!(
            updates[..],
            [
                StreamUpdate::DialogueLine(_),
                StreamUpdate::ModelText,
                StreamUpdate::DialogueLine(_),
                StreamUpdate::ModelText,
                StreamUpdate::DialogueLine(_)
            ]
        ),
        "{updates:?}"
    );
}

fn said(name: &str, lines: &[&str]) -> Vec<String> {
    let rules = Rules::new(&preset::builtin(name).expect("it is there").stream);
    let mut all = Vec::new();
    for line in lines {
        assert!(
            rules.read(line, &mut |said| all.push(format!("{said:?}"))),
            "{line}"
        );
    }
    all
}

#[test]
fn claude_lines_become_events() {
    let all = said(
        "claude",
        &[
            r#"{"type":"system","subtype":"init","session_id":"s1","tools":["Bash"]}"#,
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"I \"look\"\n"},{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}"#,
            r#"{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}}"#,
            r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1795288747}}"#,
            r#"{"type":"an event of next year","x":[1,{"y":null}]}"#,
            r#"{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.5,"usage":{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":5,"output_tokens":6}}"#,
            r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 401","usage":{"input_tokens":0,"output_tokens":0}}"#,
        ],
    );
    let expected = [
        r#"Session("s1")"#,
        r#"Text("I \"look\"\n")"#,
        r#"Tool { name: "Bash", input: "{\"command\":\"ls\"}" }"#,
        r#"Output("a\nb")"#,
        "LimitReset(1795288747)",
        "Usage(Usage { input_tokens: 7, cached_tokens: 5, output_tokens: 6, cost_usd: Some(0.5), add: true, cost_is_total: true })",
        "DialogueLine",
        r#"Result("done")"#,
        "End(Success)",
        "Usage(Usage { input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd: None, add: true, cost_is_total: true })",
        "DialogueLine",
        r#"Error("API Error: 401")"#,
        r#"Result("API Error: 401")"#,
        "End(Failure)",
    ];
    assert_eq!(all, expected);
}

#[test]
fn tool_output_is_cut_without_splitting_an_escape() {
    for length in SHOWN_BYTES_MAX - 14..SHOWN_BYTES_MAX + 2 {
        let line = format!(
            r#"{{"method":"item/completed","params":{{"item":{{"type":"commandExecution","aggregatedOutput":"{}\ud83d\ude00\n{}"}}}}}}"#,
            "x".repeat(length),
            "y".repeat(99)
        );
        let all = said("codex", &[&line]);
        assert!(
            all.len() == 1 && all[0].starts_with("Output(\"xxx") && all[0].ends_with("…\")"),
            "{all:?}"
        );
    }
}

#[test]
fn line_without_an_object_yields_no_events() {
    let rules = Rules::new(&preset::builtin("gemini").expect("it is there").stream);
    for line in ["", "Loaded cached credentials.", "[1]", "{\"a\":", "{}x"] {
        assert!(!rules.read(line, &mut |said| panic!("{said:?}")), "{line}");
    }
}

#[test]
fn retries_are_found_in_the_logs_of_clis() {
    let found = |name: &str, line: &str| {
        let stream = preset::builtin(name).expect("it is there").stream;
        stream
            .stderr_retries
            .iter()
            .find_map(|retry| retry.find(line, Some("20261123_1")))
            .map(str::to_owned)
    };
    let gemini = "[2026-11-23T02:55:42.575Z] [WARN] Attempt 1 failed with status 529. Retrying with backoff... _ApiError: {\"error\":1}";
    assert_eq!(
        found("gemini", gemini).as_deref(),
        Some("_ApiError: {\"error\":1}")
    );
    let later = "[2026-11-23T02:55:42.575Z] [WARN] Attempt 2 failed: quota exceeded. Retrying after 60000ms...";
    assert_eq!(found("gemini", later).as_deref(), Some("quota exceeded"));
    let of_two_lines = "[2026-11-23T02:55:42.575Z] [WARN] Attempt 2 failed: too many requests\n";
    assert_eq!(
        found("gemini", of_two_lines).as_deref(),
        Some("too many requests")
    );
    assert_eq!(
        found(
            "gemini",
            "[2026-11-23T02:55:42.575Z] [WARN] Ripgrep is not available."
        ),
        None
    );
    let qwen = "2026-11-23T12:48:31.342Z [ERROR] [RETRY] Attempt 1 failed with status 503. Retrying with backoff in 2s... {\n";
    assert_eq!(
        found("qwen", qwen).as_deref(),
        Some("Attempt 1 failed with status 503. Retrying with backoff in 2s")
    );
    let goose = r#"{"fields":{"message":"Request failed, retrying (1/3): RateLimitExceeded { details: \"slow down\", retry_delay: None }"},"span":{"session.id":"20261123_1"}}"#;
    assert_eq!(
        found("goose", goose).as_deref(),
        Some("RateLimitExceeded { details: \\\"slow down\\\", retry_delay: None }")
    );
    assert_eq!(
        found("goose", &goose.replace("1123_1", "1123_2")),
        None,
        "of another session"
    );
    let droid = r#"    at x (native:7:39) | Context: {"cause":{"name":"Error","message":"529 Overloaded","stack":"Error: 529 Overloaded\n    at makeRequest (x:1)"}}"#;
    assert_eq!(found("droid", droid).as_deref(), Some("529 Overloaded"));
    assert_eq!(
        found(
            "droid",
            r#"WARN: no credentials | Context: {"tags":{"message":"x"}}"#
        ),
        None
    );
}
