//! Merges two commits in memory. Reads and writes no index, work tree or ref.

use super::call::{Call, error_text};
use super::diff::DiffCall;
use super::{GitError, Scratch};
use crate::process::tool::Output;
use adjutant_core::merge::ConflictKind;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Maximum number of files whose conflicting lines are read.
const HUNKS_FILES_MAX: usize = 20;
/// Maximum size of one file's conflicting lines, in bytes.
const HUNKS_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of bytes of a file that are searched for conflicting lines.
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Lines shown before and after the conflicting ones.
const CONTEXT_LINES: usize = 3;
/// git's exit code for an unknown option.
const UNKNOWN_OPTION: i32 = 129;

/// The purpose of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergePurpose {
    /// To find the conflicting files. Writes no object to the repository.
    Probe,
    /// To show a conflict: also reads the conflicting lines. Writes no object to the repository.
    Explain,
    /// To use the merged tree: writes its objects to the repository.
    Keep,
}

/// Two commits to merge, and their base. Commits are full object ids.
#[derive(Debug, Clone)]
pub struct MergeCall<'a> {
    pub base: &'a str,
    pub ours: &'a str,
    pub theirs: &'a str,
    /// The names of the sides in conflict markers.
    pub ours_label: &'a str,
    pub theirs_label: &'a str,
    pub purpose: MergePurpose,
}

/// The outcome of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeResult {
    /// The merged tree. It exists in the repository only after [`MergePurpose::Keep`].
    Clean { tree: String },
    /// At least one conflict, ordered by path.
    Conflicts(Vec<Conflict>),
}

/// A file that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path from the top of the tree.
    pub path: Vec<u8>,
    pub kind: ConflictKind,
    /// The conflicting lines with git's conflict markers and some context. `None`: not requested,
    /// not text, or too many files.
    pub hunks: Option<String>,
    /// Whether `hunks` is truncated.
    pub is_cut: bool,
}

impl Scratch {
    /// Returns a common ancestor of two commits.
    ///
    /// # Errors
    /// git failed, or the commits have no common ancestor.
    pub async fn merge_base(&self, one: &str, other: &str) -> Result<String, GitError> {
        self.call(&["merge-base", one, other]).line().await
    }

    /// Merges two commits in memory, by content and with rename detection. To compare the trees of
    /// two runs:
    ///
    /// ```text
    /// let call = MergeCall { base, ours, theirs, ours_label: "one", theirs_label: "two", purpose: MergePurpose::Probe };
    /// match scratch.merge(&call).await? {
    ///     MergeResult::Clean { tree } => …,
    ///     MergeResult::Conflicts(files) => …, // path and kind of each
    /// }
    /// ```
    ///
    /// A snapshot is a commit and can be merged directly; [`Scratch::wrap_tree`] makes a commit of
    /// a tree. Attributes are not read: no merge driver runs, nothing is normalised, and
    /// `merge=union` or `-merge` has no effect. Nested repositories are not opened. Requires git
    /// 2.38. Git older than 2.40 does not accept a base, so this creates commits for it whose only
    /// history is the base.
    ///
    /// # Errors
    /// A commit is missing, git is older than 2.38, or git failed.
    pub async fn merge(&self, call: &MergeCall<'_>) -> Result<MergeResult, GitError> {
        let mut base = OsString::from("--merge-base=");
        base.push(call.base);
        let merge = self
            .merge_call(call.purpose)
            .arg(base)
            .arg(call.ours)
            .arg(call.theirs);
        let mut ran = merge.run().await?;
        if ran.exit_code == Some(UNKNOWN_OPTION) {
            ran = self.merge_without_base_option(call).await?;
        }
        self.outcome(call, &ran).await
    }

    /// Merges with a git that finds the base only in the history: creates commits of both sides
    /// whose only parent is the base.
    async fn merge_without_base_option(&self, call: &MergeCall<'_>) -> Result<Output, GitError> {
        let tree = |commit: &str| format!("{commit}^{{tree}}");
        let base = self.wrap_tree(&tree(call.base), &[]).await?;
        let ours = self.wrap_tree(&tree(call.ours), &[&base]).await?;
        let theirs = self.wrap_tree(&tree(call.theirs), &[&base]).await?;
        let ran = self
            .merge_call(call.purpose)
            .arg(ours)
            .arg(theirs)
            .run()
            .await?;
        match ran.exit_code {
            Some(UNKNOWN_OPTION) => Err(GitError::Failed {
                command: "merge-tree".to_owned(),
                why: "git 2.38 or newer is needed".to_owned(),
            }),
            _ => Ok(ran),
        }
    }

