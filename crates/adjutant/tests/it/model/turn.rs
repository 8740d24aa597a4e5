//! Turns of the model, independent of the dialect.

use super::{Dialect, Seen};
use serde_json::Value;

/// A turn of the model.
#[derive(Debug, Clone)]
pub enum Turn {
    /// Writes a text, and ends.
    Say(String),
    /// Calls a tool, found by the end of its name, since CLIs add a prefix.
    Call { tool: String, arguments: Value },
    /// Calls a tool with arguments computed from the request.
    CallWith {
        tool: &'static str,
        arguments: fn(&Seen) -> Value,
    },
    /// Writes a file with the CLI's own tool.
    Write { path: String, content: String },
    /// Runs a command with the CLI's own shell. `asks`: outside of its sandbox, if the model has to
    /// request that.
    Shell { command: String, asks: bool },
    /// Fetches an address with the CLI's own tool.
    Fetch { url: String },
    /// Searches the web with the CLI's own tool, or by the model's service.
    WebSearch { query: &'static str },
    /// Starts a text and hangs.
    Hang(String),
    /// A turn computed from the request. As the last turn, it applies to all further requests.
    Computed(fn(&Seen) -> Turn),
    /// Refuses because of a rate limit, with the time to retry.
    RateLimited { after_s: u32 },
    /// Refuses because the subscription is used up for this long, in the vendor's form.
    UsedUp { for_s: u32 },
    /// Refuses the key.
    Unauthorized,
    /// Refuses because the conversation is too long.
    TooLong,
    /// Refuses because there is no credit left.
    NoCredit,
    /// Refuses because it has no capacity.
    Overloaded,
    /// Ends the connection without an answer.
    Reset,
}

impl Turn {
    pub fn say(text: &str) -> Self {
        Self::Say(text.to_owned())
    }

    pub fn call(tool: &str, arguments: Value) -> Self {
        Self::Call {
            tool: tool.to_owned(),
            arguments,
        }
    }

    pub fn write(path: &str, content: &str) -> Self {
        Self::Write {
            path: path.to_owned(),
            content: content.to_owned(),
        }
    }

    pub fn shell(command: &str) -> Self {
        Self::Shell {
            command: command.to_owned(),
            asks: false,
        }
    }

    pub fn asking_shell(command: &str) -> Self {
        Self::Shell {
            command: command.to_owned(),
            asks: true,
        }
    }

    pub fn fetch(url: &str) -> Self {
        Self::Fetch {
            url: url.to_owned(),
        }
    }

    /// Returns the names of a deferred tool for this turn, and whether the turn is left out if
    /// there is none.
    pub fn optional_tool(&self) -> Option<&'static str> {
        match self {
            Self::Fetch { .. } => Some("WebFetch"),
            Self::WebSearch { .. } => Some("WebSearch"),
            _ => None,
        }
    }

    pub fn hang(text: &str) -> Self {
        Self::Hang(text.to_owned())
    }
}

/// The wire form of a call.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub name: String,
    /// The namespace, in a dialect that groups tools.
    pub namespace: Option<String>,
    pub input: Input,
}

/// The input of a tool: JSON, or text for some tools of one vendor.
#[derive(Debug, Clone)]
pub enum Input {
    Json(Value),
    Text(String),
}

/// What is streamed.
#[derive(Debug, Clone)]
pub enum Say {
    Text(String),
    Call(ToolCall),
    /// Searches for deferred tools.
    Search(String),
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    Hang,
    /// Nothing is streamed, and the connection ends.
    Reset,
}

/// A refusal, before anything is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    RateLimited { after_s: u32 },
    UsedUp { for_s: u32 },
    Unauthorized,
    TooLong,
    NoCredit,
    Overloaded,
}

impl Refusal {
    pub fn status(self, dialect: Dialect) -> u16 {
        match (self, dialect) {
            (Self::RateLimited { .. } | Self::UsedUp { .. }, _) => 429,
            (Self::Unauthorized, _) => 401,
            (Self::TooLong, _) | (Self::NoCredit, Dialect::Messages) => 400,
            (Self::NoCredit, _) => 429,
            (Self::Overloaded, Dialect::Messages) => 529,
            (Self::Overloaded, _) => 503,
        }
    }

    /// Returns the message of that vendor's service.
    pub fn message(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::TooLong, Dialect::Messages) => {
                "prompt is too long: 250000 tokens > 200000 maximum"
            }
            (Self::TooLong, Dialect::Gemini) => {
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
            }
            (Self::NoCredit, Dialect::Messages) => {
                "Your credit balance is too low to access the Anthropic API."
            }
            (refusal, _) => refusal.usual_message(),
        }
    }

    fn usual_message(self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "too many requests: come again later",
            Self::UsedUp { .. } => "the usage limit has been reached",
            Self::Unauthorized => "invalid api key",
            Self::TooLong => {
                "Your input exceeds the context window of this model. Please adjust your input and try again."
            }
            Self::NoCredit => {
                "You exceeded your current quota, please check your plan and billing details."
            }
            Self::Overloaded => "Overloaded",
        }
    }
}

/// Returns a time in the future, in seconds since the epoch.
pub fn epoch_s(after_s: u32) -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a clock");
    now.as_secs() + u64::from(after_s)
}
