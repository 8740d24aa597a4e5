//! Unit tests of the composed prompts.

use super::open::OPEN_TEXT_CHARS;
use super::*;
use crate::RequestKind;
use crate::quote::{INDENT, hostile_text};
use crate::signal::{Clarification, Independence};
use proptest::prelude::*;

const BEFORE: &str = "You have worked on this task before. Below is what you left and what has been decided since. Indented lines are quoted text of the label above them.";
const ACKNOWLEDGE: &str = "Acknowledge this first: write the heading `## CLARIFICATION RECEIVED` and below it one line for each answer, such as `- Q1 answered: …`. Then continue.";

fn decided(number: &str, question: &str, outcome: QuestionOutcome) -> SettledQuestion {
    SettledQuestion {
        number: number.to_owned(),
        own_id: None,
        question: question.to_owned(),
        context: None,
        outcome,
        clarification: None,
    }
}

fn answered(text: &str) -> QuestionOutcome {
    QuestionOutcome::Answered(text.to_owned())
}

#[test]
fn answers_follow_their_questions() {
    let resumption = Resumption {
        decided: vec![
            decided("Q1", "OAuth2, JWT, or both?", answered("Both.")),
            decided("Q2", "Which version?", QuestionOutcome::Expired),
        ],
        working_directory: "/w".to_owned(),
        ..Resumption::default()
    };
    let expected = format!(
        "Look at auth\n\n{BEFORE}\n\n## CLARIFICATION RESPONSE\n\nYour questions have been answered:\n\nQ1: OAuth2, JWT, or both?\nA: Both.\n\nQ2: Which version?\nNobody answered in time. Decide for yourself and say so in your report.\n\n{ACKNOWLEDGE}\n\n## RESUME INSTRUCTIONS\n\nNext step: Continue with these answers. Do not repeat what is done."
    );
    assert_eq!(compose("Look at auth\n", &resumption), expected);
}

/// The example of the original protocol, verbatim.
#[test]
fn clarification_keeps_its_own_ids_and_state() {
    let own =
        |number: &str, id: &str, question: &str, context: &str, answer: &str| SettledQuestion {
            own_id: Some(id.to_owned()),
            context: Some(context.to_owned()),
            ..decided(number, question, answered(answer))
        };
    let mut first = own(
        "Q10",
        "Q1",
        "Should I analyze OAuth2, JWT, or both authentication strategies?",
        "Found separate implementations in src/auth/oauth.ts and src/auth/jwt.ts",
        "Analyze both OAuth2 and JWT. They are both in active use.",
    );
    first.clarification = Some(Clarification {
        reason: Some(
            "Multiple authentication strategies found, unclear which to analyze".to_owned(),
        ),
        blocked_at: Some("Analyzing authentication patterns in src/auth/".to_owned()),
        resume_with: Some(
            "Answers specifying which auth strategies to analyze and framework version assumptions"
                .to_owned(),
        ),
        state: Some(
            "Completed secret scanning (found 0 hardcoded secrets), started auth analysis"
                .to_owned(),
        ),
    });
    let second = own(
        "Q11",
        "version",
        "What security framework version should I assume (2.0 or 3.0)?",
        "Dependencies show both",
        "Assume 3.0-beta.\nWe are migrating to 3.x.",
    );
    let resumption = Resumption {
        decided: vec![first, second],
        next_step: Some(
            "Analyze both OAuth2 and JWT implementations with 3.0-beta assumptions".to_owned(),
        ),
        ..Resumption::default()
    };
    let expected = format!(
        "## CLARIFICATION RESPONSE\n\nYour questions have been answered:\n\n\
             Q1: Should I analyze OAuth2, JWT, or both authentication strategies?\n\
             A1: Analyze both OAuth2 and JWT. They are both in active use.\n\
             Context: Found separate implementations in src/auth/oauth.ts and src/auth/jwt.ts\n\n\
             Q (version): What security framework version should I assume (2.0 or 3.0)?\n\
             A (version):\n    Assume 3.0-beta.\n    We are migrating to 3.x.\n\
             Context: Dependencies show both\n\n\
             You asked because: Multiple authentication strategies found, unclear which to analyze\n\
             You needed: Answers specifying which auth strategies to analyze and framework version assumptions\n\n\
             {ACKNOWLEDGE}\n\n\
             ## RESUME INSTRUCTIONS\n\n\
             Continue from: Analyzing authentication patterns in src/auth/\n\
             Current state: Completed secret scanning (found 0 hardcoded secrets), started auth analysis\n\
             Next step: Analyze both OAuth2 and JWT implementations with 3.0-beta assumptions"
    );
    for text in [compose("T", &resumption), compose_in_session(&resumption)] {
        assert!(text.ends_with(&expected), "{text}");
    }
}

