//! Connections without a task. The future that waits for a response or reads its body drives the
//! connection, so dropping either closes it.

use hyper::body::Body;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// With TLS, or without.
pub type AnyStream = Box<dyn Stream>;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What can be sent as the body of a request.
pub trait RequestBody: Body<Data: Send, Error: Into<BoxError>> + 'static {}
impl<B: Body<Data: Send, Error: Into<BoxError>> + 'static> RequestBody for B {}

/// A connection, which makes progress only while it is polled.
type Driven<B> = Pin<Box<Connection<TokioIo<AnyStream>, B>>>;

/// A connection for one request at a time.
pub struct Link<B: RequestBody> {
    pub sender: SendRequest<B>,
    /// `None`: the connection has ended.
    connection: Option<Driven<B>>,
}

impl<B: RequestBody> std::fmt::Debug for Link<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("is_open", &self.connection.is_some())
            .finish_non_exhaustive()
    }
}

impl<B: RequestBody> Link<B> {
    /// `head_bytes_max`: the largest head of a response. `None`: the default of the HTTP library.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn open(stream: AnyStream, head_bytes_max: Option<usize>) -> hyper::Result<Self> {
        let mut client = http1::Builder::new();
        if let Some(bytes_max) = head_bytes_max {
            client.max_buf_size(bytes_max);
        }
        let (sender, connection) = client.handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender,
            connection: Some(Box::pin(connection)),
        })
    }

    /// Drives the connection until a future is ready that waits for a response or its body.
    pub async fn drive<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        let mut waiting = pin!(waiting);
        poll_fn(|cx| {
            // The connection first: it sends the request and reads the response, which is returned
            // at once.
            self.advance(cx);
            waiting.as_mut().poll(cx)
        })
        .await
    }

    /// Reads and writes as far as possible.
    pub fn advance(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            // The response or its body returns the same error.
            self.connection = None;
        }
    }

    async fn is_usable(&mut self) -> bool {
        self.drive(std::future::ready(())).await;
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Open connections that wait for their next request.
pub struct IdleLinks<B: RequestBody> {
    // Locked only between awaits.
    links: Mutex<Vec<(Link<B>, Instant)>>,
    count_max: usize,
    time_max: Option<Duration>,
}

impl<B: RequestBody> IdleLinks<B> {
    /// `time_max`: how long a connection is kept. `None`: as long as the server does.
    #[must_use]
    pub fn new(count_max: usize, time_max: Option<Duration>) -> Self {
        Self {
            links: Mutex::default(),
            count_max,
            time_max,
        }
    }

    fn links(&self) -> MutexGuard<'_, Vec<(Link<B>, Instant)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection whose last response was read.
    pub fn keep(&self, link: Link<B>) {
        let mut links = self.links();
        if link.connection.is_some() && links.len() < self.count_max {
            links.push((link, Instant::now()));
        }
    }

    /// Takes a connection that is still open.
    pub async fn take(&self) -> Option<Link<B>> {
        loop {
            let (mut link, since) = self.links().pop()?;
            let is_recent = self.time_max.is_none_or(|max| since.elapsed() < max);
            if is_recent && link.is_usable().await {
                return Some(link);
            }
        }
    }
}
