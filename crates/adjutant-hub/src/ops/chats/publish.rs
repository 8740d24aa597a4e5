//! Adding an entry with its effects in one transaction: mentions, turns for agents, notifications of runs.

use crate::config::Config;
use crate::ops::chats::caller::{ChatCaller, can_see};
use crate::ops::chats::entry::note;
use crate::ops::chats::work_context::WorkContext;
use crate::store::{
    Chat, ChatEntry, Member, NewEntry, NewTurn, NoteReceipt, QUEUED_MAX, Run, StoreError, Tx,
    agents_in, has_capacity_for_message, members, open_turns, open_turns_below, receipts_of,
    run_by_id, run_by_ref,
};
use adjutant_core::chat::{
    Addressee, ChatKind, EntryKind, Participant, Receipt, addressed, mentions, shown_name,
};
use adjutant_core::quote::quote_field;
use adjutant_core::{AgentName, Principal, RequestId, RunName};

/// Maximum number of characters of a chat message that are sent to a run.
const NOTIFIED_CHARS_MAX: usize = 4_000;
/// Maximum number of pending answers in one chat.
const CHAT_TURNS_MAX: u64 = 1_000;
/// Maximum number of pending answers requested by the runs of one tree.
const TREE_TURNS_MAX: u64 = 64;

/// An entry to publish, with its context.
#[derive(Debug)]
pub(super) struct Publication<'a> {
    pub config: &'a Config,
    /// Resolves the names in the text.
    pub caller: &'a ChatCaller,
    /// The sender, as runs see it.
    pub by: &'a Principal,
    pub chat: &'a Chat,
    pub entry: NewEntry,
    /// Recipients in addition to those named in the text.
    pub to: Vec<(Participant, String)>,
    /// The agent that wrote it.
    pub said_by_agent: Option<AgentName>,
    /// Answers if no other participant does.
    pub responder: Option<AgentName>,
    pub work_context: WorkContext,
}

#[derive(Debug)]
pub(super) struct Published {
    pub entry: ChatEntry,
    pub answering: Vec<AgentName>,
    pub notes: Vec<String>,
    /// The runs that were notified of it, and those that could not be.
    pub receipts: Vec<NoteReceipt>,
    /// No agent takes part, and the entry names nobody.
    pub has_no_agent: bool,
}

