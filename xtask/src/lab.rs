//! A home of its own with a real `adj`, and everything that is needed to look at and to end what
//! runs in it.

pub use crate::processes::pids;
use crate::processes::{self, Mark, Process};
use adjutant::client::Client;
use adjutant::config::Home;
use adjutant::view::{Call, Cancel, Dispatch, ErrorView, GetHub, GetRun, HubView, ListRuns, RunView, StopHub, codes};
use adjutant_core::RunStateKind;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A call that only looks or writes has to be answered by then.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Lab {
    pub adj: PathBuf,
    pub dir: tempfile::TempDir,
    pub home: Home,
    /// Variables for every process that is started here.
    pub env: Vec<(String, String)>,
}

impl Lab {
    /// Makes a home with this configuration. The agent `bench` is this program.
    pub fn new(adj: &Path, config: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adj-lab-").tempdir()?;
        let home = Home { dir: dir.path().join("home") };
        home.ensure()?;
        let ourselves = std::env::current_exe()?;
        let agent = format!("\n[agents.bench]\nharness = \"plain\"\ncommand = [{:?}, \"agent\"]\nprompt = \"stdin\"\n", ourselves.display());
        std::fs::write(home.dir.join("config.toml"), format!("{config}\n{agent}"))?;
        Ok(Self { adj: adj.to_path_buf(), dir, home, env: Vec::new() })
    }

    /// `adj` in this home.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.adj);
        command.args(args).env_clear().env("ADJ_HOME", &self.home.dir).env("HOME", self.dir.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).envs(self.env.iter().cloned());
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        Mark::of(&self.home.dir).put_on(&mut command);
        command
    }

    /// Runs `adj` and returns what it printed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("adj {args:?}: {}: {said}", output.status).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes sure that a hub runs.
    pub fn start_hub(&self) -> Result<()> {
        self.run(&["ps"]).map(drop)
    }

    /// A client that starts nothing (this program is no `adj`).
    pub fn client(&self) -> Client {
        Client::running_hub(&self.home)
    }

    /// Makes a call, starting hubs for as long as they die in between.
    pub async fn persist<C: Call>(&self, client: &Client, call: &C, key: &str) -> std::result::Result<C::Reply, ErrorView> {
        let start = Instant::now();
        loop {
            match replied(client, call, key).await {
                Err(error) if error.code == codes::UNREACHABLE && start.elapsed() < Duration::from_secs(60) => {
                    let mut command = self.command(&["ps"]);
                    let started = tokio::task::spawn_blocking(move || command.stdout(Stdio::null()).stderr(Stdio::null()).status()).await;
                    if !matches!(started, Ok(Ok(status)) if status.success()) {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                other => return other,
            }
        }
    }

    pub async fn hub(&self) -> Result<HubView> {
        Ok(self.client().call(&GetHub {}).await?)
    }

    pub async fn dispatch(&self, client: &Client, agent: &str, script: &str) -> Result<RunView> {
        let prompt = format!("{script}\n");
        Ok(client.call(&self.order(agent, prompt)).await?)
    }

    pub fn order(&self, agent: &str, prompt: String) -> Dispatch {
        Dispatch { agent: agent.to_string(), prompt, cwd: self.dir.path().display().to_string(), ..Dispatch::default() }
    }

    /// Waits until a run has ended.
    pub async fn finished(&self, client: &Client, run: &str, limit: Duration) -> Result<RunView> {
        let start = Instant::now();
        loop {
            let view = client.call(&GetRun { run: run.to_string(), ..GetRun::default() }).await?;
            if view.state == RunStateKind::Finished {
                return Ok(view);
            }
            if start.elapsed() > limit {
                return Err(format!("{} is {} after {limit:?}", view.name, view.state).into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn attempt_dir(&self, run_id: &str, attempt: u32) -> adjutant::link::AttemptDir {
        adjutant::link::AttemptDir::new(&self.home.dir, run_id, attempt)
    }

    /// Ends every run and the hub, and returns what is still there a second later.
    pub async fn close(&self) -> Result<Vec<String>> {
        self.start_hub()?;
        let client = self.client();
        let mut runs = BTreeSet::new();
        // Live ones only: a list has a limit, and ended runs would fill it.
        for run in client.call(&ListRuns { all: false, limit: Some(100_000) }).await?.runs {
            if run.state != RunStateKind::Finished {
                let cancelled = client.call(&Cancel { run: run.run_id.clone(), reason: None }).await;
                if let Err(error) = cancelled
                    && error.code != codes::RUN_FINISHED
                {
                    return Err(error.into());
                }
                runs.insert(run.run_id);
            }
        }
        for run in &runs {
            self.finished(&client, run, Duration::from_secs(30)).await?;
        }
        // Before the hub is asked to stop: a supervisor whose last word finds no hub waits for one.
        let left = self.left_after_a_second(|process| !process.contains("__hub")).await;
        let hub = self.hub().await?.pid;
        if self.processes().iter().all(|process| process.pid != hub) {
            return Err(format!("the hub (pid {hub}) was not found among the processes, so its remaining processes are unknown").into());
        }
        client.call(&StopHub {}).await?;
        let hubs = self.left_after_a_second(|process| process.contains("__hub")).await;
        Ok(left.into_iter().chain(hubs).collect())
    }

    async fn left_after_a_second(&self, counts: impl Fn(&String) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            let living = self.processes().into_iter().map(|process| format!("{}: {}", process.pid, process.line()));
            let left: Vec<String> = living.filter(&counts).collect();
            if left.is_empty() || start.elapsed() > Duration::from_secs(1) {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the processes of this home: everything that was started by [`Self::command`], directly or not, and what names the
    /// home. Panics where these cannot be seen.
    pub fn processes(&self) -> Vec<Process> {
        let mut found = Mark::of(&self.home.dir).processes();
        let others = pids().into_iter().filter(|pid| *pid != std::process::id() && found.iter().all(|process| process.pid != *pid));
        let others: Vec<Process> = others.filter_map(processes::process).filter(|process| self.is_named_by(process)).collect();
        found.extend(others);
        found
    }

    /// Whether a process names the home in its arguments, environment or directory, as far as these can be read.
    fn is_named_by(&self, process: &Process) -> bool {
        let mark = self.dir.path().display().to_string();
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let directory = std::fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
        process.line().contains(&mark) || String::from_utf8_lossy(&environment).contains(&mark) || directory.starts_with(self.dir.path())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Processes that a failure left: they were started here, and are ended here, by their ids.
        for process in self.processes() {
            processes::kill(process.pid);
        }
    }
}

/// Makes a call that has to be answered in time.
pub async fn replied<C: Call>(client: &Client, call: &C, key: &str) -> std::result::Result<C::Reply, ErrorView> {
    match tokio::time::timeout(REPLY_LIMIT, client.call_with_key(call, key)).await {
        Ok(result) => result,
        Err(_) => Err(ErrorView { code: "no_reply".to_string(), message: format!("{} was not answered in {REPLY_LIMIT:?}", C::NAME), hint: None }),
    }
}

/// Proportional memory of a process, in MB.
pub fn pss_mb(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss line")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1000.0)
}

/// Processor time that a process has used.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit_once(") ").ok_or("no process name")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// The pid that a lock file holds.
pub fn lock_pid(path: &Path) -> io::Result<u32> {
    let text = std::fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{}: {text:?} is no pid", path.display())))
}

/// The clock that all processes share, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
