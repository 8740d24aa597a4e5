//! Composes the prompt of a later attempt: the task, the checkpoint, the decisions since then, the
//! open requests and the next step, under the protocol's headings.
//!
//! Unindented lines are Adjutant's. All text of others, including the run's own, is quoted: see
//! [`crate::quote`].

mod open;
mod recap;
mod settled;
#[cfg(test)]
mod tests;

pub use open::{OPEN_NAMED_MAX, OpenRequest, OpenRequestState};
#[cfg(test)]
use recap::EARLIER_BYTES_MAX;
pub use recap::{EARLIER_MAX, Recap};
use settled::{NAME_CHARS_MAX, field, lines};
pub use settled::{
    QuestionOutcome, SentMessage, SettledApproval, SettledDelegation, SettledQuestion,
    SettledRequest,
};

use crate::checkpoint::{Checkpoint, CheckpointAuthor, Choice};
use crate::quote::{quote_block, quote_field, quote_line};

/// Maximum number of changed files that are named, and all of their names in characters.
const CHANGED_FILES_MAX: usize = 200;

const CHANGED_CHARS_MAX: usize = 8_000;

/// Everything in the prompt of a new attempt besides its task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resumption {
    /// Earlier decisions, for an attempt in a new session.
    pub earlier: Recap,
    pub earlier_messages: Recap,
    pub decided: Vec<SettledQuestion>,
    pub approvals: Vec<SettledApproval>,
    pub delegations: Vec<SettledDelegation>,
    /// The open requests, the most urgent first.
    pub open: Vec<OpenRequest>,
    /// Number of further open requests.
    pub open_more: usize,
    /// Messages that arrived while the run was stopped, oldest first.
    pub messages: Vec<SentMessage>,
    pub checkpoint: Option<Checkpoint>,
    /// The checkpoint is from before the last attempt, so its blocker is resolved.
    pub checkpoint_is_old: bool,
    /// The run stopped because of an error.
    pub after_error: bool,
    /// The choice after the error.
    pub choice: Option<Choice>,
    /// The parent's description of how the blocker was resolved.
    pub resolution: Option<String>,
    pub working_directory: String,
    pub next_step: Option<String>,
}

/// The first sentence after the task in the prompt of an attempt without a session.
pub const INTRODUCTION: &str = "You have worked on this task before.";

/// Explains the form of quoted text.
const QUOTED: &str = "Indented lines are quoted text of the label above them.";