pub(super) fn publish(
    tx: &mut Tx<'_>,
    publication: Publication<'_>,
) -> Result<Published, StoreError> {
    let Publication {
        config,
        caller,
        by,
        chat,
        entry,
        to,
        said_by_agent,
        responder,
        work_context,
    } = publication;
    let hops = entry.hops;
    let author = entry.author.clone();
    let mut notes = Vec::new();
    if !to.is_empty() {
        tx.may_refuse_late()?;
    }
    for (who, name) in &to {
        tx.join_chat(chat.id, who, name)?;
    }
    let takes_part = |member: &Member| {
        member.joined_at.is_some() && !matches!(member.who, Participant::FromFile(_))
    };
    let names_in_text = mentions(&entry.text);
    let is_for_all = names_in_text.is_empty() && chat.kind != ChatKind::Direct;
    let candidates = if is_for_all {
        agents_in(tx.connection(), chat.id)?
    } else {
        members(tx.connection(), chat.id)?
    };
    let all: Vec<Member> = candidates.into_iter().filter(takes_part).collect();
    let mut named = to;
    let mut is_unknown_named = false;
    for name in names_in_text {
        match resolve(tx, config, caller, chat, &all, name)? {
            Some(found) if !named.contains(&found) => named.push(found),
            Some(_) => {}
            None if chat.kind == ChatKind::Direct => {}
            None => {
                is_unknown_named = true;
                notes.push(
                    if AgentName::parse(name).is_ok_and(|name| config.agents.contains_key(&name)) {
                        format!("{name} is not in this chat: send with to={name} to get its answer")
                    } else {
                        format!("no participant is called {name}")
                    },
                );
            }
        }
    }
    named.retain(|(who, _)| *who != author);
    named = with_access(tx, chat, named, &mut notes)?;
    let agents: Vec<AgentName> = all
        .iter()
        .filter_map(|member| agent_of(&member.who))
        .cloned()
        .collect();
    let mut addressees: Vec<Addressee> = named
        .iter()
        .map(|(who, _)| {
            agent_of(who).map_or(Addressee::Other, |name| Addressee::Agent(name.clone()))
        })
        .collect();
    // A message that names a participant is for them even if the name is unknown.
    addressees.extend(is_unknown_named.then_some(Addressee::Other));
    let mut answering = addressed(&addressees, &agents, said_by_agent.as_ref());
    let is_open = chat.kind == ChatKind::Chat
        && answering.is_empty()
        && addressees.is_empty()
        && agents.is_empty();
    if is_open && said_by_agent.is_none() {
        answering.extend(responder);
    }
    let has_no_agent = is_open && answering.is_empty();
    if !is_for_all || !answering.is_empty() {
        tx.may_refuse_late()?;
    }
    let entry = tx.add_entry(chat.id, &entry)?;
    if chat.kind == ChatKind::Direct {
        let other = all
            .into_iter()
            .filter(|member| member.who != author)
            .map(|member| (member.who, member.name));
        let added: Vec<_> = other.filter(|one| !named.contains(one)).collect();
        named.extend(with_access(tx, chat, added, &mut notes)?);
    }
    // An imported file cannot raise limits.
    let turns_max = if chat.imported {
        chat.turns_max.min(config.chats.turns_max)
    } else {
        chat.turns_max
    };
    let mut unnotified = Vec::new();
    let mut withheld = Vec::new();
    for (who, name) in &named {
        if let Participant::Principal(principal) = who {
            tx.mention(chat.id, who, name, entry.seq)?;
            if is_run(&author) && is_run(who) && hops >= turns_max {
                unnotified.push(name.as_str());
                withheld.extend(receipt_for(tx, principal, |_| Receipt::NotSent)?);
            } else if let Some((note, receipt)) = notify_run(tx, by, chat, &entry, principal)? {
                notes.push(note);
                withheld.push(receipt);
            }
        }
    }
    if !unnotified.is_empty() {
        let unnotified = unnotified.join(", ");
        let text = format!(
            "runs have answered one another {hops} times in a row: {unnotified} is not notified until a person or a client writes"
        );
        tx.add_entry(chat.id, &note(text.clone()))?;
        notes.push(text);
    }
    if !answering.is_empty() && hops >= turns_max {
        let text = format!(
            "agents have answered one another {hops} times in a row: {} answers again after a person or a client writes",
            names(&answering)
        );
        tx.add_entry(chat.id, &note(text.clone()))?;
        notes.push(text);
        answering.clear();
    }
    let mut free = if answering.is_empty() {
        0
    } else {
        free_turns(tx, by, chat)?
    };
    for agent in &answering {
        if free == 0 {
            let text = format!(
                "{agent} could not answer: too many answers are pending here; wait for them or cancel some"
            );
            let failure = NewEntry {
                kind: EntryKind::Failure,
                author: Participant::Agent(agent.clone()),
                name: agent.to_string(),
                ..note(text.clone())
            };
            tx.add_entry(
                chat.id,
                &NewEntry {
                    reply_to: Some(entry.seq),
                    hops,
                    ..failure
                },
            )?;
            notes.push(text);
            continue;
        }
        free -= 1;
        tx.join_chat(chat.id, &Participant::Agent(agent.clone()), agent.as_str())?;
        tx.queue_turn(&NewTurn {
            chat: chat.id,
            agent: agent.clone(),
            is_summary: false,
            message: entry.seq,
            hops,
            cwd: work_context.cwd.clone(),
            env: work_context.env.clone(),
        })?;
    }
    let mut receipts = receipts_of(tx.connection(), entry.id)?;
    receipts.append(&mut withheld);
    Ok(Published {
        entry,
        answering,
        notes,
        receipts,
        has_no_agent,
    })
}

/// Returns the receipt of a run that is not sent an entry.
fn receipt_for(
    tx: &Tx<'_>,
    to: &Principal,
    receipt: impl FnOnce(&Run) -> Receipt,
) -> Result<Option<NoteReceipt>, StoreError> {
    let Principal::Run(id) = to else {
        return Ok(None);
    };
    let Some(run) = run_by_id(tx.connection(), *id)? else {
        return Ok(None);
    };
    let receipt = receipt(&run);
    Ok(Some(NoteReceipt {
        run: run.id,
        name: run.name,
        receipt,
        at: tx.now(),
        has_ended: run.state.is_finished(),
    }))
}

/// Returns how many more answers can be requested.
fn free_turns(tx: &Tx<'_>, by: &Principal, chat: &Chat) -> Result<u64, StoreError> {
    let in_chat = CHAT_TURNS_MAX.saturating_sub(open_turns(tx.connection(), chat.id)?);
    let Principal::Run(run) = by else {
        return Ok(in_chat);
    };
    Ok(in_chat
        .min(TREE_TURNS_MAX.saturating_sub(open_turns_below(tx.connection(), tx.run(*run)?.root)?)))
}

