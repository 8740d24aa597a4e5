//! `adj doctor`: checks the installation and suggests fixes.

mod clients;
mod launchers;

use super::install::{install, version_of};
use crate::cli::age;
use crate::cli::args::{DoctorArgs, InstallArgs};
use crate::cli::context::{Context, now};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail_hint};
use crate::cli::problem_list::problem_list;
use crate::cli::prompt::ask;
use crate::cli::style::Style;
use crate::client::{Client, VERSION, is_older};
use crate::clients::{OwnProgram, on_path};
use crate::config::{ConfigError, Home, HomeError};
use crate::process::containment::{landlock_available, mount_fence_available};
use crate::process::foreground;
use crate::text;
use crate::view::{
    CheckLogStore, ErrorView, GetHub, ListAgents, ListPolicies, ListRuns, LogStoreCheck,
    WebhookView, codes,
};
use serde::Serialize;
use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// With less free space, in bytes, writes may soon fail.
const FREE_BYTES_LOW: u64 = 500 * 1024 * 1024;
const FREE_BYTES_MIN: u64 = 50 * 1024 * 1024;
/// Columns left of a message: the sign and the name of the check.
const NAME_COLUMNS: usize = 15;
/// The narrowest column of texts.
const TEXT_COLUMNS_MIN: usize = 20;
/// The unit in which the kernel counts the blocks of a file.
const BLOCK_BYTES: u64 = 512;
/// The capability that a PID namespace requires.
const CAP_SYS_ADMIN: u32 = 21;
/// The oldest git that can merge the changes of isolated runs.
const GIT_VERSION_MIN: (u32, u32) = (2, 38);
const GIT_LIMIT: Duration = Duration::from_secs(5);
/// Stored times may be this far in the future before the clock counts as wrong, in seconds.
const CLOCK_AHEAD_S_MAX: i64 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Finding {
    Good,
    /// Works, but could be better.
    Note,
    Broken,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    finding: Finding,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    /// The client whose entry `--fix` can update.
    #[serde(rename = "fixable_client", skip_serializing_if = "Option::is_none")]
    client: Option<&'static str>,
}

fn good(name: &'static str, message: impl Into<String>) -> Check {
    Check {
        name,
        finding: Finding::Good,
        message: message.into(),
        fix: None,
        client: None,
    }
}

fn note(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name,
        finding: Finding::Note,
        message: message.into(),
        fix: Some(fix.into()),
        client: None,
    }
}

fn broken(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name,
        finding: Finding::Broken,
        message: message.into(),
        fix: Some(fix.into()),
        client: None,
    }
}

/// Runs all checks; fails if something is broken. With `--fix`, it repairs what it can and checks again.
pub async fn doctor(args: &DoctorArgs, cx: &Context) -> CommandResult {
    let checks = all_checks(cx).await;
    let broken: Vec<String> = checks
        .iter()
        .filter_map(|check| check.client)
        .map(str::to_owned)
        .collect();
    if !args.fix {
        let exit = report(&checks, &cx.out)?;
        if !broken.is_empty() {
            cx.out.suggest("adj doctor --fix")?;
        }
        return Ok(exit);
    }
    if !cx.out.json {
        report(&checks, &cx.out)?;
    }
    if broken.is_empty() {
        cx.out
            .print_message("nothing that adj doctor --fix can repair")?;
    } else if args.yes || agreed(&broken, &cx.out)? {
        install(
            &InstallArgs {
                clients: broken,
                yes: true,
                is_silent: cx.out.json,
                is_repair: true,
                ..InstallArgs::default()
            },
            &cx.out,
        )
        .await?;
        return report(&all_checks(cx).await, &cx.out);
    } else {
        cx.out.print_message("nothing changed")?;
    }
    if cx.out.json {
        report(&checks, &cx.out)
    } else {
        Ok(exit_of(&checks))
    }
}

