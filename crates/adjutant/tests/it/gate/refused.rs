//! Requests that the gate refuses: from other processes and web pages, to other endpoints, beyond
//! the budget.

use super::rig::{ANSWER, KEY, Rig, TOKEN, answer};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn only_the_attempts_token_is_accepted() {
    let rig = Rig::with(vec![answer("200 OK", "", ANSWER)]).await;
    let (own, port) = (
        rig.host().to_owned(),
        rig.host().rsplit(':').next().expect("a port").to_owned(),
    );
    let with_token = format!("authorization: Bearer {TOKEN}\r\n");
    for (status, host, headers) in [
        (401, own.clone(), String::new()),
        (
            401,
            own.clone(),
            "authorization: Bearer wrong\r\n".to_owned(),
        ),
        (401, own.clone(), format!("authorization: {TOKEN}\r\n")),
        (401, own.clone(), format!("authorization: Bearer {KEY}\r\n")),
        (401, own.clone(), format!("x-api-key: {TOKEN}x\r\n")),
        (403, "api.example.org".to_owned(), with_token.clone()),
        (403, format!("evil.example:{port}"), with_token.clone()),
        (
            403,
            own.clone(),
            format!("{with_token}origin: http://evil.example\r\n"),
        ),
        (403, own.clone(), format!("{with_token}origin: null\r\n")),
    ] {
        let request = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\ncontent-length: 0\r\n\r\n"
        );
        let answered = rig.send(request.as_bytes()).await;
        assert!(
            answered.starts_with(&format!("HTTP/1.1 {status}")),
            "{headers}: {answered}"
        );
    }
    let localhost = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost:{port}\r\n{with_token}connection: close\r\ncontent-length: 0\r\n\r\n"
    );
    assert!(
        rig.send(localhost.as_bytes())
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(rig.api.seen().requests.len(), 1);
}

#[tokio::test]
async fn foreign_connections_do_not_block_the_agent() {
    let rig = Rig::with(vec![answer("200 OK", "", ANSWER)]).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(rig.connect().await);
    }
    let answered = tokio::time::timeout(Duration::from_secs(9), rig.ask(CHAT, "{}"))
        .await
        .expect("the gate accepts the agent");
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    // A connection that presents another token is closed with the answer.
    let wrong = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n\r\n",
        rig.host()
    );
    let answered = tokio::time::timeout(Duration::from_secs(9), rig.send(wrong.as_bytes()))
        .await
        .expect("it is closed");
    assert!(
        answered.starts_with("HTTP/1.1 401") && answered.contains("connection: close"),
        "{answered}"
    );
}

#[tokio::test]
async fn other_endpoints_are_refused() {
    let rig = Rig::with(vec![answer("200 OK", "", "{}")]).await;
    for line in [
        "POST /v1/messages/batches",
        "POST /v1/files",
        "GET /v1/responses/x",
        "DELETE /v1/models",
        "TRACE /v1/models",
        "PUT /v1/messages",
        "GET /v1/models/../files/F/content",
        "POST /v1/models/cheap:x/../../v1/responses",
    ] {
        let request = format!(
            "{line} HTTP/1.1\r\nhost: {}\r\nx-api-key: {TOKEN}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            rig.host()
        );
        let answered = rig.send(request.as_bytes()).await;
        assert!(
            answered.starts_with("HTTP/1.1 404") && !answered.contains(KEY),
            "{line}: {answered}"
        );
    }
    assert_eq!(rig.api.seen().connections, 0);
}

