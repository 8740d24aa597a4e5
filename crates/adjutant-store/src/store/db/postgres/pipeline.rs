//! Pipelined statements. The driver ends each statement with a `Sync`, at which the server writes
//! to its socket and wakes this process. Between statements that are sent together it is left out,
//! and the driver receives the `ReadyForQuery` that it waits for from here.
//!
//! If a statement fails, the server skips the rest up to the next `Sync`. The driver then receives
//! the error that the server returns for statements of a failed transaction. A simple query always
//! has a `Sync` before it, because it may be a rollback, which must not be skipped.
//!
//! Statements are sent together only within a transaction: outside of one, the server would commit
//! them together, after the driver has learned that the first one is complete. COPY is not used.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

/// How many bytes wait to be sent before the driver has to wait.
const UNSENT_MAX: usize = 256 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// The length of a message's type and size.
const HEADER_BYTES: usize = 5;
const SYNC: [u8; HEADER_BYTES] = [b'S', 0, 0, 0, 4];
/// The end of a request, within a transaction.
const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'T'];
/// The error for statements of a failed transaction.
const SKIPPED: &[u8] = b"SERROR\0VERROR\0C25P02\0Mcurrent transaction is aborted, commands ignored until end of transaction block\0\0";

/// A connection to the server, above TLS.
pub(super) struct Pipelined<S> {
    inner: S,
    sent: Sent,
    received: Received,
    requests: Requests,
}

/// The requests without a complete reply, oldest first.
type Requests = VecDeque<Request>;

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// With a `Sync`, or as a simple query. The server sends `ReadyForQuery`.
    Ended,
    /// Without a `Sync`, because another statement follows.
    Continued,
}

/// The process of the server that serves a session, as the server announces it when the session
/// begins. 0: not yet.
#[derive(Debug, Clone, Default)]
pub(super) struct AnnouncedBackend(Arc<AtomicI32>);

