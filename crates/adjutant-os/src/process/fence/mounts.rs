//! Mounts a fence, in its own mount namespace.

use super::{FencePlan, SHARED_MEMORY_DIR, TERMINALS_DIR, device};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries of `/proc` with which root can change the machine.
const KERNEL_SETTINGS: [&str; 9] = [
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "acpi",
    "scsi",
    "driver",
    "dynamic_debug",
];
/// The limit of the worker's shared memory, as a share of the machine's memory.
const SHARED_MEMORY: &std::ffi::CStr = c"mode=1777,size=50%";
/// The worker's own terminals.
const TERMINALS: &std::ffi::CStr = c"newinstance,ptmxmode=0666,mode=0620";
/// The file system in place of a hidden directory, which contains only mount points.
const EMPTY: &std::ffi::CStr = c"mode=755,size=1m";

/// A mount without setuid programs and devices.
const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// A mount at a path.
enum Layer {
    /// An empty directory.
    Hidden,
    /// A detached mount.
    Mount { tree: OwnedFd, is_dir: bool },
    /// An empty file system for shared memory.
    SharedMemory,
}

/// Mounts the fence and enters the worker's directory. Afterwards, everything outside the plan is
/// read-only or hidden.
///
/// # Errors
/// The step that failed. Earlier mounts remain, and nothing may be started.
pub(crate) fn set_up(plan: &FencePlan) -> io::Result<()> {
    // A mount that appears outside later must not appear here, where it would be writable.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(|error| at("/", "making mounts private", error))?;
    // Detached first, before other mounts cover them.
    let layers = layers(plan)?;
    // Before the layers are attached, of which those that are writable must stay so.
    set_attributes(CWD, "/", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, true)
        .map_err(|error| at("/", "making everything read-only", error))?;
    mount("proc", "/proc", "proc", PLAIN | MountFlags::NOEXEC, None)
        .map_err(|error| at("/proc", "mounting", error))?;
    if plan.is_root {
        protect_kernel_settings()?;
    }
    for (path, layer) in &layers {
        layer.attach(path)?;
    }
    make_terminals()?;
    // Only now, because the mount points of the layers below were created in them.
    for path in &plan.hidden {
        set_attributes(CWD, path, MOUNT_ATTR_RDONLY, false)
            .map_err(|error| at(path, "closing", error))?;
    }
    std::env::set_current_dir(&plan.cwd)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", plan.cwd.display())))
}

/// Detaches the mounts of a plan. A directory is before the paths below it; a path that is both
/// hidden and visible is hidden.
fn layers(plan: &FencePlan) -> io::Result<Vec<(PathBuf, Layer)>> {
    let mut layers = Vec::new();
    for path in &plan.writable {
        layers.push((path.clone(), detach(path, MOUNT_ATTR_NODEV)?));
    }
    for private in &plan.private {
        layers.push((
            private.at.clone(),
            detach(&private.source, MOUNT_ATTR_NODEV)?,
        ));
    }
    for path in plan
        .readable
        .iter()
        .filter(|path| path.symlink_metadata().is_ok())
    {
        layers.push((
            path.clone(),
            detach(path, MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY)?,
        ));
    }
    for path in device::usable_devices()? {
        // Not without devices, because nothing could open this one then.
        layers.push((path.clone(), detach(&path, MOUNT_ATTR_RDONLY)?));
    }
    for path in &plan.hidden_files {
        // A device cannot be opened on a mount without devices.
        layers.push((
            path.clone(),
            detach(Path::new("/dev/null"), MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY)?,
        ));
    }
    layers.extend(plan.hidden.iter().map(|path| (path.clone(), Layer::Hidden)));
    layers.push((PathBuf::from(SHARED_MEMORY_DIR), Layer::SharedMemory));
    layers.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(layers)
}

impl Layer {
    /// Mounts the layer at its path.
    fn attach(&self, path: &Path) -> io::Result<()> {
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        match self {
            Self::Hidden => {
                make_mount_point(path, true).map_err(failed)?;
                mount("tmpfs", path, "tmpfs", PLAIN, EMPTY)
                    .map_err(|error| at(path, "hiding", error))
            }
            Self::SharedMemory if is_dir(path) => {
                mount("tmpfs", path, "tmpfs", PLAIN, SHARED_MEMORY)
                    .map_err(|error| at(path, "mounting", error))
            }
            Self::SharedMemory => Ok(()),
            Self::Mount { tree, is_dir } => {
                make_mount_point(path, *is_dir).map_err(failed)?;
                attach(tree, path)
            }
        }
    }
}

