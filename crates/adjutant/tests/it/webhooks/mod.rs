//! Webhooks: events are delivered signed, in order and at least once, even if processes die.

mod notices;

use crate::support::{PATIENCE, TestHome, kill, tls_fixture};
use adjutant_api::view::{ListWebhooks, RetryWebhooks};
use adjutant_core::ClientName;
use adjutant_net::hub_client::Client;
use adjutant_store::store::{Store, next_delivery, outbox};
use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const SECRET: &str = "a secret of more than sixteen bytes";

/// One request to a receiver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Got {
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body in JSON")
    }

    fn kind(&self) -> String {
        self.json()["type"].as_str().expect("a type").to_owned()
    }

    fn is_signed(&self) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
        mac.update(
            format!(
                "{}.{}.",
                self.headers["webhook-id"], self.headers["webhook-timestamp"]
            )
            .as_bytes(),
        );
        mac.update(&self.body);
        let expected = format!(
            "v1,{}",
            base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes())
        );
        self.headers["webhook-signature"] == expected
    }
}

/// A receiver that answers each request with the next of these responses, and repeats the last. For
/// an empty response, it keeps the connection open without answering.
pub(crate) struct Receiving {
    pub(crate) port: u16,
    got: Receiver<Got>,
}

impl Receiving {
    pub(crate) fn start(responses: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, got) = channel();
        let mut responses: Vec<String> = responses
            .iter()
            .rev()
            .map(|response| (*response).to_owned())
            .collect();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let response = if responses.len() > 1 {
                    responses.pop().expect("one")
                } else {
                    responses[0].clone()
                };
                let Some((request, mut stream)) = read(stream) else {
                    continue;
                };
                if sender.send(request).is_err() {
                    return;
                }
                if response.is_empty() {
                    held.push(stream);
                } else if stream.write_all(response.as_bytes()).is_err() {
                    continue;
                }
            }
        });
        Self { port, got }
    }

    pub(crate) fn next(&self) -> Got {
        self.got.recv_timeout(PATIENCE).expect("a delivery")
    }
}

/// Starts a receiver with TLS, with a certificate for `localhost` from the authority in the
/// fixtures.
fn start_tls() -> Receiving {
    let fixture = |name: &str| std::fs::read(tls_fixture(name)).expect("a fixture");
    let certificate =
        CertificateDer::from_pem_slice(&fixture("server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&fixture("server.key")).expect("a key");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = Arc::new(
        builder
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a configuration"),
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, got) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let Some((request, mut stream)) = read(StreamOwned::new(connection, stream)) else {
                continue;
            };
            if sender.send(request).is_err()
                || stream
                    .write_all(OK.as_bytes())
                    .and_then(|()| stream.flush())
                    .is_err()
            {
                return;
            }
        }
    });
    Receiving { port, got }
}

fn read<S: Read + Write>(stream: S) -> Option<(Got, S)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((
        Got {
            path,
            headers,
            body,
        },
        reader.into_inner(),
    ))
}

pub(crate) const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const BROKEN: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

