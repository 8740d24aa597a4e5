//! Control: `cancel`, `retry`, `send`, `adopt`, `stop`, `clean`.

use super::args::{AdoptArgs, CancelArgs, CleanArgs, PauseArgs, ResumeArgs, RetryArgs, SendArgs};
use super::attend::ask;
use super::context::{Context, home, text_argument};
use super::exit::{Exit, words};
use super::out::{Ended, Stop, fail, fail_hint};
use super::style::Style;
use crate::client::Client;
use crate::config::{Home, dispatch_env};
use crate::process::{lock, watch};
use crate::text;
use crate::view::{Adopt, Cancel, Clean, ErrorView, GetHub, HubView, Pause, Resume, Retry, RunView, SendToRun, StopHub, codes};
use std::time::Duration;

/// Columns of a run's name, id or prefix as it was given, where it is repeated.
const NAME_COLUMNS_MAX: usize = 80;
/// Names shown of a list of removed runs.
const NAMES_SHOWN_MAX: usize = 20;
/// How long a hub may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// The same where the runs of its home end with it.
const STOP_ALL_LIMIT: Duration = Duration::from_secs(30);

/// Ends runs. Each is tried, in the order given; the first refusal is the command's failure.
pub async fn cancel(args: &CancelArgs, cx: &Context) -> Ended {
    let mut ended: Vec<RunView> = Vec::new();
    let mut refused: Vec<(String, ErrorView)> = Vec::new();
    for run in &args.runs {
        match cx.hub.call(&Cancel { run: run.clone(), reason: args.reason.clone() }).await {
            Ok(run) => {
                if !cx.out.json {
                    let word = if run.state == "finished" { "cancelled" } else { "cancelling" };
                    cx.out.line(&format!("{} {word} {}", cx.out.paint.apply(Style::Good, "✓"), text::line(&run.name)))?;
                }
                ended.push(run);
            }
            Err(error) => {
                let run = text::cut(run, NAME_COLUMNS_MAX);
                let error = named(&run, error);
                if !cx.out.json {
                    cx.out.error(&error)?;
                }
                refused.push((run, error));
            }
        }
    }
    if cx.out.json && (refused.is_empty() || !ended.is_empty()) {
        cx.out.list(&ended, 0, &[])?;
    }
    let Some((_, first)) = refused.first() else { return Ok(Exit::Done) };
    let exit = Exit::of(&first.code);
    match (cx.out.json, args.runs.len()) {
        (true, 1) => cx.out.error(first)?,
        (true, _) => cx.out.errors(&refused)?,
        (false, _) => {}
    }
    Err(Stop::Quiet(exit))
}

/// Puts the run before what is said about it, where that does not name it.
fn named(run: &str, error: ErrorView) -> ErrorView {
    if run.is_empty() || error.message.contains(run) { error } else { ErrorView { message: format!("{run}: {}", error.message), ..error } }
}

/// Stops a run's agent, to go on later.
pub async fn pause(args: &PauseArgs, cx: &Context) -> Ended {
    let run = cx.hub.call(&Pause { run: args.run.clone() }).await?;
    changed(&run, "pausing", &format!("adj resume {}", text::line(&run.name)), cx)
}

/// Begins a stopped run anew.
pub async fn resume(args: &ResumeArgs, cx: &Context) -> Ended {
    let resolution = args.resolution.as_deref().map(|text| text_argument(text, "the resolution")).transpose()?;
    let run = cx
        .hub
        .call(&Resume {
            run: args.run.clone(),
            resolution,
            next_step: args.next_step.clone(),
            choice: args.choice.map(|choice| choice.word().to_owned()),
            env: dispatch_env(),
        })
        .await?;
    changed(&run, "resumed", &format!("adj logs -f {}", text::line(&run.name)), cx)
}

fn changed(run: &RunView, word: &str, next: &str, cx: &Context) -> Ended {
    if cx.out.json {
        cx.out.data(run)?;
        return Ok(Exit::Done);
    }
    cx.out.line(&format!("{} {word} {}", cx.out.paint.apply(Style::Good, "✓"), text::line(&run.name)))?;
    cx.out.next(next)?;
    Ok(Exit::Done)
}

/// Starts an ended run's task again.
pub async fn retry(args: &RetryArgs, cx: &Context) -> Ended {
    let prompt = args.prompt.as_deref().map(|prompt| text_argument(prompt, "the prompt")).transpose()?;
    let run = cx.hub.call(&Retry { run: args.run.clone(), prompt, env: dispatch_env() }).await?;
    if cx.out.json {
        cx.out.data(&run)?;
        return Ok(Exit::Done);
    }
    cx.out.line(&text::line(&run.name))?;
    cx.out.next(&format!("adj logs -f {name}   or   adj wait {name}", name = text::line(&run.name)))?;
    Ok(Exit::Done)
}

/// Sends a message to a live run.
pub async fn send(args: &SendArgs, cx: &Context) -> Ended {
    let message = cx.hub.call(&SendToRun { run: args.run.clone(), text: text_argument(&args.text, "the message")? }).await?;
    if cx.out.json {
        cx.out.data(&message)?;
        return Ok(Exit::Done);
    }
    let how = match message.delivery.as_str() {
        "live" => "delivered to the running agent",
        _ => "it gets it with its next tool call, or when it reads its input",
    };
    cx.out.line(&format!("{} sent to {}: {how}", cx.out.paint.apply(Style::Good, "✓"), text::line(&message.run_name)))?;
    Ok(Exit::Done)
}

