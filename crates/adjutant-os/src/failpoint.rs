//! Named points at which a process of a debug build can be made to die, used by the kill campaign
//! and by tests. A release build contains none of them.
//!
//! `ADJ_FAILPOINT=<name>=<file>`: the first process that reaches `name` creates `file` and dies by
//! SIGKILL; later processes continue. The hub and the guard pass the variable to the processes that
//! they start.
//!
//! `ADJ_FAILPOINT=pressure=<dir>`: the load of the machine is read from the files `memory`, `cpu`
//! and `meminfo` there. With any other value, the load is unknown: what a test observes never
//! depends on the load of its host.
//!
//! `ADJ_FAILPOINT=full=<file>`: while the file exists, no transaction of the store commits, as on a
//! full disk.
//!
//! `ADJ_FAILPOINT=held=<fifo>`: an undo that is recorded waits until the FIFO is opened for
//! writing.
//!
//! `ADJ_FAILPOINT=window=<dir>`: programs of the user work while a file of theirs is replaced. At
//! the moments `looked`, `exchanged`, `checked` and `swapping`, the files `<moment>.rename` and
//! `<moment>.write` there replace the file, by a rename or in place, `<moment>.remove` removes it,
//! and `<moment>.kill` kills this process, each once; so does `<name>.kill` at the failpoint of
//! this name. While `no-exchange` exists, the file system cannot exchange names; while `unchecked`
//! exists, files are replaced without a look. After the snapshot of an undo, `snapshot.rename`
//! replaces the file that `snapshot.to` names.
//!
//! `ADJ_FAILPOINT=unchecked=on`: files of the user are replaced and removed without a look.
//!
//! `ADJ_FAILPOINT=unsynced=on`: merges and undos are not synced.
//!
//! `ADJ_FAILPOINT=certificate=<fifo>`: while the FIFO exists, the hub's certificate is not read
//! until it is opened for writing.
//!
//! `ADJ_FAILPOINT=unfenced=on`: a hub that has lost its session continues to write to a store that
//! it shares, without lock and epoch.
//!
//! `ADJ_FAILPOINT=conformance=on`: the hub's `/mcp` also has the tools, prompts, resources and
//! tasks that MCP's conformance suite calls.
//!
//! `ADJ_FAILPOINT=unread=<ms>`: a client over HTTP that reads nothing of a reply is disconnected
//! after this time.
//!
//! `ADJ_FAILPOINT=unused=<ms>`: a session of MCP over HTTP that is unused for this time ends.
//!
//! `ADJ_FAILPOINT=unsent=<ms>`: a runner lets a run end without its work after this time, and sends
//! unsent work again after this time.
//!
//! `ADJ_FAILPOINT=network=on`: the home is on a network file system.
//!
//! `ADJ_FAILPOINT=clock=<file>`: the clocks are shifted by the current content of the file: `<wall
//! ms> <boot clock ms> <boot>`.

