//! Requesting summaries of chats.

use crate::config::Home;
use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::work_context::{WorkContext, work_context};
use crate::ops::credentials::resolve_credentials;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup};
use crate::store::{NewTurn, Store, Tx};
use crate::view::{Answers, SummariseChat};
use adjutant_core::chat::ChatId;
use adjutant_core::{Action, AgentName, Denied, Principal};

/// Requests a summary of a chat from an agent. Durable when it returns; the summary becomes an
/// entry.
///
/// # Errors
/// Unknown or foreign chat, or no agent for it.
pub async fn summarise_chat(
    store: &Store,
    home: &Home,
    settings: &Settings,
    caller: Caller,
    call: SummariseChat,
) -> Result<Answers, OpError> {
    lookup::check(&caller.who, Action::Say)?;
    if matches!(caller.who, Principal::Run(_)) {
        return Err(Denied::NotAllowed {
            who: "a run",
            action: "have chats summarised",
        }
        .into());
    }
    let config = settings.config()?;
    let agent = match &call.agent {
        Some(name) => AgentName::parse(name)
            .ok()
            .filter(|name| config.agents.contains_key(name)),
        None => config.chats.summariser.clone(),
    };
    let Some(agent) = agent else {
        return Err(Denied::invalid("agent", "name one (adj chat summarise --agent NAME), or set chats.summariser in the configuration").into());
    };
    let (work_context, kept) = work_context(store, home, &caller.who, &call.cwd, &call.env)?;
    let summarise = move |tx: &mut Tx<'_>, who: &Principal| {
        let chat = ChatCaller::of(tx.connection(), who)?.chat(tx.connection(), call.chat_id)?;
        if chat.is_followed() {
            return Err(Denied::conflict(
                "chat_id",
                "it is a copy of another hub's chat, which has it summarised there",
            )
            .into());
        }
        let waiting = vec![agent.to_string()];
        let turn = tx.queue_turn(&summary(chat.id, agent, work_context))?;
        Ok(Answers {
            answers: Vec::new(),
            waiting,
            turn: Some(turn),
            ..Answers::default()
        })
    };
    let answers = caller.write(store, summarise).await;
    resolve_credentials(store, kept).await;
    answers
}

/// Creates the turn in which an agent summarises a chat.
pub(super) fn summary(chat: ChatId, agent: AgentName, work_context: WorkContext) -> NewTurn {
    let WorkContext { cwd, env } = work_context;
    NewTurn {
        chat,
        agent,
        is_summary: true,
        message: 0,
        hops: 0,
        cwd,
        env,
    }
}
