//! How `adj top` draws lines: their styles and their places.

use crate::cli::age;
use crate::cli::out::Out;
use crate::cli::style::{Paint, Style as Role};
use crate::text;
use adjutant_core::units::duration;
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// How to draw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub has_color: bool,
    pub now: Timestamp,
}

impl Look {
    pub(super) fn style(self, role: Role) -> Style {
        let style = Style::new();
        match role {
            Role::Plain => style,
            Role::Strong => style.add_modifier(Modifier::BOLD),
            _ if !self.has_color => style,
            Role::Dim => style.add_modifier(Modifier::DIM),
            Role::Good => style.fg(Color::Green),
            Role::Bad => style.fg(Color::Red),
            Role::Attention => style.fg(Color::Yellow),
        }
    }

    pub(super) fn age(self, time: &str) -> String {
        age::seconds_since(time, self.now)
            .map(duration::age)
            .unwrap_or_default()
    }

    /// Returns a plain output of a width, for the text blocks that other commands print.
    pub(super) fn output(columns: u16) -> Out {
        Out {
            json: false,
            fields: crate::cli::field_list::JsonFields::default(),
            terminal: true,
            agent_mode: false,
            interactive: false,
            columns: Some(usize::from(columns)),
            columns_err: Some(usize::from(columns)),
            paint: Paint::OFF,
            paint_err: Paint::OFF,
        }
    }
}

pub(super) type Line = (Role, String);

pub(super) fn row_of(area: Rect, row: u16) -> Rect {
    Rect {
        y: area.y + row,
        height: 1.min(area.height.saturating_sub(row)),
        ..area
    }
}

pub(super) fn put(buffer: &mut Buffer, place: Rect, lines: &[Line], look: Look) {
    for (row, (role, line)) in lines.iter().enumerate().take(usize::from(place.height)) {
        put_text(
            buffer,
            place.x,
            place.y + u16::try_from(row).unwrap_or(0),
            line,
            place.width,
            look.style(*role),
        );
    }
}

/// Writes text that is cut to its columns on any terminal.
pub(super) fn put_text(
    buffer: &mut Buffer,
    x: u16,
    y: u16,
    line: &str,
    columns: u16,
    style: Style,
) {
    buffer.set_stringn(
        x,
        y,
        text::cut(line, usize::from(columns)),
        usize::from(columns),
        style,
    );
}
