//! `adj config get`, `set` and `unset`: single settings of the file. Comments and all other lines
//! stay as they are.

use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::config::{Config, Home, Setting, documented_default};
use crate::integrations::{ClientFile, FileError};
use crate::text;
use crate::view::codes;
use serde_json::json;
use std::path::PathBuf;
use toml_edit::{DocumentMut, Item, Key, Table, TableLike, Value};

/// Prints the value of a setting in the file.
pub(crate) fn get(key: &str, home: &Home, out: &Out) -> CommandResult {
    let (keys, kind) = setting(key)?;
    refuse_entry(key, &kind)?;
    let mut document = document(&read(home)?)?;
    let item = keys
        .split_last()
        .and_then(|(last, above)| table_at(document.as_table_mut(), above, false)?.get(last.get()));
    let item = item.ok_or_else(|| not_set(key, &keys))?;
    // A text as it is, for scripts; everything else as in the file.
    let as_written = || {
        item.as_value().map_or_else(
            || item.to_string(),
            |value| value.clone().decorated("", "").to_string(),
        )
    };
    let value = item
        .as_str()
        .map_or_else(|| as_written().trim().to_owned(), str::to_owned);
    if out.json {
        out.print_json(&json!({ "key": key, "value": item.as_value().map_or_else(|| json!(value), json_value) }))?;
    } else {
        out.print_data(&format!("{}\n", text::block(&value).trim_end()))?;
    }
    Ok(Exit::Done)
}

/// Returns a value of the file as JSON. A table is a text in the file's syntax.
fn json_value(value: &Value) -> serde_json::Value {
    match value {
        Value::String(text) => json!(text.value()),
        Value::Integer(number) => json!(number.value()),
        Value::Float(number) => json!(number.value()),
        Value::Boolean(switch) => json!(switch.value()),
        Value::Array(list) => list.iter().map(json_value).collect(),
        Value::Datetime(_) | Value::InlineTable(_) => {
            json!(value.clone().decorated("", "").to_string())
        }
    }
}

/// Changes a setting in the file. If the result is not valid, the file stays as it is.
pub(crate) fn set(key: &str, value: &str, home: &Home, out: &Out) -> CommandResult {
    let path = change(key, value, home)?;
    if out.json {
        out.print_json(&json!({ "key": key, "path": path }))?;
    } else {
        out.print_message(&format!(
            "{key} is set in {}",
            text::line(&path.display().to_string())
        ))?;
    }
    Ok(Exit::Done)
}

/// Removes a setting from the file. If the result is not valid, the file stays as it is.
pub(crate) fn unset(key: &str, home: &Home, out: &Out) -> CommandResult {
    let (keys, _) = setting(key)?;
    let file = read(home)?;
    let mut document = document(&file)?;
    remove(document.as_table_mut(), &keys).ok_or_else(|| not_set(key, &keys))?;
    save(&file, &document)?;
    if out.json {
        out.print_json(&json!({ "key": key, "path": file.path }))?;
    } else {
        out.print_message(&format!(
            "{key} is no longer set in {}",
            text::line(&file.path.display().to_string())
        ))?;
    }
    Ok(Exit::Done)
}

fn not_set(key: &str, keys: &[Key]) -> Failure {
    let names: Vec<&str> = keys.iter().map(Key::get).collect();
    let default = documented_default(&names).map(|default| format!("default: {default}"));
    let hint =
        default.unwrap_or_else(|| "adj config show prints the configuration in effect".to_owned());
    fail_hint(codes::NOT_FOUND, format!("{key} is not set"), hint)
}

/// Changes a setting, and returns the path of the file.
pub(crate) fn change(key: &str, value: &str, home: &Home) -> Result<PathBuf, Failure> {
    let (keys, kind) = setting(key)?;
    refuse_entry(key, &kind)?;
    let file = read(home)?;
    let mut document = document(&file)?;
    if let Some(entry) = entry_of(&keys)
        && table_at(document.as_table_mut(), &keys[..entry], false).is_none()
    {
        let name = keys[..entry]
            .iter()
            .map(Key::get)
            .collect::<Vec<_>>()
            .join(".");
        return Err(fail_hint(
            codes::NOT_FOUND,
            format!("the file has no entry {name} (positions count from 0); nothing was changed"),
            BY_HAND,
        ));
    }
    let value = parse(key, value, &kind)?;
    let why = match kind {
        Setting::List(_) => "a list of tables in the file",
        _ => "a table, or below a value that is not a table",
    };
    let refused = || {
        fail_hint(
            codes::INVALID,
            format!("{key} is {why}; nothing was changed"),
            BY_HAND,
        )
    };
    insert(document.as_table_mut(), &keys, value).ok_or_else(refused)?;
    save(&file, &document)?;
    Ok(file.path)
}

