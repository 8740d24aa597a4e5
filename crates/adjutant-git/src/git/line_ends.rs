//! Text attributes of a tree (`text`, `eol`, `working-tree-encoding`, `ident`): content is stored
//! as git itself would commit it, and written as git would check it out. No filter runs, because
//! Adjutant's git directory configures none.
//!
//! Attributes are read from a tree object, never from files on disk, which can be FIFOs or links.
//! If git would check out a file with different bytes, a second tree stores the exact bytes, so
//! that a restore writes them:
//!
//! ```text
//!  snapshot   tree as git would commit it
//!     └─ second parent, if a file needs it: only those files, byte by byte
//! ```

use super::diff::DiffEntry;
use super::paths::{as_path, nul_terminated};
use super::{GitError, Scratch};
use crate::files;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The attributes that change content without running a program.
const ATTRIBUTES: [&str; 5] = ["text", "crlf", "eol", "working-tree-encoding", "ident"];

/// Maximum size of an attribute's name and value in the output of git, with their NULs, in bytes.
const RECORD_BYTES_MAX: usize = 100;

/// Maximum size of a list of files, in bytes.
const LIST_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Maximum number of unchanged text files whose bytes are compared with those that git would check
/// out.
const UNUSUAL_MAX: usize = 2_000;

/// An index entry of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    mode: String,
    object: String,
}

impl Entry {
    /// Returns the entry as a difference with the same content on both sides.
    pub(super) fn listed(&self, path: &[u8]) -> DiffEntry {
        let Self { mode, object } = self;
        let (from_mode, to_mode) = (Some(mode.clone()), Some(mode.clone()));
        DiffEntry {
            path: path.to_vec(),
            from_mode,
            to_mode,
            from_object: object.clone(),
            to_object: object.clone(),
        }
    }
}

/// Files, grouped by whether git converts their content.
#[derive(Debug, Default)]
pub(super) struct TextFiles {
    /// Attributes or settings can change their content.
    pub texts: Vec<Vec<u8>>,
    pub others: Vec<Vec<u8>>,
    /// The texts that git can check out with bytes that differ from the stored ones.
    pub changed_at_checkout: HashSet<Vec<u8>>,
}

/// Removes what an interrupted call has left, so that no old entry gets into the tree.
fn remove_index(index: &Path) -> Result<(), GitError> {
    match fs::remove_file(index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(GitError::file(index)),
    }
}

impl Scratch {
    /// Creates a tree from entries in the format of `update-index --index-info`.
    pub(super) async fn tree_of_entries(&self, entries: Vec<u8>) -> Result<String, GitError> {
        let index = self.index().with_extension("entries");
        remove_index(&index)?;
        let call = |args: &[&str]| self.call(args).env("GIT_INDEX_FILE", &index);
        call(&["update-index", "-z", "--add", "--index-info"])
            .input(entries)
            .output()
            .await?;
        call(&["write-tree", "--missing-ok"]).line().await
    }

    /// Returns the files whose content attributes can change, and the others.
    pub(super) async fn text_files(
        &self,
        attributes: &str,
        paths: Vec<Vec<u8>>,
    ) -> Result<TextFiles, GitError> {
        let mut found = TextFiles::default();
        if paths.is_empty() {
            return Ok(found);
        }
        let args = [&["check-attr", "-z", "--stdin"], ATTRIBUTES.as_slice()].concat();
        let input = nul_terminated(&paths);
        // The output has the path, the attribute and its value, for each path and attribute.
        let output_bytes_max = ATTRIBUTES.len() * (input.len() + paths.len() * RECORD_BYTES_MAX);
        let output = self
            .text_call(&args, attributes)
            .input(input)
            .output_bytes_max(output_bytes_max)
            .output()
            .await?;
        let mut texts: HashSet<Vec<u8>> = HashSet::new();
        let mut fields = output.split(|byte| *byte == 0);
        let by_settings = self.repo().converts_line_ends();
        while let (Some(path), Some(name), Some(value)) =
            (fields.next(), fields.next(), fields.next())
        {
            let is_set = value != b"unspecified" && value != b"unset";
            if is_set && matches!(name, b"eol" | b"working-tree-encoding" | b"ident") || by_settings
            {
                found.changed_at_checkout.insert(path.to_vec());
            }
            if is_set || (by_settings && name == b"text" && value == b"unspecified") {
                texts.insert(path.to_vec());
            }
        }
        (found.texts, found.others) = paths.into_iter().partition(|path| texts.contains(path));
        Ok(found)
    }

