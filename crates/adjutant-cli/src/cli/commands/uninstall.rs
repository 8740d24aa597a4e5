//! `adj uninstall`: shows what is installed, and removes the entries and skills of clients, with
//! `--home` also the home. The program itself stays: the package manager that installed it removes
//! it.

use super::doctor::size_of;
use super::install::disconnect;
use super::stop::{Stopped, stop_hub};
use crate::cli::args::UninstallArgs;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::cli::prompt::ask;
use crate::cli::style::Style;
use crate::config::{Config, Home};
use crate::integrations::{
    CLIENTS, Change, Installation, McpClient, OwnProgram, Scope, SkillChange, completion_lines,
    file_of, has_entry, plan_skill_undo, plan_undo,
};
use crate::process::Lock;
use crate::text;
use crate::view::{ErrorView, GetHub, HubView, codes};
use adjutant_core::units::size;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

/// Most files that adj did not make in a list.
const OTHERS_SHOWN: usize = 10;

/// What is installed.
struct Found {
    clients: Vec<FoundClient>,
    completions: Vec<(PathBuf, usize)>,
    /// `None`: there is no home.
    home: Option<FoundHome>,
    /// The home exists and cannot be used.
    home_problem: Option<ErrorView>,
    config: Option<PathBuf>,
    program: OwnProgram,
    exe: PathBuf,
    installation: Installation,
}

struct FoundClient {
    client: &'static McpClient,
    entry: Option<PathBuf>,
    skill: Option<PathBuf>,
    /// Why something stays.
    kept: Vec<String>,
}

struct FoundHome {
    bytes: u64,
    workspaces: usize,
    live_runs: u64,
    queued_runs: u64,
    /// What Adjutant has not made. It stays.
    others: Vec<PathBuf>,
}

/// Removes what `adj install` has added, and with `--home` the home.
pub(crate) async fn uninstall(args: &UninstallArgs, cx: &Context) -> CommandResult {
    let found = find(cx).await?;
    let out = &cx.out;
    if !out.json {
        print(&found, args, cx)?;
    }
    let busy = found
        .home
        .as_ref()
        .map_or(0, |home| home.live_runs + home.queued_runs);
    if args.dry_run && busy > 0 {
        out.print_message(&format!(
            "{} live or queued: nothing is removed before they have ended",
            text::count(busy, "run is", "runs are")
        ))?;
    } else {
        refuse_busy(busy, "nothing was removed")?;
    }
    if let (Some(problem), true) = (&found.home_problem, args.home) {
        return Err(problem.clone().into());
    }
    let clients: Vec<&McpClient> = found
        .clients
        .iter()
        .filter(|one| one.is_removable())
        .map(|one| one.client)
        .collect();
    let removes_home = args.home && found.home.is_some();
    let mut errors = Vec::new();
    let is_needed = !clients.is_empty() || removes_home;
    let is_agreed =
        is_needed && !args.dry_run && (args.yes || agreed(clients.len(), removes_home, out)?);
    if is_agreed {
        if removes_home && !cx.home.is_partly_removed() {
            // Runs can have been started while the question was on the screen.
            let hub = cx.hub.call(&GetHub {}).await?;
            refuse_busy(hub.live_runs + hub.queued_runs, "nothing was removed")?;
        }
        errors = disconnect(&clients, &found.program, out)?;
        if removes_home && errors.is_empty() {
            let others = remove_home(&cx.home).await?;
            if !out.json {
                let what = if others.is_empty() {
                    ""
                } else {
                    ", except the files that adj did not make"
                };
                let home = text::line(&cx.home.dir.display().to_string());
                out.print_line(&format!(
                    "{} removed {home}{what}",
                    out.paint.apply(Style::Good, "✓")
                ))?;
            }
        } else if removes_home && !out.json {
            out.print_message("the home stays, because a client could not be disconnected")?;
        }
    }
    let exit = errors
        .first()
        .map_or(Exit::Done, |error| Exit::of(&error.code));
    if out.json {
        out.print_json(&found.to_json(&cx.home, is_agreed, removes_home, &errors))?;
    } else if !is_needed {
        out.print_message("nothing to remove")?;
    } else if !is_agreed && !args.dry_run {
        out.print_message("nothing changed")?;
        return Ok(exit);
    }
    out.suggest(&format!(
        "{}   (removes the program)",
        found.installation.removal(&found.exe)
    ))?;
    Ok(exit)
}

/// Refuses to remove anything while there are runs.
fn refuse_busy(runs: u64, what_stays: &str) -> Result<(), Failure> {
    if runs == 0 {
        return Ok(());
    }
    let runs = text::count(runs, "run is", "runs are");
    Err(fail_hint(
        codes::CONFLICT,
        format!("{runs} live or queued; {what_stays}"),
        "adj cancel --all, then: adj uninstall",
    ))
}

