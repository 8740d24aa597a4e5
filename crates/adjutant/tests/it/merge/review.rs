//! Looking at a run's changes: comments, `adj open`, the pager.

use super::{named_repository, refused, run};
use crate::terminal::Terminal;

#[test]
fn comments_are_one_message_with_the_lines_quoted() {
    let home = named_repository();
    home.ok(&["run", "-d", "--clone", "-a", "echo", "-n", "writes", "write one.txt first\nask \"go on?\"\nsay done"]);
    home.until_status("writes", "waiting_parent_reply");
    home.ok(&["diff", "writes"]);
    let sent = home.json(&["comment", "writes", "one.txt:1", "say it twice", "lines.txt:3", "why three?"]);
    assert_eq!(sent["run_name"], "writes", "{sent}");
    let text = sent["text"].as_str().expect("a text");
    assert_eq!(
        text,
        "Comments on your changes:\n\none.txt, line 1:\n    first\nComment: say it twice\n\nlines.txt, line 3:\n    line 3\nComment: why three?\n"
    );
    refused(&home.adj(&["comment", "writes", "one.txt:9", "x"]), 2, &["has no line 9"]);
    refused(&home.adj(&["comment", "writes", "none.txt:1", "x"]), 2, &["is not a file"]);
    refused(&home.adj(&["comment", "writes", "one.txt", "x"]), 2, &["is not FILE:LINE"]);
    refused(&home.adj(&["comment", "writes", "one.txt:1", "x", "two.txt:1"]), 2, &["has no text"]);
}

#[test]
fn open_prints_the_path_without_a_terminal() {
    let home = named_repository();
    run(&home, &[("writes", "echo new > new.txt")]);
    let path = home.show("writes")["workspace"]["path"].as_str().expect("a path").to_owned();
    assert_eq!(home.ok(&["open", "writes"]).trim_end(), path);
    home.ok(&["discard", "writes"]);
    refused(&home.adj(&["open", "writes"]), 7, &["the workspace of writes is removed", "--branch"]);
}

#[test]
fn terminal_gets_the_pager_and_the_editor_of_the_user() {
    let home = named_repository();
    run(&home, &[("writes", "echo new > new.txt")]);
    let on_terminal = |args: &[&str], variable: &str, value: &str| {
        let mut command = home.command(args);
        command.env(variable, value).env("TERM", "xterm").env_remove("CLAUDECODE");
        Terminal::of(command).rest()
    };
    let paged = on_terminal(&["diff", "writes"], "ADJ_PAGER", "sed 's/^/paged /'");
    assert!(paged.contains("paged ") && paged.contains("new.txt"), "{paged}");
    let plain = on_terminal(&["diff", "--no-pager", "writes"], "ADJ_PAGER", "sed 's/^/paged /'");
    assert!(!plain.contains("paged ") && plain.contains("new.txt"), "{plain}");
    let missing = on_terminal(&["diff", "writes"], "ADJ_PAGER", "no-such-pager");
    assert!(missing.contains("cannot be started") && missing.contains("new.txt"), "{missing}");
    let opened = on_terminal(&["open", "writes"], "VISUAL", "ls -1");
    assert!(opened.contains("new.txt"), "{opened}");
    let shell = on_terminal(&["open", "--shell", "writes"], "SHELL", "ls -1");
    assert!(shell.contains("lines.txt"), "{shell}");
}
