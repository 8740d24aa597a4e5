//! Edits of files with comments in each format.

use super::*;
use serde_json::json;

const JSON: &str = "// mine\n{\n  // servers\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }, // keep\n    /* last */\n  },\n  \"theme\": \"dark\", // yes\n}\n";
const STRICT: &str = "{\n\t\"a\": [1, 2],\n\t\"mcpServers\": {\n\t\t\"other\": {\n\t\t\t\"command\": \"x\"\n\t\t}\n\t},\n\t\"z\": 1.50\n}";
const TOML: &str = "# mine\nmodel = \"x\" # the model\n\n[mcp_servers.other] # keep\ncommand = \"x\"\n\n# about the rest\n[features]\nweb = true\n# end\n";
const YAML: &str = "# mine\nGOOSE_MODEL: x # the model\nextensions:\n  # built in\n  developer:\n    enabled: true # on\n    args:\n    - a\n\n    name: developer\n\n# about the rest\nGOOSE_MODE: auto\n";

fn path(format: Format) -> &'static [&'static str] {
    match format {
        Format::Json => &["mcpServers"],
        Format::Toml => &["mcp_servers"],
        Format::Yaml => &["extensions"],
    }
}

fn entry() -> Value {
    json!({ "command": "/opt/my adj", "args": ["mcp", "--max-wait", "9"], "timeout": 60 })
}

