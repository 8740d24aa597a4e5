//! A stand-in for a model's API, and a client's connection to it or to a gate.

use crate::lab::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(super) const KEY: &str = "bench-key";
const PATH: &str = "/v1/chat/completions";
const ANSWER: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":1}}\n\n";
const DELTA: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a few words\"}}]}\n\n";
/// The parts of a stream, and their number.
const PIECE_BYTES: usize = 64 * 1024;
const STREAM_BYTES: usize = 512 * 1024 * 1024;

/// Serves one connection as the API.
pub(super) fn answer(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while let Some((is_long, length)) = request(&mut reader) {
        let mut body = vec![0; length];
        let served = reader.read_exact(&mut body).and_then(|()| {
            if is_long {
                send_stream(stream)
            } else {
                send_answer(stream)
            }
        });
        if served.is_err() {
            return;
        }
    }
}

/// Reads the head of a request. Returns whether it asks for a long stream, and the length of its
/// body.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(bool, usize)> {
    let (mut is_long, mut length) = (false, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        is_long |= line == "x-long: 1";
        if let Some(bytes) = line.strip_prefix("content-length: ") {
            length = bytes.parse().ok()?;
        }
        if line.is_empty() {
            return Some((is_long, length));
        }
    }
}

fn send_answer(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.write_all(
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{ANSWER}",
            ANSWER.len()
        )
        .as_bytes(),
    )
}

fn send_stream(mut stream: &TcpStream) -> std::io::Result<()> {
    let piece = DELTA.repeat(PIECE_BYTES / DELTA.len() + 1);
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    for _ in 0..STREAM_BYTES / piece.len() {
        stream.write_all(chunk.as_bytes())?;
    }
    stream.write_all(format!("{:x}\r\n{ANSWER}\r\n0\r\n\r\n", ANSWER.len()).as_bytes())
}

/// A client's connection.
pub(super) struct ModelConnection {
    reader: BufReader<TcpStream>,
    head: String,
}

impl ModelConnection {
    pub(super) fn open(host: &str, key: &str) -> Result<Self> {
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\ncontent-length: 13\r\n"
        );
        Ok(Self {
            reader: BufReader::with_capacity(PIECE_BYTES, stream),
            head,
        })
    }

    fn ask(&mut self, header: &str) -> Result<()> {
        self.reader
            .get_mut()
            .write_all(format!("{}{header}\r\n{{\"model\":\"m\"}}", self.head).as_bytes())?;
        Ok(())
    }

    /// Measures the time from a request to the first byte of its answer, and reads the rest.
    pub(super) fn first_byte(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.ask("")?;
        self.reader.fill_buf()?;
        let time = start.elapsed();
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if let Some(bytes) = line
                .to_ascii_lowercase()
                .trim()
                .strip_prefix("content-length: ")
            {
                length = bytes.parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        if body == ANSWER.as_bytes() {
            Ok(time)
        } else {
            Err(format!("unexpected response: {}", String::from_utf8_lossy(&body)).into())
        }
    }

    /// Sends a request. Returns the status and the body of its answer.
    pub(super) fn exchange(&mut self) -> Result<(u16, String)> {
        self.ask("")?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err("the connection was closed".into());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.split(' ').next().unwrap_or_default().parse()?;
            }
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.parse()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Measures a long stream, in MB/s.
    pub(super) fn stream_rate(&mut self) -> Result<f64> {
        let start = Instant::now();
        self.ask("x-long: 1\r\n")?;
        let mut read = 0_usize;
        let mut end = Vec::new();
        while !end.ends_with(b"\r\n0\r\n\r\n") {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                return Err("the stream was cut".into());
            }
            end.extend_from_slice(&bytes[bytes.len().saturating_sub(16)..]);
            end.drain(..end.len().saturating_sub(16));
            let count = bytes.len();
            read += count;
            self.reader.consume(count);
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
        Ok(read as f64 / 1e6 / start.elapsed().as_secs_f64())
    }
}