/// Every failpoint, by process.
pub const NAMES: &[&str] = &[
    // The home is locked, nothing is open yet.
    "hub.locked",
    // The socket accepts connections.
    "hub.listening",
    // The batch is applied, not yet committed.
    "store.before_commit",
    // The batch is on disk, not yet acknowledged.
    "store.after_commit",
    // The attempt is recorded, its guard not yet started.
    "hub.before_guard",
    // The guard is started, the hub has not recorded it.
    "hub.after_guard",
    // The token of a launched runner is stored, its command not yet started.
    "launch.before_command",
    // The command is started.
    "launch.after_command",
    // Facts of a supervisor have arrived, none is recorded.
    "hub.before_facts",
    // The guard holds its lock, the supervisor is not yet started.
    "guard.before_supervisor",
    // The supervisor is started.
    "guard.after_supervisor",
    // The supervisor has exited, remaining processes are not yet killed.
    "guard.before_sweep",
    // The directory of the workspace exists, but is empty.
    "workspace.before_clone",
    // The commit that a workspace is created from is recorded, its ref still names the one of the
    // dispatch.
    "base.after_choice",
    // The workspace is complete, but not yet renamed.
    "workspace.before_rename",
    // The workspace is renamed, the agent not yet started.
    "workspace.after_rename",
    // The setup command has succeeded, which is not yet recorded.
    "workspace.after_setup",
    // The supervisor holds its lock, the marker does not exist yet.
    "supervisor.before_marker",
    // The marker exists, the agent is not yet started.
    "supervisor.after_marker",
    // The agent is started, its fact not yet written.
    "supervisor.after_spawn",
    // The agent has exited, its fact not yet written.
    "supervisor.before_ended",
    // The files of a snapshot are in the index, its tree is not written.
    "snapshot.before_tree",
    // The commit of a snapshot exists, its ref does not.
    "snapshot.before_ref",
    // The first file is restored, the others are not.
    "undo.applying",
    // A file of the user has the state that was seen, and is not replaced yet.
    "replace.looked",
    // It is exchanged with the new one, or renamed, and not looked at again.
    "replace.exchanged",
    // It was looked at again, and is neither removed nor put back.
    "replace.checked",
    // The last fact is on disk, the hub has not received it.
    "supervisor.after_ended",
    // The merged commit is created, nothing is recorded.
    "merge.before_journal",
    // The merge is recorded, the user's repository not yet changed.
    "merge.after_journal",
    // The index of the user's repository is locked, no file is written yet.
    "merge.after_lock",
    // The files are written, the branch not yet moved.
    "merge.after_files",
    // The index is written, the end of the merge not yet recorded.
    "merge.after_index",
    // The branch is moved, the index is not yet written.
    "merge.after_ref",
    // The end of the merge is recorded, not yet acknowledged.
    "merge.after_end",
    // A post of another hub has arrived, and is not stored.
    "peer.before_post",
    // It is stored, and not acknowledged.
    "peer.after_post",
    // Another hub has accepted a post, which is not recorded.
    "peer.before_delivered",
    // Entries of another hub have arrived, none is stored.
    "peer.before_copy",
    // They are stored, with the position after them.
    "peer.after_copy",
    // The objects of a run on a runner are stored, its refs are not.
    "bundle.before_refs",
    // The refs are stored, not yet acknowledged.
    "bundle.after_refs",
    // Bytes of a log of a runner are stored, not yet acknowledged.
    "logs.part_stored",
    // All of them are, which is recorded and not yet acknowledged.
    "logs.accepted",
    // An object of an attempt's logs is in the log store.
    "logs.object_stored",
    // All of them are, with their index.
    "logs.index_stored",
    // This is recorded, the files in the home are not yet removed.
    "logs.moved",
    // The hub has bytes of a log, the runner has not sent the next ones.
    "logs.part_sent",
    // The runner has removed the files of removed runs, and not confirmed it.
    "logs.removed_on_runner",
    // The workspace is recorded as discarded, its directory not yet removed.
    "discard.before_removal",
];

/// The offsets of the clocks that a test has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetClock {
    pub wall_ms: i64,
    pub boot_ms: i64,
    /// The id of the machine's boot. Another id simulates a reboot.
    pub boot: String,
}

/// The variable that arms a failpoint.
pub const VARIABLE: &str = "ADJ_FAILPOINT";

/// Dies here if this failpoint is armed.
#[doc(hidden)]
#[macro_export]
macro_rules! __failpoint {
    ($name:literal) => {{
        const {
            assert!(
                $crate::failpoint::is_known($name),
                "a failpoint that is not in NAMES"
            )
        }
        $crate::failpoint::reach($name);
    }};
}
pub use crate::__failpoint as failpoint;

/// Returns whether `name` is listed. For the macro.
#[must_use]
pub const fn is_known(name: &str) -> bool {
    let mut at = 0;
    while at < NAMES.len() {
        if equal(NAMES[at].as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns the name of the armed failpoint and its file.
#[cfg(debug_assertions)]
fn armed_failpoint() -> Option<&'static (String, String)> {
    use std::sync::OnceLock;
    static ARMED: OnceLock<Option<(String, String)>> = OnceLock::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "not configuration, and absent from every release build"
    )]
    let armed = ARMED.get_or_init(|| {
        let value = std::env::var(VARIABLE).ok()?;
        let (name, file) = value.split_once('=')?;
        Some((name.to_string(), file.to_string()))
    });
    armed.as_ref()
}

