//! Errors of the use cases: one table maps them to codes, HTTP statuses and hints.

mod denied;
mod git;

use crate::config::ConfigError;
use crate::git::GitError;
use crate::peer::PeerError;
use crate::store::StoreError;
use crate::view::{ErrorView, codes};
use adjutant_core::{Denied, Isolation};
use denied::{code_of, hint_of};
use git::of_git;

/// Why a use case failed.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("no agent {name:?}{}", suggested.as_ref().map_or_else(String::new, |name| format!("; did you mean {name}?")))]
    UnknownAgent {
        name: String,
        suggested: Option<String>,
        installed: Vec<String>,
    },
    #[error("no agent given, and no default_agent is configured")]
    NoAgentGiven { installed: Vec<String> },
    #[error("{program} of agent {agent} was not found on PATH")]
    ProgramNotFound { agent: String, program: String },
    #[error("{program} of agent {agent} is not executable")]
    ProgramNotExecutable { agent: String, program: String },
    #[error("{agent} does not support {profile}: {why}")]
    UnsupportedProfile {
        agent: String,
        profile: &'static str,
        why: String,
        supported: Vec<&'static str>,
    },
    #[error("the fence cannot be enforced: {why}")]
    NoFence { why: String },
    /// The isolation that the configuration requires is not possible.
    #[error("{error} (the configuration says isolation = \"{}\")", .isolation.word())]
    NoWorkspace {
        isolation: Isolation,
        error: GitError,
    },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("the call to {name} failed: {error}")]
    Peer { name: String, error: PeerError },
    #[error("the log of {run} is on the runner {runner}, {}", .problem.text())]
    LogOnRunner {
        run: String,
        runner: String,
        file: String,
        problem: LogProblem,
        is_shared: bool,
    },
    #[error("the log of {run} is in the log store, which cannot be read: {problem}")]
    LogStore { run: String, problem: String },
    #[error("{0}")]
    Io(String),
    /// An error whose hint names the run that the caller gave.
    #[error("{error}")]
    OfRun { run: String, error: Box<OpError> },
}

/// Why a log on a runner cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogProblem {
    NotConnected,
    NoAnswer,
    /// So many calls read logs on this runner, which is the limit.
    TooManyReads(usize),
}

impl LogProblem {
    fn text(self) -> String {
        match self {
            Self::NotConnected => "which is not connected".to_owned(),
            Self::NoAnswer => "which does not answer".to_owned(),
            Self::TooManyReads(limit) => {
                format!("of which at most {limit} calls can read logs at a time")
            }
        }
    }
}

impl OpError {
    /// Returns the refusal of a call. `None`: something failed.
    #[must_use]
    pub fn denied(&self) -> Option<&Denied> {
        match self {
            Self::Store(StoreError::Denied(denied)) => Some(denied),
            Self::OfRun { error, .. } => error.denied(),
            _ => None,
        }
    }
}

impl From<Denied> for OpError {
    fn from(denied: Denied) -> Self {
        Self::Store(StoreError::Denied(denied))
    }
}

impl OpError {
    /// Names the run in the hint, which can then be copied.
    #[must_use]
    pub fn of_run(self, run: &str) -> Self {
        Self::OfRun {
            run: run.to_owned(),
            error: Box::new(self),
        }
    }

    /// Returns the error as every interface shows it.
    #[must_use]
    pub fn view(&self) -> ErrorView {
        ErrorView {
            code: self.code().to_owned(),
            message: self.to_string(),
            hint: self.hint(),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => of_store(error).0,
            Self::Config(_) => codes::INVALID,
            Self::UnknownAgent { .. }
            | Self::NoAgentGiven { .. }
            | Self::ProgramNotFound { .. } => codes::AGENT_NOT_FOUND,
            Self::ProgramNotExecutable { .. } => codes::AGENT_NOT_EXECUTABLE,
            Self::UnsupportedProfile { .. } => codes::UNSUPPORTED_PROFILE,
            Self::NoFence { .. } => codes::NO_FENCE,
            Self::NoWorkspace { error, .. } | Self::Git(error) => of_git(error).0,
            Self::LogOnRunner {
                problem: LogProblem::TooManyReads(_),
                ..
            } => codes::LIMIT,
            Self::Peer { .. } | Self::LogOnRunner { .. } | Self::LogStore { .. } => {
                codes::UNREACHABLE
            }
            Self::Io(_) => codes::INTERNAL,
            Self::OfRun { error, .. } => error.code(),
        }
    }

