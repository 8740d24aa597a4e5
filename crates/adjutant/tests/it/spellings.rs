//! The ways in which agents write signals: whatever the spelling, a signal is read if its meaning
//! is certain; otherwise its author is notified. None is lost unseen.

use crate::signals::home_with;
use crate::support::TestHome;
use adjutant_core::signal::{Own, Reading, Signal, SignalError, SignalKind};
use adjutant_core::{RunId, Time};
use adjutant_stream::signal::{FoundSignal, Scanner, interpret, kind_of};
use serde_json::json;

/// Stands for the run's id in a spelling.
const ID: &str = "MY-ID";
const NAME: &str = "fond-mouse";

#[derive(Debug, Clone, PartialEq)]
enum Expected {
    /// The signal is of this kind, and its main text is this one.
    Read(SignalKind, String),
    /// The run is notified.
    Notified(SignalKind),
    /// It is another run's, a quotation or prose.
    Ignored,
}
use Expected::{Ignored, Notified, Read};

#[derive(Debug)]
struct Spelling {
    text: String,
    expected: Expected,
}

fn own() -> RunId {
    RunId::new(Time(1), [1; 10])
}

/// Returns the fields before the main text of a block, and the name of that text.
fn fields(kind: SignalKind) -> (&'static str, &'static str) {
    match kind {
        SignalKind::Clarification => ("", "reason"),
        SignalKind::Stop => ("stop_reason: blocker\n", "details"),
        SignalKind::Delegation => (
            "independence: blocks_current_work\n",
            "new_task_description",
        ),
        SignalKind::Completion => ("status: failed\n", "summary"),
        SignalKind::Progress => ("percent: 40\n", "note"),
        SignalKind::Approval => ("risk: low\n", "action"),
    }
}

fn block(kind: SignalKind, value: &str) -> String {
    let (before, main) = fields(kind);
    let tag = kind.tag();
    format!("[{tag}]\nagent_id: {ID}\n{before}{main}: {value}\n[/{tag}]\n")
}

/// Values that are no plain text in YAML, or of which YAML drops a part.
const VALUES: [&str; 48] = [
    "tests fail: see log",
    "TypeError: Cannot read property 'length' of undefined",
    "a: b: c",
    "step 1: done",
    "ends with a colon:",
    "http://x.org:80/a#b",
    "issue #12 blocks",
    "see #12",
    "#12 is open",
    "# a heading",
    "@alice decides",
    "%d is wrong",
    "% of it",
    "& then",
    "&anchor text",
    "*important* text",
    "**bold** text",
    "* text",
    "! text",
    "!tag text",
    "!!str text",
    "| grep foo",
    "> 50 files",
    "> 50",
    "[wip] broken",
    "[see](http://x.org/a#b)",
    "[",
    "{a} b",
    "{{ template }}",
    "{",
    "- a dash",
    "? why",
    "`code` fails",
    "```sh```",
    "\"quoted\" and more",
    "'single' and more",
    "\"unclosed",
    "'unclosed",
    "it's: fine",
    "C:\\new\\table",
    "\\",
    ", a comma first",
    "] bracket",
    "} brace",
    "a\ttab: x",
    "ünïcödé: 😀",
    "<b>: x",
    "yes",
];

fn values(all: &mut Vec<Spelling>) {
    for kind in SignalKind::ALL {
        for value in VALUES {
            all.push(Spelling {
                text: block(kind, value),
                expected: Read(kind, value.to_owned()),
            });
        }
        // The same value, quoted or below a bar, is YAML.
        all.push(Spelling {
            text: block(kind, "\"a: \\\"b\\\" #c\""),
            expected: Read(kind, "a: \"b\" #c".to_owned()),
        });
        all.push(Spelling {
            text: block(kind, "|\n  a: b #c\n  @d"),
            expected: Read(kind, "a: b #c\n@d".to_owned()),
        });
        // Lines that are not indented.
        for (value, meant) in [
            (
                "first: line\nand a second #2",
                "first: line\nand a second #2",
            ),
            (
                "first: line\n\n- one: 1\n- two",
                "first: line\n\n- one: 1\n- two",
            ),
            ("|\nfirst: line\nand a second", "first: line\nand a second"),
            ("first: line\n  indented: #2", "first: line\nindented: #2"),
        ] {
            all.push(Spelling {
                text: block(kind, value),
                expected: Read(kind, meant.to_owned()),
            });
        }
    }
}

