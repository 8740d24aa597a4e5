//! The lanes that race saves and kill the hub.

use super::Found;
use super::site::{FILES, Site};
use crate::lab::Result;
use crate::random::Random;
use adjutant_os::failpoint;
use adjutant_os::process::lock::holder_pid;
use rustix::process::{Signal, kill_process};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// Moments at which the program that replaces a file saves it, as often as the user would.
const MOMENTS: [&str; 4] = ["looked", "exchanged", "checked", "swapping"];
/// The longest wait before a save or a kill, in milliseconds. A command takes about as long.
const DELAY_MS_MAX: u64 = 400;

/// The change of a tree in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Undo,
    Merge,
    Squash,
    Discard,
}

impl Change {
    fn args(self, run: &str) -> Vec<String> {
        let args: &[&str] = match self {
            Self::Undo => &["undo", run, "--force"],
            Self::Merge => &["merge", run],
            Self::Squash => &["merge", run, "--squash"],
            Self::Discard => &["discard", run],
        };
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }
}

/// Races saves against undos and merges: half of them at random, half at the moments of replacing a
/// file.
pub fn races(adj: &Path, count: u64, random: &mut Random, planted: bool) -> Result<Found> {
    let mut site = site(adj, planted)?;
    let mut found = Found::default();
    let (mut saves, mut landed) = (0, 0);
    for n in 0.. {
        if saves >= count || (planted && !found.problems.is_empty()) {
            break;
        }
        let change =
            [Change::Undo, Change::Merge, Change::Squash][usize::try_from(random.below(3))?];
        let run = format!("race-{n}");
        site.work(&run, change != Change::Undo)?;
        let is_armed = random.below(2) == 0;
        if is_armed {
            for moment in MOMENTS.iter().take(1 + usize::try_from(random.below(2))?) {
                site.arm(
                    moment,
                    if random.below(2) == 0 {
                        "rename"
                    } else {
                        "write"
                    },
                )?;
                saves += 1;
            }
        }
        let done = beside(&mut site, &change.args(&run), |site| {
            for _ in 0..if is_armed { 0 } else { 1 + random.below(3) } {
                std::thread::sleep(Duration::from_millis(random.below(DELAY_MS_MAX)));
                let repository = site.repository.clone();
                site.save(&repository, &format!("f{}", random.below(FILES)), random)?;
                saves += 1;
            }
            Ok(())
        })?;
        let was_used = site.disarm()?;
        landed += u64::from(is_armed && was_used);
        check_end(&mut found, &site, change, &done, &run)?;
        site.commit_all()?;
    }
    end(&mut found, &site)?;
    found.done = format!("{saves} saves raced, of which {landed} rounds at every armed moment");
    Ok(found)
}

