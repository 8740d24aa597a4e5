//! Reviewing a run's changes: comments, `adj open`, the pager.

use super::{named_repository, refused, run};
use crate::terminal::Terminal;

#[test]
fn comments_are_one_message_with_the_lines_quoted() {
    let home = named_repository();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "writes",
        "write one.txt first\nask \"go on?\"\nsay done",
    ]);
    home.until_status("writes", "waiting_parent_reply");
    home.ok(&["diff", "writes"]);
    let sent = home.json(&[
        "comment",
        "writes",
        "one.txt:1",
        "say it twice",
        "lines.txt:3",
        "why three?",
    ]);
    assert_eq!(sent["run_name"], "writes", "{sent}");
    let text = sent["text"].as_str().expect("a text");
    assert_eq!(
        text,
        "Comments on your changes:\n\none.txt, line 1:\n    first\nComment: say it twice\n\nlines.txt, line 3:\n    line 3\nComment: why three?\n"
    );
    refused(
        &home.adj(&["comment", "writes", "one.txt:9", "x"]),
        2,
        &["has no line 9"],
    );
    refused(
        &home.adj(&["comment", "writes", "none.txt:1", "x"]),
        2,
        &["is not a file"],
    );
    refused(
        &home.adj(&["comment", "writes", "one.txt", "x"]),
        2,
        &["is not FILE:LINE"],
    );
    refused(
        &home.adj(&["comment", "writes", "one.txt:1", "x", "two.txt:1"]),
        2,
        &["has no text"],
    );
}

#[test]
fn comments_resume_a_stopped_run() {
    let home = named_repository();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "stops",
        "write one.txt first\nsay ready\nhang\nresume-here\nsay done",
    ]);
    home.until_log("stops", "ready");
    home.ok(&["pause", "stops"]);
    home.until("it is stopped", || {
        Some(()).filter(|()| home.show("stops")["state"] == "stopped")
    });
    let said = home.ok(&["comment", "stops", "one.txt:1", "say it twice"]);
    assert!(said.contains("resumed stops with the comments"), "{said}");
    let view = home.finished("stops");
    assert_eq!(
        (view["outcome"].as_str(), view["attempt"].as_u64()),
        (Some("succeeded"), Some(2)),
        "{view}"
    );
    assert!(
        home.log("stops").contains("Comment: say it twice"),
        "{}",
        home.log("stops")
    );
}

/// A finished run never changes: a follow-up run works in its workspace, and is merged with it.
#[test]
fn comments_on_a_finished_run_start_a_follow_up() {
    let home = named_repository();
    run(&home, &[("writes", "echo first > one.txt")]);
    let before = home.show("writes");
    let commented = home.json(&[
        "comment",
        "writes",
        "one.txt:1",
        "write second\ndo echo second > one.txt",
    ]);
    let follow_up = commented["follow_up"].as_str().expect("a run").to_owned();
    let view = home.finished(&follow_up);
    assert_eq!(
        (&view["cwd"], &view["retry_of"]),
        (&before["cwd"], &before["run_id"]),
        "{view}"
    );
    assert_eq!(
        home.json(&["stats"])["total"]["retried"],
        0,
        "comments are another task"
    );
    let task = commented["text"].as_str().expect("a text");
    assert!(
        task.contains(
            "one.txt, line 1:\n    first\nComment: write second do echo second > one.txt"
        ),
        "{task}"
    );
    let refused_merge = home.adj(&["merge", &follow_up]);
    refused(&refused_merge, 2, &["works in the workspace of writes"]);
    std::fs::write(
        std::path::Path::new(before["cwd"].as_str().expect("a directory")).join("one.txt"),
        "second\n",
    )
    .expect("a file");
    home.ok(&["merge", "writes"]);
    assert_eq!(
        std::fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "second\n"
    );
    home.ok(&["discard", "writes"]);
    refused(
        &home.adj(&["comment", "writes", "one.txt:1", "again"]),
        7,
        &["its workspace is removed", "adj retry writes"],
    );
}

#[test]
fn open_prints_the_path_without_a_terminal() {
    let home = named_repository();
    run(&home, &[("writes", "echo new > new.txt")]);
    let path = home.show("writes")["workspace"]["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    assert_eq!(home.ok(&["open", "writes"]).trim_end(), path);
    home.ok(&["discard", "writes"]);
    refused(
        &home.adj(&["open", "writes"]),
        7,
        &["the workspace of writes is removed", "--branch"],
    );
}

#[test]
fn terminal_gets_the_pager_and_the_editor_of_the_user() {
    let home = named_repository();
    run(&home, &[("writes", "echo new > new.txt")]);
    let on_terminal = |args: &[&str], variable: &str, value: &str| {
        let mut command = home.command(args);
        command
            .env(variable, value)
            .env("TERM", "xterm")
            .env_remove("CLAUDECODE");
        Terminal::of(command).rest()
    };
    let paged = on_terminal(&["diff", "writes"], "ADJ_PAGER", "sed 's/^/paged /'");
    assert!(
        paged.contains("paged ") && paged.contains("new.txt"),
        "{paged}"
    );
    let plain = on_terminal(
        &["diff", "--no-pager", "writes"],
        "ADJ_PAGER",
        "sed 's/^/paged /'",
    );
    assert!(
        !plain.contains("paged ") && plain.contains("new.txt"),
        "{plain}"
    );
    let missing = on_terminal(&["diff", "writes"], "ADJ_PAGER", "no-such-pager");
    assert!(
        missing.contains("cannot be started") && missing.contains("new.txt"),
        "{missing}"
    );
    let opened = on_terminal(&["open", "writes"], "VISUAL", "ls -1");
    assert!(opened.contains("new.txt"), "{opened}");
    let shell = on_terminal(&["open", "--shell", "writes"], "SHELL", "ls -1");
    assert!(shell.contains("lines.txt"), "{shell}");
}
