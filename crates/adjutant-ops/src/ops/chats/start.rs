//! Starting chats.

use crate::config::{Config, Template};
use crate::ops::chats::caller::{ChatCaller, check_can_see};
use crate::ops::chats::entry::{entry_no, note};
use crate::ops::chats::presence::Presence;
use crate::ops::chats::render;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup};
use crate::store::{
    Chat, Connection, Member, NewChat, Store, StoreError, Tx, entry_by_seq, members,
};
use crate::view::{ChatView, StartChat};
use adjutant_core::chat::{self, ChatKind, Participant, Scope};
use adjutant_core::{Action, Denied, Principal};

/// Starts a chat. Durable when it returns.
///
/// # Errors
/// An unusable title, participant, template or branch.
pub async fn start_chat(
    store: &Store,
    settings: &Settings,
    presence: &Presence,
    caller: Caller,
    call: StartChat,
) -> Result<ChatView, OpError> {
    lookup::check(&caller.who, Action::StartChat)?;
    let title = chat::checked_title(&call.title)?;
    if call.participants.len() > chat::PARTICIPANTS_MAX {
        return Err(Denied::invalid(
            "participants",
            format!("at most {}", chat::PARTICIPANTS_MAX),
        )
        .into());
    }
    crate::ops::checks::check_size(
        "instructions",
        call.instructions.as_deref().unwrap_or(""),
        chat::INSTRUCTIONS_BYTES_MAX,
    )?;
    let config = settings.config()?;
    let presence = presence.clone();
    caller
        .write(store, move |tx, who| {
            let caller = ChatCaller::of(tx.connection(), who)?;
            let chat = start(tx, &config, &caller, call, title)?;
            render::full(tx.connection(), &caller, &presence, &chat)
        })
        .await
}

fn start(
    tx: &mut Tx<'_>,
    config: &Config,
    caller: &ChatCaller,
    call: StartChat,
    title: String,
) -> Result<Chat, StoreError> {
    let from = call
        .branch_from
        .as_deref()
        .map(|given| Branch::find(tx.connection(), caller, given))
        .transpose()?;
    let given = call
        .template
        .as_deref()
        .map(|name| config.chats.template(name))
        .transpose()?;
    let mut others = participants(tx.connection(), config, caller, &call.participants, given)?;
    let mut scope = scope_with(tx.connection(), caller, &others)?;
    let mut private = call.private || given.is_some_and(|template| template.private);
    if let Some(Branch { parent, .. }) = &from {
        scope = parent.scope.clone();
        private |= parent.private;
        others.extend(inherited_participants(tx.connection(), parent)?);
    }
    let chat = tx.start_chat(&NewChat {
        kind: ChatKind::Chat,
        title,
        scope,
        private,
        pair: None,
        instructions: call
            .instructions
            .or_else(|| given.and_then(|template| template.instructions.clone())),
        window: given
            .and_then(|template| template.window)
            .map_or(config.chats.window, Into::into),
        turns_max: given
            .and_then(|template| template.turns_max)
            .unwrap_or(config.chats.turns_max),
        template: call.template,
        branch_of: from.as_ref().map(|from| (from.parent.id, from.seq)),
        started_by: caller.participant(),
        started_name: caller.name.clone(),
    })?;
    check_can_see(tx.connection(), "participants", &others, &chat)?;
    tx.join_chat(chat.id, &caller.participant(), &caller.name)?;
    for (who, name) in &others {
        tx.join_chat(chat.id, who, name)?;
    }
    // Only its own hub adds entries to a copy.
    if let Some(from) = from.filter(|from| !from.parent.is_followed()) {
        from.note(tx, caller, &chat)?;
    }
    Ok(chat)
}

/// The entry of another chat at which a new one branches off.
struct Branch {
    parent: Chat,
    seq: i64,
}

