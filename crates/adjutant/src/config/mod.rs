//! The only reader of environment and configuration files.
//!
//! A home is one directory that holds everything: store, socket, locks, runs, logs. The
//! configuration is one TOML file, read anew for each dispatch, so that a change needs no restart.

mod chats;
mod edit;
mod env_pass;
mod problems;
mod webhooks;

use adjutant_core::words;
pub use chats::{Chats, Template, Window};
pub use edit::{AddError, NewAgent, add_agent};
pub use env_pass::check as check_env_pass;
pub use webhooks::Webhook;

use crate::files;
use crate::preset::{self, Driver, Preset};
use adjutant_core::limits;
use adjutant_core::rate_limit::Patience;
use adjutant_core::tree::TreeLimits;
use adjutant_core::{AgentName, AgentSpec, HarnessKind, Permissions, PromptVia};
use problems::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Variables of the dispatcher that an agent gets; everything else stays behind.
const AGENT_VARIABLES: [&str; 10] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM"];
/// Variables that a hub is started with.
const HUB_VARIABLES: [&str; 13] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "ADJ_LOG",
    "ADJ_FAILPOINT",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    // Where the certificates of authorities are, if not where they usually are: for webhooks.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

#[expect(clippy::disallowed_methods, reason = "this module is the one place that reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[expect(clippy::disallowed_methods, reason = "this module is the one place that reads the environment")]
fn variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

/// Returns one variable as text, for the interfaces' own switches (colour, agent mode, markers).
#[must_use]
pub fn text_variable(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Returns what an agent dispatched from here is to get of this process' environment, the variables
/// of all vendors and of all declared agents included: the hub gives each agent those of its own.
#[must_use]
pub fn dispatch_env() -> BTreeMap<String, String> {
    let declared = Home::from_env().map(|home| env_pass::declared(&Config::path(&home))).unwrap_or_default();
    env_where(|name| is_agent_variable(name) || preset::is_vendors_variable(name) || preset::passes(&declared, name))
}

/// What the name of a variable that holds a credential is made of.
const CREDENTIAL_WORDS: [&str; 8] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "COOKIE"];

/// Tells whether a variable may hold a credential: a vendor's, or one whose name says so. It is kept apart from
/// everything else that is known of a run, and no longer than the run needs it.
#[must_use]
pub fn is_credential(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    CREDENTIAL_WORDS.iter().any(|word| upper.contains(word)) || preset::is_vendors_variable(name)
}

/// Tells whether a variable of a dispatcher is kept as a credential is: all but those that every agent gets.
#[must_use]
pub fn is_kept_apart(name: &str) -> bool {
    is_credential(name) || !is_agent_variable(name)
}

/// Returns what an agent with these patterns, and without a preset, gets of this process' environment.
#[must_use]
pub fn env_for(patterns: &[String]) -> BTreeMap<String, String> {
    env_where(|name| is_agent_variable(name) || preset::passes(patterns, name))
}

/// Tells whether an agent gets a variable of its dispatcher: everybody's, and those that it or its preset names.
#[must_use]
pub fn is_for_agent(name: &str, agent: &AgentSpec, preset: Option<&Preset>) -> bool {
    is_agent_variable(name) || preset.is_some_and(|preset| preset.passes(name)) || preset::passes(&agent.env_pass, name)
}

/// Returns what every agent needs of this process' environment.
#[must_use]
pub fn base_env() -> BTreeMap<String, String> {
    env_where(is_agent_variable)
}

fn is_agent_variable(name: &str) -> bool {
    AGENT_VARIABLES.contains(&name) || name.starts_with("LC_")
}

fn env_where(is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    variables().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).filter(|(name, _)| is_wanted(name)).collect()
}

/// Returns the environment that a hub is started with.
#[must_use]
pub fn hub_env() -> Vec<(OsString, OsString)> {
    HUB_VARIABLES.iter().filter_map(|name| Some((OsString::from(name), variable(name)?))).collect()
}

/// Returns the environment that a guard and a supervisor are started with: nothing that an agent
/// could be told by, since the order says everything.
#[must_use]
pub fn guard_env() -> Vec<(OsString, OsString)> {
    ["ADJ_LOG", "ADJ_FAILPOINT"].iter().filter_map(|name| Some((OsString::from(name), variable(name)?))).collect()
}

