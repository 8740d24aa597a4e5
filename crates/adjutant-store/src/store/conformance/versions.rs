//! Versions of the schema: stores of released versions open, migrations take effect as a whole, and
//! other versions are refused.

use crate::config::{Home, PostgresAddress};
use crate::store::chats::revisions_of;
use crate::store::db;
use crate::store::migrations::Migration;
use crate::store::search::tests::person;
use crate::store::testing::address_of_this_run;
use crate::store::*;
use adjutant_core::{EventSeq, Outcome, Principal, RequestState, RunState};
use std::collections::BTreeSet;

/// A store of version 1 for each engine, which `version_files.rs` has written.
const VERSION_1: [&str; 2] = [
    include_str!("../fixtures/version_1.sqlite.sql"),
    include_str!("../fixtures/version_1.postgres.sql"),
];

/// A place for a store, on the engine of this run.
struct Site {
    home: Home,
    server: Option<PostgresAddress>,
    _dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join("home")).expect("a home");
        home.ensure().expect("a home");
        Self {
            home,
            server: address_of_this_run().map(|(address, _)| address),
            _dir: dir,
        }
    }

    /// A store of version 1.
    fn of_version_1() -> Self {
        let site = Self::new();
        let [sqlite, postgres] = VERSION_1;
        site.run(sqlite, postgres);
        site
    }

    /// Runs statements without the store.
    fn run(&self, sqlite: &str, postgres: &str) {
        match &self.server {
            Some(address) => db::postgres_batch(address, postgres),
            None => open::unmanaged(&self.home).execute_batch(sqlite),
        }
        .expect("it runs");
    }

    /// Migrates the store.
    fn migrate(&self, migrations: &[Migration]) -> Result<(), StoreError> {
        match &self.server {
            Some(address) => {
                db::postgres_prepare(address, migrations).map_err(StoreError::of_opening)
            }
            None => open::open(&self.home, migrations).map(drop),
        }
    }

    fn open(&self) -> Result<Store, StoreError> {
        let place = match &self.server {
            Some(address) => StoreLocation::Postgres(address.clone()),
            None => StoreLocation::Home(self.home.clone()),
        };
        Store::open_at(&self.home, place)
    }

    /// Returns the tables, columns, indexes, constraints and triggers of the store.
    fn schema(&self) -> BTreeSet<[String; 3]> {
        let (connection, sql) = match &self.server {
            Some(address) => (
                db::postgres_unmanaged(address).expect("a session"),
                "SELECT table_name::text, column_name::text, data_type || is_nullable || coalesce(column_default, '')
               FROM information_schema.columns WHERE table_schema = current_schema()
             UNION ALL SELECT 'index', indexname::text, indexdef FROM pg_indexes WHERE schemaname = current_schema()
             UNION ALL SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint
               WHERE connamespace = current_schema()::regnamespace
             UNION ALL SELECT 'trigger', tgname::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
             UNION ALL SELECT 'function', proname::text, prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace",
            ),
            None => (
                open::unmanaged(&self.home),
                "SELECT t.name, c.name, c.type || c.\"notnull\" || c.pk || coalesce(c.dflt_value, '')
               FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'
             UNION ALL SELECT type, name, sql FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL
             UNION ALL SELECT t.name, 'references', f.\"from\" || ' ' || f.\"table\" || ' ' || coalesce(f.\"to\", '') || ' ' || f.on_delete
               FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table'
             UNION ALL SELECT t.name, 'unique', group_concat(c.name)
               FROM sqlite_schema t JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) c
               WHERE t.type = 'table' AND i.origin = 'u' GROUP BY t.name, i.name
             UNION ALL SELECT name, 'kind', strict || ' ' || wr FROM pragma_table_list WHERE schema = 'main'
             UNION ALL SELECT name, 'checks', sql FROM sqlite_schema WHERE type = 'table'",
            ),
        };
        let mut statement = connection.prepare_cached(sql).expect("a statement");
        let rows: BTreeSet<(String, String, String)> = statement.read_rows([]).expect("texts");
        let with_checks = rows.into_iter().flat_map(|(table, name, text)| {
            let texts = match (&self.server, name.as_str()) {
                (None, "checks") => checks(&text),
                _ => vec![text],
            };
            texts
                .into_iter()
                .map(move |text| [table.clone(), name.clone(), text])
        });
        with_checks.collect()
    }
}

/// Returns the conditions in a statement that creates a table of SQLite, which only has them there.
fn checks(sql: &str) -> Vec<String> {
    let code = sql
        .lines()
        .map(|line| line.split("--").next().unwrap_or_default());
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    let sql = words.join(" ");
    let ends = |check: &str| {
        let mut depth = 0;
        check.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        })
    };
    sql.match_indices("CHECK (")
        .map(|(at, _)| sql[at..ends(&sql[at..]).map_or(sql.len(), |end| at + end + 1)].to_owned())
        .collect()
}

#[test]
fn conditions_of_a_table_are_found() {
    let sql =
        "CREATE TABLE a (b TEXT CHECK (b IN ('x',\n  'y')), -- CHECK (c)\n CHECK (length(b) > 0))";
    assert_eq!(
        checks(sql),
        ["CHECK (b IN ('x', 'y'))", "CHECK (length(b) > 0)"]
    );
}

