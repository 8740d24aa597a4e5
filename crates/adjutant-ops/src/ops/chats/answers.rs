//! Reading and cancelling agents' answers.

use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::entry::found;
use crate::ops::chats::render;
use crate::ops::chats::wake::{has_messages, topics_of};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup};
use crate::store::{
    Chat, Connection, NoteReceipt, Store, StoreError, Topic, TurnState, Tx, entry_by_seq, member,
    newest_mention_elsewhere, receipts_of, reply_of, run_by_id, turn_by_id, turns_to_answer,
};
use crate::view::{Answers, CancelAnswers, ReadAnswers};
use adjutant_core::chat::check_edit;
use adjutant_core::run::Retention;
use adjutant_core::{Action, Denied, Principal, RunEvent, StopReason};
use tokio::time::Instant;

/// Reads the agents' answers to a message, optionally waiting until all have answered.
///
/// # Errors
/// Unknown or foreign.
pub async fn read_answers(
    store: &Store,
    who: &Principal,
    call: &ReadAnswers,
) -> Result<Answers, OpError> {
    lookup::check(who, Action::ReadChat)?;
    let chat =
        store.read(|connection| ChatCaller::of(connection, who)?.chat(connection, call.chat_id))?;
    let deadline = crate::ops::end_of_wait(call.wait_ms);
    let mut topics = vec![Topic::Chat(chat.id)];
    let unread = |connection: &Connection| {
        Ok::<_, StoreError>((
            has_messages(connection, who)?,
            newest_mention_elsewhere(connection, &who.to_string(), chat.id)?,
        ))
    };
    let mut before = None;
    if call.replies {
        topics.extend(topics_of(who));
        let addressed = store.read(|connection| {
            before = Some(unread(connection)?.1);
            addressed_runs(connection, &chat, call.seq)
        })?;
        topics.extend(addressed.iter().map(|receipt| Topic::Run(receipt.run)));
    }
    let subscription = store.wake_ups().subscribe(topics);
    loop {
        let mut answers = answers(store, &chat, call.seq, call.turn)?;
        let mut is_interrupted = false;
        if let Some(before) = before {
            add_replies(store, &chat, call.seq, &mut answers)?;
            let (has_messages, newest) = store.read(unread)?;
            answers.has_messages = has_messages;
            is_interrupted = has_messages || newest > before;
        }
        if answers.waiting.is_empty() || is_interrupted || Instant::now() >= deadline {
            note_read(store, who, &chat, &answers).await?;
            return Ok(answers);
        }
        if tokio::time::timeout_at(deadline, subscription.wait())
            .await
            .is_err()
        {
            continue;
        }
    }
}

/// Adds the replies of the addressed runs, and the runs that can still reply.
fn add_replies(store: &Store, chat: &Chat, seq: i64, answers: &mut Answers) -> Result<(), OpError> {
    store.read(|connection| {
        let addressed = addressed_runs(connection, chat, seq)?;
        answers.receipts = addressed.iter().map(render::receipt).collect();
        for receipt in addressed {
            match reply_of(connection, chat.id, seq, receipt.run)? {
                Some(reply) => answers.answers.push(render::entry(&reply)),
                None if receipt.receipt.is_open(receipt.has_ended) => {
                    answers.waiting.push(receipt.name)
                }
                None => {}
            }
        }
        answers.answers.sort_by_key(|answer| answer.seq);
        Ok::<_, StoreError>(())
    })?;
    Ok(())
}

