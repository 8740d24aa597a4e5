//! Reading an attempt's files after its supervisor has died, and removing those of a run. The run's
//! processes could have replaced any of them, so they are opened through [`files`] and read up to a
//! limit.

use crate::protocol::{AttemptDir, Fact, Remains};
use crate::{files, logs};
use adjutant_core::RunId;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Maximum length of a line in a facts file, in bytes.
const FACT_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum number of bytes read from a facts file: a month of output facts.
const FACTS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// How much of the output of a lost attempt becomes part of its result.
const LAST_OUTPUT_BYTES_MAX: u64 = 4 * 1024;
/// Maximum number of facts, and of their bytes, in one batch.
const BATCH_FACTS_MAX: usize = 256;
const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A supervisor's facts file, read in batches.
#[derive(Debug)]
pub struct LeftFacts {
    /// `None`: no file, or everything is read.
    lines: Option<io::Take<BufReader<File>>>,
    line_no: u64,
    /// Why the rest of the file is ignored.
    pub problem: Option<String>,
}

impl LeftFacts {
    /// Opens an attempt's facts. An unusable file counts as empty.
    ///
    /// # Errors
    /// The file may be readable later.
    pub fn open(dir: &AttemptDir) -> io::Result<Self> {
        let (file, problem) = match files::open(dir.home(), &dir.facts()) {
            Ok(file) => (Some(file), None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
            Err(error) => match files::unusable(&error) {
                Some(unusable) => (None, Some(unusable.to_string())),
                None => return Err(error),
            },
        };
        Ok(Self {
            lines: file.map(|file| BufReader::new(file).take(FACTS_BYTES_MAX)),
            line_no: 0,
            problem,
        })
    }

    /// Returns whether everything was read.
    pub fn is_at_end(&self) -> bool {
        self.lines.is_none()
    }

    /// Reads the next facts with numbers above `after`. A torn last line was never acknowledged and
    /// is ignored.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_batch(&mut self, after: u64) -> io::Result<Vec<Fact>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_FACTS_MAX && bytes < BATCH_BYTES_MAX {
            let Some(lines) = &mut self.lines else { break };
            let mut line = Vec::new();
            let read = lines
                .by_ref()
                .take(FACT_BYTES_MAX)
                .read_until(b'\n', &mut line)? as u64;
            self.line_no += 1;
            let is_whole = line.ends_with(b"\n");
            match serde_json::from_slice::<Fact>(&line) {
                Ok(fact) if is_whole => {
                    bytes += read;
                    batch.extend((fact.n > after).then_some(fact));
                    continue;
                }
                _ if is_whole => {
                    self.problem = Some(format!("line {} is not a fact", self.line_no))
                }
                _ if read >= FACT_BYTES_MAX => {
                    self.problem = Some(format!(
                        "line {} is longer than {FACT_BYTES_MAX} bytes",
                        self.line_no
                    ))
                }
                _ if lines.limit() == 0 => {
                    self.problem = Some(format!("it is larger than {FACTS_BYTES_MAX} bytes"))
                }
                _ => {}
            }
            self.lines = None;
        }
        Ok(batch)
    }
}

/// Whether an attempt's agent was started, according to its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartStatus {
    /// The agent was not started and never will be: the marker was created here.
    NotStarted,
    /// The agent may have been started.
    MaybeStarted,
    /// Unknown, because a file was replaced by something else. The text names it.
    Unknown(String),
}

