//! Questions, answers and messages through tools.

use super::{Session, names, run_of, text};
use crate::support::TestHome;
use serde_json::{Value, json};

#[test]
fn original_protocol_names_work_and_are_listed_on_demand() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &["--compat"], false);
    let list = session.request("tools/list", json!({}));
    for name in ["run_subagent_echo", "check_status", "get_logs", "update_status"] {
        assert!(names(&list).contains(&name), "{name}: {:?}", names(&list));
    }
    let reply = list["result"]["tools"].as_array().expect("tools").iter().find(|tool| tool["name"] == "reply_subagent").expect("listed");
    assert!(reply["inputSchema"]["properties"]["runId"].is_object() && reply["inputSchema"]["properties"]["run_id"].is_null());

    let script = "---\ntool ask_parent {\"runId\":\"seed\",\"question\":\"Which one?\",\"wait_s\":0}\nask \"Wait?\"\n\
                  tool check_message_status {\"runId\":\"seed\",\"messageId\":\"Q1\"}\ndone ok";
    let work = home.work();
    let started = session.done("run_subagent_echo", json!({"input": script, "cwd": work, "name": "seed"}));
    let run = started["runId"].as_str().expect("runId").to_owned();
    home.until("both questions are asked", || (home.show("seed")["pending"].as_array().map_or(0, Vec::len) == 2).then_some(()));
    let status = session.done("check_status", json!({"runId": run}));
    assert_eq!((&status["runId"], &status["agentName"], &status["status"]), (&json!(run), &json!("echo"), &json!("waiting_parent_reply")));
    let first = &status["messages"][0];
    assert_eq!((&first["questionContent"], &first["messageStatus"]), (&json!("Which one?"), &json!("pending_parent_reply")));
    let ids: Vec<Value> = (0..2).map(|n| status["messages"][n]["messageId"].clone()).collect();
    for id in ids {
        let replied = session.done("reply_subagent", json!({"runId": run, "messageId": id, "answer": "config.json"}));
        assert_eq!(replied["success"], true);
        assert_eq!(replied["updatedMetadata"]["messages"][0]["answerContent"], "config.json");
    }
    home.finished("seed");
    let log = session.done("get_logs", json!({"runId": run}));
    assert!(log["text"].as_str().is_some_and(|text| text.contains("result: Q1 asked at")), "{log}");
    let ended = session.done("check_status", json!({"runId": run}));
    assert_eq!(ended["messages"][0]["messageStatus"], "acknowledged_by_subagent");
    let noted = session.done("update_status", json!({"runId": run, "status": "error", "summary": "looked wrong to me"}));
    assert_eq!(noted["annotation"], "error: looked wrong to me", "a remark, and no change of its end: {noted}");
}

#[test]
fn several_answers_are_recorded_all_or_none() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let run = run_of(&session.done("run_subagent", json!({"agent": "echo", "prompt": "---\nasks 3 Colour?\ndone ok"})));
    home.until("three questions are asked", || (home.show(&run)["pending"].as_array().map_or(0, Vec::len) == 3).then_some(()));
    let vague = session.tool("reply_subagent", json!({"run_id": run, "answer": "red"}));
    assert!(vague["isError"] == true && text(&vague).contains("Q1") && text(&vague).contains("Q3"), "it lists them: {vague}");
    let half = session.tool("reply_subagent", json!({"answers": [{"message_id": "Q1", "answer": "red"}, {"message_id": "Q77", "answer": "blue"}]}));
    assert!(half["isError"] == true && text(&half).contains("Q77: no such question"), "it says which one: {half}");
    assert_eq!(session.done("get_pending_questions", json!({}))["questions"].as_array().map(Vec::len), Some(3));
    let answers: Vec<Value> = (1..=3).map(|n| json!({"message_id": format!("Q{n}"), "answer": format!("colour {n}")})).collect();
    session.done("reply_subagent", json!({"answers": answers}));
    assert_eq!(home.finished(&run)["outcome"], "succeeded");
}

#[test]
fn reply_timeout_ends_a_check_and_not_the_question() {
    let home = TestHome::with_config("[agents.hasty]\nharness = \"echo\"\npatience = \"1s\"\n");
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let script = "---\ntool ask_parent {\"question\":\"Anyone?\",\"blocking\":false}\ntool check_answer {\"message_id\":\"Q1\"}\n\
                  ask \"Go on?\"\ntool check_answer {\"message_id\":\"Q1\"}\ntool check_answer {\"message_id\":\"Q1\"}\ndone ok";
    let run = run_of(&session.done("run_subagent", json!({"agent": "hasty", "prompt": script})));
    home.until("it asks again", || (home.show(&run)["pending"].as_array().map_or(0, Vec::len) == 2).then_some(()));
    let log = session.done("get_subagent_logs", json!({"run_id": run}));
    assert!(log["text"].as_str().is_some_and(|text| text.contains("Stalled: Parent No-Response")), "{log}");
    session.done("reply_subagent", json!({"answers": [{"message_id": "Q1", "answer": "late but here"}, {"message_id": "Q2", "answer": "yes"}]}));
    home.finished(&run);
    let log = home.log(&run);
    assert_eq!(log.matches("late but here").count(), 2, "a late answer is still delivered and stays readable: {log}");
}

#[test]
fn status_check_of_a_run_delivers_answers_and_messages() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let script = "---\ntool ask_parent {\"question\":\"Side question?\",\"blocking\":false}\nask \"Main question?\"\n\
                  tool check_subagent_status {}\ntool check_subagent_status {}\ndone ok";
    let run = run_of(&session.done("run_subagent", json!({"agent": "echo", "prompt": script})));
    home.until("both are asked", || (home.show(&run)["pending_total"] == 2).then_some(()));
    session.done("reply_subagent", json!({"message_id": "Q1", "answer": "by the way"}));
    session.done("steer_subagent", json!({"run_id": run, "action": "message", "text": "look out"}));
    session.done("reply_subagent", json!({"run_id": run, "answer": "go"}));
    home.finished(&run);
    let log = home.log(&run);
    assert_eq!(log.matches("by the way").count(), 1, "read once by looking: {log}");
    assert_eq!(log.matches("look out").count(), 1, "a message is given once: {log}");
}
