//! The `[workspaces]` part of the configuration: where runs work, and what their workspaces get.

use super::environment::variable;
use super::values::UnusableValues;
use adjutant_core::port::{PORT_COUNT_DEFAULT, PORT_COUNT_MAX};
use adjutant_core::workspace::{check_cache_variable, check_copied_path};
use adjutant_core::{Isolation, WorkspaceSpec};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

const SETUP_TIMEOUT_MS_DEFAULT: i64 = 10 * 60 * 1000;
const SETUP_TIMEOUT_MS_MIN: i64 = 1000;
const SETUP_TIMEOUT_MS_MAX: i64 = 24 * 60 * 60 * 1000;
/// Maximum number of arguments of a setup command, files that are copied, caches, and repositories.
const SETUP_ARGS_MAX: usize = 256;
const COPY_MAX: usize = 64;
const CACHES_MAX: usize = 32;
const REPOSITORIES_MAX: usize = 256;

/// The settings of workspaces, in general and for single repositories.
#[derive(Debug, Clone, Default)]
pub struct Workspaces {
    /// Where a run works if neither its dispatch nor its agent specifies it.
    pub isolation: Isolation,
    pub general: WorkspaceSpec,
    pub repositories: Vec<RepositoryWorkspaces>,
}

/// The settings for the repositories at and below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryWorkspaces {
    /// Absolute.
    pub path: PathBuf,
    pub isolation: Isolation,
    pub spec: WorkspaceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWorkspaces {
    isolation: Option<String>,
    setup: Option<Vec<String>>,
    setup_timeout: Option<String>,
    copy: Option<Vec<String>>,
    caches: Option<BTreeMap<String, String>>,
    ports: Option<u64>,
    #[serde(default)]
    repositories: Vec<FileRepository>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRepository {
    path: String,
    isolation: Option<String>,
    setup: Option<Vec<String>>,
    setup_timeout: Option<String>,
    copy: Option<Vec<String>>,
    caches: Option<BTreeMap<String, String>>,
    ports: Option<u64>,
}

/// The settings that can be general or of one repository.
struct Settings {
    isolation: Option<String>,
    setup: Option<Vec<String>>,
    setup_timeout: Option<String>,
    copy: Option<Vec<String>>,
    caches: Option<BTreeMap<String, String>>,
    ports: Option<u64>,
}

impl Workspaces {
    /// Returns where a run works by default that is started in a directory.
    #[must_use]
    pub fn isolation_in(&self, cwd: &Path) -> Isolation {
        self.entry(&[cwd])
            .map_or(self.isolation, |entry| entry.isolation)
    }

    /// Returns the settings of the workspaces of a repository. `dirs` are the top of its work tree,
    /// and that of the repository whose work tree it is.
    #[must_use]
    pub fn spec_of(&self, dirs: &[&Path]) -> &WorkspaceSpec {
        self.entry(dirs).map_or(&self.general, |entry| &entry.spec)
    }

    /// Returns the entry with the longest path at or above one of the directories.
    fn entry(&self, dirs: &[&Path]) -> Option<&RepositoryWorkspaces> {
        let covers = |entry: &&RepositoryWorkspaces| {
            // A link to a repository names that repository.
            let path = entry
                .path
                .canonicalize()
                .unwrap_or_else(|_| entry.path.clone());
            dirs.iter().any(|dir| dir.starts_with(&path))
        };
        self.repositories
            .iter()
            .filter(covers)
            .max_by_key(|entry| entry.path.as_os_str().len())
    }
}

/// Reads this part of the file. Invalid values are reported.
pub(super) fn read(file: FileWorkspaces, unusable: &mut UnusableValues) -> Workspaces {
    let FileWorkspaces {
        isolation,
        setup,
        setup_timeout,
        copy,
        caches,
        ports,
        repositories,
    } = file;
    let built_in = WorkspaceSpec {
        setup_timeout_ms: SETUP_TIMEOUT_MS_DEFAULT,
        ports: PORT_COUNT_DEFAULT,
        ..WorkspaceSpec::default()
    };
    let settings = Settings {
        isolation,
        setup,
        setup_timeout,
        copy,
        caches,
        ports,
    };
    let (isolation, general) = settings.over("workspaces", Isolation::None, &built_in, unusable);
    if repositories.len() > REPOSITORIES_MAX {
        unusable.report(
            "workspaces.repositories",
            format!("at most {REPOSITORIES_MAX}"),
        );
        return Workspaces {
            isolation,
            general,
            repositories: Vec::new(),
        };
    }
    let mut entries: Vec<RepositoryWorkspaces> = Vec::new();
    for (index, file) in repositories.into_iter().enumerate() {
        let at = format!("workspaces.repositories[{index}]");
        let FileRepository {
            path,
            isolation: own,
            setup,
            setup_timeout,
            copy,
            caches,
            ports,
        } = file;
        let path = unusable.check(&format!("{at}.path"), absolute(&path));
        if let Some(path) = path
            .as_ref()
            .filter(|path| entries.iter().any(|other| other.path == **path))
        {
            unusable.report(
                format!("{at}.path"),
                format!("{} has two entries: merge them", path.display()),
            );
        }
        let settings = Settings {
            isolation: own,
            setup,
            setup_timeout,
            copy,
            caches,
            ports,
        };
        let (isolation, spec) = settings.over(&at, isolation, &general, unusable);
        entries.extend(path.map(|path| RepositoryWorkspaces {
            path,
            isolation,
            spec,
        }));
    }
    Workspaces {
        isolation,
        general,
        repositories: entries,
    }
}

impl Settings {
    /// Returns the settings, with `default` for those that are missing.
    fn over(
        self,
        at: &str,
        isolation: Isolation,
        default: &WorkspaceSpec,
        unusable: &mut UnusableValues,
    ) -> (Isolation, WorkspaceSpec) {
        let field = |key: &str| format!("{at}.{key}");
        let Self {
            isolation: word,
            setup,
            setup_timeout,
            copy,
            caches,
            ports,
        } = self;
        let isolation = word.map_or(isolation, |word| {
            let known = Isolation::from_word(&word)
                .ok_or_else(|| format!("unknown isolation {word:?}: use none, clone or worktree"));
            unusable
                .check(&field("isolation"), known)
                .unwrap_or_default()
        });
        if let Some(setup) = &setup {
            unusable.check(&field("setup"), check_setup(setup));
        }
        let setup_timeout_ms = unusable.duration(
            &field("setup_timeout"),
            setup_timeout.as_deref(),
            default.setup_timeout_ms,
        );
        if !(SETUP_TIMEOUT_MS_MIN..=SETUP_TIMEOUT_MS_MAX).contains(&setup_timeout_ms) {
            unusable.report(field("setup_timeout"), "from 1s to 24h");
        }
        if let Some(copy) = &copy {
            unusable.check(&field("copy"), check_copy(copy));
        }
        if let Some(caches) = &caches {
            unusable.check(&field("caches"), check_caches(caches));
        }
        let ports = ports.map_or(default.ports, |ports| {
            let allowed = u16::try_from(ports)
                .ok()
                .filter(|ports| *ports <= PORT_COUNT_MAX);
            unusable
                .check(
                    &field("ports"),
                    allowed.ok_or_else(|| format!("at most {PORT_COUNT_MAX}; 0: none")),
                )
                .unwrap_or_default()
        });
        let spec = WorkspaceSpec {
            setup: setup.unwrap_or_else(|| default.setup.clone()),
            setup_timeout_ms,
            copy: copy.unwrap_or_else(|| default.copy.clone()),
            caches: caches.map_or_else(
                || default.caches.clone(),
                |caches| caches.into_iter().map(with_home).collect(),
            ),
            ports,
        };
        (isolation, spec)
    }
}

/// Why a setting of workspaces cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum WorkspaceProblem {
    #[error("at most {SETUP_ARGS_MAX} arguments, without NUL")]
    SetupArguments,
    #[error("name the program first, as in [\"npm\", \"ci\"]")]
    NoProgram,
    #[error(
        "{0:?} is not a program (no shell splits it): write [\"npm\", \"ci\"], or [\"sh\", \"-c\", …]"
    )]
    ShellCommand(String),
    #[error("at most {COPY_MAX} files")]
    TooManyFiles,
    #[error("{path:?}: {problem}")]
    CopiedPath { path: String, problem: &'static str },
    #[error("at most {CACHES_MAX}")]
    TooManyCaches,
    #[error("{name:?}: {problem}")]
    CacheVariable { name: String, problem: &'static str },
    #[error("{name}: {source}")]
    CachePath { name: String, source: PathProblem },
    #[error(
        "{name}: {dir:?} is not a directory: use a name, an absolute path, or one that begins with ~/"
    )]
    CacheDirectory { name: String, dir: String },
}