/// Ensures that an attempt without processes never starts its agent, and returns whether the agent
/// was started.
///
/// The marker's creation decides: once it was created here, a late supervisor starts nothing. An
/// empty marker was left by a process that died here, or by a supervisor that died before it
/// started the agent.
///
/// # Errors
/// A temporary failure: try again later.
pub(crate) fn prevent_start(dir: &AttemptDir) -> io::Result<StartStatus> {
    let home = dir.home();
    // The hub may have died before it made the directory. The marker must prevent a late start even
    // then.
    let store_evidence = files::make_dirs(home, &dir.0).and_then(|()| {
        match files::create_new(home, &dir.started_marker()) {
            Ok(_) => Ok(StartStatus::NotStarted),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A file of facts that was replaced proves nothing, so the agent counts as started.
                let has_facts = files::look(home, &dir.facts())?
                    .is_some_and(|facts| !facts.is_regular || facts.bytes > 0);
                let marker = files::open(home, &dir.started_marker())?;
                // A supervisor writes and syncs the content before it starts the agent.
                Ok(if marker.metadata()?.len() == 0 && !has_facts {
                    StartStatus::NotStarted
                } else {
                    StartStatus::MaybeStarted
                })
            }
            Err(error) => Err(error),
        }
    });
    match store_evidence {
        Err(error) => match files::unusable(&error) {
            Some(unusable) => Ok(StartStatus::Unknown(unusable.to_string())),
            None => Err(error),
        },
        Ok(start_status) => Ok(start_status),
    }
}

/// Returns a lock file of an attempt that was replaced by something else.
pub(crate) fn exchanged_lock(dir: &AttemptDir) -> Option<String> {
    let opened =
        [dir.guard_lock(), dir.supervisor_lock()].map(|lock| files::open(dir.home(), &lock));
    opened
        .into_iter()
        .find_map(|opened| files::unusable(&opened.err()?).map(ToString::to_string))
}

/// Reads what is known about an attempt without processes besides its facts, and ensures that its
/// agent never starts if it has not. `facts_problem`: that of its facts file. `was_seen`: the
/// caller has seen it alive, so it has been active until now.
///
/// # Errors
/// A temporary failure: try again later.
pub fn collect(
    dir: &AttemptDir,
    run_id: &str,
    attempt: u32,
    facts_problem: Option<String>,
    was_seen: bool,
) -> io::Result<Remains> {
    // First: from here on, no supervisor can start the agent, and what is read below stays as it
    // is.
    let start_status = prevent_start(dir)?;
    let never_started = start_status == StartStatus::NotStarted;
    let marker_problem = if let StartStatus::Unknown(problem) = start_status {
        Some(problem)
    } else {
        None
    };
    Ok(Remains {
        never_started,
        problem: facts_problem
            .or(marker_problem)
            .or_else(|| exchanged_lock(dir)),
        last_output: last_output(dir, run_id, attempt),
        active_until_ms: (!was_seen).then(|| last_sign(dir)),
        refusal: None,
        is_too_old: false,
        is_unwritable: false,
    })
}

/// Returns when an attempt wrote last, as far as its files tell, in milliseconds since the epoch.
fn last_sign(dir: &AttemptDir) -> i64 {
    let written = |path: PathBuf| {
        let at = std::fs::symlink_metadata(path)
            .and_then(|meta| meta.modified())
            .ok()?;
        i64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
    };
    [dir.facts(), dir.log()]
        .into_iter()
        .filter_map(written)
        .max()
        .unwrap_or(0)
}

/// Reads the unreported end of an attempt's output.
fn last_output(dir: &AttemptDir, run_id: &str, attempt: u32) -> String {
    let query = logs::Query {
        output: logs::Output::Text,
        after: None,
        bytes_max: LAST_OUTPUT_BYTES_MAX,
        grep: None,
        ended: true,
        times: false,
        since: None,
    };
    match logs::read(dir.home(), run_id, attempt, query) {
        Ok(part) => part.text,
        Err(error) => {
            tracing::warn!(%error, dir = %dir.0.display(), "the output of a lost attempt cannot be read");
            String::new()
        }
    }
}

