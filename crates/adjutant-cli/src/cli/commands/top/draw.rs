//! Draws `adj top`. Text of others is sanitized before it is drawn, and cut to its place.

use super::board::{Item, Section};
use super::item::item_lines;
use super::list::put_list;
use super::log::LogPane;
use super::look::{Line, Look, put, row_of};
use super::model::{Dialog, Field, HubState, Page, Tone, Top};
use crate::cli::style::Style as Role;
use crate::text;
use adjutant_core::RequestKind;
use adjutant_core::units::money;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use tokio::time::Instant;

/// Rows from which the selected item is shown below the list.
const PREVIEW_FROM_ROWS: u16 = 14;
/// Rows of the list that a dialog leaves.
const LIST_ROWS_MIN: u16 = 3;
/// Columns before the fields of a form.
const LABEL_COLUMNS: usize = 12;
/// Narrower screens show short labels.
const WIDE_COLUMNS: u16 = 60;

/// The keys, as `?` lists them.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("j, k", "next, previous item (also arrows, page keys)"),
    ("Enter", "show the item in full"),
    (".", "first item that needs you"),
    ("r", "reply"),
    ("1 … 9", "choose an option; Enter sends it"),
    ("a", "approve"),
    ("Shift+A", "approve what has a high or an unknown risk"),
    ("d", "deny, with a reason"),
    ("x", "cancel the run"),
    ("p", "pause, resume or retry"),
    ("y", "mark a failed run as seen"),
    ("l", "log"),
    ("e", "change a delegation and approve it"),
    ("m", "merge or discard the run's changes"),
    ("z", "undo, within five seconds"),
    ("c, v, o, w", "name the command that shows it"),
    ("/", "filter; Esc removes it"),
    ("Esc", "leave a field, a question or a page"),
    ("?", "this help"),
    ("q, Ctrl-C", "end; runs continue"),
];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, top: &mut Top, look: Look) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let mut canvas = Canvas {
        columns: area.width,
        rows: area.height,
        body: area,
        buffer: frame.buffer_mut(),
        look,
    };
    canvas.put_first((Role::Strong, head(top, area.width)));
    if let Some(line) = connection_line(top) {
        canvas.put_first(line);
    }
    canvas.put_last((Role::Dim, footer(top, area.width)));
    canvas.put_notice(top);
    canvas.put_undo(top);
    let cursor = canvas.put_dialog(top);
    let first_line = canvas.put_page(top);
    if let Page::Details { scroll } | Page::Help { scroll } = &mut top.page {
        // Keys do not scroll beyond the end.
        *scroll = first_line;
    }
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

/// The screen while it is drawn.
struct Canvas<'a> {
    columns: u16,
    rows: u16,
    buffer: &'a mut Buffer,
    /// The rows that are still free.
    body: Rect,
    look: Look,
}

