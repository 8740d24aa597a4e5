//! Agents that answer. A turn is answered by one ordinary run: it is queued in the transaction that
//! notes it with the turn, and what came of it is posted in the transaction that ends the turn. So
//! each happens once, however often this is begun anew.

use super::publish::{Ground, Publication, publish};
use super::seat::Seat;
use super::window::{FLAG, Told, Uncounted, told};
use crate::clock;
use crate::config::Config;
use crate::files;
use crate::ops::{AttemptId, OpError, Ops, agents, profiles};
use crate::store::{
    Chat, NewEntry, NewRun, NewTurn, Run, RunInput, StoreError, Turn, TurnState, Tx, next_turns, run_by_id, turn_by_id, turns_running,
    turns_to_answer,
};
use crate::store::{asked_by, at_work_in, run_input, tree_size};
use adjutant_core::chat::{EntryKind, MESSAGE_BYTES_MAX, Participant, is_decision};
use adjutant_core::run::Retention;
use adjutant_core::tree::{Rank, TreeLimits, has_room};
use adjutant_core::{AgentSpec, Outcome, Principal, RunEvent, RunId, RunState, StopReason};
use std::io::Read as _;
use std::path::Path;

/// A run's own record of its last words is cut at this length; beyond, its supervisor has kept more.
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
            // What goes wrong with one turn holds up no other.
            let (posted, begun) = (self.post_answers().await, self.begin_turns().await);
            let (posted, (begun, uncounted)) = (posted?, begun?);
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
        let (mut posted, mut failed) = (false, None);
        for (turn, run) in ended {
            let id = turn.id;
            let (config, retention) = (self.config_or_builtin(), self.retention());
            let post = async {
                let came = self.came_of(run.as_ref()).await?;
                Ok(self.store.write(move |tx| post(tx, &config, &turn, run, came, retention)).await?)
            };
            match post.await {
                Ok(()) => posted = true,
                Err(error) => failed = self.set_aside(failed, id, error).await,
            }
        }
        failed.map_or(Ok(posted), Err)
    }

    async fn came_of(&self, run: Option<&Run>) -> Result<Came, OpError> {
        let Some(run) = run else { return Ok(Came::Failure("its run is gone".to_owned())) };
        let result = run.result.clone().unwrap_or_default();
        match run.state {
            RunState::Finished(Outcome::Succeeded) => {}
            state => return Ok(Came::Failure(failure(run, state, &result))),
        }
        let text = if result.len() >= LAST_WORDS_BYTES { self.whole_answer(run, result).await? } else { result };
        let text = text.trim_end();
        // What it reported is better than nothing.
        let text = if text.trim().is_empty() { run.summary.as_deref().unwrap_or("") } else { text };
        Ok(if text.trim().is_empty() { Came::Failure("it said nothing".to_owned()) } else { Came::Answer(text.to_owned()) })
    }

    /// Reads what a run answered, as its supervisor kept it; `end` is the end of it. What a message cannot
    /// hold is left out, and the text says so.
    async fn whole_answer(&self, run: &Run, end: String) -> Result<String, OpError> {
        let dir = self.attempt_dir(AttemptId { run: run.id, n: run.attempt });
        let read = move || {
            let mut bytes = Vec::new();
            files::open(dir.home(), &dir.answer())?.take(2 * MESSAGE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = match tokio::task::spawn_blocking(read).await.map_err(|error| OpError::Io(error.to_string()))? {
            Ok(text) if text.len() <= MESSAGE_BYTES_MAX => return Ok(text),
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, run = %run.name, "its whole answer cannot be read");
                end
            }
        };
        let note = format!("(The beginning of this answer is left out; adj logs {} has what came before.)\n", run.name);
        let from = text.len().saturating_sub(MESSAGE_BYTES_MAX - note.len());
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        Ok(format!("{note}{}", &text[from..]))
    }

    /// Begins the turns that are next, save those of which something has to be counted first.
    async fn begin_turns(&self) -> Result<(bool, Vec<Uncounted>), OpError> {
        let next = self.store.read(next_turns)?;
        let (mut begun, mut failed) = (false, None);
        let mut uncounted = Vec::new();
        for turn in next {
            let config = self.config_or_builtin();
            let spec = match config.agents.get(&turn.agent) {
                None => Err(format!("no agent is called {}", turn.agent)),
                Some(entry) => match agents::program(entry, turn.env.path()) {
                    Ok(_) => Ok(entry.spec.clone()),
                    // The hub's own path counts, too, when the run is started.
                    Err(OpError::ProgramNotFound { .. }) if turn.env.variables().is_empty() => Ok(entry.spec.clone()),
                    Err(error) => Err(error.to_string()),
                },
            };
            let spec = match spec {
                Ok(_) if !Path::new(&turn.cwd).is_dir() => Err(format!("{} is no directory", turn.cwd)),
                spec => spec,
            };
            let (id, name_seed) = (RunId::new(clock::now(), crate::ops::runs::random()), crate::ops::runs::random());
            let retention = self.retention();
            let turn_id = turn.id;
            let begin = self
                .store
                .write(move |tx| {
                    let chat = tx.chat(turn.chat)?;
                    let leave = match spec {
                        Ok(agent) => leave(tx, &config, &turn, agent, id)?,
                        Err(why) => Leave::No(why),
                    };
                    let (agent, under) = match leave {
                        Leave::Yes(agent, under) => (*agent, under),
                        // It is looked at again when a run has ended.
                        Leave::Later => return Ok(Some(Vec::new())),
                        Leave::No(why) => return post(tx, &config, &turn, None, Came::Failure(why), retention).map(|()| None),
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
                    let input = RunInput { prompt, agent, env: turn.env.clone(), accept: Vec::new(), criteria: None };
                    let task = task(tx, &chat, &turn)?;
                    let new = NewRun {
                        id,
                        name: None,
                        name_seed,
                        cwd: turn.cwd.clone(),
                        owner: owner.clone(),
                        retry_of: None,
                        under,
                        rank: Rank::default(),
                        estimate_ms: None,
                        task,
                        by: owner,
                        input,
                    };
                    tx.dispatch(&new)?;
                    // The chat gets the answer, or why there is none.
                    tx.notify_elsewhere(id)?;
                    if under.is_none() {
                        tx.place_in_root(id, chat.scope.root)?;
                    }
                    Ok(None)
                })
                .await;
            match begin {
                Ok(None) => begun = true,
                Ok(Some(more)) => uncounted.extend(more),
                Err(error) => failed = self.set_aside(failed, turn_id, error.into()).await,
            }
        }
        match failed {
            // What is counted meanwhile goes on.
            Some(error) if uncounted.is_empty() => Err(error),
            _ => Ok((begun, uncounted)),
        }
    }

    /// Deals with what keeps one turn from going on: what never changes ends it, anything else is tried
    /// again later. Returns the first of the latter.
    async fn set_aside(&self, before: Option<OpError>, id: i64, error: OpError) -> Option<OpError> {
        tracing::error!(%error, turn = id, "an answer cannot be seen to");
        if !matches!(error, OpError::Store(StoreError::Denied(_) | StoreError::Corrupt(_))) {
            return before.or(Some(error));
        }
        let (config, retention, why) = (self.config_or_builtin(), self.retention(), error.to_string());
        let ended = self.store.write(move |tx| {
            let Some(turn) = turn_by_id(tx.connection(), id)? else { return Ok(()) };
            let run = turn.run.map(|run| run_by_id(tx.connection(), run)).transpose()?.flatten();
            post(tx, &config, &turn, run, Came::Failure(why), retention)
        });
        match ended.await {
            Ok(()) => before,
            Err(error) => before.or(Some(error.into())),
        }
    }
}

