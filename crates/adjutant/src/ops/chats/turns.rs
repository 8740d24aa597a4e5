//! Agents that answer. A turn is answered by one ordinary run: it is queued in the transaction that
//! notes it with the turn, and what came of it is posted in the transaction that ends the turn. So
//! each happens once, however often this is begun anew.

use super::publish::{Ground, Publication, publish};
use super::seat::{Seat, name_of};
use super::window::{FLAG, Told, Uncounted, told};
use crate::clock;
use crate::config::Config;
use crate::ops::{OpError, Ops, agents};
use crate::store::{
    Chat, NewEntry, NewRun, NewTurn, Run, RunInput, StoreError, Turn, TurnState, Tx, next_turns, run_by_id, turn_by_id, turns_running,
    turns_to_answer,
};
use adjutant_core::chat::{EntryKind, Participant, Viewer};
use adjutant_core::run::Retention;
use adjutant_core::tree::Rank;
use adjutant_core::{Outcome, Principal, RunEvent, RunId, RunState, StopReason};
use std::path::Path;

/// A run's own record of its last words is cut at this length; beyond, its log is read.
const LAST_WORDS_BYTES: usize = 16 * 1024 - 4;
/// Most characters of a failed run's words that its failure quotes.
const FAILURE_CHARS_MAX: usize = 2_000;
const FLAGS_MAX: usize = 20;

/// What became of a turn's run.
enum Came {
    Answer(String),
    Failure(String),
}

impl Ops {
    /// Posts what the runs that have ended came to, and starts those that are next. Returns what has
    /// to be counted before the others can start.
    ///
    /// # Errors
    /// A failure of the store; what was done so far stays done.
    pub async fn run_turns(&self) -> Result<Vec<Uncounted>, OpError> {
        loop {
            let posted = self.post_answers().await?;
            let (begun, uncounted) = self.begin_turns().await?;
            if !posted && !begun {
                return Ok(uncounted);
            }
        }
    }

