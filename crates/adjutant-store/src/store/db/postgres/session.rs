//! One session with the server. The thread that waits for a reply reads and writes the socket, so a
//! session needs no thread of its own.

use super::address::Address;
use super::pipeline::{AnnouncedBackend, Pipelined};
use super::socket::Socket;
use crate::store::db::{Error, Result};
use adjutant_core::units::duration;
use futures::Stream;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

/// How long the server may take for one statement. A connection without a reply is closed.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of notifications that wait to be received. Beyond it, the oldest are dropped.
const NOTIFICATIONS_MAX: usize = 64;

/// A session.
pub(super) struct PgSession {
    /// `None` while it is dropped.
    client: Option<Client>,
    /// `None` once the connection has ended: calls that wait for a reply then receive an error.
    messages: RefCell<Option<Messages>>,
    socket: Socket,
    progress: Progress,
    /// Payloads that were not received yet.
    notifications: RefCell<VecDeque<String>>,
    /// Why the session ended.
    end: RefCell<Option<String>>,
    has_timed_out: Cell<bool>,
    reply_within: Cell<Duration>,
    /// How often a reply was waited for.
    round_trips: Cell<u64>,
    backend: AnnouncedBackend,
}

/// Reads and writes the socket while it is polled.
type Messages =
    Pin<Box<dyn Stream<Item = std::result::Result<AsyncMessage, tokio_postgres::Error>> + Send>>;

fn messages<S, T>(mut connection: Connection<S, T>) -> Messages
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(futures::stream::poll_fn(move |context| {
        connection.poll_message(context)
    }))
}

impl PgSession {
    /// Connects and authenticates.
    pub(super) fn connect(address: &Address) -> Result<Self> {
        let socket = Socket::connect(address)
            .map_err(|error| Error::Lost(format!("error connecting to server: {error}")))?;
        let (progress, until) = (Progress::default(), Instant::now() + CONNECT_TIMEOUT);
        let backend = AnnouncedBackend::default();
        let connected = match address
            .tls()
            .map(|tls| tls.connector_for(address.host(), backend.clone()))
            .transpose()
            .map_err(Error::Other)?
        {
            None => {
                let connecting = address
                    .driver()
                    .connect_raw(Pipelined::new(socket.clone(), backend.clone()), NoTls);
                progress
                    .block_on(connecting, &socket, until, || {})
                    .map(|done| done.map(|(client, connection)| (client, messages(connection))))
            }
            Some(tls) => {
                let connecting = address.driver().connect_raw(socket.clone(), tls);
                progress
                    .block_on(connecting, &socket, until, || {})
                    .map(|done| done.map(|(client, connection)| (client, messages(connection))))
            }
        };
        let (client, messages) = match connected {
            Some(Ok(connected)) => connected,
            Some(Err(error)) => return Err(of_server(&error)),
            None => {
                return Err(Error::Lost(format!(
                    "no connection within {}",
                    duration::of(CONNECT_TIMEOUT)
                )));
            }
        };
        let (messages, notifications, end) = (
            RefCell::new(Some(messages)),
            RefCell::default(),
            RefCell::default(),
        );
        Ok(Self {
            client: Some(client),
            messages,
            socket,
            progress,
            notifications,
            end,
            has_timed_out: Cell::new(false),
            reply_within: Cell::new(REPLY_TIMEOUT),
            round_trips: Cell::new(0),
            backend,
        })
    }

    /// The process that serves this session, as it was announced when the session began. A pooler
    /// announces one of its own.
    pub(super) fn announced_backend(&self) -> i32 {
        self.backend.get()
    }

    pub(super) fn client(&self) -> &Client {
        self.client.as_ref().expect("present until dropped")
    }

    /// Sets how long the server may take for one statement.
    pub(super) fn set_reply_within(&self, limit: Duration) {
        self.reply_within.set(limit);
    }

    /// Waits for a reply.
    pub(super) fn wait<T>(
        &self,
        reply: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let limit = self.reply_within.get();
        self.round_trips.set(self.round_trips.get() + 1);
        match self
            .progress
            .block_on(reply, &self.socket, Instant::now() + limit, || self.serve())
        {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(self.error(&error)),
            None => {
                self.has_timed_out.set(true);
                Err(Error::Lost(format!(
                    "no reply from PostgreSQL within {}",
                    duration::of(limit)
                )))
            }
        }
    }

