//! Searching what was said: entries of chats, requests with their answers, completion reports. What
//! a user types is words, never a query language.
//!
//! There are two indexes. Entries of chats are indexed some at a time (see [`entries`]); requests and
//! reports behind the history (see [`documents`]). Each is asked for as many as are wanted, and the two lists
//! are merged.

mod documents;
mod entries;
#[cfg(test)]
mod tests;
mod unspaced;

pub(super) use unspaced::register;

use adjutant_core::words;
pub use documents::{Backlog, search_backlog};
pub use entries::has_unindexed_entries;

use super::{ChatEntry, Connection, Request, Run, StoreError};
use adjutant_core::Time;
use adjutant_core::chat::{ChatId, Viewer};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params};

/// Most words of a query that count.
const WORDS_MAX: usize = 32;
/// The best are looked for among this many of the newest matches, since each has to be weighed.
const BEST_AMONG: u32 = 20_000;
/// Begin and end of what matched, within a snippet.
pub const MARK_BEGIN: char = '\u{2}';
pub const MARK_END: char = '\u{3}';
const SNIPPET_WORDS: u32 = 24;
/// Where every character counts as a word. The index gives no more.
const SNIPPET_CHARS: u32 = 64;

/// Where a search looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Chats,
    Questions,
    Reports,
}

words!(Source { Chats = "chats", Questions = "questions", Reports = "reports" });

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pub text: String,
    /// Empty: everywhere.
    pub within: Vec<Source>,
    /// Only in this chat, so in no other source.
    pub chat: Option<ChatId>,
    /// A participant, written down: who wrote, asked, answered or reported.
    pub from: Option<String>,
    pub since: Option<Time>,
    pub until: Option<Time>,
    /// Only questions, and entries with a question mark.
    pub has_question: bool,
    /// The best first, instead of the newest.
    pub best: bool,
    pub limit: u32,
}

/// Something that matches.
#[derive(Debug, Clone)]
pub struct Hit {
    pub found: Found,
    pub at: Time,
    /// With [`MARK_BEGIN`] and [`MARK_END`] around what matched.
    pub snippet: String,
}

#[derive(Debug, Clone)]
pub enum Found {
    /// An entry, and its chat's title.
    Entry(Box<ChatEntry>, String),
    Request(Box<Request>),
    Report(Box<Run>),
}

/// What an index was asked for: the hits, and whether the deadline came before the end.
type Part = (Vec<Hit>, bool);

/// Finds what a viewer may see. Tells with it whether the deadline came before the end.
///
/// # Errors
/// A failure of the store.
pub fn search(connection: &Connection, viewer: &Viewer, query: &Query) -> Result<(Vec<Hit>, bool), StoreError> {
    let Some(words) = words(&query.text) else { return Ok((Vec::new(), false)) };
    let wants = |source| query.within.is_empty() || query.within.contains(&source);
    let (mut entries, mut broken_off) =
        if wants(Source::Chats) { in_time(entries::find(connection, viewer, query, &words))? } else { Part::default() };
    let (mut documents, more) =
        if query.chat.is_none() && !broken_off { in_time(documents::find(connection, viewer, query, &words))? } else { Part::default() };
    broken_off |= more;
    let limit = query.limit as usize;
    if query.best {
        // Weights of two indexes cannot be compared, places can: the best of each, alternately.
        let (mut left, mut right) = (entries.into_iter(), documents.into_iter());
        let mut hits = Vec::with_capacity(limit);
        loop {
            let (one, other) = (left.next(), right.next());
            if one.is_none() && other.is_none() {
                break;
            }
            hits.extend(one.into_iter().chain(other));
        }
        hits.truncate(limit);
        return Ok((hits, broken_off));
    }
    if !documents.is_empty() {
        entries.append(&mut documents);
        entries.sort_by_key(|hit| std::cmp::Reverse(hit.at));
    }
    entries.truncate(limit);
    Ok((entries, broken_off))
}

/// Takes a part that the deadline has cut off for one that has found nothing yet.
fn in_time(part: Result<Part, StoreError>) -> Result<Part, StoreError> {
    match part {
        Err(StoreError::Interrupted) => Ok((Vec::new(), true)),
        part => part,
    }
}

/// Writes words as a query in which nothing has a meaning of its own. `None`: there is no word.
fn words(text: &str) -> Option<String> {
    let words: Vec<String> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(WORDS_MAX)
        .map(|word| format!("\"{}\"", unspaced::indexed(word).replace('"', "\"\"")))
        .collect();
    if words.is_empty() { None } else { Some(format!("text : ({})", words.join(" AND "))) }
}

/// Writes a tag that stands for a value, as the schema's views do.
fn tag(kind: char, value: &str) -> String {
    use std::fmt::Write;
    let mut tag = String::with_capacity(1 + 2 * value.len());
    tag.push(kind);
    for byte in value.bytes() {
        write!(tag, "{byte:02x}").expect("writing to a string never fails");
    }
    tag
}

/// The conditions of one search: what the index is asked, and what is asked of the rows behind it.
struct Terms {
    matching: String,
    /// The first is left for the match.
    values: Vec<Value>,
    conditions: String,
    snippet_words: u32,
}

impl Terms {
    fn new(words: &str) -> Self {
        let snippet_words = if unspaced::has_unspaced(words) { SNIPPET_CHARS } else { SNIPPET_WORDS };
        Self { matching: words.to_owned(), values: vec![Value::Null], conditions: String::new(), snippet_words }
    }

    /// Asks for any of these tags.
    fn tags(&mut self, any: &[String]) {
        let any: Vec<String> = any.iter().map(|tag| format!("\"{tag}\"")).collect();
        self.matching = format!("(tags : ({})) AND {}", any.join(" OR "), self.matching);
    }

    /// Asks for a condition with one value, which it writes as `?`.
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        self.conditions.push_str(" AND ");
        self.conditions.push_str(&condition.replace('?', &format!("?{}", self.values.len())));
    }

    /// Asks for the newest matches only that can be weighed in time.
    fn among_newest(&mut self, connection: &Connection, index: &'static str) -> Result<(), StoreError> {
        let oldest: Option<i64> = connection
            .prepare_cached(&format!("SELECT rowid FROM {index} WHERE {index} MATCH ?1 ORDER BY rowid DESC LIMIT 1 OFFSET ?2"))?
            .query_row(params![self.matching, BEST_AMONG - 1], |row| row.get(0))
            .optional()?;
        if let Some(oldest) = oldest {
            self.add("f.rowid >= ?", oldest);
        }
        Ok(())
    }

    fn values(mut self, limit: u32) -> Vec<Value> {
        self.values[0] = Value::Text(self.matching);
        self.values.push(Value::Integer(i64::from(limit)));
        self.values
    }
}

/// Collects rows until there are no more, or the deadline comes: what was found by then is right.
fn collect(mut rows: rusqlite::Rows<'_>, mut read: impl FnMut(&rusqlite::Row<'_>) -> Result<Hit, StoreError>) -> Result<Part, StoreError> {
    let mut hits = Vec::new();
    loop {
        let next = rows.next().map_err(StoreError::from).and_then(|row| row.map(&mut read).transpose());
        match next {
            Ok(Some(hit)) => hits.push(hit),
            Ok(None) => return Ok((hits, false)),
            Err(StoreError::Interrupted) => return Ok((hits, true)),
            Err(error) => return Err(error),
        }
    }
}
