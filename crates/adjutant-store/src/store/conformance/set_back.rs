//! A database on a server is replaced by an earlier copy of itself. It is noticed, also if no hub
//! ran meanwhile, and numbers go on.

use crate::config::PostgresAddress;
use crate::store::chats::tests::{new_chat, new_entry};
use crate::store::testing::address_of_this_run;
use crate::store::testing::fixture::{KEEP, new_run, question};
use crate::store::*;
use adjutant_core::{Principal, RequestNo};
use std::time::Duration;

/// A database, and the server's own one, from which it can be replaced.
struct Database {
    address: PostgresAddress,
    server: PostgresAddress,
    name: String,
    home: Home,
    _dir: tempfile::TempDir,
}

impl Database {
    /// `None`: the fixtures of this process use SQLite.
    fn new() -> Option<Self> {
        let (address, _) = address_of_this_run()?;
        let text = address.to_string();
        let (before, rest) = text.split_once("@/").expect("a socket");
        let (name, parameters) = rest.split_once('?').expect("parameters");
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join("home")).expect("a home");
        home.ensure().expect("a home");
        let server = format!("{before}@/postgres?{parameters}")
            .parse()
            .expect("an address");
        Some(Self {
            server,
            name: name.to_owned(),
            address,
            home,
            _dir: dir,
        })
    }

    fn open(&self) -> Store {
        self.open_in(&self.home)
    }

    fn open_in(&self, home: &Home) -> Store {
        Store::open_at(home, StoreLocation::Postgres(self.address.clone())).expect("a store")
    }

    fn run(&self, sql: &str) {
        db::postgres_batch(&self.server, sql).expect(sql);
    }

    /// Keeps a copy of the database, which nobody uses.
    fn copy(&self) {
        self.run(&format!("CREATE DATABASE {0}_old TEMPLATE {0}", self.name));
    }

    /// Puts the copy in its place.
    fn set_back(&self) {
        self.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        self.run(&format!("ALTER DATABASE {0}_old RENAME TO {0}", self.name));
    }
}

/// Starts a run that asks. Returns the number of the question.
async fn ask(store: &Store) -> RequestNo {
    let asked = store.write(|tx| {
        let run = tx.dispatch(&new_run(&Principal::Person, None))?;
        let run = tx.claim(&run, b"hash", None, KEEP)?;
        let run = tx.advance(
            &run,
            adjutant_core::RunEvent::Started,
            KEEP,
            "supervisor",
            "",
        )?;
        tx.ask(&run, &question(true, 60_000, None))
    });
    asked.await.expect("asked").no
}

fn last(store: &Store) -> i64 {
    store.read(last_seq).expect("a position").0
}

fn position(store: &Store, after: i64) -> Position {
    store
        .read(|connection| position_in_events(connection, store.eras(), after))
        .expect("a position")
}

#[tokio::test(flavor = "multi_thread")]
async fn set_back_while_no_hub_ran() {
    let Some(database) = Database::new() else {
        return;
    };
    let store = database.open();
    assert_eq!(ask(&store).await.0, 1);
    let kept = last(&store);
    store.close();
    drop(store);
    database.copy();
    let store = database.open();
    assert!(store.eras().is_empty() && ask(&store).await.0 == 2);
    let lost = last(&store);
    assert!(lost > kept);
    // As if the hub were killed.
    store.abandon();
    drop(store);
    database.set_back();

    let store = database.open();
    let eras = store.eras().to_vec();
    assert_eq!(eras.iter().map(|era| era.number).collect::<Vec<_>>(), [1]);
    let gap = eras[0].gap("events").expect("a gap");
    assert!(gap.last == kept && gap.contains(lost), "{gap:?} {lost}");
    assert_eq!(
        eras[0]
            .gap("requests")
            .map(|gap| (gap.last, gap.contains(2))),
        Some((1, true))
    );
    assert_eq!(era_that_lost(&eras, "requests", 2), Some(&eras[0]));
    assert_eq!(era_that_lost(&eras, "requests", 1), None);
    // What is lost, or was never there, is a reset; what the database has is not.
    assert_eq!(
        position(&store, lost),
        Position {
            after: kept,
            is_reset: true
        }
    );
    assert_eq!(
        position(&store, kept),
        Position {
            after: kept,
            is_reset: false
        }
    );
    assert_eq!(
        position(&store, gap.start),
        Position {
            after: gap.start,
            is_reset: false
        }
    );
    assert_eq!(
        position(&store, gap.start + 1_000),
        Position {
            after: gap.start,
            is_reset: true
        }
    );
    assert_eq!(ask(&store).await.0, 10_001);
    assert!(last(&store) > gap.start);
    store.close();
    drop(store);
    // It is noticed once.
    let store = database.open();
    assert_eq!(store.eras(), eras);
    assert_eq!(ask(&store).await.0, 10_002);
}

