//! Computes the plan of a fence: the directories that an attempt can write, and hidden ones.

use super::secrets::{browser_profiles, is_socket, sockets};
use super::state::{check_links, resolve, state_path};
use crate::config::Home;
use crate::files;
use crate::link::{AttemptDir, FenceOrder, Order};
use crate::process::fence::{FencePlan, PrivateDir, SHARED_MEMORY_DIR};
use adjutant_core::Isolation;
use adjutant_core::fence::shared_workspace;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Directories of temporary files that a fenced run gets for itself, and their names in its directory.
pub(super) const TEMPORARY: [(&str, &str); 2] = [("/tmp", "tmp"), ("/var/tmp", "var-tmp")];
/// Directories in which the machine's services listen. Paths needed to resolve names and find programs stay visible.
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
/// Files of an attempt's directory that its agent may read: its access, its socket, and files with these prefixes.
const AGENT_FILES: &str = "agent-";

/// Computes the plan of an attempt's fence.
///
/// # Errors
/// Why there can be no fence.
pub(super) fn plan(
    order: &Order,
    fence: &FenceOrder,
    program: &Path,
    start_dir: &Path,
) -> Result<FencePlan, String> {
    let dir = AttemptDir::new(&order.home, &order.run_id, order.attempt);
    let user_home = order
        .env
        .get("HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .and_then(|path| path.canonicalize().ok());
    let home = canonical(&order.home)?;
    let cwd = canonical(&order.cwd)?;
    let workspace = match &order.workspace {
        Some(own) if Isolation::from_word(&own.isolation) == Some(Isolation::Worktree) => {
            return Err(
                "a worktree writes to its repository; use isolation = \"clone\"".to_owned(),
            );
        }
        Some(own) => canonical(&own.path)?,
        // The top of the repository as it was at the dispatch: an agent can remove the `.git` of a nested one.
        None => {
            let top = fence
                .workspace
                .as_deref()
                .filter(|top| cwd.starts_with(top));
            shared_workspace(&cwd, top, user_home.as_deref(), &home)
                .map_err(|error| error.to_string())?
        }
    };
    // Both were without links when the run was dispatched.
    if order.workspace.is_none() && cwd != order.cwd
        || order.workspace.is_some() && !cwd.starts_with(&workspace)
    {
        return Err(format!(
            "its working directory {} has become a link to {}",
            order.cwd.display(),
            cwd.display()
        ));
    }
    let mut found = Vec::new();
    if let Some(preset) = &order.preset {
        for path in preset
            .state
            .iter()
            .filter_map(|path| state_path(path, order))
        {
            found.extend(path.prepare().map_err(|error| error.to_string())?);
        }
    }
    for extra in &fence.writable {
        let path = extra.strip_prefix("~").map_or_else(
            |_| Some(extra.clone()),
            |below| Some(user_home.as_ref()?.join(below)),
        );
        let resolved = path
            .map(|path| resolve(&path))
            .transpose()
            .map_err(|error| error.to_string())?;
        // One that does not exist cannot be written either.
        found.extend(resolved.filter(|resolved| resolved.path.exists()));
    }
    let mut writable: BTreeSet<PathBuf> =
        found.iter().map(|resolved| resolved.path.clone()).collect();
    // Nothing in the home is writable except the attempt's own files, and no directory that contains the user's home.
    writable.retain(|path| {
        !path.starts_with(&home)
            && path != Path::new("/")
            && !user_home
                .as_ref()
                .is_some_and(|user_home| user_home.starts_with(path))
    });
    for cache in order.workspace.iter().flat_map(|own| &own.caches) {
        let resolved = resolve(cache).map_err(|error| error.to_string())?;
        if let Ok(below) = cache.strip_prefix(&order.home) {
            // Runs write to the caches in the home, so one may have put a link there.
            if resolved.path != home.join(below) {
                return Err(format!(
                    "the shared cache {} has become a link to {}: remove it",
                    cache.display(),
                    resolved.path.display()
                ));
            }
        } else if resolved.path.starts_with(&home)
            || user_home
                .as_ref()
                .is_some_and(|user_home| user_home.starts_with(&resolved.path))
        {
            continue;
        }
        writable.insert(resolved.path.clone());
        found.push(resolved);
    }
    writable.insert(workspace);
    check_links(&found, &writable)?;
    writable.extend(dir.temporary().canonicalize().ok());

    let mut private = Vec::new();
    for (at, name) in TEMPORARY {
        let at = PathBuf::from(at);
        if at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) && !writable.contains(&at) {
            let source = dir.fence().join(name);
            files::make_dirs(dir.home(), &source).map_err(|error| error.to_string())?;
            private.push(PrivateDir {
                at,
                source: canonical(&source)?,
            });
        }
    }
    let services = SERVICES
        .map(PathBuf::from)
        .into_iter()
        .filter(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir()));
    let (hidden_dirs, hidden_files): (Vec<_>, Vec<_>) = fence
        .hidden
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .partition(|path| path.is_dir());
    // A directory in which the run works is not hidden from it.
    let is_worked_in = |path: &PathBuf| {
        writable
            .iter()
            .any(|dir| dir.starts_with(path) || path.starts_with(dir))
    };
    let profiles = user_home
        .iter()
        .flat_map(|user_home| browser_profiles(user_home))
        .filter(|path| !is_worked_in(path));
    let hidden: Vec<PathBuf> = services
        .chain([home.clone()])
        .chain(hidden_dirs)
        .chain(profiles)
        .filter(|path| path.is_dir())
        .collect();
    let is_covered = |path: &PathBuf| hidden.iter().any(|dir| path.starts_with(dir));
    let services_at_home = user_home
        .iter()
        .map(|user_home| sockets(user_home))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|error| error.to_string())?;
    let services_at_home = services_at_home
        .into_iter()
        .flatten()
        .filter(|path| !is_worked_in(path));
    let hidden_files = hidden_files
        .into_iter()
        .chain(services_at_home)
        .filter(|path| !is_covered(path))
        .collect();

    let repository = order
        .workspace
        .as_ref()
        .and_then(|own| own.repository.canonicalize().ok());
    let mut seen: BTreeSet<PathBuf> = SERVICES_SEEN.iter().map(PathBuf::from).collect();
    seen.extend(user_home.clone());
    seen.extend(repository.clone());
    seen.insert(cwd.clone());
    let programs = [program.to_owned()]
        .into_iter()
        .chain(std::env::current_exe());
    seen.extend(programs.filter_map(|program| program.parent().map(Path::to_owned)));
    let path = order.env.get("PATH").map_or("", String::as_str);
    seen.extend(
        path.split(':')
            .filter(|dir| dir.starts_with('/'))
            .map(PathBuf::from),
    );

    let shared_memory = PathBuf::from(SHARED_MEMORY_DIR);
    let covers: Vec<&PathBuf> = hidden
        .iter()
        .chain(private.iter().map(|private| &private.at))
        .chain([&shared_memory])
        .collect();
    let can_write = |path: &Path| writable.iter().any(|dir| path.starts_with(dir));
    let is_private = |path: &Path| {
        private.iter().any(|private| path.starts_with(&private.at)) && !path.starts_with(&home)
    };
    let is_needed = |path: &PathBuf| {
        covers
            .iter()
            .any(|cover| path != *cover && path.starts_with(cover))
            && !can_write(path)
            && !path.starts_with(&home)
    };
    // A link that the agent has made must not lead to something that is hidden.
    let is_below_one_cover = |path: &Path, real: &Path| {
        covers
            .iter()
            .any(|cover| path.starts_with(cover) && real.starts_with(cover))
    };
    let needed = |path: &PathBuf| {
        path.canonicalize()
            .ok()
            .filter(|real| is_needed(real) && is_below_one_cover(path, real))
    };
    let mut readable: Vec<PathBuf> = seen.iter().filter_map(needed).collect();
    readable.extend(
        [dir.worker_access(), dir.socket()]
            .iter()
            .chain(&agent_files(&dir).map_err(|error| error.to_string())?)
            .filter_map(|path| path.canonicalize().ok()),
    );
    // A runner keeps repositories in its home.
    readable.extend(
        repository
            .clone()
            .filter(|repository| order.lease_ms.is_some() && repository.starts_with(&home)),
    );
    let outside = [
        Some(PathBuf::from("/")),
        Some(PathBuf::from("/etc")),
        user_home,
        repository,
        Some(home.clone()),
        Some(dir.0.clone()),
    ];
    let denied = outside
        .into_iter()
        .flatten()
        .filter(|path| !can_write(path) && !is_private(path))
        .collect();
    drop(covers);
    let store = Home { dir: home.clone() };
    let absent = vec![
        store.database(),
        store.credentials_dir(),
        store.peers_dir(),
        store.logs_dir(),
        store.socket(),
        store.hub_lock(),
        dir.facts(),
        dir.supervisor_lock(),
    ];
    Ok(FencePlan {
        cwd: if start_dir == order.cwd {
            cwd
        } else {
            canonical(start_dir)?
        },
        writable: writable.into_iter().collect(),
        hidden,
        hidden_files,
        private,
        readable,
        denied,
        absent,
        temporary: None,
        is_root: rustix::process::geteuid().is_root(),
    })
}

/// Adapts a plan to Landlock, which cannot replace a directory by another: the run's temporary files are in its own
/// directory, and the shared directories are not writable.
pub(super) fn landlock_plan(mut plan: FencePlan) -> FencePlan {
    let mut hidden = Vec::new();
    for PrivateDir { at, source } in plan.private.drain(..) {
        plan.temporary.get_or_insert_with(|| source.clone());
        plan.writable.push(source);
        hidden.push(at);
    }
    hidden.push(PathBuf::from(SHARED_MEMORY_DIR));
    plan.denied
        .extend(hidden.iter().filter(|dir| dir.is_dir()).cloned());
    plan.hidden.extend(hidden);
    // Landlock has no rules for connecting to a socket.
    plan.hidden_files.retain(|path| !is_socket(path));
    plan
}

fn canonical(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn agent_files(dir: &AttemptDir) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir.0)? {
        let entry = entry?;
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(AGENT_FILES))
        {
            found.push(entry.path());
        }
    }
    Ok(found)
}
