//! Searching chats: what somebody types is words, never a query language of ours.

use super::ChatEntry;
use super::read::read_entry;
use crate::store::StoreError;
use adjutant_core::chat::{ChatId, Viewer};
use adjutant_core::{Principal, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

/// Most words of a query that count.
const WORDS_MAX: usize = 32;
/// Best matches are looked for among this many of the newest entries.
const BEST_AMONG: i64 = 50_000;
/// With no more chats than this, a search looks into them alone.
const CHATS_NAMED_MAX: usize = 64;
/// Begin and end of what matched, within a snippet: no text brings them along, since they are taken out.
pub const MARK_BEGIN: char = '\u{2}';
pub const MARK_END: char = '\u{3}';
const SNIPPET_WORDS: u32 = 24;

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct ChatQuery {
    pub text: String,
    pub chat: Option<ChatId>,
    /// A participant, written down.
    pub from: Option<String>,
    pub since: Option<Time>,
    pub until: Option<Time>,
    /// Only entries with a question mark.
    pub has_question: bool,
    /// The best first, instead of the newest.
    pub best: bool,
    pub limit: u32,
}

/// One entry that matches.
#[derive(Debug, Clone)]
pub struct ChatHit {
    pub entry: ChatEntry,
    pub title: String,
    /// With [`MARK_BEGIN`] and [`MARK_END`] around what matched.
    pub snippet: String,
}

/// Writes words as a query in which nothing has a meaning of its own. `None`: there is no word.
fn as_query(text: &str, chats: Option<&[ChatId]>) -> Option<String> {
    let words: Vec<String> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(WORDS_MAX)
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"")))
        .collect();
    if words.is_empty() {
        return None;
    }
    let words = format!("text : ({})", words.join(" AND "));
    Some(match chats {
        Some(chats) => format!("chat : ({}) AND {words}", chats.iter().map(|chat| format!("\"c{chat}\"")).collect::<Vec<_>>().join(" OR ")),
        None => words,
    })
}

/// Finds entries that somebody may see. Tells with them whether the deadline came before the end.
///
/// # Errors
/// A failure of the store.
pub fn search_chats(connection: &Connection, viewer: &Viewer, query: &ChatQuery) -> Result<(Vec<ChatHit>, bool), StoreError> {
    let visible = match (query.chat, &viewer.who) {
        (Some(chat), _) => Some(vec![chat]),
        (None, Principal::Person) => None,
        (None, _) => {
            let chats = super::chats_newest(connection, viewer, None, u32::try_from(CHATS_NAMED_MAX + 1).unwrap_or(u32::MAX))?;
            if chats.is_empty() {
                return Ok((Vec::new(), false));
            }
            (chats.len() <= CHATS_NAMED_MAX).then(|| chats.iter().map(|chat| chat.id).collect())
        }
    };
    let Some(matching) = as_query(&query.text, visible.as_deref()) else { return Ok((Vec::new(), false)) };
    let mut values: Vec<Value> = vec![Value::Text(matching)];
    let mut conditions = String::new();
    let mut add = |condition: &str, value: Value, values: &mut Vec<Value>| {
        values.push(value);
        conditions.push_str(&condition.replace('?', &format!("?{}", values.len())));
    };
    if let Some(from) = &query.from {
        add(" AND m.author = ?", Value::Text(from.clone()), &mut values);
    }
    if let Some(since) = query.since {
        add(" AND m.at >= ?", Value::Integer(since.0), &mut values);
    }
    if let Some(until) = query.until {
        add(" AND m.at < ?", Value::Integer(until.0), &mut values);
    }
    if query.has_question {
        add(" AND instr(m.text, ?) > 0", Value::Text("?".to_owned()), &mut values);
    }
    // Who is not the person sees what is theirs, by the same rule as everywhere.
    if viewer.who != Principal::Person && query.chat.is_none() {
        let member = "EXISTS (SELECT 1 FROM chat_members p WHERE p.chat = c.id AND p.joined_at IS NOT NULL AND p.who = ?)";
        let who = Value::Text(viewer.who.to_string());
        match viewer.scope.root.filter(|_| matches!(viewer.who, Principal::Run(_))) {
            None => {
                add(" AND ((c.private = 0 AND c.owner = ?)", who.clone(), &mut values);
                add(&format!(" OR {member})"), who, &mut values);
            }
            Some(root) => {
                add(" AND c.owner = ?", Value::Text(viewer.scope.owner.to_string()), &mut values);
                add(" AND (c.root IS NULL OR c.root = ?)", Value::Text(root.to_string()), &mut values);
                add(&format!(" AND (c.private = 0 OR {member})"), who, &mut values);
            }
        }
    }
    let order = if query.best {
        let newest: i64 = connection.prepare_cached("SELECT coalesce(max(id), 0) FROM chat_messages")?.query_row([], |row| row.get(0))?;
        add(" AND f.rowid > ?", Value::Integer(newest - BEST_AMONG), &mut values);
        "f.rank"
    } else {
        "f.rowid DESC"
    };
    values.push(Value::Integer(i64::from(query.limit)));
    let sql = format!(
        "SELECT m.id, m.chat, m.seq, m.kind, m.author, m.name, m.label, m.text, m.at, m.reply_to, m.hops, m.pinned, m.revision, m.edited_at, m.key, c.title,
           snippet(chat_fts, 1, char(2), char(3), '…', {SNIPPET_WORDS})
         FROM chat_fts f CROSS JOIN chat_messages m ON m.id = f.rowid CROSS JOIN chats c ON c.id = m.chat
         WHERE chat_fts MATCH ?1{conditions} ORDER BY {order} LIMIT ?{}",
        values.len()
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut hits = Vec::new();
    loop {
        match rows.next().map_err(StoreError::from) {
            Ok(Some(row)) => hits.push(ChatHit { entry: read_entry(row)??, title: row.get(15)?, snippet: row.get(16)? }),
            Ok(None) => return Ok((hits, false)),
            // What was found by then is right; there may be more.
            Err(StoreError::Interrupted) => return Ok((hits, true)),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_typed_is_words() {
        assert_eq!(
            as_query("a \"b* OR NEAR(c) text:d", None).as_deref(),
            Some("text : (\"a\" AND \"\"\"b*\" AND \"OR\" AND \"NEAR(c)\" AND \"text:d\")")
        );
        assert_eq!(as_query("*** \" () \u{0}", None), None);
        assert_eq!(as_query("a", Some(&[ChatId(3), ChatId(4)])).as_deref(), Some("chat : (\"c3\" OR \"c4\") AND text : (\"a\")"));
    }
}
