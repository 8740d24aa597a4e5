//! Budgets: transfers, charges, warnings, stops and races.

use crate::clock;
use crate::store::testing::fixture::*;
use crate::store::*;
use adjutant_core::budget::{Price, Tokens, check_left};
use adjutant_core::signal::{Delegation, Independence, Priority};
use adjutant_core::tree::TreeLimits;
use adjutant_core::{
    Budget, BudgetKind, Decision, Denied, Outcome, Principal, RequestEvent, RunEvent, RunId,
    RunState, StopReason, Subject,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Limits of a tree that no test reaches.
const WIDE: TreeLimits = TreeLimits {
    depth_max: 9,
    children_max: 100_000,
    live_max: 100_000,
    total_max: 100_000,
};

fn budget(text: &str) -> Budget {
    Budget::parse(text).expect("a budget")
}

fn root(text: &str) -> NewRun {
    NewRun {
        budget: budget(text),
        ..new_run(&Principal::Person, None)
    }
}

pub(super) fn child(of: RunId, text: Option<&str>) -> NewRun {
    NewRun {
        under: Some((of, WIDE)),
        budget: text.map(budget).unwrap_or_default(),
        ..new_run(&Principal::Person, None)
    }
}

impl Fixture {
    async fn start(&self, new: NewRun) -> Result<Run, StoreError> {
        self.store
            .write_checked(move |tx| {
                let run = tx.dispatch(&new)?;
                let run = tx.claim(&run, b"hash", None, KEEP)?;
                tx.advance(&run, RunEvent::Started, KEEP, "supervisor", "")
            })
            .await
    }

    /// Returns the limit, the used and the reserved amount of the budget on which a run draws.
    fn account(&self, run: RunId, kind: BudgetKind) -> (RunId, i64, i64, i64) {
        let rows = self
            .store
            .read(|connection| budgets_of(connection, run, clock::steady()))
            .expect("budgets");
        let row = rows.iter().find(|row| row.kind == kind).expect("a budget");
        (
            row.run,
            row.account.limit,
            row.account.used,
            row.account.reserved,
        )
    }

    pub(super) async fn gate(&self, run: RunId, model: &str, output: u64, price: Option<Price>) {
        let stated = [ModelTotals {
            model: model.to_owned(),
            requests: 1,
            tokens: Tokens {
                output,
                ..Tokens::default()
            },
            unknown_requests: 0,
        }];
        self.store
            .write(move |tx| tx.state_gate_usage(&tx.run(run)?, &stated, &[price], KEEP))
            .await
            .expect("stated");
    }

    async fn stream(&self, run: RunId, stated: Usage) {
        self.store
            .write(move |tx| tx.state_usage(&tx.run(run)?, &stated, None, false, KEEP))
            .await
            .expect("stated");
    }

    fn has_left(&self, run: RunId) -> bool {
        let rows = self
            .store
            .read(|connection| budgets_of(connection, run, clock::steady()))
            .expect("budgets");
        check_left(rows.iter().map(|row| (row.kind, row.account))).is_ok()
    }
}

const ATTEMPT: Usage = Usage {
    input_tokens: 0,
    cached_tokens: 0,
    output_tokens: 0,
    cost_micros: None,
    of_session: false,
    cost_of_session: false,
    cached_in_input: false,
};

#[tokio::test]
async fn child_budget_is_transferred_and_its_rest_returned() {
    let f = fixture();
    let top = f.start(root("tokens=100,cost=1")).await.expect("started");
    let low = f
        .start(child(top.id, Some("tokens=60")))
        .await
        .expect("started");
    assert_eq!(f.account(top.id, BudgetKind::Tokens), (top.id, 100, 0, 60));
    assert_eq!(f.account(low.id, BudgetKind::Tokens), (low.id, 60, 0, 0));
    assert_eq!(
        f.account(low.id, BudgetKind::Cost).0,
        top.id,
        "of money, it draws on the budget above"
    );
    let refused = denied(
        f.start(child(top.id, Some("tokens=41")))
            .await
            .expect_err("too much"),
    );
    assert!(
        matches!(&refused, Denied::Budget { problem, .. } if problem.contains("40")),
        "{refused}"
    );
    assert_eq!(
        f.account(top.id, BudgetKind::Tokens).3,
        60,
        "a refused dispatch reserves nothing"
    );
    let lowest = f
        .start(child(low.id, Some("tokens=50")))
        .await
        .expect("started");
    f.gate(lowest.id, "m", 20, None).await;
    f.gate(low.id, "m", 5, None).await;
    f.advance(low.id, ended(0)).await.expect("ended");
    assert_eq!(
        f.account(top.id, BudgetKind::Tokens),
        (top.id, 100, 0, 60),
        "a run below it goes on"
    );
    f.advance(lowest.id, ended(0)).await.expect("ended");
    assert_eq!(
        f.account(top.id, BudgetKind::Tokens),
        (top.id, 100, 25, 0),
        "what was not used is back"
    );
    f.gate(low.id, "m", 500, None).await;
    assert_eq!(
        f.account(top.id, BudgetKind::Tokens).2,
        520,
        "usage beyond a returned budget is charged above"
    );
}

#[tokio::test]
async fn budget_warns_once_and_stops_its_runs() {
    let f = fixture();
    let top = f.start(root("tokens=100")).await.expect("started");
    let (low, own) = (
        f.start(child(top.id, None)).await.expect("started"),
        f.start(child(top.id, Some("tokens=10")))
            .await
            .expect("started"),
    );
    let queued = f.store.write({
        let new = child(top.id, None);
        move |tx| tx.dispatch(&new)
    });
    let queued = queued.await.expect("queued");
    f.gate(low.id, "m", 79, None).await;
    assert!(!f.kinds(top.id).contains(&"budget.warned"));
    f.gate(low.id, "m", 82, None).await;
    f.gate(low.id, "m", 83, None).await;
    assert_eq!(
        f.kinds(top.id)
            .iter()
            .filter(|kind| **kind == "budget.warned")
            .count(),
        1
    );
    assert!(
        f.run(top.id).noticed_seq().is_some(),
        "a wait returns for it"
    );
    assert_eq!(
        (f.run(top.id).state, f.has_left(low.id)),
        (RunState::Running, true)
    );
    f.gate(top.id, "m", 7, None).await;
    assert_eq!(f.run(top.id).state, RunState::Stopping(StopReason::Budget));
    assert_eq!(f.run(low.id).state, RunState::Stopping(StopReason::Budget));
    assert_eq!(
        f.run(own.id).state,
        RunState::Running,
        "it has a budget of its own"
    );
    assert!(matches!(
        f.run(queued.id).state,
        RunState::Stopped {
            reason: StopReason::Budget,
            ..
        }
    ));
    assert!(matches!(
        denied(
            f.start(child(top.id, None))
                .await
                .expect_err("nothing is left")
        ),
        Denied::Budget { .. }
    ));
    f.advance(low.id, ended(0)).await.expect("ended");
    assert!(matches!(
        f.run(low.id).state,
        RunState::Stopped {
            reason: StopReason::Budget,
            ..
        }
    ));
    let resume = f
        .store
        .write(move |tx| check_budget_left(tx, &tx.run(low.id)?))
        .await;
    assert!(matches!(
        denied(resume.expect_err("nothing is left")),
        Denied::Budget { .. }
    ));
    let raised = f.store.write(move |tx| {
        let run = tx.run(low.id)?;
        let holders = raise_budgets(tx, &run, &budget("tokens=50"), "person")?;
        tx.resume_after_raise(holders[0], KEEP, "person")?;
        Ok(holders)
    });
    assert_eq!(raised.await.expect("raised"), [top.id]);
    assert_eq!(
        (f.run(low.id).state, f.run(queued.id).state),
        (RunState::Queued, RunState::Queued)
    );
}

#[tokio::test]
async fn held_run_is_not_stopped_while_its_child_has_budget() {
    let f = fixture();
    let top = f.start(root("tokens=100")).await.expect("started");
    f.store
        .write(move |tx| tx.hold(top.id))
        .await
        .expect("held");
    let low = f
        .start(child(top.id, Some("tokens=100")))
        .await
        .expect("started");
    f.gate(low.id, "m", 100, None).await;
    assert_eq!(
        (f.run(low.id).state, f.run(top.id).state),
        (RunState::Stopping(StopReason::Budget), RunState::Running)
    );
}

/// The child has no budget of its own, so its end returns no amount that would trigger a check.
#[tokio::test]
async fn run_released_by_its_child_is_stopped_if_nothing_is_left() {
    let f = fixture();
    let top = f.start(root("tokens=100")).await.expect("started").id;
    let task = Delegation {
        task: "x".to_owned(),
        agent: None,
        directory: None,
        reason: None,
        independence: Independence::Blocks,
        priority: Priority::default(),
        context_required: None,
        coordination: None,
        estimate: None,
        budget: Budget::default(),
    };
    let request = f
        .ask(
            top,
            NewRequest {
                subject: Subject::Delegation(task),
                ..question(true, 60_000, None)
            },
        )
        .await
        .expect("asked");
    let new = child(top, None);
    let approved = f.store.write(move |tx| {
        tx.hold(top)?;
        let request = tx.advance_request(
            &request,
            RequestEvent::Answer {
                by: Principal::Person,
                decision: Decision::approved(),
            },
        )?;
        let low = tx
            .start_delegated(&request, &new, true)?
            .child
            .expect("a child")
            .0;
        let run = tx.claim(&tx.run(low)?, b"hash", None, KEEP)?;
        tx.advance(&run, RunEvent::Started, KEEP, "supervisor", "")
    });
    let low = approved.await.expect("started").id;
    f.gate(low, "m", 100, None).await;
    assert_eq!(
        (f.run(low).state, f.run(top).state),
        (RunState::Stopping(StopReason::Budget), RunState::Running)
    );
    f.advance(low, ended(0)).await.expect("stopped");
    f.advance(low, RunEvent::StopAsked(StopReason::Cancelled))
        .await
        .expect("ended");
    assert_eq!(
        (f.run(top).holding, f.run(top).state),
        (0, RunState::Stopping(StopReason::Budget))
    );
}

#[tokio::test]
async fn queued_run_does_not_start_without_budget() {
    let f = fixture();
    let top = f.start(root("cost=1")).await.expect("started");
    let new = child(top.id, None);
    let low = f
        .store
        .write(move |tx| tx.dispatch(&new))
        .await
        .expect("queued");
    assert!(
        !f.store
            .write(move |tx| tx.stop_without_budget(&tx.run(low.id)?, KEEP))
            .await
            .expect("checked")
    );
    f.advance(low.id, RunEvent::StopAsked(StopReason::Paused))
        .await
        .expect("paused");
    f.gate(
        top.id,
        "m",
        1,
        Some(Price {
            output: 1_000_000_000,
            ..Price::default()
        }),
    )
    .await;
    f.advance(low.id, RunEvent::Resumed).await.expect("resumed");
    assert!(
        f.store
            .write(move |tx| tx.stop_without_budget(&tx.run(low.id)?, KEEP))
            .await
            .expect("checked")
    );
    assert!(matches!(
        f.run(low.id).state,
        RunState::Stopped {
            reason: StopReason::Budget,
            ..
        }
    ));
}

#[tokio::test]
async fn implausible_usage_has_no_effect() {
    let f = fixture();
    let run = f.start(root("tokens=1k,cost=1")).await.expect("started");
    f.stream(
        run.id,
        Usage {
            input_tokens: 10,
            output_tokens: 5,
            cost_micros: Some(100),
            ..ATTEMPT
        },
    )
    .await;
    let known = |f: &Fixture| {
        (
            f.account(run.id, BudgetKind::Tokens).2,
            f.account(run.id, BudgetKind::Cost).2,
            f.run(run.id).usage,
        )
    };
    let before = known(&f);
    assert_eq!((before.0, before.1), (15, 100));
    for stated in [
        Usage {
            input_tokens: 10,
            output_tokens: 5,
            cost_micros: Some(100),
            ..ATTEMPT
        },
        Usage {
            input_tokens: 3,
            output_tokens: 5,
            cost_micros: Some(7),
            ..ATTEMPT
        },
        Usage {
            input_tokens: u64::MAX,
            ..ATTEMPT
        },
        Usage {
            output_tokens: u64::MAX / 2,
            cost_micros: Some(u64::MAX),
            ..ATTEMPT
        },
        Usage {
            cost_micros: Some(u64::MAX),
            ..ATTEMPT
        },
        Usage { ..ATTEMPT },
    ] {
        f.stream(run.id, stated).await;
        assert_eq!(known(&f), before, "{stated:?}");
    }
    for absurd in [u64::MAX, 0] {
        f.gate(run.id, "m", absurd, None).await;
        assert_eq!(known(&f), before);
    }
    f.gate(run.id, &"m".repeat(100_000), 5, None).await;
    assert_eq!(known(&f), before);
}

#[tokio::test]
async fn totals_of_attempts_and_sessions_are_charged_once() {
    let f = fixture();
    let again = async |f: &Fixture, run: RunId| {
        f.advance(run, RunEvent::StopAsked(StopReason::Paused))
            .await
            .expect("stopping");
        f.advance(run, ended(0)).await.expect("stopped");
        f.advance(run, RunEvent::Resumed).await.expect("queued");
        f.store
            .write(move |tx| {
                let run = tx.claim(&tx.run(run)?, b"hash", None, KEEP)?;
                tx.advance(&run, RunEvent::Started, KEEP, "supervisor", "")
            })
            .await
            .expect("running");
    };
    let used = |f: &Fixture, run| {
        (
            f.account(run, BudgetKind::Tokens).2,
            f.account(run, BudgetKind::Cost).2,
        )
    };
    // Totals of each attempt.
    let run = f
        .start(root("tokens=1M,cost=100"))
        .await
        .expect("started")
        .id;
    let of_attempt = |tokens, cost| Usage {
        output_tokens: tokens,
        cost_micros: Some(cost),
        ..ATTEMPT
    };
    f.stream(run, of_attempt(100, 10)).await;
    f.stream(run, of_attempt(150, 15)).await;
    assert_eq!(used(&f, run), (150, 15));
    again(&f, run).await;
    f.stream(run, of_attempt(100, 10)).await;
    assert_eq!(used(&f, run), (250, 25));
    assert_eq!(
        f.run(run)
            .usage
            .map(|usage| (usage.output_tokens, usage.cost_micros)),
        Some((250, Some(25)))
    );
    // Totals of the session, until another session starts.
    let run = f
        .start(root("tokens=1M,cost=100"))
        .await
        .expect("started")
        .id;
    let of_session = |tokens, cost| Usage {
        of_session: true,
        cost_of_session: true,
        ..of_attempt(tokens, cost)
    };
    f.store
        .write(move |tx| tx.set_session(run, "one"))
        .await
        .expect("set");
    f.stream(run, of_session(100, 10)).await;
    again(&f, run).await;
    f.stream(run, of_session(130, 13)).await;
    assert_eq!(used(&f, run), (130, 13));
    f.store
        .write(move |tx| tx.set_session(run, "two"))
        .await
        .expect("set");
    f.stream(run, of_session(20, 2)).await;
    assert_eq!(used(&f, run), (150, 15));
    // Input that includes cached tokens.
    let run = f.start(root("tokens=1M")).await.expect("started").id;
    f.stream(
        run,
        Usage {
            input_tokens: 100,
            cached_tokens: 90,
            output_tokens: 1,
            cached_in_input: true,
            ..ATTEMPT
        },
    )
    .await;
    assert_eq!(
        (
            f.account(run, BudgetKind::Tokens).2,
            f.run(run).usage.map(|usage| usage.input_tokens)
        ),
        (11, Some(100))
    );
}

#[tokio::test]
async fn unknown_cost_is_not_zero_and_a_reported_cost_is_used() {
    let f = fixture();
    let run = f.start(root("cost=100")).await.expect("started").id;
    f.stream(
        run,
        Usage {
            output_tokens: 1_000,
            ..ATTEMPT
        },
    )
    .await;
    let known = f.run(run);
    assert_eq!(
        (
            known.unpriced_tokens,
            known.usage.and_then(|usage| usage.cost_micros)
        ),
        (1_000, None)
    );
    f.stream(
        run,
        Usage {
            output_tokens: 1_000,
            cost_micros: Some(5),
            ..ATTEMPT
        },
    )
    .await;
    assert_eq!(
        (
            f.run(run).unpriced_tokens,
            f.account(run, BudgetKind::Cost).2
        ),
        (0, 5)
    );
    let price = Some(Price {
        output: 2_000,
        ..Price::default()
    });
    let stated = Usage {
        output_tokens: 2_000,
        ..ATTEMPT
    };
    f.store
        .write(move |tx| tx.state_usage(&tx.run(run)?, &stated, price, false, KEEP))
        .await
        .expect("stated");
    assert_eq!(
        (f.run(run).is_priced, f.account(run, BudgetKind::Cost).2),
        (true, 2_005)
    );
    f.stream(
        run,
        Usage {
            output_tokens: 2_000,
            cost_micros: Some(2_100),
            ..ATTEMPT
        },
    )
    .await;
    assert_eq!(
        f.account(run, BudgetKind::Cost).2,
        2_100,
        "the stated cost includes the computed one"
    );
}

#[tokio::test]
async fn gate_counts_by_model_instead_of_the_stream() {
    let f = fixture();
    let run = f
        .start(root("tokens=1k,cost=9,hard"))
        .await
        .expect("started")
        .id;
    let price = Some(Price {
        output: 1_000_000,
        ..Price::default()
    });
    f.gate(run, "a", 10, price).await;
    f.gate(run, "b", 5, price).await;
    f.gate(run, "a", 12, price).await;
    f.stream(
        run,
        Usage {
            output_tokens: 900,
            cost_micros: Some(1),
            ..ATTEMPT
        },
    )
    .await;
    assert_eq!(
        (
            f.account(run, BudgetKind::Tokens).2,
            f.account(run, BudgetKind::Cost).2
        ),
        (17, 17_000)
    );
    f.gate(run, "c", 1, None).await;
    assert_eq!(
        f.run(run).state,
        RunState::Stopping(StopReason::Budget),
        "a hard budget and a model without a price"
    );
}

#[tokio::test]
async fn usage_beyond_a_transferred_budget_reduces_the_budget_above() {
    let f = fixture();
    let top = f.start(root("tokens=100")).await.expect("started");
    let low = f
        .start(child(top.id, Some("tokens=20")))
        .await
        .expect("started");
    let lowest = f
        .start(child(low.id, Some("tokens=10")))
        .await
        .expect("started");
    let beside = f.start(child(top.id, None)).await.expect("started");
    f.gate(lowest.id, "m", 70, None).await;
    assert_eq!(
        (
            f.account(low.id, BudgetKind::Tokens).3,
            f.account(top.id, BudgetKind::Tokens).3
        ),
        (70, 70)
    );
    assert_eq!(
        f.run(low.id).state,
        RunState::Stopping(StopReason::Budget),
        "nothing of its own is left"
    );
    assert!(matches!(
        denied(
            f.start(child(top.id, Some("tokens=31")))
                .await
                .expect_err("too much")
        ),
        Denied::Budget { .. }
    ));
    f.gate(lowest.id, "m", 100, None).await;
    assert_eq!(
        (f.has_left(beside.id), f.run(beside.id).state),
        (false, RunState::Stopping(StopReason::Budget))
    );
    f.advance(lowest.id, ended(0)).await.expect("stopped");
    f.advance(lowest.id, RunEvent::StopAsked(StopReason::Cancelled))
        .await
        .expect("ended");
    assert_eq!(f.account(low.id, BudgetKind::Tokens), (low.id, 20, 100, 0));
    f.advance(low.id, ended(0)).await.expect("stopped");
    f.advance(low.id, RunEvent::StopAsked(StopReason::Cancelled))
        .await
        .expect("ended");
    assert_eq!(f.account(top.id, BudgetKind::Tokens), (top.id, 100, 100, 0));
}

#[tokio::test]
async fn requests_without_reported_usage_are_charged_a_minimum() {
    let f = fixture();
    let unknown = async |run: RunId, unknown_requests: u64, price: Option<Price>| {
        let stated = [ModelTotals {
            model: "m".to_owned(),
            requests: unknown_requests,
            tokens: Tokens::default(),
            unknown_requests,
        }];
        f.store
            .write(move |tx| tx.state_gate_usage(&tx.run(run)?, &stated, &[price], KEEP))
            .await
            .expect("stated");
    };
    let price = Some(Price {
        input: 1_000,
        ..Price::default()
    });
    let top = f.start(root("tokens=10k,cost=9")).await.expect("started");
    let low = f
        .start(child(top.id, Some("tokens=5k")))
        .await
        .expect("started");
    unknown(low.id, 2, price).await;
    unknown(low.id, 3, price).await;
    unknown(low.id, 3, price).await;
    let row = |run, kind| {
        let rows = f
            .store
            .read(|connection| budgets_of(connection, run, clock::steady()))
            .expect("budgets");
        rows.into_iter()
            .find(|row| row.kind == kind)
            .expect("a budget")
    };
    assert_eq!(
        (
            row(low.id, BudgetKind::Tokens).account.used,
            row(low.id, BudgetKind::Tokens).unstated
        ),
        (3_000, 3)
    );
    assert_eq!(
        (
            row(top.id, BudgetKind::Cost).account.used,
            row(top.id, BudgetKind::Cost).unstated
        ),
        (3_000, 3)
    );
    assert_eq!(
        f.run(low.id).usage.map(|usage| usage.input_tokens),
        Some(0),
        "the run's own usage has only what was stated"
    );
    f.advance(low.id, ended(0)).await.expect("ended");
    assert_eq!(
        (
            row(top.id, BudgetKind::Tokens).account.used,
            row(top.id, BudgetKind::Tokens).unstated
        ),
        (3_000, 3),
        "with the budget"
    );
    let hard = f.start(root("tokens=10k,hard")).await.expect("started");
    unknown(hard.id, 1, None).await;
    assert_eq!(f.run(hard.id).state, RunState::Stopping(StopReason::Budget));
}

#[tokio::test]
async fn hard_budget_applies_to_all_runs_below_it() {
    let f = fixture();
    let top = f.start(root("tokens=100k,hard")).await.expect("started");
    let unmetered = vec![(BudgetKind::Tokens, "it is silent")];
    for below in [
        child(top.id, None),
        child(top.id, Some("tokens=1k")),
        child(top.id, Some("time=1h")),
    ] {
        let refused = denied(
            f.start(NewRun {
                unmetered: unmetered.clone(),
                ..below
            })
            .await
            .expect_err("its usage cannot be known"),
        );
        assert!(
            matches!(&refused, Denied::Budget { problem, .. } if problem.contains("it is silent")),
            "{refused}"
        );
    }
    f.start(NewRun {
        unmetered: unmetered.clone(),
        ..root("tokens=100k")
    })
    .await
    .expect("not hard");
    let low = f
        .start(child(top.id, Some("tokens=1k")))
        .await
        .expect("started");
    let (new, later) = (child(low.id, None), unmetered.clone());
    let lowest = f
        .store
        .write(move |tx| tx.dispatch(&new))
        .await
        .expect("queued");
    assert!(
        f.store
            .write(move |tx| tx.stop_if_unmetered(&tx.run(lowest.id)?, KEEP, |_| Ok(later)))
            .await
            .expect("checked")
    );
    assert!(matches!(
        f.run(lowest.id).state,
        RunState::Stopped {
            reason: StopReason::Budget,
            ..
        }
    ));
    f.store
        .write(move |tx| tx.use_up_hard(low.id, BudgetKind::Tokens, "it is silent", None, KEEP))
        .await
        .expect("used up");
    assert_eq!(
        (f.account(low.id, BudgetKind::Tokens).2, f.run(low.id).state),
        (1_000, RunState::Stopping(StopReason::Budget))
    );
    assert!(
        f.run(low.id)
            .detail
            .is_some_and(|why| why.contains("is hard, and it is silent"))
    );
    assert_eq!(f.run(top.id).state, RunState::Running, "it has the rest");
}

#[tokio::test]
async fn return_resumes_only_what_a_used_up_budget_stopped() {
    let f = fixture();
    let top = f.start(root("tokens=100k,hard")).await.expect("started");
    let low = f
        .start(child(top.id, Some("tokens=10k")))
        .await
        .expect("started");
    let silent = f.start(child(top.id, None)).await.expect("started");
    f.store
        .write(move |tx| tx.stop_if_unknown(silent.id, BudgetKind::Tokens, "it is silent", KEEP))
        .await
        .expect("stopped");
    f.advance(silent.id, ended(0)).await.expect("ended");
    f.advance(low.id, ended(0)).await.expect("ended");
    assert!(
        matches!(
            f.run(silent.id).state,
            RunState::Stopped {
                reason: StopReason::Budget,
                ..
            }
        ),
        "its usage is still not known"
    );
    let low = f
        .start(child(top.id, Some("tokens=100k")))
        .await
        .expect("started");
    let waiting = child(top.id, None);
    assert!(matches!(
        denied(f.start(waiting).await.expect_err("all is reserved")),
        Denied::Budget { .. }
    ));
    let paused = f
        .store
        .write(move |tx| tx.stop_without_budget(&tx.run(low.id)?, KEEP))
        .await
        .expect("checked");
    assert!(!paused);
}

#[tokio::test]
async fn stop_in_progress_keeps_its_reason() {
    let f = fixture();
    let run = f.start(root("tokens=10")).await.expect("started").id;
    f.advance(run, RunEvent::StopAsked(StopReason::Paused))
        .await
        .expect("stopping");
    f.gate(run, "m", 11, None).await;
    assert_eq!(
        (f.run(run).state, f.run(run).detail),
        (RunState::Stopping(StopReason::Paused), None)
    );
}

#[tokio::test]
async fn finished_work_is_not_stopped_at_its_limit() {
    let f = fixture();
    let run = f.start(root("tokens=10")).await.expect("started").id;
    let stated = Usage {
        output_tokens: 11,
        ..ATTEMPT
    };
    let done = f.store.write(move |tx| {
        tx.state_usage(&tx.run(run)?, &stated, None, true, KEEP)?;
        tx.advance(&tx.run(run)?, ended(0), KEEP, "supervisor", "")
    });
    assert_eq!(
        done.await.expect("ended").state,
        RunState::Finished(Outcome::Succeeded)
    );
}

/// Makes 64 dispatches race for the last token of a budget, in each of `rounds`.
async fn race_for_last_unit(rounds: usize) {
    const AT_ONCE: usize = 25;
    let f = Arc::new(fixture());
    let mut tops = Vec::new();
    for _ in 0..AT_ONCE {
        tops.push(f.start(root("tokens=10")).await.expect("started").id);
        f.gate(*tops.last().expect("a run"), "m", 9, None).await;
    }
    let (mut wins, mut wrong) = (0, 0);
    for _ in 0..rounds.div_ceil(AT_ONCE) {
        let mut tries = tokio::task::JoinSet::new();
        for (place, top) in tops.iter().enumerate() {
            for _ in 0..64 {
                let (f, new) = (Arc::clone(&f), child(*top, Some("tokens=1")));
                tries.spawn(async move {
                    match f.store.write_checked(move |tx| tx.dispatch(&new)).await {
                        Ok(run) => (place, Some(run.id)),
                        Err(error) => {
                            assert!(matches!(denied(error), Denied::Budget { .. }));
                            (place, None)
                        }
                    }
                });
            }
        }
        let mut won = vec![Vec::new(); AT_ONCE];
        for (place, run) in tries.join_all().await {
            won[place].extend(run);
        }
        wins += won.iter().filter(|won| won.len() == 1).count();
        wrong += won.iter().filter(|won| won.len() != 1).count();
        for run in won.into_iter().flatten() {
            f.advance(run, RunEvent::StopAsked(StopReason::Cancelled))
                .await
                .expect("cancelled");
        }
        for top in &tops {
            assert_eq!(
                f.account(*top, BudgetKind::Tokens),
                (*top, 10, 9, 0),
                "the unit is back"
            );
        }
    }
    println!(
        "64 dispatches for the last unit of a budget: {wins} rounds with exactly one winner, {wrong} others"
    );
    assert_eq!(wrong, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_unit_of_a_budget_goes_to_one_child() {
    race_for_last_unit(100).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test -- --ignored last_units"]
async fn last_units_of_ten_thousand_budgets_go_to_one_child_each() {
    race_for_last_unit(10_000).await;
}

/// Makes siblings begin requests and report usage until the budget is empty, in each of `rounds`.
/// Nothing may begin after any of them has learned that nothing is left.
async fn race_for_requests(rounds: usize) {
    const SIBLINGS: usize = 8;
    let f = Arc::new(fixture());
    let late = Arc::new(AtomicU64::new(0));
    let mut begun = 0;
    for _ in 0..rounds {
        let top = f.start(root("tokens=40")).await.expect("started").id;
        let exhausted = Arc::new(AtomicBool::new(false));
        let mut tries = tokio::task::JoinSet::new();
        let mut runs = Vec::new();
        for _ in 0..SIBLINGS {
            runs.push(f.start(child(top, None)).await.expect("started").id);
        }
        for run in runs {
            let (f, late, exhausted) = (Arc::clone(&f), Arc::clone(&late), Arc::clone(&exhausted));
            tries.spawn(async move {
                let mut requests = 0;
                loop {
                    let is_late = exhausted.load(Ordering::SeqCst);
                    if !f.has_left(run) {
                        break requests;
                    }
                    late.fetch_add(u64::from(is_late), Ordering::SeqCst);
                    requests += 1;
                    f.gate(run, "m", requests * 3, None).await;
                    if !f.has_left(run) {
                        exhausted.store(true, Ordering::SeqCst);
                    }
                }
            });
        }
        begun += tries.join_all().await.into_iter().sum::<u64>();
        assert_eq!(f.run(top).state, RunState::Stopping(StopReason::Budget));
    }
    let late = late.load(Ordering::SeqCst);
    println!(
        "{rounds} races of {SIBLINGS} siblings for a budget: {begun} requests, {late} of them began after it was used up"
    );
    assert_eq!(late, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_begins_after_the_budget_is_used_up() {
    race_for_requests(20).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute: cargo test -- --ignored thousand_races"]
async fn no_request_begins_late_in_a_thousand_races() {
    race_for_requests(1_000).await;
}

#[tokio::test]
async fn time_of_all_active_runs_is_counted() {
    let f = fixture();
    let top = f.start(root("time=1h")).await.expect("started");
    let low = f.start(child(top.id, None)).await.expect("started");
    let later = clock::steady().plus_ms(30 * 60 * 1000);
    let rows = f
        .store
        .read(|connection| budgets_of(connection, low.id, later))
        .expect("budgets");
    let used = rows[0].account.used;
    assert!(
        (2 * 30 * 60 * 1000 - 5_000..=2 * 30 * 60 * 1000 + 5_000).contains(&used),
        "two runs: {used}"
    );
    let next = f
        .store
        .read(|connection| next_time_budget(connection, clock::steady(), &BTreeSet::new()))
        .expect("a time")
        .expect("a deadline");
    let in_ms = next.ms_since(clock::steady());
    assert!(
        (23 * 60 * 1000..=24 * 60 * 1000 + 1_000).contains(&in_ms),
        "the warning, at half of 80 %: {in_ms}"
    );
    assert_eq!(
        f.store
            .read(|connection| due_time_budgets(connection, later, &BTreeSet::new()))
            .expect("due"),
        [top.id]
    );
    let unreported = BTreeSet::from([low.id]);
    let judged = f.store.read(|connection| {
        Ok::<_, StoreError>((
            due_time_budgets(connection, later, &unreported)?,
            next_time_budget(connection, later, &unreported)?,
        ))
    });
    assert_eq!(
        judged.expect("read"),
        (Vec::new(), None),
        "only its supervisor knows how long the one below was active"
    );
    f.advance(low.id, ended(0)).await.expect("ended");
    let after = f.account(top.id, BudgetKind::Time).2;
    assert!((0..5_000).contains(&after), "{after}");
}
