//! JSON-RPC with one message per line. A malformed line is answered with an error, so that no
//! client waits forever. Ids that rmcp cannot parse are preserved, see [`ids`].

mod ids;
mod received;

pub(super) use received::{Refused, prepared};

use crate::view::json_problem;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestMethod, CallToolRequestParams, ClientJsonRpcMessage,
    ClientRequest, ErrorCode, ErrorData, GetMeta, JsonRpcVersion2_0, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Maximum size of a message: the longest prompt, escaped, with some to spare.
const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum number of messages in a batch.
pub(super) const BATCH_MAX: usize = 32;
/// A line buffer larger than this is freed after use.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A transport over two byte streams.
pub(super) struct Lines<R, W> {
    reader: BufReader<R>,
    /// The part of the current line that was read.
    line: Vec<u8>,
    line_bytes_max: usize,
    /// Whether the rest of an overlong line is being skipped.
    passing_over: bool,
    /// The id of the request in an overlong line, if its beginning has it.
    overlong_id: Option<RequestId>,
    /// Whether an unreadable id is omitted from errors, as in 2026-07-28. In JSON-RPC 2.0 it is
    /// null.
    leaves_out_unread_ids: bool,
    /// Whether a line may contain several messages, as in 2025-03-26.
    accepts_batches: bool,
    /// The messages of a batch that were not returned yet.
    batch: VecDeque<ClientJsonRpcMessage>,
    writer: Arc<Mutex<Option<W>>>,
    /// The reply to a malformed line, one at a time, which limits a flood of them.
    reply: JoinSet<()>,
}

/// The result of reading.
enum Read {
    Line,
    TooLong,
    Ended,
}

/// The meaning of a line.
enum Meaning {
    Message(Box<ClientJsonRpcMessage>),
    Nothing,
    Broken(ErrorData, Option<RequestId>),
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin + Send + 'static> Lines<R, W> {
    pub(super) fn new(reader: R, writer: W) -> Self {
        let writer = Arc::new(Mutex::new(Some(writer)));
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            line_bytes_max: LINE_BYTES_MAX,
            passing_over: false,
            overlong_id: None,
            leaves_out_unread_ids: false,
            accepts_batches: false,
            batch: VecDeque::new(),
            writer,
            reply: JoinSet::new(),
        }
    }

    /// From here on, accepts batches. Each request of a batch is answered by itself.
    pub(crate) fn accept_batches(&mut self) {
        self.accepts_batches = true;
    }

    /// From here on, omits the id from errors about messages without a readable one.
    pub(crate) fn omit_unread_ids(&mut self) {
        self.leaves_out_unread_ids = true;
    }

    /// Reads to the end of a line. Cancel safe: bytes read so far are kept.
    async fn read(&mut self) -> io::Result<Read> {
        loop {
            let found = self.reader.fill_buf().await?;
            if found.is_empty() {
                return Ok(Read::Ended);
            }
            let end = memchr::memchr(b'\n', found);
            let taken = end.map_or(found.len(), |at| at + 1);
            let fits = self.line.len() + taken <= self.line_bytes_max;
            if fits && !self.passing_over {
                self.line.extend_from_slice(&found[..taken]);
            }
            self.reader.consume(taken);
            let ended = end.is_some();
            match (self.passing_over, fits) {
                (true, _) => self.passing_over = !ended,
                (false, true) if ended => return Ok(Read::Line),
                (false, true) => {}
                (false, false) => {
                    self.overlong_id =
                        received::readable_id(&self.line[..self.line.len().min(KEPT_BYTES_MAX)]);
                    self.line = Vec::new();
                    self.passing_over = !ended;
                    return Ok(Read::TooLong);
                }
            }
        }
    }

    /// Answers a message with an error. The next message is not read before the error is written.
    pub(super) fn answer(&mut self, error: ErrorData, id: Option<RequestId>) {
        let nulls = id.is_none() && !self.leaves_out_unread_ids;
        let message = ServerJsonRpcMessage::error(error, id);
        let line = if nulls {
            ids::with_null_id(&message)
        } else {
            ids::written(&message)
        };
        let writing = write(Arc::clone(&self.writer), line);
        self.reply.spawn(async {
            if let Err(error) = writing.await {
                tracing::warn!(%error, "a malformed line was not answered");
            }
        });
    }
}