impl Canvas<'_> {
    fn put_first(&mut self, line: Line) {
        let row = take_first(&mut self.body);
        put(self.buffer, row, &[line], self.look);
    }

    fn put_last(&mut self, line: Line) {
        let row = take_last(&mut self.body);
        put(self.buffer, row, &[line], self.look);
    }

    /// Draws a text at the end, and leaves one row.
    fn put_text_last(&mut self, role: Role, text: &str) {
        let lines = self.wrapped(role, text);
        let place = take_last_rows(&mut self.body, lines.len(), 1);
        put(self.buffer, place, &lines, self.look);
    }

    fn wrapped(&self, role: Role, text: &str) -> Vec<Line> {
        text::wrap(text, usize::from(self.columns))
            .into_iter()
            .map(|line| (role, line))
            .collect()
    }

    fn put_notice(&mut self, top: &Top) {
        let Some((tone, notice)) = &top.notice else {
            return;
        };
        let role = match tone {
            Tone::Plain => Role::Plain,
            Tone::Good => Role::Good,
            Tone::Bad => Role::Bad,
        };
        self.put_text_last(role, notice);
    }

    /// Draws which action can still be undone.
    fn put_undo(&mut self, top: &Top) {
        let Some(newest) = top.later().last() else {
            return;
        };
        let others = match top.later().len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        // The key comes first, so that it is shown whole on any screen.
        let undo = format!("press z within 5 seconds to undo: {}{others}", newest.label);
        self.put_text_last(Role::Attention, &undo);
    }

    /// Draws the dialog, and returns where the cursor is in it.
    fn put_dialog(&mut self, top: &Top) -> Option<Position> {
        let DialogLines {
            mut lines,
            mut typed,
        } = dialog_lines(top.dialog.as_ref()?, self.columns);
        if let Some(request) = top.closed_request() {
            let closed = format!(
                "{} of {} was closed meanwhile; nothing is sent:",
                text::line(&request.number),
                text::line(&request.run_name)
            );
            let closed = self.wrapped(Role::Bad, &closed);
            typed = typed.map(|(row, column)| (row + closed.len(), column));
            lines.splice(0..0, closed);
        }
        let place = take_last_rows(&mut self.body, lines.len(), LIST_ROWS_MIN);
        // The line that the keyboard writes to stays on a low screen.
        let surplus = lines.len() - usize::from(place.height);
        let first = typed.map_or(surplus, |(row, _)| surplus.min(row));
        put(self.buffer, place, &lines[first..], self.look);
        let (row, column) = typed?;
        let y = usize::from(place.y) + (row - first);
        Some(Position::new(
            column.min(self.columns.saturating_sub(1)),
            u16::try_from(y)
                .unwrap_or(u16::MAX)
                .min(place.bottom().saturating_sub(1)),
        ))
    }

    /// Draws the page in the rows that are left, and returns its first line that is shown.
    fn put_page(&mut self, top: &Top) -> usize {
        match &top.page {
            Page::List => {
                self.put_selected(top);
                put_list(self.buffer, self.body, top, self.look);
                0
            }
            Page::Details { scroll } => top.selected().map_or(0, |(_, item)| {
                let lines = item_lines(item, self.look, self.columns);
                put_scrolled(self.buffer, self.body, &lines, *scroll, self.look)
            }),
            Page::Log(log) => {
                put_log(self.buffer, self.body, log, self.look);
                0
            }
            Page::Help { scroll } => {
                let lines = help_lines(self.columns);
                put_scrolled(self.buffer, self.body, &lines, *scroll, self.look)
            }
        }
    }

    /// Draws the beginning of the selected item below the list, if the screen is high enough.
    fn put_selected(&mut self, top: &Top) {
        let Some((_, item)) = top.selected().filter(|_| self.rows >= PREVIEW_FROM_ROWS) else {
            return;
        };
        let lines = item_lines(item, self.look, self.columns);
        let rows_max = usize::from(self.body.height) / 2;
        let rows = lines.len().min(rows_max.saturating_sub(1)) + 1;
        let place = take_last_rows(&mut self.body, rows, LIST_ROWS_MIN);
        put_preview(self.buffer, place, &lines, self.look);
    }
}

fn take_first(body: &mut Rect) -> Rect {
    let row = row_of(*body, 0);
    body.y += row.height;
    body.height -= row.height;
    row
}

fn take_last(body: &mut Rect) -> Rect {
    take_last_rows(body, 1, 0)
}

/// Takes rows from the end, and leaves at least `left` of them.
fn take_last_rows(body: &mut Rect, rows: usize, left: u16) -> Rect {
    let height = u16::try_from(rows)
        .unwrap_or(u16::MAX)
        .min(body.height.saturating_sub(left));
    body.height -= height;
    Rect {
        y: body.bottom(),
        height,
        ..*body
    }
}

/// Draws lines from a position, and returns the first line that is shown.
fn put_scrolled(
    buffer: &mut Buffer,
    place: Rect,
    lines: &[Line],
    scroll: usize,
    look: Look,
) -> usize {
    let rows = usize::from(place.height);
    let first = scroll.min(lines.len().saturating_sub(rows));
    let mut shown: Vec<Line> = lines[first..lines.len().min(first + rows)].to_vec();
    if first + rows < lines.len()
        && let Some(last) = shown.last_mut()
    {
        *last = (
            Role::Dim,
            format!(
                "… {} more (j, k, Space)",
                text::count((lines.len() - first - rows + 1) as u64, "line", "lines")
            ),
        );
    }
    put(buffer, place, &shown, look);
    first
}

fn head(top: &Top, columns: u16) -> String {
    let number = |section| {
        let (count, has_more) = top.board.count(section);
        format!("{count}{}", if has_more { "+" } else { "" })
    };
    let [needs, working, done] = Section::ALL.map(number);
    let cost = top.board.cost_usd();
    let cost = if cost > 0.0 {
        format!(" · {}", money::of(cost))
    } else {
        String::new()
    };
    let filter = if top.board.filter().is_empty() {
        String::new()
    } else {
        format!(" · filter: {}", text::line(top.board.filter()))
    };
    if columns >= WIDE_COLUMNS {
        format!("adj top   {needs} need you · {working} working · {done} done{cost}{filter}")
    } else {
        format!("adj top  ?{needs} ●{working} ✓{done}{cost}{filter}")
    }
}

fn connection_line(top: &Top) -> Option<Line> {
    match (&top.connection, &top.warning) {
        (HubState::Lost(None), _) => {
            Some((Role::Bad, "! the hub has exited; reconnecting".to_owned()))
        }
        (HubState::Lost(Some(error)), _) => Some((
            Role::Bad,
            format!("! the hub has exited; reconnecting: {}", text::line(error)),
        )),
        (HubState::Live, Some(warning)) => Some((
            Role::Attention,
            format!("! {} (adj doctor)", text::line(warning)),
        )),
        (HubState::Live, None) => None,
    }
}

