//! What a peer reaches: only what is shared with it, under its own name, until that ends.

use super::{Pair, add};
use crate::support::{PATIENCE, TestHome};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Sends a request with a token, and returns its connection.
fn open(port: u16, token: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = announce(port, token, path, body.len());
    stream.write_all(body.as_bytes()).expect("sent");
    stream
}

/// Sends the head of a request with a token, and returns its connection.
fn announce(port: u16, token: &str, path: &str, body_bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the hub listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {body_bytes}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream
}

fn read(mut stream: TcpStream) -> (u16, Value) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a reply");
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_default();
    (
        status,
        serde_json::from_str(text.split_once("\r\n\r\n").map_or("", |(_, body)| body))
            .unwrap_or_default(),
    )
}

fn send(port: u16, token: &str, path: &str, body: &Value) -> (u16, Value) {
    read(open(port, token, path, &body.to_string()))
}

#[test]
fn peer_sees_only_what_is_shared_with_it() {
    let pair = Pair::strangers();
    let token = pair.invite();
    for title in ["plans", "secret"] {
        pair.office.ok(&["chat", "start", title]);
    }
    pair.office.ok(&["chat", "post", "2", "a secret"]);
    pair.office.ok(&["chat", "share", "1", "lab"]);
    let (status, list) = send(pair.port, &token, "/peer/v1/chats", &json!({}));
    assert_eq!(
        (
            status,
            list["chats"].as_array().map(Vec::len),
            &list["chats"][0]["chat"]
        ),
        (200, Some(1), &json!(1)),
        "{list}"
    );
    // A chat that is not shared and one that does not exist are the same.
    for (path, more) in [
        ("/peer/v1/entries", json!({"after": 0})),
        (
            "/peer/v1/post",
            json!({"key": "k", "participant": "a", "text": "x"}),
        ),
    ] {
        let mut seen = Vec::new();
        for chat in [2, 99] {
            let mut body = more.clone();
            body["chat"] = json!(chat);
            let (status, problem) = send(pair.port, &token, path, &body);
            seen.push((status, problem.to_string().replace(&chat.to_string(), "N")));
        }
        assert!(seen[0].0 == 404 && seen[0] == seen[1], "{path}: {seen:?}");
    }
    // Nothing else exists for the token of a peer, and the calls of peers exist for no other token.
    for path in [
        "/api/v1/chats",
        "/api/v1/chat",
        "/api/v1/say",
        "/api/v1/runs",
        "/api/v1/peers",
        "/api/v1/events",
        "/api/v1/openapi.json",
        "/mcp",
        "/peer/v1/other",
    ] {
        assert_eq!(send(pair.port, &token, path, &json!({})).0, 404, "{path}");
    }
    let person = pair
        .office
        .json(&["token", "new", "all", "--role", "person"])["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    assert_eq!(
        send(pair.port, &person, "/peer/v1/chats", &json!({})).0,
        404
    );
    assert_eq!(
        send(pair.port, "adj_wrong", "/peer/v1/chats", &json!({})).0,
        401
    );
}

#[test]
fn peer_cannot_speak_for_others() {
    let pair = Pair::new();
    let token = pair.invite();
    let post = |participant: &str, key: &str| {
        send(
            pair.port,
            &token,
            "/peer/v1/post",
            &json!({"chat": 1, "key": key, "participant": participant, "text": "it was them"}),
        )
        .1
    };
    for (forged, key) in [
        "other/person",
        "a\nb",
        "person\u{202e}",
        "peer:x/y",
        "",
        "a b",
        "../x",
        &"a".repeat(51),
    ]
    .iter()
    .zip('a'..)
    {
        let outcome = post(forged, &key.to_string());
        assert!(
            outcome["refused"].is_string() && outcome["seq"].is_null(),
            "{forged:?}: {outcome}"
        );
    }
    assert!(Pair::said(&pair.office, "1").is_empty());
    let first = post("person", "key");
    assert_eq!(
        (&first, &post("person", "key")),
        (&json!({"seq": 1}), &json!({"seq": 1})),
        "a repeated post has one effect"
    );
    assert_eq!(
        Pair::said(&pair.office, "1"),
        [("peer:lab/person".to_owned(), "it was them".to_owned())]
    );
    let shown = pair.office.ok(&["chat", "show", "1"]);
    assert!(shown.contains("lab/person"), "{shown}");
}

