//! Pools, the order of starts, and runs that start after others.

use crate::clock;
use crate::store::queue::{start_after, statements_of_head};
use crate::store::runs::statements_of_queued;
use crate::store::testing::fixture::{Fixture, KEEP, denied, ended, fixture, new_run, question};
use crate::store::*;
use adjutant_core::pool::{AfterEnd, AfterFailed, AfterState, PoolTarget, QueuePosition};
use adjutant_core::port::PORTS_FIRST;
use adjutant_core::signal::{Independence, Priority};
use adjutant_core::tree::Rank;
use adjutant_core::{
    ClientName, Denied, Outcome, PoolName, Principal, RunEvent, RunId, RunState, StopReason,
};
use std::collections::BTreeMap;

fn pool(name: &str) -> PoolName {
    PoolName::parse(name).expect("a name")
}

fn client(name: &str) -> Principal {
    Principal::Client(ClientName::parse(name).expect("a name"))
}

fn configured(pools: &[(&str, u64)]) -> BTreeMap<PoolName, ConfiguredPool> {
    pools
        .iter()
        .map(|(name, slots)| {
            (
                pool(name),
                ConfiguredPool {
                    slots: *slots,
                    keep_slot: true,
                    place: PoolTarget::Here,
                },
            )
        })
        .collect()
}

impl Fixture {
    async fn queue(&self, new: NewRun) -> Result<Run, StoreError> {
        self.store
            .write_checked(move |tx| {
                tx.may_refuse_late()?;
                tx.dispatch(&new)
            })
            .await
    }

    /// Claims the run that starts next.
    async fn claim(&self, pools: &[(&str, u64)], live_max: u64) -> Option<Run> {
        let configured = configured(pools);
        let claim = self.store.write(move |tx| {
            let pools = Pools::read(tx.connection(), &configured, live_max, tx.steady())?;
            match next_to_start(
                tx.connection(),
                &pools,
                &slots_used(tx.connection(), &pools)?,
                &StartTarget::Here,
            )? {
                Some(run) => tx.claim(&run, &[1], None, KEEP).map(Some),
                None => Ok(None),
            }
        });
        claim.await.expect("a store")
    }

    async fn end(&self, run: RunId, code: i32) -> Run {
        self.advance(run, RunEvent::Started).await.expect("started");
        self.advance(run, ended(code)).await.expect("ended");
        self.store
            .write(move |tx| tx.resolve_dependents(run, KEEP))
            .await
            .expect("settled");
        self.run(run)
    }

    fn place(&self, run: &Run) -> Option<QueuePosition> {
        self.store
            .read(|connection| QueueHead::read(connection, &run.pool))
            .expect("read")
            .place(run)
    }

    /// Queues many runs and returns them.
    async fn queue_all(&self, all: Vec<NewRun>) -> Vec<Run> {
        self.store
            .write(move |tx| all.iter().map(|new| tx.dispatch(new)).collect())
            .await
            .expect("queued")
    }

    async fn queue_after(
        &self,
        after: &[(RunId, AfterEnd)],
        after_failed: AfterFailed,
    ) -> Result<Run, StoreError> {
        self.queue(NewRun {
            after: after.to_vec(),
            after_failed,
            ..new_run(&Principal::Person, None)
        })
        .await
    }
}

fn queued(owner: &Principal, pool_name: &str, priority: Priority) -> NewRun {
    NewRun {
        pool: pool(pool_name),
        rank: Rank::of(priority, Independence::Parallel),
        ..new_run(owner, None)
    }
}

#[tokio::test]
async fn runs_start_by_priority_then_owner_then_dispatch() {
    let f = fixture();
    let (a, b) = (client("/a"), client("/b"));
    let mut all = Vec::new();
    for (owner, priority) in [
        (&a, Priority::P1),
        (&a, Priority::P1),
        (&a, Priority::P1),
        (&b, Priority::P1),
        (&b, Priority::P0),
        (&a, Priority::P2),
    ] {
        all.push(
            f.queue(queued(owner, "default", priority))
                .await
                .expect("queued")
                .id,
        );
    }
    let last = f.run(all[2]);
    assert_eq!(f.place(&last), Some(QueuePosition::At(5)));
    let mut order = Vec::new();
    while let Some(run) = f.claim(&[("default", 9)], 9).await {
        order.push(
            all.iter()
                .position(|id| *id == run.id)
                .expect("one of them"),
        );
    }
    // The urgent run of b counts as live, so a starts first, then both take turns.
    assert_eq!(order, [4, 0, 3, 1, 2, 5]);
    assert!(f.claim(&[("default", 9)], 9).await.is_none());
}