/// Moves runs to another client.
pub async fn adopt(args: &AdoptArgs, cx: &Context) -> Ended {
    let moved = cx.hub.call(&Adopt { runs: args.runs.clone(), client: args.client.clone().unwrap_or_default() }).await?;
    if cx.out.json {
        cx.out.list(&moved.runs, moved.more, &[])?;
        return Ok(Exit::Done);
    }
    for run in &moved.runs {
        cx.out.line(&format!("{} {} now belongs to {}", cx.out.paint.apply(Style::Good, "✓"), text::line(&run.name), text::line(&run.owner)))?;
    }
    Ok(Exit::Done)
}

/// Ends the hub, and starts none to do so.
pub async fn stop(cx: &Context) -> Ended {
    let is_ephemeral = cx.home.is_ephemeral();
    if is_ephemeral {
        // A hub that was killed has left its home behind: the next one adopts what is in it, and ends it.
        cx.hub.call(&GetHub {}).await?;
    }
    let Some(hub) = stop_hub(&cx.home).await? else {
        if cx.out.json {
            cx.out.data(&serde_json::json!({"running": false}))?;
        }
        cx.out.say("no hub is running")?;
        return Ok(Exit::Done);
    };
    if cx.out.json {
        cx.out.data(&hub)?;
        return Ok(Exit::Done);
    }
    let runs = if is_ephemeral {
        format!("; its home in memory is gone, with {}", text::count(hub.live_runs, "live run", "live runs"))
    } else if hub.live_runs > 0 {
        format!("; {}, and the next command starts a hub again", text::count(hub.live_runs, "run goes on", "runs go on"))
    } else {
        String::new()
    };
    cx.out.line(&format!("{} hub stopped (pid {}){runs}", cx.out.paint.apply(Style::Good, "✓"), hub.pid))?;
    Ok(Exit::Done)
}

/// Refuses to go on where a hub is running already.
pub async fn no_hub_there() -> Ended {
    let home = home()?;
    match Client::running_hub(&home).call(&GetHub {}).await {
        Ok(hub) => Err(fail_hint(codes::CONFLICT, format!("a hub (pid {}) serves {} already", hub.pid, home.dir.display()), "adj stop ends it")),
        Err(_) => Ok(Exit::Done),
    }
}

/// Stops the home's hub and waits until it has let go of the home; `None` when none was there.
pub async fn stop_hub(home: &Home) -> Result<Option<HubView>, Stop> {
    let hub = match Client::running_hub(home).call(&StopHub {}).await {
        Ok(hub) => hub,
        Err(error) if error.code == codes::UNREACHABLE => match Client::hanging_hub(home).await {
            Some(hanging) => return Err(hanging.into()),
            None => return Ok(None),
        },
        Err(error) => return Err(error.into()),
    };
    let path = home.hub_lock();
    let limit = if home.is_ephemeral() { STOP_ALL_LIMIT } else { STOP_LIMIT };
    let failed = |e: std::io::Error| fail(words::IO, format!("the hub (pid {}) said that it ends, and its lock cannot be watched: {e}", hub.pid));
    match tokio::time::timeout(limit, watch::released(&home.dir, &path)).await {
        Ok(released) => released.map_err(failed)?,
        // Somebody else may have started the next one already.
        Err(_) if lock::holder_pid(&home.dir, &path).map_err(failed)?.is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(hub.pid)) => {
            return Err(fail_hint(words::IO, format!("the hub (pid {}) does not end", hub.pid), format!("kill -9 {} loses nothing", hub.pid)));
        }
        Err(_) => {}
    }
    Ok(Some(hub))
}

/// Removes finished runs, after asking.
pub async fn clean(args: &CleanArgs, cx: &Context) -> Ended {
    let older_than_s = args.older_than.as_secs();
    let would = cx.hub.call(&Clean { older_than_s, dry_run: true }).await?;
    if args.dry_run || would.runs.is_empty() {
        return cleaned(&would, args.dry_run, cx);
    }
    let count = text::count(would.runs.len() as u64, "finished run", "finished runs");
    if !args.yes {
        if !cx.out.interactive {
            return Err(fail_hint(
                words::USAGE,
                format!("this would remove {count} with all files"),
                "repeat it with --yes, or look first with --dry-run",
            ));
        }
        let answer = ask(&format!("Remove {count} with all files? [y/N] "))?;
        if !answer.is_some_and(|a| matches!(a.trim(), "y" | "Y" | "yes")) {
            cx.out.say("nothing removed")?;
            return Ok(Exit::Done);
        }
    }
    cleaned(&cx.hub.call(&Clean { older_than_s, dry_run: false }).await?, false, cx)
}

fn cleaned(cleaned: &crate::view::Cleaned, dry_run: bool, cx: &Context) -> Ended {
    if cx.out.json {
        cx.out.data(cleaned)?;
        return Ok(Exit::Done);
    }
    if cleaned.runs.is_empty() {
        cx.out.say("nothing to remove")?;
        return Ok(Exit::Done);
    }
    cx.out.line(&format!("{} {}", if dry_run { "would remove" } else { "removed" }, text::count(cleaned.runs.len() as u64, "run", "runs")))?;
    for run in cleaned.runs.iter().take(NAMES_SHOWN_MAX) {
        cx.out.line(&format!("  {}", text::line(run)))?;
    }
    if cleaned.runs.len() > NAMES_SHOWN_MAX {
        cx.out.line(&format!("  … {} more", cleaned.runs.len() - NAMES_SHOWN_MAX))?;
    }
    Ok(Exit::Done)
}
