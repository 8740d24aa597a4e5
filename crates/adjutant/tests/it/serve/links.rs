//! Links that answer a request: they work once, change nothing when they are opened, and are
//! useless for anything else.

use super::{Caller, Reply, Site, port_of, read_head};
use crate::support::{PATIENCE, TestHome};
use crate::webhooks::{OK, Receiving};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use std::io::{BufReader, Write};
use std::net::TcpStream;

const HOST: &str = "adj.example.org";
const ORIGIN: &str = "https://adj.example.org";
const FORM: &str = "application/x-www-form-urlencoded";
const FOREIGN: u16 = 403;

/// A hub whose messages are received here.
struct Linked {
    site: Site,
    messages: Receiving,
}

impl Linked {
    fn new(more: &str) -> Self {
        let messages = Receiving::start(&[OK]);
        let config = format!(
            "listen = \"127.0.0.1:0\"\npublic_url = \"{ORIGIN}\"\n{more}\n[[webhooks]]\ntemplate = \"ntfy\"\nurl = \"http://127.0.0.1:{}/topic\"\n\
             allow_private = true\nperson = \"anna\"\n",
            messages.port
        );
        let home = TestHome::with_config(&config);
        Self {
            site: Site {
                port: port_of(&home),
                home,
            },
            messages,
        }
    }

    /// Returns the path of the link in the next message.
    fn link(&self) -> String {
        let sent = self.messages.next().json();
        let link = sent["click"].as_str().unwrap_or_else(|| panic!("{sent}"));
        assert_eq!(
            sent["actions"],
            json!([{"action": "view", "label": "Answer", "url": link}])
        );
        let path = link
            .strip_prefix(ORIGIN)
            .unwrap_or_else(|| panic!("{link}"));
        assert!(path.starts_with("/a/"), "{path}");
        path.to_owned()
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut all = vec![("authorization", ""), ("host", HOST)];
        for (name, value) in headers {
            all.retain(|(other, _)| other != name);
            all.push((name, value));
        }
        self.site.caller("").send(method, path, &all, body)
    }

    fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    fn post(&self, path: &str, form: &str) -> Reply {
        post(&self.site.caller(""), path, form)
    }

    fn request(&self) -> Value {
        self.site.home.inbox(&["--all"])[0].clone()
    }

    fn assert_pending(&self) {
        assert_eq!(self.request()["status"], "pending", "{}", self.request());
    }
}

fn post(caller: &Caller, path: &str, form: &str) -> Reply {
    caller.send(
        "POST",
        path,
        &[
            ("authorization", ""),
            ("host", HOST),
            ("content-type", FORM),
            ("origin", ORIGIN),
        ],
        form,
    )
}

