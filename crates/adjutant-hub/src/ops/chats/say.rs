//! Posting messages, editing and pinning them, and writing board entries.

use crate::config::{BUILT_IN, Config};
use crate::ops::chats::caller::{ChatCaller, check_can_see};
use crate::ops::chats::direct::{BOARD, LEDGER, ROOT_BOARD, board, direct, root_board};
use crate::ops::chats::entry::{entry_no, found};
use crate::ops::chats::linked::{NewPost, queue_post};
use crate::ops::chats::publish::{Publication, publish};
use crate::ops::chats::render;
use crate::ops::chats::work_context::WorkContext;
use crate::ops::{Caller, OpError, Ops, ledger, programs};
use crate::store::{
    Chat, ChatEntry, Connection, NewEntry, StoreError, Tx, agents_in, board_size, changes_of,
    chat_by_id, entry_by_key, hops_behind, member, members, turn_of_run,
};
use crate::view::{ChatEntryView, PostedMessage, Say};
use adjutant_core::chat::{
    self, ChatId, ChatKind, EntryKind, KEY_BYTES_MAX, LEDGER_KEY_PREFIX, Participant,
    check_board_announcement, check_board_entry, check_edit, is_expected_version,
};
use adjutant_core::{Action, AgentName, Denied, Principal};

/// Maximum number of characters of a board entry quoted in an error.
const CURRENT_CHARS_MAX: usize = 2_000;
/// The agent that the original tool asks.
const ORIGINAL_RESPONDER: &str = "gemini";

impl Ops {
    /// Posts a message. Durable when it returns; agents answer asynchronously.
    ///
    /// # Errors
    /// Unknown or foreign chat or participant, an archived chat, or an unusable text.
    pub async fn say(&self, caller: Caller, mut call: Say) -> Result<PostedMessage, OpError> {
        Self::check(&caller.who, Action::Say)?;
        if let Some(message) = &call.message {
            chat::checked_message(message)?;
        }
        call.label = call.label.as_deref().map(chat::checked_label).transpose()?;
        let config = self.config()?;
        let (work_context, kept) = self.work_context(&caller.who, &call.cwd, &call.env)?;
        let responder = if call.default_responder {
            default_responder(&config, work_context.env.path())
        } else {
            None
        };
        let announces = call.chat_id.is_none() && call.to.iter().eq([LEDGER]);
        let tree = if announces {
            self.announcing_tree(&caller.who)?
        } else {
            None
        };
        let (chat, names_someone) = (
            call.chat_id.map(ChatId),
            call.message
                .as_deref()
                .is_some_and(|text| !chat::mentions(text).is_empty()),
        );
        let announce = move |connection: &Connection, who: &Principal| {
            if let Some(chat) = chat {
                announce_chat(connection, chat, who, names_someone);
            }
        };
        let say = move |tx: &mut Tx<'_>, who: &Principal| {
            let caller = ChatCaller::of(tx.connection(), who)?;
            if !announces {
                return say(tx, &config, &caller, call, responder, work_context);
            }
            let (run, text, notes) = ledger::announce(
                tx,
                caller.run.as_ref(),
                tree.as_ref(),
                call.message.as_deref().unwrap_or_default(),
            )?;
            let key = format!("{LEDGER_KEY_PREFIX}{}", run.name);
            let chat = board(tx, &config, &caller, None)?;
            let entry = entry_by_key(tx.connection(), chat.id, &key)?;
            if let Some(why) = refusal(tx, &chat, &text, entry.is_none())? {
                let without = || ChatEntryView {
                    chat_id: chat.id.0,
                    text,
                    key: Some(key),
                    ..ChatEntryView::default()
                };
                let message = entry.as_ref().map_or_else(without, render::entry);
                let notes = std::iter::once(format!("announced, but not on the board: {why}"))
                    .chain(notes)
                    .collect();
                return Ok(PostedMessage {
                    chat_id: chat.id.0,
                    title: chat.title,
                    message,
                    notes,
                    ..PostedMessage::default()
                });
            }
            let call = Say {
                to: vec![BOARD.to_owned()],
                message: Some(text),
                key: Some(key),
                edit_of: None,
                reply_to: None,
                expect: None,
                ..call
            };
            let mut posted = say(tx, &config, &caller, call, responder, work_context)?;
            posted.notes.extend(notes);
            Ok(posted)
        };
        // The reply is its own receipt, since the message may be edited before the call is repeated.
        let posted = self
            .write_with_receipt(caller, announce, say, PostedMessage::clone, |_, posted| {
                Ok(posted)
            })
            .await;
        self.resolve_credentials(kept).await;
        posted
    }
}

