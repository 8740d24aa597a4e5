//! The stored form of a run: its columns, and the words for its state.

use super::conditions::RetryingRow;
use super::fence::FenceState;
use super::run::{Reported, Run, Usage};
use super::spec::CheckpointRow;
use crate::store::StoreError;
use crate::store::db::{self, Connection, Row};
use adjutant_core::tree::Rank;
use adjutant_core::words::Words;
use adjutant_core::{
    AttemptNo, Cause, EventSeq, Exit, Failure, Outcome, Principal, PromptVia, RunId, RunState,
    SteadyTime, StopReason, Time,
};
use serde::de::DeserializeOwned;

const COLUMNS: &str = "SELECT id, name, agent, task, cwd, owner, parent, root, retry_of, state, stop_reason, until_at, outcome, failure, exit_code,
  exit_signal, detail, attempt, created_at, started_at, ended_at, updated_at, summary, claim, result, percent, progress, annotation, containment, swept,
  output_left_open, active_ms, pending, blocking_pending, unread, last_seq, end_seq, patience_ms, prompt_via, checkpoint, resolution, next_step,
  choice, eta, session, input_tokens, cached_tokens, output_tokens, cost_micros, holding, rank, ignored, ignored_why, stalled_at, stall_seq, note,
  active_since, estimate_ms, overdue_at, overdue_seq, shortfall, end_seq IS NULL OR end_seq <= notified_seq,
  retrying, retrying_seq, subagents, result_bytes, result_gap, reconstructed, fence, snapshot_problem, snapshot_seq, conflict_seq,
  pool, after_open, after_failed, agent_why, resources, overlap_seq, unpriced_tokens, is_priced, budget_seq,
  reported_at, report_seq, report_seq IS NULL OR report_seq <= notified_seq, no FROM runs";

/// The columns for a run's state.
pub(super) struct StateRow {
    pub(super) state: String,
    pub(super) stop_reason: Option<String>,
    pub(super) until_at: Option<i64>,
    pub(super) outcome: Option<String>,
    pub(super) failure: Option<String>,
}

