//! Which file system a path is on: whether its locks are reliable, and whether it is in memory.

use std::io;
use std::path::Path;

/// A file system, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSystem {
    /// Of another machine: its locks are unreliable.
    Network(String),
    /// 9p, which connects a virtual machine to a disk of its host, or another machine.
    Plan9,
    /// In memory.
    Memory(String),
    /// Any other: on a disk of this machine, or (on Linux) of a type that is not known.
    Local(String),
}

#[cfg(target_os = "linux")]
const PLAN_9: i64 = 0x0102_1997;
#[cfg(target_os = "linux")]
const TMPFS: i64 = 0x0102_1994;
#[cfg(target_os = "linux")]
const RAMFS: i64 = 0x8584_58f6;

/// Network file systems by their magic numbers.
#[cfg(target_os = "linux")]
const NETWORK: [(i64, &str); 6] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x5346_414f, "AFS"),
];

/// Other file systems by their magic numbers.
#[cfg(target_os = "linux")]
const LOCAL: [(i64, &str); 7] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlay"),
    (TMPFS, "tmpfs"),
];

impl FileSystem {
    /// Returns the file system of an existing path.
    ///
    /// # Errors
    /// The path does not exist, or cannot be reached.
    #[cfg(target_os = "linux")]
    pub fn of(path: &Path) -> io::Result<Self> {
        let magic = rustix::fs::statfs(path)?.f_type & 0xffff_ffff;
        let named = |table: &[(i64, &str)]| {
            let found = table.iter().find(|(known, _)| *known == magic);
            found.map(|(_, name)| (*name).to_owned())
        };
        if let Some(name) = named(&NETWORK) {
            return Ok(Self::Network(name));
        }
        let name = named(&LOCAL).unwrap_or_else(|| format!("type 0x{magic:x}"));
        Ok(match magic {
            PLAN_9 => Self::Plan9,
            TMPFS | RAMFS => Self::Memory(name),
            _ => Self::Local(name),
        })
    }

    /// Returns the file system of an existing path, which is never one in memory here.
    ///
    /// # Errors
    /// The path does not exist, or cannot be reached.
    #[cfg(not(target_os = "linux"))]
    pub fn of(path: &Path) -> io::Result<Self> {
        let stat = rustix::fs::statfs(path)?;
        let name = stat
            .f_fstypename
            .iter()
            .map(|byte| char::from(byte.to_ne_bytes()[0]))
            .take_while(|letter| *letter != '\0')
            .collect();
        let is_local = stat.f_flags & libc::MNT_LOCAL.cast_unsigned() != 0;
        Ok(if is_local {
            Self::Local(name)
        } else {
            Self::Network(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_that_does_not_exist_has_no_file_system() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(FileSystem::of(dir.path()).is_ok());
        let error = FileSystem::of(&dir.path().join("missing")).expect_err("an error");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