/// Announces the first reads of a post in a chat.
fn announce_chat(connection: &Connection, chat: ChatId, who: &Principal, names_someone: bool) {
    connection.announce(|connection| chat_by_id(connection, chat));
    connection.announce(|connection| member(connection, chat, &who.to_string()));
    if let Principal::Run(run) = who {
        connection.announce(|connection| turn_of_run(connection, *run));
    }
    if !names_someone {
        connection.announce(|connection| agents_in(connection, chat));
    }
    // For a direct chat, or to resolve the names.
    connection.announce(|connection| members(connection, chat));
}

/// Returns why a board does not take what a run announces, which is stored in any case.
fn refusal(
    tx: &Tx<'_>,
    board: &Chat,
    text: &str,
    is_new: bool,
) -> Result<Option<String>, StoreError> {
    if board.archived {
        return Ok(Some("it is archived".to_owned()));
    }
    let changes = changes_of(tx.connection(), board.id)?;
    let entries = board_size(tx.connection(), board)?;
    Ok(check_board_announcement(text, entries, changes, is_new)
        .err()
        .map(|denied| denied.to_string()))
}

fn say(
    tx: &mut Tx<'_>,
    config: &Config,
    caller: &ChatCaller,
    call: Say,
    responder: Option<AgentName>,
    work_context: WorkContext,
) -> Result<PostedMessage, StoreError> {
    let Say {
        chat_id,
        to,
        message,
        reply_to,
        edit_of,
        pin,
        label,
        key,
        expect,
        default_responder: _,
        board_of,
        cwd: _,
        env: _,
    } = call;
    let chat_id = match (chat_id, &edit_of) {
        (None, Some(given)) => Some(entry_no("edit_of", None, given)?.0),
        (given, _) => given,
    };
    if chat_id.is_none() || edit_of.is_some() || key.is_some() {
        tx.may_refuse_late()?;
    }
    let (chat, to) = chat_and_recipients(tx, config, caller, chat_id, &to, board_of.as_deref())?;
    if chat.archived {
        return Err(Denied::conflict(
            "chat_id",
            format!(
                "chat {} is archived: restore it first (adj chat archive --undo)",
                chat.id
            ),
        )
        .into());
    }
    let posted = |entry: &ChatEntry, answering: &[AgentName], notes: Vec<String>| PostedMessage {
        chat_id: chat.id.0,
        title: chat.title.clone(),
        message: render::entry(entry),
        answering: answering.iter().map(ToString::to_string).collect(),
        notes,
        receipts: Vec::new(),
        has_no_agent: false,
    };
    if chat.is_followed() {
        let (edits, is_addressed) = (
            edit_of.is_some() || pin.is_some(),
            !to.is_empty() || key.is_some() || expect.is_some(),
        );
        return queue_post(
            tx,
            caller,
            &chat,
            NewPost {
                text: message,
                reply_to,
                edits,
                is_addressed,
            },
        );
    }
    if let Some(given) = edit_of {
        let entry = edit_entry(tx, caller, &chat, &given, message.as_deref(), pin)?;
        return Ok(posted(&entry, &[], Vec::new()));
    }
    let Some(text) = message else {
        return Err(Denied::invalid("message", "is missing").into());
    };
    if expect.is_some() && key.is_none() {
        return Err(
            Denied::invalid("expect", "needs key: it is the version of a board entry").into(),
        );
    }
    if let Some(key) = &key
        && let Some(entry) = revise_board_entry(tx, caller, &chat, key, &text, expect, pin)?
    {
        return Ok(posted(&entry, &[], Vec::new()));
    }
    if chat.kind == ChatKind::Board && key.is_none() {
        check_board_entry(&text, board_size(tx.connection(), &chat)?, 0, true)?;
    }
    let reply_to = reply_to
        .map(|given| entry_no("reply_to", Some(chat.id.0), &given))
        .transpose()?
        .map(|(_, seq)| seq);
    if let Some(seq) = reply_to {
        found(tx, &chat, seq)?;
    }
    // A run that answers in a chat posts as part of that turn, in any chat.
    let turn = match &caller.run {
        Some(run) => turn_of_run(tx.connection(), run.id)?,
        None => None,
    };
    let hops = match &caller.run {
        Some(run) => hops_behind(tx.connection(), run, chat.id)?,
        None => 0,
    };
    check_can_see(tx.connection(), "to", &to, &chat)?;
    if turn.is_some() && chat.private {
        let members = members(tx.connection(), chat.id)?;
        if !to.iter().all(|(who, _)| {
            members
                .iter()
                .any(|member| member.who == *who && member.joined_at.is_some())
        }) {
            return Err(Denied::NotAllowed {
                who: "an agent that answers",
                action: "bring others into a private chat",
            }
            .into());
        }
    }
    let decision = chat::is_decision(&text);
    let published = publish(
        tx,
        Publication {
            config,
            caller,
            by: &caller.viewer.who,
            chat: &chat,
            entry: NewEntry {
                kind: EntryKind::Message,
                author: caller.participant(),
                name: caller.name.clone(),
                label,
                text,
                reply_to,
                hops,
                pinned: pin.unwrap_or(decision),
                key,
            },
            to,
            said_by_agent: turn.map(|turn| turn.agent),
            responder,
            work_context,
        },
    )?;
    let receipts = published.receipts.iter().map(render::receipt).collect();
    Ok(PostedMessage {
        receipts,
        has_no_agent: published.has_no_agent,
        ..posted(&published.entry, &published.answering, published.notes)
    })
}

