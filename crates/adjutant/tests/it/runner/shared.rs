//! The connection that all calls of a runner share.

use super::Pair;
use super::access::token;
use crate::support::tls_fixture;
use adjutant_api::protocol::{
    GetRunnerWork, JoinRunner, RUNNER_HOME, RUNNER_SESSION, RunnerJoined,
};
use adjutant_home::tls::SHARED;
use adjutant_net::remote::{CallError, Connections, HubReply, Trust};
use futures::stream::{FuturesUnordered, StreamExt};
use hyper::body::Bytes;
use serde::Serialize;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const HOME: &str = "00112233445566778899";
const LIMIT: Duration = Duration::from_secs(60);
const WAITS: usize = 2_000;
/// The open calls of a runner that the hub accepts.
const OPEN_CALLS_MAX: usize = 4_096;
/// The state of an open connection in the tables of the kernel.
const ESTABLISHED: &str = "01";

/// Returns the number of open connections to the hub, all of which are the runner's.
fn connections(pair: &Pair) -> usize {
    let port: u16 = pair
        .url
        .rsplit(':')
        .next()
        .expect("a port")
        .parse()
        .expect("a number");
    let tables = ["tcp", "tcp6"]
        .map(|table| fs::read_to_string(format!("/proc/self/net/{table}")).expect("a table"));
    let sockets = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    sockets
        .filter(|fields| fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == ESTABLISHED)
        .count()
}

/// The calls of one token on one connection.
struct Caller {
    hub: Connections,
    token: String,
    session: String,
}

impl Caller {
    fn new(pair: &Pair, token: String) -> Self {
        let hub = Connections::shared(
            pair.url.parse().expect("an address"),
            Trust::File(tls_fixture("authority.pem")),
        );
        Self {
            hub,
            token,
            session: String::new(),
        }
    }

    async fn post(&self, path: &str, call: &impl Serialize) -> Result<HubReply, CallError> {
        self.send(path, serde_json::to_vec(call).expect("JSON").into())
            .await
    }

    async fn send(&self, path: &str, body: Bytes) -> Result<HubReply, CallError> {
        let bearer = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", bearer.as_str()),
            (RUNNER_HOME, HOME),
            (RUNNER_SESSION, &self.session),
        ];
        self.hub.post(path, &headers, body, LIMIT).await
    }

    async fn status(&self, path: &str) -> u16 {
        self.post(path, &serde_json::json!({}))
            .await
            .expect("a reply")
            .status
            .as_u16()
    }

    async fn join(&mut self) {
        let call = JoinRunner {
            home_id: HOME.to_owned(),
            pools: vec!["gpu".to_owned()],
            slots: 1,
            ..JoinRunner::default()
        };
        let reply = self.post("/runner/join", &call).await.expect("a reply");
        self.session = serde_json::from_slice::<RunnerJoined>(&reply.body)
            .expect("joined")
            .session;
    }

    async fn wait_for_work(&self, wait_ms: u64) -> Result<HubReply, CallError> {
        self.post(
            "/runner/work",
            &GetRunnerWork {
                wait_ms,
                ..GetRunnerWork::default()
            },
        )
        .await
    }
}

#[test]
fn all_workers_of_a_runner_share_one_connection() {
    let pair = Pair::new("60s");
    for name in ["first", "second"] {
        pair.start(name, "ask \"Hold?\"\ndone yes");
        pair.until_status(name, "waiting_parent_reply");
    }
    assert_eq!(connections(&pair), 1);
    for name in ["first", "second"] {
        pair.hub.ok(&["reply", name, "yes"]);
        assert_eq!(pair.hub.finished(name)["outcome"], "succeeded");
    }
}

#[tokio::test]
async fn shared_connection_is_for_one_runner() {
    let pair = Pair::with_tls("60s");
    let mut caller = Caller::new(&pair, token(&pair, "one", "runner"));
    for path in [
        "/",
        "/api/v1/runs",
        "/mcp",
        "/hub/api/v1/runs",
        "/.well-known/x",
        "/runner/other",
    ] {
        assert_eq!(caller.status(path).await, 404, "{path}");
    }
    caller.join().await;
    let first = std::mem::replace(&mut caller.token, token(&pair, "two", "runner"));
    assert_eq!(
        caller.status("/runner/join").await,
        401,
        "the connection is that of another runner"
    );
    caller.token = first;
    assert_eq!(caller.wait_for_work(0).await.expect("a reply").status, 200);
    let person = Caller::new(&pair, token(&pair, "me", "person"));
    assert_eq!(person.status("/runner/join").await, 404);
    assert_eq!(person.status("/api/v1/runs").await, 404);
}

#[tokio::test]
async fn many_calls_wait_on_one_connection_until_its_token_is_revoked() {
    let pair = Pair::with_tls("10m");
    let mut caller = Caller::new(&pair, token(&pair, "one", "runner"));
    caller.join().await;
    let mut waits: FuturesUnordered<_> =
        (0..WAITS).map(|_| caller.wait_for_work(u64::MAX)).collect();
    // A later call is answered while the others wait.
    tokio::select! {
        ended = waits.next() => panic!("a wait has ended: {ended:?}"),
        replied = caller.wait_for_work(0) => assert_eq!(replied.expect("a reply").status, 200),
    }
    pair.hub.ok(&["token", "revoke", "one"]);
    let mut ended = 0;
    while let Some(wait) = waits.next().await {
        match wait {
            Err(closed) => assert!(!closed.to_string().contains("no reply in"), "{closed}"),
            // The hub had not begun with it.
            Ok(reply) => assert_eq!(reply.status, 401),
        }
        ended += 1;
    }
    assert_eq!(ended, WAITS);
    assert_eq!(caller.status("/runner/join").await, 401);
}

