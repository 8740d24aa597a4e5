//! What a run's state looks like: a glyph and a word, and a colour on top.

use super::age;
use super::exit::Exit;
use super::style::Style;
use crate::text;
use crate::view::{AttentionView, RunView};
use adjutant_core::Cause;
use jiff::Timestamp;

/// How a run looks in one cell.
#[derive(Debug)]
pub struct StateLabel {
    pub text: String,
    pub style: Style,
    /// Its place in a list: who needs you, who works, who is done.
    pub rank: u8,
}

/// Returns how a run looks.
pub fn label(run: &RunView, now: Timestamp) -> StateLabel {
    let build = |text: String, style, rank| StateLabel { text, style, rank };
    if let Some(oldest) = run.pending.first() {
        let waits = age::seconds_since(&oldest.asked_at, now).map(age::short).unwrap_or_default();
        let more = run.pending.len() - 1;
        let others = if more > 0 { format!(" +{more}") } else { String::new() };
        let wants = match oldest.kind.as_str() {
            "approval" => "approve",
            "delegation" => "delegate",
            _ => "asks",
        };
        return build(format!("? {wants} {}{others} {waits}", oldest.number).trim_end().to_owned(), Style::Attention, 0);
    }
    let because = |word: &str| run.reason.as_deref().map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}"));
    match (run.state.as_str(), run.outcome.as_deref()) {
        ("queued", _) => build(run.queue_place.map_or_else(|| "… queued".to_owned(), |place| format!("… queued, {place}.")), Style::Dim, 3),
        ("starting", _) => build("● starting".to_owned(), Style::Good, 2),
        ("running", _) if run.retrying.is_some() => {
            let (word, since) = run.retrying.as_ref().map_or(("", ""), |retrying| (retry_label(&retrying.cause), retrying.since.as_str()));
            let lasts = age::seconds_since(since, now).map(age::short).unwrap_or_default();
            build(format!("◌ {word} {lasts}").trim_end().to_owned(), Style::Attention, 1)
        }
        ("running", _) if run.silent_since.is_some() => {
            let silent = run.silent_since.as_deref().and_then(|since| age::seconds_since(since, now)).map(age::short).unwrap_or_default();
            build(format!("◌ silent {silent}").trim_end().to_owned(), Style::Attention, 1)
        }
        ("running", _) if run.overdue_since.is_some() => build("● overdue".to_owned(), Style::Attention, 2),
        ("running", _) => match run.subagents.iter().filter(|one| one.is_running()).count() {
            0 => build("● working".to_owned(), Style::Good, 2),
            number => build(format!("● working, {}", text::count(number as u64, "sub-agent", "sub-agents")), Style::Good, 2),
        },
        ("stopping", _) => build("■ stopping".to_owned(), Style::Dim, 2),
        ("stopped", _) => match &run.attention {
            Some(attention) => build(format!("■ stopped: {}", stop_label(&attention.why)), Style::Attention, 0),
            None => build(because("■ stopped"), Style::Attention, 1),
        },
        ("finished", Some("succeeded")) if !run.has_succeeded() => build("✗ not accepted".to_owned(), Style::Bad, 4),
        ("finished", Some("succeeded")) if run.status == "partial_success" => build("✓ partly done".to_owned(), Style::Attention, 4),
        ("finished", Some("succeeded")) => build("✓ done".to_owned(), Style::Good, 4),
        ("finished", Some("cancelled")) => build("× cancelled".to_owned(), Style::Dim, 4),
        ("finished", Some("spawn_failed")) => build("✗ not started".to_owned(), Style::Bad, 4),
        ("finished", Some("lost")) => build("✗ lost".to_owned(), Style::Bad, 4),
        ("finished", _) => build(run.cause.as_deref().and_then(cause_label).map_or_else(|| because("✗ failed"), str::to_owned), Style::Bad, 4),
        (other, _) => build(other.to_owned(), Style::Plain, 2),
    }
}

/// Returns how a failure looks whose cause is known. What the agent said about it is the run's reason.
fn cause_label(word: &str) -> Option<&'static str> {
    Some(match Cause::from_word(word)? {
        Cause::NotSignedIn => "✗ not signed in",
        Cause::ModelUnavailable => "✗ model not available",
        Cause::RateLimited => "✗ rate limited",
        Cause::Overloaded => "✗ service overloaded",
        Cause::Network => "✗ network error",
        Cause::NoCredit => "✗ no credit left",
        Cause::ContextExhausted => "✗ context full",
        Cause::TooOld => "✗ wrong version",
        Cause::SessionLost => "✗ session lost",
        Cause::NotPermitted => "✗ not permitted",
        Cause::LimitReached => "✗ agent's limit reached",
        Cause::NoWord => "✗ ended without result",
        Cause::Agent => "✗ agent error",
    })
}

/// Returns what a failure that is retried looks like.
fn retry_label(cause: &str) -> &'static str {
    let known = cause_label(cause).filter(|_| cause != Cause::Agent.word());
    known.map_or("retrying", |shown| shown.trim_start_matches("✗ "))
}

fn stop_label(why: &str) -> &str {
    match why {
        "resource_limit" => "time limit",
        "supervisor_lost" => "supervisor lost",
        other => other,
    }
}

/// Says what happened to a run that needs somebody, and what it needs.
pub fn attention_text(attention: &AttentionView) -> String {
    match &attention.needs {
        Some(needs) => format!("{}; needs: {needs}", attention.details),
        None => attention.details.clone(),
    }
}

/// Tells whether nothing more happens to the run by itself.
pub fn is_over(run: &RunView) -> bool {
    run.state == "finished" || run.state == "stopped" && !run.resumes_by_itself
}

/// Returns the ending that a run means for whoever waited for it.
pub fn exit_of(run: &RunView) -> Exit {
    match (run.state.as_str(), run.outcome.as_deref()) {
        ("finished", Some("succeeded")) if run.has_succeeded() => Exit::Done,
        ("finished", Some("spawn_failed")) => Exit::NotStarted,
        ("finished", _) => Exit::Failed,
        ("stopped", _) if !run.resumes_by_itself => Exit::NeedsInput,
        _ if !run.pending.is_empty() => Exit::NeedsInput,
        _ => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::RequestView;

    #[test]
    fn known_causes_fit_a_cell() {
        for cause in Cause::ALL {
            let shown = cause_label(cause.word()).expect("every cause has a text");
            assert!(crate::text::width_max(shown) <= 24, "{shown}");
        }
    }

    #[test]
    fn who_needs_you_comes_first() {
        let now = Timestamp::UNIX_EPOCH;
        let mut run = RunView { state: "running".to_owned(), ..RunView::default() };
        let working = label(&run, now);
        run.pending = vec![RequestView { number: "Q3".to_owned(), ..RequestView::default() }];
        let asking = label(&run, now);
        assert!(asking.rank < working.rank && asking.text == "? asks Q3");
    }
}
