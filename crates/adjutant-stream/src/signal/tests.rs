use super::*;
use adjutant_core::report::Claim;
use adjutant_core::signal::{
    Clarification, Delegation, Independence, Priority, ReportStatus, Signal, StopCause,
};
use adjutant_core::{RunId, Time};
use proptest::prelude::*;

fn own() -> RunId {
    RunId::new(Time(1), [1; 10])
}

fn scan(text: &str) -> Vec<FoundSignal> {
    let mut scanner = Scanner::default();
    let mut all = Vec::new();
    scanner.feed(text, &mut |found| all.push(found));
    scanner.end(&mut |found| all.push(found));
    all
}

fn readings(text: &str) -> Vec<Reading> {
    let own = own();
    scan(&text.replace("ME", &own.to_string()))
        .iter()
        .map(|found| {
            interpret(
                found,
                Own {
                    id: own,
                    name: "fond-mouse",
                },
            )
        })
        .collect()
}

/// Reads blocks that are valid as they stand.
fn signals(text: &str) -> Vec<Signal> {
    let exact = |reading| match reading {
        Reading::Exact(signal) => signal,
        other => panic!("{other:?}"),
    };
    readings(text).into_iter().map(exact).collect()
}

#[test]
fn clarification_keeps_every_field() {
    let text = "working...\n```yaml\n[CLARIFICATION_NEEDED]\nagent_id: ME\ntimestamp: 2026-01-11T08:45:00-05:00\nblocked_at: Looking at src/auth/\nreason: Several strategies found, unclear which to look at\nquestions:\n  - question_id: Q1\n    text: OAuth2, JWT, or both?\n    context: FoundSignal src/auth/oauth.ts and src/auth/jwt.ts\n  - question_id: Q2\n    text: Which version, 2.0 or 3.0?\n    type: optional\n    options: [\"2.0\", 3.0]\n    current_assumption: 3.0\ncan_resume_with: Answers\ncurrent_state: Completed the secret scan (found 0)\n[/CLARIFICATION_NEEDED]\n```\n";
    let found = signals(text);
    let [
        Signal::Clarification {
            clarification,
            questions,
        },
    ] = found.as_slice()
    else {
        panic!("{found:?}")
    };
    let Clarification {
        reason,
        blocked_at,
        resume_with,
        state,
    } = clarification;
    assert_eq!(
        reason.as_deref(),
        Some("Several strategies found, unclear which to look at")
    );
    assert_eq!(blocked_at.as_deref(), Some("Looking at src/auth/"));
    assert_eq!(resume_with.as_deref(), Some("Answers"));
    assert_eq!(
        state.as_deref(),
        Some("Completed the secret scan (found 0)")
    );
    assert_eq!(
        questions
            .iter()
            .map(|question| question.id.as_deref())
            .collect::<Vec<_>>(),
        [Some("Q1"), Some("Q2")]
    );
    assert_eq!(questions.len(), 2);
    assert!(questions[0].blocking && !questions[1].blocking);
    assert_eq!(
        questions[1].options,
        ["2.0", "3.0"],
        "a version stays as written"
    );
    assert_eq!(questions[1].assumption.as_deref(), Some("3.0"));
}

