//! Saying something in a chat, or to somebody; editing and pinning; a board's entries.

use super::publish::{Ground, Publication, publish};
use super::seat::{Seat, check_can_see};
use super::{entry_no, render};
use crate::config::Config;
use crate::ops::{Caller, OpError, Ops};
use crate::store::{
    Chat, ChatEntry, KeptCredentials, NewChat, NewEntry, NewTurn, Run, StoreError, Topic, Tx, chat_by_pair, entry_by_key, entry_by_seq, hops_behind,
    member, members, turn_by_id, turn_of_run, turns_to_answer,
};
use crate::view::{Answers, CancelAnswers, ReadAnswers, Said, Say, SummariseChat};
use adjutant_core::chat::{self, ChatId, ChatKind, EntryKind, KEY_BYTES_MAX, Participant, Scope, check_edit};
use adjutant_core::{Action, AgentName, Denied, Principal};
use std::collections::BTreeMap;
use std::path::Path;
use tokio::time::Instant;

/// The board that all runs of the caller's owner share.
const BOARD: &str = "board";
/// The board of the calling run's own tree.
const ROOT_BOARD: &str = "root-board";
/// Most characters of a board's entry in a refusal.
const CURRENT_CHARS_MAX: usize = 2_000;

impl Ops {
    /// Says something. Durable when it returns; who has to answer does so by itself.
    ///
    /// # Errors
    /// Unknown or foreign chats and participants, an archived chat, a text that cannot be used.
    pub async fn say(&self, caller: Caller, mut call: Say) -> Result<Said, OpError> {
        Self::check(&caller.who, Action::Say)?;
        if let Some(message) = &call.message {
            chat::checked_message(message)?;
        }
        call.label = call.label.as_deref().map(chat::checked_label).transpose()?;
        let config = self.config()?;
        let (ground, kept) = self.ground(&caller.who, &call.cwd, &call.env)?;
        let say = move |tx: &mut Tx<'_>, who: &Principal| {
            let seat = Seat::of(tx.connection(), who)?;
            say(tx, &config, &seat, call, ground)
        };
        // The reply is its own receipt: what was said may be edited before it is asked for again.
        let said = self.write_with_receipt(caller, say, Said::clone, |_, said| Ok(said)).await;
        self.settle_credentials(kept).await;
        said
    }

    /// Where a run would work that answers this: a run's words are answered where it works. The credentials are
    /// to be settled once the turn is on record, or is not.
    pub(super) fn ground(&self, who: &Principal, cwd: &str, env: &BTreeMap<String, String>) -> Result<(Ground, KeptCredentials), OpError> {
        let fallback = || Ok::<_, OpError>(self.home.dir.display().to_string());
        match who {
            Principal::Run(_) => {
                let run = self.store.read(|connection| Seat::of(connection, who))?.run;
                let kept = self.store.hold_credentials(BTreeMap::new())?;
                Ok((Ground { cwd: run.map_or_else(fallback, |run| Ok(run.cwd))?, env: kept.env.clone() }, kept))
            }
            Principal::Person | Principal::Client(_) => {
                crate::ops::runs::checked_env(env)?;
                let cwd = match who {
                    _ if !cwd.is_empty() => crate::ops::runs::checked_cwd(cwd)?,
                    Principal::Client(client) if Path::new(client.as_str()).is_dir() => crate::ops::runs::checked_cwd(client.as_str())?,
                    _ => fallback()?,
                };
                let kept = self.store.hold_credentials(env.clone())?;
                Ok((Ground { cwd, env: kept.env.clone() }, kept))
            }
        }
    }

    /// Reads what agents answered to a message, waiting until all have.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn read_answers(&self, who: &Principal, call: &ReadAnswers) -> Result<Answers, OpError> {
        Self::check(who, Action::ReadChat)?;
        let chat = self.store.read(|connection| Seat::of(connection, who)?.chat(connection, call.chat_id))?;
        let deadline = crate::ops::end_of_wait(call.wait_ms);
        let listener = self.store.bells().listen(vec![Topic::Chat(chat.id)]);
        loop {
            let answers = self.answers(&chat, call.seq, call.turn)?;
            if answers.waiting.is_empty() || Instant::now() >= deadline {
                self.note_read(who, &chat, &answers).await?;
                return Ok(answers);
            }
            if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                continue;
            }
        }
    }

    /// What is brought to a reader as an answer is read, where nothing unread lies before it.
    async fn note_read(&self, who: &Principal, chat: &Chat, answers: &Answers) -> Result<(), OpError> {
        let read_seq = self.store.read(|connection| member(connection, chat.id, &who.to_string()))?.map_or(0, |member| member.read_seq);
        let seqs: Vec<i64> = answers.answers.iter().map(|answer| answer.seq).filter(|seq| *seq > read_seq).collect();
        if seqs.is_empty() {
            return Ok(());
        }
        let (id, who) = (chat.id, who.clone());
        self.store
            .write(move |tx| {
                let seat = Seat::of(tx.connection(), &who)?;
                seqs.iter().try_for_each(|seq| tx.read_chat(id, &seat.participant(), &seat.name, *seq, *seq))
            })
            .await?;
        Ok(())
    }

    /// Reads the answers to a message, or what came of one turn.
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

    /// Has an agent summarise a chat. Durable when it returns; the summary becomes an entry.
    ///
    /// # Errors
    /// Unknown or foreign, no agent to do it.
    pub async fn summarise_chat(&self, caller: Caller, call: SummariseChat) -> Result<Answers, OpError> {
        Self::check(&caller.who, Action::Say)?;
        if matches!(caller.who, Principal::Run(_)) {
            return Err(Denied::NotAllowed { who: "a run", action: "have chats summarised" }.into());
        }
        let config = self.config()?;
        let agent = match &call.agent {
            Some(name) => AgentName::parse(name).ok().filter(|name| config.agents.contains_key(name)),
            None => config.chats.summariser.clone(),
        };
        let Some(agent) = agent else {
            return Err(Denied::invalid("agent", "name one (adj chat summarise --agent NAME), or set chats.summariser in the configuration").into());
        };
        let (ground, kept) = self.ground(&caller.who, &call.cwd, &call.env)?;
        let summarise = move |tx: &mut Tx<'_>, who: &Principal| {
            let chat = Seat::of(tx.connection(), who)?.chat(tx.connection(), call.chat_id)?;
            let waiting = vec![agent.to_string()];
            let turn = tx.queue_turn(&summary(chat.id, agent, ground))?;
            Ok(Answers { answers: Vec::new(), waiting, turn: Some(turn) })
        };
        let answers = self.write(caller, summarise).await;
        self.settle_credentials(kept).await;
        answers
    }

    /// Ends the runs that answer a message.
    ///
    /// # Errors
    /// Unknown, foreign, or somebody else's message.
    pub async fn cancel_answers(&self, caller: Caller, call: CancelAnswers) -> Result<Answers, OpError> {
        Self::check(&caller.who, Action::Say)?;
        let who = caller.who.clone();
        let retention = self.retention();
        let (chat, seq) = (call.chat_id, call.seq);
        self.write(caller, move |tx, who| {
            let chat = Seat::of(tx.connection(), who)?.chat(tx.connection(), call.chat_id)?;
            let entry = found(tx, &chat, call.seq)?;
            if *who != Principal::Person {
                let foreign = Denied::NotAllowed { who: "you", action: "end the answers to a message that somebody else wrote" };
                check_edit(who, &entry.author).map_err(|_| foreign)?;
            }
            super::turns::cancel(tx, &chat, call.seq, retention, &who.to_string())
        })
        .await?;
        let chat = self.store.read(|connection| Seat::of(connection, &who)?.chat(connection, chat))?;
        self.answers(&chat, seq, None)
    }
}

