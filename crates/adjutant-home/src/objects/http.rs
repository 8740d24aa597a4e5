//! The requests to a provider: each over its own connection, without redirects, with a reply of
//! limited size.

use crate::http_client::{self, Endpoint, ExchangeError, Limits};
use crate::tls::{Trust, TrustError};
use ::http::header::HOST;
use ::http::{HeaderValue, Request, Uri};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio_rustls::TlsConnector;

const LIMITS: Limits = Limits {
    total: Duration::from_secs(120),
    connect: Duration::from_secs(10),
    // Never reached before the total.
    silence_max: Duration::from_secs(120),
    head_bytes_max: None,
    // Objects are read in smaller ranges.
    body_bytes_max: 32 * 1024 * 1024,
};

/// Makes the connections of a store.
#[derive(Debug)]
pub(super) struct Connector(Client);

impl Connector {
    /// Sets up TLS, unless the endpoint is on this machine without it. Blocks.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn new(endpoint: Option<&str>) -> Result<Self, TrustError> {
        let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        Ok(Self(Client {
            tls: if is_plain {
                None
            } else {
                Some(Trust::Installed.connector()?)
            },
        }))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

#[derive(Clone)]
struct Client {
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl HttpService for Client {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.exchange(request))
    }
}

fn problem(kind: HttpErrorKind, text: String) -> HttpError {
    HttpError::new(kind, io::Error::other(text))
}

impl Client {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = request.into_parts();
        let uri = std::mem::take(&mut parts.uri);
        let endpoint = Endpoint::of(&uri)
            .map_err(|error| problem(HttpErrorKind::Unknown, error.to_string()))?;
        let Endpoint { host, port, .. } = &endpoint;
        let refused = |text: &str| problem(HttpErrorKind::Unknown, format!("{host}: {text}"));
        let named = uri.authority().map_or("", |authority| authority.as_str());
        // Its signature is computed without the default port.
        let default_port = endpoint.tls_name.as_ref().map_or(":80", |_| ":443");
        let named = named.strip_suffix(default_port).unwrap_or(named);
        parts.headers.insert(
            HOST,
            HeaderValue::from_str(named).map_err(|_| refused("it is not a host name"))?,
        );
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path
            .parse::<Uri>()
            .map_err(|_| refused("the path of a request cannot be sent"))?;
        let request = Request::from_parts(parts, body);
        let exchanged = http_client::exchange(&endpoint, self.tls.as_ref(), request, &LIMITS).await;
        let reply = exchanged.map_err(|error| match error {
            ExchangeError::TimedOut(_) => problem(HttpErrorKind::Timeout, error.to_string()),
            ExchangeError::ConnectionLost(error) => {
                HttpError::new(HttpErrorKind::Interrupted, error)
            }
            ExchangeError::BodyNotRead(error) => {
                HttpError::new_boxed(HttpErrorKind::Interrupted, error)
            }
            ExchangeError::NoTls => refused(&error.to_string()),
            error => problem(HttpErrorKind::Connect, format!("{host}:{port}: {error}")),
        })?;
        Ok(reply.map(Into::into))
    }
}
