//! Snapshots of a run's tree, and `adj diff`.

use super::{Bench, in_lab};
use crate::lab::Result;
use crate::stats::{Row, Samples};
use adjutant_api::view::{Dispatch, ReadEvents};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, EventKind, Isolation, RunId, Time};
use adjutant_git::git::{self, Git, NewSnapshot, Repo, Scratch};
use std::io::{BufWriter, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of files in each directory of the tree.
const FILES_IN_DIRECTORY: usize = 100;
/// Number of files that a turn changes.
const CHANGED: usize = 10;
const SNAPSHOTS: usize = 20;
const DIFFS: usize = 20;
/// Number of isolated runs whose changes are compared, and number of repetitions.
const SIBLINGS: usize = 10;
const ROUNDS: usize = 5;

/// Measures a snapshot after a turn that changed some files, in trees of several sizes.
pub async fn take(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (files, target_ms) in bench.scale.trees {
        let dir = tempfile::tempdir()?;
        repository(dir.path(), *files)?;
        let env = [
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), dir.path().display().to_string()),
        ];
        let git = Git::find(env.iter().map(|(name, value)| (name, value)), dir.path())?;
        let repo = Repo::find(&git, dir.path()).await?;
        let home = tempfile::tempdir()?;
        let scratch = Scratch::new(repo, home.path(), &home.path().join("git")).await?;
        let new = |cause| NewSnapshot {
            run: RunId::new(Time(1), [7; 10]),
            run_name: "bench".to_owned(),
            attempt: AttemptNo(1),
            cause,
            at: Time(1),
        };
        git::take(&scratch, &new(SnapshotCause::Start)).await?;
        let mut samples = Samples::default();
        for n in 0..SNAPSHOTS {
            for file in 0..CHANGED {
                std::fs::write(
                    dir.path().join(format!("d0/f{file}")),
                    format!("changed {n}\n"),
                )?;
            }
            // As the hub does after each turn.
            let start = Instant::now();
            if !scratch.is_current(&Repo::find(&git, dir.path()).await?, None) {
                return Err("the repository has changed".into());
            }
            let taken = git::take(&scratch, &new(SnapshotCause::Turn)).await?;
            samples.push(start.elapsed());
            if !taken.is_new {
                return Err("the snapshot does not contain the changes".into());
            }
        }
        let what = format!("snapshot after {CHANGED} of {files} files changed");
        rows.push(Row::latency(
            &what,
            &samples,
            Some(bench.floors.spawn.p50()),
            *target_ms,
        ));
    }
    Ok(rows)
}

/// Measures `adj diff --stat` on the command line.
pub async fn diff(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let dir = lab.dir.path().join("tree");
        repository(&dir, bench.scale.trees[0].0)?;
        let client = lab.client();
        let order = Dispatch {
            cwd: dir.display().to_string(),
            ..lab.order("echo", "write a.txt x\nwrite b.txt y".to_owned())
        };
        let run = client.call(&order).await?;
        lab.finished(&client, &run.identity.run_id, Duration::from_secs(30))
            .await?;
        let mut samples = Samples::default();
        for _ in 0..DIFFS {
            let start = Instant::now();
            let text = lab.run(&["diff", "--stat", &run.identity.name])?;
            samples.push(start.elapsed());
            if !text.contains("2 files changed") {
                return Err(format!("unexpected difference: {text}").into());
            }
        }
        Ok(vec![Row::latency(
            "adj diff --stat",
            &samples,
            Some(bench.floors.spawn.p50()),
            50.0,
        )])
    })
    .await
}

/// Measures the time from the end of an isolated run until its conflicts with all siblings are
/// recorded. All runs change the same file.
pub async fn conflicts(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let dir = lab.dir.path().join("tree");
        repository(&dir, bench.scale.trees[0].0)?;
        let client = lab.client();
        let order = |n: usize| Dispatch {
            cwd: dir.display().to_string(),
            isolation: Some(Isolation::Clone.into()),
            ..lab.order("echo", format!("write d0/f0 by run {n}"))
        };
        for n in 1..SIBLINGS {
            let run = client.call(&order(n)).await?;
            lab.finished(&client, &run.identity.run_id, Duration::from_secs(30))
                .await?;
        }
        let mut samples = Samples::default();
        for n in 0..ROUNDS {
            let run = client.call(&order(SIBLINGS + n)).await?;
            lab.finished(&client, &run.identity.run_id, Duration::from_secs(30))
                .await?;
            let start = Instant::now();
            let (mut found, mut after) = (0, 0);
            while found + 1 < SIBLINGS {
                let page = client
                    .call(&ReadEvents {
                        run: Some(run.identity.run_id.clone()),
                        after,
                        wait_ms: 10_000,
                        ..ReadEvents::default()
                    })
                    .await?;
                if page.events.is_empty() {
                    return Err(format!("{found} conflicts of {} were found", SIBLINGS - 1).into());
                }
                found += page
                    .events
                    .iter()
                    .filter(|event| event.kind == EventKind::RunConflict)
                    .count();
                after = page.cursor;
            }
            samples.push(start.elapsed());
            lab.run(&["discard", &run.identity.name])?;
        }
        let what = format!(
            "conflicts of a run with {} siblings, after its end",
            SIBLINGS - 1
        );
        Ok(vec![Row::latency(
            &what,
            &samples,
            Some(bench.floors.spawn.p50()),
            1000.0,
        )])
    })
    .await
}

/// Creates a repository with this many committed files, and waits until they are on disk. The
/// commit is imported as one pack: `git add` would write a file for each object.
fn repository(dir: &Path, files: usize) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut import = tempfile::tempfile()?;
    {
        let mut stream = BufWriter::new(&mut import);
        stream.write_all(b"commit refs/heads/main\ncommitter b <b@b> 1 +0000\ndata 1\nx\n")?;
        for n in 0..files {
            let content = format!("{n}\n");
            let (at, name) = (n / FILES_IN_DIRECTORY, n % FILES_IN_DIRECTORY);
            write!(
                stream,
                "M 100644 inline d{at}/f{name}\ndata {}\n{content}",
                content.len()
            )?;
        }
        stream.write_all(b"\n")?;
        stream.flush()?;
    }
    import.rewind()?;
    let git = |args: &[&str], input: Stdio| -> Result<()> {
        let done = Command::new("git")
            .args(args)
            .current_dir(dir)
            .env("HOME", dir)
            .stdin(input)
            .output()?;
        if done.status.success() {
            Ok(())
        } else {
            Err(format!("git {args:?}: {}", String::from_utf8_lossy(&done.stderr)).into())
        }
    };
    git(&["init", "-q", "-b", "main"], Stdio::null())?;
    git(&["fast-import", "--quiet"], import.into())?;
    git(&["reset", "-q", "--hard"], Stdio::null())?;
    rustix::fs::sync();
    Ok(())
}
