//! A temporary home with a real `adj`, and functions to inspect and to end its processes.

use crate::panics;
pub use crate::processes::pids;
use crate::processes::{self, Mark, Process};
use adjutant_api::view::{
    Call, Cancel, Dispatch, ErrorView, GetHub, GetRun, HubView, ListRuns, RunView, StopHub, codes,
};
use adjutant_core::RunStateKind;
use adjutant_home::config::Home;
use adjutant_net::hub_client::Client;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Timeout of calls that do not wait.
const REPLY_LIMIT: Duration = Duration::from_secs(30);
/// How many lines of the hub's log explain a problem.
const LOG_LINES: usize = 20;

#[derive(Debug)]
pub struct Lab {
    pub adj: PathBuf,
    pub dir: tempfile::TempDir,
    pub home: Home,
    /// Variables of every process that the lab starts.
    pub env: Vec<(String, String)>,
    /// Panics in the standard error of commands, which no file has.
    panics: Mutex<Vec<panics::Panic>>,
}

impl Lab {
    /// Creates a home with this configuration. The agent `bench` is this program.
    pub fn new(adj: &Path, config: &str) -> Result<Self> {
        Self::new_in(&std::env::temp_dir(), adj, config)
    }

    /// The same below a directory.
    pub fn new_in(parent: &Path, adj: &Path, config: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("adj-lab-")
            .tempdir_in(parent)?;
        let home = Home {
            dir: dir.path().join("home"),
        };
        home.ensure()?;
        let ourselves = std::env::current_exe()?;
        let agent = format!(
            "\n[agents.bench]\nharness = \"plain\"\ncommand = [{:?}, \"agent\"]\nprompt = \"stdin\"\n",
            ourselves.display()
        );
        // A loaded host delays and pauses nothing.
        let pressure = "\n[pressure]\nmemory = 0\ncpu = 0\npause = 0\n";
        std::fs::write(
            home.dir.join("config.toml"),
            format!("{config}\n{pressure}{agent}"),
        )?;
        Ok(Self {
            adj: adj.to_path_buf(),
            dir,
            home,
            env: Vec::new(),
            panics: Mutex::default(),
        })
    }

