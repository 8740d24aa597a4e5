//! Lanes that change files: isolated runs whose work is merged, moved to a branch or discarded, and
//! runs in the user's directory that are undone. After any kill, an agent's changes are in a
//! snapshot, and a merge is complete or absent.

use super::ledger::{Shared, lock};
use crate::lab::{Lab, Result};
use crate::random::Random;
use adjutant_core::words;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Timeout for a run, counted from the last kill of a hub. A run that has not ended by then counts
/// as hanging.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// The user's uncommitted changes. No run changes them.
const MINE: (&str, &str) = ("mine.txt", "changed by the user\n");

/// The action on the work of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Merge,
    Squash,
    Rebase,
    Branch,
    Discard,
    /// The run works in the user's directory.
    Undo,
}

words!(Use { Merge = "merge", Squash = "squash", Rebase = "rebase", Branch = "branch", Discard = "discard", Undo = "undo" });

/// The condition that ends a lane.
#[derive(Debug, Clone, Copy)]
pub enum Until<'a> {
    Stopped(&'a watch::Receiver<bool>),
    /// It has performed each action that reaches this failpoint once.
    Reached(&'a str),
}

/// Runs one lane in its own repository. Returns the number of its runs.
///
/// # Errors
/// The repository cannot be created.
pub fn lane(lab: &Lab, ledger: &Shared, lane: usize, seed: u64, until: Until<'_>) -> Result<usize> {
    let uses = match until {
        Until::Stopped(_) => &Use::ALL[..],
        Until::Reached(failpoint) if failpoint.starts_with("merge.") => {
            &[Use::Merge, Use::Squash, Use::Rebase, Use::Branch]
        }
        Until::Reached(failpoint) if failpoint.starts_with("discard.") => &[Use::Discard],
        Until::Reached(failpoint) if failpoint.starts_with("undo.") => &[Use::Undo],
        Until::Reached(_) => &[Use::Merge, Use::Undo],
    };
    let mut random = Random::new(seed.wrapping_add(1000 + lane as u64));
    let repository = Repository::new(lab.dir.path().join(format!("repository-{lane}")))?;
    let mut count = 0;
    for number in 0.. {
        let is_over = match until {
            Until::Stopped(stopped) => *stopped.borrow(),
            Until::Reached(_) => number == uses.len(),
        };
        if is_over {
            break;
        }
        let wanted = uses[(number + lane) % uses.len()];
        let one = One {
            lab,
            ledger,
            repository: &repository,
            name: format!("{}-{lane}-{number}", wanted.word()),
            wanted,
        };
        if let Err(problem) = one.run(&mut random) {
            lock(ledger)
                .problems
                .push(format!("{}: {problem}", one.name));
            // The lane ends, because the failed run may have left changes in the repository.
            return Ok(count);
        }
        count += 1;
    }
    repository
        .check()
        .map_err(|problem| {
            lock(ledger)
                .problems
                .push(format!("repository {lane}: {problem}"))
        })
        .unwrap_or(());
    Ok(count)
}

/// A run, and the actions on its work.
struct One<'a> {
    lab: &'a Lab,
    ledger: &'a Shared,
    repository: &'a Repository,
    name: String,
    wanted: Use,
}

