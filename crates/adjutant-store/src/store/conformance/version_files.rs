//! Writes the files of `fixtures`: a store of the newest version for each engine, as SQL.

use super::runs::isolated;
use crate::clock;
use crate::store::credentials::DispatchEnv;
use crate::store::db::{Value, postgres, sqlite, tables};
use crate::store::migrations::{MIGRATIONS, newest};
use crate::store::open::APPLICATION_ID;
use crate::store::search::tests::chat_of;
use crate::store::testing::fixture::{KEEP, answer, ended, fixture, new_run, question, random};
use crate::store::*;
use adjutant_core::chat::Participant;
use adjutant_core::token::{TokenIdentity, TokenRole};
use adjutant_core::{AgentName, Budget, PoolName, Principal, RequestEvent, RequestId, RunEvent};
use std::fmt::Write as _;
use std::path::Path;

/// Tables whose rows each engine or the schema makes, and the index of chats and requests, which the
/// next search makes again.
const LEFT_OUT: [&str; 9] = [
    "hub",
    "leads",
    "hubs",
    "sqlite_sequence",
    "chat_fts",
    "chat_seen",
    "search_docs",
    "search_fts",
    "search_seen",
];

#[tokio::test]
#[ignore = "writes the stores of this version"]
async fn write_the_stores_of_this_version() {
    let file = fixture();
    fill(&file.store).await;
    let version = newest(&MIGRATIONS);
    let sqlite = format!(
        "PRAGMA auto_vacuum = INCREMENTAL;\nPRAGMA journal_mode = WAL;\nBEGIN;\n{}{}PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {version};\nCOMMIT;\n",
        statements(sqlite::SCHEMA),
        rows(&file.store, |bytes| format!("x'{bytes}'"))
    );
    let numbered = "INSERT INTO sqlite_sequence (name, seq) VALUES";
    let postgres = format!(
        "BEGIN;\n{}{}{numbered}{};\nINSERT INTO hub (one, schema_version, epoch, transaction) VALUES (1, {version}, 0, 0);\nCOMMIT;\n",
        statements(postgres::open::SCHEMA),
        rows(&file.store, |bytes| format!("'\\x{bytes}'")),
        numbers(&file.store)
    );
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/fixtures");
    for (engine, text) in [("sqlite", sqlite), ("postgres", postgres)] {
        let path = dir.join(format!("version_{version}.{engine}.sql"));
        std::fs::write(path, text).expect("it can be written");
    }
}

/// Fills a store with runs, requests, messages, a chat, and some of the rest.
async fn fill(store: &Store) {
    let hook = (
        "https://example.org/hook".to_owned(),
        vec!["run.finished".to_owned()],
    );
    store
        .write(|tx| {
            tx.set_webhooks(&[hook])?;
            tx.add_token(&NewToken {
                name: "phone".to_owned(),
                hash: "00ff".to_owned(),
                identity: TokenIdentity::new(TokenRole::ReadOnly, None).expect("an identity"),
            })?;
            tx.set_pool(
                &PoolName::default(),
                Some(3),
                false,
                &Principal::Person,
                &[],
            )
        })
        .await
        .expect("settings");
    let start = |name: &'static str| {
        store.write(move |tx| {
            let budget = Budget {
                tokens: Some(1_000),
                ..Budget::default()
            };
            let new = NewRun {
                budget,
                ..new_run(&Principal::Person, Some(name))
            };
            let key = Key::new(name, "run", b"");
            let dispatched = tx.once(&Principal::Person, Some(&key), |tx| {
                tx.dispatch(&new).map(|run| run.id.to_string())
            })?;
            let run = adjutant_core::RunId::parse(&dispatched).expect("an id");
            let run = tx.run(run)?;
            let run = tx.claim(&run, b"hash", None, KEEP)?;
            let run = tx.advance(&run, RunEvent::Started, KEEP, "supervisor", "")?;
            let asked = tx.ask(&run, &question(true, 60_000, Some("a")))?;
            Ok((run, asked))
        })
    };
    let (run, asked) = start("ended").await.expect("a run");
    store
        .write(move |tx| {
            let asked = tx.advance_request(&asked, answer("b"))?;
            tx.advance_request(&asked, RequestEvent::Retrieve)?;
            let run = tx.run(run.id)?;
            tx.advance(&run, ended(0), KEEP, "supervisor", "")
        })
        .await
        .expect("it ends");
    let (run, _) = start("asking").await.expect("a run");
    store
        .write(move |tx| {
            let id = RequestId::new(clock::now(), random());
            tx.send_message(&run, &Principal::Person, id, "it's urgent")?;
            tx.dispatch(&isolated("queued"))
        })
        .await
        .expect("a queue");
    let chat = chat_of(
        store,
        vec![
            "remember the \u{6570}\u{636e}\u{5e93}".to_owned(),
            "second".to_owned(),
        ],
    )
    .await;
    store
        .write(move |tx| {
            let entry = entries_last(tx.connection(), chat, 1)?.remove(0);
            let entry = tx.revise_entry(&entry, "second, edited", None)?;
            tx.join_chat(chat, &Participant::Principal(Principal::Person), "person")?;
            let env = DispatchEnv::new([("PATH".to_owned(), "/bin".to_owned())].into(), None);
            tx.queue_turn(&NewTurn {
                chat,
                agent: AgentName::parse("echo").expect("a name"),
                is_summary: false,
                message: entry.id,
                hops: 0,
                cwd: "/tmp".to_owned(),
                env,
            })?;
            // The row names the boot of this machine.
            tx.connection().execute("DELETE FROM clock", [])?;
            Ok(())
        })
        .await
        .expect("a chat");
}

/// Returns the lines of a schema that are not comments.
fn statements(schema: &str) -> String {
    let lines = schema.lines().filter(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with("--")
    });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// Returns statements that insert all rows. `blob` writes bytes that are given in hexadecimal.
fn rows(store: &Store, blob: fn(&str) -> String) -> String {
    let literal = |value: Value| match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => value.to_string(),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Blob(bytes) => blob(
            &bytes
                .iter()
                .fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
        ),
    };
    let written = store.read(|connection| {
        let mut written = String::new();
        for table in tables().filter(|table| !LEFT_OUT.contains(table)) {
            let columns: Vec<String> = connection
                .columns(table)?
                .into_iter()
                .map(|column| column.name)
                .collect();
            let columns = columns.join(", ");
            connection.scan(
                &format!("SELECT {columns} FROM \"{table}\" ORDER BY 1"),
                |row| {
                    let values: Vec<String> = row.values()?.into_iter().map(literal).collect();
                    let values = values.join(", ");
                    _ = writeln!(
                        written,
                        "INSERT INTO \"{table}\" ({columns}) VALUES ({values});"
                    );
                    Ok(())
                },
            )?;
        }
        Ok(written)
    });
    written.expect("the rows")
}

/// Returns the last numbers of the tables that count them on a server.
fn numbers(store: &Store) -> String {
    let numbers = store.read(|connection| {
        let sql = "SELECT name, seq FROM sqlite_sequence UNION ALL SELECT 'keys', max(no) FROM keys ORDER BY 1";
        let mut statement = connection.prepare_cached(sql)?;
        let numbers: Vec<(String, i64)> = statement.read_rows([])?;
        let texts = numbers
            .into_iter()
            .map(|(name, seq)| format!(" ('{name}', {seq})"));
        Ok(texts.collect::<Vec<_>>().join(","))
    });
    numbers.expect("numbers")
}
