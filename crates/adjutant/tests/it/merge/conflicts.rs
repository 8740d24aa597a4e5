//! Merges that conflict: nothing changes, and an agent can resolve them.

use super::{git_output, named_repository, refused, run, user_state};
use crate::support::TestHome;
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn conflict_changes_no_byte_of_the_users_tree() {
    let home = named_repository();
    let work = home.work();
    let scripts = [
        (
            "first",
            "sed -i '5s/.*/first/' lines.txt; echo 1 > both.txt; echo changed > two.txt; printf 'a\\0' > image",
        ),
        (
            "second",
            "sed -i '5s/.*/second/' lines.txt; echo 2 > both.txt; rm two.txt; printf 'b\\0' > image",
        ),
    ];
    run(&home, &scripts);
    home.ok(&["merge", "first"]);
    // The user has uncommitted changes, too.
    fs::write(work.join("one.txt"), "mine\n").expect("a file");
    fs::write(work.join("untracked.txt"), "mine\n").expect("a file");
    let before = user_state(&work);
    for flags in [&[][..], &["--squash"], &["--rebase"], &["--no-commit"]] {
        let args: Vec<&str> = ["merge", "second"].iter().chain(flags).copied().collect();
        let ran = home.adj(&args);
        assert_eq!(ran.code, 7, "{ran:?}");
        for text in [
            "second conflicts with main in 4 files",
            "nothing was changed",
            "lines.txt: both sides changed the same lines",
            "<<<<<<< yours",
            ">>>>>>> second",
        ] {
            assert!(ran.out.contains(text), "{text}: {ran:?}");
        }
        assert!(ran.err.contains("--resolve-with AGENT"), "{ran:?}");
        assert_eq!(user_state(&work), before, "{flags:?}");
    }
    let ran = home.adj(&["--json", "merge", "second"]);
    let view: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let kinds: Vec<(&str, &str)> = view["data"]["conflicts"]
        .as_array()
        .expect("conflicts")
        .iter()
        .map(|conflict| {
            (
                conflict["path"].as_str().expect("a path"),
                conflict["kind"].as_str().expect("a kind"),
            )
        })
        .collect();
    assert_eq!(
        (ran.code, kinds),
        (
            7,
            vec![
                ("both.txt", "add_add"),
                ("image", "binary"),
                ("lines.txt", "content"),
                ("two.txt", "modify_delete")
            ]
        )
    );
    assert_eq!(home.show("second")["workspace"]["state"], "ready");
    // A branch can be made nevertheless.
    home.ok(&["merge", "second", "--branch", "second"]);
}

