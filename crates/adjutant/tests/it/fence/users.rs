//! A fenced run cannot become another user.

use super::SHELL;
use crate::processes::Mark;
use crate::support::TestHome;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

const NOBODY: u32 = 65_534;

/// Runs `adj` as an ordinary user: as `nobody` where the test is root.
fn as_ordinary_user(home: &TestHome, args: &[&str]) -> String {
    as_user(home, rustix::process::geteuid().is_root(), args)
}

/// Runs `adj` as this user, or as `nobody`, and returns what it prints.
pub fn as_user(home: &TestHome, is_nobody: bool, args: &[&str]) -> String {
    let own = home.command(args);
    let mut command = Command::new("setpriv");
    if is_nobody {
        let id = NOBODY.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    command
        .arg("--")
        .arg(own.get_program())
        .args(args)
        .env_clear()
        .envs(
            own.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    command.current_dir(home.work()).stdin(Stdio::null());
    Mark::of(&home.home.dir).put_on(&mut command);
    let ran = command.output().expect("setpriv is installed");
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).expect("UTF-8")
}

pub fn give_to_nobody(dir: &Path) {
    chown(dir, Some(NOBODY), Some(NOBODY)).expect("root may");
    for entry in std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry"))
    {
        if entry.file_type().expect("a type").is_dir() {
            give_to_nobody(&entry.path());
        } else {
            chown(entry.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    }
}

#[test]
fn setuid_program_gains_no_privileges_in_a_fence() {
    let home = TestHome::with_config(SHELL);
    let probe = home.work().with_file_name("probe");
    if rustix::process::geteuid().is_root() {
        give_to_nobody(home.work().parent().expect("a directory"));
        // Owned by root, so it runs as root outside.
        std::fs::copy("/usr/bin/id", &probe).expect("a file");
        std::fs::set_permissions(&probe, std::fs::Permissions::from_mode(0o4755)).expect("a mode");
    }
    let script = "do grep NoNewPrivs /proc/self/status\ndo ../probe || echo no probe\n";
    for (name, fence) in [("free", "none"), ("fenced", "workspace")] {
        as_ordinary_user(
            &home,
            &[
                "run", "-w", "-a", "sh", "-n", name, "--fence", fence, script,
            ],
        );
    }
    let [free, fenced] = ["free", "fenced"].map(|name| as_ordinary_user(&home, &["logs", name]));
    if rustix::process::geteuid().is_root() {
        assert!(free.contains("euid=0"), "the probe shows nothing: {free}");
    }
    assert!(
        fenced.contains("NoNewPrivs:\t1") && !fenced.contains("euid=0"),
        "{fenced}"
    );
}
