//! One line on the terminal that shows the runs that a wait waits for.

use super::alert::is_read_by_person;
use super::context::{Context, now};
use super::out::Failure;
use super::waiting::next_change;
use super::{columns, run_state, symbols};
use crate::text;
use crate::view::{ErrorView, GetRun, ListRuns, RunView, Wait};
use std::convert::Infallible;
use std::io::{self, Write};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Maximum number of runs that are read for the line.
const RUNS_MAX: u32 = 50;
/// Changes within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(200);
/// After a read, the pause is this many times its duration, so that a busy hub is not slowed down.
const PAUSE_FACTOR: u32 = 9;

/// Does a command's work, and shows the runs that it waits for on standard error until it is done.
/// `runs`: as the user named them; none: all live runs. Nothing is shown where no person reads it.
pub(crate) async fn with_wait_line<T>(
    runs: &[String],
    cx: &Context,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    if !is_read_by_person(&io::stderr(), cx) {
        return work.await;
    }
    let mut line = WaitLine {
        shown: String::new(),
    };
    tokio::select! {
        biased;
        done = work => done,
        never = line.keep_current(runs, cx) => match never {},
    }
}

/// Dropping it clears the line.
struct WaitLine {
    shown: String,
}

impl WaitLine {
    async fn keep_current(&mut self, runs: &[String], cx: &Context) -> Infallible {
        let Err(error) = self.update(runs, cx).await;
        // The wait itself reports what is wrong with the hub.
        tracing::debug!(?error, "the runs that are waited for are not shown");
        std::future::pending().await
    }

    async fn update(&mut self, runs: &[String], cx: &Context) -> Result<Infallible, ErrorView> {
        let mut ids = Vec::new();
        for run in runs {
            ids.push(
                cx.hub
                    .call(&GetRun {
                        run: run.clone(),
                        ..GetRun::default()
                    })
                    .await?
                    .identity
                    .run_id,
            );
        }
        let mut after = cx.hub.call(&Wait::default()).await?.cursor;
        loop {
            let began = Instant::now();
            let list = cx
                .hub
                .call(&ListRuns {
                    all: false,
                    limit: Some(RUNS_MAX),
                    before: None,
                })
                .await?;
            let next_read = Instant::now() + (began.elapsed() * PAUSE_FACTOR).max(TOGETHER);
            let awaited: Vec<&RunView> = list
                .runs
                .iter()
                .filter(|run| ids.is_empty() || ids.contains(&run.identity.run_id))
                .collect();
            self.draw(&line_of(&awaited));
            after = next_change(after, cx).await?;
            sleep_until(next_read).await;
        }
    }

    fn draw(&mut self, line: &str) {
        // The last column stays free, since some terminals wrap there.
        let line = text::cut(line, columns().saturating_sub(1));
        if line == self.shown {
            return;
        }
        self.write(&symbols::shown(
            &format!("\r\u{1b}[K{line}"),
            Some(columns()),
        ));
        self.shown = line;
    }

    fn write(&self, text: &str) {
        let mut err = io::stderr().lock();
        if let Err(error) = err.write_all(text.as_bytes()).and_then(|()| err.flush()) {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        if !self.shown.is_empty() {
            self.write("\r\u{1b}[K");
        }
    }
}

/// Returns the line for these runs, the ones that need the person first.
fn line_of(runs: &[&RunView]) -> String {
    let mut labels: Vec<_> = runs
        .iter()
        .map(|run| (run_state::label(run, now()), run))
        .collect();
    labels.sort_by_key(|(label, _)| label.place);
    let runs: Vec<String> = labels
        .iter()
        .map(|(label, run)| {
            let percent = run
                .activity
                .percent
                .map(|percent| format!(" {percent}%"))
                .unwrap_or_default();
            format!(
                "{} {}{percent}",
                text::line(&run.identity.name),
                text::line(&label.text)
            )
        })
        .collect();
    if runs.is_empty() {
        String::new()
    } else {
        format!("waiting: {}", runs.join(", "))
    }
}
