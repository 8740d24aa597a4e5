//! The symbols that Adjutant prints, and their replacements where the locale's charset is not
//! UTF-8.

use crate::config::text_variable;
use crate::text;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The variables that name the locale's charset. The first one that is set counts.
const VARIABLES: [&str; 3] = ["LC_ALL", "LC_CTYPE", "LANG"];

/// A symbol, its replacement, and a replacement of the same width for lines that have no room.
const TABLE: [(char, &str, char); 23] = [
    ('✓', "+", '+'),
    ('✗', "x", 'x'),
    ('×', "x", 'x'),
    ('●', "*", '*'),
    ('◌', "o", 'o'),
    ('■', "#", '#'),
    ('▸', ">", '>'),
    ('⚠', "!", '!'),
    ('…', "...", '~'),
    ('→', "->", '>'),
    ('–', "-", '-'),
    ('—', "-", '-'),
    ('·', "-", '-'),
    ('⏎', "\\", '\\'),
    ('└', "`", '`'),
    ('├', "|", '|'),
    ('│', "|", '|'),
    ('─', "-", '-'),
    ('┌', "+", '+'),
    ('█', "#", '#'),
    ('░', ".", '.'),
    ('«', "\"", '"'),
    ('»', "\"", '"'),
];

/// Returns text as the locale can show it: the symbols are replaced if its charset is not UTF-8.
/// Replacements make no line wider than the terminal.
pub(super) fn shown(text: &str, columns: Option<usize>) -> Cow<'_, str> {
    if text.is_ascii() || is_utf8() {
        text.into()
    } else {
        replaced(text, columns).into()
    }
}

/// Returns the symbol for one cell of the screen.
#[cfg(feature = "top")]
pub(super) fn cell(symbol: &str) -> Option<char> {
    let mut chars = symbol.chars();
    let (first, None) = (chars.next()?, chars.next()) else {
        return None;
    };
    let (.., narrow) = TABLE
        .iter()
        .find(|(symbol, ..)| *symbol == first)
        .filter(|_| !is_utf8())?;
    Some(*narrow)
}

fn is_utf8() -> bool {
    static IS_UTF8: OnceLock<bool> = OnceLock::new();
    *IS_UTF8.get_or_init(|| {
        is_charset_utf8(
            VARIABLES
                .iter()
                .find_map(|name| text_variable(name).filter(|value| !value.is_empty()))
                .as_deref(),
        )
    })
}

/// Returns whether a locale's charset is UTF-8. Without a locale it is, since terminals are.
fn is_charset_utf8(locale: Option<&str>) -> bool {
    locale.is_none_or(|locale| {
        locale
            .to_ascii_lowercase()
            .replace('-', "")
            .contains("utf8")
    })
}

fn replaced(text: &str, columns: Option<usize>) -> String {
    let line = |line: &str| {
        let wide: String = line.chars().fold(String::new(), |mut out, c| {
            match TABLE.iter().find(|(symbol, ..)| *symbol == c) {
                Some((_, wide, _)) => out.push_str(wide),
                None => out.push(c),
            }
            out
        });
        // Escape sequences count as well, so a coloured line uses the narrow ones somewhat earlier.
        if columns.is_none_or(|columns| text::width(wide.trim_end_matches('\n')) <= columns) {
            return wide;
        }
        line.chars()
            .map(|c| {
                TABLE
                    .iter()
                    .find(|(symbol, ..)| *symbol == c)
                    .map_or(c, |(.., narrow)| *narrow)
            })
            .collect()
    };
    text.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_locale_variable_names_the_charset() {
        for (locale, is_utf8) in [
            (None, true),
            (Some("C"), false),
            (Some("POSIX"), false),
            (Some("C.UTF-8"), true),
            (Some("en_GB.utf8"), true),
            (Some("de_DE@euro"), false),
            (Some("ja_JP.eucJP"), false),
        ] {
            assert_eq!(is_charset_utf8(locale), is_utf8, "{locale:?}");
        }
    }

    #[test]
    fn replacements_keep_lines_within_the_terminal() {
        let text = "✓ done – a task that is…\n→ next\n";
        assert_eq!(
            replaced(text, None),
            "+ done - a task that is...\n-> next\n"
        );
        assert_eq!(
            replaced(text, Some(24)),
            "+ done - a task that is~\n-> next\n"
        );
        assert!(
            TABLE
                .iter()
                .all(|(_, wide, narrow)| wide.is_ascii() && narrow.is_ascii())
        );
    }
}