fn decorations(all: &mut Vec<Spelling>) {
    for kind in SignalKind::ALL {
        let tag = kind.tag();
        let plain = block(kind, "a: b #c");
        let with = |begin: &str, end: &str| {
            plain
                .replace(&format!("[{tag}]"), begin)
                .replace(&format!("[/{tag}]"), end)
        };
        let lower = tag.to_lowercase();
        let id = |with: &str| plain.replace(ID, with);
        for text in [
            with(&format!("**[{tag}]**"), &format!("**[/{tag}]**")),
            with(&format!("### [{tag}]"), &format!("### [/{tag}]")),
            with(&format!("- [{tag}]"), &format!("- [/{tag}]")),
            with(&format!("1. [{tag}]:"), &format!("[/{tag}].")),
            with(&format!("`[{tag}]`"), &format!("`[/{tag}]`")),
            with(
                &format!("\\[{}\\]", tag.replace('_', "\\_")),
                &format!("\\[/{}\\]", tag.replace('_', "\\_")),
            ),
            with(&format!("[{lower}]"), &format!("[/{lower}]")),
            with(
                &format!("[{}]", tag.replace('_', " ")),
                &format!("[/{}]", tag.replace('_', "-")),
            ),
            with(&format!("[{tag}]"), &format!("[/{tag}] I stop here.")),
            // The closing line is missing at the end of the output.
            with(&format!("[{tag}]"), ""),
            with(&format!("[{tag}]"), "\nThat is all."),
            // Indented by a tab; in a fence, or with one around the fields; a document.
            format!("\t{}", plain.trim_end().replace('\n', "\n\t")) + "\n",
            format!("    {}", plain.trim_end().replace('\n', "\n    ")) + "\n",
            format!("```yaml\n{plain}```\n"),
            plain
                .replace(&format!("[{tag}]\n"), &format!("[{tag}]\n```yaml\n"))
                .replace(&format!("[/{tag}]"), &format!("```\n[/{tag}]")),
            plain
                .replace(&format!("[{tag}]\n"), &format!("[{tag}]\n~~~\n"))
                .replace(&format!("[/{tag}]"), &format!("~~~\n\n[/{tag}]")),
            plain.replace(&format!("[{tag}]\n"), &format!("[{tag}]\n---\n")),
            plain.replace('\n', "\r\n"),
            // Other spellings of the id.
            id(NAME),
            id(&format!("`{ID}`")),
            id(&format!("\"{ID}\"")),
            id(&format!("{ID}  # my run")),
            id(&format!("{ID}/2")),
            // Decorated keys.
            plain.replace("agent_id:", "**agent_id**:"),
            plain.replace("agent_id:", "**agent_id:**"),
            plain.replace("agent_id:", "`agent_id`:"),
            plain.replace("agent_id:", "Agent ID:"),
            plain.replace("agent_id:", "AGENT_ID :"),
            plain.replace("agent_id: ", "agent_id:"),
            plain
                .lines()
                .map(|line| {
                    if line.starts_with('[') {
                        format!("{line}\n")
                    } else {
                        format!("- {line}\n")
                    }
                })
                .collect(),
            plain
                .lines()
                .map(|line| {
                    if line.starts_with('[') {
                        format!("{line}\n")
                    } else {
                        format!("  {line}\n")
                    }
                })
                .collect(),
            plain.replace("agent_id:", "# my report\nagent_id:"),
            plain.replace("agent_id:", "timestamp: yesterday\nagent_id:"),
        ] {
            all.push(Spelling {
                text,
                expected: Read(kind, "a: b #c".to_owned()),
            });
        }
    }
}

