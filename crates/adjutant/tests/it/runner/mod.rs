//! Runners: attempts of a hub on another machine, which is another home here.

mod access;
mod deploy;
mod fence;
mod full_disk;
mod kept_logs;
mod kills;
mod launch;
mod launch_examples;
mod lease;
mod logs;
mod placement;
mod removals;
mod repositories;
mod runs;
mod shared;
mod two_machines;
mod unsent;
mod versions;

use crate::support::{TestHome, kill, tls_fixture};
use adjutant_api::protocol::AttemptDir;
use adjutant_api::view::GetHub;
use serde_json::Value;
use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A hub with a pool for runners, and the home of a runner.
struct Pair {
    hub: TestHome,
    there: TestHome,
    url: String,
    runner: Option<Child>,
}

impl Pair {
    /// Starts both, with TLS between them. `lease`: of the runner's attempts.
    fn new(lease: &str) -> Self {
        let mut pair = Self::with_tls(lease);
        pair.start_runner();
        pair
    }

    /// A hub with a certificate.
    fn with_tls(lease: &str) -> Self {
        Self::of_hub(lease, "", true)
    }

    fn without_runner(lease: &str) -> Self {
        Self::with_settings(lease, "")
    }

    /// As [`Self::without_runner`], with more settings.
    fn with_settings(lease: &str, settings: &str) -> Self {
        Self::of_hub(lease, settings, false)
    }

    fn of_hub(lease: &str, settings: &str, has_tls: bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port")
            .port();
        let config = format!(
            "{settings}listen = \"127.0.0.1:{port}\"\nrunner_lease = \"{lease}\"\n[pools.gpu]\nslots = 4\nrunners = true\n"
        );
        let files = format!(
            "[tls]\ncert = {:?}\nkey = \"server.key\"\n",
            tls_fixture("server.pem")
        );
        let hub = TestHome::with_config(&if has_tls { config + &files } else { config });
        let private: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        if has_tls {
            let key = hub.home.dir.join("server.key");
            std::fs::copy(tls_fixture("server.key"), &key).expect("copied");
            std::fs::set_permissions(&key, private.clone()).expect("a private file");
        }
        let url = if has_tls {
            format!("https://localhost:{port}")
        } else {
            format!("http://127.0.0.1:{port}")
        };
        let pair = Self {
            hub,
            there: TestHome::new(),
            url,
            runner: None,
        };
        let token = pair.hub.json(&["token", "new", "gpu1", "--role", "runner"]);
        let token = token["token"].as_str().expect("a token").to_owned();
        std::fs::write(pair.token_file(), token).expect("a token file");
        std::fs::set_permissions(pair.token_file(), private).expect("a private file");
        pair
    }

    fn token_file(&self) -> PathBuf {
        self.there.work().join("token")
    }

    fn log_file(&self) -> PathBuf {
        self.there.work().join("runner.log")
    }

    /// Returns the options of a runner with which it trusts the hub.
    fn trust(&self) -> Vec<String> {
        let authority = tls_fixture("authority.pem").display().to_string();
        if self.url.starts_with("https") {
            vec!["--ca".to_owned(), authority]
        } else {
            Vec::new()
        }
    }

    fn runner_command(&self) -> std::process::Command {
        let token = self.token_file().display().to_string();
        let mut command = self.there.command(&[
            "runner",
            "--join",
            &self.url,
            "--token-file",
            &token,
            "--pool",
            "gpu",
            "--slots",
            "2",
        ]);
        command.args(self.trust());
        command
    }

    /// Starts the runner and waits until it has joined.
    fn start_runner(&mut self) {
        self.start_runner_with(|_| {});
    }

    /// As [`Self::start_runner`], with a changed command.
    fn start_runner_with(&mut self, change: impl FnOnce(&mut std::process::Command)) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("a log");
        let joined = self.runner_log().matches("for pool gpu").count();
        let mut command = self.runner_command();
        change(&mut command);
        self.runner = Some(
            command
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("a runner"),
        );
        self.until("the runner has joined", || {
            (self.runner_log().matches("for pool gpu").count() > joined).then_some(())
        });
    }

    fn runner_log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Waits until a condition holds. A failure prints the runner's log, too.
    fn until<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> T {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.hub.until(what, condition)
        }));
        found.unwrap_or_else(|failed| {
            eprintln!("runner.log: {}", self.runner_log());
            std::panic::resume_unwind(failed)
        })
    }

    fn until_status(&self, run: &str, status: &str) -> Value {
        self.until(&format!("{run} is {status}"), || {
            let view = self.hub.show(run);
            (view["status"] == status).then_some(view)
        })
    }

    fn runner_pid(&self) -> u32 {
        self.runner.as_ref().expect("a runner").id()
    }

    fn signal_runner(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.runner_pid())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .expect("a pid");
        rustix::process::kill_process(pid, signal).expect("the runner lives");
    }

    fn kill_runner(&mut self) {
        kill(self.runner_pid());
        self.runner
            .take()
            .expect("a runner")
            .wait()
            .expect("it ends");
    }

    fn kill_hub(&self) {
        let pid = self.hub.hub_pid();
        kill(pid);
        self.until("the hub is dead", || {
            (!TestHome::is_alive(pid)).then_some(())
        });
    }

    fn revive_hub(&self) {
        self.hub.ok(&["ps"]);
        assert!(self.hub.call(&GetHub {}, "").is_ok());
    }

    fn start(&self, name: &str, script: &str) {
        self.hub.ok(&[
            "run",
            "--detach",
            "--agent",
            "echo",
            "--pool",
            "gpu",
            "--name",
            name,
            &format!("{script}\n"),
        ]);
    }

    /// Returns the directory of an attempt at the runner.
    fn dir_there(&self, run: &str, attempt: u32) -> AttemptDir {
        AttemptDir::new(&self.there.home.dir, &self.hub.run_id(run), attempt)
    }

    /// Returns the log of the agent at the runner.
    fn log_there(&self, run: &str, attempt: u32) -> String {
        let path =
            adjutant_home::logs::log_path(&self.there.home.dir, &self.hub.run_id(run), attempt);
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Returns how often an agent began, by the journal that its script writes first.
    fn begun(&self, journal: &str) -> usize {
        std::fs::read_to_string(self.there.work().join(journal))
            .unwrap_or_default()
            .lines()
            .count()
    }

    fn journal(&self, name: &str) -> String {
        self.there.work().join(name).display().to_string()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(mut runner) = self.runner.take() {
            kill(runner.id());
            if let Err(error) = runner.wait() {
                eprintln!("the runner cannot be reaped: {error}");
            }
        }
    }
}
