//! Applies keys in the dialogs of `adj top`: what is typed, and what is sent with it.

use super::actions::{Action, Command};
use super::change::ChangeForm;
use super::model::{Dialog, Field, Tone, Top};
use crate::cli::keys;
use crate::view::{AnswerOne, DecisionWord, RequestView};
use adjutant_core::merge::MergeMode;
use crossterm::event::KeyCode;

/// Longest text that can be typed, in characters.
const TYPED_CHARS_MAX: usize = 20_000;

impl Top {
    /// Inserts pasted text into the open field. Elsewhere it is ignored, because its letters would
    /// act as keys.
    pub(super) fn paste(&mut self, pasted: &str) {
        match &mut self.dialog {
            Some(Dialog::Field { what, typed }) => {
                keys::paste(typed, pasted, TYPED_CHARS_MAX);
                if matches!(what, Field::Filter) {
                    let filter = typed.clone();
                    self.apply_filter(&filter);
                }
            }
            Some(Dialog::Change(form)) => form.paste(pasted),
            Some(Dialog::Merge { .. }) | None => {}
        }
    }

    pub(super) fn press_in_change(
        &mut self,
        mut form: ChangeForm,
        code: KeyCode,
        has_control: bool,
    ) -> Option<Command> {
        match code {
            KeyCode::Esc => return None,
            KeyCode::Enter => match form.changes() {
                Ok(changes) => {
                    let answer = AnswerOne {
                        decision: Some(DecisionWord::Approve),
                        changes,
                        ..answer_to(&form.request)
                    };
                    return Some(Command::Answer {
                        answer: Box::new(answer),
                        about: form.request,
                    });
                }
                Err(why) => self.notify(Tone::Bad, why),
            },
            code => form.press(code, has_control),
        }
        self.dialog = Some(Dialog::Change(form));
        None
    }

    pub(super) fn press_in_merge(
        &mut self,
        run_id: String,
        name: String,
        into: String,
        code: KeyCode,
    ) -> Option<Command> {
        let mode = match code {
            KeyCode::Char('m') | KeyCode::Enter => MergeMode::Merge,
            KeyCode::Char('s') => MergeMode::Squash,
            KeyCode::Char('r') => MergeMode::Rebase,
            KeyCode::Char('t') => MergeMode::Stage,
            KeyCode::Char('b') => {
                let typed = name.clone();
                self.dialog = Some(Dialog::Field {
                    what: Field::Branch { run_id, name },
                    typed,
                });
                return None;
            }
            KeyCode::Char('d') => {
                return Some(Command::Act {
                    action: Action::Discard,
                    run_id,
                    name,
                });
            }
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                self.notify(Tone::Plain, "nothing was sent");
                return None;
            }
            _ => {
                self.dialog = Some(Dialog::Merge { run_id, name, into });
                return None;
            }
        };
        Some(Command::Merge {
            run_id,
            name,
            mode,
            branch: None,
        })
    }

    pub(super) fn press_in_field(
        &mut self,
        what: Field,
        mut typed: String,
        code: KeyCode,
        has_control: bool,
    ) -> Option<Command> {
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

    /// Sends what was typed. An empty text sends nothing.
    fn submit(&mut self, what: Field, typed: &str) -> Option<Command> {
        let is_empty = typed.trim().is_empty();
        match what {
            Field::Filter => None,
            _ if is_empty => {
                let why = if matches!(what, Field::Deny(_)) {
                    "a denial needs a reason; nothing was sent"
                } else {
                    "nothing was sent"
                };
                self.notify(Tone::Plain, why);
                None
            }
            Field::Answer(request) => {
                let answer = AnswerOne {
                    answer: typed.to_owned(),
                    ..answer_to(&request)
                };
                Some(Command::Answer {
                    answer: Box::new(answer),
                    about: request,
                })
            }
            Field::Approve(request) => {
                let answer = AnswerOne {
                    decision: Some(DecisionWord::Approve),
                    reason: Some(typed.trim().to_owned()),
                    ..answer_to(&request)
                };
                Some(Command::Answer {
                    answer: Box::new(answer),
                    about: request,
                })
            }
            Field::Deny(request) => {
                let answer = AnswerOne {
                    decision: Some(DecisionWord::Deny),
                    reason: Some(typed.trim().to_owned()),
                    ..answer_to(&request)
                };
                Some(Command::Answer {
                    answer: Box::new(answer),
                    about: request,
                })
            }
            Field::Branch { run_id, name } => Some(Command::Merge {
                run_id,
                name,
                mode: MergeMode::Branch,
                branch: Some(typed.trim().to_owned()),
            }),
            Field::Message(mention) => Some(Command::Post {
                text: typed.to_owned(),
                about: mention,
            }),
        }
    }
}

/// Starts an answer that is only accepted for exactly the request that was shown.
pub(super) fn answer_to(request: &RequestView) -> AnswerOne {
    AnswerOne {
        message_id: Some(request.message_id.clone()),
        content_hash: Some(request.content.content_hash.clone()),
        ..AnswerOne::default()
    }
}