/// Returns this process' whole environment, for a process that only passes it on.
#[must_use]
pub fn whole_env() -> Vec<(OsString, OsString)> {
    variables().collect()
}

/// Where everything lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Absolute.
    pub dir: PathBuf,
}

/// Why there is no usable home.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("neither ADJ_HOME nor HOME is set, so there is no place for the state")]
    Unknown,
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a directory")]
    NotADirectory { path: PathBuf },
    #[error("{path} belongs to another user (uid {uid})")]
    Foreign { path: PathBuf, uid: u32 },
    #[error("there is no file system in memory to keep an ephemeral home in: neither XDG_RUNTIME_DIR nor /dev/shm is one")]
    NoMemory,
    #[error("{path} is a symbolic link")]
    Link { path: PathBuf },
    #[error("{path} holds other files ({found}) and is not a home of adj: use an empty directory")]
    NotAHome { path: PathBuf, found: String },
    #[error("{variable} is a relative path ({value}): use an absolute one")]
    Relative { variable: &'static str, value: String },
    #[error("ADJ_EPHEMERAL is {value:?}: use 1 or 0")]
    Switch { value: String },
}

impl Home {
    /// Finds the home: one in memory where that is wanted, else `ADJ_HOME`, else `adjutant` in the
    /// platform's state directory.
    ///
    /// # Errors
    /// No variable says where, or there is no file system in memory.
    pub fn from_env() -> Result<Self, HomeError> {
        if let Some(place) = memory_wanted()? {
            return Self::at(&place.join(ephemeral_name()));
        }
        if let Some(dir) = variable("ADJ_HOME") {
            return Self::at(&absolute("ADJ_HOME", dir)?);
        }
        let state = match variable("XDG_STATE_HOME") {
            Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir),
            _ => absolute("HOME", variable("HOME").ok_or(HomeError::Unknown)?)?.join(".local").join("state"),
        };
        Self::at(&state.join("adjutant"))
    }

    /// Tells whether this is a home in memory, which goes with its hub.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.dir.file_name().is_some_and(|name| *name == *ephemeral_name()) && is_in_memory(&self.dir)
    }

    /// Removes a home in memory. It is out of the way at once, so that a hub that comes next begins with
    /// nothing.
    ///
    /// # Errors
    /// A part of it cannot be removed.
    pub fn remove_ephemeral(&self) -> io::Result<()> {
        let gone = self.dir.with_file_name(format!("{}-gone-{}", ephemeral_name(), rustix::process::getpid().as_raw_nonzero()));
        std::fs::rename(&self.dir, &gone)?;
        std::fs::remove_dir_all(&gone)
    }

    /// Names a home at a directory, made absolute.
    ///
    /// # Errors
    /// The working directory is gone and `dir` is relative.
    pub fn at(dir: &Path) -> Result<Self, HomeError> {
        let dir = std::path::absolute(dir).map_err(|source| HomeError::Io { path: dir.to_owned(), source })?;
        Ok(Self { dir })
    }

    /// Makes the home's directories where they are missing, 0700, and refuses one that somebody
    /// else could have prepared. A directory with other things in it is never touched.
    ///
    /// # Errors
    /// It is a link, a file, another user's, no home, or cannot be made.
    pub fn ensure(&self) -> Result<(), HomeError> {
        self.check()?;
        make_private(&self.dir)?;
        self.directories().iter().try_for_each(|dir| make_private(dir))
    }

    fn directories(&self) -> [PathBuf; 3] {
        [self.logs_dir(), self.credentials_dir(), self.runs_dir()]
    }

    /// Refuses a directory that holds something else. A home is known by its store or its lock; one that
    /// was never used may hold its configuration, with files beside it (such as a webhook's secret).
    fn check(&self) -> Result<(), HomeError> {
        let is_there = |path: PathBuf| path.symlink_metadata().is_ok();
        if is_there(self.database()) || is_there(self.hub_lock()) || is_there(self.start_lock()) {
            return Ok(());
        }
        let io_error = |source| HomeError::Io { path: self.dir.clone(), source };
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            // What it is instead is told when it is made.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
            Err(error) => return Err(io_error(error)),
        };
        let has_config = is_there(self.dir.join("config.toml"));
        let is_empty = |dir: &Path| std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
        let mut foreign = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io_error)?;
            let path = entry.path();
            let is_beside_config = has_config && entry.file_type().map_err(io_error)?.is_file();
            let is_ours = is_beside_config || self.directories().contains(&path) && is_empty(&path);
            if !is_ours {
                foreign.push(entry.file_name().to_string_lossy().into_owned());
            }
            if foreign.len() > FOREIGN_NAMED_MAX {
                break;
            }
        }
        if foreign.is_empty() {
            return Ok(());
        }
        let more = if foreign.len() > FOREIGN_NAMED_MAX { ", …" } else { "" };
        foreign.truncate(FOREIGN_NAMED_MAX);
        Err(HomeError::NotAHome { path: self.dir.clone(), found: foreign.join(", ") + more })
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("adj.sock")
    }

    /// Held by the hub for as long as it lives.
    #[must_use]
    pub fn hub_lock(&self) -> PathBuf {
        self.dir.join("hub.lock")
    }

    /// Held by whoever is starting a hub.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.dir.join("start.lock")
    }

    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.dir.join("adj.db")
    }

    /// Where the database writes first.
    #[must_use]
    pub fn database_log(&self) -> PathBuf {
        self.dir.join("adj.db-wal")
    }

    /// Given up when the disk is so full that the store cannot be opened, or a run not be stopped.
    #[must_use]
    pub fn ballast(&self) -> PathBuf {
        self.dir.join("ballast")
    }

    #[must_use]
    pub fn hub_log(&self) -> PathBuf {
        self.dir.join("hub.log")
    }

    /// What programs said about their versions.
    #[must_use]
    pub fn versions(&self) -> PathBuf {
        self.dir.join("versions.json")
    }

    /// Where credentials of runs that go on by themselves lie.
    #[must_use]
    pub fn credentials_dir(&self) -> PathBuf {
        self.dir.join("credentials")
    }

    #[must_use]
    pub fn logs_dir(&self) -> PathBuf {
        self.dir.join("logs")
    }

    #[must_use]
    pub fn runs_dir(&self) -> PathBuf {
        self.dir.join("runs")
    }
}

