//! Repositories in an unusual state: an isolated run starts, or the error gives the reason.

use super::{git_output, name_user, start_clone, succeeded, workspace};
use crate::changes::{git, repository};
use crate::kills::Disk;
use crate::support::TestHome;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script in a clone of the repository around a directory to its end.
fn run_in(home: &TestHome, dir: &Path, name: &str, script: &str) -> Value {
    let script: String = script.lines().map(|line| format!("do {line}\n")).collect();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "sh",
        "-n",
        name,
        "-C",
        dir.to_str().expect("UTF-8"),
        &script,
    ]);
    home.finished(name)
}

fn beside(home: &TestHome, name: &str) -> PathBuf {
    home.work().parent().expect("a parent").join(name)
}

/// Clones the working directory over the transport of a remote repository.
fn cloned(home: &TestHome, name: &str, args: &[&str]) -> PathBuf {
    let to = beside(home, name);
    git(&home.work(), &["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", home.work().display());
    git(
        &home.work(),
        &[&["clone", "-q"], args, &[&url, to.to_str().expect("UTF-8")]].concat(),
    );
    to
}

fn commit(dir: &Path, name: &str, text: &str) -> String {
    fs::create_dir_all(dir.join(name).parent().expect("a parent")).expect("directories");
    fs::write(dir.join(name), text).expect("a file");
    git(dir, &["add", "--sparse", name]);
    git(dir, &["commit", "-qm", name]);
    git_output(dir, &["rev-parse", "HEAD"])
}

#[test]
fn detached_head_has_no_branch() {
    let home = repository();
    git(&home.work(), &["checkout", "-q", "--detach"]);
    let script = "echo changed > one.txt\ngit status --short --branch\ngit -c user.name=t -c user.email=t@t commit -qam x";
    let view = run_in(&home, &home.work(), "detached", script);
    assert_eq!(
        (&view["outcome"], &view["workspace"]["branch"]),
        (&json!("succeeded"), &Value::Null),
        "{view}"
    );
    assert!(home.log("detached").contains("## adj/detached"));
    assert!(home.ok(&["diff", "detached"]).contains("+changed"));
}

#[test]
fn shallow_repository_makes_a_shallow_workspace() {
    let home = repository();
    commit(&home.work(), "two.txt", "2\n");
    let shallow = cloned(&home, "shallow", &["--depth", "1"]);
    let base = git_output(&shallow, &["rev-parse", "HEAD"]);
    name_user(&shallow);
    // git visits commits in the order of their dates, so both orders must reach the end of the
    // history.
    for (name, date) in [
        ("same", "$(git log -1 --format=%cI)"),
        ("later", "2030-01-01T00:00:00Z"),
    ] {
        let script = format!(
            "echo changed > one.txt\ngit log --format=%s\nexport GIT_COMMITTER_DATE=\"{date}\"\n\
             git -c user.name=t -c user.email=t@t commit -qam mine\ngit fsck --connectivity-only"
        );
        let view = run_in(&home, &shallow, name, &script);
        assert_eq!(view["outcome"], "succeeded", "{view}\n{}", home.log(name));
        assert_eq!(view["changed_files"], json!(["one.txt"]));
        home.ok(&["merge", name]);
        assert_eq!(
            git_output(&shallow, &["log", "-1", "--format=%s"]),
            "mine",
            "{name}"
        );
        assert_eq!(
            git_output(&shallow, &["status", "--porcelain"]),
            "",
            "{name}"
        );
        git(&shallow, &["reset", "-q", "--hard", &base]);
    }
}

#[test]
fn partial_clone_makes_a_workspace_from_its_objects() {
    let home = repository();
    commit(&home.work(), "two.txt", "an old file\n");
    commit(&home.work(), "two.txt", "2\n");
    let partial = cloned(&home, "partial", &["--filter=blob:none"]);
    assert!(
        git_output(
            &partial,
            &["rev-list", "--objects", "--all", "--missing=print"]
        )
        .contains("\n?"),
        "an old file is missing"
    );
    let view = run_in(&home, &partial, "partial", "echo changed > one.txt");
    assert_eq!(
        (&view["outcome"], &view["changed_files"]),
        (&json!("succeeded"), &json!(["one.txt"])),
        "{view}"
    );
    name_user(&partial);
    home.ok(&["merge", "partial", "--squash"]);
    assert_eq!(
        fs::read_to_string(partial.join("one.txt")).expect("a file"),
        "changed\n"
    );
    // Nothing is fetched: without the files of its commit, no workspace is created.
    let bare = cloned(&home, "unfetched", &["--filter=blob:none", "--no-checkout"]);
    let view = run_in(&home, &bare, "unfetched", "true");
    assert_eq!(view["outcome"], "spawn_failed", "{view}");
    let reason = view["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("cannot be made") && !workspace(&view).exists(),
        "{reason}"
    );
}

/// Objects that the user's repository lacks come from its remote, as they do there.
#[test]
fn partial_clone_can_read_its_history() {
    let home = repository();
    commit(&home.work(), "two.txt", "an old file\n");
    commit(&home.work(), "dir/deep.txt", "an old deep file\n");
    commit(&home.work(), "two.txt", "2\n");
    commit(&home.work(), "dir/deep.txt", "deep\n");
    let script = "git log -p --format=%s\ngit blame two.txt\ngit show HEAD~3:two.txt > old.txt";
    for (name, args) in [
        ("blobless", &["--filter=blob:none"][..]),
        ("treeless", &["--filter=tree:0"]),
        ("sparse", &["--filter=blob:none", "--sparse"]),
        ("limited", &["--filter=blob:limit=1"]),
        ("named", &["--filter=blob:none", "--origin", "up.stream"]),
    ] {
        let partial = cloned(&home, name, args);
        name_user(&partial);
        let view = run_in(&home, &partial, name, script);
        assert_eq!(
            view["outcome"],
            "succeeded",
            "{name}: {view}\n{}",
            home.log(name)
        );
        assert!(
            home.log(name).contains("+an old file"),
            "{name}: {}",
            home.log(name)
        );
        home.ok(&["merge", name]);
        assert_eq!(
            fs::read_to_string(partial.join("old.txt")).expect("a file"),
            "an old file\n",
            "{name}"
        );
        assert_eq!(
            git_output(&partial, &["status", "--porcelain"]),
            "",
            "{name}"
        );
    }
    // A shallow history ends; what it has can be read.
    let shallow = cloned(&home, "shallow", &["--filter=blob:none", "--depth", "2"]);
    let view = run_in(
        &home,
        &shallow,
        "shallow",
        "git log -p --format=%s\ngit fsck --connectivity-only",
    );
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        home.log("shallow")
    );
    // Without the remote, git says so, and everything that is here works.
    let offline = cloned(&home, "offline", &["--filter=blob:none"]);
    name_user(&offline);
    git(
        &offline,
        &["remote", "set-url", "origin", "file:///nowhere"],
    );
    let view = run_in(
        &home,
        &offline,
        "offline",
        "git log --format=%s\ngit log -p || echo missing: $?\necho new > two.txt",
    );
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        home.log("offline")
    );
    assert!(
        home.log("offline").contains("missing: "),
        "{}",
        home.log("offline")
    );
    home.ok(&["merge", "offline"]);
}

