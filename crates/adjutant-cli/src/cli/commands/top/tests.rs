//! The board, its keys and its screen.

use super::actions::{Action, Command};
use super::board::{ItemId, Section};
use super::draw::{KEYS, draw};
use super::guard::KeyGuard;
use super::log::LogPane;
use super::look::Look;
use super::model::{HubState, Page, Tone, Top};
use crate::cli::exit::Exit;
use crate::view::{
    AnswerOne, AttentionKind, AttentionList, AttentionView, ChangesView, DecisionWord,
    DelegatedView, DelegationView, LogPage, RequestContentView, RequestTimesView, RequestView,
    RunActivityView, RunChangesView, RunConditionView, RunIdentityView, RunList, RunPlaceView,
    RunTimesView, RunView, WorkspaceView,
};
use adjutant_core::signal::Priority;
use adjutant_core::{OutcomeKind, RequestKind, RunStateKind, WorkspaceState};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::time::Duration;
use tokio::time::Instant;

fn run(name: &str, state: RunStateKind) -> RunView {
    let outcome = (state == RunStateKind::Finished).then(|| OutcomeKind::Succeeded.into());
    RunView {
        identity: RunIdentityView {
            run_id: format!("id-{name}"),
            name: name.to_owned(),
            agent: "echo".to_owned(),
            task: format!("task of {name}"),
            ..RunIdentityView::default()
        },
        condition: RunConditionView {
            state: state.into(),
            outcome,
            ..RunConditionView::default()
        },
        times: RunTimesView {
            created_at: "2026-01-02T09:50:00Z".to_owned(),
            updated_at: "2026-01-02T09:55:00Z".to_owned(),
            ..RunTimesView::default()
        },
        ..RunView::default()
    }
}

fn request(number: &str, of: &str, kind: RequestKind) -> RequestView {
    RequestView {
        content: RequestContentView {
            question: format!("what about {of}?"),
            options: if kind == RequestKind::Question {
                vec!["red".to_owned(), "green".to_owned()]
            } else {
                Vec::new()
            },
            content_hash: format!("hash-{number}"),
            ..RequestContentView::default()
        },
        times: RequestTimesView {
            asked_at: "2026-01-02T09:57:00Z".to_owned(),
            ..RequestTimesView::default()
        },
        message_id: format!("m-{number}"),
        number: number.to_owned(),
        run_id: format!("id-{of}"),
        run_name: of.to_owned(),
        kind: kind.into(),
        blocking: true,
        ..RequestView::default()
    }
}

fn look(has_color: bool) -> Look {
    Look {
        has_color,
        now: "2026-01-02T10:00:00Z".parse::<Timestamp>().expect("a time"),
    }
}

/// Returns a board with a question, an approval, a failed run, a working one and a finished one.
fn sample() -> Top {
    let mut top = Top::default();
    let failed = RunView {
        condition: RunConditionView {
            outcome: Some(OutcomeKind::Failed.into()),
            attention: Some(AttentionView {
                kind: AttentionKind::Ended.into(),
                details: "exit code 3".to_owned(),
                is_new: true,
                ..AttentionView::default()
            }),
            ..run("fox", RunStateKind::Finished).condition
        },
        ..run("fox", RunStateKind::Finished)
    };
    let runs = vec![
        run("ann", RunStateKind::Running),
        run("bob", RunStateKind::Running),
        run("cat", RunStateKind::Running),
        run("dan", RunStateKind::Finished),
        failed.clone(),
    ];
    let requests = vec![
        request("Q1", "ann", RequestKind::Question),
        request("Q2", "bob", RequestKind::Approval),
    ];
    let attention = AttentionList {
        requests,
        runs: vec![failed],
        ..AttentionList::default()
    };
    top.board.replace(
        RunList {
            runs,
            ..RunList::default()
        },
        attention,
    );
    top.settle_selection();
    top
}

