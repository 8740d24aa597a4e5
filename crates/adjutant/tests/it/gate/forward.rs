//! Requests that the gate forwards: the key, the headers, streams, connections, counts.

use super::rig::{ANSWER, Act, Api, KEY, Rig, TOKEN, answer};
use adjutant_stream::api_usage::Tokens;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn key_replaces_the_token() {
    let rig = Rig::at(
        Api::plays(vec![answer(
            "200 OK",
            "connection: close, x-hop\r\nx-hop: 1\r\nx-id: 7\r\n",
            ANSWER,
        )])
        .await,
        "/base/",
    )
    .await;
    for credential in [
        format!("authorization: Bearer {TOKEN}"),
        format!("x-api-key: {TOKEN}"),
        format!("X-Goog-Api-Key: {TOKEN}"),
    ] {
        let hops = "connection: keep-alive, x-secret\r\nx-secret: 1\r\nproxy-authorization: x\r\ncookie: c\r\naccept-encoding: gzip\r\nx-api-key: other\r\n";
        let hops = if credential.starts_with("x-api") {
            hops.replace("x-api-key: other\r\n", "authorization: Bearer other\r\n")
        } else {
            hops.to_owned()
        };
        let request = format!(
            "POST {CHAT}?beta=true HTTP/1.1\r\nhost: {}\r\n{credential}\r\n{hops}x-own: 5\r\ncontent-length: 2\r\n\r\n{{}}",
            rig.host()
        );
        let answered = rig
            .send(request.replace("keep-alive", "close").as_bytes())
            .await;
        assert!(
            answered.starts_with("HTTP/1.1 200 OK")
                && answered.contains("x-id: 7")
                && answered.ends_with(ANSWER),
            "{answered}"
        );
        assert!(
            !answered.contains("x-hop") && !answered.contains(KEY),
            "{answered}"
        );
        let (head, length) = rig.api.seen().requests.pop().expect("a request");
        assert_eq!(
            (head.lines().next(), length),
            (Some("post /base/v1/chat/completions?beta=true http/1.1"), 2),
            "{head}"
        );
        let form = credential
            .split(": ")
            .next()
            .expect("a name")
            .to_lowercase();
        let value = if form == "authorization" {
            format!("bearer {KEY}")
        } else {
            KEY.to_owned()
        };
        assert!(head.contains(&format!("{form}: {value}\r\n")), "{head}");
        assert!(
            head.contains("accept-encoding: identity\r\n") && head.contains("x-own: 5\r\n"),
            "{head}"
        );
        assert!(
            head.contains(&format!("host: {}\r\n", rig.api.address)),
            "{head}"
        );
        for gone in [TOKEN, "other", "cookie", "proxy-auth", "x-secret", "gzip"] {
            assert!(!head.contains(gone), "{gone}: {head}");
        }
    }
    assert_eq!(rig.used(), (3, 0, 300, 30));
    assert!(!format!("{:?}", rig.gate).contains(KEY));
}

#[tokio::test]
async fn token_in_the_query_becomes_a_header() {
    let gemini = r#"{"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":2}}"#;
    let rig = Rig::with(vec![answer("200 OK", "", gemini)]).await;
    let path = format!("/v1beta/models/gemini-x:generateContent?alt=json&key={TOKEN}");
    rig.send(
        format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            rig.host()
        )
        .as_bytes(),
    )
    .await;
    let (head, _) = rig.api.seen().requests.pop().expect("a request");
    assert!(
        head.contains("generatecontent?alt=json http")
            && head.contains(&format!("x-goog-api-key: {KEY}")),
        "{head}"
    );
    let used = rig.gate.used().pop().expect("a model");
    assert_eq!(
        (used.model.as_str(), used.tokens),
        (
            "gemini-x",
            Tokens {
                input: 7,
                output: 2,
                ..Tokens::default()
            }
        )
    );
}