#[tokio::test]
async fn places_behind_a_thousand_runs_are_not_counted() {
    let f = fixture();
    let (a, b) = (client("/a"), client("/b"));
    let normal = |owner: &Principal| queued(owner, "default", Priority::P1);
    let many = f.queue_all((0..1_001).map(|_| normal(&a)).collect()).await;
    let others = f
        .queue_all(vec![
            normal(&b),
            normal(&b),
            queued(&a, "default", Priority::P0),
            queued(&b, "gpu", Priority::P1),
        ])
        .await;
    let places = |runs: &[&Run]| {
        runs.iter()
            .map(|run| f.place(run).expect("a place"))
            .collect::<Vec<_>>()
    };
    // One urgent run starts before, then owners take turns.
    assert_eq!(
        places(&[
            &others[2], &many[0], &others[0], &others[1], &many[1], &many[4]
        ]),
        [1, 2, 2, 4, 4, 8].map(QueuePosition::At)
    );
    assert_eq!(
        places(&[&others[3], &many[999], &many[1_000]]),
        [
            QueuePosition::At(1),
            QueuePosition::At(1_003),
            QueuePosition::Behind(1_000)
        ]
    );
    let agent = many[0].agent.clone();
    let counts = |max| {
        f.store
            .read(|connection| queued_up_to(connection, "default", max))
            .expect("counted")
    };
    assert_eq!(
        (counts(7), counts(9_999), agent.is_empty()),
        (7, 1_004, false)
    );
}

#[tokio::test]
async fn live_runs_are_underway_before_newer_queued_ones() {
    let f = fixture();
    let live = f.running(&Principal::Person).await;
    let waiting = f
        .queue_all((0..5).map(|_| new_run(&Principal::Person, None)).collect())
        .await;
    f.advance(waiting[0].id, RunEvent::StopAsked(StopReason::Paused))
        .await
        .expect("stopped");
    for who in [Principal::Person, client("/a")] {
        let underway = f
            .store
            .read(|connection| underway_runs(connection, &who, 3))
            .expect("read");
        let expected = if who == Principal::Person {
            vec![waiting[4].id, waiting[3].id, live.id]
        } else {
            Vec::new()
        };
        assert_eq!(
            underway.iter().map(|run| run.id).collect::<Vec<_>>(),
            expected
        );
    }
}

#[tokio::test]
async fn pages_before_a_run_have_every_run_once() {
    let f = fixture();
    let (a, b) = (client("/a"), client("/b"));
    let all = f
        .queue_all(
            (0..25)
                .map(|number| new_run(if number % 5 == 0 { &b } else { &a }, None))
                .collect(),
        )
        .await;
    f.advance(all[3].id, RunEvent::StopAsked(StopReason::Cancelled))
        .await
        .expect("cancelled");
    f.advance(all[4].id, RunEvent::StopAsked(StopReason::Paused))
        .await
        .expect("stopped");
    for (owner, is_all, expected) in [
        (None, false, 24),
        (None, true, 25),
        (Some(&a), false, 19),
        (Some(&b), true, 5),
    ] {
        let (mut seen, mut before): (Vec<i64>, Option<Run>) = (Vec::new(), None);
        loop {
            let page = f
                .store
                .read(|connection| runs_before(connection, owner, is_all, before.as_ref(), 7))
                .expect("a page");
            seen.extend(page.runs.iter().map(|run| run.no));
            assert_eq!(seen.len() as u64 + page.more, expected);
            before = page.runs.into_iter().last();
            if page.more == 0 {
                break;
            }
        }
        assert!(
            seen.is_sorted_by(|a, b| a > b) && seen.len() as u64 == expected,
            "{seen:?}"
        );
    }
}

/// Returns the number of rows that a server has read in the transaction, or of the steps that
/// SQLite has taken for these statements.
fn cost(connection: &Connection, statements: &[String]) -> i64 {
    if statements.is_empty() {
        let sql = "SELECT CAST(coalesce(sum(coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0)), 0) AS BIGINT) FROM pg_stat_xact_user_tables";
        return connection
            .prepare_cached(sql)
            .expect("a statement")
            .read_row([])
            .expect("a number");
    }
    statements
        .iter()
        .map(|sql| i64::from(connection.prepare_cached(sql).expect("a statement").steps()))
        .sum()
}

