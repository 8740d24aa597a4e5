//! What a later attempt is told where the agent keeps no session of its own: the task again, what
//! was left behind, what has been decided since, what is still open, and the next step, under the
//! protocol's headings.

use crate::RequestKind;
use crate::checkpoint::{Checkpoint, Choice, MadeBy};
use crate::signal::Independence;

/// Most requests that are named as still open; of the others only their number is told.
pub const OPEN_NAMED_MAX: usize = 20;
/// Of the text of one of them so many characters: the run has written it itself.
const OPEN_TEXT_CHARS: usize = 300;

/// One question with what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// `Q12`.
    pub number: String,
    pub question: String,
    pub became: Became,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    Answered(String),
    Expired,
    Withdrawn,
}

/// What somebody decided about something that the run wanted to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruled {
    pub number: String,
    pub action: String,
    pub approved: bool,
    /// The reason of a no, or what was said along with a yes.
    pub words: Option<String>,
}

/// What became of a delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delegated {
    Approved { task: String, child: String, result: Option<String> },
    Denied { task: String, reason: String },
}

impl Decided {
    /// Writes it for a run that goes on.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self { number, question, became } = self;
        let answer = match became {
            Became::Answered(answer) => format!("A: {answer}"),
            Became::Expired => "Nobody answered in time. Decide for yourself and say so in your report.".to_owned(),
            Became::Withdrawn => "The question was withdrawn.".to_owned(),
        };
        format!("{number}: {question}\n{answer}")
    }
}

impl Ruled {
    /// Writes it under its heading.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self { number, action, approved, words } = self;
        let (heading, label) = if *approved { ("## APPROVAL GRANTED", "Note") } else { ("## APPROVAL DENIED", "Reason") };
        let words = words.as_ref().map_or_else(String::new, |words| format!("\n{label}: {words}"));
        let bounds =
            if *approved { "This covers what you showed and nothing else." } else { "Do not do it. Find another way, or report that there is none." };
        format!("{heading}\n\n{number}: {action}{words}\n{bounds}")
    }
}

impl Delegated {
    /// Writes it under its heading.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Approved { task, child, result } => {
                let result = result.as_ref().map_or_else(String::new, |result| format!("\nResult: {result}"));
                format!("## DELEGATION APPROVED\n\nNew agent launched: {child}\nTask: {task}{result}")
            }
            Self::Denied { task, reason } => format!("## DELEGATION DENIED\n\nTask: {task}\nReason: {reason}"),
        }
    }
}

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Decided(Decided),
    Ruled(Ruled),
    Delegated(Delegated),
}

impl Told {
    /// Writes it for a run that is told it on its way.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Decided(decided) => decided.to_text(),
            Self::Ruled(ruled) => ruled.to_text(),
            Self::Delegated(delegated) => delegated.to_text(),
        }
    }
}

impl Told {
    /// Writes it for a run that does not remember it.
    fn to_earlier(&self) -> String {
        match self {
            Self::Decided(decided) => decided.to_text(),
            Self::Ruled(Ruled { number, action, approved: true, words }) => {
                let note = words.as_ref().map_or_else(String::new, |words| format!(" Note: {words}"));
                format!("{number}: {action}\nApproved at that time.{note} Look whether it was done, and ask again before you do it now.")
            }
            Self::Ruled(Ruled { number, action, approved: false, words }) => {
                let reason = words.as_ref().map_or_else(String::new, |words| format!(": {words}"));
                format!("{number}: {action}\nDenied{reason}")
            }
            Self::Delegated(Delegated::Approved { task, child, result }) => {
                let result = result.as_ref().map_or_else(String::new, |result| format!("\nResult: {result}"));
                format!("Delegated to {child}: {task}{result}")
            }
            Self::Delegated(Delegated::Denied { task, reason }) => format!("Not delegated: {task}\nReason: {reason}"),
        }
    }
}

/// Most of what earlier attempts were told that a new one is told again, the newest, and all of it in bytes.
pub const EARLIER_MAX: usize = 50;
pub const EARLIER_BYTES_MAX: usize = 16 * 1024;