fn settled_question(number: usize, answer: &str) -> SettledRequest {
    SettledRequest::Question(decided(&format!("Q{number}"), "Which?", answered(answer)))
}

#[test]
fn attempt_without_memory_gets_earlier_decisions() {
    let approvals = |approved, words: Option<&str>| {
        SettledRequest::Approval(SettledApproval {
            number: "Q2".to_owned(),
            action: "Drop the table".to_owned(),
            approved,
            words: words.map(str::to_owned),
        })
    };
    let denied = SettledRequest::Delegation(SettledDelegation::Denied {
        task: "Rewrite".to_owned(),
        reason: "later".to_owned(),
    });
    let mut first = decided("Q1", "Which?", answered("Both."));
    first.clarification = Some(Clarification {
        blocked_at: Some("src/auth/".to_owned()),
        state: Some("a\nb".to_owned()),
        ..Clarification::default()
    });
    let earlier = Recap::of_requests(&[
        SettledRequest::Question(first),
        approvals(true, None),
        approvals(false, Some("not today")),
        denied,
    ]);
    let resumption = Resumption {
        earlier,
        ..Resumption::default()
    };
    let expected = "## EARLIER ANSWERS\n\nThese decisions still apply:\n\nQ1: Which?\nA: Both.\nYou were at: src/auth/\nState at that time:\n    a\n    b\n\nQ2: Drop the table\nApproved at that time. Check whether it was done; ask again before you do it now.\n\nQ2: Drop the table\nDenied.\nReason: not today\n\nNot delegated: Rewrite\nReason: later\n\n## RESUME INSTRUCTIONS";
    let text = compose("T", &resumption);
    assert!(text.contains(expected), "{text}");
    assert!(
        !compose_in_session(&resumption).contains("EARLIER"),
        "the session already contains it"
    );
}

#[test]
fn newest_earlier_decisions_that_fit_are_kept() {
    let many: Vec<SettledRequest> = (1..=EARLIER_MAX + 1)
        .map(|n| settled_question(n, "yes"))
        .collect();
    let many = Recap::of_requests(&many);
    assert_eq!((many.texts.len(), many.has_more), (EARLIER_MAX, true));
    assert!(
        many.texts[0].starts_with("Q2:")
            && many
                .texts
                .ends_with(&[format!("Q{}: Which?\nA: yes", EARLIER_MAX + 1)])
    );
    let long = Recap::of_requests(&[
        settled_question(1, "short"),
        settled_question(2, &"x".repeat(EARLIER_BYTES_MAX)),
        settled_question(3, "short"),
    ]);
    assert_eq!(
        (long.texts.len(), long.has_more),
        (2, true),
        "an entry that is too long does not displace others"
    );
    assert!(
        compose(
            "T",
            &Resumption {
                earlier: long,
                ..Resumption::default()
            }
        )
        .contains("\n\nOlder or longer entries are omitted.")
    );
    assert!(!Recap::of_requests(&[settled_question(1, "yes")]).has_more);
}

fn sent(from: &str, text: &str) -> SentMessage {
    SentMessage {
        from: from.to_owned(),
        text: text.to_owned(),
    }
}

#[test]
fn attempt_without_memory_gets_earlier_messages() {
    let earlier_messages = Recap::of_messages(&[
        sent("person", "keep to src/"),
        sent("client:a", "two\nlines"),
    ]);
    let resumption = Resumption {
        earlier_messages,
        messages: vec![sent("person", "now")],
        ..Resumption::default()
    };
    let expected = "## EARLIER MESSAGES\n\nYou received these messages before:\n\nFrom person: keep to src/\n\nFrom client:a:\n    two\n    lines\n\n## MESSAGES\n\nFrom person: now\n\n## RESUME";
    let text = compose("T", &resumption);
    assert!(text.contains(expected), "{text}");
    assert!(!compose_in_session(&resumption).contains("EARLIER"));
    let many: Vec<SentMessage> = (0..=EARLIER_MAX)
        .map(|n| sent("person", &n.to_string()))
        .collect();
    assert!(Recap::of_messages(&many).has_more);
}

