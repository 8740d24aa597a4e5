//! Draws `adj top`. Text of others is sanitized before it is drawn, and cut to its place.

use super::board::{Item, Section};
use super::log::LogPane;
use super::model::{Connection, Dialog, Field, Page, Tone, Top};
use crate::cli::out::Out;
use crate::cli::style::{Paint, Style as Role};
use crate::cli::{age, details, run_state};
use crate::present::asked_for;
use crate::text;
use crate::view::{InterruptedUndoView, MentionView, RequestView, RunView};
use adjutant_core::RequestKind;
use jiff::Timestamp;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};

/// Rows from which the selected item is shown below the list.
const PREVIEW_FROM_ROWS: u16 = 14;
/// Rows of the list that a dialog leaves.
const LIST_ROWS_MIN: u16 = 3;
/// Narrower screens show short labels.
const WIDE_COLUMNS: u16 = 60;

/// The keys, as `?` lists them.
pub const KEYS: &[(&str, &str)] = &[
    ("j, k", "next, previous item (also arrows, page keys)"),
    ("Enter", "show the item in full"),
    (".", "first item that needs you"),
    ("r", "reply"),
    ("1 … 9", "choose an option; Enter sends it"),
    ("a", "approve"),
    ("d", "deny, with a reason"),
    ("x", "cancel the run"),
    ("p", "pause, resume or retry"),
    ("y", "mark a failed run as seen"),
    ("l", "log"),
    ("e", "change a delegation's task and approve it"),
    ("m", "merge or discard the run's changes"),
    ("z", "undo, within five seconds"),
    ("c, v, o, w", "name the command that shows it"),
    ("/", "filter; Esc removes it"),
    ("Esc", "leave a field, a question or a page"),
    ("?", "this help"),
    ("q, Ctrl-C", "end; runs continue"),
];

/// How to draw.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub has_color: bool,
    pub now: Timestamp,
}

impl Look {
    fn style(self, role: Role) -> Style {
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

    fn age(self, time: &str) -> String {
        age::seconds_since(time, self.now).map(age::short).unwrap_or_default()
    }

    /// Returns a plain output of a width, for the text blocks that other commands print.
    fn output(columns: u16) -> Out {
        Out {
            json: false,
            fields: crate::cli::field_list::JsonFields::default(),
            terminal: true,
            agent_mode: false,
            interactive: false,
            columns: Some(usize::from(columns)),
            paint: Paint::OFF,
            paint_err: Paint::OFF,
        }
    }
}

type Line = (Role, String);

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, top: &mut Top, look: Look) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let mut cursor = None;
    let buffer = frame.buffer_mut();
    let mut body = area;
    put(buffer, row_of(area, 0), &[(Role::Strong, head(top, area.width))], look);
    body.y += 1;
    body.height = body.height.saturating_sub(1);
    if let Some((role, text)) = connection_line(top) {
        put(buffer, take_first(&mut body), &[(role, text)], look);
    }
    put(buffer, take_last(&mut body), &[(Role::Dim, footer(top, area.width))], look);
    if let Some((tone, notice)) = &top.notice {
        let role = match tone {
            Tone::Plain => Role::Plain,
            Tone::Good => Role::Good,
            Tone::Bad => Role::Bad,
        };
        let lines: Vec<Line> = text::wrap(notice, usize::from(area.width)).into_iter().map(|line| (role, line)).collect();
        put(buffer, take_last_rows(&mut body, lines.len(), 1), &lines, look);
    }
    if let Some(newest) = top.later().last() {
        let others = match top.later().len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        let lines: Vec<Line> = text::wrap(&format!("{} within 5 seconds; press z to undo{others}", newest.label), usize::from(area.width))
            .into_iter()
            .map(|line| (Role::Attention, line))
            .collect();
        put(buffer, take_last_rows(&mut body, lines.len(), 1), &lines, look);
    }
    if let Some(dialog) = &top.dialog {
        let (lines, at) = dialog_lines(dialog, area.width);
        let place = take_last_rows(&mut body, lines.len(), LIST_ROWS_MIN);
        let surplus = lines.len() - usize::from(place.height);
        put(buffer, place, &lines[surplus..], look);
        cursor = at.map(|column| Position::new(column.min(area.width.saturating_sub(1)), place.bottom().saturating_sub(1)));
    }
    let mut first_line = 0;
    match &top.page {
        Page::List => {
            if let (true, Some((_, item))) = (area.height >= PREVIEW_FROM_ROWS, top.selected()) {
                let lines = item_lines(item, look, area.width);
                let rows_max = usize::from(body.height) / 2;
                let place = take_last_rows(&mut body, lines.len().min(rows_max.saturating_sub(1)) + 1, LIST_ROWS_MIN);
                put_preview(buffer, place, &lines, look);
            }
            put_list(buffer, body, top, look);
        }
        Page::Details { scroll } => {
            if let Some((_, item)) = top.selected() {
                first_line = put_scrolled(buffer, body, &item_lines(item, look, area.width), *scroll, look);
            }
        }
        Page::Log(log) => put_log(buffer, body, log, look),
        Page::Help { scroll } => first_line = put_scrolled(buffer, body, &help_lines(area.width), *scroll, look),
    }
    if let Page::Details { scroll } | Page::Help { scroll } = &mut top.page {
        // Keys do not scroll beyond the end.
        *scroll = first_line;
    }
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

