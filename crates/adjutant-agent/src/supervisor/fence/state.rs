//! The directories in which a CLI keeps its state, which stay writable inside a fence.

use crate::files;
use crate::protocol::Order;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The location of a CLI's state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StatePath {
    pub path: PathBuf,
    pub is_dir: bool,
}

/// Reads an entry of a preset's `state`: alternatives between `|`, of which the first counts whose
/// variable is set.
pub(super) fn state_path(entry: &str, order: &Order) -> Option<StatePath> {
    entry.split('|').map(str::trim).find_map(|text| {
        let (variable, below) = match text.strip_prefix('$') {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            None => ("HOME", text.strip_prefix("~/")?),
        };
        let base = order
            .env
            .get(variable)
            .filter(|value| value.starts_with('/'))?;
        Some(StatePath {
            path: Path::new(base).join(below.trim_end_matches('/')),
            is_dir: text.ends_with('/'),
        })
    })
}

/// A path without links, and the links that led to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub path: PathBuf,
    pub links: Vec<PathBuf>,
}

/// Maximum number of links in a path, the kernel's own limit.
const LINKS_MAX: usize = 40;

/// Resolves a path whose end may not exist.
///
/// # Errors
/// There are too many links, or a link cannot be read.
pub(super) fn resolve(path: &Path) -> io::Result<Resolved> {
    let mut rest: Vec<OsString> = names_reversed(path);
    let mut resolved = Resolved {
        path: PathBuf::from("/"),
        links: Vec::new(),
    };
    while let Some(name) = rest.pop() {
        if name == ".." {
            resolved.path.pop();
            continue;
        }
        let next = resolved.path.join(&name);
        match next.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => {
                if resolved.links.len() == LINKS_MAX {
                    return Err(io::Error::other(format!(
                        "{} leads through too many links",
                        path.display()
                    )));
                }
                let target = std::fs::read_link(&next)?;
                if target.is_absolute() {
                    resolved.path = PathBuf::from("/");
                }
                rest.extend(names_reversed(&target));
                resolved.links.push(next);
            }
            Ok(_) => resolved.path = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => resolved.path = next,
            Err(error) => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("{}: {error}", next.display()),
                ));
            }
        }
    }
    Ok(resolved)
}

fn names_reversed(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

impl StatePath {
    /// Resolves the path. A missing directory is created, because the CLI cannot create it itself;
    /// a file counts only if it exists. `None`: it does not exist.
    ///
    /// # Errors
    /// As [`resolve`].
    pub(super) fn prepare(&self) -> io::Result<Option<Resolved>> {
        let resolved = resolve(&self.path)?;
        if self.is_dir
            && let Err(error) = files::make_dirs(Path::new("/"), &resolved.path)
        {
            tracing::warn!(%error, path = %resolved.path.display(), "the directory for the CLI's state cannot be made");
        }
        Ok(resolved.path.symlink_metadata().is_ok().then_some(resolved))
    }
}

/// A link on the way to a directory that the run itself can change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is a link, which the run can change, to {}: name that directory itself",
    link.display(),
    target.display()
)]
pub(super) struct ChangeableLink {
    pub link: PathBuf,
    pub target: PathBuf,
}

/// Refuses a directory behind a link that the run itself can create.
///
/// # Errors
/// Names the directory and the link.
pub(super) fn check_links(
    found: &[Resolved],
    writable: &BTreeSet<PathBuf>,
) -> Result<(), ChangeableLink> {
    for Resolved { path, links } in found {
        if let Some(link) = links
            .iter()
            .find(|link| writable.iter().any(|dir| link.starts_with(dir)))
        {
            return Err(ChangeableLink {
                link: link.clone(),
                target: path.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_to_a_path_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().canonicalize().expect("there");
        std::fs::create_dir_all(at.join("real/below")).expect("a directory");
        symlink("real", at.join("relative")).expect("a link");
        symlink(at.join("relative/below"), at.join("absolute")).expect("a link");
        symlink("loop", at.join("loop")).expect("a link");
        let found = resolve(&at.join("absolute/../missing/file")).expect("it resolves");
        assert_eq!(
            found,
            Resolved {
                path: at.join("real/missing/file"),
                links: vec![at.join("absolute"), at.join("relative")]
            }
        );
        assert_eq!(
            resolve(&at.join("real")).expect("it resolves"),
            Resolved {
                path: at.join("real"),
                links: Vec::new()
            }
        );
        assert!(resolve(&at.join("loop/x")).is_err());
        let writable = BTreeSet::from([at.clone()]);
        assert!(check_links(&[found], &writable).is_err_and(
            |why| why.link == at.join("absolute") && why.target == at.join("real/missing/file")
        ));
    }
}
