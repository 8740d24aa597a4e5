//! Looks for running programs by their names.

use super::tree;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns whether a process of this user runs one of these programs, itself or as the script of an
/// interpreter. Where there is no `/proc`, none is found.
#[must_use]
pub fn is_running(programs: &[&str]) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    let is_named = |word: &[u8]| {
        let name = std::str::from_utf8(word)
            .ok()
            .map(Path::new)
            .and_then(Path::file_name);
        name.and_then(|name| name.to_str())
            .is_some_and(|name| programs.contains(&name))
    };
    tree::all().into_iter().any(|pid| {
        let dir = format!("/proc/{}", pid.as_raw_nonzero());
        let is_own = fs::metadata(&dir).is_ok_and(|meta| meta.uid() == uid);
        is_own
            && fs::read(format!("{dir}/cmdline"))
                .is_ok_and(|line| line.split(|byte| *byte == 0).take(2).any(is_named))
    })
}