    /// Returns what the caller can do about it.
    fn hint(&self) -> Option<String> {
        let hint = |text: &str| Some(text.to_owned());
        match self {
            Self::Store(error) => of_store(error).1,
            Self::Config(error) => Some(format!(
                "fix the configuration file, then try again ({})",
                kind_of(error)
            )),
            Self::UnknownAgent { installed, .. } | Self::NoAgentGiven { installed } => {
                let installed = installed.join(", ");
                Some(format!("installed: {installed}; see: adj agents"))
            }
            Self::ProgramNotFound { .. } => {
                hint("install it, or set `command` for this agent; see: adj agents")
            }
            Self::ProgramNotExecutable { program, .. } => {
                Some(format!("check its permissions: ls -l {program}"))
            }
            Self::UnsupportedProfile { supported, .. } if supported.is_empty() => {
                hint("supported profiles: none; set permissions")
            }
            Self::UnsupportedProfile { supported, .. } => {
                let supported = supported.join(" or ");
                Some(format!("supported profiles: {supported}; set permissions"))
            }
            Self::NoFence { .. } => {
                hint("see adj doctor; fence = \"best-effort\" starts the run without it")
            }
            Self::NoWorkspace { .. } => hint("to work in the directory itself: --isolation none"),
            Self::Git(error) => of_git(error).1,
            Self::Peer { name, .. } => Some(format!("see: adj peer show {name}")),
            Self::LogOnRunner {
                problem: LogProblem::TooManyReads(_),
                ..
            } => {
                hint("end other commands and pages that follow logs of this runner, then try again")
            }
            Self::LogOnRunner {
                runner,
                file,
                is_shared,
                ..
            } => Some(place_of_log(runner, file, *is_shared)),
            Self::LogStore { .. } => {
                hint("check log_store and its credentials, then try again; see: adj doctor")
            }
            Self::Io(_) => None,
            Self::OfRun { run, error } => error
                .hint()
                .map(|hint| hint.replace(" RUN", &format!(" {run}"))),
        }
    }

    /// Returns the HTTP status for the error's code.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        http_status(self.code())
    }
}

/// Returns how to get a log that is on the machine of a runner.
fn place_of_log(runner: &str, file: &str, is_shared: bool) -> String {
    let elsewhere = if is_shared {
        "; if the attempt has ended, the hub that was the leader then may have it at the same path in its home"
    } else {
        ""
    };
    format!(
        "start adj runner on the machine of {runner}, then try again; the file in its home: logs/{file}{elsewhere}"
    )
}

/// Returns the HTTP status for an error code.
#[must_use]
pub fn http_status(code: &str) -> u16 {
    match code {
        codes::NOT_FOUND => 404,
        codes::NOT_ALLOWED => 403,
        codes::USE_SUPERVISOR => 421,
        codes::AMBIGUOUS
        | codes::INVALID
        | codes::AGENT_NOT_FOUND
        | codes::AGENT_NOT_EXECUTABLE
        | codes::UNSUPPORTED_PROFILE
        | codes::NO_FENCE => 422,
        codes::UNFITTING => 422,
        codes::CONFLICT
        | codes::USED
        | codes::ALREADY_ANSWERED
        | codes::RUN_FINISHED
        | codes::KEY_REUSED
        | codes::LIMIT => 409,
        codes::EXPIRED | codes::WITHDRAWN => 410,
        codes::STORAGE_FULL => 507,
        codes::STORAGE | codes::UNREACHABLE | codes::CLOSING => 503,
        _ => 500,
    }
}

fn kind_of(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Io { .. } | ConfigError::Shortage { .. } => "it cannot be read",
        ConfigError::Syntax { .. } => "it has an error",
    }
}

fn of_store(error: &StoreError) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match error {
        StoreError::Denied(denied) => (code_of(denied), hint_of(denied)),
        StoreError::Full => (
            codes::STORAGE_FULL,
            hint("nothing was changed; free space on the disk of the home and try again"),
        ),
        StoreError::Unknown(_) | StoreError::Lost(_) => (
            codes::STORAGE,
            hint("repeat the call with the same key: it takes effect once"),
        ),
        StoreError::Sql(_) | StoreError::Corrupt(_) => (codes::INTERNAL, hint("run: adj doctor")),
        StoreError::Interrupted => (
            codes::LIMIT,
            hint("narrow the search: more words, a chat, a time"),
        ),
        StoreError::Unreachable(_) => (
            codes::UNREACHABLE,
            hint(
                "check that the PostgreSQL server of the store runs; the hub tries again with the next call",
            ),
        ),
        StoreError::Newer { .. }
        | StoreError::Unreleased { .. }
        | StoreError::NotAStore { .. }
        | StoreError::Unusable(_) => (codes::UNREACHABLE, None),
        StoreError::Closed => (
            codes::CLOSING,
            hint("repeat the call with the same key: the next hub answers it"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_the_run_that_the_caller_gave() {
        let denied = || OpError::from(Denied::not_found("chat", "7"));
        let error = OpError::Git(GitError::NoWorkspace("/w/r1".into()));
        let plain = error.view();
        let named = error.of_run("r1").view();
        assert_eq!(plain.hint.as_deref(), Some("its work so far: adj diff RUN"));
        assert_eq!(named.hint.as_deref(), Some("its work so far: adj diff r1"));
        assert_eq!((&plain.code, &plain.message), (&named.code, &named.message));
        assert_eq!(denied().of_run("r1").view().hint, denied().view().hint);
    }

    #[test]
    fn log_that_too_many_read_is_a_limit_and_another_is_unreachable() {
        let error = |problem| OpError::LogOnRunner {
            run: "r1".to_owned(),
            runner: "big".to_owned(),
            file: "x.log".to_owned(),
            problem,
            is_shared: false,
        };
        assert_eq!(error(LogProblem::TooManyReads(3)).http_status(), 409);
        let away = error(LogProblem::NotConnected).view();
        assert_eq!(http_status(&away.code), 503);
        assert!(away.hint.is_some_and(|hint| hint.ends_with("logs/x.log")));
    }
}
