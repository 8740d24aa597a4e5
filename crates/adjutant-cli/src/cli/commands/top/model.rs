//! The state of `adj top`, and how updates change it. Pure: it reads no clock, makes no call and
//! draws nothing.

use super::actions::{Command, Later};
use super::board::{Board, Item, ItemId};
use super::change::ChangeForm;
use super::guard::KeyGuard;
use super::log::LogPane;
use crate::cli::alert;
use crate::text;
use crate::view::{AnswerOne, DecisionWord, MentionView, RequestView};
use std::collections::HashSet;
use tokio::time::Instant;

/// What fills the screen.
#[derive(Debug, Default)]
pub(super) enum Page {
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
pub(crate) enum Dialog {
    Field {
        what: Field,
        typed: String,
    },
    Change(ChangeForm),
    /// Asks how to merge a run into a repository.
    Merge {
        run_id: String,
        name: String,
        into: String,
    },
}

/// The purpose of typed text.
#[derive(Debug)]
pub(super) enum Field {
    Answer(Box<RequestView>),
    /// A note that is approved with, such as an option.
    Approve(Box<RequestView>),
    Deny(Box<RequestView>),
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
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
}

/// The connection to the hub.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum HubState {
    #[default]
    Live,
    /// The hub is gone; holds the error of the last try, if there was one.
    Lost(Option<String>),
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(crate) struct Top {
    pub board: Board,
    pub page: Page,
    pub dialog: Option<Dialog>,
    pub notice: Option<(Tone, String)>,
    pub connection: HubState,
    /// A remark of the hub about the machine's clock.
    pub warning: Option<String>,
    pub(super) selected: Option<ItemId>,
    /// The place of the selected item, for when it has gone.
    pub(super) place: usize,
    pub(super) guard: KeyGuard,
    /// What needed the person when it was last looked at.
    known_needs: Option<HashSet<ItemId>>,
    /// The items about which a call is under way.
    busy: HashSet<String>,
    /// The actions that can be undone, the oldest first.
    pub(super) later: Vec<Later>,
}

impl Top {
    /// Returns the selected item and its place.
    pub(super) fn selected(&self) -> Option<(usize, Item<'_>)> {
        let id = self.selected.as_ref()?;
        self.board.item(id).map(|item| (self.place, item))
    }

    /// Keeps the selection on its item after the board has changed. If the item has gone, selects
    /// its successor.
    pub(crate) fn settle_selection(&mut self) {
        let items = self.board.items();
        let found = self
            .selected
            .as_ref()
            .and_then(|id| items.iter().position(|(_, other)| other == id));
        let is_gone = found.is_none() && self.selected.is_some();
        self.place = found
            .unwrap_or(self.place)
            .min(items.len().saturating_sub(1));
        self.selected = items.get(self.place).map(|(_, id)| id.clone());
        if is_gone {
            self.guard.item_has_gone(Instant::now());
        }
        if is_gone && matches!(self.page, Page::Details { .. }) {
            // The page would show another item.
            self.page = Page::List;
        }
    }

    /// Returns the request that the open dialog is about, if it is not open any more. The dialog
    /// stays, so that no text is lost and no letter acts as a key.
    pub(super) fn closed_request(&self) -> Option<&RequestView> {
        let about = match self.dialog.as_ref()? {
            Dialog::Field {
                what: Field::Answer(request) | Field::Approve(request) | Field::Deny(request),
                ..
            } => request,
            Dialog::Change(form) => &form.request,
            Dialog::Field { .. } | Dialog::Merge { .. } => return None,
        };
        self.board
            .item(&ItemId::Request(about.message_id.clone()))
            .is_none()
            .then_some(&**about)
    }

    /// Opens the field of an answer that was not recorded again, with its text.
    pub(super) fn keep_text(&mut self, about: Box<RequestView>, answer: &AnswerOne) {
        let typed = answer
            .reason
            .as_deref()
            .unwrap_or(&answer.answer)
            .to_owned();
        if self.dialog.is_some() || typed.is_empty() {
            return;
        }
        let what = match answer.decision {
            None => Field::Answer(about),
            Some(DecisionWord::Approve) => Field::Approve(about),
            Some(DecisionWord::Deny) => Field::Deny(about),
        };
        self.dialog = Some(Dialog::Field { what, typed });
    }

    /// Returns what needs the person since the last call, for one notification. The first call
    /// returns nothing: the screen shows it.
    pub(crate) fn take_new_needs(&mut self) -> Option<String> {
        let needs: HashSet<ItemId> = self.board.needs().map(|item| item.id()).collect();
        let known = self.known_needs.replace(needs)?;
        let new: Vec<Item<'_>> = self
            .board
            .needs()
            .filter(|item| !known.contains(&item.id()))
            .collect();
        match new.as_slice() {
            [] => None,
            [Item::Request(request)] => Some(alert::asked(request)),
            [Item::Run(run)] => Some(format!("{} needs you", run.identity.name)),
            [Item::Mention(mention)] => Some(format!("{} asks for you", mention.title)),
            several => Some(format!("{} new items need you", several.len())),
        }
    }

    /// Returns the window's title.
    pub(super) fn title(&self) -> String {
        match self.board.needs().count() {
            0 => "adj top".to_owned(),
            1 => "adj top: 1 needs you".to_owned(),
            count => format!("adj top: {count} need you"),
        }
    }

    /// Shows one line until the next key.
    pub(super) fn notify(&mut self, tone: Tone, text: &str) {
        self.notice = Some((tone, text::line(text)));
    }

    /// Marks what a call is about, until its reply.
    pub(crate) fn set_busy(&mut self, about: &str, is_busy: bool) {
        if is_busy {
            self.busy.insert(about.to_owned());
        } else {
            self.busy.remove(about);
        }
    }

    pub(super) fn is_busy(&self, about: &str) -> bool {
        self.busy.contains(about)
    }

    /// Keeps an action until it is due. Returns a command that is sent at once.
    pub(crate) fn send_later(&mut self, command: Command, now: Instant) -> Option<Command> {
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
    pub(super) fn later(&self) -> &[Later] {
        &self.later
    }

    /// Removes and returns the actions that are due by a time, or all.
    pub(super) fn take_due(&mut self, by: Option<Instant>) -> Vec<Command> {
        let (due, rest) = std::mem::take(&mut self.later)
            .into_iter()
            .partition(|later: &Later| by.is_none_or(|by| later.due <= by));
        self.later = rest;
        due.into_iter().map(|later| later.command).collect()
    }

    /// Removes the newest action that was not sent yet.
    pub(super) fn undo(&mut self) {
        match self.later.pop() {
            Some(later) => {
                self.set_busy(&later.about, false);
                self.notify(Tone::Good, &format!("undone: {}", later.label));
            }
            None => self.notify(Tone::Plain, "nothing to undo"),
        }
    }

    pub(super) fn apply_filter(&mut self, filter: &str) {
        self.board.set_filter(filter);
        self.settle_selection();
    }

    pub(super) fn select(&mut self, place: usize) {
        self.place = place;
        self.selected = None;
        self.guard.person_selected();
        self.settle_selection();
    }
}
