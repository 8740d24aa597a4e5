//! The wall clocks of the machines, each of which can be set while its processes run.

use crate::lab::Result;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The source of the library that shifts the clock of a process.
const LIBRARY: &str = include_str!("clock.c");
/// The shift with which the library is checked.
const CHECKED_S: i64 = 600;

/// The clocks, with the library in a directory of their own.
#[derive(Debug)]
pub struct Clocks {
    dir: tempfile::TempDir,
}

impl Clocks {
    /// Compiles the library, and shows that it shifts the clock of a program.
    pub fn new() -> Result<Self> {
        let clocks = Self {
            dir: tempfile::Builder::new().prefix("fleet-clock-").tempdir()?,
        };
        // PostgreSQL is another user.
        std::fs::set_permissions(clocks.dir.path(), Permissions::from_mode(0o755))?;
        let source = clocks.dir.path().join("clock.c");
        std::fs::write(&source, LIBRARY)?;
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(clocks.library())
            .arg(&source)
            .output();
        let compiled = compiled
            .map_err(|error| format!("the C compiler, which the clocks need: cc: {error}"))?;
        if !compiled.status.success() {
            return Err(format!(
                "the clocks do not compile: {}",
                String::from_utf8_lossy(&compiled.stderr)
            )
            .into());
        }
        let clock = clocks.clock(0)?;
        clock.set(CHECKED_S)?;
        let shown = Command::new("date")
            .arg("+%s")
            .envs(clock.variables())
            .output()?;
        let shown: i64 = String::from_utf8_lossy(&shown.stdout).trim().parse()?;
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
        if !(CHECKED_S - 5..=CHECKED_S + 5).contains(&(shown - now)) {
            return Err(format!(
                "a clock was set {CHECKED_S} s ahead, and a program sees it {} s ahead",
                shown - now
            )
            .into());
        }
        Ok(clocks)
    }

    /// A directory that is removed at the end.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }

    /// Returns the clock of a machine, which is right.
    pub fn clock(&self, machine: usize) -> Result<Clock> {
        let path = self.dir.path().join(machine.to_string());
        let file = File::create(&path)?;
        let clock = Clock {
            library: self.library(),
            path,
            file,
        };
        clock.set(0)?;
        Ok(clock)
    }
}

#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Clock {
    /// Sets the clock this much ahead of the machine that it runs on, or behind.
    pub fn set(&self, shift_s: i64) -> Result<()> {
        // In place, because processes have the file mapped.
        Ok(self.file.write_all_at(&shift_s.to_ne_bytes(), 0)?)
    }

    /// Returns the variables of a process that sees this clock, as its children do.
    pub fn variables(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.library)),
            ("FLEET_CLOCK".to_owned(), text(&self.path)),
        ]
    }

    /// Returns whether a process sees this clock.
    pub fn is_seen_by(&self, pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/maps"))
            .is_ok_and(|maps| maps.contains(&self.path.display().to_string()))
    }
}
