//! A disk that records its writes and flushes, so that the state after each flush can be restored:
//! what a disk that honours flushes has at least after a power failure. `qemu-storage-daemon`
//! exports an image with its driver `blklogwrites`, and a loop device mounts it.

use crate::lab::Result;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DISK_BYTES: u64 = 512 << 20;
const LOG_BYTES: u64 = 4 << 30;
const SECTOR: u64 = 512;
/// Flags of an entry of the log (the format of Linux's dm-log-writes).
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;
/// How long a disk may be busy after its processes were killed.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// How long a disk may take to start.
const START_MAX: Duration = Duration::from_secs(10);

/// This machine has no such disks.
#[derive(Debug)]
pub struct Unavailable(&'static str);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unavailable {}

/// A mounted disk whose writes are recorded.
pub struct LoggedDisk {
    dir: PathBuf,
    mount: Mount,
    daemon: Child,
}

impl LoggedDisk {
    /// Makes and mounts a disk. Its files are below `dir`.
    pub fn new(dir: &Path, mountpoint: &Path) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Unavailable("images of a disk need root, which can mount").into());
        }
        if Command::new("qemu-storage-daemon")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            return Err(Unavailable(
                "images of a disk need qemu-storage-daemon (apt-get install qemu-utils)",
            )
            .into());
        }
        fs::create_dir_all(dir)?;
        let path = |name: &str| dir.join(name);
        File::create(path("disk"))?.set_len(DISK_BYTES)?;
        File::create(path("log"))?.set_len(LOG_BYTES)?;
        File::create(path("export"))?;
        let daemon = Command::new("qemu-storage-daemon")
            .arg("--blockdev")
            .arg(format!(
                "driver=file,node-name=disk,filename={}",
                path("disk").display()
            ))
            .arg("--blockdev")
            .arg(format!(
                "driver=file,node-name=log,filename={}",
                path("log").display()
            ))
            .args([
                "--blockdev",
                "driver=blklogwrites,node-name=logged,file=disk,log=log,log-sector-size=512",
            ])
            .arg("--export")
            .arg(format!(
                "type=fuse,id=export,node-name=logged,mountpoint={},writable=on",
                path("export").display()
            ))
            .stdin(Stdio::null())
            .spawn()?;
        let start = Instant::now();
        while path("export").metadata()?.len() != DISK_BYTES {
            if start.elapsed() > START_MAX {
                return Err("the disk does not start".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        tool(
            "mkfs.ext4",
            &[
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                &path("export").display().to_string(),
            ],
        )?;
        let mount = Mount::new(&path("export"), mountpoint)?;
        Ok(Self {
            dir: dir.to_owned(),
            mount,
            daemon,
        })
    }

    /// Returns the number of entries in the log so far.
    pub fn entries(&self) -> Result<u64> {
        Ok(Log::open(&self.dir)?.positions()?.len() as u64)
    }

    fn end(&mut self) -> Result<()> {
        self.mount.end()?;
        if self.daemon.try_wait()?.is_none() {
            // It unmounts its export.
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&self.daemon),
                rustix::process::Signal::TERM,
            )?;
            self.daemon.wait()?;
        }
        Ok(())
    }

    /// Unmounts the disk, and returns its log.
    pub fn close(mut self) -> Result<Log> {
        self.end()?;
        Log::open(&self.dir)
    }
}

impl Drop for LoggedDisk {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("a disk is left: {error}");
        }
    }
}

/// The recorded writes of a disk.
pub struct Log {
    file: File,
}

/// One entry: where its data is in the log, and where it goes on the disk.
struct Entry {
    sector: u64,
    sectors: u64,
    flags: u64,
    data_at: u64,
}

impl Log {
    fn open(dir: &Path) -> Result<Self> {
        Ok(Self {
            file: File::open(dir.join("log"))?,
        })
    }

    fn positions(&self) -> Result<Vec<Entry>> {
        let (mut found, mut at) = (Vec::new(), SECTOR);
        loop {
            let mut head = [0; 32];
            self.file.read_exact_at(&mut head, at)?;
            let field =
                |n: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[n * 8 + byte]));
            let (sector, sectors, flags) = (field(0), field(1), field(2));
            if sectors == 0 && flags == 0 {
                return Ok(found);
            }
            found.push(Entry {
                sector,
                sectors,
                flags,
                data_at: at + SECTOR,
            });
            at += SECTOR
                + if flags & DISCARD == 0 {
                    sectors * SECTOR
                } else {
                    0
                };
        }
    }

    /// Returns the entries after which everything written so far was flushed: the places at which
    /// the power can fail.
    pub fn flushes(&self) -> Result<Vec<u64>> {
        let entries = self.positions()?;
        Ok((0_u64..)
            .zip(&entries)
            .filter(|(_, entry)| entry.flags & FLUSH != 0)
            .map(|(n, _)| n)
            .collect())
    }

    /// Writes the disk as it was after an entry.
    pub fn replay(&self, last: u64, to: &Path) -> Result<()> {
        let mut disk = File::create(to)?;
        disk.set_len(DISK_BYTES)?;
        for entry in self.positions()?.iter().take(usize::try_from(last)? + 1) {
            // What is discarded can keep its content.
            if entry.flags & DISCARD != 0 {
                continue;
            }
            let mut data = vec![0; usize::try_from(entry.sectors * SECTOR)?];
            self.file.read_exact_at(&mut data, entry.data_at)?;
            disk.seek(SeekFrom::Start(entry.sector * SECTOR))?;
            disk.write_all(&data)?;
        }
        Ok(())
    }
}

/// A mounted file system in a file.
pub struct Mount {
    at: Option<PathBuf>,
}

impl Mount {
    pub fn new(image: &Path, at: &Path) -> Result<Self> {
        fs::create_dir_all(at)?;
        tool(
            "mount",
            &[
                "-o",
                "loop",
                &image.display().to_string(),
                &at.display().to_string(),
            ],
        )?;
        Ok(Self {
            at: Some(at.to_owned()),
        })
    }

    pub fn end(&mut self) -> Result<()> {
        let Some(at) = self.at.take() else {
            return Ok(());
        };
        let start = Instant::now();
        loop {
            match tool("umount", &[&at.display().to_string()]) {
                // The kernel closes the files of a killed process later.
                Err(_) if start.elapsed() < BUSY_MAX => {
                    std::thread::sleep(Duration::from_millis(50))
                }
                ended => return ended,
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("a file system is still mounted: {error}");
        }
    }
}

/// Runs a tool of the system, which may be outside the user's PATH.
fn tool(program: &str, args: &[&str]) -> Result<()> {
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let mut child = Command::new(program)
        .args(args)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let status = child.wait()?;
    let mut said = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut said)?;
    }
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program} {args:?}: {}", said.trim()).into())
    }
}
