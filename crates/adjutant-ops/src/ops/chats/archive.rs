//! Archiving chats.

use crate::config::Home;
use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::presence::Presence;
use crate::ops::chats::work_context::work_context;
use crate::ops::chats::{render, summary};
use crate::ops::credentials::resolve_credentials;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup};
use crate::store::{Store, Tx};
use crate::view::{ArchiveChat, ChatView};
use adjutant_core::{Action, Denied, Principal};

/// Archives or restores a chat. If configured, a summary is requested when archiving; it can
/// fail without affecting the archive.
///
/// # Errors
/// Unknown or foreign, or the caller is a run.
pub async fn archive_chat(
    store: &Store,
    home: &Home,
    settings: &Settings,
    presence: &Presence,
    caller: Caller,
    call: ArchiveChat,
) -> Result<ChatView, OpError> {
    lookup::check(&caller.who, Action::Say)?;
    if matches!(caller.who, Principal::Run(_)) {
        return Err(Denied::NotAllowed {
            who: "a run",
            action: "archive chats",
        }
        .into());
    }
    let presence = presence.clone();
    let chats = &settings.config_or_builtin().chats;
    let summariser = chats
        .summariser
        .clone()
        .filter(|_| chats.summarise_on_archive && call.archived);
    let summariser = match summariser
        .map(|agent| {
            Ok((
                agent,
                work_context(store, home, &caller.who, &call.cwd, &call.env)?,
            ))
        })
        .transpose()
    {
        Ok(summariser) => summariser,
        Err(error) => {
            let error: OpError = error;
            tracing::warn!(%error, chat = call.chat_id, "archived without a summary");
            None
        }
    };
    let (summariser, kept) = summariser.map_or((None, None), |(agent, (work_context, kept))| {
        (Some((agent, work_context)), Some(kept))
    });
    let archive = move |tx: &mut Tx<'_>, who: &Principal| {
        let caller = ChatCaller::of(tx.connection(), who)?;
        let chat = caller.chat(tx.connection(), call.chat_id)?;
        if *who != Principal::Person && chat.scope.owner != *who {
            return Err(Denied::NotAllowed {
                who: "a client",
                action: "archive chats of another owner",
            }
            .into());
        }
        if let Some((agent, work_context)) =
            summariser.filter(|_| !chat.archived && chat.said > 0 && !chat.is_followed())
        {
            tx.queue_turn(&summary::summary(chat.id, agent, work_context))?;
        }
        let chat = tx.archive_chat(chat.id, call.archived)?;
        render::full(tx.connection(), &caller, &presence, &chat)
    };
    let archived = caller.write(store, archive).await;
    if let Some(kept) = kept {
        resolve_credentials(store, kept).await;
    }
    archived
}
