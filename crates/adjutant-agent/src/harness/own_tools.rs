//! Recognizes Adjutant's own tools in permission requests. Only exact forms of the offered names
//! count: a title can contain a model's text, and a call that is recognized as Adjutant's runs
//! without approval.

use serde_json::Value;

/// The name of Adjutant's MCP server in agents.
const SERVER: &str = "adj";
/// How many levels of `_meta` are searched for a tool's name.
const META_DEPTH_MAX: usize = 4;

/// A tool that is offered to the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTool {
    pub name: String,
    /// Its title for people. Some agents show only the title in a permission request.
    pub title: String,
    /// The names of its arguments, including alternative spellings.
    pub arguments: Vec<String>,
}

impl ServedTool {
    /// Returns whether an agent's name for a tool is one of the forms in which agents write this
    /// tool's name.
    fn has_form(&self, text: &str) -> bool {
        let name = &self.name;
        let with_prefix = |rest: &str| {
            ["___", "__", "_", "-", "/"]
                .iter()
                .any(|separator| rest.strip_prefix(separator) == Some(name))
                || rest
                    .strip_prefix(": ")
                    .is_some_and(|title| title == name.replace('_', " "))
        };
        text.strip_prefix(SERVER).is_some_and(with_prefix)
            || ["mcp__adj__", "mcp.adj."]
                .iter()
                .any(|prefix| text.strip_prefix(prefix) == Some(name))
            || text.strip_suffix(" (adj MCP Server)") == Some(name)
    }

    /// Returns whether an input can belong to this tool: an object with only its arguments.
    fn accepts(&self, input: &Value) -> bool {
        match input {
            Value::Null => true,
            Value::Object(fields) => fields.keys().all(|field| self.arguments.contains(field)),
            _ => false,
        }
    }
}

/// The tools that are offered to a worker.
#[derive(Debug, Clone, Default)]
pub struct OwnTools(pub Vec<ServedTool>);

impl OwnTools {
    /// Returns whether the name that an agent calls a tool by is one of Adjutant's.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.has_form(name))
    }

    /// Returns whether a reported call, judged by all its titles, is a call of one of Adjutant's
    /// tools.
    #[must_use]
    pub fn is_call(&self, kind: &str, titles: &[String], meta: &Value, input: &Value) -> bool {
        // A call of a kind that executes or changes something is not Adjutant's.
        if !matches!(kind, "" | "other" | "read" | "think") {
            return false;
        }
        let mut names = Vec::new();
        tool_names(meta, META_DEPTH_MAX, &mut names);
        self.0.iter().any(|tool| {
            if names.is_empty() {
                let is_form = |title: &String| tool.has_form(title);
                tool.accepts(input)
                    && titles.iter().any(is_form)
                    && titles
                        .iter()
                        .all(|title| is_form(title) || *title == tool.title)
            } else {
                // The agent's program states the name, and the server refuses a wrong argument.
                names.iter().all(|name| tool.has_form(name))
            }
        })
    }
}

/// Collects the names in `toolName` fields of a call's `_meta`.
fn tool_names<'a>(meta: &'a Value, depth_max: usize, names: &mut Vec<&'a str>) {
    let Value::Object(fields) = meta else { return };
    for (field, value) in fields {
        match value {
            Value::String(name) if field == "toolName" => names.push(name),
            value if depth_max > 0 => tool_names(value, depth_max - 1, names),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tools() -> OwnTools {
        let tool = |name: &str, title: &str, arguments: &[&str]| ServedTool {
            name: name.to_owned(),
            title: title.to_owned(),
            arguments: arguments.iter().map(|name| (*name).to_owned()).collect(),
        };
        OwnTools(vec![
            tool("ask_parent", "Ask the parent", &["question", "options"]),
            tool("stop_work", "Stop", &["details"]),
        ])
    }

    fn titles(all: &[&str]) -> Vec<String> {
        all.iter().map(|title| (*title).to_owned()).collect()
    }

    #[test]
    fn forms_of_offered_names_are_own_tools() {
        for title in [
            "adj___ask_parent",
            "adj__ask_parent",
            "adj_ask_parent",
            "adj-ask_parent",
            "adj/ask_parent",
            "adj: ask parent",
            "mcp__adj__ask_parent",
            "mcp.adj.ask_parent",
            "ask_parent (adj MCP Server)",
        ] {
            assert!(
                tools().has(title)
                    && tools().is_call(
                        "other",
                        &titles(&[title]),
                        &Value::Null,
                        &json!({"question": "?"})
                    ),
                "{title}"
            );
        }
        let named =
            json!({"goose": {"toolCall": {"toolName": "adj__ask_parent", "extensionName": "adj"}}});
        assert!(tools().is_call("", &titles(&["{\"question\":\"?\"}"]), &named, &Value::Null));
        let nonsense = json!({"question": "?", "nonsense": 1});
        assert!(
            tools().is_call("", &titles(&["ask"]), &named, &nonsense),
            "its server refuses the argument"
        );
        assert!(
            !tools().is_call("", &titles(&["adj__ask_parent"]), &Value::Null, &nonsense),
            "only a title tells the tool"
        );
        assert!(
            !tools().is_call(
                "",
                &titles(&["ask"]),
                &json!({"a": named, "toolName": "shell"}),
                &Value::Null
            ),
            "two names"
        );
        assert!(tools().is_call(
            "other",
            &titles(&["adj-ask_parent", "Ask the parent"]),
            &Value::Null,
            &json!({"question": "?"})
        ));
    }

    #[test]
    fn other_names_are_foreign() {
        for title in [
            "adj/pwn now",
            "adj_ rm everything",
            "adj: delete all files",
            "wipe disk (adj MCP Server)",
            "adj-foo",
            "adj: ask parent ",
            "adj__ask_parent; rm -rf /",
            "adj____ask_parent",
            "adj.ask_parent",
            "mcp.adj.ask_parent.sh",
            "mcp.adj.ask parent",
            "mcp.adj__ask_parent",
            "mcp__adj.ask_parent",
            "mcp.other.ask_parent",
            "xmcp.adj.ask_parent",
            "Approve Stop",
            "Ask the parent",
            "ask_parent",
            "xmcp__adj__ask_parent",
            "",
        ] {
            assert!(
                !tools().is_call("other", &titles(&[title]), &Value::Null, &Value::Null),
                "{title}"
            );
        }
        let ours = titles(&["adj__ask_parent"]);
        for kind in [
            "execute",
            "edit",
            "delete",
            "move",
            "fetch",
            "search",
            "switch_mode",
        ] {
            assert!(
                !tools().is_call(kind, &ours, &Value::Null, &Value::Null),
                "{kind}"
            );
        }
        for input in [
            json!({"command": "rm -rf /"}),
            json!({"question": "?", "command": "x"}),
            json!("rm -rf /"),
            json!(["rm"]),
            json!({"details": "x"}),
        ] {
            assert!(
                !tools().is_call("other", &ours, &Value::Null, &input),
                "{input}"
            );
        }
        assert!(
            !tools().is_call(
                "other",
                &titles(&["adj__ask_parent", "rm -rf /"]),
                &Value::Null,
                &Value::Null
            ),
            "another title"
        );
        assert!(
            !tools().is_call("other", &ours, &json!({"toolName": "shell"}), &Value::Null),
            "the name is another tool's"
        );
        assert!(
            !tools().is_call("other", &[], &Value::Null, &Value::Null),
            "no name at all"
        );
    }
}
