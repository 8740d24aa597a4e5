//! `adj top` on a real pseudo-terminal, and `adj ps --watch`.

use crate::merge::named_repository;
use crate::support::{Ran, TestHome};
use crate::terminal::{SHOWN_MAX, Terminal};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

/// What a terminal shows: enough of a terminal's language for what `adj top` writes.
struct Screen {
    terminal: Terminal,
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// An escape sequence whose end has not arrived.
    rest: String,
}

impl Screen {
    fn top(home: &TestHome, rows: u16, columns: u16) -> Self {
        Self::new(
            Terminal::sized(home, &["top"], rows, columns),
            rows,
            columns,
        )
    }

    fn of(terminal: Terminal) -> Self {
        Self::new(terminal, 24, 80)
    }

    fn new(terminal: Terminal, rows: u16, columns: u16) -> Self {
        let cells = vec![vec![' '; usize::from(columns)]; usize::from(rows)];
        Self {
            terminal,
            cells,
            row: 0,
            column: 0,
            rest: String::new(),
        }
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.terminal.resize(rows, columns);
        self.cells = vec![vec![' '; usize::from(columns)]; usize::from(rows)];
    }

    fn text(&self) -> String {
        self.cells
            .iter()
            .map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n")
            .collect()
    }

    /// Waits until the screen shows a text.
    fn shows(&mut self, text: &str) {
        let end = Instant::now() + SHOWN_MAX;
        while !self.text().contains(text) {
            // Ages are drawn again each second, so there is always more.
            let more = self.terminal.more();
            assert!(
                !more.is_empty() && Instant::now() < end,
                "{text:?} is not shown:\n{}",
                self.text()
            );
            self.feed(&more);
        }
    }

    fn types(&mut self, text: &str) {
        self.terminal.types(text);
    }

    fn feed(&mut self, more: &str) {
        let all = std::mem::take(&mut self.rest) + more;
        let mut rest = all.as_str();
        while let Some(c) = rest.chars().next() {
            if rest.starts_with("\u{1b}]") {
                // A title or a notification.
                let Some(end) = rest.find('\u{7}') else {
                    self.rest = rest.to_owned();
                    return;
                };
                rest = &rest[end + 1..];
                continue;
            }
            if c == '\u{1b}' {
                let Some(end) = rest[1..].find(|c: char| c.is_ascii_alphabetic()) else {
                    self.rest = rest.to_owned();
                    return;
                };
                self.control(&rest[2.min(1 + end)..=1 + end]);
                rest = &rest[end + 2..];
                continue;
            }
            match c {
                '\u{7}' => {}
                '\r' => self.column = 0,
                '\n' => self.row += 1,
                c => {
                    if let Some(cell) = self
                        .cells
                        .get_mut(self.row)
                        .and_then(|row| row.get_mut(self.column))
                    {
                        *cell = c;
                    }
                    self.column += 1;
                }
            }
            rest = &rest[c.len_utf8()..];
        }
    }