#[tokio::test]
async fn background_response_is_refused() {
    let rig = Rig::with(vec![answer("200 OK", "", ANSWER)]).await;
    let long = format!(
        "{{\"model\":\"m\",\"background\":true,\"input\":\"{}\"}}",
        "y".repeat(4 << 20)
    );
    let late = format!(
        "{{\"model\":\"m\",\"input\":\"{}\",\"background\":true}}",
        "y".repeat(4 << 20)
    );
    for body in [
        r#"{"background":true}"#,
        r#"{"background":false,"backgr\u006fund":true}"#,
        "[]",
        &long,
        &late,
    ] {
        let answered = rig.ask("/v1/responses", body).await;
        assert!(
            answered.starts_with("HTTP/1.1 400") && answered.contains("background"),
            "{answered}"
        );
    }
    let packed = rig.request(
        "/responses",
        "content-encoding: zstd\r\nconnection: close\r\n",
        "packed",
    );
    let answered = rig.send(&packed).await;
    assert!(
        answered.starts_with("HTTP/1.1 400") && answered.contains("compressed"),
        "{answered}"
    );
    assert_eq!(
        (
            rig.api
                .seen()
                .requests
                .iter()
                .filter(|(_, length)| *length > 0)
                .count(),
            rig.used()
        ),
        (0, (0, 0, 0, 0))
    );
    assert!(
        rig.ask("/v1/responses", r#"{"model":"m","background":false}"#)
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(rig.used(), (1, 0, 100, 10));
}

#[tokio::test]
async fn refusal_has_the_format_of_each_api() {
    let rig = Rig::with(vec![answer("200 OK", "", ANSWER)]).await;
    rig.allowed.store(0, Ordering::SeqCst);
    for (path, field, value) in [
        ("/v1/messages", "/error/type", "invalid_request_error"),
        (CHAT, "/error/code", "refused_by_adjutant"),
        ("/responses", "/error/code", "refused_by_adjutant"),
        (
            "/v1beta/models/x:streamGenerateContent",
            "/error/status",
            "FAILED_PRECONDITION",
        ),
    ] {
        // A large body is read before the refusal, so that the client sees it.
        let answered = rig
            .ask(path, &format!("{{\"x\":\"{}\"}}", "y".repeat(4 << 20)))
            .await;
        let (head, body) = answered.split_once("\r\n\r\n").expect("a head");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert!(
            head.starts_with("HTTP/1.1 400") && head.contains("x-should-retry: false"),
            "{head}"
        );
        assert_eq!(
            body.pointer(field).and_then(serde_json::Value::as_str),
            Some(value),
            "{body}"
        );
        assert_eq!(
            body["error"]["message"], "Adjutant refused this request: its budget is used up",
            "{body}"
        );
    }
    assert_eq!((rig.api.seen().connections, rig.used()), (0, (0, 0, 0, 0)));
}

/// Concurrent requests for the last units of a budget.
#[tokio::test]
async fn no_request_begins_after_the_budget_is_empty() {
    const ROUNDS: usize = 1_000;
    const AT_ONCE: usize = 6;
    let rig = Rig::with(vec![answer("200 OK", "", ANSWER)]).await;
    rig.allowed.store(0, Ordering::SeqCst);
    for round in 1..=ROUNDS {
        rig.allowed.store(1, Ordering::SeqCst);
        let answers =
            futures::future::join_all((0..AT_ONCE).map(|_| rig.ask(CHAT, r#"{"model":"m"}"#)))
                .await;
        let passed = answers
            .iter()
            .filter(|answered| answered.starts_with("HTTP/1.1 200"))
            .count();
        assert_eq!((passed, rig.api.seen().requests.len()), (1, round));
    }
    assert_eq!(rig.used(), (1_000, 0, 100_000, 10_000));
}

/// The agent hangs up after it has sent a part of its request, the whole request, and the request
/// with more data.
#[tokio::test]
async fn abandoned_request_is_never_sent() {
    let mut rig = Rig::with(vec![answer("200 OK", "", ANSWER)]).await;
    rig.is_hub_away.store(true, Ordering::SeqCst);
    let whole = rig.request(CHAT, "", r#"{"model":"m"}"#);
    let large = rig.request(CHAT, "", &format!("{{\"x\":\"{}\"}}", "y".repeat(1 << 20)));
    for sent in [
        whole[..whole.len() - 3].to_vec(),
        whole.clone(),
        [&whole[..], &whole[..]].concat(),
        large,
    ] {
        let mut stream = rig.connect().await;
        let (bytes, length) = (sent.clone(), sent.len());
        // The gate reads a large request only after it is admitted.
        let sending = tokio::spawn(async move {
            stream
                .write_all(&bytes[..bytes.len().min(32 * 1024)])
                .await
                .expect("the gate reads");
            stream
        });
        let mut permission = tokio::time::timeout(Duration::from_secs(30), rig.undecided.recv())
            .await
            .expect("it asks")
            .expect("a request");
        drop(sending.await.expect("it was sent"));
        tokio::time::timeout(Duration::from_secs(30), permission.closed())
            .await
            .unwrap_or_else(|_| panic!("{length} bytes wait on"));
        assert!(permission.send(Ok(())).is_err(), "nobody waits for it");
    }
    rig.is_hub_away.store(false, Ordering::SeqCst);
    assert!(rig.ask(CHAT, "{}").await.starts_with("HTTP/1.1 200"));
    assert_eq!(
        (rig.api.seen().requests.len(), rig.used()),
        (1, (1, 0, 100, 10))
    );
}
