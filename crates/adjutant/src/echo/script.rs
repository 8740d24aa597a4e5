//! The echo agent's script language: one command per line.

use adjutant_core::agent::edit_distance;
use adjutant_core::words;
use std::time::Duration;

/// A command of a script.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Say(String),
    Sleep(Duration),
    Ask(Question),
    /// Asks a question through `adj mcp` on standard input and output.
    AskStdio(Question),
    /// Asks for approval, by a tool or in a signal block.
    Approve(ApprovalRequest),
    ApproveBlock(ApprovalRequest),
    /// Delegates a task, by a tool or in a signal block.
    Delegate(DelegationRequest),
    DelegateBlock(DelegationRequest),
    /// Prints any other signal block: its tag, and its fields as arguments.
    Block(ToolCall),
    /// Asks several questions at once.
    Asks {
        count: u32,
        text: String,
        wait: bool,
    },
    /// Checks whether the last question that was asked without waiting is answered.
    Check {
        wait: bool,
    },
    /// Prints the run's own status.
    Status,
    Progress {
        percent: u8,
        note: String,
    },
    Report {
        status: String,
        text: String,
    },
    Write {
        path: String,
        text: String,
    },
    /// Appends a line with the run, attempt, pid and time to a file.
    Journal {
        path: String,
        text: String,
    },
    PrintEnv,
    Spawn {
        kind: Kind,
        ignore_term: bool,
    },
    /// Runs this binary as a shell would.
    Adj(Vec<String>),
    /// Runs this binary from a process without its parents and its environment.
    ScrubAdj(Vec<String>),
    /// Calls any tool at the run's own endpoint.
    Tool(ToolCall),
    /// Calls any tool through an `adj mcp` without a token.
    StdioTool(ToolCall),
    /// Calls a tool through `adj mcp` with another run's token.
    Steal {
        access: String,
        call: ToolCall,
    },
    /// Calls a tool over loopback HTTP with another run's token.
    StealHttp {
        access: String,
        call: ToolCall,
    },
    /// Calls a tool at another supervisor's socket with its token.
    StealSocket {
        access: String,
        call: ToolCall,
    },
    Flood(u64),
    Line(u64),
    Binary,
    Hang,
    IgnoreTerm,
    Fail(u8),
    Crash,
    ExpectMessage,
    Done(String),
}

/// How a descendant tries to escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Group,
    Setsid,
    DoubleFork,
    ClosedFds,
    KeepStdout,
}

words!(Kind { Group = "group", Setsid = "setsid", DoubleFork = "doublefork", ClosedFds = "closedfds", KeepStdout = "keep-stdout" });

/// A tool, or a call of the socket's API, with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    pub name: String,
    pub arguments: serde_json::Value,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Question {
    pub text: String,
    pub options: Vec<String>,
    pub default: Option<String>,
    pub expires_s: Option<u64>,
    pub nonblocking: bool,
}

/// A request for approval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApprovalRequest {
    pub action: String,
    pub preview: Option<String>,
    pub risk: Option<String>,
    pub options: Vec<String>,
    pub expires_s: Option<u64>,
    pub nowait: bool,
}

/// A request to delegate a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DelegationRequest {
    pub task: String,
    /// The fields of the protocol, with their values.
    pub fields: Vec<(&'static str, String)>,
    pub nowait: bool,
}

/// The commands of the language.
pub const COMMANDS: [&str; 34] = [
    "say",
    "sleep",
    "ask",
    "ask-stdio",
    "approve",
    "approve-block",
    "delegate",
    "delegate-block",
    "block",
    "asks",
    "check",
    "status",
    "progress",
    "report",
    "write",
    "journal",
    "print-env",
    "spawn",
    "adj",
    "scrub-adj",
    "tool",
    "stdio-tool",
    "steal",
    "steal-http",
    "steal-socket",
    "flood",
    "line",
    "binary",
    "hang",
    "ignore-term",
    "fail",
    "crash",
    "expect-message",
    "done",
];

/// What the agent does for a prompt.
#[derive(Debug, PartialEq)]
pub enum Plan {
    /// Repeat the text, which contains no command. `warning`: it was probably meant as one.
    Repeat {
        text: String,
        warning: Option<String>,
    },
    Script(Vec<Command>),
}

