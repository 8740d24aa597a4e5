//! `adj pause`, `adj resume` and `adj retry`.

use super::run::proceed;
use crate::cli::args::{PauseArgs, ResumeArgs, RetryArgs};
use crate::cli::context::{Context, words_argument};
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::config::dispatch_env;
use crate::text;
use crate::view::{
    ErrorView, GetRun, Pause, ReadLogs, Resume, Retry, RunView, Wait, WaitUntil, codes,
};
use adjutant_core::checkpoint::Choice;
use adjutant_core::{RunStateKind, StopReason};

/// How long `adj resume` waits for a run that is being stopped.
const STOP_WAIT_MS: u64 = 30_000;

/// Pauses a run.
pub(crate) async fn pause(args: &PauseArgs, cx: &Context) -> CommandResult {
    let run = match cx
        .hub
        .call(&Pause {
            run: args.run.clone(),
        })
        .await
    {
        Ok(run) => run,
        Err(error) if error.code == codes::CONFLICT => {
            return Err(already_stopped(error, &args.run, cx).await);
        }
        Err(error) => return Err(error.into()),
    };
    print_changed(
        &run,
        "pausing",
        &format!("adj resume {}", text::line(&run.identity.name)),
        cx,
    )
}

/// Rewords the refusal to pause a run that is stopped already.
async fn already_stopped(error: ErrorView, run: &str, cx: &Context) -> Failure {
    match cx
        .hub
        .call(&GetRun {
            run: run.to_owned(),
            ..GetRun::default()
        })
        .await
    {
        Ok(run) if run.condition.state == RunStateKind::Stopped => {
            let name = text::line(&run.identity.name);
            let how = if run.condition.reason.as_deref() == Some(StopReason::Paused.word()) {
                "paused"
            } else {
                "stopped"
            };
            ErrorView {
                message: format!("{name} is already {how}"),
                hint: Some(format!("adj resume {name}")),
                ..error
            }
            .into()
        }
        // The refusal is what matters.
        Ok(_) | Err(_) => error.into(),
    }
}

/// Resumes a stopped run.
pub(crate) async fn resume(args: &ResumeArgs, cx: &Context) -> CommandResult {
    let resolution = words_argument(&args.resolution, "the resolution")?;
    wait_until_stopped(&args.run, cx).await?;
    // Its earlier output is not printed again.
    let log_at = if args.after_start.follows(cx) {
        log_end(&args.run, cx).await?
    } else {
        0
    };
    let run = cx
        .hub
        .call(&Resume {
            run: args.run.clone(),
            resolution,
            next_step: args.next_step.clone(),
            choice: args.choice.map(|choice| Choice::from(choice).into()),
            budget: None,
            env: dispatch_env(),
        })
        .await?;
    if !args.after_start.wait && !args.after_start.follows(cx) {
        return print_changed(
            &run,
            "resumed",
            &format!("adj logs -f {}", text::line(&run.identity.name)),
            cx,
        );
    }
    proceed(run, log_at, &args.after_start, cx).await
}

/// Waits until a run that is being stopped has stopped, for the time that its agent may take for
/// that: `adj pause` suggests this command.
async fn wait_until_stopped(run: &str, cx: &Context) -> Result<(), Failure> {
    let found = cx
        .hub
        .call(&GetRun {
            run: run.to_owned(),
            ..GetRun::default()
        })
        .await?;
    if found.condition.state == RunStateKind::Stopping {
        cx.out.print_message(&format!(
            "waiting until {} has stopped",
            text::line(&found.identity.name)
        ))?;
        cx.hub
            .call(&Wait {
                runs: vec![found.identity.run_id],
                until: WaitUntil::All,
                after: None,
                new_reports: false,
                wait_ms: STOP_WAIT_MS,
            })
            .await?;
    }
    Ok(())
}

/// Returns the end of a run's log.
async fn log_end(run: &str, cx: &Context) -> Result<u64, Failure> {
    let call = ReadLogs {
        run: run.to_owned(),
        after: None,
        max_bytes: Some(1),
        wait_ms: 0,
        ..ReadLogs::default()
    };
    match cx.hub.call(&call).await {
        Ok(page) => Ok(page.total),
        // The log is on a runner that is unreachable. The next attempt may be elsewhere.
        Err(error) if error.code == codes::UNREACHABLE => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn print_changed(run: &RunView, word: &str, next: &str, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(run)?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(&format!(
        "{} {word} {}",
        cx.out.paint.apply(Style::Good, "✓"),
        text::line(&run.identity.name)
    ))?;
    cx.out.suggest(next)?;
    Ok(Exit::Done)
}

/// Runs the task of an ended or stopped run again, as a new run.
pub(crate) async fn retry(args: &RetryArgs, cx: &Context) -> CommandResult {
    let prompt = words_argument(&args.prompt, "the task")?;
    let run = cx
        .hub
        .call(&Retry {
            run: args.run.clone(),
            prompt,
            env: dispatch_env(),
        })
        .await?;
    proceed(run, 0, &args.after_start, cx).await
}
