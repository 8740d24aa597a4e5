//! A small MCP client like that of a coding agent: one tool call at a time, over loopback HTTP or
//! through `adj mcp` on standard input and output. It has no timeout.

use super::child;
use super::script::ToolCall;
use crate::protocol::WorkerAccess;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use tokio::net::TcpStream;

const PROTOCOL_VERSION: &str = "2026-07-28";

/// The result of a tool call.
#[derive(Debug)]
pub(super) struct Answer {
    /// The tool returned an error.
    pub is_error: bool,
    pub text: String,
    pub structured: Value,
}

/// Reads the address and token of the worker's supervisor.
pub(super) fn read_access(path: &Path) -> io::Result<WorkerAccess> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    serde_json::from_slice(text.as_bytes())
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

/// Calls a tool at the supervisor's loopback endpoint.
pub(crate) async fn over_http(access: &WorkerAccess, call: &ToolCall) -> io::Result<Answer> {
    let address = access
        .mcp_url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .map_or("", |(address, _)| address);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", access.mcp_url)))?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let request = Request::post("/mcp")
        .header("host", address)
        .header("authorization", format!("Bearer {}", access.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", PROTOCOL_VERSION)
        .header("mcp-method", "tools/call")
        .header("mcp-name", call.name.as_str())
        .body(Full::new(Bytes::from(request(call).to_string())))
        .map_err(io::Error::other)?;
    let exchange = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        let status = response.status();
        let events = response
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let body = response.into_body();
        if events {
            return first_response(body).await;
        }
        let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
        match serde_json::from_slice(&bytes) {
            Ok(message) => Ok(message),
            Err(_) => Err(io::Error::other(format!(
                "HTTP {status}: {}",
                String::from_utf8_lossy(&bytes)
            ))),
        }
    };
    tokio::pin!(exchange);
    tokio::pin!(connection);
    let mut open = true;
    loop {
        tokio::select! {
            message = &mut exchange => return answer(message?),
            ended = &mut connection, if open => {
                open = false;
                ended.map_err(io::Error::other)?;
            }
        }
    }
}

/// Reads server-sent events until one of them is a response.
async fn first_response(mut body: Incoming) -> io::Result<Value> {
    let mut buffer = Vec::new();
    loop {
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            if let Some(data) = line.strip_prefix(b"data:")
                && let Ok(message) = serde_json::from_slice::<Value>(data.trim_ascii())
                && (message.get("result").is_some() || message.get("error").is_some())
            {
                return Ok(message);
            }
        }
        match body.frame().await {
            Some(frame) => {
                if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                    buffer.extend_from_slice(&data);
                }
            }
            None => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the connection closed before the reply",
                ));
            }
        }
    }
}

/// Calls a tool through `adj mcp` with these arguments. Blocks its thread.
pub(crate) fn over_stdio(arguments: &[&OsStr], call: &ToolCall) -> io::Result<Answer> {
    let mut server = child::program()
        .arg("mcp")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(mut input), Some(output)) = (server.stdin.take(), server.stdout.take()) else {
        return Err(io::Error::other("no pipes to adj mcp"));
    };
    let exchange = || {
        writeln!(input, "{}", request(call))?;
        for line in BufReader::new(output).lines() {
            let message: Value = serde_json::from_str(&line?)?;
            if message.get("id").is_some_and(|id| id == 1) && message.get("method").is_none() {
                return Ok(message);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "adj mcp exited before the reply",
        ))
    };
    let message = exchange();
    drop(input);
    let status = server.wait()?;
    match message {
        Ok(message) => answer(message),
        Err(error) => Err(io::Error::new(error.kind(), format!("{error} ({status})"))),
    }
}

fn request(call: &ToolCall) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": call.name,
            "arguments": call.arguments,
            "_meta": {
                "progressToken": 1,
                "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
                "io.modelcontextprotocol/clientInfo": { "name": "adj-echo", "version": env!("CARGO_PKG_VERSION") },
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    })
}

fn answer(mut message: Value) -> io::Result<Answer> {
    if let Some(error) = message.get("error") {
        let text = error
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or("an error without a message");
        return Err(io::Error::other(text.to_string()));
    }
    let mut result = message["result"].take();
    let texts = result["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| part["text"].as_str());
    Ok(Answer {
        text: texts.collect::<Vec<_>>().join("\n"),
        is_error: result["isError"].as_bool().unwrap_or(false),
        structured: result["structuredContent"].take(),
    })
}