fn words(all: &mut Vec<Spelling>) {
    let text = "x: y".to_owned();
    let of = |kind, from: &str, to: &str| block(kind, "x: y").replace(from, to);
    for status in [
        "Failed",
        "FAILED",
        "error",
        "partial success",
        "partial_success (2 of 3)",
        "Completed",
        "success  # all of it",
    ] {
        all.push(Spelling {
            text: of(SignalKind::Completion, "failed", status),
            expected: Read(SignalKind::Completion, text.clone()),
        });
    }
    for status in [
        "done",
        "success, mostly",
        "completed with errors",
        "success|failed",
    ] {
        all.push(Spelling {
            text: of(SignalKind::Completion, "failed", status),
            expected: Notified(SignalKind::Completion),
        });
    }
    for reason in ["Blocker", "ERROR", "error - npm is missing"] {
        all.push(Spelling {
            text: of(SignalKind::Stop, "blocker", reason),
            expected: Read(SignalKind::Stop, text.clone()),
        });
    }
    for reason in ["tired", "completion of the first half is blocked", ""] {
        all.push(Spelling {
            text: of(SignalKind::Stop, "blocker", reason),
            expected: Notified(SignalKind::Stop),
        });
    }
    for independence in ["Blocks_Current_Work", "blocks current work", "optional"] {
        let spelled = of(SignalKind::Delegation, "blocks_current_work", independence);
        all.push(Spelling {
            text: spelled,
            expected: Read(SignalKind::Delegation, text.clone()),
        });
    }
    all.push(Spelling {
        text: of(
            SignalKind::Delegation,
            "independence: ",
            "priority: high\nindependence: ",
        ),
        expected: Notified(SignalKind::Delegation),
    });
    for percent in ["40 %", "~40%", "about half"] {
        all.push(Spelling {
            text: of(SignalKind::Progress, "40", percent),
            expected: Read(SignalKind::Progress, text.clone()),
        });
    }
}

fn questions(all: &mut Vec<Spelling>) {
    let of = |questions: &str| {
        format!(
            "[CLARIFICATION_NEEDED]\nagent_id: {ID}\nquestions:\n{questions}\n[/CLARIFICATION_NEEDED]\n"
        )
    };
    for questions in [
        "  - text: Two options: OAuth2 or JWT?",
        "- text: Two options: OAuth2 or JWT?",
        "- Two options: OAuth2 or JWT?",
        "1. Two options: OAuth2 or JWT?",
        "  - question_id: Q1\n    text: Two options: OAuth2 or JWT?\n    context: src/auth: both\n    options:\n      - OAuth2\n      - JWT # old",
        "  - question_id: Q1\n    text: Two options: OAuth2 or JWT?\n    type: Blocking\n  - text: which @version",
    ] {
        all.push(Spelling {
            text: of(questions),
            expected: Read(
                SignalKind::Clarification,
                "Two options: OAuth2 or JWT?".to_owned(),
            ),
        });
    }
    all.push(Spelling {
        text: of(""),
        expected: Notified(SignalKind::Clarification),
    });
}

fn unreadable(all: &mut Vec<Spelling>) {
    for kind in SignalKind::ALL
        .into_iter()
        .filter(|kind| *kind != SignalKind::Progress)
    {
        let tag = kind.tag();
        let plain = block(kind, "a: b");
        let (before, main) = fields(kind);
        for text in [
            // A field is missing, is given twice, or belongs to none.
            format!("[{tag}]\nagent_id: {ID}\n{before}[/{tag}]\n"),
            format!("[{tag}]\nagent_id: {ID}\n{before}{main}: a: b\n{main}: c: d\n[/{tag}]\n"),
            plain.replace("agent_id:", "Dear parent: hello\nagent_id:"),
            // No id, and a block without an end and without a main text.
            plain.replace(&format!("agent_id: {ID}\n"), ""),
            format!("[{tag}]\nagent_id: {ID}\n"),
            format!("{{\"signal_type\": \"{tag}\", \"agent_id\": \"{ID}\"}}\n"),
            format!(
                "{{\"signal_type\": \"{tag}\", \"agent_id\": \"{ID}\", \"{main}\": unquoted}}\n"
            ),
            format!("{{\"signal_type\": \"{tag}\", \"agent_id\": \"{ID}\", \"{main}\": \"no end\n"),
        ] {
            all.push(Spelling {
                text,
                expected: Notified(kind),
            });
        }
        // Another run's, templates, quotations and prose.
        for text in [
            plain.replace(ID, "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11"),
            plain.replace(ID, "<agent-id>"),
            plain.replace(ID, "calm-newt"),
            plain.lines().map(|line| format!("> {line}\n")).collect(),
            format!("I will print [{tag}] and end.\n"),
            format!("### [{tag}]\n\nA heading.\n"),
        ] {
            all.push(Spelling {
                text,
                expected: Ignored,
            });
        }
    }
}

