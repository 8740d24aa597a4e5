//! Messages to a person: the format of each service, and what is sent at all.

use super::{BROKEN, OK, Receiving};
use crate::support::TestHome;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const ASKS: &str = "ask \"Which <one>, @all?\" [options: red|green]";

fn private(home: &TestHome, name: &str, text: &str) -> PathBuf {
    let path = home.home.dir.join(name);
    std::fs::write(&path, text).expect("a secret");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a secret");
    path
}

fn configure(home: &TestHome, config: &str) {
    std::fs::write(home.home.dir.join("config.toml"), config).expect("a configuration");
}

fn ntfy(port: u16, more: &str) -> String {
    format!(
        "[[webhooks]]\ntemplate = \"ntfy\"\nurl = \"http://127.0.0.1:{port}/my-topic\"\nallow_private = true\n{more}\n"
    )
}

/// Returns the deadline of the request as messages show it.
fn expires_at(home: &TestHome) -> String {
    let inbox = home.inbox(&["--all"]);
    let time = inbox[0]["expires_at"].as_str().expect("a time");
    format!("{} {} UTC", &time[..10], &time[11..16])
}

#[test]
fn each_service_gets_its_format() {
    let [ntfy, slack, discord, telegram] = [(); 4].map(|()| Receiving::start(&[OK]));
    let home = TestHome::new();
    private(&home, "token", "tk_secret\n");
    private(
        &home,
        "slack.url",
        &format!("http://127.0.0.1:{}/services/T/B/x\n", slack.port),
    );
    private(&home, "bot", "12:AB-c_d\n");
    configure(
        &home,
        &format!(
            "[[webhooks]]\ntemplate = \"ntfy\"\nurl = \"http://127.0.0.1:{}/my-topic\"\ntoken = {{ file = \"token\" }}\nallow_private = true\n\
             [[webhooks]]\ntemplate = \"slack\"\nurl_from = {{ file = \"slack.url\" }}\nallow_private = true\n\
             [[webhooks]]\ntemplate = \"discord\"\nurl = \"http://127.0.0.1:{}/api/webhooks/1/x\"\nallow_private = true\n\
             [[webhooks]]\ntemplate = \"telegram\"\nurl = \"http://127.0.0.1:{}\"\ntoken = {{ file = \"bot\" }}\nchat = \"-100123\"\nallow_private = true\n",
            ntfy.port, discord.port, telegram.port
        ),
    );
    home.start("otter", ASKS);
    let (ntfy, slack, discord, telegram) =
        (ntfy.next(), slack.next(), discord.next(), telegram.next());
    let until = expires_at(&home);
    let text = format!("Which <one>, @all?\n1) red\n2) green\nopen until {until}");

    assert_eq!(
        (ntfy.path.as_str(), ntfy.headers["authorization"].as_str()),
        ("/", "Bearer tk_secret")
    );
    assert_eq!(
        ntfy.json(),
        json!({"topic": "my-topic", "title": "otter asks (Q1)", "message": text})
    );

    assert_eq!(
        (slack.path.as_str(), slack.headers["content-type"].as_str()),
        ("/services/T/B/x", "application/json")
    );
    let plain = |text: &str| json!({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": false}});
    let escaped = text.replace('<', "&lt;").replace('>', "&gt;");
    let blocks = json!([plain("otter asks (Q1)"), plain(&escaped)]);
    let expected = json!({"text": "otter asks (Q1)", "mrkdwn": false, "unfurl_links": false, "unfurl_media": false, "blocks": blocks});
    assert_eq!(slack.json(), expected);

    assert_eq!(discord.path, "/api/webhooks/1/x");
    let escape = |text: &str| {
        text.chars()
            .map(|c| {
                if c.is_ascii_punctuation() {
                    format!("\\{c}")
                } else {
                    c.to_string()
                }
            })
            .collect::<String>()
    };
    let content = format!("{}\n{}", escape("otter asks (Q1)"), escape(&text));
    assert_eq!(
        discord.json(),
        json!({"content": content, "allowed_mentions": {"parse": []}, "flags": 4})
    );

    assert_eq!(telegram.path, "/bot12:AB-c_d/sendMessage");
    let sent = format!("otter asks (Q1)\n{text}");
    let entities = json!([{"type": "pre", "offset": 0, "length": sent.len()}]);
    let expected = json!({"chat_id": "-100123", "text": sent, "entities": entities, "link_preview_options": {"is_disabled": true}});
    assert_eq!(telegram.json(), expected);
    home.ok(&["cancel", "otter"]);
}

/// A program that records its arguments and its input.
fn recorder(dir: &Path, status: u8) -> (PathBuf, PathBuf) {
    let (program, out) = (dir.join("sendmail"), dir.join("sent"));
    let script = format!(
        "#!/bin/sh\n{{ printf '[%s]' \"$@\"; echo; cat; }} > {0}.new && mv {0}.new {0}\necho broken >&2\nexit {status}\n",
        out.display()
    );
    std::fs::write(&program, script).expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
    (program, out)
}

#[test]
fn mail_is_given_to_a_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, out) = recorder(dir.path(), 0);
    let config = format!(
        "[[webhooks]]\ntemplate = \"email\"\nto = \"anna@example.org\"\nfrom = \"adj@example.org\"\nsendmail = [\"{}\", \"-i\"]\n",
        program.display()
    );
    let home = TestHome::with_config(&config);
    home.start("otter", ASKS);
    let mail = home.until("the mail is sent", || std::fs::read_to_string(&out).ok());
    let (args, mail) = mail.split_once('\n').expect("arguments");
    assert_eq!(args, "[-i][--][anna@example.org]");
    let (head, body) = mail.split_once("\n\n").expect("a head and a body");
    let header = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or_else(|| panic!("{name}: {head}"))
    };
    assert_eq!(
        (header("From"), header("To")),
        ("Adjutant <adj@example.org>", "anna@example.org")
    );
    assert_eq!(
        header("Subject"),
        format!("=?UTF-8?B?{}?=", STANDARD.encode("otter asks (Q1)"))
    );
    assert_eq!(
        (header("Content-Type"), header("Content-Transfer-Encoding")),
        ("text/plain; charset=utf-8", "base64")
    );
    let text =
        String::from_utf8(STANDARD.decode(body.replace('\n', "")).expect("base64")).expect("text");
    let until = expires_at(&home);
    assert_eq!(
        text,
        format!(
            "otter asks (Q1)\n\n> Which <one>, @all?\n> 1) red\n> 2) green\n> open until {until}\n"
        )
    );
    home.ok(&["cancel", "otter"]);
}

