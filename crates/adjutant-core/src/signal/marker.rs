//! The lines that begin and end a block, in the decorations that language models add.
//!
//! A marker stands alone on its line. It may be a Markdown heading, a list entry, emphasized, code
//! or escaped, in any case, and punctuation may follow. A line that begins with `>` is a quotation:
//! Markdown repeats the words of others that way, and so do Adjutant's own messages, so that a
//! program that prints its prompt signals nothing.

use super::kind::SignalKind;

/// Longest line that can be a marker, in bytes.
pub const MARKER_BYTES_MAX: usize = 256;

/// A line that begins a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    pub kind: SignalKind,
    /// The indentation of the line, in bytes.
    pub indent: usize,
}

/// Returns the block that a line begins.
#[must_use]
pub fn opening(line: &str) -> Option<Opening> {
    let tag = bare_tag(line)?;
    SignalKind::from_spoken_tag(&tag).map(|kind| Opening {
        kind,
        indent: indentation(line),
    })
}

/// Returns whether a line ends the block that `begun` began. An indented marker is part of a field.
/// The tag of another kind ends the block too, since the fields decide whether the block is
/// complete.
#[must_use]
pub fn closes(line: &str, begun: Opening) -> bool {
    if line.len() > MARKER_BYTES_MAX || indentation(line) > begun.indent {
        return false;
    }
    let bare = undecorated(line);
    let Some(rest) = bare.strip_prefix("[/").or_else(|| bare.strip_prefix("[\\")) else {
        return false;
    };
    let Some((tag, _)) = rest.split_once(']') else {
        return false;
    };
    let tag = plain_tag(tag);
    SignalKind::from_spoken_tag(&tag).is_some() || begun.kind.tag().starts_with(&tag)
}

/// Returns the kind whose marker occurs in a line that is not a marker itself.
#[must_use]
pub fn mentioned(line: &str) -> Option<SignalKind> {
    let mut rest = line;
    while let Some(at) = rest.find('[') {
        rest = &rest[at + 1..];
        let tag = rest.split(']').next().unwrap_or("").trim_start_matches('/');
        if let Some(kind) = SignalKind::from_spoken_tag(&plain_tag(tag)) {
            return Some(kind);
        }
    }
    None
}

/// Returns a text without the blocks in it.
#[must_use]
pub(crate) fn without_blocks(text: &str) -> String {
    let mut begun: Option<Opening> = None;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match begun {
            Some(open) => begun = (!closes(line, open)).then_some(opening(line).unwrap_or(open)),
            None => match opening(line) {
                Some(open) => begun = Some(open),
                // The text can begin within a block.
                None if mentioned(line).is_some() => {}
                None => {
                    out.push_str(line);
                    out.push('\n');
                }
            },
        }
    }
    out
}

/// Returns the number of blanks at the start of a line.
#[must_use]
pub fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// Returns the text in the brackets of a line that contains nothing else.
fn bare_tag(line: &str) -> Option<String> {
    if line.len() > MARKER_BYTES_MAX {
        return None;
    }
    let bare = undecorated(line);
    let (tag, rest) = bare
        .strip_prefix('[')
        .filter(|tag| !tag.trim_start().starts_with(['/', '\\']))?
        .split_once(']')?;
    let is_punctuation = |c: char| {
        c.is_whitespace() || matches!(c, '.' | ',' | ':' | ';' | '!' | '*' | '_' | '`' | '#')
    };
    rest.chars().all(is_punctuation).then(|| plain_tag(tag))
}

/// Returns a line without its decoration at the start.
fn undecorated(line: &str) -> &str {
    let mut bare = line.trim();
    // A list entry can be a heading, and a heading can be emphasized.
    for _ in 0..4 {
        let digits = bare.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = (digits.len() < bare.len())
            .then(|| digits.strip_prefix(['.', ')']))
            .flatten();
        bare = numbered
            .unwrap_or(bare)
            .trim_start_matches(['#', '*', '_', '`', '+', '-', '•'])
            .trim_start();
    }
    bare.strip_prefix('\\')
        .filter(|rest| rest.starts_with('['))
        .unwrap_or(bare)
}

/// Returns the tag that a text in brackets spells.
fn plain_tag(text: &str) -> String {
    let plain = text.replace('\\', "");
    let plain = plain.trim_matches(|c: char| !c.is_alphanumeric());
    plain
        .chars()
        .map(|c| {
            if matches!(c, ' ' | '-') {
                '_'
            } else {
                c.to_ascii_uppercase()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decorated_markers_are_recognized() {
        for line in [
            "[STOP_WORK]",
            "  [STOP_WORK]  ",
            "[stop_work]",
            "[Stop_Work]",
            "[STOP WORK]",
            "[ STOP-WORK ]",
            "**[STOP_WORK]**",
            "### [STOP_WORK]",
            "## **[STOP_WORK]**",
            "`[STOP_WORK]`",
            "__[STOP_WORK]__",
            "- [STOP_WORK]",
            "* [STOP_WORK]",
            "1. [STOP_WORK]",
            "[STOP_WORK]:",
            "[STOP_WORK].",
            "\\[STOP_WORK\\]",
            "\\[STOP\\_WORK\\]",
        ] {
            assert_eq!(
                opening(line).map(|found| found.kind),
                Some(SignalKind::Stop),
                "{line}"
            );
        }
        let begun = Opening {
            kind: SignalKind::Stop,
            indent: 0,
        };
        for line in [
            "[/STOP_WORK]",
            "[/STOP_WORK].",
            "**[/STOP_WORK]**",
            "[/stop_work]",
            "\\[/STOP\\_WORK\\]",
            "[/STOP_WORK] Bye.",
            "[/STOP]",
            "[/PROGRESS]",
        ] {
            assert!(closes(line, begun), "{line}");
        }
    }

    #[test]
    fn quotations_and_prose_are_not_markers() {
        for line in [
            "> [STOP_WORK]",
            "print [STOP_WORK]",
            "[STOP_WORK] then end",
            "[STOP_WORK",
            "[STOPWORK]",
            "[x] STOP_WORK",
            "[]",
            "[/STOP_WORK]",
        ] {
            assert_eq!(opening(line), None, "{line}");
        }
        let begun = Opening {
            kind: SignalKind::Stop,
            indent: 0,
        };
        for line in [
            "  [/STOP_WORK]",
            "> [/STOP_WORK]",
            "see [/STOP_WORK]",
            "[/x]",
            "[STOP_WORK]",
        ] {
            assert!(!closes(line, begun), "{line}");
        }
        assert_eq!(mentioned("> [STOP_WORK]"), Some(SignalKind::Stop));
        assert_eq!(
            mentioned("print a [x] and a [/progress] line"),
            Some(SignalKind::Progress)
        );
        assert_eq!(mentioned("[a] [b"), None);
    }
}
