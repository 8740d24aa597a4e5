//! Slow, large, and many requests.

use super::Site;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a head may take to arrive, and some time for a machine under load.
const HEAD_TAKES_MAX: Duration = Duration::from_secs(10 + 20);

#[test]
fn head_of_one_byte_a_second_is_cut_off() {
    let site = Site::new();
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the hub listens");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a limit");
    let start = Instant::now();
    let mut head = b"POST /api/v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nx-filler: ".iter().chain(std::iter::repeat(&b'a'));
    loop {
        assert!(start.elapsed() < HEAD_TAKES_MAX, "the connection is still open");
        if stream.write_all(&[*head.next().expect("endless")]).is_err() {
            break;
        }
        // Waits a second for an answer, unless the connection is closed.
        match stream.read(&mut [0; 64]) {
            Ok(0) => break,
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Ok(_) => {}
            Err(_) => break,
        }
    }
    site.caller(&site.token("one", &[])).call("runs", &json!({}));
}

#[test]
fn large_requests_are_refused_unread() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    let mut stream = caller.open("POST", "/api/v1/dispatch", &[("content-length", "104857600")], "{");
    let (status, head) = super::read_head(&mut stream);
    assert!(status == 413 && head.contains("connection: close"), "{status} {head}");
    let stranger = site.caller("adj_unknown");
    let (status, _) = super::read_head(&mut stranger.open("POST", "/api/v1/dispatch", &[("content-length", "104857600")], "{"));
    assert_eq!(status, 401);
    let long = "x".repeat(100 * 1024);
    let mut refused = Vec::new();
    // The connection may be reset before the refusal is read.
    let _end = caller.open("POST", "/api/v1/runs", &[("x-long", &long)], "{}").read_to_end(&mut refused);
    assert!(refused.is_empty() || refused.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&refused));
    caller.call("runs", &json!({}));
}

#[test]
fn a_thousand_idle_connections_block_no_other_client() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    let idle: Vec<TcpStream> = (0..1_000).map(|_| TcpStream::connect(("127.0.0.1", site.port)).expect("the hub listens")).collect();
    for _ in 0..20 {
        caller.call("runs", &json!({}));
    }
    site.home.ok(&["ps"]);
    drop(idle);
    caller.call("runs", &json!({}));
}

#[test]
fn token_with_too_many_connections_blocks_no_other_token() {
    const ATTEMPTS_MAX: usize = 1_024;
    let site = Site::new();
    let (greedy, other) = (site.caller(&site.token("greedy", &[])), site.caller(&site.token("other", &[])));
    let mut streams = Vec::new();
    let refused = loop {
        let mut stream = greedy.open("GET", "/api/v1/events", &[], "");
        match super::read_head(&mut stream) {
            (200, _) => streams.push(stream),
            (status, head) => break (status, head),
        }
        assert!(streams.len() < ATTEMPTS_MAX, "all connections are taken");
    };
    assert!(refused.0 == 429 && refused.1.contains("connection: close") && !streams.is_empty(), "{refused:?}");
    other.call("runs", &json!({}));
    drop(streams);
    site.home.until("its connections are closed", || (greedy.post("runs", &json!({})).status == 200).then_some(()));
}
