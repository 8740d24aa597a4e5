//! Exporting and importing chats.

use super::caller::ChatCaller;
use super::render;
use crate::ops::chats::presence::Presence;
use crate::ops::{Caller, OpError, lookup};
use crate::store::{
    Chat, ChatEntry, Imported, Member, NewChat, Revision, Store, StoreError, Tx, entries_beyond,
    entry_by_key, export_of,
};
use crate::view::{
    CarriedChat, CarriedEntry, CarriedMember, CarriedRevision, ChatExport, ChatView, ExportChat,
    ImportChat,
};
use adjutant_core::chat::{
    self, Budget, ChatId, ChatKind, EntryKind, Participant, Scope, WINDOW_CHARS_DEFAULT,
};
use adjutant_core::{Action, Denied, Principal, Time};

/// Entries in one part.
const PART: u32 = 200;
/// Text in one part, in bytes.
const PART_BYTES_MAX: usize = 8 * 1024 * 1024;
const FORMAT: u32 = 1;

fn out(entry: &ChatEntry, revisions: &[Revision]) -> CarriedEntry {
    let ChatEntry {
        id: _,
        chat: _,
        seq,
        kind,
        author,
        name,
        label,
        text,
        at,
        reply_to,
        hops,
        pinned,
        revision: _,
        edited_at,
        key,
    } = entry;
    CarriedEntry {
        seq: *seq,
        kind: kind.word().to_owned(),
        author: author.for_file(),
        name: name.clone(),
        label: label.clone(),
        text: text.clone(),
        at: at.0,
        reply_to: *reply_to,
        hops: *hops,
        pinned: *pinned,
        key: key.clone(),
        edited_at: edited_at.map(|at| at.0),
        revisions: revisions
            .iter()
            .map(|old| CarriedRevision {
                author: export_author(&old.author),
                name: old.name.clone(),
                text: old.text.clone(),
                at: old.at.0,
            })
            .collect(),
    }
}

fn head_out(chat: &Chat, members: &[Member]) -> CarriedChat {
    let (window_chars, window_tokens) = match chat.window {
        Budget::Chars(chars) => (chars, None),
        Budget::Tokens(tokens) => (WINDOW_CHARS_DEFAULT, Some(tokens)),
    };
    CarriedChat {
        format: FORMAT,
        chat_id: chat.id.0,
        kind: chat.kind.word().to_owned(),
        title: chat.title.clone(),
        private: chat.private,
        template: chat.template.clone(),
        instructions: chat.instructions.clone(),
        window_chars,
        window_tokens,
        turns_max: chat.turns_max,
        archived: chat.archived,
        started_by: chat.started_by.for_file(),
        started_name: chat.started_name.clone(),
        started_at: chat.started_at.0,
        last_at: chat.last_at.0,
        members: members_out(members),
    }
}

fn members_out(members: &[Member]) -> Vec<CarriedMember> {
    // A reader of an imported chat keeps the name from the file.
    let is_carried = |member: &&Member| {
        let name = Participant::from_file(&member.who.to_string());
        matches!(member.who, Participant::FromFile(_))
            || !members
                .iter()
                .any(|other| Some(&other.who) == name.as_ref())
    };
    members
        .iter()
        .filter(is_carried)
        .map(|member| CarriedMember {
            who: member.who.for_file(),
            name: member.name.clone(),
            joined_at: member.joined_at.map(|at| at.0),
            read_seq: member.read_seq,
            mention_seq: member.mention_seq,
            said: member.said,
            seen_at: member.seen_at.map(|at| at.0),
        })
        .collect()
}

/// The author of a revision in an export file.
fn export_author(author: &str) -> String {
    Participant::parse(author).map_or_else(|| author.to_owned(), |author| author.for_file())
}

