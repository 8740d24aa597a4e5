//! Sanitizes foreign text for terminals and for single-line fields.
//!
//! Sanitized text of an agent, a prompt or a file name cannot move the cursor, change colours,
//! reorder or hide characters, or imitate a line of Adjutant.

use adjutant_core::shorten;
use unicode_width::UnicodeWidthStr;

/// Sanitizes a text to one line: line ends become `⏎`, tabs become spaces.
#[must_use]
pub fn line(text: &str) -> String {
    clean(text, false)
}

/// Sanitizes a text of several lines: keeps line ends and tabs.
#[must_use]
pub fn block(text: &str) -> String {
    clean(text, true)
}

/// Shortens a line to a width in terminal columns, with `…` at the end if it was cut. The result is
/// no wider on any terminal.
#[must_use]
pub fn cut(text: &str, columns_max: usize) -> String {
    if text.chars().map(char_width_max).sum::<usize>() <= columns_max {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = char_width_max(c);
        if used + w + 1 > columns_max {
            break;
        }
        used += w;
        out.push(c);
    }
    if columns_max > 0 {
        out.push(shorten::MARK);
    }
    out
}

/// Columns from one tab stop to the next.
const TAB_COLUMNS: usize = 8;

/// Breaks a line into parts that are no wider than `columns_max`, at blanks if possible, otherwise
/// within a word, so that the terminal never wraps it. Leading blanks are kept. With `usize::MAX`
/// nothing is broken.
#[must_use]
pub fn wrap(line: &str, columns_max: usize) -> Vec<String> {
    if columns_max == usize::MAX {
        return vec![line.to_owned()];
    }
    let columns_max = columns_max.max(2);
    let mut parts = Vec::new();
    let (mut part, mut used) = (String::new(), 0);
    for c in line.chars() {
        // A terminal would advance to the next tab stop, possibly beyond the width.
        let (c, times) = if c == '\t' {
            (' ', TAB_COLUMNS - used % TAB_COLUMNS)
        } else {
            (c, 1)
        };
        for _ in 0..times {
            if c == ' ' && used + 1 > columns_max {
                parts.push(std::mem::take(&mut part));
                used = 0;
                continue;
            }
            while used > 0 && used + char_width_max(c) > columns_max {
                let rest = match part.trim_start_matches(' ').rfind(' ') {
                    // The blank at the break is dropped.
                    Some(blank) => part
                        .split_off(blank + part.len() - part.trim_start_matches(' ').len())
                        .split_off(1),
                    None => String::new(),
                };
                parts.push(std::mem::replace(&mut part, rest));
                used = part.chars().map(char_width_max).sum();
            }
            part.push(c);
            used += char_width_max(c);
        }
    }
    parts.push(part);
    parts
}

/// Counts the columns that a line takes on most terminals.
#[must_use]
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Counts the terminal columns that a line takes at most, since terminals differ in the width of
/// some characters.
#[must_use]
pub fn width_max(text: &str) -> usize {
    text.chars().map(char_width_max).sum()
}