/// How many files are named that keep a directory from being taken for a home.
const FOREIGN_NAMED_MAX: usize = 3;

fn absolute(variable: &'static str, value: OsString) -> Result<PathBuf, HomeError> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err(HomeError::Relative { variable, value: path.display().to_string() }) }
}

/// Whether `ADJ_EPHEMERAL` wants a home in memory.
fn ephemeral_variable() -> Result<bool, HomeError> {
    let Some(value) = variable("ADJ_EPHEMERAL") else { return Ok(false) };
    match value.to_str() {
        Some("1" | "true" | "yes" | "on") => Ok(true),
        Some("0" | "false" | "no" | "off") => Ok(false),
        _ => Err(HomeError::Switch { value: value.to_string_lossy().into_owned() }),
    }
}

/// A home in memory is wanted, whatever the environment says.
static EPHEMERAL: AtomicBool = AtomicBool::new(false);

/// Has [`Home::from_env`] name the home in memory from here on: for `--ephemeral`.
pub fn want_ephemeral() {
    EPHEMERAL.store(true, Ordering::Relaxed);
}

/// Where in memory a home is to lie: a file system that is gone with the machine's power. `None`: it is
/// not to.
///
/// # Errors
/// There is no such file system, or `ADJ_EPHEMERAL` says neither yes nor no.
pub fn memory_wanted() -> Result<Option<PathBuf>, HomeError> {
    if !EPHEMERAL.load(Ordering::Relaxed) && !ephemeral_variable()? {
        return Ok(None);
    }
    let places = [variable("XDG_RUNTIME_DIR").map(PathBuf::from), Some(PathBuf::from("/dev/shm"))];
    places.into_iter().flatten().find(|place| place.is_absolute() && is_in_memory(place)).map(Some).ok_or(HomeError::NoMemory)
}

/// The one home in memory of this user.
fn ephemeral_name() -> String {
    format!("adj-ephemeral-{}", rustix::process::geteuid().as_raw())
}

#[cfg(target_os = "linux")]
fn is_in_memory(path: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::statfs(path).is_ok_and(|stat| matches!(stat.f_type & 0xffff_ffff, TMPFS | RAMFS))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_path: &Path) -> bool {
    false
}