/// Replaces the file if the document is valid.
fn save(file: &ClientFile, document: &DocumentMut) -> Result<(), Failure> {
    let text = document.to_string();
    Config::check(&file.path, &text)
        .map_err(|error| fail(codes::INVALID, format!("{error}; nothing was changed")))?;
    if file.text.as_deref() != Some(&text) {
        file.write(&text).map_err(|error| unusable(&error))?;
    }
    Ok(())
}

const BY_HAND: &str = "change it in the file: adj config edit";

/// Reads the configuration file.
pub(crate) fn read(home: &Home) -> Result<ClientFile, Failure> {
    ClientFile::read(&Config::path(home), false).map_err(|error| unusable(&error))
}

pub(crate) fn unusable(error: &FileError) -> Failure {
    fail(cli_codes::IO, format!("{error}; nothing was changed"))
}

fn document(file: &ClientFile) -> Result<DocumentMut, Failure> {
    let text = file.text.as_deref().unwrap_or_default();
    text.parse()
        .map_err(|_| match Config::check(&file.path, text) {
            Err(error) => fail_hint(
                codes::INVALID,
                error.to_string(),
                "correct it: adj config edit",
            ),
            Ok(()) => fail(
                codes::INTERNAL,
                format!("{} cannot be parsed", file.path.display()),
            ),
        })
}

/// Returns the keys of a dotted path, and the type of the setting.
fn setting(key: &str) -> Result<(Vec<Key>, Setting), Failure> {
    let no_setting = || {
        fail_hint(
            codes::INVALID,
            format!("no setting {key:?}"),
            "adj help configuration lists the settings",
        )
    };
    let keys = Key::parse(key).map_err(|_| no_setting())?;
    let names: Vec<&str> = keys.iter().map(Key::get).collect();
    let all = Setting::file();
    let is_unclear = |at: &usize| {
        matches!(all.find(&names[..*at]), Some(Setting::List(_)))
            && names[*at].parse::<usize>().is_err()
    };
    if let Some(list) = (1..names.len()).find(is_unclear) {
        let (list, below) = (names[..list].join("."), names[list..].join("."));
        let hint = format!(
            "name an entry by its position, from 0: {list}.0.{below}; or change it in the file: adj config edit"
        );
        return Err(fail_hint(
            codes::INVALID,
            format!("{list} is a list of tables"),
            hint,
        ));
    }
    let found = all.find(&names).ok_or_else(no_setting)?.clone();
    Ok((keys, found))
}

/// Returns how many keys of a setting name the innermost entry of a list of tables, if it is below
/// one.
fn entry_of(keys: &[Key]) -> Option<usize> {
    let names: Vec<&str> = keys.iter().map(Key::get).collect();
    let all = Setting::file();
    (1..names.len())
        .rev()
        .find(|at| matches!(all.find(&names[..*at]), Some(Setting::List(_))))
        .map(|list| list + 1)
}

/// Refuses a whole entry of a list of tables: it has keys, but no value.
fn refuse_entry(key: &str, kind: &Setting) -> Result<(), Failure> {
    let (Ok(keys), Setting::Table(fields)) = (Key::parse(key), kind) else {
        return Ok(());
    };
    match fields.first() {
        Some((first, _)) if entry_of(&keys) == Some(keys.len()) => Err(fail_hint(
            codes::INVALID,
            format!("{key} is a table in a list"),
            format!("name a key of it, such as {key}.{first}"),
        )),
        _ => Ok(()),
    }
}

