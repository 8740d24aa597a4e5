//! Places where a build with debug assertions can be made to die, so that a campaign can kill each
//! process exactly there. A release build contains none of it.
//!
//! `ADJ_FAILPOINT=<name>=<file>`: the first process that comes to `name` creates `file` and dies
//! there as by SIGKILL; later processes continue. The hub and the guard pass the variable on.
//!
//! `ADJ_FAILPOINT=clock=<file>`: the clocks are off by what the file says at the time:
//! `<wall ms> <boot clock ms> <boot>`.

/// Every place, by process.
pub const NAMES: &[&str] = &[
    // The home is locked, nothing is open yet.
    "hub.locked",
    // The socket takes connections.
    "hub.listening",
    // The batch is applied, not yet committed.
    "store.before_commit",
    // The batch is on disk and not acknowledged yet.
    "store.after_commit",
    // The attempt is on record, its guard is not there.
    "hub.before_guard",
    // The guard is there, the hub has not noted it.
    "hub.after_guard",
    // Facts of a supervisor have come, nothing of them is on record.
    "hub.before_facts",
    // The guard holds its lock, the supervisor is not there.
    "guard.before_supervisor",
    // The supervisor is there.
    "guard.after_supervisor",
    // The supervisor is gone, what it left is not swept.
    "guard.before_sweep",
    // The directory of the workspace is there, nothing is in it.
    "workspace.before_clone",
    // The workspace is whole, and not in its place yet.
    "workspace.before_rename",
    // The workspace is in its place, nobody works in it yet.
    "workspace.after_rename",
    // The supervisor holds its lock, the marker is not there.
    "supervisor.before_marker",
    // The marker is there, the agent is not.
    "supervisor.after_marker",
    // The agent is there, its fact is not written.
    "supervisor.after_spawn",
    // The agent has ended, its fact is not written.
    "supervisor.before_ended",
    // The last fact is on disk, the hub has not got it.
    "supervisor.after_ended",
    // The merged commit is made, nothing of it is on record.
    "merge.before_journal",
    // The merge is on record, the user's repository is untouched.
    "merge.after_journal",
    // The index of the user's repository is locked, no file is written.
    "merge.after_lock",
    // The files are written, the index is not.
    "merge.after_files",
    // The index is written, the branch is not moved.
    "merge.after_index",
    // The branch is moved, its end is not on record.
    "merge.after_ref",
    // The end of the merge is on record, the caller does not know.
    "merge.after_end",
    // The workspace is recorded as discarded, its directory is there.
    "discard.before_removal",
];

/// What a test has set the clocks to, beside what they show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetClock {
    pub wall_ms: i64,
    pub boot_ms: i64,
    /// Another one is another start of the machine.
    pub boot: String,
}

/// The variable that arms one of them.
pub const VARIABLE: &str = "ADJ_FAILPOINT";

/// Dies here when this place is armed.
macro_rules! failpoint {
    ($name:literal) => {{
        const { assert!($crate::failpoint::is_known($name), "a failpoint that is not in NAMES") }
        $crate::failpoint::reach($name);
    }};
}
pub(crate) use failpoint;

/// Whether `name` is listed; for the macro.
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

/// Returns the place that is armed, and its file.
#[cfg(debug_assertions)]
fn armed() -> Option<&'static (String, String)> {
    use std::sync::OnceLock;
    static ARMED: OnceLock<Option<(String, String)>> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "not configuration, and absent from every release build")]
    let armed = ARMED.get_or_init(|| {
        let value = std::env::var(VARIABLE).ok()?;
        let (name, file) = value.split_once('=')?;
        Some((name.to_string(), file.to_string()))
    });
    armed.as_ref()
}

/// Returns what a test has set the clocks to.
#[cfg(debug_assertions)]
#[must_use]
pub fn clock() -> Option<SetClock> {
    let (_, file) = armed().filter(|(name, _)| name == "clock")?;
    let text = std::fs::read_to_string(file).ok()?;
    let mut words = text.split_whitespace();
    Some(SetClock { wall_ms: words.next()?.parse().ok()?, boot_ms: words.next()?.parse().ok()?, boot: words.next()?.to_owned() })
}

/// Nothing sets the clocks of a release build.
#[cfg(not(debug_assertions))]
#[must_use]
pub fn clock() -> Option<SetClock> {
    None
}

/// For the macro.
#[cfg(debug_assertions)]
pub fn reach(name: &str) {
    if let Some((armed, file)) = armed()
        && armed == name
        && std::fs::OpenOptions::new().write(true).create_new(true).open(file).is_ok()
    {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("a process may kill itself");
        loop {
            std::thread::park();
        }
    }
}

/// For the macro.
#[cfg(not(debug_assertions))]
pub fn reach(_name: &str) {}