    fn control(&mut self, sequence: &str) {
        let (numbers, end) = sequence.split_at(sequence.len() - 1);
        let mut numbers = numbers
            .split(';')
            .map(|number| number.parse::<usize>().unwrap_or(1).max(1) - 1);
        match end {
            "H" => {
                (self.row, self.column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
            }
            "J" => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            _ => {}
        }
    }
}

#[test]
fn question_is_answered_in_top() {
    let home = TestHome::new();
    home.start("ann", "ask \"Which one?\" [options: red|green]\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let mut screen = Screen::top(&home, 24, 80);
    for text in ["1 need you", "? asks Q1", "Which one?", "2) green"] {
        screen.shows(text);
    }
    screen.types("2");
    screen.shows("> green");
    screen.types("\r");
    screen.shows("answered Q1 of ann");
    home.finished("ann");
    // The answer has reached the agent, and the end reaches the screen without a key.
    assert!(
        home.log("ann").contains("answer: green"),
        "{}",
        home.log("ann")
    );
    screen.shows("nothing needs you");
    screen.shows("done");
    screen.types("q");
    assert_eq!(screen.terminal.ends(), Some(0));
}

#[test]
fn approval_is_denied_with_a_reason_in_top() {
    let home = TestHome::new();
    home.start(
        "ann",
        "approve \"delete all\" [preview: rm -rf build]\ndone",
    );
    home.until_status("ann", "waiting_parent_reply");
    let mut screen = Screen::top(&home, 24, 40);
    screen.shows("? approve Q1");
    screen.types("a");
    screen.shows("rm -rf");
    screen.shows("press z within 5 seconds to undo");
    screen.types("z");
    screen.shows("undone: Approve Q1 of ann");
    assert_eq!(home.inbox(&[])[0]["status"], "pending");
    screen.types("d");
    screen.shows("Reason to deny Q1 of ann:");
    screen.types("not today\r");
    screen.shows("denied Q1 of ann");
    let all = home.inbox(&["--all"]);
    assert_eq!(
        (&all[0]["decision"], &all[0]["reason"]),
        (&"denied".into(), &"not today".into()),
        "{all}"
    );
    screen.types("\u{3}");
    assert_eq!(screen.terminal.ends(), Some(130));
}

#[test]
fn run_is_cancelled_in_top() {
    let home = TestHome::new();
    home.start("ann", "say the first line\nhang");
    home.until_log("ann", "the first line");
    let mut screen = Screen::top(&home, 24, 80);
    screen.shows("ann");
    screen.types("l");
    screen.shows("log of ann (following)");
    screen.shows("the first line");
    screen.types("q");
    screen.shows("WORKING 1");
    screen.resize(20, 60);
    screen.shows("WORKING 1");
    screen.types("x");
    screen.shows("press z within 5 seconds to undo: Cancel ann");
    home.finished("ann");
    screen.shows("cancelled ann");
    screen.types("q");
    assert_eq!(screen.terminal.ends(), Some(0));
}

#[test]
fn isolated_run_is_merged_in_top() {
    let home = named_repository();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "sh",
        "-n",
        "ann",
        "do echo new > new.txt",
    ]);
    home.finished("ann");
    let mut screen = Screen::top(&home, 24, 80);
    screen.shows("✓ done");
    screen.types("m");
    screen.shows("Merge ann into");
    // Only the listed keys act, and only when they are listed.
    screen.types("msxn");
    screen.shows("nothing was sent");
    screen.types("m");
    screen.shows("s squash  ");
    screen.types("s");
    screen.shows("press z within 5 seconds to undo: Merge ann");
    screen.types("z");
    screen.shows("undone: Merge ann");
    assert!(!home.work().join("new.txt").exists());
    screen.types("m");
    screen.shows("s squash  ");
    screen.types("s");
    screen.shows("merged ann into main");
    assert_eq!(
        std::fs::read_to_string(home.work().join("new.txt")).expect("a merged file"),
        "new\n"
    );
    assert_eq!(home.show("ann")["workspace"]["state"], "merged");
    screen.types("q");
    assert_eq!(screen.terminal.ends(), Some(0));
}

#[test]
fn workspace_is_discarded_in_top() {
    let home = named_repository();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "sh",
        "-n",
        "ann",
        "do echo new > new.txt",
    ]);
    home.finished("ann");
    let mut screen = Screen::top(&home, 24, 80);
    screen.shows("✓ done");
    screen.types("m");
    screen.shows("d discard  ");
    screen.types("d");
    screen.shows("press z within 5 seconds to undo: Discard the workspace of ann");
    screen.shows("✓ discarded the workspace of ann");
    assert_eq!(home.show("ann")["workspace"]["state"], "discarded");
    assert!(!home.work().join("new.txt").exists());
}

