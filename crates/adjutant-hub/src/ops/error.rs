//! Errors of the use cases: one table maps them to codes, HTTP statuses and hints.

use crate::config::ConfigError;
use crate::git::{GitError, Refusal};
use crate::peer::PeerError;
use crate::store::StoreError;
use crate::view::{ErrorView, codes};
use adjutant_core::{Denied, Isolation, RequestKind, RequestNo};

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
        let (code, hint) = match self {
            Self::Store(error) => of_store(error),
            Self::Config(error) => (
                codes::INVALID,
                Some(format!(
                    "fix the configuration file, then try again ({})",
                    kind_of(error)
                )),
            ),
            Self::UnknownAgent { installed, .. } | Self::NoAgentGiven { installed } => (
                codes::AGENT_NOT_FOUND,
                Some(format!(
                    "installed: {}; see: adj agents",
                    installed.join(", ")
                )),
            ),
            Self::ProgramNotFound { .. } => (
                codes::AGENT_NOT_FOUND,
                Some("install it, or set `command` for this agent; see: adj agents".to_owned()),
            ),
            Self::ProgramNotExecutable { program, .. } => (
                codes::AGENT_NOT_EXECUTABLE,
                Some(format!("check its permissions: ls -l {program}")),
            ),
            Self::UnsupportedProfile { supported, .. } => {
                let supported = if supported.is_empty() {
                    "none".to_owned()
                } else {
                    supported.join(" or ")
                };
                (
                    codes::UNSUPPORTED_PROFILE,
                    Some(format!("supported profiles: {supported}; set permissions")),
                )
            }
            Self::NoFence { .. } => (
                codes::NO_FENCE,
                Some(
                    "see adj doctor; fence = \"best-effort\" starts the run without it".to_owned(),
                ),
            ),
            Self::NoWorkspace { error, .. } => (
                of_git(error).0,
                Some("to work in the directory itself: --isolation none".to_owned()),
            ),
            Self::Git(error) => of_git(error),
            Self::Peer { name, .. } => (
                codes::UNREACHABLE,
                Some(format!("see: adj peer show {name}")),
            ),
            Self::LogOnRunner {
                problem: LogProblem::TooManyReads(_),
                ..
            } => (
                codes::LIMIT,
                Some(
                    "end other commands and pages that follow logs of this runner, then try again"
                        .to_owned(),
                ),
            ),
            Self::LogOnRunner {
                runner,
                file,
                is_shared,
                ..
            } => {
                let elsewhere = if *is_shared {
                    "; if the attempt has ended, the hub that was the leader then may have it at the same path in its home"
                } else {
                    ""
                };
                let hint = format!(
                    "start adj runner on the machine of {runner}, then try again; the file in its home: logs/{file}{elsewhere}"
                );
                (codes::UNREACHABLE, Some(hint))
            }
            Self::LogStore { .. } => (
                codes::UNREACHABLE,
                Some(
                    "check log_store and its credentials, then try again; see: adj doctor"
                        .to_owned(),
                ),
            ),
            Self::Io(_) => (codes::INTERNAL, None),
            Self::OfRun { run, error } => {
                let ErrorView {
                    code,
                    message,
                    hint,
                } = error.view();
                return ErrorView {
                    code,
                    message,
                    hint: hint.map(|hint| hint.replace(" RUN", &format!(" {run}"))),
                };
            }
        };
        ErrorView {
            code: code.to_owned(),
            message: self.to_string(),
            hint,
        }
    }

    /// Returns the HTTP status for the error's code.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        http_status(&self.view().code)
    }
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

fn of_git(error: &GitError) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match error {
        GitError::Missing => (codes::INVALID, hint("install git 2.38 or newer")),
        GitError::Bare(_) => (
            codes::INVALID,
            hint("use a clone of it that has a work tree"),
        ),
        GitError::NoWorkTree { dir, work_trees } => {
            let used = work_trees.first().map_or_else(
                || "git worktree add".to_owned(),
                |tree| format!("adj run -C {}", tree.display()),
            );
            (
                codes::INVALID,
                Some(format!(
                    "work in one of them, for example: {used} (in {}: git worktree list)",
                    dir.display()
                )),
            )
        }
        GitError::NoWorkspace(_) => (codes::CONFLICT, hint("its work so far: adj diff RUN")),
        GitError::RepositoryGone { run, .. } => {
            let hint = format!(
                "move it back, then repeat the command; to remove the workspace without a snapshot: adj discard {run} --force"
            );
            (codes::CONFLICT, Some(hint))
        }
        GitError::DirectoryGone(_) => (
            codes::CONFLICT,
            hint(
                "move it back, then repeat the command: its repository has the snapshots of the run",
            ),
        ),
        GitError::NoCommit(_) => (
            codes::INVALID,
            hint("a workspace is made from a commit: git commit"),
        ),
        GitError::NoBase { .. } => (codes::CONFLICT, hint("start the run again: adj retry")),
        GitError::NotARepository(_) => (
            codes::INVALID,
            hint("snapshots and workspaces need a git repository: git init"),
        ),
        GitError::ForeignGitDirectory(_) => (
            codes::CONFLICT,
            hint("copy its commits yourself; adj discard --force keeps only its files"),
        ),
        GitError::UnreadableCommits { .. } => (
            codes::CONFLICT,
            hint(
                "nothing was changed; only its files: adj merge RUN --squash, or adj discard RUN --force",
            ),
        ),
        GitError::NotCopied { .. } => (
            codes::CONFLICT,
            hint("correct the file, or copy in [workspaces] of the configuration"),
        ),
        GitError::TooLarge { .. } | GitError::NotAccepted(_) => (codes::CONFLICT, None),
        GitError::Unusable { .. } => (codes::CONFLICT, None),
        GitError::Failed { .. } | GitError::Slow { .. } => (
            codes::CONFLICT,
            hint("nothing was changed; see also: adj doctor"),
        ),
        GitError::Refused(refusal) => of_refusal(refusal),
        GitError::PartlyApplied { .. } => (
            codes::STORAGE,
            hint("do not commit yet: remove the cause, then repeat the command"),
        ),
        GitError::File { .. } => (
            codes::STORAGE,
            hint("repeat the command once the cause is fixed: it continues where it stopped"),
        ),
    }
}

