//! Turns the lines of an agent, one JSON object each, into events by a preset's rules.
//! Pure: a line in, events out. A line that matches no rule is ignored and is not an error.

mod node;
mod rule;
mod scan;

use crate::format::{End, Stream};
use adjutant_core::Cause;
use adjutant_core::subagent::Subagent;
use node::Node;
use rule::{CompiledRule, Path};
use std::borrow::Cow;

/// Longest input or output of a tool in an event, in bytes.
pub const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// An event in a line.
#[derive(Debug, PartialEq)]
pub enum StreamEvent<'a> {
    /// The session's id.
    Session(Cow<'a, str>),
    /// A whole message of the agent.
    Text(Cow<'a, str>),
    /// A chunk of a message, and the id of the message.
    Delta {
        of: Option<Cow<'a, str>>,
        text: Cow<'a, str>,
    },
    /// A tool call in a single message.
    Tool {
        name: Cow<'a, str>,
        input: Cow<'a, str>,
    },
    /// One of several messages about a tool call.
    Call {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Cow<'a, str>,
        state: CallState,
    },
    /// The current step of the agent's plan.
    Step(Cow<'a, str>),
    /// Cost of the session so far, in dollars.
    Cost(f64),
    /// The beginning of a tool's output.
    Output(Cow<'a, str>),
    /// The agent's last answer.
    Result(Cow<'a, str>),
    /// An error message.
    Error(Cow<'a, str>),
    /// The session or sub-agent that the line belongs to. Precedes the other events of the line.
    Speaker(Cow<'a, str>),
    /// State of one of the CLI's own sub-agents.
    Subagent {
        subagent: Subagent,
        begins: bool,
    },
    /// A call failed and the CLI retries it.
    Retry {
        error: String,
        /// The cause, if the kind of line determines it.
        cause: Option<Cause>,
    },
    /// When a usage limit resets, in seconds since the epoch.
    LimitReset(u64),
    Usage(Usage),
    End(End),
    /// The line is passed to the dialogue with the agent.
    DialogueLine,
}

/// The state of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// Announced; its name or input may still change.
    Pending,
    /// Requested or started.
    Running,
    Ended,
}

/// Tokens and cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: Option<f64>,
    /// Adds to the usage of earlier events instead of replacing it.
    pub add: bool,
    /// The cost covers the whole session, even with `add`.
    pub cost_is_total: bool,
}

/// The compiled rules of a preset.
#[derive(Debug)]
pub struct Rules {
    all: Vec<CompiledRule>,
    /// The distinct paths in the conditions of all rules.
    paths: Vec<Path>,
    speaker: Option<Path>,
}

/// Number of paths whose values are cached for a line. Further paths are resolved again for each
/// condition.
const PATHS_KEPT: usize = 32;

impl Rules {
    /// Compiles a preset's rules.
    #[must_use]
    pub fn new(stream: &Stream) -> Self {
        let mut paths = Vec::new();
        let all = stream
            .rules
            .iter()
            .map(|rule| CompiledRule::new(rule, &mut paths))
            .collect();
        Self {
            all,
            paths,
            speaker: stream.speaker.as_deref().map(Path::new),
        }
    }

    /// Creates an empty set of rules, which yields no events.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            all: Vec::new(),
            paths: Vec::new(),
            speaker: None,
        }
    }

    /// Calls `emit` for each event in a line. Returns `false` if the line is not a JSON object.
    pub fn read(&self, line: &str, emit: &mut impl FnMut(StreamEvent<'_>)) -> bool {
        let line = line.trim();
        if !line.starts_with('{') {
            return false;
        }
        let line = Node::new(line);
        if line.fields().is_none() {
            return false;
        }
        let mut speaker = self.speaker.as_ref();
        let mut kept: [Option<Option<&Node<'_>>>; PATHS_KEPT] = [None; PATHS_KEPT];
        let mut find = |at: usize| {
            let search = || self.paths.get(at).and_then(|path| path.find(&line, &line));
            kept.get_mut(at)
                .map_or_else(search, |kept| *kept.get_or_insert_with(search))
        };
        for rule in &self.all {
            if !rule
                .when
                .iter()
                .all(|(path, condition)| condition.is_met(find(*path)))
            {
                continue;
            }
            // A line that matches no rule needs no speaker.
            if let Some(id) = speaker
                .take()
                .and_then(|path| path.find(&line, &line)?.text(SHOWN_BYTES_MAX))
            {
                emit(StreamEvent::Speaker(id));
            }
            match &rule.each {
                None => rule.apply(&line, &line, emit),
                Some(path) => {
                    for item in path
                        .find(&line, &line)
                        .and_then(Node::items)
                        .unwrap_or_default()
                    {
                        if rule
                            .where_
                            .iter()
                            .all(|(path, condition)| condition.is_met(path.find(item, &line)))
                        {
                            rule.apply(item, &line, emit);
                        }
                    }
                }
            }
        }
        true
    }
}
