//! Turns: messages that an agent must answer. One run answers a turn. The transaction that queues
//! the run records it in the turn, and the transaction that adds the answer's entry ends the turn.

use super::entry_by_seq;
use crate::store::db::{self, Columns, Connection, Record, params, row, select};
use crate::store::ids::texts;
use crate::store::{DispatchEnv, Run, StoreError, Topic, Tx, run_by_id};
use adjutant_core::chat::{ChatId, Participant};
use adjutant_core::{AgentName, Principal, RunId, words};

/// Maximum number of turns that one pass ends or starts.
const TURNS_MAX: u32 = 100;
/// How many of a chat's newest entries are searched for an entry of a person or a client.
const SEARCHED_ENTRIES_MAX: u32 = 1_000;

/// The state of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    /// Waits for the previous turn.
    Queued,
    Running,
    Answered,
    Failed,
    Cancelled,
}

words!(TurnState { Queued = "queued", Running = "running", Answered = "answered", Failed = "failed", Cancelled = "cancelled" });

impl TurnState {
    /// Returns whether an answer may still arrive.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

texts! { TurnState, "state", Self::from_word; }

row! {
    /// One message that one agent must answer.
    #[derive(Debug, Clone)]
    pub struct Turn as t, named "turn {}" {
        pub id: i64,
        pub chat: ChatId,
        pub agent: AgentName,
        /// The agent must summarise the chat instead of answering.
        pub is_summary: bool = "t.purpose = 'summary'",
        /// The message's number in the chat.
        pub message: i64,
        pub hops: u32,
        pub cwd: String,
        pub env: DispatchEnv as dispatch_env,
        pub state: TurnState,
        pub run: Option<RunId>,
        /// The number of the entry that ended the turn.
        pub entry: Option<i64>,
    }
}

fn dispatch_env(columns: &mut Columns<'_>) -> db::Result<DispatchEnv> {
    let written: String = columns.value()?;
    serde_json::from_slice(written.as_bytes())
        .map_err(|error| db::Error::unreadable_json("an environment", error))
}

/// The data of a new turn.
#[derive(Debug, Clone)]
pub struct NewTurn {
    pub chat: ChatId,
    pub agent: AgentName,
    pub is_summary: bool,
    pub message: i64,
    pub hops: u32,
    pub cwd: String,
    pub env: DispatchEnv,
}

fn turns(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<Turn>, StoreError> {
    Ok(connection
        .prepare_cached(&Turn::select(&format!("FROM chat_turns t {rest}")))?
        .read_rows(values)?)
}

/// Reads the turns whose run is in progress.
///
/// # Errors
/// A failure of the store.
pub fn turns_running(connection: &Connection) -> Result<Vec<Turn>, StoreError> {
    turns(connection, "WHERE t.state = 'running' ORDER BY t.id", [])
}

/// Reads the turns to start: the oldest one for each agent and chat without a running turn.
///
/// # Errors
/// A failure of the store.
pub fn next_turns(connection: &Connection) -> Result<Vec<Turn>, StoreError> {
    turns(
        connection,
        "WHERE t.state = 'queued' AND NOT EXISTS (SELECT 1 FROM chat_turns o WHERE o.chat = t.chat AND o.agent = t.agent
         AND o.state IN ('queued', 'running') AND o.id < t.id) ORDER BY t.id LIMIT ?1",
        [TURNS_MAX],
    )
}

/// Reads the turns caused by a message; with message 0, all open turns of the chat.
///
/// # Errors
/// A failure of the store.
pub fn turns_to_answer(
    connection: &Connection,
    chat: ChatId,
    message: i64,
) -> Result<Vec<Turn>, StoreError> {
    match message {
        0 => turns(
            connection,
            "WHERE t.chat = ?1 AND t.state IN ('queued', 'running') ORDER BY t.id LIMIT 100",
            [chat.0],
        ),
        _ => turns(
            connection,
            "WHERE t.chat = ?1 AND t.message = ?2 ORDER BY t.id LIMIT 100",
            params![chat.0, message],
        ),
    }
}

/// Reads one turn.
///
/// # Errors
/// A failure of the store.
pub fn turn_by_id(connection: &Connection, id: i64) -> Result<Option<Turn>, StoreError> {
    Ok(turns(connection, "WHERE t.id = ?1", [id])?.pop())
}

/// Returns the run whose message caused a turn, and the run under which the turn is counted. A run
/// that answers a turn is counted under the run for which it answers, so that agents that answer
/// each other stay siblings. `None`: no run asked.
///
/// # Errors
/// A failure of the store, or the run no longer exists.
pub fn asked_by(
    connection: &Connection,
    turn: &Turn,
) -> Result<Option<(RunId, Option<RunId>)>, StoreError> {
    let Some(entry) = entry_by_seq(connection, turn.chat, turn.message)? else {
        return Ok(None);
    };
    match entry.author {
        Participant::Principal(Principal::Run(run)) => Ok(Some((run, Some(run)))),
        Participant::Agent(_) => {
            let answered = turns(
                connection,
                "WHERE t.chat = ?1 AND t.entry = ?2",
                params![turn.chat.0, turn.message],
            )?
            .pop();
            let Some(run) = answered.and_then(|answered| answered.run) else {
                return Ok(None);
            };
            Ok(run_by_id(connection, run)?.map(|run| (run.id, run.parent)))
        }
        Participant::Principal(_)
        | Participant::Hub
        | Participant::Peer(_)
        | Participant::FromFile(_) => Ok(None),
    }
}

/// Counts the open turns of a chat.
///
/// # Errors
/// A failure of the store.
pub fn open_turns(connection: &Connection, chat: ChatId) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM chat_turns WHERE chat = ?1 AND state IN ('queued', 'running')";
    let count: i64 = connection.prepare_cached(sql)?.read_row([chat.0])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Counts the open turns caused by the runs of one tree.
///
/// # Errors
/// A failure of the store.
pub fn open_turns_below(connection: &Connection, root: RunId) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM chat_turns t JOIN chat_messages m ON m.chat = t.chat AND m.seq = t.message
         JOIN runs r ON m.author = 'run:' || r.id WHERE t.state IN ('queued', 'running') AND r.root = ?1";
    let count: i64 = connection
        .prepare_cached(sql)?
        .read_row([root.to_string()])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Returns the length of the chain of agents and runs answering each other that leads to what a run
/// now says in a chat. The chain continues through the turn of the run or of an ancestor, and
/// through the last message that mentioned the run. A run that replies to a run lengthens the chain
/// like an agent that answers.
///
/// A mention counts until a person or a client writes in its chat, in the chat where the run now
/// writes, or to the run. In a direct chat, an agent's answer to the run's own message adds
/// nothing.
///
/// # Errors
/// A failure of the store.
pub fn hops_behind(connection: &Connection, run: &Run, chat: ChatId) -> Result<u32, StoreError> {
    let mut hops = hops_of_naming(connection, run, chat)?;
    let mut above = Some((run.id, run.parent));
    while let Some((id, parent)) = above {
        if let Some(turn) = turn_of_run(connection, id)? {
            hops = hops.max(turn.hops.saturating_add(1));
        }
        above = match parent {
            Some(parent) => run_by_id(connection, parent)?.map(|run| (run.id, run.parent)),
            None => None,
        };
    }
    Ok(hops)
}

/// Returns the chain length that the last mention of a run contributes.
fn hops_of_naming(connection: &Connection, run: &Run, chat: ChatId) -> Result<u32, StoreError> {
    let who = Principal::Run(run.id).to_string();
    let naming: Option<(i64, i64, String)> = connection
        .prepare_cached(
            "SELECT m.id, m.chat, m.author FROM chat_members b JOIN chat_messages m ON m.chat = b.chat AND m.seq = b.mention_seq
             WHERE b.who = ?1 ORDER BY m.id DESC LIMIT 1",
        )?
        .find_row([&who])?;
    let Some((id, named_in, author)) = naming else {
        return Ok(0);
    };
    let has_spoken = "SELECT 1 FROM (SELECT id, author FROM chat_messages WHERE chat = ?1 ORDER BY seq DESC LIMIT ?3) AS entries
         WHERE id > ?2 AND (author = 'person' OR author LIKE 'client:%')";
    for chat in [named_in, chat.0] {
        if connection
            .prepare_cached(has_spoken)?
            .exists(params![chat, id, SEARCHED_ENTRIES_MAX])?
        {
            return Ok(0);
        }
    }
    let was_messaged =
        "SELECT 1 FROM messages WHERE run = ?1 AND (sender = 'person' OR sender LIKE 'client:%')
         AND sent_at > (SELECT at FROM chat_messages WHERE id = ?2)";
    if connection
        .prepare_cached(was_messaged)?
        .exists(params![run.id.to_string(), id])?
    {
        return Ok(0);
    }
    let by_run = matches!(
        Participant::parse(&author),
        Some(Participant::Principal(Principal::Run(_)))
    );
    let hops: u32 = connection
        .prepare_cached(
            "SELECT coalesce((SELECT o.hops FROM chats c JOIN chat_messages o ON o.chat = c.id
               WHERE c.id = m.chat AND c.kind = 'direct' AND ?3 = 0 AND o.seq = m.reply_to AND o.author = ?2), m.hops)
             FROM chat_messages m WHERE m.id = ?1",
        )?
        .read_row(params![id, who, by_run])?;
    Ok(hops.saturating_add(u32::from(by_run)))
}