/// The container of a bare repository has no files of its own.
#[test]
fn container_of_work_trees_names_them() {
    let home = repository();
    let container = beside(&home, "container");
    fs::create_dir(&container).expect("a directory");
    git(
        &container,
        &[
            "clone",
            "-q",
            "--bare",
            home.work().to_str().expect("UTF-8"),
            ".bare",
        ],
    );
    fs::write(container.join(".git"), "gitdir: ./.bare\n").expect("a file");
    git(&container, &["worktree", "add", "-q", "feature", "HEAD"]);
    let tree = container.join("feature");
    let refused = home.adj(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "sh",
        "-C",
        container.to_str().expect("UTF-8"),
        "do true",
    ]);
    let expected = format!("adj run -C {}", tree.display());
    assert!(
        refused.code == 2
            && refused.err.contains("is not a work tree")
            && refused.err.contains(&expected),
        "{refused:?}"
    );
    let view = run_in(&home, &tree, "inside", "echo changed > one.txt");
    assert_eq!(view["outcome"], "succeeded", "{view}");
}

#[test]
fn large_file_pointers_stay_pointers() {
    let home = repository();
    let work = home.work();
    let sprung = beside(&home, "sprung");
    for command in ["clean", "smudge", "process"] {
        git(
            &work,
            &[
                "config",
                &format!("filter.lfs.{command}"),
                &format!("touch '{}'; cat", sprung.display()),
            ],
        );
    }
    commit(&work, "readme.md", "x\n");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4665a5ea423c2713d436b5ee50593a9640e0018c1550b5a0002f74190d6caea8\nsize 12\n";
    fs::write(work.join("large.bin"), pointer).expect("a file");
    fs::write(
        work.join(".gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    )
    .expect("a file");
    let plain = [
        "-c",
        "filter.lfs.clean=cat",
        "-c",
        "filter.lfs.smudge=cat",
        "-c",
        "filter.lfs.process=",
        "-c",
        "filter.lfs.required=false",
    ];
    git(&work, &[&plain[..], &["add", "."]].concat());
    git(&work, &[&plain[..], &["commit", "-qm", "large"]].concat());
    let _ = fs::remove_file(&sprung);
    let view = run_in(
        &home,
        &work,
        "pointer",
        "cat large.bin\necho changed > one.txt",
    );
    assert_eq!(
        (&view["outcome"], &view["changed_files"]),
        (&json!("succeeded"), &json!(["one.txt"])),
        "{view}"
    );
    assert!(home.log("pointer").contains("oid sha256:4665a5"));
    name_user(&work);
    home.ok(&["merge", "pointer"]);
    assert!(!sprung.exists(), "a filter was run");
}

#[test]
fn sparse_checkout_makes_a_sparse_workspace() {
    let home = repository();
    let work = home.work();
    commit(&work, "in/a.txt", "a\n");
    commit(&work, "out/b.txt", "b\n");
    git(&work, &["sparse-checkout", "set", "--cone", "in"]);
    assert!(!work.join("out").exists());
    let view = run_in(
        &home,
        &work,
        "sparse",
        "test ! -e out\ngit status --porcelain\necho changed > in/a.txt",
    );
    assert_eq!(
        (&view["outcome"], &view["changed_files"]),
        (&json!("succeeded"), &json!(["in/a.txt"])),
        "{view}\n{}",
        home.log("sparse")
    );
    name_user(&work);
    home.ok(&["merge", "sparse"]);
    assert_eq!(
        fs::read_to_string(work.join("in/a.txt")).expect("a file"),
        "changed\n"
    );
    assert_eq!(
        git_output(&work, &["ls-tree", "-r", "--name-only", "HEAD", "out"]),
        "out/b.txt"
    );
}

#[test]
fn base_without_a_branch_is_kept() {
    let home = repository();
    let work = home.work();
    let config = home.home.dir.join("config.toml");
    let agents = fs::read_to_string(&config).expect("a configuration");
    fs::write(&config, format!("live_runs_max = 1\n{agents}")).expect("a configuration");
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "holds",
        "-C",
        "..",
        "ask \"go on?\"\nsay done",
    ]);
    home.until_status("holds", "waiting_parent_reply");
    // Without a branch, the run starts from the commit of its dispatch.
    let branch = git_output(&work, &["symbolic-ref", "--short", "HEAD"]);
    git(&work, &["checkout", "-q", "--detach"]);
    let base = commit(&work, "gone.txt", "kept\n");
    start_clone(&home, "late", "cat gone.txt\necho more >> gone.txt");
    assert_eq!(home.show("late")["state"], "queued");
    for args in [
        &["checkout", "-q", &branch][..],
        &["reflog", "expire", "--expire=now", "--all"],
        &["gc", "-q", "--prune=now"],
    ] {
        git(&work, args);
    }
    assert_eq!(git_output(&work, &["branch", "--contains", &base]), "");
    home.ok(&["reply", "holds", "yes"]);
    let view = succeeded(&home, "late");
    assert_eq!(view["workspace"]["base"], json!(base));
    git(&work, &["gc", "-q", "--prune=now"]);
    assert!(home.ok(&["diff", "late"]).contains("+more"));
    home.ok(&["undo", "late"]);
    assert_eq!(
        fs::read_to_string(workspace(&view).join("gone.txt")).expect("a file"),
        "kept\n"
    );
}

