//! Searches find the same on all engines.

use crate::store::search::tests::{chat_of, person};
use crate::store::testing::fixture::fixture;
use crate::store::{FoundText, Query, Store, search};

/// Returns the texts that a search finds, the newest first.
fn found(store: &Store, text: &str, limit: u32) -> Vec<String> {
    let query = Query {
        text: text.to_owned(),
        limit,
        ..Query::default()
    };
    let (hits, is_broken_off) = store
        .read(|connection| search(connection, &person(), &query))
        .expect("searched");
    assert!(!is_broken_off, "{text}");
    let texts = hits.into_iter().filter_map(|hit| match hit.found {
        FoundText::Entry(entry, _) => Some(entry.text),
        FoundText::Request(_) | FoundText::Report(_) => None,
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_found_in_all_scripts() {
    let fixture = fixture();
    let texts = [
        "the file src/main_window.rs, v1.2.3 (“Größe”)",
        "我们昨天讨论了Rust数据库的迁移问题。",
        "データベースの移行は来週です",
        "데이터베이스에서 오류가 났습니다",
        "เมื่อคืนฐานข้อมูลล่ม",
        "Привет, мир",
        "да\u{438}\u{306}",
    ];
    chat_of(&fixture.store, texts.map(str::to_owned).to_vec()).await;
    for (words, text) in [
        ("main", 0),
        ("WINDOW file", 0),
        ("main_window.rs", 0),
        ("größe", 0),
        ("gro\u{308}ße", 0),
        ("数据库", 1),
        ("Rust 问题", 1),
        ("了rust数据", 1),
        ("移行", 2),
        ("ベース", 2),
        ("오류", 3),
        ("베이스", 3),
        ("ข้อมูล", 4),
        ("мир", 5),
        ("дай", 6),
        ("да\u{438}\u{306}", 6),
        // The server of the tests has the locale C, which knows only ASCII letters.
        (
            if fixture.store.is_on_server() {
                "Привет"
            } else {
                "привет"
            },
            5,
        ),
    ] {
        assert_eq!(found(&fixture.store, words, 10), [texts[text]], "{words}");
    }
    // Parts of words, other orders and other vowels.
    for words in ["windo", "库数据", "คน", "ขอมล", "main nothing", "ми"] {
        assert_eq!(found(&fixture.store, words, 10), [""; 0], "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_matches_come_first_and_old_ones_are_found() {
    let fixture = fixture();
    // More than those with which a search begins.
    let texts: Vec<String> = (0..100)
        .map(|n| format!("word w{n}{}", if n % 30 == 0 { " rare" } else { "" }))
        .collect();
    chat_of(&fixture.store, texts).await;
    assert_eq!(
        found(&fixture.store, "word", 3),
        ["word w99", "word w98", "word w97"]
    );
    assert_eq!(found(&fixture.store, "word", 1000).len(), 100);
    assert_eq!(
        found(&fixture.store, "rare word", 10),
        [
            "word w90 rare",
            "word w60 rare",
            "word w30 rare",
            "word w0 rare"
        ]
    );
    assert_eq!(found(&fixture.store, "w7", 10), ["word w7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_text_can_be_stored_and_searched() {
    let fixture = fixture();
    // As many different words as fit.
    let words: Vec<String> = (0..120_000_u32).map(|n| format!("{n:x}")).collect();
    let characters: String = [0x4E00..=0x9FFF, 0xAC00..=0xD7A3, 0x2_0000..=0x3_FFFD]
        .into_iter()
        .flatten()
        .filter_map(char::from_u32)
        .collect();
    chat_of(
        &fixture.store,
        vec![
            format!("first {}", words.join(" ")),
            format!("first {characters}"),
        ],
    )
    .await;
    assert_eq!(found(&fixture.store, "first", 10).len(), 2);
    assert_eq!(found(&fixture.store, "9fff", 10).len(), 1);
}
