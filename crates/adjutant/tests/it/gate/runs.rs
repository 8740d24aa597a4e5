//! Whole runs of an agent with a gate.

use super::rig::{ANSWER, Act, Api, KEY, answer};
use crate::support::{TestHome, kill};
use adjutant_api::protocol::{Fact, FactKind, ModelUsage};
use adjutant_api::view::{Dispatch, Retry};
use adjutant_core::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// An agent that calls its model once, at the address in its environment, and prints the response
/// and its environment.
const AGENT: &str = r#"#!/bin/bash
prompt=$(cat)
env
address=${MODEL_URL#http://}
exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
body='{"model":"gpt-x","messages":[]}'
printf 'POST /chat/completions HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer %s\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' "$address" "$MODEL_KEY" ${#body} "$body" >&3
cat <&3
echo
echo "done"
"#;

/// An agent that ignores its base URL, and reports its usage.
const HEADSTRONG: &str =
    "#!/bin/sh\ncat > prompt\necho '{\"usage\":{\"in\":50,\"out\":5},\"text\":\"done\"}'\n";

/// A home with agents of a declared preset.
pub(super) struct Runs {
    pub(super) home: TestHome,
    pub(super) api: Api,
    runtime: tokio::runtime::Runtime,
}

impl Runs {
    pub(super) fn new() -> Self {
        Self::with(answer("200 OK", "", ANSWER))
    }

    /// Starts an API that runs this script for each request.
    fn with(script: Vec<Act>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let api = runtime.block_on(Api::plays(vec![script]));
        Self {
            home: TestHome::new(),
            api,
            runtime,
        }
    }

    pub(super) fn below(&self, name: &str) -> PathBuf {
        self.home.work().join("..").join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.below(name);
        std::fs::write(&path, text).expect("it can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
            .expect("its mode can be set");
        path.display().to_string()
    }

    /// Configures the agent `gated` with these settings.
    pub(super) fn configure(&self, settings: &str) {
        self.configure_at(&format!("http://{}/v1", self.api.address), settings);
    }

    /// Configures the agent `gated` with an API at another address.
    pub(super) fn configure_at(&self, base_url: &str, settings: &str) {
        let (agent, headstrong) = (
            self.write("agent", AGENT, 0o755),
            self.write("headstrong", HEADSTRONG, 0o755),
        );
        let gate = format!(
            "base_url = {base_url:?}\nenv = {{ MODEL_URL = \"{{gate_url}}\", MODEL_KEY = \"{{gate_token}}\" }}\nunset = [\"OTHER_*\"]\n"
        );
        let config = format!(
            "[presets.own]\ndriver = \"plain\"\ncommand = [{agent:?}]\n[presets.own.gate]\n{gate}\
             [presets.headstrong]\ndriver = \"jsonl\"\ncommand = [{headstrong:?}]\n[[presets.headstrong.stream.rules]]\nwhen = {{ text = \"*\" }}\nresult = \"text\"\n\
             usage = {{ input = \"usage.in\", output = \"usage.out\" }}\n[presets.headstrong.gate]\n{gate}\
             [agents.gated]\nharness = \"own\"\nenv_pass = [\"OTHER_TOKEN\", \"MODEL_KEY\"]\n{settings}\n\
             [agents.headstrong]\nharness = \"headstrong\"\npermissions = \"full\"\n{settings}\n"
        );
        std::fs::write(self.home.home.dir.join("config.toml"), config)
            .expect("the configuration can be written");
    }

    pub(super) fn dispatch(&self, agent: &str, env: &[(&str, &str)]) -> serde_json::Value {
        self.start(agent, env);
        self.home
            .adj(&["wait", "job", "--until", "all", "--timeout", "60s"]);
        self.home.show("job")
    }

    fn start(&self, agent: &str, env: &[(&str, &str)]) {
        let mut env: std::collections::BTreeMap<String, String> = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        env.insert("PATH".to_owned(), "/usr/bin:/bin".to_owned());
        let cwd = self.home.work().display().to_string();
        self.home.ok(&["ps"]);
        let call = Dispatch {
            agent: agent.to_owned(),
            prompt: "call the model".to_owned(),
            cwd,
            name: Some("job".to_owned()),
            permissions: Some(Permissions::Full.into()),
            env,
            ..Dispatch::default()
        };
        self.home.call(&call, "dispatch").expect("it is dispatched");
    }

    fn facts(&self) -> Vec<FactKind> {
        let text = std::fs::read_to_string(self.home.attempt_dir("job").facts()).expect("facts");
        text.lines()
            .map(|line| serde_json::from_str::<Fact>(line).expect("a fact").what)
            .collect()
    }
}

#[test]
fn agent_calls_its_model_without_ever_holding_the_key() {
    let runs = Runs::new();
    let file = runs.write("key", &format!("{KEY}\n"), 0o600);
    runs.configure(&format!("gate = true\nkey = {{ file = {file:?} }}"));
    let view = runs.dispatch(
        "gated",
        &[
            ("OTHER_TOKEN", "x"),
            ("MODEL_KEY", KEY),
            ("HTTP_PROXY", "http://127.0.0.1:1"),
        ],
    );
    assert_eq!(view["outcome"], "succeeded", "{view}");
    let log = runs.home.log("job");
    assert!(
        log.contains("\"completion_tokens\":10") && log.contains("MODEL_URL=http://127.0.0.1:"),
        "{log}"
    );
    assert!(!log.contains(KEY) && !log.contains("OTHER_TOKEN"), "{log}");
    let (head, _) = runs.api.seen().requests.pop().expect("a request");
    assert!(
        head.starts_with("post /v1/chat/completions ")
            && head.contains(&format!("authorization: bearer {KEY}")),
        "{head}"
    );
    let expected = ModelUsage {
        model: "m".to_owned(),
        requests: 1,
        input_tokens: 100,
        output_tokens: 10,
        ..ModelUsage::default()
    };
    assert!(
        runs.facts().contains(&FactKind::GateUsage {
            used: vec![expected]
        }),
        "{:?}",
        runs.facts()
    );
    assert_nowhere(&runs.home.home.dir);
    drop(runs.runtime);
}

/// Checks that no file below a directory contains the key.
fn assert_nowhere(dir: &std::path::Path) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            assert_nowhere(&path);
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).expect("it can be read");
            assert!(
                memchr::memmem::find(&bytes, KEY.as_bytes()).is_none(),
                "{}",
                path.display()
            );
        }
    }
}