fn make_private(dir: &Path) -> Result<(), HomeError> {
    let io_error = |source| HomeError::Io { path: dir.to_owned(), source };
    match std::fs::symlink_metadata(dir) {
        Ok(meta) if meta.file_type().is_symlink() => return Err(HomeError::Link { path: dir.to_owned() }),
        Ok(meta) if !meta.is_dir() => return Err(HomeError::NotADirectory { path: dir.to_owned() }),
        Ok(meta) => {
            let me = rustix::process::geteuid().as_raw();
            if meta.uid() != me {
                return Err(HomeError::Foreign { path: dir.to_owned(), uid: meta.uid() });
            }
            if meta.permissions().mode() & 0o077 != 0 {
                std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(io_error)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = dir.parent() {
                std::fs::create_dir_all(parent).map_err(io_error)?;
            }
            match std::fs::DirBuilder::new().mode(0o700).create(dir) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return make_private(dir),
                Err(error) => return Err(io_error(error)),
            }
        }
        Err(error) => return Err(io_error(error)),
    }
    Ok(())
}

/// What the configuration file says, with the built-in values where it says nothing.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file, whether it is there or not.
    pub path: PathBuf,
    pub exists: bool,
    pub live_runs_max: u64,
    /// The hub ends after this long without anything to do. `None`: never.
    pub idle_exit_ms: Option<i64>,
    pub expiry_ms: i64,
    pub stopped_retention_ms: i64,
    /// Finished runs are removed after this long. `None`: never.
    pub finished_retention_ms: Option<i64>,
    pub log_bytes_max: u64,
    /// `auto`, `pid_namespace` or `subreaper`.
    pub containment: Containment,
    /// A second live run in one directory is refused.
    pub refuse_shared_directory: bool,
    /// How large a tree of delegated runs may become.
    pub tree: TreeLimits,
    /// How runs wait for their vendors' limits to end.
    pub patience: Patience,
    pub default_agent: Option<String>,
    pub agents: BTreeMap<AgentName, AgentEntry>,
    pub chats: Chats,
    /// Who is told what happens.
    pub webhooks: Vec<Webhook>,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Looks at a file. `None`: there is none.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        let (modified, changed) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
        Some(Self { inode: meta.ino(), bytes: meta.len(), modified, changed })
    }
}

/// The source of an agent that nobody declared.
pub const BUILT_IN: &str = "built-in";

/// An agent and where it is declared.
#[derive(Debug, Clone)]
pub struct AgentEntry {
    pub spec: AgentSpec,
    /// `built-in`, or the file.
    pub source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    #[default]
    Auto,
    PidNamespace,
    Subreaper,
}

words!(Containment { Auto = "auto", PidNamespace = "pid_namespace", Subreaper = "subreaper" });

/// Why a configuration cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConfigError {
    #[error("{message}")]
    Io { message: String },
    /// It may be readable later.
    #[error("{path}: {source}")]
    Shortage { path: PathBuf, source: Arc<io::Error> },
    /// What is wrong with it, each problem with its line.
    #[error("{path}: {message}")]
    Syntax { path: PathBuf, message: String },
    #[error("{path}: {field}: {problem}")]
    Value { path: PathBuf, field: String, problem: String },
}

impl ConfigError {
    /// All that is wrong with a file, as one error.
    fn all(path: &Path, problems: &[Problem]) -> Self {
        let told: Vec<String> = problems.iter().map(|Problem { line, text }| format!("line {line}: {text}")).collect();
        let message = match told.as_slice() {
            [one] => one.clone(),
            all => format!("{} problems: {}", all.len(), all.join("; ")),
        };
        Self::Syntax { path: path.to_owned(), message }
    }