#[tokio::test]
async fn calls_beyond_the_maximum_of_a_runner_are_refused() {
    let pair = Pair::with_tls("10m");
    let mut caller = Caller::new(&pair, token(&pair, "one", "runner"));
    caller.join().await;
    let mut waits: FuturesUnordered<_> = (0..OPEN_CALLS_MAX)
        .map(|_| caller.wait_for_work(u64::MAX))
        .collect();
    let began = Instant::now();
    // All waits have arrived when it is refused.
    while status_beside(&mut waits, &caller).await != 429 {
        assert!(began.elapsed() < LIMIT, "no call is refused");
    }
    drop(waits);
    while caller.wait_for_work(0).await.expect("a reply").status != 200 {
        assert!(began.elapsed() < LIMIT, "cancelled calls still count");
    }
}

/// Makes a call while others wait, and returns its status, or that of a wait that was refused
/// because this call came before it.
async fn status_beside(
    waits: &mut FuturesUnordered<impl Future<Output = Result<HubReply, CallError>>>,
    caller: &Caller,
) -> u16 {
    tokio::select! {
        ended = waits.next() => ended.expect("a wait").expect("a reply").status.as_u16(),
        replied = caller.wait_for_work(0) => replied.expect("a reply").status.as_u16(),
    }
}

/// Largest body of a call.
const BODY_BYTES: usize = 30 * 1024 * 1024;

#[tokio::test]
async fn bodies_of_one_runner_are_limited_together() {
    let pair = Pair::with_tls("60s");
    let mut caller = Caller::new(&pair, token(&pair, "one", "runner"));
    caller.join().await;
    let body = Bytes::from(format!("\"{}\"", "x".repeat(BODY_BYTES)));
    let sent =
        futures::future::join_all((0..4).map(|_| caller.send("/runner/facts", body.clone()))).await;
    let sent: Vec<HubReply> = sent
        .into_iter()
        .map(|sent| sent.expect("a reply"))
        .collect();
    assert!(
        sent.iter().all(|reply| reply.body.len() < 1_000),
        "a reply repeats what was sent"
    );
    let statuses: Vec<u16> = sent.iter().map(|reply| reply.status.as_u16()).collect();
    assert!(
        statuses.contains(&429) && statuses.iter().all(|status| matches!(status, 429 | 422)),
        "{statuses:?}"
    );
    // What is sent again is received.
    assert_eq!(
        caller
            .send("/runner/facts", body)
            .await
            .expect("a reply")
            .status,
        422
    );
}

/// A hub without a shared connection, which accepts one call and closes its connection without a
/// reply.
async fn accept_as_earlier_hub(listener: &tokio::net::TcpListener) {
    let (stream, _) = listener.accept().await.expect("a connection");
    let mut stream = acceptor(&[b"http/1.1"]).accept(stream).await.expect("TLS");
    assert!(stream.read(&mut [0; 1024]).await.expect("a call") > 0);
}

fn acceptor(protocols: &[&[u8]]) -> TlsAcceptor {
    let certs = CertificateDer::pem_file_iter(tls_fixture("server.pem"))
        .expect("a file")
        .collect::<Result<_, _>>()
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_file(tls_fixture("server.key")).expect("a key");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions");
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .expect("a certificate");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn runner_of_an_earlier_hub_shares_a_connection_after_its_update() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().expect("an address").port()
    );
    let hub = Connections::shared(
        url.parse().expect("an address"),
        Trust::File(tls_fixture("authority.pem")),
    );
    let post = || hub.post("/runner/work", &[], "{}".into(), LIMIT);
    let (lost, ()) = tokio::join!(post(), accept_as_earlier_hub(&listener));
    assert!(lost.is_err(), "{lost:?}");
    // The hub that is there now offers both.
    let updated = async {
        let (stream, _) = listener.accept().await.expect("a connection");
        let stream = acceptor(&[SHARED, b"http/1.1"])
            .accept(stream)
            .await
            .expect("TLS");
        stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    };
    let (_, protocol) = tokio::join!(post(), updated);
    assert_eq!(protocol.as_deref(), Some(SHARED), "it falls back no longer");
}

#[tokio::test]
async fn opening_that_hangs_ends_before_the_call() {
    // It accepts connections and never answers the handshake.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!(
        "https://localhost:{}",
        silent.local_addr().expect("an address").port()
    );
    let hub = Connections::shared(
        url.parse().expect("an address"),
        Trust::File(tls_fixture("authority.pem")),
    );
    let began = Instant::now();
    let failure = hub
        .post("/runner/work", &[], "{}".into(), LIMIT)
        .await
        .expect_err("no hub");
    assert!(
        failure.to_string() == "no connection in 5s" && began.elapsed() < LIMIT / 2,
        "{failure}: {:?}",
        began.elapsed()
    );
}