#[test]
fn long_line_is_scanned_alike_in_one_or_many_pieces() {
    const ENDS: usize = 1_000;
    let cut = |text: &str, at: usize| {
        let mut scanner = Scanner::default();
        let mut all = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            // Small pieces of a large text take long. What matters is at its end.
            let at = if rest.len() > 4 * ENDS { ENDS } else { at };
            let at = (at..=rest.len())
                .find(|at| rest.is_char_boundary(*at))
                .unwrap_or(rest.len());
            let (piece, after) = rest.split_at(at);
            scanner.feed(piece, &mut |found| all.push(found));
            rest = after;
        }
        scanner.end(&mut |found| all.push(found));
        all
    };
    let json = r#"{"signal_type":"PROGRESS","agent_id":"x","payload":{"note":"NOTE"}}"#
        .replace("NOTE", &"n".repeat(600));
    let big = format!("[STOP_WORK]\n{}", "x: y\n".repeat(20_000));
    for blanks in [0, 1, 245, 246, 247, 255, 256, 257, 300] {
        let blanks = " ".repeat(blanks);
        for text in [
            format!("[PROGRESS]{blanks}\nnote: a\n[/PROGRESS]\n"),
            format!("{blanks}[PROGRESS][PROGRESS]\nnote: a\n[/PROGRESS]\n"),
            format!("[PROGRESS]\nnote: a\n[/PROGRESS]{blanks}\n"),
            format!("{big}[/STOP_WORK]{blanks}x\n[/STOP_WORK]\n"),
            format!("{big}[/STOP_WORK]{blanks}\n[/STOP_WORK]\n"),
            format!("{blanks}{json}\n"),
            format!("[PROGRESS]{blanks}\u{1f44d}\nnote: a\n[/PROGRESS]\n"),
            format!(
                "[PROGRESS]\n{}{blanks}\u{1f44d}\u{1f44d}\n[/PROGRESS]\n",
                "n".repeat(BLOCK_BYTES_MAX - 260)
            ),
        ] {
            let whole = scan(&text);
            for at in [1, 7, 100, 256, 257, 258, 1_000] {
                assert_eq!(
                    cut(&text, at),
                    whole,
                    "{} blanks, pieces of {at}",
                    blanks.len()
                );
            }
        }
    }
}

#[test]
fn block_scalars_lists_lf_and_crlf_are_parsed() {
    let lf = "[STOP_WORK]\nagent_id: ME\nstop_reason: blocker\nblocker_type: external_dependency\ndetails: node_modules is missing\ncompleted_work: |\n  ✓ Scanned\n  ✓ Reviewed (see A.md)\nblocked_work:\n  - npm audit\n  - npm ls\nstate_snapshot: [checkpoint before error]\nresume_requirements: |\n  Run: npm install\n  Then resume with: \"go on\"\n[/STOP_WORK]\n";
    for text in [lf.to_owned(), lf.replace('\n', "\r\n")] {
        let found = signals(&text);
        let [Signal::Stop { cause, checkpoint }] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(*cause, StopCause::Blocker);
        assert_eq!(
            checkpoint.completed_work.as_deref(),
            Some("✓ Scanned\n✓ Reviewed (see A.md)")
        );
        assert_eq!(
            checkpoint.blocked_work.as_deref(),
            Some("- npm audit\n- npm ls")
        );
        assert_eq!(
            checkpoint.requirements.as_deref(),
            Some("Run: npm install\nThen resume with: \"go on\"")
        );
    }
}

#[test]
fn other_kinds_of_signals_are_parsed() {
    let text = "[DELEGATE_WORK]\nagent_id: ME\nnew_task_description: |\n  Refactor:\n  - one\nindependence: blocks_current_work\npriority: P0\n[/DELEGATE_WORK]\n[COMPLETION_REPORT]\nagent_id: ME\nstatus: partial_success\ndeliverables: |\n  Generated files:\n  - A.md (report)\nsummary: done\n[/COMPLETION_REPORT]\n[PROGRESS]\nagent_id: ME\npercent: 40 %\n[/PROGRESS]\n[APPROVAL_NEEDED]\nagent_id: ME\naction: rm -rf target/\nrisk: low\n[/APPROVAL_NEEDED]\n";
    let found = signals(text);
    assert_eq!(found.len(), 4);
    let Signal::Delegation(Delegation {
        task,
        independence,
        priority,
        ..
    }) = &found[0]
    else {
        panic!("{found:?}")
    };
    assert_eq!(
        (task.as_str(), *independence, *priority),
        ("Refactor:\n- one", Independence::Blocks, Priority::P0)
    );
    let Signal::Completion { report, .. } = &found[1] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (report.status, report.deliverables.as_slice()),
        (
            ReportStatus::Partial,
            &["Generated files:".to_owned(), "A.md (report)".to_owned()][..]
        )
    );
    assert!(matches!(
        &found[2],
        Signal::Progress {
            percent: Some(40),
            ..
        }
    ));
    assert!(matches!(&found[3], Signal::Approval { action, .. } if action == "rm -rf target/"));
}

