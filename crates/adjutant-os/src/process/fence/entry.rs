//! `adj __fence <program> <argv…>`: creates the namespaces of a fence, starts init in them, and
//! exits when the supervisor knows init. The supervisor writes the id maps: as root it maps every
//! id to itself, otherwise only the user's own.
//!
//! Descriptors: as for [`super::super::init`]; 6 is a pipe on which the supervisor signals when to
//! continue.

use super::super::hygiene::inherited;
use super::super::start::{INHERITED, SELF_EXE};
use super::super::status::Message;
use super::super::{Pid, Spawn, StdioTarget};
use super::FENCED;
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// Capabilities of init: to mount, and to prevent other processes from mounting.
const MOUNTING: CapabilitySet = CapabilitySet::SYS_ADMIN;
const OF_INIT: [CapabilitySet; 2] = [MOUNTING, CapabilitySet::SETPCAP];
/// Descriptors of init and [`main`] in addition to the lifeline and the status pipe.
pub(crate) const PLAN_FD: i32 = INHERITED + 2;
const GO_FD: i32 = INHERITED + 3;

/// Runs between the supervisor and init. `args` follow `__fence`; `env` is this process' own, for
/// init.
#[must_use]
pub fn main(args: &[OsString], env: Vec<(OsString, OsString)>) -> ExitCode {
    let fds = [INHERITED, INHERITED + 1, PLAN_FD, GO_FD].map(inherited);
    let [Some(lifeline), Some(status), Some(plan), Some(go)] = fds else {
        return ExitCode::FAILURE;
    };
    let mut status = File::from(status);
    let mut go = File::from(go);
    match start_init(args, env, &lifeline, &mut status, &plan, &mut go) {
        Ok(()) => {
            // The supervisor closes the pipe when it knows init.
            let _ended = go.read(&mut [0]);
            ExitCode::SUCCESS
        }
        Err(error) => {
            if Message::write_not_fenced(&mut status, &error.to_string()).is_err() {
                return ExitCode::from(2);
            }
            ExitCode::FAILURE
        }
    }
}

fn start_init(
    args: &[OsString],
    env: Vec<(OsString, OsString)>,
    lifeline: &OwnedFd,
    status: &mut File,
    plan: &OwnedFd,
    go: &mut File,
) -> io::Result<()> {
    make_namespaces()?;
    status.write_all(&Message::Unshared.encode())?;
    go.read_exact(&mut [0])?;
    // Without this, exec would drop the capabilities of a user who is not root in the namespace.
    let all = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            inheritable: OF_INIT
                .into_iter()
                .fold(all.inheritable, CapabilitySet::union),
            ..all
        },
    )?;
    for capability in OF_INIT {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    let mut argv = vec![
        OsString::from("adj"),
        OsString::from("__init"),
        OsString::from(FENCED),
    ];
    argv.extend(args.iter().cloned());
    Spawn {
        program: Path::new(SELF_EXE),
        argv,
        env,
        cwd: Path::new("/"),
        stdin: StdioTarget::Fd(rustix::stdio::stdin()),
        stdout: StdioTarget::Fd(rustix::stdio::stdout()),
        stderr: StdioTarget::Fd(rustix::stdio::stderr()),
        inherit: vec![lifeline.as_fd(), status.as_fd(), plan.as_fd()],
        umask: None,
    }
    .start()
    .map(|_| ())
}

#[expect(
    unsafe_code,
    reason = "unshare is unsafe where it unshares descriptors, which is not done here"
)]
fn make_namespaces() -> io::Result<()> {
    // A new PID namespace begins with the next child. So init is its pid 1, and this process stays
    // outside.
    let kinds =
        UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWPID;
    // SAFETY: no descriptors are unshared, and this process has one thread.
    let made = unsafe { rustix::thread::unshare_unsafe(kinds) };
    made.map_err(|error| {
        io::Error::other(format!(
            "a user namespace cannot be made: {}",
            io::Error::from(error)
        ))
    })
}

/// Writes the id maps of the user namespace of `child`.
///
/// # Errors
/// The kernel refuses them, or `child` has exited.
pub(crate) fn write_id_maps(child: Pid) -> io::Result<()> {
    let proc = Path::new("/proc").join(child.as_raw_nonzero().to_string());
    let write = |file: &str, text: &str| {
        std::fs::write(proc.join(file), text).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the ids cannot be mapped ({file}): {error}"),
            )
        })
    };
    if rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None)?
            .effective
            .contains(CapabilitySet::SETUID | CapabilitySet::SETGID)
    {
        write(
            "uid_map",
            &identity(&std::fs::read_to_string("/proc/self/uid_map")?),
        )?;
        return write(
            "gid_map",
            &identity(&std::fs::read_to_string("/proc/self/gid_map")?),
        );
    }
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    write("uid_map", &format!("{uid} {uid} 1\n"))?;
    // The kernel refuses the gid_map of an unprivileged process before this (user_namespaces(7)).
    write("setgroups", "deny")?;
    write("gid_map", &format!("{gid} {gid} 1\n"))
}

/// Returns the map of every existing id to itself.
fn identity(map: &str) -> String {
    let ranges = map.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (first, count) = (fields.next()?, fields.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    });
    ranges.collect()
}

/// Drops the capabilities for mounting permanently, for this process and its descendants.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    // The bounding set first, because changing it needs CAP_SETPCAP, which is dropped at the end.
    rustix::thread::remove_capability_from_bounding_set(MOUNTING)?;
    // With it, root could open the file of init through /proc/1/exe, which is not read-only.
    rustix::thread::remove_capability_from_bounding_set(CapabilitySet::SYS_PTRACE)?;
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?)
}

/// Drops capabilities permanently, for this process and its descendants, if it has any.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn drop_bounding(capabilities: &[CapabilitySet]) -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    if !own.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for capability in capabilities {
        rustix::thread::remove_capability_from_bounding_set(*capability)?;
    }
    rustix::thread::clear_ambient_capability_set()?;
    let dropped = capabilities
        .iter()
        .copied()
        .fold(CapabilitySet::empty(), CapabilitySet::union);
    let CapabilitySets {
        effective,
        permitted,
        inheritable,
    } = own;
    let left = CapabilitySets {
        effective: effective - dropped,
        permitted: permitted - dropped,
        inheritable: inheritable - dropped,
    };
    Ok(rustix::thread::set_capabilities(None, left)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_map_keeps_every_range() {
        assert_eq!(
            identity("         0          0 4294967295\n"),
            "0 0 4294967295\n"
        );
        assert_eq!(
            identity("0 100000 1000\n1000 1 1\n"),
            "0 0 1000\n1000 1000 1\n"
        );
    }
}
