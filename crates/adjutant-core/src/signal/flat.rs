//! Reads a block as `key: value` lines, as its author meant them, if it is not YAML or YAML would
//! drop a part of it.
//!
//! A line that begins with the name of a field of this kind begins that field; every other line
//! continues the field before it. Nothing is cut at a `#`, and no first character has a meaning. A
//! field that is given twice, or text that belongs to no field, makes the meaning uncertain: such a
//! block is refused.

use super::field::Field;
use super::kind::SignalKind;
use super::marker::indentation;
use super::shape::{self, Shape};
use crate::shorten;

/// Maximum number of characters of an invalid line in its refusal.
const LINE_SHOWN_CHARS_MAX: usize = 40;

/// Why the lines of a block are not its fields. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("line {line}: {field} is given twice")]
    Twice { line: usize, field: &'static str },
    #[error("line {line}: no field begins with {text:?}")]
    NoField { line: usize, text: String },
    #[error("it has no fields")]
    Empty,
}

impl LineError {
    /// `at`: the index of the line.
    fn no_field(at: usize, line: &str) -> Self {
        Self::NoField {
            line: at + 1,
            text: shorten::to_chars(line.trim(), LINE_SHOWN_CHARS_MAX).into_owned(),
        }
    }
}

/// A line of a block that begins a field.
struct Begun<'a> {
    name: &'static str,
    shape: Shape,
    value: &'a str,
    indent: usize,
    /// It stands in a list entry.
    in_list: bool,
}

/// Removes what surrounds the fields of a block: a code fence, document markers, and blanks at the
/// start of all lines.
#[must_use]
pub(crate) fn without_frame(text: &str) -> String {
    let is_fence = |line: &str| {
        let line = line.trim();
        (line.starts_with("```") || line.starts_with("~~~"))
            && !line
                .trim_start_matches(['`', '~'])
                .contains(char::is_whitespace)
    };
    let is_frame =
        |line: &str| line.trim().is_empty() || is_fence(line) || line == "---" || line == "...";
    let mut lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .collect();
    let begin = lines
        .iter()
        .position(|line| !is_frame(line))
        .unwrap_or(lines.len());
    lines.drain(..begin);
    // The last field can end with a fence of its own, which has two lines.
    let opens = |lines: &[&str]| lines.iter().filter(|line| is_fence(line)).count() % 2 == 0;
    while lines
        .last()
        .is_some_and(|last| is_frame(last) && !(is_fence(last) && opens(&lines)))
    {
        lines.pop();
    }
    let indent = lines
        .iter()
        .filter(|line| !line.trim().is_empty())
        .map(|line| indentation(line))
        .min()
        .unwrap_or(0);
    let mut out = String::with_capacity(text.len());
    for line in lines {
        out.push_str(&line[indentation(line).min(indent)..]);
        out.push('\n');
    }
    out
}

