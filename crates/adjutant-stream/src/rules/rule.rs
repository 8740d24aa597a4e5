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
    text: CompiledText,
    tool: CompiledTool,
    step: Option<Path>,
    output: Option<Path>,
    result: Option<Path>,
    error: Option<Path>,
    subagent: Option<CompiledSubagent>,
    retry: CompiledRetry,
    again: Option<Path>,
    usage: Option<CompiledUsage>,
    end: Option<End>,
    listen: bool,
}

/// The messages of the agent.
#[derive(Debug)]
struct CompiledText {
    whole: Option<Path>,
    chunk: Option<Path>,
    chunk_of: Option<Path>,
}

/// The tool that is called.
#[derive(Debug)]
struct CompiledTool {
    name: Option<Path>,
    input: Option<Path>,
    call: Option<Path>,
    call_state: Option<Path>,
}

/// The error of a call that the CLI retries. No paths: the rule is about no such call.
#[derive(Debug)]
struct CompiledRetry {
    error: Vec<Path>,
    cause: Option<Cause>,
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
            text: CompiledText {
                whole: path(&rule.text),
                chunk: path(&rule.delta),
                chunk_of: path(&rule.delta_of),
            },
            tool: CompiledTool {
                name: path(&rule.tool),
                input: path(&rule.input),
                call: path(&rule.call),
                call_state: path(&rule.call_state),
            },
            step: path(&rule.step),
            output: path(&rule.output),
            result: path(&rule.result),
            error: path(&rule.error),
            subagent: rule.subagent.as_ref().map(CompiledSubagent::new),
            retry: CompiledRetry {
                error: split_paths(rule.retry.as_deref()),
                cause: rule.retry_cause.as_deref().and_then(Cause::from_word),
            },
            again: path(&rule.again),
            usage: rule.usage.as_ref().map(CompiledUsage::new),
            end: rule.end,
            listen: rule.listen,
        }
    }

    /// Emits the events of an element, in this order: what speaks, what it does, and how it ends.
    pub(super) fn apply<'a>(
        &self,
        at: &Node<'a>,
        line: &Node<'a>,
        emit: &mut impl FnMut(StreamEvent<'_>),
    ) {
        let found = Found { at, line };
        if let Some(id) = found.whole(self.session.as_ref()) {
            emit(StreamEvent::Session(id));
        }
        self.text.emit(found, emit);
        self.tool.emit(found, emit);
        self.emit_notes(found, emit);
        if let Some(subagent) = &self.subagent
            && let Some(event) = subagent.event(found)
        {
            emit(event);
        }
        self.emit_outcome(found, emit);
        if let Some(usage) = &self.usage {
            usage.emit(found, emit);
        }
        if let Some(end) = self.end {
            emit(StreamEvent::End(end));
        }
        if self.listen {
            emit(StreamEvent::DialogueLine);
        }
    }

    /// Emits the step of a plan, the output of a tool, and an error.
    fn emit_notes(&self, found: Found<'_, '_>, emit: &mut impl FnMut(StreamEvent<'_>)) {
        if let Some(step) = found.short(self.step.as_ref()) {
            emit(StreamEvent::Step(step));
        }
        if let Some(output) = found.short(self.output.as_ref()) {
            emit(StreamEvent::Output(output));
        }
        if let Some(error) = found.short(self.error.as_ref()) {
            emit(StreamEvent::Error(error));
        }
    }

    /// Emits failed calls, the result, and when a limit resets.
    fn emit_outcome(&self, found: Found<'_, '_>, emit: &mut impl FnMut(StreamEvent<'_>)) {
        self.retry.emit(found, emit);
        if let Some(result) = found.whole(self.result.as_ref()) {
            emit(StreamEvent::Result(result));
        }
        if let Some(seconds) = self.again.as_ref().and_then(|path| found.number(path)) {
            emit(StreamEvent::LimitReset(whole_number(Some(seconds))));
        }
    }
}

/// Where the paths of a rule are found: an element, and its line.
#[derive(Clone, Copy)]
struct Found<'n, 'a> {
    at: &'n Node<'a>,
    line: &'n Node<'a>,
}

impl<'n, 'a> Found<'n, 'a> {
    fn node(self, path: &Path) -> Option<&'n Node<'a>> {
        path.find(self.at, self.line)
    }

    fn whole(self, path: Option<&Path>) -> Option<Cow<'a, str>> {
        self.node(path?)?.text(usize::MAX)
    }

    /// Returns a text as long as the log shows it.
    fn short(self, path: Option<&Path>) -> Option<Cow<'a, str>> {
        self.node(path?)?.text(SHOWN_BYTES_MAX)
    }

    fn number(self, path: &Path) -> Option<f64> {
        self.node(path)?.number()
    }

    /// Returns the sum of the numbers that are there.
    fn sum(self, paths: &[Path]) -> Option<f64> {
        paths
            .iter()
            .filter_map(|path| self.number(path))
            .fold(None, |sum, n| Some(sum.unwrap_or(0.0) + n))
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

impl CompiledText {
    fn emit(&self, found: Found<'_, '_>, emit: &mut impl FnMut(StreamEvent<'_>)) {
        if let Some(text) = found.whole(self.whole.as_ref()) {
            emit(StreamEvent::Text(text));
        }
        if let Some(text) = found.whole(self.chunk.as_ref()) {
            emit(StreamEvent::Delta {
                of: found.whole(self.chunk_of.as_ref()),
                text,
            });
        }
    }
}

impl CompiledTool {
    fn emit(&self, found: Found<'_, '_>, emit: &mut impl FnMut(StreamEvent<'_>)) {
        let short = |path: &Option<Path>| found.short(path.as_ref());
        if let Some(id) = short(&self.call) {
            let state = match short(&self.call_state).as_deref() {
                _ if self.call_state.is_none() => CallState::Running,
                Some("in_progress") => CallState::Running,
                Some("completed" | "failed") => CallState::Ended,
                _ => CallState::Pending,
            };
            emit(StreamEvent::Call {
                id,
                name: short(&self.name).unwrap_or_default(),
                input: short(&self.input).unwrap_or_default(),
                state,
            });
        } else if let Some(name) = short(&self.name) {
            emit(StreamEvent::Tool {
                name,
                input: short(&self.input).unwrap_or_default(),
            });
        }
    }
}

impl CompiledRetry {
    fn emit(&self, found: Found<'_, '_>, emit: &mut impl FnMut(StreamEvent<'_>)) {
        if !self.error.is_empty() {
            let parts = self.error.iter().filter_map(|path| found.short(Some(path)));
            emit(StreamEvent::Retry {
                error: parts.collect::<Vec<_>>().join(": "),
                cause: self.cause,
            });
        }
    }
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

    /// Returns the state of a sub-agent, if the element names one.
    fn event(&self, found: Found<'_, '_>) -> Option<StreamEvent<'static>> {
        let text = |path: &Option<Path>| found.short(path.as_ref()).map(Cow::into_owned);
        let id = found.short(Some(&self.id))?;
        let state = text(&self.state).or_else(|| self.begins.then(|| RUNNING.to_owned()));
        let tokens = self
            .tokens
            .as_ref()
            .and_then(|path| found.number(path))
            .map(|number| whole_number(Some(number)));
        Some(StreamEvent::Subagent {
            subagent: Subagent {
                id: id.into_owned(),
                kind: text(&self.kind),
                about: text(&self.about),
                state,
                tokens,
            },
            begins: self.begins,
        })
    }
}

impl CompiledUsage {
    pub(super) fn new(paths: &UsagePaths) -> Self {
        Self {
            input: split_paths(paths.input.as_deref()),
            cached: split_paths(paths.cached.as_deref()),
            output: split_paths(paths.output.as_deref()),
            cost_usd: split_paths(paths.cost_usd.as_deref()),
            add: paths.add,
            cost_is_total: paths.cost_is_total,
        }
    }

    fn emit(&self, found: Found<'_, '_>, emit: &mut impl FnMut(StreamEvent<'_>)) {
        let (input, output) = (found.sum(&self.input), found.sum(&self.output));
        let cost = found.sum(&self.cost_usd).filter(|cost| *cost >= 0.0);
        if let (true, Some(cost)) = (self.states_only_cost(), cost) {
            emit(StreamEvent::Cost(cost));
        }
        if input.is_some() || output.is_some() {
            emit(StreamEvent::Usage(Usage {
                input_tokens: whole_number(input),
                cached_tokens: whole_number(found.sum(&self.cached)),
                output_tokens: whole_number(output),
                cost_usd: cost,
                add: self.add,
                cost_is_total: self.cost_is_total,
            }));
        }
    }

    /// Returns whether the rule states nothing but the cost of the session so far.
    fn states_only_cost(&self) -> bool {
        self.cost_is_total && self.input.is_empty() && self.output.is_empty()
    }
}

/// Compiles paths that are separated by blanks.
fn split_paths(text: Option<&str>) -> Vec<Path> {
    let paths = text.unwrap_or("").split_ascii_whitespace();
    paths.map(Path::new).collect()
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