/// The turn in which an agent summarises a chat.
pub(super) fn summary(chat: ChatId, agent: AgentName, ground: Ground) -> NewTurn {
    let Ground { cwd, env } = ground;
    NewTurn { chat, agent, is_summary: true, message: 0, hops: 0, cwd, env }
}

fn found(tx: &Tx<'_>, chat: &Chat, seq: i64) -> Result<ChatEntry, StoreError> {
    entry_by_seq(tx.connection(), chat.id, seq)?.ok_or_else(|| Denied::not_found("message", &format!("{}.{seq}", chat.id)).into())
}

fn say(tx: &mut Tx<'_>, config: &Config, seat: &Seat, call: Say, ground: Ground) -> Result<Said, StoreError> {
    let Say { chat_id, to, message, reply_to, edit_of, pin, label, key, expect, default_responder, cwd: _, env: _ } = call;
    let chat_id = match (chat_id, &edit_of) {
        (None, Some(given)) => Some(entry_no("edit_of", None, given)?.0),
        (given, _) => given,
    };
    if chat_id.is_none() || edit_of.is_some() || key.is_some() {
        tx.may_refuse_late()?;
    }
    let (chat, to) = match chat_id {
        Some(id) => {
            let chat = seat.chat(tx.connection(), id)?;
            let to = to.iter().map(|name| seat.addressee(tx.connection(), config, name)).collect::<Result<Vec<_>, _>>()?;
            (chat, to)
        }
        None => match to.as_slice() {
            [one] if one == BOARD => (board(tx, config, seat, None)?, Vec::new()),
            [one] if one == ROOT_BOARD => (root_board(tx, config, seat)?, Vec::new()),
            [one] => (direct(tx, config, seat, one)?, Vec::new()),
            [] => return Err(Denied::invalid("chat_id", "say which chat, or in `to` whom it is for").into()),
            _ => return Err(Denied::invalid("to", "without chat_id it is for exactly one; start a chat for several").into()),
        },
    };
    if chat.archived {
        return Err(Denied::conflict("chat_id", format!("chat {} is archived: take it back first (adj chat archive --undo)", chat.id)).into());
    }
    let said = |entry: &ChatEntry, answering: &[AgentName], notes: Vec<String>| Said {
        chat_id: chat.id.0,
        title: chat.title.clone(),
        message: render::entry(entry),
        answering: answering.iter().map(ToString::to_string).collect(),
        notes,
    };
    if let Some(given) = edit_of {
        let (_, seq) = entry_no("edit_of", Some(chat.id.0), &given)?;
        let mut entry = found(tx, &chat, seq)?;
        if message.is_none() && pin.is_none() {
            return Err(Denied::invalid("message", "say the new text, or whether to pin it").into());
        }
        if let Some(text) = message {
            check_edit(&seat.viewer.who, &entry.author)?;
            entry = tx.revise_entry(&entry, &text, None)?;
        }
        if let Some(pin) = pin.or((!entry.pinned && chat::is_decision(&entry.text)).then_some(true)) {
            entry = tx.pin_entry(&entry, pin)?;
        }
        return Ok(said(&entry, &[], Vec::new()));
    }
    let Some(text) = message else { return Err(Denied::invalid("message", "is missing").into()) };
    if expect.is_some() && key.is_none() {
        return Err(Denied::invalid("expect", "is the version of a board's entry: say which (key)").into());
    }
    if let Some(key) = &key {
        if chat.kind != ChatKind::Board || key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Denied::invalid("key", format!("names an entry of a board (to=board), in 1 to {KEY_BYTES_MAX} bytes")).into());
        }
        let there = entry_by_key(tx.connection(), chat.id, key)?;
        let version = there.as_ref().map_or(0, |entry| entry.revision + 1);
        if let Some(expect) = expect.filter(|expect| *expect != version) {
            let now = there.as_ref().map_or_else(String::new, |entry| format!(": {}", current(entry)));
            return Err(Denied::conflict("expect", format!("{expect}, but the entry is at version {version}{now}")).into());
        }
        if let Some(entry) = there {
            let mut entry = tx.revise_entry(&entry, &text, Some((&seat.participant(), &seat.name)))?;
            if let Some(pin) = pin.or((!entry.pinned && chat::is_decision(&text)).then_some(true)) {
                entry = tx.pin_entry(&entry, pin)?;
            }
            return Ok(said(&entry, &[], Vec::new()));
        }
    }
    let reply_to = reply_to.map(|given| entry_no("reply_to", Some(chat.id.0), &given)).transpose()?.map(|(_, seq)| seq);
    if let Some(seq) = reply_to {
        found(tx, &chat, seq)?;
    }
    // A run that answers in a chat speaks as part of that turn, wherever it speaks.
    let turn = match &seat.run {
        Some(run) => turn_of_run(tx.connection(), run.id)?,
        None => None,
    };
    let hops = match &seat.run {
        Some(run) => hops_behind(tx.connection(), run, chat.id)?,
        None => 0,
    };
    check_can_see(tx.connection(), "to", &to, &chat)?;
    if turn.is_some() && chat.private {
        let there = members(tx.connection(), chat.id)?;
        if !to.iter().all(|(who, _)| there.iter().any(|member| member.who == *who && member.joined_at.is_some())) {
            return Err(Denied::NotAllowed { who: "an agent that answers", action: "bring others into a private chat" }.into());
        }
    }
    let decision = chat::is_decision(&text);
    let published = publish(
        tx,
        Publication {
            config,
            seat,
            by: &seat.viewer.who,
            chat: &chat,
            entry: NewEntry {
                kind: EntryKind::Message,
                author: seat.participant(),
                name: seat.name.clone(),
                label,
                text,
                reply_to,
                hops,
                pinned: pin.unwrap_or(decision),
                key,
            },
            to,
            said_by_agent: turn.map(|turn| turn.agent),
            responder: if default_responder { config.chats.default_responder.clone() } else { None },
            ground,
        },
    )?;
    Ok(said(&published.entry, &published.answering, published.notes))
}