fn json_forms(all: &mut Vec<Spelling>) {
    for kind in SignalKind::ALL {
        let (before, main) = fields(kind);
        let before: String = before
            .trim()
            .split_once(": ")
            .map_or_else(String::new, |(name, value)| {
                format!("\"{name}\": \"{value}\", ")
            });
        let object = |value: &str| {
            format!(
                "{{\"signal_type\": \"{}\", \"agent_id\": \"{ID}\", \"payload\": {{{before}\"{main}\": \"{value}\"}}}}\n",
                kind.tag()
            )
        };
        for (text, meant) in [
            (object("a: b #c"), "a: b #c"),
            (object("half \\ud83d end"), "half \u{fffd} end"),
            (object("two\nlines"), "two\nlines"),
            (object("a").replace("\"}}", "\",}}"), "a"),
            (
                object("a").replace(kind.tag(), &kind.tag().to_lowercase()),
                "a",
            ),
            (object("a").replace("}}\n", "}}.\n"), "a"),
            (object("a").replace(ID, NAME), "a"),
            (
                format!("```json\n{}```\n", object("a").replace(", ", ",\n  ")),
                "a",
            ),
        ] {
            all.push(Spelling {
                text,
                expected: Read(kind, meant.to_owned()),
            });
        }
    }
}

fn spellings() -> Vec<Spelling> {
    let mut all = Vec::new();
    for of in [
        values,
        decorations,
        words,
        questions,
        unreadable,
        json_forms,
    ] {
        of(&mut all);
    }
    all
}

/// Returns the main text of a signal.
fn main_text(signal: &Signal) -> (SignalKind, &str) {
    match signal {
        Signal::Clarification { questions, .. } => {
            (SignalKind::Clarification, questions[0].text.as_str())
        }
        Signal::Stop { checkpoint, .. } => (SignalKind::Stop, &checkpoint.details),
        Signal::Delegation(delegation) => (SignalKind::Delegation, &delegation.task),
        Signal::Completion { report, .. } => (SignalKind::Completion, &report.summary),
        Signal::Progress { note, .. } => (SignalKind::Progress, note.as_deref().unwrap_or("")),
        Signal::Approval { action, .. } => (SignalKind::Approval, action),
    }
}

fn scan(text: &str) -> Vec<FoundSignal> {
    let mut scanner = Scanner::default();
    let mut found = Vec::new();
    scanner.feed(text, &mut |one| found.push(one));
    scanner.end(&mut |one| found.push(one));
    found
}

/// Returns the spellings that a reader does not treat as expected.
fn misread(read: impl Fn(&FoundSignal) -> Reading) -> Vec<String> {
    let mut problems = Vec::new();
    for Spelling { text, expected } in spellings() {
        let text = text.replace(ID, &own().to_string());
        let found = scan(&text);
        let readings: Vec<(Option<SignalKind>, Reading)> =
            found.iter().map(|one| (kind_of(one), read(one))).collect();
        let is_right = match (&expected, readings.as_slice()) {
            (Read(kind, meant), [(_, reading)]) => reading.signal().is_some_and(|signal| {
                main_text(signal) == (*kind, meant.replace(ID, &own().to_string()).as_str())
            }),
            (Notified(kind), [(found, Reading::Unreadable { .. })]) => *found == Some(*kind),
            (Ignored, all) => {
                !all.is_empty()
                    && all
                        .iter()
                        .all(|(_, reading)| matches!(reading, Reading::Ignored(_)))
            }
            _ => false,
        };
        if !is_right {
            problems.push(format!("{text}expected {expected:?}\nread {readings:?}\n"));
        }
    }
    problems
}

fn real(found: &FoundSignal) -> Reading {
    interpret(
        found,
        Own {
            id: own(),
            name: NAME,
        },
    )
}

#[test]
fn every_spelling_is_read_or_reported() {
    let all = spellings();
    assert!(all.len() > 600, "{}", all.len());
    let problems = misread(real);
    assert!(
        problems.is_empty(),
        "{} of {}:\n{}",
        problems.len(),
        all.len(),
        problems.join("\n")
    );
}

