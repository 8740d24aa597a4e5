//! The bodies of requests, which are streamed to the API.

use adjutant_stream::api_usage::RequestScanner;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Maximum number of bytes read of a refused request. Most clients read a response only after they
/// have sent the request.
pub(super) const REFUSED_BYTES_MAX: usize = 64 << 20;

/// The model and the status of a request.
#[derive(Debug)]
pub(super) struct RequestInfo {
    /// The model in the path. If there is one, the model in the body is ignored.
    of_path: Option<String>,
    // Written while the request is read, and read while the response is counted. Never held across
    // an await.
    of_body: Mutex<Option<String>>,
    /// Whether a background response is refused, because it reports no usage.
    must_be_foreground: bool,
    is_refused: AtomicBool,
}

impl RequestInfo {
    pub(super) fn new(of_path: Option<String>, must_be_foreground: bool) -> Self {
        Self {
            of_path,
            of_body: Mutex::default(),
            must_be_foreground,
            is_refused: AtomicBool::new(false),
        }
    }

    /// Returns the model that the request names. `None`: it is not known.
    pub(super) fn model(&self) -> Option<String> {
        self.of_path.clone().or_else(|| self.of_body().clone())
    }

    /// Returns whether the request is refused because it asks for a background response. The API
    /// has not received all of it.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    fn of_body(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.of_body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a request. A request for a background response is aborted before its end.
#[derive(Debug)]
pub(super) struct RequestBody {
    body: Incoming,
    scanner: RequestScanner,
    asked: Arc<RequestInfo>,
    /// Number of bytes read since the request was aborted.
    refused_bytes: Option<usize>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, asked: Arc<RequestInfo>) -> Self {
        Self {
            body,
            scanner: RequestScanner::default(),
            asked,
            refused_bytes: None,
        }
    }

    /// Returns whether a part of the body may be forwarded.
    fn note(&mut self, bytes: &[u8]) -> bool {
        self.scanner.feed(bytes);
        if self.asked.must_be_foreground && self.scanner.may_be_background() {
            self.asked.is_refused.store(true, Ordering::Relaxed);
            return false;
        }
        let mut model = self.asked.of_body();
        if model.as_deref() != self.scanner.model() {
            *model = self.scanner.model().map(str::to_owned);
        }
        true
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => Some(frame),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(io::Error::other(error))));
                }
                Poll::Ready(None) => None,
            };
            let bytes = frame.as_ref().and_then(Frame::data_ref);
            if let Some(read) = self.refused_bytes {
                let read = read + bytes.map_or(0, Bytes::len);
                self.refused_bytes = Some(read);
                if frame.is_none() || read > REFUSED_BYTES_MAX {
                    return Poll::Ready(Some(Err(io::Error::other("the request is refused"))));
                }
            } else if bytes.is_some_and(|bytes| !self.note(bytes)) {
                self.refused_bytes = Some(0);
            } else {
                return Poll::Ready(frame.map(Ok));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.refused_bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
