//! Our own tools as agents report them in permission requests. Only the exact names that were served
//! count, in the exact forms that agents make of them: a title can hold a model's words, and what
//! passes for a tool of Adjutant runs without approval.

use serde_json::Value;

/// The name under which agents know our MCP server.
const SERVER: &str = "adj";
/// How deep a tool's name is looked for in `_meta`.
const META_DEPTH_MAX: usize = 4;

/// One tool that the worker is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTool {
    pub name: String,
    /// Its title for people; some agents show nothing else in a permission request.
    pub title: String,
    /// The names of its arguments, other spellings included.
    pub arguments: Vec<String>,
}

impl ServedTool {
    /// Tells whether an agent's name for a tool is one of the forms that agents make of this one's.
    fn has_form(&self, text: &str) -> bool {
        let name = &self.name;
        let with_prefix = |rest: &str| {
            ["__", "_", "-", "/"].iter().any(|separator| rest.strip_prefix(separator) == Some(name))
                || rest.strip_prefix(": ").is_some_and(|said| said == name.replace('_', " "))
        };
        text.strip_prefix(SERVER).is_some_and(with_prefix)
            || text.strip_prefix("mcp__adj__") == Some(name)
            || text.strip_suffix(" (adj MCP Server)") == Some(name)
    }

    /// Tells whether an input can be one of this tool: an object with its arguments and no others.
    fn takes(&self, input: &Value) -> bool {
        match input {
            Value::Null => true,
            Value::Object(fields) => fields.keys().all(|field| self.arguments.contains(field)),
            _ => false,
        }
    }
}

/// The tools that a worker is served.
#[derive(Debug, Clone, Default)]
pub struct OwnTools(pub Vec<ServedTool>);

impl OwnTools {
    /// Tells whether a name by which the agent itself calls a tool means one of Adjutant.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.has_form(name))
    }

    /// Tells whether a call as it was reported, with every title that it has had, is one of our tools.
    #[must_use]
    pub fn is_call(&self, kind: &str, titles: &[String], meta: &Value, input: &Value) -> bool {
        // An agent that says that it runs or changes something runs nothing of Adjutant.
        if !matches!(kind, "" | "other" | "read" | "think") {
            return false;
        }
        let mut names = Vec::new();
        tool_names(meta, META_DEPTH_MAX, &mut names);
        self.0.iter().filter(|tool| tool.takes(input)).any(|tool| {
            if names.is_empty() {
                let is_form = |title: &String| tool.has_form(title);
                titles.iter().any(is_form) && titles.iter().all(|title| is_form(title) || *title == tool.title)
            } else {
                names.iter().all(|name| tool.has_form(name))
            }
        })
    }
}

/// Collects the names that `toolName` fields of a call's `_meta` give it.
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
        OwnTools(vec![tool("ask_parent", "Ask the parent", &["question", "options"]), tool("stop_work", "Stop", &["details"])])
    }

    fn titles(all: &[&str]) -> Vec<String> {
        all.iter().map(|title| (*title).to_owned()).collect()
    }

    #[test]
    fn forms_of_served_names_are_ours() {
        for title in [
            "adj__ask_parent",
            "adj_ask_parent",
            "adj-ask_parent",
            "adj/ask_parent",
            "adj: ask parent",
            "mcp__adj__ask_parent",
            "ask_parent (adj MCP Server)",
        ] {
            assert!(tools().has(title) && tools().is_call("other", &titles(&[title]), &Value::Null, &json!({"question": "?"})), "{title}");
        }
        let named = json!({"goose": {"toolCall": {"toolName": "adj__ask_parent", "extensionName": "adj"}}});
        assert!(tools().is_call("", &titles(&["{\"question\":\"?\"}"]), &named, &Value::Null));
        assert!(tools().is_call("other", &titles(&["adj-ask_parent", "Ask the parent"]), &Value::Null, &json!({"question": "?"})));
    }

    #[test]
    fn everything_else_is_foreign() {
        for title in [
            "adj/pwn now",
            "adj_ rm everything",
            "adj: delete all files",
            "wipe disk (adj MCP Server)",
            "adj-foo",
            "adj: ask parent ",
            "adj__ask_parent; rm -rf /",
            "Ask the parent",
            "ask_parent",
            "xmcp__adj__ask_parent",
            "",
        ] {
            assert!(!tools().is_call("other", &titles(&[title]), &Value::Null, &Value::Null), "{title}");
        }
        let ours = titles(&["adj__ask_parent"]);
        for kind in ["execute", "edit", "delete", "move", "fetch", "search", "switch_mode"] {
            assert!(!tools().is_call(kind, &ours, &Value::Null, &Value::Null), "{kind}");
        }
        for input in
            [json!({"command": "rm -rf /"}), json!({"question": "?", "command": "x"}), json!("rm -rf /"), json!(["rm"]), json!({"details": "x"})]
        {
            assert!(!tools().is_call("other", &ours, &Value::Null, &input), "{input}");
        }
        assert!(!tools().is_call("other", &titles(&["adj__ask_parent", "rm -rf /"]), &Value::Null, &Value::Null), "another title");
        assert!(!tools().is_call("other", &ours, &json!({"toolName": "shell"}), &Value::Null), "the name says another tool");
        assert!(!tools().is_call("other", &[], &Value::Null, &Value::Null), "no name at all");
    }
}
