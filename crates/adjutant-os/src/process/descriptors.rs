//! What the descriptors of a process say about a socket: whether it has the socket, and whether it
//! can hide one.
//!
//! A socket that is in no table of descriptors can still be used later: by a message that contains
//! it, by a pending operation of an `io_uring`, or by a thread that waits in a call while another
//! thread has closed the descriptor.

use rustix::process::Pid;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What `kcmp` compares, from the kernel's `linux/kcmp.h`.
const KCMP_FILES: libc::c_int = 2;
/// The calls during which a thread can receive the data of a descriptor, its first argument, that
/// another thread has closed.
const RECEIVING: [libc::c_long; 8] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_preadv2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_splice,
    libc::SYS_io_submit,
];

/// What a process has to do with a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// It has this descriptor of the socket.
    Has(u32),
    /// It has none, and hides none.
    None,
    /// It may hide one, for this reason.
    Unknown(&'static str),
}

/// Returns a descriptor of the socket. `None`: the process has none, or may not be inspected.
pub fn find(pid: Pid, socket: &str) -> Option<u32> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?;
    descriptors.flatten().find_map(|entry| {
        let is_it = fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == socket);
        entry.file_name().to_str().filter(|_| is_it)?.parse().ok()
    })
}

/// Returns whether a descriptor of a process is still of the socket.
pub fn is_of(pid: Pid, descriptor: u32, socket: &str) -> bool {
    fs::read_link(format!("/proc/{}/fd/{descriptor}", pid.as_raw_nonzero()))
        .is_ok_and(|target| target.as_os_str() == socket)
}

/// Returns whether this process may not read the descriptors of another one, which lives.
pub fn is_unreadable(pid: Pid) -> bool {
    fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns whether the kernel reports sockets that are in messages: since 5.6.
pub fn reports_messages() -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    let (socket, _other) = UnixStream::pair()?;
    Ok(
        in_messages(&Path::new("/proc/self/fdinfo").join(socket.as_raw_fd().to_string()))?
            .is_some(),
    )
}

/// Examines all threads of a process, because each can have a table of its own.
///
/// # Errors
/// This process lacks descriptors or memory.
pub fn examine(pid: Pid, socket: &str) -> io::Result<Link> {
    let Some(threads) = listed(&PathBuf::from(format!(
        "/proc/{}/task",
        pid.as_raw_nonzero()
    )))?
    else {
        return Ok(Link::None);
    };
    for (thread, dir) in threads {
        if thread == pid.as_raw_nonzero().get().unsigned_abs() || !shares_table(pid, thread) {
            match examine_table(&dir, socket)? {
                Link::None => {}
                found => return Ok(found),
            }
        }
        if receives_from_closed(&dir)? {
            return Ok(Link::Unknown("it waits for the data of a descriptor"));
        }
    }
    Ok(Link::None)
}

fn examine_table(thread: &Path, socket: &str) -> io::Result<Link> {
    let descriptors = match listed(&thread.join("fd")) {
        Ok(Some(descriptors)) => descriptors,
        Ok(None) => return Ok(Link::None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Link::Unknown("it may not be inspected"));
        }
        Err(error) => return Err(error),
    };
    for (descriptor, path) in descriptors {
        // It was closed meanwhile.
        let Ok(target) = fs::read_link(path) else {
            continue;
        };
        if target.as_os_str() == socket {
            return Ok(Link::Has(descriptor));
        }
        let target = target.to_string_lossy();
        if target.contains("[io_uring]") {
            return Ok(Link::Unknown("it has an io_uring"));
        }
        let info = thread.join("fdinfo").join(descriptor.to_string());
        if target.starts_with("socket:") && in_messages(&info)?.is_some_and(|count| count > 0) {
            return Ok(Link::Unknown("descriptors are in messages to it"));
        }
    }
    Ok(Link::None)
}