#[test]
fn message_of_a_peer_starts_nothing_here() {
    let pair = Pair::strangers();
    pair.connect();
    pair.office
        .ok(&["chat", "start", "plans", "--with", "echo"]);
    pair.office.ok(&["chat", "share", "1", "lab"]);
    pair.lab.ok(&["chat", "follow", "office", "1"]);
    pair.lab.ok(&["chat", "post", "1", "@echo please run this"]);
    Pair::until_said(
        &pair.office,
        &[("peer:lab/person", "@echo please run this")],
    );
    assert_eq!(pair.office.json(&["ps", "-a"]), json!([]));
    assert_eq!(pair.office.json(&["chat", "stats", "1"])["open"], 0);
}

#[test]
fn key_of_a_post_is_good_for_one_chat_and_outlives_the_peer() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "start", "other"]);
    pair.office.ok(&["chat", "share", "2", "lab"]);
    let post = |token: &str, chat: i64| {
        send(
            pair.port,
            token,
            "/peer/v1/post",
            &json!({"chat": chat, "key": "key", "participant": "person", "text": "once"}),
        )
        .1
    };
    let token = pair.invite();
    assert_eq!(post(&token, 1), json!({"seq": 1}));
    let other = post(&token, 2);
    assert!(
        other["refused"].is_string() && other["seq"].is_null(),
        "{other}"
    );
    pair.office.ok(&["peer", "remove", "lab"]);
    let token = pair.invite();
    pair.office.ok(&["chat", "share", "1", "lab"]);
    assert_eq!(
        post(&token, 1),
        json!({"seq": 1}),
        "a reply that was lost before the removal"
    );
    assert_eq!(Pair::said(&pair.office, "1").len(), 1);
}

// How much a peer may post in which time is tested without a hub, whose speed would matter.
#[test]
fn peer_that_posts_too_much_is_slowed_down() {
    let pair = Pair::new();
    let token = pair.invite();
    let path = "/peer/v1/post";
    let body = |key: &str| {
        json!({"chat": 1, "key": key, "participant": "person", "text": "x"}).to_string()
    };
    let posts: Vec<(String, TcpStream)> = ["first", "second", "third"]
        .map(|key| {
            let body = body(key);
            let stream = announce(pair.port, &token, path, body.len());
            (body, stream)
        })
        .into();
    // Two of them may be under way, whichever heads the hub reads first.
    let (replied, replies) = mpsc::channel();
    std::thread::scope(|scope| {
        for (n, (_, stream)) in posts.iter().enumerate() {
            let replied = replied.clone();
            scope.spawn(move || {
                stream.peek(&mut [0]).expect("a reply");
                replied.send(n).expect("it is awaited");
            });
        }
        let refused = replies.recv().expect("a post is refused");
        let (status, reply) = read(posts[refused].1.try_clone().expect("a copy"));
        assert_eq!((status, &reply["code"]), (429, &json!("limit")), "{reply}");
        for (n, (body, stream)) in posts.iter().enumerate() {
            if n != refused {
                let mut writer = stream;
                writer.write_all(body.as_bytes()).expect("sent");
                assert_eq!(read(stream.try_clone().expect("a copy")).0, 200);
            }
        }
    });
    assert_eq!(Pair::said(&pair.office, "1").len(), 2);
}

#[test]
fn revoked_token_of_a_peer_is_shown_and_replaced() {
    let pair = Pair::new();
    assert_eq!(
        pair.office.json(&["peer", "show", "lab"])["peer"]["may_connect"],
        true
    );
    pair.office.ok(&["token", "revoke", "peer-lab"]);
    assert_eq!(
        pair.office.json(&["peer", "show", "lab"])["peer"]["may_connect"],
        false
    );
    pair.office.ok(&["chat", "post", "1", "unheard"]);
    pair.lab.until("the refusal is shown", || {
        let page = pair.lab.json(&["chat", "show", "1"]);
        page["chat"]["followed"]["problem"]
            .as_str()
            .filter(|problem| problem.contains("token"))
            .map(|_| ())
    });
    pair.connect();
    Pair::until_said(&pair.lab, &[("peer:office/person", "unheard")]);
}

