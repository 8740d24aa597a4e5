//! What changed in the run's directory while an attempt ran, as git sees it: the state at its start is
//! compared with the state at its end. Nothing is run that the repository brings along: no hooks, no file
//! system monitor, no filters, no pager, no fetching, no submodules. A repository is the work of the agent,
//! its configuration included.

use super::side_command::{self, CommandOutput, KeptOutput, SideCommand};
use crate::link::{Order, Orders};
use crate::process::tree::MARKER;
use adjutant_core::Exit;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// How long git may take at an attempt's end.
const GIT_MAX: Duration = Duration::from_secs(10);
/// The same at its start, which waits for it.
const GIT_START_MAX: Duration = Duration::from_secs(3);
/// What is read of its output.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Most files that are named.
const FILES_MAX: usize = 500;
/// Most files that are compared.
const ENTRIES_MAX: usize = 5_000;
/// A repository with more filters than that is not looked at.
const FILTERS_MAX: usize = 100;

/// Keeps git from running what a repository configures.
const TAMED: [(&str, &str); 6] = [
    ("core.fsmonitor", ""),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.untrackedCache", "false"),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
];

/// The state of the repository around a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The commit that is checked out.
    head: Option<String>,
    /// What differs from it, by its path from the top of the repository.
    dirty: BTreeMap<Vec<u8>, Dirty>,
    /// There is more.
    cut: bool,
}

/// One path that differs from what is committed.
#[derive(Debug, PartialEq, Eq)]
struct Dirty {
    /// As git writes it: two letters.
    status: [u8; 2],
    /// What identifies the content without reading it. `None`: there is no such file.
    print: Option<[i64; 6]>,
}

/// What changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub files: Vec<String>,
    /// There are more than those.
    pub cut: bool,
    /// Only what changed since the start is named. Otherwise the state at the start is not known, and
    /// everything is named that differs from what is committed.
    pub since_start: bool,
}

/// Looks at the repository before the attempt's agent is started. `None`: no repository, no git, or git
/// failed, was too slow, or the run is to stop.
pub async fn at_start(order: &Order, orders: &watch::Receiver<Orders>) -> Option<Tree> {
    tree(order, GIT_START_MAX, Some(&mut orders.clone())).await
}

/// Compares the repository with its state at the start. `None`: no repository, no git, or git failed.
pub async fn changed(order: &Order, before: Option<&Tree>) -> Option<Changes> {
    let now = tree(order, GIT_MAX, None).await?;
    let committed = match before {
        Some(Tree { head, .. }) if *head != now.head => committed(order, head.as_deref(), now.head.as_deref()).await,
        _ => Some(Paths::default()),
    };
    Some(difference(before.filter(|before| !before.cut), now, committed))
}

/// The top of the repository that a directory lies in.
fn top(cwd: &Path) -> Option<&Path> {
    cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())
}

