//! Adding an entry with its effects in one transaction: mentions, turns for agents, notifications
//! of runs.

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
use adjutant_core::{AgentName, Principal, RequestId, RunName, shorten};

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

/// Adds an entry, with its mentions, notifications and requested answers.
pub(super) fn publish(
    tx: &mut Tx<'_>,
    mut publication: Publication<'_>,
) -> Result<Published, StoreError> {
    let to = std::mem::take(&mut publication.to);
    join_recipients(tx, publication.chat, &to)?;
    let mut audience = Audience::find(tx, &publication, to)?;
    let responders = Responders::choose(&audience, &publication);
    if !audience.is_for_all || !responders.answering.is_empty() {
        tx.may_refuse_late()?;
    }
    let entry = tx.add_entry(publication.chat.id, &publication.entry)?;
    if publication.chat.kind == ChatKind::Direct {
        audience.add_other(tx, &publication)?;
    }
    let Audience { named, notes, .. } = audience;
    let mut delivery = Delivery {
        turns_max: publication.turns_max(),
        publication: &publication,
        entry: &entry,
        notes,
    };
    let mut withheld = delivery.notify(tx, &named)?;
    let answering = delivery.without_loops(tx, responders.answering)?;
    delivery.request_answers(tx, &answering)?;
    let notes = delivery.notes;
    let mut receipts = receipts_of(tx.connection(), entry.id)?;
    receipts.append(&mut withheld);
    Ok(Published {
        entry,
        answering,
        notes,
        receipts,
        has_no_agent: responders.has_no_agent,
    })
}

fn join_recipients(
    tx: &mut Tx<'_>,
    chat: &Chat,
    to: &[(Participant, String)],
) -> Result<(), StoreError> {
    if !to.is_empty() {
        tx.may_refuse_late()?;
    }
    for (who, name) in to {
        tx.join_chat(chat.id, who, name)?;
    }
    Ok(())
}

impl Publication<'_> {
    /// Returns how many times in a row agents or runs may answer one another.
    fn turns_max(&self) -> u32 {
        if self.chat.imported {
            // An imported file cannot raise limits.
            self.chat.turns_max.min(self.config.chats.turns_max)
        } else {
            self.chat.turns_max
        }
    }
}

/// The participants whom an entry concerns.
struct Audience {
    /// The text names nobody, so it is for all agents of the chat.
    is_for_all: bool,
    /// The participants among whom names are resolved. If it is for all: only agents.
    all: Vec<Member>,
    /// The recipients and those named in the text, with access to the chat.
    named: Vec<(Participant, String)>,
    is_unknown_named: bool,
    /// Notes for the author.
    notes: Vec<String>,
}

impl Audience {
    fn find(
        tx: &Tx<'_>,
        publication: &Publication<'_>,
        to: Vec<(Participant, String)>,
    ) -> Result<Self, StoreError> {
        let chat = publication.chat;
        let takes_part = |member: &Member| {
            member.joined_at.is_some() && !matches!(member.who, Participant::FromFile(_))
        };
        let names_in_text = mentions(&publication.entry.text);
        let is_for_all = names_in_text.is_empty() && chat.kind != ChatKind::Direct;
        let candidates = if is_for_all {
            agents_in(tx.connection(), chat.id)?
        } else {
            members(tx.connection(), chat.id)?
        };
        let mut audience = Self {
            is_for_all,
            all: candidates.into_iter().filter(takes_part).collect(),
            named: to,
            is_unknown_named: false,
            notes: Vec::new(),
        };
        for name in names_in_text {
            audience.add_named(tx, publication, name)?;
        }
        let mut named = std::mem::take(&mut audience.named);
        named.retain(|(who, _)| *who != publication.entry.author);
        audience.named = with_access(tx, chat, named, &mut audience.notes)?;
        Ok(audience)
    }