/// Lists the keys that do something here, as many as fit.
fn footer(top: &Top, columns: u16) -> String {
    let keys: &[&str] = match (&top.dialog, &top.page) {
        (Some(_), _) if top.closed_request().is_some() => &["Esc discard the text"],
        (Some(Dialog::Merge { .. }), _) if !top.guard.has_seen_question(Instant::now()) => {
            &["n no"]
        }
        (Some(Dialog::Change(_)), _) => &["Enter approve", "Tab next field", "Esc discard"],
        (Some(Dialog::Merge { .. }), _) => &[
            "m merge",
            "s squash",
            "r rebase",
            "t stage",
            "b branch",
            "d discard",
            "n no",
        ],
        (
            Some(Dialog::Field {
                what: Field::Filter,
                ..
            }),
            _,
        ) => &["Enter keep", "Esc remove"],
        (Some(Dialog::Field { .. }), _) => &["Enter send", "Esc discard"],
        (None, Page::Log(_)) => &["Esc back", "j k scroll", "f end"],
        (None, Page::Help { .. }) => &["Esc back", "j k scroll"],
        (None, page) => {
            let is_list = matches!(page, Page::List);
            let first: &[&str] = if is_list {
                &["? keys", "q end"]
            } else {
                &["Esc back", "? keys"]
            };
            return join_fitting(&item_keys(top), first, columns);
        }
    };
    join_fitting(keys, &[], columns)
}

fn item_keys(top: &Top) -> Vec<&'static str> {
    match top.selected() {
        None => vec![". next", "/ filter"],
        Some((_, Item::Request(request)))
            if request.kind == RequestKind::Question && request.content.options.is_empty() =>
        {
            vec![
                "r reply",
                "l log",
                "Enter open",
                ". next",
                "x cancel",
                "p pause",
                "/ filter",
            ]
        }
        Some((_, Item::Request(request))) if request.kind == RequestKind::Question => {
            vec![
                "1-9 choose",
                "r reply",
                "l log",
                "Enter open",
                ". next",
                "x cancel",
                "p pause",
                "/ filter",
            ]
        }
        Some((_, Item::Request(request))) if request.delegated.delegation.is_some() => {
            vec![
                "a approve",
                "d deny",
                "e change",
                "l log",
                "Enter open",
                ". next",
                "x cancel",
                "/ filter",
            ]
        }
        Some((_, Item::Request(request))) if !request.content.options.is_empty() => {
            vec![
                "a approve",
                "1-9 choose",
                "d deny",
                "l log",
                "Enter open",
                ". next",
                "/ filter",
            ]
        }
        Some((_, Item::Request(_))) => vec![
            "a approve",
            "d deny",
            "l log",
            "Enter open",
            ". next",
            "x cancel",
            "/ filter",
        ],
        Some((_, Item::Mention(_))) => vec!["r reply", "Enter open", ". next", "/ filter"],
        Some((_, Item::Run(run)))
            if run.times.ended_at.is_some() && run.place.workspace.is_some() =>
        {
            vec!["l log", "m merge", "Enter open", ". next", "/ filter"]
        }
        Some((_, Item::Run(run))) if run.times.ended_at.is_some() => {
            vec!["l log", "Enter open", ". next", "/ filter"]
        }
        Some((_, Item::Run(_))) => vec![
            "l log",
            "Enter open",
            "x cancel",
            "p pause/resume",
            ". next",
            "/ filter",
        ],
    }
}

fn join_fitting(keys: &[&str], always: &[&str], columns: u16) -> String {
    let mut out = always.join("  ");
    let mut shown: Vec<&str> = Vec::new();
    for key in keys {
        let width: usize = shown
            .iter()
            .chain([key])
            .map(|key| text::width_max(key) + 2)
            .sum();
        if width + text::width_max(&out) > usize::from(columns) {
            break;
        }
        shown.push(key);
    }
    if !shown.is_empty() {
        let gap = if out.is_empty() { "" } else { "  " };
        out = format!("{}{gap}{out}", shown.join("  "));
    }
    out
}

/// The lines of a dialog.
struct DialogLines {
    lines: Vec<Line>,
    /// The line that the keyboard writes to, and the column of the cursor.
    typed: Option<(usize, u16)>,
}

