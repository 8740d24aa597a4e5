//! `adj doctor`: checks the installation and suggests fixes.

mod check;
mod clients;
mod hub;
mod launchers;

use super::install::{install, version_of};
use crate::cli::args::{DoctorArgs, InstallArgs};
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail_hint};
use crate::cli::problem_list::problem_list;
use crate::cli::prompt::ask;
use crate::cli::style::Style;
use crate::config::{ConfigError, FileSystem, Home, HomeError};
use crate::hub_client::{VERSION, is_older};
use crate::integrations::{OwnProgram, on_path};
use crate::process::containment::{
    landlock_available, mount_fence_available, pid_namespace_permitted,
};
use crate::process::foreground;
use crate::text;
use adjutant_core::units::size;
use check::{Check, Finding, broken, good, note};
use std::ffi::OsStr;
use std::io;
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
/// The oldest git that can merge the changes of isolated runs.
const GIT_VERSION_MIN: (u32, u32) = (2, 38);
const GIT_LIMIT: Duration = Duration::from_secs(5);

/// Runs all checks; fails if something is broken. With `--fix`, it repairs what it can and checks
/// again.
pub(crate) async fn doctor(args: &DoctorArgs, cx: &Context) -> CommandResult {
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
    checks.extend(hub::check(cx).await);
    checks.extend(hub::policies(cx).await);
    checks.extend(clients::check());
    checks.push(containment());
    checks.push(fence());
    checks.push(git().await);
    checks
}

/// Runs the checks that need no home.
pub(crate) async fn check_without_home(problem: &HomeError, out: &Out) -> CommandResult {
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
    match FileSystem::of(&home.dir) {
        Ok(FileSystem::Plan9) => note(
            "file system",
            "the home is on 9p; locks are reliable only if its disk is on this machine",
            LOCAL_DISK,
        ),
        Ok(FileSystem::Network(name) | FileSystem::Memory(name) | FileSystem::Local(name)) => {
            good("file system", format!("local ({name})"))
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
                size::text(free),
                size::text(size_of(&home.logs_dir()))
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

/// Returns the size of the files in a directory, in bytes. Files that disappear meanwhile do not
/// count.
pub(crate) fn size_of(dir: &Path) -> u64 {
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

fn containment() -> Check {
    match pid_namespace_permitted() {
        Ok(true) => good(
            "containment",
            "pid_namespace: the kernel ends all processes of a run at once",
        ),
        Ok(false) => good(
            "containment",
            "subreaper: all processes of a run are found and ended (a PID namespace needs CAP_SYS_ADMIN)",
        ),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => broken(
            "containment",
            error.to_string(),
            "to run agents on another machine, see adj runner --help",
        ),
        Err(error) => note(
            "containment",
            format!("unknown: {error}"),
            "mount /proc; until then, processes that runs leave behind are only reported",
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