/// Parses a value that was typed: a text needs no quotes.
fn parse(key: &str, value: &str, kind: &Setting) -> Result<Value, Failure> {
    let quoted = || Value::from(value);
    match kind {
        Setting::Text | Setting::Choice(_) => Ok(quoted()),
        Setting::Texts if !value.starts_with('[') => Ok(quoted()),
        Setting::Integer
        | Setting::Number
        | Setting::Switch
        | Setting::List(_)
        | Setting::Texts
        | Setting::Table(_)
        | Setting::Named(_) => {
            let parsed = value.parse::<Value>().map(|mut value| {
                value.decor_mut().clear();
                value
            });
            parsed.map_err(|_| {
                let expected = match kind {
                    Setting::Integer => "a whole number",
                    Setting::Number => "a number",
                    Setting::Switch => "true or false",
                    Setting::List(_) | Setting::Texts => "a list such as [\"a\", \"b\"]",
                    _ => "a table such as { name = \"value\" }",
                };
                fail(
                    codes::INVALID,
                    format!("{key}: use {expected} instead of {value:?}; nothing was changed"),
                )
            })
        }
    }
}

/// Inserts a value; the comments around a value that it replaces stay. `None`: a key on the path is
/// not a table.
fn insert(table: &mut Table, keys: &[Key], mut value: Value) -> Option<()> {
    let (key, above) = keys.split_last()?;
    let table = table_at(table, above, true)?;
    match table.get_mut(key.get()) {
        Some(Item::Value(there)) => {
            *value.decor_mut() = there.decor().clone();
            *there = value;
        }
        Some(item @ Item::None) => *item = Item::Value(value),
        Some(_) => return None,
        None => {
            table.insert(key.get(), Item::Value(value));
        }
    }
    Some(())
}

/// Returns the table at a path of keys. In lists of tables a key is a position. With `is_new`,
/// missing tables are added.
fn table_at<'a>(
    table: &'a mut dyn TableLike,
    keys: &[Key],
    is_new: bool,
) -> Option<&'a mut dyn TableLike> {
    let Some((key, below)) = keys.split_first() else {
        return Some(table);
    };
    let item = match is_new {
        true => table.entry_format(key).or_insert_with(|| {
            let mut added = Table::new();
            added.set_implicit(true);
            Item::Table(added)
        }),
        false => table.get_mut(key.get())?,
    };
    match item {
        Item::ArrayOfTables(list) => {
            let (position, below) = below.split_first()?;
            table_at(list.get_mut(position.get().parse().ok()?)?, below, is_new)
        }
        Item::Value(Value::Array(list)) => {
            let (position, below) = below.split_first()?;
            table_at(
                list.get_mut(position.get().parse().ok()?)?
                    .as_inline_table_mut()?,
                below,
                is_new,
            )
        }
        item => table_at(item.as_table_like_mut()?, below, is_new),
    }
}

