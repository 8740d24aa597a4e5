//! Signals: what a run says about itself in a form that a machine can act on. A signal can ask; it
//! can never approve, answer or start anything.
//!
//! This module knows the fields and what makes a block count. Finding blocks in output and reading
//! their YAML or JSON is done outside.

pub use crate::checkpoint::Checkpoint;
pub use crate::report::{Report, ReportStatus};
use crate::words;
use crate::words::Words;

use crate::RunId;
use std::fmt;

/// What a signal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalKind {
    Clarification,
    Stop,
    Delegation,
    Completion,
    Progress,
    Approval,
}

impl SignalKind {
    pub const ALL: [Self; 6] = [Self::Clarification, Self::Stop, Self::Delegation, Self::Completion, Self::Progress, Self::Approval];

    /// Returns the word between the brackets of a block's first line, which is also `signal_type`
    /// in the JSON form.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::Clarification => "CLARIFICATION_NEEDED",
            Self::Stop => "STOP_WORK",
            Self::Delegation => "DELEGATE_WORK",
            Self::Completion => "COMPLETION_REPORT",
            Self::Progress => "PROGRESS",
            Self::Approval => "APPROVAL_NEEDED",
        }
    }

    /// Returns the kind that a tag names.
    #[must_use]
    pub fn from_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }
}

impl Words for SignalKind {
    fn word(self) -> &'static str {
        self.tag()
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::from_tag(word)
    }
}

/// How a signal came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By a call of one of our tools.
    Tool,
    /// By a block in the run's own words.
    Block,
}

words!(Source { Tool = "tool", Block = "block" });

/// A field's value, whatever it was written in. Numbers, dates and booleans are kept as the text
/// that stood there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl Field {
    /// Returns the value of a key, the first where it stands twice.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            Self::Text(_) | Self::List(_) => None,
        }
    }

    /// Returns the value as text: a list becomes a line for each entry.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.trim_end().to_owned(),
            Self::List(items) => items.iter().map(|item| format!("- {}", item.to_text().replace('\n', "\n  "))).collect::<Vec<_>>().join("\n"),
            Self::Map(pairs) => pairs.iter().map(|(name, value)| format!("{name}: {}", value.to_text())).collect::<Vec<_>>().join("\n"),
        }
    }

    /// Returns the value as a list of texts: a text is one entry for each of its lines that holds
    /// something, without the mark in front.
    #[must_use]
    pub fn to_texts(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.iter().map(Self::to_text).filter(|text| !text.is_empty()).collect(),
            Self::Text(text) => text
                .lines()
                .map(|line| line.trim().trim_start_matches(['-', '*', '•']).trim())
                .filter(|line| !line.is_empty())
                .map(ToOwned::to_owned)
                .collect(),
            Self::Map(_) => vec![self.to_text()],
        }
    }
}

/// One question of a clarification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// As the run calls it, for instance `Q1`.
    pub id: Option<String>,
    pub text: String,
    pub context: Option<String>,
    pub options: Vec<String>,
    /// What the run assumes meanwhile; it becomes the answer at the deadline.
    pub assumption: Option<String>,
    pub blocking: bool,
}

/// What a run says along with its questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clarification {
    /// Why it asks.
    pub reason: Option<String>,
    /// The task, step or file where it stopped.
    pub blocked_at: Option<String>,
    /// What would let it go on.
    pub resume_with: Option<String>,
    /// What it had done by then.
    pub state: Option<String>,
}

impl Clarification {
    /// Tells whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a run stops itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    Blocker,
    Error,
    Completion,
}

words!(StopCause { Blocker = "blocker", Error = "error", Completion = "completion" });

/// How a delegated task stands to the work of the run that asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Independence {
    /// Both go on.
    Parallel,
    /// The requester waits for the child.
    Blocks,
    /// To be done when there is room.
    Optional,
}

words!(Independence { Parallel = "can_proceed_parallel", Blocks = "blocks_current_work", Optional = "optional" });

/// How soon something is wanted; P0 first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    P0,
    #[default]
    P1,
    P2,
}

words!(Priority { P0 = "P0", P1 = "P1", P2 = "P2" });

/// A task that a run wants somebody else to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    pub task: String,
    /// Who is to do it; the requester's own agent when left out.
    pub agent: Option<String>,
    /// Where; the requester's own directory when left out.
    pub directory: Option<String>,
    pub reason: Option<String>,
    pub independence: Independence,
    pub priority: Priority,
    pub context_required: Option<String>,
    pub coordination: Option<String>,
    pub estimate: Option<String>,
}

