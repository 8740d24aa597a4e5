//! HTTP over TLS, and addresses that other machines can reach.

use super::{Caller, Reply, Site, hub_with, port_of, reply};
use crate::support::{PATIENCE, TestHome, tls_fixture};
use adjutant_api::view::GetHub;
use serde_json::json;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Copies a fixture to the home.
fn put(home: &TestHome, fixture: &str, name: &str, mode: u32) -> PathBuf {
    let path = home.home.dir.join(name);
    let new = home.home.dir.join(format!("{name}.new"));
    std::fs::copy(tls_fixture(fixture), &new).expect("copied");
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).expect("a mode");
    std::fs::rename(&new, &path).expect("replaced");
    path
}

/// Configures a certificate and its key, at paths relative to the configuration.
fn configure(home: &TestHome, listen: &str, cert: &str, key: &str) {
    put(home, cert, "cert.pem", 0o644);
    put(home, key, "key.pem", 0o600);
    let config = format!("{listen}\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n");
    std::fs::write(home.home.dir.join("config.toml"), config).expect("written");
}

fn site(listen: &str, cert: &str, key: &str) -> Site {
    let home = TestHome::new();
    configure(&home, listen, cert, key);
    Site {
        port: port_of(&home),
        home,
    }
}

/// Sends a request to `host` (the name in the certificate) at an address, and trusts `authority`.
fn send(
    address: &str,
    host: &str,
    authority: &str,
    caller: &Caller,
    headers: &[(&str, &str)],
) -> Result<Reply, String> {
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(tls_fixture(authority)).expect("a fixture");
    roots
        .add(CertificateDer::from_pem_slice(&pem).expect("a certificate"))
        .expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let stream = TcpStream::connect((address, caller.port)).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    let mut stream = StreamOwned::new(
        ClientConnection::new(config, name).expect("a connection"),
        stream,
    );
    let own = format!("{host}:{}", caller.port);
    let mut head = "POST /api/v1/runs HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n".to_owned();
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str(&format!("host: {own}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let request = format!("{head}authorization: Bearer {}\r\n\r\n{{}}", caller.token);
    stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.flush())
        .map_err(|error| error.to_string())?;
    Ok(reply(&mut BufReader::new(stream)))
}

#[test]
fn hub_with_a_certificate_serves_only_tls() {
    let site = site("listen = \"127.0.0.1:0\"", "server.pem", "server.key");
    let url = site
        .home
        .call(&GetHub {}, "")
        .expect("a hub")
        .url
        .expect("it listens");
    assert_eq!(url, format!("https://127.0.0.1:{}", site.port));
    let caller = site.caller(&site.token("one", &[]));
    let answered = send("127.0.0.1", "localhost", "authority.pem", &caller, &[]).expect("answered");
    assert_eq!(answered.status, 200, "{answered:?}");
    let stranger = Caller {
        token: "adj_unknown".to_owned(),
        ..caller.clone()
    };
    assert_eq!(
        send("127.0.0.1", "localhost", "authority.pem", &stranger, &[])
            .expect("answered")
            .status,
        401
    );
    // Without TLS, there is no answer, and no token is accepted.
    let mut plain = TcpStream::connect(("127.0.0.1", site.port)).expect("the hub listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("a limit");
    plain
        .write_all(b"POST /api/v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        .expect("sent");
    let mut answer = Vec::new();
    let _reset = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // A caller that does not know the authority sends nothing.
    assert!(send("127.0.0.1", "localhost", "hub-authority.pem", &caller, &[]).is_err());
    site.home.ok(&["token", "revoke", "one"]);
    assert_eq!(
        send("127.0.0.1", "localhost", "authority.pem", &caller, &[])
            .expect("answered")
            .status,
        401
    );
}

#[test]
fn names_in_the_certificate_are_the_hubs() {
    let site = site("listen = \"0.0.0.0:0\"", "hub.pem", "hub.key");
    let caller = site.caller(&site.token("one", &[]));
    let port = site.port;
    let status = |host: &str, origin: Option<&str>| {
        let mut headers = vec![("host", host)];
        headers.extend(origin.map(|origin| ("origin", origin)));
        send(
            "127.0.0.2",
            "hub.example.org",
            "hub-authority.pem",
            &caller,
            &headers,
        )
        .expect("answered")
        .status
    };
    for host in ["hub.example.org", "a.lan.example.org", "127.0.0.2"] {
        let own = format!("{host}:{port}");
        assert_eq!(status(&own, None), 200, "{own}");
        assert_eq!(status(&own, Some(&format!("https://{own}"))), 200, "{own}");
        assert_eq!(status(&own, Some(&format!("http://{own}"))), 403, "{own}");
        assert_eq!(status(host, None), 403, "{host} without its port");
    }
    for host in [
        "evil.example",
        "a.b.lan.example.org",
        "lan.example.org",
        "example.org",
        "localhost",
        "127.0.0.1",
        "10.0.0.1",
        "0.0.0.0",
    ] {
        assert_eq!(status(&format!("{host}:{port}"), None), 403, "{host}");
    }
    assert_eq!(
        status(
            &format!("hub.example.org:{port}"),
            Some("https://evil.example")
        ),
        403
    );
}

#[test]
fn public_url_is_that_of_the_hub_itself() {
    let home = TestHome::new();
    configure(
        &home,
        "listen = \"127.0.0.1:0\"\npublic_url = \"https://hub.example.org\"",
        "hub.pem",
        "hub.key",
    );
    home.ok(&["ps"]);
    assert_eq!(
        home.call(&GetHub {}, "").expect("a hub").url.as_deref(),
        Some("https://hub.example.org")
    );
}

#[test]
fn unusable_certificates_are_reported_at_the_start() {
    for (cert, key, mode, problem) in [
        ("expired.pem", "server.key", 0o600, "has expired"),
        (
            "server.pem",
            "hub.key",
            0o600,
            "is not the key of the certificate",
        ),
        (
            "server.pem",
            "server.key",
            0o640,
            "accessible to other users",
        ),
        ("server.key", "server.key", 0o600, "contains no certificate"),
        (
            "server.pem",
            "server.pem",
            0o600,
            "is not a PEM file with a private key",
        ),
    ] {
        let home = TestHome::new();
        configure(&home, "listen = \"127.0.0.1:0\"", cert, key);
        std::fs::set_permissions(
            home.home.dir.join("key.pem"),
            std::fs::Permissions::from_mode(mode),
        )
        .expect("a mode");
        let refused = home.adj(&["serve"]);
        assert!(
            refused.code != 0 && refused.err.contains(problem),
            "{problem}: {refused:?}"
        );
        // A hub that a command starts works, without HTTP.
        home.ok(&["ps"]);
        let hub = home.call(&GetHub {}, "").expect("a hub");
        assert!(
            hub.url.is_none() && hub.problems.iter().any(|found| found.contains(problem)),
            "{problem}: {hub:?}"
        );
    }
    let home = TestHome::new();
    configure(
        &home,
        "listen = \"127.0.0.1:0\"",
        "server.pem",
        "server.key",
    );
    std::fs::remove_file(home.home.dir.join("key.pem")).expect("removed");
    let refused = home.adj(&["serve"]);
    assert!(
        refused.code != 0 && refused.err.contains("key.pem"),
        "{refused:?}"
    );
    make_fifo(&home.home.dir.join("key.pem"));
    let refused = home.adj(&["serve"]);
    assert!(
        refused.code != 0 && refused.err.contains("key.pem") && refused.err.contains("FIFO"),
        "{refused:?}"
    );
}

#[test]
fn renewed_certificate_is_used_without_a_restart() {
    let site = site("listen = \"127.0.0.1:0\"", "server.pem", "server.key");
    let caller = site.caller(&site.token("one", &[]));
    let pid = site.home.hub_pid();
    let status = |host: &str, authority: &str| {
        send("127.0.0.1", host, authority, &caller, &[]).map(|reply| reply.status)
    };
    assert_eq!(status("localhost", "authority.pem"), Ok(200));
    // A certificate without its key is not used.
    put(&site.home, "hub.pem", "cert.pem", 0o644);
    let log = || std::fs::read_to_string(site.home.home.hub_log()).expect("a log");
    site.home.until("the hub has tried it", || {
        assert_eq!(status("localhost", "authority.pem"), Ok(200));
        log()
            .contains("the earlier certificate stays in use")
            .then_some(())
    });
    put(&site.home, "hub.key", "key.pem", 0o600);
    site.home.until("the new certificate is used", || {
        (status("hub.example.org", "hub-authority.pem") == Ok(200)).then_some(())
    });
    assert!(status("localhost", "authority.pem").is_err());
    assert_eq!(site.home.hub_pid(), pid);
}

fn make_fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
}

#[test]
fn file_system_that_does_not_answer_blocks_nothing() {
    let home = TestHome::new();
    configure(
        &home,
        "listen = \"127.0.0.1:0\"",
        "server.pem",
        "server.key",
    );
    let fifo = home.work().join("held");
    let failpoint = format!("certificate={}", fifo.display());
    make_fifo(&fifo);
    let mut hub = hub_with(&home, &failpoint);
    let found = home.call(&GetHub {}, "").expect("a hub");
    assert!(
        found.url.is_none()
            && found
                .problems
                .iter()
                .any(|problem| problem.contains("has not answered for 2s")),
        "{found:?}"
    );
    home.ok(&["stop"]);
    hub.wait().expect("it ends");

    std::fs::remove_file(&fifo).expect("removed");
    let mut hub = hub_with(&home, &failpoint);
    let site = Site {
        port: port_of(&home),
        home,
    };
    let caller = site.caller(&site.token("one", &[]));
    let status = |host: &str, authority: &str| {
        send("127.0.0.1", host, authority, &caller, &[]).map(|reply| reply.status)
    };
    make_fifo(&fifo);
    put(&site.home, "hub.pem", "cert.pem", 0o644);
    put(&site.home, "hub.key", "key.pem", 0o600);
    let log = || std::fs::read_to_string(site.home.home.hub_log()).expect("a log");
    site.home.until("the hub has tried to read it", || {
        assert_eq!(status("localhost", "authority.pem"), Ok(200));
        log()
            .contains("the earlier certificate stays in use")
            .then_some(())
    });
    // One thread waits for the file system, and no other caller.
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(status("localhost", "authority.pem"), Ok(200));
    }
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    site.home.ok(&["ps"]);
    let held = std::fs::OpenOptions::new()
        .write(true)
        .open(&fifo)
        .expect("the thread reads");
    std::fs::remove_file(&fifo).expect("removed");
    drop(held);
    site.home.until("the new certificate is used", || {
        (status("hub.example.org", "hub-authority.pem") == Ok(200)).then_some(())
    });
    site.home.ok(&["stop"]);
    hub.wait().expect("it ends");
}

#[test]
fn half_open_handshakes_are_cut_off_and_block_no_other_caller() {
    let site = site("listen = \"127.0.0.1:0\"", "server.pem", "server.key");
    let caller = site.caller(&site.token("one", &[]));
    let started = Instant::now();
    // The start of a record that never ends.
    let mut half: Vec<TcpStream> = (0..1200)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("the hub listens");
            // The oldest are closed beyond the limit.
            let _sent = stream.write_all(&[0x16, 3, 1, 2, 0]);
            stream
        })
        .collect();
    assert_eq!(
        send("127.0.0.1", "localhost", "authority.pem", &caller, &[])
            .expect("answered")
            .status,
        200
    );
    let newest = half.last_mut().expect("a connection");
    newest.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut rest = Vec::new();
    let _reset = newest.read_to_end(&mut rest);
    assert!(started.elapsed() < PATIENCE, "the handshake has a deadline");
    assert_eq!(
        send("127.0.0.1", "localhost", "authority.pem", &caller, &[])
            .expect("answered")
            .status,
        200
    );
}

