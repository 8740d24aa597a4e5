//! Finds the panics that processes of `adj` have printed. A killed process prints none.

use std::path::Path;
use std::{fmt, fs, io};

/// What Rust prints between the name of the thread and the place.
const PANICKED: &str = " panicked at ";

/// A panic of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// The command of the process, or the file that has its standard error.
    pub process: String,
    /// File, line and column in the source.
    pub place: String,
    pub message: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} panicked at {}: {}",
            self.process, self.place, self.message
        )
    }
}

/// Returns the panics in the standard error of a process.
pub fn in_text(process: &str, text: &str) -> Vec<Panic> {
    let mut found = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((_, place)) = line
            .split_once(PANICKED)
            .filter(|(thread, _)| thread.contains("thread "))
        else {
            continue;
        };
        let mut message = lines
            .next_if(|line| !line.contains(PANICKED))
            .unwrap_or_default()
            .to_owned();
        // The values of a failed assertion are on lines of their own.
        while let Some(more) = lines.next_if(|line| line.starts_with(' ')) {
            message = format!("{message}; {}", more.trim());
        }
        found.push(Panic {
            process: process.to_owned(),
            place: place.trim_end_matches(':').to_owned(),
            message,
        });
    }
    found
}

/// Returns the panics in all log files below a directory: those of hubs, guards, supervisors,
/// runners and agents.
///
/// # Errors
/// A directory or a log file cannot be read.
pub fn in_logs(dir: &Path) -> io::Result<Vec<Panic>> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(&next).map_err(|error| of_path(&next, &error))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() && is_log(&path) {
                let bytes = fs::read(&path).map_err(|error| of_path(&path, &error))?;
                let name = path
                    .strip_prefix(dir)
                    .unwrap_or(&path)
                    .display()
                    .to_string();
                found.extend(in_text(&name, &String::from_utf8_lossy(&bytes)));
            }
        }
    }
    Ok(found)
}

/// Returns whether a file is a log, or one that was renamed because it was full.
fn is_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        [".log", ".log.1"]
            .iter()
            .any(|end| name.to_string_lossy().ends_with(end))
    })
}

fn of_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Makes [`panic_of_a_process_is_found`] panic, in a process of its own.
    const PLANT: &str = "XTASK_PLANT_PANIC";

    #[test]
    fn panic_of_a_process_is_found() {
        if std::env::var_os(PLANT).is_some() {
            assert_eq!(1, 2, "planted");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let logs = dir.path().join("home/runs/r1/1");
        fs::create_dir_all(&logs).expect("a directory");
        fs::write(dir.path().join("home/hub.log"), "INFO ready\n").expect("a file");
        let log = fs::File::create(logs.join("supervisor.log")).expect("a file");
        let ourselves = std::env::current_exe().expect("a path");
        let mut command = Command::new(ourselves);
        command
            .args([
                "--exact",
                "panics::tests::panic_of_a_process_is_found",
                "--nocapture",
            ])
            .env(PLANT, "1");
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .status()
            .expect("it starts");
        assert!(!status.success(), "it panics");
        let found = in_logs(dir.path()).expect("it can be read");
        let [panic] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(panic.process, "home/runs/r1/1/supervisor.log");
        assert!(panic.place.starts_with("xtask/src/panics.rs:"), "{panic:?}");
        assert_eq!(
            panic.message,
            "assertion `left == right` failed: planted; left: 1; right: 2"
        );
    }

    #[test]
    fn panics_of_several_threads_are_separate() {
        let text = "INFO x\n\nthread 'tokio-rt-worker' (12) panicked at src/a.rs:1:2:\nfirst\nnote: run with `RUST_BACKTRACE=1`\n\
                    thread 'main' panicked at src/b.rs:3:4:\nthread 'other' panicked at src/c.rs:5:6:\nthird\n";
        let found: Vec<String> = in_text("adj ps", text)
            .iter()
            .map(Panic::to_string)
            .collect();
        let expected = [
            "adj ps panicked at src/a.rs:1:2: first",
            "adj ps panicked at src/b.rs:3:4: ",
            "adj ps panicked at src/c.rs:5:6: third",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn killed_process_and_other_files_are_no_panics() {
        assert_eq!(
            in_text(
                "hub",
                "WARN the hub was killed by signal 9\nERROR the watch of an attempt panicked\n"
            ),
            []
        );
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(
            dir.path().join("source.rs"),
            "thread 'main' panicked at a:1:1:\nx\n",
        )
        .expect("a file");
        assert_eq!(in_logs(dir.path()).expect("it can be read"), []);
        fs::write(
            dir.path().join("hub.log.1"),
            "thread 'main' panicked at a:1:1:\nx\n",
        )
        .expect("a file");
        assert_eq!(in_logs(dir.path()).expect("it can be read").len(), 1);
    }
}
