//! The fence, with the real binary and scripted agents that try to get past it.

mod denied;
mod escapes;
pub mod landlock;
mod links;
pub mod users;
mod writes;

use crate::support::TestHome;
use serde_json::Value;
use std::path::Path;

/// An agent that runs the lines of its prompt that begin with `do `.
const SHELL: &str = "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh\"]\n";

/// Runs a shell script as a fenced run and returns the run and what it wrote.
fn fenced(home: &TestHome, name: &str, script: &str) -> (Value, String) {
    start(home, name, script, "workspace");
    let view = home.finished(name);
    (view, home.log(name))
}

fn start(home: &TestHome, name: &str, script: &str, fence: &str) {
    let prompt: String = script.lines().map(|line| format!("do {line}\n")).collect();
    home.ok(&[
        "run", "--detach", "--agent", "sh", "--name", name, "--fence", fence, &prompt,
    ]);
}

/// A line of a script that says whether a command succeeded.
pub fn attempt(what: &str, command: &str) -> String {
    format!(
        "if ( {command} ) >/dev/null 2>&1; then echo '{what}: yes'; else echo '{what}: no'; fi\n"
    )
}

pub fn assert_said(log: &str, expected: &[(&str, bool)]) {
    for (what, yes) in expected {
        let line = format!("{what}: {}", if *yes { "yes" } else { "no" });
        assert!(
            log.lines().any(|said| said.trim_end() == line),
            "{line:?} is not in:\n{log}"
        );
    }
}

pub fn text(path: &Path) -> String {
    path.display().to_string()
}
