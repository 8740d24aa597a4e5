//! The main job by a client that is not ours.

use crate::processes::Mark;
use crate::support::{TestHome, skip};
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/main_job.py");

/// `ADJ_SDK_PYTHON` names a Python that has the official SDK; `.ci/sdk` makes one.
#[test]
fn the_official_sdk_drives_the_main_job() {
    let Some(python) = std::env::var_os("ADJ_SDK_PYTHON") else {
        // `.ci/sdk` runs this test by itself, so that requiring all tests elsewhere stays possible.
        if std::env::var_os("ADJ_CI_CACHE").is_none() {
            skip("ADJ_SDK_PYTHON names no Python with the MCP SDK; run .ci/sdk");
        }
        return;
    };
    let home = TestHome::new();
    let mut job = Command::new(python);
    job.arg(SCRIPT).arg(env!("CARGO_BIN_EXE_adj")).arg(&home.home.dir).arg(home.work());
    Mark::of(&home.home.dir).put_on(&mut job);
    let ended = job.output().expect("the Python of ADJ_SDK_PYTHON starts");
    let (told, failed) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    println!("{told}");
    assert!(ended.status.success(), "{told}\n{failed}");
}
