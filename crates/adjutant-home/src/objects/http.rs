//! The requests to a provider: each over its own connection, without redirects, with a reply of limited size.

use crate::tls;
use ::http::header::HOST;
use ::http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time limit of connecting, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of a request, with its body and its reply.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);
/// Largest reply. Objects are read in smaller ranges.
const REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Makes the connections of a store.
#[derive(Debug)]
pub(super) struct Connector(Client);

impl Connector {
    /// Sets up TLS, unless the endpoint is on this machine without it. Blocks.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn new(endpoint: Option<&str>) -> Result<Self, String> {
        let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        Ok(Self(Client {
            tls: if is_plain {
                None
            } else {
                Some(tls::connector()?)
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
        Box::pin(async move {
            let exchanged = tokio::time::timeout(REQUEST_LIMIT, self.exchange(request)).await;
            exchanged.unwrap_or_else(|_| {
                Err(problem(
                    HttpErrorKind::Timeout,
                    format!("no reply within {} s", REQUEST_LIMIT.as_secs()),
                ))
            })
        })
    }
}

fn problem(kind: HttpErrorKind, text: String) -> HttpError {
    HttpError::new(kind, io::Error::other(text))
}

impl Client {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = request.into_parts();
        let uri = std::mem::take(&mut parts.uri);
        let host = uri
            .host()
            .unwrap_or_default()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let default_port = if is_tls { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default_port);
        let refused = |text: &str| problem(HttpErrorKind::Unknown, format!("{host}: {text}"));
        let named = uri.authority().map_or("", |authority| authority.as_str());
        // Its signature is computed without the default port.
        let named = named
            .strip_suffix(&format!(":{default_port}"))
            .unwrap_or(named);
        parts.headers.insert(
            HOST,
            HeaderValue::from_str(named).map_err(|_| refused("it is not a host name"))?,
        );
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path
            .parse::<Uri>()
            .map_err(|_| refused("the path of a request cannot be sent"))?;
        let request = Request::from_parts(parts, body);
        let away = |text: String| problem(HttpErrorKind::Connect, format!("{host}:{port}: {text}"));
        let connected =
            tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect((host.as_str(), port))).await;
        let stream = connected
            .map_err(|_| away("no connection in time".to_owned()))?
            .map_err(|error| away(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| away(error.to_string()))?;
        if !is_tls {
            return exchange(stream, request).await;
        }
        let Some(tls) = &self.tls else {
            return Err(refused("TLS is needed, but the endpoint has none"));
        };
        let name = ServerName::try_from(host.clone())
            .map_err(|_| refused("it is not a valid TLS name"))?;
        let handshake = tokio::time::timeout(CONNECT_LIMIT, tls.connect(name, stream)).await;
        let stream = handshake.map_err(|_| away("no TLS handshake in time".to_owned()))?;
        exchange(
            stream.map_err(|error| away(format!("TLS failed: {error}")))?,
            request,
        )
        .await
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<HttpRequestBody>,
) -> Result<HttpResponse, HttpError> {
    let lost = |error: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    tokio::pin!(connection);
    let read = async {
        let (parts, body) = sender
            .send_request(request)
            .await
            .map_err(lost)?
            .into_parts();
        let body = Limited::new(body, REPLY_BYTES_MAX).collect().await;
        let body = body
            .map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?
            .to_bytes();
        Ok(HttpResponse::from_parts(parts, body.into()))
    };
    tokio::pin!(read);
    tokio::select! {
        read = &mut read => read,
        ended = &mut connection => match ended {
            // A reply that was read before the connection ended still counts.
            Ok(()) => read.await,
            Err(error) => Err(lost(error)),
        },
    }
}