impl One<'_> {
    fn run(&self, random: &mut Random) -> Result<()> {
        let (new, changed) = (format!("new/{}.txt", self.name), "shared.txt");
        let text = self.name.clone();
        let script =
            format!("write {new} {text}\nwrite {changed} {text}\nsay working\ndone fine\n");
        let dir = self.repository.dir.display().to_string();
        let mut args = vec!["run", "-d", "-a", "echo", "-n", &self.name, "-C", &dir];
        if self.wanted != Use::Undo {
            args.push("--clone");
        }
        args.push(&script);
        self.start(&args)?;
        let before = self.repository.git(&["rev-parse", "HEAD"])?;
        // Otherwise the merge is a fast-forward.
        if self.wanted != Use::Undo && random.below(2) == 0 {
            self.repository
                .commit(&format!("user-{}.txt", self.name), "by the user\n")?;
        }
        let view = self.ended()?;
        let kept = self.check_kept(&view, &[&new, changed])?;
        if view["outcome"] == "failed" {
            return Err(format!("the run failed: {view}").into());
        }
        if view["outcome"] == "succeeded" && kept.len() != 2 {
            return Err(
                format!("the run succeeded, and its snapshot has only {kept:?}: {view}").into(),
            );
        }
        let head = self.repository.git(&["rev-parse", "HEAD"])?;
        match self.wanted {
            Use::Merge | Use::Squash | Use::Rebase => self.merge(&kept, &head, &before),
            Use::Branch => self.branch(&kept, &head),
            Use::Discard => self.discard(&view, &kept),
            Use::Undo => self.undo(&view, &kept),
        }
    }

    /// Waits for the run's end. A run that lost its supervisor is cancelled.
    fn ended(&self) -> Result<Value> {
        let start = Instant::now();
        loop {
            let view = self.view()?;
            match view["state"].as_str() {
                Some("finished") => return Ok(view),
                Some("stopped") => drop(self.lab.output(&["cancel", &self.name])?),
                _ => drop(self.lab.output(&["wait", &self.name, "--timeout", "5s"])?),
            }
            if lock(self.ledger).undisturbed(start) > RUN_LIMIT {
                let log = self.lab.end_of_hub_log();
                return Err(format!(
                    "still {} after {RUN_LIMIT:?}. The end of the hub's log:\n{log}",
                    view["state"]
                )
                .into());
            }
        }
    }

    /// Checks that the agent's changes are in the last snapshot. Returns the changed files.
    fn check_kept(&self, view: &Value, files: &[&str]) -> Result<Vec<String>> {
        let tree = view["workspace"]["path"]
            .as_str()
            .map_or_else(|| self.repository.dir.clone(), PathBuf::from);
        let last = view["snapshots"]
            .as_array()
            .and_then(|all| all.last())
            .and_then(|last| last["git_ref"].as_str());
        let mut kept = Vec::new();
        for file in files {
            let written = std::fs::read_to_string(tree.join(file))
                .ok()
                .filter(|text| text.trim_end() == self.name);
            let of_ref = last.and_then(|last| {
                self.repository
                    .git(&["show", &format!("{last}:{file}")])
                    .ok()
            });
            let of_ref = of_ref.filter(|text| text.trim_end() == self.name);
            if written.is_some() && of_ref.is_none() {
                return Err(
                    format!("{file} was written, and {last:?} does not have it: {view}").into(),
                );
            }
            if of_ref.is_some() {
                kept.push((*file).to_owned());
            }
        }
        Ok(kept)
    }

    fn merge(&self, kept: &[String], head: &str, base: &str) -> Result<()> {
        let mode: &[&str] = match self.wanted {
            Use::Squash => &["--squash"],
            Use::Rebase => &["--rebase"],
            _ => &[],
        };
        let args = [&["merge", &self.name][..], mode].concat();
        if kept.is_empty() {
            // With nothing to merge, the command may fail, and changes nothing. A file that the
            // agent was writing when it was killed is work.
            let merged = self.lab.output(&args)?;
            let changed = self
                .repository
                .git(&["diff", "--name-only", head, "HEAD"])?;
            self.check_cut(changed.lines())
                .map_err(|problem| format!("no file was kept, and {problem}: {merged:?}"))?;
            return self.repository.check();
        }
        self.adj(&args)?;
        let merged = self.repository.git(&["rev-parse", "HEAD"])?;
        if merged == head {
            return Err("it was merged, but HEAD has not moved".into());
        }
        let changed = self
            .repository
            .git(&["diff", "--name-only", head, "HEAD"])?;
        if let Some(missing) = kept
            .iter()
            .find(|file| changed.lines().all(|changed| changed != *file))
        {
            return Err(format!("merging changed {changed:?} and not {missing}").into());
        }
        self.check_cut(
            changed
                .lines()
                .filter(|file| kept.iter().all(|kept| kept != file)),
        )?;
        if self.wanted != Use::Rebase
            && self
                .repository
                .git(&["merge-base", "--is-ancestor", base, "HEAD"])
                .is_err()
        {
            return Err("the earlier history is missing".into());
        }
        for file in kept {
            let text = std::fs::read_to_string(self.repository.dir.join(file))?;
            if text.trim_end() != self.name {
                return Err(format!("{file} is {text:?} after the merge").into());
            }
        }
        self.repository.check()?;
        // A caller that has received no reply repeats the call.
        let again = self.lab.output(&args)?;
        self.expect_head(&merged).map_err(|problem| {
            format!(
                "{problem} when the merge was repeated: {again:?}: {:?}",
                self.view()
            )
            .into()
        })
    }

    /// Checks merged files that were not kept whole: the agent was killed while it wrote them.
    fn check_cut<'f>(&self, files: impl Iterator<Item = &'f str>) -> Result<()> {
        for file in files {
            let text = std::fs::read_to_string(self.repository.dir.join(file))?;
            if !self.name.starts_with(&text) {
                return Err(format!("merging brought {file} with {text:?}").into());
            }
        }
        Ok(())
    }

    fn branch(&self, kept: &[String], head: &str) -> Result<()> {
        let branch = format!("of-{}", self.name);
        if kept.is_empty() {
            return Ok(());
        }
        self.adj(&["merge", &self.name, "--branch", &branch])?;
        for file in kept {
            let text = self
                .repository
                .git(&["show", &format!("{branch}:{file}")])?;
            if text.trim_end() != self.name {
                return Err(format!("{file} is {text:?} on the branch").into());
            }
        }
        self.expect_head(head)
    }

    fn discard(&self, view: &Value, kept: &[String]) -> Result<()> {
        if ["planned", "starting"]
            .map(Value::from)
            .contains(&view["workspace"]["state"])
        {
            // The run was lost before its workspace was created.
            return if kept.is_empty() {
                self.repository.check()
            } else {
                Err("it has files but no workspace".into())
            };
        }
        self.adj(&["discard", &self.name])?;
        if let Some(path) = view["workspace"]["path"]
            .as_str()
            .filter(|path| Path::new(path).exists())
        {
            return Err(format!("{path} is still there").into());
        }
        let again = self.check_kept(
            &self.view()?,
            &kept.iter().map(String::as_str).collect::<Vec<_>>(),
        )?;
        if again != kept {
            return Err(format!("of {kept:?} only {again:?} is kept after the discard").into());
        }
        self.repository.check()
    }

    fn undo(&self, view: &Value, kept: &[String]) -> Result<()> {
        // An interrupted snapshot leaves a gap in the numbers.
        let last = view["snapshots"]
            .as_array()
            .and_then(|all| all.last())
            .and_then(|last| last["n"].as_u64())
            .unwrap_or(0);
        if last == 0 {
            return if kept.is_empty() {
                Ok(())
            } else {
                Err("files without a snapshot".into())
            };
        }
        // Other runs may have worked in the directory at the same time, and the first snapshot may
        // have been interrupted.
        self.adj(&["undo", &self.name, "--force"])?;
        self.repository.check()?;
        for file in kept.iter().filter(|file| file.starts_with("new/")) {
            if self.repository.dir.join(file).exists() {
                return Err(format!("{file} is there after the undo").into());
            }
        }
        let restored = self.adj(&["undo", &self.name, &last.to_string(), "--force"])?;
        for file in kept {
            let text = std::fs::read_to_string(self.repository.dir.join(file)).unwrap_or_default();
            if text.trim_end() != self.name {
                return Err(format!(
                    "{file} is {text:?} after undoing the undo ({restored:?}): {}",
                    self.view()?
                )
                .into());
            }
        }
        self.adj(&["undo", &self.name, "--force"])?;
        self.repository.check()
    }

    fn expect_head(&self, head: &str) -> Result<()> {
        let now = self.repository.git(&["rev-parse", "HEAD"])?;
        if now != head {
            return Err(format!("HEAD went from {head} to {now}").into());
        }
        self.repository.check()
    }

    /// Starts the run. A killed hub may have recorded it without a reply; then the name is taken.
    fn start(&self, args: &[&str]) -> Result<()> {
        match self.adj(args) {
            Err(error) if error.to_string().contains("is taken") => self.view().map(drop),
            started => started.map(drop),
        }
    }

    fn view(&self) -> Result<Value> {
        let text = self.adj(&["show", &self.name, "--json"])?;
        Ok(serde_json::from_str::<Value>(&text)?["data"].take())
    }

    /// Runs `adj`, which must succeed even if processes are killed.
    fn adj(&self, args: &[&str]) -> Result<String> {
        let start = Instant::now();
        loop {
            let Output {
                status,
                stdout,
                stderr,
            } = self.lab.output(args)?;
            if status.success() {
                return Ok(String::from_utf8_lossy(&stdout).into_owned());
            }
            // Exit code 6: the hub was killed while it started.
            if status.code() != Some(6) || lock(self.ledger).undisturbed(start) > RUN_LIMIT {
                let args = args
                    .iter()
                    .filter(|arg| !arg.contains('\n'))
                    .collect::<Vec<_>>();
                return Err(format!(
                    "adj {args:?}: {status}: {}",
                    String::from_utf8_lossy(&stderr)
                )
                .into());
            }
        }
    }
}