/// The second time, the era of the first one is lost as well.
#[tokio::test(flavor = "multi_thread")]
async fn set_back_twice_to_the_same_copy() {
    let Some(database) = Database::new() else {
        return;
    };
    let store = database.open();
    ask(&store).await;
    store.close();
    drop(store);
    database.copy();
    for era in 1..=2 {
        let store = database.open();
        ask(&store).await;
        store.close();
        drop(store);
        database.run(&format!(
            "CREATE DATABASE {0}_again TEMPLATE {0}_old",
            database.name
        ));
        database.set_back();
        database.run(&format!(
            "ALTER DATABASE {0}_again RENAME TO {0}_old",
            database.name
        ));
        let store = database.open();
        assert_eq!(
            store
                .eras()
                .iter()
                .map(|era| era.number)
                .collect::<Vec<_>>(),
            [era]
        );
        assert_eq!(ask(&store).await.0, 10_000 * era + 1);
        store.close();
    }
}

/// A hub that knows little begins the era, and one that knows more comes later.
#[tokio::test(flavor = "multi_thread")]
async fn hub_that_knows_more_begins_another_era() {
    let Some(database) = Database::new() else {
        return;
    };
    let other = tempfile::tempdir().expect("a directory");
    let other = Home::at(&other.path().join("home")).expect("a home");
    other.ensure().expect("a home");
    let store = database.open_in(&other);
    ask(&store).await;
    store.close();
    drop(store);
    database.copy();
    let store = database.open_in(&other);
    ask(&store).await;
    store.close();
    drop(store);
    let store = database.open();
    let raised = store.write(|tx| {
        Ok(tx.connection().execute(
            "UPDATE sqlite_sequence SET seq = 35000 WHERE name = 'requests'",
            [],
        )?)
    });
    raised.await.expect("raised");
    assert_eq!(ask(&store).await.0, 35_001);
    store.close();
    drop(store);
    database.set_back();
    let store = database.open_in(&other);
    assert_eq!((store.eras().len(), ask(&store).await.0), (1, 10_001));
    store.close();
    drop(store);
    let store = database.open();
    assert_eq!((store.eras().len(), ask(&store).await.0), (2, 50_001));
    store.close();
    drop(store);
    for home in [&other, &database.home] {
        let store = database.open_in(home);
        assert_eq!(
            store.eras().len(),
            2,
            "all that is known is taken into account"
        );
        store.close();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_back_under_an_open_store() {
    let Some(database) = Database::new() else {
        return;
    };
    let store = database.open();
    ask(&store).await;
    store.close();
    drop(store);
    database.copy();
    let store = database.open();
    ask(&store).await;
    let read = store.read(last_seq).expect("a position");
    database.set_back();
    // Nothing is written, and nothing is read that could be taken for the newest state.
    let written = store
        .write(|tx| tx.dispatch(&new_run(&Principal::Person, None)))
        .await;
    assert!(written.is_err(), "{written:?}");
    assert!(store.read(last_seq).map_or(true, |found| found == read));
    tokio::time::timeout(Duration::from_secs(60), store.gone_back())
        .await
        .expect("it is noticed");
    store.abandon();
    drop(store);
    let store = database.open();
    assert_eq!((store.eras().len(), ask(&store).await.0), (1, 10_001));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_hub_learns_it_from_a_runner() {
    let Some(database) = Database::new() else {
        return;
    };
    let store = database.open();
    ask(&store).await;
    store.close();
    drop(store);
    database.copy();
    let store = database.open();
    let before = store.statement_for_runner().expect("a statement");
    ask(&store).await;
    let told = store.statement_for_runner().expect("a statement");
    store.close();
    drop(store);
    database.set_back();
    // A hub that has never used the store does not notice it, and gives out numbers again.
    let dir = tempfile::tempdir().expect("a directory");
    let other = Home::at(&dir.path().join("home")).expect("a home");
    other.ensure().expect("a home");
    let store = database.open_in(&other);
    assert!(store.eras().is_empty() && ask(&store).await.0 == 2);
    let noticed =
        |store: &Store| futures::FutureExt::now_or_never(Box::pin(store.gone_back())).is_some();
    for harmless in ["", "x.y", &told.replace("requests", "request5")] {
        store.compare_statement(harmless).expect("compared");
        assert!(!noticed(&store), "{harmless}");
    }
    let own = store.statement_for_runner().expect("a statement");
    store.compare_statement(&own).expect("compared");
    assert!(!noticed(&store));
    store.compare_statement(&told).expect("compared");
    assert!(noticed(&store));
    store.abandon();
    drop(store);
    let store = database.open_in(&other);
    assert_eq!((store.eras().len(), ask(&store).await.0), (1, 10_001));
    // What was said in the era before, and is missing too, counts no more.
    for old in [before, told] {
        store.compare_statement(&old).expect("compared");
    }
    assert!(!noticed(&store));
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_of_a_database_that_was_set_back() {
    let Some(database) = Database::new() else {
        return;
    };
    let say = |store: &Store, chat, text: &str| {
        let (entry, store) = (new_entry(text), store.clone());
        async move {
            store
                .write(move |tx| tx.add_entry(chat, &entry))
                .await
                .expect("said")
                .seq
        }
    };
    let store = database.open();
    let chat = store
        .write(|tx| tx.start_chat(&new_chat()))
        .await
        .expect("a chat")
        .id;
    let empty = store
        .write(|tx| tx.start_chat(&new_chat()))
        .await
        .expect("a chat")
        .id;
    for seq in 1..=3 {
        assert_eq!(say(&store, chat, "kept").await, seq);
    }
    store.close();
    drop(store);
    database.copy();
    let store = database.open();
    assert_eq!(say(&store, chat, "lost").await, 4);
    store.close();
    drop(store);
    database.set_back();

    let store = database.open();
    let known = |store: &Store| {
        store
            .read(|connection| chat_by_id(connection, chat))
            .expect("read")
            .expect("a chat")
    };
    let after = |store: &Store, seq| {
        store
            .read(|connection| position_in_chat(connection, store.eras(), &known(store), seq))
            .expect("a position")
    };
    assert_eq!(
        after(&store, 3),
        Position {
            after: 3,
            is_reset: false
        }
    );
    assert_eq!(
        after(&store, 4),
        Position {
            after: 3,
            is_reset: true
        }
    );
    let more = |store: &Store, seq| {
        store
            .read(|connection| entries_beyond(connection, store.eras(), &known(store), seq))
            .expect("a count")
    };
    assert_eq!((more(&store, 0), more(&store, 3)), (3, 0));
    let seq = say(&store, chat, "new").await;
    assert!(seq > 9_000, "{seq}");
    assert_eq!(
        after(&store, seq),
        Position {
            after: seq,
            is_reset: false
        }
    );
    assert_eq!((after(&store, 4).after, more(&store, 3)), (3, 1));
    assert!(
        say(&store, empty, "first").await > 9_000,
        "messages of a chat that is empty now may be lost, too"
    );
    assert!(
        store
            .read(|connection| changes_of(connection, chat))
            .expect("read")
            > 9_000
    );
    assert_eq!(
        store
            .read(|connection| stats_of(connection, Some(chat)))
            .expect("read")
            .entries,
        4
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_of_a_store_is_another_one() {
    let (Some(database), Some(other)) = (Database::new(), Database::new()) else {
        return;
    };
    let store = database.open();
    ask(&store).await;
    store.close();
    drop(store);
    copy(
        &StoreLocation::Postgres(database.address.clone()),
        &StoreLocation::Postgres(other.address.clone()),
        &mut |_| {},
    )
    .expect("copied");
    let store = database.open();
    ask(&store).await;
    store.close();
    drop(store);
    // The home of the one uses the other, which was never ahead.
    let store = other.open_in(&database.home);
    assert!(store.eras().is_empty() && ask(&store).await.0 == 2);
}