fn home_with(hooks: &[(&str, u16, &str)]) -> TestHome {
    let home = TestHome::new();
    let secret = home.home.dir.join("hook.secret");
    std::fs::write(&secret, format!("{SECRET}\n")).expect("a secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("a secret");
    let config: String = hooks
        .iter()
        .map(|(path, port, more)| {
            format!("[[webhooks]]\nurl = \"http://127.0.0.1:{port}{path}\"\nsecret_file = \"hook.secret\"\nallow_private = true\n{more}\n")
        })
        .collect();
    std::fs::write(home.home.dir.join("config.toml"), config).expect("a configuration");
    home
}

#[test]
fn deliveries_are_ordered_signed_and_complete() {
    let receiver = Receiving::start(&[OK]);
    let home = home_with(&[("/hook?x=1", receiver.port, "")]);
    home.start("otter", "ask \"which?\"\nreport success \"done it\"");
    let asked = receiver.next();
    assert!(asked.is_signed() && asked.path == "/hook?x=1", "{asked:?}");
    assert_eq!(
        (
            asked.kind().as_str(),
            &asked.json()["data"]["request"]["question"]
        ),
        ("request.asked", &Value::from("which?"))
    );
    home.ok(&["reply", "Q1", "this"]);
    home.finished("otter");
    home.ok(&["chat", "start", "a title"]);
    home.ok(&["chat", "post", "1", "hello\nthere"]);
    let more: Vec<Got> = (0..3).map(|_| receiver.next()).collect();
    assert_eq!(
        more.iter().map(Got::kind).collect::<Vec<_>>(),
        ["request.answered", "run.finished", "chat.message"]
    );
    assert!(more.iter().all(Got::is_signed));
    assert_eq!(more[0].json()["data"]["request"]["answer"], "this");
    let mut shown = home.show("otter");
    for field in ["tree", "settled", "signals"] {
        shown.as_object_mut().expect("a view").remove(field);
    }
    assert_eq!(
        more[1].json()["data"]["run"],
        shown,
        "the view of the run, without what only a look at it alone has"
    );
    assert_eq!(
        (
            &more[2].json()["data"]["message"]["text"],
            &more[2].json()["data"]["chat_title"]
        ),
        (&Value::from("hello\nthere"), &Value::from("a title"))
    );
    let doctor = home.until("what was taken no longer waits", || {
        let shown = home.adj(&["doctor"]).out;
        shown
            .contains(&format!("http://127.0.0.1:{}: 0 waiting", receiver.port))
            .then_some(shown)
    });
    assert!(!doctor.contains("x=1"), "{doctor}");
}

#[test]
fn request_that_a_policy_answers_is_not_delivered_as_asked() {
    let receiver = Receiving::start(&[OK]);
    let home = home_with(&[("/hook", receiver.port, "")]);
    let config = home.home.dir.join("config.toml");
    let hooks = std::fs::read_to_string(&config).expect("a configuration");
    let policy = "[[policies]]\nname = \"own\"\ndecision = \"deny\"\ntool = \"request_approval\"\nrisk = \"high\"\n";
    std::fs::write(&config, format!("{hooks}{policy}")).expect("a configuration");
    let asks =
        |risk: &str| format!("tool request_approval {{\"action\":\"do it\",\"risk\":\"{risk}\"}}");
    home.start("job", &[asks("high"), asks("low")].join("\n"));
    let got: Vec<Got> = (0..2).map(|_| receiver.next()).collect();
    assert_eq!(
        got.iter().map(Got::kind).collect::<Vec<_>>(),
        ["request.answered", "request.asked"]
    );
    assert_eq!(
        got[0].json()["data"]["request"]["answered_by"],
        "policy own"
    );
    assert_eq!(
        got[1].json()["data"]["request"]["number"],
        "Q2",
        "this one needs a person"
    );
    home.ok(&["approve", "Q2"]);
    home.finished("job");
}

#[test]
fn delivery_of_an_approval_names_everything_that_it_allows() {
    let receiver = Receiving::start(&[OK]);
    let home = home_with(&[("/", receiver.port, "events = [\"request.asked\"]")]);
    let asked = "tool request_approval {\"action\":\"Look\",\"command\":\"rm -rf /\",\"paths\":[\"/etc/passwd\"],\"url\":\"https://evil.example\"}";
    home.start("sly", asked);
    let data = receiver.next().json()["data"].clone();
    assert_eq!(
        data["text"],
        "Q1 Look; command: rm -rf /; file: /etc/passwd; address: https://evil.example",
        "{data}"
    );
    assert_eq!(
        data["request"]["operation"]["command"], "rm -rf /",
        "{data}"
    );
}

#[test]
fn stopped_run_delivery_has_its_needs() {
    let receiver = Receiving::start(&[OK]);
    let home = home_with(&[("/", receiver.port, "events = [\"run.stopped\"]")]);
    let stop = "tool stop_work {\"stop_reason\":\"blocker\",\"details\":\"node_modules is missing\",\"resume_requirements\":\"npm install\"}";
    home.start("otter", stop);
    let attention = receiver.next().json()["data"]["run"]["attention"].clone();
    assert_eq!(
        (&attention["why"], &attention["details"]),
        (
            &Value::from("blocker"),
            &Value::from("node_modules is missing")
        ),
        "{attention}"
    );
    assert_eq!(attention["needs"], "npm install", "{attention}");
}

#[test]
fn events_of_workspaces_are_delivered() {
    let receiver = Receiving::start(&[OK]);
    let kinds = [
        "run.conflict",
        "run.conflict_settled",
        "run.merged",
        "run.discarded",
        "run.undone",
        "run.snapshot_failed",
    ];
    let home = home_with(&[("/", receiver.port, &format!("events = {kinds:?}"))]);
    let work = home.work();
    std::fs::write(work.join("one.txt"), "1\n").expect("a file");
    for args in [
        ["init", "-q", "."].as_slice(),
        &["config", "user.name", "u"],
        &["config", "user.email", "u@u"],
        &["add", "."],
        &["commit", "-qm", "x"],
    ] {
        crate::changes::git(&work, args);
    }
    for (name, text) in [("alpha", "a"), ("beta", "b")] {
        home.ok(&[
            "run",
            "-d",
            "--clone",
            "-a",
            "echo",
            "-n",
            name,
            &format!("write one.txt {text}\nsay done"),
        ]);
        home.finished(name);
    }
    let next = |kind: &str, run: &str| {
        let got = receiver.next();
        let told = got.json();
        assert_eq!(
            (got.kind().as_str(), told["data"]["run"]["name"].as_str()),
            (kind, Some(run)),
            "{told}"
        );
        told
    };
    let conflict = next("run.conflict", "beta");
    assert_eq!(
        conflict["data"]["run"]["conflicts"][0]["run_name"], "alpha",
        "{conflict}"
    );
    home.ok(&["undo", "beta"]);
    next("run.undone", "beta");
    // The diff looks at the workspace, which conflicts with nothing any more.
    home.ok(&["diff", "beta"]);
    next("run.conflict_settled", "beta");
    home.ok(&["merge", "alpha"]);
    next("run.merged", "alpha");
    home.ok(&["discard", "alpha"]);
    next("run.discarded", "alpha");
    let blocks = work.join(".git/refs/adjutant");
    std::fs::remove_dir_all(&blocks).expect("refs");
    std::fs::write(&blocks, "").expect("a file in the way");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "gamma",
        "write one.txt c\nsay done",
    ]);
    next("run.snapshot_failed", "gamma");
}