#[test]
fn branch_of_a_shared_chat_stays_unknown_to_peers() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "zero"]);
    pair.office.ok(&["chat", "branch", "1", "a secret title"]);
    pair.office.ok(&["chat", "post", "2", "in the branch"]);
    pair.office.ok(&["chat", "post", "1", "one"]);
    pair.lab.until("the chat arrives", || {
        (Pair::said(&pair.lab, "1")
            .last()
            .is_some_and(|(_, text)| text == "one"))
        .then_some(())
    });
    let all = format!("{:?}", Pair::said(&pair.lab, "1"));
    assert!(
        !all.contains("secret") && !all.contains("in the branch"),
        "{all}"
    );
    // A branch that is shared itself is followed from its own first entry.
    pair.office.ok(&["chat", "share", "2", "lab"]);
    pair.lab.ok(&["chat", "follow", "office", "2"]);
    pair.lab.until("the branch arrives", || {
        (Pair::said(&pair.lab, "2")
            .last()
            .is_some_and(|(_, text)| text == "in the branch"))
        .then_some(())
    });
}

#[test]
fn reader_does_not_post() {
    let pair = Pair::new();
    pair.office
        .ok(&["chat", "share", "1", "lab", "--read-only"]);
    pair.lab.ok(&["chat", "post", "1", "may I?"]);
    pair.lab.until("the post is refused", || {
        (pair.outgoing() == [("may I?".to_owned(), "refused".to_owned())]).then_some(())
    });
    let shown = pair.lab.ok(&["chat", "show", "1"]);
    assert!(
        shown.contains("refused: office: ")
            && shown.contains("for reading only")
            && shown.contains("may I?"),
        "{shown}"
    );
    pair.office.ok(&["chat", "post", "1", "no"]);
    Pair::until_said(&pair.lab, &[("peer:office/person", "no")]);
}

/// Opens a wait for entries, and returns how long it lasts after `ended`.
fn wait_ended_by(pair: &Pair, token: &str, ended: impl FnOnce()) -> (u16, Duration) {
    let stream = open(
        pair.port,
        token,
        "/peer/v1/entries",
        &json!({"chat": 1, "after": 0, "wait_ms": 50_000}).to_string(),
    );
    // The next reply is complete after the hub has received the wait.
    assert_eq!(send(pair.port, token, "/peer/v1/chats", &json!({})).0, 200);
    let before = Instant::now();
    ended();
    (read(stream).0, before.elapsed())
}

#[test]
fn end_of_access_ends_open_waits() {
    let pair = Pair::strangers();
    let token = pair.invite();
    pair.office.ok(&["chat", "start", "plans"]);
    let share = || drop(pair.office.ok(&["chat", "share", "1", "lab"]));
    share();
    let (status, time) = wait_ended_by(&pair, &token, || {
        drop(pair.office.ok(&["chat", "unshare", "1", "lab"]))
    });
    assert!(
        status == 404 && time < Duration::from_secs(10),
        "{status} {time:?}"
    );
    share();
    let (status, time) = wait_ended_by(&pair, &token, || {
        drop(pair.office.ok(&["peer", "block", "lab"]))
    });
    assert!(
        status == 404 && time < Duration::from_secs(10),
        "{status} {time:?}"
    );
    assert_eq!(
        send(pair.port, &token, "/peer/v1/chats", &json!({})).1,
        json!({"chats": []})
    );
    pair.office.ok(&["peer", "unblock", "lab"]);
    let (_, time) = wait_ended_by(&pair, &token, || {
        drop(pair.office.ok(&["peer", "remove", "lab"]))
    });
    assert!(time < Duration::from_secs(10), "{time:?}");
    assert_eq!(send(pair.port, &token, "/peer/v1/chats", &json!({})).0, 401);
}

