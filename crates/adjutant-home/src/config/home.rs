//! Locates the home and its files.

use super::environment::variable;
use crate::files::FileSystem;
use crate::{failpoint, files};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory with all state of Adjutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// An absolute path.
    pub dir: PathBuf,
}

/// Why a home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("neither ADJ_HOME nor HOME is set, so adj cannot locate its home")]
    Unknown,
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a directory")]
    NotADirectory { path: PathBuf },
    #[error("{path} belongs to another user (uid {uid})")]
    Foreign { path: PathBuf, uid: u32 },
    #[error(
        "no file system in memory for an ephemeral home: neither XDG_RUNTIME_DIR nor /dev/shm is one"
    )]
    NoMemory,
    #[error(
        "{path} is on a network file system ({name}), where locks and the database are unreliable"
    )]
    Network { path: PathBuf, name: String },
    #[error("{path} is a symbolic link")]
    Link { path: PathBuf },
    #[error("{path} holds other files ({found}) and is not a home of adj: use an empty directory")]
    NotAHome { path: PathBuf, found: String },
    #[error("the removal of {path} was interrupted")]
    PartlyRemoved { path: PathBuf },
    #[error("{variable} is a relative path ({value}): use an absolute one")]
    Relative {
        variable: &'static str,
        value: String,
    },
    #[error("ADJ_EPHEMERAL is {value:?}: use 1 or 0")]
    Switch { value: String },
}

