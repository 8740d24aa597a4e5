//! Changes of the configuration's policies: a live run cannot approve itself by them.

use crate::support::TestHome;
use serde_json::{Value, json};
use std::process::Command;

const CAREFUL: &str = "[[policies]]\nname = \"reads\"\ndecision = \"allow\"\ntool = \"request_approval\"\ncommand = \"git status\"\n\
    [[policies]]\nname = \"no-push\"\ndecision = \"deny\"\ncommand = \"git push\"\n";
const ANYTHING: &str = "[[policies]]\nname = \"x\"\ndecision = \"allow\"\nany = true\n";

/// A line of the echo agent's script that asks for approval of a command.
fn asks(command: &str) -> String {
    format!(
        "tool request_approval {}",
        json!({"action": format!("run {command}"), "command": command, "wait_s": 0})
    )
}

/// A line of the echo agent's script that replaces the configuration.
fn writes(home: &TestHome, text: &str) -> String {
    format!(
        "write {} {}",
        home.home.dir.join("config.toml").display(),
        text.replace('\n', "\\n")
    )
}

fn configure(home: &TestHome, text: &str) {
    let (file, new) = (
        home.home.dir.join("config.toml"),
        home.home.dir.join("config.new"),
    );
    std::fs::write(&new, text).expect("the home can be written");
    std::fs::rename(new, file).expect("the home can be written");
}

/// Returns who answered each request, once there are so many.
fn answered_by(home: &TestHome, count: usize) -> Vec<Value> {
    home.until("all are asked", || {
        let all = home.inbox(&["--all"]).as_array().cloned()?;
        (all.len() == count).then(|| all.iter().map(|one| one["answered_by"].clone()).collect())
    })
}

fn change(home: &TestHome) -> Value {
    home.json(&["policy"])["change"].clone()
}

fn kill_hub(home: &TestHome) {
    let pid = home.hub_pid().to_string();
    assert!(
        Command::new("kill")
            .args(["-9", &pid])
            .status()
            .expect("kill runs")
            .success()
    );
}

fn both(ran: &crate::support::Ran) -> String {
    format!("{}{}", ran.out, ran.err)
}

#[test]
fn live_run_cannot_approve_itself_by_a_policy() {
    let home = TestHome::with_config(CAREFUL);
    home.start(
        "job",
        &[
            asks("git status"),
            writes(&home, ANYTHING),
            asks("deploy"),
            asks("git push"),
            "hang".to_owned(),
        ]
        .join("\n"),
    );
    assert_eq!(
        answered_by(&home, 3),
        [json!("policy reads"), Value::Null, json!("policy no-push")],
        "the policies of before count"
    );
    let waits = change(&home);
    let id = waits["change"].as_str().expect("a change waits").to_owned();
    let policies: Vec<(&Value, &Value, &Value)> = waits["policies"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (&one["policy"]["name"], &one["is_added"], &one["permits"]))
        .collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(
        policies,
        [
            (&json!("reads"), &no, &no),
            (&json!("no-push"), &no, &yes),
            (&json!("x"), &yes, &yes)
        ]
    );
    let command = format!("adj policy trust --change {id}");
    let listed = both(&home.adj(&["policy"]));
    assert!(
        listed.contains("+ allow x: every request (permits more)")
            && listed.contains("- deny no-push")
            && listed.contains(&command),
        "{listed}"
    );
    assert!(
        listed.contains("reads") && !listed.contains("cannot be used"),
        "{listed}"
    );
    let told = "changed while runs were live (2 of the changes permit more), and count only when you trust them";
    for args in [&["inbox"][..], &["doctor"], &["wait"]] {
        assert!(
            both(&home.adj(args)).contains(told),
            "{args:?}: {}",
            both(&home.adj(args))
        );
    }
    assert!(
        both(&home.adj(&["ps"])).contains("1 change of the policies"),
        "{}",
        both(&home.adj(&["ps"]))
    );
    // A run is refused, also for its own approval.
    home.start("helper", &format!("adj policy trust --change {id}"));
    home.finished("helper");
    assert!(
        home.log("helper").contains("not_allowed"),
        "{}",
        home.log("helper")
    );
    assert!(both(&home.adj(&["policy", "trust"])).contains("name what you trust"));

    // Neither a new hub nor the end of the run makes it count.
    kill_hub(&home);
    assert_eq!(change(&home)["change"], id.as_str());
    home.ok(&["stop"]);
    home.ok(&["cancel", "job"]);
    home.finished("job");
    home.start("later", &[asks("deploy"), "hang".to_owned()].join("\n"));
    assert_eq!(answered_by(&home, 4)[3], Value::Null);

    // What changes again is another change.
    configure(&home, &format!("{ANYTHING}reason = \"other\"\n"));
    let refused = home.adj(&["policy", "trust", "--change", &id]);
    assert!(
        refused.code == 7
            && refused
                .err
                .contains("is not the change of the policies that waits now"),
        "{refused:?}"
    );
    configure(&home, ANYTHING);
    let trusted = home.ok(&["policy", "trust", "--change", &id]);
    assert!(
        trusted.contains("trusted 3 changes of the policies of"),
        "{trusted}"
    );
    home.start("trusted", &[asks("deploy"), "hang".to_owned()].join("\n"));
    assert_eq!(answered_by(&home, 5)[4], json!("policy x"));
    assert_eq!(change(&home), Value::Null);
    kill_hub(&home);
    home.start("after", &asks("deploy"));
    assert_eq!(
        answered_by(&home, 6)[5],
        json!("policy x"),
        "trust outlives the hub"
    );
    home.ok(&["cancel", "later", "trusted"]);
}