/// Removes a value, a table or an entry of a list. `None`: it is not there.
fn remove(table: &mut Table, keys: &[Key]) -> Option<()> {
    let (key, above) = keys.split_last()?;
    if entry_of(keys) != Some(keys.len()) {
        return table_at(table, above, false)?.remove(key.get()).map(drop);
    }
    let (list_key, above) = above.split_last()?;
    let table = table_at(table, above, false)?;
    let position: usize = key.get().parse().ok()?;
    let is_empty = match table.get_mut(list_key.get())? {
        Item::ArrayOfTables(list) => {
            (position < list.len()).then(|| list.remove(position))?;
            list.is_empty()
        }
        Item::Value(Value::Array(list)) => {
            (position < list.len()).then(|| list.remove(position))?;
            list.is_empty()
        }
        _ => return None,
    };
    if is_empty {
        table.remove(list_key.get()).map(drop)
    } else {
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(before: &str, key: &str, value: &str) -> String {
        let (keys, kind) = setting(key).unwrap_or_else(|_| panic!("{key} is a setting"));
        let mut document: DocumentMut = before.parse().expect("TOML");
        let value = parse(key, value, &kind).unwrap_or_else(|_| panic!("{value} is a value"));
        insert(document.as_table_mut(), &keys, value).expect("inserted");
        document.to_string()
    }

    #[test]
    fn comments_and_other_lines_stay() {
        let before = "# mine\nlive_runs_max = 3   # three\n\n[agents.claude] # c\nharness = \"claude\"\n# later\nargs = [\n  \"-x\", # x\n]\n";
        assert_eq!(
            changed(before, "live_runs_max", "4"),
            before.replace("= 3 ", "= 4 ")
        );
        assert_eq!(
            changed(before, "expiry", "2h"),
            before.replace("# three\n", "# three\nexpiry = \"2h\"\n")
        );
        assert_eq!(
            changed(before, "agents.claude.timeout", "45m"),
            format!("{before}timeout = \"45m\"\n")
        );
        assert_eq!(
            changed(before, "agents.claude.trust_repo", "true"),
            format!("{before}trust_repo = true\n")
        );
        assert_eq!(
            changed("", "pools.gpu.slots", "1"),
            "[pools.gpu]\nslots = 1\n"
        );
        assert_eq!(
            changed("a.b = 1\n", "fence_write", "[\"/x\"]"),
            "a.b = 1\nfence_write = [\"/x\"]\n"
        );
    }

    #[test]
    fn removed_setting_takes_only_its_line() {
        let before = "# mine\nlive_runs_max = 3   # three\nexpiry = \"2h\"\n\n[agents.claude] # c\nharness = \"claude\"\ntimeout = \"45m\"\n\n[pools.gpu]\nslots = 1\n";
        let without = |key: &str| {
            let (keys, _) = setting(key).unwrap_or_else(|_| panic!("{key} is a setting"));
            let mut document: DocumentMut = before.parse().expect("TOML");
            remove(document.as_table_mut(), &keys).map(|()| document.to_string())
        };
        assert_eq!(
            without("expiry"),
            Some(before.replace("expiry = \"2h\"\n", ""))
        );
        assert_eq!(
            without("agents.claude.timeout"),
            Some(before.replace("timeout = \"45m\"\n", ""))
        );
        assert_eq!(
            without("pools.gpu"),
            Some(before.replace("\n[pools.gpu]\nslots = 1\n", ""))
        );
        for key in [
            "default_agent",
            "agents.codex",
            "agents.codex.timeout",
            "webhooks",
        ] {
            assert_eq!(without(key), None, "{key}");
        }
    }

    #[test]
    fn entries_of_lists_are_named_by_position() {
        let before = "# all\n[[policies]] # a\nname = \"a\"\nhost = [\"x\"] # h\n\n[[policies]]\nname = \"b\"\n";
        assert_eq!(
            changed(before, "policies.0.name", "c"),
            before.replace("\"a\"", "\"c\"")
        );
        assert_eq!(
            changed(before, "policies.1.risk", "high"),
            format!("{before}risk = \"high\"\n")
        );
        assert_eq!(
            changed("policies = [{ name = \"a\" }]\n", "policies.0.name", "c"),
            "policies = [{ name = \"c\" }]\n"
        );
        let without = |before: &str, key: &str| {
            let (keys, _) = setting(key).unwrap_or_else(|_| panic!("{key} is a setting"));
            let mut document: DocumentMut = before.parse().expect("TOML");
            remove(document.as_table_mut(), &keys).map(|()| document.to_string())
        };
        assert_eq!(
            without(before, "policies.1.name"),
            Some(before.replace("name = \"b\"\n", ""))
        );
        assert_eq!(
            without(before, "policies.0").as_deref(),
            Some("\n[[policies]]\nname = \"b\"\n")
        );
        assert_eq!(without(before, "policies.2"), None);
        assert_eq!(
            without("policies = [{ name = \"a\" }]\n", "policies.0").as_deref(),
            Some("")
        );
        assert!(setting("policies.name").is_err());
        assert!(
            refuse_entry(
                "policies.0",
                &setting("policies.0")
                    .unwrap_or_else(|_| panic!("a setting"))
                    .1
            )
            .is_err()
        );
    }

    #[test]
    fn unknown_settings_are_refused() {
        for key in [
            "",
            "colour",
            "agents.x.colour",
            "live_runs_max.x",
            "webhooks.url",
            "a b",
            "agents.",
        ] {
            assert!(setting(key).is_err(), "{key:?}");
        }
        assert!(setting("prices.models.\"gpt-5.1\".input").is_ok());
    }
}
