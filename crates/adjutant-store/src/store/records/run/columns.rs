//! How parts of a run are stored: the words for its state and its exit, and columns with a word or
//! with JSON.

use super::checkpoint::CheckpointRow;
use super::stated::{RetryingRow, RetryingSince};
use crate::store::db::{self, Columns, row};
use adjutant_core::checkpoint::Checkpoint;
use adjutant_core::words::Words;
use adjutant_core::{AttemptNo, Cause, Exit, Failure, Outcome, RunState, SteadyTime, StopReason};
use serde::de::DeserializeOwned;

row! {
    /// The columns of a run's state.
    pub(in crate::store) struct StateRow {
        pub(in crate::store) state: String,
        pub(in crate::store) stop_reason: Option<String>,
        pub(in crate::store) until_at: Option<i64>,
        pub(in crate::store) outcome: Option<String>,
        pub(in crate::store) failure: Option<String>,
    }
}

impl StateRow {
    pub(in crate::store) fn of(state: RunState) -> Self {
        let mut row = Self {
            state: state.word().to_owned(),
            stop_reason: None,
            until_at: None,
            outcome: None,
            failure: None,
        };
        match state {
            RunState::Queued | RunState::Starting | RunState::Running => {}
            RunState::Stopping(reason) => row.stop_reason = Some(reason.word().to_owned()),
            RunState::Stopped { reason, until } => {
                row.stop_reason = Some(reason.word().to_owned());
                row.until_at = Some(until.0);
            }
            RunState::Finished(outcome) => {
                row.outcome = Some(outcome.word().to_owned());
                if let Outcome::Failed(failure) = outcome {
                    row.failure = Some(match failure {
                        Failure::Exit(Exit::Code(code)) => format!("exit {code}"),
                        Failure::Exit(Exit::Signal(signal)) => format!("signal {signal}"),
                        Failure::Unanswered => "unanswered".to_owned(),
                        Failure::Reported => "reported".to_owned(),
                        Failure::Agent(cause) => format!("agent {}", cause.word()),
                        Failure::NotResumed(reason) => format!("not_resumed {}", reason.word()),
                    });
                }
            }
        }
        row
    }

    pub(super) fn state(self) -> db::Result<RunState> {
        self.decode()
            .ok_or_else(|| db::Error::unreadable(format!("state {}", self.state)))
    }

    fn decode(&self) -> Option<RunState> {
        let reason = || StopReason::from_word(self.stop_reason.as_deref()?);
        Some(match self.state.as_str() {
            "queued" => RunState::Queued,
            "starting" => RunState::Starting,
            "running" => RunState::Running,
            "stopping" => RunState::Stopping(reason()?),
            "stopped" => RunState::Stopped {
                reason: reason()?,
                until: SteadyTime(self.until_at?),
            },
            "finished" => RunState::Finished(match self.outcome.as_deref()? {
                "succeeded" => Outcome::Succeeded,
                "cancelled" => Outcome::Cancelled,
                "spawn_failed" => Outcome::SpawnFailed,
                "lost" => Outcome::Lost,
                "failed" => Outcome::Failed(match self.failure.as_deref()?.split_once(' ') {
                    Some(("exit", code)) => Failure::Exit(Exit::Code(code.parse().ok()?)),
                    Some(("signal", signal)) => Failure::Exit(Exit::Signal(signal.parse().ok()?)),
                    Some(("agent", word)) => Failure::Agent(Cause::from_word(word)?),
                    Some(("not_resumed", word)) => {
                        Failure::NotResumed(StopReason::from_word(word)?)
                    }
                    None if self.failure.as_deref() == Some("unanswered") => Failure::Unanswered,
                    None if self.failure.as_deref() == Some("reported") => Failure::Reported,
                    _ => return None,
                }),
                _ => return None,
            }),
            _ => return None,
        })
    }
}

row! {
    /// The columns of the exit of a run's process.
    pub(super) struct ExitRow {
        exit_code: Option<i32>,
        exit_signal: Option<i32>,
    }
}

impl ExitRow {
    pub(super) fn exit(self) -> db::Result<Option<Exit>> {
        let code = self.exit_code.map(Exit::Code);
        Ok(code.or(self.exit_signal.map(Exit::Signal)))
    }
}

/// Reads an optional column with JSON. An invalid value is logged and treated as absent, so that
/// the run stays usable.
pub(super) fn json<T: DeserializeOwned>(columns: &mut Columns<'_>) -> db::Result<Option<T>> {
    let text: Option<String> = columns.value()?;
    Ok(text.and_then(|text| {
        serde_json::from_str(&text)
            .inspect_err(|error| {
                let (run, column) = (columns.key(), columns.last_name());
                tracing::error!(run, column, %error, "an invalid column");
            })
            .ok()
    }))
}

/// Reads an optional column with a word. An unknown word is logged and treated as absent.
pub(super) fn word<T: Words>(columns: &mut Columns<'_>) -> db::Result<Option<T>> {
    let Some(text) = columns.value::<Option<String>>()? else {
        return Ok(None);
    };
    let read = T::from_word(&text);
    if read.is_none() {
        let (run, column) = (columns.key(), columns.last_name());
        tracing::error!(run, column, text, "an unknown word");
    }
    Ok(read)
}

/// Reads a column with a word like [`word`]. Without one, the default applies.
pub(super) fn word_or_default<T: Words + Default>(columns: &mut Columns<'_>) -> db::Result<T> {
    Ok(word(columns)?.unwrap_or_default())
}

/// Reads a checkpoint, and the attempt that saved it.
pub(super) fn checkpoint(
    columns: &mut Columns<'_>,
) -> db::Result<(Option<Checkpoint>, Option<AttemptNo>)> {
    let row: Option<CheckpointRow> = json(columns)?;
    Ok(row.map(CheckpointRow::decode).unzip())
}

pub(super) fn retrying(columns: &mut Columns<'_>) -> db::Result<Option<RetryingSince>> {
    let row: Option<RetryingRow> = json(columns)?;
    Ok(row.map(RetryingRow::decode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_round_trips() {
        let mut states = vec![RunState::Queued, RunState::Starting, RunState::Running];
        for reason in StopReason::ALL {
            states.push(RunState::Stopping(reason));
            states.push(RunState::Stopped {
                reason,
                until: SteadyTime(5),
            });
            states.push(RunState::Finished(Outcome::Failed(Failure::NotResumed(
                reason,
            ))));
        }
        for outcome in [
            Outcome::Succeeded,
            Outcome::Cancelled,
            Outcome::SpawnFailed,
            Outcome::Lost,
        ] {
            states.push(RunState::Finished(outcome));
        }
        let of_agents = Cause::ALL.into_iter().map(Failure::Agent);
        for failure in [
            Failure::Exit(Exit::Code(3)),
            Failure::Exit(Exit::Signal(9)),
            Failure::Unanswered,
            Failure::Reported,
        ]
        .into_iter()
        .chain(of_agents)
        {
            states.push(RunState::Finished(Outcome::Failed(failure)));
        }
        for state in states {
            assert_eq!(StateRow::of(state).decode(), Some(state));
        }
    }
}
