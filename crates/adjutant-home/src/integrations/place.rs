//! Where clients and their files are on this machine.

use super::entry::NAME;
use super::table::McpClient;
use crate::config::text_variable;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The scope of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All sessions of the user.
    User,
    /// Sessions in this directory.
    Project(PathBuf),
}

/// Resolves a path that begins with `~` or a variable. `None`: the variable is not set to an
/// absolute path.
fn resolve(pattern: &str) -> Option<PathBuf> {
    let (base, rest) = pattern.split_once('/').unwrap_or((pattern, ""));
    let base = match base.strip_prefix('$') {
        Some(variable) => text_variable(variable),
        None => text_variable("HOME"),
    }?;
    let base = PathBuf::from(base);
    base.is_absolute().then(|| {
        if rest.is_empty() {
            base
        } else {
            base.join(rest)
        }
    })
}

/// Returns the file of a client in a scope. `None`: the client has none.
#[must_use]
pub fn file_of(client: &McpClient, scope: &Scope) -> Option<PathBuf> {
    match scope {
        Scope::Project(dir) => client.project_file.map(|file| dir.join(file)),
        Scope::User => {
            let file = client.user_file.as_ref()?;
            let bases = if cfg!(target_os = "macos") {
                file.macos
            } else {
                file.linux
            };
            let base = bases.iter().find_map(|base| resolve(base))?;
            let exists = |name: &&&str| base.join(name).symlink_metadata().is_ok();
            let name = file
                .names
                .iter()
                .find(exists)
                .or_else(|| file.names.first())?;
            Some(base.join(name))
        }
    }
}

/// Returns the skill file of a client in a scope. `None`: the client has none.
#[must_use]
pub fn skill_of(client: &McpClient, scope: &Scope) -> Option<PathBuf> {
    let skills = client.skills.as_ref()?;
    let dir = match scope {
        Scope::Project(dir) => dir.join(skills.project?),
        Scope::User => skills.user.iter().find_map(|base| resolve(base))?,
    };
    // The format requires that the directory has the name of the skill.
    Some(dir.join(NAME).join("SKILL.md"))
}

/// Returns what shows that a client is installed: a program, or one of its files.
#[must_use]
pub fn find_trace(client: &McpClient) -> Option<PathBuf> {
    let path = text_variable("PATH").unwrap_or_default();
    let program = client
        .programs
        .iter()
        .find_map(|program| on_path(program, &path));
    let home = text_variable("HOME").map(PathBuf::from);
    let own = || {
        file_of(client, &Scope::User).and_then(|file| {
            if file.exists() {
                Some(file)
            } else {
                file.parent().map(Path::to_owned)
            }
        })
    };
    program
        .or_else(|| {
            client
                .traces
                .iter()
                .filter_map(|trace| resolve(trace))
                .find(|trace| trace.exists())
        })
        .or_else(|| own().filter(|path| path.exists() && Some(path) != home.as_ref()))
}

/// Returns the first program of this name in `PATH`.
#[must_use]
pub fn on_path(program: &str, path: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|file| is_program(file))
}

/// Returns whether a file can be started.
#[must_use]
pub fn is_program(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// How entries name this program.
#[derive(Debug, Clone)]
pub struct OwnProgram {
    pub exe: PathBuf,
    /// The `adj` that `PATH` finds.
    pub on_path: Option<PathBuf>,
}

impl OwnProgram {
    /// # Errors
    /// The path of this program is unknown.
    pub fn find() -> std::io::Result<Self> {
        let path = text_variable("PATH").unwrap_or_default();
        Ok(Self {
            exe: std::env::current_exe()?,
            on_path: on_path("adj", &path),
        })
    }

    /// Returns whether `PATH` finds this program.
    #[must_use]
    pub fn is_on_path(&self) -> bool {
        self.on_path
            .as_deref()
            .is_some_and(|found| self.is_this(found))
    }

    fn is_this(&self, path: &Path) -> bool {
        matches!((path.canonicalize(), self.exe.canonicalize()), (Ok(one), Ok(other)) if one == other)
    }

    /// Returns the command for the entry of a client: a bare name if its sessions find this program
    /// by it.
    #[must_use]
    pub(crate) fn command_for(&self, client: &McpClient) -> String {
        if !client.is_desktop_app && self.is_on_path() {
            "adj".to_owned()
        } else {
            self.exe.display().to_string()
        }
    }

    /// Returns whether the command of an entry starts this program.
    #[must_use]
    pub(crate) fn is_started_by(&self, command: &str, client: &McpClient) -> bool {
        if command.contains('/') {
            self.is_this(Path::new(command))
        } else {
            !client.is_desktop_app && self.is_on_path()
        }
    }
}