fn row_of(area: Rect, row: u16) -> Rect {
    Rect { y: area.y + row, height: 1.min(area.height.saturating_sub(row)), ..area }
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
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(body.height.saturating_sub(left));
    body.height -= height;
    Rect { y: body.bottom(), height, ..*body }
}

fn put(buffer: &mut Buffer, place: Rect, lines: &[Line], look: Look) {
    for (row, (role, line)) in lines.iter().enumerate().take(usize::from(place.height)) {
        put_text(buffer, place.x, place.y + u16::try_from(row).unwrap_or(0), line, place.width, look.style(*role));
    }
}

/// Writes text that is cut to its columns on any terminal.
fn put_text(buffer: &mut Buffer, x: u16, y: u16, line: &str, columns: u16, style: Style) {
    buffer.set_stringn(x, y, text::cut(line, usize::from(columns)), usize::from(columns), style);
}

/// Draws lines from a position, and returns the first line that is shown.
fn put_scrolled(buffer: &mut Buffer, place: Rect, lines: &[Line], scroll: usize, look: Look) -> usize {
    let rows = usize::from(place.height);
    let first = scroll.min(lines.len().saturating_sub(rows));
    let mut shown: Vec<Line> = lines[first..lines.len().min(first + rows)].to_vec();
    if first + rows < lines.len()
        && let Some(last) = shown.last_mut()
    {
        *last = (Role::Dim, format!("… {} more (j, k, Space)", text::count((lines.len() - first - rows + 1) as u64, "line", "lines")));
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
    let cost = if cost > 0.0 { format!(" · ${cost:.2}") } else { String::new() };
    let filter = if top.board.filter().is_empty() { String::new() } else { format!(" · filter: {}", text::line(top.board.filter())) };
    if columns >= WIDE_COLUMNS {
        format!("adj top   {needs} need you · {working} working · {done} done{cost}{filter}")
    } else {
        format!("adj top  ?{needs} ●{working} ✓{done}{cost}{filter}")
    }
}

fn connection_line(top: &Top) -> Option<Line> {
    match (&top.connection, &top.warning) {
        (Connection::Lost(None), _) => Some((Role::Bad, "! the hub is gone; connecting again".to_owned())),
        (Connection::Lost(Some(error)), _) => Some((Role::Bad, format!("! the hub is gone; connecting again: {}", text::line(error)))),
        (Connection::Live, Some(warning)) => Some((Role::Attention, format!("! {} (adj doctor)", text::line(warning)))),
        (Connection::Live, None) => None,
    }
}

/// Lists the keys that do something here, as many as fit.
fn footer(top: &Top, columns: u16) -> String {
    let keys: &[&str] = match (&top.dialog, &top.page) {
        (Some(Dialog::Confirm { .. }), _) => &["y yes", "n no"],
        (Some(Dialog::Merge { .. }), _) => &["m merge", "s squash", "r rebase", "t stage", "b branch", "d discard", "n no"],
        (Some(Dialog::Field { what: Field::Filter, .. }), _) => &["Enter keep", "Esc remove"],
        (Some(Dialog::Field { .. }), _) => &["Enter send", "Esc discard"],
        (None, Page::Log(_)) => &["Esc back", "j k scroll", "f end"],
        (None, Page::Help { .. }) => &["Esc back", "j k scroll"],
        (None, page) => {
            let is_list = matches!(page, Page::List);
            let first: &[&str] = if is_list { &["? keys", "q end"] } else { &["Esc back", "? keys"] };
            return join_fitting(&item_keys(top), first, columns);
        }
    };
    join_fitting(keys, &[], columns)
}

fn item_keys(top: &Top) -> Vec<&'static str> {
    match top.selected() {
        None => vec![". next", "/ filter"],
        Some((_, Item::Request(request))) if request.kind == RequestKind::Question && request.options.is_empty() => {
            vec!["r reply", "l log", "⏎ open", ". next", "x cancel", "p pause", "/ filter"]
        }
        Some((_, Item::Request(request))) if request.kind == RequestKind::Question => {
            vec!["1-9 choose", "r reply", "l log", "⏎ open", ". next", "x cancel", "p pause", "/ filter"]
        }
        Some((_, Item::Request(request))) if request.delegation.is_some() => {
            vec!["a approve", "d deny", "e change", "l log", "⏎ open", ". next", "x cancel", "/ filter"]
        }
        Some((_, Item::Request(_))) => vec!["a approve", "d deny", "l log", "⏎ open", ". next", "x cancel", "/ filter"],
        Some((_, Item::Mention(_))) => vec!["r reply", "⏎ open", ". next", "/ filter"],
        Some((_, Item::Run(run))) if run.ended_at.is_some() && run.workspace.is_some() => vec!["l log", "m merge", "⏎ open", ". next", "/ filter"],
        Some((_, Item::Run(run))) if run.ended_at.is_some() => vec!["l log", "⏎ open", ". next", "/ filter"],
        Some((_, Item::Run(_))) => vec!["l log", "⏎ open", "x cancel", "p pause/resume", ". next", "/ filter"],
    }
}