/// The fence hides the file with the key, and leaves the loopback network open.
#[test]
fn fenced_agent_calls_its_model_through_the_gate() {
    let runs = Runs::new();
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!(
        "gate = true\nkey = {{ file = {file:?} }}\nfence = \"workspace\""
    ));
    runs.write("agent", &format!("{AGENT}cat {file:?}\n"), 0o755);
    let view = runs.dispatch("gated", &[]);
    assert_eq!(
        (&view["fence"]["enforced"], runs.api.seen().requests.len()),
        (&"mount_namespace".into(), 1),
        "{view}"
    );
    let log = runs.home.log("job");
    assert!(
        log.contains("\"completion_tokens\":10") && log.contains("done") && !log.contains(KEY),
        "{log}"
    );
}

#[test]
fn key_of_a_variable_is_hidden_from_the_agent() {
    let runs = Runs::new();
    runs.configure("gate = true\nkey = { env = \"MODEL_API_KEY\" }");
    let view = runs.dispatch("gated", &[("MODEL_API_KEY", KEY)]);
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert!(runs.api.seen().requests[0].0.contains(KEY));
    assert!(
        !runs.home.log("job").contains(KEY),
        "{}",
        runs.home.log("job")
    );
}

#[test]
fn gated_run_never_starts_without_its_gate() {
    let runs = Runs::new();
    runs.configure("gate = true\nkey = { env = \"MODEL_API_KEY\" }");
    let env = [("MODEL_API_KEY", KEY)];
    runs.dispatch("gated", &env);
    let file = runs.home.home.dir.join("config.toml");
    let gated = std::fs::read_to_string(&file).expect("the configuration");
    let other_key = gated.replace("MODEL_API_KEY", "OTHER_API_KEY");
    for (key, config, problem) in [
        (
            "off",
            gated.replace("gate = true\n", "gate = false\n"),
            "has no gate for gated now",
        ),
        (
            "removed",
            gated.replace("gate = true\nkey = { env = \"MODEL_API_KEY\" }", ""),
            "has no gate for gated now",
        ),
        (
            "changed",
            other_key,
            "the variable OTHER_API_KEY was not set",
        ),
    ] {
        std::fs::write(&file, config).expect("the configuration can be written");
        let env = std::collections::BTreeMap::from([
            ("MODEL_API_KEY".to_owned(), KEY.to_owned()),
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
        ]);
        let again = runs
            .home
            .call(
                &Retry {
                    run: "job".to_owned(),
                    env,
                    ..Retry::default()
                },
                key,
            )
            .expect("it is queued again");
        let view = runs.home.finished(&again.identity.name);
        assert!(
            view["outcome"] == "spawn_failed"
                && view["reason"]
                    .as_str()
                    .is_some_and(|reason| reason.contains(problem)),
            "{problem}: {view}"
        );
    }
    assert_eq!(runs.api.seen().requests.len(), 1);
}

