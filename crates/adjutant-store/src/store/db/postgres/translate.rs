//! Translates the store's SQL: parameters, and the hints that SQLite's planner needs.

/// Converts a statement. `?1` becomes `$1`. Hints (`INDEXED BY`, and `CROSS JOIN` with a condition)
/// are removed.
pub(super) fn translated(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        match c {
            '\'' | '"' => {
                let end = rest[1..].find(c).map_or(rest.len(), |at| at + 2);
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            '?' => {
                out.push('$');
                rest = &rest[1..];
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let word = word(rest);
                let after = &rest[word.len()..];
                if word == "INDEXED" {
                    // `INDEXED BY name`
                    let index = skip_word(skip_word(after));
                    out.truncate(out.trim_end().len());
                    rest = index;
                } else if word == "CROSS" && has_condition(after) {
                    rest = after.trim_start();
                } else {
                    out.push_str(word);
                    rest = after;
                }
            }
            c if c.is_ascii_digit() => {
                // A digit that begins no word, such as in `$12`.
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(rest.len());
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            c => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

/// Gives text parameters the collation of the columns, so that the types of recursive queries
/// agree. `is_text`: whether a parameter, counted from 1, is a text.
pub(super) fn with_collation(translated: &str, is_text: impl Fn(usize) -> bool) -> String {
    let mut out = String::with_capacity(translated.len() + 64);
    let mut is_quoted = false;
    let mut rest = translated;
    while let Some(c) = rest.chars().next() {
        is_quoted ^= c == '\'';
        if c == '$' && !is_quoted {
            let end = rest[1..]
                .find(|c: char| !c.is_ascii_digit())
                .map_or(rest.len(), |at| at + 1);
            let is_text = rest[1..end].parse().is_ok_and(&is_text);
            out.push_str(&if is_text {
                format!("({} COLLATE \"C\")", &rest[..end])
            } else {
                rest[..end].to_owned()
            });
            rest = &rest[end..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fn word(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    &text[..end]
}

fn skip_word(text: &str) -> &str {
    let text = text.trim_start();
    &text[word(text).len()..]
}

/// Returns whether ` JOIN table alias` is followed by `ON`.
fn has_condition(join: &str) -> bool {
    let after_table = skip_word(skip_word(join));
    let next = word(after_table.trim_start());
    next == "ON" || word(skip_word(after_table).trim_start()) == "ON"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_hints_are_translated() {
        for (sql, expected) in [
            (
                "SELECT a FROM t INDEXED BY t_a WHERE a = ?1 AND b = ?12",
                "SELECT a FROM t WHERE a = $1 AND b = $12",
            ),
            ("UPDATE t INDEXED BY t_a SET a = ?2", "UPDATE t SET a = $2"),
            (
                "SELECT '?1 INDEXED BY x', 'it''s' FROM t",
                "SELECT '?1 INDEXED BY x', 'it''s' FROM t",
            ),
            (
                "FROM a CROSS JOIN b c ON c.x = a.x CROSS JOIN d ON d.x = 1",
                "FROM a JOIN b c ON c.x = a.x JOIN d ON d.x = 1",
            ),
            (
                "FROM a w CROSS JOIN b e WHERE e.x = ?1",
                "FROM a w CROSS JOIN b e WHERE e.x = $1",
            ),
            (
                "FROM a q INDEXED BY i CROSS JOIN runs r ON r.id = q.run",
                "FROM a q JOIN runs r ON r.id = q.run",
            ),
        ] {
            assert_eq!(translated(sql), expected);
        }
        assert_eq!(
            with_collation("a = $1 AND b = $12 AND c = '$1'", |parameter| parameter
                == 12),
            "a = $1 AND b = ($12 COLLATE \"C\") AND c = '$1'"
        );
    }
}
