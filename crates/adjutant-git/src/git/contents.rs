//! The entries of an index that change how a tree is read: attribute files and nested repositories.
//! One listing of the index finds both; the result is cached until one of them changes.

use super::call::error_text;
use super::scratch::Contents;
use super::{GitError, Scratch};

/// Maximum size of the listing of an index, in bytes.
const LIST_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Returns whether a path is that of an attribute file.
pub(super) fn is_attributes(path: &[u8]) -> bool {
    path == b".gitattributes" || path.ends_with(b"/.gitattributes")
}

impl Scratch {
    /// Returns the attribute files and nested repositories of the index.
    pub(super) async fn contents(&self) -> Result<Contents, GitError> {
        if let Some(known) = self.cached_contents() {
            return Ok(known);
        }
        let listed = self
            .call(&["ls-files", "-z", "--stage"])
            .output_bytes_max(LIST_BYTES_MAX)
            .run()
            .await?;
        let list = match (listed.exit_code, listed.is_cut) {
            (Some(0), false) => listed.output,
            (Some(0), true) => {
                tracing::warn!(tree = %self.tree().display(), "the index is too long to be searched for nested repositories");
                self.call(&[
                    "ls-files",
                    "-z",
                    "--stage",
                    "--",
                    ":(glob)**/.gitattributes",
                ])
                .output()
                .await?
            }
            _ => {
                return Err(GitError::Failed {
                    command: "ls-files".to_owned(),
                    why: error_text(&listed),
                });
            }
        };
        let Found { attributes, links } = find(&list);
        let attributes = match attributes.is_empty() {
            true => self
                .repo()
                .converts_line_ends()
                .then(|| self.repo().empty_tree().to_owned()),
            false => Some(self.tree_of_entries(attributes).await?),
        };
        let contents = Contents { attributes, links };
        self.cache_contents(Some(contents.clone()));
        Ok(contents)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Entries in the format of `update-index --index-info`.
    attributes: Vec<u8>,
    links: Vec<(Vec<u8>, String)>,
}

/// Parses the listing of an index: `<mode> <oid> <stage>`, tab, path.
fn find(listed: &[u8]) -> Found {
    let mut found = Found::default();
    for entry in listed.split(|byte| *byte == 0) {
        let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else {
            continue;
        };
        let (described, path) = (&entry[..tab], &entry[tab + 1..]);
        if let Some(link) = described.strip_prefix(b"160000 ") {
            let commit = std::str::from_utf8(link)
                .ok()
                .and_then(|link| link.split(' ').next());
            found
                .links
                .extend(commit.map(|commit| (path.to_owned(), commit.to_owned())));
        } else if is_attributes(path)
            && described.starts_with(b"100")
            && matches!(described.last(), Some(b'0' | b'2'))
        {
            // The only stage, or the user's side of a conflict.
            found
                .attributes
                .extend_from_slice(&described[..described.len() - 2]);
            found.attributes.extend_from_slice(&entry[tab..]);
            found.attributes.push(0);
        }
    }
    found
}

/// Returns the nested repositories in the listing of an index.
pub(super) fn links(listed: &[u8]) -> Vec<(Vec<u8>, String)> {
    find(listed).links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_searched_for_attributes_and_repositories() {
        let listed = b"100644 aaaa 0\t.gitattributes\x00100644 aaaa 0\tfile\x00160000 bbbb 0\tsub/with\ttab\0\
            100644 cccc 2\td/.gitattributes\x00100644 dddd 3\td/.gitattributes\x00120000 eeee 0\te/.gitattributes\0";
        let found = find(listed);
        assert_eq!(
            found.links,
            [(b"sub/with\ttab".to_vec(), "bbbb".to_owned())]
        );
        assert_eq!(
            found.attributes,
            b"100644 aaaa\t.gitattributes\x00100644 cccc\td/.gitattributes\0"
        );
    }
}
