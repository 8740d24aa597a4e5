//! Draws the list of `adj top`.

use super::board::{Item, Section};
use super::look::{Look, put, put_text, row_of};
use super::model::Top;
use crate::cli::run_state;
use crate::cli::style::Style as Role;
use crate::present::asked_for;
use crate::text;
use crate::view::{RequestView, RunView};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The columns of the list.
struct Columns {
    name: u16,
    agent: u16,
    state: u16,
    age: u16,
}

impl Columns {
    fn for_width(width: u16) -> Self {
        match width {
            ..60 => Self {
                name: 12,
                agent: 0,
                state: 12,
                age: 0,
            },
            60..100 => Self {
                name: 16,
                agent: 8,
                state: 16,
                age: 4,
            },
            _ => Self {
                name: 22,
                agent: 10,
                state: 24,
                age: 4,
            },
        }
    }
}

/// A row of the list.
#[derive(Debug, Clone, Copy)]
enum Row {
    Head(Section),
    /// The place of an item.
    Item(usize),
    /// Stands for the items of an empty section.
    Empty(Section),
}

fn list_rows(top: &Top) -> Vec<Row> {
    let items = top.board.items();
    let mut rows = Vec::with_capacity(items.len() + 2 * Section::ALL.len());
    for section in Section::ALL {
        rows.push(Row::Head(section));
        let before = rows.len();
        rows.extend(
            items
                .iter()
                .enumerate()
                .filter(|(_, (of, _))| *of == section)
                .map(|(at, _)| Row::Item(at)),
        );
        if rows.len() == before {
            rows.push(Row::Empty(section));
        }
    }
    rows
}

/// Draws the part of the list around the selected item.
pub(super) fn put_list(buffer: &mut Buffer, place: Rect, top: &Top, look: Look) {
    let rows = list_rows(top);
    let selected = top.selected().map(|(at, _)| at);
    let focus = rows
        .iter()
        .position(|row| matches!(row, Row::Item(at) if Some(*at) == selected))
        .unwrap_or(0);
    let height = usize::from(place.height);
    let first = focus
        .saturating_sub(height / 2)
        .min(rows.len().saturating_sub(height));
    for (y, row) in (0..place.height).zip(&rows[first..]) {
        put_row(buffer, row_of(place, y), *row, top, look, selected);
    }
}

const fn empty_text(section: Section) -> &'static str {
    match section {
        Section::Needs => "nothing needs you",
        Section::Working => "no live runs",
        Section::Done => "no finished runs",
    }
}

fn put_row(
    buffer: &mut Buffer,
    place: Rect,
    row: Row,
    top: &Top,
    look: Look,
    selected: Option<usize>,
) {
    let at = match row {
        Row::Head(section) => {
            let (count, has_more) = top.board.count(section);
            let name = match section {
                Section::Needs => "NEEDS YOU",
                Section::Working => "WORKING",
                Section::Done => "DONE",
            };
            let line = format!("{name} {count}{}", if has_more { "+" } else { "" });
            let role = if section == Section::Needs && count > 0 {
                Role::Attention
            } else {
                Role::Dim
            };
            return put(buffer, place, &[(role, line)], look);
        }
        Row::Empty(section) => {
            return put(
                buffer,
                place,
                &[(Role::Dim, format!("  {}", empty_text(section)))],
                look,
            );
        }
        Row::Item(at) => at,
    };
    let Some(item) = top
        .board
        .items()
        .get(at)
        .and_then(|(_, id)| top.board.item(id))
    else {
        return;
    };
    let is_selected = selected == Some(at);
    let cells = cells_of(item, top, look);
    let columns = Columns::for_width(place.width);
    let mut x = place.x;
    let mut cell = |text: &str, columns: u16, style: Style| {
        if columns > 0 {
            put_text(
                buffer,
                x,
                place.y,
                text,
                columns.min(place.right().saturating_sub(x)),
                style,
            );
            x = (x + columns + 1).min(place.right());
        }
    };
    cell(
        if is_selected { "▸" } else { "" },
        1,
        look.style(Role::Strong),
    );
    cell(&cells.name, columns.name, look.style(Role::Strong));
    cell(&cells.agent, columns.agent, look.style(Role::Plain));
    cell(&cells.state, columns.state, look.style(cells.role));
    cell(&cells.age, columns.age, look.style(Role::Dim));
    cell(&cells.text, place.width, look.style(Role::Plain));
}

/// The sanitized cells of a row.
struct Cells {
    name: String,
    agent: String,
    state: String,
    role: Role,
    age: String,
    text: String,
}

fn cells_of(item: Item<'_>, top: &Top, look: Look) -> Cells {
    match item {
        Item::Request(request) => request_cells(request, top, look),
        Item::Run(run) => run_cells(run, top, look),
        Item::Mention(mention) => Cells {
            name: text::line(&mention.title),
            agent: String::new(),
            state: format!("@ {} unread", mention.unread),
            role: Role::Attention,
            age: look.age(&mention.message.at),
            text: text::line(&format!(
                "{}: {}",
                mention.message.name, mention.message.text
            )),
        },
    }
}

fn request_cells(request: &RequestView, top: &Top, look: Look) -> Cells {
    let wants = request.shown_kind().asks_shortly();
    let is_busy = top.is_busy(&request.message_id);
    Cells {
        name: text::line(&request.run_name),
        agent: top
            .board
            .run(&request.run_id)
            .map(|run| text::line(&run.identity.agent))
            .unwrap_or_default(),
        state: if is_busy {
            "… sending".to_owned()
        } else {
            format!("? {wants} {}", text::line(&request.number))
        },
        role: if is_busy { Role::Dim } else { Role::Attention },
        age: look.age(&request.times.asked_at),
        text: text::line(&asked_for(request).line()),
    }
}

fn run_cells(run: &RunView, top: &Top, look: Look) -> Cells {
    let label = run_state::label(run, look.now);
    let percent = run
        .activity
        .percent
        .filter(|_| !run.is_over())
        .map(|percent| format!("{percent}% "))
        .unwrap_or_default();
    // The details of the run below the list say why it needs the person.
    let what = run
        .activity
        .progress
        .as_deref()
        .filter(|_| !run.is_over())
        .unwrap_or(&run.identity.task);
    Cells {
        name: text::line(&run.identity.name),
        agent: text::line(&run.identity.agent),
        state: if top.is_busy(&run.identity.run_id) {
            "… sending".to_owned()
        } else {
            text::line(&label.text)
        },
        role: label.style,
        age: look.age(
            run.times
                .ended_at
                .as_deref()
                .or(run.times.started_at.as_deref())
                .unwrap_or(&run.times.created_at),
        ),
        text: text::line(&format!("{percent}{what}")),
    }
}