fn of_refusal(refusal: &Refusal) -> (&'static str, Option<String>) {
    let (code, hint) = match refusal {
        Refusal::Dirty(_) => (
            codes::CONFLICT,
            "nothing was changed; commit or stash them first: git stash",
        ),
        Refusal::InTheWay(_) => (codes::CONFLICT, "nothing was changed; move them away first"),
        Refusal::Filtered(_) => (
            codes::CONFLICT,
            "nothing was changed; make a branch and merge it with git: adj merge RUN --branch NAME",
        ),
        Refusal::Copies(_) => (
            codes::CONFLICT,
            "nothing was changed; merge its files without its commits: adj merge RUN --squash",
        ),
        Refusal::Sparse(_) => (
            codes::CONFLICT,
            "nothing was changed; widen it first: git sparse-checkout add DIR",
        ),
        Refusal::Submodules(_) | Refusal::Names(_) => (
            codes::CONFLICT,
            "nothing was changed; make a branch and merge it with git: adj merge RUN --branch NAME",
        ),
        Refusal::SubmoduleCommits(_) => (
            codes::CONFLICT,
            "nothing was changed; check them out or fetch in them (git submodule update --init, git -C PATH fetch), then merge again",
        ),
        Refusal::UnderWay(_) => (
            codes::CONFLICT,
            "nothing was changed; finish or abort it first: git status",
        ),
        Refusal::Locked(_) => (
            codes::CONFLICT,
            "nothing was changed; wait for it to end, or remove the file if none runs",
        ),
        Refusal::Changed(_) => (codes::CONFLICT, "nothing was changed; repeat the command"),
        Refusal::LeftAlone(_) => (
            codes::CONFLICT,
            "the files that you saved are as you saved them, all others as before; commit or stash yours, then repeat the command",
        ),
        Refusal::SplitIndex => (
            codes::CONFLICT,
            "nothing was changed; join it first: git update-index --no-split-index",
        ),
        Refusal::NoIdentity(_) => (
            codes::INVALID,
            "set them: git config --global user.name NAME, and user.email ADDRESS",
        ),
        Refusal::BranchName(_) => (codes::INVALID, "choose another name"),
        Refusal::BranchTaken(_) => (codes::CONFLICT, "nothing was changed; choose another name"),
        Refusal::ChangedSince(_) | Refusal::ChangedBeside { .. } => (
            codes::CONFLICT,
            "nothing was changed; to restore them nevertheless: --force, which can be undone",
        ),
        Refusal::OtherBase(_) => (
            codes::CONFLICT,
            "nothing was changed; only the run's own changes: adj merge RUN --rebase (its commits) or --squash (one commit)",
        ),
        Refusal::CrissCross => (
            codes::CONFLICT,
            "nothing was changed; make a branch and merge it with git: adj merge RUN --branch NAME, then git merge NAME",
        ),
        Refusal::Markers(_) => (
            codes::CONFLICT,
            "nothing was changed; resolve them: adj open RUN, or adj comment RUN FILE:LINE TEXT; as they are: adj merge RUN --branch NAME",
        ),
        Refusal::MergeCommit | Refusal::TooManyCommits(_) => (
            codes::CONFLICT,
            "nothing was changed; merge it in another way: adj merge RUN --squash",
        ),
    };
    (code, Some(hint.to_owned()))
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
        StoreError::Denied(denied) => of_denied(denied),
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
        StoreError::Newer { .. } | StoreError::NotAStore { .. } | StoreError::Unusable(_) => {
            (codes::UNREACHABLE, None)
        }
        StoreError::Closed => (
            codes::CLOSING,
            hint("repeat the call with the same key: the next hub answers it"),
        ),
    }
}

