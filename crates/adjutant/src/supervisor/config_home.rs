//! Makes the home of an attempt's own for a CLI that is held to its profile by its configuration file.

use crate::files;
use crate::harness::{AttemptHome, Refusal};
use crate::link::AttemptDir;
use crate::view::codes;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

/// A configuration file is not longer.
const CONFIGURATION_BYTES_MAX: u64 = 4 << 20;

/// Makes the home: links to what is in the user's, and the configuration with the profile's settings.
pub fn make(dir: &AttemptDir, home: &AttemptHome) -> Result<(), Refusal> {
    let failed = |path: &Path, error: io::Error| Refusal {
        code: codes::UNSUPPORTED_PROFILE,
        message: format!("the agent cannot be held to its profile: {}: {error}", path.display()),
    };
    let user_home = home.user_home.join(&home.file);
    let old = match files::read_named(&user_home, CONFIGURATION_BYTES_MAX) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|error| failed(&user_home, io::Error::other(error)))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(&user_home, error)),
    };
    // The whole error quotes the line, which may hold a key.
    let new = home.configuration(&old).map_err(|error| failed(&user_home, io::Error::other(error.message())))?;
    link(dir, home).map_err(|error| failed(&home.user_home, error))?;
    let own = home.at.join(&home.file);
    files::create_new(dir.home(), &own).and_then(|mut file| file.write_all(new.as_bytes())).map_err(|error| failed(&own, error))
}

/// Makes the home with links to everything but the configuration.
fn link(dir: &AttemptDir, home: &AttemptHome) -> io::Result<()> {
    for shared in &home.dirs {
        DirBuilder::new().recursive(true).mode(0o700).create(home.user_home.join(shared))?;
    }
    // What a supervisor that was killed has left.
    match std::fs::remove_dir_all(&home.at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    files::make_dirs(dir.home(), &home.at)?;
    for entry in std::fs::read_dir(&home.user_home)? {
        let entry = entry?;
        if entry.file_name() != *home.file {
            symlink(entry.path(), home.at.join(entry.file_name()))?;
        }
    }
    Ok(())
}
