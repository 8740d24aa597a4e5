//! Entries of servers: the one that connects a client to Adjutant, and how to recognise it.

use super::table::{McpClient, Shape};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The name of the entry.
pub const NAME: &str = "adjutant";

/// Returns the entry that a client needs.
#[must_use]
pub(crate) fn wanted_entry(client: &McpClient, program: &str) -> Value {
    let mut args = vec!["mcp".to_owned()];
    if let Some(wait_s) = client.timeout.and_then(|timeout| timeout.wait_s) {
        args.extend(["--max-wait".to_owned(), wait_s.to_string()]);
    }
    let mut entry = match client.shape {
        Shape::Plain => json!({ "command": program, "args": args }),
        Shape::Stdio => json!({ "type": "stdio", "command": program, "args": args }),
        Shape::Copilot => {
            json!({ "type": "stdio", "command": program, "args": args, "tools": ["*"] })
        }
        Shape::Qwen => json!({ "command": program, "args": args, "alwaysLoadTools": true }),
        Shape::Codex => {
            json!({ "command": program, "args": args, "default_tools_approval_mode": "approve" })
        }
        Shape::Opencode => {
            args.insert(0, program.to_owned());
            json!({ "type": "local", "command": args, "enabled": true })
        }
        Shape::Zed => json!({ "source": "custom", "command": program, "args": args, "env": {} }),
        Shape::Goose => {
            json!({ "enabled": true, "type": "stdio", "name": NAME, "cmd": program, "args": args, "envs": {} })
        }
    };
    if let (Some(timeout), Value::Object(entry)) = (client.timeout, &mut entry) {
        entry.insert(timeout.key.to_owned(), json!(timeout.value));
    }
    entry
}

/// Returns the program of an entry that starts `adj mcp`. `None`: it starts something else.
#[must_use]
pub(crate) fn program_of(entry: &Value) -> Option<&str> {
    let is_adj = |program: &str| {
        Path::new(program)
            .file_name()
            .is_some_and(|name| name == "adj")
    };
    let (program, first) = match entry.get("command").or_else(|| entry.get("cmd"))? {
        Value::Array(words) => (words.first()?.as_str()?, words.get(1)),
        Value::String(program) => (
            program.as_str(),
            entry.get("args").and_then(|args| args.get(0)),
        ),
        _ => return None,
    };
    (is_adj(program) && first.and_then(Value::as_str) == Some("mcp")).then_some(program)
}

/// Returns whether an entry is as an installation writes it. Clients that rewrite their file add
/// fields with defaults.
#[must_use]
pub(crate) fn is_as_installed(found: &Value, wanted: &Value) -> bool {
    let (Some(fields), Some(wanted)) = (found.as_object(), wanted.as_object()) else {
        return false;
    };
    let is_default = |name: &str, value: &Value| match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(flag) => *flag == (name == "enabled"),
        Value::String(text) => text.is_empty() || name == "type" && text == "stdio",
        Value::Null => true,
        Value::Number(_) => false,
    };
    wanted
        .iter()
        .all(|(name, value)| fields.get(name) == Some(value))
        && fields
            .iter()
            .all(|(name, value)| wanted.contains_key(name) || is_default(name, value))
}

/// Returns what has to be changed in a file so that the client starts the server of an entry.
/// `None`: the entry is not disabled.
#[must_use]
pub(crate) fn disabled_by(file: &Value, name: &str, entry: &Value) -> Option<String> {
    let names = |list: &str| {
        file["mcp"][list]
            .as_array()
            .map(|list| list.iter().any(|listed| listed == name))
    };
    if entry["enabled"] == false {
        Some(format!("set enabled of {name} to true"))
    } else if entry["disabled"] == true {
        Some(format!("remove disabled from {name}"))
    } else if names("excluded") == Some(true) {
        Some(format!("remove {name} from mcp.excluded"))
    } else if names("allowed") == Some(false) {
        Some(format!("add {name} to mcp.allowed"))
    } else {
        None
    }
}

/// Compares an entry of Adjutant with the wanted one. A field that the user has set stays; a
/// missing one is added; the program is replaced if it is another file. Returns the fields to set;
/// `None`: nothing is missing.
#[must_use]
pub(crate) fn entry_update(
    found: &Value,
    wanted: &Value,
    mut is_same_program: impl FnMut(&str) -> bool,
) -> Option<Map<String, Value>> {
    let mut fields = Map::new();
    for (key, value) in wanted.as_object()? {
        match (key.as_str(), found.get(key)) {
            ("command" | "cmd", Some(there))
                if !program_of(found).is_some_and(&mut is_same_program) =>
            {
                fields.insert(key.clone(), with_program(there, value));
            }
            // Empty maps and arguments are the client's defaults.
            ("env" | "envs" | "type" | "source" | "enabled" | "tools", None) | (_, Some(_)) => {}
            (_, None) => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
    (!fields.is_empty()).then_some(fields)
}

/// Replaces the program of a command, and keeps its arguments.
fn with_program(there: &Value, wanted: &Value) -> Value {
    match (there, wanted) {
        (Value::Array(there), Value::Array(wanted)) => wanted
            .iter()
            .take(1)
            .chain(there.iter().skip(1))
            .cloned()
            .collect(),
        _ => wanted.clone(),
    }
}