/// What earlier attempts were told, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Earlier {
    /// Oldest first.
    texts: Vec<String>,
    /// Something older, or too long, was left out.
    has_more: bool,
}

impl Earlier {
    /// Keeps the newest of what is given (oldest first) that fit.
    #[must_use]
    pub fn of(all: Vec<Told>) -> Self {
        let mut kept = Self::default();
        let mut bytes = 0;
        for told in all.iter().rev() {
            let text = told.to_earlier();
            if kept.texts.len() == EARLIER_MAX || bytes + text.len() > EARLIER_BYTES_MAX {
                kept.has_more = true;
                continue;
            }
            bytes += text.len();
            kept.texts.push(text);
        }
        kept.texts.reverse();
        kept
    }

    fn to_text(&self) -> Option<String> {
        let Self { texts, has_more } = self;
        let more = if *has_more { "\n\nMore, older or long, is left out here." } else { "" };
        (!texts.is_empty() || *has_more).then(|| format!("## EARLIER ANSWERS\n\nThis was decided before and holds:\n\n{}{more}", texts.join("\n\n")))
    }
}

/// A request that its run still waits for, or could.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub number: String,
    pub kind: RequestKind,
    /// The question, the action, or the task.
    pub text: String,
    /// What comes of it is brought to the run; else the run gets it by a call.
    pub by_block: bool,
    pub stands: Stands,
}

/// How far such a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    /// Nobody has decided.
    Undecided { blocking: bool },
    /// A delegation was approved, and its run has not ended.
    AtWork { child: String, independence: Independence },
}

impl Open {
    fn to_text(&self) -> String {
        let Self { number, kind, text, by_block, stands } = self;
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut = if words.chars().nth(OPEN_TEXT_CHARS).is_some() { "…" } else { "" };
        let words: String = words.chars().take(OPEN_TEXT_CHARS).collect();
        let (about, next) = match (stands, by_block) {
            (Stands::Undecided { blocking: true }, false) => {
                ("not decided yet".to_owned(), format!("Call check_answer with message_id {number}: it waits for the answer."))
            }
            (Stands::Undecided { blocking: false }, false) => {
                ("not decided yet".to_owned(), format!("Call check_answer with message_id {number} when you need the answer."))
            }
            (Stands::Undecided { blocking: true }, true) => {
                ("not decided yet".to_owned(), "The answer is brought to you: when you can do nothing more without it, end.".to_owned())
            }
            (Stands::Undecided { blocking: false }, true) => ("not decided yet".to_owned(), "Go on without the answer.".to_owned()),
            (Stands::AtWork { child, independence }, by_block) => {
                let next = match (independence, by_block) {
                    (Independence::Blocks, false) => format!("Call check_answer with message_id {number}: it waits for the result."),
                    (Independence::Blocks, true) => "The result is brought to you: when you can do nothing more without it, end.".to_owned(),
                    (Independence::Parallel, _) => "A message tells you when it has ended.".to_owned(),
                    (Independence::Optional, _) => "Nothing depends on it.".to_owned(),
                };
                (format!("approved, run {child} is at work on it"), next)
            }
        };
        format!("- {number}, {} ({about}): {words}{cut}\n  {next}", kind.word())
    }
}

/// Everything that a new attempt is told beside its task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resumption {
    /// For one that does not remember it.
    pub earlier: Earlier,
    pub decided: Vec<Decided>,
    pub ruled: Vec<Ruled>,
    pub delegated: Vec<Delegated>,
    /// What nothing has come of yet, the most pressing first.
    pub open: Vec<Open>,
    /// How many more there are.
    pub open_more: usize,
    /// What it was sent while it was away, oldest first.
    pub messages: Vec<String>,
    pub checkpoint: Option<Checkpoint>,
    /// The run stopped because of an error.
    pub after_error: bool,
    /// What was chosen after it.
    pub choice: Option<Choice>,
    /// How the blocker was resolved, in the parent's words.
    pub resolution: Option<String>,
    pub working_directory: String,
    pub next_step: Option<String>,
}