#[tokio::test]
async fn views_of_the_queue_cost_the_same_however_many_are_queued() {
    const PAGE: u32 = 10;
    const QUEUED: i64 = 1_300;
    let f = fixture();
    let a = client("/a");
    let many = || {
        (0..QUEUED)
            .map(|number| {
                queued(
                    &a,
                    if number % 8 == 0 { "gpu" } else { "default" },
                    Priority::P1,
                )
            })
            .collect::<Vec<_>>()
    };
    let is_on_server = f.store.is_on_server();
    let statements = if is_on_server {
        Vec::new()
    } else {
        [statements_of_head(), statements_of_queued()].concat()
    };
    let fill = async || {
        f.queue_all(many()).await;
        if is_on_server {
            // A server does the same after a while. Its planner estimates from it whether few runs
            // are queued.
            f.store
                .write(|tx| Ok(tx.connection().execute_batch("ANALYZE runs")?))
                .await
                .expect("analyzed");
        }
    };
    let cost_of = |work: &dyn Fn(&Connection)| {
        let read = f.store.read(|connection| {
            let before = cost(connection, &statements);
            work(connection);
            Ok(cost(connection, &statements) - before)
        });
        read.expect("read")
    };
    let page = |owner: Option<&Principal>, connection: &Connection| {
        assert_eq!(
            runs_newest(connection, owner, false, PAGE)
                .expect("read")
                .runs
                .len(),
            PAGE as usize
        );
    };
    let costs = |queued: i64| {
        // A page counts the further runs up to a larger number, in a statement of its own.
        let counted = if is_on_server {
            queued.min(i64::from(PAGE + MORE_COUNTED_MAX))
        } else {
            0
        };
        let head =
            cost_of(&|connection| drop(QueueHead::read(connection, "default").expect("read")));
        [
            head,
            cost_of(&|connection| page(None, connection)) - counted,
            cost_of(&|connection| page(Some(&a), connection)) - counted,
        ]
    };
    fill().await;
    let short = costs(QUEUED);
    fill().await;
    let long = costs(2 * QUEUED);
    for (short, long) in short.into_iter().zip(long) {
        assert!(
            short > 0 && long <= short + short / 4 + 100,
            "{short}, then {long}"
        );
    }
}

#[tokio::test]
async fn pool_never_has_more_live_runs_than_slots() {
    let f = fixture();
    for name in ["gpu", "gpu", "gpu", "default", "default"] {
        f.queue(queued(&Principal::Person, name, Priority::P1))
            .await
            .expect("queued");
    }
    let pools = [("gpu", 1), ("default", 9)];
    let first = f.claim(&pools, 2).await.expect("a run");
    let second = f.claim(&pools, 2).await.expect("a run");
    assert_eq!(
        [first.pool.as_str(), second.pool.as_str()],
        ["gpu", "default"]
    );
    assert!(f.claim(&pools, 2).await.is_none(), "the overall limit");
    assert_eq!(f.claim(&pools, 9).await.expect("a run").pool, "default");
    assert!(f.claim(&pools, 9).await.is_none(), "the pool's limit");
    f.end(first.id, 0).await;
    assert_eq!(f.claim(&pools, 9).await.expect("a run").pool, "gpu");
}

#[tokio::test]
async fn claims_of_one_transaction_count_for_each_other() {
    let f = fixture();
    for owner in ["/a", "/a", "/a", "/a", "/b"] {
        f.queue(queued(&client(owner), "gpu", Priority::P1))
            .await
            .expect("queued");
    }
    let configured = configured(&[("gpu", 4)]);
    let claims = f.store.write(move |tx| {
        let pools = Pools::read(tx.connection(), &configured, 9, tx.steady())?;
        let (mut used, mut owners) = (slots_used(tx.connection(), &pools)?, Vec::new());
        while let Some(run) = next_to_start(tx.connection(), &pools, &used, &StartTarget::Here)? {
            used.add_claimed(&pools, &tx.claim(&run, &[1], None, KEEP)?);
            owners.push(run.owner.to_string());
            assert_eq!(used, slots_used(tx.connection(), &pools)?);
        }
        Ok(owners)
    });
    let owners = claims.await.expect("a store");
    assert_eq!(owners.len(), 4, "the slots of the pool");
    assert_eq!(
        owners
            .iter()
            .filter(|owner| *owner == &client("/b").to_string())
            .count(),
        1,
        "owners take turns: {owners:?}"
    );
}

