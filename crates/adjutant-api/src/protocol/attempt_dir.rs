//! The files of an attempt, and how its worker reaches its supervisor.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Files of one attempt, below `<home>/runs/<run-id>/<attempt>/`, directory 0700.
#[derive(Debug, Clone)]
pub struct AttemptDir(pub PathBuf);

impl AttemptDir {
    /// Returns the directory of an attempt.
    #[must_use]
    pub fn new(home: &Path, run_id: &str, attempt: u32) -> Self {
        Self(home.join("runs").join(run_id).join(attempt.to_string()))
    }

    /// Returns the home that contains it, below which no link is followed.
    #[must_use]
    pub fn home(&self) -> &Path {
        let runs = self
            .0
            .ancestors()
            .find(|dir| dir.file_name().is_some_and(|name| name == "runs"));
        runs.and_then(Path::parent).unwrap_or(&self.0)
    }

    /// The lock (flock) that the supervisor holds until it exits, with its pid.
    #[must_use]
    pub fn supervisor_lock(&self) -> PathBuf {
        self.0.join("supervisor.lock")
    }

    /// The lock (flock) that the guard holds until it exits, with its pid.
    #[must_use]
    pub fn guard_lock(&self) -> PathBuf {
        self.0.join("guard.lock")
    }

    /// The marker, created with `O_EXCL` and filled just before the agent is started. If it is
    /// missing or empty, no agent was started.
    #[must_use]
    pub fn started_marker(&self) -> PathBuf {
        self.0.join("started")
    }

    /// Created by a runner when no process of the attempt is left and the hub has received its end.
    #[must_use]
    pub fn reported(&self) -> PathBuf {
        self.0.join("reported")
    }

    /// Created by a runner when the hub has the attempt's logs, or does not want them.
    #[must_use]
    pub fn logs_sent(&self) -> PathBuf {
        self.0.join("logs-sent")
    }

    /// One [`Fact`](super::Fact) in JSON on each line, numbered from 1 without gaps.
    #[must_use]
    pub fn facts(&self) -> PathBuf {
        self.0.join("facts.jsonl")
    }

    /// The log of the guard and the supervisor themselves.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// The agent's last message, if it is longer than a fact may contain. Written before the last
    /// fact.
    #[must_use]
    pub fn answer(&self) -> PathBuf {
        self.0.join("answer")
    }

    /// The socket on which the supervisor serves its worker.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.0.join("worker.sock")
    }

    /// The directory for the agent's temporary files, if its preset needs one. Removed at the end
    /// of the attempt.
    #[must_use]
    pub fn temporary(&self) -> PathBuf {
        self.0.join("tmp")
    }

    /// The directory that a fenced agent sees as `/tmp` and `/var/tmp`. Removed at the end of the
    /// attempt.
    #[must_use]
    pub fn fence(&self) -> PathBuf {
        self.0.join("fence")
    }

    /// The supervisor's git directory, with its own index.
    #[must_use]
    pub fn git(&self) -> PathBuf {
        self.0.join("git")
    }

    /// The file for `adj mcp --token-file`: a [`WorkerAccess`] in JSON, 0600.
    #[must_use]
    pub fn worker_access(&self) -> PathBuf {
        self.0.join("worker.json")
    }
}

/// How a worker reaches its supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerAccess {
    pub run_id: String,
    pub attempt: u32,
    pub socket: PathBuf,
    /// `http://127.0.0.1:<port>/mcp`.
    pub mcp_url: String,
    pub token: String,
}
