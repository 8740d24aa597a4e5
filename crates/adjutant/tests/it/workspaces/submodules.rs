//! Work in nested repositories of a workspace is listed, because no snapshot contains it.

use super::{git_output, repository, start_clone, succeeded, workspace};
use crate::changes::git;
use crate::support::TestHome;
use std::fs;

const UPDATE: &str = "git -c protocol.file.allow=always submodule --quiet update --init";

/// A repository with a submodule `sub`, whose origin is in the same directory.
fn with_submodule() -> TestHome {
    let home = repository();
    let (work, library) = (home.work(), home.work().with_file_name("library"));
    fs::create_dir(&library).expect("a directory");
    fs::write(library.join("lib.txt"), "1\n").expect("a file");
    git(&library, &["init", "-q"]);
    git(&library, &["add", "."]);
    git(&library, &["commit", "-qm", "library"]);
    let from = library.display().to_string();
    git(
        &work,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            &from,
            "sub",
        ],
    );
    git(&work, &["commit", "-qm", "submodule"]);
    home
}

#[test]
fn work_in_a_submodule_is_named_and_not_removed() {
    let cases = [
        ("edits", "echo 2 > sub/lib.txt", "uncommitted changes"),
        ("adds", "echo new > sub/new.txt", "uncommitted changes"),
        (
            "stages",
            "echo 2 > sub/lib.txt; git -C sub add lib.txt",
            "uncommitted changes",
        ),
        (
            "commits",
            "echo 2 > sub/lib.txt; git -C sub -c user.name=a -c user.email=a@a commit -qam 2",
            "commits that are only in",
        ),
    ];
    let home = with_submodule();
    for (name, script, why) in cases {
        start_clone(&home, name, &format!("{UPDATE}\n{script}"));
        let view = succeeded(&home, name);
        let shown = home.ok(&["show", name]);
        assert!(
            shown.contains("\"sub\" (") && shown.contains(why),
            "{name}: {shown}"
        );
        let refused = home.adj(&["discard", name]);
        assert!(
            refused.code == 7 && refused.err.contains("sub") && refused.err.contains(why),
            "{name}: {refused:?}"
        );
        let cleaned = home.json(&["clean", "--older-than", "0s", "--yes"]);
        assert!(
            cleaned["kept"].to_string().contains(why),
            "{name}: {cleaned}"
        );
        assert!(workspace(&view).join("sub/lib.txt").exists(), "{name}");
    }
    start_clone(&home, "misplaces", "echo lost > sub/file.txt");
    succeeded(&home, "misplaces");
    let refused = home.adj(&["discard", "misplaces"]);
    assert!(
        refused.code == 7 && refused.err.contains("not checked out"),
        "{refused:?}"
    );
    // An unchanged submodule, and pushed commits, are not at risk.
    start_clone(&home, "reads", UPDATE);
    start_clone(
        &home,
        "pushes",
        &format!(
            "{UPDATE}\necho 3 > sub/lib.txt; git -C sub -c user.name=a -c user.email=a@a commit -qam 3\ngit -C sub push -q origin HEAD:refs/heads/pushed"
        ),
    );
    for name in ["reads", "pushes"] {
        let view = succeeded(&home, name);
        assert!(
            !home.ok(&["show", name]).contains("without"),
            "{}",
            home.ok(&["show", name])
        );
        home.ok(&["discard", name]);
        assert!(!workspace(&view).exists());
    }
    fs::write(home.work().join("sub/lib.txt"), "mine\n").expect("a file");
    let refused = home.adj(&[
        "run",
        "-d",
        "--clone",
        "--with-changes",
        "-a",
        "sh",
        "do true",
    ]);
    assert!(
        refused.code != 0 && refused.err.contains("\"sub\" cannot be carried"),
        "{refused:?}"
    );
}

