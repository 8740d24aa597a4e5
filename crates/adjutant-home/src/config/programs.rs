//! Finds programs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds a program by its path, or by its name in the absolute directories of `path`.
#[must_use]
pub fn find_program(program: &str, path: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    path.split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| Path::new(dir).join(program))
        .find(is_program)
}
