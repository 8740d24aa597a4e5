//! What the token of a runner permits.

use super::Pair;
use crate::support::{kill, tls_fixture};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Makes one call and returns the status and the body.
pub(super) fn post(
    pair: &Pair,
    token: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "--max-time",
        "20",
        "-w",
        "\n%{http_code}",
        "-H",
        &format!("authorization: Bearer {token}"),
        "-H",
        "content-type: application/json",
    ]);
    if pair.url.starts_with("https") {
        curl.args([
            "--cacert",
            &tls_fixture("authority.pem").display().to_string(),
        ]);
    }
    for (name, value) in headers {
        curl.args(["-H", &format!("{name}: {value}")]);
    }
    let out = curl
        .args(["-d", &body.to_string(), &format!("{}{path}", pair.url)])
        .output()
        .expect("curl runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.to_owned(), body.to_owned())
}

pub(super) fn token(pair: &Pair, name: &str, role: &str) -> String {
    pair.hub.json(&["token", "new", name, "--role", role])["token"]
        .as_str()
        .expect("a token")
        .to_owned()
}

#[test]
fn token_of_a_runner_is_for_nothing_else() {
    let pair = Pair::without_runner("60s");
    let runner = token(&pair, "r", "runner");
    for path in [
        "/api/v1/runs",
        "/api/v1/hub",
        "/api/v1/events",
        "/mcp",
        "/runner/other",
        "/runner/relay",
        "/openapi.json",
    ] {
        assert_eq!(
            post(&pair, &runner, path, &[], &json!({})).0,
            "404",
            "{path}"
        );
    }
    for role in ["person", "client", "read-only"] {
        let other = token(&pair, &format!("of-{role}"), role);
        assert_eq!(
            post(&pair, &other, "/runner/join", &[], &json!({})).0,
            "404",
            "{role}"
        );
    }
    let (status, body) = post(
        &pair,
        &runner,
        "/runner/join",
        &[],
        &json!({"home_id": "00112233445566778899", "pools": ["default"], "slots": 1}),
    );
    assert!(
        status == "422" && body.contains("no pool default for runners"),
        "{status} {body}"
    );
}

#[test]
fn runner_acts_only_for_attempts_that_are_placed_on_it() {
    let pair = Pair::new("60s");
    pair.start("theirs", "ask \"Hold?\"\ndone yes");
    pair.until_status("theirs", "waiting_parent_reply");
    let other = token(&pair, "other", "runner");
    let home = "00112233445566778899";
    let join = |token: &str| {
        post(
            &pair,
            token,
            "/runner/join",
            &[],
            &json!({"home_id": home, "pools": ["gpu"], "slots": 1}),
        )
    };
    let (status, joined) = join(&other);
    assert_eq!(status, "200", "{joined}");
    let joined: Value = serde_json::from_str(&joined).expect("JSON");
    assert_eq!(joined["attempts"], json!([]), "it has none");
    let session = joined["session"].as_str().expect("a session").to_owned();
    let attempt = format!("{}/1", pair.hub.run_id("theirs"));
    let own = [
        ("adj-runner-session", session.as_str()),
        ("adj-runner-home", home),
        ("adj-attempt", attempt.as_str()),
        ("adj-attempt-token", "x"),
    ];
    let refused = [
        post(
            &pair,
            &other,
            "/runner/relay/link/facts",
            &own,
            &json!({"facts": []}),
        ),
        post(
            &pair,
            &other,
            "/runner/facts",
            &own,
            &json!({"attempt": attempt, "facts": []}),
        ),
        post(
            &pair,
            &other,
            "/runner/refs",
            &own,
            &json!({"attempt": attempt}),
        ),
        post(
            &pair,
            &other,
            "/runner/repository",
            &own,
            &json!({"attempt": attempt}),
        ),
        post(
            &pair,
            &other,
            "/runner/snapshots",
            &own,
            &json!({"refs": {}}),
        ),
        post(
            &pair,
            &other,
            "/runner/log-files",
            &own,
            &json!({"attempt": attempt, "files": [{"name": "text", "bytes": 1, "sha256": ""}]}),
        ),
        post(
            &pair,
            &other,
            "/runner/log-bytes",
            &own,
            &json!({"attempt": attempt, "file": "text", "at": 0}),
        ),
        post(
            &pair,
            &other,
            "/runner/ended",
            &own,
            &json!({"attempt": attempt, "remains": {"never_started": true}}),
        ),
    ];
    for (status, body) in refused {
        assert_eq!(status, "403", "{body}");
    }
    // Calls that are delivered together are refused one by one.
    let calls = json!({"calls": [{"attempt": attempt, "token": "x", "arguments": {"facts": []}}]});
    let (status, body) = post(&pair, &other, "/runner/supervisor-facts", &own, &calls);
    let answers: Value = serde_json::from_str(&body).expect("JSON");
    assert!(
        status == "200" && answers["answers"][0]["refused"]["code"] == "not_allowed",
        "{status} {body}"
    );
    // The same home with the token of the other runner is another one.
    let mine = std::fs::read_to_string(pair.token_file()).expect("a token");
    let (status, body) = join(mine.trim());
    assert!(
        status == "200" && body.contains("\"attempts\":[]"),
        "{status} {body}"
    );
    // A session that the hub does not know has to join.
    let (status, _) = post(
        &pair,
        &other,
        "/runner/work",
        &[("adj-runner-session", "x"), ("adj-runner-home", home)],
        &json!({"wait_ms": 0}),
    );
    assert_eq!(status, "409");
    assert_eq!(pair.hub.show("theirs")["attempt"], 1);
    pair.hub.ok(&["reply", "theirs", "yes"]);
    assert_eq!(pair.hub.finished("theirs")["outcome"], "succeeded");
}