/// A well-formed signal of the run itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    Clarification {
        said: Clarification,
        questions: Vec<Question>,
    },
    Stop {
        cause: StopCause,
        checkpoint: Checkpoint,
    },
    Delegation(Delegation),
    Completion(Report),
    Progress {
        percent: Option<u8>,
        note: Option<String>,
        eta: Option<String>,
    },
    Approval {
        action: String,
        reason: Option<String>,
        preview: Option<String>,
        risk: Option<String>,
        options: Vec<String>,
        /// The decision that the block wants to count when nobody decides. Only a denial does.
        default: Option<String>,
    },
}

/// Why a block does not count. It is recorded, shown to the parent, and has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalError {
    /// The closing line never came.
    Unclosed,
    TooLarge {
        bytes_max: usize,
    },
    /// It is neither YAML nor JSON; the reader's own words.
    Unreadable(String),
    /// It speaks for another run.
    Foreign {
        given: String,
        own: RunId,
    },
    Missing(&'static str),
    Unusable {
        field: &'static str,
        given: String,
    },
}

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed => f.write_str("its closing line is missing"),
            Self::TooLarge { bytes_max } => write!(f, "it is longer than {bytes_max} bytes"),
            Self::Unreadable(problem) => write!(f, "it cannot be read: {problem}"),
            Self::Foreign { given, own } => write!(f, "agent_id {given:?} is not this run ({own})"),
            Self::Missing(field) => write!(f, "{field} is missing"),
            Self::Unusable { field, given } => write!(f, "{field} cannot be {given:?}"),
        }
    }
}

/// Reads the fields of a block of the run `own`.
///
/// # Errors
/// Why it does not count.
pub fn read(kind: SignalKind, fields: &Field, own: RunId) -> Result<Signal, SignalError> {
    let Field::Map(_) = fields else { return Err(SignalError::Unreadable("it has no fields".to_owned())) };
    match optional(fields, "agent_id") {
        None => return Err(SignalError::Missing("agent_id")),
        Some(agent) if !names(&agent, own) => return Err(SignalError::Foreign { given: agent.chars().take(80).collect(), own }),
        Some(_) => {}
    }
    if let Some(timestamp) = optional(fields, "timestamp")
        && !is_iso_8601(&timestamp)
    {
        return Err(unusable("timestamp", &timestamp));
    }
    match kind {
        SignalKind::Clarification => clarification(fields),
        SignalKind::Stop => stop(fields),
        SignalKind::Delegation => delegation(fields),
        SignalKind::Completion => completion(fields),
        SignalKind::Progress => progress(fields),
        SignalKind::Approval => Ok(Signal::Approval {
            action: required(fields, "action")?,
            reason: optional(fields, "reason"),
            preview: optional(fields, "preview"),
            risk: optional(fields, "risk"),
            options: fields.get("options").map(Field::to_texts).unwrap_or_default(),
            default: optional(fields, "default"),
        }),
    }
}

/// Tells whether a text names the run: by its id, or as its environment does, with the number of
/// the attempt.
fn names(agent: &str, own: RunId) -> bool {
    let id = match agent.split_once('/') {
        Some((id, attempt)) if !attempt.is_empty() && attempt.bytes().all(|b| b.is_ascii_digit()) => id,
        _ => agent,
    };
    id == own.to_string()
}

fn optional(fields: &Field, key: &str) -> Option<String> {
    fields.get(key).map(Field::to_text).filter(|text| !text.trim().is_empty())
}

fn required(fields: &Field, key: &'static str) -> Result<String, SignalError> {
    optional(fields, key).ok_or(SignalError::Missing(key))
}

fn unusable(field: &'static str, given: &str) -> SignalError {
    SignalError::Unusable { field, given: given.chars().take(80).collect() }
}

fn clarification(fields: &Field) -> Result<Signal, SignalError> {
    let mut said = Clarification {
        reason: optional(fields, "reason"),
        blocked_at: optional(fields, "blocked_at"),
        resume_with: optional(fields, "can_resume_with"),
        state: optional(fields, "current_state"),
    };
    let mut questions = Vec::new();
    match fields.get("questions") {
        Some(Field::List(items)) => {
            for item in items {
                questions.push(question(item)?);
            }
        }
        Some(Field::Text(text)) if !text.trim().is_empty() => {
            questions.push(Question { id: None, text: text.trim().to_owned(), context: None, options: Vec::new(), assumption: None, blocking: true });
        }
        Some(Field::Map(_)) => return Err(SignalError::Unusable { field: "questions", given: "a single map".to_owned() }),
        Some(Field::Text(_)) | None => {}
    }
    if questions.is_empty() {
        // The reason is the question then.
        let text = said.reason.take().ok_or(SignalError::Missing("questions"))?;
        questions.push(Question { id: None, text, context: None, options: Vec::new(), assumption: None, blocking: true });
    }
    Ok(Signal::Clarification { said, questions })
}