fn join_fitting(keys: &[&str], always: &[&str], columns: u16) -> String {
    let mut out = always.join("  ");
    let mut shown: Vec<&str> = Vec::new();
    for key in keys {
        let width: usize = shown.iter().chain([key]).map(|key| text::width_max(key) + 2).sum();
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

/// Returns a dialog's lines, and the column of the cursor in its last line.
fn dialog_lines(dialog: &Dialog, columns: u16) -> (Vec<Line>, Option<u16>) {
    let wrapped = |text: &str| text::wrap(text, usize::from(columns)).into_iter().map(|line| (Role::Attention, line)).collect::<Vec<_>>();
    match dialog {
        Dialog::Confirm { question, .. } => (wrapped(&format!("{question} y/n")), None),
        Dialog::Merge { name, into, .. } => {
            let ways = "m merge, s squash, r rebase, t stage, b new branch, d discard, n no";
            (wrapped(&format!("Merge {} into {}? {ways}", text::line(name), text::line(into))), None)
        }
        Dialog::Field { what, typed } => {
            let label = match what {
                Field::Answer(request) => format!("Answer to {} of {}:", text::line(&request.number), text::line(&request.run_name)),
                Field::Deny(request) => format!("Reason to deny {} of {}:", text::line(&request.number), text::line(&request.run_name)),
                Field::Change(request) => {
                    format!("Task of {} of {}, approved with Enter:", text::line(&request.number), text::line(&request.run_name))
                }
                Field::Branch { name, .. } => format!("New branch for {}:", text::line(name)),
                Field::Message(mention) => format!("Message to {}:", text::line(&mention.title)),
                Field::Filter => "Filter:".to_owned(),
            };
            let mut lines = wrapped(&label);
            let field = tail(&text::line(typed), usize::from(columns).saturating_sub(3));
            let column = u16::try_from(text::width(&field) + 2).unwrap_or(u16::MAX);
            lines.push((Role::Plain, format!("> {field}")));
            (lines, Some(column))
        }
    }
}

/// Returns the end of a line that fits.
fn tail(line: &str, columns: usize) -> String {
    let mut used = 0;
    let start = line.char_indices().rev().find(|(_, c)| {
        used += text::width_max(c.encode_utf8(&mut [0; 4]));
        used > columns
    });
    start.map_or(line, |(at, c)| &line[at + c.len_utf8()..]).to_owned()
}

fn help_lines(columns: u16) -> Vec<Line> {
    let mut lines = vec![(Role::Strong, "Keys".to_owned())];
    for (key, what) in KEYS {
        let parts = text::wrap(what, usize::from(columns).saturating_sub(19));
        for (n, part) in parts.iter().enumerate() {
            lines.push((Role::Plain, format!("  {:<16} {part}", if n == 0 { key } else { "" })));
        }
    }
    lines
}

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
            ..60 => Self { name: 12, agent: 0, state: 12, age: 0 },
            60..100 => Self { name: 16, agent: 8, state: 16, age: 4 },
            _ => Self { name: 22, agent: 10, state: 24, age: 4 },
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
        rows.extend(items.iter().enumerate().filter(|(_, (of, _))| *of == section).map(|(at, _)| Row::Item(at)));
        if rows.len() == before {
            rows.push(Row::Empty(section));
        }
    }
    rows
}

