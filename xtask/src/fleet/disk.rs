//! The disks of the machines: small file systems in memory, so that a fault can fill one and
//! nothing else.

use crate::lab::Result;
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much is written at a time. The last block of a file can be filled only in part.
const BLOCKS: [usize; 4] = [1 << 20, 4096, 512, 1];

/// The disk of one machine, which is unmounted and removed at the end.
#[derive(Debug)]
pub struct Disk(tempfile::TempDir);

impl Disk {
    /// Mounts a disk of this size in MiB. Requires root.
    pub fn new(mib: u32) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("adj-disk-").tempdir()?;
        // PostgreSQL is another user.
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={mib}m,mode=0755"),
                "adj-fleet",
            ])
            .arg(dir.path())
            .output()?;
        if !mounted.status.success() {
            return Err(format!(
                "a disk in memory cannot be mounted: {}",
                String::from_utf8_lossy(&mounted.stderr)
            )
            .into());
        }
        Ok(Self(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk until the returned value is dropped.
    pub fn fill(&self) -> Result<Full> {
        let full = Full(self.path().join("filler"));
        let mut file = File::create(&full.0)?;
        for block in BLOCKS {
            let zeros = vec![0; block];
            let refused = loop {
                if let Err(refused) = file.write_all(&zeros) {
                    break refused;
                }
            };
            if refused.kind() != ErrorKind::StorageFull {
                return Err(format!("the disk cannot be filled: {refused}").into());
            }
        }
        Ok(full)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that is left can still have a file open.
        let gone = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.path().display());
        }
    }
}

/// The file that fills a disk. The disk has space again when this is dropped, also if the campaign
/// is interrupted.
#[derive(Debug)]
pub struct Full(PathBuf);

impl Drop for Full {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            eprintln!("{} still fills its disk: {error}", self.0.display());
        }
    }
}
