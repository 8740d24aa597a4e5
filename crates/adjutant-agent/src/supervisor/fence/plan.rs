//! Computes the plan of a fence.

use super::hidden::{Covers, Hidden, is_below_any};
use super::places::{Places, PlanError, canonical};
use super::secrets::is_socket;
use super::writable::writable_paths;
use crate::config::Home;
use crate::files;
use crate::process::fence::{FencePlan, PrivateDir, SHARED_MEMORY_DIR};
use crate::protocol::{AttemptDir, FenceOrder, Order};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Directories of temporary files that a fenced run gets for itself, and their names in its
/// directory.
pub(super) const TEMPORARY: [(&str, &str); 2] = [("/tmp", "tmp"), ("/var/tmp", "var-tmp")];
/// Paths that resolve names and find programs, which stay visible in the hidden directories of the
/// machine's services.
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
/// Files of an attempt's directory that its agent may read: its access, its socket, and files with
/// these prefixes.
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
) -> Result<FencePlan, PlanError> {
    let places = Places::of(order, fence)?;
    let writable = writable_paths(order, fence, &places)?;
    let private = private_dirs(&places.dir, &writable)?;
    let hidden = Hidden::find(fence, &places, &writable)?;
    let covers = Covers {
        hidden: &hidden.dirs,
        private: &private,
        shared_memory: Path::new(SHARED_MEMORY_DIR),
        writable: &writable,
        home: &places.home,
    };
    let mut readable: Vec<PathBuf> = paths_to_read(order, &places, program)
        .iter()
        .filter_map(|path| covers.needed(path))
        .collect();
    readable.extend(readable_in_home(order, &places)?);
    Ok(FencePlan {
        cwd: if start_dir == order.cwd {
            places.cwd.clone()
        } else {
            canonical(start_dir)?
        },
        denied: denied_dirs(&places, &writable, &private),
        absent: absent_paths(&places),
        writable: writable.into_iter().collect(),
        hidden: hidden.dirs,
        hidden_files: hidden.files,
        private,
        readable,
        temporary: None,
        is_root: rustix::process::geteuid().is_root(),
    })
}

/// Creates the directories that replace those of temporary files. One that is writable itself is
/// not replaced.
fn private_dirs(
    dir: &AttemptDir,
    writable: &BTreeSet<PathBuf>,
) -> Result<Vec<PrivateDir>, PlanError> {
    let mut private = Vec::new();
    for (at, name) in TEMPORARY {
        let at = PathBuf::from(at);
        if at.symlink_metadata().is_ok_and(|meta| meta.is_dir()) && !writable.contains(&at) {
            let source = dir.fence().join(name);
            files::make_dirs(dir.home(), &source)?;
            private.push(PrivateDir {
                at,
                source: canonical(&source)?,
            });
        }
    }
    Ok(private)
}

/// Returns what a run reads outside of its workspace: what resolves names, its user's home, its
/// repository, and the directories of programs.
fn paths_to_read(order: &Order, places: &Places, program: &Path) -> BTreeSet<PathBuf> {
    let mut seen: BTreeSet<PathBuf> = SERVICES_SEEN.iter().map(PathBuf::from).collect();
    seen.extend(places.user_home.clone());
    seen.extend(places.repository.clone());
    seen.insert(places.cwd.clone());
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
    seen
}

/// Returns what a run may read in the home.
fn readable_in_home(order: &Order, places: &Places) -> Result<Vec<PathBuf>, PlanError> {
    let dir = &places.dir;
    let mut readable: Vec<PathBuf> = [dir.worker_access(), dir.socket()]
        .iter()
        .chain(&agent_files(dir)?)
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    // A runner keeps repositories in its home.
    let repository = places.repository.clone();
    readable.extend(
        repository
            .filter(|repository| order.lease_ms.is_some() && repository.starts_with(&places.home)),
    );
    Ok(readable)
}

/// Returns the directories in which a run must not be able to create a file.
fn denied_dirs(
    places: &Places,
    writable: &BTreeSet<PathBuf>,
    private: &[PrivateDir],
) -> Vec<PathBuf> {
    let outside = [
        Some(PathBuf::from("/")),
        Some(PathBuf::from("/etc")),
        places.user_home.clone(),
        places.repository.clone(),
        Some(places.home.clone()),
        Some(places.dir.0.clone()),
    ];
    let is_private = |path: &Path| {
        is_below_any(path, private.iter().map(|private| &private.at))
            && !path.starts_with(&places.home)
    };
    outside
        .into_iter()
        .flatten()
        .filter(|path| !is_below_any(path, writable) && !is_private(path))
        .collect()
}

/// Returns the paths of Adjutant that must not exist for a run.
fn absent_paths(places: &Places) -> Vec<PathBuf> {
    let store = Home {
        dir: places.home.clone(),
    };
    vec![
        store.database(),
        store.credentials_dir(),
        store.peers_dir(),
        store.logs_dir(),
        store.socket(),
        store.hub_lock(),
        places.dir.facts(),
        places.dir.supervisor_lock(),
    ]
}

/// Adapts a plan to Landlock, which cannot replace a directory by another: the run's temporary
/// files are in its own directory, and the shared directories are not writable.
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

#[cfg(test)]
mod tests {
    use super::super::places::tests::places;
    use super::*;

    #[test]
    fn files_are_denied_where_a_run_neither_writes_nor_has_its_own_directory() {
        let places = Places {
            repository: Some("/tmp/origin".into()),
            ..places()
        };
        let denied = |writable: &[&str], private: &[&str]| {
            let private: Vec<_> = private
                .iter()
                .map(|at| PrivateDir {
                    at: at.into(),
                    source: PathBuf::new(),
                })
                .collect();
            let writable = writable.iter().map(PathBuf::from).collect();
            denied_dirs(&places, &writable, &private)
        };
        let (home, dir) = (places.home.clone(), places.dir.0.clone());
        let all = ["/", "/etc", "/home/u", "/tmp/origin"].map(PathBuf::from);
        assert_eq!(
            denied(&["/home/u/p"], &[]),
            [&all[..], &[home.clone(), dir.clone()]].concat()
        );
        // What replaces `/tmp` has no repository, and the home stays denied behind it.
        assert_eq!(
            denied(&["/home/u/p"], &["/tmp", "/home"]),
            [&all[..2], &[home, dir.clone()]].concat()
        );
        assert_eq!(denied(&["/home/u", "/tmp/origin"], &[]), all[..2]);
    }
}