fn is_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

/// Clones the mount at a path with everything below. A link in the path is an error: another run
/// may have created it since the supervisor resolved the path.
fn detach(path: &Path, attributes: u64) -> io::Result<Layer> {
    let found = openat2(
        CWD,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )
    .map_err(|error| at(path, "opening", error))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&found, "", flags).map_err(|error| at(path, "opening", error))?;
    set_attributes(tree.as_fd(), "", attributes, true)
        .map_err(|error| at(path, "restricting", error))?;
    let is_dir = FileType::from_raw_mode(rustix::fs::fstat(&tree)?.st_mode) == FileType::Directory;
    Ok(Layer::Mount { tree, is_dir })
}

fn attach(tree: &OwnedFd, path: &Path) -> io::Result<()> {
    move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| at(path, "mounting", error))
}

/// Creates a mount point if it is missing, which is only below a directory of this fence.
fn make_mount_point(path: &Path, is_dir: bool) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let parents = if is_dir { Some(path) } else { path.parent() };
    if let Some(parents) = parents {
        std::fs::create_dir_all(parents)?;
    }
    if !is_dir {
        rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0)?;
    }
    Ok(())
}

/// Mounts the worker's own terminals, because those outside belong to other processes.
fn make_terminals() -> io::Result<()> {
    let dir = Path::new(TERMINALS_DIR);
    if !is_dir(dir) {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", dir, "devpts", flags, TERMINALS).map_err(|error| at(dir, "mounting", error))?;
    let multiplexer = Path::new("/dev/ptmx");
    // A link already leads to the new one.
    if multiplexer
        .symlink_metadata()
        .is_ok_and(|meta| !meta.is_symlink())
        && let Layer::Mount { tree, .. } = detach(&dir.join("ptmx"), 0)?
    {
        attach(&tree, multiplexer)?;
    }
    Ok(())
}

/// Makes the kernel's settings read-only: root can write those in `/proc` even without
/// capabilities.
fn protect_kernel_settings() -> io::Result<()> {
    for path in KERNEL_SETTINGS
        .map(|name| Path::new("/proc").join(name))
        .into_iter()
        .filter(|path| path.exists())
    {
        if let Layer::Mount { tree, .. } = detach(&path, MOUNT_ATTR_RDONLY)? {
            attach(&tree, &path)?;
        }
    }
    Ok(())
}

fn at(path: impl AsRef<Path>, step: &str, error: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(
        error.kind(),
        format!("{step} {}: {error}", path.as_ref().display()),
    )
}

const AT_RECURSIVE: libc::c_int = 0x8000;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NODEV: u64 = 4;

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Sets attributes of a mount, or of all mounts below it too.
fn set_attributes(
    dir: BorrowedFd<'_>,
    path: impl AsRef<Path>,
    set: u64,
    below_too: bool,
) -> Result<(), rustix::io::Errno> {
    change_attributes(
        dir,
        path.as_ref(),
        &MountAttr {
            attr_set: set,
            attr_clr: 0,
            propagation: 0,
            userns_fd: 0,
        },
        below_too,
    )
}

/// Tries to make a mount writable again. A test of the fence, which must fail.
///
/// # Errors
/// The kernel's error.
pub(crate) fn try_to_make_writable(path: &Path) -> Result<(), rustix::io::Errno> {
    change_attributes(
        CWD,
        path,
        &MountAttr {
            attr_set: 0,
            attr_clr: MOUNT_ATTR_RDONLY,
            propagation: 0,
            userns_fd: 0,
        },
        false,
    )
}

#[expect(unsafe_code, reason = "mount_setattr has no safe wrapper")]
fn change_attributes(
    dir: BorrowedFd<'_>,
    path: &Path,
    change: &MountAttr,
    below_too: bool,
) -> Result<(), rustix::io::Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| rustix::io::Errno::INVAL)?;
    let flags = libc::AT_EMPTY_PATH | if below_too { AT_RECURSIVE } else { 0 };
    // SAFETY: path and change outlive the call, which only reads them; the size is that of the
    // structure.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            std::ptr::from_ref(change),
            size_of::<MountAttr>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(
            rustix::io::Errno::from_io_error(&io::Error::last_os_error())
                .unwrap_or(rustix::io::Errno::INVAL),
        )
    }
}
