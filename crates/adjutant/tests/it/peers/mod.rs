//! Chats between hubs: two real hubs on loopback, each with its own home.

mod access;
mod hostile;
mod kills;
mod offline;
mod silence;
mod tls;

use crate::support::TestHome;
use crate::terminal::Terminal;
use adjutant_api::view::{AddPeer, Call, ErrorView, GetHub};
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A hub whose chats another hub follows. Its address stays the same when it is started again.
struct Pair {
    /// The hub with the chat.
    office: TestHome,
    /// The hub that follows it.
    lab: TestHome,
    port: u16,
}

impl Pair {
    /// Makes the hubs known to each other. Chat 1 of the office is shared, and followed by the lab
    /// as its chat 1.
    fn new() -> Self {
        let pair = Self::strangers();
        pair.connect();
        pair.office.ok(&["chat", "start", "plans"]);
        pair.office.ok(&["chat", "share", "1", "lab"]);
        pair.lab.ok(&["chat", "follow", "office", "1"]);
        pair
    }

    /// Starts two hubs that do not know each other.
    fn strangers() -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let office = TestHome::with_config(&format!("listen = \"127.0.0.1:{port}\"\n"));
        office.ok(&["ps"]);
        Self {
            office,
            lab: TestHome::new(),
            port,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Invites the lab, and returns its token.
    fn invite(&self) -> String {
        self.office.json(&["peer", "invite", "lab"])["token"]
            .as_str()
            .expect("a token")
            .to_owned()
    }

    fn connect(&self) {
        let token = self.invite();
        add(&self.lab, "office", &self.url(), &token).expect("added");
    }

    /// Returns the author and text of each message of a chat.
    fn said(home: &TestHome, chat: &str) -> Vec<(String, String)> {
        let page = home.json(&["chat", "show", chat, "--after", "0"]);
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        page["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .map(|entry| (text(&entry["from"]), text(&entry["text"])))
            .collect()
    }

    fn until_said(home: &TestHome, expected: &[(&str, &str)]) {
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(from, text)| ((*from).to_owned(), (*text).to_owned()))
            .collect();
        home.until(&format!("{expected:?} are in the chat"), || {
            (Self::said(home, "1") == expected).then_some(())
        });
    }

    /// Returns the posts of the lab that are not entries, with their states.
    fn outgoing(&self) -> Vec<(String, String)> {
        let page = self.lab.json(&["chat", "show", "1"]);
        let posts = page["chat"]["outgoing"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        posts
            .iter()
            .map(|post| (text(&post["text"]), text(&post["state"])))
            .collect()
    }
}

fn add(
    home: &TestHome,
    name: &str,
    url: &str,
    token: &str,
) -> Result<<AddPeer as Call>::Reply, ErrorView> {
    home.ok(&["ps"]);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let call = AddPeer {
        name: name.to_owned(),
        url: url.to_owned(),
        token: token.to_owned(),
        fingerprint: None,
        plain: false,
    };
    home.call(
        &call,
        &format!("add-{}", CALLS.fetch_add(1, Ordering::Relaxed)),
    )
}

fn kill_hub(home: &TestHome) {
    let pid = home.hub_pid();
    crate::support::kill(pid);
    home.until("the hub is dead", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
}

/// Replaces the hub of a home by one that dies at a failpoint.
fn arm(home: &TestHome, failpoint: &str) -> Child {
    home.ok(&["stop"]);
    let file = home.work().join(failpoint);
    let mut hub = home.command(&["__hub"]);
    hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", file.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let hub = hub.spawn().expect("a hub");
    home.until("the hub takes calls", || {
        home.call(&GetHub {}, "")
            .ok()
            .filter(|found| found.pid == hub.id())
    });
    hub
}

#[test]
fn messages_travel_in_both_directions() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "shall we start?"]);
    Pair::until_said(&pair.lab, &[("peer:office/person", "shall we start?")]);
    pair.lab
        .ok(&["chat", "post", "1", "yes", "--reply-to", "1"]);
    Pair::until_said(
        &pair.office,
        &[("person", "shall we start?"), ("peer:lab/person", "yes")],
    );
    Pair::until_said(
        &pair.lab,
        &[("peer:office/person", "shall we start?"), ("person", "yes")],
    );
    assert!(
        pair.outgoing().is_empty(),
        "a post that has arrived is an entry"
    );
    let page = pair.office.json(&["chat", "show", "1"]);
    assert_eq!(
        (
            &page["messages"][1]["name"],
            &page["messages"][1]["reply_to"]
        ),
        (&"lab/person".into(), &1.into()),
        "{page}"
    );
    assert_eq!(page["chat"]["shared_with"][0]["peer"], "lab", "{page}");
    let page = pair.lab.json(&["chat", "show", "1"]);
    assert_eq!(
        (&page["chat"]["title"], &page["messages"][0]["name"]),
        (&"plans".into(), &"office/person".into()),
        "{page}"
    );
}

