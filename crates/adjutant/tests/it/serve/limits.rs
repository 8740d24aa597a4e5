//! Slow, large, and many requests.

use super::events::Stream;
use super::{Caller, Site, hub_with, port_of};
use crate::support::TestHome;
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
    stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("a limit");
    let start = Instant::now();
    let mut head = b"POST /api/v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nx-filler: "
        .iter()
        .chain(std::iter::repeat(&b'a'));
    loop {
        assert!(
            start.elapsed() < HEAD_TAKES_MAX,
            "the connection is still open"
        );
        if stream.write_all(&[*head.next().expect("endless")]).is_err() {
            break;
        }
        // Waits a second for an answer, unless the connection is closed.
        match stream.read(&mut [0; 64]) {
            Ok(0) => break,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Ok(_) => {}
            Err(_) => break,
        }
    }
    site.caller(&site.token("one", &[]))
        .call("runs", &json!({}));
}

#[test]
fn large_requests_are_refused_unread() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    let mut stream = caller.open(
        "POST",
        "/api/v1/dispatch",
        &[("content-length", "104857600")],
        "{",
    );
    let (status, head) = super::read_head(&mut stream);
    assert!(
        status == 413 && head.contains("connection: close"),
        "{status} {head}"
    );
    let stranger = site.caller("adj_unknown");
    let (status, _) = super::read_head(&mut stranger.open(
        "POST",
        "/api/v1/dispatch",
        &[("content-length", "104857600")],
        "{",
    ));
    assert_eq!(status, 401);
    let long = "x".repeat(100 * 1024);
    let mut refused = Vec::new();
    // The connection may be reset before the refusal is read.
    let _end = caller
        .open("POST", "/api/v1/runs", &[("x-long", &long)], "{}")
        .read_to_end(&mut refused);
    assert!(
        refused.is_empty() || refused.starts_with(b"HTTP/1.1 431 "),
        "{}",
        String::from_utf8_lossy(&refused)
    );
    // The limit is exact: with the rest of the head, the first one is just below it.
    for (bytes, status) in [(32 * 1024 - 400, 200), (32 * 1024, 431), (40_000, 431)] {
        let reply = caller.send(
            "POST",
            "/api/v1/runs",
            &[("x-long", &"x".repeat(bytes))],
            "{}",
        );
        assert_eq!(reply.status, status, "{bytes}: {}", reply.body);
    }
    caller.call("runs", &json!({}));
}

#[test]
fn a_thousand_idle_connections_block_no_other_client() {
    let site = Site::new();
    let caller = site.caller(&site.token("one", &[]));
    let idle: Vec<TcpStream> = (0..1_000)
        .map(|_| TcpStream::connect(("127.0.0.1", site.port)).expect("the hub listens"))
        .collect();
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
    let (greedy, other) = (
        site.caller(&site.token("greedy", &[])),
        site.caller(&site.token("other", &[])),
    );
    let mut streams = Vec::new();
    let refused = loop {
        let mut stream = greedy.open("GET", "/api/v1/events", &[], "");
        match super::read_head(&mut stream) {
            (200, _) => streams.push(stream),
            (status, head) => break (status, head),
        }
        assert!(streams.len() < ATTEMPTS_MAX, "all connections are taken");
    };
    assert!(
        refused.0 == 429 && refused.1.contains("connection: close") && !streams.is_empty(),
        "{refused:?}"
    );
    other.call("runs", &json!({}));
    drop(streams);
    site.home.until("its connections are closed", || {
        (greedy.post("runs", &json!({})).status == 200).then_some(())
    });
}

/// Returns whether the hub has an open connection with this peer.
fn is_connected(hub_port: u16, peer_port: u16) -> bool {
    let ends = format!("0100007F:{hub_port:04X} 0100007F:{peer_port:04X} 01 ");
    std::fs::read_to_string("/proc/net/tcp")
        .expect("connections")
        .lines()
        .any(|line| line.contains(&ends))
}

#[test]
fn client_that_reads_nothing_is_disconnected_alone() {
    /// More than the hub's socket holds.
    const REPLIES_BYTES: usize = 16 * 1024 * 1024;
    const DESCRIPTION: &str = "/api/v1/openapi.json";
    let home = TestHome::with_config("listen = \"127.0.0.1:0\"\n");
    let token = home.json(&["token", "new", "one"])["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    home.ok(&["stop"]);
    let mut hub = hub_with(&home, "unread=300");
    let port = port_of(&home);
    let caller = Caller {
        port,
        token: token.clone(),
    };
    let mut follows = Stream::open(&caller, "", &[]);
    follows.next();
    let bytes = caller.send("GET", DESCRIPTION, &[], "").body.len();
    let mut deaf = TcpStream::connect(("127.0.0.1", port)).expect("the hub listens");
    let own = deaf.local_addr().expect("an address").port();
    let request = format!(
        "GET {DESCRIPTION} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    deaf.write_all(request.repeat(REPLIES_BYTES / bytes + 1).as_bytes())
        .expect("sent");
    assert!(is_connected(port, own));
    caller.dispatch(&home.work(), "meanwhile", "say hi");
    follows.until("run.finished");
    home.until("it is disconnected", || {
        (!is_connected(port, own)).then_some(())
    });
    // It gets the start of the replies, then the end of the connection.
    let mut rest = Vec::new();
    let _end = deaf.read_to_end(&mut rest);
    assert!(
        rest.starts_with(b"HTTP/1.1 200 ") && rest.len() < REPLIES_BYTES,
        "{}",
        rest.len()
    );
    // The stream that waited longer than the limit without an event is still open.
    caller.dispatch(&home.work(), "after", "say hi");
    assert!(
        follows
            .until("run.finished")
            .iter()
            .all(|event| event.data["run_name"] == "after")
    );
    drop(follows);
    home.ok(&["stop"]);
    hub.wait().expect("it ends");
}
