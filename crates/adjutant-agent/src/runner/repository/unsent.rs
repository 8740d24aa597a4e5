//! Work of ended attempts that is only here: the hub could not store it, or had recorded the
//! attempt as lost. The hub still accepts it (`Ops::accept_work` of the hub).

use super::{NotSent, Repositories, SendAgain, WorkLocation};
use crate::failpoint;
use crate::runner::places::place;
use std::time::Duration;

/// How long after a failure unsent work is sent again, unless the runner joins before.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(5 * 60);

impl Repositories {
    /// Looks for unsent work of ended attempts.
    pub(crate) fn look_for_unsent(&self) {
        self.unsent.notify_one();
    }

    /// Sends the unsent work of ended attempts whenever there may be some. `is_watched` tells those
    /// that have not ended. Does not return.
    pub(crate) async fn send_unsent(&self, is_watched: impl Fn(&str) -> bool) {
        let again_after = failpoint::unsent_after().unwrap_or(SEND_AGAIN_AFTER);
        let mut is_complete = true;
        loop {
            if is_complete {
                self.unsent.notified().await;
            } else if tokio::time::timeout(again_after, self.unsent.notified())
                .await
                .is_err()
            {
                tracing::debug!("unsent work is sent again");
            }
            is_complete = self.send_all_unsent(&is_watched).await;
        }
    }

    /// Returns whether nothing is left.
    async fn send_all_unsent(&self, is_watched: &impl Fn(&str) -> bool) -> bool {
        let runs = match std::fs::read_dir(self.home.runs_dir()) {
            Ok(runs) => runs,
            Err(error) => {
                tracing::error!(%error, "unsent work cannot be looked for");
                return false;
            }
        };
        let mut is_complete = true;
        for run in runs {
            let run_id = match run {
                Ok(run) => run.file_name().to_string_lossy().into_owned(),
                Err(error) => {
                    tracing::error!(%error, "unsent work cannot be looked for");
                    return false;
                }
            };
            if let Err(error) = self.send_unsent_of(&run_id, is_watched).await {
                tracing::warn!(run = run_id, %error, "the work of an ended attempt cannot be sent yet");
                is_complete = false;
            }
        }
        is_complete
    }

    async fn send_unsent_of(
        &self,
        run_id: &str,
        is_watched: &impl Fn(&str) -> bool,
    ) -> Result<(), NotSent> {
        if self
            .place(run_id)?
            .is_none_or(|place| place.unsent.is_none())
        {
            return Ok(());
        }
        let _only = self.sending.lock(run_id).await;
        // A later attempt may have begun meanwhile.
        let Some(attempt) = self.place(run_id)?.and_then(|place| place.unsent) else {
            return Ok(());
        };
        let key = format!("{run_id}/{attempt}");
        let Some((dir, _, _)) = place(&self.home, &key).filter(|_| !is_watched(&key)) else {
            return Ok(());
        };
        self.keep_after_loss(&dir, run_id, attempt).await;
        match self.send_once(&key, run_id).await {
            Ok(()) => tracing::info!(attempt = key, "the hub has the work of the attempt"),
            Err(error) if error.again() == SendAgain::Never => {
                // It has the work of each attempt that has ended normally.
                tracing::debug!(attempt = key, %error, "the hub wants no more work of the attempt");
                self.report_problem(&key, run_id, &error).await;
            }
            Err(error) => return Err(error),
        }
        match self.place(run_id)? {
            Some(place) => Ok(self.record(
                run_id,
                &WorkLocation {
                    unsent: None,
                    ..place
                },
            )?),
            None => Ok(()),
        }
    }
}