    /// Makes a commit of a tree. The same tree and parents give the same commit.
    ///
    /// # Errors
    /// The tree or a parent is missing, or git failed.
    pub async fn wrap_tree(&self, tree: &str, parents: &[&str]) -> Result<String, GitError> {
        let mut call = self.call(&["commit-tree", "-m", "tree"]).arg(tree);
        for parent in parents {
            call = call.arg("-p").arg(parent);
        }
        // Always the same, so that repeated merges of two trees add no further commits to the
        // repository.
        for who in ["AUTHOR", "COMMITTER"] {
            for (what, value) in [
                ("NAME", "adjutant"),
                ("EMAIL", "adjutant@localhost"),
                ("DATE", "@0 +0000"),
            ] {
                call = call.env(&format!("GIT_{who}_{what}"), value);
            }
        }
        call.line().await
    }

    /// Builds a call without a work tree, so that git finds no nested repository.
    fn merge_call(&self, purpose: MergePurpose) -> Call<'_> {
        self.tree_less_call(
            &["merge-tree", "--write-tree", "-z", "--messages"],
            purpose == MergePurpose::Keep,
        )
    }

    /// Parses the output of git: the tree, a NUL, the entries of the conflicting paths, an empty
    /// entry, the messages.
    async fn outcome(&self, call: &MergeCall<'_>, ran: &Output) -> Result<MergeResult, GitError> {
        let failed = |why: String| GitError::Failed {
            command: "merge-tree".to_owned(),
            why,
        };
        if !matches!(ran.exit_code, Some(0 | 1)) {
            return Err(failed(error_text(ran)));
        }
        let tree = ran
            .output
            .split(|byte| *byte == 0)
            .next()
            .and_then(|tree| std::str::from_utf8(tree).ok());
        let Some(tree) = tree
            .filter(|tree| tree.len() >= 40 && tree.bytes().all(|byte| byte.is_ascii_hexdigit()))
        else {
            // Some errors have exit code 1, too.
            return Err(failed(error_text(ran)));
        };
        if ran.exit_code == Some(0) {
            return Ok(MergeResult::Clean {
                tree: tree.to_owned(),
            });
        }
        if ran.is_cut {
            return Err(failed("there are too many conflicts to list".to_owned()));
        }
        let mut conflicts: Vec<Conflict> = read_conflicts(&ran.output)
            .into_iter()
            .map(|(path, kind)| Conflict {
                path,
                kind,
                hunks: None,
                is_cut: false,
            })
            .collect();
        if call.purpose != MergePurpose::Probe {
            let with_lines = |conflict: &&mut Conflict| {
                matches!(
                    conflict.kind,
                    ConflictKind::Content | ConflictKind::AddAdd | ConflictKind::Rename
                )
            };
            for conflict in conflicts
                .iter_mut()
                .filter(|conflict| conflict.kind == ConflictKind::ModifyDelete)
                .take(HUNKS_FILES_MAX)
            {
                (conflict.hunks, conflict.is_cut) = self.one_sided(call, &conflict.path).await?;
            }
            for conflict in conflicts
                .iter_mut()
                .filter(with_lines)
                .take(HUNKS_FILES_MAX)
            {
                let Some(content) = self.merged_file(call, tree, &conflict.path).await? else {
                    continue;
                };
                let (text, is_cut) = hunks(&content, call);
                conflict.is_cut = is_cut || content.len() >= FILE_BYTES_MAX;
                conflict.hunks = Some(text).filter(|text| !text.is_empty());
            }
        }
        Ok(MergeResult::Conflicts(conflicts))
    }

    /// Returns the changes of one side to a file that the other side removed, and whether they are
    /// truncated.
    async fn one_sided(
        &self,
        call: &MergeCall<'_>,
        path: &[u8],
    ) -> Result<(Option<String>, bool), GitError> {
        let Ok(path) = std::str::from_utf8(path) else {
            return Ok((None, false));
        };
        let has_ours = self.has_path(call.ours, path).await?;
        let (by, side, label) = match has_ours {
            true => (call.theirs_label, call.ours, call.ours_label),
            false => (call.ours_label, call.theirs, call.theirs_label),
        };
        let wanted = DiffCall {
            from: call.base.to_owned(),
            to: side.to_owned(),
            paths: vec![path.to_owned()],
            ..DiffCall::default()
        };
        let diff = self.diff(&wanted).await?;
        let mut text = format!("not in {by}; changed by {label}:\n");
        for line in diff
            .text
            .lines()
            .skip_while(|line| !line.starts_with("@@ "))
        {
            if text.len() + line.len() > HUNKS_BYTES_MAX {
                return Ok((Some(text), true));
            }
            text.push_str(line);
            text.push('\n');
        }
        Ok((Some(text), diff.is_cut))
    }

    /// Returns the start of a file of a merged tree. `None`: the tree does not contain the file.
    async fn merged_file(
        &self,
        call: &MergeCall<'_>,
        tree: &str,
        path: &[u8],
    ) -> Result<Option<String>, GitError> {
        let mut name = OsString::from(format!("{tree}:"));
        name.push(OsStr::from_bytes(path));
        let read = self
            .tree_less_call(&["cat-file", "blob"], call.purpose == MergePurpose::Keep)
            .arg(name);
        let ran = read.output_bytes_max(FILE_BYTES_MAX).run().await?;
        Ok((ran.exit_code == Some(0)).then(|| String::from_utf8_lossy(&ran.output).into_owned()))
    }
}

