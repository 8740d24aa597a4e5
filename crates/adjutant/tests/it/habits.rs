//! Habits of the command line: what Ctrl-C does.

use crate::support::TestHome;
use crate::terminal::Terminal;
use rustix::process::{Signal, kill_process};

fn interrupt(terminal: &Terminal) {
    kill_process(terminal.pid(), Signal::INT).expect("it can be interrupted");
}

#[test]
fn interrupting_logs_twice_leaves_the_run_alone() {
    let home = TestHome::new();
    home.start("waits", "say one\nask \"Which?\"");
    home.until_status("waits", "waiting_parent_reply");
    let mut terminal = Terminal::sized(&home, &["logs", "-f", "waits"], 24, 80);
    for shown in ["one", "type the answer to Q1"] {
        terminal.shows(shown);
    }
    interrupt(&terminal);
    interrupt(&terminal);
    terminal.shows("waits continues");
    assert_eq!(terminal.ends(), Some(130));
    assert_eq!(home.show("waits")["state"], "running");
}

#[test]
fn second_interrupt_cancels_what_run_started() {
    let home = TestHome::new();
    let mut terminal = Terminal::sized(&home, &["run", "-a", "echo", "-n", "hangs", "say one\nhang"], 24, 80);
    terminal.shows("one");
    interrupt(&terminal);
    terminal.shows("Press Ctrl-C again within 2 s to cancel it");
    interrupt(&terminal);
    terminal.shows("cancelling hangs");
    assert_eq!(terminal.ends(), Some(130));
    assert_eq!(home.finished("hangs")["outcome"], "cancelled");
}
