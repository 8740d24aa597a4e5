//! Interprets the fields of a block as a signal, and decides whose block it is.

use super::content::{
    Clarification, Delegation, Independence, Priority, Question, Signal, StopCause,
};
use super::field::Field;
use super::flat::{covers, flat, without_frame, without_prose};
use super::kind::SignalKind;
use crate::budget::Budget;
use crate::checkpoint::Checkpoint;
use crate::report::{Claim, Report};
use crate::words::{Words, spoken_first};
use crate::{RunId, shorten};
use std::fmt;

/// The run that has printed a block.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    pub id: RunId,
    /// Its name, which stands before its id in its prompt.
    pub name: &'a str,
}

/// What a block says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// It is a valid signal of this run.
    Exact(Signal),
    /// It is not valid as it stands, but its meaning is certain. `dropped`: a field that is not
    /// valid and has no effect.
    Flat {
        signal: Signal,
        dropped: Option<SignalError>,
    },
    /// It is another run's, or no block at all. It has no effect.
    Ignored(SignalError),
    /// Its meaning is not certain. `is_own`: it names this run; otherwise none.
    Unreadable { why: SignalError, is_own: bool },
}

impl Reading {
    /// Returns the signal, if the block has an effect.
    #[must_use]
    pub fn signal(&self) -> Option<&Signal> {
        match self {
            Self::Exact(signal) | Self::Flat { signal, .. } => Some(signal),
            Self::Ignored(_) | Self::Unreadable { .. } => None,
        }
    }

    /// Returns the reading of a text that was not valid before it was repaired.
    #[must_use]
    pub fn repaired(self) -> Self {
        match self {
            Self::Exact(signal) => Self::Flat {
                signal,
                dropped: None,
            },
            other => other,
        }
    }
}

/// Why a block is not a valid signal.
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
        /// What the field can be. Empty: see the documentation.
        wanted: &'static str,
    },
    /// A line contains a marker and is not one: it is prose, or a quotation.
    NoBlock,
}

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed => f.write_str("its closing line is missing"),
            Self::TooLarge { bytes_max } => write!(f, "it is longer than {bytes_max} bytes"),
            Self::Unreadable(problem) => write!(f, "it cannot be read: {problem}"),
            Self::Foreign { given, own } => write!(f, "agent_id {given:?} is not this run ({own})"),
            Self::Missing(field) => write!(f, "{field} is missing"),
            Self::Unusable {
                field,
                given,
                wanted: "",
            } => write!(f, "{field} cannot be {given:?}"),
            Self::Unusable {
                field,
                given,
                wanted,
            } => write!(f, "{field} cannot be {given:?}: use {wanted}"),
            Self::NoBlock => f.write_str(
                "a line with this marker is not a block: a marker stands alone on its line",
            ),
        }
    }
}

/// Reads the text between the markers of a block. `yaml` parses it. `is_closed`: its closing line
/// is there.
#[must_use]
pub fn read_block(
    kind: SignalKind,
    text: &str,
    is_closed: bool,
    own: Own<'_>,
    yaml: impl FnOnce(&str) -> Result<Field, SignalError>,
) -> Reading {
    let text = if is_closed {
        without_frame(text)
    } else {
        without_prose(kind, &without_frame(text))
    };
    let parsed = yaml(&text);
    let certain = |signal, fields: &Field| Reading::Flat {
        signal,
        dropped: bad_timestamp(fields),
    };
    let as_yaml = match &parsed {
        Ok(fields) if covers(&text, fields) => read(kind, fields, own),
        Ok(_) => Err(SignalError::Unreadable(
            "YAML drops a part of it, such as the text after a `#`: write the value under `|`"
                .to_owned(),
        )),
        Err(why) => Err(why.clone()),
    };
    let problem = match as_yaml {
        Ok(signal) => match parsed {
            Ok(fields) if !is_closed || bad_timestamp(&fields).is_some() => {
                return certain(signal, &fields);
            }
            _ => return Reading::Exact(signal),
        },
        Err(problem) => problem,
    };
    let fields = flat(kind, &text);
    let problem = match fields
        .as_ref()
        .map(|fields| (read(kind, fields, own), fields))
    {
        Ok((Ok(signal), fields)) => return certain(signal, fields),
        // A field that is missing or unusable is the cause that its author can fix.
        Ok((Err(problem), _)) => problem,
        Err(why) => match problem {
            SignalError::Unreadable(yaml) => SignalError::Unreadable(format!("{yaml}; {why}")),
            problem => problem,
        },
    };
    match Claimant::of(&text, fields.as_ref().ok().or(parsed.as_ref().ok()), own) {
        Claimant::Own => Reading::Unreadable {
            why: problem,
            is_own: true,
        },
        Claimant::Other(given) => Reading::Ignored(SignalError::Foreign { given, own: own.id }),
        // A marker without any field is a heading or an entry of a list.
        Claimant::Nobody
            if fields.is_err()
                && parsed
                    .as_ref()
                    .map_or(true, |parsed| !matches!(parsed, Field::Map(_))) =>
        {
            Reading::Ignored(problem)
        }
        Claimant::Nobody => Reading::Unreadable {
            why: if is_closed {
                problem
            } else {
                SignalError::Unclosed
            },
            is_own: false,
        },
    }
}

