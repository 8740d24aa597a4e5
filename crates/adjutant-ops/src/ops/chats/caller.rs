//! The caller's identity in chats: its name, its owner, and what it may see.

use crate::config::Config;
use crate::ops::caller::name_of;
use crate::store::{
    Chat, Connection, Run, StoreError, chat_by_id, member, past_author, run_by_id, run_by_ref,
    turn_of_run,
};
use adjutant_core::chat::{ChatId, Participant, Scope, Viewer, may_see};
use adjutant_core::{AgentName, ClientName, Denied, Principal};

/// The caller of a use case about chats.
#[derive(Debug, Clone)]
pub(in crate::ops) struct ChatCaller {
    pub viewer: Viewer,
    pub name: String,
    /// The caller's run.
    pub run: Option<Run>,
}

impl ChatCaller {
    pub(in crate::ops) fn of(connection: &Connection, who: &Principal) -> Result<Self, StoreError> {
        let (scope, run) = match who {
            Principal::Person | Principal::Client(_) => (
                Scope {
                    owner: who.clone(),
                    root: None,
                },
                None,
            ),
            Principal::Run(id) => {
                let run = run_by_id(connection, *id)?
                    .ok_or_else(|| Denied::not_found("run", &id.to_string()))?;
                (
                    Scope {
                        owner: run.owner.clone(),
                        root: Some(run.root),
                    },
                    Some(run),
                )
            }
        };
        let name = run
            .as_ref()
            .map_or_else(|| name_of(who), |run| run.name.clone());
        Ok(Self {
            viewer: Viewer {
                who: who.clone(),
                scope,
            },
            name,
            run,
        })
    }

    pub(in crate::ops) fn participant(&self) -> Participant {
        Participant::Principal(self.viewer.who.clone())
    }

    /// Finds a chat that this caller may see.
    pub(in crate::ops) fn chat(
        &self,
        connection: &Connection,
        id: i64,
    ) -> Result<Chat, StoreError> {
        let not_found = || StoreError::from(Denied::not_found("chat", &id.to_string()));
        let chat = chat_by_id(connection, ChatId(id))?.ok_or_else(not_found)?;
        if self.sees(connection, &chat)? {
            Ok(chat)
        } else {
            Err(not_found())
        }
    }

    pub(in crate::ops) fn sees(
        &self,
        connection: &Connection,
        chat: &Chat,
    ) -> Result<bool, StoreError> {
        let takes_part = member(connection, chat.id, &self.viewer.who.to_string())?
            .is_some_and(|member| member.joined_at.is_some());
        // A run that answers in a chat participates as its agent.
        let answers = match &self.run {
            Some(run) => turn_of_run(connection, run.id)?.is_some_and(|turn| turn.chat == chat.id),
            None => false,
        };
        Ok(!chat.importing
            && may_see(
                &self.viewer,
                &chat.scope.owner,
                chat.audience(),
                takes_part || answers,
            ))
    }

    /// Resolves a recipient: an agent, a run of the same owner (any run for the person), the
    /// person, or a client.
    pub(in crate::ops) fn addressee(
        &self,
        connection: &Connection,
        config: &Config,
        given: &str,
    ) -> Result<(Participant, String), StoreError> {
        let given = given.trim();
        let given = given.strip_prefix('@').unwrap_or(given);
        let not_found = || StoreError::from(Denied::not_found("participant", given));
        if matches!(given, "person" | "user" | "me")
            && (given != "me" || self.viewer.who == Principal::Person)
        {
            return Ok((
                Participant::Principal(Principal::Person),
                "person".to_owned(),
            ));
        }
        if given == "parent" {
            let parent = self.viewer.scope.owner.clone();
            let name = name_of(&parent);
            return if self.run.is_some() {
                Ok((Participant::Principal(parent), name))
            } else {
                Err(not_found())
            };
        }
        if let Some(client) = given.strip_prefix("client:") {
            let client = Principal::Client(ClientName::parse(client).map_err(|_| not_found())?);
            let known = self.viewer.who == Principal::Person || client == self.viewer.scope.owner;
            let name = name_of(&client);
            return if known {
                Ok((Participant::Principal(client), name))
            } else {
                Err(not_found())
            };
        }
        let agent = given.strip_prefix("agent:").unwrap_or(given);
        if let Some(agent) = AgentName::parse(agent)
            .ok()
            .filter(|name| config.agents.contains_key(name))
        {
            let name = agent.to_string();
            return Ok((Participant::Agent(agent), name));
        }
        let run = given.strip_prefix("run:").unwrap_or(given);
        let found = match &self.viewer.who {
            Principal::Person => run_by_ref(connection, run, None),
            Principal::Client(_) | Principal::Run(_) => {
                run_by_ref(connection, run, Some(&self.viewer.scope.owner))
            }
        };
        let run = match found {
            Ok(run) => run,
            Err(error @ StoreError::Denied(Denied::Ambiguous { .. })) => return Err(error),
            Err(StoreError::Denied(_)) => return Err(not_found()),
            Err(error) => return Err(error),
        };
        let name = run.name.clone();
        Ok((Participant::Principal(Principal::Run(run.id)), name))
    }

    /// Resolves an author: a recipient, or a former participant.
    pub(in crate::ops) fn author(
        &self,
        connection: &Connection,
        config: &Config,
        given: &str,
    ) -> Result<Participant, StoreError> {
        let refused = match self.addressee(connection, config, given) {
            Ok((who, _)) => return Ok(who),
            Err(refused @ StoreError::Denied(Denied::NotFound { .. })) => refused,
            Err(error) => return Err(error),
        };
        let owner = if self.viewer.who == Principal::Person {
            None
        } else {
            Some(&self.viewer.scope.owner)
        };
        let name = given.trim();
        past_author(connection, owner, name.strip_prefix('@').unwrap_or(name))?.ok_or(refused)
    }
}

/// Returns whether a participant could see a chat after joining. An agent can answer in any chat.
pub(super) fn can_see(
    connection: &Connection,
    who: &Participant,
    chat: &Chat,
) -> Result<bool, StoreError> {
    let Participant::Principal(principal) = who else {
        return Ok(true);
    };
    Ok(may_see(
        &ChatCaller::of(connection, principal)?.viewer,
        &chat.scope.owner,
        chat.audience(),
        true,
    ))
}

/// Refuses participants who could not see the chat.
pub(super) fn check_can_see(
    connection: &Connection,
    field: &'static str,
    others: &[(Participant, String)],
    chat: &Chat,
) -> Result<(), StoreError> {
    for (who, name) in others {
        if !can_see(connection, who, chat)? {
            let problem = format!(
                "{name} has no access to this chat (another owner or tree of runs): send it a direct message"
            );
            return Err(Denied::invalid(field, problem).into());
        }
    }
    Ok(())
}
