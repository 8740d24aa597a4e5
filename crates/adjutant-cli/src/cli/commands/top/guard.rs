//! Which keys of `adj top` may act. Typing never acts, also where the item that it was meant for
//! has gone. Pure: it is given the time.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind};
use std::time::Duration;
use tokio::time::Instant;

/// The keys that act on the selected item, or open a field in which Enter does. The others move,
/// scroll, show or undo.
const ACTING: &str = "aAdemprxy123456789";
/// After the selection has moved by itself, or a letter that is no key, keys that act are refused
/// until a pause of this length.
const PAUSE: Duration = Duration::from_secs(1);
/// A question takes no key before it was visible for this long.
const SEEN: Duration = Duration::from_millis(500);
/// The same key within this time is held down. A terminal does not report it.
const HELD: Duration = Duration::from_millis(700);

/// Why a key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRefusal {
    /// The selection has moved by itself.
    Moved,
    /// The key belongs to a text.
    Typing,
    Held,
    /// The question has just been opened.
    Unseen,
}

/// What happened before a key.
#[derive(Debug, Default)]
pub(super) struct KeyGuard {
    moved_at: Option<Instant>,
    typed_at: Option<Instant>,
    opened_at: Option<Instant>,
    last: Option<(KeyCode, Instant)>,
    /// Whether the key that is applied is held down.
    is_held: bool,
}

impl KeyGuard {
    /// Records a key before it is applied.
    pub(super) fn key_pressed(&mut self, key: KeyEvent, now: Instant) {
        let last = self.last.replace((key.code, now));
        self.is_held = key.kind == KeyEventKind::Repeat
            || last.is_some_and(|(code, at)| code == key.code && now.duration_since(at) < HELD);
    }

    /// Records that the selected item has gone, so that its successor is selected.
    pub(super) fn item_has_gone(&mut self, now: Instant) {
        self.moved_at = Some(now);
    }

    /// Records that the person has selected an item.
    pub(super) fn person_selected(&mut self) {
        self.moved_at = None;
    }

    /// Records a letter that is no key, so it belongs to a text.
    pub(super) fn text_was_typed(&mut self, now: Instant) {
        self.typed_at = Some(now);
    }

    /// Records that a question was opened.
    pub(super) fn question_opened(&mut self, now: Instant) {
        self.opened_at = Some(now);
    }

    /// Returns whether the open question has been seen.
    pub(super) fn has_seen_question(&self, now: Instant) -> bool {
        !is_within(self.opened_at, SEEN, now)
    }

    /// Returns why a key is refused on the selected item. A refused key prolongs the wait.
    pub(super) fn refuse(&mut self, key: char, now: Instant) -> Option<KeyRefusal> {
        if !ACTING.contains(key) {
            return None;
        }
        if is_within(self.moved_at, PAUSE, now) {
            self.moved_at = Some(now);
            return Some(KeyRefusal::Moved);
        }
        if is_within(self.typed_at, PAUSE, now) {
            self.typed_at = Some(now);
            return Some(KeyRefusal::Typing);
        }
        self.is_held.then_some(KeyRefusal::Held)
    }

    /// Returns why a key is refused as the reply to a question. Each refused key starts the wait
    /// again.
    pub(super) fn refuse_reply(&mut self, now: Instant) -> Option<KeyRefusal> {
        if !self.has_seen_question(now) {
            self.opened_at = Some(now);
            return Some(KeyRefusal::Unseen);
        }
        self.is_held.then_some(KeyRefusal::Held)
    }
}

fn is_within(at: Option<Instant>, time: Duration, now: Instant) -> bool {
    at.is_some_and(|at| now.duration_since(at) < time)
}
