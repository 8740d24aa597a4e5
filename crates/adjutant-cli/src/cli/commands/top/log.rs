//! The end of a run's log, as it grows.

use crate::text;
use crate::view::LogPage;
use crossterm::event::KeyCode;
use std::collections::VecDeque;

/// Lines that are kept.
const LINES_MAX: usize = 5_000;
/// Longest kept line, in characters.
const LINE_CHARS_MAX: usize = 4_000;
/// Lines that a page key scrolls.
const PAGE_LINES: usize = 10;

/// The log of one run.
#[derive(Debug)]
pub(crate) struct LogPane {
    pub run_id: String,
    pub name: String,
    pub is_loaded: bool,
    pub has_ended: bool,
    /// Sanitized lines.
    lines: VecDeque<String>,
    is_line_open: bool,
    /// Rows between the end of the log and the bottom of the screen.
    back: usize,
}

impl LogPane {
    pub(super) fn new(run_id: &str, name: &str) -> Self {
        Self {
            run_id: run_id.to_owned(),
            name: text::line(name),
            is_loaded: false,
            has_ended: false,
            lines: VecDeque::new(),
            is_line_open: false,
            back: 0,
        }
    }

    /// Adds a page.
    pub(super) fn extend(&mut self, page: &LogPage) {
        self.is_loaded = true;
        self.has_ended = page.ended;
        for piece in text::block(&page.text).split_inclusive('\n') {
            let (line, is_open) = piece
                .strip_suffix('\n')
                .map_or((piece, true), |line| (line, false));
            match self.lines.back_mut().filter(|_| self.is_line_open) {
                Some(last) => last.push_str(line),
                None => self.lines.push_back(line.to_owned()),
            }
            self.is_line_open = is_open;
            if let Some(last) = self.lines.back_mut()
                && let Some((end, _)) = last.char_indices().nth(LINE_CHARS_MAX)
            {
                last.truncate(end);
            }
        }
        let surplus = self.lines.len().saturating_sub(LINES_MAX);
        self.lines.drain(..surplus);
    }

    /// Applies a key; `true` if it closes the log.
    pub(super) fn press(&mut self, code: KeyCode) -> bool {
        self.back = match code {
            KeyCode::Char('k') | KeyCode::Up => self.back + 1,
            KeyCode::Char('j') | KeyCode::Down => self.back.saturating_sub(1),
            KeyCode::PageUp => self.back + PAGE_LINES,
            KeyCode::PageDown | KeyCode::Char(' ') => self.back.saturating_sub(PAGE_LINES),
            KeyCode::End | KeyCode::Char('f') => 0,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | 'l') => return true,
            _ => self.back,
        };
        self.back = self.back.min(self.lines.len());
        false
    }

    /// Returns the rows that fill the screen, wrapped, and whether the end is shown.
    pub(super) fn rows(&self, columns: usize, rows_max: usize) -> (Vec<String>, bool) {
        let mut rows: VecDeque<String> = VecDeque::new();
        for line in self.lines.iter().rev() {
            for part in text::wrap(line, columns).into_iter().rev() {
                rows.push_front(part);
            }
            if rows.len() >= rows_max + self.back {
                break;
            }
        }
        let hidden = self.back.min(rows.len().saturating_sub(rows_max));
        rows.truncate(rows.len() - hidden);
        let surplus = rows.len().saturating_sub(rows_max);
        rows.drain(..surplus);
        (rows.into(), hidden == 0)
    }
}
