//! If the supervisor is killed while it creates a workspace, the next attempt continues from the
//! complete parts.

use super::{git_output, repository, start_clone, succeeded, workspace};
use adjutant_api::view::GetHub;
use std::fs;
use std::path::Path;
use std::process::Stdio;

#[test]
fn killed_creation_is_repeated() {
    for isolation in ["clone", "worktree"] {
        for place in [
            "workspace.before_clone",
            "workspace.before_rename",
            "workspace.after_rename",
        ] {
            let home = repository();
            let fired = home.work().parent().expect("a parent").join("fired");
            let mut hub = home.command(&["__hub"]);
            hub.env("ADJ_FAILPOINT", format!("{place}={}", fired.display()))
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut hub = hub.spawn().expect("a hub");
            home.until("the hub takes calls", || home.call(&GetHub {}, "").ok());
            fs::write(home.work().join("mine.txt"), "mine\n").expect("a file");
            home.ok(&[
                "run",
                "-d",
                "--isolation",
                isolation,
                "--with-changes",
                "-a",
                "sh",
                "-n",
                "killed",
                "do cat mine.txt >> one.txt",
            ]);
            let view = succeeded(&home, "killed");
            assert!(fired.exists(), "{place}");
            assert_eq!(view["attempt"], 2, "{place}: {view}");
            let top = workspace(&view);
            assert_eq!(
                fs::read_to_string(top.join("one.txt")).expect("a file"),
                "1\nmine\n",
                "{place}"
            );
            assert_eq!(
                git_output(&top, &["status", "--short"]),
                " M one.txt\n?? mine.txt",
                "{place}"
            );
            assert_eq!(
                view["changed_files"],
                serde_json::json!(["one.txt"]),
                "{place}"
            );
            let mut left: Vec<_> = fs::read_dir(top.parent().expect("a parent"))
                .expect("a directory")
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            left.retain(|name| {
                name != "work" && name != ".index" && name != ".git-dir" && name != ".unsynced"
            });
            assert!(left.is_empty(), "{place}: {left:?}");
            home.ok(&["stop"]);
            hub.wait().expect("it ends");
        }
    }
}

/// A file of a workspace that was not synced can be empty after a power loss. The agent's files are
/// not removed.
#[test]
fn workspace_is_recreated_after_a_power_loss() {
    let home = repository();
    for (name, boot) in [
        ("synced", None),
        ("torn", Some("another boot")),
        ("empty", Some("")),
    ] {
        home.ok(&[
            "run",
            "-d",
            "--clone",
            "-a",
            "echo",
            "-n",
            name,
            "write new.txt x\nask \"go on?\"\nsay done",
        ]);
        let view = home.until_status(name, "waiting_parent_reply");
        let top = workspace(&view);
        let mark = top.with_file_name(".unsynced");
        home.until("its files are synced", || (!mark.exists()).then_some(()));
        home.ok(&["pause", name]);
        home.until("it is stopped", || {
            (home.show(name)["state"] == "stopped").then_some(())
        });
        fs::write(top.join("two.txt"), "").expect("a file");
        if let Some(boot) = boot {
            fs::write(&mark, boot).expect("a mark");
            let refused = home.adj(&["undo", name]);
            assert!(refused.err.contains("is not there"), "{name}: {refused:?}");
            let refused = home.adj(&["discard", name]);
            assert!(
                refused.code != 0 && refused.err.contains("use --force") && top.exists(),
                "{name}: {refused:?}"
            );
        }
        home.ok(&["resume", name]);
        home.until("it asks again", || {
            (home.show(name)["attempt"] == 2).then_some(())
        });
        home.until_status(name, "waiting_parent_reply");
        let expected = if boot.is_some() { "1\n" } else { "" };
        assert_eq!(
            fs::read_to_string(top.join("two.txt")).expect("a file"),
            expected,
            "{name}"
        );
        let aside = format!("{}.torn-1", top.parent().expect("a parent").display());
        let kept = Path::new(&aside)
            .join(top.file_name().expect("a name"))
            .join("new.txt");
        assert_eq!(kept.exists(), boot.is_some(), "{name}");
        home.ok(&["cancel", name]);
    }
}

/// A workspace that no attempt has synced would count as torn after the next reboot.
#[test]
fn files_of_a_workspace_are_on_disk_at_the_end_of_an_attempt() {
    let home = repository();
    // The disk is busy while the run works.
    let busy = home.work().with_file_name("busy");
    fs::write(&busy, vec![7; 192 * 1024 * 1024]).expect("a large file");
    start_clone(&home, "short", "true");
    let view = succeeded(&home, "short");
    assert!(
        !workspace(&view).with_file_name(".unsynced").exists(),
        "{view}"
    );
}
