//! Renders a page of the documentation for a terminal: paragraphs wrapped, tables as columns or as
//! lists, links as commands. Pure.

use crate::text;

/// Indentation of code, of the continuation of a list item, and of a cell below its row's first
/// one.
const INDENT: usize = 4;
/// Columns between two cells.
const GAP: usize = 2;

/// Renders Markdown in so many columns. `topic_of`: the topic of `adj help` that a page of the
/// documentation is.
pub(super) fn render(
    markdown: &str,
    columns: usize,
    topic_of: impl Fn(&str) -> Option<&'static str>,
) -> String {
    let mut out = String::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("```") {
            for code in lines
                .by_ref()
                .take_while(|line| !line.trim_start().starts_with("```"))
            {
                out += format!("{:INDENT$}{code}", "").trim_end();
                out.push('\n');
            }
            continue;
        }
        if line.starts_with('|') {
            let mut rows = vec![line];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(row);
            }
            let cells = |row: &&str| {
                cells(row)
                    .into_iter()
                    .map(|cell| inline(&cell, &topic_of))
                    .collect::<Vec<String>>()
            };
            let rows: Vec<Vec<String>> =
                rows.iter().filter(|row| !is_rule(row)).map(cells).collect();
            out += &table(&rows, columns);
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            out += &inline(line.trim_start_matches('#').trim_start(), &topic_of);
            out.push('\n');
            continue;
        }
        // A paragraph or a list item, with the lines that continue it.
        let mut block = line.trim_end().to_owned();
        while let Some(more) = lines.next_if(|line| continues(line)) {
            block.push(' ');
            block += more.trim();
        }
        out += &wrapped(&inline(&block, &topic_of), columns);
    }
    out
}

/// Returns whether a line continues the paragraph or the list item before it.
fn continues(line: &str) -> bool {
    let text = line.trim_start();
    !text.is_empty()
        && !text.starts_with("```")
        && !line.starts_with(['#', '|'])
        && item_width(text) == 0
}

/// Returns the width of the marker of a list item. 0: the text is none.
fn item_width(text: &str) -> usize {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match digits {
        0 if text.starts_with("- ") || text.starts_with("* ") => 2,
        0 => 0,
        _ if text[digits..].starts_with(". ") => digits + 2,
        _ => 0,
    }
}

/// Wraps a paragraph or a list item, whose further lines are indented.
fn wrapped(block: &str, columns: usize) -> String {
    let begin = block.len() - block.trim_start().len();
    let indent = begin + item_width(block.trim_start());
    let mut out = String::new();
    for (n, line) in text::wrap(&block[indent..], columns.saturating_sub(indent))
        .into_iter()
        .enumerate()
    {
        let start = if n == 0 {
            block[..indent].to_owned()
        } else {
            " ".repeat(indent)
        };
        out += &format!("{start}{line}\n");
    }
    out
}

/// Renders rows below their headings: as columns if they fit, else each row as its first cell with
/// the others below it.
fn table(rows: &[Vec<String>], columns: usize) -> String {
    let Some((heads, rows)) = rows.split_first() else {
        return String::new();
    };
    let width = |column: usize| {
        std::iter::once(heads)
            .chain(rows)
            .filter_map(|row| row.get(column))
            .map(|cell| text::width(cell))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut out = String::new();
    if widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) <= columns {
        for row in std::iter::once(heads).chain(rows) {
            let padded = row.iter().zip(&widths).map(|(cell, width)| {
                format!(
                    "{cell}{}",
                    " ".repeat((width + GAP).saturating_sub(text::width(cell)))
                )
            });
            out += padded.collect::<String>().trim_end();
            out.push('\n');
        }
        return out;
    }
    for row in rows {
        let mut cells = row.iter().zip(heads);
        let Some((first, _)) = cells.next() else {
            continue;
        };
        out += &wrapped(first, columns);
        for (cell, head) in cells.filter(|(cell, _)| !cell.is_empty()) {
            let named = if heads.len() > 2 && !head.is_empty() {
                format!("{head}: {cell}")
            } else {
                cell.clone()
            };
            out += &wrapped(&format!("{:INDENT$}{named}", ""), columns);
        }
    }
    out
}

/// Returns whether a row of a table is the line below its headings.
fn is_rule(row: &str) -> bool {
    row.bytes()
        .all(|byte| matches!(byte, b'|' | b'-' | b':' | b' '))
}

/// Splits a row of a table. An escaped bar belongs to its cell.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    let (mut cells, mut cell, mut chars) = (Vec::new(), String::new(), row.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'|') => cell.extend(chars.next()),
            '|' => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            c => cell.push(c),
        }
    }
    cells.push(cell.trim().to_owned());
    cells
}

