//! Reading what an agent writes, one JSON object a line: a preset's rules say what a line means.
//! Pure: a line in, what was said out. What no rule knows is passed over, never an error.

use crate::preset::{End, Rule, Stream, SubagentPaths, UsagePaths};
use crate::text;
use adjutant_core::Cause;
use adjutant_core::subagent::{RUNNING, Subagent};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

/// So much of what a tool was given or returned is of interest, in bytes.
pub const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// One thing that a line says.
#[derive(Debug, PartialEq)]
pub enum Said<'a> {
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
    /// The session or sub-agent that the line belongs to. Said before everything else.
    Speaker(Cow<'a, str>),
    /// Something of a sub-agent of the CLI's own.
    Subagent {
        told: Subagent,
        begins: bool,
    },
    /// A try failed that the CLI repeats.
    Retry {
        words: String,
        /// Where the line itself tells it.
        cause: Option<Cause>,
    },
    /// When a limit ends, in seconds since the epoch.
    Again(u64),
    Usage(Usage),
    End(End),
    /// The driver has to see the line.
    Listen,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// More may be said of it before it begins.
    Pending,
    /// It is asked for, or has begun.
    Begun,
    Over,
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
    /// The cost is that of the whole session all the same.
    pub cost_is_total: bool,
}

/// Rules, ready to be used.
#[derive(Debug)]
pub struct Rules {
    all: Vec<Prepared>,
    speaker: Option<Path>,
}

#[derive(Debug)]
struct Prepared {
    when: Vec<(Path, Wanted)>,
    each: Option<Path>,
    where_: Vec<(Path, Wanted)>,
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
    subagent: Option<SubagentPrepared>,
    retry: Vec<Path>,
    retry_cause: Option<Cause>,
    again: Option<Path>,
    usage: Option<UsagePrepared>,
    end: Option<End>,
    listen: bool,
}

#[derive(Debug)]
struct SubagentPrepared {
    id: Path,
    begins: bool,
    kind: Option<Path>,
    about: Option<Path>,
    state: Option<Path>,
    tokens: Option<Path>,
}

#[derive(Debug)]
struct UsagePrepared {
    input: Vec<Path>,
    cached: Vec<Path>,
    output: Vec<Path>,
    cost_usd: Vec<Path>,
    add: bool,
    cost_is_total: bool,
}

#[derive(Debug)]
struct Path {
    from_line: bool,
    fields: Vec<String>,
}

#[derive(Debug)]
enum Wanted {
    Nothing,
    Anything,
    OneOf(Vec<String>),
}

impl Rules {
    /// Prepares a preset's rules.
    #[must_use]
    pub fn new(stream: &Stream) -> Self {
        Self { all: stream.rules.iter().map(Prepared::new).collect(), speaker: stream.speaker.as_deref().map(Path::new) }
    }

    /// Rules by which nothing means anything.
    #[must_use]
    pub fn none() -> Self {
        Self { all: Vec::new(), speaker: None }
    }

