//! Full-text search over chat entries, requests with their answers, and completion reports. A query
//! is a list of words, never a query language.
//!
//! There are two indexes: chat entries are indexed in batches (see [`entries`]), requests and
//! reports from the event history (see [`documents`]). Each is queried up to the limit, and the
//! results are merged.

mod documents;
mod entries;
mod plain;
#[cfg(test)]
pub(super) mod tests;
mod unspaced;

pub(in crate::store) use entries::{
    index_again, index_chat_again, note_entry, unindex_chat, unindex_entry,
};
pub(super) use unspaced::TEXT_FUNCTIONS;

use adjutant_core::{hex, words};
pub use documents::{Backlog, search_backlog};
pub use entries::has_unindexed_entries;

use super::{ChatEntry, Connection, Request, Run, StoreError};
use crate::store::db::{self, Value, params};
use adjutant_core::Time;
use adjutant_core::chat::{ChatId, Viewer};

/// Maximum number of words in a query; further words are ignored.
const WORDS_MAX: usize = 32;
/// Only this many of the newest matches are ranked by relevance, because each must be scored.
const BEST_AMONG: u32 = 20_000;
/// Marks the beginning of a match in a snippet, and its end.
pub const MARK_BEGIN: char = '\u{2}';
pub const MARK_END: char = '\u{3}';
const SNIPPET_WORDS: u32 = 24;
/// Length of a snippet where every character counts as a word; the maximum that FTS5 allows.
const SNIPPET_CHARS: u32 = 64;

/// A source of search results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Chats,
    Questions,
    Reports,
}

words!(Source { Chats = "chats", Questions = "questions", Reports = "reports" });

/// A search query.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pub text: String,
    /// Empty: all sources.
    pub within: Vec<Source>,
    /// Only this chat, which excludes the other sources.
    pub chat: Option<ChatId>,
    /// The author, asker, answerer or reporter, as a serialized participant.
    pub from: Option<String>,
    pub since: Option<Time>,
    pub until: Option<Time>,
    /// Only questions, and entries that contain a question mark.
    pub has_question: bool,
    /// Sort by relevance instead of by time.
    pub best: bool,
    pub limit: u32,
}

/// One match.
#[derive(Debug, Clone)]
pub struct Hit {
    pub found: FoundText,
    pub at: Time,
    /// An excerpt with [`MARK_BEGIN`] and [`MARK_END`] around each match.
    pub snippet: String,
}

#[derive(Debug, Clone)]
pub enum FoundText {
    /// An entry with its chat's title.
    Entry(Box<ChatEntry>, String),
    Request(Box<Request>),
    Report(Box<Run>),
}

/// The hits from one index, and whether the deadline cut the search short.
type Part = (Vec<Hit>, bool);

/// Searches the entries that a viewer may see. Also returns whether the deadline cut the search
/// short.
///
/// # Errors
/// A failure of the store.
pub fn search(
    connection: &Connection,
    viewer: &Viewer,
    query: &Query,
) -> Result<(Vec<Hit>, bool), StoreError> {
    let Some(words) = words(&query.text) else {
        return Ok((Vec::new(), false));
    };
    let plain_words = if connection.has_fts5() {
        Vec::new()
    } else {
        plain::words(&query.text)
    };
    let find_entries = || match connection.has_fts5() {
        true => entries::find(connection, viewer, query, &words),
        false => plain::find_entries(connection, viewer, query, &plain_words),
    };
    let find_documents = || match connection.has_fts5() {
        true => documents::find(connection, viewer, query, &words),
        false => plain::find_documents(connection, viewer, query, &plain_words),
    };
    let wants = |source| query.within.is_empty() || query.within.contains(&source);
    let (mut entries, mut broken_off) = if wants(Source::Chats) {
        in_time(find_entries())?
    } else {
        Part::default()
    };
    let (mut documents, more) = if query.chat.is_none() && !broken_off {
        in_time(find_documents())?
    } else {
        Part::default()
    };
    broken_off |= more;
    let limit = query.limit as usize;
    if query.best {
        // Scores of two indexes cannot be compared, but ranks can: take the best of each
        // alternately.
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

/// Treats a search that was interrupted before its first hit as empty and incomplete.
fn in_time(part: Result<Part, StoreError>) -> Result<Part, StoreError> {
    match part {
        Err(StoreError::Interrupted) => Ok((Vec::new(), true)),
        part => part,
    }
}

/// Converts the text of a document from the index of any engine to the form in which the index of
/// this one has it.
pub(in crate::store) fn text_for_index(connection: &Connection, text: String) -> String {
    let plain = unspaced::joined(text);
    if connection.has_fts5() {
        unspaced::indexed(&plain).into_owned()
    } else {
        plain
    }
}

/// Splits a query into its words.
fn query_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(WORDS_MAX)
}

/// Converts words to an FTS5 query in which nothing has a special meaning. `None`: there are no
/// words.
fn words(text: &str) -> Option<String> {
    let words: Vec<String> = query_words(text)
        .map(|word| format!("\"{}\"", unspaced::indexed(word).replace('"', "\"\"")))
        .collect();
    if words.is_empty() {
        None
    } else {
        Some(format!("text : ({})", words.join(" AND ")))
    }
}

/// Returns the tag for a value, encoded like in the schema's views.
fn tag(kind: char, value: &str) -> String {
    format!("{kind}{}", hex(value))
}

/// The conditions of one search: the match expression for the index, and SQL conditions on the
/// rows.
struct Terms {
    matching: String,
    /// The parameters. The first is reserved for the match expression.
    values: Vec<Value>,
    conditions: String,
    snippet_words: u32,
}

impl Terms {
    fn new(words: &str) -> Self {
        let snippet_words = if unspaced::has_unspaced(words) {
            SNIPPET_CHARS
        } else {
            SNIPPET_WORDS
        };
        Self {
            matching: words.to_owned(),
            values: vec![Value::Null],
            conditions: String::new(),
            snippet_words,
        }
    }

    /// Requires any of these tags.
    fn tags(&mut self, any: &[String]) {
        let any: Vec<String> = any.iter().map(|tag| format!("\"{tag}\"")).collect();
        self.matching = format!("(tags : ({})) AND {}", any.join(" OR "), self.matching);
    }

    /// Adds an SQL condition with one parameter, written as `?`.
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        self.conditions.push_str(" AND ");
        self.conditions
            .push_str(&condition.replace('?', &format!("?{}", self.values.len())));
    }

    /// Restricts the search to the newest matches, as many as can be ranked in time.
    fn among_newest(
        &mut self,
        connection: &Connection,
        index: &'static str,
    ) -> Result<(), StoreError> {
        let oldest: Option<i64> = connection
            .prepare_cached(&format!("SELECT rowid FROM {index} WHERE {index} MATCH ?1 ORDER BY rowid DESC LIMIT 1 OFFSET ?2"))?
            .find_row(params![self.matching, BEST_AMONG - 1])?;
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

/// Collects rows until the end or the deadline. Hits found before the deadline are valid.
fn collect(
    mut rows: db::Rows<'_>,
    mut read: impl FnMut(&db::Row<'_>) -> Result<Hit, StoreError>,
) -> Result<Part, StoreError> {
    let mut hits = Vec::new();
    loop {
        let next = rows
            .next()
            .map_err(StoreError::from)
            .and_then(|row| row.map(|row| read(&row)).transpose());
        match next {
            Ok(Some(hit)) => hits.push(hit),
            Ok(None) => return Ok((hits, false)),
            Err(StoreError::Interrupted) => return Ok((hits, true)),
            Err(error) => return Err(error),
        }
    }
}