/// Reads the conflicting paths, each with its kind.
fn read_conflicts(output: &[u8]) -> BTreeMap<Vec<u8>, ConflictKind> {
    let mut fields = output.split(|byte| *byte == 0).skip(1);
    // The stages of each path: 1 is the base, 2 ours, 3 theirs.
    let mut stages: BTreeMap<&[u8], [bool; 4]> = BTreeMap::new();
    for entry in fields.by_ref().take_while(|entry| !entry.is_empty()) {
        let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else {
            continue;
        };
        let stage = usize::from(
            entry[..tab]
                .last()
                .map_or(0, |byte| byte.wrapping_sub(b'0')),
        );
        if let Some(there) = stages.entry(&entry[tab + 1..]).or_default().get_mut(stage) {
            *there = true;
        }
    }
    let mut found: BTreeMap<Vec<u8>, ConflictKind> = BTreeMap::new();
    // The paths to which git moves files in the way of a directory, and their original paths.
    let mut moved: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    while let Some(count) = fields
        .next()
        .and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok())
    {
        let paths: Vec<&[u8]> = fields.by_ref().take(count).collect();
        let (Some(kind), Some(_message)) = (fields.next(), fields.next()) else {
            break;
        };
        let Some(kind) = kind_of(kind) else { continue };
        match (kind, &paths[..]) {
            (ConflictKind::FileDirectory, [to, from, ..]) => drop(moved.insert(to, from)),
            // The last two are the new paths of both sides; one of them can be the path itself.
            (ConflictKind::DistinctTypes, [path, sides @ ..]) => moved.extend(
                sides
                    .iter()
                    .filter(|side| *side != path)
                    .map(|side| (*side, *path)),
            ),
            _ => {}
        }
        for path in paths.iter().take(1).chain(
            paths
                .iter()
                .skip(1)
                .filter(|path| stages.contains_key(**path)),
        ) {
            let known = found.entry(path.to_vec()).or_insert(kind);
            // git reports a binary file as both.
            if *known == ConflictKind::Content {
                *known = kind;
            }
        }
    }
    for (path, there) in stages {
        let known = found.entry(path.to_vec()).or_insert(ConflictKind::Other);
        if *known == ConflictKind::Content && matches!(there, [_, false, true, true]) {
            *known = ConflictKind::AddAdd;
        }
    }
    for (to, from) in moved {
        if let Some(kind) = found.remove(to) {
            let known = found.entry(from.to_vec()).or_insert(kind);
            if matches!(
                kind,
                ConflictKind::FileDirectory | ConflictKind::DistinctTypes
            ) {
                *known = kind;
            }
        }
    }
    found
}

/// Parses git's short name of a message type. `None`: the message is not a conflict.
fn kind_of(name: &[u8]) -> Option<ConflictKind> {
    let name = std::str::from_utf8(name)
        .ok()?
        .strip_prefix("CONFLICT (")?
        .trim_end_matches(')');
    Some(match name {
        "contents" | "content" => ConflictKind::Content,
        "binary" => ConflictKind::Binary,
        "modify/delete" => ConflictKind::ModifyDelete,
        "file/directory" => ConflictKind::FileDirectory,
        "distinct modes" | "distinct types" => ConflictKind::DistinctTypes,
        _ if name.contains("submodule") => ConflictKind::Submodule,
        _ if name.contains("rename") => ConflictKind::Rename,
        _ => ConflictKind::Other,
    })
}

