//! The dashboard: its files, and how a browser signs in. `.ci/dashboard` drives the pages in a real
//! browser.

use super::{Caller, Site, port_of};
use crate::support::TestHome;
use adjutant_api::view::GetHub;
use adjutant_core::hex;
use regex::Regex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../adjutant-hub/src/hub/http/dashboard")
}

/// Returns every file that must be served, with the path of its request.
fn files() -> Vec<(String, PathBuf)> {
    let mut files = vec![("/".to_owned(), source().join("index.html"))];
    let mut dirs = vec![source()];
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(dir)
            .expect("the files")
            .map(|entry| entry.expect("an entry").path())
        {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|end| {
                ["js", "mjs", "css", "svg"]
                    .iter()
                    .any(|served| end == *served)
            }) {
                files.push((
                    format!("/{}", path.strip_prefix(source()).expect("below").display()),
                    path,
                ));
            }
        }
    }
    assert!(files.len() > 20, "{files:?}");
    files
}

fn get(caller: &Caller, path: &str, headers: &[(&str, &str)]) -> super::Reply {
    caller.send(
        "GET",
        path,
        &[&[("authorization", "")], headers].concat(),
        "",
    )
}

#[test]
fn files_need_no_token_and_pass_the_other_checks() {
    let site = Site::new();
    let caller = site.caller("");
    for (path, file) in files() {
        let reply = get(&caller, &path, &[]);
        assert_eq!(
            (reply.status, &reply.body),
            (200, &std::fs::read_to_string(&file).expect("a file")),
            "{path}"
        );
        for header in [
            "content-security-policy: default-src 'self'; frame-ancestors 'none';",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-cache",
        ] {
            assert!(
                reply.head.contains(header),
                "{path}: {header}: {}",
                reply.head
            );
        }
        assert!(
            !reply.head.contains("unsafe") && !reply.head.contains("set-cookie"),
            "{path}: {}",
            reply.head
        );
        assert_eq!(
            get(&caller, &path, &[("host", "evil.example")]).status,
            403,
            "{path}"
        );
        assert_eq!(
            get(&caller, &path, &[("origin", "https://evil.example")]).status,
            403,
            "{path}"
        );
        assert_eq!(
            caller
                .send("POST", &path, &[("authorization", "")], "{}")
                .status,
            401,
            "{path}"
        );
    }
    let head = Regex::new("etag: (\"[^\"]+\")").expect("a pattern");
    let mut stream = caller.open("GET", "/app.css", &[("authorization", "")], "");
    // The tag is compared as it was sent, so its letters keep their case here.
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).expect("a reply");
    let tag = head
        .captures(&text)
        .map(|found| found[1].to_owned())
        .unwrap_or_else(|| panic!("{}", &text[..400]));
    let again = get(&caller, "/app.css", &[("if-none-match", &tag)]);
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    assert_eq!(
        get(&caller, "/app.css", &[("if-none-match", "\"other\"")]).status,
        200
    );
    for absent in [
        "/index.html",
        "/js",
        "/js/../mod.rs",
        "/vendor/vendor.json",
        "/favicon.ico",
    ] {
        assert_eq!(get(&caller, absent, &[]).status, 401, "{absent}");
    }
}

#[test]
fn no_file_names_another_site_or_runs_text() {
    let addresses = Regex::new(r#"(?:https?:)?//[a-z0-9-]+\.[a-z]"#).expect("a pattern");
    for (path, file) in files() {
        let text = std::fs::read_to_string(file).expect("a file");
        // The names of XML languages, which nothing is loaded from.
        let rest = text.replace("http://www.w3.org/", "");
        assert!(
            !addresses.is_match(&rest),
            "{path}: {:?}",
            addresses.find(&rest)
        );
        assert!(
            !text.contains("eval(") && !text.contains("new Function"),
            "{path}"
        );
        if path.starts_with("/vendor/") {
            continue;
        }
        for dangerous in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "dangerouslySetInnerHTML",
            "srcdoc",
            "document.cookie",
            "localStorage",
        ] {
            assert!(!text.contains(dangerous), "{path}: {dangerous}");
        }
    }
    let page = std::fs::read_to_string(source().join("index.html")).expect("the page");
    assert!(
        !page.contains("<style") && !page.contains(" style=") && !page.contains(" on"),
        "no inline script or style: {page}"
    );
    assert_eq!(
        page.matches("<script").count(),
        page.matches("<script type=\"module\" src=\"/").count()
    );
}

