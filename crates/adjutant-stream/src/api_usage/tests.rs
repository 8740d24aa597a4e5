use super::*;
use proptest::prelude::*;

fn scanned(text: &str) -> UsageScanner {
    let mut scanner = UsageScanner::default();
    scanner.feed(text.as_bytes());
    scanner
}

fn tokens(input: u64, cached: u64, cache_write: u64, output: u64) -> Tokens {
    Tokens {
        input,
        cached,
        cache_write,
        output,
    }
}

const MESSAGES: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-x\",\"content\":[],\"usage\":\
    {\"input_tokens\":25,\"cache_creation_input_tokens\":7,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n\
    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"say \\\"usage\\\": {\\\\\"}}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
const CHAT: &str = "data: {\"id\":\"c\",\"model\":\"gpt-x\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\r\n\r\n\
    data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10,\"total_tokens\":110,\
    \"prompt_tokens_details\":{\"cached_tokens\":60,\"audio_tokens\":0}}}\r\n\r\ndata: [DONE]\r\n\r\n";
const RESPONSES: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"gpt-y\",\"usage\":null}}\n\n\
    event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"output\":[{\"usage\":{\"input_tokens\":9999}}],\
    \"usage\":{\"input_tokens\":50,\"input_tokens_details\":{\"cached_tokens\":20},\"output_tokens\":8,\"output_tokens_details\":{\"reasoning_tokens\":3}}}}\n\n";
const GEMINI: &str = "data: {\"candidates\":[{}],\"usageMetadata\":{\"promptTokenCount\":40,\"totalTokenCount\":40},\"modelVersion\":\"gemini-x\"}\n\n\
    data: {\"candidates\":[{}],\"usageMetadata\":{\"promptTokenCount\":40,\"cachedContentTokenCount\":10,\"candidatesTokenCount\":6,\"thoughtsTokenCount\":4,\
    \"promptTokensDetails\":[{\"tokenCount\":40}]}}\n\n";

#[test]
fn each_api_states_its_usage() {
    for (text, expected, model) in [
        (MESSAGES, tokens(25, 100, 7, 15), "claude-x"),
        (CHAT, tokens(40, 60, 0, 10), "gpt-x"),
        (RESPONSES, tokens(30, 20, 0, 8), "gpt-y"),
        (GEMINI, tokens(30, 10, 0, 10), "gemini-x"),
    ] {
        let scanner = scanned(text);
        assert_eq!(
            (scanner.tokens(), scanner.known(true), scanner.model()),
            (expected, Known::All, Some(model)),
            "{text}"
        );
    }
}

#[test]
fn whole_documents_state_their_usage() {
    let messages = r#"{"type":"message","model":"m","content":[{"type":"tool_use","input":{"usage":{"input_tokens":1e9}}}],"usage":{"input_tokens":5,"output_tokens":2}}"#;
    let gemini = r#" [{"usageMetadata":{"promptTokenCount":4}}, {"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2}}]"#;
    assert_eq!(
        (scanned(messages).tokens(), scanned(messages).known(true)),
        (tokens(5, 0, 0, 2), Known::All)
    );
    assert_eq!(
        (scanned(gemini).tokens(), scanned(gemini).known(true)),
        (tokens(4, 0, 0, 2), Known::All)
    );
}

#[test]
fn cut_response_has_partly_known_usage() {
    let cut = &MESSAGES[..MESSAGES.find("event: message_delta").expect("it is there")];
    assert_eq!(
        (
            scanned(cut).tokens().input,
            scanned(cut).known(false),
            scanned(cut).known(true)
        ),
        (25, Known::SoFar, Known::SoFar)
    );
    let cut = &GEMINI[..GEMINI.find("\n\n").expect("it is there")];
    assert_eq!(
        (scanned(cut).known(false), scanned(cut).known(true)),
        (Known::SoFar, Known::All)
    );
    assert_eq!(
        scanned("data: {\"choices\":[]}\n\n").known(true),
        Known::Nothing
    );
}

/// Some servers state counts with every piece of a stream.
#[test]
fn stream_cut_after_early_counts_is_partly_known() {
    let piece = |output: u32| {
        format!(
            "data: {{\"choices\":[{{}}],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{output}}}}}\n\n"
        )
    };
    let (first, last, done) = (piece(1), piece(7), "data: [DONE]\n\n");
    let silent = "data: {\"choices\":[{}]}\n\n";
    for (text, is_whole, expected) in [
        (first.clone(), false, Known::SoFar),
        (format!("{first}{last}"), false, Known::SoFar),
        (format!("{first}{last}{done}"), false, Known::All),
        // A server that ends without the usual last event.
        (format!("{first}{silent}{last}"), true, Known::All),
        (format!("{first}{silent}"), true, Known::SoFar),
        (format!("{first}{silent}{done}"), true, Known::All),
        (format!("{silent}{done}"), true, Known::Nothing),
        (
            MESSAGES.replace("message_stop", "ping"),
            false,
            Known::SoFar,
        ),
        (MESSAGES.to_owned(), false, Known::All),
        (RESPONSES.to_owned(), false, Known::All),
        (
            RESPONSES.replace("response.completed", "response.x"),
            false,
            Known::SoFar,
        ),
        (GEMINI.to_owned(), false, Known::SoFar),
    ] {
        assert_eq!(
            scanned(&text).known(is_whole),
            expected,
            "{is_whole} {text}"
        );
    }
}