    /// Says what a line means. `false`: it is no JSON object.
    pub fn read(&self, line: &str, said: &mut impl FnMut(Said<'_>)) -> bool {
        let line = line.trim();
        if !line.starts_with('{') {
            return false;
        }
        let line = Node::new(line);
        if line.fields().is_none() {
            return false;
        }
        let mut speaker = self.speaker.as_ref();
        for rule in &self.all {
            if !rule.when.iter().all(|(path, wanted)| wanted.is_met(path.find(&line, &line))) {
                continue;
            }
            // Nobody wants to know whose a line is that means nothing.
            if let Some(id) = speaker.take().and_then(|path| path.find(&line, &line)?.text(SHOWN_BYTES_MAX)) {
                said(Said::Speaker(id));
            }
            match &rule.each {
                None => rule.apply(&line, &line, said),
                Some(path) => {
                    for item in path.find(&line, &line).and_then(Node::items).unwrap_or_default() {
                        if rule.where_.iter().all(|(path, wanted)| wanted.is_met(path.find(item, &line))) {
                            rule.apply(item, &line, said);
                        }
                    }
                }
            }
        }
        true
    }
}

impl Prepared {
    fn new(rule: &Rule) -> Self {
        let path = |text: &Option<String>| text.as_deref().map(Path::new);
        let conditions = |wanted: &std::collections::BTreeMap<String, String>| {
            wanted.iter().map(|(path, wanted)| (Path::new(path), Wanted::new(wanted))).collect()
        };
        Self {
            when: conditions(&rule.when),
            each: path(&rule.each),
            where_: conditions(&rule.r#where),
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
            subagent: rule.subagent.as_ref().map(SubagentPrepared::new),
            retry: rule.retry.as_deref().unwrap_or("").split_ascii_whitespace().map(Path::new).collect(),
            retry_cause: rule.retry_cause.as_deref().and_then(Cause::from_word),
            again: path(&rule.again),
            usage: rule.usage.as_ref().map(UsagePrepared::new),
            end: rule.end,
            listen: rule.listen,
        }
    }

    fn apply<'a>(&self, at: &Node<'a>, line: &Node<'a>, said: &mut impl FnMut(Said<'_>)) {
        let find = |path: &Option<Path>, bytes_max| path.as_ref()?.find(at, line)?.text(bytes_max);
        let whole = |path: &Option<Path>| find(path, usize::MAX);
        let short = |path: &Option<Path>| find(path, SHOWN_BYTES_MAX);
        if let Some(id) = whole(&self.session) {
            said(Said::Session(id));
        }
        if let Some(text) = whole(&self.text) {
            said(Said::Text(text));
        }
        if let Some(text) = whole(&self.delta) {
            said(Said::Delta { of: whole(&self.delta_of), text });
        }
        if let Some(id) = short(&self.call) {
            let state = match short(&self.call_state).as_deref() {
                _ if self.call_state.is_none() => CallState::Begun,
                Some("in_progress") => CallState::Begun,
                Some("completed" | "failed") => CallState::Over,
                _ => CallState::Pending,
            };
            said(Said::Call { id, name: short(&self.tool).unwrap_or_default(), input: short(&self.input).unwrap_or_default(), state });
        } else if let Some(name) = short(&self.tool) {
            said(Said::Tool { name, input: short(&self.input).unwrap_or_default() });
        }
        if let Some(step) = short(&self.step) {
            said(Said::Step(step));
        }
        if let Some(output) = short(&self.output) {
            said(Said::Output(output));
        }
        if let Some(error) = short(&self.error) {
            said(Said::Error(error));
        }
        if let Some(SubagentPrepared { id, begins, kind, about, state, tokens }) = &self.subagent
            && let Some(id) = id.find(at, line).and_then(|node| node.text(SHOWN_BYTES_MAX))
        {
            let text = |path: &Option<Path>| find(path, SHOWN_BYTES_MAX).map(Cow::into_owned);
            let state = text(state).or_else(|| begins.then(|| RUNNING.to_owned()));
            let tokens = tokens.as_ref().and_then(|path| path.find(at, line)?.number()).map(|number| whole_number(Some(number)));
            let told = Subagent { id: id.into_owned(), kind: text(kind), about: text(about), state, tokens };
            said(Said::Subagent { told, begins: *begins });
        }
        if !self.retry.is_empty() {
            let parts = self.retry.iter().filter_map(|path| path.find(at, line)?.text(SHOWN_BYTES_MAX));
            said(Said::Retry { words: parts.collect::<Vec<_>>().join(": "), cause: self.retry_cause });
        }
        if let Some(result) = whole(&self.result) {
            said(Said::Result(result));
        }
        if let Some(seconds) = self.again.as_ref().and_then(|path| path.find(at, line)?.number()) {
            said(Said::Again(whole_number(Some(seconds))));
        }
        if let Some(usage) = &self.usage {
            let sum =
                |paths: &[Path]| paths.iter().filter_map(|path| path.find(at, line)?.number()).fold(None, |sum, n| Some(sum.unwrap_or(0.0) + n));
            let (input, cached, output) = (sum(&usage.input), sum(&usage.cached), sum(&usage.output));
            if let (true, Some(cost)) = (usage.cost_is_total && usage.input.is_empty() && usage.output.is_empty(), sum(&usage.cost_usd)) {
                said(Said::Cost(cost));
            }
            if input.is_some() || output.is_some() {
                said(Said::Usage(Usage {
                    input_tokens: whole_number(input),
                    cached_tokens: whole_number(cached),
                    output_tokens: whole_number(output),
                    cost_usd: sum(&usage.cost_usd),
                    add: usage.add,
                    cost_is_total: usage.cost_is_total,
                }));
            }
        }
        if let Some(end) = self.end {
            said(Said::End(end));
        }
        if self.listen {
            said(Said::Listen);
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of tokens; what is absurd becomes the nearest bound")]
fn whole_number(number: Option<f64>) -> u64 {
    number.unwrap_or(0.0) as u64
}

impl SubagentPrepared {
    fn new(paths: &SubagentPaths) -> Self {
        let SubagentPaths { id, begins, kind, about, state, tokens } = paths;
        let path = |text: &Option<String>| text.as_deref().map(Path::new);
        Self { id: Path::new(id), begins: *begins, kind: path(kind), about: path(about), state: path(state), tokens: path(tokens) }
    }
}

impl UsagePrepared {
    fn new(paths: &UsagePaths) -> Self {
        let split = |text: &Option<String>| text.as_deref().unwrap_or("").split_ascii_whitespace().map(Path::new).collect();
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
    fn new(text: &str) -> Self {
        let (from_line, rest) = match text.strip_prefix("$.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        Self { from_line, fields: rest.split('.').map(str::to_owned).collect() }
    }

    fn find<'n, 'a>(&self, at: &'n Node<'a>, line: &'n Node<'a>) -> Option<&'n Node<'a>> {
        self.fields.iter().try_fold(if self.from_line { line } else { at }, |node, field| node.field(field))
    }
}

impl Wanted {
    fn new(text: &str) -> Self {
        match text {
            "-" => Self::Nothing,
            "*" => Self::Anything,
            words => Self::OneOf(words.split('|').map(str::to_owned).collect()),
        }
    }

    fn is_met(&self, found: Option<&Node<'_>>) -> bool {
        let found = found.filter(|node| node.raw != "null");
        match self {
            Self::Nothing => found.is_none(),
            Self::Anything => found.is_some(),
            Self::OneOf(words) => found.is_some_and(|node| {
                let bare = node.raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or(node.raw);
                words.iter().any(|word| word == bare)
            }),
        }
    }
}

type Field<'a> = (Cow<'a, str>, Node<'a>);

/// A piece of JSON that is looked into only as far as somebody asks, each part once.
#[derive(Debug)]
struct Node<'a> {
    raw: &'a str,
    fields: OnceCell<Option<Vec<Field<'a>>>>,
    items: OnceCell<Option<Vec<Node<'a>>>>,
}

impl<'a> Node<'a> {
    fn new(raw: &'a str) -> Self {
        Self { raw, fields: OnceCell::new(), items: OnceCell::new() }
    }

    fn fields(&self) -> Option<&[Field<'a>]> {
        self.fields.get_or_init(|| serde_json::from_str::<Fields<'a>>(self.raw).ok().map(|fields| fields.0)).as_deref()
    }

    fn field(&self, name: &str) -> Option<&Node<'a>> {
        self.fields()?.iter().find(|(known, _)| known == name).map(|(_, node)| node)
    }

    fn items(&self) -> Option<&[Node<'a>]> {
        self.items
            .get_or_init(|| {
                let items: Vec<&'a RawValue> = serde_json::from_str(self.raw).ok()?;
                Some(items.into_iter().map(|raw| Node::new(raw.get())).collect())
            })
            .as_deref()
    }

    fn number(&self) -> Option<f64> {
        self.raw.parse().ok()
    }

    /// Its text: a string's characters, the texts of a list of content blocks, JSON otherwise. Cut
    /// to about `bytes_max`.
    fn text(&self, bytes_max: usize) -> Option<Cow<'a, str>> {
        match self.raw.as_bytes().first()? {
            b'"' => string(self.raw, bytes_max),
            b'[' if self.items()?.iter().any(|item| item.field("text").is_some()) => {
                let mut text = String::new();
                for part in self.items()?.iter().filter_map(|item| item.field("text")?.text(bytes_max)) {
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push('\n');
                    }
                    text.push_str(&part);
                    if text.len() > bytes_max {
                        break;
                    }
                }
                Some(Cow::Owned(text))
            }
            _ if self.raw == "null" => None,
            _ => Some(Cow::Borrowed(text::head(self.raw, bytes_max))),
        }
    }
}

/// Reads a JSON string, or its beginning.
fn string(raw: &str, bytes_max: usize) -> Option<Cow<'_, str>> {
    if raw.len() <= bytes_max.saturating_add(2) {
        return serde_json::from_str::<Text<'_>>(raw).ok().map(|text| text.0);
    }
    // An escape must not be cut: the longest, a pair of surrogates, has twelve bytes.
    let beginning = text::head(raw, bytes_max);
    (0..=12).filter_map(|back| beginning.len().checked_sub(back)).filter(|at| beginning.is_char_boundary(*at)).find_map(|at| {
        let closed = format!("{}\"", &beginning[..at]);
        let text = serde_json::from_str::<Text<'_>>(&closed).ok()?.0.into_owned();
        Some(Cow::Owned(text + " …"))
    })
}

/// A string, borrowed where nothing in it is escaped.
struct Text<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;
        impl<'de> Visitor<'de> for Strings {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text))
            }
        }
        deserializer.deserialize_str(Strings).map(Text)
    }
}

