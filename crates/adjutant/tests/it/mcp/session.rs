//! A session with one `adj mcp` process.

use crate::processes::Mark;
use crate::support::UNKNOWN_LOAD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Long enough for a machine under load; reached only if a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const MODERN: &str = "2026-07-28";

/// One `adj mcp` process and its output.
pub struct Session {
    child: Child,
    input: Option<ChildStdin>,
    pub(super) lines: Receiver<String>,
    /// Messages received while waiting for others.
    pub(super) aside: Vec<Value>,
    next_id: u64,
    modern: bool,
    capabilities: Value,
}

impl Session {
    /// Starts `adj mcp` in a home, as the client of a directory, and opens the connection in one
    /// protocol generation.
    pub fn open(home: &Path, directory: &Path, args: &[&str], modern: bool) -> Self {
        let mut session = Self::start(home, directory, args);
        session.modern = modern;
        if !modern {
            session.initialize();
        }
        session
    }

    /// Opens the connection of an earlier protocol generation.
    pub fn initialize(&mut self) {
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        self.request("initialize", about);
        self.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    pub fn start(home: &Path, directory: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adj"));
        command
            .arg("mcp")
            .args(args)
            .env("ADJ_HOME", home)
            .env_remove("ADJ_RUN")
            .env(UNKNOWN_LOAD.0, UNKNOWN_LOAD.1)
            .current_dir(directory);
        Mark::of(home).put_on(&mut command);
        Self::of(command)
    }

    /// Starts a prepared `adj mcp`.
    pub fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("adj starts");
        let output = child.stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take();
        Self {
            child,
            input,
            lines,
            aside: Vec::new(),
            next_id: 1,
            modern: false,
            capabilities: json!({}),
        }
    }

    /// Declares the Tasks extension from here on.
    pub fn with_tasks(mut self) -> Self {
        self.capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
        self
    }

    /// Declares elicitation from here on, in 2026-07-28.
    pub fn with_elicitation(mut self) -> Self {
        self.capabilities["elicitation"] = json!({"form": {}});
        self
    }

    /// Answers a request of the server.
    pub fn answer(&mut self, request: &Value, result: Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    pub fn write(&mut self, message: &Value) {
        self.write_raw(format!("{message}\n").as_bytes());
    }

    pub fn write_raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the input is open");
        input
            .write_all(bytes)
            .and_then(|()| input.flush())
            .expect("the server reads");
    }

    /// Sends a request and returns its id.
    pub fn send(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Waits for the reply to a request. Other messages are kept.
    pub fn reply(&mut self, id: u64) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.aside.iter().position(|message| message["id"] == id) {
                return self.aside.remove(at);
            }
            let message = self
                .read_until(deadline)
                .unwrap_or_else(|| panic!("no reply to {id}; so far: {:?}", self.aside));
            self.aside.push(message);
        }
    }

    fn read_until(&mut self, deadline: Instant) -> Option<Value> {
        match self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            Ok(line) => {
                Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits for a notification.
    pub fn notification(&mut self, method: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self
                .aside
                .iter()
                .position(|message| message["method"] == method)
            {
                return self.aside.remove(at);
            }
            let message = self
                .read_until(deadline)
                .unwrap_or_else(|| panic!("no {method}; so far: {:?}", self.aside));
            self.aside.push(message);
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.reply(id)
    }

    /// Calls a tool and returns its result, which may be a refusal.
    pub fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let reply = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        assert!(reply["error"].is_null(), "{name}: {reply}");
        reply["result"].clone()
    }

    /// Calls a tool that must succeed and returns its structured content.
    pub fn done(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.tool(name, arguments);
        assert_ne!(result["isError"], true, "{name}: {result}");
        result["structuredContent"].clone()
    }

    /// Closes the input and waits for the end.
    pub fn close(mut self) -> (ExitStatus, Duration) {
        drop(self.input.take());
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return (status, began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "adj mcp does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.input.take());
        let ended = self.child.kill().and_then(|()| self.child.wait());
        assert!(
            ended.is_ok() || std::thread::panicking(),
            "adj mcp: {ended:?}"
        );
    }
}

/// Returns the text of a result.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a text")
}

pub fn run_of(started: &Value) -> String {
    started["run_id"].as_str().expect("a run's id").to_owned()
}