#[tokio::test]
async fn changed_pool_limits_the_next_claim() {
    let f = fixture();
    for _ in 0..3 {
        f.queue(queued(&Principal::Person, "gpu", Priority::P1))
            .await
            .expect("queued");
    }
    let set = |slots, is_paused| {
        f.store
            .write(move |tx| tx.set_pool(&pool("gpu"), slots, is_paused, &Principal::Person, &[]))
    };
    set(Some(2), true).await.expect("paused");
    assert!(f.claim(&[("gpu", 1)], 9).await.is_none(), "it is paused");
    set(Some(2), false).await.expect("resumed");
    assert!(f.claim(&[("gpu", 1)], 9).await.is_some());
    assert!(
        f.claim(&[("gpu", 1)], 9).await.is_some(),
        "two slots instead of one"
    );
    assert!(f.claim(&[("gpu", 1)], 9).await.is_none());
    assert!(
        f.claim(&[("other", 1)], 9).await.is_none(),
        "a pool that is not configured starts nothing"
    );
    set(None, false).await.expect("as configured");
    assert!(f.claim(&[("gpu", 3)], 9).await.is_some());
}

#[tokio::test]
async fn exactly_one_of_many_claims_gets_the_last_slot() {
    const ROUNDS: usize = 100;
    const CLAIMS: usize = 64;
    let f = fixture();
    for _ in 0..ROUNDS {
        f.queue(new_run(&Principal::Person, None))
            .await
            .expect("queued");
        f.queue(new_run(&client("/other"), None))
            .await
            .expect("queued");
        let claims =
            futures::future::join_all((0..CLAIMS).map(|_| f.claim(&[("default", 1)], 9))).await;
        let won: Vec<Run> = claims.into_iter().flatten().collect();
        assert_eq!(won.len(), 1);
        f.end(won[0].id, 0).await;
    }
}

#[tokio::test]
async fn run_starts_after_others_have_ended() {
    let f = fixture();
    let first = f.dispatch(&Principal::Person, Some("first")).await;
    let second = f.dispatch(&Principal::Person, Some("second")).await;
    let last = f
        .queue_after(
            &[(first.id, AfterEnd::Success), (second.id, AfterEnd::Any)],
            AfterFailed::Cancel,
        )
        .await
        .expect("queued");
    assert_eq!(last.after_open, 2);
    let pools = [("default", 1)];
    assert_eq!(f.claim(&pools, 9).await.expect("a run").id, first.id);
    f.end(first.id, 0).await;
    assert_eq!(f.run(last.id).after_open, 1);
    assert_eq!(f.claim(&pools, 9).await.expect("a run").id, second.id);
    f.end(second.id, 3).await;
    assert_eq!(f.claim(&pools, 9).await.expect("a run").id, last.id);
    assert_eq!(
        f.kinds(last.id),
        [
            "run.queued",
            "run.queue_changed",
            "run.queue_changed",
            "run.starting"
        ]
    );
}

#[tokio::test]
async fn failed_dependency_cancels_all_dependents() {
    let f = fixture();
    let first = f.dispatch(&Principal::Person, Some("first")).await;
    // Longer than recursion on the writer's stack could be.
    let dispatch = f.store.write(move |tx| {
        let mut chain = vec![first.id];
        for _ in 0..2_000 {
            let after = vec![(chain[chain.len() - 1], AfterEnd::Success)];
            chain.push(
                tx.dispatch(&NewRun {
                    after,
                    ..new_run(&Principal::Person, None)
                })?
                .id,
            );
        }
        Ok(chain)
    });
    let chain = dispatch.await.expect("dispatched");
    let aside = f
        .queue_after(&[(chain[1], AfterEnd::Any)], AfterFailed::Cancel)
        .await
        .expect("queued");
    f.claim(&[("default", 1)], 9).await.expect("the first");
    f.end(first.id, 1).await;
    for id in &chain[1..] {
        let run = f.run(*id);
        assert_eq!(run.state, RunState::Finished(Outcome::Cancelled));
    }
    assert_eq!(
        f.run(chain[1]).detail.as_deref(),
        Some("dependency first failed")
    );
    assert_eq!(
        f.claim(&[("default", 1)], 9)
            .await
            .expect("any end of it counts")
            .id,
        aside.id
    );
}