#[test]
fn json_form_may_span_lines() {
    let text = "{\"signal_type\":\"PROGRESS\",\"agent_id\":\"ME\",\"payload\":{\"percent\":10,\"note\":\"a } b\"}}\nnoise {\"signal_type\": 1}\n```json\n{\n  \"signal_type\": \"COMPLETION_REPORT\",\n  \"agent_id\": \"ME\",\n  \"payload\": {\n    \"status\": \"success\",\n    \"summary\": \"x\"\n  }\n}\n```\n{\"other\": 1}\n";
    let found = signals(text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        matches!(&found[0], Signal::Progress { percent: Some(10), note: Some(note), .. } if note == "a } b")
    );
    assert!(matches!(&found[1], Signal::Completion { .. }));
}

#[test]
fn quoted_end_marker_does_not_end_a_block() {
    let text = "[STOP_WORK]\nagent_id: ME\nstop_reason: error\ndetails: |\n  it printed\n  [/STOP_WORK]\n  [COMPLETION_REPORT]\n  and stopped\n[/STOP_WORK]\n";
    let found = signals(text);
    let [Signal::Stop { checkpoint, .. }] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        checkpoint.details,
        "it printed\n[/STOP_WORK]\n[COMPLETION_REPORT]\nand stopped"
    );
}

#[test]
fn malformed_block_has_a_reason_and_hides_nothing() {
    let text = "[STOP_WORK]\nagent_id: <agent-id>\nstop_reason: <why>\n[PROGRESS]\nagent_id: ME\npercent: 5\n[/PROGRESS]\n[PROGRESS]\n: : :\n- [\n[/PROGRESS]\n[PROGRESS]\nagent_id: 0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11\npercent: 5\n[/PROGRESS]\n[STOP_WORK]\nagent_id: ME\nstop_reason: tired\ndetails: x\n[/STOP_WORK]\n";
    let found = readings(text);
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(
        matches!(&found[0], Reading::Ignored(SignalError::Foreign { given, .. }) if given == "<agent-id>"),
        "{found:?}"
    );
    assert!(matches!(found[1], Reading::Exact(_)));
    assert!(
        matches!(found[2], Reading::Ignored(SignalError::Unreadable(_))),
        "{found:?}"
    );
    assert!(matches!(
        found[3],
        Reading::Ignored(SignalError::Foreign { .. })
    ));
    assert!(matches!(
        found[4],
        Reading::Unreadable {
            why: SignalError::Unusable { .. },
            ..
        }
    ));
}

#[test]
fn aliases_deep_nesting_and_long_blocks_are_refused() {
    let bomb = "[PROGRESS]\na: &a [x, x]\nb: [*a, *a]\n[/PROGRESS]\n";
    assert!(matches!(
        readings(bomb).as_slice(),
        [Reading::Ignored(SignalError::Unreadable(_))]
    ));
    let deep = format!(
        "[PROGRESS]\na: {}{}\n[/PROGRESS]\n",
        "[".repeat(1_000),
        "]".repeat(1_000)
    );
    assert!(matches!(
        readings(&deep).as_slice(),
        [Reading::Ignored(SignalError::Unreadable(_))]
    ));
    let long = format!(
        "[PROGRESS]\n{}[/PROGRESS]\n[PROGRESS]\nagent_id: ME\npercent: 1\n[/PROGRESS]\n",
        "x: y\n".repeat(20_000)
    );
    assert!(matches!(
        readings(&long).as_slice(),
        [
            Reading::Ignored(SignalError::TooLarge { .. }),
            Reading::Exact(_)
        ]
    ));
    let own = format!(
        "[STOP_WORK]\nagent_id: ME\n{}[/STOP_WORK]\n",
        "x: y\n".repeat(20_000)
    );
    assert!(matches!(
        readings(&own).as_slice(),
        [Reading::Unreadable {
            why: SignalError::TooLarge { .. },
            is_own: true
        }]
    ));
}

