//! Stand-ins for supervisors, so that one load process can use the connections of many runs: this
//! program acts as the hub's binary. Hub and guards are the real ones; a stand-in starts no agent,
//! but connects to the hub as a supervisor and passes its connection to the load process.

use crate::lab::Result;
use crate::wire::Wire;
use adjutant_api::protocol::{AttemptDir, Fact, FactKind, Order, PostFacts};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The data that a stand-in sends along with its connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedConnection {
    pub run_id: String,
    pub attempt: String,
    pub token: String,
}

/// Returns the socket on which the load process receives connections.
pub fn socket(home: &Path) -> PathBuf {
    home.join("standin.sock")
}

/// Handles `__hub`, `__guard` and `__supervise`, if this program is started as one of them.
pub fn main(args: &[OsString]) -> Option<ExitCode> {
    let rest = args.get(2..).unwrap_or_default();
    match args.get(1)?.to_str()? {
        "__hub" => Some(adjutant_cli::program::hub(rest)),
        "__guard" => Some(adjutant_agent::guard::main(rest)),
        "__supervise" => Some(match supervise(Path::new(rest.first()?)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("stand-in: {error}");
                ExitCode::FAILURE
            }
        }),
        _ => None,
    }
}

fn supervise(dir: &Path) -> Result<()> {
    let dir = AttemptDir(dir.to_path_buf());
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let order: Order = serde_json::from_str(&text)?;
    std::fs::File::create_new(dir.started_marker())?;
    // The hub identifies supervisors by the pid in their locks, which the guard writes.
    while crate::lab::lock_pid(&dir.supervisor_lock()).ok() != Some(std::process::id()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let given = PassedConnection {
        run_id: order.run_id.clone(),
        attempt: format!("{}/{}", order.run_id, order.attempt),
        token: order.token,
    };
    let hub = order.home.join("adj.sock");
    let started = FactKind::Started {
        pid: std::process::id(),
        guard_pid: 0,
        containment: "subreaper".to_string(),
        fence: None,
    };
    let facts = PostFacts {
        facts: vec![Fact {
            n: 1,
            at_ms: 0,
            what: started,
        }],
    };
    let mut wire = Wire::new(UnixStream::connect(&hub)?, Some(&given));
    wire.post::<IgnoredAny>("/link/facts", &facts)?;

    let passed = UnixStream::connect(&hub)?;
    let mut bench = UnixStream::connect(socket(&order.home))?;
    let fds = [passed.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err("no room for a descriptor".into());
    }
    sendmsg(
        &bench,
        &[IoSlice::new(b"!")],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    bench.write_all(serde_json::to_string(&given)?.as_bytes())?;
    bench.shutdown(std::net::Shutdown::Write)?;
    // Wait until the load process is done.
    let mut end = Vec::new();
    bench.read_to_end(&mut end)?;
    Ok(())
}

/// Receives a stand-in's connection to the hub. The stand-in runs until the second stream is
/// closed.
pub fn take(listener: &UnixListener) -> Result<(PassedConnection, UnixStream, UnixStream)> {
    let (mut standin, _) = listener.accept()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        &standin,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let fds = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds.collect::<Vec<OwnedFd>>()),
        _ => None,
    });
    let passed = fds.unwrap_or_default().pop().ok_or("no descriptor came")?;
    let mut text = String::new();
    standin.read_to_string(&mut text)?;
    Ok((
        serde_json::from_str(&text)?,
        UnixStream::from(passed),
        standin,
    ))
}
