//! Search on a server: every word of the query must appear, in any case. The newest matches come
//! first; there are no scores. The server indexes the words of each text, and each character of
//! scripts without spaces as a word (`words_apart` in its schema). The index says which texts have
//! all of them, in any order, and the text decides. Composed and decomposed characters match.

use super::unspaced::{indexed, joined};
use super::{FoundText, Hit, MARK_BEGIN, MARK_END, Part, Query, Source};
use crate::store::db::{Record, Value, params_from_iter};
use crate::store::ids::{request_id, run_id};
use crate::store::{ChatEntry, Connection, StoreError, chats_of_others, request_by_id, run_by_id};
use adjutant_core::chat::Viewer;
use adjutant_core::{Principal, Time, shorten};

/// Characters of a snippet before the first match, and in all.
const BEFORE_CHARS: usize = 60;
const SNIPPET_CHARS: usize = 240;
/// Maximum number of chats of other owners that a search includes, newest first.
const FOREIGN_MAX: u32 = 64;

/// Among how many of the newest texts a search begins. Words that are in many texts are found
/// there; others are in few texts, which the index finds.
const NEWEST: i64 = 2_000;
/// The server ignores longer words.
const WORD_BYTES_MAX: usize = 2_000;

/// The conditions of a search and their values.
#[derive(Default)]
struct Conditions {
    sql: String,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition whose `?` are one value.
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        self.sql
            .push_str(if self.sql.is_empty() { "" } else { " AND " });
        self.sql
            .push_str(&condition.replace('?', &format!("?{}", self.values.len())));
    }

    fn words(&mut self, column: &str, words: &[String]) {
        for word in words {
            if is_indexed(word) {
                self.add(&format!("to_tsvector('simple', words_apart({column})) @@ plainto_tsquery('simple', words_apart(?))"), word.clone());
            }
            self.add(
                &format!("strpos(folded({column}), folded(?)) > 0"),
                word.clone(),
            );
        }
    }

    /// Returns the table to search, or its newest rows only. The planner does not look into the
    /// subquery, so it reads no others.
    fn source(&mut self, table: &str, number: &str, only_newest: bool) -> String {
        if !only_newest {
            return table.to_owned();
        }
        self.values.push(Value::Integer(NEWEST));
        format!(
            "(SELECT * FROM {table} ORDER BY {number} DESC LIMIT ?{})",
            self.values.len()
        )
    }

    /// Limits the hits to those with the highest numbers.
    fn limit(mut self, number: &str, limit: u32) -> (String, Vec<Value>) {
        self.values.push(Value::Integer(i64::from(limit)));
        (
            format!(
                "{} ORDER BY {number} DESC LIMIT ?{}",
                self.sql,
                self.values.len()
            ),
            self.values,
        )
    }
}

/// Splits a query into the words to look for. Empty: there are none.
pub(super) fn words(text: &str) -> Vec<String> {
    super::query_words(text)
        .map(|word| joined(indexed(word).into_owned()))
        .collect()
}

/// Returns whether the server indexes a word: it has letters or ASCII digits.
fn is_indexed(word: &str) -> bool {
    word.len() <= WORD_BYTES_MAX
        && word
            .chars()
            .any(|c| c.is_alphabetic() || c.is_ascii_digit())
}

/// Searches the newest texts, and all if these have too few matches. `find`: whether only among the
/// newest.
fn newest_first(
    connection: &Connection,
    limit: u32,
    find: impl Fn(bool) -> Result<Part, StoreError>,
) -> Result<Part, StoreError> {
    if !connection.has_time_left()? {
        return Ok((Vec::new(), true));
    }
    let (newest, is_broken_off) = find(true)?;
    if is_broken_off || newest.len() >= limit as usize {
        return Ok((newest, is_broken_off));
    }
    if !connection.has_time_left()? {
        return Ok((newest, true));
    }
    match find(false) {
        Err(StoreError::Interrupted) => Ok((newest, true)),
        Ok((all, true)) if all.len() < newest.len() => Ok((newest, true)),
        found => found,
    }
}