/// Removes the files of runs: their logs, then the rest. Files that cannot be removed are logged
/// and left. Returns whether there are any.
pub fn remove_files(logs_dir: &Path, runs_dir: &Path, runs: &[RunId]) -> bool {
    let runs: BTreeSet<String> = runs.iter().map(RunId::to_string).collect();
    let mut has_left = false;
    let mut note = |removed: io::Result<()>, path: &Path| {
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "a file of a removed run cannot be removed");
            has_left = true;
        }
    };
    match std::fs::read_dir(logs_dir) {
        Ok(entries) => {
            let is_theirs = |name: &OsStr| {
                name.to_str()
                    .and_then(|name| name.split_once('.'))
                    .is_some_and(|(run, _)| runs.contains(run))
            };
            for entry in entries {
                match entry {
                    Ok(entry) if is_theirs(&entry.file_name()) => {
                        note(std::fs::remove_file(entry.path()), &entry.path())
                    }
                    Ok(_) => {}
                    Err(error) => note(Err(error), logs_dir),
                }
            }
        }
        Err(error) => note(Err(error), logs_dir),
    }
    for run in runs {
        let dir = runs_dir.join(run);
        note(std::fs::remove_dir_all(&dir), &dir);
    }
    has_left
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn attempt() -> (tempfile::TempDir, AttemptDir) {
        let home = tempfile::tempdir().expect("a directory");
        let dir = AttemptDir::new(home.path(), "run", 1);
        files::make_dirs(home.path(), &dir.0).expect("made");
        (home, dir)
    }

    fn line(n: u64) -> String {
        format!("{{\"n\":{n},\"at_ms\":1,\"fact\":\"output\",\"total_bytes\":{n}}}\n")
    }

    fn all(dir: &AttemptDir, after: u64) -> (Vec<u64>, Option<String>) {
        let mut left = LeftFacts::open(dir).expect("opens");
        let mut found = Vec::new();
        loop {
            found.extend(
                left.next_batch(after)
                    .expect("reads")
                    .iter()
                    .map(|fact| fact.n),
            );
            if left.is_at_end() {
                return (found, left.problem);
            }
        }
    }

    #[test]
    fn facts_are_read_up_to_the_first_invalid_line() {
        let (_home, dir) = attempt();
        assert_eq!(all(&dir, 0), (Vec::new(), None));
        std::fs::write(dir.facts(), format!("{}{}{{\"n\":3", line(1), line(2))).expect("written");
        assert_eq!(all(&dir, 0), (vec![1, 2], None));
        assert_eq!(all(&dir, 1), (vec![2], None));
        std::fs::write(dir.facts(), format!("{}nonsense\n{}", line(1), line(2))).expect("written");
        assert_eq!(
            all(&dir, 0),
            (vec![1], Some("line 2 is not a fact".to_owned()))
        );
        let many: String = (1..=1_000).map(line).collect();
        std::fs::write(dir.facts(), many).expect("written");
        assert_eq!(all(&dir, 0).0.len(), 1_000);
    }

    #[test]
    fn huge_facts_file_is_cut() {
        let (_home, dir) = attempt();
        std::fs::write(dir.facts(), line(1)).expect("written");
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.facts())
            .and_then(|file| file.set_len(1 << 40))
            .expect("a sparse file");
        let (found, problem) = all(&dir, 0);
        assert!(
            found == [1] && problem.as_deref() == Some("line 2 is longer than 1048576 bytes"),
            "{found:?} {problem:?}"
        );
    }

    #[test]
    fn replaced_marker_leaves_the_start_unknown() {
        let (_home, dir) = attempt();
        assert_eq!(
            prevent_start(&dir).expect("readable"),
            StartStatus::NotStarted
        );
        assert_eq!(
            prevent_start(&dir).expect("readable"),
            StartStatus::NotStarted
        );
        std::fs::write(dir.started_marker(), "begun\n").expect("written");
        assert_eq!(
            prevent_start(&dir).expect("readable"),
            StartStatus::MaybeStarted
        );
        std::fs::remove_file(dir.started_marker()).expect("removed");
        symlink("nowhere", dir.started_marker()).expect("a link");
        assert!(
            matches!(prevent_start(&dir), Ok(StartStatus::Unknown(problem)) if problem.ends_with("started is a symbolic link, not a regular file"))
        );
        std::fs::remove_dir_all(&dir.0).expect("removed");
        symlink("/tmp", &dir.0).expect("a link");
        assert!(matches!(prevent_start(&dir), Ok(StartStatus::Unknown(_))));
    }
}
