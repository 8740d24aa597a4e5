//! The task that reads the agent's output, and what remains of it when all is read.

use super::Attempt;
use crate::hub_client::AgentActivity;
use crate::protocol::{AttemptDir, FactKind};
use crate::supervisor::closing::Closer;
use crate::supervisor::log_writer::{self, LogWriter};
use crate::supervisor::output::{Output, OutputEvent, Pump};
use crate::supervisor::write_private;
use adjutant_core::limits;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Maximum number of unrecorded signals. Beyond it, reading waits.
const SIGNALS_AHEAD_MAX: usize = 16;
/// Maximum number of queued lines of Adjutant for the log.
const NOTES_AHEAD_MAX: usize = 64;

/// The running task that reads the output.
#[derive(Debug)]
pub(super) struct Reading {
    /// The length of the log so far.
    pub bytes: watch::Receiver<u64>,
    pub events: mpsc::Receiver<OutputEvent>,
    /// Ends reading although a stream is open.
    cut: CancellationToken,
    task: JoinSet<Output>,
}

impl Reading {
    /// Begins to read. Returns the sender of Adjutant's lines for the log.
    pub(super) fn begin(pump: Pump, activity: &Arc<AgentActivity>) -> (Self, mpsc::Sender<String>) {
        let (sender, bytes) = watch::channel(0);
        let cut = CancellationToken::new();
        let mut task = JoinSet::new();
        let (output_events, events) = mpsc::channel(SIGNALS_AHEAD_MAX);
        let (notes, noted) = mpsc::channel(NOTES_AHEAD_MAX);
        task.spawn(pump.run(
            sender,
            output_events,
            noted,
            Arc::clone(activity),
            cut.clone(),
        ));
        let reading = Self {
            bytes,
            events,
            cut,
            task,
        };
        (reading, notes)
    }
}

impl Attempt {
    /// Ends the reading of the output, and applies its last events. `None`: the task has failed.
    pub(super) async fn finish_reading(&mut self, mut reading: Reading) -> Option<Output> {
        // A process outside of the attempt can have inherited the output, whose end then never
        // comes.
        reading.cut.cancel();
        // The pump ends when everything is read and reported.
        while let Some(event) = reading.events.recv().await {
            self.apply_output(event);
        }
        let output = match reading.task.join_next().await {
            Some(Ok(output)) => Some(output),
            Some(Err(error)) => {
                tracing::error!(%error, "the task that reads the output has failed");
                None
            }
            None => None,
        };
        while let Ok(message_id) = self.delivered.try_recv() {
            self.journal.record(FactKind::Delivered { message_id });
        }
        output
    }

    /// Finishes the logs, and stores a result that is too long for the last fact. Returns the logs
    /// that could not be finished because of the disk.
    pub(super) fn finish_output(
        &self,
        output: Option<&mut Output>,
        closer: &Closer<'_>,
    ) -> Vec<LogWriter> {
        let Some(output) = output else {
            return Vec::new();
        };
        let mut logs = std::mem::take(&mut output.logs);
        log_writer::finish(&mut logs);
        self.ending.extract_answer(&mut output.result);
        if output.result.len() > limits::RESULT_SHOWN_BYTES_MAX {
            let order = closer.order;
            let dir = AttemptDir::new(&order.home, &order.run_id, order.attempt);
            if let Err(error) = write_private(&dir, &dir.answer(), &output.result) {
                tracing::error!(%error, "the whole result cannot be stored; its end is in the last fact, and the log has all of it");
            }
        }
        logs
    }
}
