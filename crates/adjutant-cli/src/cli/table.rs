//! Tables for terminals: columns as wide as their cells; the last one takes the remaining width.

use super::style::{Paint, Style};
use crate::text;

/// One cell: sanitized text and its style.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

/// Returns a plain cell; the text is sanitized.
#[must_use]
pub(super) fn plain(text: &str) -> Cell {
    painted(text, Style::Plain)
}

/// Returns a coloured cell; the text is sanitized.
#[must_use]
pub(super) fn painted(text: &str, style: Style) -> Cell {
    Cell {
        text: text::line(text),
        style,
    }
}

/// A column: its heading, and whether a narrow terminal drops it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    head: &'static str,
    /// Columns with the highest rank are dropped first. `None`: never dropped, but cut if
    /// necessary.
    optional: Option<u8>,
}

impl Column {
    /// Returns a column that is always shown.
    #[must_use]
    pub(super) const fn always(head: &'static str) -> Self {
        Self {
            head,
            optional: None,
        }
    }

    /// Returns a column that a narrow terminal drops, highest rank first.
    #[must_use]
    pub(super) const fn optional(head: &'static str, rank: u8) -> Self {
        Self {
            head,
            optional: Some(rank),
        }
    }
}

/// Columns between two cells.
const GAP: usize = 2;
/// Other columns are dropped to keep the last one at least this wide.
const LAST_COLUMNS_MIN: usize = 16;
/// Narrowest column, unless nothing else can be cut.
const CUT_COLUMNS_MIN: usize = 8;

/// Renders rows below a header. Columns for which the terminal has no room follow in further
/// tables, each of which begins with the first column again.
#[must_use]
pub(crate) fn render_all(
    columns: &[Column],
    rows: &[Vec<Cell>],
    columns_max: Option<usize>,
    paint: Paint,
) -> String {
    let Some(max) = columns_max else {
        return render(columns, rows, None, paint);
    };
    let widths = natural_widths(columns, rows, text::width_max);
    let mut tables: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for (column, width) in widths.iter().enumerate().skip(1) {
        match tables.last_mut() {
            Some(table) if used + GAP + width <= max => {
                table.push(column);
                used += GAP + width;
            }
            _ => {
                tables.push(vec![0, column]);
                used = widths[0] + GAP + width;
            }
        }
    }
    let shown = |table: &Vec<usize>| {
        let part: Vec<Column> = table.iter().map(|&column| columns[column]).collect();
        let rows: Vec<Vec<Cell>> = rows
            .iter()
            .map(|row| {
                table
                    .iter()
                    .filter_map(|&column| row.get(column).cloned())
                    .collect()
            })
            .collect();
        render(&part, &rows, columns_max, paint)
    };
    tables.iter().map(shown).collect::<Vec<_>>().join("\n")
}

fn natural_widths(columns: &[Column], rows: &[Vec<Cell>], width: fn(&str) -> usize) -> Vec<usize> {
    let widest = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| width(&cell.text));
        cells
            .chain([width(columns[column].head)])
            .max()
            .unwrap_or(0)
    };
    (0..columns.len()).map(widest).collect()
}

/// Cuts the text of a cell: after a word, if at least half of the width stays used.
fn cut(cell: &str, columns_max: usize) -> String {
    let short = text::cut(cell, columns_max);
    let Some(kept) = short.strip_suffix('…').filter(|_| short != cell) else {
        return short;
    };
    let is_in_word = cell[kept.len()..]
        .chars()
        .next()
        .is_some_and(|next| next != ' ');
    match kept.rfind(' ') {
        Some(blank) if is_in_word && text::width(&kept[..blank]) * 2 >= columns_max => {
            format!("{}…", kept[..blank].trim_end_matches(' '))
        }
        _ => short,
    }
}