/// Cancels the runs that answer a message.
///
/// # Errors
/// Unknown, foreign, or another author's message.
pub async fn cancel_answers(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    call: CancelAnswers,
) -> Result<Answers, OpError> {
    lookup::check(&caller.who, Action::Say)?;
    let retention = settings.retention();
    caller
        .write(store, move |tx, who| {
            let chat = ChatCaller::of(tx.connection(), who)?.chat(tx.connection(), call.chat_id)?;
            let entry = found(tx, &chat, call.seq)?;
            if *who != Principal::Person {
                let foreign = Denied::NotAllowed {
                    who: "you",
                    action: "end the answers to another author's message",
                };
                check_edit(who, &entry.author).map_err(|_| foreign)?;
            }
            crate::ops::chats::answers::cancel(tx, &chat, call.seq, retention, &who.to_string())?;
            answers_to(tx.connection(), &chat, call.seq, None)
        })
        .await
}

/// Marks answers as read when nothing unread precedes them.
async fn note_read(
    store: &Store,
    who: &Principal,
    chat: &Chat,
    answers: &Answers,
) -> Result<(), OpError> {
    let read_seq = store
        .read(|connection| member(connection, chat.id, &who.to_string()))?
        .map_or(0, |member| member.read_seq);
    let seqs: Vec<i64> = answers
        .answers
        .iter()
        .map(|answer| answer.seq)
        .filter(|seq| *seq > read_seq)
        .collect();
    if seqs.is_empty() {
        return Ok(());
    }
    let (id, who) = (chat.id, who.clone());
    store
        .write(move |tx| {
            let caller = ChatCaller::of(tx.connection(), &who)?;
            seqs.iter().try_for_each(|seq| {
                tx.read_chat(id, &caller.participant(), &caller.name, *seq, *seq)
            })
        })
        .await?;
    Ok(())
}

fn answers(store: &Store, chat: &Chat, seq: i64, only: Option<i64>) -> Result<Answers, OpError> {
    Ok(store.read(|connection| answers_to(connection, chat, seq, only))?)
}

/// Reads the answers to a message, or the result of one turn.
fn answers_to(
    connection: &Connection,
    chat: &Chat,
    seq: i64,
    only: Option<i64>,
) -> Result<Answers, StoreError> {
    let mut answers = Answers {
        turn: only,
        ..Answers::default()
    };
    let turns = match only {
        Some(turn) => turn_by_id(connection, turn)?
            .into_iter()
            .filter(|turn| turn.chat == chat.id)
            .collect(),
        None => turns_to_answer(connection, chat.id, seq)?,
    };
    for turn in turns {
        match turn.entry {
            Some(entry) => answers.answers.extend(
                entry_by_seq(connection, chat.id, entry)?
                    .as_ref()
                    .map(render::entry),
            ),
            None if turn.state.is_open() => answers.waiting.push(turn.agent.to_string()),
            None => {}
        }
    }
    answers.answers.sort_by_key(|answer| answer.seq);
    Ok(answers)
}

/// Returns the runs to which a message was sent.
fn addressed_runs(
    connection: &Connection,
    chat: &Chat,
    seq: i64,
) -> Result<Vec<NoteReceipt>, StoreError> {
    match entry_by_seq(connection, chat.id, seq)? {
        Some(entry) => receipts_of(connection, entry.id),
        None => Err(Denied::not_found("message", &format!("{}.{seq}", chat.id)).into()),
    }
}

/// Cancels the open turns of a message: their runs, or the turns themselves if they have not
/// started.
pub(super) fn cancel(
    tx: &mut Tx<'_>,
    chat: &Chat,
    seq: i64,
    retention: Retention,
    by: &str,
) -> Result<(), StoreError> {
    for turn in turns_to_answer(tx.connection(), chat.id, seq)?
        .into_iter()
        .filter(|turn| turn.state.is_open())
    {
        match turn.run {
            None => {
                tx.end_turn(&turn, TurnState::Cancelled, None)?;
            }
            Some(run) => {
                if let Some(run) =
                    run_by_id(tx.connection(), run)?.filter(|run| !run.state.is_finished())
                {
                    tx.advance(
                        &run,
                        RunEvent::StopAsked(StopReason::Cancelled),
                        retention,
                        by,
                        "nobody waits for its answer",
                    )?;
                }
            }
        }
    }
    Ok(())
}