    /// The same as one problem among others.
    fn to_problem(&self, text: &str) -> Option<Problem> {
        let Self::Value { field, problem, .. } = self else { return None };
        let path: Vec<String> = field.split('.').map(str::to_owned).collect();
        Some(Problem { line: problems::line_of(text, &path), text: format!("{field}: {problem}") })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileConfig {
    live_runs_max: Option<u64>,
    idle_exit: Option<String>,
    expiry: Option<String>,
    stopped_retention: Option<String>,
    finished_retention: Option<String>,
    log_bytes_max: Option<u64>,
    #[serde(default)]
    containment: Containment,
    #[serde(default)]
    refuse_shared_directory: bool,
    #[serde(default)]
    delegation: FileDelegation,
    #[serde(default)]
    rate_limits: FileRateLimits,
    default_agent: Option<String>,
    #[serde(default)]
    agents: BTreeMap<String, FileAgent>,
    #[serde(default)]
    chats: chats::FileChats,
    #[serde(default)]
    webhooks: Vec<webhooks::FileWebhook>,
    #[serde(default)]
    presets: BTreeMap<String, Preset>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDelegation {
    depth_max: Option<u64>,
    children_max: Option<u64>,
    live_max: Option<u64>,
    total_max: Option<u64>,
}

impl FileDelegation {
    fn limits(&self) -> TreeLimits {
        let Self { depth_max, children_max, live_max, total_max } = *self;
        let built_in = TreeLimits::default();
        TreeLimits {
            depth_max: depth_max.unwrap_or(built_in.depth_max),
            children_max: children_max.unwrap_or(built_in.children_max),
            live_max: live_max.unwrap_or(built_in.live_max),
            total_max: total_max.unwrap_or(built_in.total_max),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRateLimits {
    times_max: Option<u32>,
    pause: Option<String>,
    pause_max: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAgent {
    harness: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    prompt: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    env_pass: Vec<String>,
    #[serde(default)]
    description: String,
    permissions: Option<String>,
    #[serde(default)]
    trust_repo: bool,
    timeout: Option<String>,
    patience: Option<String>,
    stall: Option<String>,
    grace: Option<String>,
}

const LIVE_RUNS_MAX_DEFAULT: u64 = 16;
const LOG_BYTES_MAX_DEFAULT: u64 = 64 * 1024 * 1024;
const LOG_BYTES_MIN: u64 = 64 * 1024;
/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const IDLE_EXIT_MS_DEFAULT: i64 = 30 * 60 * 1000;
const FINISHED_RETENTION_MS_DEFAULT: i64 = 30 * 24 * 60 * 60 * 1000;

impl Config {
    /// Names the configuration file: `ADJ_CONFIG`, else `config.toml` in `ADJ_HOME` when that is
    /// set, else `adjutant/config.toml` in the user's configuration directory.
    #[must_use]
    pub fn path(home: &Home) -> PathBuf {
        if let Some(path) = variable("ADJ_CONFIG").map(PathBuf::from) {
            // The hub, which is given it, works in another directory.
            return std::path::absolute(&path).unwrap_or(path);
        }
        if let Some(dir) = variable("ADJ_HOME") {
            return Home::at(Path::new(&dir)).map_or_else(|_| home.dir.clone(), |home| home.dir).join("config.toml");
        }
        let absolute = |name| variable(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config"))).unwrap_or_else(|| home.dir.clone());
        base.join("adjutant").join("config.toml")
    }

    /// Reads the configuration; a missing file is an empty one.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or a value is not usable: nothing of it is used then.
    pub fn load(home: &Home) -> Result<Self, ConfigError> {
        let path = Self::path(home);
        match files::read_named(&path, FILE_BYTES_MAX) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Self::parse(path, &text, true),
                Err(error) => {
                    let message = format!("not UTF-8 (byte {})", error.utf8_error().valid_up_to());
                    Err(ConfigError::Syntax { path, message })
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::parse(path, "", false),
            // These name the file themselves.
            Err(error) if files::is_shortage(&error) => Err(ConfigError::Shortage { path, source: Arc::new(error) }),
            Err(error) => Err(ConfigError::Io { message: error.to_string() }),
        }
    }

    /// Returns what holds without a file.
    #[must_use]
    pub fn builtin(home: &Home) -> Self {
        Self::parse(Self::path(home), "", false).expect("an empty configuration is a good one")
    }

    fn parse(path: PathBuf, text: &str, exists: bool) -> Result<Self, ConfigError> {
        let file: FileConfig = problems::read(text).map_err(|problems| ConfigError::all(&path, &problems))?;
        let value = |field: &str, problem: String| ConfigError::Value { path: path.clone(), field: field.to_owned(), problem };
        let mut wrong: Vec<ConfigError> = Vec::new();
        let duration = |field: &str, text: Option<&str>, default: i64| match text {
            Some(text) => duration_ms(text).map_err(|problem| value(field, problem)),
            None => Ok(default),
        };
        let optional = |field: &str, text: Option<&str>, default: i64| match text {
            Some("never") => Ok(None),
            other => duration(field, other, default).map(Some),
        };
        let mut agents = BTreeMap::new();
        let echo = builtin_echo();
        agents.insert(echo.name.clone(), AgentEntry { spec: echo, source: BUILT_IN.to_owned() });
        for preset in preset::all() {
            let spec = of_preset(AgentName::parse(&preset.name).expect("a valid name"), preset);
            agents.insert(spec.name.clone(), AgentEntry { spec, source: BUILT_IN.to_owned() });
        }
        let table: toml::Table = text.parse().unwrap_or_default();
        let mut presets = BTreeMap::new();
        for (name, preset) in &file.presets {
            let field = format!("presets.{name}");
            wrong.extend(env_pass::check(&preset.env_pass).err().map(|problem| value(&format!("{field}.env_pass"), problem)));
            let said = table.get("presets").and_then(|presets| presets.get(name)?.as_table());
            let is_said = |key: &str| said.is_some_and(|said| said.contains_key(key));
            presets.insert(name.clone(), preset.clone().with_defaults(&is_said).complete(name));
        }
        let read_agent = |name: &str, agent: &FileAgent| -> Result<(AgentName, AgentEntry), ConfigError> {
            let field = format!("agents.{name}");
            env_pass::check(&agent.env_pass).map_err(|problem| value(&format!("{field}.env_pass"), problem))?;
            let name = AgentName::parse(name).map_err(|error| value(&field, error.to_string()))?;
            let declared = presets.get(&agent.harness).cloned();
            let any_acp = || (agent.harness == preset::ACP).then(|| preset::acp().clone());
            let preset = declared.or_else(|| preset::builtin(&agent.harness)).or_else(any_acp);
            let harness = match (agent.harness.as_str(), &preset) {
                (_, Some(_)) => HarnessKind::Vendor,
                ("plain", None) => HarnessKind::Plain,
                ("echo", None) => HarnessKind::Echo,
                (other, None) => {
                    let known = preset::names().collect::<Vec<_>>().join(", ");
                    return Err(value(
                        &format!("{field}.harness"),
                        format!("no harness {other:?}: use acp, plain, echo, {known}, or a name under [presets]"),
                    ));
                }
            };
            let has_no_program = agent.command.is_empty() && preset.as_ref().is_none_or(|preset| preset.command.is_empty());
            if harness != HarnessKind::Echo && has_no_program {
                return Err(value(&format!("{field}.command"), "this agent needs its program, as command = [\"program\"]".to_owned()));
            }
            let prompt = match (agent.prompt.as_deref(), &preset) {
                (None, Some(preset)) => prompt_of(preset),
                (Some(_), Some(_)) => return Err(value(&format!("{field}.prompt"), format!("the preset {} says how", agent.harness))),
                (None | Some("stdin"), None) => PromptVia::Stdin,
                (Some("arg"), None) => PromptVia::Arg,
                (Some("stream"), None) if harness == HarnessKind::Echo => PromptVia::Stream,
                (Some(other), None) => return Err(value(&format!("{field}.prompt"), format!("no way {other:?}: use \"stdin\" or \"arg\""))),
            };
            let permissions = match agent.permissions.as_deref() {
                None => Permissions::default(),
                Some(word) => Permissions::from_word(word)
                    .ok_or_else(|| value(&format!("{field}.permissions"), format!("no profile {word:?}: use read, edit or full")))?,
            };
            let command = match &preset {
                Some(preset) if agent.command.is_empty() => preset.command.clone(),
                _ => agent.command.clone(),
            };
            let spec = AgentSpec {
                name: name.clone(),
                harness,
                preset: preset.as_ref().map_or_else(String::new, Preset::to_text),
                permissions,
                trust_repo: agent.trust_repo,
                command,
                args: agent.args.clone(),
                prompt,
                env: agent.env.clone(),
                env_pass: agent.env_pass.clone(),
                description: match (&preset, agent.description.as_str()) {
                    (Some(preset), "") if preset.name != preset::ACP => preset.title.clone(),
                    (_, description) => description.to_owned(),
                },
                timeout_ms: agent.timeout.as_deref().map(duration_ms).transpose().map_err(|problem| value(&format!("{field}.timeout"), problem))?,
                patience_ms: duration(&format!("{field}.patience"), agent.patience.as_deref(), limits::PATIENCE_MS_DEFAULT)?,
                stall_ms: optional(&format!("{field}.stall"), agent.stall.as_deref(), limits::STALL_MS_DEFAULT)?,
                grace_ms: duration(&format!("{field}.grace"), agent.grace.as_deref(), limits::GRACE_MS_DEFAULT)?,
            };
            Ok((name, AgentEntry { spec, source: path.display().to_string() }))
        };
        for (name, agent) in &file.agents {
            match read_agent(name, agent) {
                Ok((name, entry)) => drop(agents.insert(name, entry)),
                Err(error) => wrong.push(error),
            }
            // Several of its values can be wrong.
            let durations = [("timeout", &agent.timeout), ("patience", &agent.patience), ("stall", &agent.stall), ("grace", &agent.grace)];
            for (key, text) in durations {
                let Some(text) = text.as_deref().filter(|text| key != "stall" || *text != "never") else { continue };
                wrong.extend(duration_ms(text).err().map(|problem| value(&format!("agents.{name}.{key}"), problem)));
            }
        }
        if !wrong.is_empty() {
            let mut problems: Vec<Problem> = wrong.iter().filter_map(|error| error.to_problem(text)).collect();
            problems.sort_by_key(|problem| problem.line);
            problems.dedup();
            return Err(ConfigError::all(&path, &problems));
        }
        if let Some(default) = &file.default_agent
            && !agents.keys().any(|name| name.as_str() == default)
        {
            return Err(value("default_agent", format!("no agent {default:?} is declared")));
        }
        let live_runs_max = file.live_runs_max.unwrap_or(LIVE_RUNS_MAX_DEFAULT);
        if live_runs_max == 0 {
            return Err(value("live_runs_max", "at least 1".to_owned()));
        }
        let log_bytes_max = file.log_bytes_max.unwrap_or(LOG_BYTES_MAX_DEFAULT);
        if log_bytes_max < LOG_BYTES_MIN {
            return Err(value("log_bytes_max", format!("at least {LOG_BYTES_MIN}")));
        }
        let built_in = Patience::default();
        let patience = Patience {
            times_max: file.rate_limits.times_max.unwrap_or(built_in.times_max),
            pause_ms: duration("rate_limits.pause", file.rate_limits.pause.as_deref(), built_in.pause_ms)?,
            pause_ms_max: duration("rate_limits.pause_max", file.rate_limits.pause_max.as_deref(), built_in.pause_ms_max)?,
        };
        let declared = |name: &str| agents.keys().find(|agent| agent.as_str() == name).cloned();
        let chats = Chats::of(file.chats, &declared).map_err(|(field, problem)| value(&field, problem))?;
        let webhooks = webhooks::read(file.webhooks, &path).map_err(|(field, problem)| value(&field, problem))?;
        Ok(Self {
            chats,
            webhooks,
            exists,
            live_runs_max,
            idle_exit_ms: optional("idle_exit", file.idle_exit.as_deref(), IDLE_EXIT_MS_DEFAULT)?,
            expiry_ms: duration("expiry", file.expiry.as_deref(), limits::EXPIRY_MS_DEFAULT)?,
            stopped_retention_ms: duration("stopped_retention", file.stopped_retention.as_deref(), limits::STOPPED_RETENTION_MS_DEFAULT)?,
            finished_retention_ms: optional("finished_retention", file.finished_retention.as_deref(), FINISHED_RETENTION_MS_DEFAULT)?,
            log_bytes_max,
            containment: file.containment,
            refuse_shared_directory: file.refuse_shared_directory,
            tree: file.delegation.limits(),
            patience,
            default_agent: file.default_agent,
            agents,
            path,
        })
    }
}

fn builtin_echo() -> AgentSpec {
    AgentSpec {
        name: AgentName::parse("echo").expect("a valid name"),
        harness: HarnessKind::Echo,
        preset: String::new(),
        permissions: Permissions::default(),
        trust_repo: false,
        command: Vec::new(),
        args: Vec::new(),
        prompt: PromptVia::Stdin,
        env: BTreeMap::new(),
        env_pass: Vec::new(),
        description: "Built-in scripted agent: says, asks, waits, writes, fails as its prompt tells it".to_owned(),
        timeout_ms: None,
        patience_ms: limits::PATIENCE_MS_DEFAULT,
        stall_ms: Some(limits::STALL_MS_DEFAULT),
        grace_ms: limits::GRACE_MS_DEFAULT,
    }
}

/// The agent that a preset makes by itself.
fn of_preset(name: AgentName, preset: &Preset) -> AgentSpec {
    AgentSpec {
        name,
        harness: HarnessKind::Vendor,
        preset: preset.to_text(),
        command: preset.command.clone(),
        prompt: prompt_of(preset),
        description: preset.title.clone(),
        ..builtin_echo()
    }
}

/// How a run takes its prompt, and with that whether it takes messages while it works.
fn prompt_of(preset: &Preset) -> PromptVia {
    match (preset.driver, preset.prompt) {
        (Driver::Claude | Driver::Codex | Driver::Pi, _) => PromptVia::Stream,
        (Driver::Jsonl | Driver::Plain, preset::PromptForm::Arg) => PromptVia::Arg,
        (Driver::Acp, _) | (Driver::Jsonl | Driver::Plain, preset::PromptForm::Stdin) => PromptVia::Stdin,
    }
}

/// Parses a duration such as `300ms`, `90s`, `45m`, `24h`, `14d` or `1h30m` into milliseconds.
///
/// # Errors
/// A text for the user: what is wrong and what is accepted.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is no duration: write 90s, 45m, 24h, 14d or 1h30m");
    let mut total: i64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: i64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        total = number.checked_mul(unit).and_then(|ms| total.checked_add(ms)).ok_or_else(wrong)?;
    }
    Ok(total)
}

/// Writes a duration as [`duration_ms`] reads it, without losing any of it.
#[must_use]
pub fn duration_text(ms: i64) -> String {
    let mut rest = ms.max(0);
    let mut text = String::new();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_they_are_read() {
        for (ms, text) in [(0, "0s"), (250, "250ms"), (90_000, "1m30s"), (5_400_000, "1h30m"), (86_400_000, "1d"), (3_000, "3s")] {
            assert_eq!((duration_text(ms).as_str(), duration_ms(text)), (text, Ok(ms)));
        }
    }

    #[test]
    fn configuration_page_documents_every_key() {
        let page = include_str!("../../../../docs/configuration.md");
        let agent = "[agents.x]\nharness = \"plain\"\n";
        let tables = ["", "[delegation]\n", "[rate_limits]\n", agent, "[chats]\n", "[chats.templates.x]\n", "[[webhooks]]\n", "[presets.x]\n"];
        let mut keys = 0;
        for table in tables {
            // The refusal of a key that there is not names all that there are.
            let Err(refusal) = toml::from_str::<FileConfig>(&format!("{table}no_such_key = 1\n")) else { panic!("{table:?} takes any key") };
            let message = refusal.message();
            let (_, known) = message.split_once("expected").unwrap_or_else(|| panic!("{message}"));
            for key in known.split('`').skip(1).step_by(2) {
                keys += 1;
                let is_table = [format!("`[{key}"), format!("`[[{key}")].iter().any(|head| page.contains(head.as_str()));
                assert!(is_table || page.contains(&format!("`{key}`")), "{table:?} {key} is not in docs/configuration.md");
            }
        }
        assert!(keys > 55, "{keys}");
    }

    #[test]
    fn durations_are_read_with_their_units() {
        assert_eq!(duration_ms("1h30m"), Ok(5_400_000));
        assert_eq!(duration_ms("250ms"), Ok(250));
        for text in ["", "5", "m", "1y", "-1s", "99999999999999999999d", "1h 30m"] {
            assert!(duration_ms(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_bad_value_names_its_field() {
        let parse = |text| Config::parse(PathBuf::from("c.toml"), text, true).map(|_| ()).expect_err("refused").to_string();
        assert!(parse("[agents.x]\nharness = \"plain\"").contains("agents.x.command"));
        assert!(parse("[agents.x]\nharness = \"magic\"").contains("magic"));
        assert!(parse("live_runs_max = 0").contains("live_runs_max"));
        assert!(parse("colour = 1").contains("colour"));
        let text = "[agents.a]\nharness = \"magic\"\ncommand = [\"x\"]\ntimeout = \"soon\"\n[agents.b]\nharness = \"plain\"\n\n[agents.c]\nharness = \"echo\"\nenv_pass = [\"*\"]\ngrace = \"1y\"\n";
        let all = parse(text);
        for expected in [
            "5 problems: ",
            "line 2: agents.a.harness: no harness",
            "line 4: agents.a.timeout: ",
            "line 5: agents.b.command: ",
            "line 10: agents.c.env_pass: ",
            "line 11: agents.c.grace: ",
        ] {
            assert!(all.contains(expected), "{expected:?} is not in {all}");
        }
    }
}