impl StateRow {
    pub(super) fn of(state: RunState) -> Self {
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

    fn state(&self) -> Option<RunState> {
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

/// Parses an optional JSON column. An invalid value is logged and treated as absent, so that the run stays usable.
fn json<T: DeserializeOwned>(run: &str, column: &str, text: Option<String>) -> Option<T> {
    text.and_then(|text| {
        serde_json::from_str(&text)
            .inspect_err(|error| tracing::error!(run, column, %error, "an invalid column"))
            .ok()
    })
}

/// Parses an optional column with a word. An unknown word is logged and treated as absent.
fn word<T: Words>(run: &str, column: &str, text: Option<String>) -> Option<T> {
    let text = text?;
    let read = T::from_word(&text);
    if read.is_none() {
        tracing::error!(run, column, text, "an unknown word");
    }
    read
}

fn read(row: &Row<'_>) -> db::Result<Result<Run, StoreError>> {
    let (id, owner, root): (String, String, String) = (row.get(0)?, row.get(5)?, row.get(7)?);
    let (parent, retry_of): (Option<String>, Option<String>) = (row.get(6)?, row.get(8)?);
    let state = StateRow {
        state: row.get(9)?,
        stop_reason: row.get(10)?,
        until_at: row.get(11)?,
        outcome: row.get(12)?,
        failure: row.get(13)?,
    };
    let exit = match (row.get::<Option<i32>>(14)?, row.get::<Option<i32>>(15)?) {
        (Some(code), _) => Some(Exit::Code(code)),
        (None, Some(signal)) => Some(Exit::Signal(signal)),
        (None, None) => None,
    };
    let time = |index| row.get::<Option<i64>>(index).map(|ms| ms.map(Time));
    let checkpoint =
        json::<CheckpointRow>(&id, "checkpoint", row.get(39)?).map(CheckpointRow::decode);
    let (checkpoint, checkpoint_attempt) = checkpoint.unzip();
    let count = |index| {
        row.get::<Option<i64>>(index)
            .map(|count| count.map(|count| u64::try_from(count).unwrap_or(0)))
    };
    let usage = match (count(45)?, count(46)?, count(47)?) {
        (None, None, None) => None,
        (input, cached, output) => Some(Usage {
            input_tokens: input.unwrap_or(0),
            cached_tokens: cached.unwrap_or(0),
            output_tokens: output.unwrap_or(0),
            cost_micros: count(48)?,
            of_session: true,
            cost_of_session: true,
            cached_in_input: false,
        }),
    };
    let run_id = |text: &str| RunId::parse(text).ok();
    let related = |text: Option<String>| match text {
        None => Some(None),
        Some(text) => run_id(&text).map(Some),
    };
    let (
        Some(run),
        Some(owner),
        Some(root),
        Some(parent),
        Some(retry_of),
        Some(state),
        Some(prompt_via),
        Some(rank),
    ) = (
        run_id(&id),
        Principal::parse(&owner),
        run_id(&root),
        related(parent),
        related(retry_of),
        state.state(),
        PromptVia::from_word(&row.get::<String>(38)?),
        Rank::from_number(row.get(50)?),
    )
    else {
        return Ok(Err(StoreError::Corrupt(format!("run {id}"))));
    };
    Ok(Ok(Run {
        id: run,
        no: row.get(84)?,
        name: row.get(1)?,
        agent: row.get(2)?,
        task: row.get(3)?,
        cwd: row.get(4)?,
        patience_ms: row.get(37)?,
        prompt_via,
        owner,
        parent,
        root,
        retry_of,
        state,
        exit,
        detail: row.get(16)?,
        attempt: AttemptNo(row.get(17)?),
        created_at: Time(row.get(18)?),
        started_at: time(19)?,
        ended_at: time(20)?,
        updated_at: Time(row.get(21)?),
        summary: row.get(22)?,
        claim: word(&id, "claim", row.get(23)?),
        result: row.get(24)?,
        percent: row.get(25)?,
        progress: row.get(26)?,
        annotation: row.get(27)?,
        ignored: row.get(51)?,
        ignored_why: row.get(52)?,
        stalled_at: time(53)?,
        stall_seq: row.get::<Option<i64>>(54)?.map(EventSeq),
        note: row.get(55)?,
        checkpoint,
        checkpoint_attempt,
        resolution: row.get(40)?,
        next_step: row.get(41)?,
        choice: word(&id, "choice", row.get(42)?),
        eta: row.get(43)?,
        containment: row.get(28)?,
        swept: row.get(29)?,
        output_left_open: row.get(30)?,
        active_ms: row.get(31)?,
        active_since: row.get::<Option<i64>>(56)?.map(SteadyTime),
        estimate_ms: row.get(57)?,
        overdue_at: time(58)?,
        overdue_seq: row.get::<Option<i64>>(59)?.map(EventSeq),
        session: row.get(44)?,
        usage,
        pending: row.get(32)?,
        blocking_pending: row.get(33)?,
        unread: row.get(34)?,
        holding: row.get(49)?,
        rank,
        last_seq: EventSeq(row.get(35)?),
        end_seq: row.get::<Option<i64>>(36)?.map(EventSeq),
        shortfall: word(&id, "shortfall", row.get(60)?),
        is_owner_notified: row.get(61)?,
        retrying: json::<RetryingRow>(&id, "retrying", row.get(62)?).map(RetryingRow::decode),
        retrying_seq: row.get::<Option<i64>>(63)?.map(EventSeq),
        subagents: row.get(64)?,
        result_bytes: count(65)?,
        result_gap: word(&id, "result_gap", row.get(66)?),
        reconstructed: row.get(67)?,
        fence: json::<FenceState>(&id, "fence", row.get(68)?),
        snapshot_problem: row.get(69)?,
        snapshot_seq: row.get::<Option<i64>>(70)?.map(EventSeq),
        conflict_seq: row.get::<Option<i64>>(71)?.map(EventSeq),
        pool: row.get(72)?,
        after_open: count(73)?.unwrap_or(0),
        after_failed: word(&id, "after_failed", row.get(74)?).unwrap_or_default(),
        agent_why: row.get(75)?,
        resources: row.get(76)?,
        overlap_seq: row.get::<Option<i64>>(77)?.map(EventSeq),
        unpriced_tokens: row.get(78)?,
        is_priced: row.get(79)?,
        budget_seq: row.get::<Option<i64>>(80)?.map(EventSeq),
        reported: match (time(81)?, row.get::<Option<i64>>(82)?) {
            (Some(at), Some(seq)) => Some(Reported {
                at,
                seq: EventSeq(seq),
                is_owner_notified: row.get(83)?,
            }),
            _ => None,
        },
    }))
}

/// Returns the statement of [`list`].
pub(super) fn list_statement(rest: &str) -> String {
    format!("{COLUMNS} {rest}")
}

pub(in crate::store) fn list(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<Run>, StoreError> {
    connection
        .prepare_cached(&list_statement(rest))?
        .query_map(values, read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
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
            assert_eq!(StateRow::of(state).state(), Some(state));
        }
    }
}
