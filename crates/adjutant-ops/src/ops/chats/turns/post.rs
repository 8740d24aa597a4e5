//! Posting the answers of ended runs.

use crate::config::Config;
use crate::ops::OpError;
use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::publish::{Publication, publish};
use crate::ops::chats::turns::window::FLAG;
use crate::ops::chats::work_context::WorkContext;
use crate::ops::results::Results;
use crate::ops::settings::Settings;
use crate::store::{
    Chat, ChatEntry, NewEntry, Run, Store, StoreError, Turn, TurnState, Tx, run_by_id, turn_by_id,
    turns_running,
};
use adjutant_core::chat::{EntryKind, MESSAGE_BYTES_MAX, Participant, is_decision};
use adjutant_core::run::Retention;
use adjutant_core::{Outcome, Principal, RunEvent, RunState, StopReason, shorten};

/// Maximum number of characters quoted from a failed run's output.
const FAILURE_CHARS_MAX: usize = 2_000;
const FLAGS_MAX: usize = 20;

/// The result of a turn's run.
pub(super) enum TurnResult {
    Answer(String),
    Failure(String),
}

pub(super) async fn post_answers(
    store: &Store,
    settings: &Settings,
    results: &Results,
) -> Result<bool, OpError> {
    let ended = store.read(|connection| {
        let mut ended = Vec::new();
        for turn in turns_running(connection)? {
            let run = turn
                .run
                .map(|run| run_by_id(connection, run))
                .transpose()?
                .flatten();
            if run.as_ref().is_none_or(has_ended) {
                ended.push((turn, run));
            }
        }
        Ok(ended)
    })?;
    let (mut posted, mut failed) = (false, None);
    for (turn, run) in ended {
        let id = turn.id;
        let (config, retention) = (settings.config_or_builtin(), settings.retention());
        let post = async {
            let result = turn_result(results, run.as_ref()).await?;
            Ok(store
                .write(move |tx| post(tx, &config, &turn, run, result, retention))
                .await?)
        };
        match post.await {
            Ok(()) => posted = true,
            Err(error) => failed = set_aside(store, settings, failed, id, error).await,
        }
    }
    failed.map_or(Ok(posted), Err)
}

async fn turn_result(results: &Results, run: Option<&Run>) -> Result<TurnResult, OpError> {
    let Some(run) = run else {
        return Ok(TurnResult::Failure("its run was removed".to_owned()));
    };
    let result = run.result.clone().unwrap_or_default();
    match run.state {
        RunState::Finished(Outcome::Succeeded) => {}
        state => return Ok(TurnResult::Failure(failure(run, state, &result))),
    }
    let text = whole_answer(results, run).await?;
    let text = text.trim_end();
    // Fall back to the reported summary.
    let text = if text.trim().is_empty() {
        run.summary.as_deref().unwrap_or("")
    } else {
        text
    };
    Ok(if text.trim().is_empty() {
        TurnResult::Failure("it wrote no message".to_owned())
    } else {
        TurnResult::Answer(text.to_owned())
    })
}

/// Returns a run's whole answer. If it is too long, its beginning is cut, with a note.
async fn whole_answer(results: &Results, run: &Run) -> Result<String, OpError> {
    let (text, is_cut) = results.whole_message(run).await?;
    if text.len() <= MESSAGE_BYTES_MAX && !is_cut {
        return Ok(text);
    }
    let note = format!(
        "(The beginning of this answer is cut; see adj logs {}.)\n",
        run.name
    );
    let end = shorten::tail(&text, MESSAGE_BYTES_MAX - note.len());
    Ok(format!("{note}{end}"))
}

/// Handles a turn's error: a permanent one ends the turn, others are retried later. Returns the
/// first error to retry.
pub(super) async fn set_aside(
    store: &Store,
    settings: &Settings,
    before: Option<OpError>,
    id: i64,
    error: OpError,
) -> Option<OpError> {
    tracing::error!(%error, turn = id, "an answer cannot be processed");
    if !matches!(
        error,
        OpError::Store(StoreError::Denied(_) | StoreError::Corrupt(_))
    ) {
        return before.or(Some(error));
    }
    let (config, retention, why) = (
        settings.config_or_builtin(),
        settings.retention(),
        error.to_string(),
    );
    let ended = store.write(move |tx| {
        let Some(turn) = turn_by_id(tx.connection(), id)? else {
            return Ok(());
        };
        let run = turn
            .run
            .map(|run| run_by_id(tx.connection(), run))
            .transpose()?
            .flatten();
        post(tx, &config, &turn, run, TurnResult::Failure(why), retention)
    });
    match ended.await {
        Ok(()) => before,
        Err(error) => before.or(Some(error.into())),
    }
}

