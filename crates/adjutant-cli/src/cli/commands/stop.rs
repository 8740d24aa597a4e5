//! `adj stop`: stops the hub.

use crate::cli::context::{Context, home};
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, fail, fail_hint};
use crate::cli::style::Style;
use crate::config::Home;
use crate::hub_client::{Client, unresponsive_hub, wait_for_hub};
use crate::process::{lock, watch};
use crate::text;
use crate::view::{GetHub, HubView, StopHub, codes};
use adjutant_core::units::duration;
use std::time::Duration;
use tokio::time::Instant;

/// How long a hub may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The same for an ephemeral home, whose runs end with it.
const STOP_ALL_LIMIT: Duration = Duration::from_secs(30);

/// Stops the hub without starting one.
pub(crate) async fn stop(cx: &Context) -> CommandResult {
    let is_ephemeral = cx.home.is_ephemeral();
    if is_ephemeral {
        // A killed hub leaves its home behind: the next one adopts the runs and ends them.
        cx.hub.call(&GetHub {}).await?;
    }
    let hub = match stop_hub(&cx.home).await? {
        Stopped::Replied(hub) => hub,
        Stopped::Ended { pid } => {
            if cx.out.json {
                cx.out.print_json(&serde_json::json!({"pid": pid}))?;
                return Ok(Exit::Done);
            }
            cx.out.print_line(&format!(
                "{} hub stopped (pid {pid})",
                cx.out.paint.apply(Style::Good, "✓")
            ))?;
            return Ok(Exit::Done);
        }
        Stopped::None => {
            if cx.out.json {
                cx.out.print_json(&serde_json::json!({"running": false}))?;
            }
            cx.out.print_message("no hub is running")?;
            return Ok(Exit::Done);
        }
    };
    if cx.out.json {
        cx.out.print_json(&hub)?;
        return Ok(Exit::Done);
    }
    let runs = if is_ephemeral {
        format!(
            "; the home in memory is removed, with {}",
            text::count(hub.live_runs, "live run", "live runs")
        )
    } else if hub.live_runs > 0 {
        format!(
            "; {}, and the next command starts the hub again",
            text::count(hub.live_runs, "run continues", "runs continue")
        )
    } else {
        String::new()
    };
    cx.out.print_line(&format!(
        "{} hub stopped (pid {}){runs}",
        cx.out.paint.apply(Style::Good, "✓"),
        hub.pid
    ))?;
    Ok(Exit::Done)
}

/// Fails if a hub already serves this home.
pub(crate) async fn refuse_second_hub() -> CommandResult {
    let home = home()?;
    match Client::running_hub(&home).call(&GetHub {}).await {
        Ok(hub) => Err(fail_hint(
            codes::CONFLICT,
            format!(
                "a hub (pid {}) already serves {}",
                hub.pid,
                home.dir.display()
            ),
            "stop it with adj stop",
        )),
        // The lock decides; this call only finds the better message.
        Err(_) => Ok(Exit::Done),
    }
}

/// How the hub of a home was stopped.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Stopped {
    /// No hub was running.
    None,
    Replied(HubView),
    /// It ended before it replied.
    Ended {
        pid: i32,
    },
}

/// Stops the home's hub and waits until it has released the home.
pub(crate) async fn stop_hub(home: &Home) -> Result<Stopped, Failure> {
    let path = home.hub_lock();
    let limit = if home.is_ephemeral() {
        STOP_ALL_LIMIT
    } else {
        STOP_LIMIT
    };
    let deadline = Instant::now() + limit;
    let unreadable = |e: std::io::Error| fail(cli_codes::IO, format!("{}: {e}", path.display()));
    let mut ended = None;
    let hub = loop {
        let error = match Client::running_hub(home).call(&StopHub {}).await {
            Ok(hub) => break hub,
            Err(error) if error.code == codes::UNREACHABLE => error,
            Err(error) => return Err(error.into()),
        };
        if let Some(hanging) = unresponsive_hub(home).await {
            return Err(hanging.into());
        }
        let Some(holder) = lock::holder_pid(&home.dir, &path).map_err(unreadable)? else {
            return Ok(ended.map_or(Stopped::None, |pid| Stopped::Ended { pid }));
        };
        let pid = holder.as_raw_nonzero().get();
        ended = Some(pid);
        // A hub that starts, or that begins to lead, has no socket for a moment.
        tokio::select! {
            released = watch::released(&home.dir, &path) => return released.map(|()| Stopped::Ended { pid }).map_err(unreadable),
            () = wait_for_hub(home) => {}
            () = tokio::time::sleep_until(deadline) => return Err(error.into()),
        }
    };
    let failed = |e: std::io::Error| {
        fail(
            cli_codes::IO,
            format!(
                "the hub (pid {}) is stopping, but its lock cannot be watched: {e}",
                hub.pid
            ),
        )
    };
    match tokio::time::timeout(limit, watch::released(&home.dir, &path)).await {
        Ok(released) => released.map_err(failed)?,
        // Another process may already have started the next hub.
        Err(_)
            if lock::holder_pid(&home.dir, &path)
                .map_err(failed)?
                .is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(hub.pid)) =>
        {
            return Err(fail_hint(
                cli_codes::IO,
                format!(
                    "the hub (pid {}) has not ended after {}",
                    hub.pid,
                    duration::of(limit)
                ),
                format!(
                    "a busy machine or a slow disk delays its end: adj stop waits again; its log: {}",
                    home.hub_log().display()
                ),
            ));
        }
        Err(_) => {}
    }
    Ok(Stopped::Replied(hub))
}
