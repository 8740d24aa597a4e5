//! Questions and approvals.

use crate::clock;
use crate::store::testing::fixture::{Fixture, answer, denied, ended, fixture, question, random};
use crate::store::*;
use adjutant_core::{
    AttemptNo, Decision, Denied, Principal, RequestEvent, RequestId, RequestNo, RequestState,
    Subject,
};

#[tokio::test]
async fn question_asked_answered_and_read_is_recorded() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture
        .ask(run.id, question(true, 60_000, None))
        .await
        .expect("asked");
    let now = fixture.run(run.id);
    assert_eq!((now.pending, now.blocking_pending, now.unread), (1, 1, 0));
    fixture
        .advance_request(asked.id, answer("a"))
        .await
        .expect("answered");
    let now = fixture.run(run.id);
    assert_eq!((now.pending, now.blocking_pending, now.unread), (0, 0, 1));
    let read = fixture
        .advance_request(asked.id, RequestEvent::Retrieve)
        .await
        .expect("read");
    assert_eq!(
        read.state.answer().map(|answer| answer.decision.to_text()),
        Some("a".to_owned())
    );
    let again = fixture
        .advance_request(asked.id, RequestEvent::Retrieve)
        .await
        .expect("read again");
    assert_eq!(again.state, read.state, "the answer stays readable");
    let stored = fixture
        .store
        .read(|connection| request_by_no(connection, asked.no))
        .expect("a store")
        .expect("a request");
    assert_eq!(stored.state, read.state);
    assert_eq!(
        (stored.options, stored.context.as_deref()),
        (vec!["a".to_owned(), "b".to_owned()], Some("both are there"))
    );
    fixture.advance(run.id, ended(0)).await.expect("ended");
    let expected = [
        "run.queued",
        "run.starting",
        "run.started",
        "request.asked",
        "request.answered",
        "request.retrieved",
        "run.finished",
    ];
    assert_eq!(fixture.kinds(run.id), expected);
}

