//! Creating the workspace of a run in a tree of 76 MB.

use super::Bench;
use crate::lab::Result;
use crate::stats::{Row, Samples};
use adjutant_core::{Isolation, RunId, Time};
use adjutant_git::git::{self, Git, NewWorkspace};
use rustix::fs::Mode;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const FILES: usize = 2_000;
const FILE_BYTES: usize = 38_000;
const WORKSPACES: usize = 5;

/// Measures creating a clone of the tree, compared with copying its files, and the data that git
/// stores for it.
pub async fn measure(_: &Bench) -> Result<Vec<Row>> {
    let (dir, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let tree = dir.path().join("tree");
    repository(&tree)?;
    let env = [
        ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
        ("HOME".to_owned(), dir.path().display().to_string()),
    ];
    let git = Git::find(env.iter().map(|(name, value)| (name, value)), &tree)?;
    let (mut made, mut copied, mut data_bytes) = (Samples::default(), Samples::default(), 0);
    for n in 0..WORKSPACES {
        let copy = dir.path().join("copy");
        let start = Instant::now();
        let done = Command::new("cp")
            .args(["-r", "d", "../copy"])
            .current_dir(&tree)
            .status()?;
        copied.push(start.elapsed());
        if !done.success() {
            return Err("the files cannot be copied".into());
        }
        std::fs::remove_dir_all(copy)?;
        let path = home.path().join(format!("workspaces/run-{n}/tree"));
        let start = Instant::now();
        let (repo, base) = git::find_base(&git, &tree).await?;
        let new = NewWorkspace {
            continued: None,
            is_moved: false,
            isolation: Isolation::Clone,
            run: RunId::new(Time(1), [u8::try_from(n)?; 10]),
            run_name: "bench",
            base: &base.commit,
            branch: base.branch.as_deref(),
            changes: None,
            copy: &[],
            path: &path,
            home: home.path(),
            boot: "bench",
            cwd: &path,
            umask: Mode::WGRP | Mode::WOTH,
        };
        git::make_workspace(&repo, &new).await?;
        made.push(start.elapsed());
        data_bytes =
            bytes_of(&path.join(".git"))? + path.with_file_name(".index").metadata()?.len();
        if std::fs::read_dir(path.join("d"))?.count() != FILES {
            return Err("the workspace does not contain the files".into());
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    let megabytes = data_bytes as f64 / 1e6;
    Ok(vec![
        Row::latency(
            "clone workspace of a 76 MB tree (floor: cp -r)",
            &made,
            Some(copied.p50()),
            1_500.0,
        ),
        Row::number(
            "new git data of a clone workspace",
            megabytes,
            "MB",
            2.0,
            true,
        ),
    ])
}

fn bytes_of(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() {
            bytes_of(&entry.path())?
        } else {
            meta.len()
        };
    }
    Ok(bytes)
}

/// Creates a repository of files that do not compress well.
fn repository(tree: &Path) -> Result<()> {
    std::fs::create_dir_all(tree.join("d"))?;
    let mut state = 1_u64;
    for n in 0..FILES {
        let mut content = Vec::with_capacity(FILE_BYTES);
        while content.len() < FILE_BYTES {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            content.extend_from_slice(format!("{:016x} a line of text\n", state >> 16).as_bytes());
        }
        content.truncate(FILE_BYTES);
        std::fs::write(tree.join(format!("d/f{n}")), content)?;
    }
    for args in [
        &["init", "-q"][..],
        &["add", "."],
        &[
            "-c",
            "user.name=b",
            "-c",
            "user.email=b@b",
            "commit",
            "-qm",
            "x",
        ],
    ] {
        let done = Command::new("git")
            .args(args)
            .current_dir(tree)
            .env("HOME", tree)
            .output()?;
        if !done.status.success() {
            return Err(format!("git {args:?}: {}", String::from_utf8_lossy(&done.stderr)).into());
        }
    }
    Ok(())
}
