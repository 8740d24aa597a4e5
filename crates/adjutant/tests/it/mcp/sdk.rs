//! The main job with the official client SDK.

use crate::processes::Mark;
use crate::support::{TestHome, skip};
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/main_job.py");

/// `ADJ_SDK_PYTHON` names a Python with the official SDK, which `.ci/sdk` installs.
#[test]
fn official_sdk_drives_the_main_job() {
    let Some(python) = std::env::var_os("ADJ_SDK_PYTHON") else {
        // `.ci/sdk` runs this test separately, so that `ADJ_REQUIRE_ALL` works without the SDK.
        if std::env::var_os("ADJ_CI_CACHE").is_none() {
            skip("ADJ_SDK_PYTHON names no Python with the MCP SDK; run .ci/sdk");
        }
        return;
    };
    // The SDK starts `adj` with an environment of its own, and so the hub.
    let home = TestHome::with_config("[pressure]\nmemory = 0\npause = 0\n");
    let mut job = Command::new(python);
    job.arg(SCRIPT)
        .arg(env!("CARGO_BIN_EXE_adj"))
        .arg(&home.home.dir)
        .arg(home.work());
    Mark::of(&home.home.dir).put_on(&mut job);
    let ended = job.output().expect("the Python of ADJ_SDK_PYTHON starts");
    let (told, failed) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    println!("{told}");
    assert!(ended.status.success(), "{told}\n{failed}");
}
