//! A minimal HTTP/1.1 client of the hub's API, so that measurements show the hub and not its
//! client.

use crate::lab::Result;
use crate::standin::PassedConnection;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    headers: String,
    request: Vec<u8>,
    /// A buffer, whose first `filled` bytes are the reply so far.
    reply: Vec<u8>,
    filled: usize,
}

impl Wire {
    /// Creates a client, as the stand-in's supervisor or as the person.
    pub fn new(stream: UnixStream, given: Option<&PassedConnection>) -> Self {
        let headers = given.map_or_else(String::new, |given| {
            format!(
                "adj-attempt: {}\r\nauthorization: Bearer {}\r\n",
                given.attempt, given.token
            )
        });
        Self {
            stream,
            headers,
            request: Vec::new(),
            reply: vec![0; CHUNK_BYTES],
            filled: 0,
        }
    }

    /// Posts a call with a new key, and returns the parsed reply.
    pub fn post<T: DeserializeOwned>(&mut self, path: &str, call: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(call)?;
        self.request.clear();
        write!(
            self.request,
            "POST {path} HTTP/1.1\r\nhost: adj\r\ncontent-type: application/json\r\ncontent-length: {}\r\nadj-key: {}\r\n{}\r\n",
            body.len(),
            adjutant_net::hub_client::fresh_key(),
            self.headers
        )?;
        self.request.extend_from_slice(&body);
        self.stream.write_all(&self.request)?;
        self.filled = 0;
        let (from, length) = loop {
            self.fill()?;
            if let Some(at) = self.reply[..self.filled]
                .windows(4)
                .position(|bytes| bytes == b"\r\n\r\n")
            {
                break (
                    at + 4,
                    content_length(&self.reply[..at]).ok_or("a reply without a length")?,
                );
            }
        };
        while self.filled < from + length {
            self.fill()?;
        }
        let (head, body) = (&self.reply[..from], &self.reply[from..from + length]);
        if !head.starts_with(b"HTTP/1.1 200") {
            let status = String::from_utf8_lossy(head);
            return Err(format!(
                "{path}: {}: {}",
                status.lines().next().unwrap_or_default(),
                String::from_utf8_lossy(body)
            )
            .into());
        }
        Ok(serde_json::from_slice(body)?)
    }

    fn fill(&mut self) -> Result<()> {
        if self.filled == self.reply.len() {
            self.reply.resize(self.filled + CHUNK_BYTES, 0);
        }
        let count = self.stream.read(&mut self.reply[self.filled..])?;
        if count == 0 {
            return Err("the hub closed the connection".into());
        }
        self.filled += count;
        Ok(())
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let is_it =
        |line: &&[u8]| line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME);
    let line = head.split(|byte| *byte == b'\n').find(is_it)?;
    std::str::from_utf8(&line[NAME.len()..])
        .ok()?
        .trim()
        .parse()
        .ok()
}
