//! The documented Compose file and units of systemd are valid, and start a hub and a runner that
//! work together.

use crate::readme::block;
use crate::support::{TestHome, skip};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn documented(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/deploy")
        .join(name)
}

const READ_YAML: &str = "import json, sys; from ruamel.yaml import YAML; json.dump(YAML(typ='safe').load(open(sys.argv[1])), sys.stdout)";

fn words(command: &Value) -> Vec<&str> {
    command
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

#[test]
fn documented_compose_file_starts_a_hub_and_a_runner() {
    let Some(python) = std::env::var_os("ADJ_SDK_PYTHON") else {
        return skip(
            "ADJ_SDK_PYTHON does not name a Python with check-jsonschema (.ci/sdk --install DIR)",
        );
    };
    let file = documented("compose.yaml");
    let is_valid = |file: &Path| {
        let check = [
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
        ];
        let ran = Command::new(&python)
            .args(check)
            .arg(file)
            .output()
            .expect("Python starts");
        (
            ran.status.success(),
            format!(
                "{}{}",
                String::from_utf8_lossy(&ran.stdout),
                String::from_utf8_lossy(&ran.stderr)
            ),
        )
    };
    let (valid, said) = is_valid(&file);
    assert!(valid, "{said}");
    let scratch = TestHome::new();
    let wrong = scratch.work().join("compose.yaml");
    std::fs::write(
        &wrong,
        std::fs::read_to_string(&file)
            .expect("a file")
            .replace("depends_on:", "depend_on:"),
    )
    .expect("written");
    assert!(!is_valid(&wrong).0, "the schema is strict");

    let read = Command::new(&python)
        .args(["-c", READ_YAML])
        .arg(&file)
        .output()
        .expect("Python starts");
    let compose: Value =
        serde_json::from_slice(&read.stdout).unwrap_or_else(|error| panic!("{error}: {read:?}"));
    let config = compose["configs"]["hub"]["content"]
        .as_str()
        .expect("a configuration");
    let store = "store = \"postgres://adj@/adjutant?host=/run/postgresql\"\n";
    assert!(config.contains(store), "{config}");
    let shown = TestHome::with_config(config).ok(&["config", "show"]);
    assert!(shown.contains("[pools.fleet]"), "{shown}");

    // On this machine, with its own store.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a free port")
        .port();
    let url = format!("http://127.0.0.1:{port}");
    let here = config
        .replace(store, "")
        .replace("0.0.0.0:7317", &format!("127.0.0.1:{port}"))
        .replace("http://hub:7317", &url);
    let hub = TestHome::with_config(&here);
    assert_eq!(words(&compose["services"]["hub"]["command"]), ["serve"]);
    let mut serving = hub
        .command(&["serve"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a hub");
    // Otherwise, the next command would start another hub.
    let lock = hub.home.hub_lock();
    hub.until("the hub has started", || {
        std::fs::read_to_string(&lock)
            .is_ok_and(|pid| pid.trim() == serving.id().to_string())
            .then_some(())
    });
    let token = hub.ok(&["token", "new", "runner1", "--role", "runner"]);
    let file = hub.work().join("token");
    std::fs::write(&file, token).expect("written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("private");
    let file = file.display().to_string();
    let mut args = words(&compose["services"]["runner"]["command"]);
    for (documented, here) in [
        ("http://hub:7317", url.as_str()),
        ("/tokens/runner1", file.as_str()),
    ] {
        *args
            .iter_mut()
            .find(|word| **word == documented)
            .unwrap_or_else(|| panic!("no {documented}")) = here;
    }
    let there = TestHome::new();
    let mut runner = there
        .command(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a runner");
    hub.ok(&[
        "run",
        "--detach",
        "--pool",
        "fleet",
        "--agent",
        "echo",
        "--name",
        "one",
        "say here\n",
    ]);
    assert_eq!(hub.finished("one")["outcome"], "succeeded");
    // Docker ends containers with SIGTERM.
    for child in [&mut runner, &mut serving] {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(child),
            rustix::process::Signal::TERM,
        )
        .expect("it runs");
        let status = child.wait().expect("it ends");
        assert!(status.success(), "{child:?}: {status}");
    }
}

#[test]
fn documented_units_are_valid_and_have_documented_commands() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        return skip("systemd-analyze is not installed");
    };
    assert!(version.status.success(), "{version:?}");
    let home = TestHome::new();
    let user = home.work();
    let bin = user.join(".cargo/bin");
    std::fs::create_dir_all(&bin).expect("a directory");
    std::os::unix::fs::symlink(&home.program, bin.join("adj")).expect("a link");
    let problems = |unit: &Path| {
        let mut check = Command::new("systemd-analyze");
        check
            .args(["verify", "--user", "--man=no"])
            .arg(unit)
            .env("HOME", &user)
            .env("XDG_RUNTIME_DIR", &user);
        let ran = check.output().expect("systemd-analyze starts");
        format!(
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        )
    };
    for name in ["adj-hub.service", "adj-runner.service"] {
        assert_eq!(problems(&documented(name)), "", "{name}");
    }
    let text = |name: &str| std::fs::read_to_string(documented(name)).expect("a unit");
    let wrong = user.join("wrong.service");
    std::fs::write(
        &wrong,
        text("adj-hub.service").replace("KillMode", "KillMod"),
    )
    .expect("written");
    assert!(
        problems(&wrong).contains("KillMod"),
        "a wrong setting is noticed"
    );

    let started = |name: &str| {
        text(name)
            .lines()
            .find_map(|line| {
                line.strip_prefix("ExecStart=%h/.cargo/bin/")
                    .map(str::to_owned)
            })
            .expect("a command")
    };
    assert_eq!(started("adj-hub.service"), "adj serve");
    let join = block("Agents on other machines", "sh")
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("ssh gpu1 "))
        .expect("a command");
    assert_eq!(started("adj-runner.service").replace("%h/", ""), join);
}