/// Has what a window leaves out summarised, for those that come later.
fn want_summary(tx: &mut Tx<'_>, config: &Config, turn: &Turn) -> Result<(), StoreError> {
    let Some(agent) = config.chats.summariser.clone() else { return Ok(()) };
    if turns_to_answer(tx.connection(), turn.chat, 0)?.iter().any(|turn| turn.is_summary) {
        return Ok(());
    }
    let (cwd, env) = (turn.cwd.clone(), turn.env.clone());
    tx.queue_turn(&NewTurn { chat: turn.chat, agent, is_summary: true, message: 0, hops: 0, cwd, env }).map(drop).map(|_| ())
}

/// Whether a turn may be answered now.
enum Leave {
    /// By the agent with the permissions that are left to it; and the run under which it counts, with the
    /// limits of that tree.
    Yes(Box<AgentSpec>, Option<(RunId, TreeLimits)>),
    /// Somebody else is at work in its directory.
    Later,
    No(String),
}

/// Decides whether a turn may be answered now. What a run asks for counts as its delegation: within
/// the limits of its tree, with no more permissions than it has itself.
fn leave(tx: &Tx<'_>, config: &Config, turn: &Turn, mut agent: AgentSpec, id: RunId) -> Result<Leave, StoreError> {
    let connection = tx.connection();
    let asked = asked_by(connection, turn)?;
    if config.refuse_shared_directory {
        let others = at_work_in(connection, &turn.cwd, id)?;
        // Who asks may be waiting for the answer.
        if let Some((_, name)) = others.iter().find(|(other, _)| asked.is_some_and(|(asking, _)| asking == *other)) {
            return Ok(Leave::No(format!("{name}, which asks, is itself at work in {}, and the configuration refuses a second run", turn.cwd)));
        }
        if !others.is_empty() {
            return Ok(Leave::Later);
        }
    }
    let stated = agent.permissions;
    if let Some((asking, _)) = asked {
        agent.permissions = agent.permissions.min(run_input(connection, asking)?.agent.permissions);
    }
    if let Err(refusal) = profiles::check(&agent, stated) {
        return Ok(Leave::No(refusal.to_string()));
    }
    let Some((_, counts_under)) = asked else { return Ok(Leave::Yes(Box::new(agent), None)) };
    let Some(parent) = counts_under else { return Ok(Leave::Yes(Box::new(agent), None)) };
    let mut above = Some(parent);
    while let Some(run) = above {
        let run = tx.run(run)?;
        if matches!(run.state, RunState::Stopping(StopReason::Cancelled) | RunState::Finished(Outcome::Cancelled)) {
            return Ok(Leave::No(format!("{}, on whose behalf it would, was cancelled", run.name)));
        }
        above = run.parent;
    }
    let size = tree_size(connection, &tx.run(parent)?)?;
    Ok(match has_room(size, config.tree) {
        Ok(()) => Leave::Yes(Box::new(agent), Some((parent, config.tree))),
        Err(denied) => Leave::No(denied.to_string()),
    })
}

/// A run that answers has ended when it has finished, or stopped for something from which neither an
/// answer to a question of its own nor time lets it go on.
fn has_ended(run: &Run) -> bool {
    match run.state {
        RunState::Finished(_) => true,
        RunState::Stopped { reason, .. } => !matches!(reason, StopReason::Parked | StopReason::Paused | StopReason::RateLimited),
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
        // Whom it names is looked up among what its own run may see.
        let by = turn.run.map_or_else(|| chat.scope.owner.clone(), Principal::Run);
        let seat = Seat::of(tx.connection(), &by)?;
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
