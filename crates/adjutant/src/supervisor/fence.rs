//! Working out what a fence leaves to an attempt, and starting its processes behind it.

use crate::config::Home;
use crate::files;
use crate::git;
use crate::link::{AttemptDir, FenceOrder, FenceText, Order};
use crate::process::Spawn;
use crate::process::containment::{self, Contained, Failed, Wanted};
use crate::process::fence::{FencePlan, MOUNT_NAMESPACE, PrivateDir, SHARED_MEMORY_DIR};
use adjutant_core::fence::shared_workspace;
use adjutant_core::{Fence, Isolation};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Directories of temporary files that a fenced run has for itself, and what they are called in its directory.
const TEMPORARY: [(&str, &str); 2] = [("/tmp", "tmp"), ("/var/tmp", "var-tmp")];
/// Where the machine's services listen. What resolving names and finding programs needs stays visible.
const SERVICES: [&str; 2] = ["/run", "/var/run"];
const SERVICES_SEEN: [&str; 8] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd",
    "/run/current-system",
    "/run/booted-system",
    "/run/wrappers",
    "/run/opengl-driver",
];
/// Files of an attempt's directory that its agent may read: its access, its socket, and those whose names begin so.
const AGENT_FILES: &str = "agent-";

/// Starts a process of an attempt, behind a fence where the order wants one.
///
/// # Errors
/// Nothing runs then.
pub fn start(order: &Order, mut spawn: Spawn<'_>) -> Result<(Contained, Option<FenceText>), Failed> {
    let contained = Wanted::from_word(&order.containment);
    let Some(fence) = &order.fence else { return Ok((containment::start(spawn, contained)?, None)) };
    let fenced = match contained {
        Wanted::Subreaper => Err(Failed::Fence("it needs a PID namespace, and the configuration says containment = \"subreaper\"".to_owned())),
        Wanted::Auto | Wanted::PidNamespace => plan(order, fence, spawn.program).map_err(Failed::Fence).and_then(|plan| {
            let env = spawn.env.clone();
            keep_temporary_files_inside(&mut spawn, &plan);
            let started = containment::start_fenced(&spawn, &plan);
            spawn.env = env;
            Ok((started?, text_of(&plan)))
        }),
    };
    match fenced {
        Ok((contained, text)) => Ok((contained, Some(text))),
        Err(Failed::Fence(why)) if Fence::from_word(&fence.wanted) == Some(Fence::BestEffort) && may_go_without(order, contained) => {
            tracing::warn!(%why, "the run is not fenced");
            Ok((containment::start(spawn, contained)?, Some(FenceText { enforced: "none".to_owned(), why: Some(why), writable: Vec::new() })))
        }
        Err(failed) => Err(failed),
    }
}

/// Returns whether a fence cannot be had here at all. A reason that the run's own processes can cause does not count.
fn may_go_without(order: &Order, contained: Wanted) -> bool {
    let is_worktree = order.workspace.as_ref().is_some_and(|own| Isolation::from_word(&own.isolation) == Some(Isolation::Worktree));
    let holds_user_home = order.env.get("HOME").is_some_and(|user_home| Path::new(user_home).starts_with(&order.cwd));
    contained == Wanted::Subreaper || is_worktree || holds_user_home || containment::fence_here().is_err()
}

fn text_of(plan: &FencePlan) -> FenceText {
    let writable = plan.writable.iter().map(|path| path.display().to_string()).collect();
    FenceText { enforced: MOUNT_NAMESPACE.to_owned(), why: None, writable }
}

/// Points variables for temporary files that name a directory outside to the run's own.
fn keep_temporary_files_inside(spawn: &mut Spawn<'_>, plan: &FencePlan) {
    let is_inside = |path: &OsStr| {
        let path = Path::new(path);
        plan.private.iter().any(|private| private.at == path) || plan.writable.iter().any(|dir| path.starts_with(dir))
    };
    for (name, value) in &mut spawn.env {
        if ["TMPDIR", "TMP", "TEMP"].iter().any(|variable| *name == **variable) && !is_inside(value) {
            *value = TEMPORARY[0].0.into();
        }
    }
}

