//! The load of the machine, as the kernel states it: pressure stall information and free memory.

use crate::failpoint;
use adjutant_core::pressure::{MachineLoad, Stall, available_bytes};
use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::io::Write;
use std::path::{Path, PathBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The kernel reports when tasks have waited for memory for this long within the window.
#[cfg(target_os = "linux")]
const STALL_US: u64 = 100_000;
/// A window that any user may use is a multiple of two seconds.
#[cfg(target_os = "linux")]
const WINDOW_US: u64 = 2_000_000;

/// Returns the load of the machine. `None`: the kernel does not report it.
#[must_use]
pub fn load() -> MachineLoad {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let (pressure, meminfo) = match failpoint::pressure() {
        Some(dir) => (dir.clone(), dir.join("meminfo")),
        None => (
            PathBuf::from("/proc/pressure"),
            PathBuf::from("/proc/meminfo"),
        ),
    };
    MachineLoad {
        memory: read(pressure.join("memory")).and_then(|text| Stall::parse(&text)),
        cpu: read(pressure.join("cpu")).and_then(|text| Stall::parse(&text)),
        free_bytes: read(meminfo).and_then(|text| available_bytes(&text)),
    }
}

/// Registers with the kernel for reports of memory pressure.
#[derive(Debug)]
pub struct MemoryTrigger(AsyncFd<File>);

impl MemoryTrigger {
    /// Registers with the kernel.
    ///
    /// # Errors
    /// The kernel has no pressure stall information, or this user may not register.
    pub fn register() -> io::Result<Self> {
        if failpoint::pressure().is_some() {
            return Err(io::Error::other("the pressure is scripted"));
        }
        Self::register_at(Path::new("/proc/pressure/memory"))
    }

    #[cfg(not(target_os = "linux"))]
    fn register_at(_path: &Path) -> io::Result<Self> {
        Err(super::Unsupported::Pressure.into())
    }

    #[cfg(target_os = "linux")]
    fn register_at(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)?;
        file.write_all(format!("some {STALL_US} {WINDOW_US}\0").as_bytes())?;
        Ok(Self(register_file(file)?))
    }

    /// Waits until tasks have waited for memory, at most once for each window.
    ///
    /// # Errors
    /// The kernel no longer reports.
    pub async fn wait(&self) -> io::Result<()> {
        let mut ready = self.0.ready(PRESSURE).await?;
        if ready.ready().is_error() {
            return Err(io::Error::other("the kernel has ended its reports"));
        }
        ready.clear_ready();
        Ok(())
    }
}

#[cfg(target_os = "linux")]
const PRESSURE: Interest = Interest::PRIORITY;
/// Nothing is registered here.
#[cfg(not(target_os = "linux"))]
const PRESSURE: Interest = Interest::READABLE;

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "the caller of tokio's AsyncFd promises that the descriptor stays open"
)]
fn register_file(file: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: the file owns an open descriptor, and nothing replaces or closes it while the AsyncFd
    // owns the file.
    unsafe { Ok(AsyncFd::register_with_interest(file, PRESSURE)?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_states_free_memory() {
        assert!(load().free_bytes.is_some_and(|bytes| bytes > 0));
    }

    #[tokio::test]
    async fn trigger_is_accepted_where_the_kernel_has_one() {
        let path = Path::new("/proc/pressure/memory");
        if File::options().write(true).open(path).is_err() {
            // Bypasses the test harness, which captures the output of passing tests.
            writeln!(
                io::stderr(),
                "SKIPPED: {} cannot be opened for writing",
                path.display()
            )
            .expect("standard error is open");
            return;
        }
        let trigger = MemoryTrigger::register().expect("registered");
        // A machine at rest reports nothing.
        let waited =
            tokio::time::timeout(std::time::Duration::from_millis(10), trigger.wait()).await;
        assert!(waited.is_err() || waited.is_ok_and(|waited| waited.is_ok()));
    }
}
