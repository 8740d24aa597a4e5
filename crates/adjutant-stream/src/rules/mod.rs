//! Reading what an agent writes, one JSON object a line: a preset's rules say what a line means.
//! Pure: a line in, what was said out. What no rule knows is passed over, never an error.

mod node;
mod rule;

use crate::format::{End, Stream};
use adjutant_core::Cause;
use adjutant_core::subagent::Subagent;
use node::Node;
use rule::{CompiledRule, Path};
use std::borrow::Cow;

/// So much of what a tool was given or returned is of interest, in bytes.
pub const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// One thing that a line says.
#[derive(Debug, PartialEq)]
pub enum StreamEvent<'a> {
    /// The session's id.
    Session(Cow<'a, str>),
    /// A whole message of the agent, in its own words.
    Text(Cow<'a, str>),
    /// A piece of one, and whose pieces it belongs to.
    Delta {
        of: Option<Cow<'a, str>>,
        text: Cow<'a, str>,
    },
    /// It calls a tool.
    Tool {
        name: Cow<'a, str>,
        input: Cow<'a, str>,
    },
    /// It says something of a call: a message of several.
    Call {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Cow<'a, str>,
        state: CallState,
    },
    /// It works on this part of its plan.
    Step(Cow<'a, str>),
    /// What the session has cost so far, in dollars.
    Cost(f64),
    /// A tool returned this (its beginning).
    Output(Cow<'a, str>),
    /// Its last answer.
    Result(Cow<'a, str>),
    /// Something went wrong.
    Error(Cow<'a, str>),
    /// The session or sub-agent that the line belongs to. StreamEvent before everything else.
    Speaker(Cow<'a, str>),
    /// Something of a sub-agent of the CLI's own.
    Subagent {
        subagent: Subagent,
        begins: bool,
    },
    /// A try failed that the CLI repeats.
    Retry {
        error: String,
        /// Where the line itself tells it.
        cause: Option<Cause>,
    },
    /// When a limit ends, in seconds since the epoch.
    LimitReset(u64),
    Usage(Usage),
    End(End),
    /// The driver has to see the line.
    DialogueLine,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// More may be said of it before it begins.
    Pending,
    /// It is asked for, or has begun.
    Running,
    Ended,
}

/// What was used up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: Option<f64>,
    /// To be added to what was stated before, instead of replacing it.
    pub add: bool,
    /// The cost is still that of the whole session.
    pub cost_is_total: bool,
}

/// Rules, ready to be used.
#[derive(Debug)]
pub struct Rules {
    all: Vec<CompiledRule>,
    /// The paths that their conditions are about, each once.
    paths: Vec<Path>,
    speaker: Option<Path>,
}

/// So many paths are looked for once in each line, more as often as a condition needs them.
const PATHS_KEPT: usize = 32;

impl Rules {
    /// Prepares a preset's rules.
    #[must_use]
    pub fn new(stream: &Stream) -> Self {
        let mut paths = Vec::new();
        let all = stream.rules.iter().map(|rule| CompiledRule::new(rule, &mut paths)).collect();
        Self { all, paths, speaker: stream.speaker.as_deref().map(Path::new) }
    }

    /// Rules by which nothing means anything.
    #[must_use]
    pub fn empty() -> Self {
        Self { all: Vec::new(), paths: Vec::new(), speaker: None }
    }

    /// Says what a line means. `false`: it is no JSON object.
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
            kept.get_mut(at).map_or_else(search, |kept| *kept.get_or_insert_with(search))
        };
        for rule in &self.all {
            if !rule.when.iter().all(|(path, condition)| condition.is_met(find(*path))) {
                continue;
            }
            // Nobody wants to know whose a line is that means nothing.
            if let Some(id) = speaker.take().and_then(|path| path.find(&line, &line)?.text(SHOWN_BYTES_MAX)) {
                emit(StreamEvent::Speaker(id));
            }
            match &rule.each {
                None => rule.apply(&line, &line, emit),
                Some(path) => {
                    for item in path.find(&line, &line).and_then(Node::items).unwrap_or_default() {
                        if rule.where_.iter().all(|(path, condition)| condition.is_met(path.find(item, &line))) {
                            rule.apply(item, &line, emit);
                        }
                    }
                }
            }
        }
        true
    }
}