/// Returns the agent that answers under `--compat` in a chat without an agent: the configured one, otherwise `gemini`, whom the original
/// tool asks, if it is declared or installed. `path`: where its program is searched.
fn default_responder(config: &Config, path: &str) -> Option<AgentName> {
    let gemini = || {
        let entry = config
            .agents
            .get(&AgentName::parse(ORIGINAL_RESPONDER).ok()?)?;
        (entry.source != BUILT_IN || programs::program(entry, path).is_ok())
            .then(|| entry.spec.name.clone())
    };
    config.chats.default_responder.clone().or_else(gemini)
}

/// Returns the chat of a message, and the recipients whom it names in that chat.
fn chat_and_recipients(
    tx: &mut Tx<'_>,
    config: &Config,
    caller: &ChatCaller,
    chat_id: Option<i64>,
    to: &[String],
    board_of: Option<&str>,
) -> Result<(Chat, Vec<(Participant, String)>), StoreError> {
    if let Some(id) = chat_id {
        let chat = caller.chat(tx.connection(), id)?;
        let to = to
            .iter()
            .map(|name| caller.addressee(tx.connection(), config, name))
            .collect::<Result<Vec<_>, _>>()?;
        return Ok((chat, to));
    }
    let chat = match to {
        [one] if one == BOARD => board(tx, config, caller, None)?,
        [one] if one == ROOT_BOARD => root_board(tx, config, caller, board_of)?,
        [one] => direct(tx, config, caller, one)?,
        [] => {
            return Err(Denied::invalid("chat_id", "name the chat, or a recipient in `to`").into());
        }
        _ => {
            return Err(Denied::invalid(
                "to",
                "name exactly one recipient, or start a chat for several",
            )
            .into());
        }
    };
    Ok((chat, Vec::new()))
}