#[test]
fn link_shows_the_question_and_answers_it_once() {
    let linked = Linked::new("");
    linked.site.home.start(
        "otter",
        "ask \"Which <b>one</b>?\" [options: red|green & <i>blue</i>]\nsay end",
    );
    let path = linked.link();
    let history = linked.site.home.ok(&["events", "otter"]);
    for method in ["GET", "HEAD", "GET"] {
        let page = linked.send(
            method,
            &path,
            &[("user-agent", "Slackbot-LinkExpanding 1.0")],
            "",
        );
        assert_eq!(page.status, 200, "{page:?}");
        for header in [
            "content-security-policy: default-src 'none'; style-src 'self';",
            "referrer-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(page.head.contains(header), "{header} in {page:?}");
        }
        assert!(
            page.head.contains("x-content-type-options: nosniff")
                && !page.head.contains("set-cookie"),
            "{page:?}"
        );
    }
    assert_eq!(
        linked.site.home.ok(&["events", "otter"]),
        history,
        "opening a link changes nothing"
    );
    let page = linked.get(&path).body;
    for shown in [
        "otter asks (Q1)",
        "Which &lt;b&gt;one&lt;/b&gt;?",
        "value=\"1\" class=\"said\">red<",
        "value=\"2\" class=\"said\">green &amp; &lt;i&gt;",
    ] {
        assert!(page.contains(shown), "{shown} in {page}");
    }
    assert!(
        !page.contains("<script")
            && !page.contains("<b>")
            && page.contains("<title>Adjutant</title>"),
        "{page}"
    );

    let answered = linked.post(&path, "option=2");
    assert!(
        answered.status == 303
            && answered
                .head
                .contains(&format!("location: {}", path.to_ascii_lowercase())),
        "{answered:?}"
    );
    let request = linked.request();
    assert_eq!(
        (&request["answer"], &request["answered_by"]),
        (&json!("green & <i>blue</i>"), &json!("link anna")),
        "{request}"
    );
    let page = linked.get(&path);
    assert!(
        page.status == 200
            && page.body.contains("Answered by link anna")
            && !page.body.contains("Which"),
        "{page:?}"
    );
    for form in ["option=2", "option=1", "answer=other"] {
        let again = linked.post(&path, form);
        assert!(
            again.status == 409 && again.body.contains("already answered by link anna"),
            "{again:?}"
        );
        assert!(
            !again.body.contains("was not sent") || form.starts_with("answer"),
            "an option is not typed: {again:?}"
        );
    }
    // What was typed is shown with the refusal, so that it is not lost.
    for (form, typed) in [
        (
            "answer=a+%3Cb%3E+that%0Ais+long",
            "a &lt;b&gt; that\nis long",
        ),
        ("decision=deny&reason=too+late", "too late"),
    ] {
        let again = linked.post(&path, form);
        assert!(
            again.status >= 400
                && again.body.contains("your text, which was not sent")
                && again.body.contains(typed),
            "{again:?}"
        );
    }
    linked.site.home.finished("otter");
    let events = linked.site.home.ok(&["events", "otter"]);
    assert_eq!(events.matches("request.answered").count(), 1, "{events}");
    assert!(
        events
            .lines()
            .any(|line| line.contains("request.answered") && line.contains("link anna")),
        "{events}"
    );
}

#[test]
fn approval_page_shows_everything_and_a_link_revokes_nothing() {
    let linked = Linked::new("");
    let asked = "tool request_approval {\"action\":\"Look\",\"command\":\"rm -rf /\",\"paths\":[\"/etc/passwd\"],\"url\":\"https://evil.example\",\"risk\":\"high\"}";
    linked.site.home.start("sly", &format!("{asked}\nhang"));
    let path = linked.link();
    let page = linked.get(&path).body;
    for shown in [
        "Look",
        ">rm -rf /<",
        ">/etc/passwd<",
        ">https://evil.example<",
        ">high<",
        "value=\"approve\"",
        "value=\"deny\"",
    ] {
        assert!(page.contains(shown), "{shown} in {page}");
    }
    for wrong in [
        "option=1",
        "answer=yes",
        "decision=maybe",
        "decision=approve&decision=deny",
    ] {
        assert_eq!(linked.post(&path, wrong).status, 422, "{wrong}");
    }
    linked.assert_pending();
    assert_eq!(linked.post(&path, "decision=approve&reason=").status, 303);
    let denied = linked.post(&path, "decision=deny&reason=no");
    assert!(denied.status == 409, "{denied:?}");
    let request = linked.request();
    assert_eq!(
        (&request["decision"], &request["answered_by"]),
        (&json!("approved"), &json!("link anna")),
        "{request}"
    );
    linked.site.home.ok(&["cancel", "sly"]);
}

#[test]
fn link_decides_a_delegation() {
    let linked = Linked::new("");
    linked.site.home.start("boss", "tool delegate_work {\"new_task_description\":\"say hi\",\"reason\":\"it is separate\",\"wait_s\":0}\nsay end");
    let path = linked.link();
    let page = linked.get(&path).body;
    assert!(
        page.contains("wants to delegate a task")
            && page.contains("say hi")
            && page.contains("it is separate"),
        "{page}"
    );
    assert_eq!(linked.post(&path, "decision=deny&reason=later").status, 303);
    let request = linked.request();
    assert_eq!(
        (
            &request["decision"],
            &request["reason"],
            &request["answered_by"]
        ),
        (&json!("denied"), &json!("later"), &json!("link anna"))
    );
    linked.site.home.finished("boss");
}

