//! The state of `adj top`, and how keys and news change it. Pure: it reads no clock, makes no call and draws nothing.

use super::actions::{Action, Command, Later};
use super::board::{Board, Item, ItemId, Section};
use super::log::LogPane;
use crate::cli::alert;
use crate::cli::answering;
use crate::cli::exit::Exit;
use crate::cli::keys;
use crate::cli::run_state;
use crate::present::asked_for;
use crate::text;
use crate::view::{AnswerOne, ChangesView, DecisionWord, MentionView, RequestView, RunView};
use adjutant_core::merge::MergeMode;
use adjutant_core::{OutcomeKind, RequestKind, RunStateKind, WorkspaceState};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::HashSet;
use tokio::time::Instant;

/// Longest text that can be typed, in characters.
const TYPED_CHARS_MAX: usize = 20_000;
/// Items that a page key moves over.
const PAGE_ITEMS: usize = 10;

/// What fills the screen.
#[derive(Debug, Default)]
pub enum Page {
    #[default]
    List,
    /// The selected item in full.
    Details {
        scroll: usize,
    },
    Log(LogPane),
    Help {
        scroll: usize,
    },
}

/// What the keyboard writes to, above the footer.
#[derive(Debug)]
pub enum Dialog {
    Field {
        what: Field,
        typed: String,
    },
    Confirm {
        question: String,
        command: Command,
    },
    /// Asks how to merge a run into a repository.
    Merge {
        run_id: String,
        name: String,
        into: String,
    },
}

/// The purpose of typed text.
#[derive(Debug)]
pub enum Field {
    Answer(Box<RequestView>),
    Deny(Box<RequestView>),
    /// The task of a delegation, which is approved with it.
    Change(Box<RequestView>),
    /// The new branch for a run's changes.
    Branch {
        run_id: String,
        name: String,
    },
    Message(Box<MentionView>),
    Filter,
}

/// The tone of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Bad,
}

/// The connection to the hub.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Connection {
    #[default]
    Live,
    /// The hub is gone; holds the error of the last try, if there was one.
    Lost(Option<String>),
}

/// The state of the screen.
#[derive(Debug, Default)]
pub struct Top {
    pub board: Board,
    pub page: Page,
    pub dialog: Option<Dialog>,
    pub notice: Option<(Tone, String)>,
    pub connection: Connection,
    /// A remark of the hub about the machine's clock.
    pub warning: Option<String>,
    selected: Option<ItemId>,
    /// The place of the selected item, for when it has gone.
    place: usize,
    /// What needed the person when it was last looked at.
    known_needs: Option<HashSet<ItemId>>,
    /// The items about which a call is under way.
    busy: HashSet<String>,
    /// The actions that can be undone, the oldest first.
    later: Vec<Later>,
}

impl Top {
    /// Returns the selected item and its place.
    pub fn selected(&self) -> Option<(usize, Item<'_>)> {
        let id = self.selected.as_ref()?;
        self.board.item(id).map(|item| (self.place, item))
    }

    /// Keeps the selection on its item after the board has changed. If the item has gone, selects its successor.
    pub fn settle_selection(&mut self) {
        let items = self.board.items();
        let found = self.selected.as_ref().and_then(|id| items.iter().position(|(_, other)| other == id));
        let is_gone = found.is_none() && self.selected.is_some();
        self.place = found.unwrap_or(self.place).min(items.len().saturating_sub(1));
        self.selected = items.get(self.place).map(|(_, id)| id.clone());
        if is_gone && matches!(self.page, Page::Details { .. }) {
            // The page would show another item.
            self.page = Page::List;
        }
        self.close_stale_dialog();
    }

    /// Closes a dialog about a request that is no longer open, and says so.
    fn close_stale_dialog(&mut self) {
        let about = match &self.dialog {
            Some(Dialog::Field { what: Field::Answer(request) | Field::Deny(request) | Field::Change(request), .. }) => request,
            Some(Dialog::Confirm { command: Command::Answer { about, .. }, .. }) => about,
            _ => return,
        };
        if self.board.item(&ItemId::Request(about.message_id.clone())).is_none() {
            let notice = format!("{} of {} was closed meanwhile; nothing was sent", about.number, about.run_name);
            self.notify(Tone::Bad, &notice);
            self.dialog = None;
        }
    }

