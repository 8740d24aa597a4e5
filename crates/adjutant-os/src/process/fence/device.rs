//! The devices that a fenced worker can use: none with a file system.

use std::io;
use std::path::{Path, PathBuf};

/// Entries of `/dev` that stay usable.
const DEVICES: [&str; 10] = [
    "null", "zero", "full", "random", "urandom", "tty", "fuse", "kvm", "dri", "net",
];
/// Prefixes of further ones: graphics processors for computations.
const PREFIXES: [&str; 2] = ["nvidia", "kfd"];

/// Lists the usable devices that exist.
///
/// # Errors
/// `/dev` cannot be read.
pub(crate) fn usable_devices() -> io::Result<Vec<PathBuf>> {
    let dev = Path::new("/dev");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dev)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_usable = !entry.file_type()?.is_symlink()
            && name.to_str().is_some_and(|name| {
                DEVICES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            });
        if is_usable {
            found.push(dev.join(name));
        }
    }
    Ok(found)
}