#[test]
fn spellings_find_planted_faults() {
    // A reader that accepts only what is valid as it stands, one that cuts values at `#`, and one
    // that drops what it cannot read.
    let strict = |found: &FoundSignal| match real(found) {
        Reading::Flat { .. } => Reading::Ignored(SignalError::Unclosed),
        other => other,
    };
    let cutting = |found: &FoundSignal| match found {
        FoundSignal::Block {
            kind,
            text,
            is_closed,
        } => {
            let text = text
                .lines()
                .map(|line| format!("{}\n", line.split(" #").next().unwrap_or(line)))
                .collect();
            real(&FoundSignal::Block {
                kind: *kind,
                text,
                is_closed: *is_closed,
            })
        }
        other => real(other),
    };
    let dropping = |found: &FoundSignal| match real(found) {
        Reading::Unreadable { why, .. } => Reading::Ignored(why),
        other => other,
    };
    let counts = [
        misread(strict).len(),
        misread(cutting).len(),
        misread(dropping).len(),
    ];
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

/// Prints a block that cannot be read.
const BROKEN: &str = "broken() { printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: tired\\ndetails: no network\\n[/STOP_WORK]\\n' \"$id\"; }\n";

fn prompt(home: &TestHome, run: &str, attempt: u32) -> String {
    let path = home
        .home
        .logs_dir()
        .join(format!("{}.{attempt}.prompt.md", home.run_id(run)));
    std::fs::read_to_string(path).expect("what was sent")
}

#[test]
fn run_fixes_a_block_after_a_notice() {
    // It prints its prompt, as some CLIs do: the quoted block is no block of its own.
    let home = home_with(&format!(
        "{BROKEN}printf '%s\\n' \"$prompt\"\n\
         if told 'cannot be read'; then printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: blocker\\ndetails: no network\\n[/STOP_WORK]\\n' \"$id\"; exit 0; fi\n\
         if told 'Resolution: try now'; then echo fine; exit 0; fi\nbroken\n"
    ));
    home.start_agent("scribe", "fixes", "go");
    let view = home.until_status("fixes", "stopped");
    assert_eq!(
        (
            &view["reason"],
            &view["attempt"],
            &view["checkpoint"]["details"]
        ),
        (&json!("blocker"), &json!(2), &json!("no network")),
        "{view}"
    );
    let told = prompt(&home, "fixes", 2);
    for text in [
        "From adjutant",
        "stop_reason cannot be \"tired\": use blocker, error or completion",
        "> details: no network",
        "## STATE RESTORATION",
    ] {
        assert!(told.contains(text), "{text} is missing in {told}");
    }
    assert_eq!(home.adj(&["wait", "fixes"]).code, 3);
}

#[test]
fn run_that_does_not_fix_its_block_needs_attention() {
    let home = home_with(&format!(
        "{BROKEN}if told 'Resolution: never mind'; then echo fine; exit 0; fi\nbroken\n"
    ));
    home.start_agent("scribe", "stubborn", "go");
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "dependent",
        "--after",
        "stubborn",
        "say after",
    ]);
    let view = home.until_status("stubborn", "stopped");
    assert_eq!(
        (&view["attention"]["why"], &view["attempt"]),
        (&json!("unreadable_block"), &json!(2)),
        "one notice: {view}"
    );
    assert_eq!(home.adj(&["wait", "stubborn"]).code, 3);
    let details = view["attention"]["details"].as_str().unwrap_or_default();
    assert!(
        details
            .contains("it stopped, but the block cannot be read (STOP_WORK: stop_reason cannot be"),
        "{view}"
    );
    for list in ["inbox", "ps"] {
        let shown = home.ok(&[list]);
        assert!(
            shown.contains("stubborn") && shown.contains("invalid block"),
            "{list}: {shown}"
        );
    }
    assert_eq!(
        home.show("dependent")["state"],
        "queued",
        "nothing has succeeded"
    );
    home.ok(&["resume", "stubborn", "never mind"]);
    let view = home.finished("stubborn");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(3)),
        "who resumes it has looked at it: {view}"
    );
    assert_eq!(home.finished("dependent")["outcome"], "succeeded");
}

#[test]
fn run_gets_at_most_three_notices() {
    let home = home_with(
        "printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: tired of %s\\n[/STOP_WORK]\\n' \"$id\" \"$(date +%N)\"\n",
    );
    home.start_agent("scribe", "tiresome", "go");
    let view = home.until_status("tiresome", "stopped");
    assert_eq!(
        (&view["attention"]["why"], &view["attempt"]),
        (&json!("unreadable_block"), &json!(4)),
        "{view}"
    );
    home.ok(&["cancel", "tiresome"]);
}

