//! The directories and files that a fenced run can write.

use super::places::{Places, PlanError};
use super::state::{Resolved, check_links, resolve, state_path};
use crate::protocol::{FenceOrder, Order};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns what a run can write: the state of its CLI, what the configuration adds, its caches, its
/// workspace and its own temporary files.
///
/// # Errors
/// A path cannot be resolved, or the run itself can change where it leads.
pub(super) fn writable_paths(
    order: &Order,
    fence: &FenceOrder,
    places: &Places,
) -> Result<BTreeSet<PathBuf>, PlanError> {
    let mut found = cli_state(order)?;
    found.extend(configured_paths(
        &fence.writable,
        places.user_home.as_deref(),
    )?);
    let mut writable: BTreeSet<PathBuf> = found
        .iter()
        .map(|resolved| resolved.path.clone())
        .filter(|path| places.allows_writing(path))
        .collect();
    let caches = shared_caches(order, places)?;
    writable.extend(caches.iter().map(|resolved| resolved.path.clone()));
    found.extend(caches);
    writable.insert(places.workspace.clone());
    check_links(&found, &writable)?;
    writable.extend(places.dir.temporary().canonicalize().ok());
    Ok(writable)
}

/// Prepares the state of the CLI, as its preset names it.
fn cli_state(order: &Order) -> Result<Vec<Resolved>, PlanError> {
    let mut found = Vec::new();
    let entries = order.preset.iter().flat_map(|preset| &preset.state);
    for path in entries.filter_map(|entry| state_path(entry, order)) {
        found.extend(path.prepare()?);
    }
    Ok(found)
}

/// Resolves the paths that the configuration adds. One that does not exist cannot be written
/// either.
fn configured_paths(
    named: &[PathBuf],
    user_home: Option<&Path>,
) -> Result<Vec<Resolved>, PlanError> {
    let mut found = Vec::new();
    for extra in named {
        let path = match extra.strip_prefix("~") {
            Ok(below) => user_home.map(|user_home| user_home.join(below)),
            Err(_) => Some(extra.clone()),
        };
        let resolved = path.map(|path| resolve(&path)).transpose()?;
        found.extend(resolved.filter(|resolved| resolved.path.exists()));
    }
    Ok(found)
}

/// Resolves the shared caches of an isolated run.
fn shared_caches(order: &Order, places: &Places) -> Result<Vec<Resolved>, PlanError> {
    let mut found = Vec::new();
    for cache in order.workspace.iter().flat_map(|own| &own.caches) {
        let resolved = resolve(cache)?;
        if is_writable_cache(cache, &order.home, &resolved.path, places)? {
            found.push(resolved);
        }
    }
    Ok(found)
}

/// Returns whether a cache is writable that leads to `target`. `named_home` is the home as the
/// order names it.
fn is_writable_cache(
    cache: &Path,
    named_home: &Path,
    target: &Path,
    places: &Places,
) -> Result<bool, PlanError> {
    match cache.strip_prefix(named_home) {
        // Runs write to the caches in the home, so one may have put a link there.
        Ok(below) if target != places.home.join(below) => Err(PlanError::CacheIsLink {
            cache: cache.to_owned(),
            target: target.to_owned(),
        }),
        Ok(_) => Ok(true),
        Err(_) => Ok(places.allows_writing(target)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::tests::places;
    use super::*;

    #[test]
    fn cache_in_the_home_must_not_lead_elsewhere() {
        let places = places();
        // The order names the home through a link.
        let named = Path::new("/state/adjutant");
        let use_of = |cache: &str, target: &Path| {
            is_writable_cache(Path::new(cache), named, target, &places)
        };
        let own = places.home.join("caches/cargo");
        assert!(matches!(
            use_of("/state/adjutant/caches/cargo", &own),
            Ok(true)
        ));
        let refused = use_of("/state/adjutant/caches/cargo", Path::new("/home/u/.ssh"));
        assert_eq!(
            refused.map_err(|error| error.to_string()),
            Err(
                "the shared cache /state/adjutant/caches/cargo has become a link to \
                 /home/u/.ssh: remove it"
                    .to_owned()
            )
        );
    }

    #[test]
    fn cache_elsewhere_is_read_only_where_the_homes_are() {
        let places = places();
        let use_of = |target: &str| {
            let target = Path::new(target);
            is_writable_cache(target, &places.home, target, &places)
        };
        assert!(matches!(use_of("/var/cache/cargo"), Ok(true)));
        assert!(matches!(use_of("/home"), Ok(false)));
        let in_home = places.home.join("runs");
        let by_link = is_writable_cache(Path::new("/var/cache/x"), &places.home, &in_home, &places);
        assert!(matches!(by_link, Ok(false)));
    }

    #[test]
    fn configured_path_below_a_missing_user_home_is_skipped() {
        let dir = tempfile::tempdir().expect("a directory");
        let named = ["~/x".into(), dir.path().into(), dir.path().join("missing")];
        let found = configured_paths(&named, None).expect("they resolve");
        let real = dir.path().canonicalize().expect("it exists");
        let paths: Vec<_> = found.into_iter().map(|resolved| resolved.path).collect();
        assert_eq!(paths, [real]);
    }
}
