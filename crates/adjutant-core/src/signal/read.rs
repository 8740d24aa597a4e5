//! Interprets the fields of a block as a signal.

use super::content::{Clarification, Delegation, Independence, Priority, Question, Signal, StopCause};
use super::field::Field;
use super::kind::SignalKind;
use crate::RunId;
use crate::budget::Budget;
use crate::checkpoint::Checkpoint;
use crate::report::{Report, ReportStatus};
use std::fmt;

/// Why a block is not a valid signal. The block is recorded, shown to the parent, and has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalError {
    /// The closing line is missing.
    Unclosed,
    TooLarge {
        bytes_max: usize,
    },
    /// It is neither YAML nor JSON, with the parser's message.
    Unreadable(String),
    /// It names another run.
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

/// Interprets the fields of a block of the run `own`.
///
/// # Errors
/// The block is not a valid signal of this run.
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
            action: read_required(fields, "action")?,
            reason: optional(fields, "reason"),
            preview: optional(fields, "preview"),
            risk: optional(fields, "risk"),
            options: fields.get("options").map(Field::to_texts).unwrap_or_default(),
            default: optional(fields, "default"),
        }),
    }
}

/// Returns whether a text names the run: by its id, or, as in its environment, with the number of the attempt.
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

fn read_required(fields: &Field, key: &'static str) -> Result<String, SignalError> {
    optional(fields, key).ok_or(SignalError::Missing(key))
}

fn unusable(field: &'static str, given: &str) -> SignalError {
    SignalError::Unusable { field, given: given.chars().take(80).collect() }
}

fn clarification(fields: &Field) -> Result<Signal, SignalError> {
    let mut clarification = Clarification {
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
        // Without questions, the reason is the question.
        let text = clarification.reason.take().ok_or(SignalError::Missing("questions"))?;
        questions.push(Question { id: None, text, context: None, options: Vec::new(), assumption: None, blocking: true });
    }
    Ok(Signal::Clarification { clarification, questions })
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
    let given = read_required(fields, "stop_reason")?;
    let word = given.split_whitespace().next().unwrap_or("");
    let cause = StopCause::from_word(word).ok_or_else(|| unusable("stop_reason", word))?;
    let checkpoint = Checkpoint {
        blocker_type: optional(fields, "blocker_type"),
        details: read_required(fields, "details")?,
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
        task: read_required(fields, "new_task_description")?,
        agent: optional(fields, "agent"),
        directory: optional(fields, "directory"),
        reason: optional(fields, "delegation_reason"),
        independence,
        priority,
        context_required: optional(fields, "context_required"),
        coordination: optional(fields, "coordination"),
        estimate: optional(fields, "estimated_duration"),
        budget: match optional(fields, "budget") {
            None => Budget::default(),
            Some(text) => Budget::parse(&text).map_err(|_| unusable("budget", &text))?,
        },
    }))
}

fn completion(fields: &Field) -> Result<Signal, SignalError> {
    let word = read_required(fields, "status")?;
    Ok(Signal::Completion(Report {
        status: ReportStatus::from_word(&word).ok_or_else(|| unusable("status", &word))?,
        summary: read_required(fields, "summary")?,
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

/// Returns whether a text has the form of an ISO 8601 date, or date and time.
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