#[test]
fn slips_in_json_are_read_where_their_meaning_is_certain() {
    let json = |summary: &str| {
        format!(
            "{{\"signal_type\": \"completion_report\", \"agent_id\": \"ME\", \"payload\": {{\"status\": \"failed\", \"summary\": \"{summary}\"}}}}"
        )
    };
    for (text, expected) in [
        (json("half \\ud83d end"), "half \u{fffd} end"),
        (json("whole \\ud83d\\ude00 end"), "whole \u{1f600} end"),
        (json("two\nlines"), "two\nlines"),
        (json("C:\\src"), "C:\\src"),
        (json("x").replace("\"}}", "\",}}"), "x"),
        (json("x") + ".", "x"),
    ] {
        let found = readings(&(text.clone() + "\n"));
        let [reading] = found.as_slice() else {
            panic!("{text}: {found:?}")
        };
        let Some(Signal::Completion {
            claim: Claim::Failed,
            report,
        }) = reading.signal()
        else {
            panic!("{text}: {reading:?}")
        };
        assert_eq!(report.summary, expected, "{text}");
    }
    for (text, kind) in [
        (
            json("x").replace("\"status\": \"failed\", ", ""),
            "no status",
        ),
        (json("x").trim_end_matches('}').to_owned(), "no end"),
        (json("x").replace("\"failed\"", "failed"), "a bare word"),
    ] {
        assert!(
            matches!(
                readings(&(text + "\n")).as_slice(),
                [Reading::Unreadable { .. }]
            ),
            "{kind}"
        );
    }
    assert!(matches!(
        readings("{'signal_type': 'STOP_WORK', 'agent_id': 'ME'}\n").as_slice(),
        [Reading::Ignored(SignalError::NoBlock)]
    ));
}

#[test]
fn quotations_and_mentions_have_no_effect() {
    for text in [
        "> [STOP_WORK]\n> agent_id: ME\n> stop_reason: error\n> details: x\n> [/STOP_WORK]\n",
        "I print [STOP_WORK] when I cannot continue\n",
        "[STOP_WORK] agent_id: ME\n",
    ] {
        let found = readings(text);
        assert!(
            !found.is_empty()
                && found
                    .iter()
                    .all(|one| *one == Reading::Ignored(SignalError::NoBlock)),
            "{text}: {found:?}"
        );
    }
    // A heading that looks like a marker.
    assert!(matches!(
        readings("### [PROGRESS]\n\nHalf of it is done.\n").as_slice(),
        [Reading::Ignored(_)]
    ));
}

#[test]
fn many_opening_lines_take_linear_time() {
    let text = "[STOP_WORK]\nagent_id: x\n".repeat(20_000);
    let began = std::time::Instant::now();
    assert_eq!(scan(&text).len(), 20_000);
    assert!(began.elapsed().as_secs() < 5);
}

proptest! {
    #[test]
    fn result_is_independent_of_reads(cuts in proptest::collection::vec(1_usize..40, 1..60), crlf in any::<bool>()) {
        let mut text = "a\n  [PROGRESS]\n  agent_id: ME\n  percent: 7\n  [/PROGRESS]\n{\"signal_type\":\"PROGRESS\",\n\"agent_id\":\"ME\",\"percent\":8}\nü\n[PROGRESS]\nx".to_owned();
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let whole = scan(&text);
        let mut scanner = Scanner::default();
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let at = (*cut..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
            let (piece, after) = rest.split_at(at.min(rest.len()));
            scanner.feed(piece, &mut |found| pieces.push(found));
            rest = after;
        }
        scanner.end(&mut |found| pieces.push(found));
        prop_assert_eq!(pieces, whole);
    }

    #[test]
    fn any_output_is_scanned_without_panic(text in "(\\[/?(PROGRESS|STOP_WORK)\\]|\\{|\\}|\"|\\\\|a: |- |\n|\r\n| |ü|signal_type){0,80}") {
        for found in scan(&text) {
            let read = interpret(&found, Own { id: own(), name: "fond-mouse" });
            prop_assert!(read.signal().is_none());
        }
    }
}
