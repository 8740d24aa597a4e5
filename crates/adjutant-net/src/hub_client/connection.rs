//! A connection to a hub or a supervisor: HTTP/1.1, one call at a time, with few system calls. Both
//! servers are Adjutant's and send `content-length`; a reply without it counts as a broken
//! connection.

use crate::sock::{self, Stream};
use http::header::InvalidHeaderValue;
use http::{HeaderValue, StatusCode};
use httparse::{EMPTY_HEADER, Response, Status};
use hyper::body::Bytes;
use rustix::process::Pid;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

/// Largest head of a reply, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Prefix of Adjutant's own headers.
const OWN_HEADERS: &str = "adj-";
/// Maximum number of headers that a reply may have.
const HEADERS_MAX: usize = 32;
/// Largest reply that is read, in bytes.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Initial size of a buffer for a request or a reply.
const MESSAGE_BYTES: usize = 4 * 1024;
/// Bodies up to this size are copied into one buffer with their head.
const BODY_BYTES_COPIED: usize = 16 * 1024;

/// An HTTP request.
pub(super) struct Request {
    head: Vec<u8>,
    body: Bytes,
}

impl Request {
    /// Creates a request for a path of the API.
    pub(super) fn post(path: &str, body: Bytes) -> Self {
        let mut head = Vec::with_capacity(MESSAGE_BYTES);
        for part in [
            "POST ",
            path,
            " HTTP/1.1\r\nhost: adj\r\ncontent-type: application/json\r\ncontent-length: ",
        ] {
            head.extend_from_slice(part.as_bytes());
        }
        head.extend_from_slice(body.len().to_string().as_bytes());
        head.extend_from_slice(b"\r\n");
        Self { head, body }
    }

    /// Adds a header.
    ///
    /// # Errors
    /// The value is not valid in a header.
    pub(super) fn header(mut self, name: &str, value: &str) -> Result<Self, InvalidHeaderValue> {
        HeaderValue::from_str(value)?;
        for part in [name, ": ", value, "\r\n"] {
            self.head.extend_from_slice(part.as_bytes());
        }
        Ok(self)
    }

    async fn send(self, stream: &mut Stream) -> io::Result<()> {
        let Self { mut head, body } = self;
        head.extend_from_slice(b"\r\n");
        if body.len() <= BODY_BYTES_COPIED {
            head.extend_from_slice(&body);
            return stream.write_all(&head).await;
        }
        stream.write_all(&head).await?;
        stream.write_all(&body).await
    }
}

/// A reply with any status.
#[derive(Debug)]
pub(super) struct RawReply {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    head: Vec<(String, String)>,
}

impl RawReply {
    /// Returns the value of one of Adjutant's own headers.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// The parsed head of a reply.
struct Head {
    status: StatusCode,
    /// Where the body starts.
    bytes: usize,
    length: usize,
    closes: bool,
    own: Vec<(String, String)>,
}

/// Parses the head of a reply. `None`: it is incomplete.
fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut headers);
    let length = match response.parse(bytes).map_err(io::Error::other)? {
        Status::Complete(length) => length,
        Status::Partial if bytes.len() > HEAD_BYTES_MAX => {
            return Err(io::Error::other("the head of the reply is too long"));
        }
        Status::Partial => return Ok(None),
    };
    let status =
        StatusCode::from_u16(response.code.unwrap_or_default()).map_err(io::Error::other)?;
    let mut head = Head {
        status,
        bytes: length,
        length: 0,
        closes: false,
        own: Vec::new(),
    };
    let mut has_length = false;
    for header in response.headers {
        let text = || std::str::from_utf8(header.value).map_err(io::Error::other);
        if header.name.eq_ignore_ascii_case("content-length") {
            head.length = text()?.trim().parse().map_err(io::Error::other)?;
            has_length = true;
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.closes = header.value.eq_ignore_ascii_case(b"close");
        } else if header.name.len() > OWN_HEADERS.len()
            && header.name[..OWN_HEADERS.len()].eq_ignore_ascii_case(OWN_HEADERS)
        {
            head.own.push((header.name.to_owned(), text()?.to_owned()));
        }
    }
    if !has_length {
        return Err(io::Error::other("a reply without a length"));
    }
    if head.length > REPLY_BYTES_MAX {
        return Err(io::Error::other(format!(
            "a reply of {} bytes is too long",
            head.length
        )));
    }
    Ok(Some(head))
}

/// A connection to a hub or a supervisor.
pub(super) struct HubConnection {
    stream: Stream,
    /// Another call can use the connection.
    is_reusable: bool,
}

impl HubConnection {
    /// Connects to a socket.
    ///
    /// # Errors
    /// The socket cannot be connected to.
    pub(super) async fn open(socket: &Path) -> io::Result<Self> {
        let stream = sock::connect(socket).await?;
        Ok(Self {
            stream,
            is_reusable: true,
        })
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.is_reusable
    }

    /// Returns whether the server has kept the connection open and sent nothing since the last
    /// reply.
    pub(super) async fn is_open(&mut self) -> bool {
        let mut space = [0];
        let mut nothing = ReadBuf::new(&mut space);
        std::future::poll_fn(|cx| {
            Poll::Ready(
                Pin::new(&mut self.stream)
                    .poll_read(cx, &mut nothing)
                    .is_pending(),
            )
        })
        .await
    }