/// Draws the part of the list around the selected item.
fn put_list(buffer: &mut Buffer, place: Rect, top: &Top, look: Look) {
    let rows = list_rows(top);
    let selected = top.selected().map(|(at, _)| at);
    let focus = rows.iter().position(|row| matches!(row, Row::Item(at) if Some(*at) == selected)).unwrap_or(0);
    let height = usize::from(place.height);
    let first = focus.saturating_sub(height / 2).min(rows.len().saturating_sub(height));
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

fn put_row(buffer: &mut Buffer, place: Rect, row: Row, top: &Top, look: Look, selected: Option<usize>) {
    let at = match row {
        Row::Head(section) => {
            let (count, has_more) = top.board.count(section);
            let name = match section {
                Section::Needs => "NEEDS YOU",
                Section::Working => "WORKING",
                Section::Done => "DONE",
            };
            let line = format!("{name} {count}{}", if has_more { "+" } else { "" });
            let role = if section == Section::Needs && count > 0 { Role::Attention } else { Role::Dim };
            return put(buffer, place, &[(role, line)], look);
        }
        Row::Empty(section) => return put(buffer, place, &[(Role::Dim, format!("  {}", empty_text(section)))], look),
        Row::Item(at) => at,
    };
    let Some(item) = top.board.items().get(at).and_then(|(_, id)| top.board.item(id)) else { return };
    let is_selected = selected == Some(at);
    let cells = cells_of(item, top, look);
    let columns = Columns::for_width(place.width);
    let mut x = place.x;
    let mut cell = |text: &str, columns: u16, style: Style| {
        if columns > 0 {
            put_text(buffer, x, place.y, text, columns.min(place.right().saturating_sub(x)), style);
            x = (x + columns + 1).min(place.right());
        }
    };
    cell(if is_selected { "▸" } else { "" }, 1, look.style(Role::Strong));
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
            text: text::line(&format!("{}: {}", mention.message.name, mention.message.text)),
        },
    }
}

fn request_cells(request: &RequestView, top: &Top, look: Look) -> Cells {
    let wants = match request.kind.known() {
        Some(RequestKind::Approval) => "approve",
        Some(RequestKind::Delegation) => "delegate",
        _ => "asks",
    };
    let is_busy = top.is_busy(&request.message_id);
    Cells {
        name: text::line(&request.run_name),
        agent: top.board.run(&request.run_id).map(|run| text::line(&run.agent)).unwrap_or_default(),
        state: if is_busy { "… sending".to_owned() } else { format!("? {wants} {}", text::line(&request.number)) },
        role: if is_busy { Role::Dim } else { Role::Attention },
        age: look.age(&request.asked_at),
        text: text::line(&asked_for(request).line()),
    }
}

