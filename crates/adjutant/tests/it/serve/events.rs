//! The event stream.

use super::{Caller, Site, read_head};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;

/// An open stream.
pub(super) struct Stream(BufReader<TcpStream>);

/// One event of a stream.
#[derive(Debug)]
pub(super) struct Event {
    kind: String,
    id: i64,
    pub(super) data: Value,
}

impl Stream {
    pub(super) fn open(caller: &Caller, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = caller.open("GET", &format!("/api/v1/events{query}"), headers, "");
        let (status, head) = read_head(&mut stream);
        assert!(
            status == 200 && head.contains("content-type: text/event-stream"),
            "{status} {head}"
        );
        Self(stream)
    }

    /// Reads the next event. `None`: the stream has ended.
    pub(super) fn next(&mut self) -> Option<Event> {
        let mut event = Event {
            kind: "message".to_owned(),
            id: -1,
            data: Value::Null,
        };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            // Chunk sizes and comments are skipped.
            match line.trim_end().split_once(": ") {
                Some(("event", kind)) => event.kind = kind.to_owned(),
                Some(("id", id)) => event.id = id.parse().expect("a position"),
                Some(("data", data)) => {
                    event.data = serde_json::from_str(data).expect("JSON");
                    return Some(event);
                }
                _ => {}
            }
        }
    }

    /// Reads events until one of this kind.
    pub(super) fn until(&mut self, kind: &str) -> Vec<Event> {
        let mut events = Vec::new();
        while events
            .last()
            .is_none_or(|event: &Event| event.data["kind"] != kind)
        {
            events.push(self.next().expect("the stream goes on"));
        }
        events
    }
}

#[test]
fn stream_resumes_after_a_kill_of_the_hub() {
    let mut site = Site::new();
    let token = site.token("parent", &[]);
    let parent = site.caller(&token);
    let mut stream = Stream::open(&parent, "", &[]);
    let first = stream.next().expect("a first event");
    assert_eq!(
        (first.kind.as_str(), &first.data["resumed"]),
        ("start", &json!(false))
    );
    parent.dispatch(&site.home.work(), "job", "ask \"Go on?\"\nsay done");
    let mut seen = stream.until("request.asked");
    site.kill_hub();
    while let Some(event) = stream.next() {
        seen.push(event);
    }
    site.revive();
    let parent = site.caller(&token);
    let last = seen.last().expect("events").id.to_string();
    let mut stream = Stream::open(&parent, "?since=0", &[("last-event-id", &last)]);
    let first = stream.next().expect("a first event");
    assert_eq!(
        (
            first.kind.as_str(),
            first.id.to_string(),
            &first.data["resumed"]
        ),
        ("start", last, &json!(true)),
        "the header counts"
    );
    parent.call(
        "answer",
        &json!({"answers": [{"run": "job", "answer": "yes"}]}),
    );
    seen.extend(stream.until("run.finished"));
    let ids: Vec<i64> = seen.iter().map(|event| event.id).collect();
    let history = parent.call("events", &json!({"limit": 5000}));
    let expected: Vec<i64> = history["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["seq"].as_i64())
        .collect();
    assert_eq!(ids, expected, "each once, in order");
}

#[test]
fn stream_shows_only_what_its_token_may_see() {
    let site = Site::new();
    let (one, other) = (
        site.caller(&site.token("one", &[])),
        site.caller(&site.token("other", &[])),
    );
    let reader = site.caller(&site.token("reader", &["--role", "read-only"]));
    one.dispatch(&site.home.work(), "mine", "say hi");
    site.home.finished("mine");
    other.dispatch(&site.home.work(), "theirs", "say hi");
    site.home.finished("theirs");
    let mut stream = Stream::open(&other, "?since=0", &[]);
    stream.next();
    assert!(
        stream
            .until("run.finished")
            .iter()
            .all(|event| event.data["run_name"] == "theirs")
    );
    let mut stream = Stream::open(&reader, "?since=0&run=mine", &[]);
    stream.next();
    assert!(
        stream
            .until("run.finished")
            .iter()
            .all(|event| event.data["run_name"] == "mine")
    );
    let (foreign, unknown) = (
        other.send("GET", "/api/v1/events?run=mine", &[], ""),
        other.send("GET", "/api/v1/events?run=nine", &[], ""),
    );
    assert_eq!(
        (foreign.status, foreign.body.replace("mine", "X")),
        (404, unknown.body.replace("nine", "X"))
    );
    // A position of another home is beyond the end, so the stream starts there.
    let mut stream = Stream::open(&one, "", &[("last-event-id", "999999999")]);
    assert_eq!(stream.next().expect("a first event").data["resumed"], false);
    for query in ["?since=-1", "?since=x", "?all=1", "?since="] {
        assert_eq!(
            one.send("GET", &format!("/api/v1/events{query}"), &[], "")
                .status,
            422,
            "{query}"
        );
    }
    assert_eq!(
        one.send("GET", "/api/v1/events", &[("authorization", "")], "")
            .status,
        401
    );
    assert_eq!(
        one.send(
            "GET",
            "/api/v1/events",
            &[("origin", "https://evil.example")],
            ""
        )
        .status,
        403
    );
}

#[test]
fn equal_streams_share_their_pages_and_get_no_others_events() {
    const EACH: usize = 8;
    let site = Site::new();
    let (one, other) = (
        site.caller(&site.token("one", &["--client", "one"])),
        site.caller(&site.token("other", &["--client", "other"])),
    );
    let person = site.caller(&site.token("person", &["--role", "person"]));
    let open = |caller: &Caller, query: &str| -> Vec<Stream> {
        let mut streams: Vec<Stream> = (0..EACH)
            .map(|_| Stream::open(caller, query, &[]))
            .collect();
        streams
            .iter_mut()
            .for_each(|stream| assert_eq!(stream.next().expect("a first event").id, 0));
        streams
    };
    // All of them wait at the same position.
    let groups = [
        ("mine", open(&one, "?since=0")),
        ("theirs", open(&other, "?since=0")),
        ("", open(&person, "?since=0")),
    ];
    let work = site.home.work();
    for (caller, name) in [
        (&one, "mine"),
        (&other, "theirs"),
        (&one, "mine-last"),
        (&other, "theirs-last"),
    ] {
        caller.dispatch(&work, name, "say hi");
        site.home.finished(name);
    }
    let history = person.call("events", &json!({"limit": 5000}))["events"]
        .as_array()
        .expect("events")
        .clone();
    for (prefix, streams) in groups {
        let is_of = |event: &&Value| {
            event["run_name"]
                .as_str()
                .is_some_and(|name| name.starts_with(prefix))
        };
        let expected: Vec<&Value> = history.iter().filter(is_of).collect();
        for mut stream in streams {
            let seen: Vec<Value> = expected
                .iter()
                .map(|_| stream.next().expect("the stream goes on").data)
                .collect();
            assert!(
                seen.iter().eq(expected.iter().copied()),
                "{prefix}: {seen:?}"
            );
        }
    }
    // The filter belongs to the position.
    let (mut all, mut filtered) = (
        Stream::open(&person, "?since=0", &[]),
        Stream::open(&person, "?since=0&run=theirs", &[]),
    );
    assert_eq!(
        (
            all.next().expect("a first event").id,
            filtered.next().expect("a first event").id
        ),
        (0, 0)
    );
    assert!(
        all.until("run.finished")
            .iter()
            .all(|event| event.data["run_name"] == "mine")
    );
    assert!(
        filtered
            .until("run.finished")
            .iter()
            .all(|event| event.data["run_name"] == "theirs")
    );
}
