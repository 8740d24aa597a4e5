//! `adj demo --keep`: open questions and an approval, for a person to answer.

use super::clean_up;
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Out, fail, fail_hint};
use crate::config::Home;
use crate::hub_client::Client;
use crate::text;
use crate::view::{GetHub, ListRuns, ReadEvents, codes};
use adjutant_core::EventKind;
use adjutant_core::units::duration;
use rustix::process::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The file that marks a kept home, so that nothing else is removed.
const MARK: &str = "demo.kept";
/// How long the runs may take to ask.
const OPEN_LIMIT: Duration = Duration::from_secs(20);
const WAIT_MS: u64 = 20_000;

/// A run's name and its prompt: the task, then its script.
const RUNS: [(&str, &str); 4] = [
    (
        "porter",
        "Port the parser tests\n---\nsay Porting the parser tests.\nprogress 35 lexer.rs\nhang",
    ),
    (
        "limiter",
        "Rate limit /v1/upload\n---\nsay src/limits.rs knows both users and keys.\nask \"Should the limit be per user or per API key?\"\ndone the limit is in place",
    ),
    (
        "chooser",
        "Pick a cache for the sessions\n---\nask \"Which cache?\" [options: in memory|Redis|none]\ndone sessions are cached",
    ),
    (
        "cleaner",
        "Free some disk space\n---\napprove \"Delete the build directory\" [preview: rm -rf target] [risk: low]\ndone cleaned up",
    ),
];
/// The runs that ask something.
const ASKING: usize = 3;

/// Starts the runs in the home that the environment names, and waits until they ask.
pub(super) async fn open(cx: &Context) -> CommandResult {
    for (name, prompt) in RUNS {
        cx.hub
            .call(&super::dispatch(name, prompt.to_owned(), cx))
            .await?;
    }
    let asking = async {
        let (mut after, mut asked) = (0, 0);
        while asked < ASKING {
            let page = cx
                .hub
                .call(&ReadEvents {
                    after,
                    run: None,
                    limit: None,
                    wait_ms: WAIT_MS,
                })
                .await?;
            after = page.cursor;
            asked += page
                .events
                .iter()
                .filter(|event| event.kind == EventKind::RequestAsked)
                .count();
        }
        CommandResult::Ok(Exit::Done)
    };
    match tokio::time::timeout(OPEN_LIMIT, asking).await {
        Ok(asked) => asked,
        Err(_) => Err(fail(
            cli_codes::TIMED_OUT,
            format!(
                "the demo's runs did not ask within {}",
                duration::of(OPEN_LIMIT)
            ),
        )),
    }
}

/// Marks the home as kept, and says what to do with it.
pub(super) fn describe(home: &Home, out: &Out) -> CommandResult {
    let mark = home.dir.join(MARK);
    std::fs::write(&mark, "")
        .map_err(|e| fail(cli_codes::IO, format!("{}: {e}", mark.display())))?;
    let dir = home.dir.display();
    let end = format!("adj demo --end {dir}");
    if out.json {
        out.print_json(&serde_json::json!({"home": home.dir, "end": end}))?;
        return Ok(Exit::Done);
    }
    out.print_line(&format!(
        "{} run in a home of their own; {ASKING} of them wait for you. Answer them:",
        text::count(RUNS.len() as u64, "agent", "agents")
    ))?;
    for command in ["top", "ui", "next"] {
        out.print_line(&format!("  ADJ_HOME={dir} adj {command}"))?;
    }
    out.print_line("End the demo, and remove that home:")?;
    out.print_line(&format!("  {end}"))?;
    Ok(Exit::Done)
}

/// Names the command for the kept demo, if the home of this command has no runs: the person may
/// have meant the demo.
pub(crate) async fn hint(command: &str, cx: &Context) -> Option<String> {
    let own = cx
        .hub
        .call(&ListRuns {
            all: true,
            limit: Some(1),
            before: None,
        })
        .await
        .ok()?;
    if !own.runs.is_empty() {
        return None;
    }
    let home = running_demo().await?;
    Some(format!(
        "no runs in this home; for the demo: ADJ_HOME={} adj {command}",
        home.dir.display()
    ))
}

/// Returns the home of the newest kept demo of this user whose hub runs.
async fn running_demo() -> Option<Home> {
    let entries = std::fs::read_dir(super::place().ok()?).ok()?;
    let mut kept: Vec<(SystemTime, Home)> = entries
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(super::HOME_PREFIX.as_bytes())
        })
        .filter_map(|entry| {
            let dir = entry.metadata().ok()?;
            // Others can write to the directory of temporary files.
            let is_own = dir.is_dir() && dir.uid() == geteuid().as_raw() && dir.mode() & 0o077 == 0;
            let home = Home::at(&entry.path()).ok().filter(|_| is_own)?;
            let mark = home
                .dir
                .join(MARK)
                .symlink_metadata()
                .ok()
                .filter(std::fs::Metadata::is_file)?;
            Some((mark.modified().ok()?, home))
        })
        .collect();
    kept.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (_, home) in kept {
        if Client::running_hub(&home).call(&GetHub {}).await.is_ok() {
            return Some(home);
        }
    }
    None
}

/// Ends a kept demo: cancels its runs, stops its hub, and removes its home.
pub(super) async fn end(dir: &Path, out: &Out) -> CommandResult {
    let is_kept = dir
        .join(MARK)
        .symlink_metadata()
        .is_ok_and(|mark| mark.is_file());
    if !is_kept {
        let message = format!(
            "{} is not the home of a kept demo",
            text::line(&dir.display().to_string())
        );
        return Err(fail_hint(
            codes::INVALID,
            message,
            "adj demo --keep prints the command that ends it",
        ));
    }
    let home = Home::at(dir).map_err(|e| fail(cli_codes::IO, e.to_string()))?;
    clean_up(&home).await?;
    let removed = format!(
        "Removed {}. Your own home was not touched.",
        home.dir.display()
    );
    if out.json {
        out.print_json(&serde_json::json!({"removed": home.dir}))?
    } else {
        out.print_line(&removed)?
    }
    Ok(Exit::Done)
}