#[test]
fn delegation_is_changed_in_top() {
    let home = TestHome::new();
    home.start("audit", "delegate \"done ol\" [blocks]\ndone");
    std::fs::create_dir(home.work().join("docs")).expect("a directory");
    let mut screen = Screen::top(&home, 24, 80);
    screen.shows("? delegate Q1");
    // The run may have been selected before its request arrived: select the request.
    screen.types(".e");
    screen.shows("> task      done ol");
    // The typed task replaces the end of the shown one.
    screen.types("\u{7f}\u{7f}new\t\t");
    screen.shows("> directory");
    screen.types(&format!("{}/docs\t\u{7f}2\r", home.work().display()));
    screen.shows("approved Q1 of audit");
    home.finished("audit");
    let runs = home.json(&["ps", "-a"]);
    let child = runs
        .as_array()
        .into_iter()
        .flatten()
        .find(|run| !run["parent"].is_null())
        .cloned()
        .expect("a child run");
    assert_eq!(
        (child["task"].as_str(), child["priority"].as_str()),
        (Some("done new"), Some("P2")),
        "{child}"
    );
    assert!(
        child["cwd"]
            .as_str()
            .is_some_and(|cwd| cwd.ends_with("/docs")),
        "{child}"
    );
}

#[test]
fn approval_is_undone_in_top_and_sent_at_the_end() {
    let home = TestHome::new();
    home.start(
        "ann",
        "approve \"delete all\" [preview: rm -rf build]\ndone",
    );
    home.until_status("ann", "waiting_parent_reply");
    let mut screen = Screen::top(&home, 24, 80);
    screen.shows("? approve Q1");
    screen.types("a");
    screen.shows("press z within 5 seconds to undo: Approve Q1 of ann (delete all");
    screen.types("z");
    screen.shows("undone: Approve Q1 of ann");
    screen.types("z");
    screen.shows("nothing to undo");
    assert_eq!(home.inbox(&[])[0]["status"], "pending");
    // Leaving sends what can still be undone, before the program exits.
    screen.types("a");
    screen.shows("press z within 5 seconds to undo");
    screen.types("q");
    assert_eq!(screen.terminal.ends(), Some(0));
    assert_eq!(home.inbox(&["--all"])[0]["decision"], "approved");
    home.finished("ann");
}

#[test]
fn top_connects_again_after_the_hub_was_killed() {
    let home = TestHome::new();
    home.start("ann", "ask \"Which one?\"\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let mut screen = Screen::top(&home, 24, 80);
    screen.shows("Which one?");
    let hub = Pid::from_raw(home.hub_pid().cast_signed()).expect("a pid");
    kill_process(hub, Signal::KILL).expect("killed");
    screen.shows("connected again");
    home.start("bob", "ask \"And then?\"\ndone");
    screen.shows("And then?");
    screen.types("q");
    assert_eq!(screen.terminal.ends(), Some(0));
}

#[test]
fn top_restores_the_terminal_when_it_is_terminated() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let mut terminal = Terminal::sized(&home, &["top"], 24, 80);
    terminal.shows("\u{1b}[?1049h");
    terminal.shows("nothing needs you");
    kill_process(terminal.pid(), Signal::TERM).expect("terminated");
    terminal.shows("\u{1b}[?1049l");
    assert_eq!(terminal.ends(), Some(143));
}