/// No program that a nested repository configures is run.
#[test]
fn hostile_submodule_runs_nothing() {
    let home = repository();
    let trap = home.work().with_file_name("sprung");
    let script = format!(
        "git init -q inner; cd inner; echo 1 > a.txt; git -c user.name=a -c user.email=a@a add .; git -c user.name=a -c user.email=a@a commit -qm 1\n\
         for name in filter.x.clean filter.x.smudge filter.x.process core.fsmonitor diff.external core.sshCommand; do git config $name 'touch {trap}; cat'; done\n\
         echo '* filter=x' > .git/info/attributes; echo '* filter=x' > .gitattributes; touch a.txt; echo 2 > b.txt; mkfifo .git/hooks/fifo\n\
         cd ..; git -c core.fsmonitor= update-index --add --cacheinfo 160000,$(git -C inner -c core.fsmonitor= rev-parse HEAD),inner\n\
         git -c user.name=a -c user.email=a@a commit -qm inner",
        trap = trap.display()
    );
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "hostile",
        &script
            .lines()
            .map(|line| format!("do {line}\n"))
            .collect::<String>(),
    ]);
    succeeded(&home, "hostile");
    let _ = fs::remove_file(&trap);
    fs::write(home.work().join("inner/a.txt"), "3\n").expect("a file");
    home.ok(&["run", "-d", "-a", "sh", "-n", "after", "do true"]);
    succeeded(&home, "after");
    assert!(
        home.ok(&["show", "after"])
            .contains("\"inner\" (uncommitted changes"),
        "{}",
        home.ok(&["show", "after"])
    );
    assert!(!trap.exists(), "a program of the repository was run");
    git_output(&home.work(), &["fsck", "--connectivity-only"]);
}

/// git blocks on a FIFO in place of a configuration file. The snapshot still contains the other
/// files.
#[test]
fn fifo_in_a_nested_repository_blocks_no_snapshot() {
    let home = with_submodule();
    let pipe = "rm -rf sub/.git; mkdir -p sub/.git/objects sub/.git/refs; echo 'ref: refs/heads/x' > sub/.git/HEAD; mkfifo sub/.git/config";
    start_clone(
        &home,
        "blocks",
        &format!("{UPDATE}\n{pipe}; echo 2 > one.txt"),
    );
    let started = std::time::Instant::now();
    let view = succeeded(&home, "blocks");
    assert!(started.elapsed().as_secs() < 45, "{:?}", started.elapsed());
    assert_eq!(
        view["changed_files"],
        serde_json::json!(["one.txt"]),
        "{view}"
    );
    let shown = home.ok(&["show", "blocks"]);
    assert!(
        shown.contains("\"sub\" (") && shown.contains("took too long"),
        "{shown}"
    );
}

#[test]
fn nested_repository_is_found_in_a_large_index() {
    let home = repository();
    let work = home.work();
    // Without `.gitmodules`: 9,000 entries with long names, all of one object, which is not on
    // disk.
    let entries: String = (0..9_000)
        .map(|n| {
            format!(
                "100644 d00491fd7e5bb6fa28c517a0bb32b8b506539d4d\td{}/f{n}-{:0>200}\n",
                n / 100,
                ""
            )
        })
        .collect();
    fs::write(work.join("entries"), entries).expect("a list");
    git_output(&work, &["hash-object", "-w", "one.txt"]);
    let list = fs::File::open(work.join("entries")).expect("a list");
    let done = std::process::Command::new("git")
        .args(["update-index", "--index-info"])
        .current_dir(&work)
        .stdin(list)
        .status()
        .expect("git");
    assert!(done.success());
    fs::remove_file(work.join("entries")).expect("removed");
    git(&work, &["commit", "-qm", "many"]);
    git(&work, &["checkout", "-q", "."]);
    assert!(
        fs::metadata(work.join(".git/index"))
            .expect("an index")
            .len()
            > 2 * 1024 * 1024
    );
    let library = work.join("inner");
    fs::create_dir(&library).expect("a directory");
    git(&library, &["init", "-q"]);
    git(&library, &["commit", "-q", "--allow-empty", "-m", "inner"]);
    git(&work, &["add", "inner"]);
    git(&work, &["commit", "-qm", "inner"]);
    home.ok(&[
        "run",
        "-w",
        "-a",
        "sh",
        "-n",
        "edits",
        "do echo lost > inner/file.txt",
    ]);
    let shown = home.ok(&["show", "edits"]);
    assert!(
        shown.contains("\"inner\" (") && shown.contains("uncommitted changes"),
        "{shown}"
    );
}

#[test]
fn missing_submodules_are_listed() {
    let home = with_submodule();
    start_clone(&home, "reads", "true");
    let view = succeeded(&home, "reads");
    assert_eq!(
        view["workspace"]["empty_submodules"],
        serde_json::json!(["sub"]),
        "{view}"
    );
    let shown = home.ok(&["show", "reads"]);
    assert!(
        shown.contains(
            "empty: sub (have the setup command fetch them: git submodule update --init)"
        ),
        "{shown}"
    );
    let setup = format!("setup = [\"sh\", \"-c\", \"{UPDATE}\"]\n");
    super::prepare::configure(&home, &setup);
    start_clone(&home, "fetches", "cat sub/lib.txt");
    let view = succeeded(&home, "fetches");
    assert!(
        view["workspace"]["empty_submodules"].is_null() && home.log("fetches").contains('1'),
        "{view}"
    );
}
