//! A separate home for each test, with the real binary.

pub use crate::processes::kill;
use crate::processes::{self, Mark, Process};
use crate::skipped;
use adjutant_api::protocol::AttemptDir;
use adjutant_api::view::{Call, ErrorView, ReadEvents};
use adjutant_home::config::Home;
use adjutant_net::hub_client::Client;
use adjutant_os::process::lock::holder_pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Timeout for a condition, on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long a change of a run that is no event of its own may remain unseen.
const SILENT_CHANGE_MS: u64 = 200;

/// How long a process may hold a lock without being found, or exist after releasing it.
const UNSEEN_MAX: Duration = Duration::from_secs(2);

/// A variable with which a hub does not know the load of the machine, so that a loaded host delays
/// and pauses nothing. Other failpoints have the same effect.
pub const UNKNOWN_LOAD: (&str, &str) = ("ADJ_FAILPOINT", "pressure=/dev/null");

/// Returns the path of a certificate or key in the fixtures: an authority, and of it a certificate
/// for `localhost` that is valid (`server`), and one that has expired.
pub fn tls_fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tls")
        .join(name)
}

#[derive(Debug)]
pub struct TestHome {
    dir: tempfile::TempDir,
    pub home: Home,
    /// The binary that its commands, and the hub that they start, are.
    pub program: PathBuf,
    /// The home is not removed after the test, because its file system is discarded.
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
        let value: Value = serde_json::from_str(self.out.trim_end())
            .unwrap_or_else(|error| panic!("{error} in {self:?}"));
        value["data"].clone()
    }
}

impl TestHome {
    pub fn new() -> Self {
        Self::with_config("")
    }

    pub fn with_config(config: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("adj-test-")
            .tempdir()
            .expect("a temporary directory");
        let home = Home {
            dir: dir.path().join("home"),
        };
        Self::at(dir, home, config)
    }

