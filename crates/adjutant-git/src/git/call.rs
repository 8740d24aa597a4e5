//! Calls of the git program.

use super::GitError;
use crate::process::tool::{self, Output, Tool};
use rustix::fs::Mode;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default timeout of a call.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Default maximum size of a call's output, in bytes.
const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Settings of every call. They override all configuration files.
const SETTINGS: [(&str, &str); 13] = [
    ("core.fsmonitor", ""),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.untrackedCache", "false"),
    ("core.alternateRefsCommand", ""),
    ("core.logAllRefUpdates", "false"),
    ("core.quotePath", "false"),
    ("core.safecrlf", "false"),
    ("core.fsyncMethod", "batch"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
];

/// Default settings, which a call can override. Writes are synced, so that an acknowledged snapshot
/// survives a power loss. Hub and supervisor may change the same ref of a run at the same time;
/// git's default lock timeout is 100 ms.
const DEFAULTS: [(&str, &str); 3] = [
    ("core.fsync", "all"),
    ("core.filesRefLockTimeout", "10000"),
    ("core.packedRefsTimeout", "10000"),
];

/// The git program, and the environment in which it reads the user's own configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Git {
    program: PathBuf,
    path: String,
    /// `HOME` and `XDG_CONFIG_HOME` of the user.
    user: Vec<(OsString, OsString)>,
}

impl Git {
    /// Finds git in the absolute directories of an environment's `PATH`. Skips those in the
    /// repository around `cwd`, because an agent could have put a program there.
    ///
    /// # Errors
    /// [`GitError::Missing`].
    pub fn find<'a>(
        env: impl IntoIterator<Item = (&'a String, &'a String)>,
        cwd: &Path,
    ) -> Result<Self, GitError> {
        let (mut path, mut user) = (String::new(), Vec::new());
        for (name, value) in env {
            match name.as_str() {
                "PATH" => path.clone_from(value),
                "HOME" | "XDG_CONFIG_HOME" => user.push((name.into(), value.into())),
                _ => {}
            }
        }
        let is_program = |path: &PathBuf| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        let cwd = cwd.canonicalize().map_err(GitError::file(cwd))?;
        let theirs = nearest_repository(&cwd).unwrap_or(&cwd);
        let is_outside = |dir: &PathBuf| theirs == Path::new("/") || !dir.starts_with(theirs);
        let dirs = path
            .split(':')
            .filter(|dir| dir.starts_with('/'))
            .filter_map(|dir| Path::new(dir).canonicalize().ok());
        let program = dirs
            .filter(is_outside)
            .map(|dir| dir.join("git"))
            .find(is_program);
        Ok(Self {
            program: program.ok_or(GitError::Missing)?,
            path,
            user,
        })
    }

    /// Returns a directory from a variable of the user's environment.
    pub(super) fn user_dir(&self, name: &str) -> Option<PathBuf> {
        self.user
            .iter()
            .find(|(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.into())
    }

    /// Builds a call.
    pub(super) fn call<'a>(&'a self, cwd: &'a Path, args: &[&str]) -> Call<'a> {
        Call {
            git: self,
            cwd,
            args: args.iter().map(Into::into).collect(),
            env: Vec::new(),
            settings: Vec::new(),
            input: Vec::new(),
            input_file: None,
            output_file: None,
            output_bytes_max: OUTPUT_BYTES_MAX,
            is_for_user: false,
            limit: CALL_MAX,
            umask: None,
        }
    }
}

/// One call of git.
#[derive(Debug)]
pub(super) struct Call<'a> {
    git: &'a Git,
    cwd: &'a Path,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    settings: Vec<(String, String)>,
    input: Vec<u8>,
    input_file: Option<File>,
    output_file: Option<File>,
    output_bytes_max: usize,
    is_for_user: bool,
    limit: Duration,
    umask: Option<Mode>,
}