#[tokio::test]
async fn held_run_starts_after_the_retry_or_when_resumed() {
    let f = fixture();
    let pools = [("default", 1)];
    let first = f.dispatch(&Principal::Person, Some("first")).await;
    let by_retry = f
        .queue_after(&[(first.id, AfterEnd::Success)], AfterFailed::Hold)
        .await
        .expect("queued");
    let by_resume = f
        .queue_after(&[(first.id, AfterEnd::Success)], AfterFailed::Hold)
        .await
        .expect("queued");
    f.claim(&pools, 9).await.expect("the first");
    f.end(first.id, 1).await;
    assert!(f.claim(&pools, 9).await.is_none(), "both are held");
    let held = f
        .store
        .read(|connection| waited_runs(connection, by_retry.id))
        .expect("read");
    assert_eq!(
        held,
        [WaitedRun {
            name: "first".to_owned(),
            on: AfterEnd::Success,
            state: AfterState::Failed
        }]
    );
    let released = f.store.write({
        let run = f.run(by_resume.id);
        move |tx| tx.release_held(&run, &Principal::Person)
    });
    assert!(released.await.expect("released"));
    assert_eq!(f.claim(&pools, 9).await.expect("a run").id, by_resume.id);
    f.end(by_resume.id, 0).await;

    let new = NewRun {
        retry_of: Some(first.id),
        ..new_run(&Principal::Person, Some("again"))
    };
    let retry = new.id;
    let retried = f.store.write(move |tx| {
        let first = tx.run(first.id)?;
        tx.wait_for_retry(&first, retry)?;
        tx.dispatch(&new)
    });
    retried.await.expect("retried");
    assert_eq!(f.claim(&pools, 9).await.expect("a run").id, retry);
    assert!(
        f.claim(&[("default", 2)], 9).await.is_none(),
        "it waits for the retry"
    );
    f.end(retry, 0).await;
    assert_eq!(f.claim(&pools, 9).await.expect("a run").id, by_retry.id);
}

#[tokio::test]
async fn cycle_or_failed_dependency_is_refused() {
    let f = fixture();
    let first = f.dispatch(&Principal::Person, Some("first")).await;
    let second = f
        .queue_after(&[(first.id, AfterEnd::Success)], AfterFailed::Cancel)
        .await
        .expect("queued");
    let third = f
        .queue_after(&[(second.id, AfterEnd::Success)], AfterFailed::Cancel)
        .await
        .expect("queued");
    for (run, after) in [(&first, third.id), (&first, first.id), (&second, third.id)] {
        let run = f.run(run.id);
        let edit = f.store.write_checked(move |tx| {
            tx.may_refuse_late()?;
            start_after(tx, &run, &[(after, AfterEnd::Success)], AfterFailed::Cancel)
        });
        assert!(matches!(
            denied(edit.await.expect_err("a cycle")),
            Denied::Invalid { field: "after", .. }
        ));
    }
    f.advance(first.id, RunEvent::StopAsked(StopReason::Cancelled))
        .await
        .expect("cancelled");
    let refused = f
        .queue_after(&[(first.id, AfterEnd::Success)], AfterFailed::Cancel)
        .await
        .expect_err("refused");
    assert!(matches!(
        denied(refused),
        Denied::Invalid { field: "after", .. }
    ));
    let accepted = f
        .queue_after(&[(first.id, AfterEnd::Any)], AfterFailed::Cancel)
        .await
        .expect("any end");
    assert_eq!(accepted.after_open, 0);
    let held = f
        .queue_after(&[(first.id, AfterEnd::Success)], AfterFailed::Hold)
        .await
        .expect("held");
    assert_eq!(held.after_open, 1);
    let many = vec![(accepted.id, AfterEnd::Any); adjutant_core::pool::AFTER_MAX + 1];
    assert!(matches!(
        denied(
            f.queue_after(&many, AfterFailed::Cancel)
                .await
                .expect_err("too many")
        ),
        Denied::Limit { .. }
    ));
}