fn agreed(clients: &[String], out: &Out) -> Result<bool, Failure> {
    if !out.interactive {
        let hint = format!(
            "confirm with --yes, or preview with: adj install --dry-run {}",
            clients.join(" ")
        );
        return Err(fail_hint(
            cli_codes::USAGE,
            format!("this updates the entries of {}", clients.join(", ")),
            hint,
        ));
    }
    let answer = ask(&format!(
        "Update the entries of {}? [y/N] ",
        clients.join(", ")
    ))?;
    Ok(answer.is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes")))
}

async fn all_checks(cx: &Context) -> Vec<Check> {
    let mut checks = vec![
        binary().await,
        home(&cx.home),
        file_system(&cx.home),
        disk(&cx.home),
        config(&cx.home),
    ];
    checks.extend(hub(cx).await);
    checks.extend(policies(cx).await);
    checks.extend(clients::check());
    checks.push(containment());
    checks.push(fence());
    checks.push(git().await);
    checks
}

/// Runs the checks that need no home.
pub async fn check_without_home(problem: &HomeError, out: &Out) -> CommandResult {
    let home = broken(
        "home",
        problem.to_string(),
        "set HOME, or set ADJ_HOME to a directory that you own",
    );
    report(
        &[binary().await, home, containment(), fence(), git().await],
        out,
    )
}

fn exit_of(checks: &[Check]) -> Exit {
    if checks.iter().any(|check| check.finding == Finding::Broken) {
        Exit::Failed
    } else {
        Exit::Done
    }
}

fn report(checks: &[Check], out: &Out) -> CommandResult {
    let is_broken = exit_of(checks) == Exit::Failed;
    if out.json {
        out.print_json(&serde_json::json!({"ok": !is_broken, "checks": checks}))?;
    } else {
        for check in checks {
            let (glyph, style) = match check.finding {
                Finding::Good => ("✓", Style::Good),
                Finding::Note => ("!", Style::Attention),
                Finding::Broken => ("✗", Style::Bad),
            };
            let message = text::line(&check.message);
            let (message, problems) =
                problem_list(&message).unwrap_or_else(|| (message.clone(), Vec::new()));
            let head = format!("{} {:<12} ", out.paint.apply(style, glyph), check.name);
            print_wrapped(&head, NAME_COLUMNS, &message, out)?;
            for problem in problems {
                print_wrapped(
                    &" ".repeat(NAME_COLUMNS + 2),
                    NAME_COLUMNS + 2,
                    problem,
                    out,
                )?;
            }
            if let Some(fix) = &check.fix {
                let head = format!(
                    "{}{} ",
                    " ".repeat(NAME_COLUMNS),
                    out.paint.apply(Style::Dim, "fix:")
                );
                print_wrapped(&head, NAME_COLUMNS + "fix: ".len(), &text::line(fix), out)?;
            }
        }
    }
    Ok(exit_of(checks))
}

/// Prints a text right of a head that takes `indent` columns, wrapped between words.
fn print_wrapped(head: &str, indent: usize, text: &str, out: &Out) -> Result<(), Failure> {
    let columns = out.columns.map_or(usize::MAX, |columns| {
        columns.saturating_sub(indent).max(TEXT_COLUMNS_MIN)
    });
    let lines = text::wrap(text, columns);
    out.print_line(&format!(
        "{head}{}",
        lines.join(&format!("\n{}", " ".repeat(indent)))
    ))
}

async fn binary() -> Check {
    let program = match OwnProgram::find() {
        Ok(program) => program,
        Err(error) => {
            return broken(
                "binary",
                format!("cannot find its own path: {error}"),
                "is /proc mounted?",
            );
        }
    };
    let exe = &program.exe;
    let shown = format!("adj {VERSION} at {}", exe.display());
    if program.is_on_path() {
        return good("binary", shown);
    }
    let Some(other) = &program.on_path else {
        return note(
            "binary",
            format!("{shown}, not on PATH"),
            format!("add {} to PATH, so that agents can find adj", parent(exe)),
        );
    };
    let fix = format!("remove that one, or put {} first in PATH", parent(exe));
    match version_of(other).await {
        Some(version) if is_older(&version, VERSION) => broken(
            "binary",
            format!(
                "{shown}, but PATH finds the older {version} at {}; agents start that one",
                other.display()
            ),
            fix,
        ),
        Some(version) => note(
            "binary",
            format!("{shown}, but PATH finds {version} at {}", other.display()),
            fix,
        ),
        None => note(
            "binary",
            format!("{shown}, but PATH finds {}", other.display()),
            fix,
        ),
    }
}

fn parent(path: &Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

fn home(home: &Home) -> Check {
    let shown = home.dir.display().to_string();
    if let Err(error) = home.ensure()
        && !matches!(error, HomeError::Network { .. })
    {
        return broken(
            "home",
            error.to_string(),
            "set ADJ_HOME to a directory that you own, or repair this one",
        );
    }
    match std::fs::metadata(&home.dir) {
        Ok(meta) if meta.permissions().mode() & 0o077 != 0 => broken(
            "home",
            format!("{shown} is accessible to other users"),
            format!("chmod 700 {shown}"),
        ),
        Ok(meta) if meta.uid() != rustix::process::geteuid().as_raw() => broken(
            "home",
            format!("{shown} belongs to another user"),
            "set ADJ_HOME to a directory that you own",
        ),
        Ok(_) => writable(&home.dir),
        Err(error) => broken(
            "home",
            format!("{shown}: {error}"),
            "set ADJ_HOME to a directory that you own",
        ),
    }
}

fn writable(dir: &Path) -> Check {
    let shown = dir.display().to_string();
    match rustix::fs::access(
        dir,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    ) {
        Ok(()) => good("home", format!("{shown} (private)")),
        Err(error) => broken(
            "home",
            format!("{shown} is not writable: {error}"),
            format!("chmod u+rwx {shown}, or mount it writable"),
        ),
    }
}

/// The file system of virtual machines for a disk of their host, or of another machine.
const PLAN_9: i64 = 0x0102_1997;

/// Local file systems by their magic numbers.
const LOCAL_FILE_SYSTEMS: [(i64, &str); 7] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlay"),
    (0x0102_1994, "tmpfs"),
];

fn local_name(magic: i64) -> String {
    LOCAL_FILE_SYSTEMS
        .iter()
        .find(|(known, _)| *known == magic)
        .map_or_else(
            || format!("type 0x{magic:x}"),
            |(_, name)| (*name).to_owned(),
        )
}

const LOCAL_DISK: &str = "set ADJ_HOME to a directory on a local disk";

fn file_system(home: &Home) -> Check {
    if let Some(name) = home.network_file_system() {
        return broken(
            "file system",
            format!(
                "the home is on a network file system ({name}), where locks are unreliable; no hub starts"
            ),
            LOCAL_DISK,
        );
    }
    match rustix::fs::statfs(&home.dir) {
        Ok(stat) => {
            let magic = stat.f_type & 0xffff_ffff;
            if magic == PLAN_9 {
                return note(
                    "file system",
                    "the home is on 9p; locks are reliable only if its disk is on this machine",
                    LOCAL_DISK,
                );
            }
            good("file system", format!("local ({})", local_name(magic)))
        }
        Err(error) => broken(
            "file system",
            format!("{}: {error}", home.dir.display()),
            LOCAL_DISK,
        ),
    }
}

fn disk(home: &Home) -> Check {
    match rustix::fs::statvfs(&home.dir) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let shown = format!(
                "{} free, logs use {}",
                text::size(free),
                text::size(size_of(&home.logs_dir()))
            );
            let fix = format!(
                "free some space in {}, or run adj clean --older-than 1d",
                home.dir.display()
            );
            match free {
                ..FREE_BYTES_MIN => broken("disk", shown, fix),
                FREE_BYTES_MIN..FREE_BYTES_LOW => note("disk", shown, fix),
                _ => good("disk", shown),
            }
        }
        Err(error) => broken("disk", error.to_string(), "is the home's disk mounted?"),
    }
}