fn dialog_lines(dialog: &Dialog, columns: u16) -> DialogLines {
    let wrapped = |text: &str| {
        text::wrap(text, usize::from(columns))
            .into_iter()
            .map(|line| (Role::Attention, line))
            .collect::<Vec<_>>()
    };
    match dialog {
        Dialog::Change(form) => {
            let request = &form.request;
            let mut lines = wrapped(&format!(
                "Approve {} of {} with these changes:",
                text::line(&request.number),
                text::line(&request.run_name)
            ));
            let mut typed = None;
            for (label, value, is_open) in form.lines() {
                let field = tail(
                    &value,
                    usize::from(columns).saturating_sub(LABEL_COLUMNS + 1),
                );
                if is_open {
                    typed = Some((lines.len(), cursor_column(LABEL_COLUMNS, &field)));
                }
                let role = if is_open { Role::Strong } else { Role::Plain };
                lines.push((
                    role,
                    format!(
                        "{} {label:<width$}{field}",
                        if is_open { '>' } else { ' ' },
                        width = LABEL_COLUMNS - 2
                    ),
                ));
            }
            DialogLines { lines, typed }
        }
        Dialog::Merge { name, into, .. } => {
            let ways = "m merge, s squash, r rebase, t stage, b new branch, d discard, n no";
            DialogLines {
                lines: wrapped(&format!(
                    "Merge {} into {}? {ways}",
                    text::line(name),
                    text::line(into)
                )),
                typed: None,
            }
        }
        Dialog::Field { what, typed } => {
            let label = match what {
                Field::Answer(request) => format!(
                    "Answer to {} of {}:",
                    text::line(&request.number),
                    text::line(&request.run_name)
                ),
                Field::Deny(request) => format!(
                    "Reason to deny {} of {}:",
                    text::line(&request.number),
                    text::line(&request.run_name)
                ),
                Field::Approve(request) => format!(
                    "Approve {} of {} with this note:",
                    text::line(&request.number),
                    text::line(&request.run_name)
                ),
                Field::Branch { name, .. } => format!("New branch for {}:", text::line(name)),
                Field::Message(mention) => format!("Message to {}:", text::line(&mention.title)),
                Field::Filter => "Filter:".to_owned(),
            };
            let mut lines = wrapped(&label);
            let field = tail(&text::line(typed), usize::from(columns).saturating_sub(3));
            let typed = Some((lines.len(), cursor_column(2, &field)));
            lines.push((Role::Plain, format!("> {field}")));
            DialogLines { lines, typed }
        }
    }
}

fn cursor_column(before: usize, field: &str) -> u16 {
    u16::try_from(before + text::width(field)).unwrap_or(u16::MAX)
}

/// Returns the end of a line that fits.
fn tail(line: &str, columns: usize) -> String {
    let mut used = 0;
    let start = line.char_indices().rev().find(|(_, c)| {
        used += text::width_max(c.encode_utf8(&mut [0; 4]));
        used > columns
    });
    start
        .map_or(line, |(at, c)| &line[at + c.len_utf8()..])
        .to_owned()
}

fn help_lines(columns: u16) -> Vec<Line> {
    let mut lines = vec![(Role::Strong, "Keys".to_owned())];
    for (key, what) in KEYS {
        let parts = text::wrap(what, usize::from(columns).saturating_sub(19));
        for (n, part) in parts.iter().enumerate() {
            lines.push((
                Role::Plain,
                format!("  {:<16} {part}", if n == 0 { key } else { "" }),
            ));
        }
    }
    lines
}

fn put_preview(buffer: &mut Buffer, place: Rect, lines: &[Line], look: Look) {
    if place.height == 0 {
        return;
    }
    put(
        buffer,
        row_of(place, 0),
        &[(Role::Dim, "─".repeat(usize::from(place.width)))],
        look,
    );
    let rows = usize::from(place.height) - 1;
    let mut shown: Vec<Line> = lines.iter().take(rows).cloned().collect();
    if lines.len() > rows
        && let Some(last) = shown.last_mut()
    {
        *last = (Role::Dim, "  … Enter shows all".to_owned());
    }
    put(
        buffer,
        Rect {
            y: place.y + 1,
            height: place.height - 1,
            ..place
        },
        &shown,
        look,
    );
}

fn put_log(buffer: &mut Buffer, place: Rect, log: &LogPane, look: Look) {
    let mut place = place;
    let rows_max = usize::from(place.height.saturating_sub(1));
    let (rows, is_end) = log.rows(usize::from(place.width), rows_max);
    let state = match (log.is_loaded, log.has_ended, is_end) {
        (false, ..) => "reading",
        (true, _, false) => "scrolled back",
        (true, true, true) => "complete",
        (true, false, true) => "following",
    };
    put(
        buffer,
        take_first(&mut place),
        &[(Role::Dim, format!("log of {} ({state})", log.name))],
        look,
    );
    let lines: Vec<Line> = rows.into_iter().map(|row| (Role::Plain, row)).collect();
    put(buffer, place, &lines, look);
}
