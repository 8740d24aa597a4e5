//! Delivers a webhook: one signed POST over its own connection. Callers decide what to deliver and when; this module
//! does not use the store.
//!
//! The address that is checked is the one that is connected to, so DNS rebinding has no effect. No redirect is
//! followed and no response body is read. TLS is set up for each delivery, so a hub without webhooks pays nothing for
//! it.

use crate::config::Webhook;
use crate::files;
use crate::tls;
use adjutant_core::webhook::is_public;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
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

/// One signed message.
#[derive(Debug, Clone)]
pub struct Message {
    pub id: String,
    /// Time of this delivery attempt, in seconds since 1970.
    pub timestamp_s: i64,
    pub body: Vec<u8>,
}

/// Delivers a message. The error is a message for people.
///
/// # Errors
/// No secret, an address that is not allowed, no connection, or any status but 2xx.
pub async fn deliver(hook: &Webhook, message: &Message) -> Result<(), String> {
    let file = hook.secret_file.clone();
    let secret = tokio::task::spawn_blocking(move || secret(&file)).await.map_err(|error| error.to_string())??;
    match tokio::time::timeout(DELIVERY_LIMIT, post(hook, message, &signature(&secret, message))).await {
        Ok(posted) => posted,
        Err(_) => Err(format!("no response within {} s", DELIVERY_LIMIT.as_secs())),
    }
}

async fn post(hook: &Webhook, message: &Message, signature: &str) -> Result<(), String> {
    let host = hook.url.host().unwrap_or_default();
    let is_tls = hook.url.scheme_str() == Some("https");
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let port = hook.url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let found = tokio::net::lookup_host((name, port)).await.map_err(|error| format!("{name} cannot be looked up: {error}"))?;
    let stream = connect(name, found.collect(), hook.allow_private).await?;
    let path = hook.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = Request::post(path)
        .header("host", hook.url.authority().map_or(host, http::uri::Authority::as_str))
        .header("user-agent", concat!("adjutant/", env!("CARGO_PKG_VERSION")))
        .header("content-type", "application/json")
        .header("webhook-id", &message.id)
        .header("webhook-timestamp", message.timestamp_s)
        .header("webhook-signature", signature)
        .header("connection", "close")
        .body(Full::new(Bytes::from(message.body.clone())))
        .map_err(|error| error.to_string())?;
    if is_tls {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| format!("{name} is not a valid TLS name"))?;
        let connector = tokio::task::spawn_blocking(tls::connector).await.map_err(|error| error.to_string())??;
        let stream = connector.connect(name, stream).await.map_err(|error| format!("TLS failed: {error}"))?;
        exchange(stream, request).await
    } else {
        exchange(stream, request).await
    }
}

/// Connects to the first allowed address that accepts the connection.
async fn connect(name: &str, addresses: Vec<SocketAddr>, allow_private: bool) -> Result<TcpStream, String> {
    let allowed: Vec<SocketAddr> = addresses.iter().copied().filter(|address| allow_private || is_public(address.ip())).collect();
    let mut problem = match addresses.first() {
        Some(first) => format!("{name} is {}, a private address: set allow_private = true to allow it", first.ip()),
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
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, request: Request<Full<Bytes>>) -> Result<(), String> {
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
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
    let status = response.map_err(|error| format!("no response: {error}"))?.status();
    if status.is_success() { Ok(()) } else { Err(format!("the response was {status}")) }
}

/// Reads the signing secret: base64 after `whsec_`, or the raw text.
fn secret(file: &Path) -> Result<Vec<u8>, String> {
    let described = |error: io::Error| format!("secret_file {}: {error}", file.display());
    let opened = files::open_named(file).map_err(described)?;
    let meta = opened.metadata().map_err(described)?;
    if meta.len() > SECRET_BYTES_MAX {
        return Err(format!("secret_file {}: larger than {SECRET_BYTES_MAX} bytes", file.display()));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(format!("secret_file {} is accessible to other users: chmod 600", file.display()));
    }
    let mut text = String::new();
    opened.take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(described)?;
    let secret = match text.trim().strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).map_err(|error| format!("secret_file {}: behind whsec_: {error}", file.display()))?,
        None => text.trim().as_bytes().to_vec(),
    };
    if secret.len() < SECRET_BYTES_MIN {
        return Err(format!("secret_file {}: shorter than {SECRET_BYTES_MIN} bytes", file.display()));
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
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let message = Message { id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(), timestamp_s: 1_614_265_330, body: b"{\"test\": 2432232314}".to_vec() };
        assert_eq!(signature(&secret, &message), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[tokio::test]
    async fn private_address_is_refused_under_any_name() {
        for address in ["127.0.0.1:9", "[::1]:9", "169.254.169.254:80", "[::ffff:10.0.0.1]:80"] {
            let refused = connect("name", vec![address.parse().expect("an address")], false).await.expect_err("refused");
            assert!(refused.contains("a private address"), "{address}: {refused}");
        }
    }
}