/// Returns how many descriptors are in the messages that wait at a Unix socket. `None`: it is
/// another socket, or closed.
fn in_messages(info: &Path) -> io::Result<Option<u64>> {
    match fs::read_to_string(info) {
        Ok(text) => Ok(text
            .lines()
            .find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse().ok())),
        Err(error) if is_lack(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Returns whether a thread waits for data of a descriptor that is closed, or of a socket of
/// another kind than Unix: the descriptor may be another one by now.
fn receives_from_closed(thread: &Path) -> io::Result<bool> {
    let call = match fs::read_to_string(thread.join("syscall")) {
        Ok(call) => call,
        Err(error) if is_lack(&error) => return Err(error),
        // It has ended, or the kernel does not report calls.
        Err(_) => return Ok(false),
    };
    let mut fields = call.split_ascii_whitespace();
    let Some(number) = fields.next().and_then(|number| number.parse().ok()) else {
        return Ok(false);
    };
    let descriptor = fields
        .next()
        .and_then(|first| u32::from_str_radix(first.trim_start_matches("0x"), 16).ok());
    let Some(descriptor) = descriptor.filter(|_| RECEIVING.contains(&number)) else {
        return Ok(false);
    };
    match fs::read_link(thread.join("fd").join(descriptor.to_string())) {
        Ok(target) => {
            let is_unix = || in_messages(&thread.join("fdinfo").join(descriptor.to_string()));
            Ok(target.to_string_lossy().starts_with("socket:") && is_unix()?.is_none())
        }
        Err(error) if is_lack(&error) => Err(error),
        Err(_) => Ok(true),
    }
}

/// The threads of a process, each with the number of its context switches.
pub type Activity = Vec<(u32, u64)>;

/// What a process and its threads did: changes whenever one of them runs. `None`: one of them runs
/// now.
pub fn activity(pid: Pid) -> io::Result<Option<Activity>> {
    let mut activity = Vec::new();
    for (thread, dir) in listed(&PathBuf::from(format!(
        "/proc/{}/task",
        pid.as_raw_nonzero()
    )))?
    .unwrap_or_default()
    {
        let Ok(status) = fs::read_to_string(dir.join("status")) else {
            return Ok(None);
        };
        if status.lines().any(|line| line.starts_with("State:\tR")) {
            return Ok(None);
        }
        let switches = status
            .lines()
            .filter(|line| line.contains("voluntary_ctxt_switches:"));
        activity.push((
            thread,
            switches
                .filter_map(|line| line.split_once(':')?.1.trim().parse::<u64>().ok())
                .sum(),
        ));
    }
    activity.sort_unstable();
    Ok(Some(activity))
}

/// Lists the numbered entries of a directory in `/proc`. `None`: its process has ended.
fn listed(dir: &Path) -> io::Result<Option<Vec<(u32, PathBuf)>>> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(Some(
            entries
                .flatten()
                .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
                .collect(),
        )),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A lack of descriptors or memory says nothing about a process.
fn is_lack(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|code| [libc::EMFILE, libc::ENFILE, libc::ENOMEM].contains(&code))
}

/// Returns whether a thread has the same table of descriptors as its process. `false` if the kernel
/// does not report it.
#[expect(unsafe_code, reason = "kcmp has no safe wrapper")]
fn shares_table(pid: Pid, thread: u32) -> bool {
    // SAFETY: the call takes numbers only.
    unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            pid.as_raw_nonzero().get(),
            thread,
            KCMP_FILES,
            0,
            0,
        ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};

    fn name(socket: &TcpStream) -> String {
        let link =
            fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("it is open");
        link.to_string_lossy().into_owned()
    }

    #[test]
    fn socket_in_a_message_is_not_overlooked() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let caller =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let name = name(&caller);
        assert_eq!(
            find(getpid(), &name),
            Some(caller.as_raw_fd().unsigned_abs())
        );
        assert!(is_of(getpid(), caller.as_raw_fd().unsigned_abs(), &name));
        assert!(
            reports_messages().expect("a pair"),
            "this kernel is older than 5.6"
        );
        let (here, there) = UnixStream::pair().expect("a pair");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        let descriptors = [caller.as_fd()];
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors)));
        rustix::net::sendmsg(
            &here,
            &[io::IoSlice::new(b"x")],
            &mut control,
            rustix::net::SendFlags::empty(),
        )
        .expect("sent");
        drop(caller);
        let info = Path::new("/proc/self/fdinfo").join(there.as_raw_fd().to_string());
        assert_eq!(in_messages(&info).expect("readable"), Some(1));
        assert_eq!(find(getpid(), &name), None);
    }

    #[test]
    fn thread_that_waits_for_a_closed_descriptor_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut caller =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (accepted, _) = listener.accept().expect("accepted");
        let (send, receive) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get())
                .expect("it listens");
            std::io::Read::read(&mut caller, &mut [0; 1])
        });
        let thread = PathBuf::from(format!(
            "/proc/self/task/{}",
            receive.recv().expect("a thread")
        ));
        while !receives_from_closed(&thread).expect("readable") {
            std::thread::yield_now();
        }
        drop(accepted);
        assert_eq!(waiting.join().expect("it ends").expect("closed"), 0);
    }
}
