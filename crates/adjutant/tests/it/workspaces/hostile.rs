//! A repository and a clone of it that configure programs: creating, reading and merging a
//! workspace runs none of them.

use super::{git_output, repository, succeeded, workspace};
use crate::changes::git;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const PROGRAMS: [&str; 16] = [
    "filter.trap.clean",
    "filter.trap.smudge",
    "filter.trap.process",
    "diff.trap.textconv",
    "diff.trap.command",
    "diff.external",
    "core.fsmonitor",
    "core.pager",
    "core.editor",
    "core.sshCommand",
    "core.alternateRefsCommand",
    "uploadpack.packObjectsHook",
    "alias.read-tree",
    "alias.pack-objects",
    "gpg.program",
    "credential.helper",
];
const HOOKS: [&str; 7] = [
    "post-index-change",
    "reference-transaction",
    "post-checkout",
    "pre-commit",
    "pre-auto-gc",
    "post-rewrite",
    "fsmonitor-watchman",
];

/// Configures a program in a repository for every case in which git runs one.
fn set_traps(dir: &Path, trap: &Path) {
    let text = trap.display().to_string();
    for name in PROGRAMS {
        git(dir, &["config", name, &text]);
    }
    git(dir, &["config", "filter.trap.required", "true"]);
    git(
        dir,
        &[
            "config",
            "init.templateDir",
            &trap.parent().expect("a parent").display().to_string(),
        ],
    );
    git(dir, &["config", "remote.origin.uploadpack", &text]);
    git(dir, &["config", "submodule.recurse", "true"]);
    for hook in HOOKS {
        fs::create_dir_all(dir.join(".git/hooks")).expect("a directory");
        symlink(trap, dir.join(".git/hooks").join(hook)).expect("a hook");
    }
}

#[test]
fn no_program_of_a_repository_runs() {
    let home = repository();
    let work = home.work();
    let beside = work.parent().expect("a parent");
    let trap = beside.join("trap.sh");
    fs::write(
        &trap,
        format!(
            "#!/bin/sh\ntouch '{}'\ncat\n",
            trap.with_extension("sprung").display()
        ),
    )
    .expect("a trap");
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(
        work.join(".gitattributes"),
        "*.txt filter=trap diff=trap merge=trap\n",
    )
    .expect("a file");
    let url = format!(
        "[submodule \"s\"]\n\tpath = s\n\turl = ext::{}\n\tupdate = !{}\n",
        trap.display(),
        trap.display()
    );
    fs::write(work.join(".gitmodules"), url).expect("a file");
    symlink(beside, work.join("out")).expect("a link");
    git(&work, &["add", "."]);
    let commit = git_output(&work, &["rev-parse", "HEAD"]);
    git(
        &work,
        &[
            "update-index",
            "--add",
            "--cacheinfo",
            &format!("160000,{commit},s"),
        ],
    );
    fs::create_dir(work.join("s")).expect("a directory");
    git(&work, &["commit", "-qm", "traps"]);
    set_traps(&work, &trap);
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    let set = format!(
        "do cp -r '{}/.git/hooks' .git/; cat '{}/.git/config' >> .git/config; git config --unset-all core.fsmonitor\n\
         do echo changed > one.txt; echo through > out/escaped.txt\n\
         do git -c core.hooksPath=/dev/null -c filter.trap.required=false -c filter.trap.clean=cat -c filter.trap.process= \
         -c user.name=a -c user.email=a@a commit -qam hostile\n\
         do git config core.fsmonitor '{}'; rm -f '{}'\n",
        work.display(),
        work.display(),
        trap.display(),
        trap.with_extension("sprung").display()
    );
    for isolation in ["clone", "worktree"] {
        let script = if isolation == "clone" {
            set.as_str()
        } else {
            "do echo changed > one.txt\n"
        };
        home.ok(&[
            "run",
            "-d",
            "--isolation",
            isolation,
            "--with-changes",
            "-a",
            "sh",
            "-n",
            isolation,
            script,
        ]);
        let view = succeeded(&home, isolation);
        assert!(
            !trap.with_extension("sprung").exists(),
            "{isolation}: a program of the repository was run"
        );
        let top = workspace(&view);
        assert_eq!(
            fs::read_link(top.join("out")).expect("a link"),
            beside,
            "a link is a link"
        );
        assert!(
            top.join("s").is_dir()
                && fs::read_dir(top.join("s"))
                    .expect("a directory")
                    .next()
                    .is_none(),
            "no submodule is fetched"
        );
        assert!(home.ok(&["diff", isolation]).contains("+changed"));
        let undone = home.adj(&["--json", "undo", isolation]);
        assert_eq!(undone.code, 7, "one.txt is not restored: {undone:?}");
        let undone = undone.data();
        assert_eq!(
            undone["skipped"],
            serde_json::json!(["one.txt"]),
            "a filter makes it: {undone}"
        );
        assert!(
            !trap.with_extension("sprung").exists(),
            "{isolation}: a program of the repository was run"
        );
    }
    let view = home.show("clone");
    let head = format!(
        "refs/adjutant/{}/head",
        view["run_id"].as_str().expect("an id")
    );
    assert_eq!(
        git_output(
            &work,
            &["-c", "core.fsmonitor=", "log", "-1", "--format=%s", &head]
        ),
        "hostile"
    );
}

/// No workspace is created from a commit with files in a git directory or behind a link.
#[test]
fn commit_with_paths_in_a_git_directory_is_refused() {
    let home = repository();
    let work = home.work();
    let blob = git_output(&work, &["hash-object", "-w", "one.txt"]);
    for (name, path) in [
        ("folded", ".GIT/config"),
        ("short", "GIT~1/config"),
        ("nested", "a/.git/config"),
    ] {
        let mut tree = blob.clone();
        let mut mode = "100644 blob";
        for part in path.rsplit('/') {
            use std::io::Write as _;
            let mut call = std::process::Command::new("git");
            call.arg("mktree")
                .current_dir(&work)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped());
            let mut call = call.spawn().expect("git");
            writeln!(call.stdin.take().expect("a pipe"), "{mode} {tree}\t{part}").expect("written");
            tree = String::from_utf8(call.wait_with_output().expect("it ends").stdout)
                .expect("UTF-8")
                .trim()
                .to_owned();
            mode = "040000 tree";
        }
        let commit = git_output(
            &work,
            &[
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@t",
                "commit-tree",
                "-m",
                name,
                &tree,
            ],
        );
        git(&work, &["update-ref", "--no-deref", "HEAD", &commit]);
        home.ok(&["run", "-d", "--clone", "-a", "sh", "-n", name, "do true"]);
        let view = home.finished(name);
        assert_eq!(view["outcome"], "spawn_failed", "{path}: {view}");
        assert!(
            view["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("cannot be made: git read-tree")),
            "{view}"
        );
        assert!(!workspace(&view).exists());
    }
}
