//! Differences between two snapshots.

use super::call::error_text;
use super::{GitError, Scratch};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size of a difference as text, in bytes.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum number of commits to list.
const COMMITS_MAX: usize = 50;

/// Most pairs of trees that one process compares.
const PAIRS_MAX: usize = 64;
/// Most of the list of paths that differ within these pairs, in bytes.
const PATHS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The mode of a nested repository.
pub(super) const GITLINK: &str = "160000";

/// What is wanted of a difference.
#[derive(Debug, Clone, Default)]
pub struct DiffCall {
    /// A commit or a tree.
    pub from: String,
    pub to: String,
    /// Limits the difference to these paths, from the top of the tree. Empty: no limit.
    pub paths: Vec<String>,
    /// Only lists the changed files with their numbers of changed lines.
    pub stat: bool,
    /// Shows changed words instead of changed lines.
    pub words: bool,
}

/// A difference as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    pub text: String,
    /// Whether `text` is truncated.
    pub is_cut: bool,
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffEntry {
    /// The path from the top of the tree.
    pub path: Vec<u8>,
    /// The mode in the older tree, in git's format. `None`: the path is not in the tree.
    pub from_mode: Option<String>,
    pub to_mode: Option<String>,
    /// The object ids. Meaningful only where there is a mode.
    pub from_object: String,
    pub to_object: String,
}

impl Scratch {
    /// Describes what differs between two commits or trees.
    ///
    /// # Errors
    /// git failed, or one of them is missing.
    pub async fn diff(&self, wanted: &DiffCall) -> Result<Diff, GitError> {
        let mut call = self.call(&[
            "diff",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--submodule=short",
        ]);
        if wanted.stat {
            call = call.arg("--stat=100");
        }
        if wanted.words {
            call = call.arg("--word-diff=plain");
        }
        call = call
            .arg("--end-of-options")
            .arg(&wanted.from)
            .arg(&wanted.to)
            .arg("--");
        for path in &wanted.paths {
            call = call.arg(format!(":(top,literal){path}"));
        }
        let ran = call.output_bytes_max(TEXT_BYTES_MAX).run().await?;
        match ran.exit_code {
            Some(0) => Ok(Diff {
                text: String::from_utf8_lossy(&ran.output).into_owned(),
                is_cut: ran.is_cut,
            }),
            _ => Err(GitError::Failed {
                command: "diff".to_owned(),
                why: error_text(&ran),
            }),
        }
    }

    /// Lists the files to which a commit adds git's conflict markers, each with the number of its
    /// first marker line.
    ///
    /// # Errors
    /// git failed, or one of them is missing.
    pub async fn added_conflict_markers(
        &self,
        from: &str,
        to: &str,
    ) -> Result<Vec<(String, usize)>, GitError> {
        let call = self.tree_less_call(
            &[
                "diff",
                "--check",
                "--no-ext-diff",
                "--no-textconv",
                "--end-of-options",
                from,
                to,
            ],
            true,
        );
        let ran = call.output_bytes_max(TEXT_BYTES_MAX).run().await?;
        // Exit code 2 means conflict markers or trailing white space.
        if !matches!(ran.exit_code, Some(0 | 2)) {
            return Err(GitError::Failed {
                command: "diff".to_owned(),
                why: error_text(&ran),
            });
        }
        let mut lines = BTreeMap::<String, Vec<usize>>::new();
        for line in String::from_utf8_lossy(&ran.output).lines() {
            let Some((path, n)) = line
                .strip_suffix(": leftover conflict marker")
                .and_then(|place| place.rsplit_once(':'))
            else {
                continue;
            };
            lines
                .entry(path.to_owned())
                .or_default()
                .extend(n.parse::<usize>());
        }
        let mut found = Vec::new();
        for (path, lines) in lines {
            // A line of seven equals signs can also be the underline of a title.
            let Some(text) = self.file_of(to, &path).await? else {
                continue;
            };
            let is_marker = |n: &usize| {
                let line = n.checked_sub(1).and_then(|at| text.lines().nth(at));
                line.is_some_and(|line| {
                    line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ")
                })
            };
            found.extend(lines.into_iter().find(is_marker).map(|n| (path, n)));
        }
        Ok(found)
    }

    /// Lists the paths that differ between two commits or trees, as text.
    ///
    /// # Errors
    /// git failed, or one of them is missing.
    pub async fn changed_paths(&self, from: &str, to: &str) -> Result<Vec<String>, GitError> {
        Ok(self
            .list(from, to)
            .await?
            .iter()
            .map(|entry| String::from_utf8_lossy(&entry.path).into_owned())
            .collect())
    }

    /// Lists the paths that differ between two commits or trees, in git's order.
    ///
    /// # Errors
    /// git failed, or one of them is missing.
    pub async fn list(&self, from: &str, to: &str) -> Result<Vec<DiffEntry>, GitError> {
        let output = self
            .call(&[
                "diff-tree",
                "-r",
                "-z",
                "--no-renames",
                "--no-abbrev",
                "--end-of-options",
                from,
                to,
            ])
            .output()
            .await?;
        Ok(read_raw(&output))
    }

    /// Lists the files of a commit or tree that have patterns of ignored files.
    pub(super) async fn list_pattern_files(&self, of: &str) -> Result<Vec<DiffEntry>, GitError> {
        let call = self.call(&[
            "diff-tree",
            "-r",
            "-z",
            "--no-renames",
            "--no-abbrev",
            "--end-of-options",
            self.repo().empty_tree(),
            of,
        ]);
        Ok(read_raw(
            &call
                .arg("--")
                .arg(":(top,glob)**/.gitignore")
                .output()
                .await?,
        ))
    }