fn names(agents: &[AgentName]) -> String {
    agents
        .iter()
        .map(AgentName::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

fn agent_of(who: &Participant) -> Option<&AgentName> {
    match who {
        Participant::Agent(name) => Some(name),
        Participant::Principal(_)
        | Participant::Hub
        | Participant::Peer(_)
        | Participant::FromFile(_) => None,
    }
}

fn is_run(who: &Participant) -> bool {
    matches!(who, Participant::Principal(Principal::Run(_)))
}

/// Resolves a name in a text: the person, the parent, an agent or another participant of the chat, or a run of the
/// same owner by its full name. In a private chat, a text cannot add participants: only names of participants and
/// of the person, who sees every chat, are resolved.
fn resolve(
    tx: &Tx<'_>,
    config: &Config,
    caller: &ChatCaller,
    chat: &Chat,
    all: &[Member],
    name: &str,
) -> Result<Option<(Participant, String)>, StoreError> {
    let of_member = |member: &Member| (member.who.clone(), member.name.clone());
    if matches!(name, "person" | "user" | "parent") {
        let found = StoreError::none_if_denied(caller.addressee(tx.connection(), config, name))?;
        let is_person = |who: &Participant| *who == Participant::Principal(Principal::Person);
        return Ok(found.filter(|(who, _)| {
            is_person(who) || !chat.private || all.iter().any(|member| member.who == *who)
        }));
    }
    if let Some(agent) = AgentName::parse(name)
        .ok()
        .filter(|name| config.agents.contains_key(name))
    {
        return Ok(all
            .iter()
            .find(|member| member.who == Participant::Agent(agent.clone()))
            .map(of_member));
    }
    if let Some(member) = all.iter().find(|member| member.name == name) {
        return Ok(Some(of_member(member)));
    }
    if chat.private || RunName::parse(name).is_err() {
        return Ok(None);
    }
    let owner = if caller.viewer.who == Principal::Person {
        None
    } else {
        Some(&caller.viewer.scope.owner)
    };
    let found = StoreError::none_if_denied(run_by_ref(tx.connection(), name, owner))?
        .filter(|run| run.name == name);
    let Some(run) = found else { return Ok(None) };
    let who = Participant::Principal(Principal::Run(run.id));
    Ok(can_see(tx.connection(), &who, chat)?.then_some((who, run.name)))
}

/// Filters out participants without access to the chat, such as a run that was moved to another owner.
fn with_access(
    tx: &Tx<'_>,
    chat: &Chat,
    named: Vec<(Participant, String)>,
    notes: &mut Vec<String>,
) -> Result<Vec<(Participant, String)>, StoreError> {
    let mut kept = Vec::with_capacity(named.len());
    for (who, name) in named {
        match can_see(tx.connection(), &who, chat) {
            Ok(true) => kept.push((who, name)),
            // Its run may have been removed.
            Ok(false) | Err(StoreError::Denied(_)) => {
                notes.push(format!("{name} no longer has access to this chat"))
            }
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Sends a run the message that mentions it. Returns why the run cannot be notified.
fn notify_run(
    tx: &mut Tx<'_>,
    by: &Principal,
    chat: &Chat,
    entry: &ChatEntry,
    to: &Principal,
) -> Result<Option<(String, NoteReceipt)>, StoreError> {
    let Principal::Run(id) = to else {
        return Ok(None);
    };
    let Some(run) = run_by_id(tx.connection(), *id)? else {
        return Ok(None);
    };
    let unsent = |receipt| NoteReceipt {
        run: run.id,
        name: run.name.clone(),
        receipt,
        at: tx.now(),
        has_ended: run.state.is_finished(),
    };
    if run.state.is_finished() {
        return Ok(Some((
            format!("{} has finished and was not notified", run.name),
            unsent(Receipt::RunEnded),
        )));
    }
    if !has_capacity_for_message(tx.connection(), run.id)? {
        let note = format!(
            "{} has {QUEUED_MAX} undelivered messages and was not notified; the message is in the chat",
            run.name
        );
        return Ok(Some((note, unsent(Receipt::NotSent))));
    }
    let mut text: String = entry.text.chars().take(NOTIFIED_CHARS_MAX).collect();
    let left = entry
        .text
        .chars()
        .count()
        .saturating_sub(NOTIFIED_CHARS_MAX);
    if left > 0 {
        text.push_str(&format!(
            "… ({left} more characters: show_chat chat_id={})",
            chat.id
        ));
    }
    let from = shown_name(&entry.author, &entry.name, entry.label.as_deref());
    let text = quote_field(
        &format!(
            "chat {} {:?}, message {}.{} from {from}",
            chat.id, chat.title, chat.id, entry.seq
        ),
        &text,
    );
    let message = RequestId::new(tx.now(), crate::ops::random());
    // A run that received a whole entry has read it, and vice versa.
    tx.send_entry(&run, by, message, &text, entry.id, left == 0)?;
    Ok(None)
}