    fn add_named(
        &mut self,
        tx: &Tx<'_>,
        publication: &Publication<'_>,
        name: &str,
    ) -> Result<(), StoreError> {
        let Publication {
            config,
            caller,
            chat,
            ..
        } = publication;
        match resolve(tx, config, caller, chat, &self.all, name)? {
            Some(found) if !self.named.contains(&found) => self.named.push(found),
            Some(_) => {}
            None if chat.kind == ChatKind::Direct => {}
            None => {
                self.is_unknown_named = true;
                let is_agent =
                    AgentName::parse(name).is_ok_and(|name| config.agents.contains_key(&name));
                self.notes.push(if is_agent {
                    format!("{name} is not in this chat: send with to={name} to get its answer")
                } else {
                    format!("no participant is called {name}")
                });
            }
        }
        Ok(())
    }

    /// Adds the other participant of a direct chat.
    fn add_other(&mut self, tx: &Tx<'_>, publication: &Publication<'_>) -> Result<(), StoreError> {
        let other = std::mem::take(&mut self.all)
            .into_iter()
            .filter(|member| member.who != publication.entry.author)
            .map(|member| (member.who, member.name));
        let added: Vec<_> = other.filter(|one| !self.named.contains(one)).collect();
        let added = with_access(tx, publication.chat, added, &mut self.notes)?;
        self.named.extend(added);
        Ok(())
    }

    fn agents(&self) -> Vec<AgentName> {
        self.all
            .iter()
            .filter_map(|member| agent_of(&member.who))
            .cloned()
            .collect()
    }

    fn addressees(&self) -> Vec<Addressee> {
        let mut addressees: Vec<Addressee> = self
            .named
            .iter()
            .map(|(who, _)| {
                agent_of(who).map_or(Addressee::Other, |name| Addressee::Agent(name.clone()))
            })
            .collect();
        // A message that names a participant is for them even if the name is unknown.
        addressees.extend(self.is_unknown_named.then_some(Addressee::Other));
        addressees
    }
}

/// The agents that are to answer.
#[derive(Debug, PartialEq, Eq)]
struct Responders {
    answering: Vec<AgentName>,
    /// No agent takes part, and the entry names nobody.
    has_no_agent: bool,
}

impl Responders {
    fn choose(audience: &Audience, publication: &Publication<'_>) -> Self {
        let answering = addressed(
            &audience.addressees(),
            &audience.agents(),
            publication.said_by_agent.as_ref(),
        );
        let is_open = publication.chat.kind == ChatKind::Chat
            && audience.named.is_empty()
            && !audience.is_unknown_named
            && audience.agents().is_empty();
        let responder = publication.responder.clone();
        Self::or_default(
            answering,
            is_open,
            responder.filter(|_| publication.said_by_agent.is_none()),
        )
    }

    /// `is_open`: the entry names nobody, and the chat has no agent. `responder` answers then.
    fn or_default(
        mut answering: Vec<AgentName>,
        is_open: bool,
        responder: Option<AgentName>,
    ) -> Self {
        let is_open = is_open && answering.is_empty();
        if is_open {
            answering.extend(responder);
        }
        Self {
            has_no_agent: is_open && answering.is_empty(),
            answering,
        }
    }
}

/// An entry that was added, and its delivery to its audience.
struct Delivery<'a> {
    publication: &'a Publication<'a>,
    entry: &'a ChatEntry,
    turns_max: u32,
    /// Notes for the author.
    notes: Vec<String>,
}

