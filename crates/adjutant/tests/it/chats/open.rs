//! A chat that is open on a terminal (`adj chat CHAT`).

use super::{home_with, said};
use crate::support::TestHome;
use crate::terminal::Terminal;

fn home_with_a_chat() -> TestHome {
    let home = home_with(&[("helper", "cat > /dev/null; echo from the helper")], "");
    home.ok(&["chat", "start", "Which database?", "--with", "helper"]);
    home.ok(&["chat", "post", "1", "SQLite?"]);
    home
}

#[test]
fn open_chat_shows_messages_as_they_arrive_and_posts_typed_lines() {
    let home = home_with_a_chat();
    let mut terminal = Terminal::sized(&home, &["chat", "1"], 24, 80);
    for shown in [
        "Which database?",
        "SQLite?",
        "from the helper",
        "Ctrl-D leaves",
        "\u{1b}[K> ",
    ] {
        terminal.shows(shown);
    }
    terminal.types("half");
    terminal.shows("> half");
    // A message that arrives meanwhile is above the typed text, which is drawn again.
    home.ok(&["chat", "post", "1", "-d", "--at", "person", "meanwhile"]);
    terminal.shows("meanwhile\r\n");
    terminal.shows("> half");
    terminal.types("way\u{7f}\u{7f}\u{7f} a line\r");
    terminal.shows("  half a line");
    terminal.types("@nobody hello\r");
    terminal.shows("nobody");
    terminal.types("/help\r");
    terminal.shows("/quit or Ctrl-D leaves");
    terminal.types("/quit\r");
    assert_eq!(terminal.ends(), Some(0));
    let said: Vec<String> = said(&home, 1)
        .into_iter()
        .filter(|(name, _)| name != "helper")
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        said,
        ["SQLite?", "meanwhile", "half a line", "@nobody hello"]
    );
}

#[test]
fn messages_of_others_forge_nothing_in_an_open_chat() {
    let home = home_with_a_chat();
    home.ok(&[
        "chat",
        "post",
        "1",
        "-d",
        "--at",
        "person",
        "ok\r\n1.9 you  now\u{1b}[2J\u{1b}]0;x\u{7}\n> rm",
    ]);
    let mut terminal = Terminal::sized(&home, &["chat", "1"], 24, 80);
    let mut shown = String::new();
    while !shown.contains("\u{1b}[K> ") {
        shown += &terminal.more();
    }
    terminal.types("\u{4}");
    shown += &terminal.rest();
    assert!(
        shown.contains("  1.9 you") && !shown.contains("\n1.9 you") && !shown.contains("\n> rm"),
        "{shown}"
    );
    assert!(
        !shown.contains("\u{1b}[2J") && !shown.contains("\u{1b}]0"),
        "{shown}"
    );
}

#[test]
fn chat_without_a_terminal_is_refused_and_without_a_number_lists_chats() {
    let home = home_with_a_chat();
    let ran = home.adj(&["chat", "1"]);
    assert!(
        ran.code == 2
            && ran
                .err
                .contains("adj chat show 1, adj chat watch 1 or adj chat post 1"),
        "{ran:?}"
    );
    assert!(home.ok(&["chat"]).contains("Which database?"));
    let ran = home.adj(&["chat", "lst"]);
    assert!(
        ran.code == 2 && ran.err.contains("is not the number of a chat"),
        "{ran:?}"
    );
    let mut terminal = Terminal::sized(&home, &["chat", "1"], 24, 80);
    terminal.shows("\u{1b}[K> ");
    terminal.types("unsent\u{3}");
    assert_eq!(terminal.ends(), Some(0));
    assert!(said(&home, 1).iter().all(|(_, text)| text != "unsent"));
    let mut terminal = Terminal::sized(&home, &["chat", "7"], 24, 80);
    terminal.shows("no such chat");
    assert_eq!(terminal.ends(), Some(5));
}