/// Reads a JSON object that is a signal. `parsed`: its kind and its fields.
#[must_use]
pub fn read_json(
    text: &str,
    parsed: Result<(SignalKind, Field), SignalError>,
    own: Own<'_>,
) -> Reading {
    let problem = match &parsed {
        Ok((kind, fields)) => match read(*kind, fields, own) {
            Ok(signal) => match bad_timestamp(fields) {
                None => return Reading::Exact(signal),
                dropped => return Reading::Flat { signal, dropped },
            },
            Err(problem) => problem,
        },
        Err(problem) => problem.clone(),
    };
    match Claimant::of(text, parsed.as_ref().ok().map(|(_, fields)| fields), own) {
        Claimant::Own => Reading::Unreadable {
            why: problem,
            is_own: true,
        },
        Claimant::Other(given) => Reading::Ignored(SignalError::Foreign { given, own: own.id }),
        Claimant::Nobody if parsed.is_ok() => Reading::Unreadable {
            why: problem,
            is_own: false,
        },
        Claimant::Nobody => Reading::Ignored(problem),
    }
}

/// Reads a block of which only the beginning was kept, for the reason `why`.
#[must_use]
pub fn read_broken(text: &str, why: SignalError, own: Own<'_>) -> Reading {
    match Claimant::of(text, None, own) {
        Claimant::Own => Reading::Unreadable { why, is_own: true },
        Claimant::Other(_) | Claimant::Nobody => Reading::Ignored(why),
    }
}

/// Returns what is wrong with the timestamp of a block. It has no effect, so it makes no block
/// unreadable.
fn bad_timestamp(fields: &Field) -> Option<SignalError> {
    let given = optional(fields, "timestamp").filter(|given| !is_iso_8601(given))?;
    Some(unusable("timestamp", &given, "ISO 8601"))
}

/// Whose block an unreadable one is.
enum Claimant {
    Own,
    Other(String),
    /// It names no run.
    Nobody,
}

impl Claimant {
    fn of(text: &str, fields: Option<&Field>, own: Own<'_>) -> Self {
        let named = fields
            .and_then(|fields| optional(fields, "agent_id"))
            .or_else(|| text.lines().find_map(named_agent));
        match named {
            Some(agent) if names(&agent, own) => Self::Own,
            Some(agent) => Self::Other(agent.chars().take(80).collect()),
            None if text.contains(&own.id.to_string()) => Self::Own,
            None => Self::Nobody,
        }
    }
}

/// Returns the run that a line names.
fn named_agent(line: &str) -> Option<String> {
    let (key, value) = line.split_once(':')?;
    let is_key = key
        .trim_matches(|c: char| !c.is_alphanumeric())
        .eq_ignore_ascii_case("agent_id");
    let agent = value
        .split_whitespace()
        .next()?
        .trim_matches(['"', '\'', ',']);
    (is_key && !agent.is_empty()).then(|| agent.to_owned())
}

/// Interprets the fields of a block of the run `own`.
///
/// # Errors
/// The block is not a valid signal of this run.
pub fn read(kind: SignalKind, fields: &Field, own: Own<'_>) -> Result<Signal, SignalError> {
    let Field::Map(_) = fields else {
        return Err(SignalError::Unreadable("it has no fields".to_owned()));
    };
    match optional(fields, "agent_id") {
        None => return Err(SignalError::Missing("agent_id")),
        Some(agent) if !names(&agent, own) => {
            return Err(SignalError::Foreign {
                given: shorten::to_chars(&agent, 80).into_owned(),
                own: own.id,
            });
        }
        Some(_) => {}
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
            options: fields
                .get("options")
                .map(Field::to_texts)
                .unwrap_or_default(),
            default: optional(fields, "default"),
        }),
    }
}

/// Returns whether a text names the run: by its name, by its id, or, as in its environment, with
/// the number of the attempt.
fn names(agent: &str, own: Own<'_>) -> bool {
    let agent = agent
        .trim()
        .trim_matches(['`', '*', '"', '\'', '.', ',', '(', ')']);
    let id = match agent.split_once('/') {
        Some((id, attempt))
            if !attempt.is_empty() && attempt.bytes().all(|b| b.is_ascii_digit()) =>
        {
            id
        }
        _ => agent,
    };
    id.eq_ignore_ascii_case(&own.id.to_string()) || agent.eq_ignore_ascii_case(own.name)
}

fn optional(fields: &Field, key: &str) -> Option<String> {
    fields
        .get(key)
        .map(Field::to_text)
        .filter(|text| !text.trim().is_empty())
}

fn read_required(fields: &Field, key: &'static str) -> Result<String, SignalError> {
    optional(fields, key).ok_or(SignalError::Missing(key))
}

fn unusable(field: &'static str, given: &str, wanted: &'static str) -> SignalError {
    SignalError::Unusable {
        field,
        given: shorten::to_chars(given, 80).into_owned(),
        wanted,
    }
}