#[test]
fn copy_of_a_connected_runner_is_refused() {
    let pair = Pair::new("60s");
    let identity = std::fs::read_to_string(pair.there.home.runner_identity()).expect("an identity");
    let identity: Value = serde_json::from_str(&identity).expect("JSON");
    let mine = std::fs::read_to_string(pair.token_file()).expect("a token");
    let refused = pair.until("it is refused", || {
        let (status, body) = post(
            &pair,
            mine.trim(),
            "/runner/join",
            &[],
            &json!({"home_id": identity["id"], "pools": ["gpu"], "slots": 1}),
        );
        (status == "409").then_some(body)
    });
    assert!(
        refused.contains("another process is connected as this runner"),
        "{refused}"
    );
}

/// Starts a runner with these options and waits until it prints the text.
fn until_printed(pair: &Pair, options: &[&str], expected: &str) {
    let log = pair.there.work().join("printed");
    let file = std::fs::File::create(&log).expect("a log");
    let token = pair.token_file().display().to_string();
    let mut runner = pair
        .there
        .command(&["runner", "--token-file", &token, "--pool", "gpu"]);
    let mut runner = runner
        .args(options)
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .expect("a runner");
    pair.until(&format!("{options:?}: {expected}"), || {
        std::fs::read_to_string(&log)
            .ok()
            .filter(|text| text.contains(expected))
    });
    kill(runner.id());
    runner.wait().expect("it ends");
}

#[test]
fn hub_is_verified_by_its_certificate_or_fingerprint() {
    let pair = Pair::without_runner("60s");
    pair.hub.ok(&["stop"]);
    let config = pair.hub.home.dir.join("config.toml");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    let files = format!(
        "[tls]\ncert = {:?}\nkey = \"server.key\"\n",
        tls_fixture("server.pem")
    );
    std::fs::write(&config, text + &files).expect("written");
    let key = pair.hub.home.dir.join("server.key");
    std::fs::copy(tls_fixture("server.key"), &key).expect("copied");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("private");
    let made = pair.hub.json(&["token", "new", "gpu2", "--role", "runner"]);
    let right = made["fingerprint"].as_str().expect("a fingerprint");
    let wrong = "ab".repeat(32);
    let [name, address] = ["localhost", "127.0.0.1"].map(|host| {
        pair.url
            .replace("http://127.0.0.1", &format!("https://{host}"))
    });
    let authority = tls_fixture("authority.pem").display().to_string();
    until_printed(&pair, &["--join", &name], "UnknownIssuer");
    until_printed(
        &pair,
        &["--join", &name, "--fingerprint", &wrong],
        "the certificate is another one",
    );
    until_printed(
        &pair,
        &["--join", &address, "--ca", &authority],
        "not valid for name",
    );
    until_printed(
        &pair,
        &["--join", &name, "--ca", &authority],
        "for pool gpu",
    );
    until_printed(
        &pair,
        &["--join", &address, "--fingerprint", right],
        "for pool gpu",
    );
}