/// Replaces the text of an entry, or pins it.
fn edit_entry(
    tx: &mut Tx<'_>,
    caller: &ChatCaller,
    chat: &Chat,
    given: &str,
    text: Option<&str>,
    pin: Option<bool>,
) -> Result<ChatEntry, StoreError> {
    let (_, seq) = entry_no("edit_of", Some(chat.id.0), given)?;
    let mut entry = found(tx, chat, seq)?;
    if text.is_none() && pin.is_none() {
        return Err(Denied::invalid(
            "message",
            "give the new text, or say whether to pin the message",
        )
        .into());
    }
    if let Some(text) = text {
        check_edit(&caller.viewer.who, &entry.author)?;
        entry = tx.revise_entry(&entry, text, None)?;
    }
    pin_revised(tx, entry, pin)
}

/// Pins or unpins a revised entry as requested; a decision is always pinned.
fn pin_revised(
    tx: &mut Tx<'_>,
    entry: ChatEntry,
    pin: Option<bool>,
) -> Result<ChatEntry, StoreError> {
    match pin.or((!entry.pinned && chat::is_decision(&entry.text)).then_some(true)) {
        Some(pin) => tx.pin_entry(&entry, pin),
        None => Ok(entry),
    }
}

/// Checks a board entry, and revises the one with its key. `None`: there is none yet.
fn revise_board_entry(
    tx: &mut Tx<'_>,
    caller: &ChatCaller,
    chat: &Chat,
    key: &str,
    text: &str,
    expect: Option<u32>,
    pin: Option<bool>,
) -> Result<Option<ChatEntry>, StoreError> {
    if chat.kind != ChatKind::Board || key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Denied::invalid(
            "key",
            format!("must name a board entry (to=board) in 1 to {KEY_BYTES_MAX} bytes"),
        )
        .into());
    }
    let is_own_ledger = caller
        .run
        .as_ref()
        .is_some_and(|run| key.strip_prefix(LEDGER_KEY_PREFIX) == Some(run.name.as_str()));
    if key.starts_with(LEDGER_KEY_PREFIX) && !is_own_ledger {
        return Err(Denied::invalid(
            "key",
            format!("{LEDGER_KEY_PREFIX}… is for what runs announce (to=ledger)"),
        )
        .into());
    }
    let existing = entry_by_key(tx.connection(), chat.id, key)?;
    check_board_entry(
        text,
        board_size(tx.connection(), chat)?,
        changes_of(tx.connection(), chat.id)?,
        existing.is_none(),
    )?;
    let version = existing.as_ref().map_or(0, |entry| entry.revision + 1);
    if let Some(expect) = expect.filter(|expect| {
        !is_expected_version(Some(*expect), existing.as_ref().map(|entry| entry.revision))
    }) {
        let now = existing
            .as_ref()
            .map_or_else(String::new, |entry| format!(": {}", current(entry)));
        return Err(Denied::conflict(
            "expect",
            format!("{expect}, but the entry is at version {version}{now}"),
        )
        .into());
    }
    let Some(entry) = existing else {
        return Ok(None);
    };
    let entry = tx.revise_entry(&entry, text, Some((&caller.participant(), &caller.name)))?;
    pin_revised(tx, entry, pin).map(Some)
}

/// Quotes the current text of a board entry on one line, for a conflict error.
fn current(entry: &ChatEntry) -> String {
    let text: String = entry.text.chars().take(CURRENT_CHARS_MAX).collect();
    let cut = if text.len() < entry.text.len() {
        " (cut)"
    } else {
        ""
    };
    let by = chat::shown_name(&entry.author, &entry.name, None);
    format!("{:?}{cut} by {by}", adjutant_core::quote::sanitize(&text))
}