/// Formats a number with its noun: `1 run`, `3 runs`.
#[must_use]
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn clean(text: &str, keep_lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' | '\t' if keep_lines => out.push(c),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\n' | '\u{2028}' | '\u{2029}' | '\u{85}' => out.push('⏎'),
            '\t' => out.push(' '),
            '\u{1b}' => skip_sequence(&mut rest, &mut out),
            '\0'..='\u{1f}' => {
                out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'))
            }
            '\u{7f}' => out.push('\u{2421}'),
            c if is_hidden(c) => {}
            c if is_reordering(c) || c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Longest escape sequence that is dropped as a whole. A longer one is shown.
const SEQUENCE_CHARS_MAX: usize = 256;

/// Drops a complete CSI or OSC sequence (colours, titles, links); any other escape is shown.
fn skip_sequence(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let mut ahead = rest.clone();
    let complete = match ahead.next() {
        Some('[') => ahead
            .by_ref()
            .take(SEQUENCE_CHARS_MAX)
            .find(|c| !matches!(c, ' '..='?'))
            .is_some_and(|c| matches!(c, '@'..='~')),
        Some(']') => ends_string(&mut ahead),
        _ => false,
    };
    if complete {
        *rest = ahead;
    } else {
        out.push('\u{241b}');
    }
}

/// Skips to the end of an operating-system command: BEL, or ESC and a backslash.
fn ends_string(ahead: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    for _ in 0..SEQUENCE_CHARS_MAX {
        match ahead.next() {
            Some('\u{7}') => return true,
            Some('\u{1b}') => return ahead.next() == Some('\\'),
            Some('\n' | '\r') | None => return false,
            Some(_) => {}
        }
    }
    false
}

/// Returns whether a character is invisible and can carry hidden text: tags, supplementary
/// variation selectors, invisible operators, zero-width spaces, annotations.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a character changes the reading order of a line.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the most columns that a terminal may use for a character. Where terminals differ (marks,
/// pictographs, invisible letters), the widest counts.
fn char_width_max(c: char) -> usize {
    match c {
        // Two Khmer letters that stand for several.
        '\u{17a4}' => 2,
        '\u{17d8}' => 3,
        '\0'..='\u{10ff}' | '\u{1160}'..='\u{22ff}' | '\u{2400}'..='\u{25fc}' => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_cannot_start_another_line() {
        assert_eq!(line("a\nerror[x]: b\r\nc\u{2028}d"), "a⏎error[x]: b⏎c⏎d");
    }

    #[test]
    fn escape_sequences_are_dropped_or_shown() {
        assert_eq!(line("\u{1b}[31mred\u{1b}[0m"), "red");
        assert_eq!(
            line("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]0;t\u{7}"),
            "link"
        );
        assert_eq!(line("\u{1b}[2"), "\u{241b}[2");
        assert_eq!(
            line("\u{1b}c\u{7}\u{9b}31m"),
            "\u{241b}c\u{2407}\u{fffd}31m"
        );
        assert_eq!(line("a\u{202e}b\u{e0041}c\u{feff}"), "a\u{fffd}bc");
    }

    #[test]
    fn cut_counts_columns() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut("\u{2705}\u{2705}\u{2705}", 5), "\u{2705}\u{2705}…");
    }

    #[test]
    fn width_counts_wide_combining_and_invisible_characters() {
        for (text, columns) in [
            ("", 0),
            ("abc", 3),
            ("日本語", 6),
            ("ｆｕｌｌ", 8),
            ("e\u{301}", 1),
            ("\u{1112}\u{1161}\u{11ab}", 2),
            ("a\u{200b}b\u{2060}", 2),
            ("\u{2705}", 2),
            ("\u{1f680}", 2),
            ("\u{1f469}\u{200d}\u{1f4bb}", 2),
            ("\u{1f44d}\u{1f3fd}", 2),
            ("✓ done – a…⏎", 12),
        ] {
            assert_eq!(width(text), columns, "{text:?}");
        }
    }

    #[test]
    fn wrap_breaks_at_spaces_and_in_long_words() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(
            wrap("incomprehensibilities yes", 5),
            ["incom", "prehe", "nsibi", "litie", "s yes"]
        );
        assert_eq!(wrap("日本語ab", 5), ["日本", "語ab"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("a\tb", usize::MAX), ["a\tb"]);
    }

    #[test]
    fn leading_spaces_are_kept() {
        assert_eq!(wrap("    if x:", 20), ["    if x:"]);
        assert_eq!(wrap("    return  value", 12), ["    return ", "value"]);
        assert_eq!(wrap("\tx", 20), ["        x"]);
        assert_eq!(wrap("  x", usize::MAX), ["  x"]);
    }

    proptest! {
        #[test]
        fn no_terminal_uses_more_columns_than_the_maximum(text in "\\PC{0,30}", columns in 0_usize..40) {
            prop_assert!(width(&text) <= width_max(&text), "{text:?}");
            prop_assert!(width_max(&cut(&text, columns)) <= columns);
        }

        #[test]
        fn terminal_control_is_removed(text in any::<String>()) {
            for kept in [line(&text), block(&text)] {
                prop_assert!(kept.chars().all(|c| c == '\n' || c == '\t' || !(c.is_control() || is_reordering(c) || is_hidden(c))));
            }
            prop_assert!(!line(&text).contains(['\n', '\t']));
        }

        #[test]
        fn wrap_keeps_every_letter_within_the_width(text in "[ a-z\u{a0}\u{3164}\u{2705}日]{0,60}", columns in 2_usize..20) {
            let parts = wrap(&text, columns);
            prop_assert!(parts.iter().all(|part| part.chars().map(char_width_max).sum::<usize>() <= columns), "{parts:?}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&parts.concat()), letters(&text));
            let blanks = |text: &str| text.len() - text.trim_start_matches(' ').len();
            prop_assert!(blanks(&text) >= columns || blanks(&parts[0]) == blanks(&text));
        }
    }
}