#[test]
fn blocked_peer_exchanges_nothing_until_unblocked() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "zero"]);
    Pair::until_said(&pair.lab, &[("peer:office/person", "zero")]);
    pair.lab.ok(&["peer", "block", "office"]);
    pair.office.ok(&["chat", "post", "1", "unheard"]);
    pair.lab.ok(&["chat", "post", "1", "waiting"]);
    assert_eq!(
        pair.outgoing(),
        [("waiting".to_owned(), "waiting".to_owned())]
    );
    assert_eq!(Pair::said(&pair.lab, "1").len(), 1);
    pair.lab.ok(&["peer", "unblock", "office"]);
    Pair::until_said(
        &pair.office,
        &[
            ("person", "zero"),
            ("person", "unheard"),
            ("peer:lab/person", "waiting"),
        ],
    );
    Pair::until_said(
        &pair.lab,
        &[
            ("peer:office/person", "zero"),
            ("peer:office/person", "unheard"),
            ("person", "waiting"),
        ],
    );
}

#[test]
fn removed_peer_leaves_a_copy() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "zero"]);
    Pair::until_said(&pair.lab, &[("peer:office/person", "zero")]);
    pair.lab.ok(&["peer", "block", "office"]);
    pair.lab.ok(&["chat", "post", "1", "never sent"]);
    let secrets = || std::fs::read_dir(pair.lab.home.peers_dir()).map_or(0, Iterator::count);
    assert_eq!(secrets(), 1);
    pair.lab.ok(&["peer", "remove", "office"]);
    assert_eq!(secrets(), 0, "the token is removed");
    let page = pair.lab.json(&["chat", "show", "1"]);
    assert_eq!(page["chat"]["followed"]["ended"], true, "{page}");
    assert_eq!(page["messages"][0]["text"], "zero", "{page}");
    assert_eq!(
        page["chat"]["outgoing"][0]["problem"], "the peer office was removed",
        "{page}"
    );
    assert!(
        pair.lab
            .adj(&["chat", "post", "1", "more"])
            .err
            .contains("is no longer updated")
    );
}

#[test]
fn copy_cannot_be_shared_and_secrets_are_not_shown() {
    let pair = Pair::strangers();
    let token = pair.invite();
    add(&pair.lab, "office", &pair.url(), &token).expect("added");
    pair.office.ok(&["chat", "start", "plans"]);
    pair.office.ok(&["chat", "share", "1", "lab"]);
    pair.lab.ok(&["chat", "follow", "office", "1"]);
    pair.lab.ok(&["peer", "invite", "third"]);
    let refused = pair.lab.adj(&["chat", "share", "1", "third"]);
    assert!(
        refused.code != 0 && refused.err.contains("only that hub can share it"),
        "{refused:?}"
    );
    for home in [&pair.office, &pair.lab] {
        for args in [
            &["peer", "list", "--json"][..],
            &["token", "list", "--json"],
        ] {
            assert!(!home.ok(args).contains(&token));
        }
    }
    assert_eq!(
        files_with(&pair.office, &token),
        0,
        "the issuer has only the hash"
    );
    assert_eq!(
        files_with(&pair.lab, &token),
        1,
        "only the private file has the token"
    );
    let secret = std::fs::read_dir(pair.lab.home.peers_dir())
        .expect("a directory")
        .next()
        .expect("a file")
        .expect("an entry")
        .path();
    assert_eq!(std::fs::read(&secret).expect("read"), token.as_bytes());
    assert_eq!(
        std::fs::metadata(&secret)
            .expect("a file")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    let refused = add(&pair.lab, "office", "http://192.0.2.1:7317", &token).expect_err("refused");
    assert!(refused.message.contains("plain text"), "{refused:?}");
}

/// Counts the files of a home that contain a text.
fn files_with(home: &TestHome, text: &str) -> usize {
    let mut found = 0;
    let mut dirs = vec![home.home.dir.clone()];
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(dir)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
        {
            if path.is_dir() {
                dirs.push(path);
            } else if std::fs::read(&path).is_ok_and(|bytes| {
                bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            }) {
                found += 1;
            }
        }
    }
    found
}
