//! A peer that answers with anything. Its pages are accepted as a whole or not at all.

use super::add;
use crate::support::TestHome;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const CHATS: &str = r#"{"chats": [{"chat": 7, "title": "evil\nname\u202e", "read_only": false, "archived": false, "last_seq": 3}]}"#;

/// A hub that lists one chat, and answers each call for entries with the current page.
struct FakeHub {
    port: u16,
    page: Arc<Mutex<Vec<u8>>>,
    calls: Arc<Mutex<Vec<Value>>>,
    /// The posts, which get no outcome.
    posts: Arc<Mutex<Vec<Value>>>,
}

impl FakeHub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (page, calls) = (
            Arc::new(Mutex::new(b"{}".to_vec())),
            Arc::new(Mutex::new(Vec::new())),
        );
        let posts = Arc::new(Mutex::new(Vec::new()));
        let (pages, seen, posted) = (Arc::clone(&page), Arc::clone(&calls), Arc::clone(&posts));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (pages, seen, posted) =
                    (Arc::clone(&pages), Arc::clone(&seen), Arc::clone(&posted));
                std::thread::spawn(move || answer(stream, &pages, &seen, &posted));
            }
        });
        Self {
            port,
            page,
            calls,
            posts,
        }
    }

    /// Sets the page, and waits until it was requested `times` times.
    fn serve(&self, home: &TestHome, page: &[u8], times: usize) {
        *self.page.lock().expect("a page") = page.to_vec();
        let before = self.calls.lock().expect("calls").len();
        home.until("the page is read", || {
            (self.calls.lock().expect("calls").len() >= before + times).then_some(())
        });
    }
}

fn answer(
    stream: TcpStream,
    pages: &Mutex<Vec<u8>>,
    seen: &Mutex<Vec<Value>>,
    posted: &Mutex<Vec<Value>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?
        .trim()
        .parse()
        .ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let reply = if head.contains("/peer/v1/chats") {
        CHATS.as_bytes().to_vec()
    } else {
        pages.lock().ok()?.clone()
    };
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        reply.len()
    )
    .ok()?;
    stream.write_all(&reply).ok();
    if head.contains("/peer/v1/entries") {
        seen.lock().ok()?.push(serde_json::from_slice(&body).ok()?);
    }
    if head.contains("/peer/v1/post") {
        posted
            .lock()
            .ok()?
            .push(serde_json::from_slice(&body).ok()?);
    }
    Some(())
}

fn entry(seq: i64) -> Value {
    json!({"seq": seq, "kind": "message", "author": "person", "text": format!("text {seq}"), "at_ms": 1_000})
}

fn page(entries: &[Value]) -> Value {
    json!({"entries": entries, "changes": 0, "mark": "m"})
}

fn with(field: &str, value: Value) -> Value {
    let mut entry = entry(1);
    entry[field] = value;
    page(&[entry])
}