/// Returns the size of the files in a directory, in bytes. Files that disappear meanwhile do not count.
pub fn size_of(dir: &Path) -> u64 {
    let mut left = vec![dir.to_owned()];
    let mut bytes = 0;
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => left.push(entry.path()),
                Ok(meta) => bytes += meta.blocks() * BLOCK_BYTES,
                Err(_) => {}
            }
        }
    }
    bytes
}

fn config(home: &Home) -> Check {
    match crate::config::Config::load(home) {
        Ok(config) if config.exists => good("config", config.path.display().to_string()),
        Ok(config) => good(
            "config",
            format!("defaults ({} does not exist)", config.path.display()),
        ),
        Err(error @ ConfigError::Io { .. }) => {
            let path = crate::config::Config::path(home);
            broken(
                "config",
                error.to_string(),
                format!(
                    "make {} readable; no run can start until then",
                    path.display()
                ),
            )
        }
        Err(error) => {
            let message = error.to_string();
            let lines = if problem_list(&message).is_some() {
                "these lines"
            } else {
                "that line"
            };
            let fix = format!("correct {lines}: adj config edit; the file is ignored until then");
            broken("config", message, fix)
        }
    }
}

/// Checks whether a change of the policies waits for the person. `None`: none does, or the hub cannot be asked, which another check reports.
async fn policies(cx: &Context) -> Option<Check> {
    let change = cx.hub.call(&ListPolicies::default()).await.ok()?.change?;
    Some(note(
        "policies",
        change.summary(),
        "review it with adj policy",
    ))
}

