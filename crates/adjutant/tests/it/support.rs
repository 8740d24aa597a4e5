//! A home of its own for each test, and the real binary in it.

use adjutant::client::Client;
use adjutant::config::Home;
use adjutant::link::AttemptDir;
use adjutant::view::{Call, ErrorView};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What any condition is given to become true, on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct TestHome {
    dir: tempfile::TempDir,
    pub home: Home,
    /// Stays behind after the test, because what it is on goes away by itself.
    detached: bool,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// The `data` of a `--json` reply.
    pub fn data(&self) -> Value {
        let value: Value = serde_json::from_str(self.out.trim_end()).unwrap_or_else(|error| panic!("{error} in {self:?}"));
        value["data"].clone()
    }
}

impl TestHome {
    pub fn new() -> Self {
        Self::with_config("")
    }

    pub fn with_config(config: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("adj-test-").tempdir().expect("a temporary directory");
        let home = Home { dir: dir.path().join("home") };
        Self::at(dir, home, config)
    }

    /// With the home at a path of this length.
    pub fn with_path_of(bytes: usize) -> Self {
        let dir = tempfile::Builder::new().prefix("adj-test-").tempdir().expect("a temporary directory");
        let room = bytes - dir.path().as_os_str().len() - 1;
        let home = Home { dir: dir.path().join("h".repeat(room)) };
        Self::at(dir, home, "")
    }

    /// With the home below a directory that exists.
    pub fn below(parent: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("adj-test-").tempdir().expect("a temporary directory");
        let home = Home { dir: parent.join("home") };
        let mut made = Self::at(dir, home, "");
        made.detached = true;
        made
    }

    fn at(dir: tempfile::TempDir, home: Home, config: &str) -> Self {
        home.ensure().expect("the home can be made");
        std::fs::create_dir(dir.path().join("work")).expect("a working directory");
        std::fs::write(home.dir.join("config.toml"), config).expect("the configuration can be written");
        Self { dir, home, detached: false }
    }

