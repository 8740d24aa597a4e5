//! Calls: keys, batches, commits and wake-ups.

use crate::clock;
use crate::store::testing::fixture::{answer, denied, fixture, new_run, question, random};
use crate::store::*;
use adjutant_core::{Denied, Principal, RequestId};

#[tokio::test]
async fn same_key_has_one_effect_and_rejects_another_body() {
    let fixture = fixture();
    let who = Principal::Person;
    let dispatch = |body: &'static [u8]| {
        let (key, new, who) = (
            Key::new("k", "dispatch", body),
            new_run(&who, None),
            who.clone(),
        );
        fixture
            .store
            .write(move |tx| tx.once(&who, Some(&key), |tx| Ok(tx.dispatch(&new)?.name)))
    };
    let first = dispatch(b"one").await.expect("first");
    assert_eq!(dispatch(b"one").await.expect("again"), first);
    assert_eq!(
        denied(dispatch(b"two").await.expect_err("refused")),
        Denied::KeyReused
    );
    let runs = fixture
        .store
        .read(|connection| runs_newest(connection, None, true, 10))
        .expect("runs");
    assert_eq!(runs.runs.len(), 1);
    // Another principal's key is another key.
    let other = Principal::Client(adjutant_core::ClientName::parse("x").expect("a name"));
    let (key, new) = (Key::new("k", "dispatch", b"one"), new_run(&other, None));
    let theirs = fixture
        .store
        .write(move |tx| tx.once(&other, Some(&key), |tx| Ok(tx.dispatch(&new)?.name)))
        .await
        .expect("theirs");
    assert_ne!(theirs, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_call_leaves_nothing_in_its_batch() {
    let fixture = std::sync::Arc::new(fixture());
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..200_u32 {
        let fixture = std::sync::Arc::clone(&fixture);
        calls.spawn(async move {
            let new = new_run(&Principal::Person, None);
            fixture
                .store
                .write(move |tx| {
                    let run = tx.dispatch(&new)?;
                    match n % 4 {
                        1 => Err(Denied::OwnQuestion.into()),
                        2 => panic!("a bug in one call"),
                        _ => Ok(run.name),
                    }
                })
                .await
        });
    }
    let kept: Vec<_> = calls
        .join_all()
        .await
        .into_iter()
        .filter_map(Result::ok)
        .collect();
    assert_eq!(kept.len(), 100);
    let mut stored: Vec<_> = fixture
        .store
        .read(|connection| runs_newest(connection, None, true, 1_000))
        .expect("runs")
        .runs
        .into_iter()
        .map(|run| run.name)
        .collect();
    stored.sort();
    let mut kept = kept;
    kept.sort();
    assert_eq!(stored, kept);
}

/// Concurrent calls each get their own result exactly once, whichever thread commits them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_call_is_committed_once_by_any_thread() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let mut calls = tokio::task::JoinSet::new();
    for lane in 0..16_i64 {
        let (store, run) = (fixture.store.clone(), run.clone());
        calls.spawn(async move {
            let mut seen = Vec::new();
            for round in 0..20_i64 {
                let (run, id) = (run.clone(), RequestId::new(clock::now(), random()));
                let text = format!("{lane} {round}");
                let sent = store.write(move |tx| {
                    let sent = tx.send_message(&run, &Principal::Person, id, &text)?;
                    if round % 5 == 4 {
                        Err(StoreError::Closed)
                    } else {
                        Ok(sent)
                    }
                });
                match sent.await {
                    Ok(sent) => seen.push(sent.text),
                    Err(error) => assert!(round % 5 == 4, "{error}"),
                }
            }
            seen
        });
    }
    let mut acknowledged: Vec<String> = calls.join_all().await.concat();
    fixture.store.close();
    let reopened = Store::open_at(&fixture.home, fixture.place.clone()).expect("reopened");
    let mut stored: Vec<String> = reopened
        .read(|connection| {
            let mut texts = connection.prepare_cached("SELECT text FROM messages")?;
            Ok(texts.read_rows([])?)
        })
        .expect("a store");
    acknowledged.sort();
    stored.sort();
    assert_eq!((acknowledged.len(), acknowledged), (16 * 16, stored));
}

#[tokio::test]
async fn commit_wakes_only_its_waiters() {
    let fixture = fixture();
    let (one, other) = (
        fixture.running(&Principal::Person).await,
        fixture.running(&Principal::Person).await,
    );
    let wake_ups = fixture.store.wake_ups();
    let hears = wake_ups.subscribe(vec![Topic::Run(one.id)]);
    let silent = wake_ups.subscribe(vec![Topic::Run(other.id)]);
    fixture
        .ask(one.id, question(false, 60_000, None))
        .await
        .expect("asked");
    hears.wait().await;
    assert!(futures::FutureExt::now_or_never(silent.wait()).is_none());
}

#[tokio::test]
async fn wake_up_carries_the_final_answer() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture
        .ask(run.id, question(true, 60_000, None))
        .await
        .expect("asked");
    let waits = fixture
        .store
        .wake_ups()
        .subscribe(vec![Topic::Answer(run.id, asked.id)]);
    // Neither a refusal nor another event passes an answer to the waiting call.
    let id = asked.id;
    let refused = fixture.store.write(move |tx| {
        let request = request_by_id(tx.connection(), id)?.expect("a request");
        tx.answer_waiting_call(&request, answer("a"))?;
        Err::<(), _>(StoreError::Closed)
    });
    assert!(refused.await.is_err() && waits.settled().is_none());
    assert!(futures::FutureExt::now_or_never(waits.wait()).is_none());
    let settled = fixture
        .answer_waiting_call(asked.id, answer("b"))
        .await
        .expect("answered");
    waits.wait().await;
    let handed = waits.settled().expect("handed over");
    let stored = fixture
        .store
        .read(|connection| request_by_id(connection, asked.id))
        .expect("a store")
        .expect("a request");
    assert_eq!(handed.state, settled.state);
    assert_eq!(
        format!("{handed:?}"),
        format!("{stored:?}"),
        "nothing that a second read would show is missing"
    );
    // A later call reads the answer from the store.
    assert!(
        fixture
            .store
            .wake_ups()
            .subscribe(vec![Topic::Answer(run.id, asked.id)])
            .settled()
            .is_none()
    );
}

#[tokio::test]
async fn stored_wait_ends_once() {
    let fixture = fixture();
    let id = u64::from_ne_bytes(random()).to_string();
    let now = clock::now();
    let task = Task {
        id: id.clone(),
        principal: "person".to_owned(),
        wait: "{}".to_owned(),
        status: "working".to_owned(),
        result: None,
        created_at: now,
        updated_at: now,
        ttl_ms: 60_000,
        due_at: clock::steady().plus_ms(60_000),
    };
    fixture
        .store
        .write(move |tx| tx.start_task(&task))
        .await
        .expect("kept");
    let end = |status: &'static str, result: Option<&'static str>| {
        let id = id.clone();
        fixture
            .store
            .write(move |tx| tx.end_task(&id, status, result))
    };
    assert!(end("completed", Some("{}")).await.expect("ended"));
    assert!(!end("cancelled", None).await.expect("too late"));
    let stored = fixture
        .store
        .read(|connection| task_by_id(connection, &id))
        .expect("a store")
        .expect("a task");
    assert_eq!(
        (stored.status.as_str(), stored.result.as_deref()),
        ("completed", Some("{}"))
    );
}