async fn hub(cx: &Context) -> Vec<Check> {
    if let Some(error) = Client::unresponsive_hub(&cx.home).await {
        return vec![broken("hub", error.message, error.hint.unwrap_or_default())];
    }
    let began = std::time::Instant::now();
    let view = match cx.hub.call(&GetHub {}).await {
        Ok(view) => view,
        Err(error) => {
            let fix = fix_of(&error, &cx.home);
            return vec![broken("hub", error.message, fix)];
        }
    };
    let ms = began.elapsed().as_millis();
    let mut checks = vec![if let Some(leader) =
        view.leader.as_ref().filter(|_| view.version == VERSION)
    {
        let at = leader
            .url
            .as_ref()
            .map_or_else(String::new, |url| format!(" at {url}"));
        good(
            "hub",
            format!(
                "OK, {ms} ms (pid {}, standby; the leader is the hub on {}{at})",
                view.pid, leader.name
            ),
        )
    } else if view.version == VERSION && view.live_runs_max == 0 {
        good(
            "hub",
            format!(
                "OK, {ms} ms (pid {}, standby; no leader is known)",
                view.pid
            ),
        )
    } else if view.version == VERSION {
        good(
            "hub",
            format!(
                "OK, {ms} ms (pid {}, {} of at most {}, {} queued{})",
                view.pid,
                text::count(view.live_runs, "live run", "live runs"),
                view.live_runs_max,
                view.queued_runs,
                view.url
                    .as_ref()
                    .map_or_else(String::new, |url| format!(", HTTP at {url}"))
            ),
        )
    } else {
        broken(
            "hub",
            format!("runs version {}, but this is {VERSION}", view.version),
            "adj stop; the next command starts the current version",
        )
    }];
    let engine = if view.store == "PostgreSQL" {
        view.store.clone()
    } else {
        format!("SQLite {}", view.sqlite_version)
    };
    checks.push(match &view.store_problem {
        Some(problem) => broken(
            "store",
            problem.clone(),
            "check the PostgreSQL server; this hub waits for it",
        ),
        None => good("store", format!("OK ({engine})")),
    });
    checks.extend(view.set_back.as_ref().map(|set_back| {
        note("store", set_back.summary(), "compare it with what callers and agents know; a synchronous standby prevents it (docs/postgres.md)")
    }));
    // The hub may have been started with a different configuration than this shell has.
    let config = crate::config::Config::load(&cx.home);
    if let Ok(config) = &config {
        checks.extend(log_store(cx, config).await);
    }
    if let Ok(config) = &config {
        // Only the leader launches runners.
        checks.extend(launchers::check(
            config,
            view.url.is_some() || view.leader.is_some(),
        ));
    }
    let seen_here = config.err().map(|error| error.to_string());
    let unseen = view
        .problems
        .iter()
        .filter(|problem| seen_here.as_ref() != Some(*problem));
    checks.extend(unseen.map(|problem| {
        broken(
            "hub",
            problem.clone(),
            "fix it, or run adj stop: the next hub uses this shell's configuration",
        )
    }));
    checks.extend(view.webhooks.iter().map(webhook));
    match cx
        .hub
        .call(&ListAgents {
            env: crate::config::dispatch_env(),
            ..ListAgents::default()
        })
        .await
    {
        Ok(list) => {
            let (found, missing): (Vec<_>, Vec<_>) =
                list.agents.iter().partition(|agent| agent.found);
            let names: Vec<&str> = found.iter().map(|agent| agent.name.as_str()).collect();
            checks.push(good("agents", names.join(", ")));
            checks.extend(missing.iter().map(|agent| {
                let why = agent.problem.as_deref().unwrap_or("program not found");
                note(
                    "agent",
                    format!("{}: {why}", agent.name),
                    format!("install it, or fix its command in {}", agent.source),
                )
            }));
            let signed_out = found.iter().filter_map(|agent| {
                Some((
                    agent,
                    agent.sign_in.as_ref().filter(|sign_in| !sign_in.found)?,
                ))
            });
            checks.extend(signed_out.map(|(agent, sign_in)| {
                note(
                    "agent",
                    format!("{}: probably not signed in", agent.name),
                    sign_in.how.clone(),
                )
            }));
            checks.extend(list.warnings.iter().map(|warning| {
                note(
                    "config",
                    warning.clone(),
                    "adj config path prints the location of the file",
                )
            }));
        }
        // Reported above.
        Err(_) if !view.problems.is_empty() => checks.push(note(
            "agents",
            "unknown while the configuration has errors",
            "see above",
        )),
        Err(error) => {
            let fix = fix_of(&error, &cx.home);
            checks.push(broken("agents", error.message, fix));
        }
    }
    checks.push(clock(cx, view.clock.as_deref()).await);
    checks
}

