//! A persistent connection to a hub over HTTP.

use crate::lab::Result;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A persistent connection.
pub(super) struct HubConnection {
    stream: BufReader<TcpStream>,
    head: String,
}

impl HubConnection {
    pub(super) fn open(url: &str, token: &str) -> Result<Self> {
        let host = url.trim_start_matches("http://");
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        let head = format!(
            "host: {host}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        );
        Ok(Self {
            stream: BufReader::new(stream),
            head,
        })
    }

    pub(super) fn post(&mut self, path: &str, headers: &str, body: &Value) -> Result<Vec<u8>> {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\n{}{headers}content-length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut length = None;
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the hub closed the connection".into());
            }
            if line.starts_with("HTTP/") && !line.contains(" 200 ") {
                return Err(format!("{path}: {line}").into());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = Some(value.trim().parse::<usize>()?);
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut bytes = vec![0; length.ok_or("a reply without a length")?];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