/// Parses one line.
pub fn parse(line: &str) -> Result<Command, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let wrong = |usage: &str| format!("{line:?}: use {usage}");
    let alone = |command: Command| {
        if rest.is_empty() {
            Ok(command)
        } else {
            Err(wrong(&format!("{word} alone on its line")))
        }
    };
    match word {
        "say" => Ok(Command::Say(unescape(rest))),
        "sleep" => match rest.trim_end_matches('s').parse::<f64>() {
            Ok(seconds) if (0.0..=1e7).contains(&seconds) => {
                Ok(Command::Sleep(Duration::from_secs_f64(seconds)))
            }
            _ => Err(wrong("sleep SECONDS")),
        },
        "ask" => question(rest).map(Command::Ask).ok_or_else(|| wrong(ASK)),
        "ask-stdio" => question(rest)
            .map(Command::AskStdio)
            .ok_or_else(|| wrong(ASK)),
        "approve" => approval_request(rest)
            .map(Command::Approve)
            .ok_or_else(|| wrong(APPROVE)),
        "approve-block" => approval_request(rest)
            .map(Command::ApproveBlock)
            .ok_or_else(|| wrong(APPROVE)),
        "delegate" => delegation_request(rest)
            .map(Command::Delegate)
            .ok_or_else(|| wrong(DELEGATE)),
        "delegate-block" => delegation_request(rest)
            .map(Command::DelegateBlock)
            .ok_or_else(|| wrong(DELEGATE)),
        "block" => tool_call(rest)
            .map(Command::Block)
            .ok_or_else(|| wrong("block TAG [JSON]")),
        "asks" => {
            let mut words = rest.splitn(2, ' ');
            let count = words
                .next()
                .and_then(|n| n.parse().ok())
                .ok_or_else(|| wrong("asks NUMBER [nowait] [TEXT]"))?;
            let rest = words.next().unwrap_or("").trim();
            let (wait, text) = match rest.strip_prefix("nowait") {
                Some(text) => (false, text.trim()),
                None => (true, rest),
            };
            Ok(Command::Asks {
                count,
                text: text.to_string(),
                wait,
            })
        }
        "check" => match rest {
            "" => Ok(Command::Check { wait: false }),
            "wait" => Ok(Command::Check { wait: true }),
            _ => Err(wrong("check [wait]")),
        },
        "status" => alone(Command::Status),
        "progress" => {
            let (percent, note) = rest.split_once(' ').unwrap_or((rest, ""));
            let percent = percent
                .trim_end_matches('%')
                .parse()
                .map_err(|_| wrong("progress PERCENT NOTE"))?;
            Ok(Command::Progress {
                percent,
                note: note.to_string(),
            })
        }
        "report" => match rest.split_once(' ').unwrap_or((rest, "")) {
            (status @ ("success" | "completed" | "error"), text) => Ok(Command::Report {
                status: status.to_string(),
                text: unescape(text),
            }),
            _ => Err(wrong("report success|error TEXT")),
        },
        "write" => two(rest)
            .map(|(path, text)| Command::Write {
                path,
                text: unescape(&text),
            })
            .ok_or_else(|| wrong("write PATH TEXT")),
        "journal" => {
            let (path, text) = two(rest).unwrap_or_else(|| (rest.to_string(), String::new()));
            if path.is_empty() {
                Err(wrong("journal PATH [TEXT]"))
            } else {
                Ok(Command::Journal { path, text })
            }
        }
        "print-env" => alone(Command::PrintEnv),
        "spawn" => {
            let mut words = rest.split_whitespace();
            let kind = words.next().and_then(Kind::from_word).ok_or_else(|| {
                wrong("spawn group|setsid|doublefork|closedfds|keep-stdout [ignore-term]")
            })?;
            Ok(Command::Spawn {
                kind,
                ignore_term: words.next() == Some("ignore-term"),
            })
        }
        "adj" => Ok(Command::Adj(words(rest))),
        "scrub-adj" => Ok(Command::ScrubAdj(words(rest))),
        "tool" => tool_call(rest)
            .map(Command::Tool)
            .ok_or_else(|| wrong("tool NAME [JSON]")),
        "stdio-tool" => tool_call(rest)
            .map(Command::StdioTool)
            .ok_or_else(|| wrong("stdio-tool NAME [JSON]")),
        "steal" | "steal-http" | "steal-socket" => {
            let (access, call) = two(rest)
                .and_then(|(path, rest)| Some((path, tool_call(&rest)?)))
                .ok_or_else(|| wrong("steal PATH NAME [JSON]"))?;
            Ok(match word {
                "steal" => Command::Steal { access, call },
                "steal-http" => Command::StealHttp { access, call },
                _ => Command::StealSocket { access, call },
            })
        }
        "flood" => rest
            .parse()
            .map(Command::Flood)
            .map_err(|_| wrong("flood BYTES")),
        "line" => rest
            .parse()
            .map(Command::Line)
            .map_err(|_| wrong("line BYTES")),
        "binary" => alone(Command::Binary),
        "hang" => alone(Command::Hang),
        "ignore-term" => alone(Command::IgnoreTerm),
        "fail" => rest
            .parse()
            .map(Command::Fail)
            .map_err(|_| wrong("fail CODE")),
        "crash" => alone(Command::Crash),
        "expect-message" => alone(Command::ExpectMessage),
        "done" => Ok(Command::Done(unescape(rest))),
        _ => {
            let meant = similar_command(word)
                .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
            Err(format!(
                "{word:?} is not a command of the echo agent{meant}"
            ))
        }
    }
}