/// Returns the clock offsets that a test has set.
#[cfg(debug_assertions)]
#[must_use]
pub fn clock() -> Option<SetClock> {
    let (_, file) = armed_failpoint().filter(|(name, _)| name == "clock")?;
    let text = std::fs::read_to_string(file).ok()?;
    let mut words = text.split_whitespace();
    Some(SetClock {
        wall_ms: words.next()?.parse().ok()?,
        boot_ms: words.next()?.parse().ok()?,
        boot: words.next()?.to_owned(),
    })
}

/// Clocks cannot be shifted in a release build.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn clock() -> Option<SetClock> {
    None
}

/// Returns the directory in which a test has scripted the load of the machine. Any other failpoint
/// has a directory without files.
#[cfg(debug_assertions)]
#[must_use]
pub fn pressure() -> Option<std::path::PathBuf> {
    armed_failpoint().map(|(name, dir)| {
        if name == "pressure" {
            dir.into()
        } else {
            "/dev/null".into()
        }
    })
}

/// The load cannot be scripted in a release build.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn pressure() -> Option<std::path::PathBuf> {
    None
}

/// Returns whether a home on a network file system is simulated.
#[cfg(debug_assertions)]
#[must_use]
pub fn is_network() -> bool {
    armed_failpoint().is_some_and(|(name, _)| name == "network")
}

/// No network file system can be simulated in a release build.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn is_network() -> bool {
    false
}

/// Returns whether a full disk of the store is simulated.
#[cfg(debug_assertions)]
#[must_use]
pub fn is_disk_full() -> bool {
    armed_failpoint()
        .is_some_and(|(name, file)| name == "full" && std::path::Path::new(file).exists())
}

/// A release build simulates no full disk.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn is_disk_full() -> bool {
    false
}

/// Returns whether the fencing of a shared store is switched off.
#[cfg(debug_assertions)]
#[must_use]
pub fn is_unfenced() -> bool {
    armed_failpoint().is_some_and(|(name, _)| name == "unfenced")
}

/// A release build always has the fencing.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn is_unfenced() -> bool {
    false
}

/// Returns whether the checks before and after replacing a file of the user are switched off.
#[cfg(debug_assertions)]
#[must_use]
pub(crate) fn is_unchecked() -> bool {
    armed_failpoint().is_some_and(|(name, dir)| {
        name == "unchecked"
            || (name == "window" && std::path::Path::new(dir).join("unchecked").exists())
    })
}

/// A release build always has the checks.
#[cfg(not(debug_assertions))]
#[must_use]
pub(crate) fn is_unchecked() -> bool {
    false
}

/// Returns whether merges and undos are not synced.
#[cfg(debug_assertions)]
#[must_use]
pub fn is_unsynced() -> bool {
    armed_failpoint().is_some_and(|(name, _)| name == "unsynced")
}

/// A release build always syncs.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn is_unsynced() -> bool {
    false
}

/// Returns whether a file system that cannot exchange names is simulated.
#[cfg(debug_assertions)]
#[must_use]
pub(crate) fn cannot_exchange() -> bool {
    armed_failpoint().is_some_and(|(name, dir)| {
        name == "window" && std::path::Path::new(dir).join("no-exchange").exists()
    })
}

/// A release build asks the file system.
#[cfg(not(debug_assertions))]
#[must_use]
pub(crate) fn cannot_exchange() -> bool {
    false
}

/// Lets a program of the user work at a moment of replacing a file.
#[cfg(debug_assertions)]
pub fn window(moment: &str, dir: &std::os::fd::OwnedFd, name: &std::ffi::OsStr) {
    let Some((_, scripts)) = armed_failpoint().filter(|(armed, _)| armed == "window") else {
        return;
    };
    let script = |kind: &str| {
        Some(std::path::Path::new(scripts).join(format!("{moment}.{kind}")))
            .filter(|path| path.exists())
    };
    let worked = || -> std::io::Result<()> {
        if let Some(path) = script("rename") {
            rustix::fs::renameat(rustix::fs::CWD, &path, dir, name)?;
        }
        if let Some(path) = script("write") {
            let (text, flags) = (
                std::fs::read(&path)?,
                rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC,
            );
            let file = rustix::fs::openat(dir, name, flags, rustix::fs::Mode::empty())?;
            rustix::io::write(&file, &text)?;
            std::fs::remove_file(path)?;
        }
        if let Some(path) = script("remove") {
            rustix::fs::unlinkat(dir, name, rustix::fs::AtFlags::empty())?;
            std::fs::remove_file(path)?;
        }
        if let Some(path) = script("kill") {
            std::fs::remove_file(path)?;
            rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            )?;
            loop {
                std::thread::park();
            }
        }
        Ok(())
    };
    if let Err(error) = worked() {
        tracing::error!(%error, moment, "the program of a test failed");
    }
}

