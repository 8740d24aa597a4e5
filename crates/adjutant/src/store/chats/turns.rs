//! Turns: messages that an agent has to answer. A turn is answered by one run; which one is on
//! record in the transaction that queues the run, and its answer in the one that adds the entry.

use crate::store::{StoreError, Topic, Tx};
use adjutant_core::chat::ChatId;
use adjutant_core::{AgentName, RunId};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;

/// Most turns that one look settles or begins.
const LOOK_MAX: u32 = 100;

/// Where a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    /// Waits for the one before it.
    Queued,
    Running,
    Answered,
    Failed,
    Cancelled,
}

impl TurnState {
    const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Answered, Self::Failed, Self::Cancelled];

    /// Returns the stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Tells whether an answer may still come.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

/// One message for one agent.
#[derive(Debug, Clone)]
pub struct Turn {
    pub id: i64,
    pub chat: ChatId,
    pub agent: AgentName,
    /// It is to summarise the chat instead of answering.
    pub is_summary: bool,
    /// The message's number in the chat.
    pub message: i64,
    pub hops: u32,
    pub cwd: String,
    pub env: BTreeMap<String, String>,
    pub state: TurnState,
    pub run: Option<RunId>,
    /// The number of the entry that ended it.
    pub entry: Option<i64>,
}

/// What a new turn is.
#[derive(Debug, Clone)]
pub struct NewTurn {
    pub chat: ChatId,
    pub agent: AgentName,
    pub is_summary: bool,
    pub message: i64,
    pub hops: u32,
    pub cwd: String,
    pub env: BTreeMap<String, String>,
}

const COLUMNS: &str = "SELECT t.id, t.chat, t.agent, t.purpose, t.message, t.hops, t.cwd, t.env, t.state, t.run, t.entry FROM chat_turns t";

fn read(row: &Row<'_>) -> rusqlite::Result<Result<Turn, StoreError>> {
    let id: i64 = row.get(0)?;
    let (agent, env, state, run): (String, String, String, Option<String>) = (row.get(2)?, row.get(7)?, row.get(8)?, row.get(9)?);
    let run = run.map(|run| RunId::parse(&run)).transpose();
    let (Ok(agent), Ok(env), Some(state), Ok(run)) =
        (AgentName::parse(&agent), serde_json::from_str(&env), TurnState::ALL.into_iter().find(|known| known.word() == state), run)
    else {
        return Ok(Err(StoreError::Corrupt(format!("turn {id}"))));
    };
    Ok(Ok(Turn {
        id,
        chat: ChatId(row.get(1)?),
        agent,
        is_summary: row.get::<_, String>(3)? == "summary",
        message: row.get(4)?,
        hops: row.get(5)?,
        cwd: row.get(6)?,
        env,
        state,
        run,
        entry: row.get(10)?,
    }))
}

fn turns(connection: &Connection, rest: &str, values: impl rusqlite::Params) -> Result<Vec<Turn>, StoreError> {
    connection.prepare_cached(&format!("{COLUMNS} {rest}"))?.query_map(values, read)?.collect::<Result<Vec<_>, _>>()?.into_iter().collect()
}

/// Reads the turns that a run is at work on.
///
/// # Errors
/// A failure of the store.
pub fn turns_running(connection: &Connection) -> Result<Vec<Turn>, StoreError> {
    turns(connection, "WHERE t.state = 'running' ORDER BY t.id", [])
}

/// Reads the turns that are next: the oldest of each agent and chat where none is running.
///
/// # Errors
/// A failure of the store.
pub fn next_turns(connection: &Connection) -> Result<Vec<Turn>, StoreError> {
    turns(
        connection,
        "WHERE t.state = 'queued' AND NOT EXISTS (SELECT 1 FROM chat_turns o WHERE o.chat = t.chat AND o.agent = t.agent
         AND o.state IN ('queued', 'running') AND o.id < t.id) ORDER BY t.id LIMIT ?1",
        [LOOK_MAX],
    )
}

/// Reads the turns that one message of a chat gave rise to; with 0, all that are open in the chat.
///
/// # Errors
/// A failure of the store.
pub fn turns_to_answer(connection: &Connection, chat: ChatId, message: i64) -> Result<Vec<Turn>, StoreError> {
    match message {
        0 => turns(connection, "WHERE t.chat = ?1 AND t.state IN ('queued', 'running') ORDER BY t.id LIMIT 100", [chat.0]),
        _ => turns(connection, "WHERE t.chat = ?1 AND t.message = ?2 ORDER BY t.id LIMIT 100", params![chat.0, message]),
    }
}

/// Reads one turn.
///
/// # Errors
/// A failure of the store.
pub fn turn_by_id(connection: &Connection, id: i64) -> Result<Option<Turn>, StoreError> {
    Ok(turns(connection, "WHERE t.id = ?1", [id])?.pop())
}

/// Reads the turn that a run answers.
///
/// # Errors
/// A failure of the store.
pub fn turn_of_run(connection: &Connection, run: RunId) -> Result<Option<Turn>, StoreError> {
    connection.prepare_cached(&format!("{COLUMNS} WHERE t.run = ?1"))?.query_row([run.to_string()], read).optional()?.transpose()
}

impl Tx<'_> {
    /// Queues a turn.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn queue_turn(&mut self, new: &NewTurn) -> Result<(), StoreError> {
        let env = serde_json::to_string(&new.env).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("INSERT INTO chat_turns (chat, agent, purpose, message, hops, cwd, env, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?.execute(
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
        self.ring(Topic::Turns);
        Ok(())
    }

    /// Notes which run answers a turn. Tells whether the turn was still waiting for one.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn begin_turn(&mut self, turn: i64, run: RunId) -> Result<bool, StoreError> {
        let begun = self
            .prepare("UPDATE chat_turns SET state = 'running', run = ?2 WHERE id = ?1 AND state = 'queued'")?
            .execute(params![turn, run.to_string()])?;
        Ok(begun == 1)
    }

    /// Puts an answering run below the root of its chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn place_in_root(&mut self, run: RunId, root: Option<RunId>) -> Result<(), StoreError> {
        if let Some(root) = root {
            self.prepare("UPDATE runs SET root = ?2 WHERE id = ?1")?.execute(params![run.to_string(), root.to_string()])?;
        }
        Ok(())
    }

    /// Ends a turn that is open, with the entry that came of it. Tells whether it was open: only
    /// then does the entry belong into the chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn end_turn(&mut self, turn: &Turn, state: TurnState, entry: Option<i64>) -> Result<bool, StoreError> {
        let ended = self
            .prepare("UPDATE chat_turns SET state = ?2, entry = ?3 WHERE id = ?1 AND state IN ('queued', 'running')")?
            .execute(params![turn.id, state.word(), entry])?;
        self.ring(Topic::Turns);
        self.ring(Topic::Chat(turn.chat));
        Ok(ended == 1)
    }
}
