//! Delivers a webhook: one signed POST over its own connection, or one message to a person, which
//! `notice` formats for a service, and `mail` and `program` pass to a program. Callers decide what
//! to deliver and when; this module does not use the store.
//!
//! The address that is checked is the one that is connected to, so DNS rebinding has no effect. No
//! redirect is followed and no response body is read. TLS is set up for each delivery, so a hub
//! without webhooks pays nothing for it.

mod error;
mod mail;
mod notice;
mod program;

pub use error::{DeliveryError, ProgramError, SecretError};

use crate::config::{
    Address, KeySource, Notices, Service, Target, Webhook, text_variable, topic_of, webhook_address,
};
use crate::files;
use crate::http_client::{AnyStream, Endpoint, Link};
use crate::tls::Trust;
use adjutant_core::webhook::is_public;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use error::{DELIVERY_LIMIT, SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use sha2::Sha256;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::net::TcpStream;

/// Largest head of a response.
const HEAD_BYTES_MAX: usize = 64 * 1024;
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

/// Delivers to a webhook.
///
/// # Errors
/// A secret cannot be read, an address is not allowed, there is no connection, any status but 2xx,
/// or a program failed.
pub async fn deliver(hook: &Webhook, outgoing: &Outgoing) -> Result<(), DeliveryError> {
    let sent = tokio::time::timeout(DELIVERY_LIMIT, send(hook, outgoing)).await;
    sent.unwrap_or(Err(DeliveryError::TimedOut))
}

async fn send(hook: &Webhook, outgoing: &Outgoing) -> Result<(), DeliveryError> {
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
            Err(DeliveryError::Changed)
        }
    }
}

async fn notify(
    service: &Service,
    allow_private: bool,
    notice: &Notice,
) -> Result<(), DeliveryError> {
    match service {
        Service::Ntfy { url, token } => {
            let url = resolve(url, allow_private).await?;
            let topic = topic_of(&url)?;
            let mut headers = Vec::new();
            if let Some(token) = token {
                let token = key(token, "token").await?;
                headers.push(("authorization", format!("Bearer {token}")));
            }
            // Messages in JSON are published to the server's address, not to the topic's.
            let server = with_path(&url, "/")?;
            let body = notice::ntfy(&topic, notice);
            post(&server, allow_private, &headers, body).await
        }
        Service::Slack { url } => {
            let url = resolve(url, allow_private).await?;
            post(&url, allow_private, &[], notice::slack(notice)).await
        }
        Service::Discord { url } => {
            let url = resolve(url, allow_private).await?;
            post(&url, allow_private, &[], notice::discord(notice)).await
        }
        Service::Telegram { url, token, chat } => {
            let url = telegram_url(url, &key(token, "token").await?)?;
            post(&url, allow_private, &[], notice::telegram(chat, notice)).await
        }
        Service::Email { to, from, sendmail } => {
            mail::send(sendmail, to, from.as_deref(), notice, DELIVERY_LIMIT).await
        }
        Service::Desktop => Ok(program::show_on_desktop(notice, DELIVERY_LIMIT).await?),
        Service::Command { argv } => Ok(program::send(argv, notice, DELIVERY_LIMIT).await?),
    }
}

/// Returns the address to which a bot sends messages.
fn telegram_url(url: &Uri, token: &str) -> Result<Uri, DeliveryError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '-');
    if !token.chars().all(is_allowed) {
        return Err(DeliveryError::NotATelegramToken);
    }
    let prefix = url.path().trim_end_matches('/');
    with_path(url, &format!("{prefix}/bot{token}/sendMessage"))
}

/// Returns an address of the same server.
fn with_path(url: &Uri, path: &str) -> Result<Uri, DeliveryError> {
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(DeliveryError::Path)?);
    Ok(Uri::from_parts(parts)?)
}

async fn resolve(address: &Address, allow_private: bool) -> Result<Uri, DeliveryError> {
    match address {
        Address::Plain(url) => Ok(url.clone()),
        Address::Secret(source) => {
            let text = key(source, "url_from").await?;
            webhook_address(&text, allow_private).map_err(DeliveryError::AddressInSecret)
        }
    }
}

async fn blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, DeliveryError>
where
    T: Send + 'static,
    E: Send + 'static,
    DeliveryError: From<E>,
{
    Ok(tokio::task::spawn_blocking(work).await??)
}

/// Reads a secret of one line.
async fn key(source: &KeySource, field: &'static str) -> Result<String, DeliveryError> {
    let text = match source {
        KeySource::File(file) => {
            let file = file.clone();
            blocking(move || private_text(&file, field)).await?
        }
        KeySource::Env(name) => text_variable(name).ok_or_else(|| SecretError::NoVariable {
            field,
            name: name.clone(),
        })?,
    };
    let text = text.trim();
    if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(SecretError::NotOneLine { field }.into());
    }
    Ok(text.to_owned())
}