    /// Returns the process at the other end.
    pub(super) fn server(&self) -> Option<Pid> {
        self.stream.server()
    }

    /// Sends a request and waits for the reply.
    pub(super) async fn exchange(&mut self, request: Request) -> io::Result<RawReply> {
        // False until the whole reply is read.
        self.is_reusable = false;
        let (reply, closes) = exchange(&mut self.stream, request).await?;
        self.is_reusable = !closes;
        Ok(reply)
    }
}

/// Sends a request and reads the reply. Also returns whether the server closes the connection.
async fn exchange(stream: &mut Stream, request: Request) -> io::Result<(RawReply, bool)> {
    let sent = request.send(stream).await;
    // A refusal can arrive before the server has read the whole request.
    match (read_reply(stream).await, sent) {
        (Ok((reply, closes)), sent) => Ok((reply, closes || sent.is_err())),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
    }
}

async fn read_reply(stream: &mut Stream) -> io::Result<(RawReply, bool)> {
    let mut bytes = Vec::with_capacity(MESSAGE_BYTES);
    let Head {
        status,
        bytes: begin,
        length,
        closes,
        own,
    } = loop {
        read_some(stream, &mut bytes).await?;
        if let Some(head) = parse_head(&bytes)? {
            break head;
        }
    };
    let end = begin + length;
    bytes.reserve(end.saturating_sub(bytes.len()));
    while bytes.len() < end {
        read_some(stream, &mut bytes).await?;
    }
    if bytes.len() > end {
        return Err(io::Error::other("more than a reply"));
    }
    Ok((
        RawReply {
            status,
            body: Bytes::from(bytes).slice(begin..),
            head: own,
        },
        closes,
    ))
}

async fn read_some(stream: &mut Stream, bytes: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(bytes).await? {
        0 => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the connection was closed before the reply",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixStream;

    fn pair() -> (HubConnection, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair");
        (
            HubConnection {
                stream: Stream::new(near).expect("near"),
                is_reusable: true,
            },
            far,
        )
    }

    /// Reads one request, and writes a reply in pieces.
    async fn reply(far: &mut UnixStream, pieces: &[&[u8]]) -> String {
        let mut got = Vec::new();
        while !got.ends_with(b"{}") {
            assert!(far.read_buf(&mut got).await.expect("read") > 0);
        }
        for piece in pieces {
            far.write_all(piece).await.expect("written");
            tokio::task::yield_now().await;
        }
        String::from_utf8(got).expect("text")
    }

    fn request() -> Request {
        Request::post("/api/v1/hub", Bytes::from_static(b"{}"))
            .header("adj-key", "k")
            .expect("a header")
    }

    #[tokio::test]
    async fn reply_in_pieces_is_joined_and_the_connection_kept() {
        let (mut near, mut far) = pair();
        let pieces: [&[u8]; 3] = [
            b"HTTP/1.1 200 OK\r\nAdj-Ver",
            b"sion: 1.2.3\r\ncontent-length: 4\r\n\r\nab",
            b"cd",
        ];
        let (replied, sent) = tokio::join!(near.exchange(request()), reply(&mut far, &pieces));
        let replied = replied.expect("a reply");
        assert_eq!(
            (
                replied.status,
                &replied.body[..],
                replied.header("adj-version")
            ),
            (StatusCode::OK, &b"abcd"[..], Some("1.2.3"))
        );
        assert!(
            sent.starts_with("POST /api/v1/hub HTTP/1.1\r\n")
                && sent.contains("\r\ncontent-length: 2\r\n")
                && sent.contains("\r\nadj-key: k\r\n")
        );
        assert!(near.is_reusable() && near.is_open().await);
        drop(far);
        tokio::task::yield_now().await;
        assert!(!near.is_open().await, "the server has closed it");
    }

    #[tokio::test]
    async fn incomplete_reply_is_an_error() {
        for pieces in [
            &[&b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab"[..]][..],
            &[b"HTTP/1.1 200 OK\r\n\r\nab"],
            &[b"hello\r\n\r\n"],
            &[],
        ] {
            let (mut near, mut far) = pair();
            let replying = async {
                reply(&mut far, pieces).await;
                drop(far);
            };
            let (replied, ()) = tokio::join!(near.exchange(request()), replying);
            assert!(replied.is_err());
            assert!(!near.is_reusable());
        }
    }

    #[tokio::test]
    async fn refusal_of_an_unread_request_is_received() {
        let (mut near, mut far) = pair();
        let long = Request::post("/api/v1/say", Bytes::from(vec![b'x'; 4_000_000]));
        let refusing = async {
            far.write_all(b"HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}").await.expect("written");
            drop(far);
        };
        let (replied, ()) = tokio::join!(near.exchange(long), refusing);
        assert_eq!(
            replied.expect("a reply").status,
            StatusCode::PAYLOAD_TOO_LARGE
        );
        assert!(!near.is_reusable());
    }

    #[test]
    fn header_cannot_contain_another() {
        assert!(
            Request::post("/", Bytes::new())
                .header("adj-key", "a\r\nadj-attempt: b")
                .is_err()
        );
    }
}
