//! APIs and agents that hang, stream forever, truncate responses, redirect or send garbage.

use super::rig::{ANSWER, Act, Api, Rig, answer};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

#[tokio::test]
async fn client_that_hangs_up_cancels_the_request() {
    // Before the head of the response, and during the body.
    let begun = "data: {\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":30,\"output_tokens\":1}}}\n\n";
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let streaming = Act::Send(format!("{head}{:x}\r\n{begun}\r\n", begun.len()).into_bytes());
    let rig = Rig::with(vec![vec![Act::Hang], vec![streaming, Act::Hang]]).await;
    let mut stream = rig.connect().await;
    stream
        .write_all(&rig.request(MESSAGES, "", "{}"))
        .await
        .expect("the gate reads");
    rig.api
        .until("asked", |seen| seen.requests.len() == 1)
        .await;
    drop(stream);
    rig.api.until("left", |seen| seen.left == 1).await;
    rig.until_used((1, 1, 0, 0)).await;

    let mut stream = rig.connect().await;
    stream
        .write_all(&rig.request(MESSAGES, "", "{}"))
        .await
        .expect("the gate reads");
    stream.readable().await.expect("it streams");
    drop(stream);
    rig.api.until("left", |seen| seen.left == 2).await;
    // The reported usage counts, and the rest is unknown.
    rig.until_used((2, 2, 30, 1)).await;
}

#[tokio::test]
async fn slow_reader_stops_an_endless_stream() {
    /// Maximum number of bytes in the buffers of two connections.
    const BUFFERED_MAX: u64 = 32 << 20;
    let head = Act::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let rig = Rig::with(vec![vec![
        head,
        Act::Endlessly(
            b"data: {\"choices\":[{\"delta\":{\"content\":\"on and on\"}}]}\n\n".repeat(1000),
        ),
    ]])
    .await;
    let mut stream = rig.connect().await;
    stream
        .write_all(&rig.request(CHAT, "", "{}"))
        .await
        .expect("the gate reads");
    let mut before = 0;
    // Back-pressure stops the API: no more bytes are accepted for a while.
    let stopped = async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let sent = rig.api.seen().sent_bytes;
            if sent > 0 && sent == before {
                return sent;
            }
            before = sent;
        }
    };
    let sent = tokio::time::timeout(Duration::from_secs(30), stopped)
        .await
        .expect("the stream stops");
    assert!(sent < BUFFERED_MAX, "{sent}");
    drop(stream);
    rig.api.until("left", |seen| seen.left == 1).await;
    rig.until_used((1, 1, 0, 0)).await;
}

#[tokio::test]
async fn errors_of_the_api_are_forwarded_and_cost_nothing() {
    let limited = answer(
        "429 Too Many Requests",
        "retry-after: 60\r\n",
        r#"{"error":{"message":"slow down"}}"#,
    );
    let overloaded = answer(
        "529 Overloaded",
        "",
        r#"{"type":"error","error":{"type":"overloaded_error"},"usage":{"input_tokens":9,"output_tokens":9}}"#,
    );
    let rig = Rig::with(vec![limited, overloaded]).await;
    let answered = rig.ask(CHAT, "{}").await;
    assert!(
        answered.starts_with("HTTP/1.1 429")
            && answered.contains("retry-after: 60")
            && answered.contains("slow down"),
        "{answered}"
    );
    let answered = rig.ask(MESSAGES, "{}").await;
    assert!(
        answered.starts_with("HTTP/1.1 529") && answered.contains("overloaded_error"),
        "{answered}"
    );
    assert_eq!(rig.used(), (0, 0, 0, 0));
    let limits = rig
        .limits
        .lock()
        .expect("nobody panics while holding it")
        .clone();
    let in_ms = limits
        .first()
        .map(|until| until.ms_since(adjutant_os::clock::now()));
    assert!(
        limits.len() == 1 && in_ms.is_some_and(|ms| (50_000..=60_000).contains(&ms)),
        "{in_ms:?}"
    );
}

