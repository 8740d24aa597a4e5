//! The declared steps of `.ci/run`, and the records of their passes.

use crate::support::skip;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The declarations of `.ci/steps`: name, and what follows the colon.
fn declared() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(repository().join(".ci/steps")).expect("the steps are declared");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| {
        line.split_once(':')
            .unwrap_or_else(|| panic!("no colon: {line}"))
    });
    parts
        .map(|(name, paths)| {
            (
                name.trim_end_matches(" always").to_owned(),
                paths.split_whitespace().map(str::to_owned).collect(),
            )
        })
        .collect()
}

fn git(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("git");
    // Tests run as another user than the owner of the checkout.
    command
        .args([
            "-c",
            "safe.directory=*",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
        ])
        .arg("-C")
        .arg(dir)
        .args(args);
    command.output().expect("git starts")
}

fn files(paths: &[String]) -> BTreeSet<String> {
    let mut args = vec!["ls-files", "--"];
    args.extend(paths.iter().map(String::as_str));
    let listed = git(&repository(), &args);
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_file_belongs_to_a_step_and_every_path_to_a_file() {
    if !git(&repository(), &["rev-parse", "HEAD"]).status.success() {
        return skip("these sources are no git checkout");
    }
    let mut left = files(&[]);
    assert!(left.len() > 500, "{}", left.len());
    for (name, paths) in declared() {
        for path in paths.iter().filter(|path| !path.starts_with('@')) {
            let found = files(std::slice::from_ref(path));
            assert!(!found.is_empty(), "{name}: {path} matches no file");
            left.retain(|file| !found.contains(file));
        }
    }
    assert!(
        left.is_empty(),
        "these belong to no step of .ci/steps: {left:?}"
    );
}

#[test]
fn steps_that_run_are_those_that_are_declared() {
    let script = fs::read_to_string(repository().join(".ci/run")).expect("the script");
    let called: BTreeSet<&str> = script
        .lines()
        .filter_map(|line| line.trim().strip_prefix("step ")?.split(' ').next())
        .collect();
    let declared = declared();
    let names: BTreeSet<&str> = declared
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !name.starts_with('@'))
        .collect();
    assert_eq!(called, names);
    let groups: BTreeSet<&str> = declared
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| name.starts_with('@'))
        .collect();
    let used: BTreeSet<&str> = declared
        .iter()
        .flat_map(|(_, paths)| paths)
        .map(String::as_str)
        .filter(|path| path.starts_with('@'))
        .collect();
    assert_eq!(
        groups,
        used.into_iter().chain(["@every"]).collect(),
        "each group is declared and used"
    );
}

/// A repository with the scripts, and two steps.
struct Checkout {
    dir: TempDir,
}

impl Checkout {
    fn new() -> Self {
        let checkout = Self {
            dir: TempDir::new().expect("a directory"),
        };
        fs::create_dir_all(checkout.path("work/.ci")).expect("a directory");
        fs::copy(
            repository().join(".ci/passes"),
            checkout.path("work/.ci/passes"),
        )
        .expect("a copy");
        checkout.write(".ci/steps", "@every: .ci/ lock\n@both: shared/\nfirst: @both src/one/\nsecond always: @both src/two/\n");
        for file in ["lock", "shared/x", "src/one/x", "src/two/x", "other"] {
            checkout.write(file, "1\n");
        }
        assert!(
            git(&checkout.path("work"), &["init", "--quiet"])
                .status
                .success()
        );
        checkout.commit();
        checkout
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path("work").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("it can be written");
    }

    fn commit(&self) -> String {
        let work = self.path("work");
        assert!(git(&work, &["add", "--all"]).status.success());
        assert!(
            git(
                &work,
                &["commit", "--quiet", "--allow-empty", "--message", "x"]
            )
            .status
            .success()
        );
        self.head()
    }

    fn head(&self) -> String {
        String::from_utf8_lossy(&git(&self.path("work"), &["rev-parse", "HEAD"]).stdout)
            .trim()
            .to_owned()
    }