impl Home {
    /// Finds the home: in memory if requested, otherwise `ADJ_HOME`, otherwise `adjutant` in the
    /// platform's state directory.
    ///
    /// # Errors
    /// No variable names a place, or there is no file system in memory.
    pub fn from_env() -> Result<Self, HomeError> {
        if let Some(place) = requested_memory_dir()? {
            return Self::at(&place.join(ephemeral_name()));
        }
        if let Some(dir) = variable("ADJ_HOME") {
            return Self::at(&absolute("ADJ_HOME", dir)?);
        }
        let state = match variable("XDG_STATE_HOME") {
            Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir),
            _ => absolute("HOME", variable("HOME").ok_or(HomeError::Unknown)?)?
                .join(".local")
                .join("state"),
        };
        Self::at(&state.join("adjutant"))
    }

    /// Returns whether this is a home in memory, which is removed when its hub exits.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.dir
            .file_name()
            .is_some_and(|name| *name == *ephemeral_name())
            && is_in_memory(&self.dir)
    }

    /// Removes the home. It is renamed first, so that the next hub starts with an empty home.
    ///
    /// # Errors
    /// A part of the home cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let renamed = self.dir.with_file_name(format!(
            "{name}-gone-{}",
            rustix::process::getpid().as_raw_nonzero()
        ));
        std::fs::rename(&self.dir, &renamed)?;
        std::fs::remove_dir_all(&renamed)
    }

    /// Removes what Adjutant has made in the home, and the home itself if nothing else is in it.
    /// Returns what stays.
    ///
    /// # Errors
    /// A part of the home cannot be removed. The same call continues.
    pub fn remove_own(&self) -> io::Result<Vec<PathBuf>> {
        let removed = self.removed_dir();
        // What an interrupted removal has left.
        files::remove_dir(&removed)?;
        make_private(&removed).map_err(io::Error::other)?;
        // Each entry moves at once, so that no hub finds a part of one. The database's log goes
        // before the database, which would otherwise be opened with the log of an earlier one; the
        // hub's lock goes last.
        let name_of = |path: PathBuf| path.file_name().map(OsString::from).unwrap_or_default();
        let first = name_of(self.database_log());
        let last = name_of(self.hub_lock());
        let mut own: Vec<OsString> = self
            .entries()?
            .into_iter()
            .filter(|name| Self::is_own(name))
            .collect();
        own.sort_by_key(|name| (*name != first, *name == last, name.clone()));
        for name in own {
            std::fs::rename(self.dir.join(&name), removed.join(&name))?;
        }
        files::remove_dir(&removed)?;
        let others: Vec<PathBuf> = self
            .entries()?
            .into_iter()
            .map(|name| self.dir.join(name))
            .collect();
        if others.is_empty() {
            match std::fs::remove_dir(&self.dir) {
                // A mount point, or a directory with a new file.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty
                    ) =>
                {
                    return Ok(vec![self.dir.clone()]);
                }
                done => done?,
            }
        }
        Ok(others)
    }

    /// Returns the files and directories in the home that Adjutant has not made, such as the
    /// configuration.
    ///
    /// # Errors
    /// The home cannot be read.
    pub fn others(&self) -> io::Result<Vec<PathBuf>> {
        let removed = self.removed_dir();
        let others = self
            .entries()?
            .into_iter()
            .filter(|name| !Self::is_own(name))
            .map(|name| self.dir.join(name));
        Ok(others.filter(|path| *path != removed).collect())
    }

    fn entries(&self) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(&self.dir)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }

    /// Returns whether Adjutant makes entries of this name in a home.
    fn is_own(name: &OsStr) -> bool {
        let base = Self {
            dir: PathBuf::new(),
        };
        let whole = [
            base.socket(),
            base.hub_lock(),
            base.link_key(),
            base.start_lock(),
            base.reserved_space(),
            base.dashboard_address(),
            base.versions(),
            base.confirmed(),
            base.credentials_dir(),
            base.peers_dir(),
            base.logs_dir(),
            base.runs_dir(),
            base.workspaces_dir(),
            base.caches_dir(),
            base.repositories_dir(),
        ];
        // With the files beside them: the database's log and index, and rotated logs.
        let beginnings = [base.database(), base.hub_log()];
        let is_beside = |first: &PathBuf| {
            let (name, first) = (name.as_bytes(), first.as_os_str().as_bytes());
            name.strip_prefix(first)
                .is_some_and(|rest| rest.is_empty() || matches!(rest[0], b'-' | b'.'))
        };
        whole.iter().any(|path| path == name) || beginnings.iter().any(is_beside)
    }

    /// Where [`Self::remove_own`] moves entries before it removes them.
    fn removed_dir(&self) -> PathBuf {
        self.dir.join("removed")
    }

    /// Returns whether a removal of the home has not ended.
    #[must_use]
    pub fn is_partly_removed(&self) -> bool {
        is_there(&self.removed_dir())
    }

    /// Returns the home at a directory, which is made absolute.
    ///
    /// # Errors
    /// `dir` is relative and the working directory no longer exists.
    pub fn at(dir: &Path) -> Result<Self, HomeError> {
        let dir = std::path::absolute(dir).map_err(|source| HomeError::Io {
            path: dir.to_owned(),
            source,
        })?;
        Ok(Self { dir })
    }

    /// Creates missing directories of the home (0700), and refuses a home that another user could
    /// have prepared. A directory with foreign files is never changed.
    ///
    /// # Errors
    /// The path is a link, a file, another user's, on a network file system or not a home, or a
    /// directory cannot be created.
    pub fn ensure(&self) -> Result<(), HomeError> {
        if let Some(name) = self.network_file_system() {
            return Err(HomeError::Network {
                path: self.dir.clone(),
                name,
            });
        }
        self.check()?;
        make_private(&self.dir)?;
        self.directories()
            .iter()
            .try_for_each(|dir| make_private(dir))
    }

    /// Returns the name of the network file system that the home is on, or would be on.
    #[must_use]
    pub fn network_file_system(&self) -> Option<String> {
        if failpoint::is_network() {
            return Some("simulated".to_owned());
        }
        let dir = self.dir.ancestors().find(|dir| dir.exists())?;
        match FileSystem::of(dir).ok()? {
            FileSystem::Network(name) => Some(name),
            // 9p also connects virtual machines to a disk of their host.
            FileSystem::Plan9 | FileSystem::Memory(_) | FileSystem::Local(_) => None,
        }
    }

    fn directories(&self) -> [PathBuf; 3] {
        [self.logs_dir(), self.credentials_dir(), self.runs_dir()]
    }

    /// Returns whether this is a home: it has a store or a lock. The store can be on a server.
    #[must_use]
    pub fn is_used(&self) -> bool {
        [self.database(), self.hub_lock(), self.start_lock()]
            .iter()
            .any(|path| is_there(path))
    }

    /// Refuses a directory with foreign files. An unused home may contain its configuration and
    /// files next to it (such as a webhook's secret).
    fn check(&self) -> Result<(), HomeError> {
        if self.is_partly_removed() {
            return Err(HomeError::PartlyRemoved {
                path: self.dir.clone(),
            });
        }
        if self.is_used() {
            return Ok(());
        }
        let io_error = |source| HomeError::Io {
            path: self.dir.clone(),
            source,
        };
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            // Creating the home reports the existing file.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(io_error(error)),
        };
        let has_config = is_there(&self.dir.join("config.toml"));
        let is_empty =
            |dir: &Path| std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
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
        let more = if foreign.len() > FOREIGN_NAMED_MAX {
            ", …"
        } else {
            ""
        };
        foreign.truncate(FOREIGN_NAMED_MAX);
        Err(HomeError::NotAHome {
            path: self.dir.clone(),
            found: foreign.join(", ") + more,
        })
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("adj.sock")
    }

    /// The identity of the runner that the home belongs to. A hub does not use such a home.
    #[must_use]
    pub fn runner_identity(&self) -> PathBuf {
        self.dir.join("runner.json")
    }

    /// What a database on a server has confirmed, as far as a hub or a runner knows.
    #[must_use]
    pub fn confirmed(&self) -> PathBuf {
        self.dir.join("confirmed")
    }

    /// The lock that a hub holds while it runs.
    #[must_use]
    pub fn hub_lock(&self) -> PathBuf {
        self.dir.join("hub.lock")
    }

    /// The key that signs links for answers.
    #[must_use]
    pub fn link_key(&self) -> PathBuf {
        self.dir.join("link.key")
    }

    /// The lock of the process that starts a hub.
    #[must_use]
    pub fn start_lock(&self) -> PathBuf {
        self.dir.join("start.lock")
    }

    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.dir.join("adj.db")
    }

    /// The database's write-ahead log.
    #[must_use]
    pub fn database_log(&self) -> PathBuf {
        self.dir.join("adj.db-wal")
    }

    /// Reserved space, released when a full disk prevents opening the store or stopping a run.
    #[must_use]
    pub fn reserved_space(&self) -> PathBuf {
        self.dir.join("ballast")
    }

    /// The address at which the hub listens because `adj ui` or `adj serve --listen` asked for it.
    /// The next hub listens there too.
    #[must_use]
    pub fn dashboard_address(&self) -> PathBuf {
        self.dir.join("dashboard.address")
    }

    #[must_use]
    pub fn hub_log(&self) -> PathBuf {
        self.dir.join("hub.log")
    }

    /// The cache of programs' versions.
    #[must_use]
    pub fn versions(&self) -> PathBuf {
        self.dir.join("versions.json")
    }

    /// The directory for the files with the tokens that peers have issued for this hub.
    #[must_use]
    pub fn peers_dir(&self) -> PathBuf {
        self.dir.join("peers")
    }

    /// The directory for the credentials of runs.
    #[must_use]
    pub fn credentials_dir(&self) -> PathBuf {
        self.dir.join("credentials")
    }

    /// The directory for the copies of repositories of a runner.
    #[must_use]
    pub fn repositories_dir(&self) -> PathBuf {
        self.dir.join("repositories")
    }

    #[must_use]
    pub fn logs_dir(&self) -> PathBuf {
        self.dir.join("logs")
    }

    #[must_use]
    pub fn runs_dir(&self) -> PathBuf {
        self.dir.join("runs")
    }

    /// The directory for the workspaces of isolated runs.
    #[must_use]
    pub fn workspaces_dir(&self) -> PathBuf {
        self.dir.join("workspaces")
    }

    /// The directory for the caches that the workspaces of a repository share.
    #[must_use]
    pub fn caches_dir(&self) -> PathBuf {
        self.dir.join("caches")
    }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Maximum number of foreign files that an error names.
