//! `adj demo`: runs scripted agents in a temporary home, through the same code as real ones.
//!
//! The outer process makes the home, runs itself inside it, and always removes it at the end. The
//! inner process is an ordinary client. With `--keep`, the home and its open questions stay until
//! `--end`.

mod chat;
mod keep;
mod runner;
mod tasks;

pub(crate) use keep::hint;

use crate::cli::args::DemoArgs;
use crate::cli::commands::stop::stop_hub;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail};
use crate::config::{Home, dispatch_env};
use crate::hub_client::{Client, random_hex};
use crate::process::foreground;
use crate::view::{Cancel, Dispatch, ListRuns, Wait, WaitUntil};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The beginning of the names of the demos' homes.
const HOME_PREFIX: &str = "adj-demo-";
/// How long runs may take to end when the demo is interrupted, in milliseconds.
const CLEAN_UP_WAIT_MS: u64 = 12_000;
/// Maximum number of attempts to remove the home while the last processes release it.
const REMOVALS_MAX: u32 = 20;

/// Runs the demo.
pub(crate) async fn demo(args: &DemoArgs, out: &Out) -> CommandResult {
    if args.within {
        let cx = Context::new(out)?;
        // Runs that answer in a chat work in the directory of the command, and would leave
        // snapshots in the user's repository.
        let dir = &cx.home.dir;
        std::env::set_current_dir(dir)
            .map_err(|e| fail(cli_codes::IO, format!("{}: {e}", dir.display())))?;
        return if args.keep {
            keep::open(&cx).await
        } else {
            runner::run(&cx).await
        };
    }
    if let Some(home) = &args.end {
        return keep::end(home, out).await;
    }
    let home = create_temporary_home()?;
    let is_kept = args.keep;
    let config = home.dir.join("config.toml");
    std::fs::write(&config, chat::CONFIG)
        .map_err(|e| fail(cli_codes::IO, format!("{}: {e}", config.display())))?;
    let env: Vec<(OsString, OsString)> = vec![
        ("ADJ_HOME".into(), home.dir.clone().into()),
        ("ADJ_CONFIG".into(), config.into()),
        ("ADJ_EPHEMERAL".into(), "0".into()),
    ];
    let mut args = vec![OsStr::new("demo"), OsStr::new("--within")];
    if is_kept {
        args.push(OsStr::new("--keep"));
    }
    if out.json {
        args.push(OsStr::new("--json"));
    }
    if !out.interactive {
        args.push(OsStr::new("--no-input"));
    }
    // Ctrl-C reaches the inner process too; this one stays to clean up, also when the terminal is
    // closed or on TERM.
    let taken =
        |kind| signal(kind).map_err(|e| fail(cli_codes::IO, format!("cannot take signals: {e}")));
    let (mut interrupts, mut hangups) = (
        taken(SignalKind::interrupt())?,
        taken(SignalKind::hangup())?,
    );
    let mut terminations = taken(SignalKind::terminate())?;
    let mut inner = Box::pin(foreground::own_attached(&args, &env));
    let ended = loop {
        tokio::select! {
            ended = &mut inner => break Some(ended),
            _ = interrupts.recv() => {}
            _ = hangups.recv() => break None,
            _ = terminations.recv() => break None,
        }
    };
    // Kill the inner process if it still runs: it would start another hub.
    drop(inner);
    if is_kept && matches!(&ended, Some(Ok(status)) if status.success()) {
        return keep::describe(&home, out);
    }
    let cleaned = clean_up(&home).await;
    let Some(ended) = ended else {
        return cleaned.and(Err(Failure::Reported(Exit::Interrupted)));
    };
    let ended = ended.map_err(|e| fail(cli_codes::IO, format!("cannot run the demo: {e}")))?;
    cleaned?;
    match ended.code() {
        Some(0) => {
            out.print_message(&format!(
                "Removed {}. Your own home was not touched.",
                home.dir.display()
            ))?;
            Ok(Exit::Done)
        }
        Some(130) => Err(Failure::Reported(Exit::Interrupted)),
        _ => Err(Failure::Reported(Exit::Failed)),
    }
}

/// Returns the directory of the demos' homes.
fn place() -> Result<PathBuf, Failure> {
    let memory =
        crate::config::requested_memory_dir().map_err(|e| fail(cli_codes::IO, e.to_string()))?;
    Ok(memory.unwrap_or_else(std::env::temp_dir))
}

fn create_temporary_home() -> Result<Home, Failure> {
    let dir = place()?.join(format!("{HOME_PREFIX}{}", random_hex::<4>()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    made.map_err(|e| {
        fail(
            cli_codes::IO,
            format!("cannot make a home for the demo: {}: {e}", dir.display()),
        )
    })?;
    Home::at(&dir).map_err(|e| fail(cli_codes::IO, e.to_string()))
}

/// Cancels live runs, stops the hub, removes the home.
async fn clean_up(home: &Home) -> Result<(), Failure> {
    let hub = Client::running_hub(home);
    let left = match hub.call(&ListRuns::default()).await {
        Ok(left) => Some(left),
        Err(error) => {
            tracing::debug!(%error, "the demo's runs cannot be listed");
            None
        }
    };
    if let Some(left) = left {
        for run in &left.runs {
            if let Err(error) = hub
                .call(&Cancel {
                    run: run.identity.run_id.clone(),
                    reason: Some("the demo is over".to_owned()),
                })
                .await
            {
                tracing::debug!(%error, run = run.identity.name, "not cancelled");
            }
        }
        if !left.runs.is_empty() {
            let runs = left
                .runs
                .iter()
                .map(|run| run.identity.run_id.clone())
                .collect();
            hub.call(&Wait {
                runs,
                until: WaitUntil::All,
                after: None,
                new_reports: false,
                wait_ms: CLEAN_UP_WAIT_MS,
            })
            .await?;
        }
    }
    stop_hub(home).await?;
    let mut tries = 0;
    loop {
        match std::fs::remove_dir_all(&home.dir) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) if tries == REMOVALS_MAX => {
                return Err(fail(
                    cli_codes::IO,
                    format!("cannot remove {}: {e}", home.dir.display()),
                ));
            }
            // An ending guard may still write a last file.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        tries += 1;
    }
}

/// Describes a run of the scripted agent in the demo's home.
fn dispatch(name: &str, prompt: String, cx: &Context) -> Dispatch {
    Dispatch {
        model: None,
        args: Vec::new(),
        set_env: BTreeMap::new(),
        fence: None,
        criteria: None,
        accept: Vec::new(),
        permissions: None,
        isolation: None,
        with_changes: false,
        trust_repo: false,
        no_auto_resume: false,
        pool: None,
        priority: None,
        after: Vec::new(),
        after_failed: None,
        budget: None,
        agent: "echo".to_owned(),
        prompt,
        cwd: cx.home.dir.display().to_string(),
        name: Some(name.to_owned()),
        timeout_s: None,
        env: dispatch_env(),
    }
}
