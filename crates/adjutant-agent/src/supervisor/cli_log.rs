//! Log files that appear in a directory while the agent runs.

use super::log_lines::Lines;
use crate::process::FileEvents;
use crate::{clock, files};
use adjutant_core::Time;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Stands for the session in a pattern.
const SESSION: &str = "{session}";
/// Maximum number of files that are read.
const FILES_MAX: usize = 16;
/// Maximum number of entries of a directory that are examined.
const ENTRIES_MAX: usize = 4096;
/// How much of a file is read at a time, in buffers. The rest follows with the next change.
const READS_MAX: usize = 16;
/// By how much the kernel's times of files may be behind the clock.
const CLOCK_STEP_MS: i64 = 1_000;

/// Follows the files below a directory that match a pattern.
#[derive(Debug)]
pub(crate) struct CliLog {
    /// No link below it is followed.
    base: PathBuf,
    /// Names below the base. `*` is any name, `*.log` any name with this suffix, and `{session}`
    /// the session's id.
    pattern: Vec<String>,
    session: Option<String>,
    /// If names do not contain the session, files that have not changed since then belong to other
    /// sessions.
    since: Option<Time>,
    events: FileEvents,
    files: Vec<CliLogFile>,
}

#[derive(Debug)]
struct CliLogFile {
    path: PathBuf,
    /// Device and inode: a log that is rotated is another file under the same name.
    id: (u64, u64),
    file: File,
    lines: Lines,
}

impl CliLog {
    /// # Errors
    /// The kernel watches no more directories.
    pub(super) fn new(base: PathBuf, pattern: &str, session: Option<&str>) -> io::Result<Self> {
        let events = FileEvents::new()?;
        let since = (!pattern.contains(SESSION)).then(|| clock::now().plus_ms(-CLOCK_STEP_MS));
        let pattern = pattern.split('/').map(str::to_owned).collect();
        let mut files = Self {
            base,
            pattern,
            session: None,
            since,
            events,
            files: Vec::new(),
        };
        match session {
            Some(session) => files.set_session(session),
            None => files.find(),
        }
        // Earlier lines of a resumed session are skipped.
        for CliLogFile { file, .. } in &mut files.files {
            file.seek(SeekFrom::End(0))?;
        }
        Ok(files)
    }

    /// Sets the session. Its files are searched for from now on.
    pub(super) fn set_session(&mut self, session: &str) {
        // It becomes part of a path.
        let is_name = session
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if is_name && !session.is_empty() && self.session.as_deref() != Some(session) {
            self.session = Some(session.to_owned());
            self.find();
        }
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Waits for a change in a watched directory or file.
    pub(super) async fn changed(&self) {
        self.events.changed().await;
    }

    /// Reads the appended text, and passes on complete lines.
    pub(super) fn read(&mut self, buffer: &mut [u8], each: &mut dyn FnMut(&str)) {
        self.find();
        for CliLogFile {
            path, file, lines, ..
        } in &mut self.files
        {
            for _ in 0..READS_MAX {
                match file.read(buffer) {
                    Ok(0) => break,
                    Ok(read) => lines.push(&buffer[..read], each),
                    Err(error) => {
                        tracing::debug!(%error, path = %path.display(), "a log of the agent's CLI cannot be read");
                        break;
                    }
                }
            }
        }
    }

    /// Searches for the files again if none is open yet.
    pub(crate) fn find_first(&mut self) {
        if self.files.is_empty() {
            self.find();
        }
    }

    /// Watches the directories that exist, and opens the files that are new.
    fn find(&mut self) {
        if self.session.is_none() && self.pattern.iter().any(|name| name.contains(SESSION)) {
            return;
        }
        let mut dirs = vec![self.base.clone()];
        let Some((name, above)) = self.pattern.split_last() else {
            return;
        };
        for (n, component) in above.iter().enumerate() {
            let Some(wanted) = self.name_of(component) else {
                return;
            };
            // A directory with the files of many sessions is not watched.
            let next = above
                .get(n + 1)
                .or(Some(name))
                .and_then(|next| self.name_of(next))
                .filter(|next| !next.contains('*'));
            let mut found = Vec::new();
            for dir in &dirs {
                if wanted.contains('*') {
                    let children = entries(dir, &wanted).map(|child| dir.join(child));
                    found.extend(children.filter(|child| {
                        next.as_ref()
                            .is_none_or(|next| child.join(next).symlink_metadata().is_ok())
                    }));
                } else {
                    self.watch(dir);
                    found.push(dir.join(&wanted));
                }
            }
            dirs = found;
        }
        let Some(wanted) = self.name_of(name) else {
            return;
        };
        for dir in &dirs {
            self.watch(dir);
            for name in entries(dir, &wanted) {
                let path = dir.join(name);
                if self.files.len() < FILES_MAX
                    && let Ok(file) = files::open(&self.base, &path)
                    && let Ok(meta) = file.metadata()
                    && self.since.is_none_or(|since| {
                        meta.mtime().saturating_mul(1000) + meta.mtime_nsec() / 1_000_000 >= since.0
                    })
                    && let id = (meta.dev(), meta.ino())
                    && self.files.iter().all(|known| known.id != id)
                {
                    self.files.push(CliLogFile {
                        path,
                        id,
                        file,
                        lines: Lines::default(),
                    });
                }
            }
        }
    }

    /// Fills in the session. `None`: it is not known yet.
    fn name_of(&self, component: &str) -> Option<String> {
        match &self.session {
            Some(session) => Some(component.replace(SESSION, session)),
            None => Some(component.to_owned()).filter(|name| !name.contains(SESSION)),
        }
    }

    fn watch(&self, dir: &Path) {
        match self.events.watch_dir(dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::debug!(%error, dir = %dir.display(), "a directory of logs cannot be watched")
            }
        }
    }
}

