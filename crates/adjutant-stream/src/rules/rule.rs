//! Compiled rules: parsed paths and conditions.

use super::node::Node;
use super::{CallState, SHOWN_BYTES_MAX, StreamEvent, Usage};
use crate::format::{End, Rule, SubagentPaths, UsagePaths};
use adjutant_core::Cause;
use adjutant_core::subagent::{RUNNING, Subagent};
use std::borrow::Cow;

#[derive(Debug)]
pub(super) struct CompiledRule {
    /// Conditions on the line: the index of a path, and the required value.
    pub(super) when: Vec<(usize, Condition)>,
    pub(super) each: Option<Path>,
    pub(super) where_: Vec<(Path, Condition)>,
    session: Option<Path>,
    text: Option<Path>,
    delta: Option<Path>,
    delta_of: Option<Path>,
    tool: Option<Path>,
    input: Option<Path>,
    call: Option<Path>,
    call_state: Option<Path>,
    step: Option<Path>,
    output: Option<Path>,
    result: Option<Path>,
    error: Option<Path>,
    subagent: Option<CompiledSubagent>,
    retry: Vec<Path>,
    retry_cause: Option<Cause>,
    again: Option<Path>,
    usage: Option<CompiledUsage>,
    end: Option<End>,
    listen: bool,
}

#[derive(Debug)]
pub(super) struct CompiledSubagent {
    id: Path,
    begins: bool,
    kind: Option<Path>,
    about: Option<Path>,
    state: Option<Path>,
    tokens: Option<Path>,
}

#[derive(Debug)]
pub(super) struct CompiledUsage {
    input: Vec<Path>,
    cached: Vec<Path>,
    output: Vec<Path>,
    cost_usd: Vec<Path>,
    add: bool,
    cost_is_total: bool,
}

#[derive(Debug, PartialEq)]
pub(super) struct Path {
    from_line: bool,
    fields: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Condition {
    Nothing,
    Anything,
    OneOf(Vec<String>),
}

impl CompiledRule {
    /// Compiles a rule. Adds the paths of its conditions to `paths` unless they are already there.
    pub(super) fn new(rule: &Rule, paths: &mut Vec<Path>) -> Self {
        let path = |text: &Option<String>| text.as_deref().map(Path::new);
        let mut number_of = |path: Path| {
            let known = paths.iter().position(|known| *known == path);
            known.unwrap_or_else(|| {
                paths.push(path);
                paths.len() - 1
            })
        };
        Self {
            when: rule
                .when
                .iter()
                .map(|(path, condition)| (number_of(Path::new(path)), Condition::new(condition)))
                .collect(),
            each: path(&rule.each),
            where_: rule
                .r#where
                .iter()
                .map(|(path, condition)| (Path::new(path), Condition::new(condition)))
                .collect(),
            session: path(&rule.session),
            text: path(&rule.text),
            delta: path(&rule.delta),
            delta_of: path(&rule.delta_of),
            tool: path(&rule.tool),
            input: path(&rule.input),
            call: path(&rule.call),
            call_state: path(&rule.call_state),
            step: path(&rule.step),
            output: path(&rule.output),
            result: path(&rule.result),
            error: path(&rule.error),
            subagent: rule.subagent.as_ref().map(CompiledSubagent::new),
            retry: rule
                .retry
                .as_deref()
                .unwrap_or("")
                .split_ascii_whitespace()
                .map(Path::new)
                .collect(),
            retry_cause: rule.retry_cause.as_deref().and_then(Cause::from_word),
            again: path(&rule.again),
            usage: rule.usage.as_ref().map(CompiledUsage::new),
            end: rule.end,
            listen: rule.listen,
        }
    }