#[tokio::test]
async fn usage_counts_by_the_model_of_the_request() {
    let unnamed = ANSWER.replace("\"model\":\"m\",", "");
    let rig = Rig::with(vec![answer("200 OK", "", &unnamed)]).await;
    rig.ask(CHAT, r#"{"messages":[],"model":"cheap"}"#).await;
    rig.ask(CHAT, r#"{"model":"dear","messages":[]}"#).await;
    rig.ask(CHAT, r#"{"model":"dear"}"#).await;
    rig.ask(CHAT, "no JSON").await;
    let mut models: Vec<_> = rig
        .gate
        .used()
        .into_iter()
        .map(|used| (used.model, used.requests, used.tokens.input))
        .collect();
    models.sort();
    assert_eq!(
        models,
        [
            (String::new(), 1, 100),
            ("cheap".to_owned(), 1, 100),
            ("dear".to_owned(), 2, 200)
        ]
    );
}

#[tokio::test]
async fn usage_counts_by_the_model_that_answered() {
    for (answered, request, expected) in [
        ("dear", r#"{"model":"cheap"}"#, "dear"),
        ("dear", r#"{"model":"cheap","model":"dear"}"#, "dear"),
        ("dear-2026-11-23", r#"{"model":"dear"}"#, "dear"),
        ("dear-20261123", r#"{"model":"dear"}"#, "dear"),
        ("dear-2", r#"{"model":"dear"}"#, "dear-2"),
        ("", r#"{"model":"cheap","model":"dear"}"#, ""),
        ("", r#"{"model":"cheap","mod\u0065l":"dear"}"#, ""),
    ] {
        let body = ANSWER.replace("\"m\"", &format!("{answered:?}"));
        let rig = Rig::with(vec![answer("200 OK", "", &body)]).await;
        rig.ask(CHAT, request).await;
        assert_eq!(
            rig.gate
                .used()
                .into_iter()
                .map(|used| used.model)
                .collect::<Vec<_>>(),
            [expected],
            "{request}"
        );
    }
}

#[tokio::test]
async fn stream_arrives_while_it_is_sent() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let first = "data: {\"choices\":[]}\n\n";
    let script = vec![
        Act::Send(format!("{head}{:x}\r\n{first}\r\n", first.len()).into_bytes()),
        Act::Hang,
    ];
    let rig = Rig::with(vec![script]).await;
    let mut stream = rig.connect().await;
    stream
        .write_all(&rig.request(CHAT, "", "{}"))
        .await
        .expect("the gate reads");
    let mut read = String::new();
    while !read.contains(first) {
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes).await.expect("it streams");
        assert!(count > 0, "{read}");
        read.push_str(std::str::from_utf8(&bytes[..count]).expect("UTF-8"));
    }
    assert!(read.contains("text/event-stream"), "{read}");
    drop(stream);
    rig.api.until("left", |seen| seen.left == 1).await;
    rig.until_used((1, 1, 0, 0)).await;
}

#[tokio::test]
async fn connections_are_reused() {
    let rig = Rig::with(vec![answer("200 OK", "", ANSWER)]).await;
    let mut stream = rig.connect().await;
    for n in 1..=20 {
        stream
            .write_all(&rig.request(CHAT, "", r#"{"model":"m"}"#))
            .await
            .expect("the gate reads");
        let mut answered = Vec::new();
        while !answered.ends_with(ANSWER.as_bytes()) {
            answered.push(stream.read_u8().await.expect("an answer"));
        }
        assert_eq!(rig.api.seen().requests.len(), n);
    }
    assert_eq!(rig.api.seen().connections, 1);
    assert_eq!(rig.used(), (20, 0, 2_000, 200));
}

#[tokio::test]
async fn connection_that_the_api_has_closed_is_replaced() {
    let closing = [answer("200 OK", "", ANSWER), vec![Act::Close]].concat();
    let rig = Rig::with(vec![closing]).await;
    for asked in 1..=10 {
        let answered = rig.ask(CHAT, "{}").await;
        assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
        // The API may have received a request that was sent while it closed the connection, so the
        // request is never sent twice.
        rig.api.until("closed", |seen| seen.closed == asked).await;
    }
    assert_eq!(rig.used(), (10, 0, 1_000, 100));
}

#[tokio::test]
async fn large_bodies_are_forwarded_in_both_directions() {
    let filler = "x".repeat(20 << 20);
    let large = format!(
        r#"{{"choices":["{filler}"],"usage":{{"prompt_tokens":1,"completion_tokens":2}}}}"#
    );
    let rig = Rig::with(vec![answer("200 OK", "", &large)]).await;
    let body = format!(r#"{{"messages":["{filler}"],"model":"m"}}"#);
    let answered = rig.ask(CHAT, &body).await;
    assert!(
        answered.len() > large.len() && answered.ends_with("\"completion_tokens\":2}}"),
        "{}",
        answered.len()
    );
    assert_eq!(rig.api.seen().requests[0].1, body.len());
    assert_eq!(
        (rig.used(), rig.gate.used()[0].model.as_str()),
        ((1, 0, 1, 2), "m")
    );
}

#[tokio::test]
async fn lists_of_models_are_forwarded_and_cost_nothing() {
    let not_modified = vec![Act::Send(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec())];
    let limited = answer("429 Too Many Requests", "retry-after: 60\r\n", "{}");
    let rig = Rig::with(vec![answer("200 OK", "", "{}"), not_modified, limited]).await;
    rig.allowed.store(0, std::sync::atomic::Ordering::SeqCst);
    for (path, status) in [
        ("GET /v1/models", 200),
        ("GET /v1/models", 304),
        ("POST /v1/messages/count_tokens", 429),
    ] {
        let request = format!(
            "{path} HTTP/1.1\r\nhost: {}\r\nx-api-key: {TOKEN}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            rig.host()
        );
        let answered = rig.send(request.as_bytes()).await;
        assert!(
            answered.starts_with(&format!("HTTP/1.1 {status}")),
            "{path}: {answered}"
        );
    }
    assert_eq!(
        (rig.used(), rig.gate.has_been_used()),
        ((0, 0, 0, 0), false)
    );
    // A rate limit of another endpoint does not apply to the model.
    assert!(
        rig.limits
            .lock()
            .expect("nobody panics while holding it")
            .is_empty()
    );
}
