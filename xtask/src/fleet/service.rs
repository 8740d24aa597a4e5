//! A hub or a runner: a process in the foreground, as a service manager starts it.

use super::clock::Clock;
use super::namespace::Namespace;
use crate::lab::{Lab, Result};
use rustix::process::Pid;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a process may take to load its libraries.
const START_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Service {
    pub lab: Arc<Lab>,
    args: Vec<String>,
    process: Option<Child>,
    log: PathBuf,
}

impl Service {
    /// It logs in the directory of its home.
    pub fn new(lab: Lab, args: &[&str]) -> Self {
        let log = lab.dir.path().join("service.log");
        Self {
            lab: Arc::new(lab),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            process: None,
            log,
        }
    }

    /// The same with another file for its log, for example because a fault can fill the disk of its
    /// home.
    pub fn logging_to(mut self, log: PathBuf) -> Self {
        self.log = log;
        self
    }

    /// Starts the process in a namespace (`None`: that of this program), unless it runs.
    pub fn ensure(&mut self, machine: Option<&Namespace>) -> Result<()> {
        if self.is_running()? {
            return Ok(());
        }
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = self.lab.command(&args);
        command.stdout(Stdio::null()).stderr(log);
        let started = match machine {
            Some(machine) => machine.inside(|| command.spawn()),
            None => command.spawn(),
        };
        self.process = Some(started?);
        Ok(())
    }

    pub fn is_running(&mut self) -> Result<bool> {
        match &mut self.process {
            Some(process) => Ok(process.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// Returns the process. `None`: it was not started.
    pub fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(Pid::from_child)
    }

    /// Shows that the process sees its own clock, soon after it was started.
    pub fn check_clock(&self, clock: &Clock) -> Result<()> {
        let began = Instant::now();
        while !self
            .pid()
            .is_some_and(|pid| clock.is_seen_by(pid.as_raw_pid().unsigned_abs()))
        {
            if began.elapsed() > START_LIMIT {
                return Err(format!(
                    "adj {} does not see its clock: {}",
                    self.args[0],
                    self.log()
                )
                .into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns what all its processes have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills the process. Returns whether it was running.
    pub fn kill(&mut self) -> Result<bool> {
        let is_running = self.is_running()?;
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(is_running)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("adj {} cannot be killed: {error}", self.args[0]);
        }
    }
}