/// Changes of pools and budgets are delivered with their author; the next hub sends what a killed
/// one has not.
#[test]
fn events_of_pools_and_budgets_are_delivered() {
    let receiver = Receiving::start(&[OK]);
    let kinds = [
        "pool.paused",
        "pool.resumed",
        "pool.changed",
        "budget.changed",
        "budget.warned",
    ];
    let home = home_with(&[("/", receiver.port, &format!("events = {kinds:?}"))]);
    let config = home.home.dir.join("config.toml");
    let hooks = std::fs::read_to_string(&config).expect("a configuration");
    std::fs::write(&config, format!("[pools.heavy]\nslots = 2\n{hooks}")).expect("a configuration");
    home.ok(&["pools", "pause", "heavy"]);
    crate::support::kill(home.hub_pid());
    home.ok(&["pools", "resume", "heavy"]);
    home.ok(&["pools", "set", "heavy", "--slots", "3"]);
    // The killed hub may have delivered the first event without recording it, so it can come twice.
    let mut known = Vec::new();
    let mut next = || loop {
        let got = receiver.next();
        let id = got.headers["webhook-id"].clone();
        if !known.contains(&id) {
            known.push(id);
            return got;
        }
    };
    for kind in ["pool.paused", "pool.resumed", "pool.changed"] {
        let got = next();
        let data = got.json()["data"].clone();
        assert!(got.is_signed() && got.kind() == kind, "{got:?}");
        assert!(
            data["text"]
                .as_str()
                .is_some_and(|text| text.contains("heavy"))
                && data["by"] == "person"
                && data["run"].is_null(),
            "{data}"
        );
    }
    home.ok(&[
        "run", "-d", "-a", "echo", "-n", "otter", "--budget", "time=1h", "hang",
    ]);
    home.ok(&["budget", "otter", "--add", "time=1h"]);
    let raised = next();
    assert_eq!(
        (
            raised.kind().as_str(),
            &raised.json()["data"]["run"]["name"]
        ),
        ("budget.changed", &Value::from("otter")),
        "{raised:?}"
    );
    home.ok(&["cancel", "otter"]);
}

#[test]
fn failed_delivery_is_retried_in_order() {
    let receiver = Receiving::start(&[
        BROKEN,
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        OK,
    ]);
    let home = home_with(&[(
        "/",
        receiver.port,
        "events = [\"run.queued\", \"run.finished\"]",
    )]);
    home.start("otter", "say x");
    let (first, second) = (receiver.next(), receiver.next());
    assert_eq!(
        (first.kind(), &first.headers["webhook-id"]),
        ("run.queued".to_owned(), &second.headers["webhook-id"])
    );
    assert!(first.is_signed() && second.is_signed());
    let waiting = home.until("the redirect was not followed", || {
        let shown = home.adj(&["doctor"]).out;
        shown.contains("307").then_some(shown)
    });
    assert!(waiting.contains("2 waiting"), "{waiting}");
}