async fn find(cx: &Context) -> Result<Found, Failure> {
    let program = OwnProgram::find().map_err(|error| {
        fail(
            cli_codes::IO,
            format!("cannot find the path of this program: {error}"),
        )
    })?;
    let exe = program
        .exe
        .canonicalize()
        .unwrap_or_else(|_| program.exe.clone());
    let config = Config::path(&cx.home);
    let (home, home_problem) = match find_home(cx).await {
        Ok(home) => (home, None),
        Err(problem) => (None, Some(problem)),
    };
    Ok(Found {
        clients: find_clients(),
        completions: completion_lines(),
        home,
        home_problem,
        config: config.exists().then_some(config),
        program,
        installation: Installation::of(&exe),
        exe,
    })
}

/// Returns the clients that have something of Adjutant. A skill that clients share is that of the
/// first, or of the first with an entry.
fn find_clients() -> Vec<FoundClient> {
    let connected: Vec<&McpClient> = CLIENTS
        .iter()
        .filter(|client| is_connected(client))
        .collect();
    let mut found: Vec<FoundClient> = CLIENTS
        .iter()
        .map(|client| find_client(client, &connected))
        .collect();
    found.sort_by_key(|one| one.entry.is_none());
    let mut seen = HashSet::new();
    for one in &mut found {
        one.skill = one
            .skill
            .take()
            .filter(|file| seen.insert(file.display().to_string()));
        one.kept.retain(|why| seen.insert(why.clone()));
    }
    found.retain(|one| one.is_removable() || !one.kept.is_empty());
    found
}

fn is_connected(client: &'static McpClient) -> bool {
    plan_undo(client, &Scope::User).is_ok_and(|plan| plan.change.is_change())
}

/// Finds what a client has. `connected`: the clients that are disconnected together with it.
fn find_client(client: &'static McpClient, connected: &[&McpClient]) -> FoundClient {
    let mut found = FoundClient {
        client,
        entry: None,
        skill: None,
        kept: Vec::new(),
    };
    match plan_undo(client, &Scope::User) {
        Ok(plan) if plan.change.is_change() => found.entry = Some(plan.file.path),
        Ok(plan) if plan.change == Change::Keep => {
            found.kept.push(format!(
                "{} has an entry that adj install did not write as it is: remove it by hand",
                plan.file.path.display()
            ));
        }
        Ok(plan) if has_entry(client, &Scope::User) => {
            found.kept.push(format!(
                "{} has an entry under another name: remove it by hand",
                plan.file.path.display()
            ));
        }
        // A file that cannot be read matters only if Adjutant can have written it.
        Err(error) if file_of(client, &Scope::User).is_some_and(|file| file.exists()) => {
            // Its skill stays with its entry.
            found.kept.push(error.to_string());
            return found;
        }
        Ok(_) | Err(_) => {}
    }
    match plan_skill_undo(client, &Scope::User, connected) {
        Ok(Some(plan)) if plan.change == SkillChange::Remove => found.skill = Some(plan.file.path),
        Ok(Some(plan)) if plan.change == SkillChange::KeepForeign => {
            found.kept.push(format!(
                "{} was edited, or adj did not write it",
                plan.file.path.display()
            ));
        }
        Ok(Some(plan)) => {
            if let SkillChange::KeepFor(other) = plan.change {
                found
                    .kept
                    .push(format!("{} is used by {other}", plan.file.path.display()));
            }
        }
        Ok(None) => {}
        Err(error) => found.kept.push(error.to_string()),
    }
    found
}

/// Asks the hub for live runs, and starts it if necessary: runs can be live without one.
async fn find_home(cx: &Context) -> Result<Option<FoundHome>, ErrorView> {
    let is_partly_removed = cx.home.is_partly_removed();
    if !cx.home.is_used() && !is_partly_removed {
        return Ok(None);
    }
    let others = cx.home.others();
    let unreadable = |error: std::io::Error| ErrorView {
        code: cli_codes::IO.to_owned(),
        message: format!("{}: {error}", cx.home.dir.display()),
        hint: None,
    };
    let others = others.map_err(unreadable)?;
    let (live_runs, queued_runs) = if is_partly_removed {
        (0, 0)
    } else {
        let hub = cx.hub.call(&GetHub {}).await?;
        (hub.live_runs, hub.queued_runs)
    };
    let workspaces = match std::fs::read_dir(cx.home.workspaces_dir()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        entries => entries
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .map_err(unreadable)?,
    };
    Ok(Some(FoundHome {
        bytes: size_of(&cx.home.dir),
        workspaces: workspaces
            .iter()
            .filter(|entry| entry.path().is_dir())
            .count(),
        live_runs,
        queued_runs,
        others,
    }))
}

