//! The supervisor is killed while it makes a workspace: the next attempt goes on from what is whole.

use super::{git_output, repository, succeeded, workspace};
use adjutant::view::GetHub;
use std::fs;
use std::process::Stdio;

#[test]
fn killed_creation_is_repeated() {
    for isolation in ["clone", "worktree"] {
        for place in ["workspace.before_clone", "workspace.before_rename", "workspace.after_rename"] {
            let home = repository();
            let fired = home.work().parent().expect("a parent").join("fired");
            let mut hub = home.command(&["__hub"]);
            hub.env("ADJ_FAILPOINT", format!("{place}={}", fired.display())).stdout(Stdio::null()).stderr(Stdio::null());
            let mut hub = hub.spawn().expect("a hub");
            home.until("the hub takes calls", || home.call(&GetHub {}, "").ok());
            fs::write(home.work().join("mine.txt"), "mine\n").expect("a file");
            home.ok(&["run", "-d", "--isolation", isolation, "--with-changes", "-a", "sh", "-n", "killed", "do cat mine.txt >> one.txt"]);
            let view = succeeded(&home, "killed");
            assert!(fired.exists(), "{place}");
            assert_eq!(view["attempt"], 2, "{place}: {view}");
            let top = workspace(&view);
            assert_eq!(fs::read_to_string(top.join("one.txt")).expect("a file"), "1\nmine\n", "{place}");
            assert_eq!(git_output(&top, &["status", "--short"]), " M one.txt\n?? mine.txt", "{place}");
            assert_eq!(view["changed_files"], serde_json::json!(["one.txt"]), "{place}");
            let mut left: Vec<_> =
                fs::read_dir(top.parent().expect("a parent")).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
            left.retain(|name| name != "work" && name != ".index" && name != ".git-dir");
            assert!(left.is_empty(), "{place}: {left:?}");
            home.ok(&["stop"]);
            hub.wait().expect("it ends");
        }
    }
}
