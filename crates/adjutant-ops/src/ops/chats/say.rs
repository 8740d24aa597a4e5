//! Posting messages, editing and pinning them, and writing board entries.

use crate::config::{BUILT_IN, Config, Home};
use crate::ops::chats::caller::{ChatCaller, check_can_see};
use crate::ops::chats::direct::{BOARD, LEDGER, ROOT_BOARD, board, direct, root_board};
use crate::ops::chats::entry::{entry_no, found};
use crate::ops::chats::followed::{NewPost, queue_post};
use crate::ops::chats::publish::{Publication, publish};
use crate::ops::chats::render;
use crate::ops::chats::work_context::{WorkContext, work_context};
use crate::ops::credentials::resolve_credentials;
use crate::ops::ledger::{self, AnnouncingTree, announcing_tree};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, Ops, lookup, programs};
use crate::store::{
    Chat, ChatEntry, Connection, NewEntry, Store, StoreError, Tx, agents_in, board_size,
    changes_of, chat_by_id, entry_by_key, hops_behind, member, members, turn_of_run,
};
use crate::view::{ChatEntryView, PostedMessage, Say};
use adjutant_core::chat::{
    self, ChatId, ChatKind, EntryKind, KEY_BYTES_MAX, LEDGER_KEY_PREFIX, Participant,
    check_board_announcement, check_board_entry, check_edit, is_expected_version,
};
use adjutant_core::{Action, AgentName, Denied, Principal, shorten};
use std::sync::Arc;

/// Maximum number of characters of a board entry quoted in an error.
const CURRENT_CHARS_MAX: usize = 2_000;
/// The agent that the original tool asks.
const ORIGINAL_RESPONDER: &str = "gemini";

/// Adds messages to chats.
#[derive(Debug, Clone)]
pub struct SayCall {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
}

impl SayCall {
    #[must_use]
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
        }
    }

    /// Posts a message. Durable when it returns; agents answer asynchronously.
    ///
    /// # Errors
    /// Unknown or foreign chat or participant, an archived chat, or an unusable text.
    pub async fn say(&self, caller: Caller, mut call: Say) -> Result<PostedMessage, OpError> {
        lookup::check(&caller.who, Action::Say)?;
        if let Some(message) = &call.message {
            chat::checked_message(message)?;
        }
        call.label = call.label.as_deref().map(chat::checked_label).transpose()?;
        let config = self.settings.config()?;
        let (work_context, kept) =
            work_context(&self.store, &self.home, &caller.who, &call.cwd, &call.env)?;
        let responder = if call.default_responder {
            default_responder(&config, work_context.env.path())
        } else {
            None
        };
        let announces = call.chat_id.is_none() && call.to.iter().eq([LEDGER]);
        let tree = if announces {
            announcing_tree(&self.store, &caller.who)?
        } else {
            None
        };
        let (chat, names_someone) = (
            call.chat_id.map(ChatId),
            call.message
                .as_deref()
                .is_some_and(|text| !chat::mentions(text).is_empty()),
        );
        let announce_reads = move |connection: &Connection, who: &Principal| {
            if let Some(chat) = chat {
                announce_chat(connection, chat, who, names_someone);
            }
        };
        let say = move |tx: &mut Tx<'_>, who: &Principal| {
            let caller = ChatCaller::of(tx.connection(), who)?;
            let post = Post {
                config: &config,
                caller: &caller,
                call,
                responder,
                work_context,
            };
            if announces {
                post.announce(tx, tree.as_ref())
            } else {
                post.publish(tx)
            }
        };
        // The reply is its own receipt, since the message may be edited before the call is
        // repeated.
        let posted = caller
            .write_with_receipt(
                &self.store,
                announce_reads,
                say,
                PostedMessage::clone,
                |_, posted| Ok(posted),
            )
            .await;
        resolve_credentials(&self.store, kept).await;
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