/// Why a text names no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum PathProblem {
    #[error("HOME is not set: use an absolute path")]
    NoHome,
    #[error("{0:?}: use an absolute path, or one that begins with ~/")]
    NotAbsolute(String),
}

fn check_setup(setup: &[String]) -> Result<(), WorkspaceProblem> {
    if setup.len() > SETUP_ARGS_MAX || setup.iter().any(|arg| arg.contains('\0')) {
        return Err(WorkspaceProblem::SetupArguments);
    }
    match setup.first() {
        Some(program) if program.is_empty() => Err(WorkspaceProblem::NoProgram),
        Some(program) if program.contains(char::is_whitespace) && setup.len() == 1 => {
            Err(WorkspaceProblem::ShellCommand(program.clone()))
        }
        _ => Ok(()),
    }
}

fn check_copy(copy: &[String]) -> Result<(), WorkspaceProblem> {
    if copy.len() > COPY_MAX {
        return Err(WorkspaceProblem::TooManyFiles);
    }
    copy.iter().try_for_each(|path| {
        check_copied_path(path).map_err(|problem| WorkspaceProblem::CopiedPath {
            path: path.clone(),
            problem,
        })
    })
}

fn check_caches(caches: &BTreeMap<String, String>) -> Result<(), WorkspaceProblem> {
    if caches.len() > CACHES_MAX {
        return Err(WorkspaceProblem::TooManyCaches);
    }
    caches
        .iter()
        .try_for_each(|(name, dir)| check_cache(name, dir))
}