/// Searches chat entries that the viewer may see.
pub(super) fn find_entries(
    connection: &Connection,
    viewer: &Viewer,
    query: &Query,
    words: &[String],
) -> Result<Part, StoreError> {
    newest_first(connection, query.limit, |only_newest| {
        entries(connection, viewer, query, words, only_newest)
    })
}

fn entries(
    connection: &Connection,
    viewer: &Viewer,
    query: &Query,
    words: &[String],
    only_newest: bool,
) -> Result<Part, StoreError> {
    const TAKES_PART: &str = "EXISTS (SELECT 1 FROM chat_members p WHERE p.chat = c.id AND p.joined_at IS NOT NULL AND p.who = ?)";
    let mut wanted = Conditions::default();
    let who = viewer.who.to_string();
    match (query.chat, &viewer.who) {
        (Some(chat), _) => wanted.add("m.chat = ?", chat.0),
        (None, Principal::Person) => {}
        (None, Principal::Client(_)) => {
            let foreign: Vec<String> = chats_of_others(connection, &viewer.who, FOREIGN_MAX)?
                .iter()
                .map(ToString::to_string)
                .collect();
            let foreign = if foreign.is_empty() {
                "NULL".to_owned()
            } else {
                foreign.join(", ")
            };
            wanted.add(&format!("((c.private = 0 AND c.owner = ?) OR {TAKES_PART}) AND (c.owner = ? OR c.id IN ({foreign}))"), who);
        }
        (None, Principal::Run(_)) => {
            wanted.add("c.owner = ?", viewer.scope.owner.to_string());
            let root = viewer
                .scope
                .root
                .map(|root| root.to_string())
                .unwrap_or_default();
            wanted.add("(c.kind <> 'board' OR c.root IS NULL OR c.root = ?)", root);
            wanted.add(&format!("(c.private = 0 OR {TAKES_PART})"), who);
        }
    }
    if let Some(from) = &query.from {
        wanted.add("m.author = ?", from.clone());
    }
    if query.has_question {
        wanted.add("strpos(m.text, ?) > 0", "?".to_owned());
    }
    for (time, condition) in [(query.since, "m.at >= ?"), (query.until, "m.at < ?")] {
        if let Some(Time(at)) = time {
            wanted.add(condition, at);
        }
    }
    wanted.words("m.text", words);
    let source = wanted.source("chat_messages", "id", only_newest);
    let (conditions, values) = wanted.limit("m.id", query.limit);
    let sql = format!(
        "{}, c.title FROM {source} m JOIN chats c ON c.id = m.chat WHERE c.importing IS NULL AND {conditions}",
        ChatEntry::SELECT
    );
    let mut statement = connection.prepare_cached(&sql)?;
    super::collect(statement.query(params_from_iter(values))?, |row| {
        let (entry, title): (ChatEntry, _) = row.read()?;
        Ok(Hit {
            at: entry.at,
            snippet: snippet(&entry.text, words),
            found: FoundText::Entry(Box::new(entry), title),
        })
    })
}

/// Searches requests and reports that the viewer may see.
pub(super) fn find_documents(
    connection: &Connection,
    viewer: &Viewer,
    query: &Query,
    words: &[String],
) -> Result<Part, StoreError> {
    newest_first(connection, query.limit, |only_newest| {
        documents(connection, viewer, query, words, only_newest)
    })
}

