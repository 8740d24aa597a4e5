//! The hub over HTTP: tokens, calls, events and MCP, as a program of any language sees them.

mod calls;
mod dashboard;
mod events;
mod hidden;
mod hostile;
mod kills;
mod limits;
mod links;
mod listen;
mod matrix;
mod mcp;
mod revoke;
mod runs;
mod sessions;
mod tls;

use crate::support::{PATIENCE, TestHome};
use adjutant_api::view::GetHub;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// A hub that listens on a free port.
struct Site {
    home: TestHome,
    port: u16,
}

impl Site {
    fn new() -> Self {
        Self::with("")
    }

    /// Starts a hub with additional settings.
    fn with(config: &str) -> Self {
        let home = TestHome::with_config(&format!("listen = \"127.0.0.1:0\"\n{config}"));
        let port = port_of(&home);
        Self { home, port }
    }

    /// Starts the next hub after a kill.
    fn revive(&mut self) {
        self.port = port_of(&self.home);
    }

    /// Makes a token.
    fn token(&self, name: &str, args: &[&str]) -> String {
        let made = self.home.json(&[&["token", "new", name], args].concat());
        made["token"].as_str().expect("a token").to_owned()
    }

    fn caller(&self, token: &str) -> Caller {
        Caller {
            port: self.port,
            token: token.to_owned(),
        }
    }

    fn kill_hub(&self) {
        let pid = self.home.hub_pid();
        crate::support::kill(pid);
        self.home.until("the hub is dead", || {
            (!TestHome::is_alive(pid)).then_some(())
        });
    }
}

/// Starts a hub with this failpoint.
pub(crate) fn hub_with(home: &TestHome, failpoint: &str) -> Child {
    let mut hub = home.command(&["__hub"]);
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(home.home.hub_log())
        .expect("a log");
    hub.env("ADJ_FAILPOINT", failpoint)
        .stdout(Stdio::null())
        .stderr(log);
    let hub = hub.spawn().expect("a hub");
    home.until("the hub takes calls", || {
        home.call(&GetHub {}, "")
            .ok()
            .filter(|found| found.pid == hub.id())
    });
    hub
}

fn port_of(home: &TestHome) -> u16 {
    home.ok(&["ps"]);
    let url = home
        .call(&GetHub {}, "")
        .expect("a hub runs")
        .url
        .expect("it listens");
    url.rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("a port")
}

/// A caller with a token.
#[derive(Clone)]
struct Caller {
    port: u16,
    token: String,
}

/// One reply.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Caller {
    /// Sends a request and returns its connection.
    fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> BufReader<TcpStream> {
        let host = format!("127.0.0.1:{}", self.port);
        let bearer = format!("Bearer {}", self.token);
        let length = body.len().to_string();
        let mut all = vec![
            ("host", host.as_str()),
            ("authorization", bearer.as_str()),
            ("content-length", length.as_str()),
        ];
        if !body.is_empty() {
            all.push(("content-type", "application/json"));
        }
        for (name, value) in headers {
            all.retain(|(other, _)| other != name);
            all.push((name, value));
        }
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in all {
            if !value.is_empty() {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the hub listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream
            .write_all(format!("{head}\r\n{body}").as_bytes())
            .expect("sent");
        BufReader::new(stream)
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        reply(&mut self.open(method, path, headers, body))
    }

    fn post(&self, name: &str, body: &Value) -> Reply {
        self.send("POST", &format!("/api/v1/{name}"), &[], &body.to_string())
    }

    /// Makes a call that must succeed.
    fn call(&self, name: &str, body: &Value) -> Value {
        let reply = self.post(name, body);
        assert_eq!(reply.status, 200, "{name} {body}: {reply:?}");
        reply.json()
    }

    /// Dispatches a run of the echo agent.
    fn dispatch(&self, work: &Path, name: &str, script: &str) -> Value {
        self.call(
            "dispatch",
            &json!({"agent": "echo", "prompt": format!("{script}\n"), "cwd": work, "name": name}),
        )
    }
}

fn read_head<S: Read>(stream: &mut BufReader<S>) -> (u16, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(
            stream.read_line(&mut head).expect("a head") > 0,
            "the connection was closed: {head:?}"
        );
    }
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{head:?}"));
    (status, head.to_ascii_lowercase())
}

/// Reads a reply to the end of its connection.
fn reply<S: Read>(stream: &mut BufReader<S>) -> Reply {
    let (status, head) = read_head(stream);
    let mut body = Vec::new();
    stream.read_to_end(&mut body).expect("a body");
    let body = if head.contains("transfer-encoding: chunked") {
        dechunked(&body)
    } else {
        body
    };
    Reply {
        status,
        head,
        body: String::from_utf8(body).expect("text"),
    }
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).expect("a size"), 16)
            .expect("a size");
        out.extend(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
    out
}