/// A post, with the context of its caller.
struct Post<'a> {
    config: &'a Config,
    caller: &'a ChatCaller,
    call: Say,
    /// Answers if no other agent does.
    responder: Option<AgentName>,
    work_context: WorkContext,
}

impl Post<'_> {
    /// Adds what a run announces to the board, unless the board does not take it. `tree`: the
    /// work tree that it is about.
    fn announce(
        mut self,
        tx: &mut Tx<'_>,
        tree: Option<&AnnouncingTree>,
    ) -> Result<PostedMessage, StoreError> {
        let (run, text, notes) = ledger::announce(
            tx,
            self.caller.run.as_ref(),
            tree,
            self.call.message.as_deref().unwrap_or_default(),
        )?;
        let key = format!("{LEDGER_KEY_PREFIX}{}", run.name);
        let chat = board(tx, self.config, self.caller, None)?;
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
        self.call = Say {
            to: vec![BOARD.to_owned()],
            message: Some(text),
            key: Some(key),
            edit_of: None,
            reply_to: None,
            expect: None,
            ..self.call
        };
        let mut posted = self.publish(tx)?;
        posted.notes.extend(notes);
        Ok(posted)
    }

    /// Edits, revises or adds an entry.
    fn publish(self, tx: &mut Tx<'_>) -> Result<PostedMessage, StoreError> {
        let (chat, to) = self.destination(tx)?;
        if chat.is_followed() {
            return self.queue(tx, &chat, &to);
        }
        let Say {
            edit_of,
            message,
            pin,
            ..
        } = &self.call;
        if let Some(given) = edit_of {
            let entry = edit_entry(tx, self.caller, &chat, given, message.as_deref(), *pin)?;
            return Ok(posted(&chat, &entry));
        }
        let text = self.text()?;
        if let Some(key) = &self.call.key {
            let revision = BoardRevision {
                key,
                text,
                expect: self.call.expect,
                pin: self.call.pin,
            };
            if let Some(entry) = revision.apply(tx, self.caller, &chat)? {
                return Ok(posted(&chat, &entry));
            }
        } else if chat.kind == ChatKind::Board {
            check_board_entry(text, board_size(tx.connection(), &chat)?, 0, true)?;
        }
        self.add(tx, &chat, to)
    }

    /// Returns the chat of a message, and the recipients whom it names in that chat.
    fn destination(
        &self,
        tx: &mut Tx<'_>,
    ) -> Result<(Chat, Vec<(Participant, String)>), StoreError> {
        let Say {
            chat_id,
            to,
            edit_of,
            key,
            board_of,
            ..
        } = &self.call;
        let chat_id = match (*chat_id, edit_of) {
            (None, Some(given)) => Some(entry_no("edit_of", None, given)?.0),
            (given, _) => given,
        };
        if chat_id.is_none() || edit_of.is_some() || key.is_some() {
            tx.may_refuse_late()?;
        }
        let (chat, to) = match chat_id {
            Some(id) => {
                let chat = self.caller.chat(tx.connection(), id)?;
                let to = to
                    .iter()
                    .map(|name| self.caller.addressee(tx.connection(), self.config, name))
                    .collect::<Result<Vec<_>, _>>()?;
                (chat, to)
            }
            None => (self.chat_with(tx, to, board_of.as_deref())?, Vec::new()),
        };
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
        Ok((chat, to))
    }

    /// Returns the board or the direct chat that the only recipient names.
    fn chat_with(
        &self,
        tx: &mut Tx<'_>,
        to: &[String],
        board_of: Option<&str>,
    ) -> Result<Chat, StoreError> {
        let (config, caller) = (self.config, self.caller);
        match to {
            [one] if one == BOARD => board(tx, config, caller, None),
            [one] if one == ROOT_BOARD => root_board(tx, config, caller, board_of),
            [one] => direct(tx, config, caller, one),
            [] => Err(Denied::invalid("chat_id", "name the chat, or a recipient in `to`").into()),
            _ => Err(Denied::invalid(
                "to",
                "name exactly one recipient, or start a chat for several",
            )
            .into()),
        }
    }

    /// Queues a message for the chat of another hub.
    fn queue(
        self,
        tx: &mut Tx<'_>,
        chat: &Chat,
        to: &[(Participant, String)],
    ) -> Result<PostedMessage, StoreError> {
        let Say {
            message,
            reply_to,
            edit_of,
            pin,
            key,
            expect,
            ..
        } = self.call;
        let post = NewPost {
            text: message,
            reply_to,
            edits: edit_of.is_some() || pin.is_some(),
            is_addressed: !to.is_empty() || key.is_some() || expect.is_some(),
        };
        queue_post(tx, self.caller, chat, post)
    }

    fn text(&self) -> Result<&str, Denied> {
        let Some(text) = &self.call.message else {
            return Err(Denied::invalid("message", "is missing"));
        };
        if self.call.expect.is_some() && self.call.key.is_none() {
            return Err(Denied::invalid(
                "expect",
                "needs key: it is the version of a board entry",
            ));
        }
        Ok(text)
    }

    /// Adds an entry to a chat of this hub.
    fn add(
        self,
        tx: &mut Tx<'_>,
        chat: &Chat,
        to: Vec<(Participant, String)>,
    ) -> Result<PostedMessage, StoreError> {
        let Say {
            message,
            reply_to,
            pin,
            label,
            key,
            ..
        } = self.call;
        let text = message.unwrap_or_default();
        let reply_to = reply_to
            .map(|given| entry_no("reply_to", Some(chat.id.0), &given))
            .transpose()?
            .map(|(_, seq)| seq);
        if let Some(seq) = reply_to {
            found(tx, chat, seq)?;
        }
        // A run that answers in a chat posts as part of that turn, in any chat.
        let (turn, hops) = match &self.caller.run {
            Some(run) => (
                turn_of_run(tx.connection(), run.id)?,
                hops_behind(tx.connection(), run, chat.id)?,
            ),
            None => (None, 0),
        };
        check_can_see(tx.connection(), "to", &to, chat)?;
        if turn.is_some() && chat.private {
            check_only_members(tx.connection(), chat, &to)?;
        }
        let publication = Publication {
            config: self.config,
            caller: self.caller,
            by: &self.caller.viewer.who,
            chat,
            entry: NewEntry {
                kind: EntryKind::Message,
                author: self.caller.participant(),
                name: self.caller.name.clone(),
                label,
                pinned: pin.unwrap_or_else(|| chat::is_decision(&text)),
                text,
                reply_to,
                hops,
                key,
            },
            to,
            said_by_agent: turn.map(|turn| turn.agent),
            responder: self.responder,
            work_context: self.work_context,
        };
        let published = publish(tx, publication)?;
        Ok(PostedMessage {
            answering: published
                .answering
                .iter()
                .map(ToString::to_string)
                .collect(),
            notes: published.notes,
            receipts: published.receipts.iter().map(render::receipt).collect(),
            has_no_agent: published.has_no_agent,
            ..posted(chat, &published.entry)
        })
    }
}

