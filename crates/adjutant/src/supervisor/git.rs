//! What git calls changed in the run's directory, without running anything that the repository
//! brings along: no hooks, no file system monitor, no filters, no pager, no fetching, no submodules.
//! A repository is the work of the agent, its configuration included.

use super::aside::{self, Aside, Keep, Ran};
use crate::link::Order;
use crate::process::tree::MARKER;
use adjutant_core::Exit;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// How long git may take.
const GIT_MAX: Duration = Duration::from_secs(10);
/// What is read of its output.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Most files that are named.
const FILES_MAX: usize = 500;
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

/// Lists the files that git calls changed in the order's directory, new ones included, and tells
/// whether there are more. `None`: no repository, no git, or git failed.
pub async fn changed(order: &Order) -> Option<(Vec<String>, bool)> {
    if !order.cwd.ancestors().any(|dir| dir.join(".git").symlink_metadata().is_ok()) {
        return None;
    }
    let names = git(order, &[], &["config", "--list", "--name-only", "-z"]).await?;
    let tamed = tame(&names.output).filter(|_| !names.cut)?;
    let args = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all", "--", "."];
    let ran = git(order, &tamed, &args).await?;
    let (files, more) = listed(&ran.output);
    Some((files, more || ran.cut))
}

/// The settings that take every filter of a repository away, beside what is always taken away.
/// `None`: there are too many.
fn tame(names: &[u8]) -> Option<Vec<(String, String)>> {
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

async fn git(order: &Order, settings: &[(String, String)], args: &[&str]) -> Option<Ran> {
    let path = order.env.get("PATH").map_or("", String::as_str);
    let program = aside::find("git", path, Path::new("/"))?;
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
    let aside = Aside { program, argv, env, limit: GIT_MAX, keep: Keep::Head { bytes_max: OUTPUT_BYTES_MAX } };
    match aside::run(order, aside, None).await {
        Ok(ran) if ran.exit == Some(Exit::Code(0)) => Some(ran),
        Ok(ran) => {
            tracing::info!(exit = ?ran.exit, stopped = ?ran.stopped, "git does not say what has changed");
            None
        }
        Err(error) => {
            tracing::info!(?error, "git could not be started");
            None
        }
    }
}

/// Reads `XY PATH` entries, each ended by a NUL.
fn listed(output: &[u8]) -> (Vec<String>, bool) {
    let whole = output.iter().rposition(|byte| *byte == 0).map_or(0, |at| at + 1);
    let entries = output[..whole].split(|byte| *byte == 0).filter(|entry| entry.len() > 3);
    let mut files: Vec<String> = entries.map(|entry| String::from_utf8_lossy(&entry[3..]).into_owned()).take(FILES_MAX + 1).collect();
    let more = files.len() > FILES_MAX;
    files.truncate(FILES_MAX);
    (files, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_taken_away_whatever_its_name() {
        let names = b"core.bare\0filter.lfs.clean\0filter.lfs.process\0filter.a=b.c d.smudge\0";
        let tamed = tame(names).expect("few filters");
        for (name, value) in [("filter.lfs.process", ""), ("filter.lfs.clean", ""), ("filter.a=b.c d.clean", ""), ("core.fsmonitor", "")] {
            assert!(tamed.iter().any(|(known, given)| known == name && given == value), "{name}");
        }
        let many: Vec<u8> = (0..200).flat_map(|n| format!("filter.f{n}.clean\0").into_bytes()).collect();
        assert!(tame(&many).is_none());
    }

    #[test]
    fn a_list_is_cut_at_whole_entries() {
        assert_eq!(listed(b" M a b.rs\0?? new/\0 D x"), (vec!["a b.rs".to_owned(), "new/".to_owned()], false));
        let many: Vec<u8> = (0..600).flat_map(|n| format!("?? f{n}\0").into_bytes()).collect();
        let (files, more) = listed(&many);
        assert_eq!((files.len(), more), (FILES_MAX, true));
    }
}