#[test]
fn agent_resolves_a_conflict_and_both_count_as_merged() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[
            ("first", "sed -i '5s/.*/first/' lines.txt"),
            ("second", "sed -i '5s/.*/second/' lines.txt"),
        ],
    );
    home.ok(&["merge", "first"]);
    add_resolver(
        &home,
        "resolver",
        "sed -i -e '/^<<<<<<<\\|^=======\\|^>>>>>>>/d' lines.txt",
    );
    let before = user_state(&work);
    let view = home.json(&["merge", "second", "--resolve-with", "resolver"]);
    assert_eq!(
        (&view["outcome"], &view["conflicts"][0]["path"]),
        (&json!("resolving"), &json!("lines.txt")),
        "{view}"
    );
    assert_eq!(user_state(&work), before);
    let resolving = view["resolving"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert_eq!(
        home.finished(&resolving)["outcome"],
        "succeeded",
        "{}",
        home.log(&resolving)
    );
    home.ok(&["merge", &resolving]);
    let lines = fs::read_to_string(work.join("lines.txt")).expect("a file");
    assert!(lines.contains("line 4\nfirst\nsecond\nline 6\n"), "{lines}");
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    for name in ["second", &resolving] {
        assert_eq!(home.show(name)["workspace"]["state"], "merged", "{name}");
        assert!(home.ok(&["events", name]).contains("run.merged"), "{name}");
    }
    assert_eq!(
        git_output(&work, &["log", "-1", "--format=%s"]),
        "Resolve conflicts with second: do sed -i '5s/.*/second/' lines.txt"
    );
    // The resolution has merged the run as it was then. What is edited in its workspace since is
    // neither removed nor conflicts again.
    assert!(home.ok(&["merge", "second"]).contains("already merged"));
    let dir = home.show("second")["workspace"]["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    fs::write(Path::new(&dir).join("later.txt"), "later\n").expect("a file");
    for more in [&["--dry-run"][..], &[]] {
        let cleaned = home.json(&[&["clean", "--older-than", "0s", "--yes"], more].concat());
        assert_eq!(
            cleaned["kept"],
            json!([{"run": "second", "reason": "its workspace has changed since it was merged"}]),
            "{cleaned}"
        );
    }
    assert_eq!(
        home.json(&["merge", "second"])["files"],
        json!(["later.txt"])
    );
    assert_eq!(
        home.json(&["clean", "--older-than", "0s", "--yes"])["runs"],
        json!(["second"])
    );
}

/// Without a change, and with an empty commit, the conflicts are still there.
#[test]
fn resolution_without_changes_resolves_nothing() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[
            ("first", "sed -i '5s/.*/first/' lines.txt"),
            ("second", "sed -i '5s/.*/second/' lines.txt"),
        ],
    );
    home.ok(&["merge", "first"]);
    let empty = "git reset -q --hard; git -c user.name=a -c user.email=a@a commit -q --allow-empty -m nothing";
    for (agent, script) in [("idle", "git reset -q --hard"), ("empty", empty)] {
        add_resolver(&home, agent, script);
        let view = home.json(&["merge", "second", "--resolve-with", agent]);
        let resolving = view["resolving"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        assert_eq!(
            home.finished(&resolving)["outcome"],
            "succeeded",
            "{}",
            home.log(&resolving)
        );
        let before = user_state(&work);
        let ran = home.adj(&["merge", &resolving]);
        let expected =
            format!("{resolving} resolved nothing: the conflicts of second are still there");
        assert!(
            ran.code == 7
                && ran.out.contains(&expected)
                && ran.err.contains("adj merge second --resolve-with"),
            "{agent}: {ran:?}"
        );
        assert_eq!(user_state(&work), before);
        assert_eq!(home.show("second")["workspace"]["state"], "ready");
        home.ok(&["merge", &resolving, "--branch", agent]);
    }
}

#[test]
fn resolution_with_conflict_markers_is_refused() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[
            ("first", "sed -i '5s/.*/first/' lines.txt"),
            ("second", "sed -i '5s/.*/second/' lines.txt"),
        ],
    );
    home.ok(&["merge", "first"]);
    add_resolver(&home, "gives-up", "printf 'Title\\n=======\\n' > title.txt");
    let view = home.json(&["merge", "second", "--resolve-with", "gives-up"]);
    let resolving = view["resolving"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert_eq!(
        home.finished(&resolving)["outcome"],
        "succeeded",
        "{}",
        home.log(&resolving)
    );
    let before = user_state(&work);
    for mode in [&[][..], &["--squash"], &["--rebase"], &["--no-commit"]] {
        let ran = home.adj(&[&["merge", &resolving], mode].concat());
        let comment = format!("adj comment {resolving} FILE:LINE");
        refused(
            &ran,
            7,
            &[
                "these files still have conflict markers: lines.txt (line 5)\n",
                &comment,
            ],
        );
        assert_eq!(user_state(&work), before);
    }
    home.ok(&["merge", &resolving, "--branch", "as-it-is"]);
    // A person resolves them.
    let dir = home.show(&resolving)["workspace"]["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    let lines = fs::read_to_string(Path::new(&dir).join("lines.txt")).expect("a file");
    let resolved: Vec<&str> = lines
        .lines()
        .filter(|line| !line.starts_with(['<', '=', '>']))
        .collect();
    fs::write(
        Path::new(&dir).join("lines.txt"),
        format!("{}\n", resolved.join("\n")),
    )
    .expect("a file");
    home.ok(&["merge", &resolving]);
    assert!(
        fs::read_to_string(work.join("lines.txt"))
            .expect("a file")
            .contains("first\nsecond\n")
    );
}

/// The resolving run starts from the user's commit. It receives the run's changes, not the
/// uncommitted changes with which the run started.
#[test]
fn resolution_leaves_out_uncommitted_changes_of_the_user() {
    let home = named_repository();
    let work = home.work();
    fs::write(work.join("one.txt"), "unfinished\n").expect("a file");
    let lines = fs::read_to_string(work.join("lines.txt")).expect("a file");
    fs::write(
        work.join("lines.txt"),
        lines.replace("line 1\n", "unfinished\n"),
    )
    .expect("a file");
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "--with-changes",
        "-a",
        "sh",
        "-n",
        "starts",
        "do sed -i '5s/.*/second/' lines.txt",
    ]);
    home.finished("starts");
    git_output(&work, &["stash", "-q"]);
    fs::write(work.join("lines.txt"), lines.replace("line 5\n", "first\n")).expect("a file");
    git_output(&work, &["commit", "-qam", "first"]);
    add_resolver(
        &home,
        "resolver",
        "sed -i -e '/^<<<<<<<\\|^=======\\|^>>>>>>>/d' lines.txt",
    );
    let view = home.json(&["merge", "starts", "--resolve-with", "resolver"]);
    let resolving = view["resolving"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert_eq!(
        home.finished(&resolving)["outcome"],
        "succeeded",
        "{}",
        home.log(&resolving)
    );
    assert_eq!(
        home.json(&["merge", &resolving])["files"],
        json!(["lines.txt"])
    );
    assert_eq!(
        fs::read_to_string(work.join("lines.txt")).expect("a file"),
        lines.replace("line 5\n", "first\nsecond\n")
    );
}