/// Composes the prompt of a new attempt: its task, followed by what has happened since.
#[must_use]
pub fn compose(task: &str, resumption: &Resumption) -> String {
    let before =
        format!("{INTRODUCTION} Below is what you left and what has been decided since. {QUOTED}");
    let parts = [
        Some(task.trim_end().to_owned()),
        Some(before),
        resumption
            .earlier
            .to_text("## EARLIER ANSWERS", "These decisions still apply:"),
        resumption
            .earlier_messages
            .to_text("## EARLIER MESSAGES", "You received these messages before:"),
        Some(sections(resumption)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

/// Composes the prompt of an attempt that resumes in its session, which already contains the task.
#[must_use]
pub fn compose_in_session(resumption: &Resumption) -> String {
    // The session remembers what a reconstructed checkpoint says.
    let checkpoint = resumption
        .checkpoint
        .clone()
        .filter(Checkpoint::explains_stop);
    let resumption = &Resumption {
        checkpoint,
        ..resumption.clone()
    };
    format!(
        "You were stopped and are resumed now. Below is what has been decided since. {QUOTED}\n\n{}",
        sections(resumption)
    )
}

fn sections(resumption: &Resumption) -> String {
    let Resumption {
        earlier: _,
        earlier_messages: _,
        decided,
        approvals,
        delegations,
        open,
        open_more,
        messages,
        checkpoint,
        checkpoint_is_old: _,
        after_error: _,
        choice: _,
        resolution: _,
        working_directory,
        next_step: _,
    } = resumption;
    let mut parts = Vec::new();
    parts.extend(clarification_section(decided));
    parts.extend(approvals.iter().map(SettledApproval::to_text));
    parts.extend(delegations.iter().map(SettledDelegation::to_text));
    if !open.is_empty() {
        let mut lines: Vec<String> = open
            .iter()
            .take(OPEN_NAMED_MAX)
            .map(OpenRequest::to_text)
            .collect();
        match open_more + open.len().saturating_sub(OPEN_NAMED_MAX) {
            0 => {}
            more => lines.push(format!("- and {more} more")),
        }
        parts.push(format!(
            "## STILL OPEN\n\nYou have asked for this already. Do not ask for it again.\n\n{}",
            lines.join("\n")
        ));
    }
    if !messages.is_empty() {
        let list: Vec<String> = messages.iter().map(SentMessage::to_text).collect();
        parts.push(format!("## MESSAGES\n\n{}", list.join("\n\n")));
    }
    parts.extend(resolution_section(resumption));
    // A run that stated its state when it asked needs no reconstructed one.
    let states_itself = decided.iter().any(|one| {
        one.clarification
            .as_ref()
            .is_some_and(|clarification| clarification.state.is_some())
    });
    let left = checkpoint
        .as_ref()
        .filter(|left| !states_itself || left.made_by == CheckpointAuthor::Run);
    parts.extend(left.and_then(|left| {
        checkpoint_section(left, resumption.checkpoint_is_old, working_directory)
    }));
    parts.push(format!(
        "## RESUME INSTRUCTIONS\n\n{}",
        instructions_section(resumption)
    ));
    parts.join("\n\n")
}

/// Formats the outcomes of questions.
fn clarification_section(decided: &[SettledQuestion]) -> Option<String> {
    if decided.is_empty() {
        return None;
    }
    let mut parts =
        vec!["## CLARIFICATION RESPONSE\n\nYour questions have been answered:".to_owned()];
    parts.extend(decided.iter().map(SettledQuestion::to_text));
    for clarification in decided.iter().filter_map(|one| one.clarification.as_ref()) {
        let why = lines([
            field("You asked because", clarification.reason.as_ref()),
            field("You needed", clarification.resume_with.as_ref()),
        ]);
        parts.extend((!why.is_empty()).then_some(why));
    }
    parts.push("Acknowledge this first: write the heading `## CLARIFICATION RECEIVED` and below it one line for each answer, such as `- Q1 answered: …`. Then continue.".to_owned());
    Some(parts.join("\n\n"))
}

/// Formats why the run stopped, and how that was resolved.
fn resolution_section(resumption: &Resumption) -> Option<String> {
    let Resumption {
        checkpoint,
        checkpoint_is_old,
        after_error,
        choice,
        resolution,
        ..
    } = resumption;
    let left = checkpoint
        .as_ref()
        .filter(|left| !checkpoint_is_old && left.explains_stop());
    if left.is_none() && choice.is_none() && resolution.is_none() {
        return None;
    }
    let heading = if *after_error || choice.is_some() {
        "## ERROR RECOVERY"
    } else {
        "## BLOCKER RESOLVED"
    };
    let text = lines([
        left.map(|left| quote_field("Issue", &left.details)),
        choice.map(|choice| format!("Decision: {}", choice.about())),
        field("Resolution", resolution.as_ref()),
        left.and_then(|left| field("Blocker type", left.blocker_type.as_ref())),
        left.and_then(|left| field("You needed", left.requirements.as_ref())),
        left.and_then(|left| field("Recovery that you proposed", left.recovery.as_ref())),
    ]);
    Some(format!("{heading}\n\n{text}"))
}

/// Formats the checkpoint. `None`: it was reconstructed from nothing that the run has done.
fn checkpoint_section(
    checkpoint: &Checkpoint,
    is_old: bool,
    working_directory: &str,
) -> Option<String> {
    let has_work = checkpoint.completed_work.is_some()
        || checkpoint.blocked_work.is_some()
        || checkpoint.state.is_some();
    if checkpoint.made_by == CheckpointAuthor::Adjutant
        && !has_work
        && checkpoint.changed_files.is_empty()
    {
        return None;
    }
    let made = match checkpoint.made_by {
        CheckpointAuthor::Adjutant => {
            Some("You left no checkpoint; this is reconstructed from your last output.".to_owned())
        }
        CheckpointAuthor::Run if is_old => {
            Some("You left this before your last attempt; check what has changed since.".to_owned())
        }
        CheckpointAuthor::Run => None,
    };
    let names: Vec<String> = checkpoint
        .changed_files
        .iter()
        .take(CHANGED_FILES_MAX)
        .map(|name| quote_line(name, NAME_CHARS_MAX))
        .collect();
    let more = if checkpoint.changed_files.len() > CHANGED_FILES_MAX {
        ", …"
    } else {
        ""
    };
    let directory = checkpoint
        .working_directory
        .as_deref()
        .unwrap_or(working_directory);
    let text = lines([
        made,
        field("Completed", checkpoint.completed_work.as_ref()),
        field("Not started", checkpoint.blocked_work.as_ref()),
        field("State", checkpoint.state.as_ref()),
        (!names.is_empty()).then(|| {
            format!(
                "Changed files: {}{more}",
                quote_line(&names.join(", "), CHANGED_CHARS_MAX)
            )
        }),
        Some(format!(
            "Working directory: {}",
            quote_line(directory, usize::MAX)
        )),
    ]);
    Some(format!("## STATE RESTORATION\n\n{text}"))
}

/// Formats where and how to continue.
fn instructions_section(resumption: &Resumption) -> String {
    let Resumption {
        decided,
        checkpoint,
        checkpoint_is_old,
        choice,
        next_step,
        ..
    } = resumption;
    let blocked = checkpoint
        .as_ref()
        .filter(|_| !checkpoint_is_old)
        .and_then(|left| left.blocked_work.as_ref());
    let next = match (next_step, choice, blocked) {
        (Some(step), ..) => quote_field("Next step", step),
        (None, Some(choice), _) => format!("Next step: {}", choice.order()),
        (None, None, Some(blocked)) => format!(
            "Next step: Continue with what was not started:\n{}",
            quote_block(blocked)
        ),
        (None, None, None) if !decided.is_empty() => {
            "Next step: Continue with these answers. Do not repeat what is done.".to_owned()
        }
        (None, None, None) => {
            "Next step: Continue where you left off. Do not repeat what is done.".to_owned()
        }
    };
    let asked = decided.iter().filter_map(|one| one.clarification.as_ref());
    let places = asked.map(|clarification| {
        lines([
            field("Continue from", clarification.blocked_at.as_ref()),
            field("Current state", clarification.state.as_ref()),
        ])
    });
    places
        .filter(|text| !text.is_empty())
        .chain([next])
        .collect::<Vec<_>>()
        .join("\n")
}
