//! Finds all structural problems of a configuration file. An invalid value is reported with its
//! line and replaced or removed, a missing one is reported and filled in, and the file is parsed
//! again.

use adjutant_core::agent::suggested_name;
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue, Deserializer};

/// Maximum number of problems of a file that are reported.
const PROBLEMS_MAX: usize = 20;
/// How often a file is parsed again.
const ROUNDS_MAX: usize = 200;

/// A problem, and the line of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) text: String,
}

/// What a file contains, and the problems of its structure.
#[derive(Debug)]
pub(super) struct Structure<T> {
    /// The file with substitutes for missing and invalid values. `None`: the substitutes say
    /// nothing about the rest.
    pub(super) file: Option<T>,
    /// All problems up to a limit, in the order of the file.
    pub(super) problems: Vec<Problem>,
    /// The paths of keys of the substitutes, without indexes of lists.
    substitutes: Vec<Vec<String>>,
}

impl<T> Structure<T> {
    /// Returns whether the problem of a field only comes from a substitute. `field`: a dotted path
    /// with indexes.
    pub(super) fn explains(&self, field: &str) -> bool {
        let own: Vec<&str> = field
            .split('.')
            .map(|key| key.split('[').next().unwrap_or_default())
            .collect();
        let is_same = |path: &Vec<String>| path.iter().zip(&own).all(|(key, own)| key == own);
        // A problem of a whole entry can come from one of its values.
        self.substitutes
            .iter()
            .any(|path| is_same(path) && (own.len() >= path.len() || own.len() > 1))
    }
}

/// A substitute for a missing or invalid value.
struct Filler {
    path: Vec<String>,
    /// Identifies the substitute: a span outside of the file.
    span: Range<usize>,
    tried: usize,
}

/// Parses a file. Of one that is not TOML, only the problems are known.
pub(super) fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Structure<T> {
    let (whole, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problem = |error: &toml::de::Error| Problem {
            line: line_at(text, error.span().map_or(0, |span| span.start)),
            text: error.message().to_owned(),
        };
        return Structure {
            file: None,
            problems: errors.iter().take(PROBLEMS_MAX).map(problem).collect(),
            substitutes: Vec::new(),
        };
    }
    let mut reading = Reading {
        text,
        span: whole.span(),
        table: whole.into_inner(),
        problems: Vec::new(),
        fillers: Vec::new(),
    };
    let file = reading.parse();
    reading.into_structure(file)
}

/// A file that is parsed again until all its problems are known.
struct Reading<'a> {
    text: &'a str,
    span: Range<usize>,
    table: DeTable<'a>,
    problems: Vec<Problem>,
    fillers: Vec<Filler>,
}

impl Reading<'_> {
    /// Parses the file, with a substitute for each problem. `None`: there are too many problems, or
    /// one that no substitute solves.
    fn parse<T: for<'de> Deserialize<'de>>(&mut self) -> Option<T> {
        for _ in 0..ROUNDS_MAX {
            let table = Spanned::new(self.span.clone(), self.table.clone());
            let is_solved = match T::deserialize(Deserializer::from(table)) {
                Ok(read) => {
                    // An empty table in place of a wrong value hides what the file declares.
                    let hides = |filler: &Filler| filler.tried == Filler::TABLE;
                    return (!self.fillers.iter().any(hides)).then_some(read);
                }
                Err(error) => self.solve(&error),
            };
            if !is_solved {
                return None;
            }
        }
        None
    }

    /// Removes the cause of an error from the table, and notes the problem. Returns `false` if it
    /// stays, or if no more problems are reported.
    fn solve(&mut self, error: &toml::de::Error) -> bool {
        let at = error.span().unwrap_or_default();
        let of_filler = self.fillers.iter_mut().find(|filler| filler.span == at);
        if let Some(filler) = of_filler {
            return filler.try_next(&mut self.table, error.message());
        }
        let (path, message) = (keys(error), error.message());
        let is_solved = if let Some(field) = in_backticks(message, "missing field `") {
            self.note(
                line_of(self.text, &path),
                format!("{}: missing", dotted_path(&path, field)),
            );
            self.fill([path, vec![field.to_owned()]].concat(), &at)
        } else if let Some(field) = in_backticks(message, "unknown field `") {
            let what = unknown_key(field, message);
            self.note(
                line_at(self.text, at.start),
                format!("{}: {what}", dotted_path(&path, field)),
            );
            remove(&mut self.table, &at)
        } else {
            self.note(
                line_at(self.text, at.start),
                format!("{}: {}", path.join("."), in_words(message)),
            );
            self.fill(path, &at)
        };
        is_solved && self.problems.len() < PROBLEMS_MAX
    }

    fn note(&mut self, line: usize, text: String) {
        self.problems.push(Problem { line, text });
    }

    /// Inserts a substitute at a path.
    fn fill(&mut self, path: Vec<String>, at: &Range<usize>) -> bool {
        let marker = usize::MAX - 2 * (self.fillers.len() + 1);
        let filler = Filler {
            path,
            span: marker..marker + 1,
            tried: 0,
        };
        let is_filled = filler.fill(&mut self.table, at);
        self.fillers.push(filler);
        is_filled
    }

    fn into_structure<T>(mut self, file: Option<T>) -> Structure<T> {
        self.problems.sort_by_key(|problem| problem.line);
        let substitutes = self.fillers.into_iter().map(|filler| filler.path);
        Structure {
            file,
            problems: self.problems,
            substitutes: substitutes.collect(),
        }
    }
}

