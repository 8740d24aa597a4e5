//! The messages of the commits that a merge makes.

use crate::store::Run;
use adjutant_core::quote::quote_line;

/// Longest subject of a commit, in characters.
const SUBJECT_CHARS_MAX: usize = 68;
/// The characters of a task that a subject has at least.
const TASK_CHARS_MIN: usize = 20;

/// Other runs that the commits of a merge name.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The run whose conflicts the merged one resolves.
    pub(super) resolves: Option<Run>,
    /// The newest run that has worked in the workspace since, if the workspace was merged before.
    pub(super) follow_up: Option<Run>,
}

/// Composes the message of a commit: the run's task, and which run and agent made it. `before` is
/// the beginning of the subject.
pub(super) fn message(run: &Run, history: &History, before: &str) -> String {
    let (about, task) = match &history.resolves {
        Some(other) => (
            format!("Resolve conflicts with {}: ", other.name),
            &other.task,
        ),
        None => (String::new(), &run.task),
    };
    let after = history
        .follow_up
        .as_ref()
        .map(|run| format!(" (follow-up {})", run.name))
        .unwrap_or_default();
    let task = (task.as_str(), run.name.as_str());
    let subject = subject(&format!("{before}{about}"), task, &after);
    format!(
        "{subject}\n\nAdjutant-Run: {} ({})\nAdjutant-Agent: {}\n",
        run.name, run.id, run.agent
    )
}

/// Composes a subject from a task, which is cut, and what is before and after it. `run`: the name
/// of the run, for one whose task has no text.
fn subject(before: &str, (task, run): (&str, &str), after: &str) -> String {
    let others = before.chars().count() + after.chars().count();
    let chars_max = SUBJECT_CHARS_MAX.saturating_sub(others).max(TASK_CHARS_MIN);
    let task = quote_line(task, chars_max);
    let task = if task.is_empty() {
        format!("Changes of run {run}")
    } else {
        task
    };
    format!("{before}{task}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_is_cut_to_the_rest_of_a_subject() {
        let task = "word ".repeat(40);
        let long = subject("Merge run amy: ", (&task, "amy"), " (follow-up bob)");
        assert!(long.chars().count() <= SUBJECT_CHARS_MAX + 1, "{long}");
        assert!(long.starts_with("Merge run amy: word"), "{long}");
        assert!(long.ends_with(" (follow-up bob)"), "{long}");
    }

    #[test]
    fn run_without_a_task_is_named() {
        assert_eq!(
            subject("Merge run amy: ", ("", "amy"), ""),
            "Merge run amy: Changes of run amy"
        );
    }
}
