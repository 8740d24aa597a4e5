//! Chats: starting, finding, reading them. Who speaks comes from the connection; what exists for
//! whom is decided in the core.

mod carry;
mod mentions;
mod presence;
mod publish;
mod render;
mod say;
mod seat;
mod stats;
mod team;
mod turns;
mod window;

pub(super) use mentions::mentions_for;
pub use presence::Presence;
pub(super) use render::entry as shown_entry;
pub(super) use seat::{Seat, name_of};
pub use stats::Tally;
pub use window::Uncounted;

use super::{Caller, OpError, Ops};
use crate::config::Config;
use crate::store::{
    Chat, ChatEntry, Connection, Member, NewChat, NewEntry, StoreError, Topic, Tx, changes_of, chats_newest, entries_after, entries_changed,
    entries_last, entry_by_seq, member, members, mentions_of, newest_mention, queued_messages, run_by_id, unread_before,
};
use crate::view::{ArchiveChat, ChatList, ChatPage, ChatView, ListChats, ShowChat, StartChat};
use adjutant_core::chat::{self, ChatKind, EntryKind, Participant, Scope};
use adjutant_core::{Action, Denied, Principal, PromptVia};
use seat::check_can_see;
use tokio::time::Instant;

/// Chats that are listed when the caller says no number.
const LIST_DEFAULT: u32 = 20;
const LIST_MAX: u32 = 1_000;
/// Entries that are shown when the caller says no number.
const SHOW_DEFAULT: u32 = 50;
const SHOW_MAX: u32 = 1_000;
/// Changed entries in one page.
const CHANGED_MAX: u32 = 20;
/// Text in one page, in bytes; one entry is shown whatever its size.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Chats with something unread that are looked at to find one that its reader still sees.
const MENTIONS_LOOK_MAX: u32 = 20;

/// Parses `17` or `3.17` as an entry of a chat.
fn entry_no(field: &'static str, chat: Option<i64>, given: &str) -> Result<(i64, i64), Denied> {
    let wrong = || {
        Denied::invalid(
            field,
            if chat.is_some() { "use a message's number, such as 17 or 3.17" } else { "use a message's number with its chat's, such as 3.17" },
        )
    };
    let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number > 0);
    match given.trim().split_once('.') {
        Some((of, seq)) => {
            let (of, seq) = number(of).zip(number(seq)).ok_or_else(wrong)?;
            if chat.is_some_and(|chat| chat != of) {
                return Err(Denied::invalid(field, format!("{of}.{seq} is in another chat")));
            }
            Ok((of, seq))
        }
        None => chat.zip(number(given.trim())).ok_or_else(wrong),
    }
}

/// Keeps of a page what one reply carries, from its beginning or its end.
fn within_bytes(mut entries: Vec<ChatEntry>, from_end: bool) -> Vec<ChatEntry> {
    if from_end {
        entries.reverse();
    }
    let mut bytes = 0;
    let kept = entries.iter().take_while(|entry| {
        bytes += entry.text.len();
        bytes <= PAGE_BYTES_MAX
    });
    let kept = kept.count().max(1);
    entries.truncate(kept);
    if from_end {
        entries.reverse();
    }
    entries
}

impl Ops {
    /// Starts a chat. Durable when it returns.
    ///
    /// # Errors
    /// A title, participant, template or branch that cannot be used.
    pub async fn start_chat(&self, caller: Caller, call: StartChat) -> Result<ChatView, OpError> {
        Self::check(&caller.who, Action::StartChat)?;
        let title = chat::checked_title(&call.title)?;
        if call.participants.len() > chat::PARTICIPANTS_MAX {
            return Err(Denied::invalid("participants", format!("at most {}", chat::PARTICIPANTS_MAX)).into());
        }
        super::answers::bounded("instructions", call.instructions.as_deref().unwrap_or(""), chat::INSTRUCTIONS_BYTES_MAX)?;
        let config = self.config()?;
        let presence = self.presence.clone();
        self.write(caller, move |tx, who| {
            let seat = Seat::of(tx.connection(), who)?;
            let chat = start(tx, &config, &seat, call, title)?;
            render::full(tx.connection(), &seat, &presence, &chat)
        })
        .await
    }