/// Stops the hub and removes the home. The lock keeps another hub from starting in it meanwhile.
/// Returns what stays.
async fn remove_home(home: &Home) -> Result<Vec<PathBuf>, Failure> {
    if let Stopped::Replied(HubView {
        live_runs,
        queued_runs,
        ..
    }) = stop_hub(home).await?
    {
        refuse_busy(live_runs + queued_runs, "the home stays")?;
    }
    let failed =
        |error: std::io::Error| fail(cli_codes::IO, format!("{}: {error}", home.dir.display()));
    let Some(_lock) = Lock::try_take(&home.dir, &home.hub_lock()).map_err(failed)? else {
        return Err(fail_hint(
            codes::CONFLICT,
            "another command has started the hub again; the home stays",
            "adj uninstall --home",
        ));
    };
    home.remove_own().map_err(failed)
}

fn agreed(clients: usize, removes_home: bool, out: &Out) -> Result<bool, Failure> {
    let clients = (clients > 0).then(|| {
        format!(
            "disconnect {}",
            text::count(clients as u64, "client", "clients")
        )
    });
    let home = removes_home.then(|| "remove the home with all runs and logs".to_owned());
    let what: Vec<String> = clients.into_iter().chain(home).collect();
    let what = what.join(" and ");
    if !out.interactive {
        return Err(fail_hint(
            cli_codes::USAGE,
            format!("this would {what}"),
            "confirm with --yes, or preview with --dry-run",
        ));
    }
    let mut letters = what.chars();
    let question = letters
        .next()
        .map(|first| format!("{}{}?", first.to_uppercase(), letters.as_str()))
        .unwrap_or_default();
    let answer = ask(&format!("{question} [y/N] "))?;
    Ok(answer.is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes")))
}

fn print(found: &Found, args: &UninstallArgs, cx: &Context) -> Result<(), Failure> {
    let out = &cx.out;
    let title = |title: &str| out.print_line(&out.paint.apply(Style::Strong, title));
    let row = |text: &str| out.print_line(&format!("  {}", text::line(text)));
    title("Clients")?;
    if found.clients.is_empty() {
        row("none is connected")?;
    }
    for one in &found.clients {
        for file in one.entry.iter().chain(&one.skill) {
            row(&format!("{}: {}", one.client.name, file.display()))?;
        }
        for kept in &one.kept {
            row(&format!("{}: {kept} (kept)", one.client.name))?;
        }
    }
    title("Home")?;
    let dir = cx.home.dir.display();
    match (&found.home, &found.home_problem) {
        (None, Some(problem)) => row(&format!("{} (kept)", problem.message))?,
        (None, None) => row(&format!("{dir} does not exist"))?,
        (Some(home), _) => {
            let kept = if args.home {
                ""
            } else {
                "; kept without --home"
            };
            row(&format!(
                "{dir}: {}, {}{kept}",
                size::text(home.bytes),
                text::count(home.live_runs, "live run", "live runs")
            ))?;
            if home.workspaces > 0 {
                let workspaces = text::count(home.workspaces as u64, "workspace", "workspaces");
                row(&format!(
                    "it has {workspaces} of isolated runs; work that is not merged is lost with the home"
                ))?;
            }
        }
    }
    let others = found.home.iter().flat_map(|home| &home.others);
    let files: BTreeSet<&PathBuf> = others.chain(&found.config).collect();
    if !files.is_empty() || !found.completions.is_empty() {
        title("Kept; remove them by hand")?;
        for file in files.iter().take(OTHERS_SHOWN) {
            row(&file.display().to_string())?;
        }
        if files.len() > OTHERS_SHOWN {
            row(&format!(
                "and {} more files in the home that adj did not make",
                files.len() - OTHERS_SHOWN
            ))?;
        }
        for (file, line) in &found.completions {
            row(&format!("{}, line {line}: completion", file.display()))?;
        }
    }
    title("Program")?;
    row(&format!(
        "{}, {}",
        found.exe.display(),
        found.installation.description()
    ))
}

impl FoundClient {
    fn is_removable(&self) -> bool {
        self.entry.is_some() || self.skill.is_some()
    }
}

impl Found {
    fn to_json(
        &self,
        home: &Home,
        is_done: bool,
        removes_home: bool,
        errors: &[ErrorView],
    ) -> Value {
        let client = |one: &FoundClient| json!({ "client": one.client.id, "name": one.client.name, "file": one.entry, "skill": one.skill, "kept": one.kept });
        let found_home = self.home.as_ref().map(|found| {
            json!({
                "path": home.dir,
                "bytes": found.bytes,
                "workspaces": found.workspaces,
                "live_runs": found.live_runs,
                "queued_runs": found.queued_runs,
                "others": found.others,
                "removed": is_done && removes_home && errors.is_empty(),
            })
        });
        json!({
            "clients": self.clients.iter().map(client).collect::<Vec<_>>(),
            "home": found_home,
            "config": self.config,
            "completions": self.completions.iter().map(|(file, line)| json!({ "file": file, "line": line })).collect::<Vec<_>>(),
            "program": { "path": self.exe, "installed_by": self.installation.word(), "remove": self.installation.removal(&self.exe) },
            "home_problem": self.home_problem,
            "removed": is_done && errors.is_empty(),
            "errors": errors,
        })
    }
}