async fn post(
    url: &Uri,
    allow_private: bool,
    headers: &[(&'static str, String)],
    body: Vec<u8>,
) -> Result<(), DeliveryError> {
    let endpoint = Endpoint::of(url)?;
    let name = endpoint.host.as_str();
    let found = tokio::net::lookup_host((name, endpoint.port)).await;
    let found = found.map_err(|source| DeliveryError::Lookup {
        name: name.to_owned(),
        source,
    })?;
    let stream = connect(name, found.collect(), allow_private).await?;
    let request = request(url, headers, body)?;
    let stream: AnyStream = match endpoint.tls_name {
        Some(tls_name) => {
            let connector = blocking(|| Trust::Installed.connector()).await?;
            let encrypted = connector.connect(tls_name, stream).await;
            Box::new(encrypted.map_err(DeliveryError::Tls)?)
        }
        None => Box::new(stream),
    };
    let mut link = Link::open(stream, Some(HEAD_BYTES_MAX)).await?;
    let response = link.sender.send_request(request);
    let response = link.drive(response).await;
    let response = response.map_err(DeliveryError::NoResponse)?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(DeliveryError::Status(status)),
    }
}

fn request(
    url: &Uri,
    headers: &[(&'static str, String)],
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, DeliveryError> {
    let path = url
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::post(path)
        .header(
            "host",
            url.authority().map_or("", http::uri::Authority::as_str),
        )
        .header(
            "user-agent",
            concat!("adjutant/", env!("CARGO_PKG_VERSION")),
        )
        .header("content-type", JSON)
        .header("connection", "close")
        .body(Full::new(Bytes::from(body)))?;
    for (header, value) in headers {
        let value = HeaderValue::from_str(value).map_err(|_| DeliveryError::Header(header))?;
        request
            .headers_mut()
            .insert(HeaderName::from_static(header), value);
    }
    Ok(request)
}

/// Connects to the first allowed address that accepts the connection.
async fn connect(
    name: &str,
    addresses: Vec<SocketAddr>,
    allow_private: bool,
) -> Result<TcpStream, DeliveryError> {
    let allowed: Vec<SocketAddr> = addresses
        .iter()
        .copied()
        .filter(|address| allow_private || is_public(address.ip()))
        .collect();
    let name = name.to_owned();
    let mut problem = match addresses.first() {
        Some(first) => DeliveryError::PrivateAddress {
            name,
            address: first.ip(),
        },
        None => DeliveryError::NoAddress(name),
    };
    for address in allowed {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(source) => problem = DeliveryError::Connect { address, source },
        }
    }
    Err(problem)
}

/// Reads a file that only its user can read.
fn private_text(file: &Path, field: &'static str) -> Result<String, SecretError> {
    let path = || file.to_owned();
    let described = |source| SecretError::Io {
        field,
        path: path(),
        source,
    };
    let opened = files::open_named(file).map_err(described)?;
    let meta = opened.metadata().map_err(described)?;
    if meta.len() > SECRET_BYTES_MAX {
        return Err(SecretError::TooLarge {
            field,
            path: path(),
        });
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(SecretError::NotPrivate {
            field,
            path: path(),
        });
    }
    let mut text = String::new();
    opened
        .take(SECRET_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(described)?;
    Ok(text)
}

/// Reads the signing secret: base64 after `whsec_`, or the raw text.
fn secret(file: &Path) -> Result<Vec<u8>, SecretError> {
    let text = private_text(file, "secret_file")?;
    let secret = match text.trim().strip_prefix("whsec_") {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|source| SecretError::Encoding {
                path: file.to_owned(),
                source,
            })?,
        None => text.trim().as_bytes().to_vec(),
    };
    if secret.len() < SECRET_BYTES_MIN {
        return Err(SecretError::TooShort(file.to_owned()));
    }
    Ok(secret)
}

/// Signs a message as the Standard Webhooks specification requires: HMAC-SHA256 over its id, time
/// and body.
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

    #[test]
    fn token_of_a_bot_cannot_change_the_address() {
        let url = Uri::from_static("https://api.example.org/telegram/");
        let found = telegram_url(&url, "12:a_b-C").expect("an address");
        let expected = "https://api.example.org/telegram/bot12:a_b-C/sendMessage";
        assert_eq!(found.to_string(), expected);
        for token in ["1/../x", "1?x", "1#x", "1 x"] {
            let refused = telegram_url(&url, token);
            assert!(
                matches!(refused, Err(DeliveryError::NotATelegramToken)),
                "{token}"
            );
        }
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
                .expect_err("refused")
                .to_string();
            assert!(
                refused.contains("a private address"),
                "{address}: {refused}"
            );
        }
    }
}
