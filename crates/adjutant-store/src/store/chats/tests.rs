//! Conformance tests of chats.

use super::revisions_of;
use crate::clock;
use crate::config::Home;
use crate::store::*;
use adjutant_core::chat::{
    BOARD_ENTRIES_MAX, Budget, ChatId, ChatKind, EntryKind, LEDGER_KEY_PREFIX, Participant,
    REMOVED_ANNOUNCEMENT, Scope, Viewer,
};
use adjutant_core::{AgentName, ClientName, Principal, RunId};

struct Fixture {
    store: Store,
    _dir: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    Fixture {
        store: Store::open(&home).expect("a store"),
        _dir: dir,
    }
}

fn client() -> Principal {
    Principal::Client(ClientName::parse("alice").expect("a name"))
}

pub(in crate::store) fn new_chat() -> NewChat {
    NewChat {
        kind: ChatKind::Chat,
        title: "t".to_owned(),
        scope: Scope {
            owner: client(),
            root: None,
        },
        private: false,
        pair: None,
        template: None,
        instructions: None,
        window: Budget::Chars(100),
        turns_max: 2,
        branch_of: None,
        started_by: Participant::Principal(client()),
        started_name: "alice".to_owned(),
    }
}

pub(in crate::store) fn new_entry(text: &str) -> NewEntry {
    NewEntry {
        kind: EntryKind::Message,
        author: Participant::Principal(client()),
        name: "alice".to_owned(),
        label: None,
        text: text.to_owned(),
        reply_to: None,
        hops: 0,
        pinned: false,
        key: None,
    }
}

impl Fixture {
    async fn chat(&self, texts: &[&str]) -> Chat {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let write = self.store.write(move |tx| {
            let chat = tx.start_chat(&new_chat())?;
            for text in &texts {
                tx.add_entry(chat.id, &new_entry(text))?;
            }
            tx.chat(chat.id)
        });
        write.await.expect("a chat")
    }

    async fn found(&self, word: &str) -> Vec<i64> {
        self.store
            .write(|tx| tx.index_entries())
            .await
            .expect("indexed");
        let viewer = Viewer {
            who: Principal::Person,
            scope: Scope {
                owner: Principal::Person,
                root: None,
            },
        };
        let query = Query {
            text: word.to_owned(),
            limit: 100,
            ..Query::default()
        };
        let (hits, incomplete) = self
            .store
            .read(|connection| search(connection, &viewer, &query))
            .expect("searched");
        assert!(!incomplete);
        let seq = |hit: Hit| {
            if let FoundText::Entry(entry, _) = hit.found {
                entry.seq
            } else {
                panic!("{hit:?}")
            }
        };
        hits.into_iter().map(seq).collect()
    }
}

#[tokio::test]
async fn entry_numbers_have_no_gaps() {
    let it = fixture();
    let chat = it.chat(&["one"]).await;
    let refused = it
        .store
        .write(move |tx| {
            tx.add_entry(chat.id, &new_entry("lost"))?;
            Err::<(), _>(adjutant_core::Denied::Expired.into())
        })
        .await;
    assert!(refused.is_err());
    let two = it
        .store
        .write(move |tx| tx.add_entry(chat.id, &new_entry("two")))
        .await
        .expect("added");
    assert_eq!(two.seq, 2);
    assert_eq!(
        (it.found("lost").await, it.found("two").await),
        (vec![], vec![2])
    );
}

#[tokio::test]
async fn edit_keeps_the_old_text_and_is_searched() {
    let it = fixture();
    let chat = it.chat(&["frist"]).await;
    it.store
        .write(move |tx| {
            tx.index_entries()?;
            let entry = entry_by_seq(tx.connection(), chat.id, 1)?.expect("it is there");
            tx.revise_entry(&entry, "first", None)
        })
        .await
        .expect("edited");
    let (entry, old) = it
        .store
        .read(|connection| {
            let entry = entry_by_seq(connection, chat.id, 1)?.expect("it is there");
            let old = revisions_of(connection, entry.id)?;
            Ok((entry, old))
        })
        .expect("read");
    assert_eq!(
        (
            entry.text.as_str(),
            entry.revision,
            old.len(),
            old[0].text.as_str()
        ),
        ("first", 1, 1, "frist")
    );
    assert_eq!(
        (it.found("frist").await, it.found("first").await),
        (vec![], vec![1])
    );
}

