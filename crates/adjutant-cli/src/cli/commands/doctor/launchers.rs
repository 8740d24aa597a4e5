//! Checks of the commands that start runners on demand.

use super::check::{Check, broken, good};
use crate::config::{Config, LaunchValues, Launcher};
use crate::integrations::is_program;
use crate::text;
use std::path::Path;

/// Checks the launcher of each pool. `listens`: whether runners can reach the hub.
pub(super) fn check(config: &Config, listens: bool) -> Vec<Check> {
    let launchers = config
        .pools
        .iter()
        .filter_map(|(pool, entry)| Some((pool.as_str(), entry.launcher.as_ref()?)));
    launchers
        .map(|(pool, launcher)| check_one(pool, launcher, &config.path, listens))
        .collect()
}

fn check_one(pool: &str, launcher: &Launcher, file: &Path, listens: bool) -> Check {
    let fix = |key: &str| format!("correct {key} of [pools.{pool}] in {}", file.display());
    let program = launcher.argv.first().map_or("", String::as_str);
    // The hub starts launchers in `/`.
    let found = launcher
        .program()
        .map(|program| Path::new("/").join(program))
        .filter(|program| is_program(program));
    let Some(found) = found else {
        let problem = if program.contains('/') {
            "is not a program that can be started"
        } else {
            "is not on PATH"
        };
        return broken(
            "launcher",
            format!("pool {pool}: {program} {problem}"),
            format!("install it, or {}", fix("launch")),
        );
    };
    let values = LaunchValues {
        name: "launched",
        pool,
        url: "https://localhost",
    };
    if let Err(problem) = launcher.filled_input(&values, "token") {
        return broken(
            "launcher",
            format!("pool {pool}: {problem}"),
            fix("launch_input"),
        );
    }
    if !listens {
        let problem =
            format!("pool {pool}: the hub does not listen, so a launched runner cannot join");
        return broken(
            "launcher",
            problem,
            format!("set listen in {}, then adj stop", file.display()),
        );
    }
    good(
        "launcher",
        format!(
            "pool {pool}: {}, at most {}",
            found.display(),
            text::count(launcher.max, "runner", "runners")
        ),
    )
}