async fn write<W: AsyncWrite + Unpin>(
    writer: Arc<Mutex<Option<W>>>,
    line: serde_json::Result<Vec<u8>>,
) -> io::Result<()> {
    let mut line = line?;
    line.push(b'\n');
    let mut writer = writer.lock().await;
    let writer = writer
        .as_mut()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the output is closed"))?;
    writer.write_all(&line).await?;
    writer.flush().await
}

/// A tool call, as nearly every line is. rmcp parses a line by trying each kind of message in turn,
/// which takes longer than the rest of its processing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCall {
    #[serde(rename = "jsonrpc")]
    _version: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(rename = "method")]
    _method: CallToolRequestMethod,
    params: CallToolRequestParams,
}

impl ToolCall {
    /// Converts the call to the message that rmcp would produce, with the metadata moved to the
    /// request.
    fn into_message(self) -> ClientJsonRpcMessage {
        let Self {
            _version,
            id,
            _method,
            mut params,
        } = self;
        let meta = params.meta.take();
        let mut request = CallToolRequest::new(params);
        if let Some(meta) = meta {
            request.extensions.insert(meta);
        }
        ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), id)
    }
}

/// Parses one line.
///
/// Unknown notifications (JSON-RPC 2.0, section 4.1) and malformed responses are ignored, since no
/// reply to them is expected. Everything else is answered, with its id if it has one (section 5.1).
fn meaning(line: &[u8]) -> Meaning {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let line = line.trim_ascii();
    if line.is_empty() {
        return Meaning::Nothing;
    }
    let prepared = match prepared(line) {
        Ok(prepared) => prepared,
        Err(refused) => {
            let Refused(error, id) = *refused;
            return Meaning::Broken(error, id);
        }
    };
    let line = prepared.as_ref();
    if let Ok(call) = serde_json::from_slice::<ToolCall>(line)
        && !ids::is_encoded(&call.id)
    {
        return Meaning::Message(Box::new(call.into_message()));
    }
    let kept = ids::encode_ids(line);
    let line = kept.as_deref().unwrap_or(line);
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Meaning::Message(Box::new(message)),
        Err(error) => error,
    };
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => {
            let problem =
                format!("this line is not JSON: {error}; send each message as one line of UTF-8");
            return Meaning::Broken(
                ErrorData::new(ErrorCode::PARSE_ERROR, problem, None),
                received::readable_id(line),
            );
        }
    };
    if value.is_array() {
        let problem = "a batch is accepted only in 2025-03-26, and has 1 to 32 messages: send each message by itself";
        return Meaning::Broken(
            ErrorData::new(ErrorCode::INVALID_REQUEST, problem, None),
            None,
        );
    }
    let id = value
        .get("id")
        .and_then(|id| serde_json::from_value(id.clone()).ok());
    let method = value.get("method").is_some_and(Value::is_string);
    let is_notification = method && value.get("id").is_none();
    let is_response = value.get("method").is_none()
        && (value.get("result").is_some() || value.get("error").is_some());
    if is_notification || is_response {
        tracing::debug!(%error, "ignored a message");
        return Meaning::Nothing;
    }
    let problem = format!(
        "this is not a JSON-RPC 2.0 message: {}",
        json_problem(&error)
    );
    Meaning::Broken(
        ErrorData::new(ErrorCode::INVALID_REQUEST, problem, None),
        id,
    )
}

/// Returns whether a message is a well-formed `initialize` of a version that has it.
pub(crate) fn is_initialize(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
    }
    if !serde_json::from_slice::<Named<'_>>(message).is_ok_and(|named| named.method == "initialize")
    {
        return false;
    }
    match serde_json::from_slice(message) {
        Ok(ClientJsonRpcMessage::Request(request)) => {
            let is_one = matches!(request.request, ClientRequest::InitializeRequest(_));
            let version = request.request.get_meta().protocol_version();
            is_one
                && version
                    .is_none_or(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str())
        }
        _ => false,
    }
}

