//! The working directory, which answering agents get.

use crate::cli::exit::cli_codes;
use crate::cli::out::{Failure, fail};
use crate::view::codes;
use std::path::{Path, PathBuf};

pub(super) fn current() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        fail(
            cli_codes::IO,
            format!("cannot find the working directory: {error}"),
        )
    })
}

/// Returns a working directory as calls name it.
pub(super) fn as_text(dir: &Path) -> Result<String, Failure> {
    dir.to_str()
        .map(str::to_owned)
        .ok_or_else(|| fail(codes::INVALID, "the working directory is not UTF-8"))
}

/// Returns the working directory of this process as calls name it.
pub(super) fn working_directory() -> Result<String, Failure> {
    as_text(&current()?)
}