fn check_cache(name: &str, dir: &str) -> Result<(), WorkspaceProblem> {
    let name = name.to_owned();
    if let Err(problem) = check_cache_variable(&name) {
        return Err(WorkspaceProblem::CacheVariable { name, problem });
    }
    if dir.starts_with("~/") || dir.starts_with('/') {
        return match absolute(dir) {
            Ok(_) => Ok(()),
            Err(source) => Err(WorkspaceProblem::CachePath { name, source }),
        };
    }
    let is_plain = Path::new(dir)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if dir.is_empty() || !is_plain || dir.contains('\0') {
        return Err(WorkspaceProblem::CacheDirectory {
            name,
            dir: dir.to_owned(),
        });
    }
    Ok(())
}

/// Replaces `~/` in a directory. A directory that stays relative is reported elsewhere.
fn with_home((variable, dir): (String, String)) -> (String, String) {
    let absolute = absolute(&dir)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .filter(|_| dir.starts_with("~/"));
    (variable, absolute.unwrap_or(dir))
}

/// Returns the path that a text names: absolute, or below the user's home.
fn absolute(text: &str) -> Result<PathBuf, PathProblem> {
    let path = match text.strip_prefix("~/") {
        Some(below) => PathBuf::from(variable("HOME").ok_or(PathProblem::NoHome)?).join(below),
        None => PathBuf::from(text),
    };
    let is_clean = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && is_clean && path != Path::new("/") && !text.contains('\0') {
        Ok(path)
    } else {
        Err(PathProblem::NotAbsolute(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Workspaces, UnusableValues> {
        let mut unusable = UnusableValues::default();
        let read = read(toml::from_str(text).expect("TOML"), &mut unusable);
        if unusable.fields().is_empty() {
            Ok(read)
        } else {
            Err(unusable)
        }
    }

    #[test]
    fn entry_with_the_longest_path_counts() {
        let text = "isolation = \"clone\"\nsetup = [\"make\"]\ncopy = [\".env\"]\n[[repositories]]\npath = \"/srv\"\nsetup = []\nports = 0\n\
                    [[repositories]]\npath = \"/srv/app\"\nisolation = \"none\"\nsetup_timeout = \"5m\"\n[repositories.caches]\nX = \"x\"\n";
        let read = read_text(text).expect("valid");
        let spec = |dir: &str| read.spec_of(&[Path::new(dir)]).clone();
        assert_eq!(
            (spec("/home/x").setup, spec("/home/x").ports),
            (vec!["make".to_owned()], PORT_COUNT_DEFAULT)
        );
        assert_eq!(
            (
                spec("/srv/other").setup.len(),
                spec("/srv/other").ports,
                spec("/srv/other").copy.len()
            ),
            (0, 0, 1)
        );
        assert_eq!(
            (
                spec("/srv/app").setup.len(),
                spec("/srv/app").setup_timeout_ms,
                spec("/srv/app").caches.len()
            ),
            (1, 300_000, 1)
        );
        assert_eq!(
            spec("/srv/application").ports,
            0,
            "a path ends at a separator"
        );
        let isolation = |dir: &str| read.isolation_in(Path::new(dir));
        assert_eq!(
            [
                isolation("/x"),
                isolation("/srv/y"),
                isolation("/srv/app/sub")
            ],
            [Isolation::Clone, Isolation::Clone, Isolation::None]
        );
        // A work tree elsewhere belongs to its repository.
        assert_eq!(
            read.spec_of(&[Path::new("/elsewhere"), Path::new("/srv/app")])
                .caches
                .len(),
            1
        );
    }

    #[test]
    fn unusable_settings_are_reported() {
        let cases = [
            ("isolation = \"sandbox\"", "workspaces.isolation"),
            ("setup = [\"\"]", "workspaces.setup"),
            ("setup = [\"npm ci\"]", "workspaces.setup"),
            ("setup_timeout = \"soon\"", "workspaces.setup_timeout"),
            ("setup_timeout = \"0s\"", "workspaces.setup_timeout"),
            ("setup_timeout = \"30d\"", "workspaces.setup_timeout"),
            ("copy = [\"../secret\"]", "workspaces.copy"),
            ("copy = [\"/etc/passwd\"]", "workspaces.copy"),
            ("copy = [\".git/config\"]", "workspaces.copy"),
            ("ports = 1001", "workspaces.ports"),
            ("ports = 9223372036854775807", "workspaces.ports"),
            ("[caches]\nPATH = \"x\"", "workspaces.caches"),
            ("[caches]\nX = \"../x\"", "workspaces.caches"),
            ("[caches]\nX = \"/a/../b\"", "workspaces.caches"),
            ("[caches]\nX = \"/\"", "workspaces.caches"),
            (
                "[[repositories]]\npath = \"relative\"",
                "workspaces.repositories[0].path",
            ),
            (
                "[[repositories]]\npath = \"/a\"\n[[repositories]]\npath = \"/a\"",
                "workspaces.repositories[1].path",
            ),
            (
                "[[repositories]]\npath = \"/a\"\nports = 5000",
                "workspaces.repositories[0].ports",
            ),
        ];
        for (text, field) in cases {
            let Err(unusable) = read_text(text) else {
                panic!("{text} is accepted")
            };
            assert_eq!(unusable.fields(), [field], "{text}");
        }
        for text in [
            "port = 1",
            "[[repositories]]\nports = 1",
            "ports = -1",
            "ports = \"many\"",
            "setup = \"npm ci\"",
            "[[repositories]]\npath = \"/a\"\nx = 1",
        ] {
            assert!(toml::from_str::<FileWorkspaces>(text).is_err(), "{text}");
        }
    }
}
