//! The setup command of a workspace: run once in a new workspace, before its run's agent. It is
//! contained, stopped, swept and fenced like the agent.
//!
//! ```text
//!  <workspaces>/<run>/.setup   the result, written once it has succeeded
//! ```
//! A command that was killed, or whose end was not recorded, runs again in the next attempt.

use super::side_command::{self, SideCommand, StopCause};
use super::worker;
use crate::failpoint::failpoint;
use crate::harness::StartRefusal;
use crate::process::containment::StartError;
use crate::protocol::{
    AttemptDir, CommandEvidence, NotCopiedText, Order, Orders, PreparationText, WorkspaceOrder,
};
use crate::view::codes;
use crate::{files, git, text};
use adjutant_core::units::duration;
use adjutant_core::{Exit, shorten};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// The end of its output that is kept, in bytes.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// The end of its output that the reason of a failed run quotes, in bytes.
const QUOTED_BYTES_MAX: usize = 1024;

/// The end of the preparation of a workspace.
#[derive(Debug)]
pub(crate) enum SetupEnd {
    /// The agent can be started.
    Ready,
    /// The run is to stop.
    Stopped,
    Failed(StartRefusal),
}

/// Runs the setup command of the attempt's own workspace, if it has one that has not succeeded yet.
/// Also returns what is to be stated: `None` where the workspace gets nothing.
pub(super) async fn run(
    order: &Order,
    dir: &AttemptDir,
    orders: &watch::Receiver<Orders>,
) -> (Option<PreparationText>, SetupEnd) {
    let Some(workspace) = order
        .workspace
        .as_ref()
        .filter(|workspace| workspace.run_id == order.run_id)
    else {
        return (None, SetupEnd::Ready);
    };
    let copied = match git::copied_files(dir.home(), &workspace.path) {
        Ok(copied) => copied,
        Err(error) => {
            return (
                None,
                SetupEnd::Failed(StartRefusal {
                    code: codes::STORAGE,
                    message: error.to_string(),
                }),
            );
        }
    };
    let not_copied = copied
        .not_copied
        .into_iter()
        .map(|it| NotCopiedText {
            path: it.path,
            why: it.why,
        })
        .collect();
    let (setup, end) = match run_once(order, dir, workspace, orders).await {
        Ok((setup, end)) => (setup, end),
        Err(refusal) => (None, SetupEnd::Failed(refusal)),
    };
    let empty_submodules = git::empty_submodules(dir.home(), &workspace.path);
    let text = PreparationText {
        copied: copied.copied,
        not_copied,
        empty_submodules,
        setup,
    };
    (
        Some(text).filter(|text| *text != PreparationText::default()),
        end,
    )
}

async fn run_once(
    order: &Order,
    dir: &AttemptDir,
    workspace: &WorkspaceOrder,
    orders: &watch::Receiver<Orders>,
) -> Result<(Option<CommandEvidence>, SetupEnd), StartRefusal> {
    let command = &workspace.setup;
    let Some(first) = command.first() else {
        return Ok((None, SetupEnd::Ready));
    };
    let mark = mark_of(&workspace.path);
    let not_read = |error: io::Error| StartRefusal {
        code: codes::STORAGE,
        message: format!("{}: {error}", mark.display()),
    };
    if let Some(earlier) = read_mark(dir.home(), &mark).map_err(not_read)? {
        return Ok((Some(earlier), SetupEnd::Ready));
    }
    let shown = text::line(&command.join(" "));
    let failed = |message: String| StartRefusal {
        code: codes::SETUP_FAILED,
        message,
    };
    let path = order.env.get("PATH").map_or("", String::as_str);
    let program = side_command::find(first, path, &workspace.path).ok_or_else(|| {
        failed(format!(
            "the setup command {shown} was not started: {first} is not found on the run's PATH"
        ))
    })?;
    let side_command = SideCommand {
        program,
        argv: command.iter().map(Into::into).collect(),
        env: worker::environment(order),
        cwd: workspace.path.clone(),
        limit: Duration::from_millis(u64::try_from(workspace.setup_timeout_ms).unwrap_or(0)),
        output_bytes_max: OUTPUT_BYTES_MAX,
        outlasts_budget: false,
    };
    let result = side_command::run(order, side_command, Some(&mut orders.clone())).await.map_err(|error| match error {
        StartError::Fence(why) => StartRefusal {
            code: codes::NO_FENCE,
            message: format!("the setup command {shown} was not started, because the fence cannot be enforced: {why}"),
        },
        StartError::Worker(error) | StartError::Containment(error) => failed(format!("the setup command {shown} could not be started: {error}")),
    })?;
    let (stopped, exit) = (result.stopped, result.exit);
    let evidence = result.evidence();
    let how = match (stopped, exit) {
        (Some(StopCause::ByOrder), _) => return Ok((None, SetupEnd::Stopped)),
        (None, Some(Exit::Code(0))) => {
            failpoint!("workspace.after_setup");
            let (home, to, result) = (dir.home().to_owned(), mark.clone(), evidence.clone());
            let written =
                tokio::task::spawn_blocking(move || write_mark(&home, &to, &result)).await;
            written
                .unwrap_or_else(|error| Err(io::Error::other(error)))
                .map_err(not_read)?;
            return Ok((Some(evidence), SetupEnd::Ready));
        }
        (Some(StopCause::TimeUp), _) => format!(
            "was stopped after {} (setup_timeout)",
            duration::text(workspace.setup_timeout_ms)
        ),
        (None, Some(Exit::Code(code))) => format!("failed with exit code {code}"),
        (None, Some(Exit::Signal(signal))) => format!("was ended by signal {signal}"),
        (None, None) => "has ended in an unknown way".to_owned(),
    };
    let output_end = shorten::tail(evidence.output.trim_end(), QUOTED_BYTES_MAX);
    let message = if output_end.trim().is_empty() {
        format!("the setup command {shown} {how}")
    } else {
        format!("the setup command {shown} {how}: {output_end}")
    };
    Ok((Some(evidence), SetupEnd::Failed(failed(message))))
}

fn mark_of(workspace: &Path) -> PathBuf {
    workspace.parent().unwrap_or(workspace).join(".setup")
}

/// Reads the result of a command that has succeeded. `None`: none has. An invalid result counts as
/// none.
fn read_mark(home: &Path, mark: &Path) -> io::Result<Option<CommandEvidence>> {
    match files::read(home, mark, 2 * OUTPUT_BYTES_MAX as u64 * 6) {
        Ok(text) => Ok(serde_json::from_slice(&text)
            .map_err(|error| tracing::warn!(%error, "the setup command runs again"))
            .ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Marks the command as successful. Its files are made durable first, so that the mark never exists
/// without them.
fn write_mark(home: &Path, mark: &Path, evidence: &CommandEvidence) -> io::Result<()> {
    let parent = mark.parent().unwrap_or(mark);
    let new = mark.with_extension("new");
    let mut file = files::replace(home, &new)?;
    file.write_all(&serde_json::to_vec(evidence)?)?;
    files::sync_file_system(&file)?;
    files::rename(home, &new, mark.file_name().unwrap_or(mark.as_os_str()))?;
    files::sync_dirs(home, parent)
}