#[test]
fn failure_of_a_mail_program_is_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, _) = recorder(dir.path(), 75);
    let home = TestHome::with_config(&format!(
        "[[webhooks]]\ntemplate = \"email\"\nto = \"anna@example.org\"\nsendmail = [\"{}\"]\n",
        program.display()
    ));
    home.start("otter", ASKS);
    let shown = home.until("the problem is shown", || {
        Some(home.ok(&["webhooks"])).filter(|shown| shown.contains("exit code 75"))
    });
    assert!(
        shown.contains("email anna@example.org") && shown.contains("broken"),
        "{shown}"
    );
    home.ok(&["cancel", "otter"]);
}

/// Returns the titles of the next messages.
fn titles(receiver: &Receiving, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| {
            receiver.next().json()["title"]
                .as_str()
                .expect("a title")
                .to_owned()
        })
        .collect()
}

#[test]
fn only_what_needs_a_person_is_sent_and_once() {
    let receiver = Receiving::start(&[OK]);
    let home = TestHome::with_config(&ntfy(receiver.port, ""));
    home.start("fine", "say x");
    home.finished("fine");
    home.start("asks", "ask \"one?\"\nask \"two?\"\nsay end");
    assert_eq!(titles(&receiver, 1), ["asks asks (Q1)"]);
    home.ok(&["reply", "Q1", "this"]);
    assert_eq!(
        titles(&receiver, 1),
        ["asks asks (Q2)"],
        "the answer is not a message"
    );
    home.ok(&["reply", "Q2", "that"]);
    home.finished("asks");
    home.start(
        "stops",
        "tool stop_work {\"stop_reason\":\"blocker\",\"details\":\"node_modules is missing\",\"resume_requirements\":\"npm install\"}",
    );
    let stopped = receiver.next().json();
    assert_eq!(
        (&stopped["title"], &stopped["message"]),
        (
            &json!("stops stopped: blocker"),
            &json!("node_modules is missing\nneeds: npm install")
        )
    );
    home.ok(&["cancel", "stops"]);
    home.start("fails", "fail 3");
    assert_eq!(
        titles(&receiver, 1),
        ["fails ended: failed"],
        "a run that the person cancelled is not a message"
    );
    home.start("first", "ask \"Go on?\"\nfail 1");
    home.start("second", "ask \"Go on?\"\nfail 1");
    assert_eq!(titles(&receiver, 2).len(), 2);
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "later",
        "--after",
        "first",
        "--after",
        "second",
        "--after-failed",
        "hold",
        "say later",
    ]);
    home.ok(&["reply", "first", "yes"]);
    let mut messages: Vec<Value> = (0..2).map(|_| receiver.next().json()).collect();
    messages.sort_by_key(|message| message["title"].to_string());
    assert_eq!(messages[0]["title"], "first ended: failed");
    assert_eq!(messages[1]["title"], "later cannot start");
    assert_eq!(
        messages[1]["message"],
        "first did not succeed\nneeds: retry first, or resume later without it"
    );
    home.ok(&["reply", "second", "yes"]);
    assert_eq!(
        titles(&receiver, 1),
        ["second ended: failed"],
        "a run is held once"
    );
    home.until("nothing waits", || {
        (home.json(&["webhooks"])["webhooks"][0]["waiting"] == 0).then_some(())
    });
    assert!(receiver.got.try_recv().is_err());
}

