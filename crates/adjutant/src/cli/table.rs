//! Tables for terminals: columns as wide as their cells, the last one takes what is left.

use super::style::{Paint, Style};
use crate::text;

/// One cell: text that is already fit for a terminal, and how it is painted.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    style: Style,
}

/// Makes an unpainted cell of text that others wrote.
#[must_use]
pub fn plain(text: &str) -> Cell {
    painted(text, Style::Plain)
}

/// Makes a painted cell of text that others wrote.
#[must_use]
pub fn painted(text: &str, style: Style) -> Cell {
    Cell { text: text::line(text), style }
}

/// Columns between two cells.
const GAP: usize = 2;
/// The last column is never narrower than this; a narrower terminal goes without it.
const LAST_COLUMNS_MIN: usize = 8;

/// Lays out rows under a header. With `columns_max` the last column is cut to fit, or left out; the
/// others, the ids among them, never are.
#[must_use]
pub fn render(header: &[&str], rows: &[Vec<Cell>], columns_max: Option<usize>, paint: Paint) -> String {
    let last = header.len().saturating_sub(1);
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| text::width(&cell.text));
            cells.chain([text::width(header[column])]).max().unwrap_or(0)
        })
        .collect();
    let before: usize = widths[..last].iter().map(|w| w + GAP).sum();
    let last_max = columns_max.map(|max| max.saturating_sub(before)).map(|room| if room < LAST_COLUMNS_MIN { 0 } else { room });
    let mut out = String::new();
    let heads: Vec<Cell> = header.iter().map(|h| painted(h, Style::Dim)).collect();
    for row in std::iter::once(&heads).chain(rows) {
        for (column, cell) in row.iter().enumerate() {
            if column == last {
                let shown = match last_max {
                    None => cell.text.clone(),
                    Some(0) => continue,
                    Some(max) => text::cut(&cell.text, max),
                };
                out.push_str(&paint.apply(cell.style, &shown));
            } else {
                out.push_str(&paint.apply(cell.style, &cell.text));
                out.extend(std::iter::repeat_n(' ', widths[column] + GAP - text::width(&cell.text)));
            }
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_column_is_cut() {
        let rows = vec![vec![plain("brave-otter"), plain("a task that is far too long to fit")], vec![plain("x"), plain("short\nforged")]];
        let shown = render(&["RUN", "TASK"], &rows, Some(30), Paint::OFF);
        assert_eq!(shown, "RUN          TASK\nbrave-otter  a task that is f…\nx            short⏎forged\n");
        assert_eq!(render(&["RUN", "TASK"], &rows, Some(20), Paint::OFF), "RUN\nbrave-otter\nx\n");
        assert!(render(&["RUN", "TASK"], &rows, None, Paint::OFF).contains("far too long to fit\n"));
    }
}
