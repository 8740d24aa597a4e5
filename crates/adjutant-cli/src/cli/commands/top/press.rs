//! What the keys of `adj top` do. They are the dashboard's.

use super::actions::{Action, Command};
use super::board::{Item, ItemId, Section};
use super::change::ChangeForm;
use super::dialog::answer_to;
use super::guard::KeyRefusal;
use super::log::LogPane;
use super::model::{Dialog, Field, Page, Tone, Top};
use crate::cli::exit::Exit;
use crate::present::state_label;
use crate::text;
use crate::view::{AnswerOne, DecisionWord, RequestView, RunView};
use adjutant_core::request::is_high_risk;
use adjutant_core::{OutcomeKind, RequestKind, RunStateKind, WorkspaceState};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::time::Instant;

/// Items that a page key moves over.
const PAGE_ITEMS: usize = 10;
/// Modifiers with which no key acts.
const MODIFIERS: KeyModifiers = KeyModifiers::CONTROL
    .union(KeyModifiers::ALT)
    .union(KeyModifiers::SUPER)
    .union(KeyModifiers::HYPER)
    .union(KeyModifiers::META);

impl Top {
    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Command> {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if has_control && key.code == KeyCode::Char('c') {
            return Some(Command::Quit(Exit::Interrupted));
        }
        self.notice = None;
        let now = Instant::now();
        self.guard.key_pressed(key, now);
        let is_plain = !key.modifiers.intersects(MODIFIERS);
        if self.dialog.is_some()
            && key.code == KeyCode::Enter
            && !(is_plain && key.kind == KeyEventKind::Press && self.closed_request().is_none())
        {
            return None;
        }
        match self.dialog.take() {
            Some(Dialog::Field { what, typed }) => {
                self.press_in_field(what, typed, key.code, has_control)
            }
            Some(Dialog::Change(form)) => self.press_in_change(form, key.code, has_control),
            Some(Dialog::Merge { run_id, name, into }) => {
                let is_reply = !matches!(key.code, KeyCode::Esc | KeyCode::Char('n' | 'N' | 'q'));
                if is_reply && (!is_plain || self.guard.refuse_reply(now).is_some()) {
                    self.dialog = Some(Dialog::Merge { run_id, name, into });
                    return None;
                }
                self.press_in_merge(run_id, name, into, key.code)
            }
            None if !is_plain => None,
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
                        _ => self.press_on_item(key, now),
                    }
                }
                Page::List => self.press_in_list(key, now),
            },
        }
    }

    fn press_in_list(&mut self, key: KeyEvent, now: Instant) -> Option<Command> {
        let last = self.board.items().len().saturating_sub(1);
        match key.code {
            KeyCode::Char('j') | KeyCode::Down => self.select(self.place + 1),
            KeyCode::Char('k') | KeyCode::Up => self.select(self.place.saturating_sub(1)),
            KeyCode::PageDown => self.select(self.place + PAGE_ITEMS),
            KeyCode::PageUp => self.select(self.place.saturating_sub(PAGE_ITEMS)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(last),
            KeyCode::Enter if self.selected().is_some() => self.page = Page::Details { scroll: 0 },
            KeyCode::Char('/') => {
                let typed = self.board.filter().to_owned();
                self.dialog = Some(Dialog::Field {
                    what: Field::Filter,
                    typed,
                });
            }
            KeyCode::Esc => self.apply_filter(""),
            KeyCode::Char('q') => return Some(Command::Quit(Exit::Done)),
            _ => return self.press_on_item(key, now),
        }
        None
    }

    /// Applies a key that acts on the selected item, or one that works in the list and on an item's
    /// page.
    fn press_on_item(&mut self, event: KeyEvent, now: Instant) -> Option<Command> {
        let KeyCode::Char(key) = event.code else {
            return None;
        };
        match key {
            '?' => {
                self.page = Page::Help { scroll: 0 };
                return None;
            }
            '.' => {
                self.select_first_need();
                return None;
            }
            _ => {}
        }
        let title = self.selected()?.1.title();
        if self.refuse_key(key, &title, now) || self.refuse_while_busy(key, &title) {
            return None;
        }
        match key {
            'l' => self.open_log(),
            'x' | 'p' => self.act_on_run(key),
            'm' => {
                self.ask_to_merge(now);
                None
            }
            _ => self.press_by_kind(key, now),
        }
    }

    fn select_first_need(&mut self) {
        let items = self.board.items();
        match items
            .iter()
            .position(|(section, _)| *section == Section::Needs)
        {
            Some(first) => {
                self.page = Page::List;
                self.select(first);
            }
            None => self.notify(Tone::Plain, "nothing needs you"),
        }
    }

    /// Refuses a key while a call about the selected item is made or waits, and says so. The log
    /// can be read meanwhile.
    fn refuse_while_busy(&mut self, key: char, title: &str) -> bool {
        let is_busy = match self.selected() {
            Some((_, Item::Request(request))) => self.is_busy(&request.message_id),
            Some((_, Item::Run(run))) => self.is_busy(&run.identity.run_id),
            Some((_, Item::Mention(_))) | None => false,
        };
        if !is_busy || key == 'l' {
            return false;
        }
        let is_later = self
            .later
            .iter()
            .any(|later| item_is(self.selected.as_ref(), &later.about));
        let why = if is_later {
            "press z to undo"
        } else {
            "waiting for the hub"
        };
        self.notify(Tone::Plain, &format!("{title}: {why}"));
        true
    }

    fn open_log(&mut self) -> Option<Command> {
        let (_, item) = self.selected()?;
        let run_id = item.run_id()?.to_owned();
        let name = match item {
            Item::Request(request) => &request.run_name,
            Item::Run(run) => &run.identity.name,
            Item::Mention(_) => return None,
        };
        self.page = Page::Log(LogPane::new(&run_id, name));
        Some(Command::OpenLog { run_id })
    }

    /// Cancels, pauses, resumes or retries the run of the selected item.
    fn act_on_run(&mut self, key: char) -> Option<Command> {
        let (_, item) = self.selected()?;
        let run = self.board.run(item.run_id()?)?;
        if let Some(action) = action_of(key, run) {
            return Some(Command::Act {
                action,
                run_id: run.identity.run_id.clone(),
                name: run.identity.name.clone(),
            });
        }
        // Without times.
        let state = state_label(run, &|_| None).words;
        let notice = format!("{} is {state}", run.identity.name);
        self.notify(Tone::Plain, &notice);
        None
    }

    /// Asks how to merge the changes of the selected item's run.
    fn ask_to_merge(&mut self, now: Instant) {
        let Some(run) = self
            .selected()
            .and_then(|(_, item)| self.board.run(item.run_id()?))
        else {
            return;
        };
        let name = run.identity.name.clone();
        let open = run.place.workspace.as_ref().filter(|workspace| {
            workspace.state != WorkspaceState::Merged
                && workspace.state != WorkspaceState::Discarded
        });
        match open {
            Some(workspace) => {
                self.dialog = Some(Dialog::Merge {
                    into: workspace.repository.clone(),
                    run_id: run.identity.run_id.clone(),
                    name,
                });
                self.guard.question_opened(now);
            }
            None => self.notify(Tone::Plain, &format!("{name} has no workspace to merge")),
        }
    }

    /// Applies a key that not every kind of item has.
    fn press_by_kind(&mut self, key: char, now: Instant) -> Option<Command> {
        let (_, item) = self.selected()?;
        match (key, item) {
            ('y', Item::Run(run)) if is_new_failure(run) => Some(Command::Seen {
                run_id: run.identity.run_id.clone(),
                name: run.identity.name.clone(),
                cursor: run.cursor,
            }),
            ('r', Item::Mention(mention)) => {
                let what = Field::Message(Box::new(mention.clone()));
                self.dialog = Some(Dialog::Field {
                    what,
                    typed: String::new(),
                });
                None
            }
            ('r' | 'a' | 'A' | 'd' | 'e' | '1'..='9', Item::Request(request)) => {
                let request = Box::new(request.clone());
                self.answer_with(key, request)
            }
            ('r' | 'a' | 'A' | 'd' | 'e', Item::Run(run)) if !run.requests.pending.is_empty() => {
                let request = Box::new(run.requests.pending[0].clone());
                self.answer_with(key, request)
            }
            (key, item) => {
                match command_elsewhere(key, item) {
                    Some(command) => self.notify(Tone::Plain, &command),
                    None => self.guard.text_was_typed(now),
                }
                None
            }
        }
    }

    /// Refuses a key that belongs to a text or to an item that has gone, and says so.
    fn refuse_key(&mut self, key: char, title: &str, now: Instant) -> bool {
        let Some(refusal) = self.guard.refuse(key, now) else {
            return false;
        };
        match refusal {
            KeyRefusal::Moved => self.notify(
                Tone::Plain,
                &format!("the selection has moved to {title}: press {key} again after a pause"),
            ),
            KeyRefusal::Typing => self.notify(
                Tone::Plain,
                &format!("keys wait for a pause: press {key} again for {title}"),
            ),
            // The key that is held down has said what it does.
            KeyRefusal::Held | KeyRefusal::Unseen => {}
        }
        true
    }

    /// Answers a request, or opens the dialog that does.
    fn answer_with(&mut self, key: char, request: Box<RequestView>) -> Option<Command> {
        let is_question = request.kind == RequestKind::Question;
        let number = text::line(&request.number);
        let is_high =
            request.kind == RequestKind::Approval && is_high_risk(request.content.risk.as_deref());
        let mut refuse = |why: String| {
            self.notify(Tone::Plain, &why);
            None
        };
        self.dialog = match key {
            'r' if !is_question => {
                refuse(format!("{number} is decided with a (approve) or d (deny)"))
            }
            'a' | 'A' | 'd' if is_question => {
                refuse(format!("{number} is a question: press r to answer it"))
            }
            'a' | '1'..='9' if is_high => refuse(format!(
                "{number} has a high or an unknown risk: press A (Shift and a) to approve it"
            )),
            'a' | 'A' => {
                let answer = AnswerOne {
                    decision: Some(DecisionWord::Approve),
                    ..answer_to(&request)
                };
                return Some(Command::Answer {
                    answer: Box::new(answer),
                    about: request,
                });
            }
            'e' if request.delegated.delegation.is_none() => {
                refuse(format!("{number} is not a delegation"))
            }
            'e' => Some(Dialog::Change(ChangeForm::new(request))),
            'd' => Some(Dialog::Field {
                what: Field::Deny(request),
                typed: String::new(),
            }),
            'r' => Some(Dialog::Field {
                what: Field::Answer(request),
                typed: String::new(),
            }),
            digit => match digit
                .to_digit(10)
                .and_then(|digit| {
                    request
                        .content
                        .options
                        .get((digit as usize).checked_sub(1)?)
                })
                .cloned()
            {
                Some(typed) => {
                    let what = if is_question {
                        Field::Answer(request)
                    } else {
                        Field::Approve(request)
                    };
                    Some(Dialog::Field { what, typed })
                }
                None => refuse(format!("{number} has no option {digit}")),
            },
        };
        None
    }
}

