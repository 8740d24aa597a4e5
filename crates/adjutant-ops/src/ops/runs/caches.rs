//! Removing the shared caches of a repository with the last of its isolated runs.
//!
//! ```text
//!  caches/<repository>-<id>          of a repository
//!        /.removed-<repository>-<id>  being removed: renamed in the transaction that finds no run
//! ```

use crate::config::Home;
use crate::files;
use crate::ops::OpError;
use crate::ops::workspaces::{cache_dirs, cache_root, is_cache_root};
use crate::store::{Connection, Store, StoreError, all_workspaces};
use adjutant_core::RunId;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

const REMOVED: &str = ".removed-";

/// Lists the shared caches that no run needs once these are removed.
pub(super) fn list_unused_caches(
    store: &Store,
    home: &Home,
    removed: &BTreeSet<RunId>,
) -> Result<Vec<String>, OpError> {
    let mut unused = store.read(|connection| unused_caches(connection, home, removed))?;
    // Caches that an earlier cleanup could not remove.
    unused.extend(
        entries(&home.caches_dir())
            .iter()
            .filter_map(|name| name.strip_prefix(REMOVED))
            .map(str::to_owned),
    );
    Ok(unused)
}

/// Removes the shared caches that no run needs, and returns their names. Failures are logged
/// and retried by the next cleanup.
pub(super) async fn remove_unused_caches(
    store: &Store,
    home: &Arc<Home>,
) -> Result<Vec<String>, OpError> {
    let moving = Arc::clone(home);
    // In a transaction, so that no run is dispatched meanwhile.
    let moved = store.write(move |tx| {
        for name in unused_caches(tx.connection(), &moving, &BTreeSet::new())? {
            let path = moving.caches_dir().join(&name);
            if let Err(error) = files::rename(&moving.dir, &path, format!("{REMOVED}{name}").as_ref()) {
                tracing::warn!(%error, path = %path.display(), "unused caches cannot be removed yet");
            }
        }
        Ok(())
    });
    moved.await?;
    let all = home.caches_dir();
    let removed = tokio::task::spawn_blocking(move || {
        let is_removed = |name: &String| {
            let removed = files::remove_dir(&all.join(name));
            removed
                .inspect_err(
                    |error| tracing::warn!(%error, name, "unused caches cannot be removed"),
                )
                .is_ok()
        };
        let moved = entries(&all)
            .into_iter()
            .filter(|name| name.starts_with(REMOVED));
        moved
            .filter(is_removed)
            .filter_map(|name| name.strip_prefix(REMOVED).map(str::to_owned))
            .collect()
    });
    removed
        .await
        .map_err(|error| OpError::Io(error.to_string()))
}

fn unused_caches(
    connection: &Connection,
    home: &Home,
    removed: &BTreeSet<RunId>,
) -> Result<Vec<String>, StoreError> {
    let names = entries(&home.caches_dir());
    if names.is_empty() {
        return Ok(names);
    }
    let mut used: BTreeSet<PathBuf> = BTreeSet::new();
    for workspace in all_workspaces(connection)?
        .iter()
        .filter(|workspace| !removed.contains(&workspace.run))
    {
        used.insert(cache_root(home, &workspace.repository));
        // A configured absolute directory can be below the caches of another repository.
        used.extend(cache_dirs(home, workspace).into_values());
    }
    let is_used = |name: &String| {
        let root = home.caches_dir().join(name);
        used.iter().any(|used| used.starts_with(&root))
    };
    Ok(names
        .into_iter()
        .filter(|name| is_cache_root(name) && !name.starts_with(REMOVED) && !is_used(name))
        .collect())
}

/// Lists the names in a directory. A failure is logged and counts as an empty directory.
fn entries(dir: &std::path::Path) -> Vec<String> {
    let found = fs::read_dir(dir).and_then(|entries| {
        entries
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<Vec<_>>>()
    });
    let found = match found {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(%error, "the shared caches cannot be listed");
            return Vec::new();
        }
    };
    // Adjutant's own names are UTF-8.
    let mut names: Vec<String> = found
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .collect();
    names.sort_unstable();
    names
}
