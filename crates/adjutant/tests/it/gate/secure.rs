//! APIs behind TLS.

use super::rig::{ANSWER, KEY};
use super::runs::Runs;
use crate::support::tls_fixture;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Starts an API with this certificate, and returns its port and what it reads.
fn start_api(certificate: &str) -> (u16, Receiver<String>) {
    let fixture = |name: &str| std::fs::read(tls_fixture(name)).expect("a fixture");
    let certificate = CertificateDer::from_pem_slice(&fixture(certificate)).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&fixture("server.key")).expect("a key");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = Arc::new(
        builder
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a configuration"),
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, read) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = StreamOwned::new(
                ServerConnection::new(Arc::clone(&config)).expect("a connection"),
                stream,
            );
            let (mut request, mut bytes) = (String::new(), [0; 4096]);
            while !request.contains("\"messages\"") {
                match stream.read(&mut bytes) {
                    Ok(count) if count > 0 => {
                        request.push_str(&String::from_utf8_lossy(&bytes[..count]))
                    }
                    _ => break,
                }
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{ANSWER}",
                ANSWER.len()
            );
            if !request.is_empty()
                && (stream
                    .write_all(answer.as_bytes())
                    .and_then(|()| stream.flush())
                    .is_err()
                    || sender.send(request).is_err())
            {
                return;
            }
        }
    });
    (port, read)
}

/// Runs the agent with an API at `https://HOST`, in a hub that trusts the authority of the
/// fixtures, or does not.
fn calls(certificate: &str, host: &str, is_trusted: bool) -> (String, Option<String>) {
    let (runs, (port, read)) = (Runs::new(), start_api(certificate));
    let key = runs.write("key", KEY, 0o600);
    runs.configure_at(
        &format!("https://{host}:{port}/v1"),
        &format!("gate = true\nkey = {{ file = {key:?} }}"),
    );
    let mut first = runs.home.command(&["ps"]);
    if is_trusted {
        first.env("SSL_CERT_FILE", tls_fixture("authority.pem"));
    }
    assert!(first.output().expect("adj can be started").status.success());
    let view = runs.dispatch("gated", &[]);
    assert_eq!(view["outcome"], "succeeded", "{view}");
    (runs.home.log("job"), read.try_recv().ok())
}

#[test]
fn api_with_a_valid_certificate_is_called_over_tls() {
    let (log, request) = calls("server.pem", "localhost", true);
    let request = request.expect("a request").to_lowercase();
    assert!(log.contains("\"completion_tokens\":10"), "{log}");
    assert!(
        request.starts_with("post /v1/chat/completions ")
            && request.contains(&format!("authorization: bearer {KEY}")),
        "{request}"
    );
}

#[test]
fn key_is_not_sent_to_an_api_with_an_invalid_certificate() {
    for (certificate, host, is_trusted, problem) in [
        ("expired.pem", "localhost", true, "expired"),
        ("server.pem", "127.0.0.1", true, "not valid for name"),
        ("server.pem", "localhost", false, "UnknownIssuer"),
    ] {
        let (log, request) = calls(certificate, host, is_trusted);
        assert!(request.is_none(), "{certificate} for {host}: {request:?}");
        assert!(
            log.contains("502 Bad Gateway")
                && log.contains(&format!("TLS with {host} failed"))
                && log.contains(problem),
            "{log}"
        );
    }
}
