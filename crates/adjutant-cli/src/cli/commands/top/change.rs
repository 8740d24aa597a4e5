//! The form that changes a delegation before it is approved: the fields of the dashboard.

use crate::cli::keys;
use crate::present::asked_for;
use crate::text;
use crate::view::{ChangesView, RequestView, Word};
use crossterm::event::KeyCode;

/// Longest text of a field, in characters.
const TYPED_CHARS_MAX: usize = 20_000;

/// The fields, with what they say when they are empty.
const FIELDS: [(&str, &str); 4] = [
    ("task", ""),
    ("agent", "(the same agent)"),
    ("directory", "(the same directory)"),
    ("priority", "(the same priority: P0, P1 or P2)"),
];

/// An open form.
#[derive(Debug)]
pub(crate) struct ChangeForm {
    pub request: Box<RequestView>,
    typed: [String; FIELDS.len()],
    /// The field that the keyboard writes to.
    at: usize,
}

impl ChangeForm {
    /// Opens the form with what was asked for.
    pub(super) fn new(request: Box<RequestView>) -> Self {
        let typed = asked_fields(&request);
        Self {
            request,
            typed,
            at: 0,
        }
    }

    /// Applies a key that neither sends nor closes the form.
    pub(super) fn press(&mut self, code: KeyCode, has_control: bool) {
        match code {
            KeyCode::Tab | KeyCode::Down => self.at = (self.at + 1) % FIELDS.len(),
            KeyCode::BackTab | KeyCode::Up => self.at = (self.at + FIELDS.len() - 1) % FIELDS.len(),
            code => keys::edit(&mut self.typed[self.at], code, has_control, TYPED_CHARS_MAX),
        }
    }

    pub(super) fn paste(&mut self, pasted: &str) {
        keys::paste(&mut self.typed[self.at], pasted, TYPED_CHARS_MAX);
    }

    /// Returns the fields in their order: label, text, and whether the keyboard writes to it.
    pub(super) fn lines(&self) -> impl Iterator<Item = (&'static str, String, bool)> {
        FIELDS
            .iter()
            .zip(&self.typed)
            .enumerate()
            .map(|(at, ((label, empty), typed))| {
                let is_open = at == self.at;
                (
                    *label,
                    if typed.is_empty() && !is_open {
                        (*empty).to_owned()
                    } else {
                        text::line(typed)
                    },
                    is_open,
                )
            })
    }

    /// Returns what differs from the request. An empty field changes nothing.
    ///
    /// # Errors
    /// What is wrong with the field that is then open.
    pub(super) fn changes(&mut self) -> Result<Option<ChangesView>, &'static str> {
        let asked = asked_fields(&self.request);
        if self.typed[0].trim().is_empty() {
            self.at = 0;
            return Err("a delegation needs a task");
        }
        let mut fields = self
            .typed
            .iter()
            .zip(&asked)
            .enumerate()
            .map(|(at, (typed, asked))| {
                // The task is kept as it was typed.
                let typed = if at == 0 {
                    typed.clone()
                } else {
                    typed.trim().to_owned()
                };
                Some(typed).filter(|typed| !typed.is_empty() && typed != asked)
            });
        let [prompt, agent, cwd, priority] = std::array::from_fn(|_| fields.next().flatten());
        let priority = priority.map(|word| Word::read(&word.to_ascii_uppercase()));
        if priority.as_ref().is_some_and(|word| word.known().is_none()) {
            self.at = FIELDS.len() - 1;
            return Err("a priority is P0, P1 or P2");
        }
        let changes = ChangesView {
            prompt,
            agent,
            cwd,
            priority,
        };
        Ok(Some(changes).filter(|changes| *changes != ChangesView::default()))
    }
}

/// Returns the fields of a delegation, as they were asked for.
fn asked_fields(request: &RequestView) -> [String; FIELDS.len()] {
    let of = |field: Option<&String>| field.cloned().unwrap_or_default();
    let (agent, cwd, priority) = match &request.delegated.delegation {
        Some(delegation) => (
            of(delegation.agent.as_ref()),
            of(delegation.cwd.as_ref()),
            delegation.priority.as_str().to_owned(),
        ),
        None => Default::default(),
    };
    [asked_for(request).text.to_owned(), agent, cwd, priority]
}