#[test]
fn linked_work_tree_can_be_the_base() {
    let home = repository();
    let work = home.work();
    let tree = beside(&home, "tree");
    git(
        &work,
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            "side",
            tree.to_str().expect("UTF-8"),
        ],
    );
    let base = commit(&tree, "side.txt", "side\n");
    for isolation in ["clone", "worktree"] {
        let script = format!("do cat side.txt\ndo echo {isolation} >> side.txt");
        home.ok(&[
            "run",
            "-d",
            "--isolation",
            isolation,
            "-a",
            "sh",
            "-n",
            isolation,
            "-C",
            tree.to_str().expect("UTF-8"),
            &script,
        ]);
        let view = succeeded(&home, isolation);
        let expected = (&json!(tree), &json!(base), &json!("side"));
        assert_eq!(
            (
                &view["workspace"]["repository"],
                &view["workspace"]["base"],
                &view["workspace"]["branch"]
            ),
            expected,
            "{view}"
        );
    }
    name_user(&tree);
    home.ok(&["merge", "clone"]);
    assert_eq!(
        fs::read_to_string(tree.join("side.txt")).expect("a file"),
        "side\nclone\n"
    );
    assert!(
        !work.join("side.txt").exists() && git_output(&work, &["status", "--porcelain"]).is_empty()
    );
    home.ok(&["discard", "worktree"]);
    assert_eq!(git_output(&work, &["worktree", "list"]).lines().count(), 2);
}