fn added(format: Format, text: &str) -> String {
    edit(
        format,
        text,
        path(format),
        &Edit::Add {
            name: "adjutant",
            entry: &entry(),
        },
    )
    .unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn all() -> Vec<(Format, String)> {
    let mut all = vec![
        (Format::Json, JSON.to_owned()),
        (Format::Json, STRICT.to_owned()),
        (Format::Json, "{}".to_owned()),
        (Format::Json, "{\n  \"mcpServers\": {}\n}\n".to_owned()),
        (Format::Json, "{\n  \"theme\": \"dark\"\n}\n".to_owned()),
        (Format::Toml, TOML.to_owned()),
        (Format::Toml, "[mcp_servers]\n".to_owned()),
        (Format::Toml, "model = \"x\"".to_owned()),
        (Format::Yaml, YAML.to_owned()),
        (Format::Yaml, "extensions: {} # none\nA: b\n".to_owned()),
        (Format::Yaml, "A: b".to_owned()),
        (
            Format::Yaml,
            "A: \"ä: {\" # ö\nextensions:\nB: |\n  text\n  more\n".to_owned(),
        ),
        (Format::Yaml, "# only a comment\n".to_owned()),
    ];
    let crlf: Vec<_> = all
        .iter()
        .map(|(format, text)| (*format, text.replace('\n', "\r\n")))
        .collect();
    all.extend(crlf);
    all.extend([Format::Json, Format::Toml, Format::Yaml].map(|format| (format, String::new())));
    all
}

#[test]
fn every_line_stays_when_an_entry_is_added() {
    for (format, text) in all() {
        let after = added(format, &text);
        let mut lines = after.lines();
        for line in text.lines() {
            // A comma can follow, and an empty map is opened.
            let is_kept = |found: &str| {
                let stem = line.trim_end_matches("{}").trim_end_matches("{} # none");
                found == line
                    || found.strip_prefix(line).is_some_and(|rest| rest == ",")
                    || (stem != line && found.starts_with(stem.trim_end()))
            };
            assert!(lines.any(is_kept), "{line:?} of {text:?}: {after}");
        }
        assert_eq!(
            after.matches("\r\n").count() > 0,
            text.contains("\r\n"),
            "{after:?}"
        );
        assert!(
            !text.contains("\r\n") || after.matches('\n').count() == after.matches("\r\n").count(),
            "{after:?}"
        );
    }
}

#[test]
fn other_content_is_the_same_after_removal() {
    for (format, text) in all().into_iter().filter(|(_, text)| !text.is_empty()) {
        let had_map = parse(format, &text).is_ok_and(|file| servers(&file, path(format)).is_some());
        let after = edit(
            format,
            &added(format, &text),
            path(format),
            &Edit::Remove {
                name: "adjutant",
                empty_map: !had_map,
            },
        );
        let after = after.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let comments = |text: &str| {
            text.lines()
                .filter(|line| line.contains(['#', '/']))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            comments(&after).len(),
            comments(&text).len(),
            "{text:?}: {after:?}"
        );
        let mut expected = parse(format, &text).expect("it parses");
        if expected.get("extensions").is_some_and(Value::is_null) {
            expected
                .as_object_mut()
                .expect("a map")
                .shift_remove("extensions");
        }
        assert_eq!(parse(format, &after).expect("it parses"), expected);
    }
}

#[test]
fn fields_are_set_in_place() {
    for (format, text) in all() {
        let mut fields = Map::new();
        fields.insert("command".to_owned(), json!("adj"));
        fields.insert("cwd".to_owned(), json!("/x y"));
        let after = edit(
            format,
            &added(format, &text),
            path(format),
            &Edit::Set {
                name: "adjutant",
                fields: &fields,
            },
        );
        let file = parse(
            format,
            &after.unwrap_or_else(|error| panic!("{text:?}: {error}")),
        )
        .expect("it parses");
        let entry = &servers(&file, path(format)).expect("servers")["adjutant"];
        assert_eq!(
            (&entry["command"], &entry["cwd"], &entry["timeout"]),
            (&json!("adj"), &json!("/x y"), &json!(60)),
            "{text}"
        );
    }
}

#[test]
fn removal_keeps_the_neighbours_comments() {
    let text = "extensions:\n  # first\n  a:\n    x: 1\n  adjutant:\n    x: 1\n    # inside\n\n  # about b\n  b:\n    x: 2\n";
    let after = edit(
        Format::Yaml,
        text,
        &["extensions"],
        &Edit::Remove {
            name: "adjutant",
            empty_map: false,
        },
    )
    .expect("edited");
    assert_eq!(
        after,
        "extensions:\n  # first\n  a:\n    x: 1\n\n  # about b\n  b:\n    x: 2\n"
    );
}

#[test]
fn syntax_errors_name_the_place() {
    for (format, text, place) in [
        (Format::Json, "{\n  \"a\": 1,\n  \"b\" 2\n}\n", (3, 7)),
        (Format::Json, "{\n  // x\n  \"a\": 'b'\n}\n", (3, 8)),
        (Format::Toml, "a = 1\n\nb = = 2\n", (3, 5)),
        (Format::Yaml, "a: 1\nb: 2\n  c: [\n", (3, 4)),
        (Format::Yaml, "a: 1\na: 2\n", (2, 1)),
    ] {
        let Err(FormatError::Syntax { line, column, .. }) = parse(format, text) else {
            panic!("{text:?}")
        };
        assert_eq!((line, column), place, "{text:?}");
    }
}

#[test]
fn unsuitable_layouts_are_refused() {
    for (format, text) in [
        (Format::Json, "[]"),
        (Format::Json, "{\"mcpServers\": []}"),
        (
            Format::Json,
            "{\"mcpServers\": {}, \"mcpServers\": {\"a\": {}}}",
        ),
        (Format::Toml, "mcp_servers = 3\n"),
        (Format::Yaml, "- a\n"),
        (Format::Yaml, "extensions: [a]\n"),
        (Format::Yaml, "a: 1\n---\nb: 2\n"),
        (Format::Yaml, "{a: 1}\n"),
        (Format::Yaml, "a: 1\n...\n"),
    ] {
        let refused = edit(
            format,
            text,
            path(format),
            &Edit::Add {
                name: "adjutant",
                entry: &entry(),
            },
        );
        assert!(refused.is_err(), "{text:?}: {refused:?}");
    }
}
