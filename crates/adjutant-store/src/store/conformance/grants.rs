//! Grants.

use crate::clock;
use crate::store::testing::fixture::{Fixture, fixture, question};
use crate::store::*;
use adjutant_core::policy::{GrantNo, GrantTerms};
use adjutant_core::{Principal, RequestNo, RunId};
use std::sync::Arc;

async fn grant(fixture: &Fixture, root: RunId, identity: &str, terms: GrantTerms) -> GrantNo {
    let new = NewGrant {
        root,
        identity: identity.to_owned(),
        what: "make".to_owned(),
        request: RequestNo(1),
        by: Principal::Person,
        terms,
    };
    fixture
        .store
        .write(move |tx| tx.add_grant(&new))
        .await
        .expect("granted")
}

#[tokio::test]
async fn grant_answers_its_operation_within_its_terms() {
    let fixture = fixture();
    let (run, other) = (
        fixture.running(&Principal::Person).await,
        fixture.running(&Principal::Person).await,
    );
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(
            fixture
                .ask(run.id, question(false, 60_000, None))
                .await
                .expect("asked")
                .id,
        );
    }
    let no = grant(
        &fixture,
        run.id,
        "make",
        GrantTerms {
            uses_max: Some(2),
            ..GrantTerms::default()
        },
    )
    .await;
    let past = GrantTerms {
        expires_at: Some(clock::steady()),
        ..GrantTerms::default()
    };
    grant(&fixture, run.id, "late", past).await;
    let use_for = async |root: RunId, identity: &'static str, place: usize| {
        let id = asked[place];
        fixture
            .store
            .write(move |tx| tx.use_grant_for(root, identity, id))
            .await
            .expect("a store")
    };
    assert_eq!(
        (
            use_for(run.id, "test", 0).await,
            use_for(other.id, "make", 0).await,
            use_for(run.id, "late", 0).await
        ),
        (None, None, None)
    );
    assert_eq!(
        (
            use_for(run.id, "make", 0).await,
            use_for(run.id, "make", 1).await,
            use_for(run.id, "make", 2).await
        ),
        (Some(no), Some(no), None)
    );
    let stored = fixture
        .store
        .read(|connection| grant_by_no(connection, no))
        .expect("a store")
        .expect("a grant");
    assert_eq!((stored.state.uses, stored.answered.len()), (2, 2));
    let open = grant(&fixture, run.id, "make", GrantTerms::default()).await;
    assert_eq!(
        use_for(run.id, "make", 2).await,
        Some(open),
        "another grant of the same"
    );
    let revoked = fixture
        .store
        .read(|connection| grant_by_no(connection, open))
        .expect("a store")
        .expect("a grant");
    let again = revoked.clone();
    assert!(
        fixture
            .store
            .write(move |tx| tx.revoke_grant(&revoked, &Principal::Person))
            .await
            .expect("a store")
    );
    assert!(
        !fixture
            .store
            .write(move |tx| tx.revoke_grant(&again, &Principal::Person))
            .await
            .expect("a store")
    );
    assert_eq!(
        use_for(run.id, "make", 3).await,
        None,
        "a revoked grant answers nothing"
    );
    let kinds = fixture.kinds(run.id);
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| kind.starts_with("grant."))
            .count(),
        4,
        "{kinds:?}"
    );
}

/// Makes 64 writers race for the only use of a grant, in each of `rounds`.
async fn race_for_last_uses(rounds: usize) {
    const AT_ONCE: usize = 50;
    let fixture = Arc::new(fixture());
    let run = fixture.running(&Principal::Person).await;
    let asked = fixture
        .ask(run.id, question(false, 60_000, None))
        .await
        .expect("asked")
        .id;
    for batch in 0..rounds.div_ceil(AT_ONCE) {
        let mut tries = tokio::task::JoinSet::new();
        for place in 0..AT_ONCE {
            let identity = format!("{batch}-{place}");
            grant(
                &fixture,
                run.id,
                &identity,
                GrantTerms {
                    uses_max: Some(1),
                    ..GrantTerms::default()
                },
            )
            .await;
            for _ in 0..64 {
                let (fixture, identity) = (Arc::clone(&fixture), identity.clone());
                tries.spawn(async move {
                    let used = fixture
                        .store
                        .write(move |tx| tx.use_grant_for(run.id, &identity, asked))
                        .await
                        .expect("a store");
                    (place, used.is_some())
                });
            }
        }
        let mut wins = [0; AT_ONCE];
        for (place, won) in tries.join_all().await {
            wins[place] += usize::from(won);
        }
        assert_eq!(wins, [1; AT_ONCE], "each last use goes to one request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn last_use_of_a_grant_goes_to_one_request() {
    race_for_last_uses(100).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: cargo test -- --ignored last_uses"]
async fn last_uses_of_ten_thousand_grants_go_to_one_request_each() {
    race_for_last_uses(10_000).await;
}
