//! The hub's API as bytes: HTTP/1.1 with as little around it as can be, so that what is measured is
//! the hub and not its client.

use crate::lab::Result;
use crate::standin::Given;
use serde::Serialize;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    headers: String,
    buffer: Vec<u8>,
}

impl Wire {
    /// As the supervisor that this was given by, or as the person.
    pub fn new(stream: UnixStream, given: Option<&Given>) -> Self {
        let headers = given.map_or_else(String::new, |given| format!("adj-attempt: {}\r\nauthorization: Bearer {}\r\n", given.attempt, given.token));
        Self { stream, headers, buffer: Vec::new() }
    }

    /// Posts one call under a fresh key and returns what comes back.
    pub fn post(&mut self, path: &str, call: &impl Serialize) -> Result<Value> {
        let body = serde_json::to_string(call)?;
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: adj\r\ncontent-type: application/json\r\ncontent-length: {}\r\nadj-key: {}\r\n{}\r\n{body}",
            body.len(),
            adjutant::client::fresh_key(),
            self.headers
        );
        self.stream.write_all(request.as_bytes())?;
        self.buffer.clear();
        let (head, from, to) = loop {
            self.fill()?;
            if let Some(at) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..at]).to_lowercase();
                let length =
                    head.lines().find_map(|line| line.strip_prefix("content-length:")).and_then(|length| length.trim().parse::<usize>().ok());
                break (head, at + 4, at + 4 + length.ok_or("a reply without a length")?);
            }
        };
        while self.buffer.len() < to {
            self.fill()?;
        }
        let body = &self.buffer[from..to];
        if !head.starts_with("http/1.1 200") {
            return Err(format!("{path}: {}: {}", head.lines().next().unwrap_or_default(), String::from_utf8_lossy(body)).into());
        }
        Ok(serde_json::from_slice(body)?)
    }

    fn fill(&mut self) -> Result<()> {
        let mut chunk = [0; 16 * 1024];
        let count = self.stream.read(&mut chunk)?;
        if count == 0 {
            return Err("the hub closed the connection".into());
        }
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(())
    }
}