fn documents(
    connection: &Connection,
    viewer: &Viewer,
    query: &Query,
    words: &[String],
    only_newest: bool,
) -> Result<Part, StoreError> {
    let wants = |source| query.within.is_empty() || query.within.contains(&source);
    let mut wanted = Conditions::default();
    match (wants(Source::Questions), wants(Source::Reports)) {
        (true, true) => {}
        (true, false) => wanted.add("d.kind = ?", "request".to_owned()),
        (false, true) => wanted.add("d.kind = ?", "report".to_owned()),
        (false, false) => return Ok(Part::default()),
    }
    let tagged = |tag: String| format!(" {tag} ");
    let has_tag = "strpos(' ' || f.tags || ' ', ?) > 0";
    match &viewer.who {
        Principal::Person => {}
        Principal::Client(_) => wanted.add("r.owner = ?", viewer.who.to_string()),
        Principal::Run(id) => wanted.add(
            "(d.run = ? OR (d.kind = 'report' AND r.parent = ?))",
            id.to_string(),
        ),
    }
    if let Some(from) = &query.from {
        wanted.add(has_tag, tagged(super::tag('a', from)));
    }
    if query.has_question {
        wanted.add(has_tag, tagged("q".to_owned()));
    }
    for (time, condition) in [(query.since, "d.at >= ?"), (query.until, "d.at < ?")] {
        if let Some(Time(at)) = time {
            wanted.add(condition, at);
        }
    }
    wanted.words("f.text", words);
    let source = wanted.source("search_fts", "rowid", only_newest);
    let (conditions, values) = wanted.limit("d.id", query.limit);
    let sql = format!(
        "SELECT d.kind, d.ref, d.at, f.text FROM {source} f JOIN search_docs d ON d.id = f.rowid JOIN runs r ON r.id = d.run WHERE {conditions}"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    super::collect(statement.query(params_from_iter(values))?, |row| {
        let (kind, reference, at, text): (String, String, _, String) = row.read()?;
        let corrupt = || StoreError::Corrupt(format!("{kind} {reference} of the index"));
        let found = if kind == "request" {
            FoundText::Request(Box::new(
                request_by_id(connection, request_id(&reference)?)?.ok_or_else(corrupt)?,
            ))
        } else {
            FoundText::Report(Box::new(
                run_by_id(connection, run_id(&reference)?)?.ok_or_else(corrupt)?,
            ))
        };
        Ok(Hit {
            found,
            at,
            snippet: snippet(&text, words),
        })
    })
}

/// Cuts an excerpt around the first match and marks each match in it.
fn snippet(text: &str, words: &[String]) -> String {
    let chars: Vec<char> = text.chars().collect();
    // One lower-case character for each character, so that positions stay the same.
    let lower: Vec<char> = chars
        .iter()
        .map(|c| c.to_lowercase().next().unwrap_or(*c))
        .collect();
    let words: Vec<Vec<char>> = words
        .iter()
        .map(|word| word.to_lowercase().chars().collect())
        .collect();
    let match_at = |at: usize| {
        words
            .iter()
            .filter(|word| lower[at..].starts_with(word))
            .map(Vec::len)
            .max()
    };
    let first = (0..chars.len())
        .find(|at| match_at(*at).is_some())
        .unwrap_or(0);
    let begin = first.saturating_sub(BEFORE_CHARS);
    let end = (begin + SNIPPET_CHARS).min(chars.len());
    let mut out = String::new();
    if begin > 0 {
        out.push(shorten::MARK);
    }
    let mut at = begin;
    while at < end {
        match match_at(at) {
            Some(length) => {
                out.push(MARK_BEGIN);
                out.extend(&chars[at..at + length]);
                out.push(MARK_END);
                at += length;
            }
            None => {
                out.push(chars[at]);
                at += 1;
            }
        }
    }
    if end < chars.len() {
        out.push(shorten::MARK);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippet_marks_matches() {
        let marked = |text: &str, query: &str| {
            snippet(text, &words(query))
                .replace(MARK_BEGIN, "[")
                .replace(MARK_END, "]")
        };
        assert_eq!(
            marked("Migrate the Database, database!", "database"),
            "Migrate the [Database], [database]!"
        );
        assert_eq!(marked("把数据库迁移完", "数据库"), "把[数据库]迁移完");
        assert_eq!(
            marked(&format!("{} x", "a".repeat(500)), "x"),
            format!("…{} [x]", "a".repeat(59))
        );
        assert_eq!(marked("İ", "x"), "İ");
    }
}