/// Works out what a fence leaves to the processes of an attempt.
///
/// # Errors
/// Says why there can be no fence.
fn plan(order: &Order, fence: &FenceOrder, program: &Path) -> Result<FencePlan, String> {
    let dir = AttemptDir::new(&order.home, &order.run_id, order.attempt);
    let user_home = order.env.get("HOME").map(PathBuf::from).filter(|path| path.is_absolute()).and_then(|path| path.canonicalize().ok());
    let home = canonical(&order.home)?;
    let cwd = canonical(&order.cwd)?;
    let workspace = match &order.workspace {
        Some(own) if Isolation::from_word(&own.isolation) == Some(Isolation::Worktree) => {
            return Err("a worktree is written through its repository; use isolation = \"clone\"".to_owned());
        }
        Some(own) => canonical(&own.path)?,
        None => shared_workspace(&cwd, git::nearest(&cwd), user_home.as_deref(), &home).map_err(|error| error.to_string())?,
    };
    // Both were without links when the run was dispatched.
    if order.workspace.is_none() && cwd != order.cwd || order.workspace.is_some() && !cwd.starts_with(&workspace) {
        return Err(format!("its working directory {} has become a link to {}", order.cwd.display(), cwd.display()));
    }
    let mut writable = BTreeSet::new();
    if let Some(preset) = &order.preset {
        let state = preset.state.iter().filter_map(|path| state_path(path, order));
        writable.extend(state.filter_map(StatePath::prepare));
    }
    for extra in &fence.writable {
        let path = extra.strip_prefix("~").map_or_else(|_| Some(extra.clone()), |below| Some(user_home.as_ref()?.join(below)));
        // One that does not exist cannot be written either.
        writable.extend(path.and_then(|path| path.canonicalize().ok()));
    }
    // Of the home, nothing but what is the attempt's; and nothing that contains the user's home.
    writable.retain(|path| {
        !path.starts_with(&home) && path != Path::new("/") && !user_home.as_ref().is_some_and(|user_home| user_home.starts_with(path))
    });
    writable.insert(workspace);
    writable.extend(dir.temporary().canonicalize().ok());

    let mut private = Vec::new();
    for (at, name) in TEMPORARY {
        let at = PathBuf::from(at);
        if at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) && !writable.contains(&at) {
            let source = dir.fence().join(name);
            files::make_dirs(dir.home(), &source).map_err(|error| error.to_string())?;
            private.push(PrivateDir { at, source: canonical(&source)? });
        }
    }
    let services = SERVICES.map(PathBuf::from).into_iter().filter(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir()));
    let hidden: Vec<PathBuf> =
        services.chain([home.clone()]).chain(fence.hidden.iter().filter_map(|path| path.canonicalize().ok())).filter(|path| path.is_dir()).collect();

    let repository = order.workspace.as_ref().and_then(|own| own.repository.canonicalize().ok());
    let mut seen: BTreeSet<PathBuf> = SERVICES_SEEN.iter().map(PathBuf::from).collect();
    seen.extend(user_home.clone());
    seen.extend(repository.clone());
    seen.insert(cwd.clone());
    let programs = [program.to_owned()].into_iter().chain(std::env::current_exe());
    seen.extend(programs.filter_map(|program| program.parent().map(Path::to_owned)));
    let path = order.env.get("PATH").map_or("", String::as_str);
    seen.extend(path.split(':').filter(|dir| dir.starts_with('/')).map(PathBuf::from));

    let shared_memory = PathBuf::from(SHARED_MEMORY_DIR);
    let covers: Vec<&PathBuf> = hidden.iter().chain(private.iter().map(|private| &private.at)).chain([&shared_memory]).collect();
    let can_write = |path: &Path| writable.iter().any(|dir| path.starts_with(dir));
    let is_private = |path: &Path| private.iter().any(|private| path.starts_with(&private.at)) && !path.starts_with(&home);
    let is_needed =
        |path: &PathBuf| covers.iter().any(|cover| path != *cover && path.starts_with(cover)) && !can_write(path) && !path.starts_with(&home);
    // A link that the agent has made must not lead to something that is hidden.
    let is_below_one_cover = |path: &Path, real: &Path| covers.iter().any(|cover| path.starts_with(cover) && real.starts_with(cover));
    let needed = |path: &PathBuf| path.canonicalize().ok().filter(|real| is_needed(real) && is_below_one_cover(path, real));
    let mut readable: Vec<PathBuf> = seen.iter().filter_map(needed).collect();
    readable.extend(
        [dir.worker_access(), dir.socket()]
            .iter()
            .chain(&agent_files(&dir).map_err(|error| error.to_string())?)
            .filter_map(|path| path.canonicalize().ok()),
    );
    let outside = [Some(PathBuf::from("/")), Some(PathBuf::from("/etc")), user_home, repository, Some(home.clone()), Some(dir.0.clone())];
    let denied = outside.into_iter().flatten().filter(|path| !can_write(path) && !is_private(path)).collect();
    drop(covers);
    let store = Home { dir: home.clone() };
    let absent =
        vec![store.database(), store.credentials_dir(), store.logs_dir(), store.socket(), store.hub_lock(), dir.facts(), dir.supervisor_lock()];
    Ok(FencePlan {
        cwd,
        writable: writable.into_iter().collect(),
        hidden,
        private,
        readable,
        denied,
        absent,
        is_root: rustix::process::geteuid().is_root(),
    })
}

fn canonical(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
}

fn agent_files(dir: &AttemptDir) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir.0)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(AGENT_FILES)) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Where a CLI keeps its state.
#[derive(Debug, PartialEq, Eq)]
struct StatePath {
    path: PathBuf,
    is_dir: bool,
}

/// Reads an entry of a preset's `state`: alternatives between `|`, of which the first counts whose variable is set.
fn state_path(entry: &str, order: &Order) -> Option<StatePath> {
    entry.split('|').map(str::trim).find_map(|text| {
        let (variable, below) = match text.strip_prefix('$') {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            None => ("HOME", text.strip_prefix("~/")?),
        };
        let base = order.env.get(variable).filter(|value| value.starts_with('/'))?;
        Some(StatePath { path: Path::new(base).join(below.trim_end_matches('/')), is_dir: text.ends_with('/') })
    })
}

impl StatePath {
    /// Makes a directory that is missing, which the CLI could not make itself. A file counts where it exists.
    fn prepare(self) -> Option<PathBuf> {
        if self.is_dir
            && let Err(error) = std::fs::create_dir_all(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the directory for the CLI's state cannot be made");
        }
        self.path.canonicalize().ok()
    }
}
