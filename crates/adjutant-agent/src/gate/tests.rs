use super::endpoint::{Api, Endpoint, model_in_path};
use super::exchange::Exchange;
use super::quota::{closed_until, windows};
use super::request_body::RequestInfo;
use super::tally::Tally;
use adjutant_core::Time;
use adjutant_stream::api_usage::Tokens;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use std::sync::Arc;

#[test]
fn only_requests_to_models_are_forwarded() {
    let of = |method: &Method, path| Endpoint::of(method, path);
    for path in [
        "/v1/messages",
        "/v1/responses",
        "/responses",
        "/v1/chat/completions",
        "/v1beta/models/gemini-x:generateContent",
        "/v1beta/models/gemini-x:streamGenerateContent",
        "/messages",
        "/v1/responses/compact",
        "/v2/chat/completions",
        "/v1/embeddings",
        "/models/gemini-x:embedContent",
    ] {
        assert_eq!(
            of(&Method::POST, path),
            Some(Endpoint::Generation),
            "{path}"
        );
        assert_ne!(of(&Method::GET, path), Some(Endpoint::Generation), "{path}");
    }
    for (method, path) in [
        (Method::POST, "/v1/messages/count_tokens"),
        (Method::GET, "/v1/models"),
        (Method::GET, "/v1beta/models/x"),
        (Method::GET, "/models/vendor/x"),
        (Method::GET, "/api/hello"),
        (Method::HEAD, "/"),
        (Method::POST, "/v1beta/models/x:countTokens"),
    ] {
        assert_eq!(of(&method, path), Some(Endpoint::Information), "{path}");
    }
    for (method, path) in [
        (Method::POST, "/v1/threads/t1/messages"),
        (Method::POST, "/@evil/v1/messages"),
        (Method::GET, "/v1/files/models"),
        (Method::GET, "/v1/files/models/x"),
        (Method::POST, "/v1/v1/messages"),
        (Method::POST, "/v1/responses/r1/responses"),
        (Method::POST, "/v1/conversations/c1/responses"),
        (Method::POST, "/v1/fine_tuning/chat/completions"),
        (Method::POST, "/beta/messages"),
        (Method::POST, "/vx/messages"),
        (Method::POST, "/v1gamma/messages"),
        (Method::POST, "/v1/cachedContents/models/x:generateContent"),
        (Method::POST, "/v1/models/x/operations/y:generateContent"),
        (Method::GET, "/v1/organization/models"),
        (Method::POST, "/v1/Messages"),
        (Method::POST, "/v1/messages/batches"),
        (Method::POST, "/v1/batches"),
        (Method::POST, "/v1/files"),
        (Method::GET, "/v1/responses/r1"),
        (Method::DELETE, "/v1/models/x"),
        (Method::TRACE, "/v1/messages"),
        (Method::CONNECT, "/"),
        (Method::POST, "/v1/organizations/api_keys"),
        (Method::POST, "/v1beta/models/x:batchGenerateContent"),
        (Method::POST, "/"),
    ] {
        assert_eq!(of(&method, path), None, "{path}");
    }
    assert_eq!(
        model_in_path("/v1beta/models/gemini-x:generateContent"),
        Some("gemini-x")
    );
    assert_eq!(model_in_path("/v1/models/cheap:x/v1/responses"), None);
    assert_eq!(
        (
            Api::of("/v1/messages"),
            Api::of("/v1beta/models/x:generateContent"),
            Api::of("/responses")
        ),
        (Api::Anthropic, Api::Gemini, Api::OpenAi)
    );
}

#[test]
fn ambiguous_path_is_not_forwarded() {
    for path in [
        "/v1/models/../files/F/content",
        "/v1/models/./x",
        "/v1/models/%2e%2e/files",
        "/v1/models/%2E./x",
        "/v1/models/..%2ffiles",
        "/v1/models/..\\files",
        "/v1/models/..%5Cfiles",
        "/v1/models/%252e%252e",
        "/v1/models/..;x/files",
        "//v1/models",
        "/v1//models",
        "/v1/models/",
        "/v1/models/x/content/y",
        "/v1/files/models/x/content",
    ] {
        assert_eq!(Endpoint::of(&Method::GET, path), None, "{path}");
    }
    for path in [
        "/v1/models/cheap:x/../../v1/responses",
        "/v1/models/cheap:x/%2e%2e/responses",
        "/v1/./messages",
        "/v1//messages",
    ] {
        assert_eq!(Endpoint::of(&Method::POST, path), None, "{path}");
    }
}

