//! The Landlock fence, for machines without user namespaces. Its rules can only allow.
//!
//! `adj __landlock <program> <argv…>` restricts itself to the plan, tests and reports what is
//! enforced, and executes the worker. The plan's paths are writable. Everything is readable except
//! hidden paths: each sibling of a hidden path and of its parents has a rule, so a file that
//! appears there later is not readable either.
//!
//! Descriptors: 3 holds the plan, 4 receives [`Message`]s.

use super::super::hygiene::inherited;
use super::super::start::INHERITED;
use super::super::status::Message;
use super::check::FailedCheck;
use super::entry::drop_bounding;
use super::{FencePlan, check, device};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::thread::CapabilitySet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The first version that can deny truncating files.
const MIN_ABI: ABI = ABI::V3;
/// The version that can deny signals and abstract sockets to the outside.
const SCOPES_ABI: ABI = ABI::V6;
/// Maximum number of readable paths, each of which needs a rule.
const RULES_MAX: usize = 100_000;
/// The directory of devices, of which only harmless ones can be opened.
const DEVICES_DIR: &str = "/dev";
/// Terminal devices, usable in addition to [`device::usable_devices`].
const TERMINAL_DEVICES: [&str; 3] = ["/dev/pts", "/dev/ptmx", "/dev/tty"];

/// Why a Landlock fence is not available, or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    #[error("the kernel has no Landlock that keeps files from being truncated (Linux 6.2)")]
    Unavailable(#[source] RulesetError),
    #[error("the plan cannot be read: {0}")]
    Plan(#[from] serde_json::Error),
    #[error("Landlock: {0}")]
    Rules(#[from] RulesetError),
    #[error("Landlock: {0}")]
    Io(#[from] io::Error),
    #[error("Landlock: {path}: {source}")]
    Path { path: PathBuf, source: io::Error },
    #[error("Landlock: {path}: {source}")]
    Rule { path: PathBuf, source: RulesetError },
    #[error("Landlock is not enforced")]
    NotEnforced,
    #[error(transparent)]
    Check(#[from] FailedCheck),
}

/// Checks that the kernel can deny writing to files.
///
/// # Errors
/// It cannot.
pub fn available() -> Result<(), LandlockError> {
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled_rights())
        .and_then(Ruleset::create);
    made.map(drop).map_err(LandlockError::Unavailable)
}

/// Keeps this process and its descendants from the abstract sockets of others, which no mount
/// hides. The kernel needs Linux 6.12; before, they stay reachable. The process needs
/// `CAP_SYS_ADMIN` in its namespace.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn scope_sockets() -> io::Result<()> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::AbstractUnixSocket);
    let rules = rules.and_then(Ruleset::create).map_err(io::Error::other)?;
    rules
        .no_new_privs(false)
        .restrict_self()
        .map_err(io::Error::other)?;
    Ok(())
}

/// Returns the access rights that the rules control. Listing is not one of them, because then the
/// parents of a hidden directory could not be listed either.
fn handled_rights() -> BitFlags<AccessFs> {
    AccessFs::from_all(MIN_ABI) & !BitFlags::from(AccessFs::ReadDir)
}

/// Runs between the supervisor and the worker. `args` follow `__landlock`.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let (Some(plan), Some(status)) = (inherited(INHERITED), inherited(INHERITED + 1)) else {
        return ExitCode::FAILURE;
    };
    let (Some(program), argv) = (args.first(), args.get(1..).unwrap_or_default()) else {
        return ExitCode::FAILURE;
    };
    let mut status = File::from(status);
    let restricted = restrict_by(plan);
    let sent = match &restricted {
        Ok(gaps) => Message::write_gaps(&mut status, &gaps.join("\n")),
        Err(why) => Message::write_not_fenced(&mut status, &why.to_string()),
    };
    if restricted.is_err() || sent.is_err() {
        return ExitCode::FAILURE;
    }
    let error = become_worker(program, argv);
    match status
        .write_all(&Message::NotStarted(error.raw_os_error().unwrap_or(libc::EINVAL)).encode())
    {
        Ok(()) => ExitCode::FAILURE,
        Err(_) => ExitCode::from(2),
    }
}