    /// Runs `.ci/passes` in a checkout.
    fn passes_in(&self, dir: &str, what: &str, step: &str) -> Option<String> {
        let mut command = Command::new(self.path(dir).join(".ci/passes"));
        let ran = command
            .current_dir(self.path(dir))
            .arg(self.path("records"))
            .args([what, step])
            .output()
            .expect("it starts");
        assert!(matches!(ran.status.code(), Some(0 | 1)), "{ran:?}");
        ran.status
            .success()
            .then(|| String::from_utf8_lossy(&ran.stdout).trim().to_owned())
    }

    fn record(&self, step: &str) {
        self.passes_in("work", "record", step)
            .expect("it is recorded");
    }

    fn valid(&self, step: &str) -> Option<String> {
        self.passes_in("work", "valid", step)
    }
}

#[test]
fn step_is_due_until_it_has_passed_and_after_each_change_of_its_files() {
    let checkout = Checkout::new();
    assert_eq!(checkout.valid("first"), None, "nothing is known of it");
    let first = checkout.head();
    checkout.record("first");
    assert_eq!(
        (checkout.valid("first"), checkout.valid("second")),
        (Some(first.clone()), None)
    );
    for (file, is_due) in [
        ("other", false),
        ("src/two/x", false),
        ("src/one/x", true),
        ("shared/x", true),
        ("lock", true),
        ("src/one/new", true),
    ] {
        checkout.write(file, "2\n");
        let expected = if is_due { None } else { Some(first.clone()) };
        assert_eq!(
            checkout.valid("first"),
            expected,
            "{file} has changed, and is not committed"
        );
        checkout.commit();
        assert_eq!(checkout.valid("first"), expected, "{file} has changed");
        git(&checkout.path("work"), &["rm", "--quiet", file]);
        git(
            &checkout.path("work"),
            &["checkout", "--quiet", &first, "--", "."],
        );
        checkout.commit();
        assert_eq!(
            checkout.valid("first"),
            Some(first.clone()),
            "{file} is as it was"
        );
    }
    // A removed file is a change too.
    git(&checkout.path("work"), &["rm", "--quiet", "src/one/x"]);
    assert_eq!(checkout.valid("first"), None);
}

#[test]
fn pass_of_files_that_are_not_committed_is_not_recorded() {
    let checkout = Checkout::new();
    for file in ["other", "new"] {
        checkout.write(file, "2\n");
        checkout.record("first");
        assert_eq!(checkout.valid("first"), None, "{file}");
        checkout.commit();
    }
    checkout.record("first");
    assert!(checkout.valid("first").is_some());
}

#[test]
fn newest_valid_pass_counts_and_a_clone_finds_it() {
    let checkout = Checkout::new();
    checkout.record("first");
    checkout.write("src/one/x", "2\n");
    let second = checkout.commit();
    checkout.record("first");
    checkout.record("first");
    checkout.write("other", "2\n");
    checkout.commit();
    assert_eq!(checkout.valid("first"), Some(second.clone()));
    let records = fs::read_to_string(checkout.path("records/first")).expect("records");
    assert_eq!(records.lines().count(), 2, "{records}");
    assert!(
        git(checkout.dir.path(), &["clone", "--quiet", "work", "clone"])
            .status
            .success()
    );
    assert_eq!(checkout.passes_in("clone", "valid", "first"), Some(second));
    // A clone without the history, and a record that is not readable, make a step due.
    assert!(
        git(
            checkout.dir.path(),
            &[
                "clone",
                "--quiet",
                "--depth",
                "1",
                &format!("file://{}", checkout.path("work").display()),
                "shallow"
            ]
        )
        .status
        .success()
    );
    assert_eq!(checkout.passes_in("shallow", "valid", "first"), None);
    fs::write(checkout.path("records/first"), "nonsense\n\n--all\n").expect("it can be written");
    assert_eq!(checkout.valid("first"), None);
}