/// An object's fields, their values not looked into.
struct Fields<'a>(Vec<Field<'a>>);

impl<'de> serde::Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// More fields than this are no event of anybody's.
        const FIELDS_MAX: usize = 512;
        struct Objects;
        impl<'de> Visitor<'de> for Objects {
            type Value = Vec<Field<'de>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(Text(name)) = map.next_key()? {
                    if fields.len() < FIELDS_MAX {
                        let raw: &'de RawValue = map.next_value()?;
                        fields.push((name, Node::new(raw.get())));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Objects).map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    fn said(name: &str, lines: &[&str]) -> Vec<String> {
        let rules = Rules::new(&preset::builtin(name).expect("it is there").stream);
        let mut all = Vec::new();
        for line in lines {
            assert!(rules.read(line, &mut |said| all.push(format!("{said:?}"))), "{line}");
        }
        all
    }

    #[test]
    fn claude_is_understood() {
        let all = said(
            "claude",
            &[
                r#"{"type":"system","subtype":"init","session_id":"s1","tools":["Bash"]}"#,
                r#"{"type":"assistant","message":{"content":[{"type":"text","text":"I \"look\"\n"},{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}"#,
                r#"{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}}"#,
                r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1795288747}}"#,
                r#"{"type":"an event of next year","x":[1,{"y":null}]}"#,
                r#"{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.5,"usage":{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":5,"output_tokens":6}}"#,
                r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 401","usage":{"input_tokens":0,"output_tokens":0}}"#,
            ],
        );
        let expected = [
            r#"Session("s1")"#,
            r#"Text("I \"look\"\n")"#,
            r#"Tool { name: "Bash", input: "{\"command\":\"ls\"}" }"#,
            r#"Output("a\nb")"#,
            "Again(1795288747)",
            "Usage(Usage { input_tokens: 7, cached_tokens: 5, output_tokens: 6, cost_usd: Some(0.5), add: true, cost_is_total: true })",
            "Listen",
            r#"Result("done")"#,
            "End(Success)",
            "Usage(Usage { input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost_usd: None, add: true, cost_is_total: true })",
            "Listen",
            r#"Error("API Error: 401")"#,
            r#"Result("API Error: 401")"#,
            "End(Failure)",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_a_tool_returned_is_cut_without_breaking_an_escape() {
        for length in SHOWN_BYTES_MAX - 14..SHOWN_BYTES_MAX + 2 {
            let line = format!(
                r#"{{"method":"item/completed","params":{{"item":{{"type":"commandExecution","aggregatedOutput":"{}\ud83d\ude00\n{}"}}}}}}"#,
                "x".repeat(length),
                "y".repeat(99)
            );
            let all = said("codex", &[&line]);
            assert!(all.len() == 1 && all[0].starts_with("Output(\"xxx") && all[0].ends_with("…\")"), "{all:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_not_understood_and_nothing_else_happens() {
        let rules = Rules::new(&preset::builtin("gemini").expect("it is there").stream);
        for line in ["", "Loaded cached credentials.", "[1]", "{\"a\":", "{}x"] {
            assert!(!rules.read(line, &mut |said| panic!("{said:?}")), "{line}");
        }
    }
}
