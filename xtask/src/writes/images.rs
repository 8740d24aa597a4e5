//! The lane that cuts the power: images of a disk after its flushes around a merge or an undo. A
//! hub starts on each, and recovers.

use super::Found;
use super::disk::{LoggedDisk, Mount};
use super::site::{FILES, Site};
use crate::lab::Result;
use crate::random::Random;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How many images of one change are checked.
const IMAGES_OF_CHANGE: u64 = 12;
/// How long the disk goes on after the reply.
const AFTER: Duration = Duration::from_millis(300);

const CHANGES: [&[&str]; 6] = [
    &[],
    &["--squash"],
    &["--rebase"],
    &["--no-commit"],
    &["--branch", "new/branch"],
    &["undo"],
];

/// The disk of one change, and the state before and after it.
struct Change {
    args: &'static [&'static str],
    before: String,
    after: String,
}

/// Checks images around merges in every mode, and undos.
pub fn images(adj: &Path, count: u64, random: &mut Random, planted: bool) -> Result<Found> {
    let mut found = Found::default();
    let (mut checked, mut acknowledged, mut changes) = (0, 0, 0);
    let dir = tempfile::Builder::new().prefix("adj-images-").tempdir()?;
    let mountpoint = dir.path().join("mounted");
    // The first change is drawn, so that a short lane with another seed sees another one.
    let first = random.below(CHANGES.len() as u64);
    while checked < count && (!planted || found.problems.is_empty()) {
        let args = CHANGES[usize::try_from((first + changes) % CHANGES.len() as u64)?];
        changes += 1;
        let disk = LoggedDisk::new(&dir.path().join(format!("disk-{changes}")), &mountpoint)?;
        let mut site = Site::new(&mountpoint, adj, planted.then_some("unsynced=on"))?;
        site.work("r", args != ["undo"])?;
        let before = site.git(&["rev-parse", "HEAD"])?;
        rustix::fs::sync();
        let start = disk.entries()?;
        site.lab.run(&command(args))?;
        let replied = disk.entries()?;
        let after = site.git(&[
            "rev-parse",
            if args.first() == Some(&"--branch") {
                "new/branch"
            } else {
                "HEAD"
            },
        ])?;
        std::thread::sleep(AFTER);
        let change = Change {
            args,
            before,
            after,
        };
        // As after a power failure: nothing says goodbye.
        kill_all(&site);
        let log = disk.close()?;
        let flushes: Vec<u64> = log
            .flushes()?
            .into_iter()
            .filter(|at| *at >= start)
            .collect();
        // The last flush before the reply has what was acknowledged.
        let last_before_reply = flushes.iter().rposition(|at| *at < replied);
        let mut chosen: Vec<usize> = last_before_reply.into_iter().collect();
        for _ in 1..IMAGES_OF_CHANGE
            .min(count - checked)
            .min(flushes.len() as u64)
        {
            let at = usize::try_from(random.below(flushes.len() as u64))?;
            if !chosen.contains(&at) {
                chosen.push(at);
            }
        }
        for at in chosen {
            // A new file each time: a namespace of mounts that another process has made meanwhile
            // keeps the last one mounted, and `mount` would mount that file system again, with what
            // it remembers.
            let image = dir.path().join(format!("image-{checked}"));
            log.replay(flushes[at], &image)?;
            let is_acknowledged = last_before_reply.is_some_and(|last| at >= last);
            let mut mount = Mount::new(&image, &mountpoint)?;
            let problems = check(&mut site, &change, is_acknowledged)
                .unwrap_or_else(|error| vec![error.to_string()]);
            kill_all(&site);
            mount.end()?;
            fs::remove_file(&image)?;
            let place = format!(
                "{args:?}, flush {at} of {}, {}",
                flushes.len(),
                if is_acknowledged {
                    "acknowledged"
                } else {
                    "before the reply"
                }
            );
            found.problems.extend(
                problems
                    .into_iter()
                    .map(|problem| format!("{place}: {problem}")),
            );
            checked += 1;
            acknowledged += u64::from(is_acknowledged);
        }
        // Its directory was on the disk.
        std::mem::forget(site);
        fs::remove_dir_all(dir.path().join(format!("disk-{changes}")))?;
    }
    found.done =
        format!("{checked} images of {changes} changes, {acknowledged} of them after the reply");
    Ok(found)
}