fn question(item: &Field) -> Result<Question, SignalError> {
    if let Field::Text(text) = item {
        if text.trim().is_empty() {
            return Err(SignalError::Missing("questions.text"));
        }
        return Ok(Question { id: None, text: text.trim().to_owned(), context: None, options: Vec::new(), assumption: None, blocking: true });
    }
    let blocking = match optional(item, "type").as_deref() {
        None | Some("blocking") => true,
        Some("optional") => false,
        Some(other) => return Err(unusable("type", other)),
    };
    Ok(Question {
        id: optional(item, "question_id"),
        text: optional(item, "text").ok_or(SignalError::Missing("questions.text"))?,
        context: optional(item, "context"),
        options: item.get("options").map(Field::to_texts).unwrap_or_default(),
        assumption: optional(item, "current_assumption"),
        blocking,
    })
}

fn stop(fields: &Field) -> Result<Signal, SignalError> {
    let given = required(fields, "stop_reason")?;
    let word = given.split_whitespace().next().unwrap_or("");
    let cause = StopCause::from_word(word).ok_or_else(|| unusable("stop_reason", word))?;
    let checkpoint = Checkpoint {
        blocker_type: optional(fields, "blocker_type"),
        details: required(fields, "details")?,
        completed_work: optional(fields, "completed_work"),
        blocked_work: optional(fields, "blocked_work"),
        state: optional(fields, "state_snapshot"),
        requirements: optional(fields, "resume_requirements"),
        recovery: optional(fields, "error_recovery"),
        working_directory: optional(fields, "working_directory"),
        ..Checkpoint::default()
    };
    Ok(Signal::Stop { cause, checkpoint })
}

fn delegation(fields: &Field) -> Result<Signal, SignalError> {
    let independence = match optional(fields, "independence") {
        None => Independence::Parallel,
        Some(word) => Independence::from_word(&word).ok_or_else(|| unusable("independence", &word))?,
    };
    let priority = match optional(fields, "priority") {
        None => Priority::default(),
        Some(word) => Priority::from_word(&word).ok_or_else(|| unusable("priority", &word))?,
    };
    Ok(Signal::Delegation(Delegation {
        task: required(fields, "new_task_description")?,
        agent: optional(fields, "agent"),
        directory: optional(fields, "directory"),
        reason: optional(fields, "delegation_reason"),
        independence,
        priority,
        context_required: optional(fields, "context_required"),
        coordination: optional(fields, "coordination"),
        estimate: optional(fields, "estimated_duration"),
    }))
}

fn completion(fields: &Field) -> Result<Signal, SignalError> {
    let word = required(fields, "status")?;
    Ok(Signal::Completion(Report {
        status: ReportStatus::from_word(&word).ok_or_else(|| unusable("status", &word))?,
        summary: required(fields, "summary")?,
        deliverables: fields.get("deliverables").map(Field::to_texts).unwrap_or_default(),
        metrics: optional(fields, "metrics_achieved"),
        issues: optional(fields, "issues_encountered"),
        recommendations: optional(fields, "recommendations"),
        duration: optional(fields, "total_duration"),
    }))
}

fn progress(fields: &Field) -> Result<Signal, SignalError> {
    let percent = match optional(fields, "percent") {
        None => None,
        Some(text) => {
            let number = text.trim().trim_end_matches('%').trim().parse::<u8>().ok().filter(|percent| *percent <= 100);
            Some(number.ok_or_else(|| unusable("percent", &text))?)
        }
    };
    let note = optional(fields, "note");
    if percent.is_none() && note.is_none() {
        return Err(SignalError::Missing("percent"));
    }
    Ok(Signal::Progress { percent, note, eta: optional(fields, "eta") })
}

