//! Merges that conflict: nothing changes, and an agent can resolve them.

use super::{git_output, named_repository, run, user_state};
use serde_json::json;
use std::fs;

#[test]
fn conflict_changes_no_byte_of_the_users_tree() {
    let home = named_repository();
    let work = home.work();
    let scripts = [
        ("first", "sed -i '5s/.*/first/' lines.txt; echo 1 > both.txt; echo changed > two.txt; printf 'a\\0' > image"),
        ("second", "sed -i '5s/.*/second/' lines.txt; echo 2 > both.txt; rm two.txt; printf 'b\\0' > image"),
    ];
    run(&home, &scripts);
    home.ok(&["merge", "first"]);
    // The user has changes of their own, too.
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
        .map(|conflict| (conflict["path"].as_str().expect("a path"), conflict["kind"].as_str().expect("a kind")))
        .collect();
    assert_eq!((ran.code, kinds), (7, vec![("both.txt", "add_add"), ("image", "binary"), ("lines.txt", "content"), ("two.txt", "modify_delete")]));
    assert_eq!(home.show("second")["workspace"]["state"], "ready");
    // A branch can be made nevertheless.
    home.ok(&["merge", "second", "--branch", "second"]);
}

#[test]
fn agent_resolves_a_conflict_and_both_count_as_merged() {
    let home = named_repository();
    let work = home.work();
    run(&home, &[("first", "sed -i '5s/.*/first/' lines.txt"), ("second", "sed -i '5s/.*/second/' lines.txt")]);
    home.ok(&["merge", "first"]);
    // The agent finds the other side's commit in its task.
    fs::write(
        home.home.dir.parent().expect("a parent").join("resolve.sh"),
        "commit=$(sed -n 's/.*--squash \\([0-9a-f]*\\)$/\\1/p' | head -1)\n\
         git -c user.name=a -c user.email=a@a merge -q --no-commit --squash $commit || true\n\
         sed -i -e '/^<<<<<<<\\|^=======\\|^>>>>>>>/d' lines.txt\n",
    )
    .expect("a script");
    let config = home.home.dir.join("config.toml");
    let script = home.home.dir.parent().expect("a parent").join("resolve.sh");
    let text = fs::read_to_string(&config).expect("a configuration");
    fs::write(&config, format!("{text}\n[agents.resolver]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"{}\"]\n", script.display()))
        .expect("a file");
    let before = user_state(&work);
    let view = home.json(&["merge", "second", "--resolve-with", "resolver"]);
    assert_eq!((&view["outcome"], &view["conflicts"][0]["path"]), (&json!("resolving"), &json!("lines.txt")), "{view}");
    assert_eq!(user_state(&work), before);
    let resolving = view["resolving"]["name"].as_str().expect("a name").to_owned();
    assert_eq!(home.finished(&resolving)["outcome"], "succeeded", "{}", home.log(&resolving));
    home.ok(&["merge", &resolving]);
    let lines = fs::read_to_string(work.join("lines.txt")).expect("a file");
    assert!(lines.contains("line 4\nfirst\nsecond\nline 6\n"), "{lines}");
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    for name in ["second", &resolving] {
        assert_eq!(home.show(name)["workspace"]["state"], "merged", "{name}");
        assert!(home.ok(&["events", name]).contains("run.merged"), "{name}");
    }
}

#[test]
fn concurrent_merges_run_one_after_the_other() {
    let home = named_repository();
    let work = home.work();
    run(&home, &[("top", "sed -i '1s/.*/top/' lines.txt"), ("bottom", "sed -i '10s/.*/bottom/' lines.txt")]);
    let children: Vec<_> = ["top", "bottom"].iter().map(|name| home.command(&["merge", name]).spawn().expect("adj starts")).collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    let lines = fs::read_to_string(work.join("lines.txt")).expect("a file");
    assert!(lines.starts_with("top\n") && lines.ends_with("bottom\n"), "{lines}");
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
}