#[test]
fn agent_without_its_gate_gets_no_key() {
    let runs = Runs::new();
    runs.configure("gate = false\nkey = { env = \"MODEL_API_KEY\" }");
    runs.dispatch(
        "gated",
        &[("MODEL_API_KEY", KEY), ("OTHER_TOKEN", "passed")],
    );
    let log = runs.home.log("job");
    assert!(
        log.contains("OTHER_TOKEN=passed") && !log.contains(KEY),
        "{log}"
    );
}

#[test]
fn gate_without_a_usable_key_starts_nothing() {
    let runs = Runs::new();
    let open = runs.write("open", KEY, 0o644);
    let empty = runs.write("empty", "\n", 0o600);
    for (n, (key, problem)) in [
        (format!("{{ file = {open:?} }}"), "chmod 600"),
        (format!("{{ file = {empty:?} }}"), "and nothing else"),
        ("{ file = \"/no/such/key\" }".to_owned(), "/no/such/key"),
        (
            "{ env = \"MODEL_API_KEY\" }".to_owned(),
            "the variable MODEL_API_KEY was not set",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        runs.configure(&format!("gate = true\nkey = {key}"));
        let name = format!("job{n}");
        let ran = runs.home.adj(&[
            "run",
            "--agent",
            "gated",
            "--permissions",
            "full",
            "--name",
            &name,
            "-w",
            "--",
            "call the model",
        ]);
        let view = runs.home.show(&name);
        assert!(
            ran.code != 0
                && view["reason"]
                    .as_str()
                    .is_some_and(|reason| reason.contains(problem)),
            "{key}: {view}"
        );
        assert!(!format!("{ran:?}{view}").contains(KEY), "{view}");
    }
    assert_eq!(runs.api.seen().connections, 0);
}

#[test]
fn unusable_settings_of_a_gate_are_refused() {
    let runs = Runs::new();
    for (settings, problem) in [
        ("gate = true", "key: required with gate = true"),
        ("key = { env = \"X_KEY\" }", "key: is for the gate"),
        ("base_url = \"https://x\"", "base_url: is for the gate"),
        (
            "gate = true\nkey = { env = \"X_KEY\", file = \"x\" }",
            "key: use either",
        ),
        ("gate = true\nkey = { env = \"LD_PRELOAD\" }", "key: "),
        (
            "gate = true\nkey = { file = \"x\" }\nbase_url = \"http://api.example.org\"",
            "base_url: use https",
        ),
    ] {
        runs.configure(settings);
        let ran = runs.home.adj(&["config", "show"]);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(said.contains(problem), "{settings}: {said}");
    }
    std::fs::write(
        runs.home.home.dir.join("config.toml"),
        "[agents.x]\nharness = \"echo\"\ngate = true\nkey = { file = \"k\" }\n",
    )
    .expect("it can be written");
    let ran = runs.home.adj(&["config", "show"]);
    assert!(
        format!("{}{}", ran.out, ran.err).contains("agents.x.gate: echo does not support a gate"),
        "{ran:?}"
    );
}

#[test]
fn gated_run_without_a_required_variable_does_not_start() {
    let runs = Runs::new();
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!(
        "gate = true\nkey = {{ file = {file:?} }}\nenv = {{ MODEL_NAME = \"\" }}"
    ));
    let config = runs.home.home.dir.join("config.toml");
    let text = std::fs::read_to_string(&config)
        .expect("the configuration")
        .replace(
            "unset = ",
            "about = \"set it\"\nneeds = [\"MODEL_NAME\"]\nunset = ",
        );
    std::fs::write(&config, text.clone()).expect("the configuration can be written");
    let view = runs.dispatch("gated", &[]);
    assert_eq!(
        (&view["outcome"], runs.api.seen().connections),
        (&"spawn_failed".into(), 0),
        "{view}"
    );
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("MODEL_NAME is not set: set it")),
        "{view}"
    );
    std::fs::write(
        &config,
        text.replace("MODEL_NAME = \"\"", "MODEL_NAME = \"m\""),
    )
    .expect("the configuration can be written");
    runs.home.ok(&[
        "run",
        "-d",
        "-a",
        "gated",
        "--permissions",
        "full",
        "-n",
        "again",
        "--",
        "call the model",
    ]);
    assert_eq!(
        (
            &runs.home.finished("again")["outcome"],
            runs.api.seen().requests.len()
        ),
        (&"succeeded".into(), 1)
    );
}