#[test]
fn foreign_and_malformed_requests_answer_nothing() {
    let linked = Linked::new("");
    linked
        .site
        .home
        .start("otter", "ask \"Which?\" [options: red|green]");
    let path = linked.link();
    let form = [("content-type", FORM)];
    for foreign in [
        ("host", "evil.example"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://adj.example.org"),
    ] {
        assert_eq!(
            linked.send("GET", &path, &[foreign], "").status,
            FOREIGN,
            "{foreign:?}"
        );
        assert_eq!(
            linked
                .send("POST", &path, &[form[0], foreign], "option=1")
                .status,
            FOREIGN,
            "{foreign:?}"
        );
    }
    let missing = linked.post(&path, "option=3");
    assert!(
        missing.status == 422
            && missing.body.contains("there is no such option")
            && missing.body.contains("Which?"),
        "{missing:?}"
    );
    for (form, status) in [
        ("option=0", 422),
        ("option=999999999999999999999", 422),
        ("answer=+", 422),
        ("decision=approve", 422),
        ("", 422),
    ] {
        assert_eq!(linked.post(&path, form).status, status, "{form}");
    }
    let json = linked.send(
        "POST",
        &path,
        &[("content-type", "application/json"), ("origin", ORIGIN)],
        "{\"option\":1}",
    );
    assert_eq!(json.status, 415);
    let oversize = linked.send(
        "POST",
        &path,
        &[
            ("content-type", FORM),
            ("origin", ORIGIN),
            ("content-length", "65537"),
        ],
        "",
    );
    assert_eq!(oversize.status, 413, "{oversize:?}");
    assert_eq!(linked.send("DELETE", &path, &[], "").status, 405);
    linked.assert_pending();
    // The same path gives no access to anything else.
    assert_eq!(linked.get("/api/v1/runs").status, 401);
    assert_eq!(linked.post(&path, "answer=neither").status, 303);
    linked.site.home.finished("otter");
}

/// Returns a code with another payload, signed with a key.
fn resigned(path: &str, key: &[u8], change: impl Fn(&mut Vec<String>)) -> String {
    let code = URL_SAFE_NO_PAD
        .decode(path.strip_prefix("/a/").expect("a path"))
        .expect("a code");
    let mut parts: Vec<String> = std::str::from_utf8(&code[32..])
        .expect("text")
        .split('\n')
        .map(str::to_owned)
        .collect();
    change(&mut parts);
    let payload = parts.join("\n");
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
    mac.update(b"adjutant answer link 1\n");
    mac.update(payload.as_bytes());
    let mut code = mac.finalize().into_bytes().to_vec();
    code.extend_from_slice(payload.as_bytes());
    format!("/a/{}", URL_SAFE_NO_PAD.encode(code))
}

#[test]
fn unknown_code_looks_like_a_wrong_signature() {
    let linked = Linked::new("");
    linked
        .site
        .home
        .start("otter", "ask \"Which?\" [options: red|green]");
    let path = linked.link();
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(linked.site.home.home.link_key())
            .expect("a key")
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let other = resigned(&path, &[7; 32], |_| {});
    let end = if path.ends_with('A') { "B" } else { "A" };
    let changed = format!("{}{end}", &path[..path.len() - 1]);
    let without_date = |reply: Reply| {
        (
            reply.status,
            reply
                .head
                .lines()
                .filter(|line| !line.starts_with("date:"))
                .collect::<String>(),
            reply.body,
        )
    };
    let unknown = without_date(linked.get("/a/unknown"));
    assert_eq!(unknown.0, 404);
    for wrong in [other.as_str(), &changed, "/a/", &path[..path.len() / 2]] {
        assert_eq!(without_date(linked.get(wrong)), unknown, "{wrong}");
        assert_eq!(
            without_date(linked.post(wrong, "option=1")),
            unknown,
            "{wrong}"
        );
    }
    linked.assert_pending();
    // Without its key, no link is valid any more.
    std::fs::remove_file(linked.site.home.home.link_key()).expect("removed");
    assert_eq!(without_date(linked.post(&path, "option=1")), unknown);
    linked.assert_pending();
    linked.site.home.ok(&["cancel", "otter"]);
}

#[test]
fn link_is_bound_to_the_text_and_the_deadline_that_were_shown() {
    let linked = Linked::new("");
    linked
        .site
        .home
        .start("otter", "ask \"Which?\" [options: red|green]");
    let path = linked.link();
    let key = std::fs::read(linked.site.home.home.link_key()).expect("a key");
    assert_eq!(resigned(&path, &key, |_| {}), path);
    let other_text = resigned(&path, &key, |parts| parts[2] = "0".repeat(32));
    let page = linked.get(&other_text);
    assert!(
        page.status == 200 && page.body.contains("has changed") && !page.body.contains("Which?"),
        "{page:?}"
    );
    let refused = linked.post(&other_text, "option=1");
    assert!(
        refused.status == 409 && refused.body.contains("has changed"),
        "{refused:?}"
    );
    let over = resigned(&path, &key, |parts| parts[1] = "1".to_owned());
    assert!(linked.get(&over).body.contains("has expired"));
    assert_eq!(linked.post(&over, "option=1").status, 409);
    let gone = resigned(&path, &key, |parts| {
        parts[0] = "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11".to_owned()
    });
    assert!(linked.get(&gone).body.contains("was removed"));
    assert_eq!(linked.post(&gone, "option=1").status, 409);
    linked.assert_pending();
    linked.site.home.ok(&["cancel", "otter"]);
}

#[test]
fn settled_request_is_named_as_such() {
    let linked = Linked::new("");
    let home = &linked.site.home;
    home.start("first", "ask \"Which?\"\nsay end");
    let answered = linked.link();
    home.ok(&["reply", "first", "this"]);
    home.finished("first");
    assert!(linked.get(&answered).body.contains("Answered by person"));
    assert_eq!(linked.post(&answered, "answer=that").status, 409);
    home.start("second", "ask \"Which?\"");
    let withdrawn = linked.link();
    home.ok(&["cancel", "second"]);
    home.until("the request is withdrawn", || {
        linked
            .get(&withdrawn)
            .body
            .contains("was withdrawn")
            .then_some(())
    });
    assert_eq!(linked.post(&withdrawn, "answer=that").status, 409);
    let answers: Vec<Value> = home
        .inbox(&["--all"])
        .as_array()
        .expect("a list")
        .iter()
        .map(|request| request["answer"].clone())
        .collect();
    assert_eq!(
        answers
            .iter()
            .filter(|answer| !answer.is_null())
            .collect::<Vec<_>>(),
        ["this"]
    );
}

#[test]
fn exactly_one_of_concurrent_answers_counts() {
    let linked = Linked::new("");
    linked.site.home.start("otter", "ask \"Which?\"\nsay end");
    let path = linked.link();
    let (caller, path) = (&linked.site.caller(""), &path);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let answers: Vec<_> = (0..8)
            .map(|n| scope.spawn(move || post(caller, path, &format!("answer=answer{n}")).status))
            .collect();
        answers
            .into_iter()
            .map(|answer| answer.join().expect("a reply"))
            .collect()
    });
    assert_eq!(
        (
            statuses.iter().filter(|status| **status == 303).count(),
            statuses.iter().filter(|status| **status == 409).count()
        ),
        (1, 7)
    );
    linked.site.home.finished("otter");
    assert_eq!(
        linked
            .site
            .home
            .ok(&["events", "otter"])
            .matches("request.answered")
            .count(),
        1
    );
}

