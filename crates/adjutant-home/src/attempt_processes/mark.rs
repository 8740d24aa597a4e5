//! What marks the processes of an attempt, so that they are recognised when neither its guard nor its
//! supervisor is alive: a text in the environment ([`tree::MARKER`]) and a resource limit
//! ([`crate::process::limit`]). Descendants inherit both.

use crate::process::tree;
use crate::protocol::AttemptDir;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A bit that is set in every value, so that no value is a small number.
const FLAG: u64 = 1 << 61;
/// The number of lower bits that identify the attempt within a home; the upper bits identify the
/// home.
const ATTEMPT_BITS: u32 = 40;
const HOME_MASK: u64 = (FLAG - 1) >> ATTEMPT_BITS << ATTEMPT_BITS;

/// Returns the limit of an attempt. The computation must never change, because a hub sweeps
/// attempts that an older version has started.
#[must_use]
pub fn limit(dir: &AttemptDir) -> u64 {
    let home = dir.0.ancestors().nth(3).unwrap_or(&dir.0);
    FLAG | home_bits(home) | (hash(&dir.0) & ((1 << ATTEMPT_BITS) - 1))
}

/// Returns whether a value belongs to an attempt in this home.
pub(super) fn is_of_home(value: u64, home: &Path) -> bool {
    value & (FLAG | HOME_MASK) == FLAG | home_bits(home) && value < FLAG << 1
}

fn home_bits(home: &Path) -> u64 {
    (hash(home) << ATTEMPT_BITS) & HOME_MASK
}

/// FNV-1a with 64 bits.
fn hash(path: &Path) -> u64 {
    path.as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// Returns the value in the environment of an attempt.
#[must_use]
pub fn text(run_id: &str, attempt: u32) -> String {
    format!("{run_id}/{attempt}")
}

/// Returns the values of the mark in an environment.
pub(super) fn in_environment(env: &[u8]) -> impl Iterator<Item = &[u8]> {
    env.split(|byte| *byte == 0).filter_map(|pair| {
        pair.strip_prefix(tree::MARKER.as_bytes())?
            .strip_prefix(b"=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_names_home_and_attempt() {
        let (one, other) = (
            Path::new("/home/a/.local/state/adjutant"),
            Path::new("/home/b/.local/state/adjutant"),
        );
        let values = [
            AttemptDir::new(one, "r1", 1),
            AttemptDir::new(one, "r1", 2),
            AttemptDir::new(one, "r2", 1),
        ]
        .map(|dir| limit(&dir));
        assert!(values[0] != values[1] && values[0] != values[2] && values[1] != values[2]);
        assert!(
            values
                .iter()
                .all(|value| is_of_home(*value, one) && !is_of_home(*value, other)),
            "{values:?}"
        );
        assert!(!is_of_home(u64::MAX, one) && !is_of_home(0, one));
        assert_eq!(
            limit(&AttemptDir::new(Path::new("/h"), "r", 1)),
            0x3cc9_e2a9_6abd_2914,
            "attempts of older versions have other values"
        );
    }
}
