//! The reading cursors of labels. Several agents of one client can share a connection and say in
//! each call who they are (`agentName` in the original protocol). A label grants nothing: it only
//! decides which entries are new, for this client alone. The cursors may be lost with the process;
//! entries then count as unread again.

use crate::view::ChatEntryView;
use adjutant_core::chat::mentions;
use std::collections::{HashMap, VecDeque};

/// Maximum number of cursors. The oldest is dropped first.
const CURSORS_MAX: usize = 4_096;
/// Longest label, in characters.
const LABEL_CHARS_MAX: usize = 200;

/// A name that a client's agent gives itself. Case does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Label(String);

impl Label {
    /// Parses an argument. `None`: it names nobody.
    pub(super) fn parse(text: Option<&str>) -> Option<Self> {
        let name: String = text?
            .trim()
            .to_lowercase()
            .chars()
            .take(LABEL_CHARS_MAX)
            .collect();
        (!name.is_empty()).then_some(Self(name))
    }

    /// Returns whether a text mentions the label after `@`.
    fn is_mentioned_in(&self, text: &str) -> bool {
        mentions(text)
            .iter()
            .any(|name| name.to_lowercase() == self.0)
    }

    fn is(&self, label: Option<&str>) -> bool {
        Self::parse(label).as_ref() == Some(self)
    }
}

/// What a label has not read of a chat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LabelUnread {
    pub(super) entries: i64,
    pub(super) is_mentioned: bool,
}

/// How far each label has read each chat.
#[derive(Debug, Default)]
pub(super) struct LabelCursors {
    read: HashMap<(Label, i64), i64>,
    order: VecDeque<(Label, i64)>,
    /// The client as the author of entries, once it has posted one.
    own: Option<String>,
}

impl LabelCursors {
    /// Returns the last entry that a label has read.
    pub(super) fn read_to(&self, label: &Label, chat: i64) -> i64 {
        self.read.get(&(label.clone(), chat)).copied().unwrap_or(0)
    }

    /// Records that a label was shown the entries `first` to `last`, unless unread entries precede
    /// them.
    pub(super) fn note_read(&mut self, label: &Label, chat: i64, first: i64, last: i64) {
        let before = self.read_to(label, chat);
        if first > before + 1 || last <= before {
            return;
        }
        let key = (label.clone(), chat);
        if self.read.insert(key.clone(), last).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > CURSORS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.read.remove(&oldest);
        }
    }

    /// Records an entry that a label has posted.
    pub(super) fn note_posted(&mut self, label: &Label, chat: i64, entry: &ChatEntryView) {
        self.own = Some(entry.from.clone());
        self.note_read(label, chat, entry.seq, entry.seq);
    }

    /// Returns which of these entries a label has not read: all by others after its cursor.
    pub(super) fn unread(
        &self,
        label: &Label,
        chat: i64,
        entries: &[ChatEntryView],
    ) -> LabelUnread {
        let read_to = self.read_to(label, chat);
        let is_own = |entry: &ChatEntryView| {
            self.own.as_ref() == Some(&entry.from) && label.is(entry.label.as_deref())
        };
        let mut unread = LabelUnread::default();
        for entry in entries
            .iter()
            .filter(|entry| entry.seq > read_to && !is_own(entry))
        {
            unread.entries += 1;
            unread.is_mentioned |= label.is_mentioned_in(&entry.text);
        }
        unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: i64, from: &str, label: Option<&str>, text: &str) -> ChatEntryView {
        ChatEntryView {
            seq,
            from: from.to_owned(),
            label: label.map(str::to_owned),
            text: text.to_owned(),
            ..ChatEntryView::default()
        }
    }

    fn label(name: &str) -> Label {
        Label::parse(Some(name)).expect("a label")
    }

    #[test]
    fn labels_read_by_themselves() {
        let (backend, frontend) = (label("Backend"), label("frontend"));
        let entries = [
            entry(1, "client:a", Some("Lead"), "@Backend please start"),
            entry(2, "client:a", Some("Lead"), "and `@frontend` waits"),
        ];
        let mut cursors = LabelCursors::default();
        assert_eq!(
            cursors.unread(&backend, 7, &entries),
            LabelUnread {
                entries: 2,
                is_mentioned: true
            }
        );
        assert_eq!(
            cursors.unread(&frontend, 7, &entries),
            LabelUnread {
                entries: 2,
                is_mentioned: false
            },
            "code is no mention"
        );
        cursors.note_read(&backend, 7, 1, 2);
        assert_eq!(
            cursors.unread(&backend, 7, &entries),
            LabelUnread::default()
        );
        assert_eq!(
            cursors.unread(&frontend, 7, &entries).entries,
            2,
            "another label has not read them"
        );
        assert_eq!(
            cursors.unread(&backend, 8, &entries).entries,
            2,
            "nor this one in another chat"
        );
        assert_eq!(label(" BACKEND "), backend);
        assert_eq!((Label::parse(None), Label::parse(Some("  "))), (None, None));
    }

    #[test]
    fn entries_before_a_page_stay_unread() {
        let lead = label("lead");
        let mut cursors = LabelCursors::default();
        cursors.note_read(&lead, 1, 5, 9);
        assert_eq!(cursors.read_to(&lead, 1), 0);
        cursors.note_read(&lead, 1, 1, 4);
        cursors.note_read(&lead, 1, 3, 6);
        cursors.note_read(&lead, 1, 2, 3);
        assert_eq!(cursors.read_to(&lead, 1), 6, "it never moves back");
    }

    #[test]
    fn only_own_entries_of_the_label_are_read() {
        let lead = label("Lead");
        let mut cursors = LabelCursors::default();
        cursors.note_posted(&lead, 1, &entry(1, "client:a", Some("Lead"), "x"));
        let later = [
            entry(2, "client:a", Some("lead"), "own"),
            entry(3, "client:b", Some("Lead"), "@lead"),
            entry(4, "client:a", None, "y"),
        ];
        assert_eq!(
            cursors.unread(&lead, 1, &later),
            LabelUnread {
                entries: 2,
                is_mentioned: true
            },
            "another client's Lead is another agent"
        );
    }

    #[test]
    fn number_of_cursors_is_limited() {
        let mut cursors = LabelCursors::default();
        for n in 0..=CURSORS_MAX {
            cursors.note_read(&label(&format!("a{n}")), 1, 1, 1);
        }
        assert_eq!(
            (cursors.read.len(), cursors.order.len()),
            (CURSORS_MAX, CURSORS_MAX)
        );
        assert_eq!(
            cursors.read_to(&label("a0"), 1),
            0,
            "the oldest is forgotten"
        );
    }
}