/// Kills every process of the home, which keeps its disk busy.
fn kill_all(site: &Site) {
    loop {
        let processes = site.lab.processes();
        if processes.is_empty() {
            return;
        }
        processes
            .iter()
            .for_each(|process| crate::processes::kill(process.pid));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn command(args: &[&'static str]) -> Vec<&'static str> {
    if args == ["undo"] {
        vec!["undo", "r"]
    } else {
        [&["merge", "r"], args].concat()
    }
}

/// Starts a hub on the image, and checks what it has recovered.
fn check(site: &mut Site, change: &Change, is_acknowledged: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    site.lab.env.clear();
    site.lab.run(&["ps"])?;
    // git itself leaves the lock of a ref if the power fails while it moves the ref, and tells the
    // user to remove the file.
    let locks = site.locks_of_git()?;
    if !locks.is_empty() {
        locks.iter().try_for_each(fs::remove_file)?;
        site.lab.run(&["stop"])?;
        site.lab.run(&["ps"])?;
    }
    if change.args == ["undo"] {
        problems.extend(check_undo(site, is_acknowledged)?);
    } else {
        problems.extend(check_merge(site, change, is_acknowledged)?);
    }
    site.git(&["fsck", "--connectivity-only"])?;
    site.lab.run(&["stop"])?;
    Ok(problems)
}

/// Counts the files of the repository that have this text.
fn files_of(site: &Site, text: &str) -> u64 {
    (0..FILES)
        .filter(|n| {
            fs::read_to_string(site.repository.join(format!("f{n}")))
                .is_ok_and(|found| found == text)
        })
        .count() as u64
}

/// Checks a merge: it is complete or absent, and complete if it was acknowledged.
fn check_merge(site: &Site, change: &Change, is_acknowledged: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let git_ref = if change.args.first() == Some(&"--branch") {
        "refs/heads/new/branch"
    } else {
        "HEAD"
    };
    let now = site
        .git(&["rev-parse", "--verify", "--quiet", git_ref])
        .unwrap_or_default();
    let (is_staged, is_branch) = (change.args == ["--no-commit"], git_ref != "HEAD");
    let is_merged = if is_staged {
        files_of(site, "r\n") == FILES
    } else {
        now == change.after
    };
    if is_acknowledged && !is_merged {
        problems.push(format!(
            "it is not merged: {git_ref} is {now:?}, not {:?}",
            change.after
        ));
    }
    if !is_merged && !is_branch && now != change.before {
        problems.push(format!("{git_ref} is {now:?}"));
    }
    problems.extend(site.leftovers(is_staged && is_merged)?);
    if files_of(site, "r\n") != if is_merged && !is_branch { FILES } else { 0 } {
        problems.push("the files are of two states".to_owned());
    }
    if !is_merged {
        site.lab.run(&command(change.args))?;
    }
    Ok(problems)
}

/// Checks an undo: each file is as before it or as after it, all of them as after it if it was
/// acknowledged, and a hub that finds files of both states says so. Then it can be completed, and
/// reversed from the snapshots.
fn check_undo(site: &Site, is_acknowledged: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let new = site.repository.join("new-r");
    let (restored, unchanged, is_new) = (
        files_of(site, "text\n"),
        files_of(site, "r\n"),
        new.exists(),
    );
    if restored + unchanged != FILES {
        problems.push(format!(
            "{} files are neither as before the undo nor as after it",
            FILES - restored - unchanged
        ));
    }
    if is_new && fs::read_to_string(&new)? != "r\n" {
        problems.push("new-r is torn".to_owned());
    }
    let is_undone = restored == FILES && !is_new;
    let is_untouched = unchanged == FILES && is_new;
    if is_acknowledged && !is_undone {
        problems.push(format!("only {restored} of {FILES} files are restored"));
    }
    let is_reported = site
        .lab
        .run(&["--json", "show", "r"])?
        .contains("\"undo_interrupted\"");
    if is_acknowledged && is_reported {
        problems.push("it was acknowledged, and is reported as interrupted".to_owned());
    }
    if !is_undone && !is_untouched && !is_reported {
        problems
            .push("the files are of two states, and it is not reported as interrupted".to_owned());
    }
    problems.extend(site.leftovers(true)?);
    site.lab.run(&["undo", "r", "1", "--force"])?;
    problems.extend(site.leftovers(false)?);
    // The snapshots are on the disk too: the work of the run comes back.
    site.lab.run(&["undo", "r", "2", "--force"])?;
    if files_of(site, "r\n") != FILES || !new.exists() {
        problems.push("the undo cannot be reversed".to_owned());
    }
    problems.extend(site.leftovers(true)?);
    Ok(problems)
}