/// A configuration that does not parse changes nothing for a live run, and is reported by each
/// command.
#[test]
fn invalid_configuration_does_not_affect_a_gated_run() {
    let runs = Runs::new();
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!(
        "gate = true\nkey = {{ file = {file:?} }}\nbudget = \"tokens=1000\""
    ));
    let (before, call) = AGENT
        .split_once("env\n")
        .expect("it prints its environment");
    let call = call.replace("\necho\necho \"done\"", "");
    runs.write(
        "agent",
        &format!("{before}mkfifo ../go\n{call}read word < ../go\n{call}echo \"done\"\n"),
        0o755,
    );
    runs.start("gated", &[]);
    runs.runtime
        .block_on(runs.api.until("asked", |seen| seen.requests.len() == 1));
    let (config, hub) = (runs.home.home.dir.join("config.toml"), runs.home.hub_pid());
    let valid = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, format!("{valid}[agents.gated\n"))
        .expect("the configuration can be written");
    let listed = runs.home.adj(&["ps"]);
    let line = format!("line {}", valid.lines().count() + 1);
    assert!(
        listed.code == 0
            && listed.out.contains("job")
            && listed.err.contains("the configuration cannot be used"),
        "{listed:?}"
    );
    assert!(
        listed.err.contains("config.toml")
            && (listed.err.contains(&line) || listed.err.contains(&line.replace("line ", ":"))),
        "{line}: {listed:?}"
    );
    let refused = runs.home.adj(&[
        "run",
        "--agent",
        "gated",
        "--permissions",
        "full",
        "another task",
    ]);
    assert!(
        refused.code != 0 && refused.err.contains("config.toml"),
        "{refused:?}"
    );
    std::fs::write(runs.below("go"), "go\n").expect("the agent reads");
    let view = runs.home.finished("job");
    assert_eq!(
        (&view["outcome"], runs.api.seen().requests.len()),
        (&"succeeded".into(), 2),
        "{view}"
    );
    let account = runs.home.json(&["budget", "job"]);
    assert!(
        account.to_string().contains("220"),
        "both requests are charged to the budget of the valid configuration: {account}"
    );
    std::fs::write(&config, valid).expect("the configuration can be written");
    let listed = runs.home.adj(&["ps"]);
    assert!(
        !listed.err.contains("cannot be used") && runs.home.hub_pid() == hub,
        "{listed:?}"
    );
}