#[tokio::test]
async fn garbage_is_a_bad_gateway() {
    for garbage in [
        &b"\0\x01\x02 no HTTP\r\n\r\n"[..],
        b"HTTP/1.1 abc\r\n\r\n",
        b"",
    ] {
        let rig = Rig::with(vec![vec![Act::Send(garbage.to_vec()), Act::Close]]).await;
        let answered = rig.ask(CHAT, "{}").await;
        assert!(
            answered.starts_with("HTTP/1.1 502")
                && answered.contains("\"server_error\"")
                && answered.contains("no response from 127.0.0.1"),
            "{answered}"
        );
        // The model may have worked.
        assert_eq!(rig.used(), (1, 1, 0, 0));
    }
    let long = [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), b"y".repeat(1 << 20)].concat();
    let rig = Rig::with(vec![vec![Act::Send(long), Act::Hang]]).await;
    assert!(rig.ask(CHAT, "{}").await.starts_with("HTTP/1.1 502"));
}

#[tokio::test]
async fn unreachable_api_costs_nothing() {
    let rig = Rig::at(Api::absent().await, "").await;
    let answered = rig.ask(MESSAGES, "{}").await;
    assert!(
        answered.starts_with("HTTP/1.1 502")
            && answered.contains("\"api_error\"")
            && answered.contains("cannot be reached"),
        "{answered}"
    );
    assert_eq!(rig.used(), (0, 0, 0, 0));
}

#[tokio::test]
async fn truncated_response_is_truncated_for_the_agent() {
    let cut = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}",
        ANSWER.len() + 50,
        &ANSWER[..30]
    );
    let chunked =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n14\r\ndata: {}\n\n".to_vec();
    for script in [cut.into_bytes(), chunked] {
        let rig = Rig::with(vec![vec![Act::Send(script), Act::Close]]).await;
        let answered = rig.ask(CHAT, "{}").await;
        // No byte, or an incomplete response.
        assert!(
            answered.is_empty()
                || answered.starts_with("HTTP/1.1 200") && !answered.ends_with("0\r\n\r\n"),
            "{answered}"
        );
        rig.until_used((1, 1, 0, 0)).await;
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Api::plays(vec![answer("200 OK", "", ANSWER)]).await;
    let rig = Rig::with(vec![answer(
        "307 Temporary Redirect",
        &format!("location: http://{}/\r\n", elsewhere.address),
        "",
    )])
    .await;
    let answered = rig.ask(CHAT, "{}").await;
    assert!(
        answered.starts_with("HTTP/1.1 502")
            && answered.contains("redirect")
            && !answered.contains("location"),
        "{answered}"
    );
    assert_eq!(elsewhere.seen().connections, 0);
}

#[tokio::test]
async fn compressed_response_is_forwarded_with_unknown_usage() {
    let rig = Rig::with(vec![answer(
        "200 OK",
        "content-encoding: gzip\r\n",
        "\u{1f}compressed",
    )])
    .await;
    let answered = rig.ask(CHAT, "{}").await;
    assert!(
        answered.contains("content-encoding: gzip") && answered.ends_with("compressed"),
        "{answered}"
    );
    assert_eq!(rig.used(), (1, 1, 0, 0));
}

#[tokio::test]
async fn closed_gate_has_counted_an_aborted_exchange() {
    let begun = "data: {\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":30,\"output_tokens\":1}}}\n\n";
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let streaming = Act::Send(format!("{head}{:x}\r\n{begun}\r\n", begun.len()).into_bytes());
    let rig = Rig::with(vec![vec![streaming, Act::Hang]]).await;
    let mut stream = rig.connect().await;
    stream
        .write_all(&rig.request(MESSAGES, "", "{}"))
        .await
        .expect("the gate reads");
    rig.until_used((0, 0, 30, 1)).await;
    rig.gate.close().await;
    assert_eq!(rig.used(), (1, 1, 30, 1));
    drop(stream);
}
