//! A resource limit that identifies the processes of an attempt when neither its guard nor its supervisor is alive.
//!
//! A process that clears its environment loses the marker there ([`super::tree::MARKER`]), and an ordinary user cannot read
//! the environment of a process that is not dumpable. Limits are inherited too, and every user can read them. The limit is
//! the soft limit of file locks (`RLIMIT_LOCKS`), which Linux has not enforced since 2.4.25. The hard limit is unchanged, so
//! agents lose nothing. A process that changes the limit is not identified.

use super::Pid;
use crate::link::AttemptDir;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A bit that is set in every value, so that no value is a small number.
const FLAG: u64 = 1 << 61;
/// The number of lower bits that identify the attempt within a home; the upper bits identify the home.
const ATTEMPT_BITS: u32 = 40;
const HOME_MASK: u64 = (FLAG - 1) >> ATTEMPT_BITS << ATTEMPT_BITS;

/// Returns the value of an attempt. The computation must never change, because a hub sweeps attempts that an older version
/// has started.
#[must_use]
pub fn of_attempt(dir: &AttemptDir) -> u64 {
    let home = dir.0.ancestors().nth(3).unwrap_or(&dir.0);
    FLAG | home_bits(home) | (hash(&dir.0) & ((1 << ATTEMPT_BITS) - 1))
}

/// Returns whether a value belongs to an attempt in this home.
#[must_use]
pub fn is_of_home(value: u64, home: &Path) -> bool {
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

/// Sets the attempt's value for this process and its descendants.
///
/// # Errors
/// The hard limit is lower.
#[cfg(target_os = "linux")]
pub fn set(dir: &AttemptDir) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Locks).maximum;
    Ok(setrlimit(
        Resource::Locks,
        Rlimit {
            current: Some(of_attempt(dir)),
            maximum,
        },
    )?)
}

/// There is no such limit here.
#[cfg(not(target_os = "linux"))]
pub fn set(_dir: &AttemptDir) -> io::Result<()> {
    Ok(())
}

/// Returns the value of a process. `None`: it has none, or has ended.
#[must_use]
pub fn of_process(pid: Pid) -> Option<u64> {
    in_limits(&std::fs::read(format!("/proc/{}/limits", pid.as_raw_nonzero())).ok()?)
}

/// Finds the value in the kernel's text about the limits of a process.
#[must_use]
pub fn in_limits(limits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(limits).ok()?;
    let soft = text
        .lines()
        .find_map(|line| line.strip_prefix("Max file locks"))?
        .split_ascii_whitespace()
        .next()?;
    soft.parse().ok()
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
        .map(|dir| of_attempt(&dir));
        assert!(values[0] != values[1] && values[0] != values[2] && values[1] != values[2]);
        assert!(
            values
                .iter()
                .all(|value| is_of_home(*value, one) && !is_of_home(*value, other)),
            "{values:?}"
        );
        assert!(!is_of_home(u64::MAX, one) && !is_of_home(0, one));
        assert_eq!(
            of_attempt(&AttemptDir::new(Path::new("/h"), "r", 1)),
            0x3cc9_e2a9_6abd_2914,
            "attempts of older versions have other values"
        );
    }

    #[test]
    fn limits_without_a_value_have_none() {
        let line =
            "Max file locks            2305843009213693952  unlimited            locks     \n";
        assert_eq!(
            in_limits(format!("Limit Soft Hard\n{line}").as_bytes()),
            Some(FLAG)
        );
        assert_eq!(
            in_limits(
                b"Max file locks            unlimited            unlimited            locks     \n"
            ),
            None
        );
        assert_eq!(in_limits(b""), None);
    }
}