#[test]
fn content_cannot_end_a_stream() {
    let text = "data: {\"delta\":{\"type\":\"message_stop\"},\"x\":\"[DONE]\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}\n\n";
    assert_eq!(scanned(text).known(false), Known::SoFar);
}

/// LiteLLM states the cached part of its prompt in the forms of OpenAI and Anthropic.
#[test]
fn cached_tokens_that_are_stated_twice_count_once() {
    for (usage, expected) in [
        (
            r#""prompt_tokens":1000,"prompt_tokens_details":{"cached_tokens":900},"cache_read_input_tokens":900,"cache_creation_input_tokens":50"#,
            tokens(50, 900, 50, 2),
        ),
        (
            r#""cache_read_input_tokens":900,"prompt_tokens":1000"#,
            tokens(100, 900, 0, 2),
        ),
        (
            r#""prompt_tokens":1000,"cache_read_input_tokens":0,"prompt_tokens_details":{"cached_tokens":900}"#,
            tokens(100, 900, 0, 2),
        ),
        (
            r#""input_tokens":1000,"input_tokens_details":{"cached_tokens":900},"cache_read_input_tokens":900"#,
            tokens(100, 900, 0, 2),
        ),
        (
            r#""input_tokens":1000,"prompt_tokens":1000,"prompt_tokens_details":{"cached_tokens":900}"#,
            tokens(100, 900, 0, 2),
        ),
        // Anthropic's own.
        (
            r#""input_tokens":1000,"cache_read_input_tokens":900,"cache_creation_input_tokens":50"#,
            tokens(1000, 900, 50, 2),
        ),
        (
            r#""prompt_tokens":1000,"prompt_cache_hit_tokens":900,"prompt_cache_miss_tokens":100"#,
            tokens(100, 900, 0, 2),
        ),
        (
            r#""prompt_tokens":1000,"cached_tokens":900,"prompt_tokens_details":{"cached_tokens":0}"#,
            tokens(100, 900, 0, 2),
        ),
    ] {
        let text = format!("{{\"usage\":{{{usage},\"completion_tokens\":2}}}}");
        assert_eq!(scanned(&text).tokens(), expected, "{usage}");
    }
}

#[test]
fn invalid_counts_are_unknown() {
    for count in [
        "-1",
        "1.5",
        "1e3",
        "NaN",
        "\"7\"",
        "{}",
        "[1]",
        "true",
        "99999999999999999999",
        &"9".repeat(300),
    ] {
        let text = format!("{{\"usage\":{{\"input_tokens\":{count},\"output_tokens\":3}}}}");
        assert_eq!(scanned(&text).known(true), Known::Nothing, "{text}");
    }
    for garbage in [
        "",
        "<html>usage</html>",
        "{",
        "}",
        "{\"usage\"",
        "{\"usage\":3}",
        "data: {{{{\n\n",
        "[[[[",
        "{\"usage\":{\"input_tokens\" 3}}",
    ] {
        assert_eq!(scanned(garbage).known(true), Known::Nothing, "{garbage}");
    }
}

#[test]
fn later_smaller_counts_change_nothing() {
    let text = "data: {\"usage\":{\"input_tokens\":9,\"output_tokens\":9}}\n\ndata: {\"usage\":{\"input_tokens\":0,\"output_tokens\":12}}\n\n";
    assert_eq!(scanned(text).tokens(), tokens(9, 0, 0, 12));
}

#[test]
fn event_of_several_lines_is_one_document() {
    let text = "id: 1\ndata: {\"usage\":\ndata: {\"prompt_tokens\": 3,\ndata: \"completion_tokens\": 4}}\n\n";
    assert_eq!(scanned(text).tokens(), tokens(3, 0, 0, 4));
}

#[test]
fn request_names_its_model() {
    let mut scanner = RequestScanner::default();
    for piece in [
        r#"{"messages":[{"model":"no"}],"mo"#,
        r#"del":"gp"#,
        r#"t-5","x":1}"#,
    ] {
        scanner.feed(piece.as_bytes());
    }
    assert_eq!(scanner.model(), Some("gpt-5"));
}