#[tokio::test]
async fn turn_starts_once_ends_once_and_runs_alone() {
    let it = fixture();
    let chat = it.chat(&["one", "two"]).await;
    let id = chat.id;
    let turn = move |message| NewTurn {
        chat: id,
        agent: AgentName::parse("gemini").expect("a name"),
        is_summary: false,
        message,
        hops: 0,
        cwd: "/".to_owned(),
        env: crate::store::DispatchEnv::default(),
    };
    it.store
        .write(move |tx| {
            tx.queue_turn(&turn(1))?;
            tx.queue_turn(&turn(2))
        })
        .await
        .expect("queued");
    let next = it.store.read(next_turns).expect("read");
    assert_eq!(
        next.iter().map(|turn| turn.message).collect::<Vec<_>>(),
        [1],
        "in order"
    );
    let run = RunId::new(clock::now(), [1; 10]);
    let first = next[0].id;
    for begun in [true, false] {
        assert_eq!(
            it.store
                .write(move |tx| tx.begin_turn(first, run))
                .await
                .expect("written"),
            begun
        );
    }
    assert!(
        it.store.read(next_turns).expect("read").is_empty(),
        "the second waits"
    );
    assert!(
        it.store
            .write(move |tx| tx.begin_turn(first + 1, run))
            .await
            .is_err(),
        "never two at once"
    );
    let running = it.store.read(turns_running).expect("read").remove(0);
    for ended in [true, false] {
        let turn = running.clone();
        assert_eq!(
            it.store
                .write(move |tx| tx.end_turn(&turn, TurnState::Answered, Some(2)))
                .await
                .expect("written"),
            ended
        );
    }
    assert_eq!(it.store.read(next_turns).expect("read").len(), 1);
}

#[tokio::test]
async fn read_cursor_only_moves_forward() {
    let it = fixture();
    let chat = it.chat(&["one", "two", "three"]).await;
    let reader = Participant::Principal(Principal::Person);
    let who = reader.to_string();
    for (first, seq, unread_after) in [(1, 1, 2), (3, 3, 2), (1, 2, 1), (1, 1, 1), (3, 3, 0)] {
        let reader = reader.clone();
        it.store
            .write(move |tx| tx.read_chat(chat.id, &reader, "person", first, seq))
            .await
            .expect("read");
        let left = it.store.read(|connection| {
            let own = member(connection, chat.id, &who)?.expect("a reader");
            assert!(own.joined_at.is_none(), "reading is not participating");
            unread(connection, chat.id, &who, own.read_seq)
        });
        assert_eq!(left.expect("counted"), unread_after);
    }
}

