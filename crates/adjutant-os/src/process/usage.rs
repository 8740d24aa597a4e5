//! The resources that a process and everything below it use.

use super::tree::descendants;
use adjutant_core::resources::Measurement;
use rustix::process::Pid;
use std::fs;

/// The kernel's accounts of children that have ended and were waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReapedUse {
    pub cpu_ms: u64,
    pub written_bytes: u64,
    /// The peak of the largest one.
    pub largest_bytes: u64,
}

/// Returns the resources that this process's ended children and their reaped descendants have used
/// so far.
#[must_use]
#[expect(unsafe_code, reason = "rustix does not wrap getrusage(2)")]
pub fn reaped() -> ReapedUse {
    // The types of the fields differ between systems.
    fn count(number: impl TryInto<u64>) -> u64 {
        number.try_into().unwrap_or(0)
    }
    // SAFETY: `usage` is a valid, writable `rusage`, which is plain data for which all zeroes are a
    // value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) != 0 {
            return ReapedUse::default();
        }
        usage
    };
    let ms = |time: libc::timeval| {
        count(time.tv_sec)
            .saturating_mul(1_000)
            .saturating_add(count(time.tv_usec) / 1_000)
    };
    ReapedUse {
        cpu_ms: ms(usage.ru_utime).saturating_add(ms(usage.ru_stime)),
        // In blocks of 512 bytes (getrusage(2)).
        written_bytes: count(usage.ru_oublock).saturating_mul(512),
        largest_bytes: count(usage.ru_maxrss).saturating_mul(1024),
    }
}

/// Measures everything below a process. `output_bytes` stays 0.
#[must_use]
pub fn below(root: Pid) -> Measurement {
    let mut sum = Measurement::default();
    let mut shared_most = 0;
    for pid in descendants(root) {
        // A process that ends meanwhile is counted with its parent the next time.
        let Some(use_of) = process(pid) else { continue };
        sum.processes = sum.processes.saturating_add(1);
        sum.memory_bytes = sum.memory_bytes.saturating_add(use_of.private_bytes);
        shared_most = shared_most.max(use_of.shared_bytes);
        sum.cpu_ms = sum.cpu_ms.saturating_add(use_of.cpu_ms);
        if let Some(written) = use_of.written_bytes {
            sum.written_bytes = Some(sum.written_bytes.unwrap_or(0).saturating_add(written));
        }
    }
    sum.memory_bytes = sum.memory_bytes.saturating_add(shared_most);
    sum
}

/// Returns the memory of this process in bytes. `None`: the kernel does not say.
#[must_use]
pub fn own_memory() -> Option<u64> {
    let use_of = process(rustix::process::getpid())?;
    Some(use_of.private_bytes.saturating_add(use_of.shared_bytes))
}

struct ProcessUse {
    private_bytes: u64,
    shared_bytes: u64,
    cpu_ms: u64,
    written_bytes: Option<u64>,
}

fn process(pid: Pid) -> Option<ProcessUse> {
    let dir = format!("/proc/{}", pid.as_raw_nonzero());
    let stat = fs::read_to_string(format!("{dir}/stat")).ok()?;
    let statm = fs::read_to_string(format!("{dir}/statm")).ok()?;
    let (resident, shared) = pages(&statm)?;
    let page = rustix::param::page_size() as u64;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Some(ProcessUse {
        private_bytes: resident.saturating_sub(shared).saturating_mul(page),
        shared_bytes: shared.saturating_mul(page),
        cpu_ms: cpu_ticks(&stat)?.saturating_mul(1_000) / ticks,
        written_bytes: fs::read_to_string(format!("{dir}/io"))
            .ok()
            .and_then(|io| written_bytes(&io)),
    })
}

/// Sums up user and system time of a process and of the children that it waited for, from
/// `/proc/<pid>/stat`. `None`: it is a zombie, whose time its parent gets, or the text is not as
/// expected.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // utime, stime, cutime and cstime are the fields 14 to 17 of proc(5), 11 fields after the
    // state.
    fields.skip(10).take(4).try_fold(0_u64, |sum, field| {
        Some(sum.saturating_add(u64::try_from(field.parse::<i64>().ok()?).unwrap_or(0)))
    })
}

/// Returns resident and shared pages from `/proc/<pid>/statm`.
fn pages(statm: &str) -> Option<(u64, u64)> {
    let mut fields = statm.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Returns what a process and the children that it waited for wrote to disk, from `/proc/<pid>/io`.
fn written_bytes(io: &str) -> Option<u64> {
    let number = |name: &str| {
        io.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    // What was written and then removed before it reached the disk was not written.
    Some(number("write_bytes:")?.saturating_sub(number("cancelled_write_bytes:").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) b) R) S 1 7 7 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 500 1000 5";
        assert_eq!(cpu_ticks(stat), Some(110));
        assert_eq!(
            cpu_ticks("7 (a) Z 1 7 7 0 -1 4194560 100 200 0 0 11 22 33 44"),
            None
        );
        assert_eq!((cpu_ticks("7 (a) S 1"), cpu_ticks("")), (Some(0), None));
        assert_eq!(pages("500 120 20 1 0 3 0\n"), Some((120, 20)));
        assert_eq!(
            written_bytes("rchar: 9\nwrite_bytes: 4096\ncancelled_write_bytes: 96\n"),
            Some(4_000)
        );
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "this module measures processes, those of a test too"
    )]
    fn child_that_uses_memory_and_time_is_measured() {
        const BLOCK: u64 = 128 << 20;
        let before = reaped();
        // It reads its block, then waits until its output is read.
        let mut child = std::process::Command::new("dd")
            .args(["if=/dev/zero", "bs=128M", "count=2"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("dd starts");
        std::io::Read::read_exact(child.stdout.as_mut().expect("its output"), &mut [0])
            .expect("a byte");
        let found = below(rustix::process::getpid());
        assert!(
            found.processes >= 1 && found.memory_bytes >= BLOCK && found.cpu_ms > 0,
            "{found:?}"
        );
        drop(child.stdout.take());
        child.wait().expect("its end");
        let after = reaped();
        assert!(
            after.cpu_ms > before.cpu_ms && after.largest_bytes >= BLOCK,
            "{after:?}"
        );
    }
}
