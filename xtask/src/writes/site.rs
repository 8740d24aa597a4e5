//! A home and a user's repository, the user's saves, and what must hold after a change of the tree.

use crate::lab::{Lab, Result};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CONFIG: &str = "[agents.echo]\nharness = \"echo\"\ngrace = \"1s\"\n";
/// Number of files that each run changes.
pub const FILES: u64 = 8;

/// A home whose hub takes its orders for failpoints from a directory.
pub struct Site {
    pub lab: Lab,
    pub repository: PathBuf,
    /// The directory of the failpoint `window`.
    pub scripts: PathBuf,
    saves: u64,
    /// The text that the user has saved last in each file.
    pub saved: BTreeMap<String, String>,
}

impl Site {
    pub fn new(parent: &Path, adj: &Path, failpoint: Option<&str>) -> Result<Self> {
        let mut lab = Lab::new_in(parent, adj, CONFIG)?;
        let scripts = lab.dir.path().join("scripts");
        fs::create_dir(&scripts)?;
        let value =
            failpoint.map_or_else(|| format!("window={}", scripts.display()), str::to_owned);
        lab.env = vec![(adjutant_os::failpoint::VARIABLE.to_owned(), value)];
        let repository = lab.dir.path().join("repository");
        fs::create_dir(&repository)?;
        let site = Self {
            lab,
            repository,
            scripts,
            saves: 0,
            saved: BTreeMap::new(),
        };
        site.git(&["init", "-q", "-b", "main"])?;
        site.git(&["config", "user.name", "user"])?;
        site.git(&["config", "user.email", "user@example.com"])?;
        for n in 0..FILES {
            fs::write(site.repository.join(format!("f{n}")), "text\n")?;
        }
        site.git(&["add", "."])?;
        site.git(&["commit", "-qm", "files"])?;
        Ok(site)
    }