/// Posts the result of a turn, if it is still open.
pub(super) fn post(
    tx: &mut Tx<'_>,
    config: &Config,
    turn: &Turn,
    run: Option<Run>,
    result: TurnResult,
    retention: Retention,
) -> Result<(), StoreError> {
    let Some(turn) = turn_by_id(tx.connection(), turn.id)?.filter(|turn| turn.state.is_open())
    else {
        return Ok(());
    };
    let chat = tx.chat(turn.chat)?;
    if let Some(run) = &run
        && let Some(run) =
            run_by_id(tx.connection(), run.id)?.filter(|run| !run.state.is_finished())
    {
        tx.advance(
            &run,
            RunEvent::Retired,
            retention,
            "hub",
            "it did not answer",
        )?;
    }
    let (kind, text, state) = match result {
        TurnResult::Answer(text) if turn.is_summary => {
            let (flags, text) = split_flags(&text);
            for flag in flags {
                add_flag(tx, &turn, flag)?;
            }
            (EntryKind::Summary, text, TurnState::Answered)
        }
        TurnResult::Answer(text) => (EntryKind::Answer, text, TurnState::Answered),
        TurnResult::Failure(why) => {
            let what = if turn.is_summary {
                "summarise the chat"
            } else {
                "answer"
            };
            (
                EntryKind::Failure,
                format!("{} could not {what}: {why}", turn.agent),
                TurnState::Failed,
            )
        }
    };
    let entry = new_entry(&turn, kind, text);
    let entry = if kind == EntryKind::Answer {
        publish_answer(tx, config, &chat, &turn, entry)?
    } else {
        tx.add_entry(chat.id, &entry)?
    };
    tx.end_turn(&turn, state, Some(entry.seq)).map(|_| ())
}

/// Adds a statement of a summary that a person should see.
fn add_flag(tx: &mut Tx<'_>, turn: &Turn, flag: String) -> Result<(), StoreError> {
    let flagged = NewEntry {
        reply_to: None,
        ..new_entry(turn, EntryKind::Flag, flag)
    };
    let entry = tx.add_entry(turn.chat, &flagged)?;
    tx.mention(
        turn.chat,
        &Participant::Principal(Principal::Person),
        "person",
        entry.seq,
    )
}

/// Splits a summary into the lines that are flags and the rest.
fn split_flags(summary: &str) -> (Vec<String>, String) {
    let flags = summary
        .lines()
        .filter_map(|line| line.trim().strip_prefix(FLAG))
        .take(FLAGS_MAX)
        .map(|flag| flag.trim().to_owned())
        .collect();
    let text = summary
        .lines()
        .filter(|line| !line.trim().starts_with(FLAG))
        .collect::<Vec<_>>()
        .join("\n");
    if text.trim().is_empty() {
        (flags, "(only flags)".to_owned())
    } else {
        (flags, text)
    }
}

/// Publishes an answer. Names in it are resolved with the access of its run.
fn publish_answer(
    tx: &mut Tx<'_>,
    config: &Config,
    chat: &Chat,
    turn: &Turn,
    entry: NewEntry,
) -> Result<ChatEntry, StoreError> {
    let by = turn
        .run
        .map_or_else(|| chat.scope.owner.clone(), Principal::Run);
    let caller = ChatCaller::of(tx.connection(), &by)?;
    let publication = Publication {
        config,
        caller: &caller,
        by: &by,
        chat,
        entry,
        to: Vec::new(),
        said_by_agent: Some(turn.agent.clone()),
        responder: None,
        work_context: WorkContext {
            cwd: turn.cwd.clone(),
            env: turn.env.clone(),
        },
    };
    Ok(publish(tx, publication)?.entry)
}

/// Creates an entry by a turn's agent.
fn new_entry(turn: &Turn, kind: EntryKind, text: String) -> NewEntry {
    NewEntry {
        pinned: kind == EntryKind::Answer && is_decision(&text),
        kind,
        author: Participant::Agent(turn.agent.clone()),
        name: turn.agent.to_string(),
        label: None,
        text,
        reply_to: (!turn.is_summary).then_some(turn.message),
        hops: turn.hops + 1,
        key: None,
    }
}

/// Returns whether an answering run has ended: it has finished, or stopped for a reason that
/// neither an answer nor time resolves.
fn has_ended(run: &Run) -> bool {
    match run.state {
        RunState::Finished(_) => true,
        RunState::Stopped { reason, .. } => {
            !reason.waits_for_model()
                && !matches!(
                    reason,
                    StopReason::Parked | StopReason::Paused | StopReason::MemoryPressure
                )
        }
        RunState::Queued | RunState::Starting | RunState::Running | RunState::Stopping(_) => false,
    }
}

fn failure(run: &Run, state: RunState, output: &str) -> String {
    let why = match state {
        RunState::Finished(outcome) => outcome.to_string(),
        RunState::Stopped { reason, .. } => format!("stopped: {}", reason.word()),
        other => other.word().to_owned(),
    };
    let mut text = format!("{why} (run {})", run.name);
    if let Some(detail) = &run.detail {
        text.push_str(&format!(": {detail}"));
    }
    text.push_str(&format!(
        "\nIts log: adj logs {name}, or get_subagent_logs run_id={name}",
        name = run.name
    ));
    let last = shorten::tail_chars(output, FAILURE_CHARS_MAX);
    if !last.is_empty() {
        text.push_str(&format!("\nIts last words: {last}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_summary_are_separate_from_its_text() {
        let (flags, text) = split_flags(&format!("Done.\n  {FLAG} no tests \nNext: merge."));
        assert_eq!(flags, ["no tests"]);
        assert_eq!(text, "Done.\nNext: merge.");
    }

    #[test]
    fn summary_of_flags_only_says_so_and_has_a_limit() {
        let all = format!("{FLAG} again\n").repeat(FLAGS_MAX + 1);
        let (flags, text) = split_flags(&all);
        assert_eq!((flags.len(), text.as_str()), (FLAGS_MAX, "(only flags)"));
        assert_eq!(split_flags(""), (Vec::new(), "(only flags)".to_owned()));
    }
}