#[test]
fn policies_changed_by_an_ended_run_need_trust() {
    let home = TestHome::with_config(CAREFUL);
    // Nothing reads the file before the run has ended.
    home.start("quick", &writes(&home, ANYTHING));
    home.finished("quick");
    home.start("next", &asks("deploy"));
    assert_eq!(answered_by(&home, 1), [Value::Null]);
    home.ok(&["cancel", "next"]);
    // A file that cannot be used can contain the change as well, and a restart of the hub lifts no
    // policy.
    configure(&home, CAREFUL);
    home.start("fixed", "say ok");
    home.finished("fixed");
    assert_eq!(change(&home), Value::Null, "it was undone");
    home.start(
        "spoils",
        &[
            writes(&home, &format!("{ANYTHING}colour =")),
            "hang".to_owned(),
        ]
        .join("\n"),
    );
    home.until("it is written", || {
        home.adj(&["policy"])
            .err
            .contains("cannot be used")
            .then_some(())
    });
    kill_hub(&home);
    assert_eq!(home.json(&["policy"])["policies"][1]["name"], "no-push");
    home.ok(&["cancel", "spoils"]);
    home.finished("spoils");
    configure(&home, ANYTHING);
    home.start("last", &[asks("deploy"), asks("git push")].join("\n"));
    assert_eq!(
        answered_by(&home, 3)[1..],
        [Value::Null, json!("policy no-push")]
    );
    home.ok(&["cancel", "last"]);
}

#[test]
fn run_without_a_hub_cannot_change_the_policies() {
    let home = TestHome::with_config(&format!(
        "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh -eu\"]\n{CAREFUL}"
    ));
    let go = home.work().join("go");
    let file = home.home.dir.join("config.toml");
    let program = format!(
        "do until [ -e {} ]; do sleep 0.1; done; printf '{}' > {}",
        go.display(),
        ANYTHING.replace('\n', "\\n"),
        file.display()
    );
    home.ok(&["run", "-d", "-n", "job", "-a", "sh", &program]);
    home.until_status("job", "running");
    kill_hub(&home);
    std::fs::write(&go, "").expect("a file");
    home.until("it is written", || {
        std::fs::read_to_string(&file)
            .is_ok_and(|text| text == ANYTHING)
            .then_some(())
    });
    home.finished("job");
    home.start("next", &asks("deploy"));
    assert_eq!(answered_by(&home, 1), [Value::Null]);
    home.ok(&["cancel", "next"]);
}

#[test]
fn policies_that_change_without_live_runs_count_at_once() {
    let home = TestHome::with_config("");
    home.start("first", &asks("deploy"));
    assert_eq!(answered_by(&home, 1), [Value::Null]);
    home.ok(&["cancel", "first"]);
    home.finished("first");
    configure(&home, ANYTHING);
    assert_eq!(change(&home), Value::Null);
    home.start("second", &[asks("deploy"), "hang".to_owned()].join("\n"));
    assert_eq!(answered_by(&home, 2)[1], json!("policy x"));
    // A comment, another setting, and a file that is saved again change no policy.
    for text in [
        ANYTHING.to_owned(),
        format!("# a comment\n{ANYTHING}"),
        format!("live_runs_max = 5\n\n{}", ANYTHING.replace("any", " any")),
    ] {
        configure(&home, &text);
        assert_eq!(change(&home), Value::Null, "{text}");
    }
    home.start("third", &asks("deploy"));
    assert_eq!(answered_by(&home, 3)[2], json!("policy x"));
    // What was changed and changed back needs nobody.
    configure(&home, CAREFUL);
    assert_ne!(change(&home), Value::Null);
    configure(&home, ANYTHING);
    assert_eq!(change(&home), Value::Null);
    home.ok(&["cancel", "second"]);
    home.finished("second");
    configure(&home, "");
    home.ok(&["stop"]);
    home.start("fourth", &asks("deploy"));
    assert_eq!(
        answered_by(&home, 4)[3],
        Value::Null,
        "removed without live runs"
    );
    home.ok(&["cancel", "fourth"]);
}

#[test]
fn restricting_change_counts_at_once() {
    let home = TestHome::with_config(ANYTHING);
    home.start("other", "hang");
    home.until_status("other", "running");
    configure(
        &home,
        &format!(
            "{ANYTHING}[[policies]]\nname = \"no-rm\"\ndecision = \"deny\"\ncommand = \"rm\"\nreason = \"delete the tests instead\"\n"
        ),
    );
    home.start("job", &[asks("rm -rf /"), asks("make")].join("\n"));
    home.finished("job");
    assert_eq!(
        answered_by(&home, 2),
        [json!("policy no-rm"), json!("policy x")]
    );
    let reason = home.inbox(&["--all"])[0]["reason"].clone();
    assert_eq!(
        reason, "policy no-rm does not allow it",
        "a run can have written the reason"
    );
    configure(&home, "");
    home.start("asked", &asks("make"));
    assert_eq!(
        answered_by(&home, 3)[2],
        Value::Null,
        "without its allow, it is asked"
    );
    home.ok(&["cancel", "asked", "other"]);
}