async fn tree(order: &Order, limit: Duration, mut orders: Option<&mut watch::Receiver<Orders>>) -> Option<Tree> {
    let top = top(&order.cwd)?.to_owned();
    let names = git(order, &[], &["config", "--list", "--name-only", "-z"], limit, orders.as_deref_mut()).await?;
    let overrides = disable_filters(&names.output).filter(|_| !names.cut)?;
    let args = ["status", "--porcelain=v2", "--branch", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all", "--", "."];
    let result = git(order, &overrides, &args, limit, orders).await?;
    // Looking at as many files as are named may wait for a disk.
    let looked = tokio::task::spawn_blocking(move || {
        let Status { head, entries, cut } = read_status(&result.output);
        let dirty = entries.into_iter().map(|(path, status)| {
            let print = fingerprint(&top, &path);
            (path, Dirty { status, print })
        });
        Tree { head, dirty: dirty.collect(), cut: cut || result.cut }
    });
    match looked.await {
        Ok(tree) => Some(tree),
        Err(error) => {
            tracing::warn!(%error, "the changed files could not be looked at");
            None
        }
    }
}

/// Tells a file's content apart from another without opening it: a link is not followed.
fn fingerprint(top: &Path, path: &[u8]) -> Option<[i64; 6]> {
    let meta = top.join(PathBuf::from(std::ffi::OsStr::from_bytes(path))).symlink_metadata().ok()?;
    Some([meta.ino().cast_signed(), meta.size().cast_signed(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()])
}

/// Paths from the top of a repository, and whether there are more.
#[derive(Debug, Default)]
struct Paths {
    paths: Vec<Vec<u8>>,
    cut: bool,
}

/// The tree of a repository without a commit, which git knows everywhere.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Lists what differs between two commits. `None`: that cannot be told.
async fn committed(order: &Order, old: Option<&str>, new: Option<&str>) -> Option<Paths> {
    let new = new?;
    let old = old.unwrap_or(EMPTY_TREE);
    let flags = ["--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all"];
    let args: Vec<&str> = ["diff-tree", "-r", "-z", "--name-only"].into_iter().chain(flags).chain([old, new, "--", "."]).collect();
    let result = git(order, &disable_filters(&[])?, &args, GIT_MAX, None).await?;
    let paths = whole_entries(&result.output).map(<[u8]>::to_vec).collect();
    Some(Paths { paths, cut: result.cut })
}

/// Names what changed between two states.
fn difference(before: Option<&Tree>, now: Tree, committed: Option<Paths>) -> Changes {
    let (Some(before), Some(committed)) = (before, committed) else {
        return changes(now.dirty.into_keys().collect(), now.cut, false);
    };
    let mut paths: BTreeSet<Vec<u8>> = committed.paths.into_iter().collect();
    paths.extend(now.dirty.iter().filter(|(path, dirty)| before.dirty.get(*path) != Some(*dirty)).map(|(path, _)| path.clone()));
    // What was dirty and no longer is was put back, or committed: the second is among the commits.
    paths.extend(before.dirty.keys().filter(|path| !now.dirty.contains_key(*path) && !now.cut).cloned());
    changes(paths, now.cut || committed.cut, true)
}

fn changes(paths: BTreeSet<Vec<u8>>, cut: bool, since_start: bool) -> Changes {
    let cut = cut || paths.len() > FILES_MAX;
    let files = paths.iter().take(FILES_MAX).map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    Changes { files, cut, since_start }
}

/// The settings that take every filter of a repository away, beside what is always taken away.
/// `None`: there are too many.
fn disable_filters(names: &[u8]) -> Option<Vec<(String, String)>> {
    let mut settings: Vec<(String, String)> = TAMED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut filters: Vec<String> = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let name = std::str::from_utf8(name).ok()?;
        let Some((filter, _)) = name.strip_prefix("filter.").and_then(|rest| rest.rsplit_once('.')) else { continue };
        if !filters.iter().any(|known| known == filter) {
            filters.push(filter.to_owned());
        }
    }
    if filters.len() > FILTERS_MAX {
        return None;
    }
    for filter in filters {
        for (key, value) in [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")] {
            settings.push((format!("filter.{filter}.{key}"), value.to_owned()));
        }
    }
    Some(settings)
}

async fn git(
    order: &Order,
    settings: &[(String, String)],
    args: &[&str],
    limit: Duration,
    orders: Option<&mut watch::Receiver<Orders>>,
) -> Option<CommandOutput> {
    let path = order.env.get("PATH").map_or("", String::as_str);
    let program = side_command::find("git", path, Path::new("/"))?;
    let mut argv: Vec<OsString> = ["git", "--no-pager", "--no-optional-locks", "--no-replace-objects"].map(Into::into).to_vec();
    argv.extend(args.iter().map(Into::into));
    let mut env: Vec<(OsString, OsString)> = [
        ("PATH", path),
        ("HOME", "/nonexistent"),
        ("LC_ALL", "C"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec();
    env.push((MARKER.into(), format!("{}/{}", order.run_id, order.attempt).into()));
    env.push(("GIT_CONFIG_COUNT".into(), settings.len().to_string().into()));
    for (n, (name, value)) in settings.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{n}").into(), name.into()));
        env.push((format!("GIT_CONFIG_VALUE_{n}").into(), value.into()));
    }
    let side_command = SideCommand { program, argv, env, limit, keep: KeptOutput::Head { bytes_max: OUTPUT_BYTES_MAX } };
    match side_command::run(order, side_command, orders).await {
        Ok(result) if result.exit == Some(Exit::Code(0)) => Some(result),
        Ok(result) => {
            tracing::info!(exit = ?result.exit, stopped = ?result.stopped, "git does not say what has changed");
            None
        }
        Err(error) => {
            tracing::info!(?error, "git could not be started");
            None
        }
    }
}

/// What `git status --porcelain=v2 --branch -z` says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    head: Option<String>,
    entries: Vec<(Vec<u8>, [u8; 2])>,
    /// There are more than were read.
    cut: bool,
}

/// The entries of a list that are whole: each ends with a NUL.
fn whole_entries(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = output.iter().rposition(|byte| *byte == 0).map_or(0, |at| at + 1);
    output[..whole].split(|byte| *byte == 0).filter(|entry| !entry.is_empty())
}

fn read_status(output: &[u8]) -> Status {
    let mut status = Status::default();
    for entry in whole_entries(output) {
        if let Some(oid) = entry.strip_prefix(b"# branch.oid ") {
            let oid = std::str::from_utf8(oid).ok().filter(|oid| oid.len() >= 40 && oid.bytes().all(|byte| byte.is_ascii_hexdigit()));
            status.head = oid.map(str::to_owned);
            continue;
        }
        // How many fields stand before the path.
        let before = match entry.first() {
            Some(b'1') => 8,
            Some(b'u') => 10,
            Some(b'?') => 1,
            _ => continue,
        };
        let mut fields = entry.splitn(before + 1, |byte| *byte == b' ');
        let letters = if before == 1 { Some(&b"??"[..]) } else { fields.nth(1) };
        let path = fields.nth(if before == 1 { 1 } else { before - 2 });
        let (Some(&[x, y]), Some(path)) = (letters, path) else { continue };
        if status.entries.len() == ENTRIES_MAX {
            status.cut = true;
            break;
        }
        status.entries.push((path.to_vec(), [x, y]));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_git_filter_is_disabled() {
        let names = b"core.bare\0filter.lfs.clean\0filter.lfs.process\0filter.a=b.c d.smudge\0";
        let overrides = disable_filters(names).expect("few filters");
        for (name, value) in [("filter.lfs.process", ""), ("filter.lfs.clean", ""), ("filter.a=b.c d.clean", ""), ("core.fsmonitor", "")] {
            assert!(overrides.iter().any(|(known, given)| known == name && given == value), "{name}");
        }
        let many: Vec<u8> = (0..200).flat_map(|n| format!("filter.f{n}.clean\0").into_bytes()).collect();
        assert!(disable_filters(&many).is_none());
    }

    #[test]
    fn git_status_entries_are_parsed() {
        let oid = "a".repeat(40);
        let text = format!("# branch.oid {oid}\0# branch.head main\01 .M N... 100644 100644 100644 {oid} {oid} a b.rs\0? new/x\0? tor");
        let status = read_status(text.as_bytes());
        assert_eq!(status.head.as_deref(), Some(oid.as_str()));
        assert_eq!(status.entries, [(b"a b.rs".to_vec(), *b".M"), (b"new/x".to_vec(), *b"??")]);
        let unmerged = format!("u UU N... 1 2 3 4 {oid} {oid} {oid} both ways\0");
        assert_eq!(read_status(unmerged.as_bytes()).entries, [(b"both ways".to_vec(), *b"UU")]);
        assert_eq!(read_status(b"# branch.oid (initial)\0"), Status::default());
    }

    #[test]
    fn only_changes_since_the_start_are_listed() {
        let dirty = |print: i64| Dirty { status: *b".M", print: Some([print; 6]) };
        let tree = |entries: &[(&str, i64)]| Tree {
            dirty: entries.iter().map(|(path, print)| (path.as_bytes().to_vec(), dirty(*print))).collect(),
            ..Tree::default()
        };
        let before = tree(&[("same", 1), ("again", 1), ("back", 1)]);
        let now = || tree(&[("same", 1), ("again", 2), ("new", 1)]);
        let none = || Some(Paths::default());
        assert_eq!(difference(Some(&before), now(), none()).files, ["again", "back", "new"]);
        let committed = Some(Paths { paths: vec![b"kept".to_vec()], cut: false });
        assert_eq!(difference(Some(&before), now(), committed).files, ["again", "back", "kept", "new"]);
        let unknown = difference(None, now(), none());
        assert_eq!((unknown.files, unknown.since_start), (vec!["again".to_owned(), "new".to_owned(), "same".to_owned()], false));
        let many = Tree { dirty: (0..600).map(|n| (format!("f{n}").into_bytes(), dirty(n))).collect(), ..Tree::default() };
        let named = difference(Some(&before), many, none());
        assert_eq!((named.files.len(), named.cut), (FILES_MAX, true));
    }
}
