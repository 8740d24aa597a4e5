//! Everything that runs the git program: snapshots, differences, merges, workspaces, exchange with
//! runners.
//!
//! It may use the operating system and the home (`adjutant-home`). It knows no run, no store and no interface.

#![forbid(unsafe_code)]

pub mod git;

pub(crate) use adjutant_home::{failpoint, files, process, user_files};
