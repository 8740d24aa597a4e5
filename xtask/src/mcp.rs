//! A minimal client of `adj mcp`, over JSON lines.

use crate::lab::{Lab, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

#[derive(Debug)]
pub struct Mcp {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next_id: u64,
}

impl Mcp {
    /// Starts a parent's server in a home.
    pub fn parent(lab: &Lab, client: &str) -> Result<Self> {
        Self::start(lab.command(&["mcp", "--client", client]))
    }

    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no output pipe")?);
        Ok(Self {
            child,
            input,
            output,
            next_id: 0,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request and waits for its reply.
    pub fn request(&mut self, method: &str, mut params: Value) -> Result<Value> {
        self.next_id += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "xtask", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message =
            json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        let input = self.input.as_mut().ok_or("the input is closed")?;
        let mut line = message.to_string();
        line.push('\n');
        input.write_all(line.as_bytes())?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err("adj mcp closed its output".into());
            }
            let mut message: Value = serde_json::from_str(&line)?;
            if message["id"] == self.next_id && message.get("method").is_none() {
                if let Some(error) = message.get("error") {
                    return Err(format!("{method}: {error}").into());
                }
                return Ok(message["result"].take());
            }
        }
    }

    /// Calls a tool and returns its structured result; a refusal is an error.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let mut result =
            self.request("tools/call", json!({"name": tool, "arguments": arguments}))?;
        if result["isError"] == true {
            return Err(format!("{tool}: {}", result["content"][0]["text"]).into());
        }
        Ok(result["structuredContent"].take())
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Err(error) = self.child.wait() {
            eprintln!("adj mcp: {error}");
        }
    }
}
