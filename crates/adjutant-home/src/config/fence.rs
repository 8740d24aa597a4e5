//! The fence that a configuration asks for.

use super::values::UnusableValues;
use adjutant_core::Fence;
use std::path::Path;

/// Parses a fence. `None`: none is set, or its problem is reported.
pub(super) fn fence(
    field: &str,
    word: Option<&str>,
    unusable: &mut UnusableValues,
) -> Option<Fence> {
    let read = |word| {
        Fence::from_word(word)
            .ok_or_else(|| format!("unknown fence {word:?}: use none, workspace or best-effort"))
    };
    word.and_then(|word| unusable.check(field, read(word)))
}

/// Checks the directories that a fence leaves writable.
pub(super) fn check_dirs(field: &str, dirs: &[String], unusable: &mut UnusableValues) {
    for dir in dirs.iter().filter(|dir| {
        !dir.starts_with("~/") && (!dir.starts_with('/') || Path::new(dir) == Path::new("/"))
    }) {
        unusable.report(
            field,
            format!("{dir:?} cannot be used: write an absolute path, or one that begins with ~/"),
        );
    }
}
