//! A runner whose home cannot be written starts nothing and loses nothing: its runs wait until
//! there is room, or another runner starts them.

use super::Pair;
use super::repositories::{end, second_runner, with_repository};
use crate::changes::git;
use crate::kills::{Disk, fill};
use crate::support::TestHome;
use serde_json::{Value, json};
use std::path::Path;

const HELD: &str = "this runner takes no attempts";

/// A pair whose runner has a small disk.
fn with_small_disk(size: &str, change: impl FnOnce(Pair) -> Pair) -> Option<(Pair, Disk)> {
    let disk = Disk::mount(size)?;
    let mut pair = change(Pair::without_runner("60s"));
    let there = TestHome::below(disk.path());
    std::fs::rename(pair.token_file(), there.work().join("token")).expect("moved");
    pair.there = there;
    pair.start_runner();
    Some((pair, disk))
}

fn until_held(pair: &Pair, run: &str) -> Value {
    pair.until("the run waits for the runner's disk", || {
        let view = pair.hub.show(run);
        assert_ne!(view["outcome"], "spawn_failed", "{view}");
        (view["queue"]["waiting_for"] == "runner_storage").then_some(view)
    })
}

fn remove(filler: &Path) {
    std::fs::remove_file(filler).expect("it can be removed");
}

#[test]
fn runner_with_a_full_disk_takes_nothing_until_there_is_room() {
    let Some((pair, disk)) = with_small_disk("24m", |pair| pair) else {
        return;
    };
    let filler = disk.path().join("filler");
    fill(&filler);
    pair.start("one", "say hello\ndone yes");
    let view = until_held(&pair, "one");
    let why = view["queue"]["why"].as_str().unwrap_or_default();
    assert!(
        why.starts_with("no runner of pool gpu can write to its home; gpu1: ")
            && why.contains("No space left"),
        "{why}"
    );
    // Further runs are not tried.
    pair.start("two", "done yes");
    assert_eq!(until_held(&pair, "two")["attempt"], 0);
    let pools = pair.hub.json(&["pools"]);
    assert_eq!(
        pools["pools"][1]["waiting"],
        json!([{"for": "runner_storage", "runs": 2}]),
        "{pools}"
    );
    assert!(
        pair.hub
            .ok(&["pools"])
            .contains("for disk space of a runner")
    );
    remove(&filler);
    for (run, attempts) in [("one", 2), ("two", 1)] {
        let view = pair.hub.finished(run);
        assert_eq!(
            (&view["outcome"], &view["attempt"]),
            (&json!("succeeded"), &json!(attempts)),
            "{view}"
        );
    }
    assert_eq!(
        pair.runner_log().matches(HELD).count(),
        1,
        "{}",
        pair.runner_log()
    );
    let hub_log = std::fs::read_to_string(pair.hub.home.hub_log()).expect("a log");
    assert_eq!(
        hub_log.matches("a runner takes no attempts").count(),
        1,
        "{hub_log}"
    );
}

#[test]
fn run_goes_to_a_runner_with_room() {
    let Some((pair, disk)) = with_small_disk("24m", |pair| pair) else {
        return;
    };
    fill(&disk.path().join("filler"));
    pair.start("one", "done yes");
    until_held(&pair, "one");
    let (_there, second) = second_runner(&pair);
    let view = pair.hub.finished("one");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2)),
        "{view}"
    );
    end(second);
}

/// Wherever the room ends: in the runner, the guard or the supervisor.
#[test]
fn start_with_little_room_never_fails_the_run() {
    let Some((pair, disk)) = with_small_disk("24m", |pair| pair) else {
        return;
    };
    let (filler, room) = (disk.path().join("filler"), disk.path().join("room"));
    for pages in [1, 2, 3, 4, 6, 8, 12, 16, 24] {
        std::fs::write(&room, vec![0; pages * 4096]).expect("written");
        fill(&filler);
        remove(&room);
        let name = format!("with-{pages}");
        pair.start(&name, "done yes");
        let view = pair.until("it waits or has ended", || {
            let view = pair.hub.show(&name);
            (view["queue"]["waiting_for"] == "runner_storage" || view["state"] == "finished")
                .then_some(view)
        });
        remove(&filler);
        let ended = pair.hub.finished(&name);
        assert_eq!(
            ended["outcome"],
            "succeeded",
            "{pages} pages: {view}\n{ended}\n{}",
            pair.runner_log()
        );
    }
}

#[test]
fn repository_that_does_not_fit_holds_its_runner() {
    let with_large_file = |pair: Pair| {
        let pair = with_repository(pair);
        let random: Vec<u8> = std::iter::successors(Some(1_u64), |state| {
            Some(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            )
        })
        .map(|state| state.to_be_bytes()[0])
        .take(8 * 1024 * 1024)
        .collect();
        std::fs::write(pair.hub.work().join("large"), random).expect("written");
        git(&pair.hub.work(), &["add", "."]);
        git(&pair.hub.work(), &["commit", "-qm", "large"]);
        pair
    };
    let Some((pair, disk)) = with_small_disk("64m", with_large_file) else {
        return;
    };
    let (filler, room) = (disk.path().join("filler"), disk.path().join("room"));
    // A check succeeds, and the repository does not fit.
    std::fs::write(&room, vec![0; 4 * 1024 * 1024]).expect("written");
    fill(&filler);
    remove(&room);
    pair.hub.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "--pool",
        "gpu",
        "-n",
        "far",
        "do cat one.txt",
    ]);
    pair.until("it is held again", || {
        (pair.runner_log().matches(HELD).count() > 1).then_some(())
    });
    remove(&filler);
    let view = pair.hub.finished("far");
    assert_eq!(view["outcome"], "succeeded", "{view}");
}

#[test]
fn home_without_permission_to_write_holds_its_runner() {
    if rustix::process::geteuid().is_root() {
        // Root writes everywhere.
        return;
    }
    let pair = Pair::new("60s");
    let runs = pair.there.home.dir.join("runs");
    let set_mode = |mode| {
        std::fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .expect("changed")
    };
    std::fs::create_dir_all(&runs).expect("a directory");
    set_mode(0o500);
    pair.start("one", "done yes");
    let view = until_held(&pair, "one");
    assert!(
        view["queue"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("permission denied")),
        "{view}"
    );
    set_mode(0o700);
    assert_eq!(pair.hub.finished("one")["outcome"], "succeeded");
}