    /// Lists chats that the caller may see, the one with the newest entry first; with them, for a run, its
    /// siblings. Waits, where the caller wants that, until something unread is for it.
    ///
    /// # Errors
    /// An unknown status.
    pub async fn list_chats(&self, who: &Principal, call: &ListChats) -> Result<ChatList, OpError> {
        Self::check(who, Action::ListChats)?;
        let archived = match call.status.as_deref() {
            None | Some("active") => Some(false),
            Some("archived") => Some(true),
            Some("all") => None,
            Some(_) => return Err(Denied::invalid("status", "use active, archived or all").into()),
        };
        let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        if call.wait_ms > 0 {
            self.until_named(who, super::end_of_wait(call.wait_ms)).await?;
        }
        Ok(self.store.read(|connection| {
            let seat = Seat::of(connection, who)?;
            let (team, team_more) = team::of(connection, &seat)?;
            let mut found = chats_newest(connection, &seat.viewer, archived, limit + 1)?;
            let more = found.len() > limit as usize;
            found.truncate(limit as usize);
            let chats = found.iter().map(|chat| render::brief(connection, &seat, chat)).collect::<Result<_, _>>()?;
            Ok(ChatList { chats, more, team, team_more })
        })?)
    }

    /// Waits until something unread is for somebody, or the deadline.
    async fn until_named(&self, who: &Principal, deadline: Instant) -> Result<(), OpError> {
        let name = who.to_string();
        let listener = self.store.bells().listen(topics_of(who));
        let look = |connection: &Connection| {
            let seat = Seat::of(connection, who)?;
            let mut is_named = has_messages(connection, who)?;
            for one in mentions_of(connection, &name, MENTIONS_LOOK_MAX)? {
                is_named |= seat.sees(connection, &one.chat)?;
            }
            Ok::<_, StoreError>((is_named, newest_mention(connection, &name)?))
        };
        let (mut is_named, before) = self.store.read(look)?;
        while !is_named && tokio::time::timeout_at(deadline, listener.heard()).await.is_ok() {
            let (unread, newest) = self.store.read(look)?;
            // What a process was given meanwhile is read, and news all the same.
            is_named = unread || newest > before;
        }
        Ok(())
    }

