//! Directories with so many untracked files that a snapshot leaves them out as a whole: their
//! content is usually generated, and storing it would delay the start and the end of every attempt.

use std::collections::BTreeMap;

/// Maximum number of untracked files that one snapshot adds.
pub(super) const UNTRACKED_FILES_MAX: usize = 20_000;

/// A directory to leave out, and how many untracked files it has. The empty path is the top of the
/// tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Crowded {
    /// Ends with a slash, unless it is the top.
    pub path: Vec<u8>,
    pub files: usize,
}

impl Crowded {
    pub(super) fn contains(&self, path: &[u8]) -> bool {
        path.starts_with(&self.path)
    }

    /// Describes why it is left out.
    pub(super) fn why(&self) -> String {
        format!(
            "{} untracked files, too many for one snapshot: ignore them in .gitignore, or commit them",
            self.files
        )
    }
}

/// Returns the directories to leave out, so that at most `max` of the files remain: the deepest
/// ones that have more than half as many, the largest first. The choice hardly depends on other
/// files, so that later snapshots make the same.
pub(super) fn crowded(paths: &[&[u8]], max: usize) -> Vec<Crowded> {
    let mut left = paths.len();
    let until_it_fits = |candidates: Vec<Crowded>, left: &mut usize| -> Vec<Crowded> {
        let is_needed = |directory: &Crowded| {
            let is_needed = *left > max;
            *left -= if is_needed { directory.files } else { 0 };
            is_needed
        };
        let mut candidates = candidates;
        candidates.sort_by(|one, other| {
            other
                .files
                .cmp(&one.files)
                .then_with(|| one.path.cmp(&other.path))
        });
        candidates.into_iter().take_while(is_needed).collect()
    };
    if left <= max {
        return Vec::new();
    }
    let deepest = until_it_fits(deepest(paths, b"", max / 2), &mut left);
    if left <= max {
        return deepest;
    }
    // The files are in many directories.
    left = paths.len();
    let largest = directories(paths, b"")
        .into_iter()
        .map(|(path, files)| Crowded {
            path: path.to_vec(),
            files,
        })
        .collect();
    let largest = until_it_fits(largest, &mut left);
    if left <= max {
        largest
    } else {
        vec![Crowded {
            path: Vec::new(),
            files: paths.len(),
        }]
    }
}

/// Returns the directories below `parent` with more than `min` files and no subdirectory with as
/// many.
fn deepest(paths: &[&[u8]], parent: &[u8], min: usize) -> Vec<Crowded> {
    let mut found = Vec::new();
    for (path, files) in directories(paths, parent)
        .into_iter()
        .filter(|(_, files)| *files > min)
    {
        let below = deepest(paths, path, min);
        if below.is_empty() {
            found.push(Crowded {
                path: path.to_vec(),
                files,
            });
        }
        found.extend(below);
    }
    found
}

/// Counts the files below each directory that is directly in `parent`.
fn directories<'a>(paths: &[&'a [u8]], parent: &[u8]) -> BTreeMap<&'a [u8], usize> {
    let mut counts = BTreeMap::new();
    for path in paths.iter().filter(|path| path.starts_with(parent)) {
        // A nested repository is listed with a slash at its end.
        if let Some(slash) = path[parent.len()..]
            .iter()
            .position(|byte| *byte == b'/')
            .filter(|at| parent.len() + at + 1 < path.len())
        {
            *counts.entry(&path[..=parent.len() + slash]).or_insert(0) += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: &[String], max: usize) -> Vec<(String, usize)> {
        let paths: Vec<&[u8]> = paths.iter().map(String::as_bytes).collect();
        crowded(&paths, max)
            .into_iter()
            .map(|found| (String::from_utf8(found.path).expect("text"), found.files))
            .collect()
    }

    fn files(directory: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("{directory}{n}")).collect()
    }

    #[test]
    fn crowded_directories_are_left_out() {
        let few = [files("src/", 8), files("", 2)].concat();
        assert_eq!(found(&few, 10), []);
        let one = [
            few.clone(),
            (0..20)
                .flat_map(|n| files(&format!("web/node_modules/{n}/"), 3))
                .collect(),
            files("web/", 3),
        ]
        .concat();
        assert_eq!(
            found(&one, 15),
            [("web/node_modules/".to_owned(), 60)],
            "neither `web` nor `src`"
        );
        let barely = [few.clone(), files("web/node_modules/", 11)].concat();
        assert_eq!(
            found(&barely, 20),
            [("web/node_modules/".to_owned(), 11)],
            "as a whole, whatever the excess"
        );
        let two = [few.clone(), files("a/", 30), files("b/", 20)].concat();
        assert_eq!(
            found(&two, 12),
            [("a/".to_owned(), 30), ("b/".to_owned(), 20)]
        );
        // Many directories, each with few files.
        let many: Vec<String> = (0..50).flat_map(|n| files(&format!("{n}/"), 3)).collect();
        assert_eq!(
            found(&[files("0/", 3), many].concat(), 147),
            [("0/".to_owned(), 6)]
        );
        assert_eq!(found(&files("", 30), 10), [(String::new(), 30)]);
        assert_eq!(
            found(
                &(0..30)
                    .map(|n| format!("repository{n}/"))
                    .collect::<Vec<_>>(),
                10
            ),
            [(String::new(), 30)]
        );
    }
}