impl Branch {
    /// Finds the entry that is given as `CHAT`, for its last one, or `CHAT.ENTRY`.
    fn find(connection: &Connection, caller: &ChatCaller, given: &str) -> Result<Self, StoreError> {
        let whole = given.trim().parse::<i64>().ok();
        let (of, seq) = match whole {
            Some(of) => (of, None),
            None => entry_no("branch_from", None, given).map(|(of, seq)| (of, Some(seq)))?,
        };
        let parent = caller.chat(connection, of)?;
        let seq = seq.unwrap_or(parent.last_seq);
        if seq > 0 && entry_by_seq(connection, parent.id, seq)?.is_none() {
            return Err(Denied::not_found("message", given).into());
        }
        Ok(Self { parent, seq })
    }

    /// Adds the branch to the other chat.
    fn note(&self, tx: &mut Tx<'_>, caller: &ChatCaller, branch: &Chat) -> Result<(), StoreError> {
        let Self { parent, seq } = self;
        let by = chat::shown_name(&caller.participant(), &caller.name, None);
        // Other hubs see the parent, but not the branch.
        let title = if parent.link.is_some() {
            String::new()
        } else {
            format!(" \"{}\"", branch.title)
        };
        tx.add_entry(
            parent.id,
            &note(format!(
                "chat {}{title} branches off at {}.{seq}, by {by}",
                branch.id, parent.id
            )),
        )?;
        Ok(())
    }
}

/// Returns the other participants of a new chat: those that the caller names, and those of its
/// template.
fn participants(
    connection: &Connection,
    config: &Config,
    caller: &ChatCaller,
    named: &[String],
    template: Option<&Template>,
) -> Result<Vec<(Participant, String)>, StoreError> {
    let mut others = Vec::new();
    for name in named
        .iter()
        .chain(template.iter().flat_map(|template| &template.participants))
    {
        let one = caller.addressee(connection, config, name)?;
        if one.0 != caller.participant() && !others.contains(&one) {
            others.push(one);
        }
    }
    Ok(others)
}

/// Returns the participants that a branch takes over: all of a private chat, otherwise its agents.
fn inherited_participants(
    connection: &Connection,
    parent: &Chat,
) -> Result<Vec<(Participant, String)>, StoreError> {
    let is_inherited = |member: &Member| {
        if parent.private {
            member.joined_at.is_some() && is_real_participant(member)
        } else {
            matches!(member.who, Participant::Agent(_))
        }
    };
    Ok(members(connection, parent.id)?
        .into_iter()
        .filter(is_inherited)
        .map(|member| (member.who, member.name))
        .collect())
}

/// Returns the scope of a new chat. A person's chat with a client or with runs belongs to their
/// owner, so that they can find it.
fn scope_with(
    connection: &Connection,
    caller: &ChatCaller,
    others: &[(Participant, String)],
) -> Result<Scope, StoreError> {
    let mut scope = caller.viewer.scope.clone();
    if caller.viewer.who != Principal::Person {
        return Ok(scope);
    }
    let mut owner = None;
    for (who, _) in others {
        let theirs = match who {
            Participant::Principal(run @ Principal::Run(_)) => {
                ChatCaller::of(connection, run)?.viewer.scope.owner
            }
            Participant::Principal(client @ Principal::Client(_)) => client.clone(),
            Participant::Principal(Principal::Person)
            | Participant::Agent(_)
            | Participant::Hub
            | Participant::Peer(_)
            | Participant::FromFile(_) => continue,
        };
        if owner.as_ref().is_some_and(|owner| *owner != theirs) {
            return Err(Denied::invalid(
                "participants",
                "belong to different clients, which cannot share a chat",
            )
            .into());
        }
        owner = Some(theirs);
    }
    if let Some(owner) = owner {
        scope.owner = owner;
    }
    Ok(scope)
}

fn is_real_participant(member: &Member) -> bool {
    !matches!(member.who, Participant::Peer(_) | Participant::FromFile(_))
}