#[test]
fn killed_hub_leaves_deliveries_to_the_next() {
    // The first receiver never answers. It exists while the hub dies, and is gone afterwards.
    let silent = Receiving::start(&[""]);
    let home = home_with(&[("/", silent.port, "events = [\"run.finished\"]")]);
    home.start("otter", "say x");
    let first = silent.next();
    let hub = home.hub_pid();
    kill(hub);
    home.until("the hub is gone", || {
        (!TestHome::is_alive(hub)).then_some(())
    });
    home.ok(&["ps"]);
    let again = silent.next();
    assert_eq!(
        (again.kind().as_str(), &again.headers["webhook-id"]),
        ("run.finished", &first.headers["webhook-id"])
    );
}

#[test]
fn silent_receiver_delays_no_other() {
    let (silent, good) = (Receiving::start(&[""]), Receiving::start(&[OK]));
    let only = "events = [\"run.finished\"]";
    let home = home_with(&[("/silent", silent.port, only), ("/good", good.port, only)]);
    for name in ["one", "two"] {
        home.start(name, "say x");
        home.finished(name);
        assert_eq!(good.next().json()["data"]["run"]["name"], name);
    }
    assert_eq!(silent.next().json()["data"]["run"]["name"], "one");
}

#[test]
fn tls_delivery_verifies_the_certificate() {
    let receiver = start_tls();
    let home = home_with(&[]);
    let hook = |host: &str| {
        let text = format!(
            "[[webhooks]]\nurl = \"https://{host}:{}/\"\nsecret_file = \"hook.secret\"\nevents = [\"run.finished\"]\nallow_private = true\n",
            receiver.port
        );
        std::fs::write(home.home.dir.join("config.toml"), text).expect("a configuration");
        home.ok(&["stop"]);
    };
    // The hub that this command starts trusts the authority like those of the system.
    let start_hub = || {
        let started = home
            .command(&["ps"])
            .env("SSL_CERT_FILE", tls_fixture("authority.pem"))
            .output()
            .expect("adj can be started");
        assert!(started.status.success(), "{started:?}");
    };
    let refused = |name: &str| {
        home.start(name, "say x");
        home.until("the certificate is refused", || {
            home.adj(&["doctor"])
                .out
                .contains("TLS failed")
                .then_some(())
        });
    };
    hook("localhost");
    refused("of-an-unknown-authority");
    hook("127.0.0.1");
    start_hub();
    refused("for-another-name");
    assert!(receiver.got.try_recv().is_err(), "nothing was delivered");
    hook("localhost");
    start_hub();
    home.start("otter", "say x");
    let got = receiver.next();
    assert!(
        got.is_signed() && got.json()["data"]["run"]["name"] == "otter",
        "{got:?}"
    );
}

#[test]
fn doctor_reports_an_unusable_webhook() {
    let receiver = Receiving::start(&[OK]);
    let home = home_with(&[]);
    let config = home.home.dir.join("config.toml");
    let write = |url: &str, more: &str| {
        let text = format!(
            "[[webhooks]]\nurl = \"{url}\"\nsecret_file = \"hook.secret\"\nevents = [\"run.finished\"]\n{more}"
        );
        std::fs::write(&config, text).expect("a configuration");
        home.ok(&["stop"]);
    };
    let shown = |name: &str, what: &str| {
        home.start(name, "say x");
        home.until(what, || {
            home.adj(&["doctor"]).out.contains(what).then_some(())
        });
    };
    write(&format!("https://localhost:{}/", receiver.port), "");
    shown("one", "a private address");
    write(&format!("http://127.0.0.1:{}/", receiver.port), "");
    let refused = home.adj(&["run", "--agent", "echo", "say x"]);
    assert!(
        refused.code != 0 && refused.err.contains("webhooks[0].url"),
        "{refused:?}"
    );
    write(
        &format!("https://127.0.0.1:{}/", receiver.port),
        "allow_private = true\n",
    );
    shown("two", "TLS failed");
    let secret = home.home.dir.join("hook.secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).expect("a secret");
    write(
        &format!("http://127.0.0.1:{}/", receiver.port),
        "allow_private = true\n",
    );
    shown("three", "is accessible to other users");
    assert!(receiver.got.try_recv().is_err(), "nothing was delivered");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("a secret");
    assert!(
        receiver.next().is_signed(),
        "it is delivered once it can be"
    );
}

/// Records failures of the next delivery to an address, at most until it is set aside. No hub runs.
pub(crate) fn note_failures(home: &TestHome, url: &str, times: u32) {
    let store = Store::open(&home.home).expect("the store");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for _ in 0..times {
        let next = store
            .read(|connection| next_delivery(connection, url))
            .expect("read")
            .expect("it waits");
        runtime
            .block_on(store.write(move |tx| tx.not_delivered(next.no, "nobody was there")))
            .expect("written");
        if store.read(outbox).expect("read")[0].parked == 1 {
            break;
        }
    }
    store.close();
}

/// Creates a home with a webhook and one delivery that has failed this many times. For the hub,
/// hours pass.
fn home_where_a_delivery_failed(receiver: &Receiving, times: u32) -> (TestHome, String) {
    let home = home_with(&[("/hook", receiver.port, "events = [\"run.finished\"]")]);
    let secret = home.home.dir.join("hook.secret");
    let readable = |mode| {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).expect("a secret")
    };
    readable(0o644);
    home.start("otter", "say x");
    home.finished("otter");
    home.until("the delivery has failed", || {
        (home.json(&["webhooks"])["webhooks"][0]["problem"].is_string()).then_some(())
    });
    let hub = home.hub_pid();
    home.ok(&["stop"]);
    home.until("the hub is gone", || {
        (!TestHome::is_alive(hub)).then_some(())
    });
    let url = format!("http://127.0.0.1:{}/hook", receiver.port);
    note_failures(&home, &url, times);
    readable(0o600);
    (home, url)
}