/// Lists the entries of a directory that match a name, which may begin with `*`.
fn entries(dir: &Path, wanted: &str) -> impl Iterator<Item = String> {
    let names = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .take(ENTRIES_MAX)
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(move |name| match wanted.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => name == wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines(files: &mut CliLog) -> Vec<String> {
        let (mut buffer, mut lines) = ([0; 8], Vec::new());
        files.read(&mut buffer, &mut |line| {
            lines.push(line.trim_end().to_owned())
        });
        lines
    }

    #[tokio::test]
    async fn lines_of_the_sessions_file_are_read_as_they_appear() {
        let base = tempfile::tempdir().expect("a directory");
        let mut files = CliLog::new(base.path().to_owned(), "*/{session}/logs/*.log", None)
            .expect("files can be watched");
        let (own, other) = (
            base.path().join("wd_a/session_1"),
            base.path().join("wd_b/session_2/logs"),
        );
        fs::create_dir_all(&own).expect("directories");
        fs::create_dir_all(&other).expect("directories");
        fs::write(other.join("x.log"), "of another session\n").expect("a file");
        files.set_session("session_1");
        assert!(lines(&mut files).is_empty());
        fs::create_dir(own.join("logs")).expect("a directory");
        files.changed().await;
        assert!(lines(&mut files).is_empty());
        fs::write(own.join("logs/notes.txt"), "no log\n").expect("a file");
        let mut log = File::create(own.join("logs/k.log")).expect("a file");
        log.write_all(b"first line\nhal").expect("it is written");
        files.changed().await;
        assert_eq!(lines(&mut files), ["first line"]);
        log.write_all(b"f of one\n").expect("it is written");
        files.changed().await;
        assert_eq!(lines(&mut files), ["half of one"]);
    }

    #[tokio::test]
    async fn lines_from_before_a_resume_are_not_read() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("session_1.log");
        fs::write(&path, "old\n").expect("a file");
        let mut files = CliLog::new(base.path().to_owned(), "{session}.log", Some("session_1"))
            .expect("files can be watched");
        let mut log = File::options().append(true).open(&path).expect("the file");
        log.write_all(b"new\n").expect("it is written");
        files.changed().await;
        assert_eq!(lines(&mut files), ["new"]);
        fs::rename(&path, base.path().join("session_1.log.1")).expect("it is rotated");
        fs::write(&path, "of the next file\n").expect("a file");
        assert_eq!(lines(&mut files), ["of the next file"]);
    }

    #[tokio::test]
    async fn old_files_of_other_sessions_are_not_read() {
        let base = tempfile::tempdir().expect("a directory");
        let dir = base.path().join("2026-11-22");
        fs::create_dir(&dir).expect("a directory");
        for n in 0..2 * FILES_MAX {
            let file = File::create(dir.join(format!("{n}.log"))).expect("a file");
            file.set_modified(std::time::UNIX_EPOCH)
                .expect("its time can be set");
        }
        let mut files =
            CliLog::new(base.path().to_owned(), "*/*.log", None).expect("files can be watched");
        assert!(files.files.is_empty());
        fs::write(dir.join("own.log"), "own\n").expect("a file");
        files.set_session("s_1");
        assert_eq!(
            (lines(&mut files), files.session()),
            (vec!["own".to_owned()], Some("s_1"))
        );
    }

    #[tokio::test]
    async fn links_and_names_that_leave_the_directory_are_not_followed() {
        let (base, outside) = (
            tempfile::tempdir().expect("a directory"),
            tempfile::tempdir().expect("a directory"),
        );
        fs::write(outside.path().join("x.log"), "secret\n").expect("a file");
        std::os::unix::fs::symlink(outside.path(), base.path().join("logs")).expect("a link");
        std::os::unix::fs::symlink(outside.path().join("x.log"), base.path().join("y.log"))
            .expect("a link");
        for pattern in ["logs/*.log", "*.log", "{session}/*.log"] {
            let mut files = CliLog::new(base.path().to_owned(), pattern, Some("../logs"))
                .expect("files can be watched");
            assert!(lines(&mut files).is_empty(), "{pattern}");
        }
    }
}
