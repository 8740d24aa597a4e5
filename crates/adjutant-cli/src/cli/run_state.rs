//! How a run's state is shown on a terminal: a sign, words and a colour.

use super::age;
use super::exit::Exit;
use super::style::Style;
use crate::present::{Place, Tone, state_label};
use crate::text;
use crate::view::{AttentionView, RunView, Word};
use adjutant_core::{OutcomeKind, RunStateKind};
use jiff::Timestamp;

/// The state of a run in a few words.
#[derive(Debug)]
pub(super) struct StateLabel {
    pub text: String,
    pub style: Style,
    /// Runs that need the person come first, then live ones, then ended ones.
    pub place: Place,
}

/// Returns the state of a run in a few words.
pub(super) fn label(run: &RunView, now: Timestamp) -> StateLabel {
    let label = state_label(run, &|time| age::seconds_since(time, now));
    StateLabel {
        text: label.text(),
        style: match label.tone {
            Tone::Plain => Style::Plain,
            Tone::Dim => Style::Dim,
            Tone::Good => Style::Good,
            Tone::Bad => Style::Bad,
            Tone::Attention => Style::Attention,
        },
        place: label.place,
    }
}

/// Describes that a run was started, or why it is queued.
pub(crate) fn start_text(run: &RunView) -> String {
    let name = text::line(&run.identity.name);
    match run
        .in_queue
        .queue
        .as_ref()
        .filter(|_| run.condition.state == RunStateKind::Queued)
    {
        Some(queue) if run.is_held() => format!(
            "{name} held: {}",
            text::line(queue.why.trim_start_matches("held because "))
        ),
        Some(queue) => format!("{name} queued: {}", text::line(&queue.why)),
        None => format!("{name} started with {}", text::line(&run.identity.agent)),
    }
}

/// Describes why a run needs the person. `None`: it does not.
pub(crate) fn need_text(run: &RunView) -> Option<String> {
    let undo = run.changes.undo_interrupted.as_ref().map(|undo| {
        format!(
            "an undo of it was interrupted: {} completes it",
            undo.complete_with
        )
    });
    let needs: Vec<String> = run
        .condition
        .attention
        .as_ref()
        .map(attention_text)
        .into_iter()
        .chain(undo)
        .collect();
    (!needs.is_empty()).then(|| needs.join("; "))
}

/// Describes why a run needs the person, and its requirements.
pub(crate) fn attention_text(attention: &AttentionView) -> String {
    match &attention.needs {
        Some(needs) => format!("{}; needs: {needs}", attention.details),
        None => attention.details.clone(),
    }
}

/// Returns the exit code of a command that waited for this run.
pub(super) fn exit_of(run: &RunView) -> Exit {
    match (
        run.condition.state.known(),
        run.condition.outcome.as_ref().and_then(Word::known),
    ) {
        (Some(RunStateKind::Finished), Some(OutcomeKind::Succeeded)) if run.has_succeeded() => {
            Exit::Done
        }
        (Some(RunStateKind::Finished), Some(OutcomeKind::SpawnFailed)) => Exit::NotStarted,
        (Some(RunStateKind::Finished), _) => Exit::Failed,
        _ if run.needs_resume() => Exit::NeedsInput,
        _ if !run.requests.pending.is_empty() => Exit::NeedsInput,
        _ => Exit::Done,
    }
}