    /// Returns a command that runs `adj` in this home.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.adj);
        command
            .args(args)
            .env_clear()
            .env("ADJ_HOME", &self.home.dir)
            .env("HOME", self.dir.path());
        command
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.env.iter().cloned());
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        Mark::of(&self.home.dir).put_on(&mut command);
        command
    }

    /// Runs `adj`, also if it fails.
    pub fn output(&self, args: &[&str]) -> Result<Output> {
        let output = self.command(args).output()?;
        self.record_panics(args, &output.stderr);
        Ok(output)
    }

    fn record_panics(&self, args: &[&str], stderr: &[u8]) {
        let found = panics::in_text(&format!("adj {args:?}"), &String::from_utf8_lossy(stderr));
        self.panics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(found);
    }

    /// Describes the panics of all processes of this home so far.
    pub fn panics(&self) -> Vec<String> {
        let of_commands = self
            .panics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match panics::in_logs(self.dir.path()) {
            Ok(of_logs) => of_commands
                .iter()
                .chain(&of_logs)
                .map(ToString::to_string)
                .collect(),
            Err(error) => vec![format!("panics cannot be looked for: {error}")],
        }
    }

    /// Runs `adj` and returns its output.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("adj {args:?}: {}: {stderr}", output.status).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Ensures that a hub is running.
    pub fn start_hub(&self) -> Result<()> {
        self.run(&["ps"]).map(drop)
    }

    /// Returns the last lines of the hub's log, to explain a problem.
    pub fn end_of_hub_log(&self) -> String {
        let log =
            std::fs::read_to_string(self.home.hub_log()).unwrap_or_else(|error| error.to_string());
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Returns a client that never starts a hub, because this program is not `adj`.
    pub fn client(&self) -> Client {
        Client::running_hub(&self.home)
    }

    /// Makes a call, and starts another hub whenever one dies.
    pub async fn persist<C: Call>(
        &self,
        client: &Client,
        call: &C,
        key: &str,
    ) -> std::result::Result<C::Reply, ErrorView> {
        let start = Instant::now();
        loop {
            match replied(client, call, key).await {
                Err(error)
                    if error.code == codes::UNREACHABLE
                        && start.elapsed() < Duration::from_secs(60) =>
                {
                    let mut command = self.command(&["ps"]);
                    let started =
                        tokio::task::spawn_blocking(move || command.stdout(Stdio::null()).output())
                            .await;
                    if let Ok(Ok(output)) = &started {
                        self.record_panics(&["ps"], &output.stderr);
                    }
                    if !matches!(started, Ok(Ok(output)) if output.status.success()) {
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
        Dispatch {
            agent: agent.to_string(),
            prompt,
            cwd: self.dir.path().display().to_string(),
            ..Dispatch::default()
        }
    }

    /// Waits until a run has ended.
    pub async fn finished(&self, client: &Client, run: &str, limit: Duration) -> Result<RunView> {
        let start = Instant::now();
        loop {
            let view = client
                .call(&GetRun {
                    run: run.to_string(),
                    ..GetRun::default()
                })
                .await?;
            if view.condition.state == RunStateKind::Finished {
                return Ok(view);
            }
            if start.elapsed() > limit {
                return Err(format!(
                    "{} is {} after {limit:?}",
                    view.identity.name, view.condition.state
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn attempt_dir(&self, run_id: &str, attempt: u32) -> adjutant_api::protocol::AttemptDir {
        adjutant_api::protocol::AttemptDir::new(&self.home.dir, run_id, attempt)
    }

    /// Ends all runs and the hub, and returns the processes that remain a second later.
    pub async fn close(&self) -> Result<Vec<String>> {
        self.start_hub()?;
        let client = self.client();
        let mut runs = BTreeSet::new();
        // List only live runs, because lists have a limit.
        for run in client
            .call(&ListRuns {
                all: false,
                limit: Some(100_000),
                before: None,
            })
            .await?
            .runs
        {
            if run.condition.state != RunStateKind::Finished {
                let cancelled = client
                    .call(&Cancel {
                        run: run.identity.run_id.clone(),
                        reason: None,
                    })
                    .await;
                if let Err(error) = cancelled
                    && error.code != codes::RUN_FINISHED
                {
                    return Err(error.into());
                }
                runs.insert(run.identity.run_id);
            }
        }
        for run in &runs {
            self.finished(&client, run, Duration::from_secs(30)).await?;
        }
        // Wait before stopping the hub, because a supervisor waits for a hub to deliver its last
        // fact.
        let left = self
            .left_after_a_second(|process| !process.contains("__hub"))
            .await;
        let hub = self.hub().await?.pid;
        if self.processes().iter().all(|process| process.pid != hub) {
            return Err(format!("the hub (pid {hub}) was not found among the processes, so its remaining processes are unknown").into());
        }
        client.call(&StopHub {}).await?;
        let hubs = self
            .left_after_a_second(|process| process.contains("__hub"))
            .await;
        Ok(left.into_iter().chain(hubs).collect())
    }

    async fn left_after_a_second(&self, counts: impl Fn(&String) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            let living = self
                .processes()
                .into_iter()
                .map(|process| format!("{}: {}", process.pid, process.line()));
            let left: Vec<String> = living.filter(&counts).collect();
            if left.is_empty() || start.elapsed() > Duration::from_secs(1) {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the processes of this home: all descendants of [`Self::command`], and those that
    /// name the home. Panics if processes cannot be listed.
    pub fn processes(&self) -> Vec<Process> {
        let mut found = Mark::of(&self.home.dir).processes();
        let others = pids().into_iter().filter(|pid| {
            *pid != std::process::id() && found.iter().all(|process| process.pid != *pid)
        });
        let others: Vec<Process> = others
            .filter_map(processes::process)
            .filter(|process| self.is_named_by(process))
            .collect();
        found.extend(others);
        found
    }

    /// Returns whether a process names the home in its arguments, environment or directory, as far
    /// as these are readable.
    fn is_named_by(&self, process: &Process) -> bool {
        let mark = self.dir.path().display().to_string();
        let environment =
            std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let directory =
            std::fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
        process.line().contains(&mark)
            || String::from_utf8_lossy(&environment).contains(&mark)
            || directory.starts_with(self.dir.path())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // After a failure, end the remaining processes by their ids.
        for process in self.processes() {
            processes::kill(process.pid);
        }
    }
}

/// Makes a call with a timeout.
pub async fn replied<C: Call>(
    client: &Client,
    call: &C,
    key: &str,
) -> std::result::Result<C::Reply, ErrorView> {
    match tokio::time::timeout(REPLY_LIMIT, client.call_with_key(call, key)).await {
        Ok(result) => result,
        Err(_) => Err(ErrorView {
            code: "no_reply".to_string(),
            message: format!("{} was not answered in {REPLY_LIMIT:?}", C::NAME),
            hint: None,
        }),
    }
}

/// Returns the proportional set size of a process, in MB.
pub fn pss_mb(pid: u32) -> Result<f64> {
    mapped_mb(pid, &["Pss:"])
}

/// Returns the memory that no other process shares, in MB.
pub fn private_mb(pid: u32) -> Result<f64> {
    mapped_mb(pid, &["Private_Clean:", "Private_Dirty:"])
}

/// Returns the private memory that the process has written, in MB. Only differences of this tell
/// what a use costs: the kernel maps pages of the executable in large parts, depending on its
/// cache, and other processes may share them.
pub fn written_mb(pid: u32) -> Result<f64> {
    mapped_mb(pid, &["Private_Dirty:"])
}

/// Returns the resident memory of a process, in MB.
pub fn rss_mb(pid: u32) -> Result<f64> {
    mapped_mb(pid, &["Rss:"])
}

/// Returns the sum of some counts of the mapped memory of a process, in MB.
fn mapped_mb(pid: u32, names: &[&str]) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let mut kb = 0.0;
    for name in names {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .ok_or_else(|| format!("no line {name}"))?;
        kb += line.trim().trim_end_matches("kB").trim().parse::<f64>()?;
    }
    Ok(kb / 1000.0)
}

/// Returns the processor time of a process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit_once(") ").ok_or("no process name")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// Reads the pid in a lock file.
pub fn lock_pid(path: &Path) -> io::Result<u32> {
    let text = std::fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("{}: {text:?} is not a pid", path.display())))
}

/// Returns the monotonic clock, which all processes share, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