    /// Creates a home at a path of this length.
    pub fn with_path_of(bytes: usize) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("adj-test-")
            .tempdir()
            .expect("a temporary directory");
        let room = bytes - dir.path().as_os_str().len() - 1;
        let home = Home {
            dir: dir.path().join("h".repeat(room)),
        };
        Self::at(dir, home, "")
    }

    /// Creates a home below an existing directory.
    pub fn below(parent: &Path) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("adj-test-")
            .tempdir()
            .expect("a temporary directory");
        let home = Home {
            dir: parent.join("home"),
        };
        let mut made = Self::at(dir, home, "");
        made.detached = true;
        made
    }

    fn at(dir: tempfile::TempDir, home: Home, config: &str) -> Self {
        home.ensure().expect("the home can be made");
        std::fs::create_dir(dir.path().join("work")).expect("a working directory");
        let store = if config.contains("store = ") {
            None
        } else {
            crate::postgres::store_of_this_run()
        };
        std::fs::write(
            home.dir.join("config.toml"),
            store.unwrap_or_default() + config,
        )
        .expect("the configuration can be written");
        Self {
            dir,
            home,
            program: env!("CARGO_BIN_EXE_adj").into(),
            detached: false,
        }
    }

    /// Returns the working directory for agents.
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .env("ADJ_HOME", &self.home.dir)
            .env("HOME", self.dir.path())
            .env("PATH", "/usr/bin:/bin");
        command
            .env(UNKNOWN_LOAD.0, UNKNOWN_LOAD.1)
            .current_dir(self.work())
            .stdin(Stdio::null());
        Mark::of(&self.home.dir).put_on(&mut command);
        command
    }

    pub fn adj(&self, args: &[&str]) -> Ran {
        self.command(args)
            .output()
            .expect("adj can be started")
            .into()
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

    /// Returns the open questions or, with `--all`, all questions.
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
        self.ok(&[
            "run",
            "--detach",
            "--agent",
            agent,
            "--name",
            name,
            &format!("{script}\n"),
        ]);
    }

    pub fn show(&self, run: &str) -> Value {
        self.json(&["show", run])
    }

    pub fn log(&self, run: &str) -> String {
        self.ok(&["logs", run])
    }

    /// Waits until a run is finished and returns it.
    pub fn finished(&self, run: &str) -> Value {
        self.until_run(run, "finished", |view| view["state"] == "finished")
    }

    /// Waits until a run has this status.
    pub fn until_status(&self, run: &str, status: &str) -> Value {
        self.until_run(run, status, |view| view["status"] == status)
    }

    /// Waits until a run is in a state, and returns it. Looks again after each of its events.
    pub fn until_run(&self, run: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        self.until_run_within(PATIENCE, run, what, condition)
    }

    /// The same, for runs that take longer.
    pub fn until_run_within(
        &self,
        patience: Duration,
        run: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let start = Instant::now();
        loop {
            let view = self.show(run);
            if condition(&view) {
                return view;
            }
            assert!(
                start.elapsed() < patience,
                "not within {patience:?}: {run} is {what}\n{}",
                self.story()
            );
            let after = view["cursor"].as_i64().unwrap_or(0);
            let next = ReadEvents {
                after,
                run: Some(run.to_owned()),
                limit: Some(1),
                wait_ms: SILENT_CHANGE_MS,
            };
            if self.call(&next, "").is_err() {
                // No hub runs at the moment. The next look starts one.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Waits until the log contains a text.
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
            assert!(
                start.elapsed() < PATIENCE,
                "not within {PATIENCE:?}: {what}\n{}",
                self.story()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the logs and state to print when a test fails.
    fn story(&self) -> String {
        let read = |path: PathBuf| {
            std::fs::read_to_string(&path)
                .unwrap_or_else(|error| format!("{}: {error}", path.display()))
        };
        let runs = self.adj(&["--json", "ps", "-a"]);
        format!(
            "runs: {}{}\nhub.log: {}\nprocesses: {:#?}",
            runs.out,
            runs.err,
            read(self.home.hub_log()),
            self.processes()
        )
    }

    /// Makes one call of the hub's API as the person.
    pub fn call<C: Call>(&self, call: &C, key: &str) -> Result<C::Reply, ErrorView> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(Client::running_hub(&self.home).call_with_key(call, key))
    }

    pub fn run_id(&self, run: &str) -> String {
        self.show(run)["run_id"]
            .as_str()
            .expect("a run has an id")
            .to_string()
    }

    pub fn attempt_dir(&self, run: &str) -> AttemptDir {
        let view = self.show(run);
        let attempt = view["attempt"].as_u64().expect("a run counts its attempts");
        let attempt = u32::try_from(attempt).expect("few attempts");
        AttemptDir::new(
            &self.home.dir,
            view["run_id"].as_str().expect("a run has an id"),
            attempt,
        )
    }

    pub fn hub_pid(&self) -> u32 {
        self.call(&adjutant_api::view::GetHub {}, "")
            .expect("a hub runs")
            .pid
    }

    /// Returns the processes of this home: those started by [`Self::command`], directly or
    /// indirectly, and those that name the home. Panics if they cannot be seen here.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let living = self.living().unwrap_or_else(|unseen| panic!("{unseen}"));
        living
            .into_iter()
            .map(|process| (process.pid, process.line()))
            .collect()
    }

    fn living(&self) -> Result<Vec<Process>, String> {
        let start = Instant::now();
        loop {
            let mut found = Mark::of(&self.home.dir).processes();
            found.extend(
                self.naming_home()
                    .into_iter()
                    .filter(|one| found.iter().all(|other| one.pid != other.pid))
                    .collect::<Vec<_>>(),
            );
            // The holders of locks are also processes of this home.
            let unseen = self.lock_holders().into_iter().find(|pid| {
                found.iter().all(|process| process.pid != *pid) && Self::is_alive(*pid)
            });
            match unseen {
                None => return Ok(found),
                Some(pid) if start.elapsed() > UNSEEN_MAX => {
                    return Err(format!(
                        "process {pid} holds a lock of the home and was not found: start it by `command`, or put the mark on it"
                    ));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Processes whose arguments, environment or working directory name the home, as far as these
    /// can be read.
    fn naming_home(&self) -> Vec<Process> {
        let marks = [
            self.dir.path().display().to_string(),
            self.home.dir.display().to_string(),
        ];
        let ours = |text: &str| marks.iter().any(|mark| text.contains(mark));
        let names_home = |process: &Process| {
            let environment =
                std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let directory =
                std::fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
            ours(&process.line())
                || ours(&String::from_utf8_lossy(&environment))
                || ours(&directory.to_string_lossy())
        };
        let all = processes::pids()
            .into_iter()
            .filter(|pid| *pid != std::process::id());
        all.filter_map(processes::process)
            .filter(names_home)
            .collect()
    }

    /// Returns the holders of the locks of the hub and of each attempt.
    fn lock_holders(&self) -> Vec<u32> {
        let entries = |dir: &Path| {
            std::fs::read_dir(dir)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
        };
        let attempts = entries(&self.home.runs_dir())
            .flat_map(|run| entries(&run).collect::<Vec<_>>())
            .map(AttemptDir);
        let locks = attempts
            .flat_map(|dir| [dir.guard_lock(), dir.supervisor_lock()])
            .chain([self.home.hub_lock()]);
        // Some tests replace a lock by something else, which has no holder.
        locks
            .filter_map(|lock| {
                holder_pid(lock.parent().expect("a directory"), &lock)
                    .ok()
                    .flatten()
            })
            .filter_map(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
            .collect()
    }

    /// Returns whether a process exists and is not a zombie.
    pub fn is_alive(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Returns the processes of one run: all of this home except those known to belong to the hub,
    /// the test or another run. A process that hides its origin counts for every run.
    pub fn processes_of(&self, run_id: &str) -> Vec<(u32, String)> {
        let living = self.living().unwrap_or_else(|unseen| panic!("{unseen}"));
        let parents = processes::parents();
        let is_of_run = |process: &Process| match self.owner(process.pid, &parents) {
            Owner::Run(id) => id == run_id,
            Owner::Hub | Owner::Test => false,
            Owner::Unknown => Self::is_alive(process.pid),
        };
        living
            .into_iter()
            .filter(is_of_run)
            .map(|process| (process.pid, process.line()))
            .collect()
    }

    fn owner(&self, pid: u32, parents: &BTreeMap<u32, u32>) -> Owner {
        let mut at = pid;
        // Reused process ids could form a cycle.
        for _ in 0..parents.len() {
            if at == std::process::id() {
                return Owner::Test;
            }
            let arguments = processes::process(at)
                .map(|process| process.arguments)
                .unwrap_or_default();
            match arguments.get(1).map(String::as_str) {
                Some("__hub" | "serve" | "runner") => return Owner::Hub,
                Some("__guard" | "__supervise") => {
                    let dir = arguments
                        .get(2)
                        .and_then(|dir| Path::new(dir).strip_prefix(self.home.runs_dir()).ok());
                    if let Some(run) = dir.and_then(|dir| dir.iter().next()) {
                        return Owner::Run(run.to_string_lossy().into_owned());
                    }
                }
                _ => {}
            }
            let Some(parent) = parents.get(&at) else {
                break;
            };
            at = *parent;
        }
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let marked = environment
            .split(|byte| *byte == 0)
            .find_map(|pair| pair.strip_prefix(b"ADJ_RUN="));
        let run = marked.and_then(|value| value.split(|byte| *byte == b'/').next());
        run.map_or(Owner::Unknown, |run| {
            Owner::Run(String::from_utf8_lossy(run).into_owned())
        })
    }
}

/// The origin of a process.
enum Owner {
    Run(String),
    Hub,
    Test,
    Unknown,
}

impl Drop for TestHome {
    fn drop(&mut self) {
        for round in 0..5 {
            let (left, unseen) = match self.living() {
                Ok(left) => (left, None),
                Err(unseen) => (Mark::of(&self.home.dir).processes(), Some(unseen)),
            };
            left.iter().for_each(|process| kill(process.pid));
            self.lock_holders()
                .into_iter()
                .filter(|pid| *pid != std::process::id())
                .for_each(kill);
            if let Some(unseen) = unseen
                && !std::thread::panicking()
            {
                panic!("{unseen}");
            }
            if left.is_empty() {
                return;
            }
            if round == 4 && !std::thread::panicking() {
                eprintln!("cannot be ended: {left:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the process id in a lock file.
pub fn lock_pid(path: &Path) -> u32 {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim()
        .parse()
        .unwrap_or_else(|error| panic!("{}: {text:?}: {error}", path.display()))
}

/// Reports that a test cannot run here. With `ADJ_REQUIRE_ALL` set, that is a failure.
pub fn skip(why: &str) {
    assert!(
        std::env::var_os("ADJ_REQUIRE_ALL").is_none(),
        "cannot be tested here: {why}"
    );
    skipped::note(why);
}

/// Returns whether a test that needs root can run. If not, the test is reported as skipped, which
/// is not a failure: `.ci/run` runs the tests that ask as both users.
pub fn is_root(why: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skipped::note(&format!("{why}, which takes root"));
    }
    is_root
}

/// Counts the tokens of a text with the tokenizer o200k.
pub fn tokens(text: &str) -> u64 {
    static TOKENIZER: std::sync::OnceLock<tiktoken_rs::CoreBPE> = std::sync::OnceLock::new();
    let tokenizer =
        TOKENIZER.get_or_init(|| tiktoken_rs::o200k_base().expect("the tables are in the crate"));
    tokenizer.encode_ordinary(text).len() as u64
}