/// Returns why a line that is not a command was probably meant as one.
pub fn mistake(line: &str) -> Option<String> {
    let problem = parse(line).err()?;
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let is_command = COMMANDS.contains(&word)
        || similar_command(word).is_some_and(|meant| parse(&format!("{meant} {rest}")).is_ok());
    is_command.then_some(problem)
}

fn similar_command(word: &str) -> Option<&'static str> {
    COMMANDS
        .into_iter()
        .find(|command| edit_distance(word, command) == 1)
}

const ASK: &str = r#"ask "QUESTION" [options: a|b|c] [default: x] [expires: 5s] [nonblocking]"#;

const APPROVE: &str =
    r#"approve "ACTION" [preview: x] [risk: x] [options: a|b] [expires: 5s] [nowait]"#;

/// Parses `"QUESTION" [options: a|b] [default: x] [expires: 5s] [nonblocking]`. The brackets are optional.
fn question(text: &str) -> Option<Question> {
    let (text, parts) =
        parse_description(text, &["options:", "default:", "expires:", "nonblocking"])?;
    let mut question = Question {
        text,
        ..Question::default()
    };
    for (key, value) in parts {
        match key {
            "options:" => question.options = alternatives(&value),
            "default:" => question.default = Some(value),
            "expires:" => question.expires_s = Some(seconds(&value)?),
            _ => question.nonblocking = true,
        }
    }
    Some(question)
}

/// Parses `"ACTION" [preview: x] …` in the same way.
fn approval_request(text: &str) -> Option<ApprovalRequest> {
    let (action, parts) = parse_description(
        text,
        &["preview:", "risk:", "options:", "expires:", "nowait"],
    )?;
    let mut approval = ApprovalRequest {
        action,
        ..ApprovalRequest::default()
    };
    for (key, value) in parts {
        match key {
            "preview:" => approval.preview = Some(unescape(&value)),
            "risk:" => approval.risk = Some(value),
            "options:" => approval.options = alternatives(&value),
            "expires:" => approval.expires_s = Some(seconds(&value)?),
            _ => approval.nowait = true,
        }
    }
    Some(approval)
}

const DELEGATE: &str = r#"delegate "TASK" [blocks|optional] [agent: x] [directory: x] [priority: P0] [reason: x] [context: x] [coordination: x] [budget: x] [nowait]"#;

/// Parses `"TASK" [blocks] [agent: x] …` in the same way.
fn delegation_request(text: &str) -> Option<DelegationRequest> {
    let keys = [
        "blocks",
        "optional",
        "agent:",
        "directory:",
        "priority:",
        "reason:",
        "context:",
        "coordination:",
        "budget:",
        "nowait",
    ];
    let (task, parts) = parse_description(text, &keys)?;
    let mut delegation = DelegationRequest {
        task,
        ..DelegationRequest::default()
    };
    for (key, value) in parts {
        let (name, value) = match key {
            "nowait" => {
                delegation.nowait = true;
                continue;
            }
            "blocks" => ("independence", "blocks_current_work".to_string()),
            "optional" => ("independence", "optional".to_string()),
            "agent:" => ("agent", value),
            "directory:" => ("directory", value),
            "priority:" => ("priority", value),
            "budget:" => ("budget", value),
            "context:" => ("context_required", unescape(&value)),
            "coordination:" => ("coordination", unescape(&value)),
            _ => ("delegation_reason", unescape(&value)),
        };
        delegation.fields.push((name, value));
    }
    Some(delegation)
}

fn alternatives(text: &str) -> Vec<String> {
    text.split('|')
        .map(|option| option.trim().to_string())
        .collect()
}

fn seconds(text: &str) -> Option<u64> {
    text.trim_end_matches('s').parse().ok()
}

