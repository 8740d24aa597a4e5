//! The program itself, which cargo builds with its tests.
#![expect(clippy::disallowed_methods, reason = "tests start the program")]

use std::fs;
use std::process::Command;

#[test]
fn writes_a_manual_page_for_each_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let ran = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("man")
        .arg(dir.path())
        .output()
        .expect("it starts");
    assert!(ran.status.success(), "{ran:?}");
    let page = |name: &str| {
        fs::read_to_string(dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(page("adj.1").contains(".SH"));
    for command in ["run", "reply", "wait", "merge"] {
        assert!(
            page(&format!("adj-{command}.1")).contains(command),
            "{command}"
        );
    }
}

#[test]
fn unknown_command_is_refused() {
    let ran = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("campain")
        .output()
        .expect("it starts");
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(
        String::from_utf8_lossy(&ran.stderr).contains("campaign"),
        "it names the command that was meant"
    );
}