/// Configures an agent that applies the commit in its task, and then does this.
fn add_resolver(home: &TestHome, name: &str, then: &str) {
    let script = home
        .home
        .dir
        .parent()
        .expect("a parent")
        .join(format!("{name}.sh"));
    let apply = "commit=$(sed -n 's/.*: git cherry-pick --no-commit \\([0-9a-f]*\\)$/\\1/p' | head -1)\ngit cherry-pick --no-commit $commit || true\n";
    fs::write(&script, format!("{apply}{then}\n")).expect("a script");
    let config = home.home.dir.join("config.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    let agent = format!(
        "\n[agents.{name}]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"{}\"]\n",
        script.display()
    );
    fs::write(&config, text + &agent).expect("a file");
}

#[test]
fn concurrent_merges_run_one_after_the_other() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[
            ("top", "sed -i '1s/.*/top/' lines.txt"),
            ("bottom", "sed -i '10s/.*/bottom/' lines.txt"),
        ],
    );
    let children: Vec<_> = ["top", "bottom"]
        .iter()
        .map(|name| home.command(&["merge", name]).spawn().expect("adj starts"))
        .collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let lines = fs::read_to_string(work.join("lines.txt")).expect("a file");
    assert!(
        lines.starts_with("top\n") && lines.ends_with("bottom\n"),
        "{lines}"
    );
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
}

#[test]
fn scripted_agent_resolves_no_conflict() {
    let home = named_repository();
    run(
        &home,
        &[
            ("first", "sed -i '5s/.*/first/' lines.txt"),
            ("second", "sed -i '5s/.*/second/' lines.txt"),
        ],
    );
    home.ok(&["merge", "first"]);
    refused(
        &home.adj(&["merge", "second", "--resolve-with", "echo"]),
        2,
        &["echo is a scripted agent, which resolves no conflict"],
    );
    assert_eq!(
        home.json(&["ps", "-a"]).as_array().map(Vec::len),
        Some(2),
        "no run was started"
    );
}

/// The user's file is not committed, so that it is not in the branch.
#[test]
fn conflict_with_uncommitted_changes_shows_lines() {
    let home = named_repository();
    let work = home.work();
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "--with-changes",
        "-a",
        "sh",
        "-n",
        "edits",
        "do echo run >> mine.txt",
    ]);
    home.finished("edits");
    fs::remove_file(work.join("mine.txt")).expect("removed");
    let ran = home.adj(&["merge", "edits"]);
    for text in [
        "mine.txt: one side changed it and the other removed it",
        "not in yours; changed by edits:",
        "@@ -1 +1,2 @@",
        "+run",
    ] {
        assert!(ran.code == 7 && ran.out.contains(text), "{text}: {ran:?}");
    }
    assert!(
        ran.err.contains("git commit   commits your changes"),
        "{ran:?}"
    );
}

#[test]
fn file_in_the_way_of_a_directory_is_named() {
    let home = named_repository();
    let work = home.work();
    run(&home, &[("plain", "echo file > place")]);
    fs::create_dir(work.join("place")).expect("a directory");
    fs::write(work.join("place/inner"), "mine\n").expect("a file");
    crate::changes::git(&work, &["add", "."]);
    crate::changes::git(&work, &["commit", "-qm", "directory"]);
    let ran = home.adj(&["merge", "plain"]);
    assert!(
        ran.code == 7
            && ran
                .out
                .contains("  place: a file on one side is a directory on the other\n")
            && !ran.out.contains('~'),
        "{ran:?}"
    );
}