/// Returns the messages of a batch. `None`: it is not a batch, or empty, or too long.
pub(super) fn batch(text: &[u8]) -> Option<Vec<Box<RawValue>>> {
    if text.trim_ascii_start().first() != Some(&b'[') {
        return None;
    }
    let messages: Vec<Box<RawValue>> = serde_json::from_slice(text).ok()?;
    (1..=BATCH_MAX)
        .contains(&messages.len())
        .then_some(messages)
}

/// Serializes the rejection of a request, with its id if it is readable.
pub(super) fn refused(message: &[u8], error: ErrorData) -> Vec<u8> {
    let kept = ids::encode_ids(message);
    let value: Value =
        serde_json::from_slice(kept.as_deref().unwrap_or(message)).unwrap_or(Value::Null);
    let id = value
        .get("id")
        .and_then(|id| serde_json::from_value(id.clone()).ok());
    ids::with_null_id(&ServerJsonRpcMessage::error(error, id)).expect("an error serializes to JSON")
}

/// Serializes the refusal of a message that was not parsed.
pub(crate) fn refused_before(Refused(error, id): Refused) -> Vec<u8> {
    ids::with_null_id(&ServerJsonRpcMessage::error(error, id)).expect("an error serializes to JSON")
}

/// Serializes the reply to a malformed message.
pub(super) fn refusal(message: &[u8]) -> Vec<u8> {
    let (error, id) = match meaning(message) {
        Meaning::Broken(error, id) => (error, id),
        Meaning::Message(message) => {
            let problem = "over HTTP an id is a text or a whole number of 64 bits";
            let id = if let ClientJsonRpcMessage::Request(request) = *message {
                Some(request.id)
            } else {
                None
            };
            (
                ErrorData::new(ErrorCode::INVALID_REQUEST, problem, None),
                id,
            )
        }
        Meaning::Nothing => (
            ErrorData::new(
                ErrorCode::INVALID_REQUEST,
                "this is not a JSON-RPC 2.0 message",
                None,
            ),
            None,
        ),
    };
    ids::with_null_id(&ServerJsonRpcMessage::error(error, id)).expect("an error serializes to JSON")
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        write(Arc::clone(&self.writer), ids::written(&message))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while self.reply.join_next().await.is_some() {}
            if let Some(message) = self.batch.pop_front() {
                return Some(message);
            }
            match self.read().await {
                Ok(Read::Line) => {}
                Ok(Read::Ended) => return None,
                Ok(Read::TooLong) => {
                    let problem = format!(
                        "this line is longer than {} bytes; a message has to be shorter",
                        self.line_bytes_max
                    );
                    let id = self.overlong_id.take();
                    self.answer(
                        ErrorData::new(ErrorCode::INVALID_REQUEST, problem, None),
                        id,
                    );
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "the input cannot be read");
                    return None;
                }
            }
            let messages = if self.accepts_batches {
                batch(&self.line)
            } else {
                None
            };
            let meanings = match messages {
                Some(messages) => messages
                    .iter()
                    .map(|message| meaning(message.get().as_bytes()))
                    .collect(),
                None => vec![meaning(&self.line)],
            };
            self.line.clear();
            self.line.shrink_to(KEPT_BYTES_MAX);
            for meaning in meanings {
                match meaning {
                    Meaning::Message(message) => self.batch.push_back(*message),
                    Meaning::Nothing => {}
                    Meaning::Broken(error, id) => self.answer(error, id),
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.lock().await.take();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// Reads all input. Returns the number of messages and the replies.
    async fn exchange(input: &[u8], line_bytes_max: usize) -> (usize, Vec<Value>) {
        let (server, mut client) = tokio::io::duplex(1 << 20);
        let mut lines = Lines::new(input, server);
        lines.line_bytes_max = line_bytes_max;
        let mut messages = 0;
        while lines.receive().await.is_some() {
            messages += 1;
        }
        lines.close().await.expect("it closes");
        drop(lines);
        let mut output = String::new();
        client.read_to_string(&mut output).await.expect("text");
        (
            messages,
            output
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect(),
        )
    }

    #[tokio::test]
    async fn unreadable_message_gets_an_error() {
        let long = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"{}\"}}",
            "x".repeat(20_000)
        );
        for (line, code, id) in [
            ("{\"jsonrpc\": ", -32700, Value::Null),
            ("garbage", -32700, Value::Null),
            ("[]", -32600, Value::Null),
            (
                "[{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}]",
                -32600,
                Value::Null,
            ),
            ("[1.5", -32700, Value::Null),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":0.5,\"method\":7}",
                -32600,
                Value::from(0.5),
            ),
            ("\"x\"", -32600, Value::Null),
            ("{}", -32600, Value::Null),
            (
                "{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}",
                -32600,
                Value::from(7),
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":7}",
                -32600,
                Value::from("a"),
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
                -32600,
                Value::Null,
            ),
            (&long, -32600, Value::from(1)),
            (
                r#"{"jsonrpc":"2.0","id":20,"method":"ping","params":{"a":NaN}}"#,
                -32700,
                Value::from(20),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping","params":{"a":}"#,
                -32700,
                Value::from(1.5),
            ),
            (
                r#"{"jsonrpc":"2.0","id":21,"method":"tools/call","params":{"name":"x","arguments":{"a":1,"a":2}}}"#,
                -32600,
                Value::from(21),
            ),
            (
                r#"{"jsonrpc":"2.0","id":22,"method":"tools/call","params":{"name":"x","arguments":[1]}}"#,
                -32602,
                Value::from(22),
            ),
        ] {
            let input = format!("{line}\n{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}}\n");
            let (messages, answers) = exchange(input.as_bytes(), 10_000).await;
            assert_eq!((messages, answers.len()), (1, 1), "{line:.60}");
            assert_eq!(
                (&answers[0]["error"]["code"], answers[0].get("id")),
                (&Value::from(code), Some(&id)),
                "{line:.60}"
            );
        }
        let (messages, answers) = exchange(b"\xff\xfe\x00\n", 10_000).await;
        assert_eq!(
            (messages, &answers[0]["error"]["code"]),
            (0, &Value::from(-32700))
        );
    }

    #[test]
    fn tool_call_is_parsed_as_by_rmcp() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask_parent","arguments":{"question":"a?","n":[1,null,{"b":0.5}]}}}"#,
            r#"{"method":"tools/call","params":{"_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"x"},"id":"a","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","arguments":{},"inputResponses":{},"requestState":"s","task":{"ttl":1}}}"#,
        ] {
            let call = serde_json::from_str::<ToolCall>(line).expect("a tool call");
            let mut theirs: ClientJsonRpcMessage = serde_json::from_str(line).expect("a message");
            let mut ours = call.into_message();
            let written =
                |message: &ClientJsonRpcMessage| serde_json::to_value(message).expect("JSON");
            assert_eq!(written(&ours), written(&theirs), "{line}");
            let token = |message: &mut ClientJsonRpcMessage| match message {
                ClientJsonRpcMessage::Request(call) => {
                    rmcp::model::GetMeta::get_meta_mut(&mut call.request).get_progress_token()
                }
                _ => None,
            };
            assert_eq!(token(&mut ours), token(&mut theirs), "{line}");
        }
        // Anything but a plain tool call is left to rmcp.
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"},"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
        ] {
            assert!(serde_json::from_str::<ToolCall>(line).is_err(), "{line}");
        }
    }

    #[tokio::test]
    async fn notification_gets_no_reply() {
        let input = b"\n \r\n{\"jsonrpc\":\"2.0\",\"method\":\"x/y\",\"params\":7}\n{\"jsonrpc\":\"2.0\",\"id\":[],\"result\":{}}\n{\"half\":";
        let (_, answers) = exchange(input, 10_000).await;
        assert!(answers.is_empty(), "{answers:?}");
    }
}
