//! The store's file: reopening, foreign files, closing.

use crate::store::testing::fixture::fixture;
use crate::store::*;
use adjutant_core::{AttemptNo, Principal, RunState};
use std::sync::atomic::{AtomicU8, Ordering};

#[tokio::test]
async fn acknowledged_writes_survive_reopening() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    fixture.store.close();
    let reopened = Store::open_at(&fixture.home, fixture.place.clone()).expect("reopened");
    let found = reopened
        .read(|connection| run_by_id(connection, run.id))
        .expect("a store")
        .expect("a run");
    assert_eq!(
        (found.state, found.attempt),
        (RunState::Running, AttemptNo(1))
    );
    let attempt = reopened
        .read(|connection| attempt_row(connection, run.id, AttemptNo(1)))
        .expect("a store")
        .expect("an attempt");
    assert_eq!(attempt.token_hash, b"hash");
    assert!(matches!(
        fixture.store.write(|tx| tx.forget_tasks()).await,
        Err(StoreError::Closed)
    ));
}

/// Opens foreign files, and files of a newer version.
#[tokio::test]
async fn foreign_or_newer_file_is_refused_unchanged() {
    static ROUND: AtomicU8 = AtomicU8::new(0);
    for (sql, expect) in [
        ("CREATE TABLE theirs (a);", "is not a store"),
        (
            "PRAGMA application_id = 0x61646a31; CREATE TABLE runs (a); PRAGMA user_version = 99;",
            "newer version",
        ),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(
            &dir.path()
                .join(ROUND.fetch_add(1, Ordering::SeqCst).to_string()),
        )
        .expect("a home");
        home.ensure().expect("a home");
        rusqlite::Connection::open(home.database())
            .expect("a file")
            .execute_batch(sql)
            .expect("its content");
        let error = Store::open(&home).expect_err("refused");
        assert!(error.to_string().contains(expect), "{error}");
    }
}

#[tokio::test]
async fn closed_store_refuses_reads_and_waits() {
    let fixture = fixture();
    let readers = readers_max(&fixture.store.0.access);
    let reading = std::sync::Barrier::new(readers + 1);
    let closed = std::sync::Barrier::new(readers + 1);
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                let read = fixture.store.read(|_| {
                    reading.wait();
                    closed.wait();
                    Ok(())
                });
                read.expect("a read in progress completes");
            });
        }
        reading.wait();
        let waiting = scope.spawn(|| fixture.store.read(|_| Ok(())));
        fixture.store.close();
        assert!(matches!(
            waiting.join().expect("it returns"),
            Err(StoreError::Closed)
        ));
        closed.wait();
    });
    assert!(matches!(
        fixture.store.read(|_| Ok(())),
        Err(StoreError::Closed)
    ));
    assert!(matches!(
        fixture.store.write(|_| Ok(())).await,
        Err(StoreError::Closed)
    ));
}
