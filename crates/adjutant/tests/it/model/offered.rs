//! The tools that a CLI offers to the model, and which of them a turn calls.

use super::turn::{End, Input, Refusal, Say, ToolCall, Turn};
use serde_json::{Value, json};

/// A tool that the CLI offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    pub name: String,
    pub namespace: Option<String>,
    /// Its input is text instead of JSON.
    pub freeform: bool,
    /// The names of its arguments.
    pub arguments: Vec<String>,
}

impl Offered {
    /// Parses a function's description. `schema` is the field of its arguments in the dialect.
    pub fn function(tool: &Value, schema: &str) -> Option<Self> {
        let arguments = tool[schema]["properties"]
            .as_object()
            .map(|all| all.keys().cloned().collect())
            .unwrap_or_default();
        Some(Self {
            name: tool["name"].as_str()?.to_owned(),
            namespace: None,
            freeform: false,
            arguments,
        })
    }

    pub fn full_name(&self) -> String {
        self.namespace.as_ref().map_or_else(
            || self.name.clone(),
            |namespace| format!("{namespace}/{}", self.name),
        )
    }

    fn is(&self, wanted: &str) -> bool {
        let before = self.name.strip_suffix(wanted);
        before.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(['_', '-', '.', ':']))
    }

    fn call(&self, input: Input) -> Say {
        Say::Call(ToolCall {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            input,
        })
    }
}

/// Returns the wire form of a turn, for the offered tools.
pub fn play(turn: &Turn, offered: &[Offered]) -> Result<(Say, End), Refusal> {
    let said = match turn {
        Turn::Say(text) => (Say::Text(text.clone()), End::Whole),
        Turn::Hang(text) => (Say::Text(text.clone()), End::Hang),
        Turn::Call { tool, arguments } => (call(tool, arguments, offered), End::Whole),
        Turn::Write { path, content } => (write(path, content, offered), End::Whole),
        Turn::Shell { command, asks } => (shell(command, *asks, offered), End::Whole),
        Turn::Fetch { url } => (fetch(url, offered), End::Whole),
        Turn::WebSearch { query } => (web_search(query, offered), End::Whole),
        Turn::CallWith { tool, .. } => (missing(tool, offered), End::Whole),
        Turn::Computed(_) => (missing("a message", offered), End::Whole),
        Turn::RateLimited { after_s } => return Err(Refusal::RateLimited { after_s: *after_s }),
        Turn::UsedUp { for_s } => return Err(Refusal::UsedUp { for_s: *for_s }),
        Turn::Unauthorized => return Err(Refusal::Unauthorized),
        Turn::TooLong => return Err(Refusal::TooLong),
        Turn::NoCredit => return Err(Refusal::NoCredit),
        Turn::Overloaded => return Err(Refusal::Overloaded),
        Turn::Reset => (missing("a reset", offered), End::Reset),
    };
    Ok(said)
}

/// Returns the deferred tool that must be searched for before this turn can be played.
pub fn kept_back<'turn>(turn: &'turn Turn, offered: &[Offered]) -> Option<&'turn str> {
    match turn {
        Turn::Call { tool, .. } if find(tool, offered).is_none() => Some(tool),
        _ => None,
    }
}

/// Returns the call that searches for a tool, for a CLI that defers its own.
pub fn tool_search(tool: &str, offered: &[Offered]) -> Option<Say> {
    let is_here = offered.iter().any(|offer| offer.name == tool);
    let search = offered
        .iter()
        .find(|offer| offer.name == "ToolSearch")
        .filter(|_| !is_here)?;
    Some(search.call(Input::Json(
        json!({ "query": format!("select:{tool}"), "max_results": 1 }),
    )))
}

fn find<'all>(tool: &str, offered: &'all [Offered]) -> Option<&'all Offered> {
    // Some CLIs have their own tool with the name of one of Adjutant's.
    let is_ours = |offer: &&Offered| offer.is(tool) && offer.full_name().contains("adj");
    let ours = offered.iter().find(is_ours);
    ours.or_else(|| offered.iter().find(|offer| offer.name == tool))
        .or_else(|| offered.iter().find(|offer| offer.is(tool)))
}

fn call(tool: &str, arguments: &Value, offered: &[Offered]) -> Say {
    match find(tool, offered) {
        Some(offer) => offer.call(Input::Json(arguments.clone())),
        // Droid lists deferred tools only by name, and still runs them.
        None if ["Execute", "ToolSearch"]
            .iter()
            .all(|name| offered.iter().any(|offer| offer.name == *name)) =>
        {
            Say::Call(ToolCall {
                name: format!("adj___{tool}"),
                namespace: None,
                input: Input::Json(arguments.clone()),
            })
        }
        None => missing(tool, offered),
    }
}