impl Delivery<'_> {
    /// Mentions participants, and sends the entry to the runs among them. Returns the receipts of
    /// those that are not sent it.
    fn notify(
        &mut self,
        tx: &mut Tx<'_>,
        named: &[(Participant, String)],
    ) -> Result<Vec<NoteReceipt>, StoreError> {
        let Publication {
            chat, by, entry, ..
        } = self.publication;
        let mut unnotified = Vec::new();
        let mut withheld = Vec::new();
        for (who, name) in named {
            let Participant::Principal(principal) = who else {
                continue;
            };
            tx.mention(chat.id, who, name, self.entry.seq)?;
            if is_run(&entry.author) && is_run(who) && entry.hops >= self.turns_max {
                unnotified.push(name.as_str());
                withheld.extend(receipt_for(tx, principal, |_| Receipt::NotSent)?);
            } else if let Some((note, receipt)) = notify_run(tx, by, chat, self.entry, principal)? {
                self.notes.push(note);
                withheld.push(receipt);
            }
        }
        if !unnotified.is_empty() {
            let (unnotified, hops) = (unnotified.join(", "), entry.hops);
            self.add_note(
                tx,
                format!(
                    "runs have answered one another {hops} times in a row: {unnotified} is not notified until a person or a client writes"
                ),
            )?;
        }
        Ok(withheld)
    }

    fn add_note(&mut self, tx: &mut Tx<'_>, text: String) -> Result<(), StoreError> {
        tx.add_entry(self.publication.chat.id, &note(text.clone()))?;
        self.notes.push(text);
        Ok(())
    }

    /// Returns the agents that answer: none if agents have answered one another for too long.
    fn without_loops(
        &mut self,
        tx: &mut Tx<'_>,
        answering: Vec<AgentName>,
    ) -> Result<Vec<AgentName>, StoreError> {
        let hops = self.publication.entry.hops;
        if answering.is_empty() || hops < self.turns_max {
            return Ok(answering);
        }
        self.add_note(
            tx,
            format!(
                "agents have answered one another {hops} times in a row: {} answers again after a person or a client writes",
                names(&answering)
            ),
        )?;
        Ok(Vec::new())
    }

    fn request_answers(
        &mut self,
        tx: &mut Tx<'_>,
        answering: &[AgentName],
    ) -> Result<(), StoreError> {
        if answering.is_empty() {
            return Ok(());
        }
        let Publication {
            chat,
            by,
            entry,
            work_context,
            ..
        } = self.publication;
        let mut free = free_turns(tx, by, chat)?;
        for agent in answering {
            if free == 0 {
                self.add_no_capacity(tx, agent)?;
                continue;
            }
            free -= 1;
            tx.join_chat(chat.id, &Participant::Agent(agent.clone()), agent.as_str())?;
            tx.queue_turn(&NewTurn {
                chat: chat.id,
                agent: agent.clone(),
                is_summary: false,
                message: self.entry.seq,
                hops: entry.hops,
                cwd: work_context.cwd.clone(),
                env: work_context.env.clone(),
            })?;
        }
        Ok(())
    }

    /// Adds the failure of an agent that cannot be asked.
    fn add_no_capacity(&mut self, tx: &mut Tx<'_>, agent: &AgentName) -> Result<(), StoreError> {
        let text = format!(
            "{agent} could not answer: too many answers are pending here; wait for them or cancel some"
        );
        let failure = NewEntry {
            kind: EntryKind::Failure,
            author: Participant::Agent(agent.clone()),
            name: agent.to_string(),
            reply_to: Some(self.entry.seq),
            hops: self.publication.entry.hops,
            ..note(text.clone())
        };
        tx.add_entry(self.publication.chat.id, &failure)?;
        self.notes.push(text);
        Ok(())
    }
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

/// Resolves a name in a text: the person, the parent, an agent or another participant of the chat,
/// or a run of the same owner by its full name. In a private chat, a text cannot add participants:
/// only names of participants and of the person, who sees every chat, are resolved.
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

/// Filters out participants without access to the chat, such as a run that was moved to another
/// owner.
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
    let mut text = shorten::head_chars(&entry.text, NOTIFIED_CHARS_MAX).to_owned();
    let left = entry.text[text.len()..].chars().count();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn agents(names: &[&str]) -> Vec<AgentName> {
        names
            .iter()
            .map(|name| AgentName::parse(name).expect("a name"))
            .collect()
    }

    #[test]
    fn default_responder_answers_only_in_a_chat_without_agents() {
        let gemini = || agents(&["gemini"]).pop();
        let chosen = Responders::or_default(Vec::new(), true, gemini());
        assert_eq!(chosen.answering, agents(&["gemini"]));
        assert!(!chosen.has_no_agent);
        let others = Responders::or_default(agents(&["codex"]), true, gemini());
        assert_eq!(others.answering, agents(&["codex"]));
        let named = Responders::or_default(Vec::new(), false, gemini());
        assert!(named.answering.is_empty() && !named.has_no_agent);
        assert!(Responders::or_default(Vec::new(), true, None).has_no_agent);
    }
}