const FOREIGN_NAMED_MAX: usize = 3;

fn absolute(variable: &'static str, value: OsString) -> Result<PathBuf, HomeError> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(HomeError::Relative {
            variable,
            value: path.display().to_string(),
        })
    }
}

/// Returns whether `ADJ_EPHEMERAL` requests a home in memory.
fn ephemeral_variable() -> Result<bool, HomeError> {
    let Some(value) = variable("ADJ_EPHEMERAL") else {
        return Ok(false);
    };
    match value.to_str() {
        Some("1" | "true" | "yes" | "on") => Ok(true),
        Some("0" | "false" | "no" | "off") => Ok(false),
        _ => Err(HomeError::Switch {
            value: value.to_string_lossy().into_owned(),
        }),
    }
}

/// A home in memory is requested, regardless of the environment.
static EPHEMERAL: AtomicBool = AtomicBool::new(false);

/// Makes [`Home::from_env`] return the home in memory from now on, for `--ephemeral`.
pub fn request_ephemeral() {
    EPHEMERAL.store(true, Ordering::Relaxed);
}

/// Returns the file system in memory for an ephemeral home, or `None` if none is requested.
///
/// # Errors
/// There is no such file system, or the value of `ADJ_EPHEMERAL` is invalid.
pub fn requested_memory_dir() -> Result<Option<PathBuf>, HomeError> {
    if !EPHEMERAL.load(Ordering::Relaxed) && !ephemeral_variable()? {
        return Ok(None);
    }
    let places = [
        variable("XDG_RUNTIME_DIR").map(PathBuf::from),
        Some(PathBuf::from("/dev/shm")),
    ];
    places
        .into_iter()
        .flatten()
        .find(|place| place.is_absolute() && is_in_memory(place))
        .map(Some)
        .ok_or(HomeError::NoMemory)
}