/// Returns a text that a failed assertion shows.
fn missing(what: &str, offered: &[Offered]) -> Say {
    let names: Vec<_> = offered.iter().map(Offered::full_name).collect();
    Say::Text(format!("{MISSING}{what} is offered: {}", names.join(", ")))
}

const MISSING: &str = "no tool for ";

/// Returns whether a text reports a missing tool.
pub fn is_missing(text: &str) -> bool {
    text.starts_with(MISSING)
}

fn write(path: &str, content: &str, offered: &[Offered]) -> Say {
    if offered.is_empty() {
        return Say::Text(format!("I write it.\n\n{path}\n```\n{content}```\n"));
    }
    for offer in offered {
        let input = match offer.name.as_str() {
            "Write" if offer.arguments.iter().any(|name| name == "path") => {
                json!({ "path": path, "content": content })
            }
            "Create" => json!({ "file_path": path, "content": content }),
            "Write" | "write_file" => json!({ "file_path": path, "content": content }),
            "write" | "developer__write"
                if offer.arguments.iter().any(|name| name == "filePath") =>
            {
                json!({ "filePath": path, "content": content })
            }
            "write" | "developer__write" => json!({ "path": path, "content": content }),
            "create" => json!({ "path": path, "file_text": content }),
            "developer__text_editor" | "text_editor" => {
                json!({ "command": "write", "path": path, "file_text": content })
            }
            "apply_patch" => {
                let patch = patch(path, content);
                return offer.call(if offer.freeform {
                    Input::Text(patch)
                } else {
                    Input::Json(json!({ "input": patch }))
                });
            }
            _ => continue,
        };
        return offer.call(Input::Json(input));
    }
    missing("writing", offered)
}

fn fetch(url: &str, offered: &[Offered]) -> Say {
    for offer in offered {
        let has = |name: &str| offer.arguments.iter().any(|argument| argument == name);
        let input = match offer.name.as_str() {
            "webfetch" => json!({ "url": url, "format": "text" }),
            "WebFetch" | "web_fetch" if has("url") && has("prompt") => {
                json!({ "url": url, "prompt": "What does it say?" })
            }
            "FetchURL" | "web_fetch" if has("url") => json!({ "url": url }),
            "fetch_web_content" => {
                json!({ "requests": [{ "url": url, "prompt": "What does it say?" }] })
            }
            "web_fetch" => json!({ "prompt": format!("What does {url} say?") }),
            _ => continue,
        };
        return offer.call(Input::Json(input));
    }
    missing("fetching", offered)
}

fn web_search(query: &str, offered: &[Offered]) -> Say {
    let is_search = |offer: &&Offered| {
        matches!(
            offer.name.as_str(),
            "google_web_search" | "WebSearch" | "web_search" | "websearch"
        )
    };
    match offered.iter().find(is_search) {
        Some(offer) => offer.call(Input::Json(json!({ "query": query }))),
        None => missing("searching", offered),
    }
}

fn patch(path: &str, content: &str) -> String {
    let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
    format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n")
}

fn shell(command: &str, asks: bool, offered: &[Offered]) -> Say {
    if offered.is_empty() {
        return Say::Text(format!("I suggest:\n\n```bash\n{command}\n```\n"));
    }
    for offer in offered {
        let input = match offer.name.as_str() {
            "Bash" | "run_shell_command" | "bash" => {
                json!({ "command": command, "description": "what the test wants" })
            }
            "Execute" => {
                json!({ "command": command, "summary": "Do what the test wants", "riskLevel": "high", "riskLevelReason": "a test" })
            }
            "developer__shell" => json!({ "command": command }),
            "exec_command" if asks => {
                json!({ "cmd": command, "sandbox_permissions": "require_escalated", "justification": "the test wants it" })
            }
            "exec_command" => json!({ "cmd": command }),
            "shell_command" => json!({ "command": command }),
            "shell" if offer.arguments.iter().any(|name| name == "workdir") => {
                json!({ "command": ["bash", "-c", command] })
            }
            "shell" => json!({ "command": command }),
            "run_commands" => json!({ "commands": [command] }),
            _ => continue,
        };
        return offer.call(Input::Json(input));
    }
    missing("running a command", offered)
}