/// Has the hub store, list, read and delete an object in the log store.
async fn log_store(cx: &Context, config: &crate::config::Config) -> Option<Check> {
    let wanted = config.log_store.as_ref().map(ToString::to_string);
    let began = std::time::Instant::now();
    let LogStoreCheck { address, problem } = match cx.hub.call(&CheckLogStore {}).await {
        Ok(check) => check,
        // A hub of an earlier version cannot check it.
        Err(error) => {
            return wanted.map(|address| {
                note(
                    "log store",
                    format!("{address}: not checked: {}", error.message),
                    "adj stop, then try again",
                )
            });
        }
    };
    match (address, problem) {
        (None, _) => wanted.map(|address| {
            broken(
                "log store",
                format!("{address} is not used by this hub"),
                "adj stop; the next hub uses it",
            )
        }),
        (Some(address), Some(problem)) => {
            let fix = format!(
                "correct log_store, its credentials or their permissions; logs stay in {} until then",
                cx.home.logs_dir().display()
            );
            Some(broken("log store", format!("{address}: {problem}"), fix))
        }
        (Some(address), None) => Some(good(
            "log store",
            format!("OK, {} ms ({address})", began.elapsed().as_millis()),
        )),
    }
}

/// Returns the fix for a failed call. Hints that lead to this command are replaced.
fn fix_of(error: &ErrorView, home: &Home) -> String {
    let log = home.hub_log();
    match (error.code.as_str(), &error.hint) {
        (codes::UNREACHABLE, _) if !log.exists() => {
            "set ADJ_HOME to a directory that you can write to".to_owned()
        }
        (codes::UNREACHABLE | codes::INTERNAL, _) | (_, None) => {
            format!("see the hub's log: {}", log.display())
        }
        (_, Some(hint)) => hint.clone(),
    }
}

fn webhook(hook: &WebhookView) -> Check {
    let shown = format!("{}: {}", hook.place, hook.deliveries_text());
    let again = if hook.parked > 0 {
        "; then: adj webhooks retry"
    } else {
        ""
    };
    match &hook.problem {
        Some(problem) => note(
            "webhook",
            format!("{shown}; {problem}"),
            format!("check its receiver and [[webhooks]] in the configuration{again}"),
        ),
        None => good("webhook", shown),
    }
}