/// A user's repository.
struct Repository {
    dir: PathBuf,
}

impl Repository {
    fn new(dir: PathBuf) -> Result<Self> {
        // The agent creates no directories.
        std::fs::create_dir_all(dir.join("new"))?;
        std::fs::write(dir.join("new/file.txt"), "text\n")?;
        let repository = Self { dir };
        repository.git(&["init", "-q", "-b", "main"])?;
        repository.git(&["config", "user.name", "user"])?;
        repository.git(&["config", "user.email", "user@example.com"])?;
        for n in 0..20 {
            std::fs::write(repository.dir.join(format!("file-{n}.txt")), "text\n")?;
        }
        repository.commit(MINE.0, "committed\n")?;
        std::fs::write(repository.dir.join(MINE.0), MINE.1)?;
        Ok(repository)
    }

    /// Commits a file. The first commit contains all other files, too.
    fn commit(&self, file: &str, text: &str) -> Result<()> {
        std::fs::write(self.dir.join(file), text)?;
        self.git(&[
            "add",
            if self.git(&["rev-parse", "HEAD"]).is_ok() {
                file
            } else {
                "."
            },
        ])?;
        self.git(&["commit", "-qm", file])?;
        Ok(())
    }

    /// Checks that the work tree differs from the commit only by the user's change.
    fn check(&self) -> Result<()> {
        let status = self.git(&["status", "--porcelain"])?;
        let mine = std::fs::read_to_string(self.dir.join(MINE.0))?;
        if status != format!(" M {}", MINE.0) || mine != MINE.1 {
            return Err(format!("git status: {status:?}; {} is {mine:?}", MINE.0).into());
        }
        if self.dir.join(".git/index.lock").exists() {
            return Err("the index is still locked".into());
        }
        self.git(&["fsck", "--connectivity-only"]).map(drop)
    }

    /// Runs git, and returns its output without the last line end.
    fn git(&self, args: &[&str]) -> Result<String> {
        let home = self.dir.parent().unwrap_or(&self.dir);
        let output = Command::new("git")
            .args(args)
            .current_dir(&self.dir)
            .env("HOME", home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()?;
        if !output.status.success() {
            return Err(
                format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr)).into(),
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end_matches('\n')
            .to_owned())
    }
}
