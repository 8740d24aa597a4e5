//! Links and replaced directories that a fenced agent prepares for its next attempt or for another
//! run.

use super::{SHELL, assert_said, attempt, start, text};
use crate::changes::git;
use crate::support::TestHome;
use serde_json::json;
use std::os::unix::fs::symlink;

#[test]
fn nested_repository_stays_the_workspace_without_its_git() {
    let home = TestHome::with_config(SHELL);
    let nested = home.work().join("nested");
    std::fs::create_dir(&nested).expect("a directory");
    git(&home.work(), &["init", "-q"]);
    git(&nested, &["init", "-q"]);
    let outer = "if test -e .git; then rm -r .git; sleep 600; else echo x > ../outer.txt || echo denied; echo y > inner.txt; fi";
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "widens",
        "--fence",
        "workspace",
        "-C",
        "nested",
        &format!("do {outer}"),
    ]);
    home.until("the repository is gone", || {
        (!nested.join(".git").exists()).then_some(())
    });
    home.ok(&["pause", "widens"]);
    home.until("it is paused", || {
        (home.show("widens")["state"] == "stopped").then_some(())
    });
    home.ok(&["resume", "widens"]);
    let view = home.finished("widens");
    assert_eq!(view["attempt"], 2, "{view}");
    assert!(
        home.log("widens").contains("denied") && nested.join("inner.txt").exists(),
        "{}",
        home.log("widens")
    );
    assert!(!home.work().join("outer.txt").exists());
    assert_eq!(
        view["fence"]["writable"],
        json!([text(&nested.canonicalize().expect("there"))]),
        "{view}"
    );
    // The same holds for a retry.
    let again = home.json(&["retry", "widens"]);
    let view = home.finished(again["name"].as_str().expect("a name"));
    assert_eq!(
        view["fence"]["writable"],
        json!([text(&nested.canonicalize().expect("there"))]),
        "{view}"
    );
}

#[test]
fn directory_of_a_fenced_child_is_refused_behind_a_link() {
    let home = TestHome::new();
    let outside = home.work().with_file_name("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::create_dir(home.work().join("sub")).expect("a directory");
    let script =
        "delegate \"---\\nwrite new.txt x\\ndone fine\" [blocks] [directory: sub]\nsay after";
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "asks",
        "--fence",
        "workspace",
        script,
    ]);
    home.until_status("asks", "waiting_parent_reply");
    std::fs::remove_dir(home.work().join("sub")).expect("removed");
    symlink(&outside, home.work().join("sub")).expect("a link");
    let refused = home.adj(&["approve", "asks"]);
    assert!(
        refused.code == 2
            && refused.err.contains("is behind a link to")
            && refused.err.contains(&text(&outside)),
        "{refused:?}"
    );
    std::fs::remove_file(home.work().join("sub")).expect("removed");
    std::fs::create_dir(home.work().join("sub")).expect("a directory");
    home.ok(&["approve", "asks"]);
    let view = home.finished("asks");
    let child = home.finished(view["children"][0].as_str().expect("a child"));
    assert_eq!(
        child["fence"]["writable"],
        json!([text(&home.work().canonicalize().expect("there"))]),
        "{child}"
    );
    assert!(home.work().join("sub/new.txt").exists() && !outside.join("new.txt").exists());
}

#[test]
fn writable_paths_behind_the_runs_own_links_are_refused() {
    let home = TestHome::with_config(&format!(
        "{SHELL}fence_write = [\"~/work/state/cache\", \"~/caches\"]\n"
    ));
    let outside = home.work().with_file_name("outside");
    std::fs::create_dir_all(outside.join("cache")).expect("directories");
    symlink(outside.join("cache"), outside.with_file_name("caches")).expect("a link of the user");
    let script = format!("do echo x > ~/caches/new; echo x > {}/more", text(&outside));
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "follows",
        "--fence",
        "workspace",
        &script,
    ]);
    home.finished("follows");
    assert!(
        outside.join("cache/new").exists() && !outside.join("more").exists(),
        "a link of the user's own is followed"
    );
    symlink(&outside, home.work().join("state")).expect("a link");
    for fence in ["workspace", "best-effort"] {
        start(&home, fence, "touch ran.txt", fence);
        let view = home.finished(fence);
        let why = view["reason"].as_str().unwrap_or_default();
        assert!(
            why.contains("is a link, which the run can change"),
            "{view}"
        );
    }
    assert!(!home.work().join("ran.txt").exists());
}