/// Returns a word of a field. Words after it are ignored.
fn optional_word<T: Words>(
    fields: &Field,
    field: &'static str,
    wanted: &'static str,
) -> Result<Option<T>, SignalError> {
    let Some(given) = optional(fields, field) else {
        return Ok(None);
    };
    spoken_first(&given)
        .map(|(word, _)| Some(word))
        .ok_or_else(|| unusable(field, &given, wanted))
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
            questions.push(Question {
                id: None,
                text: text.trim().to_owned(),
                context: None,
                options: Vec::new(),
                assumption: None,
                blocking: true,
            });
        }
        Some(Field::Map(_)) => return Err(unusable("questions", "a single map", "a list")),
        Some(Field::Text(_)) | None => {}
    }
    if questions.is_empty() {
        // Without questions, the reason is the question.
        let text = clarification
            .reason
            .take()
            .ok_or(SignalError::Missing("questions"))?;
        questions.push(Question {
            id: None,
            text,
            context: None,
            options: Vec::new(),
            assumption: None,
            blocking: true,
        });
    }
    Ok(Signal::Clarification {
        clarification,
        questions,
    })
}

fn question(item: &Field) -> Result<Question, SignalError> {
    if let Field::Text(text) = item {
        if text.trim().is_empty() {
            return Err(SignalError::Missing("questions.text"));
        }
        return Ok(Question {
            id: None,
            text: text.trim().to_owned(),
            context: None,
            options: Vec::new(),
            assumption: None,
            blocking: true,
        });
    }
    let blocking = match optional(item, "type")
        .map(|given| given.trim().to_lowercase())
        .as_deref()
    {
        None | Some("blocking") => true,
        Some("optional") => false,
        Some(other) => return Err(unusable("type", other, "blocking or optional")),
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
    let cause = match spoken_first(&given) {
        // A completion does not stop the run, so it is one only without reservations.
        Some((StopCause::Completion, false)) | None => {
            return Err(unusable(
                "stop_reason",
                &given,
                "blocker, error or completion",
            ));
        }
        Some((cause, _)) => cause,
    };
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
    let independence = optional_word(
        fields,
        "independence",
        "can_proceed_parallel, blocks_current_work or optional",
    )?
    .unwrap_or(Independence::Parallel);
    let priority: Priority = optional_word(fields, "priority", "P0, P1 or P2")?.unwrap_or_default();
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
            Some(text) => Budget::parse(&text).map_err(|_| unusable("budget", &text, ""))?,
        },
    }))
}

fn completion(fields: &Field) -> Result<Signal, SignalError> {
    let given = read_required(fields, "status")?;
    let claim = Claim::spoken(&given)
        .ok_or_else(|| unusable("status", &given, "success, partial_success or failed"))?;
    let report = Report {
        status: claim.status(),
        summary: read_required(fields, "summary")?,
        deliverables: fields
            .get("deliverables")
            .map(Field::to_texts)
            .unwrap_or_default(),
        metrics: optional(fields, "metrics_achieved"),
        issues: optional(fields, "issues_encountered"),
        recommendations: optional(fields, "recommendations"),
        duration: optional(fields, "total_duration"),
    };
    Ok(Signal::Completion { claim, report })
}

/// Reads progress. What is not a number is a note.
fn progress(fields: &Field) -> Result<Signal, SignalError> {
    let given = optional(fields, "percent");
    let number = given.as_deref().and_then(|text| {
        text.trim()
            .trim_start_matches('~')
            .trim_end_matches('%')
            .trim()
            .parse::<u8>()
            .ok()
    });
    let percent = number.filter(|percent| *percent <= 100);
    let note = optional(fields, "note").or_else(|| given.filter(|_| percent.is_none()));
    if percent.is_none() && note.is_none() {
        return Err(SignalError::Missing("percent"));
    }
    Ok(Signal::Progress {
        percent,
        note,
        eta: optional(fields, "eta"),
    })
}

/// Returns whether a text has the form of an ISO 8601 date, or date and time.
#[must_use]
pub(super) fn is_iso_8601(text: &str) -> bool {
    let bytes = text.trim().as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        bytes
            .get(range)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
    let date = digits(0..4) && is(4, b"-") && digits(5..7) && is(7, b"-") && digits(8..10);
    if !date || bytes.len() == 10 {
        return date;
    }
    if !(is(10, b"Tt ") && digits(11..13) && is(13, b":") && digits(14..16)) {
        return false;
    }
    let rest = &bytes[16..];
    let zone_at = rest
        .iter()
        .position(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-'))
        .unwrap_or(rest.len());
    let (seconds, zone) = rest.split_at(zone_at);
    let seconds_ok = seconds.is_empty()
        || (seconds.len() >= 3
            && seconds[0] == b':'
            && seconds[1..]
                .iter()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',')));
    let zone_ok = match zone {
        [] | [b'Z' | b'z'] => true,
        [_, offset @ ..] => {
            matches!(offset.len(), 2 | 4 | 5)
                && offset
                    .iter()
                    .all(|byte| byte.is_ascii_digit() || *byte == b':')
        }
    };
    seconds_ok && zone_ok
}
