//! The documented launchers: over a real SSH server, and with recording stand-ins for `kubectl`,
//! `nomad` and `aws`.

use super::launch::{Launching, list};
use crate::support::{TestHome, is_root, kill, skip};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SSHD: &str = "/usr/sbin/sshd";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns the documented settings of a pool.
fn documented(pool: &str) -> toml::Table {
    let page = std::fs::read_to_string(docs().join("runners.md")).expect("the page");
    let blocks = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("a block"));
    let tables = blocks.map(|block| block.parse::<toml::Table>().expect("a block is TOML"));
    let pools = tables.filter_map(|table| table.get("pools")?.get(pool)?.as_table().cloned());
    pools
        .into_iter()
        .find(|pool| pool.contains_key("launch"))
        .expect("the pool is documented")
}

fn argv_of(pool: &toml::Table) -> Vec<String> {
    let argv = pool["launch"].as_array().expect("a list");
    argv.iter()
        .map(|arg| arg.as_str().expect("a text").to_owned())
        .collect()
}

/// An SSH server of this test, on loopback.
struct SshServer {
    server: Child,
    port: u16,
    dir: PathBuf,
}

impl SshServer {
    /// Starts one. `None`: it cannot run here.
    fn start(dir: PathBuf) -> Option<Self> {
        if !Path::new(SSHD).exists() {
            skip("no SSH server is installed (apt-get install openssh-server)");
            return None;
        }
        if !is_root("sshd starts commands with the login shell of its user") {
            return None;
        }
        // Root's sshd refuses to start without this directory, which the service of the system
        // makes.
        std::fs::create_dir_all("/run/sshd").expect("the directory of the server");
        std::fs::create_dir(&dir).expect("a directory");
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(key))
                .status()
                .expect("ssh-keygen starts");
            assert!(made.success());
        }
        std::fs::copy(dir.join("user.pub"), dir.join("authorized_keys")).expect("copied");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port")
            .port();
        let at = dir.display();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        );
        std::fs::write(dir.join("sshd_config"), config).expect("written");
        let host = std::fs::read_to_string(dir.join("host.pub")).expect("a key");
        std::fs::write(
            dir.join("known_hosts"),
            format!("[127.0.0.1]:{port} {host}"),
        )
        .expect("written");
        let log = std::fs::File::create(dir.join("log")).expect("a log");
        let mut command = Command::new(SSHD);
        command
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Some(Self {
            server: command.spawn().expect("sshd starts"),
            port,
            dir,
        })
    }

    /// Returns the options of `ssh` that lead to this server, instead of a name.
    fn options(&self) -> Vec<String> {
        let at = self.dir.display();
        let options = [
            format!("IdentityFile={at}/user"),
            format!("UserKnownHostsFile={at}/known_hosts"),
            format!("Port={}", self.port),
        ];
        options
            .into_iter()
            .flat_map(|option| ["-o".to_owned(), option])
            .collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        kill(self.server.id());
        if let Err(error) = self.server.wait() {
            eprintln!("sshd cannot be reaped: {error}");
        }
    }
}

#[test]
fn runner_is_launched_over_ssh_and_ends_when_idle() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(server) = SshServer::start(dir.path().join("ssh")) else {
        return;
    };
    let argv = |there: &TestHome| {
        // The documented command, with the address of this server, the program of this test, and a
        // shorter time.
        let mut argv = argv_of(&documented("gpu"));
        let host = argv
            .iter()
            .position(|arg| arg == "gpu1.example.org")
            .expect("a host");
        argv[host] = "127.0.0.1".to_owned();
        let adj = argv
            .iter_mut()
            .find(|arg| *arg == "adj")
            .expect("the program");
        *adj = format!(
            "env ADJ_FAILPOINT=pressure=/dev/null ADJ_HOME={} {}",
            there.home.dir.display(),
            env!("CARGO_BIN_EXE_adj")
        );
        let idle = argv.iter_mut().find(|arg| *arg == "10m").expect("the time");
        *idle = "1s".to_owned();
        argv.splice(1..1, server.options());
        argv
    };
    let pair = Launching::new(argv, "");
    pair.start("one", "ask \"Go on?\"\ndone yes");
    let shown = pair.hub.until("the run starts over ssh", || {
        let shown = pair.hub.show("one");
        let problem = shown["queue"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("the last launch failed"));
        assert!(!problem, "{shown}\n{}", server.log());
        (shown["status"] == "waiting_parent_reply").then_some(shown)
    });
    assert_eq!(shown["attempt"], 1);
    let processes = pair.there.processes();
    assert!(
        processes
            .iter()
            .any(|(_, line)| line.contains("--token-file -")),
        "{processes:#?}"
    );
    assert!(
        !processes.iter().any(|(_, line)| line.contains("adj_")),
        "the token is in no argument: {processes:#?}"
    );
    pair.hub.ok(&["reply", "one", "yes"]);
    assert_eq!(pair.hub.finished("one")["outcome"], "succeeded");
    pair.until_no_token();
    pair.hub.until("ssh has ended", || {
        std::fs::read_to_string(pair.hub.home.hub_log())
            .ok()?
            .contains("the command of a launch has ended")
            .then_some(())
    });
}

/// A hub with a documented pool whose program records how it is called, and how that was.
struct Recorded {
    hub: TestHome,
    argv: Vec<String>,
    input: String,
    url: String,
}