    /// A directory for agents to work in.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adj"));
        command.args(args).env_clear().env("ADJ_HOME", &self.home.dir).env("HOME", self.dir.path()).env("PATH", "/usr/bin:/bin");
        command.current_dir(self.work()).stdin(Stdio::null());
        command
    }

    pub fn adj(&self, args: &[&str]) -> Ran {
        self.command(args).output().expect("adj can be started").into()
    }

    /// Runs `adj` and expects success.
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.adj(args);
        assert_eq!(ran.code, 0, "adj {args:?}: {ran:?}");
        ran.out
    }

    /// Runs `adj --json` and returns the data of a success.
    pub fn json(&self, args: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(args);
        let ran = self.adj(&all);
        assert_eq!(ran.code, 0, "adj {all:?}: {ran:?}");
        ran.data()
    }

    /// The questions that are open (or, with `--all`, were).
    pub fn inbox(&self, args: &[&str]) -> Value {
        let mut all = vec!["inbox"];
        all.extend(args);
        self.json(&all)
    }

    /// Starts a run of the echo agent.
    pub fn start(&self, name: &str, script: &str) {
        self.start_agent("echo", name, script);
    }

    pub fn start_agent(&self, agent: &str, name: &str, script: &str) {
        self.ok(&["run", "--detach", "--agent", agent, "--name", name, &format!("{script}\n")]);
    }

    pub fn show(&self, run: &str) -> Value {
        self.json(&["show", run])
    }

    pub fn log(&self, run: &str) -> String {
        self.ok(&["logs", run])
    }

    /// Waits until a run is finished and returns it.
    pub fn finished(&self, run: &str) -> Value {
        self.until(&format!("{run} is finished"), || {
            let view = self.show(run);
            (view["state"] == "finished").then_some(view)
        })
    }

    /// Waits until a run has this status.
    pub fn until_status(&self, run: &str, status: &str) -> Value {
        self.until(&format!("{run} is {status}"), || {
            let view = self.show(run);
            (view["status"] == status).then_some(view)
        })
    }

    /// Waits until the log holds a text.
    pub fn until_log(&self, run: &str, text: &str) -> String {
        self.until(&format!("{text:?} is in the log of {run}"), || {
            let log = self.log(run);
            log.contains(text).then_some(log)
        })
    }

    /// Waits until a condition holds.
    pub fn until<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = condition() {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}\n{}", self.story());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a failed test has to say.
    fn story(&self) -> String {
        let read = |path: PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", path.display()));
        let runs = self.adj(&["--json", "ps", "-a"]);
        format!("runs: {}{}\nhub.log: {}\nprocesses: {:#?}", runs.out, runs.err, read(self.home.hub_log()), self.processes())
    }

    /// Makes one call of the hub's API as the person.
    pub fn call<C: Call>(&self, call: &C, key: &str) -> Result<C::Reply, ErrorView> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(Client::running_hub(&self.home).call_with_key(call, key))
    }

    pub fn run_id(&self, run: &str) -> String {
        self.show(run)["run_id"].as_str().expect("a run has an id").to_string()
    }

    pub fn attempt_dir(&self, run: &str) -> AttemptDir {
        let view = self.show(run);
        let attempt = view["attempt"].as_u64().expect("a run counts its attempts");
        let attempt = u32::try_from(attempt).expect("few attempts");
        AttemptDir::new(&self.home.dir, view["run_id"].as_str().expect("a run has an id"), attempt)
    }

    pub fn hub_pid(&self) -> u32 {
        self.call(&adjutant::view::GetHub {}, "").expect("a hub runs").pid
    }

    /// Processes of this home, by their arguments, environment or working directory.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let marks = [self.dir.path().display().to_string(), self.home.dir.display().to_string()];
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("there is a /proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let read = |file: &str| std::fs::read(entry.path().join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let (arguments, environment) = (read("cmdline").unwrap_or_default(), read("environ").unwrap_or_default());
            let directory = std::fs::read_link(entry.path().join("cwd")).map(|path| path.display().to_string()).unwrap_or_default();
            let ours = |text: &String| marks.iter().any(|mark| text.contains(mark.as_str()));
            if pid != std::process::id() && !arguments.is_empty() && [&arguments, &environment, &directory].into_iter().any(ours) {
                found.push((pid, arguments.replace('\0', " ")));
            }
        }
        found
    }

    /// Whether a process is there (and no zombie).
    pub fn is_alive(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Processes of one run: by their arguments or environment.
    pub fn processes_of(&self, run_id: &str) -> Vec<(u32, String)> {
        let has = |pid: u32| {
            ["cmdline", "environ"]
                .iter()
                .any(|file| std::fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(run_id)))
        };
        let all = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| has(*pid) && Self::is_alive(*pid))
            .map(|pid: u32| (pid, String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")))
            .collect()
    }
}

impl Drop for TestHome {
    fn drop(&mut self) {
        for round in 0..5 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            if round == 4 && !std::thread::panicking() {
                eprintln!("cannot be ended: {left:?}");
            }
            left.iter().for_each(|(pid, _)| kill(*pid));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// SIGKILL.
pub fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("kill {pid:?}: {error}"),
    }
}

/// The pid that a lock file holds.
pub fn lock_pid(path: &Path) -> u32 {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().parse().unwrap_or_else(|error| panic!("{}: {text:?}: {error}", path.display()))
}

/// Says that a test cannot be made here; with `ADJ_REQUIRE_ALL` set, that is a failure.
pub fn skip(why: &str) {
    assert!(std::env::var_os("ADJ_REQUIRE_ALL").is_none(), "cannot be tested here: {why}");
    // Past the test harness, which keeps what a passing test prints.
    writeln!(std::io::stderr(), "SKIPPED: {why}").expect("standard error is open");
}