/// Kills the hub at random and at every failpoint of the changes, while the user saves.
pub fn kills(adj: &Path, count: u64, random: &mut Random, planted: bool) -> Result<Found> {
    let mut site = site(adj, planted)?;
    let mut found = Found::default();
    let points: Vec<&str> = failpoint::NAMES
        .iter()
        .copied()
        .filter(|name| is_of_changes(name))
        .collect();
    let (mut killed, mut at_points) = (0, 0);
    let limit = count.saturating_mul(4).saturating_add(100);
    for n in 0..limit {
        if killed >= count || (planted && !found.problems.is_empty()) {
            break;
        }
        let point = points[usize::try_from(n)? % points.len()];
        let change = of_point(point, random);
        let run = format!("kill-{n}");
        let workspace = site.work(&run, change != Change::Undo)?;
        let is_at_point = random.below(2) == 0;
        // The user saves at random, or at this moment: the later of two saves of one file would
        // replace the earlier one.
        let mut saves_at_moment = false;
        if is_at_point {
            site.arm_kill(point)?;
            saves_at_moment = random.below(2) == 0 && point.starts_with("replace.");
        }
        if saves_at_moment {
            site.arm(
                "looked",
                if random.below(2) == 0 {
                    "rename"
                } else {
                    "write"
                },
            )?;
        }
        if let Some(workspace) = workspace.as_ref().filter(|_| change == Change::Discard) {
            // The snapshot of the discard has it.
            site.save(workspace, "f0", random)?;
        }
        let mut hits = 0;
        let done = beside(&mut site, &change.args(&run), |site| {
            for _ in 0..1 + random.below(2) {
                std::thread::sleep(Duration::from_millis(random.below(DELAY_MS_MAX)));
                if random.below(2) == 0 && !saves_at_moment {
                    let repository = site.repository.clone();
                    site.save(&repository, &format!("f{}", random.below(FILES)), random)?;
                }
                if !is_at_point
                    && let Some(hub) = holder_pid(&site.lab.home.dir, &site.lab.home.hub_lock())
                        .ok()
                        .flatten()
                {
                    hits += u64::from(kill_process(hub, Signal::KILL).is_ok());
                }
            }
            Ok(())
        })?;
        let reached = is_at_point && !site.scripts.join(format!("{point}.kill")).exists();
        killed += hits + u64::from(reached);
        at_points += u64::from(reached);
        site.disarm()?;
        site.lab.run(&["ps"])?;
        check_end(&mut found, &site, change, &done, &run)?;
        site.commit_all()?;
    }
    if killed < count && !planted {
        found
            .problems
            .push(format!("only {killed} of {count} kills in {limit} rounds"));
    }
    end(&mut found, &site)?;
    found.done = format!("{killed} kills, {at_points} of them at failpoints");
    Ok(found)
}

fn site(adj: &Path, planted: bool) -> Result<Site> {
    let site = Site::new(&std::env::temp_dir(), adj, None)?;
    if planted {
        std::fs::write(site.scripts.join("unchecked"), "")?;
    }
    Ok(site)
}

/// Runs a command of `adj` while the user works.
fn beside(
    site: &mut Site,
    args: &[String],
    user: impl FnOnce(&mut Site) -> Result<()>,
) -> Result<Output> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let command = site
        .lab
        .command(&args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let worked = user(site);
    let output = command.wait_with_output()?;
    worked.map(|()| output)
}

/// Checks the tree after a round. A command that left files alone has exit code 7, one that could
/// not reach a hub 6.
fn check_end(
    found: &mut Found,
    site: &Site,
    change: Change,
    done: &Output,
    run: &str,
) -> Result<()> {
    let said = || {
        format!(
            "{change:?} {run}: {}: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr).trim_end()
        )
    };
    for missing in site.missing()? {
        found.problems.push(format!(
            "{missing} is in neither the tree nor a commit: {}",
            said()
        ));
    }
    // An undo leaves the tree as it was before the run, which is the commit.
    let has_user_saved = !site.saved.is_empty() || !done.status.success() && change == Change::Undo;
    for left in site.leftovers(has_user_saved)? {
        found.problems.push(format!("{left}: {}", said()));
    }
    if !matches!(done.status.code(), Some(0 | 6 | 7)) {
        found.problems.push(said());
    }
    Ok(())
}

/// Stops the hub, which removes its scratch files meanwhile, and looks for panics.
fn end(found: &mut Found, site: &Site) -> Result<()> {
    site.lab.run(&["stop"])?;
    found.problems.extend(site.lab.panics());
    Ok(())
}

/// Returns whether a failpoint is reached by changes of the user's tree.
fn is_of_changes(point: &str) -> bool {
    ["merge.", "undo.", "discard.", "replace."]
        .iter()
        .any(|beginning| point.starts_with(beginning))
}

/// Draws a change that reaches a failpoint.
fn of_point(point: &str, random: &mut Random) -> Change {
    let of_merge = if random.below(2) == 0 {
        Change::Merge
    } else {
        Change::Squash
    };
    match point.split('.').next() {
        Some("merge") => of_merge,
        Some("discard") => Change::Discard,
        Some("undo") => Change::Undo,
        _ if random.below(2) == 0 => of_merge,
        _ => Change::Undo,
    }
}