fn posted(chat: &Chat, entry: &ChatEntry) -> PostedMessage {
    PostedMessage {
        chat_id: chat.id.0,
        title: chat.title.clone(),
        message: render::entry(entry),
        ..PostedMessage::default()
    }
}

/// Refuses recipients who do not take part in a private chat.
fn check_only_members(
    connection: &Connection,
    chat: &Chat,
    to: &[(Participant, String)],
) -> Result<(), StoreError> {
    let members = members(connection, chat.id)?;
    let takes_part = |who: &Participant| {
        members
            .iter()
            .any(|member| member.who == *who && member.joined_at.is_some())
    };
    if to.iter().all(|(who, _)| takes_part(who)) {
        return Ok(());
    }
    Err(Denied::NotAllowed {
        who: "an agent that answers",
        action: "bring others into a private chat",
    }
    .into())
}

/// Returns the agent that answers under `--compat` in a chat without an agent: the configured one,
/// otherwise `gemini`, whom the original tool asks, if it is declared or installed. `path`: where
/// its program is searched.
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

/// A new text for the board entry with a key.
struct BoardRevision<'a> {
    key: &'a str,
    text: &'a str,
    /// The version that the caller has read.
    expect: Option<u32>,
    pin: Option<bool>,
}

impl BoardRevision<'_> {
    /// Checks a board entry, and revises the one with its key. `None`: there is none yet.
    fn apply(
        &self,
        tx: &mut Tx<'_>,
        caller: &ChatCaller,
        chat: &Chat,
    ) -> Result<Option<ChatEntry>, StoreError> {
        let own_name = caller.run.as_ref().map(|run| run.name.as_str());
        check_board_key(self.key, chat.kind, own_name)?;
        let existing = entry_by_key(tx.connection(), chat.id, self.key)?;
        check_board_entry(
            self.text,
            board_size(tx.connection(), chat)?,
            changes_of(tx.connection(), chat.id)?,
            existing.is_none(),
        )?;
        self.check_version(existing.as_ref())?;
        let Some(entry) = existing else {
            return Ok(None);
        };
        let entry = tx.revise_entry(
            &entry,
            self.text,
            Some((&caller.participant(), &caller.name)),
        )?;
        pin_revised(tx, entry, self.pin).map(Some)
    }

    fn check_version(&self, existing: Option<&ChatEntry>) -> Result<(), Denied> {
        let version = existing.map_or(0, |entry| entry.revision + 1);
        let Some(expect) = self.expect.filter(|expect| {
            !is_expected_version(Some(*expect), existing.map(|entry| entry.revision))
        }) else {
            return Ok(());
        };
        let now = existing.map_or_else(String::new, |entry| format!(": {}", current(entry)));
        Err(Denied::conflict(
            "expect",
            format!("{expect}, but the entry is at version {version}{now}"),
        ))
    }
}