/// Renders rows below a header. With `columns_max` no line is longer: the last column is cut, then
/// optional columns are dropped, then the widest of the others is cut, and finally the first.
#[must_use]
pub(super) fn render(
    columns: &[Column],
    rows: &[Vec<Cell>],
    columns_max: Option<usize>,
    paint: Paint,
) -> String {
    // Cut text must fit however a terminal shows it; uncut text is only aligned.
    let natural = natural_widths(
        columns,
        rows,
        if columns_max.is_some() {
            text::width_max
        } else {
            text::width
        },
    );
    let shown = fit(columns, &natural, columns_max);
    let mut out = String::new();
    let heads: Vec<Cell> = columns
        .iter()
        .map(|column| painted(column.head, Style::Dim))
        .collect();
    for row in std::iter::once(&heads).chain(rows) {
        for (n, &(column, width)) in shown.iter().enumerate() {
            let Some(cell) = row.get(column) else {
                continue;
            };
            let text = if columns_max.is_some() {
                cut(&cell.text, width)
            } else {
                cell.text.clone()
            };
            out.push_str(&paint.apply(cell.style, &text));
            if n + 1 < shown.len() {
                out.extend(std::iter::repeat_n(
                    ' ',
                    (width + GAP).saturating_sub(text::width(&text)),
                ));
            }
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

/// Returns the columns to show and their widths.
fn fit(columns: &[Column], natural: &[usize], columns_max: Option<usize>) -> Vec<(usize, usize)> {
    let mut shown: Vec<(usize, usize)> = natural.iter().copied().enumerate().collect();
    let Some(max) = columns_max else { return shown };
    let last = columns.len().saturating_sub(1);
    // The last column is cut to a useful width before another is dropped.
    let needed = |shown: &[(usize, usize)]| {
        let widths = shown.iter().map(|&(column, width)| {
            if column == last {
                width.min(LAST_COLUMNS_MIN)
            } else {
                width
            }
        });
        widths.sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    while needed(&shown) > max {
        let least = shown
            .iter()
            .enumerate()
            .filter_map(|(at, &(column, _))| Some((columns[column].optional?, at)))
            .max();
        let Some((_, at)) = least else { break };
        shown.remove(at);
    }
    let total = |shown: &[(usize, usize)]| {
        shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    while total(&shown) > max {
        let over = total(&shown) - max;
        let at_end = shown
            .iter()
            .position(|&(column, _)| column == last)
            .filter(|&at| at > 0 && shown[at].1 > CUT_COLUMNS_MIN);
        let widest = (1..shown.len())
            .filter(|&at| shown[at].1 > CUT_COLUMNS_MIN)
            .max_by_key(|&at| shown[at].1);
        match at_end.or(widest) {
            Some(at) => shown[at].1 = shown[at].1.saturating_sub(over).max(CUT_COLUMNS_MIN),
            None if shown.len() > 1 && shown[0].1 <= CUT_COLUMNS_MIN => {
                shown.pop();
            }
            None => {
                let least = if shown.len() > 1 { CUT_COLUMNS_MIN } else { 1 };
                let cut = shown[0].1.saturating_sub(over).max(least);
                if cut == shown[0].1 {
                    break;
                }
                shown[0].1 = cut;
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_column_is_cut_first() {
        let columns = [Column::always("RUN"), Column::always("TASK")];
        let rows = vec![
            vec![
                plain("brave-otter"),
                plain("a task that is far too long to fit"),
            ],
            vec![plain("x"), plain("short\nforged")],
        ];
        let shown = render(&columns, &rows, Some(30), Paint::OFF);
        assert_eq!(
            shown,
            "RUN          TASK\nbrave-otter  a task that is…\nx            short⏎forged\n"
        );
        assert!(render(&columns, &rows, None, Paint::OFF).contains("far too long to fit\n"));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let columns = [
            Column::always("RUN"),
            Column::optional("AGENT", 2),
            Column::always("STATE"),
            Column::optional("PROGRESS", 3),
            Column::optional("AGE", 1),
            Column::optional("TASK", 0),
        ];
        let cell = |n: usize, c: &str| plain(&c.repeat(n));
        let rows = vec![
            vec![
                cell(50, "n"),
                cell(12, "a"),
                cell(24, "s"),
                cell(13, "p"),
                cell(4, "9"),
                cell(300, "t"),
            ],
            vec![
                cell(3, "✅"),
                cell(2, "a"),
                cell(20, "⚠️"),
                cell(1, "–"),
                cell(4, "9"),
                cell(9, "t"),
            ],
        ];
        for max in 1..=220 {
            let shown = render(&columns, &rows, Some(max), Paint::OFF);
            assert!(
                shown.lines().all(|line| text::width(line) <= max),
                "{max}: {shown}"
            );
        }
        assert!(render(&columns, &rows, Some(80), Paint::OFF).starts_with("RUN"));
    }

    #[test]
    fn columns_without_room_follow_in_further_tables() {
        let columns = ["NAME", "ONE", "TWO", "THREE"].map(Column::always);
        let rows = vec![vec![plain("a"), plain("1"), plain("2"), plain("3")]];
        let shown = |max| render_all(&columns, &rows, max, Paint::OFF);
        assert_eq!(
            shown(Some(21)),
            "NAME  ONE  TWO  THREE\na     1    2    3\n"
        );
        assert_eq!(
            shown(Some(20)),
            "NAME  ONE  TWO\na     1    2\n\nNAME  THREE\na     3\n"
        );
        assert_eq!(shown(None), shown(Some(21)));
    }

    #[test]
    fn cells_are_cut_between_words() {
        for (width, expected) in [
            (30, "waiting for your answer"),
            (20, "waiting for your…"),
            (14, "waiting for…"),
            (10, "waiting…"),
            (5, "wait…"),
        ] {
            assert_eq!(cut("waiting for your answer", width), expected);
        }
        assert_eq!(cut("a incomprehensibilities", 12), "a incompreh…");
    }

    #[test]
    fn narrow_terminal_drops_columns_by_rank() {
        let columns = [
            Column::always("NO"),
            Column::optional("KIND", 1),
            Column::optional("STATUS", 2),
            Column::always("WHAT"),
        ];
        let rows = vec![vec![
            plain("Q1"),
            plain("delegation"),
            plain("pending"),
            plain("Should the old table be dropped now?"),
        ]];
        let heads = |max| {
            render(&columns, &rows, Some(max), Paint::OFF)
                .lines()
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .count()
        };
        assert_eq!((heads(80), heads(36), heads(30)), (4, 3, 2));
    }
}