/// Converts a checked entry. Its authors become participants from a file.
fn read_in(entry: CarriedEntry) -> Result<Imported, Denied> {
    let CarriedEntry {
        seq,
        kind,
        author,
        name,
        label,
        text,
        at,
        reply_to,
        hops,
        pinned,
        key,
        edited_at,
        revisions,
    } = entry;
    let wrong = |what: &str| Denied::invalid("entries", format!("entry {seq}: {what}"));
    let from_file =
        |who: &str| Participant::from_file(who).ok_or_else(|| wrong("its author cannot be read"));
    let author = from_file(&author)?;
    let kind = EntryKind::from_word(&kind).ok_or_else(|| wrong("its kind is unknown"))?;
    let revision = u32::try_from(revisions.len()).map_err(|_| wrong("too many revisions"))?;
    let revisions = revisions
        .into_iter()
        .zip(0_u32..)
        .map(|(old, revision)| {
            Ok(Revision {
                revision,
                author: from_file(&old.author)?.to_string(),
                name: old.name,
                text: old.text,
                at: Time(old.at),
            })
        })
        .collect::<Result<_, Denied>>()?;
    let entry = ChatEntry {
        id: 0,
        chat: ChatId(0),
        seq,
        kind,
        author,
        name,
        label,
        text,
        at: Time(at),
        reply_to,
        hops,
        pinned,
        revision,
        edited_at: edited_at.map(Time),
        key,
    };
    Ok(Imported { entry, revisions })
}

fn member_in(member: CarriedMember) -> Result<Member, Denied> {
    let CarriedMember {
        who,
        name,
        joined_at,
        read_seq,
        mention_seq,
        said,
        seen_at,
    } = member;
    let parsed = Participant::from_file(&who)
        .ok_or_else(|| Denied::invalid("head", "a participant cannot be read"))?;
    Ok(Member {
        who: parsed,
        name,
        joined_at: joined_at.map(Time),
        read_seq,
        mention_seq,
        said,
        seen_at: seen_at.map(Time),
    })
}

/// Exports a chat in parts.
///
/// # Errors
/// Unknown or foreign.
pub fn export_chat(
    store: &Store,
    who: &Principal,
    call: &ExportChat,
) -> Result<ChatExport, OpError> {
    lookup::check(who, Action::ReadChat)?;
    Ok(store.read(|connection| {
        let chat = ChatCaller::of(connection, who)?.chat(connection, call.chat_id)?;
        let Some(export) = export_of(connection, chat.id, call.after, PART)? else {
            return Err(Denied::not_found("chat", &call.chat_id.to_string()).into());
        };
        let mut bytes = 0;
        let mut entries = Vec::new();
        for (entry, revisions) in &export.entries {
            bytes += entry.text.len() + revisions.iter().map(|old| old.text.len()).sum::<usize>();
            if !entries.is_empty() && bytes > PART_BYTES_MAX {
                break;
            }
            entries.push(out(entry, revisions));
        }
        let chat = export.chat;
        let head = (call.after == 0).then(|| head_out(&chat, &export.members));
        let last = entries.last().map_or(call.after, |entry| entry.seq);
        let has_more =
            !entries.is_empty() && entries_beyond(connection, store.eras(), &chat, last)? > 0;
        Ok(ChatExport {
            head,
            entries,
            next: has_more.then_some(last),
        })
    })?)
}

/// Imports a chat in parts. Each part is imported whole or not at all, and the chat is hidden
/// until the last part is in. Its participants are only names.
///
/// # Errors
/// The caller is not the person, or a line is unusable.
pub async fn import_chat(
    store: &Store,
    presence: &Presence,
    caller: Caller,
    call: ImportChat,
) -> Result<ChatView, OpError> {
    check_may_import(&caller.who)?;
    let presence = presence.clone();
    let part = ImportPart::checked(call)?;
    caller
        .write(store, move |tx, who| {
            let caller = ChatCaller::of(tx.connection(), who)?;
            let chat = part.import(tx)?;
            render::full(tx.connection(), &caller, &presence, &chat)
        })
        .await
}

fn check_may_import(who: &Principal) -> Result<(), Denied> {
    let who = match who {
        Principal::Person => return Ok(()),
        Principal::Run(_) => "a run",
        Principal::Client(_) => "a client",
    };
    Err(Denied::NotAllowed {
        who,
        action: "import chats",
    })
}

