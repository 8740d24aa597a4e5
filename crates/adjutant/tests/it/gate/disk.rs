//! Requests to the model while the hub cannot write.

use super::rig::{ANSWER, Api, KEY, Seen, answer};
use crate::support::TestHome;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// An agent that calls its model twice after the FIFO is opened.
const TWICE: &str = r#"#!/bin/bash
cat > /dev/null
ask() {
  address=${MODEL_URL#http://}
  exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
  body='{"model":"m","messages":[]}'
  printf 'POST /chat/completions HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer %s\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' "$address" "$MODEL_KEY" ${#body} "$body" >&3
  cat <&3
  exec 3>&-
}
echo ready
read -r go < "$FIFO"
ask
ask
echo finished
"#;

fn count(seen: &Seen, run: &str) -> usize {
    seen.requests
        .iter()
        .filter(|(head, _)| head.starts_with(&format!("post /{run}/")))
        .count()
}

/// The hub cannot record the gate's counts: under a budget, the next request waits; without a
/// budget, it is sent.
#[test]
fn request_waits_for_a_full_disk_under_a_budget_only() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let api = runtime.block_on(Api::plays(vec![answer("200 OK", "", ANSWER)]));
    let home = TestHome::new();
    let below = |name: &str| home.work().join("..").join(name);
    let write = |name: &str, text: &str, mode: u32| {
        std::fs::write(below(name), text).expect("a file");
        std::fs::set_permissions(below(name), std::fs::Permissions::from_mode(mode))
            .expect("a mode");
        below(name).display().to_string()
    };
    let (program, key) = (write("agent", TWICE, 0o755), write("key", KEY, 0o600));
    let mut config = format!(
        "[presets.own]\ndriver = \"plain\"\ncommand = [{program:?}]\n[presets.own.gate]\nbase_url = \"http://{}/v1\"\n\
         env = {{ MODEL_URL = \"{{gate_url}}\", MODEL_KEY = \"{{gate_token}}\" }}\n",
        api.address
    );
    for run in ["free", "kept"] {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            below(run),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("a FIFO");
        config.push_str(&format!(
            "[agents.{run}]\nharness = \"own\"\npermissions = \"full\"\ngate = true\nkey = {{ file = {key:?} }}\nbase_url = \"http://{}/{run}\"\n\
             env = {{ FIFO = {:?} }}\n",
            api.address,
            below(run).display().to_string()
        ));
    }
    std::fs::write(home.home.dir.join("config.toml"), config).expect("a configuration");
    let full = below("full");
    let mut hub = home.command(&["__hub"]);
    hub.env("ADJ_FAILPOINT", format!("full={}", full.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut hub = hub.spawn().expect("a hub");
    home.until("the hub takes calls", || {
        home.call(&adjutant_api::view::GetHub {}, "").ok()
    });
    home.ok(&[
        "run", "--detach", "--agent", "free", "--name", "free", "--budget", "time=1h", "x",
    ]);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "kept",
        "--name",
        "kept",
        "--budget",
        "tokens=1M",
        "x",
    ]);
    for run in ["free", "kept"] {
        home.until_log(run, "ready");
    }
    std::fs::write(&full, "").expect("a file");
    assert!(
        home.adj(&["--json", "run", "-d", "-a", "echo", "say no"])
            .err
            .contains("storage_full")
    );
    for run in ["free", "kept"] {
        std::fs::write(below(run), "go\n").expect("the agent reads");
    }
    runtime.block_on(api.until("asked by both", |seen| {
        count(seen, "free") == 2 && count(seen, "kept") >= 1
    }));
    assert_eq!(count(&api.seen(), "kept"), 1, "its second request waits");
    std::fs::remove_file(&full).expect("it is there");
    runtime.block_on(api.until("asked again", |seen| count(seen, "kept") == 2));
    for run in ["free", "kept"] {
        let view = home.finished(run);
        assert_eq!(
            (&view["outcome"], &view["usage"]["output_tokens"]),
            (&"succeeded".into(), &20.into()),
            "all is counted: {view}"
        );
    }
    assert_eq!(home.show("kept")["budgets"][0]["used"], 220);
    home.ok(&["stop"]);
    hub.wait().expect("it has ended");
}
