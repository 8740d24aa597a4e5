//! A runner removes the files of runs that were removed at the hub, and no others.

use super::Pair;
use super::repositories::{git_output, with_repository};
use super::unsent::lose;
use crate::support::TestHome;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Lists what the runner's home has of a run: its files, and its refs in the copies of
/// repositories.
fn left(pair: &Pair, id: &str) -> Vec<String> {
    let home = &pair.there.home;
    let names = |dir: PathBuf| -> Vec<PathBuf> {
        std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    };
    let is_of_run = |path: &&PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(id))
    };
    let files = [home.runs_dir(), home.workspaces_dir(), home.logs_dir()]
        .into_iter()
        .flat_map(names);
    let files: Vec<String> = files
        .collect::<Vec<_>>()
        .iter()
        .filter(is_of_run)
        .map(|path| path.display().to_string())
        .collect();
    let refs = |copy: &Path| {
        git_output(
            copy,
            &[
                "for-each-ref",
                "--format=%(refname)",
                &format!("refs/adjutant/{id}/"),
            ],
        )
    };
    let refs = names(home.repositories_dir())
        .iter()
        .flat_map(|copy| refs(copy).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect::<Vec<_>>();
    files.into_iter().chain(refs).collect()
}

fn until_nothing_is_left(pair: &Pair, id: &str) {
    pair.until("nothing of it is left at the runner", || {
        left(pair, id).is_empty().then_some(())
    });
}

/// Runs an agent that changes a file in its workspace, which is read-only in part.
fn ran(pair: &Pair, name: &str) -> String {
    let script = "do mkdir -p sealed\ndo echo 2 > sealed/made.txt\ndo chmod 555 sealed";
    pair.hub
        .ok(&["run", "-d", "-a", "sh", "--pool", "gpu", "-n", name, script]);
    let view = pair.hub.finished(name);
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        pair.runner_log()
    );
    let id = pair.hub.run_id(name);
    let found = left(pair, &id);
    let has = |part: &str| found.iter().any(|path| path.contains(part));
    assert!(
        has("/runs/") && has("/workspaces/") && has("/logs/") && has("refs/adjutant/"),
        "{found:?}"
    );
    id
}

#[test]
fn files_of_removed_runs_are_removed_at_their_runner() {
    let mut pair = with_repository(Pair::new("60s"));
    let [kept, removed, later] = ["kept", "removed", "later"].map(|name| ran(&pair, name));
    pair.hub.ok(&["rm", "--force", "removed"]);
    until_nothing_is_left(&pair, &removed);
    pair.until("it is confirmed", || {
        pair.runner_log()
            .contains("removed the files of runs")
            .then_some(())
    });
    // A runner that is not connected learns it when it joins again.
    pair.kill_runner();
    pair.hub.ok(&["rm", "--force", "later"]);
    assert!(!left(&pair, &later).is_empty());
    pair.start_runner();
    until_nothing_is_left(&pair, &later);
    assert!(!left(&pair, &kept).is_empty(), "others stay");
    assert!(pair.hub.ok(&["diff", "kept"]).contains("made.txt"));
}

#[test]
fn removal_is_repeated_after_a_kill() {
    let mut pair = with_repository(Pair::new("60s"));
    let id = ran(&pair, "gone");
    pair.kill_runner();
    pair.hub.ok(&["rm", "--force", "gone"]);
    let fired = pair.there.work().join("fired");
    let mut runner = pair.runner_command();
    runner
        .env(
            "ADJ_FAILPOINT",
            format!("logs.removed_on_runner={}", fired.display()),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    runner
        .spawn()
        .expect("a runner")
        .wait()
        .expect("it is killed");
    assert!(fired.exists() && left(&pair, &id).is_empty());
    let confirmed = || {
        pair.runner_log()
            .matches("removed the files of runs")
            .count()
    };
    assert_eq!(confirmed(), 0);
    pair.kill_hub();
    pair.revive_hub();
    pair.start_runner();
    pair.until("it learns it again, and confirms it", || {
        (pair
            .runner_log()
            .matches("removed the files of runs")
            .count()
            == 1)
            .then_some(())
    });
    pair.kill_runner();
    pair.start_runner();
    pair.until("a run is started there", || {
        pair.start("last", "done yes");
        Some(pair.hub.finished("last"))
    });
    assert_eq!(
        pair.runner_log()
            .matches("removed the files of runs")
            .count(),
        1,
        "only once"
    );
}

#[test]
fn runner_of_another_hub_removes_nothing() {
    let mut pair = with_repository(Pair::new("60s"));
    let id = ran(&pair, "mine");
    pair.kill_runner();
    // The same home joins a hub that does not know its runs.
    let other = with_repository(Pair::without_runner("60s"));
    std::fs::copy(other.token_file(), pair.token_file()).expect("a token");
    let url = std::mem::replace(&mut pair.url, other.url.clone());
    pair.start_runner();
    other.start("theirs", "done yes");
    let theirs = other.hub.run_id("theirs");
    assert_eq!(other.hub.finished("theirs")["outcome"], "succeeded");
    other.hub.ok(&["rm", "theirs"]);
    pair.until("their run is removed", || {
        left(&pair, &theirs).is_empty().then_some(())
    });
    pair.url = url;
    assert!(!left(&pair, &id).is_empty());
    assert!(TestHome::is_alive(pair.runner_pid()));
}

#[test]
fn work_that_the_hub_does_not_have_stays_at_the_runner() {
    let pair = with_repository(Pair::new("3s"));
    lose(&pair, "cut");
    let id = pair.hub.run_id("cut");
    pair.hub.ok(&["cancel", "cut"]);
    pair.hub.finished("cut");
    pair.hub.ok(&["rm", "cut"]);
    assert!(pair.hub.adj(&["show", "cut"]).code != 0, "it is removed");
    pair.signal_runner(Signal::CONT);
    pair.start("next", "done yes");
    assert_eq!(pair.hub.finished("next")["outcome"], "succeeded");
    let next = pair.hub.run_id("next");
    pair.hub.ok(&["rm", "next"]);
    until_nothing_is_left(&pair, &next);
    assert!(
        left(&pair, &id)
            .iter()
            .any(|path| path.contains("/workspaces/")),
        "its only copy"
    );
}

#[test]
fn directory_of_a_run_without_a_repository_stays_unless_forced() {
    let pair = Pair::new("60s");
    let [kept, forced] = ["kept", "forced"].map(|name| {
        pair.start(name, "write made.txt x\ndone yes");
        assert_eq!(pair.hub.finished(name)["outcome"], "succeeded");
        pair.hub.run_id(name)
    });
    pair.hub.ok(&["rm", "kept"]);
    pair.hub.ok(&["rm", "--force", "forced"]);
    until_nothing_is_left(&pair, &forced);
    assert!(
        pair.there
            .home
            .workspaces_dir()
            .join(&kept)
            .join("made.txt")
            .exists()
    );
}