/// Checks that the wall clock is not behind stored times.
async fn clock(cx: &Context, set_lately: Option<&str>) -> Check {
    // The hub knows by how much, and that deadlines do not follow.
    if let Some(warning) = set_lately {
        return note(
            "clock",
            warning,
            "set the clock, for instance with NTP, and check adj inbox for what became due",
        );
    }
    // Unfinished runs come first, and the newest may be finished.
    let newest = match cx
        .hub
        .call(&ListRuns {
            all: true,
            limit: None,
            before: None,
        })
        .await
    {
        Ok(list) => list
            .runs
            .into_iter()
            .max_by(|a, b| a.created_at.cmp(&b.created_at)),
        Err(error) => {
            return broken(
                "clock",
                error.message,
                "this check needs a working adj ps -a",
            );
        }
    };
    let ahead = newest
        .and_then(|run| age::seconds_since(&run.created_at, now()))
        .map_or(0, |age| -age);
    if ahead > CLOCK_AHEAD_S_MAX {
        return broken(
            "clock",
            format!(
                "the newest run is {} in the future; the clock was set back",
                age::short(ahead)
            ),
            "set the clock, for instance with NTP",
        );
    }
    good("clock", now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn containment() -> Check {
    let hint = "mount /proc; until then, processes that runs leave behind are only reported";
    let status = match std::fs::read_to_string("/proc/self/status") {
        Ok(status) => status,
        Err(error) => {
            return note(
                "containment",
                format!("unknown: cannot read /proc/self/status: {error}"),
                hint,
            );
        }
    };
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    match capabilities {
        Some(bits) if bits >> CAP_SYS_ADMIN & 1 == 1 => good(
            "containment",
            "pid_namespace: the kernel ends all processes of a run at once",
        ),
        Some(_) => good(
            "containment",
            "subreaper: all processes of a run are found and ended (a PID namespace needs CAP_SYS_ADMIN)",
        ),
        None => note(
            "containment",
            "unknown: /proc/self/status does not list the capabilities",
            hint,
        ),
    }
}

/// Checks that a fence can be set up.
fn fence() -> Check {
    let why = match mount_fence_available() {
        Ok(()) => {
            return good(
                "fence",
                "fence = \"workspace\" works here: a mount namespace keeps runs to their workspaces",
            );
        }
        Err(why) => why,
    };
    let less = match landlock_available() {
        Ok(()) => "fence = \"best-effort\" uses Landlock, which enforces less".to_owned(),
        Err(no_rules) => {
            format!("fence = \"best-effort\" starts runs without a fence, because {no_rules}")
        }
    };
    note(
        "fence",
        format!("fence = \"workspace\" refuses to start runs here: {why}; {less}"),
        "it needs Linux 5.12 and user namespaces: see sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces",
    )
}

/// Returns whether a version of git is older than 2.38. An unknown version is not.
fn is_too_old(version: &str) -> bool {
    let numbers = version.strip_prefix("git version ").unwrap_or_default();
    let mut numbers = numbers.split('.').map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < GIT_VERSION_MIN)
}

async fn git() -> Check {
    let missing = || {
        note(
            "git",
            "not found",
            "install git if your agents work in repositories",
        )
    };
    let Some(path) = crate::config::text_variable("PATH").and_then(|path| on_path("git", &path))
    else {
        return missing();
    };
    match foreground::output(&path, &[OsStr::new("--version")], &[], GIT_LIMIT).await {
        Ok(output) if output.status.success() => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if is_too_old(&version) {
                return note(
                    "git",
                    format!("{version}: changes of isolated runs cannot be merged"),
                    "install git 2.38 or newer",
                );
            }
            good("git", version)
        }
        Ok(output) => note(
            "git",
            format!("{} failed: {}", path.display(), output.status),
            "reinstall git",
        ),
        Err(error) => note("git", error.to_string(), "reinstall git"),
    }
}