/// Describes an unknown key: the key that was probably meant, or all known ones.
fn unknown_key(key: &str, message: &str) -> String {
    let known: Vec<&str> = message
        .split_once(", expected ")
        .map_or("", |(_, known)| known)
        .split('`')
        .skip(1)
        .step_by(2)
        .collect();
    match suggested_name(key, known.iter().copied()) {
        Some(meant) => format!("unknown key; did you mean {meant}?"),
        None if known.is_empty() => "unknown key".to_owned(),
        None => format!("unknown key, expected one of {}", known.join(", ")),
    }
}

/// Returns the parser's message about a wrong type in the words of the documentation.
fn in_words(message: &str) -> String {
    let is_about_value = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = is_about_value.and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return message.to_owned();
    };
    let found = match found.split_once(' ') {
        Some(("integer", value)) => value.trim_matches('`').to_owned(),
        Some(("floating", value)) => value
            .trim_start_matches("point ")
            .trim_matches('`')
            .to_owned(),
        Some(("boolean", value)) => value.trim_matches('`').to_owned(),
        Some(("string", value)) => format!("the text {value}"),
        _ => match found {
            "sequence" => "a list".to_owned(),
            "map" => "a table".to_owned(),
            other => other.to_owned(),
        },
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    format!("use {expected} instead of {found}")
}

/// Returns the line of a field, given as a dotted path with indexes of lists: `webhooks[0].url`.
pub(super) fn line_of_field(text: &str, field: &str) -> usize {
    let path: Vec<String> = field.split('.').map(str::to_owned).collect();
    line_of(text, &path)
}

/// Returns the line of the value at a path of keys, or of its table if it is missing.
fn line_of(text: &str, path: &[String]) -> usize {
    let Ok(whole) = DeTable::parse(text) else {
        return 1;
    };
    let mut table = whole.get_ref();
    let mut line = 1;
    for key in path {
        let (key, at) = match key.split_once('[') {
            Some((key, at)) => (key, at.trim_end_matches(']').parse::<usize>().ok()),
            None => (key.as_str(), None),
        };
        let Some((key, value)) = table.get_key_value(key) else {
            break;
        };
        line = line_at(text, key.span().start);
        let entry = at.and_then(|at| {
            if let DeValue::Array(list) = value.get_ref() {
                list.get(at)
            } else {
                None
            }
        });
        if let Some(entry) = entry {
            line = line_at(text, entry.span().start);
        }
        let value = entry.unwrap_or(value);
        let DeValue::Table(below) = value.get_ref() else {
            break;
        };
        table = below;
    }
    line
}

fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Returns the path of keys to an error, without indexes of lists.
fn keys(error: &toml::de::Error) -> Vec<String> {
    let text = error.to_string();
    let keys = text
        .trim_end()
        .lines()
        .next_back()
        .and_then(|line| line.strip_prefix("in `")?.strip_suffix('`'));
    keys.map(|keys| keys.split('.').map(str::to_owned).collect())
        .unwrap_or_default()
}

fn in_backticks<'a>(message: &'a str, beginning: &str) -> Option<&'a str> {
    message.strip_prefix(beginning)?.split('`').next()
}

fn dotted_path(path: &[String], field: &str) -> String {
    path.iter()
        .map(String::as_str)
        .chain([field])
        .collect::<Vec<_>>()
        .join(".")
}

impl Filler {
    /// The try with an empty table.
    const TABLE: usize = 2;

    /// Inserts the next substitute that may be valid. Returns `false` if there is none left.
    fn try_next(&mut self, table: &mut DeTable<'_>, message: &str) -> bool {
        let own = self.span.clone();
        let value = match in_backticks(
            message
                .split_once("expected ")
                .map_or("", |(_, expected)| expected.trim_start_matches("one of ")),
            "`",
        ) {
            Some(variant) if message.starts_with("unknown variant") => {
                DeValue::String(Cow::Owned(variant.to_owned()))
            }
            _ => {
                self.tried += 1;
                match self.tried {
                    1 => DeValue::Array(DeArray::default()),
                    Self::TABLE => DeValue::Table(DeTable::new()),
                    3 => DeValue::Boolean(false),
                    4 => DeValue::Integer(DeInteger::default()),
                    _ => return false,
                }
            }
        };
        insert(table, &self.path, &own, Spanned::new(own.clone(), value))
    }