#[test]
fn checkpoint_is_restored_with_its_resolution_and_next_step() {
    let checkpoint = Checkpoint {
        blocker_type: Some("external_dependency".to_owned()),
        details: "node_modules is missing".to_owned(),
        completed_work: Some("✓ Scanned".to_owned()),
        blocked_work: Some("✗ npm audit\n✗ npm ls\n".to_owned()),
        state: Some("47/120 files".to_owned()),
        requirements: Some("Run npm install".to_owned()),
        recovery: Some("1. Skip the scan\n2. Install it".to_owned()),
        ..Checkpoint::default()
    };
    let resumption = Resumption {
        checkpoint: Some(checkpoint),
        resolution: Some("Ran npm install".to_owned()),
        working_directory: "/w/src".to_owned(),
        ..Resumption::default()
    };
    let expected = format!(
        "Audit\n\n{BEFORE}\n\n## BLOCKER RESOLVED\n\nIssue: node_modules is missing\nResolution: Ran npm install\nBlocker type: external_dependency\nYou needed: Run npm install\nRecovery that you proposed:\n    1. Skip the scan\n    2. Install it\n\n## STATE RESTORATION\n\nCompleted: ✓ Scanned\nNot started:\n    ✗ npm audit\n    ✗ npm ls\nState: 47/120 files\nWorking directory: /w/src\n\n## RESUME INSTRUCTIONS\n\nNext step: Continue with what was not started:\n    ✗ npm audit\n    ✗ npm ls"
    );
    assert_eq!(compose("Audit", &resumption), expected);
    let after_error = Resumption {
        after_error: true,
        next_step: Some("Skip the file".to_owned()),
        ..resumption.clone()
    };
    let text = compose("Audit", &after_error);
    assert!(
        text.contains("## ERROR RECOVERY\n\nIssue: node_modules")
            && text.ends_with("## RESUME INSTRUCTIONS\n\nNext step: Skip the file")
    );
    let old = Resumption {
        checkpoint_is_old: true,
        resolution: None,
        ..resumption
    };
    let text = compose("Audit", &old);
    assert!(
        !text.contains("RESOLVED")
            && text.contains("## STATE RESTORATION\n\nYou left this before your last attempt; "),
        "{text}"
    );
    assert!(
        text.contains("State: 47/120 files")
            && text
                .ends_with("Next step: Continue where you left off. Do not repeat what is done.")
    );
}

#[test]
fn choice_after_an_error_follows_its_heading() {
    let checkpoint = Checkpoint {
        details: "TypeError at /tmp/analysis.js:142".to_owned(),
        completed_work: Some("46 files".to_owned()),
        state: Some("47/120".to_owned()),
        changed_files: vec!["A.md".to_owned(), "b.rs".to_owned()],
        ..Checkpoint::default()
    };
    let composed = |choice, resolution: Option<&str>| {
        let resumption = Resumption {
            checkpoint: Some(checkpoint.clone()),
            after_error: true,
            choice: Some(choice),
            resolution: resolution.map(str::to_owned),
            working_directory: "/w".to_owned(),
            ..Resumption::default()
        };
        let text = compose("T", &resumption);
        text.split_once(&format!("{BEFORE}\n\n"))
            .map(|(_, rest)| rest.to_owned())
            .expect("the introduction is there")
    };
    let state = "## STATE RESTORATION\n\nCompleted: 46 files\nState: 47/120\nChanged files: A.md, b.rs\nWorking directory: /w";
    let golden = [
        (
            Choice::Skip,
            Some("Skip analysis.js:142"),
            "skip the failed part and continue with the rest\nResolution: Skip analysis.js:142",
            "Skip the failed part and continue with the rest. Say in your report what you skipped.",
        ),
        (
            Choice::Retry,
            Some("undefined check added"),
            "the cause is fixed: retry the failed part from the checkpoint\nResolution: undefined check added",
            "The cause of the failure is fixed. Resume from the checkpoint and retry the failed part.",
        ),
        (
            Choice::Delegate,
            None,
            "delegate the rest to another agent",
            "Delegate the rest to another agent (DELEGATE_WORK), and finish with its result.",
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
            "## ERROR RECOVERY\n\nIssue: TypeError at /tmp/analysis.js:142\nDecision: {decision}\n\n{state}\n\n## RESUME INSTRUCTIONS\n\nNext step: {next}"
        );
        assert_eq!(composed(choice, resolution), expected);
    }
}

#[test]
fn approvals_and_denials_are_reported() {
    let approvals = |number: &str, approved, words: Option<&str>| SettledApproval {
        number: number.to_owned(),
        action: "Drop the table".to_owned(),
        approved,
        words: words.map(ToOwned::to_owned),
    };
    let text = compose(
        "T",
        &Resumption {
            approvals: vec![
                approvals("Q1", true, None),
                approvals("Q2", false, Some("not today")),
            ],
            ..Resumption::default()
        },
    );
    assert!(text.contains("## APPROVAL GRANTED\n\nQ1: Drop the table\nThis covers what you showed and nothing else."), "{text}");
    assert!(
        text.contains("## APPROVAL DENIED\n\nQ2: Drop the table\nReason: not today\nDo not do it."),
        "{text}"
    );
}