/// The first migration adds a column.
const ADDS_A_COLUMN: &str = "ALTER TABLE runs ADD COLUMN mood TEXT; UPDATE runs SET mood = 'calm';";

#[test]
fn store_of_version_1_opens() {
    let site = Site::of_version_1();
    for _ in 0..2 {
        let store = site.open().expect("it opens");
        let read = |name: &str| {
            store
                .read(|connection| run_by_ref(connection, name, None))
                .expect("a run")
        };
        let (ended, asking, queued) = (read("ended"), read("asking"), read("queued"));
        assert_eq!(ended.state, RunState::Finished(Outcome::Succeeded));
        assert_eq!((asking.pending, asking.state), (1, RunState::Running));
        assert_eq!(queued.state, RunState::Queued);
        store
            .read(|connection| {
                let requests = requests_of(connection, asking.id, true, 10)?;
                assert!(matches!(requests[0].state, RequestState::Pending));
                let requests = requests_of(connection, ended.id, true, 10)?;
                assert!(matches!(requests[0].state, RequestState::Retrieved { .. }));
                let events = events_after(
                    connection,
                    &Principal::Person,
                    Some(ended.id),
                    EventSeq(0),
                    100,
                )?;
                assert_eq!(
                    events.last().map(|event| event.kind.word()),
                    Some("run.finished")
                );
                assert_eq!(
                    run_input(connection, queued.id)?.agent.name.as_str(),
                    "echo"
                );
                assert!(workspace_of(connection, queued.id)?.is_some());
                assert_eq!(queued_messages(connection, asking.id)?.len(), 1);
                assert_eq!(tokens(connection)?.len(), 1);
                let chat = chats_newest(connection, &person(), None, 10)?.remove(0);
                let entries = entries_last(connection, chat.id, 10)?;
                let texts: Vec<&str> = entries.iter().map(|entry| entry.text.as_str()).collect();
                assert_eq!(
                    texts,
                    ["remember the \u{6570}\u{636e}\u{5e93}", "second, edited"]
                );
                assert_eq!(revisions_of(connection, entries[1].id)?.len(), 1);
                assert_eq!(open_turns(connection, chat.id)?, 1);
                Ok(())
            })
            .expect("it can be read");
        store.close();
    }
}

#[tokio::test]
async fn entries_of_version_1_are_found() {
    let site = Site::of_version_1();
    let store = site.open().expect("it opens");
    store.write(|tx| tx.index_entries()).await.expect("indexed");
    for (words, count) in [("\u{6570}\u{636e}", 1), ("edited", 1), ("nowhere", 0)] {
        let query = Query {
            text: words.to_owned(),
            limit: 10,
            ..Query::default()
        };
        let found = store
            .read(|connection| search(connection, &person(), &query))
            .expect("searched");
        assert_eq!(found.0.len(), count, "{words}");
    }
}

#[test]
fn migrated_store_has_the_schema_of_a_new_one() {
    let (old, new) = (Site::of_version_1(), Site::new());
    for site in [&old, &new] {
        site.open().expect("it opens").close();
    }
    let (old, new) = (old.schema(), new.schema());
    assert!(new.len() > 400, "{}", new.len());
    let differences: Vec<_> = old.symmetric_difference(&new).collect();
    assert!(
        differences.is_empty(),
        "schema.sql has changed, so a store of version 1 needs a migration (CONTRIBUTING.md): {differences:?}"
    );
}

#[test]
fn migration_makes_the_next_version_once() {
    let site = Site::of_version_1();
    let migrations = [Migration {
        sqlite: ADDS_A_COLUMN,
        postgres: ADDS_A_COLUMN,
    }];
    for _ in 0..2 {
        site.migrate(&migrations).expect("it is migrated");
    }
    let is_added = |site: &Site| site.schema().iter().any(|[_, column, _]| column == "mood");
    assert!(is_added(&site));
    // This binary knows no version 2.
    let error = site.open().expect_err("refused").to_string();
    assert!(
        error.contains("newer version of adj (schema 2, this one knows 1): use that version"),
        "{error}"
    );
}

#[test]
fn failed_migration_changes_nothing() {
    let site = Site::of_version_1();
    let before = site.schema();
    let fails = format!("{ADDS_A_COLUMN} UPDATE runs SET no_such_column = 1;");
    let fails: &'static str = fails.leak();
    site.migrate(&[Migration {
        sqlite: fails,
        postgres: fails,
    }])
    .expect_err("it fails");
    assert_eq!(site.schema(), before);
    // Its version has not changed either.
    site.open().expect("it opens").close();
}

#[test]
fn store_of_an_unreleased_version_is_refused_unchanged() {
    let site = Site::new();
    site.run(
        "PRAGMA application_id = 0x61646a74; CREATE TABLE runs (a); PRAGMA user_version = 1;",
        "CREATE TABLE hub (version BIGINT); CREATE TABLE runs (a BIGINT); CREATE TABLE events (a BIGINT);",
    );
    let before = site.schema();
    let error = site.open().expect_err("refused").to_string();
    assert!(
        error.contains("unreleased version of adj") && error.contains("use another"),
        "{error}"
    );
    assert_eq!(site.schema(), before);
}