/// Opens a link and answers with it, as a process of a run.
const SCRIPT: &str = r#"#!/bin/bash
cat > /dev/null
read -r port path < call
for method in GET POST; do
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nhost: adj.example.org\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: 8\r\n\r\noption=1' "$method" "$path" >&3
    cat <&3
done
echo end
"#;

#[test]
fn process_of_a_run_cannot_use_a_link() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("caller");
    std::fs::write(&script, SCRIPT).expect("it can be written");
    std::fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("it can be read");
    let linked = Linked::new(&format!(
        "[agents.caller]\nharness = \"plain\"\ncommand = [\"/bin/bash\", \"{}\"]\nprompt = \"stdin\"\n",
        script.display()
    ));
    let home = &linked.site.home;
    home.start("otter", "ask \"Which?\" [options: red|green]");
    let path = linked.link();
    std::fs::write(
        home.work().join("call"),
        format!("{} {path}\n", linked.site.port),
    )
    .expect("it can be written");
    home.start_agent("caller", "rogue", "call");
    home.finished("rogue");
    let log = home.log("rogue");
    assert!(log.contains("end"), "{log}");
    assert_eq!(
        (
            log.matches("HTTP/1.1 403").count(),
            log.matches("this process is part of a run").count()
        ),
        (2, 2),
        "{log}"
    );
    linked.assert_pending();
    home.ok(&["cancel", "otter"]);
}