/// The source of the key is shown, never the key. Quotas are shown with their rolling windows.
#[test]
fn gate_and_quota_windows_of_an_agent_are_shown() {
    let [reset, later] =
        [3, 100].map(|hours| adjutant_os::clock::now().plus_ms(hours * 3_600_000).0 / 1000);
    let headers = format!(
        "anthropic-ratelimit-unified-5h-utilization: 0.42\r\nanthropic-ratelimit-unified-5h-reset: {reset}\r\n\
         anthropic-ratelimit-unified-7d-utilization: 0.071\r\nanthropic-ratelimit-unified-7d-reset: {later}\r\n"
    );
    let runs = Runs::with(answer("200 OK", &headers, ANSWER));
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!("gate = true\nkey = {{ file = {file:?} }}"));
    let before = runs.home.json(&["agents", "gated"]);
    assert!(
        before["quota_windows"].is_null() && before["limited_until"].is_null(),
        "{before}"
    );
    assert_eq!(before["gate"]["key"], format!("file {file}"), "{before}");
    assert_eq!(
        before["gate"]["base_url"],
        format!("http://{}/v1", runs.api.address),
        "{before}"
    );
    assert_eq!(runs.dispatch("gated", &[])["outcome"], "succeeded");
    let after = runs.home.json(&["agents", "gated"]);
    let windows: Vec<_> = after["quota_windows"]
        .as_array()
        .expect("windows")
        .iter()
        .map(|one| (one["minutes"].clone(), one["used_percent"].clone()))
        .collect();
    assert_eq!(
        windows,
        [(300.into(), 42.into()), (10_080.into(), 7.into())],
        "{after}"
    );
    let resets = after["quota_windows"][0]["resets_at"]
        .as_str()
        .and_then(adjutant_os::clock::parse_rfc3339)
        .expect("a time");
    assert_eq!(resets.0 / 1000, reset, "{after}");
    kill(runs.home.hub_pid());
    assert_eq!(
        runs.home.json(&["agents", "gated"])["quota_windows"],
        after["quota_windows"],
        "the next hub knows them"
    );
    let (listed, shown) = (
        runs.home.adj(&["agents"]),
        runs.home.adj(&["agents", "gated"]).out,
    );
    let listed = format!("{}{}", listed.out, listed.err);
    assert!(
        listed.contains("gated: rolling 5h: 42 % used, resets at ")
            && listed.contains("rolling 7d: 7 % used"),
        "{listed}"
    );
    assert!(
        listed.contains("gated: its model is called through the gate, at http://127.0.0.1:"),
        "{listed}"
    );
    assert!(
        shown.contains("rolling 5h: 42 % used") && shown.contains("on, to http://127.0.0.1:"),
        "{shown}"
    );
    assert!(!format!("{listed}{shown}{after}").contains(KEY), "{listed}");
    runs.configure("");
    let shown = runs.home.adj(&["agents", "gated"]).out;
    assert!(shown.contains("gate        off"), "{shown}");
    assert!(
        runs.home
            .adj(&["agents", "echo"])
            .out
            .contains("gate        none: ")
    );
    let variable = "gate = true\nkey = { env = \"MODEL_API_KEY\" }";
    runs.configure(variable);
    assert_eq!(
        runs.home.json(&["agents", "gated"])["gate"]["key"],
        "variable MODEL_API_KEY"
    );
}

