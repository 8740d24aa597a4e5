//! Makes a home for one attempt of a CLI whose profile needs its configuration file.

use crate::files;
use crate::harness::{AttemptHome, StartRefusal};
use crate::protocol::AttemptDir;
use crate::view::codes;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

/// Largest configuration file, in bytes.
const CONFIGURATION_BYTES_MAX: u64 = 4 << 20;

/// Creates the home: links to the files in the user's home, and the configuration with the
/// profile's settings. `unlinked`: no link below this directory is followed, because a fenced agent
/// can write there and must not have a file copied that is hidden from it.
pub(super) fn make(
    dir: &AttemptDir,
    home: &AttemptHome,
    unlinked: Option<&Path>,
) -> Result<(), StartRefusal> {
    let failed = |path: &Path, error: io::Error| StartRefusal {
        code: codes::UNSUPPORTED_PROFILE,
        message: format!(
            "the profile cannot be applied to the agent: {}: {error}",
            path.display()
        ),
    };
    let user_home = home.user_home.join(&home.file);
    let read = match unlinked {
        Some(base) => files::read(base, &user_home, CONFIGURATION_BYTES_MAX),
        None => files::read_named(&user_home, CONFIGURATION_BYTES_MAX),
    };
    let old = match read {
        Ok(bytes) => {
            String::from_utf8(bytes).map_err(|error| failed(&user_home, io::Error::other(error)))?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(&user_home, error)),
    };
    // The whole error quotes the line, which may contain a key.
    let new = home
        .configuration(&old)
        .map_err(|error| failed(&user_home, io::Error::other(error.message())))?;
    link(dir, home, unlinked).map_err(|error| failed(&home.user_home, error))?;
    let own = home.at.join(&home.file);
    files::create_new(dir.home(), &own)
        .and_then(|mut file| file.write_all(new.as_bytes()))
        .map_err(|error| failed(&own, error))
}

/// Creates the home with links to everything but the configuration.
fn link(dir: &AttemptDir, home: &AttemptHome, unlinked: Option<&Path>) -> io::Result<()> {
    for shared in home.dirs.iter().map(|shared| home.user_home.join(shared)) {
        match unlinked {
            Some(base) => files::make_dirs(base, &shared)?,
            None => DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(shared)?,
        }
    }
    // The files of a supervisor that was killed.
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