/// Tells whether a text has the shape of an ISO 8601 date, or date and time.
#[must_use]
pub fn is_iso_8601(text: &str) -> bool {
    let bytes = text.trim().as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
    let date = digits(0..4) && is(4, b"-") && digits(5..7) && is(7, b"-") && digits(8..10);
    if !date || bytes.len() == 10 {
        return date;
    }
    if !(is(10, b"Tt ") && digits(11..13) && is(13, b":") && digits(14..16)) {
        return false;
    }
    let rest = &bytes[16..];
    let zone_at = rest.iter().position(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-')).unwrap_or(rest.len());
    let (seconds, zone) = rest.split_at(zone_at);
    let seconds_ok = seconds.is_empty()
        || (seconds.len() >= 3 && seconds[0] == b':' && seconds[1..].iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',')));
    let zone_ok = match zone {
        [] | [b'Z' | b'z'] => true,
        [_, offset @ ..] => matches!(offset.len(), 2 | 4 | 5) && offset.iter().all(|byte| byte.is_ascii_digit() || *byte == b':'),
    };
    seconds_ok && zone_ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn own() -> RunId {
        RunId::new(Time(1), [1; 10])
    }

    fn fields(pairs: &[(&str, &str)]) -> Field {
        let id = ("agent_id".to_owned(), Field::Text(own().to_string()));
        Field::Map([id].into_iter().chain(pairs.iter().map(|(name, value)| ((*name).to_owned(), Field::Text((*value).to_owned())))).collect())
    }

    #[test]
    fn only_a_block_with_the_runs_own_id_counts() {
        let mine = fields(&[("percent", "40")]);
        assert_eq!(read(SignalKind::Progress, &mine, own()), Ok(Signal::Progress { percent: Some(40), note: None, eta: None }));
        let other = RunId::new(Time(2), [2; 10]);
        assert_eq!(read(SignalKind::Progress, &mine, other), Err(SignalError::Foreign { given: own().to_string(), own: other }));
        let named = |id: String| Field::Map(vec![("agent_id".to_owned(), Field::Text(id)), ("note".to_owned(), Field::Text("x".to_owned()))]);
        assert!(read(SignalKind::Progress, &named(format!("{}/2", own())), own()).is_ok(), "as ADJ_RUN names it");
        for id in [format!("{}/", own()), format!("{}/x", own()), format!("{other}/1"), "/1".to_owned()] {
            assert!(read(SignalKind::Progress, &named(id.clone()), own()).is_err(), "{id}");
        }
        let nobody = Field::Map(vec![("percent".to_owned(), Field::Text("40".to_owned()))]);
        assert_eq!(read(SignalKind::Progress, &nobody, own()), Err(SignalError::Missing("agent_id")));
    }

    #[test]
    fn each_kind_needs_its_fields() {
        let cases = [
            (SignalKind::Clarification, &[][..], SignalError::Missing("questions")),
            (SignalKind::Stop, &[("stop_reason", "blocker")], SignalError::Missing("details")),
            (
                SignalKind::Stop,
                &[("stop_reason", "tired"), ("details", "x")],
                SignalError::Unusable { field: "stop_reason", given: "tired".to_owned() },
            ),
            (SignalKind::Delegation, &[("priority", "P1")], SignalError::Missing("new_task_description")),
            (SignalKind::Completion, &[("status", "success")], SignalError::Missing("summary")),
            (SignalKind::Completion, &[("status", "done"), ("summary", "x")], SignalError::Unusable { field: "status", given: "done".to_owned() }),
            (SignalKind::Progress, &[("percent", "140")], SignalError::Unusable { field: "percent", given: "140".to_owned() }),
            (SignalKind::Approval, &[("risk", "low")], SignalError::Missing("action")),
            (
                SignalKind::Progress,
                &[("percent", "1"), ("timestamp", "yesterday")],
                SignalError::Unusable { field: "timestamp", given: "yesterday".to_owned() },
            ),
        ];
        for (kind, pairs, expected) in cases {
            assert_eq!(read(kind, &fields(pairs), own()), Err(expected), "{kind:?}");
        }
    }

    #[test]
    fn timestamps_are_iso_8601() {
        for good in ["2026-01-11", "2026-01-11T08:45:00-05:00", "2026-01-11T08:45Z", "2026-01-11 08:45:00.123+0200", "2026-01-11T08:45:00"] {
            assert!(is_iso_8601(good), "{good}");
        }
        for bad in ["", "11.01.2026", "2026-01-11T", "2026-1-1", "2026-01-11T08:45:00 PST", "now"] {
            assert!(!is_iso_8601(bad), "{bad}");
        }
    }
}