/// Finds or starts the direct chat with somebody.
fn direct(tx: &mut Tx<'_>, config: &Config, seat: &Seat, to: &str) -> Result<Chat, StoreError> {
    let (other, name) = seat.addressee(tx.connection(), config, to)?;
    if other == seat.participant() {
        return Err(Denied::invalid("to", "is yourself").into());
    }
    let scope = match &other {
        Participant::Principal(run @ Principal::Run(_)) => {
            let theirs = Seat::of(tx.connection(), run)?.viewer.scope;
            let is_of_tree = seat.run.as_ref().is_none_or(|own| Some(own.root) == theirs.root);
            Scope { root: theirs.root.filter(|_| is_of_tree), ..theirs }
        }
        Participant::Principal(client @ Principal::Client(_)) if seat.run.is_none() => Scope { owner: client.clone(), root: None },
        Participant::Principal(_) | Participant::Agent(_) | Participant::Hub | Participant::FromFile(_) => seat.viewer.scope.clone(),
    };
    let mut ends = [seat.participant().to_string(), other.to_string()];
    ends.sort();
    let pair = format!("{}||{}|{}", scope.owner, ends[0], ends[1]);
    let chat = match chat_by_pair(tx.connection(), &pair)? {
        Some(chat) => chat,
        None => {
            let title = format!("{}, {}", chat::shown_name(&seat.participant(), &seat.name, None), chat::shown_name(&other, &name, None));
            tx.start_chat(&NewChat { title, ..unnamed(config, seat, ChatKind::Direct, scope, pair) })?
        }
    };
    tx.join_chat(chat.id, &seat.participant(), &seat.name)?;
    tx.join_chat(chat.id, &other, &name)?;
    Ok(chat)
}

