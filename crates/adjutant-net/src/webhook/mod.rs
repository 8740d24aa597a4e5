//! Delivers a webhook: one signed POST over its own connection, or one message to a person, which `notice` formats for a
//! service, and `mail` and `program` pass to a program. Callers decide what to deliver and when; this module does not use the store.
//!
//! The address that is checked is the one that is connected to, so DNS rebinding has no effect. No redirect is
//! followed and no response body is read. TLS is set up for each delivery, so a hub without webhooks pays nothing for
//! it.

mod mail;
mod notice;
mod program;

use crate::config::{
    Address, KeySource, Notices, Service, Target, Webhook, text_variable, topic_of, webhook_address,
};
use crate::files;
use crate::tls;
use adjutant_core::webhook::is_public;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time limit of a delivery, from the name lookup to the response's status.
const DELIVERY_LIMIT: Duration = Duration::from_secs(15);
/// Largest head of a response.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Shortest secret, in bytes.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: u64 = 4 * 1024;
const JSON: &str = "application/json";

/// One signed message.
#[derive(Debug, Clone)]
pub struct Message {
    pub id: String,
    /// Time of this delivery attempt, in seconds since 1970.
    pub timestamp_s: i64,
    pub body: Vec<u8>,
}

/// One message to a person. Its texts can contain anything.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The same when a delivery is repeated.
    pub id: String,
    /// Time of this delivery attempt, in seconds since 1970.
    pub timestamp_s: i64,
    /// What happened, in one line.
    pub title: String,
    /// The details, which are mostly the words of an agent.
    pub text: String,
    /// Where the person can answer.
    pub link: Option<String>,
}

/// Something to deliver.
#[derive(Debug, Clone)]
pub enum Outgoing {
    Event(Message),
    Notice(Notice),
}

/// Delivers to a webhook. The error is a message for people.
///
/// # Errors
/// A secret cannot be read, an address is not allowed, there is no connection, any status but 2xx, or a program failed.
pub async fn deliver(hook: &Webhook, outgoing: &Outgoing) -> Result<(), String> {
    match tokio::time::timeout(DELIVERY_LIMIT, send(hook, outgoing)).await {
        Ok(sent) => sent,
        Err(_) => Err(format!("no response within {} s", DELIVERY_LIMIT.as_secs())),
    }
}

async fn send(hook: &Webhook, outgoing: &Outgoing) -> Result<(), String> {
    match (&hook.target, outgoing) {
        (Target::Signed { url, secret_file }, Outgoing::Event(message)) => {
            let file = secret_file.clone();
            let secret = blocking(move || secret(&file)).await?;
            let headers = [
                ("webhook-id", message.id.clone()),
                ("webhook-timestamp", message.timestamp_s.to_string()),
                ("webhook-signature", signature(&secret, message)),
            ];
            post(url, hook.allow_private, &headers, message.body.clone()).await
        }
        (Target::Notices(Notices { service, .. }), Outgoing::Notice(notice)) => {
            notify(service, hook.allow_private, notice).await
        }
        (Target::Signed { .. }, Outgoing::Notice(_)) | (Target::Notices(_), Outgoing::Event(_)) => {
            Err("the webhook has changed meanwhile; it is tried again".to_owned())
        }
    }
}

async fn notify(service: &Service, allow_private: bool, notice: &Notice) -> Result<(), String> {
    match service {
        Service::Ntfy { url, token } => {
            let url = resolve(url, allow_private).await?;
            let topic = topic_of(&url)?;
            let mut headers = Vec::new();
            if let Some(token) = token {
                headers.push((
                    "authorization",
                    format!("Bearer {}", key(token, "token").await?),
                ));
            }
            // Messages in JSON are published to the server's address, not to the topic's.
            post(
                &with_path(&url, "/")?,
                allow_private,
                &headers,
                notice::ntfy(&topic, notice),
            )
            .await
        }
        Service::Slack { url } => {
            post(
                &resolve(url, allow_private).await?,
                allow_private,
                &[],
                notice::slack(notice),
            )
            .await
        }
        Service::Discord { url } => {
            post(
                &resolve(url, allow_private).await?,
                allow_private,
                &[],
                notice::discord(notice),
            )
            .await
        }
        Service::Telegram { url, token, chat } => {
            let token = key(token, "token").await?;
            if !token
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-'))
            {
                return Err("token: it is not the token of a bot".to_owned());
            }
            let url = with_path(
                url,
                &format!(
                    "{}/bot{token}/sendMessage",
                    url.path().trim_end_matches('/')
                ),
            )?;
            post(&url, allow_private, &[], notice::telegram(chat, notice)).await
        }
        Service::Email { to, from, sendmail } => {
            mail::send(sendmail, to, from.as_deref(), notice, DELIVERY_LIMIT).await
        }
        Service::Desktop => program::show_on_desktop(notice, DELIVERY_LIMIT).await,
        Service::Command { argv } => program::send(argv, notice, DELIVERY_LIMIT).await,
    }
}