    pub fn git(&self, args: &[&str]) -> Result<String> {
        let output = self.git_output(args)?;
        if !output.status.success() {
            return Err(
                format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr)).into(),
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end_matches('\n')
            .to_owned())
    }

    fn git_output(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new("git");
        command
            .args(args)
            .current_dir(&self.repository)
            .env("HOME", self.lab.dir.path())
            .env("GIT_CONFIG_NOSYSTEM", "1");
        Ok(command.output()?)
    }

    /// Runs a scripted agent to its end: it changes all files, and creates one. Returns the run's
    /// workspace, if it has one.
    pub fn work(&self, run: &str, is_isolated: bool) -> Result<Option<PathBuf>> {
        let mut script: String = (0..FILES).map(|n| format!("write f{n} {run}\n")).collect();
        script.push_str(&format!("write new-{run} {run}\ndone fine\n"));
        let dir = self.repository.display().to_string();
        let mut args = vec!["run", "-d", "-a", "echo", "-n", run, "-C", &dir];
        if is_isolated {
            args.push("--clone");
        }
        args.push(&script);
        self.lab.run(&args)?;
        self.lab.run(&["wait", run, "--timeout", "60s"])?;
        let view: serde_json::Value =
            serde_json::from_str(&self.lab.run(&["--json", "show", run])?)?;
        Ok(view["data"]["workspace"]["path"]
            .as_str()
            .map(PathBuf::from))
    }

    /// Returns a text that no file has had.
    pub fn next_text(&mut self) -> String {
        self.saves += 1;
        format!("save {}", self.saves)
    }

    /// Saves a file as an editor does: by a rename, or in place.
    pub fn save(&mut self, dir: &Path, file: &str, random: &mut Random) -> Result<()> {
        let (text, path) = (self.next_text(), dir.join(file));
        if random.below(2) == 0 {
            let new = dir.join(format!("{file}.swp"));
            fs::write(&new, format!("{text}\n"))?;
            fs::rename(&new, &path)?;
        } else {
            // A program that truncates and writes without a pause. What it has written counts once
            // it has closed the file.
            let mut open = fs::File::create(&path)?;
            open.write_all(format!("{text}\n").as_bytes())?;
        }
        self.saved.insert(path.display().to_string(), text);
        Ok(())
    }

    /// Arms a moment, at which the process itself saves the file that it is replacing.
    pub fn arm(&mut self, moment: &str, kind: &str) -> Result<()> {
        let text = self.next_text();
        let script = self.scripts.join(format!("{moment}.{kind}"));
        fs::write(&script, format!("{text}\n"))?;
        self.saved.insert(script.display().to_string(), text);
        Ok(())
    }

    pub fn arm_kill(&self, point: &str) -> Result<()> {
        Ok(fs::write(self.scripts.join(format!("{point}.kill")), "")?)
    }

    /// Removes what is still armed, and returns whether nothing was.
    pub fn disarm(&mut self) -> Result<bool> {
        let mut all_used = true;
        for entry in fs::read_dir(&self.scripts)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            if name.ends_with(".kill") || name.ends_with(".rename") || name.ends_with(".write") {
                fs::remove_file(&path)?;
                self.saved.remove(&path.display().to_string());
                all_used = false;
            }
        }
        Ok(all_used)
    }

    /// Returns the saves that are neither in the tree, nor where the user saved them, nor in any
    /// commit.
    pub fn missing(&self) -> Result<Vec<String>> {
        let mut there = BTreeSet::new();
        for entry in fs::read_dir(&self.repository)? {
            let path = entry?.path();
            if path.is_file() {
                there.insert(
                    String::from_utf8_lossy(&fs::read(&path)?)
                        .trim_end()
                        .to_owned(),
                );
            }
        }
        // A workspace is still there if its discard was never begun.
        let is_where_it_was_saved = |file: &str, text: &str| {
            fs::read_to_string(file).is_ok_and(|found| found.trim_end() == text)
        };
        let refs = self.git(&["for-each-ref", "--format=%(objectname)"])?;
        let mut missing = Vec::new();
        for (file, text) in self
            .saved
            .iter()
            .filter(|(file, text)| !there.contains(*text) && !is_where_it_was_saved(file, text))
        {
            // git has no option for whole lines. The text has no special characters.
            let line = format!("^{text}$");
            let args: Vec<&str> = ["grep", "-q", "-e", &line]
                .into_iter()
                .chain(refs.lines())
                .collect();
            match self.git_output(&args)?.status.code() {
                Some(0) => {}
                Some(1) => missing.push(format!("{file} with {text:?}")),
                code => return Err(format!("git grep: {code:?}").into()),
            }
        }
        Ok(missing)
    }

    /// Returns what Adjutant has left in the repository, and the files that differ from the commit
    /// although the user has not saved them. `saved`: the names that the user can have saved.
    pub fn leftovers(&self, has_user_saved: bool) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (dir, of_git) in [
            (self.repository.clone(), false),
            (self.repository.join(".git"), true),
        ] {
            for entry in fs::read_dir(dir)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if name.starts_with(".adj-")
                    || (of_git && (name.starts_with("adjutant-") || name == "index.lock"))
                {
                    found.push(format!("{name} is left"));
                }
            }
        }
        if !has_user_saved {
            let status = self.git(&["status", "--porcelain"])?;
            if !status.is_empty() {
                found.push(format!("git status: {status:?}"));
            }
        }
        Ok(found)
    }

    /// Returns the locks of refs, which only git creates.
    pub fn locks_of_git(&self) -> Result<Vec<PathBuf>> {
        let git = self.repository.join(".git");
        let (mut locks, mut dirs) = (vec![git.join("HEAD.lock")], vec![git.join("refs")]);
        locks.retain(|lock| lock.exists());
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir)? {
                let path = entry?.path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path
                    .extension()
                    .is_some_and(|extension| extension == "lock")
                {
                    locks.push(path);
                }
            }
        }
        Ok(locks)
    }

    /// Commits everything, as the user does before the next round.
    pub fn commit_all(&mut self) -> Result<()> {
        self.git(&["add", "-A"])?;
        self.git(&["commit", "-q", "--allow-empty", "-m", "round"])?;
        self.saved.clear();
        Ok(())
    }
}