    /// Reads a chat, waiting for something new where there is nothing.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn show_chat(&self, who: &Principal, call: &ShowChat) -> Result<ChatPage, OpError> {
        Self::check(who, Action::ReadChat)?;
        let limit = call.limit.unwrap_or(SHOW_DEFAULT).clamp(1, SHOW_MAX);
        let deadline = super::end_of_wait(call.wait_ms);
        let (seat, chat, own) = self.store.read(|connection| {
            let seat = Seat::of(connection, who)?;
            let chat = seat.chat(connection, call.chat_id)?;
            let own = member(connection, chat.id, &who.to_string())?;
            Ok((seat, chat, own))
        })?;
        let read_seq = own.as_ref().map_or(0, |own| own.read_seq);
        let after = call.after.or((call.wait_ms > 0).then_some(read_seq));
        let mut topics = topics_of(who);
        topics.push(Topic::Chat(chat.id));
        let listener = self.store.bells().listen(topics);
        let mut waiting = None;
        let mut changes = match call.changes {
            Some(changes) => changes,
            None => self.store.read(|connection| changes_of(connection, chat.id))?,
        };
        let (entries, changed) = loop {
            let (entries, changed) = self.store.read(|connection| {
                let entries = match after {
                    Some(after) => entries_after(connection, chat.id, after, limit)?,
                    None => entries_last(connection, chat.id, limit)?,
                };
                let changed = entries_changed(connection, chat.id, changes, CHANGED_MAX)?;
                Ok::<_, StoreError>((entries, changed))
            })?;
            // What the reader has not been shown before is no change to them.
            let shown_to = after.unwrap_or_else(|| entries.first().map_or(0, |entry| entry.seq - 1));
            let (mut changed, last) = changed;
            changed.retain(|entry| entry.seq <= shown_to);
            changes = last;
            // A run that waits here would not hear what it is told elsewhere.
            let is_over = Instant::now() >= deadline || self.store.read(|connection| has_messages(connection, who))?;
            if !entries.is_empty() || !changed.is_empty() || is_over {
                break (within_bytes(entries, after.is_none()), within_bytes(changed, false));
            }
            waiting.get_or_insert_with(|| self.presence.enter(chat.id, &who.to_string()));
            if tokio::time::timeout_at(deadline, listener.heard()).await.is_err() {
                continue;
            }
        };
        let cursor = entries.last().map_or_else(|| after.unwrap_or(0), |entry| entry.seq);
        let first = entries.first().map_or(cursor, |entry| entry.seq);
        let waited = waiting.take().is_some();
        let page = |connection: &Connection, unread_before| {
            let chat = seat.chat(connection, call.chat_id)?;
            let view = render::full(connection, &seat, &self.presence, &chat)?;
            let more = (chat.last_seq - cursor).max(0);
            Ok::<_, StoreError>(ChatPage {
                chat: view,
                messages: entries.iter().map(render::entry).collect(),
                changed: changed.iter().map(render::entry).collect(),
                cursor,
                changes,
                more,
                unread_before,
                read_to: read_seq,
            })
        };
        let before = |connection: &Connection| unread_before(connection, chat.id, &who.to_string(), first);
        if call.peek || entries.is_empty() || cursor <= read_seq {
            return Ok(self.store.read(|connection| page(connection, before(connection)?))?);
        }
        let (id, name, reader) = (chat.id, seat.name.clone(), seat.participant());
        let mark = move |tx: &mut Tx<'_>| tx.read_chat(id, &reader, &name, first, cursor);
        if waited {
            // Who waited for news gets it before the disk has the cursor.
            let mut page = self.store.read(|connection| page(connection, before(connection)?))?;
            self.store.write_later(mark);
            if page.more == 0 {
                page.chat.unread = 0;
                page.chat.mentioned = false;
            }
            return Ok(page);
        }
        let before = self.store.read(before)?;
        self.store.write(mark).await?;
        Ok(self.store.read(|connection| page(connection, before))?)
    }

    /// Puts a chat away, or takes it back. Where the configuration wants a summary then, an agent is
    /// asked for it; nothing here waits for that or fails with it.
    ///
    /// # Errors
    /// Unknown or foreign, of another owner; the caller is a run.
    pub async fn archive_chat(&self, caller: Caller, call: ArchiveChat) -> Result<ChatView, OpError> {
        Self::check(&caller.who, Action::Say)?;
        if matches!(caller.who, Principal::Run(_)) {
            return Err(Denied::NotAllowed { who: "a run", action: "archive chats" }.into());
        }
        let presence = self.presence.clone();
        let chats = &self.config_or_builtin().chats;
        let summariser = chats.summariser.clone().filter(|_| chats.summarise_on_archive && call.archived);
        let summariser = match summariser.map(|agent| Ok((agent, self.ground(&caller.who, &call.cwd, &call.env)?))).transpose() {
            Ok(summariser) => summariser,
            Err(error) => {
                let error: OpError = error;
                tracing::warn!(%error, chat = call.chat_id, "archived without a summary");
                None
            }
        };
        let (summariser, kept) = summariser.map_or((None, None), |(agent, (ground, kept))| (Some((agent, ground)), Some(kept)));
        let archive = move |tx: &mut Tx<'_>, who: &Principal| {
            let seat = Seat::of(tx.connection(), who)?;
            let chat = seat.chat(tx.connection(), call.chat_id)?;
            if *who != Principal::Person && chat.scope.owner != *who {
                return Err(Denied::NotAllowed { who: "a client", action: "archive chats of another owner" }.into());
            }
            if let Some((agent, ground)) = summariser.filter(|_| !chat.archived && chat.said > 0) {
                tx.queue_turn(&say::summary(chat.id, agent, ground))?;
            }
            let chat = tx.archive_chat(chat.id, call.archived)?;
            render::full(tx.connection(), &seat, &presence, &chat)
        };
        let archived = self.write(caller, archive).await;
        if let Some(kept) = kept {
            self.settle_credentials(kept).await;
        }
        archived
    }
}

/// What wakes somebody who waits for a message.
fn topics_of(who: &Principal) -> Vec<Topic> {
    let mut topics = vec![Topic::Mention(who.to_string())];
    if let Principal::Run(run) = who {
        topics.push(Topic::Run(*run));
    }
    topics
}

/// Tells whether messages wait for a run to make a call that brings them.
fn has_messages(connection: &Connection, who: &Principal) -> Result<bool, StoreError> {
    let Principal::Run(run) = who else { return Ok(false) };
    let takes_calls = run_by_id(connection, *run)?.is_some_and(|run| run.prompt_via != PromptVia::Stream);
    Ok(takes_calls && !queued_messages(connection, *run)?.is_empty())
}

