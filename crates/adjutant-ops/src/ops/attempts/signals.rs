//! Applying the signals that a run prints as blocks.

use crate::ops::attempts::unreadable::note_unreadable;
use crate::ops::requests::{ask_approval, stated_operation};
use crate::ops::terms::Terms;
use crate::protocol::FoundText;
use crate::signal::{FoundSignal, interpret, kind_of};
use crate::store::{NewRequest, Request, Run, StoreError, Tx, attempt_row, newest_of};
use adjutant_core::signal::{
    Clarification, Delegation, Independence, Own, Question, Reading, Signal, SignalKind, Source,
};
use adjutant_core::{RequestId, RequestState, Subject, limits};

/// The number of a run's newest requests among which a repeated one is found.
const REPEATS_LOOKED_AT: u32 = 200;

/// Applies a signal from a block. A block can ask; it can never decide anything.
pub(super) fn apply_signal(
    tx: &mut Tx<'_>,
    run: &Run,
    found: &FoundText,
    terms: &Terms,
) -> Result<(), StoreError> {
    let Some(found) = found_of(found) else {
        return tx.malformed_signal(run, "unknown signal");
    };
    let kind = kind_of(&found);
    let tag = kind.map_or("JSON signal", SignalKind::tag);
    let reading = interpret(
        &found,
        Own {
            id: run.id,
            name: &run.name,
        },
    );
    tx.as_signal(kind, Source::Block, |tx| match reading {
        Reading::Ignored(why) => tx.malformed_signal(run, &format!("{tag}: {why}")),
        Reading::Unreadable { why, is_own } => {
            note_unreadable(tx, run, kind, &found, &why.to_string(), is_own)
        }
        Reading::Exact(_) | Reading::Flat { .. } if run.state.is_finished() => Ok(()),
        Reading::Exact(signal) => effect(tx, run, tag, signal, terms),
        Reading::Flat { signal, dropped } => {
            if let Some(dropped) = dropped {
                tx.malformed_signal(
                    run,
                    &format!("{tag}: {dropped}; it has no effect, the rest of the block has"),
                )?;
            }
            effect(tx, run, tag, signal, terms)
        }
    })
}

/// Applies a readable signal. One that the core rejects is recorded as malformed.
fn effect(
    tx: &mut Tx<'_>,
    run: &Run,
    tag: &str,
    signal: Signal,
    terms: &Terms,
) -> Result<(), StoreError> {
    let done = match signal {
        Signal::Progress { percent, note, eta } => tx
            .progress(run, percent, note.as_deref(), eta.as_deref())
            .map(|_| ()),
        Signal::Completion { claim, report } => tx.report(run, claim, &report).map(|_| ()),
        Signal::Clarification {
            clarification,
            questions,
        } => ask_questions(tx, run, clarification, questions, terms),
        Signal::Stop { cause, checkpoint } => {
            crate::ops::reports::stop(tx, run, cause, checkpoint, terms.retention).map(|_| ())
        }
        Signal::Approval {
            action,
            reason,
            preview,
            risk,
            options,
            default,
        } => {
            // The request is still opened; otherwise it would never be decided.
            if let Some(default) = default.filter(|word| !is_denial(word)) {
                tx.malformed_signal(
                    run,
                    &format!("{tag}: default {default} ignored: an undecided approval is denied"),
                )?;
            }
            let operation = stated_operation(&run.cwd, &action, preview.as_deref(), None);
            let subject = Subject::Approval {
                preview,
                risk,
                operation: Box::new(operation),
            };
            let new = NewRequest {
                context: reason,
                options: options.into_iter().take(limits::OPTIONS_MAX).collect(),
                ..new_request(tx, run, terms, subject, action)
            };
            request_approval(tx, run, &new, terms)
        }
        Signal::Delegation(delegation) => delegate(tx, run, delegation, terms),
    };
    match done {
        Err(StoreError::Denied(denied)) => tx.malformed_signal(run, &format!("{tag}: {denied}")),
        other => other,
    }
}

/// Returns whether the default of an approval is what happens without a decision.
fn is_denial(default: &str) -> bool {
    matches!(
        default.trim().to_lowercase().as_str(),
        "deny" | "denied" | "no"
    )
}

