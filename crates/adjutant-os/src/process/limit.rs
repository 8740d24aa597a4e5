//! A resource limit that identifies a process and its descendants by a number.
//!
//! A process that clears its environment loses the mark there ([`super::tree::MARKER`]), and an
//! ordinary user cannot read the environment of a process that is not dumpable. Limits are
//! inherited too, and every user can read them. The limit is the soft limit of file locks
//! (`RLIMIT_LOCKS`), which Linux has not enforced since 2.4.25. The hard limit is unchanged, so
//! agents lose nothing. A process that changes the limit is not identified.

use super::{Pid, properties};
use std::io;

/// Sets the value for this process and its descendants.
///
/// # Errors
/// The hard limit is lower.
#[cfg(target_os = "linux")]
pub fn set(value: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Locks).maximum;
    Ok(setrlimit(
        Resource::Locks,
        Rlimit {
            current: Some(value),
            maximum,
        },
    )?)
}

/// There is no such limit here.
#[cfg(not(target_os = "linux"))]
pub fn set(_value: u64) -> io::Result<()> {
    Ok(())
}

/// Returns the value of a process. `None`: it has none, or has ended.
///
/// # Errors
/// As [`properties::command_line`].
pub fn of_process(pid: Pid) -> io::Result<Option<u64>> {
    Ok(properties::limits(pid)?.and_then(|limits| in_limits(&limits)))
}

/// Finds the value in the kernel's text about the limits of a process.
fn in_limits(limits: &[u8]) -> Option<u64> {
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
    fn limits_without_a_value_have_none() {
        let line =
            "Max file locks            2305843009213693952  unlimited            locks     \n";
        assert_eq!(
            in_limits(format!("Limit Soft Hard\n{line}").as_bytes()),
            Some(1 << 61)
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