fn press(top: &mut Top, keys: &str) -> Option<Command> {
    let mut last = None;
    for c in keys.chars() {
        let code = match c {
            '\r' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            '\t' => KeyCode::Tab,
            c => KeyCode::Char(c),
        };
        last = top.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    last
}

/// Lets the time pass after which keys act again.
fn pause(top: &mut Top) {
    top.guard = KeyGuard::default();
}

fn answer(command: Option<Command>) -> AnswerOne {
    match command {
        Some(Command::Answer { answer, .. }) => *answer,
        other => panic!("not an answer: {other:?}"),
    }
}

fn screen(top: &mut Top, columns: u16, rows: u16, has_color: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    terminal
        .draw(|frame| draw(frame, top, look(has_color)))
        .expect("drawn");
    terminal
}

fn shown(top: &mut Top, columns: u16, rows: u16) -> Vec<String> {
    let terminal = screen(top, columns, rows, true);
    let buffer = terminal.backend().buffer();
    let row = |y: u16| {
        (0..columns)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
            .trim_end()
            .to_owned()
    };
    (0..rows).map(row).collect()
}

#[test]
fn board_has_the_sections_of_the_dashboard() {
    let top = sample();
    let names: Vec<(Section, String)> = top
        .board
        .items()
        .iter()
        .map(|(section, id)| (*section, top.board.item(id).expect("an item").title()))
        .collect();
    let name = |section, title: &str| (section, title.to_owned());
    // A run whose question blocks it is not listed as working, a failed one that was not seen is
    // not listed as done.
    let expected = [
        name(Section::Needs, "Q1 of ann"),
        name(Section::Needs, "Q2 of bob"),
        name(Section::Needs, "fox"),
        name(Section::Working, "cat"),
        name(Section::Done, "dan"),
    ];
    assert_eq!(names, expected);
}

#[test]
fn question_is_answered_with_text_or_an_option() {
    let mut top = sample();
    let sent = answer(press(&mut top, "2\r"));
    assert_eq!(
        (
            sent.answer.as_str(),
            sent.message_id.as_deref(),
            sent.content_hash.as_deref()
        ),
        ("green", Some("m-Q1"), Some("hash-Q1"))
    );
    let sent = answer(press(&mut top, "rbluu\u{8}e q\r"));
    assert_eq!(sent.answer, "blue q", "letters are text in a field");
    assert!(
        press(&mut top, "r\r").is_none() && press(&mut top, "9").is_none() && top.dialog.is_none()
    );
    assert!(
        press(&mut top, "a").is_none() && top.dialog.is_none(),
        "a question cannot be approved"
    );
}

#[test]
fn approval_is_one_key_and_a_denial_needs_a_reason() {
    let mut top = sample();
    let sent = answer(press(&mut top, "ja"));
    assert_eq!(
        (sent.decision, sent.content_hash.as_deref()),
        (Some(DecisionWord::Approve), Some("hash-Q2"))
    );
    assert!(
        press(&mut top, "d\r").is_none()
            && top
                .notice
                .as_ref()
                .is_some_and(|(_, notice)| notice.contains("needs a reason"))
    );
    let sent = answer(press(&mut top, "dtoo late\r"));
    assert_eq!(
        (sent.decision, sent.reason.as_deref()),
        (Some(DecisionWord::Deny), Some("too late"))
    );
}

#[test]
fn approval_with_options_is_chosen_by_number() {
    let mut top = Top::default();
    let asks = RequestView {
        content: RequestContentView {
            options: vec!["once".to_owned(), "always".to_owned()],
            ..request("Q1", "ann", RequestKind::Approval).content
        },
        ..request("Q1", "ann", RequestKind::Approval)
    };
    top.board.update(
        Vec::new(),
        &[],
        AttentionList {
            requests: vec![asks],
            ..AttentionList::default()
        },
    );
    top.settle_selection();
    assert!(
        press(&mut top, "2").is_none()
            && shown(&mut top, 80, 24).iter().any(|row| row == "> always")
    );
    let sent = answer(press(&mut top, "\r"));
    assert_eq!(
        (sent.decision, sent.reason.as_deref()),
        (Some(DecisionWord::Approve), Some("always"))
    );
}

#[test]
fn key_meant_for_a_closed_request_does_not_approve_the_next_one() {
    let mut top = Top::default();
    let asks = |number| request(number, "ann", RequestKind::Approval);
    top.board.update(
        Vec::new(),
        &[],
        AttentionList {
            requests: vec![asks("Q1"), asks("Q2")],
            ..AttentionList::default()
        },
    );
    top.settle_selection();
    top.board.update(
        Vec::new(),
        &[],
        AttentionList {
            requests: vec![asks("Q2")],
            ..AttentionList::default()
        },
    );
    top.settle_selection();
    assert!(press(&mut top, "a").is_none());
    assert!(
        shown(&mut top, 80, 24)
            .iter()
            .any(|row| row.contains("press a again"))
    );
    let is_about = |command, number: &str| matches!(command, Some(Command::Answer { about, .. }) if about.number == number);
    // A person who selects it has seen it.
    assert!(is_about(press(&mut top, "ka"), "Q2"));
    pause(&mut top);
    assert!(is_about(press(&mut top, "a"), "Q2"));
}

/// Returns a board with a delegation, whose form is open.
fn changing() -> Top {
    let mut top = Top::default();
    let delegation = DelegationView {
        agent: Some("reviewer".to_owned()),
        priority: Priority::P1.into(),
        ..DelegationView::default()
    };
    let asks = RequestView {
        delegated: DelegatedView {
            delegation: Some(delegation),
            ..request("Q1", "ann", RequestKind::Delegation).delegated
        },
        ..request("Q1", "ann", RequestKind::Delegation)
    };
    top.board.update(
        Vec::new(),
        &[],
        AttentionList {
            requests: vec![asks],
            ..AttentionList::default()
        },
    );
    top.settle_selection();
    press(&mut top, "e");
    top
}

#[test]
fn delegation_is_changed_field_by_field() {
    let mut top = changing();
    let rows = shown(&mut top, 80, 24);
    for row in [
        "> task      what about ann?",
        "  agent     reviewer",
        "  directory (the same directory)",
        "  priority  P1",
    ] {
        assert!(rows.iter().any(|shown| shown == row), "{row} in {rows:#?}");
    }
    let sent = answer(press(&mut top, "\r"));
    assert_eq!(
        (sent.decision, sent.changes),
        (Some(DecisionWord::Approve), None),
        "nothing was changed"
    );

    press(&mut top, "e");
    assert!(press(&mut top, "\u{8}!\t\u{8}\u{8}\u{8}\t/tmp\t\u{8}3\r").is_none());
    assert!(
        matches!(&top.notice, Some((Tone::Bad, notice)) if notice.contains("P0, P1 or P2")),
        "{:?}",
        top.notice
    );
    let sent = answer(press(&mut top, "\u{8}0\r"));
    let changes = ChangesView {
        prompt: Some("what about ann!".to_owned()),
        agent: Some("revie".to_owned()),
        cwd: Some("/tmp".to_owned()),
        priority: Some(Priority::P0.into()),
    };
    assert_eq!(
        (sent.decision, sent.changes, sent.content_hash.as_deref()),
        (Some(DecisionWord::Approve), Some(changes), Some("hash-Q1"))
    );
}

#[test]
fn change_to_an_empty_task_is_refused() {
    let mut top = changing();
    top.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert!(press(&mut top, "\r").is_none() && top.dialog.is_some());
    assert!(press(&mut top, "\u{1b}").is_none() && top.dialog.is_none());
}

#[test]
fn runs_are_cancelled_and_paused_with_one_key() {
    let mut top = sample();
    assert!(
        matches!(press(&mut top, "jjjx"), Some(Command::Act { action: Action::Cancel, name, .. }) if name == "cat")
    );
    assert!(matches!(
        press(&mut top, "p"),
        Some(Command::Act {
            action: Action::Pause,
            ..
        })
    ));
    assert!(matches!(press(&mut top, "ky"), Some(Command::Seen { name, .. }) if name == "fox"));
    assert!(matches!(
        press(&mut top, "p"),
        Some(Command::Act {
            action: Action::Retry,
            ..
        })
    ));
    press(&mut top, "jj");
    assert!(
        press(&mut top, "x").is_none() && top.dialog.is_none(),
        "a finished run cannot be cancelled"
    );
    assert!(
        matches!(press(&mut top, "l"), Some(Command::OpenLog { run_id }) if run_id == "id-dan")
    );
    assert!(matches!(press(&mut top, "q"), Some(Command::CloseLog)));
    assert!(matches!(
        press(&mut top, "q"),
        Some(Command::Quit(Exit::Done))
    ));
}

#[test]
fn newest_action_is_undone_until_it_is_due() {
    let mut top = sample();
    let began = Instant::now();
    let later = |top: &mut Top, keys: &str, at| {
        let command = press(top, keys).expect("a command");
        top.send_later(command, began + Duration::from_secs(at))
    };
    assert!(
        matches!(later(&mut top, "2\r", 0), Some(Command::Answer { .. })),
        "an answer is sent at once"
    );
    assert!(later(&mut top, "ja", 1).is_none() && later(&mut top, "jjx", 2).is_none());
    assert!(matches!(
        later(&mut top, "kkl", 2),
        Some(Command::OpenLog { .. })
    ));
    press(&mut top, "qz");
    assert!(
        top.notice
            .as_ref()
            .is_some_and(|(_, notice)| notice == "undone: Cancel cat"),
        "{:?}",
        top.notice
    );
    assert!(!top.is_busy("id-cat") && top.is_busy("m-Q2"));
    press(&mut top, "a");
    assert!(
        top.notice
            .as_ref()
            .is_some_and(|(_, notice)| notice.contains("press z to undo")),
        "{:?}",
        top.notice
    );
    assert!(
        shown(&mut top, 80, 24)
            .iter()
            .any(|row| row
                == "press z within 5 seconds to undo: Approve Q2 of bob (what about bob?)")
    );
    assert!(
        top.take_due(Some(began + Duration::from_millis(5_999)))
            .is_empty()
    );
    assert!(matches!(
        top.take_due(Some(began + Duration::from_secs(6)))
            .as_slice(),
        [Command::Answer { .. }]
    ));
    press(&mut top, "z");
    assert!(
        top.notice
            .as_ref()
            .is_some_and(|(_, notice)| notice == "nothing to undo")
    );
}

#[test]
fn selection_stays_on_its_item() {
    let mut top = sample();
    press(&mut top, "j");
    let attention = AttentionList {
        requests: vec![request("Q2", "bob", RequestKind::Approval)],
        ..AttentionList::default()
    };
    top.board
        .update(Vec::new(), &["id-fox".to_owned()], attention);
    top.settle_selection();
    assert_eq!(
        top.selected().map(|(at, item)| (at, item.id())),
        Some((0, ItemId::Request("m-Q2".to_owned())))
    );
}

#[test]
fn dialog_about_a_closed_request_keeps_its_text_and_sends_nothing() {
    for (mut top, keys, kept) in [
        (sample(), "rblue", "blue"),
        (sample(), "2", "green"),
        (sample(), "jdno", "no"),
        (changing(), "new", "new"),
    ] {
        press(&mut top, keys);
        top.board.update(Vec::new(), &[], AttentionList::default());
        top.settle_selection();
        for typed in ["", "y\r", " approve it, xp\r\r"] {
            assert!(press(&mut top, typed).is_none(), "{keys}{typed}");
            let rows = shown(&mut top, 80, 24);
            assert!(
                rows.iter()
                    .any(|row| row.contains("was closed meanwhile; nothing is sent")),
                "{keys}{typed}: {rows:#?}"
            );
            assert!(
                rows.iter()
                    .any(|row| row.starts_with("> ") && row.contains(kept)),
                "{keys}{typed}: {rows:#?}"
            );
        }
        assert!(
            press(&mut top, "\u{1b}").is_none() && top.dialog.is_none(),
            "{keys}"
        );
    }
}

#[test]
fn answer_that_was_refused_keeps_its_text() {
    let mut top = sample();
    let Some(Command::Answer { answer, about }) = press(&mut top, "rblue\r") else {
        panic!("an answer")
    };
    top.keep_text(about, &answer);
    assert!(shown(&mut top, 80, 24).iter().any(|row| row == "> blue"));
    // A text that is being typed stays.
    let Some(Command::Answer { answer, about }) = press(&mut top, "\r") else {
        panic!("an answer")
    };
    press(&mut top, "rother");
    top.keep_text(about, &answer);
    assert!(shown(&mut top, 80, 24).iter().any(|row| row == "> other"));
}

#[test]
fn run_whose_files_are_not_kept_says_so() {
    let mut top = Top::default();
    let run = RunView {
        changes: RunChangesView {
            snapshot_problem: Some("git took too long".to_owned()),
            ..run("ann", RunStateKind::Running).changes
        },
        ..run("ann", RunStateKind::Running)
    };
    top.board.replace(
        RunList {
            runs: vec![run],
            ..RunList::default()
        },
        AttentionList::default(),
    );
    top.settle_selection();
    let rows = shown(&mut top, 160, 24).join("\n");
    assert!(
        rows.contains("not all files are kept, so adj undo cannot restore them: git took too long"),
        "{rows}"
    );
}

#[test]
fn words_act_on_no_item() {
    // The successor of a closed item is selected, and the words go on.
    for words in [
        "a table", "drop it", "merge", "yes", "1", "p", "x", "retry", "edit",
    ] {
        let mut top = sample();
        let attention = AttentionList {
            requests: vec![request("Q2", "bob", RequestKind::Approval)],
            ..AttentionList::default()
        };
        top.board.update(Vec::new(), &[], attention);
        top.settle_selection();
        for c in words.chars().filter(|c| *c != 'l') {
            assert!(
                press(&mut top, &c.to_string()).is_none() && top.dialog.is_none(),
                "{c} of {words}"
            );
        }
    }
    // A letter that is no key belongs to a text.
    let mut top = sample();
    press(&mut top, "j");
    assert!(
        press(&mut top, "ta").is_none() && press(&mut top, "u d").is_none() && top.dialog.is_none()
    );
    pause(&mut top);
    assert!(press(&mut top, "a").is_some());
}

#[test]
fn held_key_acts_once_and_confirms_no_question() {
    let mut top = sample();
    press(&mut top, "jjj");
    assert!(press(&mut top, "p").is_some() && press(&mut top, "ppp").is_none());
    let mut top = mergeable();
    for keys in ["mmmm", "\r\r", "sd", "rtb"] {
        assert!(
            press(&mut top, keys).is_none() && top.dialog.is_some(),
            "{keys}"
        );
    }
    assert!(
        !shown(&mut top, 80, 24)
            .last()
            .is_some_and(|row| row.contains("m merge")),
        "the keys are listed when they act"
    );
    pause(&mut top);
    assert!(
        shown(&mut top, 80, 24)
            .last()
            .is_some_and(|row| row.contains("m merge"))
    );
    for modifiers in [
        KeyModifiers::ALT,
        KeyModifiers::CONTROL,
        KeyModifiers::SUPER,
    ] {
        assert!(
            top.press(KeyEvent::new(KeyCode::Enter, modifiers))
                .is_none()
                && top.dialog.is_some()
        );
        assert!(
            top.press(KeyEvent::new(KeyCode::Char('m'), modifiers))
                .is_none()
                && top.dialog.is_some()
        );
    }
    pause(&mut top);
    assert!(matches!(press(&mut top, "\r"), Some(Command::Merge { name, .. }) if name == "ann"));
    // Leaving needs no pause.
    press(&mut top, "m");
    assert!(press(&mut top, "n").is_none() && top.dialog.is_none());
}

/// Returns a board with a run whose changes can be merged.
fn mergeable() -> Top {
    let mut top = Top::default();
    let workspace = WorkspaceView {
        repository: "/repo".to_owned(),
        state: WorkspaceState::Ready.into(),
        ..WorkspaceView::default()
    };
    let ended = RunView {
        place: RunPlaceView {
            workspace: Some(workspace),
            ..run("ann", RunStateKind::Finished).place
        },
        ..run("ann", RunStateKind::Finished)
    };
    top.board.replace(
        RunList {
            runs: vec![ended],
            ..RunList::default()
        },
        AttentionList::default(),
    );
    top.settle_selection();
    top
}

#[test]
fn high_risk_is_approved_with_shift() {
    for (risk, plain) in [
        (None, true),
        (Some("low"), true),
        (Some("medium: tests only"), true),
        (Some("high"), false),
        (Some("drops the table"), false),
    ] {
        let mut top = Top::default();
        let asks = RequestView {
            content: RequestContentView {
                risk: risk.map(str::to_owned),
                options: vec!["once".to_owned()],
                ..request("Q1", "ann", RequestKind::Approval).content
            },
            ..request("Q1", "ann", RequestKind::Approval)
        };
        top.board.update(
            Vec::new(),
            &[],
            AttentionList {
                requests: vec![asks],
                ..AttentionList::default()
            },
        );
        top.settle_selection();
        assert_eq!(press(&mut top, "a").is_some(), plain, "{risk:?}");
        press(&mut top, "1");
        assert_eq!(top.dialog.is_some(), plain, "{risk:?}");
        press(&mut top, "\u{1b}");
        assert_eq!(
            answer(press(&mut top, "A")).decision,
            Some(DecisionWord::Approve),
            "{risk:?}"
        );
    }
}

#[test]
fn dashboard_knows_the_same_low_risks() {
    let dashboard = include_str!("../../../../../adjutant-hub/src/hub/http/dashboard/js/guard.js");
    let words = dashboard
        .split("const LOW_RISKS = /^\\s*(?:")
        .nth(1)
        .and_then(|rest| rest.split(')').next())
        .expect("the words");
    let (mut theirs, mut ours): (Vec<&str>, Vec<&str>) = (
        words.split('|').collect(),
        adjutant_core::request::LOW_RISKS.to_vec(),
    );
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(theirs, ours);
}

#[test]
fn pasted_text_never_acts_as_keys() {
    let mut top = sample();
    top.paste("ay\r");
    assert!(top.dialog.is_none());
    press(&mut top, "r");
    top.paste("two\r\nlines");
    assert_eq!(answer(press(&mut top, "\r")).answer, "two\nlines");
}

#[test]
fn each_need_is_new_once_also_behind_a_filter() {
    let attention = |numbers: &[&str]| AttentionList {
        requests: numbers
            .iter()
            .map(|number| request(number, "ann", RequestKind::Question))
            .collect(),
        ..AttentionList::default()
    };
    let mut top = Top::default();
    top.board.update(Vec::new(), &[], attention(&["Q1"]));
    assert_eq!(
        (top.take_new_needs(), top.title().as_str()),
        (None, "adj top: 1 needs you")
    );
    top.board.set_filter("nothing like this");
    top.board.update(Vec::new(), &[], attention(&["Q1", "Q2"]));
    assert_eq!(
        (top.take_new_needs().as_deref(), top.title().as_str()),
        (Some("ann asks (Q2)"), "adj top: 2 need you")
    );
    assert_eq!(top.take_new_needs(), None);
    top.board.update(Vec::new(), &[], attention(&["Q3", "Q4"]));
    assert_eq!(
        top.take_new_needs().as_deref(),
        Some("2 new items need you")
    );
}

#[test]
fn filter_hides_other_items() {
    let mut top = sample();
    press(&mut top, "/CAT\r");
    assert_eq!(top.board.items().len(), 1);
    assert!(shown(&mut top, 80, 20)[0].contains("filter: cat"));
    press(&mut top, "\u{1b}");
    assert_eq!(top.board.items().len(), 5);
}

#[test]
fn screen_shows_what_needs_the_person_first() {
    for (columns, head) in [
        (120, "3 need you · 1 working · 1 done"),
        (80, "3 need you · 1 working · 1 done"),
        (40, "?3 ●1 ✓1"),
    ] {
        let rows = shown(&mut sample(), columns, 24);
        assert!(rows[0].contains(head), "{rows:#?}");
        assert_eq!(
            (rows[1].as_str(), &rows[2][.."▸ ann".len()]),
            ("NEEDS YOU 3", "▸ ann"),
            "{rows:#?}"
        );
        for text in [
            "? asks Q1",
            "? approve Q2",
            "WORKING 1",
            "● working",
            "DONE 1",
            "✓ done",
            "1) red",
            "2) green",
            "1-9 choose",
        ] {
            assert!(
                rows.iter().any(|row| row.contains(text)),
                "{columns}: {text} in {rows:#?}"
            );
        }
    }
}

#[test]
fn every_size_can_be_drawn() {
    let states: [fn(&mut Top); 7] = [
        |_| {},
        |top| drop(press(top, "r")),
        |top| drop(press(top, "ja").and_then(|command| top.send_later(command, Instant::now()))),
        |top| *top = changing(),
        |top| drop(press(top, "\r")),
        |top| drop(press(top, "l")),
        |top| drop(press(top, "?")),
    ];
    for state in states {
        for columns in (0..130).step_by(7) {
            for rows in 0..30 {
                let mut top = sample();
                state(&mut top);
                top.notify(
                    Tone::Bad,
                    "a notice that is longer than a narrow screen is wide",
                );
                top.connection = HubState::Lost(None);
                screen(&mut top, columns, rows, true);
            }
        }
    }
    let mut none = Top::default();
    none.settle_selection();
    assert!(
        shown(&mut none, 80, 24)
            .iter()
            .any(|row| row.contains("nothing needs you"))
    );
    assert!(matches!(
        press(&mut none, "jkrapxl.\rq"),
        Some(Command::Quit(Exit::Done))
    ));
}

#[test]
fn text_of_agents_stays_in_its_place() {
    let hostile =
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mred\r\nNEEDS YOU 9\n▸ forged\u{202e}\u{200b}";
    let mut top = Top::default();
    let named = RunView {
        identity: RunIdentityView {
            run_id: "id-evil".to_owned(),
            task: hostile.to_owned(),
            ..run(hostile, RunStateKind::Running).identity
        },
        activity: RunActivityView {
            progress: Some(hostile.to_owned()),
            ..run(hostile, RunStateKind::Running).activity
        },
        ..run(hostile, RunStateKind::Running)
    };
    let asks = RequestView {
        content: RequestContentView {
            question: hostile.to_owned(),
            context: Some(hostile.to_owned()),
            preview: Some(hostile.to_owned()),
            options: vec![hostile.to_owned()],
            ..request("Q1", "evil", RequestKind::Approval).content
        },
        ..request("Q1", "evil", RequestKind::Approval)
    };
    top.board.replace(
        RunList {
            runs: vec![named],
            ..RunList::default()
        },
        AttentionList {
            requests: vec![RequestView {
                blocking: false,
                ..asks
            }],
            ..AttentionList::default()
        },
    );
    top.settle_selection();
    for keys in ["", "a", "\u{1b}\r", "\u{1b}l"] {
        if let Some(command) = press(&mut top, keys) {
            top.send_later(command, Instant::now());
        }
        if let Page::Log(log) = &mut top.page {
            log.extend(&LogPage {
                text: hostile.to_owned(),
                ..LogPage::default()
            });
        }
        for columns in [40, 80, 120] {
            let rows = shown(&mut top, columns, 30);
            assert!(
                rows.iter()
                    .all(|row| !row.contains(|c: char| c.is_control() || c == '\u{202e}')),
                "{keys:?}: {rows:#?}"
            );
            let is_log = matches!(top.page, Page::Log(_));
            assert!(
                is_log
                    || rows
                        .iter()
                        .skip(2)
                        .all(|row| !row.starts_with("NEEDS YOU") && !row.starts_with("▸ forged")),
                "{keys:?}: {rows:#?}"
            );
        }
    }
}

#[test]
fn no_color_is_drawn_without_colors() {
    let mut top = sample();
    top.notify(Tone::Good, "done");
    let terminal = screen(&mut top, 80, 24, false);
    assert!(
        terminal
            .backend()
            .buffer()
            .content()
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
    );
    let colored = screen(&mut top, 80, 24, true);
    assert!(
        colored
            .backend()
            .buffer()
            .content()
            .iter()
            .any(|cell| cell.fg == Color::Yellow)
    );
}

#[test]
fn log_keeps_its_end_and_joins_cut_lines() {
    let mut log = LogPane::new("id", "ann");
    for text in ["one\ntw", "o\nthree\n"] {
        log.extend(&LogPage {
            text: text.to_owned(),
            ..LogPage::default()
        });
    }
    assert_eq!(
        log.rows(80, 2),
        (vec!["two".to_owned(), "three".to_owned()], true)
    );
    log.press(KeyCode::Up);
    assert_eq!(
        log.rows(80, 2),
        (vec!["one".to_owned(), "two".to_owned()], false)
    );
    log.extend(&LogPage {
        text: "x\n".repeat(20_000),
        ..LogPage::default()
    });
    assert!(log.rows(80, usize::MAX / 2).0.len() <= 5_000);
}

#[test]
fn help_lists_the_keys_of_the_dashboard() {
    let dashboard = include_str!("../../../../../adjutant-hub/src/hub/http/dashboard/js/guard.js");
    let table = dashboard
        .split("export const KEYS = [")
        .nth(1)
        .and_then(|rest| rest.split("];").next())
        .expect("the table of keys");
    let field = |row: &str, name: &str| Some(row.split_once(name)?.1.split('"').nth(1)?.to_owned());
    let keys = table
        .lines()
        .filter_map(|row| field(row, "shown:").or_else(|| field(row, "keys:")));
    // The other pages of the dashboard have no counterpart here.
    let others = ["g then b, i, c, t, r, p, a"];
    let ours: String = KEYS.iter().map(|(keys, _)| format!("{keys}, ")).collect();
    let listed: Vec<String> = keys.filter(|key| !others.contains(&key.as_str())).collect();
    assert!(listed.len() > 10, "{listed:?}");
    for key in listed.iter().flat_map(|keys| keys.split(", ")) {
        assert!(ours.contains(&format!("{key}, ")), "{key} in {ours}");
    }
}

/// Draws 1,000 runs and prints how long one frame takes: `cargo test --lib draws_a_thousand_runs --
/// --nocapture`.
#[test]
fn draws_a_thousand_runs() {
    let mut top = Top::default();
    let runs = (0..1_000)
        .map(|n| {
            run(
                &format!("run-{n}"),
                if n % 3 == 0 {
                    RunStateKind::Finished
                } else {
                    RunStateKind::Running
                },
            )
        })
        .collect();
    let requests = (0..100)
        .map(|n| {
            request(
                &format!("Q{n}"),
                &format!("run-{}", n * 3 + 1),
                RequestKind::Question,
            )
        })
        .collect();
    let began = std::time::Instant::now();
    top.board.replace(
        RunList {
            runs,
            ..RunList::default()
        },
        AttentionList {
            requests,
            ..AttentionList::default()
        },
    );
    top.settle_selection();
    let arranged = began.elapsed();
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).expect("a terminal");
    let began = std::time::Instant::now();
    for _ in 0..100 {
        press(&mut top, "j");
        terminal
            .draw(|frame| draw(frame, &mut top, look(true)))
            .expect("drawn");
    }
    println!(
        "1,000 runs at 200x60: arranged in {arranged:?}, drawn in {:?}",
        began.elapsed() / 100
    );
    assert_eq!(top.board.items().len(), 1_000);
}