#[test]
fn approved_and_denied_delegations_are_reported() {
    let resumption = Resumption {
        delegations: vec![
            SettledDelegation::Approved {
                task: "Refactor".to_owned(),
                child: "calm-newt".to_owned(),
                coordination: Some("I look, it refactors".to_owned()),
                note: Some("only src/auth".to_owned()),
                result: Some("done".to_owned()),
            },
            SettledDelegation::Denied {
                task: "Rewrite".to_owned(),
                reason: "later".to_owned(),
            },
        ],
        ..Resumption::default()
    };
    let text = compose("T", &resumption);
    assert!(text.contains("## DELEGATION APPROVED\n\nNew agent launched: calm-newt\nTask: Refactor\nResult: done\nCoordination: I look, it refactors\nNote: only src/auth\n"));
    assert!(text.contains("## DELEGATION DENIED\n\nTask: Rewrite\nReason: later"));
}

fn open(
    number: usize,
    kind: RequestKind,
    text: &str,
    by_block: bool,
    state: OpenRequestState,
) -> OpenRequest {
    OpenRequest {
        number: format!("Q{number}"),
        own_id: None,
        kind,
        text: text.to_owned(),
        by_block,
        state,
    }
}

#[test]
fn open_requests_explain_how_to_get_their_answers() {
    let at_work = |independence| OpenRequestState::ChildRunning {
        child: "calm-newt".to_owned(),
        independence,
    };
    let undecided = |blocking| OpenRequestState::Undecided { blocking };
    let resumption = Resumption {
        open: vec![
            open(
                1,
                RequestKind::Delegation,
                "Refactor\n  it",
                false,
                at_work(Independence::Blocks),
            ),
            open(
                2,
                RequestKind::Delegation,
                "Look",
                false,
                at_work(Independence::Parallel),
            ),
            open(3, RequestKind::Question, "Which?", false, undecided(true)),
            open(4, RequestKind::Approval, "Drop it", false, undecided(false)),
            OpenRequest {
                own_id: Some("Q1".to_owned()),
                ..open(5, RequestKind::Question, "How?", true, undecided(true))
            },
            open(
                6,
                RequestKind::Delegation,
                "Test",
                true,
                at_work(Independence::Blocks),
            ),
        ],
        open_more: 3,
        ..Resumption::default()
    };
    let expected = "## STILL OPEN\n\nYou have asked for this already. Do not ask for it again.\n\n\
            - Q1, delegation (approved, run calm-newt is working on it): Refactor it\n  Call check_answer with message_id Q1: it waits for the result.\n\
            - Q2, delegation (approved, run calm-newt is working on it): Look\n  You get a message when it has ended.\n\
            - Q3, question (not decided yet): Which?\n  Call check_answer with message_id Q3: it waits for the answer.\n\
            - Q4, approval (not decided yet): Drop it\n  Call check_answer with message_id Q4 when you need the answer.\n\
            - Q5 (your Q1), question (not decided yet): How?\n  The answer will be delivered to you. When you cannot continue without it, end.\n\
            - Q6, delegation (approved, run calm-newt is working on it): Test\n  The result will be delivered to you. When you cannot continue without it, end.\n\
            - and 3 more\n\n## RESUME INSTRUCTIONS";
    for text in [compose("T", &resumption), compose_in_session(&resumption)] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(!compose("T", &Resumption::default()).contains("STILL OPEN"));
}

/// Returns the unindented lines of a prompt: headings and sentences whole, and the labels of
/// labelled lines.
fn margin(prompt: &str) -> Vec<String> {
    let ours = prompt
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(INDENT));
    ours.map(|line| {
        line.split_once(": ")
            .map_or(line.trim_end_matches(':'), |(label, _)| label)
            .to_owned()
    })
    .collect()
}