#[test]
fn set_aside_deliveries_are_shown_and_resent() {
    let receiver = Receiving::start(&[OK]);
    let (home, url) = home_where_a_delivery_failed(&receiver, u32::MAX);
    let place = url.strip_suffix("/hook").expect("its end");
    let listed = home.json(&["webhooks"]);
    let hook = &listed["webhooks"][0];
    assert_eq!(
        (&hook["parked"], &hook["waiting"], &hook["problem"]),
        (
            &Value::from(1),
            &Value::from(0),
            &Value::from("nobody was there")
        )
    );
    assert_eq!(
        (&hook["events"][0], hook["place"].as_str()),
        (&Value::from("run.finished"), Some(place))
    );
    let shown = home.ok(&["webhooks"]);
    assert!(
        shown.contains("1 failed permanently")
            && shown.contains("nobody was there")
            && !shown.contains("/hook"),
        "{shown}"
    );
    assert!(home.adj(&["doctor"]).out.contains("adj webhooks retry"));

    // No other caller can see or retry it.
    let client = Client::hub(
        &home.home,
        Some(ClientName::parse("another").expect("a name")),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let refused = [
        runtime
            .block_on(client.call(&ListWebhooks {}))
            .expect_err("refused"),
        runtime
            .block_on(client.call(&RetryWebhooks::default()))
            .expect_err("refused"),
    ];
    assert!(
        refused.iter().all(|error| error.code == "not_allowed"),
        "{refused:?}"
    );
    home.start("rogue", "adj webhooks\nadj webhooks retry\nsay end");
    home.finished("rogue");
    assert_eq!(
        receiver.next().json()["data"]["run"]["name"],
        "rogue",
        "only what happens meanwhile is delivered"
    );
    assert!(
        !home.log("rogue").contains("exit: 0"),
        "{}",
        home.log("rogue")
    );

    let unknown = home.adj(&["webhooks", "retry", "http://127.0.0.2"]);
    assert!(
        unknown.code != 0 && unknown.err.contains("see adj webhooks"),
        "{unknown:?}"
    );
    assert_eq!(home.json(&["webhooks", "retry", place])["deliveries"], 1);
    let again = receiver.next();
    assert!(
        again.is_signed() && again.json()["data"]["run"]["name"] == "otter",
        "{again:?}"
    );
    home.until("nothing is left", || {
        let left = home.json(&["webhooks"]);
        (left["webhooks"][0]["waiting"] == 0 && left["webhooks"][0]["parked"] == 0).then_some(())
    });
    assert!(
        home.adj(&["webhooks", "retry"])
            .err
            .contains("nothing to retry")
    );
}

#[test]
fn retry_sends_waiting_deliveries_at_once() {
    let receiver = Receiving::start(&[OK]);
    // The next try is an hour or more away.
    let (home, _) = home_where_a_delivery_failed(&receiver, 5);
    let hook = &home.json(&["webhooks"])["webhooks"][0];
    assert!(
        hook["next_try_at"].is_string() && hook["waiting"] == 1,
        "{hook}"
    );
    assert!(receiver.got.try_recv().is_err(), "nothing was delivered");
    assert_eq!(home.json(&["webhooks", "retry"])["deliveries"], 1);
    assert_eq!(receiver.next().json()["data"]["run"]["name"], "otter");
}