/// Lets a program of the user replace the file that `<moment>.to` names.
#[cfg(debug_assertions)]
pub fn save(moment: &str) {
    let Some((_, scripts)) = armed_failpoint().filter(|(armed, _)| armed == "window") else {
        return;
    };
    let from = std::path::Path::new(scripts).join(format!("{moment}.rename"));
    if let Ok(to) =
        std::fs::read_to_string(std::path::Path::new(scripts).join(format!("{moment}.to")))
        && let Err(error) = std::fs::rename(&from, to)
    {
        tracing::debug!(%error, moment, "the program of a test has saved already");
    }
}

/// No program of a test works in a release build.
#[cfg(not(debug_assertions))]
pub fn save(_moment: &str) {}

/// No program of a test works in a release build.
#[cfg(not(debug_assertions))]
pub fn window(_moment: &str, _dir: &std::os::fd::OwnedFd, _name: &std::ffi::OsStr) {}

/// Waits where a test holds this work. Blocks.
#[cfg(debug_assertions)]
pub fn hold(name: &str) {
    if let Some((_, fifo)) = armed_failpoint().filter(|(armed, _)| armed == name)
        && let Err(error) = std::fs::File::open(fifo)
    {
        tracing::debug!(%error, fifo, "nothing is held");
    }
}

/// Nothing can be held in a release build.
#[cfg(not(debug_assertions))]
pub fn hold(_name: &str) {}

/// Returns the time after which a test expects a client that reads nothing to be disconnected.
#[cfg(debug_assertions)]
#[must_use]
pub fn unread_max() -> Option<std::time::Duration> {
    armed_duration("unread")
}

/// Returns the time after which a test expects an unused session to end.
#[cfg(debug_assertions)]
#[must_use]
pub fn unused_max() -> Option<std::time::Duration> {
    armed_duration("unused")
}

/// Returns the time after which a test expects a runner to let a run end without its work, and to
/// send it again.
#[cfg(debug_assertions)]
#[must_use]
pub fn unsent_after() -> Option<std::time::Duration> {
    armed_duration("unsent")
}

#[cfg(debug_assertions)]
fn armed_duration(name: &str) -> Option<std::time::Duration> {
    let (_, ms) = armed_failpoint().filter(|(armed, _)| armed == name)?;
    ms.parse().ok().map(std::time::Duration::from_millis)
}

/// A release build always waits for the usual time.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn unread_max() -> Option<std::time::Duration> {
    None
}

/// In a release build, runners always wait for the usual time.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn unsent_after() -> Option<std::time::Duration> {
    None
}

/// In a release build, sessions always end after the usual time.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn unused_max() -> Option<std::time::Duration> {
    None
}

/// Returns whether the hub has the fixtures of the conformance suite.
#[cfg(debug_assertions)]
#[must_use]
pub fn has_conformance_fixtures() -> bool {
    armed_failpoint().is_some_and(|(name, _)| name == "conformance")
}

/// For the macro.
#[cfg(debug_assertions)]
pub fn reach(name: &str) {
    let Some((armed, file)) = armed_failpoint() else {
        return;
    };
    let is_first = || {
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(file)
            .is_ok()
    };
    // Only one process can remove it.
    let is_scripted = || {
        armed == "window"
            && std::fs::remove_file(std::path::Path::new(file).join(format!("{name}.kill"))).is_ok()
    };
    if (armed == name && is_first()) || is_scripted() {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .expect("a process may kill itself");
        loop {
            std::thread::park();
        }
    }
}

/// For the macro.
#[cfg(not(debug_assertions))]
pub fn reach(_name: &str) {}