/// Asks the questions of a block that the run has not asked before. The first one has the
/// clarification of all.
fn ask_questions(
    tx: &mut Tx<'_>,
    run: &Run,
    clarification: Clarification,
    questions: Vec<Question>,
    terms: &Terms,
) -> Result<(), StoreError> {
    let mut clarification = Some(clarification).filter(|clarification| !clarification.is_empty());
    let requests = questions.into_iter().map(|question| NewRequest {
        own_id: question.id,
        context: question.context,
        clarification: clarification.take(),
        options: question
            .options
            .into_iter()
            .take(limits::OPTIONS_MAX)
            .collect(),
        default: question.assumption,
        blocking: question.blocking,
        ..new_request(tx, run, terms, Subject::Question, question.text)
    });
    let mut requests: Vec<_> = requests.collect();
    let repeated = repeats(tx, run)?;
    requests.retain(|new| !repeated(new));
    tx.ask_together(run, &requests).map(|_| ())
}

fn request_approval(
    tx: &mut Tx<'_>,
    run: &Run,
    new: &NewRequest,
    terms: &Terms,
) -> Result<(), StoreError> {
    if repeats(tx, run)?(new) {
        return Ok(());
    }
    let request = ask_approval(tx, run, new, &terms.policies)?;
    tx.deliver_outcome(&request, terms.retention)
}

/// Asks to delegate a task, unless the run has asked it before.
fn delegate(
    tx: &mut Tx<'_>,
    run: &Run,
    delegation: Delegation,
    terms: &Terms,
) -> Result<(), StoreError> {
    let blocking = delegation.independence == Independence::Blocks;
    let task = delegation.task.clone();
    let new = NewRequest {
        blocking,
        ..new_request(tx, run, terms, Subject::Delegation(delegation), task)
    };
    if repeats(tx, run)?(&new) {
        return Ok(());
    }
    tx.ask(run, &new).map(|_| ())
}

/// Returns how to recognize a request that the same attempt has printed before, as a CLI does that
/// prints its last message again. A question or an approval whose outcome the run has received can
/// be asked again; a delegation starts one run only.
fn repeats(tx: &Tx<'_>, run: &Run) -> Result<impl Fn(&NewRequest) -> bool + use<>, StoreError> {
    let began =
        attempt_row(tx.connection(), run.id, run.attempt)?.map_or(tx.now(), |row| row.claimed_at);
    let mut asked = newest_of(tx.connection(), run.id, true, REPEATS_LOOKED_AT)?;
    asked.retain(|request| {
        let is_received = matches!(request.state, RequestState::Retrieved { .. })
            && !matches!(request.subject, Subject::Delegation(_));
        request.by_block && request.asked_at >= began && !is_received
    });
    Ok(move |new: &NewRequest| {
        let is_same = |known: &Request| {
            let is_same_content = known.context == new.context && known.options == new.options;
            known.question == new.question
                && known.own_id == new.own_id
                && (new.own_id.is_some() || is_same_content)
                && known.subject.repeats(&new.subject)
        };
        asked.iter().any(is_same)
    })
}

/// Returns a blocking request without options that a block of a run makes.
fn new_request(
    tx: &Tx<'_>,
    run: &Run,
    terms: &Terms,
    subject: Subject,
    question: String,
) -> NewRequest {
    NewRequest {
        id: RequestId::new(tx.now(), crate::ops::random()),
        subject,
        question,
        own_id: None,
        context: None,
        clarification: None,
        options: Vec::new(),
        default: None,
        blocking: true,
        by_block: true,
        patience_ms: run.patience_ms,
        expires_at: tx.steady().plus_ms(terms.expiry_ms),
    }
}

/// Returns the candidate that a supervisor has found. `None`: this version does not know its type.
fn found_of(found: &FoundText) -> Option<FoundSignal> {
    Some(match found {
        FoundText::Block {
            tag,
            text,
            unclosed,
        } => FoundSignal::Block {
            kind: SignalKind::from_tag(tag)?,
            text: text.clone(),
            is_closed: !unclosed,
        },
        FoundText::Json { text } => FoundSignal::Json { text: text.clone() },
        FoundText::Oversized { tag, text } => FoundSignal::Oversized {
            kind: SignalKind::from_tag(tag)?,
            text: text.clone(),
        },
        FoundText::Mention { tag, line } => FoundSignal::Mention {
            kind: SignalKind::from_tag(tag)?,
            line: line.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_denial_is_the_default_of_an_approval() {
        for word in ["deny", " Denied ", "NO"] {
            assert!(is_denial(word), "{word}");
        }
        for word in ["approve", "yes", "", "no idea"] {
            assert!(!is_denial(word), "{word}");
        }
    }
}