/// Returns the conflicting lines of a file with some context, and whether they are truncated.
fn hunks(content: &str, call: &MergeCall<'_>) -> (String, bool) {
    let lines: Vec<&str> = content.lines().collect();
    let mut shown: Vec<(usize, usize)> = Vec::new();
    let mut start = None;
    for (n, line) in lines.iter().enumerate() {
        match start {
            None if is_marker(line, "<<<<<<< ") => start = Some(n),
            Some(first) if is_marker(line, ">>>>>>> ") => {
                let (from, to) = (
                    first.saturating_sub(CONTEXT_LINES),
                    (n + CONTEXT_LINES + 1).min(lines.len()),
                );
                match shown.last_mut() {
                    Some((_, end)) if *end >= from => *end = to,
                    _ => shown.push((from, to)),
                }
                start = None;
            }
            _ => {}
        }
    }
    let mut text = String::new();
    for (from, to) in shown {
        let heading = format!("@@ line {} @@", from + 1);
        for line in std::iter::once(heading.as_str()).chain(lines[from..to].iter().copied()) {
            if text.len() + line.len() > HUNKS_BYTES_MAX {
                return (text, true);
            }
            text.push_str(&label_marker(line, call));
            text.push('\n');
        }
    }
    (text, false)
}

/// Returns whether a line is one of git's markers: its label is an object id, optionally with a
/// path.
fn is_marker(line: &str, marker: &str) -> bool {
    let label = line
        .strip_prefix(marker)
        .and_then(|label| label.split(':').next());
    label.is_some_and(|label| {
        label.len() >= 40 && label.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Replaces the object id in a marker with the name of the side.
fn label_marker(line: &str, call: &MergeCall<'_>) -> String {
    for (marker, label) in [
        ("<<<<<<< ", call.ours_label),
        (">>>>>>> ", call.theirs_label),
    ] {
        if is_marker(line, marker) {
            let path = line
                .split_once(':')
                .map(|(_, path)| format!(":{path}"))
                .unwrap_or_default();
            return format!("{marker}{label}{path}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::{commit, in_repository};
    use std::collections::BTreeMap;

    fn call<'a>(sides: &'a [String; 3], purpose: MergePurpose) -> MergeCall<'a> {
        let [base, ours, theirs] = sides;
        MergeCall {
            base,
            ours,
            theirs,
            ours_label: "yours",
            theirs_label: "writes",
            purpose,
        }
    }

    async fn sides(scratch: &Scratch, files: [&[(&str, &[u8])]; 3]) -> [String; 3] {
        let [base, ours, theirs] = files;
        [
            commit(scratch, base).await,
            commit(scratch, ours).await,
            commit(scratch, theirs).await,
        ]
    }

    fn kinds(merged: MergeResult) -> BTreeMap<String, ConflictKind> {
        let MergeResult::Conflicts(conflicts) = merged else {
            return BTreeMap::new();
        };
        conflicts
            .into_iter()
            .map(|conflict| {
                (
                    String::from_utf8(conflict.path).expect("UTF-8"),
                    conflict.kind,
                )
            })
            .collect()
    }

    #[test]
    fn clean_merge_has_both_changes() {
        in_repository(async |scratch| {
            let sides = sides(
                scratch,
                [
                    &[("a", b"1\n"), ("b", b"1\n")],
                    &[("a", b"2\n"), ("b", b"1\n")],
                    &[("a", b"1\n"), ("c", b"3\n")],
                ],
            )
            .await;
            let merged = scratch
                .merge(&call(&sides, MergePurpose::Probe))
                .await
                .expect("it merges");
            let MergeResult::Clean { tree } = &merged else {
                panic!("{merged:?}")
            };
            let is_there = || async {
                scratch
                    .call(&["cat-file", "-e", tree])
                    .run()
                    .await
                    .expect("it runs")
                    .exit_code
                    == Some(0)
            };
            assert!(
                !is_there().await,
                "a probe writes nothing to the repository"
            );
            assert_eq!(
                scratch
                    .merge(&call(&sides, MergePurpose::Keep))
                    .await
                    .expect("it merges"),
                merged
            );
            assert!(is_there().await);
            let listed = scratch
                .call(&["ls-tree", "--name-only", tree])
                .line()
                .await
                .expect("a tree");
            assert_eq!(listed, "a\nc");
        });
    }

    #[test]
    fn conflicts_have_kinds() {
        in_repository(async |scratch| {
            let base: &[(&str, &[u8])] = &[
                ("both", b"0\n1\n2\n"),
                ("image", b"\0a"),
                ("gone", b"gone\n"),
                ("kept", b"kept\n"),
                ("path", b"path\n"),
            ];
            let ours: &[(&str, &[u8])] = &[
                ("both", b"0\nours\n2\n"),
                ("image", b"\0b"),
                ("gone", b"g2\n"),
                ("kept", b"k2\n"),
                ("path", b"p2\n"),
                ("new", b"x\n"),
            ];
            let theirs: &[(&str, &[u8])] = &[
                ("both", b"0\ntheirs\n2\n"),
                ("image", b"\0c"),
                ("kept", b"kept\n"),
                ("path/file", b"other\n"),
                ("new", b"y\n"),
            ];
            let sides = sides(scratch, [base, ours, theirs]).await;
            let found = scratch
                .merge(&call(&sides, MergePurpose::Explain))
                .await
                .expect("it runs");
            let MergeResult::Conflicts(conflicts) = &found else {
                panic!("{found:?}")
            };
            let both = conflicts
                .iter()
                .find(|conflict| conflict.path == b"both")
                .expect("it conflicts");
            let expected =
                "@@ line 1 @@\n0\n<<<<<<< yours\nours\n=======\ntheirs\n>>>>>>> writes\n2\n";
            assert_eq!(
                (both.hunks.as_deref(), both.is_cut),
                (Some(expected), false)
            );
            let gone = conflicts
                .iter()
                .find(|conflict| conflict.path == b"gone")
                .expect("it conflicts");
            assert_eq!(
                gone.hunks.as_deref(),
                Some("not in writes; changed by yours:\n@@ -1 +1 @@\n-gone\n+g2\n")
            );
            let kinds = kinds(found);
            let of = |path: &str| kinds.get(path).copied();
            assert_eq!(of("both"), Some(ConflictKind::Content), "{kinds:?}");
            assert_eq!(of("image"), Some(ConflictKind::Binary), "{kinds:?}");
            assert_eq!(of("gone"), Some(ConflictKind::ModifyDelete), "{kinds:?}");
            assert_eq!(of("new"), Some(ConflictKind::AddAdd), "{kinds:?}");
            assert_eq!(of("path"), Some(ConflictKind::FileDirectory), "{kinds:?}");
            assert!(of("kept").is_none() && kinds.len() == 5, "{kinds:?}");
        });
    }

    #[test]
    fn older_git_finds_the_base_in_the_history() {
        in_repository(async |scratch| {
            let sides = sides(
                scratch,
                [
                    &[("a", b"1\n"), ("b", b"1\n")],
                    &[("a", b"2\n"), ("b", b"1\n")],
                    &[("a", b"3\n"), ("b", b"2\n")],
                ],
            )
            .await;
            let call = call(&sides, MergePurpose::Explain);
            let ran = scratch
                .merge_without_base_option(&call)
                .await
                .expect("it runs");
            let found = scratch.outcome(&call, &ran).await.expect("it is read");
            assert_eq!(found, scratch.merge(&call).await.expect("it runs"));
            assert_eq!(
                kinds(found),
                BTreeMap::from([("a".to_owned(), ConflictKind::Content)])
            );
        });
    }

    #[test]
    fn missing_commit_is_an_error() {
        in_repository(async |scratch| {
            let mut sides = sides(scratch, [&[], &[("a", b"1\n")], &[("b", b"1\n")]]).await;
            sides[0] = "1".repeat(40);
            let error = scratch
                .merge(&call(&sides, MergePurpose::Probe))
                .await
                .expect_err("the base is missing");
            assert!(error.to_string().starts_with("git merge-tree: "), "{error}");
        });
    }

    #[test]
    fn attributes_and_marker_like_lines_change_nothing() {
        in_repository(async |scratch| {
            let attributes: (&str, &[u8]) = (
                ".gitattributes",
                b"* merge=evil conflict-marker-size=9000000\n",
            );
            let fake = b"<<<<<<< fake\n0\n=======\n>>>>>>> fake\n1\n";
            let ours = b"<<<<<<< fake\n0\n=======\n>>>>>>> fake\n2\n";
            let theirs = b"<<<<<<< fake\n0\n=======\n>>>>>>> fake\n3\n";
            let sides = sides(
                scratch,
                [
                    &[attributes, ("a", fake)],
                    &[attributes, ("a", ours)],
                    &[attributes, ("a", theirs)],
                ],
            )
            .await;
            let found = scratch
                .merge(&call(&sides, MergePurpose::Explain))
                .await
                .expect("it runs");
            let MergeResult::Conflicts(conflicts) = found else {
                panic!("{found:?}")
            };
            let hunks = conflicts[0].hunks.clone().expect("text");
            assert_eq!(
                hunks,
                "@@ line 2 @@\n0\n=======\n>>>>>>> fake\n<<<<<<< yours\n2\n=======\n3\n>>>>>>> writes\n"
            );
        });
    }
}