#[test]
fn ambiguous_model_name_is_unknown() {
    for (text, model) in [
        (r#"{"model":"dear","x":{"model":"cheap"}}"#, Some("dear")),
        (r#"{"model":"cheap","model":"dear"}"#, None),
        (r#"{"model":"cheap","mod\u0065l":"dear"}"#, None),
        (r#"{"mod\u0065l":"dear","model":"cheap"}"#, None),
        (r#"{"model":"cheap","Model":"dear"}"#, None),
        (r#"{"model":"ch\u0065ap"}"#, None),
        (
            r#"{"message":{"model":"cheap"},"response":{"model":"cheap"}}"#,
            None,
        ),
        (r#"[{"model":"cheap"}]"#, None),
    ] {
        let mut scanner = RequestScanner::default();
        scanner.feed(text.as_bytes());
        assert_eq!(scanner.model(), model, "{text}");
    }
}

#[test]
fn background_flag_is_found_in_any_spelling() {
    for (text, expected) in [
        (r#"{"model":"m","background":true}"#, true),
        (r#"{"background":false,"background": true,"x":1}"#, true),
        (r#"{"back\u0067round":true}"#, true),
        (r#"{"Background":1}"#, true),
        (r#"{"background":"true"}"#, true),
        (r#"{"background":{}}"#, true),
        ("\u{feff}{\"background\":true}", true),
        ("{\0\"\0b", true),
        ("[{\"background\":true}]", true),
        ("{'a':1}", true),
        (r#"{"background":false,"input":{"background":true}}"#, false),
        (
            r#" {"background":null,"input":"\"background\":true"}"#,
            false,
        ),
        (r#"{"input":[{"backgr\u006fund":true}],"model":"m"}"#, false),
        ("{\"model\"", false),
        ("", false),
    ] {
        let mut scanner = RequestScanner::default();
        text.as_bytes()
            .chunks(3)
            .for_each(|piece| scanner.feed(piece));
        assert_eq!(scanner.may_be_background(), expected, "{text}");
    }
}

#[test]
fn counts_of_a_response_never_become_smaller() {
    let first = "data: {\"usageMetadata\":{\"promptTokenCount\":100}}\n\n";
    let second = "data: {\"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":60,\"candidatesTokenCount\":5}}\n\n";
    let (mut scanner, mut total, mut before) = (
        UsageScanner::default(),
        Stated::default(),
        Stated::default(),
    );
    for piece in [first, second] {
        scanner.feed(piece.as_bytes());
        let now = scanner.stated();
        total.add_growth(&before, &now);
        before = now;
    }
    assert_eq!(total.tokens(), tokens(40, 60, 0, 5));
}

#[test]
fn large_and_deep_documents_need_little_memory() {
    let mut scanner = UsageScanner::default();
    scanner.feed(b"{\"output\":");
    (0..100_000).for_each(|_| scanner.feed(b"[[[[\"long text\",{\"a\":"));
    scanner.feed(b"0");
    (0..100_000).for_each(|_| scanner.feed(b"}]]]]"));
    scanner.feed(b",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}");
    assert_eq!(scanner.tokens(), tokens(1, 0, 0, 2));
    assert!(scanner.json.retained_bytes() < 4096);
}

proptest! {
    #[test]
    fn chunking_has_no_effect(which in 0..4usize, cuts in proptest::collection::vec(0..700usize, 0..12)) {
        let text = [MESSAGES, CHAT, RESPONSES, GEMINI][which].as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut scanner = UsageScanner::default();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            scanner.feed(&text[from..cut]);
            from = cut;
        }
        let whole = scanned(std::str::from_utf8(text).expect("UTF-8"));
        prop_assert_eq!((scanner.tokens(), scanner.known(true), scanner.model()), (whole.tokens(), whole.known(true), whole.model()));
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(proptest::sample::select(b"{}[]\",:\\ 1anul\n\rdata:usge".to_vec()), 0..200)) {
        let mut scanner = UsageScanner::default();
        scanner.feed(&bytes);
        prop_assert!(scanner.tokens().input <= 1 << 41);
    }

    #[test]
    fn content_cannot_state_usage(text in "\\PC{0,60}") {
        let content = serde_json::json!({ "choices": [{ "delta": { "content": text, "usage": { "input_tokens": 5 } } }] }).to_string();
        prop_assert_eq!(scanned(&content).known(true), Known::Nothing);
        let stated = serde_json::json!({ "choices": [{ "text": text }], "usage": { "input_tokens": 5, "output_tokens": 1 } }).to_string();
        prop_assert_eq!(scanned(&stated).tokens(), tokens(5, 0, 0, 1));
    }
}