/// Reads the turn that a run answers.
///
/// # Errors
/// A failure of the store.
pub fn turn_of_run(connection: &Connection, run: RunId) -> Result<Option<Turn>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Turn, "FROM chat_turns t WHERE t.run = ?1"))?
        .find_row([run.to_string()])?)
}

impl Tx<'_> {
    /// Queues a turn.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn queue_turn(&mut self, new: &NewTurn) -> Result<i64, StoreError> {
        let env = serde_json::to_string(&new.env)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let turn = self
            .prepare("INSERT INTO chat_turns (chat, agent, purpose, message, hops, cwd, env, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
            .insert(
                "id",
                params![
                    new.chat.0,
                    new.agent.as_str(),
                    if new.is_summary { "summary" } else { "answer" },
                    new.message,
                    new.hops,
                    new.cwd,
                    env,
                    self.now().0
                ],
            )?;
        self.notify(Topic::Turns);
        Ok(turn)
    }

    /// Records which run answers a turn. Returns whether the turn was still queued.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn begin_turn(&mut self, turn: i64, run: RunId) -> Result<bool, StoreError> {
        let begun = self
            .prepare("UPDATE chat_turns SET state = 'running', run = ?2 WHERE id = ?1 AND state = 'queued'")?
            .execute(params![turn, run.to_string()])?;
        Ok(begun == 1)
    }

    /// Places an answering run under the root of its chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn place_in_root(&mut self, run: RunId, root: Option<RunId>) -> Result<(), StoreError> {
        if let Some(root) = root {
            self.prepare("UPDATE runs SET root = ?2 WHERE id = ?1")?
                .run(params![run.to_string(), root.to_string()])?;
        }
        Ok(())
    }

    /// Ends an open turn with its resulting entry. Returns whether the turn was open; only then may
    /// the entry be added to the chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn end_turn(
        &mut self,
        turn: &Turn,
        state: TurnState,
        entry: Option<i64>,
    ) -> Result<bool, StoreError> {
        let ended = self
            .prepare("UPDATE chat_turns SET state = ?2, entry = ?3 WHERE id = ?1 AND state IN ('queued', 'running')")?
            .execute(params![turn.id, state.word(), entry])?;
        self.notify(Topic::Turns);
        self.notify(Topic::Chat(turn.chat));
        Ok(ended == 1)
    }
}