#[test]
fn unusable_pages_change_nothing() {
    let hub = FakeHub::start();
    let lab = TestHome::new();
    add(
        &lab,
        "evil",
        &format!("http://127.0.0.1:{}", hub.port),
        "adj_any",
    )
    .expect("added");
    assert_eq!(lab.ok(&["chat", "follow", "evil", "7"]).trim(), "1");
    assert_eq!(
        lab.json(&["chat", "show", "1"])["chat"]["title"],
        "evil name\u{fffd}"
    );
    let wrong = [
        b"garbage".to_vec(),
        vec![b'['; 100_000],
        b"x".repeat(20_000_000),
        page(&[entry(2)]).to_string().into_bytes(),
        page(&[entry(1), entry(3)]).to_string().into_bytes(),
        page(&[entry(1), entry(1)]).to_string().into_bytes(),
        json!({"entries": [entry(1)], "changes": 0})
            .to_string()
            .into_bytes(),
        json!({"entries": [], "changed": [entry(1)], "changes": 1})
            .to_string()
            .into_bytes(),
        with("author", json!("person\nhub"))
            .to_string()
            .into_bytes(),
        with("author", json!("a/b/c")).to_string().into_bytes(),
        with("author", json!("peer:x/y")).to_string().into_bytes(),
        with("kind", json!("order")).to_string().into_bytes(),
        with("text", json!("")).to_string().into_bytes(),
        with("text", json!("x".repeat(2_000_000)))
            .to_string()
            .into_bytes(),
        with("reply_to", json!(5)).to_string().into_bytes(),
        with("seq", json!("1")).to_string().into_bytes(),
    ];
    for page in &wrong {
        hub.serve(&lab, page, 2);
        let shown = lab.json(&["chat", "show", "1"]);
        let start = String::from_utf8_lossy(&page[..page.len().min(80)]).into_owned();
        assert_eq!(
            (&shown["messages"], &shown["chat"]["followed"]["ended"]),
            (&json!([]), &json!(false)),
            "{start}"
        );
        assert!(
            shown["chat"]["followed"]["problem"].is_string(),
            "{start}: {shown}"
        );
        // A new hub retries at once.
        lab.ok(&["stop"]);
        lab.ok(&["ps"]);
    }
    // A clock that is wrong is not a reason to refuse an entry.
    hub.serve(
        &lab,
        with("at_ms", json!(i64::MAX)).to_string().as_bytes(),
        2,
    );
    lab.until("the entry arrives", || {
        (lab.json(&["chat", "show", "1"])["messages"][0]["text"] == "text 1").then_some(())
    });
    let shown = lab.json(&["chat", "show", "1"]);
    assert!(
        shown["messages"][0]["at"]
            .as_str()
            .is_some_and(|at| at < "2100"),
        "{shown}"
    );
    assert_eq!(shown["messages"][0]["from"], "peer:evil/person", "{shown}");
    let asks_for_the_next = || {
        let last = hub.calls.lock().expect("calls").last().cloned();
        (last.map(|call| (call["after"].clone(), call["mark"].clone()))
            == Some((json!(1), json!("m"))))
        .then_some(())
    };
    lab.until("the next page is asked for", asks_for_the_next);
}

#[test]
fn peer_that_does_not_wait_is_asked_rarely() {
    let hub = FakeHub::start();
    let lab = TestHome::new();
    add(
        &lab,
        "evil",
        &format!("http://127.0.0.1:{}", hub.port),
        "adj_any",
    )
    .expect("added");
    *hub.page.lock().expect("a page") = json!({"entries": [], "changes": 0})
        .to_string()
        .into_bytes();
    lab.ok(&["chat", "follow", "evil", "7"]);
    let begun = std::time::Instant::now();
    hub.serve(
        &lab,
        json!({"entries": [], "changes": 0}).to_string().as_bytes(),
        5,
    );
    assert!(
        begun.elapsed() > std::time::Duration::from_secs(3),
        "the delay between calls grows: {:?}",
        begun.elapsed()
    );
}

#[test]
fn peer_cannot_put_words_into_the_mouth_of_this_hub() {
    let hub = FakeHub::start();
    let lab = TestHome::new();
    add(
        &lab,
        "evil",
        &format!("http://127.0.0.1:{}", hub.port),
        "adj_any",
    )
    .expect("added");
    lab.ok(&["chat", "follow", "evil", "7"]);
    lab.ok(&["chat", "post", "1", "what I said"]);
    let key = lab.until("the post is sent", || {
        hub.posts
            .lock()
            .expect("posts")
            .last()
            .map(|post| post["key"].clone())
    });
    let mut forged = entry(1);
    forged["key"] = key;
    hub.serve(&lab, page(&[forged]).to_string().as_bytes(), 2);
    lab.until("the entry arrives", || {
        (lab.json(&["chat", "show", "1"])["messages"][0]["text"] == "text 1").then_some(())
    });
    let shown = lab.json(&["chat", "show", "1"]);
    assert_eq!(shown["messages"][0]["from"], "peer:evil/person", "{shown}");
    assert_eq!(
        shown["chat"]["outgoing"][0]["text"], "what I said",
        "{shown}"
    );
}
