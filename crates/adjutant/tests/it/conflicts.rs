//! Conflicts between isolated runs: found in memory before any is merged, and reported once.

use crate::changes::repository;
use crate::support::{TestHome, kill};
use adjutant_api::view::{EventView, ReadEvents, Wait, WaitOutcome, WaitUntil};
use serde_json::{Value, json};

fn start_clone(home: &TestHome, name: &str, script: &str) {
    let mut command = home.command(&["run", "-d", "--clone", "-a", "echo", "-n", name, script]);
    let ran = command
        .env("PATH", std::env::var_os("PATH").expect("a PATH"))
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
}

fn events(home: &TestHome, kind: &str) -> Vec<EventView> {
    let all = home
        .call(
            &ReadEvents {
                limit: Some(5_000),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("events")
        .events;
    all.into_iter()
        .filter(|event| event.kind.as_str() == kind)
        .collect()
}

/// The runs that a run conflicts with.
fn conflicts(view: &Value) -> Vec<&str> {
    view["conflicts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|conflict| conflict["run_name"].as_str())
        .collect()
}

#[test]
fn conflict_of_two_clones_is_reported_once_with_both_names() {
    let home = repository();
    start_clone(
        &home,
        "alpha",
        "write one.txt alpha\nask \"go on?\"\nwrite one.txt alpha again\nsay I am done with the file",
    );
    home.until_status("alpha", "waiting_parent_reply");
    home.ok(&["diff", "alpha"]);
    start_clone(
        &home,
        "beta",
        "write one.txt beta\nwrite new.txt x\nsay I am done with the file",
    );
    home.finished("beta");
    let view = home.until("the conflict", || {
        Some(home.show("alpha")).filter(|view| !conflicts(view).is_empty())
    });
    assert_eq!(conflicts(&view), ["beta"], "a live run shows it: {view}");
    assert_eq!(
        view["conflicts"][0]["files"],
        json!([{"path": "one.txt", "kind": "content"}])
    );
    assert_eq!(
        view["merge_order"],
        json!(["alpha", "beta"]),
        "fewest changed files first"
    );
    let told = events(&home, "run.conflict");
    assert!(
        told.len() == 1 && told[0].run_name == "beta" && told[0].text == "with alpha: one.txt",
        "{told:?}"
    );
    // It is found without a merge: the user's tree has not changed.
    assert_eq!(
        std::fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "1\n"
    );
    let shown = home.ok(&["show", "beta"]);
    assert!(
        shown.contains("conflicts    with alpha: one.txt (content)")
            && shown.contains("merge order  alpha, beta"),
        "{shown}"
    );
    let listed = home.adj(&["ps", "-a"]);
    let listed = format!("{}{}", listed.out, listed.err);
    assert!(
        listed.contains(" with ")
            && listed.contains("one.txt (content)")
            && listed.contains("merge in this order: alpha, beta"),
        "{listed}"
    );
    assert_eq!(listed.matches("! conflict: ").count(), 1, "{listed}");
    // The next hub does not report it again, even when it compares the same pair again.
    kill(home.hub_pid());
    home.ok(&["reply", "alpha", "yes"]);
    home.finished("alpha");
    start_clone(
        &home,
        "gamma",
        "write one.txt gamma\nsay I am done with the file",
    );
    home.finished("gamma");
    let view = home.until("the third", || {
        Some(home.show("gamma")).filter(|view| conflicts(view).len() == 2)
    });
    assert_eq!(conflicts(&view), ["alpha", "beta"]);
    let told: Vec<(String, String)> = events(&home, "run.conflict")
        .into_iter()
        .map(|event| (event.run_name, event.text))
        .collect();
    let line = |run: &str, text: &str| (run.to_owned(), text.to_owned());
    assert_eq!(
        told,
        [
            line("beta", "with alpha: one.txt"),
            line("gamma", "with alpha: one.txt"),
            line("gamma", "with beta: one.txt")
        ]
    );
}

#[test]
fn run_without_changes_is_not_in_the_merge_order() {
    let home = repository();
    start_clone(&home, "asker", "ask \"go on?\"\nsay done");
    home.until_status("asker", "waiting_parent_reply");
    for name in ["alpha", "beta"] {
        start_clone(
            &home,
            name,
            &format!("write one.txt {name}\nsay I am done with the file"),
        );
        home.finished(name);
    }
    home.until("the conflict", || {
        Some(()).filter(|()| events(&home, "run.conflict").len() == 1)
    });
    assert_eq!(home.show("beta")["merge_order"], json!(["alpha", "beta"]));
    home.ok(&["cancel", "asker"]);
}

/// Neither run ends a turn, and no caller requests their changes.
#[test]
fn conflict_of_two_working_runs_is_reported() {
    for script in [
        "write one.txt NAME\nask \"go on?\"",
        "write one.txt NAME\nsay working\nsleep 600",
    ] {
        let home = repository();
        for name in ["alpha", "beta"] {
            start_clone(&home, name, &script.replace("NAME", name));
        }
        home.until("the conflict", || {
            Some(()).filter(|()| events(&home, "run.conflict").len() == 1)
        });
        for (name, other) in [("alpha", "beta"), ("beta", "alpha")] {
            let view = home.show(name);
            assert_eq!(
                (conflicts(&view), &view["state"]),
                (vec![other], &json!("running")),
                "{view}"
            );
            assert_eq!(
                view["snapshots"].as_array().map(Vec::len),
                Some(1),
                "looking at it adds none: {view}"
            );
        }
        assert!(
            home.ok(&["ps"]).contains("one.txt (content)")
                || home.adj(&["ps"]).err.contains("one.txt (content)")
        );
        home.ok(&["cancel", "alpha", "beta"]);
    }
}

#[test]
fn conflict_of_plain_agents_is_reported_while_they_work() {
    let home = repository();
    for name in ["alpha", "beta"] {
        home.ok(&[
            "run",
            "-d",
            "--clone",
            "-a",
            "sh",
            "-n",
            name,
            &format!("do echo {name} > one.txt\ndo exec sleep 600"),
        ]);
    }
    home.until("the conflict", || {
        Some(()).filter(|()| events(&home, "run.conflict").len() == 1)
    });
    assert_eq!(conflicts(&home.show("alpha")), ["beta"]);
    home.ok(&["cancel", "alpha", "beta"]);
}

#[test]
fn changes_of_different_files_do_not_conflict() {
    let home = repository();
    start_clone(
        &home,
        "alpha",
        "write one.txt alpha\nsay I am done with the file",
    );
    home.finished("alpha");
    start_clone(
        &home,
        "beta",
        "write two.txt beta\nsay I am done with the file",
    );
    home.finished("beta");
    // The conflict of a third run shows that the others were compared.
    start_clone(
        &home,
        "gamma",
        "write two.txt gamma\nsay I am done with the file",
    );
    home.finished("gamma");
    let view = home.until("the conflict", || {
        Some(home.show("gamma")).filter(|view| !conflicts(view).is_empty())
    });
    assert_eq!(
        (conflicts(&view), &view["merge_order"]),
        (vec!["beta"], &json!(["alpha", "beta", "gamma"])),
        "{view}"
    );
    assert_eq!(
        (
            events(&home, "run.conflict").len(),
            conflicts(&home.show("alpha")).len()
        ),
        (1, 0)
    );
}

#[test]
fn conflict_ends_with_a_change_that_resolves_it() {
    let home = repository();
    start_clone(
        &home,
        "alpha",
        "write one.txt alpha\nask \"go on?\"\nwrite one.txt beta\nsay I am done with the file",
    );
    home.until_status("alpha", "waiting_parent_reply");
    home.ok(&["diff", "alpha"]);
    start_clone(
        &home,
        "beta",
        "write one.txt beta\nsay I am done with the file",
    );
    home.until("the conflict", || {
        Some(()).filter(|()| events(&home, "run.conflict").len() == 1)
    });
    home.ok(&["reply", "alpha", "yes"]);
    home.until("its end", || {
        Some(()).filter(|()| events(&home, "run.conflict_settled").len() == 1)
    });
    assert!(conflicts(&home.show("alpha")).is_empty() && conflicts(&home.show("beta")).is_empty());
    assert_eq!(
        events(&home, "run.conflict_settled")[0].text,
        "no conflict with beta any more"
    );
}

#[test]
fn conflict_wakes_a_wait() {
    let home = repository();
    start_clone(
        &home,
        "beta",
        "write one.txt beta\nsay I am done with the file",
    );
    home.finished("beta");
    start_clone(
        &home,
        "alpha",
        "write one.txt alpha\nask \"go on?\" nonblocking\nsleep 600",
    );
    home.until("its work", || {
        Some(()).filter(|()| home.adj(&["diff", "alpha"]).out.contains("+alpha"))
    });
    let wait = Wait {
        runs: vec!["alpha".to_owned()],
        until: WaitUntil::Attention,
        after: Some(0),
        new_reports: false,
        wait_ms: 20_000,
    };
    let found = home.until("the conflict", || {
        let found = home.call(&wait, "").expect("it waits");
        Some(found).filter(|found| {
            found
                .working
                .first()
                .is_some_and(|run| !run.changes.conflicts.is_empty())
        })
    });
    assert_eq!(
        (
            found.outcome,
            found.working[0].changes.conflicts[0].run_name.as_str()
        ),
        (WaitOutcome::Event.into(), "beta")
    );
    home.ok(&["cancel", "alpha"]);
}

#[test]
fn conflict_with_a_renamed_directory_is_reported() {
    let home = repository();
    let work = home.work();
    std::fs::create_dir(work.join("d")).expect("a directory");
    for name in ["d/a", "d/b"] {
        std::fs::write(work.join(name), format!("{name} has text\n")).expect("a file");
    }
    crate::changes::git(&work, &["add", "."]);
    crate::changes::git(&work, &["commit", "-qm", "directory"]);
    for (name, script) in [("renames", "mv d e"), ("adds", "echo new > d/new")] {
        home.ok(&[
            "run",
            "-d",
            "--clone",
            "-a",
            "sh",
            "-n",
            name,
            &format!("do {script}"),
        ]);
        home.finished(name);
    }
    home.until("the conflict", || {
        Some(()).filter(|()| conflicts(&home.show("adds")) == ["renames"])
    });
}

/// Two runs start with different uncommitted changes of the user to one file.
#[test]
fn changes_of_the_user_do_not_conflict() {
    let home = repository();
    for (name, script) in [
        ("alpha", "echo alpha > a.txt"),
        ("beta", "echo beta > b.txt"),
        ("gamma", "echo gamma > b.txt"),
    ] {
        std::fs::write(home.work().join("one.txt"), format!("mine before {name}\n"))
            .expect("a file");
        home.ok(&[
            "run",
            "-d",
            "--clone",
            "--with-changes",
            "-a",
            "sh",
            "-n",
            name,
            &format!("do {script}"),
        ]);
        home.finished(name);
    }
    let view = home.until("the conflict", || {
        Some(home.show("gamma")).filter(|view| !conflicts(view).is_empty())
    });
    assert_eq!(conflicts(&view), ["beta"], "{view}");
    assert_eq!(
        view["conflicts"][0]["files"],
        json!([{"path": "b.txt", "kind": "add_add"}]),
        "{view}"
    );
}

/// A follow-up run changes the workspace of a finished one.
#[test]
fn conflict_of_a_follow_up_run_is_reported() {
    let home = repository();
    for (name, file) in [("alpha", "one.txt"), ("beta", "two.txt")] {
        home.ok(&[
            "run",
            "-d",
            "--clone",
            "-a",
            "sh",
            "-n",
            name,
            &format!("do echo {name} > {file}"),
        ]);
        home.finished(name);
    }
    let dir = home.show("beta")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "later",
        "-C",
        &dir,
        "do echo beta > one.txt",
    ]);
    home.until("the conflict", || {
        Some(()).filter(|()| conflicts(&home.show("alpha")) == ["beta"])
    });
}