#[test]
fn vendored_files_are_those_of_the_list() {
    let dir = source().join("vendor");
    let list: Value =
        serde_json::from_slice(&std::fs::read(dir.join("vendor.json")).expect("the list"))
            .expect("JSON");
    let rows = list["files"].as_array().expect("files");
    for row in rows {
        let name = row["file"].as_str().expect("a name");
        let hash = hex(Sha256::digest(std::fs::read(dir.join(name)).expect(name)));
        assert_eq!(row["sha256"], hash, "{name}");
        assert!(
            row["version"].is_string()
                && ["MIT", "Apache-2.0"].contains(&row["license"].as_str().expect("a licence")),
            "{row}"
        );
        let license =
            std::fs::read_to_string(dir.join(row["license_file"].as_str().expect("a file")))
                .expect("a licence");
        assert!(license.len() > 500, "{name}");
    }
    let modules = files()
        .iter()
        .filter(|(path, _)| path.starts_with("/vendor/"))
        .count();
    assert_eq!(rows.len(), modules);
}

#[test]
fn code_signs_one_browser_in() {
    let site = Site::new();
    let opened = site.home.json(&["ui"]);
    let url = format!("http://127.0.0.1:{}", site.port);
    assert_eq!(opened["url"], url);
    let code = opened["page"]
        .as_str()
        .and_then(|page| page.strip_prefix(&format!("{url}/#code=")))
        .expect("a code")
        .to_owned();
    let stranger = site.caller("");
    let body = json!({"code": code}).to_string();
    let sign_in = |headers: &[(&str, &str)], body: &str| {
        stranger.send(
            "POST",
            "/sign-in",
            &[&[("authorization", "")], headers].concat(),
            body,
        )
    };
    assert_eq!(sign_in(&[("host", "evil.example")], &body).status, 403);
    assert_eq!(
        sign_in(&[("origin", "https://evil.example")], &body).status,
        403
    );
    assert_eq!(
        sign_in(&[("content-type", "text/plain")], &body).status,
        415
    );
    assert_eq!(sign_in(&[], "{}").status, 422);
    assert_eq!(sign_in(&[], "{\"code\": \"adj_x\"}").status, 403);
    let reply = sign_in(&[], &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.head.contains("cache-control: no-store"), "{reply:?}");
    let again = sign_in(&[], &body);
    assert!(
        again.status == 403 && again.body.contains("adj ui"),
        "{again:?}"
    );

    let made = reply.json();
    let browser = site.caller(made["token"].as_str().expect("a token"));
    browser.dispatch(&site.home.work(), "job", "ask \"Go on?\"");
    site.home.until_status("job", "waiting_parent_reply");
    let asked = browser.call("attention", &json!({}));
    assert!(
        asked["requests"].as_array().map(Vec::len) == Some(1)
            && asked["requests"][0]["question"] == "Go on?",
        "{asked}"
    );
    assert_eq!(
        browser
            .post(
                "token-create",
                &json!({"name": "x", "role": "person", "sha256": "0".repeat(64)})
            )
            .status,
        404,
        "it makes no tokens"
    );
    let listed = site.home.json(&["token", "list"]);
    let token = &listed["tokens"][0];
    assert!(
        token["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("ui-"))
            && token["expires_at"] == made["expires_at"],
        "{listed}"
    );
    let refused = site.home.adj(&["token", "new", "ui-mine"]);
    assert!(
        refused.code != 0 && refused.err.contains("ui-"),
        "{refused:?}"
    );
    site.home
        .ok(&["token", "revoke", token["name"].as_str().expect("a name")]);
    assert_eq!(browser.post("runs", &json!({})).status, 401);
    site.home.ok(&["cancel", "job"]);
}

/// Calls the hub from another program of this user, with the token and the code for a reload that
/// it has found.
const FINDER: &str = r#"#!/bin/bash
call() {
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    printf 'POST %s HTTP/1.1\r\nhost: 127.0.0.1:%s\r\n%sconnection: close\r\ncontent-type: application/json\r\ncontent-length: %s\r\n\r\n%s' "$1" "$PORT" "$2" "${#3}" "$3" >&3
    cat <&3
    exec 3>&-
}
call /api/v1/runs "authorization: Bearer $TOKEN"$'\r\n' '{}'
call /sign-in/tab "authorization: Bearer $TOKEN"$'\r\n' '{}'
call /sign-out "authorization: Bearer $TOKEN"$'\r\n' '{}'
call /sign-in '' "{\"resume\":\"$RESUME\"}"
call /api/v1/runs "authorization: Bearer $RESUME"$'\r\n' '{}'
"#;

#[test]
fn sign_in_of_a_page_counts_only_in_its_program() {
    let mut site = Site::new();
    let page = site.home.json(&["ui"])["page"]
        .as_str()
        .expect("a page")
        .to_owned();
    let sign_in = |site: &Site, body: Value| {
        site.caller("").send(
            "POST",
            "/sign-in",
            &[("authorization", "")],
            &body.to_string(),
        )
    };
    let first = sign_in(
        &site,
        json!({"code": page.rsplit('=').next().expect("a code")}),
    )
    .json();
    let of = |reply: &Value, name: &str| reply[name].as_str().expect("a secret").to_owned();
    let (token, resume) = (of(&first, "token"), of(&first, "resume"));
    let mut finder = std::process::Command::new("/bin/bash");
    finder
        .args(["-c", FINDER])
        .current_dir("/")
        .env("PORT", site.port.to_string())
        .env("TOKEN", &token)
        .env("RESUME", &resume);
    let found = finder.output().expect("bash starts");
    let found = String::from_utf8(found.stdout).expect("UTF-8");
    assert_eq!(
        (
            found.matches("HTTP/1.1 401").count(),
            found.matches("HTTP/1.1 403").count()
        ),
        (4, 1),
        "{found}"
    );
    // Its own program continues, also with the next hub.
    site.caller(&token).call("runs", &json!({}));
    site.kill_hub();
    site.revive();
    site.caller(&token).call("runs", &json!({}));
    let second = sign_in(&site, json!({"resume": resume})).json();
    assert_ne!(
        (of(&second, "token"), of(&second, "resume")),
        (token.clone(), resume.clone())
    );
    site.caller(&of(&second, "token")).call("runs", &json!({}));
    assert_eq!(
        site.caller(&token).post("runs", &json!({})).status,
        401,
        "the token from before the reload"
    );
    let again = sign_in(&site, json!({"resume": resume}));
    assert!(
        again.status == 403 && again.body.contains("adj ui"),
        "{again:?}"
    );
    assert_eq!(
        site.home.json(&["token", "list"])["tokens"]
            .as_array()
            .map(Vec::len),
        Some(1),
        "a reload is no other browser"
    );
}

#[test]
fn page_opens_another_tab_and_signs_out() {
    let site = Site::new();
    let page = site.home.json(&["ui"])["page"]
        .as_str()
        .expect("a page")
        .to_owned();
    let sign_in = |body: Value| {
        site.caller("").send(
            "POST",
            "/sign-in",
            &[("authorization", "")],
            &body.to_string(),
        )
    };
    let first = sign_in(json!({"code": page.rsplit('=').next().expect("a code")})).json();
    let token = first["token"].as_str().expect("a token");
    let tab = site.caller(token).send("POST", "/sign-in/tab", &[], "{}");
    assert_eq!(tab.status, 200, "{tab:?}");
    let second = sign_in(tab.json());
    assert_eq!(second.status, 200, "{second:?}");
    assert_eq!(sign_in(tab.json()).status, 403, "a code works once");
    let other = site.token("script", &["--role", "person"]);
    for path in ["/sign-in/tab", "/sign-out"] {
        assert_eq!(
            site.caller(&other).send("POST", path, &[], "{}").status,
            404,
            "only a page has tabs"
        );
        assert_eq!(site.caller("").send("POST", path, &[], "{}").status, 401);
        assert_eq!(site.caller(token).send("GET", path, &[], "").status, 405);
    }
    let expires = |reply: &Value| {
        let tokens = site.home.json(&["token", "list"]);
        let own = tokens["tokens"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|token| token["name"] == reply["name"])
            .expect("it is listed")
            .clone();
        own["expires_at"].as_str().expect("a time").to_owned()
    };
    assert_eq!(
        site.caller(token)
            .send("POST", "/sign-out", &[], "{}")
            .status,
        204
    );
    assert!(expires(&first) < expires(&second.json()), "within a minute");
    // Actions that were under way still count, and a reload continues.
    site.caller(token).call("runs", &json!({}));
    let reloaded = sign_in(json!({"resume": first["resume"]})).json();
    assert!(expires(&reloaded) >= expires(&second.json()));
    site.caller(second.json()["token"].as_str().expect("a token"))
        .call("runs", &json!({}));
}

#[test]
fn only_sixteen_browsers_are_signed_in() {
    let site = Site::new();
    let stranger = site.caller("");
    let mut tokens = Vec::new();
    for _ in 0..17 {
        let page = site.home.json(&["ui"])["page"]
            .as_str()
            .expect("a page")
            .to_owned();
        let code = page.rsplit('=').next().expect("a code").to_owned();
        let reply = stranger.send(
            "POST",
            "/sign-in",
            &[("authorization", "")],
            &json!({"code": code}).to_string(),
        );
        tokens.push(reply.json()["token"].as_str().expect("a token").to_owned());
    }
    assert_eq!(
        site.caller(&tokens[0]).post("hub", &json!({})).status,
        401,
        "the oldest one"
    );
    assert_eq!(site.caller(&tokens[1]).post("hub", &json!({})).status, 200);
    assert_eq!(site.caller(&tokens[16]).post("hub", &json!({})).status, 200);
}

#[test]
fn ui_makes_a_hub_listen_until_it_is_stopped() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    assert_eq!(home.call(&GetHub {}, "").expect("a hub").url, None);
    let opened = home.json(&["ui", "--listen", "127.0.0.1:0"]);
    let url = opened["url"].as_str().expect("an address").to_owned();
    let other = home.adj(&["ui", "--listen", "127.0.0.1:1"]);
    assert!(other.code != 0 && other.err.contains(&url), "{other:?}");
    let shown = home.ok(&["ui"]);
    assert!(
        shown.starts_with(&format!("{url}/#code=adj_")) && shown.lines().count() == 1,
        "{shown}"
    );
    // The next hub listens there too.
    let pid = home.hub_pid();
    crate::support::kill(pid);
    home.until("the hub is dead", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
    assert_eq!(format!("http://127.0.0.1:{}", port_of(&home)), url);
    home.ok(&["stop"]);
    home.ok(&["ps"]);
    assert_eq!(home.call(&GetHub {}, "").expect("a hub").url, None);
}

#[test]
fn run_cannot_sign_in() {
    let site = Site::new();
    site.home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "thief",
        "adj --json ui\nscrub-adj --json ui\nsay end",
    ]);
    site.home.finished("thief");
    let log = site.home.ok(&["logs", "thief"]);
    assert!(log.contains("end") && !log.contains("#code="), "{log}");
}

#[test]
fn dashboard_without_tls_is_only_for_this_machine() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    assert_eq!(home.adj(&["ui", "--listen", "0.0.0.0:7317"]).code, 2);
    let call = adjutant_api::view::OpenDashboard {
        listen: Some("0.0.0.0:7317".to_owned()),
        sha256: "0".repeat(64),
    };
    assert_eq!(home.call(&call, "").expect_err("refused").code, "invalid");
    assert_eq!(home.call(&GetHub {}, "").expect("a hub").url, None);
}