    /// Lists unchanged text files that may differ from what git would check out, such as a file
    /// with CRLF line ends that was committed with LF. Files in `read` are left out.
    pub(super) async fn unusual_texts(
        &self,
        attributes: &str,
        read: &HashSet<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, GitError> {
        let listed = self
            .call(&["ls-files", "-z", "--format=%(objectsize) %(path)"])
            .output_bytes_max(LIST_BYTES_MAX)
            .run()
            .await?;
        if listed.exit_code != Some(0) {
            // A partial clone lacks some objects.
            tracing::debug!(
                why = super::call::error_text(&listed),
                "the bytes of unchanged files are not compared"
            );
            return Ok(Vec::new());
        }
        let mut other_size = HashSet::new();
        let mut paths = Vec::new();
        for entry in listed.output.split(|byte| *byte == 0) {
            let Some(blank) = entry.iter().position(|byte| *byte == b' ') else {
                continue;
            };
            let (size, path) = (
                std::str::from_utf8(&entry[..blank])
                    .ok()
                    .and_then(|size| size.parse::<u64>().ok()),
                &entry[blank + 1..],
            );
            let Ok(meta) = fs::symlink_metadata(self.tree().join(as_path(path))) else {
                continue;
            };
            if !meta.is_file() || read.contains(path) {
                continue;
            }
            if size != Some(meta.len()) {
                other_size.insert(path.to_vec());
            }
            paths.push(path.to_vec());
        }
        let TextFiles {
            texts,
            changed_at_checkout,
            ..
        } = self.text_files(attributes, paths).await?;
        // Without such an attribute, git checks out the stored bytes.
        let mut unusual: Vec<Vec<u8>> = texts
            .into_iter()
            .filter(|path| changed_at_checkout.contains(path) || other_size.contains(path))
            .collect();
        unusual.truncate(UNUSUAL_MAX);
        Ok(unusual)
    }

    /// Lists the files of a tree of exact bytes. `None`: there are none.
    pub(super) async fn exact_files(
        &self,
        bytes: Option<&str>,
    ) -> Result<BTreeMap<Vec<u8>, Entry>, GitError> {
        let Some(bytes) = bytes else {
            return Ok(BTreeMap::new());
        };
        let listed = self
            .call(&["ls-tree", "-r", "-z", "--full-tree", bytes])
            .output()
            .await?;
        // `<mode> blob <oid>`, tab, path.
        let entry = |entry: &[u8]| {
            let tab = entry.iter().position(|byte| *byte == b'\t')?;
            let mut words = std::str::from_utf8(&entry[..tab]).ok()?.split(' ');
            let (mode, object) = (words.next()?.to_owned(), words.nth(1)?.to_owned());
            Some((entry[tab + 1..].to_vec(), Entry { mode, object }))
        };
        Ok(listed.split(|byte| *byte == 0).filter_map(entry).collect())
    }

    /// Stores the exact bytes of the files that git would check out differently. `texts` were just
    /// read; `known` are unchanged since the last snapshot. Returns the tree, if there is one.
    pub(super) async fn keep_exact(
        &self,
        attributes: Option<&str>,
        texts: &[Vec<u8>],
        known: BTreeMap<Vec<u8>, Entry>,
    ) -> Result<Option<String>, GitError> {
        let mut entries: Vec<u8> = Vec::new();
        for (path, Entry { mode, object }) in &known {
            for part in [mode.as_bytes(), b" ", object.as_bytes(), b"\t", path, b"\0"] {
                entries.extend_from_slice(part);
            }
        }
        let differing = match attributes {
            Some(attributes) => self.differing_texts(attributes, texts).await?,
            None => Vec::new(),
        };
        if !differing.is_empty() {
            let index = self.index().with_extension("exact");
            remove_index(&index)?;
            let call = |args: &[&str]| self.call(args).env("GIT_INDEX_FILE", &index);
            call(&["update-index", "-z", "--add", "--remove", "--stdin"])
                .input(nul_terminated(&differing))
                .output()
                .await?;
            entries.extend(call(&["ls-files", "-z", "--stage"]).output().await?);
        }
        if entries.is_empty() {
            Ok(None)
        } else {
            self.tree_of_entries(entries).await.map(Some)
        }
    }

    /// Returns the files of the index whose bytes in the tree differ from those that git would
    /// check out.
    async fn differing_texts(
        &self,
        attributes: &str,
        texts: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>, GitError> {
        // Links are never converted.
        let is_file = |path: &&Vec<u8>| {
            fs::symlink_metadata(self.tree().join(as_path(path))).is_ok_and(|found| found.is_file())
        };
        let texts: Vec<Vec<u8>> = texts.iter().filter(is_file).cloned().collect();
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let stage = self.stage();
        fs::create_dir_all(&stage).map_err(GitError::file(&stage))?;
        let mut prefix = std::ffi::OsString::from("--prefix=");
        prefix.push(&stage);
        prefix.push("/");
        let call = self
            .text_call(
                &["checkout-index", "--force", "--quiet", "-z", "--stdin"],
                attributes,
            )
            .arg(prefix);
        // A file that was removed meanwhile is not checked out.
        call.input(nul_terminated(&texts)).run().await?;
        let (staged, tree) = (stage.clone(), self.tree().to_owned());
        let compared = tokio::task::spawn_blocking(move || {
            texts
                .into_iter()
                .filter(|path| !has_same_bytes(&staged, &tree, as_path(path)))
                .collect::<Vec<_>>()
        });
        let differing = compared.await.map_err(|error| GitError::Failed {
            command: "checkout-index".to_owned(),
            why: error.to_string(),
        })?;
        fs::remove_dir_all(&stage).map_err(GitError::file(&stage))?;
        Ok(differing)
    }
}

/// Returns whether a staged file and a file of the tree have the same bytes. An unreadable file
/// counts as different. Links are not followed, and opening a FIFO does not block, because the file
/// may have been replaced.
fn has_same_bytes(stage: &Path, tree: &Path, path: &Path) -> bool {
    let open = || {
        Ok::<_, io::Error>((
            files::open(stage, &stage.join(path))?,
            files::open(tree, &tree.join(path))?,
        ))
    };
    let Ok((staged, file)) = open().inspect_err(
        |error| tracing::debug!(%error, path = %path.display(), "a text is kept byte by byte"),
    ) else {
        return false;
    };
    let is_same_size = || Ok::<_, io::Error>(staged.metadata()?.len() == file.metadata()?.len());
    if !is_same_size().unwrap_or(false) {
        return false;
    }
    let (mut one, mut other) = (BufReader::new(&staged), BufReader::new(&file));
    let (mut first, mut second) = ([0; 8192], [0; 8192]);
    loop {
        let Ok(count) = one.read(&mut first) else {
            return false;
        };
        if other.read_exact(&mut second[..count]).is_err() || first[..count] != second[..count] {
            return false;
        }
        if count == 0 {
            return true;
        }
    }
}