#[test]
fn approval_message_names_everything_that_it_allows() {
    let receiver = Receiving::start(&[OK]);
    let home = TestHome::with_config(&ntfy(receiver.port, ""));
    home.start(
        "sly",
        "tool request_approval {\"action\":\"Look\",\"command\":\"rm -rf /\",\"paths\":[\"/etc/passwd\"],\"url\":\"https://evil.example\"}",
    );
    let sent = receiver.next().json();
    let message = sent["message"].as_str().expect("a text");
    assert!(
        message.starts_with(
            "Look; command: rm -rf /; file: /etc/passwd; address: https://evil.example\n"
        ),
        "{sent}"
    );
    home.ok(&["cancel", "sly"]);
}

#[test]
fn escalation_reaches_its_person_once() {
    let [anna, ben, other] = [(); 3].map(|()| Receiving::start(&[OK]));
    let people = "[escalation]\npeople = [{ name = \"anna\", after = \"100ms\" }, { name = \"ben\", after = \"200ms\" }]\n";
    let hooks = [
        ntfy(anna.port, "person = \"anna\""),
        ntfy(ben.port, "person = \"ben\""),
        ntfy(other.port, "person = \"carl\""),
    ]
    .concat();
    let home = TestHome::with_config(&format!("{people}{hooks}"));
    home.start("asks", "ask \"one?\"\nask \"two?\"\nsay end");
    for receiver in [&anna, &ben, &other] {
        assert_eq!(titles(receiver, 1), ["asks asks (Q1)"]);
    }
    home.ok(&["reply", "Q1", "this"]);
    for receiver in [&anna, &ben, &other] {
        assert_eq!(
            titles(receiver, 1),
            ["asks asks (Q2)"],
            "one message for each request"
        );
    }
    home.ok(&["reply", "Q2", "that"]);
    home.finished("asks");
}

#[test]
fn message_waits_for_the_end_of_quiet_hours() {
    let [early, late] = [(); 2].map(|()| Receiving::start(&[OK]));
    // At any time, one of the two has quiet hours now.
    let hooks = [
        ntfy(early.port, "quiet = \"00:00-12:00\"\nzone = \"UTC\""),
        ntfy(late.port, "quiet = \"12:00-00:00\"\nzone = \"UTC\""),
    ]
    .concat();
    let home = TestHome::with_config(&hooks);
    home.start("asks", ASKS);
    home.until("one is delivered", || {
        let hooks = home.json(&["webhooks"])["webhooks"].clone();
        let mut waiting: Vec<i64> = hooks
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|hook| hook["waiting"].as_i64())
            .collect();
        waiting.sort_unstable();
        (waiting == [0, 1]).then_some(())
    });
    assert_eq!(
        [early.got.try_recv().is_ok(), late.got.try_recv().is_ok()]
            .iter()
            .filter(|sent| **sent)
            .count(),
        1
    );
    home.ok(&["cancel", "asks"]);
}