    /// Returns what needs the person since the last call, for one notification. The first call returns nothing: the screen shows it.
    pub fn take_new_needs(&mut self) -> Option<String> {
        let needs: HashSet<ItemId> = self.board.needs().map(|item| item.id()).collect();
        let known = self.known_needs.replace(needs)?;
        let new: Vec<Item<'_>> = self.board.needs().filter(|item| !known.contains(&item.id())).collect();
        match new.as_slice() {
            [] => None,
            [Item::Request(request)] => Some(alert::asked(request)),
            [Item::Run(run)] => Some(format!("{} needs you", run.name)),
            [Item::Mention(mention)] => Some(format!("{} asks for you", mention.title)),
            several => Some(format!("{} new items need you", several.len())),
        }
    }

    /// Returns the window's title.
    pub fn title(&self) -> String {
        match self.board.needs().count() {
            0 => "adj top".to_owned(),
            1 => "adj top: 1 needs you".to_owned(),
            count => format!("adj top: {count} need you"),
        }
    }

    /// Shows one line until the next key.
    pub fn notify(&mut self, tone: Tone, text: &str) {
        self.notice = Some((tone, text::line(text)));
    }

    /// Marks what a call is about, until its reply.
    pub fn set_busy(&mut self, about: &str, is_busy: bool) {
        if is_busy {
            self.busy.insert(about.to_owned());
        } else {
            self.busy.remove(about);
        }
    }

    pub fn is_busy(&self, about: &str) -> bool {
        self.busy.contains(about)
    }

    /// Keeps an action until it is due. Returns a command that is sent at once.
    pub fn send_later(&mut self, command: Command, now: Instant) -> Option<Command> {
        match Later::new(command, now) {
            Ok(later) => {
                self.set_busy(&later.about, true);
                self.later.push(later);
                None
            }
            Err(command) => Some(*command),
        }
    }

    /// Returns the actions that can be undone, the oldest first.
    pub fn later(&self) -> &[Later] {
        &self.later
    }

    /// Removes and returns the actions that are due by a time, or all.
    pub fn take_due(&mut self, by: Option<Instant>) -> Vec<Command> {
        let (due, rest) = std::mem::take(&mut self.later).into_iter().partition(|later: &Later| by.is_none_or(|by| later.due <= by));
        self.later = rest;
        due.into_iter().map(|later| later.command).collect()
    }

    /// Removes the newest action that was not sent yet.
    fn undo(&mut self) {
        match self.later.pop() {
            Some(later) => {
                self.set_busy(&later.about, false);
                self.notify(Tone::Good, &format!("undone: {}", later.label));
            }
            None => self.notify(Tone::Plain, "nothing to undo"),
        }
    }

    /// Inserts pasted text into the open field. Elsewhere it is ignored, because its letters would act as keys.
    pub fn paste(&mut self, pasted: &str) {
        if let Some(Dialog::Field { what, typed }) = &mut self.dialog {
            keys::paste(typed, pasted, TYPED_CHARS_MAX);
            if matches!(what, Field::Filter) {
                let filter = typed.clone();
                self.apply_filter(&filter);
            }
        }
    }

    /// Applies a key.
    pub fn press(&mut self, key: KeyEvent) -> Option<Command> {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if has_control && key.code == KeyCode::Char('c') {
            return Some(Command::Quit(Exit::Interrupted));
        }
        self.notice = None;
        match self.dialog.take() {
            Some(Dialog::Field { what, typed }) => self.press_in_field(what, typed, key.code, has_control),
            Some(Dialog::Confirm { question, command }) => self.press_in_confirm(question, command, key.code),
            Some(Dialog::Merge { run_id, name, into }) => self.press_in_merge(run_id, name, into, key.code),
            None if has_control || key.modifiers.contains(KeyModifiers::ALT) => None,
            None if key.code == KeyCode::Char('z') => {
                self.undo();
                None
            }
            None => match &mut self.page {
                Page::Log(log) => match log.press(key.code) {
                    true => {
                        self.page = Page::List;
                        Some(Command::CloseLog)
                    }
                    false => None,
                },
                Page::Help { scroll } => {
                    if !scroll_by(scroll, key.code) {
                        self.page = Page::List;
                    }
                    None
                }
                Page::Details { scroll } => {
                    if scroll_by(scroll, key.code) {
                        return None;
                    }
                    match key.code {
                        KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {
                            self.page = Page::List;
                            None
                        }
                        code => self.press_on_item(code),
                    }
                }
                Page::List => self.press_in_list(key.code),
            },
        }
    }