    fn fill(&self, table: &mut DeTable<'_>, at: &Range<usize>) -> bool {
        insert(
            table,
            &self.path,
            at,
            Spanned::new(self.span.clone(), DeValue::String(Cow::Borrowed(""))),
        )
    }
}

/// Replaces the value with this span, or inserts a missing one.
fn insert<'i>(
    table: &mut DeTable<'i>,
    path: &[String],
    at: &Range<usize>,
    value: Spanned<DeValue<'i>>,
) -> bool {
    let [key, below @ ..] = path else {
        return false;
    };
    if below.is_empty() {
        let stands_there = table
            .get(key.as_str())
            .is_none_or(|there| there.span() == *at || span_within(there, at));
        if stands_there {
            match table.get_mut(key.as_str()) {
                Some(there) => *there = value,
                None => {
                    table.insert(Spanned::new(value.span(), Cow::Owned(key.clone())), value);
                }
            }
        }
        return stands_there;
    }
    match table.get_mut(key.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(table)) => insert(table, below, at, value),
        Some(DeValue::Array(list)) => list.iter_mut().any(|element| match element.get_mut() {
            DeValue::Table(table) => insert(table, below, at, value.clone()),
            _ => false,
        }),
        _ => false,
    }
}

fn span_within(value: &Spanned<DeValue<'_>>, at: &Range<usize>) -> bool {
    value.span().start <= at.start && at.end <= value.span().end
}

/// Removes the entry whose key has this span.
fn remove(table: &mut DeTable<'_>, at: &Range<usize>) -> bool {
    let wrong = table
        .keys()
        .find(|key| key.span() == *at)
        .map(|key| key.get_ref().clone());
    wrong.is_some_and(|key| table.remove(key.as_ref()).is_some())
        || table.iter_mut().any(|(_, value)| match value.get_mut() {
            DeValue::Table(table) => remove(table, at),
            DeValue::Array(list) => list.iter_mut().any(|element| match element.get_mut() {
                DeValue::Table(table) => remove(table, at),
                _ => false,
            }),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::super::file::FileConfig;
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let problems = read::<FileConfig>(text).problems;
        problems
            .into_iter()
            .map(|Problem { line, text }| {
                format!(
                    "{line}: {}",
                    text.split(", expected").next().unwrap_or_default()
                )
            })
            .collect()
    }

    #[test]
    fn every_problem_names_its_line() {
        let text = "live_runs_max = \"many\"\ncolour = 1\n\n[presets.x]\ntitel = \"X\"\nargs = \"no list\"\n\n[agents.a]\ncomand = [\"x\"]\n\
                    timeout = 5\n\n[agents.b]\nharness = 1\ncommand = [\"x\", 2]\n\n[[webhooks]]\nurl = 7\nsecret_file = \"x\"\n\n[[webhooks]]\nchat = 7\n";
        let found = problems(text);
        for expected in [
            "1: live_runs_max: use a whole number that is not negative instead of the text \"many\"",
            "2: colour: unknown key",
            "4: presets.x.driver: missing",
            "5: presets.x.titel: unknown key; did you mean title?",
            "6: presets.x.args: use a list instead of the text \"no list\"",
            "9: agents.a.comand: unknown key; did you mean command?",
            "10: agents.a.timeout: use a text in quotes instead of 5",
            "13: agents.b.harness: use a text in quotes instead of 1",
            "14: agents.b.command: use a text in quotes instead of 2",
            "17: webhooks.url: use a text in quotes instead of 7",
            "21: webhooks.chat: use a text in quotes instead of 7",
        ] {
            assert!(
                found.iter().any(|problem| problem == expected),
                "{expected} is not in {found:#?}"
            );
        }
    }

    #[test]
    fn problems_are_bounded_and_valid_files_have_none() {
        let many: String = (0..100).map(|n| format!("x{n} = 1\n")).collect();
        assert_eq!(problems(&many).len(), PROBLEMS_MAX);
        assert!(problems("a = \nb = = 2\n").len() >= 2);
        assert_eq!(
            problems("[agents.a]\nharness = \"acp\"\ncommand = [\"x\"]\n"),
            Vec::<String>::new()
        );
        for garbage in [
            "[agents]\nx = 1\n",
            "agents = 1\n",
            "presets = [1]\n",
            "[presets.x.stream]\nrules = [1, {when = 2}]\n",
            "[[agents]]\n",
            "webhooks = {}\n",
        ] {
            assert!(!problems(garbage).is_empty(), "{garbage}");
        }
    }
}
