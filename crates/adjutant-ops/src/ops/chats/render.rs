//! Views of chats.

use super::caller::ChatCaller;
use super::followed::{followed_of, outgoing_of, share_views};
use super::presence::Presence;
use crate::clock::rfc3339;
use crate::store::{
    Chat, ChatEntry, ChatLink, Connection, NoteReceipt, StoreError, TurnState, branches_of, member,
    members, participant_count, receipts_of, turns_to_answer, unread,
};
use crate::view::{
    Activity, ChatEntryView, ChatStatus, ChatView, ParticipantView, ReceiptView, Word,
};
use adjutant_core::chat::{Participant, shown_name};

pub(in crate::ops) fn entry(entry: &ChatEntry) -> ChatEntryView {
    let ChatEntry {
        id: _,
        chat,
        seq,
        kind,
        author,
        name,
        label,
        text,
        at,
        reply_to,
        hops: _,
        pinned,
        revision,
        edited_at,
        key,
    } = entry;
    ChatEntryView {
        message_id: format!("{chat}.{seq}"),
        chat_id: chat.0,
        seq: *seq,
        kind: (*kind).into(),
        from: author.to_string(),
        name: shown_name(author, name, label.as_deref()),
        label: label.clone(),
        text: text.clone(),
        at: rfc3339(*at),
        reply_to: *reply_to,
        pinned: *pinned,
        revision: *revision,
        edited_at: edited_at.map(rfc3339),
        key: key.clone(),
        receipts: Vec::new(),
    }
}

/// Returns an entry with its receipts, which a run sees of its own entries only.
pub(super) fn with_receipts(
    connection: &Connection,
    caller: &ChatCaller,
    of: &ChatEntry,
) -> Result<ChatEntryView, StoreError> {
    if caller.run.is_some() && of.author != caller.participant() {
        return Ok(entry(of));
    }
    Ok(ChatEntryView {
        receipts: receipts_of(connection, of.id)?
            .iter()
            .map(receipt)
            .collect(),
        ..entry(of)
    })
}

pub(super) fn receipt(receipt: &NoteReceipt) -> ReceiptView {
    let NoteReceipt {
        run,
        name,
        receipt,
        at,
        has_ended: _,
    } = receipt;
    ReceiptView {
        run_id: run.to_string(),
        run_name: name.clone(),
        receipt: (*receipt).into(),
        at: rfc3339(*at),
    }
}

/// Returns a chat for a list.
pub(super) fn brief(
    connection: &Connection,
    caller: &ChatCaller,
    chat: &Chat,
) -> Result<ChatView, StoreError> {
    let who = caller.viewer.who.to_string();
    let own = member(connection, chat.id, &who)?;
    let read_seq = own.as_ref().map_or(0, |own| own.read_seq);
    Ok(ChatView {
        chat_id: chat.id.0,
        kind: chat.kind.into(),
        title: chat.title.clone(),
        status: if chat.archived {
            ChatStatus::Archived
        } else {
            ChatStatus::Active
        }
        .into(),
        private: chat.private,
        owner: chat.scope.owner.to_string(),
        root: chat.scope.root.map(|root| root.to_string()),
        started_by: shown_name(&chat.started_by, &chat.started_name, None),
        started_at: rfc3339(chat.started_at),
        last_at: rfc3339(chat.last_at),
        last_seq: chat.last_seq,
        participant_count: participant_count(connection, chat.id)?,
        unread: if read_seq >= chat.last_seq {
            0
        } else {
            unread(connection, chat.id, &who, read_seq)?
        },
        mentioned: own.is_some_and(|own| own.mention_seq > own.read_seq),
        template: chat.template.clone(),
        instructions: chat.instructions.clone(),
        branch_of: chat.branch_of.map(|(chat, seq)| format!("{chat}.{seq}")),
        imported: chat.imported,
        shared_with: Vec::new(),
        followed: None,
        outgoing: Vec::new(),
        branches: Vec::new(),
        participants: Vec::new(),
    })
}

/// Returns a chat with its participants and branches.
pub(in crate::ops) fn full(
    connection: &Connection,
    caller: &ChatCaller,
    presence: &Presence,
    chat: &Chat,
) -> Result<ChatView, StoreError> {
    let mut view = brief(connection, caller, chat)?;
    match chat.link {
        Some(ChatLink::Shared) => view.shared_with = share_views(connection, chat.id)?,
        Some(ChatLink::Followed) => {
            view.followed = followed_of(connection, chat.id)?;
            view.outgoing = outgoing_of(connection, chat.id)?;
        }
        None => {}
    }
    let open = turns_to_answer(connection, chat.id, 0)?;
    for branch in branches_of(connection, chat.id)? {
        if caller.sees(connection, &branch)? {
            view.branches.push(branch.id.0);
        }
    }
    for member in members(connection, chat.id)?
        .into_iter()
        .filter(|member| member.joined_at.is_some())
    {
        let who = member.who.to_string();
        let turn = match &member.who {
            Participant::Agent(agent) => open.iter().find(|turn| turn.agent == *agent),
            Participant::Principal(_)
            | Participant::Hub
            | Participant::Peer(_)
            | Participant::FromFile(_) => None,
        };
        let presence = match turn.map(|turn| turn.state) {
            Some(TurnState::Running) => Activity::Answering.into(),
            Some(_) => Activity::Queued.into(),
            None if presence.is_reading(chat.id, &who) => Activity::Reading.into(),
            None => Word::default(),
        };
        view.participants.push(ParticipantView {
            name: shown_name(&member.who, &member.name, None),
            who,
            messages: member.said,
            read_to: member.read_seq,
            presence,
            seen_at: member.seen_at.map(rfc3339),
        });
    }
    Ok(view)
}
