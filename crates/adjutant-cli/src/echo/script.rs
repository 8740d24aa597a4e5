//! The echo agent's script language: one command per line.

use adjutant_core::agent::edit_distance;
use adjutant_core::words;
use std::str::FromStr;
use std::time::Duration;

/// A command of a script.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
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
pub(super) enum Kind {
    Group,
    Setsid,
    DoubleFork,
    ClosedFds,
    KeepStdout,
}

words!(Kind { Group = "group", Setsid = "setsid", DoubleFork = "doublefork", ClosedFds = "closedfds", KeepStdout = "keep-stdout" });

/// A tool, or a call of the socket's API, with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    pub name: String,
    pub arguments: serde_json::Value,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Question {
    pub text: String,
    pub options: Vec<String>,
    pub default: Option<String>,
    pub expires_s: Option<u64>,
    pub nonblocking: bool,
}

/// A request for approval.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ApprovalRequest {
    pub action: String,
    pub preview: Option<String>,
    pub risk: Option<String>,
    pub options: Vec<String>,
    pub expires_s: Option<u64>,
    pub nowait: bool,
}

/// A request to delegate a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DelegationRequest {
    pub task: String,
    /// The fields of the protocol, with their values.
    pub fields: Vec<(&'static str, String)>,
    pub nowait: bool,
}