/// Returns the directory name of this user's home in memory.
fn ephemeral_name() -> String {
    format!("adj-ephemeral-{}", rustix::process::geteuid().as_raw())
}

fn is_in_memory(path: &Path) -> bool {
    matches!(FileSystem::of(path), Ok(FileSystem::Memory(_)))
}

fn make_private(dir: &Path) -> Result<(), HomeError> {
    let io_error = |source| HomeError::Io {
        path: dir.to_owned(),
        source,
    };
    match std::fs::symlink_metadata(dir) {
        Ok(meta) if meta.file_type().is_symlink() => {
            return Err(HomeError::Link {
                path: dir.to_owned(),
            });
        }
        Ok(meta) if !meta.is_dir() => {
            return Err(HomeError::NotADirectory {
                path: dir.to_owned(),
            });
        }
        Ok(meta) => {
            let me = rustix::process::geteuid().as_raw();
            if meta.uid() != me {
                return Err(HomeError::Foreign {
                    path: dir.to_owned(),
                    uid: meta.uid(),
                });
            }
            if meta.permissions().mode() & 0o077 != 0 {
                std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
                    .map_err(io_error)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = dir.parent() {
                std::fs::create_dir_all(parent).map_err(io_error)?;
            }
            match std::fs::DirBuilder::new().mode(0o700).create(dir) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return make_private(dir);
                }
                Err(error) => return Err(io_error(error)),
            }
        }
        Err(error) => return Err(io_error(error)),
    }
    Ok(())
}