#[test]
fn only_messages_of_others_are_unread() {
    let pair = Pair::new();
    let unread = |home: &TestHome| home.json(&["chat", "ls"])[0]["unread"].clone();
    let messages = |home: &TestHome, count: i64| {
        home.until("the message arrives", || {
            (home.json(&["chat", "ls"])[0]["last_seq"] == count).then_some(())
        });
        unread(home)
    };
    pair.office.ok(&["chat", "post", "1", "shall we start?"]);
    assert_eq!(messages(&pair.lab, 1), 1);
    pair.lab.ok(&["chat", "show", "1"]);
    assert_eq!(unread(&pair.lab), 0);
    pair.lab.ok(&["chat", "post", "1", "yes"]);
    assert_eq!(messages(&pair.office, 2), 1);
    assert_eq!(
        messages(&pair.lab, 2),
        0,
        "a post is not unread for its own hub"
    );
}

#[test]
fn edits_and_pins_arrive() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "befor"]);
    Pair::until_said(&pair.lab, &[("peer:office/person", "befor")]);
    pair.office.ok(&["chat", "edit", "1.1", "before"]);
    pair.office.ok(&["chat", "pin", "1.1"]);
    Pair::until_said(&pair.lab, &[("peer:office/person", "before")]);
    pair.lab.until("the pin arrives", || {
        (pair.lab.json(&["chat", "show", "1"])["messages"][0]["pinned"] == true).then_some(())
    });
    let refused = pair.lab.adj(&["chat", "edit", "1.1", "mine"]);
    assert!(
        refused.code != 0 && refused.err.contains("only on its hub, office"),
        "{refused:?}"
    );
}

#[test]
fn history_arrives_from_the_beginning() {
    let pair = Pair::strangers();
    pair.connect();
    pair.office.ok(&["chat", "start", "plans"]);
    let texts: Vec<String> = (0..12)
        .map(|n| format!("{n} {}", "x".repeat(100_000)))
        .collect();
    for (n, text) in texts.iter().enumerate() {
        let say = adjutant_api::view::Say {
            chat_id: Some(1),
            message: Some(text.clone()),
            ..adjutant_api::view::Say::default()
        };
        pair.office.call(&say, &format!("say-{n}")).expect("said");
    }
    pair.office.ok(&["chat", "share", "1", "lab"]);
    let shown = pair.lab.json(&["peer", "show", "office"]);
    assert_eq!(
        (&shown["chats"][0]["title"], &shown["chats"][0]["messages"]),
        (&"plans".into(), &12.into()),
        "{shown}"
    );
    assert_eq!(pair.lab.ok(&["chat", "follow", "office", "1"]).trim(), "1");
    assert_eq!(
        pair.lab.ok(&["chat", "follow", "office", "1"]).trim(),
        "1",
        "a second call finds the copy"
    );
    let expected: Vec<(&str, &str)> = texts
        .iter()
        .map(|text| ("peer:office/person", text.as_str()))
        .collect();
    Pair::until_said(&pair.lab, &expected);
}

#[test]
fn token_is_typed_at_a_terminal_without_an_echo() {
    let pair = Pair::strangers();
    let token = pair.invite();
    let url = pair.url();
    let add = ["peer", "add", "office", &url];
    let mut terminal = Terminal::sized(&pair.lab, &add, 24, 80);
    terminal.shows("adj peer invite on office");
    assert!(!terminal.has_echo());
    terminal.types("\u{3}");
    terminal.shows("cancelled");
    assert!(terminal.has_echo(), "the terminal is as before");
    assert_ne!(terminal.ends(), Some(0));
    assert_eq!(
        pair.lab.json(&["peer", "list"])["peers"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    let mut terminal = Terminal::sized(&pair.lab, &add, 24, 80);
    terminal.shows("adj peer invite on office");
    terminal.types(&format!("{token}\n"));
    let rest = terminal.rest();
    assert!(
        !rest.contains(&token) && rest.contains(&url) && !rest.contains("cannot"),
        "{rest}"
    );
    let missing = pair.lab.adj(&add);
    assert!(
        missing.code != 0 && missing.err.contains("--token-file"),
        "{missing:?}"
    );
}
