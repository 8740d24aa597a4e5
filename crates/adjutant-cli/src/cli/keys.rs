//! Keys of a terminal in raw mode, and a line of text that is typed with them.

use crossterm::event::{self, Event, KeyCode};
use std::io;
use tokio::sync::mpsc;

/// Maximum number of keys that are buffered.
const KEYS_MAX: usize = 64;

/// Reads keys on a separate thread: a read cannot be cancelled, and the process exits without
/// waiting for it.
pub(crate) fn read_keys() -> mpsc::Receiver<io::Result<Event>> {
    let (sender, keys) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        loop {
            let key = event::read();
            let is_over = key.is_err();
            if sender.blocking_send(key).is_err() || is_over {
                return;
            }
        }
    });
    keys
}

/// Applies a key to typed text of limited length.
pub(super) fn edit(typed: &mut String, code: KeyCode, has_control: bool, chars_max: usize) {
    match code {
        KeyCode::Char('u') if has_control => typed.clear(),
        KeyCode::Char('w') if has_control => {
            let kept = typed
                .trim_end()
                .char_indices()
                .rfind(|(_, c)| c.is_whitespace())
                .map_or(0, |(at, c)| at + c.len_utf8());
            typed.truncate(kept);
        }
        KeyCode::Char(c) if !has_control && typed.chars().count() < chars_max => typed.push(c),
        KeyCode::Backspace => {
            typed.pop();
        }
        _ => {}
    }
}

/// Appends pasted text, as far as there is room.
pub(super) fn paste(typed: &mut String, pasted: &str, chars_max: usize) {
    let room = chars_max.saturating_sub(typed.chars().count());
    typed.extend(
        pasted
            .replace("\r\n", "\n")
            .replace('\r', "\n")
            .chars()
            .take(room),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_is_edited_by_characters_and_words() {
        let mut typed = String::new();
        "ab c\u{3000}dé"
            .chars()
            .for_each(|c| edit(&mut typed, KeyCode::Char(c), false, 7));
        assert_eq!(typed, "ab c\u{3000}dé");
        edit(&mut typed, KeyCode::Char('x'), false, 7);
        paste(&mut typed, "more", 7);
        assert_eq!(typed, "ab c\u{3000}dé", "there is no room");
        edit(&mut typed, KeyCode::Backspace, false, 7);
        paste(&mut typed, "\r\nz", 8);
        assert_eq!(typed, "ab c\u{3000}d\nz");
        for rest in ["ab c\u{3000}d\n", "ab c\u{3000}", "ab ", ""] {
            edit(&mut typed, KeyCode::Char('w'), true, 7);
            assert_eq!(typed, rest);
        }
        paste(&mut typed, "x", 7);
        edit(&mut typed, KeyCode::Char('u'), true, 7);
        assert_eq!(typed, "");
    }
}
