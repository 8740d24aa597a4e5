//! The fence: where an agent can write.

use crate::words;
use std::path::{Path, PathBuf};

/// The requested fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fence {
    #[default]
    None,
    /// The kernel lets the agent write only to its workspace. Without it, the run does not start.
    Workspace,
    /// Like `Workspace` if the kernel supports it. Otherwise the run starts without a fence and
    /// reports that.
    BestEffort,
}

words!(Fence { None = "none", Workspace = "workspace", BestEffort = "best-effort" });

impl Fence {
    /// Returns the stricter of two fences.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Workspace, _) | (_, Self::Workspace) => Self::Workspace,
            (Self::BestEffort, _) | (_, Self::BestEffort) => Self::BestEffort,
            (Self::None, Self::None) => Self::None,
        }
    }
}

/// Why a directory cannot be fenced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitWorkspace {
    #[error(
        "{0} contains your home directory, so a fence around it would protect nothing: use a directory below it"
    )]
    ContainsUserHome(PathBuf),
    #[error("{0} is in Adjutant's home, which a fence hides: use another directory")]
    InHome(PathBuf),
}

/// Returns the workspace of a run that works in the user's own files: the top of its repository, or
/// its directory. A repository that contains the user's home directory is ignored.
///
/// # Errors
/// A fence around the workspace would protect nothing, or hide it.
pub fn shared_workspace(
    cwd: &Path,
    top: Option<&Path>,
    user_home: Option<&Path>,
    home: &Path,
) -> Result<PathBuf, UnfitWorkspace> {
    let holds_user_home = |dir: &Path| {
        dir == Path::new("/") || user_home.is_some_and(|user_home| user_home.starts_with(dir))
    };
    let workspace = top.filter(|top| !holds_user_home(top)).unwrap_or(cwd);
    if holds_user_home(workspace) {
        return Err(UnfitWorkspace::ContainsUserHome(workspace.to_owned()));
    }
    if workspace.starts_with(home) {
        return Err(UnfitWorkspace::InHome(workspace.to_owned()));
    }
    Ok(workspace.to_owned())
}

/// The beginning of a line that is kept, in bytes.
const LINE_BYTES_MAX: usize = 400;

/// Finds lines of a fenced agent's output that report a denied write. The agent controls its
/// output, so a match is a hint and not a proof.
#[derive(Debug, Default)]
pub struct DeniedWrites {
    line: Vec<u8>,
}

impl DeniedWrites {
    /// Reads the next part of the output.
    pub fn feed(&mut self, text: &[u8], found: &mut dyn FnMut(String)) {
        for piece in text.split_inclusive(|byte| *byte == b'\n') {
            let free = LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&piece[..piece.len().min(free)]);
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line))
                    .trim()
                    .to_owned();
                if reports_denied_write(&line) {
                    found(line);
                }
            }
        }
    }
}

/// Returns whether the parent of a run is notified of its denied writes: at the first one of an
/// attempt, then each time there are ten times as many as at the last notification. So an agent
/// that repeats one wakes its parent only a few times.
#[must_use]
pub fn notifies_of_denied_writes(times: u64, notified_times: u64) -> bool {
    times > 0 && (notified_times == 0 || times / 10 >= notified_times)
}

/// Returns whether a line has the words of the kernel's error for a read-only file system.
fn reports_denied_write(line: &str) -> bool {
    line.contains("EROFS") || line.to_ascii_lowercase().contains("read-only file system")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_writes_are_found_across_reads() {
        let mut scanner = DeniedWrites::default();
        let mut found = Vec::new();
        for text in [
            "touch: cannot touch '/x': Read-on",
            "ly file system\nfine\n",
            "Error: EROFS: mkdir\n",
            "read-only file system",
        ] {
            scanner.feed(text.as_bytes(), &mut |line| found.push(line));
        }
        assert_eq!(
            found,
            [
                "touch: cannot touch '/x': Read-only file system",
                "Error: EROFS: mkdir"
            ]
        );
        scanner.feed(&[b'x'; 10_000], &mut |_| {});
        assert!(scanner.line.len() <= LINE_BYTES_MAX);
    }

    proptest::proptest! {
        #[test]
        fn denied_writes_wake_a_parent_a_few_times(steps in proptest::collection::vec(1_u64..2_000, 1..200)) {
            let (mut times, mut notified, mut wakes) = (0, 0, 0_u32);
            for step in steps {
                times += step;
                if notifies_of_denied_writes(times, notified) {
                    (notified, wakes) = (times, wakes + 1);
                }
            }
            proptest::prop_assert!((1..=6).contains(&wakes) && times / 10 < notified, "{} wakes for {}", wakes, times);
        }
    }

    #[test]
    fn workspace_is_the_repository_but_never_the_users_home() {
        let (user_home, home) = (
            Some(Path::new("/home/u")),
            Path::new("/home/u/.local/state/adjutant"),
        );
        let of = |cwd: &str, top: Option<&str>| {
            shared_workspace(Path::new(cwd), top.map(Path::new), user_home, home)
        };
        assert_eq!(
            of("/home/u/p/src", Some("/home/u/p")),
            Ok(PathBuf::from("/home/u/p"))
        );
        assert_eq!(
            of("/home/u/p/src", None),
            Ok(PathBuf::from("/home/u/p/src"))
        );
        // A repository of dotfiles.
        assert_eq!(
            of("/home/u/notes", Some("/home/u")),
            Ok(PathBuf::from("/home/u/notes"))
        );
        for cwd in ["/home/u", "/home", "/"] {
            assert_eq!(
                of(cwd, None),
                Err(UnfitWorkspace::ContainsUserHome(PathBuf::from(cwd)))
            );
        }
        let inside = home.join("runs");
        assert_eq!(
            shared_workspace(&inside, None, user_home, home),
            Err(UnfitWorkspace::InHome(inside))
        );
    }
}