/// A part of a file, checked outside the transaction.
struct ImportPart {
    target: ImportTarget,
    entries: Vec<Imported>,
    is_last: bool,
}

/// The chat into which a part is imported.
enum ImportTarget {
    /// The one that the first part has started.
    Started(ChatId),
    New(Box<CarriedChat>),
    /// The call gives both or neither.
    Unclear,
}

impl ImportPart {
    fn checked(call: ImportChat) -> Result<Self, Denied> {
        let mut check = match &call.head {
            Some(head) => chat::FileCheck::head(&head.parts())?,
            None => chat::FileCheck::behind(
                call.entries
                    .first()
                    .map_or(0, |first| first.seq.saturating_sub(1)),
            ),
        };
        for entry in &call.entries {
            check.entry(&entry.parts())?;
        }
        let entries = call
            .entries
            .into_iter()
            .map(read_in)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            target: match (call.chat_id, call.head) {
                (Some(id), None) => ImportTarget::Started(ChatId(id)),
                (None, Some(head)) => ImportTarget::New(Box::new(head)),
                _ => ImportTarget::Unclear,
            },
            entries,
            is_last: !call.more,
        })
    }

    fn import(self, tx: &mut Tx<'_>) -> Result<Chat, StoreError> {
        let chat = match self.target {
            ImportTarget::Started(id) => continued_import(tx, id)?,
            ImportTarget::New(head) => started_import(tx, *head)?,
            ImportTarget::Unclear => {
                return Err(Denied::invalid(
                    "head",
                    "give head with the first part and chat_id with the others",
                )
                .into());
            }
        };
        for entry in &self.entries {
            if let Some(key) = &entry.entry.key
                && entry_by_key(tx.connection(), chat.id, key)?.is_some()
            {
                return Err(Denied::invalid(
                    "entries",
                    format!(
                        "entry {}: its key is used by another entry",
                        entry.entry.seq
                    ),
                )
                .into());
            }
            tx.import_entry(chat.id, entry)?;
        }
        if self.is_last {
            tx.end_import(chat.id)?;
        }
        tx.chat(chat.id)
    }
}

fn continued_import(tx: &mut Tx<'_>, id: ChatId) -> Result<Chat, StoreError> {
    let chat = tx.chat(id)?;
    if !chat.importing {
        return Err(Denied::invalid(
            "chat_id",
            format!("chat {id} is complete: nothing can be imported into it"),
        )
        .into());
    }
    tx.note_import(chat.id)?;
    Ok(chat)
}

fn started_import(tx: &mut Tx<'_>, head: CarriedChat) -> Result<Chat, StoreError> {
    let members = head
        .members
        .into_iter()
        .map(member_in)
        .collect::<Result<Vec<_>, _>>()?;
    if head.format != FORMAT {
        return Err(Denied::invalid(
            "format",
            format!("{} is not supported; use {FORMAT}", head.format),
        )
        .into());
    }
    let started_by = Participant::from_file(&head.started_by)
        .ok_or_else(|| Denied::invalid("head", "started_by cannot be read"))?;
    let chat = tx.start_chat(&NewChat {
        // A direct chat or board of another home becomes an ordinary chat.
        kind: ChatKind::Chat,
        title: chat::checked_title(&head.title)?,
        scope: Scope {
            owner: Principal::Person,
            root: None,
        },
        private: head.private,
        pair: None,
        template: head.template,
        instructions: head.instructions,
        window: head
            .window_tokens
            .map_or(Budget::Chars(head.window_chars.max(1)), |tokens| {
                Budget::Tokens(tokens.max(1))
            }),
        turns_max: head.turns_max,
        branch_of: None,
        started_by,
        started_name: head.started_name,
    })?;
    tx.mark_imported(
        chat.id,
        head.archived,
        head.started_at,
        head.last_at,
        &members,
    )?;
    tx.chat(chat.id)
}