    fn press_in_confirm(&mut self, question: String, command: Command, code: KeyCode) -> Option<Command> {
        match code {
            KeyCode::Char('y' | 'Y') => return Some(command),
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => self.notify(Tone::Plain, "nothing was sent"),
            _ => self.dialog = Some(Dialog::Confirm { question, command }),
        }
        None
    }

    fn press_in_merge(&mut self, run_id: String, name: String, into: String, code: KeyCode) -> Option<Command> {
        let mode = match code {
            KeyCode::Char('m') | KeyCode::Enter => MergeMode::Merge,
            KeyCode::Char('s') => MergeMode::Squash,
            KeyCode::Char('r') => MergeMode::Rebase,
            KeyCode::Char('t') => MergeMode::Stage,
            KeyCode::Char('b') => {
                let typed = name.clone();
                self.dialog = Some(Dialog::Field { what: Field::Branch { run_id, name }, typed });
                return None;
            }
            KeyCode::Char('d') => return Some(Command::Act { action: Action::Discard, run_id, name }),
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                self.notify(Tone::Plain, "nothing was sent");
                return None;
            }
            _ => {
                self.dialog = Some(Dialog::Merge { run_id, name, into });
                return None;
            }
        };
        Some(Command::Merge { run_id, name, mode, branch: None })
    }

    fn press_in_field(&mut self, what: Field, mut typed: String, code: KeyCode, has_control: bool) -> Option<Command> {
        match code {
            KeyCode::Esc => {
                if matches!(what, Field::Filter) {
                    self.apply_filter("");
                }
                return None;
            }
            KeyCode::Enter => return self.submit(what, &typed),
            code => keys::edit(&mut typed, code, has_control, TYPED_CHARS_MAX),
        }
        if matches!(what, Field::Filter) {
            self.apply_filter(&typed);
        }
        self.dialog = Some(Dialog::Field { what, typed });
        None
    }

    fn apply_filter(&mut self, filter: &str) {
        self.board.set_filter(filter);
        self.settle_selection();
    }

    /// Sends what was typed. An empty text sends nothing.
    fn submit(&mut self, what: Field, typed: &str) -> Option<Command> {
        let is_empty = typed.trim().is_empty();
        match what {
            Field::Filter => None,
            _ if is_empty => {
                let why = if matches!(what, Field::Deny(_)) { "a denial needs a reason; nothing was sent" } else { "nothing was sent" };
                self.notify(Tone::Plain, why);
                None
            }
            Field::Answer(request) => {
                let answer = AnswerOne { answer: typed.to_owned(), ..answer_to(&request) };
                Some(Command::Answer { answer: Box::new(answer), about: request })
            }
            Field::Deny(request) => {
                let answer = AnswerOne { decision: Some(DecisionWord::Deny), reason: Some(typed.trim().to_owned()), ..answer_to(&request) };
                Some(Command::Answer { answer: Box::new(answer), about: request })
            }
            Field::Change(request) => {
                let prompt = Some(typed.to_owned()).filter(|typed| typed != asked_for(&request).text);
                let changes = prompt.map(|prompt| ChangesView { prompt: Some(prompt), ..ChangesView::default() });
                let answer = AnswerOne { decision: Some(DecisionWord::Approve), changes, ..answer_to(&request) };
                Some(Command::Answer { answer: Box::new(answer), about: request })
            }
            Field::Branch { run_id, name } => Some(Command::Merge { run_id, name, mode: MergeMode::Branch, branch: Some(typed.trim().to_owned()) }),
            Field::Message(mention) => Some(Command::Post { text: typed.to_owned(), about: mention }),
        }
    }

    fn press_in_list(&mut self, code: KeyCode) -> Option<Command> {
        let last = self.board.items().len().saturating_sub(1);
        match code {
            KeyCode::Char('j') | KeyCode::Down => self.select(self.place + 1),
            KeyCode::Char('k') | KeyCode::Up => self.select(self.place.saturating_sub(1)),
            KeyCode::PageDown => self.select(self.place + PAGE_ITEMS),
            KeyCode::PageUp => self.select(self.place.saturating_sub(PAGE_ITEMS)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(last),
            KeyCode::Enter if self.selected().is_some() => self.page = Page::Details { scroll: 0 },
            KeyCode::Char('/') => {
                let typed = self.board.filter().to_owned();
                self.dialog = Some(Dialog::Field { what: Field::Filter, typed });
            }
            KeyCode::Esc => self.apply_filter(""),
            KeyCode::Char('q') => return Some(Command::Quit(Exit::Done)),
            code => return self.press_on_item(code),
        }
        None
    }

    fn select(&mut self, place: usize) {
        self.place = place;
        self.selected = None;
        self.settle_selection();
    }

    /// Applies a key that acts on the selected item, or one that works in the list and on an item's page.
    fn press_on_item(&mut self, code: KeyCode) -> Option<Command> {
        match code {
            KeyCode::Char('?') => {
                self.page = Page::Help { scroll: 0 };
                return None;
            }
            KeyCode::Char('.') => {
                match self.board.items().iter().position(|(section, _)| *section == Section::Needs) {
                    Some(first) => {
                        self.page = Page::List;
                        self.select(first);
                    }
                    None => self.notify(Tone::Plain, "nothing needs you"),
                }
                return None;
            }
            _ => {}
        }
        let KeyCode::Char(key) = code else { return None };
        let (_, item) = self.selected()?;
        let title = item.title();
        let busy = match item {
            Item::Request(request) => self.is_busy(&request.message_id),
            Item::Run(run) => self.is_busy(&run.run_id),
            Item::Mention(_) => false,
        };
        if busy && key != 'l' {
            let is_later = self.later.iter().any(|later| item_is(self.selected.as_ref(), &later.about));
            let why = if is_later { "press z to undo" } else { "waiting for the hub" };
            self.notify(Tone::Plain, &format!("{title}: {why}"));
            return None;
        }
        match (key, item) {
            ('l', item) => {
                let run_id = item.run_id()?.to_owned();
                let name = match item {
                    Item::Request(request) => &request.run_name,
                    Item::Run(run) => &run.name,
                    Item::Mention(_) => return None,
                };
                self.page = Page::Log(LogPane::new(&run_id, name));
                Some(Command::OpenLog { run_id })
            }
            ('x' | 'p', item) => {
                let run = self.board.run(item.run_id()?)?;
                match action_of(key, run) {
                    Some(action) => {
                        let (verb, _) = action.words();
                        let question = format!("{verb} {}?", text::line(&run.name));
                        let command = Command::Act { action, run_id: run.run_id.clone(), name: run.name.clone() };
                        self.dialog = Some(Dialog::Confirm { question, command });
                    }
                    None => {
                        let state = run_state_word(run);
                        let notice = format!("{} is {state}", run.name);
                        self.notify(Tone::Plain, &notice);
                    }
                }
                None
            }
            ('m', item) => {
                let run = self.board.run(item.run_id()?)?;
                let name = run.name.clone();
                match run
                    .workspace
                    .as_ref()
                    .filter(|workspace| workspace.state != WorkspaceState::Merged && workspace.state != WorkspaceState::Discarded)
                {
                    Some(workspace) => {
                        let into = workspace.repository.clone();
                        self.dialog = Some(Dialog::Merge { run_id: run.run_id.clone(), name, into });
                    }
                    None => self.notify(Tone::Plain, &format!("{name} has no workspace to merge")),
                }
                None
            }
            ('y', Item::Run(run)) if run.attention.as_ref().is_some_and(|attention| attention.is_new && !attention.is_stop()) => {
                Some(Command::Seen { run_id: run.run_id.clone(), name: run.name.clone(), cursor: run.cursor })
            }
            ('r', Item::Mention(mention)) => {
                let what = Field::Message(Box::new(mention.clone()));
                self.dialog = Some(Dialog::Field { what, typed: String::new() });
                None
            }
            ('r' | 'a' | 'd' | 'e' | '1'..='9', Item::Request(request)) => {
                let request = Box::new(request.clone());
                self.answer_with(key, request);
                None
            }
            ('r' | 'a' | 'd' | 'e', Item::Run(run)) if !run.pending.is_empty() => {
                let request = Box::new(run.pending[0].clone());
                self.answer_with(key, request);
                None
            }
            (key, item) => {
                if let Some(command) = command_elsewhere(key, item) {
                    self.notify(Tone::Plain, &command);
                }
                None
            }
        }
    }

    /// Opens the dialog that answers a request.
    fn answer_with(&mut self, key: char, request: Box<RequestView>) {
        let is_question = request.kind == RequestKind::Question;
        let number = text::line(&request.number);
        self.dialog = match key {
            'r' | '1'..='9' if !is_question => {
                self.notify(Tone::Plain, &format!("{number} is decided with a (approve) or d (deny)"));
                None
            }
            'a' | 'd' if is_question => {
                self.notify(Tone::Plain, &format!("{number} is a question: press r to answer it"));
                None
            }
            'a' => {
                let question = answering::approval_question(&request);
                let answer = AnswerOne { decision: Some(DecisionWord::Approve), ..answer_to(&request) };
                Some(Dialog::Confirm { question, command: Command::Answer { answer: Box::new(answer), about: request } })
            }
            'e' if request.delegation.is_none() => {
                self.notify(Tone::Plain, &format!("{number} is not a delegation"));
                None
            }
            'e' => {
                let typed = asked_for(&request).text.to_owned();
                Some(Dialog::Field { what: Field::Change(request), typed })
            }
            'd' => Some(Dialog::Field { what: Field::Deny(request), typed: String::new() }),
            'r' => Some(Dialog::Field { what: Field::Answer(request), typed: String::new() }),
            digit => {
                let option = digit.to_digit(10).and_then(|digit| request.options.get((digit as usize).checked_sub(1)?)).cloned();
                match option {
                    Some(typed) => Some(Dialog::Field { what: Field::Answer(request), typed }),
                    None => {
                        self.notify(Tone::Plain, &format!("{number} has no option {digit}"));
                        None
                    }
                }
            }
        };
    }
}

