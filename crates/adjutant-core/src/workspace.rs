//! Where a run works: in the directory of its dispatch, or in its own workspace.

use crate::words;
use std::collections::BTreeMap;

/// How a run's files are isolated from those of the user and of other runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// The run works in the directory of its dispatch.
    #[default]
    None,
    /// The run works in a clone that shares the objects of the user's repository.
    Clone,
    /// The run works in another work tree of the user's repository.
    Worktree,
}

words!(Isolation { None = "none", Clone = "clone", Worktree = "worktree" });

/// The state of a run's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkspaceState {
    /// It is created before the run's agent starts for the first time. Its base is that of the
    /// dispatch.
    Planned,
    /// An attempt is starting: the base is final, and the agent has not worked in it yet.
    Starting,
    /// The agent works in it, or has worked in it.
    Ready,
    /// Its changes were merged.
    Merged,
    /// Its changes were discarded, and its directory removed.
    Discarded,
}

words!(WorkspaceState { Planned = "planned", Starting = "starting", Ready = "ready", Merged = "merged", Discarded = "discarded" });

/// The settings of the workspaces of a repository: what they contain in addition to the files of
/// their base.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceSpec {
    /// The program and its arguments that run in a new workspace before its agent does. Empty:
    /// none.
    pub setup: Vec<String>,
    pub setup_timeout_ms: i64,
    /// Files of the repository's work tree that are copied into the workspace, from its top.
    pub copy: Vec<String>,
    /// Variables that name a directory shared by all workspaces of the repository: by the name of
    /// the variable, the directory. A relative one is below the repository's directory for caches.
    pub caches: BTreeMap<String, String>,
    /// How many ports a run in the workspace gets. 0: none.
    pub ports: u16,
}

/// Checks a path that is to be copied into a workspace: a file below the top, outside of any git
/// directory.
///
/// # Errors
/// Describes its problem.
pub fn check_copied_path(path: &str) -> Result<(), &'static str> {
    let is_git_directory =
        |part: &str| part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case("git~1");
    if path.is_empty() || path.contains(['\0', '\n']) {
        return Err("name a file");
    }
    if path.starts_with(['/', '~']) {
        return Err("use a path relative to the top of the repository");
    }
    if path.ends_with('/') || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("name a file below the top of the repository, without . and ..");
    }
    if path.split('/').any(is_git_directory) {
        return Err("files in a git directory cannot be copied");
    }
    Ok(())
}

/// Checks the name of a variable that names a shared cache.
///
/// # Errors
/// Describes its problem.
pub fn check_cache_variable(name: &str) -> Result<(), &'static str> {
    let is_name = |name: &str| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    if name.is_empty() || !is_name(name) {
        return Err("use the name of an environment variable, such as CARGO_TARGET_DIR");
    }
    let reserved = [
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP",
    ];
    if reserved.contains(&name)
        || ["ADJ_", "LD_", "DYLD_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    {
        return Err("this variable is reserved");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    #[test]
    fn copied_paths_stay_below_the_top() {
        for good in [".env", "config/local.toml", "a b/..c", ".github/x", "git"] {
            assert_eq!(check_copied_path(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "~/x",
            "../x",
            "a/../../x",
            "a/./b",
            "a//b",
            "a/",
            ".",
            "..",
            ".git/config",
            "a/.GIT/hooks/x",
            "x\ny",
            "GIT~1/config",
        ] {
            assert!(check_copied_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_valid_unreserved_variables_name_caches() {
        for good in ["CARGO_TARGET_DIR", "npm_config_cache", "_X1"] {
            assert_eq!(check_cache_variable(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "1X",
            "A-B",
            "A=B",
            "PATH",
            "HOME",
            "ADJ_HOME",
            "LD_PRELOAD",
            "Ä",
        ] {
            assert!(check_cache_variable(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn accepted_paths_have_only_plain_names(path in "[./a~\\\\ GgIiTt]{0,12}") {
            if check_copied_path(&path).is_ok() {
                prop_assert!(Path::new(&path).components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(Path::new("/top").join(&path).starts_with("/top"));
            }
        }
    }
}