/// Renders links and emphasis within a line. Code stays in its quotes, which show where a command
/// begins and ends.
fn inline(line: &str, topic_of: &impl Fn(&str) -> Option<&'static str>) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(['`', '[', '*']) {
        out += &rest[..at];
        rest = &rest[at..];
        let taken = match rest.as_bytes()[0] {
            b'`' => code(rest).map(|code| (code.to_owned(), code.len())),
            b'[' => link(rest, topic_of),
            _ => rest.starts_with("**").then(|| (String::new(), 2)),
        };
        let (text, bytes) = taken.unwrap_or_else(|| (rest[..1].to_owned(), 1));
        out += &text;
        rest = &rest[bytes..];
    }
    out + rest
}

/// Returns the code at the beginning of a text, in its quotes.
fn code(text: &str) -> Option<&str> {
    let quotes = text.bytes().take_while(|byte| *byte == b'`').count();
    let end = text[quotes..].find(&text[..quotes])?;
    Some(&text[..quotes + end + quotes])
}

/// Returns the link at the beginning of a text, as shown, and its length.
fn link(text: &str, topic_of: &impl Fn(&str) -> Option<&'static str>) -> Option<(String, usize)> {
    let middle = closing_bracket(text)?;
    let end = middle
        + text[middle..]
            .starts_with("](")
            .then(|| text[middle..].find(')'))
            .flatten()?;
    let label = &inline(&text[1..middle], topic_of);
    let target = &text[middle + 2..end];
    let page = target.split('#').next().unwrap_or_default();
    let shown = match topic_of(page) {
        Some(topic) => format!("{label} (adj help {topic})"),
        None if target.starts_with("http") && target != label => format!("{label} ({target})"),
        None => label.to_owned(),
    };
    Some((shown, end + 1))
}

/// Returns the position of the bracket that closes the one at the beginning of a text. Brackets in
/// code do not count.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.as_bytes().get(at) {
        at += match byte {
            b'`' => code(&text[at..]).map_or(1, str::len),
            b']' if depth == 1 => return Some(at),
            b']' => {
                depth -= 1;
                1
            }
            b'[' => {
                depth += 1;
                1
            }
            _ => 1,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(markdown: &str, columns: usize) -> String {
        render(markdown, columns, |page| {
            (page == "policies.md").then_some("policies")
        })
    }

    #[test]
    fn paragraphs_and_items_are_wrapped_at_blanks() {
        let page = "# Title\n\nA paragraph that is\ncut by its author.\n\n- an item that is longer than the width\n  and goes on\n1. first\n";
        assert_eq!(
            shown(page, 20),
            "Title\n\nA paragraph that is\ncut by its author.\n\n- an item that is\n  longer than the\n  width and goes on\n1. first\n"
        );
    }

    #[test]
    fn table_is_columns_or_a_list() {
        let page = "| key | meaning |\n|---|:--|\n| `a\\|b` | short |\n| c | see [rules](policies.md#x) |\n";
        assert_eq!(
            shown(page, 60),
            "key    meaning\n`a|b`  short\nc      see rules (adj help policies)\n"
        );
        assert_eq!(
            shown(page, 24),
            "`a|b`\n    short\nc\n    see rules (adj help\n    policies)\n"
        );
    }

    #[test]
    fn every_topic_fits_the_terminal() {
        for (name, _) in crate::cli::overview::topic_names() {
            let page = crate::cli::overview::topic_text(name).expect("a text");
            for columns in [60, 80, 100] {
                let shown = render(&page, columns, crate::cli::overview::topic_of_page);
                let is_code = |line: &&str| line.starts_with("    ");
                let wide: Vec<&str> = shown
                    .lines()
                    .filter(|line| text::width(line) > columns && !is_code(line))
                    .collect();
                assert!(wide.is_empty(), "{name}: {wide:?}");
            }
        }
    }

    #[test]
    fn link_label_can_contain_brackets() {
        for (markdown, expected) in [
            (
                "see [the block [REPORT] of it](policies.md), or [x]",
                "see the block [REPORT] of it (adj help policies), or [x]",
            ),
            (
                "[`[agents.NAME]`](policies.md#agents) and [`a]b`](x.md)",
                "`[agents.NAME]` (adj help policies) and `a]b`",
            ),
            ("[a] and [b](policies.md)", "[a] and b (adj help policies)"),
            (
                "[[policies]] are rules, [y/N] asks, [open",
                "[[policies]] are rules, [y/N] asks, [open",
            ),
            ("[**all** of `x`](https://x.y)", "all of `x` (https://x.y)"),
        ] {
            assert_eq!(shown(&format!("{markdown}\n"), 90), format!("{expected}\n"));
        }
    }

    #[test]
    fn code_is_unchanged() {
        assert_eq!(
            shown("```sh\nadj run -a echo \"a  b\"   # [x](y)\n```\n", 20),
            "    adj run -a echo \"a  b\"   # [x](y)\n"
        );
        assert_eq!(
            shown(
                "Use `a[0](b)` and **bold** 2 * 3, [page](https://x.y) [own](#here).\n",
                90
            ),
            "Use `a[0](b)` and bold 2 * 3, page (https://x.y) own.\n"
        );
    }
}