/// The commands of the language.
pub(crate) const COMMANDS: [&str; 34] = [
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
pub(super) enum Plan {
    /// Repeat the text, which contains no command. `warning`: it was probably meant as one.
    Repeat {
        text: String,
        warning: Option<ScriptError>,
    },
    Script(Vec<Command>),
}

/// Why a line is not a command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum ScriptError {
    #[error("{line:?}: use {usage}")]
    Usage { line: String, usage: &'static str },
    #[error("{line:?}: use {word} alone on its line")]
    NotAlone { line: String, word: String },
    #[error("{word:?} is not a command of the echo agent")]
    Unknown { word: String },
    #[error("{word:?} is not a command of the echo agent; did you mean {meant}?")]
    Mistyped { word: String, meant: &'static str },
}

/// Parses one line.
pub(super) fn parse(line: &str) -> Result<Command, ScriptError> {
    let line = Line::new(line);
    line.statement()
        .or_else(|| line.request())
        .or_else(|| line.call())
        .or_else(|| line.behavior())
        .unwrap_or_else(|| Err(line.unknown()))
}

/// A line, split into the command and its arguments.
struct Line<'a> {
    whole: &'a str,
    word: &'a str,
    rest: &'a str,
}

/// `None`: the line is a command of another kind.
type Parsed = Option<Result<Command, ScriptError>>;

impl<'a> Line<'a> {
    fn new(whole: &'a str) -> Self {
        let (word, rest) = whole.split_once(char::is_whitespace).unwrap_or((whole, ""));
        Self {
            whole,
            word,
            rest: rest.trim(),
        }
    }

    /// Parses what states something: in the output, in a file, or as a signal.
    fn statement(&self) -> Parsed {
        Some(match self.word {
            "say" => Ok(Command::Say(unescape(self.rest))),
            "done" => Ok(Command::Done(unescape(self.rest))),
            "progress" => self.read(self.progress(), "progress PERCENT NOTE"),
            "report" => self.read(self.report(), "report success|error TEXT"),
            "write" => self.read(self.write(), "write PATH TEXT"),
            "journal" => self.read(self.journal(), "journal PATH [TEXT]"),
            "print-env" => self.alone(Command::PrintEnv),
            "status" => self.alone(Command::Status),
            _ => return None,
        })
    }

    /// Parses what asks the parent for something.
    fn request(&self) -> Parsed {
        let question = || question(self.rest);
        let approval = || approval_request(self.rest);
        let delegation = || delegation_request(self.rest);
        Some(match self.word {
            "ask" => self.read(question().map(Command::Ask), ASK),
            "ask-stdio" => self.read(question().map(Command::AskStdio), ASK),
            "asks" => self.read(self.asks(), "asks NUMBER [nowait] [TEXT]"),
            "check" => self.read(self.check(), "check [wait]"),
            "approve" => self.read(approval().map(Command::Approve), APPROVE),
            "approve-block" => self.read(approval().map(Command::ApproveBlock), APPROVE),
            "delegate" => self.read(delegation().map(Command::Delegate), DELEGATE),
            "delegate-block" => self.read(delegation().map(Command::DelegateBlock), DELEGATE),
            _ => return None,
        })
    }

    /// Parses what calls a tool or this program, or prints a signal block.
    fn call(&self) -> Parsed {
        let call = || tool_call(self.rest);
        Some(match self.word {
            "block" => self.read(call().map(Command::Block), "block TAG [JSON]"),
            "tool" => self.read(call().map(Command::Tool), "tool NAME [JSON]"),
            "stdio-tool" => self.read(call().map(Command::StdioTool), "stdio-tool NAME [JSON]"),
            "steal" | "steal-http" | "steal-socket" => {
                self.read(self.steal(), "steal PATH NAME [JSON]")
            }
            "adj" => Ok(Command::Adj(words(self.rest))),
            "scrub-adj" => Ok(Command::ScrubAdj(words(self.rest))),
            _ => return None,
        })
    }

    /// Parses how the agent behaves as a process.
    fn behavior(&self) -> Parsed {
        Some(match self.word {
            "sleep" => self.read(self.sleep(), "sleep SECONDS"),
            "spawn" => self.read(
                self.spawn(),
                "spawn group|setsid|doublefork|closedfds|keep-stdout [ignore-term]",
            ),
            "flood" => self.read(self.number().map(Command::Flood), "flood BYTES"),
            "line" => self.read(self.number().map(Command::Line), "line BYTES"),
            "fail" => self.read(self.number().map(Command::Fail), "fail CODE"),
            "binary" => self.alone(Command::Binary),
            "hang" => self.alone(Command::Hang),
            "ignore-term" => self.alone(Command::IgnoreTerm),
            "crash" => self.alone(Command::Crash),
            "expect-message" => self.alone(Command::ExpectMessage),
            _ => return None,
        })
    }

    fn read(&self, command: Option<Command>, usage: &'static str) -> Result<Command, ScriptError> {
        command.ok_or_else(|| ScriptError::Usage {
            line: self.whole.to_string(),
            usage,
        })
    }

    /// Returns a command that has no arguments.
    fn alone(&self, command: Command) -> Result<Command, ScriptError> {
        if self.rest.is_empty() {
            return Ok(command);
        }
        Err(ScriptError::NotAlone {
            line: self.whole.to_string(),
            word: self.word.to_string(),
        })
    }

    fn unknown(&self) -> ScriptError {
        let word = self.word.to_string();
        match similar_command(self.word) {
            Some(meant) => ScriptError::Mistyped { word, meant },
            None => ScriptError::Unknown { word },
        }
    }

    fn number<T: FromStr>(&self) -> Option<T> {
        self.rest.parse().ok()
    }

    fn progress(&self) -> Option<Command> {
        let (percent, note) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        Some(Command::Progress {
            percent: percent.trim_end_matches('%').parse().ok()?,
            note: note.to_string(),
        })
    }

    fn report(&self) -> Option<Command> {
        let (status, text) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        matches!(status, "success" | "completed" | "error").then(|| Command::Report {
            status: status.to_string(),
            text: unescape(text),
        })
    }

    fn write(&self) -> Option<Command> {
        let (path, text) = two(self.rest)?;
        Some(Command::Write {
            path,
            text: unescape(&text),
        })
    }

    fn journal(&self) -> Option<Command> {
        let (path, text) = two(self.rest).unwrap_or_else(|| (self.rest.to_string(), String::new()));
        (!path.is_empty()).then_some(Command::Journal { path, text })
    }

    fn asks(&self) -> Option<Command> {
        let (count, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        let rest = rest.trim();
        let (wait, text) = match rest.strip_prefix("nowait") {
            Some(text) => (false, text.trim()),
            None => (true, rest),
        };
        Some(Command::Asks {
            count: count.parse().ok()?,
            text: text.to_string(),
            wait,
        })
    }

    fn check(&self) -> Option<Command> {
        match self.rest {
            "" => Some(Command::Check { wait: false }),
            "wait" => Some(Command::Check { wait: true }),
            _ => None,
        }
    }

    fn steal(&self) -> Option<Command> {
        let (access, rest) = two(self.rest)?;
        let call = tool_call(&rest)?;
        Some(match self.word {
            "steal" => Command::Steal { access, call },
            "steal-http" => Command::StealHttp { access, call },
            _ => Command::StealSocket { access, call },
        })
    }

    fn sleep(&self) -> Option<Command> {
        let seconds = self.rest.trim_end_matches('s').parse::<f64>().ok()?;
        (0.0..=1e7)
            .contains(&seconds)
            .then(|| Command::Sleep(Duration::from_secs_f64(seconds)))
    }

    fn spawn(&self) -> Option<Command> {
        let mut words = self.rest.split_whitespace();
        Some(Command::Spawn {
            kind: Kind::from_word(words.next()?)?,
            ignore_term: words.next() == Some("ignore-term"),
        })
    }
}

/// Returns why a line that is not a command was probably meant as one.
pub(super) fn mistake(line: &str) -> Option<ScriptError> {
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

/// Parses `"QUESTION" [options: a|b] [default: x] [expires: 5s] [nonblocking]`. The brackets are
/// optional.
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

/// Parses a text in quotes, followed by values with these keys, with or without brackets. A key
/// without a colon has no value.
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
                !matches!(
                    parse(command),
                    Err(ScriptError::Unknown { .. } | ScriptError::Mistyped { .. })
                ),
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
            mistake("slep 5").map(|problem| problem.to_string()),
            Some("\"slep\" is not a command of the echo agent; did you mean sleep?".to_string())
        );
        assert!(
            mistake("ask Which one?")
                .is_some_and(|problem| problem.to_string().contains("use ask \"QUESTION\""))
        );
        assert!(matches!(
            mistake("fial 3"),
            Some(ScriptError::Mistyped { meant: "fail", .. })
        ));
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
    fn arguments_have_limits_and_forms() {
        assert_eq!(
            parse("progress 40% half"),
            Ok(Command::Progress {
                percent: 40,
                note: "half".to_string()
            })
        );
        assert_eq!(
            parse("asks 3 nowait why"),
            Ok(Command::Asks {
                count: 3,
                text: "why".to_string(),
                wait: false
            })
        );
        assert_eq!(
            parse("spawn setsid ignore-term"),
            Ok(Command::Spawn {
                kind: Kind::Setsid,
                ignore_term: true
            })
        );
        assert!(matches!(
            parse("steal-http access status"),
            Ok(Command::StealHttp { .. })
        ));
        let usage = |line: &str| match parse(line) {
            Err(ScriptError::Usage { usage, .. }) => usage,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(usage("progress 256"), "progress PERCENT NOTE");
        assert_eq!(usage("asks some"), "asks NUMBER [nowait] [TEXT]");
        assert_eq!(usage("report maybe x"), "report success|error TEXT");
        assert_eq!(usage("check later"), "check [wait]");
        assert_eq!(usage("journal"), "journal PATH [TEXT]");
        assert_eq!(usage("fail 256"), "fail CODE");
        assert_eq!(usage("steal access"), "steal PATH NAME [JSON]");
        for line in ["sleep -1", "sleep 1e8", "sleep NaN", "sleep soon"] {
            assert_eq!(usage(line), "sleep SECONDS", "{line}");
        }
    }

    #[test]
    fn command_without_arguments_is_alone_on_its_line() {
        assert_eq!(parse("hang "), Ok(Command::Hang));
        assert_eq!(
            parse("hang on").map_err(|problem| problem.to_string()),
            Err("\"hang on\": use hang alone on its line".to_string())
        );
    }

    #[test]
    fn quoted_words_stay_together() {
        assert_eq!(words(r#"reply x "a b" """#), ["reply", "x", "a b", ""]);
    }
}