    /// Keeps how many tokens entries have.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn note_tokens(&self, counted: Vec<(Uncounted, u64)>) -> Result<(), OpError> {
        let note = move |tx: &mut Tx<'_>| counted.iter().try_for_each(|(entry, tokens)| tx.note_tokens(entry.entry, entry.revision, *tokens));
        Ok(self.store.write(note).await?)
    }

    async fn post_answers(&self) -> Result<bool, OpError> {
        let ended = self.store.read(|connection| {
            let mut ended = Vec::new();
            for turn in turns_running(connection)? {
                let run = turn.run.map(|run| run_by_id(connection, run)).transpose()?.flatten();
                if run.as_ref().is_none_or(has_ended) {
                    ended.push((turn, run));
                }
            }
            Ok(ended)
        })?;
        let posted = !ended.is_empty();
        for (turn, run) in ended {
            let came = self.came_of(run.as_ref()).await?;
            let (config, retention) = (self.config_or_builtin(), self.retention());
            self.store.write(move |tx| post(tx, &config, &turn, run, came, retention)).await?;
        }
        Ok(posted)
    }

    async fn came_of(&self, run: Option<&Run>) -> Result<Came, OpError> {
        let Some(run) = run else { return Ok(Came::Failure("its run is gone".to_owned())) };
        let result = run.result.clone().unwrap_or_default();
        match run.state {
            RunState::Finished(Outcome::Succeeded) => {}
            state => return Ok(Came::Failure(failure(run, state, &result))),
        }
        let text = if result.len() >= LAST_WORDS_BYTES { self.whole_output(run).await? } else { result };
        let text = text.trim_end();
        // What it reported is better than nothing.
        let text = if text.trim().is_empty() { run.summary.as_deref().unwrap_or("") } else { text };
        Ok(if text.trim().is_empty() { Came::Failure("it said nothing".to_owned()) } else { Came::Answer(text.to_owned()) })
    }

    /// Reads everything that a run's agent printed, without its standard error.
    async fn whole_output(&self, run: &Run) -> Result<String, OpError> {
        let (home, id, attempt) = (self.home.dir.clone(), run.id.to_string(), run.attempt.0.max(1));
        let read = move || {
            let (mut text, mut after) = (String::new(), 0);
            loop {
                let want = crate::logs::Want { after: Some(after), bytes_max: 4 * 1024 * 1024, grep: None, ended: true };
                let part = crate::logs::read(&home, &id, attempt, want)?;
                text.push_str(&part.text);
                if part.next <= after || part.next >= part.total {
                    return Ok(text);
                }
                after = part.next;
            }
        };
        let text: std::io::Result<String> = tokio::task::spawn_blocking(read).await.map_err(|error| OpError::Io(error.to_string()))?;
        let text = text.map_err(|error| OpError::Io(error.to_string()))?;
        Ok(text.split_inclusive('\n').filter(|line| !line.starts_with("stderr: ")).collect())
    }

    /// Begins the turns that are next, save those of which something has to be counted first.
    async fn begin_turns(&self) -> Result<(bool, Vec<Uncounted>), OpError> {
        let next = self.store.read(next_turns)?;
        let mut begun = false;
        let mut uncounted = Vec::new();
        for turn in next {
            let config = self.config_or_builtin();
            let spec = match config.agents.get(&turn.agent) {
                None => Err(format!("no agent is called {}", turn.agent)),
                Some(entry) => match agents::program(entry, turn.env.get("PATH").map_or("", String::as_str)) {
                    Ok(_) => Ok(entry.spec.clone()),
                    // The hub's own path counts, too, when the run is started.
                    Err(OpError::ProgramNotFound { .. }) if turn.env.is_empty() => Ok(entry.spec.clone()),
                    Err(error) => Err(error.to_string()),
                },
            };
            let spec = match spec {
                Ok(_) if !Path::new(&turn.cwd).is_dir() => Err(format!("{} is no directory", turn.cwd)),
                spec => spec,
            };
            let (id, name_seed) = (RunId::new(clock::now(), crate::ops::runs::random()), crate::ops::runs::random());
            let retention = self.retention();
            let begin = self
                .store
                .write(move |tx| {
                    let chat = tx.chat(turn.chat)?;
                    let agent = match spec {
                        Ok(agent) => agent,
                        Err(why) => return post(tx, &config, &turn, None, Came::Failure(why), retention).map(|()| None),
                    };
                    let Told { prompt, wants_summary } = match told(tx.connection(), &chat, &turn)? {
                        Ok(told) => told,
                        Err(uncounted) => return Ok(Some(uncounted)),
                    };
                    if !tx.begin_turn(turn.id, id)? {
                        return Ok(None);
                    }
                    if wants_summary && config.chats.summarise_left_out {
                        want_summary(tx, &config, &turn)?;
                    }
                    let owner = chat.scope.owner.clone();
                    let env = agents::own_env(&agent, turn.env.clone());
                    let input = RunInput { prompt, agent, env, accept: Vec::new(), criteria: None };
                    let task = task(tx, &chat, &turn)?;
                    let new = NewRun {
                        id,
                        name: None,
                        name_seed,
                        cwd: turn.cwd.clone(),
                        owner: owner.clone(),
                        retry_of: None,
                        under: None,
                        rank: Rank::default(),
                        task,
                        by: owner,
                        input,
                    };
                    tx.dispatch(&new)?;
                    tx.place_in_root(id, chat.scope.root)?;
                    Ok(None)
                })
                .await?;
            match begin {
                None => begun = true,
                Some(more) => uncounted.extend(more),
            }
        }
        Ok((begun, uncounted))
    }
}

/// Has what a window leaves out summarised, for those that come later.
fn want_summary(tx: &mut Tx<'_>, config: &Config, turn: &Turn) -> Result<(), StoreError> {
    let Some(agent) = config.chats.summariser.clone() else { return Ok(()) };
    if turns_to_answer(tx.connection(), turn.chat, 0)?.iter().any(|turn| turn.is_summary) {
        return Ok(());
    }
    let (cwd, env) = (turn.cwd.clone(), turn.env.clone());
    tx.queue_turn(&NewTurn { chat: turn.chat, agent, is_summary: true, message: 0, hops: 0, cwd, env })
}

/// A run that answers has ended when it has finished, or stopped for something that no answer to a
/// question of its own resolves.
fn has_ended(run: &Run) -> bool {
    match run.state {
        RunState::Finished(_) => true,
        RunState::Stopped { reason, .. } => !matches!(reason, StopReason::Parked | StopReason::Paused),
        RunState::Queued | RunState::Starting | RunState::Running | RunState::Stopping(_) => false,
    }
}