#[test]
fn settings_in_a_directory_of_the_users_are_hidden() {
    let home = TestHome::with_config("");
    let dir = home.work().with_file_name("settings");
    std::fs::create_dir(&dir).expect("a directory");
    let webhook = "[[webhooks]]\nurl = \"http://127.0.0.1:9/\"\nallow_private = true\nsecret_file = \"hook.key\"\n";
    std::fs::write(dir.join("mine.toml"), format!("{webhook}{SHELL}")).expect("a file");
    std::fs::write(
        dir.join("hook.key"),
        "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0",
    )
    .expect("a file");
    std::fs::write(dir.join("other.txt"), "x").expect("a file");
    symlink(dir.join("mine.toml"), dir.join("link.toml")).expect("a link");
    let at = text(&dir);
    let script = [
        attempt(
            "settings",
            &format!("cat {at}/mine.toml || cat {at}/link.toml"),
        ),
        attempt("secret", &format!("cat {at}/hook.key")),
        attempt("other", &format!("cat {at}/other.txt")),
    ];
    let prompt: String = script
        .concat()
        .lines()
        .map(|line| format!("do {line}\n"))
        .collect();
    let mut command = home.command(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "reads",
        "--fence",
        "workspace",
        &prompt,
    ]);
    let ran = command
        .env("ADJ_CONFIG", dir.join("link.toml"))
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
    home.finished("reads");
    assert_said(
        &home.log("reads"),
        &[("settings", false), ("secret", false), ("other", true)],
    );
}

#[test]
fn configuration_of_a_cli_is_not_copied_through_a_link() {
    let preset = r#"
[presets.keeper]
title = "Keeper"
driver = "jsonl"
command = ["/bin/sh", "-c", "cat $KEEPER_HOME/settings.toml; echo '{\"type\":\"end\"}'"]
state = ["~/.keeper/"]
can = {}
about = { vendor = "nobody", install = "none", sign_in = "none" }
[presets.keeper.config_home]
env = "KEEPER_HOME"
home = ".keeper"
file = "settings.toml"
[presets.keeper.permissions.full]
about = "everything"
settings = { tools = { disabled = ["Fetch"] } }
[presets.keeper.stream]
end_is_stated = true
rules = [{ when = { type = "end" }, end = "success" }]
[agents.keeper]
harness = "keeper"
permissions = "full"
"#;
    let home = TestHome::with_config(preset);
    let own = home.work().with_file_name(".keeper");
    std::fs::create_dir(&own).expect("a directory");
    std::fs::write(own.join("settings.toml"), "colour = \"blue\"\n").expect("a file");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "keeper",
        "-n",
        "copies",
        "--fence",
        "workspace",
        "x",
    ]);
    home.finished("copies");
    assert!(
        home.log("copies").contains("blue"),
        "{}",
        home.log("copies")
    );
    std::fs::remove_file(own.join("settings.toml")).expect("removed");
    symlink(home.home.dir.join("config.toml"), own.join("settings.toml")).expect("a link");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "keeper",
        "-n",
        "leaks",
        "--fence",
        "workspace",
        "x",
    ]);
    let view = home.finished("leaks");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|why| why.contains("is a symbolic link")),
        "{view}"
    );
    // Without a fence, the agent can read the file itself.
    home.ok(&["run", "-d", "-a", "keeper", "-n", "free", "x"]);
    assert_eq!(
        home.finished("free")["outcome"],
        "succeeded",
        "{}",
        home.log("free")
    );
}