/// Removes the text after an unclosed block's fields: everything from an empty line on that no
/// further field follows.
#[must_use]
pub(crate) fn without_prose(kind: SignalKind, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_field = |line: &&str| {
        begins(line, |name| shape::field_of(kind, name)).is_some() || indentation(line) > 0
    };
    let last = lines.iter().rposition(is_field).unwrap_or(0);
    let end = lines
        .iter()
        .skip(last)
        .position(|line| line.trim().is_empty())
        .map_or(lines.len(), |empty| last + empty);
    lines[..end]
        .iter()
        .filter(|line| !line.trim_start().starts_with("[/"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Reads the fields of a block of this kind.
///
/// # Errors
/// What is uncertain, for the run that wrote it.
pub(super) fn flat(kind: SignalKind, text: &str) -> Result<Field, LineError> {
    let lines: Vec<&str> = text.lines().collect();
    fields(&lines, &|name| shape::field_of(kind, name)).map(Field::Map)
}

fn fields(
    lines: &[&str],
    lookup: &dyn Fn(&str) -> Option<(&'static str, Shape)>,
) -> Result<Vec<(String, Field)>, LineError> {
    let mut done: Vec<(String, Field)> = Vec::new();
    let mut open: Option<(Begun<'_>, Vec<&str>)> = None;
    let mut first: Option<(usize, bool)> = None;
    for (at, line) in lines.iter().enumerate() {
        let begun = begins(line, lookup).filter(|begun| {
            let (base, listed) = *first.get_or_insert((begun.indent, begun.in_list));
            let after_line = open
                .as_ref()
                .is_none_or(|(before, _)| before.shape == Shape::Line);
            // A field of a list entry, such as a question, is no field of the block.
            begun.in_list <= listed && (begun.indent <= base || after_line)
        });
        match (begun, &mut open) {
            (Some(begun), before) => {
                if let Some((before, rest)) = before.take() {
                    done.push((before.name.to_owned(), value(&before, &rest)?));
                }
                if done.iter().any(|(known, _)| known == begun.name) {
                    return Err(LineError::Twice {
                        line: at + 1,
                        field: begun.name,
                    });
                }
                open = Some((begun, Vec::new()));
            }
            // Outside of a text, `#` begins a comment.
            (None, None) if line.trim().is_empty() || line.trim_start().starts_with('#') => {}
            (None, Some((before, _))) if before.shape == Shape::Line => {
                if !line.trim().is_empty() && !line.trim_start().starts_with(['#', '`', '~']) {
                    return Err(LineError::no_field(at, line));
                }
            }
            (None, Some((_, rest))) => rest.push(line),
            (None, None) => return Err(LineError::no_field(at, line)),
        }
    }
    if let Some((before, rest)) = open {
        done.push((before.name.to_owned(), value(&before, &rest)?));
    }
    if done.is_empty() {
        Err(LineError::Empty)
    } else {
        Ok(done)
    }
}

/// Returns the field that a line begins.
fn begins<'a>(
    line: &'a str,
    lookup: impl Fn(&str) -> Option<(&'static str, Shape)>,
) -> Option<Begun<'a>> {
    let indent = indentation(line);
    let text = line[indent..].trim_end();
    let entry = text
        .strip_prefix("- ")
        .or_else(|| text.strip_prefix("* "))
        .or_else(|| text.strip_prefix("• "));
    let (in_list, text) = entry.map_or((false, text), |entry| (true, entry.trim_start()));
    let (key, value) = text.split_once(':')?;
    let is_decoration = |c: char| matches!(c, '*' | '_' | '`' | '"' | '\'');
    let bare = key.trim().trim_matches(is_decoration);
    let name: String = bare
        .chars()
        .map(|c| {
            if matches!(c, ' ' | '-') {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect();
    let (name, shape) = lookup(&name)?;
    // `**details:** text`
    let opened: String = key
        .trim()
        .chars()
        .take_while(|c| is_decoration(*c))
        .collect();
    let closed: String = key
        .trim()
        .chars()
        .rev()
        .take_while(|c| is_decoration(*c))
        .collect();
    let value = if opened.is_empty() || !closed.is_empty() {
        value
    } else {
        value.strip_prefix(opened.as_str()).unwrap_or(value)
    };
    Some(Begun {
        name,
        shape,
        value: value.trim(),
        indent,
        in_list,
    })
}

fn value(begun: &Begun<'_>, rest: &[&str]) -> Result<Field, LineError> {
    match begun.shape {
        Shape::Line => Ok(Field::Text(single(begun.value))),
        Shape::Text => Ok(Field::Text(text(begun.value, rest))),
        Shape::Texts => Ok(match (begun.value, entries(rest)) {
            ("" | "|" | ">", Some(entries)) => Field::List(
                entries
                    .iter()
                    .map(|entry| Field::Text(entry.join("\n").trim().to_owned()))
                    .collect(),
            ),
            (inline, _)
                if rest.iter().all(|line| line.trim().is_empty())
                    && inline.starts_with('[')
                    && inline.ends_with(']') =>
            {
                let inner = &inline[1..inline.len() - 1];
                Field::List(
                    inner
                        .split(',')
                        .map(|one| Field::Text(single(one)))
                        .collect(),
                )
            }
            (inline, _) => Field::Text(text(inline, rest)),
        }),
        Shape::Questions => match (begun.value, entries(rest)) {
            ("" | "|" | ">", Some(entries)) => Ok(Field::List(
                entries
                    .iter()
                    .map(|entry| question(entry))
                    .collect::<Result<_, _>>()?,
            )),
            (inline, _) => Ok(Field::Text(text(inline, rest))),
        },
    }
}

/// Reads one entry of a list of questions: fields, or the question itself.
fn question(lines: &[&str]) -> Result<Field, LineError> {
    let lookup = |name: &str| shape::find(shape::QUESTION, name);
    if lines
        .iter()
        .any(|line| begins(line, lookup).is_some_and(|begun| begun.name == "text"))
    {
        return fields(lines, &lookup).map(Field::Map);
    }
    Ok(Field::Text(lines.join("\n").trim().to_owned()))
}

/// Returns the lines of each entry of a list. `None`: the lines are no list.
fn entries<'a>(lines: &[&'a str]) -> Option<Vec<Vec<&'a str>>> {
    let entry = |line: &'a str| {
        let text = line.trim_start();
        let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = (digits.len() < text.len())
            .then(|| {
                digits
                    .strip_prefix(". ")
                    .or_else(|| digits.strip_prefix(") "))
            })
            .flatten();
        ["- ", "* ", "• "]
            .iter()
            .find_map(|mark| text.strip_prefix(mark))
            .or(numbered)
    };
    let first = lines.iter().find(|line| !line.trim().is_empty())?;
    let indent = indentation(first);
    let mut all: Vec<Vec<&str>> = Vec::new();
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        match (
            entry(line).filter(|_| indentation(line) <= indent),
            all.last_mut(),
        ) {
            (Some(text), _) => all.push(vec![text]),
            (None, Some(last)) => last.push(line.trim_start()),
            (None, None) => return None,
        }
    }
    Some(all)
}

/// Returns the value of a field that has one line, without a comment and quotes.
fn single(value: &str) -> String {
    let value = value
        .find(" #")
        .or_else(|| value.find("\t#"))
        .map_or(value, |comment| &value[..comment])
        .trim();
    quoted(value).unwrap_or_else(|| value.trim_matches(['`', '*']).to_owned())
}

/// Returns the whole text of a field: the rest of its first line and all following lines, without
/// their common indentation.
fn text(value: &str, rest: &[&str]) -> String {
    let header = value
        .strip_prefix(['|', '>'])
        .map(|rest| rest.trim_matches(['+', '-']));
    let is_block = header.is_some_and(|digit| {
        digit.is_empty() || digit.len() == 1 && digit.as_bytes()[0].is_ascii_digit()
    });
    let indent = rest
        .iter()
        .filter(|line| !line.trim().is_empty())
        .map(|line| indentation(line))
        .min()
        .unwrap_or(0);
    let first = (!is_block && !value.is_empty()).then_some(value);
    let rest = rest
        .iter()
        .map(|line| line[indentation(line).min(indent)..].trim_end());
    let whole = first
        .into_iter()
        .chain(rest)
        .collect::<Vec<_>>()
        .join("\n")
        .trim_end()
        .trim_start_matches('\n')
        .to_owned();
    if is_block {
        whole
    } else {
        quoted(&whole).unwrap_or(whole)
    }
}

/// Returns the content of a text that is quoted as a whole.
fn quoted(text: &str) -> Option<String> {
    if let Some(inner) = text
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
    {
        let plain = inner.replace("''", "\u{0}");
        return (!plain.contains('\'')).then(|| plain.replace('\u{0}', "'"));
    }
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))?;
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return None,
            '\\' => match rest.next()? {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => {}
                'u' => {
                    let digits: String = rest.by_ref().take(4).collect();
                    out.push(
                        u32::from_str_radix(&digits, 16)
                            .ok()
                            .and_then(char::from_u32)
                            .unwrap_or('\u{fffd}'),
                    );
                }
                other @ ('"' | '\\' | '/' | '\'') => out.push(other),
                other => out.extend(['\\', other]),
            },
            c => out.push(c),
        }
    }
    Some(out)
}

/// Returns whether fields contain everything that the text of their block says. A YAML parser drops
/// comments, anchors and tags.
#[must_use]
pub(super) fn covers(text: &str, fields: &Field) -> bool {
    let mut said = String::new();
    collect(fields, &mut said);
    significant(&without_escapes(text)).eq(significant(&said))
}

fn collect(field: &Field, out: &mut String) {
    match field {
        Field::Text(text) => out.push_str(text),
        Field::List(items) => items.iter().for_each(|item| collect(item, out)),
        Field::Map(pairs) => pairs.iter().for_each(|(name, value)| {
            out.push_str(name);
            collect(value, out);
        }),
    }
}

/// Returns the characters of a text that are no syntax in YAML and JSON.
fn significant(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| {
        !c.is_whitespace()
            && !matches!(
                c,
                '-' | ':' | '|' | '>' | '[' | ']' | '{' | '}' | ',' | '"' | '\'' | '\\'
            )
    })
}

/// Removes the escapes of quoted text.
fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
        } else if rest.next() == Some('u') {
            rest.by_ref().take(4).for_each(drop);
        }
    }
    out
}