/// Whose a chat is that somebody starts with these participants: a person's chat with a client or
/// with runs belongs to their owner, so that they find it.
fn scope_with(connection: &Connection, seat: &Seat, others: &[(Participant, String)]) -> Result<Scope, StoreError> {
    let mut scope = seat.viewer.scope.clone();
    if seat.viewer.who != Principal::Person {
        return Ok(scope);
    }
    let mut owner = None;
    for (who, _) in others {
        let theirs = match who {
            Participant::Principal(run @ Principal::Run(_)) => Seat::of(connection, run)?.viewer.scope.owner,
            Participant::Principal(client @ Principal::Client(_)) => client.clone(),
            Participant::Principal(Principal::Person) | Participant::Agent(_) | Participant::Hub | Participant::FromFile(_) => continue,
        };
        if owner.as_ref().is_some_and(|owner| *owner != theirs) {
            return Err(Denied::invalid("participants", "belong to different clients, which cannot share a chat").into());
        }
        owner = Some(theirs);
    }
    if let Some(owner) = owner {
        scope.owner = owner;
    }
    Ok(scope)
}

fn start(tx: &mut Tx<'_>, config: &Config, seat: &Seat, call: StartChat, title: String) -> Result<Chat, StoreError> {
    let StartChat { title: _, participants, private, template, instructions, branch_from } = call;
    let from = match branch_from {
        None => None,
        Some(given) => {
            let whole = given.trim().parse::<i64>().ok();
            let (of, seq) = match whole {
                Some(of) => (of, None),
                None => entry_no("branch_from", None, &given).map(|(of, seq)| (of, Some(seq)))?,
            };
            let parent = seat.chat(tx.connection(), of)?;
            let seq = seq.unwrap_or(parent.last_seq);
            if seq > 0 && entry_by_seq(tx.connection(), parent.id, seq)?.is_none() {
                return Err(Denied::not_found("message", &given).into());
            }
            Some((parent, seq))
        }
    };
    let given = template.as_deref().map(|name| config.chats.template(name)).transpose()?;
    let mut others = Vec::new();
    for name in participants.iter().chain(given.iter().flat_map(|template| &template.participants)) {
        let one = seat.addressee(tx.connection(), config, name)?;
        if one.0 != seat.participant() && !others.contains(&one) {
            others.push(one);
        }
    }
    let mut scope = scope_with(tx.connection(), seat, &others)?;
    let mut private = private || given.is_some_and(|template| template.private);
    if let Some((parent, _)) = &from {
        scope = parent.scope.clone();
        if parent.private {
            private = true;
            let theirs = members(tx.connection(), parent.id)?;
            others.extend(theirs.into_iter().filter(|member| member.joined_at.is_some()).filter(is_somebody).map(|member| (member.who, member.name)));
        } else {
            let agents = members(tx.connection(), parent.id)?.into_iter().filter(|member| matches!(member.who, Participant::Agent(_)));
            others.extend(agents.map(|member| (member.who, member.name)));
        }
    }
    let chat = tx.start_chat(&NewChat {
        kind: ChatKind::Chat,
        title,
        scope,
        private,
        pair: None,
        instructions: instructions.or_else(|| given.and_then(|template| template.instructions.clone())),
        window: given.and_then(|template| template.window).map_or(config.chats.window, Into::into),
        turns_max: given.and_then(|template| template.turns_max).unwrap_or(config.chats.turns_max),
        template,
        branch_of: from.as_ref().map(|(parent, seq)| (parent.id, *seq)),
        started_by: seat.participant(),
        started_name: seat.name.clone(),
    })?;
    check_can_see(tx.connection(), "participants", &others, &chat)?;
    tx.join_chat(chat.id, &seat.participant(), &seat.name)?;
    for (who, name) in &others {
        tx.join_chat(chat.id, who, name)?;
    }
    if let Some((parent, seq)) = from {
        let by = chat::shown_name(&seat.participant(), &seat.name, None);
        tx.add_entry(parent.id, &note(format!("chat {} \"{}\" branches off at {}.{seq}, by {by}", chat.id, chat.title, parent.id)))?;
    }
    Ok(chat)
}

fn is_somebody(member: &Member) -> bool {
    !matches!(member.who, Participant::FromFile(_))
}

/// A remark of the hub.
fn note(text: String) -> NewEntry {
    NewEntry {
        kind: EntryKind::Note,
        author: Participant::Hub,
        name: "hub".to_owned(),
        label: None,
        text,
        reply_to: None,
        hops: 0,
        pinned: false,
        key: None,
    }
}