/// Returns whether the selected item is about a request or run.
fn item_is(selected: Option<&ItemId>, about: &str) -> bool {
    matches!(selected, Some(ItemId::Request(id) | ItemId::Run(id)) if id == about)
}

/// Returns whether the person has not seen the end of a failed run.
fn is_new_failure(run: &RunView) -> bool {
    run.condition
        .attention
        .as_ref()
        .is_some_and(|attention| attention.is_new && !attention.is_stop())
}

/// Returns what `x` and `p` do to a run in its state.
fn action_of(key: char, run: &RunView) -> Option<Action> {
    let is_finished = run.condition.state == RunStateKind::Finished;
    match key {
        'x' if !is_finished => Some(Action::Cancel),
        'p' if is_finished && !run.has_outcome(OutcomeKind::Succeeded) => Some(Action::Retry),
        'p' if run.condition.state == RunStateKind::Stopped || run.is_held() => {
            Some(Action::Resume)
        }
        'p' if !is_finished => Some(Action::Pause),
        _ => None,
    }
}

/// Names the command for a key of the dashboard that has no page here.
fn command_elsewhere(key: char, item: Item<'_>) -> Option<String> {
    let name = match item {
        Item::Request(request) => text::line(&request.run_name),
        Item::Run(run) => text::line(&run.identity.name),
        Item::Mention(mention) => {
            return Some(format!("adj chat show {}", mention.chat_id)).filter(|_| key == 'v');
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::RunConditionView;

    #[test]
    fn keys_act_on_runs_by_their_state() {
        let run = |state: RunStateKind, outcome: Option<OutcomeKind>| RunView {
            condition: RunConditionView {
                state: state.into(),
                outcome: outcome.map(Into::into),
                ..RunConditionView::default()
            },
            ..RunView::default()
        };
        let actions = |run: &RunView| ['x', 'p'].map(|key| action_of(key, run));
        assert_eq!(
            actions(&run(RunStateKind::Running, None)),
            [Some(Action::Cancel), Some(Action::Pause)]
        );
        assert_eq!(
            actions(&run(RunStateKind::Stopped, None)),
            [Some(Action::Cancel), Some(Action::Resume)]
        );
        assert_eq!(
            actions(&run(RunStateKind::Finished, Some(OutcomeKind::Failed))),
            [None, Some(Action::Retry)]
        );
        assert_eq!(
            actions(&run(RunStateKind::Finished, Some(OutcomeKind::Succeeded))),
            [None, None]
        );
    }
}