/// Finds or starts the board that the runs of the caller's owner share, or that of one tree of them.
fn board(tx: &mut Tx<'_>, config: &Config, seat: &Seat, tree: Option<&Run>) -> Result<Chat, StoreError> {
    let scope = Scope { owner: seat.viewer.scope.owner.clone(), root: tree.map(|root| root.id) };
    let root = scope.root.map_or_else(String::new, |root| root.to_string());
    let pair = format!("{BOARD}|{}|{root}", scope.owner);
    if let Some(chat) = chat_by_pair(tx.connection(), &pair)? {
        return Ok(chat);
    }
    let title = tree.map_or_else(|| "Board".to_owned(), |root| format!("Board of {}", root.name));
    tx.start_chat(&NewChat { title, private: false, ..unnamed(config, seat, ChatKind::Board, scope, pair) })
}

/// Finds or starts the board of the calling run's tree.
fn root_board(tx: &mut Tx<'_>, config: &Config, seat: &Seat) -> Result<Chat, StoreError> {
    let Some(run) = &seat.run else {
        return Err(Denied::invalid("to", "root-board is a run's own: write to that of another by its chat_id").into());
    };
    let root = tx.run(run.root)?;
    board(tx, config, seat, Some(&root))
}

/// Writes what a board's entry says now, on one line, for whoever wanted to replace another version.
fn current(entry: &ChatEntry) -> String {
    let text: String = entry.text.chars().take(CURRENT_CHARS_MAX).collect();
    let cut = if text.len() < entry.text.len() { " (cut)" } else { "" };
    let by = chat::shown_name(&entry.author, &entry.name, None);
    format!("{:?}{cut} by {by}", adjutant_core::quote::sanitize(&text))
}

fn unnamed(config: &Config, seat: &Seat, kind: ChatKind, scope: Scope, pair: String) -> NewChat {
    NewChat {
        kind,
        title: String::new(),
        scope,
        private: true,
        pair: Some(pair),
        template: None,
        instructions: None,
        window: config.chats.window,
        turns_max: config.chats.turns_max,
        branch_of: None,
        started_by: seat.participant(),
        started_name: seat.name.clone(),
    }
}