#[test]
fn limits_are_read_from_headers() {
    let now = Time(1_800_000_000_000);
    let until = |status: u16, pairs: &[(&'static str, &str)]| {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).expect("a value"),
                )
            })
            .collect();
        closed_until(
            StatusCode::from_u16(status).expect("a status"),
            &headers,
            now,
        )
        .map(|at| at.ms_since(now) / 1000)
    };
    for (expected, status, pairs) in [
        (Some(60), 429, &[("retry-after", "60")][..]),
        (
            Some(40),
            429,
            &[("retry-after", "Fri, 15 Jan 2027 08:00:40 GMT")],
        ),
        (
            Some(3600),
            429,
            &[
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("anthropic-ratelimit-unified-reset", "1800003600"),
                ("retry-after", "9"),
            ],
        ),
        (
            Some(30),
            200,
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:30Z"),
            ],
        ),
        (
            Some(360),
            429,
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "6m0s"),
            ],
        ),
        (
            Some(90),
            429,
            &[
                ("x-codex-primary-used-percent", "100"),
                ("x-codex-primary-reset-at", "1800000090"),
            ],
        ),
        // Too short, too long, past, not used up, not a refusal, garbage.
        (None, 429, &[("retry-after", "2")]),
        (None, 429, &[("retry-after", "99999999")]),
        (None, 429, &[("retry-after", "-5")]),
        (
            None,
            429,
            &[
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("anthropic-ratelimit-unified-reset", "1700000000"),
            ],
        ),
        (
            None,
            200,
            &[
                ("x-ratelimit-remaining-requests", "7"),
                ("x-ratelimit-reset-requests", "6m0s"),
            ],
        ),
        (None, 200, &[("retry-after", "60")]),
        (
            None,
            429,
            &[
                ("retry-after", "soon"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "NaN"),
            ],
        ),
        (None, 429, &[]),
    ] {
        assert_eq!(until(status, pairs), expected, "{status} {pairs:?}");
    }
}

#[test]
fn windows_are_read_from_headers() {
    let now = Time(1_800_000_000_000);
    let of = |pairs: &[(&'static str, &str)]| {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).expect("a value"),
                )
            })
            .collect();
        windows(&headers, now)
            .into_iter()
            .map(|window| {
                (
                    window.minutes,
                    window.used_percent,
                    window.resets_at.ms_since(now) / 1000,
                )
            })
            .collect::<Vec<_>>()
    };
    let claude = [
        ("anthropic-ratelimit-unified-5h-utilization", "0.417"),
        ("anthropic-ratelimit-unified-5h-reset", "1800003600"),
        ("anthropic-ratelimit-unified-7d-utilization", "1.2"),
        ("anthropic-ratelimit-unified-7d-reset", "1800090000"),
    ];
    assert_eq!(of(&claude), [(300, 42, 3600), (10_080, 100, 90_000)]);
    let codex = [
        ("x-codex-primary-used-percent", "12.5"),
        ("x-codex-primary-window-minutes", "300"),
        ("x-codex-primary-reset-at", "1800000090"),
        ("x-codex-secondary-used-percent", "3"),
        ("x-codex-secondary-window-minutes", "10080"),
        ("x-codex-secondary-reset-after-seconds", "500"),
    ];
    assert_eq!(of(&codex), [(300, 13, 90), (10_080, 3, 500)]);
    for (name, value) in [
        ("x-codex-primary-used-percent", "NaN"),
        ("x-codex-primary-used-percent", "-1"),
        ("x-codex-primary-window-minutes", "0"),
        ("x-codex-primary-window-minutes", "999999999"),
        ("x-codex-primary-reset-at", "1700000000"),
        ("x-codex-primary-reset-at", "soon"),
    ] {
        let mut pairs = codex[..3].to_vec();
        pairs.retain(|(known, _)| *known != name);
        pairs.push((name, value));
        assert!(of(&pairs).is_empty(), "{name}: {value}");
    }
}

#[test]
fn cached_input_reported_later_counts_once() {
    let tally = Arc::new(Tally::default());
    let mut exchange = Exchange::new(
        Arc::clone(&tally),
        Arc::new(RequestInfo::new(Some("g".to_owned()), false)),
        None,
    );
    exchange.note_sent();
    exchange.note_answer(true);
    exchange
        .feed(b"data: {\"modelVersion\":\"g\",\"usageMetadata\":{\"promptTokenCount\":100}}\n\n");
    assert_eq!(
        tally.totals()[0].tokens,
        Tokens {
            input: 100,
            ..Tokens::default()
        }
    );
    exchange.feed(b"data: {\"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":60,\"candidatesTokenCount\":5}}\n\n");
    exchange.end(true);
    assert_eq!(
        tally.totals()[0].tokens,
        Tokens {
            input: 40,
            cached: 60,
            cache_write: 0,
            output: 5
        }
    );
}
