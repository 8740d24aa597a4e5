//! Launches runners when runs wait for one, and ends the commands of runners that have ended.

use super::Hub;
use crate::config::launcher_env;
use crate::failpoint::failpoint;
use crate::ops::{LaunchRounds, RunnerLaunch};
use crate::process::{LaunchCommand, LeftLaunch};
use crate::store::Topic;
use crate::text;
use adjutant_core::shorten;
use futures::FutureExt;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest sleep at a time.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// The delay before a failed read or write of the store is retried.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long a command may run after its runner has ended. `ssh` ends at the same time as the
/// runner.
const COMMAND_END_MAX: Duration = Duration::from_secs(10);
const PROBLEM_CHARS_MAX: usize = 300;

/// Launches runners on demand.
pub(super) async fn launch(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::Queue]);
    let mut commands = JoinSet::new();
    // Dropping a sender ends the command of a runner.
    let mut needed: BTreeMap<String, oneshot::Sender<()>> = BTreeMap::new();
    // Commands of earlier hubs are searched for at the start, and when a runner has ended that this
    // hub has not launched.
    let mut may_have_left = hub.ops.settings.has_launchers();
    loop {
        let nap = match LaunchRounds::of(&hub.ops).round().await {
            Ok(round) => {
                for name in &round.ended {
                    tracing::info!(runner = name, "a launched runner has ended");
                    may_have_left |= needed.remove(name).is_none();
                }
                // Before the commands of this round start.
                if may_have_left {
                    let replaced = round
                        .ended
                        .iter()
                        .chain(round.launches.iter().map(|launch| &launch.name))
                        .cloned()
                        .collect();
                    may_have_left = !end_left(&hub, &replaced, &mut commands).await;
                }
                for launch in round.launches {
                    tracing::info!(
                        runner = launch.name,
                        pool = launch.pool,
                        "launching a runner"
                    );
                    let (keep, not_needed) = oneshot::channel();
                    needed.insert(launch.name.clone(), keep);
                    commands.spawn(run(Arc::clone(&hub), launch, not_needed).boxed());
                }
                round
                    .next
                    .map_or(SLEEP_MAX, |next| {
                        next.saturating_duration_since(Instant::now())
                    })
                    .min(SLEEP_MAX)
            }
            Err(error) => {
                tracing::error!(%error, "no runner can be launched yet");
                RETRY_AFTER
            }
        };
        tokio::select! {
            () = subscription.wait() => {}
            () = tokio::time::sleep(nap) => {}
        }
        while let Some(ended) = commands.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the watch of a launch panicked");
            }
        }
    }
}

/// Ends the commands of runners that an earlier hub has launched from this home and that have ended
/// or failed to join. `replaced`: runners that have ended just now, and those that will be launched
/// under their names. Returns whether commands could be looked for.
async fn end_left(hub: &Arc<Hub>, replaced: &BTreeSet<String>, ends: &mut JoinSet<()>) -> bool {
    let (home, runners) = (
        hub.ops.home().dir.clone(),
        LaunchRounds::of(&hub.ops).launched_runners(),
    );
    let found = tokio::task::spawn_blocking(move || LeftLaunch::all(&home)).await;
    let (found, runners) = match (found, runners) {
        (Ok(found), Ok(runners)) => (found, runners),
        (Err(error), _) => {
            tracing::error!(%error, "commands of earlier launches cannot be looked for");
            return false;
        }
        (_, Err(error)) => {
            tracing::error!(%error, "commands of earlier launches cannot be ended yet");
            return false;
        }
    };
    let is_left = |runner: &String| replaced.contains(runner) || !runners.contains(runner);
    for launch in found.into_iter().filter(|launch| is_left(&launch.runner())) {
        let end = async move {
            if launch.end(COMMAND_END_MAX).await {
                tracing::warn!(
                    runner = launch.runner(),
                    "the command of an earlier launch still ran after its runner had ended, and was killed"
                );
            }
        };
        ends.spawn(end.boxed());
    }
    true
}

/// Runs the command of a launch until it ends or is not needed any more.
async fn run(hub: Arc<Hub>, launch: RunnerLaunch, mut not_needed: oneshot::Receiver<()>) {
    failpoint!("launch.before_command");
    let mut command = match start(&hub, &launch) {
        Ok(command) => command,
        Err(error) => return note_failed(&hub, &launch, &error),
    };
    failpoint!("launch.after_command");
    let ended = tokio::select! {
        ended = command.ended() => Some(ended),
        // Nothing is ever sent.
        _ = &mut not_needed => tokio::time::timeout(COMMAND_END_MAX, command.ended()).await.ok(),
    };
    let program = launch.launcher.argv[0].clone();
    let output = command.output();
    let said = text::line(output.trim());
    let said = shorten::counted(&said, PROBLEM_CHARS_MAX);
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    match ended {
        Some(Ok(Some(0))) => tracing::info!(
            runner = launch.name,
            output,
            "the command of a launch has ended"
        ),
        Some(Ok(Some(code))) => {
            let error = LaunchError::Exit {
                program,
                code,
                said,
            };
            note_failed(&hub, &launch, &error);
        }
        Some(Ok(None)) => note_failed(&hub, &launch, &LaunchError::Killed { program, said }),
        Some(Err(source)) => {
            note_failed(&hub, &launch, &LaunchError::NotWatched { program, source });
        }
        None => {
            tracing::warn!(
                runner = launch.name,
                output,
                "the command of a launch still runs after its runner has ended, and is killed"
            );
            command.end().await;
        }
    }
}

/// Why the command of a launch has failed.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("the hub does not listen, so no runner can join: set listen (adj doctor)")]
    NotListening,
    /// The token cannot be given to the command.
    #[error("{0}")]
    Input(String),
    #[error("{program} is not on the hub's PATH")]
    NotFound { program: String },
    #[error("{}: {source}", program.display())]
    NotStarted { program: PathBuf, source: io::Error },
    #[error("{program} ended with exit code {code}{said}")]
    Exit {
        program: String,
        code: i32,
        said: String,
    },
    #[error("{program} was killed by a signal{said}")]
    Killed { program: String, said: String },
    #[error("{program} cannot be watched: {source}")]
    NotWatched { program: String, source: io::Error },
}

fn note_failed(hub: &Hub, launch: &RunnerLaunch, error: &LaunchError) {
    let problem = error.to_string();
    tracing::warn!(
        runner = launch.name,
        problem,
        "the command of a launch has failed"
    );
    LaunchRounds::of(&hub.ops).note_failed(&launch.name, problem);
}

fn start(hub: &Hub, launch: &RunnerLaunch) -> Result<LaunchCommand, LaunchError> {
    let url = hub
        .listening
        .announced_url()
        .ok_or(LaunchError::NotListening)?;
    let values = launch.values(&url);
    let mut argv = launch.launcher.filled_argv(&values);
    let input = launch
        .launcher
        .filled_input(&values, &launch.token)
        .map_err(|problem| LaunchError::Input(problem.to_string()))?;
    let Some(program) = launch.launcher.program() else {
        return Err(LaunchError::NotFound {
            program: argv.swap_remove(0),
        });
    };
    LaunchCommand::start(
        &hub.ops.home().dir,
        &launch.name,
        &program,
        &argv,
        launcher_env(),
        input.as_bytes(),
    )
    .map_err(|source| LaunchError::NotStarted { program, source })
}