fn run_cells(run: &RunView, top: &Top, look: Look) -> Cells {
    let label = run_state::label(run, look.now);
    let percent = run.percent.filter(|_| !run_state::is_over(run)).map(|percent| format!("{percent}% ")).unwrap_or_default();
    let what = match run_state::need_text(run) {
        Some(need) => need,
        None => run.progress.clone().filter(|_| !run_state::is_over(run)).unwrap_or_else(|| run.task.clone()),
    };
    Cells {
        name: text::line(&run.name),
        agent: text::line(&run.agent),
        state: if top.is_busy(&run.run_id) { "… sending".to_owned() } else { text::line(&label.text) },
        role: label.style,
        age: look.age(run.ended_at.as_deref().or(run.started_at.as_deref()).unwrap_or(&run.created_at)),
        text: text::line(&format!("{percent}{what}")),
    }
}

fn put_preview(buffer: &mut Buffer, place: Rect, lines: &[Line], look: Look) {
    if place.height == 0 {
        return;
    }
    put(buffer, row_of(place, 0), &[(Role::Dim, "─".repeat(usize::from(place.width)))], look);
    let rows = usize::from(place.height) - 1;
    let mut shown: Vec<Line> = lines.iter().take(rows).cloned().collect();
    if lines.len() > rows
        && let Some(last) = shown.last_mut()
    {
        *last = (Role::Dim, "  … Enter shows all".to_owned());
    }
    put(buffer, Rect { y: place.y + 1, height: place.height - 1, ..place }, &shown, look);
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
    put(buffer, take_first(&mut place), &[(Role::Dim, format!("log of {} ({state})", log.name))], look);
    let lines: Vec<Line> = rows.into_iter().map(|row| (Role::Plain, row)).collect();
    put(buffer, place, &lines, look);
}

/// Describes an item in full, wrapped.
fn item_lines(item: Item<'_>, look: Look, columns: u16) -> Vec<Line> {
    let output = Look::output(columns);
    let block = match item {
        Item::Request(request) => details::request_text(request, look.now, &output).unwrap_or_else(|_| text::line(&request.number)),
        Item::Run(run) => run_text(run, look, &output),
        Item::Mention(mention) => mention_text(mention, look, &output),
    };
    let mut lines: Vec<Line> = Vec::new();
    for line in block.lines() {
        let role = if lines.is_empty() { Role::Attention } else { Role::Plain };
        lines.extend(text::wrap(line, usize::from(columns)).into_iter().map(|line| (role, line)));
    }
    if let Some(first) = lines.first_mut().filter(|_| !matches!(item, Item::Request(_))) {
        first.0 = Role::Strong;
    }
    lines
}

fn run_text(run: &RunView, look: Look, output: &Out) -> String {
    let mut out = text::line(&format!("{} ({}): {}", run.name, run.agent, run_state::label(run, look.now).text)) + "\n";
    let mut part = |label: &str, text: &str| {
        if !text.trim().is_empty() {
            out.push_str(&output.indent(details::INDENT, &if label.is_empty() { text.to_owned() } else { format!("{label}: {text}") }));
        }
    };
    if let Some(attention) = &run.attention {
        part("", &attention.details);
        part("needs", attention.needs.as_deref().unwrap_or_default());
    }
    part("undo", &run.undo_interrupted.as_ref().map(InterruptedUndoView::line).unwrap_or_default());
    part("task", &run.task);
    let percent = run.percent.filter(|_| !run_state::is_over(run)).map(|percent| format!("{percent} % ")).unwrap_or_default();
    part("progress", &format!("{percent}{}", run.progress.as_deref().filter(|_| !run_state::is_over(run)).unwrap_or_default()));
    part("queue", run.queue.as_ref().map(|queue| queue.why.as_str()).unwrap_or_default());
    if run.attention.is_none() {
        part("reason", run.reason.as_deref().unwrap_or_default());
    }
    part("result", run.summary.as_deref().or(run.result.as_deref()).unwrap_or_default());
    part("directory", &run.cwd);
    part("changed", &run.changed_files.as_ref().map(|files| text::count(files.len() as u64, "file", "files")).unwrap_or_default());
    part("cost", &run.usage.as_ref().and_then(|usage| usage.cost_usd).map(|cost| format!("${cost:.2}")).unwrap_or_default());
    out
}

fn mention_text(mention: &MentionView, look: Look, output: &Out) -> String {
    let message = &mention.message;
    let head = format!("{} in chat {} ({}), {} ago", message.name, mention.chat_id, mention.title, look.age(&message.at));
    text::line(&head) + "\n" + &output.indent(details::INDENT, &message.text)
}