    /// Returns how often a reply was waited for.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.get()
    }

    /// Sends a request whose reply nobody needs. It is read with the next one.
    pub(super) fn send<T>(&self, request: impl Future<Output = T>) {
        // The request is sent by the first poll.
        let _: Poll<T> = pin!(request).poll(&mut self.progress.context());
        self.serve();
    }

    /// Returns the next notification. `None`: there was none before `until`.
    pub(super) fn notification(&self, until: Instant) -> Result<Option<String>> {
        let next = poll_fn(|_| match self.notifications.borrow_mut().pop_front() {
            Some(payload) => Poll::Ready(Some(payload)),
            None if self.has_ended() => Poll::Ready(None),
            None => Poll::Pending,
        });
        match self
            .progress
            .block_on(next, &self.socket, until, || self.serve())
        {
            Some(Some(payload)) => Ok(Some(payload)),
            Some(None) => Err(Error::Lost(
                self.end
                    .borrow()
                    .clone()
                    .unwrap_or_else(|| "the connection ended".to_owned()),
            )),
            None => Ok(None),
        }
    }

    /// Returns whether the connection is unusable, as far as its socket tells.
    pub(super) fn is_closed(&self) -> bool {
        self.serve();
        self.has_ended() || self.has_timed_out.get()
    }

    fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Writes what is to be sent, and reads what has arrived.
    fn serve(&self) {
        let mut messages = self.messages.borrow_mut();
        let mut context = self.progress.context();
        while let Some(open) = messages.as_mut() {
            let Poll::Ready(message) = open.as_mut().poll_next(&mut context) else {
                return;
            };
            // The future that waits for it is polled again.
            self.progress.flag.0.store(true, Ordering::Relaxed);
            match message {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    let mut notifications = self.notifications.borrow_mut();
                    if notifications.len() >= NOTIFICATIONS_MAX {
                        notifications.pop_front();
                    }
                    notifications.push_back(notification.payload().to_owned());
                }
                Some(Ok(_)) => {}
                ended => {
                    let problem = ended.and_then(std::result::Result::err).map_or_else(
                        || "the connection ended".to_owned(),
                        |error| message_of(&error),
                    );
                    *self.end.borrow_mut() = Some(problem);
                    *messages = None;
                }
            }
        }
    }

    pub(super) fn error(&self, error: &tokio_postgres::Error) -> Error {
        match of_server(error) {
            Error::Lost(message) => Error::Lost(self.end.borrow().clone().unwrap_or(message)),
            error => error,
        }
    }
}

impl Drop for PgSession {
    fn drop(&mut self) {
        // Without a client, the driver tells the server that the session ends.
        self.client = None;
        self.serve();
    }
}

/// Whether a future of a session can make progress.
struct Progress {
    flag: Arc<Flag>,
    waker: Waker,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Default for Progress {
    fn default() -> Self {
        let flag = Arc::new(Flag::default());
        Self {
            waker: Waker::from(Arc::clone(&flag)),
            flag,
        }
    }
}

impl Progress {
    fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    /// Waits for a future on this thread, which may belong to a runtime. `serve` reads and writes
    /// the socket. `None`: timed out.
    fn block_on<F: Future>(
        &self,
        future: F,
        socket: &Socket,
        until: Instant,
        serve: impl Fn(),
    ) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut context = self.context();
        loop {
            // Before the poll, so that a wake-up during it is not lost.
            self.flag.0.store(false, Ordering::Relaxed);
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Some(value);
            }
            serve();
            if self.flag.0.load(Ordering::Relaxed) {
                continue;
            }
            match socket.wait(until) {
                Ok(true) => serve(),
                Ok(false) => return None,
                Err(error) => {
                    tracing::error!(%error, "a socket cannot be waited for");
                    return None;
                }
            }
        }
    }
}

/// Errors that pass: the server stops, starts, is read-only or has no room, or an administrator or
/// a timeout of the role has ended the session or the transaction. The work is done again on
/// another session.
const PASSING: [&str; 16] = [
    "25006", // read_only_sql_transaction
    "25P02", // in_failed_sql_transaction, after an error that another statement got
    "25P03", // idle_in_transaction_session_timeout
    "25P04", // transaction_timeout
    "40001", // serialization_failure
    "40P01", // deadlock_detected
    "53000", // insufficient_resources
    "53200", // out_of_memory
    "53300", // too_many_connections
    "53400", // configuration_limit_exceeded
    "57P01", // admin_shutdown
    "57P02", // crash_shutdown
    "57P03", // cannot_connect_now
    "57P05", // idle_session_timeout
    "58000", // system_error
    "58030", // io_error
];

/// Classifies an error of the server or of the connection to it.
fn of_server(error: &tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        return if is_permanent(error) {
            Error::Other(message_of(error))
        } else {
            Error::Lost(message_of(error))
        };
    };
    // The detail is left out, because it contains values.
    let message = db.message().to_owned();
    let code = db.code();
    if *code == SqlState::DISK_FULL {
        Error::Full
    } else if *code == SqlState::QUERY_CANCELED {
        Error::Interrupted
    } else if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) {
        Error::Corrupt(message)
    } else if PASSING.contains(&code.code()) || code.code().starts_with("08") {
        Error::Lost(message)
    } else if code.code().starts_with("23") {
        Error::Constraint(message)
    } else {
        Error::Other(message)
    }
}

/// Returns whether connecting again cannot help: no password, a certificate that is not trusted, or
/// a server without TLS.
fn is_permanent(error: &tokio_postgres::Error) -> bool {
    // The driver has the kind only in its message. TLS reports a refused certificate as invalid
    // data.
    let is_of = |kind: &str| error.to_string().starts_with(kind);
    let io =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let is_refused = io.map_or(is_of("error performing TLS handshake"), |io| {
        io.kind() == std::io::ErrorKind::InvalidData
    });
    is_refused || is_of("invalid configuration") || is_of("authentication error")
}

/// The driver's error for a server that asks for a password, and what to do about it.
const NO_PASSWORD: (&str, &str) = (
    "password missing",
    "the server asks for a password: set PGPASSWORD, or add a line for this address to ~/.pgpass",
);

/// Returns the message of an error with its causes. The password is not part of them.
fn message_of(error: &tokio_postgres::Error) -> String {
    if std::error::Error::source(error).is_some_and(|cause| cause.to_string() == NO_PASSWORD.0) {
        return NO_PASSWORD.1.to_owned();
    }
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !message.contains(&cause_text) {
            message = format!("{message}: {cause_text}");
        }
        source = cause.source();
    }
    message
}