/// Parses a text in quotes, followed by values with these keys, with or without brackets. A key without a colon has
/// no value.
fn parse_description<'a>(text: &str, keys: &[&'a str]) -> Option<(String, Vec<(&'a str, String)>)> {
    let rest = text.strip_prefix('"')?;
    let end = rest
        .char_indices()
        .find(|(at, c)| *c == '"' && !rest[..*at].ends_with('\\'))
        .map(|(at, _)| at)?;
    let quoted = unescape(&rest[..end].replace("\\\"", "\""));
    let mut tail = rest[end + 1..]
        .replace(['[', ']'], "\u{1f}")
        .trim()
        .to_string();
    for key in keys {
        tail = tail.replace(key, &format!("\u{1f}{key}"));
    }
    let mut parts = Vec::new();
    for part in tail
        .split('\u{1f}')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let key = keys.iter().find(|key| part.starts_with(**key))?;
        let value = part[key.len()..].trim();
        if !key.ends_with(':') && !value.is_empty() {
            return None;
        }
        parts.push((*key, value.to_string()));
    }
    Some((quoted, parts))
}

fn tool_call(text: &str) -> Option<ToolCall> {
    let (name, json) = text.split_once(char::is_whitespace).unwrap_or((text, "{}"));
    let arguments = serde_json::from_str(json.trim()).ok()?;
    (!name.is_empty()).then(|| ToolCall {
        name: name.to_string(),
        arguments,
    })
}

/// Splits off the first word.
fn two(text: &str) -> Option<(String, String)> {
    let (first, rest) = text.split_once(char::is_whitespace)?;
    Some((first.to_string(), rest.trim_start().to_string()))
}

/// Splits at blanks; double quotes keep blanks together.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut begun = false;
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                begun = true;
            }
            c if c.is_whitespace() && !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// `\n`, `\t` and `\e` mean a new line, a tab and an escape character.
fn unescape(text: &str) -> String {
    text.replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\e", "\u{1b}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_has_options_default_and_deadline() {
        let expected = Question {
            text: "which \"one\"?".to_string(),
            options: vec!["a".to_string(), "b c".to_string()],
            default: Some("a".to_string()),
            expires_s: Some(5),
            nonblocking: true,
        };
        let bracketed =
            r#"ask "which \"one\"?" [options: a|b c] [default: a] [expires: 5s] [nonblocking]"#;
        let bare = r#"ask "which \"one\"?" options: a|b c default: a expires: 5s nonblocking"#;
        assert_eq!(parse(bracketed), Ok(Command::Ask(expected.clone())));
        assert_eq!(parse(bare), Ok(Command::Ask(expected)));
        assert!(parse("ask why").is_err());
    }

    #[test]
    fn approval_has_action_preview_and_risk() {
        let expected = ApprovalRequest {
            action: "drop it".to_string(),
            preview: Some("- a\n+ b".to_string()),
            risk: Some("high".to_string()),
            expires_s: Some(5),
            ..ApprovalRequest::default()
        };
        assert_eq!(
            parse(r#"approve "drop it" [preview: - a\n+ b] [risk: high] [expires: 5s]"#),
            Ok(Command::Approve(expected))
        );
        assert!(parse("approve drop").is_err() && parse(r#"approve "x" why"#).is_err());
    }

    #[test]
    fn every_command_is_known_and_documented() {
        let page = include_str!("../../../../docs/agents.md");
        for command in COMMANDS {
            assert!(
                !parse(command).is_err_and(|problem| problem.contains("is not a command")),
                "{command}"
            );
            assert!(
                page.contains(&format!("`{command}")),
                "{command} is not in docs/agents.md"
            );
        }
    }

    #[test]
    fn mistyped_commands_are_recognized() {
        assert_eq!(
            mistake("slep 5").as_deref(),
            Some("\"slep\" is not a command of the echo agent; did you mean sleep?")
        );
        assert!(
            mistake("ask Which one?")
                .is_some_and(|problem| problem.contains("use ask \"QUESTION\""))
        );
        assert!(mistake("fial 3").is_some_and(|problem| problem.ends_with("did you mean fail?")));
        for text in [
            "Fix the bug.",
            "task",
            "fall back to 3",
            "Report: all is well",
            "say x",
        ] {
            assert_eq!(mistake(text), None, "{text}");
        }
    }

    #[test]
    fn quoted_words_stay_together() {
        assert_eq!(words(r#"reply x "a b" """#), ["reply", "x", "a b", ""]);
    }
}
