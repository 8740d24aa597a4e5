//! The bodies of responses, which are streamed to the agent while their usage is counted.

use super::exchange::Exchange;
use super::upstream::{Link, Upstream};
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Idle timeout within a response.
const SILENT_MAX: Duration = Duration::from_secs(15 * 60);

/// The body of a response of the gate.
#[derive(Debug)]
pub(super) enum GateBody {
    Whole(Full<Bytes>),
    Upstream(Box<UpstreamBody>),
}

impl GateBody {
    pub(super) fn whole(text: String) -> Self {
        Self::Whole(Full::new(Bytes::from(text)))
    }
}

impl Body for GateBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Upstream(body) => body.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Upstream(body) => body.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Upstream(body) => body.body.size_hint(),
        }
    }
}

/// The body of the API's response, with its connection. Dropping it before its end closes the
/// connection, which cancels the request.
#[derive(Debug)]
pub(super) struct UpstreamBody {
    body: Incoming,
    link: Option<Link>,
    upstream: Arc<Upstream>,
    exchange: Exchange,
    last_frame: Instant,
    silence: Pin<Box<Sleep>>,
}

impl UpstreamBody {
    pub(super) fn new(
        body: Incoming,
        link: Link,
        upstream: Arc<Upstream>,
        exchange: Exchange,
    ) -> Self {
        let silence = Box::pin(tokio::time::sleep(SILENT_MAX));
        Self {
            body,
            link: Some(link),
            upstream,
            exchange,
            last_frame: Instant::now(),
            silence,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending()
            && let Some(link) = &mut self.link
        {
            // No task drives the connection: bytes arrive only here, and are passed on at once.
            link.advance(cx);
            polled = Pin::new(&mut self.body).poll_frame(cx);
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(bytes) = frame.data_ref() {
                    self.exchange.feed(bytes);
                }
                self.last_frame = Instant::now();
                if self.body.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.exchange.end(false);
                self.link = None;
                Poll::Ready(Some(Err(io::Error::other(error))))
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Pending => self.poll_silence(cx),
        }
    }

    /// Fails when the API has sent nothing for too long.
    fn poll_silence(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        while self.silence.as_mut().poll(cx).is_ready() {
            let due = self.last_frame + SILENT_MAX;
            if due <= Instant::now() {
                self.exchange.end(false);
                self.link = None;
                return Poll::Ready(Some(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the API has sent nothing for too long",
                ))));
            }
            // Moved when it fires instead of with each frame, of which a response has thousands.
            self.silence.as_mut().reset(due.into());
        }
        Poll::Pending
    }

    /// Ends the exchange, and keeps the connection for the next request.
    fn end(&mut self) {
        self.exchange.end(true);
        if let Some(link) = self.link.take() {
            self.upstream.keep(link);
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // With a known length, the reader can stop before the end of the body is polled.
        if self.body.is_end_stream() {
            self.end();
        }
    }
}
