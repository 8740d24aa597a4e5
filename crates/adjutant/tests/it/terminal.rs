//! The command line on a terminal: a real pseudo-terminal, controlled by the test.

use crate::support::TestHome;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long text may take to be shown.
pub const SHOWN_MAX: Duration = Duration::from_secs(30);

/// A command on a terminal of 80 columns.
pub struct Terminal {
    child: Child,
    keyboard: File,
    output: Receiver<String>,
    shown: String,
}

impl Terminal {
    fn run(home: &TestHome, args: &[&str]) -> Self {
        Self::sized(home, args, 24, 80)
    }

    pub fn sized(home: &TestHome, args: &[&str], rows: u16, columns: u16) -> Self {
        Self::start(home.command(args), rows, columns)
    }

    pub fn of(command: Command) -> Self {
        Self::start(command, 24, 80)
    }

    fn start(mut command: Command, rows: u16, columns: u16) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keyboard).expect("ours");
        unlockpt(&keyboard).expect("unlocked");
        let name = ptsname(&keyboard, Vec::new())
            .expect("a name")
            .into_string()
            .expect("ASCII");
        tcsetwinsize(
            &keyboard,
            Winsize {
                ws_row: rows,
                ws_col: columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .expect("a size");
        let end = || {
            Stdio::from(
                OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&name)
                    .expect("the other end"),
            )
        };
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("adj starts");
        let keyboard = File::from(keyboard);
        let mut screen = keyboard.try_clone().expect("another descriptor");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once the last process has exited.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                if sender
                    .send(String::from_utf8_lossy(&bytes[..count]).into_owned())
                    .is_err()
                {
                    return;
                }
            }
        });
        Self {
            child,
            keyboard,
            output,
            shown: String::new(),
        }
    }

    /// Waits until a text is shown, and discards everything up to it.
    pub fn shows(&mut self, text: &str) {
        let end = Instant::now() + SHOWN_MAX;
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            match self
                .output
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(more) => self.shown.push_str(&more),
                Err(_) => panic!("{text:?} is not shown: {}", self.shown),
            }
        }
    }

    /// Waits for more output, and returns it.
    pub fn more(&mut self) -> String {
        self.output.recv_timeout(SHOWN_MAX).unwrap_or_default()
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(
            &self.keyboard,
            Winsize {
                ws_row: rows,
                ws_col: columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .expect("a size");
    }

    /// Returns whether the terminal shows what is typed.
    pub fn has_echo(&self) -> bool {
        tcgetattr(&self.keyboard)
            .expect("modes")
            .local_modes
            .contains(LocalModes::ECHO)
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.child.id().cast_signed()).expect("a pid")
    }

    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("typed");
    }

    /// Waits until the command has ended, and returns the output that was not read yet.
    pub fn rest(mut self) -> String {
        self.child.wait().expect("it ends");
        while let Ok(more) = self.output.recv_timeout(SHOWN_MAX) {
            self.shown.push_str(&more);
        }
        self.shown
    }

    pub fn ends(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

/// Returns all answers, oldest question first.
fn answers(home: &TestHome) -> Vec<String> {
    let all = home.inbox(&["--all"]);
    all.as_array()
        .expect("a list")
        .iter()
        .map(|request| request["answer"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn person_answers_at_the_terminal() {
    let home = TestHome::new();
    home.start("ann", "ask \"Which one?\" [options: red|green]\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let mut terminal = Terminal::run(&home, &["next"]);
    for shown in ["Which one?", "2) green", "> "] {
        terminal.shows(shown);
    }
    terminal.types("2\n");
    terminal.shows("nothing else needs you");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(answers(&home), ["green"]);
    // A followed run's question is answered on the same terminal.
    let mut terminal = Terminal::run(
        &home,
        &[
            "run",
            "-a",
            "echo",
            "say hello\nask \"How many?\"\ndone well",
        ],
    );
    for shown in ["hello", "How many?", "type the answer to Q2"] {
        terminal.shows(shown);
    }
    terminal.types("three\n");
    for shown in ["answer: three", "✓ done"] {
        terminal.shows(shown);
    }
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn tables_fit_every_terminal() {
    let home = TestHome::with_config(
        "[agents.unsigned]\nharness = \"claude\"\ncommand = [\"/bin/sh\", \"-c\", \"exit 1\"]\ndescription = \"A description that is long enough to need the room of a wide terminal\"\n",
    );
    home.start(
        "failed",
        "report error a reason that is far too long for one cell of a table, on any terminal",
    );
    home.finished("failed");
    home.start("asks", "ask \"Which of the two databases should the migration be tried on first?\" [options: staging|local]");
    home.until_status("asks", "waiting_parent_reply");
    home.ok(&[
        "chat",
        "start",
        "A chat with a title that is rather long for a narrow terminal",
    ]);
    let reason = home.show("failed")["reason"]
        .as_str()
        .expect("a reason")
        .to_owned();
    for columns in [40, 60, 80, 100, 200] {
        for args in [&["ps", "-a"][..], &["inbox"], &["agents"], &["chat", "ls"]] {
            let shown = Terminal::sized(&home, args, 24, columns).rest();
            // Remarks below a table are not part of it.
            let table = shown.lines().map(strip).filter(|line| {
                !line.contains(": ") && !line.contains("PATH") && !line.starts_with("next:")
            });
            for plain in table {
                assert!(
                    plain.chars().count() <= usize::from(columns),
                    "{columns}, {args:?}: {plain:?}"
                );
            }
            assert!(
                args[0] != "ps" || columns < 80 || shown.contains("TASK"),
                "{columns}: {shown}"
            );
        }
    }
    assert!(
        home.ok(&["show", "failed"]).contains(&reason),
        "the reason is in show"
    );
}

/// Removes colours.
fn strip(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim_end();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[test]
fn input_before_a_request_is_shown_does_not_answer_it() {
    let home = TestHome::new();
    let script = "ask \"ready?\"\napprove \"delete all\" preview: rm -rf build\nsay done";
    let mut terminal = Terminal::run(&home, &["run", "-a", "echo", "-n", "ann", script]);
    terminal.shows("type the answer to Q1");
    // The second line is typed before there is a second question.
    terminal.types("yes\ny\n");
    terminal.shows("rm -rf build");
    terminal.shows("Approve Q2 (delete all; preview: rm -rf build)? Type y, or n and a reason");
    assert_eq!(home.inbox(&[])[0]["status"], "pending");
    terminal.types("y\n");
    terminal.shows("done");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(answers(&home), ["yes", "approved"]);
}

#[test]
fn line_answers_the_question_on_the_screen() {
    let home = TestHome::new();
    let mut terminal = Terminal::run(&home, &["run", "-a", "echo", "-n", "ann", "asks 3 which?"]);
    terminal.shows("type the answer to Q1");
    terminal.shows("3 questions open; your next line answers Q1");
    terminal.types("one\n");
    terminal.shows("type the answer to Q2");
    // A question answered elsewhere is no longer answered by a typed line.
    home.ok(&["reply", "Q2", "two"]);
    terminal.shows("type the answer to Q3");
    terminal.types("three\n");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(answers(&home), ["one", "two", "three"]);
}

#[test]
fn next_notices_a_deadline_while_it_asks() {
    let home = TestHome::new();
    home.start("ann", "ask \"Deploy now?\" [options: yes|no] [default: no] [expires: 3s]\nask \"And then?\"\ndone");
    home.until_status("ann", "waiting_parent_reply");
    let mut terminal = Terminal::run(&home, &["next", "Q1"]);
    terminal.shows("answer Q1 > ");
    terminal.shows("Q1 was closed meanwhile: \"no\" by default (no answer in time)");
    terminal.shows("nothing else needs you");
    assert_eq!(terminal.ends(), Some(0));
    // An answer given elsewhere is reported too, and the next item follows.
    home.until("the second is asked", || {
        (home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    home.start("bob", "ask \"Which?\"\ndone");
    home.until_status("bob", "waiting_parent_reply");
    let mut terminal = Terminal::run(&home, &["next"]);
    terminal.shows("answer Q2 > ");
    home.ok(&["reply", "Q2", "rest"]);
    terminal.shows("Q2 was closed meanwhile: \"rest\" by you");
    terminal.shows("answer Q3 > ");
    terminal.types("this\n");
    terminal.shows("nothing else needs you");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn long_preview_ends_with_the_decision_prompt() {
    let home = TestHome::new();
    let preview: Vec<String> = (1..=120).map(|n| format!("+ line {n}")).collect();
    home.start(
        "ann",
        &format!(
            "approve \"apply the patch\" risk: high preview: {}",
            preview.join("\\n")
        ),
    );
    home.until_status("ann", "waiting_parent_reply");
    // A text that is longer than the terminal goes through the pager.
    let next = || {
        let mut command = home.command(&["next"]);
        command.env("ADJ_PAGER", "sed s/^/paged:/");
        Terminal::of(command)
    };
    let mut left = next();
    left.shows("[q]uit > ");
    rustix::process::kill_process(left.pid(), rustix::process::Signal::INT).expect("a signal");
    left.shows("1 left: adj next");
    assert_eq!(
        left.ends(),
        Some(130),
        "Ctrl-C ends the prompt after a pager too"
    );
    let mut terminal = next();
    terminal.shows("paged:");
    terminal.shows("+ line 120");
    terminal.shows("Approve Q1 (apply the patch; preview: 120 lines, shown above, risk high)?");
    terminal.shows("[y]es [n]o REASON [v]iew [s]kip [q]uit > ");
    // Input without a decision is prompted for again.
    terminal.types("n\n");
    terminal.shows("type y, or n and a reason; v shows it again, Enter skips it, q ends");
    terminal.shows("[q]uit > ");
    terminal.types("v\n");
    terminal.shows("+ line 120");
    terminal.shows("[q]uit > ");
    terminal.types("n not on a Friday\n");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(answers(&home), ["denied: not on a Friday"]);
}

#[test]
fn yes_answers_only_the_shown_request() {
    let home = TestHome::new();
    home.start("ann", "approve \"first\" preview: touch a");
    home.until_status("ann", "waiting_parent_reply");
    home.start("bob", "approve \"second\" preview: touch b");
    home.until_status("bob", "waiting_parent_reply");
    let mut terminal = Terminal::run(&home, &["next"]);
    terminal.shows("touch a");
    terminal.shows("Approve Q1 (first; preview: touch a)?");
    terminal.shows("[q]uit > ");
    terminal.types("y\ny\n");
    terminal.shows(" Q1: approved");
    terminal.shows("Approve Q2 (second; preview: touch b)?");
    terminal.shows("[q]uit > ");
    // The second line was typed before Q2 was shown. Only what is typed now answers it.
    terminal.types("n not this one\n");
    terminal.shows("nothing else needs you");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(answers(&home), ["approved", "denied: not this one"]);
}

#[test]
fn next_resumes_a_stopped_run_and_shows_ends_and_messages() {
    let home = TestHome::new();
    let stop = "tool stop_work {\"stop_reason\":\"blocker\",\"details\":\"node_modules is missing\",\"resume_requirements\":\"npm install\"}";
    home.start("stuck", &format!("{stop}\nhang\nresume-here\nsay went on"));
    home.until_status("stuck", "stopped");
    home.start("bad", "fail 3");
    home.finished("bad");
    let mut terminal = Terminal::run(&home, &["next"]);
    for shown in [
        "stuck",
        "node_modules is missing",
        "npm install",
        "resume stuck with a resolution, or cancel > ",
    ] {
        terminal.shows(shown);
    }
    terminal.types("cancle\n");
    terminal.shows("cancle is not a command: type cancel");
    terminal.shows("or cancel > ");
    terminal.types("installed it\n");
    terminal.shows(" resumed stuck");
    for shown in ["bad", "exit 3", "Press Enter to continue, or type retry"] {
        terminal.shows(shown);
    }
    terminal.types("retyr\n");
    terminal.shows("type retry, or press Enter");
    terminal.shows("run bad again > ");
    terminal.types("\n");
    terminal.shows("nothing else needs you");
    assert_eq!(terminal.ends(), Some(0));
    home.until_log("stuck", "installed it");
    home.start(
        "talks",
        "tool send_message {\"to\": \"parent\", \"message\": \"look at this\"}\ndone",
    );
    home.finished("talks");
    let mut terminal = Terminal::run(&home, &["next"]);
    for shown in [
        "look at this",
        "Press Enter to continue, or type a reply > ",
    ] {
        terminal.shows(shown);
    }
    terminal.types("seen\n");
    terminal.shows("nothing else needs you");
    assert_eq!(terminal.ends(), Some(0));
    assert!(home.adj(&["inbox"]).err.contains("nothing needs you"));
}

#[test]
fn next_skips_chooses_and_asks_again() {
    let home = TestHome::new();
    for (name, script) in [
        ("ann", "ask \"Which colour?\" [options: red|green]"),
        ("bob", "approve \"second\""),
        ("cat", "ask \"How many?\""),
    ] {
        home.start(name, script);
        home.until_status(name, "waiting_parent_reply");
    }
    let mut left = Terminal::run(&home, &["next"]);
    left.shows("1 of 3");
    left.shows("answer Q1 > ");
    left.types("s\n");
    left.shows("2 of 3");
    left.shows("[q]uit > ");
    left.types("q\n");
    left.shows("3 left: adj next");
    assert_eq!(left.ends(), Some(130));
    let mut terminal = Terminal::run(&home, &["next"]);
    terminal.shows("answer Q1 > ");
    terminal.types("7\n");
    terminal.shows("type the number of an option, or an answer in words");
    terminal.shows("answer Q1 > ");
    terminal.types("\n");
    terminal.shows("Approve Q2");
    terminal.types("x\n");
    terminal.shows("type y, or n and a reason");
    // Only what is typed after the prompt counts.
    terminal.shows("Approve Q2");
    terminal.types("s\n");
    terminal.shows("3 of 3");
    terminal.shows("answer Q3 > ");
    terminal.types("3\n");
    terminal.shows("2 skipped: adj next");
    assert_eq!(terminal.ends(), Some(0));
    // One request, by its number or its run.
    let mut terminal = Terminal::run(&home, &["next", "q2"]);
    terminal.shows("Approve Q2");
    terminal.types("y\n");
    terminal.shows("nothing else needs you");
    assert_eq!(terminal.ends(), Some(0));
    let mut terminal = Terminal::run(&home, &["next", "ann"]);
    terminal.shows("answer Q1 > ");
    terminal.types("\u{4}");
    terminal.shows("1 left: adj next");
    assert_eq!(terminal.ends(), Some(130));
    assert_eq!(answers(&home), ["", "approved", "3"]);
    assert!(
        Terminal::run(&home, &["next", "q2"])
            .rest()
            .contains("q2 does not need you")
    );
    assert!(
        Terminal::run(&home, &["next", "nobody"])
            .rest()
            .contains("no such run")
    );
}

/// Returns a command with the variables of an ordinary terminal.
fn on_xterm(home: &TestHome, args: &[&str]) -> Terminal {
    let mut command = home.command(args);
    command.env("TERM", "xterm-256color");
    Terminal::of(command)
}

#[test]
fn followed_run_notifies_of_its_question_and_its_end() {
    let home = TestHome::new();
    let mut terminal = on_xterm(
        &home,
        &[
            "run",
            "-a",
            "echo",
            "-n",
            "ann",
            "ask \"Which; one?\"\ndone well",
        ],
    );
    terminal.shows("\u{1b}[22;2t\u{1b}]2;adj: ann\u{7}");
    terminal.shows("Which; one?");
    terminal.shows("\u{1b}]9;adj: ann asks (Q1)\u{7}\u{7}");
    terminal.shows("\u{1b}]2;adj: ann asks (Q1)\u{7}");
    // What is typed before is discarded.
    terminal.shows("type the answer to Q1");
    terminal.types("this\n");
    terminal.shows("\u{1b}]2;adj: ann\u{7}");
    terminal.shows("\u{1b}]9;adj: ann: ✓ done\u{7}\u{7}");
    let rest = terminal.rest();
    assert!(
        rest.ends_with("\u{1b}[23;2t") && !rest.contains("\u{1b}]"),
        "{rest:?}"
    );
}

#[test]
fn wait_shows_the_runs_that_it_waits_for() {
    let home = TestHome::new();
    home.start("ann", "hang");
    home.start("bob", "hang");
    let mut waiting = on_xterm(&home, &["wait", "--until", "all", "bob", "ann"]);
    waiting.shows("waiting: ");
    waiting.shows("ann ● working");
    home.ok(&["cancel", "ann"]);
    waiting.shows("waiting: bob ● working");
    home.ok(&["cancel", "bob"]);
    let rest = waiting.rest();
    assert!(rest.contains("\r\u{1b}[K"), "{rest:?}");
    // Nothing for a script.
    assert!(
        !home
            .adj(&["wait", "--until", "all", "bob"])
            .err
            .contains("waiting: ")
    );
}

#[test]
fn wait_notifies_and_restores_the_title() {
    let home = TestHome::with_config("[notify]\nosc = false\n");
    home.start("ann", "hang");
    let mut waiting = on_xterm(&home, &["wait", "ann"]);
    waiting.shows("\u{1b}]2;adj wait\u{7}");
    rustix::process::kill_process(waiting.pid(), rustix::process::Signal::INT).expect("it waits");
    waiting.shows("\u{1b}[23;2t");
    assert_eq!(waiting.ends(), Some(130));
    let mut waiting = on_xterm(&home, &["wait", "ann"]);
    waiting.shows("\u{1b}]2;adj wait\u{7}");
    home.ok(&["cancel", "ann"]);
    let rest = waiting.rest();
    let bare = rest.replace("\u{1b}]2;adj wait\u{7}", "");
    assert!(
        bare.contains('\u{7}') && rest.ends_with("\u{1b}[23;2t"),
        "{rest:?}"
    );
}

#[test]
fn terminal_without_notifications_gets_no_sequence() {
    let quiet =
        TestHome::with_config("[notify]\ntitle = false\nquiet = \"00:00-23:59\"\nzone = \"UTC\"\n");
    let off = TestHome::with_config("[notify]\nbell = false\nosc = false\ntitle = false\n");
    for (home, term) in [
        (&off, "xterm"),
        (&TestHome::new(), "dumb"),
        (&quiet, "xterm"),
    ] {
        let mut command = home.command(&["run", "-a", "echo", "done well"]);
        command.env("TERM", term);
        let rest = Terminal::of(command).rest();
        assert!(
            rest.contains("✓ done") && !rest.contains('\u{7}') && !rest.contains("\u{1b}]"),
            "{term}: {rest:?}"
        );
    }
}

#[test]
fn messages_and_checks_end_lines_between_words() {
    let home = TestHome::with_config("live_runs_max = \"many\"\nidle_exit = 5\nnonsense = true\n");
    for columns in [40_usize, 60, 80] {
        for args in [["doctor"].as_slice(), &["ps"], &["agents"]] {
            let mut command = home.command(args);
            command.env("NO_COLOR", "1");
            let shown =
                Terminal::start(command, 24, u16::try_from(columns).expect("narrow")).rest();
            // A word that is wider than the terminal, such as a path, is left to it.
            let too_wide: Vec<&str> = shown
                .lines()
                .map(str::trim_end)
                .filter(|line| {
                    line.chars().count() > columns
                        && line.split_whitespace().all(|word| word.len() < columns / 2)
                })
                .collect();
            assert!(too_wide.is_empty(), "{columns} {args:?}: {too_wide:#?}");
        }
        let ps = Terminal::start(
            home.command(&["ps"]),
            24,
            u16::try_from(columns).expect("narrow"),
        )
        .rest();
        assert_eq!(
            ps.lines()
                .filter(|line| line.trim_start().starts_with("line "))
                .count(),
            3,
            "a line for each problem: {ps}"
        );
    }
}