#[test]
fn other_machines_need_tls_or_consent_to_plain_text() {
    let home = TestHome::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = home.adj(&["serve", "--listen", address]);
        assert!(
            refused.code != 0
                && refused.err.contains("[tls]")
                && refused.err.contains("listen_without_tls"),
            "{address}: {refused:?}"
        );
    }
    let home = TestHome::with_config("listen = \"0.0.0.0:7317\"\n");
    let refused = home.adj(&["config", "show"]);
    assert!(
        refused.code != 0 && refused.err.contains("listen") && refused.err.contains("plain text"),
        "{refused:?}"
    );

    let home = TestHome::with_config("listen = \"0.0.0.0:0\"\nlisten_without_tls = true\n");
    let site = Site {
        port: port_of(&home),
        home,
    };
    let caller = site.caller(&site.token("one", &[]));
    assert_eq!(caller.post("runs", &json!({})).status, 200);
    let status = |host: &str| {
        caller
            .send(
                "POST",
                "/api/v1/runs",
                &[("host", &format!("{host}:{}", site.port))],
                "{}",
            )
            .status
    };
    assert_eq!(
        ["127.0.0.1", "localhost", "0.0.0.0", "10.1.1.1"].map(status),
        [200, 403, 403, 403]
    );
    let shown = site.home.json(&["config", "show"]);
    assert_eq!(shown["listen_without_tls"], true, "{shown}");
}