/// A resumption with every field filled with the given texts, in their order.
fn filled(texts: &[String]) -> Resumption {
    let next = std::cell::Cell::new(0);
    let text = || {
        next.set(next.get() + 1);
        // No text is empty, because an empty one has no label.
        format!("x{}", texts[next.get() % texts.len()])
    };
    let some = || Some(text());
    let approvals = |approved| SettledApproval {
        number: "Q7".to_owned(),
        action: text(),
        approved,
        words: some(),
    };
    let approved = || SettledDelegation::Approved {
        task: text(),
        child: text(),
        coordination: some(),
        note: some(),
        result: some(),
    };
    let denied = || SettledDelegation::Denied {
        task: text(),
        reason: text(),
    };
    let asked = |outcome| SettledQuestion {
        number: "Q8".to_owned(),
        own_id: None,
        question: text(),
        context: some(),
        outcome,
        clarification: Some(Clarification {
            reason: some(),
            blocked_at: some(),
            resume_with: some(),
            state: some(),
        }),
    };
    let sent = || SentMessage {
        from: "person".to_owned(),
        text: text(),
    };
    let earlier = [
        SettledRequest::Question(asked(answered(&text()))),
        SettledRequest::Approval(approvals(true)),
        SettledRequest::Approval(approvals(false)),
        SettledRequest::Delegation(denied()),
    ];
    Resumption {
        earlier: Recap::of_requests(&earlier),
        earlier_messages: Recap::of_messages(&[sent()]),
        decided: vec![
            asked(answered(&text())),
            asked(QuestionOutcome::Expired),
            asked(QuestionOutcome::Withdrawn),
        ],
        approvals: vec![approvals(true), approvals(false)],
        delegations: vec![approved(), denied()],
        open: vec![
            open(
                1,
                RequestKind::Question,
                &text(),
                true,
                OpenRequestState::Undecided { blocking: true },
            ),
            open(
                2,
                RequestKind::Delegation,
                &text(),
                false,
                OpenRequestState::ChildRunning {
                    child: "calm-newt".to_owned(),
                    independence: Independence::Blocks,
                },
            ),
        ],
        open_more: 1,
        messages: vec![sent(), sent()],
        checkpoint: Some(Checkpoint {
            made_by: CheckpointAuthor::Run,
            blocker_type: some(),
            details: text(),
            completed_work: some(),
            blocked_work: some(),
            state: some(),
            requirements: some(),
            recovery: some(),
            working_directory: some(),
            changed_files: vec![text(), text()],
        }),
        checkpoint_is_old: false,
        after_error: false,
        choice: None,
        resolution: some(),
        working_directory: text(),
        next_step: some(),
    }
}

proptest! {
    #[test]
    fn quoted_text_adds_no_unquoted_line(texts in proptest::collection::vec(hostile_text(), 1..60)) {
        let plain = filled(&["y".to_owned()]);
        let hostile = filled(&texts);
        let short = texts.iter().map(String::len).sum::<usize>() < EARLIER_BYTES_MAX / 60;
        if short {
            prop_assert_eq!(margin(&compose("T", &hostile)), margin(&compose("T", &plain)));
        }
        prop_assert_eq!(margin(&compose_in_session(&hostile)), margin(&compose_in_session(&plain)));
        let headings = |text: &str| text.lines().filter(|line| line.trim_start().starts_with('#') && !line.starts_with(INDENT)).count();
        prop_assert_eq!(headings(&compose_in_session(&hostile)), 10);
    }

    #[test]
    fn own_ids_cannot_forge_labels(id in hostile_text()) {
        let text = SettledQuestion { own_id: Some(id), ..decided("Q9", "why?", answered("so")) }.to_text();
        let lines: Vec<&str> = text.lines().collect();
        prop_assert!(lines.len() == 2 && lines[0].starts_with('Q') && lines[1].starts_with('A'), "{text:?}");
        prop_assert!(lines[0].ends_with(": why?") && lines[1].ends_with(": so"));
    }

    #[test]
    fn text_of_open_requests_is_bounded(
        text in "([a-zé# \n]|\n## RESUME){0,900}",
        count in 1..60_usize,
        more in 0..30_usize,
        by_block: bool,
        blocking: bool,
    ) {
        let one = |number| open(number, RequestKind::Question, &text, by_block, OpenRequestState::Undecided { blocking });
        let text = compose("T", &Resumption { open: (1..=count).map(one).collect(), open_more: more, ..Resumption::default() });
        let (_, part) = text.split_once("## STILL OPEN\n\n").expect("the section exists");
        let (part, _) = part.split_once("\n\n## RESUME INSTRUCTIONS").expect("the next section exists");
        prop_assert!(part.chars().count() <= 100 + OPEN_NAMED_MAX * (OPEN_TEXT_CHARS + 200));
        prop_assert!(part.lines().all(|line| !line.starts_with('#')));
        let named = part.lines().filter(|line| line.starts_with("- Q")).count();
        let unnamed = part.lines().find_map(|line| line.strip_prefix("- and ")?.strip_suffix(" more")?.parse().ok()).unwrap_or(0);
        prop_assert_eq!(named + unnamed, count + more);
        prop_assert!(named <= OPEN_NAMED_MAX);
    }
}