    /// Lists the paths that differ within each pair of trees, with few processes. Trees, not
    /// commits.
    ///
    /// # Errors
    /// git failed, or a tree is missing.
    pub(super) async fn paths_within(
        &self,
        pairs: &[(&str, &str)],
    ) -> Result<Vec<BTreeSet<Vec<u8>>>, GitError> {
        let mut found = Vec::new();
        for pairs in pairs.chunks(PAIRS_MAX) {
            let input: String = pairs
                .iter()
                .map(|(from, to)| format!("{from} {to}\n"))
                .collect();
            let call = self
                .call(&[
                    "diff-tree",
                    "--stdin",
                    "-r",
                    "-z",
                    "--no-renames",
                    "--no-abbrev",
                ])
                .output_bytes_max(PATHS_BYTES_MAX);
            let listed = read_pairs(&call.input(input.into_bytes()).output().await?);
            // git leaves out a pair that it cannot read.
            if listed.len() != pairs.len() {
                return Err(GitError::Failed {
                    command: "diff-tree".to_owned(),
                    why: "a tree of a snapshot is missing".to_owned(),
                });
            }
            found.extend(listed);
        }
        Ok(found)
    }

    /// Lists the commits that one commit has and another has not, the newest first: a short id and
    /// the subject.
    ///
    /// # Errors
    /// git failed, or one of them is missing.
    pub async fn commits(&self, from: &str, to: &str) -> Result<Vec<String>, GitError> {
        let max = format!("--max-count={COMMITS_MAX}");
        let output = self
            .call(&[
                "rev-list",
                &max,
                "--no-commit-header",
                "--format=%h %s",
                to,
                &format!("^{from}"),
                "--",
            ])
            .output()
            .await?;
        Ok(String::from_utf8_lossy(&output)
            .lines()
            .map(str::to_owned)
            .collect())
    }
}

/// Parses the raw format: `:<mode> <mode> <oid> <oid> <status>`, NUL, path, NUL.
pub(super) fn read_raw(output: &[u8]) -> Vec<DiffEntry> {
    let mode = |text: Option<&str>| {
        text.filter(|mode| mode.bytes().any(|byte| byte != b'0'))
            .map(str::to_owned)
    };
    // `log` ends the entries of each commit with an empty field.
    let mut fields = output
        .split(|byte| *byte == 0)
        .filter(|field| !field.is_empty());
    let mut listed = Vec::new();
    while let (Some(head), Some(path)) = (fields.next(), fields.next()) {
        let Some(head) = std::str::from_utf8(head)
            .ok()
            .and_then(|head| head.strip_prefix(':'))
        else {
            continue;
        };
        let mut words = head.split(' ');
        let (from_mode, to_mode) = (mode(words.next()), mode(words.next()));
        let mut object = || words.next().unwrap_or_default().to_owned();
        listed.push(DiffEntry {
            path: path.to_vec(),
            from_mode,
            to_mode,
            from_object: object(),
            to_object: object(),
        });
    }
    listed
}

/// Reads the raw format of several pairs: the names of both trees and a line break, then the
/// entries.
fn read_pairs(output: &[u8]) -> Vec<BTreeSet<Vec<u8>>> {
    let (mut pairs, mut rest) = (Vec::<BTreeSet<Vec<u8>>>::new(), output);
    while !rest.is_empty() {
        let end = |rest: &[u8], byte: u8| {
            rest.iter()
                .position(|found| *found == byte)
                .unwrap_or(rest.len())
        };
        let after = |rest, at: usize| <[u8]>::get(rest, at.saturating_add(1)..).unwrap_or_default();
        if rest[0] != b':' {
            pairs.push(BTreeSet::new());
            rest = after(rest, end(rest, b'\n'));
            continue;
        }
        rest = after(rest, end(rest, 0));
        let at = end(rest, 0);
        if let Some(pair) = pairs.last_mut() {
            pair.insert(rest[..at].to_vec());
        }
        rest = after(rest, at);
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_several_pairs_are_read() {
        let raw =
            b"aaaa bbbb\n:100644 000000 cccc 0000 D\0gone\0:000000 100644 0000 cccc A\0a\nb\0bbbb bbbb\nbbbb aaaa\n:000000 100644 0000 cccc A\0:x\0";
        let paths = |paths: &[&str]| {
            paths
                .iter()
                .map(|path| path.as_bytes().to_vec())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(
            read_pairs(raw),
            [paths(&["gone", "a\nb"]), paths(&[]), paths(&[":x"])]
        );
        assert_eq!(read_pairs(b""), []);
    }

    #[test]
    fn raw_difference_is_read() {
        let raw = b":100644 000000 aaaa 0000 D\0gone\0:000000 120000 0000 bbbb A\0a link\0";
        let path = |path: &str, from: (Option<&str>, &str), to: (Option<&str>, &str)| DiffEntry {
            path: path.as_bytes().to_vec(),
            from_mode: from.0.map(str::to_owned),
            to_mode: to.0.map(str::to_owned),
            from_object: from.1.to_owned(),
            to_object: to.1.to_owned(),
        };
        let gone = path("gone", (Some("100644"), "aaaa"), (None, "0000"));
        assert_eq!(
            read_raw(raw),
            [
                gone,
                path("a link", (None, "0000"), (Some("120000"), "bbbb"))
            ]
        );
        assert_eq!(read_raw(b""), []);
    }
}