#[tokio::test]
async fn incomplete_import_is_hidden_and_expires() {
    let fixture = fixture();
    let whole = fixture.chat(&["word of the whole"]).await;
    let import = fixture.store.write(|tx| {
        let chat = tx.start_chat(&NewChat {
            scope: Scope {
                owner: Principal::Person,
                root: None,
            },
            ..new_chat()
        })?;
        tx.mark_imported(chat.id, false, 1, 2, &[])?;
        for seq in 1..=1_500 {
            let entry = ChatEntry {
                text: format!("word {seq} 数据库"),
                at: clock::now(),
                ..imported(seq)
            };
            let revisions = vec![Revision {
                revision: 0,
                author: "person".to_owned(),
                name: "p".to_owned(),
                text: "old".to_owned(),
                at: clock::now(),
            }];
            tx.import_entry(
                chat.id,
                &Imported {
                    entry: ChatEntry {
                        revision: 1,
                        edited_at: Some(clock::now()),
                        ..entry
                    },
                    revisions,
                },
            )?;
        }
        tx.index_entries()?;
        Ok(chat.id)
    });
    let left = import.await.expect("a part of a chat");
    let person = Viewer {
        who: Principal::Person,
        scope: Scope {
            owner: Principal::Person,
            root: None,
        },
    };
    let seen = |store: &Store| {
        let query = Query {
            text: "word".to_owned(),
            limit: 10,
            ..Query::default()
        };
        store
            .read(|connection| {
                let chats = chats_newest(connection, &person, None, 10)?.len();
                Ok((
                    chats,
                    search(connection, &person, &query)?.0.len(),
                    stats_of(connection, None)?.chats,
                ))
            })
            .expect("read")
    };
    assert_eq!(seen(&fixture.store), (1, 1, 1));

    let now = clock::steady();
    assert!(
        !fixture
            .store
            .write(move |tx| tx.forget_imports(now.plus_ms(-60_000)))
            .await
            .expect("the sweep runs"),
        "it is not old yet"
    );
    assert!(
        fixture
            .store
            .write(move |tx| tx.forget_imports(now.plus_ms(60_000)))
            .await
            .expect("removed")
    );
    let behind = fixture.store.write(move |tx| {
        let entry = imported(1_501);
        tx.import_entry(
            left,
            &Imported {
                entry,
                revisions: Vec::new(),
            },
        )
    });
    assert!(behind.await.is_err(), "a removed import cannot continue");
    while fixture
        .store
        .write(move |tx| tx.forget_imports(now.plus_ms(60_000)))
        .await
        .expect("removed")
    {}
    assert_eq!(seen(&fixture.store), (1, 1, 1));
    let rest = fixture.store.write(move |tx| {
        tx.connection().execute(
            "INSERT INTO chat_fts (chat_fts, rank) VALUES ('integrity-check', 1)",
            [],
        )?;
        assert!(
            tx.connection()
                .execute("DELETE FROM chat_messages WHERE chat = ?1", [whole.id.0])
                .is_err(),
            "an entry stays"
        );
        Ok(tx.connection().read_row::<i64>(
            "SELECT (SELECT count(*) FROM chat_messages) + (SELECT count(*) FROM chat_revisions)",
            [],
        )?)
    });
    assert_eq!(
        (
            rest.await.expect("read"),
            fixture
                .store
                .read(|connection| chat_by_id(connection, left))
                .expect("read")
                .is_none()
        ),
        (1, true)
    );
}

fn imported(seq: i64) -> ChatEntry {
    ChatEntry {
        id: 0,
        chat: ChatId(0),
        seq,
        kind: EntryKind::Message,
        author: Participant::FromFile("person".to_owned()),
        name: "person".to_owned(),
        label: None,
        text: "text".to_owned(),
        at: clock::now(),
        reply_to: None,
        hops: 0,
        pinned: false,
        revision: 0,
        edited_at: None,
        key: None,
    }
}

#[tokio::test]
async fn removed_announcements_do_not_fill_a_board() {
    let fixture = fixture();
    let write = fixture.store.write(|tx| {
        let board = tx.start_chat(&NewChat {
            kind: ChatKind::Board,
            pair: Some("board".to_owned()),
            ..new_chat()
        })?;
        for n in 0..BOARD_ENTRIES_MAX / 2 {
            tx.add_entry(
                board.id,
                &NewEntry {
                    key: Some(format!("{LEDGER_KEY_PREFIX}{n}")),
                    ..new_entry(REMOVED_ANNOUNCEMENT)
                },
            )?;
        }
        for (text, key) in [
            ("{}", None),
            ("{}", Some("plan".to_owned())),
            ("src", Some(format!("{LEDGER_KEY_PREFIX}live"))),
        ] {
            tx.add_entry(
                board.id,
                &NewEntry {
                    key,
                    ..new_entry(text)
                },
            )?;
        }
        let board = tx.chat(board.id)?;
        Ok((board_size(tx.connection(), &board)?, board.last_seq))
    });
    assert_eq!(
        write.await.expect("a board"),
        (3, BOARD_ENTRIES_MAX / 2 + 3)
    );
}