/// Returns an address of the same server.
fn with_path(url: &Uri, path: &str) -> Result<Uri, String> {
    let mut parts = url.clone().into_parts();
    // The path can contain a secret, so the error does not repeat it.
    parts.path_and_query = Some(
        path.parse()
            .map_err(|_| "the address cannot be used".to_owned())?,
    );
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

async fn resolve(address: &Address, allow_private: bool) -> Result<Uri, String> {
    match address {
        Address::Plain(url) => Ok(url.clone()),
        Address::Secret(source) => {
            let text = key(source, "url_from").await?;
            webhook_address(&text, allow_private).map_err(|problem| format!("url_from: {problem}"))
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| error.to_string())?
}

/// Reads a secret of one line.
async fn key(source: &KeySource, field: &'static str) -> Result<String, String> {
    let text = match source {
        KeySource::File(file) => {
            let file = file.clone();
            blocking(move || private_text(&file, field)).await?
        }
        KeySource::Env(name) => text_variable(name)
            .ok_or_else(|| format!("{field}: the variable {name} is not set for the hub"))?,
    };
    let text = text.trim();
    if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("{field}: must be one line without spaces"));
    }
    Ok(text.to_owned())
}

async fn post(
    url: &Uri,
    allow_private: bool,
    headers: &[(&'static str, String)],
    body: Vec<u8>,
) -> Result<(), String> {
    let host = url.host().unwrap_or_default();
    let is_tls = url.scheme_str() == Some("https");
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let found = tokio::net::lookup_host((name, port))
        .await
        .map_err(|error| format!("{name} cannot be looked up: {error}"))?;
    let stream = connect(name, found.collect(), allow_private).await?;
    let path = url
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::post(path)
        .header(
            "host",
            url.authority().map_or(host, http::uri::Authority::as_str),
        )
        .header(
            "user-agent",
            concat!("adjutant/", env!("CARGO_PKG_VERSION")),
        )
        .header("content-type", JSON)
        .header("connection", "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    for (header, value) in headers {
        let value = HeaderValue::from_str(value).map_err(|_| {
            format!("{header} cannot be sent: it has characters that are not allowed")
        })?;
        request
            .headers_mut()
            .insert(HeaderName::from_static(header), value);
    }
    if is_tls {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("{name} is not a valid TLS name"))?;
        let connector = tokio::task::spawn_blocking(tls::connector)
            .await
            .map_err(|error| error.to_string())??;
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| format!("TLS failed: {error}"))?;
        exchange(stream, request).await
    } else {
        exchange(stream, request).await
    }
}

/// Connects to the first allowed address that accepts the connection.
async fn connect(
    name: &str,
    addresses: Vec<SocketAddr>,
    allow_private: bool,
) -> Result<TcpStream, String> {
    let allowed: Vec<SocketAddr> = addresses
        .iter()
        .copied()
        .filter(|address| allow_private || is_public(address.ip()))
        .collect();
    let mut problem = match addresses.first() {
        Some(first) => format!(
            "{name} is {}, a private address: set allow_private = true to allow it",
            first.ip()
        ),
        None => format!("{name} has no address"),
    };
    for address in allowed {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => problem = format!("{address}: {error}"),
        }
    }
    Err(problem)
}

/// Sends a request and reads the head of the response.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
) -> Result<(), String> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    tokio::pin!(connection);
    let response = sender.send_request(request);
    tokio::pin!(response);
    let response = tokio::select! {
        response = &mut response => response,
        ended = &mut connection => match ended {
            // A response that was read before the connection ended still counts.
            Ok(()) => response.await,
            Err(error) => Err(error),
        },
    };
    let status = response
        .map_err(|error| format!("no response: {error}"))?
        .status();
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("the response was {status}"))
    }
}

/// Reads a file that only its user can read.
fn private_text(file: &Path, field: &str) -> Result<String, String> {
    let described = |error: io::Error| format!("{field} {}: {error}", file.display());
    let opened = files::open_named(file).map_err(described)?;
    let meta = opened.metadata().map_err(described)?;
    if meta.len() > SECRET_BYTES_MAX {
        return Err(format!(
            "{field} {}: larger than {SECRET_BYTES_MAX} bytes",
            file.display()
        ));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(format!(
            "{field} {} is accessible to other users: chmod 600",
            file.display()
        ));
    }
    let mut text = String::new();
    opened
        .take(SECRET_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(described)?;
    Ok(text)
}

/// Reads the signing secret: base64 after `whsec_`, or the raw text.
fn secret(file: &Path) -> Result<Vec<u8>, String> {
    let text = private_text(file, "secret_file")?;
    let secret = match text.trim().strip_prefix("whsec_") {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|error| format!("secret_file {}: behind whsec_: {error}", file.display()))?,
        None => text.trim().as_bytes().to_vec(),
    };
    if secret.len() < SECRET_BYTES_MIN {
        return Err(format!(
            "secret_file {}: shorter than {SECRET_BYTES_MIN} bytes",
            file.display()
        ));
    }
    Ok(secret)
}

/// Signs a message as the Standard Webhooks specification requires: HMAC-SHA256 over its id, time and body.
fn signature(secret: &[u8], message: &Message) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key may have any length");
    mac.update(format!("{}.{}.", message.id, message.timestamp_s).as_bytes());
    mac.update(&message.body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_matches_the_specification() {
        // The example of the Standard Webhooks libraries.
        let secret = STANDARD
            .decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
            .expect("base64");
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(),
            timestamp_s: 1_614_265_330,
            body: b"{\"test\": 2432232314}".to_vec(),
        };
        assert_eq!(
            signature(&secret, &message),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[tokio::test]
    async fn private_address_is_refused_under_any_name() {
        for address in [
            "127.0.0.1:9",
            "[::1]:9",
            "169.254.169.254:80",
            "[::ffff:10.0.0.1]:80",
        ] {
            let refused = connect("name", vec![address.parse().expect("an address")], false)
                .await
                .expect_err("refused");
            assert!(
                refused.contains("a private address"),
                "{address}: {refused}"
            );
        }
    }
}
