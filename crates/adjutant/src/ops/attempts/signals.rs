//! Applying the signals that a run prints as blocks.

use crate::link::FoundText;
use crate::ops::Terms;
use crate::ops::requests::{ask_approval, stated_operation};
use crate::signal::{Found, fields_of, interpret};
use crate::store::{NewRequest, Run, StoreError, Tx};
use adjutant_core::report::Claim;
use adjutant_core::signal::{Independence, Signal, SignalKind, Source};
use adjutant_core::{RequestId, RunId, Subject, limits};

/// Applies a signal from a block. A block can ask; it can never decide anything.
pub(super) fn apply_signal(tx: &mut Tx<'_>, run: &Run, found: &FoundText, terms: &Terms) -> Result<(), StoreError> {
    let (kind, tag, read) = read_signal(found, run.id);
    tx.as_signal(kind, Source::Block, |tx| effect(tx, run, &tag, read, terms))
}

fn effect(tx: &mut Tx<'_>, run: &Run, tag: &str, read: Result<Signal, String>, terms: &Terms) -> Result<(), StoreError> {
    let done = match read {
        Err(why) => return tx.malformed_signal(run, &format!("{tag}: {why}")),
        Ok(_) if run.state.is_finished() => return Ok(()),
        Ok(Signal::Progress { percent, note, eta }) => tx.progress(run, percent, note.as_deref(), eta.as_deref()).map(|_| ()),
        Ok(Signal::Completion(report)) => tx.report(run, Claim::from(report.status), &report).map(|_| ()),
        Ok(Signal::Clarification { clarification, questions }) => {
            let mut clarification = Some(clarification).filter(|clarification| !clarification.is_empty());
            let requests = questions.into_iter().map(|question| NewRequest {
                own_id: question.id,
                context: question.context,
                clarification: clarification.take(),
                options: question.options.into_iter().take(limits::OPTIONS_MAX).collect(),
                default: question.assumption,
                blocking: question.blocking,
                ..new_request(tx, run, terms, Subject::Question, question.text)
            });
            let requests: Vec<_> = requests.collect();
            tx.ask_together(run, &requests).map(|_| ())
        }
        Ok(Signal::Stop { cause, checkpoint }) => crate::ops::reports::stop(tx, run, cause, checkpoint, terms.retention).map(|_| ()),
        Ok(Signal::Approval { action, reason, preview, risk, options, default }) => {
            // The request is still opened; otherwise it would never be decided.
            if let Some(default) = default.filter(|word| !matches!(word.trim().to_lowercase().as_str(), "deny" | "denied" | "no")) {
                tx.malformed_signal(run, &format!("{tag}: default {default} ignored: an undecided approval is denied"))?;
            }
            let operation = Some(Box::new(stated_operation(&run.cwd, &action, preview.as_deref(), None)));
            let new = NewRequest {
                context: reason,
                options: options.into_iter().take(limits::OPTIONS_MAX).collect(),
                ..new_request(tx, run, terms, Subject::Approval { preview, risk, operation }, action)
            };
            let request = ask_approval(tx, run, &new, &terms.policies)?;
            tx.deliver_outcome(&request, terms.retention)
        }
        Ok(Signal::Delegation(delegation)) => {
            let (blocking, task) = (delegation.independence == Independence::Blocks, delegation.task.clone());
            let new = NewRequest { blocking, ..new_request(tx, run, terms, Subject::Delegation(delegation), task) };
            tx.ask(run, &new).map(|_| ())
        }
    };
    match done {
        Err(StoreError::Denied(denied)) => tx.malformed_signal(run, &format!("{tag}: {denied}")),
        other => other,
    }
}

/// Returns a blocking request without options that a block of a run makes.
fn new_request(tx: &Tx<'_>, run: &Run, terms: &Terms, subject: Subject, question: String) -> NewRequest {
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

/// Parses a block. Returns its kind, if known, its tag for messages, and the signal or what is wrong with it.
fn read_signal(found: &FoundText, own: RunId) -> (Option<SignalKind>, String, Result<Signal, String>) {
    let read = |found: Found| interpret(&found, own).map_err(|why| why.to_string());
    match found {
        FoundText::Broken { tag, why, .. } => (SignalKind::from_tag(tag), tag.clone(), Err(why.clone())),
        FoundText::Block { tag, text } => match SignalKind::from_tag(tag) {
            Some(kind) => (Some(kind), tag.clone(), read(Found::Block { kind, text: text.clone() })),
            None => (None, tag.clone(), Err("unknown signal".to_owned())),
        },
        FoundText::Json { text } => {
            let kind = fields_of(&Found::Json { text: text.clone() }).ok().map(|(kind, _)| kind);
            let tag = kind.map_or("JSON signal", SignalKind::tag).to_owned();
            (kind, tag, read(Found::Json { text: text.clone() }))
        }
    }
}