/// Writes what a new attempt is told, behind its task.
#[must_use]
pub fn compose(task: &str, resumption: &Resumption) -> String {
    let before = "You have worked on this before. This is what you left behind and what has been decided since.";
    let earlier = resumption.earlier.to_text().map_or_else(String::new, |earlier| format!("{earlier}\n\n"));
    format!("{}\n\n{before}\n\n{earlier}{}", task.trim_end(), since(resumption))
}

/// Writes what an agent is told that goes on in its own session, where it has its task before it.
#[must_use]
pub fn compose_in_session(resumption: &Resumption) -> String {
    format!("You were stopped and go on now. This is what has been decided since.\n\n{}", since(resumption))
}

fn since(resumption: &Resumption) -> String {
    let Resumption {
        earlier: _,
        decided,
        ruled,
        delegated,
        open,
        open_more,
        messages,
        checkpoint,
        after_error,
        choice,
        resolution,
        working_directory,
        next_step,
    } = resumption;
    let mut parts = Vec::new();
    if !decided.is_empty() {
        let mut text = "## CLARIFICATION RESPONSE\n\nYour questions have been answered:".to_owned();
        for one in decided {
            text.push_str(&format!("\n\n{}", one.to_text()));
        }
        parts.push(text);
    }
    parts.extend(ruled.iter().map(Ruled::to_text));
    parts.extend(delegated.iter().map(Delegated::to_text));
    if !open.is_empty() {
        let mut lines: Vec<String> = open.iter().take(OPEN_NAMED_MAX).map(Open::to_text).collect();
        match open_more + open.len().saturating_sub(OPEN_NAMED_MAX) {
            0 => {}
            more => lines.push(format!("- and {more} more")),
        }
        parts.push(format!("## STILL OPEN\n\nYou have asked for this already. Do not ask for it again.\n\n{}", lines.join("\n")));
    }
    if !messages.is_empty() {
        let list: Vec<String> = messages.iter().map(|message| format!("- {}", message.trim().replace('\n', "\n  "))).collect();
        parts.push(format!("## MESSAGES\n\n{}", list.join("\n")));
    }
    let heading = if *after_error || choice.is_some() { "## ERROR RECOVERY" } else { "## BLOCKER RESOLVED" };
    if checkpoint.is_some() || choice.is_some() || resolution.is_some() {
        let lines = [
            checkpoint.as_ref().map(|checkpoint| format!("Issue: {}", checkpoint.details)),
            choice.map(|choice| format!("Decision: {}", choice.about())),
            resolution.as_ref().map(|resolution| format!("Resolution: {resolution}")),
        ];
        parts.push(format!("{heading}\n\n{}", lines.into_iter().flatten().collect::<Vec<_>>().join("\n")));
    }
    if let Some(checkpoint) = checkpoint {
        let mut text = "## STATE RESTORATION\n".to_owned();
        if checkpoint.made_by == MadeBy::Us {
            text.push_str("\nYou left no checkpoint; this was put together from what you said last.");
        }
        for (label, value) in [("Completed", &checkpoint.completed_work), ("Not started", &checkpoint.blocked_work), ("State", &checkpoint.state)] {
            if let Some(value) = value {
                text.push_str(&format!("\n{label}:\n{value}"));
            }
        }
        if !checkpoint.changed_files.is_empty() {
            text.push_str(&format!("\nChanged files: {}", checkpoint.changed_files.join(", ")));
        }
        text.push_str(&format!("\nWorking directory: {}", checkpoint.working_directory.as_ref().unwrap_or(working_directory)));
        parts.push(text);
    }
    let next = match (next_step, choice, checkpoint) {
        (Some(step), ..) => step.clone(),
        (None, Some(choice), _) => choice.order().to_owned(),
        (None, None, Some(Checkpoint { blocked_work: Some(blocked), .. })) => format!("Continue with what was not started:\n{blocked}"),
        (None, None, _) => "Continue where you left off. Do not repeat what is done.".to_owned(),
    };
    parts.push(format!("## RESUME INSTRUCTIONS\n\n{next}"));
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_under_their_questions() {
        let resumption = Resumption {
            decided: vec![
                Decided { number: "Q1".to_owned(), question: "OAuth2, JWT, or both?".to_owned(), became: Became::Answered("Both.".to_owned()) },
                Decided { number: "Q2".to_owned(), question: "Which version?".to_owned(), became: Became::Expired },
            ],
            working_directory: "/w".to_owned(),
            ..Resumption::default()
        };
        let expected = "Look at auth\n\nYou have worked on this before. This is what you left behind and what has been decided since.\n\n## CLARIFICATION RESPONSE\n\nYour questions have been answered:\n\nQ1: OAuth2, JWT, or both?\nA: Both.\n\nQ2: Which version?\nNobody answered in time. Decide for yourself and say so in your report.\n\n## RESUME INSTRUCTIONS\n\nContinue where you left off. Do not repeat what is done.";
        assert_eq!(compose("Look at auth\n", &resumption), expected);
    }

    fn answered(number: usize, answer: &str) -> Told {
        let (number, question) = (format!("Q{number}"), "Which?".to_owned());
        Told::Decided(Decided { number, question, became: Became::Answered(answer.to_owned()) })
    }

    #[test]
    fn what_earlier_attempts_were_told_is_told_to_one_that_does_not_remember() {
        let ruled = |approved, words: Option<&str>| {
            Told::Ruled(Ruled { number: "Q2".to_owned(), action: "Drop the table".to_owned(), approved, words: words.map(str::to_owned) })
        };
        let denied = Told::Delegated(Delegated::Denied { task: "Rewrite".to_owned(), reason: "later".to_owned() });
        let earlier = Earlier::of(vec![answered(1, "Both."), ruled(true, None), ruled(false, Some("not today")), denied]);
        let resumption = Resumption { earlier, ..Resumption::default() };
        let expected = "## EARLIER ANSWERS\n\nThis was decided before and holds:\n\nQ1: Which?\nA: Both.\n\nQ2: Drop the table\nApproved at that time. Look whether it was done, and ask again before you do it now.\n\nQ2: Drop the table\nDenied: not today\n\nNot delegated: Rewrite\nReason: later\n\n## RESUME INSTRUCTIONS";
        let text = compose("T", &resumption);
        assert!(text.contains(expected), "{text}");
        assert!(!compose_in_session(&resumption).contains("EARLIER"), "in its session it has it before it");
    }

    #[test]
    fn of_what_earlier_attempts_were_told_the_newest_that_fit_are_kept() {
        let many = Earlier::of((1..=EARLIER_MAX + 1).map(|n| answered(n, "yes")).collect());
        assert_eq!((many.texts.len(), many.has_more), (EARLIER_MAX, true));
        assert!(many.texts[0].starts_with("Q2:") && many.texts.ends_with(&[format!("Q{}: Which?\nA: yes", EARLIER_MAX + 1)]));
        let long = Earlier::of(vec![answered(1, "short"), answered(2, &"x".repeat(EARLIER_BYTES_MAX)), answered(3, "short")]);
        assert_eq!((long.texts.len(), long.has_more), (2, true), "what is too long does not cost the others their place");
        assert!(compose("T", &Resumption { earlier: long, ..Resumption::default() }).contains("\n\nMore, older or long, is left out here."));
        assert!(!Earlier::of(vec![answered(1, "yes")]).has_more);
    }

    #[test]
    fn a_checkpoint_is_restored_with_its_resolution_and_the_next_step() {
        let checkpoint = Checkpoint {
            details: "node_modules is missing".to_owned(),
            completed_work: Some("✓ Scanned".to_owned()),
            blocked_work: Some("✗ npm audit".to_owned()),
            state: Some("47/120 files".to_owned()),
            ..Checkpoint::default()
        };
        let resumption = Resumption {
            checkpoint: Some(checkpoint),
            resolution: Some("Ran npm install".to_owned()),
            working_directory: "/w/src".to_owned(),
            ..Resumption::default()
        };
        let expected = "Audit\n\nYou have worked on this before. This is what you left behind and what has been decided since.\n\n## BLOCKER RESOLVED\n\nIssue: node_modules is missing\nResolution: Ran npm install\n\n## STATE RESTORATION\n\nCompleted:\n✓ Scanned\nNot started:\n✗ npm audit\nState:\n47/120 files\nWorking directory: /w/src\n\n## RESUME INSTRUCTIONS\n\nContinue with what was not started:\n✗ npm audit";
        assert_eq!(compose("Audit", &resumption), expected);
        let after_error = Resumption { after_error: true, next_step: Some("Skip the file".to_owned()), ..resumption };
        let text = compose("Audit", &after_error);
        assert!(text.contains("## ERROR RECOVERY\n\nIssue: node_modules") && text.ends_with("## RESUME INSTRUCTIONS\n\nSkip the file"));
    }

    #[test]
    fn what_was_chosen_after_an_error_comes_under_its_heading() {
        let checkpoint = Checkpoint {
            details: "TypeError at /tmp/analysis.js:142".to_owned(),
            completed_work: Some("46 files".to_owned()),
            state: Some("47/120".to_owned()),
            changed_files: vec!["A.md".to_owned(), "b.rs".to_owned()],
            ..Checkpoint::default()
        };
        let told = |choice, resolution: Option<&str>| {
            let resumption = Resumption {
                checkpoint: Some(checkpoint.clone()),
                after_error: true,
                choice: Some(choice),
                resolution: resolution.map(str::to_owned),
                working_directory: "/w".to_owned(),
                ..Resumption::default()
            };
            let text = compose("T", &resumption);
            text.split_once("decided since.\n\n").map(|(_, rest)| rest.to_owned()).expect("the introduction is there")
        };
        let state = "## STATE RESTORATION\n\nCompleted:\n46 files\nState:\n47/120\nChanged files: A.md, b.rs\nWorking directory: /w";
        let golden = [
            (
                Choice::Skip,
                Some("Skip analysis.js:142"),
                "skip what failed and continue with the rest\nResolution: Skip analysis.js:142",
                "Skip what failed and continue with the rest. Write down what you skipped, and name it in your report.",
            ),
            (
                Choice::Retry,
                Some("undefined check added"),
                "it was fixed: retry what failed, from the checkpoint\nResolution: undefined check added",
                "What failed was fixed. Resume from the checkpoint and retry it.",
            ),
            (
                Choice::Delegate,
                None,
                "delegate what is left to another agent",
                "Delegate what is left to another agent (DELEGATE_WORK), and finish with what comes of it.",
            ),
            (
                Choice::Reduce,
                None,
                "reduce the scope and finish",
                "Reduce the scope: finish what matters most, and say in your report what you left out.",
            ),
        ];
        for (choice, resolution, decision, next) in golden {
            let expected = format!(
                "## ERROR RECOVERY\n\nIssue: TypeError at /tmp/analysis.js:142\nDecision: {decision}\n\n{state}\n\n## RESUME INSTRUCTIONS\n\n{next}"
            );
            assert_eq!(told(choice, resolution), expected);
        }
    }

    #[test]
    fn approvals_are_told_either_way() {
        let ruled = |number: &str, approved, words: Option<&str>| Ruled {
            number: number.to_owned(),
            action: "Drop the table".to_owned(),
            approved,
            words: words.map(ToOwned::to_owned),
        };
        let text = compose("T", &Resumption { ruled: vec![ruled("Q1", true, None), ruled("Q2", false, Some("not today"))], ..Resumption::default() });
        assert!(text.contains("## APPROVAL GRANTED\n\nQ1: Drop the table\nThis covers what you showed and nothing else."), "{text}");
        assert!(text.contains("## APPROVAL DENIED\n\nQ2: Drop the table\nReason: not today\nDo not do it."), "{text}");
    }

    #[test]
    fn delegations_are_told_either_way() {
        let resumption = Resumption {
            delegated: vec![
                Delegated::Approved { task: "Refactor".to_owned(), child: "calm-newt".to_owned(), result: Some("done".to_owned()) },
                Delegated::Denied { task: "Rewrite".to_owned(), reason: "later".to_owned() },
            ],
            ..Resumption::default()
        };
        let text = compose("T", &resumption);
        assert!(text.contains("## DELEGATION APPROVED\n\nNew agent launched: calm-newt\nTask: Refactor\nResult: done"));
        assert!(text.contains("## DELEGATION DENIED\n\nTask: Rewrite\nReason: later"));
        let text = compose("T", &Resumption { messages: vec!["first\nline".to_owned(), "second".to_owned()], ..Resumption::default() });
        assert!(text.contains("## MESSAGES\n\n- first\n  line\n- second\n\n## RESUME"), "{text}");
    }

    fn open(number: usize, kind: RequestKind, text: &str, by_block: bool, stands: Stands) -> Open {
        Open { number: format!("Q{number}"), kind, text: text.to_owned(), by_block, stands }
    }

    #[test]
    fn what_is_still_open_is_told_with_the_way_to_what_comes_of_it() {
        let at_work = |independence| Stands::AtWork { child: "calm-newt".to_owned(), independence };
        let undecided = |blocking| Stands::Undecided { blocking };
        let resumption = Resumption {
            open: vec![
                open(1, RequestKind::Delegation, "Refactor\n  it", false, at_work(Independence::Blocks)),
                open(2, RequestKind::Delegation, "Look", false, at_work(Independence::Parallel)),
                open(3, RequestKind::Question, "Which?", false, undecided(true)),
                open(4, RequestKind::Approval, "Drop it", false, undecided(false)),
                open(5, RequestKind::Question, "How?", true, undecided(true)),
                open(6, RequestKind::Delegation, "Test", true, at_work(Independence::Blocks)),
            ],
            open_more: 3,
            ..Resumption::default()
        };
        let expected = "## STILL OPEN\n\nYou have asked for this already. Do not ask for it again.\n\n\
            - Q1, delegation (approved, run calm-newt is at work on it): Refactor it\n  Call check_answer with message_id Q1: it waits for the result.\n\
            - Q2, delegation (approved, run calm-newt is at work on it): Look\n  A message tells you when it has ended.\n\
            - Q3, question (not decided yet): Which?\n  Call check_answer with message_id Q3: it waits for the answer.\n\
            - Q4, approval (not decided yet): Drop it\n  Call check_answer with message_id Q4 when you need the answer.\n\
            - Q5, question (not decided yet): How?\n  The answer is brought to you: when you can do nothing more without it, end.\n\
            - Q6, delegation (approved, run calm-newt is at work on it): Test\n  The result is brought to you: when you can do nothing more without it, end.\n\
            - and 3 more\n\n## RESUME INSTRUCTIONS";
        for text in [compose("T", &resumption), compose_in_session(&resumption)] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(!compose("T", &Resumption::default()).contains("STILL OPEN"));
    }

    proptest::proptest! {
        #[test]
        fn what_is_still_open_takes_bounded_room_and_no_heading_of_its_own(
            text in "([a-zé# \n]|\n## RESUME){0,900}",
            count in 1..60_usize,
            more in 0..30_usize,
            by_block: bool,
            blocking: bool,
        ) {
            let one = |number| open(number, RequestKind::Question, &text, by_block, Stands::Undecided { blocking });
            let told = compose("T", &Resumption { open: (1..=count).map(one).collect(), open_more: more, ..Resumption::default() });
            let (_, part) = told.split_once("## STILL OPEN\n\n").expect("it is told");
            let (part, _) = part.split_once("\n\n## RESUME INSTRUCTIONS").expect("what follows");
            proptest::prop_assert!(part.chars().count() <= 100 + OPEN_NAMED_MAX * (OPEN_TEXT_CHARS + 200));
            proptest::prop_assert!(part.lines().all(|line| !line.starts_with('#')));
            let named = part.lines().filter(|line| line.starts_with("- Q")).count();
            let unnamed = part.lines().find_map(|line| line.strip_prefix("- and ")?.strip_suffix(" more")?.parse().ok()).unwrap_or(0);
            proptest::prop_assert_eq!(named + unnamed, count + more);
            proptest::prop_assert!(named <= OPEN_NAMED_MAX);
        }
    }
}