/// Gives the hub a certificate of the fixtures, and its key.
fn give_certificate(pair: &Pair, certificate: &str, key: &str) {
    for (fixture, name, mode) in [
        (certificate, "server.pem", 0o644),
        (key, "server.key", 0o600),
    ] {
        let path = pair.hub.home.dir.join(name);
        let new = path.with_extension("new");
        std::fs::copy(tls_fixture(fixture), &new).expect("copied");
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .expect("a mode");
        std::fs::rename(&new, &path).expect("replaced");
    }
}

#[test]
fn renewed_certificate_is_announced_to_runners_that_trust_a_key() {
    let mut pair = Pair::without_runner("30s");
    pair.hub.ok(&["stop"]);
    let config = pair.hub.home.dir.join("config.toml");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    std::fs::write(
        &config,
        text + "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n",
    )
    .expect("written");
    pair.url = pair.url.replace("http://127.0.0.1", "https://localhost");
    let fingerprint = |pair: &Pair, name: &str| {
        let made = pair.hub.json(&["token", "new", name, "--role", "runner"]);
        made["fingerprint"]
            .as_str()
            .expect("a fingerprint")
            .to_owned()
    };
    give_certificate(&pair, "hub.pem", "hub.key");
    let next = fingerprint(&pair, "one");
    pair.hub.ok(&["stop"]);
    give_certificate(&pair, "server.pem", "server.key");
    let first = fingerprint(&pair, "two");
    assert_ne!(first, next);
    start_pinned(&mut pair, &[&first]);
    pair.start("one", "ask \"Go on?\"\ndone yes");
    pair.until_status("one", "waiting_parent_reply");
    give_certificate(&pair, "hub.pem", "hub.key");
    pair.until("the runner says so", || {
        pair.runner_log()
            .contains(&format!("fingerprint={next:?}"))
            .then_some(())
    });
    let log = std::fs::read_to_string(pair.hub.home.hub_log()).expect("a log");
    assert!(
        log.contains("the certificate has another key") && log.contains(&next),
        "{log}"
    );
    // A runner that trusts both keys goes on after the hub has started again.
    pair.kill_runner();
    start_pinned(&mut pair, &[&first, &next]);
    pair.kill_hub();
    pair.revive_hub();
    pair.hub.ok(&["reply", "one", "yes"]);
    assert_eq!(pair.hub.finished("one")["outcome"], "succeeded");
}

/// Starts a runner that trusts only these keys, and waits until it has joined.
fn start_pinned(pair: &mut Pair, fingerprints: &[&str]) {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(pair.log_file())
        .expect("a log");
    let joined = pair.runner_log().matches("for pool gpu").count();
    let token = pair.token_file().display().to_string();
    let mut runner = pair.there.command(&[
        "runner",
        "--join",
        &pair.url,
        "--token-file",
        &token,
        "--pool",
        "gpu",
        "--slots",
        "2",
    ]);
    for fingerprint in fingerprints {
        runner.args(["--fingerprint", fingerprint]);
    }
    pair.runner = Some(
        runner
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a runner"),
    );
    pair.until("the runner has joined", || {
        (pair.runner_log().matches("for pool gpu").count() > joined).then_some(())
    });
}

#[test]
fn plain_text_to_another_machine_needs_consent() {
    let pair = Pair::without_runner("60s");
    let token = pair.token_file().display().to_string();
    // An address for documentation, to which nothing is sent.
    let refused = pair.there.adj(&[
        "runner",
        "--join",
        "http://192.0.2.1:7317",
        "--token-file",
        &token,
    ]);
    assert!(
        refused.code != 0 && refused.err.contains("plain text") && refused.err.contains("--plain"),
        "{refused:?}"
    );
    let refused = pair.there.adj(&[
        "runner",
        "--join",
        &pair.url,
        "--fingerprint",
        &"ab".repeat(32),
        "--token-file",
        &token,
    ]);
    assert!(
        refused.code != 0 && refused.err.contains("only an https address"),
        "{refused:?}"
    );
    let refused = pair.there.adj(&[
        "runner",
        "--join",
        &pair.url,
        "--fingerprint",
        "ab",
        "--token-file",
        &token,
    ]);
    assert!(
        refused.code == 2 && refused.err.contains("SHA-256"),
        "{refused:?}"
    );
}