/// A usage limit in a response delays the agent's next run, even after the hub was killed.
#[test]
fn limit_in_a_response_delays_the_runs_of_its_agent() {
    let runs = Runs::with(answer(
        "429 Too Many Requests",
        "retry-after: 7200\r\n",
        "{}",
    ));
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!("gate = true\nkey = {{ file = {file:?} }}"));
    runs.dispatch("gated", &[]);
    let agent = runs.home.json(&["agents", "gated"]);
    let until = agent["limited_until"]
        .as_str()
        .and_then(adjutant_os::clock::parse_rfc3339)
        .expect("a limit");
    let minutes = (until.0 - adjutant_os::clock::now().0) / 60_000;
    assert!((100..=120).contains(&minutes), "{agent}");
    runs.home.ok(&[
        "run",
        "-d",
        "-a",
        "gated",
        "-n",
        "next",
        "--permissions",
        "full",
        "x",
    ]);
    for _ in 0..2 {
        let next = runs.home.show("next");
        assert_eq!(
            (&next["state"], &next["queue"]["waiting_for"]),
            (&"queued".into(), &"quota".into()),
            "{next}"
        );
        kill(runs.home.hub_pid());
    }
    assert_eq!(runs.api.seen().requests.len(), 1, "nothing more was sent");
}

/// The hub is killed while a request waits for it, and the agent cancels the request.
#[test]
fn request_cancelled_without_a_hub_is_never_sent() {
    let runs = Runs::new();
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!("gate = true\nkey = {{ file = {file:?} }}"));
    let fifo = |name: &str| {
        let path = runs.below(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("a FIFO");
        path.display().to_string()
    };
    let (first, second) = (fifo("first"), fifo("second"));
    let body = r#"'{"model":"m","messages":[]}'"#;
    // The second request is made on another connection, after the first one was closed.
    let script = format!(
        "#!/bin/bash\ncat > /dev/null\naddress=${{MODEL_URL#http://}}\nbegin() {{\n  exec 3<>\"/dev/tcp/${{address%:*}}/${{address#*:}}\"\n  body={body}\n\
         \x20 printf 'POST /chat/completions HTTP/1.1\\r\\nhost: %s\\r\\nauthorization: Bearer %s\\r\\nconnection: close\\r\\ncontent-length: %s\\r\\n\\r\\n%s' \
         \"$address\" \"$MODEL_KEY\" ${{#body}} \"$body\" >&3\n}}\n\
         echo ready\nread -r go < {first}\nbegin\ntouch asked\nread -r go < {second}\nexec 3>&-\nbegin\ncat <&3\necho finished\n"
    );
    runs.write("agent", &script, 0o755);
    runs.start("gated", &[]);
    runs.home.until_log("job", "ready");
    kill(runs.home.hub_pid());
    std::fs::write(&first, "go\n").expect("the agent reads");
    runs.home.until("it has asked", || {
        runs.home.work().join("asked").exists().then_some(())
    });
    std::fs::write(&second, "go\n").expect("the agent reads");
    // The next hub admits the request that is still open.
    let view = runs.home.finished("job");
    assert_eq!(
        (&view["outcome"], &view["usage"]["output_tokens"]),
        (&"succeeded".into(), &10.into()),
        "{view}"
    );
    assert_eq!(runs.api.seen().requests.len(), 1, "{:?}", runs.api.seen());
}

#[test]
fn agent_that_bypasses_its_gate_is_reported() {
    let runs = Runs::new();
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!("gate = true\nkey = {{ file = {file:?} }}"));
    let view = runs.dispatch("headstrong", &[]);
    assert!(
        view["note"]
            .as_str()
            .is_some_and(|note| note.contains("its agent ignores its gate")),
        "{view}"
    );
    let facts = runs.facts();
    assert!(
        facts.iter().any(|fact| matches!(fact, FactKind::GateIgnored { why } if why.contains("no model has answered through the gate"))),
        "{facts:?}"
    );
    assert!(
        !facts
            .iter()
            .any(|fact| matches!(fact, FactKind::GateUsage { .. })),
        "{facts:?}"
    );
}

