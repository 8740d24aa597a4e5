//! Reading and cancelling agents' answers.

use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::entry::found;
use crate::ops::chats::render;
use crate::ops::{Caller, OpError, Ops};
use crate::store::{Chat, StoreError, Topic, TurnState, Tx, entry_by_seq, member, run_by_id, turn_by_id, turns_to_answer};
use crate::view::{Answers, CancelAnswers, ReadAnswers};
use adjutant_core::chat::check_edit;
use adjutant_core::run::Retention;
use adjutant_core::{Action, Denied, Principal, RunEvent, StopReason};
use tokio::time::Instant;

impl Ops {
    /// Reads the agents' answers to a message, optionally waiting until all have answered.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn read_answers(&self, who: &Principal, call: &ReadAnswers) -> Result<Answers, OpError> {
        Self::check(who, Action::ReadChat)?;
        let chat = self.store.read(|connection| ChatCaller::of(connection, who)?.chat(connection, call.chat_id))?;
        let deadline = crate::ops::end_of_wait(call.wait_ms);
        let subscription = self.store.wake_ups().subscribe(vec![Topic::Chat(chat.id)]);
        loop {
            let answers = self.answers(&chat, call.seq, call.turn)?;
            if answers.waiting.is_empty() || Instant::now() >= deadline {
                self.note_read(who, &chat, &answers).await?;
                return Ok(answers);
            }
            if tokio::time::timeout_at(deadline, subscription.wait()).await.is_err() {
                continue;
            }
        }
    }

    /// Cancels the runs that answer a message.
    ///
    /// # Errors
    /// Unknown, foreign, or another author's message.
    pub async fn cancel_answers(&self, caller: Caller, call: CancelAnswers) -> Result<Answers, OpError> {
        Self::check(&caller.who, Action::Say)?;
        let who = caller.who.clone();
        let retention = self.retention();
        let (chat, seq) = (call.chat_id, call.seq);
        self.write(caller, move |tx, who| {
            let chat = ChatCaller::of(tx.connection(), who)?.chat(tx.connection(), call.chat_id)?;
            let entry = found(tx, &chat, call.seq)?;
            if *who != Principal::Person {
                let foreign = Denied::NotAllowed { who: "you", action: "end the answers to another author's message" };
                check_edit(who, &entry.author).map_err(|_| foreign)?;
            }
            crate::ops::chats::answers::cancel(tx, &chat, call.seq, retention, &who.to_string())
        })
        .await?;
        let chat = self.store.read(|connection| ChatCaller::of(connection, &who)?.chat(connection, chat))?;
        self.answers(&chat, seq, None)
    }

    /// Marks answers as read when nothing unread precedes them.
    async fn note_read(&self, who: &Principal, chat: &Chat, answers: &Answers) -> Result<(), OpError> {
        let read_seq = self.store.read(|connection| member(connection, chat.id, &who.to_string()))?.map_or(0, |member| member.read_seq);
        let seqs: Vec<i64> = answers.answers.iter().map(|answer| answer.seq).filter(|seq| *seq > read_seq).collect();
        if seqs.is_empty() {
            return Ok(());
        }
        let (id, who) = (chat.id, who.clone());
        self.store
            .write(move |tx| {
                let caller = ChatCaller::of(tx.connection(), &who)?;
                seqs.iter().try_for_each(|seq| tx.read_chat(id, &caller.participant(), &caller.name, *seq, *seq))
            })
            .await?;
        Ok(())
    }

    /// Reads the answers to a message, or the result of one turn.
    fn answers(&self, chat: &Chat, seq: i64, only: Option<i64>) -> Result<Answers, OpError> {
        Ok(self.store.read(|connection| {
            let mut answers = Answers { turn: only, ..Answers::default() };
            let turns = match only {
                Some(turn) => turn_by_id(connection, turn)?.into_iter().filter(|turn| turn.chat == chat.id).collect(),
                None => turns_to_answer(connection, chat.id, seq)?,
            };
            for turn in turns {
                match turn.entry {
                    Some(entry) => answers.answers.extend(entry_by_seq(connection, chat.id, entry)?.as_ref().map(render::entry)),
                    None if turn.state.is_open() => answers.waiting.push(turn.agent.to_string()),
                    None => {}
                }
            }
            answers.answers.sort_by_key(|answer| answer.seq);
            Ok(answers)
        })?)
    }
}

/// Cancels the open turns of a message: their runs, or the turns themselves if they have not started.
pub(super) fn cancel(tx: &mut Tx<'_>, chat: &Chat, seq: i64, retention: Retention, by: &str) -> Result<(), StoreError> {
    for turn in turns_to_answer(tx.connection(), chat.id, seq)?.into_iter().filter(|turn| turn.state.is_open()) {
        match turn.run {
            None => {
                tx.end_turn(&turn, TurnState::Cancelled, None)?;
            }
            Some(run) => {
                if let Some(run) = run_by_id(tx.connection(), run)?.filter(|run| !run.state.is_finished()) {
                    tx.advance(&run, RunEvent::StopAsked(StopReason::Cancelled), retention, by, "nobody waits for its answer")?;
                }
            }
        }
    }
    Ok(())
}