#[tokio::test]
async fn waiting_run_lends_its_slot_only_if_configured() {
    let f = fixture();
    let run = f
        .queue(queued(&Principal::Person, "gpu", Priority::P1))
        .await
        .expect("queued");
    f.claim(&[("gpu", 1)], 9).await.expect("a run");
    f.advance(run.id, RunEvent::Started).await.expect("started");
    f.ask(run.id, question(true, 60_000, None))
        .await
        .expect("asked");
    for (keep_slot, used) in [(true, 1), (false, 0)] {
        let configured = BTreeMap::from([(
            pool("gpu"),
            ConfiguredPool {
                slots: 1,
                keep_slot,
                place: PoolTarget::Here,
            },
        )]);
        let usage = f
            .store
            .read(|connection| {
                slots_used(
                    connection,
                    &Pools::read(connection, &configured, 9, clock::steady())?,
                )
            })
            .expect("read");
        assert_eq!(
            (usage.in_pool("gpu").used(), usage.in_all.used()),
            (used, 1),
            "it stays a live run of the overall limit"
        );
    }
}

#[tokio::test]
async fn predicted_start_is_based_on_measured_runs() {
    let f = fixture();
    for _ in 0..3 {
        let run = f.dispatch(&Principal::Person, None).await;
        f.claim(&[("default", 1)], 9).await.expect("a run");
        f.end(run.id, 0).await;
    }
    let measured = |name: &'static str| {
        f.store
            .read(|connection| measured_times(connection, name))
            .expect("read")
    };
    assert_eq!((measured("default").len(), measured("other").len()), (3, 0));
    f.dispatch(&Principal::Person, None).await;
    f.claim(&[("default", 1)], 9).await.expect("a run");
    assert_eq!(
        f.store
            .read(|connection| live_times(connection, "default", clock::steady()))
            .expect("read")
            .len(),
        1
    );
}

#[tokio::test]
async fn runs_wait_for_ports_until_their_holder_is_not_live() {
    let f = fixture();
    let holder = f.running(&Principal::Person).await;
    let id = holder.id;
    f.store
        .write(move |tx| tx.allocate_ports(id, 20, PORTS_FIRST))
        .await
        .expect("written");
    let waits = f.dispatch(&Principal::Person, None).await.id;
    let wait = async || {
        let waiting = f.store.write(move |tx| {
            let run = tx.run(waits)?;
            tx.wait_for_ports(&run, 20)
        });
        waiting.await.expect("a store")
    };
    assert!(wait().await && f.run(waits).after_open == 1);
    // A retry has ports of its own.
    let retry = f.dispatch(&Principal::Person, None).await.id;
    let retried = f.store.write(move |tx| {
        let holder = tx.run(id)?;
        tx.wait_for_retry(&holder, retry)
    });
    retried.await.expect("retried");
    assert_eq!(
        f.store
            .read(|connection| after_of(connection, waits))
            .expect("read")[0]
            .run,
        id
    );
    f.advance(id, RunEvent::StopAsked(StopReason::Paused))
        .await
        .expect("stopping");
    assert_eq!(f.run(waits).after_open, 1, "it still has its ports");
    f.advance(id, ended(0)).await.expect("stopped");
    assert_eq!(f.run(waits).after_open, 0);
    assert!(!wait().await, "no live run has ports");
}

#[tokio::test]
async fn run_waits_for_ports_of_a_sibling_but_not_of_its_parent() {
    let f = fixture();
    let parent = f.running(&Principal::Person).await;
    let (parent, limits) = (parent.id, adjutant_core::tree::TreeLimits::default());
    let child = async || {
        let new = NewRun {
            under: Some((parent, limits)),
            ..new_run(&Principal::Person, None)
        };
        f.store
            .write(move |tx| tx.dispatch(&new))
            .await
            .expect("dispatched")
    };
    f.store
        .write(move |tx| tx.allocate_ports(parent, 20, PORTS_FIRST))
        .await
        .expect("written");
    let (first, second) = (child().await, child().await);
    let waiting = f.store.write({
        let first = first.clone();
        move |tx| {
            let with_parent = tx.wait_for_ports(&first, 20)?;
            let sibling = tx.claim(&first, b"hash", None, KEEP)?;
            tx.allocate_ports(sibling.id, 20, PORTS_FIRST)?;
            Ok((with_parent, tx.wait_for_ports(&second, 20)?, second.id))
        }
    });
    let (with_parent, with_sibling, second) = waiting.await.expect("a store");
    assert!(!with_parent && with_sibling);
    assert_eq!(
        f.store
            .read(|connection| after_of(connection, second))
            .expect("read")[0]
            .run,
        first.id
    );
}
