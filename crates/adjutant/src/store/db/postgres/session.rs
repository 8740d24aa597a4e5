//! One session with the server. Its socket is served by a thread, so that a caller may block on any thread.

use super::address::Address;
use crate::store::db::{Error, Result};
use futures::channel::oneshot;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

/// How long the server may take for one statement. A connection without a reply is given up.
const REPLY_WITHIN: Duration = Duration::from_secs(60);
/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A session.
pub(super) struct Session {
    pub(super) client: Client,
    /// Why the session ended.
    end: Arc<Mutex<Option<String>>>,
}

impl Session {
    /// Connects and authenticates. `notify` receives the payloads of notifications, until the session ends.
    pub(super) fn connect(address: &Address, notify: Option<Sender<String>>) -> Result<Self> {
        let (ready, connected) = oneshot::channel();
        let end = Arc::new(Mutex::new(None));
        let (address, ended) = (address.clone(), Arc::clone(&end));
        std::thread::Builder::new()
            .name("postgres".to_owned())
            .spawn(move || serve(&address, ready, &ended, notify))
            .map_err(|error| Error::Lost(error.to_string()))?;
        let connected = block_on(connected, Instant::now() + CONNECT_WITHIN);
        match connected {
            Some(Ok(client)) => Ok(Self { client: client?, end }),
            Some(Err(_)) => Err(Error::Lost("the connection failed".to_owned())),
            None => Err(Error::Lost(format!("no connection within {} s", CONNECT_WITHIN.as_secs()))),
        }
    }

    /// Waits for a reply.
    pub(super) fn wait<T>(&self, reply: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>) -> Result<T> {
        match block_on(reply, Instant::now() + REPLY_WITHIN) {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(self.error(&error)),
            None => Err(Error::Lost(format!("no reply from PostgreSQL within {} s", REPLY_WITHIN.as_secs()))),
        }
    }

    fn error(&self, error: &tokio_postgres::Error) -> Error {
        match of_server(error) {
            Error::Lost(message) => {
                let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Error::Lost(end.unwrap_or(message))
            }
            error => error,
        }
    }
}

/// Connects, hands over the client, and serves the socket until the session ends.
fn serve(address: &Address, ready: oneshot::Sender<Result<Client>>, end: &Mutex<Option<String>>, notify: Option<Sender<String>>) {
    let refuse = |ready: oneshot::Sender<Result<Client>>, error: Error| {
        if ready.send(Err(error)).is_err() {
            tracing::debug!("nobody waits for the connection");
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(ready, Error::Lost(error.to_string())),
    };
    runtime.block_on(async {
        let config = address.driver();
        let ended = match address.tls() {
            None => match config.connect(NoTls).await {
                Ok((client, connection)) => deliver(ready, client, connection, notify).await,
                Err(error) => return refuse(ready, of_server(&error)),
            },
            Some(tls) => {
                let tls = match tls.connector() {
                    Ok(tls) => tls,
                    Err(error) => return refuse(ready, Error::Other(error)),
                };
                match config.connect(tls).await {
                    Ok((client, connection)) => deliver(ready, client, connection, notify).await,
                    Err(error) => return refuse(ready, of_server(&error)),
                }
            }
        };
        if let Err(error) = ended {
            *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(message_of(&error));
        }
    });
}

async fn deliver<S, T>(
    ready: oneshot::Sender<Result<Client>>,
    client: Client,
    mut connection: Connection<S, T>,
    notify: Option<Sender<String>>,
) -> std::result::Result<(), tokio_postgres::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    if ready.send(Ok(client)).is_err() {
        return Ok(());
    }
    let Some(notify) = notify else { return connection.await };
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message?
            && notify.send(notification.payload().to_owned()).is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Errors that end a session or refuse it for now: the server stops, starts, or has no free connection.
const NO_SESSION: [SqlState; 4] = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW, SqlState::TOO_MANY_CONNECTIONS];

/// Classifies an error of the server or of the connection to it.
fn of_server(error: &tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        return if is_permanent(error) { Error::Other(message_of(error)) } else { Error::Lost(message_of(error)) };
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
    } else if NO_SESSION.contains(code) || code.code().starts_with("08") {
        Error::Lost(message)
    } else if code.code().starts_with("23") {
        Error::Constraint(message)
    } else {
        Error::Other(message)
    }
}

/// Returns whether connecting again cannot help: no password, a certificate that is not trusted, or a server without TLS.
fn is_permanent(error: &tokio_postgres::Error) -> bool {
    // The driver has the kind only in its message. TLS reports a refused certificate as invalid data.
    let is_of = |kind: &str| error.to_string().starts_with(kind);
    let io = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let is_refused = io.map_or(is_of("error performing TLS handshake"), |io| io.kind() == std::io::ErrorKind::InvalidData);
    is_refused || is_of("invalid configuration") || is_of("authentication error")
}

/// Returns the message of an error with its causes. The password is not part of them.
fn message_of(error: &tokio_postgres::Error) -> String {
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

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread, which may belong to a runtime. `None`: timed out.
fn block_on<F: Future>(future: F, until: Instant) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}