/// Executes the program. Returns only if that fails. The descriptors of this process close on exec.
#[expect(
    clippy::disallowed_methods,
    reason = "this module may start processes; this one becomes another"
)]
fn become_worker(program: &OsString, argv: &[OsString]) -> io::Error {
    let mut command = std::process::Command::new(program);
    if let Some((name, args)) = argv.split_first() {
        command.arg0(name).args(args);
    }
    command.exec()
}

/// Restricts this process by the plan in a file. Returns what the rules do not enforce.
fn restrict_by(plan: OwnedFd) -> Result<Vec<String>, LandlockError> {
    let plan: FencePlan = serde_json::from_reader(io::BufReader::new(File::from(plan)))?;
    restrict(&plan)?;
    Ok(check::run_for_landlock(&plan)?)
}

/// Restricts this process and its descendants.
fn restrict(plan: &FencePlan) -> Result<(), LandlockError> {
    // With these capabilities, root could bypass the rules through interfaces of the kernel.
    drop_bounding(&[
        CapabilitySet::SYS_ADMIN,
        CapabilitySet::SYS_PTRACE,
        CapabilitySet::SYS_MODULE,
        CapabilitySet::SYS_RAWIO,
        CapabilitySet::MKNOD,
    ])?;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled_rights())?
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::from_all(SCOPES_ABI))
        .and_then(Ruleset::create)?;
    let reading = AccessFs::from_read(MIN_ABI) & handled_rights();
    let devices = device::usable_devices()?
        .into_iter()
        .chain(TERMINAL_DEVICES.map(PathBuf::from));
    for path in plan
        .writable
        .iter()
        .cloned()
        .chain(devices.filter(|path| path.exists()))
    {
        rules = allow(rules, &path, handled_rights())?;
    }
    for path in &readable_paths(plan)? {
        rules = allow(rules, path, reading)?;
    }
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err(LandlockError::NotEnforced),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// Lists the paths of a plan that are readable with everything below.
fn readable_paths(plan: &FencePlan) -> io::Result<Vec<PathBuf>> {
    let mut hidden: Vec<PathBuf> = plan
        .hidden
        .iter()
        .chain(&plan.hidden_files)
        .cloned()
        .collect();
    hidden.push(PathBuf::from(DEVICES_DIR));
    let mut readable = Vec::new();
    // A visible directory may contain hidden paths.
    for from in plan
        .readable
        .iter()
        .map(PathBuf::as_path)
        .chain([Path::new("/")])
    {
        add_beside(from, &hidden, &mut readable)?;
    }
    Ok(readable)
}

/// Adds a rule for a path. A path that no longer exists needs none.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, LandlockError> {
    let failed = |error: rustix::io::Errno| LandlockError::Path {
        path: path.to_owned(),
        source: error.into(),
    };
    let opened = openat2(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    );
    let file: OwnedFd = match opened {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS) => return Ok(rules),
        Err(error) => return Err(failed(error)),
    };
    let mode = rustix::fs::fstat(&file).map_err(failed)?.st_mode;
    let is_dir = rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Directory;
    let rights = if is_dir {
        rights
    } else {
        rights & AccessFs::from_file(MIN_ABI)
    };
    rules
        .add_rule(PathBeneath::new(file, rights))
        .map_err(|source| LandlockError::Rule {
            path: path.to_owned(),
            source,
        })
}

/// Adds the paths below `dir` that neither are hidden nor contain hidden ones. Links are skipped:
/// their targets have their own rules.
fn add_beside(dir: &Path, hidden: &[PathBuf], out: &mut Vec<PathBuf>) -> io::Result<()> {
    if hidden.iter().any(|path| path == dir) {
        return Ok(());
    }
    if !hidden.iter().any(|path| path.starts_with(dir)) {
        out.push(dir.to_owned());
        return if out.len() > RULES_MAX {
            Err(io::Error::other(
                "there are too many files beside hidden ones",
            ))
        } else {
            Ok(())
        };
    }
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_symlink() {
            add_beside(&entry.path(), hidden, out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_beside_a_hidden_path_is_readable() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path();
        for name in ["a/hidden/in", "a/beside", "b", "hidden2"] {
            std::fs::create_dir_all(at.join(name)).expect("a directory");
        }
        std::os::unix::fs::symlink(at.join("a/hidden"), at.join("link")).expect("a link");
        let mut found = Vec::new();
        add_beside(at, &[at.join("a/hidden"), at.join("hidden2")], &mut found).expect("readable");
        found.sort();
        assert_eq!(found, [at.join("a/beside"), at.join("b")]);
    }
}