#[test]
fn top_without_a_terminal_names_the_alternative() {
    let home = TestHome::new();
    let ran = home.adj(&["top"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err.contains("adj top needs a terminal") && ran.err.contains("adj ps --watch"),
        "{ran:?}"
    );
}

#[test]
fn watched_list_is_printed_at_each_change() {
    let home = TestHome::new();
    home.start("ann", "ask \"Which one?\"\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let mut watch = home
        .command(&["ps", "-a", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("adj starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output"))
        .lines()
        .map(|line| line.expect("a line"));
    assert!(
        lines
            .by_ref()
            .any(|line| line.starts_with("ann") && line.contains("? asks Q1"))
    );
    home.ok(&["reply", "Q1", "red"]);
    // Blocks are separated by empty lines, and each begins with the heading.
    let mut after_empty = None;
    let done = lines.by_ref().find(|line| {
        if after_empty.take().is_some() {
            assert!(line.starts_with("RUN"), "{line}");
        }
        after_empty = line.is_empty().then_some(());
        line.starts_with("ann") && line.contains("✓ done")
    });
    assert!(done.is_some());
    kill_process(
        Pid::from_raw(watch.id().cast_signed()).expect("a pid"),
        Signal::INT,
    )
    .expect("interrupted");
    assert_eq!(watch.wait().expect("it ends").code(), Some(130));
}

#[test]
fn watched_list_is_redrawn_in_place_on_a_terminal() {
    let home = TestHome::new();
    home.start("ann", "ask \"Which one?\"\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let mut terminal = Terminal::sized(&home, &["ps", "-a", "--watch"], 24, 80);
    terminal.shows("? asks Q1");
    terminal.shows("Needs you: 1");
    home.ok(&["reply", "Q1", "red"]);
    terminal.shows("A\r\u{1b}[J");
    terminal.shows("✓ done");
    kill_process(terminal.pid(), Signal::INT).expect("interrupted");
    assert_eq!(terminal.ends(), Some(130));
}

#[test]
fn kept_demo_waits_for_the_person() {
    let home = TestHome::new();
    let mut command = home.command(&["--json", "demo", "--keep", "--no-input"]);
    let ran = Ran::from(
        command
            .env("TMPDIR", home.work())
            .output()
            .expect("adj can be started"),
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let data = ran.data();
    let kept = data["home"].as_str().expect("a home").to_owned();
    let adj = |args: &[&str]| {
        Ran::from(
            home.command(args)
                .env("ADJ_HOME", &kept)
                .output()
                .expect("adj can be started"),
        )
    };
    let open = adj(&["--json", "inbox"]).data();
    assert_eq!(open.as_array().map(Vec::len), Some(3), "{open}");
    // While the own home has no runs, a person who forgets the home of the demo is referred to it.
    let ui = |listen: &[&str]| {
        Ran::from(
            home.command(&[&["ui", "--no-open"], listen].concat())
                .env("TMPDIR", home.work())
                .output()
                .expect("adj can be started"),
        )
    };
    let opened = ui(&["--listen", "127.0.0.1:0"]);
    assert!(
        opened.code == 0
            && opened.err.contains(&format!(
                "no runs in this home; for the demo: ADJ_HOME={kept} adj ui"
            )),
        "{opened:?}"
    );
    let mut top = home.command(&["top"]);
    top.env("TMPDIR", home.work());
    let mut screen = Screen::of(Terminal::of(top));
    screen.shows(&format!("ADJ_HOME={kept}"));
    screen.types("q");
    assert_eq!(screen.terminal.ends(), Some(0));
    assert_eq!(adj(&["reply", "limiter", "per key"]).code, 0);
    home.start("own", "done");
    let opened = ui(&[]);
    assert!(
        opened.code == 0 && !opened.err.contains(&kept),
        "{opened:?}"
    );
    // Only the home of a kept demo is removed.
    let refused = home.adj(&["demo", "--end", home.work().to_str().expect("UTF-8")]);
    assert_eq!(refused.code, 2, "{refused:?}");
    home.ok(&["demo", "--end", &kept]);
    assert_eq!(
        std::fs::read_dir(home.work())
            .expect("the directory")
            .count(),
        0,
        "its home is removed"
    );
}

#[test]
fn top_notifies_of_each_new_question_once() {
    let home = TestHome::new();
    home.start("ann", "ask \"old?\"\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let mut command = home.command(&["top"]);
    command.env("TERM", "xterm-256color");
    let mut terminal = Terminal::of(command);
    terminal.shows("\u{1b}[22;2t\u{1b}]2;adj top: 1 needs you\u{7}");
    home.start("ben", "ask \"new?\"\ndone");
    terminal.shows("\u{1b}]9;adj: ben asks (Q2)\u{7}\u{7}");
    terminal.shows("\u{1b}]2;adj top: 2 need you\u{7}");
    home.ok(&["reply", "Q1", "a"]);
    home.ok(&["reply", "Q2", "b"]);
    terminal.shows("\u{1b}]2;adj top\u{7}");
    terminal.types("q");
    let rest = terminal.rest();
    assert!(
        rest.contains("\u{1b}[23;2t") && !rest.contains("\u{1b}]9;"),
        "{rest:?}"
    );
}