#[test]
fn submodules_stay_empty() {
    let home = repository();
    let work = home.work();
    let library = beside(&home, "library");
    fs::create_dir(&library).expect("a directory");
    git(&library, &["init", "-q"]);
    commit(&library, "lib.txt", "x\n");
    git(
        &work,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            library.to_str().expect("UTF-8"),
            "sub",
        ],
    );
    git(&work, &["commit", "-qm", "submodule"]);
    let view = run_in(
        &home,
        &work,
        "modules",
        "ls sub\ngit status --porcelain\necho changed > one.txt",
    );
    assert_eq!(
        (&view["outcome"], &view["changed_files"]),
        (&json!("succeeded"), &json!(["one.txt"])),
        "{view}\n{}",
        home.log("modules")
    );
    assert!(!home.log("modules").contains("lib.txt"));
    assert_eq!(git_output(&work, &["diff", "--submodule=log", "HEAD"]), "");
}

#[test]
fn branches_of_the_user_are_never_in_the_way() {
    let home = repository();
    let work = home.work();
    git(&work, &["branch", "adj"]);
    let view = run_in(
        &home,
        &work,
        "first",
        "echo 1 > one.txt\necho first > new.txt",
    );
    assert_eq!(view["outcome"], "succeeded", "{view}");
    git(&work, &["branch", "-m", "adj", "adj/second"]);
    let view = run_in(&home, &work, "second", "git branch --show-current");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert!(home.log("second").contains("adj/second"));
    name_user(&work);
    let refused = home.adj(&["merge", "first", "--branch", "adj/second"]);
    assert!(
        refused.code != 0 && refused.err.contains("adj/second"),
        "{refused:?}"
    );
    assert_eq!(
        git_output(&work, &["rev-parse", "adj/second"]),
        git_output(&work, &["rev-parse", "HEAD"])
    );
}

#[test]
fn names_that_differ_in_case_are_two_files() {
    let home = repository();
    let work = home.work();
    commit(&work, "Case.txt", "upper\n");
    if work.join("case.txt").exists() {
        return crate::support::skip("the file system does not distinguish upper and lower case");
    }
    commit(&work, "case.txt", "lower\n");
    let view = run_in(
        &home,
        &work,
        "cases",
        "cat Case.txt case.txt\necho changed > case.txt\necho new > CASE.txt",
    );
    assert_eq!(
        (&view["outcome"], &view["changed_files"]),
        (&json!("succeeded"), &json!(["CASE.txt", "case.txt"])),
        "{view}"
    );
    assert!(home.log("cases").contains("upper\nlower"));
    // A repository that is configured to ignore case cannot distinguish them: the workspace is
    // refused or complete.
    git(&work, &["config", "core.ignorecase", "true"]);
    let view = run_in(&home, &work, "folded", "cat Case.txt case.txt");
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}",
        home.log("folded")
    );
    assert!(
        home.log("folded").contains("upper\nlower"),
        "{}",
        home.log("folded")
    );
}

#[test]
fn huge_files_are_left_out_and_named() {
    let home = repository();
    let work = home.work();
    let view = run_in(
        &home,
        &work,
        "huge",
        "truncate -s 2G huge.bin\necho changed > one.txt",
    );
    assert_eq!(
        (&view["outcome"], &view["changed_files"]),
        (&json!("succeeded"), &json!(["one.txt"])),
        "{view}"
    );
    let left_out = view["snapshots"]
        .as_array()
        .and_then(|all| all.last()?["left_out"].as_array())
        .expect("files that are left out");
    assert!(
        left_out.iter().any(|file| file
            .as_str()
            .is_some_and(|file| file.contains("huge.bin") && file.contains("2147483648"))),
        "{view}"
    );
    fs::File::create(work.join("mine.bin"))
        .and_then(|file| file.set_len(2 * 1024 * 1024 * 1024))
        .expect("a sparse file");
    let view = run_in(&home, &work, "beside", "test ! -e mine.bin");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    let refused = home.adj(&[
        "run",
        "-d",
        "--clone",
        "--with-changes",
        "-a",
        "echo",
        "say x",
    ]);
    assert!(
        refused.code != 0 && refused.err.contains("mine.bin") && refused.err.contains("ignore it"),
        "{refused:?}"
    );
}