#[test]
fn secrets_are_neither_shown_nor_read_from_open_files() {
    let receiver = Receiving::start(&[BROKEN]);
    let home = TestHome::new();
    let token = private(&home, "bot", "12:SECRET\n");
    configure(
        &home,
        &format!(
            "[[webhooks]]\ntemplate = \"telegram\"\nurl = \"http://127.0.0.1:{}\"\ntoken = {{ file = \"bot\" }}\nchat = \"1\"\nallow_private = true\n",
            receiver.port
        ),
    );
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).expect("a secret");
    home.start("asks", ASKS);
    home.until("the file is refused", || {
        home.ok(&["webhooks"])
            .contains("accessible to other users")
            .then_some(())
    });
    assert!(receiver.got.try_recv().is_err());
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("a secret");
    home.ok(&["webhooks", "retry", "telegram 1"]);
    assert_eq!(receiver.next().path, "/bot12:SECRET/sendMessage");
    let shown = home.until("the failure is shown", || {
        Some(home.ok(&["webhooks"])).filter(|shown| shown.contains("500"))
    });
    let everything = [
        shown,
        home.ok(&["config", "show"]),
        home.adj(&["doctor"]).out,
        std::fs::read_to_string(home.home.hub_log()).unwrap_or_default(),
    ];
    assert!(
        everything.iter().all(|text| !text.contains("SECRET")),
        "{everything:?}"
    );
    let hook: Value = home.json(&["config", "show"])["webhooks"][0].clone();
    assert_eq!(
        (&hook["template"], &hook["chat"], &hook["links"]),
        (&json!("telegram"), &json!("1"), &json!(true)),
        "{hook}"
    );
    home.ok(&["cancel", "asks"]);
}

#[test]
fn notify_command_gets_arguments_and_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, out) = recorder(dir.path(), 0);
    let home = TestHome::with_config(&format!(
        "[notify]\ncommand = [\"{}\", \"--title={{title}}\", \"{{text}}\"]\n",
        program.display()
    ));
    home.start("otter", "ask \"$(touch /tmp/x) {title}; <b>?\"");
    let sent = home.until("the program has run", || std::fs::read_to_string(&out).ok());
    let text = format!(
        "$(touch /tmp/x) {{title}}; <b>?\nopen until {}",
        expires_at(&home)
    );
    let (args, json) = sent.rsplit_once('\n').expect("arguments and JSON");
    assert_eq!(args, format!("[--title=otter asks (Q1)][{text}]"));
    let json: Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(
        (&json["title"], &json["text"], json.get("link")),
        (&json!("otter asks (Q1)"), &json!(text), None)
    );
    assert!(
        json["id"].is_string() && json["timestamp"].is_i64(),
        "{json}"
    );
    let shown = home.json(&["config", "show"]);
    assert_eq!(
        (&shown["webhooks"], &shown["notify"]["command"][0]),
        (&json!([]), &json!(program))
    );
    home.ok(&["cancel", "otter"]);
}

#[test]
fn failure_of_the_notify_command_is_shown_until_it_works() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, out) = recorder(dir.path(), 3);
    let home = TestHome::with_config(&format!(
        "[notify]\ncommand = [\"{}\"]\n",
        program.display()
    ));
    home.start("otter", ASKS);
    for view in ["webhooks", "doctor"] {
        let shows = || {
            Some(home.adj(&[view]).out)
                .filter(|shown| shown.contains("ended with exit code 3: broken"))
        };
        home.until("the problem is shown", shows);
    }
    std::fs::remove_file(&out).expect("it ran");
    recorder(dir.path(), 0);
    home.ok(&["webhooks", "retry"]);
    let sent = home.until("it is sent again", || std::fs::read_to_string(&out).ok());
    assert!(sent.contains("otter asks (Q1)"), "{sent}");
    home.ok(&["cancel", "otter"]);
}

#[test]
fn desktop_shows_text_and_no_markup() {
    let bin = tempfile::tempdir().expect("a directory");
    let (program, out) = recorder(bin.path(), 0);
    std::fs::rename(program, bin.path().join("notify-send")).expect("a program");
    let home = TestHome::with_config("[notify]\ndesktop = true\n");
    let path = format!("{}:/usr/bin:/bin", bin.path().display());
    assert!(
        home.command(&["ps"])
            .env("PATH", path)
            .status()
            .expect("adj starts")
            .success()
    );
    home.start("otter", ASKS);
    let sent = home.until("it is shown", || std::fs::read_to_string(&out).ok());
    let text = format!(
        "Which &lt;one&gt;, @all?\n1) red\n2) green\nopen until {}",
        expires_at(&home)
    );
    assert_eq!(
        sent.trim_end(),
        format!("[--app-name=Adjutant][--][otter asks (Q1)][{text}]")
    );
    home.ok(&["cancel", "otter"]);
}

#[test]
fn missing_notify_send_is_said() {
    let home = TestHome::with_config("[notify]\ndesktop = true\n");
    let empty = tempfile::tempdir().expect("a directory");
    assert!(
        home.command(&["ps"])
            .env("PATH", empty.path())
            .status()
            .expect("adj starts")
            .success()
    );
    home.start("otter", ASKS);
    home.until("it is said", || {
        Some(home.ok(&["webhooks"]))
            .filter(|shown| shown.contains("notify-send was not found on the hub's PATH"))
    });
    home.ok(&["cancel", "otter"]);
}