impl AnnouncedBackend {
    pub(super) fn get(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<S> Pipelined<S> {
    pub(super) fn new(inner: S, backend: AnnouncedBackend) -> Self {
        let received = Received {
            backend,
            ..Received::default()
        };
        Self {
            inner,
            sent: Sent::default(),
            received,
            requests: Requests::default(),
        }
    }
}

/// What the driver sends.
#[derive(Default)]
struct Sent {
    has_started: bool,
    /// The beginning of an incomplete message.
    partial: Vec<u8>,
    /// The types of the messages of the current request.
    current: Vec<u8>,
    /// Whether the `Sync` of the last statement is held back.
    holds_sync: bool,
    ready: Vec<u8>,
}

impl Sent {
    fn accept(&mut self, bytes: &[u8], requests: &mut Requests) {
        let mut bytes_left = std::mem::take(&mut self.partial);
        bytes_left.extend_from_slice(bytes);
        let mut rest = bytes_left.as_slice();
        while let Some((message, after)) = self
            .message_length(rest)
            .and_then(|length| rest.split_at_checked(length))
        {
            if self.has_started {
                self.pass(message, requests);
            } else {
                self.has_started = true;
                self.ready.extend_from_slice(message);
            }
            rest = after;
        }
        self.partial = rest.to_vec();
    }

    /// Returns the length of the next message, if it is known. The first message has no type.
    fn message_length(&self, bytes: &[u8]) -> Option<usize> {
        let at = usize::from(self.has_started);
        let size: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(at + usize::try_from(u32::from_be_bytes(size)).ok()?.max(4))
    }

    fn pass(&mut self, message: &[u8], requests: &mut Requests) {
        let kind = message.first().copied().unwrap_or_default();
        if std::mem::take(&mut self.holds_sync) {
            // Only another statement continues the pipeline.
            if kind == b'B' {
                requests.pop_back();
                requests.push_back(Request::Continued);
            } else {
                self.ready.extend_from_slice(&SYNC);
            }
        }
        match kind {
            b'S' => {
                requests.push_back(Request::Ended);
                // Only the reply to an `Execute` has an end from which `end_message` can make the
                // `ReadyForQuery`. A `Parse` without its `Sync` would leave the driver waiting.
                self.holds_sync = self.current == *b"BE";
                self.current.clear();
                if self.holds_sync {
                    return;
                }
            }
            b'Q' => requests.push_back(Request::Ended),
            kind => self.current.push(kind),
        }
        self.ready.extend_from_slice(message);
    }

    /// Ends the pipeline.
    fn end(&mut self) {
        if std::mem::take(&mut self.holds_sync) {
            self.ready.extend_from_slice(&SYNC);
        }
    }
}

/// What the server sends.
#[derive(Default)]
struct Received {
    /// The type and size of the current message, as far as they were received.
    header: Vec<u8>,
    /// The rest of the current message.
    rest: usize,
    ready: Vec<u8>,
    /// The body of `BackendKeyData`.
    key_data: Vec<u8>,
    backend: AnnouncedBackend,
}

impl Received {
    fn accept(&mut self, mut bytes: &[u8], requests: &mut Requests) {
        while !bytes.is_empty() {
            if self.header.len() < HEADER_BYTES {
                let (header, after) =
                    bytes.split_at(bytes.len().min(HEADER_BYTES - self.header.len()));
                self.header.extend_from_slice(header);
                self.ready.extend_from_slice(header);
                bytes = after;
                let Some(size) = self
                    .header
                    .get(1..HEADER_BYTES)
                    .and_then(|size| <[u8; 4]>::try_from(size).ok())
                else {
                    continue;
                };
                self.rest = usize::try_from(u32::from_be_bytes(size))
                    .unwrap_or(usize::MAX)
                    .saturating_sub(4);
            }
            let (rest, after) = bytes.split_at(bytes.len().min(self.rest));
            self.ready.extend_from_slice(rest);
            self.rest -= rest.len();
            if self.header.first() == Some(&b'K') {
                self.key_data.extend_from_slice(rest);
            }
            bytes = after;
            if self.rest == 0 {
                let kind = self.header.first().copied().unwrap_or_default();
                self.header.clear();
                self.end_message(kind, requests);
            }
        }
    }

    fn end_message(&mut self, kind: u8, requests: &mut Requests) {
        if let (b'K', Some(backend)) = (kind, self.key_data.first_chunk::<4>()) {
            self.backend
                .0
                .store(i32::from_be_bytes(*backend), Ordering::Relaxed);
        }
        match (kind, requests.front()) {
            (b'Z', Some(_)) => drop(requests.pop_front()),
            // The end of a statement.
            (b'C' | b'I' | b's', Some(Request::Continued)) => {
                self.ready.extend_from_slice(&READY);
                requests.pop_front();
            }
            // The server sends nothing for the statements that it skips, and the driver waits for a
            // reply to each.
            (b'E', Some(Request::Continued)) => {
                self.ready.extend_from_slice(&READY);
                requests.pop_front();
                self.skip(requests);
            }
            _ => {}
        }
    }

    /// Replies to the requests that the server skips after an error. It sends the last
    /// `ReadyForQuery` itself.
    fn skip(&mut self, requests: &mut Requests) {
        while let Some(request) = requests.front().copied() {
            self.ready.push(b'E');
            self.ready.extend_from_slice(
                &u32::try_from(SKIPPED.len() + 4)
                    .unwrap_or(u32::MAX)
                    .to_be_bytes(),
            );
            self.ready.extend_from_slice(SKIPPED);
            if request == Request::Ended {
                return;
            }
            self.ready.extend_from_slice(&READY);
            requests.pop_front();
        }
    }
}

impl<S: AsyncWrite + Unpin> Pipelined<S> {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.sent.ready.is_empty() {
            let count = ready!(Pin::new(&mut self.inner).poll_write(context, &self.sent.ready))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent.ready.drain(..count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pipelined<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.sent.ready.len() > UNSENT_MAX {
            ready!(this.poll_send(context))?;
        }
        this.sent.accept(bytes, &mut this.requests);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The driver flushes before it waits for replies. The server sends them only at a `Sync`,
        // so a `Sync` that is still held back would let both sides wait.
        self.sent.end();
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pipelined<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.received.ready.is_empty() {
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.received.accept(read.filled(), &mut this.requests);
        }
        let count = this.received.ready.len().min(into.remaining());
        into.put_slice(&this.received.ready[..count]);
        this.received.ready.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl<S: TlsStream + Unpin> TlsStream for Pipelined<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.inner.channel_binding()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len() + 4)
            .expect("a short message")
            .to_be_bytes();
        [&[kind], size.as_slice(), body].concat()
    }

    /// The messages of a statement, as the driver sends it.
    fn statement() -> Vec<u8> {
        [message(b'B', b"values"), message(b'E', b""), SYNC.to_vec()].concat()
    }

    fn types(mut bytes: &[u8]) -> String {
        let mut types = String::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
            types.push(char::from(header[0]));
            let size = usize::try_from(u32::from_be_bytes([
                header[1], header[2], header[3], header[4],
            ]))
            .expect("a size");
            bytes = &rest[size - 4..];
        }
        types
    }

    /// Returns the types of the messages that the server receives, and the requests. The driver
    /// writes `chunk` bytes at a time.
    fn sent(requests: &[Vec<u8>], chunk: usize) -> (String, Requests) {
        let (mut sent, mut open) = (
            Sent {
                has_started: true,
                ..Sent::default()
            },
            Requests::default(),
        );
        for bytes in requests.concat().chunks(chunk) {
            sent.accept(bytes, &mut open);
        }
        sent.end();
        (types(&sent.ready), open)
    }

    /// Returns the types of the messages that the driver receives.
    fn received(replies: &[Vec<u8>], requests: &mut Requests, chunk: usize) -> String {
        let mut received = Received::default();
        for bytes in replies.concat().chunks(chunk) {
            received.accept(bytes, requests);
        }
        types(&received.ready)
    }

    #[test]
    fn statements_sent_together_have_one_sync() {
        let row = message(b'D', b"a row");
        let (complete, ready) = (message(b'C', b"SELECT 1\0"), READY.to_vec());
        for chunk in [1, 7, 1_000] {
            let (messages, mut requests) = sent(&[statement(), statement(), statement()], chunk);
            assert_eq!(messages, "BEBEBES");
            let replies = [
                row.clone(),
                complete.clone(),
                complete.clone(),
                message(b'N', b"notice"),
                row.clone(),
                complete.clone(),
                ready.clone(),
            ];
            assert_eq!(received(&replies, &mut requests, chunk), "DCZCZNDCZ");
            assert!(requests.is_empty());
        }
    }

    #[test]
    fn other_requests_have_their_own_sync() {
        let query = message(b'Q', b"ROLLBACK\0");
        let prepare = [message(b'P', b"a"), message(b'D', b"a"), SYNC.to_vec()].concat();
        let (messages, mut requests) = sent(
            &[query.clone(), statement(), query, statement(), prepare],
            1_000,
        );
        assert_eq!(messages, "QBESQBESPDS");
        let ready = READY.to_vec();
        let replies = [
            message(b'C', b""),
            ready.clone(),
            message(b'E', b""),
            ready.clone(),
            message(b'C', b""),
            ready.clone(),
        ];
        assert_eq!(received(&replies, &mut requests, 3), "CZEZCZ");
        assert_eq!(requests.len(), 2);
    }

    #[test]
    fn statements_after_a_failed_one_fail() {
        let (_, mut requests) = sent(
            &[
                statement(),
                statement(),
                statement(),
                statement(),
                message(b'Q', b""),
            ],
            1_000,
        );
        let replies = [
            message(b'C', b""),
            message(b'E', b""),
            READY.to_vec(),
            message(b'C', b""),
            READY.to_vec(),
        ];
        assert_eq!(received(&replies, &mut requests, 4), "CZEZEZEZCZ");
        assert!(requests.is_empty());
    }

    #[test]
    fn process_of_the_server_is_read_from_any_pieces() {
        for chunk in [1, 3, 1_000] {
            let mut received = Received::default();
            for bytes in [
                message(b'R', &[0; 4]),
                message(b'K', &[0, 0, 1, 2, 9, 9, 9, 9]),
                READY.to_vec(),
            ]
            .concat()
            .chunks(chunk)
            {
                received.accept(bytes, &mut Requests::default());
                received.ready.clear();
            }
            assert_eq!(received.backend.get(), 258);
        }
    }

    #[test]
    fn first_message_has_no_type() {
        let mut sent = Sent::default();
        let startup = [0, 0, 0, 9, 0, 3, 0, 0, 0];
        sent.accept(&startup[..5], &mut Requests::default());
        assert!(sent.ready.is_empty());
        sent.accept(
            &[&startup[5..], &message(b'p', b"password")].concat(),
            &mut Requests::default(),
        );
        assert_eq!(
            (&sent.ready[..9], types(&sent.ready[9..])),
            (startup.as_slice(), "p".to_owned())
        );
        assert!(sent.current == *b"p");
    }
}