fn failure(run: &Run, state: RunState, said: &str) -> String {
    let why = match state {
        RunState::Finished(outcome) => outcome.to_string(),
        RunState::Stopped { reason, .. } => format!("stopped: {}", reason.word()),
        other => other.word().to_owned(),
    };
    let mut text = format!("{why} (run {})", run.name);
    if let Some(detail) = &run.detail {
        text.push_str(&format!(": {detail}"));
    }
    let last: Vec<char> = said.chars().rev().take(FAILURE_CHARS_MAX).collect();
    if !last.is_empty() {
        text.push_str(&format!("\nIts last words: {}", last.into_iter().rev().collect::<String>()));
    }
    text
}

/// Posts what came of a turn, if it is still open.
fn post(tx: &mut Tx<'_>, config: &Config, turn: &Turn, run: Option<Run>, came: Came, retention: Retention) -> Result<(), StoreError> {
    let Some(turn) = turn_by_id(tx.connection(), turn.id)?.filter(|turn| turn.state.is_open()) else { return Ok(()) };
    let chat = tx.chat(turn.chat)?;
    if let Some(run) = &run
        && let Some(run) = run_by_id(tx.connection(), run.id)?.filter(|run| !run.state.is_finished())
    {
        tx.advance(&run, RunEvent::Retired, retention, "hub", "it could not answer")?;
    }
    let (kind, text, state) = match came {
        Came::Answer(text) if turn.is_summary => {
            let flags: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix(FLAG)).take(FLAGS_MAX).collect();
            for flag in flags {
                let flag = flag.trim().to_owned();
                let flagged = NewEntry { reply_to: None, ..said(&turn, EntryKind::Flag, flag) };
                let entry = tx.add_entry(chat.id, &flagged)?;
                tx.mention(chat.id, &Participant::Principal(Principal::Person), "person", entry.seq)?;
            }
            let text = text.lines().filter(|line| !line.trim().starts_with(FLAG)).collect::<Vec<_>>().join("\n");
            (EntryKind::Summary, if text.trim().is_empty() { "(no more than flags)".to_owned() } else { text }, TurnState::Answered)
        }
        Came::Answer(text) => (EntryKind::Answer, text, TurnState::Answered),
        Came::Failure(why) => {
            let what = if turn.is_summary { "summarise the chat" } else { "answer" };
            (EntryKind::Failure, format!("{} could not {what}: {why}", turn.agent), TurnState::Failed)
        }
    };
    let entry = said(&turn, kind, text);
    let entry = if kind == EntryKind::Answer {
        let viewer = Viewer { who: chat.scope.owner.clone(), scope: chat.scope.clone() };
        let seat = Seat { name: name_of(&viewer.who), viewer, run: None };
        let by = turn.run.map_or_else(|| chat.scope.owner.clone(), Principal::Run);
        let publication = Publication {
            config,
            seat: &seat,
            by: &by,
            chat: &chat,
            entry,
            to: Vec::new(),
            said_by_agent: Some(turn.agent.clone()),
            responder: None,
            ground: Ground { cwd: turn.cwd.clone(), env: turn.env.clone() },
        };
        publish(tx, publication)?.entry
    } else {
        tx.add_entry(chat.id, &entry)?
    };
    tx.end_turn(&turn, state, Some(entry.seq)).map(|_| ())
}

/// Something that a turn's agent says.
fn said(turn: &Turn, kind: EntryKind, text: String) -> NewEntry {
    NewEntry {
        kind,
        author: Participant::Agent(turn.agent.clone()),
        name: turn.agent.to_string(),
        label: None,
        text,
        reply_to: (!turn.is_summary).then_some(turn.message),
        hops: turn.hops + 1,
        pinned: false,
        key: None,
    }
}

/// Ends the open turns of one message: their runs, or the turns themselves where none has begun.
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

/// Says in a line what an answering run is for.
fn task(tx: &Tx<'_>, chat: &Chat, turn: &Turn) -> Result<String, StoreError> {
    if turn.is_summary {
        return Ok(format!("chat {}: summary", chat.id));
    }
    let entry = crate::store::entry_by_seq(tx.connection(), chat.id, turn.message)?;
    Ok(format!("chat {}.{}: {}", chat.id, turn.message, entry.map(|entry| entry.text).unwrap_or_default()))
}