/// The agent lists models through its gate, which is not usage, then reports usage and continues.
#[test]
fn hard_budget_stops_an_agent_that_bypasses_its_gate() {
    let runs = Runs::new();
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!("gate = true\nkey = {{ file = {file:?} }}"));
    let listing = "address=${MODEL_URL#http://}\nexec 3<>\"/dev/tcp/${address%:*}/${address#*:}\"\n\
                   printf 'GET /models HTTP/1.1\\r\\nhost: %s\\r\\nauthorization: Bearer %s\\r\\nconnection: close\\r\\n\\r\\n' \"$address\" \"$MODEL_KEY\" >&3\ncat <&3 >/dev/null\n";
    runs.write(
        "headstrong",
        &format!("#!/bin/bash\ncat > prompt\n{listing}echo '{{\"usage\":{{\"in\":50,\"out\":5}},\"text\":\"working\"}}'\nsleep 600\n"),
        0o755,
    );
    let ran = runs.home.adj(&[
        "run",
        "--detach",
        "--agent",
        "headstrong",
        "--name",
        "job",
        "--budget",
        "tokens=5000,hard",
        "--",
        "call the model",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    runs.home
        .adj(&["wait", "job", "--until", "attention", "--timeout", "60s"]);
    let view = runs.home.show("job");
    assert_eq!(
        (&view["state"], runs.api.seen().requests.len()),
        (&"stopped".into(), 1),
        "{view}"
    );
    assert!(
        view["note"]
            .as_str()
            .is_some_and(|note| note.contains("its agent ignores its gate")),
        "{view}"
    );
}

/// Calls its model a hundred times at once.
const CROWD: &str = r#"#!/bin/bash
cat > /dev/null
address=${MODEL_URL#http://}
call() {
    exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
    body='{"model":"gpt-x","messages":[]}'
    printf 'POST /chat/completions HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer %s\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' "$address" "$MODEL_KEY" ${#body} "$body" >&3
    cat <&3 > /dev/null
}
for n in {1..100}; do call & done
wait
echo "done"
"#;
/// A response that reports 1,000 tokens.
const THOUSAND: &str =
    r#"{"model":"gpt-x","choices":[],"usage":{"prompt_tokens":900,"completion_tokens":100}}"#;

fn crowd(api: Vec<Act>, budget: &str, size: usize) -> Runs {
    let runs = Runs::with(api);
    let file = runs.write("key", KEY, 0o600);
    runs.configure(&format!("gate = true\nkey = {{ file = {file:?} }}"));
    let config = runs.home.home.dir.join("config.toml");
    let text = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, text + "[prices]\ndate = \"2026-11-23\"\n[prices.models.gpt-x]\ninput = 1.0\noutput = 1.0\n").expect("written");
    runs.write("agent", &CROWD.replace("100}", &format!("{size}}}")), 0o755);
    runs.home.ok(&[
        "run",
        "--detach",
        "--agent",
        "gated",
        "--name",
        "job",
        "--budget",
        budget,
        "--",
        "call the model",
    ]);
    runs
}

#[test]
fn parallel_requests_exceed_a_hard_budget_by_one_request() {
    for budget in ["tokens=10k,hard", "cost=0.01,hard"] {
        let runs = crowd(answer("200 OK", "", THOUSAND), budget, 100);
        // A budget that is nearly used up would end a wait for attention.
        let waited = runs
            .home
            .adj(&["wait", "job", "--until", "any", "--timeout", "60s"]);
        let sent = runs.api.seen().requests.len();
        assert!(
            (10..=11).contains(&sent),
            "{budget}: {sent} requests of 1,000 tokens: {waited:?} {}",
            runs.home.show("job")
        );
    }
}

#[test]
fn parallel_requests_begin_together_while_enough_is_left() {
    let runs = crowd(vec![Act::Hang], "tokens=10m,hard", 8);
    let seen = runs.runtime.block_on(
        runs.api
            .until("eight at once", |seen| seen.requests.len() == 8),
    );
    assert_eq!(seen.requests.len(), 8);
    runs.home.ok(&["cancel", "job"]);
}
