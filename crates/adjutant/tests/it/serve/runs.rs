//! A process of a run is refused, even with a valid token.

use super::{Site, port_of};
use crate::support::TestHome;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

/// Calls the hub with the token in the file `call`: directly, in another session without an
/// environment, and detached from its parents.
const SCRIPT: &str = r#"#!/bin/bash
call() {
    read -r address port token < call
    exec 3<>"/dev/tcp/$address/$port"
    printf 'POST %s HTTP/1.1\r\nhost: %s:%s\r\nauthorization: Bearer %s\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}' "$1" "$address" "$port" "$token" >&3
    cat <&3
    echo
}
if [ -n "$1" ]; then call "$1" > "$2"; exit; fi
cat > /dev/null
call /api/v1/runs
call /mcp
setsid env -i /bin/bash "$0" /api/v1/runs scrubbed && cat scrubbed
(setsid env -i /bin/bash "$0" /api/v1/runs detached & )
until grep -q . detached 2>/dev/null; do :; done
cat detached
echo end
"#;

#[test]
fn process_of_a_run_cannot_use_a_token() {
    run_is_refused("listen = \"127.0.0.1:0\"", "127.0.0.1");
}

#[test]
fn process_of_a_run_cannot_use_a_token_at_any_address_of_the_machine() {
    run_is_refused(
        "listen = \"0.0.0.0:0\"\nlisten_without_tls = true",
        "127.0.0.3",
    );
    run_is_refused(
        "listen = \"[::]:0\"\nlisten_without_tls = true",
        "127.0.0.1",
    );
}

fn run_is_refused(listen: &str, address: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("caller");
    std::fs::write(&script, SCRIPT).expect("it can be written");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))
        .expect("it can be read");
    let agent = format!(
        "[agents.caller]\nharness = \"plain\"\ncommand = [\"/bin/bash\", \"{}\"]\nprompt = \"stdin\"\n",
        script.display()
    );
    let home = TestHome::with_config(&format!("{listen}\n{agent}"));
    let site = Site {
        port: port_of(&home),
        home,
    };
    let token = site.token("client", &[]);
    std::fs::write(
        site.home.work().join("call"),
        format!("{address} {} {token}\n", site.port),
    )
    .expect("it can be written");
    site.home.start_agent("caller", "rogue", "call");
    site.home.finished("rogue");
    let log = site.home.log("rogue");
    assert!(log.contains("end"), "{log}");
    assert_eq!(
        (
            log.matches("HTTP/1.1 403").count(),
            log.matches("this process is part of a run").count()
        ),
        (4, 4),
        "{log}"
    );
    assert!(!log.contains("HTTP/1.1 2"), "{log}");
    // The same token is good for a process outside.
    site.caller(&token).call("runs", &json!({}));
}

/// Exchanges the code in the file `call`, directly and in another session without an environment.
const SIGN_IN: &str = r#"#!/bin/bash
if [ -z "$1" ]; then cat > /dev/null; fi
read -r port code < call
body="{\"code\":\"$code\"}"
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /sign-in HTTP/1.1\r\nhost: 127.0.0.1:%s\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %s\r\n\r\n%s' "$port" "${#body}" "$body" >&3
cat <&3
if [ -z "$1" ]; then setsid env -i /bin/bash "$0" again; echo end; fi
"#;

#[test]
fn process_of_a_run_cannot_sign_in() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("caller");
    std::fs::write(&script, SIGN_IN).expect("it can be written");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))
        .expect("it can be read");
    let agent = format!(
        "[agents.caller]\nharness = \"plain\"\ncommand = [\"/bin/bash\", \"{}\"]\nprompt = \"stdin\"\n",
        script.display()
    );
    let home = TestHome::with_config(&format!("listen = \"127.0.0.1:0\"\n{agent}"));
    let site = Site {
        port: port_of(&home),
        home,
    };
    let page = site.home.json(&["ui"])["page"]
        .as_str()
        .expect("a page")
        .to_owned();
    let code = page.rsplit('=').next().expect("a code");
    std::fs::write(
        site.home.work().join("call"),
        format!("{} {code}\n", site.port),
    )
    .expect("it can be written");
    site.home.start_agent("caller", "rogue", "call");
    site.home.finished("rogue");
    let log = site.home.log("rogue");
    assert!(log.contains("end"), "{log}");
    assert_eq!(
        (
            log.matches("HTTP/1.1 403").count(),
            log.matches("this process is part of a run").count()
        ),
        (2, 2),
        "{log}"
    );
    // The code is still good for a process outside.
    let reply = site.caller("").send(
        "POST",
        "/sign-in",
        &[("authorization", "")],
        &json!({"code": code}).to_string(),
    );
    assert_eq!(reply.status, 200, "{reply:?}");
}