    pub(super) fn apply<'a>(
        &self,
        at: &Node<'a>,
        line: &Node<'a>,
        emit: &mut impl FnMut(StreamEvent<'_>),
    ) {
        let find = |path: &Option<Path>, bytes_max| path.as_ref()?.find(at, line)?.text(bytes_max);
        let whole = |path: &Option<Path>| find(path, usize::MAX);
        let short = |path: &Option<Path>| find(path, SHOWN_BYTES_MAX);
        if let Some(id) = whole(&self.session) {
            emit(StreamEvent::Session(id));
        }
        if let Some(text) = whole(&self.text) {
            emit(StreamEvent::Text(text));
        }
        if let Some(text) = whole(&self.delta) {
            emit(StreamEvent::Delta {
                of: whole(&self.delta_of),
                text,
            });
        }
        if let Some(id) = short(&self.call) {
            let state = match short(&self.call_state).as_deref() {
                _ if self.call_state.is_none() => CallState::Running,
                Some("in_progress") => CallState::Running,
                Some("completed" | "failed") => CallState::Ended,
                _ => CallState::Pending,
            };
            emit(StreamEvent::Call {
                id,
                name: short(&self.tool).unwrap_or_default(),
                input: short(&self.input).unwrap_or_default(),
                state,
            });
        } else if let Some(name) = short(&self.tool) {
            emit(StreamEvent::Tool {
                name,
                input: short(&self.input).unwrap_or_default(),
            });
        }
        if let Some(step) = short(&self.step) {
            emit(StreamEvent::Step(step));
        }
        if let Some(output) = short(&self.output) {
            emit(StreamEvent::Output(output));
        }
        if let Some(error) = short(&self.error) {
            emit(StreamEvent::Error(error));
        }
        if let Some(CompiledSubagent {
            id,
            begins,
            kind,
            about,
            state,
            tokens,
        }) = &self.subagent
            && let Some(id) = id
                .find(at, line)
                .and_then(|node| node.text(SHOWN_BYTES_MAX))
        {
            let text = |path: &Option<Path>| find(path, SHOWN_BYTES_MAX).map(Cow::into_owned);
            let state = text(state).or_else(|| begins.then(|| RUNNING.to_owned()));
            let tokens = tokens
                .as_ref()
                .and_then(|path| path.find(at, line)?.number())
                .map(|number| whole_number(Some(number)));
            let subagent = Subagent {
                id: id.into_owned(),
                kind: text(kind),
                about: text(about),
                state,
                tokens,
            };
            emit(StreamEvent::Subagent {
                subagent,
                begins: *begins,
            });
        }
        if !self.retry.is_empty() {
            let parts = self
                .retry
                .iter()
                .filter_map(|path| path.find(at, line)?.text(SHOWN_BYTES_MAX));
            emit(StreamEvent::Retry {
                error: parts.collect::<Vec<_>>().join(": "),
                cause: self.retry_cause,
            });
        }
        if let Some(result) = whole(&self.result) {
            emit(StreamEvent::Result(result));
        }
        if let Some(seconds) = self
            .again
            .as_ref()
            .and_then(|path| path.find(at, line)?.number())
        {
            emit(StreamEvent::LimitReset(whole_number(Some(seconds))));
        }
        if let Some(usage) = &self.usage {
            let sum = |paths: &[Path]| {
                paths
                    .iter()
                    .filter_map(|path| path.find(at, line)?.number())
                    .fold(None, |sum, n| Some(sum.unwrap_or(0.0) + n))
            };
            let (input, cached, output) =
                (sum(&usage.input), sum(&usage.cached), sum(&usage.output));
            if let (true, Some(cost)) = (
                usage.cost_is_total && usage.input.is_empty() && usage.output.is_empty(),
                sum(&usage.cost_usd).filter(|cost| *cost >= 0.0),
            ) {
                emit(StreamEvent::Cost(cost));
            }
            if input.is_some() || output.is_some() {
                emit(StreamEvent::Usage(Usage {
                    input_tokens: whole_number(input),
                    cached_tokens: whole_number(cached),
                    output_tokens: whole_number(output),
                    cost_usd: sum(&usage.cost_usd).filter(|cost| *cost >= 0.0),
                    add: usage.add,
                    cost_is_total: usage.cost_is_total,
                }));
            }
        }
        if let Some(end) = self.end {
            emit(StreamEvent::End(end));
        }
        if self.listen {
            emit(StreamEvent::DialogueLine);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of tokens; `as` saturates for values out of range"
)]
fn whole_number(number: Option<f64>) -> u64 {
    number.unwrap_or(0.0) as u64
}

impl CompiledSubagent {
    pub(super) fn new(paths: &SubagentPaths) -> Self {
        let SubagentPaths {
            id,
            begins,
            kind,
            about,
            state,
            tokens,
        } = paths;
        let path = |text: &Option<String>| text.as_deref().map(Path::new);
        Self {
            id: Path::new(id),
            begins: *begins,
            kind: path(kind),
            about: path(about),
            state: path(state),
            tokens: path(tokens),
        }
    }
}

impl CompiledUsage {
    pub(super) fn new(paths: &UsagePaths) -> Self {
        let split = |text: &Option<String>| {
            text.as_deref()
                .unwrap_or("")
                .split_ascii_whitespace()
                .map(Path::new)
                .collect()
        };
        Self {
            input: split(&paths.input),
            cached: split(&paths.cached),
            output: split(&paths.output),
            cost_usd: split(&paths.cost_usd),
            add: paths.add,
            cost_is_total: paths.cost_is_total,
        }
    }
}

impl Path {
    pub(super) fn new(text: &str) -> Self {
        let (from_line, rest) = match text.strip_prefix("$.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // An empty path is the element itself.
        let fields = if rest.is_empty() {
            Vec::new()
        } else {
            rest.split('.').map(str::to_owned).collect()
        };
        Self { from_line, fields }
    }

    pub(super) fn find<'n, 'a>(
        &self,
        at: &'n Node<'a>,
        line: &'n Node<'a>,
    ) -> Option<&'n Node<'a>> {
        self.fields
            .iter()
            .try_fold(if self.from_line { line } else { at }, |node, field| {
                node.field(field)
            })
    }
}

impl Condition {
    pub(super) fn new(text: &str) -> Self {
        match text {
            "-" => Self::Nothing,
            "*" => Self::Anything,
            words => Self::OneOf(words.split('|').map(str::to_owned).collect()),
        }
    }

    pub(super) fn is_met(&self, found: Option<&Node<'_>>) -> bool {
        let found = found.filter(|node| node.raw != "null");
        match self {
            Self::Nothing => found.is_none(),
            Self::Anything => found.is_some(),
            Self::OneOf(words) => found.is_some_and(|node| {
                let bare = node
                    .raw
                    .strip_prefix('"')
                    .and_then(|raw| raw.strip_suffix('"'))
                    .unwrap_or(node.raw);
                words.iter().any(|word| word == bare)
            }),
        }
    }
}
