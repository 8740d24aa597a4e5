//! Unit tests of the client.

use super::*;

#[test]
fn requested_wait_is_a_field_and_never_text() {
    let body = |text: &str, wait_ms: u64| {
        serde_json::to_vec(&serde_json::json!({"text": text, "wait_ms": wait_ms})).expect("JSON")
    };
    assert_eq!(wait_of(&body("x", 1_234)), Duration::from_millis(1_234));
    assert_eq!(
        wait_of(&body("\"wait_ms\":99", 5)),
        Duration::from_millis(5)
    );
    assert_eq!(
        wait_of(br#"{"wait_ms": 7, "x": 1}"#),
        Duration::from_millis(7)
    );
    assert_eq!(wait_of(br#"{"x":1}"#), Duration::ZERO);
}

#[test]
fn unreachable_hub_with_the_lock_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    assert!(
        unreachable_hub_error(&home, "no socket")
            .message
            .ends_with("cannot be reached: no socket")
    );
    let held = crate::process::Lock::try_take(&home.dir, &home.hub_lock())
        .expect("takes")
        .expect("free");
    held.write_pid(rustix::process::getpid()).expect("writes");
    let error = unreachable_hub_error(&home, "no socket");
    let pid = std::process::id();
    assert!(
        error
            .message
            .ends_with(&format!("(pid {pid}) does not answer")),
        "{error:?}"
    );
    assert!(
        error
            .hint
            .is_some_and(|hint| hint.contains(&format!("kill -9 {pid}")))
    );
}

#[test]
fn encoded_names_are_decoded_unchanged() {
    for name in ["/home/ä b/%41", "x", "a\u{202e}b"] {
        let encoded = encode_name(name);
        assert!(encoded.bytes().all(|b| b.is_ascii_graphic()));
        assert_eq!(decode_name(&encoded).as_deref(), Some(name));
    }
    assert_eq!(decode_name("%4"), None);
}

#[test]
fn versions_compare_by_number() {
    assert!(is_older("0.9.0", "0.10.0") && !is_older("1.0.0", "1.0.0") && !is_older("x", "1.0.0"));
}
