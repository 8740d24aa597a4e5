//! A process under a supervisor is identified as its run, regardless of what it presents, sets or
//! steals.

use crate::support::TestHome;

/// Lets a run attack another run that waits for an answer. Returns the attacker's log.
fn against_a_victim(script: impl Fn(&TestHome) -> String) -> (TestHome, String) {
    let home = TestHome::new();
    home.start("victim", "ask \"Shall I delete everything?\"\ndone");
    home.until_status("victim", "waiting_parent_reply");
    home.start("rogue", &script(&home));
    home.finished("rogue");
    let log = home.log("rogue");
    let inbox = home.inbox(&[]);
    assert_eq!(
        inbox[0]["question"], "Shall I delete everything?",
        "still open after what the other run did; its log: {log}"
    );
    assert_eq!(
        home.show("victim")["status"],
        "waiting_parent_reply",
        "{log}"
    );
    (home, log)
}

#[test]
fn agents_shell_cannot_answer_or_cancel() {
    let (_home, log) = against_a_victim(|_| {
        "adj reply victim yes\nadj cancel victim\nadj stop\nsay end".to_string()
    });
    assert!(!log.contains("exit: 0"), "{log}");
}

#[test]
fn scrubbed_process_cannot_answer_or_cancel() {
    let (_home, log) = against_a_victim(|_| {
        "scrub-adj reply victim yes\nscrub-adj cancel victim\nscrub-adj --json ps\nsay end"
            .to_string()
    });
    assert!(!log.contains("answered"), "{log}");
    assert!(
        !log.contains("delete everything"),
        "other runs stay out of sight: {log}"
    );
}

#[test]
fn run_cannot_answer_its_own_question() {
    let home = TestHome::new();
    home.start(
        "selfish",
        "tool ask_parent {\"question\":\"May I?\",\"wait_s\":0,\"blocking\":false}\nadj reply selfish yes\nscrub-adj reply selfish yes\nsay end",
    );
    home.finished("selfish");
    let all = home.inbox(&["--all"]);
    assert_eq!(all[0]["question"], "May I?", "{all}");
    assert!(all[0]["answer"].is_null(), "{all} {}", home.log("selfish"));
}

#[test]
fn mcp_server_without_a_token_acts_as_the_run() {
    let (_home, log) = against_a_victim(|_| {
        "stdio-tool get_pending_questions {}\nstdio-tool reply_subagent {\"run_id\":\"victim\",\"answer\":\"yes\"}\n\
         stdio-tool run_subagent {\"agent\":\"echo\",\"prompt\":\"say child\"}\nstdio-tool check_subagent_status {}\nsay end"
            .to_string()
    });
    assert!(!log.contains("delete everything"), "{log}");
    assert!(log.contains("refused"), "{log}");
}

#[test]
fn siblings_stolen_token_is_refused_on_the_sockets() {
    let (_home, log) = against_a_victim(|home| {
        let stolen = home.attempt_dir("victim").worker_access();
        let path = stolen.display();
        format!(
            "steal {path} ask_parent {{\"question\":\"forged\",\"wait_s\":0}}\nsteal-socket {path} ask {{\"question\":\"forged too\"}}\n\
             steal-socket {path} run {{\"run\":\"\"}}\nsay end"
        )
    });
    assert!(!log.contains("victim\""), "{log}");
    let refused = log.matches("refused").count();
    assert!(refused >= 2, "{log}");
}

/// Calls the HTTP endpoint of a run with the token in its file.
const STEALS: &str = r#"#!/bin/bash
cat > /dev/null
read -r file < victim
token=$(sed -E 's/.*"token":"([^"]*)".*/\1/' "$file")
port=$(sed -E 's/.*127.0.0.1:([0-9]+).*/\1/' "$file")
body='{"question":"Forged?","wait_s":0}'
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /api/v1/ask HTTP/1.1\r\nhost: 127.0.0.1:%s\r\nauthorization: Bearer %s\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %s\r\n\r\n%s' "$port" "$token" "${#body}" "$body" >&3
cat <&3
echo end
"#;

#[test]
fn siblings_stolen_token_is_refused_over_http() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("thief");
    std::fs::write(&script, STEALS).expect("written");
    let agent = |name: &str, more: &str| {
        format!(
            "[agents.{name}]\nharness = \"plain\"\ncommand = [\"/bin/bash\", \"{}\"]\nprompt = \"stdin\"\n{more}",
            script.display()
        )
    };
    let home =
        TestHome::with_config(&(agent("thief", "") + &agent("linter", "identity = \"none\"\n")));
    home.start("victim", "ask \"Shall I delete everything?\"\ndone");
    home.until_status("victim", "waiting_parent_reply");
    let access = home.attempt_dir("victim").worker_access();
    std::fs::write(
        home.work().join("victim"),
        format!("{}\n", access.display()),
    )
    .expect("written");
    for name in ["thief", "linter"] {
        home.start_agent(name, name, "steal");
        home.finished(name);
        let log = home.log(name);
        assert!(
            log.contains("HTTP/1.1 403")
                && log.contains("the token belongs to another run")
                && log.contains("end"),
            "{log}"
        );
    }
    assert_eq!(
        home.inbox(&[]).as_array().map(Vec::len),
        Some(1),
        "only the victim asks"
    );
}

#[test]
fn agent_without_identity_has_no_token_and_cannot_ask() {
    let tool = "[agents.linter]\nharness = \"plain\"\ncommand = [\"/bin/sh\"]\nprompt = \"stdin\"\nidentity = \"none\"\n";
    let home = TestHome::with_config(tool);
    let program = home.program.display().to_string();
    let script = format!(
        "echo \"file: $ADJ_WORKER.\"; find \"$ADJ_HOME/runs\" -name 'worker*'; {program} ps 2>&1; echo end"
    );
    home.start_agent("linter", "lint", &script);
    home.finished("lint");
    let log = home.log("lint");
    assert!(
        log.contains("file: .") && log.contains("end") && log.contains("identity = \"none\""),
        "{log}"
    );
    assert!(!log.contains("worker.json"), "{log}");
}

#[test]
fn token_is_in_no_argument_and_in_no_environment() {
    let home = TestHome::new();
    home.start("quiet", "print-env\nask \"Look?\"\ndone");
    home.until_status("quiet", "waiting_parent_reply");
    let access = std::fs::read_to_string(home.attempt_dir("quiet").worker_access())
        .expect("the worker's access");
    let access: adjutant_api::protocol::WorkerAccess =
        serde_json::from_str(&access).expect("is JSON");
    let mut agents = 0;
    for (pid, arguments) in home.processes() {
        assert!(!arguments.contains(&access.token), "{pid} {arguments}");
        match std::fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) => {
                assert!(
                    !String::from_utf8_lossy(&environment).contains(&access.token),
                    "{pid} {arguments}"
                );
                agents +=
                    usize::from(arguments.contains("__echo") && !arguments.contains("__init"));
            }
            // Adjutant's own processes cannot be inspected by other processes of the user.
            Err(error) => {
                assert_eq!(
                    error.kind(),
                    std::io::ErrorKind::PermissionDenied,
                    "{pid} {arguments}: {error}"
                );
                let is_ours = ["__hub", "__guard", "__supervise", "__init"]
                    .iter()
                    .any(|word| arguments.contains(word));
                assert!(is_ours, "{pid} {arguments} cannot be looked into");
            }
        }
    }
    assert_eq!(agents, 1, "the agent's environment was looked at");
    assert!(!home.log("quiet").contains(&access.token));
}