#[tokio::test]
async fn questions_asked_together_form_one_group() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let alone = fixture
        .ask(run.id, question(true, 60_000, None))
        .await
        .expect("asked");
    let requests = [
        question(true, 60_000, None),
        question(false, 60_000, None),
        question(true, 60_000, None),
    ];
    let asked = fixture
        .store
        .write(move |tx| tx.ask_together(&tx.run(run.id)?, &requests))
        .await
        .expect("asked");
    let stored = fixture
        .store
        .read(|connection| requests_together(connection, &asked[1]))
        .expect("a store");
    let first = alone.no.0 + 1;
    for (place, (asked, stored)) in (1..).zip(asked.iter().zip(&stored)) {
        assert_eq!(
            asked.group,
            Some(Group {
                first: RequestNo(first),
                place,
                size: 3
            })
        );
        assert_eq!((stored.id, stored.group), (asked.id, asked.group));
    }
    assert_eq!((stored.len(), alone.group), (3, None));
    let now = fixture.run(run.id);
    assert_eq!((now.pending, now.blocking_pending), (4, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_answers_is_accepted() {
    let fixture = std::sync::Arc::new(fixture());
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture
        .ask(run.id, question(true, 60_000, None))
        .await
        .expect("asked");
    let mut tries = tokio::task::JoinSet::new();
    for n in 0..64 {
        let (fixture, id) = (std::sync::Arc::clone(&fixture), asked.id);
        tries.spawn(async move { fixture.advance_request(id, answer(&n.to_string())).await });
    }
    let results = tries.join_all().await;
    let won: Vec<_> = results
        .iter()
        .filter_map(|result| result.as_ref().ok())
        .collect();
    assert_eq!(won.len(), 1);
    let stored = fixture
        .store
        .read(|connection| request_by_id(connection, asked.id))
        .expect("a store")
        .expect("a request");
    assert_eq!(stored.state, won[0].state);
}

#[tokio::test]
async fn deadline_applies_the_default_or_expires() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let with = fixture
        .ask(run.id, question(true, -1, Some("b")))
        .await
        .expect("asked");
    let without = fixture
        .ask(run.id, question(true, -1, None))
        .await
        .expect("asked");
    let later = fixture
        .ask(run.id, question(false, 60_000, None))
        .await
        .expect("asked");
    assert_eq!(
        denied(
            fixture
                .advance_request(with.id, answer("late"))
                .await
                .expect_err("too late")
        ),
        Denied::Expired
    );
    assert_eq!(
        fixture
            .store
            .write(|tx| tx.apply_request_deadlines())
            .await
            .expect("settled")
            .len(),
        2
    );
    let state = |id| {
        fixture
            .store
            .read(|connection| request_by_id(connection, id))
            .expect("a store")
            .expect("a request")
            .state
    };
    assert_eq!(
        state(with.id)
            .answer()
            .map(|answer| (answer.decision.to_text(), answer.by.to_string())),
        Some(("b".to_owned(), "default".to_owned()))
    );
    assert!(matches!(state(without.id), RequestState::Expired { .. }));
    assert_eq!(state(later.id), RequestState::Pending);
    let next = fixture.store.read(next_until).expect("a store");
    assert_eq!(next, Some(later.expires_at));
}

fn approval() -> NewRequest {
    let subject = Subject::Approval {
        preview: Some("- a\n+ b".to_owned()),
        risk: None,
        operation: Box::default(),
    };
    NewRequest {
        subject,
        question: "drop it".to_owned(),
        options: Vec::new(),
        ..question(true, 60_000, None)
    }
}

fn decide(decision: Decision) -> RequestEvent {
    RequestEvent::Answer {
        by: Principal::Person,
        decision,
    }
}

fn no(reason: &str) -> RequestEvent {
    decide(Decision::Denied {
        reason: reason.to_owned(),
    })
}

#[tokio::test]
async fn approval_is_decided_once_and_revocable_until_used() {
    let fixture = fixture();
    let run = fixture.running(&Principal::Person).await;
    let revoked = fixture.ask(run.id, approval()).await.expect("asked");
    assert!(matches!(
        denied(
            fixture
                .advance_request(revoked.id, answer("yes"))
                .await
                .expect_err("an approval needs a decision")
        ),
        Denied::Unfitting { .. }
    ));
    fixture
        .advance_request(revoked.id, decide(Decision::approved()))
        .await
        .expect("approved");
    let read = fixture
        .advance_request(revoked.id, no("wait"))
        .await
        .expect("a revocation");
    assert_eq!(
        read.state.answer().map(|answer| answer.decision.to_text()),
        Some("denied: wait".to_owned())
    );
    assert!(matches!(
        denied(
            fixture
                .advance_request(revoked.id, decide(Decision::approved()))
                .await
                .expect_err("a denial is final")
        ),
        Denied::AnsweredBy(_)
    ));
    let run = fixture.run(run.id);
    assert_eq!(
        (run.pending, run.blocking_pending, run.unread),
        (0, 0, 1),
        "a revocation is not a second answer"
    );

    let used = fixture.ask(run.id, approval()).await.expect("asked");
    fixture
        .advance_request(used.id, decide(Decision::approved()))
        .await
        .expect("approved");
    fixture
        .advance_request(used.id, RequestEvent::Retrieve)
        .await
        .expect("read");
    assert_eq!(
        denied(
            fixture
                .advance_request(used.id, no("wait"))
                .await
                .expect_err("too late")
        ),
        Denied::Used
    );

    let reported = fixture.ask(run.id, approval()).await.expect("asked");
    let reported = fixture
        .advance_request(reported.id, decide(Decision::approved()))
        .await
        .expect("approved");
    let undelivered = |fixture: &Fixture| {
        fixture
            .store
            .read(|connection| undelivered_of(connection, run.id, 10))
            .expect("a store")
    };
    assert_eq!(
        undelivered(&fixture).len(),
        2,
        "what was read is not reported again"
    );
    fixture
        .store
        .write({
            let reported = reported.clone();
            move |tx| tx.record_receipt(&reported, AttemptNo(2))
        })
        .await
        .expect("told");
    assert_eq!(
        denied(
            fixture
                .advance_request(reported.id, no("wait"))
                .await
                .expect_err("it is in a prompt")
        ),
        Denied::Used
    );
    assert_eq!(
        undelivered(&fixture).len(),
        2,
        "the attempt that got them has not started yet"
    );
}

#[tokio::test]
async fn answer_with_queued_messages_has_to_be_read() {
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
    let id = RequestId::new(clock::now(), random());
    fixture
        .store
        .write(move |tx| tx.send_message(&run, &Principal::Person, id, "go left"))
        .await
        .expect("sent");
    fixture
        .answer_waiting_call(asked.id, answer("b"))
        .await
        .expect("answered");
    waits.wait().await;
    assert!(
        waits.settled().is_none(),
        "the message would not be delivered"
    );
}