/// Returns whether the selected item is about a request or run.
fn item_is(selected: Option<&ItemId>, about: &str) -> bool {
    matches!(selected, Some(ItemId::Request(id) | ItemId::Run(id)) if id == about)
}

/// Starts an answer that is only accepted for exactly the request that was shown.
fn answer_to(request: &RequestView) -> AnswerOne {
    AnswerOne { message_id: Some(request.message_id.clone()), content_hash: Some(request.content_hash.clone()), ..AnswerOne::default() }
}

/// Returns what `x` and `p` do to a run in its state.
fn action_of(key: char, run: &RunView) -> Option<Action> {
    let is_finished = run.state == RunStateKind::Finished;
    match key {
        'x' if !is_finished => Some(Action::Cancel),
        'p' if is_finished && !run.has_outcome(OutcomeKind::Succeeded) => Some(Action::Retry),
        'p' if run.state == RunStateKind::Stopped || run.is_held() => Some(Action::Resume),
        'p' if !is_finished => Some(Action::Pause),
        _ => None,
    }
}

/// Returns the word for a run's state, without its glyph and its times.
fn run_state_word(run: &RunView) -> String {
    let label = run_state::label(run, jiff::Timestamp::UNIX_EPOCH).text;
    label.split_once(' ').map_or(label.clone(), |(_, words)| words.to_owned())
}

/// Names the command for a key of the dashboard that has no page here.
fn command_elsewhere(key: char, item: Item<'_>) -> Option<String> {
    let name = match item {
        Item::Request(request) => text::line(&request.run_name),
        Item::Run(run) => text::line(&run.name),
        Item::Mention(mention) => return Some(format!("adj chat show {}", mention.chat_id)).filter(|_| key == 'v'),
    };
    match key {
        'c' => Some(format!("changes: adj diff {name}")),
        'v' | 'o' => Some(format!("report and conversation: adj show {name}")),
        'w' => Some(format!("events: adj events {name}")),
        _ => None,
    }
}

/// Scrolls a page; `false` if the key does not scroll.
fn scroll_by(scroll: &mut usize, code: KeyCode) -> bool {
    *scroll = match code {
        KeyCode::Char('j') | KeyCode::Down => *scroll + 1,
        KeyCode::Char('k') | KeyCode::Up => scroll.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => *scroll + PAGE_ITEMS,
        KeyCode::PageUp => scroll.saturating_sub(PAGE_ITEMS),
        KeyCode::Home => 0,
        _ => return false,
    };
    true
}
