//! Checks that a test whose result depends on its user runs as each.

use super::{crate_dir, sources};
use regex::Regex;
use std::fs;
use std::path::Path;

/// What a test calls to learn who runs it.
const ASKS: [&str; 4] = ["is_root(", "geteuid(", "getuid(", "effective_user("];
/// These only tell the tests who runs them.
const HELPERS: [&str; 2] = ["support", "processes"];

#[test]
fn tests_that_ask_who_runs_them_run_as_both_users() {
    let config = fs::read_to_string(crate_dir().join("../../.config/nextest.toml"))
        .expect("the settings of nextest");
    let both = config
        .split("[profile.both]")
        .nth(1)
        .expect("the profile of both users");
    let pattern = Regex::new(r"binary\(it\) & test\(/(.+?)/\)").expect("a pattern");
    let modules: Vec<Regex> = pattern
        .captures_iter(both)
        .map(|found| Regex::new(&found[1]).expect("a pattern of tests"))
        .collect();
    assert!(modules.len() > 1, "{both}");
    let root = crate_dir().join("tests/it");
    let mut asking = Vec::new();
    for (_, file, code) in sources(&root) {
        let module = module_of(&file);
        if ASKS.iter().any(|call| code.contains(call)) && !HELPERS.contains(&module.as_str()) {
            asking.push(module);
        }
    }
    assert!(asking.len() > 5, "{asking:?}");
    let once: Vec<&String> = asking
        .iter()
        .filter(|module| {
            !modules
                .iter()
                .any(|both| both.is_match(&format!("{module}::")))
        })
        .collect();
    assert!(
        once.is_empty(),
        "these ask who runs them, and run only as an ordinary user (.config/nextest.toml, profile both): {once:?}"
    );
}

fn module_of(file: &Path) -> String {
    let parts: Vec<String> = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    parts.join("::").trim_end_matches("::mod").to_owned()
}