#[test]
fn full_disk_leaves_no_part_of_a_workspace() {
    let Some(disk) = Disk::mount("24m") else {
        return;
    };
    let home = TestHome::below(disk.path());
    let work = home.work();
    let config = "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh -eu\"]\n";
    fs::write(home.home.dir.join("config.toml"), config).expect("a configuration");
    git(&work, &["init", "-q"]);
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(20 * 1024 * 1024)
    .collect();
    fs::write(work.join("large.bin"), noise).expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "large"]);
    home.ok(&["run", "-d", "--clone", "-a", "sh", "-n", "full", "do true"]);
    let view = home.finished("full");
    assert_eq!(view["outcome"], "spawn_failed", "{view}");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("cannot be made")),
        "{view}"
    );
    assert!(!workspace(&view).exists());
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    // With enough space, the same task gets a complete workspace.
    assert!(disk.remount("size=96m"));
    let retried = home.json(&["retry", "full"]);
    let view = succeeded(&home, retried["name"].as_str().expect("a name"));
    assert_eq!(
        fs::metadata(workspace(&view).join("large.bin"))
            .expect("a file")
            .len(),
        20 * 1024 * 1024
    );
}

/// git 2.30 lacks `merge-tree --write-tree` and options that a workspace needs. A test double
/// refuses both.
#[test]
fn outdated_git_is_reported() {
    let home = repository();
    let bin = beside(&home, "bin");
    fs::create_dir(&bin).expect("a directory");
    let real = String::from_utf8(
        Command::new("sh")
            .args(["-c", "command -v git"])
            .output()
            .expect("a shell")
            .stdout,
    )
    .expect("UTF-8");
    let script = format!(
        "#!/bin/sh\nfor arg; do case \"$arg\" in\n--version) echo 'git version 2.30.2'; exit 0;;\nmerge-tree) echo \"usage: git merge-tree <base-tree> <branch1> <branch2>\" >&2; exit 129;;\nesac; done\nexec {} \"$@\"\n",
        real.trim()
    );
    fs::write(bin.join("git"), script).expect("a program");
    fs::set_permissions(
        bin.join("git"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("a mode");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let adj = |args: &[&str]| -> crate::support::Ran {
        home.command(args)
            .env("PATH", &path)
            .output()
            .expect("adj runs")
            .into()
    };
    let started = adj(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "sh",
        "-n",
        "old",
        "do echo changed > one.txt",
    ]);
    assert_eq!(started.code, 0, "{started:?}");
    succeeded(&home, "old");
    git(
        &home.work(),
        &["commit", "-qm", "meanwhile", "--allow-empty"],
    );
    name_user(&home.work());
    let merged = adj(&["merge", "old"]);
    assert!(
        merged.code != 0 && merged.err.contains("git 2.38 or newer is needed"),
        "{merged:?}"
    );
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "1\n"
    );
    let doctor = adj(&["doctor"]);
    assert!(
        doctor.out.contains("2.30.2") && doctor.out.contains("2.38"),
        "{doctor:?}"
    );
}

#[test]
fn undo_leaves_large_files_whose_attributes_the_run_removed() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("large.bin"), "pointer\n").expect("a file");
    fs::write(
        work.join(".gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    )
    .expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "large"]);
    home.ok(&[
        "run",
        "-w",
        "-a",
        "sh",
        "-n",
        "removes",
        "do rm .gitattributes; echo changed > large.bin; echo 2 > one.txt",
    ]);
    let undone = home.adj(&["--json", "undo", "removes"]);
    assert_eq!(undone.code, 7, "large.bin is not restored: {undone:?}");
    let undone = undone.data();
    assert_eq!(
        (&undone["files"], &undone["skipped"]),
        (&json!([".gitattributes", "one.txt"]), &json!(["large.bin"])),
        "{undone}"
    );
    assert_eq!(
        fs::read_to_string(work.join("large.bin")).expect("a file"),
        "changed\n"
    );
}