fn record(pool: &str) -> Recorded {
    let mut settings = documented(pool);
    if let Some(file) = settings.get_mut("launch_input") {
        // The file itself, which is beside the page.
        *file = docs()
            .join(file.as_str().expect("a path"))
            .display()
            .to_string()
            .into();
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a free port")
        .port();
    let text = toml::to_string(
        &json!({ "listen": format!("127.0.0.1:{port}"), "pools": { pool: settings } }),
    )
    .expect("a configuration");
    let hub = TestHome::with_config(&text);
    let bin = hub.work().join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    let program = bin.join(&argv_of(&settings)[0]);
    let at = hub.work().display().to_string();
    std::fs::write(&program, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > {at}/argv\ncat /dev/stdin > {at}/input\nmv {at}/input {at}/recorded\n"))
        .expect("written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("a program");
    let mut start = hub.command(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--pool",
        pool,
        "--name",
        "one",
        "done yes\n",
    ]);
    start.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let started = crate::support::Ran::from(start.output().expect("adj starts"));
    assert_eq!(started.code, 0, "{started:?}\n{text}");
    let input = hub.until("the program was called", || {
        std::fs::read_to_string(hub.work().join("recorded")).ok()
    });
    let argv = std::fs::read_to_string(hub.work().join("argv"))
        .expect("arguments")
        .lines()
        .map(str::to_owned)
        .collect();
    Recorded {
        hub,
        argv,
        input,
        url: format!("http://127.0.0.1:{port}"),
    }
}

impl Recorded {
    fn token(&self) -> String {
        let at = self.input.find("adj_").expect("a token");
        let is_of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        self.input[at..]
            .chars()
            .take_while(|c| is_of_token(*c))
            .collect()
    }

    /// Starts a runner with the recorded token and address, as the program would. The run must
    /// succeed there.
    fn works(&self, pool: &str) {
        assert!(
            !self.argv.iter().any(|arg| arg.contains("adj_")),
            "{:?}",
            self.argv
        );
        for left in ["{name}", "{pool}", "{url}", "{token}"] {
            assert!(
                !self.input.contains(left) && !self.argv.iter().any(|arg| arg.contains(left)),
                "{left}: {}",
                self.input
            );
        }
        assert!(self.input.contains(&self.url), "{}", self.input);
        let there = TestHome::new();
        let mut command = there.command(&[
            "runner",
            "--join",
            &self.url,
            "--token-file",
            "-",
            "--pool",
            pool,
            "--idle-exit",
            "1s",
        ]);
        let mut runner = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a runner");
        std::io::Write::write_all(
            &mut runner.stdin.take().expect("a pipe"),
            self.token().as_bytes(),
        )
        .expect("written");
        assert_eq!(self.hub.finished("one")["outcome"], "succeeded");
        assert!(
            runner.wait().expect("it ends").success(),
            "an idle runner ends with status 0"
        );
    }
}

#[test]
fn documented_job_is_valid_and_starts_a_runner() {
    let recorded = record("cluster");
    assert_eq!(
        recorded.argv,
        ["--namespace", "agents", "replace", "--force", "-f", "-"]
    );
    recorded.works("cluster");
    let Some(python) = std::env::var_os("ADJ_SDK_PYTHON") else {
        return skip(
            "ADJ_SDK_PYTHON does not name a Python with kubernetes-validate (.ci/sdk --install DIR)",
        );
    };
    let manifest = recorded.hub.work().join("manifest.yaml");
    let check = |text: &str| {
        std::fs::write(&manifest, text).expect("written");
        let ran = Command::new(&python)
            .args(["-m", "kubernetes_validate", "--strict"])
            .arg(&manifest)
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
    let (is_valid, said) = check(&recorded.input);
    assert!(is_valid, "{said}");
    let (is_valid, said) = check(&recorded.input.replace("backoffLimit:", "backoffLimits:"));
    assert!(!is_valid, "the schema is strict: {said}");
}

#[test]
fn documented_nomad_job_starts_a_runner() {
    let recorded = record("nomad");
    assert_eq!(recorded.argv, ["job", "run", "-detach", "-"]);
    assert!(
        recorded.input.contains("job \"launched-nomad-1\" {"),
        "{}",
        recorded.input
    );
    recorded.works("nomad");
}

#[test]
fn documented_instance_starts_a_runner() {
    let recorded = record("cloud");
    let tags = "ResourceType=instance,Tags=[{Key=Name,Value=launched-cloud-1}]";
    assert!(
        recorded.argv.iter().any(|arg| arg == tags),
        "{:?}",
        recorded.argv
    );
    assert_eq!(
        recorded.argv[recorded.argv.len() - 2..],
        ["--user-data", "file:///dev/stdin"]
    );
    recorded.works("cloud");
}

#[test]
fn documented_settings_are_accepted() {
    for pool in ["gpu", "cluster", "nomad", "cloud"] {
        let settings: Value = serde_json::to_value(documented(pool)).expect("a value");
        let launch = settings["launch"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>();
        let home = TestHome::with_config(&format!(
            "[pools.{pool}]\nrunners = true\nlaunch = {}\n",
            list(&launch)
        ));
        assert_eq!(home.adj(&["config", "show"]).code, 0, "{pool}");
    }
}