impl Call<'_> {
    pub(super) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable, and replaces an earlier value. With two entries, git would see the first.
    pub(super) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.retain(|(set, _)| set != name);
        self.env.push((name.into(), value.into()));
        self
    }

    pub(super) fn settings(mut self, settings: &[(String, String)]) -> Self {
        self.settings.extend_from_slice(settings);
        self
    }

    pub(super) fn input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// Writes the index without syncing and without a checksum, for an index that is rebuilt when
    /// it is damaged.
    pub(super) fn disposable_index(self) -> Self {
        let settings = [
            ("core.fsync", "objects,derived-metadata,reference,-index"),
            ("index.skipHash", "true"),
        ];
        self.settings(&settings.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    /// Sets a file as standard input.
    pub(super) fn input_file(mut self, file: File) -> Self {
        self.input_file = Some(file);
        self
    }

    /// Sets a file as standard output.
    pub(super) fn output_file(mut self, file: File) -> Self {
        self.output_file = Some(file);
        self
    }

    pub(super) fn output_bytes_max(mut self, max: usize) -> Self {
        self.output_bytes_max = max;
        self
    }

    /// Sets the timeout.
    pub(super) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the umask for new files, if it differs from that of this process.
    pub(super) fn umask(mut self, umask: Option<Mode>) -> Self {
        self.umask = umask;
        self
    }

    /// Also reads the user's own configuration.
    pub(super) fn for_user(mut self) -> Self {
        self.is_for_user = true;
        self
    }

    /// Runs the call to its end. Any exit code is a result.
    pub(super) async fn run(self) -> Result<Output, GitError> {
        let Self {
            git,
            cwd,
            args,
            env: own,
            settings,
            input,
            input_file,
            output_file,
            output_bytes_max,
            is_for_user,
            limit,
            umask,
        } = self;
        let command = name_of(&args);
        let mut env: Vec<(OsString, OsString)> = [
            ("PATH", git.path.as_str()),
            ("LC_ALL", "C"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            // Overrides `protocol.<name>.allow` of a repository. No protocol has this name.
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec();
        if is_for_user {
            env.extend(git.user.iter().cloned());
        } else {
            let none = [
                ("HOME", "/nonexistent"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ];
            env.extend(none.map(|(name, value)| (name.into(), value.into())));
        }
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        // The last value is effective.
        let settings: Vec<(String, String)> = DEFAULTS
            .iter()
            .map(owned)
            .chain(settings)
            .chain(SETTINGS.iter().map(owned))
            .collect();
        env.push(("GIT_CONFIG_COUNT".into(), settings.len().to_string().into()));
        for (n, (name, value)) in settings.into_iter().enumerate() {
            env.push((format!("GIT_CONFIG_KEY_{n}").into(), name.into()));
            env.push((format!("GIT_CONFIG_VALUE_{n}").into(), value.into()));
        }
        env.extend(own);
        let args = std::iter::once("--no-pager".into()).chain(args).collect();
        let tool = Tool {
            program: &git.program,
            args,
            env,
            cwd,
            input,
            input_file,
            output_file,
            limit,
            output_bytes_max,
            umask,
        };
        tool::run(tool).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::TimedOut => GitError::Slow { command },
            _ => GitError::Failed {
                command,
                why: error.to_string(),
            },
        })
    }

    /// Runs the call to its end. An exit code other than 0 is an error.
    pub(super) async fn output(self) -> Result<Vec<u8>, GitError> {
        let command = name_of(&self.args);
        let ran = self.run().await?;
        match ran.exit_code {
            Some(0) if ran.is_cut => Err(GitError::Failed {
                command,
                why: "its output is too long".to_owned(),
            }),
            Some(0) => Ok(ran.output),
            _ => Err(GitError::Failed {
                command,
                why: error_text(&ran),
            }),
        }
    }

    /// Runs the call to its end and returns its output without the final line break.
    pub(super) async fn line(self) -> Result<String, GitError> {
        let output = self.output().await?;
        Ok(String::from_utf8_lossy(&output).trim_end().to_owned())
    }
}

/// Returns the nearest ancestor of a directory, or the directory itself, that contains a git
/// directory.
pub fn nearest_repository(dir: &Path) -> Option<&Path> {
    dir.ancestors()
        .find(|dir| dir.join(".git").symlink_metadata().is_ok())
}

fn name_of(args: &[OsString]) -> String {
    args.first()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns git's error message in one line.
pub(super) fn error_text(ran: &Output) -> String {
    let said: Vec<&str> = ran
        .errors
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("hint:"))
        .collect();
    match (said.is_empty(), ran.exit_code) {
        (false, _) => said.join("; "),
        (true, Some(code)) => format!("exit code {code}"),
        (true, None) => "a signal ended it".to_owned(),
    }
}