#[test]
fn blocks_of_others_end_as_success() {
    // A program without the statement, an echoed task, a quotation and a block of another run.
    let home = TestHome::with_config(
        "[agents.bare]\nharness = \"plain\"\nidentity = \"none\"\ncommand = [\"/bin/sh\"]\n[agents.cat]\nharness = \"plain\"\ncommand = [\"/bin/cat\"]\n",
    );
    let block = "[STOP_WORK]\nstop_reason: tired\ndetails: x\n[/STOP_WORK]\n";
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "bare",
        "--name",
        "bare",
        &format!("cat <<'END'\n{block}END\n"),
    ]);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "cat",
        "--name",
        "echoes",
        &format!("When you cannot continue, print\n{block}"),
    ]);
    let quoted: String = block.lines().map(|line| format!("> {line}\n")).collect();
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "bare",
        "--name",
        "quotes",
        &format!("cat <<'END'\n{quoted}END\n"),
    ]);
    for run in ["bare", "echoes", "quotes"] {
        let view = home.finished(run);
        assert_eq!(
            (&view["outcome"], &view["attempt"]),
            (&json!("succeeded"), &json!(1)),
            "{view}"
        );
        assert!(
            view["ignored_signals"]["count"].as_u64() > Some(0),
            "it is counted: {view}"
        );
    }
}

#[test]
fn some_spellings_work_through_a_process() {
    let home = home_with(
        "sed \"s/MY-ID/$id/g\" <<END\n$(printf '%s' \"$prompt\" | sed '1,/^---$/d')\nEND\n",
    );
    let cases = [
        (
            "colon",
            block(SignalKind::Stop, "TypeError: Cannot read property"),
            "blocker",
        ),
        (
            "comment",
            block(SignalKind::Stop, "issue #12 blocks"),
            "blocker",
        ),
        (
            "marker",
            block(SignalKind::Stop, "x").replace("[STOP_WORK]", "### **[Stop_Work]**"),
            "blocker",
        ),
        (
            "question",
            block(SignalKind::Clarification, "two ways: A or B"),
            "parked",
        ),
        (
            "approval",
            block(SignalKind::Approval, "Delete: all of build/"),
            "parked",
        ),
        (
            "delegation",
            block(SignalKind::Delegation, "Refactor: the parser"),
            "parked",
        ),
        (
            "unclosed",
            block(SignalKind::Stop, "no: end").replace("[/STOP_WORK]\n", ""),
            "blocker",
        ),
    ];
    for (name, text, _) in &cases {
        home.start_agent("scribe", name, text);
    }
    for (name, text, reason) in &cases {
        let view = home.until_status(name, "stopped");
        assert_eq!(view["reason"], *reason, "{text}{view}");
        let stated = view["checkpoint"]["details"]
            .as_str()
            .or_else(|| view["pending"][0]["question"].as_str())
            .unwrap_or_default()
            .to_owned();
        if *reason == "blocker" {
            assert!(
                text.contains(&stated) && !stated.is_empty(),
                "{stated}: {text}"
            );
        }
    }
    home.start_agent(
        "scribe",
        "report",
        &block(SignalKind::Completion, "3 of 10 tests fail: see log #4"),
    );
    let view = home.finished("report");
    assert_eq!(
        (&view["outcome"], &view["summary"]),
        (&json!("failed"), &json!("3 of 10 tests fail: see log #4")),
        "{view}"
    );
    let inbox = home.inbox(&[]);
    for asked in [
        "two ways: A or B",
        "Delete: all of build/",
        "Refactor: the parser",
    ] {
        assert!(inbox.to_string().contains(asked), "{asked}: {inbox}");
    }
}

#[test]
fn block_that_is_printed_twice_is_one_signal() {
    let home = home_with(
        "ask() { printf '[CLARIFICATION_NEEDED]\\nagent_id: %s\\nquestions:\\n  - question_id: Q1\\n    text: which way?\\n[/CLARIFICATION_NEEDED]\\n' \"$id\"; }\n\
         delegate() { printf '[DELEGATE_WORK]\\nagent_id: %s\\nnew_task_description: %s\\n[/DELEGATE_WORK]\\n' \"$id\" \"$1\"; }\n\
         approve() { printf '[APPROVAL_NEEDED]\\nagent_id: %s\\naction: push\\npreview: %s\\n[/APPROVAL_NEEDED]\\n' \"$id\" \"$1\"; }\n\
         ask; delegate one; delegate two; approve a; ask; delegate one; approve a; approve b\n",
    );
    home.start_agent("scribe", "twice", "go");
    home.until_status("twice", "stopped");
    let inbox = home.inbox(&[]);
    let texts: Vec<&str> = inbox
        .as_array()
        .expect("requests")
        .iter()
        .filter_map(|request| request["question"].as_str())
        .collect();
    assert_eq!(
        texts,
        ["which way?", "one", "two", "push", "push"],
        "{inbox}"
    );
}