/// Checks the key of a board entry. `own_name`: that of the calling run.
fn check_board_key(key: &str, kind: ChatKind, own_name: Option<&str>) -> Result<(), Denied> {
    if kind != ChatKind::Board || key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Denied::invalid(
            "key",
            format!("must name a board entry (to=board) in 1 to {KEY_BYTES_MAX} bytes"),
        ));
    }
    let announcer = key.strip_prefix(LEDGER_KEY_PREFIX);
    if announcer.is_some() && announcer != own_name {
        return Err(Denied::invalid(
            "key",
            format!("{LEDGER_KEY_PREFIX}… is for what runs announce (to=ledger)"),
        ));
    }
    Ok(())
}

/// Quotes the current text of a board entry on one line, for a conflict error.
fn current(entry: &ChatEntry) -> String {
    let text = shorten::counted(&entry.text, CURRENT_CHARS_MAX);
    let by = chat::shown_name(&entry.author, &entry.name, None);
    format!("{:?} by {by}", adjutant_core::quote::sanitize(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_itself_writes_what_it_announces() {
        let key = format!("{LEDGER_KEY_PREFIX}build");
        let check = |key: &str, own| check_board_key(key, ChatKind::Board, own).is_ok();
        assert!(check(&key, Some("build")));
        assert!(!check(&key, Some("lint")) && !check(&key, None));
        assert!(check("plan", None));
    }

    #[test]
    fn key_is_for_board_entries_and_not_too_long() {
        assert!(check_board_key("plan", ChatKind::Chat, None).is_err());
        assert!(check_board_key("", ChatKind::Board, None).is_err());
        let longest = "k".repeat(KEY_BYTES_MAX);
        assert!(check_board_key(&longest, ChatKind::Board, None).is_ok());
        assert!(check_board_key(&format!("{longest}k"), ChatKind::Board, None).is_err());
    }
}