/// Returns what to do about a run whose state does not allow a call.
fn hint_for_state(run: &str, state: &str, wanted: &str) -> Option<String> {
    match (state, wanted) {
        ("stopped", "stopped") => Some(format!(
            "resume it: adj resume {run}, or cancel it: adj cancel {run}"
        )),
        ("stopping", _) => Some(format!("repeat this when it has stopped: adj wait {run}")),
        ("queued" | "starting" | "running", "resumed") => Some(format!(
            "it needs no resume; to tell it something: adj send {run} TEXT"
        )),
        _ if wanted.ends_with("cancel it first") => Some(format!("cancel it: adj cancel {run}")),
        _ => None,
    }
}

fn of_denied(denied: &Denied) -> (&'static str, Option<String>) {
    let hint = |text: &str| Some(text.to_owned());
    match denied {
        Denied::NotFound { what: "run", given } if RequestNo::parse(given).is_ok() => (
            codes::NOT_FOUND,
            Some(format!(
                "{given} is the number of a request: adj next {given}"
            )),
        ),
        Denied::Misspelled { .. } | Denied::NotFound { what: "run", .. } => {
            (codes::NOT_FOUND, hint("list runs: adj ps -a"))
        }
        Denied::NotFound { what: "chat", .. } => {
            (codes::NOT_FOUND, hint("list chats: adj chat ls"))
        }
        Denied::NotFound {
            what: "participant",
            ..
        } => (
            codes::NOT_FOUND,
            hint("name an agent (adj agents), one of your runs, or person"),
        ),
        Denied::NotFound {
            what: "message", ..
        } => (codes::NOT_FOUND, hint("read the chat: adj chat show")),
        Denied::NotFound { what: "grant", .. } => {
            (codes::NOT_FOUND, hint("list grants: adj grants --all"))
        }
        Denied::NotFound { what: "peer", .. } => {
            (codes::NOT_FOUND, hint("list other hubs: adj peer list"))
        }
        Denied::NotFound {
            what: "chat of this peer",
            ..
        } => (
            codes::NOT_FOUND,
            hint("list the chats that it shares: adj peer show"),
        ),
        Denied::NotFound {
            what: "followed chat",
            ..
        } => (
            codes::NOT_FOUND,
            hint("list the chats of other hubs: adj peer show"),
        ),
        Denied::NotFound { what: "token", .. } => {
            (codes::NOT_FOUND, hint("list tokens: adj token list"))
        }
        Denied::NotFound {
            what: "question" | "request",
            ..
        } => (codes::NOT_FOUND, hint("list open requests: adj inbox")),
        Denied::NotFound { .. } => (codes::NOT_FOUND, None),
        Denied::Lost { .. } => (codes::NOT_FOUND, hint("list open requests: adj inbox")),
        Denied::NoOpenRequest { .. } => (codes::NOT_FOUND, hint("list open requests: adj inbox")),
        Denied::Ambiguous { .. } => (codes::AMBIGUOUS, hint("name one of them in full")),
        Denied::OneOf { why, .. } => of_denied(why),
        Denied::NotAllowed { .. } => (codes::NOT_ALLOWED, None),
        Denied::AnsweredBy(_) => (codes::ALREADY_ANSWERED, hint("nothing was changed")),
        Denied::Expired => (codes::EXPIRED, hint("the run continued without an answer")),
        Denied::Withdrawn => (codes::WITHDRAWN, hint("its run has ended")),
        Denied::Unfitting {
            kind: RequestKind::Question,
            ..
        } => (codes::UNFITTING, hint("answer it: adj reply")),
        Denied::Unfitting {
            kind: RequestKind::Approval | RequestKind::Delegation,
            ..
        } => (codes::UNFITTING, hint("decide it: adj approve or adj deny")),
        Denied::Used => (
            codes::USED,
            hint("the run has already used it; pause or cancel the run to stop it"),
        ),
        Denied::NotAsShown => (
            codes::CONFLICT,
            hint("read it again, then decide: adj inbox"),
        ),
        Denied::OwnQuestion => (
            codes::NOT_ALLOWED,
            hint("only the parent or a person can answer"),
        ),
        Denied::RunFinished { run, .. } => (
            codes::RUN_FINISHED,
            Some(format!("to run its task again: adj retry {run}")),
        ),
        Denied::WrongState { run, state, wanted } => {
            (codes::CONFLICT, hint_for_state(run, state, wanted))
        }
        Denied::KeyReused => (
            codes::KEY_REUSED,
            hint("use a new key for a different call"),
        ),
        Denied::Limit { .. } => (codes::LIMIT, None),
        Denied::Budget {
            of: Some((run, kind)),
            ..
        } => (
            codes::LIMIT,
            Some(format!(
                "see: adj budget {run}; raise it: adj budget {run} --add {}",
                kind.example()
            )),
        ),
        Denied::Budget { of: None, .. } => (codes::LIMIT, None),
        Denied::DirectoryInUse { run } => (
            codes::CONFLICT,
            Some(format!("adj wait {run}   or   another directory: -C DIR")),
        ),
        Denied::Conflict { .. } => (codes::CONFLICT, None),
        Denied::Invalid { .. } => (codes::INVALID, None),
    }
}