/// Sends requests for a page on one connection without waiting for the replies. Returns the status
/// and head of each.
fn pipelined(linked: &Linked, path: &str, count: usize) -> Vec<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", linked.site.port)).expect("the hub listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
        .write_all(
            format!("HEAD {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n")
                .repeat(count)
                .as_bytes(),
        )
        .expect("sent");
    let mut stream = BufReader::new(stream);
    (0..count).map(|_| read_head(&mut stream)).collect()
}

#[test]
fn too_many_requests_with_links_are_refused() {
    let linked = Linked::new("");
    linked
        .site
        .home
        .start("otter", "ask \"Which one?\" [options: red|green]\nsay end");
    let path = linked.link();
    // More than the limits of two seconds, so that the start of a period does not matter.
    for (path, status, count) in [("/a/guess", 404, 100), (path.as_str(), 200, 200)] {
        let replies = pipelined(&linked, path, count);
        assert_eq!(replies[0].0, status, "{:?}", replies[0]);
        let refused = replies
            .iter()
            .find(|(status, _)| *status == 429)
            .unwrap_or_else(|| panic!("{count} requests for {path} were served"));
        assert!(refused.1.contains("retry-after: 1\r\n"), "{refused:?}");
        assert!(
            replies
                .iter()
                .all(|(other, _)| [status, 429].contains(other)),
            "{replies:?}"
        );
    }
    linked.assert_pending();
    linked.site.home.until("the link works again", || {
        (linked.post(&path, "option=2").status == 303).then_some(())
    });
    linked.site.home.finished("otter");
}

#[test]
fn without_a_public_address_there_are_no_links() {
    let messages = Receiving::start(&[OK]);
    let hook = |more: &str| {
        format!(
            "[[webhooks]]\ntemplate = \"ntfy\"\nurl = \"http://127.0.0.1:{}/topic\"\nallow_private = true\n{more}",
            messages.port
        )
    };
    let home = TestHome::with_config(&format!("listen = \"127.0.0.1:0\"\n{}", hook("")));
    let site = Site {
        port: port_of(&home),
        home,
    };
    site.home.start("otter", "ask \"Which?\"");
    assert!(messages.next().json()["click"].is_null());
    assert_eq!(
        site.caller("")
            .send("GET", "/a/x", &[("authorization", "")], "")
            .status,
        401
    );
    assert!(!site.home.home.link_key().exists());
    std::fs::write(
        site.home.home.dir.join("config.toml"),
        format!("public_url = \"{ORIGIN}\"\n{}", hook("links = false\n")),
    )
    .expect("a configuration");
    site.home.ok(&["stop"]);
    site.home.start("beaver", "ask \"Which?\"");
    assert!(
        messages.next().json()["click"].is_null(),
        "this webhook has no links"
    );
    site.home.ok(&["cancel", "otter", "beaver"]);
}
