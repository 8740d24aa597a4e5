//! Writes that nobody waits for: on a server, they are sent with a later statement.

use crate::store::testing::fixture::{Fixture, fixture, new_run};
use crate::store::*;
use adjutant_core::{EventKind, Principal, RunId};
use std::future::Future;
use std::sync::{Arc, Barrier};

const TRUST: &str = "INSERT INTO trusted (cwd, hash, by, at) VALUES (?1, 'h', 'person', 1)";

fn has(fixture: &Fixture, cwd: &str) -> bool {
    let sql = "SELECT 1 FROM trusted WHERE cwd = ?1";
    fixture
        .store
        .read(|connection| Ok(connection.prepare_cached(sql)?.exists([cwd])?))
        .expect("a look")
}

/// Runs calls in one transaction: they are queued while the writer is held.
async fn in_one_transaction<T: Send + 'static>(
    fixture: &Fixture,
    calls: Vec<impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let (held, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (store, inside, until) = (
        fixture.store.clone(),
        Arc::clone(&held),
        Arc::clone(&release),
    );
    let mut first = Box::pin(store.write(move |_| {
        inside.wait();
        until.wait();
        Ok(())
    }));
    // The first poll queues a call.
    assert!(futures::poll!(&mut first).is_pending());
    tokio::task::spawn_blocking(move || held.wait())
        .await
        .expect("held");
    let mut queued = Vec::new();
    for call in calls {
        let mut call = Box::pin(call);
        assert!(futures::poll!(&mut call).is_pending());
        queued.push(call);
    }
    tokio::task::spawn_blocking(move || release.wait())
        .await
        .expect("released");
    first.await.expect("written");
    futures::future::join_all(queued).await
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_write_that_is_not_waited_for_keeps_nothing_of_its_call() {
    let fixture = fixture();
    let twice = |tx: &mut Tx<'_>| {
        tx.connection().run(TRUST, ["/a"])?;
        Ok(tx.connection().run(TRUST, ["/a"])?)
    };
    let error = fixture
        .store
        .write(twice)
        .await
        .expect_err("a row cannot be there twice");
    assert!(
        matches!(error, StoreError::Sql(_)),
        "{error:?}: it is known that nothing was kept"
    );
    assert!(!has(&fixture, "/a"));
    fixture
        .store
        .write(|tx| Ok(tx.connection().run(TRUST, ["/a"])?))
        .await
        .expect("the next call is written");
    assert!(has(&fixture, "/a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_write_never_takes_an_acknowledged_one_with_it() {
    let fixture = fixture();
    // The row that one of the calls inserts twice; whether the calls read before they write;
    // whether the bad one refuses by itself.
    for (round, (reads, refuses)) in [(false, false), (true, false), (false, true), (true, true)]
        .into_iter()
        .enumerate()
    {
        let call = |name: &'static str| {
            let (store, cwd) = (fixture.store.clone(), format!("/{round}/{name}"));
            async move {
                let written = store.write(move |tx| {
                    if reads {
                        tx.prepare("SELECT 1 FROM trusted WHERE cwd = ?1")?
                            .exists([&cwd])?;
                    }
                    tx.connection().run(TRUST, [&cwd])?;
                    if name == "bad" {
                        tx.connection().run(TRUST, [&cwd])?;
                        if refuses {
                            return Err(StoreError::Corrupt("refused".to_owned()));
                        }
                    }
                    Ok(())
                });
                (name, written.await)
            }
        };
        let results =
            in_one_transaction(&fixture, vec![call("before"), call("bad"), call("after")]).await;
        for (name, result) in results {
            assert_eq!(
                result.is_ok(),
                has(&fixture, &format!("/{round}/{name}")),
                "{round} {name}: {result:?}"
            );
            assert!(name != "bad" || result.is_err(), "{round}");
        }
    }
}

/// Appends an event to a run, and refuses if wanted.
async fn appended(store: Store, run: RunId, refuses: bool) -> Result<i64, StoreError> {
    let append = move |tx: &mut Tx<'_>| {
        let seq = append_event(
            tx,
            EventKind::RunProgress,
            run,
            "person",
            None,
            "person",
            "",
        )?;
        if refuses {
            Err(StoreError::Corrupt("refused".to_owned()))
        } else {
            Ok(seq.0)
        }
    };
    store.write(append).await
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_go_on_after_refused_calls_and_a_new_session() {
    let mut fixture = fixture();
    let mut last = 0;
    for round in 0..3 {
        let run = fixture
            .store
            .write(|tx| Ok(tx.dispatch(&new_run(&Principal::Person, None))?.id))
            .await
            .expect("a run");
        let refused = [false, true, true, false, true];
        let calls = refused
            .into_iter()
            .map(|refuses| appended(fixture.store.clone(), run, refuses))
            .collect();
        let results = in_one_transaction(&fixture, calls).await;
        for (refuses, result) in refused.into_iter().zip(results) {
            assert_eq!(result.is_err(), refuses, "{round}: {result:?}");
            if let Ok(seq) = result {
                assert!(seq > last, "{round}: {seq} follows {last}");
                last = seq;
            }
        }
        // A whole transaction that is rolled back.
        assert!(appended(fixture.store.clone(), run, true).await.is_err());
        let found = fixture
            .store
            .read(|connection| Ok(last_seq(connection)?.0))
            .expect("the newest");
        assert!(
            found >= last,
            "{round}: the stored number {found} covers {last}"
        );
        fixture.store.close();
        fixture.store = Store::open_at(&fixture.home, fixture.place.clone()).expect("opened again");
        let next = appended(fixture.store.clone(), run, false)
            .await
            .expect("appended");
        assert!(next > last, "{round}: {next} follows {last}");
        last = next;
    }
}
